"""The simulator's speed benchmark runs and tells what it couldn't measure; no time is asserted."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_it_prints_one_object_and_names_the_traces_that_are_missing(tmp_path: Path) -> None:
    # in a process of its own, since it sets the garbage collector
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.simulation", "--json", "--most", "300"],
        cwd=ROOT,
        env={**os.environ, "HEADWAY_TRACES": str(tmp_path)},
        check=True,
        capture_output=True,
        text=True,
    )
    outcome = json.loads(done.stdout)
    assert outcome["traces"] == []
    assert len(outcome["missing"]) == 3
    (speed,) = outcome["many"]
    assert (speed["num_requests"], speed["num_replicas"]) == (300, 1)
    assert speed["num_output_tokens"] >= speed["num_steps"] > 0
    assert outcome["growth"] == 1
