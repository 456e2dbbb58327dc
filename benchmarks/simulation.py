"""How fast the simulator is: two production traces and up to a million requests, on one core.

Timed is the simulation alone, in CPU time of the one thread that it has: not the reading of the
trace, nor the report. The cost model is a roofline of a 7B model on an A100.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from time import perf_counter, thread_time

from benchmarks.command import parser, show
from benchmarks.places import trace
from benchmarks.table import aligned
from headway.core.config import SchedulerConfig
from headway.core.limits import SchedulerLimits
from headway.engine.garbage import collect_rarely
from headway.errors import UsageError
from headway.profiles.builtin import LLAMA_7B
from headway.profiles.devices import find_device
from headway.profiles.model_shape import ModelShape, model_shape
from headway.profiles.roofline import Roofline
from headway.sim.fleet import FleetResult, simulate_fleet
from headway.sim.replica import Machine
from headway.sim.routers import RouterName, make_router
from headway.workload import Arrival, Workload, poisson_arrivals, read_azure, read_mooncake

_NEVER_S = 1e9


@dataclass(frozen=True, slots=True)
class Speed:
    """How long a simulation took.

    Attributes:
        name: of the workload.
        num_replicas: engines.
        num_requests: in the workload, all of which ended well.
        num_steps: of all replicas.
        num_output_tokens: of all requests.
        virtual_s: from the first arrival to the last answer.
        cpu_s: of the simulation.
        times_real: virtual time over CPU time.
        requests_a_second: of CPU time.
        microseconds_a_request: likewise.
    """

    name: str
    num_replicas: int
    num_requests: int
    num_steps: int
    num_output_tokens: int
    virtual_s: float
    cpu_s: float
    times_real: float
    requests_a_second: float
    microseconds_a_request: float


@dataclass(frozen=True, slots=True)
class Outcome:
    """What was measured; ``growth`` is the time of a request in the longest run over the shortest.

    ``missing`` names what could not be measured, and why.
    """

    traces: tuple[Speed, ...]
    many: tuple[Speed, ...]
    growth: float
    missing: tuple[str, ...]


_MISTRAL_7B = {**LLAMA_7B, "intermediate_size": 14336, "num_key_value_heads": 8}


def machine(
    config: Mapping[str, object], *, longest: int = 1 << 14, shares_prefixes: bool = False
) -> Machine:
    """Return a replica of a 7B model on an A100, with a context of ``longest`` tokens."""
    shape: ModelShape = model_shape(config)
    cost = Roofline(shape, find_device("a100-80gb"))
    limits = SchedulerLimits(
        num_blocks=cost.num_kv_blocks(),
        block_size=16,
        max_model_len=longest,
        max_num_seqs=256,
        max_num_batched_tokens=8192,
        enable_prefix_sharing=shares_prefixes,
    )
    return Machine(config=SchedulerConfig(limits=limits), cost=cost, sample_every_s=_NEVER_S)


def measure(
    name: str,
    arrivals: Sequence[Arrival],
    each: Machine,
    *,
    num_replicas: int = 1,
    router: RouterName = RouterName.ROUND_ROBIN,
    clock: Callable[[], float] = thread_time,
) -> Speed:
    """Simulate a workload and time it."""
    limits = each.config.limits
    chosen = make_router(
        router,
        num_replicas,
        classes=each.config.classes,
        num_kv_tokens=limits.num_blocks * limits.block_size,
    )
    workload = Workload(arrivals=arrivals, loops=(), duration_s=float("inf"), targets={})
    began = clock()
    result = simulate_fleet([each] * num_replicas, chosen, workload)
    return _speed(name, arrivals, result, clock() - began)


def _speed(name: str, arrivals: Sequence[Arrival], result: FleetResult, cpu_s: float) -> Speed:
    lost = [each for each in result.requests if not each.is_finished]
    if lost:
        raise UsageError(f"{name}: {len(lost)} requests did not end well: {lost[0].reason}")
    virtual_s = result.end_s - arrivals[0].at_s
    count = len(arrivals)
    return Speed(
        name=name,
        num_replicas=len(result.replicas),
        num_requests=count,
        num_steps=sum(len(each.steps) for each in result.replicas),
        num_output_tokens=sum(len(each.token_times) for each in result.requests),
        virtual_s=round(virtual_s, 1),
        cpu_s=round(cpu_s, 3),
        times_real=round(virtual_s / cpu_s, 1),
        requests_a_second=round(count / cpu_s, 1),
        microseconds_a_request=round(1e6 * cpu_s / count, 1),
    )


def many(count: int) -> list[Arrival]:
    """Return so many short requests, twelve a second."""
    random = Random(1)

    def lengths() -> tuple[int, int]:
        return max(int(random.expovariate(1 / 200)), 1), max(int(random.expovariate(1 / 40)), 1)

    return poisson_arrivals(12.0, (lengths() for _ in range(count)), Random(2))


def measure_traces(
    clock: Callable[[], float], tell: Callable[[str], None]
) -> tuple[list[Speed], list[str]]:
    """Measure both traces; one that isn't there is named."""
    found: list[Speed] = []
    missing: list[str] = []

    def add(name: str, run: Callable[[], Speed]) -> None:
        tell(name)
        try:
            found.append(run())
        except UsageError as error:
            missing.append(f"{name}: {error}")

    add("Azure conversation, Mistral-7B", lambda: _azure(_MISTRAL_7B, "Mistral-7B", clock))
    add("Azure conversation, Llama-2-7B", lambda: _azure(LLAMA_7B, "Llama-2-7B", clock))
    add("Mooncake conversation, Mistral-7B", lambda: _mooncake(clock))
    return found, missing


def _azure(config: Mapping[str, object], model: str, clock: Callable[[], float]) -> Speed:
    arrivals = read_azure(trace("azure2023_conv.csv"))
    return measure(f"Azure conversation, {model}", arrivals, machine(config), clock=clock)


def _mooncake(clock: Callable[[], float]) -> Speed:
    arrivals = read_mooncake(trace("mooncake_conversation_trace.jsonl"), Random(0))
    return measure(
        "Mooncake conversation, Mistral-7B",
        arrivals,
        machine(_MISTRAL_7B, longest=1 << 17, shares_prefixes=True),
        num_replicas=4,
        router=RouterName.PREFIX_AWARE,
        clock=clock,
    )


def measure_all(
    counts: Sequence[int],
    *,
    clock: Callable[[], float] = thread_time,
    tell: Callable[[str], None] = lambda _: None,
) -> Outcome:
    """Measure everything."""
    collect_rarely()
    traces, missing = measure_traces(clock, tell)
    long_runs: list[Speed] = []
    for count in counts:
        tell(f"{count} requests")
        long_runs.append(
            measure(f"{count} requests", many(count), machine(_MISTRAL_7B), clock=clock)
        )
    growth = long_runs[-1].microseconds_a_request / long_runs[0].microseconds_a_request
    return Outcome(tuple(traces), tuple(long_runs), round(growth, 3), tuple(missing))


def table(outcome: Outcome) -> str:
    """Return the speeds as text."""
    rows = [
        (
            each.name,
            f"{each.num_replicas}",
            f"{each.num_requests:,}",
            f"{each.num_steps:,}",
            f"{each.virtual_s:,.0f}",
            f"{each.cpu_s:,.1f}",
            f"{each.times_real:,.0f}",
            f"{each.requests_a_second:,.0f}",
            f"{each.microseconds_a_request:,.0f}",
        )
        for each in (*outcome.traces, *outcome.many)
    ]
    head = ("workload", "replicas", "requests", "steps", "virtual s", "CPU s", "x real")
    lines = [aligned((*head, "requests/s", "µs a request"), rows)]
    lines.append(
        f"the longest run takes {outcome.growth:g} times as long a request as the shortest"
    )
    return "\n".join([*lines, *(f"not measured: {each}" for each in outcome.missing)])


def main() -> int:
    """Measure and print."""
    arguments = parser(__doc__)
    arguments.add_argument(
        "--most", type=int, default=1_000_000, help="requests of the longest run"
    )
    arguments.add_argument("--wall", action="store_true", help="time of the clock, not of the CPU")
    given = arguments.parse_args()
    counts = [count for count in (10_000, 100_000, 1_000_000) if count < given.most]
    outcome = measure_all(
        [*counts, given.most],
        clock=perf_counter if given.wall else thread_time,
        tell=lambda line: print(line, file=sys.stderr, flush=True),
    )
    show(outcome, table(outcome), as_json=given.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
