"""Folders of sentence-transformers 6 and model2vec give the vectors of the library that saved them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from harness.core.encoding import OwnTexts, Settings
from harness.core.errors import ModelError, UsageError
from harness.core.types import SIDES, Artifact, Role
from harness.encoder.engine import Encoder
from harness.encoder.folder.description import describe
from harness.encoder.loading import load_any, load_encoder
from harness.encoder.resolved_encoding import resolve_encoding
from harness.encoder.sanity import check_encoder
from harness.encoder.sentence_transformer import SentenceTransformer
from layouts import TEXTS, read_layouts, write_layout
from preflights import check_model

LAYOUTS = read_layouts()

Make = Callable[..., Artifact]


def encode(artifact: Artifact, role: Role, **settings: Any) -> list[np.ndarray[Any, Any]]:
    """The vectors of TEXTS on one side, after the check that a dry run makes."""
    encoding = resolve_encoding(describe(artifact.folder), Settings(**settings))
    check_model(artifact, encoding)
    encoder = load_any(artifact, encoding, device="cpu")
    prompt = encoding.resolve_prompt(OwnTexts(), role)
    if isinstance(encoder, Encoder):
        side = role if role in encoder.roles else ""
        return list(encoder.encode(TEXTS, prompt=prompt, role=side))
    rows = encoder.encode(TEXTS, prompt=prompt, role=role)
    return [rows.select_text_vectors(place).ravel() for place in range(len(TEXTS))]


@pytest.fixture
def lay(tmp_path: Path, artifact: Make) -> Make:
    """Writes a layout with changes of its files, by their paths, into a folder."""

    def lay(name: str, **changes: dict[str, Any]) -> Artifact:
        folder = write_layout(tmp_path / name, LAYOUTS[name])
        for path, fields in changes.items():
            file = folder / path
            file.write_text(json.dumps({**json.loads(file.read_text()), **fields}))
        return artifact(folder)

    return lay


@pytest.mark.parametrize("name", LAYOUTS)
def test_vectors_are_those_of_sentence_transformers_6(name: str, lay: Make) -> None:
    made = lay(name)
    for role in SIDES:
        for vector, truth in zip(encode(made, role), LAYOUTS[name]["vectors"][role], strict=True):
            assert vector.shape == np.shape(truth)
            assert np.abs(vector - np.array(truth)).max() <= 2e-6


TRANSFORMER, MASK = "sentence_bert_config.json", "2_MultiVectorMask/config.json"
FIXED = {"strategy": "fixed", "attend": False, "token": None, "length": 10}


@pytest.mark.parametrize(
    ("name", "path", "fields"),
    [
        ("mean", TRANSFORMER, {"transformer_task": "fill-mask"}),
        ("mean", TRANSFORMER, {"module_output_name": "sentence_embedding"}),
        ("mean", TRANSFORMER, {"modality_config": {"text": {"method": "get_text_features"}}}),
        ("mean", TRANSFORMER, {"processing_kwargs": {"text": {"max_length": 4}}}),
        ("mean", TRANSFORMER, {"query_length": 4}),
        ("mean", "1_Pooling/config.json", {"pooling_mode": {"mean": True}}),
        ("cls", "1_Pooling/config.json", {"include_prompt": False}),
        ("cls", "2_Normalize/config.json", {"module_output_name": "other"}),
        ("dense", "2_Dense/config.json", {"module_input_name": "all_layer_embeddings"}),
        ("truncate", "config_sentence_transformers.json", {"truncate_dim": 4096}),
        ("router-mapped", "router_config.json", {"parameters": {"route_mappings": {"query": "small"}}}),
        ("router-mapped", "router_config.json", {"parameters": {"route_mappings": {"(None, None)": "none"}}}),
        ("multi-vector", MASK, {"keep_only_token_ids": [3]}),
        ("multi-vector", MASK, {"skiplist_tasks": ["query", "document"]}),
        ("multi-vector", TRANSFORMER, {"query_expansion": {**FIXED, "token": "[SEP]"}}),
        ("multi-vector", TRANSFORMER, {"query_expansion": {**FIXED, "strategy": "min"}}),
        ("multi-vector", TRANSFORMER, {"query_expansion": {"strategy": "fixed", "length": "10"}}),
        ("multi-vector", "tokenizer_config.json", {"padding_side": "left"}),
        ("multi-vector", "config_sentence_transformers.json", {"similarity_fn_name": "meanmaxsim"}),
    ],
)
def test_a_setting_that_is_not_run_is_refused_by_its_name(
    name: str, path: str, fields: dict[str, Any], lay: Make
) -> None:
    setting = "route_mappings" if "parameters" in fields else next(iter(fields))
    with pytest.raises(ModelError, match=f"has {setting} = .*, which is not run here"):
        describe(lay(name, **{path: fields}).folder)


def test_a_setting_that_no_version_has_is_refused(lay: Make) -> None:
    for name, path in (("mean", TRANSFORMER), ("cls", "1_Pooling/config.json"), ("multi-vector", MASK)):
        with pytest.raises(ModelError, match="has the setting 'twist' of a "):
            describe(lay(name, **{path: {"twist": 2}}).folder)


def test_other_kinds_of_models_are_refused_by_their_names(lay: Make) -> None:
    modules = lay("mean").folder / "modules.json"
    plain = modules.read_text()
    for kind, last in (
        ("SparseEncoder", "sentence_transformers.sparse_encoder.modules.splade_pooling.SpladePooling"),
        ("CrossEncoder", "sentence_transformers.cross_encoder.modules.logit_score.LogitScore"),
    ):
        pooling = "sentence_transformers.sentence_transformer.modules.pooling.Pooling"
        modules.write_text(plain.replace(pooling, last))
        with pytest.raises(ModelError, match=f"is a {kind}, which gives no dense vector"):
            describe(modules.parent)
    modules.write_text(plain)
    (modules.parent / "config_sentence_transformers.json").write_text('{"model_type": "SparseEncoder"}')
    with pytest.raises(ModelError, match="is a SparseEncoder"):
        describe(modules.parent)


def test_a_multi_vector_model_of_other_modules_is_refused(lay: Make) -> None:
    modules = lay("multi-vector").folder / "modules.json"
    whole = json.loads(modules.read_text())
    pooling = "sentence_transformers.multi_vector_encoder.modules.token_pooling.HierarchicalTokenPooling"
    for wrong in (whole[:-1], [*whole[:2], whole[3]], [*whole, {**whole[-1], "name": "4", "type": pooling}]):
        modules.write_text(json.dumps(wrong))
        with pytest.raises(ModelError, match="is a MultiVectorEncoder of Transformer, Dense, "):
            describe(modules.parent)


@pytest.mark.parametrize("lost", ["modules.json", "config_sentence_transformers.json"])
def test_a_multi_vector_model_without_its_settings_is_no_other_model(lost: str, lay: Make) -> None:
    folder = lay("multi-vector").folder
    (folder / lost).unlink()
    with pytest.raises(ModelError, match=f"is a multi-vector model without {lost}"):
        describe(folder)


def test_settings_asked_for_go_before_those_of_the_folder(lay: Make) -> None:
    assert describe(lay("list-in-order").folder).pooling == "mean,max,cls"
    listed = lay("list")
    mean, cls = (encode(listed, "query", pooling=mode) for mode in ("mean", "cls"))
    for vector, both in zip(np.hstack([cls, mean]), LAYOUTS["list"]["vectors"]["query"], strict=True):
        assert np.abs(vector - np.array(both)).max() <= 2e-6
    short = encode(listed, "query", max_length=5)
    assert np.abs(short[-1] - encode(listed, "query")[-1]).max() > 1e-2
    with pytest.raises(UsageError, match="more than list has positions for"):
        encode(listed, "query", max_length=33)
    half = encode(listed, "query", dtype="bfloat16")
    assert 1e-4 < np.abs(np.stack(half) - np.hstack([cls, mean])).max() < 1e-1


def test_vectors_are_scaled_after_a_cut_where_that_is_asked_for(lay: Make) -> None:
    """As `encode(normalize_embeddings=True)` of the library; a Normalize of its own comes before the cut."""
    made = lay("truncate")
    assert {round(float(np.linalg.norm(vector)), 3) for vector in encode(made, "query")} != {1.0}
    modules = made.folder / "modules.json"
    modules.write_text(json.dumps(json.loads(modules.read_text())[:2]))
    for vector, truth in zip(
        encode(made, "query", normalize=True), LAYOUTS["truncate"]["vectors"]["query"], strict=True
    ):
        unit = np.array(truth) / np.linalg.norm(truth)
        assert np.abs(vector - unit).max() <= 2e-6


@pytest.mark.parametrize(
    "name", ["mean", "list-in-order", "dense-of-tokens", "dense-residual", "router-mapped"]
)
def test_a_saved_copy_gives_the_same_vectors(name: str, lay: Make, tmp_path: Path, artifact: Make) -> None:
    made = lay(name)
    SentenceTransformer(str(made.folder), device="cpu").save(str(tmp_path / "again"), create_model_card=False)
    for role in SIDES:
        again = encode(artifact(tmp_path / "again"), role)
        assert np.abs(np.stack(again) - np.array(LAYOUTS[name]["vectors"][role])).max() <= 2e-6


# model2vec


@pytest.mark.parametrize("modules", [True, False])
@pytest.mark.parametrize(("dtype", "kind"), [(torch.float32, {"model_type": "model2vec"}), (torch.int8, {})])
def test_static_vectors_are_those_of_model2vec(
    modules: bool, dtype: torch.dtype, kind: dict[str, str], tmp_path: Path, artifact: Make
) -> None:
    """The mean over the known tokens of weight times the row that the mapping names, of length 1."""
    tokenizer = LAYOUTS["mean"]["files"]["tokenizer.json"]
    vocabulary = tokenizer["model"]["vocab"]
    draw = torch.Generator().manual_seed(1)
    rows = (torch.randn(10, 8, generator=draw) * 20).to(dtype)
    mapping = torch.randint(0, 10, (len(vocabulary),), generator=draw)
    weights = torch.rand(len(vocabulary), generator=draw)
    files = {"embeddings": rows, "mapping": mapping, "weights": weights}
    save_file(files, tmp_path / "model.safetensors")
    (tmp_path / "tokenizer.json").write_text(json.dumps(tokenizer))
    config = {**kind, "normalize": True, "max_length": 6}
    (tmp_path / "config.json").write_text(json.dumps(config))
    if modules:
        kinds = (("StaticEmbedding", "."), ("Normalize", "1_Normalize"))
        listed = [{"type": f"sentence_transformers.models.{kind}", "path": path} for kind, path in kinds]
        named = [{"idx": place, "name": str(place), **one} for place, one in enumerate(listed)]
        (tmp_path / "modules.json").write_text(json.dumps(named))
    # Cut at 6 tokens and, before that, at 6 times the median length of a token; unknown ones are left out.
    words = ("the cat sat on a m", "what is a query ?", "x", "a cat the d ##o")
    for vector, text in zip(encode(artifact(tmp_path), "query"), words, strict=True):
        found = [vocabulary[word] for word in text.split()]
        mean = (weights[found, None] * rows[mapping[found]].float()).mean(dim=0)
        assert np.abs(vector - (mean / mean.norm()).numpy()).max() <= 2e-6
    # No digit is a token: "42" has a vector of zeros, which is no fault of the model.
    encoding = resolve_encoding(describe(tmp_path), Settings())
    encoder = load_encoder(artifact(tmp_path), encoding, device="cpu")
    assert not encoder.encode(["42"]).any()
    report = check_encoder(encoder, lambda: load_encoder(artifact(tmp_path), encoding, device="cpu"))
    assert report.failures == ()
