"""In which order waiting work is looked at: fcfs, sjf and slo; see beside it fairness, taking."""

from __future__ import annotations

import pytest
from lives import Life

from headway.core.classes import PolicyName, ServiceClass
from headway.core.config import PolicyConfig, PredictorName
from headway.core.costs import StepCosts
from headway.core.limits import Batching

FREE = StepCosts(base_s=0.0, prefill_token_s=0.0, decode_s=0.0, swap_block_s=0.0)


def test_fcfs_goes_by_arrival_whatever_the_size() -> None:
    life = Life(max_num_seqs=1)
    for name, num_prompt, max_tokens in ("a", 30, 9), ("b", 1, 1), ("c", 5, 2):
        life.submit(name, num_prompt, max_tokens=max_tokens)
    life.run_dry()
    assert life.started() == ["a", "b", "c"]


class TestShortestFirst:
    """``sjf``: by predicted output, with ageing."""

    def life(self, predictor: PredictorName, ageing_s: float = 60.0) -> Life:
        policy = PolicyConfig(name=PolicyName.SJF, predictor=predictor, ageing_s=ageing_s)
        return Life(policy=policy, max_num_seqs=1, num_blocks=64)

    def test_by_the_clients_limit(self) -> None:
        life = self.life(PredictorName.MAX_TOKENS)
        for name, max_tokens in ("a", 20), ("b", 5), ("c", 10):
            life.submit(name, 2, max_tokens=max_tokens)
        life.run_dry()
        assert life.started() == ["b", "c", "a"]

    def test_by_the_clients_hint(self) -> None:
        life = self.life(PredictorName.HINT)
        for name, hint in ("a", 20), ("b", 5), ("c", 10):
            life.submit(name, 2, max_tokens=30, expected_output_tokens=hint)
        life.run_dry()
        assert life.started() == ["b", "c", "a"]

    def test_a_hint_beyond_the_limit_is_the_limit(self) -> None:
        life = self.life(PredictorName.HINT)
        life.submit("a", 2, max_tokens=8, expected_output_tokens=1000)
        life.submit("b", 2, max_tokens=30, expected_output_tokens=9)
        life.submit("c", 2, max_tokens=4, expected_output_tokens=1000)
        life.run_dry()
        assert life.started() == ["c", "a", "b"]

    def test_by_what_was_learned(self) -> None:
        """Tenant x's answers were long and y's short, though both allow 40 tokens."""
        life = self.life(PredictorName.LEARNED)
        for number in range(4):
            life.submit(f"x{number}", 2, max_tokens=40, tenant="x")
            life.run_dry()
            life.submit(f"y{number}", 2, max_tokens=40, tenant="y", stop_token_ids=(life.token,))
            life.run_dry()
        life.submit("long", 2, max_tokens=40, tenant="x")
        life.submit("short", 2, max_tokens=40, tenant="y")
        life.run_dry()
        assert life.started()[-2:] == ["short", "long"]

    def test_nobody_who_came_later_than_the_bound_goes_first(self) -> None:
        """The longest possible answer against the shortest ones, which come every second."""
        policy = PolicyConfig(name=PolicyName.SJF, predictor=PredictorName.HINT, ageing_s=5.0)
        life = Life(policy=policy, max_num_seqs=1, max_model_len=4000, num_blocks=1024)
        life.submit("busy", 2, max_tokens=2, expected_output_tokens=0)
        life.step()
        life.submit("long", 2, max_tokens=3900, expected_output_tokens=3900)
        for second in range(20):
            life.now = float(second)
            life.submit(f"s{second}", 2, max_tokens=1, expected_output_tokens=0)
            life.step()
        ahead = life.started()
        ahead = ahead[: ahead.index("long")]
        assert ahead == ["busy", "s0", "s1", "s2", "s3", "s4"]

    def test_a_shorter_one_takes_nothing_from_one_that_runs(self) -> None:
        life = self.life(PredictorName.MAX_TOKENS)
        life.submit("long", 2, max_tokens=20)
        life.step()
        life.submit("short", 2, max_tokens=1)
        life.run_dry()
        assert life.preempted() == []
        assert life.finished() == ["long", "short"]

    def test_a_shorter_one_goes_before_a_prompt_that_is_computed_in_part(self) -> None:
        policy = PolicyConfig(name=PolicyName.SJF, predictor=PredictorName.MAX_TOKENS)
        life = Life(policy=policy, num_blocks=64)
        life.submit("long", 40, max_tokens=20)
        life.step()
        life.submit("short", 6, max_tokens=1)
        assert life.step() == "short[0:6] long[16:26]"

    def test_without_an_end_to_ageing_there_is_no_policy(self) -> None:
        for ageing_s in 0.0, -1.0, float("inf"), float("nan"):
            with pytest.raises(ValueError, match="ageing_s"):
                Life(policy=PolicyConfig(ageing_s=ageing_s))


class TestSlack:
    """``slo``: who is nearest to missing its target goes first."""

    def life(self, costs: StepCosts = FREE, ageing_s: float = 60.0, **changes: object) -> Life:
        classes = (
            ServiceClass(name="fast", ttft_target_s=1.0),
            ServiceClass(name="slow", ttft_target_s=9.0),
            ServiceClass(name="none"),
        )
        policy = PolicyConfig(name=PolicyName.SLO, ageing_s=ageing_s)
        values = {"max_num_seqs": 1, "classes": classes, **changes}
        return Life(policy=policy, costs=costs, **values)  # type: ignore[arg-type]

    def test_least_slack_goes_first_across_classes(self) -> None:
        life = self.life()
        life.submit("a", 2, max_tokens=1, class_name="none")
        life.submit("b", 2, max_tokens=1, class_name="slow")
        life.submit("c", 2, max_tokens=1, class_name="fast")
        life.run_dry()
        assert life.started() == ["c", "b", "a"]

    def test_who_waits_loses_slack(self) -> None:
        """At 8.5 s the slow one has half a second left, and the fast one a whole."""
        life = self.life()
        life.submit("a", 2, max_tokens=1, class_name="slow")
        life.now = 8.5
        life.submit("b", 2, max_tokens=1, class_name="fast")
        life.run_dry()
        assert life.started() == ["a", "b"]

    def test_a_long_prompt_has_less_slack(self) -> None:
        life = self.life(StepCosts(base_s=0.0, prefill_token_s=0.02, decode_s=0.0))
        life.submit("short", 2, max_tokens=1, class_name="fast")
        life.submit("long", 20, max_tokens=1, class_name="fast")
        life.run_dry()
        assert life.started() == ["long", "short"]

    def test_who_is_too_late_lets_those_go_that_can_still_make_it(self) -> None:
        life = self.life()
        for number in range(20):
            life.submit(f"late{number}", 2, max_tokens=1, class_name="fast")
        life.now = 5.0
        for number in range(3):
            life.submit(f"new{number}", 2, max_tokens=1, class_name="fast")
        life.run_dry()
        assert life.started() == [f"new{n}" for n in range(3)] + [f"late{n}" for n in range(20)]

    def test_the_late_wait_no_longer_than_the_bound(self) -> None:
        """Fast requests come every second; who is late goes before those that come 10 s later."""
        life = self.life(ageing_s=10.0)
        life.submit("busy", 2, max_tokens=3, class_name="fast")
        life.submit("late", 2, max_tokens=1, class_name="fast")
        life.step()
        life.now = 2.0
        for second in range(2, 20):
            life.now = float(second)
            life.submit(f"f{second}", 2, max_tokens=1, class_name="fast")
            life.step()
        order = life.started()
        assert "late" in order
        ahead = order[: order.index("late")]
        assert all(name == "busy" or int(name[1:]) <= 10 for name in ahead)
        assert "f5" in ahead

    def test_a_chunk_leaves_every_running_sequence_its_target(self) -> None:
        """A token is due every 0.1 s; a step takes 20 ms and 2.9 ms for each prefilled token.

        With 5 % to spare, 95 - 20 ms are enough for 25 tokens.
        """
        classes = (ServiceClass(tpot_target_s=0.1),)
        costs = StepCosts(base_s=0.02, prefill_token_s=0.0029, decode_s=0.0)
        life = self.life(
            costs, classes=classes, max_num_seqs=4, max_num_batched_tokens=200, num_blocks=64
        )
        life.submit("a", 2, max_tokens=20)
        life.step()
        life.submit("long", 60)
        life.now = 0.1  # the second token is due now
        assert life.step() == "a[2:3] long[0:25]"

    def test_who_is_ahead_of_its_target_has_time_for_a_longer_chunk(self) -> None:
        classes = (ServiceClass(tpot_target_s=0.1),)
        costs = StepCosts(base_s=0.02, prefill_token_s=0.005, decode_s=0.0)
        life = self.life(
            costs, classes=classes, max_num_seqs=4, max_num_batched_tokens=200, num_blocks=64
        )
        life.submit("a", 2, max_tokens=20)
        life.steps(3)  # three tokens at 0 s, and the fourth is due at 0.3 s: 285 - 20 ms
        life.submit("long", 60)
        assert life.step() == "a[4:5] long[0:53]"

    def test_without_targets_the_chunk_is_the_budget(self) -> None:
        life = self.life(classes=(ServiceClass(),), max_num_seqs=4)
        life.submit("a", 2, max_tokens=20)
        life.step()
        life.submit("long", 60)
        assert life.step() == "a[2:3] long[0:15]"

    def test_nothing_running_is_taken_from(self) -> None:
        life = self.life()
        life.submit("a", 2, max_tokens=9, class_name="none")
        life.step()
        life.submit("b", 2, max_tokens=1, class_name="fast")
        life.run_dry()
        assert life.preempted() == []


@pytest.mark.parametrize("policy", list(PolicyName))
@pytest.mark.parametrize("mode", list(Batching))
def test_every_policy_serves_everybody_in_every_mode(policy: PolicyName, mode: Batching) -> None:
    life = Life(policy=policy, batching=mode, max_num_seqs=2, num_blocks=8)
    for number in range(8):
        life.submit(f"r{number}", 3 + number, max_tokens=9 - number, priority=number % 3)
    life.run_dry(step_s=0.01)
    assert len(life.finished()) == 8
