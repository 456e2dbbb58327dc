"""Decoding sequences that get a token in every step, so that nobody need look at each of them.

Most steps give most sequences one token more, and that is all that happens to them. Whoever knows
their tokens in advance, as a simulator does, may have them join the lockstep: from then on they
share one count of steps, and what is their own waits until they leave: counters, and the tokens.
Blocks don't wait: a calendar has who needs one in which step, and another one who ends.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from heapq import heappop, heappush
from typing import NamedTuple, Protocol

from headway.core.accounts import ClassAccount, Service
from headway.core.memory import Memory
from headway.core.plan import RequestId, SequenceId
from headway.core.sequence import Sequence
from headway.errors import InvariantError


class Source(Protocol):
    """Who knows in advance what sequences will draw."""

    def num_left(self, sequence_id: SequenceId) -> int:
        """Return with how many tokens it draws a stop token; 0 if that isn't known."""
        ...

    def draw(self, sequence_id: SequenceId, count: int) -> list[int]:
        """Draw the next tokens of a sequence."""
        ...


class CaughtUp(NamedTuple):
    """A sequence got a token in each of the steps from ``first`` to ``end - 1``."""

    request_id: RequestId
    first: int
    end: int


class _Entry(NamedTuple):
    """A sequence in a calendar; it is dead when the sequence has left since."""

    place: int
    number: int  # so that no two are equal
    sequence: Sequence
    joined_at: int  # counted in steps of the lockstep
    origin: int  # in step ``n`` of the lockstep it computes position ``origin + n``


class Lockstep:
    """The sequences that are in it, and how far they are.

    Guards: members decode, and nobody looks at their counters but through this class.

    Attributes:
        members: each with its entry in the calendars.
        num_steps: so many steps were taken, ever.
        caught_up: what those got that left, until somebody takes it from here.
        charges_tenants: whether it is counted what each tenant gets.
    """

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self.members: dict[Sequence, _Entry] = {}
        self.num_steps = 0
        self.caught_up: list[CaughtUp] = []
        self.charges_tenants = False
        self.source: Source | None = None
        self._num_joined = 0
        self._context = 0  # positions over which the next step attends
        self._origins: tuple[int, int] | None = None  # the greatest and the least, if known
        self._due: dict[int, list[_Entry]] = {}  # by step: who needs a block in it
        self._tenants: Counter[Service] = Counter()  # members of each, where that counts
        self._ends: list[tuple[int, _Entry]] = []  # a heap: after how many steps somebody ends

    # ---------------------------------------------------------------- who is in it

    def join(self, decoding: Collection[Sequence]) -> bool:
        """Let all who decode be members; False if of one it isn't known how it goes on."""
        members = self.members
        if len(members) == len(decoding):
            return True
        return all(self._enter(s) for s in decoding if s not in members)

    def leave(self, sequence: Sequence) -> None:
        """Bring a sequence up to date, if it is a member; it is none any more."""
        entry = self.members.pop(sequence, None)
        if entry is None:
            return
        count = self.num_steps - entry.joined_at
        self._context -= entry.origin + self.num_steps + 1
        if entry.origin in (self._origins or ()):
            self._origins = None
        if self.charges_tenants:
            self._tenants[sequence.service] -= 1
        if count:
            self._catch_up(sequence, count)
            self.caught_up.append(CaughtUp(sequence.request_id, entry.joined_at, self.num_steps))

    def settle(self) -> None:
        """Bring all up to date, and have no members."""
        for sequence in tuple(self.members):
            self.leave(sequence)
        self._due.clear()
        self._ends.clear()
        self._tenants.clear()

    def num_behind(self, sequence: Sequence) -> int:
        """Return how many positions a sequence is further than its counters say."""
        entry = self.members.get(sequence)
        return 0 if entry is None else self.num_steps - entry.joined_at

    # ---------------------------------------------------------------- the next steps

    def shape(self) -> tuple[int, int, int, int]:
        """Return of the next step: members, and over how many positions they attend.

        Those are the positions of all, of the longest, and of the shortest.
        """
        if not self.members:
            return 0, 0, 0, 0
        if self._origins is None:
            origins = [entry.origin for entry in self.members.values()]
            self._origins = max(origins), min(origins)
        longest, shortest = self._origins
        num_attended = self.num_steps + 1  # from the origin on: up to the one that is computed
        return (
            len(self.members),
            self._context,
            longest + num_attended,
            shortest + num_attended,
        )

    def next_end(self) -> int:
        """Return after how many steps the first member may end."""
        while not self._is_alive(self._ends[0][1]):
            heappop(self._ends)
        return self._ends[0][0] - self.num_steps

    def num_steps_with_blocks(self, most: int) -> int:
        """Return for how many steps there are blocks for all, or a number that is safe."""
        memory = self._memory
        num_free, block_size = memory.num_unreserved, memory.block_size
        if not memory.has_shares and num_free >= len(self.members) * -(-most // block_size):
            return most
        most = min(most, block_size)  # so nobody needs two
        taken: Counter[ClassAccount] = Counter()
        for ahead in range(most):
            due = self._due_in(self.num_steps + ahead)
            taken.update([entry.sequence.account for entry in due])
            if due and (taken.total() > num_free or self._exceed_shares(taken)):
                return ahead
        return most

    # ---------------------------------------------------------------- steps

    def pass_due(self) -> list[Sequence]:
        """Return who needs a block for the next step, in order; each is to get it, or to leave."""
        return [entry.sequence for entry in self._pass_due(self.num_steps)]

    def grow_for(self, num_steps: int) -> list[Sequence]:
        """Give blocks in the order of the steps that need them; return who got any, in order.

        Raises:
            InvariantError: there are too few.
        """
        steps = [self._pass_due(step) for step in range(self.num_steps, self.num_steps + num_steps)]
        if not self._memory.extend_in_order(
            [[entry.sequence for entry in entries] for entries in steps if entries]
        ):
            raise InvariantError(f"no blocks are left for {num_steps} steps")
        grown = {entry.place: entry.sequence for entries in steps for entry in entries}
        return [grown[place] for place in sorted(grown)]

    def advance(self, num_steps: int) -> list[Sequence]:
        """Take steps, and return whose last token it may be, no members any more, in order.

        Raises:
            InvariantError: a sequence would have ended before the last of the steps.
        """
        if num_steps > self.next_end():
            raise InvariantError(f"a sequence ends before {num_steps} steps are over")
        self.num_steps += num_steps
        self._context += num_steps * len(self.members)
        for service, number in self._tenants.items():
            service.num_output_tokens += num_steps * number
        ended: list[Sequence] = []
        while self._ends and self._ends[0][0] <= self.num_steps:
            entry = heappop(self._ends)[1]
            if self._is_alive(entry):
                self.leave(entry.sequence)
                ended.append(entry.sequence)
        return ended

    # ---------------------------------------------------------------- parts

    def _enter(self, sequence: Sequence) -> bool:
        assert self.source is not None
        num_left = min(
            sequence.max_tokens - len(sequence.output_token_ids),
            self.source.num_left(sequence.sequence_id),
        )
        if num_left < 1:
            return False
        now = self.num_steps
        origin = sequence.num_scheduled_tokens - now
        self._num_joined += 1
        entry = _Entry(sequence.place, self._num_joined, sequence, now, origin)
        self.members[sequence] = entry
        heappush(self._ends, (now + num_left, entry))
        if sequence.num_held_positions < sequence.max_positions:
            self._due.setdefault(sequence.num_held_positions - origin, []).append(entry)
        if self.charges_tenants:
            self._tenants[sequence.service] += 1
        self._context += sequence.num_scheduled_tokens + 1
        if self._origins is not None:
            greatest, least = self._origins
            self._origins = max(greatest, origin), min(least, origin)
        return True

    def _catch_up(self, sequence: Sequence, count: int) -> None:
        assert self.source is not None
        drawn = self.source.draw(sequence.sequence_id, count)
        for stop in sequence.stop_token_ids:
            if stop in drawn and drawn.index(stop) < count - 1:
                raise InvariantError(f"sequence {sequence.sequence_id} stops between")
        sequence.output_token_ids += drawn
        sequence.num_tokens += count
        sequence.num_scheduled_tokens += count
        sequence.num_computed_tokens += count

    def _is_alive(self, entry: _Entry) -> bool:
        return self.members.get(entry.sequence) is entry

    def _due_in(self, step: int) -> list[_Entry]:
        """Return who needs a block in a step, in order."""
        due = self._due.get(step)
        return sorted(filter(self._is_alive, due)) if due else []

    def _pass_due(self, step: int) -> list[_Entry]:
        """Return who needs a block in a step, and enter when each needs the next one."""
        due, block_size = self._due_in(step), self._memory.block_size
        self._due.pop(step, None)
        for entry in due:
            if entry.origin + step + block_size < entry.sequence.max_positions:
                self._due.setdefault(step + block_size, []).append(entry)
        return due

    def _exceed_shares(self, taken: Counter[ClassAccount]) -> bool:
        if not self._memory.has_shares:
            return False
        return any(number > account.num_share_blocks for account, number in taken.items())
