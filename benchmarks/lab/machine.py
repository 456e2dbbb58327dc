"""The machine of simulated experiments, and what arrives at it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from random import Random
from typing import Any

from headway.core.classes import ServiceClass
from headway.core.config import SchedulerConfig
from headway.core.limits import SchedulerLimits
from headway.profiles.builtin import LLAMA_7B
from headway.profiles.devices import find_device
from headway.profiles.model_shape import model_shape
from headway.profiles.roofline import Roofline
from headway.sim import SimulationResult, simulate
from headway.workload import Arrival, drawn_between, poisson_arrivals

DEVICE = "a100-80gb"
BLOCK_SIZE = 16
CONTEXT = 4096
SAMPLE_EVERY_S = 0.25
#: how every set-up names it
MACHINE = """
Simulated: the scheduler and the loop that serve, on a virtual clock. The machine is a 7B model
(Llama-2, 16 bits) on an A100 with 80 GB, whose step times are arithmetic on the data sheet, as in
`headway compare --simulated`
""".strip()


@cache
def a100() -> Roofline:
    """Return the step times of a 7B model on an A100."""
    return Roofline(model_shape(LLAMA_7B), find_device(DEVICE))


@cache
def kv_blocks() -> int:
    """Return how many KV blocks fit beside the weights, at a utilisation of 0.9."""
    return a100().num_kv_blocks(block_size=BLOCK_SIZE)


def config(*classes: ServiceClass, **limits: Any) -> SchedulerConfig:
    """Return the scheduler's configuration: continuous batches, and all memory, unless said."""
    numbers: dict[str, Any] = {
        "num_blocks": kv_blocks(),
        "block_size": BLOCK_SIZE,
        "max_model_len": CONTEXT,
        "max_num_seqs": 64,
        "max_num_batched_tokens": 2048,
        **limits,
    }
    made = SchedulerLimits(**numbers)
    return SchedulerConfig(limits=made, classes=classes or (ServiceClass(),))


def served(arrivals: Sequence[Arrival], *classes: ServiceClass, **limits: Any) -> SimulationResult:
    """Serve a workload, with other limits than those of :func:`config`; four samples a second."""
    return simulate(config(*classes, **limits), arrivals, a100(), sample_every_s=SAMPLE_EVERY_S)


@dataclass(frozen=True, slots=True)
class Stream:
    """Requests with lengths drawn evenly between two bounds; ``str`` describes them."""

    prompt: tuple[int, int]
    output: tuple[int, int]

    def __str__(self) -> str:
        return (
            f"prompts of {_span(self.prompt)} and answers of {_span(self.output)} tokens, "
            "drawn evenly"
        )

    def at_once(self, count: int, seed: int = 0) -> list[Arrival]:
        """Return so many that all come at 0."""
        drawn = drawn_between(self.prompt, self.output, Random(seed))
        lengths = (next(drawn) for _ in range(count))
        return [Arrival(at_s=0.0, prompt_tokens=p, output_tokens=o) for p, o in lengths]

    def poisson(
        self, rate: float, duration_s: float, seed: int = 0, class_name: str = "default"
    ) -> list[Arrival]:
        """Return those that come within a time, ``rate`` a second on average."""
        random = Random(seed)
        drawn = drawn_between(self.prompt, self.output, random)
        return poisson_arrivals(rate, drawn, random, duration_s=duration_s, class_name=class_name)


CHATS = Stream((100, 500), (50, 250))
DOCUMENTS = Stream((200, 1000), (100, 500))


def _span(bounds: tuple[int, int]) -> str:
    low, high = bounds
    return f"{low}" if low == high else f"{low} to {high}"
