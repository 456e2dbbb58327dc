"""Headway's engine in this process: scheduler, executor and event streams; no text, no HTTP."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from benchmarks.peers.protocol import Prompts, Timing, serve
from headway import __version__
from headway.assembly import assemble
from headway.config import load_settings
from headway.core.events import Finished, TokenReady
from headway.core.plan import RequestId
from headway.core.request import Request
from headway.core.sampling import SamplingParams
from headway.engine.garbage import collect_rarely


class HeadwayEngine:
    """``options``: ``model``, and ``settings`` by their keys."""

    def __init__(self, options: dict[str, Any]) -> None:
        given = {"model.path": options["model"], **options["settings"]}
        self._assembly = assemble(load_settings(None, {}, given).settings, lambda _: None)
        self._engine = self._assembly.engine
        self._loop = asyncio.Runner()
        self._loop.run(self._start())
        collect_rarely()  # as the server does
        self._num_requests = 0
        self.about = {"version": __version__}

    def generate(self, prompts: Prompts, max_tokens: int) -> Timing:
        return self._loop.run(self._all(prompts, max_tokens))

    def score(self, windows: Prompts, path: str) -> None:
        from benchmarks.peers.headway_scores import write_scores

        settings = self._assembly.settings
        write_scores(
            self._assembly.checkpoint,
            windows,
            path,
            quantization=settings.model.quantization,
            kv_dtype=settings.kv.dtype or "bfloat16",  # as the executor has it
        )

    async def _start(self) -> None:
        self._engine.start()

    async def _all(self, prompts: Prompts, max_tokens: int) -> Timing:
        started = time.perf_counter()
        outcomes = await asyncio.gather(*(self._one(p, max_tokens) for p in prompts))
        seconds = time.perf_counter() - started
        firsts, counts = zip(*outcomes, strict=True)
        return Timing(seconds, max(firsts) - started, sum(counts))

    async def _one(self, prompt: list[int], max_tokens: int) -> tuple[float, int]:
        """Return when the first token came, and how many came in all."""
        self._num_requests += 1
        name = RequestId(f"peer-{self._num_requests}")
        sampling = SamplingParams(max_tokens=max_tokens, temperature=0.0)
        stream = await self._engine.submit(
            Request(request_id=name, prompt_token_ids=tuple(prompt), sampling=sampling)
        )
        first, count, last = 0.0, 0, None
        async for events in stream:
            count += sum(isinstance(event, TokenReady) for event in events)
            first = first or (time.perf_counter() if count else 0.0)
            last = events[-1]
        if not isinstance(last, Finished):
            raise RuntimeError(f"a request ended with {last}")
        return first, count


if __name__ == "__main__":
    serve(HeadwayEngine)
