"""Takes a running sequence off its slot, and decides what becomes of its KV."""

from __future__ import annotations

from typing import NamedTuple

from headway.core.costs import LearnedCosts
from headway.core.draft import StepDraft
from headway.core.events import Preempted, PreemptionCause, PreemptionMode
from headway.core.lifecycle import Move
from headway.core.limits import PreemptionChoice, SchedulerLimits
from headway.core.sequence import Sequence
from headway.core.work import Work


class _Choice(NamedTuple):
    mode: PreemptionMode
    why: str


class Preemption:
    """Preempts by recompute or by swap."""

    def __init__(self, work: Work, limits: SchedulerLimits, costs: LearnedCosts) -> None:
        self._work = work
        self._limits = limits
        self._costs = costs

    def preempt(
        self, draft: StepDraft, victim: Sequence, cause: PreemptionCause, now: float
    ) -> None:
        """Take a sequence off its slot and blocks; it keeps its place and its tokens."""
        work = self._work
        draft.withdraw(victim)
        work.leave(victim)
        victim.num_preemptions += 1
        victim.lenders = ()
        victim.turn = draft.turn  # so that it does not come back in this very step
        num_blocks = work.memory.pool.blocks_for(victim.num_scheduled_tokens)
        choice = self._choose(victim, num_blocks)
        work.memory.register(victim)  # while they stay in the cache its blocks are not lost
        num_lost = min(victim.num_computed_tokens, work.memory.num_own_positions(victim))
        if choice.mode is PreemptionMode.SWAP:
            swap_block_ids = work.memory.swap.allocate(num_blocks) or []
            work.swap_out += work.memory.swap_out(victim, swap_block_ids)
            work.swapped.append(victim)
            num_lost = 0
        else:
            work.memory.forget(victim)
            num_blocks = 0
            for step in work.in_flight.values():
                step.stale.add(victim.sequence_id)
        victim.move(Move.PREEMPT, now)
        victim.account.queue.push(victim)
        work.num_preempted += 1
        work.counters.preemptions += 1
        work.events.append(
            Preempted(
                victim.request_id,
                victim.index,
                num_lost,
                choice.mode,
                cause,
                num_blocks,
                choice.why,
            )
        )

    def _choose(self, victim: Sequence, num_blocks: int) -> _Choice:
        limits, swap = self._limits, self._work.memory.swap
        if limits.preemption_mode is PreemptionChoice.RECOMPUTE:
            return _Choice(PreemptionMode.RECOMPUTE, "preemption_mode = recompute")
        if num_blocks == 0:
            return _Choice(PreemptionMode.RECOMPUTE, "nothing was computed yet")
        if num_blocks > swap.num_free:
            why = f"the swap space has {swap.num_free} blocks free, and {num_blocks} are needed"
            return _Choice(PreemptionMode.RECOMPUTE, why)
        if limits.preemption_mode is PreemptionChoice.SWAP:
            return _Choice(PreemptionMode.SWAP, "preemption_mode = swap")
        return self._cheaper(victim, num_blocks)

    def _cheaper(self, victim: Sequence, num_blocks: int) -> _Choice:
        costs = self._costs.costs
        num_lost = self._work.memory.num_own_positions(victim)  # the others stay where they are
        recompute_s = costs.prefill_token_s * num_lost
        swap_s = 2 * costs.swap_block_s * num_blocks
        prices = f"recompute {recompute_s * 1e3:.3g} ms, swap {swap_s * 1e3:.3g} ms"
        if swap_s < recompute_s:
            return _Choice(PreemptionMode.SWAP, f"swap is cheaper: {prices}")
        return _Choice(PreemptionMode.RECOMPUTE, f"recompute is cheaper: {prices}")
