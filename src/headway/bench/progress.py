"""How far a run is, on standard error."""

from __future__ import annotations

import asyncio
from typing import TextIO

from headway.bench.clock import Clock
from headway.bench.driver import Driver
from headway.report import Outcome

#: seconds between two lines: on a terminal, where each replaces the one before, and elsewhere
_EVERY_S, _EVERY_LINE_S = 1.0, 15.0


class Progress:
    """Shows lines while it is entered."""

    def __init__(self, driver: Driver, clock: Clock, stream: TextIO, label: str = "") -> None:
        self._driver = driver
        self._clock = clock
        self._stream = stream
        self._label = label
        self._is_terminal = stream.isatty()
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Progress:
        self._task = asyncio.create_task(self._show_on())
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        assert self._task is not None, "it was entered"
        self._task.cancel()
        if self._is_terminal:
            self._write("\r\033[K")

    def line(self) -> str:
        """Return how far it is."""
        driver, ended = self._driver, self._driver.num_ended
        failed = ended[Outcome.FAILED]
        return (
            f"{self._label}{self._clock.now():.0f} s: {len(driver.records)} due, "
            f"{ended[Outcome.COMPLETED]} completed, {driver.num_under_way} under way"
            + (f", {failed} failed" if failed else "")
        )

    async def _show_on(self) -> None:
        while True:
            await asyncio.sleep(_EVERY_S if self._is_terminal else _EVERY_LINE_S)
            self._write(f"\r\033[K{self.line()}" if self._is_terminal else f"{self.line()}\n")

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()
