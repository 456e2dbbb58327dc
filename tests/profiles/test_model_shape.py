"""What config.json files say of a model's size, and which of them are refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from headway.profiles.errors import ProfileError
from headway.profiles.model_shape import Experts, model_shape, read_model_shape

LLAMA_8B: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_attention_heads": 32,
    "num_hidden_layers": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "torch_dtype": "bfloat16",
    "tie_word_embeddings": False,
}
MIXTRAL: dict[str, Any] = {
    **LLAMA_8B,
    "model_type": "mixtral",
    "vocab_size": 32000,
    "num_local_experts": 8,
    "num_experts_per_tok": 2,
}
QWEN3_MOE: dict[str, Any] = {
    **{"model_type": "qwen3_moe", "hidden_size": 2048, "intermediate_size": 6144},
    **{"num_attention_heads": 32, "num_hidden_layers": 48, "num_key_value_heads": 4},
    **{"head_dim": 128, "vocab_size": 151936, "num_experts": 128, "num_experts_per_tok": 8},
    **{"moe_intermediate_size": 768, "decoder_sparse_step": 1, "mlp_only_layers": []},
}
GPT2 = {"model_type": "gpt2", "n_embd": 768, "n_head": 12, "n_layer": 12, "vocab_size": 50257}


def test_llama_8b_has_eight_billion_weights_and_grouped_queries() -> None:
    shape = model_shape(LLAMA_8B)
    assert shape.attention_weights == 41_943_040
    assert shape.expert_weights == 176_160_768
    assert shape.num_parameters == 8_029_995_008
    assert shape.weight_bytes == 2 * 8_029_995_008
    assert shape.kv_bytes_per_token == 2 * 32 * 8 * 128 * 2 == 131_072


@pytest.mark.parametrize(
    ("config", "billions"),
    [(MIXTRAL, 46.7), (QWEN3_MOE, 30.5), (GPT2, 0.124), ({**LLAMA_8B, "vocab_size": 32000}, 7.24)],
)
def test_parameters_of_other_models(config: dict[str, Any], billions: float) -> None:
    assert model_shape(config).num_parameters / 1e9 == pytest.approx(billions, rel=0.01)


def test_tied_embeddings_count_once() -> None:
    untied, tied = (model_shape({**LLAMA_8B, "tie_word_embeddings": t}) for t in (False, True))
    assert untied.num_parameters - tied.num_parameters == 128256 * 4096


def test_a_head_size_of_its_own_and_heads_that_share_nothing() -> None:
    config = {**LLAMA_8B, "head_dim": 64}
    del config["num_key_value_heads"]
    shape = model_shape(config)
    assert (shape.head_dim, shape.num_kv_heads) == (64, 32)


def test_the_text_part_of_a_model_that_also_sees() -> None:
    outer = {"model_type": "gemma3", "text_config": LLAMA_8B, "vision_config": {}}
    assert model_shape(outer) == model_shape(LLAMA_8B)


def test_experts_that_are_touched() -> None:
    experts = Experts(num=8, num_chosen=2, intermediate_size=1)
    assert experts.num_touched(1) == pytest.approx(2)
    assert experts.num_touched(2) == pytest.approx(8 * (1 - 0.75**2))
    assert experts.num_touched(999) == pytest.approx(8)


@pytest.mark.parametrize(
    ("quantization", "name", "bits"),
    [
        ({"quant_method": "fp8"}, "fp8", 8),
        ({"quant_method": "gptq", "bits": 4, "group_size": 128}, "int4", 4.25),
        ({"quant_method": "gptq", "bits": 8}, "int8-weights", 8),
        ({"quant_method": "awq", "w_bit": 4}, "int4", 4.25),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, "int4", 4.25),
        (
            {
                "quant_method": "compressed-tensors",
                "config_groups": {
                    "group_0": {
                        "weights": {"num_bits": 8, "type": "int"},
                        "input_activations": {"num_bits": 8, "type": "int"},
                    }
                },
            },
            "int8",
            8,
        ),
        (
            {
                "quant_method": "compressed-tensors",
                "config_groups": {"g": {"weights": {"num_bits": 4, "type": "int"}}},
            },
            "int4",
            4.25,
        ),
    ],
)
def test_weight_formats(quantization: dict[str, Any], name: str, bits: float) -> None:
    shape = model_shape({**LLAMA_8B, "quantization_config": quantization})
    assert (shape.weights.name, shape.weights.bits) == (name, bits)
    outside = 2 * 128256 * 4096
    expected = (shape.num_parameters - outside) * bits / 8 + 2 * outside
    assert shape.weight_bytes == pytest.approx(expected)


def test_a_format_can_be_asked_for() -> None:
    assert model_shape(LLAMA_8B, weights="int4").weights.bits == 4.25
    with pytest.raises(ProfileError, match="no weight format is called int3"):
        model_shape(LLAMA_8B, weights="int3")
    full = model_shape({**LLAMA_8B, "torch_dtype": "float32"})
    assert full.weight_bytes == 4 * full.num_parameters


def test_windows_of_attention() -> None:
    windowed = {**LLAMA_8B, "model_type": "mistral", "sliding_window": 4096}
    assert model_shape(windowed).num_windowed_layers == 32
    assert model_shape({**windowed, "use_sliding_window": False}).num_windowed_layers == 0
    kinds = ["sliding_attention", "full_attention"] * 16
    assert model_shape({**windowed, "layer_types": kinds}).num_windowed_layers == 16
    every_sixth = {**windowed, "sliding_window_pattern": 6}
    assert model_shape(every_sixth).num_windowed_layers == 27


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"kv_lora_rank": 512}, "latent attention"),
        ({"is_encoder_decoder": True}, "an encoder"),
        ({"mamba_d_state": 128}, "state-space"),
        ({"layer_types": ["linear_attention"]}, "layers of linear_attention"),
        ({"n_shared_experts": 1}, "all tokens share"),
        ({"first_k_dense_replace": 1}, "without experts"),
        ({"mlp_only_layers": [0]}, "without experts"),
        ({"hidden_size": None}, "hidden_size is missing"),
        ({"intermediate_size": None}, "intermediate_size is missing"),
        ({"num_key_value_heads": 5}, "can't share 5"),
        ({"torch_dtype": "float8_e5m2"}, "float8_e5m2 are not known"),
        ({"quantization_config": {"quant_method": "gptq", "bits": 3}}, "by gptq in this way"),
        ({"quantization_config": {"quant_method": "hqq"}}, "by hqq in this way"),
    ],
)
def test_what_is_not_known_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ProfileError, match=message):
        model_shape({**LLAMA_8B, **changes})


def test_files(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    with pytest.raises(ProfileError, match="can't be read"):
        read_model_shape(tmp_path)
    path.write_text("{")
    with pytest.raises(ProfileError, match="is no JSON"):
        read_model_shape(path)
    path.write_text("[]")
    with pytest.raises(ProfileError, match=r"no config\.json of a model"):
        read_model_shape(path)
    path.write_text(json.dumps({**LLAMA_8B, "kv_lora_rank": 1}))
    with pytest.raises(ProfileError, match=r"config\.json: the model compresses"):
        read_model_shape(path)
    path.write_text(json.dumps(LLAMA_8B))
    assert read_model_shape(tmp_path) == read_model_shape(path) == model_shape(LLAMA_8B)
