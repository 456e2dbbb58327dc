"""Writes ``docs/knobs.md``."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from benchmarks.knob import batching, memory, order
from benchmarks.knob.scenarios import ALL_SCENARIOS, COST, LIMITS
from benchmarks.knob.turning import Knob, Row, turned
from benchmarks.table import markdown

GROUPS = {
    "The batch": batching.KNOBS,
    "The KV cache": memory.KNOBS,
    "The order": order.KNOBS,
}
KNOBS = tuple(knob for knobs in GROUPS.values() for knob in knobs)

_SCENARIOS = {
    "backlog": "300 requests at once: prompts of 32 to 512, answers of 40 to 200 tokens",
    "backlog of equal lengths": "256 requests at once: prompts of 256, answers of 128 tokens",
    "chats": "4 requests a second for 90 s, lengths as in the backlog",
    "sparse": "1 request a second for 120 s, lengths as in the backlog",
    "long prompts among chats": (
        "3 requests a second with prompts of 32 to 256, and 0.4 with 3000 to 6000 tokens"
    ),
    "overload": "16 requests a second for 60 s, more than can be served",
    "overload with hints": "the same, and clients say how long the answer will be",
    "long answers among short": (
        "4 requests a second with answers of 20 to 80, and 0.9 with 1000 to 2000 tokens"
    ),
    "two classes": (
        "`interactive`: 9 requests a second with prompts of 32 to 256 and answers of 40 to 160 "
        "tokens; `batch`: 2.5 with 256 to 1024 and 100 to 300; more than can be served"
    ),
    "some chats beside too much batch work": "the same lengths, 2 and 6 requests a second",
    "eight shared instructions": (
        "5 requests a second; the first 512 of 600 to 900 prompt tokens are one of eight"
    ),
}


def write(tell: Callable[[str], None] = lambda _: None) -> str:
    """Return the whole document."""
    sections: list[str] = []
    index: list[tuple[str, str, str]] = []
    for title, knobs in GROUPS.items():
        sections.append(f"## {title}")
        for knob in knobs:
            tell(knob.name)
            rows = turned(knob)
            sections.append(section(knob, rows))
            index.append(_index_row(knob, rows))
    return "\n\n".join((head(), _index(index), *sections)) + "\n"


def head() -> str:
    """Return what stands before the index."""
    limits = (
        f"`max_num_seqs` {LIMITS.max_num_seqs}, `max_num_batched_tokens` "
        f"{LIMITS.max_num_batched_tokens}, {LIMITS.num_blocks} KV blocks of {LIMITS.block_size}, "
        "continuous batching with chunked prefill, `fcfs`"
    )
    cost = (
        f"{1000 * COST.base_s:g} ms, {1000 * COST.prefill_token_s:g} ms for each prompt token, "
        f"{1000 * COST.decode_s:g} ms for each decoding sequence, "
        f"{1000 * COST.swap_block_s:g} ms for each block that is swapped"
    )
    scenarios = "\n".join(f"- *{each.name}*: {_SCENARIOS[each.name]}" for each in ALL_SCENARIOS)
    return (
        "# What each knob does\n\n"
        "Each setting turned alone, with what is said of it and what was measured. The scheduler "
        "and the loop are those that serve; time is virtual, so the numbers are the same on every "
        "machine. `python -m benchmarks.knobs --write docs/knobs.md` writes this file anew.\n\n"
        f"Nothing else is turned: {limits}. A step takes {cost}.\n\n"
        f"The workloads, all drawn with fixed seeds:\n\n{scenarios}\n\n"
        "*rises* and *falls* are as the knob is turned from the first value to the last. They are "
        "seen if the last value differs from the first by more than 2 %, and no step between goes "
        "the other way; *stays* allows 10 %. A dash says nothing."
    )


def section(knob: Knob, rows: Sequence[Row]) -> str:
    """Return what is said of a knob, and its table."""
    shown = knob.shown or tuple(str(value) for value in knob.values)
    table = markdown(
        ("workload", "measured", *shown, "stated", "seen"),
        [
            (
                row.scenario,
                row.measure,
                *(f"{value:,.{row.digits}f}" for value in row.values),
                row.stated,
                _yes(row.is_seen),
            )
            for row in rows
        ],
    )
    note = f"\n\n{knob.note}" if knob.note else ""
    return f"### `{knob.name}`\n\n{knob.stated}\n\n{table}{note}"


def _yes(is_seen: bool | None) -> str:
    return "" if is_seen is None else "yes" if is_seen else "**no**"


def _index_row(knob: Knob, rows: Sequence[Row]) -> tuple[str, str, str]:
    said = [row for row in rows if row.is_seen is not None]
    seen = sum(bool(row.is_seen) for row in said)
    return (f"[`{knob.name}`](#{knob.name})", knob.stated, f"{seen} of {len(said)}")


def _index(rows: Sequence[tuple[str, str, str]]) -> str:
    return markdown(("knob", "what is said of it", "effects seen"), rows)
