"""What a simulation told, as the records that load tests report in too."""

from __future__ import annotations

from collections.abc import Iterable

from headway.report import Outcome, Record
from headway.sim.records import FINISHED, UNFINISHED, RequestRecord


def records_of(requests: Iterable[RequestRecord]) -> list[Record]:
    """Return a record for each request; its times are of the virtual clock.

    A client of a simulation is never late, and sees each token as soon as it is there.
    """
    return [_record_of(each) for each in requests]


def _record_of(request: RequestRecord) -> Record:
    """Return the record of one request; its end is when its last token came, if any did."""
    arrival, times = request.arrival, request.token_times
    conduct = arrival.conduct
    is_finished = request.outcome == FINISHED
    return Record(
        due_s=arrival.at_s,
        class_name=arrival.class_name,
        tenant=arrival.tenant,
        sent_s=arrival.at_s,
        started_s=request.started_at,
        token_times=times,
        ended_s=times[-1] if is_finished and times else request.ended_at,
        input_tokens=arrival.prompt_tokens,
        output_tokens=len(times),
        outcome=_OUTCOMES.get(request.outcome, Outcome.FAILED),
        error="" if request.outcome in _OUTCOMES else f"{request.outcome} {request.reason}".strip(),
        detail=request.detail,
        stalled=conduct is not None and conduct.stalls_within(len(times)),
        num_preemptions=request.num_preemptions,
        num_cached_tokens=request.num_cached_tokens,
    )


_OUTCOMES = {
    FINISHED: Outcome.COMPLETED,
    UNFINISHED: Outcome.UNFINISHED,
    "cancelled": Outcome.CANCELLED,
}
