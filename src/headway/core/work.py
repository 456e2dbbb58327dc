"""All mutable state of a scheduler; each live sequence is in exactly one container."""

from __future__ import annotations

from dataclasses import dataclass, field

from headway.core.accounts import ClassAccount
from headway.core.commit import InFlightStep
from headway.core.events import Event
from headway.core.lockstep import Lockstep
from headway.core.memory import Memory
from headway.core.plan import BlockMove, RequestId, SequenceId
from headway.core.sequence import LiveRequest, Sequence


@dataclass(slots=True)
class Counters:
    """How many requests came and how each ended; how often work moved."""

    submitted: int = 0
    finished: int = 0
    failed: int = 0
    cancelled: int = 0
    expired: int = 0
    rejected: int = 0
    preemptions: int = 0
    resumed: int = 0
    steps: int = 0
    turns: int = 0  # calls of ``schedule``


@dataclass(slots=True)
class Work:
    """Containers, memory, accounts, and what waits to be told.

    A running sequence is in ``running`` and in one of ``prefilling`` and ``decoding``: decoding
    sequences lack one token at most, which the plan in flight may be sampling.
    """

    memory: Memory
    accounts: dict[str, ClassAccount]
    running: dict[SequenceId, Sequence] = field(default_factory=dict)  # in order of admission
    prefilling: dict[SequenceId, Sequence] = field(default_factory=dict)
    decoding: dict[SequenceId, Sequence] = field(default_factory=dict)
    requests: dict[RequestId, LiveRequest] = field(default_factory=dict)
    in_flight: dict[int, InFlightStep] = field(default_factory=dict)
    #: slots of a static batch whose sequences have ended
    num_ghosts: int = 0
    last_account: ClassAccount | None = None  # whose work left its queue last
    num_waiting: int = 0  # requests of which nothing has run
    num_decoded: int = 0  # sequences that began to decode, ever
    num_preempted: int = 0  # sequences that wait to resume
    counters: Counters = field(default_factory=Counters)
    #: for the next plan, or the return of the call that is being served
    events: list[Event] = field(default_factory=list)
    released: list[SequenceId] = field(default_factory=list)
    swap_out: list[BlockMove] = field(default_factory=list)
    swapped: list[Sequence] = field(default_factory=list)  # that these moves are of
    #: those of the decoding ones that wait to be brought up to date
    lockstep: Lockstep = field(init=False)

    def __post_init__(self) -> None:
        self.lockstep = Lockstep(self.memory)

    def enter(self, sequence: Sequence) -> None:
        """Give a sequence a slot."""
        self.running[sequence.sequence_id] = sequence
        self.prefilling[sequence.sequence_id] = sequence
        sequence.account.num_running += 1
        for lender in sequence.lenders:
            lender.borrowers[sequence.sequence_id] = sequence

    def to_decoding(self, sequence: Sequence) -> None:
        """From here on the sequence lacks one token a step."""
        if self.prefilling.pop(sequence.sequence_id, None) is not None:
            self.decoding[sequence.sequence_id] = sequence
            self.num_decoded += 1
            sequence.place = self.num_decoded
            sequence.account.num_decoding += 1

    def leave(self, sequence: Sequence) -> None:
        """Take a sequence off its slot."""
        if self.lockstep.members:
            self.lockstep.leave(sequence)
        del self.running[sequence.sequence_id]
        for lender in sequence.lenders:
            del lender.borrowers[sequence.sequence_id]
        account = sequence.account
        account.num_running -= 1
        if self.decoding.pop(sequence.sequence_id, None) is None:
            del self.prefilling[sequence.sequence_id]
        else:
            account.num_decoding -= 1

    def take_events(self) -> tuple[Event, ...]:
        """Return what happened since the last call."""
        events, self.events = tuple(self.events), []
        return events
