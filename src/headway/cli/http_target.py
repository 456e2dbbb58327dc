"""Flags of a server that is put under load, for every command that does so."""

from __future__ import annotations

import argparse
import json
import os
from typing import TYPE_CHECKING, Any

from headway.errors import UsageError

if TYPE_CHECKING:
    from headway.bench.over_http import HttpSetup


def add_http(group: argparse._ArgumentGroup) -> None:
    """Add the flags."""
    group.add_argument(
        "--endpoint", choices=("completions", "chat"), default="completions", help="which API"
    )
    group.add_argument(
        "--prompt-format",
        choices=("text", "ids"),
        default="text",
        help="made-up prompts as text, or as token ids (exact lengths; completions only)",
    )
    group.add_argument(
        "--api-key", metavar="KEY", help="sent as Bearer; default: $OPENAI_API_KEY, if set"
    )
    group.add_argument(
        "--header", action="append", metavar="NAME:VALUE", help="sent along; may be repeated"
    )
    group.add_argument(
        "--class-header", metavar="NAME", help="names the class, in place of service_tier"
    )
    group.add_argument("--tenant-header", metavar="NAME", help="names the tenant")
    group.add_argument(
        "--extra-body", metavar="JSON", help="fields added to each request, as a JSON object"
    )
    group.add_argument(
        "--timeout-s", type=float, metavar="S", default=600.0, help="of a request (default: 600)"
    )


def check_http(args: argparse.Namespace) -> None:
    """Check the flags against each other.

    Raises:
        UsageError: they contradict each other, or a value can't be.
    """
    if args.prompt_format == "ids" and args.endpoint == "chat":
        raise UsageError("--prompt-format ids needs --endpoint completions")
    if not args.timeout_s > 0:
        raise UsageError(f"--timeout-s must be above 0, not {args.timeout_s:g}")


def http_setup(args: argparse.Namespace, url: str, *, ignore_eos: bool) -> HttpSetup:
    """Return where requests go, and how they are written.

    Raises:
        UsageError: a flag makes no sense.
        TargetError: the URL is none.
    """
    from headway.bench import parse_url
    from headway.bench.over_http import HttpSetup

    return HttpSetup(
        target=parse_url(url),
        model=vars(args).get("model.path"),
        endpoint=args.endpoint,
        prompt_format=args.prompt_format,
        ignore_eos=ignore_eos,
        class_header=args.class_header,
        tenant_header=args.tenant_header,
        headers=_headers(args),
        extra=_extra(args.extra_body),
        timeout_s=args.timeout_s,
    )


def _headers(args: argparse.Namespace) -> dict[str, str]:
    headers = {}
    key = args.api_key or os.environ.get("OPENAI_API_KEY")
    if key:
        headers["Authorization"] = f"Bearer {key}"
    for each in args.header or ():
        name, colon, value = each.partition(":")
        if not colon or not name.strip():
            raise UsageError(f"--header {each!r}: use NAME:VALUE")
        headers[name.strip()] = value.strip()
    for name, value in headers.items():
        if not (name + value).isprintable() or not (name + value).isascii():
            raise UsageError(f"the header {name!r} has characters that headers can't have")
    return headers


def _extra(text: str | None) -> dict[str, Any]:
    if text is None:
        return {}
    try:
        extra = json.loads(text)
    except ValueError as error:
        raise UsageError(f"--extra-body is no JSON: {error}") from None
    if not isinstance(extra, dict):
        raise UsageError("--extra-body must be a JSON object")
    return extra
