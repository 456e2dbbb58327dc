"""Builds a tokenizer from the metadata of a GGUF file.

The ids are those of llama.cpp, with two deliberate differences. A pattern that llama.cpp
approximates (``tekken``) is the vocabulary's original one. And plain text never joins into a
control token.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import tokenizers
from tokenizers import models, pre_tokenizers

from headway.errors import ModelError
from headway.text.byte_level import CHARACTERS
from headway.text.encoders import LibraryEncoder
from headway.text.gguf_fields import TokenizerFields
from headway.text.input_loss import InputLoss
from headway.text.pre_tokenizers import PreTokenizer, pre_tokenizer
from headway.text.sentencepiece import SentencePieceEncoder
from headway.text.tokenizer import Framing, Tokenizer
from headway.text.vocabulary import (
    LITERAL,
    SPECIAL,
    TokenKind,
    Vocabulary,
    spell_byte_level,
    spell_space_mark,
)


def tokenizer_from_gguf(metadata: Mapping[str, Any]) -> Tokenizer:
    """Build the tokenizer that ``tokenizer.ggml.*`` describes.

    Raises:
        ModelError: the kind of tokenizer is not supported, or a field is missing or wrong.
    """
    fields = TokenizerFields(metadata)
    model = fields.text("model")
    if model == "gpt2":
        return _byte_level_tokenizer(fields)
    if model == "llama":
        return _sentencepiece_tokenizer(fields)
    raise ModelError(f"tokenizer.ggml.model = {model!r} is not supported (known: gpt2, llama)")


def _byte_level_tokenizer(fields: TokenizerFields) -> Tokenizer:
    cut = pre_tokenizer(fields.text("pre", "default"))
    texts = fields.texts()
    vocabulary = Vocabulary(texts, fields.kinds(texts), spell_byte_level)
    library = tokenizers.Tokenizer(_bpe(vocabulary, fields.merges(), cut))
    library.pre_tokenizer = _splitter(cut)
    library.add_tokens(_added_tokens(vocabulary))
    encoder = LibraryEncoder(library, InputLoss(bytes=_unwritable_bytes(vocabulary)))
    framing = _framing(fields, vocabulary, bos=None, eos=None, add_bos=cut.add_bos)
    return Tokenizer(vocabulary, encoder, framing)


def _sentencepiece_tokenizer(fields: TokenizerFields) -> Tokenizer:
    texts = fields.texts()
    vocabulary = Vocabulary(texts, fields.kinds(texts), spell_space_mark)
    add_space_prefix = fields.flag("add_space_prefix", True)
    encoder = SentencePieceEncoder(
        vocabulary, fields.scores(len(texts)), add_space_prefix=add_space_prefix
    )
    framing = _framing(
        fields, vocabulary, bos=1, eos=2, add_bos=True, strip_leading_space=add_space_prefix
    )
    return Tokenizer(vocabulary, encoder, framing)


def _bpe(
    vocabulary: Vocabulary, merges: Sequence[tuple[str, str]], cut: PreTokenizer
) -> models.BPE:
    ids = {text: token_id for token_id, text in enumerate(vocabulary.texts)}
    for first, second in merges:
        if first not in ids or second not in ids or first + second not in ids:
            raise ModelError(f"tokenizer.ggml.merges: {first!r} + {second!r} is not all tokens")
    return models.BPE(ids, list(merges), ignore_merges=cut.whole_words)


def _splitter(cut: PreTokenizer) -> pre_tokenizers.PreTokenizer:
    splits = [
        pre_tokenizers.Split(tokenizers.Regex(pattern), "isolated") for pattern in cut.patterns
    ]
    to_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    return pre_tokenizers.Sequence([*splits, to_bytes])


def _added_tokens(vocabulary: Vocabulary) -> list[tokenizers.AddedToken]:
    return [
        tokenizers.AddedToken(text, normalized=False, special=kind in SPECIAL)
        for text, kind in zip(vocabulary.texts, vocabulary.kinds, strict=True)
        if kind in LITERAL
    ]


def _unwritable_bytes(vocabulary: Vocabulary) -> bytes:
    """Bytes without a token of their own: text that needs one loses it."""
    known = {
        text
        for text, kind in zip(vocabulary.texts, vocabulary.kinds, strict=True)
        if len(text) == 1 and kind == TokenKind.NORMAL
    }
    return bytes(byte for byte in range(256) if CHARACTERS[byte] not in known)


def _framing(
    fields: TokenizerFields,
    vocabulary: Vocabulary,
    *,
    bos: int | None,
    eos: int | None,
    add_bos: bool,
    strip_leading_space: bool = False,
) -> Framing:
    bos_id = fields.token_id("bos_token_id", bos, len(vocabulary))
    eos_id = fields.token_id("eos_token_id", eos, len(vocabulary))
    return Framing(
        prefix_ids=_frame("bos", fields.flag("add_bos_token", add_bos), bos_id),
        suffix_ids=_frame("eos", fields.flag("add_eos_token", False), eos_id),
        bos_token_id=bos_id,
        eos_token_id=eos_id,
        strip_leading_space=strip_leading_space,
    )


def _frame(name: str, wanted: bool, token_id: int | None) -> tuple[int, ...]:
    if not wanted:
        return ()
    if token_id is None:
        raise ModelError(f"tokenizer.ggml.add_{name}_token is on without a {name}_token_id")
    return (token_id,)
