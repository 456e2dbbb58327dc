"""One sequence run to its end, among others that come and go, in every way a scheduler might."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from headway.core.plan import (
    BlockMove,
    NewSequence,
    Padding,
    RequestId,
    SequenceId,
    Slice,
    StepPlan,
    StepResult,
    TableUpdate,
    TokenLogprobs,
)
from headway.core.ports import Executor
from headway.core.sampling import SamplingParams

VOCAB, NUM_BLOCKS, NUM_SWAP_BLOCKS, PROMPT, OUTPUT = 97, 200, 200, 150, 12
CONTEXT = 512  # of the tiny models

SHAPES: dict[str, dict[str, Any]] = {
    "grouped": {},
    "one-kv-head": {"num_heads": 3, "num_kv_heads": 1, "qk_norm": True, "architecture": "qwen3"},
    "window": {"sliding_window": 37, "architecture": "mistral"},
    "wide": {
        "hidden_size": 320,
        "intermediate_size": 832,
        "num_heads": 10,
        "num_kv_heads": 5,
        "head_dim": 32,
        "attention_bias": True,
        "architecture": "qwen2",
    },
}


def observed(sequence_id: int, length: int = PROMPT) -> NewSequence:
    """A sequence whose every position shows the log-probabilities of the whole vocabulary."""
    sampling = SamplingParams(
        max_tokens=OUTPUT, temperature=1.0, seed=3, logprobs=VOCAB, prompt_logprobs=VOCAB
    )
    return _sequence(sequence_id, length, sampling)


def _sequence(sequence_id: int, length: int, sampling: SamplingParams) -> NewSequence:
    rng = random.Random(sequence_id)
    prompt = tuple(rng.randrange(VOCAB) for _ in range(length))
    return NewSequence(SequenceId(sequence_id), RequestId(f"{sequence_id}"), 0, prompt, sampling)


@dataclass(kw_only=True)
class Play:
    """How a sequence is run.

    Attributes:
        chunk: positions a step, at most.
        neighbours: sequences beside it.
        padded: every step is padded, to sizes drawn at random, with members that have no slice.
        recompute_at: the step in which it loses its blocks, and begins anew in others.
        swap_at: steps in which its blocks are swapped out; it comes back three steps later.
    """

    executor: Executor
    chunk: int
    neighbours: int = 0
    block_size: int = 8
    padded: bool = False
    recompute_at: int | None = None
    swap_at: Sequence[int] = ()

    def observe(self, subject: NewSequence) -> list[TokenLogprobs]:
        """Return what was seen at every position but the first."""
        run = _Run(self, subject)
        while run.num_tokens < len(subject.prompt_token_ids) + OUTPUT:
            run.step()
        run.release()
        assert sorted(run.found) == list(range(1, run.num_tokens))
        return [run.found[position] for position in sorted(run.found)]


class _Run:
    def __init__(self, play: Play, subject: NewSequence) -> None:
        self._play, self._key = play, subject.sequence_id
        self._rng = random.Random(play.chunk * 100 + play.neighbours)
        self._free = self._rng.sample(range(NUM_BLOCKS), NUM_BLOCKS)
        self._needed = -(-(PROMPT + OUTPUT) // play.block_size)
        self._held = [self._free.pop() for _ in range(self._needed)]
        self._swap = self._rng.sample(range(NUM_SWAP_BLOCKS), self._needed)
        self._crowd = _Crowd(self._rng, self._free, play.neighbours, play.block_size)
        self._next = _Parts([subject], [self._table()])
        self._num_prompt = self.num_tokens = len(subject.prompt_token_ids)
        self._done = self._step_id = 0
        self._back_at = -1
        self.found: dict[int, TokenLogprobs] = {}

    def step(self) -> None:
        """Run one step, and take what it shows."""
        self._preempt()
        count = min(self._play.chunk, self.num_tokens - self._done)
        is_last = self._done + count == self.num_tokens
        is_away = self._step_id < self._back_at
        own = [] if is_away else [Slice(self._key, self._done, count, is_last)]
        result = self._run(own)
        if not is_away:
            self._done += count
            self._take(result, is_last)

    def release(self) -> None:
        """Let go of everything, so that the executor can be used again."""
        released = (self._key, *self._crowd.live)
        self._play.executor.run(StepPlan(self._step_id, (), released=released))

    def _table(self) -> TableUpdate:
        return TableUpdate(self._key, 0, tuple(self._held))

    def _preempt(self) -> None:
        if self._step_id == self._play.recompute_at:
            self._done = 0
            self._change_blocks()
        if self._step_id in self._play.swap_at:
            written = self._held[: -(-self._done // self._play.block_size)]
            moves = zip(written, self._swap, strict=False)
            self._next.swap_out = [BlockMove(*move) for move in moves]
            self._free.extend(self._held)  # the others may take them at once
            self._held = []
            self._back_at = self._step_id + 3
        if self._step_id == self._back_at:
            self._change_blocks()
            written = self._held[: -(-self._done // self._play.block_size)]
            moves = zip(self._swap, written, strict=False)
            self._next.swap_in = [BlockMove(*move) for move in moves]

    def _change_blocks(self) -> None:
        self._free.extend(self._held)
        self._held = [self._free.pop(0) for _ in range(self._needed)]
        self._next.tables = [self._table()]

    def _run(self, own: Sequence[Slice]) -> StepResult:
        others = self._crowd.step()
        slices = [*others.slices, *own]
        self._rng.shuffle(slices)
        mine, self._next = self._next, _Parts()
        plan = StepPlan(
            self._step_id,
            tuple(slices),
            (*others.new_sequences, *mine.news),
            (*others.table_updates, *mine.tables),
            others.released,
            swap_out=tuple(mine.swap_out),
            swap_in=tuple(mine.swap_in),
            padding=self._padding(slices) if self._play.padded else None,
        )
        self._step_id += 1
        result = self._play.executor.run(plan)
        assert not result.failures
        return result

    def _padding(self, slices: Sequence[Slice]) -> Padding:
        num_rows = max((part.count for part in slices), default=1) + self._rng.choice([0, 0, 1, 50])
        furthest = max((part.start + part.count for part in slices), default=1)
        length = max(furthest, num_rows) + self._rng.choice([0, 1, 150])
        most = min(CONTEXT, NUM_BLOCKS * self._play.block_size)
        ghosts = self._rng.choice([0, 0, 1, 4])
        length = min(length, most)
        return Padding(max(len(slices) + ghosts, 1), min(num_rows, length), length)

    def _take(self, result: StepResult, is_last: bool) -> None:
        if scores := result.prompt_logprobs.get(self._key):
            self.found.update({scores.start + i: entry for i, entry in enumerate(scores.entries)})
        if is_last:
            logprobs = result.tokens[self._key].logprobs
            assert logprobs is not None
            self.found[self.num_tokens] = logprobs
            self.num_tokens += 1


@dataclass
class _Parts:
    """What the next plan says of the sequence, beside its slice."""

    news: list[NewSequence] = field(default_factory=list)
    tables: list[TableUpdate] = field(default_factory=list)
    swap_out: list[BlockMove] = field(default_factory=list)
    swap_in: list[BlockMove] = field(default_factory=list)


class _Crowd:
    """Neighbours of random lengths, in random chunks, each of which leaves after a while."""

    def __init__(self, rng: random.Random, free: list[int], size: int, block_size: int) -> None:
        self._rng, self._free, self._size, self._block_size = rng, free, size, block_size
        self._next_id = 1000
        self._state: dict[SequenceId, tuple[int, int, list[int]]] = {}

    @property
    def live(self) -> tuple[SequenceId, ...]:
        return tuple(self._state)

    def step(self) -> StepPlan:
        gone = [
            key for key, (done, _, _) in self._state.items() if done and self._rng.random() < 0.2
        ]
        for key in gone:
            self._free.extend(self._state.pop(key)[2])
        arrived = [self._arrive() for _ in range(self._size - len(self._state))]
        updates = [
            TableUpdate(n.sequence_id, 0, tuple(self._state[n.sequence_id][2])) for n in arrived
        ]
        slices = [s for key in self._state if (s := self._advance(key))]
        return StepPlan(0, tuple(slices), tuple(arrived), tuple(updates), tuple(gone))

    def _arrive(self) -> NewSequence:
        self._next_id += 1
        length = self._rng.randrange(1, 60)
        held = [self._free.pop() for _ in range(-(-length // self._block_size))]
        new = _sequence(self._next_id, length, SamplingParams(max_tokens=OUTPUT, seed=3))
        self._state[new.sequence_id] = (0, length, held)
        return new

    def _advance(self, key: SequenceId) -> Slice | None:
        done, length, held = self._state[key]
        count = min(self._rng.choice([1, 2, 5, 40]), length - done)
        if count == 0:
            return None
        self._state[key] = (done + count, length, held)
        return Slice(key, done, count, sample=False)
