"""One request of a workload: when it comes, how long it is, and whose it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from headway.core.request import PromptHashes
from headway.workload.errors import WorkloadError


@dataclass(frozen=True, slots=True)
class Prompt:
    """What a client really says: either a text, or the messages of a conversation."""

    text: str = ""
    messages: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True, slots=True)
class Conduct:
    """How a client misbehaves: it goes away, or it stops reading.

    Attributes:
        leaves_after_s: closes its connection so many seconds after it came.
        leaves_after_tokens: closes it after so many tokens.
        stalls_after_tokens: stops reading after so many tokens …
        stalls_for_s: … for so many seconds.
    """

    leaves_after_s: float | None = None
    leaves_after_tokens: int | None = None
    stalls_after_tokens: int | None = None
    stalls_for_s: float = 0.0

    @property
    def leaves(self) -> bool:
        """Whether it goes away on purpose."""
        return self.leaves_after_s is not None or self.leaves_after_tokens is not None

    @property
    def stalls(self) -> bool:
        """Whether it stops reading for a time."""
        return self.stalls_after_tokens is not None

    def stalls_within(self, num_tokens: int) -> bool:
        """Whether it stops reading an answer that has so many tokens by now."""
        return self.stalls_after_tokens is not None and num_tokens >= self.stalls_after_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """A request that comes ``at_s`` seconds after the workload begins.

    Attributes:
        at_s: seconds from the beginning, never negative.
        prompt_tokens: length of the prompt, at least 1.
        output_tokens: how long the answer really is, at least 1. The scheduler isn't told.
        max_tokens: the client's limit of the answer, which the scheduler is told; None is the rest
            of the context.
        expected_output_tokens: the client's own guess, which the scheduler is told.
        class_name: its service class.
        tenant: who is charged for it.
        priority: lower goes first; None is that of the class.
        hashes: what the prompt's beginning shares with other prompts, where that is known.
        prompt: what it says, where that is known; ``prompt_tokens`` is then an estimate.
        conduct: how its client misbehaves; None is well.

    Raises:
        WorkloadError: a number is out of its range.
    """

    at_s: float
    prompt_tokens: int
    output_tokens: int
    max_tokens: int | None = None
    expected_output_tokens: int | None = None
    class_name: str = "default"
    tenant: str = ""
    priority: int | None = None
    hashes: PromptHashes | None = None
    prompt: Prompt | None = None
    conduct: Conduct | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.at_s < float("inf"):
            raise WorkloadError(f"at_s must be finite and not negative, not {self.at_s}")
        if self.prompt_tokens < 1 or self.output_tokens < 1:
            raise WorkloadError(
                f"a request needs a prompt and an answer, not {self.prompt_tokens} and "
                f"{self.output_tokens} tokens"
            )
        if self.max_tokens is not None and self.max_tokens < self.output_tokens:
            raise WorkloadError(
                f"output_tokens ({self.output_tokens}) go beyond max_tokens ({self.max_tokens})"
            )
