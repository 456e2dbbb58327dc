"""ServeGen: clients with windows and lengths of their own."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

import pytest

from headway.workload import Arrival, Stream, WorkloadError, WorkloadSpec, build, read_servegen


def client(
    folder: Path, number: int, windows: list[str], lengths: dict[str, tuple[dict, dict]]
) -> None:
    (folder / f"chunk-{number}-trace.csv").write_text("\n".join(windows) + "\n")
    dataset = {
        start: {
            "input_tokens": str(prompts) if prompts else "",
            "output_tokens": str(outputs) if outputs else "",
        }
        for start, (prompts, outputs) in lengths.items()
    }
    (folder / f"chunk-{number}-dataset.json").write_text(json.dumps(dataset))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Client 0: quiet, then 2 a second; client 1: bursts of 0.5 a second, other lengths later."""
    client(
        tmp_path,
        0,
        ["0,0,0,,0,0", "600,2.0,1.0,Gamma,1.0,0.5", "1200,2.0,0.5,Weibull,2.0,0.5"],
        {"0": ({10: 0.5, 20: 0.5}, {5: 1.0})},
    )
    client(
        tmp_path,
        1,
        ["0,0.5,3.0,Gamma,0.111,18.0", "600,0.5,3.0,Gamma,0.111,18.0", "1200,0.5,,,,0"],
        {"0": ({100: 1.0}, {7: 1.0}), "600": ({200: 1.0}, {8.4: 1.0}), "900": ({}, {})},
    )
    return tmp_path


def of(arrivals: list[Arrival], number: int) -> list[Arrival]:
    return [each for each in arrivals if each.tenant == f"client-{number}"]


def test_each_client_has_its_own_rate_and_lengths(folder: Path) -> None:
    arrivals = read_servegen(folder, Random(1), duration_s=1800)
    first, second = of(arrivals, 0), of(arrivals, 1)
    assert len(first) == pytest.approx(2400, rel=0.1)
    assert len(second) == pytest.approx(900, rel=0.5)
    assert min(each.at_s for each in first) >= 600
    assert {each.prompt_tokens for each in first} == {10, 20}
    early = {(e.prompt_tokens, e.output_tokens) for e in second if e.at_s < 600}
    late = {(e.prompt_tokens, e.output_tokens) for e in second if e.at_s >= 600}
    assert (early, late) == ({(100, 7)}, {(200, 8)})
    times = [each.at_s for each in arrivals]
    assert times == sorted(times)


def test_a_stretch_of_the_day_counts_from_its_beginning(folder: Path) -> None:
    arrivals = read_servegen(folder, Random(1), from_s=900.0, duration_s=600.0)
    assert 0 <= arrivals[0].at_s < 10
    assert 590 < arrivals[-1].at_s < 600
    assert {each.prompt_tokens for each in of(arrivals, 1)} == {200}


def test_only_the_busiest_clients(folder: Path) -> None:
    arrivals = read_servegen(folder, Random(1), duration_s=1800, num_clients=1)
    assert {each.tenant for each in arrivals} == {"client-0"}
    quiet = read_servegen(folder, Random(1), duration_s=600, num_clients=1)
    assert {each.tenant for each in quiet} == {"client-1"}  # of this stretch


def test_the_same_seed_draws_the_same(folder: Path) -> None:
    assert read_servegen(folder, Random(1)) == read_servegen(folder, Random(1))
    assert read_servegen(folder, Random(1)) != read_servegen(folder, Random(2))


def test_as_a_stream_of_a_workload(folder: Path) -> None:
    stream = Stream(source="servegen", path=str(folder), request_rate=50.0, tenant="all")
    arrivals = build(WorkloadSpec(streams=(stream,), duration_s=20.0)).arrivals
    assert {each.tenant for each in arrivals} == {"all"}


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("chunk-0-trace.csv", "0,x,1,Gamma,1,1\n", "is not as ServeGen writes it"),
        ("chunk-0-trace.csv", "0,1\n", "is not as ServeGen writes it"),
        ("chunk-0-dataset.json", "{", "is not as ServeGen writes it"),
        ("chunk-0-dataset.json", '{"0": {}}', "is not as ServeGen writes it"),
        ("chunk-0-dataset.json", "{}", "has no lengths"),
        (
            "chunk-0-dataset.json",
            '{"0": {"input_tokens": "{", "output_tokens": "{}"}}',
            "is not as ServeGen writes it",
        ),
    ],
)
def test_a_bad_file_is_named(folder: Path, name: str, text: str, message: str) -> None:
    (folder / name).write_text(text)
    with pytest.raises(WorkloadError, match=f"{name} {message}"):
        read_servegen(folder, Random(1))


def test_a_missing_file_or_folder_is_named(folder: Path, tmp_path: Path) -> None:
    (folder / "chunk-1-dataset.json").unlink()
    with pytest.raises(WorkloadError, match=r"chunk-1-dataset\.json can't be read"):
        read_servegen(folder, Random(1))
    with pytest.raises(WorkloadError, match="can't be read"):
        read_servegen(tmp_path / "absent", Random(1))
    (tmp_path / "empty").mkdir()
    with pytest.raises(WorkloadError, match=r"has no chunk-N-trace\.csv"):
        read_servegen(tmp_path / "empty", Random(1))


def test_a_time_in_which_nobody_sends_is_refused(folder: Path) -> None:
    with pytest.raises(WorkloadError, match=r"nobody in .* sends anything from 5000 s on"):
        read_servegen(folder, Random(1), from_s=5000.0)
