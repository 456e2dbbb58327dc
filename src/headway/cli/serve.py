"""``headway serve``: a model over HTTP, as OpenAI's API."""

from __future__ import annotations

import argparse
import logging
import sys

from headway.cli.options import add_model_argument, add_settings, load
from headway.cli.output import print_json

_log = logging.getLogger(__name__)


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_model_argument(parser)
    add_settings(parser)


def run(args: argparse.Namespace) -> int:
    """Serve until a signal; with --json one object on standard output says that it is ready."""
    loaded = load(args)
    settings = loaded.settings
    logging.basicConfig(
        level=settings.server.log_level.upper(),
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
        stream=sys.stderr,
    )
    for warning in loaded.warnings:
        _log.warning(warning)

    from headway.assembly import assemble
    from headway.engine.garbage import collect_rarely
    from headway.models.progress import on_standard_error
    from headway.server.app import create_app
    from headway.server.run import bind, ready_text, serve

    listener = bind(settings.server)  # before the model is loaded: a taken port is said at once
    assembly = assemble(settings, on_standard_error)
    app = create_app(
        {assembly.name: assembly.generator},
        assembly.engine,
        assembly.metrics,
        settings,
    )

    collect_rarely()

    def announce(url: str) -> None:
        if args.json:
            print_json({"url": url, "model": assembly.name, **assembly.computing})
            sys.stdout.flush()
        else:
            text = ready_text(url, assembly.name, assembly.computing)
            print(text, end="", file=sys.stderr, flush=True)

    try:
        return serve(app, assembly.engine, settings.server, listener, announce)
    finally:
        if assembly.keeper is not None:
            assembly.keeper.close()
