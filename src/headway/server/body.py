"""From the wire to a request struct: size, time, content type, JSON; every fault a 4xx."""

from __future__ import annotations

import asyncio
import difflib
import re
from contextlib import suppress
from typing import TypeVar

import msgspec
from starlette.datastructures import Headers
from starlette.types import Receive, Scope

from headway.errors import RequestError

T = TypeVar("T", bound=msgspec.Struct)

MAX_SUGGESTION_CHARACTERS = 64

#: Opening brackets in a body, those in strings included: parsing millions of arrays would hold up
#: everybody else.
MAX_BRACKETS = 2**18

#: What is read and dropped of a body that is too large, since most clients read no answer before
#: they have sent everything.
MAX_DISCARDED_BYTES = 32 * 2**20
DISCARD_TIMEOUT_S = 5.0
_PATH = re.compile(r" - at `\$\.?([^`]*)`$")
_KEY_PATH = re.compile(r" - at `key` in `\$\.?([^`]*)`$")
_UNKNOWN = re.compile(r"Object contains unknown field `(.*?)`(?: - at `\$\.?([^`]*)`)?$", re.DOTALL)


class ClientGoneError(Exception):
    """The client left before its request was complete."""


def _too_large(limit: int) -> RequestError:
    message = f"The request body is larger than {limit} bytes."
    return RequestError(message, code="request_too_large", status=413)


def check_content_type(headers: Headers) -> None:
    """Refuse bodies that are not declared as JSON in UTF-8."""
    media_type, _, parameters = headers.get("content-type", "").partition(";")
    media_type = media_type.strip().lower()
    is_json = media_type == "application/json" or (
        media_type.startswith("application/") and media_type.endswith("+json")
    )
    charset = re.search(r"charset\s*=\s*\"?([^\";\s]+)", parameters, re.IGNORECASE)
    if not is_json or (charset and charset[1].lower() not in ("utf-8", "utf8")):
        message = "The request needs the header 'Content-Type: application/json'."
        raise RequestError(message, code="unsupported_media_type", status=415)


def _declared_length(headers: Headers) -> int:
    value = headers.get("content-length", "0")
    return int(value) if value.isascii() and value.isdigit() else 0


async def _discard(receive: Receive) -> None:
    """Read the rest of a body and drop it, as far as that is reasonable."""
    num_bytes, more = 0, True
    with suppress(TimeoutError):
        async with asyncio.timeout(DISCARD_TIMEOUT_S):
            while more and num_bytes < MAX_DISCARDED_BYTES:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise ClientGoneError
                num_bytes += len(message.get("body", b""))
                more = message.get("more_body", False)


async def _receive_all(receive: Receive, limit: int) -> bytes:
    body = bytearray()
    more = True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGoneError
        body += message.get("body", b"")
        if len(body) > limit:
            if message.get("more_body", False):
                await _discard(receive)
            raise _too_large(limit)
        more = message.get("more_body", False)
    return bytes(body)


async def read_body(scope: Scope, receive: Receive, limit: int, timeout_s: float) -> bytes:
    """Read a JSON body of at most ``limit`` bytes; what is beyond is never kept.

    Raises:
        RequestError: 413, 415, or 408 if it takes longer than ``timeout_s``.
        ClientGoneError: the client left.
    """
    headers = Headers(scope=scope)
    check_content_type(headers)
    length = _declared_length(headers)
    if length > limit:
        # whoever asks first sends nothing after this answer
        if length <= MAX_DISCARDED_BYTES and headers.get("expect", "").lower() != "100-continue":
            await _discard(receive)
        raise _too_large(limit)
    try:
        async with asyncio.timeout(timeout_s):
            return await _receive_all(receive, limit)
    except TimeoutError:
        message = f"The request body did not arrive within {timeout_s:g} s."
        raise RequestError(message, code="body_timeout", status=408) from None


def _unknown_field(name: str, where: str, known: tuple[str, ...]) -> RequestError:
    full = f"{where}.{name}" if where else name
    message = f"Unknown parameter: '{full}'."
    if not where and len(name) <= MAX_SUGGESTION_CHARACTERS:
        near = difflib.get_close_matches(name, known, n=1)
        message += f" Did you mean '{near[0]}'?" if near else ""
    return RequestError(message, param=full, code="unknown_parameter")


def _invalid(error: msgspec.ValidationError, known: tuple[str, ...]) -> RequestError:
    text = str(error)
    if unknown := _UNKNOWN.match(text):
        return _unknown_field(unknown[1], unknown[2] or "", known)
    if text.startswith("Object missing required field") and (
        missing := re.search(r"`(.*?)`", text)
    ):
        path = _KEY_PATH.search(text) or _PATH.search(text)
        param = f"{path[1]}.{missing[1]}" if path and path[1] else missing[1]
        message = f"Missing required parameter: '{param}'."
        return RequestError(message, param=param, code="missing_required_parameter")
    path = _KEY_PATH.search(text) or _PATH.search(text)
    param = path[1] if path and path[1] else None
    reason = text[: path.start()] if path else text
    where = f"Invalid '{param}'" if param else "Invalid request body"
    return RequestError(f"{where}: {reason}.", param=param, code="invalid_type")


def decode(body: bytes, decoder: msgspec.json.Decoder[T]) -> T:
    """Parse a body.

    Raises:
        RequestError: 400; names the field at fault where there is one.
    """
    if body.count(b"[") + body.count(b"{") > MAX_BRACKETS:
        message = f"The request body has more than {MAX_BRACKETS} opening brackets."
        raise RequestError(message, code="too_many_brackets")
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        known = decoder.type.__struct_fields__
        raise _invalid(error, known) from None
    except RecursionError:
        message = "The request body is nested too deeply."
        raise RequestError(message, code="invalid_json") from None
    except (msgspec.DecodeError, UnicodeError) as error:
        raise RequestError(
            f"The request body is not valid JSON: {error}.", code="invalid_json"
        ) from None
