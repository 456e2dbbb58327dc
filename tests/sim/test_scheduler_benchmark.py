"""The scheduler's speed benchmark runs, and prints one object; how fast it is is not asserted."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_it_prints_one_object_with_the_times_of_each_policy() -> None:
    # in a process of its own, since it sets the garbage collector
    arguments = ["--json", "--policy", "fcfs", "--policy", "priority"]
    arguments += ["--waiting", "400", "--steps", "60"]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.scheduler", *arguments],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    policies = json.loads(done.stdout)["policies"]
    assert list(policies) == ["fcfs", "priority"]
    for times in policies.values():
        assert 0 < times["median_us"] < times["p99_us"]
        assert times["num_decode_steps"] + times["num_admission_steps"] <= 60
