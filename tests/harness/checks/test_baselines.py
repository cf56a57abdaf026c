"""Baselines on disk: written once, replaced when asked, and what is no baseline is said to be none."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from harness.checks.baselines import BASELINES, SCHEMA, Baseline, BaselineModel, Reference, write_baseline
from harness.core.errors import RecordError, UsageError

ONE = Baseline(
    name="release-1.2",
    when="2026-01-01T00:00:00+00:00",
    suites=("mteb", "local:mine"),
    seeds=2,
    options={"dtype": "float32", "prompts": ["query=find: "], "languages": [], "pooling": None},
    runs=(
        BaselineModel(
            model="minilm",
            source="minilm",
            artifact="a" * 64,
            folder="minilm-aaaaaaaaaaaa",
            revision="r" * 40,
            keys={"SciFact": ("1" * 64,), "Banking77": ("2" * 64, "3" * 64)},
        ),
        BaselineModel(
            model="again", source="./x", artifact="b" * 64, folder="x-b", keys={"SciFact": ("4" * 64,)}
        ),
    ),
)


def test_it_reads_what_was_written(tmp_path: Path) -> None:
    path = write_baseline(tmp_path, ONE, replace=False)
    assert path == tmp_path / "baselines" / "release-1.2.json"
    assert BASELINES.find_document(tmp_path, ONE.name) == ONE == BASELINES.kind.read_document_file(path)
    assert BASELINES.list_names(tmp_path) == [ONE.name]
    assert json.loads(path.read_text())["schema"] == SCHEMA


def test_a_name_is_taken_until_it_is_to_be_replaced(tmp_path: Path) -> None:
    write_baseline(tmp_path, ONE, replace=False)
    other = replace(ONE, seeds=5)
    with pytest.raises(UsageError, match=r"A baseline 'release-1\.2' already exists") as caught:
        write_baseline(tmp_path, other, replace=False)
    assert "--replace" in (caught.value.hint or "")
    assert BASELINES.find_document(tmp_path, ONE.name) == ONE
    write_baseline(tmp_path, other, replace=True)
    assert BASELINES.find_document(tmp_path, ONE.name) == other


def test_a_baseline_without_an_evaluation_was_evaluated_by_the_models_own(tmp_path: Path) -> None:
    write_baseline(tmp_path, ONE, replace=False)
    baseline = Reference.resolve(ONE.name, tmp_path).baseline
    assert baseline == replace(ONE, options={**ONE.options, "evaluation": "own"})


@pytest.mark.parametrize("text", ["nowhere/main.zip", "main.zip", "nowhere/main.json"])
def test_a_file_that_is_not_there_is_said_to_be_missing(text: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=f"The file {text} does not exist"):
        Reference.resolve(text, tmp_path)


@pytest.mark.parametrize("name", ["", ".hidden", "../up", "a/b", "a b", "-x", "ä", "a" * 101, "a\n"])
def test_a_name_that_cannot_be_a_files_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be the name of a baseline"):
        write_baseline(tmp_path, replace(ONE, name=name), replace=True)
    assert not list(tmp_path.rglob("*.json"))


@pytest.mark.parametrize(
    "content",
    [
        '{"schema": 1}',
        '{"schema": 1, "runs": []}',
        '{"schema": 1, "runs": [{}]}',
        json.dumps({**ONE.to_json(), "runs": []}),
        json.dumps({**ONE.to_json(), "surprise": 1}),
        json.dumps({name: value for name, value in ONE.to_json().items() if name != "suites"}),
        json.dumps({**ONE.to_json(), "runs": [{"model": "m", "keys": {}}]}),
    ],
)
def test_a_damaged_file_is_said_to_be_no_baseline(content: str, tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text(content)
    with pytest.raises(RecordError, match=r"x\.json"):
        BASELINES.kind.read_document_file(path)


def test_one_of_an_earlier_version_is_read_with_its_options(tmp_path: Path) -> None:
    """Schema 2 called the options `asked`; schema 1 had settings of GLUE among them."""
    plain = {n: v for n, v in ONE.to_json().items() if n not in ("options", "power", "anchor")}
    path = tmp_path / f"{ONE.name}.json"
    path.write_text(json.dumps({**plain, "schema": 2, "asked": dict(ONE.options)}))
    assert BASELINES.kind.read_document_file(path) == ONE
    path.write_text(json.dumps({**plain, "schema": 1, "asked": {"mnli": "runs/a", "no_transfer": True}}))
    assert BASELINES.kind.read_document_file(path).options == {"changes": ["mnli=runs/a", "transfer=false"]}


def test_what_was_written_into_a_baseline_later_is_refused(tmp_path: Path) -> None:
    """Errors that nobody measured would widen a margin; schema 4 had them, under its digest."""
    path = write_baseline(tmp_path, ONE, replace=False)
    path.write_text(path.read_text().replace('"seeds": ', '"errors": {"STS12": 9.0}, "seeds": ', 1))
    with pytest.raises(RecordError, match=r"digest|changed"):
        BASELINES.find_document(tmp_path, ONE.name)


def test_a_file_of_another_baselines_name_is_refused(tmp_path: Path) -> None:
    path = write_baseline(tmp_path, ONE, replace=False)
    path.rename(path.with_name("other.json"))
    with pytest.raises(RecordError, match="is the baseline of another name"):
        BASELINES.find_document(tmp_path, "other")
