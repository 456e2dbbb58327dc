"""``protect``: every row of its table sets what is unset, and warns of what contradicts it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headway.config import Origin, load_settings, to_toml, value_of
from headway.config.protect import ADVICE, Advice, Goal
from headway.config.settings import all_settings

GOALS: tuple[Goal, ...] = ("ttft", "tpot", "throughput")
ROWS = [
    pytest.param(goal, advice, id=f"{goal}-{advice.key}")
    for goal in GOALS
    for advice in ADVICE[goal]
]

#: What makes the rows count that need something.
TARGETS = "[classes.a]\nttft_p99_ms = 500\ntpot_p99_ms = 50\n"
SWAP = '[kv]\nswap_space_bytes = "1GiB"\n'


@pytest.fixture
def targets(tmp_path: Path) -> Path:
    path = tmp_path / "targets.toml"
    path.write_text(SWAP + TARGETS)
    return path


def against(advice: Advice) -> Any:
    """Return a value that works against the row; None if no value does."""
    if advice.among:
        choices: tuple[object, ...] = (True, False)
        for setting in all_settings():
            if setting.key == advice.key:
                choices = setting.rule.choices or choices
        return next(choice for choice in reversed(choices) if choice not in advice.among)
    if advice.at_most is not None:
        return advice.at_most * 2 or 10
    return None if advice.at_least is None else advice.at_least / 2


def allowed_beside(key: str, value: Any) -> dict[str, object]:
    """Return the value as its setting takes it, with what it needs beside it."""
    number = int(value) if isinstance(value, float) and value >= 1 else value
    flags: dict[str, object] = {key: number}
    if key == "scheduler.max_num_batched_tokens":
        flags["scheduler.max_num_seqs"] = 64  # right for every goal
    return flags


def test_every_goal_has_a_table_of_settings_that_exist() -> None:
    keys = {setting.key for setting in all_settings()}
    (goals,) = [s.rule.choices for s in all_settings() if s.key == "scheduler.protect"]
    assert tuple(ADVICE) == goals
    for rows in ADVICE.values():
        assert {advice.key for advice in rows} <= keys
        assert len({advice.key for advice in rows}) == len(rows)
        assert all(not advice.why.endswith(".") for advice in rows)


@pytest.mark.parametrize(("goal", "advice"), ROWS)
def test_a_row_sets_what_nothing_else_sets(goal: Goal, advice: Advice, targets: Path) -> None:
    loaded = load_settings(targets, flags={"scheduler.protect": goal})
    assert loaded.warnings == ()
    if advice.sets is None:
        assert loaded.origins[advice.key] == Origin("default")
    else:
        assert value_of(loaded.settings, advice.key) == advice.sets
        assert str(loaded.origins[advice.key]) == f"protect = {goal}"
        assert advice.objection(advice.sets) is None


@pytest.mark.parametrize(("goal", "advice"), ROWS)
def test_a_row_warns_of_what_contradicts_it(goal: Goal, advice: Advice, targets: Path) -> None:
    value = against(advice)
    if value is None:
        assert advice.sets is not None, "a row that neither sets nor warns does nothing"
        return
    flags = allowed_beside(advice.key, value)
    loaded = load_settings(targets, flags={"scheduler.protect": goal, **flags})
    (warning,) = [each for each in loaded.warnings if each.startswith("scheduler.protect")]
    assert advice.key in warning
    shown = str(flags[advice.key])
    assert (shown.lower() if shown in ("True", "False") else shown) in warning
    assert f'protect = "{goal}"' in warning
    assert "(flag --" in warning
    assert value_of(loaded.settings, advice.key) == flags[advice.key]  # it stays
    without_goal = load_settings(targets, flags=flags).warnings
    assert not [each for each in without_goal if "protect" in each]


@pytest.mark.parametrize(("goal", "advice"), ROWS)
def test_what_a_row_allows_is_no_warning(goal: Goal, advice: Advice, targets: Path) -> None:
    fine = [*advice.among, advice.at_least, advice.at_most]
    for value in (each for each in fine if each is not None):
        flags = allowed_beside(advice.key, value)
        loaded = load_settings(targets, flags={"scheduler.protect": goal, **flags})
        assert loaded.warnings == ()


def test_a_warning_has_name_number_origin_and_remedy() -> None:
    environ = {"HEADWAY_SCHEDULER_MAX_NUM_SEQS": "300"}
    flags = {"scheduler.protect": "tpot"}
    assert load_settings(None, environ, flags).warnings == (
        'scheduler.protect = "tpot", but scheduler.max_num_seqs = 300 '
        "(environment HEADWAY_SCHEDULER_MAX_NUM_SEQS) is above 64: each sequence more makes every "
        "step longer; unset it for 32",
    )


def test_without_a_goal_nothing_is_set_or_warned_of() -> None:
    loaded = load_settings(flags={"scheduler.batching": "static"})
    assert loaded.warnings == ()
    kinds = {origin.kind for key, origin in loaded.origins.items() if key != "scheduler.batching"}
    assert kinds == {"default"}


@pytest.mark.parametrize("goal", GOALS)
@pytest.mark.parametrize("seqs", [None, 1, 40, 5000])
@pytest.mark.parametrize("tokens", [None, 5, 100, 9000])
def test_batch_and_budget_fit_whoever_sets_them(
    goal: Goal, seqs: int | None, tokens: int | None
) -> None:
    if seqs is not None and tokens is not None and tokens < seqs:
        return
    given = {"scheduler.max_num_seqs": seqs, "scheduler.max_num_batched_tokens": tokens}
    flags = {key: value for key, value in given.items() if value is not None}
    settings = load_settings(flags={"scheduler.protect": goal, **flags}).settings.scheduler
    assert settings.max_num_batched_tokens >= settings.max_num_seqs
    assert seqs in (None, settings.max_num_seqs)
    assert tokens in (None, settings.max_num_batched_tokens)


@pytest.mark.parametrize("goal", GOALS)
@pytest.mark.parametrize("policy", ["fcfs", "slo"])
def test_the_policy_is_slo_only_where_there_are_targets(
    goal: Goal, policy: str, tmp_path: Path
) -> None:
    path = tmp_path / "headway.toml"
    path.write_text(TARGETS if policy == "slo" else "[classes.a]\nweight = 2\n")
    found = load_settings(path, flags={"scheduler.protect": goal}).settings.scheduler.policy
    assert found == ("fcfs" if goal == "throughput" else policy)


def test_a_class_with_its_own_policy_keeps_it(tmp_path: Path) -> None:
    path = tmp_path / "headway.toml"
    path.write_text(TARGETS + "[classes.b]\npolicy = 'sjf'\n")
    loaded = load_settings(path, flags={"scheduler.protect": "ttft"})
    assert loaded.settings.scheduler.policy == "slo"
    assert loaded.settings.classes["b"].policy == "sjf"
    path.write_text("[classes.a]\nttft_p99_ms = 500\npolicy = 'slo'\n")
    loaded = load_settings(path, flags={"scheduler.protect": "ttft", "scheduler.policy": "fair"})
    assert loaded.warnings == ()  # the weights decide between classes, the targets inside it


def test_targets_that_the_policy_does_not_know_are_a_warning(tmp_path: Path) -> None:
    path = tmp_path / "headway.toml"
    path.write_text("[classes.a]\nttft_p99_ms = 500\n")
    flags = {"scheduler.protect": "ttft", "scheduler.policy": "fcfs"}
    (warning,) = load_settings(path, flags=flags).warnings
    assert 'scheduler.policy = "fcfs" (flag --policy) is not "slo"' in warning
    assert load_settings(flags=flags).warnings == ()


def test_a_class_held_beyond_its_target_is_a_warning(tmp_path: Path) -> None:
    path = tmp_path / "headway.toml"
    path.write_text("[classes.a]\nttft_p99_ms = 500\nmax_waiting_time_ms = 600\n")
    (warning,) = load_settings(path, flags={"scheduler.protect": "ttft"}).warnings
    assert "classes.a.max_waiting_time_ms (600) is above classes.a.ttft_p99_ms (500)" in warning
    assert f"classes.a.max_waiting_time_ms from file {path}" in warning


@pytest.mark.parametrize("goal", ["tpot", "throughput"])
def test_recompute_works_against_a_goal_only_where_there_is_a_choice(goal: Goal) -> None:
    flags: dict[str, object] = {
        "scheduler.protect": goal,
        "scheduler.preemption_mode": "recompute",
    }
    assert load_settings(flags=flags).warnings == ()
    (warning,) = load_settings(flags={**flags, "kv.swap_space_bytes": 2**30}).warnings
    assert 'scheduler.preemption_mode = "recompute"' in warning


def test_padded_steps_are_not_told_what_is_long() -> None:
    flags = {"scheduler.protect": "ttft", "scheduler.batching": "dynamic"}
    loaded = load_settings(flags=flags)
    assert loaded.settings.scheduler.long_prefill_threshold_tokens is None


def test_whole_prompts_are_not_cut_behind_the_operators_back() -> None:
    flags = {"scheduler.protect": "tpot", "scheduler.enable_chunked_prefill": False}
    loaded = load_settings(flags=flags)
    assert [warning for warning in loaded.warnings if "enable_chunked_prefill = false" in warning]
    assert loaded.settings.scheduler.max_prefill_chunk_tokens is None
    assert loaded.origins["scheduler.max_num_batched_tokens"] == Origin("default")


@pytest.mark.parametrize("goal", GOALS)
def test_what_was_set_is_written_and_taken_back(goal: Goal, targets: Path, tmp_path: Path) -> None:
    loaded = load_settings(targets, flags={"scheduler.protect": goal})
    path = tmp_path / "again.toml"
    path.write_text(to_toml(loaded))
    assert f"# protect = {goal}" in path.read_text()
    again = load_settings(path)
    assert again.settings == loaded.settings
    assert again.warnings == ()
