"""Days that might have been: by resampling a recording, or by drawing a workload anew.

Pieces of random start are taken from a recording and put together to a day (the circular block
bootstrap: Politis and Romano, "A circular block-resampling procedure for stationary data", 1992).
Within a piece everything stays as it was, so bursts stay bursts. The recording itself is only one
of those that might have been made. So it is resampled first, and the day is drawn from that:
otherwise days would be as like each other as if the recording had all there can be.

What is longer or larger than anything in the recording is in no day. See :func:`most_promised`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, repeat
from math import ceil, inf
from random import Random
from typing import Protocol

from headway.core.request import PromptHashes
from headway.workload import (
    Arrival,
    Stream,
    Workload,
    WorkloadError,
    WorkloadSpec,
    build,
    in_order,
    one_of_many,
)

#: a day is made of so many pieces, unless it is said how long these are
NUM_PIECES = 8
_COPY = 1 << 72  # moves the names of prompts out of the way of all that are there

Marks = Sequence[tuple[float, int]]
"""When something comes, and which arrival of the recording it is; in order of time."""


class Days(Protocol):
    """A source of days."""

    @property
    def num_recorded(self) -> float:
        """How many days were recorded; infinite where the law is known."""
        ...

    def draw(self, count: int, seed: int) -> Iterator[Workload]:
        """Yield so many days; the first ones are the same for any count."""
        ...


def most_promised(num_recorded: float) -> float:
    """Return the chance that days resampled from so many can promise at most: n / (n + 1).

    1 for infinitely many, which is a law that is known.

    If all are alike, the day that comes is beyond all n that were recorded with a chance of
    1 / (n + 1), and then beyond all that can be made of their pieces.
    """
    return 1 - 1 / (num_recorded + 1)


@dataclass(frozen=True, slots=True)
class RecordedDays:
    """Days that are resampled from a recording.

    Lengths, classes, tenants and conduct stay with their arrivals. Prompts share their beginnings
    as in the recording; the second copy of a request in a day shares with second copies alone,
    since it stands for another one that is like it.

    Args:
        recording: in open loop. It is as long as it says, or ends a mean gap after its last
            arrival.
        duration_s: length of a day; None is that of the recording.
        piece_s: length of a piece, at least that of the bursts that are to be kept; None is an
            eighth of the recording.
        twice: resample the recording first.

    Raises:
        WorkloadError: there are closed loops or no arrivals, or a length is out of its range.
    """

    recording: Workload
    duration_s: float | None = None
    piece_s: float | None = None
    twice: bool = True

    def __post_init__(self) -> None:
        if self.recording.loops:
            raise WorkloadError("days are resampled from open loops: a closed one has no times")
        if not self.recording.arrivals:
            raise WorkloadError("a recording without requests makes no days")
        arrivals = self.recording.arrivals
        is_moment = len(arrivals) < 2 or arrivals[-1].at_s == 0
        if self.recording.duration_s == inf and is_moment:
            raise WorkloadError("requests of a single moment make no days: say how long it was")
        for name in ("duration_s", "piece_s"):
            value = getattr(self, name)
            if value is not None and not 0 < value < inf:
                raise WorkloadError(f"{name} must be above 0 and finite, not {value}")
        if self.piece_s is not None and self.piece_s > self.recorded_s:
            raise WorkloadError(
                f"pieces of {self.piece_s:g} s are longer than the recording, {self.recorded_s:g} s"
            )

    @property
    def recorded_s(self) -> float:
        """Length of the recording."""
        arrivals, duration_s = self.recording.arrivals, self.recording.duration_s
        if duration_s < inf:
            return duration_s
        return arrivals[-1].at_s * len(arrivals) / (len(arrivals) - 1)

    @property
    def num_recorded(self) -> float:
        """How many days long the recording is."""
        return self.recorded_s / (self.duration_s or self.recorded_s)

    def draw(self, count: int, seed: int) -> Iterator[Workload]:
        """Yield so many days; the first ones are the same for any count.

        Where a recording is silent for long, days may be.
        """
        for number in range(count):
            yield self._day(Random(f"{seed}/day {number}"))

    def _day(self, random: Random) -> Workload:
        recorded_s = self.recorded_s
        piece_s = self.piece_s or recorded_s / NUM_PIECES
        marks: Marks = [(each.at_s, n) for n, each in enumerate(self.recording.arrivals)]
        if self.twice:
            marks = resampled(marks, recorded_s, piece_s, recorded_s, random)
        duration_s = self.duration_s or recorded_s
        marks = resampled(marks, recorded_s, piece_s, duration_s, random)
        arrivals = list(_copies(self.recording.arrivals, marks))
        return Workload(arrivals, (), duration_s, self.recording.targets)


def resampled(
    marks: Marks, recorded_s: float, piece_s: float, duration_s: float, random: Random
) -> Marks:
    """Return pieces of random start one after the other; the recording is taken for a circle."""
    times = [at_s for at_s, _ in marks]
    found: list[tuple[float, int]] = []
    begin_s = 0.0
    while begin_s < duration_s:
        start_s = random.random() * recorded_s
        length_s = min(piece_s, duration_s - begin_s)
        for from_s, to_s, moved_s in _stretches(start_s, length_s, recorded_s):
            first, end = bisect_left(times, from_s), bisect_left(times, to_s)
            shift_s = begin_s + moved_s
            found += [(at_s + shift_s, number) for at_s, number in marks[first:end]]
        begin_s += piece_s
    return found


def _stretches(
    start_s: float, length_s: float, recorded_s: float
) -> Iterator[tuple[float, float, float]]:
    """Yield (from, to, what to add to its times) for the parts of a piece of the circle."""
    end_s = start_s + length_s
    yield start_s, min(end_s, recorded_s), -start_s
    if end_s > recorded_s:
        yield 0.0, end_s - recorded_s, recorded_s - start_s


def _copies(arrivals: Sequence[Arrival], marks: Marks) -> Iterator[Arrival]:
    """Yield the arrivals at their new times."""
    num_used: dict[int, int] = {}
    for at_s, number in marks:
        copy = num_used.get(number, 0)
        num_used[number] = copy + 1
        arrival = arrivals[number]
        yield replace(arrival, at_s=max(at_s, 0.0), hashes=_renamed(arrival.hashes, copy))


def _renamed(hashes: PromptHashes | None, copy: int) -> PromptHashes | None:
    if hashes is None or copy == 0:
        return hashes
    return replace(hashes, ids=tuple(each + copy * _COPY for each in hashes.ids))


class SpecDays:
    """Days of a workload as a person writes it.

    Streams with the times of a trace are resampled together, so that what they have in common
    stays; of all others a day is another seed.

    Args:
        spec: its ``duration_s`` is the length of a day; without one, a day has as many requests as
            the streams say, and of traces as many seconds as they have.
        piece_s: of traces, as in :class:`RecordedDays`.

    Raises:
        WorkloadError: the streams can't be built, or their recording can't be resampled.
    """

    def __init__(self, spec: WorkloadSpec, *, piece_s: float | None = None) -> None:
        traces = tuple(each for each in spec.streams if _is_recorded(each))
        self._drawn = tuple(each for each in spec.streams if each not in traces)
        self._spec = spec
        self._recorded: RecordedDays | None = None
        if traces:
            recording = build(replace(spec, streams=traces, duration_s=None))
            self._recorded = RecordedDays(recording, spec.duration_s, piece_s)

    @property
    def num_recorded(self) -> float:
        """How many days long the recording is; infinite if everything is drawn."""
        return inf if self._recorded is None else self._recorded.num_recorded

    def measured(self) -> Workload:
        """Return what is known of all days: a whole recording, with drawn days beside it.

        One day, with the seed of the spec, where nothing is recorded, or the recording is a day.

        Raises:
            WorkloadError: nobody comes.
        """
        day_s = self._spec.duration_s
        if self._recorded is None or day_s is None:
            return build(self._spec)
        recording, end_s = self._recorded.recording, self._recorded.recorded_s
        if not self._drawn:
            return recording
        seed = self._spec.seed
        drawn = [self._drawn_day(f"{seed}/beside {n}") for n in range(ceil(end_s / day_s))]
        beside = (
            replace(each, at_s=number * day_s + each.at_s)
            for number, day in enumerate(drawn)
            for each in day.arrivals
            if number * day_s + each.at_s < end_s
        )
        arrivals = in_order(chain(recording.arrivals, beside))
        return replace(drawn[0], arrivals=arrivals, duration_s=end_s)

    def draw(self, count: int, seed: int) -> Iterator[Workload]:
        """Yield so many days; the first ones are the same for any count."""
        recorded: Iterator[Workload | None] = repeat(None, count)
        if self._recorded is not None:
            recorded = iter(self._recorded.draw(count, seed))
        for number, resampled_ones in enumerate(recorded):
            yield self._day(resampled_ones, f"{seed}/{number}")

    def _day(self, resampled_ones: Workload | None, seed: str) -> Workload:
        if not self._drawn:
            assert resampled_ones is not None, "a spec has at least one stream"
            return resampled_ones
        drawn = self._drawn_day(seed)
        if resampled_ones is None:
            return drawn
        arrivals = in_order(chain(resampled_ones.arrivals, drawn.arrivals))
        return replace(drawn, arrivals=arrivals)

    def _drawn_day(self, seed: str) -> Workload:
        number = Random(seed).getrandbits(48)
        return one_of_many(replace(self._spec, streams=self._drawn, seed=number))


def _is_recorded(stream: Stream) -> bool:
    """Whether its times were recorded; ServeGen's are drawn from rates, though from its source."""
    return stream.is_timed and stream.source != "servegen"
