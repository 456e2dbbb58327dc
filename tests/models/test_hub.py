"""Models of the Hugging Face hub, with a stand-in for the package; nothing goes to the network."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from headway.errors import ModelError
from headway.models.catalog import resolve

hub = pytest.importorskip("huggingface_hub")
errors = pytest.importorskip("huggingface_hub.errors")
filter_repo_objects = pytest.importorskip("huggingface_hub.utils").filter_repo_objects


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def quiet(_: str) -> None:
    """No progress."""


def test_a_repository_is_fetched_without_what_is_not_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: dict[str, Any] = {}

    def snapshot_download(repository: str, **patterns: list[str]) -> str:
        asked.update(repository=repository, patterns=patterns)
        return str(tmp_path)

    monkeypatch.setattr(hub, "snapshot_download", snapshot_download)
    lines: list[str] = []
    with pytest.raises(ModelError, match=r"org/name:FILE\.gguf"):
        resolve("org/name", lines.append)
    (tmp_path / "config.json").write_text("{}")
    assert resolve("org/name", lines.append) == tmp_path
    assert asked["repository"] == "org/name"
    wanted = [
        *("config.json", "generation_config.json", "chat_template.jinja", "tokenizer.json"),
        *("model-00001-of-00002.safetensors", "model.safetensors.index.json"),
    ]
    others = [
        *("pytorch_model.bin", "m.gguf", "README.md", "onnx/config.json", "onnx/model.onnx"),
        *("original/params.json", "original/consolidated.00.pth", "fp8/model.safetensors"),
        *("consolidated.safetensors", "consolidated.safetensors.index.json"),
    ]
    chosen = filter_repo_objects([*wanted, *others], **asked["patterns"])
    assert sorted(chosen) == sorted(wanted)
    assert "org/name" in lines[0]


def test_one_gguf_file_of_a_repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def hf_hub_download(repository: str, file: str) -> str:
        return str(tmp_path / repository / file)

    monkeypatch.setattr(hub, "hf_hub_download", hf_hub_download)
    path = resolve("org/name-GGUF:q4/m.Q4_K.gguf", quiet)
    assert path == tmp_path / "org/name-GGUF/q4/m.Q4_K.gguf"


@pytest.mark.parametrize(
    "error",
    [
        errors.LocalEntryNotFoundError("no\nnetwork"),
        errors.OfflineModeIsEnabled("offline"),
        errors.HFValidationError("bad id"),
        ConnectionError(),
        TimeoutError("slow"),
    ],
)
def test_a_hub_that_does_not_answer_is_one_line(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> str:
        raise error

    monkeypatch.setattr(hub, "snapshot_download", fail)
    with pytest.raises(ModelError, match="org/name is no local path and could not") as caught:
        resolve("org/name", quiet)
    assert "\n" not in str(caught.value)
    assert type(error).__name__ in str(caught.value)


def test_without_the_package_the_error_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(ModelError, match=r"pip install 'headway\[hub\]'"):
        resolve("org/name", quiet)


def test_a_snapshot_in_the_cache_works_offline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The real package, told to stay offline, finds what an earlier download left."""
    commit = "0" * 40
    repository = tmp_path / "hub" / "models--org--name"
    snapshot = repository / "snapshots" / commit
    snapshot.mkdir(parents=True)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(commit)
    (snapshot / "config.json").write_text("{}")
    monkeypatch.setattr(hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(hub.constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    original = hub.snapshot_download

    def in_our_cache(*args: Any, **kwargs: Any) -> Any:
        return original(*args, cache_dir=tmp_path / "hub", **kwargs)

    monkeypatch.setattr(hub, "snapshot_download", in_our_cache)
    assert resolve("org/name", quiet) == snapshot
    with pytest.raises(ModelError, match="could not be fetched"):
        resolve("org/other", quiet)
