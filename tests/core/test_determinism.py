"""Invariant 8: same stimuli, any PYTHONHASHSEED, the same plan log, byte for byte."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

_LIVES = """
import json, sys
from test_random_moves import live
from headway.engine.records import plan_bytes

totals = {}
for seed in range(30):
    log = []
    life = live(seed, on_plan=log.append)
    for plan in log:
        sys.stdout.buffer.write(plan_bytes(plan))
    seen = life.scheduler.statistics()
    for name in ("num_steps", "num_preemptions", "num_swapped_in_blocks", "num_cached_tokens"):
        totals[name] = totals.get(name, 0) + getattr(seen, name)
print(json.dumps(totals), file=sys.stderr)
"""


def _plan_log(hash_seed: str) -> tuple[str, dict[str, int]]:
    done = subprocess.run(
        [sys.executable, "-c", _LIVES],
        env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(Path(__file__).parent)},
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    assert done.stdout.count(b"\n") > 1000
    return hashlib.sha256(done.stdout).hexdigest(), json.loads(done.stderr)


def test_plan_log_does_not_depend_on_the_hash_seed() -> None:
    first, totals = _plan_log("1")
    second, _ = _plan_log("4242")
    assert first == second
    assert min(totals.values()) > 20, f"the lives are too easy to prove anything: {totals}"
