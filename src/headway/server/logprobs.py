"""Log-probabilities in OpenAI's two formats and in vLLM's for prompts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from headway.generation.scores import ScoredPosition, ScoredToken
from headway.server.responses import (
    ChatLogprobs,
    CompletionLogprobs,
    PromptLogprob,
    PromptLogprobs,
    TokenLogprob,
    TopLogprob,
)


def _top(token: ScoredToken) -> TopLogprob:
    return TopLogprob(token.text, token.logprob, list(token.data))


def chat_logprobs(scores: Iterable[ScoredPosition]) -> ChatLogprobs:
    """Return one entry per token."""
    return ChatLogprobs(
        [
            TokenLogprob(
                position.token.text,
                position.token.logprob,
                list(position.token.data),
                [_top(token) for token in position.top],
            )
            for position in scores
        ]
    )


def _label(token: ScoredToken) -> str:
    """Name a token uniquely: by its text, or by its bytes where they are no text on their own."""
    try:
        return token.data.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in token.data)


def _best(position: ScoredPosition) -> dict[str, float]:
    """Return the best tokens and, as OpenAI does, the chosen one."""
    best = {_label(token): token.logprob for token in position.top}
    best.setdefault(_label(position.token), position.token.logprob)
    return best


def completion_logprobs(
    scores: Sequence[ScoredPosition], offsets: Iterable[int], start: int
) -> CompletionLogprobs:
    """Return the parallel lists of the older format; ``offsets`` count from ``start``."""
    return CompletionLogprobs(
        [start + offset for offset in offsets],
        [position.token.logprob for position in scores],
        [_label(position.token) for position in scores],
        [_best(position) for position in scores],
    )


def echo_logprobs(
    first: ScoredToken, rest: Sequence[ScoredPosition], offsets: Sequence[int]
) -> CompletionLogprobs:
    """Return those of a prompt, whose first token has none; ``offsets`` are of all its tokens."""
    tail = completion_logprobs(rest, offsets[1:], 0)
    return CompletionLogprobs(
        list(offsets),
        [None, *tail.token_logprobs],
        [_label(first), *tail.tokens],
        [None, *(tail.top_logprobs or [])],
    )


def join(first: CompletionLogprobs, second: CompletionLogprobs) -> CompletionLogprobs:
    """Return the lists of both, one behind the other."""
    return CompletionLogprobs(
        first.text_offset + second.text_offset,
        first.token_logprobs + second.token_logprobs,
        first.tokens + second.tokens,
        (first.top_logprobs or []) + (second.top_logprobs or []),
    )


def prompt_logprobs(scores: Sequence[ScoredPosition | None]) -> PromptLogprobs:
    """Return vLLM's format: per prompt token a map from token id, None for the first."""
    entries: PromptLogprobs = []
    for position in scores:
        if position is None:
            entries.append(None)
            continue
        tokens = (*position.top, position.token)
        entries.append({str(t.token_id): PromptLogprob(t.logprob, t.text) for t in tokens})
    return entries
