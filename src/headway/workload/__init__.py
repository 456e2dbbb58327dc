"""Workloads: what arrives when, and how long it is; from traces or drawn from distributions.

Everything here is a list of :class:`Arrival`, in order of time. Chance comes in as an argument.
"""

from headway.workload.arrival import Arrival
from headway.workload.errors import WorkloadError
from headway.workload.poisson import (
    drawn_between,
    drawn_from,
    exponential_gaps,
    poisson_arrivals,
)
from headway.workload.traces import read_azure, read_mooncake
from headway.workload.transform import at_rate, before, in_order, merged, rate_of, stretched

__all__ = [
    "Arrival",
    "WorkloadError",
    "at_rate",
    "before",
    "drawn_between",
    "drawn_from",
    "exponential_gaps",
    "in_order",
    "merged",
    "poisson_arrivals",
    "rate_of",
    "read_azure",
    "read_mooncake",
    "stretched",
]
