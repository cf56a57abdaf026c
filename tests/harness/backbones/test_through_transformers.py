"""The families that run through transformers' own class: the right one, pooled and masked rightly."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

import tiny
from harness import backbones
from harness.encoder.content import content_key
from harness.encoder.describe import describe, resolve_encoding
from harness.encoder.engine import Encoder
from harness.encoder.loading import load
from harness.errors import ModelError, UsageError
from harness.types import Artifact, Settings

pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.script`:DeprecationWarning")  # DeBERTa

TEXTS = ["the cat sat on the mat", "a", "query: mat, mat and mat again!", "on"]

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
    family = backbones.entries()[name].family
    assert family is not None
    content = {**tiny.config(family, initializer_range=0.3, **changes), "max_position_embeddings": 64}
    torch.manual_seed(0)
    AutoModel.from_config(CONFIG_MAPPING[content["model_type"]].from_dict(content)).save_pretrained(tmp_path)
    tiny.tokenizer().save_pretrained(tmp_path)
    return tmp_path


def encoder(folder: Path, **settings: Any) -> Encoder:
    key, weights = content_key(folder)
    artifact = Artifact(name="tiny", source=str(folder), folder=folder, key=key, weights=weights)
    return load(artifact, resolve_encoding(describe(folder), Settings(**settings)), device="cpu")


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


def test_its_class_is_that_of_transformers(kind: str, folder: Path) -> None:
    found = encoder(folder).model[0].auto_model
    assert type(found).__name__ == KINDS[kind][1]
    assert type(found).__module__.startswith("transformers.models.")


def test_its_vectors_are_means_over_the_tokens(folder: Path) -> None:
    expected = np.stack([alone(folder, text).mean(axis=0) for text in TEXTS])
    got = encoder(folder)
    assert np.abs(got.encode(TEXTS) - expected).max() <= 1e-5
    assert np.abs(got.encode_batch(TEXTS) - expected).max() <= 1e-5, "padding counts"


@pytest.mark.parametrize(("pooling", "token"), [("cls", 0), ("lasttoken", -1)])
def test_another_pooling_takes_the_place_of_the_mean(folder: Path, pooling: str, token: int) -> None:
    expected = np.stack([alone(folder, text)[token] for text in TEXTS])
    assert np.abs(encoder(folder, pooling=pooling).encode_batch(TEXTS) - expected).max() <= 1e-5


def test_its_first_token_sees_what_follows_unless_it_is_a_decoder(kind: str, folder: Path) -> None:
    first, other = encoder(folder, pooling="cls").encode(["the cat sat", "the mat sat"])
    assert (np.abs(first - other).max() <= 1e-6) == (kind == "pythia")


def test_pythias_tokenizer_names_no_padding(folder: Path, kind: str) -> None:
    from transformers import PreTrainedTokenizerFast

    before = encoder(folder).encode_batch(TEXTS)
    raw = tiny.tokenizer().backend_tokenizer
    bare: Any = PreTrainedTokenizerFast(tokenizer_object=raw, unk_token="[UNK]", eos_token="[SEP]")
    bare.save_pretrained(folder)
    if kind == "pythia":
        assert np.abs(encoder(folder).encode_batch(TEXTS) - before).max() <= 1e-5
    else:
        with pytest.raises(ModelError, match="has no padding token"):
            encoder(folder)


def test_only_deberta_needs_float32(kind: str, folder: Path) -> None:
    if kind == "pythia":
        assert encoder(folder, dtype="bfloat16").dtype_as_run == "bfloat16"
    else:
        with pytest.raises(UsageError, match="is not run in bfloat16: the scores of disentangled attention"):
            encoder(folder, dtype="bfloat16")


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

    sizes = {n: c for e in backbones.entries().values() if e.family for n, c in e.family.sizes.items()}
    config = CONFIG_MAPPING[sizes[size]["model_type"]].from_dict(dict(sizes[size]))
    with torch.device("meta"):
        model = (AutoModelForCausalLM if "pythia" in size else AutoModel).from_config(config)
    assert sum(p.numel() for p in model.parameters()) / 1e6 == pytest.approx(millions, rel=0.01)
