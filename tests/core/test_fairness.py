"""``fair``: tenants get equal service, or as their weights say, while they have work waiting."""

from __future__ import annotations

import pytest
from lives import Life

from headway.core import events as ev
from headway.core.classes import PolicyName, ServiceClass
from headway.core.config import PolicyConfig

INPUT, OUTPUT = 1.0, 2.0  # what a token counts, by default


def fair(weights: tuple[tuple[str, float], ...] = (), **changes: object) -> Life:
    policy = PolicyConfig(name=PolicyName.FAIR, tenant_weights=weights)
    values = {"max_num_seqs": 1, "num_blocks": 64, "max_model_len": 256, **changes}
    return Life(policy=policy, **values)  # type: ignore[arg-type]


def submit_many(life: Life, tenant: str, count: int, num_prompt: int = 4, **kw: object) -> None:
    for number in range(count):
        life.submit(f"{tenant}{number}", num_prompt, tenant=tenant, **{"max_tokens": 2, **kw})


def tenants(life: Life) -> str:
    """Return whose requests started, in this order."""
    return "".join(name[0] for name in life.started())


def service(life: Life, num_prompt: int = 4) -> dict[str, float]:
    """Return the tokens that each tenant was served, weighted."""
    served: dict[str, float] = {}
    for event in life.events:
        if isinstance(event, ev.Started | ev.TokenReady):
            cost = INPUT * num_prompt if isinstance(event, ev.Started) else OUTPUT
            served[event.request_id[0]] = served.get(event.request_id[0], 0.0) + cost
    return served


def test_tenants_take_turns_whatever_their_number_of_requests() -> None:
    life = fair()
    submit_many(life, "a", 6)
    submit_many(life, "b", 3)
    life.run_dry()
    assert tenants(life) == "abababaaa"


def test_fcfs_would_serve_whoever_came_first() -> None:
    life = Life(max_num_seqs=1)
    submit_many(life, "a", 3)
    submit_many(life, "b", 3)
    life.run_dry()
    assert tenants(life) == "aaabbb"


def test_a_tenants_own_requests_go_by_arrival() -> None:
    life = fair()
    submit_many(life, "a", 3)
    submit_many(life, "b", 3)
    life.run_dry()
    assert [name for name in life.started() if name[0] == "a"] == ["a0", "a1", "a2"]


def test_tokens_count_not_requests() -> None:
    """a's request counts 4 + 2 * 2 = 8, and b's 20 + 2 * 2 = 24, so b has one in four.

    In a tie it is b's turn.
    """
    life = fair()
    submit_many(life, "a", 9)
    submit_many(life, "b", 3, num_prompt=20)
    life.run_dry()
    assert tenants(life) == "abaabaaabaaa"


def test_output_counts_as_it_comes() -> None:
    """b's answers are ten tokens long: 4 + 20 against 4 + 4."""
    life = fair()
    submit_many(life, "a", 9)
    submit_many(life, "b", 3, max_tokens=10)
    life.run_dry()
    assert tenants(life) == "abaabaaabaaa"


def test_a_tenant_that_weighs_three_gets_three_times_the_service() -> None:
    life = fair((("a", 3.0),))
    submit_many(life, "a", 9)
    submit_many(life, "b", 9)
    while sum(service(life).values()) < 12 * 8:
        life.step()
    assert (tenants(life).count("a"), tenants(life).count("b")) == (9, 3)


def test_a_newcomer_has_no_claim_from_before() -> None:
    """a had 100 tokens while b was away; from b's arrival on they take turns."""
    life = fair()
    life.submit("a", 4, tenant="a", max_tokens=100)
    life.run_dry()
    submit_many(life, "b", 5)
    submit_many(life, "a", 5)
    life.run_dry()
    assert tenants(life)[:9] == "abababab" + "a"


def test_nor_while_the_other_one_still_runs() -> None:
    life = fair()
    life.submit("a", 4, tenant="a", max_tokens=100)
    life.steps(99)
    submit_many(life, "b", 20)
    life.step()
    submit_many(life, "a", 5)
    life.run_dry()
    assert tenants(life)[:9] == "abababab" + "a"


def test_idleness_saves_up_nothing() -> None:
    """b leaves for a while in which a is served; then both start as equals."""
    life = fair()
    submit_many(life, "a", 12)
    submit_many(life, "b", 2)
    while len(life.started()) < 9:
        life.step()
    assert tenants(life) == "ababaaaaa"
    for number in range(3):
        life.submit(f"b again {number}", 4, tenant="b", max_tokens=2)
    life.run_dry()
    assert tenants(life)[9:] == "bababaaa"


def test_who_has_had_more_is_not_forgiven_by_leaving() -> None:
    """a had 44 when it left, and b's requests count 8 each: six of them go before its next."""
    life = fair()
    life.submit("a", 40, tenant="a", max_tokens=2)
    submit_many(life, "b", 8)
    while life.started() != ["a", "b0"]:
        life.step()
    life.submit("a again", 4, tenant="a", max_tokens=2)
    life.run_dry()
    assert tenants(life) == "a" + "bbbbbb" + "a" + "bb"


@pytest.mark.parametrize("num_seqs", [1, 2, 4])
def test_the_gap_between_two_backlogged_tenants_is_bounded_by_what_may_run(num_seqs: int) -> None:
    """Sheng et al. (2024), theorem 4.4: twice the larger of a prompt and a full batch."""
    life = fair(max_num_seqs=num_seqs)
    for number in range(30):  # b's requests count less, so they run out first
        life.submit(f"a{number}", 4, tenant="a", max_tokens=12)
        life.submit(f"b{number}", 16, tenant="b", max_tokens=3)
    bound = 2 * max(INPUT * 16, OUTPUT * num_seqs * (4 + 12))
    flows = life.scheduler.work.accounts["default"].flows
    gaps = []
    while "b29" not in life.running():
        life.step()
        gaps.append(abs(flows["a"].service.virtual - flows["b"].service.virtual))
    assert 0 < max(gaps) <= bound


def test_recomputation_is_charged_to_nobody() -> None:
    life = fair(num_blocks=4, max_num_seqs=2)
    life.submit("a", 4, tenant="a", max_tokens=10)
    life.submit("b", 4, tenant="b", max_tokens=10)
    life.run_dry()
    assert life.preempted() == ["b"]
    (seen,) = life.scheduler.statistics().classes
    assert (seen.num_served_input_tokens, seen.num_served_output_tokens) == (8, 20)


def test_cached_prompt_tokens_are_charged_to_nobody() -> None:
    life = fair(enable_prefix_sharing=True)
    life.submit("a", 8, tenant="a", max_tokens=2)
    life.run_dry()
    life.submit("b", 8, tenant="b", max_tokens=2)
    life.run_dry()
    (seen,) = life.scheduler.statistics().classes
    assert seen.num_served_input_tokens == 8 + 1


def test_fair_inside_one_class_only() -> None:
    classes = (ServiceClass(name="x", policy=PolicyName.FAIR), ServiceClass(name="y"))
    life = Life(classes=classes, max_num_seqs=1)
    for number in range(3):
        life.submit(f"a{number}", 4, tenant="a", class_name="x", max_tokens=2)
    for number in range(3):
        life.submit(f"b{number}", 4, tenant="b", class_name="x", max_tokens=2)
    life.run_dry()
    assert tenants(life) == "ababab"


def test_many_tenants_that_came_and_went_are_forgotten() -> None:
    life = fair()
    for number in range(1030):
        life.submit(f"r{number}", 1, tenant=f"t{number}", max_tokens=1)
        life.step()
    (account,) = life.scheduler.work.accounts.values()
    assert len(account.flows) <= 1025
