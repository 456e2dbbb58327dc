"""Profiles go to a file and come back."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from steps import decodes, mixed, prefill
from test_fitted import log
from test_kernel_tables import MODEL
from test_model_shape import LLAMA_8B, MIXTRAL

from headway.core.costs import StepCosts
from headway.profiles.collective import AllReduce
from headway.profiles.devices import find_device
from headway.profiles.errors import ProfileError
from headway.profiles.fitted import fit_device, fit_host
from headway.profiles.interference import Interference, costs_of_engine
from headway.profiles.model_shape import model_shape
from headway.profiles.profile import Profile, read_profile, write_profile
from headway.profiles.roofline import Roofline
from headway.profiles.shape import StepCost, StepShape
from headway.profiles.splitwise import read_splitwise
from headway.profiles.tables import read_kernel_tables
from headway.profiles.watched import Watched

SHAPES = (decodes(3, 300), prefill((0, 50), (100, 700)), mixed(4, 900, (0, 30)))


def through_a_file(costs: StepCost, path: Path) -> StepCost:
    write_profile(path, Profile(name="n", source="s", device=costs))
    found = read_profile(path)
    assert (found.name, found.source, found.host, found.overlaps) == ("n", "s", None, False)
    for shape in SHAPES:
        assert found.device.seconds(shape) == pytest.approx(costs.seconds(shape), rel=1e-12)
    return found.device


def test_linear_costs(tmp_path: Path) -> None:
    costs = StepCosts(base_s=0.5)
    assert through_a_file(costs, tmp_path / "p.json") == costs


@pytest.mark.parametrize("config", [LLAMA_8B, MIXTRAL])
def test_rooflines(config: dict[str, object], tmp_path: Path) -> None:
    shape = model_shape(config, weights="int4")
    costs = Roofline(shape, find_device("l40s"), num_devices=2)
    found = through_a_file(costs, tmp_path / "p.json")
    assert isinstance(found, Roofline)
    assert (found.model, found.device, found.efficiency, found.all_reduce) == (
        costs.model,
        costs.device,
        costs.efficiency,
        costs.all_reduce,
    )


def test_kernels(bundle: Path, tmp_path: Path) -> None:
    link = AllReduce(bytes_per_s=1e9, latency_s=1e-6)
    for skewed in True, False:
        costs = read_kernel_tables(bundle, MODEL, all_reduce=link, with_skew=skewed)
        through_a_file(costs, tmp_path / "p.json")
    wrong = Profile(name="", source="", device=read_kernel_tables(bundle, MODEL, adds_parts=True))
    with pytest.raises(ProfileError, match="wrong on purpose"):
        write_profile(tmp_path / "p.json", wrong)


def test_splitwise(splitwise_file: Path, tmp_path: Path) -> None:
    through_a_file(read_splitwise(splitwise_file, "m", "a", 2), tmp_path / "p.json")


def test_fits_with_range_error_and_host(tmp_path: Path) -> None:
    steps = [step._replace(host_s=0.01) for step in log(100)]
    profile = Profile(
        name="this machine",
        source="100 steps",
        device=fit_device(steps),
        host=fit_host(steps),
        overlaps=True,
    )
    write_profile(tmp_path / "p.json", profile)
    assert read_profile(tmp_path / "p.json") == profile


def test_interference_of_either_kind_of_step_or_of_both(tmp_path: Path) -> None:
    """Older files have one list of factors, for all steps."""
    path = tmp_path / "p.json"
    both = Interference(0.05, [1.0, 1.2], few_rows=[1.1, 0.9])
    write_profile(
        path, Profile(name="n", source="s", device=StepCosts(base_s=0.5), interference=both)
    )
    assert read_profile(path).interference == both
    values = json.loads(path.read_text())
    del values["interference"]["few_rows"]
    path.write_text(json.dumps(values))
    older = read_profile(path).interference
    assert older == Interference(0.05, [1.0, 1.2])
    steady = StepCosts(base_s=0.01, prefill_token_s=0.0, decode_s=0.0)
    costs = costs_of_engine(steady, older, 1)
    assert costs.seconds(decodes(1, 10)) == pytest.approx(0.012)


def test_other_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "p.json"
    with pytest.raises(ProfileError, match="can't be read"):
        read_profile(path)
    write_profile(path, Profile(name="n", source="s", device=StepCosts()))
    good = json.loads(path.read_text())
    for changes, message in (
        ({"format": "x"}, "it is no profile"),
        ({"version": 9}, "of version 9; this is read: 1"),
        ({"kind": "magic"}, "doesn't know 'magic'"),
        ({"device": {"base_h": 1}}, "it is damaged"),
        ({"device": None}, "it is damaged"),
    ):
        path.write_text(json.dumps({**good, **changes}))
        with pytest.raises(ProfileError, match=message):
            read_profile(path)
    path.write_text("not json")
    with pytest.raises(ProfileError, match="is no JSON"):
        read_profile(path)
    with pytest.raises(ProfileError, match="can't be written"):
        write_profile(tmp_path / "none" / "p.json", read_good(good, path))


def read_good(values: dict[str, object], path: Path) -> Profile:
    path.write_text(json.dumps(values))
    return read_profile(path)


def test_costs_of_another_kind_have_no_file(tmp_path: Path) -> None:
    class Free:
        def seconds(self, shape: StepShape) -> float:
            return 0.0

    with pytest.raises(ProfileError, match="Free can't be written"):
        write_profile(tmp_path / "p.json", Profile(name="", source="", device=Free()))


def test_extrapolation_is_counted() -> None:
    costs = fit_device(log(100))
    watched = Watched(costs)
    inside, outside = decodes(50, 1000), decodes(500, 1000)
    assert watched.seconds(inside) == costs.seconds(inside)
    watched.seconds(outside)
    assert str(watched) == "1 of 2 steps lie beyond what was measured"
    assert watched.seconds_beyond == costs.seconds(outside)
