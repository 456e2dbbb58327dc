"""How long the scheduler itself takes a step: 256 running and 10,000 waiting, every policy.

Timed are ``schedule`` and ``apply``, in plain Python, with the garbage collector set as the server
sets it, prefix sharing included. What the executor would answer is prepared outside the timed
part. For each sequence that ends another one comes, so the queue stays as long as it is.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import cycle
from random import Random
from time import perf_counter_ns, thread_time_ns

from benchmarks.command import parser, show
from benchmarks.table import aligned
from headway.core.classes import PolicyName, ServiceClass
from headway.core.config import PolicyConfig, SchedulerConfig
from headway.core.events import Finished
from headway.core.limits import SchedulerLimits
from headway.core.plan import Idle, RequestId, SampledToken, SequenceId, StepPlan, StepResult
from headway.core.request import Request
from headway.core.sampling import SamplingParams
from headway.core.scheduler import Scheduler
from headway.engine.garbage import collect_rarely
from headway.metrics.quantiles import quantiles

NUM_RUNNING = 256
NUM_WAITING = 10_000
NUM_STEPS = 2_000
STEP_S = 0.03

_STOP = SampledToken(2)
_WORD = SampledToken(1000)
_LONGEST_OUTPUT = 512
_TENANTS = tuple(f"tenant-{number}" for number in range(16))
_CLASSES = (
    ServiceClass(
        name="interactive",
        weight=8,
        priority=0,
        ttft_target_s=0.5,
        tpot_target_s=0.08,
        max_running_share=0.8,
    ),
    ServiceClass(name="batch", weight=2, priority=1, ttft_target_s=60.0, min_running_share=0.1),
    ServiceClass(name="eval", weight=1, priority=2, best_effort=True),
)
_MANY_CLASSES = (PolicyName.PRIORITY, PolicyName.FAIR, PolicyName.SLO)


@dataclass(frozen=True, slots=True)
class Times:
    """Microseconds of ``schedule`` plus ``apply`` for a step.

    Attributes:
        median_us: of the steps that only decode.
        p99_us: of the steps in which sequences start beside them.
        num_decode_steps: steps behind the first number.
        num_admission_steps: steps behind the second.
        num_preemptions: in all steps.
    """

    median_us: float
    p99_us: float
    num_decode_steps: int
    num_admission_steps: int
    num_preemptions: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """Times by policy."""

    policies: dict[str, Times]


def measure(
    policy: PolicyName,
    *,
    num_waiting: int,
    num_steps: int,
    nanoseconds: Callable[[], int] = perf_counter_ns,
    seed: int = 1,
) -> Times:
    """Fill the scheduler, let the running set turn over, and time ``num_steps`` steps."""
    load = _Load(policy, num_waiting, nanoseconds, seed)
    while load.num_finished < NUM_RUNNING:
        load.step()
    decode_us: list[float] = []
    admission_us: list[float] = []
    for _ in range(num_steps):
        plan, microseconds = load.step()
        if plan.new_sequences:
            admission_us.append(microseconds)
        elif all(part.count == 1 for part in plan.slices):
            decode_us.append(microseconds)
    return Times(
        median_us=round(quantiles(decode_us, (0.5,))[0], 1),
        p99_us=round(quantiles(admission_us, (0.99,))[0], 1),
        num_decode_steps=len(decode_us),
        num_admission_steps=len(admission_us),
        num_preemptions=load.scheduler.statistics().num_preemptions,
    )


class _Load:
    """A scheduler under constant pressure, and the answers of an executor that has no model."""

    def __init__(
        self, policy: PolicyName, num_waiting: int, nanoseconds: Callable[[], int], seed: int
    ) -> None:
        self.num_finished = 0
        self._nanoseconds = nanoseconds
        self._random = Random(seed)
        self._policy = policy
        self._now = 0.0
        self._requests = self._make_requests()
        #: how many output tokens each request has, and each of its sequences still lacks
        self._lengths: dict[RequestId, int] = {}
        self._lacking: dict[SequenceId, int] = {}
        self.scheduler = Scheduler(_config(policy))
        for _ in range(num_waiting + NUM_RUNNING):
            self._submit()

    def step(self) -> tuple[StepPlan, float]:
        """Run one step; return its plan and the microseconds that the scheduler took."""
        nanoseconds = self._nanoseconds
        began = nanoseconds()
        plan = self.scheduler.schedule(self._now)
        planned = nanoseconds() - began
        if isinstance(plan, Idle):
            raise RuntimeError("the scheduler idles before a full queue")
        result = self._answer(plan)
        self._now += STEP_S
        began = nanoseconds()
        events = self.scheduler.apply(result, self._now)
        applied = nanoseconds() - began
        for event in events:
            if type(event) is Finished:
                self.num_finished += 1
                self._submit()
        return plan, (planned + applied) / 1e3

    def _answer(self, plan: StepPlan) -> StepResult:
        lacking = self._lacking
        for sequence_id in plan.released:
            lacking.pop(sequence_id, None)
        for new in plan.new_sequences:
            lacking[new.sequence_id] = self._lengths.pop(new.request_id)
        tokens: dict[SequenceId, SampledToken] = {}
        for sequence_id, _, _, sample in plan.slices:
            if sample:
                lacking[sequence_id] -= 1
                tokens[sequence_id] = _WORD if lacking[sequence_id] else _STOP
        return StepResult(plan.step_id, tokens, elapsed_s=STEP_S)

    def _submit(self) -> None:
        self.scheduler.submit(next(self._requests), self._now)

    def _make_requests(self) -> Iterator[Request]:
        draw = self._random.randint
        class_names = [each.name for each in _classes(self._policy)]
        sampling = SamplingParams(max_tokens=_LONGEST_OUTPUT, stop_token_ids=(_STOP.token_id,))
        for number, tenant in enumerate(cycle(_TENANTS)):
            request_id = RequestId(f"{number}")
            self._lengths[request_id] = draw(100, 300)
            yield Request(
                request_id=request_id,
                prompt_token_ids=tuple(draw(3, 50_000) for _ in range(draw(128, 512))),
                sampling=sampling,
                class_name=class_names[number % len(class_names)],
                tenant=tenant,
            )


def _classes(policy: PolicyName) -> tuple[ServiceClass, ...]:
    return _CLASSES if policy in _MANY_CLASSES else (ServiceClass(),)


def _config(policy: PolicyName) -> SchedulerConfig:
    return SchedulerConfig(
        limits=SchedulerLimits(
            num_blocks=20_000,
            block_size=16,
            max_model_len=4096,
            max_num_seqs=NUM_RUNNING,
            max_num_batched_tokens=8192,
            enable_prefix_sharing=True,
        ),
        policy=PolicyConfig(name=policy),
        classes=_classes(policy),
    )


def measure_all(
    policies: list[PolicyName],
    *,
    num_waiting: int = NUM_WAITING,
    num_steps: int = NUM_STEPS,
    nanoseconds: Callable[[], int] = perf_counter_ns,
    tell: Callable[[str], None] = lambda _: None,
) -> Outcome:
    """Measure each policy, one after the other."""
    collect_rarely()
    found: dict[str, Times] = {}
    for policy in policies:
        tell(f"{policy} …")
        found[policy.value] = measure(
            policy, num_waiting=num_waiting, num_steps=num_steps, nanoseconds=nanoseconds
        )
    return Outcome(found)


def table(outcome: Outcome) -> str:
    """Return the times as text."""
    rows = [
        (
            name,
            f"{times.median_us:.0f}",
            f"{times.p99_us:.0f}",
            f"{times.num_decode_steps}",
            f"{times.num_admission_steps}",
            f"{times.num_preemptions}",
        )
        for name, times in outcome.policies.items()
    ]
    head = ("policy", "median µs", "p99 µs", "decode steps", "with admissions", "preemptions")
    return aligned(head, rows)


def main() -> int:
    """Measure and print."""
    arguments = parser(__doc__)
    arguments.add_argument("--policy", action="append", choices=[each.value for each in PolicyName])
    arguments.add_argument("--waiting", type=int, default=NUM_WAITING)
    arguments.add_argument("--steps", type=int, default=NUM_STEPS)
    arguments.add_argument(
        "--cpu-time", action="store_true", help="not the time of the clock: for a busy machine"
    )
    given = arguments.parse_args()
    outcome = measure_all(
        [PolicyName(name) for name in given.policy or PolicyName],
        num_waiting=given.waiting,
        num_steps=given.steps,
        nanoseconds=thread_time_ns if given.cpu_time else perf_counter_ns,
        tell=lambda line: print(line, file=sys.stderr, flush=True),
    )
    show(outcome, table(outcome), as_json=given.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
