"""pyproject.toml, constraints.txt and the licence fit together."""

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
DECLARED = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PROJECT = DECLARED["project"]
REQUIREMENTS = [
    Requirement(text)
    for texts in (
        DECLARED["build-system"]["requires"],
        PROJECT["dependencies"],
        *PROJECT["optional-dependencies"].values(),
    )
    for text in texts
]


@pytest.fixture(scope="module")
def pins() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pairs = [line.partition("==") for line in lines if line and not line.startswith("#")]
    return {name: version for name, _, version in pairs}


@pytest.mark.parametrize("requirement", REQUIREMENTS, ids=lambda requirement: requirement.name)
def test_every_direct_dependency_is_pinned_within_its_range(
    requirement: Requirement, pins: dict[str, str]
) -> None:
    pin = pins[canonicalize_name(requirement.name)]
    assert requirement.specifier.contains(pin)


def test_what_scikit_build_core_may_fetch_is_pinned(pins: dict[str, str]) -> None:
    assert {"cmake", "ninja", "packaging", "pathspec"} <= set(pins)


def test_the_base_needs_no_tensor_library() -> None:
    names = {Requirement(text).name for text in PROJECT["dependencies"]}
    assert not names & {"torch", "transformers", "safetensors", "huggingface-hub"}


def test_pins_are_exact_plain_versions_in_order(pins: dict[str, str]) -> None:
    assert list(pins) == sorted(pins)
    for name, version in pins.items():
        assert name == canonicalize_name(name)
        assert re.fullmatch(r"[0-9][0-9a-z.]*", version), f"{name} {version}"


def test_the_licence_is_there_in_full() -> None:
    text = (ROOT / "LICENSE").read_text(encoding="utf-8")
    assert "Apache License" in text
    assert "END OF TERMS AND CONDITIONS" in text
    assert PROJECT["license"] == "Apache-2.0"


def test_the_package_says_that_it_is_typed() -> None:
    assert (ROOT / "src/headway/py.typed").exists()
