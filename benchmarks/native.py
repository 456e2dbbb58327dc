"""How fast the cpu executor computes: decode at several batch sizes, and prefill.

    python -m benchmarks.native [--model smollm2-135m-instruct] [--batch 1 8 32 64] [--threads N]

Machines have phases, so the measurements take turns, in short bursts. A burst counts with the
median of its steps; the best burst is printed beside the median one, with the fork-join latency
around the best: two figures compare where their latencies do. The fastest single step says what the
code can do on a machine that others use too.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from benchmarks.command import at_least_one, status_of
from headway.core.plan import (
    NewSequence,
    RequestId,
    SequenceId,
    Slice,
    StepPlan,
    TableUpdate,
)
from headway.core.sampling import SamplingParams
from headway.executors.cpu import CpuExecutor
from headway.models.catalog import resolve
from headway.models.loading import open_checkpoint

BLOCK_SIZE = 16


@dataclass
class Case:
    """One thing to measure; ``burst`` returns the tokens a second of each of its steps."""

    name: str
    burst: Callable[[], list[float]]
    rates: list[float] = field(default_factory=list)  # the median of each burst
    fastest: float = 0.0
    latencies_ns: list[float] = field(default_factory=list)


class Driver:
    """Runs plans on an executor, with sequences of random tokens."""

    def __init__(self, executor: CpuExecutor, vocab_size: int) -> None:
        self._executor = executor
        self._vocab_size = vocab_size
        self._step_id = 0
        self._rng = random.Random(0)

    def begin(self, batch: int, prompt: int, room: int) -> float:
        """Prefill ``batch`` sequences in one step; return the seconds."""
        blocks = -(-(prompt + room) // BLOCK_SIZE)
        news, tables, slices = [], [], []
        for i in range(batch):
            tokens = tuple(self._rng.randrange(self._vocab_size) for _ in range(prompt))
            sampling = SamplingParams(max_tokens=room, temperature=0.0)
            news.append(NewSequence(SequenceId(i), RequestId(str(i)), 0, tokens, sampling))
            ids = tuple(range(i * blocks, (i + 1) * blocks))
            tables.append(TableUpdate(SequenceId(i), 0, ids))
            slices.append(Slice(SequenceId(i), 0, prompt, True))
        released = tuple(SequenceId(i) for i in range(1000))
        return self._run(
            StepPlan(self._step_id, tuple(slices), tuple(news), tuple(tables), released)
        )

    def decode(self, batch: int, position: int) -> float:
        slices = tuple(Slice(SequenceId(i), position, 1, True) for i in range(batch))
        return self._run(StepPlan(self._step_id, slices))

    def _run(self, plan: StepPlan) -> float:
        self._step_id += 1
        started = time.perf_counter()
        self._executor.run(plan)
        return time.perf_counter() - started


def decode_burst(driver: Driver, batch: int, prompt: int, steps: int) -> list[float]:
    driver.begin(batch, prompt, steps)
    return [batch / driver.decode(batch, prompt + i) for i in range(steps)]


def prefill_burst(driver: Driver, batch: int, prompt: int) -> list[float]:
    return [batch * prompt / driver.begin(batch, prompt, 1)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="smollm2-135m-instruct")
    parser.add_argument("--quantization", default="auto")
    parser.add_argument("--kv-dtype", default="bfloat16")
    parser.add_argument("--isa", default="auto")
    parser.add_argument("--threads", type=at_least_one)
    parser.add_argument("--batch", type=at_least_one, nargs="*", default=[1, 8, 32, 64])
    parser.add_argument("--prompt", type=at_least_one, default=128)
    parser.add_argument("--rounds", type=at_least_one, default=4)
    parser.add_argument("--steps", type=at_least_one, default=24)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    checkpoint = open_checkpoint(resolve(args.model, lambda text: print(text, file=sys.stderr)))
    most = max([*args.batch, 8])
    started = time.perf_counter()
    executor = CpuExecutor(
        checkpoint,
        num_blocks=most * -(-(args.prompt + args.steps + 1) // BLOCK_SIZE) + 8,
        block_size=BLOCK_SIZE,
        quantization=args.quantization,
        kv_dtype=args.kv_dtype,
        num_threads=args.threads,
        isa=args.isa,
    )
    load_s = time.perf_counter() - started
    driver = Driver(executor, checkpoint.config.vocab_size)
    cases = [
        Case(
            f"decode, {b} at once",
            lambda b=b: decode_burst(
                driver, b, args.prompt, args.steps if b > 1 else 2 * args.steps
            ),
        )
        for b in args.batch
    ]
    cases.append(Case(f"prefill, 8 × {args.prompt}", lambda: prefill_burst(driver, 8, args.prompt)))
    for _ in range(args.rounds):
        for case in cases:
            before = executor.ops.core.fork_join_latency(20)
            rates = case.burst()
            case.rates.append(statistics.median(rates))
            case.fastest = max(case.fastest, *rates)
            case.latencies_ns.append(min(before, executor.ops.core.fork_join_latency(20)))
    report(cases, load_s, executor.ops.core.isa, as_json=args.json)


def report(cases: list[Case], load_s: float, isa: str, *, as_json: bool) -> None:
    if as_json:
        rows = {
            c.name: {"tok/s": c.rates, "fastest": c.fastest, "fork_join_ns": c.latencies_ns}
            for c in cases
        }
        print(json.dumps({"isa": isa, "load_s": load_s, "cases": rows}))
        return
    print(f"{isa}, loaded in {load_s:.2f} s")
    print(f"{'tok/s':24}{'best burst':>12}{'median':>10}{'fastest step':>14}{'fork-join ns':>14}")
    for case in cases:
        best = max(case.rates)
        latency = case.latencies_ns[case.rates.index(best)]
        median = statistics.median(case.rates)
        print(f"{case.name:24}{best:12.0f}{median:10.0f}{case.fastest:14.0f}{latency:14.0f}")


if __name__ == "__main__":
    raise SystemExit(status_of(main))
