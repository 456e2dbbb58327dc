"""Policies: in which order waiting work is looked at.

Each gives a sequence, once, a key in seconds: the time of its arrival plus a *handicap*. Smaller
keys go first. So ageing is built in: whoever waits is overtaken only by those that come within
its handicap, whatever the policy's reason. Keys of different policies can be compared.

========  ==================================================================  ==================
policy    handicap                                                            at most
========  ==================================================================  ==================
fcfs      0                                                                   0
fair      0 inside a tenant; between tenants the service decides              0
sjf       grows with the predicted output length                              ``ageing_s``
slo       the slack: target for the first token less the predicted prefill    ``ageing_s``
priority  ``ageing_s`` for each level                                         levels * ``ageing_s``
========  ==================================================================  ==================

Bound: a sequence with handicap h waits no longer than h plus the time in which everything is served
that came before its arrival + h. With ``slo`` this holds for work that can meet its target; late
work that has aged gets every fourth start of its class instead (:class:`~.queues.SlackQueue`).
"""

from __future__ import annotations

from headway.core.classes import PolicyName
from headway.core.config import PolicyConfig
from headway.core.costs import LearnedCosts
from headway.core.lifecycle import State
from headway.core.predict import OutputLengthPredictor
from headway.core.sequence import LiveRequest, Sequence

_MEDIAN_OUTPUT_TOKENS = 256
"""A sequence that is predicted to be so long gets half of the largest handicap."""


class Policies:
    """Computes the keys of sequences."""

    def __init__(
        self, config: PolicyConfig, costs: LearnedCosts, predictor: OutputLengthPredictor
    ) -> None:
        self._config = config
        self._costs = costs
        self._predictor = predictor
        self._handicaps = {
            PolicyName.FCFS: _none,
            PolicyName.FAIR: _none,
            PolicyName.SJF: self._by_length,
            PolicyName.PRIORITY: self._by_priority,
            PolicyName.SLO: self._by_slack,
        }

    def name_of(self, live: LiveRequest) -> PolicyName:
        """Return the policy inside the request's class."""
        return live.account.settings.policy or self._config.name

    @property
    def compares_classes(self) -> bool:
        """Whether the keys, not the weights, decide between classes."""
        return self._config.name in (PolicyName.PRIORITY, PolicyName.SLO)

    @property
    def looks_at_time(self) -> bool:
        """Whether work that waits loses its place when its target can't be met any more."""
        return self._config.name is PolicyName.SLO

    def precedes(self, waiting: Sequence, running: Sequence) -> bool:
        """Whether waiting work goes before the prefill of running work in the sharing of a step."""
        account = waiting.account
        if self.compares_classes:
            return waiting.cross_key < running.cross_key
        if account is not running.account:
            return account.service.virtual < running.account.service.virtual
        has_keys = self.name_of(waiting.parent) not in (PolicyName.FCFS, PolicyName.FAIR)
        return has_keys and waiting.order_key < running.order_key

    def by_right(self, running: Sequence) -> tuple[float, ...]:
        """Return the order in which running prefills share a step."""
        share = 0.0 if self.compares_classes else running.account.service.virtual
        return (share, running.cross_key, running.sequence_id)

    def place(self, live: LiveRequest) -> None:
        """Give the sequences of a new request their keys."""
        order_key = live.submitted_at + self._handicaps[self.name_of(live)](live)
        cross_key = live.submitted_at + self._handicaps[self._config.name](live)
        is_priority = self._config.name is PolicyName.PRIORITY
        priority = priority_of(live)
        level = priority if is_priority else 0
        for sequence in live.sequences:
            sequence.priority = priority
            sequence.order_key = order_key
            sequence.cross_key = cross_key
            sequence.seniority = (
                live.account.settings.best_effort,
                level,
                cross_key,
                sequence.sequence_id,
            )

    def is_too_late(self, sequence: Sequence, now: float) -> bool:
        """Whether ``slo`` finds out that a sequence can't meet its target any more."""
        live = sequence.parent
        if sequence.is_late or sequence.state is not State.WAITING:
            return False
        if PolicyName.SLO not in (self._config.name, self.name_of(live)):
            return False
        slack = ttft_slack(live, self._costs)
        return slack is not None and now > live.submitted_at + slack

    def demote(self, sequence: Sequence) -> None:
        """Put a sequence that missed its target behind those that can meet theirs."""
        sequence.is_late = True
        last = sequence.parent.submitted_at + self._config.ageing_s
        if self.name_of(sequence.parent) is PolicyName.SLO:
            sequence.order_key = last
        sequence.cross_key = last

    def learn(self, sequence: Sequence) -> None:
        """Note how long the output of a finished sequence became."""
        self._predictor.observe(sequence.parent.request, len(sequence.output_token_ids))

    def _by_length(self, live: LiveRequest) -> float:
        expected = self._predictor.predict(live.request)
        return self._config.ageing_s * expected / (expected + _MEDIAN_OUTPUT_TOKENS)

    def _by_priority(self, live: LiveRequest) -> float:
        return self._config.ageing_s * priority_of(live)

    def _by_slack(self, live: LiveRequest) -> float:
        slack = ttft_slack(live, self._costs)
        most = self._config.ageing_s
        return most if slack is None else min(max(slack, 0.0), most)


def priority_of(live: LiveRequest) -> int:
    """Return the request's priority, or that of its class; lower goes first."""
    own = live.request.priority
    return live.account.settings.priority if own is None else own


def ttft_slack(live: LiveRequest, costs: LearnedCosts) -> float | None:
    """Return how long a new request can wait and still meet its class's target, in seconds."""
    target = live.account.settings.ttft_target_s
    if target is None:
        return None
    now = costs.costs
    return target - now.base_s - now.prefill_token_s * len(live.request.prompt_token_ids)


def _none(_: LiveRequest) -> float:
    return 0.0
