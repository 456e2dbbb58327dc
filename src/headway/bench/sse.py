"""Server-sent events, as they come in pieces of any size."""

from __future__ import annotations

from collections.abc import Iterator

from headway.bench.errors import ExchangeError

#: longer lines are no event of a token, or of a server in its right mind
MAX_LINE_BYTES = 1 << 22


class EventReader:
    """Splits a stream into the data of its events; comments and other fields are left out."""

    def __init__(self) -> None:
        self._rest = b""
        self._data: list[bytes] = []

    def feed(self, part: bytes) -> Iterator[bytes]:
        """Yield the data of the events that are complete now.

        Raises:
            ExchangeError: a line is too long, or is the field ``error`` (older llama.cpp).
        """
        *lines, self._rest = (self._rest + part).split(b"\n")
        if len(self._rest) > MAX_LINE_BYTES:
            raise ExchangeError("bad answer", f"a line of more than {MAX_LINE_BYTES} bytes")
        for line in lines:
            event = self._take(line.removesuffix(b"\r"))
            if event is not None:
                yield event

    def _take(self, line: bytes) -> bytes | None:
        if not line:
            event = b"\n".join(self._data) if self._data else None
            self._data.clear()
            return event
        name, _, value = line.partition(b":")
        if name == b"data":
            self._data.append(value.removeprefix(b" "))
        elif name == b"error":
            raise ExchangeError("stream error", value.decode("utf-8", "replace").strip()[:300])
        return None
