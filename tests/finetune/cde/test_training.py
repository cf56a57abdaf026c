"""The recipe that trains two stages: its settings, its loss, its model, and two trainings in a row."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from transformers.trainer_callback import CallbackHandler

import harness
import tiny
import two_stage_models
from contextual_pairs import pairs_file
from finetune.cde.gradient_cache import split_features
from finetune.cde.plan import ContextualRecipe
from finetune.cde.training import RowPrefixes, TwoStageLoss, TwoStageSetup
from finetune.embedding.losses import InfoNCE, NegativeFilter
from finetune.embedding.settings import info_nce
from finetune.recipes import cde, cde_batching
from harness.core.errors import DataError, HarnessError, ModelError, UsageError
from harness.core.keys import read_document
from harness.core.types import Artifact
from harness.data.training.sets import LocatedTraining, TrainingData
from harness.encoder.folder.description import describe
from harness.encoder.sentence_transformer import SentenceTransformer
from harness.plan import catalog
from harness.training.training import TrainingSpec, read_log
from stopped_trainings import train_in_this_process, train_on_devices

SMALL: dict[str, Any] = {"entry": cde.RECIPE, "context_size": 6, "soft_prompts": 2, "chunk": 3}

FILES = ("model.safetensors", "text/model.safetensors", "context/model.safetensors")


def weights(spec: TrainingSpec) -> dict[str, torch.Tensor]:
    found = {name: load_file(spec.output / name) for name in FILES}
    return {f"{file}: {name}": one for file, state in found.items() for name, one in state.items()}


def test_numbers_are_those_of_the_sources() -> None:
    """NeoBERT, appendix G; the authors' command; the defaults of their code."""
    typed = {
        "batch_size": 512,
        "cluster_size": 512,
        "context_size": 512,
        "max_length": 512,
        "epochs": 3,
        "learning_rate": 5e-5,
        "warmup": 1000,
        "schedule": "linear",
        "weight_decay": 0.0,
        "scale": 50.0,
        "margin": 0.0,
        "precision": "bfloat16",
        "soft_prompts": 8,
        "pooled": "text",
        "rotary_from": "text",
        "sequence_dropout": 0.0,
        "tied": False,
        "replacement": False,
        "dropout": True,
        "group_size": 0,
        "iterations": 100,
        "starts": 3,
        "guide": "thenlper/gte-large@4bef63f39fcc5e2d6b0aae83089f307af4970164",
    }
    authors = {
        **typed,
        "epochs": 5,
        "learning_rate": 2e-5,
        "batch_size": 8 * 512,
        "group_size": 512,
        "warmup": 200 // 8,
        "schedule": "constant",
        "weight_decay": 0.01,
        "margin": None,
        "dropout": False,
        "replacement": True,
        "guide": cde_batching.GTR,
    }
    for variant, numbers in (("unsupervised", typed), ("supervised", typed), ("supervised-authors", authors)):
        settings = cde.RECIPE.settings[variant]
        assert {name: getattr(settings, name) for name in numbers} == numbers
    sizes = {name: catalog.open_recipe(f"cde:{name}").data[0].rows for name in ("unsupervised", "supervised")}  # type: ignore[union-attr]
    assert sizes == {"unsupervised": 238_998_494, "supervised": 1_695_819}


@pytest.mark.parametrize(
    ("variant", "steps", "warmup", "groups"),
    [
        ("unsupervised", 3 * (238_998_494 // 512), 1_000, 1),
        ("supervised", 3 * (1_695_819 // 512), 1_000, 1),
        ("supervised-authors", 5 * (1_695_819 // 512 // 8), 25, 8),
    ],
)
def test_the_steps_of_each_training(
    recipe: Callable[..., ContextualRecipe],
    backbone: Artifact,
    guide: Path,
    variant: str,
    steps: int,
    warmup: int,
    groups: int,
) -> None:
    """By hand: NeoBERT's batches of 512, and the authors' 8 GPUs with 512 pairs and a context each."""
    settings = cde.RECIPE.settings[variant]
    kept = {name: getattr(settings, name) for name in ("batch_size", "epochs", "warmup", "cluster_size")}
    opened = recipe(variant, **{**SMALL, **kept, "context_size": 40, "chunk": 0})
    (data,) = opened.data
    located = LocatedTraining(data=data, name=data.path, rows=data.rows)
    planned = opened.plan(backbone, [located], seed=7)
    assert planned.steps == steps
    assert f"groups of 512, and a warmup of {warmup:,} steps" in str(planned.notes)
    assert opened.settings.count_warmup_steps(steps) == warmup
    assert planned.texts == steps * groups * (2 * 512 + 40)
    assert opened.devices(8, backbone) == groups


@pytest.mark.parametrize(
    ("typed", "chain"),
    [
        ("cde", "cde:unsupervised+cde:supervised"),
        ("cde:authors", "cde:unsupervised+cde:supervised-authors"),
        ("dpr+cde:supervised", "dpr+cde:supervised"),
        ("simcse:mean", "simcse:mean"),
    ],
)
def test_a_recipe_may_stand_for_two_trainings(typed: str, chain: str) -> None:
    assert catalog.resolve_recipe_chain(typed) == chain


# The loss


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = two_stage_models.save(tmp_path_factory.mktemp("two") / "model", "bert", size=4, prompts=2)
    found: Any = SentenceTransformer(str(folder), device="cpu", local_files_only=True)
    return found.double().train()


def batch(model: Any, rows: int) -> tuple[list[Any], torch.Tensor]:
    """Tokenized queries, documents and context documents."""
    one, other = (two_stage_models.texts(rows, first=first) for first in (0, 50))
    features = [model[0].tokenize(one), model[0].tokenize(other), model[0].tokenize_context(other)]
    return features, torch.arange(rows)


def plain(model: Any, features: Any, rows: torch.Tensor, group: int, mask: Any) -> torch.Tensor:
    """Written out: each group's queries and documents behind the group's own documents."""
    module, total = model[0], torch.zeros((), dtype=torch.float64)
    for begin in range(0, len(rows), group):
        part = slice(begin, begin + group)
        cut = [{name: one[part] for name, one in column.items()} for column in features]
        order = torch.randperm(group)[: module.settings.size]
        context = module.compute_context_vectors({name: one[order] for name, one in cut[2].items()})
        queries, documents = (
            torch.nn.functional.normalize(module.compute_text_vectors(one, context)) for one in cut[:2]
        )
        for row in range(group):
            scores = [
                50 * (queries[row] @ documents[other])
                for other in range(group)
                if other == row or not mask(begin + row, begin + other)
            ]
            total = (
                total
                - torch.log_softmax(torch.stack(scores), 0)[
                    sum(1 for other in range(row) if not mask(begin + row, begin + other))
                ]
            )
    return total / len(rows)


@pytest.mark.parametrize(("group", "micro_batch", "filtered"), [(0, None, False), (0, 5, True), (4, 3, True)])
def test_the_loss_and_its_gradient_are_those_of_a_loop(
    model: Any, group: int, micro_batch: int | None, filtered: bool
) -> None:
    """In float64, without dropout: the order of contexts alone is drawn."""
    for one in model.modules():
        if isinstance(one, torch.nn.Dropout):
            one.p = 0.0
    model[0].settings = replace(model[0].settings, shuffle=False)
    features, rows = batch(model, 8)
    guide = torch.nn.functional.normalize(
        torch.randn(2, 8, 5, generator=torch.Generator().manual_seed(1)), dim=-1
    )
    cosines = guide[0] @ guide[1].T

    def masked(query: int, document: int) -> bool:
        return filtered and query != document and bool(cosines[query, document] >= cosines[query, query])

    negatives = NegativeFilter(vectors=lambda numbers: [column[list(numbers)] for column in guide])
    loss = TwoStageLoss(
        model,
        InfoNCE(negatives if filtered else None, 50.0),
        group=group,
        micro_batch=micro_batch,
        dtype=None,
        shared=False,
    )
    found = []
    for computed in (lambda: loss(features, rows), lambda: plain(model, features, rows, group or 8, masked)):
        model.zero_grad()
        torch.manual_seed(4)
        value = computed()
        value.backward()
        found.append(
            (value.detach(), {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None})
        )
    (value, gradients), (wanted, loop) = found
    assert float(value) == pytest.approx(float(wanted), abs=1e-6)
    assert gradients.keys() == loop.keys()
    for name, gradient in loop.items():
        assert torch.allclose(gradients[name], gradient, rtol=1e-5, atol=1e-7), name
    share = sum(masked(q, d) for q in range(8) for d in range(8) if q // (group or 8) == d // (group or 8))
    pairs = 8 * ((group or 8) - 1)
    assert loss.measures == ({"masked": pytest.approx(share / pairs)} if filtered else {})


def test_no_pass_has_more_texts_than_the_chunk(
    model: Any, make: Callable[..., TrainingSpec], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the context too, where it has more documents than the batch has rows."""
    spec = make(settings={**SMALL, "margin": None})
    settings = spec.recipe.settings  # type: ignore[attr-defined]
    setup = TwoStageSetup(settings, info_nce, RowPrefixes(spec, [{"": ("", "")}]), None, (), caches=True)
    passes = []
    for name in ("compute_context_vectors", "compute_text_vectors"):
        real = getattr(model[0], name)

        def counted(features: Any, *given: Any, real: Any = real) -> Any:
            passes.append(len(features["input_ids"]))
            return real(features, *given)

        monkeypatch.setattr(model[0], name, counted)
    features, rows = batch(model, 2)
    most = settings.compute_pass_size(2, None)
    setup.build_loss(model, micro_batch=most, gather=False)(features, rows).backward()
    assert most == settings.chunk == 3
    assert sorted(passes[:2]) == [1, 3], "the context of 4 documents"
    assert max(passes) == 3


def test_more_documents_than_places_are_drawn_and_fewer_repeated(model: Any) -> None:
    loss = TwoStageLoss(model, InfoNCE(None, 50.0), group=0, micro_batch=None, dtype=None, shared=False)
    for count, times in ((9, {1}), (4, {1}), (3, {1, 2}), (2, {2})):
        documents = {"input_ids": torch.arange(count)[:, None]}
        drawn = loss._draw_documents(documents)["input_ids"].flatten().tolist()
        assert len(drawn) == 4
        assert {drawn.count(one) for one in set(drawn)} == times
    assert len(split_features({"input_ids": torch.zeros(9, 1)}, 4)) == 3


# The training


@pytest.mark.slow
def test_the_model_is_the_planned_one_and_goes_on_where_it_was_killed(
    make: Callable[..., TrainingSpec], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = make("whole", SMALL)
    planned = whole.recipe.plan(whole.backbone, whole.data, seed=7)
    whole.recipe.train(whole)
    assert describe(whole.output) == replace(planned.description, folder=whole.output, name=whole.output.name)
    assert planned.texts == planned.steps * (8 * 2 + 6)  # type: ignore[operator]
    spec = make("cut", SMALL)
    real = CallbackHandler.on_step_end

    class Killed(BaseException):
        pass

    def die(own: Any, args: Any, state: Any, control: Any) -> Any:
        if state.global_step >= 5:
            raise Killed
        return real(own, args, state, control)

    with monkeypatch.context() as patch:
        patch.setattr(CallbackHandler, "on_step_end", die)
        with pytest.raises(Killed):
            spec.recipe.train(spec)
    spec.recipe.train(spec)
    undisturbed = weights(whole)
    start = make("start", {**SMALL, "epochs": 1, "learning_rate": 1e-30})
    start.recipe.train(start)
    unmoved = {name for name, one in weights(start).items() if torch.equal(one, undisturbed[name])}
    assert {name for name in unmoved if "pooler" not in name} == {"model.safetensors: null"}
    assert all(torch.equal(one, undisturbed[name]) for name, one in weights(spec).items())
    log = read_log(spec.folder / "log.jsonl")
    assert [line["step"] for line in log] == list(range(1, 15))
    assert len({line["masked"] for line in log}) > 1


def test_a_second_training_starts_from_the_first_model(
    make: Callable[..., TrainingSpec], recipe: Callable[..., ContextualRecipe]
) -> None:
    """Both stages and the null vector are where the first training left them, when nothing is learned."""
    first = make("first", {**SMALL, "epochs": 1})
    first.recipe.train(first)
    second = make("second", {**SMALL, "epochs": 1, "learning_rate": 1e-30, "variant": "supervised"})
    further = replace(second, backbone=replace(first.backbone, folder=first.output, name="first"))
    assert any(
        "already has two stages" in one
        for one in further.recipe.plan(further.backbone, further.data, seed=7).notes
    )
    further.recipe.train(further)
    there = weights(first)
    assert all(torch.equal(one, there[name]) for name, one in weights(further).items())
    assert describe(further.output) == replace(describe(first.output), folder=further.output)
    with pytest.raises(UsageError, match=r"soft_prompts = 2, and .* with 3") as caught:
        recipe(**{**SMALL, "soft_prompts": 3}).plan(further.backbone, further.data, seed=7)
    assert "--set soft_prompts=2" in (caught.value.hint or "")


def test_a_second_training_is_planned_for_the_first_model_before_that_is_there(
    make: Callable[..., TrainingSpec], recipe: Callable[..., ContextualRecipe]
) -> None:
    first = make("first", {**SMALL, "max_length": 12})
    found = first.recipe.plan(first.backbone, first.data, seed=7).description
    how: dict[str, Any] = {"seed": 7, "planned": found}
    second = recipe(**{**SMALL, "max_length": None}).plan(first.backbone, first.data, **how)
    assert second.description.max_length == 12
    with pytest.raises(UsageError, match=r"soft_prompts = 2, and .* with 3"):
        recipe(**{**SMALL, "soft_prompts": 3}).plan(first.backbone, first.data, **how)
    late = ["colbert:contrastive"] if find_spec("pylate") else []
    for single in ("simcse", "cde-batching", *late):
        training: Any = catalog.open_recipe(single)
        with pytest.raises(UsageError, match="has two stages, and"):
            training.plan(first.backbone, first.data, **how)


def test_pairs_for_less_than_one_batch_are_refused(
    make: Callable[..., TrainingSpec], recipe: Callable[..., ContextualRecipe]
) -> None:
    """Three sets of 7 pairs have one group of 4 each, and a batch of 16 has four groups."""
    first = make("first", SMALL)
    data = [replace(first.data[0], name=name, rows=7) for name in ("one", "two", "three")]
    asked = recipe(**{**SMALL, "batch_size": 16, "group_size": 4, "batches": "contextual"})
    with pytest.raises(DataError, match="3 groups of 4 pairs of one set, and a batch has 4"):
        asked.plan(first.backbone, data, seed=7)
    more = [*data, replace(data[0], name="four")]
    assert asked.plan(first.backbone, more, seed=7).steps == asked.settings.epochs


@pytest.mark.slow
def test_two_processes_have_groups_of_their_own(make: Callable[..., TrainingSpec], tmp_path: Path) -> None:
    losses = {}
    for name, devices in (("one", ("cpu",)), ("two", ("cpu", "cpu"))):
        settings = {
            **SMALL,
            "epochs": 1,
            "group_size": 4,
            "context_size": 4,
            "dropout": False,
            "shuffle": False,
        }
        spec = make(name, settings, devices=devices, cache=tmp_path / f"cache-{name}")
        train_on_devices(spec)
        losses[name] = read_log(spec.folder / "log.jsonl")
    for name in ("loss", "masked", "gradient_norm"):
        found = [[line[name] for line in losses[devices]] for devices in ("one", "two")]
        assert found[0] == pytest.approx(found[1], rel=1e-3, abs=1e-5)
    assert len(losses["one"]) == len(losses["two"]) == 7


@pytest.mark.parametrize(
    ("settings", "kind", "said"),
    [
        ({"context_size": 60}, ModelError, "need more positions than the 64"),
        ({"pooling": "cls"}, UsageError, "pooling is cls"),
        ({"last_batch": "kept"}, UsageError, "last_batch is kept"),
        ({"context_size": 0}, UsageError, "context_size is 0"),
        ({"sequence_dropout": 1.0}, UsageError, "sequence_dropout is 1"),
    ],
)
def test_what_no_training_can_have(
    recipe: Callable[..., ContextualRecipe],
    backbone: Artifact,
    tmp_path: Path,
    settings: dict[str, Any],
    kind: type[HarnessError],
    said: str,
) -> None:
    with pytest.raises(kind, match=said):
        recipe(**{**SMALL, **settings}).plan(backbone, [pairs_file(tmp_path / "rows", 60)], seed=1)


def test_a_small_batch_repeats_its_documents_and_says_so(
    recipe: Callable[..., ContextualRecipe], backbone: Artifact, tmp_path: Path
) -> None:
    data = [pairs_file(tmp_path / "rows", 60)]
    notes = recipe(**{**SMALL, "context_size": 16}).plan(backbone, data, seed=1).notes
    assert any("--set context_size=8 has each of them once" in note for note in notes)
    assert not any("context_size" in note for note in recipe(**SMALL).plan(backbone, data, seed=1).notes)


@pytest.mark.slow
def test_both_trainings_in_one_command(tmp_path: Path, guide: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two mixes of the user's own, one model after the other by key, and only what is missing is made."""
    train_in_this_process(monkeypatch)
    backbone = tiny.folder(tiny.families()["bert"], tmp_path / "tiny")
    files = [
        pairs_file(
            tmp_path / name,
            rows,
            texts=lambda at, shift=shift: " ".join(
                tiny.WORDS[(at // 5**n + shift) % len(tiny.WORDS)] for n in range(4)
            ),
        )
        for shift, (name, rows) in enumerate((("one", 40), ("two", 41), ("three", 42)))
    ]
    noisy, other, clean = [str(one.file) for one in files]
    settings = {
        **{name: value for name, value in SMALL.items() if name != "entry"},
        **{"batch_size": 8, "cluster_size": 8, "epochs": 1, "max_length": 16, "precision": "float32"},
        **{"warmup": 0.0, "dimensions": 8, "guide": str(guide)},
    }
    how: dict[str, Any] = {
        "recipe": "cde",
        "recipe_settings": settings,
        "results": tmp_path / "results",
        "offline": True,
        "threads": 1,
    }
    with pytest.raises(UsageError, match="has several") as caught:
        harness.train(str(backbone), train_data=[clean], **how)
    assert "--train-data cde:unsupervised=" in (caught.value.hint or "")
    data = [f"unsupervised={noisy}", f"unsupervised={other}", f"supervised={clean}"]
    harness.train(str(backbone), train_data=data, **how)
    documents = [
        read_document(path.parent) for path in sorted((tmp_path / "results" / "models").glob("*/model.json"))
    ]
    by_variant = {one.lineage.variant: one for one in documents if one is not None}
    assert by_variant.keys() == {"unsupervised", "supervised"}
    first, second = by_variant["unsupervised"], by_variant["supervised"]
    assert len(first.lineage.data) == 2
    assert len(second.lineage.data) == 1
    assert second.lineage.parents[0].artifact == first.lineage.key
    again = harness.train(str(backbone), train_data=data, **how)
    assert len([*(tmp_path / "results" / "models").glob("*/model.json")]) == 2
    assert again is not None


def test_the_data_has_pinned_revisions() -> None:
    for data in (cde.UNSUPERVISED, cde.SUPERVISED):
        assert isinstance(data, TrainingData)
        assert len(data.revision) == 40
        assert data.columns == ("query", "document")
