"""A small engine and its requests, for tests that count by hand."""

from __future__ import annotations

from typing import Any

from headway.core.limits import SchedulerLimits
from headway.workload import Arrival


def limits(**changes: Any) -> SchedulerLimits:
    """Return 64 blocks of 4, 8 slots, a budget of 64 and a context of 128, with changes."""
    numbers = {
        "num_blocks": 64,
        "block_size": 4,
        "max_model_len": 128,
        "max_num_seqs": 8,
        "max_num_batched_tokens": 64,
    }
    return SchedulerLimits(**{**numbers, **changes})


def arrival(at_s: float = 0.0, prompt: int = 10, output: int = 3, **more: Any) -> Arrival:
    """Return a short request."""
    return Arrival(at_s=at_s, prompt_tokens=prompt, output_tokens=output, **more)
