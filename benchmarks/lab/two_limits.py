"""Question 3: what max_num_seqs and max_num_batched_tokens limit, and what one alone does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

from benchmarks.lab.bench import Bench, Run, in_turn
from benchmarks.lab.figure import Figure, figure
from benchmarks.lab.measures import of_gaps, of_ttfts
from benchmarks.lab.page import Claim, Measurement, Page, Table
from headway.report.scales import Linear, around
from headway.report.text import duration
from headway.workload import Arrival

NUM_REQUESTS, EVERY = 24, 12
LONG_PROMPT, LONG_ANSWER = 1200, 16
PROMPTS, ANSWERS = (32, 64), (48, 128)
FEW, MANY = 4, 16
SMALL, LARGE = 128, 1024
#: (max_num_seqs, max_num_batched_tokens), as they are turned
SETTINGS = ((FEW, LARGE), (MANY, LARGE), (FEW, SMALL), (MANY, SMALL))


@dataclass(frozen=True, slots=True)
class Setting:
    """What came of one pair of limits, of the fastest repetition; times in seconds.

    Attributes:
        most_seqs: sequences in a step, at most.
        most_tokens: the same.
        tokens_per_s: of output.
        ttft_s: p50.
        itl_s: p50 of all gaps between two tokens.
        longest_s: the longest gap.
    """

    max_num_seqs: int
    max_num_batched_tokens: int
    most_seqs: int
    most_tokens: int
    tokens_per_s: float
    ttft_s: float
    itl_s: float
    longest_s: float


@dataclass(frozen=True, slots=True)
class Outcome:
    """By pair of limits, in the order of ``SETTINGS``."""

    settings: tuple[Setting, ...]


def workload(count: int = NUM_REQUESTS, long_prompt: int = LONG_PROMPT) -> list[Arrival]:
    """Return short requests, every so many-th of them with a long prompt in its place."""
    random = Random(0)
    drawn = [(random.randint(*PROMPTS), random.randint(*ANSWERS)) for _ in range(count)]
    return [
        Arrival(at_s=0.0, prompt_tokens=long_prompt, output_tokens=LONG_ANSWER)
        if number % EVERY == 0
        else Arrival(at_s=0.0, prompt_tokens=prompt, output_tokens=output)
        for number, (prompt, output) in enumerate(drawn, 1)
    ]


def measure(
    bench: Bench,
    repetitions: int,
    *,
    arrivals: Sequence[Arrival] | None = None,
    settings: Sequence[tuple[int, int]] = SETTINGS,
) -> Outcome:
    """Run each pair so often, in turn."""
    served = arrivals or workload()

    def run(pair: tuple[int, int]) -> Run:
        slots, budget = pair
        return bench.run(served, max_num_seqs=slots, max_num_batched_tokens=budget)

    runs = in_turn(settings, repetitions, run)
    return Outcome(tuple(_setting(*pair, each) for pair, each in runs.items()))


def _setting(slots: int, budget: int, runs: Sequence[Run]) -> Setting:
    best = min(runs, key=lambda run: run.seconds)
    shapes = [step.shape for step in best.steps]
    return Setting(
        slots,
        budget,
        most_seqs=max(shape.num_sequences for shape in shapes),
        most_tokens=max(shape.num_tokens for shape in shapes),
        tokens_per_s=best.tokens_per_s,
        ttft_s=of_ttfts(best.requests, 0.5),
        itl_s=of_gaps(best.requests, 0.5),
        longest_s=of_gaps(best.requests, 1.0),
    )


def page(measured: Measurement[Outcome], simulated: Outcome) -> Page:
    """Return the page."""
    base, slots, budget, both = measured.outcome.settings
    others = simulated.settings
    return Page(
        name="3-two-limits",
        title="3. What do `max_num_batched_tokens` and `max_num_seqs` each limit, and what if only "
        "one is tuned?",
        setup=f"""
            {measured.how}. {NUM_REQUESTS} requests at once, every {EVERY}th with a prompt of
            {LONG_PROMPT:,} tokens and an answer of {LONG_ANSWER}, the others with prompts of
            {PROMPTS[0]} to {PROMPTS[1]} and answers of {ANSWERS[0]} to {ANSWERS[1]} tokens, drawn
            evenly; seed 0. Continuous batches, chunked prefill, decodes first, `fcfs`. The second
            table is the same code on the simulated executor: a 7B model on an A100.
        """,
        results=(
            _table(f"{measured.name}, measured:", measured.outcome),
            _table("A 7B model on an A100, simulated:", simulated),
            _figure(measured.outcome),
        ),
        notes="""
            The most of a step are counts: the same at every run, and in both tables. Decodes go
            first in Headway, so a long prompt cannot keep them out of a step; but a step with a
            chunk as large as the budget is long, and that is the gap they see.
        """,
        answer=f"""
            `max_num_batched_tokens` limits the positions of one step ({budget.most_tokens:,} and
            {slots.most_tokens:,} were seen at most), and so how long everybody waits for a step;
            `max_num_seqs` limits how many run at once ({base.most_seqs} and {slots.most_seqs}),
            and so throughput and memory. With more slots alone there are
            {slots.tokens_per_s / base.tokens_per_s:.1f} times the tokens a second, and a long
            prompt still takes a whole step, in which all decodes stand still for
            {duration(slots.longest_s)}; a smaller budget alone makes that
            {duration(budget.longest_s)} at the throughput of {FEW} slots, and only both together
            give {both.tokens_per_s / base.tokens_per_s:.1f} times the tokens with gaps of at most
            {duration(both.longest_s)}.
        """,
        claims=(
            Claim(
                f"no step goes beyond a limit, and each is what binds: {base.most_seqs} and "
                f"{slots.most_seqs} sequences, {budget.most_tokens:,} and {slots.most_tokens:,} "
                "tokens",
                all(map(_is_within, (*measured.outcome.settings, *others)))
                and (base.most_seqs, slots.most_seqs) == (FEW, MANY)
                and (budget.most_tokens, slots.most_tokens) == (SMALL, LARGE),
            ),
            Claim(
                f"more slots alone leave the longest gap where it was or make it longer: "
                f"{duration(base.longest_s)}, then {duration(slots.longest_s)}",
                _all(measured, simulated, lambda a, b, _c, _d: b.longest_s > 0.8 * a.longest_s),
            ),
            Claim(
                f"a smaller budget makes the longest gap less than half as long: "
                f"{duration(slots.longest_s)} and {duration(both.longest_s)}",
                _all(measured, simulated, lambda _a, b, _c, d: d.longest_s < 0.5 * b.longest_s),
            ),
            Claim(
                f"more slots give more tokens a second, whatever the budget: "
                f"{slots.tokens_per_s / base.tokens_per_s:.2f} and "
                f"{both.tokens_per_s / budget.tokens_per_s:.2f} times",
                _all(
                    measured,
                    simulated,
                    lambda a, b, c, d: (
                        b.tokens_per_s > a.tokens_per_s and d.tokens_per_s > c.tokens_per_s
                    ),
                ),
            ),
        ),
    )


def _is_within(each: Setting) -> bool:
    return each.most_seqs <= each.max_num_seqs and each.most_tokens <= each.max_num_batched_tokens


def _all(
    measured: Measurement[Outcome],
    simulated: Outcome,
    holds: Callable[[Setting, Setting, Setting, Setting], bool],
) -> bool:
    return holds(*measured.outcome.settings) and holds(*simulated.settings)


def _table(title: str, outcome: Outcome) -> Table:
    turned = ("neither", "`max_num_seqs`", "`max_num_batched_tokens`", "both")
    rows = tuple(
        (
            which,
            f"{each.max_num_seqs}",
            f"{each.max_num_batched_tokens:,}",
            f"{each.most_seqs}",
            f"{each.most_tokens:,}",
            f"**{each.tokens_per_s:,.0f}**",
            duration(each.ttft_s),
            duration(each.itl_s),
            f"**{duration(each.longest_s)}**",
        )
        for which, each in zip(turned, outcome.settings, strict=True)
    )
    head = ("turned", "`max_num_seqs`", "`max_num_batched_tokens`", "sequences in a step, at most")
    more = ("tokens in a step, at most", "output tokens/s", "TTFT p50", "ITL p50", "longest gap")
    return Table(title, (*head, *more), rows)


def _figure(outcome: Outcome) -> Figure:
    longest = [each.longest_s for each in outcome.settings]
    most = max(each.tokens_per_s for each in outcome.settings)
    return figure(
        "turned",
        "One limit moves one axis; measured",
        (
            ("longest gap", around(min(longest), max(longest))),
            ("output tokens/s", Linear(0, 1.1 * most)),
        ),
        {
            f"{each.max_num_seqs} slots, {each.max_num_batched_tokens:,} tokens": [
                (each.longest_s, each.tokens_per_s)
            ]
            for each in outcome.settings
        },
    )
