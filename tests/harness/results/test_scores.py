"""What scores of tasks add up to: means over a suite, and conventions over trained results."""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet
from rich.console import Console

import fakes
from fakes import artifact
from fakes import record as fake_record
from fakes import task as fake_task
from harness.core.keys import Lineage, ParentPart, SweepPart, build_task_identity, digest
from harness.core.types import Column, Convention, Data, LabelledData, Size, Suite, SuiteOptions, Task
from harness.driver.report.suite import format_mean_lines, mean_text, serialize_aggregates
from harness.driver.report.trained import print_trained_result, serialize_trained_result
from harness.jobs.jobs import build_model_part
from harness.plan import catalog
from harness.results.bootstrap import Interval
from harness.results.results import build_suite_views
from harness.results.scores import (
    LARGE,
    LARGE_CORRELATION,
    Aggregates,
    NamedModel,
    Spread,
    TrainedResult,
    Untouched,
    distinguish_names,
    list_exclusions,
)
from harness.storage.record import Record, build_record_output, build_task_part

# Means over a suite


def column(name: str, kind: str, *tasks: str) -> Column:
    made = tuple(replace(fake_task(t), type=kind) for t in tasks or (name,))
    return Column(name=name, type=kind, tasks=made)


FOUR_COLUMNS = Suite(
    name="s",
    title="s",
    columns=(
        column("A", "STS"),
        column("B", "STS"),
        column("C", "Retrieval", "C1", "C2"),
        column("D", "Retrieval"),
    ),
)


def test_both_means_by_hand() -> None:
    """Tasks: A .1, B .2, C (.6 + .8) / 2 = .7 counted once, D .5; types: STS .15, Retrieval .6."""
    found = Aggregates.aggregate_scores(FOUR_COLUMNS, {"A": 0.1, "B": 0.2, "C1": 0.6, "C2": 0.8, "D": 0.5})
    assert found.columns["C"] == pytest.approx(0.7)
    assert found.over_tasks.value == pytest.approx((0.1 + 0.2 + 0.7 + 0.5) / 4)
    assert found.over_types.value == pytest.approx((0.15 + 0.6) / 2)
    assert (found.over_tasks.there, found.over_tasks.wanted, found.over_tasks.complete) == (4, 4, True)


def test_a_column_lacking_a_member_is_not_there_and_the_means_say_so() -> None:
    found = Aggregates.aggregate_scores(FOUR_COLUMNS, {"A": 0.1, "B": 0.2, "C1": 0.6, "D": 0.5})
    assert found.columns["C"] is None
    assert mean_text(found.over_tasks) == "mean over tasks 26.67 (3 of 4 scored)"
    assert mean_text(found.over_types) == "mean over types 15.00 (1 of 2 scored)"
    assert not found.over_types.complete


def test_nothing_there() -> None:
    found = Aggregates.aggregate_scores(FOUR_COLUMNS, {})
    assert mean_text(found.over_tasks) == "mean over tasks – (0 of 4 scored)"
    assert found.over_types.value is None


def test_a_task_of_two_columns_is_in_the_plan_once() -> None:
    twice = Suite(name="s", title="s", columns=(column("A", "STS"), column("X", "STS", "A", "B")))
    assert [t.name for t in twice.tasks] == ["A", "B"]


def test_the_means_of_a_published_row() -> None:
    """BERT-base in NeoBERT's Table 4, MTEB(eng, v1): its printed type means give 48.19 and 49.61.

    Each task of a type is given the type's mean here, which leaves both means as they are.
    """
    sizes = {
        "Classification": 12,
        "Clustering": 11,
        "PairClassification": 3,
        "Reranking": 4,
        "Retrieval": 15,
        "STS": 10,
        "Summarization": 1,
    }
    printed = (60.6, 37.0, 71.5, 48.9, 28.3, 69.9, 31.1)
    columns = [column(f"{kind}{n}", kind) for kind, size in sizes.items() for n in range(size)]
    means = dict(zip(sizes, printed, strict=True))
    found = Aggregates.aggregate_scores(
        Suite(name="v1", title="v1", columns=tuple(columns)), {c.name: means[c.type] for c in columns}
    )
    assert found.over_tasks.value == pytest.approx(48.19, abs=0.005)
    assert found.over_types.value == pytest.approx(49.61, abs=0.005)


def swept_by(suite: str, name: str) -> Lineage:
    """What a sweep chose by a column of a suite."""
    (found,) = [one for one in catalog.open_suite(suite, SuiteOptions()).columns if one.name == name]
    identity = build_task_identity(artifact(Path("m"), key="m" * 64), found.tasks[0])
    tasks = {name: {key: value for key, value in identity.items() if key != "artifact"}}
    sweep = SweepPart(setting="scale", values=(1.0, 2.0), tasks=tasks)
    return Lineage(recipe="dpr", settings={}, parents=(), data=(), seed=1, sweep=sweep)


@pytest.mark.parametrize(
    ("suite", "name", "chose"),
    [
        ("codesearchnet", "go", {"codesearchnet": "go", "mteb:COIRCodeSearchNetRetrieval": "COIR"}),
        ("codesearchnet:text", "go", {"codesearchnet:text": "go"}),
        ("mldr", "MLDR (dev)", {"mteb:MultiLongDocRetrieval": "MultiLongDocRetrieval"}),
        ("mldr", "MLDR (test)", {"mldr": "MLDR (test)", "mteb:MultiLongDocRetrieval": "MultiLong"}),
        ("nanobeir", "NanoNQRetrieval", {"nanobeir": "NanoNQRetrieval"}),
    ],
)
def test_a_part_of_a_task_that_chose_is_touched_where_it_is_shown(
    suite: str, name: str, chose: Mapping[str, str]
) -> None:
    """In its own suite and in any that holds the task; not where other splits or subsets of it are shown."""
    made = swept_by(suite, name)
    parent = ParentPart(
        name="p", artifact="p" * 64, selected_on=made.all_selected_on, selections=made.all_selections
    )
    child = made.model_copy(update={"sweep": None, "parents": (parent,)})
    again = Lineage.model_validate_json(child.model_dump_json())
    for typed in ("codesearchnet", "codesearchnet:text", "mldr", "nanobeir", *chose):
        opened = catalog.open_suite(typed, SuiteOptions())
        for one in (made, child, again):
            found = Untouched.from_suite(opened, [one])
            selected = found.selected if found else ()
            assert len(selected) == (typed in chose), (typed, selected)
            assert all(column.startswith(chose[typed]) for column in selected), (typed, selected)
    assert child.all_selected_on == (name,)


def sized(name: str, examples: int, metric: str = "ndcg_at_10", kind: str = "Retrieval") -> Column:
    one = column(name, kind)
    task = replace(one.tasks[0], metric=metric, size=Size(examples=examples))
    return replace(one, tasks=(task,))


def test_a_large_task_is_within_five_points_for_every_model() -> None:
    """The widest interval of a share is at a half, that of a correlation at none (Fisher: 1 / sqrt(n))."""
    for examples, spread in ((LARGE, 0.5), (LARGE_CORRELATION, 1.0)):
        assert 1.96 * spread / np.sqrt(examples) <= 0.05 < 1.96 * spread / np.sqrt(examples - 1)


def test_small_tasks_of_own_data_are_shown_and_not_averaged() -> None:
    columns = (
        *(sized("Small", 29), sized("Large", 385), sized("Other", 5000, kind="Classification")),
        *(sized("Few pairs", 1536, "cosine_spearman", "STS"), sized("Pairs", 1537, "cosine_spearman", "STS")),
    )
    own = Suite(name="local:x", title="x", columns=columns, averages="large")
    scores = {"Small": 0.9, "Large": 0.5, "Other": 0.7, "Few pairs": 0.1, "Pairs": 0.3}
    found = Aggregates.aggregate_scores(own, scores)
    assert found.columns == scores
    assert found.shown_only == {
        "Small": "29 examples, fewer than 385",
        "Few pairs": "1,536 examples, fewer than 1,537",
    }
    assert found.spread is None
    assert mean_text(found.over_tasks) == "mean over tasks 50.00 (3 of 3)"
    assert set(found.by_type) == {"Retrieval", "Classification", "STS"}
    assert found.by_type["Retrieval"].value == 0.5
    first, second, *_ = format_mean_lines(own, found)
    assert "50.00" in first
    assert "Small, 29 examples, fewer than 385; Few pairs" in second
    known = Aggregates.aggregate_scores(own, scores, {"Small": Spread(examples=29, half=0.1234)})
    assert "Small, 29 examples (± 12.3), fewer than 385; Few pairs" in format_mean_lines(own, known)[1]
    assert serialize_aggregates(own, found)["shown_only"] == dict(found.shown_only)
    benchmark = Aggregates.aggregate_scores(replace(own, averages="all"), scores)
    assert (benchmark.over_tasks.wanted, benchmark.shown_only) == (5, {})


def test_small_tasks_of_own_data_have_a_mean_where_nothing_larger_was_asked_for() -> None:
    small = (sized("Small", 29), sized("Few pairs", 150, "cosine_spearman", "STS"))
    own = Suite(name="local:x", title="x", columns=small, averages="large")
    spreads = {"Small": Spread(examples=29, half=0.3), "Few pairs": Spread(examples=150, half=0.4)}
    found = Aggregates.aggregate_scores(own, {"Small": 0.9, "Few pairs": 0.1}, spreads)
    assert (found.over_tasks.value, found.over_tasks.there, found.shown_only) == (0.5, 2, {})
    assert found.spread == Spread(examples=179, half=0.25)  # sqrt(0.3² + 0.4²) / 2
    first, second = format_mean_lines(own, found)
    assert first == "mean over tasks 50.00 (2 of 2), mean over types 50.00 (2 of 2)"
    assert second.startswith("179 examples (± 25.0): ")
    told = serialize_aggregates(own, found)["small"]
    assert told["mean"] == {"examples": 179, "half_width": 0.25}
    assert told["columns"]["Small"] == {"examples": 29, "half_width": 0.3}
    # A score without an interval leaves the mean without one.
    part = Aggregates.aggregate_scores(own, {"Small": 0.9, "Few pairs": 0.1}, {"Small": spreads["Small"]})
    assert part.spread == Spread(examples=179)
    # One of them asked for by name beside a large one that was not; and beside one that was.
    large = sized("Large", 385)
    asked = replace(own, columns=(small[0], replace(large, tasks=())), requested=("Small",))
    lines = format_mean_lines(asked, Aggregates.aggregate_scores(asked, {"Small": 0.9}, spreads))
    assert lines[:2] == [
        "mean over the task asked for 90.00 (1 of 1)",
        "29 examples (± 30.0): too few for a mean with larger tasks (docs/local-data.md: Means)",
    ]
    both = replace(own, columns=(small[0], large), requested=("Small", "Large"))
    found = Aggregates.aggregate_scores(both, {"Small": 0.9, "Large": 0.5}, spreads)
    assert format_mean_lines(both, found)[0].endswith("50.00 (1 of 1)")


def test_small_tasks_are_in_no_mean_where_every_large_one_chose_the_model() -> None:
    own = Suite(
        name="local:x", title="x", columns=(sized("Small", 29), sized("Large", 385)), averages="large"
    )
    model = Lineage(recipe="r", settings={}, parents=(), data=(), seed=1, selected_on=("Large",))
    found = Untouched.from_suite(own, [model])
    assert found is not None
    assert (found.count, list_exclusions(found.suite).keys()) == (0, {"Small", "Large"})


def test_tasks_of_both_kinds_have_a_mean_each() -> None:
    trained = replace(ONE, size=Size(examples=5000))
    columns = (Column(name="One", type="x", tasks=(trained,)), sized("Search", 5000))
    mixed = Suite(name="local:x", title="x", columns=columns, averages="large")
    found = Aggregates.aggregate_scores(mixed, {"One": 0.9, "Search": 0.5})
    assert (found.over_tasks.value, found.shown_only) == (0.5, {"One": "a recipe trains for it"})
    part = TrainedResult.select_label_columns(mixed)
    assert part is not None
    result = TrainedResult.build_trained_result(
        part, {"One": record(ONE, {"dev": {"accuracy": 0.5, "f1": 0.7}})}, None, lambda _record: None
    )
    assert (result.average.there, result.average.wanted, result.shown_only) == (1, 1, {})
    small = replace(part, columns=(replace(columns[0], tasks=(replace(trained, size=Size(examples=24)),)),))
    alone = TrainedResult.build_trained_result(
        small, {"One": record(ONE, {"dev": {"accuracy": 0.5, "f1": 0.7}})}, None, lambda _record: None
    )
    assert (alone.average.wanted, alone.shown_only, alone.spread) == (1, {}, Spread(examples=24))
    assert "24 examples: too few for a mean with larger tasks" in printed(alone)


# Trained results


SEEDS = (7, 8, 9)


@dataclass(frozen=True)
class Labels:
    metrics: tuple[str, ...] = ("accuracy", "f1")
    like: str = "RTE"
    from_mnli: bool = False
    scoring: str = "labels 1"

    def load(self, task: Task, *, data: Path | None) -> LabelledData:
        raise NotImplementedError


def labelled(name: str, *splits: str) -> Task:
    plain = replace(fake_task(name), data=Data(path="org/set", revision="r1"))
    return replace(plain, source=Labels(), output="label", splits=splits or ("dev",), roles=("",))


ONE, TWO = labelled("One"), labelled("Two", "m", "mm")
SUITE = Suite(
    name="s",
    title="S",
    columns=tuple(Column(name=t.name, type="x", tasks=(t,)) for t in (ONE, TWO)),
    conventions={
        "both": Convention(
            name="both",
            says="the mean of both",
            parts={
                "One": (("dev", "accuracy"), ("dev", "f1")),
                "Two": (("m", "accuracy"), ("mm", "accuracy")),
            },
        ),
        "first": Convention(
            name="first",
            says="the first",
            parts={"One": (("dev", "accuracy"),), "Two": (("m", "accuracy"),)},
        ),
    },
)


def drawn(splits: tuple[str, ...], right: float, examples: int = 200) -> dict[str, list[Any]]:
    rng = np.random.default_rng(len(splits))
    columns: dict[str, list[Any]] = {
        name: [] for name in ("split", "subset", "example_id", "replicate", "prediction", "gold", "metric")
    }
    for split in splits:
        gold = rng.integers(2, size=examples)
        for seed in SEEDS:
            said = np.where(rng.random(examples) < right, gold, 1 - gold)
            columns["split"] += [split] * examples
            columns["subset"] += ["default"] * examples
            columns["example_id"] += [str(at) for at in range(examples)]
            columns["replicate"] += [seed] * examples
            columns["prediction"] += said.astype(float).tolist()
            columns["gold"] += gold.astype(float).tolist()
            columns["metric"] += (said == gold).astype(float).tolist()
    return columns


def record(
    task: Task,
    scores: Mapping[str, Mapping[str, float]],
    *,
    start: object = None,
    recipe: str = "r",
    protocol: str = "p",
) -> Record:
    model = artifact(Path("tiny"))
    identity = {
        **build_task_identity(model, task),
        "recipe": recipe,
        "protocol": protocol,
        "kind": "fresh" if recipe != "m" else "maximum",
        "view": "both",
        "final_seeds": [],
        "fresh_seeds": [*SEEDS],
        **({"start": start} if start else {}),
    }
    cells = [
        {"metrics": [[split, name, value + more] for split, m in scores.items() for name, value in m.items()]}
        for more in (0.0, 0.05)
    ]
    return Record(
        key=digest(identity),
        status="done",
        model=build_model_part(model, {}),
        task=build_task_part(task),
        identity=identity,
        main_score=0.5,
        scores={split: {"default": dict(metrics)} for split, metrics in scores.items()},
        training={
            "view": "both",
            "cells": [*cells, {"metrics": [], "diverged": True}],
            "diverged": 1,
            "seeds": {"kind": "fresh", "scores": [0.5, 0.6, 0.7]},
        },
    )


@pytest.fixture
def files(tmp_path: Path) -> Mapping[str, Path]:
    made = {}
    for name, splits, right in (("One", ("dev",), 0.8), ("Two", ("m", "mm"), 0.7)):
        made[name] = tmp_path / f"{name}.parquet"
        output = build_record_output(fake_record(fake_task(name), right), drawn(splits, right))
        made[name].write_bytes(output["examples"])
    return made


def accuracy(path: Path, split: str) -> float:
    lines = [line for line in parquet.read_table(path).to_pylist() if line["split"] == split]
    return float(np.mean([line["prediction"] == line["gold"] for line in lines]))


def test_numbers_intervals_and_both_of_the_mean(files: Mapping[str, Path]) -> None:
    scores = {
        "One": {"dev": {"accuracy": accuracy(files["One"], "dev"), "f1": 0.9}},
        "Two": {split: {"accuracy": accuracy(files["Two"], split)} for split in ("m", "mm")},
    }
    records = {task.name: record(task, scores[task.name]) for task in (ONE, TWO)}
    found = TrainedResult.build_trained_result(
        SUITE, records, SUITE.conventions["first"], lambda r: files[r.task.name]
    )
    assert [row.number for row in found.rows] == [
        scores["One"]["dev"]["accuracy"],
        scores["Two"]["m"]["accuracy"],
    ]
    for row in found.rows:
        assert row.interval is not None
        assert row.one_seed is not None
        assert row.number is not None
        width = row.interval.high - row.interval.low
        binomial = 2 * 1.96 * np.sqrt(row.number * (1 - row.number) / 200)
        assert 0.5 * binomial < width < 1.2 * binomial
        assert row.interval.low < row.number < row.interval.high
        assert row.best_run == pytest.approx(row.number + 0.05)
    assert found.interval is not None
    rows = [row.interval for row in found.rows if row.interval is not None]
    assert found.mean_of_bounds == Interval.mean_of_bounds(rows)
    wide = found.mean_of_bounds
    assert wide is not None
    assert (found.interval.high - found.interval.low) < 0.9 * (wide.high - wide.low)
    assert (
        TrainedResult.build_trained_result(
            SUITE, records, SUITE.conventions["first"], lambda r: files[r.task.name]
        )
        == found
    )


def test_what_a_convention_needs_and_is_not_there(files: Mapping[str, Path]) -> None:
    records = {"Two": record(TWO, {"m": {"accuracy": 0.7}})}
    found = TrainedResult.build_trained_result(
        SUITE, records, SUITE.conventions["both"], lambda r: files[r.task.name]
    )
    assert [row.number for row in found.rows] == [None, None]
    assert (found.average.value, found.average.there, found.average.wanted) == (None, 0, 2)
    assert "Two: not all is there that the view both is made of" in printed(found)
    other = TrainedResult.build_trained_result(
        SUITE, records, SUITE.conventions["first"], lambda r: files[r.task.name]
    )
    assert (other.average.there, other.average.complete) == (1, False)
    assert "incomplete: not to be ranked" in printed(other)


def test_without_predictions_there_is_no_interval() -> None:
    records = {"One": record(ONE, {"dev": {"accuracy": 0.7, "f1": 0.5}})}
    found = TrainedResult.build_trained_result(
        SUITE, records, SUITE.conventions["both"], lambda _record: None
    )
    assert found.rows[0].number == pytest.approx(0.6)
    assert found.rows[0].interval is None
    assert found.interval is None
    assert serialize_trained_result(found)["tasks"][0]["interval"] is None


def test_runs_that_diverged_are_told(files: Mapping[str, Path]) -> None:
    records = {"One": record(ONE, {"dev": {"accuracy": 0.8, "f1": 0.9}})}
    found = TrainedResult.build_trained_result(
        SUITE, records, SUITE.conventions["both"], lambda r: files[r.task.name]
    )
    assert "One: 1 of 3 runs diverged" in printed(found)
    (row, _) = serialize_trained_result(found)["tasks"]
    assert (row["diverged"], row["runs"], row["seeds"]) == (1, 3, "fresh")
    assert len(row["scores"]) == 3


def printed(found: TrainedResult) -> str:
    console = Console(record=True, width=200, file=io.StringIO())
    print_trained_result(found, "tiny on S", console)
    return console.export_text()


def test_tasks_of_one_recipe_stand_together() -> None:
    """What starts from elsewhere and what never does are one treatment; another start is another."""
    one, two = record(ONE, {"dev": {}}), record(TWO, {"m": {}}, start={"from": "selected", "run": "k"})
    other = record(TWO, {"m": {}}, start={"from": "backbone"})
    edited = record(TWO, {"m": {}}, start={"from": "selected", "run": "k"}, protocol="edited")
    best = record(ONE, {"dev": {}}, recipe="m")
    views = build_suite_views([one, two, other, record(ONE, {"dev": {}}, recipe="q"), edited, best], SUITE)
    assert [(view.treatment.text, sorted(view.records)) for view in views] == [
        ("r, fresh seeds 7–9", ["One", "Two"]),
        ("r, fresh seeds 7–9, no transfer", ["One", "Two"]),
        ("m, the grid's maximum", ["One"]),
        ("q, fresh seeds 7–9", ["One"]),
        ("r, fresh seeds 7–9", ["Two"]),
    ]


def final(key: str, folder: str = "", **fields: str | bool) -> NamedModel:
    return NamedModel(name="final", key=key * 9, folder=folder, **fields)  # type: ignore[arg-type]


def names(*models: NamedModel) -> list[str]:
    labels = distinguish_names(models)
    return [labels[one.key, one.name] for one in models]


def test_names_by_hand() -> None:
    assert names(final("a", "x/final"), final("a", "y/final")) == ["final", "final"]  # copies of one model
    assert names(final("a", "x/final"), final("b", "y/final")) == ["x/final", "y/final"]
    # A folder that was trained again, a typed name, a record of before, and a model of the catalog.
    assert names(final("a", "x/final"), final("b", "x/final")) == ["final (aaaaaaaa)", "final (bbbbbbbb)"]
    assert names(final("a", "x/1"), final("b", "y/final")) == ["final (aaaaaaaa)", "y/final"]
    assert names(final("a"), final("b", "y/final")) == ["final (aaaaaaaa)", "y/final"]
    assert names(final("a", shared=False), final("b", "y/final")) == ["final", "y/final"]
    revisions = [final("a", shared=False, revision="1" * 40), final("b", shared=False, revision="2" * 40)]
    assert names(*revisions) == ["final@11111111", "final@22222222"]
    # A path that is the name of another model tells nothing.
    hub = NamedModel(name="x/final", key="c" * 9, shared=False)
    assert names(final("a", "r/x/final"), final("b", "y/final"), hub) == ["r/x/final", "y/final", "x/final"]


parts = st.sampled_from("ab")
models = st.builds(
    lambda key, place, shared: NamedModel(name=place[-1], key=key, folder="/".join(place), shared=shared),
    st.text("01", min_size=9, max_size=9),
    st.lists(parts, min_size=1, max_size=3),
    st.booleans(),
)


@given(st.lists(models, max_size=12, unique_by=lambda one: one.key))
def test_no_two_models_have_one_name_and_no_other_is_renamed(found: list[NamedModel]) -> None:
    labels = names(*found)
    assert len({*labels}) == len(labels)
    own = [one.name for one in found]
    for model, label in zip(found, labels, strict=True):
        assert label == model.name or own.count(model.name) > 1
        assert label.startswith(f"{model.name} (") or f"/{model.folder}".endswith(f"/{label}")


def test_a_record_has_the_end_of_a_folders_path_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "exp1" / "final"
    folder.mkdir(parents=True)
    made = replace(fakes.artifact(folder, name="final"), source=str(folder))
    tail = f"{tmp_path.name}/exp1/final"
    assert build_model_part(made, {}).folder == tail
    assert str(tmp_path) not in build_model_part(made, {}).model_dump_json()
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert build_model_part(made, {}).folder == "exp1/final"
    # A name of another kind is no part of a path, and where a request tells names apart, records do not.
    assert build_model_part(replace(made, name="best"), {}).folder is None
    told_apart = build_model_part(replace(made, name="exp1/final", recorded="final"), {})
    assert (told_apart.name, told_apart.folder) == ("final", "exp1/final")
    # A model of the hub stays one beside a folder that is spelt alike.
    hub = build_model_part(replace(made, source="exp1/final", revision="0" * 40), {})
    assert (hub.source, hub.folder) == ("exp1/final", None)
