"""Turns an arrival into the request that the scheduler sees."""

from __future__ import annotations

from collections.abc import Iterable

from headway.core.limits import SchedulerLimits
from headway.core.request import Request
from headway.core.sampling import SamplingParams
from headway.errors import UsageError
from headway.sim.naming import request_id_of
from headway.workload import Arrival

#: ends each answer where the workload says
STOP_TOKEN_ID = 0
#: tokens that answers are made of: the stop token, and another, since nobody reads them
VOCAB_SIZE = 2
#: token ids of prompts are beyond those, and below this, which the prefix cache can name
_END = 1 << 32


def longest_of(arrivals: Iterable[Arrival], limits: SchedulerLimits) -> int:
    """Return how many tokens the longest request has.

    Raises:
        UsageError: more than the context and the KV cache hold.
    """
    longest = max(each.prompt_tokens + each.output_tokens for each in arrivals)
    if longest > limits.longest:
        raise UsageError(
            f"the longest request has {longest} tokens, and the context {limits.longest}"
        )
    return longest


def request_of(number: int, arrival: Arrival, max_model_len: int) -> Request:
    """Return the request of the arrival at a place of the workload.

    Prompts have no text: each is one token over and over, a different one for each request, so
    that only those with hashes share anything. An arrival without ``max_tokens`` may use the rest
    of the context, as clients that set no limit may.
    """
    rest = max(max_model_len - arrival.prompt_tokens, arrival.output_tokens)
    max_tokens = arrival.max_tokens if arrival.max_tokens is not None else rest
    return Request(
        request_id=request_id_of(number),
        prompt_token_ids=((VOCAB_SIZE + number) % _END,) * arrival.prompt_tokens,
        sampling=SamplingParams(max_tokens=max_tokens, stop_token_ids=(STOP_TOKEN_ID,)),
        class_name=arrival.class_name,
        tenant=arrival.tenant,
        priority=arrival.priority,
        expected_output_tokens=arrival.expected_output_tokens,
        prompt_hashes=arrival.hashes,
    )
