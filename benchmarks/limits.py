"""How far each part of a step of the cpu executor is from what the machine can do.

    python -m benchmarks.limits [--model smollm2-135m-instruct] [--batch 1 8 32 64] [--context 128]

A part can't be faster than reading its weights, or its keys and values, from memory, nor than its
products at the highest rate of the processor; both rates are measured first, with all threads. The
greater of the two is the part's bound. What stays in the caches from one step to the next is read
faster than memory, so a part can be above 100 % of its bound.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from benchmarks.command import at_least_one, status_of
from benchmarks.native import BLOCK_SIZE, Driver
from headway.assembly import kv_bytes_per_block
from headway.executors.cpu import CpuExecutor, usable_cores
from headway.kernels import _native
from headway.models.catalog import resolve
from headway.models.config import ModelConfig
from headway.models.loading import open_checkpoint

LAYERS, HEAD, ATTENTION, ROWS, REST = (
    "products of the layers",
    "output head",
    "attention",
    "norms, gate, rotation",
    "outside the kernels",
)
ROW_OPERATIONS = (
    "embed",
    "rms_norm",
    "final_norm",
    "norm_heads",
    "rotate_and_store",
    "silu_mul",
    "are_finite",
)


@dataclass
class Part:
    """What one part of a step took, read and multiplied."""

    seconds: float = 0.0
    num_bytes: float = 0.0
    int8_ops: float = 0.0
    bf16_ops: float = 0.0

    def bound(self, limits: _native.Limits) -> float:
        """Return the least seconds that the machine needs."""
        return max(
            self.num_bytes / limits.read_bytes_per_s,
            self.int8_ops / limits.int8_ops_per_s + self.bf16_ops / limits.bf16_ops_per_s,
        )


class Watch:
    """Measures the operations of one executor by wrapping them, called one by one."""

    def __init__(self, executor: CpuExecutor) -> None:
        model: Any = executor._executor
        model._forward = model._model.forward
        ops = executor.ops
        self.parts: defaultdict[str, Part] = defaultdict(Part)
        for name in ("linear", "logits", "attention", *ROW_OPERATIONS):
            setattr(ops, name, self._watched(name, getattr(ops, name)))

    def _watched(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        kind = {"linear": LAYERS, "logits": HEAD, "attention": ATTENTION}.get(name, ROWS)

        def watched(*args: Any) -> Any:
            started = time.perf_counter()
            result = call(*args)
            part = self.parts[kind]
            part.seconds += time.perf_counter() - started
            if name == "linear":
                count_product(part, args[0].shape, result.shape, args[1])
            elif name == "logits":
                count_product(part, (len(args[1]), args[0].shape[1]), result.shape, args[2])
            return result

        return watched


def count_product(part: Part, x: tuple[int, int], out: tuple[int, int], weights: Any) -> None:
    part.num_bytes += weights.num_bytes
    operations = 2 * x[0] * x[1] * out[1]
    if weights.activations.startswith("INT8"):
        part.int8_ops += operations
    else:
        part.bf16_ops += operations


@dataclass
class Case:
    """A step: ``positions`` are read from the pool, ``seen`` is their sum over all rows."""

    name: str
    tokens: int
    positions: int
    seen: int
    run: Callable[[], float]
    steps: list[dict[str, Part]] = field(default_factory=list)

    def measure(self, watch: Watch, config: ModelConfig, position_bytes: int) -> None:
        watch.parts.clear()
        total = self.run()
        parts = dict(watch.parts)
        attention = parts[ATTENTION]
        attention.num_bytes = float(position_bytes * self.positions)
        width = config.num_layers * config.num_heads * config.head_dim
        attention.bf16_ops = 4.0 * width * self.seen
        inside = sum(part.seconds for part in parts.values())
        self.steps.append({**parts, REST: Part(total - inside)})


def decode_case(driver: Driver, batch: int, context: int, rounds: int) -> Case:
    driver.begin(batch, context, rounds)
    positions = itertools.count(context)

    def run() -> float:
        return driver.decode(batch, next(positions))

    return Case(f"decode, {batch} at {context}", batch, batch * context, batch * context, run)


def prefill_case(driver: Driver, batch: int, prompt: int) -> Case:
    def run() -> float:
        return driver.begin(batch, prompt, 1)

    seen = batch * prompt * (prompt + 1) // 2
    return Case(f"prefill, {batch} x {prompt}", batch * prompt, batch * prompt, seen, run)


def report(case: Case, limits: _native.Limits) -> None:
    total = sum(medians(case, name).seconds for name in (LAYERS, HEAD, ATTENTION, ROWS, REST))
    print(f"\n{case.name}: {1e3 * total:.2f} ms, {case.tokens / total:.0f} tokens/s")
    print(f"{'':24}{'ms':>8}{'of step':>9}{'GB/s':>8}{'Gop/s':>8}{'of bound':>10}")
    for name in (LAYERS, HEAD, ATTENTION, ROWS, REST):
        part = medians(case, name)
        line = f"{name:24}{1e3 * part.seconds:8.2f}{part.seconds / total:9.0%}"
        if part.num_bytes:
            operations = (part.int8_ops + part.bf16_ops) / part.seconds / 1e9
            line += f"{part.num_bytes / part.seconds / 1e9:8.1f}{operations:8.0f}"
            line += f"{part.bound(limits) / part.seconds:10.0%}"
        print(line)


def medians(case: Case, name: str) -> Part:
    steps = [step[name] for step in case.steps]
    seconds = statistics.median(part.seconds for part in steps)
    return Part(seconds, steps[0].num_bytes, steps[0].int8_ops, steps[0].bf16_ops)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="smollm2-135m-instruct")
    parser.add_argument("--quantization", default="auto")
    parser.add_argument("--kv-dtype", default="bfloat16")
    parser.add_argument("--isa", default="auto")
    parser.add_argument("--threads", type=at_least_one, default=usable_cores())
    parser.add_argument("--batch", type=at_least_one, nargs="*", default=[1, 8, 32, 64])
    parser.add_argument("--context", type=at_least_one, default=192)
    parser.add_argument(
        "--prefill",
        type=at_least_one,
        nargs=2,
        default=[8, 128],
        metavar=("PROMPTS", "TOKENS"),
    )
    parser.add_argument("--rounds", type=at_least_one, default=15)
    args = parser.parse_args()
    checkpoint = open_checkpoint(resolve(args.model, lambda text: print(text, file=sys.stderr)))
    batch, prompt = args.prefill
    most = max(*args.batch, batch)
    executor = CpuExecutor(
        checkpoint,
        num_blocks=most * ((max(args.context, prompt) + args.rounds) // BLOCK_SIZE + 2),
        block_size=BLOCK_SIZE,
        quantization=args.quantization,
        kv_dtype=args.kv_dtype,
        num_threads=args.threads,
        isa=args.isa,
    )
    watch = Watch(executor)
    driver = Driver(executor, checkpoint.config.vocab_size)
    limits = _native.machine_limits(args.isa, args.threads)
    print(
        f"{executor.ops.core.isa}, {args.threads} threads: "
        f"{limits.read_bytes_per_s / 1e9:.1f} GB/s, "
        f"{limits.int8_ops_per_s / 1e9:.0f} Gop/s in int8, "
        f"{limits.bf16_ops_per_s / 1e9:.0f} in bfloat16; "
        f"fork and join {executor.ops.core.fork_join_latency(50):.0f} ns"
    )
    position_bytes = kv_bytes_per_block(checkpoint.config, 1, args.kv_dtype)
    for num in args.batch:
        case = decode_case(driver, num, args.context, args.rounds)
        for _ in range(args.rounds):
            case.measure(watch, checkpoint.config, position_bytes)
        report(case, limits)
    case = prefill_case(driver, batch, prompt)
    for _ in range(3):
        case.measure(watch, checkpoint.config, position_bytes)
    report(case, limits)


if __name__ == "__main__":
    raise SystemExit(status_of(main))
