"""The limits that a step must keep: the scheduler's duty, which no executor needs to check."""

from __future__ import annotations

from collections.abc import Sequence

from headway.core.limits import Batching, SchedulerLimits
from headway.core.plan import Padding, Slice, StepPlan
from headway.errors import InvariantError


def check_limits(plan: StepPlan, limits: SchedulerLimits) -> None:
    """Check sequences, tokens, chunks and padding of a step.

    Raises:
        InvariantError: it goes beyond a limit, or computes nothing.
    """
    num_sequences, num_tokens = len(plan.slices), sum(part.count for part in plan.slices)
    if num_sequences == 0:
        raise InvariantError("it computes nothing")
    if (plan.padding is not None) != (limits.batching is not Batching.CONTINUOUS):
        raise InvariantError(f"a {limits.batching} step with padding {plan.padding}")
    if plan.padding is not None:
        _check_padding(plan.padding, plan.slices)
        num_sequences = plan.padding.num_sequences
        num_tokens = num_sequences * plan.padding.num_rows
    if num_sequences > limits.max_num_seqs:
        raise InvariantError(f"{num_sequences} sequences, and {limits.max_num_seqs} may run")
    if num_tokens > limits.max_num_batched_tokens:
        raise InvariantError(
            f"{num_tokens} tokens, and the budget is {limits.max_num_batched_tokens}"
        )
    longest = limits.max_prefill_chunk_tokens
    if longest is not None and any(part.count > longest for part in plan.slices):
        raise InvariantError(f"a slice is longer than {longest}: {plan.slices}")


def _check_padding(padding: Padding, slices: Sequence[Slice]) -> None:
    if padding.num_sequences < len(slices):
        raise InvariantError(f"{padding} for {len(slices)} slices")
    if padding.num_rows != max(part.count for part in slices):
        raise InvariantError(f"{padding} for slices {slices}")
    if padding.length < max(part.start + part.count for part in slices):
        raise InvariantError(f"{padding} for slices {slices}")
