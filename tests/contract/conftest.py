"""Fixtures of the contract: each test runs once for every executor."""

from __future__ import annotations

import pytest
from executor_subjects import SUBJECTS, Steps, Subject

from headway.core.ports import Executor


@pytest.fixture(params=SUBJECTS, ids=lambda subject: subject.name)
def subject(request: pytest.FixtureRequest) -> Subject:
    chosen: Subject = request.param
    return chosen


@pytest.fixture
def executor(subject: Subject) -> Executor:
    return subject.make()


@pytest.fixture
def steps(executor: Executor) -> Steps:
    return Steps(executor)
