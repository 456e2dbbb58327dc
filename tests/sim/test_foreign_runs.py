"""Three saved vLLM runs, where they are at hand, against their bounds; the controls must miss."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks.places import trace

from headway.sim.foreign import SETUPS, RunVerdict, Setup, judge
from headway.workload import WorkloadError


def saved_runs() -> Path:
    try:
        return trace("llmservingsim/README.md").parent
    except WorkloadError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module", params=SETUPS, ids=lambda setup: setup.name)
def verdict(request: pytest.FixtureRequest) -> RunVerdict:
    setup: Setup = request.param
    return judge(saved_runs(), setup)


@pytest.mark.slow
def test_every_figure_is_within_its_bound(verdict: RunVerdict) -> None:
    errors = {row.figure.key: row.error for row in verdict.rows if not row.holds}
    assert not errors
    assert verdict.replayed.num_beyond == 0


@pytest.mark.slow
def test_what_is_wrong_on_purpose_is_caught(verdict: RunVerdict) -> None:
    assert verdict.controls
    for control in verdict.controls:
        assert control.is_caught, f"{control.what}: {control.worst.error:+.1f} %"
    assert verdict.holds
