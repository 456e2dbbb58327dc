"""What is remembered of a live request between its events, and nothing longer."""

from __future__ import annotations

from dataclasses import dataclass, field

from headway.core.events import FinishReason


@dataclass(slots=True)
class SequenceTimes:
    """When a sequence's first and latest token came, and how many there were."""

    first_token_at: float
    last_token_at: float
    num_tokens: int = 1


@dataclass(slots=True)
class RequestStory:
    """One live request, from submission to its terminal event. Times in seconds."""

    class_name: str
    num_prompt_tokens: int
    submitted_at: float
    started: bool = False
    hit_length: bool = False
    sequences: dict[int, SequenceTimes] = field(default_factory=dict)

    def time_per_output_token(self) -> float | None:
        """TPOT over all sequences; None if none of them has a second token.

        With one sequence it's (last - first) / (tokens - 1); with more, the sums of both sides.
        """
        gaps = sum(times.num_tokens - 1 for times in self.sequences.values())
        if gaps == 0:
            return None
        spans = (times.last_token_at - times.first_token_at for times in self.sequences.values())
        return sum(spans) / gaps

    def finish_reason(self) -> FinishReason:
        """``length`` if any sequence ran out of tokens, else ``stop``."""
        return FinishReason.LENGTH if self.hit_length else FinishReason.STOP
