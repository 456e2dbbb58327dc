"""Step 3: how many sequences the memory for keys and values holds.

The source document's formula takes ``2 x layers x hidden x bytes`` for a position, which is right
for models whose heads each have keys and values of their own. Where several query heads share one
(grouped queries), only ``kv_heads x head_dim`` of the hidden size is kept. Both are worked out.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt

from headway.core.limits import SchedulerLimits
from headway.planning.demand import DEVIATIONS, Contexts


@dataclass(frozen=True, slots=True, kw_only=True)
class KvMemory:
    """Where the blocks come from, as far as it is known.

    Attributes:
        num_layers: of the model.
        hidden_size: of the model.
        num_kv_heads: heads that have keys and values.
        head_dim: elements of a head.
        element_bytes: of a stored key or value, with its share of a scale.
        kv_bytes: memory for keys and values, of one instance.
        said: how that came about, in words.
    """

    num_layers: int
    hidden_size: int
    num_kv_heads: int
    head_dim: int
    element_bytes: float
    kv_bytes: float
    said: str

    @property
    def token_bytes(self) -> float:
        """Bytes of a position in all layers: those of the heads that have keys and values."""
        return 2 * self.num_layers * self.num_kv_heads * self.head_dim * self.element_bytes

    @property
    def ungrouped_token_bytes(self) -> float:
        """Bytes of a position by the formula of the source document."""
        return 2 * self.num_layers * self.hidden_size * self.element_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class KvBound:
    """How many sequences fit.

    Attributes:
        num_tokens: positions in all blocks.
        held: positions that a sequence holds on average, with the empty half of its last block.
        num_mean: sequences that fit with contexts of mean length: the source document's figure.
        num_seqs: sequences that fit at 99 moments in 100, and at least one.
        num_ungrouped: ``num_mean`` by the formula without grouped queries; None if not known.
    """

    num_tokens: int
    held: float
    num_mean: int
    num_seqs: int
    num_ungrouped: int | None


def kv_bound(limits: SchedulerLimits, contexts: Contexts, memory: KvMemory | None) -> KvBound:
    """Work out how many sequences of such contexts fit into the blocks."""
    num_tokens = (limits.num_blocks - limits.watermark_blocks) * limits.block_size
    held = contexts.mean + limits.block_size / 2
    num_ungrouped = None
    if memory is not None:
        num_ungrouped = int(memory.kv_bytes / memory.ungrouped_token_bytes / held)
    return KvBound(
        num_tokens=num_tokens,
        held=held,
        num_mean=int(num_tokens / held),
        num_seqs=max(_fitting(num_tokens, held, DEVIATIONS * contexts.deviation), 1),
        num_ungrouped=num_ungrouped,
    )


def _fitting(num_tokens: float, held: float, margin: float) -> int:
    """Return the largest n with ``n held + margin sqrt(n) <= num_tokens``."""
    root = (sqrt(margin**2 + 4 * held * num_tokens) - margin) / (2 * held)
    return int(root**2)
