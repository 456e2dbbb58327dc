"""Tokens as a function of what stands before them, so that a test knows each answer beforehand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from headway.core.plan import NewSequence
from headway.core.sampling import SamplingParams

_PRIME = (1 << 61) - 1
_BASE = 1_103_515_245_777


@dataclass(frozen=True, slots=True, kw_only=True)
class Draws:
    """How tokens are drawn.

    Attributes:
        vocab_size: tokens are below this, but for stop tokens. Few tokens make for equal answers,
            whose blocks can be shared.
        stop_one_in: with stop tokens, one draw in so many gives the first of them.
        script: gives the token at an output position of a sequence; None leaves it to chance.
    """

    vocab_size: int = 8
    stop_one_in: int = 12
    script: Callable[[NewSequence, int], int | None] | None = None

    def token(self, new: NewSequence, digest: int, position: int) -> int:
        """Return the token that follows the tokens with this digest."""
        if self.script is not None:
            scripted = self.script(new, position)
            if scripted is not None:
                return scripted
        sampling = new.sampling
        chance = _mixed(digest * 31 + sampling.seed * 1009 + new.index)
        stops = sampling.stop_token_ids
        if stops and position >= sampling.min_tokens and chance % self.stop_one_in == 0:
            return stops[0]
        token_id = chance // self.stop_one_in % self.vocab_size
        while token_id in stops:
            token_id += 1
        return token_id


def answer(new: NewSequence, draws: Draws, salt: str = "") -> tuple[int, ...]:
    """Return all output tokens of a sequence that runs alone, a stop token included."""
    digest = root(salt)
    for token_id in new.prompt_token_ids:
        digest = after(digest, token_id)
    outputs: list[int] = []
    while len(outputs) < new.sampling.max_tokens:
        token_id = draws.token(new, digest, len(outputs))
        outputs.append(token_id)
        if _stops(token_id, new.sampling, len(outputs)):
            break
        digest = after(digest, token_id)
    return tuple(outputs)


def _stops(token_id: int, sampling: SamplingParams, num_outputs: int) -> bool:
    return token_id in sampling.stop_token_ids and num_outputs > sampling.min_tokens


def root(salt: str) -> int:
    """Return the digest that stands before the first token."""
    digest = 1
    for byte in salt.encode("utf-8", "surrogatepass"):
        digest = after(digest, byte)
    return digest


def after(digest: int, token_id: int) -> int:
    """Return the digest of the tokens so far and one more: a polynomial modulo a prime."""
    return (digest * _BASE + token_id + 1) % _PRIME


def _mixed(number: int) -> int:
    """Spread a number's bits (the finalizer of splitmix64; Steele et al., 2014)."""
    mask = (1 << 64) - 1
    number = (number + 0x9E3779B97F4A7C15) & mask
    number = ((number ^ number >> 30) * 0xBF58476D1CE4E5B9) & mask
    number = ((number ^ number >> 27) * 0x94D049BB133111EB) & mask
    return number ^ number >> 31
