"""Every exception that Headway raises on purpose.

::

    HeadwayError
    ├── UsageError            bad input to a command; one line says what to change (exit 2)
    │   ├── ConfigError       a setting is unknown, of the wrong type, or contradicts another
    │   ├── ModelError        a model file is missing, damaged, foreign or not supported
    │   └── JournalError      a journal can't be read
    ├── RequestError          one request is refused; carries what the client is told
    ├── GenerationError       one request was taken, and ended without a result
    ├── EngineStoppedError    the engine is draining or dead, so it takes no work
    └── InvariantError        a bug in Headway: an invariant of the scheduler does not hold
"""

from __future__ import annotations


class HeadwayError(Exception):
    """Root of the tree."""


class UsageError(HeadwayError):
    """Bad input; ``str(error)`` is one line that says what to change. Commands exit with 2."""


class ConfigError(UsageError):
    """A setting is unknown, of the wrong type, out of range, or contradicts another."""


class ModelError(UsageError):
    """A model can't be used: missing, damaged, foreign, or of an unknown architecture."""


class JournalError(UsageError):
    """A journal can't be read, or was written by an incompatible version."""


class RequestError(HeadwayError):
    """One request is refused, before or instead of running.

    Attributes:
        param: the request field at fault, if one is.
        code: a stable, machine-readable code (``context_length_exceeded``, ``queue_full``, …).
        status: the HTTP status that carries it.
        retry_after_s: when it is worth trying again, if that is known.
    """

    def __init__(
        self,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        status: int = 400,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(message)
        self.param = param
        self.code = code
        self.status = status
        self.retry_after_s = retry_after_s


class GenerationError(HeadwayError):
    """An admitted request ended without a result: a deadline passed, or computing it failed.

    Attributes:
        code: a stable, machine-readable code (``engine_error``, ``queue_timeout``, …).
        status: the HTTP status that carries it, if no part of the answer was sent yet.
        retry: whether the same request may well succeed when it is sent again.
    """

    def __init__(self, message: str, *, code: str, status: int, retry: bool) -> None:
        super().__init__(message)
        self.code = code
        self.status = status
        self.retry = retry


class EngineStoppedError(HeadwayError):
    """The engine is draining, stopped or broken, so it takes no new work."""


class InvariantError(HeadwayError):
    """A bug in Headway: an invariant of the scheduler does not hold."""
