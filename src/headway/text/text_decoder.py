"""The text of one sequence as it grows: detokenised, cut at stop strings, with offsets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headway.text.detokenizer import IncrementalDetokenizer
from headway.text.stop_strings import StopStrings
from headway.text.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class TextDelta:
    """What one token (or the end of the stream) added.

    Attributes:
        text: may be sent now; "" while it could still be part of a character or stop string.
        stopped: the stop string that ended the sequence, if one did.
        offset: number of characters in the sequence's text before this token's. It counts text
            that is held back, so it doesn't depend on stop strings.
    """

    text: str
    stopped: str | None
    offset: int


class TextDecoder:
    """Text of one sequence, token by token.

    Args:
        tokenizer: made the tokens.
        stops: texts that end the sequence.
        include_stop: leave the stop string in the text.
        skip_special_tokens: leave out control tokens.
        continuation: the tokens follow other text, so a leading space is a real one.

    Raises:
        RequestError: a stop string is empty.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        *,
        stops: Sequence[str] = (),
        include_stop: bool = False,
        skip_special_tokens: bool = True,
        continuation: bool = False,
    ) -> None:
        self._detokenizer = IncrementalDetokenizer(
            tokenizer, skip_special_tokens=skip_special_tokens, continuation=continuation
        )
        self._stops = StopStrings(stops, include=include_stop)
        self._offset = 0

    def push(self, token_id: int) -> TextDelta:
        """Take the next token; after a stop string nothing more comes out.

        Raises:
            RequestError: the id is out of range.
        """
        return self._delta(self._detokenizer.push(token_id))

    def flush(self) -> TextDelta:
        """The sequence ended: whatever was held back, unless a stop string ended it."""
        last = self._delta(self._detokenizer.flush())
        held = self._stops.flush()
        return TextDelta(last.text + held.text, held.matched, last.offset)

    def _delta(self, text: str) -> TextDelta:
        offset = self._offset
        self._offset += len(text)
        result = self._stops.push(text)
        return TextDelta(result.text, result.matched, offset)
