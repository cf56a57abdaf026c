"""`harness list`, `harness show` and `harness compare`."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import tiny
from fakes import artifact, encoding, record, task
from harness.cli import invoke
from harness.core.encoding import Encoding
from harness.core.keys import Lineage, MemberPart, ParentPart, SweepPart, build_encoding_identity, digest
from harness.core.types import Artifact, Data, SuiteOptions, Task
from harness.encoder import backbones
from harness.encoder.architecture import BackboneEntry
from harness.encoder.folder.description import compute_folder_identity
from harness.plan import catalog
from harness.results import results as results_module
from harness.search.bm25 import resolve_bm25
from harness.storage.record import EXAMPLE_COLUMNS, RECORDS, Record, build_record_output
from harness.storage.store import Store
from stored_records import iter_records

# `harness list`


def rows(capsys: pytest.CaptureFixture[str], what: str, *arguments: object) -> list[dict[str, Any]]:
    assert invoke(["list", what, *map(str, arguments), "--json"]) == 0
    found: list[dict[str, Any]] = json.loads(capsys.readouterr().out)[what]
    return found


def test_every_suite_and_model_of_the_catalog_is_listed(capsys: Any) -> None:
    assert {row["name"].partition(":")[0].partition("[")[0] for row in rows(capsys, "suites")} == set(
        catalog.load_suite_entries()
    )
    assert {row["name"] for row in rows(capsys, "models")} == {*backbones.list_catalog_models(), "bm25"}


def test_a_listed_task_opens_under_its_suite(capsys: Any) -> None:
    (row,) = [row for row in rows(capsys, "tasks", "--match", "scifact") if row["name"] == "SciFact"]
    assert (row["type"], row["metric"], row["splits"]) == ("Retrieval", "ndcg_at_10", ["test"])
    (suite,) = catalog.open_suites([row["suite"]], SuiteOptions())
    assert [t.name for t in suite.tasks] == ["SciFact"]


def test_similar_tasks_are_for_machines_only(capsys: Any) -> None:
    found = {row["name"]: row.get("similar") for row in rows(capsys, "tasks")}
    assert "SciFact-NL" in found["SciFact"]
    assert found["AILACasedocs"] is None
    assert invoke(["list", "tasks", "--match", "AJGT"]) == 0  # the first row has some
    assert "similar" not in capsys.readouterr().out


def test_every_listed_benchmark_opens_under_its_suite(capsys: Any) -> None:
    found = rows(capsys, "benchmarks")
    assert "MTEB(eng, v2)" in {row["name"] for row in found}
    suites = catalog.open_suites([row["suite"] for row in found], SuiteOptions())
    assert [len(suite.columns) for suite in suites] == [row["tasks"] for row in found]


def test_records_are_those_of_the_results_folder(tmp_path: Path, capsys: Any) -> None:
    assert invoke(["list", "records", "--results", str(tmp_path), "--match", "zzz"]) == 0
    assert "No records match 'zzz'" in capsys.readouterr().out
    one = artifact(tmp_path)
    kept = Store(tmp_path).put(one.slug, record(task(), 0.5, model=one))
    mine = [row for row in rows(capsys, "records", "--results", tmp_path) if row["model"] == "tiny"]
    assert [(row["task"], row["main_score"], row["key"]) for row in mine] == [("Fake", 0.5, kept.key)]


def test_a_model_with_only_trials_is_said_to_have_them(tmp_path: Path, capsys: Any) -> None:
    trial = record(task(), 0.5, model=artifact(tmp_path)).model_copy(update={"purpose": "trial"})
    Store(tmp_path).put(artifact(tmp_path).slug, trial)
    assert invoke(["list", "records", "--results", str(tmp_path)]) == 0
    assert "No records yet but trials (--limit)" in capsys.readouterr().out
    assert invoke(["show", "tiny", "--results", str(tmp_path)]) == 2
    told = capsys.readouterr().err
    assert "tiny has only trials (--limit), which no table shows.\nType: harness run --model tiny " in told
    assert invoke(["show", "other", "--results", str(tmp_path)]) == 2
    assert "harness run --model other --suite SUITE" in capsys.readouterr().err


# `harness show` and `harness compare`


SUITE = "mteb:STS12"
BF16 = encoding(dtype="bfloat16")
MODELS = {key: artifact(Path("tiny"), key=key * 64, name=f"model-{key}") for key in "ab"}


def sts(name: str = "STS12") -> Task:
    (suite,) = catalog.open_suites([f"mteb:{name}"], SuiteOptions())
    return suite.tasks[0]


def put(results: Path, model: Artifact, *records: Record) -> None:
    for one in records:
        Store(results).put(model.slug, one)


def made(
    model: str, score: float, how: Encoding | None = None, task: str = "STS12", **facts: object
) -> Record:
    return record(sts(task), score, model=MODELS[model], how=how, **facts)


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """Model a: float32 and bfloat16 on STS12, float32 on STS13; model b: the same two on STS12."""
    put(tmp_path, MODELS["a"], made("a", 0.5), made("a", 0.25, BF16), made("a", 0.75, task="STS13"))
    put(tmp_path, MODELS["b"], made("b", 0.625, threads=2), made("b", 0.5, BF16, threads=2))
    return tmp_path


def asked(capsys: pytest.CaptureFixture[str], *arguments: object) -> Any:
    assert invoke([*map(str, arguments), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def said(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    assert invoke([*map(str, arguments)]) == 0
    return " ".join(capsys.readouterr().out.split())


def test_show_lists_every_record_with_its_settings(results: Path, capsys: Any) -> None:
    shown = said(capsys, "show", "model-a", "--results", results)
    assert "50.00" in shown
    assert "25.00" in shown
    assert "bfloat16" in shown
    rows = asked(capsys, "show", "aaaaaa", "--results", results)["records"]
    assert sorted((r["task"], r["main_score"]) for r in rows) == [
        ("STS12", 0.25),
        ("STS12", 0.5),
        ("STS13", 0.75),
    ]


TRAINED = Lineage(
    recipe="simcse", settings={}, parents=(ParentPart(name="tiny", artifact="t" * 64),), data=(), seed=0
)


@pytest.fixture
def seeds(results: Path) -> Path:
    """A model that was trained under three seeds, of which the third has no score on STS13."""
    for seed in (1, 2, 3):
        lineage = TRAINED.model_copy(update={"seed": seed})
        model = artifact(Path("tiny"), key=lineage.key, name="tiny-simcse")
        scores = {"STS12": seed / 10, "STS13": 0.5}
        records = [
            record(sts(name), s, model=model) for name, s in scores.items() if (seed, name) != (3, "STS13")
        ]
        put(results, model, *(one.model_copy(update={"lineage": lineage}) for one in records))
    return results


def test_show_of_several_seeds_is_their_mean_and_deviation(seeds: Path, capsys: Any) -> None:
    shown = said(capsys, "show", "tiny-simcse", "--results", seeds)
    for text in (
        "20.00 ± 10.00",
        "2 of 3 seeds",
        "simcse on tiny; mean ± standard deviation over the seeds 1 (",
    ):
        assert text in shown
    found = asked(capsys, "show", "tiny-simcse", "--results", seeds)
    assert [model["seed"] for model in found["models"]] == [1, 2, 3]
    rows = {row["task"]: row for row in found["tasks"]}
    assert rows["STS12"]["value"] == pytest.approx(0.2)
    assert rows["STS12"]["deviation"] == pytest.approx(0.1)
    assert rows["STS12"]["scores"] == [0.1, 0.2, 0.3]
    assert (rows["STS13"]["value"], rows["STS13"]["deviation"], rows["STS13"]["seeds"]) == (None, None, 2)


def test_show_of_a_suite_over_seeds_has_columns_and_means(seeds: Path, capsys: Any) -> None:
    shown = said(capsys, "show", "tiny-simcse", "--suite", SUITE, "--results", seeds)
    assert "mean over the task asked for" not in shown
    assert "mean over tasks 20.00 ± 10.00 (1 of 1)" in shown
    both = ["--suite", SUITE, "--suite", "mteb:STS13"]
    (found,) = asked(capsys, "show", "tiny-simcse", *both, "--results", seeds)["suites"]
    assert found["columns"]["STS12"] == {
        "value": pytest.approx(0.2),
        "deviation": pytest.approx(0.1),
        "seeds": 3,
    }
    assert found["mean_over_tasks"] == {"value": None, "deviation": None, "seeds": 2}


def test_a_key_names_one_seed_and_compare_takes_only_one(seeds: Path, capsys: Any) -> None:
    key = TRAINED.model_copy(update={"seed": 2}).key
    (row, _) = asked(capsys, "show", key[:12], "--results", seeds)["records"]
    assert row["main_score"] == 0.2
    assert invoke(["compare", "tiny-simcse", "model-a", "--results", str(seeds)]) == 2
    said_so = capsys.readouterr().err
    assert f"{key[:12]} ({TRAINED.text}, seed 2, of 2026" in " ".join(said_so.split())


def test_scores_of_former_weights_enter_no_mean_with_newer_ones(results: Path, capsys: Any) -> None:
    """STS12 of the first training, STS13 of the second, which made other weights under the same key."""
    parent = TRAINED.parents[0].model_copy(update={"own_data": "theirs.csv", "selected_on": ("STS15",)})
    own = {"own_data": "mine.csv", "selected_on": ("STS14",)}
    lineage = TRAINED.model_copy(update={"seed": 4, "parents": (parent,), **own})
    for name, score, weights, day in (("STS12", 0.25, "1", 1), ("STS13", 0.5, "2", 2)):
        model = replace(artifact(Path("tiny"), key=lineage.key, name="tiny-again"), weights=weights * 64)
        one = record(sts(name), score, model=model, written=f"2026-03-0{day}")
        put(results, model, one.model_copy(update={"lineage": lineage}))
    both = ["--suite", "mteb:STS12", "--suite", "mteb:STS13", "--results", results]
    found = asked(capsys, "show", "tiny-again", *both)["suites"]
    assert [(row["columns"], row["former_weights"]) for row in found] == [
        ({"STS12": None, "STS13": 0.5}, None),
        ({"STS12": 0.25, "STS13": None}, "1" * 64),
    ]
    shown = said(capsys, "show", "tiny-again", *both)
    assert "trained on mine.csv, not on the recipe's data made of tiny (trained on theirs.csv)" in shown
    assert "checkpoint chosen by STS14: scores there are biased" in shown
    assert "tiny, the parent chosen by STS15: scores there are biased" in shown
    told = f"{lineage.key[:12]} was trained again, and has other weights now"
    for more in (both, ["--results", results]):
        shown = said(capsys, "show", "tiny-again", *more)
        assert told in shown
        assert "former weights 11111111" in shown
    rows = asked(capsys, "show", "tiny-again", "--results", results)["records"]
    assert {row["task"]: row["former"] for row in rows} == {"STS12": True, "STS13": False}
    found = asked(capsys, "compare", "tiny-again", "model-a", "--results", results)
    assert [row["task"] for row in found["deltas"]] == ["STS13"]
    assert ("STS12", "first", "weights") in [
        (row["task"], row["of"], row["reason"]) for row in found["not_compared"]
    ]
    shown = said(capsys, "compare", "model-a", "tiny-again", "--results", results)
    assert "Not compared, as tiny-again was trained again since, and has other weights now: STS12" in shown
    assert told not in said(capsys, "show", "model-a", *both)


SWEEP = SweepPart(
    setting="rate",
    values=(1, 2),
    tasks={"STS12": {"task": "STS12", "splits": ["test"], "subsets": ["default"]}},
    chosen=2,
    curve=tuple(
        MemberPart(value=at, artifact=str(at) * 64, scores={"STS12": at / 4}, mean=at / 4) for at in (1, 2)
    ),
)


@pytest.fixture
def chosen(results: Path) -> tuple[Path, str]:
    """A model that a sweep chose by its score on STS12, and its key."""
    lineage = TRAINED.model_copy(update={"seed": 5, "sweep": SWEEP})
    model = artifact(Path("tiny"), key=lineage.key, name="tiny-swept")
    for name in ("STS12", "STS13"):
        put(results, model, record(sts(name), 0.5, model=model).model_copy(update={"lineage": lineage}))
    return results, lineage.key[:12]


def test_scores_that_chose_a_model_are_marked(chosen: tuple[Path, str], capsys: Any) -> None:
    """Also where no mean of a suite has the task."""
    results, key = chosen
    found = asked(capsys, "show", key, "--results", results)
    assert {row["task"]: row["selected"] for row in found["records"]} == {"STS12": True, "STS13": False}
    assert found["model"]["selected"] == ["STS12"]
    assert found["model"]["sweep"] == SWEEP.model_dump(mode="json")
    marked = re.compile(r"STS12 .* 50.00 │ chose +│")
    assert invoke(["show", key, "--results", str(results)]) == 0
    printed = capsys.readouterr().out
    assert marked.search(printed)
    assert printed.count("chose ") == 1
    assert "checkpoint" not in printed
    for suite, columns in (("mteb:STS12", ["STS12"]), ("mteb:STS13", [])):
        found = asked(capsys, "show", key, "--suite", suite, "--results", results)
        assert found["model"]["selected"] == ["STS12"]
        assert found["suites"][0]["selected"] == columns
        assert invoke(["show", key, "--suite", suite, "--results", str(results)]) == 0
        assert bool(marked.search(capsys.readouterr().out)) == bool(columns)
    found = asked(capsys, "show", "model-a", "--results", results)
    assert (found["model"]["selected"], found["model"]["sweep"]) == ([], None)
    assert not any(row["selected"] for row in found["records"])


def test_a_swept_parent_is_no_checkpoint(results: Path, capsys: Any) -> None:
    parent = TRAINED.parents[0].model_copy(update={"name": "first-swept", "selected_on": ("NFCorpus",)})
    lineage = TRAINED.model_copy(update={"parents": (parent,)})
    model = artifact(Path("tiny"), key=lineage.key, name="second")
    put(results, model, record(sts(), 0.5, model=model).model_copy(update={"lineage": lineage}))
    shown = said(capsys, "show", "second", "--results", results)
    assert "first-swept, the parent chosen by NFCorpus: scores there are biased" in shown
    assert "checkpoint" not in shown


def test_show_of_a_suite_keeps_settings_apart(results: Path, capsys: Any) -> None:
    found = asked(capsys, "show", "model-a", "--suite", SUITE, "--results", results)["suites"]
    assert [(s["settings"]["encoding"]["dtype"], s["mean_over_tasks"]["value"]) for s in found] == [
        ("float32", 0.5),
        ("bfloat16", 0.25),
    ]


def test_show_of_an_incomplete_suite_says_so(results: Path, capsys: Any) -> None:
    shown = said(capsys, "show", "model-a", "--suite", "mteb", "--results", results)
    assert "mean over tasks 62.50 (2 of 41 scored)" in shown
    assert "incomplete: not to be ranked" in shown


def test_single_tasks_of_one_family_are_one_suite_with_one_mean(results: Path, capsys: Any) -> None:
    """Also among others, and typed twice; a suite of several tasks stays by itself."""
    both = ["--suite", "mteb:STS12", "--suite", "mteb:STS13", "--suite", "mteb:STS12"]
    found = asked(capsys, "show", "model-a", *both, "--suite", "nanobeir", "--results", results)["suites"]
    first, second, other = found
    assert (first["suite"], second["suite"], other["suite"]) == (*["mteb:STS12 + mteb:STS13"] * 2, "nanobeir")
    assert first["columns"] == {"STS12": 0.5, "STS13": 0.75}
    assert (
        first["mean_over_requested"] == first["mean_over_tasks"] == {"value": 0.625, "there": 2, "wanted": 2}
    )
    assert second["mean_over_requested"] == {"value": 0.25, "there": 1, "wanted": 2}  # in bfloat16
    assert "mean_over_requested" not in other
    shown = said(capsys, "show", "model-a", *both, "--results", results)
    assert "model-a on 2 tasks of mteb, scores × 100" in shown
    assert "mean over the 2 tasks asked for 62.50 (2 of 2)" in shown
    assert "mean over types" not in shown
    # In bfloat16 one of them is missing.
    assert "mean over the 2 tasks asked for 25.00 (1 of 2 scored)" in shown
    assert shown.count("incomplete: not to be ranked beside complete ones; no score of STS13") == 1


def test_show_of_a_suite_nothing_of_which_was_measured(results: Path, capsys: Any) -> None:
    (found,) = asked(capsys, "show", "model-b", "--suite", "mteb:SciFact", "--results", results)["suites"]
    assert found["settings"] is None
    assert found["columns"] == {"SciFact": None}
    assert "(0 of 1 scored)" in said(
        capsys, "show", "model-b", "--suite", "mteb:SciFact", "--results", results
    )


@pytest.mark.parametrize("words", [["--task", "STS13"], ["--tasks", "STS13, STS12"], ["--task=STS12"] * 2])
def test_show_of_tasks_is_the_whole_records(results: Path, capsys: Any, words: list[str]) -> None:
    rows = asked(capsys, "show", "model-a", *words, "--results", results)
    mine = [one for one in iter_records(Store(results)) if one.model.name == "model-a"]
    expected = {one.key: one for one in mine if one.task.name in " ".join(words)}
    assert {one.key: one for one in map(Record.model_validate, rows)} == expected


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["show", "model-c"], "Did you mean"),
        (["show", "model-a", "--task", "STS13,STS14"], "'STS14'"),
        (["show", "model-a", "--task", ","], "','"),
        (["show", "model"], "model-"),
    ],
)
def test_what_is_not_there_is_said(results: Path, capsys: Any, arguments: list[str], message: str) -> None:
    assert invoke([*arguments, "--results", str(results)]) == 2
    assert message in capsys.readouterr().err


def test_one_name_of_two_models_must_be_told_apart(results: Path, capsys: Any) -> None:
    twin = artifact(Path("twin"), key="c" * 64, name="model-a")
    put(results, twin, record(sts(), 0.1, model=twin))
    assert invoke(["show", "model-a", "--results", str(results)]) == 2
    assert "'model-a' names 2 models" in capsys.readouterr().err
    for key, day in (("d", 2), ("e", 1)):
        model = artifact(Path("mine"), key=key * 64, name="mine")
        one = record(sts(), 0.1, model=model)
        known = {**one.provenance, "written": f"2026-01-0{day}T10:20:30+00:00"}
        put(results, model, one.model_copy(update={"provenance": known}))
    assert invoke(["show", "mine", "--results", str(results)]) == 2
    dated = "eeeeeeeeeeee (of 2026-01-01 10:20), dddddddddddd (of 2026-01-02 10:20)."
    assert f"the newest last: {dated}" in capsys.readouterr().err


def test_folders_of_one_name_are_called_by_as_much_of_their_paths_as_tells_them_apart(
    tmp_path: Path, capsys: Any
) -> None:
    ends = {"1": "runs/exp1/final", "2": "runs/exp2/final", "3": "other/exp2/final", "4": None}
    for key, end in ends.items():
        model = artifact(Path("final"), key=key * 64, name="final")
        one = record(sts(), int(key) / 8, model=model)
        about = one.model.model_copy(update={"source": "local", "folder": end})
        put(tmp_path, model, one.model_copy(update={"model": about}))
    names = ["exp1/final", "runs/exp2/final", "other/exp2/final", "final (44444444)"]
    assert [row["model"] for row in rows(capsys, "records", "--results", tmp_path)] == names
    for name, score in zip(names, (0.125, 0.25, 0.375, 0.5), strict=True):
        found = asked(capsys, "show", name, "--results", tmp_path)
        assert (found["model"]["name"], found["records"][0]["main_score"]) == (name, score)
    assert "exp1/final − final (44444444)" in said(
        capsys, "compare", "444444444444", "exp1/final", "--results", tmp_path
    )
    assert invoke(["show", "final", "--results", str(tmp_path)]) == 2
    message = capsys.readouterr().err
    assert "names 4 models" in message
    assert "222222222222 (runs/exp2/final, of 2026" in message


def test_a_folder_is_shown_by_its_plain_name_though_it_was_recorded_under_another(
    tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tiny.folder(tiny.families()["bert"], tmp_path / "second")
    key = compute_folder_identity(folder).key
    model = artifact(Path("first"), key=key, name="first")
    put(tmp_path / "results", model, record(sts(), 0.5, model=model))
    monkeypatch.chdir(tmp_path)
    for name in ("second", "./second", "first"):
        assert asked(capsys, "show", name, "--results", "results")["records"][0]["main_score"] == 0.5
    # A model of the catalog as well, whose weights lie in this folder.
    entry = BackboneEntry(name="known", summary="", locate=lambda: str(folder))
    monkeypatch.setattr(results_module, "find_catalog_model", {"known": entry}.get)
    assert asked(capsys, "show", "known", "--results", "results")["records"][0]["main_score"] == 0.5
    assert invoke(["show", "results", "--results", "results"]) == 2
    assert "No measured model is called 'results'" in capsys.readouterr().err


def test_compare_holds_the_same_settings_against_each_other(results: Path, capsys: Any) -> None:
    found = asked(capsys, "compare", "model-a", "model-b", "--results", results)
    rows = {(d["first"], d["second"]): d["delta"] for d in found["deltas"]}
    assert rows == {(0.5, 0.625): pytest.approx(0.125), (0.25, 0.5): pytest.approx(0.25)}
    assert all(d["first_settings"] == d["second_settings"] for d in found["deltas"])
    narrowed = ("--tasks", "STS12, STS13", "--results", results)
    assert asked(capsys, "compare", "model-a", "model-b", *narrowed) == found
    assert [(one["task"], one["of"], one["reason"]) for one in found["not_compared"]] == [
        ("STS13", "first", "task")
    ]
    assert found["differences"] == [{"field": "provenance.threads", "first": None, "second": 2, "tasks": 2}]
    shown = said(capsys, "compare", "model-a", "model-b", "--results", results)
    assert "+12.50" in shown
    assert "bfloat16" in shown
    assert "Only model-a has: STS13" in shown


def test_compare_holds_bm25_against_each_score_on_the_same_texts(tmp_path: Path, capsys: Any) -> None:
    (found,) = catalog.open_suites(["mteb:SciFact"], SuiteOptions())
    (scifact,) = found.tasks
    words, ranking = resolve_bm25("bm25")
    one = record(scifact, 0.7, model=words)
    identity = {**one.identity, "encoding": build_encoding_identity(ranking)}
    put(tmp_path, words, one.model_copy(update={"identity": identity, "key": digest(identity)}))
    half, bare = encoding(vectors="float16"), replace(scifact, documents="text")
    own = [record(scifact, 0.5, model=MODELS["a"]), record(scifact, 0.25, model=MODELS["a"], how=half)]
    put(tmp_path, MODELS["a"], *own, record(bare, 0.125, model=MODELS["a"]))
    found = asked(capsys, "compare", "bm25", "model-a", "--results", tmp_path)
    assert sorted(row["second"] for row in found["deltas"]) == [0.25, 0.5]
    assert [one["of"] for one in found["not_compared"]] == ["second"]


def test_scores_of_other_splits_and_those_that_came_with_the_project_are_marked(
    tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    both = replace(sts(), splits=("dev", "test"))
    values = {split: {"default": {"main_score": 0.75}} for split in both.splits}
    whole = record(both, 0.75, model=MODELS["a"]).model_copy(update={"scores": values})
    put(tmp_path, MODELS["a"], made("a", 0.5), whole)
    put(tmp_path / "ours", MODELS["b"], made("b", 0.25))
    monkeypatch.setattr("harness.core.files.find_reference_folder", lambda: tmp_path / "ours")
    shown = said(capsys, "show", "model-a", "--results", tmp_path)
    assert "splits dev, test" in shown
    assert "splits test" in shown
    assert ", data " not in shown
    compared = said(capsys, "compare", "model-a", "model-b", "--results", tmp_path)
    assert "reference model-b" in compared
    assert "Only model-a has a score of just these splits and subsets: STS12 (dev, test)" in compared


def test_of_equally_many_scores_those_in_full_precision_lead(tmp_path: Path, capsys: Any) -> None:
    halved = encoding(vectors="float16")
    put(tmp_path, MODELS["a"], made("a", 0.5, halved), made("a", 0.75, task="STS13"))
    shown = said(capsys, "show", "model-a", "--results", tmp_path)
    assert "float32, cosine ┏" in shown
    assert "│ 50.00 │ mean pooling, normalized, 128 tokens, float32, cosine, vectors float16 │" in shown


def put_queries(results: Path, model: Artifact, of: Task, right: Mapping[str, float], *, kept: bool) -> None:
    """The record of a retrieval task whose queries score 1 or 0, without a run, as it was first made."""
    lines: dict[str, list[Any]] = {name: [] for name in EXAMPLE_COLUMNS}
    for split, share in right.items():
        for at in range(40):
            values = (split, "en", f"{split}{at}", 0, "{}", "{}", float(at < 40 * share))
            for name, value in zip(EXAMPLE_COLUMNS, values, strict=True):
                lines[name].append(value)
    scores = {split: {"en": {"main_score": one, of.metric: one}} for split, one in right.items()}
    mean = sum(right.values()) / len(right)
    one = record(of, mean, model=model).model_copy(update={"scores": scores})
    output = build_record_output(one, lines if kept else {})
    parsed = RECORDS.parse(output["record"].decode(), where="made")
    Store(results).put(model.slug, parsed, output.get("examples"))


def test_splits_are_compared_one_by_one_and_tested(tmp_path: Path, capsys: Any, monkeypatch: Any) -> None:
    """Better on the development queries, and as good on those of the test."""
    monkeypatch.setenv("HARNESS_CACHE", str(tmp_path / "cache"))
    (mldr,) = catalog.open_suite("mldr").tasks
    put_queries(tmp_path, MODELS["a"], mldr, {"dev": 0.25, "test": 0.5}, kept=True)
    put_queries(tmp_path, MODELS["b"], mldr, {"dev": 0.75, "test": 0.5}, kept=True)
    dev, test = asked(capsys, "compare", "model-a", "model-b", "--results", tmp_path)["deltas"]
    assert [(row["split"], row["subset"], row["delta"]) for row in (dev, test)] == [
        ("dev", "en", 0.5),
        ("test", "en", 0.0),
    ]
    assert [row["test"]["queries"] for row in (dev, test)] == [40, 40]
    assert dev["test"]["p"] < 0.01 < test["test"]["p"]
    shown = said(capsys, "compare", "model-a", "model-b", "--results", tmp_path)
    assert "(dev, en)" in shown
    assert "No test of" not in shown
    put_queries(tmp_path / "old", MODELS["a"], mldr, {"dev": 0.25, "test": 0.5}, kept=True)
    put_queries(tmp_path / "old", MODELS["b"], mldr, {"dev": 0.75, "test": 0.5}, kept=False)
    found = asked(capsys, "compare", "model-a", "model-b", "--results", tmp_path / "old")["deltas"]
    assert [(row["test"], row["untested"]) for row in found] == [
        (None, "model-b: no per-example results were kept")
    ] * 2
    shown = said(capsys, "compare", "model-a", "model-b", "--results", tmp_path / "old")
    assert shown.count("No test of MultiLongDocRetrieval: model-b: no per-example results were kept.") == 1


def test_compare_marks_what_chose_a_model(chosen: tuple[Path, str], capsys: Any) -> None:
    results, key = chosen
    found = asked(capsys, "compare", "model-a", key, "--results", results)
    assert {row["task"]: row["selected"] for row in found["deltas"]} == {"STS12": ["second"], "STS13": []}
    assert (found["first"]["selected"], found["second"]["selected"]) == ([], ["STS12"])
    shown = said(capsys, "compare", "model-a", key, "--results", results)
    assert shown.count("chose tiny-swept") == 1
    assert "tiny-swept: rate chosen among 2 values by STS12: scores there are biased" in shown


def test_compare_across_settings_says_what_differs(tmp_path: Path, capsys: Any) -> None:
    put(tmp_path, MODELS["a"], made("a", 0.5))
    put(tmp_path, MODELS["b"], made("b", 0.25, BF16))
    found = asked(capsys, "compare", "model-a", "model-b", "--results", tmp_path)
    assert [d["delta"] for d in found["deltas"]] == [-0.25]
    assert found["differences"] == [
        {"field": "identity.encoding.dtype", "first": "float32", "second": "bfloat16", "tasks": 1}
    ]


def test_what_stands_in_brackets_is_printed_as_it_is(tmp_path: Path, capsys: Any) -> None:
    prompted = encoding(prompts=(("STS", "[bold] find [/INST] "),))
    put(tmp_path, MODELS["a"], made("a", 0.5, prompted))
    assert "[bold] find [/INST] " in said(capsys, "show", "model-a", "--results", tmp_path)
    assert "[bold] find [/INST] " in said(capsys, "show", "model-a", "--suite", SUITE, "--results", tmp_path)


def test_a_revision_that_was_typed_is_the_one_shown(tmp_path: Path, capsys: Any) -> None:
    for key, commit in (("a", "1" * 40), ("b", "2" * 40)):
        model = artifact(Path("m"), key=key * 64, name="org/name", revision=commit)
        put(tmp_path, model, record(sts(), 0.25 if key == "a" else 0.5, model=model))
    for commit, score in (("1" * 40, 0.25), ("2222222", 0.5)):
        (row,) = asked(capsys, "show", f"org/name@{commit}", "--results", tmp_path)["records"]
        assert row["main_score"] == score
    assert invoke(["show", "org/name@3333", "--results", str(tmp_path)]) == 2
    assert "org/name at revision 3333" in capsys.readouterr().err


def test_one_artifact_is_shown_under_each_of_its_names(tmp_path: Path, capsys: Any) -> None:
    copy = artifact(Path("copy"), key="a" * 64, name="copy")
    put(tmp_path, MODELS["a"], made("a", 0.5))
    put(tmp_path, copy, record(sts("STS13"), 0.25, model=copy))
    for name in ("model-a", "copy"):
        assert len(asked(capsys, "show", name, "--results", tmp_path)["records"]) == 2


def test_compare_never_takes_scores_on_other_data_unless_told_to(tmp_path: Path, capsys: Any) -> None:
    other = replace(sts(), data=Data(path="org/name", content="c"))
    put(tmp_path, MODELS["a"], made("a", 0.5))
    put(tmp_path, MODELS["b"], record(other, 0.75, model=MODELS["b"]))
    found = asked(capsys, "compare", "model-a", "model-b", "--results", tmp_path)
    assert found["deltas"] == []
    assert {one["reason"] for one in found["not_compared"]} == {"data"}
    assert "other data" in said(capsys, "compare", "model-a", "model-b", "--results", tmp_path)
    found = asked(capsys, "compare", "model-a", "model-b", "--across-data", "--results", tmp_path)
    assert [d["delta"] for d in found["deltas"]] == [0.25]


def test_compare_keeps_each_models_own_settings_beside_the_common_ones(tmp_path: Path, capsys: Any) -> None:
    """Both under max pooling, and each under its own: two pairs, not four."""
    shared = encoding(pooling="max")
    put(tmp_path, MODELS["a"], made("a", 0.5), made("a", 0.25, shared))
    put(tmp_path, MODELS["b"], made("b", 0.75, encoding(pooling="cls")), made("b", 0.5, shared))
    found = asked(capsys, "compare", "model-a", "model-b", "--results", tmp_path)
    assert sorted((d["first"], d["second"]) for d in found["deltas"]) == [(0.25, 0.5), (0.5, 0.75)]
    assert found["not_compared"] == []


def test_compare_does_not_guess_which_settings_belong_together(tmp_path: Path, capsys: Any) -> None:
    put(tmp_path, MODELS["a"], made("a", 0.5), made("a", 0.25, BF16))
    put(tmp_path, MODELS["b"], made("b", 0.75, encoding(pooling="cls")))
    found = asked(capsys, "compare", "model-a", "model-b", "--results", tmp_path)
    assert found["deltas"] == []
    assert {one["reason"] for one in found["not_compared"]} == {"settings"}


def test_settings_say_which_scores_are_compared(tmp_path: Path, capsys: Any) -> None:
    put(tmp_path, MODELS["a"], made("a", 0.5), made("a", 0.25, BF16))
    put(tmp_path, MODELS["b"], made("b", 0.75, encoding(pooling="cls")))
    compare = ("compare", "model-a", "model-b", "--results", tmp_path, "--settings")
    for settings, first in (("bfloat16", 0.25), ("float32", 0.5)):
        (row,) = asked(capsys, *compare, settings)["deltas"]
        assert (row["first"], row["second"]) == (first, 0.75)
    assert invoke([*map(str, compare), "float"]) == 2
    assert "2 of them have 'float'" in capsys.readouterr().err
    # The whole text of one is a part of that under another seed.
    put(tmp_path, MODELS["a"], made("a", 0.125, seed=7))
    rows = asked(capsys, "show", "model-a", "--results", tmp_path)["records"]
    texts = {row["main_score"]: row["settings"] for row in rows}
    assert texts[0.5] in texts[0.125]
    assert invoke([*map(str, compare), "float32"]) == 2
    capsys.readouterr()
    for score in (0.5, 0.125):
        (row,) = asked(capsys, *compare, texts[score])["deltas"]
        assert (row["first"], row["second"]) == (score, 0.75)
    # A model with one kind of settings is taken as it is, unless no model has what was typed.
    assert invoke([*map(str, (*compare[:2], "model-b", *compare[3:])), "flaot16"]) == 2
    assert "None of them has 'flaot16'" in capsys.readouterr().err


def test_records_of_two_contents_are_told_apart(tmp_path: Path, capsys: Any) -> None:
    for content in ("c1c1c1", "d2d2d2"):
        one = replace(sts(), data=Data(content=content))
        put(tmp_path, MODELS["a"], record(one, 0.5, model=MODELS["a"]))
    shown = said(capsys, "show", "model-a", "--results", tmp_path)
    assert "data c1c1c1" in shown
    assert "data d2d2d2" in shown


def test_what_came_with_the_project_is_marked(tmp_path: Path, capsys: Any) -> None:
    found = asked(capsys, "show", "minilm", "--reference", "--results", tmp_path)
    assert {row["reference"] for row in found["records"]} == {True}
    assert "reference" in said(capsys, "show", "minilm", "--reference", "--results", tmp_path)


def test_what_came_with_the_project_is_in_no_table_unasked(tmp_path: Path, capsys: Any) -> None:
    assert invoke(["show", "minilm", "--results", str(tmp_path)]) == 2
    said_so = capsys.readouterr().err
    assert f"Nothing is recorded of minilm in {tmp_path}." in said_so
    assert "--reference" in said_so
    came = asked(capsys, "show", "minilm", "--reference", "--results", tmp_path)
    model = Artifact(**{**vars(MODELS["a"]), "name": "minilm", "key": came["model"]["artifact"]})
    put(tmp_path, model, record(sts(), 0.5, model=model))
    (row,) = asked(capsys, "show", "minilm", "--results", tmp_path)["records"]
    assert (row["task"], row["reference"]) == ("STS12", False)
    more = asked(capsys, "show", "minilm", "--reference", "--results", tmp_path)["records"]
    assert len(more) == len(came["records"]) + 1


def test_narrowing_nothing_is_refused(results: Path, capsys: Any) -> None:
    assert invoke(["show", "model-a", "--languages", "deu", "--results", str(results)]) == 2
    assert "--suite" in capsys.readouterr().err
