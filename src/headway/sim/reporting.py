"""What a simulation tells, as the records that load tests make: same reports, same meaning."""

from __future__ import annotations

from collections.abc import Iterable

from headway.report import Outcome, Record
from headway.sim.records import FINISHED, UNFINISHED, RequestRecord

_OUTCOMES = {
    FINISHED: Outcome.COMPLETED,
    UNFINISHED: Outcome.UNFINISHED,
    "cancelled": Outcome.CANCELLED,
}


def report_records(requests: Iterable[RequestRecord]) -> list[Record]:
    """Return a record of each request."""
    return [_record(each) for each in requests]


def _record(request: RequestRecord) -> Record:
    arrival, outcome = request.arrival, _OUTCOMES.get(request.outcome, Outcome.FAILED)
    conduct = arrival.conduct
    return Record(
        due_s=arrival.at_s,
        class_name=arrival.class_name,
        tenant=arrival.tenant,
        sent_s=arrival.at_s,
        started_s=request.started_at,
        token_times=request.token_times,
        ended_s=request.ended_at,
        input_tokens=arrival.prompt_tokens,
        output_tokens=len(request.token_times),
        outcome=outcome,
        error=f"{request.outcome} {request.reason}" if outcome is Outcome.FAILED else "",
        stalled=conduct is not None and conduct.stalls,
        num_preemptions=request.num_preemptions,
        num_cached_tokens=request.num_cached_tokens,
    )
