"""100,000 random moves over all policies, modes and classes, in tiny pools and swap spaces.

A failure names the life that broke; ``python tests/core/test_random_moves.py SEED`` lives it again,
and without a seed it makes all the moves and counts what happened.
"""

from __future__ import annotations

import random
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import pytest
from scheduler_life import Life

from headway.core.classes import PolicyName, ServiceClass
from headway.core.config import PolicyConfig, PredictorName, SchedulerConfig
from headway.core.costs import StepCosts
from headway.core.events import RejectReason
from headway.core.limits import Batching, PreemptionChoice, SchedulerLimits, VictimChoice
from headway.core.plan import Idle, RequestId, StepPlan
from headway.core.request import PromptHashes, Request
from headway.core.sampling import SamplingParams

NUM_MOVES = 100_000
NUM_PARTS = 10
STOP_TOKEN = 7
CONTEXT = 32
TENANTS = ("", "red", "blue")
SALTS = ("", "", "", "", "s")


def a_config(seed: int) -> SchedulerConfig:
    """Return the configuration of a life: every combination of the first three comes in turn."""
    chance = random.Random(f"config {seed}")
    limits = some_limits(
        chance,
        tuple(Batching)[seed % 3],
        tuple(PreemptionChoice)[seed // 15 % 3],
    )
    policy = PolicyConfig(
        name=tuple(PolicyName)[seed // 3 % 5],
        predictor=chance.choice(tuple(PredictorName)),
        ageing_s=chance.choice((0.5, 5.0, 60.0)),
        priority_threshold=chance.choice((None, 1, 1, 2)),
        input_token_weight=chance.choice((0.1, 1.0)),
        tenant_weights=(("red", 3.0),) if chance.random() < 0.5 else (),
    )
    costs = StepCosts(prefill_token_s=chance.choice((0.00005, 0.001)))
    classes = some_classes(chance, limits)
    return SchedulerConfig(limits=limits, policy=policy, classes=classes, costs=costs)


def some_limits(
    chance: random.Random, batching: Batching, preemption: PreemptionChoice
) -> SchedulerLimits:
    num_blocks, block_size = (
        chance.randint(1, chance.choice((8, 24))),
        chance.choice((1, 2, 3, 4, 4)),
    )
    max_num_seqs = chance.choice((1, 2, 3, 4, 5, 6, 6))
    is_chunked = chance.random() < 0.75
    longest = min(CONTEXT, num_blocks * block_size + 1)
    budget = max_num_seqs + chance.choice((0, 3, 9, 16, 60))
    threshold = chance.choice((None, None, 4, 9))
    return SchedulerLimits(
        num_blocks=num_blocks,
        block_size=block_size,
        max_model_len=CONTEXT,
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=budget if is_chunked else max(budget, longest),
        batching=batching,
        max_waiting_time_s=chance.choice((0.0, 0.0, 0.05, 2.0)),
        max_prefill_chunk_tokens=chance.choice((None, None, 1, 5)) if is_chunked else None,
        enable_chunked_prefill=is_chunked,
        max_partial_prefills=chance.choice((None, None, 1, 2)),
        long_prefill_threshold_tokens=threshold,
        max_long_partial_prefills=None if threshold is None else chance.choice((None, 1)),
        max_queue_requests=chance.choice((None, None, None, None, None, 0, 3)),
        max_queue_tokens=30 if chance.random() < 0.1 else None,
        max_passes=chance.choice((0, 1, 3, 16)),
        watermark_blocks=min(chance.choice((0, 0, 1, 2)), num_blocks - 1),
        enable_prefix_sharing=chance.random() < 0.75,
        num_swap_blocks=chance.choice((0, 2, 5, 12)[preemption is PreemptionChoice.SWAP :]),
        preemption_victim=chance.choice(tuple(VictimChoice)),
        preemption_mode=preemption,
        max_preemptions=chance.choice((0, 1, 3, 3)),
        max_plans_in_flight=chance.choice((1, 2, 2)),
    )


def some_classes(chance: random.Random, limits: SchedulerLimits) -> tuple[ServiceClass, ...]:
    if chance.random() < 0.25:
        return (ServiceClass(),)
    max_num_seqs = limits.max_num_seqs
    can_reserve = (
        limits.batching is not Batching.STATIC
        and limits.enable_chunked_prefill
        and max_num_seqs > 1
        and limits.num_blocks > 3
    )
    if can_reserve and chance.random() < 0.5:
        slots, blocks = (
            chance.randint(1, max_num_seqs - 1),
            chance.randint(1, limits.num_blocks - 2),
        )
        return (
            a_class(chance, "default", 0.0),
            a_class(chance, "batch", 0.0),
            ServiceClass(
                name="reserved", priority=-1, reserved_slots=slots, reserved_blocks=blocks
            ),
        )
    lows = (0.0, chance.choice((0.0, 0.3, 0.5))) if max_num_seqs < 4 else (0.3, 0.5)
    return (a_class(chance, "default", lows[0]), a_class(chance, "batch", lows[1]))


def a_class(chance: random.Random, name: str, low: float) -> ServiceClass:
    return ServiceClass(
        name=name,
        weight=chance.choice((1.0, 4.0)),
        policy=chance.choice((None, None, *PolicyName)),
        priority=chance.choice((0, 0, 2)),
        ttft_target_s=chance.choice((None, 0.05, 1.0)),
        tpot_target_s=chance.choice((None, 0.01, 0.1)),
        min_running_share=low,
        max_running_share=chance.choice((1.0, 1.0, 1.0, max(low, 0.3), 0.7)),
        max_queue_requests=2 if chance.random() < 0.1 else None,
        max_queue_tokens=20 if chance.random() < 0.1 else None,
        max_output_tokens=3 if chance.random() < 0.15 else None,
        max_waiting_time_s=chance.choice((None, None, 0.0, 0.5)),
        queue_timeout_s=3.0 if chance.random() < 0.15 else None,
        request_timeout_s=8.0 if chance.random() < 0.15 else None,
        best_effort=chance.random() < 0.25,
    )


class Client:
    """Sends requests that often begin alike."""

    def __init__(self, chance: random.Random, config: SchedulerConfig) -> None:
        self.chance = chance
        self.num_positions = config.limits.num_kv_tokens
        self.class_names = [each.name for each in config.classes]
        self.prompts = [tuple(chance.randint(0, 3) for _ in range(CONTEXT)) for _ in range(2)]
        self.has_hashes = chance.random() < 0.2
        self.stretch_tokens = chance.choice((2, 4, 6))
        self.names: dict[tuple[int, ...], int] = {}
        self.num_requests = 0

    def request(self) -> Request:
        chance = self.chance
        self.num_requests += 1
        # mostly so long that some fit into the pool, and outgrow it together
        most = min(self.num_positions // chance.choice((1, 2, 4, 4, 8)) + 1, CONTEXT)
        prompt = chance.choice(self.prompts)[
            : chance.randint(0 if chance.random() < 0.1 else 1, most)
        ]
        max_tokens = min(chance.choice((0, 1, 5, 8, 12, 16)), self.num_positions // 2 + 1)
        return Request(
            request_id=RequestId(f"r{self.num_requests}"),
            prompt_token_ids=prompt,
            sampling=SamplingParams(
                max_tokens=max_tokens,
                min_tokens=chance.randint(0, min(max_tokens, 2)),
                stop_token_ids=chance.choice(((), (), (STOP_TOKEN,))),
                seed=chance.randint(0, 1),
                prompt_logprobs=chance.choice((None, None, None, None, 0)),
            ),
            n=chance.choice((1, 1, 1, 1, 2, 4)),
            class_name=chance.choice(self.class_names),
            tenant=chance.choice(TENANTS),
            priority=chance.choice((None, None, 0, 1, 5)),
            queue_timeout_s=2.0 if chance.random() < 0.1 else None,
            request_timeout_s=5.0 if chance.random() < 0.1 else None,
            expected_output_tokens=chance.choice((None, 2, 9)),
            cache_salt=chance.choice(SALTS),
            prompt_hashes=self.hashes(prompt) if self.has_hashes else None,
        )

    def hashes(self, prompt: tuple[int, ...]) -> PromptHashes:
        ends = range(self.stretch_tokens, len(prompt) + self.stretch_tokens, self.stretch_tokens)
        ids = (self.names.setdefault(prompt[:end], len(self.names)) for end in ends)
        num_known = self.chance.choice((len(ends), len(ends), max(len(ends) - 2, 0)))
        return PromptHashes(self.stretch_tokens, tuple(ids)[:num_known])

    def again(self, life: Life) -> None:
        """Send what can only be refused."""
        request = self.request()
        if self.chance.random() < 0.5:
            unknown = replace(request, class_name="nobody's")
            life.submit_in_vain(unknown, RejectReason.INVALID)
        else:
            twin = self.chance.choice(life.witness.live())
            life.submit_in_vain(
                replace(request, request_id=twin.request.request_id), RejectReason.DUPLICATE
            )


def live(
    seed: int,
    num_moves: int = 250,
    config: SchedulerConfig | None = None,
    on_plan: Callable[[StepPlan | Idle], object] | None = None,
) -> Life:
    """Live the life with this number; a failure names it."""
    config = config or a_config(seed)
    life = Life(config)
    life.on_plan = on_plan
    try:
        move_at_random(life, random.Random(f"moves {seed}"), num_moves)
        life.run_dry()
    except Exception as error:
        error.add_note(f"in life {seed}, at move {life.num_moves}, of {config}")
        raise
    return life


def move_at_random(life: Life, chance: random.Random, num_moves: int) -> None:
    client = Client(chance, life.config)
    failures = chance.choice((0.0, 0.0, 0.02, 0.1))
    while life.num_moves < num_moves:
        dice = chance.random()
        if dice < (0.04 if len(life.witness.live()) > 8 else 0.30):
            life.submit(client.request())
        elif dice < 0.315 and client.num_requests:
            life.cancel(RequestId(f"r{chance.randint(0, client.num_requests + 1)}"))
        elif dice < 0.32 and life.witness.live():
            client.again(life)
        elif dice < 0.335 and life.witness.live():
            seen = chance.choice(life.witness.live())
            life.stop(seen.request.request_id, chance.randrange(seen.request.n))
        elif dice < 0.38:
            life.wait(chance.choice((0.0, 0.01, 0.1, 0.1, 1.0, 4.0)))
        elif life.can_schedule and (not life.in_flight or chance.random() < 0.5):
            life.schedule(chance, failures)
        elif life.in_flight:
            life.apply(chance.choice((0.0, 0.004, 0.02)))


@pytest.mark.parametrize("part", range(NUM_PARTS))
def test_no_invariant_breaks(part: int) -> None:
    num_moves, seed = 0, part
    while num_moves < NUM_MOVES // NUM_PARTS:
        num_moves += live(seed).num_moves
        seed += NUM_PARTS


def test_first_come_first_served_takes_nothing_from_the_oldest() -> None:
    num_preemptions = 0
    for seed in range(60):
        limits = replace(
            a_config(seed).limits,
            max_passes=0,
            batching=Batching.CONTINUOUS,
            num_blocks=10,
            max_num_batched_tokens=CONTEXT,
        )
        num_preemptions += live(seed, config=SchedulerConfig(limits=limits)).witness.num_preemptions
    assert num_preemptions > 100, "the lives are too easy to prove anything"


def main(seeds: list[int]) -> None:
    """Live these lives, or without any, as many as the test; and say how much happened."""
    totals: Counter[str] = Counter()
    for seed in seeds or range(1_000_000):
        life = live(seed)
        seen = life.scheduler.statistics()
        totals.update(
            {
                "lives": 1,
                "moves": life.num_moves,
                "steps": seen.num_steps,
                "requests": seen.num_submitted,
                "preemptions": seen.num_preemptions,
                "blocks swapped out": seen.num_swapped_out_blocks,
                "prompt tokens found in the prefix cache": seen.num_cached_tokens,
                "failed requests": seen.num_failed,
            }
        )
        if not seeds and totals["moves"] >= NUM_MOVES:
            break
    for what, number in totals.items():
        print(f"{number:>9,} {what}")


if __name__ == "__main__":
    main([int(each) for each in sys.argv[1:]])
