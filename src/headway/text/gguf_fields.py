"""Reads ``tokenizer.ggml.*`` metadata of a GGUF file: checked, with llama.cpp's corrections."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from headway.errors import ModelError
from headway.text.vocabulary import TokenKind

_PREFIX = "tokenizer.ggml."
_LAST_KIND = max(TokenKind)

# Texts that end a generation: control tokens, even where a conversion marked them as normal text.
_ALWAYS_CONTROL = frozenset(
    (
        "<|eot_id|>",
        "<|im_end|>",
        "<|end|>",
        "<|return|>",
        "<|call|>",
        "<|flush|>",
        "<|calls|>",
        "<end_of_turn>",
        "<|endoftext|>",
        "</s>",
        "<|eom_id|>",
        "<EOT>",
        "_<EOT>",
        "[EOT]",
        "[EOS]",
        "<|end_of_text|>",
        "<end_of_utterance>",
        "<eos>",
        "<｜end▁of▁sentence｜>",
    )
)
# The first of each list is a control token as well, unless the file names the token by its key.
_CONTROL_UNLESS_NAMED = {
    "fim_pre_token_id": (
        "<|fim_prefix|>",
        "<fim-prefix>",
        "<fim_prefix>",
        "<｜fim▁begin｜>",
        "<PRE>",
        "▁<PRE>",
        "<|code_prefix|>",
        "<|prefix|>",
    ),
    "fim_suf_token_id": (
        "<|fim_suffix|>",
        "<fim-suffix>",
        "<fim_suffix>",
        "<｜fim▁hole｜>",
        "<SUF>",
        "▁<SUF>",
        "<|code_suffix|>",
        "<|suffix|>",
    ),
    "fim_mid_token_id": (
        "<|fim_middle|>",
        "<fim-middle>",
        "<fim_middle>",
        "<｜fim▁end｜>",
        "<MID>",
        "▁<MID>",
        "<|code_middle|>",
        "<|middle|>",
    ),
    "fim_pad_token_id": (
        "<|fim_pad|>",
        "<fim-pad>",
        "<fim_pad>",
        "<PAD>",
        "[PAD]",
    ),
    "fim_rep_token_id": (
        "<|fim_repo|>",
        "<|repo_name|>",
        "<fim-repo>",
        "<REPO>",
        "<reponame>",
    ),
    "fim_sep_token_id": ("<|file_sep|>",),
}


class TokenizerFields:
    """Typed access to the tokenizer's part of GGUF metadata.

    Raises:
        ModelError: by every method, if the field is missing or is not what it must be.
    """

    def __init__(self, metadata: Mapping[str, Any]) -> None:
        self._metadata = metadata

    def text(self, name: str, default: str | None = None) -> str:
        """A string field."""
        value = self._metadata.get(_PREFIX + name, default)
        if not isinstance(value, str):
            raise ModelError(f"{_PREFIX}{name} is {_described(value)}, a string is needed")
        return value

    def flag(self, name: str, default: bool) -> bool:
        """A boolean field."""
        value = self._metadata.get(_PREFIX + name, default)
        if not isinstance(value, bool):
            raise ModelError(f"{_PREFIX}{name} is {_described(value)}, true or false is needed")
        return value

    def token_id(self, name: str, default: int | None, num_tokens: int) -> int | None:
        """A token id, or None if there is none."""
        value = self._metadata.get(_PREFIX + name, default)
        if value is None:
            return None
        if not isinstance(value, int) or not 0 <= value < num_tokens:
            raise ModelError(f"{_PREFIX}{name} = {value!r} is no id of the {num_tokens} tokens")
        return value

    def texts(self) -> list[str]:
        """The text of each token, made unique and non-empty."""
        texts = list(self._array("tokens", str))
        for token_id, text in enumerate(texts):
            if not text:
                texts[token_id] = f"[EMPTY_{token_id}]"
        if len(set(texts)) != len(texts):
            raise ModelError(f"{_PREFIX}tokens has the token {_first_repeated(texts)!r} twice")
        return texts

    def kinds(self, texts: Sequence[str]) -> list[int]:
        """The kind of each token, corrected where the text leaves no doubt."""
        if _PREFIX + "token_type" in self._metadata:
            stored = self._array("token_type", int, length=len(texts))
        else:
            stored = [TokenKind.NORMAL] * len(texts)
        kinds = [kind if 0 <= kind <= _LAST_KIND else TokenKind.UNDEFINED for kind in stored]
        for token_id in self._surely_control(texts):
            kinds[token_id] = TokenKind.CONTROL
        for token_id, kind in enumerate(kinds):
            if kind == TokenKind.BYTE and not _spells_byte(texts[token_id]):
                raise ModelError(f"byte token {token_id} has the text {texts[token_id]!r}")
        return kinds

    def scores(self, num_tokens: int) -> Sequence[float]:
        """The score of each token; they order the merges of a SentencePiece vocabulary."""
        return self._array("scores", (float, int), length=num_tokens)

    def merges(self) -> list[tuple[str, str]]:
        """Pairs of byte-level BPE in the order in which they are merged."""
        merges = []
        for line in self._array("merges", str):
            cut = line.find(" ", 1)
            if cut < 0:
                raise ModelError(f"{_PREFIX}merges has {line!r}, two parts are needed")
            merges.append((line[:cut], line[cut + 1 :]))
        return merges

    def _array(
        self, name: str, kind: type[Any] | tuple[type[Any], ...], length: int | None = None
    ) -> Sequence[Any]:
        values = self._metadata.get(_PREFIX + name)
        if not isinstance(values, Sequence) or isinstance(values, str):
            raise ModelError(f"{_PREFIX}{name} is {_described(values)}, a list is needed")
        wrong = next((value for value in values if not isinstance(value, kind)), None)
        if wrong is not None:
            raise ModelError(f"{_PREFIX}{name} holds {_described(wrong)}")
        if length is not None and len(values) != length:
            raise ModelError(f"{_PREFIX}{name} has {len(values)} entries for {length} tokens")
        return values

    def _surely_control(self, texts: Sequence[str]) -> set[int]:
        wanted = _ALWAYS_CONTROL.union(*_CONTROL_UNLESS_NAMED.values())
        ids = {text: token_id for token_id, text in enumerate(texts) if text in wanted}
        found = {ids[text] for text in _ALWAYS_CONTROL if text in ids}
        for key, candidates in _CONTROL_UNLESS_NAMED.items():
            present = [ids[text] for text in candidates if text in ids]
            if present and _PREFIX + key not in self._metadata:
                found.add(present[0])
        return found


def _spells_byte(text: str) -> bool:
    digits = text[3:5]
    return (
        len(text) == 6
        and text.startswith("<0x")
        and text.endswith(">")
        and all(digit in "0123456789abcdefABCDEF" for digit in digits)
    )


def _described(value: object) -> str:
    return "missing" if value is None else repr(value)[:40]


def _first_repeated(texts: Sequence[str]) -> str:
    return next(text for text, count in Counter(texts).items() if count > 1)
