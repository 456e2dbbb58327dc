"""The reversible map between bytes and printable characters of byte-level BPE.

GPT-2's vocabulary (Radford et al., 2019) spells every byte as one printable character, so that a
token is always a valid string: printable Latin-1 stands for itself, the other bytes follow from
U+0100 on (a space becomes ``Ġ``).
"""

from __future__ import annotations

_PRINTABLE = (*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100))
_NO_BYTE = "\uffff"  # can't be encoded as Latin-1, so a character outside the map is noticed


def _byte_characters() -> tuple[str, ...]:
    shifted = iter(range(0x100, 0x200))
    return tuple(chr(b) if b in _PRINTABLE else chr(next(shifted)) for b in range(256))


CHARACTERS = _byte_characters()
"""``CHARACTERS[b]`` spells byte ``b``."""

_TO_LATIN1 = {code: _NO_BYTE for code in range(256) if code not in _PRINTABLE} | {
    ord(character): byte for byte, character in enumerate(CHARACTERS)
}


def bytes_of(text: str) -> bytes:
    """The bytes that a token's ``text`` spells; a text outside the map stands for itself."""
    try:
        return text.translate(_TO_LATIN1).encode("latin-1")
    except UnicodeEncodeError:
        return text.encode()
