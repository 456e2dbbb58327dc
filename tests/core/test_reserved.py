"""Reserved capacity: work that never queues. It starts in the next step, or is refused at once."""

from __future__ import annotations

from typing import Any

import pytest
from lives import Life

from headway.core import events as ev
from headway.core.classes import PolicyName, ServiceClass
from headway.core.config import PolicyConfig
from headway.core.limits import Batching


def real_time(**changes: Any) -> Life:
    """Two slots and 4 blocks of 16 are reserved for the class rt."""
    classes = (
        ServiceClass(),
        ServiceClass(name="rt", reserved_slots=2, reserved_blocks=4),
    )
    return Life(**{"classes": classes, **changes})


def submit(life: Life, name: str, num_prompt: int = 4, max_tokens: int = 5, **kw: Any) -> Any:
    return life.submit(name, num_prompt, max_tokens=max_tokens, class_name="rt", **kw)


def test_it_starts_in_the_next_step_under_full_load() -> None:
    """Every slot, block and token that others may have is taken."""
    life = real_time()
    for number in range(8):
        life.submit(f"b{number}", 20, max_tokens=20)
    life.steps(5)
    submit(life, "rt0")
    submit(life, "rt1")
    plan = life.plan()
    assert {"rt0", "rt1"} <= set(life.started())
    assert "rt0[0:" in life.read(plan)
    assert "rt1[0:" in life.read(plan)
    life.answer(plan)


@pytest.mark.parametrize("policy", list(PolicyName))
def test_it_starts_in_the_next_step_with_every_policy(policy: PolicyName) -> None:
    life = real_time(policy=policy)
    for number in range(8):
        life.submit(f"b{number}", 20, max_tokens=20, priority=-9)
    life.steps(3)
    for number in range(6):
        answer = submit(life, f"rt{number}", max_tokens=2)
        life.step()
        if isinstance(answer, ev.Admitted):
            assert f"rt{number}" in life.started()


def test_it_goes_before_the_prefill_of_others() -> None:
    life = real_time()
    life.submit("long", 40)
    life.step()
    submit(life, "rt0")
    assert life.step() == "rt0[0:4] long[16:28]"


def test_its_own_long_prompt_leaves_a_token_to_each_that_comes() -> None:
    life = real_time(max_num_batched_tokens=4)
    submit(life, "rt0", 7, max_tokens=2)
    life.step()
    submit(life, "rt1", 4, max_tokens=1)
    plan = life.plan()
    assert life.read(plan) == "rt0[4:7] rt1[0:1]"
    life.answer(plan)


def test_beyond_its_slots_it_is_refused_at_once() -> None:
    life = real_time()
    submit(life, "rt0")
    submit(life, "rt1")
    refused = submit(life, "rt2")
    assert isinstance(refused, ev.Rejected)
    assert refused.reason is ev.RejectReason.RESERVED_FULL
    assert refused.retry_after_s is not None
    assert refused.retry_after_s >= 1.0
    for number in ("3 of 2 slots", "6 of 4 blocks"):
        assert number in refused.message


def test_beyond_its_blocks_it_is_refused_at_once() -> None:
    """Two blocks each in the end, so three blocks and two make five of four."""
    life = real_time()
    submit(life, "rt0", 8, max_tokens=2)
    refused = submit(life, "rt1")
    assert isinstance(refused, ev.Rejected)
    assert "5 of 4 blocks" in refused.message


def test_it_is_refused_though_the_machine_is_idle() -> None:
    """What it was promised is its reservation, and whoever may come meanwhile has the rest."""
    life = real_time()
    refused = submit(life, "a", 17, max_tokens=1)
    assert isinstance(refused, ev.Rejected)
    assert refused.reason is ev.RejectReason.KV_CAPACITY
    assert "17 tokens" in refused.message
    assert "16 (4 blocks of 4)" in refused.message
    assert refused.retry_after_s is None


@pytest.mark.parametrize(
    "changes", [{"n": 3, "num_prompt": 1, "max_tokens": 1}, {"n": 2, "num_prompt": 9}]
)
def test_what_the_reservation_can_never_hold_is_not_told_to_come_again(changes: Any) -> None:
    life = real_time()
    refused = submit(life, "a", **changes)
    assert isinstance(refused, ev.Rejected)
    assert refused.retry_after_s is None


def test_once_one_has_ended_another_is_taken() -> None:
    life = real_time()
    submit(life, "rt0", max_tokens=1)
    submit(life, "rt1", max_tokens=9)
    life.step()
    assert life.finished() == ["rt0"]
    assert isinstance(submit(life, "rt2", max_tokens=1), ev.Admitted)
    assert life.step() == "rt1[4:5] rt2[0:4]"


def test_a_cancelled_one_makes_room_at_once() -> None:
    life = real_time()
    submit(life, "rt0")
    submit(life, "rt1")
    life.step()
    life.cancel("rt0")
    assert isinstance(submit(life, "rt2"), ev.Admitted)
    life.step()
    assert life.running() == {"rt1", "rt2"}


def test_nobody_else_takes_the_reserved_slots_and_blocks() -> None:
    life = real_time()
    for number in range(8):
        life.submit(f"b{number}", 4, max_tokens=30)
    while life.scheduler.statistics().num_live:
        seen = life.scheduler.statistics().classes[0]
        assert seen.num_running <= 2
        assert seen.num_blocks <= 12
        life.step()


def test_others_are_refused_what_would_need_reserved_blocks() -> None:
    life = real_time()
    refused = life.refused("a", 49, max_tokens=1)
    assert refused.reason is ev.RejectReason.KV_CAPACITY
    assert "part open to its class holds 48 (12 blocks of 4)" in refused.message
    assert isinstance(life.submit("b", 48, max_tokens=1), ev.Admitted)


def test_it_is_never_preempted() -> None:
    life = real_time(policy=PolicyConfig(name=PolicyName.PRIORITY))
    submit(life, "rt0", max_tokens=9, priority=99)
    for number in range(6):
        life.submit(f"b{number}", 8, max_tokens=30, priority=-9)
    life.run_dry()
    assert "rt0" not in life.preempted()
    assert len(life.finished()) == 7


def test_it_is_never_held() -> None:
    life = real_time(max_waiting_time_s=9.0)
    submit(life, "rt0")
    assert life.step() == "rt0[0:4]"


def test_caps_of_the_queue_do_not_concern_it() -> None:
    life = real_time(max_queue_requests=0, max_queue_tokens=1)
    life.submit("a", 9)
    life.submit("b", 9)
    assert isinstance(submit(life, "rt0"), ev.Admitted)


def test_two_classes_with_reservations_keep_theirs() -> None:
    classes = (
        ServiceClass(name="r", reserved_slots=1, reserved_blocks=4),
        ServiceClass(name="s", reserved_slots=1, reserved_blocks=4),
        ServiceClass(),
    )
    life = Life(classes=classes)
    for number in range(4):
        life.submit(f"b{number}", 20, max_tokens=9)
    life.step()
    life.submit("r0", 8, max_tokens=8, class_name="r")
    life.submit("s0", 8, max_tokens=8, class_name="s")
    life.step()
    assert {"r0", "s0"} <= life.running()
    life.run_dry()
    assert not {"r0", "s0"} & set(life.preempted())


def test_in_dynamic_batches_it_joins_at_once() -> None:
    life = real_time(batching=Batching.DYNAMIC)
    for number in range(4):
        life.submit(f"b{number}", 8, max_tokens=20)
    life.steps(3)
    submit(life, "rt0")
    assert life.step() == "rt0[0:4]"


def test_a_deadline_of_a_reserved_request_ends_it() -> None:
    life = real_time()
    submit(life, "rt0", max_tokens=9, request_timeout_s=1.0)
    life.step()
    life.now = 1.0
    life.idle()
    assert [event.request_id for event in life.seen(ev.Expired)] == ["rt0"]
    assert isinstance(submit(life, "rt1"), ev.Admitted)
