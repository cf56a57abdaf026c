"""Attentive pooling: the weighted mean that its formula says, as a module that is checked and saved."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sentence_transformers.models import Dense, Normalize, Pooling

import faulty
import tiny
from harness.core.encoding import Settings
from harness.core.errors import ModelError, UsageError
from harness.core.types import Artifact, Dtype
from harness.encoder.attentive_pooling import AttentivePooling
from harness.encoder.folder.description import compute_folder_identity, describe
from harness.encoder.loading import load_encoder
from harness.encoder.resolved_encoding import resolve_encoding
from harness.encoder.sanity import check_encoder, require_sane
from harness.encoder.sentence_transformer import SentenceTransformer, Transformer
from preflights import check_model

FAMILIES = tiny.families()
TEXTS = ["the cat sat on the mat", "a query: what sat?", "x", "the mat, the cat and 42 more words"]
ROOT = Path(__file__).parents[3]


def pooling(size: int, heads: int = 1, *, spread: float = 1.0, **fields: Any) -> AttentivePooling:
    """A pooling whose queries have been learned."""
    torch.manual_seed(5)
    module = AttentivePooling(size, heads, **fields)
    torch.nn.init.normal_(module.query, std=spread)
    return module


def batch(dtype: torch.dtype = torch.float32, *, left: bool = False) -> dict[str, torch.Tensor]:
    """Token vectors of texts of 7, 4 and 1 tokens, with padding that is not zero."""
    torch.manual_seed(6)
    mask = torch.arange(7)[None] < torch.tensor([7, 4, 1])[:, None]
    mask = mask.flip(1) if left else mask
    return {"token_embeddings": torch.randn(3, 7, 12).to(dtype), "attention_mask": mask.long()}


def by_loops(features: dict[str, Any], module: AttentivePooling, prompt: int = 0) -> np.ndarray:
    """The formula in float64, text by text and head by head."""
    query = module.query.detach().double().numpy()
    size = query.shape[1]
    rows = []
    for tokens, mask in zip(features["token_embeddings"], features["attention_mask"], strict=True):
        kept = tokens[mask.bool()].double().numpy()[prompt:]
        row = []
        for head, q in enumerate(query):
            h = kept[:, head * size : (head + 1) * size]
            powers = np.exp(h @ q / np.sqrt(size))
            row.append((powers[:, None] * h).sum(0) / powers.sum() if len(h) else np.zeros(size))
        rows.append(np.concatenate(row))
    return np.array(rows)


@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize("heads", [1, 3, 12])
@pytest.mark.parametrize(("dtype", "bound"), [(torch.float32, 1e-6), (torch.bfloat16, 2e-2)])
def test_vectors_are_those_of_the_formula(left: bool, heads: int, dtype: torch.dtype, bound: float) -> None:
    module, features = pooling(12, heads), batch(dtype, left=left)
    for module.include_prompt, length in ((True, 0), (False, 2), (False, torch.tensor([2, 2, 2]))):
        found = module({**features, "prompt_length": length})["sentence_embedding"]
        assert found.dtype == dtype
        expected = by_loops(features, module, 0 if module.include_prompt else 2)
        assert np.abs(found.detach().double().numpy() - expected).max() <= bound
    assert features["attention_mask"].sum() == 12


@pytest.mark.parametrize("left", [False, True])
def test_it_starts_as_the_mean_of_the_library(left: bool) -> None:
    features = batch(left=left)
    module = AttentivePooling(12, 4)
    found = module(features)["sentence_embedding"]
    mean = Pooling(12, "mean")(dict(features))["sentence_embedding"]
    assert (found - mean).abs().max() <= 1e-6
    found.square().sum().backward()
    assert module.query.grad is not None
    assert (module.query.grad.abs().sum(dim=1) > 1e-3).all()


def test_padding_has_no_part_and_gets_no_gradient() -> None:
    module, features = pooling(12, 3), batch()
    tokens = features["token_embeddings"].requires_grad_()
    pooled = module(features)["sentence_embedding"]
    pooled.square().sum().backward()
    padding = features["attention_mask"] == 0
    assert tokens.grad is not None
    assert not tokens.grad[padding].any()
    alone = {name: value[1:2, :4].detach() for name, value in features.items()}
    assert (module(alone)["sentence_embedding"] - pooled[1:2]).abs().max() <= 1e-6
    # In reduced precision, as a trainer runs it, the sums are in float32 all the same.
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(module(features)["sentence_embedding"], pooled)


def test_heads_divide_the_dimension() -> None:
    for heads in (0, 5):
        with pytest.raises(ValueError, match=f"{heads} heads do not divide 12 dimensions"):
            AttentivePooling(12, heads)


# A model with it, as our trainer saves it


Save = Callable[..., Path]


@pytest.fixture
def save(tmp_path: Path) -> Save:
    """Saves a tiny network with a learned attentive pooling, or another, as a trainer does."""

    def save(family: str = "bert", *further: Any, heads: int = 2, **fields: Any) -> Path:
        backbone = Transformer(str(tiny.folder(FAMILIES[family], tmp_path / "backbone" / family)))
        width = backbone.auto_model.config.hidden_size
        pool = fields.get("pool") or pooling(width, heads, spread=3.0)
        model = SentenceTransformer(modules=[backbone, pool, *further], device="cpu")
        model.save(str(tmp_path / family))
        np.save(tmp_path / "vectors.npy", model.encode(TEXTS))
        return tmp_path / family

    return save


def opened(folder: Path, **settings: Any) -> Any:
    """The model as a run loads it, after the checks before a run."""
    key, weights, _ = compute_folder_identity(folder)
    artifact = Artifact(name="tiny", source="tiny", folder=folder, key=key, weights=weights)
    encoding = resolve_encoding(describe(folder), Settings(**settings))
    check_model(artifact, encoding, any_kind=settings.get("pooling") is not None)
    return load_encoder(artifact, encoding, device="cpu")


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("family", ["bert", "nomic_bert", "modernbert"])
def test_it_is_a_known_module(save: Save, family: str, dtype: Dtype) -> None:
    folder = save(family, Normalize())
    assert describe(folder).pooling == "attention"
    encoder = opened(folder, dtype=dtype)
    require_sane(check_encoder(encoder, lambda: opened(folder, dtype=dtype)))
    bound = 1e-5 if dtype == "float32" else 5e-2
    assert np.abs(encoder.encode(TEXTS) - np.load(folder.parent / "vectors.npy")).max() <= bound


def test_another_pooling_replaces_it_and_it_replaces_none(save: Save) -> None:
    folder = save("bert", Dense(32, 8))
    attention, mean = (opened(folder, pooling=mode) for mode in ("attention", "mean"))
    assert [type(one.model[1]) for one in (attention, mean)] == [AttentivePooling, Pooling]
    assert np.abs(attention.encode(TEXTS) - mean.encode(TEXTS)).max() > 1e-2
    plain = save("modernbert", pool=Pooling(32, "mean"))
    with pytest.raises(UsageError, match="has no attentive pooling") as caught:
        opened(plain, pooling="attention")
    assert "--recipe simcse" in str(caught.value.hint)
    assert "mean" in str(caught.value.hint)


def config(folder: Path, **changes: Any) -> None:
    faulty.rewrite(folder / "1_AttentivePooling" / "config.json", **changes)


def weights(folder: Path, **tensors: torch.Tensor) -> None:
    from safetensors.torch import save_file

    save_file(tensors, folder / "1_AttentivePooling" / "model.safetensors")


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda f: config(f, heads=5), "says 5 heads of a token vector of 32 dimensions"),
        (
            lambda f: config(f, heads=4),
            r"query of \(2, 16\), and its config.json wants .* query of \(4, 8\)",
        ),
        (lambda f: config(f, word_embedding_dimension="32"), "word_embedding_dimension = '32'"),
        (lambda f: weights(f, other=torch.zeros(2, 16)), "has a tensor other of"),
        (lambda f: weights(f, query=torch.zeros(2, 16), more=torch.zeros(1)), r"a tensor more of \(1,\)"),
        (lambda f: (f / "1_AttentivePooling" / "config.json").unlink(), "there is no config.json"),
        (lambda f: (f / "1_AttentivePooling" / "model.safetensors").unlink(), "no weights: neither 1_Att"),
        (lambda f: (f / "1_AttentivePooling" / "model.safetensors").write_bytes(b"x" * 99), "not a whole"),
        (
            lambda f: (config(f, word_embedding_dimension=8), weights(f, query=torch.zeros(2, 4))),
            "pools vectors of 8 dimensions, and its backbone's have 32",
        ),
    ],
)
def test_a_damaged_one_is_named_before_loading(
    save: Save, spoil: Callable[[Path], object], message: str
) -> None:
    folder = save()
    spoil(folder)
    with pytest.raises(ModelError, match=message):
        opened(folder)


def test_the_key_covers_it(save: Save) -> None:
    folder = save()
    before = compute_folder_identity(folder)
    weights(folder, query=torch.ones(2, 16))
    after = compute_folder_identity(folder)
    assert after[0] != before[0]
    assert after[1] != before[1]
    config(folder, include_prompt=False)
    assert compute_folder_identity(folder).key not in (before[0], after[0])


HIDE = (
    "sys.meta_path = [one for one in sys.meta_path if '__editable__' not in getattr(one, '__module__', '')]"
)
"""The installation of this project for development undone."""

ELSEWHERE = """
import importlib.util, sys
{hide}
import numpy, sentence_transformers
model = sentence_transformers.SentenceTransformer(sys.argv[1], device="cpu", local_files_only=True)
numpy.save(sys.argv[2], model.encode({texts!r}))
print(importlib.util.find_spec("harness") is not None)
"""


def elsewhere(folder: Path, place: Path, *, importable: bool) -> np.ndarray:
    """The vectors of a model in a fresh process that knows only sentence-transformers."""
    code = ELSEWHERE.format(texts=TEXTS, hide=HIDE * (not importable))
    done = subprocess.run(
        [sys.executable, "-c", code, str(folder), str(place / "found.npy")],
        cwd=ROOT if importable else place,
        env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [str(importable)]
    return np.asarray(np.load(place / "found.npy"))


@pytest.mark.slow
def test_it_loads_in_a_fresh_process(save: Save, tmp_path: Path) -> None:
    """Here a network that transformers has no class for, without a word to the harness."""
    folder = save("nomic_bert")
    found = elsewhere(folder, tmp_path, importable=True)
    assert np.abs(found - np.load(tmp_path / "vectors.npy")).max() <= 1e-5
    assert json.loads((folder / "modules.json").read_text())[1]["type"].startswith("harness.")


@pytest.mark.slow
def test_a_mean_pooling_model_needs_nothing_of_ours(save: Save, tmp_path: Path) -> None:
    folder = save("bert", Normalize(), pool=Pooling(32, "mean"))
    found = elsewhere(folder, tmp_path, importable=False)
    assert np.abs(found - np.load(tmp_path / "vectors.npy")).max() <= 1e-5
