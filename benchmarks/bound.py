"""The longest that a request may wait, by the rule that the policies promise.

A policy with ageing lets nobody go first who comes more than the *handicap* later: ``ageing_s`` for
each level of ``priority``, at most ``ageing_s`` for ``sjf`` and ``slo``. So a request starts no
later than its handicap, and then as long as it takes to serve what was there by that moment.

How long that takes is worked out from what each request would need alone, not from what became of
it: its steps, its prompt tokens and its output tokens. Until the request starts all slots are
taken, so a step is full of prompt tokens, and as long as steps can be, or takes every slot one step
further. The first token comes when its own prompt is computed as well, in steps as long as steps
can be.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from headway.core.costs import StepCosts, StepFeatures
from headway.core.limits import SchedulerLimits
from headway.sim import RequestRecord, SimulationResult

Wait = Callable[[RequestRecord], float | None]


@dataclass(frozen=True, slots=True)
class Bound:
    """By when a request must have run, and got its first token; seconds after its arrival."""

    start_s: float
    first_token_s: float


@dataclass(frozen=True, slots=True)
class Machine:
    """What serves: how long steps take, and what they hold. It has blocks for all slots."""

    cost: StepCosts
    limits: SchedulerLimits

    @property
    def chunk_tokens(self) -> int:
        """Prompt tokens that a step holds at least, whoever decodes beside them."""
        return self.limits.max_num_batched_tokens - self.limits.max_num_seqs + 1

    @property
    def longest_step_s(self) -> float:
        """No step takes longer."""
        most = StepFeatures(self.limits.max_num_batched_tokens, self.limits.max_num_seqs)
        return self.cost.seconds(most)

    def num_prefill_steps(self, record: RequestRecord) -> int:
        """Return the steps in which the prompt is computed if nobody else's is."""
        return math.ceil(record.arrival.prompt_tokens / self.chunk_tokens)

    def time_to_serve(self, records: Sequence[RequestRecord], moment: float) -> float:
        """Return how long it takes at most to serve these, from what they have at the moment."""
        num_prompt_tokens = num_output_tokens = num_steps = 0
        for each in records:
            num_done = bisect_right(each.token_times, moment)
            num_left = each.arrival.output_tokens - num_done
            num_output_tokens += num_left
            num_steps += num_left
            if num_done == 0:
                num_prompt_tokens += each.arrival.prompt_tokens
                num_steps += self.num_prefill_steps(each) - 1
        return (
            self.longest_step_s * num_prompt_tokens / self.chunk_tokens
            + self.cost.base_s * num_steps / self.limits.max_num_seqs
            + self.cost.decode_s * num_output_tokens
        )


def bounds(
    records: Sequence[RequestRecord], result: SimulationResult, handicap_s: float, machine: Machine
) -> list[Bound]:
    """Return the bound of each of the records."""
    found: list[Bound] = []
    for record in records:
        # a request is seen when a step ends
        latest_s = handicap_s + machine.longest_step_s
        moment = record.arrival.at_s + latest_s
        others = [
            each
            for each in result.requests
            if each is not record
            and each.arrival.at_s <= moment
            and (each.ended_at is None or each.ended_at > moment)
        ]
        start_s = latest_s + machine.time_to_serve(others, moment)
        own_s = machine.num_prefill_steps(record) * machine.longest_step_s
        found.append(Bound(start_s, start_s + own_s))
    return found


def started_s(record: RequestRecord) -> float | None:
    """Return how long a request waited until it first ran."""
    return record.queued_s


def first_token_s(record: RequestRecord) -> float | None:
    """Return how long a request waited for its first token."""
    return record.ttft_s


def waited_s(record: RequestRecord, end_s: float, of: Wait = started_s) -> float:
    """Return how long a request waited for something, if only until the end."""
    waited = of(record)
    return end_s - record.arrival.at_s if waited is None else waited


@dataclass(frozen=True, slots=True)
class Parts:
    """The longest waits, each as a part of that request's bound."""

    start: float
    first_token: float


def largest_parts(
    records: Sequence[RequestRecord], result: SimulationResult, handicap_s: float, machine: Machine
) -> Parts:
    """Return how much of their bounds the records used up, at most."""
    found = bounds(records, result, handicap_s, machine)
    pairs = list(zip(records, found, strict=True))
    end_s = result.end_s
    return Parts(
        max(waited_s(each, end_s, started_s) / bound.start_s for each, bound in pairs),
        max(waited_s(each, end_s, first_token_s) / bound.first_token_s for each, bound in pairs),
    )


def longest_jump_s(records: Sequence[RequestRecord]) -> float:
    """Return by how much later a request came, at most, than one that it started before."""
    groups: dict[float, list[float]] = {}  # by their start, when they came
    for each in records:
        start = math.inf if each.started_at is None else each.started_at
        groups.setdefault(start, []).append(came_at(each))
    longest, earliest = 0.0, math.inf  # of those that started later
    for start in sorted(groups, reverse=True):
        longest = max(longest, max(groups[start]) - earliest)
        earliest = min(earliest, *groups[start], math.inf)
    return longest


def came_at(record: RequestRecord) -> float:
    """Return when the scheduler got the request, which is when it begins to count."""
    return record.arrival.at_s if record.submitted_at is None else record.submitted_at
