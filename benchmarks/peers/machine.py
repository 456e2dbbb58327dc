"""What machine this is, and in which state it is at the moment."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import Any

from headway.executors.cpu import usable_cores
from headway.kernels.native_ops import NativeOps
from headway.testing.tiny_models import tiny_config


class ForkJoin:
    """Measures how long an empty parallel region takes on all cores.

    On virtual machines that changes within seconds, and speeds with it.
    """

    def __init__(self) -> None:
        self._ops = NativeOps(
            tiny_config(),
            num_blocks=1,
            block_size=16,
            num_swap_blocks=0,
            num_threads=usable_cores(),
            quantization="auto",
            kv_dtype="bfloat16",
            isa="auto",
        )

    def nanoseconds(self) -> float:
        return min(self._ops.core.fork_join_latency(20) for _ in range(3))


def description() -> dict[str, Any]:
    return {
        "processor": processor(),
        "cores": usable_cores(),
        "memory": _first("/proc/meminfo", "MemTotal"),
        "load_before": os.getloadavg()[0],
        "system": platform.platform(),
        "python": platform.python_version(),
    }


def processor() -> str:
    """Return the name of the processor, as far as the system tells it."""
    return _first("/proc/cpuinfo", "model name") or platform.processor()


def _first(path: str, key: str) -> str:
    """Return the first value of a key in one of Linux's tables; empty where there is none."""
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except OSError:
        return ""
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(key)), "")
