"""How long a step takes, host and all; the arithmetic of a plan asks for nothing else."""

from __future__ import annotations

from headway.planning.advice_figures import decode_s
from headway.profiles.shape import Chunk, StepCost, StepShape
from headway.sim.replica import Machine


class EngineCost:
    """Implements :class:`StepCost`: the device's time with what the host adds to it.

    The host's time is hidden while the device is busy, where the engine plans ahead.
    """

    def __init__(self, machine: Machine) -> None:
        self._device = machine.cost
        self._host = machine.host
        self._overlaps = machine.config.limits.max_plans_in_flight > 1

    def seconds(self, shape: StepShape) -> float:
        """Return the predicted time of a step."""
        device_s = self._device.seconds(shape)
        if self._host is None:
            return device_s
        host_s = self._host(shape)
        return max(device_s, host_s) if self._overlaps else device_s + host_s


def mixed_s(cost: StepCost, num_decodes: int, context: float, num_prefill: float) -> float:
    """Return how long a step takes that decodes so many, and computes so much of prompts beside.

    Args:
        cost: of a step.
        num_decodes: sequences that decode.
        context: positions that each of them holds.
        num_prefill: tokens of prompts; rounded up.
    """
    length = -int(-num_prefill // 1)
    if not length:
        return decode_s(cost, num_decodes, round(context))
    chunks = (Chunk(0, length),) if length > 1 else ()
    # a slice of one position is a decode, whatever it is a part of
    decodes = num_decodes + (length == 1)
    held = round(context)
    if not decodes:
        return cost.seconds(StepShape(chunks))
    return cost.seconds(StepShape(chunks, decodes, decodes * held, held, held))
