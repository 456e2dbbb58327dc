"""The reference documents say what the code does: fields, codes, metrics, settings, examples."""

from __future__ import annotations

import ast
import importlib.util
import json
import re
import textwrap
from collections.abc import Iterator
from dataclasses import replace
from http import HTTPStatus
from pathlib import Path
from types import ModuleType

import msgspec
import pytest
import tokenizers
from tokenizers import decoders, models, pre_tokenizers

import headway
from headway.config import all_settings
from headway.core.events import ExpireReason, RejectReason
from headway.generation import params
from headway.models.checkpoint import TokenizerAssets
from headway.server import body, endpoint, errors, refusals, requests, responses, run
from headway.server.access import MAX_REQUEST_ID_CHARACTERS
from headway.server.params import MAX_PROMPTS, SAME_NAME
from headway.server.routes.health import Report
from headway.server.routes.models import MAX_DETOKENIZED
from headway.testing.tiny_models import tiny_checkpoint, tiny_config
from headway.text.byte_level import CHARACTERS

ROOT = Path(__file__).parents[2]
SOURCE = Path(headway.__file__).parent
DOCS = ROOT / "docs"


def load_generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("gen", ROOT / "scripts" / "reference_docs.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


generator = load_generator()
HTTP_API = (DOCS / "http-api.md").read_text(encoding="utf-8")


def section(text: str, title: str) -> str:
    """Return what stands under a heading, up to the next one of its rank or above."""
    found = re.search(rf"^(#+) {re.escape(title)}$", text, re.MULTILINE)
    assert found, f"no heading {title!r}"
    rest = text[found.end() :]
    end = re.search(rf"^#{{1,{len(found[1])}}} ", rest, re.MULTILINE)
    return rest[: end.start()] if end else rest


def coded(text: str) -> set[str]:
    """Return every piece of inline code."""
    return set(re.findall(r"`([^`\n]+)`", text))


def rows(text: str) -> Iterator[list[str]]:
    """Yield the cells of each row of the tables, headers included."""
    for line in text.splitlines():
        if line.startswith("| ") and not line.startswith("| ---"):
            yield [cell.strip() for cell in line.strip("|").split(" | ")]


# ------------------------------------------------------------------ generated parts


@pytest.mark.parametrize("name", generator.PARTS)
def test_generated_parts_are_up_to_date(name: str) -> None:
    text = (DOCS / name).read_text(encoding="utf-8")
    assert generator.renewed(text, generator.PARTS[name]) == text, "run `make docs`"


def test_a_document_without_its_marks_is_refused() -> None:
    with pytest.raises(ValueError, match="'settings'"):
        generator.renewed("# Settings\n", generator.PARTS["settings.md"])


def test_checking_says_what_is_stale_and_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in generator.PARTS:
        (tmp_path / name).write_bytes((DOCS / name).read_bytes())
    stale = tmp_path / "settings.md"
    stale.write_text(stale.read_text().replace("HEADWAY_SERVER_PORT", "HEADWAY_SERVER_DOOR"))
    before = stale.read_text()
    monkeypatch.setattr(generator, "DOCS", tmp_path)
    assert generator.main(["--check"]) == 1
    assert capsys.readouterr().out == "out of date: settings.md\n"
    assert stale.read_text() == before
    assert generator.main([]) == 0
    assert generator.main(["--check"]) == 0


def test_every_setting_has_a_row() -> None:
    text = (DOCS / "settings.md").read_text(encoding="utf-8")
    names = [row[2].strip("`") for row in rows(text) if len(row) == 6]
    assert names[0] == "variable"
    assert {*names} - {"variable"} == {setting.variable for setting in all_settings()}


# ------------------------------------------------------------------ requests and answers


def fields_of(struct: type[msgspec.Struct]) -> set[str]:
    return {field.name for field in msgspec.structs.fields(struct)}


SHARED = fields_of(requests.GenerationRequest)


@pytest.mark.parametrize(
    ("title", "fields"),
    [
        ("Fields of both endpoints", SHARED | fields_of(requests.StreamOptions)),
        ("Chat completions", fields_of(requests.ChatRequest) - SHARED - {"parallel_tool_calls"}),
        ("Chat completions", fields_of(requests.ChatMessage) - {"annotations"}),
        ("Chat completions", fields_of(requests.ContentPart) - {"type", "text"}),
        ("Completions", fields_of(requests.CompletionRequest) - SHARED),
        ("Tokenizer", fields_of(requests.TokenizeRequest) | fields_of(requests.DetokenizeRequest)),
    ],
)
def test_every_request_field_is_described(title: str, fields: set[str]) -> None:
    assert fields <= coded(section(HTTP_API, title))


def test_no_field_is_described_that_does_not_exist() -> None:
    known = fields_of(requests.ChatRequest) | fields_of(requests.CompletionRequest)
    known |= fields_of(requests.ChatMessage) | fields_of(requests.ContentPart)
    known |= fields_of(requests.StreamOptions)
    for title in ("Fields of both endpoints", "Chat completions", "Completions"):
        text = section(HTTP_API, title).partition("### Answer")[0]
        assert {name for row in rows(text) for name in coded(row[0])} <= known


@pytest.mark.parametrize(
    ("title", "struct"),
    [
        ("Chat completions", responses.ChatCompletion),
        ("Chat completions", responses.ChatChoice),
        ("Chat completions", responses.ChatAnswer),
        ("Chat completions", responses.ChatLogprobs),
        ("Chat completions", responses.TokenLogprob),
        ("Chat completions", responses.PromptLogprob),
        ("Chat completions", responses.WireUsage),
        ("Streaming", responses.ChatDelta),
        ("Completions", responses.Completion),
        ("Completions", responses.CompletionChoice),
        ("Completions", responses.CompletionLogprobs),
        ("Models", responses.Model),
        ("Tokenizer", responses.Tokens),
        ("Tokenizer", responses.Prompt),
        ("Health", Report),
        ("Errors", errors.ErrorBody),
    ],
)
def test_every_answer_field_is_described(title: str, struct: type[msgspec.Struct]) -> None:
    text = section(HTTP_API, title)
    named = {name for code in coded(text) for name in re.findall(r"\w+", code)}
    assert fields_of(struct) <= named | set(re.findall(r'"(\w+)"', text))


def test_fields_without_effect_are_those_that_no_code_reads() -> None:
    listed = coded(section(HTTP_API, "Fields without effect"))
    known = fields_of(requests.ChatRequest) | fields_of(requests.CompletionRequest)
    known |= fields_of(requests.ChatMessage)
    read = set(refusals.CHAT) | set(refusals.COMPLETION) | set(refusals.MESSAGE)
    read |= set(SAME_NAME)
    read |= {"max_tokens", "max_completion_tokens"}  # chat reads one of them by its name
    for path in SOURCE.joinpath("server").rglob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        read |= {
            node.attr
            for node in ast.walk(tree)
            if isinstance(node, ast.Attribute)
            and isinstance(node.value, ast.Name)
            and node.value.id in ("request", "message")
        }
    assert listed == known - read


def test_every_path_is_listed() -> None:
    app = (SOURCE / "server/app.py").read_text(encoding="utf-8")
    paths = {path.replace(":path", "") for path in re.findall(r'Route\("([^"]+)"', app)}
    listed = set(re.findall(r"/[\w/{}]+", section(HTTP_API, "Endpoints")))
    assert paths
    assert paths <= listed


@pytest.mark.parametrize(
    ("field", "number"),
    [
        ("n", params.MAX_N),
        ("stop", params.MAX_STOP_STRINGS),
        ("stop", params.MAX_STOP_CHARACTERS),
        ("stop_token_ids", params.MAX_STOP_TOKEN_IDS),
        ("logit_bias", int(params.MAX_LOGIT_BIAS)),
        ("logit_bias", params.MAX_LOGIT_BIASES),
        ("repetition_penalty", int(params.MAX_REPETITION_PENALTY)),
        ("messages", refusals.MAX_MESSAGES),
        ("messages", refusals.MAX_PARTS),
        ("prompt_logprobs", params.MAX_LOGPROBS),
        ("top_logprobs", params.MAX_LOGPROBS),
        ("logprobs", params.MAX_LOGPROBS),
        ("prompt", MAX_PROMPTS),
    ],
)
def test_limits_of_fields_are_the_real_ones(field: str, number: int) -> None:
    ranges = [row[2] for row in rows(HTTP_API) if len(row) == 4 and row[0] == f"`{field}`"]
    assert any(re.search(rf"(?<!\d){number}(?!\d)", text) for text in ranges), ranges


@pytest.mark.parametrize(
    "statement",
    [
        f"must\narrive within {endpoint.BODY_TIMEOUT_S:g} s",
        f"at most {MAX_REQUEST_ID_CHARACTERS} characters are echoed",
        f"at most {errors.MAX_MESSAGE_CHARACTERS} characters",
        f"may have {body.MAX_BRACKETS} opening brackets",
        f"too large is read and dropped up to {body.MAX_DISCARDED_BYTES // 2**20} MiB and for "
        f"at most {body.DISCARD_TIMEOUT_S:g} s",
        f"takes `model` and `tokens`, {MAX_DETOKENIZED} at most",
        f"503s of probes carry `Retry-After: {errors.RETRY_AFTER_S:g}`",
    ],
)
def test_constants_of_the_server_are_the_real_ones(statement: str) -> None:
    assert statement in HTTP_API


def test_clients_get_the_stated_time_to_read_the_last_bytes() -> None:
    text = (DOCS / "operations.md").read_text(encoding="utf-8")
    assert f"gives clients {run.GOODBYE_S} s to read" in text


# ------------------------------------------------------------------ errors

#: Codes in the source that the HTTP API can't give, and why.
UNREACHABLE = {
    "duplicate_request_id": "ids of requests are Headway's own",
    "invalid_request": "the generator has checked all that before",
    "invalid_stop": "empty stop strings are an invalid_value before",
    "invalid_token_id": "ids outside the vocabulary are an invalid_value before",
    "invalid_tool_call": "tool calls are refused before",
    "invalid_unicode": "JSON with a lone surrogate is invalid_json before",
}

#: What stands behind ``code=`` where it is no literal.
COMPUTED = {
    "rejected.reason.value": {reason.value for reason in RejectReason},
    "event.reason.value": {reason.value for reason in (*RejectReason, *ExpireReason)},
    "RejectReason.DUPLICATE.value": {RejectReason.DUPLICATE.value},
    "event.reason": {"client_too_slow"},
    "error.code": set(),
    "code": set(),
    "HTTP_CODES.get(error.status_code)": set(errors.HTTP_CODES.values()),
}


def raised() -> Iterator[tuple[str, int | None]]:
    """Yield each code in the source, with the status that stands beside it."""
    for path in sorted(SOURCE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call):
                yield from _codes(node)


def _codes(call: ast.Call) -> Iterator[tuple[str, int | None]]:
    name = ast.unparse(call.func)
    if name not in ("RequestError", "GenerationError", "problem", "ErrorBody"):
        return
    keywords = {word.arg: word.value for word in call.keywords}
    code = keywords.get("code")
    if isinstance(code, ast.Constant):
        yield str(code.value), _status(name, call, keywords)
    elif code is not None:
        assert ast.unparse(code) in COMPUTED, f"a new way to make a code: {ast.unparse(code)}"
        yield from ((each, None) for each in COMPUTED[ast.unparse(code)])


def _status(name: str, call: ast.Call, keywords: dict[str | None, ast.expr]) -> int:
    node = call.args[0] if name == "problem" else keywords.get("status", ast.Constant(400))
    assert isinstance(node, ast.Constant)
    assert isinstance(node.value, int)
    return node.value


def documented_errors() -> dict[str, list[str]]:
    """Return the rows of the table of errors by code."""
    table = [row for row in rows(section(HTTP_API, "Errors")) if len(row) == 5]
    return {row[3].strip("`"): row for row in table if row[0] != "case"}


def test_every_code_that_a_client_can_get_is_in_the_table_and_no_other() -> None:
    assert {code for code, _ in raised()} == set(documented_errors()) | set(UNREACHABLE)


def test_the_table_has_the_right_statuses() -> None:
    table = documented_errors()
    for code, status in raised():
        if status is not None and code not in UNREACHABLE:
            assert table[code][1] == str(status), code


def test_the_table_has_the_right_types() -> None:
    for code, row in documented_errors().items():
        status = HTTPStatus(int(row[1]))
        assert row[2] == errors.problem(status, "").body.type, code


# ------------------------------------------------------------------ metrics


def known_series() -> set[str]:
    """Return every name that a query may have."""
    names = set()
    for family in generator.families():
        names |= {generator.exposed_name(family), *(sample.name for sample in family.samples)}
    return names


@pytest.mark.parametrize("path", sorted(DOCS.rglob("*.md")), ids=lambda path: path.stem)
def test_metrics_in_documents_exist(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    found = set(re.findall(r"\bheadway_\w*[a-z]\b|\bvllm:\w+", text))
    assert found <= known_series()


def test_labels_in_queries_exist() -> None:
    text = (DOCS / "metrics.md").read_text(encoding="utf-8")
    queries = re.findall(r"^```promql\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    labels = {
        label for family in generator.families() for s in family.samples for label in s.labels
    }
    assert len(queries) >= 3
    for query in queries:
        named = re.findall(r"(?:by|ignoring) \(([^)]*)\)", query) + re.findall(r"\{(\w+)", query)
        assert {word for group in named for word in re.split(r",\s*", group)} <= labels


# ------------------------------------------------------------------ examples

EXAMPLES = [
    pytest.param(block, id=f"{path.stem}-{number}")
    for path in (ROOT / "README.md", DOCS / "python-api.md")
    for number, block in enumerate(
        re.findall(
            r"^```python\n(.*?)^```", path.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
        )
    )
]
EOS = 256


def byte_tokenizer() -> bytes:
    """Id b is byte b; one special token follows."""
    vocab = {CHARACTERS[byte]: byte for byte in range(256)} | {"<eos>": EOS}
    library = tokenizers.Tokenizer(models.BPE(vocab, []))
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    library.decoder = decoders.ByteLevel()
    library.add_special_tokens(["<eos>"])
    return library.to_str().encode()


@pytest.fixture
def tiny_default_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever model an example asks for, it gets one of a few thousand random weights."""
    checkpoint = replace(
        tiny_checkpoint(tiny_config(vocab_size=EOS + 1)),
        tokenizer=TokenizerAssets(
            tokenizer_json=byte_tokenizer(),
            tokenizer_config={"eos_token": "<eos>"},
            chat_template="{% for m in messages %}{{ m.content }}{% endfor %}",
        ),
        eos_token_ids=(EOS,),
    )
    monkeypatch.setattr("headway.assembly.resolve", lambda *_: checkpoint.path)
    monkeypatch.setattr("headway.assembly.open_checkpoint", lambda _: checkpoint)
    for variable in ("HEADWAY_CONFIG", "HEADWAY_MODEL_EXECUTOR"):
        monkeypatch.delenv(variable, raising=False)


@pytest.mark.parametrize("block", EXAMPLES)
def test_examples_run(block: str, tiny_default_model: None) -> None:
    code = compile(block, "example", "exec")
    if "http://" not in block:  # needs a server
        exec(code, {"__name__": "__main__"})


def test_examples_hold_the_fields_of_parameters() -> None:
    text = section((DOCS / "python-api.md").read_text(encoding="utf-8"), "`GenerationParams`")
    listed = {name for row in rows(text) for name in coded(row[0])}
    assert listed == set(params.GenerationParams.__dataclass_fields__)


def test_json_in_documents_is_json() -> None:
    for path in DOCS.rglob("*.md"):
        for block in re.findall(r"^```json\n(.*?)^```", path.read_text(), re.MULTILINE | re.DOTALL):
            json.loads(textwrap.dedent(block))


# ------------------------------------------------------------------ the index


def test_every_document_is_in_the_index() -> None:
    """Or in the index of its folder, which is in that one."""
    index = (DOCS / "README.md").resolve()
    linked = links(index)
    for other in sorted(path for path in linked if path.name == "README.md"):
        linked |= links(other)
    assert {path.resolve() for path in DOCS.rglob("*.md")} <= linked | {index}


def links(path: Path) -> set[Path]:
    targets = re.findall(r"\]\(([^)#]+)", path.read_text(encoding="utf-8"))
    return {(path.parent / target).resolve() for target in targets}


def test_anchors_exist() -> None:
    for path in [*DOCS.rglob("*.md"), *ROOT.glob("*.md")]:
        text = path.read_text(encoding="utf-8")
        for target, anchor in re.findall(r"\]\(([^)#\s]*)#([^)\s]+)\)", text):
            if "://" not in target:
                other = (path.parent / target).read_text() if target else text
                assert anchor in set(anchors(other)), f"{path.name}: {target}#{anchor}"


def anchors(text: str) -> Iterator[str]:
    """Yield the anchors that GitHub gives to headings."""
    for title in re.findall(r"^#+ (.+)$", text, re.MULTILINE):
        yield re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")
