"""From a per-example file to units: the score they give is the one that mteb's metric gives."""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.stats
import sklearn.metrics

from harness.core.errors import DataError
from harness.core.keys import digest
from harness.results.record_units import Parts, ScoredRecord
from harness.results.units import Units
from harness.storage.record import RECORDS, ModelPart, Record, TaskPart, build_record_output
from harness.storage.store import Store

Line = tuple[str, str, str, int, Any, Any, float | None]
Write = Callable[..., Units]
COLUMNS = ("split", "subset", "example_id", "replicate", "prediction", "gold", "metric")


def record(
    kind: str, metric: str, scores: dict[str, dict[str, dict[str, Any]]], main: float | None, **identity: Any
) -> Record:
    return Record(
        key=digest(identity),
        status="done",
        model=ModelPart(name="m", source="local", artifact="a" * 64, weights="w" * 64),
        task=TaskPart(name="T", type=kind, metric=metric),
        identity=identity,
        main_score=main,
        scores=scores,
    )


def mean(scores: dict[str, dict[str, dict[str, Any]]]) -> float | None:
    """The number of a trained task: here the mean of all its metrics."""
    values = [v for split in scores.values() for m in split.values() for v in m.values() if v is not None]
    return float(np.mean(values)) if values else None


@pytest.fixture
def taken(tmp_path: Path) -> Write:
    """Writes lines to a per-example file and takes a record with this score apart."""

    def go(
        lines: Sequence[Line],
        kind: str,
        metric: str,
        score: float | None,
        *,
        parts: Parts = (),
        scores: dict[str, dict[str, dict[str, Any]]] | None = None,
        raw: str = "",
        content: bytes | None = None,
        **identity: Any,
    ) -> Units:
        columns = {name: [one[at] for one in lines] for at, name in enumerate(COLUMNS)}
        told = scores if scores is not None else {"test": {"default": {raw or metric: score}}}
        scored = record(kind, metric, told, score, **identity)
        made = build_record_output(scored, columns)
        parsed, written = RECORDS.parse(made["record"].decode(), where="made"), made["examples"]
        if content is not None:
            told = parsed.examples.model_copy(update={"sha256": hashlib.sha256(content).hexdigest()})
            parsed, written = parsed.model_copy(update={"examples": told}), content
        store, slug = Store(tmp_path / secrets.token_hex(4)), f"m-{'a' * 12}"
        store.put(slug, parsed, written)
        found = ScoredRecord.load_record(store, slug, "T", scored.key, parts=parts, cache=tmp_path)
        assert found is not None
        if found.units is None:
            raise DataError(found.problem)
        return found.units

    return go


def pair_lines(count: int, seed: int, split: str = "test", subset: str = "default") -> list[Line]:
    rng = np.random.default_rng(seed)
    gold = rng.integers(0, 6, count)
    predicted = (gold + rng.normal(size=count)).round(1)
    names = [f"{subset}{number:03}" for number in rng.permutation(count)]
    told = zip(names, predicted.tolist(), gold.tolist(), strict=True)
    return [(split, subset, name, 0, repr(guess), str(truth), None) for name, guess, truth in told]


def values(lines: Sequence[Line], at: int) -> list[float]:
    return [float(one[at]) for one in lines]


def spearman(lines: Sequence[Line]) -> float:
    return float(scipy.stats.spearmanr(values(lines, 5), values(lines, 4)).statistic)


SCORES: dict[str, Callable[..., float]] = {
    "accuracy": sklearn.metrics.accuracy_score,
    "f1": partial(sklearn.metrics.f1_score, average="macro"),
}


@pytest.mark.parametrize(
    ("metric", "theirs"),
    [("cosine_spearman", scipy.stats.spearmanr), ("cosine_pearson", scipy.stats.pearsonr)],
)
def test_pairs_are_correlated(taken: Write, metric: str, theirs: Any) -> None:
    lines = pair_lines(40, 0)
    score = float(theirs(values(lines, 5), values(lines, 4)).statistic)
    found = taken(lines, "STS", metric, score)
    assert (found.unit, found.count, found.runs) == ("pairs", 40, 1)
    assert found.score_runs() == pytest.approx([score], abs=1e-12)


def test_pairs_that_are_copies_count_once(taken: Write) -> None:
    """By ids that are hashes of their texts, else by a similarity that no other score has."""
    one = pair_lines(20, 0)
    rng = np.random.default_rng(1)
    one = [(*line[:4], repr(float(line[5]) + rng.normal()), *line[5:]) for line in one]
    own = [(*line[:2], f"{line[2]}/{copy}", *line[3:]) for line in one for copy in range(3)]
    ids = [hashlib.sha256(line[2].encode()).hexdigest()[:16] for line in one]
    hashed = [
        (*line[:2], name if not copy else f"{name}-{copy + 1}", *line[3:])
        for line, name in zip(one, ids, strict=True)
        for copy in range(3)
    ]
    alike = [(*line[:4], "0.5", *line[5:]) for line in own[:30]] + own[30:]
    for lines, count in ((own, 20), (hashed, 20), (alike, 60)):
        assert taken(lines, "STS", "cosine_spearman", spearman(lines)).count == count


def test_queries_with_one_ranking_count_once(taken: Write) -> None:
    """A ranking without differing scores says nothing of a query."""
    rankings = ['[["a", 0.9], ["b", 0.1]]'] * 3 + ["[]"] * 3 + ['[["a", 0.0], ["b", 0.0]]'] * 3
    lines: list[Line] = [
        ("test", "default", f"q{at}", 0, ranking, "{}", at % 2 * 1.0) for at, ranking in enumerate(rankings)
    ]
    assert taken(lines, "Retrieval", "ndcg_at_10", 4 / 9).count == 7


def test_splits_and_subsets_count_alike_whatever_their_size(taken: Write) -> None:
    groups = [
        pair_lines(30, seed, split, subset)
        for seed, (split, subset) in enumerate((s, u) for s in ("dev", "test") for u in ("de", "en", "fr"))
    ]
    groups[0] = groups[0][:9]
    each = [spearman(group) for group in groups]
    scores: dict[str, dict[str, dict[str, Any]]] = {"dev": {}, "test": {}}
    for group, score in zip(groups, each, strict=True):
        scores[group[0][0]][group[0][1]] = {"cosine_spearman": score}
    mixed = [line for group in groups for line in group]
    order = np.random.default_rng(0).permutation(len(mixed))
    found = taken([mixed[at] for at in order], "STS", "cosine_spearman", np.mean(each), scores=scores)
    assert len(found.strata) == 6
    assert sorted(one.count for one in found.strata) == [9, 30, 30, 30, 30, 30]
    assert found.score_runs() == pytest.approx([np.mean(each)], abs=1e-12)


def test_pair_classification_is_the_average_precision_of_the_similarity(taken: Write) -> None:
    lines = [(*one[:5], str(int(float(one[5]) > 2)), None) for one in pair_lines(40, 3)]
    score = sklearn.metrics.average_precision_score(values(lines, 5), values(lines, 4))
    scores = {"test": {"default": {"similarity_ap": score, "max_ap": 0.99}}}
    found = taken(lines, "PairClassification", "max_ap", 0.99, scores=scores)
    assert (found.metric, found.unit) == ("similarity_ap", "pairs")
    assert found.score_runs() == pytest.approx([score], abs=1e-12)


def label_lines(
    count: int, probes: int, seed: int, labels: str = "abcd", more: str = ""
) -> tuple[list[Line], np.ndarray, np.ndarray]:
    """Lines with gold (texts,) and predicted (probes, texts); `more` are labels only predicted."""
    rng = np.random.default_rng(seed)
    gold = rng.choice(list(labels), count)
    wrong = rng.choice(list(labels + more), (probes, count))
    predicted = np.where(rng.random((probes, count)) < 0.6, gold, wrong)
    lines: list[Line] = [
        ("test", "default", f"t{text:03}", probe, p, g, float(p == g))
        for probe in range(probes)
        for text, (p, g) in enumerate(zip(predicted[probe].tolist(), gold.tolist(), strict=True))
    ]
    return lines, gold, predicted


@pytest.mark.parametrize("metric", ["accuracy", "f1"])
def test_the_ten_probes_of_a_text_are_one_unit(taken: Write, metric: str) -> None:
    lines, gold, predicted = label_lines(50, 10, 0, more="z")
    each = [SCORES[metric](gold, one) for one in predicted]
    order = np.random.default_rng(1).permutation(len(lines))
    found = taken([lines[at] for at in order], "Classification", metric, float(np.mean(each)))
    assert (found.unit, found.count, found.runs) == ("texts", 50, 1)
    (stratum,) = found.strata
    assert stratum.predicted.shape == (1, 10, 50)
    assert found.score_runs() == pytest.approx([np.mean(each)], abs=1e-12)


@pytest.mark.parametrize("metric", ["accuracy", "f1"])
def test_folds_of_a_cross_validation_count_alike(taken: Write, metric: str) -> None:
    lines, gold, predicted = label_lines(23, 1, 5)
    folds = [list(range(0, 8)), list(range(8, 16)), list(range(16, 23))]
    told = [(*lines[at][:3], fold, *lines[at][4:]) for fold, places in enumerate(folds) for at in places]
    each = [SCORES[metric](gold[places], predicted[0][places]) for places in folds]
    found = taken(told, "Classification", metric, float(np.mean(each)))
    assert [one.count for one in found.strata] == [8, 8, 7]
    assert found.score_runs() == pytest.approx([np.mean(each)], abs=1e-12)


def test_bitext_is_the_weighted_f1_of_sentences(taken: Write) -> None:
    rng = np.random.default_rng(0)
    names = [f"s{number:02}" for number in range(40)]
    nearest = [name if rng.random() < 0.7 else str(rng.choice(names)) for name in names]
    lines: list[Line] = [
        ("test", "de-en", name, 0, found, name, float(found == name))
        for name, found in zip(names, nearest, strict=True)
    ]
    score = sklearn.metrics.f1_score(names, nearest, average="weighted", zero_division=0)
    found = taken(lines, "BitextMining", "f1", score)
    assert found.unit == "sentences"
    assert found.score_runs() == pytest.approx([score], abs=1e-12)


def clusterings(seed: int, draws: int, texts: int = 40) -> tuple[list[Line], list[float]]:
    """Draws with replacement of texts with a group each, and their V-measures."""
    rng = np.random.default_rng(seed)
    groups = np.random.default_rng(0).integers(0, 4, texts)
    each, lines = [], list[Line]()
    for draw in range(draws):
        clusters = np.where(rng.random(texts) < 0.5, groups, rng.integers(0, 4, texts))
        drawn = np.random.default_rng([7, draw]).integers(texts, size=60)
        each.append(float(sklearn.metrics.v_measure_score(groups[drawn], clusters[drawn])))
        lines += [
            ("test", "default", f"t{at:02}", draw, str(clusters[at]), f"group {groups[at]}", None)
            for at in drawn.tolist()
        ]
    return lines, each


def test_texts_of_a_clustering_are_its_units_where_draws_share_them(taken: Write) -> None:
    """A text's influence is what the V-measures lose without it, by scikit-learn's V-measure."""
    lines, each = clusterings(1, 5)
    found = taken(lines, "Clustering", "v_measure", float(np.mean(each)))
    texts = sorted({line[2] for line in lines})
    assert (found.unit, found.count, found.runs) == ("texts", len(texts), 1)
    (stratum,) = found.strata
    assert stratum.predicted[0, 0] == pytest.approx(each)
    losses = np.zeros(len(texts))
    for draw, whole in enumerate(each):
        for at, text in enumerate(texts):
            rest = [line for line in lines if line[3] == draw and line[2] != text]
            without = sklearn.metrics.v_measure_score([one[5] for one in rest], [one[4] for one in rest])
            losses[at] += (whole - without) / len(each)
    assert stratum.influences[0] == pytest.approx(np.sqrt(1.2) * (losses - losses.mean()))


def test_texts_of_draws_of_another_seed_are_joined(taken: Write) -> None:
    few, many = (
        taken(lines, "Clustering", "v_measure", float(np.mean(each)))
        for lines, each in (clusterings(1, 3, texts=30), clusterings(2, 6))
    )
    both = Units.join_runs([few, many])
    assert (both.count, both.runs) == (many.count, 1)
    assert both.score_runs() == pytest.approx((3 * few.score_runs() + 6 * many.score_runs()) / 9)
    first, last = (both.strata[0].influences[0, at] for at in (0, -1))
    assert first == pytest.approx(
        few.strata[0].influences[0, 0] / 3 + 2 * many.strata[0].influences[0, 0] / 3
    )
    assert last == pytest.approx(2 * many.strata[0].influences[0, -1] / 3)


def test_the_same_outputs_have_the_same_digest(taken: Write) -> None:
    lines = pair_lines(40, 0)
    score = spearman(lines)
    one, other = (taken(some, "STS", "cosine_spearman", score) for some in (lines, lines[::-1]))
    assert one.outputs == other.outputs != ""
    changed = [(*lines[0][:4], str(float(lines[0][4]) + 1e-9), *lines[0][5:]), *lines[1:]]
    assert taken(changed, "STS", "cosine_spearman", score).outputs != one.outputs


def test_summaries_of_a_text_are_one_unit(taken: Write) -> None:
    rng = np.random.default_rng(0)
    each, lines = [], list[Line]()
    for text in ("a/1", "b", "c"):
        gold, predicted = rng.integers(1, 6, 12), rng.normal(size=12).round(2)
        each.append(float(scipy.stats.spearmanr(gold, predicted).statistic))
        lines += [
            ("test", "default", f"{text}/{at}", 0, repr(p), str(g), None)
            for at, (p, g) in enumerate(zip(predicted.tolist(), gold.tolist(), strict=True))
        ]
    found = taken(lines, "Summarization", "cosine_spearman", float(np.mean(each)))
    assert (found.unit, found.count) == ("texts", 3)
    assert found.strata[0].predicted[0, 0] == pytest.approx(each)


def test_queries_have_scores_of_their_own(taken: Write) -> None:
    scored = [0.0, 1.0, 0.63093, 0.5]
    lines: list[Line] = [
        ("test", "default", f"q{at}", 0, "[]", "{}", score) for at, score in enumerate(scored)
    ]
    found = taken(lines, "Retrieval", "ndcg_at_10", 0.53273)
    assert (found.unit, found.metric, found.count) == ("queries", "ndcg_at_10", 4)
    assert found.score_runs() == pytest.approx([np.mean(scored)])


def test_of_subqueries_the_whole_query_counts(taken: Write) -> None:
    scored = {"q_1_0": 0.4, "q_1_1": 0.4, "q_2_0": 1.0}
    lines: list[Line] = [("test", "default", name, 0, "[]", "{}", score) for name, score in scored.items()]
    found = taken(lines, "Retrieval", "max_over_subqueries_map_at_1000", 0.7)
    assert (found.count, found.score_runs().tolist()) == (2, [0.7])


def trained_lines(split: str, seeds: int, count: int, seed: int) -> tuple[list[Line], list[Any], list[Any]]:
    rng = np.random.default_rng(seed)
    gold = rng.integers(0, 2, count)
    predicted = [np.where(rng.random(count) < 0.75, gold, 1 - gold) for _ in range(seeds)]
    lines: list[Line] = [
        (split, "default", f"{row:03}", run, float(p), float(g), float(p == g))
        for run in range(seeds)
        for row, (p, g) in enumerate(zip(predicted[run].tolist(), gold.tolist(), strict=True))
    ]
    return lines, [gold] * seeds, predicted


def test_accuracy_and_f1_share_their_units(taken: Write) -> None:
    lines, gold, predicted = trained_lines("validation", 3, 60, 0)
    pairs = list(zip(gold, predicted, strict=True))
    accuracy = [sklearn.metrics.accuracy_score(*pair) for pair in pairs]
    f1 = [sklearn.metrics.f1_score(*pair) for pair in pairs]
    scores = {"validation": {"default": {"accuracy": np.mean(accuracy), "f1": np.mean(f1)}}}
    main = float(np.mean([*accuracy, *f1]))
    found = taken(lines, "PairClassification", "accuracy, f1", main, scores=scores, recipe={"name": "r"})
    assert (found.runs, found.count, len(found.strata)) == (3, 60, 1)
    assert found.strata[0].measures == ("accuracy", "f1")
    assert found.score_runs() == pytest.approx([(a + f) / 2 for a, f in zip(accuracy, f1, strict=True)])
    parts = (("validation", "f1"),)
    only = taken(lines, "PairClassification", "", main, scores=scores, parts=parts, recipe={"name": "r"})
    assert only.score_runs() == pytest.approx(f1)


def test_two_development_sets_count_alike(taken: Write) -> None:
    sets = {name: trained_lines(name, 2, count, count) for name, count in (("m", 40), ("mm", 20))}
    accuracy = {
        name: [sklearn.metrics.accuracy_score(g, p) for g, p in zip(gold, predicted, strict=True)]
        for name, (_, gold, predicted) in sets.items()
    }
    scores = {name: {"default": {"accuracy": float(np.mean(each))}} for name, each in accuracy.items()}
    lines = [line for one, _, _ in sets.values() for line in one]
    found = taken(lines, "X", "accuracy", mean(scores), scores=scores, recipe={"name": "r"})
    assert [(one.count, one.share, one.measures) for one in found.strata] == [
        (40, 0.5, ("mean",)),
        (20, 0.5, ("mean",)),
    ]
    assert found.score_runs() == pytest.approx(np.mean([accuracy["m"], accuracy["mm"]], axis=0))


def test_numbers_that_a_recipe_learnt_are_correlated(taken: Write) -> None:
    lines = [
        ("dev", "default", one[2], 7, float(one[4]), float(one[5]), None)
        for one in pair_lines(40, 2, split="dev")
    ]
    theirs = [scipy.stats.pearsonr, scipy.stats.spearmanr]
    each = [float(score(values(lines, 5), values(lines, 4)).statistic) for score in theirs]
    scores = {"dev": {"default": dict(zip(("pearson", "spearman"), each, strict=True))}}
    found = taken(lines, "STS", "", mean(scores), scores=scores, recipe={"name": "r"})
    assert found.score_runs() == pytest.approx([np.mean(each)])


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
@pytest.mark.parametrize("change", ["score", "null", "text", "nan", "empty", "split", "columns"])
def test_what_does_not_give_the_recorded_score_is_not_testable(taken: Write, change: str) -> None:
    lines = pair_lines(30, 0)
    score: float | None = spearman(lines)
    match change:
        case "score":
            score = (score or 0) + 1e-4
        case "null":
            score = None
        case "text":
            lines[0] = (*lines[0][:4], "yes", *lines[0][5:])
        case "nan":
            lines[0] = (*lines[0][:4], "nan", *lines[0][5:])
        case "empty":
            lines = []
        case "split":
            lines += pair_lines(30, 1, split="dev")
        case "columns":
            lines = [(*one[:4], one[4], one[4], None) for one in lines]
    with pytest.raises(DataError, match="example"):
        taken(lines, "STS", "cosine_spearman", score)


@pytest.mark.parametrize(
    ("kind", "metric"),
    [
        ("Classification", "accuracy"),
        ("Classification", "ap"),
        ("Regression", "kendalltau"),
        ("Retrieval", "mrr_at_10"),
        ("InstructionRetrieval", "p-MRR"),
        ("PairClassification", "max_f1"),
        ("A type of another program", "score"),
    ],
)
def test_rows_without_a_score_of_their_own_are_not_testable(taken: Write, kind: str, metric: str) -> None:
    lines, _, _ = label_lines(20, 2, 0)
    nothing = [(*one[:6], None) for one in lines]
    with pytest.raises(DataError):
        taken(nothing, kind, metric, 0.6)


def test_seeds_on_other_examples_are_not_held_against_one_gold(taken: Write) -> None:
    lines, gold, predicted = trained_lines("dev", 2, 30, 0)
    other = [(one[0], one[1], one[2] + "x", *one[3:]) if one[3] == 1 else one for one in lines]
    accuracy = np.mean([sklearn.metrics.accuracy_score(gold[0], one) for one in predicted])
    scores = {"dev": {"default": {"accuracy": float(accuracy)}}}
    assert taken(lines, "X", "accuracy", mean(scores), scores=scores, recipe={"name": "r"}).runs == 2
    with pytest.raises(DataError, match="different examples"):
        taken(other, "X", "accuracy", mean(scores), scores=scores, recipe={"name": "r"})


def test_a_missing_part_of_a_trained_score_is_not_testable(taken: Write) -> None:
    lines, _, _ = trained_lines("dev", 1, 30, 0)
    scores: dict[str, dict[str, dict[str, Any]]] = {"dev": {"default": {"accuracy": None}}}
    for parts in ((("dev", "accuracy"),), (("dev", "f1"),), (("test", "accuracy"),)):
        with pytest.raises(DataError):
            taken(lines, "X", "accuracy", mean(scores), scores=scores, parts=parts, recipe={"name": "r"})


@pytest.mark.parametrize("content", [b"", b"PAR1", b"no parquet at all" * 9])
def test_a_damaged_file_is_told(taken: Write, content: bytes) -> None:
    with pytest.raises(DataError, match="its per-example file cannot be read"):
        taken(pair_lines(9, 0), "STS", "cosine_spearman", 1.0, content=content)


# The same units


def test_the_order_of_rows_does_not_matter(taken: Write) -> None:
    lines, gold, predicted = label_lines(30, 3, 0)
    score = float(np.mean([SCORES["f1"](gold, one) for one in predicted]))
    one = taken(lines, "Classification", "f1", score)
    other = taken(lines[::-1], "Classification", "f1", score)
    assert one.has_same_examples(other)
    assert (one.strata[0].gold == other.strata[0].gold).all()
    assert (one.strata[0].predicted == other.strata[0].predicted).all()


@pytest.mark.parametrize("change", ["name", "fewer", "gold"])
def test_other_examples_are_not_alike(taken: Write, change: str) -> None:
    lines = pair_lines(30, 0)
    other = list(lines)
    match change:
        case "name":
            other[3] = (*other[3][:2], "someone", *other[3][3:])
        case "fewer":
            other = other[:-1]
        case "gold":
            other[3] = (*other[3][:5], str(float(other[3][5]) + 1), None)
    one, two = (taken(some, "STS", "cosine_spearman", spearman(some)) for some in (lines, other))
    assert not one.has_same_examples(two)
    assert one.has_same_examples(one)
    with pytest.raises(ValueError, match="different units"):
        Units.join_runs([one, two])


def test_labels_mean_the_same_in_every_file(taken: Write) -> None:
    """A label that only one model predicts does not shift the others, alone or among its runs."""
    lines, gold, predicted = label_lines(40, 1, 0, labels="bcd")
    more = [(*one[:4], "a", one[5], 0.0) if at == 7 else one for at, one in enumerate(lines)]
    changed = np.where(np.arange(40) == 7, "a", predicted[0])
    scores = [SCORES["f1"](gold, one) for one in (predicted[0], changed)]
    one, two = (
        taken(some, "Classification", "f1", float(score))
        for some, score in zip((lines, more), scores, strict=True)
    )
    assert one.has_same_examples(two)
    assert np.flatnonzero(one.strata[0].predicted[0, 0] != two.strata[0].predicted[0, 0]).tolist() == [7]
    assert Units.join_runs([one, two]).score_runs() == pytest.approx(scores)


def test_draws_of_another_seed_are_further_units(taken: Write) -> None:
    def drawn(seed: int, model: int) -> Units:
        rng, own = np.random.default_rng(seed), np.random.default_rng([seed, model])
        lines, each = list[Line](), []
        for draw in range(4):
            gold, cluster = rng.integers(0, 3, 20), own.integers(0, 3, 20)
            each.append(sklearn.metrics.v_measure_score(gold, cluster))
            names = [f"s{seed}-{draw}-{at:02}" for at in range(20)]
            told = zip(names, cluster.tolist(), gold.tolist(), strict=True)
            lines += [("test", "default", name, draw, str(c), str(g), None) for name, c, g in told]
        return taken(lines, "Clustering", "v_measure", float(np.mean(each)))

    one, two = drawn(1, model=0), drawn(2, model=0)
    both = Units.join_runs([one, two])
    assert (both.count, both.runs) == (8, 1)
    assert both.score_runs() == pytest.approx([(one.score_runs()[0] + two.score_runs()[0]) / 2])
    assert both.has_same_examples(Units.join_runs([drawn(1, model=5), drawn(2, model=5)]))
    assert not both.has_same_examples(Units.join_runs([drawn(1, model=5), drawn(3, model=5)]))
    repeats = Units.join_runs([drawn(seed, model) for model in (0, 1, 2) for seed in (1, 2)])
    assert (repeats.count, repeats.runs) == (8, 3)
    assert repeats.score_runs()[0] == pytest.approx(both.score_runs()[0])
    with pytest.raises(ValueError, match="different units"):
        Units.join_runs([one, two, drawn(1, model=1)])


def test_documents_of_queries_are_not_read(taken: Write) -> None:
    """What a search found is kept for people; scores come from the column of that name."""
    told = json.dumps([["d", 1.0]])
    lines: list[Line] = [("test", "default", f"q{at}", 0, told, told, 0.5) for at in range(3)]
    assert taken(lines, "Reranking", "map_at_1000", 0.5).score_runs().tolist() == [0.5]
