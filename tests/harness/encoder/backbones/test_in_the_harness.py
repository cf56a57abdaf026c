"""Every family through the harness's own loading: our network, or the class of transformers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

import tiny
from harness.core.encoding import Settings
from harness.core.errors import ModelError, UsageError
from harness.core.types import Artifact
from harness.encoder import backbones
from harness.encoder.engine import Encoder
from harness.encoder.folder.description import compute_folder_identity, describe
from harness.encoder.loading import load_encoder
from harness.encoder.resolved_encoding import resolve_encoding

# The families that run through transformers' own class: the right one, pooled and masked rightly


deberta_jit = pytest.mark.filterwarnings("ignore:`torch.jit.script`:DeprecationWarning")  # DeBERTa
MATS = ["the cat sat on the mat", "a", "query: mat, mat and mat again!", "on"]
KINDS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "deberta-v3": ("deberta", "DebertaV2Model", {"position_buckets": 8}),
    "deberta": ("deberta", "DebertaModel", {"model_type": "deberta"}),
    "pythia": ("gpt_neox", "GPTNeoXModel", {}),
}


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def folder(kind: str, tmp_path: Path) -> Path:
    """A tiny bare backbone as its authors would publish it."""
    from transformers import CONFIG_MAPPING, AutoModel

    name, _, changes = KINDS[kind]
    family = backbones.list_backbones()[name].family
    assert family is not None
    content = {**tiny.config(family, initializer_range=0.3, **changes), "max_position_embeddings": 64}
    torch.manual_seed(0)
    AutoModel.from_config(CONFIG_MAPPING[content["model_type"]].from_dict(content)).save_pretrained(tmp_path)
    tiny.tokenizer().save_pretrained(tmp_path)
    return tmp_path


def loaded(folder: Path, **settings: Any) -> Encoder:
    key, weights, _ = compute_folder_identity(folder)
    artifact = Artifact(name="tiny", source=str(folder), folder=folder, key=key, weights=weights)
    return load_encoder(artifact, resolve_encoding(describe(folder), Settings(**settings)), device="cpu")


def alone(folder: Path, text: str) -> NDArray[np.float64]:
    """Every vector of a text that is run alone through transformers: (tokens, width)."""
    from transformers import AutoModel, AutoTokenizer

    tokenizer: Any = AutoTokenizer.from_pretrained(folder)
    given = tokenizer(text, return_tensors="pt")
    given.pop("token_type_ids", None)
    with torch.no_grad():
        hidden = AutoModel.from_pretrained(folder).eval()(**given).last_hidden_state
    found: NDArray[np.float64] = hidden[0].double().numpy()
    return found


@deberta_jit
def test_its_class_is_that_of_transformers(kind: str, folder: Path) -> None:
    found = loaded(folder).model[0].auto_model
    assert type(found).__name__ == KINDS[kind][1]
    assert type(found).__module__.startswith("transformers.models.")


@deberta_jit
def test_its_vectors_are_means_over_the_tokens(folder: Path) -> None:
    expected = np.stack([alone(folder, text).mean(axis=0) for text in MATS])
    got = loaded(folder)
    assert np.abs(got.encode(MATS) - expected).max() <= 1e-5
    assert np.abs(got.encode_batch(MATS) - expected).max() <= 1e-5, "padding counts"


@deberta_jit
@pytest.mark.parametrize(("pooling", "token"), [("cls", 0), ("lasttoken", -1)])
def test_another_pooling_takes_the_place_of_the_mean(folder: Path, pooling: str, token: int) -> None:
    expected = np.stack([alone(folder, text)[token] for text in MATS])
    assert np.abs(loaded(folder, pooling=pooling).encode_batch(MATS) - expected).max() <= 1e-5


@deberta_jit
def test_its_first_token_sees_what_follows_unless_it_is_a_decoder(kind: str, folder: Path) -> None:
    first, other = loaded(folder, pooling="cls").encode(["the cat sat", "the mat sat"])
    assert (np.abs(first - other).max() <= 1e-6) == (kind == "pythia")


@deberta_jit
def test_the_end_token_pads_where_no_token_does(folder: Path) -> None:
    from transformers import PreTrainedTokenizerFast

    before = loaded(folder).encode_batch(MATS)
    raw = tiny.tokenizer().backend_tokenizer
    bare: Any = PreTrainedTokenizerFast(tokenizer_object=raw, unk_token="[UNK]", eos_token="[SEP]")
    bare.save_pretrained(folder)
    assert np.abs(loaded(folder).encode_batch(MATS) - before).max() <= 1e-5


@deberta_jit
def test_only_deberta_needs_float32(kind: str, folder: Path) -> None:
    if kind == "pythia":
        assert loaded(folder, dtype="bfloat16").dtype_as_run == "bfloat16"
    else:
        with pytest.raises(UsageError, match="is not run in bfloat16: the scores of disentangled attention"):
            loaded(folder, dtype="bfloat16")


@deberta_jit
@pytest.mark.parametrize(
    ("size", "millions"),
    [
        *{"deberta-v3-base": 184, "deberta-v3-large": 434}.items(),
        *{"pythia-14m": 14.1, "pythia-31m": 30.5, "pythia-70m": 70.4, "pythia-160m": 162.3}.items(),
        *{"pythia-410m": 405.3, "pythia-1b": 1011.8, "pythia-1.4b": 1414.6, "pythia-2.8b": 2775.2}.items(),
    ],
)
def test_a_size_has_as_many_parameters_as_published(size: str, millions: float) -> None:
    """Those of DeBERTa without the head, those of Pythia with it."""
    from transformers import CONFIG_MAPPING, AutoModel, AutoModelForCausalLM

    sizes = {n: c for e in backbones.list_backbones().values() if e.family for n, c in e.family.sizes.items()}
    config = CONFIG_MAPPING[sizes[size]["model_type"]].from_dict(dict(sizes[size]))
    with torch.device("meta"):
        model = (AutoModelForCausalLM if "pythia" in size else AutoModel).from_config(config)
    assert sum(p.numel() for p in model.parameters()) / 1e6 == pytest.approx(millions, rel=0.01)


# A published folder of every family through the harness's own loading: trust, gate, engine


FAMILIES = tiny.families()
OWN_CODE = {
    "nomic_bert": ("org/code--modeling_hf_nomic_bert.NomicBertModel", "org/code--other.Scaled"),
    "gte": ("org/code--modeling.NewModel", "org/code--modeling.MyScaledNewModel"),
    "neobert": ("model.NeoBERT", "model.NormNeoBERT"),
}
TEXTS = ["the cat sat on the mat", "x", "a query: what sat on 42 mats?"]


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
    with pytest.raises(ModelError, match="not one that the family nomic_bert can run"):
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
