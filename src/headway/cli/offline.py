"""The engine in this process as what answers a load test."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from math import inf

from headway.assembly import Assembly, assemble
from headway.bench import Job, Now, Options, Send, Session
from headway.config import Settings
from headway.engine.garbage import collect_rarely
from headway.errors import EngineStoppedError, GenerationError, RequestError
from headway.generation.params import GenerationParams
from headway.generation.stream import TextStream
from headway.generation.terms import Terms
from headway.models.progress import on_standard_error
from headway.report import Outcome, Record, Report
from headway.report.report import Fact
from headway.workload import Arrival, Conduct, Content, WorkloadSpec
from headway.workload.content import ids_within

_WELL = Conduct()


async def bench_offline(
    settings: Settings,
    spec: WorkloadSpec,
    options: Options,
    facts: Mapping[str, Fact],
    on_session: Callable[[Session], None],
    *,
    ignore_eos: bool,
) -> Report:
    """Run a load test against an engine of these settings and report.

    Raises:
        UsageError: the model, the settings or the workload can't be used.
    """
    assembly = assemble(settings, on_standard_error)
    collect_rarely()
    assembly.engine.start()
    try:
        sender = OfflineSender(assembly, spec.seed, ignore_eos=ignore_eos)
        session = Session(spec, sender, replace(options, context=assembly.generator.max_model_len))
        on_session(session)
        return await session.run(
            f"{assembly.name} in this process", {"model_id": assembly.name, **facts}
        )
    finally:
        await assembly.engine.stop(0.0)


class OfflineSender:
    """A :class:`headway.bench.Sender` over the engine, without HTTP.

    Made-up prompts are token ids; real ones are encoded when they are sent, as a server does.
    """

    def __init__(self, assembly: Assembly, seed: int, *, ignore_eos: bool) -> None:
        vocab_size = assembly.checkpoint.config.vocab_size
        self._generator = assembly.generator
        self._content = Content(seed, ids_within(vocab_size))
        self._ignore_eos = ignore_eos

    def prepare(self, job: Job) -> Send:
        """Make the prompt."""
        arrival = job.arrival
        params = GenerationParams(max_tokens=arrival.max_tokens, ignore_eos=self._ignore_eos)
        ids = None if arrival.prompt else self._content.token_ids(job.name, arrival)
        return partial(self._send, job, ids, params)

    async def _send(
        self, job: Job, ids: list[int] | None, params: GenerationParams, now: Now
    ) -> None:
        record, conduct = job.record, job.arrival.conduct or _WELL
        leaves_at_s = record.due_s + (conduct.leaves_after_s or inf)
        record.sent_s = began_s = now()
        limit_s = None if leaves_at_s == inf else max(leaves_at_s - began_s, 0.0)
        try:
            async with asyncio.timeout(limit_s):
                prompt = ids or await self._encoded(job.arrival)
                terms = _terms(job.arrival)
                async with await self._generator.generate(prompt, params, terms=terms) as stream:
                    record.outcome = await _read(stream, record, conduct, now)
        except TimeoutError:
            record.outcome, record.ended_s = Outcome.CANCELLED, now()
        except RequestError as error:
            _fail(record, f"refused {error.code or ''}".strip(), error, now())
        except GenerationError as error:
            _fail(record, f"failed {error.code}", error, now())
        except EngineStoppedError as error:
            _fail(record, "engine stopped", error, now())

    async def _encoded(self, arrival: Arrival) -> tuple[int, ...]:
        assert arrival.prompt is not None, "made-up prompts are ids already"
        if arrival.prompt.messages:
            return tuple(await self._generator.encode_chat(arrival.prompt.messages))
        return tuple(await self._generator.encode(arrival.prompt.text))


async def _read(stream: TextStream, record: Record, conduct: Conduct, now: Now) -> Outcome:
    """Take the answer as it comes; closing the stream early cancels it."""
    while await stream.next_batch():
        record.ended_s = now()
        record.token_times.append(record.ended_s)
        record.output_tokens = count = stream.usage.num_completion_tokens
        record.input_tokens = stream.usage.num_prompt_tokens
        record.num_cached_tokens = stream.usage.num_cached_tokens
        if conduct.leaves_after_tokens is not None and count >= conduct.leaves_after_tokens:
            return Outcome.CANCELLED
        if conduct.stalls_within(count) and not record.stalled:
            record.stalled = True
            await asyncio.sleep(conduct.stalls_for_s)
    return Outcome.COMPLETED


def _terms(arrival: Arrival) -> Terms:
    is_default = arrival.class_name == "default"  # which names none, as service_tier has it
    return Terms(
        class_name=None if is_default else arrival.class_name,
        tenant=arrival.tenant,
        priority=arrival.priority,
    )


def _fail(record: Record, kind: str, error: Exception, at_s: float) -> None:
    record.outcome, record.ended_s = Outcome.FAILED, at_s
    record.error, record.detail = kind, str(error)
