"""The prefix cache: finds blocks that already hold the KV of a prompt's beginning.

The keys and values at a position depend on every token up to it, so a full block is named by a
digest over its tokens and the name of the block before it: a chain. The chain's root is a digest
of the salt, so tenants with different salts never share, nor learn from timing what others sent.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import NamedTuple

from headway.core.blocks import BlockPool
from headway.core.request import PromptHashes
from headway.errors import InvariantError

#: 128 bits: two of 2**40 blocks get equal names by accident with a chance of 2**-49
KEY_BYTES = 16
#: partly equal blocks that are looked at, per parent: the most recent ones
MAX_CANDIDATES = 8

# Domain tags, so that no root is ever taken for a block.
_ROOT_TAG = b"headway kv root\0"
_BLOCK_TAG = b"headway kv text\0"
_LENGTH = struct.Struct("<Q")
_PARENT_LENGTH = _LENGTH.pack(KEY_BYTES)


@lru_cache(maxsize=64)
def _root(salt: str) -> bytes:
    """Return the digest that stands before the first block of all sequences with this salt."""
    data = salt.encode("utf-8", "surrogatepass")
    return _digest(_ROOT_TAG, _LENGTH.pack(len(data)) + data)


def _digest(tag: bytes, data: bytes) -> bytes:
    return blake2b(data, digest_size=KEY_BYTES, person=tag).digest()


@lru_cache(maxsize=64)
def _layout(block_size: int) -> struct.Struct:
    return struct.Struct(f"<{block_size}I")


#: made once: copying a fresh state takes a third of the time of making one
_fresh_block_state = blake2b(digest_size=KEY_BYTES, person=_BLOCK_TAG).copy


def _block_key(parent: bytes, num_tokens: int, packed: bytes) -> bytes:
    """Return a digest over parent and tokens, each with its length before it."""
    state = _fresh_block_state()
    state.update(_PARENT_LENGTH + parent + _LENGTH.pack(num_tokens) + packed)
    return state.digest()


class KeyChain:
    """The names of one sequence's full blocks, each computed once, when first asked for.

    Args:
        salt: only equal salts give equal names.
        block_size: positions in a block.
        prompt_token_ids: all below 2**32; callers refuse others.
        output_token_ids: a live reference: it grows while the sequence runs, and is not written.
        hashes: names the prompt's content in place of its tokens, as traces do. Only blocks that
            lie wholly inside the named part of the prompt then have a name.

    Attributes:
        has_tokens: whether the content is known token by token, so that blocks may match in part.
    """

    __slots__ = (
        "_keys",
        "_named_index",
        "_named_tokens",
        "_outputs",
        "_packed_prompt",
        "_prompt",
        "block_size",
        "has_tokens",
        "num_prompt_blocks",
        "root",
    )

    def __init__(
        self,
        salt: str,
        block_size: int,
        prompt_token_ids: tuple[int, ...],
        output_token_ids: list[int],
        hashes: PromptHashes | None = None,
    ) -> None:
        self.block_size = block_size
        self.root = _root(salt)
        #: full blocks of the prompt
        self.num_prompt_blocks = len(prompt_token_ids) // block_size
        self._prompt = prompt_token_ids
        self._outputs = output_token_ids
        self.has_tokens = hashes is None
        self._keys: list[bytes] = []
        if hashes is not None:
            self._keys = _trace_names(self.root, block_size, self.num_prompt_blocks, hashes)
        #: the block that was named last
        self._named_index = -1
        self._named_tokens: tuple[int, ...] = ()
        self._packed_prompt: bytes | None = None

    def key(self, index: int) -> bytes | None:
        """Return the name of full block ``index``; None while it has unknown tokens, or no name."""
        keys = self._keys
        while index >= len(keys):
            key = self._next_key()
            if key is None:
                return None
            keys.append(key)
        return keys[index]

    def names(self, start: int, end: int) -> list[bytes]:
        """Return the names of full blocks ``start`` to ``end - 1``, as far as they have one."""
        if end > len(self._keys):
            self.key(end - 1)
        return self._keys[start:end]

    def parent(self, index: int) -> bytes | None:
        """Return the name of the block before ``index``, which is the root for index 0."""
        return self.key(index - 1) if index else self.root

    def tokens(self, index: int) -> tuple[int, ...]:
        """Return the tokens of block ``index``: fewer than ``block_size`` where they end."""
        if index == self._named_index:
            return self._named_tokens
        start, num_prompt = index * self.block_size, len(self._prompt)
        end = start + self.block_size
        if end <= num_prompt:
            return self._prompt[start:end]
        if start >= num_prompt:
            return tuple(self._outputs[start - num_prompt : end - num_prompt])
        return (*self._prompt[start:], *self._outputs[: end - num_prompt])

    def fork(self, output_token_ids: list[int]) -> KeyChain:
        """Return the chain of a sequence with the same prompt and an output of its own."""
        other = object.__new__(KeyChain)
        other.block_size = self.block_size
        other.root = self.root
        other.num_prompt_blocks = self.num_prompt_blocks
        other._prompt = self._prompt
        other._outputs = output_token_ids
        other.has_tokens = self.has_tokens
        other._keys = self._keys[: self.num_prompt_blocks]
        other._named_index, other._named_tokens = -1, ()
        other._packed_prompt = None
        return other

    def _next_key(self) -> bytes | None:
        keys, size = self._keys, self.block_size
        index = len(keys)
        if not self.has_tokens:
            return None
        if 0 < index < self.num_prompt_blocks:
            packed = self._packed_prompt or self._pack_prompt()
            packed = packed[4 * size * index : 4 * size * (index + 1)]
        else:
            tokens = self.tokens(index)
            if len(tokens) < size:
                return None
            # whoever asks for the name of a block asks for its tokens next
            self._named_index, self._named_tokens = index, tokens
            packed = _layout(size).pack(*tokens)
        parent = keys[-1] if keys else self.root
        return _block_key(parent, size, packed)

    def _pack_prompt(self) -> bytes:
        """Pack all blocks at once; of most prompts that wait only the first is ever needed."""
        num_tokens = self.num_prompt_blocks * self.block_size
        self._packed_prompt = struct.pack(f"<{num_tokens}I", *self._prompt[:num_tokens])
        return self._packed_prompt


def _trace_names(root: bytes, block_size: int, most: int, hashes: PromptHashes) -> list[bytes]:
    """Name blocks after the stretch in which each ends, as far as there are stretches.

    That stretch's id stands for everything up to its end. The block's place in the prompt, in
    which its offset within the stretch lies, tells the blocks of a stretch apart. Such a name is
    longer than a digest, so it is never taken for one.
    """
    names: list[bytes] = []
    for number, identity in enumerate(hashes.ids):
        names += _stretch_names(root, block_size, hashes.stretch_tokens, number, identity)
    return names[:most]


@lru_cache(maxsize=4096)
def _stretch_names(
    root: bytes, block_size: int, stretch_tokens: int, number: int, identity: int
) -> list[bytes]:
    """Return the names of the blocks that end in a stretch; what many send is named once."""
    first, end = (each * stretch_tokens // block_size for each in (number, number + 1))
    common = b"%b%d,%d,%d," % (root, block_size, stretch_tokens, identity)
    return [common + b"%d" % index for index in range(first, end)]


class Match(NamedTuple):
    """The longest beginning that is there already.

    ``block_ids`` are whole blocks, to be shared. Of ``partial_block`` the first ``num_partial``
    positions are right; it has to be copied, since what follows in it is another's.
    """

    block_ids: tuple[int, ...] = ()
    partial_block: int | None = None
    num_partial: int = 0


_NOTHING = Match()
_FIRST_LOOK = 4


#: its key, that of the block before it, its tokens (none where the chain has none): not a named
#: tuple, since making one takes longer than all the rest
_Entry = tuple[bytes, bytes, tuple[int, ...]]


class PrefixCache:
    """Which block of the pool holds which content. Blocks stay known until they are overwritten.

    It holds no block: a block with known content that nobody holds is free, and is found until the
    pool evicts it.
    """

    def __init__(self, pool: BlockPool) -> None:
        self._pool = pool
        self._block_ids: dict[bytes, int] = {}
        self._entries: list[_Entry | None] = [None] * pool.num_blocks
        #: by parent: blocks that follow it, the most recent one last
        self._candidates: dict[bytes, list[int]] = {}
        self.num_registered = 0  # blocks that became known, ever
        pool.on_evictions = self._forget

    def __len__(self) -> int:
        return len(self._block_ids)

    def match(self, chain: KeyChain, most_positions: int) -> Match:
        """Find the longest known beginning of at most ``most_positions`` positions.

        Nothing is held: the caller holds all of them, the partial one too, before it allocates
        any, and the partial one at least until its copy is planned.
        """
        found = self._whole(chain, most_positions // chain.block_size)
        room = most_positions - len(found) * chain.block_size
        partial = self._partial(chain, len(found), room) if room > 0 else None
        if partial is not None:
            return Match(tuple(found), *partial)
        return Match(tuple(found)) if found else _NOTHING

    def _whole(self, chain: KeyChain, most_blocks: int) -> list[int]:
        """Find the whole blocks, ever more at a time: most prompts match nowhere or far."""
        found: list[int] = []
        get, count = self._block_ids.get, _FIRST_LOOK
        while len(found) < most_blocks:
            keys = chain.names(len(found), min(len(found) + count, most_blocks))
            ids = [*map(get, keys), None]
            end = ids.index(None)
            found += ids[:end]  # type: ignore[arg-type]  # none of them is None
            if end < count:
                break
            count *= 4
        return found

    def register(self, chain: KeyChain, first: int, block_ids: Sequence[int]) -> int:
        """Make blocks of a sequence known, from block ``first`` on: complete, and applied.

        If another block has the same content, that one stays the known one. Returns the first block
        that was not looked at, since it has no name, or there are no more.

        Raises:
            InvariantError: a block is free, or known to have other content.
        """
        known, entries, has_tokens = self._block_ids, self._entries, chain.has_tokens
        parent, index = chain.parent(first), first
        if parent is None:
            return first
        keep = self._pool.keep
        for block_id, key in zip(
            block_ids, chain.names(first, first + len(block_ids)), strict=False
        ):
            if key not in known:
                if entries[block_id] is not None:
                    raise InvariantError(f"block {block_id} has content, so it can't be rewritten")
                keep(block_id)
                known[key] = block_id
                self.num_registered += 1
                entries[block_id] = (key, parent, chain.tokens(index) if has_tokens else ())
                if has_tokens:
                    self._add_candidate(parent, block_id)
            parent = key
            index += 1
        return index

    def _add_candidate(self, parent: bytes, block_id: int) -> None:
        candidates = self._candidates.get(parent)
        if candidates is None:
            self._candidates[parent] = [block_id]
            return
        candidates.append(block_id)
        if len(candidates) > MAX_CANDIDATES:
            del candidates[0]

    def known_ids(self) -> tuple[int, ...]:
        """Return the blocks with known content, for :mod:`headway.core.invariants`."""
        return tuple(self._block_ids.values())

    def _forget(self, block_ids: Iterable[int]) -> None:
        """Forget blocks that are known, as when they are evicted."""
        entries, known, candidates = self._entries, self._block_ids, self._candidates
        for block_id in block_ids:
            entry = entries[block_id]
            assert entry is not None  # only known blocks are kept, and only kept ones evicted
            key, parent, _ = entry
            entries[block_id] = None
            del known[key]
            siblings = candidates.get(parent)
            if siblings is None or block_id not in siblings:
                continue
            if len(siblings) == 1:
                del candidates[parent]
            else:
                siblings.remove(block_id)

    def _partial(self, chain: KeyChain, index: int, room: int) -> tuple[int, int] | None:
        """Find the block whose first tokens equal those of block ``index``, at most ``room``."""
        if not chain.has_tokens:
            return None
        whole = self._block_ids.get(chain.key(index) or b"")
        if whole is not None:  # all of it is known, but may not be used
            return whole, room
        candidates = self._candidates.get(chain.parent(index) or b"")
        if candidates is None:
            return None
        tokens = chain.tokens(index)[:room]
        best, best_length, entries = None, 0, self._entries
        for block_id in reversed(candidates):
            entry = entries[block_id]
            # most often the first tokens differ: all prompts have the same root
            if entry is None or entry[2][0] != tokens[0]:
                continue
            length = _num_equal(tokens, entry[2])
            if length > best_length:
                best, best_length = block_id, length
        return (best, best_length) if best is not None else None


def _num_equal(left: tuple[int, ...], right: tuple[int, ...]) -> int:
    """Return how many tokens the two have in common at the beginning."""
    for index, (one, other) in enumerate(zip(left, right, strict=False)):
        if one != other:
            return index
    return min(len(left), len(right))
