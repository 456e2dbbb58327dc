"""Workloads as they are written down: files, streams, and the requests made of them."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import islice
from math import inf
from pathlib import Path

import pytest

from headway.core.request import PromptHashes
from headway.workload import (
    Arrival,
    Stream,
    Targets,
    WorkloadError,
    WorkloadSpec,
    build,
    read_spec,
    stream_keys,
    stream_of,
)

FILE = """
duration_s = 30
seed = 5

[classes.fast]
ttft_ms = 500
tpot_ms = 80

[[streams]]
class = "fast"
tenant = "one"
request_rate = 4
prompt_tokens = "lognormal:200:0.8:1000"
output_tokens = 20

[[streams]]
class = "slow"
process = "gamma"
burstiness = 0.25
request_rate = 2.0
cancel_share = 0.2
cancel_after_s = 1
stall_share = 0.1

[[streams]]
concurrency = 3
think_s = 0.5
"""


def written(folder: Path, text: str, name: str = "workload.toml") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def requests(stream: Stream, seed: int = 1, duration_s: float | None = None) -> list[Arrival]:
    spec = WorkloadSpec(streams=(stream,), seed=seed, duration_s=duration_s)
    return list(build(spec).arrivals)


def test_a_file_is_read(tmp_path: Path) -> None:
    spec = read_spec(written(tmp_path, FILE))
    assert (spec.duration_s, spec.seed) == (30.0, 5)
    assert spec.targets == {"fast": Targets(ttft_s=0.5, tpot_s=0.08)}
    fast, slow, closed = spec.streams
    assert (fast.class_name, fast.tenant, fast.output_tokens) == ("fast", "one", 20)
    assert slow.cv == 2.0
    assert closed.is_closed


def test_the_requests_are_those_that_the_file_says(tmp_path: Path) -> None:
    workload = build(read_spec(written(tmp_path, FILE)))
    assert workload.duration_s == 30.0
    fast = [each for each in workload.arrivals if each.class_name == "fast"]
    slow = [each for each in workload.arrivals if each.class_name == "slow"]
    assert len(fast) == pytest.approx(120, abs=40)
    assert len(slow) == pytest.approx(60, abs=50)
    assert {each.tenant for each in fast} == {"one"}
    assert {(each.output_tokens, each.max_tokens) for each in fast} == {(20, 20)}
    assert all(each.prompt_tokens <= 1000 for each in fast)
    assert all(each.at_s < 30 for each in workload.arrivals)
    times = [each.at_s for each in workload.arrivals]
    assert times == sorted(times)
    (loop,) = workload.loops
    assert (loop.concurrency, loop.think_s) == (3, 0.5)
    assert len(list(islice(loop.requests, 100))) == 100  # for ever


def test_the_seed_decides_everything_and_streams_do_not_disturb_each_other() -> None:
    one = Stream(request_rate=5.0, num_requests=50, prompt_tokens="uniform:1:99", tenant="a")
    other = Stream(request_rate=5.0, num_requests=50, prompt_tokens="uniform:1:99", tenant="b")
    assert requests(one) == requests(one)
    assert requests(one, seed=1) != requests(one, seed=2)
    both = build(WorkloadSpec(streams=(one, other), seed=1)).arrivals
    assert [each for each in both if each.tenant == "a"] == requests(one)
    assert [e.at_s for e in both if e.tenant == "b"] != [e.at_s for e in requests(one)]


def test_another_rate_leaves_the_requests_as_they_are() -> None:
    slow = requests(Stream(request_rate=1.0, num_requests=20, prompt_tokens="uniform:1:99"))
    fast = requests(Stream(request_rate=2.0, num_requests=20, prompt_tokens="uniform:1:99"))
    assert [each.prompt_tokens for each in slow] == [each.prompt_tokens for each in fast]
    assert [each.at_s for each in fast] == pytest.approx([each.at_s / 2 for each in slow])


def test_a_share_of_clients_leaves_or_stalls() -> None:
    stream = Stream(
        request_rate=inf,
        num_requests=2000,
        cancel_share=0.2,
        cancel_after_tokens=3,
        stall_share=0.1,
        stall_s=5.0,
    )
    made = [each.conduct for each in requests(stream)]
    leaving = [each for each in made if each is not None and each.leaves]
    stalling = [each for each in made if each is not None and each.stalls]
    assert len(leaving) == pytest.approx(400, abs=60)
    assert len(stalling) == pytest.approx(200, abs=50)
    assert leaving[0].leaves_after_tokens == 3
    assert (stalling[0].stalls_after_tokens, stalling[0].stalls_for_s) == (1, 5.0)


def test_a_shared_beginning_has_a_name_of_its_own_in_each_stream() -> None:
    stream = Stream(request_rate=inf, num_requests=2, prompt_tokens=10, shared_prefix_tokens=6)
    one, other = build(WorkloadSpec(streams=(stream, stream))).arrivals[1:3]
    assert one.prompt_tokens == 16
    assert one.hashes is not None
    assert other.hashes is not None
    assert one.hashes.stretch_tokens == 6
    assert one.hashes != other.hashes


def test_a_stream_begins_when_it_says() -> None:
    times = [
        each.at_s
        for each in requests(
            Stream(request_rate=1.0, process="constant", num_requests=2, start_s=10.0)
        )
    ]
    assert times == [11.0, 12.0]
    stepped = Stream(rate_steps="2:1,2:2", process="constant")
    assert [each.at_s for each in requests(stepped)] == [1.0, 2.0, 2.5, 3.0, 3.5]


# ------------------------------------------------------------------ traces

AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens\n" + "".join(
    f"2023-11-16 18:17:{second:02},{100 * (second + 1)},{second + 1}\n"
    for second in range(0, 20, 2)
)


def test_a_trace_has_its_own_times_unless_told_otherwise(tmp_path: Path) -> None:
    path = str(written(tmp_path, AZURE, "azure.csv"))
    assert [each.at_s for each in requests(Stream(source="azure", path=path))] == [
        float(second) for second in range(0, 20, 2)
    ]
    stretched = requests(Stream(source="azure", path=path, request_rate=5.0))
    assert stretched[-1].at_s == pytest.approx(1.8)
    at_once = requests(Stream(source="azure", path=path, request_rate=inf))
    assert {each.at_s for each in at_once} == {0.0}
    cut = requests(Stream(source="azure", path=path, start_s=4.0), duration_s=5.0)
    assert [(each.at_s, each.prompt_tokens) for each in cut] == [(0.0, 500), (2.0, 700), (4.0, 900)]
    assert len(requests(Stream(source="azure", path=path, num_requests=3))) == 3


def test_a_trace_may_give_its_lengths_to_another_process(tmp_path: Path) -> None:
    path = str(written(tmp_path, AZURE, "azure.csv"))
    stream = Stream(
        source="azure", path=path, process="poisson", request_rate=10.0, num_requests=200
    )
    made = requests(stream)
    pairs = {(100 * (second + 1), second + 1) for second in range(0, 20, 2)}
    assert {(each.prompt_tokens, each.output_tokens) for each in made} == pairs
    assert made[-1].at_s == pytest.approx(20, rel=0.3)


def test_lengths_of_a_trace_are_scaled_and_cut(tmp_path: Path) -> None:
    path = str(written(tmp_path, AZURE, "azure.csv"))
    made = requests(
        Stream(
            source="azure",
            path=path,
            length_factor=0.1,
            max_prompt_tokens=120,
            max_output_tokens=1,
        )
    )
    assert [each.prompt_tokens for each in made][:7] == [10, 30, 50, 70, 90, 110, 120]
    assert {each.output_tokens for each in made} == {1}


def test_requests_with_content_come_in_order_again_and_again(tmp_path: Path) -> None:
    lines = [
        {"timestamp": 0, "input_length": 600, "output_length": 5, "hash_ids": [0, number]}
        for number in range(3)
    ]
    path = written(tmp_path, "".join(json.dumps(each) + "\n" for each in lines))
    stream = Stream(source="mooncake", path=str(path), concurrency=1, num_requests=7)
    (loop,) = build(WorkloadSpec(streams=(stream,))).loops
    assert [each.hashes for each in loop.requests] == [
        PromptHashes(512, (0, number % 3)) for number in range(7)
    ]


def test_ticks_of_a_trace_are_spread_and_other_times_kept(tmp_path: Path) -> None:
    def times(*timestamps: int) -> list[float]:
        lines = [
            {"timestamp": t, "input_length": 600, "output_length": 5, "hash_ids": [0, 1]}
            for t in timestamps
        ]
        path = written(tmp_path, "".join(json.dumps(each) + "\n" for each in lines))
        return [each.at_s for each in requests(Stream(source="mooncake", path=str(path)))]

    assert times(0, 1500, 3000, 3000) == [0.0, 1.5, 3.0, 3.0]
    spread = times(*[0] * 10, *[3000] * 10)
    assert len(set(spread)) == 20
    assert sum(each < 3 for each in spread) == 10


def test_real_prompts(tmp_path: Path) -> None:
    lines = [
        {"prompt": "four times as many characters", "class": "fast", "tenant": "t"},
        {"messages": [{"role": "user", "content": "hi"}], "output_tokens": 9, "timestamp": 2.5},
    ]
    path = str(written(tmp_path, "".join(json.dumps(each) + "\n" for each in lines)))
    first, second = requests(Stream(source="jsonl", path=path, output_tokens=33))
    assert first.prompt is not None
    assert first.prompt.text == "four times as many characters"
    assert (first.class_name, first.tenant, first.prompt_tokens) == ("fast", "t", 7)
    assert (first.output_tokens, second.output_tokens, second.at_s) == (33, 9, 2.5)
    assert second.prompt is not None
    assert second.prompt.messages == ({"role": "user", "content": "hi"},)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("[]", "must be an object"),
        ("{}", "needs either prompt or messages"),
        ('{"prompt": "a", "messages": []}', "needs either prompt or messages"),
        ('{"prompt": 3}', "prompt must be a text"),
        ('{"messages": []}', "messages must be a list"),
        ('{"messages": [{"role": "user"}]}', "messages must be a list"),
        ('{"prompt": "a", "output_tokens": 1.5}', "output_tokens must be a whole number"),
        ('{"prompt": "a", "output_tokens": 0}', "a request needs a prompt"),
        ('{"prompt": "a", "timestamp": "x"}', "could not convert"),
        ('{"prompt": "a", "class": 3}', "class must be a text"),
        ("{", "line 1"),
    ],
)
def test_what_is_no_prompt_is_refused_with_its_line(
    tmp_path: Path, line: str, message: str
) -> None:
    path = str(written(tmp_path, line))
    with pytest.raises(WorkloadError, match=f"workload.toml, line 1: .*{message}|{message}"):
        requests(Stream(source="jsonl", path=path))


def test_lines_of_a_text_make_prompts_with_a_common_beginning(tmp_path: Path) -> None:
    path = str(written(tmp_path, "\n".join(f"line number {n} of the text" for n in range(100))))
    stream = Stream(
        source="lines",
        path=path,
        request_rate=inf,
        num_requests=5,
        prompt_tokens=50,
        shared_prefix_tokens=30,
    )
    made = requests(stream)
    texts = [each.prompt.text for each in made if each.prompt is not None]
    assert len(set(texts)) == 5
    common = texts[0][:120]
    assert all(each.startswith(common) for each in texts)
    assert all(80 * 4 < len(each) < 100 * 4.5 for each in texts)


def test_a_table_of_lengths(tmp_path: Path) -> None:
    ours = "at_s,prompt_tokens,output_tokens,class,tenant\n1.5,10,2,fast,t\n0,20,3,,\n"
    made = requests(Stream(source="csv", path=str(written(tmp_path, ours))))
    assert [(e.at_s, e.prompt_tokens, e.output_tokens, e.class_name, e.tenant) for e in made] == [
        (0.0, 20, 3, "default", ""),
        (1.5, 10, 2, "fast", "t"),
    ]
    theirs = "arrival_time_ns,input_toks,output_toks\n1500000000,10,2\n"
    (only,) = requests(Stream(source="csv", path=str(written(tmp_path, theirs))))
    assert (only.at_s, only.prompt_tokens) == (1.5, 10)
    with pytest.raises(WorkloadError, match="no column output_tokens or prompt_tokens"):
        requests(Stream(source="csv", path=str(written(tmp_path, "a,b\n1,2\n"))))
    with pytest.raises(WorkloadError, match="line 2"):
        requests(Stream(source="csv", path=str(written(tmp_path, theirs.replace("10", "x")))))


def test_a_saved_run_is_run_again(tmp_path: Path) -> None:
    saved = {"start_times": [5.0, 4.0, 6.0], "input_lens": [1, 2, 3], "output_lens": [7, 8, 0]}
    path = str(written(tmp_path, json.dumps(saved)))
    made = requests(Stream(source="vllm-bench", path=path))
    assert [(e.at_s, e.prompt_tokens, e.output_tokens) for e in made] == [(0.0, 2, 8), (1.0, 1, 7)]
    for value, message in (({}, "no 'start_times'"), ([], "is no saved run")):
        with pytest.raises(WorkloadError, match=message):
            requests(Stream(source="vllm-bench", path=str(written(tmp_path, json.dumps(value)))))


# ------------------------------------------------------------------ what is refused


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = ", "workload.toml: "),
        ("streems = []", r"unknown key streems \(did you mean streams\?\)"),
        ("streams = 3", "streams are tables"),
        ("classes = 3", "classes are tables"),
        ("", "needs at least one stream"),
        ("seed = 1.5\n[[streams]]\nrequest_rate = 1", "seed must be a whole number"),
        ("duration_s = true\n[[streams]]\nrequest_rate = 1", "duration_s must be a number"),
        ("duration_s = 0\n[[streams]]\nrequest_rate = 1", "duration_s must be above 0"),
        ("[[streams]]\nrate = 1", "stream 1: unknown key rate "),
        ("[[streams]]\nrequest_rate = 'x'", "stream 1: request_rate must be a number"),
        ("[[streams]]\nrequest_rate = 1", "say how much"),
        ("[[streams]]\nconcurrency = 1.5", "concurrency must be a whole number"),
        ("[[streams]]\nclass = 3", "class must be a text"),
        ("[classes.a]\nttft = 3", "class a: unknown key ttft"),
        ("[classes.a]\nttft_ms = 0", "class a: targets must be above 0"),
        ("[classes.a]\nttft_ms = 'x'", "class a: ttft_ms must be a number"),
    ],
)
def test_a_bad_file_is_refused_in_one_line(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(WorkloadError, match=message) as caught:
        read_spec(written(tmp_path, text))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({}, "say when requests come"),
        ({"request_rate": -1.0}, "request_rate must be above 0"),
        ({"request_rate": float("nan")}, "request_rate must be above 0"),
        ({"concurrency": 0}, "concurrency must be above 0"),
        ({"concurrency": 1, "think_s": inf}, "think_s must be finite"),
        ({"request_rate": 1.0, "think_s": 1.0}, "think_s needs concurrency"),
        ({"request_rate": 1.0, "concurrency": 1}, "leave out one"),
        ({"concurrency": 1, "rate_steps": "1:1"}, "leave out one"),
        ({"request_rate": 1.0, "rate_steps": "1:1"}, "in place of request_rate"),
        ({"rate_steps": "1"}, "are no rates"),
        ({"request_rate": 1.0, "burstiness": 0.5}, "burstiness goes with process gamma"),
        ({"request_rate": 1.0, "process": "trace"}, "source synthetic has no times"),
        ({"request_rate": 1.0, "process": "weird"}, "process must be one of"),
        ({"request_rate": 1.0, "source": "weird"}, "source must be one of"),
        ({"request_rate": 1.0, "path": "x"}, "source synthetic has no path"),
        ({"source": "azure"}, "source azure needs path"),
        ({"request_rate": 1.0, "num_clients": 3}, "num_clients goes with source servegen"),
        ({"source": "azure", "path": "x", "shared_prefix_tokens": 1}, "shared_prefix_tokens"),
        ({"request_rate": 1.0, "cancel_share": 0.5}, "cancel_share needs"),
        ({"request_rate": 1.0, "cancel_after_s": 1.0}, "need cancel_share"),
        ({"request_rate": 1.0, "stall_share": 2.0}, "must lie between 0 and 1"),
        (
            {"request_rate": 1.0, "stall_share": 0.6, "cancel_share": 0.6, "cancel_after_s": 1.0},
            "together more than 1",
        ),
        ({"request_rate": 1.0, "stall_after_tokens": 3}, "need stall_share"),
        ({"concurrency": 1, "burstiness": 0.5}, "burstiness goes with process gamma"),
        ({"source": "azure", "path": "x", "prompt_tokens": 9}, "source azure says the lengths"),
        ({"source": "csv", "path": "x", "output_tokens": 9}, "source csv says the lengths"),
        ({"request_rate": 1.0, "output_tokens": 10**9}, "from 1 to 10,000,000"),
        ({"request_rate": 1.0, "prompt_tokens": "x"}, "is no length"),
        ({"request_rate": 1.0, "output_tokens": 0}, "is no length"),
    ],
)
def test_a_contradiction_is_refused(values: dict, message: str) -> None:
    with pytest.raises(WorkloadError, match=message):
        stream_of(values)


def test_nothing_in_the_time_is_refused() -> None:
    with pytest.raises(WorkloadError, match="no request comes"):
        requests(Stream(request_rate=0.001, process="constant"), duration_s=1.0)


@pytest.mark.parametrize("count", [None, 10**9])
@pytest.mark.parametrize("rate", [inf, 1e9])
def test_more_requests_than_memory_holds_are_refused(rate: float, count: int | None) -> None:
    stream = Stream(request_rate=rate, num_requests=count)
    with pytest.raises(WorkloadError, match="would make more than 10,000,000 requests"):
        WorkloadSpec(streams=(stream,), duration_s=1e3)


def test_every_key_has_a_meaning_and_a_kind() -> None:
    keys = stream_keys()
    assert len({key.name for key in keys}) == len(keys)
    assert {key.kind for key in keys} == {str, int, float}
    assert all(key.meaning for key in keys)


def test_a_path_counts_from_the_folder_of_the_file(tmp_path: Path) -> None:
    written(tmp_path, AZURE, "azure.csv")
    path = written(tmp_path, '[[streams]]\nsource = "azure"\npath = "azure.csv"')
    assert len(build(read_spec(path)).arrivals) == 10


def test_prompts_without_times_come_at_the_rate_once_each_in_order(tmp_path: Path) -> None:
    lines = "".join(f'{{"prompt": "Grüße {n}", "output_tokens": 3}}\n' for n in range(50))
    stream = Stream(source="jsonl", path=str(written(tmp_path, lines)), request_rate=5.0)
    made = requests(stream)
    assert [each.prompt.text for each in made if each.prompt] == [f"Grüße {n}" for n in range(50)]
    times = [each.at_s for each in made]
    assert times == sorted(set(times))
    assert 5 < times[-1] < 20
    with pytest.raises(WorkloadError, match="of one moment have no rate"):
        requests(replace(stream, process="trace"))
