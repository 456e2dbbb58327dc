"""A profile that a serving engine keeps current: learned from its steps, written, read again."""

from __future__ import annotations

import errno
import json
import logging
import os
import threading
from pathlib import Path

import pytest
from small_engine import arrival, limits

from headway.core.config import SchedulerConfig
from headway.core.costs import StepCosts
from headway.core.ports import Executor
from headway.engine.clock import VirtualClock
from headway.executors.simulated import SimulatedExecutor
from headway.profiles.errors import ProfileError
from headway.profiles.fitted import FittedCosts
from headway.profiles.profile import Profile, read_profile, write_profile
from headway.profiles.shape import StepShape
from headway.sim.kept_profile import ProfileKeeper
from headway.sim.live import LiveEngine

COSTS = StepCosts(base_s=0.01, prefill_token_s=0.001, decode_s=0.002)
SLOW = StepCosts(base_s=0.02, prefill_token_s=0.002, decode_s=0.004)
DECODES = StepShape((), 4, 80, 20, 20)


class Served:
    """An engine on a virtual clock whose executor is looked at."""

    def __init__(self, path: Path, costs: StepCosts = COSTS, every_s: float = 60.0) -> None:
        self.clock = VirtualClock()
        size = limits()
        inner = SimulatedExecutor(
            costs,
            self.clock,
            num_blocks=size.num_blocks,
            block_size=size.block_size,
            num_swap_blocks=0,
            vocab_size=100,
        )
        self.keeper = ProfileKeeper(inner, self.clock.now, path, name="toy", every_s=every_s)
        executor: Executor = self.keeper
        self.engine = LiveEngine(SchedulerConfig(limits=size), executor, self.clock, vocab_size=100)

    def serve(self, number: int) -> None:
        each = [
            arrival(at_s=0.05 * n, prompt=3 + 7 * n % 40, output=5 + n % 20) for n in range(number)
        ]
        self.engine.run(each)


def test_what_steps_cost_is_learned_and_written(tmp_path: Path) -> None:
    path = tmp_path / "profile.json"
    served = Served(path)
    served.serve(150)
    served.keeper.close()
    profile = read_profile(path)
    assert profile.name == "toy"
    assert profile.device.seconds(DECODES) == pytest.approx(0.018, rel=0.01)
    assert "kept current" in profile.source


def test_it_is_written_while_serving(tmp_path: Path) -> None:
    path = tmp_path / "profile.json"
    served = Served(path, every_s=1.0)
    served.serve(150)
    assert served.keeper._writer is not None
    served.keeper._writer.join()
    assert read_profile(path).device.seconds(DECODES) == pytest.approx(0.018, rel=0.05)


def test_the_next_start_begins_with_it_and_follows_the_machine(tmp_path: Path) -> None:
    path = tmp_path / "profile.json"
    first = Served(path)
    first.serve(150)
    first.keeper.close()
    again = Served(path, SLOW)
    assert again.keeper.profile().device.seconds(DECODES) == pytest.approx(0.018, rel=0.01)
    again.serve(2000)
    again.keeper.close()
    assert read_profile(path).device.seconds(DECODES) == pytest.approx(0.036, rel=0.05)


def test_time_in_which_the_engine_waits_is_not_the_hosts(tmp_path: Path) -> None:
    served = Served(tmp_path / "profile.json")
    served.engine.run([arrival(at_s=10.0 * n, output=30) for n in range(20)])
    assert served.keeper.profile().host is None  # on a virtual clock the host takes no time


def test_too_few_steps_write_nothing(tmp_path: Path) -> None:
    path = tmp_path / "profile.json"
    served = Served(path)
    served.serve(1)
    served.keeper.close()
    assert not path.exists()


def test_a_disk_that_fails_is_said_and_serving_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "gone"
    folder.mkdir()
    served = Served(folder / "profile.json")
    folder.rmdir()
    served.serve(150)
    with caplog.at_level(logging.WARNING):
        served.keeper.close()
    assert "was not written" in caplog.text


def test_a_write_that_fails_half_way_leaves_the_profile_before_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "profile.json"
    served = Served(path)
    served.serve(150)
    served.keeper.close()
    before = path.read_text()

    def write_half(self: Path, text: str, encoding: str) -> None:
        self.write_bytes(text[: len(text) // 2].encode(encoding))
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_text", write_half)
    served.keeper.close()
    assert "No space left on device" in caplog.text
    assert [each.name for each in tmp_path.iterdir()] == ["profile.json"]
    assert path.read_text() == before


def test_an_engine_that_dies_while_it_writes_disturbs_none_that_follows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "profile.json"
    served = Served(path)
    served.serve(150)
    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", lambda self, target: self)  # it comes so far, and dies
        served.keeper.close()
    (left,) = tmp_path.iterdir()
    left.write_text(left.read_text()[:99])
    again = Served(path)
    again.serve(150)
    again.keeper.close()
    assert read_profile(path).device.seconds(DECODES) == pytest.approx(0.018, rel=0.01)


def test_two_engines_that_write_the_same_profile_at_once_write_one_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The second writes all of its own while the first is between writing and replacing."""
    path = tmp_path / "profile.json"
    first, second = Served(path), Served(path, SLOW)
    first.serve(150)
    second.serve(150)
    replace, is_first = Path.replace, [True]

    def replace_later(self: Path, target: Path) -> Path:
        if is_first:
            is_first.clear()
            second.keeper.close()
            assert read_profile(path).device.seconds(DECODES) == pytest.approx(0.036, rel=0.01)
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", replace_later)
    first.keeper.close()
    assert not caplog.records
    assert read_profile(path).device.seconds(DECODES) == pytest.approx(0.018, rel=0.01)
    assert [each.name for each in tmp_path.iterdir()] == ["profile.json"]


def test_the_last_one_is_written_though_the_disk_is_still_at_the_one_before(
    tmp_path: Path,
) -> None:
    path = tmp_path / "profile.json"
    served = Served(path)
    served.serve(150)
    disk = threading.Event()
    served.keeper._writer = threading.Thread(target=disk.wait)
    served.keeper._writer.start()
    threading.Timer(0.05, disk.set).start()
    served.keeper.close()
    assert f"from {served.keeper._device.num_steps} steps" in read_profile(path).source


def test_a_folder_in_which_nothing_can_be_written_is_refused_at_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "profile.json"
    served = Served(path)
    served.serve(150)
    served.keeper.close()
    monkeypatch.setattr(os, "access", lambda what, mode: what != tmp_path)
    with pytest.raises(ProfileError, match="permission denied"):
        Served(path)


@pytest.mark.parametrize("text", ["", "{}", "[1]"])
def test_a_file_that_is_no_profile_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "profile.json"
    path.write_text(text)
    with pytest.raises(ProfileError, match=r"profile\.json"):
        Served(path)
    assert path.read_text() == text


def test_costs_that_were_not_fitted_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "profile.json"
    write_profile(path, Profile(name="x", source="given", device=COSTS))
    with pytest.raises(ProfileError, match="not fitted"):
        Served(path)
    assert json.loads(path.read_text())["kind"] == "linear"


def test_a_folder_that_is_not_there_is_refused_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match="no folder"):
        Served(tmp_path / "none" / "profile.json")


def test_ranges_of_the_profile_before_hold_on(tmp_path: Path) -> None:
    path = tmp_path / "profile.json"
    served = Served(path)
    served.serve(150)
    served.keeper.close()
    before = read_profile(path).device
    assert isinstance(before, FittedCosts)
    again = Served(path)
    again.engine.run([arrival(output=100)])
    after = again.keeper.profile().device
    assert isinstance(after, FittedCosts)
    assert all(after.ranges[name] == before.ranges[name] for name in ("decodes", "prefill_tokens"))
