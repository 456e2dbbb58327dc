"""Probes and counters, answered from snapshots: never through the engine's queue.

``/livez``: the process is worth keeping. ``/readyz`` (and ``/health``): it takes work now.
A busy engine is both; so is an idle one. If the engine's loop has not turned for the liveness
time-out the process should go; at half that time no new work should come.
"""

from __future__ import annotations

import msgspec
from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4
from starlette.requests import Request
from starlette.responses import Response

from headway._version import __version__
from headway.server.errors import RETRY_AFTER_S, retry_after
from headway.server.front import Front, Pulse

REASONS = {
    "starting": "the model is loading",
    "draining": "the server is stopping and finishes what runs",
    "stopped": "the server has stopped",
    "failed": "the engine has failed",
}


class Report(msgspec.Struct, frozen=True):
    """Body of a probe's answer."""

    status: str
    reason: str | None
    state: str
    heartbeat_age_s: float
    num_running: int
    num_waiting: int
    kv_usage: float
    version: str = __version__


def unready_reason(pulse: Pulse, limit_s: float) -> str | None:
    """Say why no work should come here; None if it should."""
    if pulse.state != "running":
        reason = REASONS.get(pulse.state, pulse.state)
        return f"{reason}: {pulse.error}" if pulse.error else reason
    return _wedged(pulse, limit_s)


def dead_reason(pulse: Pulse, limit_s: float) -> str | None:
    """Say why the process should be restarted; None if it should not."""
    if pulse.state == "failed":
        return f"{REASONS['failed']}: {pulse.error}"
    return _wedged(pulse, limit_s) if pulse.state in ("running", "draining") else None


def _wedged(pulse: Pulse, limit_s: float) -> str | None:
    if pulse.heartbeat_age_s <= limit_s:
        return None
    return f"the engine's loop has not turned for {pulse.heartbeat_age_s:.0f} s"


def _json(content: object, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    body = msgspec.json.encode(content)
    return Response(body, status, headers, media_type="application/json")


class HealthRoutes:
    """Endpoints that only look."""

    def __init__(self, front: Front) -> None:
        self._front = front

    async def livez(self, _request: Request) -> Response:
        """200 while the process is worth keeping, else 503."""
        pulse, limit_s = self._front.engine.status, self._front.settings.liveness_timeout_s
        return self._answer(pulse, dead_reason(pulse, limit_s))

    async def readyz(self, _request: Request) -> Response:
        """200 while work is welcome, else 503 with the reason."""
        pulse, limit_s = self._front.engine.status, self._front.settings.liveness_timeout_s
        return self._answer(pulse, unready_reason(pulse, limit_s / 2))

    async def load(self, _request: Request) -> Response:
        """Requests here now, in vLLM's format."""
        return _json({"server_load": self._front.engine.statistics().num_live})

    async def metrics(self, _request: Request) -> Response:
        """All metrics, as text for Prometheus."""
        return Response(self._front.metrics.render(), media_type=CONTENT_TYPE_PLAIN_0_0_4)

    async def version(self, _request: Request) -> Response:
        """The version of Headway."""
        return _json({"version": __version__})

    def _answer(self, pulse: Pulse, reason: str | None) -> Response:
        counts = self._front.engine.statistics()
        held = counts.num_blocks - counts.num_free_blocks
        report = Report(
            status="ok" if reason is None else "unavailable",
            reason=reason,
            state=pulse.state,
            heartbeat_age_s=round(pulse.heartbeat_age_s, 3),
            num_running=counts.num_running,
            num_waiting=counts.num_waiting,
            kv_usage=round(held / max(counts.num_blocks, 1), 4),
        )
        if reason is None:
            return _json(report)
        return _json(report, 503, retry_after(RETRY_AFTER_S))
