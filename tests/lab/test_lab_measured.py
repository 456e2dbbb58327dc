"""Each measured experiment runs on the real executor: what doesn't depend on time is so."""

from __future__ import annotations

import pytest
from benchmarks.lab import bench, chunks, decode_and_prefill, static_and_continuous, two_limits
from benchmarks.lab.bench import Bench

from headway.core.limits import SchedulerLimits
from headway.engine.clock import RealClock
from headway.executors.cpu import CpuExecutor
from headway.testing.tiny_models import tiny_checkpoint, tiny_config
from headway.workload import Arrival

NUM_BLOCKS, BLOCK_SIZE = 1024, 16


@pytest.fixture(scope="module")
def tiny() -> Bench:
    """A small model with the vocabulary and the context that the experiments expect."""
    checkpoint = tiny_checkpoint(tiny_config(vocab_size=40_000, max_position_embeddings=8192))
    executor = CpuExecutor(checkpoint, num_blocks=NUM_BLOCKS, block_size=BLOCK_SIZE, num_threads=1)
    limits = SchedulerLimits(
        num_blocks=NUM_BLOCKS,
        block_size=BLOCK_SIZE,
        max_model_len=1024,
        max_num_seqs=8,
        max_num_batched_tokens=128,
    )
    vocab_size = checkpoint.config.vocab_size
    return Bench("tiny", executor, RealClock(), vocab_size=vocab_size, limits=limits)


def test_prompts_of_a_batch_are_one_step_and_decodes_the_others(tiny: Bench) -> None:
    arrivals = [Arrival(at_s=0.0, prompt_tokens=16, output_tokens=4)] * 3
    run = tiny.run(arrivals, max_num_seqs=3, max_num_batched_tokens=48)
    shapes = [(step.shape.num_prefill_tokens, step.shape.num_decodes) for step in run.steps]
    assert shapes == [(48, 0), (0, 3), (0, 3), (0, 3)]
    assert run.num_joins == 1
    assert run.padding == 0


def test_decode_and_prefill_has_a_time_for_each_batch(tiny: Bench) -> None:
    outcome = decode_and_prefill.measure(tiny, 1, batches=(1, 2))
    assert outcome.batches == (1, 2)
    assert len(outcome.prefill_s) == len(outcome.decode_s) == 2
    assert min(*outcome.prefill_s, *outcome.decode_s) > 0


def test_static_batches_pad_and_continuous_ones_do_not(tiny: Bench) -> None:
    outcome = static_and_continuous.measure(tiny, 1, num_requests=4, slots=2)
    (static, continuous), (equal_static, equal_continuous) = outcome.mixed, outcome.equal
    assert static.padding > 0 == continuous.padding
    assert static.num_steps > continuous.num_steps
    assert continuous.num_joins > static.num_joins
    assert continuous.num_mixed > static.num_mixed == 0
    assert equal_static.padding == equal_continuous.padding == 0
    assert len(static.ends_s) == len(continuous.ends_s) == 4


def test_no_step_goes_beyond_either_limit(tiny: Bench) -> None:
    arrivals = two_limits.workload(8, long_prompt=100)
    outcome = two_limits.measure(tiny, 1, arrivals=arrivals, settings=((2, 64), (4, 32)))
    first, second = outcome.settings
    assert (first.most_seqs, first.most_tokens) == (2, 64)
    assert (second.most_seqs, second.most_tokens) == (4, 32)


def test_chunks_are_measured_in_their_order(tiny: Bench) -> None:
    outcome = chunks.measure(tiny, 2, prompt_tokens=200, chunks=(None, 64))
    assert [way.chunk for way in outcome.ways] == [None, 64]
    for way in outcome.ways:
        assert 0 < way.gaps.p50_itl_s <= way.gaps.p99_itl_s <= way.gaps.longest_itl_s


def test_a_bench_can_be_used_again_whatever_ran_before(tiny: Bench) -> None:
    arrivals = [Arrival(at_s=0.0, prompt_tokens=20, output_tokens=8)] * 4
    runs = [tiny.run(arrivals, max_num_seqs=4) for _ in range(2)]
    shapes = [[step.shape for step in run.steps] for run in runs]
    assert shapes[0] == shapes[1]


def test_the_simulated_bench_is_the_same_at_every_run() -> None:
    first, second = (two_limits.measure(bench.simulated(), 1) for _ in range(2))
    assert first == second
