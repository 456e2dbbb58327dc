"""The simulation driver: exact times on small cases, determinism, and honest records."""

from __future__ import annotations

from io import BytesIO
from random import Random

import pytest
from small_engine import arrival, limits

from headway.core.classes import ServiceClass
from headway.core.config import SchedulerConfig
from headway.core.costs import StepCosts
from headway.core.request import PromptHashes
from headway.core.scheduler import Scheduler
from headway.engine.journal import Journal
from headway.sim import (
    Inverted,
    Noisy,
    Oracle,
    SimulationResult,
    report_by_class,
    request_id_of,
    simulate,
)
from headway.sim.requests import request_of
from headway.workload import Arrival, drawn_between, merged, poisson_arrivals

COST = StepCosts(base_s=1.0, prefill_token_s=0.1, decode_s=0.5)


def config(*classes: ServiceClass, **changes: object) -> SchedulerConfig:
    return SchedulerConfig(limits=limits(**changes), classes=classes or (ServiceClass(),))


def test_one_request_takes_what_its_steps_cost() -> None:
    result = simulate(config(), [arrival(at_s=5.0)], COST)
    (record,) = result.requests
    assert list(record.token_times) == [7.0, 8.5, 10.0]  # 1 + 10 * 0.1, then 1 + 0.5 each
    assert (record.queued_s, record.ttft_s, record.tpot_s, record.latency_s) == (0.0, 2.0, 1.5, 5.0)
    assert list(record.gaps_s()) == [1.5, 1.5]
    assert (record.outcome, result.end_s) == ("finished", 10.0)
    assert list(result.steps.num_tokens) == [10, 1, 1]
    assert list(result.steps.num_prefill_tokens) == [10, 0, 0]
    assert list(result.steps.began_at) == [5.0, 7.0, 8.5]


def test_who_comes_during_a_step_counts_its_wait_from_its_arrival() -> None:
    result = simulate(config(), [arrival(), arrival(at_s=0.5)], COST)
    first, second = result.requests
    assert first.ttft_s == 2.0
    assert second.queued_s == 1.5
    assert second.ttft_s == 4.0  # until 4.5: 1 + 10 * 0.1 + one decode
    assert result.steps.num_sequences[1] == 2


def test_the_answer_ends_where_the_workload_says() -> None:
    lengths = [1, 2, 17]
    result = simulate(config(), [arrival(output=n) for n in lengths], COST)
    assert [len(each.token_times) for each in result.requests] == lengths
    assert result.num_output_tokens == 20
    assert result.requests[0].tpot_s is None


def test_what_comes_after_the_end_is_not_there() -> None:
    result = simulate(config(), [arrival(output=100), arrival(at_s=100.0)], COST, until_s=20.0)
    (record,) = result.requests
    assert (record.outcome, record.latency_s) == ("unfinished", None)
    assert result.finished == ()
    assert 20.0 <= result.end_s < 21.5
    assert len(record.token_times) > 5


def test_an_idle_time_ends_with_the_simulation() -> None:
    assert simulate(config(), [arrival(at_s=50.0)], COST, until_s=20.0).end_s == 20.0


def test_refused_and_expired_requests_say_why() -> None:
    impatient = ServiceClass(queue_timeout_s=1.0, max_queue_requests=1)
    crowd = [arrival(output=20, max_tokens=20) for _ in range(4)]
    result = simulate(config(impatient, max_num_seqs=1), crowd, COST)
    outcomes = [(each.outcome, each.reason) for each in result.requests]
    assert outcomes[0] == ("finished", "")
    assert ("expired", "queue_timeout") in outcomes
    assert ("rejected", "queue_full") in outcomes
    assert all(each.ended_at is not None for each in result.requests)


def test_service_counts_prompts_as_they_are_computed_and_each_token_once() -> None:
    both = [
        arrival(tenant="a", prompt=10, output=4),
        arrival(tenant="b", prompt=20, output=2),
    ]
    result = simulate(config(max_num_batched_tokens=16), both, COST, sample_every_s=0.5)
    served = result.samples[-1].served
    assert (served["a"].input_tokens, served["a"].output_tokens) == (10, 4)
    assert (served["b"].input_tokens, served["b"].output_tokens) == (20, 2)
    moment, gap = result.service_gap("a", "b", input_weight=1.0, output_weight=3.0)[-1]
    assert (moment, gap) == (result.samples[-1].at_s, 22 - 26)
    counts = [sum(s.input_tokens for s in each.served.values()) for each in result.samples]
    assert counts == sorted(counts)
    assert 16 in counts  # a sample between the two chunks of the second prompt


def test_recomputation_is_no_service() -> None:
    crowd = [arrival(prompt=20, output=40, max_tokens=40, tenant="a") for _ in range(4)]
    result = simulate(config(num_blocks=32), crowd, COST)
    assert sum(each.num_preemptions for each in result.requests) > 0
    assert result.statistics.num_preemptions == sum(r.num_preemptions for r in result.requests)
    served = result.samples[-1].served["a"]
    assert (served.input_tokens, served.output_tokens) <= (80, 160)
    assert all(each.is_finished for each in result.requests)


def test_prompts_share_only_what_their_hashes_say() -> None:
    def hashed(at_s: float, *ids: int) -> Arrival:
        return arrival(at_s=at_s, prompt=20, hashes=PromptHashes(8, ids))

    shared = simulate(
        config(enable_prefix_sharing=True),
        [hashed(0, 1, 2, 3), hashed(50, 1, 2, 4), hashed(100, 9, 8, 7), arrival(150, prompt=20)],
        COST,
    )
    assert [each.num_cached_tokens for each in shared.requests] == [0, 16, 0, 0]
    assert shared.statistics.num_free_blocks == 64


def workload(seed: int) -> list[Arrival]:
    random = Random(seed)
    return merged(
        poisson_arrivals(
            0.2, drawn_between((5, 60), (2, 40), random), random, duration_s=300, tenant="a"
        ),
        poisson_arrivals(
            0.1, drawn_between((5, 60), (2, 40), random), random, duration_s=300, tenant="b"
        ),
    )


def test_the_same_seed_gives_the_same_run() -> None:
    def told(result: SimulationResult) -> list[object]:
        times = [(r.outcome, r.started_at, list(r.token_times)) for r in result.requests]
        return [times, list(result.steps.elapsed_s), result.samples, result.statistics]

    first = told(simulate(config(), workload(3), COST))
    assert first == told(simulate(config(), workload(3), COST))
    assert first != told(simulate(config(), workload(4), COST))


def test_invariants_hold_at_every_step() -> None:
    seen: list[float] = []

    def watch(scheduler: Scheduler, now: float) -> None:
        scheduler.check()
        seen.append(now)

    result = simulate(config(num_blocks=40), workload(5), COST, watch=watch)
    assert len(seen) >= len(result.steps)
    assert all(each.is_finished for each in result.requests)
    assert result.statistics.num_free_blocks == 40


def test_samples_come_at_even_distances() -> None:
    result = simulate(config(), workload(6), COST, sample_every_s=10.0)
    assert [each.at_s for each in result.samples] == [
        10.0 * number for number in range(len(result.samples))
    ]
    assert result.samples[-1].at_s <= result.end_s < result.samples[-1].at_s + 10


def test_arrivals_out_of_order_are_refused() -> None:
    with pytest.raises(ValueError, match="order of time"):
        simulate(config(), [arrival(at_s=1), arrival(at_s=0)], COST)


def test_a_journal_that_could_not_be_replayed_is_not_written() -> None:
    arrivals = [arrival()]
    stream = BytesIO()
    journal = Journal(stream, Scheduler(config()))
    written = stream.getvalue()
    with pytest.raises(ValueError, match="can't be replayed"):
        simulate(config(), arrivals, COST, predictor=Oracle(arrivals), journal=journal)
    assert stream.getvalue() == written
    assert simulate(config(), arrivals, COST, journal=journal).requests[0].is_finished
    assert len(stream.getvalue()) > len(written)


def test_each_class_is_reported_against_its_own_targets() -> None:
    classes = (
        ServiceClass(name="fast", ttft_target_s=2.0, tpot_target_s=2.3),
        ServiceClass(name="slow"),
        ServiceClass(name="unused"),
    )
    arrivals = [
        arrival(class_name="fast"),
        arrival(at_s=0.5, class_name="fast"),  # waits for a step: too late
        arrival(at_s=20.0, class_name="slow"),
    ]
    result = simulate(config(*classes), arrivals, COST)
    fast, slow, unused = report_by_class(result, classes)
    assert (fast.num_requests, fast.num_finished, fast.attained) == (2, 2, 0.5)
    assert fast.goodput == pytest.approx(1 / result.end_s)
    assert slow.attained == 1.0
    assert slow.median_ttft_s == pytest.approx(2.0)
    assert (unused.num_requests, unused.attained) == (0, pytest.approx(float("nan"), nan_ok=True))


class TestPredictors:
    arrivals = [arrival(output=n) for n in (5, 50, 20)]  # noqa: RUF012 - never changed

    def guesses(self, predictor: Oracle | Inverted | Noisy) -> list[float]:
        made = [request_of(number, each, 128) for number, each in enumerate(self.arrivals)]
        return [predictor.predict(request) for request in made]

    def test_the_oracle_knows(self) -> None:
        assert self.guesses(Oracle(self.arrivals)) == [5, 50, 20]

    def test_the_inverted_one_has_the_opposite_order(self) -> None:
        assert self.guesses(Inverted(Oracle(self.arrivals))) == [45, 0, 30]

    def test_the_noisy_one_errs_the_same_way_each_time(self) -> None:
        noisy = Noisy(Oracle(self.arrivals), 1.0, seed=3)
        assert self.guesses(noisy) == self.guesses(noisy)
        assert self.guesses(noisy) != [5, 50, 20]
        assert all(0 <= guess <= 128 for guess in self.guesses(noisy))

    def test_ids_are_places_in_the_workload(self) -> None:
        assert request_of(7, self.arrivals[0], 128).request_id == request_id_of(7)
