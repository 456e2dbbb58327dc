"""Work in a window: so much at a time, begun in order, results in order."""

from __future__ import annotations

import asyncio

import pytest

from headway.generation.window import in_window


@pytest.mark.parametrize(("width", "most"), [(1, 1), (3, 3), (100, 10)])
async def test_so_many_are_under_way(width: int, most: int) -> None:
    begun: list[int] = []
    seen: list[int] = []
    num_running = 0

    async def work(item: int) -> int:
        nonlocal num_running
        begun.append(item)
        num_running += 1
        seen.append(num_running)
        for _ in range(10 - item):  # the last ones are the first to end
            await asyncio.sleep(0)
        num_running -= 1
        return -item

    assert await in_window(work, range(10), width) == [-item for item in range(10)]
    assert begun == list(range(10))
    assert max(seen) == most


async def test_nothing_is_done_with_nothing() -> None:
    assert await in_window(asyncio.sleep, [], 3) == []


async def test_an_error_comes_as_it_is_and_ends_the_rest() -> None:
    ended = []

    async def work(item: int) -> None:
        try:
            if item == 1:
                raise KeyError(item)
            await asyncio.Event().wait()
        finally:
            ended.append(item)

    with pytest.raises(KeyError):
        await in_window(work, range(10), 3)
    assert sorted(ended) == [0, 1, 2]


async def test_cancelling_ends_all() -> None:
    ended = []

    async def work(item: int) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(item)

    task = asyncio.create_task(in_window(work, range(10), 3))
    for _ in range(3):
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert sorted(ended) == [0, 1, 2]
