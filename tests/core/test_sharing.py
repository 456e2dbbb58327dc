"""Prefix sharing as the scheduler uses it: who starts with what, and which blocks that takes."""

from __future__ import annotations

import pytest
from lives import Life, request

from headway.core import events as ev
from headway.core.classes import ServiceClass
from headway.core.plan import BlockMove, SampledToken, StepResult
from headway.core.request import PromptHashes


def sharing(**changes: object) -> Life:
    return Life(**{"enable_prefix_sharing": True, "max_num_batched_tokens": 64, **changes})  # type: ignore[arg-type]


def cached(life: Life) -> dict[str, int]:
    """Return with how many cached tokens each request started."""
    return {event.request_id: event.num_cached_tokens for event in life.seen(ev.Started)}


def test_nothing_is_shared_before_the_step_that_wrote_it_was_applied() -> None:
    """B48. Sixteen equal prompts in one step: each is computed, since none is there yet."""
    life = sharing(num_blocks=64, max_num_seqs=16, max_num_batched_tokens=160)
    for number in range(16):
        life.submit(f"r{number}", 10, max_tokens=1)
    plan = life.plan()
    assert [(part.start, part.count) for part in plan.slices] == [(0, 10)] * 16
    assert plan.copies == ()
    life.answer(plan)
    assert set(cached(life).values()) == {0}


def test_with_a_plan_in_flight_its_blocks_are_not_shared() -> None:
    life = sharing(max_plans_in_flight=2)
    life.submit("a", 8)
    first = life.plan()
    life.submit("b", 8, max_tokens=1)
    second = life.plan()
    assert life.read(second) == "a[8:9] b[0:8]"
    life.answer(first)
    life.answer(second)


def test_a_failed_step_leaves_nothing_to_share() -> None:
    life = sharing()
    life.submit("bad", 8)
    plan = life.plan()
    life.executor.fail_sequence(plan.slices[0].sequence_id, "not finite")
    life.answer(plan)
    life.submit("b", 8, max_tokens=1)
    assert life.step() == "b[0:8]"


def test_a_lost_step_leaves_nothing_to_share() -> None:
    life = sharing()
    life.submit("a", 8)
    life.lose(life.plan())
    life.submit("b", 8, max_tokens=1)
    assert life.step() == "b[0:8]"


def test_equal_beginnings_are_computed_once() -> None:
    """Two blocks are shared; of the third, position 8 is copied, and 9 and 10 are computed."""
    life = sharing()
    life.submit("a", 10, max_tokens=8)
    life.step()
    table = life.table("a")
    life.submit("b", (*range(100, 108), 7, 7, 7))
    plan = life.plan()
    assert life.read(plan) == "a[10:11] b[8:11]"
    assert plan.copies == ()
    assert life.table("b")[:2] == table[:2]
    life.answer(plan)
    assert cached(life) == {"a": 0, "b": 8}
    assert life.scheduler.statistics().num_cached_tokens == 8


def test_shared_blocks_are_counted_once() -> None:
    life = sharing()
    life.submit("a", 8, max_tokens=5)  # blocks: 2, and 1 for its output
    life.step()
    life.submit("b", 9, max_tokens=5)  # 1 of its own
    life.step()
    assert life.num_free_blocks == 16 - 4
    assert life.scheduler.statistics().classes[0].num_blocks == 4


def test_a_prompt_that_is_known_in_full_computes_its_last_token_alone() -> None:
    """The logits of the last position are needed, so one block is copied to be written."""
    life = sharing()
    life.submit("a", 8, max_tokens=8)
    life.step()
    source = life.table("a")[1]
    life.submit("b", 8, max_tokens=2)
    plan = life.plan()
    assert life.read(plan) == "a[8:9] b[7:8]"
    assert plan.copies == (BlockMove(source, life.table("b")[1]),)
    life.answer(plan)
    assert cached(life)["b"] == 7


def test_a_block_that_is_equal_in_part_is_copied() -> None:
    life = sharing()
    life.submit("a", 8, max_tokens=8)
    life.step()
    source = life.table("a")[1]
    life.submit("b", (*range(100, 106), 7, 7, 7))  # 4 + 2 tokens as a's
    plan = life.plan()
    assert life.read(plan) == "a[8:9] b[6:9]"
    assert plan.copies == (BlockMove(source, life.table("b")[1]),)
    life.answer(plan)


def test_blocks_of_ended_requests_are_found_until_they_are_overwritten() -> None:
    life = sharing()
    life.submit("a", 9, max_tokens=1)
    life.run_dry()
    assert life.num_free_blocks == 16
    life.submit("b", 9, max_tokens=1)
    assert life.step() == "b[8:9]"


def test_output_is_shared_too() -> None:
    """The next turn of a conversation: prompt and answer of the last one, and more."""
    life = sharing()
    life.submit("a", 6, max_tokens=7)  # 6 + 6 computed positions: 3 blocks
    life.run_dry()
    life.submit("b", (*range(100, 106), *[1] * 7, 50), max_tokens=1)
    assert life.step() == "b[12:14]"


def test_the_least_recently_used_block_is_overwritten_first() -> None:
    """Pool of 4: a and b leave one named block each, then c needs three blocks."""
    life = sharing(num_blocks=4)
    a, b = (1, 1, 1, 1, 1), (2, 2, 2, 2, 2)
    life.submit("a", a, max_tokens=1)
    life.run_dry()
    life.submit("b", b, max_tokens=1)
    life.run_dry()
    life.submit("a again", a, max_tokens=1)  # a was used last now
    life.run_dry()
    life.submit("c", (3,) * 9, max_tokens=1)
    life.run_dry()
    assert life.scheduler.statistics().num_evicted_blocks == 1
    life.submit("a once more", a, max_tokens=1)
    life.run_dry()
    life.submit("b again", b, max_tokens=1)
    life.run_dry()
    assert cached(life)["a once more"] == 4
    assert cached(life)["b again"] == 0


def test_the_end_of_a_prompt_is_overwritten_before_its_beginning() -> None:
    life = sharing(num_blocks=4)
    life.submit("a", 12, max_tokens=1)
    life.run_dry()
    life.submit("b", (7,) * 7, max_tokens=1)  # 2 blocks: the free one, and a's last
    life.run_dry()
    life.submit("c", 12, max_tokens=1)
    assert life.step() == "c[8:12]"


def test_free_blocks_without_a_name_are_taken_first() -> None:
    life = sharing(num_blocks=4)
    life.submit("a", 9, max_tokens=1)  # 2 named blocks, 1 that is not full
    life.run_dry()
    life.submit("b", (7,) * 5, max_tokens=1)
    life.run_dry()
    assert life.scheduler.statistics().num_evicted_blocks == 0


def test_requests_with_other_salts_share_nothing() -> None:
    life = sharing()
    for name, salt in ("a", "x"), ("b", "y"), ("c", "x"):
        life.submit(name, 9, max_tokens=1, cache_salt=salt)
        life.run_dry()
    assert cached(life) == {"a": 0, "b": 0, "c": 8}


def test_classes_share_but_not_with_reserved_blocks() -> None:
    """What stands in reserved blocks must come free with its class's work."""
    classes = (
        ServiceClass(name="x"),
        ServiceClass(name="y"),
        ServiceClass(name="rt", reserved_slots=1, reserved_blocks=4),
    )
    life = sharing(classes=classes)
    for name in "x", "y", "rt":
        life.submit(name, 9, max_tokens=1, class_name=name)
        life.run_dry()
    life.submit("rt again", 9, max_tokens=1, class_name="rt")
    life.run_dry()
    assert cached(life) == {"x": 0, "y": 8, "rt": 0, "rt again": 8}


def test_a_salt_does_not_pass_for_a_class() -> None:
    classes = (ServiceClass(), ServiceClass(name="rt", reserved_slots=1, reserved_blocks=4))
    life = sharing(classes=classes)
    life.submit("a", 9, max_tokens=1, class_name="rt")
    life.run_dry()
    for salt in "class rt", "class rt\0", "rt":
        life.submit(salt, 9, max_tokens=1, cache_salt=salt)
        life.run_dry()
    assert set(cached(life).values()) == {0}


def test_without_sharing_nothing_is_found() -> None:
    life = Life()
    for name in "a", "b":
        life.submit(name, 9, max_tokens=1)
        life.run_dry()
    assert cached(life) == {"a": 0, "b": 0}


def test_a_preempted_sequence_finds_its_own_blocks_again() -> None:
    """Preempted by recompute, it resumes with what nobody has overwritten meanwhile."""
    life = sharing(num_blocks=6, max_num_batched_tokens=16)
    life.submit("old", 8, max_tokens=8)
    life.submit("new", (7,) * 8, max_tokens=8)
    life.run_dry()
    assert life.preempted() == ["new"]
    assert life.seen(ev.Resumed)[0].num_kept_tokens > 0


class TestSeveralSequences:
    """n > 1."""

    def test_three_sequences_compute_the_prompt_once_and_copy_a_block_each(self) -> None:
        life = sharing()
        life.submit("a", 10, max_tokens=4, n=3)
        first = life.plan()
        assert life.read(first) == "a[0:10]"
        life.answer(first)
        table = life.table("a")
        plan = life.plan()
        assert life.read(plan) == "a[10:11] a.1[9:10] a.2[9:10]"
        copies = tuple(BlockMove(table[2], life.table(name)[2]) for name in ("a.1", "a.2"))
        assert plan.copies == copies
        assert life.table("a.1")[:2] == life.table("a.2")[:2] == table[:2]
        assert life.num_free_blocks == 16 - (2 + 3)
        life.answer(plan)
        life.run_dry()
        assert life.finished() == ["a"]

    def test_they_wait_for_the_whole_prompt(self) -> None:
        life = sharing(max_num_batched_tokens=4)
        life.submit("a", 8, max_tokens=2, n=2)
        assert life.steps(3) == ["a[0:4]", "a[4:8]", "a[8:9] a.1[7:8]"]

    def test_they_start_when_the_first_ends_with_its_prompt(self) -> None:
        """Its blocks are free again, and still there."""
        life = sharing()
        life.submit("a", 9, max_tokens=1, n=2)
        assert life.run_dry() == ["a[0:9]", "a.1[8:9]"]

    def test_long_prompts_run_side_by_side_in_a_pool_for_one(self) -> None:
        """40 tokens are 10 of 16 blocks; three copies would not fit."""
        life = sharing()
        life.submit("a", 40, max_tokens=3, n=3)
        assert life.steps(2) == ["a[0:40]", "a[40:41] a.1[39:40] a.2[39:40]"]

    def test_without_sharing_each_computes_the_prompt(self) -> None:
        life = Life()
        life.submit("a", 8, max_tokens=2, n=2)
        assert life.step() == "a[0:8] a.1[0:8]"

    def test_a_stopped_first_sequence_lets_the_others_go_on(self) -> None:
        life = sharing()
        life.submit("a", 9, max_tokens=3, n=2)
        plan = life.plan()
        life.stop("a", 0)
        life.answer(plan)
        life.run_dry()
        assert life.finished() == ["a"]
        assert {event.index for event in life.seen(ev.SequenceFinished)} == {0, 1}


class TestPromptLogprobs:
    """Scores come with the computation, so whose prompt is scored finds nothing in the cache."""

    def test_a_scored_prompt_is_computed_although_it_is_known(self) -> None:
        life = sharing()
        life.submit("a", 9, max_tokens=1)
        life.run_dry()
        life.submit("b", 9, max_tokens=1, prompt_logprobs=1)
        assert life.step() == "b[0:9]"
        (scored,) = life.seen(ev.PromptScored)
        assert (scored.logprobs.start, len(scored.logprobs.entries)) == (1, 8)

    def test_its_blocks_serve_others(self) -> None:
        life = sharing()
        life.submit("a", 9, max_tokens=1, prompt_logprobs=1)
        life.run_dry()
        life.submit("b", 9, max_tokens=1)
        assert life.step() == "b[8:9]"

    def test_its_siblings_share_the_prompt(self) -> None:
        life = sharing()
        life.submit("a", 9, max_tokens=1, prompt_logprobs=1, n=2)
        assert life.run_dry() == ["a[0:9]", "a.1[8:9]"]


class TestPromptHashes:
    """Traces name the content of prompts and have no text."""

    def run(self, life: Life, name: str, length: int, stretch: int, ids: tuple[int, ...]) -> str:
        """Start a request whose tokens say nothing; what its first step computes."""
        hashes = PromptHashes(stretch, ids)
        asked = request(name, (0,) * length, max_tokens=1, prompt_hashes=hashes)
        answer = life.scheduler.submit(asked, life.now)
        assert isinstance(answer, ev.Admitted)
        life.names[answer.sequence_ids[0]] = name
        plan = life.plan()
        tokens = {part.sequence_id: SampledToken(life.token) for part in plan.slices if part.sample}
        life.scheduler.apply(StepResult(plan.step_id, tokens), life.now)
        return life.read(plan)

    def test_equal_names_mean_equal_content(self) -> None:
        life = sharing()
        assert self.run(life, "a", 16, 8, (1, 2)) == "a[0:16]"
        assert self.run(life, "b", 20, 8, (1, 2, 3)) == "b[16:20]"
        assert self.run(life, "c", 16, 8, (1, 9)) == "c[8:16]"
        assert self.run(life, "d", 16, 8, (9, 2)) == "d[0:16]", "though its tokens are the same"

    def test_a_block_in_two_stretches_goes_by_the_later_one(self) -> None:
        """Stretches of 6 tokens, blocks of 4: the second block ends in the second stretch."""
        life = sharing()
        assert self.run(life, "a", 12, 6, (1, 2)) == "a[0:12]"
        assert self.run(life, "b", 12, 6, (1, 3)) == "b[4:12]"

    def test_a_prompt_known_in_full_computes_its_last_block(self) -> None:
        """There is no text that could match in part; a block known in full may be copied."""
        life = sharing()
        self.run(life, "a", 16, 8, (1, 2))
        assert self.run(life, "b", 16, 8, (1, 2)) == "b[12:16]"

    def test_names_and_tokens_never_match(self) -> None:
        life = sharing()
        life.submit("a", (0,) * 16, max_tokens=1)
        life.run_dry()
        assert self.run(life, "b", 16, 8, (1, 2)) == "b[0:16]"

    def test_stretches_must_have_tokens(self) -> None:
        with pytest.raises(ValueError, match="stretch_tokens must be at least 1, not 0"):
            PromptHashes(0, (1,))
