"""The scheduler: facts in, plans out. See ``docs/design/scheduler.md`` for the reasons.

A step shares out a token budget. Running sequences come first: those that need one token, then
those inside a prefill; what is left admits waiting work. This file takes the facts in; each kind of
decision has a file of its own: who is let in (``gatekeeper``), who starts (``turns``,
``admission``, ``slots``, ``policy``, ``queues``, ``hold``), who gives way (``victims``,
``preemption``), how a step is shared (``planner``, ``chunking``, ``padded``), who holds which
blocks (``memory``), and what need not be decided step by step (``repeat``, ``lockstep``).
"""

from __future__ import annotations

from collections.abc import Callable

from headway.core import events as ev
from headway.core import invariants
from headway.core.accounts import ClassAccount, Flow, Service
from headway.core.admission import Admission
from headway.core.chunking import Chunking
from headway.core.classes import PolicyName, ServiceClass
from headway.core.commit import commit
from headway.core.config import SchedulerConfig
from headway.core.costs import LearnedCosts, StepFeatures
from headway.core.deadlines import Deadlines
from headway.core.draft import StepDraft
from headway.core.endings import Endings
from headway.core.gatekeeper import Gatekeeper
from headway.core.growth import Growth
from headway.core.hold import Hold
from headway.core.lifecycle import Move
from headway.core.limits import Batching, PreemptionChoice
from headway.core.memory import Memory
from headway.core.padded import PaddedPlanner
from headway.core.plan import Idle, RequestId, StepPlan, StepResult, TableUpdate
from headway.core.planner import ContinuousPlanner, Planner
from headway.core.policy import Policies, ttft_slack
from headway.core.predict import OutputLengthPredictor, make_predictor
from headway.core.preemption import Preemption
from headway.core.queues import FairQueue, KeyQueue, Queue, SlackQueue
from headway.core.repeat import Repeatable, Repeated, Repeater
from headway.core.request import Request
from headway.core.results import Results
from headway.core.sequence import LiveRequest
from headway.core.slots import Slots
from headway.core.starting import Starting
from headway.core.statistics import Statistics, snapshot
from headway.core.terms import on_terms
from headway.core.turns import Turns
from headway.core.victims import Victims
from headway.core.work import Work
from headway.errors import InvariantError


class Scheduler:
    """Decides who waits, how long, and who goes first. Pure: no clock, no chance, no I/O.

    ``now`` is in seconds and never runs backwards. No method raises for load or for bad requests;
    an exception is a bug of the caller or of Headway.

    Args:
        config: limits, policy and classes.
        predictor: of output lengths, for ``sjf``; None is the one that the config names.
    """

    def __init__(
        self, config: SchedulerConfig, predictor: OutputLengthPredictor | None = None
    ) -> None:
        self.config = config
        self.limits = limits = config.limits
        self._costs = LearnedCosts(config.costs)
        self._costs_matter = _weighs_costs(config)
        predictor = predictor or make_predictor(config.policy.predictor)
        self._policies = policies = Policies(config.policy, self._costs, predictor)
        accounts = {settings.name: _open(settings, config) for settings in config.classes}
        self.work = work = Work(Memory(limits, accounts.values()), accounts)
        self._slots = Slots(work, limits.max_num_seqs)
        is_priority = config.policy.name is PolicyName.PRIORITY
        threshold = config.policy.priority_threshold if is_priority else None
        victims = Victims(work, limits, threshold)
        preemption = Preemption(work, limits, self._costs)
        chunking = Chunking(config, work, self._costs)
        starting = Starting(work, limits, self._slots, chunking, victims, preemption)
        turns = Turns(work, policies, self._slots)
        admission = Admission(work, limits, policies, self._slots, turns, starting)
        growth = Growth(work, victims, preemption)
        self._planner: Planner
        if limits.batching is Batching.CONTINUOUS:
            self._planner = ContinuousPlanner(work, policies, growth, chunking, turns, admission)
        else:
            self._planner = PaddedPlanner(work, limits, growth, turns, admission)
        self._endings = Endings(work, limits, policies)
        self._results = Results(work, self._endings)
        drain_rate = self._endings.drain_rate
        self._gatekeeper = Gatekeeper(work, config, self._slots, admission, drain_rate)
        self._deadlines = Deadlines()
        self.repeater = Repeater(work, limits, admission, self._deadlines, self._results)
        self._next_sequence_id = 0
        self.scheduled_at: float | None = None  # the latest call of ``schedule``

    # ---------------------------------------------------------------- stimuli

    def submit(self, request: Request, now: float) -> ev.Admitted | ev.Rejected:
        """Take a request in, or refuse it with a reason. Refusal is its terminal event."""
        self.work.counters.submitted += 1
        refusal = self._gatekeeper.invalid(request)
        if refusal is not None:
            return self._reject(refusal)
        account = self.work.accounts[request.class_name]
        taken = on_terms(request, account.settings)
        refusal = self._gatekeeper.refusal(taken, account, now)
        if refusal is not None:
            return self._reject(refusal)
        live = self._make_live(taken, account, now)
        self._enqueue(live)
        is_clamped = taken.sampling.max_tokens < request.sampling.max_tokens
        return ev.Admitted(
            request.request_id,
            tuple(s.sequence_id for s in live.sequences),
            taken.sampling.max_tokens if is_clamped else None,
        )

    def cancel(self, request_id: RequestId, now: float, reason: str) -> tuple[ev.Event, ...]:
        """End a request: out of its container, blocks freed, chunks dropped, all in this call.

        Unknown and ended requests are ignored, since a client may leave at any moment.
        """
        live = self.work.requests.get(request_id)
        if live is not None:
            event = ev.Cancelled(request_id, reason)
            self._endings.end_request(live, Move.CANCEL, event, now)
        return self.work.take_events()

    def stop(self, request_id: RequestId, index: int, now: float) -> tuple[ev.Event, ...]:
        """End one sequence well: the text layer found a stop string in it.

        Ended requests and sequences are ignored.

        Raises:
            InvariantError: the request never had such a sequence.
        """
        live = self.work.requests.get(request_id)
        if live is None:
            return ()
        if not 0 <= index < len(live.sequences):
            raise InvariantError(f"request {request_id} has no sequence {index}")
        if live.sequences[index].is_live:
            sequence = live.sequences[index]
            self._endings.finish_sequence(sequence, ev.FinishReason.STOP, None, now)
        return self.work.take_events()

    def schedule(self, now: float) -> StepPlan | Idle:
        """Plan the next step. Idle when there is nothing to compute before a result or stimulus.

        Raises:
            InvariantError: more than ``max_plans_in_flight`` plans would be unanswered.
        """
        work, limits = self.work, self.limits
        if len(work.in_flight) >= limits.max_plans_in_flight:
            raise InvariantError(f"{len(work.in_flight)} plans are in flight already")
        self._expire(now)
        self.scheduled_at = now
        work.counters.turns += 1
        draft = StepDraft(work.counters.steps, work.counters.turns, limits.max_num_batched_tokens)
        self._planner.plan(draft, now)
        if draft.is_empty:
            return Idle(self._next_time(now), work.take_events())
        return self._commit(draft)

    def apply(self, result: StepResult, now: float) -> tuple[ev.Event, ...]:
        """Take the result of the oldest plan in flight. Results for ended work are ignored.

        Raises:
            InvariantError: the result is not that of the oldest plan in flight.
        """
        oldest = next(iter(self.work.in_flight), None)
        if result.step_id != oldest:
            raise InvariantError(f"result of step {result.step_id}, expected {oldest}")
        step = self.work.in_flight.pop(result.step_id)
        if self._costs_matter:
            self._costs.observe(step.features, result.elapsed_s)
        self._results.apply(step, result, now)
        return self.work.take_events()

    # ---------------------------------------------------------------- many steps at once

    def repeatable(self, now: float) -> Repeatable | None:
        """Return how many steps from now on would only repeat each other; None is "ask me"."""
        return self.repeater.outlook(now) if self.repeater.may_begin else None

    def repeat(self, repeated: Repeated) -> tuple[tuple[TableUpdate, ...], tuple[ev.Event, ...]]:
        """Do what as many calls of ``schedule`` and ``apply`` would, right after ``repeatable``.

        Returns how the block tables have grown, and the events of the last step, in which
        sequences may have ended; those of the tokens are left out.

        Raises:
            InvariantError: there are more steps than could be repeated.
        """
        features = StepFeatures(0, len(self.work.decoding))
        updates = self.repeater.take(repeated)
        self.scheduled_at = (repeated.began_s, *repeated.ended_s[-2:-1])[-1]
        if self._costs_matter:
            for elapsed_s in repeated.elapsed_s:
                self._costs.observe(features, elapsed_s)
        return updates, self.work.take_events()

    # ---------------------------------------------------------------- views

    def statistics(self) -> Statistics:
        """Return a frozen snapshot."""
        return snapshot(self.work)

    def check(self) -> None:
        """Check every invariant.

        Raises:
            InvariantError: one does not hold; the message has the story of the request.
        """
        if not self.work.in_flight:
            self.work.lockstep.settle()
        invariants.check(self)

    # ---------------------------------------------------------------- parts

    def _reject(self, refusal: ev.Rejected) -> ev.Rejected:
        self.work.counters.rejected += 1
        return refusal

    def _make_live(self, request: Request, account: ClassAccount, now: float) -> LiveRequest:
        flow = account.flows.get(request.tenant)
        if flow is None:
            flow = account.flows[request.tenant] = self._open_flow(request.tenant)
        flow.num_live += 1
        live = LiveRequest(request, account, flow, self._next_sequence_id, now)
        self._next_sequence_id += request.n
        self._policies.place(live)
        self.work.memory.make_chain(live)
        self.work.requests[request.request_id] = live
        self.work.num_waiting += 1
        self._deadlines.watch(live, len(self.work.requests))
        account.num_waiting_sequences += request.n
        account.num_waiting_tokens += request.n * len(request.prompt_token_ids)
        account.num_live_sequences += request.n
        num_blocks = self.work.memory.pool.blocks_for(live.sequences[0].max_positions)
        account.num_life_blocks += request.n * num_blocks
        return live

    def _open_flow(self, tenant: str) -> Flow:
        policy = self.config.policy
        weight = dict(policy.tenant_weights).get(tenant, 1.0)
        service = Service(policy.input_token_weight, policy.output_token_weight, weight)
        return Flow(tenant, service, number=self.work.counters.submitted)

    def _enqueue(self, live: LiveRequest) -> None:
        """Put a request into its queue; siblings wait for the prompt of the first to share it."""
        account, memory = live.account, self.work.memory
        self._lift(account)
        can_share = memory.cache is not None and self.limits.batching is not Batching.STATIC
        queued = live.sequences[:1] if can_share else live.sequences
        live.parked = list(live.sequences[len(queued) :])
        for sequence in queued:
            account.queue.push(sequence)
        wait_s = account.settings.max_waiting_time_s
        wait_s = self.limits.max_waiting_time_s if wait_s is None else wait_s
        slack_s = ttft_slack(live, self._costs)
        if slack_s is not None:
            # a step may just have begun when the wait is over, and others run beside the prefill
            costs = self._costs.costs
            step_s = costs.base_s + costs.decode_s * self.limits.max_num_seqs
            wait_s = min(wait_s, _PRUDENCE * slack_s - 2 * step_s)
        if wait_s > 0 and not account.has_reservation:
            for sequence in queued:
                account.hold.add(sequence.sequence_id, live.submitted_at + wait_s)

    def _lift(self, account: ClassAccount) -> None:
        """A class that had no work waiting has no claim from before; as for tenants."""
        if len(account.queue):
            return
        others = [a for a in self.work.accounts.values() if len(a.queue)]
        last = self.work.last_account
        if not others and last is not None:
            others = [last]
        floor = min((a.service.virtual for a in others), default=0.0)
        account.service.lift_to(floor)

    def _expire(self, now: float) -> None:
        while passed := self._deadlines.pop_passed(now):
            live, reason = passed
            waited_s = now - live.submitted_at
            event = ev.Expired(live.request.request_id, reason, waited_s)
            self._endings.end_request(live, Move.EXPIRE, event, now)

    def _next_time(self, now: float) -> float | None:
        """Return when a deadline passes or a hold ends."""
        times = [account.hold.first_release() for account in self.work.accounts.values()]
        times.append(self._deadlines.next())
        return min((t for t in times if t is not None and t > now), default=None)

    def _commit(self, draft: StepDraft) -> StepPlan:
        work = self.work
        work.counters.steps += 1
        released, work.released = tuple(work.released), []
        swap_out, work.swap_out = tuple(work.swap_out), []
        plan, step = commit(
            draft,
            work.accounts.values(),
            released,
            swap_out,
            work.take_events(),
            members=work.lockstep.members,
        )
        for sequence, part in step.chunks:
            if part.sample:
                work.to_decoding(sequence)
        if draft.freed_swap_blocks:
            work.memory.swap.release(draft.freed_swap_blocks)
        step.swapped, work.swapped = work.swapped, []
        work.in_flight[plan.step_id] = step
        return plan


_PRUDENCE = 0.95
"""Share of the slack that a hold may use: the time of a prefill is predicted, not known."""

_QUEUES: dict[PolicyName, Callable[[], Queue]] = {
    PolicyName.FAIR: FairQueue,
    PolicyName.SLO: SlackQueue,
}


def _weighs_costs(config: SchedulerConfig) -> bool:
    """Whether any decision asks what steps cost; else nobody need learn it."""
    return (
        PolicyName.SLO in (config.policy.name, *(each.policy for each in config.classes))
        or any(each.ttft_target_s is not None for each in config.classes)
        or config.limits.preemption_mode is PreemptionChoice.AUTO
    )


def _open(settings: ServiceClass, config: SchedulerConfig) -> ClassAccount:
    policy, limits = config.policy, config.limits
    make_queue = _QUEUES.get(settings.policy or policy.name, KeyQueue)
    return ClassAccount(
        settings,
        make_queue(),
        Hold(),
        Service(policy.input_token_weight, policy.output_token_weight, settings.weight),
        max_num_seqs=limits.max_num_seqs,
        max_num_batched_tokens=limits.max_num_batched_tokens,
        num_blocks=limits.num_blocks,
        is_alone=len(config.classes) == 1,
    )
