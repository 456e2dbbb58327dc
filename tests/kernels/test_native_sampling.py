"""Tokens drawn by the kernels are those that NumPy draws, by definition, on each instruction set of
this machine; also where the rough sums that nearly always decide do not.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.executors.picking import (
    GREEDY,
    NOT_FINITE,
    Change,
    NumpyPicker,
    Picker,
    Terms,
)
from headway.testing.tiny_models import tiny_config

native_ops = pytest.importorskip(
    "headway.kernels.native_ops", reason="the native kernels are not built", exc_type=ImportError
)

Floats = npt.NDArray[np.float32]
ISAS = native_ops.isas()
NUMPY = NumpyPicker()
LAST = 1 - 2.0**-53
"""The highest number that can be drawn."""


def picker(isa: str, num_threads: int = 1) -> Any:
    return native_ops.NativeOps(
        tiny_config(),
        num_blocks=1,
        block_size=16,
        num_swap_blocks=0,
        quantization="auto",
        kv_dtype="float32",
        num_threads=num_threads,
        isa=isa,
    ).core


PICKERS: dict[str, Picker] = {isa: picker(isa) for isa in ISAS}


@pytest.fixture(params=ISAS)
def isa(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def rows_of(count: int, size: int, scale: float = 3.0, seed: int = 0) -> Floats:
    return (np.random.default_rng(seed).standard_normal((count, size)) * scale).astype(np.float32)


coarse = st.floats(-6, 6).map(lambda x: round(x * 4) / 4)  # so that ties occur


@given(
    logits=st.lists(coarse, min_size=1, max_size=150),
    terms=st.builds(
        Terms,
        temperature=st.sampled_from([0.0, 5e-324, 1e-5, 0.01, 0.3, 1.0, 2.5, 1e5, 1e308]),
        top_k=st.sampled_from([0, 1, 2, 7, 1000]),
        top_p=st.sampled_from([1e-9, 0.1, 0.5, 0.9, 0.999999, 1.0]),
        min_p=st.sampled_from([0.0, 0.01, 0.3, 1.0]),
        number=st.floats(0, LAST) | st.sampled_from([0.0, LAST]),
    ),
)
def test_the_same_tokens_as_numpy(logits: list[float], terms: Terms) -> None:
    row = np.asarray([logits], dtype=np.float32)
    expected = NUMPY.pick(row, [terms])
    assert {isa: each.pick(row, [terms]) for isa, each in PICKERS.items()} == dict.fromkeys(
        ISAS, expected
    )


@given(
    logits=st.lists(coarse, min_size=1, max_size=150),
    values=st.dictionaries(
        st.integers(0, 149),
        coarse | st.sampled_from([-math.inf, -1e300, 0.1, 2e38, -2e38, 1e39, math.inf, math.nan]),
    ),
    temperature=st.sampled_from([0.0, 1e-300, 1e-2, 0.7, 1e4]),
    top_k=st.sampled_from([0, 3]),
    top_p=st.sampled_from([0.9, 1.0]),
    min_p=st.sampled_from([0.0, 0.2]),
    number=st.floats(0, LAST),
)
def test_the_same_tokens_as_numpy_after_a_change(
    logits: list[float],
    values: dict[int, float],
    temperature: float,
    top_k: int,
    top_p: float,
    min_p: float,
    number: float,
) -> None:
    rows = np.asarray([logits, logits], dtype=np.float32)
    ids = np.array([i for i in values if i < len(logits)], dtype=np.intp)
    change = Change(1, ids, np.array([values[i] for i in ids]))
    terms = [Terms(temperature, top_k, top_p, min_p, number)] * 2
    expected = NUMPY.pick(rows, terms, [change])
    for each in PICKERS.values():
        assert each.pick(rows, terms, [change]) == expected
        assert rows.tolist() == [logits, logits]


@pytest.mark.parametrize("temperature", [0.01, 0.8, 30.0])
def test_changes_at_the_very_edge_between_two_tokens(isa: str, temperature: float) -> None:
    row, rng = rows_of(1, 3000), np.random.default_rng(5)
    ids = rng.permutation(3000)[:100]
    change = Change(0, ids, rng.standard_normal(100) * 3 + 9.1)  # no float32 among them
    logits = row[0].astype(np.float64)
    logits[ids] = change.values
    weights = np.sort(np.exp((logits - logits.max()) / temperature))[::-1]
    shares = weights.cumsum() / weights.sum()
    for edge in shares[shares < 1][:: max(1, len(shares) // 60)]:
        for off in (-1e-4, -1e-7, -1e-11, 1e-11, 1e-7, 1e-4):
            terms = [Terms(temperature, 0, 1.0, 0.0, min(float(edge * (1 + off)), LAST))]
            found = PICKERS[isa].pick(row, terms, [change])
            assert found == NUMPY.pick(row, terms, [change]), (edge, off)


@pytest.mark.parametrize("size", [1, 2, 15, 16, 17, 63, 64, 65, 127, 1000, 1025, 49152])
def test_rows_of_every_length(isa: str, size: int) -> None:
    rows = rows_of(12, size)
    for terms in (GREEDY, Terms(0.7, 0, 0.9, 0.0, 0.5), Terms(1.0, 40, 1.0, 0.01, 0.9)):
        terms_of_rows = [terms._replace(number=i / 12) for i in range(12)]
        assert PICKERS[isa].pick(rows, terms_of_rows) == NUMPY.pick(rows, terms_of_rows)


@pytest.mark.parametrize("scale", [0.01, 1.0, 8.0])
@pytest.mark.parametrize("top_p", [0.3, 0.95, 1.0])
def test_numbers_at_the_very_edge_between_two_tokens(isa: str, scale: float, top_p: float) -> None:
    """Where a sum in float32 could not tell which."""
    row = rows_of(1, 5000, scale)
    weights = np.sort(np.exp(row[0].astype(np.float64) - row.max()))[::-1]
    shares = weights.cumsum() / weights.sum()
    if top_p < 1:
        shares /= shares[np.searchsorted(shares, top_p)]
    for edge in shares[shares < 1][:: max(1, len(shares) // 60)]:
        for off in (-1e-4, -1e-7, -1e-11, 1e-11, 1e-7, 1e-4):
            number = min(max(float(edge * (1 + off)), 0.0), LAST)
            terms = [Terms(1.0, 0, top_p, 0.0, number)]
            assert PICKERS[isa].pick(row, terms) == NUMPY.pick(row, terms), (edge, off)


@pytest.mark.parametrize("off", [-1e-4, -1e-7, -1e-11, 1e-11, 1e-7, 1e-4])
def test_masses_at_the_very_edge_of_top_p(isa: str, off: float) -> None:
    row = rows_of(1, 3000)
    weights = np.sort(np.exp(row[0].astype(np.float64) - row.max()))[::-1]
    shares = weights.cumsum() / weights.sum()
    for share in shares[:400:10]:
        terms = [Terms(1.0, 0, float(share * (1 + off)), 0.0, LAST)]
        assert PICKERS[isa].pick(row, terms) == NUMPY.pick(row, terms)


def test_a_row_does_not_depend_on_its_neighbours_or_on_threads(isa: str) -> None:
    rows = rows_of(33, 2000)
    terms = [Terms(0.5 * (i % 3), i % 4, 0.9, 0.0, i / 33) for i in range(33)]
    wanted = [(i, 7 * i, 5) for i in range(33)]
    many = picker(isa, num_threads=3)
    tokens, scores = many.pick(rows, terms), many.scores(rows, wanted)
    one = PICKERS[isa]
    assert tokens == [one.pick(rows[i : i + 1], [terms[i]])[0] for i in range(33)]
    assert scores == [one.scores(rows[i : i + 1], [(0, *wanted[i][1:])])[0] for i in range(33)]


def test_what_is_not_finite_is_found_anywhere(isa: str) -> None:
    for size in (1, 16, 65, 300):
        for place in {0, size // 2, size - 1}:
            for value in (math.nan, math.inf, -math.inf):
                rows = rows_of(2, size)
                rows[1, place] = value
                terms = [Terms(1.0, 0, 1.0, 0.0, 0.5)] * 2
                assert (PICKERS[isa].pick(rows, terms)[1]) == NOT_FINITE
                assert (PICKERS[isa].pick(rows, [GREEDY] * 2)[1]) == NOT_FINITE
                assert PICKERS[isa].scores(rows, [(0, 0, 1), (1, 0, 1)])[1] is None
                assert PICKERS[isa].pick(rows, terms)[0] == NUMPY.pick(rows[:1], terms[:1])[0]


def test_the_largest_numbers_are_finite(isa: str) -> None:
    most = float(np.finfo(np.float32).max)
    rows = np.asarray([[most, -most, most, 0]], dtype=np.float32)
    for temperature in (0.0, 1e-3, 1.0, 1e39):
        for number in (0.2, 0.9):
            terms = [Terms(temperature, 0, 1.0, 0.0, number)]
            assert PICKERS[isa].pick(rows, terms) == NUMPY.pick(rows, terms)


@pytest.mark.parametrize("value", [1.0, 1e37, 3e38, -3e38])
@pytest.mark.parametrize("size", [1, 15, 16, 17, 100])
def test_nothing_but_tokens_weighs_however_large_logits_are(
    isa: str, value: float, size: int
) -> None:
    """Sizes that are no whole number of vectors are filled up."""
    rows = np.full((1, size), value, dtype=np.float32)
    for number in (0.1, 0.5, 0.75, 0.99):
        terms = [Terms(1.0, 0, 0.9, 0.0, number)]
        assert PICKERS[isa].pick(rows, terms) == NUMPY.pick(rows, terms)


def test_scores_are_those_of_numpy_and_the_same_bits_everywhere() -> None:
    for scale in (1e-30, 1.0, 10.0, 1e4):
        rows = rows_of(5, 777, scale)
        rows[2, 10:500] = rows[2].max()  # equals: the lowest ids first
        wanted = [(4, 3, 0), (2, 776, 20), (0, 0, 777), (1, 5, 800), (2, 11, 1)]
        expected = NUMPY.scores(rows, wanted)
        found = [each.scores(rows, wanted) for each in PICKERS.values()]
        assert all(each == found[0] for each in found)
        for one, other in zip(found[0], expected, strict=True):
            assert one is not None
            assert other is not None
            assert one[0] == pytest.approx(other[0], rel=1e-13, abs=1e-13)
            assert [i for i, _ in one[1]] == [i for i, _ in other[1]]
            assert [x for _, x in one[1]] == pytest.approx(
                [x for _, x in other[1]], rel=1e-13, abs=1e-13
            )


def test_rows_that_are_a_view_of_wider_ones(isa: str) -> None:
    wide = rows_of(6, 200)
    view = wide[::2, :150]
    assert PICKERS[isa].pick(view, [GREEDY] * 3) == NUMPY.pick(view, [GREEDY] * 3)
    with pytest.raises(ValueError, match="gaps"):
        PICKERS[isa].pick(wide[:, ::2], [GREEDY] * 6)


def test_draws_out_of_range_are_refused() -> None:
    rows, one = rows_of(2, 20), PICKERS[ISAS[0]]
    with pytest.raises(ValueError, match="a draw for each row"):
        one.pick(rows, [GREEDY])
    for name, value in {
        "temperature": math.nan,
        "top_k": -1,
        "top_p": 0.0,
        "min_p": 1.5,
        "number": 1.0,
    }.items():
        with pytest.raises(ValueError, match="out of range"):
            one.pick(rows[:1], [Terms(1.0, 0, 1.0, 0.0, 0.5)._replace(**{name: value})])
    for row, token_id in ((2, 0), (-1, 0), (0, 20), (0, -1)):
        with pytest.raises(ValueError, match="does not exist"):
            one.pick(rows, [GREEDY] * 2, [Change(row, np.array([token_id]), np.zeros(1))])
    with pytest.raises(ValueError, match="another length"):
        one.pick(rows, [GREEDY] * 2, [Change(0, np.array([1]), np.zeros(2))])
    for wanted in ((2, 0, 0), (0, 20, 0), (-1, 0, 0), (0, -1, 0), (0, 0, -1)):
        with pytest.raises(ValueError, match="does not exist"):
            one.scores(rows, [wanted])
