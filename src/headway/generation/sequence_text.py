"""One sequence on its way from tokens to text, with what is held back on the way.

Text is held back while it may still turn out to be part of a stop string or of a character; the
tokens and scores that belong to it wait with it, so deltas never lose or repeat one.
"""

from __future__ import annotations

from dataclasses import dataclass

from headway.core.events import FinishReason
from headway.core.plan import SampledToken
from headway.generation.params import GenerationParams
from headway.generation.scores import ScoredPosition, Scorer
from headway.text.detokenizer import IncrementalDetokenizer
from headway.text.stop_strings import StopStrings
from headway.text.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class TextDelta:
    """What a sequence has gained.

    Attributes:
        index: which sequence of the request.
        text: new text, never part of a stop string or half a character.
        token_ids: tokens since the last delta, those that ended the sequence included.
        offsets: characters of the sequence's text before each token, held back ones included.
        scores: one entry per token, where log-probabilities were asked for.
        finish_reason: set on the last delta of the sequence only.
        stop_reason: the stop string or the requested stop token that ended the sequence; None for
            the model's own end and for length.
    """

    index: int
    text: str
    token_ids: tuple[int, ...]
    offsets: tuple[int, ...]
    scores: tuple[ScoredPosition, ...]
    finish_reason: FinishReason | None = None
    stop_reason: str | int | None = None


class SequenceText:
    """One sequence: tokens in, deltas out.

    Stop strings count from the token behind ``min_tokens`` on.

    Attributes:
        index: of the sequence in the deltas.
        num_tokens: tokens that belong to the answer, those that ended it included.
        is_finished: nothing more is taken.
    """

    def __init__(
        self,
        index: int,
        tokenizer: Tokenizer,
        params: GenerationParams,
        stop_token_ids: frozenset[int],
    ) -> None:
        self.index = index
        self.num_tokens = 0
        self.is_finished = False
        self._params = params
        self._scorer = Scorer(tokenizer)
        self._stop_token_ids = stop_token_ids
        self._detokenizer = IncrementalDetokenizer(
            tokenizer, skip_special_tokens=params.skip_special_tokens, continuation=True
        )
        self._stops = StopStrings(params.stop_strings, include=params.include_stop_str_in_output)
        self._num_characters = 0
        self._text: list[str] = []
        self._token_ids: list[int] = []
        self._offsets: list[int] = []
        self._scores: list[ScoredPosition] = []
        self._finish_reason: FinishReason | None = None
        self._stop_reason: str | int | None = None

    def add(self, token: SampledToken) -> bool:
        """Add a token; return whether it completed a stop string, which ends the sequence."""
        self.num_tokens += 1
        self._token_ids.append(token.token_id)
        self._offsets.append(self._num_characters)
        if token.logprobs is not None:
            self._scores.append(self._scorer.position(token.logprobs))
        if token.token_id in self._stop_token_ids and not self._params.include_stop_str_in_output:
            return False
        return self._show(self._detokenizer.push(token.token_id))

    def finish(self, reason: FinishReason, stop_token_id: int | None) -> None:
        """End the sequence as the engine says, unless a stop string has already ended it."""
        if self.is_finished or self._show(self._detokenizer.flush()):
            return
        self._text.append(self._stops.flush().text)
        self._end(reason, stop_token_id if stop_token_id in self._params.stop_token_ids else None)

    def _show(self, text: str) -> bool:
        """Let out what is certain of new text; return whether a stop string ended the sequence."""
        self._num_characters += len(text)
        if self.num_tokens <= self._params.min_tokens:
            self._text.append(text)
            return False
        result = self._stops.push(text)
        self._text.append(result.text)
        if result.matched is not None:
            self._end(FinishReason.STOP, result.matched)
        return result.matched is not None

    def take(self) -> TextDelta | None:
        """Return what has not been taken yet, once there is text or the end."""
        text = "".join(self._text)
        if not text and self._finish_reason is None:
            return None
        delta = TextDelta(
            self.index,
            text,
            tuple(self._token_ids),
            tuple(self._offsets),
            tuple(self._scores),
            self._finish_reason,
            self._stop_reason,
        )
        self._text.clear()
        self._token_ids.clear()
        self._offsets.clear()
        self._scores.clear()
        self._finish_reason = None
        return delta

    def _end(self, reason: FinishReason, stop_reason: str | int | None) -> None:
        self.is_finished = True
        self._finish_reason = reason
        self._stop_reason = stop_reason
