"""Many pieces of work, of which only so many are under way."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

_A = TypeVar("_A")
_B = TypeVar("_B")


async def in_window(
    work: Callable[[_A], Awaitable[_B]], items: Sequence[_A], width: int
) -> list[_B]:
    """Return the results in the order of the items, ``width`` of which are worked on at a time.

    Work is begun in order. The first error cancels the rest and is raised as it is.
    """
    results: dict[int, _B] = {}
    numbered = iter(enumerate(items))

    async def take_turns() -> None:
        for number, item in numbered:  # all of them share the iterator
            results[number] = await work(item)

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(min(width, len(items))):
                group.create_task(take_turns())
    except ExceptionGroup as failures:
        raise failures.exceptions[0] from None
    return [results[number] for number in range(len(items))]
