"""Settings that were tried to find the best: ``python -m benchmarks.peers --explore``.

What is best goes into :mod:`benchmarks.peers.lineup`, as what was found on a machine of this kind.
"""

from __future__ import annotations

from typing import Any, Final

from benchmarks.peers.engines import EngineSpec
from benchmarks.peers.lineup import (
    BY_TOKEN,
    LLAMA_BENCH,
    OPENVINO_GENAI,
    VLLM_CPU,
    llama_cpp,
    openvino,
    vllm,
    vllm_environment,
)

_LLAMA_FLAGS: Final = {
    "": (),
    "fa on": ("-fa", "on"),
    "fa off": ("-fa", "off"),
    "ub 128": ("-ub", "128"),
    "ub 2048": ("-ub", "2048"),
    "bf16 KV": ("-ctk", "bf16", "-ctv", "bf16"),
    "q8_0 KV": ("-fa", "on", "-ctk", "q8_0", "-ctv", "q8_0"),
    "poll 100": ("--poll", "100", "--prio", "2"),
    "kv unified": ("-kvu",),
}

_OPENVINO: Final[dict[str, dict[str, Any]]] = {
    "": {"device": {}},
    "by token": {"device": BY_TOKEN},
    "group 64": {"device": {"DYNAMIC_QUANTIZATION_GROUP_SIZE": "64"}},
    "group 128": {"device": {"DYNAMIC_QUANTIZATION_GROUP_SIZE": "128"}},
    "no dynamic": {"device": {"DYNAMIC_QUANTIZATION_GROUP_SIZE": "0"}},
    "by token, bf16 KV": {"device": {**BY_TOKEN, "KV_CACHE_PRECISION": "bf16"}},
    "by token, f32": {"device": {**BY_TOKEN, "INFERENCE_PRECISION_HINT": "f32"}},
    "by token, throughput": {"device": {**BY_TOKEN, "PERFORMANCE_HINT": "THROUGHPUT"}},
    "by token, batch 256": {"device": BY_TOKEN, "max_num_batched_tokens": 256},
    "by token, batch 1024": {"device": BY_TOKEN, "max_num_batched_tokens": 1024},
    "by token, batch 8192": {"device": BY_TOKEN, "max_num_batched_tokens": 8192},
    "by token, no split fuse": {
        "device": BY_TOKEN,
        "dynamic_split_fuse": False,
        "max_num_batched_tokens": 8192,
    },
}

_VLLM: Final[dict[str, dict[str, Any]]] = {
    "": {},
    "batch 2048": {"max_num_batched_tokens": 2048},
    "eager": {"enforce_eager": True},
    "block 32": {"block_size": 32},
}

EXPLORED: Final[tuple[EngineSpec, ...]] = (
    *(
        LLAMA_BENCH(
            name=f"llama.cpp {kind} {name}".strip(),
            file=kind.lower(),
            setting=" ".join(flags) or "defaults",
            options=llama_cpp(*flags),
        )
        for kind in ("Q4_0", "Q8_0")
        for name, flags in _LLAMA_FLAGS.items()
    ),
    *(
        OPENVINO_GENAI(
            name=f"openvino {name}".strip(),
            setting=str(arguments),
            options=openvino(**arguments),
        )
        for name, arguments in _OPENVINO.items()
    ),
    *(
        VLLM_CPU(
            name=f"vllm {name}".strip(), setting=str(arguments) or "", options=vllm(**arguments)
        )
        for name, arguments in _VLLM.items()
    ),
    VLLM_CPU(
        name="vllm in one process",
        setting="VLLM_ENABLE_V1_MULTIPROCESSING=0",
        options=vllm(),
        environment={**vllm_environment(), "VLLM_ENABLE_V1_MULTIPROCESSING": "0"},
    ),
    VLLM_CPU(
        name="vllm with libgomp",
        setting="torch's own OpenMP runtime",
        options=vllm(),
        environment={**vllm_environment(), "LD_PRELOAD": ""},
    ),
)
