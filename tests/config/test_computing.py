"""A setting of precision or speed that the chosen executor would not read is refused."""

from __future__ import annotations

import pytest

from headway.config import load_settings
from headway.errors import ConfigError


@pytest.mark.parametrize(
    ("executor", "key", "value", "words"),
    [
        ("cpu", "model.dtype", "float32", "it reads model.quantization and kv.dtype"),
        ("cpu", "model.dtype", "bfloat16", "it reads model.quantization and kv.dtype"),
        ("torch", "model.quantization", "int8", "it reads model.dtype"),
        ("torch", "model.isa", "avx2", "it reads model.dtype"),
        ("torch", "kv.dtype", "bfloat16", "it reads model.dtype"),
    ],
)
def test_what_only_another_executor_reads_is_refused(
    executor: str, key: str, value: str, words: str
) -> None:
    environ = {"HEADWAY_MODEL_EXECUTOR": executor}
    with pytest.raises(ConfigError) as caught:
        load_settings(environ=environ, flags={key: value})
    message = str(caught.value)
    assert message.startswith(
        f'{key} ({value}) has no effect with model.executor = "{executor}": {words}'
    )
    assert "HEADWAY_MODEL_EXECUTOR" in message, "it says where each comes from"


@pytest.mark.parametrize(
    ("executor", "key", "value"),
    [
        ("cpu", "model.quantization", "int8"),
        ("cpu", "model.isa", "portable"),
        ("cpu", "kv.dtype", "float32"),
        ("torch", "model.dtype", "bfloat16"),
        ("simulated", "kv.dtype", "float32"),
    ],
)
def test_what_it_reads_is_taken_without_a_word(executor: str, key: str, value: str) -> None:
    assert not load_settings(flags={"model.executor": executor, key: value}).warnings


def test_the_format_of_dummy_weights_needs_dummy_weights() -> None:
    with pytest.raises(ConfigError, match=r'no effect without model.load_format = "dummy"'):
        load_settings(flags={"model.dummy_format": "Q4_0"})
    flags = {"model.dummy_format": "Q4_0", "model.load_format": "dummy"}
    assert not load_settings(flags=flags).warnings
