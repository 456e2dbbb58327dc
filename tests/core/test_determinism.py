"""Invariant 8: same stimuli, any PYTHONHASHSEED, the same plan log, byte for byte."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys

_LIFE = """
import random, sys
from headway.core.limits import SchedulerLimits
from headway.core.plan import Idle, RequestId, SampledToken, StepResult
from headway.core.request import Request
from headway.core.sampling import SamplingParams
from headway.core.scheduler import Scheduler
from headway.engine.records import plan_bytes

chance = random.Random(5)
limits = SchedulerLimits(
    num_blocks=40, block_size=4, max_model_len=100, max_num_seqs=8, max_num_batched_tokens=32,
    max_queue_requests=20,
)
scheduler = Scheduler(limits)
now = 0.0
for number in range(1500):
    now += chance.random()
    if chance.random() < 0.6:
        scheduler.submit(Request(
            request_id=RequestId(f"request-{number}"),
            prompt_token_ids=tuple(range(chance.randint(1, 60))),
            sampling=SamplingParams(max_tokens=chance.randint(1, 30), stop_token_ids=(3,)),
            n=chance.randint(1, 3),
            queue_timeout_s=20.0,
        ), now)
    if chance.random() < 0.2:
        scheduler.cancel(RequestId(f"request-{chance.randint(0, number)}"), now, "gone")
    plan = scheduler.schedule(now)
    sys.stdout.buffer.write(plan_bytes(plan))
    if not isinstance(plan, Idle):
        tokens = {
            part.sequence_id: SampledToken(chance.randint(0, 40))
            for part in plan.slices if part.sample
        }
        failures = {plan.slices[-1].sequence_id: "broken"} if chance.random() < 0.02 else {}
        scheduler.apply(StepResult(plan.step_id, tokens, failures), now)
    scheduler.check()
print(scheduler.statistics().num_preemptions, file=sys.stderr)
"""


def _plan_log(hash_seed: str) -> tuple[str, int]:
    done = subprocess.run(
        [sys.executable, "-c", _LIFE],
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        check=True,
    )
    assert done.stdout.count(b"\n") == 1500
    return hashlib.sha256(done.stdout).hexdigest(), int(done.stderr)


def test_plan_log_does_not_depend_on_the_hash_seed() -> None:
    first, num_preemptions = _plan_log("1")
    second, _ = _plan_log("4242")
    assert first == second
    assert num_preemptions > 20, "the life is too easy to prove anything"
