"""The complaint about settings that are allowed each, but not together."""

from __future__ import annotations

from typing import NoReturn

from headway.errors import ConfigError


class ContradictionError(ConfigError):
    """Two or more values are allowed each, but not together.

    Attributes:
        keys: the settings at odds.
    """

    def __init__(self, message: str, keys: tuple[str, ...]) -> None:
        super().__init__(message)
        self.keys = keys


def contradict(message: str, *keys: str) -> NoReturn:
    """Raise the complaint.

    Raises:
        ContradictionError: always.
    """
    raise ContradictionError(message, keys)
