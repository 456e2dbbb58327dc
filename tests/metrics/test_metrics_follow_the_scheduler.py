"""The real scheduler's events, under load, refusals, cancels, failures and preemption."""

import random

import pytest
from prometheus_client.parser import text_string_to_metric_families

from headway.core.config import SchedulerConfig
from headway.core.limits import SchedulerLimits
from headway.core.plan import Idle, RequestId, SampledToken, StepPlan, StepResult
from headway.core.request import Request
from headway.core.sampling import SamplingParams
from headway.core.scheduler import Scheduler
from headway.metrics import EngineMetrics

LIMITS = SchedulerLimits(
    num_blocks=12,
    block_size=4,
    max_model_len=40,
    max_num_seqs=4,
    max_num_batched_tokens=8,
    max_queue_requests=6,
)


def some_request(rng: random.Random, number: int) -> Request:
    """Sometimes too long, sometimes with the name of an earlier one."""
    return Request(
        request_id=RequestId(str(number if rng.random() < 0.9 else rng.randrange(number + 1))),
        prompt_token_ids=(1,) * rng.randint(1, 30),
        sampling=SamplingParams(max_tokens=rng.randint(1, 16), stop_token_ids=(0,)),
        n=rng.choice((1, 1, 2)),
        request_timeout_s=rng.choice((None, None, 20.0)),
    )


def answer(rng: random.Random, plan: StepPlan) -> StepResult:
    tokens = {part.sequence_id: SampledToken(rng.randrange(9)) for part in plan.slices}
    failed = {part.sequence_id: "broken" for part in plan.slices if rng.random() < 0.01}
    sampled = {part.sequence_id for part in plan.slices if part.sample} - set(failed)
    return StepResult(plan.step_id, {key: tokens[key] for key in sampled}, failed)


@pytest.mark.parametrize("seed", range(8))
def test_counts_agree_with_the_schedulers(seed: int) -> None:
    rng = random.Random(seed)
    scheduler = Scheduler(SchedulerConfig(limits=LIMITS))
    metrics = EngineMetrics("m", scheduler.statistics)
    for step in range(400):
        now = float(step)
        if rng.random() < 0.35 and step < 300:
            request = some_request(rng, step)
            metrics.on_submitted(request, now)
            metrics.on_events([scheduler.submit(request, now)], now)
        if rng.random() < 0.05:
            metrics.on_events(scheduler.cancel(RequestId(str(step - 3)), now, "left"), now)
        plan = scheduler.schedule(now)
        metrics.on_events(plan.events, now)
        if not isinstance(plan, Idle):
            metrics.on_events(scheduler.apply(answer(rng, plan), now + 0.5), now + 0.5)
        assert metrics.num_live == scheduler.statistics().num_live
    statistics = scheduler.statistics()
    assert statistics.num_live == 0
    assert statistics.num_preemptions > 0
    counted = outcomes(metrics)
    assert counted == {
        name: getattr(statistics, f"num_{name}")
        for name in ("finished", "failed", "cancelled", "expired", "rejected")
        if getattr(statistics, f"num_{name}")
    }


def outcomes(metrics: EngineMetrics) -> dict[str, int]:
    """Return the number of requests for each outcome, from the rendered page."""
    counted: dict[str, int] = {}
    for family in text_string_to_metric_families(metrics.render().decode()):
        for sample in family.samples:
            if sample.name == "headway_requests_total":
                outcome = sample.labels["outcome"]
                counted[outcome] = counted.get(outcome, 0) + int(sample.value)
    return counted
