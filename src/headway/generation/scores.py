"""Log-probabilities with the text of their tokens."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import isfinite

from headway.core.plan import TokenLogprobs
from headway.text.detokenizer import IncrementalDetokenizer
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


def text_offsets(
    tokenizer: Tokenizer, token_ids: Iterable[int], *, skip_special_tokens: bool
) -> list[int]:
    """Return before how many characters of what :meth:`Tokenizer.decode` gives each token starts.

    A token that starts inside a character has that character's offset; one that leaves no text has
    the offset of what follows.
    """
    detokenizer = IncrementalDetokenizer(tokenizer, skip_special_tokens=skip_special_tokens)
    offsets, length = [], 0
    for token_id in token_ids:
        offsets.append(length)
        length += len(detokenizer.push(token_id))
    return offsets
