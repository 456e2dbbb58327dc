"""Each native operation against an oracle, on each instruction set of this machine, and alone
against in company: the same bits.

The oracles are the ``gguf`` package for stored formats, float64 for products, and the operations in
NumPy for the rest.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from headway.core.plan import BlockMove, Padding
from headway.kernels.numpy_ops import NumpyOps
from headway.kernels.ops import Rows
from headway.models.checkpoint import StoredTensor
from headway.models.tensors import BLOCKS, dequantise
from headway.testing.tiny_models import ArrayTensor, QuantisedTensor, stored, tiny_config

native_ops = pytest.importorskip(
    "headway.kernels.native_ops", reason="the native kernels are not built", exc_type=ImportError
)

Floats = npt.NDArray[np.float32]
FORMATS = list(BLOCKS)
INTEGER_FORMATS = [name for name, (elements, _) in BLOCKS.items() if elements > 1]
KV_DTYPES = ["float32", "bfloat16", "int8"]
NUM_BLOCKS = 80


@pytest.fixture(params=native_ops.isas())
def isa(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def make_ops(isa: str, num_threads: int = 1, block_size: int = 16, **options: Any) -> Any:
    shape = {k: v for k, v in options.items() if k not in ("kv_dtype", "quantization")}
    return native_ops.NativeOps(
        tiny_config(max_position_embeddings=2048, **shape),
        num_blocks=NUM_BLOCKS,
        block_size=block_size,
        num_swap_blocks=4,
        quantization=options.get("quantization", "auto"),
        kv_dtype=options.get("kv_dtype", "float32"),
        num_threads=num_threads,
        isa=isa,
    )


def numpy_oracle(block_size: int = 16, **options: Any) -> NumpyOps:
    return NumpyOps(
        tiny_config(max_position_embeddings=2048, **options),
        num_blocks=NUM_BLOCKS,
        block_size=block_size,
        num_swap_blocks=4,
        kv_dtype="float32",
    )


def random_stored(rng: np.random.Generator, rows: int, columns: int, storage: str) -> StoredTensor:
    """Random bytes, but for scales that are sound: finds every bit that is read wrongly."""
    if storage in ("F32", "F16", "BF16"):
        return stored(rng.standard_normal((rows, columns)).astype(np.float32), storage)
    elements, size = BLOCKS[storage]
    blocks = rng.integers(0, 256, (rows, columns // elements, size), dtype=np.uint8)
    halves = {"Q4_1": 2, "Q5_1": 2, "Q4_K": 2, "Q5_K": 2}.get(storage, 1)
    at = 208 if storage == "Q6_K" else 0
    scales = rng.uniform(-0.1, 0.1, (*blocks.shape[:2], halves)).astype(np.float16)
    blocks[:, :, at : at + 2 * halves] = scales.view(np.uint8)
    return QuantisedTensor((rows, columns), storage, blocks.reshape(rows, -1))


def activations(ops: Any, values: Floats) -> Any:
    """Plain rows of any values: an embedding table holds them."""
    table = ops.load_table(ArrayTensor(values))
    return ops.embed(table, ops.prepare([Rows(range(len(values)), 0, range(NUM_BLOCKS))]))


def rounded_to_int8(x: Floats) -> npt.NDArray[np.float64]:
    """What products with integer weights see of the activations."""
    groups = x.reshape(len(x), -1, 32)
    highest = np.abs(groups).max(axis=2, keepdims=True)
    codes = np.rint(groups * (np.float32(127) / highest))
    return (codes.astype(np.float64) * (highest / np.float32(127))).reshape(x.shape)


@pytest.mark.parametrize("storage", FORMATS)
def test_stored_rows_are_read_as_the_reference_reads_them(isa: str, storage: str) -> None:
    tensor = random_stored(np.random.default_rng(1), 9, 512, storage)
    ops = make_ops(isa)
    step = ops.prepare([Rows([3, 8, 0], 0, [0])])
    read = ops.embed(ops.load_table(tensor), step).numpy()
    assert np.array_equal(read, dequantise(tensor.data, storage)[[3, 8, 0]])


@pytest.mark.parametrize("storage", FORMATS)
@pytest.mark.parametrize("heights", [(70,), (33,), (1,), (64, 32, 41)])
def test_products_are_right_in_every_format(
    isa: str, storage: str, heights: tuple[int, ...]
) -> None:
    """Widths that fill no panel, and a bias."""
    rng = np.random.default_rng(2)
    parts = [random_stored(rng, rows, 512, storage) for rows in heights]
    biases = [ArrayTensor(rng.standard_normal(rows).astype(np.float32)) for rows in heights]
    x = rng.standard_normal((13, 512)).astype(np.float32)
    ops = make_ops(isa, num_threads=2)
    product = ops.linear(activations(ops, x), ops.load_matrix(parts, biases)).numpy()
    seen = rounded_to_int8(x) if storage in INTEGER_FORMATS else x.astype(np.float64)
    if storage == "BF16":
        seen = dequantise(stored(x, "BF16").data, "BF16").astype(np.float64)
    weight = np.concatenate([part.to_float32() for part in parts]).astype(np.float64)
    expected = seen @ weight.T + np.concatenate([bias.values for bias in biases])
    np.testing.assert_allclose(product, expected, rtol=0, atol=1e-5 * np.abs(expected).max())


def turned(x: Floats) -> Floats:
    """A Hadamard transform, unscaled, over the largest power of 2 that divides the width."""
    size = x.shape[1] & -x.shape[1]
    far = 1
    while far < size:
        pairs = x.reshape(-1, 2, far)
        a, b = pairs[:, 0], pairs[:, 1]
        x = np.stack((a + b, a - b), axis=1).reshape(x.shape)
        far *= 2
    return x


def rounded_in_wide_groups(x: Floats, inverse: bool) -> npt.NDArray[np.float64]:
    """The largest of 256 has the code 127: by a product with the ``inverse``, or by a division."""
    missing = -x.shape[1] % 256
    groups = np.pad(x, ((0, 0), (0, missing))).reshape(len(x), -1, 256)
    highest = np.abs(groups).max(axis=2, keepdims=True)
    scales = highest / np.float32(127)
    codes = np.rint(groups * (np.float32(127) / highest) if inverse else groups / scales)
    return (codes.astype(np.float64) * scales).reshape(len(x), -1)[:, : x.shape[1]]


@pytest.mark.parametrize(("storage", "width"), [("F32", 576), ("BF16", 96), ("Q4_1", 512)])
def test_weights_are_converted_to_int8(isa: str, storage: str, width: int) -> None:
    rng = np.random.default_rng(5)
    part = random_stored(rng, 70, width, storage)
    x = rng.standard_normal((13, width)).astype(np.float32)
    ops = make_ops(isa, num_threads=2, quantization="int8")
    bias = rng.standard_normal(70).astype(np.float32)
    matrix = ops.load_matrix([part], [ArrayTensor(bias)])
    product = ops.linear(activations(ops, x), matrix).numpy()
    seen = rounded_in_wide_groups(turned(x), inverse=True)
    weights = rounded_in_wide_groups(turned(part.to_float32()), inverse=False)
    expected = seen @ weights.T / (width & -width) + bias
    np.testing.assert_allclose(product, expected, rtol=0, atol=1e-5 * np.abs(expected).max())
    exact = x.astype(np.float64) @ part.to_float32().T + bias
    assert np.abs(product - exact).max() < 0.05 * np.abs(exact).max()


@pytest.mark.parametrize("quantization", ["float32", "bfloat16", "int8"])
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_weights_that_are_not_finite_are_not_rounded_away(
    isa: str, quantization: str, bad: float
) -> None:
    weights = np.ones((40, 64), dtype=np.float32)
    weights[7, 3] = bad
    ops = make_ops(isa, quantization=quantization)
    x = activations(ops, np.ones((2, 64), dtype=np.float32))
    product = ops.linear(x, ops.load_matrix([ArrayTensor(weights)], [])).numpy()
    assert np.flatnonzero(~np.isfinite(product[0])).tolist() == [7]


@pytest.mark.parametrize(
    ("storage", "quantization"), [*((name, "auto") for name in FORMATS), ("F32", "int8")]
)
def test_a_row_of_a_product_does_not_depend_on_the_others(
    isa: str, storage: str, quantization: str
) -> None:
    rng = np.random.default_rng(3)
    part = random_stored(rng, 200, 512, storage)
    x = rng.standard_normal((140, 512)).astype(np.float32)
    one = make_ops(isa, quantization=quantization)
    two = make_ops(isa, num_threads=2, quantization=quantization)
    expected = one.linear(activations(one, x), one.load_matrix([part], [])).numpy()
    matrix = two.load_matrix([part], [])
    for count in (*range(1, 18), 129):
        found = two.linear(activations(two, x[:count]), matrix).numpy()
        assert np.array_equal(found, expected[:count]), count
    shifted = two.linear(activations(two, x[3:20]), matrix).numpy()
    assert np.array_equal(shifted, expected[3:20])


def test_matrices_share_memory_and_not_places() -> None:
    """One behind the other; then one that is more than is taken at once; and some go."""
    ops = make_ops("auto")
    rng = np.random.default_rng(9)
    part, other = (random_stored(rng, 96, 512, "Q4_0") for _ in range(2))
    x = activations(ops, rng.standard_normal((2, 512)).astype(np.float32))
    first, neighbour = ops.load_matrix([part], []), ops.load_matrix([other], [])
    assert first.num_bytes == 96 * 512 // 32 * 18
    expected = ops.linear(x, first).numpy()
    large = ops.load_matrix([ArrayTensor(np.ones((9000, 2048), np.float32))], [])
    assert large.num_bytes > 64 * 2**20
    last = ops.load_matrix([part], [])
    del neighbour, large
    assert np.array_equal(ops.linear(x, first).numpy(), expected)
    assert np.array_equal(ops.linear(x, last).numpy(), expected)


@pytest.mark.parametrize(
    ("storage", "quantization"),
    [("Q4_1", "auto"), ("Q6_K", "auto"), ("Q8_0", "auto"), ("Q8_0", "int8")],
)
def test_a_tile_of_odd_rows_is_rounded_as_each_alone(
    isa: str, storage: str, quantization: str
) -> None:
    rng = np.random.default_rng(8)
    x = rng.standard_normal((8, 256)).astype(np.float32)
    x[1] = 0
    x[2] *= np.float32(1e-41)
    x[3] *= np.float32(1e37)
    x[4, ::32] = 0.5 + np.arange(8)  # ties between two codes
    x[4, 1::32] = 127
    x[5, 40], x[6, 70], x[7, 255] = np.nan, np.inf, -np.inf
    ops = make_ops(isa, quantization=quantization)
    matrix = ops.load_matrix([random_stored(rng, 64, 256, storage)], [])
    found = ops.linear(activations(ops, x), matrix).numpy()
    for row in range(8):
        alone = ops.linear(activations(ops, x[row : row + 1]), matrix).numpy()
        assert np.array_equal(found[row : row + 1], alone, equal_nan=True), row


def test_logits_are_of_the_chosen_rows(isa: str) -> None:
    rng = np.random.default_rng(4)
    x = rng.standard_normal((20, 64)).astype(np.float32)
    ops = make_ops(isa)
    head = ops.load_head(random_stored(rng, 97, 64, "Q8_0"))
    chosen = ops.logits(activations(ops, x), [7, 2, 19], head)
    every = ops.logits(activations(ops, x), range(20), head)
    assert chosen.shape == (3, 97)
    assert np.array_equal(chosen, every[[7, 2, 19]])


@pytest.mark.parametrize("width", [16, 64, 100, 576])
def test_norms_and_gate(isa: str, width: int) -> None:
    rng = np.random.default_rng(5)
    x, delta, both = (
        rng.standard_normal((11, n)).astype(np.float32) * 3 for n in (width, width, 2 * width)
    )
    weight = rng.standard_normal(width).astype(np.float32)
    ops, oracle = make_ops(isa, num_threads=2), numpy_oracle()
    residual = activations(ops, x)
    normed = ops.final_norm(
        residual, activations(ops, delta), ops.load_vector(ArrayTensor(weight)), 1e-5
    )
    np.testing.assert_allclose(residual.numpy(), x + delta, rtol=0, atol=0)
    expected = oracle.final_norm(x.copy(), delta, weight, 1e-5)
    np.testing.assert_allclose(normed.numpy(), expected, rtol=1e-5, atol=1e-6)
    if width % 32 == 0:  # as the product before it pads its halves
        gated = ops.silu_mul(activations(ops, both)).numpy()
        np.testing.assert_allclose(gated, oracle.silu_mul(both), rtol=1e-5, atol=1e-6)


@dataclass
class Sequences:
    """Random q, k and v of some sequences, through both sets of operations."""

    lengths: list[int]
    options: dict[str, Any]
    block_size: int

    def __post_init__(self) -> None:
        config = tiny_config(**self.options)
        rng = np.random.default_rng(6)
        width = (config.num_heads + 2 * config.num_kv_heads) * config.head_dim
        self.qkv = [rng.standard_normal((n, width)).astype(np.float32) for n in self.lengths]
        order = rng.permutation(NUM_BLOCKS)
        needed = [-(-n // self.block_size) for n in self.lengths]
        cuts = np.cumsum([0, *needed])
        self.tables = [order[a:b].tolist() for a, b in pairwise(cuts)]

    def rows(self, index: int, start: int, end: int) -> Rows:
        return Rows(range(end - start), start, self.tables[index])

    def native(self, ops: Any, parts: list[tuple[int, int, int]]) -> list[Floats]:
        """The attention of parts (which sequence, from, to) in one step."""
        step = ops.prepare([self.rows(*part) for part in parts])
        values = np.concatenate([self.qkv[i][a:b] for i, a, b in parts])
        queries = ops.rotate_and_store(activations(ops, values), 0, step)
        out = ops.attention(queries, 0, step).numpy()
        return np.split(out, np.cumsum([b - a for _, a, b in parts])[:-1])


ATTENTION: dict[str, dict[str, Any]] = {
    "grouped": {"num_heads": 6, "num_kv_heads": 2, "head_dim": 64},
    "wide": {"num_heads": 8, "num_kv_heads": 1, "head_dim": 128},
    "odd": {"num_heads": 4, "num_kv_heads": 4, "head_dim": 48},
    "window": {"num_heads": 6, "num_kv_heads": 2, "head_dim": 32, "sliding_window": 130},
}


@pytest.mark.parametrize("block_size", [16, 7])
@pytest.mark.parametrize("shape", ATTENTION)
def test_attention_is_right(isa: str, shape: str, block_size: int) -> None:
    options = ATTENTION[shape]
    sequences = Sequences([300, 1, 17, 130], options, block_size)
    ops = make_ops(isa, 2, block_size, **options)
    found = sequences.native(ops, [(i, 0, n) for i, n in enumerate(sequences.lengths)])
    oracle = numpy_oracle(block_size, **options)
    for index, out in enumerate(found):
        step = oracle.prepare([sequences.rows(index, 0, len(out))])
        queries = oracle.rotate_and_store(sequences.qkv[index].copy(), 0, step)
        expected = oracle.attention(queries, 0, step)
        np.testing.assert_allclose(out, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("kv_dtype", "tolerance"), [("bfloat16", 0.006), ("int8", 0.015)])
@pytest.mark.parametrize("shape", ATTENTION)
def test_rounded_keys_and_values_are_near(
    isa: str, shape: str, kv_dtype: str, tolerance: float
) -> None:
    """As a root mean square, relative to the attention over exact ones."""
    options = ATTENTION[shape]
    sequences = Sequences([300], options, 16)
    exact, rounded = (
        sequences.native(make_ops(isa, 2, kv_dtype=dtype, **options), [(0, 0, 300)])[0]
        for dtype in ("float32", kv_dtype)
    )
    error = np.sqrt(((rounded - exact) ** 2).mean() / (exact**2).mean())
    assert 0 < error < tolerance


@pytest.mark.parametrize("kv_dtype", KV_DTYPES)
@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("part", ["q", "k", "v"])
def test_what_is_not_finite_in_attention_stays_behind_its_position(
    isa: str, kv_dtype: str, bad: float, part: str
) -> None:
    """It spoils its own position, and with a key or value later ones; no earlier unit of positions.

    Nor an earlier position of its own, but for a float value, which a weight of 0 does not make 0.
    """
    options = {**ATTENTION["grouped"], "kv_dtype": kv_dtype}
    sequences = Sequences([40, 200], ATTENTION["grouped"], 16)
    parts = [(0, 0, 40), (1, 0, 200)]
    expected = sequences.native(make_ops(isa, **options), parts)
    at = {"q": 0, "k": 6 * 64, "v": 8 * 64}[part] + 5
    sequences.qkv[1][150, at] = bad
    found = sequences.native(make_ops(isa, **options), parts)
    assert np.array_equal(found[0], expected[0])
    before = 128 if part == "v" and kv_dtype != "int8" else 150
    assert np.array_equal(found[1][:before], expected[1][:before])
    assert not np.isfinite(found[1][150]).all()


@pytest.mark.parametrize("kv_dtype", KV_DTYPES)
@pytest.mark.parametrize("shape", ATTENTION)
def test_attention_has_the_same_bits_in_any_cut(isa: str, shape: str, kv_dtype: str) -> None:
    """Whole, in chunks, one by one; with others, or alone, where units of positions are shared."""
    options = {**ATTENTION[shape], "kv_dtype": kv_dtype}
    sequences = Sequences([700, 90], ATTENTION[shape], 16)
    expected = sequences.native(make_ops(isa, **options), [(0, 0, 700)])[0]
    two = make_ops(isa, num_threads=2, **options)
    for start in range(0, 700, 41):
        out = sequences.native(two, [(1, 0, 90), (0, start, min(start + 41, 700))])[1]
        assert np.array_equal(out, expected[start : start + 41]), start
    for position in (699, 698, 640, 512, 511, 384, 15, 0):
        out = sequences.native(two, [(0, position, position + 1)])[0]
        assert np.array_equal(out[0], expected[position]), position


@pytest.mark.parametrize("block_size", [16, 5])
@pytest.mark.parametrize("kv_dtype", KV_DTYPES)
def test_what_an_earlier_owner_left_is_not_seen(isa: str, kv_dtype: str, block_size: int) -> None:
    shape = ATTENTION["grouped"]
    sequences = Sequences([37], shape, block_size)
    clean_ops, ops = (make_ops(isa, 1, block_size, kv_dtype=kv_dtype, **shape) for _ in range(2))
    clean = sequences.native(clean_ops, [(0, 0, 37)])[0]
    earlier = Sequences([len(sequences.tables[0]) * block_size], shape, block_size)
    earlier.qkv[0][:] = np.nan
    earlier.tables = sequences.tables
    earlier.native(ops, [(0, 0, len(earlier.qkv[0]))])
    for start, end in ((0, 5), (5, 6), (6, 30), (30, 37)):
        out = sequences.native(ops, [(0, start, end)])[0]
        assert np.array_equal(out, clean[start:end])


@pytest.mark.parametrize("kv_dtype", KV_DTYPES)
def test_blocks_move_whole(isa: str, kv_dtype: str) -> None:
    sequences = Sequences([40], ATTENTION["grouped"], 16)
    ops = make_ops(isa, num_threads=2, kv_dtype=kv_dtype, **ATTENTION["grouped"])
    expected = sequences.native(ops, [(0, 0, 40)])[0]
    table = sequences.tables[0]
    ops.swap_out([BlockMove(block, i) for i, block in enumerate(table)])
    free = [b for b in range(NUM_BLOCKS) if b not in table]
    ops.swap_in([BlockMove(i, free[i]) for i in range(3)])
    ops.copy_blocks([BlockMove(free[0], free[10]), BlockMove(free[10], free[11])])
    sequences.tables[0] = [free[11], free[1], free[2]]
    out = sequences.native(ops, [(0, 39, 40)])[0]
    assert np.array_equal(out[0], expected[39])


@pytest.mark.parametrize("storage", ["F32", "BF16", "Q4_1", "Q6_K"])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_stays_in_its_row_and_is_found(
    isa: str, storage: str, bad: float
) -> None:
    rng = np.random.default_rng(7)
    x = rng.standard_normal((10, 256)).astype(np.float32)
    clean = x.copy()
    x[4, 100] = bad
    ops = make_ops(isa)
    matrix = ops.load_matrix([random_stored(rng, 64, 256, storage)], [])
    found = ops.linear(activations(ops, x), matrix)
    sound = np.arange(10) != 4
    assert not np.isfinite(found.numpy()[4]).any()
    assert ops.are_finite(found) == sound.tolist()
    expected = ops.linear(activations(ops, clean), matrix).numpy()
    assert np.array_equal(found.numpy()[sound], expected[sound])


def test_padding_is_computed_and_changes_nothing(isa: str) -> None:
    ops = make_ops(isa)
    step = ops.prepare([Rows([1, 2, 3], 4, [0])], Padding(4, 5, 30))
    assert step.num_rows == 20


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (Rows([1], 0, [NUM_BLOCKS]), "no such block"),
        (Rows([1], 0, [-1]), "no such block"),
        (Rows([1], 16, [0]), "too short"),
        (Rows([1], -1, [0]), "no such position"),
        (Rows([1], 16 * NUM_BLOCKS, range(NUM_BLOCKS)), "no such position"),
        (Rows([], 0, [0]), "no such position"),
    ],
)
def test_steps_outside_the_pool_are_refused(rows: Rows, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_ops("auto").prepare([rows])


def test_other_ids_outside_are_refused() -> None:
    ops = make_ops("auto")
    table = ops.load_table(ArrayTensor(np.zeros((5, 64), dtype=np.float32)))
    for token in (5, -1):
        with pytest.raises(ValueError, match="no such token"):
            ops.embed(table, ops.prepare([Rows([token], 0, [0])]))
    for move in ((0, 4), (NUM_BLOCKS, 0), (-1, 0)):
        with pytest.raises(ValueError, match="no such block"):
            ops.swap_out([BlockMove(*move)])
    with pytest.raises(ValueError, match="instruction set mmx"):
        make_ops("mmx")
