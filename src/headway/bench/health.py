"""Whether the client itself was the bottleneck."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from dataclasses import dataclass

from headway.metrics.quantiles import quantile
from headway.report import Latencies

_EVERY_S = 0.05
#: beyond these the client's own times begin to matter
_LATE_S = 0.010
_LAG_S = 0.020
_BUSY = 0.85


@dataclass(frozen=True, slots=True)
class Health:
    """How the client felt.

    Attributes:
        p99_lag_s: how much later than asked for it woke up; so much may be added to what it saw.
        busy: share of one core that it used.
    """

    p99_lag_s: float
    busy: float

    def doubts(self, latencies: Latencies) -> Iterator[str]:
        """Yield reasons to distrust what was measured."""
        late = latencies.late
        if late is not None and late.p99 > _LATE_S:
            yield (
                f"the client sent late: 1 in 100 requests more than {late.p99 * 1e3:.0f} ms, at "
                f"most {late.most * 1e3:.0f} ms; latencies count from when they were due"
            )
        if self.busy > _BUSY:
            yield (
                f"the client was busy {self.busy:.0%} of the time, so it may be the bottleneck: "
                "run several, or on another machine"
            )
        if self.p99_lag_s > _LAG_S:
            yield (
                f"the client woke up late, 1 in 100 times by {self.p99_lag_s * 1e3:.0f} ms; what "
                "it saw may be as much too late"
            )


class HealthMonitor:
    """Watches the event loop while it is entered."""

    def __init__(self) -> None:
        self._lags: list[float] = []
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> HealthMonitor:
        self._began = time.monotonic(), time.thread_time()
        self._task = asyncio.create_task(self._watch())
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        assert self._task is not None, "it was entered"
        self._ended = time.monotonic(), time.thread_time()
        self._task.cancel()

    def health(self) -> Health:
        """Return what was seen, once it was left."""
        elapsed_s, busy_s = (a - b for a, b in zip(self._ended, self._began, strict=True))
        lag_s = quantile(self._lags, 0.99) if self._lags else 0.0
        return Health(lag_s, busy_s / elapsed_s if elapsed_s > 0 else 0.0)

    async def _watch(self) -> None:
        while True:
            before = time.monotonic()
            await asyncio.sleep(_EVERY_S)
            self._lags.append(time.monotonic() - before - _EVERY_S)
