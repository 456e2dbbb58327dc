"""Opens a Hugging Face directory: ``config.json``, safetensors, tokenizer and chat template."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from headway.errors import ModelError
from headway.models.checkpoint import Checkpoint, StoredTensor, TokenizerAssets
from headway.models.config import ModelConfig
from headway.models.dummy import dummy_tensors, stated_format
from headway.models.fields import (
    Fields,
    parse_json_object,
    read_bytes,
    read_json_object,
    read_optional_json_object,
    shown,
)
from headway.models.hf_config import parse_config
from headway.models.safetensors_file import open_safetensors, open_shards
from headway.models.tensors import MappedTensor

_Weights = Callable[[ModelConfig, Fields], Mapping[str, StoredTensor]]


def open_directory(path: Path) -> Checkpoint:
    """Open the directory; raises ModelError that names the file at fault."""
    return _open(path, lambda _config, _fields: _tensors(path))


def open_without_weights(path: Path, storage: str | None) -> Checkpoint:
    """Open all but the weights, and take random ones in this storage format.

    ``storage`` None is what ``config.json`` states. Raises ModelError as :func:`open_directory`.
    """
    return _open(
        path, lambda config, fields: dummy_tensors(config, storage or stated_format(fields))
    )


def _open(path: Path, weights: _Weights) -> Checkpoint:
    config_path = path / "config.json"
    if not config_path.exists():
        raise ModelError(f"{path}: no model here: the directory has no config.json")
    fields = Fields(config_path, read_json_object(config_path))
    config = parse_config(fields)
    tokenizer = _tokenizer_assets(path)
    generation = Fields(
        path / "generation_config.json", read_optional_json_object(path / "generation_config.json")
    )
    eos = {
        *generation.token_ids("eos_token_id", config.vocab_size),
        *fields.token_ids("eos_token_id", config.vocab_size),
        *_tokenizer_eos(tokenizer, path / "tokenizer.json"),
    }
    return Checkpoint(
        path=path,
        config=config,
        tensors=weights(config, fields),
        tokenizer=tokenizer,
        generation_config=generation.values,
        eos_token_ids=tuple(sorted(eos)),
    )


def _tensors(path: Path) -> dict[str, MappedTensor]:
    index, single = path / "model.safetensors.index.json", path / "model.safetensors"
    if index.exists():
        tensors = open_shards(index)
    elif single.exists():
        tensors = open_safetensors(single)
    elif any(path.glob("*.bin")):
        raise ModelError(
            f"{path}: holds only pickled weights (*.bin), which can run code when opened; "
            "convert them to safetensors"
        )
    else:
        raise ModelError(f"{path}: has neither model.safetensors nor its index")
    # Old checkpoints store the rotary frequencies, which follow from the configuration.
    return {n: t for n, t in tensors.items() if not n.endswith(".rotary_emb.inv_freq")}


def _tokenizer_assets(path: Path) -> TokenizerAssets:
    tokenizer_json = path / "tokenizer.json"
    if not tokenizer_json.exists():
        raise ModelError(
            f"{path}: has no tokenizer.json; save one with transformers' fast tokenizer"
        )
    config_path = path / "tokenizer_config.json"
    tokenizer_config = read_optional_json_object(config_path)
    return TokenizerAssets(
        tokenizer_json=read_bytes(tokenizer_json),
        tokenizer_config=tokenizer_config,
        chat_template=_chat_template(path, tokenizer_config),
    )


def _chat_template(path: Path, tokenizer_config: Mapping[str, Any]) -> str | None:
    """Return the template; its own file wins, as in ``transformers``, then the default one."""
    file = path / "chat_template.jinja"
    if file.exists():
        try:
            return read_bytes(file).decode("utf-8")
        except UnicodeDecodeError as error:
            raise ModelError(f"{file}: not UTF-8 text") from error
    template = tokenizer_config.get("chat_template")
    if template is None:
        return None
    if isinstance(template, str):
        return template
    named = _named_templates(template, path / "tokenizer_config.json")
    return named.get("default")


def _named_templates(template: Any, path: Path) -> dict[str, str]:
    entries = template if isinstance(template, list) else [template]
    named: dict[str, str] = {}
    for entry in entries:
        fields = Fields(path, entry if isinstance(entry, dict) else {})
        named[fields.string("name")] = fields.string("template")
    return named


def _tokenizer_eos(assets: TokenizerAssets, path: Path) -> tuple[int, ...]:
    """Return the id of the tokenizer's ``eos_token``, which its config gives as text."""
    token = assets.tokenizer_config.get("eos_token")
    if isinstance(token, dict):
        token = token.get("content")
    if token is None or assets.tokenizer_json is None:
        return ()
    if not isinstance(token, str):
        raise ModelError(f"{path.parent / 'tokenizer_config.json'}: eos_token is {shown(token)}")
    ids = _token_ids(parse_json_object(assets.tokenizer_json, path))
    return (ids[token],) if token in ids else ()


def _token_ids(tokenizer: Mapping[str, Any]) -> dict[str, int]:
    """Return ids by text from the content of tokenizer.json; added tokens win."""
    model, added = tokenizer.get("model"), tokenizer.get("added_tokens")
    vocab = model.get("vocab") if isinstance(model, dict) else None
    ids: dict[str, int] = {}
    if isinstance(vocab, dict):  # BPE, WordPiece, WordLevel
        ids.update(vocab)
    elif isinstance(vocab, list):  # Unigram: pairs of text and score
        ids.update((pair[0], i) for i, pair in enumerate(vocab) if isinstance(pair, list) and pair)
    for token in added if isinstance(added, list) else ():
        if isinstance(token, dict):
            ids[str(token.get("content"))] = token.get("id", -1)
    return {text: i for text, i in ids.items() if isinstance(text, str) and isinstance(i, int)}
