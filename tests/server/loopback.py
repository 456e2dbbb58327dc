"""A whole server for tests: scripted executor, real scheduler, engine, tokenizer, HTTP."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import tokenizers
from tokenizers import decoders, models, pre_tokenizers

from headway.assembly import longest_by_class
from headway.config import ClassSettings, ServerSettings, Settings, TenantSettings
from headway.config.scheduling import service_classes
from headway.core.config import SchedulerConfig
from headway.core.limits import SchedulerLimits
from headway.core.plan import NewSequence
from headway.core.scheduler import Scheduler
from headway.engine.aio import AsyncEngine
from headway.engine.clock import RealClock, VirtualClock
from headway.engine.loop import Engine
from headway.generation.generator import Generator
from headway.metrics.engine import EngineMetrics
from headway.server.app import create_app
from headway.server.run import bind, make_server, url_of
from headway.testing.scripted import ScriptedExecutor
from headway.text.byte_level import CHARACTERS
from headway.text.chat_template import ChatTemplate
from headway.text.json_tokenizer import tokenizer_from_json
from headway.text.tokenizer import Tokenizer

EOS, END, BOS = 256, 257, 258
WORDS = ("DEF", "HI", *(f"w{i:02}" for i in range(40)))
WORD_IDS = {word: 259 + i for i, word in enumerate(WORDS)}
VOCAB_SIZE = 259 + len(WORDS)
CONTEXT = 512
MODEL = "tiny"

TEMPLATE = (
    "{% for m in messages %}{% if m.role == 'system' and not loop.first %}"
    "{{ raise_exception('System message must come first') }}{% endif %}"
    "{{ m.role[0] }}:{{ m.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}a:{% endif %}"
)


def make_tokenizer() -> Tokenizer:
    """Byte-level: id b is byte b; then three special tokens; then words that encode never gives."""
    vocab = {CHARACTERS[byte]: byte for byte in range(256)}
    for word, token_id in WORD_IDS.items():
        vocab["".join(CHARACTERS[byte] for byte in word.encode())] = token_id
    vocab |= {"<eos>": EOS, "<end>": END, "<bos>": BOS}
    library = tokenizers.Tokenizer(models.BPE(vocab, []))
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    library.decoder = decoders.ByteLevel()
    library.add_special_tokens(["<eos>", "<end>", "<bos>"])
    config = {"eos_token": "<eos>", "bos_token": "<bos>"}
    return tokenizer_from_json(library.to_str().encode(), config)


def say(text: str | bytes) -> Callable[[NewSequence, int], int]:
    """Script: these bytes, one a token, then end-of-sequence."""
    data = text.encode() if isinstance(text, str) else text
    return say_ids([*data, EOS])


def say_ids(ids: list[int]) -> Callable[[NewSequence, int], int]:
    """Script: these tokens, the last one for ever."""
    return lambda _, position: ids[min(position, len(ids) - 1)]


def by_index(*texts: str) -> Callable[[NewSequence, int], int]:
    """Script: another text for each sequence of a request."""
    scripts = [say(text) for text in texts]
    return lambda new, position: scripts[new.index](new, position)


def by_prompt(answers: Mapping[str, str]) -> Callable[[NewSequence, int], int]:
    """Script: the answer whose key the prompt contains."""

    def script(new: NewSequence, position: int) -> int:
        prompt = bytes(i for i in new.prompt_token_ids if i < 256).decode()
        answer = next(answer for key, answer in answers.items() if key in prompt)
        return say(answer)(new, position)

    return script


@dataclass
class Setup:
    """What a test varies."""

    script: Callable[[NewSequence, int], int] = field(default_factory=lambda: say("Hello"))
    gated: bool = False
    settings: ServerSettings = field(default_factory=lambda: ServerSettings(port=0))
    template: str | None = TEMPLATE
    generation_defaults: Mapping[str, Any] = field(default_factory=dict)
    max_num_seqs: int = 8
    max_num_batched_tokens: int = 2048
    max_queue_requests: int | None = None
    num_blocks: int = 256
    context: int = CONTEXT
    max_buffered_events: int = 1024
    base_seed: int | None = None
    send_buffer: int = 0  # bytes that the kernel keeps for a client; 0 is up to the kernel
    started: bool = True
    classes: Mapping[str, ClassSettings] = field(default_factory=dict)
    tenants: Mapping[str, TenantSettings] = field(default_factory=dict)
    enable_prefix_sharing: bool = False
    clock: RealClock | VirtualClock = field(default_factory=RealClock)


class Service:
    """The running parts."""

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        self.settings = setup.settings
        self.executor = ScriptedExecutor(setup.script, gated=setup.gated)
        limits = SchedulerLimits(
            num_blocks=setup.num_blocks,
            block_size=16,
            max_model_len=setup.context,
            max_num_seqs=setup.max_num_seqs,
            max_num_batched_tokens=setup.max_num_batched_tokens,
            max_queue_requests=setup.max_queue_requests,
            enable_prefix_sharing=setup.enable_prefix_sharing,
        )
        everything = Settings(server=setup.settings, classes=setup.classes, tenants=setup.tenants)
        classes = service_classes(everything)
        config = SchedulerConfig(limits=limits, classes=classes)
        self.scheduler = Scheduler(config)
        self.metrics = EngineMetrics(MODEL, self.scheduler.statistics)
        loop = Engine(self.scheduler, self.executor, setup.clock, observers=(self.metrics,))
        self.engine = AsyncEngine(loop, max_buffered_events=setup.max_buffered_events)
        tokenizer = make_tokenizer()
        self.generator = Generator(
            engine=self.engine,
            tokenizer=tokenizer,
            chat_template=ChatTemplate(setup.template, tokenizer.bos_token, tokenizer.eos_token),
            eos_token_ids=(EOS,),
            generation_defaults=setup.generation_defaults,
            vocab_size=VOCAB_SIZE,
            max_model_len=limits.longest,
            base_seed=setup.base_seed,
            default_class=everything.default_class,
            longest_by_class=longest_by_class(config),
        )
        models = {MODEL: self.generator}
        self.app = create_app(models, self.engine, self.metrics, everything)
        self.url = ""
        self.port = 0
        self.is_announced = False

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait for something that another thread brings about."""
        async with asyncio.timeout(60):
            while not condition():
                await asyncio.sleep(0.002)

    async def until_idle(self) -> None:
        """Wait until nothing lives and all blocks are free."""

        def is_idle() -> bool:
            counts = self.scheduler.statistics()
            return counts.num_live == 0 and counts.num_free_blocks == counts.num_blocks

        await self.until(is_idle)

    async def until_held_after(self, num_steps: int) -> None:
        """Wait until so many steps were computed and the gate holds up the next one."""
        await self.until(lambda: len(self.executor.plans) == num_steps)
        await self.until(self.executor.is_waiting.is_set)

    async def until_asked(self, count: int = 1) -> None:
        """Wait until so many commands lie before the engine's thread, which a gate holds up."""
        await self.until(lambda: len(self.engine._inbox) >= count)

    def num_ended(self, outcome: str, reason: str) -> float:
        """Requests that ended so, by the metrics."""
        start = f'headway_requests_total{{class="default",outcome="{outcome}",reason="{reason}"}} '
        lines = self.metrics.render().decode().splitlines()
        return sum(float(line.removeprefix(start)) for line in lines if line.startswith(start))

    async def call(
        self,
        path: str,
        body: Any = None,
        *,
        method: str = "POST",
        headers: Mapping[str, str] | None = None,
    ) -> Reply:
        """Call the application without a network; ``body`` is sent as JSON unless it is bytes."""
        return await call(self.app, path, body, method=method, headers=headers)


@dataclass
class Reply:
    """A response as the application sent it."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """The body, which must be strict JSON."""
        return strict_json(self.body)

    @property
    def error(self) -> dict[str, Any]:
        """The error object, in the envelope and of bounded size."""
        assert len(self.body) < 4096
        parsed = self.json
        assert set(parsed) == {"error"}
        assert set(parsed["error"]) == {"message", "type", "param", "code"}
        assert parsed["error"]["message"]
        error: dict[str, Any] = parsed["error"]
        return error

    @property
    def events(self) -> list[Any]:
        """The data of a stream's events; the last is ``"[DONE]"``."""
        return parse_events(self.body)


async def let_steps_pass(executor: ScriptedExecutor) -> None:
    """Give the event loop a turn between steps, which a script would never do."""
    while True:
        executor.allow()
        await asyncio.sleep(0.002)


def strict_json(data: bytes) -> Any:
    """Parse JSON without NaN and its kin."""

    def refuse(constant: str) -> None:
        raise AssertionError(f"not JSON: {constant}")

    return json.loads(data.decode("utf-8"), parse_constant=refuse)


def parse_events(body: bytes) -> list[Any]:
    """Parse server-sent events, holding them to what client SDKs can read."""
    assert body.endswith(b"\n\n")
    events = []
    for block in body[:-2].split(b"\n\n"):
        if block.startswith(b":"):
            continue
        assert block.startswith(b"data: ")
        assert b"\n" not in block
        data = block.removeprefix(b"data: ")
        assert data
        events.append("[DONE]" if data == b"[DONE]" else strict_json(data))
    return events


async def call(
    app: Any,
    path: str,
    body: Any = None,
    *,
    method: str = "POST",
    headers: Mapping[str, str] | None = None,
    chunks: list[bytes] | None = None,
    on_receive: Callable[[bytes], object] = len,
) -> Reply:
    """Call an ASGI application once; ``on_receive`` is told each part of the body it reads."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    sent = {"content-type": "application/json", **(headers or {})}
    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "headers": [(k.lower().encode(), v.encode("latin-1")) for k, v in sent.items()],
        "client": ("test", 1),
        "server": ("test", 80),
        "scheme": "http",
    }
    parts = [data] if chunks is None else list(chunks)
    messages: list[dict[str, Any]] = []
    never = asyncio.Event()

    async def receive() -> dict[str, Any]:
        if parts:
            part = parts.pop(0)
            on_receive(part)
            return {"type": "http.request", "body": part, "more_body": bool(parts)}
        await never.wait()
        return {"type": "http.disconnect"}

    async def send(message: dict[str, Any]) -> None:
        messages.append(message)

    await app(scope, receive, send)
    start = messages[0]
    reply_headers = {k.decode(): v.decode() for k, v in start["headers"]}
    joined = b"".join(message.get("body", b"") for message in messages[1:])
    return Reply(start["status"], reply_headers, joined)


@asynccontextmanager
async def running(setup: Setup | None = None) -> AsyncIterator[Service]:
    """Engine and application without a network; at the end nothing may be left over."""
    service = Service(setup or Setup())
    if service.setup.started:
        service.engine.start()
    try:
        yield service
    finally:
        if service.setup.gated:
            service.executor.allow(1_000_000)
        if service.setup.started:
            await service.engine.stop(0.0)
            service.scheduler.check()


@asynccontextmanager
async def listening(setup: Setup | None = None) -> AsyncIterator[Service]:
    """The same behind a real port."""
    async with running(setup) as service:
        listener = bind(service.settings)
        if service.setup.send_buffer:  # accepted connections inherit it
            size = service.setup.send_buffer
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, size)
        service.port = listener.getsockname()[1]
        service.url = url_of(listener)
        server = make_server(service.app, service.settings, lambda: None)
        task = asyncio.create_task(server.serve(sockets=[listener]))
        await service.until(lambda: server.started)
        try:
            yield service
        finally:
            if service.setup.gated:
                service.executor.allow(1_000_000)
            server.should_exit = True
            await task


def chat(content: str = "hi", **fields: Any) -> dict[str, Any]:
    """Body of a chat request."""
    return {"model": MODEL, "messages": [{"role": "user", "content": content}], **fields}


def completion(prompt: Any = "hi", **fields: Any) -> dict[str, Any]:
    """Body of a completion request."""
    return {"model": MODEL, "prompt": prompt, **fields}


def usage(num_prompt: int, num_completion: int, num_cached: int = 0) -> dict[str, Any]:
    """The usage of a call as it is sent."""
    return {
        "prompt_tokens": num_prompt,
        "completion_tokens": num_completion,
        "total_tokens": num_prompt + num_completion,
        "prompt_tokens_details": {"cached_tokens": num_cached},
    }


CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"


class RawClient:
    """A client that can vanish or stop reading at any moment."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def send(self, path: str, body: Any, headers: str = "") -> None:
        """Send a whole request."""
        data = json.dumps(body).encode()
        head = (
            f"POST {path} HTTP/1.1\r\nHost: test\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(data)}\r\n{headers}\r\n"
        )
        self.writer.write(head.encode() + data)
        await self.writer.drain()

    async def status(self) -> int:
        """Read the status line."""
        line = await self.reader.readline()
        return int(line.split()[1])

    async def rest(self) -> bytes:
        """Read until the server closes."""
        return await self.reader.read()

    async def vanish(self) -> None:
        """Close the connection."""
        self.writer.close()
        await self.writer.wait_closed()


@asynccontextmanager
async def raw_client(service: Service, receive_buffer: int = 0) -> AsyncIterator[RawClient]:
    """Connect; with ``receive_buffer`` the kernel keeps only so many unread bytes."""
    connection = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    if receive_buffer:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    connection.setblocking(False)
    await asyncio.get_running_loop().sock_connect(connection, ("127.0.0.1", service.port))
    reader, writer = await asyncio.open_connection(sock=connection, limit=2**16)
    client = RawClient(reader, writer)
    try:
        yield client
    finally:
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()
