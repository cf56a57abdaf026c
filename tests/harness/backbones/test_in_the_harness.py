"""A published folder of every family through the harness's own loading: trust, gate, engine."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import tiny
from harness.encoder.content import content_key
from harness.encoder.describe import describe, resolve_encoding
from harness.encoder.engine import Encoder
from harness.encoder.loading import load
from harness.errors import ModelError
from harness.types import Artifact, Settings

FAMILIES = tiny.families()
OWN_CODE = {
    "nomic_bert": ("org/code--modeling_hf_nomic_bert.NomicBertModel", "org/code--other.Scaled"),
    "gte": ("org/code--modeling.NewModel", "org/code--modeling.MyScaledNewModel"),
    "neobert": ("model.NeoBERT", "model.NormNeoBERT"),
}
TEXTS = ["the cat sat on the mat", "x", "a query: what sat on 42 mats?"]


def loaded(folder: Path) -> Encoder:
    key, weights = content_key(folder)
    artifact = Artifact(name="tiny", source=str(folder), folder=folder, key=key, weights=weights)
    return load(artifact, resolve_encoding(describe(folder), Settings()), device="cpu")


@pytest.mark.parametrize("name", sorted(FAMILIES))
def test_it_loads_and_a_text_has_one_vector(name: str, tmp_path: Path) -> None:
    encoder = loaded(tiny.folder(FAMILIES[name], tmp_path / "published"))
    assert encoder.attention == "sdpa"
    assert encoder.notes == []
    alone = np.concatenate([encoder.encode_batch([text]) for text in TEXTS])
    assert np.abs(encoder.encode_batch(TEXTS) - alone).max() < 1e-5


@pytest.mark.parametrize("name", sorted(OWN_CODE))
def test_only_the_authors_class_is_replaced(name: str, tmp_path: Path) -> None:
    folder = tiny.folder(FAMILIES[name], tmp_path / "published")
    config = json.loads((folder / "config.json").read_text())
    theirs, other = OWN_CODE[name]
    (folder / "config.json").write_text(json.dumps({**config, "auto_map": {"AutoModel": theirs}}))
    assert loaded(folder).dimension == 32
    (folder / "config.json").write_text(json.dumps({**config, "auto_map": {"AutoModel": other}}))
    with pytest.raises(ModelError, match=r"without it, the harness's .* would be evaluated in its place"):
        loaded(folder)


def test_a_length_beyond_rotary_positions_is_cut(tmp_path: Path) -> None:
    folder = tiny.folder(FAMILIES["modernbert"], tmp_path / "published", rope_theta=10_000.0)
    (folder / "modules.json").write_text(
        json.dumps(
            [
                {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
                {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
            ]
        )
    )
    (folder / "1_Pooling").mkdir()
    pooling = {"word_embedding_dimension": 32, "pooling_mode_mean_tokens": True}
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    (folder / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": 200}))
    assert describe(folder).max_length == 64
    encoder = loaded(folder)
    assert np.isfinite(encoder.encode(["cat " * 300])).all()
    assert encoder.notes == ["texts are cut at 64 tokens, not at 200: the positions end there"]


def test_a_variant_that_no_network_computes_is_said_to_be_one(tmp_path: Path) -> None:
    folder = tiny.folder(FAMILIES["nomic_bert"], tmp_path / "published")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "rotary_emb_fraction": 0.5}))
    with pytest.raises(ModelError, match="none that the family nomic_bert computes"):
        loaded(folder)


def test_the_authors_own_code_keeps_its_own_length(tmp_path: Path) -> None:
    """Ours ends where NomicBERT was trained to; theirs goes on."""
    folder = tiny.folder(FAMILIES["nomic_bert"], tmp_path / "published", max_trained_positions=16)
    config = json.loads((folder / "config.json").read_text())
    named = {**config, "auto_map": {"AutoModel": OWN_CODE["nomic_bert"][0]}}
    (folder / "config.json").write_text(json.dumps(named))
    assert describe(folder).position_limit == 16
    theirs = describe(folder, own_code=True)
    assert theirs.position_limit == 64
    assert theirs.lengths[0].table is None
