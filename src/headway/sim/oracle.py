"""Predictors that only a simulator can have: one that knows, and two that are wrong on purpose.

They implement :class:`headway.core.predict.OutputLengthPredictor`, to see what prediction is worth
at best, and what harm a wrong one does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random

from headway.core.plan import RequestId
from headway.core.request import Request
from headway.sim.naming import request_id_of
from headway.workload import Arrival


class Oracle:
    """Knows how long each answer will be. The arrivals are those given to ``simulate``."""

    def __init__(self, arrivals: Sequence[Arrival]) -> None:
        self._lengths: Mapping[RequestId, int] = {
            request_id_of(number): each.output_tokens for number, each in enumerate(arrivals)
        }
        self.longest = max(self._lengths.values(), default=0)

    def predict(self, request: Request) -> float:
        """Return the true length."""
        return float(self._lengths[request.request_id])

    def observe(self, request: Request, num_output_tokens: int) -> None:
        """Nothing: it is all known."""


class Inverted:
    """Takes the longest answer for the shortest, and so on: as wrong as an order can be."""

    def __init__(self, oracle: Oracle) -> None:
        self._oracle = oracle

    def predict(self, request: Request) -> float:
        """Return the longest length less the true one."""
        guess = self._oracle.longest - self._oracle.predict(request)
        return min(max(guess, 0.0), float(request.sampling.max_tokens))

    def observe(self, request: Request, num_output_tokens: int) -> None:
        """Nothing: it stays wrong."""


class Noisy:
    """The truth times a log-normal error: ``sigma`` 1 is wrong by a factor of e, two in three."""

    def __init__(self, oracle: Oracle, sigma: float, seed: int) -> None:
        self._oracle = oracle
        self._sigma = sigma
        self._seed = seed

    def predict(self, request: Request) -> float:
        """Return the length with an error that is the same each time it is asked for."""
        random = Random(f"{self._seed}:{request.request_id}")
        guess = self._oracle.predict(request) * random.lognormvariate(0.0, self._sigma)
        return min(guess, float(request.sampling.max_tokens))

    def observe(self, request: Request, num_output_tokens: int) -> None:
        """Nothing: the error stays."""
