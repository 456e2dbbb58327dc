"""Question 2: continuous batches beat static ones, and what that costs in complexity."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product
from math import inf
from statistics import median

from benchmarks.lab.bench import Bench, Run, in_turn
from benchmarks.lab.figure import Figure, figure
from benchmarks.lab.measures import of_ttfts
from benchmarks.lab.page import Claim, Measurement, Page, Table
from headway.core.limits import Batching
from headway.report.scales import Linear
from headway.report.text import duration, percent
from headway.workload import Arrival, Stream, WorkloadSpec, build

SLOTS, BUDGET = 16, 1024
NUM_REQUESTS = 48
EQUAL_LENGTHS = (100, 70)
MODES = (Batching.STATIC, Batching.CONTINUOUS)
#: the lengths of ``headway compare``
PROMPTS, ANSWERS = "lognormal:100:0.8:400", "lognormal:70:0.9:400"


@dataclass(frozen=True, slots=True)
class Mode:
    """One workload in one mode, of the fastest repetition; times in seconds.

    Attributes:
        tokens_per_s: of output.
        ttft_s: p50.
        host_s: of a step beside the executor's time, p50.
        ends_s: when the requests ended, in order.
        padding: share of the computed positions that nobody needed.
        num_steps: in all.
        num_joins: steps in which somebody joined.
        num_mixed: steps with parts of prompts beside decodes.
        num_shapes: how many different numbers of prompt positions and decodes a step had.
    """

    tokens_per_s: float
    ttft_s: float
    host_s: float
    ends_s: tuple[float, ...]
    padding: float
    num_steps: int
    num_joins: int
    num_mixed: int
    num_shapes: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """Both workloads in both modes, first the static one."""

    mixed: tuple[Mode, Mode]
    equal: tuple[Mode, Mode]

    @property
    def gain(self) -> float:
        """Times the tokens a second, of mixed lengths."""
        return self.mixed[1].tokens_per_s / self.mixed[0].tokens_per_s

    @property
    def equal_gain(self) -> float:
        """The same of equal lengths."""
        return self.equal[1].tokens_per_s / self.equal[0].tokens_per_s


@cache
def mixed(count: int = NUM_REQUESTS) -> Sequence[Arrival]:
    """Return the first requests of ``headway compare``."""
    stream = Stream(
        prompt_tokens=PROMPTS, output_tokens=ANSWERS, num_requests=count, request_rate=inf
    )
    return build(WorkloadSpec(streams=(stream,))).arrivals


def equal(count: int = NUM_REQUESTS) -> Sequence[Arrival]:
    """Return requests of equal lengths."""
    prompt, output = EQUAL_LENGTHS
    return [Arrival(at_s=0.0, prompt_tokens=prompt, output_tokens=output)] * count


def measure(
    bench: Bench, repetitions: int, *, num_requests: int = NUM_REQUESTS, slots: int = SLOTS
) -> Outcome:
    """Run both workloads in both modes so often, in turn."""
    workloads = {"mixed": mixed(num_requests), "equal": equal(num_requests)}

    def run(setting: tuple[str, Batching]) -> Run:
        name, batching = setting
        limits = {"batching": batching, "max_num_batched_tokens": BUDGET}
        return bench.run(workloads[name], max_num_seqs=slots, **limits)

    runs = in_turn(product(workloads, MODES), repetitions, run)
    static, continuous = MODES
    return Outcome(
        mixed=(_mode(runs["mixed", static]), _mode(runs["mixed", continuous])),
        equal=(_mode(runs["equal", static]), _mode(runs["equal", continuous])),
    )


def _mode(runs: Sequence[Run]) -> Mode:
    best = min(runs, key=lambda run: run.seconds)
    shapes = [step.shape for step in best.steps]
    return Mode(
        tokens_per_s=best.tokens_per_s,
        ttft_s=of_ttfts(best.requests, 0.5),
        host_s=median(step.host_s for step in best.steps),
        ends_s=tuple(sorted(each.ended_at or 0.0 for each in best.requests)),
        padding=best.padding,
        num_steps=len(best.steps),
        num_joins=best.num_joins,
        num_mixed=sum(bool(shape.chunks and shape.num_decodes) for shape in shapes),
        num_shapes=len({(shape.num_prefill_tokens, shape.num_decodes) for shape in shapes}),
    )


def page(measured: Measurement[Outcome], simulated: Outcome) -> Page:
    """Return the page."""
    here = measured.outcome
    static, continuous = here.mixed
    return Page(
        name="2-static-and-continuous",
        title="2. Why is continuous batching almost always better than static, and what does it "
        "cost?",
        setup=f"""
            {measured.how}. *Mixed*: the first {NUM_REQUESTS} requests of `headway compare`, all at
            once: prompts `{PROMPTS}`, answers `{ANSWERS}` (median, sigma, maximum). *Equal*: as
            many, all with prompts of {EQUAL_LENGTHS[0]} and answers of {EQUAL_LENGTHS[1]} tokens.
            {SLOTS} slots, {BUDGET} tokens a step. A static batch keeps its slots until its longest
            answer ends, and computes them all; a continuous one is formed anew at each step. The
            second table is the same code on the simulated executor: a 7B model on an A100.
        """,
        results=(
            _table(f"{measured.name}, measured:", here),
            _table("A 7B model on an A100, simulated:", simulated),
            _complexity(here),
            _figure(here),
        ),
        notes="""
            Steps, padding and what the scheduler did are counts: they are the same at every run,
            and in both tables. The time on the host is that of a step beside the executor's, in
            Python, and it is part of the throughput above.
        """,
        answer=f"""
            With mixed lengths {percent(static.padding)} of what static batches compute is for slots
            whose answer has ended or whose prompt was shorter, and nothing of what continuous ones
            do, which makes {here.gain:.1f} times the tokens a second; where all lengths are equal
            it is {here.equal_gain:.2f} times, hence "almost". The price is a batch that changes
            while it runs: somebody joins in {continuous.num_joins} steps in place of
            {static.num_joins}, {continuous.num_mixed} steps have prompts beside decodes in place of
            {static.num_mixed}, and a step has one of {continuous.num_shapes} shapes in place of
            {static.num_shapes}, so that slots and KV must be handed out at every step, in pages.
        """,
        claims=(
            Claim(
                f"with mixed lengths continuous gives at least 1.2 times the tokens a second, "
                f"measured and simulated: {here.gain:.2f} and {simulated.gain:.2f}",
                min(here.gain, simulated.gain) > 1.2,
            ),
            Claim(
                f"with equal lengths it gains less: {here.equal_gain:.2f} and "
                f"{simulated.equal_gain:.2f}",
                here.equal_gain < here.gain and simulated.equal_gain < simulated.gain,
            ),
            Claim(
                f"continuous batches have no padding, static ones {percent(static.padding)}",
                continuous.padding == 0 and static.padding > 0.2,
            ),
            Claim(
                f"the batch changes more often, and in more ways: {continuous.num_joins} and "
                f"{static.num_joins} joins, {continuous.num_mixed} and {static.num_mixed} mixed "
                f"steps, {continuous.num_shapes} and {static.num_shapes} shapes",
                continuous.num_joins > 2 * static.num_joins
                and continuous.num_mixed > static.num_mixed
                and continuous.num_shapes > static.num_shapes,
            ),
        ),
    )


def _table(title: str, outcome: Outcome) -> Table:
    both = {"mixed": outcome.mixed, "equal": outcome.equal}
    rows = tuple(
        (
            lengths,
            batching.value,
            f"**{mode.tokens_per_s:,.0f}**",
            duration(mode.ttft_s),
            duration(mode.ends_s[-1]),
            f"{mode.num_steps}",
            percent(mode.padding),
        )
        for lengths, modes in both.items()
        for batching, mode in zip(MODES, modes, strict=True)
    )
    head = ("lengths", "batches", "output tokens/s", "TTFT p50", "last end", "steps", "padding")
    return Table(title, head, rows)


def _complexity(outcome: Outcome) -> Table:
    rows = tuple(
        (
            batching.value,
            f"{mode.num_joins}",
            f"{mode.num_mixed}",
            f"{mode.num_shapes}",
            duration(mode.host_s),
        )
        for batching, mode in zip(MODES, outcome.mixed, strict=True)
    )
    head = ("batches", "steps in which somebody joined", "steps of prompts beside decodes")
    more = ("different shapes of a step", "host time of a step, p50")
    return Table("What the scheduler had to do, of mixed lengths:", (*head, *more), rows)


def _figure(outcome: Outcome) -> Figure:
    lines = {
        batching.value: [(0.0, 0.0), *((end, n) for n, end in enumerate(mode.ends_s, 1))]
        for batching, mode in zip(MODES, outcome.mixed, strict=True)
    }
    last = max(mode.ends_s[-1] for mode in outcome.mixed)
    count = len(outcome.mixed[0].ends_s)
    return figure(
        "ends",
        "The same requests of mixed lengths, measured",
        (("time", Linear(0, 1.02 * last, "s")), ("requests that have ended", Linear(0, count))),
        lines,
    )
