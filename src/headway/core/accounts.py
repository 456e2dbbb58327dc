"""What the scheduler counts for each service class, and for each tenant inside it.

Service is counted as by Sheng et al., "Fairness in Serving Large Language Models" (OSDI 2024): a
virtual counter of tokens served, weighted, that is lifted when work comes after idleness, so that
nobody saves up a claim by being away.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING

from headway.core.classes import ServiceClass

if TYPE_CHECKING:
    from headway.core.hold import Hold
    from headway.core.queues import Queue
    from headway.core.sequence import Sequence


class Service:
    """A virtual counter of tokens served, in tokens divided by the weight."""

    __slots__ = ("_input_cost", "_lift", "_output_cost", "num_input_tokens", "num_output_tokens")

    def __init__(self, input_cost: float, output_cost: float, weight: float) -> None:
        self._input_cost = input_cost / weight
        self._output_cost = output_cost / weight
        self._lift = 0.0
        self.num_input_tokens = 0
        self.num_output_tokens = 0

    @property
    def virtual(self) -> float:
        """The counter; who has less goes first."""
        return (
            self._lift
            + self._input_cost * self.num_input_tokens
            + self._output_cost * self.num_output_tokens
        )

    def lift_to(self, floor: float) -> None:
        """Raise the counter to at least ``floor``."""
        self._lift += max(floor - self.virtual, 0.0)


class Flow:
    """One tenant inside one class."""

    __slots__ = ("last_start", "num_live", "number", "service", "tenant")

    def __init__(self, tenant: str, service: Service, number: int) -> None:
        self.tenant = tenant
        self.service = service
        self.number = number  # no two have the same; the first to come has the smallest
        self.last_start = 0  # when work of it started last, counted in starts of the class
        self.num_live = 0  # requests


class ClassAccount:
    """One class: its settings, its queue, and what it holds."""

    __slots__ = (
        "_holders",
        "counts_blocks",
        "flows",
        "has_reservation",
        "has_share_full",
        "hold",
        "max_running",
        "max_step_tokens",
        "max_total_blocks",
        "min_running",
        "num_decoding",
        "num_life_blocks",
        "num_live_sequences",
        "num_promised",
        "num_running",
        "num_waiting_sequences",
        "num_waiting_tokens",
        "queue",
        "service",
        "settings",
    )

    def __init__(
        self,
        settings: ServiceClass,
        queue: Queue,
        hold: Hold,
        service: Service,
        *,
        max_num_seqs: int,
        max_num_batched_tokens: int,
        num_blocks: int,
        is_alone: bool,
    ) -> None:
        self.settings = settings
        #: whether slots and blocks are set aside for the class
        self.has_reservation = settings.reserved_slots > 0
        self.queue = queue
        self.hold = hold
        self.service = service
        self.flows: dict[str, Flow] = {}
        share = settings.max_running_share
        self.max_running = max(_floor(share * max_num_seqs), 1)
        self.min_running = min(settings.num_guaranteed(max_num_seqs), self.max_running)
        self.max_step_tokens = max(_floor(share * max_num_batched_tokens), 1)
        self.max_total_blocks = _floor(share * num_blocks)
        if settings.reserved_slots:
            self.max_running = min(self.max_running, settings.reserved_slots)
        #: whether its first sequence found in this step that the class may hold no more blocks
        self.has_share_full = False
        self.num_running = 0
        self.num_decoding = 0
        #: whether it is counted which blocks are held by the class, and not by others
        self.counts_blocks = (
            not is_alone or self.has_reservation or self.max_total_blocks < num_blocks
        )
        self._holders: dict[int, int] = {}  # by block: how many of its sequences hold it
        self.num_promised = 0  # blocks: what its promised sequences hold or can ever need
        #: waiting for the first time, parked ones included
        self.num_waiting_sequences = 0
        self.num_waiting_tokens = 0
        #: of live sequences, and the blocks that these can need at most
        self.num_live_sequences = 0
        self.num_life_blocks = 0

    @property
    def num_unused_slots(self) -> int:
        """Slots that nobody else may take: reserved, or due to its minimum share."""
        if self.has_share_full:
            return 0
        due = self.settings.reserved_slots
        if self.min_running:
            due = max(due, min(self.min_running, self.num_running + len(self.queue)))
        return due - self.num_running

    @property
    def num_unused_blocks(self) -> int:
        """Reserved blocks that it does not hold."""
        return max(self.settings.reserved_blocks - self.num_blocks, 0)

    @property
    def num_blocks(self) -> int:
        """Blocks that its sequences hold, where they are counted; a shared one counts once."""
        return len(self._holders)

    def blocks_without(self, leaving: Collection[Sequence]) -> Collection[int]:
        """Return the blocks that it would hold if these sequences of it gave up theirs."""
        if not leaving:
            return self._holders.keys()
        held = Counter(block_id for s in leaving for block_id in s.block_ids)
        return {block_id for block_id, count in self._holders.items() if count > held[block_id]}

    def take_blocks(self, block_ids: Iterable[int]) -> None:
        """Note that one of its sequences holds these blocks."""
        if not self.counts_blocks:
            return
        holders = self._holders
        for block_id in block_ids:
            holders[block_id] = holders.get(block_id, 0) + 1

    def give_blocks(self, block_ids: Iterable[int]) -> None:
        """Note that one of its sequences gave these blocks up."""
        if not self.counts_blocks:
            return
        holders = self._holders
        for block_id in block_ids:
            if holders[block_id] == 1:
                del holders[block_id]
            else:
                holders[block_id] -= 1

    @property
    def num_share_blocks(self) -> int:
        """Blocks that it may still take without exceeding its largest share."""
        return self.max_total_blocks - self.num_blocks

    @property
    def is_below_minimum(self) -> bool:
        """Whether it has work and less than its minimum share of the slots."""
        if self.num_running >= self.min_running or self.has_share_full:
            return False
        return len(self.queue) > 0


def _floor(number: float) -> int:
    """Round down; 57.99999999999999, as 0.58 * 100 gives, is 58."""
    return int(round(number, 9))
