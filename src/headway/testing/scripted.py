"""An executor that says what a test tells it to, when the test says so."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from headway.core.plan import (
    NewSequence,
    PromptLogprobs,
    SampledToken,
    SequenceId,
    StepPlan,
    StepResult,
    TokenLogprobs,
)

Script = Callable[[NewSequence, int], int]


def repeat(token_ids: Sequence[int]) -> Script:
    """Return a script that gives these tokens in a circle to every sequence."""
    return lambda _, position: token_ids[position % len(token_ids)]


class ScriptedExecutor:
    """Implements :class:`headway.core.ports.Executor`.

    Args:
        script: gives the token for a sequence at an output position; may raise to fail it.
        gated: if so, each step waits until the test calls :meth:`allow`.

    Attributes:
        plans: every plan that was run.
        fail_next_step: when set, the next step raises it as a whole.
        is_waiting: set while a step stands at the gate.
    """

    def __init__(self, script: Script, *, gated: bool = False) -> None:
        self._script = script
        self._gate = threading.Semaphore(0) if gated else None
        self._sequences: dict[SequenceId, NewSequence] = {}
        self._num_outputs: dict[SequenceId, int] = {}
        self.plans: list[StepPlan] = []
        self.fail_next_step: Exception | None = None
        self.is_waiting = threading.Event()

    @property
    def is_gated(self) -> bool:
        """Whether steps wait for :meth:`allow`."""
        return self._gate is not None

    def allow(self, num_steps: int = 1) -> None:
        """Let that many steps pass the gate."""
        if self._gate is None:
            raise ValueError("this executor has no gate")
        self._gate.release(num_steps)

    def run(self, plan: StepPlan) -> StepResult:
        """Answer from the script; log-probabilities are -1, -2, … where asked for."""
        if self._gate is not None:
            self.is_waiting.set()
            self._gate.acquire()
            self.is_waiting.clear()
        self.plans.append(plan)
        for sequence_id in plan.released:
            self._sequences.pop(sequence_id, None)
        for new in plan.new_sequences:
            self._sequences[new.sequence_id] = new
            self._num_outputs[new.sequence_id] = 0
        if self.fail_next_step is not None:
            error, self.fail_next_step = self.fail_next_step, None
            raise error
        return self._answer(plan)

    def _answer(self, plan: StepPlan) -> StepResult:
        tokens: dict[SequenceId, SampledToken] = {}
        failures: dict[SequenceId, str] = {}
        prompt_logprobs: dict[SequenceId, PromptLogprobs] = {}
        for part in plan.slices:
            new = self._sequences[part.sequence_id]
            if new.sampling.prompt_logprobs is not None and new.index == 0:
                scored = _score(new, part.start, part.start + part.count)
                if scored is not None:
                    prompt_logprobs[part.sequence_id] = scored
            if not part.sample:
                continue
            try:
                tokens[part.sequence_id] = self._draw(new)
            except Exception as error:  # noqa: BLE001 - a script fails a sequence by raising
                failures[part.sequence_id] = str(error)
        return StepResult(plan.step_id, tokens, failures, prompt_logprobs)

    def _draw(self, new: NewSequence) -> SampledToken:
        position = self._num_outputs[new.sequence_id]
        self._num_outputs[new.sequence_id] = position + 1
        token_id = self._script(new, position)
        if new.sampling.logprobs is None:
            return SampledToken(token_id)
        return SampledToken(token_id, _logprobs(token_id, new.sampling.logprobs))


def _logprobs(token_id: int, num_top: int) -> TokenLogprobs:
    top = tuple((token_id + rank, -1.0 - rank) for rank in range(num_top))
    return TokenLogprobs(token_id, -1.0, top)


def _score(new: NewSequence, start: int, end: int) -> PromptLogprobs | None:
    first, last = start + 1, min(end + 1, len(new.prompt_token_ids))
    if first >= last:
        return None
    num_top = new.sampling.prompt_logprobs or 0
    scored = tuple(_logprobs(token_id, num_top) for token_id in new.prompt_token_ids[first:last])
    return PromptLogprobs(first, scored)
