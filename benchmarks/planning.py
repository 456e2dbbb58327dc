"""Whether plans hold: made on one half of a recorded trace, judged on the other half.

Both Azure traces of 2023 are stretched to the same mean rate and planned from each of their halves,
for a 7B model on A100s whose steps cost what a roofline says. A plan is judged on days that are
resampled from the other half, and on that half as it is. A day is short, a minute, so that a half
has enough of them to promise 95 % by. Beside it a plan that knows the mean rate and the lengths
alone, and takes requests to come by chance (Poisson); and recordings of a law that is known.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from benchmarks.command import parser, show, status_of
from benchmarks.plans.halves import TRACES, PoissonDays, dispersion, halves
from benchmarks.plans.law import kept
from benchmarks.plans.proof import Edge, Planned, edges, judged, planned, pooled
from benchmarks.table import aligned
from headway.engine.garbage import collect_rarely
from headway.planning.chance import Chance
from headway.planning.days import RecordedDays, most_promised
from headway.planning.trial import TrialResult, simulate_day
from headway.planning.trials import Terms
from headway.workload import Targets, Workload

STRICT = Targets(ttft_s=1.0, tpot_s=0.1)
RELAXED = Targets(ttft_s=3.0, tpot_s=0.2)
_HALVES = ("first", "second")
_JUDGE_SEED = 1_000_003


@dataclass(frozen=True, slots=True)
class Setting:
    """A rate of both halves, what is promised, and whether a Poisson planner tries too."""

    rate: float
    targets: Targets
    poisson: bool = False


@dataclass(frozen=True, slots=True)
class Size:
    """How much is simulated: settings, and days to plan and to judge by.

    Attributes:
        laws: recordings of a known law: (days in one, number of them).
    """

    settings: tuple[Setting, ...] = (
        Setting(3.0, STRICT, poisson=True),
        Setting(3.0, RELAXED),
        Setting(2.0, STRICT),
    )
    num_days: int = 40
    num_judging: int = 60
    laws: tuple[tuple[int, int], ...] = ((1, 20), (5, 20), (20, 20))


DAY_S = 60.0
QUICK = Size((Setting(3.0, STRICT, poisson=True),), 20, 20, ((1, 4), (20, 4)))


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
        ttft_s: what is promised, for the 99th percentile.
        tpot_s: likewise.
        half: the one that was planned from.
        num_recorded: days in it.
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
    ttft_s: float
    tpot_s: float
    half: str
    num_recorded: float
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
class Law:
    """Recordings of a known law: how often limits promised at 95 % held on new days.

    Attributes:
        num_recorded: days in a recording.
        most_promised: what so many can promise at most.
        twice: with the recording resampled before a day is drawn from it, as plans do.
        once: without.
    """

    num_recorded: int
    most_promised: float
    twice: Share
    once: Share


@dataclass(frozen=True, slots=True)
class Outcome:
    """All plans; ``pooled`` is over those from recorded arrivals, and likewise the limits."""

    proofs: tuple[Proof, ...]
    pooled: Share
    pooled_limits: Share
    laws: tuple[Law, ...]


def prove(size: Size, tell: Callable[[str], None] = lambda _: None) -> Outcome:
    """Plan and judge.

    Raises:
        WorkloadError: a trace isn't there.
    """
    collect_rarely()
    proofs = tuple(_proofs(size, tell))
    recorded = [each for each in proofs if each.arrivals == "recorded"]
    limits = [limit for each in recorded for limit in each.limits]
    return Outcome(
        proofs,
        _pooled([each.held_out for each in recorded]),
        _pooled([each.held_out for each in limits]),
        tuple(_law(size, number, count, tell) for number, count in size.laws),
    )


def _pooled(shares: Sequence[Share]) -> Share:
    return Share.of_chance(pooled([Chance(each.held, each.of) for each in shares]))


def _law(size: Size, num_recorded: int, count: int, tell: Callable[[str], None]) -> Law:
    tell(f"{count} recordings of {num_recorded} days")
    found = kept(num_recorded, count, _NEW_DAYS, size.num_days)
    return Law(
        num_recorded,
        round(most_promised(num_recorded), 4),
        Share.of_chance(found.twice),
        Share.of_chance(found.once),
    )


_NEW_DAYS = 5


def _proofs(size: Size, tell: Callable[[str], None]) -> Iterator[Proof]:
    for setting in size.settings:
        processes = ("recorded", "poisson") if setting.poisson else ("recorded",)
        for name in TRACES:
            both = halves(name, setting.rate, setting.targets)
            for number, half in enumerate(_HALVES):
                for process in processes:
                    case = _Case(name, setting, half, process, both[number], both[1 - number])
                    tell(f"{name}, {setting.rate:g} requests/s, {process}, from the {half} half")
                    yield case.proof(size, tell)


@dataclass(frozen=True, slots=True)
class _Case:
    trace: str
    setting: Setting
    half: str
    process: str
    own: Workload
    other: Workload

    def proof(self, size: Size, tell: Callable[[str], None]) -> Proof:
        """Plan from the one half, and judge by the other."""
        recorded = RecordedDays(self.own, DAY_S)
        days = recorded if self.process == "recorded" else PoissonDays(self.own, DAY_S)
        terms = Terms(num_days=size.num_days)
        plan = planned(self.own, days, terms, tell)
        assert plan is not None, "with enough engines the targets hold"
        others = RecordedDays(self.other, DAY_S)
        judge = judged(plan.candidate, others, size.num_judging, _JUDGE_SEED)
        proof = self._told(plan, judge, recorded.num_recorded, terms.promise)
        tell(f"    {proof.instances} instances hold on {proof.held_out} days of the other half")
        return proof

    def _told(
        self, plan: Planned, judge: TrialResult, num_recorded: float, promise: float
    ) -> Proof:
        whole = simulate_day(plan.candidate, self.other)
        ttft_s, tpot_s = whole.figures_s.values()
        return Proof(
            trace=self.trace,
            rate=self.setting.rate,
            ttft_s=self.setting.targets.ttft_s or 0.0,
            tpot_s=self.setting.targets.tpot_s or 0.0,
            half=self.half,
            num_recorded=round(num_recorded, 1),
            arrivals=self.process,
            dispersion=round(dispersion(self.own, 10.0), 1),
            other_dispersion=round(dispersion(self.other, 10.0), 1),
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
    """Return plans and laws as text."""
    head = (
        *("trace", "requests/s", "TTFT p99", "TPOT p99", "planned from", "days", "arrivals"),
        *("bursts", "instances", "days of the other half", "as it is", "TTFT p99"),
    )
    lines = [aligned(head, [_row(each) for each in outcome.proofs])]
    lines.append(f"all plans from recorded arrivals: {outcome.pooled} days of the other half")
    lines.append(f"the tightest limits they could promise: {outcome.pooled_limits}")
    laws = [
        (f"{each.num_recorded}", f"{each.most_promised:.0%}", str(each.twice), str(each.once))
        for each in outcome.laws
    ]
    lines += ["", "limits promised at 95 % by recordings of a known law, on new days"]
    lines.append(aligned(("days recorded", "at most", "resampled twice", "once"), laws))
    return "\n".join(lines)


def _row(each: Proof) -> tuple[str, ...]:
    return (
        each.trace,
        f"{each.rate:g}",
        f"{each.ttft_s:g} s",
        f"{each.tpot_s * 1e3:g} ms",
        f"{each.half} half",
        f"{each.num_recorded:.0f}",
        each.arrivals,
        f"{each.dispersion:g}",
        f"{each.instances}",
        str(each.held_out),
        "holds" if each.half_as_it_is else "fails",
        f"{each.ttft_p99_s:.2f} s",
    )


def main() -> int:
    """Plan, judge and print."""
    arguments = parser(__doc__)
    arguments.add_argument("--quick", action="store_true", help="fewer plans, and fewer days")
    return status_of(lambda: _run(arguments.parse_args()))


def _run(given: argparse.Namespace) -> None:
    def tell(line: str) -> None:
        print(line, file=sys.stderr, flush=True)

    outcome = prove(QUICK if given.quick else Size(), tell)
    show(outcome, table(outcome), as_json=given.json)


if __name__ == "__main__":
    sys.exit(main())
