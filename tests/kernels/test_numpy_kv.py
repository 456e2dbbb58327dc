"""How the fallback keeps keys and values: near, and what is not finite stays so."""

from __future__ import annotations

import numpy as np
import pytest

from headway.kernels.numpy_kv import KV_FORMATS


@pytest.mark.parametrize(
    ("name", "tolerance"), [("float32", 0.0), ("bfloat16", 2.0**-8), ("int8", 0.5 / 127)]
)
@pytest.mark.parametrize("head_dim", [16, 48, 64])
def test_what_is_stored_comes_back_near(name: str, tolerance: float, head_dim: int) -> None:
    kv = KV_FORMATS[name]
    heads = np.random.default_rng(1).standard_normal((5, 3, head_dim)).astype(np.float32)
    pool = np.empty((9, 3), dtype=kv.dtype(head_dim))
    pool[2:7] = kv.narrow(heads)
    error = np.abs(kv.widen(pool[2:7]) - heads)
    assert (error <= tolerance * np.abs(heads).max(axis=-1, keepdims=True) * 1.00001).all()


@pytest.mark.parametrize("name", KV_FORMATS)
@pytest.mark.parametrize("head_dim", [16, 48, 64])
def test_turned_keys_and_queries_have_the_same_products(name: str, head_dim: int) -> None:
    rng = np.random.default_rng(2)
    keys, queries = (rng.standard_normal((7, head_dim)).astype(np.float32) for _ in range(2))
    turn = KV_FORMATS[name].turn
    np.testing.assert_allclose(turn(keys) @ turn(queries).T, keys @ queries.T, atol=1e-4)


def test_one_channel_above_the_rest_costs_int8_little() -> None:
    """As keys of real models have; without the transform the error would be six times that."""
    rng = np.random.default_rng(3)
    keys = rng.standard_normal((200, 64)).astype(np.float32)
    keys[:, 11] += 60
    kv = KV_FORMATS["int8"]
    turned = kv.turn(keys)
    assert np.sqrt(((kv.widen(kv.narrow(turned)) - turned) ** 2).mean()) < 0.03


@pytest.mark.parametrize("name", KV_FORMATS)
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_stays_so(name: str, bad: float) -> None:
    kv = KV_FORMATS[name]
    heads = np.ones((2, 16), dtype=np.float32)
    heads[1, 3] = bad
    found = np.isfinite(kv.widen(kv.narrow(heads)))
    assert found[0].all()
    assert not found[1].all()


def test_zeros_stay_zeros() -> None:
    for kv in KV_FORMATS.values():
        assert not kv.widen(kv.narrow(np.zeros((2, 16), dtype=np.float32))).any()
