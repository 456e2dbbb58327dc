"""What a client may ask of generation, and the one place that checks it.

None means that the client is silent: the model's own defaults apply, then OpenAI's.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, NoReturn

from headway.errors import ConfigError, RequestError

_log = logging.getLogger(__name__)

MAX_N = 128
MAX_LOGPROBS = 20
MAX_STOP_STRINGS = 4
MAX_STOP_CHARACTERS = 1024  # of all stop strings together
MAX_STOP_TOKEN_IDS = 4096
MAX_LOGIT_BIAS = 100.0
MAX_LOGIT_BIASES = 1024
MIN_REPETITION_PENALTY, MAX_REPETITION_PENALTY = 0.01, 100.0
INT64 = 2**63


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationParams:
    """User-level parameters of one generation.

    Attributes:
        n: sequences per prompt, of which all count for batch and queue.
        max_tokens: output tokens at most, per sequence; 0 scores the prompt only.
        min_tokens: neither stop strings nor stop tokens end a sequence before so many.
        stop: the string, or strings, that end a sequence; not part of the text unless
            ``include_stop_str_in_output``, which also shows the text of a stop token.
        stop_token_ids: token ids that end a sequence, beside the model's own.
        ignore_eos: the model's own end-of-sequence ids do not end a sequence.
        seed: determines the draws; None or -1 draws a fresh one.
        logprobs: report the chosen token's log-probability and so many of the best.
        prompt_logprobs: the same for the prompt.
        skip_special_tokens: special tokens leave no text.
    """

    n: int = 1
    max_tokens: int | None = None
    min_tokens: int = 0
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    seed: int | None = None
    stop: str | Sequence[str] = ()
    include_stop_str_in_output: bool = False
    stop_token_ids: Sequence[int] = ()
    ignore_eos: bool = False
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    skip_special_tokens: bool = True

    @property
    def stop_strings(self) -> tuple[str, ...]:
        """All of ``stop``, also where that is a single string."""
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop)


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingDefaults:
    """What applies where the client is silent: the model's own words, else OpenAI's."""

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    repetition_penalty: float = 1.0


def refuse(param: str, message: str) -> NoReturn:
    """Raise the 400 that blames ``param``."""
    raise RequestError(f"Invalid '{param}': {message}", param=param, code="invalid_value")


def is_integer(value: object) -> bool:
    """Whether a value is a whole number of Python's own; True and False are none."""
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: object) -> bool:
    return isinstance(value, float) or is_integer(value)


def _check_range(param: str, value: float, low: float, high: float, shown: str) -> None:
    if not low <= value <= high:  # NaN is in no range
        refuse(param, f"must be in {shown}.")


def check_token_ids(param: str, ids: Iterable[int], vocab_size: int) -> None:
    """Refuse the first id that is no integer, or that the vocabulary does not have."""
    for token_id in ids:
        if not is_integer(token_id):
            refuse(param, f"token ids must be integers, which {_shown(token_id)} is not.")
        if not 0 <= token_id < vocab_size:
            shown = _shown(token_id)
            refuse(param, f"token id {shown} is not in the vocabulary, 0 to {vocab_size - 1}.")


def _shown(value: object) -> str:
    # an integer of thousands of digits has no decimal text
    text = hex(value) if isinstance(value, int) and abs(value) >= INT64 else repr(value)
    return text[:24]


# -------------------------------------------------------------------- types

_INTEGERS = ("n", "max_tokens", "min_tokens", "top_k", "seed", "logprobs", "prompt_logprobs")
_NUMBERS = (
    "temperature",
    "top_p",
    "min_p",
    "repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
)
_SWITCHES = ("include_stop_str_in_output", "ignore_eos", "skip_special_tokens")
_MAY_BE_NONE = frozenset(each.name for each in fields(GenerationParams) if each.default is None)


def _check_types(p: GenerationParams) -> None:
    """Python checks no annotation, and what is wrong here would break the engine far away."""
    for param in _INTEGERS:
        _check_type(p, param, is_integer, "an integer")
    for param in _NUMBERS:
        _check_type(p, param, _is_number, "a number")
    for param in _SWITCHES:
        _check_type(p, param, lambda value: isinstance(value, bool), "True or False")
    if not isinstance(p.stop, str | list | tuple):
        refuse("stop", "must be a string, or a list or tuple of strings.")
    if not isinstance(p.stop_token_ids, list | tuple):
        refuse("stop_token_ids", "must be a list or tuple of integers.")
    if not isinstance(p.logit_bias, Mapping):
        refuse("logit_bias", "must be a mapping from token ids to numbers.")
    _check_counts(p)
    if not all(isinstance(text, str) for text in p.stop_strings):
        refuse("stop", "must be a string, or a list or tuple of strings.")
    if not all(map(_is_number, p.logit_bias.values())):
        refuse("logit_bias", "its values must be numbers.")


def _check_counts(p: GenerationParams) -> None:
    """Refuse what is too long before anything looks at each element."""
    if len(p.stop_strings) > MAX_STOP_STRINGS:
        refuse("stop", f"at most {MAX_STOP_STRINGS} strings.")
    if len(p.stop_token_ids) > MAX_STOP_TOKEN_IDS:
        refuse("stop_token_ids", f"at most {MAX_STOP_TOKEN_IDS} ids.")
    if len(p.logit_bias) > MAX_LOGIT_BIASES:
        refuse("logit_bias", f"at most {MAX_LOGIT_BIASES} tokens.")


def _check_type(
    p: GenerationParams, param: str, is_right: Callable[[object], bool], what: str
) -> None:
    value = getattr(p, param)
    if value is None and param in _MAY_BE_NONE:
        return
    if not is_right(value):
        refuse(param, f"must be {what}, which {_shown(value)} is not.")


# -------------------------------------------------------------------- values


def _check_sampling(p: GenerationParams) -> None:
    if p.temperature is not None:
        _check_range("temperature", p.temperature, 0.0, 2.0, "[0, 2]")
    if p.top_p is not None:
        _check_range("top_p", p.top_p, 5e-324, 1.0, "(0, 1]")
    if p.min_p is not None:
        _check_range("min_p", p.min_p, 0.0, 1.0, "[0, 1]")
    if p.top_k is not None and not -1 <= p.top_k < INT64:
        refuse("top_k", "must be -1 or 0 (both off) or a positive integer.")
    if p.seed is not None and not -INT64 <= p.seed < INT64:
        refuse("seed", "must be a 64-bit integer.")


def _check_penalties(p: GenerationParams) -> None:
    _check_range("presence_penalty", p.presence_penalty, -2.0, 2.0, "[-2, 2]")
    _check_range("frequency_penalty", p.frequency_penalty, -2.0, 2.0, "[-2, 2]")
    if p.repetition_penalty is not None:
        low, high = MIN_REPETITION_PENALTY, MAX_REPETITION_PENALTY
        shown = f"[{low:g}, {high:g}]"
        _check_range("repetition_penalty", p.repetition_penalty, low, high, shown)
    for value in p.logit_bias.values():
        _check_range("logit_bias", value, -MAX_LOGIT_BIAS, MAX_LOGIT_BIAS, "[-100, 100]")


def _check_lengths(p: GenerationParams) -> None:
    if not 1 <= p.n <= MAX_N:
        refuse("n", f"must be between 1 and {MAX_N}.")
    if p.n > 1 and p.temperature == 0:
        refuse("n", "must be 1 with temperature 0, since all choices would be the same.")
    if p.max_tokens is not None and not 0 <= p.max_tokens < INT64:
        refuse("max_tokens", "must not be negative.")
    if p.min_tokens < 0:
        refuse("min_tokens", "must not be negative.")
    if p.max_tokens is not None and p.min_tokens > p.max_tokens:
        refuse("min_tokens", f"must not exceed max_tokens, which is {p.max_tokens}.")


def _check_reports(p: GenerationParams) -> None:
    for param, value in (("logprobs", p.logprobs), ("prompt_logprobs", p.prompt_logprobs)):
        if value is not None and not 0 <= value <= MAX_LOGPROBS:
            refuse(param, f"must be between 0 and {MAX_LOGPROBS}.")


def _check_stop(p: GenerationParams) -> None:
    if not all(p.stop_strings):
        refuse("stop", "a string is empty.")
    if sum(map(len, p.stop_strings)) > MAX_STOP_CHARACTERS:
        refuse("stop", f"at most {MAX_STOP_CHARACTERS} characters in all strings together.")


def validate(params: GenerationParams, vocab_size: int) -> None:
    """Refuse types and values that mean nothing or could hurt others.

    Raises:
        RequestError: names the parameter at fault.
    """
    if not isinstance(params, GenerationParams):
        refuse("params", f"must be GenerationParams, which {_shown(params)} is not.")
    _check_types(params)
    _check_sampling(params)
    _check_penalties(params)
    _check_lengths(params)
    _check_reports(params)
    _check_stop(params)
    check_token_ids("stop_token_ids", params.stop_token_ids, vocab_size)
    check_token_ids("logit_bias", params.logit_bias, vocab_size)


def model_defaults(generation_config: Mapping[str, Any], vocab_size: int) -> SamplingDefaults:
    """Pick the sampling defaults that a model's generation config states.

    A number out of range is left out, and the log says so: it must not keep a model from being
    served.

    Raises:
        ConfigError: a value is not a number.
    """
    names = (each.name for each in fields(SamplingDefaults))
    found = {name: generation_config.get(name) for name in names}
    stated = {name: _number(name, value) for name, value in found.items() if value is not None}
    usable = {name: value for name, value in stated.items() if _is_usable(name, value, vocab_size)}
    return SamplingDefaults(**usable)


def _number(name: str, value: object) -> Any:
    """Return a number of a generation config; a whole one as an integer where one is needed."""
    if not _is_number(value) or value != value:  # NaN is not even itself
        shown = _shown(value)
        raise ConfigError(f"generation config: '{name}' must be a number, which {shown} is not")
    if name in _INTEGERS and isinstance(value, float) and value.is_integer():
        return int(value)
    return value


def _is_usable(name: str, value: Any, vocab_size: int) -> bool:
    try:
        validate(GenerationParams(**{name: value}), vocab_size)
    except RequestError as error:
        message = "generation_config.json, or the GGUF file's: %s = %s is not used: %s"
        _log.warning(message, name, _shown(value), error)
        return False
    return True
