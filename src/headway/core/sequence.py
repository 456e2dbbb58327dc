"""The mutable state of live work: a request and its sequences, as the scheduler sees them."""

from __future__ import annotations

from headway.core.lifecycle import LIVE, Move, State, after
from headway.core.plan import SequenceId
from headway.core.request import Request


class LiveRequest:
    """A request between its admission and its terminal event."""

    __slots__ = ("num_live_sequences", "request", "sequences", "state", "story", "submitted_at")

    def __init__(self, request: Request, first_id: int, now: float) -> None:
        self.request = request
        self.submitted_at = now
        self.state = State.WAITING
        #: what happened, for error messages: (time, sequence index or None, move)
        self.story: list[tuple[float, int | None, str]] = [(now, None, "submit")]
        self.sequences = tuple(
            Sequence(self, SequenceId(first_id + index), index) for index in range(request.n)
        )
        self.num_live_sequences = request.n

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
    """

    __slots__ = (
        "block_ids",
        "index",
        "is_introduced",
        "max_positions",
        "num_blocks_sent",
        "num_computed_tokens",
        "num_pending_tokens",
        "num_preemptions",
        "num_prompt_scored",
        "num_prompt_tokens",
        "num_scheduled_tokens",
        "output_token_ids",
        "parent",
        "sequence_id",
        "state",
    )

    def __init__(self, parent: LiveRequest, sequence_id: SequenceId, index: int) -> None:
        self.parent = parent
        self.sequence_id = sequence_id
        self.index = index
        self.state = State.WAITING
        self.num_prompt_tokens = len(parent.request.prompt_token_ids)
        #: the last output token is never an input, so its keys and values are never computed
        self.max_positions = self.num_prompt_tokens + max(parent.request.sampling.max_tokens - 1, 0)
        self.output_token_ids: list[int] = []
        #: tokens that plans in flight will sample; their values are not known here yet
        self.num_pending_tokens = 0
        #: positions handed to plans, and positions whose plans were applied
        self.num_scheduled_tokens = 0
        self.num_computed_tokens = 0
        self.num_prompt_scored = 1  # position 0 has no log-probability
        self.block_ids: list[int] = []
        #: what the executor knows: whether it met the sequence, and how much of its table
        self.is_introduced = False
        self.num_blocks_sent = 0
        #: also the epoch of the KV: results from before a preemption don't count as computed
        self.num_preemptions = 0

    @property
    def num_tokens(self) -> int:
        """Prompt, output, and tokens being sampled right now."""
        return self.num_prompt_tokens + len(self.output_token_ids) + self.num_pending_tokens

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
        num_outputs = len(self.output_token_ids) + self.num_pending_tokens
        return num_outputs < self.parent.request.sampling.max_tokens

    @property
    def is_prompt_only(self) -> bool:
        """Whether the prompt is scored and nothing is generated."""
        return self.parent.request.sampling.max_tokens == 0

    @property
    def is_live(self) -> bool:
        """Whether the sequence still has work to do."""
        return self.state in LIVE

    def move(self, move: Move, now: float) -> None:
        """Follow the transition table and write the request's story."""
        self.state = after(self.state, move)
        self.parent.num_live_sequences -= not self.is_live
        self.parent.story.append((now, self.index, move))

    def forget_kv(self) -> list[int]:
        """Give up all blocks and return them; every position is to be computed again."""
        block_ids, self.block_ids = self.block_ids, []
        self.num_blocks_sent = 0
        self.num_scheduled_tokens = 0
        self.num_computed_tokens = 0
        return block_ids
