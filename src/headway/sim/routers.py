"""Which replica a request goes to. A router knows what it sent where, and what has ended."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Protocol

from headway.core.classes import ServiceClass
from headway.errors import UsageError
from headway.workload import Arrival


class RouterName(StrEnum):
    """The routers that are there."""

    #: one after the other
    ROUND_ROBIN = "round-robin"
    #: where the fewest requests are under way
    LEAST_LOADED = "least-loaded"
    #: where the longest beginning of the prompt was sent before, unless that one is overloaded
    PREFIX_AWARE = "prefix-aware"
    #: each class has replicas of its own, the least loaded of which is taken
    CLASS_ISOLATED = "class-isolated"


class Router(Protocol):
    """Chooses replicas."""

    def choose(self, arrival: Arrival) -> int:
        """Return the number of the replica that gets the request; it counts as sent."""
        ...

    def ended(self, replica: int) -> None:
        """A request ended there."""
        ...


class RoundRobin:
    """One after the other, whatever they have to do."""

    def __init__(self, num_replicas: int) -> None:
        self._num_replicas = num_replicas
        self._next = 0

    def choose(self, arrival: Arrival) -> int:  # noqa: ARG002 - any request
        """Return the next one."""
        chosen = self._next
        self._next = (chosen + 1) % self._num_replicas
        return chosen

    def ended(self, replica: int) -> None:
        """It makes no difference."""


class LeastLoaded:
    """Where the fewest requests are under way; of several the one that waited longest for one."""

    def __init__(self, replicas: Sequence[int]) -> None:
        #: requests under way, and when it was chosen last
        self._loads = {replica: [0, 0] for replica in replicas}
        self._num_chosen = 0

    def choose(self, arrival: Arrival) -> int:  # noqa: ARG002 - any request
        """Return the least loaded one."""
        chosen = min(self._loads, key=self._loads.__getitem__)
        self.send(chosen)
        return chosen

    def send(self, replica: int) -> None:
        """Count a request as sent there."""
        self._num_chosen += 1
        load = self._loads[replica]
        load[0] += 1
        load[1] = self._num_chosen

    def ended(self, replica: int) -> None:
        """One less is under way there."""
        self._loads[replica][0] -= 1

    def num_under_way(self, replica: int) -> int:
        """Return how many requests are under way."""
        return self._loads[replica][0]

    @property
    def least(self) -> int:
        """How many requests are under way where the fewest are."""
        return min(load[0] for load in self._loads.values())


class PrefixAware:
    """Where most of the prompt's beginning went before; the least loaded of these.

    What was sent to a replica is taken to be in its cache, as much as there is room for, the least
    recently used first to go. A replica with more than ``_IMBALANCE`` times and ``_SLACK`` more
    requests than the least loaded one is passed over, so that one popular beginning doesn't draw
    all the load. Prompts of which nothing is known go to the least loaded replica.
    """

    def __init__(self, num_replicas: int, num_kv_tokens: int) -> None:
        self._loads = LeastLoaded(range(num_replicas))
        self._num_kv_tokens = num_kv_tokens
        self._sent: list[OrderedDict[int, None]] = [OrderedDict() for _ in range(num_replicas)]

    def choose(self, arrival: Arrival) -> int:
        """Return the replica with the longest match among those that aren't overloaded."""
        if arrival.hashes is None:
            return self._loads.choose(arrival)
        ids = arrival.hashes.ids
        least = self._loads.least
        most = max(_IMBALANCE * least, least + _SLACK)
        open_ones = [
            each for each in range(len(self._sent)) if self._loads.num_under_way(each) <= most
        ]
        chosen = min(
            open_ones,
            key=lambda each: (-self._num_known(each, ids), self._loads.num_under_way(each)),
        )
        if self._num_known(chosen, ids) == 0:
            chosen = self._loads.choose(arrival)
        else:
            self._loads.send(chosen)
        self._remember(chosen, ids, self._num_kv_tokens // arrival.hashes.stretch_tokens)
        return chosen

    def ended(self, replica: int) -> None:
        """One less is under way there."""
        self._loads.ended(replica)

    def _num_known(self, replica: int, ids: Sequence[int]) -> int:
        known = self._sent[replica]
        for number, each in enumerate(ids):
            if each not in known:
                return number
        return len(ids)

    def _remember(self, replica: int, ids: Sequence[int], room: int) -> None:
        """The end of a prompt is forgotten before its beginning, as caches do."""
        known = self._sent[replica]
        for each in reversed(ids):
            known[each] = None
            known.move_to_end(each)
        while len(known) > room:
            known.popitem(last=False)


_IMBALANCE = 1.5
_SLACK = 8


class ClassIsolated:
    """Each class has replicas of its own."""

    def __init__(self, groups: Mapping[str, Sequence[int]]) -> None:
        self._by_class = {name: LeastLoaded(group) for name, group in groups.items()}
        self._by_replica = {
            replica: self._by_class[name] for name, group in groups.items() for replica in group
        }

    def choose(self, arrival: Arrival) -> int:
        """Return the least loaded replica of the class.

        Raises:
            UsageError: there is no such class.
        """
        try:
            return self._by_class[arrival.class_name].choose(arrival)
        except KeyError:
            known = ", ".join(self._by_class)
            raise UsageError(
                f"class {arrival.class_name} has no replicas: known are {known}"
            ) from None

    def ended(self, replica: int) -> None:
        """One less is under way there."""
        self._by_replica[replica].ended(replica)


def shared_out(num_replicas: int, classes: Sequence[ServiceClass]) -> dict[str, list[int]]:
    """Return the replicas of each class: at least one, and the others by weight.

    Raises:
        UsageError: there are fewer replicas than classes.
    """
    if num_replicas < len(classes):
        raise UsageError(
            f"{len(classes)} classes can't be isolated on {num_replicas} replicas: each needs one"
        )
    numbers = {each.name: 1 for each in classes}
    for _ in range(num_replicas - len(classes)):
        neediest = max(classes, key=lambda each: each.weight / numbers[each.name])
        numbers[neediest.name] += 1
    left = iter(range(num_replicas))
    return {name: [next(left) for _ in range(number)] for name, number in numbers.items()}


def make_router(
    name: RouterName,
    num_replicas: int,
    *,
    classes: Sequence[ServiceClass],
    num_kv_tokens: int,
) -> Router:
    """Return the router of that name.

    Raises:
        UsageError: there are too few replicas for it.
    """
    match name:
        case RouterName.ROUND_ROBIN:
            return RoundRobin(num_replicas)
        case RouterName.LEAST_LOADED:
            return LeastLoaded(range(num_replicas))
        case RouterName.PREFIX_AWARE:
            return PrefixAware(num_replicas, num_kv_tokens)
        case RouterName.CLASS_ISOLATED:
            return ClassIsolated(shared_out(num_replicas, classes))
