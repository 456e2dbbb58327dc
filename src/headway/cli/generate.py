"""``headway generate``: one answer on the terminal, streamed."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any

from headway.cli.options import add_settings, load
from headway.cli.output import print_json
from headway.errors import UsageError

if TYPE_CHECKING:
    from headway.generation.params import GenerationParams
    from headway.llm import LLM, Output

SECTIONS = ("model", "scheduler", "kv", "simulation", "journal")

_SAMPLING: tuple[tuple[str, type, str], ...] = (
    ("max-tokens", int, "output tokens at most; unset: what the context leaves"),
    ("temperature", float, "0 always takes the likeliest token; unset: the model's own"),
    ("top-p", float, "draw from the likeliest tokens that have this mass together"),
    ("top-k", int, "draw from so many of the likeliest tokens; 0: from all"),
    ("min-p", float, "leave out tokens less likely than this part of the likeliest"),
    ("repetition-penalty", float, "above 1 avoids tokens that stand in the text already"),
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("prompt", metavar="PROMPT", help="what to answer; - reads standard input")
    group = parser.add_argument_group("answer")
    group.add_argument("--system", metavar="TEXT", help="system message of the conversation")
    group.add_argument(
        "--raw", action="store_true", help="continue the text itself, without the chat template"
    )
    for name, kind, meaning in _SAMPLING:
        metavar = "N" if kind is int else "X"
        group.add_argument(f"--{name}", type=kind, metavar=metavar, help=meaning)
    group.add_argument("--stop", action="append", metavar="TEXT", help="end here; may be repeated")
    group.add_argument("--draw-seed", type=int, metavar="N", help="repeats the same draws")
    add_settings(parser, SECTIONS)


def run(args: argparse.Namespace) -> int:
    """Answer the prompt."""
    if args.raw and args.system is not None:
        raise UsageError("--system needs the chat template, and --raw leaves it out")
    prompt = sys.stdin.read() if args.prompt == "-" else args.prompt
    loaded = load(args)

    from headway.llm import LLM

    with LLM.from_settings(loaded.settings) as llm:
        params = _params(args)
        if args.json:
            print_json(_as_json(_answer(llm, args, prompt, params), llm.assembly.name))
        else:
            _stream(llm, args, prompt, params)
    return 0


def _params(args: argparse.Namespace) -> GenerationParams:
    from headway.generation.params import GenerationParams

    names = [name.replace("-", "_") for name, _, _ in _SAMPLING]
    given: dict[str, Any] = {name: getattr(args, name) for name in names}
    return GenerationParams(**given, seed=args.draw_seed, stop=tuple(args.stop or ()))


def _messages(args: argparse.Namespace, prompt: str) -> list[dict[str, Any]]:
    system = [] if args.system is None else [{"role": "system", "content": args.system}]
    return [*system, {"role": "user", "content": prompt}]


def _answer(llm: LLM, args: argparse.Namespace, prompt: str, params: GenerationParams) -> Output:
    if args.raw:
        return llm.generate(prompt, params)[0]
    return llm.chat(_messages(args, prompt), params)


def _stream(llm: LLM, args: argparse.Namespace, prompt: str, params: GenerationParams) -> None:
    pieces = (
        llm.stream_text(prompt, params) if args.raw else llm.stream(_messages(args, prompt), params)
    )
    for piece in pieces:
        print(piece, end="", flush=True)
    print(flush=True)


def _as_json(output: Output, model: str) -> dict[str, Any]:
    choice = output.choices[0]
    return {
        "model": model,
        "text": choice.text,
        "finish_reason": choice.finish_reason,
        "stop_reason": choice.stop_reason,
        "usage": {
            "prompt_tokens": len(output.prompt_token_ids),
            "completion_tokens": output.num_output_tokens,
        },
    }
