"""What mteb scores of our vectors: its own scores, and examples that add up to them."""

from __future__ import annotations

import copy
import json
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import pytest
from datasets import Dataset, DatasetDict
from mteb import abstasks
from mteb.abstasks.abstask import AbsTask
from mteb.abstasks.clustering_legacy import AbsTaskClusteringLegacy
from mteb.abstasks.task_metadata import TaskMetadata
from scipy.stats import spearmanr
from sklearn.metrics import mean_absolute_error, v_measure_score

from fakes import TOPICS, Bags, artifact, encoding, quiet, record, score, table
from harness.cli import invoke
from harness.core.errors import DataError, UsageError
from harness.core.keys import build_task_identity
from harness.core.types import SIDES, CorpusSource, Data, Outcome, Role, SuiteOptions, Task, TaskSource
from harness.plan.catalog import find_suites, open_suites
from harness.results.scores import Aggregates
from harness.storage.record import RECORDS, Record, build_record_output
from harness.storage.store import Store
from suites._content import (
    Clusters,
    Content,
    Document,
    Labelled,
    Pair,
    Pairs,
    Query,
    Retrieval,
    Row,
    measure_content,
)
from suites._mteb import built, examples, snapshot
from suites._mteb.built import BuiltSource
from suites._mteb.examples import Examples, limit_examples
from suites._mteb.model import Model, collect_corpus_texts
from suites._mteb.source import MtebSource, build_mteb_suite

# Suites


def test_the_mean_of_efficient_embeddings_is_over_seven_tasks_of_seven_types() -> None:
    (suite,) = open_suites(["mteb-efficient8"])
    scores = {column.name: 0.1 * place for place, column in enumerate(suite.columns)}
    found = Aggregates.aggregate_scores(suite, scores)
    assert len({column.type for column in suite.columns}) == len(suite.columns) == 8
    assert (found.over_tasks.value, found.over_types.value) == pytest.approx((0.3, 0.3)), "0 to 0.6, by hand"
    assert [*found.shown_only] == ["Tatoeba"]
    (tatoeba,) = (task for task in suite.tasks if task.name == "Tatoeba")
    assert len(tatoeba.subsets) == 112
    v1 = {task.name: task for task in open_suites(["mteb-v1"])[0].tasks}
    assert {task.name: task for task in suite.tasks if task.name != "Tatoeba"}.items() <= v1.items()


def test_tasks_of_a_type_are_asked_for_by_it() -> None:
    (suite,) = open_suites(["mteb"], SuiteOptions(tasks=("type:sts", "ArguAna")))
    every = open_suites(["mteb"])[0].columns
    wanted = [column.name for column in every if column.type == "STS" or column.name == "ArguAna"]
    assert [column.name for column in suite.columns if column.tasks] == wanted
    assert [column.name for column in suite.columns if column.tasks] == wanted
    assert suite.requested == (*wanted,)
    with pytest.raises(UsageError, match="No task of mteb is called 'type:STSS'") as caught:
        open_suites(["mteb"], SuiteOptions(tasks=("type:STSS",)))
    assert "Did you mean type:STS?" in str(caught.value.hint)
    with pytest.raises(UsageError, match="type:STS is of a suite, and none is named"):
        find_suites(["type:STS"])


def test_the_size_of_a_limit_is_whole_where_a_classifier_is_trained() -> None:
    sizes = {}
    for name in ("STS17", "Banking77Classification.v2"):
        task = replace(open_suites([f"mteb:{name}"])[0].tasks[0], limit=3)
        sizes[name] = (task.limited_size.texts, task.size.texts)
    assert sizes["STS17"][0] == 2 * 3 * 11
    assert len({*sizes["Banking77Classification.v2"]}) == 1


# mteb scores, we encode: examples add up to the scores, and scores are mteb's own


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
THREE = tuple(Row(id=text, text=text, label=label) for text, label in ("aX", "bY", "cX"))
CONTENTS["Three"] = Labelled(train=THREE, test=THREE)
CONTENTS["Same ids"] = Retrieval(
    documents=tuple(
        Document(id=f"{i}", text=f"{w}{'' if i < 4 else ' x'}") for i, w in enumerate(TOPICS * 2)
    ),
    queries=tuple(Query(id=f"{i}", text=w) for i, w in enumerate(TOPICS)),
    qrels={f"{i}": {f"{i + 4}": 1} for i in range(4)},
)
CONTENTS["Equal documents"] = Retrieval(
    documents=tuple(
        Document(id=f"d{i * 7 % 900}", text=TOPICS[i % 4] if i % 5 else f"{TOPICS[i % 4]} {i}")
        for i in range(900)
    ),
    queries=tuple(Query(id=f"q{i}", text=w) for i, w in enumerate([*TOPICS, "river music"])),
    qrels={f"q{i}": {f"d{n}": (n + i) % 3 for n in range(60, 100)} for i in range(5)},
)
"""Most have an equal; all are found, since in mteb it is torch's choice which of several is the last."""
CONTENTS["Same ids, ignored"] = replace(CONTENTS["Same ids"], ignore_identical_ids=True)

METRICS = {
    "Retrieval": "ndcg_at_10",
    "STS": "cosine_spearman",
    "Classification": "accuracy",
    "Clustering": "v_measure",
}


def task(kind: str) -> Task:
    words = {"Two": "Classification", "Three": "Classification"}
    type_ = words.get(kind, "Retrieval" if " " in kind else kind)
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


@pytest.mark.parametrize("kind", [*METRICS, "Equal documents", "Same ids, ignored"])
def test_scores_are_those_of_stock_mteb(kind: str) -> None:
    """mteb.evaluate with its own search wrapper around the same vectors; every metric."""
    import mteb

    class Stock:
        mteb_model_meta = Model(Bags()).mteb_model_meta
        similarity = Model(Bags()).similarity
        similarity_pairwise = Model(Bags()).similarity_pairwise

        def encode(self, inputs: Any, **_: Any) -> np.ndarray:
            return Bags().encode([text for batch in inputs for text in batch["text"]], role="")

    with quiet():
        made = BuiltSource(loader=Given(kind)).build_mteb_task(task(kind), seed=42)
        stock = mteb.evaluate(Stock(), made, cache=None, show_progress_bar=False)  # type: ignore[arg-type]
    found = outcome(kind)
    assert stock.task_results[0].get_score() == pytest.approx(found.main_score, abs=1e-6)
    (theirs,) = stock.task_results[0].scores["test"]
    ours = found.scores["test"]["default"]
    assert {*ours} == {*theirs} - {"hf_subset", "languages", "mteb_version"}
    for name, value in theirs.items():
        if isinstance(value, float):
            expected = pytest.approx(value, abs=1e-6)
            assert ours[name] is None if np.isnan(value) else ours[name] == expected, name


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


TREC = {"ndcg_at": "ndcg_cut", "recall_at": "recall", "map_at": "map_cut", "precision_at": "P"}


@pytest.mark.parametrize("kind", ["Retrieval", "Equal documents", "Same ids, ignored"])
def test_the_exported_run_has_the_records_metrics(kind: str, tmp_path: Path) -> None:
    """As pytrec_eval reads and scores it; mteb rounds to five digits."""
    import pytrec_eval

    found = outcome(kind)
    kept = keep(task(kind), found, tmp_path / "r")
    assert kept.run is not None
    assert kept.run.depth == max(found.run["rank"]) <= 100
    done = invoke(["export", "tiny", "--trec", str(tmp_path / "t"), "--results", str(tmp_path / "r")])
    assert done == 0
    stem = tmp_path / "t" / artifact(Path()).slug / f"{kept.task.name}.test"
    with open(f"{stem}.qrels") as judged, open(f"{stem}.run") as hits:
        qrels, run = pytrec_eval.parse_qrel(judged), pytrec_eval.parse_run(hits)
    names = {f"{name}_{depth}": f"{ours}_{depth}" for ours, name in TREC.items() for depth in (1, 10, 100)}
    scored = pytrec_eval.RelevanceEvaluator(qrels, {f"{name}.1,10,100" for name in TREC.values()}).evaluate(
        run
    )
    for name, ours in names.items():
        mean = np.mean([metrics[name] for metrics in scored.values()])
        assert round(mean, 5) == pytest.approx(found.scores["test"]["default"][ours], abs=1e-6), name
    assert len(scored) == len(qrels) == len(table(found))
    first = {query: dict([*documents.items()][:10]) for query, documents in run.items()}
    ranks = pytrec_eval.RelevanceEvaluator(qrels, {"recip_rank"}).evaluate(first)
    mean = np.mean([metrics["recip_rank"] for metrics in ranks.values()])
    assert mean == pytest.approx(found.scores["test"]["default"]["mrr_at_10"], abs=1e-6)


def keep(of: Task, found: Outcome, results: Path, key: str = "a" * 64, **settings: object) -> Record:
    """The record of an outcome with the files beside it, as a run leaves it."""
    model_of = artifact(Path(), key=key)
    one = record(of, found.main_score, model=model_of, how=encoding(**settings))
    made = build_record_output(one, found.examples, found.run)
    parsed = RECORDS.parse(made["record"].decode(), where="made")
    return Store(results).put(model_of.slug, parsed, made["examples"], run=made.get("run"))


def test_a_reranking_run_has_all_candidates() -> None:
    names = [d.id for d in CONTENTS["Equal documents"].documents]  # type: ignore[union-attr]
    asked = task("Equal documents")
    with quiet():
        made: Any = BuiltSource(loader=Given("Equal documents")).build_mteb_task(asked, seed=42)
        made.dataset["default"]["test"]["top_ranked"] = {f"q{i}": names[i : i + 150] for i in range(5)}
        found = score(made, Bags())
    assert Counter(found.run["query_id"]) == dict.fromkeys([f"q{i}" for i in range(5)], 150)
    output = build_record_output(record(asked, found.main_score), found.examples, found.run)
    part = RECORDS.parse(output["record"].decode(), where="made").run
    assert part is not None
    assert (part.rows, part.depth) == (750, 150)


def test_an_export_is_of_one_condition(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The one with the most tasks, of equals the first in `show`; another is named, and can be chosen."""
    one, other = outcome("Retrieval"), outcome("Same ids")
    keep(task("Retrieval"), one, tmp_path / "r", max_length=128)
    keep(
        task("Retrieval"),
        replace(one, run={n: v[:3] for n, v in one.run.items()}),
        tmp_path / "r",
        max_length=16,
    )
    where = ["export", "tiny", "--trec", str(tmp_path / "t"), "--results", str(tmp_path / "r")]
    path = tmp_path / "t" / artifact(Path()).slug / "OwnRetrieval.test.run"

    def written(*more: str) -> tuple[int, str, str]:
        assert invoke([*where, *more]) == 0
        out, err = capsys.readouterr()
        return len(path.read_text().splitlines()), out, err

    lines, out, err = written()
    assert lines == len(one.run["rank"])
    assert f"{path}\tmean pooling, normalized, 128 tokens" in out
    assert "16 tokens" in err
    assert "128 tokens" not in err
    lines, out, _ = written("--settings", " 16 tokens")
    assert (lines, "16 tokens" in out) == (3, True)
    keep(task("Same ids"), other, tmp_path / "r", max_length=16)
    lines, out, err = written()
    assert (lines, "OwnSame" in out, "128 tokens" in err) == (3, True, True)
    lines, _, err = written("--settings", "128 tokens")
    assert lines == len(one.run["rank"])
    assert "Not measured with these settings: OwnSame" in err
    assert invoke([*where, "--settings", "tokens"]) == 2
    assert "2 of them have 'tokens'" in capsys.readouterr().err


def test_models_of_one_name_have_folders_of_their_own(tmp_path: Path) -> None:
    where = ["--trec", str(tmp_path / "t"), "--results", str(tmp_path / "r")]
    for key in ("a" * 64, "b" * 64):
        keep(task("Retrieval"), outcome("Retrieval"), tmp_path / "r", key=key)
        assert invoke(["export", key[:12], *where]) == 0
    assert {path.name for path in (tmp_path / "t").iterdir()} == {f"tiny-{'a' * 12}", f"tiny-{'b' * 12}"}


@pytest.mark.parametrize(
    ("change", "arguments", "said"),
    [
        ("", ["--tasks", "OwnSam"], "No retrieval task of tiny is called 'OwnSam'.\nDid you mean OwnSame?"),
        ("no run", [], "was not kept.\nTo make it again: harness run --model tiny --suite local:FOLDER "
         "--tasks OwnSame --pooling mean --max-length 128 --dtype float32 --similarity cosine --normalize "
         "--force"),
        ("scaled", [], "--normalize --rope-scaling yarn:4 --force"),
        ("one run", [], "--normalize --force\nWithout it: --tasks OwnRetrieval"),
        ("damaged", [], "The run of tiny on OwnSame is gone or damaged."),
        ("blank", [], "OwnSame: the id 'a b' cannot be written: TREC's formats separate fields by blanks."),
        ("STS", [], "No retrieval task of tiny was measured with tiny."),
        ("", ["--out", "x"], "--trec takes one results folder, no --out, no --keep and no --format, and"),
        ("", ["--format", "md"], "--trec takes one results folder, no --out, no --keep and no --format, and"),
    ],
)  # fmt: skip
def test_a_run_that_cannot_be_exported_is_one_error(
    change: str, arguments: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = outcome("Same ids")
    if change == "blank":
        found = replace(found, run={**found.run, "document_id": ["a b"] * len(found.run["rank"])})
    if change in ("no run", "one run", "scaled"):
        found = replace(found, run={})
    scaling = "yarn:4" if change == "scaled" else None
    kept = keep(task("STS" if change == "STS" else "Same ids"), found, tmp_path / "r", rope_scaling=scaling)
    if change == "damaged":
        path = Store(tmp_path / "r").find_part_file(kept, artifact(Path()).slug, "run")
        assert path is not None
        path.write_bytes(path.read_bytes()[:-1])
    where = ["--trec", str(tmp_path / "t"), "--results", str(tmp_path / "r")]
    keep(task("Retrieval"), outcome("Retrieval"), tmp_path / "r") if change in ("blank", "one run") else None
    assert invoke(["export", "tiny", *where, *arguments]) in (1, 2)
    assert said in capsys.readouterr().err
    assert not (tmp_path / "t").exists()


def test_a_document_may_be_its_text_alone() -> None:
    """The score is that of the same data without titles, under a key of its own."""
    alone = replace(task("Retrieval"), documents="text")
    untitled = replace(CONTENTS["Retrieval"], documents=tuple(
        replace(d, title="") for d in CONTENTS["Retrieval"].documents  # type: ignore[union-attr]
    ))  # fmt: skip
    with pytest.MonkeyPatch.context() as patch:
        found = alone.source.evaluate(alone, Bags(), seed=42, data=None)  # type: ignore[union-attr]
        patch.setitem(CONTENTS, "Retrieval", untitled)
        fresh = replace(task("Retrieval"), name="Fresh")
        truth = fresh.source.evaluate(fresh, Bags(), seed=42, data=None)  # type: ignore[union-attr]
    assert found.run == truth.run != outcome("Retrieval").run
    assert build_task_identity(artifact(Path()), alone)["documents"] == "text"
    assert "documents" not in build_task_identity(artifact(Path()), task("Retrieval"))
    assert (
        measure_content(CONTENTS["Retrieval"], "text")
        == measure_content(untitled)
        != measure_content(CONTENTS["Retrieval"])
    )


@pytest.mark.parametrize("tied", [False, True])
def test_compare_tests_over_queries(tied: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = outcome("Retrieval")
    worse = [0.0 if tied is False else value for value in found.examples["metric"]]
    changed = {**found.examples, "metric": worse}
    for name, key, lines in (("tiny", "a" * 64, found.examples), ("other", "b" * 64, changed)):
        of, score = replace(task("Retrieval"), roles=SIDES), float(np.mean(lines["metric"]))
        model_of = artifact(Path(), key=key, name=name)
        one = record(of, score, model=model_of).model_copy(
            update={"scores": {"test": {"default": {"main_score": score, "ndcg_at_10": score}}}}
        )
        made = build_record_output(one, lines, found.run)
        parsed = RECORDS.parse(made["record"].decode(), where="made")
        Store(tmp_path).put(model_of.slug, parsed, made["examples"], run=made["run"])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HARNESS_CACHE", str(tmp_path / "cache"))
        assert invoke(["compare", "tiny", "other", "--results", str(tmp_path), "--json"]) == 0
        (row,) = json.loads(capsys.readouterr().out)["deltas"]
        assert invoke(["compare", "tiny", "other", "--results", str(tmp_path)]) == 0
    assert row["test"]["queries"] == 4
    assert row["test"]["low"] <= row["delta"] <= row["test"]["high"]
    assert (row["test"]["p"] == 1.0) == (row["delta"] == 0) == tied
    assert "95 %" in capsys.readouterr().out


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
    version = mock.Mock(side_effect=[installed] if installed else PackageNotFoundError)
    monkeypatch.setattr("importlib.metadata.version", version)
    monkeypatch.setattr(snapshot, "load_snapshot", lambda: SimpleNamespace(version="2.26.24"))
    with pytest.raises(UsageError) as caught:
        scorer.evaluate(task("STS"), Bags(), seed=42, data=None)
    assert (caught.value.message, caught.value.hint) == (said, 'Type: python -m pip install "mteb==2.26.24"')


def some_pairs(name: str, **more: Any) -> AbsTask:
    """A task of mteb of this name that has its data, which is none of its own."""
    found = BuiltSource(loader=Given("STS")).build_mteb_task(task("STS"), seed=42)
    found.metadata = found.metadata.model_copy(update={"name": name})
    vars(found).update(more)
    return found


@pytest.mark.parametrize("offline", [True, False])
def test_a_task_that_reads_the_hub_by_itself_is_refused_elsewhere(
    offline: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the hub's cache its data is the hub's, as long as the hub may be asked."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", offline)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr("mteb.get_task", lambda *_, **__: some_pairs("SKQuadRetrieval"))
    wanted = build_mteb_suite("SKQuadRetrieval", called="it", options=SuiteOptions()).tasks[0]
    root, held = tmp_path / "root", tmp_path / "hub" / "snapshots" / "sha"
    for data in (root, held) if offline else (root,):
        with pytest.raises(DataError, match=rf"reads TUKE-KEMT/retrieval-skquad from .* not from {data}\."):
            wanted.source.evaluate(wanted, Bags(), seed=42, data=data)
    held.mkdir(parents=True)
    (held / "test.jsonl").touch()
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
    monkeypatch.setattr("mteb.get_task", lambda *_, **__: some_pairs(name, notes=("first",)))
    wanted = build_mteb_suite(name, called="it", options=SuiteOptions()).tasks[0]
    wanted = replace(wanted, data=replace(wanted.data, revision=revision))
    found = wanted.source.evaluate(wanted, Bags(), seed=42, data=None)
    assert found.notes[0] == "first"
    assert ["to the branch main: a change of it is not noticed." in note for note in found.notes[1:]] == [
        True
    ] * told


def test_our_own_rules_are_part_of_what_scores_once_they_change(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = f"mteb {snapshot.load_snapshot().version}"
    assert BuiltSource(loader=Given("STS")).scoring == MtebSource().scoring == plain
    monkeypatch.setattr(built, "RULES", 2)
    assert BuiltSource(loader=Given("STS")).scoring == f"{plain}, rules 2"


@pytest.mark.parametrize("titles", [True, False])
def test_documents_read_as_mteb_reads_them(titles: bool) -> None:
    from mteb._create_dataloaders import _retrieval_texts
    from mteb.types import PromptType

    lines = [{"id": "1", "text": " a "}, {"id": "2", "text": "b"}, {"id": "3", "text": ""}]
    if titles:
        lines = [{**line, "title": title} for line, title in zip(lines, ["T", "", "U "], strict=True)]
    corpus = Dataset.from_list(lines)
    with quiet():
        data = {"default": {"test": {"corpus": corpus}}}
        search = made(abstasks.AbsTaskRetrieval, data, metric="ndcg_at_10")
        assert collect_corpus_texts(search) == _retrieval_texts(corpus, PromptType.document)


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
    plain = Dataset.from_dict({"id": ["a", "b", "c"], "text": ["a", "b", "c"], "label": [0, 1, 0]})
    made: Any = BuiltSource(loader=Given("Three")).build_mteb_task(task("Three"), seed=42).dataset
    labels = made["test"]["label"]
    assert labels == [0, 1, 0]
    labels.append(5)
    assert made["test"]["label"] == [0, 1, 0]
    assert made["test"][1] == {"id": "b", "text": "b", "label": 1}
    assert made["test"].select([2, 0])["text"][:] == ["c", "a"]
    assert list(made["test"]) == list(plain)


# Per-example lines of the kinds that only mteb's own data sets have: they add up to its scores


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
    found = score(task, Bags())
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
    wrote: list[Path] = []
    evaluate = task.evaluate

    def watched(*arguments: Any, prediction_folder: Path | None, **more: Any) -> Any:
        found = evaluate(*arguments, prediction_folder=prediction_folder, **more)
        wrote.extend(prediction_folder.iterdir() if prediction_folder else ())
        return found

    monkeypatch.setattr(task, "evaluate", watched)
    found = score(task, Bags())
    assert found.main_score == 1
    assert (found.examples, found.notes) == ({}, ("No per-example results: there are more than 17.",))
    assert bool(wrote) != parallel


def test_lines_that_cannot_be_made_cost_no_score(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> None:
        raise ValueError("the draws do not fit")

    data = DatasetDict({"test": Dataset.from_dict({"sentence1": texts(9), "sentence2": texts(9)})})
    monkeypatch.setattr(examples, "_iter_bitext_lines", broken)
    found = score(made(abstasks.AbsTaskBitextMining, data, metric="f1"), Bags())
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


# The texts of a task before they are encoded


class Listener(Bags):
    """A model that notes the texts of each side."""

    def __init__(self) -> None:
        self.texts: dict[str, set[str]] = defaultdict(set)

    def encode(self, texts: Sequence[str], *, role: Role) -> np.ndarray:
        self.texts[role].update(texts)
        return super().encode(texts, role=role)


@pytest.mark.parametrize("kind", METRICS)
def test_a_corpus_is_what_is_encoded(kind: str) -> None:
    """The documents of a search; of a classification the texts to be classified; else every text."""
    asked, model = task(kind), Listener()
    assert isinstance(asked.source, CorpusSource)
    found = asked.source.corpus(asked, seed=42, data=None)
    assert found is not None
    asked.source.evaluate(asked, model, seed=42, data=None)
    if kind == "Classification":
        assert found == [row.text for row in rows(30, 100)]
        assert {*found} < model.texts[""]
    else:
        assert {*found} == model.texts["document" if kind == "Retrieval" else ""]


def test_a_corpus_of_mtebs_other_kinds() -> None:
    sets = [
        {"sentences": texts(3), "labels": ["a", "b", "a"]},
        {"sentences": texts(2, 5), "labels": ["a", "b"]},
    ]
    old = made(AbsTaskClusteringLegacy, DatasetDict({"test": Dataset.from_list(sets)}), metric="v_measure")
    assert collect_corpus_texts(old) == [*texts(3), *texts(2, 5)]
    rows = {"sentence1": texts(4), "sentence2": texts(4, 9), "train": texts(4, 20)}
    data = {name: DatasetDict({"test": Dataset.from_dict(rows)}) for name in ("en-de", "en-fr")}
    subsets = made(abstasks.AbsTaskBitextMining, data, metric="f1", subsets=("en-de", "en-fr"))
    assert collect_corpus_texts(subsets) == [*texts(4), *texts(4, 9)] * 2
    nameless = DatasetDict({"test": Dataset.from_dict({"eng": texts(4), "deu": texts(4)})})
    assert collect_corpus_texts(made(abstasks.AbsTaskBitextMining, nameless, metric="f1")) is None


# A metric over subqueries is known of each of them, and its mean over base queries is mteb's


def test_the_mean_over_base_queries_is_that_of_mteb(tmp_path: Path) -> None:
    from mteb._evaluators.retrieval_metrics import max_over_subqueries

    rng = np.random.default_rng(3)
    documents = [f"d{n}" for n in range(12)]
    judged, found = {}, {}
    for base in ("a", "b_c", "d"):
        relevant = {str(name): 1 for name in rng.choice(documents, size=3, replace=False)}
        for part in range(3):
            judged[f"{base}_{part}"] = relevant
            names = rng.choice(documents, size=8, replace=False)
            found[f"{base}_{part}"] = {str(name): float(rng.normal()) for name in names}
    metric = "max_over_subqueries_map_at_1000"
    data = {"default": {"test": {"relevant_docs": judged}}}
    model = Model(Bags())
    model.found["default", "test"] = found
    kept = Examples(made(abstasks.AbsTaskRetrieval, data, metric=metric), model, tmp_path)
    kept.add_subset_rows("test", ["default"])
    scored = dict(zip(kept.columns["example_id"], kept.columns["metric"], strict=True))
    assert list(scored) == list(judged)
    by_base = {query.rpartition("_")[0]: value for query, value in scored.items()}
    expected = max_over_subqueries(judged, found, [1, 3, 5, 10, 20, 100, 1000])[metric]
    assert np.isclose(np.mean([*by_base.values()]), expected, atol=1e-5)
    assert len({scored[f"a_{part}"] for part in range(3)}) == 1


# A limit draws examples of every kind of task


@pytest.mark.parametrize("kind", METRICS)
def test_a_limit_of_own_data_draws_the_same_examples_each_time(kind: str) -> None:
    limited, model = replace(task(kind), limit=3), Listener()
    found = limited.source.evaluate(limited, model, seed=42, data=None)  # type: ignore[union-attr]
    assert len({line["example_id"] for line in table(found)}) == 3
    assert {line["example_id"] for line in table(found)} < {
        line["example_id"] for line in table(outcome(kind))
    }
    if kind == "Retrieval":
        assert len(model.texts["document"]) == 16, "the corpus stays whole"
    again = limited.source.evaluate(limited, Bags(), seed=42, data=None)  # type: ignore[union-attr]
    assert again == found


PLAIN = {"text": texts(40), "label": [i % 4 for i in range(40)]}
TRAINED = DatasetDict({"train": Dataset.from_dict(PLAIN), "test": Dataset.from_dict(PLAIN)})
SETS = [{"sentences": texts(24, n), "labels": [f"t{i % 4}" for i in range(24)]} for n in (0, 50)]
LISTS = {"sentence1": [texts(20)], "sentence2": [texts(20, 5)], "labels": [[i % 2 for i in range(20)]]}
SUMMARIES = [
    {
        "text": f"text {i}",
        "human_summaries": texts(2, i),
        "machine_summaries": texts(5, 3 * i),
        "relevance": [float((j * 3 + i) % 5) for j in range(5)],
    }
    for i in range(9)
]
LABELS = {"text": texts(60), "label": [[i % 4, i % 3 + 4] for i in range(60)]}
PARTS = {c: texts(9) for c in "abc"}
KINDS: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "classes": (abstasks.AbsTaskClassification, TRAINED, {"metric": "accuracy"}),
    "values": (abstasks.AbsTaskRegression, TRAINED.rename_column("label", "value"), {"metric": "kendalltau"}),
    "label sets": (
        abstasks.AbsTaskMultilabelClassification,
        DatasetDict({name: Dataset.from_dict(LABELS) for name in ("train", "test")}),
        {"metric": "accuracy"},
    ),
    "pairs in a row": (
        abstasks.AbsTaskPairClassification,
        DatasetDict({"test": Dataset.from_dict(LISTS)}),
        {"metric": "max_ap"},
    ),
    "sets": (
        AbsTaskClusteringLegacy,
        DatasetDict({"test": Dataset.from_list(SETS)}),
        {"metric": "v_measure"},
    ),
    "a part of the texts": (
        abstasks.AbsTaskClustering,
        DatasetDict(
            {"test": Dataset.from_dict({"sentences": texts(60), "labels": PLAIN["label"] + [0] * 20})}
        ),
        {"metric": "v_measure", "max_fraction_of_documents_to_embed": 0.5},
    ),
    "translations": (
        abstasks.AbsTaskBitextMining,
        DatasetDict({"test": Dataset.from_dict(PARTS)}),
        {"metric": "f1", "subsets": ("a-b", "c-a"), "parallel_subsets": True},
    ),
    "subsets": (
        abstasks.AbsTaskSTS,
        {
            name: DatasetDict(
                {
                    "test": Dataset.from_dict(
                        {"sentence1": texts(12), "sentence2": texts(12, 2), "score": [*range(12)]}
                    )
                }
            )
            for name in ("en-de", "en-fr")
        },
        {"metric": "cosine_spearman", "subsets": ("en-de", "en-fr"), "min_score": 0, "max_score": 12},
    ),
    "summaries": (
        abstasks.AbsTaskSummarization,
        DatasetDict({"test": Dataset.from_list(SUMMARIES)}),
        {"metric": "cosine_spearman", "min_score": 0, "max_score": 5},
    ),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_limit_of_mtebs_kinds(kind: str) -> None:
    base, data, more = KINDS[kind]
    task = made(base, copy.deepcopy(data), **more)
    limit_examples(task, 5)
    found = score(task, Bags())
    lines = table(found)
    for subset in more.get("subsets", ("default",)):
        names = {line["example_id"].partition("/")[0] for line in lines if line["subset"] == subset}
        assert len(names) == 5, names
    assert found.notes == ()


def test_a_limit_of_reranking_keeps_the_candidates_and_groups_of_queries_are_refused() -> None:
    part = {
        "corpus": Dataset.from_dict({"id": [f"d{i}" for i in range(30)], "text": texts(30)}),
        "queries": Dataset.from_dict({"id": [f"q{i}" for i in range(10)], "text": texts(10)}),
        "relevant_docs": {f"q{i}": {f"d{i}": 1} for i in range(8)},
        "top_ranked": {f"q{i}": [f"d{i}", f"d{i + 10}"] for i in range(10)},
    }
    task = made(abstasks.AbsTaskRetrieval, {"default": {"test": part}}, metric="map_at_10", type="Reranking")
    limit_examples(task, 4)
    drawn = task.dataset["default"]["test"]  # type: ignore[index]
    queries = drawn["queries"]["id"][:]
    assert len(queries) == 4
    assert {*queries} == {*drawn["relevant_docs"]} == {*drawn["top_ranked"]}
    assert {*queries} <= {f"q{i}" for i in range(8)}, "a query without judgements counts for nothing"
    assert len(drawn["corpus"]) == 8
    assert len(table(score(task, Bags()))) == 4

    class Grouped(abstasks.AbsTaskRetrieval):  # type: ignore[misc]
        def task_specific_scores(self, *_: Any, **__: Any) -> dict[str, float]:
            return {}

    with pytest.raises(DataError, match="compares groups of queries"):
        limit_examples(made(Grouped, {"default": {"test": part}}, metric="map_at_10", type="Retrieval"), 4)


def test_a_limit_leaves_the_rows_of_a_classifier_and_enough_to_cluster() -> None:
    task = made(abstasks.AbsTaskClassification, copy.deepcopy(TRAINED), metric="accuracy", train_split="test")
    with pytest.raises(DataError, match="trains a classifier on a split that it scores"):
        limit_examples(task, 5)
    # Its folds are those of the sample.
    task.is_cross_validation = True  # type: ignore[attr-defined]
    limit_examples(task, 5)
    base, data, more = KINDS["a part of the texts"]
    task = made(base, copy.deepcopy(data), **{**more, "max_fraction_of_documents_to_embed": 0.01})
    limit_examples(task, 5)
    assert len(task.dataset["test"]) == 3  # type: ignore[index]
