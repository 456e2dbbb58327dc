"""The user's own OpenMP settings win."""

from __future__ import annotations

import pytest

from headway.kernels.openmp import wait_passively


def test_threads_are_asked_to_sleep() -> None:
    environment = {"PATH": "/bin"}
    wait_passively(environment)
    assert environment == {"PATH": "/bin", "OMP_WAIT_POLICY": "passive"}


@pytest.mark.parametrize("own", [{"OMP_WAIT_POLICY": "active"}, {"GOMP_SPINCOUNT": "1000"}])
def test_the_users_settings_are_left(own: dict[str, str]) -> None:
    environment = dict(own)
    wait_passively(environment)
    assert environment == own
