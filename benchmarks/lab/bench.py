"""Where measured experiments run: a real executor, or a simulated one under the same code."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

from benchmarks.chunked_prefill import CONTEXT_TOKENS
from benchmarks.lab.machine import BLOCK_SIZE, CONTEXT, a100, kv_blocks
from headway.core.config import SchedulerConfig
from headway.core.limits import SchedulerLimits
from headway.core.plan import SequenceId, StepPlan, StepResult
from headway.core.ports import Executor
from headway.engine.clock import Clock, RealClock, VirtualClock
from headway.engine.garbage import collect_rarely
from headway.executors.simulated import SimulatedExecutor
from headway.profiles.features import ObservedStep
from headway.sim.live import LiveEngine
from headway.sim.records import RequestRecord
from headway.sim.tally import Tally, TallyingExecutor
from headway.workload import Arrival

if TYPE_CHECKING:
    from headway.assembly import Bare

MODEL = "smollm2-135m-instruct"
#: as many as one long prompt beside many decodes needs, and `benchmarks.chunked_prefill` has
_NUM_BLOCKS = 2 * CONTEXT_TOKENS // BLOCK_SIZE
_VOCAB_SIZE = 32_000

Setting = TypeVar("Setting")
Outcome = TypeVar("Outcome")


class Watched:
    """Runs plans by another executor, and counts in how many somebody joins the batch.

    Attributes:
        num_joins: since it was last set to 0.
    """

    def __init__(self, inner: Executor) -> None:
        self.num_joins = 0
        self._inner = inner
        self._members: frozenset[SequenceId] = frozenset()

    def run(self, plan: StepPlan) -> StepResult:
        """Run the plan."""
        members = frozenset(part.sequence_id for part in plan.slices)
        self.num_joins += bool(members - self._members)
        self._members = members
        return self._inner.run(plan)


@dataclass(frozen=True, slots=True)
class Run:
    """What came of a workload: its requests, its steps, and how many somebody joined in.

    ``padding`` is the share of the computed positions that nobody needed.
    """

    requests: Sequence[RequestRecord]
    steps: Sequence[ObservedStep]
    num_joins: int
    padding: float

    @property
    def seconds(self) -> float:
        """From the first arrival to the last end."""
        return max(each.ended_at or 0.0 for each in self.requests)

    @property
    def tokens_per_s(self) -> float:
        """Output tokens a second."""
        return sum(len(each.token_times) for each in self.requests) / self.seconds


class Bench:
    """An executor that takes workloads through schedulers, one after the other.

    Attributes:
        name: of what computes, for people.
        clock: that it runs on.
    """

    def __init__(
        self,
        name: str,
        executor: Executor,
        clock: Clock,
        *,
        vocab_size: int,
        limits: SchedulerLimits,
    ) -> None:
        self.name = name
        self.clock = clock
        self.limits = limits
        self._watched = Watched(executor)
        self.executor = TallyingExecutor(self._watched)
        self._vocab_size = vocab_size

    def run(self, arrivals: Sequence[Arrival], **limits: Any) -> Run:
        """Serve a workload, with other limits of the scheduler than those of the bench."""
        config = SchedulerConfig(limits=replace(self.limits, **limits))
        engine = LiveEngine(config, self.executor, self.clock, vocab_size=self._vocab_size)
        self._watched.num_joins, self.executor.tally = 0, Tally()
        requests = engine.run(arrivals)
        self.executor.release_all()
        padding = self.executor.tally.padding_share
        return Run(requests, engine.step_log.steps, self._watched.num_joins, padding)


def in_turn(
    settings: Iterable[Setting], repetitions: int, run: Callable[[Setting], Outcome]
) -> dict[Setting, list[Outcome]]:
    """Run each setting so often, in turn: what else the machine does meets all of them."""
    found: dict[Setting, list[Outcome]] = {setting: [] for setting in settings}
    for _ in range(repetitions):
        for setting, outcomes in found.items():
            outcomes.append(run(setting))
    return found


def real() -> Bench:
    """Load the default model on the cpu executor, with default settings, and warm it up.

    Raises:
        UsageError: the model is neither here nor to be had.
    """
    from headway.assembly import assemble_bare
    from headway.config import load_settings
    from headway.models.progress import on_standard_error

    print(f"loading {MODEL}", file=sys.stderr, flush=True)
    flags = {"model.path": MODEL, "model.executor": "cpu", "kv.num_blocks": _NUM_BLOCKS}
    settings = load_settings(None, {}, flags).settings
    bare = assemble_bare(settings, on_standard_error)
    collect_rarely()  # as the server does
    return on(bare, RealClock())


def on(bare: Bare, clock: Clock) -> Bench:
    """Return a bench on a model that is loaded, warm."""
    made = Bench(
        bare.name, bare.executor, clock, vocab_size=bare.vocab_size, limits=bare.config.limits
    )
    made.run([Arrival(at_s=0.0, prompt_tokens=64, output_tokens=8)] * 4)
    return made


def simulated() -> Bench:
    """Return a 7B model on an A100, on a virtual clock."""
    clock = VirtualClock()
    executor = SimulatedExecutor(
        a100(), clock, num_blocks=kv_blocks(), block_size=BLOCK_SIZE, vocab_size=_VOCAB_SIZE
    )
    limits = SchedulerLimits(
        num_blocks=kv_blocks(),
        block_size=BLOCK_SIZE,
        max_model_len=CONTEXT,
        max_num_seqs=64,
        max_num_batched_tokens=2048,
    )
    return Bench("7B on an A100", executor, clock, vocab_size=_VOCAB_SIZE, limits=limits)
