"""A simulation reports in the records of load tests."""

from __future__ import annotations

import pytest

from headway.core.classes import ServiceClass
from headway.core.config import SchedulerConfig
from headway.core.costs import StepCosts
from headway.core.limits import SchedulerLimits
from headway.report import Outcome, figures
from headway.sim import simulate
from headway.sim.as_report import records_of
from headway.workload import Arrival, Conduct

COST = StepCosts(base_s=1.0, prefill_token_s=0.0, decode_s=0.0)


def config(service_class: ServiceClass) -> SchedulerConfig:
    limits = SchedulerLimits(
        num_blocks=64,
        block_size=16,
        max_model_len=512,
        max_num_seqs=1,
        max_num_batched_tokens=128,
    )
    return SchedulerConfig(limits=limits, classes=(service_class,))


def test_records_have_the_times_of_the_virtual_clock() -> None:
    arrivals = [
        Arrival(at_s=0.0, prompt_tokens=8, output_tokens=3, tenant="a"),
        Arrival(at_s=0.5, prompt_tokens=8, output_tokens=1),
        Arrival(at_s=0.5, prompt_tokens=8, output_tokens=1),
    ]
    impatient = ServiceClass(queue_timeout_s=3.0, max_queue_requests=1)
    result = simulate(config(impatient), arrivals, COST)
    first, second, third = records_of(result.requests)
    assert first.outcome is Outcome.COMPLETED
    assert (first.ttft_s, first.tpot_s, first.e2el_s) == pytest.approx((1.0, 1.0, 3.0))
    assert (first.output_tokens, first.input_tokens, first.tenant) == (3, 8, "a")
    assert first.late_s == 0.0
    assert second.queued_s == pytest.approx(2.5)
    assert (third.outcome, third.error) == (Outcome.FAILED, "rejected queue_full")
    made = figures([first, second, third], result.end_s, {})
    assert (made.num_completed, made.num_failed) == (2, 1)
    assert made.latencies.queue is not None


def test_what_still_runs_is_unfinished() -> None:
    arrivals = [Arrival(at_s=0.0, prompt_tokens=8, output_tokens=50)]
    result = simulate(config(ServiceClass()), arrivals, COST, until_s=5.0)
    (only,) = records_of(result.requests)
    assert (only.outcome, only.ended_s) == (Outcome.UNFINISHED, None)


def test_only_who_got_so_far_has_stopped_reading_and_who_was_refused_is_told_why() -> None:
    stalls = Conduct(stalls_after_tokens=3, stalls_for_s=1.0)
    arrivals = [
        Arrival(at_s=0.0, prompt_tokens=8, output_tokens=4, conduct=stalls),
        Arrival(at_s=0.0, prompt_tokens=8, output_tokens=2, conduct=stalls),
        Arrival(at_s=0.0, prompt_tokens=600, output_tokens=4, conduct=stalls),
    ]
    far, near, refused = records_of(simulate(config(ServiceClass()), arrivals, COST).requests)
    assert (far.stalled, near.stalled, refused.stalled) == (True, False, False)
    assert refused.error == "rejected context_length_exceeded"
    assert "512" in refused.detail
