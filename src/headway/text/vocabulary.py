"""The tokens of a model: their kinds, and the exact bytes that each one writes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import IntEnum
from functools import cached_property

from headway.errors import RequestError
from headway.text import byte_level

SPACE_MARK = "▁"
"""U+2581, which SentencePiece writes for a space."""


class TokenKind(IntEnum):
    """What a token is for; the values are those of ``tokenizer.ggml.token_type``."""

    UNDEFINED = 0
    NORMAL = 1
    UNKNOWN = 2  # stands for what the vocabulary can't write
    CONTROL = 3  # structure (end of turn, …), never part of the text
    USER_DEFINED = 4  # added text that is matched before anything else
    UNUSED = 5  # a gap in the table
    BYTE = 6  # one raw byte, spelt ``<0x0A>``


LITERAL = frozenset({TokenKind.UNKNOWN, TokenKind.CONTROL, TokenKind.USER_DEFINED})
"""Kinds whose text stands for itself and is looked for in the input before everything else."""

SPECIAL = frozenset({TokenKind.UNKNOWN, TokenKind.CONTROL})
"""Kinds that a reader doesn't see."""


def spell_byte_level(text: str) -> bytes:
    """Bytes of a token of byte-level BPE."""
    return byte_level.bytes_of(text)


def spell_space_mark(text: str) -> bytes:
    """Bytes of a token in the way of SentencePiece, where ``▁`` is a space."""
    return text.replace(SPACE_MARK, " ").encode()


class Vocabulary:
    """An immutable table of tokens; ids are positions in it.

    Args:
        texts: the text of each token as the vocabulary spells it.
        kinds: the kind of each token.
        spell: gives the bytes of a token of kind NORMAL from its text.
    """

    def __init__(
        self, texts: Sequence[str], kinds: Sequence[int], spell: Callable[[str], bytes]
    ) -> None:
        self.texts = texts
        self.kinds = kinds
        self.spell = spell
        self._bytes: list[bytes | None] = [None] * len(texts)
        self.special_ids = frozenset(i for i, kind in enumerate(kinds) if kind in SPECIAL)

    def __len__(self) -> int:
        return len(self.texts)

    def padded_to(self, size: int) -> Vocabulary:
        """The same table, with gaps behind it up to ``size`` ids."""
        gap = size - len(self)
        return Vocabulary(
            [*self.texts, *[""] * gap], [*self.kinds, *[TokenKind.UNUSED] * gap], self.spell
        )

    def check_id(self, token_id: int, param: str | None = None) -> None:
        """Refuse an id outside the table.

        Raises:
            RequestError: ``token_id`` is out of range; ``param`` names the field it came from.
        """
        if not 0 <= token_id < len(self.texts):
            message = f"token id {token_id} is outside the vocabulary of {len(self.texts)} tokens"
            raise RequestError(message, param=param, code="invalid_token_id")

    def bytes_of(self, token_id: int) -> bytes:
        """Exact bytes that a token writes: a character may be spread over several tokens.

        Raises:
            RequestError: ``token_id`` is out of range.
        """
        known = self._bytes[token_id] if 0 <= token_id < len(self._bytes) else None
        if known is None:
            self.check_id(token_id)
            known = self._bytes[token_id] = self._spelt(token_id)
        return known

    def _spelt(self, token_id: int) -> bytes:
        kind, text = self.kinds[token_id], self.texts[token_id]
        if kind == TokenKind.NORMAL:
            return self.spell(text)
        if kind == TokenKind.BYTE:
            return bytes((int(text[3:5], 16),))
        return text.encode() if kind in LITERAL else b""

    @cached_property
    def max_token_bytes(self) -> int:
        """Bytes of the longest token."""
        return max((len(self.bytes_of(token_id)) for token_id in range(len(self))), default=0)
