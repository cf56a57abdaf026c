"""The file of a watch, and the scores that are read from the records that it names."""

from __future__ import annotations

import json
import shutil
import time
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from types import SimpleNamespace
from typing import Any

import pytest

from fakes import artifact, record, task
from harness.core.documents import append_digest
from harness.core.errors import RecordError
from harness.core.types import Column, Convention, Suite, Task
from harness.results.scores import Aggregates, collect_raw_metrics, compute_part_scores
from harness.storage.record import Record
from harness.storage.store import Store
from harness.watch.state import WATCHES, ColumnPart, Watch, WatchEntry, read_watch, stamp_records
from harness.watch.watch import _list_columns
from judged_data import checkpoint, put_watch, rescore

GOLDEN = Path(__file__).with_name("golden")


def written(results: Path, *means: float) -> Path:
    """A watch of some checkpoints with their records; its file."""
    entries = tuple(checkpoint(1000 * at, mean) for at, mean in enumerate(means, 1))
    put_watch(results, Watch(name="w", source="/run", suite="s", request={}, checkpoints=entries))
    return WATCHES.locate_document(results, "w")


def record_file(results: Path, step: int, name: str) -> Path:
    entry = WATCHES.find_document(results, "w").find_entry(step)
    assert entry is not None
    return Store(results).locate_record(f"x-{entry.artifact[:12]}", name, entry.records[name])


def test_the_file_has_no_scores_and_what_is_shown_is_the_records(tmp_path: Path) -> None:
    path = written(tmp_path, 0.5, 0.25)
    for entry in json.loads(path.read_text())["checkpoints"]:
        assert not {"scores", "mean", "there"} & entry.keys()
    shown = read_watch(tmp_path, "w").checkpoints
    assert [one.mean for one in shown] == pytest.approx([0.5, 0.25])
    assert shown[1].scores == pytest.approx({"NFCorpus": 0.2, "SciFact": 0.3})
    assert [(one.state, one.there, one.wanted) for one in shown] == [("done", 2, 2)] * 2
    path = record_file(tmp_path, 2000, "SciFact")
    path.write_text(rescore(Store.parse(path), 0.9).to_json())
    assert read_watch(tmp_path, "w").checkpoints[1].mean == pytest.approx(0.55)


def test_scores_that_somebody_writes_into_the_file_are_not_believed(tmp_path: Path) -> None:
    path = written(tmp_path, 0.5)
    content = json.loads(path.read_text())
    del content["digest"]
    content["checkpoints"][0] |= {"scores": {"NFCorpus": 0.99}, "mean": 0.99, "there": 1}
    path.write_text(append_digest(content))
    (shown,) = read_watch(tmp_path, "w").checkpoints
    assert (shown.mean, shown.scores["NFCorpus"]) == pytest.approx((0.5, 0.45))


@pytest.mark.parametrize(("before", "after"), [('"p": 0.999', '"p": 0.001'), ('"looks": 1', '"looks": 0')])
def test_one_changed_digit_is_refused_with_the_cure(tmp_path: Path, before: str, after: str) -> None:
    path = WATCHES.locate_document(tmp_path, "run")
    path.parent.mkdir()
    text = (GOLDEN / "watch-3.json").read_text()
    assert text.count(before) == 1
    path.write_text(text.replace(before, after))
    with pytest.raises(RecordError, match="its content is not what its digest says") as refused:
        read_watch(tmp_path, "run")
    assert refused.value.hint == "Remove it and type the same command again: recorded scores are reused."
    path.write_text(text)
    assert read_watch(tmp_path, "run").looks == 1


@pytest.mark.parametrize("schema", [1, 2])
def test_older_files_become_the_newest(schema: int) -> None:
    newest = WATCHES.kind.read_document_file(GOLDEN / "watch-3.json")
    assert WATCHES.kind.serialize_document(newest) == (GOLDEN / "watch-3.json").read_text()
    assert WATCHES.kind.read_document_file(GOLDEN / f"watch-{schema}.json") == newest


@pytest.mark.parametrize(
    "changed",
    [
        *({"checkpoints": one} for one in (3, [3], ["x"], [{"scores": 3, "there": 1}], [{"mean": "x"}])),
        *({"schema": 1, "request": one} for one in ([1], {"recipe_options": 3})),
    ],
)
def test_an_old_file_of_another_form_is_refused(changed: dict[str, Any], tmp_path: Path) -> None:
    """Files of before have no digest, so that anything may stand in them."""
    old = {"schema": 2, "name": "w", "source": "/run", "suite": "s", "request": {}}
    path = tmp_path / "w.json"
    path.write_text(json.dumps(old | changed))
    with pytest.raises(RecordError, match="not a watch"):
        WATCHES.kind.read_document_file(path)


def test_a_mean_whose_columns_an_old_file_does_not_tell_is_not_made_up(tmp_path: Path) -> None:
    """Its third checkpoint has 0.3 and 0.5, and a mean of 0.35."""
    path = WATCHES.locate_document(tmp_path, "run")
    path.parent.mkdir()
    shutil.copy(GOLDEN / "watch-2.json", path)
    for step in (1, 2, 3, 4):
        model = artifact(Path("x"), key=f"{step:012}" + 52 * "0", name=f"run-step{step}")
        for name in ("One", "Two") if step < 4 else ("One",):
            Store(tmp_path).put(
                model.slug, record(task(name), 0.1 * step + 0.2 * (name == "Two"), model=model)
            )
    shown = read_watch(tmp_path, "run").checkpoints
    assert [one.mean for one in shown[:2]] == pytest.approx([0.2, 0.3])
    assert (shown[2].mean, shown[2].state, shown[3].state) == (None, "done", "partial")
    assert "type the same command again" in shown[2].reason


def test_scores_that_are_gone_are_told(tmp_path: Path) -> None:
    written(tmp_path, 0.5, 0.25, 0.125)
    for name in ("NFCorpus", "SciFact"):
        record_file(tmp_path, 1000, name).unlink()
    damaged = record_file(tmp_path, 2000, "SciFact")
    damaged.write_text(damaged.read_text().replace("0.3", "0.4"))
    first, second, third = read_watch(tmp_path, "w").checkpoints
    gone = "; its checkpoint is not there any more, so they cannot be measured again"
    assert (first.state, first.mean, first.there) == ("lost", None, 0)
    assert first.reason == f"scores of step 1000 are gone: NFCorpus, SciFact{gone}"
    assert (second.state, second.mean, second.there) == ("lost", None, 1)
    assert second.reason == f"scores of step 2000 are gone: SciFact{gone}"
    assert (third.state, third.mean) == ("done", pytest.approx(0.125))
    assert [one.step for one in read_watch(tmp_path, "w").curve] == [3000]
    assert {one.state for one in WATCHES.find_document(tmp_path, "w").checkpoints} == {"done"}


def test_a_trial_is_no_score(tmp_path: Path) -> None:
    written(tmp_path, 0.5)
    path = record_file(tmp_path, 1000, "SciFact")
    path.write_text(Store.parse(path).model_copy(update={"purpose": "trial"}).to_json())
    assert read_watch(tmp_path, "w").checkpoints[0].state == "lost"


def measured(of: Task, metrics: dict[tuple[str, str], dict[str, float]]) -> Record:
    """A record with raw metrics by split and subset, whose main score is the mean of the first of them."""
    scores: dict[str, dict[str, Any]] = {}
    for (split, subset), values in metrics.items():
        scores.setdefault(split, {})[subset] = values
    main = fmean(next(iter(values.values())) for values in metrics.values())
    return record(of, main).model_copy(update={"scores": scores})


def test_a_mean_is_that_of_the_suites_columns(tmp_path: Path) -> None:
    """A column of two tasks, two parts of one task, and a paper's convention, as a report has them."""
    ones = {name: task(name) for name in ("A", "B")}
    whole = replace(task("M"), splits=("m", "mm"))
    label = replace(task("L"), output="label")
    suite = Suite(
        name="s", title="S",
        columns=(
            Column(name="AB", type="x", tasks=tuple(ones.values())),
            *(Column(name=part, type="x", tasks=(replace(whole, splits=(part,)),)) for part in whole.splits),
            Column(name="L", type="x", tasks=(label,)),
            Column(name="empty", type="x", tasks=()),
        ),
        conventions={
            "paper": Convention(name="paper", says="", parts={"L": (("dev", "f1"), ("dev", "acc"))})
        },
    )  # fmt: skip
    records = {
        "A": record(ones["A"], 0.2),
        "B": record(ones["B"], 0.4),
        "M": measured(whole, {("m", "default"): {"main_score": 0.5}, ("mm", "default"): {"main_score": 0.7}}),
        "L": measured(label, {("dev", "x"): {"f1": 0.6, "acc": 0.8}, ("dev", "y"): {"f1": 0.2, "acc": 0.4}}),
    }
    for one in records.values():
        Store(tmp_path).put(f"tiny-{'a' * 12}", one)
    entry = WatchEntry(
        step=1, name="step1", state="done", artifact="a" * 64, wanted=4,
        records={name: one.key for name, one in records.items()},
        columns=_list_columns(suite, SimpleNamespace(convention="paper")),  # type: ignore[arg-type]
    )  # fmt: skip
    watch = Watch(name="w", source="/run", suite="s", request={}, checkpoints=(entry,))
    WATCHES.write_document(tmp_path, "w", watch)
    number = suite.conventions["paper"].compute_task_number("L", collect_raw_metrics(records["L"]))
    assert number == pytest.approx(0.5)
    numbers = {"A": 0.2, "B": 0.4, "L": number, **compute_part_scores(suite, records)}
    columns = Aggregates.aggregate_scores(suite, numbers).columns  # type: ignore[arg-type]
    expected = [value for name, value in columns.items() if name != "empty"]
    assert expected == pytest.approx([0.3, 0.5, 0.7, 0.5])
    (shown,) = read_watch(tmp_path, "w").checkpoints
    assert (shown.mean, shown.there, shown.state) == (pytest.approx(0.5), 4, "done")


def test_columns_of_one_task_each_are_not_written() -> None:
    suite = Suite(
        name="s", title="S", columns=tuple(Column(name=n, type="x", tasks=(task(n),)) for n in "AB")
    )
    assert _list_columns(suite, None) == ()
    twice = replace(suite, columns=(*suite.columns, suite.columns[0]))
    assert _list_columns(twice, None)[2] == (ColumnPart(task="A"),)


def test_the_stamps_of_five_thousand_records_are_soon_there(tmp_path: Path) -> None:
    entries = []
    for step in range(1, 1001):
        key = f"{step:012}"
        for name in "ABCDE":
            place = tmp_path / "records" / f"m-{key}" / name
            place.mkdir(parents=True)
            (place / f"{key + 52 * '0'}.json").touch()
        named = dict.fromkeys("ABCDE", key + 52 * "0")
        entries.append(WatchEntry(step=step, name=key, state="done", artifact=key + 52 * "0", records=named))
    watch = Watch(name="w", source="/run", suite="s", request={}, checkpoints=tuple(entries))
    seconds = []
    for _ in range(3):
        began = time.process_time()
        before = stamp_records(watch, tmp_path)
        seconds.append(time.process_time() - began)
    assert min(seconds) < 0.3
    (tmp_path / "records" / f"m-{1000:012}" / "E" / f"{1000:012}{52 * '0'}.json").write_text("{}")
    assert stamp_records(watch, tmp_path) != before
