"""Text to token ids and back."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from headway.errors import RequestError
from headway.text.encoders import TextEncoder
from headway.text.vocabulary import Vocabulary


@dataclass(frozen=True, slots=True, kw_only=True)
class Framing:
    """Tokens around a prompt, and how decoded text begins.

    Attributes:
        prefix_ids: put before a prompt that asks for special tokens (usually BOS, or nothing).
        suffix_ids: put behind it (usually nothing).
        bos_token_id: begins a text, if the vocabulary has such a token.
        eos_token_id: ends a text, likewise.
        strip_leading_space: encoding puts a space before a text, so decoding takes one away.
    """

    prefix_ids: tuple[int, ...] = ()
    suffix_ids: tuple[int, ...] = ()
    bos_token_id: int | None = None
    eos_token_id: int | None = None
    strip_leading_space: bool = False


class Tokenizer:
    """Text to token ids and back. Immutable, and safe to use from several threads.

    Decoding is exact: the text of ids is the UTF-8 of their bytes, with U+FFFD for what is not
    valid UTF-8. It never "cleans up" spaces, for that would change what a model wrote.
    """

    def __init__(self, vocabulary: Vocabulary, encoder: TextEncoder, framing: Framing) -> None:
        self.vocabulary = vocabulary
        self.framing = framing
        self._encoder = encoder

    @property
    def vocab_size(self) -> int:
        """Number of ids; valid ones are ``0 <= id < vocab_size``."""
        return len(self.vocabulary)

    @property
    def bos_token_id(self) -> int | None:
        """The id that begins a text, if there is one."""
        return self.framing.bos_token_id

    @property
    def eos_token_id(self) -> int | None:
        """The id that ends a text, if there is one."""
        return self.framing.eos_token_id

    @property
    def bos_token(self) -> str | None:
        """The text of the token that begins a text."""
        return self._text_or_none(self.bos_token_id)

    @property
    def eos_token(self) -> str | None:
        """The text of the token that ends a text."""
        return self._text_or_none(self.eos_token_id)

    @property
    def max_token_bytes(self) -> int:
        """Bytes of the longest token."""
        return self.vocabulary.max_token_bytes

    def encode(
        self, text: str, *, add_special_tokens: bool, parse_special: bool = True
    ) -> list[int]:
        """Ids of ``text``.

        Args:
            text: any text.
            add_special_tokens: frame it as a whole prompt (BOS, EOS) as the model wants it. A
                rendered chat template has its own.
            parse_special: text that spells a control token becomes that token.

        Raises:
            RequestError: the text holds a lone surrogate, so it isn't Unicode text.
        """
        _check_unicode(text)
        ids = self._encoder.encode(text, parse_special=parse_special)
        return self._framed(ids) if add_special_tokens else ids

    def encode_batch(
        self, texts: Sequence[str], *, add_special_tokens: bool, parse_special: bool = True
    ) -> list[list[int]]:
        """Ids of each text; see ``encode``."""
        for text in texts:
            _check_unicode(text)
        batch = self._encoder.encode_batch(texts, parse_special=parse_special)
        return [self._framed(ids) for ids in batch] if add_special_tokens else batch

    def decode(
        self, ids: Iterable[int], *, skip_special_tokens: bool = True, continuation: bool = False
    ) -> str:
        """The text of ``ids``.

        Args:
            ids: token ids.
            skip_special_tokens: leave out control tokens.
            continuation: the ids follow other text, so a leading space is a real one.

        Raises:
            RequestError: an id is out of range.
        """
        pieces = [
            self.token_bytes(token_id)
            for token_id in ids
            if not (skip_special_tokens and self.is_special(token_id))
        ]
        text = b"".join(pieces).decode("utf-8", "replace")
        if self.framing.strip_leading_space and not continuation:
            return text.removeprefix(" ")
        return text

    def token_bytes(self, token_id: int) -> bytes:
        """Exact bytes that a token writes, perhaps only a part of a character.

        Raises:
            RequestError: the id is out of range.
        """
        return self.vocabulary.bytes_of(token_id)

    def token_text(self, token_id: int) -> str:
        """A token on its own as text; bytes that are no whole character show as U+FFFD.

        Raises:
            RequestError: the id is out of range.
        """
        return self.token_bytes(token_id).decode("utf-8", "replace")

    def is_special(self, token_id: int) -> bool:
        """Whether the token is structure (end of turn, …) and not text."""
        return token_id in self.vocabulary.special_ids

    def min_tokens_for(self, text: str) -> int:
        """A lower bound of ``len(encode(text, add_special_tokens=True))``, without encoding.

        It is cheap, so a text far beyond the context can be refused before it costs anything.

        Raises:
            RequestError: the text holds a lone surrogate, so it isn't Unicode text.
        """
        _check_unicode(text)
        inner = -(-self._encoder.loss.least_bytes(text) // max(1, self.max_token_bytes))
        return inner + len(self.framing.prefix_ids) + len(self.framing.suffix_ids)

    def padded_to(self, size: int) -> Tokenizer:
        """The same tokenizer with at least ``size`` ids; the additional ones write nothing."""
        if size <= self.vocab_size:
            return self
        return Tokenizer(self.vocabulary.padded_to(size), self._encoder, self.framing)

    def _framed(self, ids: list[int]) -> list[int]:
        return [*self.framing.prefix_ids, *ids, *self.framing.suffix_ids]

    def _text_or_none(self, token_id: int | None) -> str | None:
        return None if token_id is None else self.vocabulary.texts[token_id]


def _check_unicode(text: str) -> None:
    if text.isascii():
        return
    try:
        text.encode()
    except UnicodeEncodeError as error:
        message = f"text has a lone surrogate at character {error.start}; it is not valid Unicode"
        raise RequestError(message, code="invalid_unicode") from None
