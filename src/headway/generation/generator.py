"""Prompts to requests: tokenise, check, resolve defaults, submit."""

from __future__ import annotations

import asyncio
import random
import secrets
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from headway.core.plan import RequestId
from headway.core.request import Request
from headway.core.sampling import SamplingParams
from headway.errors import RequestError
from headway.generation.messages import check_messages
from headway.generation.params import (
    GenerationParams,
    check_token_ids,
    model_defaults,
    validate,
)
from headway.generation.ports import RequestSink
from headway.generation.scores import Scorer
from headway.generation.sequence_text import SequenceText
from headway.generation.stream import TextStream
from headway.generation.terms import Terms, check_terms, salt_of
from headway.text.chat_template import ChatTemplate
from headway.text.tokenizer import Tokenizer

#: Text of more characters is tokenised off the event loop.
MAX_INLINE_CHARACTERS = 4096

#: Output tokens of a completion whose client is silent, as OpenAI's.
COMPLETION_MAX_TOKENS = 16


class Generator:
    """One model as its users see it: text in, text out.

    ``max_model_len`` is the longest sequence in tokens that can finish: the model's context, or
    what settings or the KV pool leave of it; ``model_context`` is the context itself, for messages.
    ``base_seed`` makes the seeds of requests without one repeatable, in order of arrival; None
    draws them from the system. ``default_class`` is for terms that name none;
    ``longest_by_class`` is for classes that can have less of the KV pool than ``max_model_len``
    needs. With ``isolates_tenants`` no tenant shares KV of equal prefixes with another.

    Raises:
        ConfigError: the model's own generation defaults are unusable.
    """

    def __init__(
        self,
        *,
        engine: RequestSink,
        tokenizer: Tokenizer,
        chat_template: ChatTemplate,
        eos_token_ids: Sequence[int],
        generation_defaults: Mapping[str, Any],
        vocab_size: int,
        max_model_len: int,
        model_context: int | None = None,
        base_seed: int | None = None,
        default_class: str = "default",
        longest_by_class: Mapping[str, int] | None = None,
        isolates_tenants: bool = True,
    ) -> None:
        self.tokenizer = tokenizer
        self.vocab_size = vocab_size
        self.max_model_len = max_model_len
        self._engine = engine
        self._model_context = model_context or max_model_len
        self._template = chat_template
        self._eos_token_ids = frozenset(eos_token_ids)
        self._defaults = model_defaults(generation_defaults, vocab_size)
        self._scorer = Scorer(tokenizer)
        self._default_class = default_class
        self._longest_by_class = longest_by_class or {}
        self._isolates_tenants = isolates_tenants
        self._random = random.Random(base_seed) if base_seed is not None else secrets.SystemRandom()

    async def encode(
        self, text: str, *, add_special_tokens: bool = True, param: str = "prompt"
    ) -> tuple[int, ...]:
        """Tokenise; long text in a thread, and hopelessly long text not at all.

        Raises:
            RequestError: the text is longer than the context, or can't be tokenised.
        """
        at_least = self.tokenizer.min_tokens_for(text)
        if at_least > self.max_model_len:
            self._refuse_length(f"your prompt has at least {at_least} tokens", param)
        if len(text) <= MAX_INLINE_CHARACTERS:
            return tuple(self._encode(text, add_special_tokens))
        return tuple(await asyncio.to_thread(self._encode, text, add_special_tokens))

    async def encode_chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        add_special_tokens: bool = False,
        template_kwargs: Mapping[str, Any] | None = None,
    ) -> tuple[int, ...]:
        """Render a conversation and tokenise it; templates write special tokens themselves.

        Raises:
            RequestError: ``messages`` is no list of messages, the template refuses the
                conversation, or the result is too long.
        """
        check_messages(messages)
        text = await asyncio.to_thread(
            self._template.render,
            messages,
            add_generation_prompt=add_generation_prompt,
            continue_final_message=continue_final_message,
            template_kwargs=template_kwargs,
        )
        return await self.encode(text, add_special_tokens=add_special_tokens, param="messages")

    def check_fits(self, token_ids: Sequence[int], param: str) -> None:
        """Refuse more tokens than the context holds.

        Raises:
            RequestError: blames ``param``.
        """
        if len(token_ids) > self.max_model_len:
            self._refuse_length(f"your prompt has {len(token_ids)} tokens", param)

    async def generate(
        self,
        prompt_token_ids: Sequence[int],
        params: GenerationParams,
        *,
        default_max_tokens: int | None = None,
        first_index: int = 0,
        terms: Terms | None = None,
        param: str = "prompt",
    ) -> TextStream:
        """Submit a prompt and return its text stream, once it is admitted.

        Args:
            prompt_token_ids: the prompt.
            params: what the client asks for.
            default_max_tokens: output tokens where the client is silent; None is what the context
                leaves. Never more than that; what the client states is never changed.
            first_index: index of the first sequence in the deltas.
            terms: class, tenant and order.
            param: the client's name for the prompt, for messages.

        Raises:
            RequestError: a value is out of range, or the engine refuses the request.
            EngineStoppedError: the engine takes no work.
        """
        validate(params, self.vocab_size)
        terms = terms or Terms()
        check_terms(terms)
        prompt = self._checked_prompt(prompt_token_ids, param)
        longest = self._longest_by_class.get(self._class_of(terms), self.max_model_len)
        max_tokens = self._max_tokens(len(prompt), params, default_max_tokens, param, longest)
        request = self._request(prompt, params, max_tokens, terms)
        sequences = [self._sequence(first_index + i, params) for i in range(params.n)]
        source = await self._engine.submit(request)
        uncut = self._silent(len(prompt), params, default_max_tokens, self.max_model_len)
        is_cut = params.max_tokens is None and max_tokens < uncut
        return TextStream(
            source, sequences, prompt, self._scorer, cut_to=max_tokens if is_cut else None
        )

    def _encode(self, text: str, add_special_tokens: bool) -> list[int]:
        # the batch call leaves the interpreter to other threads while it works
        return self.tokenizer.encode_batch([text], add_special_tokens=add_special_tokens)[0]

    def _refuse_length(self, what: str, param: str, longest: int | None = None) -> NoReturn:
        longest = longest or self.max_model_len
        most = f"This model's maximum context length is {longest} tokens"
        if longest < self._model_context:
            most += f" here, by settings or KV memory, of {self._model_context}"
        raise RequestError(
            f"{most}. However, {what}.",
            param=param,
            code="context_length_exceeded",
        )

    def _checked_prompt(self, prompt: Sequence[int], param: str) -> tuple[int, ...]:
        if not prompt:
            message = f"Invalid '{param}': the prompt is empty, it has no tokens."
            raise RequestError(message, param=param, code="empty_prompt")
        self.check_fits(prompt, param)
        check_token_ids(param, prompt, self.vocab_size)
        return tuple(prompt)

    def _max_tokens(
        self,
        num_prompt: int,
        params: GenerationParams,
        default: int | None,
        param: str,
        longest: int,
    ) -> int:
        if params.max_tokens is not None:
            if params.max_tokens > self.max_model_len - num_prompt:
                self._refuse_length(
                    f"you requested {num_prompt + params.max_tokens} tokens ({num_prompt} in the "
                    f"prompt, {params.max_tokens} for the output)",
                    param,
                )
            return params.max_tokens
        left = longest - num_prompt
        if left < 1:
            what = f"your prompt has {num_prompt} tokens and leaves no output"
            self._refuse_length(what, param, longest)
        if params.min_tokens > left:
            what = f"min_tokens is {params.min_tokens} and {left} are left"
            self._refuse_length(what, param, longest)
        return self._silent(num_prompt, params, default, longest)

    @staticmethod
    def _silent(num_prompt: int, params: GenerationParams, default: int | None, most: int) -> int:
        """Return the output tokens of a client that states none, in a sequence of ``most``."""
        left = most - num_prompt
        return max(left if default is None else min(default, left), params.min_tokens)

    def _request(
        self, prompt: tuple[int, ...], params: GenerationParams, max_tokens: int, terms: Terms
    ) -> Request:
        return Request(
            request_id=RequestId(f"req-{secrets.token_hex(16)}"),
            prompt_token_ids=prompt,
            sampling=self._sampling(params, max_tokens),
            n=params.n,
            class_name=self._class_of(terms),
            tenant=terms.tenant,
            priority=terms.priority,
            expected_output_tokens=terms.expected_output_tokens,
            cache_salt=salt_of(terms, isolates_tenants=self._isolates_tenants),
        )

    def _class_of(self, terms: Terms) -> str:
        return terms.class_name or self._default_class

    def _sampling(self, p: GenerationParams, max_tokens: int) -> SamplingParams:
        silent = self._defaults
        top_k = silent.top_k if p.top_k is None else p.top_k
        penalty = p.repetition_penalty
        return SamplingParams(
            max_tokens=max_tokens,
            min_tokens=p.min_tokens,
            stop_token_ids=tuple(sorted(self._stop_token_ids(p))),
            temperature=silent.temperature if p.temperature is None else p.temperature,
            top_p=silent.top_p if p.top_p is None else p.top_p,
            top_k=max(top_k, 0),
            min_p=silent.min_p if p.min_p is None else p.min_p,
            repetition_penalty=silent.repetition_penalty if penalty is None else penalty,
            presence_penalty=p.presence_penalty,
            frequency_penalty=p.frequency_penalty,
            logit_bias=tuple(sorted(p.logit_bias.items())),
            seed=self._seed(p.seed),
            logprobs=p.logprobs,
            prompt_logprobs=p.prompt_logprobs,
        )

    def _seed(self, seed: int | None) -> int:
        return self._random.getrandbits(63) if seed is None or seed == -1 else seed

    def _stop_token_ids(self, params: GenerationParams) -> frozenset[int]:
        own = frozenset() if params.ignore_eos else self._eos_token_ids
        return own | frozenset(params.stop_token_ids)

    def _sequence(self, index: int, params: GenerationParams) -> SequenceText:
        return SequenceText(index, self.tokenizer, params, self._stop_token_ids(params))
