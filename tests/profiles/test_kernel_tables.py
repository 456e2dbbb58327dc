"""Step times put together from measured kernels."""

from __future__ import annotations

from pathlib import Path

import pytest
from steps import decodes, mixed, prefill

from headway.profiles.collective import AllReduce
from headway.profiles.errors import ProfileError
from headway.profiles.shape import StepShape
from headway.profiles.skew import SkewTable
from headway.profiles.tables import KernelTables, ModelFacts, read_kernel_tables

MODEL = ModelFacts(num_layers=10, hidden_size=100)
#: microseconds a token: embedding and last norm once, two norms and the rest in ten layers
A_TOKEN = 1 + 2 + 10 * (2 * 3 + 5 + 7 + 11 + 13 + 17 + 19)


def microseconds(costs: KernelTables, shape: StepShape) -> float:
    return 1e6 * costs.seconds(shape)


def test_decodes(bundle: Path) -> None:
    costs = read_kernel_tables(bundle, MODEL)
    attention = 4 * (2 + 500 / 100)
    expected = 4 * A_TOKEN + 1000 + 4 * 23 + 10 * attention
    assert microseconds(costs, decodes(4, 500)) == pytest.approx(expected)


def test_prompts_attend_each_for_itself(bundle: Path) -> None:
    costs = read_kernel_tables(bundle, MODEL)
    attention = (100 + 0) + (300 + 1000 / 10)
    expected = 400 * A_TOKEN + 1000 + 2 * 23 + 10 * attention
    assert microseconds(costs, prefill((0, 100), (1000, 300))) == pytest.approx(expected)


def test_both_in_one_call_are_not_the_sum(bundle: Path) -> None:
    costs = read_kernel_tables(bundle, MODEL)
    attention = 300 + 1000 / 10 + 2 * 4 * (2 + 500 / 100)
    expected = 304 * A_TOKEN + 1000 + 5 * 23 + 10 * attention
    shape = mixed(4, 500, (1000, 300))
    assert microseconds(costs, shape) == pytest.approx(expected)
    wrong = read_kernel_tables(bundle, MODEL, adds_parts=True)
    assert microseconds(wrong, shape) == pytest.approx(expected - 10 * 4 * (2 + 500 / 100))


def test_several_prompts_beside_decodes(bundle: Path) -> None:
    costs = read_kernel_tables(bundle, MODEL)
    attention = (100 + 0) + (300 + 1000 / 10) + 2 * 4 * (2 + 500 / 100)
    expected = 404 * A_TOKEN + 1000 + 6 * 23 + 10 * attention
    shape = mixed(4, 500, (0, 100), (1000, 300))
    assert microseconds(costs, shape) == pytest.approx(expected)


def test_two_all_reduces_a_layer(bundle: Path) -> None:
    one = read_kernel_tables(bundle, MODEL)
    two = read_kernel_tables(bundle, MODEL, all_reduce=AllReduce(bytes_per_s=1e6, latency_s=20e-6))
    shape = prefill((0, 50))
    expected = 10 * 2 * (20 + 50 * 100 * 2)
    assert microseconds(two, shape) - microseconds(one, shape) == pytest.approx(expected)


def test_unequal_contexts_cost_a_part_of_the_way_to_the_longest(bundle: Path) -> None:
    """Mean 400 between 100 and 1300: a quarter of the way, and alpha is 0.5 up to 40 %."""
    shape = StepShape((), 4, 1600, 1300, 100)
    even = read_kernel_tables(bundle, MODEL, with_skew=False)
    skewed = read_kernel_tables(bundle, MODEL)
    excess = 10 * 0.5 * 4 * (1300 - 400) / 100
    assert microseconds(skewed, shape) - microseconds(even, shape) == pytest.approx(excess)


def test_an_unmeasured_range_of_skew_takes_the_mean() -> None:
    labels = ("n<=8", "sr<=40%", "kvB<=1k", "kp=0")
    other = ("n<=8", "sr>70%", "kvB<=1k", "kp=0")
    table = SkewTable([(0, labels, 0.5), (0, other, 0.1), (512, labels, 0.9)])
    assert table.alpha(0, 3, 0.2, 900, 0) == 0.5
    assert table.alpha(0, 3, 0.9, 900, 0) == 0.1
    assert table.alpha(0, 99, 0.2, 99_999, 0) == 0.5, "the last range has no end"
    assert table.alpha(3, 3, 0.2, 900, 0) == 0.9, "beside a prefill those without don't count"
    assert table.alpha(512, 3, 0.9, 900, 0) == 0.9


def test_nothing_takes_no_time_and_what_is_beyond_is_known(bundle: Path) -> None:
    costs = read_kernel_tables(bundle, MODEL)
    assert costs.seconds(StepShape()) == 0
    assert costs.covers(mixed(4, 500, (1000, 300)))
    assert not costs.covers(decodes(9, 500))
    assert not costs.covers(decodes(4, 9000))
    assert not costs.covers(prefill((4001, 300)))
    assert not costs.covers(prefill((0, 2049)))


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("dense.csv", None, "can't be read"),
        ("dense.csv", "layer,tokens,time_us\nembedding,1,2\n", "has no act_fn"),
        ("dense.csv", "layer,tokens,time_us\nembedding,x,2\n", "line 2"),
        ("dense.csv", "layer,time_us\nembedding,2\n", "no column 'tokens'"),
        ("per_sequence.csv", "layer,sequences,time_us\nsampler,1,2\n", "needs lm_head and"),
        ("attention.csv", "prefill_chunk,kv_prefill,n_decode,kv_decode,time_us\n", "needs pre"),
        ("skew_fit.csv", "pc\n", "needs rows"),
    ],
)
def test_other_files_are_refused(bundle: Path, name: str, text: str | None, message: str) -> None:
    if text is None:
        (bundle / name).unlink()
    else:
        (bundle / name).write_text(text)
    with pytest.raises(ProfileError, match=message) as refused:
        read_kernel_tables(bundle, MODEL)
    assert name in str(refused.value)
