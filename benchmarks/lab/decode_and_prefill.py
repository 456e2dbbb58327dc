"""Question 1: batching helps decode far more than prefill."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from benchmarks.lab.bench import Bench, Run, in_turn
from benchmarks.lab.figure import Doublings, Figure, figure
from benchmarks.lab.machine import a100
from benchmarks.lab.page import Claim, Measurement, Page, Table
from headway.profiles.roofline import Parts
from headway.profiles.shape import Chunk, StepShape
from headway.report.svg import Point
from headway.report.text import duration
from headway.workload import Arrival

BATCHES = (1, 2, 4, 8, 16, 32, 64)
PROMPT, OUTPUT = 128, 17


@dataclass(frozen=True, slots=True)
class Outcome:
    """By batch: seconds of the step that computes all prompts, and of one that decodes."""

    batches: tuple[int, ...]
    prefill_s: tuple[float, ...]
    decode_s: tuple[float, ...]

    def prefill_rate(self, place: int) -> float:
        """Prompt tokens a second."""
        return PROMPT * self.batches[place] / self.prefill_s[place]

    def decode_rate(self, place: int) -> float:
        """Output tokens a second."""
        return self.batches[place] / self.decode_s[place]

    @property
    def prefill_gain(self) -> float:
        """By how much the largest batch prefills more a second than one request."""
        return self.prefill_rate(-1) / self.prefill_rate(0)

    @property
    def decode_gain(self) -> float:
        """By how much the largest batch decodes more a second than one request."""
        return self.decode_rate(-1) / self.decode_rate(0)


def measure(bench: Bench, repetitions: int, batches: Sequence[int] = BATCHES) -> Outcome:
    """Run each batch so often, in turn."""

    def run(batch: int) -> Run:
        arrivals = [Arrival(at_s=0.0, prompt_tokens=PROMPT, output_tokens=OUTPUT)] * batch
        return bench.run(arrivals, max_num_seqs=batch, max_num_batched_tokens=PROMPT * batch)

    runs = in_turn(batches, repetitions, run)
    return Outcome(
        tuple(batches),
        tuple(min(_step_s(run, is_prefill=True) for run in each) for each in runs.values()),
        tuple(min(_step_s(run, is_prefill=False) for run in each) for each in runs.values()),
    )


def _step_s(run: Run, *, is_prefill: bool) -> float:
    return median(step.seconds for step in run.steps if bool(step.shape.chunks) == is_prefill)


def page(measured: Measurement[Outcome], simulated: Outcome) -> Page:
    """Return the page."""
    here, most = measured.outcome, measured.outcome.batches[-1]
    one, many = _parts_of(1), _parts_of(most)
    prompt = _parts_of(1, prompt=True)
    return Page(
        name="1-decode-and-prefill",
        title="1. Why does batching help decode more than prefill?",
        setup=f"""
            {measured.how}. So many requests at once, with prompts of {PROMPT} tokens, drawn at
            random, and answers of {OUTPUT}; the token budget holds all prompts, so that one step
            computes them, and {OUTPUT - 1} steps with all sequences follow. A step counts with the
            median of its kind in a run. The second table is the same code on the simulated
            executor: a 7B model on an A100, by arithmetic on the data sheet.
        """,
        results=(
            _table(f"{measured.name}, measured:", here),
            _table("A 7B model on an A100, simulated:", simulated),
            _parts(most),
            _figure(here, simulated, measured.name),
        ),
        notes="""
            A CPU has less arithmetic for each byte that it can read than a GPU, so few sequences
            are enough to fill it, and decode gains less.
        """,
        answer=f"""
            From 1 to {most} sequences decode gains {here.decode_gain:.1f} times the tokens a second
            and prefill {here.prefill_gain:.1f} times; for the 7B model on an A100 it is
            {simulated.decode_gain:.0f} and {simulated.prefill_gain:.1f}. Each step reads all
            weights once: a prompt of {PROMPT} tokens shares that among its own
            ({_micro(prompt.weights_s)} each on the A100) and is a batch already, while one decode
            pays for it alone ({_micro(one.weights_s)}), until others share it
            ({_micro(many.weights_s)} each with {most}).
        """,
        claims=(
            Claim(
                f"measured, decode gains at least 1.5 times as much as prefill: "
                f"{here.decode_gain:.2f} and {here.prefill_gain:.2f}",
                here.decode_gain > 1.5 * here.prefill_gain,
            ),
            Claim(
                f"simulated, at least ten times as much: {simulated.decode_gain:.1f} and "
                f"{simulated.prefill_gain:.2f}",
                simulated.decode_gain > 10 * simulated.prefill_gain,
            ),
            Claim(
                f"a token of one prompt pays less for reading weights than one of {most} decodes, "
                f"and much less than one decode: {_micro(prompt.weights_s)}, "
                f"{_micro(many.weights_s)}, {_micro(one.weights_s)}",
                prompt.weights_s < many.weights_s < one.weights_s / 10,
            ),
        ),
    )


def _parts_of(number: int, *, prompt: bool = False) -> Parts:
    """Return what a token of such a step costs on the A100."""
    length = PROMPT + OUTPUT
    shape = StepShape((), number, number * length, length, length)
    if prompt:
        shape = StepShape((Chunk(0, PROMPT),) * number)
    return Parts(*(each / shape.num_tokens for each in a100().parts(shape)))


def _table(title: str, outcome: Outcome) -> Table:
    rows = tuple(
        (
            f"{batch}",
            duration(outcome.decode_s[place]),
            f"{outcome.decode_rate(place):,.0f}",
            f"**{outcome.decode_rate(place) / outcome.decode_rate(0):.1f}**",
            duration(outcome.prefill_s[place]),
            f"{outcome.prefill_rate(place):,.0f}",
            f"**{outcome.prefill_rate(place) / outcome.prefill_rate(0):.1f}**",
        )
        for place, batch in enumerate(outcome.batches)
    )
    head = ("batch", "decode step", "output tokens/s", "×")
    return Table(title, (*head, "step of all prompts", "prompt tokens/s", "×"), rows)


def _parts(most: int) -> Table:
    kinds = {
        "1 decode": _parts_of(1),
        f"{most} decodes": _parts_of(most),
        "1 prompt": _parts_of(1, prompt=True),
        f"{most} prompts": _parts_of(most, prompt=True),
    }
    return Table(
        "What each token of a step costs on the A100 (reading weights, or multiplying by them "
        "where that takes longer):",
        ("step", "reading weights", "multiplying", "attention", "starting kernels", "in all"),
        tuple(
            (
                name,
                _micro(each.weights_s),
                _micro(each.compute_s),
                _micro(each.kv_s + each.prompts_s),
                _micro(each.fixed_s),
                f"**{_micro(sum(each))}**",
            )
            for name, each in kinds.items()
        ),
    )


def _micro(seconds: float) -> str:
    return f"{1e6 * seconds:,.0f} µs"


def _figure(here: Outcome, simulated: Outcome, name: str) -> Figure:
    lines: dict[str, Sequence[Point]] = {}
    for of, each in ((name, here), ("A100", simulated)):
        places = range(len(each.batches))
        decode = [
            (float(each.batches[n]), each.decode_rate(n) / each.decode_rate(0)) for n in places
        ]
        prefill = [
            (float(each.batches[n]), each.prefill_rate(n) / each.prefill_rate(0)) for n in places
        ]
        lines |= {f"decode, {of}": decode, f"prefill, {of}": prefill}
    most = max(value for points in lines.values() for _, value in points)
    return figure(
        "gain",
        "What a batch gains over one request",
        (("batch", Doublings(here.batches)), ("times the tokens a second", _gains(most))),
        lines,
    )


def _gains(most: float) -> Doublings:
    ticks = [1]
    while ticks[-1] < most:
        ticks.append(2 * ticks[-1])
    return Doublings(ticks)
