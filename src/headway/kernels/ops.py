"""The protocol between model code and a backend: what a model may ask to be computed.

*Batch invariance* is part of the contract. The values that an operation gives for one row of one
sequence depend only on that sequence: never on the other rows of the step, on how many there are,
on how the sequence was cut into chunks, on which blocks hold its keys, on padding, or on the number
of threads. What a block holds beyond the positions that its sequence has computed, as a new or a
copied one may, has no influence either, be it infinite.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from headway.core.plan import BlockMove, Padding
from headway.models.checkpoint import StoredTensor

Tensor = TypeVar("Tensor")
Matrix = TypeVar("Matrix")
Step = TypeVar("Step")


class Rows(NamedTuple):
    """One sequence's rows of a step: the tokens at positions ``start``, ``start + 1``, …

    ``block_ids`` is the sequence's block table; it covers every position up to the last row's. A
    named tuple, since many are made in every step.
    """

    token_ids: Sequence[int]
    start: int
    block_ids: Sequence[int]

    @property
    def end(self) -> int:
        """One past the last position."""
        return self.start + len(self.token_ids)


class Ops(Protocol[Tensor, Matrix, Step]):
    """What a backend computes. It owns the KV pool and the swap space, and chooses its own types.

    ``Tensor`` holds activations, ``(rows, features)``; ``Matrix`` a weight matrix in the form that
    the backend likes best; ``Step`` everything about a step that is the same for all layers.
    Rows are those of the step, in order; a backend may pad them at the end.
    """

    def load_table(self, stored: StoredTensor) -> Tensor:
        """Take an embedding table, ``(vocabulary, hidden)``."""
        ...

    def load_vector(self, stored: StoredTensor) -> Tensor:
        """Take the weights of a norm."""
        ...

    def load_matrix(self, parts: Sequence[StoredTensor], biases: Sequence[StoredTensor]) -> Matrix:
        """Take a projection: the rows of all parts stacked, with as many biases or none."""
        ...

    def load_head(self, stored: StoredTensor) -> Matrix:
        """Take the output head, ``(vocabulary, hidden)``."""
        ...

    def swap_out(self, moves: Sequence[BlockMove]) -> None:
        """Copy blocks of the pool to the swap space, in all layers; block ids must be valid."""
        ...

    def copy_blocks(self, moves: Sequence[BlockMove]) -> None:
        """Copy blocks inside the pool, in all layers, as if one after the other."""
        ...

    def swap_in(self, moves: Sequence[BlockMove]) -> None:
        """Copy blocks of the swap space back to the pool, in all layers."""
        ...

    def prepare(self, rows: Sequence[Rows], padding: Padding | None = None) -> Step:
        """Lay out a step; positions and block ids must be valid, and padding must cover the rows.

        Rows of padding come after the others, so that these keep their numbers. They are computed
        like any row, and attend to nothing that belongs to a sequence.
        """
        ...

    def embed(self, table: Tensor, step: Step) -> Tensor:
        """Return a new residual stream with the embedding of each row's token."""
        ...

    def rms_norm(
        self, residual: Tensor, delta: Tensor | None, weight: Tensor, eps: float
    ) -> Tensor:
        """Add ``delta`` to ``residual`` in place, and return the sum normalised, times ``weight``.

        Zhang and Sennrich, 2019: ``x / sqrt(mean(x ** 2) + eps)``.
        """
        ...

    def final_norm(
        self, residual: Tensor, delta: Tensor | None, weight: Tensor, eps: float
    ) -> Tensor:
        """Do the same as :meth:`rms_norm`, in the precision that :meth:`logits` takes."""
        ...

    def linear(self, x: Tensor, matrix: Matrix) -> Tensor:
        """Return ``x @ matrix.T + bias``."""
        ...

    def norm_heads(self, qkv: Tensor, q_weight: Tensor, k_weight: Tensor, eps: float) -> Tensor:
        """Apply RMSNorm to each head of q and of k; v stays as it is."""
        ...

    def rotate_and_store(self, qkv: Tensor, layer: int, step: Step) -> Tensor:
        """Rotate q and k by their positions, write k and v to the KV pool, and return q."""
        ...

    def attention(self, queries: Tensor, layer: int, step: Step) -> Tensor:
        """Attend from each row to the positions of its sequence up to its own, within the window.

        Keys and values are read through the block tables.
        """
        ...

    def silu_mul(self, gate_up: Tensor) -> Tensor:
        """Return ``silu(gate) * up`` for the left and right halves of the features."""
        ...

    def compiled(self, forward: Callable[[Step], Tensor]) -> Callable[[Step], Tensor]:
        """Return a forward pass in the form that is quickest to run; the same will do.

        It calls the operations above, the same ones for every step.
        """
        ...

    def are_finite(self, hidden: Tensor) -> list[bool]:
        """Say for each row whether all its features are numbers, none of them infinite."""
        ...

    def logits(self, hidden: Tensor, rows: Sequence[int], head: Matrix) -> npt.NDArray[np.float32]:
        """Return the logits of the given rows as a new array, ``(len(rows), vocabulary)``."""
        ...
