"""Records as rows of a suite: one treatment a row."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fakes import encoding, lineage, record, task
from harness.core.encoding import Encoding
from harness.core.types import SIDES, Column, Data, Suite, Task
from harness.results.results import build_suite_views, group_records
from harness.results.revisions import find_data_revision
from harness.results.scores import Aggregates, compute_metric_scores
from harness.storage.record import RECORDS, Record

STS = replace(task("A"), roles=("",))
SEARCH = replace(task("B"), type="Retrieval", roles=SIDES)
SUITE = Suite(
    name="s",
    title="s",
    columns=tuple(Column(name=t.name, type=t.type, tasks=(t,)) for t in (STS, SEARCH)),
)
ASKED = encoding(prompts=(("query", "find: "),))


def on_disk(*records: Record) -> list[Record]:
    return [RECORDS.parse(one.to_json(), where="here") for one in records]


def scores(*records: Record) -> list[tuple[str, dict[str, float]]]:
    return [(view.treatment.text, dict(view.scores)) for view in build_suite_views(on_disk(*records), SUITE)]


def test_one_treatment_is_one_row_of_scores() -> None:
    assert scores(record(STS, 0.5), record(SEARCH, 0.25)) == [
        ("mean pooling, normalized, 128 tokens, float32, cosine", {"A": 0.5, "B": 0.25})
    ]


@pytest.mark.parametrize(
    "other", [{"how": encoding(dtype="bfloat16")}, {"how": encoding(max_length=64)}, {"seed": 7}]
)
def test_settings_are_never_mixed_in_one_mean(other: dict[str, Encoding]) -> None:
    """Float32 on both tasks and another setting on one: two rows, the fuller one first."""
    found = scores(record(STS, 0.9, **other), record(STS, 0.5), record(SEARCH, 0.25))  # type: ignore[arg-type]
    assert [row for _, row in found] == [{"A": 0.5, "B": 0.25}, {"A": 0.9}]
    assert found[0][0] != found[1][0]


def test_a_prompt_leaves_the_tasks_it_does_not_touch_in_both() -> None:
    """The STS score, made once without the prompt, is what a run with it gives as well."""
    found = scores(record(STS, 0.5), record(SEARCH, 0.25), record(SEARCH, 0.75, how=ASKED))
    assert [row for _, row in found] == [{"A": 0.5, "B": 0.25}, {"A": 0.5, "B": 0.75}]
    assert found[1][0].endswith("query prompt 'find: '")


def test_a_treatment_whose_records_another_has_is_left_out() -> None:
    """A run with a query prompt on the STS task alone adds nothing to what is known."""
    assert len(scores(record(STS, 0.5, how=ASKED), record(SEARCH, 0.25))) == 1


def test_documents_put_together_in_two_ways_are_never_in_one_mean() -> None:
    """A suite's own way, here title and text, needs no words; its tasks without documents are in both."""
    alone = replace(SEARCH, documents="text")
    found = scores(record(STS, 0.5), record(SEARCH, 0.25), record(alone, 0.75))
    assert [row for _, row in found] == [{"A": 0.5, "B": 0.25}, {"A": 0.5, "B": 0.75}]
    assert [text.endswith("documents without titles") for text, _ in found] == [False, True]
    of_its_own = replace(SUITE, columns=(Column(name="B", type="Retrieval", tasks=(alone,)),))
    (view,) = build_suite_views(on_disk(record(SEARCH, 0.25), record(alone, 0.75)), of_its_own)
    assert view.scores == {"B": 0.75}


def test_other_splits_are_no_part_of_the_suite() -> None:
    narrowed: Task = replace(STS, splits=("dev",))
    assert scores(record(narrowed, 0.5)) == []


def test_a_part_is_filled_from_any_record_that_has_it() -> None:
    """A suite of two parts of a task: from the part alone, from the whole, and the whole before a part."""
    scored = {"dev": {"default": {"main_score": 0.5}}, "test": {"default": {"main_score": 0.25}}}
    dev, test = (replace(SEARCH, splits=(split,)) for split in scored)
    parts = {"B (dev)": dev, "B (test)": test}
    suite = replace(
        SUITE, columns=tuple(Column(name=name, type=t.type, tasks=(t,)) for name, t in parts.items())
    )
    whole = record(suite.tasks[0], 0.375).model_copy(update={"scores": scored})
    first, second = (
        record(task, 0.75).model_copy(update={"scores": {split: {"default": {"main_score": 0.75}}}})
        for split, task in zip(scored, (dev, test), strict=True)
    )

    def shown(of: Suite, *records: Record) -> list[dict[str, float]]:
        return [
            Aggregates.aggregate_scores(of, view.scores).columns
            for view in build_suite_views(on_disk(*records), of)
        ]  # type: ignore[misc]

    assert shown(suite, second) == [{"B (dev)": None, "B (test)": 0.75}]
    assert shown(suite, first, second) == [{"B (dev)": 0.75, "B (test)": 0.75}]
    assert shown(suite, whole, second) == [{"B (dev)": 0.5, "B (test)": 0.25}]
    (view,) = build_suite_views(on_disk(second), suite)
    assert compute_metric_scores(suite, view.records, "main_score") == {"B (test)": 0.75}
    narrowed = replace(suite, columns=(replace(suite.columns[0], tasks=()), suite.columns[1]))
    assert shown(narrowed, whole) == [{"B (dev)": None, "B (test)": 0.25}]
    other = record(replace(test, documents="text"), 0.75)
    assert [len(one) for one in shown(suite, second, other)] == [2, 2], "one condition a row"


def test_local_data_must_be_what_the_suite_has_now() -> None:
    edited = replace(STS, data=replace(STS.data, content="d" * 8))
    assert [row for _, row in scores(record(edited, 0.75), record(SEARCH, 0.25))] == [{"B": 0.25}]


def test_of_two_contents_of_a_hub_data_set_the_last_made_counts_and_is_named() -> None:
    pinned = replace(STS, data=Data(path="org/name", revision="r"))
    folder = replace(STS, data=Data(path="org/name", content="c"))
    suite = replace(SUITE, columns=(Column(name="A", type="STS", tasks=(pinned,)),))
    old = record(pinned, 0.5, written="2026-01-01T00:00:00+00:00")
    new = record(folder, 0.75, written="2026-02-01T00:00:00+00:00")
    (view,) = build_suite_views(on_disk(new, old), suite)
    assert (view.scores, view.unproven) == ({"A": 0.75}, ("A",))
    (view,) = build_suite_views(on_disk(old), suite)
    assert (view.scores, view.unproven) == ({"A": 0.5}, ())


def test_data_that_is_proven_to_be_the_revision_counts_as_it() -> None:
    # Two lines of harness/results/revisions.csv: a folder's content, and an earlier revision.
    content = "sha256:0bfd61d3ae5f5f3088fb6117f66c3fcb3aae77063d72ae59739fac52fb978929"
    earlier = "329d529d875a00c47ec71954a1a96ae167584770"
    data = Data(path="mteb/poem_sentiment", revision="84af4753ebb04ca836fb54ce89a339839b03b748")
    task = replace(STS, name="PoemSentimentClassification", data=data)
    suite = replace(SUITE, columns=(Column(name=task.name, type="STS", tasks=(task,)),))
    for copy, proven in (
        (Data(path=data.path, content=content), True),
        (Data(path=data.path, revision=earlier), True),
        (Data(path=data.path, content="sha256:1"), False),
        (Data(path=data.path, revision="b" * 40), False),
    ):
        one = record(replace(task, data=copy), 0.5)
        assert (find_data_revision(one) == data.revision) == proven
        if copy.content:
            (view,) = build_suite_views(on_disk(one), suite)
            assert (view.unproven == ()) == proven


def test_weights_of_one_key_are_never_mixed_in_one_mean() -> None:
    """A model made again under its key: the newest weights first; other models have no such groups."""

    def of(one: Record, weights: str, day: int) -> Record:
        facts = {"written": f"2026-01-0{day}", "prompts_asked": {"named": {}, "default": None}}
        about = one.model.model_copy(update={"weights": weights})
        return one.model_copy(update={"model": about, "provenance": facts, "lineage": lineage()})

    first = [of(record(STS, 0.5), "1" * 64, 1), of(record(SEARCH, 0.25), "1" * 64, 2)]
    second = of(record(SEARCH, 0.75), "2" * 64, 3)
    views = build_suite_views(on_disk(*first, second), SUITE)
    assert [(dict(view.scores), view.former) for view in views] == [
        ({"B": 0.75}, ""),
        ({"A": 0.5, "B": 0.25}, "1" * 64),
    ]
    assert [view.text.endswith(", former weights 11111111") for view in views] == [False, True]
    failed = second.model_copy(update={"model": second.model.model_copy(update={"weights": ""})})
    assert group_records([*first, second, failed])["2" * 64] == (second, failed)
    plain = [one.model_copy(update={"lineage": None}) for one in (*first, second)]
    assert len({view.former for view in build_suite_views(on_disk(*plain), SUITE)}) == 1
