"""Steps for the tests of cost models."""

from __future__ import annotations

from headway.profiles.shape import Chunk, StepShape


def decodes(number: int, context: int) -> StepShape:
    """Decodes whose contexts are equally long."""
    return StepShape((), number, number * context, context, context)


def prefill(*chunks: tuple[int, int]) -> StepShape:
    """Chunks of (cached, length)."""
    return StepShape(tuple(Chunk(*chunk) for chunk in chunks))


def mixed(number: int, context: int, *chunks: tuple[int, int]) -> StepShape:
    """Both."""
    return decodes(number, context)._replace(chunks=prefill(*chunks).chunks)
