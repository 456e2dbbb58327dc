"""Question 4: what chunked prefill trades for what."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks import chunked_prefill
from benchmarks.chunked_prefill import NUM_DECODES, SHORT_PROMPT_TOKENS, TOKENS_AFTER, Gaps
from benchmarks.lab.bench import Bench, in_turn
from benchmarks.lab.figure import Figure, figure
from benchmarks.lab.page import Claim, Measurement, Page, Table
from headway.core.limits import SchedulerLimits
from headway.core.ports import Executor
from headway.engine.clock import Clock
from headway.report.scales import around
from headway.report.text import duration

PROMPT = 2048
#: tokens of a chunk; None is the whole prompt
CHUNKS = (None, 512, 256, 128, 64)


@dataclass(frozen=True, slots=True)
class Way:
    """The prompt in chunks of so many tokens; of the fastest repetition."""

    chunk: int | None
    gaps: Gaps


@dataclass(frozen=True, slots=True)
class Outcome:
    """From the whole prompt to the smallest chunks."""

    ways: tuple[Way, ...]

    @property
    def whole(self) -> Gaps:
        """What the whole prompt does."""
        return self.ways[0].gaps

    @property
    def smallest(self) -> Gaps:
        """What the smallest chunks do."""
        return self.ways[-1].gaps

    @property
    def quieter(self) -> float:
        """How many times shorter the decodes' longest gap is with the smallest chunks."""
        return self.whole.longest_itl_s / self.smallest.longest_itl_s

    @property
    def later(self) -> float:
        """How many times longer the prompt's own first token takes."""
        return self.smallest.long_ttft_s / self.whole.long_ttft_s


def measure(
    bench: Bench,
    repetitions: int,
    *,
    prompt_tokens: int = PROMPT,
    chunks: Sequence[int | None] = CHUNKS,
) -> Outcome:
    """Run each way so often, in turn."""

    def make(_: SchedulerLimits) -> tuple[Executor, Clock]:
        bench.executor.release_all()
        return bench.executor, bench.clock

    found = in_turn(
        chunks, repetitions, lambda chunk: chunked_prefill.run(make, prompt_tokens, chunk)
    )
    bench.executor.release_all()
    return Outcome(
        tuple(
            Way(chunk, min(each, key=lambda gaps: gaps.long_ttft_s))
            for chunk, each in found.items()
        )
    )


def page(measured: Measurement[Outcome], simulated: Outcome) -> Page:
    """Return the page."""
    here = measured.outcome
    smallest = here.ways[-1].chunk
    return Page(
        name="4-chunked-prefill",
        title="4. What does chunked prefill trade for what?",
        setup=f"""
            {measured.how}. {NUM_DECODES} sequences with prompts of {SHORT_PROMPT_TOKENS} tokens
            decode; when each has a few tokens, a prompt of {PROMPT:,} comes, and they go on for
            {TOKENS_AFTER} tokens each. It is computed in one step, or in chunks of at most so many
            tokens, each in a step with all decodes. Gaps are those between two tokens of the
            decoding sequences from then on. The second table is the same code on the simulated
            executor: a 7B model on an A100. `python -m benchmarks.chunked_prefill` has the same
            for one size of chunk.
        """,
        results=(
            _table(f"{measured.name}, measured:", here),
            _table("A 7B model on an A100, simulated:", simulated),
            _figure(here, simulated, measured.name),
        ),
        answer=f"""
            It trades the long prompt's own first token for the gaps of everybody else: in chunks of
            {smallest} the longest gap of the {NUM_DECODES} decodes is {here.quieter:.1f} times
            shorter ({duration(here.whole.longest_itl_s)} to
            {duration(here.smallest.longest_itl_s)}), and the prompt's first token comes
            {here.later:.2f} times as late ({duration(here.whole.long_ttft_s)} to
            {duration(here.smallest.long_ttft_s)}). On the A100 the trade is {simulated.quieter:.1f}
            times shorter gaps for {simulated.later:.2f} times the TTFT, since each chunk reads all
            weights again and the decodes ride along in each.
        """,
        claims=(
            Claim(
                f"the longest gap of the decodes is at least 4 times shorter in chunks of "
                f"{smallest}: {here.quieter:.1f} measured, {simulated.quieter:.1f} simulated",
                min(here.quieter, simulated.quieter) > 4,
            ),
            Claim(
                f"the prompt's first token is later: {here.later:.2f} times, and "
                f"{simulated.later:.2f} times simulated",
                min(here.later, simulated.later) > 1,
            ),
            Claim(
                f"it gives less than it takes: gaps shrink by more than TTFT grows "
                f"({here.quieter:.1f} and {here.later:.2f}; {simulated.quieter:.1f} and "
                f"{simulated.later:.2f})",
                here.quieter > here.later and simulated.quieter > simulated.later,
            ),
        ),
    )


def _table(title: str, outcome: Outcome) -> Table:
    rows = tuple(
        (
            "as a whole" if way.chunk is None else f"chunks of {way.chunk:,}",
            duration(way.gaps.p50_itl_s),
            duration(way.gaps.p99_itl_s),
            f"**{duration(way.gaps.longest_itl_s)}**",
            f"**{duration(way.gaps.long_ttft_s)}**",
        )
        for way in outcome.ways
    )
    head = ("the prompt", "ITL p50", "ITL p99", "longest gap", "its own TTFT")
    return Table(title, head, rows)


def _figure(here: Outcome, simulated: Outcome, name: str) -> Figure:
    lines = {
        of: [(way.gaps.long_ttft_s, way.gaps.longest_itl_s) for way in each.ways]
        for of, each in ((name, here), ("7B on an A100, simulated", simulated))
    }
    across = [x for points in lines.values() for x, _ in points]
    up = [y for points in lines.values() for _, y in points]
    return figure(
        "trade",
        f"From {PROMPT:,} tokens at once to chunks of {here.ways[-1].chunk}",
        (
            ("TTFT of the long prompt", around(min(across), max(across))),
            ("longest gap of the decodes", around(min(up), max(up))),
        ),
        lines,
    )
