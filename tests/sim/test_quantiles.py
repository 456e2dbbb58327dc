"""Quantiles against the standard library and by hand."""

from __future__ import annotations

import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.metrics.quantiles import quantile, quantiles


def test_by_hand() -> None:
    assert quantiles([4, 1, 3, 2], (0, 0.5, 1)) == (1, 2.5, 4)
    assert quantile([7], 0.99) == 7
    assert quantile(range(101), 0.99) == 99


@given(st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=50))
def test_as_the_standard_library_with_the_inclusive_method(values: list[float]) -> None:
    expected = statistics.quantiles(values, n=100, method="inclusive")
    found = quantiles(values, [percent / 100 for percent in range(1, 100)])
    assert found == pytest.approx(expected, rel=1e-9, abs=1e-6)


def test_nothing_has_no_quantile_and_a_share_is_a_share() -> None:
    with pytest.raises(ValueError, match="no values"):
        quantile([], 0.5)
    with pytest.raises(ValueError, match="between 0 and 1"):
        quantile([1], 99)
