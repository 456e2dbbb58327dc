"""Ways to divide instances into a pool for each class: those nearest to the work of the classes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from heapq import nsmallest
from itertools import combinations, pairwise

#: ways to divide the instances that are simulated, those nearest to the shares of the work
MOST_DIVISIONS = 12

Division = Mapping[str, int]
"""The number of instances of each class; empty is one pool for all."""


def divisions_of(instances: int, work: Mapping[str, float]) -> list[Division]:
    """Return ways to give each class an instance or more: those nearest to its work, in order."""
    total = sum(work.values()) or 1.0
    fair = {name: instances * each / total for name, each in work.items()}

    def distance(division: Division) -> float:
        return sum((division[name] - fair[name]) ** 2 for name in fair)

    return nsmallest(MOST_DIVISIONS, _divisions(instances, list(work)), key=distance)


def _divisions(instances: int, names: Sequence[str]) -> Iterator[Division]:
    for cuts in combinations(range(1, instances), len(names) - 1):
        ends = (0, *cuts, instances)
        yield {name: end - begin for name, (begin, end) in zip(names, pairwise(ends), strict=True)}


def name_of(division: Division, instances: int) -> str:
    """Return what people call a division."""
    if not division:
        return f"one pool of {instances}"
    return ", ".join(f"{name} {number}" for name, number in division.items())
