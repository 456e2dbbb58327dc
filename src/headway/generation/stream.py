"""The text of one request as it comes: events of the engine in, deltas out."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType

from headway.core.events import (
    TERMINAL,
    Event,
    PromptScored,
    SequenceFinished,
    Started,
    TokenReady,
)
from headway.core.plan import RequestId
from headway.errors import GenerationError
from headway.generation.errors import error_of, unfinished
from headway.generation.ports import EventSource
from headway.generation.scores import ScoredPosition, Scorer
from headway.generation.sequence_text import SequenceText, TextDelta

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Usage:
    """Token counts of a request; its prompt counts once, whatever n is.

    The KV of ``num_cached_tokens`` of the prompt was there already.
    """

    num_prompt_tokens: int
    num_completion_tokens: int
    num_cached_tokens: int = 0


class TextStream:
    """Async iterator over the :class:`TextDelta` of one request.

    Per index there is exactly one delta with a ``finish_reason``, and none after it. Iteration
    raises :class:`GenerationError` if the request does not end well. As a context manager it
    cancels the request on exit, unless that has ended.

    ``cut_to`` is the output tokens of a client that states none, if they are fewer because its
    class can't have more of the KV pool.
    """

    def __init__(
        self,
        source: EventSource,
        sequences: Sequence[SequenceText],
        prompt_token_ids: tuple[int, ...],
        scorer: Scorer,
        cut_to: int | None = None,
    ) -> None:
        self.prompt_token_ids = prompt_token_ids
        self._source = source
        self._cut_to = cut_to
        self._sequences = sequences
        self._scorer = scorer
        self._prompt_scores: dict[int, ScoredPosition] = {}
        self._num_cached_tokens = 0
        self._error: GenerationError | None = None
        self._has_ended = False
        self._ready: deque[TextDelta] = deque()

    @property
    def request_id(self) -> RequestId:
        """Headway's own id of the request, as in logs and journals."""
        return self._source.request_id

    @property
    def clamped_max_tokens(self) -> int | None:
        """To how many output tokens the class has cut the answer; None if it has not."""
        by_scheduler = self._source.clamped_max_tokens
        return self._cut_to if by_scheduler is None else by_scheduler

    @property
    def usage(self) -> Usage:
        """Tokens so far."""
        num_completion = sum(sequence.num_tokens for sequence in self._sequences)
        return Usage(len(self.prompt_token_ids), num_completion, self._num_cached_tokens)

    @property
    def prompt_scores(self) -> list[ScoredPosition | None]:
        """One entry per prompt token, None for the first; complete before the first delta."""
        return [self._prompt_scores.get(i) for i in range(len(self.prompt_token_ids))]

    def cancel(self, reason: str) -> None:
        """Stop the request. Idempotent, and without effect once it has ended."""
        if not self._has_ended:
            self._source.cancel(reason)

    async def next_batch(self) -> tuple[TextDelta, ...]:
        """Return what came since the last call, one delta per index; empty at the end.

        Safe to cancel: nothing is lost.

        Raises:
            GenerationError: the request did not end well.
        """
        while not self._has_ended:
            self._digest(await self._source.__anext__())
            deltas = tuple(filter(None, (sequence.take() for sequence in self._sequences)))
            if deltas:
                return deltas
        if self._error is not None:
            raise self._error
        return ()

    def __aiter__(self) -> TextStream:
        return self

    async def __anext__(self) -> TextDelta:
        if not self._ready:
            self._ready.extend(await self.next_batch())
        if not self._ready:
            raise StopAsyncIteration
        return self._ready.popleft()

    async def __aenter__(self) -> TextStream:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.cancel("abandoned")

    def _digest(self, events: tuple[Event, ...]) -> None:
        for event in events:
            match event:
                case TokenReady():
                    self._on_token(event)
                case SequenceFinished():
                    sequence = self._sequences[event.index]
                    sequence.finish(event.reason, event.stop_token_id)
                case Started(index=0):  # the others share its prompt in any case
                    self._num_cached_tokens = event.num_cached_tokens
                case PromptScored(index=0):
                    self._on_prompt_scored(event)
                case _ if isinstance(event, TERMINAL):
                    self._on_terminal(event)

    def _on_token(self, event: TokenReady) -> None:
        sequence = self._sequences[event.index]
        if not sequence.is_finished and sequence.add(event.token):
            self._source.finish(event.index)

    def _on_prompt_scored(self, event: PromptScored) -> None:
        for position, entry in enumerate(event.logprobs.entries, event.logprobs.start):
            self._prompt_scores[position] = self._scorer.position(entry)

    def _on_terminal(self, event: Event) -> None:
        self._has_ended = True
        num_open = sum(not sequence.is_finished for sequence in self._sequences)
        error = error_of(event)
        if error is None and num_open:
            error = unfinished(num_open)
        if error is not None and error.status == 500:
            _log.error("request %s failed: %s", event.request_id, error)
        if num_open:
            self._error = error
