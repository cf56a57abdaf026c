"""Families of encoders made tiny: their configs, and folders as their authors would publish them."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.encoder import backbones
from harness.encoder.architecture import Architecture, Config, Family

if TYPE_CHECKING:
    from harness.encoder.network.model import EncoderModel

SMALL: dict[str, Any] = {
    "vocab_size": 160,
    "hidden_size": 32,
    "n_embd": 32,
    "dim": 32,
    "num_hidden_layers": 3,
    "n_layer": 3,
    "n_layers": 3,
    "num_attention_heads": 4,
    "n_head": 4,
    "n_heads": 4,
    "num_key_value_heads": 4,
    "intermediate_size": 48,
    "n_inner": 48,
    "hidden_dim": 48,
    "pad_vocab_size_multiple": 1,
}
"""The fields that make a config large, under every name they have."""

WORDS = ("river", "stone", "cloud", "engine", "letter", "garden", "music", "winter", "copper", "silver")

TOKENS: dict[str, Any] = {
    "pad_token_id": 0,
    "bos_token_id": 2,
    "cls_token_id": 2,
    "sep_token_id": 3,
    "eos_token_id": 3,
    "mask_token_id": 4,
}
"""Special tokens as in the tokenizer of `folder`."""

DROPOUTS = ("dropout", "_prob", "_pdrop")


def families() -> dict[str, Family]:
    """Every family of the catalog that runs through our network and has a published form."""
    return {
        name: entry.family
        for name, entry in backbones.list_backbones().items()
        if entry.family is not None and entry.family.shape is not None and entry.family.names is not None
    }


def config(family: Family, **changes: Any) -> dict[str, Any]:
    """The first of a family's sizes, made tiny, with no dropout."""
    first: Config = next(iter(family.sizes.values()))
    named = {name: SMALL[name] for name in first if name in SMALL}
    full = {**first, **named, **_tokens(first), **_positions(first), **changes}
    return {name: 0.0 if name.endswith(DROPOUTS) else value for name, value in full.items()}


def read_config(content: Mapping[str, Any], family: Family) -> tuple[Any, Architecture]:
    """The config and the architecture of a network, of a folder that holds this config.json alone."""
    from harness.encoder.network.model import resolve_network_config

    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "config.json").write_text(json.dumps(dict(content)))
        config, shape = resolve_network_config(Path(folder), family)
    config.name_or_path = ""
    return config, shape


def build(content: Mapping[str, Any], family: Family, *, head: bool = False) -> Any:
    """The network of a config.json, its weights drawn as transformers draws them."""
    from harness.encoder.network.model import EncoderForMaskedLM, EncoderModel
    from harness.encoder.network.pretrained import Published

    config, shape = read_config(content, family)
    published = None
    if family.native and family.names is not None:
        published = Published(names=family.names, with_head=head)
    return (EncoderForMaskedLM if head else EncoderModel)(config, shape, published)


def network(family: Family, *, seed: int = 0, head: bool = False, **changes: Any) -> EncoderModel:
    """A tiny network of a family with weights drawn widely enough that every part matters."""
    import torch

    torch.manual_seed(seed)
    model = build(config(family, **changes), family, head=head)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.3) if parameter.dim() > 1 else parameter.add_(
                torch.randn_like(parameter) * 0.1
            )
    model.tie_weights()
    found: EncoderModel = model.eval()
    return found


def folder(family: Family, target: Path, *, seed: int = 0, head: bool = False, **changes: Any) -> Path:
    """A folder with config.json, weights under the published names, and a WordPiece tokenizer."""
    model = network(family, seed=seed, head=head, **changes)
    save(model, config(family, **changes), family, target, head=head)
    tokenizer().save_pretrained(target)
    return target


def save(
    model: EncoderModel, content: Mapping[str, Any], family: Family, target: Path, *, head: bool = False
) -> None:
    """Write a config.json, and the weights of a network under their published names."""
    from safetensors.torch import save_file

    assert family.names is not None
    tied = {"head.decoder.weight"} if model.shape.tie_word_embeddings else set()
    tensors = {name: tensor for name, tensor in model.state_dict().items() if name not in tied}
    published = {family.names.theirs(n, with_head=head): t.contiguous() for n, t in tensors.items()}
    target.mkdir(parents=True, exist_ok=True)
    (target / "config.json").write_text(json.dumps(content))
    save_file(published, target / "model.safetensors", metadata={"format": "pt"})


def tokenizer() -> Any:
    """A WordPiece tokenizer of single characters and a few words, with the usual special tokens."""
    from transformers import BertTokenizer

    letters = "abcdefghijklmnopqrstuvwxyz0123456789.,:;!?'-"
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat", "sat", "on", "mat", "query"]
    vocabulary = {
        word: at for at, word in enumerate([*words, *letters, *(f"##{letter}" for letter in letters)])
    }
    return BertTokenizer(vocab=vocabulary)


def _tokens(first: Config) -> dict[str, Any]:
    return {name: value for name, value in TOKENS.items() if name in first or name == "pad_token_id"}


def _positions(first: Config) -> dict[str, Any]:
    named = next((n for n in ("n_positions", "max_length", "max_position_embeddings") if n in first), None)
    return {named or "max_position_embeddings": 64}


def library(folder: Path) -> Any:
    """The folder as sentence-transformers loads it."""
    from sentence_transformers import SentenceTransformer

    # Since 6.0 the library opens modules of ours only so.
    return SentenceTransformer(str(folder), device="cpu", local_files_only=True, trust_remote_code=True)
