"""What runner and workers say to each other: a JSON object a line, one question at a time.

A worker says ``{"ready": {...}}`` once its engine is loaded, with what it has to say of itself, or
``{"error": "why"}``. It then answers each ``{"prompts": [[id, ...], ...], "max_tokens": n}`` with a
:class:`Timing`, each ``{"score": [[id, ...], ...], "path": "..."}`` when it has written the logits
of those windows there, and ends with its input. Only the standard library is used here: workers run
in the virtual environments of their engines.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Protocol, TextIO

Prompts = list[list[int]]


@dataclass(frozen=True)
class Timing:
    """How long some prompts took together.

    Attributes:
        seconds: from the first submission to the last token.
        first_s: from the first submission until every prompt has its first token.
        output_tokens: of all prompts.
    """

    seconds: float
    first_s: float
    output_tokens: int


class Engine(Protocol):
    """What a worker wraps."""

    about: dict[str, Any]
    """Its version and its settings, in words."""

    def generate(self, prompts: Prompts, max_tokens: int) -> Timing:
        """Continue all prompts at once, greedily, by exactly ``max_tokens`` tokens each."""
        ...

    def score(self, windows: Prompts, path: str) -> None:
        """Write log-probabilities after each position: float32, windows × positions × vocabulary.

        In the format of ``numpy.save``.
        """
        ...


def serve(load: Callable[[dict[str, Any]], Engine]) -> None:
    """Load the engine that the command line describes, and answer until the input ends.

    Whatever libraries print goes to standard error; standard output is for answers alone.
    """
    answers = _claim_standard_output()
    try:
        engine = load(json.loads(sys.argv[1]))
    except Exception as error:  # noqa: BLE001  # any failure of a foreign engine is its row's reason
        _say(answers, {"error": f"{type(error).__name__}: {error}"})
        return
    _say(answers, {"ready": engine.about})
    for line in sys.stdin:
        _say(answers, _answer(engine, json.loads(line)))


def _answer(engine: Engine, question: dict[str, Any]) -> dict[str, Any]:
    try:
        if "score" in question:
            engine.score(question["score"], question["path"])
            return {"scored": question["path"]}
        return asdict(engine.generate(question["prompts"], question["max_tokens"]))
    except Exception as error:  # noqa: BLE001  # as above
        return {"error": f"{type(error).__name__}: {error}"}


def _claim_standard_output() -> TextIO:
    """Return a file that writes to standard output, which from now on is standard error."""
    sys.stdout.flush()
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    return answers


def _say(answers: TextIO, message: dict[str, Any]) -> None:
    answers.write(json.dumps(message) + "\n")
    answers.flush()
