"""Which engines are compared, each at its best setting that was found."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

from benchmarks.peers.engines import HEADWAY, LLAMA_CPP, OPENVINO, VLLM, EngineSpec, Options
from benchmarks.peers.places import HOME
from benchmarks.peers.shapes import SMOLLM2, Shape


def engines_of(shape: Shape, peers: tuple[str, ...], *, http: bool) -> tuple[EngineSpec, ...]:
    """Return the rows of a shape: Headway's, and those of the peers that were asked for."""
    rows = (*ENGINES, *HTTP) if http else ENGINES
    return tuple(
        spec
        for spec in rows
        if spec.peer in (HEADWAY, *peers) and (not spec.only or shape.name in spec.only)
    )


# -------------------------------------------------------------------- Headway


def _num_blocks(shape: Shape) -> int:
    """Return how many blocks of 16 tokens the cases need: 64 × 256 tokens, or 16 × 256."""
    return 2048 if shape is SMOLLM2 else 512


def headway(**settings: Any) -> Options:
    """Return options with settings by their keys, ``__`` for the dot."""

    def options(shape: Shape, path: Path) -> dict[str, Any]:
        common = {
            "model.executor": "cpu",
            "kv.prefix_sharing": "off",
            "kv.num_blocks": _num_blocks(shape),
        }
        own = {name.replace("__", "."): value for name, value in settings.items()}
        return {"model": str(path), "settings": {**common, **own}}

    return options


def _headway_server(shape: Shape, path: Path) -> dict[str, Any]:
    command = [sys.executable, "-m", "headway", "serve", str(path), "--port", "{port}"]
    command += ["--executor", "cpu", "--prefix-sharing", "off"]
    command += ["--num-blocks", str(_num_blocks(shape))]
    return {"command": command, "extra": {}}


# -------------------------------------------------------------------- llama.cpp


def llama_cpp(*flags: str) -> Options:
    def options(_: Shape, path: Path) -> dict[str, Any]:
        return {"model": str(path), "flags": list(flags)}

    return options


def _llama_server(_: Shape, path: Path) -> dict[str, Any]:
    # one request of 8,064 tokens, or 64 of 256 each: one KV buffer that all share holds both
    command = ["{programs}/llama-server", "-m", str(path), "--port", "{port}", "-np", "64"]
    command += ["-c", "16384", "--kv-unified", "--cache-ram", "0"]
    return {"command": command, "extra": {"cache_prompt": False}}


LLAMA_BENCH: Final = partial(EngineSpec, peer=LLAMA_CPP, module="llama_cpp", is_warmed=False)


# -------------------------------------------------------------------- OpenVINO


def openvino(device: Mapping[str, Any], **scheduler: Any) -> Options:
    """Return options with properties of the device, and fields of GenAI's ``SchedulerConfig``."""

    def options(_: Shape, path: Path) -> dict[str, Any]:
        common = {
            "cache_size": 2,
            "max_num_batched_tokens": 2048,
            "max_num_seqs": 64,
            "enable_prefix_caching": False,
            "dynamic_split_fuse": True,
        }
        return {
            "model": str(path),
            "device": dict(device),
            "scheduler": {**common, **scheduler},
        }

    return options


BY_TOKEN: Final = {"DYNAMIC_QUANTIZATION_GROUP_SIZE": str(2**64 - 1)}

OPENVINO_GENAI: Final = partial(EngineSpec, peer=OPENVINO, module="openvino", file="openvino")


# -------------------------------------------------------------------- vLLM


def vllm(**arguments: Any) -> Options:
    def options(shape: Shape, path: Path) -> dict[str, Any]:
        common = {
            "dtype": "bfloat16",
            "max_model_len": 8192,
            "max_num_seqs": 64,
            "max_num_batched_tokens": 8192,
            "enable_prefix_caching": False,
            "max_logprobs": 1024,
            "disable_log_stats": True,
            "seed": 0,
        }
        return {
            "model": str(path),
            "vocab_size": shape.config["vocab_size"],
            "engine": {**common, **arguments},
        }

    return options


def vllm_environment() -> dict[str, str]:
    """Return what binds a thread to each core; and room for the KV, in GiB."""
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else [0]
    return {
        "VLLM_CPU_OMP_THREADS_BIND": ",".join(map(str, cores)),
        "VLLM_CPU_NUM_OF_RESERVED_CPU": "0",
        "VLLM_CPU_KVCACHE_SPACE": "2",
        "VLLM_LOGGING_LEVEL": "WARNING",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_CACHE_ROOT": str(HOME / "cache" / "vllm"),
        "TORCHINDUCTOR_CACHE_DIR": str(HOME / "cache" / "inductor"),
        # vLLM asks for this OpenMP runtime, which its own dependencies bring
        "LD_PRELOAD": str(HOME / "vllm" / "lib" / "libiomp5.so"),
        "HF_HUB_OFFLINE": "1",
    }


VLLM_CPU: Final = partial(
    EngineSpec, peer=VLLM, module="vllm", file="hf", environment=vllm_environment()
)


# -------------------------------------------------------------------- rows

ENGINES: Final = (
    EngineSpec(
        name="headway",
        peer=HEADWAY,
        module="headway",
        file="gguf",
        setting="the default: weights as in the file (4 bits), bfloat16 KV",
        options=headway(),
    ),
    EngineSpec(
        name="headway int8 KV",
        peer=HEADWAY,
        module="headway",
        file="gguf",
        setting="weights as in the file, int8 KV",
        options=headway(kv__dtype="int8"),
        only=(SMOLLM2.name,),
    ),
    EngineSpec(
        name="headway int8",
        peer=HEADWAY,
        module="headway",
        file="gguf",
        setting="int8 in wide groups made of the file's weights, bfloat16 KV",
        options=headway(model__quantization="int8"),
    ),
    EngineSpec(
        name="headway int8 both",
        peer=HEADWAY,
        module="headway",
        file="gguf",
        setting="int8 in wide groups made of the file's weights, int8 KV",
        options=headway(model__quantization="int8", kv__dtype="int8"),
        only=(SMOLLM2.name,),
    ),
    LLAMA_BENCH(
        name="llama.cpp Q4_0",
        file="q4_0",
        setting="llama-batched-bench, requantised to Q4_0",
        options=llama_cpp(),
    ),
    LLAMA_BENCH(
        name="llama.cpp Q8_0",
        file="q8_0",
        setting="llama-batched-bench, requantised to Q8_0",
        options=llama_cpp(),
    ),
    LLAMA_BENCH(
        name="llama.cpp Q4_1",
        file="gguf",
        setting="llama-batched-bench, the same file as Headway's",
        options=llama_cpp(),
        only=(SMOLLM2.name,),
    ),
    OPENVINO_GENAI(
        name="openvino",
        setting="int8 weights, int8 activations in groups of 32 (its default), int8 KV",
        options=openvino({}),
    ),
    OPENVINO_GENAI(
        name="openvino coarse",
        setting="int8 weights, activations quantised by the token, int8 KV",
        options=openvino(BY_TOKEN),
    ),
    VLLM_CPU(
        name="vllm",
        setting="bfloat16, a thread bound to each core",
        options=vllm(),
    ),
)
"""All rows. A shape has those whose ``only`` is empty or names it."""

HTTP: Final = (
    EngineSpec(
        name="headway HTTP",
        peer=HEADWAY,
        module="http",
        file="gguf",
        setting="headway serve and streaming clients on the same cores",
        options=_headway_server,
        is_scored=False,
    ),
    EngineSpec(
        name="llama-server",
        peer=LLAMA_CPP,
        module="http",
        file="q4_0",
        setting="llama-server with Q4_0 and streaming clients on the same cores",
        options=_llama_server,
        is_scored=False,
    ),
)
"""Servers with their clients, where they are asked for."""
