"""How the next token is chosen and when a sequence ends: plain data, resolved before submission.

The scheduler reads only the fields that end a sequence (``max_tokens``, ``min_tokens``,
``stop_token_ids``); the rest passes through to the executor.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """Sampling and stopping of one request. Values are validated by whoever builds it.

    Attributes:
        max_tokens: output tokens at most; 0 means "score the prompt only".
        min_tokens: until this many tokens are out, no id in ``stop_token_ids`` can be drawn.
        stop_token_ids: ids that end a sequence. End-of-sequence ids of the model are in here,
            unless the client asked to ignore them.
        temperature: 0 is greedy; ties go to the lowest token id.
        top_p: nucleus mass in (0, 1].
        top_k: keep the k most likely tokens; 0 keeps all.
        min_p: drop tokens less likely than ``min_p`` times the most likely one.
        repetition_penalty: > 0; divides positive and multiplies negative logits of tokens seen in
            prompt or output (Keskar et al., 2019).
        presence_penalty: subtracted once from tokens that the output holds.
        frequency_penalty: subtracted per occurrence in the output.
        logit_bias: (token id, added value) pairs.
        seed: with the sequence's index and the output position, determines every draw.
        logprobs: None reports none; k reports the chosen token's log-probability and the k best.
            All of them come from the raw logits (before temperature, penalties and bias).
        prompt_logprobs: the same, for each prompt token but the first.
    """

    max_tokens: int
    min_tokens: int = 0
    stop_token_ids: tuple[int, ...] = ()
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: tuple[tuple[int, float], ...] = ()
    seed: int = 0
    logprobs: int | None = None
    prompt_logprobs: int | None = None
