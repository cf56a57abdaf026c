"""Per-example lines of the kinds that only mteb's own data sets have: they add up to its scores."""

from __future__ import annotations

import json
from collections import defaultdict
from typing import Any

import numpy as np
import pytest
from datasets import Dataset, DatasetDict
from mteb import abstasks
from mteb.abstasks.abstask import AbsTask
from mteb.abstasks.clustering_legacy import AbsTaskClusteringLegacy
from mteb.abstasks.task_metadata import TaskMetadata
from scipy.stats import spearmanr
from sklearn.metrics import mean_absolute_error, v_measure_score

from bags import TOPICS, Bags, table
from suites._mteb import examples
from suites._mteb.source import _quiet, _run

WORDS = [word for topic in TOPICS for word in topic.split()]


def texts(count: int, start: int = 0) -> list[str]:
    return [f"{WORDS[i % 12]} number {i}" for i in range(start, start + count)]


def made(
    base: Any, data: Any, *, metric: str, subsets: tuple[str, ...] = ("default",), **more: Any
) -> AbsTask:
    """A task of a class of mteb that holds `data`."""
    languages = ["eng-Latn"] if subsets == ("default",) else {name: ["eng-Latn"] for name in subsets}
    name = base.__name__.removeprefix("AbsTask").replace("Legacy", "")
    metadata = TaskMetadata(
        name=f"Own{name}",
        description="",
        reference=None,
        dataset={"path": "built/here", "revision": "0"},
        type=more.pop("type", name),
        category="t2t",
        modalities=["text"],
        eval_splits=["test"],
        eval_langs=languages,
        main_score=metric,
    )
    task: AbsTask = type(base.__name__, (base,), {"metadata": metadata, **more})()
    task.dataset = data
    task.data_loaded = True
    return task


def lines_and_scores(task: AbsTask, subset: str = "default") -> tuple[list[dict[str, Any]], Any]:
    with _quiet():
        found = _run(task, Bags())
    assert found.notes == ()
    return [line for line in table(found) if line["subset"] == subset], found.scores["test"][subset]


def words_of_depth(number: int, count: int = 60) -> list[list[str]]:
    """Groups that are words; every third row lacks the second level, every fourth the third."""
    rows = [[f"t{i % 4}", f"s{i % 8}", f"u{i % 5}"] for i in range(count)]
    return [row[: 1 if i % 3 == number else 2 if i % 4 == 0 else 3] for i, row in enumerate(rows)]


def numbers_of_depth(number: int, count: int = 60) -> list[list[int]]:
    """The same in numbers, with a group that is called -1 in the data."""
    rows = [[int(name[1:]) for name in row] for row in words_of_depth(number, count)]
    return [[-1 if group == 3 else group for group in row] for row in rows]


def by_replicate(lines: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    groups: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for line in lines:
        groups[line["replicate"]].append(line)
    return [groups[number] for number in sorted(groups)]


def test_translations_found_average_to_the_accuracy(capfd: pytest.CaptureFixture[str]) -> None:
    rows = {"sentence1": texts(12), "sentence2": [*texts(8), *texts(2, 10), *texts(2, 8)]}
    data = DatasetDict({"test": Dataset.from_dict({"id": [f"s{i}" for i in range(12)], **rows})})
    lines, scores = lines_and_scores(made(abstasks.AbsTaskBitextMining, data, metric="f1"))
    assert [line["gold"] for line in lines] == [f"s{i}" for i in range(12)]
    assert capfd.readouterr() == ("", ""), "mteb's bars stay off the terminal"
    assert 0 < scores["accuracy"] < 1, "the data must tell right from wrong"
    assert np.mean([line["metric"] for line in lines]) == pytest.approx(scores["accuracy"])


def test_pairs_of_a_parallel_corpus_each_have_their_lines() -> None:
    columns = {"a": texts(9), "b": texts(9), "c": [*texts(5), *texts(2, 7), *texts(2, 5)]}
    data = DatasetDict({"test": Dataset.from_dict(columns)})
    task = made(
        abstasks.AbsTaskBitextMining, data, metric="f1", subsets=("a-b", "c-a"), parallel_subsets=True
    )
    for subset in ("a-b", "c-a"):
        lines, scores = lines_and_scores(task, subset)
        assert len(lines) == 9
        assert np.mean([line["metric"] for line in lines]) == pytest.approx(scores["accuracy"])


def test_label_sets_hit_exactly_average_to_the_accuracy_of_each_probe() -> None:
    def rows(count: int, start: int) -> Dataset:
        labels = [sorted({i % 4, i % 3 + 1}) for i in range(start, start + count)]
        return Dataset.from_dict({"text": texts(count, start), "label": labels})

    data = DatasetDict({"train": rows(80, 0), "test": rows(60, 100)})
    task = made(abstasks.AbsTaskMultilabelClassification, data, metric="accuracy", max_eval_samples=40)
    lines, scores = lines_and_scores(task)
    for probe, expected in zip(by_replicate(lines), scores["scores_per_experiment"], strict=True):
        assert len(probe) < 60, "mteb scores a sample, so the lines are of that sample"
        assert np.mean([line["metric"] for line in probe]) == pytest.approx(expected["accuracy"])
    assert all(line["metric"] == float(line["prediction"] == line["gold"]) for line in lines)
    assert json.loads(lines[0]["gold"])


def test_regressed_values_give_the_error_of_each_probe() -> None:
    def rows(count: int, start: int) -> Dataset:
        values = [float(i % 7) + i / 50 for i in range(start, start + count)]
        return Dataset.from_dict({"text": texts(count, start), "value": values})

    data = DatasetDict({"train": rows(80, 0), "test": rows(30, 100)})
    lines, scores = lines_and_scores(made(abstasks.AbsTaskRegression, data, metric="kendalltau"))
    for probe, expected in zip(by_replicate(lines), scores["scores_per_experiment"], strict=True):
        pairs = [(float(line["gold"]), float(line["prediction"])) for line in probe]
        assert mean_absolute_error(*zip(*pairs, strict=True)) == pytest.approx(expected["mae"])


def test_every_text_is_held_out_once_and_folds_average_to_their_accuracy() -> None:
    rows = {"text": texts(60), "label": [i % 12 // 3 for i in range(60)]}
    data = DatasetDict({"train": Dataset.from_dict(rows)})
    data["test"] = data["train"]
    task = made(
        abstasks.AbsTaskClassification,
        data,
        metric="accuracy",
        is_cross_validation=True,
        n_splits=5,
        train_split="test",
    )
    lines, scores = lines_and_scores(task)
    assert len({line["example_id"] for line in lines}) == len(lines) == 60
    for fold, expected in zip(by_replicate(lines), scores["scores_per_experiment"], strict=True):
        assert np.mean([line["metric"] for line in fold]) == pytest.approx(expected["accuracy"])


def test_each_set_clustered_alone_has_its_v_measure_and_a_set_of_one_group_no_lines() -> None:
    sets = [
        {"sentences": texts(24), "labels": [f"t{i % 12 // 3}" for i in range(24)]},
        {"sentences": texts(6, 50), "labels": ["one"] * 6},
        {"sentences": texts(36, 100), "labels": [f"t{i % 12 // 6}" for i in range(36)]},
    ]
    data = DatasetDict({"test": Dataset.from_list(sets)})
    lines, scores = lines_and_scores(made(AbsTaskClusteringLegacy, data, metric="v_measure"))
    groups = by_replicate(lines)
    assert {line["replicate"] for line in lines} == {0, 2}
    for drawn, expected in zip(groups, [scores["v_measures"][0], scores["v_measures"][2]], strict=True):
        found = v_measure_score([d["gold"] for d in drawn], [d["prediction"] for d in drawn])
        assert found == pytest.approx(expected)


def test_a_single_set_has_its_lines_too() -> None:
    sets = [{"sentences": texts(24), "labels": [f"t{i % 12 // 3}" for i in range(24)]}]
    data = DatasetDict({"test": Dataset.from_list(sets)})
    lines, scores = lines_and_scores(made(AbsTaskClusteringLegacy, data, metric="v_measure"))
    found = v_measure_score([d["gold"] for d in lines], [d["prediction"] for d in lines])
    assert found == pytest.approx(scores["v_measures"][0])


@pytest.mark.parametrize(
    "labels",
    [words_of_depth(1), numbers_of_depth(1), [["t"] for _ in range(60)], [f"t{i % 4}" for i in range(60)]],
    ids=["words", "numbers", "one level, one group", "plain"],
)
@pytest.mark.parametrize("some", [{"max_fraction_of_documents_to_embed": None}, {}], ids=["all", "sample"])
def test_draws_of_a_hierarchy_are_those_mteb_made(
    labels: list[Any], some: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """mteb hands each draw to its metric: the groups and the clusters, in the order drawn."""
    from mteb.abstasks import clustering

    drawn: list[tuple[list[str], list[str]]] = []

    def measure(groups: Any, clusters: Any) -> float:
        drawn.append(([str(group) for group in groups], [str(cluster) for cluster in clusters]))
        return float(v_measure_score(groups, clusters))

    monkeypatch.setattr(clustering, "v_measure_score", measure)
    data = DatasetDict({"test": Dataset.from_dict({"sentences": texts(60), "labels": labels})})
    rules = {"n_clusters": 3, "max_documents_per_cluster": 40, "max_fraction_of_documents_to_embed": 0.7}
    task = made(abstasks.AbsTaskClustering, data, metric="v_measure", **{**rules, **some})
    lines, _ = lines_and_scores(task)
    told = [([d["gold"] for d in g], [d["prediction"] for d in g]) for g in by_replicate(lines)]
    assert told == drawn
    levels = max(len(label) if isinstance(label, list) else 1 for label in labels)
    assert len(drawn) == 3 * levels


def test_the_predictions_of_a_parallel_corpus_are_read_once_a_split(monkeypatch: pytest.MonkeyPatch) -> None:
    data = DatasetDict({"test": Dataset.from_dict({c: texts(9) for c in "abc"})})
    subsets = ("a-b", "a-c", "b-a", "b-c", "c-a", "c-b")
    task = made(abstasks.AbsTaskBitextMining, data, metric="f1", subsets=subsets, parallel_subsets=True)
    read, parse = [], json.loads
    monkeypatch.setattr(examples.json, "loads", lambda text: read.append(1) or parse(text))
    assert len(lines_and_scores(task, "c-b")[0]) == 9
    assert len(read) == 1


@pytest.mark.parametrize("parallel", [True, False])
def test_too_many_lines_are_not_made_and_the_score_stays(
    parallel: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a parallel corpus they are counted before, so that mteb writes no predictions either."""
    columns = {"a": texts(9), "b": texts(9)} if parallel else {"sentence1": texts(18), "sentence2": texts(18)}
    data = DatasetDict({"test": Dataset.from_dict(columns)})
    subsets = ("a-b", "b-a") if parallel else ("default",)
    task = made(abstasks.AbsTaskBitextMining, data, metric="f1", subsets=subsets, parallel_subsets=parallel)
    monkeypatch.setattr(examples, "MOST", 17)
    wrote: list[object] = []
    save = task._save_task_predictions
    monkeypatch.setattr(
        AbsTask, "_save_task_predictions", lambda _, *a, **k: wrote.append(1) or save(*a, **k)
    )
    with _quiet():
        found = _run(task, Bags())
    assert found.main_score == 1
    assert (found.examples, found.notes) == ({}, ("No per-example results: there are more than 17.",))
    assert bool(wrote) != parallel


def test_lines_that_cannot_be_made_cost_no_score(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> None:
        raise ValueError("the draws do not fit")

    data = DatasetDict({"test": Dataset.from_dict({"sentence1": texts(9), "sentence2": texts(9)})})
    monkeypatch.setattr(examples, "_bitext", broken)
    with _quiet():
        found = _run(made(abstasks.AbsTaskBitextMining, data, metric="f1"), Bags())
    assert (found.main_score, found.examples) == (1, {})
    assert found.notes == ("No per-example results: ValueError: the draws do not fit",)


@pytest.mark.parametrize("constant", [True, False])
def test_summaries_rank_as_the_score_says(constant: bool) -> None:
    rows = [
        {
            "text": f"text {i}",
            "human_summaries": texts(2, i),
            "machine_summaries": texts(5, 3 * i),
            "relevance": [2.0] * 5 if constant and i == 1 else [float((j * 3 + i) % 5) for j in range(5)],
        }
        for i in range(4)
    ]
    data = DatasetDict({"test": Dataset.from_list(rows)})
    task = made(abstasks.AbsTaskSummarization, data, metric="cosine_spearman", min_score=0, max_score=5)
    lines, scores = lines_and_scores(task)
    of_text: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for line in lines:
        of_text[line["example_id"].partition("/")[0]].append((float(line["gold"]), float(line["prediction"])))
    assert len(of_text) == (3 if constant else 4)
    found = [spearmanr(*zip(*told, strict=True))[0] for told in of_text.values()]
    assert np.mean(found) == pytest.approx(scores["cosine_spearman"])
