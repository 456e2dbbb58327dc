"""How byte-level BPE vocabularies of GGUF files cut text into words, by ``tokenizer.ggml.pre``.

The names are those of GGUF; the patterns are the ones that the vocabularies were trained with. Text
is cut by the first pattern, the pieces by the next, and so on; what lies between two matches is a
piece as well.
"""

from __future__ import annotations

from dataclasses import dataclass

from headway.errors import ModelError

_GPT2 = (
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"  # Radford et al.
)
_CONTRACTION = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_SYMBOLS = r" ?[^\s\p{L}\p{N}]+[\r\n]*"
_WORD = r"[^\r\n\p{L}\p{N}]?\p{L}+"
_LLAMA3 = rf"{_CONTRACTION}|{_WORD}|\p{{N}}{{1,3}}|{_SYMBOLS}|{_SPACES}"
_QWEN2 = rf"{_CONTRACTION}|{_WORD}|\p{{N}}|{_SYMBOLS}|{_SPACES}"
_QWEN35 = (  # as qwen2, but combining marks belong to words
    rf"{_CONTRACTION}|[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}\p{{M}}]+|\p{{N}}"
    rf"| ?[^\s\p{{L}}\p{{M}}\p{{N}}]+[\r\n]*|{_SPACES}"
)
_UPPER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]"
_LOWER = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_TEKKEN = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*"
    rf"|\p{{N}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_SPACES}"
)


@dataclass(frozen=True, slots=True)
class PreTokenizer:
    """One way to cut text, with what its name implies about the vocabulary.

    Attributes:
        patterns: regular expressions in the dialect of Oniguruma, applied one after the other.
        whole_words: a word that is a token is taken whole, whatever the merges would give.
        add_bos: a prompt begins with the BOS token unless the file says otherwise.
    """

    patterns: tuple[str, ...]
    whole_words: bool = False
    add_bos: bool = False


_FALLBACK = PreTokenizer(
    (r"[\p{P}\$\+<=>\^~\|]+", _GPT2, r"\p{N}+", r"[0-9][0-9][0-9]"),
)
_PLAIN = PreTokenizer((_GPT2,))
_SINGLE_DIGITS = PreTokenizer((r"\p{N}", _GPT2))
_LLAMA_BPE = PreTokenizer((_LLAMA3,), whole_words=True, add_bos=True)
_QWEN = PreTokenizer((_QWEN2,))

_BY_NAME = {
    "default": _FALLBACK,
    **dict.fromkeys(("gpt-2", "phi-2", "olmo", "mpt"), _PLAIN),
    **dict.fromkeys(("smollm", "starcoder", "refact", "command-r", "codeshell"), _SINGLE_DIGITS),
    **dict.fromkeys(("llama-bpe", "llama3", "llama-v3", "falcon3", "pixtral"), _LLAMA_BPE),
    **dict.fromkeys(("dbrx", "smaug-bpe"), PreTokenizer((_LLAMA3,))),
    **dict.fromkeys(("qwen2", "deepseek-r1-qwen", "stablelm2", "megrez"), _QWEN),
    "qwen35": PreTokenizer((_QWEN35,)),
    "tekken": PreTokenizer((_TEKKEN,), whole_words=True, add_bos=True),
}


def pre_tokenizer(name: str) -> PreTokenizer:
    """Find the way to cut text called ``name``.

    Raises:
        ModelError: the name is unknown; cutting text in another way would give wrong tokens.
    """
    try:
        return _BY_NAME[name]
    except KeyError:
        raise ModelError(
            f"tokenizer.ggml.pre = {name!r} is not supported (known: {', '.join(sorted(_BY_NAME))})"
        ) from None
