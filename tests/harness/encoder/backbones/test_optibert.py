"""OptiBERT from a checkpoint of Meta Lingua, against the architecture written out by hand.

No checkpoint is public. The reference follows paper appendix A and Lingua's own modules (transformer.py
at 437d680e521873bb5971067148a69587790da853), in float64, one text at a time.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

import tiny
from harness.core.encoding import Settings
from harness.core.errors import ModelError
from harness.core.types import Artifact
from harness.encoder import backbones
from harness.encoder.backbones.optibert import convert
from harness.encoder.folder.description import compute_folder_identity, describe
from harness.encoder.loading import load_encoder
from harness.encoder.network.model import load_network
from harness.encoder.resolved_encoding import resolve_encoding
from tiny_networks import batch, texts

WIDTH, LAYERS, HEADS, KEYS, EACH, VOCABULARY, LENGTH = 32, 3, 4, 2, 8, 160, 24
ARGUMENTS = {
    **{"dim": WIDTH, "n_layers": LAYERS, "n_heads": HEADS, "n_kv_heads": KEYS, "head_dim": None},
    **{"vocab_size": VOCABULARY, "max_seqlen": LENGTH, "norm_eps": 1e-5, "rope_theta": 10_000.0},
    **{"multiple_of": 16, "ffn_dim_multiplier": None, "weight_tying": False, "sliding_window": None},
    **{"init_base_std": None, "init_std_factor": "disabled", "seed": 42},
}

Array = NDArray[np.float64]


def lingua_state() -> dict[str, torch.Tensor]:
    """Tensors of random values under the names, and in the shapes, of Lingua's LMTransformer."""
    inner = 96  # two thirds of 4 x 32, up to a multiple of 16
    drawn = torch.Generator().manual_seed(0)

    def tensor(*size: int) -> torch.Tensor:
        return torch.randn(*size, generator=drawn) * (0.4 if len(size) > 1 else 0.2) + (len(size) == 1)

    state = {
        "tok_embeddings.weight": tensor(VOCABULARY, WIDTH),
        "embedding_norm.weight": tensor(WIDTH),
        "norm.weight": tensor(WIDTH),
        "output.weight": tensor(VOCABULARY, WIDTH),
    }
    for n in range(LAYERS):
        state |= {
            f"layers.{n}.attention.wq.weight": tensor(HEADS * EACH, WIDTH),
            f"layers.{n}.attention.wk.weight": tensor(KEYS * EACH, WIDTH),
            f"layers.{n}.attention.wv.weight": tensor(KEYS * EACH, WIDTH),
            f"layers.{n}.attention.wo.weight": tensor(WIDTH, HEADS * EACH),
            f"layers.{n}.feed_forward.w1.weight": tensor(inner, WIDTH),
            f"layers.{n}.feed_forward.w3.weight": tensor(inner, WIDTH),
            f"layers.{n}.feed_forward.w2.weight": tensor(WIDTH, inner),
            f"layers.{n}.attention_norm.weight": tensor(WIDTH),
            f"layers.{n}.ffn_norm.weight": tensor(WIDTH),
        }
    return state


def reference(weights: dict[str, Array], ids: list[int]) -> Array:
    """The vector of each token of one text: (tokens, width)."""
    x = _rms(weights["tok_embeddings"][ids], weights["embedding_norm"])
    for n in range(LAYERS):
        of = {name.removeprefix(f"layers.{n}."): w for name, w in weights.items()}
        x = x + _attention(_rms(x, of["attention_norm"]), of)
        y = _rms(x, of["ffn_norm"])
        gate = y @ of["feed_forward.w1"].T
        gated = gate / (1 + np.exp(-gate)) * (y @ of["feed_forward.w3"].T)
        x = x + gated @ of["feed_forward.w2"].T
    return _rms(x, weights["norm"])


def _rms(x: Array, weight: Array) -> Array:
    return x / np.sqrt((x**2).mean(axis=-1, keepdims=True) + 1e-5) * weight


def _attention(x: Array, of: dict[str, Array]) -> Array:
    heads = []
    for head in range(HEADS):
        own = slice(head * EACH, (head + 1) * EACH)
        shared = slice(head // (HEADS // KEYS) * EACH, (head // (HEADS // KEYS) + 1) * EACH)
        query = _turned(x @ of["attention.wq"][own].T)
        key = _turned(x @ of["attention.wk"][shared].T)
        scores = np.exp(query @ key.T / math.sqrt(EACH))
        weights = scores / scores.sum(axis=1, keepdims=True)
        heads.append(weights @ (x @ of["attention.wv"][shared].T))
    return np.concatenate(heads, axis=1) @ of["attention.wo"].T


def _turned(x: Array) -> Array:
    """Each pair of neighbouring dimensions as a complex number, turned by its position."""
    pairs = x[:, ::2] + 1j * x[:, 1::2]
    angles = np.arange(len(x))[:, None] / 10_000.0 ** (np.arange(0, EACH, 2) / EACH)
    turned = pairs * np.exp(1j * angles)
    return np.stack([turned.real, turned.imag], axis=-1).reshape(x.shape)


@pytest.fixture
def lingua(tmp_path: Path) -> Path:
    return consolidated(tmp_path / "consolidated", lingua_state())


def consolidated(folder: Path, state: dict[str, Any], **arguments: Any) -> Path:
    """What Lingua's consolidate_checkpoints leaves, optimizer and all, with a tokenizer beside it."""
    folder.mkdir()
    params = {"name": "encoder", "steps": 10, "model": {**ARGUMENTS, **arguments}, "optim": {"lr": 1e-3}}
    (folder / "params.json").write_text(json.dumps(params))
    optimizer = {"state": {"norm.weight": {"exp_avg": torch.zeros(WIDTH)}}, "param_groups": [{"lr": 0.1}]}
    torch.save({"model": state, "optim": optimizer}, folder / "consolidated.pth")
    tiny.tokenizer().save_pretrained(folder)
    return folder


def network(folder: Path, **options: Any) -> Any:
    family = backbones.list_backbones()["optibert"].family
    return load_network(folder, family, dtype=torch.float32, **options)


def test_the_last_hidden_state_and_the_head_are_those_of_the_paper(lingua: Path, tmp_path: Path) -> None:
    convert(lingua, tmp_path / "model")
    state = {name.removesuffix(".weight"): t.double().numpy() for name, t in lingua_state().items()}
    given = texts((LENGTH, 5, 1), 1)
    padded = batch(given, 1)
    with torch.no_grad():
        hidden = network(tmp_path / "model").model(**padded).last_hidden_state
        logits = network(tmp_path / "model", head=True).model(**padded).logits
    for row, ids in enumerate(given):
        expected = reference(state, ids.tolist())
        assert expected.std() > 0.1
        assert np.abs(hidden[row, : len(ids)].numpy() - expected).max() <= 1e-4
        assert np.abs(logits[row, : len(ids)].numpy() - expected @ state["output"].T).max() <= 1e-4


def test_the_converted_folder_runs_as_a_model(lingua: Path, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    convert(lingua, folder)
    key, weights, _ = compute_folder_identity(folder)
    artifact = Artifact(name="tiny", source=str(folder), folder=folder, key=key, weights=weights)
    found = load_encoder(artifact, resolve_encoding(describe(folder), Settings()), device="cpu")
    assert found.encode(["the cat sat on the mat", "a"]).shape == (2, WIDTH)
    assert describe(folder).position_limit == LENGTH


def test_a_tied_head_is_the_token_embedding(tmp_path: Path) -> None:
    state = lingua_state()
    state["output.tied_module.weight"] = state["tok_embeddings.weight"]
    del state["output.weight"]
    convert(consolidated(tmp_path / "tied", state, weight_tying=True), tmp_path / "model")
    model = network(tmp_path / "model", head=True).model
    assert model.head.decoder.weight is model.encoder.embeddings.tokens.weight
    assert model.encoder.embeddings.tokens.weight.equal(state["tok_embeddings.weight"])


def test_a_checkpoint_of_another_model_of_linguas_is_none_of_optiberts(tmp_path: Path) -> None:
    state = lingua_state()
    del state["embedding_norm.weight"]
    convert(consolidated(tmp_path / "llama", state), tmp_path / "model")
    with pytest.raises(ModelError, match=r"are in no file: embedding_norm\.weight\."):
        network(tmp_path / "model")
    assert backbones.find_family({"model_type": "optibert", **ARGUMENTS, "sliding_window": 512}) is None


@pytest.mark.parametrize("width", [256, 512, 768, 1024, 1088])
def test_the_feed_forward_width_is_that_of_equation_8(width: int) -> None:
    family = backbones.list_backbones()["optibert"].family
    assert family is not None
    config = {"dim": width, "n_heads": 8, "n_layers": 1, "vocab_size": 100}
    assert family.architecture(config).intermediate_size == 256 * math.ceil(2 / 3 * 4 * width / 256)
    other = family.architecture({**config, "multiple_of": 32, "ffn_dim_multiplier": 1.5})
    assert other.intermediate_size % 32 == 0


def test_optibert_neo_has_198_million_parameters_beside_the_embedding() -> None:
    family = backbones.list_backbones()["optibert"].family
    assert family is not None
    with torch.device("meta"):
        model = tiny.build(family.sizes["optibert-neo"], family)
    beside = sum(p.numel() for name, p in model.named_parameters() if name != "embeddings.tokens.weight")
    assert beside / 1e6 == pytest.approx(198, abs=0.5)
