"""Several replicas behind a router: who gets what, in which order, and clients that leave."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from random import Random

import pytest
from small_engine import arrival, limits

from headway.core.classes import ServiceClass
from headway.core.config import SchedulerConfig
from headway.core.costs import StepCosts
from headway.core.request import PromptHashes
from headway.errors import UsageError
from headway.sim import simulate
from headway.sim.fleet import FleetResult, simulate_fleet
from headway.sim.replica import Machine
from headway.sim.routers import (
    ClassIsolated,
    LeastLoaded,
    PrefixAware,
    RoundRobin,
    Router,
    RouterName,
    make_router,
    shared_out,
)
from headway.workload import Arrival, ClosedLoop, Conduct, Workload

COST = StepCosts(base_s=1.0, prefill_token_s=0.1, decode_s=0.5)
FOREVER = float("inf")


def machine(*classes: ServiceClass, **changes: object) -> Machine:
    config = SchedulerConfig(limits=limits(**changes), classes=classes or (ServiceClass(),))
    return Machine(config=config, cost=COST)


def serve(
    arrivals: list[Arrival],
    *,
    loops: tuple[ClosedLoop, ...] = (),
    num_replicas: int = 2,
    router: Router | None = None,
    duration_s: float = FOREVER,
    until_s: float = FOREVER,
    each: Machine | None = None,
) -> FleetResult:
    workload = Workload(arrivals=arrivals, loops=loops, duration_s=duration_s, targets={})
    chosen = router or RoundRobin(num_replicas)
    return simulate_fleet([each or machine()] * num_replicas, chosen, workload, until_s=until_s)


def random_arrivals(seed: int, count: int = 60) -> list[Arrival]:
    random, now, found = Random(seed), 0.0, []
    for _ in range(count):
        now += random.expovariate(0.5)
        found.append(arrival(now, random.randint(1, 40), random.choice((1, 4, 30))))
    return found


@pytest.mark.parametrize("seed", range(4))
def test_one_replica_is_the_simulation_of_one_engine(seed: int) -> None:
    arrivals, each = random_arrivals(seed), machine()
    alone = simulate(each.config, arrivals, COST)
    fleet = serve(arrivals, num_replicas=1)
    assert fleet.requests == alone.requests
    assert fleet.replicas[0].steps == alone.steps
    assert fleet.end_s == alone.end_s


@pytest.mark.parametrize("seed", range(4))
def test_replicas_are_as_if_each_were_alone_with_its_part(seed: int) -> None:
    arrivals = random_arrivals(seed)
    fleet = serve(arrivals, num_replicas=3)
    for number in range(3):
        own = arrivals[number::3]
        alone = simulate(machine().config, own, COST)
        found = [each for each in fleet.requests if each.number % 3 == number]
        times = [list(each.token_times) for each in alone.requests]
        assert [list(each.token_times) for each in found] == times


def test_requests_are_in_order_of_arrival() -> None:
    arrivals = random_arrivals(9)
    fleet = serve(arrivals, num_replicas=5, router=LeastLoaded(range(5)))
    assert [each.arrival for each in fleet.requests] == arrivals
    assert all(each.is_finished for each in fleet.requests)


def test_the_end_cuts_all_replicas_off() -> None:
    fleet = serve([arrival(), arrival(output=50), arrival(at_s=30.0)], until_s=10.0)
    assert [each.outcome for each in fleet.requests] == ["finished", "unfinished"]
    assert fleet.end_s < 13


def test_hundreds_of_replicas() -> None:
    arrivals = [arrival(0.01 * n) for n in range(600)]
    fleet = serve(arrivals, num_replicas=300, router=LeastLoaded(range(300)))
    assert all(each.is_finished for each in fleet.requests)
    assert {len(each.requests) for each in fleet.replicas} == {2}


# ------------------------------------------------------------------ clients


def test_a_client_that_leaves_by_time_is_cancelled_when_the_step_has_ended() -> None:
    leaver = arrival(output=50, conduct=Conduct(leaves_after_s=4.0))
    fleet = serve([leaver, arrival()], num_replicas=1)
    gone, other = fleet.requests
    assert (gone.outcome, other.outcome) == ("cancelled", "finished")
    assert gone.ended_at is not None
    assert 4.0 <= gone.ended_at < 6.0
    assert fleet.replicas[0].statistics.num_cancelled == 1


def test_a_client_that_leaves_after_its_end_changes_nothing() -> None:
    fleet = serve([arrival(conduct=Conduct(leaves_after_s=1e3))], num_replicas=1)
    assert fleet.requests[0].is_finished
    assert fleet.end_s < 10


@pytest.mark.parametrize("others", [0, 3])
@pytest.mark.parametrize("sample_every_s", [1.0, 1e9])
def test_a_client_that_leaves_after_tokens_gets_just_these(
    others: int, sample_every_s: float
) -> None:
    leaver = arrival(output=50, conduct=Conduct(leaves_after_tokens=7))
    each = replace(machine(), sample_every_s=sample_every_s)
    arrivals = [leaver, *(arrival(output=60) for _ in range(others))]
    fleet = serve(arrivals, each=each, num_replicas=1)
    assert fleet.requests[0].outcome == "cancelled"
    assert len(fleet.requests[0].token_times) == 7
    assert all(len(each.token_times) == 60 for each in fleet.requests[1:])


def test_clients_that_leave_after_tokens_are_seen_in_leaps_as_in_steps() -> None:
    arrivals = [
        arrival(
            at_s=0.004 * number,
            output=20 + number % 5,
            conduct=Conduct(leaves_after_tokens=3 + number % 9) if number % 2 else Conduct(),
        )
        for number in range(40)
    ]
    cost = StepCosts(base_s=0.001, prefill_token_s=0.0001, decode_s=0.0001)
    fast, slow = (
        simulate_fleet(
            [Machine(config=SchedulerConfig(limits=limits()), cost=cost, leaps=leaps)],
            RoundRobin(1),
            Workload(list(arrivals), (), float("inf"), {}),
        )
        for leaps in (True, False)
    )
    for one, other in zip(fast.requests, slow.requests, strict=True):
        assert one.outcome == other.outcome
        assert list(one.token_times) == pytest.approx(list(other.token_times))


# ------------------------------------------------------------------ closed loops


def endless(output: int = 3) -> Iterator[Arrival]:
    while True:
        yield arrival(output=output)


def test_a_client_of_a_closed_loop_waits_for_its_answer_and_thinks() -> None:
    loop = ClosedLoop(concurrency=1, think_s=2.0, start_s=1.0, requests=endless())
    fleet = serve([], loops=(loop,), num_replicas=1, duration_s=20.0)
    came = [each.arrival.at_s for each in fleet.requests]
    ended = [each.ended_at for each in fleet.requests]
    assert came[0] == 1.0
    assert came[1:] == [each + 2.0 for each in ended[:-1] if each is not None]
    assert came[-1] < 20.0


def test_as_many_are_under_way_as_there_are_clients() -> None:
    loop = ClosedLoop(concurrency=3, think_s=0.0, start_s=0.0, requests=endless(output=9))
    fleet = serve([], loops=(loop,), router=LeastLoaded(range(2)), duration_s=100.0)
    for record in fleet.requests:
        others = [
            each
            for each in fleet.requests
            if each.arrival.at_s <= record.arrival.at_s < (each.ended_at or FOREVER)
        ]
        assert len(others) == 3


def test_a_closed_loop_on_several_replicas_is_causal() -> None:
    loop = ClosedLoop(concurrency=5, think_s=0.3, start_s=0.0, requests=endless(output=20))
    fleet = serve([], loops=(loop,), num_replicas=3, duration_s=200.0)
    for record in fleet.requests:
        assert record.submitted_at is not None
        assert record.submitted_at - record.arrival.at_s <= 1 + 6.4 + 8 * 0.5  # the longest step


# ------------------------------------------------------------------ routers


def test_round_robin() -> None:
    router = RoundRobin(3)
    assert [router.choose(arrival()) for _ in range(5)] == [0, 1, 2, 0, 1]


def test_least_loaded_takes_who_has_least_and_then_who_waited_longest() -> None:
    router = LeastLoaded(range(3))
    assert [router.choose(arrival()) for _ in range(3)] == [0, 1, 2]
    router.ended(1)
    router.ended(2)
    assert [router.choose(arrival()) for _ in range(3)] == [1, 2, 0]


def test_the_router_knows_only_what_has_ended_by_then() -> None:
    chosen: list[int] = []

    class Noted(LeastLoaded):
        def choose(self, arrival: Arrival) -> int:
            chosen.append(super().choose(arrival))
            return chosen[-1]

    # the second ends at 3.5; the third comes just before that, and the others after it
    comers = [arrival(output=40), arrival(output=2), arrival(3.4), arrival(3.6), arrival(3.6)]
    serve(comers, router=Noted(range(2)))
    assert chosen == [0, 1, 0, 1, 1]


def hashed(*ids: int) -> Arrival:
    return arrival(prompt=40, hashes=PromptHashes(8, ids))


def test_prefix_aware_goes_where_the_beginning_was_sent() -> None:
    router = PrefixAware(3, num_kv_tokens=800)
    assert router.choose(hashed(1, 2)) == 0
    assert router.choose(hashed(7, 8)) == 1
    assert router.choose(hashed(1, 2, 3)) == 0
    assert router.choose(hashed(7, 9)) == 1
    assert router.choose(arrival()) == 2


def test_prefix_aware_leaves_an_overloaded_replica_alone() -> None:
    router = PrefixAware(2, num_kv_tokens=800)
    chosen = [router.choose(hashed(1, 2)) for _ in range(12)]
    assert chosen[:9] == [0] * 9
    assert 1 in chosen


def test_prefix_aware_forgets_what_has_no_room() -> None:
    router = PrefixAware(2, num_kv_tokens=16)
    router.choose(hashed(1, 2))
    router.ended(0)
    router.choose(hashed(3, 4))  # to replica 1, which waited longer
    router.ended(1)
    router.choose(hashed(5, 6))
    router.ended(0)
    assert router.choose(hashed(1, 2)) == 1  # forgotten by 0, and 1 waited longer


def test_classes_have_replicas_of_their_own() -> None:
    classes = (ServiceClass(name="a", weight=3), ServiceClass(name="b"))
    assert shared_out(4, classes) == {"a": [0, 1, 2], "b": [3]}
    router = ClassIsolated(shared_out(4, classes))
    assert {router.choose(arrival(class_name="a")) for _ in range(9)} == {0, 1, 2}
    assert {router.choose(arrival(class_name="b")) for _ in range(9)} == {3}
    with pytest.raises(UsageError, match="class c has no replicas"):
        router.choose(arrival(class_name="c"))


def test_too_few_replicas_are_refused() -> None:
    classes = (ServiceClass(name="a"), ServiceClass(name="b"))
    with pytest.raises(UsageError, match="2 classes can't be isolated on 1 replicas"):
        make_router(RouterName.CLASS_ISOLATED, 1, classes=classes, num_kv_tokens=64)


@pytest.mark.parametrize("name", list(RouterName))
def test_every_router_serves_everybody(name: RouterName) -> None:
    classes = (ServiceClass(name="a"), ServiceClass(name="b"))
    each = machine(*classes, enable_prefix_sharing=True)
    arrivals = [
        arrival(0.2 * n, class_name="ab"[n % 2], hashes=PromptHashes(4, (n % 5,)))
        for n in range(40)
    ]
    router = make_router(name, 3, classes=classes, num_kv_tokens=256)
    fleet = serve(arrivals, num_replicas=3, router=router, each=each)
    assert all(record.is_finished for record in fleet.requests)
    assert all(len(result.requests) > 0 for result in fleet.replicas)
