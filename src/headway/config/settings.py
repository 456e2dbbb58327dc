"""Every setting of Headway: meaning, unit, default and range, in this one file.

``headway config`` prints them with the origin of each value; ``headway serve --help`` shows the
flags made from them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import ClassVar, Literal

from headway.config.consistency import (
    DEFAULT_CLASS,
    check_headers,
    check_profile,
    check_scheduler,
    check_together,
)
from headway.config.declare import Section, Setting, setting, settings_of
from headway.config.traffic import ClassSettings, TenantSettings


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
    load_format: Literal["auto", "dummy"] = setting(
        "auto",
        "where the weights come from; `auto`: from the files; `dummy`: random ones of the right "
        "shapes, for measurements; of a directory it takes all but the weights",
    )
    dummy_format: (
        Literal[
            "F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q4_K", "Q5_0", "Q5_1", "Q5_K", "Q6_K"
        ]
        | None
    ) = setting(
        None,
        "storage format that dummy weights pretend to have been read in, block formats as in GGUF; "
        "unset: the `dtype` of `config.json`",
    )
    executor: Literal["cpu", "torch", "simulated"] = setting(
        "cpu",
        "what computes the steps; `cpu`: fast kernels in C++; `torch`: the readable reference, "
        "needs torch; `simulated` takes modelled time and answers arbitrary tokens",
        planned=("replay",),
    )
    quantization: Literal["auto", "float32", "bfloat16", "int8"] = setting(
        "auto",
        "precision of the weights with the cpu executor; `auto` keeps the file's own, `int8` has "
        "8 bits and coarse scales: the fastest for prompts and many sequences",
    )
    isa: Literal["auto", "avx512", "avx2", "portable"] = setting(
        "auto",
        "instruction set of the cpu executor's kernels; `auto`: the best that the processor has",
    )
    dtype: Literal["float32", "bfloat16"] | None = setting(
        None, "type of weights, activations and KV with the torch executor; unset: float32"
    )
    max_model_len: int | None = setting(
        None,
        "longest sequence, prompt and output together; unset: the model's context, lowered to "
        "what the KV cache holds",
        unit="tokens",
        at_least=2,
    )
    num_threads: int | None = setting(
        None,
        "threads that compute; unset: as many as there are cores; fewer where others use them too",
        at_least=1,
        at_most=1024,
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

    batching: Literal["static", "dynamic", "continuous"] = setting(
        "continuous",
        "how batches form; `static`: a batch forms when it is full or the wait is over, nobody "
        "joins, and slots last until all have ended; `dynamic`: sequences join and leave, and each "
        "step is padded to its longest member; `continuous`: formed anew every step, without "
        "padding",
    )
    policy: Literal["fcfs", "sjf", "priority", "fair", "slo"] = setting(
        "fcfs",
        "in which order waiting requests are looked at; `fcfs`: by arrival; `sjf`: by expected "
        "output length; `priority`: by number, and may take slots and blocks from running work; "
        "`fair`: by tokens served to each class and tenant; `slo`: by what is left until the "
        "class's targets, with steps so small that running requests keep their `tpot_p99_ms`",
    )
    protect: Literal["ttft", "tpot", "throughput"] | None = setting(
        None,
        "what matters most: it sets what nothing else sets, and warns of settings that "
        "contradict it; unset: nothing is set or warned of",
    )
    max_num_seqs: int = setting(64, "sequences that run at once at most", at_least=1)
    max_num_batched_tokens: int = setting(
        1024, "tokens computed in a step at most, at least `max_num_seqs`", at_least=1
    )
    max_waiting_time_ms: float = setting(
        0.0,
        "how long new requests may be held back for a batch to fill; never longer than their "
        "target for the first token allows, and not once the batch is full",
        at_least=0,
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
    max_partial_prefills: int | None = setting(
        None, "sequences whose prompt is computed in part at most; unset: any number", at_least=1
    )
    long_prefill_threshold_tokens: int | None = setting(
        None,
        "prompts with more tokens to compute are long: with continuous batching short ones go "
        "before them, and they keep half of what the running sequences leave; unset: none is",
        at_least=1,
    )
    max_long_partial_prefills: int | None = setting(
        None,
        "long prompts in computation at once; others let short ones pass; unset: any number; "
        "needs `long_prefill_threshold_tokens`",
        at_least=1,
    )
    max_passes: int = setting(
        16,
        "how many sequences may start before one that goes first but lacks KV blocks; they give "
        "their blocks back as soon as it can start",
        at_least=0,
    )
    preemption_victim: Literal["least_lost", "newest"] = setting(
        "least_lost",
        "who of several gives its blocks to a sequence that came before it; `least_lost`: who has "
        "computed least; `newest`: who came last, as other engines do: fewer are preempted",
    )
    preemption_mode: Literal["recompute", "swap", "auto"] = setting(
        "auto",
        "what becomes of the KV of preempted sequences; `recompute`: computed again; `swap`: moved "
        "to the swap space, while that has room; `auto`: whichever is cheaper by the measured "
        "cost; without `swap_space_bytes` always computed again",
    )
    max_preemptions: int = setting(
        3,
        "a sequence preempted so often resumes only with all blocks that it can ever need, and is "
        "preempted no more",
        at_least=0,
    )
    sjf_predictor: Literal["learned", "hint", "max_tokens"] = setting(
        "learned",
        "where `sjf` takes the expected output length from; `learned`: what such requests had, by "
        "class, tenant and prompt length; `hint`: what the client expects, and learned where it "
        "says nothing; `max_tokens`: that of the request",
    )
    ageing_s: float = setting(
        60.0,
        "nobody who came this much later goes first: the longest head start that `sjf` and `slo` "
        "give, and the head start for each level of `priority`",
        above=0,
    )
    priority_threshold: int | None = setting(
        1,
        "levels of priority by which waiting work must surpass running work to take its slot or "
        "blocks; none: it takes neither",
        at_least=1,
    )
    input_token_weight: float = setting(
        1.0, "what a computed prompt token counts in shares between classes and tenants", above=0
    )
    output_token_weight: float = setting(
        2.0, "what an output token counts in shares between classes and tenants", above=0
    )
    queue_timeout_s: float | None = setting(
        None,
        "a request that has waited this long without running ends, unless its class says "
        "otherwise; unset: never",
        above=0,
    )
    request_timeout_s: float | None = setting(
        None,
        "a request that has taken this long ends, unless its class says otherwise; unset: never",
        above=0,
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
        check_scheduler(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class KvSettings(Section):
    """The memory for keys and values. ``num_blocks`` wins over ``capacity_bytes``."""

    section: ClassVar[str] = "kv"

    block_size: int = setting(16, "tokens in a block", at_least=1, at_most=4096)
    dtype: Literal["bfloat16", "int8", "float32"] | None = setting(
        None, "type of keys and values with the cpu executor; unset: bfloat16", flag="kv-dtype"
    )
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
    prefix_sharing: Literal["tenant", "all", "off"] = setting(
        "tenant",
        "who shares blocks of equal beginnings; `tenant`: requests of one tenant; `all`: requests "
        "of everybody, who could then tell by the time whether others sent the same; `off`: nobody",
    )
    swap_space_bytes: int = setting(
        0, "memory for the blocks of preempted sequences; 0 is none", at_least=0
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulationSettings(Section):
    """How long a step takes with ``executor = "simulated"``."""

    section: ClassVar[str] = "simulation"

    step_base_ms: float = setting(5.0, "time of any step", at_least=0)
    prefill_ms_per_token: float = setting(0.05, "added for each prompt token", at_least=0)
    decode_ms_per_sequence: float = setting(0.1, "added for each decoding sequence", at_least=0)
    swap_ms_per_block: float = setting(
        0.02, "added for each block moved to the swap space or back", at_least=0
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings(Section):
    """The HTTP side."""

    section: ClassVar[str] = "server"

    host: str = setting("127.0.0.1", "address to listen on; `0.0.0.0` for all")
    port: int = setting(8000, "port to listen on; 0 takes a free one", at_least=0, at_most=65535)
    api_key: tuple[str, ...] = setting(
        (),
        "keys of which clients must send one (`Authorization: Bearer KEY`), if not that of a "
        "tenant; none, and no tenant has one: all may come",
        secret=True,
    )
    class_header: str | None = setting(
        None,
        "header in which a trusted gateway names the class of a request; unset: none is believed",
    )
    tenant_header: str | None = setting(
        None,
        "header in which a trusted gateway names the tenant of a request; unset: none is believed",
    )
    default_class: str | None = setting(
        None,
        "class of requests of which nothing else says it; unset: the one named default, else the "
        "first",
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

    def __post_init__(self) -> None:
        """Refuse names that no header can have."""
        Section.__post_init__(self)
        check_headers(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalSettings(Section):
    """The record of what the scheduler was told and decided."""

    section: ClassVar[str] = "journal"

    path: str | None = setting(None, "file to write the journal to; unset: none", flag="journal")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileSettings(Section):
    """What steps cost on this machine, learned while serving, for simulations and plans."""

    section: ClassVar[str] = "profile"

    path: str | None = setting(
        None,
        "profile to begin with, if it exists, and to keep current while serving; unset: none",
        flag="keep-profile",
    )
    every_s: float | None = setting(
        None,
        "how often the profile is written; unset: 60",
        above=0,
        flag="keep-profile-every-s",
    )

    def __post_init__(self) -> None:
        """Refuse an interval at which nothing is written."""
        Section.__post_init__(self)
        check_profile(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """All sections. Immutable, and every value is checked when a section is made.

    ``classes`` and ``tenants`` are by name, in the order of the file.

    Raises:
        ContradictionError: parts that are allowed each contradict each other.
    """

    model: ModelSettings = ModelSettings()
    scheduler: SchedulerSettings = SchedulerSettings()
    kv: KvSettings = KvSettings()
    simulation: SimulationSettings = SimulationSettings()
    server: ServerSettings = ServerSettings()
    journal: JournalSettings = JournalSettings()
    profile: ProfileSettings = ProfileSettings()
    classes: Mapping[str, ClassSettings] = dataclasses.field(default_factory=dict)
    tenants: Mapping[str, TenantSettings] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        """Freeze the tables, and refuse what does not go together."""
        object.__setattr__(self, "classes", MappingProxyType(dict(self.classes)))
        object.__setattr__(self, "tenants", MappingProxyType(dict(self.tenants)))
        check_together(self)

    @property
    def default_class(self) -> str:
        """The class of requests of which nothing says it."""
        if self.server.default_class is not None:
            return self.server.default_class
        names = list(self.classes) or [DEFAULT_CLASS]
        return DEFAULT_CLASS if DEFAULT_CLASS in names else names[0]


SECTIONS: dict[str, type[Section]] = {
    field.name: type(field.default)
    for field in dataclasses.fields(Settings)
    if isinstance(field.default, Section)
}


@cache
def all_settings() -> tuple[Setting, ...]:
    """Every setting of the sections, in their order; those of named tables are not in it."""
    return tuple(found for section in SECTIONS.values() for found in settings_of(section))
