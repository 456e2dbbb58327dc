"""The mutable state of live work: a request and its sequences, as the scheduler sees them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headway.core.lifecycle import LIVE, Move, State, after
from headway.core.plan import SequenceId
from headway.core.request import Request

if TYPE_CHECKING:
    from headway.core.accounts import ClassAccount, Flow
    from headway.core.prefix import KeyChain

NEVER = 1 << 62
"""A position that no sequence reaches."""


class LiveRequest:
    """A request between its admission and its terminal event.

    ``request`` is as its class lets it run: output length clamped, deadlines filled in.
    """

    __slots__ = (
        "account",
        "num_live_sequences",
        "parked",
        "request",
        "sequences",
        "state",
        "story",
        "submitted_at",
    )

    def __init__(
        self, request: Request, account: ClassAccount, flow: Flow, first_id: int, now: float
    ) -> None:
        self.request = request
        self.account = account
        self.submitted_at = now
        self.state = State.WAITING
        #: what happened, for error messages: (time, sequence index or None, move)
        self.story: list[tuple[float, int | None, str]] = [(now, None, "submit")]
        self.sequences = tuple(
            Sequence(self, flow, SequenceId(first_id + index), index) for index in range(request.n)
        )
        self.num_live_sequences = request.n
        #: sequences that wait for the prompt of the first, to share its blocks
        self.parked: list[Sequence] = []

    def move(self, move: Move, now: float) -> None:
        """Follow the transition table."""
        self.state = after(self.state, move)
        self.story.append((now, None, move))

    @property
    def is_live(self) -> bool:
        """Whether no terminal event was sent."""
        return self.state in LIVE


class Sequence:
    """One line of tokens with its own KV.

    There are no phases: a step computes positions from ``num_scheduled_tokens`` towards
    ``num_tokens``, be it prompt, recomputation after preemption, or the latest output token.
    ``num_computed_tokens <= num_scheduled_tokens <= num_tokens`` always holds.

    What the inner loops read is copied here from the request, since attribute chains cost.
    """

    __slots__ = (
        "account",
        "block_ids",
        "borrowers",
        "chain",
        "cross_key",
        "first_token_at",
        "flow",
        "index",
        "is_introduced",
        "is_late",
        "is_live",
        "is_promised",
        "lenders",
        "matched",
        "max_positions",
        "max_tokens",
        "min_tokens",
        "num_blocks_sent",
        "num_charged_tokens",
        "num_computed_tokens",
        "num_held_positions",
        "num_passed",
        "num_preemptions",
        "num_prompt_scored",
        "num_prompt_tokens",
        "num_scheduled_tokens",
        "num_tokens",
        "order_key",
        "output_token_ids",
        "parent",
        "place",
        "priority",
        "register_at",
        "request_id",
        "seniority",
        "sequence_id",
        "service",
        "state",
        "stop_token_ids",
        "swap_block_ids",
        "turn",
    )

    def __init__(
        self, parent: LiveRequest, flow: Flow, sequence_id: SequenceId, index: int
    ) -> None:
        request = parent.request
        self.parent = parent
        self.account = parent.account
        self.flow = flow
        self.service = flow.service
        self.sequence_id = sequence_id
        self.request_id = request.request_id
        self.index = index
        self.state = State.WAITING
        self.is_live = True
        self.max_tokens = request.sampling.max_tokens
        self.min_tokens = request.sampling.min_tokens
        self.stop_token_ids = request.sampling.stop_token_ids
        self.num_prompt_tokens = len(request.prompt_token_ids)
        #: the last output token is never an input, so its keys and values are never computed
        self.max_positions = self.num_prompt_tokens + max(self.max_tokens - 1, 0)
        self.output_token_ids: list[int] = []
        #: prompt, output, and tokens that plans in flight will sample
        self.num_tokens = self.num_prompt_tokens
        #: positions handed to plans, and positions whose plans were applied
        self.num_scheduled_tokens = 0
        self.num_computed_tokens = 0
        self.num_charged_tokens = 0  # of the prompt: counted as service, or found in the cache
        self.num_prompt_scored = 1  # position 0 has no log-probability
        self.first_token_at: float | None = None

        self.block_ids: list[int] = []
        self.num_held_positions = 0  # that it can have, and its blocks have room for
        self.swap_block_ids: list[int] = []
        self.chain: KeyChain | None = None  # names the blocks' content, where it may be shared
        #: blocks that it found in the cache when it was last looked for, and how many had ever been
        #: made known then
        self.matched = (0, -NEVER)
        self.register_at = NEVER  # the next block is complete with this many computed positions
        #: whether all blocks that it can ever need are set aside for it
        self.is_promised = False
        #: what the executor knows: whether it met the sequence, and how much of its table
        self.is_introduced = False
        self.num_blocks_sent = 0

        #: the place in its class, and among all classes (seconds; smaller goes first)
        self.order_key = 0.0
        self.cross_key = 0.0
        self.priority = 0
        #: a fixed total order: who is larger gives blocks to who is smaller
        self.seniority: tuple[float, ...] = ()
        self.is_late = False  # it missed its target, so `slo` put it behind those that may not
        self.num_passed = 0
        self.place = 0  # among those that decode
        #: waiting sequences whose blocks it runs on
        self.lenders: tuple[Sequence, ...] = ()
        #: running sequences that have it among their lenders, in order of admission
        self.borrowers: dict[SequenceId, Sequence] = {}
        self.num_preemptions = 0
        self.turn = -1  # call of ``schedule`` in which it started, resumed or was preempted last

    @property
    def num_pending_tokens(self) -> int:
        """Tokens that plans in flight will sample; their values are not known here yet."""
        return self.num_tokens - self.num_prompt_tokens - len(self.output_token_ids)

    @property
    def num_known_positions(self) -> int:
        """Positions whose keys and values can and shall be computed by now."""
        return min(self.num_tokens, self.max_positions)

    @property
    def num_remaining_tokens(self) -> int:
        """Positions that could be computed in the next step."""
        return self.num_known_positions - self.num_scheduled_tokens

    @property
    def wants_token(self) -> bool:
        """Whether a step that reaches ``num_tokens`` shall sample."""
        return self.num_tokens - self.num_prompt_tokens < self.max_tokens

    @property
    def is_prompt_only(self) -> bool:
        """Whether the prompt is scored and nothing is generated."""
        return self.max_tokens == 0

    @property
    def is_waiting(self) -> bool:
        """Whether it waits for a slot and blocks, for the first time or again."""
        return self.state in (State.WAITING, State.PREEMPTED)

    @property
    def is_borrower(self) -> bool:
        """Whether it runs on blocks of a sequence that it passed and that still waits."""
        return bool(self.lenders) and any(s.is_waiting for s in self.lenders)

    def charge_prompt(self, end: int) -> None:
        """Count the prompt's tokens up to ``end`` as service, each once, however often computed."""
        num_new = min(end, self.num_prompt_tokens) - self.num_charged_tokens
        if num_new > 0:
            self.num_charged_tokens += num_new
            self.flow.service.num_input_tokens += num_new
            self.account.service.num_input_tokens += num_new

    def move(self, move: Move, now: float) -> None:
        """Follow the transition table and write the request's story."""
        self.state = after(self.state, move)
        self.is_live = self.state in LIVE
        self.parent.num_live_sequences -= not self.is_live
        self.parent.story.append((now, self.index, move))
