"""Random lives of a scheduler that are found by hypothesis, and made short when they break.

``test_random_moves.py`` lives many more, faster; here a failure comes as the fewest moves that
show it.
"""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from scheduler_life import Life

from headway.core.classes import PolicyName, ServiceClass
from headway.core.config import PolicyConfig, PredictorName, SchedulerConfig
from headway.core.limits import Batching, PreemptionChoice, SchedulerLimits, VictimChoice
from headway.core.plan import RequestId
from headway.core.request import Request
from headway.core.sampling import SamplingParams

STOP_TOKEN = 7
CONTEXT = 24
PROMPTS = ((1, 1, 2, 3) * 7, (1, 1, 2, 0, 2, 3, 3) * 4)


@st.composite
def limits(draw: st.DrawFn) -> SchedulerLimits:
    num_blocks, block_size = draw(st.integers(1, 12)), draw(st.integers(1, 4))
    max_num_seqs = draw(st.integers(1, 5))
    is_chunked = draw(st.booleans())
    longest = min(CONTEXT, num_blocks * block_size + 1)
    extra = draw(st.integers(0, 12)) + (0 if is_chunked else longest)
    threshold = draw(st.none() | st.integers(2, 9))
    preemption = draw(st.sampled_from(PreemptionChoice))
    return SchedulerLimits(
        num_blocks=num_blocks,
        block_size=block_size,
        max_model_len=CONTEXT,
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=max_num_seqs + extra,
        batching=draw(st.sampled_from(Batching)),
        max_waiting_time_s=draw(st.sampled_from((0.0, 2.0))),
        max_prefill_chunk_tokens=draw(st.none() | st.integers(1, 6)) if is_chunked else None,
        enable_chunked_prefill=is_chunked,
        max_partial_prefills=draw(st.none() | st.integers(1, 2)),
        long_prefill_threshold_tokens=threshold,
        max_long_partial_prefills=draw(st.none() | st.just(1)) if threshold else None,
        max_queue_requests=draw(st.none() | st.integers(0, 4)),
        max_queue_tokens=draw(st.none() | st.integers(1, 20)),
        max_passes=draw(st.integers(0, 3)),
        watermark_blocks=draw(st.integers(0, min(2, num_blocks - 1))),
        enable_prefix_sharing=draw(st.booleans()),
        num_swap_blocks=draw(st.integers(preemption is PreemptionChoice.SWAP, 8)),
        preemption_victim=draw(st.sampled_from(VictimChoice)),
        preemption_mode=preemption,
        max_preemptions=draw(st.integers(0, 3)),
        max_plans_in_flight=draw(st.integers(1, 2)),
    )


@st.composite
def service_class(draw: st.DrawFn, name: str, low: float = 0.0) -> ServiceClass:
    return ServiceClass(
        name=name,
        policy=draw(st.none() | st.sampled_from(PolicyName)),
        priority=draw(st.integers(0, 2)),
        ttft_target_s=draw(st.none() | st.just(0.5)),
        tpot_target_s=draw(st.none() | st.just(0.05)),
        min_running_share=low,
        max_running_share=draw(st.sampled_from((1.0, 0.5))),
        max_queue_requests=draw(st.none() | st.integers(0, 2)),
        max_output_tokens=draw(st.none() | st.just(3)),
        best_effort=draw(st.booleans()),
    )


@st.composite
def configs(draw: st.DrawFn) -> SchedulerConfig:
    found = draw(limits())
    low = draw(st.sampled_from((0.0, 0.5)))
    classes = [draw(service_class("default", low))]
    if draw(st.booleans()):
        classes.append(draw(service_class("batch")))
    can_reserve = (
        found.batching is not Batching.STATIC
        and found.enable_chunked_prefill
        and found.max_num_seqs > 1
        and found.num_blocks > 3
        and low == 0.0
    )
    if can_reserve and draw(st.booleans()):
        slots = draw(st.integers(1, found.max_num_seqs - 1))
        blocks = draw(st.integers(1, found.num_blocks - 2))
        classes.append(ServiceClass(name="reserved", reserved_slots=slots, reserved_blocks=blocks))
    policy = PolicyConfig(
        name=draw(st.sampled_from(PolicyName)),
        predictor=draw(st.sampled_from(PredictorName)),
        ageing_s=draw(st.sampled_from((1.0, 60.0))),
        priority_threshold=draw(st.none() | st.integers(1, 2)),
    )
    return SchedulerConfig(limits=found, policy=policy, classes=tuple(classes))


class SchedulerLife(RuleBasedStateMachine):
    @initialize(config=configs())
    def make(self, config: SchedulerConfig) -> None:
        self.life = Life(config)
        self.num_requests = 0

    @rule(
        prompt=st.sampled_from(PROMPTS),
        length=st.integers(0, 26),
        max_tokens=st.integers(0, 10),
        min_tokens=st.integers(0, 2),
        n=st.integers(1, 3),
        salt=st.sampled_from(("", "s")),
        tenant=st.sampled_from(("red", "blue")),
        priority=st.none() | st.integers(0, 3),
        queue_timeout=st.none() | st.integers(0, 5),
        request_timeout=st.none() | st.integers(0, 20),
        data=st.data(),
    )
    def submit(
        self,
        prompt: tuple[int, ...],
        length: int,
        max_tokens: int,
        min_tokens: int,
        n: int,
        salt: str,
        tenant: str,
        priority: int | None,
        queue_timeout: int | None,
        request_timeout: int | None,
        data: st.DataObject,
    ) -> None:
        names = [each.name for each in self.life.config.classes]
        self.life.submit(
            Request(
                request_id=RequestId(f"r{self.num_requests}"),
                prompt_token_ids=prompt[:length],
                sampling=SamplingParams(
                    max_tokens=max_tokens, min_tokens=min_tokens, stop_token_ids=(STOP_TOKEN,)
                ),
                n=n,
                class_name=data.draw(st.sampled_from(names)),
                tenant=tenant,
                priority=priority,
                queue_timeout_s=queue_timeout,
                request_timeout_s=request_timeout,
                cache_salt=salt,
            )
        )
        self.num_requests += 1

    @precondition(lambda self: self.num_requests > 0)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        number = data.draw(st.integers(0, self.num_requests))
        self.life.cancel(RequestId(f"r{number}"))

    @precondition(lambda self: self.num_requests > 0)
    @rule(data=st.data())
    def stop(self, data: st.DataObject) -> None:
        number = data.draw(st.integers(0, self.num_requests - 1))
        seen = self.life.witness.requests[RequestId(f"r{number}")]
        index = data.draw(st.integers(0, seen.request.n - 1))
        self.life.stop(seen.request.request_id, index)

    @rule(seconds=st.sampled_from((0.01, 1.0, 4.0)))
    def wait(self, seconds: float) -> None:
        self.life.wait(seconds)

    @precondition(lambda self: self.life.can_schedule)
    @rule(failures=st.sampled_from((0.0, 0.0, 0.0, 1.0)), chance=st.randoms(use_true_random=False))
    def schedule(self, failures: float, chance: object) -> None:
        self.life.schedule(chance, failures)  # type: ignore[arg-type]

    @precondition(lambda self: self.life.in_flight)
    @rule(elapsed_s=st.sampled_from((0.0, 0.01)))
    def apply(self, elapsed_s: float) -> None:
        self.life.apply(elapsed_s)

    def teardown(self) -> None:
        if hasattr(self, "life"):
            self.life.run_dry()


SchedulerLife.TestCase.settings = settings(
    max_examples=200,
    stateful_step_count=50,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
TestSchedulerLife = SchedulerLife.TestCase
