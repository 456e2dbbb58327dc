"""The blocks of sequences: which they share, own, are owed, and have swapped out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from itertools import chain
from typing import NamedTuple

from headway.core.accounts import ClassAccount
from headway.core.blocks import BlockPool
from headway.core.lifecycle import State
from headway.core.limits import Batching, SchedulerLimits
from headway.core.plan import BlockMove
from headway.core.prefix import KeyChain, PrefixCache
from headway.core.sequence import NEVER, LiveRequest, Sequence
from headway.core.swap import SwapSpace


class Kept(NamedTuple):
    """KV of a waiting sequence that need not be computed again.

    ``block_ids`` are whole blocks to share; of ``partial_block``, to be copied, the first
    ``num_partial`` positions count. Or, with neither, all that was swapped out.
    """

    num_positions: int
    block_ids: tuple[int, ...] = ()
    partial_block: int | None = None
    num_partial: int = 0

    def without_partial(self) -> Kept:
        """Return the whole blocks alone."""
        return Kept(self.num_positions - self.num_partial, self.block_ids)


class Memory:
    """Block pool, prefix cache and swap space, and what of them is free for whom.

    Guards: what is reserved for classes is always free, or theirs; all promises together are never
    more than the rest of the pool.
    """

    def __init__(self, limits: SchedulerLimits, accounts: Collection[ClassAccount]) -> None:
        self.pool = BlockPool(limits.num_blocks, limits.block_size)
        self.cache = PrefixCache(self.pool) if limits.enable_prefix_sharing else None
        self.swap = SwapSpace(limits.num_swap_blocks)
        self.block_size = limits.block_size
        self._limits = limits
        self.has_shares = any(a.max_total_blocks < limits.num_blocks for a in accounts)
        self._reserving = tuple(a for a in accounts if a.has_reservation)
        self.num_promised = 0  # blocks: what promised sequences hold or can ever need
        self._num_promisable = limits.num_blocks - sum(
            a.settings.reserved_blocks for a in self._reserving
        )
        self._num_best_effort_promised = 0  # sequences
        self.num_cached_tokens = 0
        self.num_swapped_out = 0
        self.num_swapped_in = 0

    # ---------------------------------------------------------------- how much is free

    def available_to(self, sequence: Sequence) -> int:
        """Return how many free blocks the sequence may take."""
        free = self.pool.num_free
        for account in self._reserving:
            if account is not sequence.account:
                free -= account.num_unused_blocks
        return free

    @property
    def num_unreserved(self) -> int:
        """Free blocks that anybody may take."""
        free = self.pool.num_free
        for account in self._reserving:
            free -= account.num_unused_blocks
        return free

    def num_blocks_of(self, account: ClassAccount) -> int:
        """Return how many blocks the class holds; the only class there is holds all that are."""
        if account.counts_blocks:
            return account.num_blocks
        return self.pool.num_blocks - self.pool.num_free

    def num_missing(self, sequence: Sequence, num_positions: int) -> int:
        """Return how many blocks the sequence lacks for that many positions."""
        return max(self.pool.blocks_for(num_positions) - len(sequence.block_ids), 0)

    def num_owed(self, prefilling: Iterable[Sequence], account: ClassAccount) -> int:
        """Return the blocks that partly computed sequences lack for the tokens they have.

        Only those count that take blocks from the same ones as the class: reserved or not.
        """
        mine = account if account.has_reservation else None
        return sum(
            self.num_missing(s, s.num_known_positions)
            for s in prefilling
            if (s.account if s.account.has_reservation else None) is mine
        )

    def fits(
        self,
        sequence: Sequence,
        kept: Kept,
        num_owed: int,
        *,
        is_alone: bool,
        leaving: Collection[Sequence] = (),
    ) -> bool:
        """Whether the whole sequence can be let in, what others are owed included.

        Sequences that were started only in part could otherwise block each other, or be preempted
        before they made progress. Alone, a sequence may use the last block. ``leaving`` asks
        whether it could if these gave up their blocks.
        """
        if not self.can_promise(sequence):
            return False
        free = self.available_to(sequence) - num_owed
        if not is_alone and not sequence.account.has_reservation:
            free -= self._limits.watermark_blocks
        has_copy = kept.partial_block is not None
        needed = self.pool.blocks_for(sequence.num_known_positions) + has_copy
        num_leaving = sum(len(s.block_ids) for s in leaving)
        if needed - len(kept.block_ids) > free + num_leaving:  # as good as it can be
            return False
        # shared ones that stay in use by others are not taken from the free ones
        if not leaving:
            return needed - self.pool.num_held(kept.block_ids) <= free
        held, count = Counter([b for s in leaving for b in s.block_ids]), self.pool.reference_count
        free += sum(count(block_id) == number for block_id, number in held.items())
        num_shared = sum(count(block_id) > held[block_id] for block_id in kept.block_ids)
        return needed - num_shared <= free

    def is_within_share(
        self,
        sequence: Sequence,
        kept: Kept,
        prefilling: Iterable[Sequence],
        leaving: Iterable[Sequence] = (),
    ) -> bool:
        """Whether the class may hold this sequence's blocks too; one sequence may always run."""
        account = sequence.account
        if account.max_total_blocks >= self.pool.num_blocks:
            return True
        own = [s for s in leaving if s.account is account]
        if account.num_running == len(own):
            return True
        num_owed = self.num_owed([s for s in prefilling if s.account is account], account)
        staying = account.blocks_without(own)
        num_known = self.pool.blocks_for(sequence.num_known_positions)
        num_new = num_known - sum(b in staying for b in kept.block_ids)
        if len(staying) + num_new + num_owed > account.max_total_blocks:
            return False
        num_promised = account.num_promised + self.pool.blocks_for(sequence.max_positions)
        return not self._shall_promise(sequence) or num_promised <= account.max_total_blocks

    def num_own_positions(self, sequence: Sequence) -> int:
        """Return the scheduled positions in blocks that nobody else holds: lost if it leaves."""
        if self.cache is None:
            return sequence.num_scheduled_tokens
        num_shared = self.pool.num_shared(sequence.block_ids)
        return max(sequence.num_scheduled_tokens - num_shared * self.block_size, 0)

    def exceeds_share(self, sequence: Sequence, num_blocks: int) -> bool:
        """Whether a running sequence may not grow by so many blocks, since its class may not."""
        account = sequence.account
        if not account.counts_blocks or account.num_running <= 1:
            return False
        return num_blocks > account.num_share_blocks

    def _shall_promise(self, sequence: Sequence) -> bool:
        """Whether it starts only with the promise of all blocks that it can ever need.

        A static batch can't preempt, and who was preempted often enough shall not be again. The
        blocks of a class with reserved capacity are set aside for it in any case.
        """
        limits = self._limits
        if sequence.account.has_reservation:
            return False
        is_static = limits.batching is Batching.STATIC
        return is_static or sequence.num_preemptions >= limits.max_preemptions

    def must_wait_for_promise(self, sequence: Sequence) -> bool:
        """Whether a best-effort sequence needs the promise that another one has.

        Only one at a time has it: together they would be what nobody can preempt.
        """
        if not sequence.account.settings.best_effort or not self._shall_promise(sequence):
            return False
        return self._limits.batching is not Batching.STATIC and self._num_best_effort_promised > 0

    def can_promise(self, sequence: Sequence) -> bool:
        """Whether the promise that it needs, if any, can be kept together with the others.

        Until they are needed others may use the blocks, since they give them back: all promises
        together are never more than the pool has.
        """
        if not self._shall_promise(sequence):
            return True
        num_blocks = self.pool.blocks_for(sequence.max_positions)
        return self.num_promised + num_blocks <= self._num_promisable

    def _promise(self, sequence: Sequence, sign: int) -> None:
        num_blocks = sign * self.pool.blocks_for(sequence.max_positions)
        self.num_promised += num_blocks
        sequence.account.num_promised += num_blocks
        self._num_best_effort_promised += sign * sequence.account.settings.best_effort

    # ---------------------------------------------------------------- what is there already

    def make_chain(self, live: LiveRequest) -> None:
        """Prepare the names of a new request's blocks."""
        if self.cache is None:
            return
        request, account = live.request, live.account
        first = live.sequences[0]
        # what stands in reserved blocks is shared with nobody else, or they would not come free
        domain = f"class {account.settings.name}\0" if account.has_reservation else "\0"
        first.chain = KeyChain(
            domain + request.cache_salt,
            self.block_size,
            request.prompt_token_ids,
            first.output_token_ids,
            request.prompt_hashes,
        )
        if first.chain.num_prompt_blocks:  # hash the prompt now: planning a step is urgent
            first.chain.key(first.chain.num_prompt_blocks - 1)
        for sequence in live.sequences[1:]:
            sequence.chain = first.chain.fork(sequence.output_token_ids)

    def kept_for(self, sequence: Sequence, leaving: Collection[Sequence] = ()) -> Kept:
        """Find the KV that a waiting sequence can begin with; one position is left to compute.

        It can't branch off a sequence that is ``leaving``.
        """
        if sequence.swap_block_ids:
            return Kept(sequence.num_scheduled_tokens)
        most = sequence.num_known_positions - 1
        if self.cache is None or sequence.chain is None or most == 0:
            return _NOTHING
        if self._can_fork(sequence) and sequence.parent.sequences[0] not in leaving:
            return self._fork(sequence.parent.sequences[0], most)
        if sequence.index == 0 and sequence.parent.request.sampling.prompt_logprobs is not None:
            return _NOTHING  # scores come with the computation of each position
        match = self.cache.match(sequence.chain, most)
        sequence.matched = len(match.block_ids), self.cache.num_registered
        num_positions = len(match.block_ids) * self.block_size + match.num_partial
        return Kept(num_positions, match.block_ids, match.partial_block, match.num_partial)

    def num_new_blocks(self, sequence: Sequence) -> int:
        """Return how many blocks a waiting sequence takes from the free ones, or fewer than that.

        What it found in the cache when last looked for can have grown by a block for each that
        became known since.
        """
        num_known = min(sequence.num_tokens, sequence.max_positions)
        needed = -(-num_known // self.block_size)
        if self.cache is None or sequence.chain is None:
            return needed
        if sequence.parent.request.n > 1:
            return 0
        num_matched, num_registered = sequence.matched
        return needed - num_matched - (self.cache.num_registered - num_registered)

    def _can_fork(self, sequence: Sequence) -> bool:
        """Whether it is new, and the first sequence of its request has the whole prompt.

        That must stand in blocks already, and not be swapped in by the very same plan.
        """
        first = sequence.parent.sequences[0]
        return (
            sequence.num_tokens == sequence.num_prompt_tokens
            and first is not sequence
            and first.state is State.RUNNING
            and first.num_computed_tokens >= sequence.num_prompt_tokens
            and first.num_blocks_sent > 0
        )

    def _fork(self, source: Sequence, num_positions: int) -> Kept:
        """Branch off a running sequence with the same prompt."""
        num_whole, num_partial = divmod(num_positions, self.block_size)
        partial_block = source.block_ids[num_whole] if num_partial else None
        return Kept(num_positions, tuple(source.block_ids[:num_whole]), partial_block, num_partial)

    # ---------------------------------------------------------------- moves

    def begin(self, sequence: Sequence, kept: Kept, num_positions: int) -> list[BlockMove]:
        """Give a starting sequence what is kept, and blocks up to ``num_positions``.

        Returns the copies that this takes (copy-on-write).
        """
        account = sequence.account
        for block_id in kept.block_ids:
            self.pool.hold(block_id)
        sequence.block_ids = list(kept.block_ids)
        account.take_blocks(kept.block_ids)
        if self._shall_promise(sequence):
            sequence.is_promised = True
            self._promise(sequence, 1)
        copies: list[BlockMove] = []
        if kept.partial_block is not None:
            self.pool.hold(kept.partial_block)  # or it could be allocated just now
        self.extend(sequence, num_positions)
        if kept.partial_block is not None:
            copies.append(BlockMove(kept.partial_block, sequence.block_ids[len(kept.block_ids)]))
            self.pool.release((kept.partial_block,))
        sequence.num_scheduled_tokens = sequence.num_computed_tokens = kept.num_positions
        if sequence.chain is not None:
            sequence.register_at = (len(kept.block_ids) + 1) * self.block_size
        return copies

    def extend(self, sequence: Sequence, num_positions: int) -> None:
        """Allocate what is missing for that many positions."""
        count = self.num_missing(sequence, num_positions)
        if count:
            taken = self.pool.allocate(count)
            sequence.block_ids += taken
            sequence.account.take_blocks(taken)
        num_held = len(sequence.block_ids) * self.block_size
        sequence.num_held_positions = min(num_held, sequence.max_positions)

    def extend_all(self, sequences: list[Sequence]) -> bool:
        """Give each sequence one more block, if there are enough for all of them."""
        if len(sequences) > self.num_unreserved or not self._are_within_shares(sequences):
            return False
        taken = self.pool.allocate(len(sequences))
        for sequence, block_id in zip(sequences, taken, strict=True):
            self._extend_by(sequence, block_id)
        return True

    def extend_in_order(self, steps: list[list[Sequence]]) -> bool:
        """Do as ``extend_all`` would for each of several steps, one after the other."""
        num_blocks = sum(map(len, steps))
        if self.has_shares or num_blocks > min(self.pool.num_plain, self.num_unreserved):
            return all(map(self.extend_all, steps))
        taken = self.pool.allocate(num_blocks)
        for sequence, block_id in zip(chain.from_iterable(steps), taken, strict=True):
            self._extend_by(sequence, block_id)
        return True

    def _extend_by(self, sequence: Sequence, block_id: int) -> None:
        sequence.block_ids.append(block_id)
        sequence.account.take_blocks((block_id,))
        num_held = sequence.num_held_positions + self.block_size
        sequence.num_held_positions = min(num_held, sequence.max_positions)

    def _are_within_shares(self, sequences: list[Sequence]) -> bool:
        if not self.has_shares:
            return True
        accounts = Counter([s.account for s in sequences])
        return all(number <= a.num_share_blocks for a, number in accounts.items())

    def release(self, sequence: Sequence) -> None:
        """Give up all blocks of the pool."""
        account = sequence.account
        if sequence.is_promised:
            self._promise(sequence, -1)
            sequence.is_promised = False
        account.give_blocks(sequence.block_ids)
        self.pool.release(sequence.block_ids)
        sequence.block_ids = []
        sequence.num_held_positions = 0
        sequence.num_blocks_sent = 0
        sequence.register_at = NEVER

    def forget(self, sequence: Sequence) -> None:
        """Give up everything, the swap space included; every position is to be computed again."""
        self.release(sequence)
        self.swap.release(sequence.swap_block_ids)
        sequence.swap_block_ids = []
        sequence.num_scheduled_tokens = 0
        sequence.num_computed_tokens = 0

    def swap_out(self, sequence: Sequence, swap_block_ids: list[int]) -> list[BlockMove]:
        """Move a sequence to the swap space; its positions stay computed."""
        moves = list(map(BlockMove, sequence.block_ids, swap_block_ids))
        self.release(sequence)
        sequence.swap_block_ids = swap_block_ids
        self.num_swapped_out += len(moves)
        return moves

    def swap_in(self, sequence: Sequence, num_positions: int) -> list[BlockMove]:
        """Allocate blocks for a swapped sequence; the caller releases the swap blocks later."""
        num_kept = sequence.num_scheduled_tokens
        num_computed = sequence.num_computed_tokens
        self.begin(sequence, Kept(num_kept), num_positions)
        sequence.num_computed_tokens = num_computed
        if sequence.chain is not None:
            sequence.register_at = self.block_size
        moves = list(map(BlockMove, sequence.swap_block_ids, sequence.block_ids))
        sequence.swap_block_ids = []
        self.num_swapped_in += len(moves)
        return moves

    def register(self, sequence: Sequence) -> None:
        """Let others share the blocks that are complete and applied."""
        cache, chain = self.cache, sequence.chain
        if cache is None or chain is None:
            return
        first = sequence.register_at // self.block_size - 1
        last = sequence.num_computed_tokens // self.block_size
        if first < last:
            end = cache.register(chain, first, sequence.block_ids[first:last])
            # without text there is no name from some block on
            sequence.register_at = (end + 1) * self.block_size if end == last else NEVER


_NOTHING = Kept(0)
