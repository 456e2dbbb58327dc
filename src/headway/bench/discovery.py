"""Asks a server what it serves."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from time import monotonic

from headway.bench.errors import ExchangeError, TargetError
from headway.bench.pool import Pool
from headway.bench.target import Target
from headway.bench.wire import get, read_models, refusal

_TIMEOUT_S = 30.0


class _Whole:
    """Takes a whole answer."""

    def __init__(self) -> None:
        self.status = 0
        self.body = bytearray()

    def on_head(self, status: int, _headers: dict[str, str], /) -> None:
        self.status = status

    def on_body(self, data: bytes, _now: float, /) -> None:
        self.body += data


async def find_model(
    pool: Pool, target: Target, headers: Mapping[str, str], wanted: str | None
) -> tuple[str, int | None]:
    """Return a served model's name, and its longest sequence in tokens where the server says it.

    Args:
        pool: connections to the server.
        target: the server.
        headers: sent with the question.
        wanted: the name that it must be; None takes the only one.

    Raises:
        TargetError: the server can't be reached, refuses, serves no such model or several.
    """
    answer = _Whole()
    try:
        async with asyncio.timeout(_TIMEOUT_S):
            await pool.exchange(get(target, "models", headers), answer, monotonic)
    except ExchangeError as error:
        raise TargetError(f"{target.url} can't be asked for its models: {error}") from error
    except TimeoutError:
        raise TargetError(f"{target.url} doesn't answer within {_TIMEOUT_S:g} s") from None
    if answer.status != 200:
        why = refusal(answer.status, bytes(answer.body))
        raise TargetError(f"{target.url} doesn't tell its models: {why}")
    return _chosen(dict(read_models(bytes(answer.body))), wanted, target)


def _chosen(
    models: Mapping[str, int | None], wanted: str | None, target: Target
) -> tuple[str, int | None]:
    if wanted is not None and wanted in models:
        return wanted, models[wanted]
    names = ", ".join(models) or "none"
    if wanted is not None:
        raise TargetError(f"{target.url} serves no model {wanted}; it has: {names}")
    if len(models) != 1:
        raise TargetError(f"{target.url} serves several models; choose with --model: {names}")
    return next(iter(models.items()))
