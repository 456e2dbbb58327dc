"""Why a request got no answer, by kind."""

from __future__ import annotations

from headway.errors import HeadwayError, UsageError


class TargetError(UsageError):
    """The server can't be reached, or isn't what it should be."""


class ExchangeError(HeadwayError):
    """One request failed.

    Attributes:
        kind: in a few words, the same for all that failed so (``http 503 queue_full``).
        detail: what exactly was wrong, for people.
        is_untouched: nothing of an answer came, and the connection had been used before: the server
            had closed it meanwhile, and the request may be sent again.
    """

    def __init__(self, kind: str, detail: str = "", *, is_untouched: bool = False) -> None:
        super().__init__(f"{kind}: {detail}" if detail else kind)
        self.kind = kind
        self.detail = detail
        self.is_untouched = is_untouched
