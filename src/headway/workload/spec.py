"""What a workload is made of, as a person writes it: one or several streams of requests.

Each field of :class:`Stream` is a key of a workload file and a flag of ``headway bench``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from math import inf
from typing import Any

from headway.workload.errors import WorkloadError
from headway.workload.lengths import SYNTAX, parse_lengths
from headway.workload.processes import parse_steps

SOURCES = ("synthetic", "azure", "mooncake", "servegen", "csv", "vllm-bench", "jsonl", "lines")
PROCESSES = ("poisson", "gamma", "constant", "trace")
#: sources that say when requests come
TIMED_SOURCES = ("azure", "mooncake", "servegen", "csv", "vllm-bench", "jsonl")
#: sources that may say the class of each request
_WITH_CLASSES = ("csv", "jsonl")

#: of an open loop; a slip of the pen shouldn't take all memory
MAX_REQUESTS = 10_000_000


def _key(
    default: Any, meaning: str, *, key: str | None = None, choices: tuple[str, ...] = ()
) -> Any:
    extra = {"meaning": meaning, "key": key, "choices": choices}
    return field(default=default, metadata=extra)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """Requests of one kind: what they are, when they come, whose they are, how clients behave.

    The meaning of each field stands with it, where flags and documents take it from.

    Raises:
        WorkloadError: fields contradict each other, or a value is out of its range.
    """

    source: str = _key("synthetic", "what the requests are", choices=SOURCES)
    path: str | None = _key(None, "file of the source; for servegen the folder of its clients")
    process: str | None = _key(
        None,
        "when they come, in open loop; unset: trace if the source has times, else poisson",
        choices=PROCESSES,
    )
    request_rate: float | None = _key(
        None, "requests a second; inf: all at once; a trace is stretched to it"
    )
    rate_steps: str | None = _key(
        None, "a rate that changes: SECONDS:RATE,SECONDS:RATE,…, in place of request_rate"
    )
    burstiness: float = _key(
        1.0, "shape of process gamma, 1/cv²: below 1 comes in bursts, 1 is Poisson"
    )
    concurrency: int | None = _key(
        None, "closed loop: so many clients, each with one request at a time"
    )
    think_s: float = _key(0.0, "closed loop: how long a client waits after each answer")
    start_s: float = _key(0.0, "when the stream begins; of a trace it is cut off before")
    num_requests: int | None = _key(None, "requests at most")
    prompt_tokens: str | int = _key("128", f"length of synthetic prompts: {SYNTAX}")
    output_tokens: str | int = _key(
        "64", "length of answers, likewise, where the source doesn't say it"
    )
    shared_prefix_tokens: int = _key(0, "so much of each synthetic prompt is the same for all")
    length_factor: float = _key(1.0, "multiplies the lengths of prompts and answers")
    max_prompt_tokens: int | None = _key(None, "longer prompts are cut to this")
    max_output_tokens: int | None = _key(None, "longer answers are cut to this")
    num_clients: int | None = _key(None, "servegen: only so many clients, the busiest")
    class_name: str | None = _key(
        None, "service class; unset: what the source says, else default", key="class"
    )
    tenant: str | None = _key(None, "tenant; unset: what the source says")
    cancel_share: float = _key(0.0, "share of clients that go away before the end")
    cancel_after_s: float | None = _key(None, "… so many seconds after their request came")
    cancel_after_tokens: int | None = _key(None, "… after so many tokens")
    stall_share: float = _key(0.0, "share of clients that stop reading for a time")
    stall_after_tokens: int = _key(1, "… after so many tokens")
    stall_s: float = _key(30.0, "… for so many seconds")

    @property
    def is_closed(self) -> bool:
        """Whether clients wait for their answers before they send the next request."""
        return self.concurrency is not None

    @property
    def is_timed(self) -> bool:
        """Whether the times are those of the source."""
        if self.is_closed or self.source not in TIMED_SOURCES:
            return False
        if self.process is None:
            return self.rate_steps is None
        return self.process == "trace"

    @property
    def says_classes(self) -> bool:
        """Whether the classes are those that a file of requests may say."""
        return self.class_name is None and self.source in _WITH_CLASSES

    @property
    def cv(self) -> float:
        """The coefficient of variation of the gaps of process ``gamma``."""
        return float(self.burstiness**-0.5)

    def __post_init__(self) -> None:
        for check in (_check_numbers, _check_shares, _check_source, _check_times):
            flaw = check(self)
            if flaw:
                raise WorkloadError(flaw)
        parse_lengths(self.prompt_tokens)
        parse_lengths(self.output_tokens)


#: in place of a class: those that have no targets of their own
EVERY_CLASS = "*"


@dataclass(frozen=True, slots=True, kw_only=True)
class Targets:
    """What was promised to a class, in seconds; None promises nothing."""

    ttft_s: float | None = None
    tpot_s: float | None = None
    e2el_s: float | None = None

    @property
    def are_any(self) -> bool:
        """Whether anything was promised."""
        return any(getattr(self, each.name) is not None for each in fields(self))

    def under(self, other: Targets) -> Targets:
        """Return these, with those of ``other`` in the place of the same ones."""
        stated = {each.name: getattr(other, each.name) for each in fields(other)}
        return replace(self, **{name: value for name, value in stated.items() if value is not None})


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadSpec:
    """A whole workload.

    Attributes:
        streams: at least one; they run beside each other.
        duration_s: nothing is sent after that; None is when the streams end.
        seed: decides everything that is drawn.
        targets: by class; :data:`EVERY_CLASS` stands for those that are not named.
    """

    streams: tuple[Stream, ...]
    duration_s: float | None = None
    seed: int = 0
    targets: Mapping[str, Targets] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.streams:
            raise WorkloadError("a workload needs at least one stream")
        if self.duration_s is not None and not 0 < self.duration_s < inf:
            raise WorkloadError(f"duration_s must be above 0, not {self.duration_s}")
        for stream in self.streams:
            if self.duration_s is None and stream.num_requests is None and _is_endless(stream):
                raise WorkloadError("say how much: num_requests of each stream, or duration_s")
            _check_count(stream, self.duration_s)

    @property
    def class_names(self) -> tuple[str, ...] | None:
        """The classes of its requests; None where only a file of requests says them."""
        if any(each.says_classes for each in self.streams):
            return None
        return tuple(dict.fromkeys(each.class_name or "default" for each in self.streams))


def _check_count(stream: Stream, duration_s: float | None) -> None:
    """Refuse more requests than memory holds: those of an open loop are all made before it runs."""
    if stream.request_rate is None or stream.is_timed:
        return
    in_time = inf if duration_s is None else stream.request_rate * duration_s
    count = min(in_time, inf if stream.num_requests is None else stream.num_requests)
    if count > MAX_REQUESTS:
        raise WorkloadError(
            f"request_rate {stream.request_rate:g} would make more than {MAX_REQUESTS:,} requests: "
            "lower it, or say num_requests"
        )


def _is_endless(stream: Stream) -> bool:
    if stream.rate_steps is not None:
        return False
    return not (stream.is_timed and stream.source != "servegen")


_ABOVE_0 = (
    "request_rate",
    "burstiness",
    "concurrency",
    "num_requests",
    "length_factor",
    "max_prompt_tokens",
    "max_output_tokens",
    "num_clients",
    "cancel_after_s",
    "cancel_after_tokens",
    "stall_after_tokens",
)
_NOT_BELOW_0 = ("think_s", "start_s", "shared_prefix_tokens", "stall_s")


def _check_numbers(stream: Stream) -> str | None:
    for name in (*_ABOVE_0, *_NOT_BELOW_0):
        value = getattr(stream, name)
        if value is None:
            continue
        if name in _ABOVE_0 and not value > 0:
            return f"{name} must be above 0, not {value}"
        if not value >= 0 or (value == inf and name != "request_rate"):
            return f"{name} must be finite and not negative, not {value}"
    return None


def _check_shares(stream: Stream) -> str | None:
    for name in ("cancel_share", "stall_share"):
        if not 0 <= getattr(stream, name) <= 1:
            return f"{name} must lie between 0 and 1, not {getattr(stream, name)}"
    if stream.cancel_share + stream.stall_share > 1:
        return "cancel_share and stall_share are together more than 1"
    says_when = stream.cancel_after_s is not None or stream.cancel_after_tokens is not None
    if stream.cancel_share and not says_when:
        return "cancel_share needs cancel_after_s or cancel_after_tokens"
    if says_when and not stream.cancel_share:
        return "cancel_after_s and cancel_after_tokens need cancel_share"
    if not stream.stall_share and not _are_default(stream, "stall_after_tokens", "stall_s"):
        return "stall_after_tokens and stall_s need stall_share"
    return None


def _are_default(stream: Stream, *names: str) -> bool:
    defaults = {each.name: each.default for each in fields(stream)}
    return all(getattr(stream, name) == defaults[name] for name in names)


def _check_source(stream: Stream) -> str | None:
    for name, choices in (("source", SOURCES), ("process", PROCESSES)):
        value = getattr(stream, name)
        if value is not None and value not in choices:
            return f"{name} must be one of {', '.join(choices)}, not {value!r}"
    if (stream.path is None) != (stream.source == "synthetic"):
        what = "has no path" if stream.source == "synthetic" else "needs path"
        return f"source {stream.source} {what}"
    if stream.num_clients is not None and stream.source != "servegen":
        return "num_clients goes with source servegen"
    if stream.shared_prefix_tokens and stream.source not in ("synthetic", "lines"):
        return "shared_prefix_tokens goes with sources synthetic and lines"
    return _check_lengths(stream)


#: sources whose requests have no length of their own, or none of their answers
_WITHOUT_PROMPTS = ("synthetic", "lines")
_WITHOUT_OUTPUTS = (*_WITHOUT_PROMPTS, "jsonl")


def _check_lengths(stream: Stream) -> str | None:
    for name, sources in (("prompt_tokens", _WITHOUT_PROMPTS), ("output_tokens", _WITHOUT_OUTPUTS)):
        if stream.source not in sources and not _are_default(stream, name):
            limits = "length_factor, max_prompt_tokens and max_output_tokens"
            return f"{name}: source {stream.source} says the lengths; {limits} change them"
    return None


def _check_times(stream: Stream) -> str | None:
    if stream.is_closed:
        return _check_closed(stream)
    if stream.think_s:
        return "think_s needs concurrency: in open loop nobody waits for answers"
    if stream.process == "trace" and stream.source not in TIMED_SOURCES:
        return f"process trace: source {stream.source} has no times"
    if stream.rate_steps is not None:
        parse_steps(stream.rate_steps)
        if stream.request_rate is not None or stream.process == "trace":
            return "rate_steps stand in place of request_rate, and not with process trace"
    if flaw := _check_gaps(stream):
        return flaw
    if not stream.is_timed and stream.request_rate is None and stream.rate_steps is None:
        return "say when requests come: request_rate, rate_steps or concurrency"
    return None


def _check_closed(stream: Stream) -> str | None:
    for name in ("process", "request_rate", "rate_steps"):
        if getattr(stream, name) is not None:
            return f"{name} is for open loops, and concurrency makes a closed one: leave out one"
    return _check_gaps(stream)


def _check_gaps(stream: Stream) -> str | None:
    if stream.burstiness != 1 and stream.process != "gamma":
        return "burstiness goes with process gamma"
    return None


@dataclass(frozen=True, slots=True)
class Key:
    """One key of a stream, for files, flags and documents."""

    name: str
    field: str
    kind: Callable[[Any], Any]
    default: Any
    meaning: str
    choices: tuple[str, ...]


def stream_keys() -> tuple[Key, ...]:
    """Return all keys of a stream, in order."""
    return tuple(
        Key(
            name=each.metadata["key"] or each.name,
            field=each.name,
            kind=_kind(str(each.type)),
            default=each.default,
            meaning=each.metadata["meaning"],
            choices=each.metadata["choices"],
        )
        for each in fields(Stream)
    )


def _kind(annotation: str) -> Callable[[Any], Any]:
    if annotation.startswith("str"):
        return str
    return int if annotation.startswith("int") else float
