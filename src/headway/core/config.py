"""Everything that a scheduler is built from: plain frozen values, so a journal can hold them."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import StrEnum

from headway.core.classes import PolicyName, ServiceClass
from headway.core.costs import StepCosts
from headway.core.limits import Batching, SchedulerLimits


class PredictorName(StrEnum):
    """Where ``sjf`` takes the expected output length from."""

    #: learned online, per class, tenant and prompt length
    LEARNED = "learned"
    #: what the client says; learned where it says nothing
    HINT = "hint"
    MAX_TOKENS = "max_tokens"


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyConfig:
    """In which order work is looked at, and the numbers that the policies need.

    Attributes:
        name: the policy of classes without one of their own, and the order between classes.
        predictor: for ``sjf``.
        ageing_s: nobody who came this much later goes first, whatever the policy's reason. For
            ``sjf`` and ``slo`` it is the longest head start; for ``priority`` it is the head start
            per level of priority.
        priority_threshold: levels of priority by which waiting work must surpass running work to
            take its slot or blocks; None takes neither.
        input_token_weight: what a computed prompt token counts in ``fair`` and between classes.
        output_token_weight: what an output token counts.
        tenant_weights: (tenant, weight); tenants not named weigh 1.
    """

    name: PolicyName = PolicyName.FCFS
    predictor: PredictorName = PredictorName.LEARNED
    ageing_s: float = 60.0
    priority_threshold: int | None = 1
    input_token_weight: float = 1.0
    output_token_weight: float = 2.0
    tenant_weights: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerConfig:
    """Limits, policy, classes and the step costs to begin with (measured ones replace them).

    Requests of a class that is not listed are refused.

    Raises:
        ValueError: the parts contradict each other; the message has names and numbers.
    """

    limits: SchedulerLimits
    policy: PolicyConfig = PolicyConfig()
    classes: tuple[ServiceClass, ...] = (ServiceClass(),)
    costs: StepCosts = field(default_factory=StepCosts)

    def __post_init__(self) -> None:
        flaw = self._flaw()
        if flaw:
            raise ValueError(flaw)

    def num_blocks_for(self, settings: ServiceClass) -> int:
        """Return how many blocks a sequence of that class can ever have."""
        if settings.reserved_blocks:
            return settings.reserved_blocks
        return self.limits.num_blocks - sum(c.reserved_blocks for c in self.classes)

    def _flaw(self) -> str | None:
        names = [settings.name for settings in self.classes]
        if not names:
            return "there must be at least one class"
        if len(set(names)) < len(names):
            return f"two classes have the same name: {', '.join(sorted(names))}"
        return self._capacity_flaw() or self._reservation_flaw() or self._policy_flaw()

    def _capacity_flaw(self) -> str | None:
        limits, classes = self.limits, self.classes
        num_slots = sum(c.reserved_slots + c.num_guaranteed(limits.max_num_seqs) for c in classes)
        if num_slots > limits.max_num_seqs:
            return (
                f"reserved_slots and min_running_share of all classes need {num_slots} slots, and "
                f"max_num_seqs is {limits.max_num_seqs}"
            )
        num_reserved = sum(c.reserved_slots for c in classes)
        others = [c.name for c in classes if not c.reserved_slots]
        if others and num_reserved == limits.max_num_seqs:
            return f"all {num_reserved} slots are reserved, and none is left for {others[0]}"
        num_blocks = sum(c.reserved_blocks for c in classes)
        if num_blocks + bool(others) > limits.num_blocks:
            return f"{num_blocks} blocks are reserved, and the pool has {limits.num_blocks}"
        return None

    def _reservation_flaw(self) -> str | None:
        limits = self.limits
        reserving = [c.name for c in self.classes if c.reserved_slots]
        if not reserving:
            return None
        if limits.batching is Batching.STATIC:
            return f"static batching lets nobody join, so class {reserving[0]} can't reserve slots"
        if not limits.enable_chunked_prefill:
            return (
                f"class {reserving[0]} reserves slots, which needs enable_chunked_prefill: whole "
                "prompts of others would fill the steps"
            )
        return None

    def _policy_flaw(self) -> str | None:
        policy = self.policy
        if not 0 < policy.ageing_s < math.inf:
            return f"ageing_s must be above 0, not {policy.ageing_s}"
        if policy.priority_threshold is not None and policy.priority_threshold < 1:
            return f"priority_threshold must be at least 1, not {policy.priority_threshold}"
        for name in ("input_token_weight", "output_token_weight"):
            if not 0 < getattr(policy, name) < math.inf:
                return f"{name} must be above 0, not {getattr(policy, name)}"
        for tenant, weight in policy.tenant_weights:
            if not 0 < weight < math.inf:
                return f"the weight of tenant {tenant} must be above 0, not {weight}"
        return None
