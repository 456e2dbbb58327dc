"""What common devices can do at most, from their makers' data sheets.

Peaks are dense (without structured sparsity) and of matrix units that add up in 32 bits, as
inference libraries use them: of GeForce cards that is half of what is advertised.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from headway.profiles.collective import AllReduce
from headway.profiles.errors import ProfileError

_NVLINK_SHARE = 0.7
"""Of a link's bandwidth an all-reduce reaches about this much with large messages (nccl-tests)."""
_PCIE_SHARE = 0.25
"""Through PCI Express: 16 of 64 GB/s between two RTX PRO 6000 (15.8 in a recorded vLLM run)."""
_LATENCY_S = 20e-6
"""Of one all-reduce (the configuration with which LLMServingSim publishes those runs)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """One accelerator.

    Attributes:
        name: its key in ``DEVICES``.
        memory_bytes: size of its memory.
        bytes_per_s: peak bandwidth of that memory.
        flops: peak operations a second by the type that is multiplied; what it lacks is absent.
        link_bytes_per_s: to the other devices, in one direction.
        has_fast_link: NVLink or Infinity Fabric; else PCI Express.
        source: where the numbers are from.
    """

    name: str
    memory_bytes: float
    bytes_per_s: float
    flops: Mapping[str, float]
    link_bytes_per_s: float
    has_fast_link: bool
    source: str

    def all_reduce(self, num_devices: int) -> AllReduce | None:
        """Return what adding up over so many devices costs in a ring; None for one device.

        In a ring each device sends 2 (n - 1) / n of the bytes (Patarasuk and Yuan, 2009).
        """
        if num_devices == 1:
            return None
        share = _NVLINK_SHARE if self.has_fast_link else _PCIE_SHARE
        sent = 2 * (num_devices - 1) / num_devices
        return AllReduce(bytes_per_s=share * self.link_bytes_per_s / sent, latency_s=_LATENCY_S)


_GB, _TERA = 1e9, 1e12


def _device(
    name: str,
    memory_gb: float,
    gb_per_s: float,
    teraflops: tuple[float, float, float],
    link_gb_per_s: float,
    source: str,
) -> Device:
    """Make a device; ``teraflops`` are those of bf16, fp8 and int8, 0 for what it lacks."""
    kinds = zip(("bf16", "fp8", "int8"), teraflops, strict=True)
    return Device(
        name=name,
        memory_bytes=memory_gb * _GB,
        bytes_per_s=gb_per_s * _GB,
        flops={kind: _TERA * peak for kind, peak in kinds if peak},
        link_bytes_per_s=link_gb_per_s * _GB,
        has_fast_link=link_gb_per_s > 64,
        source=source,
    )


DEVICES: Mapping[str, Device] = {
    device.name: device
    for device in (
        _device("a10", 24, 600, (125, 0, 250), 32, "NVIDIA A10 datasheet"),
        _device("a100-40gb", 40, 1555, (312, 0, 624), 300, "NVIDIA A100 datasheet, SXM4 40 GB"),
        _device("a100-80gb", 80, 2039, (312, 0, 624), 300, "NVIDIA A100 datasheet, SXM4 80 GB"),
        _device("h100-80gb", 80, 3350, (989.4, 1978.9, 1978.9), 450, "NVIDIA H100 datasheet, SXM5"),
        _device("h100-pcie", 80, 2039, (756, 1513, 1513), 64, "NVIDIA H100 datasheet, PCIe"),
        _device("h200", 141, 4800, (989.4, 1978.9, 1978.9), 450, "NVIDIA H200 datasheet, SXM"),
        _device("b200", 180, 7700, (2250, 4500, 4500), 900, "NVIDIA HGX B200 datasheet"),
        _device("l4", 24, 300, (121, 242.5, 242.5), 32, "NVIDIA L4 datasheet"),
        _device("l40s", 48, 864, (362, 733, 733), 32, "NVIDIA L40S datasheet"),
        _device(
            "rtx-3090", 24, 936, (71, 0, 284), 32, "NVIDIA GA102 whitepaper, 32-bit accumulation"
        ),
        _device(
            "rtx-4090",
            24,
            1008,
            (165.2, 330.3, 660.6),
            32,
            "NVIDIA Ada whitepaper, 32-bit accumulation",
        ),
        _device(
            "rtx-pro-6000",
            96,
            1792,
            (503.8, 1007.6, 1007.6),
            64,
            "NVIDIA RTX Blackwell PRO whitepaper, Workstation Edition",
        ),
        _device(
            "rtx-pro-6000-server",
            96,
            1597,
            (500, 1000, 1000),
            64,
            "NVIDIA RTX PRO 6000 Blackwell Server Edition datasheet",
        ),
        _device(
            "mi300x", 192, 5300, (1307.4, 2614.9, 2614.9), 448, "AMD Instinct MI300X data sheet"
        ),
    )
}


def find_device(name: str) -> Device:
    """Return the device of that name.

    Raises:
        ProfileError: it is not known; the message names those that are.
    """
    try:
        return DEVICES[name]
    except KeyError:
        known = ", ".join(DEVICES)
        raise ProfileError(f"no device is called {name}: known are {known}") from None
