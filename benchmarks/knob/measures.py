"""Numbers that a knob is said to move."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from headway.metrics.quantiles import quantile
from headway.sim import RequestRecord, SimulationResult

Select = Callable[[RequestRecord], bool]


@dataclass(frozen=True, slots=True)
class Measure:
    """A number of a run, with its name, and how many digits of it matter."""

    name: str
    of: Callable[[SimulationResult], float]
    digits: int = 0


def _everybody(_: RequestRecord) -> bool:
    return True


def of_class(name: str) -> Select:
    """Select the requests of a class."""
    return lambda record: record.arrival.class_name == name


def shorter_than(prompt_tokens: int) -> Select:
    """Select requests by the length of their prompt."""
    return lambda record: record.arrival.prompt_tokens < prompt_tokens


def longer_than(prompt_tokens: int) -> Select:
    """Select requests by the length of their prompt."""
    return lambda record: record.arrival.prompt_tokens > prompt_tokens


def with_answers_below(output_tokens: int) -> Select:
    """Select requests by the length of their answer."""
    return lambda record: record.arrival.output_tokens < output_tokens


def _milliseconds(
    name: str,
    share: float | None,
    whose: str,
    select: Select,
    of: Callable[[RequestRecord], Iterable[float | None]],
) -> Measure:
    def measured(result: SimulationResult) -> float:
        values = [
            1000 * value
            for each in result.requests
            if select(each)
            for value in of(each)
            if value is not None
        ]
        return sum(values) / len(values) if share is None else quantile(values, share)

    part = "mean" if share is None else "longest" if share == 1 else f"p{100 * share:g}"
    return Measure(f"{name} {part}{whose and ' ' + whose}, ms", measured)


def ttft(share: float | None, whose: str = "", select: Select = _everybody) -> Measure:
    """Time to the first token."""
    return _milliseconds("TTFT", share, whose, select, lambda each: [each.ttft_s])


def tpot(share: float | None, whose: str = "", select: Select = _everybody) -> Measure:
    """Time per further token, one value a request."""
    return _milliseconds("TPOT", share, whose, select, lambda each: [each.tpot_s])


def itl(share: float | None, whose: str = "", select: Select = _everybody) -> Measure:
    """Every gap between two tokens."""
    return _milliseconds("ITL", share, whose, select, lambda each: each.gaps_s())


def latency(share: float | None, whose: str = "", select: Select = _everybody) -> Measure:
    """From arrival to the last token."""
    return _milliseconds("latency", share, whose, select, lambda each: [each.latency_s])


def wait(share: float | None, whose: str = "", select: Select = _everybody) -> Measure:
    """From arrival until it first ran, of those that did."""
    return _milliseconds("wait", share, whose, select, lambda each: [each.queued_s])


def _num_preemptions(result: SimulationResult) -> float:
    return result.statistics.num_preemptions


def _num_recomputed(result: SimulationResult) -> float:
    """Positions computed beyond those that a run without preemption computes."""
    computed = sum(result.steps.num_tokens)
    needed = sum(
        each.arrival.prompt_tokens - each.num_cached_tokens + len(each.token_times) - 1
        for each in result.requests
        if each.token_times
    )
    return computed - needed


def _peak_kv(result: SimulationResult) -> float:
    total = result.statistics.num_blocks
    return 100 * (1 - min(each.num_free_blocks for each in result.samples) / total)


def _mean_kv(result: SimulationResult) -> float:
    total = result.statistics.num_blocks
    free = [each.num_free_blocks for each in result.samples]
    return 100 * (1 - sum(free) / len(free) / total)


def _refused(result: SimulationResult) -> float:
    refused = sum(each.outcome in ("rejected", "expired") for each in result.requests)
    return 100 * refused / len(result.requests)


def _tokens_per_busy_second(result: SimulationResult) -> float:
    return result.num_output_tokens / sum(result.steps.elapsed_s)


def output_share(class_name: str, until_s: float) -> Measure:
    """Return the share of the output tokens that a class got while both had work."""

    def measured(result: SimulationResult) -> float:
        counts = {True: 0, False: 0}
        for each in result.requests:
            mine = each.arrival.class_name == class_name
            counts[mine] += sum(moment <= until_s for moment in each.token_times)
        return 100 * counts[True] / (sum(counts.values()) or 1)

    return Measure(f"output tokens of `{class_name}` in the first {until_s:g} s, %", measured)


THROUGHPUT = Measure("output tokens/s", lambda result: result.output_throughput)
PER_BUSY_SECOND = Measure("output tokens per busy second", _tokens_per_busy_second)
BATCH_SIZE = Measure("sequences a step, mean", lambda r: r.steps.mean_batch_size, digits=1)
NUM_STEPS = Measure("steps", lambda result: len(result.steps))
COMPUTED = Measure("positions computed", lambda result: sum(result.steps.num_tokens))
PREEMPTIONS = Measure("preemptions", _num_preemptions)
RECOMPUTED = Measure("positions computed again", _num_recomputed)
SWAPPED = Measure("blocks moved out", lambda result: result.statistics.num_swapped_out_blocks)
PEAK_KV = Measure("KV blocks in use at most, %", _peak_kv, digits=1)
MEAN_KV = Measure("KV blocks in use, mean, %", _mean_kv, digits=1)
REFUSED = Measure("refused or expired, %", _refused, digits=1)
