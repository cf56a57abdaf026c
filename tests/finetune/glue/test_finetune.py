"""The plain recipe `finetune`: transformers' Trainer step by step, classifiers that are kept, predictions."""

from __future__ import annotations

import csv
import json
import re
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import load_file
from transformers import (
    AutoModelForSequenceClassification,
    AutoTokenizer,
    DataCollatorWithPadding,
    GPT2Config,
    GPT2ForSequenceClassification,
    Trainer,
    TrainingArguments,
    pipeline,
    set_seed,
)

import glue_data
import harness
import tiny
from finetune.glue.model import Classifier
from finetune.glue.rows import TokenizedRows, adapt_trial, load_tokenizer
from finetune.recipes.finetune import PROTOCOL
from harness.cli import invoke
from harness.driver.report.run import Report
from harness.training.training import read_log
from suites.glue import TASKS

SETTINGS = {"learning_rate": 1e-3, "batch_size": 8, "weight_decay": 0.1, "epochs": 5, "max_length": 24}
"""With 80 rows that is 50 steps."""


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """GLUE with test splits, whose labels are -1 as on the hub."""
    root = glue_data.data_root(tmp_path_factory.mktemp("data"), train=80)
    place = root / "nyu-mll" / "glue"
    configs = []
    for task in TASKS.values():
        tests = [split.replace("validation", "test") for split in task.dev]
        for number, split in enumerate(tests):
            columns = dict(glue_data.columns(task, 20, seed=7 + number))
            columns["label"] = [-1.0 if task.classes == 1 else -1] * 20
            pq.write_table(pa.table(columns), place / task.subset / f"{split}.parquet")
        configs.append((task.subset, ["train", *task.dev, *tests]))
    (place / "README.md").write_text(glue_data.card(configs))
    return root


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Labelled rows of one's own, in pairs, with labels that are words."""
    place = tmp_path_factory.mktemp("own") / "tickets"
    place.mkdir()
    columns = glue_data.columns(TASKS["MNLI"], 104, seed=3)
    names = ("billing", 'hard "ware"', "other, or none")
    rows = [
        {"id": f"t{n}", "a": a, "b": b, "queue": names[label]}
        for n, (a, b, label, _) in enumerate(zip(*columns.values(), strict=True))
    ]
    for name, part in (("train", rows[:80]), ("dev", rows[80:])):
        (place / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in part))
    (place / "harness.toml").write_text(
        '[[task]]\nname = "tickets"\ntype = "fine-tuned-classification"\n'
        'columns = { text1 = "a", text2 = "b", label = "queue" }\n'
    )
    return place


@pytest.fixture(scope="module", params=["bert", "modernbert"])
def backbone(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tiny.folder(tiny.families()[request.param], tmp_path_factory.mktemp("models") / request.param)
    content = json.loads((folder / "config.json").read_text())
    shares = {name: 0.1 for name in content if name.endswith(("dropout", "dropout_prob"))}
    (folder / "config.json").write_text(json.dumps({**content, **shares}))
    return folder


def finetune(model: Path, suite: str, place: Path, **more: Any) -> Report:
    return harness.run(
        str(model),
        suite,
        recipe="finetune",
        results=place / "results",
        cache=place / "cache",
        offline=True,
        workers=1,
        threads=1,
        **more,
    )


def list_row_order(count: int) -> list[int]:
    """The rows of every batch of our run, one after the other."""
    trial = replace(
        PROTOCOL.list_trials("RTE")[0], batch_size=SETTINGS["batch_size"], epochs=SETTINGS["epochs"]
    )
    rows = TokenizedRows(columns={}, starts=torch.zeros(count + 1), labels=torch.zeros(count), fill={})
    return [int(row) for batch in rows.iter_row_batches(trial) for row in batch]


def train_by_transformers(
    backbone: Path, texts: Sequence[Sequence[str]], labels: Sequence[int], target: Path
) -> tuple[list[float], Any]:
    """The losses of the Trainer with the same settings, rows in the order of ours, and its model."""
    tokenizer = AutoTokenizer.from_pretrained(backbone)
    encoded = tokenizer(*map(list, texts), truncation=True, max_length=SETTINGS["max_length"])
    rows = [{**{n: encoded[n][at] for n in encoded}, "labels": label} for at, label in enumerate(labels)]
    losses: list[float] = []

    class Recorded(Trainer):
        def _get_train_sampler(self, *_args: Any) -> Any:
            return torch.utils.data.SequentialSampler(self.train_dataset)

        def compute_loss(self, *args: Any, **kwargs: Any) -> Any:
            if not losses:
                # Data loaders draw from torch's random state before the first step, and ours does not.
                torch.manual_seed(42)
            loss = super().compute_loss(*args, **kwargs)
            losses.append(loss.item())
            return loss

    arguments = TrainingArguments(
        output_dir=str(target),
        learning_rate=SETTINGS["learning_rate"],
        per_device_train_batch_size=SETTINGS["batch_size"],
        weight_decay=SETTINGS["weight_decay"],
        num_train_epochs=1,
        seed=42,
        save_strategy="no",
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
    )
    set_seed(42)
    model = AutoModelForSequenceClassification.from_pretrained(backbone, num_labels=len(set(labels)))
    # All epochs in one, since the order of the rows is that of ours.
    in_order = [rows[at] for at in list_row_order(len(rows))]
    collator = DataCollatorWithPadding(tokenizer)
    Recorded(model=model, args=arguments, train_dataset=in_order, data_collator=collator).train()
    return losses, model.eval()


def read_losses(model: Path) -> list[float]:
    return [line["loss"] for line in read_log(model / "training" / "log.jsonl")]


def find_classifiers(place: Path) -> dict[str, Path]:
    """The kept models by their names."""
    return {path.name.rpartition("-")[0]: path for path in (place / "results" / "models").iterdir()}


def test_fifty_losses_on_rte_are_the_trainers_and_the_classifier_opens_in_transformers(
    backbone: Path, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = finetune(backbone, "glue", tmp_path, data=data, tasks="RTE", recipe_settings=SETTINGS)
    (record,) = report.records
    (folder,) = find_classifiers(tmp_path).values()
    columns = glue_data.columns(TASKS["RTE"], 80, seed=0)
    texts = [columns[name] for name in TASKS["RTE"].columns]
    losses, theirs = train_by_transformers(backbone, texts, columns["label"], tmp_path / "theirs")
    ours = read_losses(folder)
    assert len(ours) == len(losses) == 50
    assert max(abs(one - other) for one, other in zip(ours, losses, strict=True)) <= 1e-5
    assert len(set(ours)) == 50
    opened = AutoModelForSequenceClassification.from_pretrained(folder)
    assert type(opened) is type(theirs)
    assert opened.config.id2label == {0: "entailment", 1: "not_entailment"}
    for (name, one), other in zip(opened.named_parameters(), theirs.parameters(), strict=True):
        assert (one - other).abs().max() <= 1e-4, name
    classify = pipeline("text-classification", model=str(folder), device="cpu")
    dev = glue_data.columns(TASKS["RTE"], 24, seed=1)
    pairs = [{"text": a, "text_pair": b} for a, b in zip(dev["sentence1"], dev["sentence2"], strict=True)]
    predicted = [("entailment", "not_entailment").index(one["label"]) for one in classify(pairs)]
    right = [one == label for one, label in zip(predicted, dev["label"], strict=True)]
    assert record.main_score == pytest.approx(sum(right) / 24)
    # `harness models` knows it, with the settings that were modified.
    capsys.readouterr()
    assert invoke(["models", "list", "--results", str(tmp_path / "results"), "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["models"]
    assert (row["state"], row["name"]) == ("whole", f"{backbone.name}-finetune-RTE")
    assert row["recipe"].startswith("finetune, learning_rate=0.001, batch_size=8")
    assert invoke(["models", "show", row["name"], "--results", str(tmp_path / "results")]) == 0
    assert "50 steps" in capsys.readouterr().out


def test_a_classifier_that_was_removed_is_made_again(
    data: Path, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    model = tiny.folder(tiny.families()["bert"], tmp_path_factory.mktemp("models") / "tiny")
    given = {"data": data, "tasks": "RTE", "recipe_settings": {"epochs": 1, "seeds": (1, 2)}}
    (first,) = finetune(model, "glue", tmp_path, **given).records
    kept = sorted((tmp_path / "results" / "models").iterdir())
    assert len(kept) == 2
    times = [(folder / "model.json").stat().st_mtime_ns for folder in kept]
    assert [one.how for one in finetune(model, "glue", tmp_path, **given).results] == ["cached"]
    shutil.rmtree(kept[0])
    report = finetune(model, "glue", tmp_path, **given)
    assert [one.how for one in report.results] == ["done"]
    (cell,) = report.prepared.plan.cells
    assert cell.recipe_plan is not None
    assert "a classifier that was kept is gone: its run is made again" in cell.recipe_plan.notes
    assert report.records[0].main_score == first.main_score
    again = [(folder / "model.json").stat().st_mtime_ns for folder in kept]
    assert again[0] > times[0]
    assert again[1] == times[1], "the other is left as it is"
    assert [one.how for one in finetune(model, "glue", tmp_path, **given).results] == ["cached"]


def test_fifty_losses_on_a_folder_of_ones_own_are_the_trainers(
    backbone: Path, folder: Path, tmp_path: Path
) -> None:
    finetune(backbone, f"local:{folder}", tmp_path, recipe_settings=SETTINGS)
    (model,) = find_classifiers(tmp_path).values()
    rows = [json.loads(line) for line in (folder / "train.jsonl").read_text().splitlines()]
    names = sorted({row["queue"] for row in rows})
    texts, labels = [[row[name] for row in rows] for name in "ab"], [names.index(r["queue"]) for r in rows]
    losses, _ = train_by_transformers(backbone, texts, labels, tmp_path / "theirs")
    assert max(abs(a - b) for a, b in zip(read_losses(model), losses, strict=True)) <= 1e-5
    opened = AutoModelForSequenceClassification.from_pretrained(model)
    assert [opened.config.id2label[at] for at in range(3)] == names
    with (model / "training" / "predictions" / "tickets-dev.csv").open(newline="") as file:
        predicted = list(csv.DictReader(file))
    assert [row["id"] for row in predicted] == [f"t{n}" for n in range(80, 104)]
    assert {row["prediction"] for row in predicted} <= set(names)


# GLUE's format, as its FAQ and its baselines' code have it

TWO, THREE = ("entailment", "not_entailment"), ("entailment", "neutral", "contradiction")
WORDS = {"RTE": TWO, "QNLI": TWO, "MNLI-m": THREE, "MNLI-mm": THREE}
FILES = {"CoLA", "SST-2", "MRPC", "STS-B", "QQP", "MNLI-m", "MNLI-mm", "QNLI", "RTE"}


def check_submission(path: Path, rows: int) -> None:
    """A file as GLUE's server takes it: a header, then each row's index and prediction behind a tab."""
    assert path.suffix == ".tsv"
    assert path.stem in FILES
    text = path.read_bytes().decode("ascii")
    assert text.endswith("\n")
    assert "\r" not in text
    header, *lines = text.removesuffix("\n").split("\n")
    assert header == "index\tprediction"
    pairs = [line.split("\t") for line in lines]
    assert [index for index, _ in pairs] == [str(number) for number in range(rows)]
    for _, prediction in pairs:
        if path.stem == "STS-B":
            assert re.fullmatch(r"[0-5]\.\d{3}", prediction)
            assert 0 <= float(prediction) <= 5
        else:
            assert prediction in WORDS.get(path.stem, ("0", "1"))


def test_predictions_of_every_task_are_a_submission(
    folder: Path, data: Path, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    model = tiny.folder(tiny.families()["bert"], tmp_path_factory.mktemp("models") / "tiny")
    settings = {"learning_rate": 1e-3, "epochs": 1}
    finetune(model, "glue", tmp_path, data=data, recipe_settings=settings)
    finetune(model, f"local:{folder}", tmp_path, recipe_settings=settings)
    names = [*find_classifiers(tmp_path)]
    assert sorted(names) == sorted(f"tiny-finetune-{name}" for name in (*TASKS, "tickets"))
    output = tmp_path / "submission"
    typed = ["models", "predictions", *names, "--output", str(output), "--results", str(tmp_path / "results")]
    assert invoke(typed) == 0
    submitted = {path for path in output.iterdir() if path.stem in FILES}
    assert {path.stem for path in submitted} == FILES
    for path in submitted:
        check_submission(path, 20)
    others = {path.name for path in output.iterdir()} - {path.name for path in submitted}
    assert {"tickets-dev.csv", "MNLI-validation_matched.tsv", "RTE-validation.tsv"} <= others
    # Each file is what the kept classifier says of the rows of that split.
    qnli = next(path for name, path in find_classifiers(tmp_path).items() if name.endswith("QNLI"))
    columns = glue_data.columns(TASKS["QNLI"], 20, seed=7)
    classify = pipeline("text-classification", model=str(qnli), device="cpu")
    texts = zip(columns["question"], columns["sentence"], strict=True)
    pairs = [{"text": a, "text_pair": b} for a, b in texts]
    said = [line.split("\t")[1] for line in (output / "QNLI.tsv").read_text().splitlines()[1:]]
    assert [one["label"] for one in classify(pairs)] == said
    assert invoke(typed) == 2, "nothing is overwritten"
    (used := tmp_path / "used").mkdir()
    (used / "tickets-dev.csv").write_text("mine")
    typed[typed.index(str(output))] = str(used)
    assert invoke(typed) == 2
    assert [*used.iterdir()] == [used / "tickets-dev.csv"], "no other file is left behind"


def test_a_backbone_without_a_class_in_transformers_is_kept_in_our_form(
    data: Path, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    model = tiny.folder(tiny.families()["neobert"], tmp_path_factory.mktemp("models") / "neo")
    finetune(model, "glue", tmp_path, data=data, tasks="CoLA", recipe_settings={"epochs": 1})
    (folder,) = find_classifiers(tmp_path).values()
    head = load_file(folder / "head.safetensors")
    assert head["classifier.weight"].shape == (2, 32)
    # The encoder is a model as before: it gives vectors.
    (own := tmp_path / "own").mkdir()
    rows = [{"text1": word, "text2": "the cat", "score": score} for score, word in enumerate(tiny.WORDS)]
    (own / "pairs.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (own / "harness.toml").write_text('[[task]]\ntype = "sts"\n')
    report = harness.run(str(folder), f"local:{own}", results=tmp_path / "more", offline=True)
    assert report.exit_code == 0


@pytest.mark.parametrize("name", [*tiny.families()])
def test_the_classifier_of_every_family_opens_again(name: str, tmp_path: Path) -> None:
    folder = tiny.folder(tiny.families()[name], tmp_path / name)
    trial, _ = adapt_trial(folder, PROTOCOL.list_trials("MNLI")[0])
    model, notes = Classifier.load_classifier(folder, trial, classes=3)
    model.eval().save_classifier(tmp_path / "saved", ("a", "b", "c"))
    with torch.inference_mode():
        inputs = load_tokenizer(folder)(["the cat sat", "x"], padding=True, return_tensors="pt")
        scores = model(**inputs)
        if notes and notes[0].startswith("trained as"):
            opened = AutoModelForSequenceClassification.from_pretrained(tmp_path / "saved")
            assert torch.equal(opened.eval()(**inputs).logits, scores)
            assert opened.config.id2label == dict(enumerate("abc"))
        else:
            again, _ = Classifier.load_classifier(tmp_path / "saved", trial, classes=3)
            again.load_state_dict(load_file(tmp_path / "saved" / "head.safetensors"), strict=False)
            assert torch.equal(again.eval()(**inputs), scores)
    assert name not in ("bert", "roberta", "modernbert", "distilbert") or notes[0].startswith("trained as")


def save_gpt2(folder: Path, **changes: Any) -> Path:
    """A tiny GPT-2 as its authors publish it: no token is named for padding."""
    config = GPT2Config(vocab_size=160, n_embd=32, n_layer=2, n_head=4, n_positions=64)
    GPT2ForSequenceClassification(config).save_pretrained(folder)
    content = json.loads((folder / "config.json").read_text())
    content = {name: value for name, value in content.items() if name != "pad_token_id"}
    (folder / "config.json").write_text(json.dumps({**content, **changes}))
    tiny.tokenizer().save_pretrained(folder)
    return folder


def test_a_decoder_without_a_padding_token_has_that_of_its_tokenizer(tmp_path: Path) -> None:
    folder = save_gpt2(tmp_path / "gpt2")
    trial, _ = adapt_trial(folder, PROTOCOL.list_trials("MNLI")[0])
    model, notes = Classifier.load_classifier(folder, trial, classes=3)
    assert notes[0].startswith("trained as GPT2ForSequenceClassification")
    inputs = load_tokenizer(folder)(["the cat sat", "x"], padding=True, return_tensors="pt")
    alone = load_tokenizer(folder)(["x"], return_tensors="pt")
    with torch.inference_mode():
        assert torch.allclose(model.eval()(**inputs)[1], model(**alone)[0], atol=1e-5)


def test_tensors_of_another_shape_are_not_drawn_anew(tmp_path: Path) -> None:
    folder = save_gpt2(tmp_path / "gpt2", n_positions=80)
    trial, _ = adapt_trial(folder, PROTOCOL.list_trials("MNLI")[0])
    with pytest.raises(RuntimeError, match="mismatched_sizes"):
        Classifier.load_classifier(folder, trial, classes=3)
