"""What turns text into token ids: the interface, and the encoder over ``tokenizers``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import tokenizers

from headway.text.input_loss import InputLoss


class TextEncoder(Protocol):
    """Turns text into ids, without the tokens that frame a whole prompt."""

    @property
    def loss(self) -> InputLoss:
        """What may vanish from a text before it is covered by tokens."""
        ...

    def encode(self, text: str, *, parse_special: bool) -> list[int]:
        """Ids of ``text``; with ``parse_special``, the text of a control token becomes it."""
        ...

    def encode_batch(self, texts: Sequence[str], *, parse_special: bool) -> list[list[int]]:
        """Ids of each text."""
        ...


class LibraryEncoder:
    """Encodes with a ``tokenizers.Tokenizer``, off the interpreter lock."""

    def __init__(self, tokenizer: tokenizers.Tokenizer, loss: InputLoss) -> None:
        # A file may ask for truncation or padding, which suited training and falsifies a prompt.
        tokenizer.no_truncation()
        tokenizer.no_padding()
        self.loss = loss
        self._parsing = tokenizer
        self._plain = _without_special(tokenizer)

    def encode(self, text: str, *, parse_special: bool) -> list[int]:
        """See ``TextEncoder``."""
        return self.encode_batch([text], parse_special=parse_special)[0]

    def encode_batch(self, texts: Sequence[str], *, parse_special: bool) -> list[list[int]]:
        """See ``TextEncoder``."""
        chosen = self._parsing if parse_special else self._plain
        # The "fast" variant keeps no character offsets and releases the interpreter lock.
        encodings = chosen.encode_batch_fast(list(texts), add_special_tokens=False)
        return [encoding.ids for encoding in encodings]


def _without_special(tokenizer: tokenizers.Tokenizer) -> tokenizers.Tokenizer:
    """A twin that reads control tokens as plain text; it shares the vocabulary, not a copy.

    The switch is a property of the tokenizer, so flipping it around a call isn't thread-safe.
    """
    twin = tokenizers.Tokenizer(tokenizer.model)
    if tokenizer.normalizer is not None:
        twin.normalizer = tokenizer.normalizer
    if tokenizer.pre_tokenizer is not None:
        twin.pre_tokenizer = tokenizer.pre_tokenizer
    added = tokenizer.get_added_tokens_decoder()
    twin.add_tokens([added[token_id] for token_id in sorted(added)])
    twin.encode_special_tokens = True
    return twin
