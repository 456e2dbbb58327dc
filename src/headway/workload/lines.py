"""Prompts of lines of a text, as vLLM's *sonnet* workload makes them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from random import Random

from headway.workload.arrival import Prompt
from headway.workload.errors import WorkloadError

#: characters of English a token, in common vocabularies
_CHARACTERS_A_TOKEN = 4.2


@dataclass(frozen=True, slots=True)
class Lines:
    """The lines of a text."""

    lines: tuple[str, ...]

    def text(self, random: Random, num_tokens: int) -> str:
        """Return lines in random order, about so many tokens together; no lines for none."""
        chosen, num_characters = [], 0.0
        while num_characters < num_tokens * _CHARACTERS_A_TOKEN:
            chosen.append(random.choice(self.lines))
            num_characters += len(chosen[-1])
        return "".join(chosen)

    def prompt(self, random: Random, num_tokens: int, shared: str) -> Prompt:
        """Return a prompt that begins as others do and goes on with lines of its own."""
        return Prompt(text=shared + self.text(random, num_tokens))


def read_lines(path: Path) -> Lines:
    """Read a text.

    Raises:
        WorkloadError: it can't be read, or is empty.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise WorkloadError(f"{path} can't be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise WorkloadError(f"{path} is no text in UTF-8") from error
    lines = tuple(line + "\n" for line in text.splitlines() if line.strip())
    if not lines:
        raise WorkloadError(f"{path} has no lines")
    return Lines(lines)
