"""Which engines are compared, with which files and settings."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from benchmarks.peers.files import Progress, llama_cpp_folder, model_file
from benchmarks.peers.install import install
from benchmarks.peers.places import RESULTS, python_of
from benchmarks.peers.shapes import SMOLLM2, Shape
from benchmarks.peers.worker import Worker

Options = Callable[[Shape, Path], dict[str, Any]]

HEADWAY: Final = "headway"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class EngineSpec:
    """A row of the table.

    Attributes:
        name: unique, and the head of its column.
        peer: what ``--peers`` names.
        file: which of :mod:`benchmarks.peers.files` it reads.
        setting: what it is set to, in words.
        options: what its worker gets, of the shape and the path of the file.
        is_warmed: whether it does something small before each measurement, after its pause.
        only: the names of the shapes that it is for; empty: all.
    """

    name: str
    peer: str
    file: str
    setting: str
    options: Options
    environment: Mapping[str, str] = field(default_factory=dict)
    is_warmed: bool = True
    only: tuple[str, ...] = ()

    def start(self, shape: Shape, progress: Progress) -> Worker:
        """Install it, make its file, and start it.

        Raises:
            PeerError: one of these failed.
        """
        python = sys.executable
        if self.peer != HEADWAY:
            install(self.peer, progress)
            python = str(python_of(self.peer))
        options = self.options(shape, model_file(shape, self.file, progress))
        if self.peer == "llama.cpp":
            options["programs"] = str(llama_cpp_folder(progress))
        progress(f"starting {self.name}")
        # a worker may import from this repository, and from its own environment alone
        environment = {} if self.peer == HEADWAY else {"PYTHONPATH": "", **self.environment}
        log = RESULTS / f"{shape.name}-{self.name.replace(' ', '-')}.log"
        return Worker(
            [python, "-m", f"benchmarks.peers.workers.{_MODULES[self.peer]}", json.dumps(options)],
            log,
            environment=environment,
        )


_MODULES: Final = {
    HEADWAY: "headway",
    "llama.cpp": "llama_cpp",
    "openvino": "openvino",
    "vllm": "vllm",
}

PEERS: Final = tuple(name for name in _MODULES if name != HEADWAY)


def _headway(**settings: Any) -> Options:
    def options(shape: Shape, path: Path) -> dict[str, Any]:
        blocks = 2048 if shape is SMOLLM2 else 512  # for what the cases need, and not more
        common = {"model.executor": "cpu", "kv.prefix_sharing": "off", "kv.num_blocks": blocks}
        own = {name.replace("__", "."): value for name, value in settings.items()}
        return {"model": str(path), "settings": {**common, **own}}

    return options


def _llama_cpp(*flags: str) -> Options:
    def options(_: Shape, path: Path) -> dict[str, Any]:
        return {"model": str(path), "flags": list(flags)}

    return options


def _openvino(device: Mapping[str, Any]) -> Options:
    def options(_: Shape, path: Path) -> dict[str, Any]:
        scheduler = {
            "cache_size": 4,
            "max_num_batched_tokens": 2048,
            "max_num_seqs": 64,
            "enable_prefix_caching": False,
            "dynamic_split_fuse": True,
        }
        return {"model": str(path), "device": dict(device), "scheduler": scheduler}

    return options


def _vllm(shape: Shape, path: Path) -> dict[str, Any]:
    engine = {
        "dtype": "bfloat16",
        "max_model_len": 8192,
        "max_num_seqs": 64,
        "max_num_batched_tokens": 8192,
        "enable_prefix_caching": False,
        "max_logprobs": 1024,
        "disable_log_stats": True,
        "seed": 0,
    }
    return {"model": str(path), "vocab_size": shape.config["vocab_size"], "engine": engine}


def _vllm_environment() -> dict[str, str]:
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else [0]
    return {
        "VLLM_CPU_OMP_THREADS_BIND": ",".join(map(str, cores)),
        "VLLM_CPU_NUM_OF_RESERVED_CPU": "0",
        "VLLM_CPU_KVCACHE_SPACE": "4",
        "VLLM_LOGGING_LEVEL": "WARNING",
        "VLLM_NO_USAGE_STATS": "1",
        "HF_HUB_OFFLINE": "1",
    }


ENGINES: Final = (
    EngineSpec(
        name="headway",
        peer=HEADWAY,
        file="gguf",
        setting="the default: weights as in the file (4 bits), bfloat16 KV",
        options=_headway(),
    ),
    EngineSpec(
        name="headway int8",
        peer=HEADWAY,
        file="gguf",
        setting="int8 in groups of 32 made of the file's weights, bfloat16 KV",
        options=_headway(model__quantization="int8"),
        only=(SMOLLM2.name,),
    ),
    EngineSpec(
        name="headway Q8_0",
        peer=HEADWAY,
        file="q8_0",
        setting="weights as in the file (8 bits), bfloat16 KV",
        options=_headway(),
        only=("qwen3-0.6b", "llama-3.2-1b"),
    ),
    EngineSpec(
        name="llama.cpp Q4_0",
        peer="llama.cpp",
        file="q4_0",
        setting="llama-batched-bench, requantised to Q4_0",
        options=_llama_cpp(),
        is_warmed=False,
    ),
    EngineSpec(
        name="llama.cpp Q8_0",
        peer="llama.cpp",
        file="q8_0",
        setting="llama-batched-bench, requantised to Q8_0",
        options=_llama_cpp(),
        is_warmed=False,
    ),
    EngineSpec(
        name="llama.cpp Q4_1",
        peer="llama.cpp",
        file="gguf",
        setting="llama-batched-bench, the same file as Headway's",
        options=_llama_cpp(),
        is_warmed=False,
        only=(SMOLLM2.name,),
    ),
    EngineSpec(
        name="openvino",
        peer="openvino",
        file="openvino",
        setting="int8 weights (nncf), its default precision of activations and KV",
        options=_openvino({}),
    ),
    EngineSpec(
        name="openvino coarse",
        peer="openvino",
        file="openvino",
        setting="int8 weights (nncf), activations quantised by the token",
        options=_openvino({"DYNAMIC_QUANTIZATION_GROUP_SIZE": str(2**64 - 1)}),
    ),
    EngineSpec(
        name="vllm",
        peer="vllm",
        file="hf",
        setting="bfloat16, a thread bound to each core",
        options=_vllm,
        environment=_vllm_environment(),
    ),
)
"""All rows. A shape has those whose ``only`` is empty or names it."""


def engines_of(shape: Shape, peers: tuple[str, ...]) -> tuple[EngineSpec, ...]:
    """Return the rows of a shape: Headway's, and those of the peers that were asked for."""
    return tuple(
        spec
        for spec in ENGINES
        if spec.peer in (HEADWAY, *peers) and (not spec.only or shape.name in spec.only)
    )
