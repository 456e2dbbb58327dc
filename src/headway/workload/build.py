"""From a workload as it is written down to the requests themselves."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import cycle, islice, repeat, takewhile
from math import inf
from pathlib import Path
from random import Random

from headway.core.request import PromptHashes
from headway.workload.arrival import Arrival, Conduct
from headway.workload.errors import WorkloadError
from headway.workload.lengths import parse_lengths
from headway.workload.lines import read_lines
from headway.workload.processes import (
    Gaps,
    RateStep,
    at_rates,
    constant,
    exponential,
    gamma,
    parse_steps,
    steady,
)
from headway.workload.servegen import read_servegen
from headway.workload.spec import Stream, Targets, WorkloadSpec
from headway.workload.tables import read_csv, read_prompts, read_vllm_bench
from headway.workload.traces import read_azure, read_mooncake
from headway.workload.transform import at_rate, before, in_order

#: sources whose requests have content, so that one drawn twice would be the same text twice
_IN_ORDER = ("mooncake", "jsonl")
#: names the shared beginnings of synthetic prompts; traces count theirs from 0
_SHARED = 1 << 62


@dataclass(frozen=True, slots=True)
class ClosedLoop:
    """Clients that each wait for their answer, think, and send the next request.

    Attributes:
        concurrency: how many.
        think_s: between an answer and the next request.
        start_s: when they begin.
        requests: what they send, in this order; ``at_s`` means nothing. May be endless.
    """

    concurrency: int
    think_s: float
    start_s: float
    requests: Iterator[Arrival]


@dataclass(frozen=True, slots=True)
class Workload:
    """What is to be sent.

    Attributes:
        arrivals: open loop, in order of time.
        loops: closed loops.
        duration_s: nothing is sent after that; infinite where only the requests end.
        targets: by class.
    """

    arrivals: Sequence[Arrival]
    loops: Sequence[ClosedLoop]
    duration_s: float
    targets: Mapping[str, Targets]


def build(spec: WorkloadSpec) -> Workload:
    """Make the requests. The same spec gives the same ones, whatever else is in the file.

    Raises:
        WorkloadError: a file of a source can't be read, or numbers make no workload.
    """
    found = one_of_many(spec)
    if not found.arrivals and not found.loops:
        raise WorkloadError("no request comes in this time")
    return found


def one_of_many(spec: WorkloadSpec) -> Workload:
    """Make the requests as :func:`build` does; where many are drawn, nobody may come in one."""
    duration_s = inf if spec.duration_s is None else spec.duration_s
    open_ones: list[Arrival] = []
    loops: list[ClosedLoop] = []
    for number, stream in enumerate(spec.streams):
        maker = _Maker(stream, f"{spec.seed}/{number}", number, duration_s)
        if stream.is_closed:
            loops.append(maker.loop())
        else:
            open_ones += maker.arrivals()
    return Workload(in_order(open_ones), loops, duration_s, spec.targets)


class _Maker:
    """Makes the requests of one stream; each thing that is drawn has a generator of its own."""

    def __init__(self, stream: Stream, seed: str, number: int, duration_s: float) -> None:
        self._stream = stream
        self._seed = seed
        self._number = number
        self._duration_s = duration_s

    def arrivals(self) -> list[Arrival]:
        """Return the requests of an open loop."""
        stream = self._stream
        timed: Iterable[tuple[Arrival, float]]
        if stream.is_timed:
            timed = ((each, each.at_s) for each in self._trace())
        else:
            times = takewhile(self._is_in_time, (t + stream.start_s for t in self._times()))
            timed = zip(self._bodies(), islice(times, stream.num_requests), strict=False)
        conduct = self._conduct()
        return [self._finished(each, at_s, next(conduct)) for each, at_s in timed]

    def loop(self) -> ClosedLoop:
        """Return the closed loop."""
        stream = self._stream
        assert stream.concurrency is not None, "only closed loops are asked for one"
        bodies = map(self._finished, self._bodies(), repeat(0.0), self._conduct())
        requests = islice(bodies, stream.num_requests)
        return ClosedLoop(stream.concurrency, stream.think_s, stream.start_s, requests)

    def _is_in_time(self, at_s: float) -> bool:
        return at_s < self._duration_s

    def _random(self, purpose: str) -> Random:
        return Random(f"{self._seed}/{purpose}")

    # ------------------------------------------------------------- times

    def _times(self) -> Iterator[float]:
        stream = self._stream
        steps: Sequence[RateStep]
        if stream.rate_steps is not None:
            steps = parse_steps(stream.rate_steps)
        else:
            assert stream.request_rate is not None, "checked with the stream"
            steps = steady(stream.request_rate)
        return at_rates(self._gaps(), steps)

    def _gaps(self) -> Gaps:
        random = self._random("times")
        if self._stream.process == "constant":
            return constant()
        if self._stream.process == "gamma":
            return gamma(random, self._stream.cv)
        return exponential(random)

    def _trace(self) -> list[Arrival]:
        """Return the requests of a trace at its own times, or as it would be at another rate."""
        stream = self._stream
        arrivals = self._read()
        if stream.start_s and stream.source != "servegen":
            later = (each for each in arrivals if each.at_s >= stream.start_s)
            arrivals = [replace(each, at_s=each.at_s - stream.start_s) for each in later]
        if stream.request_rate == inf:
            arrivals = [replace(each, at_s=0.0) for each in arrivals]
        elif stream.request_rate is not None:
            arrivals = self._at_rate(arrivals, stream.request_rate)
        return before(arrivals, self._duration_s)[: stream.num_requests]

    def _at_rate(self, arrivals: list[Arrival], rate: float) -> list[Arrival]:
        """Stretch them; where the file says no times, they come as requests without any do."""
        if self._stream.process == "trace" or len({each.at_s for each in arrivals}) > 1:
            return at_rate(arrivals, rate)
        return [replace(each, at_s=t) for each, t in zip(arrivals, self._times(), strict=False)]

    # ------------------------------------------------------------- bodies

    def _bodies(self) -> Iterator[Arrival]:
        """Yield requests without their times, for ever."""
        stream = self._stream
        if stream.source == "synthetic":
            return self._synthetic()
        if stream.source == "lines":
            return self._lines()
        pool = self._read()
        if stream.source in _IN_ORDER:
            return cycle(pool)
        return _drawn(pool, self._random("lengths"))

    def _synthetic(self) -> Iterator[Arrival]:
        random, stream = self._random("lengths"), self._stream
        prompt, output = parse_lengths(stream.prompt_tokens), parse_lengths(stream.output_tokens)
        shared = stream.shared_prefix_tokens
        hashes = PromptHashes(shared, (_SHARED + self._number,)) if shared else None
        while True:
            yield Arrival(
                at_s=0.0,
                prompt_tokens=prompt.draw(random) + shared,
                output_tokens=output.draw(random),
                hashes=hashes,
            )

    def _lines(self) -> Iterator[Arrival]:
        random, stream = self._random("lengths"), self._stream
        lines = read_lines(self._path())
        shared = lines.text(self._random("shared"), stream.shared_prefix_tokens)
        prompt, output = parse_lengths(stream.prompt_tokens), parse_lengths(stream.output_tokens)
        while True:
            num_tokens = prompt.draw(random)
            yield Arrival(
                at_s=0.0,
                prompt_tokens=num_tokens + stream.shared_prefix_tokens,
                output_tokens=output.draw(random),
                prompt=lines.prompt(random, num_tokens, shared),
            )

    # ------------------------------------------------------------- files

    def _path(self) -> Path:
        assert self._stream.path is not None, "checked with the stream"
        return Path(self._stream.path)

    def _read(self) -> list[Arrival]:
        stream, path = self._stream, self._path()
        readers: Mapping[str, Callable[[], list[Arrival]]] = {
            "azure": lambda: read_azure(path),
            "mooncake": lambda: self._read_mooncake(path),
            "servegen": lambda: self._read_servegen(path),
            "csv": lambda: read_csv(path),
            "vllm-bench": lambda: read_vllm_bench(path),
            "jsonl": lambda: self._read_prompts(path),
        }
        return readers[stream.source]()

    def _read_mooncake(self, path: Path) -> list[Arrival]:
        """Read the trace, and spread it over the seconds between if its times are ticks."""
        arrivals = read_mooncake(path)
        are_ticks = len({each.at_s for each in arrivals}) < len(arrivals) / 2
        if not (self._stream.is_timed and are_ticks):
            return arrivals
        return read_mooncake(path, self._random("jitter"))

    def _read_servegen(self, folder: Path) -> list[Arrival]:
        return read_servegen(
            folder,
            self._random("servegen"),
            from_s=self._stream.start_s,
            duration_s=min(self._duration_s, 86_400.0),
            num_clients=self._stream.num_clients,
        )

    def _read_prompts(self, path: Path) -> list[Arrival]:
        """Answers whose length the file doesn't say are drawn; the median would hide the spread."""
        lengths, random = parse_lengths(self._stream.output_tokens), self._random("lengths")
        return read_prompts(path, output_tokens=lambda: lengths.draw(random))

    # ------------------------------------------------------------- the rest

    def _conduct(self) -> Iterator[Conduct | None]:
        random, stream = self._random("conduct"), self._stream
        leaves = Conduct(stream.cancel_after_s, stream.cancel_after_tokens)
        stalls = Conduct(stalls_after_tokens=stream.stall_after_tokens, stalls_for_s=stream.stall_s)
        while True:
            drawn = random.random()
            if drawn < stream.cancel_share:
                yield leaves
            else:
                yield stalls if drawn < stream.cancel_share + stream.stall_share else None

    def _finished(self, arrival: Arrival, at_s: float, conduct: Conduct | None) -> Arrival:
        stream = self._stream
        output = _cut(arrival.output_tokens, stream.length_factor, stream.max_output_tokens)
        return replace(
            arrival,
            at_s=at_s,
            prompt_tokens=_cut(
                arrival.prompt_tokens, stream.length_factor, stream.max_prompt_tokens
            ),
            output_tokens=output,
            max_tokens=output,
            class_name=stream.class_name or arrival.class_name,
            tenant=arrival.tenant if stream.tenant is None else stream.tenant,
            conduct=conduct,
        )


def _cut(length: int, factor: float, limit: int | None) -> int:
    scaled = length if factor == 1 else max(round(length * factor), 1)
    return scaled if limit is None else min(scaled, limit)


def _drawn(pool: Sequence[Arrival], random: Random) -> Iterator[Arrival]:
    while True:
        yield random.choice(pool)
