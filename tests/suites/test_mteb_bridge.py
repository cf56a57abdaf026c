"""mteb scores, we encode: examples add up to the scores, and scores are mteb's own."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from datasets import Dataset
from scipy.stats import spearmanr
from sklearn.metrics import v_measure_score

from bags import TOPICS, Bags, table
from harness.errors import DataError, UsageError
from harness.types import Data, Outcome, SuiteOptions, Task, TaskSource
from suites._content import Clusters, Content, Document, Labelled, Pair, Pairs, Query, Retrieval, Row
from suites._mteb import snapshot, source
from suites._mteb.model import Model, _document_texts
from suites._mteb.source import BuiltSource, MtebSource, _mteb_task, _quiet
from suites._mteb.tasks import benchmark_or_task


@dataclass(frozen=True)
class Given:
    kind: str

    def content(self) -> Content:
        return CONTENTS[self.kind]


def rows(count: int, start: int = 0) -> tuple[Row, ...]:
    texts = [(i, TOPICS[i % 4].split()[i % 3]) for i in range(start, start + count)]
    return tuple(Row(id=f"r{i}", text=f"{word} number {i}", label=f"topic {i % 4}") for i, word in texts)


CONTENTS: dict[str, Content] = {
    "Retrieval": Retrieval(
        documents=tuple(Document(id=f"d{i}", title=w, text=f"on {w} {i}") for i, w in enumerate(TOPICS * 4)),
        queries=tuple(Query(id=f"q{i}", text=w) for i, w in enumerate(TOPICS)),
        qrels={f"q{i}": {f"d{i}": 2, f"d{(i + 5) % 16}": 1} for i in range(4)},
    ),
    "STS": Pairs(
        rows=tuple(
            Pair(id=f"p{i}", text1=r.text, text2=s.text, score=float(i * 7 % 5))
            for i, (r, s) in enumerate(zip(rows(12), rows(12, 3), strict=True))
        )
    ),
    "Classification": Labelled(train=rows(60), test=rows(30, 100)),
    "Clustering": Clusters(rows=rows(60)),
    "Two": Labelled(
        train=tuple(Row(id=r.id, text=r.text, label="yes" if "river" in r.text else "no") for r in rows(60)),
        test=tuple(Row(id=r.id, text=r.text, label="yes" if "river" in r.text else "no") for r in rows(30)),
    ),
}
CONTENTS["Same ids"] = Retrieval(
    documents=tuple(
        Document(id=f"{i}", text=f"{w}{'' if i < 4 else ' x'}") for i, w in enumerate(TOPICS * 2)
    ),
    queries=tuple(Query(id=f"{i}", text=w) for i, w in enumerate(TOPICS)),
    qrels={f"{i}": {f"{i + 4}": 1} for i in range(4)},
)
CONTENTS["Same ids, ignored"] = replace(CONTENTS["Same ids"], ignore_identical_ids=True)

METRICS = {
    "Retrieval": "ndcg_at_10",
    "STS": "cosine_spearman",
    "Classification": "accuracy",
    "Clustering": "v_measure",
}


def task(kind: str) -> Task:
    type_ = {"Two": "Classification"}.get(kind, "Retrieval" if "ids" in kind else kind)
    return Task(
        name=f"Own{kind.partition(' ')[0]}",
        type=type_,
        metric=METRICS[type_],
        splits=("test",),
        data=Data(content=kind),
        source=BuiltSource(loader=Given(kind)),
    )


def outcome(kind: str, seed: int = 42) -> Outcome:
    asked = task(kind)
    found = asked.source.evaluate(asked, Bags(), seed=seed, data=None)
    assert found.notes == ()
    return found


@pytest.mark.parametrize("kind", METRICS)
def test_a_second_model_is_scored_on_the_same_samples(kind: str) -> None:
    first = outcome(kind)
    outcome("STS" if kind != "STS" else "Retrieval")
    assert outcome(kind) == first == outcome(kind)


@pytest.mark.parametrize("kind", METRICS)
def test_scores_are_those_of_stock_mteb(kind: str) -> None:
    """mteb.evaluate with its own search wrapper around the same vectors."""
    import mteb

    class Stock:
        mteb_model_meta = Model(Bags()).mteb_model_meta
        similarity = Model(Bags()).similarity
        similarity_pairwise = Model(Bags()).similarity_pairwise

        def encode(self, inputs: Any, **_: Any) -> np.ndarray:
            return Bags().encode([text for batch in inputs for text in batch["text"]], role="")

    with _quiet():
        made = _mteb_task(task(kind), CONTENTS[kind], seed=42)
        stock = mteb.evaluate(Stock(), made, cache=None, show_progress_bar=False)  # type: ignore[arg-type]
    assert stock.task_results[0].get_score() == pytest.approx(outcome(kind).main_score, abs=1e-6)


def test_queries_own_metrics_average_to_the_score() -> None:
    found = outcome("Retrieval")
    lines = table(found)
    assert {line["example_id"] for line in lines} == {"q0", "q1", "q2", "q3"}
    assert np.mean([line["metric"] for line in lines]) == pytest.approx(found.main_score, abs=1e-5)
    best = json.loads(lines[0]["prediction"])
    assert [score for _, score in best] == sorted((score for _, score in best), reverse=True)
    assert json.loads(lines[0]["gold"]) == {"d0": 2, "d5": 1}


@pytest.mark.parametrize("kind", ["Same ids", "Same ids, ignored"])
def test_a_document_called_like_the_query_counts_unless_it_is_ignored(kind: str) -> None:
    found = outcome(kind)
    first = [json.loads(line["prediction"])[0][0] for line in table(found)]
    assert (first == ["0", "1", "2", "3"]) == (kind == "Same ids")
    own = [metric["metric"] for metric in table(found)]
    assert np.mean(own) == pytest.approx(found.main_score, abs=1e-5)
    assert (found.main_score == 1) == (kind != "Same ids")


def test_pairs_rank_correlation_is_the_score() -> None:
    found = outcome("STS")
    lines = table(found)
    assert [line["example_id"] for line in lines] == [f"p{i}" for i in range(12)]
    predicted = [float(line["prediction"]) for line in lines]
    gold = [float(line["gold"]) for line in lines]
    assert spearmanr(predicted, gold)[0] == pytest.approx(found.main_score, abs=1e-9)


def test_probes_hits_average_to_the_accuracy() -> None:
    found = outcome("Classification")
    lines = table(found)
    assert len(lines) == 10 * 30
    assert {line["replicate"] for line in lines} == set(range(10))
    assert all(line["metric"] == float(line["prediction"] == line["gold"]) for line in lines)
    assert np.mean([line["metric"] for line in lines]) == pytest.approx(found.main_score)
    assert {line["gold"] for line in lines} == {f"topic {i}" for i in range(4)}


def test_two_labels_that_are_words_can_be_scored() -> None:
    found = outcome("Two")
    assert {line["gold"] for line in table(found)} == {"no", "yes"}
    assert 0 <= found.main_score <= 1


def test_replayed_draws_give_the_v_measure_of_each_repetition() -> None:
    """If the draws were not replayed exactly, gold and cluster would be joined at random."""
    found = outcome("Clustering")
    lines = table(found)
    measures = []
    for replicate in range(10):
        drawn = [line for line in lines if line["replicate"] == replicate]
        assert len(drawn) == 60
        measures.append(v_measure_score([d["gold"] for d in drawn], [d["prediction"] for d in drawn]))
    assert measures == pytest.approx(found.scores["test"]["default"]["v_measures"]["Level 0"])


@pytest.mark.parametrize(
    ("installed", "said"),
    [
        ("2.0.0", "mteb 2.26.24 is needed to score, and 2.0.0 is installed."),
        ("", "mteb 2.26.24 is needed to score, and none is installed."),
    ],
)
@pytest.mark.parametrize("scorer", [MtebSource(), BuiltSource(loader=Given("STS"))])
def test_another_mteb_than_results_name_may_not_score(
    installed: str, said: str, scorer: TaskSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshot, "_installed", lambda: installed)
    monkeypatch.setattr(snapshot, "load", lambda: SimpleNamespace(version="2.26.24"))
    with pytest.raises(UsageError) as caught:
        scorer.evaluate(task("STS"), Bags(), seed=42, data=None)
    assert (caught.value.message, caught.value.hint) == (
        said,
        'Type: python -m pip install "mteb==2.26.24"',
    )


@pytest.mark.parametrize("offline", [True, False])
def test_a_task_that_reads_the_hub_by_itself_is_refused_elsewhere(
    offline: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the hub's cache its data is the hub's, as long as the hub may be asked."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", offline)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(source, "_fresh", lambda *_, **__: None)
    monkeypatch.setattr(source, "_run", lambda *_: Outcome(main_score=0.5, scores={}))
    wanted = benchmark_or_task("SKQuadRetrieval", called="it", options=SuiteOptions()).tasks[0]
    root, held = tmp_path / "root", tmp_path / "hub" / "snapshots" / "sha"
    for data in (root, held) if offline else (root,):
        with pytest.raises(DataError, match=rf"reads TUKE-KEMT/retrieval-skquad from .* not from {data}\."):
            wanted.source.evaluate(wanted, Bags(), seed=42, data=data)
    for data in () if offline else (held, None):
        found = wanted.source.evaluate(wanted, Bags(), seed=42, data=data)
        assert "at the hub's newest revision" in found.notes[0]


@pytest.mark.parametrize(
    ("name", "revision", "told"),
    [("PublicHealthQA", "main", 1), ("PublicHealthQA", "", 0), ("STSBenchmark", "b0fddb5", 0)],
)
def test_data_that_is_pinned_to_a_branch_is_told(
    name: str, revision: str, told: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source, "_fresh", lambda *_, **__: None)
    monkeypatch.setattr(source, "_run", lambda *_: Outcome(main_score=0.5, scores={}, notes=("first",)))
    wanted = benchmark_or_task(name, called="it", options=SuiteOptions()).tasks[0]
    wanted = replace(wanted, data=replace(wanted.data, revision=revision))
    found = wanted.source.evaluate(wanted, Bags(), seed=42, data=None)
    assert found.notes[0] == "first"
    assert ["to the branch main: a change of it is not noticed." in note for note in found.notes[1:]] == [
        True
    ] * told


def test_our_own_rules_are_part_of_what_scores_once_they_change(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = f"mteb {snapshot.load().version}"
    assert BuiltSource(loader=Given("STS")).scoring == MtebSource().scoring == plain
    monkeypatch.setattr(source, "RULES", 2)
    assert BuiltSource(loader=Given("STS")).scoring == f"{plain}, rules 2"


@pytest.mark.parametrize("titles", [True, False])
def test_documents_read_as_mteb_reads_them(titles: bool) -> None:
    from mteb._create_dataloaders import _retrieval_texts
    from mteb.types import PromptType

    lines = [{"id": "1", "text": " a "}, {"id": "2", "text": "b"}, {"id": "3", "text": ""}]
    if titles:
        lines = [{**line, "title": title} for line, title in zip(lines, ["T", "", "U "], strict=True)]
    corpus = Dataset.from_list(lines)
    with _quiet():
        assert _document_texts(corpus) == _retrieval_texts(corpus, PromptType.document)


@pytest.mark.shared
@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "published"), [("STSBenchmark", 0.820325), ("PoemSentimentClassification", 0.457486)]
)
def test_published_scores_of_minilm(name: str, published: float, shared: Path, tmp_path: Path) -> None:
    """0.457486 is the mean of the published 0.442857 (validation) and 0.472115 (test)."""
    import harness

    report = harness.run("minilm", f"mteb:{name}", results=tmp_path / "r", data=shared, offline=True)
    assert report.exit_code == 0
    assert report.records[0].main_score == pytest.approx(published, abs=0.001)


def test_columns_come_as_lists_of_ones_own() -> None:
    from datasets import Dataset, DatasetDict

    from suites._mteb.source import _with_lists

    plain = Dataset.from_dict({"text": ["a", "b", "c"], "label": [0, 1, 0]})
    made = _with_lists(DatasetDict({"test": plain}))
    labels = made["test"]["label"]
    assert labels == [0, 1, 0]
    labels.append(5)
    assert made["test"]["label"] == [0, 1, 0]
    assert made["test"][1] == {"text": "b", "label": 1}
    assert made["test"].select([2, 0])["text"][:] == ["c", "a"]
    assert list(made["test"]) == list(plain)
