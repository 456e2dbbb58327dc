"""What a simulation tells: what became of each request, each step, and the state over time."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise

from headway.core.statistics import Statistics
from headway.workload import Arrival

FINISHED = "finished"
UNFINISHED = "unfinished"


@dataclass(slots=True)
class RequestRecord:
    """One request. All moments are seconds of virtual time, or None if they did not come.

    Attributes:
        number: its place in the workload.
        arrival: what came, and when.
        outcome: ``finished``, ``rejected``, ``expired``, ``failed``, ``cancelled``, or
            ``unfinished`` if the simulation ended before it did.
        reason: why it was rejected or expired, or how it failed.
        detail: what exactly was wrong with it when it was rejected.
        submitted_at: when the scheduler got it: as soon as the step ended in which it came.
        started_at: when it first got a slot.
        ended_at: when its terminal event came.
        token_times: when each of its output tokens was there.
        num_preemptions: how often it lost its slot or blocks.
        num_cached_tokens: prompt tokens that were found in the prefix cache.
        num_passed: sequences behind it that started before it did.
    """

    arrival: Arrival
    outcome: str = UNFINISHED
    reason: str = ""
    detail: str = ""
    submitted_at: float | None = None
    started_at: float | None = None
    ended_at: float | None = None
    token_times: array[float] = field(default_factory=lambda: array("d"))
    num_preemptions: int = 0
    num_cached_tokens: int = 0
    num_passed: int = 0
    number: int = 0

    @property
    def is_finished(self) -> bool:
        """Whether it ended well."""
        return self.outcome == FINISHED

    @property
    def queued_s(self) -> float | None:
        """From its arrival until it first ran."""
        return None if self.started_at is None else self.started_at - self.arrival.at_s

    @property
    def ttft_s(self) -> float | None:
        """Time to first token, queueing included."""
        return self.token_times[0] - self.arrival.at_s if self.token_times else None

    @property
    def tpot_s(self) -> float | None:
        """Time per further output token; None if there is but one."""
        times = self.token_times
        return (times[-1] - times[0]) / (len(times) - 1) if len(times) > 1 else None

    @property
    def latency_s(self) -> float | None:
        """From its arrival to its end, if it ended well."""
        return self.ended_at - self.arrival.at_s if self.is_finished and self.ended_at else None

    def gaps_s(self) -> Iterator[float]:
        """Yield the time between each two tokens (ITL)."""
        return (after - before for before, after in pairwise(self.token_times))


@dataclass(slots=True)
class StepSeries:
    """Every step that was computed, as columns of equal length.

    Attributes:
        began_at: seconds of virtual time.
        elapsed_s: how long the step took.
        num_sequences: slices in it.
        num_tokens: positions computed, without padding.
        num_prefill_tokens: those in slices of more than one.
    """

    began_at: array[float] = field(default_factory=lambda: array("d"))
    elapsed_s: array[float] = field(default_factory=lambda: array("d"))
    num_sequences: array[int] = field(default_factory=lambda: array("q"))
    num_tokens: array[int] = field(default_factory=lambda: array("q"))
    num_prefill_tokens: array[int] = field(default_factory=lambda: array("q"))

    def __len__(self) -> int:
        return len(self.began_at)

    @property
    def mean_batch_size(self) -> float:
        """Sequences in a step, on average over the time that was computed."""
        weighted = zip(self.num_sequences, self.elapsed_s, strict=True)
        return sum(n * s for n, s in weighted) / (sum(self.elapsed_s) or 1.0)


@dataclass(frozen=True, slots=True)
class Served:
    """Tokens that were computed for somebody since the beginning; what was recomputed counts once.

    ``input_tokens`` are prompt positions, those found in the prefix cache not among them.
    """

    input_tokens: int = 0
    output_tokens: int = 0

    def weighted(self, input_weight: float, output_weight: float) -> float:
        """Return the service that this is."""
        return input_weight * self.input_tokens + output_weight * self.output_tokens


@dataclass(frozen=True, slots=True)
class Sample:
    """The state at one moment. ``served`` is by tenant."""

    at_s: float
    num_waiting: int
    num_running: int
    num_free_blocks: int
    served: Mapping[str, Served]


@dataclass(frozen=True, slots=True)
class SimulationResult:
    """What came of a simulation.

    Attributes:
        requests: in order of arrival, those only that came before the end.
        steps: all steps.
        samples: the state at even distances.
        end_s: when the simulation ended.
        statistics: of the scheduler, at the end.
    """

    requests: tuple[RequestRecord, ...]
    steps: StepSeries
    samples: tuple[Sample, ...]
    end_s: float
    statistics: Statistics

    @property
    def finished(self) -> tuple[RequestRecord, ...]:
        """The requests that ended well."""
        return tuple(each for each in self.requests if each.is_finished)

    @property
    def num_output_tokens(self) -> int:
        """Output tokens of all requests."""
        return sum(len(each.token_times) for each in self.requests)

    @property
    def output_throughput(self) -> float:
        """Output tokens a second."""
        return self.num_output_tokens / self.end_s if self.end_s else 0.0

    def service_gap(
        self, one: str, other: str, *, input_weight: float = 1.0, output_weight: float = 2.0
    ) -> list[tuple[float, float]]:
        """Return (moment, by how much service ``one`` is ahead of ``other``) for each sample."""
        nothing = Served()
        return [
            (
                sample.at_s,
                sample.served.get(one, nothing).weighted(input_weight, output_weight)
                - sample.served.get(other, nothing).weighted(input_weight, output_weight),
            )
            for sample in self.samples
        ]
