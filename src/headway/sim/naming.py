"""How a simulation names its requests, so that a predictor can know which is which."""

from __future__ import annotations

from headway.core.plan import RequestId


def request_id_of(number: int) -> RequestId:
    """Return the id of the arrival at this place of the workload."""
    return RequestId(f"sim-{number}")


def number_of(request_id: RequestId) -> int:
    """Return the place in the workload."""
    return int(request_id.removeprefix("sim-"))
