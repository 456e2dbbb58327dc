"""The base dependencies suffice: the default path runs where nothing else can be imported."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
import urllib.request
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, packages_distributions, requires
from pathlib import Path

import pytest
import tokenizers
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from safetensors.numpy import save_file
from tokenizers import decoders, models, pre_tokenizers

from headway.testing.tiny_models import tiny_checkpoint, tiny_config
from headway.text.byte_level import CHARACTERS

ROOT = Path(__file__).parents[2]
EOS = 256

#: What other packages bring, and what the default path has no use for.
UNUSED = {"gguf", "huggingface_hub", "requests", "yaml"}


def base_distributions() -> set[str]:
    """Return the declared base dependencies, and what these bring."""
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    found: set[str] = set()
    waiting = [Requirement(text) for text in declared["dependencies"]]
    while waiting:
        requirement = waiting.pop()
        name = canonicalize_name(requirement.name)
        if name not in found and (requirement.marker is None or requirement.marker.evaluate()):
            found.add(name)
            waiting += [Requirement(text) for text in needs_of(name)]
    return found


def needs_of(distribution: str) -> list[str]:
    try:
        texts = requires(distribution) or []
    except PackageNotFoundError:  # not for this platform
        return []
    return [text for text in texts if "extra ==" not in text]


@pytest.fixture(scope="module")
def prelude() -> str:
    """Code after which nothing but the base can be imported."""
    base = base_distributions() | {"headway"}
    absent = {
        module
        for module, distributions in packages_distributions().items()
        if not base & {canonicalize_name(name) for name in distributions}
    }
    assert {"torch", "transformers", "safetensors", "openai"} <= absent
    names = sorted(name for name in absent | UNUSED if name.isidentifier())
    return f"import sys\nsys.modules.update(dict.fromkeys({names}))\n"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "tiny"
    folder.mkdir()
    config = tiny_config(vocab_size=EOS + 1)
    described = {
        "architectures": ["LlamaForCausalLM"],
        "vocab_size": config.vocab_size,
        "hidden_size": config.hidden_size,
        "intermediate_size": config.intermediate_size,
        "num_hidden_layers": config.num_layers,
        "num_attention_heads": config.num_heads,
        "num_key_value_heads": config.num_kv_heads,
        "head_dim": config.head_dim,
        "max_position_embeddings": config.max_position_embeddings,
        "eos_token_id": EOS,
    }
    (folder / "config.json").write_text(json.dumps(described))
    tensors = tiny_checkpoint(config).tensors
    save_file({n: t.to_float32() for n, t in tensors.items()}, folder / "model.safetensors")
    vocab = {CHARACTERS[byte]: byte for byte in range(256)} | {"<eos>": EOS}
    library = tokenizers.Tokenizer(models.BPE(vocab, []))
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    library.decoder = decoders.ByteLevel()
    library.add_special_tokens(["<eos>"])
    (folder / "tokenizer.json").write_text(library.to_str())
    return folder


USE = """
from headway import LLM, GenerationParams
params = GenerationParams(max_tokens=5, temperature=0, ignore_eos=True)
with LLM(sys.argv[1], num_blocks=16) as llm:
    print(llm.generate("ab", params)[0].num_output_tokens, llm.assembly.computing["executor"])
"""


def test_a_model_in_this_process_needs_no_more(prelude: str, model: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", prelude + USE, str(model)],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert (done.returncode, done.stdout) == (0, "5 cpu\n"), done.stderr


@pytest.fixture
def url(prelude: str, model: Path) -> Iterator[str]:
    serve = "from headway.cli.main import main\nsys.exit(main(sys.argv[1:]))\n"
    arguments = ["serve", str(model), "--port", "0", "--json", "--num-blocks", "16"]
    command = [sys.executable, "-c", prelude + serve, *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        ready = json.loads(process.stdout.readline())
        assert ready["executor"] == "cpu"
        yield ready["url"]
        process.terminate()
        assert process.wait(60) == 0


def test_a_server_needs_no_more(url: str) -> None:
    body = {"model": "tiny", "prompt": "ab", "max_tokens": 5, "ignore_eos": True}
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(f"{url}/v1/completions", json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=60) as answer:
        assert json.load(answer)["usage"]["completion_tokens"] == 5
    with urllib.request.urlopen(f"{url}/metrics", timeout=60) as answer:
        (info,) = re.findall(r"^headway_info{(.*)} 1", answer.read().decode(), re.MULTILINE)
    assert 'executor="cpu"' in info


def test_torch_is_asked_for_by_name(prelude: str, model: Path) -> None:
    code = prelude + "from headway.cli.main import main\nsys.exit(main(sys.argv[1:]))\n"
    arguments = ["generate", "hi", "--model", str(model), "--executor", "torch"]
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 2
    assert "the torch executor needs torch: pip install torch" in done.stderr


DEFAULT_MODEL = """
from headway.models.loading import open_checkpoint
from headway.assembly import assemble
from headway.config import load_settings
from pathlib import Path
settings = load_settings(flags={"model.path": sys.argv[1], "kv.num_blocks": 4}).settings
print(assemble(settings, print).computing["weights"])
"""


@pytest.mark.slow
def test_the_default_model_needs_no_more(prelude: str, smollm2_gguf: Path) -> None:
    pytest.importorskip("headway.kernels._native", reason="the fallback dequantises by `gguf`")
    done = subprocess.run(
        [sys.executable, "-c", prelude + DEFAULT_MODEL, str(smollm2_gguf)],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert (done.returncode, done.stdout) == (0, "Q4_1+Q8_0\n"), done.stderr
