"""Turns a stream of tokens into a stream of text, one delta a token.

Every token has exact bytes, so the text so far is the UTF-8 of the bytes so far and an incremental
UTF-8 decoder is all it takes: constant time a token, nothing is ever decoded twice. (The streaming
decoder of the ``tokenizers`` library decodes a growing window of tokens again for each one, and
holds back everything after bytes that never become a character.)
"""

from __future__ import annotations

import codecs

from headway.text.tokenizer import Tokenizer

_utf8_decoder = codecs.getincrementaldecoder("utf-8")


class IncrementalDetokenizer:
    """Gives the text that each further token adds; the deltas join to ``Tokenizer.decode``.

    A character whose bytes come in several tokens is held back until it is whole, and a sequence of
    characters that is drawn as one (an emoji with joiners) leaves character by character.

    Args:
        tokenizer: made the tokens.
        skip_special_tokens: leave out control tokens.
        continuation: the tokens follow other text, so a leading space is a real one.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        *,
        skip_special_tokens: bool = True,
        continuation: bool = False,
    ) -> None:
        vocabulary = tokenizer.vocabulary
        self._bytes_of = vocabulary.bytes_of
        self._silent_ids = vocabulary.special_ids if skip_special_tokens else frozenset[int]()
        self._strip_space = tokenizer.framing.strip_leading_space and not continuation
        self._decoder = _utf8_decoder(errors="replace")

    def push(self, token_id: int) -> str:
        """Text that became complete with this token, often "" inside a character.

        Raises:
            RequestError: the id is out of range.
        """
        data = self._bytes_of(token_id)
        if token_id in self._silent_ids:
            return ""
        return self._stripped(self._decoder.decode(data))

    def flush(self) -> str:
        """Text that was held back; a character that was cut off gives U+FFFD."""
        return self._stripped(self._decoder.decode(b"", final=True))

    def _stripped(self, text: str) -> str:
        if self._strip_space and text:
            self._strip_space = False
            return text.removeprefix(" ")
        return text
