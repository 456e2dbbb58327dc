"""Records for tests of reports."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from random import Random

from headway.report import Outcome, Record, Report, report_on
from headway.workload import Targets


def record(
    due_s: float = 0.0,
    times: Sequence[float] = (1.0, 2.0, 3.0),
    *,
    class_name: str = "default",
    tenant: str = "",
    sent_s: float | None = None,
    outcome: Outcome = Outcome.COMPLETED,
    error: str = "",
    stalled: bool = False,
) -> Record:
    """A request with one token at each of the times."""
    return Record(
        due_s=due_s,
        class_name=class_name,
        tenant=tenant,
        sent_s=due_s if sent_s is None else sent_s,
        token_times=array("d", times),
        ended_s=times[-1] if times else due_s,
        input_tokens=10,
        output_tokens=len(times),
        outcome=outcome,
        error=error,
        stalled=stalled,
    )


def crowd(seed: int = 1, count: int = 60) -> list[Record]:
    """Requests of two classes and tenants with times that differ."""
    random = Random(seed)
    made = []
    for number in range(count):
        due_s = number * 0.1
        times = [due_s + 0.05 + random.expovariate(10)]
        for _ in range(random.randint(0, 6)):
            times.append(times[-1] + random.expovariate(30))
        name = random.choice(["fast", "slow"])
        made.append(record(due_s, times, class_name=name, tenant=name[0]))
    return made


def report(records: Sequence[Record], duration_s: float = 10.0, **targets: Targets) -> Report:
    """A report of a load test."""
    return report_on(
        records, duration_s, targets, title="A <test>", kind="bench", facts={"model_id": "tiny"}
    )
