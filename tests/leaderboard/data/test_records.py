"""Records of results folders as entries, beside what the harness itself says of the same records."""

from __future__ import annotations

import json
import logging
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.core.documents import append_digest
from harness.core.keys import build_evaluation_identity, digest
from harness.results.results import build_suite_views, extract_condition
from harness.results.scores import TrainedResult
from harness.search.bm25 import resolve_bm25
from harness.storage.record import ErrorPart, ExamplesPart, Record, build_record_output
from harness.storage.store import Store
from leaderboard.data import records as measured
from leaderboard.data.entries import EntryOutcome, NewEntry
from leaderboard.data.suites import build_task_scope
from site_data import made_of, measured_model, names, put, put_model, scored, suites, task, trained
from stored_records import iter_records

M = measured_model("m")
FAILED = ErrorPart(kind="E", message="m")
NANO = names("nanobeir")
GLUE = suites()["glue"].suite
READER = measured.RecordReader.for_suites(list(suites().values()))


def measured_entries(*roots: Path) -> list[NewEntry]:
    return [e for unit in measured.iter_record_units(roots, READER) for e in unit.read()]


def only(*roots: Path) -> NewEntry:
    (found,) = measured_entries(*roots)
    return found


def changed(record: Record, *, written: str = "", **identity: Any) -> Record:
    """A record with another identity, and so another key."""
    whole = {**record.identity, **identity}
    provenance = {**record.provenance, "written": written or record.provenance["written"]}
    return record.model_copy(update={"identity": whole, "key": digest(whole), "provenance": provenance})


def outcomes(entry: NewEntry) -> dict[str, EntryOutcome]:
    return {outcome.task: outcome for outcome in entry.outcomes}


def test_an_entry_holds_what_the_records_say(tmp_path: Path) -> None:
    model = measured_model("org/m")
    records = [scored(model, name, 0.25 + at / 100) for at, name in enumerate(NANO)]
    put(tmp_path, model, records)
    found = only(tmp_path)
    assert (found.model, found.origin, found.trust) == ("org/m", "measured", "measured")
    assert found.artifact == "a" * 64
    assert found.treatment == extract_condition(records[0]).text
    assert (found.output, found.max_tokens, found.recipe) == ("vector", 128, None)
    for record in records:
        outcome = outcomes(found)[record.task.name]
        assert (outcome.key, outcome.status, outcome.value) == (record.key, "done", record.main_score)
        assert json.loads(outcome.document) == json.loads(record.to_json())
        scope = build_task_scope(task(record.task.name))
        assert scope.answer(outcome.raw, outcome.data) == (pytest.approx(record.main_score), "")


def test_bm25_is_lexical_and_has_neither_parameters_nor_dimension(tmp_path: Path) -> None:
    model, ranking = resolve_bm25("bm25:k1=0.9,stemmer=english")
    identity = build_evaluation_identity(model, task(NANO[0]), ranking, seed=42)
    record = changed(scored(model, NANO[0], 0.5), **json.loads(json.dumps(identity)))
    ran = {name: value for name, value in record.provenance.items() if name != "prompts_asked"}
    about = record.model.model_copy(update={"parameters": None, "dimension": None})
    put(tmp_path, model, [record.model_copy(update={"provenance": ran, "model": about})])
    found = only(tmp_path)
    assert (found.model, found.output) == ("bm25:k1=0.9,stemmer=english", "ranking")
    assert found.treatment == "lexical: BM25, k1 0.9, b 0.75, stop words of the language, English stemmer"
    assert (found.parameters, found.dimension, found.max_tokens) == (None, None, None)
    assert outcomes(found)[NANO[0]].value == 0.5


def test_the_same_records_count_once_and_the_results_folder_goes_first(tmp_path: Path) -> None:
    own, reference = scored(M, NANO[0], 0.5), scored(M, NANO[0], 0.6)
    assert own.key == reference.key
    put(tmp_path / "own", M, [own])
    put(tmp_path / "reference", M, [reference, scored(M, NANO[1], 0.7)])
    found = outcomes(only(tmp_path / "own", tmp_path / "reference"))
    assert {name: outcome.value for name, outcome in found.items()} == {NANO[0]: 0.5, NANO[1]: 0.7}


def test_records_of_other_weights_are_an_entry_of_their_own(tmp_path: Path) -> None:
    """A model that was trained again under its key: no mean over both, and the former say so."""

    def trained_with(weights: str, *scores: tuple[str, float], written: str) -> list[Record]:
        model = replace(M, weights=weights * 64)
        records = [changed(scored(model, name, score), written=written) for name, score in scores]
        return [record.model_copy(update={"lineage": made_of(1)}) for record in records]

    first = trained_with("1", (NANO[0], 0.5), (NANO[1], 0.6), written="2026-01-01")
    second = trained_with("2", (NANO[0], 0.7), (NANO[2], 0.8), written="2026-01-02")
    put(tmp_path / "own", M, [*first, second[1]])
    put(tmp_path / "reference", M, second)
    new, former = measured_entries(tmp_path / "own", tmp_path / "reference")
    assert {name: one.value for name, one in outcomes(new).items()} == {NANO[0]: 0.7, NANO[2]: 0.8}
    assert {name: one.value for name, one in outcomes(former).items()} == {NANO[0]: 0.5, NANO[1]: 0.6}
    assert former.treatment == f"{new.treatment}, former weights 11111111"
    assert new.model_slug == former.model_slug
    assert len({new.slug, former.slug}) == len({new.group, former.group}) == 2


def test_seeds_of_one_recipe_typed_in_two_ways_are_one_group(tmp_path: Path) -> None:
    """`simcse:mean` and `simcse --set pooling=mean`."""
    plain = {"variant": "", "changed": {"pooling": "mean"}}
    for made in (made_of(1), made_of(2, **plain), made_of(3, settings={"pooling": "cls"})):
        put_model(tmp_path, f"m-{made.seed}", made, {NANO[0]: 0.5})
    found = {entry.model: entry.group for entry in measured_entries(tmp_path)}
    assert found["m-1"] == found["m-2"] != found["m-3"]


def test_a_failure_gives_way_to_a_score(tmp_path: Path) -> None:
    failed, done = scored(M, NANO[0], None, error=FAILED), scored(M, NANO[0], 0.5)
    put(tmp_path / "one", M, [failed])
    assert outcomes(only(tmp_path / "one"))[NANO[0]].status == "failed"
    put(tmp_path / "two", M, [done])
    for roots in ((tmp_path / "one", tmp_path / "two"), (tmp_path / "two", tmp_path / "one")):
        outcome = outcomes(only(*roots))[NANO[0]]
        assert (outcome.status, outcome.value) == ("done", 0.5)
    put(tmp_path / "one", M, [done])
    assert [outcome.status for outcome in only(tmp_path / "one").outcomes] == ["done"]


def test_trials_never_appear(tmp_path: Path) -> None:
    trial = scored(M, NANO[0], 0.9).model_copy(update={"purpose": "trial"})
    put(tmp_path, M, [trial])
    assert measured_entries(tmp_path) == []
    put(tmp_path, M, [scored(M, NANO[1], 0.5)])
    assert list(outcomes(only(tmp_path))) == [NANO[1]]


@pytest.mark.parametrize("content", ["", "{", "[]", '{"schema": 99}', '{"schema": 2}', "\0", "null", '"x"'])
def test_a_damaged_record_is_told_and_left_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, content: str
) -> None:
    put(tmp_path, M, [scored(M, NANO[0], 0.5), scored(M, NANO[1], 0.6)])
    path = Store(tmp_path).locate_record(M.slug, NANO[1], scored(M, NANO[1], 0.6).key)
    path.write_text(content)
    with caplog.at_level(logging.WARNING):
        assert list(outcomes(only(tmp_path))) == [NANO[0]]
    assert any(str(path) in message for message in caplog.messages)


@pytest.mark.parametrize(
    "identity",
    [
        {},
        {"encoding": "mean"},
        {"encoding": {"dtype": "float32"}, "seed": 42, "scoring": "s"},
        {"recipe": "r"},
        {"recipe": "r", "view": "v", "final_seeds": 5, "fresh_seeds": None, "scoring": "s"},
    ],
)
def test_a_record_that_no_run_wrote_is_told_and_left_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, identity: dict[str, Any]
) -> None:
    """A site takes records of any identity from those who may push: none of them may take it down."""
    plain = scored(M, NANO[1], 0.6)
    whole = {"artifact": M.key, "task": NANO[1], **identity}
    odd = plain.model_copy(update={"identity": whole, "key": digest(whole)})
    put(tmp_path, M, [scored(M, NANO[0], 0.5), odd])
    with caplog.at_level(logging.WARNING):
        assert list(outcomes(only(tmp_path))) == [NANO[0]]
    assert any(odd.key in message for message in caplog.messages)


def test_data_of_another_form_proves_nothing(tmp_path: Path) -> None:
    put(tmp_path, M, [changed(scored(M, NANO[0], 0.5), data="elsewhere")])
    (outcome,) = only(tmp_path).outcomes
    assert outcome.data == ""
    assert build_task_scope(task(NANO[0])).answer(outcome.raw, outcome.data) == (0.5, "other")


def test_each_treatment_is_an_entry_of_its_own(tmp_path: Path) -> None:
    first = scored(M, NANO[0], 0.5)
    short = changed(first, encoding={**first.identity["encoding"], "max_length": 64})
    seeded = changed(first, seed=7)
    put(tmp_path, M, [first, short, seeded])
    found = measured_entries(tmp_path)
    assert {entry.treatment for entry in found} == {extract_condition(r).text for r in (first, short, seeded)}
    assert len({entry.slug for entry in found}) == 3
    assert sorted(entry.max_tokens or 0 for entry in found) == [64, 128, 128]


def test_treatments_that_the_same_words_describe_have_names_of_their_own(tmp_path: Path) -> None:
    """More than four prompts are counted, not told, and of a recipe's settings only the name is."""

    def prompted(letter: str) -> Record:
        record = scored(M, NANO[0], 0.5)
        asked = {"named": {f"{n}": f"{letter}{n}" for n in range(5)}, "default": None}
        provenance = {**record.provenance, "prompts_asked": asked}
        return changed(record, prompts={"query": letter}).model_copy(update={"provenance": provenance})

    put(tmp_path, M, [prompted("a"), prompted("b")])
    plain = trained(M, "RTE", 0.7)
    put(tmp_path, M, [plain, changed(plain, protocol="q" * 64)])
    found = measured_entries(tmp_path)
    assert len({extract_condition(prompted(letter)).text for letter in "ab"}) == 1
    assert (
        len(found) == len({entry.slug for entry in found}) == len({entry.treatment for entry in found}) == 4
    )


def test_a_treatment_with_several_records_of_a_task_keeps_them_all(tmp_path: Path) -> None:
    first = scored(M, NANO[0], 0.5)
    other = changed(first, data={"path": "x/y", "revision": "f" * 40})
    put(tmp_path, M, [first, other])
    assert sorted(o.data for o in only(tmp_path).outcomes) == sorted(
        [str(first.identity["data"]["revision"]), "f" * 40]
    )


def test_what_is_other_is_what_the_harness_calls_unproven(tmp_path: Path) -> None:
    good, bad = scored(M, NANO[0], 0.5), scored(M, NANO[1], 0.6)
    bad = changed(bad, data={**bad.identity["data"], "revision": "f" * 40})
    path = bad.identity["data"]["path"]
    none = changed(scored(M, NANO[2], 0.6), data={"path": path, "content": "e" * 64})
    asked = {"prompts_asked": {"named": {}, "default": None}}
    records = [r.model_copy(update={"provenance": {**r.provenance, **asked}}) for r in (good, bad, none)]
    put(tmp_path, M, records)
    (view,) = build_suite_views(records, suites()["nanobeir"].suite)
    answers = {
        name: build_task_scope(task(name)).answer(outcome.raw, outcome.data)[1]
        for name, outcome in outcomes(only(tmp_path)).items()
    }
    assert {name for name, reason in answers.items() if reason == "other"} == set(view.unproven)
    assert answers == {NANO[0]: "", NANO[1]: "other", NANO[2]: "other"}


def drawn(right: float, examples: int = 60) -> bytes:
    """Predictions of three seeds on RTE."""
    rng = np.random.default_rng(int(1000 * right))
    gold = np.tile(rng.integers(2, size=examples), 3)
    said = np.where(rng.random(3 * examples) < right, gold, 1 - gold)
    columns: dict[str, list[Any]] = {
        "split": ["validation"] * len(gold), "subset": ["rte"] * len(gold),
        "example_id": [str(n) for n in range(examples)] * 3,
        "replicate": np.repeat([42001, 42002, 42003], examples).tolist(),
        "prediction": said.astype(float).tolist(), "gold": gold.astype(float).tolist(),
        "metric": (said == gold).astype(float).tolist(),
    }  # fmt: skip
    return build_record_output(trained(measured_model("m"), "RTE", right), columns)["examples"]


def test_a_file_of_examples_that_cannot_be_read_costs_the_interval_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    part = {"examples": ExamplesPart(file="", rows=1, sha256="")}
    Store(tmp_path).put(M.slug, trained(M, "RTE", 0.7).model_copy(update=part), drawn(0.7))

    def refuse(path: Path, *_rest: Any) -> str:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr("harness.core.files.hash_file", refuse)
    number = outcomes(only(tmp_path))["RTE"].numbers["optibert"]
    assert (number.low, number.high) == (None, None)
    assert number.value is not None


def test_means_and_intervals_are_those_of_the_harness(tmp_path: Path) -> None:
    model, store = M, Store(tmp_path)
    part = {"examples": ExamplesPart(file="", rows=1, sha256="")}
    with_files = store.put(model.slug, trained(model, "RTE", 0.7).model_copy(update=part), drawn(0.7))
    store.put(model.slug, trained(model, "CoLA", 0.5))
    found = only(tmp_path)
    assert (found.output, found.recipe) == ("label", "glue-optibert")
    records = {record.task.name: record for record in iter_records(store)}
    documents = {view: json.loads(text) for suite, view, text in found.averages if suite == "glue"}
    assert documents.keys() == GLUE.conventions.keys()
    for view, convention in GLUE.conventions.items():
        wanted = TrainedResult.build_trained_result(
            GLUE, records, convention, lambda r: store.find_part_file(r, model.slug)
        )
        document = documents[view]
        counts = (document["there"], document["wanted"])
        assert (document["value"], counts) == (wanted.average.value, (2, len(GLUE.columns)))
        assert document["interval"] is None  # CoLA has no file
        for row in wanted.rows:
            if row.record is None:
                continue
            number = outcomes(found)[row.task].numbers[view]
            bounds = (row.interval.low, row.interval.high) if row.interval else (None, None)
            assert (number.value, number.low, number.high) == (row.number, *bounds)
    rte = outcomes(found)["RTE"].numbers["optibert"]
    assert rte.low is not None
    assert rte.high is not None
    assert 0.05 < rte.high - rte.low < 0.4
    path = store.locate_record(model.slug, "RTE", with_files.key)
    store.put(model.slug, trained(model, "CoLA", 0.5), again=True)
    shutil.rmtree(path.parent.parent / "CoLA")
    alone = {view: json.loads(text) for _, view, text in only(tmp_path).averages}["optibert"]
    assert alone["interval"] == [rte.low, rte.high]  # of a single task it is that task's own
    assert alone["mean_of_bounds"] == [pytest.approx(rte.low), pytest.approx(rte.high)]


def test_tasks_that_start_from_nothing_belong_to_every_start(tmp_path: Path) -> None:
    shared = changed(trained(M, "CoLA", 0.5))
    starts = [{"from": "backbone"}, {"from": "checkpoint", "content": "f" * 64}]
    own = [
        changed(trained(M, "RTE", score), start=start)
        for score, start in zip((0.6, 0.7), starts, strict=True)
    ]
    put(tmp_path, M, [shared, *own])
    found = measured_entries(tmp_path)
    assert sorted(entry.treatment for entry in found) == sorted(extract_condition(r).text for r in own)
    for entry in found:
        assert outcomes(entry)["CoLA"].key == shared.key
    assert {outcomes(entry)["RTE"].key for entry in found} == {record.key for record in own}
    put(tmp_path / "alone", M, [shared])
    assert only(tmp_path / "alone").treatment == extract_condition(shared).text


def test_a_number_of_a_recipe_is_of_the_record_that_the_suite_asks_for(tmp_path: Path) -> None:
    """A task that was narrowed to another split is no part of the suite's mean."""
    plain = trained(M, "MNLI", 0.8)
    narrowed = changed(plain, splits=["validation_matched"], written="2027-01-01T00:00:00+00:00")
    narrowed = narrowed.model_copy(
        update={"scores": {"validation_matched": {"mnli": {"accuracy": 0.1}}}, "main_score": 0.1}
    )
    put(tmp_path, M, [plain, narrowed])
    (view,) = build_suite_views([plain, narrowed], GLUE)
    assert view.records["MNLI"].key == plain.key
    document = {name: json.loads(text) for _, name, text in only(tmp_path).averages}["optibert"]
    assert document["value"] == pytest.approx(0.8)


def test_one_folder_for_each_artifact_whatever_it_is_called(tmp_path: Path) -> None:
    renamed = replace(M, name="org/other-name")
    put(tmp_path / "one", M, [scored(M, NANO[0], 0.5)])
    newer = changed(scored(renamed, NANO[1], 0.6), written="2026-11-02T00:00:00+00:00")
    put(tmp_path / "two", renamed, [newer])
    found = only(tmp_path / "one", tmp_path / "two")
    assert found.model == "org/other-name"  # as it was called last
    assert len(found.outcomes) == 2


def test_a_copy_in_a_folder_takes_no_name_from_the_model(tmp_path: Path) -> None:
    copy = replace(M, name="last-night", source="local")
    put(tmp_path / "own", copy, [scored(copy, NANO[0], 0.5)])
    assert only(tmp_path / "own").model == "last-night"
    published = replace(M, source="m")
    put(tmp_path / "reference", published, [scored(published, NANO[0], 0.5), scored(published, NANO[1], 0.6)])
    found = only(tmp_path / "own", tmp_path / "reference")
    assert (found.model, found.folder, found.facts["folders"]) == ("m", None, ["last-night"])
    assert found.slug == only(tmp_path / "reference").slug
    assert outcomes(found).keys() == set(NANO[:2])


def test_a_record_of_a_time_to_come_is_not_the_newest(tmp_path: Path) -> None:
    early, late = replace(M, name="org/early"), replace(M, name="org/late")
    record = scored(early, NANO[0], 0.5)
    put(tmp_path, early, [changed(record, written="2099-01-01T00:00:00+00:00")])
    put(tmp_path, late, [scored(late, NANO[1], 0.6)])
    found = only(tmp_path)
    assert found.model == "org/late"
    assert outcomes(found)[NANO[0]].written == ""
    assert outcomes(found)[NANO[1]].written


def test_a_stamp_changes_with_the_files_alone(tmp_path: Path) -> None:
    put(tmp_path, M, [scored(M, NANO[0], 0.5)])

    def stamps() -> list[str]:
        return [unit.stamp for unit in measured.iter_record_units([tmp_path], READER)]

    first = stamps()
    assert stamps() == first
    put(tmp_path, M, [scored(M, NANO[1], 0.5)])
    assert stamps() != first


def test_folders_without_records_hold_nothing(tmp_path: Path) -> None:
    (tmp_path / "records" / "empty-abc").mkdir(parents=True)
    (tmp_path / "records" / "file").write_text("x")
    assert measured_entries(tmp_path, tmp_path / "missing") == []


def test_scores_that_are_no_numbers(tmp_path: Path) -> None:
    record = scored(M, NANO[0], 0.5)
    bad = record.model_copy(
        update={"main_score": float("nan"), "scores": {"train": {"default": {"main_score": float("nan")}}}}
    )
    path = Store(tmp_path).locate_record(M.slug, NANO[0], record.key)
    path.parent.mkdir(parents=True)
    path.write_text(append_digest(bad.model_dump(by_alias=True)))
    (outcome,) = only(tmp_path).outcomes
    scope = build_task_scope(task(NANO[0]))
    raw = {split: {subset: next(iter(outcome.raw["train"].values())) for subset in scope.subsets}
           for split in scope.splits}  # fmt: skip
    assert scope.answer(raw, outcome.data) == (None, "bad")
