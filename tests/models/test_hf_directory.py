"""Hugging Face directories: what transformers writes opens, and what is damaged is refused."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from model_files import CONFIG, HIDDEN, LAYERS, TOKENIZER, VOCAB, hf_tensors, write_directory

from headway.errors import ModelError
from headway.models.config import LinearRopeScaling, Llama3RopeScaling, ModelConfig
from headway.models.loading import open_checkpoint


def config_of(tmp_path: Path, **config: Any) -> ModelConfig:
    from headway.models.fields import Fields
    from headway.models.hf_config import parse_config

    merged = {k: v for k, v in {**CONFIG, **config}.items() if v is not ...}
    return parse_config(Fields(tmp_path / "config.json", merged))


def refusal(path: Path) -> str:
    with pytest.raises(ModelError) as caught:
        open_checkpoint(path)
    message = str(caught.value)
    assert "\n" not in message
    assert str(path) in message
    return message


@pytest.mark.parametrize("architecture", ["llama", "mistral", "qwen2", "qwen3"])
def test_what_transformers_saves_opens_with_the_same_values(
    architecture: str, tmp_path: Path
) -> None:
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    transformers.utils.logging.set_verbosity(logging.ERROR)
    transformers.utils.logging.disable_progress_bar()
    prefix = architecture.capitalize()
    config = getattr(transformers, f"{prefix}Config")(
        vocab_size=VOCAB,
        hidden_size=HIDDEN,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=24,
        max_position_embeddings=512,
        sliding_window=100,
        tie_word_embeddings=architecture == "qwen3",
    )
    model = getattr(transformers, f"{prefix}ForCausalLM")(config).to(torch.bfloat16)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_()
    model.save_pretrained(tmp_path, max_shard_size="40KB")
    (tmp_path / "tokenizer.json").write_text(json.dumps(TOKENIZER))
    assert len(list(tmp_path.glob("model-*.safetensors"))) > 1

    checkpoint = open_checkpoint(tmp_path)

    opened = checkpoint.config
    assert opened.architecture == architecture
    assert opened.head_dim == 24
    assert opened.num_kv_heads == 2
    assert opened.rms_norm_eps == config.rms_norm_eps
    assert opened.tie_word_embeddings == config.tie_word_embeddings
    assert opened.sliding_window == (100 if architecture == "mistral" else None)
    assert opened.qk_norm == (architecture == "qwen3")
    assert opened.attention_bias == (architecture == "qwen2")
    stored = {n: t for n, t in model.state_dict().items() if n in checkpoint.tensors}
    assert stored.keys() == checkpoint.tensors.keys()
    for name, expected in stored.items():
        tensor = checkpoint.tensors[name]
        assert tensor.format == "BF16"
        assert tensor.shape == tuple(expected.shape)
        np.testing.assert_array_equal(tensor.to_float32(), expected.float().numpy())


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_other_float_types_and_their_bytes(dtype: Any, tmp_path: Path) -> None:
    tensors = {n: a.astype(dtype) for n, a in hf_tensors().items()}
    checkpoint = open_checkpoint(write_directory(tmp_path, tensors=tensors))
    for name, array in tensors.items():
        tensor = checkpoint.tensors[name]
        assert tensor.data.shape == (*array.shape[:-1], array.shape[-1] * array.itemsize)
        assert tensor.data.tobytes() == array.tobytes()
        values = tensor.to_float32()
        assert values.flags.writeable
        np.testing.assert_array_equal(values, array.astype(np.float32))


def test_old_and_new_rope_settings(tmp_path: Path) -> None:
    llama3 = {
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    }
    expected = Llama3RopeScaling(**llama3)  # type: ignore[arg-type]  # one value is an int
    old = config_of(tmp_path, rope_theta=5e5, rope_scaling={"rope_type": "llama3", **llama3})
    new = config_of(
        tmp_path, rope_parameters={"rope_type": "llama3", "rope_theta": 500000, **llama3}
    )
    assert old == new
    assert new.rope_theta == 500000.0
    assert new.rope_scaling == expected
    linear = config_of(tmp_path, rope_scaling={"type": "linear", "factor": 2})
    assert linear.rope_scaling == LinearRopeScaling(factor=2.0)
    assert config_of(tmp_path, rope_scaling={"rope_type": "default"}).rope_scaling is None
    assert config_of(tmp_path, rope_scaling=None).rope_theta == 10000.0


def test_what_is_not_said_is_the_default_of_the_class(tmp_path: Path) -> None:
    plain = config_of(tmp_path, num_key_value_heads=...)
    assert plain.num_kv_heads == CONFIG["num_attention_heads"]
    assert plain.head_dim == 16
    mistral = {"architectures": ["MistralForCausalLM"], "model_type": "mistral"}
    assert config_of(tmp_path, **mistral, max_position_embeddings=32768).sliding_window == 4096
    assert config_of(tmp_path, **mistral, sliding_window=None).sliding_window is None
    qwen3 = {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3"}
    assert config_of(tmp_path, **qwen3).head_dim == 128


@pytest.mark.parametrize(
    ("settings", "window"),
    [
        ({"use_sliding_window": False, "sliding_window": 64}, None),
        ({"use_sliding_window": True, "sliding_window": 64, "max_window_layers": 2}, None),
        ({"use_sliding_window": True, "sliding_window": 64, "max_window_layers": 0}, 64),
        ({"use_sliding_window": True, "sliding_window": 512, "max_window_layers": 1}, None),
        ({"use_sliding_window": True, "sliding_window": 64, "max_window_layers": 1}, "refused"),
        (
            {
                "use_sliding_window": True,
                "sliding_window": 64,
                "layer_types": ["sliding_attention"] * 2,
            },
            64,
        ),
    ],
)
def test_sliding_window_of_qwen2(
    settings: dict[str, Any], window: int | str | None, tmp_path: Path
) -> None:
    qwen2 = {"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", **settings}
    if window == "refused":
        with pytest.raises(ModelError, match="sliding_window is on 1 of 2 layers"):
            config_of(tmp_path, **qwen2)
    else:
        assert config_of(tmp_path, **qwen2).sliding_window == window


def test_qwen2_sliding_layers_agree_with_transformers(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    for first in (0, 1, 2, 28):
        theirs = transformers.Qwen2Config(
            num_hidden_layers=2, use_sliding_window=True, sliding_window=64, max_window_layers=first
        )
        sliding = theirs.layer_types.count("sliding_attention")
        settings = {"use_sliding_window": True, "sliding_window": 64, "max_window_layers": first}
        qwen2 = {"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", **settings}
        if sliding == 1:
            with pytest.raises(ModelError):
                config_of(tmp_path, **qwen2)
        else:
            assert config_of(tmp_path, **qwen2).sliding_window == (64 if sliding else None)


@pytest.mark.parametrize(
    ("config", "complaint"),
    [
        ({"architectures": ["GemmaForCausalLM"]}, "architectures is ['GemmaForCausalLM']"),
        ({"architectures": ...}, "architectures is []"),
        ({"architectures": "LlamaForCausalLM"}, "architectures"),
        ({"model_type": "mistral"}, "model_type"),
        ({"hidden_act": "gelu"}, "hidden_act is 'gelu'"),
        ({"pretraining_tp": 2}, "pretraining_tp"),
        ({"quantization_config": {"quant_method": "awq"}}, "quantization_config"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor"),
        ({"rope_parameters": {"rope_type": "default", "partial_rotary_factor": 0.5}}, "partial"),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 4}}, "rope_type is 'yarn'"),
        ({"rope_scaling": {"type": "dynamic", "factor": 4}}, "rope_type is 'dynamic'"),
        ({"rope_scaling": {"rope_type": "longrope"}}, "longrope"),
        ({"rope_scaling": {"rope_type": "linear"}}, "factor is missing"),
        ({"rope_scaling": [1]}, "rope_scaling must be an object"),
        ({"rope_theta": float("inf")}, "rope_theta"),
        ({"hidden_size": ...}, "hidden_size is missing"),
        ({"hidden_size": "64"}, "hidden_size must be an integer"),
        ({"hidden_size": True}, "hidden_size must be an integer"),
        ({"hidden_size": 64.5}, "hidden_size must be an integer, not 64.5"),
        ({"hidden_size": float("inf")}, "hidden_size must be an integer, not inf"),
        ({"num_hidden_layers": 0}, "num_hidden_layers is out of range"),
        ({"num_hidden_layers": 10**9}, "model.layers.2.input_layernorm.weight is missing"),
        ({"vocab_size": 10**9}, "has shape (48, 64)"),
        ({"num_attention_heads": 3}, "can't share"),
        ({"head_dim": 15}, "head_dim 15 can't"),
        ({"rms_norm_eps": 0}, "rms_norm_eps"),
        ({"tie_word_embeddings": "yes"}, "tie_word_embeddings must be true or false"),
        ({"eos_token_id": "</s>"}, "eos_token_id"),
        ({"attention_bias": True}, "self_attn.q_proj.bias is missing"),
        ({"intermediate_size": 95}, "mlp.gate_proj.weight has shape (96, 64)"),
        ({"tie_word_embeddings": True}, "lm_head.weight differs"),
    ],
)
def test_a_config_that_can_not_be_served_is_refused(
    config: dict[str, Any], complaint: str, tmp_path: Path
) -> None:
    assert complaint in refusal(write_directory(tmp_path, config=config))


def test_whole_numbers_written_as_floats_and_an_empty_quantization(tmp_path: Path) -> None:
    config = {"hidden_size": 64.0, "max_position_embeddings": 8192.0, "quantization_config": {}}
    found = open_checkpoint(write_directory(tmp_path, config=config)).config
    assert (found.hidden_size, found.max_position_embeddings) == (64, 8192)
    assert isinstance(found.max_position_embeddings, int)


def test_a_tensor_too_few_or_too_many_is_refused(tmp_path: Path) -> None:
    tensors = hf_tensors()
    del tensors["model.norm.weight"]
    message = refusal(write_directory(tmp_path, tensors=tensors))
    assert "tensor model.norm.weight is missing" in message
    tensors = hf_tensors() | {"model.layers.0.self_attn.q_norm.weight": np.ones(16, np.float32)}
    assert "q_norm" in refusal(write_directory(tmp_path, tensors=tensors))


def test_tied_embeddings_need_no_head_and_stored_frequencies_are_left_out(tmp_path: Path) -> None:
    tensors = hf_tensors()
    tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = np.ones(8, np.float32)
    tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"].copy()
    tied = {"tie_word_embeddings": True}
    open_checkpoint(write_directory(tmp_path, tensors=tensors, config=tied))
    del tensors["lm_head.weight"]
    checkpoint = open_checkpoint(write_directory(tmp_path, tensors=tensors, config=tied))
    assert not any("inv_freq" in name for name in checkpoint.tensors)


def test_end_ids_are_merged_from_all_places(tmp_path: Path) -> None:
    path = write_directory(
        tmp_path,
        config={"eos_token_id": [5, 6]},
        generation_config={"eos_token_id": 7, "top_p": 0.9},
        tokenizer_config={"eos_token": {"content": "</s>"}},
    )
    checkpoint = open_checkpoint(path)
    assert checkpoint.eos_token_ids == (2, 5, 6, 7)
    assert checkpoint.generation_config["top_p"] == 0.9
    write_directory(
        path,
        config={"eos_token_id": None},
        generation_config={"eos_token_id": [-1, VOCAB]},
        tokenizer_config={"eos_token": "t0"},
    )
    assert open_checkpoint(path).eos_token_ids == (3,)


def test_chat_templates(tmp_path: Path) -> None:
    named = [{"name": "tool_use", "template": "T"}, {"name": "default", "template": "D"}]
    for stated, expected in [("S", "S"), (named, "D"), (named[:1], None), (None, None)]:
        path = write_directory(tmp_path, tokenizer_config={"chat_template": stated})
        assets = open_checkpoint(path).tokenizer
        assert assets.chat_template == expected
        assert assets.gguf_metadata is None
        assert assets.tokenizer_json == (path / "tokenizer.json").read_bytes()
    (path / "chat_template.jinja").write_text("J")
    assert open_checkpoint(path).tokenizer.chat_template == "J"
    (path / "chat_template.jinja").write_bytes(b"\xff")
    assert "not UTF-8" in refusal(path)


def test_foreign_and_missing_things_are_refused(tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    assert "has no config.json" in refusal(empty)
    assert "no such file or directory" in refusal(tmp_path / "absent")
    assert "no such file or directory" in refusal(tmp_path / ("x" * 5000))
    path = write_directory(tmp_path / "model")
    (path / "model.safetensors").rename(path / "pytorch_model.bin")
    assert "pickled" in refusal(path)
    (path / "pytorch_model.bin").unlink()
    assert "neither model.safetensors" in refusal(path)


@pytest.mark.parametrize("file", ["config", "tokenizer", "tokenizer_config", "generation_config"])
@pytest.mark.parametrize("text", ["", "{", "[]", "[" * 100_000, '{"a": "\\ud800'])
def test_damaged_json_is_refused(file: str, text: str, tmp_path: Path) -> None:
    path = write_directory(tmp_path, tokenizer_config={"eos_token": "</s>"})
    (path / f"{file}.json").write_text(text)
    assert f"{file}.json" in refusal(path)


def shard(path: Path) -> dict[str, str]:
    """Split the weights of a directory over two files, and return the weight map."""
    from safetensors.numpy import load_file, save_file

    tensors = load_file(path / "model.safetensors")
    (path / "model.safetensors").unlink()
    names = sorted(tensors)
    halves = {"a.safetensors": names[::2], "b.safetensors": names[1::2]}
    for file, part in halves.items():
        save_file({name: tensors[name] for name in part}, path / file)
    return {name: file for file, part in halves.items() for name in part}


def test_shards(tmp_path: Path) -> None:
    path = write_directory(tmp_path)
    weight_map = shard(path)
    index = path / "model.safetensors.index.json"

    def with_map(value: Any) -> Path:
        index.write_text(json.dumps({"weight_map": value}))
        return path

    checkpoint = open_checkpoint(with_map(weight_map))
    for name, array in hf_tensors().items():
        np.testing.assert_array_equal(checkpoint.tensors[name].to_float32(), array)
    assert "has no weight_map" in refusal(with_map(None))
    assert "no plain file name" in refusal(with_map(weight_map | {"x": "../a.safetensors"}))
    assert "has no tensor 'x'" in refusal(with_map(weight_map | {"x": "a.safetensors"}))
    assert "missing, but" in refusal(with_map(weight_map | {"x": "c.safetensors"}))
    first = f"model.layers.{LAYERS - 1}.mlp.up_proj.weight"
    del weight_map[first]
    assert f"{first} is missing" in refusal(with_map(weight_map))
