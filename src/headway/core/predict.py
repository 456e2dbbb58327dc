"""How long an answer will be: what ``sjf`` sorts by.

No guess is ever above the request's ``max_tokens``. Nothing here knows the truth in advance; what
is known to a simulator stays in the simulator.
"""

from __future__ import annotations

from typing import Protocol

from headway.core.config import PredictorName
from headway.core.request import Request


class OutputLengthPredictor(Protocol):
    """Guesses output lengths, and learns from those that ended. Deterministic."""

    def predict(self, request: Request) -> float:
        """Return the expected number of output tokens, between 0 and ``max_tokens``."""
        ...

    def observe(self, request: Request, num_output_tokens: int) -> None:
        """Learn how long one sequence of the request was."""
        ...


class MaxTokens:
    """Takes the client's limit for its need, as schedulers without any knowledge do."""

    def predict(self, request: Request) -> float:
        """Return ``max_tokens``."""
        return float(request.sampling.max_tokens)

    def observe(self, request: Request, num_output_tokens: int) -> None:
        """Nothing is to be learned: the limit is the guess."""


class _Cell:
    """A mean with exponential forgetting: the latest ``_WINDOW`` lengths weigh most."""

    __slots__ = ("total", "weight")

    def __init__(self) -> None:
        self.weight = 0.0
        self.total = 0.0

    def add(self, length: float) -> None:
        self.weight = self.weight * _KEEP + 1.0
        self.total = self.total * _KEEP + length


_WINDOW = 1024
_KEEP = 1.0 - 1.0 / _WINDOW
#: observations that the coarser mean counts for in a finer one: with so many of its own, a cell
#: has half of the say
_SHRINKAGE = 4.0

#: (class, tenant, prompt length), (class, None, prompt length) or (class, None, None)
_Key = tuple[str, str | None, int | None]


class Learned:
    """The mean of the lengths seen so far, by class, tenant and prompt length.

    Prompt lengths fall into buckets, eight to each power of two. The mean of a cell is shrunk
    towards that of the coarser one (the bucket in its class, the class, all requests), so that few
    observations say little (Efron and Morris, 1975). Before anything was observed the guess is
    ``first_guess``: clients set ``max_tokens`` as a fence, mostly far beyond what comes, so it says
    little of the length.

    Args:
        max_cells: those that were observed least recently leave beyond so many.
        first_guess: output tokens of an answer before any was seen.
    """

    __slots__ = ("_all", "_cells", "_first_guess", "_max_cells")

    def __init__(self, *, max_cells: int = 4096, first_guess: float = 256.0) -> None:
        if max_cells < 3:
            raise ValueError(f"max_cells must be at least 3, not {max_cells}")
        self._max_cells = max_cells
        self._first_guess = first_guess
        self._all = _Cell()
        self._cells: dict[_Key, _Cell] = {}  # in the order of their latest observation

    def predict(self, request: Request) -> float:
        """Return the mean of the finest cells, shrunk towards coarser ones as they lack data."""
        name = request.class_name
        bucket = _bucket(len(request.prompt_token_ids))
        guess = (self._all.total + self._first_guess) / (self._all.weight + 1.0)
        get = self._cells.get
        for key in (name, None, None), (name, None, bucket), (name, request.tenant, bucket):
            cell = get(key)
            if cell is not None:
                guess = (cell.total + _SHRINKAGE * guess) / (cell.weight + _SHRINKAGE)
        longest = request.sampling.max_tokens
        return guess if guess < longest else float(longest)

    def observe(self, request: Request, num_output_tokens: int) -> None:
        """Take the length into its cell and the coarser ones."""
        name = request.class_name
        bucket = _bucket(len(request.prompt_token_ids))
        cells = self._cells
        self._all.add(num_output_tokens)
        # the coarsest last, so that it leaves last
        for key in (name, request.tenant, bucket), (name, None, bucket), (name, None, None):
            cell = cells.pop(key, None) or _Cell()
            cell.add(num_output_tokens)
            cells[key] = cell
        while len(cells) > self._max_cells:
            del cells[next(iter(cells))]


class Hint:
    """What the client says, and what ``fallback`` has learned where it says nothing."""

    __slots__ = ("_fallback",)

    def __init__(self, fallback: Learned) -> None:
        self._fallback = fallback

    def predict(self, request: Request) -> float:
        """Return ``expected_output_tokens``, at most ``max_tokens``."""
        hint = request.expected_output_tokens
        if hint is None:
            return self._fallback.predict(request)
        return float(min(max(hint, 0), request.sampling.max_tokens))

    def observe(self, request: Request, num_output_tokens: int) -> None:
        """Teach the fallback, for requests that come without a hint."""
        self._fallback.observe(request, num_output_tokens)


def make_predictor(name: PredictorName) -> OutputLengthPredictor:
    """Return a predictor that knows nothing yet."""
    match name:
        case PredictorName.MAX_TOKENS:
            return MaxTokens()
        case PredictorName.LEARNED:
            return Learned()
        case PredictorName.HINT:
            return Hint(Learned())


def _bucket(length: int) -> int:
    """Return the number of the eighth of a power of two that the length falls into."""
    if length < 16:
        return length
    exponent = length.bit_length() - 4
    return 8 * exponent + (length >> exponent)
