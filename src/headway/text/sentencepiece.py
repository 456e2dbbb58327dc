"""Encodes with the vocabulary of a SentencePiece BPE model (Kudo & Richardson, 2018), from scores.

Neighbouring pieces are joined, best score first and leftmost first among equals, as long as the
result is a token. Characters that are no token become byte tokens.

Two facts make this fast without changing a result. A token that spans two neighbouring characters
holds them side by side, so text can be cut wherever no token holds the pair; the segments are
mostly words. And words repeat, so their ids are kept.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from heapq import heappop, heappush

from headway.errors import ModelError
from headway.text.input_loss import InputLoss
from headway.text.vocabulary import LITERAL, SPACE_MARK, TokenKind, Vocabulary

_MERGEABLE = frozenset({TokenKind.NORMAL, TokenKind.USER_DEFINED, TokenKind.UNUSED})
_CACHED_SEGMENTS = 32_768
_LONGEST_CACHED_SEGMENT = 32


class SentencePieceEncoder:
    """Turns text into the ids that SentencePiece (and llama.cpp) would give.

    Control tokens are never the result of joining plain text, so their text stays text unless it is
    asked to be parsed.

    Args:
        vocabulary: tokens in the spelling of SentencePiece.
        scores: one a token; higher is joined earlier.
        add_space_prefix: text at the start and after a special token gets a space in front.

    Raises:
        ModelError: a byte has no token, so some text could not be encoded.
    """

    loss = InputLoss()

    def __init__(
        self, vocabulary: Vocabulary, scores: Sequence[float], *, add_space_prefix: bool
    ) -> None:
        self._ids = {
            text: token_id
            for token_id, (text, kind) in enumerate(
                zip(vocabulary.texts, vocabulary.kinds, strict=True)
            )
            if kind in _MERGEABLE
        }
        self._scores = scores
        self._bytes = _byte_tokens(vocabulary)
        self._pairs = {text[i : i + 2] for text in self._ids for i in range(len(text) - 1)}
        self._prefix = SPACE_MARK if add_space_prefix else ""
        self._literal = _LiteralTokens(vocabulary, LITERAL)
        self._user_defined = _LiteralTokens(vocabulary, frozenset({TokenKind.USER_DEFINED}))
        self._cached_merge = lru_cache(_CACHED_SEGMENTS)(self._merge)

    def encode(self, text: str, *, parse_special: bool) -> list[int]:
        """See ``TextEncoder``."""
        literal = self._literal if parse_special else self._user_defined
        ids: list[int] = []
        prefix = self._prefix
        for piece in literal.cut(text):
            if isinstance(piece, int):
                ids.append(piece)
                prefix = self._prefix
            else:
                self._append(prefix + piece.replace(" ", SPACE_MARK), ids)
                prefix = ""
        return ids

    def encode_batch(self, texts: Sequence[str], *, parse_special: bool) -> list[list[int]]:
        """See ``TextEncoder``."""
        return [self.encode(text, parse_special=parse_special) for text in texts]

    def _append(self, text: str, ids: list[int]) -> None:
        for segment in self._segments(text):
            if len(segment) <= _LONGEST_CACHED_SEGMENT:
                ids += self._cached_merge(segment)
            else:
                ids += self._merge(segment)

    def _segments(self, text: str) -> Iterator[str]:
        """Cut between two characters that no token holds side by side."""
        start, pairs = 0, self._pairs
        for end in range(1, len(text)):
            if text[end - 1 : end + 1] not in pairs:
                yield text[start:end]
                start = end
        yield text[start:]

    def _merge(self, segment: str) -> tuple[int, ...]:
        pieces = _join_by_score(segment, self._ids, self._scores)
        return tuple(token_id for piece in pieces for token_id in self._ids_of(piece))

    def _ids_of(self, piece: str) -> Sequence[int]:
        token_id = self._ids.get(piece)
        if token_id is not None:
            return (token_id,)
        return [self._bytes[byte] for byte in piece.encode()]


def _join_by_score(segment: str, ids: dict[str, int], scores: Sequence[float]) -> list[str]:
    """Join neighbours while the result is a token, best score first, then leftmost."""
    pieces = list(segment)
    last = len(pieces) - 1
    before, after = list(range(-1, last)), [*range(1, last + 1), -1]
    queue: list[tuple[float, int, int, str]] = []

    def offer(left: int, right: int) -> None:
        joined = pieces[left] + pieces[right]
        token_id = ids.get(joined)
        if token_id is not None:
            heappush(queue, (-scores[token_id], left, right, joined))

    for left in range(last):
        offer(left, left + 1)
    while queue:
        _, left, right, joined = heappop(queue)
        gone = not pieces[left] or not pieces[right]
        if gone or len(pieces[left]) + len(pieces[right]) != len(joined):
            continue  # one side was joined to something else in the meantime
        pieces[left], pieces[right] = joined, ""
        after[left] = after[right]
        if after[left] >= 0:
            before[after[left]] = left
            offer(left, after[left])
        if before[left] >= 0:
            offer(before[left], left)
    return [piece for piece in pieces if piece]


def _byte_tokens(vocabulary: Vocabulary) -> list[int]:
    by_text = {
        text: token_id
        for token_id, text in enumerate(vocabulary.texts)
        if vocabulary.kinds[token_id] == TokenKind.BYTE
    }
    try:
        return [by_text[f"<0x{byte:02X}>"] for byte in range(256)]
    except KeyError as missing:
        raise ModelError(f"the vocabulary has no byte token {missing}") from None


class _LiteralTokens:
    """Finds tokens that are matched as text before all else; of several, the longest wins."""

    def __init__(self, vocabulary: Vocabulary, kinds: frozenset[TokenKind]) -> None:
        self._ids = {
            text: token_id
            for token_id, (text, kind) in enumerate(
                zip(vocabulary.texts, vocabulary.kinds, strict=True)
            )
            if kind in kinds and text
        }
        longest_first = sorted(self._ids, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, longest_first)) or r"(?!)")

    def cut(self, text: str) -> Iterator[str | int]:
        """Yield plain stretches of ``text`` and the ids of the tokens between them."""
        start = 0
        for match in self._pattern.finditer(text):
            if match.start() > start:
                yield text[start : match.start()]
            yield self._ids[match.group()]
            start = match.end()
        if start < len(text):
            yield text[start:]
