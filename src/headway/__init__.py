"""Headway serves language models and keeps the latency it promised.

Names below are loaded on first use, so that ``import headway`` costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from headway._version import __version__

if TYPE_CHECKING:
    from headway.errors import (
        EngineStoppedError,
        GenerationError,
        HeadwayError,
        RequestError,
        UsageError,
    )
    from headway.generation.params import GenerationParams
    from headway.generation.terms import Terms
    from headway.llm import LLM

_HOMES = {
    "EngineStoppedError": "headway.errors",
    "GenerationError": "headway.errors",
    "GenerationParams": "headway.generation.params",
    "HeadwayError": "headway.errors",
    "LLM": "headway.llm",
    "RequestError": "headway.errors",
    "Terms": "headway.generation.terms",
    "UsageError": "headway.errors",
}

__all__ = [
    "LLM",
    "EngineStoppedError",
    "GenerationError",
    "GenerationParams",
    "HeadwayError",
    "RequestError",
    "Terms",
    "UsageError",
    "__version__",
]


def __getattr__(name: str) -> object:
    """Load an exported name from the module that defines it."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_HOMES[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
