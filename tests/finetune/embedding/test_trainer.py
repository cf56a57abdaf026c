"""Training of embedding models: the library's steps, exact resumption, and errors."""

from __future__ import annotations

import contextlib
import json
import math
import shutil
import sys
import traceback
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch
from datasets import Dataset
from safetensors.torch import load_file
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.data import DataLoader
from transformers.trainer_callback import CallbackHandler

import tiny
from finetune.embedding import setups
from finetune.embedding import trainer as module
from finetune.embedding.plan import EmbeddingRecipe
from finetune.embedding.settings import EmbeddingSettings, SuggestedRows, info_nce
from finetune.embedding.setups import BatchOrder, EmbeddingSetup, hash_table_texts
from finetune.embedding.trainer import run_trainer
from finetune.gpu_steps import PassSize
from finetune.recipes import dpr
from finetune.recipes.simcse import RECIPE
from harness.core.errors import HarnessError
from harness.core.provenance import forbid_network
from harness.core.types import Artifact
from harness.data.training.sets import LocatedTraining
from harness.encoder import backbones
from harness.encoder.folder.description import describe
from harness.encoder.sentence_transformer import SentenceTransformer
from harness.training import training
from harness.training.training import TrainingSpec, read_log
from small_trainings import largest_difference, located, spec_in, tiny_artifact, weights_in
from stopped_trainings import Killed, sentence, train_on_devices

SETTINGS = EmbeddingSettings(
    batch_size=8, epochs=3, max_length=16, learning_rate=1e-3, precision="float32", evaluate_every=4
)


def triplets(rows: int) -> dict[str, list[str]]:
    names = ("anchor", "positive", "negative")
    return {name: [sentence(at * 1000 + n) for n in range(rows)] for at, name in enumerate(names)}


@pytest.fixture(scope="module")
def backbone(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    """A tiny BERT with dropout."""
    folder = tiny.folder(tiny.families()["bert"], tmp_path_factory.mktemp("backbone") / "tiny")
    config = json.loads((folder / "config.json").read_text())
    config |= {"hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1}
    (folder / "config.json").write_text(json.dumps(config))
    return tiny_artifact(folder)


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> LocatedTraining:
    return located(tmp_path_factory.mktemp("rows"), triplets(67))


@pytest.fixture
def make(backbone: Artifact, rows: LocatedTraining, tmp_path: Path) -> Callable[..., TrainingSpec]:
    """A spec in a folder of its own; settings and fields of the spec may be given."""

    def made(name: str = "run", settings: Mapping[str, Any] | None = None, **fields: Any) -> TrainingSpec:
        recipe = RECIPE.open("mean", replace(SETTINGS, **(settings or {})))
        return spec_in(tmp_path, recipe, name, **{"backbone": backbone, "data": (rows,), **fields})

    return made


def settings_of(spec: TrainingSpec) -> EmbeddingSettings:
    assert isinstance(spec.recipe, EmbeddingRecipe)
    return spec.recipe.settings


def run(spec: TrainingSpec) -> dict[str, torch.Tensor]:
    """The weights after a training in this process."""
    settings = settings_of(spec)
    run_trainer(spec, settings, EmbeddingSetup(settings, info_nce, caches=True))
    return weights_in(spec.output)


# Against the library


def plain(spec: TrainingSpec, target: Path, batches: list[list[int]]) -> list[float]:
    """The training as a script with the library's trainer, on the same batches."""
    from sentence_transformers import (
        SentenceTransformer,
        SentenceTransformerTrainer,
        SentenceTransformerTrainingArguments,
        losses,
        models,
    )
    from transformers import TrainerCallback

    found: list[float] = []

    class Losses(TrainerCallback):
        def on_log(self, *_: Any, logs: dict[str, float], **__: Any) -> None:
            found.extend([logs["loss"]] if "loss" in logs else [])

    class Trainer(SentenceTransformerTrainer):
        def get_train_dataloader(self) -> Any:
            data = self.train_dataset
            loader = torch.Generator()
            return DataLoader(data, batch_sampler=batches, collate_fn=self.data_collator, generator=loader)

    body = models.Transformer(str(spec.backbone.folder), max_seq_length=16)
    model = SentenceTransformer(modules=[body, models.Pooling(32, "mean")], device="cpu")
    data = Dataset.from_parquet(str(spec.data[0].file))
    arguments = SentenceTransformerTrainingArguments(
        output_dir=str(target),
        max_steps=len(batches),
        learning_rate=1e-3,
        per_device_train_batch_size=8,
        use_cpu=True,
        logging_steps=1,
        save_strategy="no",
        report_to="none",
        seed=spec.seed,
    )
    Trainer(
        model=model,
        args=arguments,
        train_dataset=data,
        loss=losses.MultipleNegativesRankingLoss(model, scale=20.0),
        callbacks=[Losses()],
    ).train()
    model.save(str(target / "model"))
    return found


@pytest.fixture
def of_library(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have transformers' own class of the backbone trained in place of our network."""
    from sentence_transformers import SentenceTransformer

    monkeypatch.setattr(setups, "SentenceTransformer", SentenceTransformer)


@pytest.mark.usefixtures("of_library")
def test_steps_are_those_of_the_library(make: Callable[..., TrainingSpec], tmp_path: Path) -> None:
    """Thirty steps with dropout, without our network: the weights and losses of a plain script."""
    spec = make(settings={"epochs": 4})
    order = BatchOrder(67, 8, epochs=4, seed=7)
    ours = run(spec)
    losses = plain(spec, tmp_path / "plain", [batch.tolist() for batch in order.iter_batches(0)])
    theirs = load_file(tmp_path / "plain" / "model" / "model.safetensors")
    assert order.steps == len(losses) == 32
    assert largest_difference({n.removeprefix("/"): t for n, t in ours.items()}, theirs) <= 1e-6
    assert [line["loss"] for line in read_log(spec.folder / "log.jsonl")] == pytest.approx(losses, abs=1e-6)


@pytest.fixture(scope="module")
def calm(backbone: Artifact, tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    """The same BERT without dropout."""
    folder = tmp_path_factory.mktemp("calm") / "tiny"
    shutil.copytree(backbone.folder, folder)
    config = json.loads((folder / "config.json").read_text())
    none = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    (folder / "config.json").write_text(json.dumps(config | none))
    return replace(backbone, folder=folder)


def script_step(
    folder: Path, columns: Mapping[str, list[str]], *, size: int, chunk: int
) -> tuple[float, dict[str, torch.Tensor]]:
    """The loss and the gradient of a script with sentence-transformers that accumulates batches of `size`."""
    from sentence_transformers import SentenceTransformer, losses, models

    model = SentenceTransformer(
        modules=[models.Transformer(str(folder)), models.Pooling(32, "mean")], device="cpu"
    ).train()
    cached, plain = losses.CachedMultipleNegativesRankingLoss, losses.MultipleNegativesRankingLoss
    loss = cached(model, mini_batch_size=chunk) if chunk else plain(model)
    batches = len(next(iter(columns.values()))) // size
    total = 0.0
    for at in range(batches):
        texts = [column[at * size : (at + 1) * size] for column in columns.values()]
        found = loss([model.tokenize(part) for part in texts], torch.empty(0)) / batches
        found.backward()
        total += float(found.detach())
    return total, {name: one.grad for name, one in model.named_parameters() if one.grad is not None}


@pytest.mark.usefixtures("of_library")
@pytest.mark.parametrize(
    ("variant", "rows", "group", "chunk"),
    [
        ("", 512, None, 16),
        ("authors", 4 * 64, 64, 48),
        ("authors", 8 * 16, 16, 0),
        ("authors", 8 * 16, 16, 40),
        ("paper", 16, None, 0),
        ("ettin", 768, None, 256),
    ],
)
def test_a_step_of_each_reading_of_dpr_is_that_of_a_script(
    calm: Artifact, tmp_path: Path, variant: str, rows: int, group: int | None, chunk: int
) -> None:
    """The loss and the gradient of the library's own losses, groups as accumulated batches.

    AdamW's first moment after one step is a tenth of the gradient.
    """
    columns = triplets(rows)
    settings = replace(
        dpr.RECIPE.settings[variant], batch_size=rows, chunk=chunk, clip=0.0, precision="float32"
    )
    if group is not None:
        settings = replace(settings, group_size=group)
    recipe, data = dpr.RECIPE.open(variant, settings), located(tmp_path / "rows", columns)
    spec = spec_in(tmp_path, recipe, "ours", backbone=calm, data=(data,), minutes=0)
    trainer = module._Trainer(spec, settings, EmbeddingSetup(settings, info_nce, caches=True))
    trainer.run()
    assert trainer.optimizer is not None
    moments = {name: trainer.optimizer.state[one] for name, one in trainer.model.named_parameters()}
    texts = hash_table_texts([columns], [*columns])
    order = BatchOrder(rows, rows, epochs=1, seed=7, texts=texts, group=group, keeps_last=True)
    (batch,) = order.iter_batches(0)
    ordered = {name: [values[at] for at in batch] for name, values in columns.items()}
    loss, gradient = script_step(calm.folder, ordered, size=group or rows, chunk=chunk)
    assert read_log(spec.folder / "log.jsonl")[0]["loss"] == pytest.approx(loss, abs=1e-6)
    assert len(gradient) > 20
    for name, theirs in gradient.items():
        torch.testing.assert_close(moments[name]["exp_avg"] / 0.1, theirs, atol=1e-6, rtol=0)


@pytest.mark.parametrize("micro_batch", [None, 3])
def test_the_loss_is_that_of_a_loop_in_float64(
    make: Callable[..., TrainingSpec], micro_batch: int | None
) -> None:
    """Of each anchor, the cross-entropy of its positive among all positives and negatives of the batch."""
    spec = make()
    model = EmbeddingSetup(settings_of(spec), info_nce, caches=True).build_model(spec).eval()
    texts = list(triplets(8).values())
    features = [model.tokenize(column) for column in texts]
    found = info_nce(model, settings_of(spec), micro_batch=micro_batch, gather=False)(features, None)
    anchors, *candidates = (
        model.encode(column, convert_to_numpy=True).astype(np.float64) for column in texts
    )
    total = 0.0
    for at, anchor in enumerate(anchors):
        cosines = [
            float(anchor @ vector) / math.sqrt(float(anchor @ anchor) * float(vector @ vector))
            for vector in np.concatenate(candidates)
        ]
        total -= 20 * cosines[at] - math.log(sum(math.exp(20 * cosine) for cosine in cosines))
    assert float(found.detach()) == pytest.approx(total / 8, abs=1e-6)


# Batches


@pytest.mark.parametrize("alike", [None, 5])
def test_an_order_depends_on_seed_epoch_and_step_alone(alike: int | None) -> None:
    """An epoch has each row at most once; of rows that share a text, a batch has one."""
    texts = None
    if alike:
        shared = {"anchor": [f"{n // alike}" for n in range(200)], "positive": [f"p{n}" for n in range(200)]}
        texts = hash_table_texts([shared], ["anchor", "positive"])

    def order(seed: int) -> list[tuple[int, ...]]:
        made = BatchOrder(200, 16, epochs=3, seed=seed, texts=texts)
        whole = [tuple(batch.tolist()) for batch in made.iter_batches(0)]
        assert len(whole) == made.steps
        assert made.count_epochs(0) == 0
        assert made.count_epochs(made.steps) == 3
        for done in range(made.steps):
            assert tuple(next(made.iter_batches(done)).tolist()) == whole[done]
        return whole

    orders = [order(seed) for seed in (0, 1, 2)]
    assert order(0) == orders[0]
    assert len({tuple(found) for found in orders}) == 3
    for found in orders:
        epoch = found[:12] if not alike else found[: len(found) // 3]
        assert len({row for batch in epoch for row in batch}) == 16 * len(epoch)
        assert set(epoch) != set(found[len(epoch) : 2 * len(epoch)])
        if alike:
            assert all(len({row // alike for row in batch}) == 16 for batch in found)


@pytest.mark.parametrize("queries", [4, 12, 2_000])
def test_an_order_without_duplicates_is_that_of_a_loop(queries: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Group after group takes the first rows that fit, out of those that are left; an epoch is built once."""
    draw = np.random.default_rng(0)
    texts = np.stack([draw.integers(0, queries, 500), draw.integers(2_000, 9_000, 500)], 1).astype(np.uint64)
    left = np.random.default_rng([5, 0]).permutation(500).tolist()
    generator, drawn = np.random.default_rng, list[Any]()
    monkeypatch.setattr(np.random, "default_rng", lambda seed: drawn.append(seed) or generator(seed))
    order = BatchOrder(500, 16, epochs=1, seed=5, texts=texts, group=8, keeps_last=True)
    wanted = list[int]()
    group = list[int](range(8))
    while len(group) == 8:
        group = []
        for row in left:
            if len(group) < 8 and not any({*texts[row]} & {*texts[other]} for other in group):
                group.append(row)
        left = [row for row in left if row not in group]
        wanted += group
    assert [row for batch in order.iter_batches(0) for row in batch.tolist()] == wanted
    assert drawn == [[5, 0]]


@pytest.mark.parametrize("keeps", [False, True])
def test_a_batch_of_groups(keeps: bool) -> None:
    """Rows that share a text are in different groups, perhaps of one batch; the last one is kept if asked."""
    alike = {"anchor": [f"{n // 4}" for n in range(102)], "positive": [f"p{n}" for n in range(102)]}
    texts = hash_table_texts([alike], [*alike])
    order = BatchOrder(102, 32, epochs=2, seed=3, texts=texts, group=8, keeps_last=keeps)
    batches = [batch.tolist() for batch in order.iter_batches(0)]
    assert [order.count_batch_rows(step) for step in range(1, order.steps + 1)] == [
        len(batch) for batch in batches
    ]
    assert order.steps == (8 if keeps else 6)
    for batch in batches:
        for at in range(0, len(batch), 8):
            assert len({row // 4 for row in batch[at : at + 8]}) == len(batch[at : at + 8])
    assert any(len({row // 4 for row in batch}) < len(batch) for batch in batches)
    plain = BatchOrder(102, 32, epochs=2, seed=3, keeps_last=keeps)
    assert [plain.count_batch_rows(step) for step in range(1, plain.steps + 1)] == (
        [32, 32, 32, 6] if keeps else [32] * 3
    ) * 2
    assert {row for batch in plain.iter_batches(0) for row in batch.tolist()} == {*range(102)} or not keeps


# Resumption


@pytest.fixture
def kill(monkeypatch: pytest.MonkeyPatch) -> Callable[[TrainingSpec, int, str], None]:
    """Train until a step, and end there in the callback, while saving, or in the middle of writing a file."""

    def killed(spec: TrainingSpec, step: int, where: str) -> None:
        def die(own: Any, args: Any, state: Any, control: Any) -> Any:
            if state.global_step >= step:
                raise Killed
            return end(own, args, state, control)

        def tear(path: Path) -> None:
            if int(path.parent.name[-8:]) >= step:
                path.write_bytes(path.read_bytes()[:100])
                raise Killed

        end = CallbackHandler.on_step_end
        with monkeypatch.context() as patch:
            if where == "step":
                patch.setattr(CallbackHandler, "on_step_end", die)
            elif where == "before the marker":
                patch.setattr(module.Checkpoints, "finish", lambda *_, **__: (_ for _ in ()).throw(Killed))
            else:
                save = torch.save

                def half(state: Any, path: Path) -> None:
                    save(state, path)
                    tear(path)

                patch.setattr(module.torch, "save", half)
            with pytest.raises(Killed):
                run(spec)

    return killed


@pytest.mark.slow
def test_a_killed_training_ends_as_an_undisturbed_one(
    make: Callable[..., TrainingSpec], kill: Callable[[TrainingSpec, int, str], None]
) -> None:
    """In each epoch, while saving, and with a checkpoint damaged: the same bits, and a log without a gap."""
    undisturbed = run(make("whole"))
    spec = make("cut")
    for step, where in (
        (3, "step"),
        (11, "half a file"),
        (14, "step"),
        (1, "before the marker"),
        (21, "step"),
    ):
        kill(spec, step, where)
    newest = max(spec.checkpoints.glob("step-*"))
    state = newest / "state.pt"
    damaged = bytearray(state.read_bytes())
    damaged[len(damaged) // 2] ^= 1
    state.write_bytes(damaged)
    with mock.patch.object(training.TrainingLog, "note") as note:
        found = run(spec)
    assert any(newest.name in call.args[0] for call in note.call_args_list)
    assert all(torch.equal(found[name], tensor) for name, tensor in undisturbed.items())
    assert [line["step"] for line in read_log(spec.folder / "log.jsonl")] == list(range(1, 25))
    assert len(list(spec.checkpoints.iterdir())) == 2
    assert not (spec.folder / "model.new").exists()


def test_a_request_to_stop_leaves_a_checkpoint(make: Callable[..., TrainingSpec]) -> None:
    spec = make(minutes=60)
    training.STOP.set()
    try:
        settings = settings_of(spec)
        run_trainer(spec, settings, EmbeddingSetup(settings, info_nce, caches=True))
    finally:
        training.STOP.clear()
    assert not spec.output.exists()
    assert [path.name for path in spec.checkpoints.iterdir()] == ["step-00000001"]


# Several processes


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings", [{"batch_size": 64}, {"batch_size": 64, "group_size": 8, "last_batch": "kept", "chunk": 6}]
)
def test_two_processes_have_the_gradient_of_one(
    make: Callable[..., TrainingSpec], calm: Artifact, tmp_path: Path, settings: dict[str, Any]
) -> None:
    """AdamW's first moments, here without dropout; the second of two batches with groups is one of 3 rows."""

    def trained(name: str, devices: tuple[str, ...]) -> list[torch.Tensor]:
        fixed = {"epochs": 1, "clip": 0.0, "learning_rate": 1e-9}
        spec = make(name, fixed | settings, backbone=calm, devices=devices, minutes=0)
        train_on_devices(spec)
        state = torch.load(max(spec.checkpoints.glob("*/state.pt")), weights_only=True)
        found = state["optimizer"]["state"]
        return [found[at]["exp_avg"] / 0.1 for at in sorted(found)]

    one, two = trained("one", ("cpu",)), trained("two", ("cpu", "cpu"))
    assert len(one) == len(two) > 20
    for mine, other in zip(one, two, strict=True):
        torch.testing.assert_close(other, mine, atol=1e-5, rtol=0)
    alone, shared = (read_log(tmp_path / name / "log.jsonl") for name in ("one", "two"))
    assert alone[0]["tokens"] == shared[0]["tokens"]
    assert [line["loss"] for line in alone] == pytest.approx([line["loss"] for line in shared], abs=1e-6)
    assert len(alone) == 1 + ("last_batch" in settings)


# Selection


@pytest.mark.slow
def test_the_best_weights_are_restored_after_a_kill_too(
    make: Callable[..., TrainingSpec], kill: Callable[[TrainingSpec, int, str], None], tmp_path: Path
) -> None:
    from sentence_transformers import SentenceTransformer

    pairs: dict[str, list[Any]] = {
        "sentence1": [sentence(n) for n in range(40)],
        "sentence2": [sentence(1000 + 3 * n) for n in range(40)],
        "score": [float(n % 6) for n in range(40)],
    }
    dev = located(tmp_path / "dev", pairs, "score")
    undisturbed = run(make("whole", selection=(dev,)))
    spec = make("cut", selection=(dev,))
    kill(spec, 15, "step")
    found = run(spec)
    assert all(torch.equal(found[name], tensor) for name, tensor in undisturbed.items())
    scores = {line["step"]: line["score"] for line in read_log(spec.folder / "log.jsonl") if "score" in line}
    assert list(scores) == [4, 8, 12, 16, 20, 24]
    model = SentenceTransformer(str(spec.output), device="cpu")
    first, second = (model.encode(pairs[name], convert_to_tensor=True) for name in ("sentence1", "sentence2"))
    from scipy.stats import spearmanr

    own = spearmanr(torch.cosine_similarity(first, second), pairs["score"]).statistic
    assert own == pytest.approx(max(scores.values()), abs=1e-6)
    assert scores[24] < max(scores.values())


# What is left, and errors


def test_the_model_is_one_of_the_library(make: Callable[..., TrainingSpec]) -> None:
    """Attentive pooling is trained and saved; the length is the backbone's own, and the seed decides."""
    from sentence_transformers import SentenceTransformer

    spec = make(settings={"pooling": "attention", "heads": 4, "epochs": 1})
    found = run(spec)
    # Since 6.0 the library asks for the consent to import a module of ours.
    model = SentenceTransformer(str(spec.output), device="cpu", trust_remote_code=True)
    assert model.max_seq_length == 64
    assert model.similarity_fn_name == "cosine"
    assert float(found["1_AttentivePooling/query"].abs().max()) > 0
    assert model.encode(["the cat"]).shape == (1, 32)
    other = run(make("other", settings={"pooling": "attention", "heads": 4, "epochs": 1}, seed=8))
    assert largest_difference(found, other) > 1e-4
    line = read_log(spec.folder / "log.jsonl")[-1]
    assert line.keys() >= {"step", "epoch", "loss", "rate", "gradient_norm", "tokens", "seconds", "memory"}
    assert line["epoch"] == 1.0


@pytest.mark.slow
@pytest.mark.parametrize("family", ["neobert", "minilm"])
def test_other_backbones_are_trained_off_the_network(
    make: Callable[..., TrainingSpec], backbone: Artifact, tmp_path: Path, family: str
) -> None:
    """A family that transformers has no class for, and a real embedding model whose modules are replaced."""
    named = backbones.list_catalog_models()["minilm"]
    assert named.locate is not None
    made = (
        tiny.folder(tiny.families()["neobert"], tmp_path / "neo") if family == "neobert" else named.locate()
    )
    settings = {"epochs": 1, "batches": "no_duplicates", "precision": "float16", "max_length": 12}
    spec = make(settings=settings, backbone=replace(backbone, folder=Path(made)), threads=2)
    with forbid_network():
        run(spec)
    before, after = (describe(folder) for folder in (Path(made), spec.output))
    settings_of_training = {"pooling": "mean", "normalize": False, "lengths": after.lengths}
    assert after == replace(before, folder=spec.output, name=spec.output.name, **settings_of_training)
    vectors = SentenceTransformer(str(spec.output), device="cpu").encode(["the cat sat"])
    assert np.isfinite(vectors).all()
    notes = [json.loads(line) for line in (spec.folder / "events.jsonl").read_text().splitlines()]
    assert {"kind": "note", "text": "trained in float32: a CPU has no float16"} in notes


def test_a_loss_that_hides_weights_from_the_optimizer_is_refused(make: Callable[..., TrainingSpec]) -> None:
    class Hidden(torch.nn.Module):
        def __init__(self, model: Any) -> None:
            super().__init__()
            settings = replace(SETTINGS, scale=20.0, group_size=0)
            self.parts = (info_nce(model, settings, micro_batch=None, gather=False),)

        def forward(self, features: Any, labels: Any) -> Any:
            return self.parts[0](features, labels)

    spec = make()
    setup = EmbeddingSetup(settings_of(spec), lambda model, *_, **__: Hidden(model), caches=True)
    with pytest.raises(HarnessError, match=r"The loss Hidden leaves out .* of the model's weights"):
        run_trainer(spec, settings_of(spec), setup)
    assert not spec.output.exists()


def test_a_loss_that_is_not_finite_stops_the_training(make: Callable[..., TrainingSpec]) -> None:
    spec = make(settings={"learning_rate": 1e30, "clip": 0.0})
    with pytest.raises(HarnessError, match=r"The loss of step \d+ of 24 is not a finite number"):
        run(spec)
    assert 1 <= len(read_log(spec.folder / "log.jsonl")) < 24
    assert not spec.output.exists()


def test_a_batch_that_does_not_fit_is_told(
    make: Callable[..., TrainingSpec], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next process takes fewer rows in a pass, where the loss can."""
    forward = SentenceTransformer.forward

    def greedy(self: Any, features: Any, **options: Any) -> Any:
        if len(features["input_ids"]) > 4:
            raise torch.OutOfMemoryError
        return forward(self, features, **options)

    monkeypatch.setattr(SentenceTransformer, "forward", greedy)
    spec = make()
    with pytest.raises(HarnessError, match="A pass over 8 rows of 16 tokens does not fit into memory"):
        run(spec)
    said = json.loads((spec.folder / "events.jsonl").read_text().splitlines()[-1])
    assert said == {"kind": "memory", "rows": 8, "halves": True}
    run(replace(spec, micro_batch=4))


def test_too_few_rows_for_a_batch(make: Callable[..., TrainingSpec]) -> None:
    with pytest.raises(HarnessError, match="67 rows, which do not fill a batch of 68"):
        run(make(settings={"batch_size": 68}))


# Steps on a GPU, whose part in this is played by the CPU


@pytest.fixture
def behind(monkeypatch: pytest.MonkeyPatch) -> Callable[[bool], None]:
    """Have the trainer take the way of a GPU; no clock decides when losses are read."""

    def set_behind(value: bool = True) -> None:
        monkeypatch.setattr(module, "works_behind", lambda _device: value)
        # However slow the machine is.
        for limit in ("READ_SECONDS", "SLOW_SECONDS"):
            monkeypatch.setattr(module, limit, math.inf)

    return set_behind


def log_of(spec: TrainingSpec) -> list[dict[str, Any]]:
    lines = read_log(spec.folder / "log.jsonl")
    return [{n: v for n, v in line.items() if n not in ("seconds", "memory")} for line in lines]


class Waits(TorchDispatchMode):
    """Counts the calls that wait for a device, but for those of the network and of its files."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, function: Any, _types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function.__name__.startswith(("_local_scalar_dense", "nonzero")):
            codes = [frame.f_code for frame, _ in traceback.walk_stack(None)]
            frames = [f"{code.co_filename} {code.co_name}" for code in codes]
            # Since 6.0 the library's own cached loss looks for padding in each pass.
            apart = ("harness/encoder", "safetensors", "write_model", "losses/gradcache")
            self.count += not any(name in frame for name in apart for frame in frames)
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize("chunk", [0, 2])
def test_steps_on_a_gpu_are_those_of_the_cpu_and_wait_once_in_ten(
    make: Callable[..., TrainingSpec],
    behind: Callable[[bool], None],
    monkeypatch: pytest.MonkeyPatch,
    chunk: int,
) -> None:
    """The same weights and lines of the log with batches made ahead; losses are read together."""
    plain = make("plain", {"chunk": chunk}, minutes=60)
    weights, waited, tolist = run(plain), list[int](), torch.Tensor.tolist
    behind(True)

    def read(self: torch.Tensor) -> Any:
        if sys._getframe(1).f_code.co_filename == module.__file__:
            waited.append(len(self))
        return tolist(self)

    monkeypatch.setattr(torch.Tensor, "tolist", read)
    spec = make("ahead", {"chunk": chunk}, minutes=60)
    with Waits() as waits:
        found = run(spec)
    assert waited == [10, 10, 4]
    assert waits.count <= 2, "the loader's seed, and the mean loss of the whole training"
    assert log_of(spec) == log_of(plain)
    assert all(torch.equal(found[name], tensor) for name, tensor in weights.items())


def test_a_training_on_a_gpu_goes_on_exactly(
    make: Callable[..., TrainingSpec],
    kill: Callable[[TrainingSpec, int, str], None],
    behind: Callable[[bool], None],
) -> None:
    """Batches that were made ahead of a kill are made again, and a checkpoint has all losses before it."""
    behind(True)
    whole = make("whole", minutes=60)
    undisturbed, spec = run(whole), make("cut", minutes=0)
    for step in (3, 14):
        kill(spec, step, "step")
        assert [line["step"] for line in log_of(spec)] == list(range(1, step))
    found = run(spec)
    assert all(torch.equal(found[name], tensor) for name, tensor in undisturbed.items())
    assert log_of(spec) == log_of(whole)


def test_no_checkpoint_is_written_behind_a_loss_that_is_not_finite(
    make: Callable[..., TrainingSpec], behind: Callable[[bool], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is seen at the tenth step, or at a request to stop before, whose step has no checkpoint."""
    behind(True)
    spec = make(settings={"learning_rate": 1e30, "clip": 0.0}, minutes=60)
    with pytest.raises(HarnessError, match=r"The loss of step [23] of 24 is not a finite number"):
        run(spec)
    end = CallbackHandler.on_step_end

    def stop(own: Any, args: Any, state: Any, control: Any) -> Any:
        training.STOP.set() if state.global_step == 5 else None
        return end(own, args, state, control)

    monkeypatch.setattr(CallbackHandler, "on_step_end", stop)
    stopped = make("stopped", {"learning_rate": 1e30, "clip": 0.0}, minutes=60)
    try:
        with pytest.raises(HarnessError, match=r"The loss of step [23] of 24 is not a finite number"):
            run(stopped)
    finally:
        training.STOP.clear()
    assert not [*spec.checkpoints.glob("*"), *stopped.checkpoints.glob("*")]


def test_the_selection_is_scored_while_no_batch_is_made(
    make: Callable[..., TrainingSpec], behind: Callable[[bool], None], tmp_path: Path
) -> None:
    """Scoring cuts texts elsewhere than the training: scores and weights stay those of the CPU."""
    pairs: dict[str, list[Any]] = {
        "sentence1": [sentence(n) for n in range(40)],
        "sentence2": [sentence(1000 + 3 * n) for n in range(40)],
        "score": [float(n % 6) for n in range(40)],
    }
    fields = {"selection": (located(tmp_path / "dev", pairs, "score"),), "minutes": 60}
    plain, ahead = make("plain", {"max_length": 5}, **fields), make("ahead", {"max_length": 5}, **fields)
    weights = run(plain)
    behind(True)
    found = run(ahead)
    assert all(torch.equal(found[name], tensor) for name, tensor in weights.items())
    assert log_of(ahead) == log_of(plain)


@pytest.mark.parametrize("group", [0, 4])
def test_the_size_of_a_pass_changes_no_gradient(calm: Artifact, group: int) -> None:
    """In float64, without dropout: a text or all of a batch at once, of different lengths."""
    model = SentenceTransformer(str(calm.folder), device="cpu").double().train()
    features = [
        model.tokenize([text * (1 + at % 3) for at, text in enumerate(texts)])
        for texts in triplets(16).values()
    ]
    found = []
    for rows in (None, 1, 2, 8, 64):
        model.zero_grad()
        loss = info_nce(
            model, replace(SETTINGS, scale=20.0, group_size=group), micro_batch=rows, gather=False
        )
        loss([dict(one) for one in features], torch.empty(0)).backward()
        found.append({name: one.grad for name, one in model.named_parameters() if one.grad is not None})
    assert len(found[0]) > 20
    for other in found[1:]:
        for name, gradient in found[0].items():
            torch.testing.assert_close(other[name], gradient, atol=1e-13, rtol=1e-9)


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU with memory for 128 tokens in a pass."""

    def tokens(own: PassSize, lengths: Any) -> Any:
        own.tokens = 128
        return contextlib.nullcontext()

    monkeypatch.setattr(PassSize, "measure_first_step", tokens)


@pytest.mark.usefixtures("memory")
@pytest.mark.parametrize(("chunk", "sizes"), [(SuggestedRows(2), {2, 8}), (2, {2})])
def test_a_gpu_takes_more_rows_in_a_pass_than_a_recipe_and_those_that_a_user_sets(
    make: Callable[..., TrainingSpec],
    calm: Artifact,
    behind: Callable[[bool], None],
    kill: Callable[[TrainingSpec, int, str], None],
    monkeypatch: pytest.MonkeyPatch,
    chunk: int,
    sizes: set[int],
) -> None:
    seen = set[int]()
    forward = SentenceTransformer.forward

    def count(self: Any, features: Any, **options: Any) -> Any:
        seen.add(len(features["input_ids"]))
        return forward(self, features, **options)

    plain = make("plain", {"chunk": 2}, backbone=calm, minutes=60)
    run(plain)
    monkeypatch.setattr(SentenceTransformer, "forward", count)
    behind(True)
    spec = make("sized", {"chunk": chunk}, backbone=calm, minutes=0)
    kill(spec, 5, "step")
    run(spec)
    assert seen == sizes
    losses = [[line["loss"] for line in log_of(one)] for one in (spec, plain)]
    assert losses[0] == pytest.approx(losses[1], abs=1e-4)
    said = "up to 128 tokens in a pass, as the memory of the GPU allows, in place of 2 rows"
    assert (said in (spec.folder / "events.jsonl").read_text()) == (len(sizes) > 1)


def test_tf32_is_asked_for_on_a_gpu_alone(
    make: Callable[..., TrainingSpec], behind: Callable[[bool], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """float32 whose products a GPU rounds, in the process of the training."""
    asked = list[bool]()
    monkeypatch.setattr("transformers.training_args.is_torch_tf32_available", lambda: True)
    monkeypatch.setattr("transformers.training_args.enable_tf32", asked.append)
    for gpu, capability, precision in (
        (False, 8, "tf32"), (True, 8, "float32"), (True, 7, "tf32"), (True, 8, "tf32")
    ):  # fmt: skip
        behind(gpu)
        monkeypatch.setattr("torch.cuda.get_device_capability", lambda major=capability: (major, 0))
        spec = make(f"{gpu}{capability}{precision}", {"precision": precision})
        arguments = module._build_arguments(spec, settings_of(spec))
        assert not arguments.fp16
        assert not arguments.bf16
    assert asked == [True]
