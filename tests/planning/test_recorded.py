"""A journal as a workload: what was written is read back, whoever wrote it."""

from __future__ import annotations

from pathlib import Path

import pytest

from headway.core.classes import ServiceClass
from headway.core.config import SchedulerConfig
from headway.core.costs import StepCosts
from headway.core.limits import SchedulerLimits
from headway.core.scheduler import Scheduler
from headway.engine.journal import Journal, read_journal
from headway.errors import JournalError
from headway.planning.recorded import recorded_workload
from headway.sim.simulation import simulate
from headway.workload import Arrival, Targets

CONFIG = SchedulerConfig(
    limits=SchedulerLimits(
        num_blocks=200,
        block_size=16,
        max_model_len=512,
        max_num_seqs=4,
        max_num_batched_tokens=128,
        max_queue_requests=8,
    ),
    classes=(
        ServiceClass(name="chat", ttft_target_s=1.0, tpot_target_s=0.1),
        ServiceClass(name="b"),
    ),
)
ARRIVALS = [
    Arrival(
        at_s=0.2 * n,
        prompt_tokens=20 + n,
        output_tokens=3 + n % 5,
        class_name="b" if n % 3 == 0 else "chat",
        tenant=f"t{n % 2}",
    )
    for n in range(12)
]


def written(path: Path, arrivals: list[Arrival]) -> None:
    journal = Journal.open(path, Scheduler(CONFIG))
    simulate(CONFIG, arrivals, StepCosts(base_s=0.01), journal=journal)
    journal.close()


def test_a_journal_gives_back_the_workload_that_made_it(tmp_path: Path) -> None:
    written(tmp_path / "j", ARRIVALS)
    found = recorded_workload(read_journal(tmp_path / "j"))
    assert found.targets == {"chat": Targets(ttft_s=1.0, tpot_s=0.1)}
    assert [
        (each.prompt_tokens, each.output_tokens, each.class_name, each.tenant)
        for each in found.arrivals
    ] == [(e.prompt_tokens, e.output_tokens, e.class_name, e.tenant) for e in ARRIVALS]
    gaps = [each.at_s for each in found.arrivals]
    # a request is submitted when the step has ended in which it came
    assert gaps == pytest.approx([each.at_s for each in ARRIVALS], abs=0.02)
    assert found.duration_s >= gaps[-1]


def test_several_starts_follow_each_other(tmp_path: Path) -> None:
    for _ in range(2):
        written(tmp_path / "j", ARRIVALS)
    found = recorded_workload(read_journal(tmp_path / "j"))
    assert len(found.arrivals) == 2 * len(ARRIVALS)
    second = found.arrivals[len(ARRIVALS)]
    assert second.at_s == pytest.approx(found.duration_s / 2, abs=0.02)


def test_equal_beginnings_have_equal_names(tmp_path: Path) -> None:
    written(tmp_path / "j", ARRIVALS)
    found = recorded_workload(read_journal(tmp_path / "j"))
    ids = [each.hashes.ids for each in found.arrivals if each.hashes is not None]
    assert len(ids) == len(ARRIVALS)
    assert len(set(ids)) == len(ids)  # simulated prompts share nothing
    written(tmp_path / "j", ARRIVALS)  # ... but those of a second start are the same ones
    again = recorded_workload(read_journal(tmp_path / "j")).arrivals
    firsts, seconds = again[: len(ARRIVALS)], again[len(ARRIVALS) :]
    assert [each.hashes for each in firsts] == [each.hashes for each in seconds]


def test_who_got_nothing_is_taken_for_the_median_of_its_class(tmp_path: Path) -> None:
    crowd = [
        Arrival(at_s=0.0, prompt_tokens=20, output_tokens=6, class_name="chat") for _ in range(40)
    ]
    written(tmp_path / "j", crowd)  # most are refused: the queue holds eight
    found = recorded_workload(read_journal(tmp_path / "j"))
    assert len(found.arrivals) == 40
    assert {each.output_tokens for each in found.arrivals} == {6}


def test_a_journal_without_requests_is_refused(tmp_path: Path) -> None:
    written(tmp_path / "j", [])
    with pytest.raises(JournalError, match="nobody came"):
        recorded_workload(read_journal(tmp_path / "j"))
