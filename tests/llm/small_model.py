"""A model directory of a few kilobytes, and models in this process on a scripted executor."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import tokenizers
from safetensors.numpy import save_file
from tokenizers import decoders, models, pre_tokenizers

from headway import LLM
from headway.assembly import Assembly, assemble
from headway.config import load_settings
from headway.core.plan import NewSequence
from headway.core.scheduler import Scheduler
from headway.engine.aio import AsyncEngine
from headway.engine.clock import RealClock
from headway.engine.loop import Engine
from headway.generation.generator import Generator
from headway.testing.scripted import ScriptedExecutor
from headway.testing.tiny_models import tiny_checkpoint, tiny_config
from headway.text.byte_level import CHARACTERS
from headway.text.chat_template import load_chat_template
from headway.text.loading import load_tokenizer

EOS = 256
VOCAB_SIZE = EOS + 1
CONTEXT = 512
TEMPLATE = "{% for m in messages %}{{ m.role[0] }}:{{ m.content }}\n{% endfor %}a:"

#: Time that nobody needs to wait for.
AT_ONCE = {"step_base_ms": 0, "prefill_ms_per_token": 0, "decode_ms_per_sequence": 0}


def tokenizer_json() -> bytes:
    """Id b is byte b; one special token follows."""
    vocab = {CHARACTERS[byte]: byte for byte in range(256)} | {"<eos>": EOS}
    library = tokenizers.Tokenizer(models.BPE(vocab, []))
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    library.decoder = decoders.ByteLevel()
    library.add_special_tokens(["<eos>"])
    return library.to_str().encode()


def write_model(folder: Path) -> Path:
    """Write a small model in the Hugging Face layout."""
    config = tiny_config(vocab_size=VOCAB_SIZE, max_position_embeddings=CONTEXT)
    folder.mkdir(parents=True, exist_ok=True)
    described = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": config.vocab_size,
        "hidden_size": config.hidden_size,
        "intermediate_size": config.intermediate_size,
        "num_hidden_layers": config.num_layers,
        "num_attention_heads": config.num_heads,
        "num_key_value_heads": config.num_kv_heads,
        "head_dim": config.head_dim,
        "max_position_embeddings": config.max_position_embeddings,
        "tie_word_embeddings": False,
        "eos_token_id": EOS,
    }
    tensors = tiny_checkpoint(config).tensors
    save_file(
        {name: tensor.to_float32() for name, tensor in tensors.items()},
        folder / "model.safetensors",
    )
    (folder / "config.json").write_text(json.dumps(described))
    (folder / "tokenizer.json").write_bytes(tokenizer_json())
    words = {"eos_token": "<eos>", "chat_template": TEMPLATE}
    (folder / "tokenizer_config.json").write_text(json.dumps(words))
    return folder


def say(text: str) -> Callable[[NewSequence, int], int]:
    """Script: these bytes, one a token, then the end."""
    ids = [*text.encode(), EOS]
    return lambda _, position: ids[min(position, len(ids) - 1)]


def scripted(model: Path, executor: ScriptedExecutor, **settings: Any) -> Assembly:
    """Assemble the model, with another executor in it."""
    flags = {"model.path": str(model), "model.executor": "simulated", **settings}
    assembly = assemble(load_settings(None, {}, flags).settings, lambda _: None)
    config = assembly.engine._engine.scheduler.config
    engine = AsyncEngine(Engine(Scheduler(config), executor, RealClock()))
    tokenizer = load_tokenizer(tokenizer_json(), {"eos_token": "<eos>"}, None)
    generator = Generator(
        engine=engine,
        tokenizer=tokenizer,
        chat_template=load_chat_template(TEMPLATE, None, "<eos>"),
        eos_token_ids=(EOS,),
        generation_defaults={},
        vocab_size=VOCAB_SIZE,
        max_model_len=config.limits.longest,
    )
    return replace(assembly, engine=engine, generator=generator)


@contextmanager
def scripted_llm(model: Path, executor: ScriptedExecutor, **settings: Any) -> Iterator[LLM]:
    """A model in this process on a scripted executor; at the end nothing may be left over."""
    llm = LLM.from_assembly(scripted(model, executor, **settings))
    try:
        yield llm
    finally:
        if executor.is_gated:
            executor.allow(1_000_000)
        llm.close()
        counts = llm.assembly.engine.statistics()
        assert counts.num_live == 0
        assert counts.num_free_blocks == counts.num_blocks
