"""An endless stream of high priority: it stays inside its share, and nobody starves."""

from __future__ import annotations

import pytest
from benchmarks.priority import AGEING_S, Outcome, Waits


@pytest.fixture(scope="module")
def settings(priority_shown: Outcome) -> dict[str, Waits]:
    return priority_shown.settings


def test_the_high_class_never_exceeds_its_share_and_uses_it(settings) -> None:
    share = settings["share"]
    assert share.most_high_running == share.most_high_allowed == 12
    assert settings["ageing"].most_high_running == 16  # without a share it takes all


def test_beside_a_share_the_low_class_hardly_waits(settings) -> None:
    share = settings["share"]
    assert share.num_low_started == share.num_low
    assert share.low_longest_s < share.high_median_s


def test_no_low_request_waits_longer_than_its_bound(settings) -> None:
    for name in ("share", "ageing"):
        assert settings[name].largest_part_of_bound <= 1.0
        assert settings[name].first_token_part_of_bound <= 1.0


def test_nobody_goes_first_who_came_later_than_ageing_allows(settings) -> None:
    for name in ("share", "ageing"):
        assert settings[name].num_jumped == 0


def test_without_ageing_they_starve_so_it_is_ageing_that_helps(settings) -> None:
    assert settings["strict"].low_longest_s > 3 * settings["ageing"].low_longest_s
    assert settings["ageing"].low_longest_s > AGEING_S  # the bound was put to the test
    assert settings["ageing"].largest_part_of_bound > 0.7
    assert settings["ageing"].first_token_part_of_bound > 0.7
