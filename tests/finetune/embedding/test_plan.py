"""The plan of a recipe for embedding models: its key, the model to come, and what it refuses."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from blocked import BLOCKER
from finetune.embedding.plan import EmbeddingRecipe
from finetune.embedding.settings import EmbeddingSettings
from finetune.recipes import dpr, mldr
from finetune.recipes.simcse import NLI, RECIPE, SETTINGS, STSB
from harness.core.errors import DataError, HarnessError, UsageError
from harness.core.keys import ParentPart
from harness.core.types import Artifact
from harness.data.training.sets import LocatedTraining, TrainingData
from harness.jobs.recipe import PlannedModel
from harness.plan import catalog

OTHER: dict[str, Any] = {
    "pooling": "cls",
    "heads": 2,
    "schedule": "cosine",
    "precision": "float32",
    "batches": "no_duplicates",
    "selection": "stsb-dev",
    "betas": (0.9, 0.98),
    "warmup": 0.1,
    "last_batch": "kept",
    "group_size": 64,
    "max_steps": 100,
}
"""Another value of the settings that are no plain numbers."""


@pytest.fixture(scope="module")
def backbone(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    """The JSON of a BERT, and files that only look like its weights and vocabulary."""
    folder = tmp_path_factory.mktemp("models") / "bert"
    folder.mkdir()
    config = {"model_type": "bert", "hidden_size": 32, "max_position_embeddings": 64, "vocab_size": 9}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "tokenizer_config.json").write_text(json.dumps({"model_max_length": 48}))
    (folder / "vocab.txt").write_text("[PAD]\n")
    save_file({"one": np.zeros(1, np.float32)}, folder / "model.safetensors")
    return Artifact(name="bert", source=str(folder), folder=folder, key="a" * 64, weights="b" * 64)


def located(data: Any = NLI, **changes: Any) -> LocatedTraining:
    return LocatedTraining(**{"data": data, "name": data.path, "rows": data.rows, **changes})


def plan(backbone: Artifact, variant: str = "", *, seed: int = 42, **settings: Any) -> PlannedModel:
    recipe = RECIPE.open(variant, replace(RECIPE.settings[variant], **settings))
    assert isinstance(recipe, EmbeddingRecipe)
    data = [located(), *(located(part) for part in recipe.selection)]
    return recipe.plan(backbone, data, seed=seed)


def test_the_key_follows_from_every_setting_and_from_no_path(backbone: Artifact, tmp_path: Path) -> None:
    keys = {
        "attention": plan(backbone).lineage.key,
        "mean": plan(backbone, "mean").lineage.key,
        "seed": plan(backbone, seed=43).lineage.key,
        "parent": plan(replace(backbone, key="c" * 64)).lineage.key,
    }
    assert plan(backbone, chunk=64).lineage == plan(backbone).lineage
    for setting in fields(EmbeddingSettings):
        if setting.name == "chunk":
            continue
        own = getattr(SETTINGS, setting.name)
        value = OTHER[setting.name] if setting.name in OTHER else own * 2 + 1
        keys[setting.name] = plan(backbone, **{setting.name: value}).lineage.key
    recipe = RECIPE.open("", SETTINGS)
    revision = located(replace(NLI, revision="d" * 40))
    keys["revision"] = recipe.plan(backbone, [revision], seed=42).lineage.key
    assert len(set(keys.values())) == len(keys)
    moved = located(folder=tmp_path, file=tmp_path / "a", name="elsewhere")
    assert recipe.plan(backbone, [moved], seed=42).lineage.key == keys["attention"]
    assert (keys["attention"][:12], keys["mean"][:12]) == ("63ffffc28316", "e67e0cc80285")


def test_the_model_to_come_is_known(backbone: Artifact) -> None:
    found = plan(backbone, learning_rate=1e-5, selection="stsb-dev")
    assert (found.description.pooling, found.description.max_length) == ("attention", 48)
    assert (found.description.normalize, found.description.similarity_fn_name) == (False, "cosine")
    assert found.steps == 3 * (557_850 // 512)
    assert found.texts == found.steps * 512 * 3
    lineage = found.lineage
    assert lineage.changed == {"learning_rate": 1e-5, "selection": "stsb-dev"}
    assert lineage.selected_on == ("STSBenchmark",)
    assert [part["path"] for part in lineage.data] == [NLI.path, STSB.path]
    assert any("pooling head" in sentence for sentence in lineage.assumed)
    assert lineage.own_data == ""
    own = RECIPE.open("", SETTINGS).plan(backbone, [located(own=True, name="mine.csv", rows=None)], seed=1)
    assert any("SNLI" in sentence for sentence in lineage.assumed)
    assert not any("SNLI" in sentence for sentence in own.lineage.assumed)
    assert any("pooling head" in sentence for sentence in own.lineage.assumed)
    assert (own.lineage.own_data, own.steps, own.texts) == ("mine.csv", None, None)
    json.loads(json.dumps(lineage.model_dump(mode="json")))
    assert lineage.model_validate_json(lineage.model_dump_json()).key == lineage.key


def test_the_rate_of_large_models_is_a_variant(backbone: Artifact) -> None:
    """SimCSE's table: 5e-5 for base models, 1e-5 for large ones."""
    plans = {
        variant: RECIPE.open(variant, RECIPE.settings[variant]).plan(backbone, [located()], seed=1).lineage
        for variant in ("", "large")
    }
    assert {name: one.settings["learning_rate"] for name, one in plans.items()} == {"": 5e-5, "large": 1e-5}
    assert {name: any("1e-5" in text for text in one.assumed) for name, one in plans.items()} == {
        "": True,
        "large": False,
    }
    assert any("twice its steps" in text for text in plans[""].assumed)


def test_one_triplet_of_each_premise_is_a_variant(backbone: Artifact) -> None:
    """SimCSE's file has 275,601 rows, one of each premise; the pairs of efficient are those rows', too."""
    recipe: Any = RECIPE.open("one-per-premise", RECIPE.settings["one-per-premise"])
    (data,) = recipe.data
    assert data.identity == {**NLI.identity, "distinct": "anchor"}
    found = recipe.plan(backbone, [located(data, rows=data.rows)], seed=42)
    assert found.steps == 3 * (275_601 // 512) == 1_614, "the steps that follow from SimCSE's script"
    assert found.lineage.key != plan(backbone).lineage.key
    assumed = " ".join(found.lineage.assumed)
    assert "the first is read" in assumed
    assert "twice its steps" not in assumed
    for method in ("full", "freeze", "lora", "bias"):
        entry = catalog.find_recipe_entry(f"efficient-{method}")
        efficient: Any = entry.open("", entry.settings[""])
        assert efficient.data == (replace(data, columns=("anchor", "positive")),)


@pytest.mark.parametrize(
    ("changes", "data", "kind", "message"),
    [
        ({"batch_size": 512}, {"rows": 511}, DataError, "has 511 rows, and a batch has 512"),
        ({"heads": 5}, {}, UsageError, "5 heads do not divide the 32 dimensions of bert"),
        ({"pooling": "meen"}, {}, UsageError, "No pooling is called 'meen'"),
        ({"selection": "sts"}, {}, UsageError, "No selection is called 'sts'"),
        ({"batch_size": 0}, {}, UsageError, "batch_size is 0, which no training can have"),
        ({"warmup": 1.5}, {}, UsageError, "warmup is 1.5"),
        ({"max_length": 0}, {}, UsageError, "max_length is 0"),
        ({"group_size": 48}, {}, UsageError, "group_size is 48, which no training can have"),
        ({"group_size": None, "batch_size": 96}, {}, UsageError, "group_size is 64"),
        ({}, {"data": STSB}, UsageError, "has pairs with a score"),
    ],
)
def test_what_cannot_be_trained_is_refused(
    backbone: Artifact, changes: Any, data: Any, kind: type[HarnessError], message: str
) -> None:
    with pytest.raises(kind, match=message):
        RECIPE.open("", replace(SETTINGS, **changes)).plan(backbone, [located(**data)], seed=1)


@pytest.mark.parametrize("name", ["simcse", "dpr", "mldr", "colbert:contrastive", "cde"])
@pytest.mark.parametrize(
    ("data", "form"),
    [
        (TrainingData(columns=("anchor", "positive", "negatives[]")), "row with any number of negatives"),
        (TrainingData(columns=("set[0]", "set[1]")), "pair"),
        (TrainingData(columns=("title", "answer"), classes="topic"), "pair of one class"),
        (TrainingData(columns=("query-id", "corpus-id"), judged=True), "pair"),
    ],
)
def test_lists_classes_and_judged_ids_are_for_the_mix_alone(
    backbone: Artifact, name: str, data: TrainingData, form: str
) -> None:
    short = {}
    if name.startswith("colbert"):
        pytest.importorskip("pylate")
        short = {"query_length": 32, "document_length": 64}
    recipe: Any = catalog.open_recipe(name, short)
    message = f"lists.jsonl has a {form} in each row, and {name} reads columns of text"
    with pytest.raises(UsageError, match=message) as caught:
        recipe.plan(backbone, [located(data, name="lists.jsonl", rows=100_000)], seed=42)
    assert "--recipe unified-contrastive takes lists" in (caught.value.hint or "")


def test_values_are_refused_before_there_is_data_and_none_is_no_selection() -> None:
    with pytest.raises(UsageError, match="dpr has no data to choose checkpoints by"):
        catalog.open_recipe("dpr", {"selection": "stsb-dev"})
    with pytest.raises(UsageError, match="epochs is 0, which no training can have"):
        catalog.open_recipe("dpr", {"epochs": "0"})
    for text in ("none", ""):
        assert catalog.open_recipe("simcse", {"selection": text}) == catalog.open_recipe("simcse")


def test_a_trained_model_is_trained_further_and_towers_are_not(backbone: Artifact, tmp_path: Path) -> None:
    for path in backbone.folder.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    modules = [
        {"name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
        {"name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
    ]
    (tmp_path / "1_Pooling").mkdir()
    (tmp_path / "1_Pooling" / "config.json").write_text('{"pooling_mode_cls_token": true}')
    (tmp_path / "modules.json").write_text(json.dumps(modules))
    trained = replace(backbone, folder=tmp_path)
    found = plan(trained, "mean")
    assert found.description.pooling == "mean"
    assert any("already an embedding model" in note for note in found.notes)
    assert not any("Normalize" in note for note in found.notes)
    modules.append({"name": "2", "path": "2_Normalize", "type": "sentence_transformers.models.Normalize"})
    (tmp_path / "modules.json").write_text(json.dumps(modules))
    found = plan(trained, "mean")
    assert not found.description.normalize
    assert any("the Normalize module of bert is left out" in note for note in found.notes)
    modules[0]["type"] = "sentence_transformers.models.WordEmbeddings"
    (tmp_path / "modules.json").write_text(json.dumps(modules))
    with pytest.raises(UsageError, match="does not begin with one Transformer"):
        plan(trained)


def test_planning_imports_nothing_heavy_and_a_recipe_can_be_sent(backbone: Artifact) -> None:
    recipe = RECIPE.open("mean", RECIPE.settings["mean"])
    assert pickle.loads(pickle.dumps(recipe)) == recipe
    code = f"""{BLOCKER}
import pickle
recipe, backbone, data = pickle.loads({pickle.dumps((recipe, backbone, [located()]))!r})
print(recipe.plan(backbone, data, seed=42).lineage.key)
assert not {{"datasets", "pyarrow"}} & sys.modules.keys()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == plan(backbone, "mean").lineage.key, done.stderr


# dpr: numbers typed from the paper, the released script, and what the authors say


_SCRIPT = {
    "pooling": "mean",
    "heads": 1,
    "learning_rate": 8e-5,
    "batch_size": 512,
    "epochs": 1,
    "max_length": None,
    "scale": 20.0,
    "weight_decay": 0.0,
    "betas": [0.9, 0.999],
    "eps": 1e-8,
    "warmup": 0.05,
    "schedule": "linear",
    "clip": 1.0,
    "precision": "bfloat16",
    "batches": "no_duplicates",
    "selection": "",
    "evaluate_every": 125,
    "last_batch": "kept",
}


def widened(backbone: Artifact, width: int, folder: Path) -> Artifact:
    """The backbone with token vectors of another width."""
    for path in backbone.folder.iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"hidden_size": width}))
    return replace(backbone, folder=folder)


@pytest.mark.parametrize(
    ("variant", "width", "changed", "steps", "chunk", "devices"),
    [
        ("", 768, {}, 2_442, 16, 1),
        ("authors", 768, {"batch_size": 64 * 8 * 8, "group_size": 64}, 306, 64, 8),
        ("authors", 1024, {"batch_size": 16 * 32 * 8, "group_size": 16}, 306, 16, 8),
        ("paper", 768, {"batch_size": 16}, 78_125, 0, 1),
        ("ettin", 1024, {"batch_size": 1024}, 1_221, 256, 1),
    ],
)
def test_every_field_of_the_readings_of_dpr(
    backbone: Artifact,
    tmp_path: Path,
    variant: str,
    width: int,
    changed: dict[str, Any],
    steps: int,
    chunk: int,
    devices: int,
) -> None:
    backbone = widened(backbone, width, tmp_path)
    recipe = dpr.RECIPE.open(variant, dpr.RECIPE.settings[variant])
    assert isinstance(recipe, EmbeddingRecipe)
    found = recipe.plan(backbone, [located(recipe.data[0])], seed=42)
    assert found.lineage.settings == _SCRIPT | changed
    assert found.lineage.changed == {}
    assert (found.steps, found.texts) == (steps, 3 * 1_250_000)
    assert (recipe.settings.resolve_group_size(width).chunk, recipe.devices(8, backbone)) == (chunk, devices)
    groups = [note for note in found.notes if "in groups of" in note]
    assert [f"groups of {changed['group_size']} rows" in note for note in groups] == [True] * (
        "group_size" in changed
    )


@pytest.mark.parametrize(
    ("width", "size", "devices"), [(1024, 32, 2), (1024, 320, 4), (768, 320, 1), (768, 384, 3), (1024, 16, 1)]
)
def test_devices_share_the_groups_of_a_backbone(
    backbone: Artifact, tmp_path: Path, width: int, size: int, devices: int
) -> None:
    recipe = dpr.RECIPE.open("authors", replace(dpr.AUTHORS, batch_size=size))
    assert isinstance(recipe, EmbeddingRecipe)
    assert recipe.devices(4, widened(backbone, width, tmp_path)) == devices
    assert recipe.settings.resolve_group_size(width).limit_devices(devices) == devices, (
        "as the trainer has it"
    )


def test_settings_of_a_reading_that_are_changed() -> None:
    assert replace(dpr.AUTHORS, batch_size=32, group_size=64).limit_devices(4) == 1
    for width in (768, 1024):
        assert replace(dpr.AUTHORS, chunk=128).resolve_group_size(width).chunk == 128
        assert replace(dpr.AUTHORS, chunk=0).resolve_group_size(width).chunk == 0
        assert replace(dpr.AUTHORS, group_size=32).resolve_group_size(width).chunk == 32


def test_the_two_trainings_of_dpr_and_mldr(backbone: Artifact) -> None:
    """Of the second one, every field and what it is made of."""
    first = dpr.RECIPE.open("", dpr.SCRIPT).plan(backbone, [located(dpr.MSMARCO)], seed=42)
    between = replace(backbone, key=first.lineage.key, trained=True)
    recipe = mldr.RECIPE.open("", mldr.SETTINGS)
    assert isinstance(recipe, EmbeddingRecipe)
    second = recipe.plan(between, [located(mldr.MLDR)], seed=42)
    assert second.lineage.settings == _SCRIPT | {"batch_size": 64, "max_length": 8192}
    assert second.lineage.changed == {}
    assert (second.steps, second.texts) == (157, 3 * 10_000)
    assert (recipe.settings.resolve_group_size(768).chunk, recipe.devices(8, between)) == (2, 1)
    assert second.description.max_length == 48, "the backbone's own limit stays"
    assert dict(mldr.MLDR.identity) == {
        "path": "Shitao/MLDR",
        "revision": "d67138e705d963e346253a80e59676ddb418810a",
        "file": "mldr-v1.0-en/train.jsonl.gz",
        "columns": ["query", "positive_passages", "negative_passages"],
        "passages": True,
    }
    assumed = " ".join(second.lineage.assumed)
    assert "documents are cut at 8,192 tokens" in assumed.lower()
    assert "the first positive and the first negative one count" in assumed
    assert second.lineage.parents == (ParentPart(name="bert", artifact=first.lineage.key),)
    assert (first.lineage.key[:12], second.lineage.key[:12]) == ("e7074399d386", "7e49a702c35f")


def test_the_data_of_dpr() -> None:
    assert dict(dpr.MSMARCO.identity) == {
        "path": "sentence-transformers/msmarco-co-condenser-margin-mse-sym-mnrl-mean-v1",
        "revision": "84ed2d35626f617d890bd493b4d6db69a741e0e2",
        "config": "triplet-hard",
        "columns": ["query", "positive", "negative"],
        "held_out": 1_000,
        "split_seed": 12,
        "first": 1_250_000,
    }
    assert dpr.MSMARCO.rows == dpr.MSMARCO.count_remaining_rows(11_662_655) == 1_250_000
    assert dpr.MSMARCO.count_remaining_rows(5_000) == 4_000
