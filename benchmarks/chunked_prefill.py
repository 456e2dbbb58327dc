"""One long prompt among 32 decodes: what it does to them computed whole, and in chunks.

On the real model (SmolLM2-135M, on the torch executor) by default, in wall-clock time; with
``--simulated`` in virtual time. The gaps are those between the tokens of the 32 sequences, from
the moment at which the long prompt comes; its own first token pays for their comfort.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from random import Random

from benchmarks.command import parser, show
from benchmarks.table import aligned
from headway.core.config import SchedulerConfig
from headway.core.costs import StepCosts
from headway.core.events import Event, TokenReady
from headway.core.limits import SchedulerLimits
from headway.core.plan import RequestId
from headway.core.ports import Executor
from headway.core.request import Request
from headway.core.sampling import SamplingParams
from headway.core.scheduler import Scheduler
from headway.engine.clock import Clock, RealClock, VirtualClock
from headway.engine.loop import Engine
from headway.errors import UsageError
from headway.executors.simulated import SimulatedExecutor
from headway.metrics.quantiles import quantiles

NUM_DECODES = 32
#: tokens of each decoding sequence, before and after the long prompt comes
TOKENS_BEFORE, TOKENS_AFTER = 4, 48
SHORT_PROMPT_TOKENS = 32
LONG_OUTPUT_TOKENS = 8
CONTEXT_TOKENS = 8192
CHUNK_TOKENS = 256
BLOCK_SIZE = 16
VOCAB_SIZE = 40_000
#: roughly SmolLM2-135M on two cores
COST = StepCosts(base_s=0.03, prefill_token_s=0.004, decode_s=0.002)

_LONG = RequestId("long")


@dataclass(frozen=True, slots=True)
class Gaps:
    """Times in seconds.

    Attributes:
        p50_itl_s: between two tokens of a decoding sequence.
        p99_itl_s: the same.
        longest_itl_s: the same.
        long_ttft_s: from the coming of the long prompt to its first token.
    """

    p50_itl_s: float
    p99_itl_s: float
    longest_itl_s: float
    long_ttft_s: float


@dataclass(frozen=True, slots=True)
class Outcome:
    """Both ways, with the prompt's length and the chunk's, in tokens."""

    prompt_tokens: int
    chunk_tokens: int
    whole: Gaps
    chunked: Gaps


MakeExecutor = Callable[[SchedulerLimits], tuple[Executor, Clock]]


def demonstrate(
    make: MakeExecutor,
    *,
    prompt_tokens: int = CONTEXT_TOKENS - LONG_OUTPUT_TOKENS,
    chunk_tokens: int = CHUNK_TOKENS,
    tell: Callable[[str], None] = lambda _: None,
) -> Outcome:
    """Run both ways on executors of one kind."""
    tell(f"{prompt_tokens} tokens as a whole …")
    whole = run(make, prompt_tokens, None)
    tell(f"{prompt_tokens} tokens in chunks of {chunk_tokens} …")
    chunked = run(make, prompt_tokens, chunk_tokens)
    return Outcome(prompt_tokens, chunk_tokens, whole, chunked)


def simulated(limits: SchedulerLimits) -> tuple[Executor, Clock]:
    """Return an executor on a virtual clock."""
    clock = VirtualClock()
    executor = SimulatedExecutor(
        COST,
        clock,
        num_blocks=limits.num_blocks,
        block_size=limits.block_size,
        vocab_size=VOCAB_SIZE,
    )
    return executor, clock


def real(limits: SchedulerLimits) -> tuple[Executor, Clock]:
    """Return the torch executor with the embedded default model.

    Raises:
        ModelError: the model is neither here nor to be had.
    """
    from headway.executors.torch import TorchExecutor
    from headway.models.catalog import resolve
    from headway.models.loading import open_checkpoint

    path = resolve("smollm2-135m-instruct", lambda line: print(line, file=sys.stderr))
    checkpoint = open_checkpoint(path)
    executor = TorchExecutor(checkpoint, num_blocks=limits.num_blocks, block_size=limits.block_size)
    return executor, RealClock()


class _TokenTimes:
    """Notes when each request got its tokens; an observer of the engine."""

    def __init__(self) -> None:
        self.of: dict[RequestId, list[float]] = {}

    def on_submitted(self, request: Request, now: float) -> None:
        del now
        self.of[request.request_id] = []

    def on_events(self, events: Sequence[Event], now: float) -> None:
        for event in events:
            if isinstance(event, TokenReady):
                self.of[event.request_id].append(now)

    def on_step(self, num_sequences: int, num_tokens: int, elapsed_s: float) -> None:
        """Nothing to note."""


def run(make: MakeExecutor, prompt_tokens: int, chunk_tokens: int | None) -> Gaps:
    limits = _limits(chunk_tokens)
    executor, clock = make(limits)
    times = _TokenTimes()
    engine = Engine(Scheduler(SchedulerConfig(limits=limits)), executor, clock, observers=(times,))
    for request in _decodes():
        engine.submit(request)
    while min(map(len, times.of.values())) < TOKENS_BEFORE:
        _step(engine)
    came_at = clock.now()
    engine.submit(_request(_LONG, prompt_tokens, LONG_OUTPUT_TOKENS))
    while not _step(engine):
        pass
    long_ttft_s = times.of.pop(_LONG)[0] - came_at
    p50, p99, longest = quantiles(_gaps(times, came_at), (0.5, 0.99, 1.0))
    return Gaps(p50, p99, longest, long_ttft_s)


def _step(engine: Engine) -> bool:
    """Run a step; return whether nothing is left to do."""
    outcome = engine.step()
    if outcome.error is not None:
        raise outcome.error
    return outcome.is_idle


def _gaps(times: _TokenTimes, came_at: float) -> list[float]:
    """Return the gaps of the decoding sequences that end after a moment."""
    return [
        after - before
        for each in times.of.values()
        for before, after in pairwise(each)
        if after > came_at
    ]


def _decodes() -> list[Request]:
    return [
        _request(RequestId(f"decode-{n}"), SHORT_PROMPT_TOKENS, TOKENS_BEFORE + TOKENS_AFTER)
        for n in range(NUM_DECODES)
    ]


def _request(request_id: RequestId, num_prompt: int, num_output: int) -> Request:
    random = Random(request_id)
    return Request(
        request_id=request_id,
        prompt_token_ids=tuple(random.randrange(100, VOCAB_SIZE) for _ in range(num_prompt)),
        sampling=SamplingParams(max_tokens=num_output, temperature=0.0),
    )


def _limits(chunk_tokens: int | None) -> SchedulerLimits:
    return SchedulerLimits(
        num_blocks=2 * CONTEXT_TOKENS // BLOCK_SIZE,
        block_size=BLOCK_SIZE,
        max_model_len=CONTEXT_TOKENS,
        max_num_seqs=NUM_DECODES + 1,
        max_num_batched_tokens=CONTEXT_TOKENS + NUM_DECODES,
        enable_chunked_prefill=chunk_tokens is not None,
        max_prefill_chunk_tokens=chunk_tokens,
    )


def table(outcome: Outcome) -> str:
    """Return one row a way."""
    head = (f"{outcome.prompt_tokens} tokens", "ITL p50", "p99", "longest", "its own TTFT")
    rows = [
        (name, *(f"{value:.3f} s" for value in values))
        for name, values in (
            ("as a whole", _values(outcome.whole)),
            (f"chunks of {outcome.chunk_tokens}", _values(outcome.chunked)),
        )
    ]
    ratio = outcome.whole.p99_itl_s / outcome.chunked.p99_itl_s
    return f"{aligned(head, rows)}\n\nThe p99 of the decodes' gaps is {ratio:.0f} times shorter."


def _values(gaps: Gaps) -> tuple[float, ...]:
    return gaps.p50_itl_s, gaps.p99_itl_s, gaps.longest_itl_s, gaps.long_ttft_s


def main() -> int:
    """Run, and print."""
    arguments = parser(__doc__)
    arguments.add_argument("--simulated", action="store_true", help="in virtual time, no model")
    arguments.add_argument("--prompt", type=int, default=CONTEXT_TOKENS - LONG_OUTPUT_TOKENS)
    arguments.add_argument("--chunk", type=int, default=CHUNK_TOKENS)
    given = arguments.parse_args()
    try:
        outcome = demonstrate(
            simulated if given.simulated else real,
            prompt_tokens=given.prompt,
            chunk_tokens=given.chunk,
            tell=lambda line: print(line, file=sys.stderr, flush=True),
        )
    except UsageError as error:
        print(error, file=sys.stderr)
        return 2
    show(outcome, table(outcome), as_json=given.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
