"""What it costs that several devices add up their parts of a layer."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class AllReduce:
    """A straight line: ``latency_s``, and the bytes at ``bytes_per_s``.

    With tensor parallelism a layer does two of them, each over the activations of all tokens of
    the step (Shoeybi et al., "Megatron-LM", 2019).
    """

    bytes_per_s: float
    latency_s: float

    def seconds(self, num_bytes: float) -> float:
        """Return the time of one all-reduce."""
        return self.latency_s + num_bytes / self.bytes_per_s
