"""Settings that contradict themselves or each other are refused, with names and numbers."""

from __future__ import annotations

from typing import Any

import pytest
from lives import limits

from headway.core.classes import ServiceClass
from headway.core.config import PolicyConfig, SchedulerConfig
from headway.core.limits import Batching, PreemptionChoice, SchedulerLimits


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"weight": 0.0}, "weight"),
        ({"weight": float("nan")}, "weight"),
        ({"weight": float("inf")}, "weight"),
        ({"min_running_share": 0.6, "max_running_share": 0.5}, r"0\.6.*0\.5"),
        ({"max_running_share": 0.0}, "max_running_share"),
        ({"max_running_share": 1.5}, r"1\.5"),
        ({"min_running_share": float("nan")}, "min_running_share"),
        ({"reserved_slots": 2}, "reserved_slots and reserved_blocks"),
        ({"reserved_blocks": 2}, "reserved_slots and reserved_blocks"),
        ({"reserved_slots": -1, "reserved_blocks": -1}, "-1"),
        ({"reserved_slots": 2, "reserved_blocks": 4, "max_running_share": 0.5}, "share"),
        ({"ttft_target_s": 0.0}, "ttft_target_s"),
        ({"tpot_target_s": -1.0}, "tpot_target_s.*-1"),
        ({"max_queue_requests": -1}, "max_queue_requests.*-1"),
        ({"max_queue_tokens": 0}, "max_queue_tokens.*0"),
        ({"max_output_tokens": 0}, "max_output_tokens.*0"),
        ({"max_waiting_time_s": -0.5}, r"max_waiting_time_s.*-0\.5"),
        ({"queue_timeout_s": 0.0}, "queue_timeout_s"),
        ({"request_timeout_s": 0.0}, "request_timeout_s"),
    ],
)
def test_a_class_that_contradicts_itself_is_refused_by_name(
    changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=rf"class chat: .*{message}"):
        ServiceClass(name="chat", **changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_blocks": 0}, "num_blocks.*0"),
        ({"block_size": 0}, "block_size.*0"),
        ({"max_num_seqs": 0}, "max_num_seqs.*0"),
        ({"max_num_batched_tokens": 3}, r"max_num_batched_tokens \(3\).*max_num_seqs \(4\)"),
        ({"max_prefill_chunk_tokens": 0}, "max_prefill_chunk_tokens"),
        ({"enable_chunked_prefill": False}, r"max_num_batched_tokens \(16\).*64"),
        (
            {
                "enable_chunked_prefill": False,
                "max_num_batched_tokens": 64,
                "max_prefill_chunk_tokens": 4,
            },
            "max_prefill_chunk_tokens",
        ),
        ({"max_plans_in_flight": 3}, "max_plans_in_flight"),
        ({"max_partial_prefills": 0}, "max_partial_prefills.*0"),
        ({"max_long_partial_prefills": 1}, "long_prefill_threshold_tokens"),
        ({"long_prefill_threshold_tokens": 0}, "long_prefill_threshold_tokens.*0"),
        ({"max_waiting_time_s": -1.0}, "max_waiting_time_s"),
        ({"max_waiting_time_s": float("nan")}, "max_waiting_time_s"),
        ({"max_passes": -1}, "max_passes.*-1"),
        ({"max_preemptions": -1}, "max_preemptions.*-1"),
        ({"num_swap_blocks": -1}, "num_swap_blocks.*-1"),
        ({"preemption_mode": PreemptionChoice.SWAP}, "num_swap_blocks is 0"),
        ({"max_queue_requests": -1}, "max_queue_requests.*-1"),
        ({"max_queue_tokens": -1}, "max_queue_tokens.*-1"),
        ({"watermark_blocks": -1}, "watermark_blocks.*-1"),
        ({"watermark_blocks": 17}, r"watermark_blocks \(17\).*16"),
    ],
)
def test_limits_that_contradict_each_other_are_refused_by_number(
    changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        limits(**changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"classes": ()}, "at least one class"),
        ({"classes": (ServiceClass(), ServiceClass())}, "default"),
        (
            {
                "classes": (
                    ServiceClass(name="x", min_running_share=0.75),
                    ServiceClass(name="y", min_running_share=0.5),
                )
            },
            "need 5 slots, and max_num_seqs is 4",
        ),
        (
            {"classes": (ServiceClass(name="x", reserved_slots=5, reserved_blocks=1),)},
            "need 5 slots, and max_num_seqs is 4",
        ),
        (
            {
                "classes": (
                    ServiceClass(name="x", reserved_slots=4, reserved_blocks=1),
                    ServiceClass(name="y"),
                )
            },
            "all 4 slots are reserved, and none is left for y",
        ),
        (
            {
                "classes": (
                    ServiceClass(name="x", reserved_slots=1, reserved_blocks=16),
                    ServiceClass(name="y"),
                )
            },
            "16 blocks are reserved, and the pool has 16",
        ),
        ({"policy": PolicyConfig(ageing_s=0.0)}, "ageing_s.*0"),
        ({"policy": PolicyConfig(priority_threshold=0)}, "priority_threshold.*0"),
        ({"policy": PolicyConfig(input_token_weight=0.0)}, "input_token_weight"),
        ({"policy": PolicyConfig(output_token_weight=-1.0)}, "output_token_weight.*-1"),
        ({"policy": PolicyConfig(tenant_weights=(("acme", 0.0),))}, "acme.*0"),
    ],
)
def test_a_configuration_that_contradicts_itself_is_refused(
    changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        SchedulerConfig(limits=limits(), **changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"batching": Batching.STATIC}, "static.*class x"),
        (
            {"enable_chunked_prefill": False, "max_num_batched_tokens": 64},
            "class x.*enable_chunked_prefill",
        ),
    ],
)
def test_modes_in_which_reserved_work_could_not_start_at_once_are_refused(
    changes: dict[str, Any], message: str
) -> None:
    classes = (ServiceClass(name="x", reserved_slots=1, reserved_blocks=4), ServiceClass())
    with pytest.raises(ValueError, match=message):
        SchedulerConfig(limits=limits(**changes), classes=classes)


def test_the_defaults_contradict_nothing() -> None:
    SchedulerConfig(
        limits=SchedulerLimits(
            num_blocks=1,
            block_size=1,
            max_model_len=1,
            max_num_seqs=1,
            max_num_batched_tokens=1,
        )
    )
