"""A byte-level tokenizer built in memory, and a stand-in for the engine."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence

import tokenizers
from tokenizers import decoders, models, pre_tokenizers

from headway.core.events import Event, Finished, SequenceFinished, TokenReady
from headway.core.plan import RequestId, SampledToken, TokenLogprobs
from headway.core.request import Request
from headway.text.byte_level import CHARACTERS
from headway.text.json_tokenizer import tokenizer_from_json
from headway.text.tokenizer import Tokenizer

EOS, END = 256, 257
WORDS = ("DEF", "HI")
DEF, HI = 258, 259
VOCAB_SIZE = 260
REQUEST = RequestId("r")


def make_tokenizer() -> Tokenizer:
    """Id b is byte b; two special tokens and two words follow."""
    vocab = {CHARACTERS[byte]: byte for byte in range(256)}
    vocab |= {"<eos>": EOS, "<end>": END, "DEF": DEF, "HI": HI}
    library = tokenizers.Tokenizer(models.BPE(vocab, []))
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    library.decoder = decoders.ByteLevel()
    library.add_special_tokens(["<eos>", "<end>"])
    return tokenizer_from_json(library.to_str().encode(), {"eos_token": "<eos>"})


def token(token_id: int, index: int = 0, logprob: float | None = None) -> TokenReady:
    """A token event."""
    scores = None if logprob is None else TokenLogprobs(token_id, logprob, ((token_id, logprob),))
    return TokenReady(REQUEST, index, SampledToken(token_id, scores))


def tokens(data: str | bytes | Iterable[int], index: int = 0) -> list[Event]:
    """Token events for each byte or id."""
    ids = data.encode() if isinstance(data, str) else data
    return [token(token_id, index) for token_id in ids]


def ended(*finished: SequenceFinished) -> list[Event]:
    """The last events of a request."""
    return [*finished, Finished(REQUEST)]


class ScriptedSource:
    """Gives prepared batches of events, and notes what is asked of it."""

    def __init__(self, batches: Iterable[Sequence[Event]]) -> None:
        self._batches = deque(tuple(batch) for batch in batches)
        self.cancelled: list[str] = []
        self.finished: list[int] = []
        self.request_id = REQUEST
        self.clamped_max_tokens: int | None = None

    async def __anext__(self) -> tuple[Event, ...]:
        if not self._batches:
            raise AssertionError("read beyond the terminal event")
        return self._batches.popleft()

    def cancel(self, reason: str) -> None:
        self.cancelled.append(reason)

    def finish(self, index: int) -> None:
        self.finished.append(index)


class RecordingEngine:
    """Admits everything and remembers it."""

    def __init__(self) -> None:
        self.requests: list[Request] = []

    async def submit(self, request: Request) -> ScriptedSource:
        self.requests.append(request)
        return ScriptedSource([[Finished(request.request_id)]])
