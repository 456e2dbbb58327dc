"""``headway generate``: one answer on the terminal, streamed."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any

from headway.cli.options import add_settings, load
from headway.cli.output import print_json, print_warnings
from headway.errors import GenerationError, UsageError

if TYPE_CHECKING:
    from headway.generation.params import GenerationParams
    from headway.llm import LLM, Output

#: queue caps, which a lone request never meets
SERVER_ONLY = ("scheduler.max_queue_requests", "scheduler.max_queue_tokens")

SECTIONS = ("model", "scheduler", "kv", "simulation", "journal")

#: flags that are fields of GenerationParams
_SAMPLING = (
    "max_tokens",
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "repetition_penalty",
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("prompt", metavar="PROMPT", help="what to answer; - reads standard input")
    group = parser.add_argument_group("answer")
    group.add_argument("--system", metavar="TEXT", help="system message of the conversation")
    group.add_argument(
        "--raw", action="store_true", help="continue the text itself, without the chat template"
    )
    _add_sampling(group)
    add_settings(parser, SECTIONS, SERVER_ONLY)


def _add_sampling(group: argparse._ArgumentGroup) -> None:
    def add(flag: str, kind: type, meaning: str) -> None:
        group.add_argument(flag, type=kind, metavar="N" if kind is int else "X", help=meaning)

    add("--max-tokens", int, "output tokens at most; unset: what the context leaves")
    add("--temperature", float, "0 always takes the likeliest token; unset: the model's own")
    add("--top-p", float, "draw from the likeliest tokens that have this mass together")
    add("--top-k", int, "draw from so many of the likeliest tokens; 0: from all")
    add("--min-p", float, "leave out tokens less likely than this part of the likeliest")
    add("--repetition-penalty", float, "above 1 avoids tokens that stand in the text already")
    group.add_argument("--stop", action="append", metavar="TEXT", help="end here; may be repeated")
    add("--draw-seed", int, "repeats the same draws")


def run(args: argparse.Namespace) -> int:
    """Answer the prompt."""
    if args.raw and args.system is not None:
        raise UsageError("--system needs the chat template, and --raw leaves it out")
    if sys.stdout is None:  # the caller has closed it
        raise UsageError("standard output is closed, so there is nowhere to write the answer")
    prompt = _read_standard_input() if args.prompt == "-" else args.prompt
    loaded = load(args)
    print_warnings(loaded.warnings)

    from headway.llm import LLM

    with LLM.from_settings(loaded.settings) as llm:
        params = _params(args)
        if args.json:
            print_json(_as_json(_answer(llm, args, prompt, params), llm.assembly.name))
        else:
            _stream(llm, args, prompt, params)
    return 0


def _read_standard_input() -> str:
    if sys.stdin is None:  # the caller has closed it
        raise UsageError("the prompt is -, and standard input is closed")
    try:
        return sys.stdin.read()
    except UnicodeDecodeError as error:
        raise UsageError(f"standard input is not {error.encoding} text") from None


def _params(args: argparse.Namespace) -> GenerationParams:
    from headway.generation.params import GenerationParams

    given: dict[str, Any] = {name: getattr(args, name) for name in _SAMPLING}
    return GenerationParams(**given, seed=args.draw_seed, stop=tuple(args.stop or ()))


def _messages(args: argparse.Namespace, prompt: str) -> list[dict[str, Any]]:
    system = [] if args.system is None else [{"role": "system", "content": args.system}]
    return [*system, {"role": "user", "content": prompt}]


def _answer(llm: LLM, args: argparse.Namespace, prompt: str, params: GenerationParams) -> Output:
    if args.raw:
        return llm.generate(prompt, params)[0]
    return llm.chat(_messages(args, prompt), params)


def _stream(llm: LLM, args: argparse.Namespace, prompt: str, params: GenerationParams) -> None:
    if args.raw:
        pieces = llm.stream_text(prompt, params)
    else:
        pieces = llm.stream(_messages(args, prompt), params)
    with pieces:
        try:
            for piece in pieces:
                print(piece, end="", flush=True)
        except GenerationError:
            print(flush=True)  # the complaint gets a line of its own
            raise
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
