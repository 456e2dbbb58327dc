"""Log-probabilities with the text of their tokens."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite

from headway.core.plan import TokenLogprobs
from headway.text.tokenizer import Tokenizer

#: Stands for minus infinity, which JSON does not have.
LOWEST_LOGPROB = -9999.0


@dataclass(frozen=True, slots=True)
class ScoredToken:
    """A token, its own text and bytes, and its (finite, natural) log-probability."""

    token_id: int
    text: str
    data: bytes
    logprob: float


@dataclass(frozen=True, slots=True)
class ScoredPosition:
    """The token at a position, and the most likely ones there, best first."""

    token: ScoredToken
    top: tuple[ScoredToken, ...]


class Scorer:
    """Looks up the text of scored tokens."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer

    def position(self, entry: TokenLogprobs) -> ScoredPosition:
        """Return the entry with texts."""
        top = tuple(self.token(token_id, logprob) for token_id, logprob in entry.top)
        return ScoredPosition(self.token(entry.token_id, entry.logprob), top)

    def token(self, token_id: int, logprob: float) -> ScoredToken:
        """Return one token with its text; a log-probability that is not finite is the lowest."""
        value = max(logprob, LOWEST_LOGPROB) if isfinite(logprob) else LOWEST_LOGPROB
        text = self._tokenizer.token_text(token_id)
        return ScoredToken(token_id, text, self._tokenizer.token_bytes(token_id), value)


class TextOffsets:
    """Where each token starts in a text, in characters, also when it starts inside one."""

    def __init__(self) -> None:
        self._next = 0

    def advance(self, data: bytes) -> int:
        """Return the offset of a token with these bytes, and move behind it."""
        starts_inside = bool(data) and data[0] & 0xC0 == 0x80 and self._next > 0
        offset = self._next - starts_inside
        self._next += sum(byte & 0xC0 != 0x80 for byte in data)
        return offset
