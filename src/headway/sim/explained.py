"""Why simulated figures differ from stated ones, in sentences made of the cost model's numbers."""

from __future__ import annotations

from headway.profiles.roofline import Parts
from headway.sim.comparison import ModeRun
from headway.sim.modes import Mode

_WORDS = {
    "weights_s": "reading weights",
    "compute_s": "multiplying by them",
    "kv_s": "reading keys and values",
    "prompts_s": "attention of prompts",
    "fixed_s": "starting kernels",
    "exchange_s": "exchange between devices",
}
_CLOSE = 0.1
"""Figures that differ by less are called equal."""
_NAMED = 0.05
"""Parts of less than this share are left out."""


def explained(mode: Mode, run: ModeRun) -> str:
    """Say how far apart the throughputs are, what binds the steps, and what that leaves open."""
    assert run.parts is not None, "only a roofline says what its time goes to"
    if not run.tally.num_steps:
        return f"{mode.title}: nothing was computed{_reason(run)}"
    stated = mode.stated
    ours = run.figures.a_second(run.figures.output_tokens)
    sentences = [
        f"{mode.title}: {ours:,.0f} tokens/s, {_against(ours, stated.tokens_per_s)} stated "
        f"{stated.tokens_per_s:,.0f}.",
        f"Steps take {_step_ms(run):.1f} ms on average: {_shares(run.parts)}{_padding(run)}.",
        _left_open(mode, run),
    ]
    return " ".join(sentences)


def _reason(run: ModeRun) -> str:
    return "".join(f"; {kind}: {detail}" for kind, detail in run.figures.details.items())


def _against(ours: float, stated: float) -> str:
    factor = ours / stated
    if abs(factor - 1) <= _CLOSE:
        return "about as much as the"
    if factor > 1:
        return f"{factor:.1f} times the"
    return f"{factor:.2f} of the"


def _shares(parts: Parts) -> str:
    total_s = sum(parts)
    found = sorted(zip(parts, _WORDS.values(), strict=True), reverse=True)
    return ", ".join(
        f"{part_s / total_s:.0%} {word}" for part_s, word in found if part_s >= _NAMED * total_s
    )


def _padding(run: ModeRun) -> str:
    share = run.tally.padding_share
    return f"; {share:.0%} of the positions they compute are padding" if share else ""


def _left_open(mode: Mode, run: ModeRun) -> str:
    """Hold the time of a step that the stated figures amount to against that of the model."""
    stated, step_ms = mode.stated, _step_ms(run)
    means = f"Stated are {stated.ms_per_token:g} ms a token of each of {stated.batch:.0f} sequences"
    more_ms = stated.ms_per_token - step_ms
    if abs(more_ms) <= _CLOSE * step_ms:
        return f"{means}, a step as long as here."
    if more_ms > 0:
        return (
            f"{means}: {more_ms:.0f} ms ({more_ms / stated.ms_per_token:.0%}) of such a step are "
            "none of these: the software's, or waste that this workload doesn't have."
        )
    return f"{means}: less than the device takes for such steps, so those were of less work."


def _step_ms(run: ModeRun) -> float:
    return 1e3 * run.tally.busy_s / run.tally.num_steps
