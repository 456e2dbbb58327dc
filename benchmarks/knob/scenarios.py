"""What the knobs are turned on: a configuration, what arrives, and what a step costs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from random import Random
from typing import Any

from headway.core.classes import ServiceClass
from headway.core.config import PolicyConfig, PredictorName, SchedulerConfig
from headway.core.costs import StepCosts
from headway.core.limits import SchedulerLimits
from headway.core.request import PromptHashes
from headway.workload import Arrival, drawn_between, merged, poisson_arrivals

COST = StepCosts(base_s=0.01, prefill_token_s=0.0001, decode_s=0.0003, swap_block_s=0.0001)
LIMITS = SchedulerLimits(
    num_blocks=4096,
    block_size=16,
    max_model_len=8192,
    max_num_seqs=32,
    max_num_batched_tokens=1024,
)

Turn = Callable[[SchedulerConfig, Any], SchedulerConfig]


@dataclass(frozen=True, slots=True)
class Scenario:
    """A workload on a configuration, in which one knob is turned."""

    name: str
    config: SchedulerConfig
    arrivals: Callable[[], list[Arrival]]

    def having(self, name: str, **limits: Any) -> Scenario:
        """Return the same with other limits to begin with."""
        config = replace(self.config, limits=replace(self.config.limits, **limits))
        return Scenario(name, config, self.arrivals)


def limit(field: str) -> Turn:
    """Return what turns a field of the limits."""
    return lambda config, value: replace(config, limits=replace(config.limits, **{field: value}))


def policy(field: str) -> Turn:
    """Return what turns a field of the policy."""
    return lambda config, value: replace(config, policy=replace(config.policy, **{field: value}))


def in_class(name: str, field: str) -> Turn:
    """Return what turns a field of one class."""
    return lambda config, value: with_class(config, name, **{field: value})


def with_class(config: SchedulerConfig, name: str, **fields: Any) -> SchedulerConfig:
    """Return the configuration with other values in one class."""
    classes = tuple(replace(c, **fields) if c.name == name else c for c in config.classes)
    return replace(config, classes=classes)


def config(*classes: ServiceClass, **limits: Any) -> SchedulerConfig:
    """Return the configuration in which nothing was turned."""
    made = replace(LIMITS, **limits)
    return SchedulerConfig(limits=made, classes=classes or (ServiceClass(),), costs=COST)


def _stream(
    rate: float,
    duration_s: float,
    seed: int,
    prompt: tuple[int, int],
    output: tuple[int, int],
    class_name: str = "default",
) -> list[Arrival]:
    random = Random(seed)
    lengths = drawn_between(prompt, output, random)
    drawn = poisson_arrivals(rate, lengths, random, duration_s=duration_s, class_name=class_name)
    return [replace(each, max_tokens=output[1] + 56) for each in drawn]


def _at_once(arrivals: list[Arrival]) -> list[Arrival]:
    return [replace(each, at_s=0.0) for each in arrivals]


@cache
def _chats() -> list[Arrival]:
    return _stream(4.0, 90, 1, (32, 512), (40, 200))


@cache
def _backlog() -> list[Arrival]:
    return _at_once(_stream(4.0, 75, 1, (32, 512), (40, 200)))


@cache
def _equal_backlog() -> list[Arrival]:
    return _at_once(_stream(4.0, 64, 1, (256, 256), (128, 128)))


@cache
def _mix() -> list[Arrival]:
    return merged(
        _stream(3.0, 90, 2, (32, 256), (40, 160)), _stream(0.4, 90, 3, (3000, 6000), (40, 160))
    )


@cache
def _overload() -> list[Arrival]:
    return _stream(16.0, 60, 4, (32, 512), (40, 200))


@cache
def _overload_with_hints() -> list[Arrival]:
    return [replace(each, expected_output_tokens=each.output_tokens) for each in _overload()]


@cache
def _sparse() -> list[Arrival]:
    return _stream(1.0, 120, 5, (32, 512), (40, 200))


@cache
def _long_answers() -> list[Arrival]:
    short = _stream(4.0, 90, 6, (32, 256), (20, 80))
    long = _stream(0.9, 90, 7, (32, 256), (1000, 2000))
    return merged(short, long)


@cache
def _two_classes() -> list[Arrival]:
    urgent = _stream(9.0, 60, 8, (32, 256), (40, 160), "interactive")
    patient = _stream(2.5, 60, 9, (256, 1024), (100, 300), "batch")
    return merged(urgent, patient)


@cache
def _calm_and_batch() -> list[Arrival]:
    urgent = _stream(2.0, 60, 8, (32, 256), (40, 160), "interactive")
    patient = _stream(6.0, 60, 9, (256, 1024), (100, 300), "batch")
    return merged(urgent, patient)


@cache
def _shared_prefixes() -> list[Arrival]:
    """Each prompt begins with one of eight instructions of 512 tokens."""
    random = Random(10)
    return [
        replace(each, hashes=PromptHashes(512, (random.randrange(8),)))
        for each in _stream(5.0, 90, 11, (600, 900), (40, 120))
    ]


BACKLOG = Scenario("backlog", config(), _backlog)
EQUAL_BACKLOG = Scenario("backlog of equal lengths", config(), _equal_backlog)
CHATS = Scenario("chats", config(), _chats)
MIX = Scenario("long prompts among chats", config(), _mix)
OVERLOAD = Scenario("overload", config(), _overload)
HINTED_OVERLOAD = Scenario(
    "overload with hints",
    replace(config(), policy=PolicyConfig(predictor=PredictorName.HINT)),
    _overload_with_hints,
)
SPARSE = Scenario("sparse", config(), _sparse)
LONG_ANSWERS = Scenario("long answers among short", config(), _long_answers)
SCARCE_KV = BACKLOG.having("backlog, little KV", num_blocks=512)
MANY_SLOTS = BACKLOG.having("backlog, more slots than KV", max_num_seqs=128, num_blocks=1024)
TWO_CLASSES = Scenario(
    "two classes",
    config(ServiceClass(name="interactive", priority=0), ServiceClass(name="batch", priority=1)),
    _two_classes,
)
CALM_AND_BATCH = Scenario(
    "some chats beside too much batch work", TWO_CLASSES.config, _calm_and_batch
)
SHARED_PREFIXES = Scenario("eight shared instructions", config(), _shared_prefixes)
ALL_SCENARIOS = (
    BACKLOG,
    EQUAL_BACKLOG,
    CHATS,
    SPARSE,
    MIX,
    OVERLOAD,
    HINTED_OVERLOAD,
    LONG_ANSWERS,
    TWO_CLASSES,
    CALM_AND_BATCH,
    SHARED_PREFIXES,
)
