"""Rewrites the generated parts of ``docs/`` from the code that they describe: ``make docs``.

A generated part stands between ``<!-- generated: NAME -->`` and ``<!-- end: NAME -->``. With
``--check`` nothing is written, and the exit code is 1 if a document is out of date.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from prometheus_client.metrics_core import Metric

from headway.config import SECTIONS, TABLES, Setting, settings_of
from headway.config.protect import ADVICE, Advice, shown
from headway.config.values import allowed
from headway.core.config import SchedulerConfig
from headway.core.events import Preempted
from headway.core.limits import SchedulerLimits
from headway.core.plan import RequestId
from headway.core.request import Request
from headway.core.sampling import SamplingParams
from headway.core.scheduler import Scheduler
from headway.engine.clock import VirtualClock
from headway.engine.loop import Engine
from headway.metrics import EngineMetrics
from headway.server import refusals
from headway.testing.scripted import ScriptedExecutor, repeat

DOCS = Path(__file__).resolve().parents[1] / "docs"
UNITS = {"seconds": "seconds", "ratio": "0 to 1", "perc": "0 to 1", "info": "always 1"}


def table(header: Sequence[str], rows: Iterator[Sequence[str]]) -> Iterator[str]:
    """Yield the lines of a Markdown table."""
    for cells in (header, ["---"] * len(header), *rows):
        yield "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def code(text: object) -> str:
    """Return inline code."""
    return f"`{text}`"


# ------------------------------------------------------------------ settings


def settings() -> Iterator[str]:
    """A heading and a table for each section."""
    header = ("key", "flag", "variable", "default", "allowed", "meaning")
    for name, section in SECTIONS.items():
        yield from (f"## `[{name}]`", "", (section.__doc__ or "").replace("``", "`"), "")
        yield from table(header, map(_setting_row, settings_of(section)))
        yield ""


def tables() -> Iterator[str]:
    """A heading and a table for each kind of named table; the file alone has them."""
    header = ("key", "default", "allowed", "meaning")
    for kind, section in TABLES.items():
        yield from (f"## `[{kind}.NAME]`", "", section.__doc__ or "", "")
        yield from table(header, map(_table_row, settings_of(section)))
        yield ""


def _table_row(setting: Setting) -> tuple[str, ...]:
    row = _setting_row(setting)
    return (row[0], *row[3:])


def protect() -> Iterator[str]:
    """A heading and a table for each goal."""
    for goal, rows in ADVICE.items():
        yield from (f'### `protect = "{goal}"`', "")
        yield from table(("setting", "set to", "warns", "reason"), map(_advice_row, rows))
        yield ""


def _advice_row(advice: Advice) -> tuple[str, ...]:
    sets = "–" if advice.sets is None else code(shown(advice.sets))
    only = "" if advice.only is None else f" ({advice.only.words})"
    return (code(advice.key) + only, sets, _warns(advice), advice.why)


def _warns(advice: Advice) -> str:
    if advice.among:
        return "unless " + " or ".join(code(shown(value)) for value in advice.among)
    if advice.at_least is not None:
        return f"below {advice.at_least:g}"
    return "–" if advice.at_most is None else f"above {advice.at_most:g}"


def _setting_row(setting: Setting) -> tuple[str, ...]:
    flag = setting.flag
    if setting.rule.kind is bool:
        flag = f"{flag}, --no-{flag.removeprefix('--')}"
    meaning = f"{setting.meaning} (in {setting.unit})" if setting.unit else setting.meaning
    words = re.sub(r'"(\w+)"', r"`\1`", allowed(setting.rule))
    return (
        code(setting.name),
        code(flag),
        code(setting.variable),
        _default(setting),
        words,
        meaning,
    )


def _default(setting: Setting) -> str:
    value = setting.default
    if value in (None, ()):
        return "unset"
    if setting.rule.in_bytes and isinstance(value, int) and value % 2**20 == 0:
        return code(f"{value // 2**20}MiB")
    return code(json.dumps(value) if isinstance(value, bool) else value)


# ------------------------------------------------------------------ metrics

#: What the cpu executor says of itself; others leave some of it out.
_COMPUTING = {"executor": "cpu", "isa": "avx2", "weights": "Q4_1", "kv": "bfloat16"}


def families() -> list[Metric]:
    """Every metric family after a short life, so that each has series to read its labels from."""
    scheduler = Scheduler(
        SchedulerConfig(
            limits=SchedulerLimits(
                num_blocks=4,
                block_size=16,
                max_model_len=64,
                max_num_seqs=1,
                max_num_batched_tokens=16,
            )
        )
    )
    metrics = EngineMetrics("model", scheduler.statistics, _COMPUTING)
    executor = ScriptedExecutor(repeat([1]))
    engine = Engine(scheduler, executor, VirtualClock(), observers=[metrics])
    sampling = SamplingParams(max_tokens=2)
    engine.submit(Request(request_id=RequestId("r"), prompt_token_ids=(1,), sampling=sampling))
    metrics.on_events([Preempted(RequestId("r"), 0, 1)], 0.0)
    while not engine.step().is_idle:
        pass
    metrics.on_http_request("/v1/completions", 200)
    return list(metrics.registry.collect())


def exposed_name(family: Metric) -> str:
    """Return the name that queries use; a histogram's has ``_bucket`` and so on behind it."""
    return f"{family.name}_total" if family.type == "counter" else family.name


def bounds(family: Metric) -> tuple[str, ...]:
    """Return the upper bounds of a histogram's buckets, the infinite one left out."""
    found = dict.fromkeys(sample.labels["le"] for sample in family.samples if "le" in sample.labels)
    return tuple(f"{float(bound):g}" for bound in found if bound != "+Inf")


def metrics(prefix: str) -> Iterator[str]:
    """A table of the metrics whose names begin with ``prefix``."""
    header = ("name", "type", "unit", "labels", "buckets", "meaning")
    chosen = (family for family in families() if family.name.startswith(prefix))
    return table(header, map(_metric_row, chosen))


def _metric_row(family: Metric) -> tuple[str, ...]:
    assert family.samples, f"{family.name} has no series"
    labels = sorted({label for sample in family.samples for label in sample.labels} - {"le"})
    unit = UNITS.get(family.name.rpartition("_")[2], "count")
    shown = ", ".join(map(code, labels)) or "–"
    name = code(exposed_name(family))
    return (name, family.type, unit, shown, _span(bounds(family)), family.documentation)


def _span(found: tuple[str, ...]) -> str:
    return f"{found[0]} … {found[-1]}" if found else "–"


def buckets() -> Iterator[str]:
    """The bounds of each kind of histogram."""
    for found in dict.fromkeys(filter(None, map(bounds, families()))):
        yield f"- **{_span(found)}**: {', '.join(found)}"


# ------------------------------------------------------------------ refused fields


def refused(fields: Mapping[str, tuple[object, ...]], *leave_out: str) -> Iterator[str]:
    """A table of the fields that pass only with a value that asks for nothing."""
    rows = (
        (code(name), ", ".join(code(json.dumps(value)) for value in (None, *off)))
        for name, off in fields.items()
        if name not in leave_out
    )
    return table(("field", "values that pass"), rows)


PARTS: dict[str, dict[str, Callable[[], Iterator[str]]]] = {
    "settings.md": {"settings": settings, "tables": tables, "protect": protect},
    "metrics.md": {
        "metrics": lambda: metrics("headway_"),
        "aliases": lambda: metrics("vllm:"),
        "buckets": buckets,
    },
    "http-api.md": {
        "refused by both": lambda: refused(refusals.GENERATION),
        "refused in stream_options": lambda: refused(refusals.STREAM_OPTIONS),
        "refused by chat": lambda: refused(refusals.CHAT, *refusals.GENERATION),
        "refused in messages": lambda: refused(refusals.MESSAGE),
        "refused in parts": lambda: refused(refusals.PART),
        "refused by completions": lambda: refused(refusals.COMPLETION, *refusals.GENERATION),
    },
}


def renewed(text: str, parts: Mapping[str, Callable[[], Iterator[str]]]) -> str:
    """Return a document with its generated parts made anew.

    Raises:
        ValueError: the marks of a part are not there exactly once.
    """
    for name, lines in parts.items():
        begin, end = f"<!-- generated: {name} -->\n", f"<!-- end: {name} -->\n"
        if text.count(begin) != 1 or text.count(end) != 1:
            raise ValueError(f"the marks of {name!r} must be there exactly once")
        before, _, rest = text.partition(begin)
        after = rest.partition(end)[2]
        body = "\n".join(lines()).strip()
        text = f"{before}{begin}\n{body}\n\n{end}{after}"
    return text


def main(arguments: Sequence[str]) -> int:
    """Renew all documents, or check them."""
    stale = []
    for name, parts in PARTS.items():
        path = DOCS / name
        old = path.read_text(encoding="utf-8")
        new = renewed(old, parts)
        if new != old:
            stale.append(name)
        if "--check" not in arguments:
            path.write_text(new, encoding="utf-8")
    if stale:
        print(("out of date: " if "--check" in arguments else "renewed: ") + ", ".join(stale))
    return 1 if stale and "--check" in arguments else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
