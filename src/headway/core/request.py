"""A request as submitted: what a client asked for, in tokens. Immutable."""

from __future__ import annotations

from dataclasses import dataclass

from headway.core.plan import RequestId
from headway.core.sampling import SamplingParams


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What a client asked for; has ``n`` sequences that share the prompt.

    Attributes:
        request_id: unique among live requests; made by Headway, never by the client.
        class_name: the service class.
        tenant: who is charged for fairness.
        priority: lower goes first, within policies that look at it.
        queue_timeout_s: seconds that it may wait before it first runs; None is unbounded.
        request_timeout_s: seconds from submission to its end; None is unbounded.
    """

    request_id: RequestId
    prompt_token_ids: tuple[int, ...]
    sampling: SamplingParams
    n: int = 1
    class_name: str = "default"
    tenant: str = ""
    priority: int = 0
    queue_timeout_s: float | None = None
    request_timeout_s: float | None = None
