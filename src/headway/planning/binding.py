"""What binds: which part of the machine would have to grow for more load to be kept."""

from __future__ import annotations

from dataclasses import dataclass

from headway.planning.batch import Batch
from headway.planning.choices import counted
from headway.planning.load import Load
from headway.planning.trial import AimResult

_FULL = 0.95
"""Blocks, slots and time are used up from this share on."""


@dataclass(frozen=True, slots=True)
class Binding:
    """The part, and by which figures.

    Attributes:
        what: ``KV``, ``compute``, ``memory bandwidth``, ``queueing``, or ``nothing``.
        why: in words.
    """

    what: str
    why: str


def binding_of(missed: AimResult | None, load: Load, batch: Batch, most: int) -> Binding:
    """Decide.

    Args:
        missed: the target that is the first to be missed as the load grows; None if none is.
        load: what the engines were busy with then.
        batch: as many sequences as ran on average.
        most: sequences of a full one.
    """
    if missed is None:
        return Binding("nothing", "all targets hold at the highest load that was tried")
    if load.num_preemptions or load.kv_peak >= _FULL:
        return Binding(
            "KV",
            f"{load.kv_peak:.0%} of the blocks used, {counted(load.num_preemptions, 'preemption')}",
        )
    prompts = 1 - batch.decode_s / batch.step_s
    works = "compute" if prompts > 0.5 else "memory bandwidth"
    parts = f"prompts are {prompts:.0%} of the time of a step"
    if load.busy_share >= _FULL or missed.aim.metric == "tpot":
        return Binding(works, f"engines are busy {load.busy_share:.0%} of the time; {parts}")
    if load.slots_peak >= _FULL:
        return Binding(
            "queueing",
            f"for the {most} sequences of a batch, at the peak; engines are busy "
            f"{load.busy_share:.0%} of the time",
        )
    return Binding(
        "queueing",
        f"behind prompts, at the peak: engines are busy {load.busy_share:.0%} of the time; {parts}",
    )
