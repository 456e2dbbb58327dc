"""A journal as a workload: what came, when, how long it was, and what was promised to it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from statistics import median

from headway.core.classes import ServiceClass
from headway.core.plan import RequestId, SequenceId
from headway.core.request import PromptHashes, Request
from headway.engine import records
from headway.errors import JournalError
from headway.workload import Arrival, Targets, Workload, in_order


def recorded_workload(lines: Iterable[records.Line]) -> Workload:
    """Return the requests of a journal in open loop, with the targets of its classes.

    Each sequence is an arrival. Answers are as long as they were; a request that got no token,
    since it was refused, expired or left, stands for one with the median answer of its class. The
    sections of several starts follow each other.

    Raises:
        JournalError: nobody came, or nobody got a token.
    """
    sections: list[_Section] = []
    for line in lines:
        if isinstance(line.record, records.Header):
            sections.append(_Section(line.record.config.classes))
        else:
            sections[-1].take(line.record)
    return _joined([each for each in sections if each.submits])


@dataclass(slots=True)
class _Section:
    """What one start of an engine recorded."""

    classes: Sequence[ServiceClass]
    submits: list[records.Submit] = field(default_factory=list)
    ended_s: float = 0.0
    owners: dict[SequenceId, tuple[RequestId, int]] = field(default_factory=dict)
    num_tokens: Counter[tuple[RequestId, int]] = field(default_factory=Counter)

    def take(self, record: records.Record) -> None:
        """Take in a line."""
        assert not isinstance(record, records.Header), "a header begins a section"
        self.ended_s = record.now
        if isinstance(record, records.Submit):
            self.submits.append(record)
        elif isinstance(record, records.Schedule):
            for each in record.plan.get("new_sequences", ()):
                self.owners[each["sequence_id"]] = (each["request_id"], each["index"])
        elif isinstance(record, records.Apply):
            known = (each for each in record.result.tokens if each in self.owners)
            self.num_tokens.update(self.owners[each] for each in known)


def _joined(sections: Sequence[_Section]) -> Workload:
    if not sections:
        raise JournalError("nobody came while the journal was written: there is nothing to plan")
    usual = _usual(sections)
    prompts = _Prompts()
    arrivals: list[Arrival] = []
    begin_s = 0.0
    for section in sections:
        first_s = section.submits[0].now
        for submit in section.submits:
            at_s = begin_s + submit.now - first_s
            arrivals += _arrivals(submit.request, at_s, section.num_tokens, usual, prompts)
        begin_s += section.ended_s - first_s
    return Workload(in_order(arrivals), (), begin_s or inf, _targets(sections))


def _usual(sections: Sequence[_Section]) -> Mapping[str, int]:
    """Return the median answer of each class; of one that got none, that of all."""
    by_class: dict[str, list[int]] = {}
    for section in sections:
        classes = {each.request.request_id: each.request.class_name for each in section.submits}
        for (request_id, _), count in section.num_tokens.items():
            by_class.setdefault(classes[request_id], []).append(count)
    every = [count for counts in by_class.values() for count in counts]
    if not every:
        raise JournalError("no request of the journal got a token: there is nothing to plan by")
    names = {each.request.class_name for section in sections for each in section.submits}
    return {name: round(median(by_class.get(name, every))) for name in names}


def _arrivals(
    request: Request,
    at_s: float,
    num_tokens: Mapping[tuple[RequestId, int], int],
    usual: Mapping[str, int],
    prompts: _Prompts,
) -> Iterator[Arrival]:
    for index in range(request.n):
        count = num_tokens.get((request.request_id, index)) or usual[request.class_name]
        yield Arrival(
            at_s=at_s,
            prompt_tokens=len(request.prompt_token_ids),
            output_tokens=count,
            max_tokens=max(request.sampling.max_tokens, count),
            expected_output_tokens=request.expected_output_tokens,
            class_name=request.class_name,
            tenant=request.tenant,
            priority=request.priority,
            hashes=prompts.hashes(request),
        )


class _Prompts:
    """Names the beginnings of prompts, so that equal ones have equal names."""

    def __init__(self) -> None:
        self._names: dict[tuple[object, ...], int] = {}

    def hashes(self, request: Request) -> PromptHashes | None:
        """Return the names of a prompt's stretches; None if it is shorter than one."""
        if request.prompt_hashes is not None:
            return request.prompt_hashes
        tokens = request.prompt_token_ids
        ids: list[int] = []
        before: object = request.cache_salt
        for start in range(0, len(tokens) - _STRETCH + 1, _STRETCH):
            key = (before, *tokens[start : start + _STRETCH])
            before = self._names.setdefault(key, len(self._names))
            ids.append(before)
        return PromptHashes(_STRETCH, tuple(ids)) if ids else None


#: tokens of a stretch: those of a block, unless it is set otherwise
_STRETCH = 16


def _targets(sections: Sequence[_Section]) -> Mapping[str, Targets]:
    """Return what was promised to each class; the last start counts."""
    return {
        each.name: Targets(ttft_s=each.ttft_target_s, tpot_s=each.tpot_target_s)
        for section in sections
        for each in section.classes
        if each.ttft_target_s is not None or each.tpot_target_s is not None
    }
