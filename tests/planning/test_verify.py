"""What a plan in a file says of a load."""

from __future__ import annotations

from math import inf

from headway.planning.verify import expected_at


def test_days_that_were_not_served_are_infinite_again() -> None:
    """JSON has null for them, as for days on which nobody came, and those keep every target."""
    target = {
        "class_name": "chat",
        "metric": "ttft",
        "limit_s": 1.0,
        "by_day_s": [0.5, None, 2.0, None, None],
        "held": 2,  # the first, and one on which nobody came
        "of": 5,
    }
    plan = {"loads": [{"factor": 1.0, "held": 2, "of": 5, "targets": [target]}]}
    found = expected_at(plan, 1.0)
    assert found is not None
    assert found.figures == {("chat", "ttft"): (0.5, 2.0, inf, inf)}
    assert expected_at(plan, 1.5) is None
