"""Whether plans hold: made on one half of a recorded trace, judged on the other half.

Both Azure traces of 2023 are stretched to the same mean rate and planned from each of their halves,
for a 7B model on A100s whose steps cost what a roofline says. A plan is judged on days that are
resampled from the other half, and on that half as it is. Beside it a plan that knows the mean rate
and the lengths alone, and takes requests to come by chance (Poisson).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from benchmarks.command import parser, show, status_of
from benchmarks.plans.halves import TRACES, PoissonDays, dispersion, halves
from benchmarks.plans.proof import Edge, Planned, edges, judged, planned, pooled
from benchmarks.table import aligned
from headway.engine.garbage import collect_rarely
from headway.planning.chance import Chance
from headway.planning.days import RecordedDays
from headway.planning.trial import TrialResult, simulate_day
from headway.planning.trials import Terms
from headway.workload import Targets, Workload

TARGETS = Targets(ttft_s=1.0, tpot_s=0.1)
_HALVES = ("first", "second")
_JUDGE_SEED = 1_000_003


@dataclass(frozen=True, slots=True)
class Size:
    """How much is simulated: the rates, the length of a day, and days to plan and to judge by."""

    rates: tuple[float, ...] = (4.0, 2.0)
    day_s: float = 300.0
    num_days: int = 40
    num_judging: int = 40
    traces: tuple[str, ...] = tuple(TRACES)


QUICK = Size(rates=(3.0,), day_s=200.0, num_days=20, num_judging=20)


@dataclass(frozen=True, slots=True)
class Share:
    """Days that held, with the 95 % interval of the chance."""

    held: int
    of: int
    low: float
    high: float

    @classmethod
    def of_chance(cls, chance: Chance) -> Share:
        return cls(chance.held, chance.of, *(round(end, 4) for end in chance.interval()))

    def __str__(self) -> str:
        return f"{self.held}/{self.of} ({self.low:.0%}-{self.high:.0%})"


@dataclass(frozen=True, slots=True)
class Limit:
    """The tightest limit the same engines could promise at 95 %, and how often it held."""

    metric: str
    limit_s: float
    held_out: Share


@dataclass(frozen=True, slots=True)
class Proof:
    """One plan and its judgement.

    Attributes:
        trace: of which one half was planned from.
        rate: requests a second of both halves.
        half: the one that was planned from.
        arrivals: ``recorded``, or ``poisson`` if the plan forgets the bursts.
        dispersion: of that half in windows of 10 s; 1 is Poisson.
        other_dispersion: of the half that judges.
        instances: that the plan asks for.
        num_seqs: its batch.
        planning: days by which it was made.
        held_out: days of the other half.
        half_as_it_is: whether all targets hold on the other half, not resampled.
        ttft_p99_s: of that.
        tpot_p99_s: likewise.
        limits: what could be promised at the edge.
    """

    trace: str
    rate: float
    half: str
    arrivals: str
    dispersion: float
    other_dispersion: float
    instances: int
    num_seqs: int
    planning: Share
    held_out: Share
    half_as_it_is: bool
    ttft_p99_s: float
    tpot_p99_s: float
    limits: tuple[Limit, ...]


@dataclass(frozen=True, slots=True)
class Outcome:
    """All plans; ``pooled`` is over those from recorded arrivals, and likewise the limits."""

    targets: dict[str, Any]
    proofs: tuple[Proof, ...]
    pooled: Share
    pooled_limits: Share


def prove(size: Size, tell: Callable[[str], None] = lambda _: None) -> Outcome:
    """Plan and judge.

    Raises:
        WorkloadError: a trace isn't there.
    """
    collect_rarely()
    terms = Terms(num_days=size.num_days)
    proofs = tuple(_proofs(size, terms, tell))
    recorded = [each for each in proofs if each.arrivals == "recorded"]
    limits = [limit for each in recorded for limit in each.limits]
    return Outcome(
        asdict(TARGETS),
        proofs,
        _pooled([each.held_out for each in recorded]),
        _pooled([each.held_out for each in limits]),
    )


def _pooled(shares: Sequence[Share]) -> Share:
    return Share.of_chance(pooled([Chance(each.held, each.of) for each in shares]))


def _proofs(size: Size, terms: Terms, tell: Callable[[str], None]) -> Iterator[Proof]:
    for rate in size.rates:
        for name in size.traces:
            both = halves(name, rate, TARGETS)
            for number, half in enumerate(_HALVES):
                own, other = both[number], both[1 - number]
                for process in ("recorded", "poisson"):
                    tell(f"{name}, {rate:g} requests/s, {process}, from the {half} half")
                    yield _proof((name, rate, half, process), own, other, size, terms, tell)


def _proof(
    what: tuple[str, float, str, str],
    own: Workload,
    other: Workload,
    size: Size,
    terms: Terms,
    tell: Callable[[str], None],
) -> Proof:
    days = RecordedDays(own, size.day_s) if what[3] == "recorded" else PoissonDays(own, size.day_s)
    plan = planned(own, days, terms, tell)
    assert plan is not None, "with enough engines the targets hold"
    judge = judged(plan.candidate, RecordedDays(other, size.day_s), size.num_judging, _JUDGE_SEED)
    proof = _told(what, plan, judge, own, other, terms.promise)
    tell(f"    {proof.instances} instances hold on {proof.held_out} days of the other half")
    return proof


def _told(
    what: tuple[str, float, str, str],
    plan: Planned,
    judge: TrialResult,
    own: Workload,
    other: Workload,
    promise: float,
) -> Proof:
    whole = simulate_day(plan.candidate, other)
    ttft_s, tpot_s = whole.figures_s.values()
    return Proof(
        *what,
        dispersion=round(dispersion(own, 10.0), 1),
        other_dispersion=round(dispersion(other, 10.0), 1),
        instances=plan.setup.instances,
        num_seqs=plan.setup.batch.num_seqs,
        planning=Share.of_chance(plan.result.chance),
        held_out=Share.of_chance(judge.chance),
        half_as_it_is=whole.holds,
        ttft_p99_s=round(ttft_s or 0.0, 4),
        tpot_p99_s=round(tpot_s or 0.0, 4),
        limits=tuple(map(_limit, edges(plan.result, judge, promise))),
    )


def _limit(edge: Edge) -> Limit:
    return Limit(edge.metric, round(edge.limit_s, 4), Share.of_chance(edge.chance))


def table(outcome: Outcome) -> str:
    """Return the plans as text."""
    head = (
        *("trace", "requests/s", "planned from", "arrivals", "bursts here", "there"),
        *("instances", "planning days", "days of the other half", "that half", "TTFT p99"),
    )
    lines = [aligned(head, [_row(each) for each in outcome.proofs])]
    lines.append(f"days of the other half, all plans from recorded arrivals: {outcome.pooled}")
    lines.append(f"limits at the edge of what could be promised: {outcome.pooled_limits}")
    return "\n".join(lines)


def _row(each: Proof) -> tuple[str, ...]:
    return (
        each.trace,
        f"{each.rate:g}",
        f"{each.half} half",
        each.arrivals,
        f"{each.dispersion:g}",
        f"{each.other_dispersion:g}",
        f"{each.instances}",
        f"{each.planning.held}/{each.planning.of}",
        str(each.held_out),
        "holds" if each.half_as_it_is else "fails",
        f"{each.ttft_p99_s:.2f} s",
    )


def main() -> int:
    """Plan, judge and print."""
    arguments = parser(__doc__)
    arguments.add_argument("--quick", action="store_true", help="one rate, fewer and shorter days")
    return status_of(lambda: _run(arguments.parse_args()))


def _run(given: argparse.Namespace) -> None:
    def tell(line: str) -> None:
        print(line, file=sys.stderr, flush=True)

    outcome = prove(QUICK if given.quick else Size(), tell)
    show(outcome, table(outcome), as_json=given.json)


if __name__ == "__main__":
    sys.exit(main())
