"""Random weights of the right shapes: for measurements of models whose weights are not at hand.

They are made anew whenever somebody reads them, one tensor at a time, from a seed that follows from
the tensor's name: the same in every process, and nothing lies in memory. Norms are 1 and biases 0;
matrices have a standard deviation of about ``1 / sqrt(columns)``, so that values neither grow nor
vanish from layer to layer, and are finite.
"""

from __future__ import annotations

import math
import zlib
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from headway.errors import ModelError
from headway.models.architecture import EMBEDDING, HEAD, expected_tensors
from headway.models.config import ModelConfig
from headway.models.fields import Fields, shown
from headway.models.tensors import BLOCKS, dequantise, stored_bytes

_DTYPES: Final = {"float32": "F32", "float16": "F16", "bfloat16": "BF16"}


@dataclass(frozen=True, slots=True)
class _Float:
    """Random signs and fractions under one exponent, which is above ``fraction`` bits."""

    element: type[np.unsignedinteger]
    fraction: int
    bias: int
    kept: int


@dataclass(frozen=True, slots=True)
class _Blocks:
    """Random codes under fixed scales, which are float16 in every format.

    Attributes:
        deviation: of the values when the scale is 1.
        scale: where it stands in the block.
        minimum: where the value of code 0 stands, if the block has one.
        centre: that value for scale 1, as stored, by which the mean is 0.
    """

    deviation: float
    scale: int = 0
    minimum: int | None = None
    centre: float = 0.0


_FLOATS: Final = {
    "F32": _Float(np.uint32, 23, 127, 0x807F_FFFF),
    "F16": _Float(np.uint16, 10, 15, 0x83FF),
    "BF16": _Float(np.uint16, 7, 127, 0x807F),
}
_BLOCKS: Final = {
    "Q8_0": _Blocks(73.9),
    "Q4_0": _Blocks(4.61),
    "Q4_1": _Blocks(4.61, minimum=2, centre=-7.5),
    "Q5_0": _Blocks(9.23),
    "Q5_1": _Blocks(9.23, minimum=2, centre=-15.5),
    # the scales of their sub-blocks are random codes too
    "Q4_K": _Blocks(258.0, minimum=2, centre=7.5),
    "Q5_K": _Blocks(527.0, minimum=2, centre=15.5),
    "Q6_K": _Blocks(1365.0, scale=208),
}
_DEVIATION_OF_UNIFORM: Final = math.sqrt(7 / 3)
"""Of values with a random sign that are spread evenly between 1 and 2."""


@dataclass(frozen=True, slots=True, eq=False)
class DummyTensor:
    """Implements :class:`headway.models.checkpoint.StoredTensor`; reading makes the values."""

    name: str
    shape: tuple[int, ...]
    format: str

    @property
    def data(self) -> npt.NDArray[np.uint8]:
        """New stored bytes, the same at each call."""
        if len(self.shape) == 1:
            value = 1.0 if self.name.endswith("norm.weight") else 0.0
            return np.full(self.shape, value, dtype=np.float32).view(np.uint8)
        raw = _random_bytes(stored_bytes(self.shape, self.format), self.name)
        wanted = 1 / math.sqrt(self.shape[1])
        if self.format in _FLOATS:
            _give_exponent(raw, _FLOATS[self.format], wanted)
        else:
            _give_scales(raw, _BLOCKS[self.format], BLOCKS[self.format][1], wanted)
        return raw.reshape(self.shape[0], -1)

    def to_float32(self) -> npt.NDArray[np.float32]:
        """Dequantise into a new array of ``shape``."""
        return dequantise(self.data, self.format)


def dummy_tensors(config: ModelConfig, storage: str) -> dict[str, DummyTensor]:
    """Return all tensors of a model; vectors in F32, matrices in the given format.

    Beside 4- and 5-bit matrices embedding and output head are in Q8_0, as is usual in such files.

    Raises:
        ModelError: a row is no whole number of blocks of this format.
    """
    table = "Q8_0" if storage.startswith(("Q4", "Q5")) else storage
    tensors: dict[str, DummyTensor] = {}
    for name, shape in expected_tensors(config):
        form = "F32" if len(shape) == 1 else table if name in (EMBEDDING, HEAD) else storage
        try:
            stored_bytes(shape, form)
        except ValueError as error:
            raise ModelError(f"dummy weights can't be {storage}: tensor {name}: {error}") from error
        tensors[name] = DummyTensor(name, shape, form)
    return tensors


def stated_format(fields: Fields) -> str:
    """Return the storage format that ``config.json`` says its weights have; by default F32."""
    dtype = fields.string("dtype", fields.string("torch_dtype", "float32"))
    if dtype not in _DTYPES:
        raise fields.fail("dtype", f"is {shown(dtype)}; known are {', '.join(_DTYPES)}")
    return _DTYPES[dtype]


def _random_bytes(count: int, name: str) -> npt.NDArray[np.uint8]:
    generator = np.random.Generator(np.random.SFC64(zlib.crc32(name.encode())))
    words = generator.integers(0, 2**64, size=-(-count // 8), dtype=np.uint64)
    return words.view(np.uint8)[:count]


def _give_exponent(raw: npt.NDArray[np.uint8], form: _Float, deviation: float) -> None:
    exponent = round(math.log2(deviation / _DEVIATION_OF_UNIFORM))
    values = raw.view(form.element)
    values &= form.element(form.kept)
    values |= form.element((exponent + form.bias) << form.fraction)


def _give_scales(
    raw: npt.NDArray[np.uint8], form: _Blocks, block_bytes: int, deviation: float
) -> None:
    blocks = raw.reshape(-1, block_bytes)
    scale = np.float16(deviation / form.deviation)
    fields = {form.scale: scale}
    if form.minimum is not None:
        fields[form.minimum] = np.float16(form.centre * float(scale))
    for at, value in fields.items():
        blocks[:, at : at + 2] = np.frombuffer(value.tobytes(), dtype=np.uint8)
