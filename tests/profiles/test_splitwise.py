"""Measured times of whole models."""

from __future__ import annotations

from pathlib import Path

import pytest
from measured import HEADER
from steps import decodes, mixed, prefill

from headway.profiles.errors import ProfileError
from headway.profiles.shape import StepShape
from headway.profiles.splitwise import read_splitwise


def test_medians_and_what_lies_between(splitwise_file: Path) -> None:
    costs = read_splitwise(splitwise_file, "m", "a", 2)
    assert costs.seconds(prefill((0, 512))) == pytest.approx(0.1075)
    assert costs.seconds(prefill((0, 256), (9, 256))) == pytest.approx(0.1075)
    assert costs.seconds(prefill((0, 1280))) == pytest.approx((0.1075 + 0.410) / 2)
    assert costs.seconds(decodes(1, 576)) == pytest.approx(0.054)
    assert costs.seconds(decodes(8, 576)) == pytest.approx(0.062)
    assert costs.seconds(StepShape()) == 0


def test_longer_contexts_cost_each_decode_the_same(splitwise_file: Path) -> None:
    costs = read_splitwise(splitwise_file, "m", "a", 2)
    longer = (0.058 - 0.054) * (1000 - 576) / (2112 - 576)
    assert costs.seconds(decodes(8, 1000)) == pytest.approx(0.062 + 8 * longer)


def test_a_mixed_step_is_a_tenth_more_than_its_tokens(splitwise_file: Path) -> None:
    costs = read_splitwise(splitwise_file, "m", "a", 2)
    expected = 1.1 * costs.seconds(prefill((0, 512)))
    assert costs.seconds(mixed(12, 576, (0, 500))) == pytest.approx(expected)


def test_faults_are_left_out_and_the_range_is_known(splitwise_file: Path) -> None:
    costs = read_splitwise(splitwise_file, "m", "a", 2)
    assert costs.covers(prefill((0, 4096)))
    assert not costs.covers(prefill((0, 4097)))
    assert costs.covers(decodes(64, 2112))
    assert not costs.covers(decodes(65, 100))


def test_what_it_has_is_named(splitwise_file: Path) -> None:
    with pytest.raises(ProfileError, match="has no m on 8 a: it has m on 2 a, m on 4 b"):
        read_splitwise(splitwise_file, "m", "a", 8)
    with pytest.raises(ProfileError, match="can't be read"):
        read_splitwise(splitwise_file.with_name("none.csv"), "m", "a", 2)
    splitwise_file.write_text(HEADER + "\nm,a,x,1,1,1,1,2\n")
    with pytest.raises(ProfileError, match="line 2"):
        read_splitwise(splitwise_file, "m", "a", 2)
