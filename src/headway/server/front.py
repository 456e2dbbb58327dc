"""What all endpoints share: the models, the engine, the settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from headway._version import __version__
from headway.config import ServerSettings
from headway.errors import RequestError
from headway.generation.generator import Generator
from headway.server.access import RequestCounter
from headway.server.errors import shorten
from headway.server.placement import Placement

#: Tells clients which software produced an answer.
FINGERPRINT = f"headway-{__version__}"


class Counts(Protocol):
    """The part of the scheduler's statistics that health reports show."""

    @property
    def num_waiting(self) -> int:
        """Requests in the queue."""
        ...

    @property
    def num_running(self) -> int:
        """Sequences that hold a slot."""
        ...

    @property
    def num_live(self) -> int:
        """Requests that have not ended."""
        ...

    @property
    def num_blocks(self) -> int:
        """Blocks in the KV pool."""
        ...

    @property
    def num_free_blocks(self) -> int:
        """Blocks that nobody holds."""
        ...


class Pulse(Protocol):
    """Whether the engine lives."""

    @property
    def state(self) -> str:
        """One of starting, running, draining, stopped, failed."""
        ...

    @property
    def heartbeat_age_s(self) -> float:
        """Seconds since the engine's loop last turned."""
        ...

    @property
    def error(self) -> str | None:
        """What it failed of."""
        ...


class EngineView(Protocol):
    """What the server looks at, beside the generators that submit to it."""

    @property
    def status(self) -> Pulse:
        """Whether the engine lives."""
        ...

    def statistics(self) -> Counts:
        """Return a snapshot of the counts."""
        ...


class MetricsSource(RequestCounter, Protocol):
    """Counts HTTP requests, and renders all metrics."""

    def render(self) -> bytes:
        """Return the metrics in Prometheus' text format."""
        ...


@dataclass(frozen=True, slots=True)
class Front:
    """The models by name (the first is the default), the engine, settings, and classes.

    ``created`` is the time of start in Unix seconds.
    """

    generators: Mapping[str, Generator]
    engine: EngineView
    metrics: MetricsSource
    settings: ServerSettings
    placement: Placement
    created: int

    def model(self, name: str | None) -> tuple[str, Generator]:
        """Return a model by the name that the client gave; the default one for None.

        Raises:
            RequestError: 404 if there is no such model.
        """
        if name is None:
            return next(iter(self.generators.items()))
        generator = self.generators.get(name)
        if generator is None:
            served = ", ".join(self.generators)
            message = f"The model '{shorten(name, 100)}' does not exist. Served: {served}."
            raise RequestError(message, param="model", code="model_not_found", status=404)
        return name, generator
