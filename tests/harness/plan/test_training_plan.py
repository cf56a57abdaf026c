"""Recipes that make a model, from the request to the table: keys, trainings, records, seeds, faults."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import fakes
import harness
import tiny
from blocked import BLOCKER, invoke_blocked
from finetune.recipes import glue_quick
from harness.checks.sides import CheckRequest
from harness.cli import invoke
from harness.core.documents import append_digest
from harness.core.errors import DataError, UsageError
from harness.core.keys import Lineage, MemberPart, ModelDocument, ParentPart, SweepPart, read_document
from harness.data.training.sets import TrainingData
from harness.driver import evaluation
from harness.driver.execute import Listeners
from harness.driver.report.run import Report
from harness.jobs.context import Event
from harness.jobs.jobs import Job
from harness.plan import catalog
from harness.plan.request import PreparedRun, Request
from harness.plan.resolved_request import Recipes, ResolvedRequest
from harness.plan.sweep import _draw_members
from harness.plan.training_plan import Sweep, _require_comparable
from harness.storage.record import Record
from harness.storage.store import Store
from harness.training.model_store import ModelStore
from harness.watch.watch import WatchOptions, follow
from stopped_trainings import train_in_this_process
from stored_records import iter_records

PLUGIN = Path(__file__).parents[2] / "plugin"

Runner = Callable[..., Report]

PAIRS = [
    {"anchor": f"{one} {other}", "positive": f"{other} {one}"}
    for one in tiny.WORDS
    for other in tiny.WORDS[:3]
]


@pytest.fixture(scope="module")
def backbone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.folder(tiny.families()["bert"], tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture(scope="module")
def tasks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tasks")
    rows = [
        {"text1": f"{one} {other}", "text2": f"{other} garden", "score": n}
        for n, (one, other) in enumerate(zip(tiny.WORDS, reversed(tiny.WORDS), strict=True))
    ]
    (folder / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    described = [
        f'[[task]]\nname = "{name}"\ntype = "sts"\nfile = "pairs.jsonl"\n' for name in ("one", "two")
    ]
    (folder / "harness.toml").write_text("".join(described))
    return folder


@pytest.fixture
def sample(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sample plugin, as if it were installed, here and in training processes."""
    monkeypatch.syspath_prepend(str(PLUGIN))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(PLUGIN), os.environ.get("PYTHONPATH", "")]))
    import sample_model_recipe

    known = {**catalog.load_recipe_entries(), "sample-centered": sample_model_recipe.RECIPE}
    monkeypatch.setattr(catalog, "load_recipe_entries", lambda: known)


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    train_in_this_process(monkeypatch)


@pytest.fixture
def asked(backbone: Path, tasks: Path, tmp_path: Path, sample: None) -> dict[str, Any]:
    rows = tmp_path / "rows.jsonl"
    rows.write_text("".join(json.dumps(row) + "\n" for row in PAIRS))
    return {
        "model": str(backbone),
        "suite": f"local:{tasks}",
        "recipe": "sample-centered",
        "train_data": rows,
        "results": tmp_path / "results",
        "cache": tmp_path / "cache",
        "offline": True,
        "threads": 1,
    }


def run(asked: dict[str, Any], **more: Any) -> Report:
    given = {**asked, **more}
    return harness.run(given.pop("model"), given.pop("suite"), **given)


def request(asked: dict[str, Any], **more: Any) -> Request:
    given = {**asked, **more}
    own = {"models": (given.pop("model"),), "suites": (given.pop("suite"),)}
    return Request(**own, **given)


def hows(report: Report) -> list[str]:
    return [result.how for result in report.results]


def test_a_model_is_made_then_evaluated_and_nothing_is_done_twice(asked: dict[str, Any]) -> None:
    first = run(asked)
    assert hows(first) == ["done", "done"]
    ((folder, document),) = [
        (one.folder, one.document)
        for one in ModelStore(asked["results"]).list_stored_models()
        if one.document
    ]
    assert folder == asked["results"] / "models" / f"tiny-sample-centered-{document.key[:12]}"
    assert document.key == document.lineage.key == first.prepared.subjects[0].artifact.key
    assert document.lineage.own_data == "rows.jsonl"
    assert document.training["steps"] == 1
    for record in first.records:
        assert record.lineage == document.lineage
        assert record.model.weights == document.weights
        assert record.provenance["texts"] == 19
        assert record.provenance["texts_trained_on"] == 9, "counted by hand"
    assert hows(run(asked)) == ["cached", "cached"]
    by_path = run(asked, model=str(folder), recipe=(), train_data="")
    assert hows(by_path) == ["cached", "cached"], "the folder and the recipe name one model"
    assert by_path.prepared.subjects[0].artifact.name == "tiny-sample-centered"
    copy = asked["results"].parent / "copy"
    shutil.copytree(folder, copy)
    assert hows(run(asked, model=str(copy), recipe=(), train_data="")) == ["cached", "cached"]
    text = "\n".join(
        line
        for suite in first.prepared.suites
        for line in first._format_suite_lines(suite, first.prepared.subjects)
    )
    assert "trained on rows.jsonl, not on the recipe's data" in text
    assert "trained on texts of one (9 of 19 texts), two (9 of 19 texts)" in text

    other = asked["train_data"].with_name("other.jsonl")
    other.write_text('{"anchor": "of no task", "positive": "of none"}\n')
    further = run(asked, model=str(folder), train_data=other)
    text = "\n".join(further._format_suite_lines(further.prepared.suites[0], further.prepared.subjects))
    assert "trained on other.jsonl, not on the recipe's data" in text
    assert "made of tiny-sample-centered (trained on rows.jsonl)" in text
    assert "trained on texts of one (9 of 19 texts), two (9 of 19 texts)" in text, "by its parent"


@pytest.mark.usefixtures("here")
def test_what_another_machine_has_trained_is_fetched(asked: dict[str, Any], tmp_path: Path) -> None:
    """The model is fetched with its records; with the records gone its vectors are there, too."""
    asked["remote"] = f"file://{tmp_path / 'shared'}"
    first = run(asked)
    elsewhere = {"results": tmp_path / "elsewhere", "cache": tmp_path / "other cache"}
    second = run(asked, **elsewhere)
    assert hows(second) == ["cached", "cached"]
    assert [one.main_score for one in second.records] == [one.main_score for one in first.records]
    assert [one.problem for one in ModelStore(elsewhere["results"]).list_stored_models()] == [""]
    shutil.rmtree(tmp_path / "shared" / "records")
    shutil.rmtree(elsewhere["results"])
    third = run(asked, **elsewhere)
    assert hows(third) == ["done", "done"]
    assert third.texts_encoded == 0
    assert [one.main_score for one in third.records] == [one.main_score for one in first.records]


@pytest.mark.usefixtures("here")
def test_records_of_other_weights_do_not_count(asked: dict[str, Any]) -> None:
    first = run(asked)
    (slug,) = {result.cell.subject.artifact.slug for result in first.results}
    store = Store(asked["results"])
    folder = first.prepared.subjects[0].artifact.folder
    for number, how in (
        (0, "cached"),
        (1, "done"),
    ):  # the first record keeps its weights, the second gets others
        record = first.records[number]
        path = store.locate_record(slug, record.task.name, record.key)
        if how == "done":
            content = json.loads(path.read_text())
            del content["digest"]
            content["model"]["weights"] = "0" * 64
            path.write_text(append_digest(content))
    second = run(asked)
    assert hows(second) == ["cached", "done"]
    assert second.prepared.plan.cells[1].former is not None
    assert [record.model.weights for record in second.records] == [first.records[0].model.weights] * 2

    shutil.rmtree(folder)
    assert hows(run(asked)) == ["cached", "cached"], "every score is there: nothing is trained"
    assert not folder.exists()
    store.locate_record(slug, "two", first.records[1].key).unlink()
    again = run(asked)
    assert hows(again) == ["cached", "done"], "trained again with the same weights: the first record counts"
    assert folder.is_dir()


@pytest.mark.usefixtures("here")
def test_a_trained_model_is_named_as_the_list_of_models_has_it(asked: dict[str, Any]) -> None:
    (one,) = run(asked).prepared.subjects
    plain = {**asked, "recipe": (), "train_data": ""}
    for name in (one.artifact.slug, "tiny-sample-centered", one.artifact.key[:6]):
        named = run(plain, model=name)
        assert hows(named) == ["cached", "cached"]
        assert named.prepared.subjects[0].artifact.name == "tiny-sample-centered"
    assert hows(run(asked, model=one.artifact.slug, recipe_settings={"share": 0.5})) == ["done", "done"]
    run(asked, settings=replace(harness.Settings(), seed=43))
    with pytest.raises(UsageError, match=r"2 trained models in .* are called tiny-sample-centered") as caught:
        run(plain, model="tiny-sample-centered")
    assert one.artifact.slug in str(caught.value.hint)
    with pytest.raises(UsageError, match="No model is called") as caught:
        run(plain, model=one.artifact.slug[:-1])
    assert f"Did you mean {one.artifact.slug}" in str(caught.value.hint)


@pytest.mark.usefixtures("here")
def test_seeds_are_models_of_their_own_with_one_mean(asked: dict[str, Any], capsys: Any) -> None:
    report = run(asked, seeds=2)
    models = [one.document for one in ModelStore(asked["results"]).list_stored_models()]
    assert sorted(one.lineage.seed for one in models if one) == [42, 43]
    found = report.to_json()
    (over,) = found["over_seeds"]
    one = [r["main_score"] for r in found["records"] if r["task"] == "one"]
    mean = sum(one) / 2
    assert over["columns"]["one"]["value"] == pytest.approx(mean)
    deviation = sum((score - mean) ** 2 for score in one) ** 0.5
    assert over["columns"]["one"]["deviation"] == pytest.approx(deviation)
    assert [entry["lineage"]["seed"] for entry in found["trained"]] == [42, 43]
    from harness.core.terminal import create_console

    report.print(create_console())
    printed = capsys.readouterr().out
    assert "tiny-sample-centered (2 seeds)" in printed
    assert f"{100 * mean:.2f} ± {100 * deviation:.2f}" in printed
    folders = [str(one.artifact.folder) for one in report.prepared.subjects]
    by_path = harness.run(
        folders, asked["suite"], **{name: asked[name] for name in ("results", "cache", "offline", "threads")}
    )
    assert hows(by_path) == ["cached"] * 4
    assert by_path.to_json()["over_seeds"][0]["columns"] == over["columns"]


def test_every_setting_the_seed_and_the_data_are_in_the_key(asked: dict[str, Any], backbone: Path) -> None:
    def key(**more: Any) -> str:
        return ResolvedRequest.resolve_request(request(asked, **more)).subjects[0].artifact.key

    before = key()
    other = asked["results"].parent / "other" / "named.jsonl"
    other.parent.mkdir()
    shutil.copy(asked["train_data"], other)
    copy = other.parent / "backbone"
    shutil.copytree(backbone, copy)
    same = {"results": other.parent, "cache": other.parent / "cache", "threads": 2, "offline": False}
    for name, value in {**same, "train_data": other, "model": str(copy)}.items():
        assert key(**{name: value}) == before, f"{name} is no part of the key"
    changed = other.with_name("changed.jsonl")
    changed.write_text(other.read_text() + json.dumps({"anchor": "a", "positive": "b"}) + "\n")
    settings = replace(request(asked).settings, seed=43)
    keys = [
        before,
        key(settings=settings),
        key(recipe_settings={"share": 0.5}),
        key(recipe_settings={"texts": "7"}),
        key(train_data=changed),
    ]
    assert len(set(keys)) == len(keys)


LINEAGE = Lineage(
    recipe="simcse",
    settings={"pooling": "mean", "learning_rate": 5e-5},
    parents=(ParentPart(name="minilm", artifact="a" * 64),),
    data=(TrainingData(path="org/name", revision="1" * 40, config="triplet").identity,),
    seed=42,
)


def test_the_key_of_a_lineage_is_golden() -> None:
    """A change of it throws away everyone's models: it needs a reason."""
    assert LINEAGE.key == GOLDEN
    for name, value in {
        "variant": "mean",
        "source": "elsewhere",
        "changed": {"a": 1},
        "assumed": ("it",),
        "selected_on": ("STSBenchmark",),
        "own_data": "mine",
    }.items():
        assert LINEAGE.model_copy(update={name: value}).key == GOLDEN, (
            f"{name} describes, and decides nothing"
        )
    (parent,) = LINEAGE.parents
    told = parent.model_copy(update={"own_data": "theirs", "selected_on": ("STS12",), "name": "x"})
    assert LINEAGE.model_copy(update={"parents": (told,)}).key == GOLDEN
    data = TrainingData(path="org/name", revision="2" * 40, config="triplet").identity
    sweep = SweepPart(setting="learning_rate", values=(1e-5, 5e-5), tasks={"STS12": {"task": "STS12"}})
    swept = {"sweep": sweep}
    for changes in (
        {"seed": 1},
        {"recipe": "x"},
        {"settings": {}},
        {"parents": ()},
        {"data": (data,)},
        swept,
    ):
        assert LINEAGE.model_copy(update=changes).key != GOLDEN
    before = LINEAGE.model_copy(update=swept)
    part = MemberPart(value=5e-5, artifact="b" * 64, scores={"STS12": 0.5}, mean=0.5)
    after = before.model_copy(update={"sweep": sweep.model_copy(update={"chosen": 5e-5, "curve": (part,)})})
    assert after.key == before.key, "the outcome is no part of the key"
    assert before.text == "simcse, learning_rate among 1e-05, 5e-05"
    assert after.text == "simcse, learning_rate=5e-05 of 2 values"
    assert after.all_selected_on == ("STS12",)


def test_the_training_of_parents_is_no_secret(tmp_path: Path) -> None:
    """What a model's parents and their parents were trained on and chosen by, each once."""
    made = LINEAGE
    for name, task in (("a.csv", "STS12"), ("", "STS13"), ("b.csv", "STS12")):
        made = made.model_copy(update={"own_data": name, "selected_on": (task,)})
        document = ModelDocument(name="m", key=made.key, content="c", weights="w", lineage=made)
        (tmp_path / "model.json").write_text(document.to_json())
        trained = replace(fakes.artifact(tmp_path, key=made.key, name="further"), trained=True)
        parent = ParentPart.of(trained)
        made = LINEAGE.model_copy(update={"parents": (parent,)})
    assert parent.text == "further (trained on b.csv, a.csv)"
    assert (made.all_own_data, made.all_selected_on) == ("b.csv, a.csv", ("STS12", "STS13"))
    assert ParentPart.of(fakes.artifact(tmp_path)).text == "tiny", "a model whose document is not believed"


GOLDEN = "ba409277150b328199632842faebab4cbd7ab930ec851a7d1a5e80a49f2f9098"


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (
            {"recipe": "sample-centred"},
            "No recipe is called 'sample-centred'.\nDid you mean sample-centered?",
        ),
        ({"recipe": "sample-centered:x"}, "No variant of sample-centered is called 'x'."),
        ({"recipe_settings": {"shere": 1}}, "sample-centered has no setting 'shere'.\nDid you mean share?"),
        ({"recipe_settings": {"texts": "many"}}, "The setting texts of sample-centered cannot be 'many'"),
        ({"recipe": ("sample-centered", "simcse")}, "sample-centered and simcse both make models."),
        ({"suite": "glue"}, "A model must be trained for CoLA"),
        ({"suite": "glue", "recipe": ("sample-centered", "glue-quick")}, "makes models that give vectors"),
        ({"recipe": ""}, "--train-data is for a recipe that makes a model."),
        ({"recipe": "", "train_data": "", "seeds": 2}, "--seeds is for a recipe that makes a model."),
        ({"train_data": "nowhere.jsonl"}, "nowhere.jsonl"),
        ({"train_data": ""}, "harness data pull --recipe sample-centered --data DIR"),
    ],
)
def test_what_cannot_be_asked(asked: dict[str, Any], more: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError) as caught:
        run(asked, **more)
    assert said in str(caught.value)
    assert not (asked["results"] / "models").exists()


SWEEP = {"sweep": {"share": "0,0.5,1"}}


def swept(asked: dict[str, Any], **more: Any) -> Report:
    return run(asked, **{**SWEEP, "select": f"{asked['suite']}", **more})


@pytest.mark.usefixtures("here")
def test_a_watch_says_what_a_recipe_notes_once_and_its_seeds_are_seeds_of_a_run(
    asked: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for step in (1, 2):
        tiny.folder(tiny.families()["bert"], tmp_path / "mine" / f"step-{step}", seed=step)
    places = ["--results", str(asked["results"]), "--cache", str(asked["cache"])]
    for seed in ("1", "2"):
        how = ["--suite", asked["suite"], "--recipe", "simcse:mean", "--train-data", str(asked["train_data"])]
        for setting in ("batch_size=2", "epochs=1", "learning_rate=0.01", "precision=float32"):
            how += ["--set", setting]
        how += ["--seed", seed, "--name", f"mine-{seed}", "--once", "--settle", "0", "--offline"]
        assert invoke(["watch", str(tmp_path / "mine"), *how, *places]) == 0
        err = capsys.readouterr().err
        assert err.count("to be trained: ") == 2
        assert err.count("our own choice, as no source states it: ") == 1
    code = invoke(["watch", "--run", "mine=mine-1", "--run", "mine=mine-2", *places])
    said = capsys.readouterr()
    assert (code, "mine reaches " in said.out) == (0, True), said


@pytest.mark.usefixtures("here")
def test_a_sweep_chooses_the_best_member_and_says_so(asked: dict[str, Any], capsys: Any) -> None:
    """Held against the members trained and scored one by one in another folder."""
    alone = {}
    for share in (0.0, 0.5, 1.0):
        more = {"results": asked["results"].parent / "alone", "recipe_settings": {"share": share}}
        report = run(asked, **more)
        alone[share] = {r.task.name: r.main_score for r in report.records}
        key = report.prepared.subjects[0].artifact.key
        alone[share]["key"] = key
    means = {share: (found["one"] + found["two"]) / 2 for share, found in alone.items()}
    best = max(means, key=means.__getitem__)

    _interrupted_sweeps(asked)
    report = swept(asked)
    assert hows(report) == ["done", "done"]
    (one,) = report.prepared.subjects
    document = read_document(one.artifact.folder)
    assert document is not None
    sweep = document.lineage.sweep
    assert sweep is not None
    assert (sweep.setting, sweep.values, sweep.chosen) == ("share", (0.0, 0.5, 1.0), best)
    for member in sweep.curve:
        found = alone[member.value]
        assert member.artifact == found["key"], "a member is the model that --set makes"
        assert member.scores == {"one": found["one"], "two": found["two"]}
        assert member.mean == pytest.approx(means[member.value])
    assert document.key == document.lineage.key == one.artifact.key
    assert document.weights == read_document(ModelStore(asked["results"]).find(alone[best]["key"])[0]).weights
    for record in report.records:
        assert record.main_score == alone[best][record.task.name]
        assert record.lineage.all_selected_on == ("one", "two")
        assert record.lineage.sweep == sweep
    final = list(iter_records(Store(asked["results"])))
    assert {record.model.artifact for record in final} == {one.artifact.key}, "a trial enters no table"
    assert len(list(iter_records(Store(asked["results"]), purpose="trial"))) == 6

    assert hows(swept(asked)) == ["cached", "cached"]
    assert not swept(asked).prepared.plan.jobs
    direct = run(asked, recipe_settings={"share": best})
    assert [job.kind for job in direct.prepared.plan.jobs if job.kind == "train"] == [], "it is there"
    from harness.core.terminal import create_console

    report.print(create_console())
    printed = capsys.readouterr().out
    assert "share chosen among 3 values by one, two: scores there are biased" in printed
    assert f"{best}: {100 * means[best]:.2f} (chosen)" in printed
    assert printed.count("new, chose") == 2
    found = report.to_json()
    assert [row["selected"] for row in found["records"]] == [True, True]
    assert found["suites"][0]["selected"] == ["one", "two"]
    found = found["trained"][0]["lineage"]["sweep"]
    assert (found["chosen"], len(found["curve"])) == (best, 3)
    assert invoke(["show", one.artifact.key[:12], "--results", str(asked["results"])]) == 0
    assert f"{best}: {100 * means[best]:.2f} (chosen)" in capsys.readouterr().out


GRID = {"sweep": {"share": "0,1", "texts": [4, 9]}}


def test_a_grid_of_budgets_is_one_plan_with_its_total(
    asked: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tiny.folder(tiny.families()["modernbert"], tmp_path / "other")
    typed = ["run", "--model", asked["model"], "--model", str(other), "--suite", asked["suite"]]
    typed += ["--recipe", "efficient-lora", "--train-data", str(asked["train_data"]), "--offline"]
    typed += ["--budget", "1e8,4e8", "--sweep", "rank=2,4", "--set", "batch_size=4", "--set", "chunk=4"]
    typed += ["--results", str(asked["results"]), "--cache", str(asked["cache"]), "--dry-run"]
    assert invoke(typed) == 0
    out = capsys.readouterr().out
    assert "8 trainings to do, with budgets of 2e+09 operations in all." in out
    assert invoke([*typed, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    names = [f"(budget={budget}, rank={rank})" for budget in ("1e+08", "4e+08") for rank in (2, 4)]
    assert [line["model"].partition(" ")[2] for line in document["trainings"]] == [*names, *names]
    assert [line["operations"] for line in document["trainings"][:4]] == [1e8, 1e8, 4e8, 4e8]
    assert len({line["model"] for line in document["plan"]}) == 8


@pytest.mark.parametrize("budget", ["", "none", "1e8,", "1e8;2e8"])
def test_a_budget_is_a_number_or_several(budget: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["train", "--model", "bert", "--recipe", "efficient-lora", "--budget", budget]) == 2
    assert f"--budget {budget!r} is no number of operations" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.usefixtures("here")
def test_each_value_of_a_sweep_that_nothing_chooses_is_a_model(asked: dict[str, Any]) -> None:
    """It is the model that the recipe alone makes with this value, and what is trained is not done again."""
    alone = run(asked, recipe_settings={"share": 0.5}).prepared.subjects[0].artifact
    report = run(asked, sweep={"share": [0, 0.5]})
    assert hows(report) == ["done", "done", "cached", "cached"]
    first, second = report.prepared.subjects
    assert (second.artifact.key, second.lineage.sweep) == (alone.key, None)  # type: ignore[union-attr]
    assert report.prepared.format_model_name(first) == "tiny-sample-centered (share=0)"
    report = run(asked, sweep={"share": [0, 0.5]}, seeds=2)
    labels = [report.format_group_label(group) for group in report.prepared.groups]
    assert labels == [f"tiny-sample-centered (share={share}, 2 seeds)" for share in ("0", "0.5")]


@pytest.mark.usefixtures("here")
def test_a_sweep_of_several_settings_has_every_combination(asked: dict[str, Any], capsys: Any) -> None:
    """Interrupted between two members; its members are the models that --set makes."""
    trained: list[str] = []

    def stop(job: Job, event: Event) -> None:
        trained.extend([job.key] if event.kind == "finished" else [])
        if len(trained) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        swept(asked, **GRID, listeners=Listeners(event=stop))
    trained.append("")
    report = swept(asked, **GRID, listeners=Listeners(event=stop))
    assert len(set(trained)) == len(trained) == 6, "four members and the choice, once each"
    (one,) = report.prepared.subjects
    document = read_document(one.artifact.folder)
    assert document is not None
    sweep = document.lineage.sweep
    assert sweep is not None
    combinations = [{"share": share, "texts": texts} for share in (0.0, 1.0) for texts in (4, 9)]
    assert (sweep.setting, sweep.values, sweep.grid) == (
        *("share, texts", tuple(combinations)),
        {"share": (0.0, 1.0), "texts": (4, 9)},
    )
    alone = [request(asked, recipe_settings=settings) for settings in combinations]
    keys = [ResolvedRequest.resolve_request(found).subjects[0].artifact.key for found in alone]
    assert [member.artifact for member in sweep.curve] == keys
    assert [member.value for member in sweep.curve] == combinations
    best = max(sweep.curve, key=lambda member: member.mean or 0)
    assert (sweep.chosen, document.weights) == (
        *(best.value, ModelStore(asked["results"]).find(best.artifact)[1].weights),
    )
    assert not {"share", "texts"} & document.lineage.settings.keys()
    assert document.lineage.text.endswith(
        f"share={best.value['share']}, texts={best.value['texts']} of 4 combinations, trained on rows.jsonl"
    )
    assert hows(swept(asked, **GRID)) == ["cached", "cached"]
    other = swept(asked, sweep={"texts": [4, 9], "share": "0,1"}, listeners=Listeners(event=stop))
    assert (hows(other), trained[6:]) == (["cached", "cached"], []), "another order is the same sweep"
    capsys.readouterr()
    for command in (["show"], ["models", "show"]):
        assert invoke([*command, one.artifact.key[:12], "--results", str(asked["results"])]) == 0
        lines = [line.split() for line in capsys.readouterr().out.splitlines()]
        at = lines.index(["share", "texts", "one", "two", "mean"])
        assert lines[at + 1 : at + 5] == [
            [
                *map(str, member.value.values()),
                *(
                    f"{100 * score:.2f}".replace("-", "−")
                    for score in (*member.scores.values(), member.mean or 0)
                ),
                *(["chosen"] if member is best else []),
            ]
            for member in sweep.curve
        ]


def test_drawn_members_are_some_of_all(asked: dict[str, Any], capsys: Any) -> None:
    """The key knows the members alone, and not how they were drawn."""
    sweep = {"sweep": {"share": [0, 0.25, 0.5, 1], "texts": [3, 4, 5]}, "select": (asked["suite"],)}

    def plan(**more: Any) -> tuple[str, list[str]]:
        (one,) = ResolvedRequest.resolve_request(request(asked, **sweep, **more)).subjects
        assert one.training is not None
        assert one.training.sweep is not None
        return one.artifact.key, [member.artifact.key for member in one.training.sweep.members]

    key, every = plan()
    drawn = {seed: plan(samples=2, sample_seed=seed) for seed in range(60)}
    for _, members in drawn.values():
        assert [name for name in every if name in members] == members, "in their order among all"
        assert len(members) == 2
    assert len({drawn_key for drawn_key, _ in drawn.values()}) == len({str(m) for _, m in drawn.values()})
    assert 30 < len({str(members) for _, members in drawn.values()}) < 60, "some were drawn by two seeds"
    assert plan(samples=12, sample_seed=5) == (key, every)
    assert plan(samples=2)[1] == drawn[42][1]
    wide = {name: range(10**6) for name in ("a", "b", "c")}
    few = request(asked, samples=5).validate_fields()
    drawn_members, note = _draw_members(wide, few)
    assert len({str(member) for member in drawn_members}) == 5
    assert all(member.keys() == wide.keys() for member in drawn_members)
    assert "5 of 1,000,000,000,000,000,000 combinations" in note
    with pytest.raises(UsageError, match="more than can be drawn from"):
        _draw_members({**wide, "d": range(10)}, few)
    options = ["--model", asked["model"], "--recipe", "sample-centered", "--offline", "--dry-run"]
    options += ["--train-data", str(asked["train_data"]), "--results", str(asked["results"])]
    options += ["--cache", str(asked["cache"]), "--sweep", "share=0,0.25,0.5,1", "--sweep", "texts=3,4,5"]
    options += ["--select", asked["suite"], "--samples", "2", "--sample-seed", "7"]
    capsys.readouterr()
    assert invoke(["train", *options]) == 0
    assert "sweep: 2 of 12 combinations of share, texts, drawn with seed 7" in capsys.readouterr().out
    assert invoke(["run", "--suite", asked["suite"], *options, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [line["key"] for line in found["trainings"]] == [*drawn[7][1], drawn[7][0]]
    assert [line["state"] for line in found["trainings"]] == ["to do", "to do", "to choose"]
    assert len([line for line in found["plan"] if line["purpose"] == "trial"]) == 4
    assert len({line["model"] for line in found["plan"]}) == 3


@pytest.fixture
def pooled_recipe(sample: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """The sample recipe with a setting that decides how its models are evaluated."""
    text = (PLUGIN / "sample_model_recipe.py").read_text()
    text = text.replace("    share: float = 1.0\n", '    share: float = 1.0\n    pooling: str = "mean"\n')
    text = text.replace('pooling="mean"', "pooling=self.settings.pooling")
    text = text.replace('models.Pooling(width, "mean")', "models.Pooling(width, self.settings.pooling)")
    (tmp_path / "pooled_recipe.py").write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "pooled_recipe", raising=False)
    import pooled_recipe

    monkeypatch.setattr(catalog, "load_recipe_entries", lambda: {"sample-centered": pooled_recipe.RECIPE})
    return pooled_recipe


@pytest.mark.usefixtures("here")
def test_a_sweep_that_fails_leaves_the_others_and_seeds_stay_together(
    asked: dict[str, Any], pooled_recipe: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: Any
) -> None:
    """The sweeps decide the pooling, and the second backbone cannot be trained."""
    pooled = {"sweep": {"pooling": "mean,cls"}, "select": (asked["suite"],)}
    seeds = evaluation.prepare(request(asked, **pooled, seeds=2))
    one, other = seeds.subjects
    chose_cls = replace(other, encoding=replace(other.encoding, pooling="cls"))
    assert replace(seeds, subjects=(one, chose_cls)).groups == ((one, chose_cls),)

    def leave_untrained(choosing: PreparedRun) -> Any:
        time, jobs = choosing.plan.time, [job for job in choosing.plan.jobs if job.resources.needs_device]
        assert time is not None
        assert time.seconds == pytest.approx(sum(job.resources.seconds or 0.0 for job in jobs))
        raise DataError("no more")

    with pytest.raises(DataError, match="no more"):
        evaluation.make_choices(seeds, leave_untrained)

    train = pooled_recipe.CenteringRecipe.train

    def fail(recipe: Any, spec: Any) -> None:
        if spec.backbone.name == "second":
            raise DataError("row 7 is bad")
        train(recipe, spec)

    monkeypatch.setattr(pooled_recipe.CenteringRecipe, "train", fail)
    second = tiny.folder(tiny.families()["modernbert"], tmp_path / "second")
    texts: list[int] = []
    heard = Listeners(event=lambda _, event: texts.append(event.texts if event.kind == "encoded" else 0))
    report = run(asked, **pooled, model=[str(second), asked["model"]], listeners=heard)
    assert hows(report) == ["failed", "failed", "done", "done"]
    assert report.failures[0].failure is not None
    assert "second-sample-centered, pooling=mean: row 7 is bad" in report.failures[0].failure.message
    assert [one.main_score is not None for one in report.records] == [True, True]
    assert report.texts_encoded == sum(texts), "with those of the members"
    options = ["--model", str(second), "--model", asked["model"], "--recipe", "sample-centered", "--offline"]
    options += ["--train-data", str(asked["train_data"]), "--results", str(asked["results"])]
    options += ["--cache", str(asked["cache"]), "--sweep", "pooling=mean,cls", "--select", asked["suite"]]
    capsys.readouterr()
    assert invoke(["run", "--suite", asked["suite"], *options]) == 1
    printed = capsys.readouterr().out
    assert "pooling=mean: row 7 is bad" in printed
    assert "tiny-sample-centered" in printed


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("values", ["mean,cls", "cls,mean"])
def test_a_model_is_evaluated_by_the_pooling_that_its_sweep_chose(
    asked: dict[str, Any], values: str, pooled_recipe: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """In either order of the values, one of which is that of the plan before the choice."""
    trained: list[str] = []
    heard = Listeners(event=lambda job, event: trained.append(job.kind) if event.kind == "finished" else None)
    pooled = {"sweep": {"pooling": values}}
    report = swept(asked, **pooled, listeners=heard)
    assert (hows(report), trained) == (["done", "done"], ["train", "train", "select"])
    (made,) = report.to_json()["trained"]
    chosen = made["lineage"]["sweep"]["chosen"]
    assert {record.identity["encoding"]["pooling"] for record in report.records} == {chosen}
    means = {one["value"]: one["mean"] for one in made["lineage"]["sweep"]["curve"]}
    assert means[chosen] == max(means.values()) > min(means.values())
    assert [record.main_score for record in report.records] == [
        next(one for one in made["lineage"]["sweep"]["curve"] if one["value"] == chosen)["scores"][name]
        for name in ("one", "two")
    ]
    assert hows(swept(asked, **pooled)) == ["cached", "cached"]
    aside = (asked["results"] / "models").rename(tmp_path / "aside")
    again = swept(asked, **pooled)
    assert (hows(again), again.prepared.plan.jobs) == (["cached", "cached"], ()), "the trials tell the choice"
    shutil.rmtree(asked["results"] / "models", ignore_errors=True)
    aside.rename(asked["results"] / "models")
    assert hows(run({**asked, "model": made["folder"], "recipe": "", "train_data": ""})) == ["cached"] * 2

    def fail(_recipe: object, _spec: object) -> None:
        raise DataError("row 7 is bad")

    monkeypatch.setattr(pooled_recipe.CenteringRecipe, "train", fail)
    failed = swept(asked, **pooled, results=tmp_path / "others")
    assert hows(failed) == ["failed", "failed"]
    assert failed.failures[0].failure is not None
    message = failed.failures[0].failure.message
    assert re.match(r"tiny-sample-centered, pooling=(mean|cls): row 7 is bad", message)
    assert not list((tmp_path / "others" / "records").glob("*/*")), "nothing is scored by a guess"


def _interrupted_sweeps(asked: dict[str, Any]) -> None:
    """Interrupt a sweep after its second training, its third score and its choice; nothing is made twice."""
    trained: list[str] = []
    scored: list[tuple[str, str]] = []
    stops = ["chosen", "scored", "trained"]

    def event(job: Job, event: Event) -> None:
        if event.kind == "finished":
            trained.append(job.key)
            if (stops[-1] == "trained" and len(trained) == 2) or job.kind == "select":
                raise KeyboardInterrupt

    def trial(_job: Job, record: Record) -> None:
        scored.append((record.model.artifact, record.task.name))
        if stops[-1] == "scored" and len(scored) == 3:
            raise KeyboardInterrupt

    while stops:
        with pytest.raises(KeyboardInterrupt):
            swept(asked, listeners=Listeners(event=event, trained=trial))
        stops.pop()
    assert len(set(trained)) == len(trained) == 4, "three members and the choice"
    assert len(set(scored)) == len(scored) == 6


@pytest.mark.usefixtures("here")
def test_a_score_of_other_weights_does_not_choose(asked: dict[str, Any]) -> None:
    """The chosen member and the choice are gone, and one trial is of other weights: it is scored again."""
    two = {"sweep": {"share": (0, 1)}}
    first = swept(asked, **two)
    (one,) = first.prepared.subjects
    before = read_document(one.artifact.folder)
    assert before is not None
    assert before.lineage.sweep is not None
    shutil.rmtree(one.artifact.folder)
    trial = next(iter_records(Store(asked["results"]), purpose="trial"))
    (path,) = (asked["results"] / "records").glob(f"*/*/{trial.key}.json")
    content = json.loads(path.read_text())
    del content["digest"]
    content["model"]["weights"] = "0" * 64
    content["main_score"] = 1.0
    content["scores"] = {"test": {"default": {"main_score": 1.0}}}
    content["purpose"] = "final"
    path.write_text(append_digest(content))
    again = swept(asked, **two)
    assert hows(again) == ["cached", "cached"]
    after = read_document(one.artifact.folder)
    assert after is None, "every score of the chosen model is there"
    (found,) = again.to_json()["trained"]
    assert found["folder"] is None
    assert found["lineage"]["sweep"] == before.lineage.sweep.model_dump(mode="json"), "from a record"
    shutil.rmtree(asked["results"] / "records" / one.artifact.slug)
    assert hows(swept(asked, **two)) == ["done", "done"]
    after = read_document(one.artifact.folder)
    assert after is not None
    assert after.lineage.sweep == before.lineage.sweep
    scored = Store.parse(path)
    assert scored.main_score != 1.0
    assert scored.purpose == "final", "what was asked for by itself before stays in tables"


@pytest.mark.usefixtures("here")
def test_a_member_that_cannot_be_trained_is_named(
    asked: dict[str, Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: Any
) -> None:
    """The sweep of the other seed is not touched by it."""
    text = (PLUGIN / "sample_model_recipe.py").read_text()
    begin = "        spec.log.begin("
    when = "        if (spec.seed, self.settings.share) == (43, 1.0):\n"
    fault = f"{when}            raise DataError('row 7 is bad')\n"
    (tmp_path / "half_recipe.py").write_text(text.replace(begin, fault + begin))
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ["PYTHONPATH"]]))
    import half_recipe

    monkeypatch.setattr(catalog, "load_recipe_entries", lambda: {"sample-centered": half_recipe.RECIPE})
    how = {name: asked[name] for name in ("train_data", "results", "cache", "offline", "threads")}
    chosen = {"sweep": {"share": [0, 1]}, "select": asked["suite"], "seeds": 2}
    good, bad = harness.train(asked["model"], "sample-centered", **how, **chosen)
    assert good.failure is None
    assert good.folder is not None
    assert bad.folder is None
    assert bad.failure is not None
    assert bad.failure.message == "tiny-sample-centered, share=1.0: row 7 is bad"
    assert "Leave the value out of --sweep" in (bad.failure.hint or "")
    vectors = [path.read_text() for path in (asked["cache"] / "vectors").glob("*/*/space.json")]
    document = read_document(good.folder)
    assert document is not None
    assert document.lineage.sweep is not None
    members = [member.artifact for member in document.lineage.sweep.curve]
    assert not [text for text in vectors if any(key in text for key in members)], "their vectors go"

    options = ["--recipe", "sample-centered", "--train-data", str(asked["train_data"]), "--offline"]
    options += ["--results", str(asked["results"]), "--cache", str(asked["cache"]), "--seeds", "2"]
    options += ["--sweep", "share=0,1", "--select", asked["suite"]]
    capsys.readouterr()
    assert invoke(["train", "--model", asked["model"], *options, "--dry-run", "--json"]) == 0
    lines = json.loads(capsys.readouterr().out)["trainings"]
    assert [(line["seed"], line["state"]) for line in lines] == [
        *((42, "there"), (43, "there"), (43, "to go on"), (43, "to choose"))
    ]
    assert [line["model"].rpartition(", ")[2] for line in lines[1:3]] == ["share=0.0", "share=1.0"]
    run_options = ["--model", asked["model"], "--suite", asked["suite"], *options]
    assert invoke(["run", *run_options, "--dry-run", "--json"]) == 0
    lines = [line for line in json.loads(capsys.readouterr().out)["plan"] if line["purpose"] == "trial"]
    assert [(line["model"].rpartition(", ")[2], line["task"], line["state"]) for line in lines] == [
        *(("share=0.0", "one", "done"), ("share=0.0", "two", "done")),
        *(("share=1.0", "one", "to do"), ("share=1.0", "two", "to do")),
    ]
    assert not list((asked["results"] / "records").glob("*/*/*.failed.json"))


@pytest.mark.usefixtures("here")
def test_a_member_that_diverges_is_left_out(
    asked: dict[str, Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: Any
) -> None:
    """It has no score, the others are chosen from, and the same command does not train it again."""
    text = (PLUGIN / "sample_model_recipe.py").read_text()
    begin = "        spec.log.begin("
    fault = "        if self.settings.share >= 1:\n            raise DivergenceError('The loss is NaN.')\n"
    text = text.replace(begin, fault + begin).replace(
        "\n\nfrom collections", "\n\nfrom harness.core.errors import DivergenceError\nfrom collections"
    )
    (tmp_path / "steep_recipe.py").write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ["PYTHONPATH"]]))
    import steep_recipe

    monkeypatch.setattr(catalog, "load_recipe_entries", lambda: {"sample-centered": steep_recipe.RECIPE})
    some, none = {"sweep": {"share": "1,0,0.5"}}, {"sweep": {"share": "1,2"}}

    def stop(_job: Job, event: Event) -> None:
        if event.kind == "failed":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        swept(asked, **some, listeners=Listeners(event=stop))
    options = ["--model", asked["model"], "--recipe", "sample-centered", "--offline", "--dry-run", "--json"]
    options += ["--train-data", str(asked["train_data"]), "--results", str(asked["results"])]
    options += ["--cache", str(asked["cache"]), "--sweep", "share=1,0,0.5", "--select", asked["suite"]]
    capsys.readouterr()
    assert invoke(["train", *options]) == 0
    lines = json.loads(capsys.readouterr().out)["trainings"]
    assert [line["state"] for line in lines] == ["diverged", "to do", "to do", "to choose"]
    report = swept(asked, **some)
    assert hows(report) == ["done", "done"]
    kinds = [(job.kind, job.member) for job in report.prepared.plan.jobs if job.kind == "train"]
    assert kinds == [("train", "share=0.0"), ("train", "share=0.5")]
    found = report.to_json()["trained"][0]["lineage"]["sweep"]
    assert found["chosen"] in (0.0, 0.5)
    assert [(one["value"], one["mean"] is None, len(one["scores"])) for one in found["curve"]] == [
        *((1.0, True, 0), (0.0, False, 2), (0.5, False, 2)),
    ]
    assert invoke(["show", "tiny-sample-centered", "--results", str(asked["results"])]) == 0
    assert "share: 1.0: diverged, 0.0: " in capsys.readouterr().out
    at_once = asked["results"].parent / "at once"
    assert swept(asked, **some, results=at_once).to_json()["trained"][0]["lineage"]["sweep"] == found

    failed = swept(asked, **none)
    assert hows(failed) == ["failed", "failed"]
    assert failed.results[0].failure is not None
    assert failed.results[0].failure.message.startswith("All 2 trainings of tiny-sample-centered diverged")
    alone = harness.train(
        asked["model"],
        "sample-centered",
        recipe_settings={"share": 2},
        **{name: asked[name] for name in ("train_data", "results", "cache", "offline", "threads")},
    )
    assert alone[0].failure is not None
    assert alone[0].failure.message == "The loss is NaN."
    assert "harness models remove" in (alone[0].failure.hint or "")


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_sweep_killed_at_its_choice_and_one_run_twice_at_once_choose_the_same(
    asked: dict[str, Any], tmp_path: Path
) -> None:
    """The driver is killed before the choice, then with half of it written; two others share a new sweep."""
    two_values = {"sweep": {"share": "0,1"}}
    script = tmp_path / "go.py"
    script.write_text(
        "import gc, json, os, signal, sys\n"
        "if __name__ == '__main__':\n"
        "    gc.disable()\n"  # for a few seconds in all
        "    import harness, harness.jobs.training_jobs as jobs, sample_model_recipe\n"
        "    import pytest, stopped_trainings\n"
        "    from harness.plan import catalog\n"
        "    from harness.driver.execute import Listeners\n"
        "    catalog.load_recipe_entries = lambda: {'sample-centered': sample_model_recipe.RECIPE}\n"
        "    stopped_trainings.train_in_this_process(pytest.MonkeyPatch())\n"
        "    asked, point = json.loads(sys.argv[1]), sys.argv[2]\n"
        "    def kill(*_):\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
        "    def event(job, event):\n"
        "        if event.kind == 'finished':\n"
        "            with open(sys.argv[3], 'a') as file:\n"
        "                print(job.key, file=file)\n"
        "        if job.kind == 'select' and point == 'before':\n"
        "            kill()\n"
        "    copy = jobs.copy_model\n"
        "    jobs.copy_model = lambda *of: (copy(*of), kill()) if point == 'half' else copy(*of)\n"
        "    harness.run(asked.pop('model'), asked.pop('suite'), listeners=Listeners(event=event), **asked)\n"
        "    os._exit(0)\n"
    )

    made = tmp_path / "made"

    def start(point: str, results: str) -> subprocess.Popen[bytes]:
        given = {**asked, **two_values, "select": asked["suite"], "results": tmp_path / results}
        command = [sys.executable, str(script), json.dumps(given, default=str), point, str(made)]
        return subprocess.Popen(command, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})

    def count() -> int:
        """The models that were made since the last count, each once."""
        lines = made.read_text().split() if made.exists() else []
        made.unlink(missing_ok=True)
        assert len(set(lines)) == len(lines)
        return len(lines)

    def choice(results: str) -> Any:
        (found,) = swept(asked, **two_values, results=tmp_path / results).to_json()["trained"]
        return found["lineage"]["sweep"], Path(found["folder"]).name

    assert start("before", "killed").wait() == -signal.SIGKILL
    assert count() == 2
    assert len(list(iter_records(Store(tmp_path / "killed"), purpose="trial"))) == 4
    assert start("half", "killed").wait() == -signal.SIGKILL
    events: list[str] = []
    heard = Listeners(event=lambda job, event: events.append(job.kind) if event.kind == "finished" else None)
    swept(asked, **two_values, results=tmp_path / "killed", listeners=heard)
    assert events == ["select"], "the choice alone"
    assert count() == 0, "the driver with half a choice finished nothing"
    two = [start("", "shared") for _ in range(2)]
    assert [process.wait() for process in two] == [0, 0]
    assert count() == 3, "nothing is made by both"
    assert choice("shared") == choice("killed")
    for results in ("killed", "shared"):
        assert not list((tmp_path / results / "models").glob(".*")), "nothing is left over"


def test_settings_of_an_evaluation_reach_the_tasks_that_choose(asked: dict[str, Any]) -> None:
    settings = replace(request(asked).settings, document_text="text")
    found = request(asked, settings=settings, **SWEEP, select=("beir:NFCorpus", "mteb:STS12"))
    sweep = Recipes.resolve_recipes([], found.validate_fields()).sweep
    assert sweep is not None
    assert [task.documents for task in sweep.tasks.values()] == ["text", "title and text"]


def test_members_of_a_sweep_have_the_same_data(asked: dict[str, Any]) -> None:
    (one,) = ResolvedRequest.resolve_request(request(asked)).subjects
    (two,) = ResolvedRequest.resolve_request(request(asked, recipe_settings={"share": 0.5})).subjects
    assert two.lineage is not None
    sweep = Sweep(setting="share", values=(1.0, 0.5), recipes=(), tasks={})
    mixed = {"settings": {**two.lineage.settings, "mix": "another"}}
    for changes in ({"data": ()}, {"selected_on": ("STSBenchmark",)}, mixed):
        other = replace(two, lineage=two.lineage.model_copy(update=changes))
        with pytest.raises(UsageError, match="are made of different data"):
            _require_comparable((one, other), sweep)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"sweep": {"share": "1"}}, "The value 1.0 is given for share: a sweep has two or more."),
        ({"sweep": {"shere": "0,1"}}, "sample-centered has no setting 'shere'.\nDid you mean share?"),
        ({"sweep": {"seed": "1,2"}}, "seed is no setting of a recipe.\nType --seeds N for N trainings"),
        (
            {"recipe": "simcse", "sweep": {"betas": "0.9,0.95"}},
            "A value of betas is 2 numbers, and the commas of --sweep part single ones.\n"
            'Type --set betas=0.9,0.999 for one value, or several in Python: sweep={"betas": [(0.9,',
        ),
        (
            {"recipe": "efficient-lora", "sweep": {"budget": "1e12,x"}},
            "Type e.g. --budget VALUE,VALUE.",
        ),
        (
            {"recipe": "efficient-lora", "sweep": {"budget": "1e12,1e12"}},
            "The value 1e+12 of budget is given twice.",
        ),
        ({"sweep": {"share": "1,1.0"}}, "The value 1 of share is given twice."),
        ({"sweep": {"share": [0, 1], "texts": [3]}}, "The value 3 is given for texts: a sweep has"),
        (
            {"sweep": {"share": [0, 1], "sample-centered.share": [0, 2]}},
            "share is swept twice.\nName all of its values in one --sweep.",
        ),
        ({"sweep": {"share": [0, 1], "texts": ["few", 4]}}, "--sweep texts=VALUE,VALUE"),
        (
            {"sweep": {"share": [0, 1], "texts": [3, 4]}, "samples": 5},
            "--samples is 5, and the sweep has 4 combinations of share, texts.",
        ),
        ({"samples": 1}, "samples is 1, and must be a whole number from 2 to 1000"),
        ({"sample_seed": 1}, "--sample-seed is the seed of --samples."),
        ({"sweep": {}, "select": (), "samples": 2}, "and --samples the number of its models."),
        (
            {"recipe": "simcse", "sweep": {"batch_size": "2,4", "group_size": "2,3"}},
            "batch_size=2, group_size=3: group_size is 3",
        ),
        (
            {
                "recipe": "simcse:mean",
                "sweep": {"heads": "2,3", "pooling": "mean,attention"},
                "recipe_settings": {"batch_size": 2},
            },
            "heads=3, pooling=attention: 3 heads do not divide the 32 dimensions",
        ),
        ({"recipe_settings": {"share": 1}}, "share is swept and set."),
        ({"sweep": {}}, "--select names the tasks that choose"),
        (
            {"recipe": "efficient-lora", "sweep": {"budget": "1e8,2e8"}},
            "--select would choose among budgets, of which the largest is the best.",
        ),
        ({"select": "beir:STSBenchmark"}, "No task of beir is called 'STSBenchmark'."),
        ({"select": "beir:CQADupstackRetrieval"}, "is the mean of 12 tasks, and cannot choose."),
        ({"select": "glue:RTE"}, "RTE needs a model trained for it"),
        ({"select": "mteb:STS12,STS13"}, "STS12 of --select cannot be scored"),
        ({"recipe": "", "train_data": ""}, "--sweep is for a setting of a recipe that makes a model"),
        (
            {"recipe": "simcse", "sweep": {"chunk": "2,4"}, "recipe_settings": {"batch_size": 8}},
            "chunk=2 and chunk=4 make one model.",
        ),
        (
            {"recipe": "simcse", "sweep": {"epochs": "1,0"}, "recipe_settings": {"batch_size": 2}},
            "epochs is 0, which no training can have.\nGive 1 or more: --sweep epochs=VALUE,…",
        ),
    ],
)
def test_what_cannot_be_swept(asked: dict[str, Any], more: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError) as caught:
        swept(asked, **more)
    assert said in str(caught.value)
    assert not (asked["results"] / "models").exists()


def test_a_mixed_request_says_which_recipe_does_what(asked: dict[str, Any], tmp_path: Path) -> None:
    more = {"recipe": ("sample-centered", "glue-quick"), "models": (asked["model"],)}
    both = request(asked, recipe=more["recipe"])
    both = replace(both, suites=("glue", *both.suites))
    found = ResolvedRequest.resolve_request(both)
    backbone, made = found.subjects
    assert (backbone.training, made.training is not None) == (None, True)
    names = {task.name: [one is made for one in found.subjects if found.is_evaluated(one, task)]
             for suite in found.suites for task in suite.tasks}  # fmt: skip
    assert names["CoLA"] == [False]
    assert names["one"] == [True]


def check(asked: dict[str, Any], candidate: str, baseline: str, **more: Any) -> Any:
    options = {name: value for name, value in asked.items() if name not in ("model", "suite")}
    return harness.check(candidate, baseline, asked["suite"], **options, **more)


@pytest.mark.usefixtures("here")
def test_a_check_trains_scores_and_compares_in_one_command(
    asked: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    other = str(tiny.folder(tiny.families()["bert"], tmp_path / "other", seed=3))
    places = ["--results", str(asked["results"]), "--cache", str(asked["cache"]), "--offline"]
    how = ["--suite", asked["suite"], "--recipe", "sample-centered", "--train-data", str(asked["train_data"])]
    assert invoke(["baseline", "set", "nightly", "--model", asked["model"], *how, *places]) == 0
    command = ["check", "--candidate", other, "--baseline", "nightly", *places, "--json"]
    capsys.readouterr()
    code = invoke(command)
    made = json.loads(capsys.readouterr().out)
    names = [made[side]["name"] for side in ("candidate", "baseline")]
    assert (code, names) == (made["exit_code"], ["other-sample-centered", "tiny-sample-centered"])
    finished = list(ModelStore(asked["results"]).list_stored_models())
    models = {one.document.key for one in finished if one.document}
    assert {*made["candidate"]["artifacts"], *made["baseline"]["artifacts"]} == models
    mine, theirs = run(asked, model=other), run(asked)
    assert hows(mine) == hows(theirs) == ["cached", "cached"], "these are the models and scores of a run"
    for task in made["tasks"]:
        scores = [{r.task.name: r.main_score for r in one.records}[task["task"]] for one in (mine, theirs)]
        assert [task["candidate"], task["baseline"]] == pytest.approx(scores)

    script = f"{BLOCKER}\nimport sample_model_recipe\nfrom harness.plan import catalog\n" + (
        "known = {**catalog.load_recipe_entries(), 'sample-centered': sample_model_recipe.RECIPE}\n"
        "catalog.load_recipe_entries = lambda: known\n"
        "from harness.cli import invoke\nsys.exit(invoke(sys.argv[1:]))"
    )
    done = subprocess.run([sys.executable, "-c", script, *command], capture_output=True, text=True)
    assert (done.returncode, json.loads(done.stdout)["id"]) == (code, made["id"]), done.stderr
    against = check(asked, other, asked["model"])
    assert [one.delta for one in against.tasks] == [one["delta"] for one in made["tasks"]]
    with pytest.raises(UsageError, match="was made by sample-centered already") as caught:
        check(asked, str(finished[0].folder), asked["model"])
    assert "leave out --recipe" in str(caught.value)

    first = catalog.load_recipe_entries()["sample-centered"]
    further = replace(first.open("", first.settings[""]), name="sample-further")  # type: ignore[type-var]
    entry = replace(first, name="sample-further", open=lambda *_: further)
    monkeypatch.setattr(catalog, "load_recipe_entries", lambda: {"sample-further": entry})
    second = check({**asked, "recipe": "sample-further"}, str(finished[0].folder), asked["model"])
    names = [one.name for one in (second.candidate, second.baseline)]
    assert names == [f"{finished[0].document.name}-sample-further", "tiny-sample-further"]


@pytest.mark.usefixtures("here")
def test_each_seed_of_a_recipe_is_a_run_on_every_task(asked: dict[str, Any], tmp_path: Path) -> None:
    other = tiny.folder(tiny.families()["bert"], tmp_path / "other", seed=3)
    made = check(asked, str(other), asked["model"], seeds=2)
    assert [len(one.artifacts) for one in (made.candidate, made.baseline)] == [2, 2]
    assert [task.runs for task in made.tasks] == [(2, 2), (2, 2)]
    assert not any("two trainings" in warning for warning in made.warnings)
    for seed in (42, 43):
        settings = replace(harness.Settings(), seed=seed)
        assert hows(run(asked, settings=settings)) == ["cached", "cached"]


def test_with_both_kinds_of_recipes_each_model_has_its_own_tasks(asked: dict[str, Any]) -> None:
    both = request(asked, recipe=("sample-centered", "glue-quick"))
    planned = CheckRequest.plan_requests(
        replace(both, suites=("glue", *both.suites), models=()), asked["model"], 2
    )
    *made, backbone = planned.runs
    assert [one.model for one in planned.runs] == ["tiny-sample-centered"] * 2 + ["tiny"]
    assert all({*one.keys} == {"one", "two"} for one in made)
    assert backbone.keys.keys() == {task.name for suite in planned.opened.suites[:1] for task in suite.tasks}
    assert {len(keys) for one in planned.runs for keys in one.keys.values()} == {1}
    assert planned.requests[0].recipe_settings == {"fresh_seeds": 2}


@pytest.mark.usefixtures("here")
def test_a_watch_trains_each_checkpoint(asked: dict[str, Any], tmp_path: Path) -> None:
    for step in (1, 2):
        tiny.folder(tiny.families()["bert"], tmp_path / "run" / f"step{step}", seed=step)
    one = replace(request(asked), models=())
    watch = follow(WatchOptions(source=str(tmp_path / "run"), request=one, settle=0.0, once=True))
    first, second = watch.checkpoints
    models = {
        one.document.key: one.document
        for one in ModelStore(asked["results"]).list_stored_models()
        if one.document
    }
    assert {first.artifact, second.artifact} == {*models}
    assert [parent.artifact for parent in models[first.artifact].lineage.parents] == [first.backbone]
    assert first.model == "run-step1-sample-centered"
    assert second.look is not None
    assert (second.look.number, second.look.reference, second.look.columns) == (1, 1, 2)
    assert second.look.delta == pytest.approx((second.mean or 0) - (first.mean or 0))
    other = replace(one, recipe_settings={"share": 0.5})
    with pytest.raises(UsageError, match=r"recipe_settings\.share was None, here 0\.5"):
        follow(WatchOptions(source=str(tmp_path / "run"), request=other, once=True))


FAULTS = {
    "an error of the harness": (
        "raise DataError('row 7 is bad', hint='Mend it.')",
        "row 7 is bad",
        "Mend it.",
    ),
    "any other error": ("raise ValueError('odd')", "The training failed: ValueError: odd", "output.log"),
    "a kill": ("os.kill(os.getpid(), 9)", "ended with code -9 (out of memory?)", "output.log"),
    "another model": ("spec.output.mkdir()", "has no config.json", None),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", FAULTS)
def test_a_failed_training_is_one_message_and_keeps_its_log(
    asked: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    request: pytest.FixtureRequest,
    name: str,
) -> None:
    code, said, hint = FAULTS[name]
    if name != "a kill":  # it needs a process of its own
        request.getfixturevalue("here")
    text = (PLUGIN / "sample_model_recipe.py").read_text()
    broken = text.replace(
        "        spec.log.begin(steps=1, done=0)\n", f"        import os\n        {code}\n        return\n"
    )
    (tmp_path / "faulty_recipe.py").write_text(broken)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ["PYTHONPATH"]]))
    sys.modules.pop("faulty_recipe", None)
    import faulty_recipe

    monkeypatch.setattr(catalog, "load_recipe_entries", lambda: {"sample-centered": faulty_recipe.RECIPE})
    report = run(asked)
    assert hows(report) == ["failed", "failed"]
    failure = report.failures[0].failure
    assert failure is not None
    assert said in failure.message
    assert hint is None or hint in (failure.hint or "")
    assert not [*(asked["results"] / "records").glob("*/*/*.json")], "no record for what the training broke"
    (begun,) = ModelStore(asked["results"]).list_unfinished_models()
    assert begun.name == "tiny-sample-centered"
    if name != "an error of the harness":
        return
    monkeypatch.setattr(
        catalog, "load_recipe_entries", lambda: {"sample-centered": __import__("sample_model_recipe").RECIPE}
    )
    assert hows(run(asked)) == ["done", "done"], "the next run makes it"
    assert not ModelStore(asked["results"]).list_unfinished_models()


@pytest.mark.usefixtures("here")
def test_a_chain_makes_each_model_once(
    asked: dict[str, Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Both keys are known before anything runs, and are those of two requests, one after the other."""
    good = catalog.load_recipe_entries()["sample-centered"]
    text = (PLUGIN / "sample_model_recipe.py").read_text()
    fault = "        raise DataError('row 7 is bad')\n"
    (tmp_path / "faulty_second_recipe.py").write_text(
        text.replace("        spec.log.begin(steps=1, done=0)\n", fault)
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ["PYTHONPATH"]]))
    import faulty_second_recipe

    monkeypatch.setattr(
        catalog, "load_recipe_entries", lambda: {"one": good, "two": faulty_second_recipe.RECIPE}
    )
    rows = tmp_path / "root" / "sample" / "texts" / "train.jsonl"
    rows.parent.mkdir(parents=True)
    shutil.copy(asked["train_data"], rows)
    chain = {**asked, "recipe": "one+two", "train_data": "", "data": tmp_path / "root"}
    starts: list[Path] = []
    monkeypatch.setattr(
        faulty_second_recipe.CenteringRecipe,
        "devices",
        lambda _self, most, one: starts.append(one.folder) or most,
    )
    assert hows(run(chain)) == ["failed", "failed"]
    assert starts == [Path(asked["model"])], "its own backbone is not there yet"
    ((first, document),) = [
        (one.folder, one.document) for one in ModelStore(asked["results"]).list_stored_models()
    ]
    assert document is not None
    before = (first / "model.json").stat().st_mtime_ns

    monkeypatch.setattr(
        catalog, "load_recipe_entries", lambda: {"one": good, "two": good, "glue-quick": glue_quick.RECIPE}
    )
    resolved = ResolvedRequest.resolve_request(request(chain))
    (planned,) = resolved.subjects
    assert planned.lineage is not None
    assert [one.artifact.key for one in planned.stages] == [document.key, planned.artifact.key]
    done = run(chain)
    assert hows(done) == ["done", "done"]
    assert (first / "model.json").stat().st_mtime_ns == before, "the first model is not trained again"
    (second,) = done.prepared.subjects
    assert second.artifact.key == planned.artifact.key == second.lineage.key
    assert second.lineage.parents == (ParentPart(name="tiny-sample-centered", artifact=document.key),)
    apart = run(chain, model=str(first), recipe="two")
    assert apart.prepared.subjects[0].artifact.key == planned.artifact.key
    assert hows(apart) == ["cached", "cached"]
    assert run(chain, recipe_settings={"share": 0.5}).prepared.plan.trainings[0].artifact.key != document.key
    for recipe, more, said in (
        ("one+three", {}, "No recipe is called 'three'"),
        ("one+glue-quick", {}, "glue-quick trains for tasks with labels"),
        ("one+two", {"train_data": asked["train_data"]}, "has several"),
        ("one+two", {"recipe_settings": {"shares": 1}}, "No setting of these recipes is called 'shares'"),
        ("one+two", {**SWEEP, "select": asked["suite"]}, "only the last of several trainings can be swept"),
    ):
        with pytest.raises(UsageError, match=said):
            ResolvedRequest.resolve_request(request({**chain, "recipe": recipe, **more}))

    def stages(**more: Any) -> list[str]:
        (one,) = ResolvedRequest.resolve_request(request({**chain, **more})).subjects
        return [stage.artifact.key for stage in one.stages]

    last = [stages(recipe_settings={"two.share": share}) for share in (0.25, 0.75)]
    assert [keys[0] for keys in last] == [document.key] * 2, "the setting of the second recipe alone"
    assert len({keys[1] for keys in last}) == 2
    (one,) = ResolvedRequest.resolve_request(
        request({**chain, "sweep": {"two.share": "0.25,0.75"}, "select": (asked["suite"],)})
    ).subjects
    assert one.training is not None
    assert one.training.sweep is not None
    assert [member.artifact.key for member in one.training.sweep.members] == [keys[1] for keys in last]


@pytest.mark.usefixtures("here")
def test_a_training_that_goes_on_says_from_which_step(
    asked: dict[str, Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: Any
) -> None:
    text = (PLUGIN / "sample_model_recipe.py").read_text()
    begins = "spec.log.begin(steps=1, done=0)"
    (tmp_path / "resumed_recipe.py").write_text(text.replace(begins, "spec.log.begin(steps=1200, done=1100)"))
    monkeypatch.syspath_prepend(str(tmp_path))
    import resumed_recipe

    monkeypatch.setattr(catalog, "load_recipe_entries", lambda: {"sample-centered": resumed_recipe.RECIPE})
    options = ["--recipe", "sample-centered", "--train-data", str(asked["train_data"]), "--offline"]
    options += ["--results", str(asked["results"]), "--cache", str(asked["cache"])]
    assert invoke(["train", "--model", asked["model"], *options]) == 0
    line = "tiny-sample-centered: goes on from step 1,100 of 1,200\n"
    assert capsys.readouterr().err.count(line) == 1


def test_members_that_a_setting_does_not_change_are_counted(asked: dict[str, Any]) -> None:
    def describe_sweep(**values: str) -> str:
        given = {"recipe": "simcse", "recipe_settings": {"batch_size": 2}, "select": (asked["suite"],)}
        (one,) = ResolvedRequest.resolve_request(request({**asked, **given, "sweep": values})).subjects
        assert one.training is not None
        return one.training.model.notes[0]

    note = describe_sweep(heads="1,2", pooling="mean,attention")
    assert note == "sweep: all 4 combinations of heads, pooling; heads has no effect: 1 like another"
    assert describe_sweep(scale="10,20") == "sweep: all 2 values of scale"


@pytest.mark.slow
def test_a_killed_driver_takes_its_training_along(asked: dict[str, Any], here: None, tmp_path: Path) -> None:
    text = (PLUGIN / "sample_model_recipe.py").read_text()
    slow = text.replace(
        "        spec.log.begin(steps=1, done=0)\n",
        "        import os, time\n        (spec.folder / 'pid').write_text(str(os.getpid()))\n"
        "        time.sleep(300)\n",
    )
    (tmp_path / "slow_recipe.py").write_text(slow)
    script = tmp_path / "go.py"
    script.write_text(
        "if __name__ == '__main__':\n"
        "    import harness, slow_recipe\n    from harness.plan import catalog\n"
        "    catalog.load_recipe_entries = lambda: {'sample-centered': slow_recipe.RECIPE}\n"
        f"    harness.train({asked['model']!r}, 'sample-centered', train_data={str(asked['train_data'])!r},"
        f" results={str(asked['results'])!r}, cache={str(asked['cache'])!r}, offline=True)\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}
    driver = subprocess.Popen([sys.executable, str(script)], env=environment)
    deadline = time.monotonic() + 240
    while not (found := [*asked["results"].glob("models/.training-*/pid")]) or not found[0].read_text():
        assert time.monotonic() < deadline
        assert driver.poll() is None
        time.sleep(0.1)
    trainer = int(found[0].read_text())
    driver.send_signal(signal.SIGKILL)
    driver.wait()
    while _runs(trainer):
        assert time.monotonic() < deadline, "the training outlives its driver"
        time.sleep(0.1)
    assert hows(run(asked)) == ["done", "done"], "the lease of the killed driver has lapsed"
    assert [path.name for path in (asked["results"] / "models").iterdir()] == [
        run(asked).prepared.subjects[0].artifact.slug
    ]


def _runs(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def test_training_data_that_cannot_be_fetched_is_refused_in_the_plan(
    asked: dict[str, Any], capsys: Any
) -> None:
    places = ["--results", str(asked["results"]), "--cache", str(asked["cache"])]
    for command in (["train"], ["run", "--suite", asked["suite"]]):
        for dry in ([], ["--dry-run"]):
            assert invoke([*command, "--model", asked["model"], "--recipe", "simcse", *places, *dry]) == 2
            message, hint = capsys.readouterr().err.splitlines()
            assert message.startswith(
                "Error: The training data sentence-transformers/all-nli is not on this machine."
            )
            assert "harness data pull --recipe simcse" in hint


def test_a_plan_needs_no_torch(asked: dict[str, Any], backbone: Path) -> None:
    """One training and the 41 tasks of mteb, each with its key."""
    command = [
        "run",
        "--model",
        str(backbone),
        "--recipe",
        "simcse",
        "--suite",
        "mteb",
        "--train-data",
        str(asked["train_data"]),
        "--set",
        "batch_size=8",
        "--dry-run",
        "--json",
    ]
    places = ["--results", str(asked["results"]), "--cache", str(asked["cache"])]
    ((code, out, err),) = invoke_blocked([[*command, *places]])
    assert code == 0, err
    plan = json.loads(out)
    (training,) = plan["trainings"]
    assert (training["model"], training["steps"], training["state"]) == ("tiny-simcse", 9, "to do")
    assert len(plan["plan"]) == 41
    assert len({line["key"] for line in plan["plan"]}) == 41
    assert all(len(line["key"]) == 64 for line in [training, *plan["plan"]])


@pytest.mark.usefixtures("here")
def test_train_makes_models_and_says_what_to_type(asked: dict[str, Any], capsys: Any) -> None:
    command = ["train", "--model", asked["model"], "--recipe", "sample-centered", "--offline"]
    places = ["--train-data", str(asked["train_data"]), "--results", str(asked["results"])]
    places += ["--cache", str(asked["cache"]), "--threads", "1"]
    assert invoke([*command, *places, "--dry-run"]) == 0
    assert "to do" in capsys.readouterr().out
    assert invoke([*command, *places, "--json"]) == 0
    made = json.loads(capsys.readouterr().out)["models"]
    assert [(one["seed"], one["state"]) for one in made] == [(42, "trained")]
    for one in made:
        document = read_document(Path(one["folder"]))
        assert document is not None
        assert document.key == one["key"]
    assert invoke([*command, *places]) == 0
    told = capsys.readouterr().out
    assert f"seed 42: was there, {made[0]['folder']}" in told
    assert f"harness run --model {made[0]['folder']} --suite SUITE" in told
    assert invoke([*command, *places, "--set", "share"]) == 2
    assert "--set 'share' has no '='." in capsys.readouterr().err
    assert invoke(["train", "--model", asked["model"], *places]) == 2
    assert "No recipe is named, and what is asked for is a model." in capsys.readouterr().err
    tasks_only = ["train", "--model", asked["model"], "--recipe", "glue-quick"]
    assert invoke(tasks_only) == 2
    assert "glue-quick trains for tasks with labels" in capsys.readouterr().err
