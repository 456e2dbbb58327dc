"""``/v1/models``, ``/tokenize`` and ``/detokenize``: what is served, and its tokenizer."""

from __future__ import annotations

import asyncio

import msgspec
from msgspec import UNSET
from starlette.requests import Request
from starlette.responses import Response

from headway.errors import RequestError
from headway.generation.generator import Generator
from headway.generation.params import check_token_ids, refuse
from headway.server.endpoint import Exchange
from headway.server.front import Front
from headway.server.refusals import check_messages
from headway.server.requests import DetokenizeRequest, TokenizeRequest
from headway.server.responses import Model, ModelList, Prompt, Tokens
from headway.server.routes.chat import encode_messages

#: Ids that ``/detokenize`` takes at once.
MAX_DETOKENIZED = 2**18


class ModelRoutes:
    """Lists the models."""

    def __init__(self, front: Front) -> None:
        self._front = front

    async def index(self, _request: Request) -> Response:
        """All models."""
        models = [self._model(name) for name in self._front.generators]
        return _json(ModelList(data=models))

    async def show(self, request: Request) -> Response:
        """One model, or 404."""
        self._front.model(request.path_params["model"])
        return _json(self._model(request.path_params["model"]))

    def _model(self, name: str) -> Model:
        generator = self._front.generators[name]
        return Model(
            id=name, created=self._front.created, max_model_len=generator.max_model_len, root=name
        )


def _json(content: msgspec.Struct) -> Response:
    return Response(msgspec.json.encode(content), media_type="application/json")


async def _encode(generator: Generator, request: TokenizeRequest) -> tuple[int, ...]:
    if (request.prompt is None) == (request.messages is None):
        message = "Give either 'prompt' or 'messages'."
        raise RequestError(message, param="prompt", code="missing_required_parameter")
    if request.messages is not None:
        check_messages(request.messages)
        return await encode_messages(generator, request.messages, request)
    adds = request.add_special_tokens is not False
    return await generator.encode(request.prompt or "", add_special_tokens=adds)


async def answer_tokenize(front: Front, request: TokenizeRequest, exchange: Exchange) -> None:
    """Return the token ids of a prompt or a conversation."""
    _, generator = front.model(request.model)
    ids = list(await _encode(generator, request))
    generator.check_fits(ids, "prompt" if request.messages is None else "messages")
    wants_texts = request.return_token_strs
    texts = [generator.tokenizer.token_text(each) for each in ids] if wants_texts else UNSET
    answer = Tokens(len(ids), generator.max_model_len, ids, texts)
    await exchange.respond(msgspec.json.encode(answer))


def _decode(generator: Generator, token_ids: list[int]) -> str:
    check_token_ids("tokens", token_ids, generator.vocab_size)
    return generator.tokenizer.decode(token_ids, skip_special_tokens=False)


async def answer_detokenize(front: Front, request: DetokenizeRequest, exchange: Exchange) -> None:
    """Return the text of token ids, special tokens included."""
    _, generator = front.model(request.model)
    if len(request.tokens) > MAX_DETOKENIZED:
        refuse("tokens", f"at most {MAX_DETOKENIZED} ids.")
    text = await asyncio.to_thread(_decode, generator, request.tokens)
    await exchange.respond(msgspec.json.encode(Prompt(text)))
