"""How prefills share a step with decodes and with each other."""

from __future__ import annotations

from lives import Life

from headway.core import events as ev


def test_a_chunk_takes_what_the_decodes_leave() -> None:
    life = Life(max_num_batched_tokens=8)
    life.submit("a", 2, max_tokens=4)
    life.submit("b", 2, max_tokens=4)
    life.step()
    life.submit("long", 14)
    assert life.steps(3) == [
        "a[2:3] b[2:3] long[0:6]",
        "a[3:4] b[3:4] long[6:12]",
        "a[4:5] b[4:5] long[12:14]",
    ]


def test_the_oldest_prefill_gets_all_that_it_can_use() -> None:
    life = Life()
    life.submit("a", 24)
    life.submit("b", 12)
    assert life.steps(3) == ["a[0:16]", "a[16:24] b[0:8]", "a[24:25] b[8:12]"]


class TestWholePrompts:
    """Without chunked prefill."""

    def test_two_prompts_share_a_step_if_both_fit_whole(self) -> None:
        life = Life(enable_chunked_prefill=False, max_num_batched_tokens=64, num_blocks=64)
        life.submit("a", 40, max_tokens=2)
        life.submit("b", 24, max_tokens=2)
        life.submit("c", 1, max_tokens=2)
        assert life.steps(2) == ["a[0:40] b[0:24]", "a[40:41] b[24:25] c[0:1]"]

    def test_the_first_in_line_that_does_not_fit_is_not_passed(self) -> None:
        life = Life(enable_chunked_prefill=False, max_num_batched_tokens=64, num_blocks=64)
        life.submit("a", 40, max_tokens=1)
        life.submit("b", 30, max_tokens=1)
        life.submit("c", 4, max_tokens=1)
        assert life.steps(2) == ["a[0:40]", "b[0:30] c[0:4]"]

    def test_a_prompt_as_long_as_the_step_comes_as_soon_as_enough_decodes_have_ended(self) -> None:
        """Nobody starts before it, so the running ones end and none take their place."""
        life = Life(enable_chunked_prefill=False, max_num_batched_tokens=64, num_blocks=64)
        life.submit("a", 4, max_tokens=3)
        life.submit("b", 4, max_tokens=4)
        life.step()
        life.submit("whole", 63, max_tokens=1)
        life.submit("later", 4, max_tokens=1)
        assert life.run_dry() == [
            "a[4:5] b[4:5]",
            "a[5:6] b[5:6]",
            "b[6:7] whole[0:63]",
            "later[0:4]",
        ]

    def test_preempted_work_is_recomputed_whole(self) -> None:
        life = Life(
            enable_chunked_prefill=False, max_num_batched_tokens=20, num_blocks=4, max_model_len=16
        )
        life.submit("old", 4, max_tokens=10)
        life.submit("new", 4, max_tokens=10)
        done = life.run_dry()
        assert life.preempted() == ["new"]
        assert "new[0:9]" in done


class TestPartialPrefills:
    """``max_partial_prefills``."""

    def test_only_so_many_prompts_stand_half_done(self) -> None:
        life = Life(max_partial_prefills=2, max_prefill_chunk_tokens=4)
        for name in "abcd":
            life.submit(name, 10, max_tokens=1)
        assert life.steps(5) == [
            "a[0:4] b[0:4]",
            "a[4:8] b[4:8]",
            "a[8:10] b[8:10] c[0:4] d[0:4]",  # a and b will be done
            "c[4:8] d[4:8]",
            "c[8:10] d[8:10]",
        ]

    def test_without_the_limit_all_start(self) -> None:
        life = Life(max_prefill_chunk_tokens=4)
        for name in "abcd":
            life.submit(name, 10, max_tokens=1)
        assert life.step() == "a[0:4] b[0:4] c[0:4] d[0:4]"

    def test_prompts_that_fit_into_the_step_pass_the_one_that_has_to_wait(self) -> None:
        life = Life(max_partial_prefills=1, max_prefill_chunk_tokens=8, num_blocks=32)
        life.submit("a", 20, max_tokens=1)
        life.submit("b", 20, max_tokens=1)
        life.submit("c", 4, max_tokens=1)
        assert life.steps(3) == ["a[0:8] c[0:4]", "a[8:16]", "a[16:20] b[0:8]"]

    def test_who_is_held_back_is_passed_by_all_and_counts_none_of_them(self) -> None:
        life = Life(max_partial_prefills=1, max_prefill_chunk_tokens=4, num_blocks=64, max_passes=1)
        life.submit("a", 12, max_tokens=1)
        life.submit("b", 12, max_tokens=1)
        for number in range(5):
            life.submit(f"s{number}", 1, max_tokens=1)
        assert life.steps(3) == [
            "a[0:4] s0[0:1] s1[0:1] s2[0:1]",
            "a[4:8] s3[0:1] s4[0:1]",
            "a[8:12] b[0:4]",
        ]
        b = next(each for each in life.seen(ev.Started) if each.request_id == "b")
        assert b.num_passed == 0


class TestLongPrefills:
    """``long_prefill_threshold_tokens`` and ``max_long_partial_prefills``."""

    def test_short_prompts_go_before_a_long_one_which_keeps_half_of_the_step(self) -> None:
        life = Life(long_prefill_threshold_tokens=8, num_blocks=64)
        life.submit("long", 40, max_tokens=1)
        life.step()
        for number in range(4):
            life.submit(f"s{number}", 6, max_tokens=1)
        assert life.steps(3) == [
            "s0[0:6] s1[0:2] long[16:24]",
            "s1[2:6] s2[0:4] long[24:32]",
            "long[32:40] s2[4:6] s3[0:6]",  # no longer long: 8 tokens are left
        ]

    def test_half_is_of_what_the_decodes_leave(self) -> None:
        life = Life(long_prefill_threshold_tokens=8, num_blocks=64)
        life.submit("a", 2, max_tokens=9)
        life.submit("b", 2, max_tokens=9)
        life.submit("long", 40, max_tokens=1)
        life.step()
        life.submit("s", 8, max_tokens=1)
        assert life.step() == "a[2:3] b[2:3] s[0:7] long[12:19]"

    def test_what_the_short_ones_leave_goes_to_the_long(self) -> None:
        life = Life(long_prefill_threshold_tokens=8, num_blocks=64)
        life.submit("long", 40, max_tokens=1)
        life.step()
        life.submit("s", 2, max_tokens=1)
        assert life.step() == "s[0:2] long[16:30]"

    def test_a_long_one_waits_for_another_and_short_ones_pass_it(self) -> None:
        life = Life(long_prefill_threshold_tokens=8, max_long_partial_prefills=1, num_blocks=64)
        life.submit("l1", 40, max_tokens=1)
        life.step()
        life.submit("l2", 40, max_tokens=1)
        life.submit("s", 4, max_tokens=1)
        assert life.steps(3) == [
            "s[0:4] l1[16:28]",
            "l1[28:40]",
            "l2[0:16]",
        ]

    def test_two_long_ones_share_a_step_without_that_limit(self) -> None:
        life = Life(long_prefill_threshold_tokens=8, num_blocks=64, max_prefill_chunk_tokens=8)
        life.submit("l1", 40, max_tokens=1)
        life.submit("l2", 40, max_tokens=1)
        assert life.step() == "l1[0:8] l2[0:8]"
