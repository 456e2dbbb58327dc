"""Step times by arithmetic: what is computed and moved, over what the device can do.

A part of a step takes as long as its operations or its bytes, whichever is longer (Williams et al.,
"Roofline", 2009). Parts follow each other: the layers' matrices, attention, the head, and what
several devices exchange. What small operations between them move is left to the efficiencies.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from headway.profiles.collective import AllReduce
from headway.profiles.devices import Device
from headway.profiles.errors import ProfileError
from headway.profiles.model_shape import ModelShape
from headway.profiles.shape import Chunk, StepShape

_ACTIVATION_BYTES = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Efficiency:
    """What part of the peaks is reached, and the time of a step that no peak explains."""

    compute: float
    attention: float
    bandwidth: float
    layer_s: float
    source: str


class Parts(NamedTuple):
    """What the time of a step goes to, in seconds; the sum is its time.

    Attributes:
        weights_s: reading weights, where that takes longer than multiplying by them.
        compute_s: multiplying, where that takes longer.
        kv_s: reading the keys and values of decodes.
        prompts_s: attention of prompts.
        fixed_s: what no peak explains.
        exchange_s: between devices.
    """

    weights_s: float = 0.0
    compute_s: float = 0.0
    kv_s: float = 0.0
    prompts_s: float = 0.0
    fixed_s: float = 0.0
    exchange_s: float = 0.0

    def plus(self, other: Parts) -> Parts:
        """Return the sum of both."""
        return Parts(*(one + another for one, another in zip(self, other, strict=True)))


class Roofline:
    """Implements :class:`headway.profiles.shape.StepCost` by arithmetic alone.

    Args:
        model: what is computed.
        device: on what.
        num_devices: how many share each layer (tensor parallelism).
        efficiency: what part of the peaks is reached.
        all_reduce: what the devices' exchange costs; None is that of the device's links.

    Raises:
        ProfileError: the model can't be divided so, or the device can't multiply its type.
    """

    def __init__(
        self,
        model: ModelShape,
        device: Device,
        *,
        num_devices: int = 1,
        efficiency: Efficiency | None = None,
        all_reduce: AllReduce | None = None,
    ) -> None:
        if num_devices < 1 or model.num_heads % num_devices:
            raise ProfileError(f"{model.num_heads} heads can't be divided by {num_devices} devices")
        kind = model.weights.computes_in
        if kind not in device.flops:
            raise ProfileError(f"{device.name} can't multiply {kind}: {', '.join(device.flops)}")
        self.model = model
        self.device = device
        self.num_devices = num_devices
        self.efficiency = efficiency or MEASURED
        self.all_reduce = all_reduce or device.all_reduce(num_devices)
        self._flops = device.flops[kind] * self.efficiency.compute
        self._bytes_per_s = device.bytes_per_s * self.efficiency.bandwidth
        self._kinds = _kinds_of_layer(model)
        self._kv_bytes = self._kv_bytes_per_token()
        #: by tokens, and by sequences: few differ, and each is asked for in thousands of steps
        self._token_s: dict[int, float] = {}
        self._sequence_s: dict[int, float] = {}

    def seconds(self, shape: StepShape) -> float:
        """Return the predicted time of a step; 0 if it computes nothing."""
        chunks, num_decodes, context, _, _, _ = shape
        num_tokens = num_decodes
        for chunk in chunks:
            num_tokens += chunk.length
        if num_tokens == 0:
            return 0.0
        num_sequences = len(chunks) + num_decodes
        token_s = self._token_s.get(num_tokens)
        if token_s is None:
            token_s = self._token_s[num_tokens] = self._by_tokens_s(num_tokens)
        sequence_s = self._sequence_s.get(num_sequences)
        if sequence_s is None:
            sequence_s = self._sequence_s[num_sequences] = self._head_s(num_sequences)
        total_s = token_s + sequence_s
        if num_decodes:
            total_s += self._decode_attention_s(num_decodes, context)
        return total_s + self._prefill_attention_s(chunks) if chunks else total_s

    def parts(self, shape: StepShape) -> Parts:
        """Return what the predicted time of a step goes to."""
        num_tokens, num_layers = shape.num_tokens, self.model.num_layers
        if num_tokens == 0:
            return Parts()
        layers = self._matrices_sides(num_tokens)
        head = self._head_sides(shape.num_sequences)
        sides = ((num_layers, *layers), (1, *head))
        return Parts(
            weights_s=sum(n * move_s for n, compute_s, move_s in sides if move_s >= compute_s),
            compute_s=sum(n * compute_s for n, compute_s, move_s in sides if compute_s > move_s),
            kv_s=self._decode_attention_s(shape.num_decodes, shape.decode_context),
            prompts_s=self._prefill_attention_s(shape.chunks),
            fixed_s=num_layers * self.efficiency.layer_s,
            exchange_s=self._exchange_s(num_tokens),
        )

    def num_kv_blocks(
        self, *, block_size: int = 16, utilization: float = 0.9, reserved_bytes: float = 0.0
    ) -> int:
        """Return how many KV blocks fit beside the weights, on each device.

        An upper bound: activations, graphs and the context of the driver take memory too, which
        ``reserved_bytes`` is for. On an RTX 4090 that is 1.2 GB, and without it 3,177 blocks of an
        8B model are predicted where the engine has 2,588.
        """
        free = utilization * self.device.memory_bytes - reserved_bytes
        free -= self.model.weight_bytes / self.num_devices
        num_bytes = self._kv_bytes * self.model.num_layers * block_size
        return max(int(free / num_bytes), 0)

    def _kv_bytes_per_token(self) -> float:
        """Bytes in one layer, on one device; key-value heads that are too few are repeated."""
        num_heads = max(self.model.num_kv_heads / self.num_devices, 1)
        return 2 * num_heads * self.model.head_dim * self.model.kv_element_bytes

    def _by_tokens_s(self, num_tokens: int) -> float:
        """All layers' matrices, and what several devices exchange."""
        layer_s = self.efficiency.layer_s + self._matrices_s(num_tokens)
        return self.model.num_layers * layer_s + self._exchange_s(num_tokens)

    def _matrices_s(self, num_tokens: int) -> float:
        """One layer's matrices."""
        return max(self._matrices_sides(num_tokens))

    def _matrices_sides(self, num_tokens: int) -> tuple[float, float]:
        """One layer's matrices: (time to multiply, time to read them)."""
        model, experts = self.model, self.model.experts
        num_used = experts.num_chosen if experts else 1
        num_touched = experts.num_touched(num_tokens) if experts else 1.0
        used = model.attention_weights + num_used * model.expert_weights
        touched = model.attention_weights + num_touched * model.expert_weights
        compute_s = 2 * num_tokens * used / self._flops
        move_s = touched * model.weights.bits / 8 / self._bytes_per_s
        return compute_s / self.num_devices, move_s / self.num_devices

    def _prefill_attention_s(self, chunks: tuple[Chunk, ...]) -> float:
        """All layers. A position attends to itself and all before it, so half of a chunk's own."""
        model = self.model
        flops = self.device.flops["bf16"] * self.efficiency.attention
        width = 4 * model.num_heads * model.head_dim / self.num_devices
        total_s = 0.0
        for window, num_layers in self._kinds:
            for cached, length in chunks:
                mean = min(cached + (length + 1) / 2, window)
                read = min(cached, window) + length
                compute_s = width * length * mean / flops
                move_s = read * self._kv_bytes / self._bytes_per_s
                total_s += num_layers * max(compute_s, move_s)
        return total_s

    def _decode_attention_s(self, num_decodes: int, context: int) -> float:
        """All layers: the keys and values are read, and little is computed with each."""
        read = 0.0
        for window, num_layers in self._kinds:
            read += num_layers * min(context, num_decodes * window)
        return read * self._kv_bytes / self._bytes_per_s

    def _head_s(self, num_sequences: int) -> float:
        return max(self._head_sides(num_sequences))

    def _head_sides(self, num_sequences: int) -> tuple[float, float]:
        """The head of the model: (time to multiply, time to read it)."""
        compute = 2 * num_sequences * self.model.head_weights
        peak = self.device.flops["bf16"] * self.efficiency.compute
        moved = self.model.head_weights * _ACTIVATION_BYTES
        compute_s, move_s = compute / peak, moved / self._bytes_per_s
        return compute_s / self.num_devices, move_s / self.num_devices

    def _exchange_s(self, num_tokens: int) -> float:
        if self.all_reduce is None:
            return 0.0
        num_bytes = num_tokens * self.model.hidden_size * _ACTIVATION_BYTES
        return 2 * self.model.num_layers * self.all_reduce.seconds(num_bytes)


def _kinds_of_layer(model: ModelShape) -> tuple[tuple[float, int], ...]:
    """Return (window, number of layers that have it)."""
    if model.num_windowed_layers == 0:
        return ((float("inf"), model.num_layers),)
    others = model.num_layers - model.num_windowed_layers
    return ((float("inf"), others), (float(model.window), model.num_windowed_layers))


#: On whichever of the three was left out of the choice, half of the kinds of step are predicted
#: within 7 to 16 %, and nine in ten within 19 to 39 %.
MEASURED = Efficiency(
    compute=0.75,
    attention=0.4,
    bandwidth=0.8,
    layer_s=30e-6,
    source=(
        "chosen for the least error over measured kernels of Llama-3.1-8B on an RTX 4090 and an "
        "RTX PRO 6000 (server edition), and Qwen3-32B on two of these (LLMServingSim's profiles)"
    ),
)
