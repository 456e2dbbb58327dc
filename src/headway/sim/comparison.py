"""One workload through one way to batch: by a real executor in real time, or simulated."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from headway.core.config import SchedulerConfig
from headway.engine.clock import Clock
from headway.profiles.roofline import Parts
from headway.report import Figures, figures
from headway.sim.as_report import records_of
from headway.sim.live import LiveEngine
from headway.sim.records import RequestRecord
from headway.sim.replica import Machine
from headway.sim.simulation import simulate
from headway.sim.tally import Tally, TallyingCost, TallyingExecutor
from headway.workload import Arrival, Targets

_WARM_UP_TOKENS = 8


@dataclass(frozen=True, slots=True)
class ModeRun:
    """One run.

    Attributes:
        requests: what became of each.
        tally: of the steps.
        parts: what the time of the steps goes to, where a cost model says it.
        figures: as every report has them, over the time from the first arrival to the last end.
    """

    requests: Sequence[RequestRecord]
    tally: Tally
    parts: Parts | None
    figures: Figures

    @property
    def seconds_per_token(self) -> float | None:
        """From first running to its end, of all completed requests, over their output tokens."""
        done = [each for each in self.requests if each.is_finished]
        num_tokens = sum(len(each.token_times) for each in done)
        running_s = sum((each.ended_at or 0.0) - (each.started_at or 0.0) for each in done)
        return running_s / num_tokens if num_tokens else None


class LiveModes:
    """A real executor that takes a workload through several schedulers, one after the other.

    Args:
        executor: knows no sequence.
        clock: real, or virtual if the executor is simulated.
        vocab_size: of its tokens.
        prompt_of: makes the prompt of an arrival from its place in the workload.
    """

    def __init__(
        self,
        executor: TallyingExecutor,
        clock: Clock,
        *,
        vocab_size: int,
        prompt_of: Callable[[int, Arrival], Sequence[int]] | None = None,
    ) -> None:
        self._executor = executor
        self._clock = clock
        self._vocab_size = vocab_size
        self._prompt_of = prompt_of

    def warm_up(self, config: SchedulerConfig) -> None:
        """Run a short request, so that nothing is done for the first time later."""
        length = _WARM_UP_TOKENS
        arrival = Arrival(at_s=0.0, prompt_tokens=length, output_tokens=length)
        self._engine(config).run([arrival])
        self._executor.release_all()

    def run(
        self,
        config: SchedulerConfig,
        arrivals: Sequence[Arrival],
        targets: Mapping[str, Targets],
        stop: Callable[[], bool] = lambda: False,
    ) -> ModeRun | None:
        """Serve the workload until all have ended; None if it was stopped before."""
        self._executor.tally = Tally()
        requests = self._engine(config).run(arrivals, stop)
        tally = self._executor.tally
        self._executor.release_all()
        return None if stop() else _run(requests, tally, None, targets)

    def _engine(self, config: SchedulerConfig) -> LiveEngine:
        return LiveEngine(
            config,
            self._executor,
            self._clock,
            vocab_size=self._vocab_size,
            prompt_of=self._prompt_of,
        )


def simulated_run(
    machine: Machine, arrivals: Sequence[Arrival], targets: Mapping[str, Targets]
) -> ModeRun:
    """Serve the workload in virtual time."""
    cost = TallyingCost(machine.cost)
    exact = [replace(each, max_tokens=each.output_tokens) for each in arrivals]
    result = simulate(
        machine.config, exact, cost, host=machine.host, sample_every_s=1e9, leaps=False
    )
    steps = result.steps
    busy_s = sum(steps.elapsed_s)
    tally = Tally(
        num_steps=len(steps),
        busy_s=busy_s,
        num_positions=cost.num_positions,
        num_useful=sum(steps.num_tokens),
        sequence_s=steps.mean_batch_size * busy_s,
    )
    return _run(result.requests, tally, cost.parts, targets)


def _run(
    requests: Sequence[RequestRecord],
    tally: Tally,
    parts: Parts | None,
    targets: Mapping[str, Targets],
) -> ModeRun:
    first_s = min(each.arrival.at_s for each in requests)
    last_s = max(each.ended_at or 0.0 for each in requests)
    measured = figures(records_of(requests), last_s - first_s, targets)
    return ModeRun(requests, tally, parts, measured)
