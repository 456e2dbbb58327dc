"""Trace readers: what they take from each format, and what they refuse."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

import pytest

from headway.core.request import PromptHashes
from headway.workload import Arrival, WorkloadError, read_azure, read_mooncake

AZURE = """TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:17:03.9799600,4808,10
2023-11-16 18:17:05.2299600,3180,8
2023-11-16 18:17:04.9799600,110,27
"""


def mooncake(*timestamps: int) -> str:
    return "".join(
        json.dumps({"timestamp": t, "input_length": 600, "output_length": 5, "hash_ids": [0, n]})
        + "\n"
        for n, t in enumerate(timestamps, 1)
    )


def written(folder: Path, text: str) -> Path:
    path = folder / "trace"
    path.write_text(text, encoding="utf-8")
    return path


def test_azure_times_count_from_the_first_request_and_are_in_order(tmp_path: Path) -> None:
    arrivals = read_azure(written(tmp_path, AZURE), class_name="chat", tenant="one")
    assert arrivals == [
        Arrival(
            at_s=at_s, prompt_tokens=prompt, output_tokens=output, class_name="chat", tenant="one"
        )
        for at_s, prompt, output in ((0.0, 4808, 10), (1.0, 110, 27), (1.25, 3180, 8))
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a,b\n1,2\n", "no column ContextTokens, GeneratedTokens, TIMESTAMP"),
        (AZURE + "2023-11-16 18:17:09,many,1\n", "line 5: invalid literal"),
        (AZURE + "2023-11-16 18:17:09,5\n", "line 5: "),
        (AZURE + "2023-11-16 18:17:09,0,1\n", "line 5: a request needs a prompt"),
        (AZURE + "2023-11-15 18:17:09,1,1\n", "line 5: at_s must be"),
        (AZURE.splitlines()[0], "has no requests"),
        ("", "no column"),
    ],
)
def test_what_is_no_azure_trace_is_refused_with_the_line(
    tmp_path: Path, text: str, message: str
) -> None:
    with pytest.raises(WorkloadError, match=message):
        read_azure(written(tmp_path, text))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(WorkloadError, match=r"absent\.csv can't be read: No such file"):
        read_azure(tmp_path / "absent.csv")


def test_mooncake_brings_the_content_of_prompts_by_name(tmp_path: Path) -> None:
    first, other = read_mooncake(written(tmp_path, mooncake(0, 3000)))
    assert (first.at_s, other.at_s) == (0.0, 3.0)
    assert first.hashes == PromptHashes(512, (0, 1))
    assert (other.prompt_tokens, other.output_tokens) == (600, 5)


def test_ticks_are_spread_the_same_way_for_the_same_seed(tmp_path: Path) -> None:
    path = written(tmp_path, mooncake(*[0] * 200, *[3000] * 200))
    arrivals = read_mooncake(path, Random(7))
    assert arrivals == read_mooncake(path, Random(7))
    assert arrivals != read_mooncake(path, Random(8))
    times = [each.at_s for each in arrivals]
    assert times == sorted(times)
    assert len(set(times)) == 400
    assert all(0 <= at_s < 6 for at_s in times)
    assert sum(at_s < 3 for at_s in times) == 200


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[1]\n", "line 1: "),
        ("{}\n", "line 1: no 'timestamp'"),
        (mooncake(0) + "\n{\n", "line 3: "),
        (mooncake(0).replace("600", '"600"'), "line 1: "),
        ("\n", "has no requests"),
    ],
)
def test_what_is_no_mooncake_trace_is_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(WorkloadError, match=message):
        read_mooncake(written(tmp_path, text))
