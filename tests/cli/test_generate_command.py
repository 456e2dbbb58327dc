"""``headway generate``: answers, what it reads and writes, and how it fails."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from safetensors.numpy import save_file
from tokenizers import decoders, models, pre_tokenizers

from headway.cli import generate
from headway.cli.main import INTERRUPTED
from headway.testing.tiny_models import tiny_checkpoint, tiny_config
from headway.text.byte_level import CHARACTERS

EOS = 128
SIMULATED = ("--executor", "simulated", "--num-blocks", "64", "--step-base-ms", "0")
TIMEOUT_S = 120


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small model on disk."""
    folder = tmp_path_factory.mktemp("models") / "letters"
    folder.mkdir()
    config = tiny_config(vocab_size=EOS + 1)
    described = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": config.vocab_size,
        "hidden_size": config.hidden_size,
        "intermediate_size": config.intermediate_size,
        "num_hidden_layers": config.num_layers,
        "num_attention_heads": config.num_heads,
        "num_key_value_heads": config.num_kv_heads,
        "head_dim": config.head_dim,
        "max_position_embeddings": config.max_position_embeddings,
        "tie_word_embeddings": False,
        "eos_token_id": EOS,
    }
    tensors = tiny_checkpoint(config).tensors
    save_file({n: t.to_float32() for n, t in tensors.items()}, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(described))
    (folder / "tokenizer.json").write_bytes(letters().to_str().encode())
    template = "{% for m in messages %}{{ m.role[0] }}:{{ m.content }}|{% endfor %}"
    words = {"eos_token": "<eos>", "chat_template": template}
    (folder / "tokenizer_config.json").write_text(json.dumps(words))
    return folder


def letters() -> tokenizers.Tokenizer:
    """Every ASCII character is a token, and token 1 is one that ASCII does not have."""
    vocabulary = {CHARACTERS[code]: code for code in range(128)} | {"<eos>": EOS}
    del vocabulary[CHARACTERS[1]]
    vocabulary["".join(CHARACTERS[byte] for byte in "é".encode())] = 1
    library = tokenizers.Tokenizer(models.BPE(vocabulary, []))
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    library.decoder = decoders.ByteLevel()
    library.add_special_tokens(["<eos>"])
    return library


def environment(**variables: str) -> dict[str, str]:
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("HEADWAY_") or name == "HEADWAY_CACHE"
    }
    return kept | {"PYTHONIOENCODING": "utf-8"} | variables


def run(model: Path, *arguments: str, **options: Any) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "headway", "generate", "--model", str(model), *arguments]
    options = {"env": environment(), "capture_output": True, "timeout": TIMEOUT_S} | options
    return subprocess.run(command, check=False, **options)


def complaint(done: subprocess.CompletedProcess[bytes]) -> str:
    """Return the only line of a complaint."""
    (line,) = done.stderr.decode().splitlines()
    assert line.startswith("headway: error: ")
    return line


# -------------------------------------------------------------------- answers


def test_json_and_the_stream_agree_and_seeds_repeat(model: Path) -> None:
    flags = ("hi", *SIMULATED, "--max-tokens", "20", "--draw-seed", "4")
    streamed, whole = run(model, *flags), run(model, *flags, "--json")
    assert (streamed.returncode, whole.returncode) == (0, 0), streamed.stderr + whole.stderr
    answer = json.loads(whole.stdout)
    assert streamed.stdout.decode() == answer["text"] + "\n"
    assert answer["model"] == "letters"
    assert answer["finish_reason"] == "length"
    assert answer["usage"] == {"prompt_tokens": len("u:hi|"), "completion_tokens": 20}


@pytest.mark.parametrize(
    ("arguments", "prompt"),
    [(("hi", "--raw"), "hi"), (("hi", "--system", "be"), "s:be|u:hi|"), (("-",), "u:from a pipe|")],
)
def test_the_prompt(model: Path, arguments: tuple[str, ...], prompt: str) -> None:
    flags = (*SIMULATED, "--max-tokens", "1", "--json")
    done = run(model, *arguments, *flags, input=b"from a pipe")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["usage"]["prompt_tokens"] == len(prompt)


@pytest.mark.slow
@pytest.mark.parametrize("flags", [("torch",), ("cpu",)])
def test_the_capital_of_germany(smollm2_gguf: Path, flags: tuple[str, ...]) -> None:
    pytest.importorskip({"torch": "torch", "cpu": "headway.kernels._native"}[flags[0]])
    flags = ("--executor", *flags)
    flags += ("--temperature", "0", "--num-blocks", "64", "--max-tokens", "20")
    done = run(smollm2_gguf, "What is the capital of Germany?", *flags)
    assert done.returncode == 0, done.stderr
    assert b"Berlin" in done.stdout


# -------------------------------------------------------------------- what it reads and writes


def test_a_closed_standard_input_is_one_line(model: Path) -> None:
    command = [sys.executable, "-m", "headway", "generate", "--model", str(model), "-", *SIMULATED]
    done = subprocess.run(
        ["sh", "-c", '"$@" <&-', "sh", *command],
        env=environment(),
        capture_output=True,
        check=False,
        timeout=TIMEOUT_S,
    )
    assert done.returncode == 2
    assert "standard input is closed" in complaint(done)


def test_a_closed_standard_output_is_one_line(model: Path) -> None:
    command = [sys.executable, "-m", "headway", "generate", "--model", str(model), "x", *SIMULATED]
    done = subprocess.run(
        ["sh", "-c", '"$@" >&-', "sh", *command],
        env=environment(),
        stderr=subprocess.PIPE,
        check=False,
        timeout=TIMEOUT_S,
    )
    assert done.returncode == 2
    assert "standard output is closed" in complaint(done)


def test_input_that_is_no_text_is_one_line(model: Path) -> None:
    done = run(model, "-", *SIMULATED, input=b"\xff\xfe")
    assert done.returncode == 2
    assert "not utf-8 text" in complaint(done)


def test_characters_that_the_terminal_lacks_are_replaced(model: Path) -> None:
    flags = ("hi", *SIMULATED, "--max-tokens", "300", "--draw-seed", "1")
    full, poor = (
        run(model, *flags, env=environment(PYTHONIOENCODING=encoding)).stdout
        for encoding in ("utf-8", "ascii")
    )
    assert "é" in full.decode()
    assert poor.decode("ascii") == full.decode().replace("é", "?")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
@pytest.mark.parametrize("form", [(), ("--json",)])
def test_a_full_disk_is_one_line(model: Path, form: tuple[str, ...]) -> None:
    with Path("/dev/full").open("wb") as full:
        options = {"stdout": full, "stderr": subprocess.PIPE, "capture_output": False}
        done = run(model, "hi", *SIMULATED, "--max-tokens", "9", *form, **options)
    assert done.returncode == 1
    assert "No space left on device" in complaint(done)


def test_an_interrupt_in_the_middle_is_quiet(model: Path) -> None:
    slow = ("--executor", "simulated", "--num-blocks", "64", "--step-base-ms", "20")
    command = [sys.executable, "-m", "headway", "generate", "--model", str(model), "hi", *slow]
    with subprocess.Popen(
        command, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.read(1)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=TIMEOUT_S)
    assert (process.returncode, errors) == (INTERRUPTED, b"")


# -------------------------------------------------------------------- how it fails


def test_a_bad_end_is_one_line(model: Path) -> None:
    slow = ("--executor", "simulated", "--num-blocks", "64", "--step-base-ms", "50")
    done = run(model, "hi", *slow, "--request-timeout-s", "0.01")
    assert done.returncode == 1
    assert "longer than it may" in complaint(done)


def test_a_bad_end_in_the_middle_leaves_the_answer_so_far(model: Path) -> None:
    slow = ("--executor", "simulated", "--num-blocks", "64", "--step-base-ms", "20")
    done = run(model, "hi", *slow, "--request-timeout-s", "0.5")
    assert done.returncode == 1
    assert "longer than it may" in complaint(done)
    assert done.stdout.endswith(b"\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("hi", "--temperature", "3"), "temperature"),
        (("hi", "--stop", ""), "stop"),
        (("hi", "--max-tokens", "2.5"), "--max-tokens"),
        (("hi", "--raw", "--system", "x"), "--raw leaves it out"),
        (("hi", "--temprature", "1"), "did you mean --temperature?"),
        (("x" * 600,), "maximum context length"),
    ],
)
def test_what_is_refused_is_one_line(model: Path, arguments: tuple[str, ...], message: str) -> None:
    done = run(model, *arguments, *SIMULATED)
    assert done.returncode == 2
    assert message in complaint(done)


def test_a_missing_model_is_one_line(tmp_path: Path) -> None:
    done = run(tmp_path / "missing", "hi")
    assert done.returncode == 2
    assert "missing" in complaint(done)


def test_every_flag_stands_literally_in_its_module() -> None:
    source = Path(generate.__file__).read_text(encoding="utf-8")
    written = set(re.findall(r'"(--[a-z-]+)"', source))
    assert {f"--{name.replace('_', '-')}" for name in generate._SAMPLING} <= written
