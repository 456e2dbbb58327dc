"""From settings to what the scheduler is built of, in its units."""

from __future__ import annotations

from headway.config.consistency import DEFAULT_CLASS
from headway.config.settings import SchedulerSettings, Settings, SimulationSettings
from headway.config.traffic import ClassSettings
from headway.core.classes import PolicyName, ServiceClass
from headway.core.config import PolicyConfig, PredictorName, SchedulerConfig
from headway.core.costs import StepCosts
from headway.core.limits import Batching, PreemptionChoice, SchedulerLimits, VictimChoice
from headway.errors import ConfigError


def scheduler_config(
    settings: Settings, *, max_model_len: int, num_blocks: int, num_swap_blocks: int
) -> SchedulerConfig:
    """Return limits, policy, classes and costs; the pools' sizes are for the caller to find.

    Raises:
        ConfigError: the settings contradict each other, or the pool.
    """
    try:
        return SchedulerConfig(
            limits=_limits(settings, max_model_len, num_blocks, num_swap_blocks),
            policy=_policy(settings),
            classes=service_classes(settings),
            costs=_costs(settings),
        )
    except ValueError as error:
        raise ConfigError(f"[scheduler] {error}") from error


def service_classes(settings: Settings) -> tuple[ServiceClass, ...]:
    """Return the classes in the order of the file; without any there is one, ``default``."""
    tables = settings.classes or {DEFAULT_CLASS: ClassSettings()}
    return tuple(_class(name, each, settings.scheduler) for name, each in tables.items())


def _class(name: str, each: ClassSettings, scheduler: SchedulerSettings) -> ServiceClass:
    return ServiceClass(
        name=name,
        weight=each.weight,
        policy=None if each.policy is None else PolicyName(each.policy),
        priority=each.priority or 0,
        ttft_target_s=_seconds(each.ttft_p99_ms),
        tpot_target_s=_seconds(each.tpot_p99_ms),
        min_running_share=each.min_running_share,
        max_running_share=each.max_running_share,
        max_queue_requests=each.max_queue_requests,
        max_queue_tokens=each.max_queue_tokens,
        max_output_tokens=each.max_output_tokens,
        max_waiting_time_s=_seconds(each.max_waiting_time_ms),
        queue_timeout_s=each.queue_timeout_s or scheduler.queue_timeout_s,
        request_timeout_s=each.request_timeout_s or scheduler.request_timeout_s,
        best_effort=each.best_effort,
        reserved_slots=each.reserved_slots,
        reserved_blocks=each.reserved_blocks,
    )


def _seconds(milliseconds: float | None) -> float | None:
    return None if milliseconds is None else milliseconds / 1e3


def _limits(
    settings: Settings, max_model_len: int, num_blocks: int, num_swap_blocks: int
) -> SchedulerLimits:
    wanted, kv = settings.scheduler, settings.kv
    return SchedulerLimits(
        num_blocks=num_blocks,
        block_size=kv.block_size,
        max_model_len=max_model_len,
        max_num_seqs=wanted.max_num_seqs,
        max_num_batched_tokens=wanted.max_num_batched_tokens,
        batching=Batching(wanted.batching),
        max_waiting_time_s=wanted.max_waiting_time_ms / 1e3,
        max_prefill_chunk_tokens=wanted.max_prefill_chunk_tokens,
        enable_chunked_prefill=wanted.enable_chunked_prefill,
        max_partial_prefills=wanted.max_partial_prefills,
        long_prefill_threshold_tokens=wanted.long_prefill_threshold_tokens,
        max_long_partial_prefills=wanted.max_long_partial_prefills,
        max_queue_requests=wanted.max_queue_requests,
        max_queue_tokens=wanted.max_queue_tokens,
        max_passes=wanted.max_passes,
        watermark_blocks=int(kv.watermark * num_blocks),
        enable_prefix_sharing=kv.prefix_sharing != "off",
        num_swap_blocks=num_swap_blocks,
        preemption_victim=VictimChoice(wanted.preemption_victim),
        preemption_mode=PreemptionChoice(wanted.preemption_mode),
        max_preemptions=wanted.max_preemptions,
    )


def _policy(settings: Settings) -> PolicyConfig:
    wanted = settings.scheduler
    return PolicyConfig(
        name=PolicyName(wanted.policy),
        predictor=PredictorName(wanted.sjf_predictor),
        ageing_s=wanted.ageing_s,
        priority_threshold=wanted.priority_threshold,
        input_token_weight=wanted.input_token_weight,
        output_token_weight=wanted.output_token_weight,
        tenant_weights=tuple((name, each.weight) for name, each in settings.tenants.items()),
    )


def _costs(settings: Settings) -> StepCosts:
    """Return the modelled costs where steps are modelled; else the scheduler measures them."""
    if settings.model.executor != "simulated":
        return StepCosts()
    return simulated_costs(settings.simulation)


def simulated_costs(simulation: SimulationSettings) -> StepCosts:
    """Return what a step costs with ``executor = "simulated"``."""
    return StepCosts(
        base_s=simulation.step_base_ms / 1e3,
        prefill_token_s=simulation.prefill_ms_per_token / 1e3,
        decode_s=simulation.decode_ms_per_sequence / 1e3,
        swap_block_s=simulation.swap_ms_per_block / 1e3,
    )
