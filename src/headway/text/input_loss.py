"""How much of a text may vanish before tokens cover it, which bounds their number from below.

A text far longer than the context can then be refused before it is tokenised. The bound must never
be too high, so whatever isn't known to keep the text makes it useless instead of wrong.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

# Canonical composition takes at most 3 bytes for each one that it leaves (Unicode, UTF-8 forms).
_NFC_SHRINK = 3
_UNBOUNDED = sys.maxsize
_LOSSLESS_CUTS = {"ByteLevel", "Digits", "Metaspace", "UnicodeScripts"}
_CUTS_WITH_BEHAVIOR = {"Split", "Punctuation"}


@dataclass(frozen=True, slots=True)
class InputLoss:
    """What a text may lose before it becomes tokens; most encoders lose nothing.

    Attributes:
        shrink: a normaliser makes the text at most this many times shorter.
        whitespace: white space beside some tokens is dropped.
        bytes: bytes that no token can write, so they are dropped.
    """

    shrink: int = 1
    whitespace: bool = False
    bytes: bytes = b""

    def least_bytes(self, text: str) -> int:
        """Lower bound of the bytes that the tokens of ``text`` write together."""
        data = "".join(text.split()).encode() if self.whitespace else text.encode()
        if self.bytes:
            data = data.translate(None, self.bytes)
        return len(data) // self.shrink


def normalizer_shrink(spec: Mapping[str, Any] | None) -> int:
    """How many times shorter a normaliser of ``tokenizer.json`` can make a text."""
    shrink = 1
    for part in _flat(spec, "normalizers"):
        if part["type"] == "NFC":
            shrink *= _NFC_SHRINK
        elif part["type"] != "Prepend" and not _lengthens(part):
            return _UNBOUNDED
    return shrink


def drops_text(pre_tokenizer: Mapping[str, Any] | None) -> bool:
    """Whether a pre-tokenizer of ``tokenizer.json`` may remove text between words."""
    return any(
        part["type"] not in _LOSSLESS_CUTS
        and not (part["type"] in _CUTS_WITH_BEHAVIOR and part.get("behavior") != "Removed")
        for part in _flat(pre_tokenizer, "pretokenizers")
    )


def has_part(spec: Mapping[str, Any] | None, name: str, members: str) -> bool:
    """Whether ``spec``, or the sequence that it is, has a part of type ``name``."""
    return any(part["type"] == name for part in _flat(spec, members))


def unbounded() -> InputLoss:
    """Nothing is known about what vanishes."""
    return InputLoss(shrink=_UNBOUNDED)


def _flat(spec: Mapping[str, Any] | None, members: str) -> Iterator[Mapping[str, Any]]:
    if spec is None:
        return
    if spec["type"] == "Sequence":
        for part in spec[members]:
            yield from _flat(part, members)
    else:
        yield spec


def _lengthens(part: Mapping[str, Any]) -> bool:
    """Whether it replaces a fixed text by one that is not shorter."""
    if part["type"] != "Replace":
        return False
    pattern = part["pattern"].get("String")
    return pattern is not None and len(part["content"].encode()) >= len(pattern.encode())
