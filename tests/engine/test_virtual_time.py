"""The same loop on a virtual clock: steps take their predicted time, and idleness costs nothing."""

from __future__ import annotations

import pytest

from headway.core import events as ev
from headway.core.config import SchedulerConfig
from headway.core.costs import StepCosts
from headway.core.limits import SchedulerLimits
from headway.core.plan import RequestId
from headway.core.request import Request
from headway.core.sampling import SamplingParams
from headway.core.scheduler import Scheduler
from headway.engine.clock import VirtualClock
from headway.engine.loop import Engine
from headway.executors.simulated import SimulatedExecutor

LIMITS = SchedulerLimits(
    num_blocks=64, block_size=4, max_model_len=128, max_num_seqs=1, max_num_batched_tokens=64
)


def make() -> Engine:
    clock = VirtualClock()
    cost = StepCosts(base_s=1.0, prefill_token_s=0.5, decode_s=0.25)
    executor = SimulatedExecutor(cost, clock, num_blocks=64, block_size=4, vocab_size=50)
    return Engine(Scheduler(SchedulerConfig(limits=LIMITS)), executor, clock)


def request(name: str, num_prompt: int, max_tokens: int, **timeouts: float) -> Request:
    return Request(
        request_id=RequestId(name),
        prompt_token_ids=tuple(range(num_prompt)),
        sampling=SamplingParams(max_tokens=max_tokens),
        **timeouts,
    )


def test_a_step_takes_its_predicted_time() -> None:
    engine = make()
    engine.submit(request("a", 8, 3))
    seen = []
    while not (outcome := engine.step()).is_idle:
        assert any(isinstance(event, ev.TokenReady) for event in outcome.events)
        seen.append(engine.clock.now())
    assert seen == [5.0, 6.25, 7.5]


def test_an_idle_engine_sleeps_until_the_next_deadline() -> None:
    """Arrivals and deadlines move the clock, as a simulator does it; nobody waits for real."""
    engine = make()
    clock = engine.clock
    assert isinstance(clock, VirtualClock)
    engine.submit(request("running", 8, 60, request_timeout_s=40.0))
    engine.submit(request("queued", 8, 1, queue_timeout_s=10.0))
    expired: dict[str, float] = {}
    while engine.scheduler.statistics().num_live:
        outcome = engine.step()
        for event in outcome.events:
            if isinstance(event, ev.Expired):
                expired[event.request_id] = clock.now()
                assert event.waited_s >= (10.0 if event.request_id == "queued" else 40.0)
        if outcome.wake_at is not None:
            clock.sleep_until(outcome.wake_at)
        engine.scheduler.check()
    assert expired["queued"] == pytest.approx(10.0, abs=1.25)
    assert expired["running"] == pytest.approx(40.0, abs=1.25)


def test_an_ended_request_leaves_no_deadline_behind() -> None:
    engine = make()
    clock = engine.clock
    assert isinstance(clock, VirtualClock)
    engine.submit(request("prompt only", 8, 0, request_timeout_s=500.0))
    assert not engine.step().is_idle
    outcome = engine.step()
    assert (outcome.is_idle, outcome.wake_at) == (True, None)


def test_virtual_time_does_not_run_backwards() -> None:
    clock = VirtualClock(5.0)
    clock.sleep_until(3.0)
    assert clock.now() == 5.0
    with pytest.raises(ValueError, match="backwards"):
        clock.sleep(-1.0)
