"""Says which requests are let into the queues, and on what terms; all others with a reason."""

from __future__ import annotations

from headway.core.accounts import ClassAccount
from headway.core.admission import Admission
from headway.core.classes import ServiceClass
from headway.core.config import SchedulerConfig
from headway.core.drain_rate import DrainRate
from headway.core.events import Rejected, RejectReason
from headway.core.limits import Batching, flaw_of
from headway.core.request import Request
from headway.core.slots import Slots
from headway.core.work import Work


class Gatekeeper:
    """Refuses what can never finish, what finds the queue full, and what it does not know."""

    def __init__(
        self,
        work: Work,
        config: SchedulerConfig,
        slots: Slots,
        admission: Admission,
        drain_rate: DrainRate,
    ) -> None:
        self._work = work
        self._config = config
        self._limits = config.limits
        self._slots = slots
        self._admission = admission
        self._drain_rate = drain_rate

    def invalid(self, request: Request) -> Rejected | None:
        """Refuse a flaw in itself, an id that is live, or a class that is not configured."""
        if request.request_id in self._work.requests:
            message = f"A request with id {request.request_id} is live."
            return Rejected(request.request_id, RejectReason.DUPLICATE, message)
        if request.class_name not in self._work.accounts:
            known = ", ".join(self._work.accounts)
            message = f"There is no class {request.class_name!r}; there are: {known}."
            return Rejected(request.request_id, RejectReason.INVALID, message)
        flaw = flaw_of(request)
        if flaw is not None:
            return Rejected(request.request_id, RejectReason.INVALID, flaw)
        return None

    def refusal(self, request: Request, account: ClassAccount, now: float) -> Rejected | None:
        """Say why the request can't be taken now, or ever; None if it can."""
        num_blocks = self._config.num_blocks_for(account.settings)
        refusal = self._limits.refusal(request, num_blocks)
        if refusal is not None:
            return refusal
        if account.has_reservation:
            return self._reservation_refusal(request, account, now)
        return self._queue_refusal(request, account, now)

    def _reservation_refusal(
        self, request: Request, account: ClassAccount, now: float
    ) -> Rejected | None:
        """A class with reserved capacity never queues."""
        settings = account.settings
        never = self._beyond_reservation(request, settings)
        if never is not None:
            return never
        num_slots = account.num_live_sequences + request.n
        num_blocks = account.num_life_blocks + request.n * self._num_life_blocks(request)
        if num_slots <= settings.reserved_slots and num_blocks <= settings.reserved_blocks:
            return None
        message = (
            f"The capacity reserved for class {settings.name} is taken: with this request it would "
            f"need {num_slots} of {settings.reserved_slots} slots and {num_blocks} of "
            f"{settings.reserved_blocks} blocks."
        )
        retry_after_s = self._drain_rate.retry_after_s(1, now)
        return Rejected(request.request_id, RejectReason.RESERVED_FULL, message, retry_after_s)

    def _beyond_reservation(self, request: Request, settings: ServiceClass) -> Rejected | None:
        """Refuse for good what the whole reservation would not hold."""
        num_blocks = request.n * self._num_life_blocks(request)
        if request.n <= settings.reserved_slots and num_blocks <= settings.reserved_blocks:
            return None
        message = (
            f"The request needs {request.n} slots and {num_blocks} blocks; reserved for class "
            f"{settings.name} are {settings.reserved_slots} and {settings.reserved_blocks}."
        )
        return Rejected(request.request_id, RejectReason.KV_CAPACITY, message)

    def _num_life_blocks(self, request: Request) -> int:
        num_positions = len(request.prompt_token_ids) + max(request.sampling.max_tokens - 1, 0)
        return self._work.memory.pool.blocks_for(num_positions)

    def _queue_refusal(
        self, request: Request, account: ClassAccount, now: float
    ) -> Rejected | None:
        message = self._beyond_slots(request, account) or self._beyond_tokens(request, account)
        if message is None:
            return None
        num_waiting = sum(a.num_waiting_sequences for a in self._work.accounts.values())
        retry_after_s = self._drain_rate.retry_after_s(num_waiting, now)
        return Rejected(request.request_id, RejectReason.QUEUE_FULL, message, retry_after_s)

    def _beyond_tokens(self, request: Request, account: ClassAccount) -> str | None:
        num_tokens = sum(a.num_waiting_tokens for a in self._work.accounts.values())
        settings = account.settings
        name = f" of class {settings.name}"
        return _too_long(request, num_tokens, self._limits.max_queue_tokens, "") or _too_long(
            request, account.num_waiting_tokens, settings.max_queue_tokens, name
        )

    def _beyond_slots(self, request: Request, account: ClassAccount) -> str | None:
        """Say that too many sequences would wait for a slot; one request may wait whole."""
        accounts, settings = self._work.accounts.values(), account.settings
        most = self._limits.max_queue_requests
        num_waiting = sum(a.num_waiting_sequences for a in accounts)
        if most is not None and num_waiting + request.n > most:
            num_excess = self._num_excess(request, account)
            if _are_too_many(request, num_waiting, num_excess, most):
                return _full("", num_excess, most)
        most = settings.max_queue_requests
        num_waiting = account.num_waiting_sequences
        if most is not None and num_waiting + request.n > most:
            num_excess = num_waiting + request.n - self._num_startable(account)
            if _are_too_many(request, num_waiting, num_excess, most):
                return _full(f" of class {settings.name}", num_excess, most)
        return None

    def _num_excess(self, request: Request, account: ClassAccount) -> int:
        """Return how many sequences would wait for a slot, with this request.

        A free slot counts for a class only if it may take it.
        """
        num_stuck = num_waiting = 0
        for each in self._work.accounts.values():
            number = each.num_waiting_sequences + (request.n if each is account else 0)
            num_waiting += number
            if number:
                num_stuck += max(number - self._num_startable(each), 0)
        return max(num_stuck, num_waiting - self._num_free())

    @property
    def _is_closed(self) -> bool:
        """Whether a static batch runs, which nobody joins."""
        return self._limits.batching is Batching.STATIC and len(self._work.running) > 0

    def _num_free(self) -> int:
        if self._is_closed or self._admission.is_first_blocked():
            return 0
        return self._slots.num_free

    def _num_startable(self, account: ClassAccount) -> int:
        """Return how many waiting sequences of the class only wait for the next step.

        Those are its free slots, or none while its first one waits for blocks, or a static batch
        runs.
        """
        if self._is_closed or self._admission.is_first_blocked(account):
            return 0
        return max(self._slots.free_for(account), 0)


def _are_too_many(request: Request, num_waiting: int, num_excess: int, most: int) -> bool:
    may_wait_whole = num_waiting == 0 and request.n > 1 and most > 0
    return num_excess > most and not may_wait_whole


def _full(name: str, num_excess: int, most: int) -> str:
    return (
        f"The queue{name} is full: with this request {num_excess} sequences would wait for a slot, "
        f"and {most} may."
    )


def _too_long(request: Request, num_tokens: int, most: int | None, name: str) -> str | None:
    """Say that too many prompt tokens would wait; one request may always."""
    num_more = request.n * len(request.prompt_token_ids)
    if most is None or num_tokens == 0 or num_tokens + num_more <= most:
        return None
    return (
        f"The queue{name} is full: it would hold {num_tokens + num_more} prompt tokens, "
        f"and {most} may wait."
    )
