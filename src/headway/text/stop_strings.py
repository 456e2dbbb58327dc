"""Ends a stream of text at a stop string, none of which is ever let out.

An automaton (Aho & Corasick, 1975) over all stop strings tells after each character how much of
the end of the text may be the beginning of a stop string. That much is held back, and no more. The
result depends on the text alone, not on how it was split into deltas.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

from headway.errors import RequestError


class StopResult(NamedTuple):
    """Text that may leave now, and the stop string that ended the stream, if one did."""

    text: str
    matched: str | None


@dataclass(slots=True)
class _State:
    """The longest end of the text that begins a stop string, ``depth`` characters of it."""

    depth: int
    following: dict[str, _State] = field(default_factory=dict)
    shorter: _State | None = None  # next longest such end
    matched: str | None = None  # longest stop string that ends here


class StopStrings:
    """Cuts a stream of text where the first stop string is complete.

    If several are complete at the same character, the longest counts, so that nothing of it stays.

    Args:
        stops: texts that end the stream.
        include: leave the stop string in the text.

    Raises:
        RequestError: a stop string is empty.
    """

    def __init__(self, stops: Sequence[str], *, include: bool = False) -> None:
        if not all(stops):
            raise RequestError("a stop string is empty", param="stop", code="invalid_stop")
        self._include = include
        self._root = _automaton(tuple(stops))
        self._firsts = frozenset(stop[0] for stop in stops)
        self._state = self._root
        self._held = ""
        self._matched: str | None = None

    def push(self, text: str) -> StopResult:
        """Take the next text; once a stop string was found, everything further is dropped."""
        if self._matched is not None:
            return StopResult("", self._matched)
        if self._state is self._root and self._firsts.isdisjoint(text):
            return StopResult(text, None)
        for position, character in enumerate(text, 1):
            self._state = _step(self._root, self._state, character)
            if self._state.matched is not None:
                return self._stop(self._held + text[:position], self._state.matched)
        text = self._held + text
        cut = len(text) - self._state.depth
        self._held = text[cut:]
        return StopResult(text[:cut], None)

    def flush(self) -> StopResult:
        """The stream is over: let out what was held back."""
        text, self._held = self._held, ""
        self._state = self._root
        return StopResult(text, self._matched)

    def _stop(self, text: str, matched: str) -> StopResult:
        self._matched, self._held = matched, ""
        return StopResult(text if self._include else text[: len(text) - len(matched)], matched)


def _step(root: _State, state: _State, character: str) -> _State:
    current: _State | None = state
    while current is not None:
        following = current.following.get(character)
        if following is not None:
            return following
        current = current.shorter
    return root


@lru_cache(maxsize=8)
def _automaton(stops: tuple[str, ...]) -> _State:
    """Return the root; nothing changes the states later, so all sequences of a call share them."""
    root = _State(0)
    for stop in stops:
        state = root
        for character in stop:
            state = state.following.setdefault(character, _State(state.depth + 1))
        state.matched = stop
    queue = deque([root])
    while queue:  # breadth first: whatever is shorter is linked already
        state = queue.popleft()
        for character, following in state.following.items():
            queue.append(following)
            following.shorter = (
                root if state.shorter is None else _step(root, state.shorter, character)
            )
            following.matched = following.matched or following.shorter.matched
    return root
