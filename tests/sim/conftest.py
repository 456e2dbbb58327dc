"""What the tests of simulations share: demonstrations that take seconds are run once."""

from __future__ import annotations

import pytest
from benchmarks import chunked_prefill, fairness, priority, sjf, slo

from headway.workload import WorkloadError


@pytest.fixture(scope="session")
def fairness_shown() -> fairness.Outcome:
    return fairness.demonstrate()


@pytest.fixture(scope="session")
def priority_shown() -> priority.Outcome:
    return priority.demonstrate()


@pytest.fixture(scope="session")
def sjf_shown() -> sjf.Outcome:
    try:
        return sjf.demonstrate()
    except WorkloadError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def slo_shown() -> slo.Outcome:
    return slo.demonstrate()


@pytest.fixture(scope="session")
def chunked_prefill_shown() -> chunked_prefill.Outcome:
    return chunked_prefill.demonstrate(chunked_prefill.simulated)
