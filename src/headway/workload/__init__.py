"""Workloads: what arrives when, and how long it is; from traces or drawn from distributions.

A :class:`WorkloadSpec` says it as a person writes it, :func:`build` makes the requests, as
:class:`Arrival` in order of time and as closed loops. Chance comes in as an argument.
"""

from headway.workload.arrival import Arrival, Conduct, Prompt
from headway.workload.build import ClosedLoop, Workload, build, one_of_many
from headway.workload.content import Content
from headway.workload.errors import WorkloadError
from headway.workload.file import read_spec, stream_of
from headway.workload.lengths import Lengths, parse_lengths
from headway.workload.poisson import (
    drawn_between,
    drawn_from,
    exponential_gaps,
    poisson_arrivals,
)
from headway.workload.servegen import read_servegen
from headway.workload.spec import EVERY_CLASS, Stream, Targets, WorkloadSpec, stream_keys
from headway.workload.tables import read_csv, read_prompts, read_vllm_bench
from headway.workload.traces import read_azure, read_mooncake
from headway.workload.transform import at_rate, before, in_order, merged, rate_of, stretched

__all__ = [
    "EVERY_CLASS",
    "Arrival",
    "ClosedLoop",
    "Conduct",
    "Content",
    "Lengths",
    "Prompt",
    "Stream",
    "Targets",
    "Workload",
    "WorkloadError",
    "WorkloadSpec",
    "at_rate",
    "before",
    "build",
    "drawn_between",
    "drawn_from",
    "exponential_gaps",
    "in_order",
    "merged",
    "one_of_many",
    "parse_lengths",
    "poisson_arrivals",
    "rate_of",
    "read_azure",
    "read_csv",
    "read_mooncake",
    "read_prompts",
    "read_servegen",
    "read_spec",
    "read_vllm_bench",
    "stream_keys",
    "stream_of",
    "stretched",
]
