"""GGUF models under Hugging Face names and layout."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from gguf.constants import GGMLQuantizationType
from model_files import (
    HEAD_DIM,
    HEADS,
    HIDDEN,
    KV_HEADS,
    LAYERS,
    TOKENS,
    VOCAB,
    Arrays,
    hf_tensors,
    llama_cpp_permute,
    random_blocks,
    write_gguf,
)

from headway.errors import ModelError
from headway.models.catalog import list_models
from headway.models.config import LinearRopeScaling, RopeFrequencyFactors
from headway.models.gguf_model import halves_order
from headway.models.loading import open_checkpoint


def refusal(path: Path) -> str:
    with pytest.raises(ModelError) as caught:
        open_checkpoint(path)
    message = str(caught.value)
    assert "\n" not in message
    assert str(path) in message
    return message


def test_a_llama_file_opens_as_the_model_that_was_converted(tmp_path: Path) -> None:
    tensors = hf_tensors()
    checkpoint = open_checkpoint(write_gguf(tmp_path / "m.gguf", tensors=tensors))
    config = checkpoint.config
    assert (config.architecture, config.vocab_size, config.hidden_size) == ("llama", VOCAB, HIDDEN)
    assert (config.num_layers, config.num_heads, config.num_kv_heads) == (LAYERS, HEADS, KV_HEADS)
    assert (config.head_dim, config.rms_norm_eps, config.rope_theta) == (HEAD_DIM, 1e-5, 10000.0)
    assert config.max_position_embeddings == 512
    assert config.rope_scaling is None
    assert not config.tie_word_embeddings
    assert checkpoint.tensors.keys() == tensors.keys()
    for name, array in tensors.items():
        assert checkpoint.tensors[name].shape == array.shape
        np.testing.assert_array_equal(checkpoint.tensors[name].to_float32(), array)


@pytest.mark.parametrize("storage", ["Q8_0", "Q4_1", "Q4_K"])
def test_quantised_rows_of_q_and_k_move_whole(storage: str, tmp_path: Path) -> None:
    kind = GGMLQuantizationType[storage]
    hidden = 256  # a whole block of the K formats
    scale = {"llama.embedding_length": hidden, "llama.attention.key_length": HEAD_DIM}
    scale["llama.attention.value_length"] = HEAD_DIM
    tensors: Arrays = {}
    for name, array in hf_tensors().items():
        rows = array.shape[0] if array.shape[0] != HIDDEN or "_proj" in name else hidden
        if name.endswith(("o_proj.weight", "down_proj.weight")):
            tensors[name] = np.ones((hidden, array.shape[1]), np.float32)
        else:
            tensors[name] = np.ones((rows, hidden)[: array.ndim], np.float32)
    names = [f"model.layers.{i}.self_attn.{p}_proj.weight" for i in range(LAYERS) for p in "qk"]
    for name in names:
        tensors[name] = random_blocks(tensors[name].shape[0], hidden, kind)
    path = write_gguf(
        tmp_path / "m.gguf", tensors=tensors, fields=scale, kinds=dict.fromkeys(names, kind)
    )
    checkpoint = open_checkpoint(path)
    for name in names:
        tensor = checkpoint.tensors[name]
        assert tensor.format == storage
        assert tensor.data.tobytes() == tensors[name].tobytes()
        expected = gguf.quants.dequantize(tensors[name].copy(), kind)
        np.testing.assert_array_equal(tensor.to_float32(), expected)


def test_halves_order_undoes_the_converter() -> None:
    rows = np.arange(HEADS * HEAD_DIM)
    permuted = llama_cpp_permute(rows, HEADS)
    np.testing.assert_array_equal(permuted[halves_order(HEADS, HEAD_DIM)], rows)


def test_transformers_reads_the_same_values(tmp_path: Path) -> None:
    utils = pytest.importorskip("transformers.modeling_gguf_pytorch_utils")
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    path = write_gguf(tmp_path / "m.gguf")
    config = utils.load_gguf_checkpoint(str(path))["config"]
    with torch.device("meta"):
        model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**config))
    theirs = utils.load_gguf_checkpoint(str(path), return_tensors=True, model_to_load=model)
    checkpoint = open_checkpoint(path)
    assert theirs["tensors"].keys() == checkpoint.tensors.keys()
    for name, tensor in checkpoint.tensors.items():
        np.testing.assert_array_equal(tensor.to_float32(), theirs["tensors"][name].numpy())


def test_biases_of_q_and_k_are_put_in_order_too(tmp_path: Path) -> None:
    tensors = hf_tensors()
    for layer in range(LAYERS):
        for part, rows in {"q": HEADS, "k": KV_HEADS, "v": KV_HEADS, "o": HEADS}.items():
            bias = np.arange(rows * HEAD_DIM, dtype=np.float32)
            tensors[f"model.layers.{layer}.self_attn.{part}_proj.bias"] = bias
    checkpoint = open_checkpoint(write_gguf(tmp_path / "m.gguf", tensors=tensors))
    assert checkpoint.config.attention_bias
    assert checkpoint.config.attention_output_bias
    for name, array in tensors.items():
        np.testing.assert_array_equal(checkpoint.tensors[name].to_float32(), array)


@pytest.mark.parametrize("architecture", ["qwen2", "qwen3"])
def test_qwen_rows_stay_where_they_are(architecture: str, tmp_path: Path) -> None:
    tensors = hf_tensors()
    del tensors["lm_head.weight"]
    for layer in range(LAYERS):
        prefix = f"model.layers.{layer}.self_attn."
        if architecture == "qwen3":
            tensors[prefix + "q_norm.weight"] = np.ones(HEAD_DIM, np.float32)
            tensors[prefix + "k_norm.weight"] = np.ones(HEAD_DIM, np.float32)
        else:
            for part, rows in {"q": HEADS, "k": KV_HEADS, "v": KV_HEADS}.items():
                bias = np.arange(rows * HEAD_DIM, dtype=np.float32)
                tensors[f"{prefix}{part}_proj.bias"] = bias
    path = write_gguf(tmp_path / "m.gguf", architecture=architecture, tensors=tensors)
    checkpoint = open_checkpoint(path)
    assert checkpoint.config.architecture == architecture
    assert checkpoint.config.tie_word_embeddings
    assert checkpoint.config.attention_bias == (architecture == "qwen2")
    assert checkpoint.config.qk_norm == (architecture == "qwen3")
    assert checkpoint.tensors.keys() == tensors.keys()
    for name, array in tensors.items():
        np.testing.assert_array_equal(checkpoint.tensors[name].to_float32(), array)


def test_rope_scaling(tmp_path: Path) -> None:
    def scaling(fields: dict[str, Any], tensors: Arrays | None = None) -> object:
        path = write_gguf(tmp_path / "m.gguf", fields=fields, tensors=tensors)
        return open_checkpoint(path).config.rope_scaling

    linear = {"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 4.0}
    assert scaling(linear) == LinearRopeScaling(factor=4.0)
    assert scaling({"llama.rope.scale_linear": 2.0}) == LinearRopeScaling(factor=2.0)
    assert scaling({"llama.rope.scaling.type": "none"}) is None
    factors = np.linspace(1, 32, HEAD_DIM // 2, dtype=np.float32)
    with_factors = hf_tensors() | {"rope_freqs.weight": factors}
    assert scaling({}, with_factors) == RopeFrequencyFactors(factors=tuple(factors.tolist()))
    with pytest.raises(ModelError, match="beside linear"):
        scaling(linear, with_factors)
    with pytest.raises(ModelError, match="wrong shape"):
        scaling({}, with_factors | {"rope_freqs.weight": factors[:-1]})
    with pytest.raises(ModelError, match="not above zero"):
        scaling({}, with_factors | {"rope_freqs.weight": factors - 1})


@pytest.mark.parametrize(
    ("texts", "ends"),
    [
        (["<end_of_turn>", "</s>", "<|return|>"], [0, 1, 2]),
        (["<|end|>", "<|return|>", "<|fim_pad|>"], [0, 1]),
        (["<|end|>", "<|return|>", "<|call|>"], [1, 2]),
        (["<|end|>", "<|flush|>", "<|calls|>"], [1, 2]),
    ],
)
def test_control_tokens_that_end_by_their_name(
    texts: list[str], ends: list[int], tmp_path: Path
) -> None:
    fields: dict[str, Any] = {
        "tokenizer.ggml.tokens": [*TOKENS[:-3], *texts],
        "tokenizer.ggml.token_type": [1] * (VOCAB - 3) + [3] * 3,
    }
    checkpoint = open_checkpoint(write_gguf(tmp_path / "m.gguf", fields=fields))
    assert checkpoint.eos_token_ids == (2, *(VOCAB - 3 + end for end in ends))


def test_text_assets_and_end_ids(tmp_path: Path) -> None:
    tokens = [*TOKENS[:-3], "<|eot_id|>", "<|im_end|>", "<|endoftext|>"]
    fields: dict[str, Any] = {
        "tokenizer.ggml.tokens": tokens,
        # Only control tokens count: a text token that looks like one is text.
        "tokenizer.ggml.token_type": [1] * (VOCAB - 3) + [3, 1, 3],
        "tokenizer.ggml.eot_token_id": 7,
        "tokenizer.chat_template": "{{ messages }}",
        "general.sampling.temp": 0.5,
        "general.sampling.top_k": 20,
    }
    checkpoint = open_checkpoint(write_gguf(tmp_path / "m.gguf", fields=fields))
    assert checkpoint.eos_token_ids == (2, 7, VOCAB - 3, VOCAB - 1)
    assert checkpoint.generation_config == {"temperature": 0.5, "top_k": 20}
    assets = checkpoint.tokenizer
    assert assets.chat_template == "{{ messages }}"
    assert assets.tokenizer_json is None
    assert assets.gguf_metadata is not None
    assert assets.gguf_metadata["tokenizer.ggml.tokens"] == tokens
    plain = open_checkpoint(write_gguf(tmp_path / "n.gguf"))
    assert plain.tokenizer.chat_template is None
    assert plain.eos_token_ids == (2,)


def test_heads_for_each_layer_and_windows(tmp_path: Path) -> None:
    def config(fields: dict[str, Any]) -> Any:
        return open_checkpoint(write_gguf(tmp_path / "m.gguf", fields=fields)).config

    assert config({"llama.attention.head_count_kv": [KV_HEADS] * LAYERS}).num_kv_heads == KV_HEADS
    assert config({"llama.attention.sliding_window": 100}).sliding_window == 100
    assert config({"llama.attention.sliding_window": 512}).sliding_window is None


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({"general.type": "adapter"}, "general.type is 'adapter'"),
        ({"split.count": 3}, "one of 3 split files"),
        ({"llama.expert_count": 8}, "llama.expert_count is 8"),
        ({"llama.rope.scaling.type": "yarn"}, "is 'yarn'"),
        ({"llama.rope.dimension_count": 8}, "only 16"),
        ({"llama.attention.value_length": 8}, "only 16"),
        ({"llama.attention.head_count_kv": [2, 1]}, "differs between layers"),
        ({"llama.attention.head_count_kv": 3}, "can't share"),
        ({"llama.attention.head_count": ...}, "llama.attention.head_count is missing"),
        ({"llama.attention.head_count": "4"}, "must be an integer"),
        ({"llama.attention.head_count": 8}, "does not hold 2 heads of 8"),
        (
            {
                "llama.attention.head_count": 2**30,
                "llama.attention.head_count_kv": 2**30,
                "llama.attention.key_length": 2**30,
                "llama.attention.value_length": 2**30,
            },
            f"does not hold {2**30} heads",
        ),
        ({"llama.attention.head_count": 128}, "head_dim 0"),
        ({"llama.block_count": 3}, "model.layers.2.input_layernorm.weight is missing"),
        ({"llama.block_count": 1}, "does not use, such as 'model.layers.1."),
        ({"llama.block_count": 2**31}, "out of range"),
        ({"llama.feed_forward_length": 64}, "mlp.gate_proj.weight has shape"),
        ({"llama.logit_scale": 0.5}, "llama.logit_scale"),
        ({"llama.attention.layer_norm_rms_epsilon": float("nan")}, "must be a finite number"),
        ({"tokenizer.ggml.tokens": ...}, "tokenizer.ggml.tokens is missing"),
        ({"tokenizer.ggml.tokens": [1, 2]}, "tokenizer.ggml.tokens is missing"),
        ({"tokenizer.ggml.tokens": ["a"] * 49}, "has only 48 rows"),
        ({"tokenizer.ggml.token_type": "x"}, "token list is damaged"),
        ({"tokenizer.ggml.eos_token_id": "x"}, "must be a token id"),
    ],
)
def test_metadata_that_can_not_be_served_are_refused(
    fields: dict[str, Any], complaint: str, tmp_path: Path
) -> None:
    assert complaint in refusal(write_gguf(tmp_path / "m.gguf", fields=fields))


def test_architectures_and_tensors_that_are_not_known_are_refused(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "g.gguf", architecture="gemma3")
    assert "general.architecture is 'gemma3'" in refusal(path)
    tensors = hf_tensors()
    del tensors["model.norm.weight"]
    path = write_gguf(tmp_path / "m.gguf", tensors=tensors)
    assert "model.norm.weight is missing" in refusal(path)
    del tensors["model.embed_tokens.weight"]
    path = write_gguf(tmp_path / "m.gguf", tensors=tensors)
    assert "token_embd.weight is missing" in refusal(path)
    extra = hf_tensors() | {"model.layers.0.self_attn.q_norm.weight": np.ones(16, np.float32)}
    assert "q_norm" in refusal(write_gguf(tmp_path / "m.gguf", tensors=extra))


def test_a_model_cut_off_anywhere_is_refused(tmp_path: Path) -> None:
    whole = write_gguf(tmp_path / "m.gguf").read_bytes()
    header = whole.index(hf_tensors()["model.embed_tokens.weight"].tobytes())
    lengths = {*range(0, header, 37), *range(header, len(whole) - 32, len(whole) // 50)}
    for length in sorted(lengths):
        (tmp_path / "cut.gguf").write_bytes(whole[:length])
        refusal(tmp_path / "cut.gguf")


def test_damaged_headers_of_a_whole_model_raise_only_model_errors(tmp_path: Path) -> None:
    whole = write_gguf(tmp_path / "m.gguf").read_bytes()
    header = whole.index(hf_tensors()["model.embed_tokens.weight"].tobytes())
    rng = np.random.default_rng(7)
    opened = 0
    for _ in range(400):
        damaged = bytearray(whole)
        for at in rng.integers(0, header, 3):
            damaged[at] = rng.integers(0, 256)
        (tmp_path / "d.gguf").write_bytes(damaged)
        try:
            open_checkpoint(tmp_path / "d.gguf")
            opened += 1
        except ModelError as error:
            assert "\n" not in str(error)  # noqa: PT017 - most are refused, some are harmless
    assert opened < 400


def test_the_default_model_opens() -> None:
    default = list_models()[0]
    if not default.cached:
        pytest.skip(f"{default.name} is not in the cache ({default.path})")
    checkpoint = open_checkpoint(default.path)
    assert (checkpoint.config.num_layers, checkpoint.config.hidden_size) == (30, 576)
    assert checkpoint.config.tie_word_embeddings
    assert checkpoint.eos_token_ids == (0, 2)
    assert len(checkpoint.tensors) == 272
    norm = checkpoint.tensors["model.norm.weight"].to_float32()
    assert np.isfinite(norm).all()
