"""Tables of classes and tenants in the settings file: what they may say, and what not together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from pathlib import Path

import pytest

from headway.config import (
    ClassSettings,
    KvSettings,
    Origin,
    SchedulerSettings,
    ServerSettings,
    Settings,
    TenantSettings,
    load_settings,
    settings_of,
    to_toml,
    value_of,
)
from headway.config.scheduling import scheduler_config, service_classes
from headway.core.classes import PolicyName, ServiceClass
from headway.core.config import PredictorName
from headway.core.limits import Batching, PreemptionChoice, VictimChoice
from headway.errors import ConfigError

DESIGN = """
[scheduler]
policy = "slo"
protect = "ttft"
max_num_seqs = 256
max_num_batched_tokens = 8192
max_waiting_time_ms = 0
preemption_mode = "auto"

[kv]
memory_utilization = 0.9
swap_space_bytes = 2_000_000_000

[classes.interactive]
weight = 8
ttft_p99_ms = 500
tpot_p99_ms = 80
max_running_share = 0.8
max_queue_requests = 256
max_output_tokens = 1024
queue_timeout_s = 30

[classes.batch]
weight = 2
max_waiting_time_ms = 500

[classes.eval]
weight = 1
best_effort = true
"""


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str], Path]:
    def write(text: str) -> Path:
        path = tmp_path / "headway.toml"
        path.write_text(text, encoding="utf-8")
        return path

    return write


def complaint(path: Path) -> str:
    with pytest.raises(ConfigError) as caught:
        load_settings(path)
    message = str(caught.value)
    assert "\n" not in message
    return message


# ------------------------------------------------------------------ reading


def test_the_design_is_taken_as_it_stands(write: Callable[[str], Path]) -> None:
    loaded = load_settings(write(DESIGN))
    assert loaded.warnings == ()
    assert list(loaded.settings.classes) == ["interactive", "batch", "eval"]
    interactive, batch, evaluation = service_classes(loaded.settings)
    assert interactive == ServiceClass(
        name="interactive",
        weight=8.0,
        ttft_target_s=0.5,
        tpot_target_s=0.08,
        max_running_share=0.8,
        max_queue_requests=256,
        max_output_tokens=1024,
        queue_timeout_s=30.0,
    )
    assert batch.max_waiting_time_s == 0.5
    assert evaluation.best_effort


def test_values_of_tables_have_origins(write: Callable[[str], Path]) -> None:
    path = write('[classes.a]\nweight = 2\n[tenants."x.y"]\nweight = 3\n[classes.empty]\n')
    loaded = load_settings(path)
    assert loaded.origins["classes.a.weight"] == Origin("file", str(path))
    assert loaded.origins["classes.a.priority"] == Origin("default")
    assert loaded.origins["classes.empty.weight"] == Origin("default")
    assert value_of(loaded.settings, "tenants.x.y.weight") == 3.0


def test_the_file_is_taken_back_with_its_tables(write: Callable[[str], Path]) -> None:
    tenants = '[tenants."a b"]\nweight = 1\n'.replace("a b", "a.b")
    loaded = load_settings(write(DESIGN + tenants + '[classes.z]\nttft_p99_ms = "none"\n'))
    assert load_settings(write(to_toml(loaded))).settings == loaded.settings


def test_keys_of_tenants_are_never_shown(write: Callable[[str], Path]) -> None:
    loaded = load_settings(write('[tenants.a]\napi_key = "hunter2"\n'))
    assert loaded.settings.tenants["a"].api_key == ("hunter2",)
    assert "hunter2" not in to_toml(loaded)
    twice = '[tenants.a]\napi_key = ["hunter2"]\n[tenants.b]\napi_key = ["x", "hunter2"]\n'
    message = complaint(write(twice))
    assert "tenants.a.api_key and tenants.b.api_key have a key in common" in message
    assert "hunter2" not in message
    message = complaint(write('[server]\napi_key = "hunter2"\n[tenants.b]\napi_key = "hunter2"\n'))
    assert "server.api_key and tenants.b.api_key" in message
    assert "hunter2" not in complaint(write('[tenants.b]\napi_key = ["hunter2", 3]\n'))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[classes.a]\nwieght = 1\n", "unknown setting classes.a.wieght (did you mean weight?)"),
        ("[classes.a]\nttft_ms = 1\n", "classes.a.ttft_ms (did you mean ttft_p99_ms?)"),
        ("[tenants.a]\nclass = 'x'\n", "(did you mean default_class?)"),
        ("[classes]\nweight = 1\n", "settings belong under [classes.NAME]"),
        ("classes = 1\n", "classes must be a table: [classes.NAME]"),
        ("[class.a]\nweight = 1\n", "unknown section class (did you mean classes?)"),
        ("[classes.a]\nweight = 0\n", "classes.a.weight = 0 (file "),
        ("[classes.a]\nweight = true\n", "classes.a.weight = true (file "),
        ("[classes.a]\nmax_running_share = 1.5\n", "must be a number above 0 and up to 1"),
        ("[classes.a]\npolicy = 'lifo'\n", 'one of "fcfs", "sjf", "priority", "fair", "slo"'),
        ("[classes.a]\npriority = 101\n", "of at least -100 and up to 100"),
        ("[classes.A]\n", "classes.A: a class's name must have 1 to 64 of a-z"),
        ("[classes.auto]\n", "be none of auto, none"),
        ("[classes.'a b']\n", "a class's name"),
        (f"[classes.{'a' * 65}]\n", "a class's name"),
        ("[tenants.'a b']\n", "a tenant's name"),
        ("".join(f"[classes.c{i}]\n" for i in range(33)), "33 classes are too many: at most 32"),
    ],
)
def test_bad_tables(write: Callable[[str], Path], text: str, words: str) -> None:
    assert words in complaint(write(text))


# ------------------------------------------------------------------ together


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "[classes.a]\nmin_running_share = 0.9\nmax_running_share = 0.5\n",
            "classes.a.min_running_share (0.9) must not exceed classes.a.max_running_share (0.5)",
        ),
        (
            "[classes.a]\nmin_running_share = 0.6\n[classes.b]\nmin_running_share = 0.6\n",
            "add up to 1.2, above 1: classes.a.min_running_share = 0.6, "
            "classes.b.min_running_share = 0.6",
        ),
        (
            '[scheduler]\nbatching = "static"\n[classes.a]\nreserved_slots = 2\n'
            "reserved_blocks = 9\n",
            'classes.a.reserved_slots (2) can\'t be kept with scheduler.batching = "static"',
        ),
        ("[classes.a]\nreserved_slots = 2\n", "(2) and classes.a.reserved_blocks (0) go together"),
        (
            "[scheduler]\nmax_num_seqs = 4\n[classes.a]\nreserved_slots = 3\nreserved_blocks = 1\n"
            "[classes.b]\nreserved_slots = 2\nreserved_blocks = 1\n",
            "5 slots are promised (classes.a.reserved_slots = 3, classes.b.reserved_slots = 2; "
            "shares are rounded up), but scheduler.max_num_seqs is 4",
        ),
        (
            "[scheduler]\nmax_num_seqs = 8\n[classes.a]\nreserved_slots = 4\nreserved_blocks = 1\n"
            "[classes.b]\nmin_running_share = 0.55\n",
            "9 slots are promised (classes.a.reserved_slots = 4, "
            "classes.b.min_running_share = 0.55, which is 5; ",
        ),
        (
            "[scheduler]\nmax_num_seqs = 4\n[classes.a]\nreserved_slots = 4\nreserved_blocks = 1\n"
            "[classes.b]\n",
            "all 4 slots are reserved (classes.a.reserved_slots = 4), and none is left for "
            "classes.b: scheduler.max_num_seqs is 4",
        ),
        (
            "[kv]\nnum_blocks = 9\n[classes.a]\nreserved_slots = 4\nreserved_blocks = 9\n"
            "[classes.b]\n",
            "9 blocks are reserved (classes.a.reserved_blocks = 9), and classes.b needs one, but "
            "kv.num_blocks is 9",
        ),
        (
            "[classes.a]\nreserved_slots = 4\nreserved_blocks = 9\nmax_running_share = 0.5\n",
            "classes.a.max_running_share (0.5) does not go with classes.a.reserved_slots (4)",
        ),
        (
            "[scheduler]\nenable_chunked_prefill = false\n"
            "[classes.a]\nreserved_slots = 4\nreserved_blocks = 9\n",
            "(4) can't be kept with scheduler.enable_chunked_prefill = false",
        ),
        (
            "[classes.a]\nreserved_slots = 4\nreserved_blocks = 9\nbest_effort = true\n",
            "classes.a.best_effort has no effect: with classes.a.reserved_slots (4)",
        ),
        (
            "[model]\nmax_model_len = 2048\n[scheduler]\nenable_chunked_prefill = false\n",
            "scheduler.max_num_batched_tokens (1024) must hold the longest sequence, of 2048 "
            "tokens by model.max_model_len",
        ),
        (
            "[model]\nmax_model_len = 2048\n[kv]\nnum_blocks = 100\n"
            "[scheduler]\nenable_chunked_prefill = false\n",
            "of 1601 tokens by kv.num_blocks",
        ),
        (
            '[scheduler]\nbatching = "static"\n[kv]\nswap_space_bytes = 9\n',
            'kv.swap_space_bytes (9) has no effect with scheduler.batching = "static"',
        ),
        (
            '[scheduler]\nbatching = "dynamic"\nlong_prefill_threshold_tokens = 9\n',
            'long_prefill_threshold_tokens (9) has no effect with scheduler.batching = "dynamic"',
        ),
        (
            "[classes.a]\nreserved_slots = 1\nreserved_blocks = 1\nqueue_timeout_s = 5\n",
            "classes.a.queue_timeout_s (5) has no effect",
        ),
        (
            '[server]\ndefault_class = "x"\n[classes.a]\n[classes.b]\n',
            "server.default_class = 'x': there is no such class; known: a, b",
        ),
        ('[tenants.t]\ndefault_class = "x"\n', "tenants.t.default_class = 'x'"),
        ('[scheduler]\npreemption_mode = "swap"\n', "needs kv.swap_space_bytes above 0"),
        (
            "[scheduler]\nmax_long_partial_prefills = 1\n",
            "has no effect without scheduler.long_prefill_threshold_tokens",
        ),
        (
            "[scheduler]\nmax_partial_prefills = 1\nenable_chunked_prefill = false\n",
            "scheduler.max_partial_prefills has no effect without",
        ),
        (
            "[profile]\nevery_s = 60.0\n",
            "profile.every_s has no effect without profile.path",
        ),
        ('[server]\nclass_header = "X:Y"\n', "must be a header's name"),
        ('[server]\ntenant_header = "Authorization"\n', "none of authorization"),
        (
            '[server]\nclass_header = "X-A"\ntenant_header = "x-a"\n',
            "server.class_header and server.tenant_header are the same header",
        ),
    ],
)
def test_contradictions(write: Callable[[str], Path], text: str, words: str) -> None:
    path = write(text)
    message = complaint(path)
    assert words in message


def test_a_contradiction_says_where_both_sides_come_from(write: Callable[[str], Path]) -> None:
    path = write("[classes.a]\nreserved_slots = 9\nreserved_blocks = 9\n")
    with pytest.raises(ConfigError) as caught:
        load_settings(path, {"HEADWAY_SCHEDULER_MAX_NUM_SEQS": "8"})
    assert f"classes.a.reserved_slots from file {path}" in str(caught.value)
    assert "max_num_seqs from environment HEADWAY_SCHEDULER_MAX_NUM_SEQS" in str(caught.value)


def test_shares_may_add_up_to_all_there_is() -> None:
    thirds = {name: ClassSettings(min_running_share=share) for name, share in
              (("a", 0.1), ("b", 0.2), ("c", 0.7))}  # fmt: skip
    Settings(classes=thirds, scheduler=SchedulerSettings(max_num_seqs=10))
    with pytest.raises(ConfigError, match=r"65 slots are promised .*share = 0.7, which is 45"):
        Settings(classes=thirds)


def test_tables_made_in_code_are_checked_and_frozen() -> None:
    with pytest.raises(ConfigError, match=r"tenants.t.default_class"):
        Settings(tenants={"t": TenantSettings(default_class="x")})
    given = {"a": ClassSettings()}
    settings = Settings(classes=given)
    given["b"] = ClassSettings()
    assert list(settings.classes) == ["a"]
    with pytest.raises(TypeError):
        settings.classes["c"] = ClassSettings()  # type: ignore[index]


def test_the_default_class() -> None:
    def default(*names: str, **server: str) -> str:
        classes = {name: ClassSettings() for name in names}
        return Settings(classes=classes, server=ServerSettings(**server)).default_class  # type: ignore[arg-type]

    assert default() == "default"
    assert default("b", "a") == "b"
    assert default("b", "default") == "default"
    assert default("b", "default", default_class="b") == "b"


# ------------------------------------------------------------------ in the scheduler's units


def test_every_setting_of_a_class_reaches_the_scheduler() -> None:
    """Each one set alone to another value makes another class."""
    changes: dict[str, object] = {
        "weight": 2.0, "ttft_p99_ms": 5.0, "tpot_p99_ms": 5.0, "policy": "sjf", "priority": 3,
        "min_running_share": 0.1, "max_running_share": 0.5, "max_waiting_time_ms": 5.0,
        "max_queue_requests": 5, "max_queue_tokens": 5, "max_output_tokens": 5,
        "queue_timeout_s": 5.0, "request_timeout_s": 5.0, "best_effort": True,
    }  # fmt: skip
    names = {setting.name for setting in settings_of(ClassSettings)}
    assert set(changes) | {"reserved_slots", "reserved_blocks"} == names
    plain = service_classes(Settings())
    for name, value in changes.items():
        (changed,) = service_classes(
            Settings(classes={"default": ClassSettings(**{name: value})})  # type: ignore[arg-type]
        )
        differing = [f for f in fields(ServiceClass) if
                     getattr(changed, f.name) != getattr(plain[0], f.name)]  # fmt: skip
        assert len(differing) == 1, name
    reserved = ClassSettings(reserved_slots=2, reserved_blocks=3)
    (changed,) = service_classes(Settings(classes={"default": reserved}))
    assert (changed.reserved_slots, changed.reserved_blocks) == (2, 3)


def test_the_schedulers_timeouts_are_the_classes_default() -> None:
    scheduler = SchedulerSettings(queue_timeout_s=10, request_timeout_s=20)
    own = ClassSettings(queue_timeout_s=5)
    one, other = service_classes(
        Settings(scheduler=scheduler, classes={"a": own, "b": ClassSettings()})
    )
    assert (one.queue_timeout_s, one.request_timeout_s) == (5, 20)
    assert (other.queue_timeout_s, other.request_timeout_s) == (10, 20)
    (only,) = service_classes(Settings(scheduler=scheduler))
    assert (only.name, only.queue_timeout_s) == ("default", 10)


def test_every_setting_of_the_scheduler_reaches_it() -> None:
    scheduler = SchedulerSettings(
        batching="dynamic",
        policy="fair",
        max_num_seqs=7,
        max_num_batched_tokens=70,
        max_waiting_time_ms=25,
        max_prefill_chunk_tokens=33,
        max_partial_prefills=4,
        long_prefill_threshold_tokens=20,
        max_long_partial_prefills=2,
        max_passes=9,
        preemption_victim="newest",
        preemption_mode="swap",
        max_preemptions=5,
        sjf_predictor="hint",
        ageing_s=11,
        priority_threshold=None,
        input_token_weight=3,
        output_token_weight=4,
        max_queue_requests=None,
        max_queue_tokens=500,
    )
    settings = Settings(
        scheduler=scheduler,
        kv=KvSettings(block_size=8, watermark=0.1, prefix_sharing="off", swap_space_bytes=1),
        tenants={"t": TenantSettings(weight=2)},
    )
    config = scheduler_config(settings, max_model_len=99, num_blocks=50, num_swap_blocks=6)
    limits, policy = config.limits, config.policy
    assert limits.batching is Batching.DYNAMIC
    assert (limits.max_num_seqs, limits.max_num_batched_tokens) == (7, 70)
    assert limits.max_waiting_time_s == 0.025
    assert (limits.max_prefill_chunk_tokens, limits.max_partial_prefills) == (33, 4)
    assert (limits.long_prefill_threshold_tokens, limits.max_long_partial_prefills) == (20, 2)
    assert (limits.max_passes, limits.max_preemptions) == (9, 5)
    assert limits.preemption_mode is PreemptionChoice.SWAP
    assert limits.preemption_victim is VictimChoice.NEWEST
    assert (limits.max_queue_requests, limits.max_queue_tokens) == (None, 500)
    assert (limits.num_blocks, limits.num_swap_blocks, limits.block_size) == (50, 6, 8)
    assert (limits.watermark_blocks, limits.enable_prefix_sharing) == (5, False)
    assert (policy.name, policy.predictor) == (PolicyName.FAIR, PredictorName.HINT)
    assert (policy.ageing_s, policy.priority_threshold) == (11, None)
    assert (policy.input_token_weight, policy.output_token_weight) == (3, 4)
    assert policy.tenant_weights == (("t", 2.0),)


def test_what_only_the_scheduler_sees_is_a_complaint_too() -> None:
    settings = Settings(classes={"a": ClassSettings(reserved_slots=1, reserved_blocks=51)})
    with pytest.raises(ConfigError, match=r"\[scheduler\].*51 blocks are reserved"):
        scheduler_config(settings, max_model_len=99, num_blocks=50, num_swap_blocks=0)
