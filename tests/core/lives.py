"""A scheduler in a loop, small enough to follow by hand, for tests of single decisions.

The executor is symbolic: it checks each plan, so every test also proves that whatever a sequence
reads was written for it.
"""

from __future__ import annotations

import dataclasses
from typing import Any, TypeVar

from headway.core import events as ev
from headway.core.classes import PolicyName, ServiceClass
from headway.core.config import PolicyConfig, SchedulerConfig
from headway.core.costs import StepCosts
from headway.core.limits import SchedulerLimits
from headway.core.plan import Idle, RequestId, SequenceId, StepPlan, StepResult
from headway.core.predict import OutputLengthPredictor
from headway.core.request import Request
from headway.core.sampling import SamplingParams
from headway.core.scheduler import Scheduler
from headway.testing.symbolic import SymbolicExecutor
from headway.testing.symbols import Draws

_E = TypeVar("_E")
_SAMPLING = {field.name for field in dataclasses.fields(SamplingParams)}


def limits(**changes: Any) -> SchedulerLimits:
    values: dict[str, Any] = {
        "num_blocks": 16,
        "block_size": 4,
        "max_model_len": 64,
        "max_num_seqs": 4,
        "max_num_batched_tokens": 16,
        **changes,
    }
    return SchedulerLimits(**values)


def request(
    name: str, prompt: int | tuple[int, ...], max_tokens: int = 4, **changes: Any
) -> Request:
    """Make a request; a number stands for the prompt 100, 101, … of that length."""
    sampling = {key: changes.pop(key) for key in _SAMPLING & changes.keys()}
    token_ids = tuple(range(100, 100 + prompt)) if isinstance(prompt, int) else prompt
    return Request(
        request_id=RequestId(name),
        prompt_token_ids=token_ids,
        sampling=SamplingParams(max_tokens=max_tokens, **sampling),
        **changes,
    )


class BrokenStepError(Exception):
    """A step that an executor lost."""


class Life:
    """A scheduler and the loop around it; every sampled token is ``token``.

    A step reads ``"a[4:5] b[0:12] c.1[0:3]"``: position 4 of the request a, the first 12 of b, and
    the first 3 of the second sequence of c.
    """

    def __init__(
        self,
        *,
        token: int = 1,
        policy: PolicyConfig | PolicyName = PolicyName.FCFS,
        classes: tuple[ServiceClass, ...] = (ServiceClass(),),
        costs: StepCosts | None = None,
        predictor: OutputLengthPredictor | None = None,
        **changes: Any,
    ) -> None:
        self.config = SchedulerConfig(
            limits=limits(**changes),
            policy=policy if isinstance(policy, PolicyConfig) else PolicyConfig(name=policy),
            classes=classes,
            costs=costs or StepCosts(),
        )
        self.scheduler = Scheduler(self.config, predictor)
        self.token = token
        draws = Draws(script=lambda new, position: token)
        self.executor = SymbolicExecutor(self.config.limits, draws, self._salt)
        self.now = 0.0
        self.events: list[ev.Event] = []
        self.names: dict[SequenceId, str] = {}
        self._salts: dict[RequestId, str] = {}
        self._results: dict[int, StepResult] = {}

    def _salt(self, request_id: RequestId) -> str:
        return self._salts[request_id]

    # ---------------------------------------------------------------- moves

    def submit(self, *args: Any, **changes: Any) -> ev.Admitted | ev.Rejected:
        asked = request(*args, **changes)
        answer = self.scheduler.submit(asked, self.now)
        if isinstance(answer, ev.Admitted):
            self._salts[asked.request_id] = asked.cache_salt
            for index, sequence_id in enumerate(answer.sequence_ids):
                suffix = f".{index}" if index else ""
                self.names[sequence_id] = asked.request_id + suffix
        self.scheduler.check()
        return answer

    def refused(self, *args: Any, **changes: Any) -> ev.Rejected:
        answer = self.submit(*args, **changes)
        assert isinstance(answer, ev.Rejected), answer
        return answer

    def cancel(self, name: str) -> None:
        self._take(self.scheduler.cancel(RequestId(name), self.now, "gone"))

    def stop(self, name: str, index: int) -> None:
        self._take(self.scheduler.stop(RequestId(name), index, self.now))

    def schedule(self) -> StepPlan | Idle:
        plan = self.scheduler.schedule(self.now)
        self.scheduler.check()
        self._take(plan.events)
        if isinstance(plan, Idle):
            self.executor.see(plan.events)
        return plan

    def plan(self) -> StepPlan:
        plan = self.schedule()
        assert isinstance(plan, StepPlan), plan
        return plan

    def idle(self) -> Idle:
        plan = self.schedule()
        assert isinstance(plan, Idle), plan
        return plan

    def launch(self) -> StepPlan:
        """Make a plan and compute it; its result is kept for :meth:`answer`."""
        plan = self.plan()
        self._results[plan.step_id] = self.executor.run(plan)
        return plan

    def answer(self, plan: StepPlan, **fields: Any) -> tuple[ev.Event, ...]:
        """Compute a plan and apply its result, ``fields`` of which are replaced."""
        result = self._results.pop(plan.step_id, None) or self.executor.run(plan)
        result = dataclasses.replace(result, **fields)
        events = self.scheduler.apply(result, self.now)
        self._take(events)
        return events

    def lose(self, plan: StepPlan) -> tuple[ev.Event, ...]:
        """Let the executor raise before a plan took any effect."""
        self.executor.fail_next_step(BrokenStepError(), at_once=True)
        try:
            self.executor.run(plan)
        except BrokenStepError:
            failures = {part.sequence_id: "lost" for part in plan.slices}
            result = StepResult(plan.step_id, {}, failures, is_lost=True)
        events = self.scheduler.apply(result, self.now)
        self._take(events)
        return events

    def step(self) -> str:
        """Make one step; what it computed."""
        plan = self.plan()
        self.answer(plan)
        return self.read(plan)

    def steps(self, count: int) -> list[str]:
        return [self.step() for _ in range(count)]

    def run_dry(self, step_s: float = 0.0) -> list[str]:
        """Step until nothing is left to do; what each step computed."""
        done: list[str] = []
        while not isinstance(plan := self.schedule(), Idle):
            self.now += step_s
            self.answer(plan)
            done.append(self.read(plan))
            assert len(done) < 10_000, "no end"
        return done

    def _take(self, events: tuple[ev.Event, ...]) -> None:
        self.events += events
        self.scheduler.check()

    # ---------------------------------------------------------------- views

    def read(self, plan: StepPlan) -> str:
        return " ".join(
            f"{self.names[part.sequence_id]}[{part.start}:{part.start + part.count}]"
            for part in plan.slices
        )

    def seen(self, kind: type[_E]) -> list[_E]:
        """Return the events of one kind so far."""
        return [event for event in self.events if isinstance(event, kind)]

    def started(self) -> list[str]:
        """Return who started, in this order."""
        return [event.request_id for event in self.seen(ev.Started)]

    def preempted(self) -> list[str]:
        """Return who was preempted, in this order."""
        return [event.request_id for event in self.seen(ev.Preempted)]

    def finished(self) -> list[str]:
        """Return which requests finished, in this order."""
        return [event.request_id for event in self.seen(ev.Finished)]

    def running(self) -> set[str]:
        return {self.names[each] for each in self.scheduler.work.running}

    def table(self, name: str) -> list[int]:
        """Return the blocks of a sequence."""
        for sequence_id, sequence in self.scheduler.work.running.items():
            if self.names[sequence_id] == name:
                return list(sequence.block_ids)
        raise AssertionError(f"{name} does not run")

    @property
    def num_free_blocks(self) -> int:
        return self.scheduler.statistics().num_free_blocks
