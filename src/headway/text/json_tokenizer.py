"""Builds a tokenizer from ``tokenizer.json``, the format of the ``tokenizers`` library.

The library encodes. Decoding is done from the bytes of each token, as for every other format, so
the decoder that the file names must be one whose tokens have bytes of their own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import tokenizers

from headway.errors import ModelError
from headway.text.byte_level import CHARACTERS
from headway.text.encoders import LibraryEncoder
from headway.text.input_loss import (
    InputLoss,
    drops_text,
    has_part,
    normalizer_shrink,
    unbounded,
)
from headway.text.tokenizer import Framing, Tokenizer
from headway.text.vocabulary import (
    SPACE_MARK,
    TokenKind,
    Vocabulary,
    spell_byte_level,
    spell_space_mark,
)

_Spec = dict[str, Any]


class _Added(msgspec.Struct):
    id: int
    content: str
    special: bool = False
    lstrip: bool = False
    rstrip: bool = False


class _Model(msgspec.Struct):
    type: str | None = None
    byte_fallback: bool = False


class _File(msgspec.Struct):
    """The parts of the file that the library doesn't tell; the vocabulary is skipped over."""

    model: _Model
    added_tokens: list[_Added] = []
    normalizer: _Spec | None = None
    pre_tokenizer: _Spec | None = None
    post_processor: _Spec | None = None
    decoder: _Spec | None = None


def tokenizer_from_json(content: bytes, config: Mapping[str, Any]) -> Tokenizer:
    """Build the tokenizer that ``tokenizer.json`` and ``tokenizer_config.json`` describe.

    Raises:
        ModelError: the file is damaged, or tokens are decoded in a way that is not supported.
    """
    try:
        file = msgspec.json.decode(content, type=_File)
        library = tokenizers.Tokenizer.from_buffer(content)
    except msgspec.DecodeError as error:
        raise ModelError(f"tokenizer.json is not valid: {error}") from None
    except Exception as error:  # the library raises no narrower class
        raise ModelError(f"tokenizer.json can't be read: {error}") from error
    byte_level = has_part(file.decoder, "ByteLevel", "decoders")
    vocabulary = _vocabulary(file, library, byte_level)
    encoder = LibraryEncoder(library, _loss(file, vocabulary))
    return Tokenizer(vocabulary, encoder, _framing(file, library, config))


def _vocabulary(file: _File, library: tokenizers.Tokenizer, byte_level: bool) -> Vocabulary:
    if not byte_level and not _decodes_space_mark(file.decoder):
        kind = None if file.decoder is None else file.decoder.get("type")
        raise ModelError(f"tokenizer.json: decoder {kind} is not supported")
    ids = library.get_vocab(with_added_tokens=True)
    size = max(ids.values(), default=-1) + 1
    texts, kinds = [""] * size, [int(TokenKind.UNUSED)] * size
    fallback = has_part(file.decoder, "ByteFallback", "decoders")
    for text, token_id in ids.items():
        texts[token_id] = text
        is_byte = fallback and _is_byte_token(text)
        kinds[token_id] = TokenKind.BYTE if is_byte else TokenKind.NORMAL
    for added in file.added_tokens:
        kinds[added.id] = TokenKind.CONTROL if added.special else TokenKind.USER_DEFINED
    return Vocabulary(texts, kinds, spell_byte_level if byte_level else spell_space_mark)


def _decodes_space_mark(decoder: _Spec | None) -> bool:
    if has_part(decoder, "Metaspace", "decoders"):
        return True
    parts = [] if decoder is None else decoder.get("decoders", [decoder])
    return any(
        part["type"] == "Replace"
        and part["pattern"].get("String") == SPACE_MARK
        and part["content"] == " "
        for part in parts
    )


def _strips_leading_space(decoder: _Spec | None) -> bool:
    parts = [] if decoder is None else decoder.get("decoders", [decoder])
    return any(
        (part["type"] == "Strip" and part["content"] == " " and part["start"] > 0)
        or (part["type"] == "Metaspace" and part.get("prepend_scheme", "always") != "never")
        for part in parts
    )


def _is_byte_token(text: str) -> bool:
    return len(text) == 6 and text in _BYTE_TOKENS


_BYTE_TOKENS = frozenset(f"<0x{byte:02X}>" for byte in range(256))


def _loss(file: _File, vocabulary: Vocabulary) -> InputLoss:
    unwritable = _unwritable_bytes(file, vocabulary)
    if unwritable is None or drops_text(file.pre_tokenizer):
        return unbounded()
    return InputLoss(
        shrink=normalizer_shrink(file.normalizer),
        whitespace=any(added.lstrip or added.rstrip for added in file.added_tokens),
        bytes=unwritable,
    )


def _unwritable_bytes(file: _File, vocabulary: Vocabulary) -> bytes | None:
    """Bytes that no token can write; None if that depends on more than single bytes."""
    texts = frozenset(vocabulary.texts)
    if has_part(file.pre_tokenizer, "ByteLevel", "pretokenizers"):
        return bytes(byte for byte in range(256) if CHARACTERS[byte] not in texts)
    covered = file.model.byte_fallback and texts >= _BYTE_TOKENS
    return b"" if covered else None


def _framing(file: _File, library: tokenizers.Tokenizer, config: Mapping[str, Any]) -> Framing:
    bos_id = _named_token(library, config, "bos_token")
    eos_id = _named_token(library, config, "eos_token")
    prefix, suffix = _template_ids(file.post_processor)
    if not prefix and not suffix:
        prefix = _frame("add_bos_token", config, bos_id)
        suffix = _frame("add_eos_token", config, eos_id)
    return Framing(
        prefix_ids=prefix,
        suffix_ids=suffix,
        bos_token_id=bos_id,
        eos_token_id=eos_id,
        strip_leading_space=_strips_leading_space(file.decoder),
    )


def _named_token(library: tokenizers.Tokenizer, config: Mapping[str, Any], name: str) -> int | None:
    value = config.get(name)
    text = value.get("content") if isinstance(value, Mapping) else value
    if text is None:
        return None
    token_id = library.token_to_id(text) if isinstance(text, str) else None
    if token_id is None:
        raise ModelError(f"tokenizer_config.json: {name} {text!r} is not a token")
    return token_id


def _frame(setting: str, config: Mapping[str, Any], token_id: int | None) -> tuple[int, ...]:
    wanted = config.get(setting, False)
    return (token_id,) if wanted and token_id is not None else ()


def _template_ids(post_processor: _Spec | None) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Ids that a post-processor puts before and behind a single text."""
    if post_processor is None or post_processor["type"] == "ByteLevel":
        return (), ()
    if post_processor["type"] == "Sequence":
        frames = [_template_ids(part) for part in post_processor["processors"]]
        before = tuple(i for prefix, _ in reversed(frames) for i in prefix)
        return before, tuple(i for _, suffix in frames for i in suffix)
    if post_processor["type"] in ("BertProcessing", "RobertaProcessing"):
        return (post_processor["cls"][1],), (post_processor["sep"][1],)
    if post_processor["type"] != "TemplateProcessing":
        kind = post_processor["type"]
        raise ModelError(f"tokenizer.json: post-processor {kind} is not supported")
    return _single_template(post_processor)


def _single_template(template: _Spec) -> tuple[tuple[int, ...], tuple[int, ...]]:
    before: list[int] = []
    behind: list[int] = []
    current = before
    for part in template["single"]:
        if "Sequence" in part:
            current = behind
        else:
            name = part["SpecialToken"]["id"]
            current.extend(template["special_tokens"][name]["ids"])
    return tuple(before), tuple(behind)
