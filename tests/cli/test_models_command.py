"""``headway models``."""

import json
from pathlib import Path

import pytest

from headway.cli.main import main


@pytest.fixture(autouse=True)
def _empty_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HEADWAY_CACHE", str(tmp_path))


def test_json(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["models", "--json"]) == 0
    models = json.loads(capsys.readouterr().out)["models"]
    assert "smollm2-135m-instruct" in [model["name"] for model in models]
    for model in models:
        assert model["cached"] is False
        assert Path(model["path"]).is_relative_to(tmp_path)
        assert model["size_bytes"] > 0


def test_human_view(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models"]) == 0
    header, first, *_ = capsys.readouterr().out.splitlines()
    assert header.split() == ["NAME", "SIZE", "CACHED", "DESCRIPTION"]
    assert first.split()[:4] == ["smollm2-135m-instruct", "94", "MiB", "no"]
