"""The life of a request and of each of its sequences, as one table.

===========  =====================  ==========================================
state        found in               meaning
===========  =====================  ==========================================
waiting      the waiting queue      admitted, has never run
running      the running set        holds a slot and blocks
preempted    the waiting queue      ran, gave its blocks back, keeps its place
(terminal)   nowhere                finished, failed, cancelled or expired
===========  =====================  ==========================================

A request moves through the same table, except that it is never preempted: it is *running* from
the first start of one of its sequences on.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType

from headway.errors import InvariantError


class State(StrEnum):
    """Where a request or sequence stands."""

    WAITING = "waiting"
    RUNNING = "running"
    PREEMPTED = "preempted"
    FINISHED = "finished"
    FAILED = "failed"
    CANCELLED = "cancelled"
    EXPIRED = "expired"


class Move(StrEnum):
    """What can happen to a request or sequence."""

    START = "start"
    PREEMPT = "preempt"
    RESUME = "resume"
    FINISH = "finish"
    FAIL = "fail"
    CANCEL = "cancel"
    EXPIRE = "expire"


_ENDINGS = {
    Move.FINISH: State.FINISHED,
    Move.FAIL: State.FAILED,
    Move.CANCEL: State.CANCELLED,
    Move.EXPIRE: State.EXPIRED,
}

LIVE = (State.WAITING, State.RUNNING, State.PREEMPTED)

TRANSITIONS: Mapping[tuple[State, Move], State] = MappingProxyType(
    {
        (State.WAITING, Move.START): State.RUNNING,
        (State.RUNNING, Move.PREEMPT): State.PREEMPTED,
        (State.PREEMPTED, Move.RESUME): State.RUNNING,
        **{(state, move): end for state in LIVE for move, end in _ENDINGS.items()},
    }
)


def after(state: State, move: Move) -> State:
    """Return the state that ``move`` leads to.

    Raises:
        InvariantError: the table has no such transition.
    """
    try:
        return TRANSITIONS[state, move]
    except KeyError:
        raise InvariantError(f"no transition from {state} by {move}") from None
