"""One pool against one for each class: when a wall pays, when it doesn't, and what it costs."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping
from math import comb
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.cli.main import main
from headway.core.classes import ServiceClass
from headway.core.config import SchedulerConfig
from headway.core.costs import StepCosts
from headway.core.limits import SchedulerLimits
from headway.planning.divisions import MOST_DIVISIONS, divisions_of
from headway.planning.isolation import Isolation, isolate
from headway.planning.isolation_idle import idle_while_waiting
from headway.planning.isolation_verdict import choose
from headway.sim.fleet import FleetResult, simulate_fleet
from headway.sim.replica import Machine
from headway.sim.routers import ClassIsolated, LeastLoaded
from headway.workload import Arrival, Targets, Workload, in_order

LONG = Targets(e2el_s=600.0)


def machines(*classes: ServiceClass, limit: int = 8, budget: int = 2048) -> Machine:
    limits = SchedulerLimits(
        num_blocks=4000,
        block_size=16,
        max_model_len=8192,
        max_num_seqs=limit,
        max_num_batched_tokens=budget,
    )
    costs = StepCosts(base_s=0.01, prefill_token_s=0.0001, decode_s=0.0005)
    return Machine(config=SchedulerConfig(limits=limits, classes=classes, costs=costs), cost=costs)


def stream(
    name: str, gap_s: float, end_s: float, prompt: int, output: int, begin_s: float = 0.0
) -> list[Arrival]:
    return [
        Arrival(
            at_s=begin_s + gap_s * number,
            prompt_tokens=prompt,
            output_tokens=output,
            max_tokens=output,
            class_name=name,
        )
        for number in range(round((end_s - begin_s) / gap_s))
    ]


def load(targets: Mapping[str, Targets], *streams: list[Arrival]) -> Workload:
    return Workload(in_order([a for each in streams for a in each]), (), float("inf"), targets)


def isolated(machine: Machine, workload: Workload, instances: int) -> Isolation:
    return isolate(lambda count, seed: [machine] * count, {0: workload}, instances, others={})


CHAT, BULK = ServiceClass(name="chat"), ServiceClass(name="bulk")


# -------------------------------------------------------------------- verdicts


def test_a_wall_pays_where_long_prompts_spoil_the_first_token_of_others() -> None:
    targets = {"chat": Targets(ttft_s=0.1), "bulk": LONG}
    workload = load(
        targets,
        stream("chat", 0.5, 20, prompt=50, output=20),
        stream("bulk", 0.4, 20, prompt=6000, output=10, begin_s=0.1),  # each takes 0.7 s alone
    )
    found = isolated(machines(CHAT, BULK), workload, 2)
    chosen = choose(found)
    assert (chosen.verdict, chosen.pools.division) == ("isolate", {"chat": 1, "bulk": 1})
    assert found.shared.worst.mean < 0.9
    assert chosen.pools.worst.mean == 1


def test_a_wall_does_not_pay_where_one_class_needs_more_than_its_share() -> None:
    targets = {"chat": Targets(ttft_s=0.5), "bulk": LONG}
    # an instance serves 8 of these in 0.31 s, 26 a second; two have room for 40
    workload = load(
        targets,
        stream("chat", 1 / 40, 10, prompt=20, output=20),
        stream("bulk", 5.0, 10, prompt=200, output=20),
    )
    found = isolated(machines(CHAT, BULK), workload, 2)
    chosen = choose(found)
    assert chosen.verdict == "share"
    assert found.shared.worst.mean >= 0.99
    _, best = found.judged
    assert best.worst.mean < 0.7
    assert best.runs[0].idle_share > 0.2 > found.shared.runs[0].idle_share


def test_neither_keeps_the_promise_where_there_are_too_few_instances() -> None:
    targets = {"chat": Targets(ttft_s=0.5), "bulk": Targets(ttft_s=0.5)}
    workload = load(
        targets,
        stream("chat", 1 / 60, 10, prompt=20, output=20),
        stream("bulk", 1 / 60, 10, prompt=20, output=20),
    )
    chosen = choose(isolated(machines(CHAT, BULK), workload, 2))
    assert chosen.verdict == "share"
    assert "more instances are needed" in chosen.advice


def test_a_class_may_fill_its_own_pool_whatever_its_share_of_a_common_one() -> None:
    small = ServiceClass(name="chat", max_running_share=0.125)
    kept = ServiceClass(name="bulk", reserved_slots=4, reserved_blocks=2000)
    targets = {"chat": Targets(ttft_s=0.2), "bulk": LONG}
    workload = load(
        targets,
        stream("chat", 1 / 16, 10, prompt=20, output=20),
        stream("bulk", 5.0, 10, prompt=200, output=20),
    )
    found = isolated(machines(small, kept), workload, 2)
    assert choose(found).verdict == "isolate"
    assert found.separate[0].worst.mean == 1


def test_the_best_of_many_divisions_is_judged_with_other_seeds() -> None:
    targets = {"chat": Targets(ttft_s=0.1), "bulk": LONG}
    chat = stream("chat", 0.5, 20, prompt=50, output=20)
    slow = load(targets, chat, stream("bulk", 0.4, 20, prompt=6000, output=10, begin_s=0.1))
    calm = load(targets, chat, stream("bulk", 5.0, 20, prompt=60, output=10, begin_s=0.1))
    machine = machines(CHAT, BULK)
    found = isolate(lambda count, seed: [machine] * count, {0: slow}, 2, others={1: calm})
    assert found.shared.worst.mean < 0.9
    chosen = choose(found)
    assert (chosen.verdict, chosen.pools.worst.mean) == ("share", 1)
    assert "of 1 other seeds" in chosen.advice


def test_a_class_may_be_missing_with_a_seed_and_has_a_rate_of_its_own() -> None:
    targets = {"chat": Targets(ttft_s=0.5)}
    chat = stream("chat", 0.5, 10, prompt=50, output=10)
    both = load(targets, chat, stream("bulk", 0.4, 10, prompt=6000, output=100))
    machine = machines(CHAT, BULK)
    seeds = {0: load(targets, chat), 1: both}
    found = isolate(lambda count, seed: [machine] * count, seeds, 2, others={})
    without, beside = (run.classes["chat"] for run in found.separate[0].runs)
    assert found.separate[0].runs[0].classes["bulk"].num_requests == 0
    # bulk queues in its own pool for long after: that takes nothing from the other's
    assert beside.a_second(beside.output_tokens) == without.a_second(without.output_tokens)
    assert found.separate[0].runs[1].overall.duration_s > 1.5 * beside.duration_s


# -------------------------------------------------------------------- divisions


@given(
    st.dictionaries(st.text(min_size=1), st.floats(0, 100), min_size=2, max_size=4),
    st.integers(0, 6),
)
def test_divisions_are_all_ways_and_the_nearest_to_the_work_comes_first(
    work: dict[str, float], more: int
) -> None:
    instances = len(work) + more
    found = divisions_of(instances, work)
    assert len(found) == min(comb(instances - 1, len(work) - 1), MOST_DIVISIONS)
    assert len({tuple(each.values()) for each in found}) == len(found)
    for each in found:
        assert sum(each.values()) == instances
        assert min(each.values()) >= 1
        assert list(each) == list(work)


def test_instances_follow_the_work() -> None:
    assert divisions_of(4, {"chat": 1.0, "bulk": 3.0})[0] == {"chat": 1, "bulk": 3}
    assert divisions_of(6, {"a": 1.0, "b": 2.0, "c": 3.0})[0] == {"a": 1, "b": 2, "c": 3}


# -------------------------------------------------------------------- idle while others wait


def served(groups: dict[str, list[int]] | None, workload: Workload, count: int) -> FleetResult:
    router = LeastLoaded(range(count)) if groups is None else ClassIsolated(groups)
    return simulate_fleet([machines(CHAT, BULK, limit=1)] * count, router, workload)


def test_one_idles_for_as_long_as_a_request_waits_elsewhere() -> None:
    workload = load({}, stream("chat", 0.0001, 0.0002, prompt=100, output=11))
    apart = served({"chat": [0], "bulk": [1]}, workload, 2)
    # the second request waits while the first is served, half of the time, beside an idle instance
    assert idle_while_waiting(apart) == pytest.approx(0.25, abs=0.001)
    assert idle_while_waiting(served(None, workload, 2)) == 0


def test_nobody_idles_in_vain_where_nobody_waits_or_all_work() -> None:
    sparse = load({}, stream("chat", 10.0, 30.0, prompt=100, output=11))
    assert idle_while_waiting(served({"chat": [0], "bulk": [1]}, sparse, 2)) == 0
    full = load({}, stream("chat", 0.01, 0.05, prompt=100, output=11))
    assert idle_while_waiting(served(None, full, 1)) == 0


# -------------------------------------------------------------------- the command

SETTINGS = """
[classes.chat]
[classes.bulk]
"""
WORKLOAD = """
[classes.chat]
ttft_ms = 300

[[streams]]
class = "chat"
request_rate = 5
num_requests = 20
prompt_tokens = 50
output_tokens = 10

[[streams]]
class = "bulk"
request_rate = 1
num_requests = 4
prompt_tokens = 1000
output_tokens = 10
"""


@pytest.fixture
def words(tmp_path: Path) -> list[str]:
    settings, workload = tmp_path / "settings.toml", tmp_path / "workload.toml"
    settings.write_text(SETTINGS, encoding="utf-8")
    workload.write_text(WORKLOAD, encoding="utf-8")
    return [
        *("advise", "--isolation", "--config", str(settings), "--workload", str(workload)),
        *("--num-blocks", "2000", "--max-model-len", "4096", "--step-base-ms", "10"),
        *("--prefill-ms-per-token", "0.1", "--decode-ms-per-sequence", "0.5"),
    ]


def test_the_command_says_what_each_class_got(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, words: list[str]
) -> None:
    page, rows = tmp_path / "pools.html", tmp_path / "pools.csv"
    files = ("--html", str(page), "--csv", str(rows))
    assert main([*words, "--replicas", "3", "--json", *files]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert found["pools"][0]["instances"] is None
    assert len(found["pools"]) == 3
    for pools in found["pools"]:
        assert set(pools["classes"]) == {"chat", "bulk"}
        assert 0 <= pools["idle_share"]["least"] <= pools["idle_share"]["most"] <= 1
    with rows.open(encoding="utf-8") as file:
        assert len(list(csv.DictReader(file))) == 6
    text = page.read_text(encoding="utf-8")
    assert text.count("<svg") == 8
    assert "<script" not in text


def test_what_cannot_be_isolated_is_refused_in_one_line(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, words: list[str]
) -> None:
    assert main(words) == 2
    assert "--replicas 2 or more" in capsys.readouterr().err
    (tmp_path / "settings.toml").write_text("[classes.chat]\n", encoding="utf-8")
    assert main([*words, "--replicas", "2"]) == 2
    assert "[classes.bulk]" in capsys.readouterr().err
    one = WORKLOAD.partition('[[streams]]\nclass = "bulk"')[0]
    (tmp_path / "workload.toml").write_text(one, encoding="utf-8")
    assert main([*words, "--replicas", "2"]) == 2
    assert "two classes at least" in capsys.readouterr().err
