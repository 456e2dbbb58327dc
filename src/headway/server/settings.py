"""What an operator can set about the HTTP front."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from headway.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """Settings of the HTTP server; times in seconds, sizes in bytes.

    Attributes:
        host: address to listen on.
        port: port to listen on; 0 takes a free one.
        api_keys: keys that may call ``/v1/*``; empty lets everybody in.
        max_body_bytes: longest request body; a longer one is answered with 413.
        body_timeout_s: time in which a request body must have arrived.
        sse_keep_alive_s: silence on a stream after which a comment is sent; 0 sends none.
        stream_stall_timeout_s: time for which a client may leave its stream unread.
        timeout_keep_alive_s: time for which an idle connection is kept; longer than the idle
            time of the proxies in front, or they meet closed connections.
        drain_timeout_s: time that running requests get after a stop signal.
        retry_after_s: what refused clients are told while the server drains.
        unready_after_s: age of the engine's heartbeat at which ``/readyz`` turns 503.
        dead_after_s: age of the engine's heartbeat at which ``/livez`` turns 503.
        queue_timeout_s: time that a request may wait in the queue; None is unbounded.
        request_timeout_s: time that a request may take in all; None is unbounded.
        default_class: service class of requests that name none.
        service_tiers: service class for each accepted ``service_tier``, beside auto and default.
        access_log: log each request.
    """

    host: str = "127.0.0.1"
    port: int = 8000
    api_keys: tuple[str, ...] = ()
    max_body_bytes: int = 16 * 1024 * 1024
    body_timeout_s: float = 60.0
    sse_keep_alive_s: float = 10.0
    stream_stall_timeout_s: float = 30.0
    timeout_keep_alive_s: int = 120
    drain_timeout_s: float = 45.0
    retry_after_s: float = 5.0
    unready_after_s: float = 60.0
    dead_after_s: float = 300.0
    queue_timeout_s: float | None = None
    request_timeout_s: float | None = None
    default_class: str = "default"
    service_tiers: Mapping[str, str] = field(default_factory=dict)
    access_log: bool = True

    def __post_init__(self) -> None:
        positive = (
            "max_body_bytes",
            "body_timeout_s",
            "stream_stall_timeout_s",
            "unready_after_s",
            "dead_after_s",
        )
        not_negative = ("sse_keep_alive_s", "timeout_keep_alive_s", "drain_timeout_s")
        for name in positive:
            if not getattr(self, name) > 0:
                raise ConfigError(f"server.{name} must be above 0")
        for name in not_negative:
            if not getattr(self, name) >= 0:
                raise ConfigError(f"server.{name} must not be negative")
        if not 0 <= self.port < 65536:
            raise ConfigError("server.port must be between 0 and 65535")
        if "" in self.api_keys:
            raise ConfigError("server.api_keys holds an empty key")
