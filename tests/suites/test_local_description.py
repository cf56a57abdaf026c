"""A user's own tasks that a recipe trains a model for: rows and labels, identity, errors, scores."""

from __future__ import annotations

import csv
import io
import json
import pickle
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from scipy.stats import pearsonr, spearmanr
from sklearn.metrics import accuracy_score, f1_score

import harness
import tiny
from fakes import artifact
from finetune.glue.jobs import Finetune
from finetune.glue.plan import entry
from finetune.glue.settings import Grid
from finetune.recipes import glue_quick
from glue_data import data_root
from harness.core.errors import DataError, HarnessError, UsageError
from harness.core.keys import digest
from harness.core.types import (
    SEED,
    LabelledData,
    LabelledSplit,
    LabelSource,
    Suite,
    SuiteOptions,
    Task,
    VectorSource,
)
from harness.data.locate import Located
from harness.driver.report.run import Report
from harness.jobs.recipe import RecipePlan
from harness.plan import catalog
from harness.results.weighted_metrics import METRICS
from harness.storage.store import Store
from suites import local
from suites._local_description import KINDS
from suites.glue import TASKS

NAMED, NUMBERED = "fine-tuned-classification", "fine-tuned-regression"
LEARNT = (NAMED, NUMBERED)

Row = dict[str, Any]

SINGLE: list[Row] = [
    {"text1": "fine", "label": "yes"},
    {"text1": "poor", "label": "no"},
    {"text1": "nice", "label": "yes"},
]
PAIRS: list[Row] = [
    {"text1": "a cat", "text2": "the cat", "label": 4.5},
    {"text1": "a dog", "text2": "a stone", "label": 0},
    {"text1": "rain", "text2": "it rains", "label": "3"},
]


def lines(rows: list[Row]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def table(rows: list[Row], delimiter: str) -> str:
    made = io.StringIO()
    writer = csv.DictWriter(made, [*rows[0]], delimiter=delimiter)
    writer.writeheader()
    writer.writerows(rows)
    return made.getvalue()


class Folder:
    """A folder with one task, or what is asked for."""

    def __init__(self, place: Path) -> None:
        self.place = place
        place.mkdir(parents=True, exist_ok=True)

    def write(self, **files: str) -> Folder:
        for name, text in files.items():
            path = self.place / name.replace("__", ".")
            path.write_text(text, encoding="utf-8", newline="")
        return self

    def describe(self, type_: str = NAMED, more: str = "") -> Folder:
        return self.write(harness__toml=f'[[task]]\nname = "own"\ntype = "{type_}"\n{more}\n')

    def rows(self, train: list[Row], dev: list[Row] | None = None) -> Folder:
        return self.write(train__jsonl=lines(train), dev__jsonl=lines(train if dev is None else dev))

    @property
    def suite(self) -> Suite:
        return local.SUITE.open(str(self.place), SuiteOptions())

    @property
    def task(self) -> Task:
        (task,) = self.suite.tasks
        return task

    def load(self) -> LabelledData:
        task = self.task
        assert isinstance(task.source, LabelSource)
        return task.source.load(task, data=None)


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path / "own").describe().rows(SINGLE)


# What a task is


def test_a_classification_is_a_task_with_labels_and_its_defaults(folder: Folder) -> None:
    task = folder.task
    assert (task.name, task.type, task.metric, task.output) == ("own", "Classification", "accuracy", "label")
    assert (task.roles, task.splits, task.subsets) == (("",), ("dev",), ("default",))
    source = task.source
    assert isinstance(source, LabelSource)
    assert not isinstance(source, VectorSource)
    assert (source.metrics, source.like, source.from_mnli) == (("accuracy",), "RTE", False)
    assert hash(task) == hash(pickle.loads(pickle.dumps(task)))
    assert pickle.loads(pickle.dumps(task)) == task


def test_a_regression_has_other_defaults(folder: Folder) -> None:
    task = folder.describe(NUMBERED).rows(PAIRS).task
    assert (task.type, task.metric, task.output) == ("Regression", "pearson, spearman", "label")
    assert isinstance(task.source, LabelSource)
    assert (task.source.metrics, task.source.like) == (("pearson", "spearman"), "STS-B")


def test_metrics_settings_and_start_are_as_asked(folder: Folder) -> None:
    folder.describe(more='metrics = ["f1", "accuracy"]\nlike = "MRPC"\nfrom_mnli = true\npositive = "no"')
    task = folder.task
    assert task.metric == "f1, accuracy"
    assert isinstance(task.source, LabelSource)
    assert (task.source.metrics, task.source.like, task.source.from_mnli) == (
        ("f1", "accuracy"),
        "MRPC",
        True,
    )


def test_a_folder_may_hold_both_kinds(folder: Folder) -> None:
    toml = (
        f'[[task]]\nname = "a"\ntype = "{NAMED}"\n[[task]]\nname = "b"\ntype = "sts"\nfile = "pairs.jsonl"\n'
    )
    pairs = [{"text1": "a", "text2": "b", "score": 1}, {"text1": "c", "text2": "d", "score": 2}]
    suite = folder.write(harness__toml=toml, pairs__jsonl=lines(pairs)).suite
    assert [(c.type, c.tasks[0].output, c.tasks[0].splits) for c in suite.columns] == [
        ("Classification", "label", ("dev",)),
        ("STS", "vector", ("test",)),
    ]
    narrow = local.SUITE.open(str(folder.place), SuiteOptions(splits=("dev",)))
    assert [task.name for task in narrow.tasks] == ["a"]


def test_every_metric_belongs_to_one_type_and_every_default_is_known() -> None:
    allowed = [name for type_ in LEARNT for name in KINDS[type_].allowed]
    assert sorted(allowed) == sorted(METRICS)
    for type_ in LEARNT:
        assert set(KINDS[type_].metrics) <= set(KINDS[type_].allowed)
        assert KINDS[type_].like in TASKS
        assert KINDS[type_].numeric == (TASKS[KINDS[type_].like].classes == 1)


# Rows and labels


def test_single_texts_with_named_labels(folder: Folder) -> None:
    dev = [{"_id": "d", "text1": "good", "label": "no"}]
    assert folder.rows(SINGLE, dev).load() == LabelledData(
        train=LabelledSplit(texts=(["fine", "poor", "nice"],), labels=(1, 0, 1), ids=["1", "2", "3"]),
        dev={"dev": LabelledSplit(texts=(["good"],), labels=(0,), ids=["d"])},
        classes=2,
        names=("no", "yes"),
    )


def test_pairs_with_numbers(folder: Folder) -> None:
    dev = [{"id": 8, **PAIRS[1]}, {"id": 9, **PAIRS[2], "text1": "sun"}]
    found = folder.describe(NUMBERED).rows(PAIRS, dev).load()
    assert found.train == LabelledSplit(
        texts=(["a cat", "a dog", "rain"], ["the cat", "a stone", "it rains"]),
        labels=(4.5, 0.0, 3.0),
        ids=["1", "2", "3"],
    )
    assert found.dev["dev"].ids == ["8", "9"]
    assert found.dev["dev"].texts == (["a dog", "sun"], ["a stone", "it rains"])
    assert found.classes == 1


@pytest.mark.parametrize(("ending", "delimiter"), [("csv", ","), ("tsv", "\t")])
def test_columns_and_files_have_any_name_and_format(folder: Folder, ending: str, delimiter: str) -> None:
    renamed = {"text1": "body", "text2": "answer", "label": "queue", "id": "key"}
    rows: list[Row] = [
        {"key": "k1", "body": 'one, "two"', "answer": "x\ty", "queue": "b"},
        {"key": "k2", "body": "three", "answer": "four", "queue": "a"},
    ]
    columns = ", ".join(f'{here} = "{there}"' for here, there in renamed.items())
    more = f'train = "t.{ending}"\ndev = "d.{ending}"\ncolumns = {{ {columns} }}'
    files = {f"t__{ending}": table(rows, delimiter), f"d__{ending}": table(rows[1:], delimiter)}
    found = folder.describe(more=more).write(**files).load()
    assert found.train == LabelledSplit(
        texts=(['one, "two"', "three"], ["x\ty", "four"]), labels=(1, 0), ids=["k1", "k2"]
    )
    assert found.dev["dev"] == LabelledSplit(texts=(["three"], ["four"]), labels=(0,), ids=["k2"])


@pytest.mark.parametrize(
    ("labels", "order"),
    [
        (["b", "a", "c"], ["a", "b", "c"]),
        ([10, 9, "-1"], ["-1", "9", "10"]),
        (["10", "9", "x"], ["10", "9", "x"]),
        ([3, 1], ["1", "3"]),
    ],
)
def test_classes_are_numbered_in_order(folder: Folder, labels: list[Any], order: list[str]) -> None:
    found = folder.rows([{"text1": f"t{n}", "label": label} for n, label in enumerate(labels)]).load()
    assert found.classes == len(order)
    assert [order[int(number)] for number in found.train.labels] == [str(label) for label in labels]
    assert found.dev["dev"].labels == found.train.labels


@pytest.mark.parametrize(("positive", "labels"), [("", (1, 0, 1)), ('"yes"', (1, 0, 1)), ('"no"', (0, 1, 0))])
def test_the_positive_label_is_class_one(folder: Folder, positive: str, labels: tuple[int, ...]) -> None:
    said = f"positive = {positive}\n" if positive else ""
    found = folder.describe(more=f'{said}metrics = ["f1"]').load()
    assert found.train.labels == labels
    names = [note for note in found.notes if note.startswith("f1 counts the label 'yes'")]
    assert len(names) == (0 if positive else 1)


def test_a_whole_number_may_be_the_positive_label(folder: Folder) -> None:
    rows = [{"text1": "a", "label": 0}, {"text1": "b", "label": 1}]
    found = folder.describe(more='positive = 0\nmetrics = ["f1"]').rows(rows).load()
    assert found.train.labels == (1, 0)


def test_what_a_user_may_have_missed_is_told(folder: Folder) -> None:
    train = [{**row, "reply": "r", "date": 3} for row in SINGLE]
    found = folder.rows(train, [*train[:2], {"text1": "new", "label": "no", "reply": "r"}]).load()
    assert found.notes == (
        "each row is one text, 'text1'; not read: 'reply'",
        "2 of 3 dev rows have the texts of a training row",
    )
    scaled = [{**row, "label": 20 * n} for n, row in enumerate(PAIRS)]
    (large, _) = folder.describe(NUMBERED).rows(scaled).load().notes
    assert large.startswith("labels go from 0 to 40, and recipes are made for 0 to 5")
    clean = [{"text1": "x", "text2": "the cat", "label": 1}, {"text1": "a cat", "text2": "y", "label": 2}]
    assert folder.rows(PAIRS, clean).load().notes == ()


# Identity


def test_everything_that_changes_a_result_is_in_the_content(folder: Folder) -> None:
    train = [{**row, "body": "b"} for row in SINGLE]
    folder.rows(train)
    plain = folder.task.data.content
    told = {
        folder.describe(more=more).task.data.content
        for more in (
            'columns = { text1 = "body" }',
            'columns = { text2 = "body" }',
            'metrics = ["f1"]',
            'metrics = ["accuracy", "f1"]',
            'metrics = ["f1", "accuracy"]',
            'metrics = ["f1"]\npositive = "no"',
            'like = "MRPC"',
            "from_mnli = true",
        )
    }
    assert len({plain, *told}) == 9
    folder.describe()
    for name in ("train.jsonl", "dev.jsonl"):
        path = folder.place / name
        before = path.read_bytes()
        path.write_bytes(before + b"\n")
        assert folder.task.data.content not in {plain, *told}
        path.write_bytes(before)
    assert folder.task.data.content == plain


def test_what_is_said_by_default_may_be_said_and_a_folder_moved(folder: Folder, tmp_path: Path) -> None:
    plain = folder.task.data.content
    more = 'metrics = ["accuracy"]\nlike = "RTE"\nfrom_mnli = false\ncolumns = { text1 = "text1" }'
    assert folder.describe(more=more).task.data.content == plain
    folder.place.rename(tmp_path / "moved")
    assert Folder(tmp_path / "moved").task.data.content == plain


def test_the_content_of_known_files_stays_what_results_have_been_kept_under(folder: Folder) -> None:
    contents = [folder.task.data.content]
    contents.append(folder.describe(NUMBERED).rows(PAIRS).task.data.content)
    assert contents == [
        "11990fe76130f6d568051e3012a9ff027c9e37d48a3ee10635e91e9f3a1b9367",
        "3b17ec3a90ef76db7de46315ec6a46eb0d7fda27120ef3b79cff7c293155ed56",
    ]


@pytest.mark.parametrize("name", ["train.jsonl", "dev.jsonl"])
def test_data_that_changed_after_the_plan_is_refused(folder: Folder, name: str) -> None:
    task = folder.task
    assert isinstance(task.source, LabelSource)
    with (folder.place / name).open("a") as file:
        file.write(lines(SINGLE[:1]))
    with pytest.raises(DataError, match="The files of own changed after the run had begun"):
        task.source.load(task, data=None)


TASK_RECIPES = [name for name, entry in catalog.load_recipe_entries().items() if entry.kind == "task"]


def recipe_plan(task: Task, recipe: str, place: Path) -> RecipePlan:
    def locate(wanted: Task) -> Located:
        return Located(data=wanted.data, folder=None, origin="built")

    opened: Any = catalog.open_recipe(recipe)
    made: RecipePlan = opened.plan_task(artifact(place), task, locate=locate, seed=SEED)
    return made


def test_every_recipe_runs_the_cells_of_the_task_it_is_like(folder: Folder, tmp_path: Path) -> None:
    for recipe, like in product(TASK_RECIPES, ("RTE", "STS-B", "QNLI")):
        task = folder.describe(more=f'like = "{like}"').task
        found, model = recipe_plan(task, recipe, tmp_path), catalog.open_recipe(recipe)
        assert found.problem is None
        runs = [job.work for job in found.jobs if isinstance(job.work, Finetune)]
        assert all(run.task == task for run in runs)
        wanted = model.protocol.grids[like]  # type: ignore[attr-defined]
        cells = {(t.learning_rate, t.batch_size, t.weight_decay, t.epochs) for r in runs for t in r.trials}
        assert len(cells) == wanted.cells
        assert {rate for rate, *_ in cells} == set(wanted.learning_rates)
        assert {epochs for *_, epochs in cells} == set(wanted.epochs)


def test_the_settings_and_the_start_make_another_result(folder: Folder, tmp_path: Path) -> None:
    keys = {
        digest(recipe_plan(folder.describe(more=more).task, "glue-modernbert", tmp_path).identity)
        for more in ("", 'like = "QNLI"', "from_mnli = true", 'metrics = ["mcc"]')
    }
    assert len(keys) == 4
    begun = recipe_plan(folder.describe(more="from_mnli = true").task, "glue-modernbert", tmp_path)
    assert begun.identity["start"]["from"] == "selected"
    assert {job.work.task.name for job in begun.jobs if isinstance(job.work, Finetune)} == {"MNLI", "own"}


# Errors


def refused(folder: Folder) -> HarnessError:
    with pytest.raises(HarnessError) as caught:
        _ = folder.suite
    return caught.value


@pytest.mark.parametrize(
    ("type_", "more", "message", "hint"),
    [
        (
            NAMED,
            'metrics = ["pearson"]',
            "'metrics': No metric of a fine-tuned-classification task is called 'pearson'.",
            "There is: accuracy, f1, mcc.",
        ),
        (
            NUMBERED,
            'metrics = ["pearson", "f1"]',
            "'metrics': No metric of a fine-tuned-regression task is called 'f1'.",
            "There is: pearson, spearman.",
        ),
        (NAMED, 'metrics = ["F1"]', "'metrics': No metric of a", "Did you mean f1?"),
        (NAMED, 'metrics = "f1"', "'metrics' is 'f1', not a list of names.", 'Write metrics = ["…"].'),
        (NAMED, "metrics = []", "'metrics' is [], not a list of names.", "Write metrics"),
        (NAMED, "metrics = [1]", "'metrics' is [1], not a list of names.", "Write metrics"),
        (NAMED, 'metrics = ["f1", "f1"]', "'metrics' has a name twice: f1, f1.", "See docs"),
        (NAMED, 'like = "rte"', "'like': No task of GLUE is called 'rte'.", "Did you mean RTE?"),
        (NAMED, 'like = "BoolQ"', "'like': No task of GLUE is called 'BoolQ'.", "There is: CoLA, MNLI,"),
        (NAMED, "like = 3", "'like' is 3, not a name.", "See docs"),
        (NAMED, 'from_mnli = "yes"', "'from_mnli' is 'yes', not true or false.", "See docs"),
        (
            NAMED,
            'positive = "yes"',
            "'positive' says which label f1 counts, and 'metrics' has no f1.",
            "Leave it out, or add f1",
        ),
        (NAMED, 'metrics = ["f1"]\npositive = true', "'positive' is True, not a label.", "See docs"),
        (NAMED, 'metrics = ["f1"]\npositive = ""', "'positive' is '', not a label.", "See docs"),
        (
            NUMBERED,
            'positive = "yes"',
            "No key of a fine-tuned-regression task is called 'positive'.",
            "There is: columns, dev, from_mnli, like, metrics, name, train, type.",
        ),
        (
            NAMED,
            'test = "x.csv"',
            "No key of a fine-tuned-classification task is called 'test'.",
            "There is:",
        ),
        (NAMED, 'columns = { text = "a" }', "No column is called 'text'.", "Did you mean text2 or text1?"),
        ("classification", 'like = "RTE"', "No key of a classification task is called 'like'.", "There is:"),
        (
            "finetuned-classification",
            "",
            "No type is called 'finetuned-classification'.",
            "Did you mean fine-tuned-classification",
        ),
    ],
)
def test_errors_of_the_description(folder: Folder, type_: str, more: str, message: str, hint: str) -> None:
    error = refused(folder.describe(type_, more))
    assert isinstance(error, UsageError)
    assert error.message.startswith(f"{folder.place / 'harness.toml'}: task 1: {message}")
    assert hint in (error.hint or "")


def test_a_missing_file_is_named_before_anything_runs(folder: Folder) -> None:
    (folder.place / "dev.jsonl").rename(folder.place / "dev.csv")
    error = refused(folder)
    assert error.message == f"{folder.place / 'dev.jsonl'} does not exist: it is the 'dev' of task 'own'."
    assert error.hint == "Did you mean dev.csv or train.jsonl? See docs/local-data.md."
    assert refused(folder.write(dev__jsonl="")).message == f"{folder.place / 'dev.jsonl'} is empty."


F1 = 'metrics = ["f1"]'
COLUMNS = "Other names are given under 'columns' in harness.toml."
IS_TEXT1 = f"Did you mean 'text1'? {COLUMNS}"


def case(train: list[Row], dev: list[Row], message: str, hint: str | None = None, **other: str) -> Any:
    """Rows of a task, by default a plain classification, and the error about them."""
    said = {"type_": NAMED, "more": "", **other}
    return said["type_"], said["more"], train, dev, message, hint


@pytest.mark.parametrize(
    ("type_", "more", "train", "dev", "message", "hint"),
    [
        case(
            SINGLE,
            [{"text1": "x", "label": "Yes"}],
            "{dev}:1: the label 'Yes' is in no row of train.jsonl.",
            hint="Did you mean 'yes'?",
        ),
        case(
            SINGLE,
            [SINGLE[0], {"text1": "x", "label": -1}],
            "{dev}:2: the label '-1' is in no row of train.jsonl.",
            hint="The labels are: 'no', 'yes'.",
        ),
        case(SINGLE[:1], SINGLE[:1], "{train}: there is only the label 'yes': at least two are needed."),
        case(
            [*SINGLE, {"text1": "x", "label": 0.5}],
            SINGLE,
            "{train}:4: the field 'label' is 0.5, not a string.",
        ),
        case(
            [*SINGLE, {"text1": "x"}],
            SINGLE,
            "{train}:4: no field 'label'; found: text1.",
            hint=COLUMNS,
        ),
        case(
            [{"text": "x", "label": 1}],
            SINGLE,
            "{train}:1: no field 'text1'; found: text, label.",
            hint="Did you mean 'text'? Other names are given under 'columns' in harness.toml.",
        ),
        case(SINGLE, [{"text1": " ", "label": "no"}], "{dev}:1: the field 'text1' is blank."),
        case(
            [{"text2": "t", **row} for row in SINGLE],
            SINGLE,
            "{dev}:1: no field 'text2'; found: text1, label.",
            hint=IS_TEXT1,
        ),
        case(
            SINGLE,
            [SINGLE[0], {"text2": "t", **SINGLE[1]}],
            "{train}:1: no field 'text2'; found: text1, label.",
            hint=IS_TEXT1,
        ),
        case(
            SINGLE,
            SINGLE,
            "{train}:1: no field 'reply'; found: text1, label.",
            hint=COLUMNS,
            more='columns = { text2 = "reply" }',
        ),
        case(
            SINGLE,
            [{"id": "a", **SINGLE[0]}, {"id": "a", **SINGLE[1]}],
            "{dev}:2: the id 'a' is already that of line 1.",
            hint="Another column can be the id: id = \"...\" under 'columns' in harness.toml.",
        ),
        case(
            [*SINGLE, {"text1": "x", "label": "perhaps"}],
            SINGLE,
            "{train}: f1 and mcc are for two classes, and there are 3: 'no', 'perhaps', 'yes'.",
            hint='Ask for metrics = ["accuracy"] in harness.toml.',
            more='metrics = ["accuracy", "f1", "mcc"]',
        ),
        case(
            [{"text1": "x", "label": n} for n in range(10)],
            SINGLE,
            "{train}: mcc is for two classes, and there are 10: '0', '1', '2', '3', '4', '5', '6', '7', ….",
            hint='Ask for metrics = ["accuracy"] in harness.toml.',
            more='metrics = ["mcc"]',
        ),
        case(
            SINGLE,
            SINGLE[1:2],
            "{dev}: there is only the label 'no', and f1 and mcc say nothing of one class.",
            more='metrics = ["f1", "mcc"]',
        ),
        case(
            SINGLE,
            SINGLE,
            "{train}: no row has the label 'yess', which 'positive' in harness.toml names.",
            hint="Did you mean 'yes'?",
            more=F1 + '\npositive = "yess"',
        ),
        case(
            SINGLE,
            SINGLE[:1],
            "{dev}: there is only the label 'yes', and f1 says nothing of one class.",
            more=F1,
        ),
        case(
            [*PAIRS, {"text1": "x", "text2": "y", "label": "high"}],
            PAIRS,
            "{train}:4: the field 'label' is 'high', not a finite number.",
            type_=NUMBERED,
        ),
        case(
            PAIRS,
            [{"text1": "x", "text2": "y", "label": float("nan")}],
            "{dev}:1: the field 'label' is nan, not a finite number.",
            type_=NUMBERED,
        ),
        case(
            PAIRS, PAIRS[:1], "{dev}: every 'label' is 4.5: nothing can correlate with that.", type_=NUMBERED
        ),
        case(
            PAIRS[2:], PAIRS, "{train}: every 'label' is 3: nothing can correlate with that.", type_=NUMBERED
        ),
    ],
)
def test_errors_of_the_data_name_file_and_line(
    folder: Folder, type_: str, more: str, train: list[Row], dev: list[Row], message: str, hint: str | None
) -> None:
    folder.describe(type_, more).rows(train, dev)
    with pytest.raises(DataError) as caught:
        folder.load()
    places = {name: folder.place / f"{name}.jsonl" for name in ("train", "dev")}
    assert (caught.value.message, caught.value.hint) == (message.format(**places), hint)


@pytest.mark.parametrize("name", ["train", "dev"])
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("\n \n", "{path}: there are no rows."),
        (lines(SINGLE) + "{oops}\n", "{path}:4: not valid JSON at column 2: Expecting property name"),
    ],
)
def test_files_that_hold_no_rows(folder: Folder, name: str, text: str, message: str) -> None:
    folder.write(**{f"{name}__jsonl": text})
    with pytest.raises(DataError) as caught:
        folder.load()
    assert caught.value.message.startswith(message.format(path=folder.place / f"{name}.jsonl"))


def test_a_file_that_vanished_is_named(folder: Folder) -> None:
    task = folder.task
    assert isinstance(task.source, LabelSource)
    path = folder.place / "train.jsonl"
    path.unlink()
    with pytest.raises(DataError) as caught:
        task.source.load(task, data=None)
    assert caught.value.message == f"{path}: No such file or directory."


# Documentation


def test_the_guide_says_every_key_and_its_examples_work(folder: Folder) -> None:
    guide = (Path(__file__).parents[2] / "docs" / "local-data.md").read_text(encoding="utf-8")
    keys = {key for type_ in LEARNT for key in KINDS[type_].keys} | {"columns"}
    assert all(f"\n| `{key}` |" in guide for key in keys)
    assert ", ".join(TASKS).replace(", RTE", " or RTE") in " ".join(guide.split())
    blocks = [block.partition("\n")[2] for block in guide.split("```")[1::2]]
    tickets, classification, _, regression = blocks[12:]
    rated = lines([{"question": "a", "answer": f"b{n}", "stars": n} for n in range(3)])
    files = {"tickets-train__csv": tickets, "tickets-dev__csv": tickets}
    files |= {"rated-train__jsonl": rated, "rated-dev__jsonl": rated}
    named, numbered = folder.write(harness__toml=classification + regression, **files).suite.tasks
    assert (named.name, named.metric) == ("routed-tickets", "accuracy, f1")
    assert isinstance(named.source, LabelSource)
    assert isinstance(numbered.source, LabelSource)
    assert (named.source.like, named.source.from_mnli) == ("MRPC", True)
    rows = named.source.load(named, data=None).train
    assert (rows.labels, rows.texts[1][2]) == ((0, 1, 0, 1), "It is attached to this message.")
    assert numbered.source.load(numbered, data=None).train.labels == (0.0, 1.0, 2.0)


# Training


@pytest.fixture(scope="module")
def backbone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.folder(tiny.families()["bert"], tmp_path_factory.mktemp("models") / "tiny-bert")


Runner = Callable[..., Report]


@pytest.fixture
def trained(backbone: Path, folder: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Runner:
    """Runs two seeds of a recipe that learns a handful of rows by heart."""
    grid = Grid(learning_rates=(3e-3,), batch_sizes=(8,), weight_decays=(0.0,), epochs=(8,), seeds=(0, 1))
    small = replace(glue_quick.PROTOCOL, name="small", grids=dict.fromkeys(TASKS, grid))
    monkeypatch.setattr(catalog, "load_recipe_entries", lambda: {"small": entry(small, "for tests")})

    def go(suite: str = f"local:{folder.place}", **more: Any) -> Report:
        more |= {"results": tmp_path / "results", "cache": tmp_path / "cache", "workers": 1, "threads": 1}
        return harness.run(str(backbone), suite, recipe="small", **more)

    return go


def columns_of(report: Report, results: Path) -> dict[str, list[Any]]:
    """The per-example file of a report's only score."""
    (record,) = report.records
    path = Store(results).find_part_file(record, report.prepared.subjects[0].artifact.slug)
    assert path is not None
    found: dict[str, list[Any]] = pq.read_table(path).to_pydict()
    return found


def by_seed(columns: dict[str, list[Any]]) -> list[tuple[list[float], list[float]]]:
    """Gold and predicted of each of the two seeds."""
    rows = [*zip(columns["replicate"], columns["gold"], columns["prediction"], strict=True)]
    return [([g for s, g, _ in rows if s == seed], [p for s, _, p in rows if s == seed]) for seed in (0, 1)]


def test_classes_are_learnt_and_f1_is_that_of_the_positive_label(
    trained: Runner, folder: Folder, tmp_path: Path
) -> None:
    words = [*["cat"] * 16, *["mat"] * 8]
    rows = [{"_id": f"r{n}", "text1": word, "label": word} for n, word in enumerate(words)]
    folder.describe(more='metrics = ["accuracy", "f1"]\npositive = "cat"').rows(rows)
    report = trained()
    assert [record.scores for record in report.records] == [
        {"dev": {"default": {"accuracy": 1.0, "f1": 1.0}}}
    ]
    found = columns_of(report, tmp_path / "results")
    assert found["example_id"] == [f"r{n}" for n in range(24)] * 2
    assert found["gold"] == ([1.0] * 16 + [0.0] * 8) * 2
    assert [result.how for result in trained().results] == ["cached"]


def test_scores_are_those_of_the_predictions(trained: Runner, folder: Folder, tmp_path: Path) -> None:
    texts = [f"the {a} {b}" for a, b in product("abcd", repeat=2)]
    rows: list[Row] = [{"text1": text, "label": int(n % 3 == 0)} for n, text in enumerate(texts)]
    folder.describe(more='metrics = ["accuracy", "f1"]\npositive = 0').rows(rows[:10], rows[6:])
    report = trained()
    (record,) = report.records
    seeds = by_seed(columns_of(report, tmp_path / "results"))
    assert seeds[0][0] == [1.0 - row["label"] for row in rows[6:]]
    accuracy, f1 = (np.mean([score(*seed) for seed in seeds]) for score in (accuracy_score, f1_score))
    assert record.scores["dev"]["default"] == {"accuracy": pytest.approx(accuracy), "f1": pytest.approx(f1)}
    assert record.main_score == pytest.approx((accuracy + f1) / 2)


def test_numbers_are_learnt_from_pairs(trained: Runner, folder: Folder, tmp_path: Path) -> None:
    words = ("cat", "on", "query")
    rows: list[Row] = [{"text1": word, "text2": "the mat", "label": n} for n, word in enumerate(words)] * 24
    report = trained(f"local:{folder.describe(NUMBERED).rows(rows).place}")
    (record,) = report.records
    raw = record.scores["dev"]["default"]
    assert raw["pearson"] > 0.9
    seeds = by_seed(columns_of(report, tmp_path / "results"))
    for name, score in {"pearson": pearsonr, "spearman": spearmanr}.items():
        assert raw[name] == pytest.approx(np.mean([score(*seed).statistic for seed in seeds]))


@pytest.mark.slow
def test_a_copy_of_glue_scores_what_glue_scores(trained: Runner, folder: Folder, tmp_path: Path) -> None:
    root = data_root(tmp_path / "root")
    said = {"MRPC": 'metrics = ["accuracy", "f1"]\npositive = "one"', "RTE": "", "STS-B": ""}
    toml = ""
    for name, more in said.items():
        type_ = NUMBERED if name == "STS-B" else NAMED
        files = {"train": f"{name}-train.csv", "dev": f"{name}-dev.csv"}
        toml += f'[[task]]\nname = "my-{name}"\ntype = "{type_}"\nlike = "{name}"\n{more}\n'
        toml += "".join(f'{key} = "{file}"\n' for key, file in files.items())
        toml += 'columns = { text1 = "sentence1", text2 = "sentence2" }\n'
        for split, file in zip(("train", "validation"), files.values(), strict=True):
            rows = pq.read_table(
                root / "nyu-mll" / "glue" / TASKS[name].subset / f"{split}.parquet"
            ).to_pylist()
            named = [row if name == "STS-B" else {**row, "label": ("a", "one")[row["label"]]} for row in rows]
            (folder.place / file).write_text(table(named, ","), newline="")
    folder.write(harness__toml=toml)
    theirs = trained("glue", tasks=(*said,), data=root).records
    mine = trained().records
    assert [record.task.name for record in mine] == [f"my-{name}" for name in said]
    raw = {record.task.name: record.scores["dev"]["default"] for record in mine}
    for record in theirs:
        (scores,) = record.scores["validation"].values()
        assert raw[f"my-{record.task.name}"] == scores


def test_bad_data_is_refused_with_its_line(trained: Runner, folder: Folder) -> None:
    folder.rows(SINGLE, [{"text1": "x", "label": "maybe"}])
    with pytest.raises(UsageError) as caught:
        trained()
    dev = folder.place / "dev.jsonl"
    assert caught.value.message == f"own: {dev}:1: the label 'maybe' is in no row of train.jsonl."


def test_a_recipe_is_asked_for(folder: Folder) -> None:
    with pytest.raises(UsageError, match="A model must be trained for own: which recipe"):
        harness.run("minilm", f"local:{folder.place}")
