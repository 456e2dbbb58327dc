"""The user's own OpenMP settings win."""

from __future__ import annotations

import pytest

from headway.kernels.openmp import spin_briefly


def test_threads_are_asked_to_spin_briefly() -> None:
    environment = {"PATH": "/bin"}
    spin_briefly(environment)
    assert environment == {"PATH": "/bin", "GOMP_SPINCOUNT": "1000"}


@pytest.mark.parametrize("own", [{"OMP_WAIT_POLICY": "active"}, {"GOMP_SPINCOUNT": "7"}])
def test_the_users_settings_are_left(own: dict[str, str]) -> None:
    environment = dict(own)
    spin_briefly(environment)
    assert environment == own
