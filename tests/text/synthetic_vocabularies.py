"""Small vocabularies made from a seed, as GGUF metadata, and written as vocabulary-only files."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import gguf

from headway.text.byte_level import CHARACTERS

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, BYTE = 1, 2, 3, 4, 6


def byte_level_metadata(texts: Iterable[str], pre: str, num_merges: int = 600) -> dict[str, Any]:
    """A byte-level BPE vocabulary trained on ``texts`` (the plain algorithm of Sennrich et al.).

    Words are not cut before training, so merges reach over every border that a pre-tokenizer might
    draw, and a border drawn in a wrong place shows in the ids.
    """
    words = [[CHARACTERS[byte] for byte in text.encode()] for text in texts]
    tokens, merges = list(CHARACTERS), []
    for _ in range(num_merges):
        pairs = Counter(pair for word in words for pair in pairwise(word))
        pair = max(pairs, key=lambda p: (pairs[p], p))
        if "".join(pair) in tokens:
            continue
        merges.append(" ".join(pair))
        tokens.append("".join(pair))
        words = [_joined(word, pair) for word in words]
    control = ["<|begin|>", "<|im_start|>", "<|im_end|>", "<|endoftext|>"]
    user_defined = ["<tool>", "    "]
    kinds = [NORMAL] * len(tokens) + [CONTROL] * len(control) + [USER_DEFINED] * len(user_defined)
    bos = len(tokens)
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": pre,
        "tokenizer.ggml.tokens": tokens + control + user_defined,
        "tokenizer.ggml.token_type": kinds,
        "tokenizer.ggml.merges": merges,
        "tokenizer.ggml.bos_token_id": bos,
        "tokenizer.ggml.eos_token_id": bos + 2,
    }


def sentencepiece_metadata(
    seed: int, texts: Iterable[str], *, add_space_prefix: bool = True
) -> dict[str, Any]:
    """Fragments of ``texts`` with random scores, many of them equal, and byte tokens."""
    rng = random.Random(seed)
    escaped = [text.replace(" ", "▁") for text in texts]
    pieces = {"▁", "▁▁", "▁▁▁▁"}
    for text in escaped:
        pieces.update(text[: rng.randint(0, len(text))])
        for _ in range(60):
            start = rng.randrange(len(text))
            longest = text[start : start + rng.randint(2, 7)]
            pieces.update(longest[:end] for end in range(1, len(longest) + 1))
    ordered = sorted(pieces)
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *ordered]
    scores = [0.0] * 259 + [-float(rng.randint(0, 40)) for _ in ordered]
    kinds = [UNKNOWN, CONTROL, CONTROL] + [BYTE] * 256 + [NORMAL] * len(ordered)
    added = ["<tool>", "[INST]", "[/INST]"]
    return {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": tokens + added,
        "tokenizer.ggml.scores": scores + [0.0] * len(added),
        "tokenizer.ggml.token_type": [*kinds, USER_DEFINED, CONTROL, CONTROL],
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.add_space_prefix": add_space_prefix,
    }


def write_vocabulary(path: Path, metadata: Mapping[str, Any]) -> None:
    """Write a GGUF file without tensors, which llama.cpp opens for its vocabulary alone."""
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(128)
    writer.add_embedding_length(32)
    writer.add_block_count(1)
    writer.add_feed_forward_length(32)
    writer.add_head_count(2)
    writer.add_layer_norm_rms_eps(1e-5)
    for key, value in metadata.items():
        _add(writer, key, value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()


def _add(writer: gguf.GGUFWriter, key: str, value: Any) -> None:
    if isinstance(value, list):
        writer.add_array(key, value)
    elif isinstance(value, bool):
        writer.add_bool(key, value)
    elif isinstance(value, int):
        writer.add_uint32(key, value)
    else:
        writer.add_string(key, value)


def _joined(word: list[str], pair: tuple[str, str]) -> list[str]:
    joined: list[str] = []
    for symbol in word:
        if joined and (joined[-1], symbol) == pair:
            joined[-1] = joined[-1] + symbol
        else:
            joined.append(symbol)
    return joined
