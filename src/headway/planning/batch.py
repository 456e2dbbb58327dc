"""Step 2: the largest batch and the longest wait that keep the targets.

While n sequences decode, n / (mean answer) of them end in each step, and as many come in their
place, each with a prompt to compute. So a step of a full batch decodes n and computes
``n x mean prompt / mean answer`` tokens of prompts beside, or the queue grows. Its time is the time
between two tokens of everybody in it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil, inf

from headway.planning.demand import ClassDemand, Demand
from headway.planning.step_time import mixed_s
from headway.profiles.shape import Chunk, StepCost, StepShape

#: larger batches are not tried: no machine gains by them
MOST_SEQS = 1024
#: tokens of a step that no target bounds
MOST_TOKENS = 8192
#: budgets are multiples of this
_ROUND = 16
#: a step takes this share of the shortest target for the first token at most, where no other bounds
_STEP_SHARE = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class First:
    """What a class was promised for its first token.

    Attributes:
        limit_s: in seconds; infinite where nothing is promised.
        of: whose that is, in words.
        prompt: the 99th percentile of the prompts of that class, in tokens.
    """

    limit_s: float
    of: str
    prompt: float

    def prompt_s(self, room: int, full_s: float) -> float:
        """Return how long the prompt takes, in steps that are full and have so much room."""
        return ceil(self.prompt / room) * full_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """The tightest targets of all classes; infinite where nothing is promised. In seconds.

    Attributes:
        token_s: for each further token: the TPOT that is promised, or what the whole answer leaves.
        token_of: whose that is, in words.
        firsts: for the first token, of each class that was promised one: a later one with longer
            prompts may leave less. Of nobody if none was.
    """

    token_s: float
    token_of: str
    firsts: tuple[First, ...]

    @property
    def first_s(self) -> float:
        """The shortest target for the first token; infinite without one."""
        return min(each.limit_s for each in self.firsts)

    def tightest(self, room: int, full_s: float) -> First:
        """Return the class to which steps that are full leave the least time to wait."""
        return min(self.firsts, key=lambda each: each.limit_s - each.prompt_s(room, full_s))


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """A batch with its arithmetic. Times in seconds.

    Attributes:
        num_seqs: sequences that run at once.
        context: positions that each holds, but for 1 moment in 100.
        prefill_tokens: of prompts in a step, to keep pace with who leaves.
        decode_s: a step that only decodes.
        step_s: one that also keeps pace.
        budget: tokens in a step at most.
        full_s: a step with that many.
        first: the class that may wait least.
        prompt_s: to compute its prompt of the 99th percentile beside the others.
        wait_s: what is left of its target for waiting; infinite without one.
        tokens_per_s: output of a full batch.
    """

    num_seqs: int
    context: float
    prefill_tokens: float
    decode_s: float
    step_s: float
    budget: int
    full_s: float
    first: First
    prompt_s: float
    wait_s: float
    tokens_per_s: float


def bounds_of(cost: StepCost, demand: Demand) -> Bounds:
    """Return the tightest targets."""
    token_s, token_of = min(_token_targets(cost, demand), default=(inf, ""))
    firsts = [
        First(limit_s=limit_s, of=f"TTFT of {each.name}", prompt=each.prompt.p99)
        for each in demand.classes
        if (limit_s := _ttft(each)) is not None
    ]
    nobody = First(limit_s=inf, of="", prompt=demand.prompt.p99)
    return Bounds(token_s=token_s, token_of=token_of, firsts=tuple(firsts) or (nobody,))


def _ttft(each: ClassDemand) -> float | None:
    return None if each.targets is None else each.targets.ttft_s


def _token_targets(cost: StepCost, demand: Demand) -> list[tuple[float, str]]:
    found = []
    for each in demand.classes:
        if each.targets is None:
            continue
        if each.targets.tpot_s is not None:
            found.append((each.targets.tpot_s, f"TPOT of {each.name}"))
        if each.targets.e2el_s is not None:
            first_s = cost.seconds(StepShape((Chunk(0, round(each.prompt.p99)),)))
            left_s = max(each.targets.e2el_s - first_s, 0.0) / each.output.p99
            found.append((left_s, f"E2EL of {each.name}, a token"))
    return found


def largest_batch(
    cost: StepCost,
    demand: Demand,
    bounds: Bounds,
    most: int = MOST_SEQS,
    budget: int | None = None,
) -> Batch:
    """Return the largest batch that keeps the targets, of at least one sequence.

    Where not even one sequence beside a prompt leaves time to wait, the target for the first token
    says nothing of the batch, and only the other one counts. A batch whose prompts find no room in
    the given tokens of a step never fills, so it is not larger, only slower.

    Args:
        cost: of a step.
        demand: what comes.
        bounds: the targets.
        most: sequences at most.
        budget: tokens in a step at most, if that is not to be chosen.
    """

    def keeps(number: int) -> bool:
        found = batch_of(number, cost, demand, bounds, budget)
        longest_s = found.full_s if budget is None else found.step_s
        if found.prefill_tokens > found.budget - number:
            return False
        return longest_s <= bounds.token_s and (found.wait_s >= 0 or not can_wait)

    can_wait = batch_of(1, cost, demand, bounds, budget).wait_s >= 0
    most = most if budget is None else min(most, budget)
    return batch_of(_largest(keeps, most), cost, demand, bounds, budget)


def batch_of(
    number: int, cost: StepCost, demand: Demand, bounds: Bounds, budget: int | None = None
) -> Batch:
    """Return the arithmetic of a batch; ``budget`` is chosen unless it is given."""
    context = demand.contexts.of_many(number)
    prefill = number * demand.prompt.mean / demand.output.mean
    if budget is None:
        budget = _budget(number, context, prefill, cost, bounds)
    room = max(budget - number, 1)
    step_s = mixed_s(cost, number, context, min(prefill, room))
    full_s = mixed_s(cost, number, context, room)
    first = bounds.tightest(room, full_s)
    prompt_s = first.prompt_s(room, full_s)
    # a step that is full of prompts for ever doesn't keep pace: each answer takes as many more
    paced_s = step_s * max(prefill / room, 1.0)
    return Batch(
        num_seqs=number,
        context=context,
        prefill_tokens=prefill,
        decode_s=mixed_s(cost, number, context, 0),
        step_s=step_s,
        budget=budget,
        full_s=full_s,
        first=first,
        prompt_s=prompt_s,
        wait_s=first.limit_s - prompt_s - full_s,
        tokens_per_s=number / paced_s,
    )


def _budget(number: int, context: float, prefill: float, cost: StepCost, bounds: Bounds) -> int:
    """Return the most tokens of a step that keeps the targets however full it is.

    At least what keeps pace, even if that is too long.
    """
    least = _rounded_up(number + max(prefill, _ROUND))
    longest_s = min(bounds.token_s, _STEP_SHARE * bounds.first_s)

    def keeps(rounds: int) -> bool:
        return mixed_s(cost, number, context, rounds * _ROUND - number) <= longest_s

    most = max(MOST_TOKENS, least) // _ROUND
    first = least // _ROUND
    if most <= first or not keeps(first):
        return least
    return _ROUND * (first + _largest(lambda more: keeps(first + more), most - first, least=0))


def least_budget(number: int) -> int:
    """Return the fewest tokens of a step in which so many decode, and something is left."""
    return _rounded_up(number + _ROUND)


def _rounded_up(number: float) -> int:
    return _ROUND * ceil(number / _ROUND)


def _largest(keeps: Callable[[int], bool], most: int, least: int = 1) -> int:
    """Return the largest number that keeps, of those up to ``most``; ``least`` if none does."""
    low, high = least, most
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if keeps(middle) else (low, middle - 1)
    return low
