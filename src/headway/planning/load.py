"""What the engines of a simulated day were busy with: whatever may be what binds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from headway.core.limits import SchedulerLimits
from headway.metrics.quantiles import quantile
from headway.sim.fleet import FleetResult
from headway.sim.records import SimulationResult


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """Means over engines and time, from the beginning to the last answer; peaks over both.

    Attributes:
        busy_share: of the time, in which steps were computed.
        prompt_share: of the busy time, in steps that computed parts of prompts, with or without
            decodes beside them.
        kv_mean: share of the KV blocks that sequences held.
        kv_peak: the most of them in any engine.
        slots_mean: share of the slots (``max_num_seqs``) that were in use.
        slots_peak: likewise.
        num_preemptions: of all requests.
        queue_p99_s: from arrival until a request first ran, of those that did.
        output_tokens_a_second: of all engines.
    """

    busy_share: float
    prompt_share: float
    kv_mean: float
    kv_peak: float
    slots_mean: float
    slots_peak: float
    num_preemptions: int
    queue_p99_s: float
    output_tokens_a_second: float

    @classmethod
    def over(cls, loads: Sequence[Load]) -> Load:
        """Return that of several days: means, the highest peaks and wait, all preemptions.

        Raises:
            ValueError: there are none.
        """
        if not loads:
            raise ValueError("no day has no load")
        return cls(
            busy_share=fmean(each.busy_share for each in loads),
            prompt_share=fmean(each.prompt_share for each in loads),
            kv_mean=fmean(each.kv_mean for each in loads),
            kv_peak=max(each.kv_peak for each in loads),
            slots_mean=fmean(each.slots_mean for each in loads),
            slots_peak=max(each.slots_peak for each in loads),
            num_preemptions=sum(each.num_preemptions for each in loads),
            queue_p99_s=max(each.queue_p99_s for each in loads),
            output_tokens_a_second=fmean(each.output_tokens_a_second for each in loads),
        )


def load_of(result: FleetResult, limits: SchedulerLimits) -> Load:
    """Return the load of one simulated day."""
    replicas, end_s = result.replicas, result.end_s or 1.0
    busy_s = [sum(each.steps.elapsed_s) for each in replicas]
    prompt_s = sum(map(_prompt_s, replicas))
    samples = [sample for each in replicas for sample in each.samples]
    kv = [1 - sample.num_free_blocks / limits.num_blocks for sample in samples]
    slots = [sample.num_running / limits.max_num_seqs for sample in samples]
    waits = [each.queued_s for each in result.requests if each.queued_s is not None]
    num_tokens = sum(len(each.token_times) for each in result.requests)
    return Load(
        busy_share=sum(busy_s) / (end_s * len(replicas)),
        prompt_share=prompt_s / (sum(busy_s) or 1.0),
        kv_mean=fmean(kv),
        kv_peak=max(kv),
        slots_mean=fmean(slots),
        slots_peak=max(slots),
        num_preemptions=sum(each.num_preemptions for each in result.requests),
        queue_p99_s=quantile(waits, 0.99) if waits else 0.0,
        output_tokens_a_second=num_tokens / end_s,
    )


def _prompt_s(replica: SimulationResult) -> float:
    """Return the time of the steps with parts of prompts."""
    steps = replica.steps
    timed = zip(steps.elapsed_s, steps.num_prefill_tokens, strict=True)
    return sum(elapsed_s for elapsed_s, num_tokens in timed if num_tokens)
