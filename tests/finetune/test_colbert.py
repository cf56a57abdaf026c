"""Training of multi-vector (ColBERT) models: PyLate's losses, folders and steps."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("pylate", reason="PyLate trains these models")

import torch
from transformers.models.modernbert import modeling_modernbert
from transformers.trainer_callback import CallbackHandler

import late_models
import scored_data
import tiny
from finetune.colbert.settings import ColBERTSettings
from finetune.colbert.training import ColBERTSetup
from finetune.embedding.trainer import run_trainer
from finetune.recipes import colbert
from finetune.recipes.colbert import ColBERTRecipe
from harness.core.encoding import Settings
from harness.core.errors import HarnessError, UsageError
from harness.core.types import SIDES, Artifact
from harness.data.locate import DataSettings
from harness.data.training.loading import count_trained, load_training, read_text_hashes, write_text_hashes
from harness.data.training.sets import LocatedTraining, locate_user_training
from harness.encoder.folder.description import compute_folder_identity, describe
from harness.encoder.loading import load_any
from harness.encoder.resolved_encoding import resolve_encoding
from harness.encoder.token_encoder import TokenEncoder
from harness.training import training
from harness.training.training import TrainingSpec, read_log
from small_trainings import largest_difference, spec_in, tiny_artifact, weights_in

SETTINGS = {
    "batch_size": 4,
    "documents": 3,
    "dimension": 16,
    "query_length": 12,
    "document_length": 20,
    "learning_rate": 1e-3,
    "precision": "float32",
}


@pytest.fixture(scope="module")
def scored(tmp_path_factory: pytest.TempPathFactory) -> LocatedTraining:
    folder = scored_data.write(tmp_path_factory.mktemp("scored"))
    return locate_user_training(str(folder), DataSettings(cache=folder / "cache"))


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.folder(tiny.families()["bert"], tmp_path_factory.mktemp("backbone") / "tiny")


@pytest.fixture(scope="module")
def pylate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return late_models.save(tmp_path_factory.mktemp("pylate") / "model")


@pytest.fixture
def make(bert: Path, scored: LocatedTraining, tmp_path: Path) -> Callable[..., TrainingSpec]:
    """A spec in a folder of its own; settings and fields of the spec may be given."""

    def made(
        name: str = "run", settings: Mapping[str, Any] | None = None, variant: str = "", **fields: Any
    ) -> TrainingSpec:
        entry = colbert.RECIPE
        small = {name: value for name, value in SETTINGS.items() if not variant or name != "documents"}
        recipe = entry.open(variant, replace(entry.settings[variant], **{**small, **(settings or {})}))
        full = {"backbone": tiny_artifact(bert), "data": (scored,), **fields}
        return spec_in(tmp_path, recipe, name, **full)

    return made


def recipe_of(spec: TrainingSpec) -> ColBERTRecipe:
    assert isinstance(spec.recipe, ColBERTRecipe)
    return spec.recipe


def settings_of(spec: TrainingSpec) -> ColBERTSettings:
    return recipe_of(spec).settings


def run(spec: TrainingSpec) -> dict[str, torch.Tensor]:
    """The weights after a training in this process."""
    run_trainer(spec, settings_of(spec), ColBERTSetup(settings_of(spec)))
    return weights_in(spec.output)


# Against PyLate


def gradients(module: Any) -> dict[str, torch.Tensor]:
    """The gradients of a model's parameters, under the names of transformers."""
    body = module[0].auto_model
    published = getattr(body, "published", None)
    found = {
        (published.theirs(name) if published else name): one.grad for name, one in body.named_parameters()
    }
    found |= {f"dense/{name}": one.grad for name, one in module[1].named_parameters()}
    return {name: grad for name, grad in found.items() if grad is not None and bool(grad.any())}


def their_step(folder: Path, rows: list[dict[str, Any]], loss: str, **settings: Any) -> tuple[Any, Any]:
    """The loss and the gradients of a batch by PyLate's model, collator and loss."""
    from pylate import losses, models, utils

    model = models.ColBERT(str(folder), device="cpu", **settings)
    model.double().eval()  # without dropout; in float64, since gradients of equal scores are large
    made = {
        "distillation": lambda: losses.Distillation(model),
        "cached": lambda: losses.CachedContrastive(model, mini_batch_size=2),
    }[loss]()
    inputs = utils.ColBERTCollator(model.tokenize)(rows)
    value = made(features_of(inputs), inputs.get("label"))
    value.backward()
    return value.item(), gradients(model)


def rotated(query: Any, key: Any, cosine: Any, sine: Any, unsqueeze_dim: int) -> tuple[Any, Any]:
    """The rotation of transformers' ModernBERT, in the precision of its queries and keys."""
    cosine, sine, half = (
        cosine.unsqueeze(unsqueeze_dim),
        sine.unsqueeze(unsqueeze_dim),
        modeling_modernbert.rotate_half,
    )
    return query * cosine + half(query) * sine, key * cosine + half(key) * sine


def features_of(inputs: Mapping[str, Any]) -> list[dict[str, torch.Tensor]]:
    names = [key.removesuffix("input_ids") for key in inputs if key.endswith("_input_ids")]
    return [{key[len(n) :]: one for key, one in inputs.items() if key.startswith(n)} for n in names]


def our_step(spec: TrainingSpec, rows: list[dict[str, Any]], passes: int | None = None) -> tuple[Any, Any]:
    setup = ColBERTSetup(settings_of(spec))
    model = setup.build_model(spec)
    model.eval()
    for part in model:
        part.double()
    inputs = setup.build_collator(model)(rows)
    loss = setup.build_loss(model, micro_batch=passes, gather=False)
    value = loss(features_of(inputs), inputs.get("label"))
    value.backward()
    return value.item(), gradients(model)


@pytest.mark.parametrize("body", late_models.BODIES)
@pytest.mark.parametrize("expansion", [True, False])
@pytest.mark.parametrize("passes", [None, 3])
def test_loss_and_gradients_of_distillation_are_those_of_pylate(
    make: Callable[..., TrainingSpec],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    body: str,
    expansion: bool,
    passes: int | None,
) -> None:
    """In float64; transformers turns the queries and keys of ModernBERT in float32, and here in float64."""
    monkeypatch.setattr(modeling_modernbert, "apply_rotary_pos_emb", rotated)
    folder = late_models.save(tmp_path / "start", body, do_query_expansion=expansion)
    spec = make(settings={"expansion": expansion, "batch_size": 5}, backbone=tiny_artifact(folder))
    rows = list(load_training(spec.data[0], cache=spec.cache).select(range(5)))
    value, theirs = their_step(folder, rows, "distillation")
    ours = our_step(spec, rows, passes)
    assert ours[0] == pytest.approx(value, abs=1e-6)
    assert len(theirs) > 10
    assert largest_difference(ours[1], theirs) <= 1e-12


@pytest.mark.parametrize("passes", [None, 2])
def test_loss_and_gradients_by_contrast_are_those_of_pylate(
    make: Callable[..., TrainingSpec], pylate: Path, passes: int | None
) -> None:
    spec = make(variant="contrastive", backbone=tiny_artifact(pylate))
    rows = [
        {"anchor": scored_data.sentence(n), "positive": f"{scored_data.sentence(n + 50)}!", "negative": "a."}
        for n in range(5)
    ]
    value, theirs = their_step(pylate, rows, "cached")
    ours = our_step(spec, rows, passes)
    assert ours[0] == pytest.approx(value, abs=1e-6)
    assert largest_difference(ours[1], theirs) <= 1e-12


def test_a_trained_model_is_opened_by_pylate_with_equal_vectors(make: Callable[..., TrainingSpec]) -> None:
    from pylate import models

    spec = make()
    run(spec)
    texts = [scored_data.sentence(n) for n in range(4)] + ["a, b. c!"]
    model = models.ColBERT(str(spec.output), device="cpu")
    encoder = opened(spec.output)
    for side in SIDES:
        found = encoder.encode(texts, role=side)
        theirs = model.encode(texts, is_query=side == "query")
        for number in range(len(texts)):
            own = found.vectors[found.offsets[number] : found.offsets[number + 1]]
            np.testing.assert_allclose(own, theirs[number], atol=1e-5)


def opened(folder: Path) -> TokenEncoder:
    key, hashed, _ = compute_folder_identity(folder)
    model = Artifact(name="late", source=str(folder), folder=folder, key=key, weights=hashed)
    found = load_any(model, resolve_encoding(describe(folder), Settings()), device="cpu")
    assert isinstance(found, TokenEncoder)
    return found


# Resumption, and both kinds of start


@pytest.mark.parametrize("start", ["bert", "pylate"])
def test_a_training_that_was_interrupted_ends_with_the_same_weights_in(
    make: Callable[..., TrainingSpec],
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
    start: str,
) -> None:
    given: dict[str, Any] = {
        "backbone": tiny_artifact(request.getfixturevalue(start)),
        "settings": {"epochs": 2, "warmup": 0.2},
    }
    whole = run(make("whole", **given))
    spec = make("interrupted", **given)

    def stop(self: Any, args: Any, state: Any, control: Any) -> Any:
        if state.global_step == 3:  # before the next step ends
            training.STOP.set()
        return begin(self, args, state, control)

    begin = CallbackHandler.on_step_begin
    with monkeypatch.context() as patch:
        patch.setattr(CallbackHandler, "on_step_begin", stop)
        run_trainer(spec, settings_of(spec), ColBERTSetup(settings_of(spec)))
    training.STOP.clear()
    assert not spec.output.exists()
    assert len(read_log(spec.log.path)) == 4
    resumed = run(spec)
    assert len(read_log(spec.log.path)) == 6
    assert largest_difference(whole, resumed) == 0.0


def test_by_contrast_on_pairs_a_model_is_made(make: Callable[..., TrainingSpec], tmp_path: Path) -> None:
    file = tmp_path / "pairs.jsonl"
    file.write_text(
        "".join(
            json.dumps({"query": scored_data.sentence(n), "positive": scored_data.sentence(100 + n)}) + "\n"
            for n in range(10)
        )
    )
    pairs = locate_user_training(str(file), DataSettings(cache=tmp_path / "cache"))
    spec = make(variant="contrastive", data=(pairs,), settings={"temperature": 0.5})
    run(spec)
    losses = [line["loss"] for line in read_log(spec.log.path)]
    assert len(losses) == 3  # the last batch of two is kept
    assert losses[0] > 0
    assert describe(spec.output).late_interaction == settings_of(spec).late_interaction


# The plan


SCRIPT = {
    "loss": "distillation",
    "dimension": 128,
    "query_length": 32,
    "document_length": 180,
    "expansion": True,
    "attends_to_expansion": False,
    "documents": 32,
    "temperature": 1.0,
    "learning_rate": 8e-5,
    "batch_size": 16,
    "epochs": 1,
    "max_steps": None,
    "weight_decay": 0.0,
    "decay_all": False,
    "betas": (0.9, 0.999),
    "eps": 1e-8,
    "warmup": 0.05,
    "schedule": "linear",
    "clip": 1.0,
    "precision": "bfloat16",
    "batches": "shuffled",
    "last_batch": "kept",
    "chunk": 0,
}
"""Typed from ModernBERT's script and the defaults of PyLate and of transformers' trainer."""

CONTRAST = {
    **SCRIPT,
    "loss": "contrastive",
    "learning_rate": 3e-6,
    "batch_size": 32,
    "warmup": 0.0,
    "batches": "no_duplicates",
    "chunk": 32,
}
"""Typed from PyLate's example of a contrastive training."""


@pytest.mark.parametrize(("variant", "typed"), [("", SCRIPT), ("contrastive", CONTRAST)])
def test_every_setting_is_that_of_the_source(variant: str, typed: dict[str, Any]) -> None:
    assert asdict(colbert.RECIPE.settings[variant]) == typed


def test_the_plan_is_the_model_that_training_writes(
    make: Callable[..., TrainingSpec], scored: LocatedTraining
) -> None:
    spec = make()
    planned = recipe_of(spec).plan(spec.backbone, spec.data, seed=7)
    assert (planned.steps, planned.texts) == (3, 12 * 4)
    run(spec)
    made = describe(spec.output)
    assert resolve_encoding(made, Settings()) == resolve_encoding(
        replace(planned.description, folder=spec.output), Settings()
    )
    assert planned.lineage.data[0]["texts"] == ["queries", "documents"]
    assert scored.data.form == "query with scored documents"


def test_texts_that_were_trained_on_are_known(make: Callable[..., TrainingSpec], bert: Path) -> None:
    spec = make()
    run(spec)
    write_text_hashes(spec.data, spec.output, parent=bert, cache=spec.cache)
    known = read_text_hashes(spec.output)
    assert known is not None
    content = scored_data.tables()
    used = {name for names in content["train"]["document_ids"] for name in names}
    assert len(known) == 12 + len(used)
    assert count_trained([scored_data.sentence(3), "never seen"], known) == 1


# Bad input


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"documents": 1}, "documents is 1"),
        ({"query_length": 3}, "query_length is 3"),
        ({"dimension": 0}, "dimension is 0"),
        ({"batches": "no_duplicates"}, "duplicates need not be kept apart"),
        ({"document_length": 100_000}, "positions for 64 tokens"),
        ({"temperature": 0.5}, "temperature is 0.5, which changes nothing in the distillation loss"),
        ({"loss": "contrastive"}, "documents is 3, which changes nothing in the contrastive loss"),
        ({"expansion": False, "attends_to_expansion": True}, "queries are not filled up"),
    ],
)
def test_settings_that_no_training_can_have(
    make: Callable[..., TrainingSpec], settings: dict[str, Any], said: str
) -> None:
    def plan() -> None:
        spec = make(settings=settings)
        recipe_of(spec).plan(spec.backbone, spec.data, seed=7)

    with pytest.raises(UsageError, match=said):
        plan()


def test_data_of_another_form_is_refused(
    make: Callable[..., TrainingSpec], scored: LocatedTraining, tmp_path: Path
) -> None:
    file = tmp_path / "pairs.jsonl"
    file.write_text('{"query": "a cat", "positive": "the cat"}\n' * 4)
    pairs = locate_user_training(str(file), DataSettings(cache=tmp_path / "cache"))
    spec = make()
    with pytest.raises(UsageError, match="harness data score") as caught:
        recipe_of(spec).plan(spec.backbone, (pairs,), seed=7)
    assert "no documents with a teacher's scores (each row is a pair)" in caught.value.message
    other = make(variant="contrastive")
    with pytest.raises(UsageError, match="has scores in each row"):
        recipe_of(other).plan(other.backbone, (scored,), seed=7)


def test_rows_with_too_few_documents_are_named(make: Callable[..., TrainingSpec]) -> None:
    with pytest.raises(HarnessError, match="row 1 has 3 documents, and 4") as caught:
        run(make(settings={"documents": 4}))
    assert caught.value.hint == "Type --set documents=3."


def test_without_pylate_the_plan_says_what_to_install(
    make: Callable[..., TrainingSpec], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pylate", None)
    spec = make()
    with pytest.raises(UsageError, match="--recipe colbert needs pylate") as caught:
        recipe_of(spec).plan(spec.backbone, spec.data, seed=7)
    assert caught.value.hint == "Type pip install 'encoder-harness[colbert]'."


def test_a_start_with_other_vectors_is_refused(make: Callable[..., TrainingSpec], pylate: Path) -> None:
    spec = make(settings={"dimension": 8}, backbone=tiny_artifact(pylate))
    with pytest.raises(UsageError, match="16 dimensions") as caught:
        recipe_of(spec).plan(spec.backbone, spec.data, seed=7)
    assert "--set dimension=16" in (caught.value.hint or "")


def test_a_start_may_have_extra_tensors_that_are_allowed(
    make: Callable[..., TrainingSpec], pylate: Path, tmp_path: Path
) -> None:
    from safetensors.torch import load_file, save_file

    folder = tmp_path / "extra"
    shutil.copytree(pylate, folder)
    tensors = {**load_file(folder / "model.safetensors"), "more.weight": torch.ones(3)}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    spec = make(backbone=replace(tiny_artifact(folder), allow=("tensors=more.weight",)))
    assert len(ColBERTSetup(settings_of(spec)).build_model(spec)) == 2


def test_constant_scores_are_counted(make: Callable[..., TrainingSpec], tmp_path: Path) -> None:
    content = scored_data.tables()
    content["train"]["scores"][2] = [0.5, 0.5, 0.5]
    folder = scored_data.write(tmp_path / "constant", content)
    spec = make(data=(locate_user_training(str(folder), DataSettings(cache=tmp_path / "cache")),))
    run(spec)
    said = (spec.folder / training.EVENTS).read_text()
    assert "1 of 12 queries have one score for all documents" in said
    assert all(np.isfinite(line["loss"]) for line in read_log(spec.log.path))
