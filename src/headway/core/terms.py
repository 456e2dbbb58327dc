"""The terms on which a class takes a request: its output limit and its deadlines."""

from __future__ import annotations

from dataclasses import replace

from headway.core.classes import ServiceClass
from headway.core.request import Request


def on_terms(request: Request, terms: ServiceClass) -> Request:
    """Return the request as its class lets it run; the stricter of two limits holds."""
    sampling = request.sampling
    most = terms.max_output_tokens
    if most is not None and sampling.max_tokens > most:
        sampling = replace(sampling, max_tokens=most, min_tokens=min(sampling.min_tokens, most))
    queue_timeout_s = _stricter(request.queue_timeout_s, terms.queue_timeout_s)
    request_timeout_s = _stricter(request.request_timeout_s, terms.request_timeout_s)
    if (
        sampling is request.sampling
        and queue_timeout_s == request.queue_timeout_s
        and request_timeout_s == request.request_timeout_s
    ):
        return request
    return replace(
        request,
        sampling=sampling,
        queue_timeout_s=queue_timeout_s,
        request_timeout_s=request_timeout_s,
    )


def _stricter(own: float | None, of_class: float | None) -> float | None:
    limits = [limit for limit in (own, of_class) if limit is not None]
    return min(limits, default=None)
