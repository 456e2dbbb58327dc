"""The ways to batch that a comparison runs, and what a course text states of each."""

from __future__ import annotations

from typing import NamedTuple


class Stated(NamedTuple):
    """What the text states for a 7B model on an A100.

    In each of its rows the time is batch size over throughput, so a slot gives a token in that
    time, whoever pays for it.
    """

    tokens_per_s: float
    ms_per_token: float

    @property
    def batch(self) -> float:
        """The sequences for which both figures can hold."""
        return self.tokens_per_s * self.ms_per_token / 1e3


class Mode(NamedTuple):
    """One way to batch.

    Attributes:
        name: for flags and files.
        batching: the setting.
        num_slots: sequences at once at most.
        stated: by the text.
    """

    name: str
    batching: str
    num_slots: int
    stated: Stated

    @property
    def title(self) -> str:
        """The name for people."""
        return "no batching" if self.name == "none" else self.name.replace("-", " ")


#: of the continuous mode, unless ``max_num_seqs`` is set: as many as the largest of the others has
LARGEST = 32

MODES = (
    Mode("none", "static", 1, Stated(15, 67)),
    Mode("static-8", "static", 8, Stated(80, 100)),
    Mode("static-32", "static", 32, Stated(200, 160)),
    Mode("dynamic-8", "dynamic", 8, Stated(120, 67)),
    Mode("dynamic-32", "dynamic", 32, Stated(350, 91)),
    Mode("continuous", "continuous", LARGEST, Stated(800, 40)),
)
