"""The queue of ``fair`` by itself: who goes first, and that asking it changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from headway.core.accounts import Flow, Service
from headway.core.queues import FairQueue

TENANTS = "abcd"


class Served:
    """A queue whose tenants are served as told; ``ask`` is called between any two moves."""

    def __init__(self, ask: Callable[[FairQueue], object]) -> None:
        self.queue = FairQueue()
        self.flows = {
            tenant: Flow(tenant, Service(1.0, 1.0, 1.0), number)
            for number, tenant in enumerate(TENANTS)
        }
        self.started: list[int] = []
        self._ask = ask
        self._num_pushed = 0

    def play(self, moves: list[tuple[str, str]]) -> list[int]:
        for name, tenant in moves:
            getattr(self, name)(tenant)
            self._ask(self.queue)
        while len(self.queue):
            self.take("")
            self._ask(self.queue)
        return self.started

    def push(self, tenant: str) -> None:
        self._num_pushed += 1
        number = self._num_pushed
        sequence: Any = SimpleNamespace(
            flow=self.flows[tenant], order_key=0.0, sequence_id=number, num_preemptions=0
        )
        self.queue.push(sequence)

    def take(self, _: str) -> None:
        first = self.queue.peek()
        if first is not None:
            self.queue.take(first)
            self.started.append(first.sequence_id)

    def look_aside(self, _: str) -> None:
        """Take the first one out for a moment, as for a look at the next."""
        first = self.queue.peek()
        if first is not None:
            self.queue.remove(first)
            self.queue.peek()
            self.queue.put_back(first)

    def serve(self, tenant: str) -> None:
        self.flows[tenant].service.num_output_tokens += 1

    def serve_more(self, tenant: str) -> None:
        self.flows[tenant].service.num_output_tokens += 2


MOVES = st.lists(
    st.tuples(
        st.sampled_from(["push", "push", "take", "look_aside", "serve", "serve_more"]),
        st.sampled_from(TENANTS),
    ),
    max_size=40,
)


def ask_nothing(_: FairQueue) -> None:
    pass


def ask_often(queue: FairQueue) -> None:
    queue.peek()
    list(queue.heads())
    queue.peek()


@given(MOVES)
@example(
    [
        *[("push", tenant) for tenant in "abc"],
        *[("serve", "a"), ("serve_more", "b"), ("serve", "c"), ("serve", "a")],
    ]
)
def test_it_does_not_matter_how_often_it_is_asked_who_goes_first(
    moves: list[tuple[str, str]],
) -> None:
    assert Served(ask_often).play(moves) == Served(ask_nothing).play(moves)


@given(MOVES)
def test_the_first_has_the_least_service_and_then_the_longest_wait_for_a_start(
    moves: list[tuple[str, str]],
) -> None:
    def check(queue: FairQueue) -> None:
        heads = list(queue.heads())
        least = min((_place(head.flow) for head in heads), default=None)
        first = queue.peek()
        assert (None if first is None else _place(first.flow)) == least
        assert first is None or first in heads

    Served(check).play(moves)


def _place(flow: Flow) -> tuple[float, int, int]:
    return flow.service.virtual, flow.last_start, flow.number


def test_of_equals_the_tenant_that_came_first_begins_and_then_they_take_turns() -> None:
    served = Served(ask_nothing)
    order = served.play([("push", tenant) for tenant in "ccbbaa"])
    assert order == [5, 3, 1, 6, 4, 2]  # the numbers of flows are in the order a, b, c
