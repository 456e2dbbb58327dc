"""Warnings of settings that are allowed together, but hardly meant."""

from __future__ import annotations

from pathlib import Path

import pytest

from headway.config import load_settings


def warnings(text: str, tmp_path: Path) -> tuple[str, ...]:
    path = tmp_path / "headway.toml"
    path.write_text(text, encoding="utf-8")
    return load_settings(path).warnings


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[tenants.a]\nweight = 2\n", "tenants.a.weight has no effect: the policy is"),
        (
            '[scheduler]\npolicy = "slo"\n[classes.a]\n',
            'scheduler.policy = "slo" has no effect: no class states ttft_p99_ms or tpot_p99_ms',
        ),
        ('[classes.a]\npolicy = "slo"\n', 'classes.a.policy = "slo" has no effect'),
        (
            '[scheduler]\npolicy = "slo"\nbatching = "dynamic"\n[classes.a]\ntpot_p99_ms = 80\n',
            'no step is made smaller to keep it with scheduler.batching = "dynamic"',
        ),
        (
            '[scheduler]\npolicy = "slo"\nenable_chunked_prefill = false\n'
            "[classes.a]\ntpot_p99_ms = 80\n",
            "to keep it with scheduler.enable_chunked_prefill = false",
        ),
        ('[scheduler]\nbatching = "static"\nmax_passes = 3\n', "max_passes = 3 has no effect"),
        (
            '[scheduler]\nbatching = "static"\nmax_preemptions = 9\n',
            "max_preemptions = 9 has no effect",
        ),
        (
            "[scheduler]\nqueue_timeout_s = 30\nrequest_timeout_s = 20\n[classes.a]\n",
            "scheduler.queue_timeout_s (30) has no effect: scheduler.request_timeout_s (20) passes",
        ),
        (
            "[scheduler]\nrequest_timeout_s = 20\n[classes.a]\nqueue_timeout_s = 30\n",
            "classes.a.queue_timeout_s (30) has no effect: scheduler.request_timeout_s (20)",
        ),
        (
            "[classes.a]\nmin_running_share = 0.5\n[classes.b]\nmin_running_share = 0.5\n"
            "[classes.c]\n",
            "classes.c has no min_running_share, and what others are sure of is all 64 slots",
        ),
        (
            "[simulation]\nstep_base_ms = 9\n",
            'simulation.step_base_ms (9.0) has no effect with model.executor = "cpu"',
        ),
        (
            '[model]\nexecutor = "simulated"\ndtype = "bfloat16"\n',
            'model.dtype (bfloat16) has no effect with model.executor = "simulated"',
        ),
        (
            '[model]\nexecutor = "simulated"\nnum_threads = 2\n',
            'model.num_threads (2) has no effect with model.executor = "simulated"',
        ),
    ],
)
def test_what_is_hardly_meant_is_a_warning(text: str, words: str, tmp_path: Path) -> None:
    (warning,) = warnings(text, tmp_path)
    assert words in warning
    assert "headway.toml" in warning  # where it comes from


@pytest.mark.parametrize(
    "text",
    [
        '[classes.a]\npolicy = "fair"\n[tenants.t]\nweight = 2\n',
        '[scheduler]\npolicy = "fair"\n[tenants.t]\nweight = 2\n',
        '[scheduler]\npolicy = "slo"\n[classes.a]\ntpot_p99_ms = 80\n',
        '[scheduler]\npolicy = "slo"\n[classes.a]\npolicy = "sjf"\nttft_p99_ms = 80\n',
        '[scheduler]\npolicy = "priority"\n[classes.a]\npolicy = "fair"\n',
        '[scheduler]\nbatching = "static"\nmax_passes = 16\n',
        "[scheduler]\nqueue_timeout_s = 20\nrequest_timeout_s = 20\n",
        "[classes.a]\nmin_running_share = 0.5\n[classes.b]\nmin_running_share = 0.4\n[classes.c]\n",
        "[classes.a]\npriority = 1\n[classes.b]\npriority = 1\n",
    ],
)
def test_what_has_a_meaning_is_none(text: str, tmp_path: Path) -> None:
    assert warnings(text, tmp_path) == ()
