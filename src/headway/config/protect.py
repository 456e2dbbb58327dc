"""What ``scheduler.protect`` means: the one table of what each goal sets, and warns of.

Batch size, waiting and preemption pull against each other: what raises throughput costs somebody a
wait. So the operator says first what matters most. A setting that nothing else has set then
follows the goal; one that he has set himself stays, with a warning where it works against the goal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

Goal = Literal["ttft", "tpot", "throughput"]

#: All values by key, and the tables of the classes by name, as far as they are set.
Facts = tuple[Mapping[str, Any], Mapping[str, Mapping[str, Any]]]


@dataclass(frozen=True, slots=True)
class Condition:
    """When a row counts: in words, to follow "only", and as a test."""

    words: str
    holds: Callable[[Facts], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """What one goal asks of one setting.

    Attributes:
        key: the setting.
        why: the reason, to follow a colon.
        sets: the value where nothing else has set one; None leaves it alone.
        at_least: a number below it works against the goal.
        at_most: a number above it works against the goal.
        among: any other value works against the goal.
        only: when the row counts at all.
    """

    key: str
    why: str
    sets: object = None
    at_least: float | None = None
    at_most: float | None = None
    among: tuple[object, ...] = ()
    only: Condition | None = None

    def objection(self, value: Any) -> str | None:
        """Say how a value works against the goal: "is above 64"; None if it does not."""
        if self.among and value not in self.among:
            return "is not " + " or ".join(map(shown, self.among))
        if value is None or self.among:
            return None
        if self.at_least is not None and value < self.at_least:
            return f"is below {self.at_least:g}"
        if self.at_most is not None and value > self.at_most:
            return f"is above {self.at_most:g}"
        return None

    def counts(self, facts: Facts) -> bool:
        """Whether the row counts beside the other settings."""
        return self.only is None or self.only.holds(facts)


def shown(value: object) -> str:
    """Return a value as it stands in a settings file."""
    if isinstance(value, str):
        return f'"{value}"'
    return str(value).lower() if isinstance(value, bool) else str(value)


# -------------------------------------------------------------------- the table


def _chunks(facts: Facts) -> bool:
    return bool(facts[0].get("scheduler.enable_chunked_prefill", True))


def _swaps(facts: Facts) -> bool:
    return bool(facts[0].get("kv.swap_space_bytes"))


def _tells_long_from_short(facts: Facts) -> bool:
    has_most = facts[0].get("scheduler.max_long_partial_prefills") is not None
    return has_most or facts[0].get("scheduler.batching", "continuous") == "continuous"


def _has_slack(facts: Facts) -> bool:
    classes = facts[1].values()
    return any(c.get("ttft_p99_ms") is not None and c.get("policy") != "slo" for c in classes)


def _has_pace(facts: Facts) -> bool:
    return any(each.get("tpot_p99_ms") is not None for each in facts[1].values())


_IF_SLACK = Condition("if a class states `ttft_p99_ms`, and isn't `slo` itself", _has_slack)
_IF_PACE = Condition("if a class states `tpot_p99_ms`", _has_pace)
_IF_LONG = Condition("with continuous batching", _tells_long_from_short)
_IF_SWAP = Condition("with `swap_space_bytes`", _swaps)
_IF_CHUNKED = Condition("with `enable_chunked_prefill`", _chunks)

_CONTINUOUS = Advice(
    key="scheduler.batching",
    sets="continuous",
    among=("continuous",),
    why="otherwise everybody in a batch pays for its longest member",
)

ADVICE: Mapping[Goal, tuple[Advice, ...]] = {
    "ttft": (
        _CONTINUOUS,
        Advice(
            key="scheduler.policy",
            sets="slo",
            among=("slo",),
            why="whoever has least time left until its target goes first",
            only=_IF_SLACK,
        ),
        Advice(
            key="scheduler.max_waiting_time_ms",
            sets=0.0,
            at_most=0,
            why="time held back is time to the first token",
        ),
        Advice(
            key="scheduler.max_num_seqs",
            sets=128,
            at_least=32,
            why="who waits for a slot has no first token",
        ),
        Advice(
            key="scheduler.max_num_batched_tokens",
            sets=4096,
            at_least=1024,
            why="the more tokens in a step, the fewer steps to the first token",
        ),
        Advice(
            key="scheduler.enable_chunked_prefill",
            sets=True,
            among=(True,),
            why="a prompt that is computed whole keeps all others waiting",
        ),
        Advice(
            key="scheduler.max_prefill_chunk_tokens",
            at_least=512,
            why="a prompt in small parts takes many steps",
            only=_IF_CHUNKED,
        ),
        Advice(
            key="scheduler.long_prefill_threshold_tokens",
            sets=2048,
            at_most=8192,
            why="short prompts need not wait for long ones",
            only=_IF_LONG,
        ),
        Advice(
            key="kv.watermark",
            at_most=0.1,
            why="new requests wait while blocks are kept free",
        ),
    ),
    "tpot": (
        _CONTINUOUS,
        Advice(
            key="scheduler.policy",
            sets="slo",
            among=("slo",),
            why="prompts are cut so that no running sequence misses its target",
            only=_IF_PACE,
        ),
        Advice(
            key="scheduler.max_num_seqs",
            sets=32,
            at_most=64,
            why="each sequence more makes every step longer",
        ),
        Advice(
            key="scheduler.max_num_batched_tokens",
            sets=512,
            at_most=2048,
            why="a step is the gap between two tokens of everybody in it",
            only=_IF_CHUNKED,
        ),
        Advice(
            key="scheduler.enable_chunked_prefill",
            sets=True,
            among=(True,),
            why="a long prompt that is computed whole stalls every running sequence",
        ),
        Advice(
            key="scheduler.max_prefill_chunk_tokens",
            sets=256,
            at_most=512,
            why="the part of a prompt in a step lengthens it for everybody",
            only=_IF_CHUNKED,
        ),
        Advice(
            key="scheduler.preemption_mode",
            sets="auto",
            among=("auto", "swap"),
            why="a preempted sequence computes all its tokens again before the next one",
            only=_IF_SWAP,
        ),
        Advice(
            key="kv.watermark",
            sets=0.05,
            at_least=0.01,
            why="without room to grow, running sequences are preempted",
        ),
    ),
    "throughput": (
        _CONTINUOUS,
        Advice(
            key="scheduler.policy",
            sets="fcfs",
            among=("fcfs", "sjf", "priority", "fair"),
            why="it makes steps smaller than they could be to keep targets",
        ),
        Advice(
            key="scheduler.max_waiting_time_ms",
            sets=50.0,
            at_least=1,
            why="steps run before a batch has filled",
        ),
        Advice(
            key="scheduler.max_num_seqs",
            sets=256,
            at_least=64,
            why="weights are read once a step, for however many sequences",
        ),
        Advice(
            key="scheduler.max_num_batched_tokens",
            sets=8192,
            at_least=2048,
            why="small steps leave the machine idle",
        ),
        Advice(
            key="scheduler.max_prefill_chunk_tokens",
            at_least=512,
            why="prompts in small parts read the weights again for each of them",
            only=_IF_CHUNKED,
        ),
        Advice(
            key="scheduler.preemption_mode",
            sets="auto",
            among=("auto", "swap"),
            why="what is computed again is computed to no use",
            only=_IF_SWAP,
        ),
        Advice(
            key="kv.watermark",
            at_most=0.05,
            why="blocks that are kept free serve nobody",
        ),
    ),
}


# -------------------------------------------------------------------- its use


def additions(goal: Goal, facts: Facts) -> Iterator[tuple[str, object]]:
    """Yield what the goal sets of the settings that are not in ``facts``.

    A batch is never set to more sequences than tokens: whichever of the two is set rules.
    """
    values = facts[0]
    for advice in ADVICE[goal]:
        if advice.sets is not None and advice.key not in values and advice.counts(facts):
            yield advice.key, _fitting(advice, values)


def _fitting(advice: Advice, values: Mapping[str, Any]) -> object:
    seqs, tokens = "scheduler.max_num_seqs", "scheduler.max_num_batched_tokens"
    wanted: Any = advice.sets
    if advice.key == seqs and tokens in values:
        return min(wanted, values[tokens])
    if advice.key == tokens and seqs in values:
        return max(wanted, values[seqs])
    return advice.sets


def objections(goal: Goal, facts: Facts) -> Iterator[tuple[Advice, str]]:
    """Yield the rows that a value in ``facts`` works against, and how it does."""
    for advice in ADVICE[goal]:
        if advice.key in facts[0] and advice.counts(facts):
            flaw = advice.objection(facts[0][advice.key])
            if flaw is not None:
                yield advice, flaw
