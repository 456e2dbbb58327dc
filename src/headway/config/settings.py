"""Every setting of Headway: meaning, unit, default and range, in this one file.

``headway config`` prints them with the origin of each value; ``headway serve --help`` shows the
flags made from them.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import cache
from typing import ClassVar, Literal

from headway.config.declare import Section, Setting, setting, settings_of
from headway.errors import ConfigError


class ContradictionError(ConfigError):
    """Two values are allowed each, but not together.

    Attributes:
        keys: the settings at odds.
    """

    def __init__(self, message: str, keys: tuple[str, ...]) -> None:
        super().__init__(message)
        self.keys = keys


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSettings(Section):
    """What is served, and what computes it."""

    section: ClassVar[str] = "model"

    path: str = setting(
        "smollm2-135m-instruct",
        "a directory in the Hugging Face layout, a GGUF file, a name from `headway models`, or "
        "org/name on the Hugging Face hub",
        flag="model",
    )
    served_name: str | None = setting(
        None, "name of the model in the API; unset: the last part of the path"
    )
    dtype: Literal["float32", "bfloat16"] = setting("float32", "type of weights and activations")
    executor: Literal["torch", "simulated"] = setting(
        "torch",
        "what computes the steps; `simulated` takes modelled time and answers arbitrary tokens",
        planned=("cpu", "replay"),
    )
    max_model_len: int | None = setting(
        None,
        "longest sequence, prompt and output together; unset: the model's context, lowered to "
        "what the KV cache holds",
        unit="tokens",
        at_least=2,
    )
    num_threads: int | None = setting(
        None, "threads that compute; unset: as many as there are cores", at_least=1
    )
    chat_template: str | None = setting(
        None, "file with a Jinja chat template; unset: the model's own"
    )
    seed: int | None = setting(
        None,
        "base of the seeds of requests that bring none; unset: a new one at every start",
        at_least=0,
        at_most=2**63 - 1,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerSettings(Section):
    """Who waits, how long, and who goes first."""

    section: ClassVar[str] = "scheduler"

    batching: Literal["continuous"] = setting(
        "continuous",
        "how batches form; `continuous` forms them anew every step",
        planned=("static", "dynamic"),
    )
    policy: Literal["fcfs"] = setting(
        "fcfs",
        "in which order waiting requests are looked at; `fcfs` is by arrival",
        planned=("sjf", "priority", "fair", "slo"),
    )
    max_num_seqs: int = setting(64, "sequences in a step at most", at_least=1)
    max_num_batched_tokens: int = setting(
        1024, "tokens computed in a step at most, at least `max_num_seqs`", at_least=1
    )
    enable_chunked_prefill: bool = setting(
        True,
        "compute a long prompt in parts beside the running sequences; without it "
        "`max_num_batched_tokens` must hold the longest sequence",
    )
    max_prefill_chunk_tokens: int | None = setting(
        None,
        "part of a prompt computed in a step at most; unset: what the step has left",
        unit="tokens",
        at_least=1,
    )
    queue_timeout_s: float | None = setting(
        None, "a request that has waited this long without running ends; unset: never", above=0
    )
    request_timeout_s: float | None = setting(
        None, "a request that has taken this long ends; unset: never", above=0
    )
    max_queue_requests: int | None = setting(
        1024,
        "sequences that may wait beyond those that free slots can take; more are refused with "
        "Retry-After; unset: any number",
        at_least=0,
    )
    max_queue_tokens: int | None = setting(
        None, "prompt tokens that may wait; unset: any number", at_least=1
    )

    def __post_init__(self) -> None:
        """Refuse values that contradict each other."""
        Section.__post_init__(self)
        if self.max_num_batched_tokens < self.max_num_seqs:
            raise ContradictionError(
                f"scheduler.max_num_batched_tokens ({self.max_num_batched_tokens}) must be at "
                f"least scheduler.max_num_seqs ({self.max_num_seqs}), "
                "because each running sequence computes a token in every step",
                ("scheduler.max_num_batched_tokens", "scheduler.max_num_seqs"),
            )
        if self.max_prefill_chunk_tokens is not None and not self.enable_chunked_prefill:
            raise ContradictionError(
                "scheduler.max_prefill_chunk_tokens has no effect without "
                "scheduler.enable_chunked_prefill",
                ("scheduler.max_prefill_chunk_tokens", "scheduler.enable_chunked_prefill"),
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class KvSettings(Section):
    """The memory for keys and values. ``num_blocks`` wins over ``capacity_bytes``."""

    section: ClassVar[str] = "kv"

    block_size: int = setting(16, "tokens in a block", at_least=1, at_most=4096)
    num_blocks: int | None = setting(
        None, "blocks; unset: as many as `capacity_bytes` holds", at_least=1
    )
    capacity_bytes: int | None = setting(
        None, "memory for all blocks; unset: by `memory_utilization`", at_least=1
    )
    memory_utilization: float = setting(
        0.5,
        "share of the free memory that blocks may take when `capacity_bytes` is unset; never "
        "more than `max_num_seqs` sequences of full length need",
        above=0,
        at_most=1,
    )
    watermark: float = setting(
        0.01,
        "share of the blocks kept free when new requests are let in, for the running ones to grow",
        at_least=0,
        below=1,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulationSettings(Section):
    """How long a step takes with ``executor = "simulated"``."""

    section: ClassVar[str] = "simulation"

    step_base_ms: float = setting(5.0, "time of any step", at_least=0)
    prefill_ms_per_token: float = setting(0.05, "added for each prompt token", at_least=0)
    decode_ms_per_sequence: float = setting(0.1, "added for each decoding sequence", at_least=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings(Section):
    """The HTTP side."""

    section: ClassVar[str] = "server"

    host: str = setting("127.0.0.1", "address to listen on; `0.0.0.0` for all")
    port: int = setting(8000, "port to listen on; 0 takes a free one", at_least=0, at_most=65535)
    api_key: tuple[str, ...] = setting(
        (),
        "keys of which clients must send one (`Authorization: Bearer KEY`); none: all may come",
        secret=True,
    )
    max_body_bytes: int = setting(8 * 2**20, "largest request body", at_least=1)
    keep_alive_timeout_s: int = setting(
        120, "an idle connection is closed after this time", at_least=1
    )
    sse_keep_alive_s: float = setting(
        15.0,
        "a stream that is silent for this long gets a comment, so that proxies keep it",
        above=0,
    )
    stream_stall_timeout_s: float = setting(
        60.0, "a stream that its client has not read for this long is cancelled", above=0
    )
    max_buffered_events: int = setting(
        1024,
        "events of a sequence that wait for a slow reader at most; the stream is cancelled then",
        at_least=1,
    )
    drain_timeout_s: float = setting(
        30.0, "time that running requests have to finish when the server stops", at_least=0
    )
    liveness_timeout_s: float = setting(
        60.0, "`/livez` fails when a step has taken this long", above=0
    )
    log_level: Literal["debug", "info", "warning", "error", "critical"] = setting(
        "info", "least severe messages that are logged"
    )
    access_log: bool = setting(False, "log a line for every HTTP request")


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalSettings(Section):
    """The record of what the scheduler was told and decided."""

    section: ClassVar[str] = "journal"

    path: str | None = setting(None, "file to write the journal to; unset: none", flag="journal")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """All sections. Immutable, and every value is checked when a section is made."""

    model: ModelSettings = ModelSettings()
    scheduler: SchedulerSettings = SchedulerSettings()
    kv: KvSettings = KvSettings()
    simulation: SimulationSettings = SimulationSettings()
    server: ServerSettings = ServerSettings()
    journal: JournalSettings = JournalSettings()


SECTIONS: dict[str, type[Section]] = {
    field.name: type(field.default)  # type: ignore[misc]  # every default is a section
    for field in dataclasses.fields(Settings)
}


@cache
def all_settings() -> tuple[Setting, ...]:
    """Every setting, in the order of the sections."""
    return tuple(found for section in SECTIONS.values() for found in settings_of(section))
