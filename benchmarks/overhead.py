"""What a decode step costs beside its kernels: Python, scheduling, sampling, events and text.

    python -m benchmarks.overhead [--model NAME] [--batch 1 64] [--temperature 0 0.8] [--json]

The real engine decodes, in this process, in two ways: its loop alone, and behind its asyncio front
with everybody's text made in another thread, on an event loop as the server has it. The kernels
keep the time that is spent in them themselves (twice a clock in C++ for each call); all other parts
are timed where one calls the other, a few times a step. A part's figure is its median over the
steps, so that the parts need not add up to the step; the first and the last steps, where not all
run, do not count.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from benchmarks.command import at_least_one, parser, show, status_of
from benchmarks.table import aligned
from headway.config import Settings, load_settings
from headway.config.scheduling import scheduler_config
from headway.core.plan import RequestId
from headway.core.request import Request
from headway.core.sampling import SamplingParams
from headway.core.scheduler import Scheduler
from headway.engine.aio import AsyncEngine
from headway.engine.clock import RealClock
from headway.engine.garbage import collect_rarely
from headway.engine.loop import Engine, StepOutcome
from headway.executors.cpu import CpuExecutor
from headway.generation.generator import Generator
from headway.generation.params import GenerationParams
from headway.metrics.engine import EngineMetrics
from headway.models.catalog import resolve
from headway.models.checkpoint import Checkpoint
from headway.models.loading import open_checkpoint
from headway.server.run import loop_factory
from headway.text.chat_template import load_chat_template
from headway.text.loading import load_tokenizer

TARGETS = {1: 0.10, 64: 0.05}
"""The share of a step that everything but the kernels may take, by sequences."""

PARTS = ("kernels", "model", "preparation", "sampling", "scheduler", "engine", "between steps")
WARM_STEPS = 8
BLOCK_SIZE = 16


@dataclass
class Outcome:
    """Microseconds of the median step, by part; ``tokens`` says how tokens are drawn."""

    way: str
    batch: int
    tokens: str
    step_us: float
    parts_us: dict[str, float] = field(default_factory=dict)

    @property
    def share(self) -> float:
        """Everything but the kernels."""
        return 1 - self.parts_us["kernels"] / self.step_us


class Meter:
    """Times the parts of an engine's steps by standing between them."""

    def __init__(self, engine: Engine, executor: CpuExecutor) -> None:
        self.steps: list[dict[str, float]] = []
        self.is_on = False
        self._spent: dict[str, float] = {}
        self._core: Any = executor.ops.core
        self._forward_began = self._kernels_before = self._last_end = 0.0
        ops: Any = executor.ops
        self._stand_at(ops, "prepare", "preparation")
        self._stand_at(engine.scheduler, "schedule", "scheduler")
        self._stand_at(engine.scheduler, "apply", "scheduler")
        self._stand_at(engine.executor, "run", "run")
        self._stand_around_the_model(executor._executor)
        self._stand_around_the_step(engine)

    def _stand_at(self, owner: Any, name: str, part: str) -> None:
        call = getattr(owner, name)

        def timed(*args: Any) -> Any:
            began = time.perf_counter()
            result = call(*args)
            self._spend(part, time.perf_counter() - began)
            return result

        setattr(owner, name, timed)

    def _stand_around_the_model(self, owner: Any) -> None:
        """What of a forward pass isn't spent in its operations is Python's."""
        forward = owner._forward

        def timed(step: Any) -> Any:
            kernels_before = self._core.seconds
            began = time.perf_counter()
            result = forward(step)
            passed = time.perf_counter() - began
            self._spend("model", passed - (self._core.seconds - kernels_before))
            return result

        owner._forward = timed

    def _stand_around_the_step(self, engine: Engine) -> None:
        step = engine.step

        def timed() -> StepOutcome:
            began = time.perf_counter()
            self._spent = {}
            self._core.is_timed = True  # from zero
            outcome = step()
            ended = time.perf_counter()
            if self.is_on and "run" in self._spent:
                self._keep(began, ended)
            self._last_end = ended
            return outcome

        engine.step = timed  # type: ignore[method-assign]  # the point of it

    def _spend(self, part: str, seconds: float) -> None:
        self._spent[part] = self._spent.get(part, 0.0) + seconds

    def _keep(self, began: float, ended: float) -> None:
        spent, kernels = self._spent, self._core.seconds
        in_run = kernels + spent["model"] + spent["preparation"]
        self.steps.append(
            {
                "kernels": kernels,
                "model": spent["model"],
                "preparation": spent["preparation"],
                "sampling": spent["run"] - in_run,
                "scheduler": spent["scheduler"],
                "engine": ended - began - spent["run"] - spent["scheduler"],
                "between steps": began - self._last_end,
                "step": ended - self._last_end,
            }
        )

    def outcome(self, way: str, batch: int, tokens: str) -> Outcome:
        """Return the medians, and forget the steps."""
        steps, self.steps = self.steps[WARM_STEPS:-WARM_STEPS], []

        def median(name: str) -> float:
            return 1e6 * statistics.median(step[name] for step in steps)

        return Outcome(way, batch, tokens, median("step"), {part: median(part) for part in PARTS})


class Bench:
    """One engine on one model."""

    def __init__(self, settings: Settings, checkpoint: Checkpoint, most: int, steps: int) -> None:
        self._settings, self._checkpoint, self._steps = settings, checkpoint, steps
        self._rng = random.Random(0)
        self._length = 64 + steps + 2 * WARM_STEPS
        num_blocks = (most + 1) * -(-self._length // BLOCK_SIZE)
        config = scheduler_config(
            settings, max_model_len=2048, num_blocks=num_blocks, num_swap_blocks=0
        )
        scheduler = Scheduler(config)
        executor = CpuExecutor(checkpoint, num_blocks=num_blocks, block_size=BLOCK_SIZE)
        metrics = EngineMetrics("overhead", scheduler.statistics)
        self._engine = Engine(scheduler, executor, RealClock(), observers=[metrics])
        self._meter = Meter(self._engine, executor)

    def _prompt(self) -> tuple[int, ...]:
        return tuple(self._rng.randrange(1000, 40000) for _ in range(64))

    def alone(self, batch: int, temperature: float) -> Outcome:
        """Run the loop of the engine in this thread."""
        for i in range(batch):
            sampling = SamplingParams(
                max_tokens=self._length - 64, temperature=temperature, top_p=0.9, seed=i
            )
            request_id = RequestId(f"{time.monotonic_ns()}-{i}")
            self._engine.submit(
                Request(request_id=request_id, prompt_token_ids=self._prompt(), sampling=sampling)
            )
        self._meter.is_on = True
        while not self._engine.step().is_idle:
            continue
        return self._meter.outcome("loop alone", batch, _tokens(temperature))

    def served(self, batch: int, temperature: float) -> Outcome:
        """Run it behind the front, with text."""
        self._meter.is_on = True
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            runner.run(self._serve(batch, temperature))
        return self._meter.outcome("with text", batch, _tokens(temperature))

    async def _serve(self, batch: int, temperature: float) -> None:
        front = AsyncEngine(self._engine)
        front.start()
        generator = self._generator(front)
        params = GenerationParams(
            max_tokens=self._length - 64,
            ignore_eos=True,
            temperature=temperature,
            top_p=0.9,
            seed=1,
        )
        prompts = [self._prompt() for _ in range(batch)]

        async def read(prompt: tuple[int, ...]) -> None:
            async for _ in await generator.generate(prompt, params):
                pass

        await asyncio.gather(*map(read, prompts))
        await front.stop()

    def _generator(self, front: AsyncEngine) -> Generator:
        checkpoint = self._checkpoint
        assets = checkpoint.tokenizer
        tokenizer = load_tokenizer(
            assets.tokenizer_json,
            assets.tokenizer_config,
            assets.gguf_metadata,
            model_vocab_size=checkpoint.config.vocab_size,
        )
        return Generator(
            engine=front,
            tokenizer=tokenizer,
            chat_template=load_chat_template(
                assets.chat_template, tokenizer.bos_token, tokenizer.eos_token
            ),
            eos_token_ids=checkpoint.eos_token_ids,
            generation_defaults={},
            vocab_size=checkpoint.config.vocab_size,
            max_model_len=2048,
        )


def _tokens(temperature: float) -> str:
    return "greedy" if temperature == 0 else f"temperature {temperature:g}, top_p 0.9"


def table(outcomes: list[Outcome]) -> str:
    """Return the parts as microseconds, and the share beside its target."""
    head = ["", "step", *PARTS, "share", "target"]
    rows = [
        [
            f"{o.batch} at once, {o.way}, {o.tokens}",
            f"{o.step_us:.0f}",
            *(f"{o.parts_us[part]:.0f}" for part in PARTS),
            f"{o.share:.1%}",
            f"{TARGETS[o.batch]:.0%}" if o.batch in TARGETS else "",
        ]
        for o in outcomes
    ]
    return "microseconds of the median step\n" + aligned(head, rows)


def _arguments() -> argparse.Namespace:
    made = parser(__doc__)
    made.add_argument("--model", default="smollm2-135m-instruct")
    made.add_argument("--batch", type=at_least_one, nargs="*", default=[1, 64])
    made.add_argument("--temperature", type=float, nargs="*", default=[0.0, 0.8])
    made.add_argument("--steps", type=at_least_one, default=64)
    return made.parse_args()


def _measure(arguments: argparse.Namespace) -> Iterator[Outcome]:
    checkpoint = open_checkpoint(
        resolve(arguments.model, lambda text: print(text, file=sys.stderr))
    )
    flags = {"scheduler.max_num_seqs": max(arguments.batch)}
    settings = load_settings(environ={}, flags=flags).settings
    bench = Bench(settings, checkpoint, max(arguments.batch), arguments.steps)
    ways: list[Callable[[int, float], Outcome]] = [bench.alone, bench.served]
    for batch in arguments.batch:
        for temperature in arguments.temperature:
            for way in ways:
                yield way(batch, temperature)


@dataclass
class Report:
    """Everything that was measured."""

    outcomes: list[Outcome]


def main() -> None:
    """Measure, and print a table or JSON."""
    arguments = _arguments()
    collect_rarely()  # as the server does
    report = Report(list(_measure(arguments)))
    show(report, table(report.outcomes), as_json=arguments.json)


if __name__ == "__main__":
    raise SystemExit(status_of(main))
