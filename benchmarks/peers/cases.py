"""What is measured: how many prompts at once, how long, and which figures come out of it."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Final, Literal

from benchmarks.peers.protocol import Prompts, Timing
from benchmarks.peers.shapes import SMOLLM2, Shape

Kind = Literal["output", "prefill", "decode"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A rate in tokens a second.

    ``output``: output tokens over all the time, with prefill. ``prefill``: prompt tokens over the
    time to the last first token. ``decode``: the tokens after the first, over the time after it.
    ``target`` is how many times the best peer's Headway's should be.
    """

    kind: Kind
    label: str
    target: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """Some random prompts at once. ``output`` tokens follow each, whatever they are."""

    name: str
    streams: int
    prompt: int
    output: int
    figures: tuple[Figure, ...]
    primed: bool = True
    """Whether each engine does it once, shortened, before anything is measured."""

    def prompts(self, vocab_size: int, seed: str) -> Prompts:
        """Return prompts that no other seed and no other case has; special tokens stay out."""
        random = Random(f"{self.name}, {seed}")
        return [
            [random.randrange(1000, vocab_size) for _ in range(self.prompt)]
            for _ in range(self.streams)
        ]


def rate(kind: Kind, case: Case, timing: Timing) -> float:
    """Return one figure of one measurement, in tokens a second."""
    if kind == "output":
        return timing.output_tokens / timing.seconds
    if kind == "prefill":
        return case.streams * case.prompt / timing.first_s
    return (timing.output_tokens - case.streams) / (timing.seconds - timing.first_s)


def _mix(streams: int, target: float, output: int = 128) -> Case:
    decode = () if streams > 1 else (Figure(kind="decode", label="1 stream, decode alone"),)
    what = f"{streams} at once" if streams > 1 else "1 stream"
    whole = Figure(kind="output", label=f"{what}, 128 in, {output} out", target=target)
    return Case(
        name=f"mix-{streams}", streams=streams, prompt=128, output=output, figures=(whole, *decode)
    )


def _prefill(streams: int, prompt: int) -> Case:
    figure = Figure(kind="prefill", label=f"prefill, {streams} × {prompt}", target=1.4)
    return Case(
        name=f"prefill-{streams}x{prompt}",
        streams=streams,
        prompt=prompt,
        output=1,
        figures=(figure,),
    )


SMALL: Final = (
    _mix(1, 1.25),
    _mix(8, 1.6),
    _mix(32, 1.6),
    _mix(64, 1.6),
    _prefill(8, 128),
    _prefill(1, 2048),
    Case(
        name="long",
        streams=1,
        prompt=8000,
        output=64,
        primed=False,
        figures=(
            Figure(kind="prefill", label="prefill, 1 × 8000", target=1.0),
            Figure(kind="decode", label="decode behind 8000", target=1.0),
        ),
    ),
)

LARGER: Final = (_mix(1, 1.25), _mix(16, 1.6))


def cases_of(shape: Shape) -> tuple[Case, ...]:
    return SMALL if shape is SMOLLM2 else LARGER
