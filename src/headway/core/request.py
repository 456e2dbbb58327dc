"""A request as submitted: what a client asked for, in tokens. Immutable."""

from __future__ import annotations

from dataclasses import dataclass

from headway.core.plan import RequestId
from headway.core.sampling import SamplingParams


@dataclass(frozen=True, slots=True)
class PromptHashes:
    """The content of a prompt by name, as traces have it instead of text.

    ``ids[i]`` names the prompt up to and including stretch i, of ``stretch_tokens`` tokens each
    (the last may be shorter): equal ids mean equal beginnings.
    """

    stretch_tokens: int
    ids: tuple[int, ...]

    def __post_init__(self) -> None:
        if self.stretch_tokens < 1:
            raise ValueError(f"stretch_tokens must be at least 1, not {self.stretch_tokens}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What a client asked for; has ``n`` sequences that share the prompt.

    Attributes:
        request_id: unique among live requests; made by Headway, never by the client.
        class_name: the service class.
        tenant: who is charged for fairness.
        priority: lower goes first, within policies that look at it; None is that of the class.
        queue_timeout_s: seconds that it may wait before it first runs; None is that of the class.
        request_timeout_s: seconds from submission to its end; None is that of the class.
        expected_output_tokens: the client's guess of its output length, for ``sjf``.
        cache_salt: only requests with the same salt share KV of equal prefixes.
        prompt_hashes: used for prefix sharing in place of the token ids, where text is unknown.
    """

    request_id: RequestId
    prompt_token_ids: tuple[int, ...]
    sampling: SamplingParams
    n: int = 1
    class_name: str = "default"
    tenant: str = ""
    priority: int | None = None
    queue_timeout_s: float | None = None
    request_timeout_s: float | None = None
    expected_output_tokens: int | None = None
    cache_salt: str = ""
    prompt_hashes: PromptHashes | None = None
