"""`audit --strict`: what no run writes is named, and nothing that a run wrote."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from harness.cli import invoke
from harness.core.identity import digest
from harness.core.lineage import Lineage, ParentPart, SweepPart
from harness.core.types import build_artifact_slug
from harness.results.audit import audit
from harness.results.contradictions import find_contradictions, find_disagreements
from harness.storage.record import RECORDS, SCHEMA, Record

REFERENCE = Path(__file__).parents[3] / "results" / "reference"
ARTIFACT = "ab" * 32


def made(**changes: Any) -> dict[str, Any]:
    """A record without a digest; its key is that of its identity unless said otherwise."""
    record: dict[str, Any] = {
        "schema": 2,
        "purpose": "final",
        "status": "done",
        "model": {"name": "org/tiny", "source": "org/tiny", "artifact": ARTIFACT, "weights": "cd" * 32},
        "task": {"name": "STS12", "type": "STS", "metric": "cosine_spearman"},
        "identity": {"artifact": ARTIFACT, "task": "STS12", "seed": 42},
        "main_score": 0.5,
        "scores": {"test": {"default": {"main_score": 0.5, "cosine_spearman": 0.5}}},
        **changes,
    }
    return {"key": digest(record["identity"]), **record}


def named(*, model: str = "org/tiny", task: str = "STS12") -> dict[str, Any]:
    base = made(identity={"artifact": ARTIFACT, "task": task, "seed": 42})
    return {**base, "model": {**base["model"], "name": model}, "task": {**base["task"], "name": task}}


def raw(**changes: str) -> str:
    """A record's text with parts replaced that no Python value gives."""
    text = json.dumps(made())
    for old, new in changes.items():
        start = text.index(f'"{old}": ') + len(old) + 4
        end = min(i for i in (text.find(",", start), text.find("}", start)) if i > 0)
        text = text[:start] + new + text[end:]
    return text


def said(**provenance: Any) -> dict[str, Any]:
    return made(provenance=provenance)


PARENT = ParentPart(name="tiny", artifact="a" * 64)
LINEAGE = Lineage(recipe="simcse", settings={}, parents=(PARENT,), data=(), seed=1)


def of_recipe(**changes: Any) -> dict[str, Any]:
    """A record of a model that a recipe made."""
    lineage = LINEAGE.model_copy(update=changes)
    base = made(identity={"artifact": lineage.key, "task": "STS12", "seed": 42}, schema=SCHEMA)
    body = {**base, "model": {**base["model"], "artifact": lineage.key}, "lineage": lineage.model_dump()}
    found: dict[str, Any] = json.loads(Record.model_validate(body).to_json())
    return found


def of_sweep(**changes: Any) -> dict[str, Any]:
    """A record of the best of a sweep of two."""
    curve = [
        {"value": value, "artifact": letter * 64, "scores": {"SciFact": value / 4}, "mean": value / 4}
        for letter, value in (("e", 1.0), ("f", 2.0))
    ]
    fields = {
        "setting": "scale",
        "values": (1.0, 2.0),
        "tasks": {"SciFact": {}},
        "chosen": 2.0,
        "curve": curve,
    }
    return of_recipe(sweep=SweepPart(**{**fields, "curve": curve, **changes}))


def of_another_seed() -> str:
    """The record of a model with the lineage of another one."""
    found = of_recipe()
    other = {**found, "lineage": {**found["lineage"], "seed": 2}}
    return Record.model_validate({k: v for k, v in other.items() if k != "digest"}).to_json()


def scored(main: float, *subsets: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return made(main_score=main, scores={"test": dict(zip("abc", subsets, strict=False))}, **changes)


NO_MEMBER = {"value": 3.0, "artifact": "f" * 64, "scores": {"SciFact": 0.5}, "mean": 0.5}
MRPC = {"artifact": ARTIFACT, "task": "MRPC"}
GLUE = {"name": "MRPC", "type": "PairClassification", "metric": "accuracy"}

WRONG: dict[str, tuple[dict[str, Any] | str, str]] = {
    "main score above its metric": (
        scored(0.9, {"main_score": 0.9, "cosine_spearman": 0.5}),
        "a `main_score` is 0.9, but its cosine_spearman is 0.5",
    ),
    "main score above its parts": (
        scored(0.9, {"main_score": 0.5}, {"main_score": 0.7}),
        "the mean over splits and subsets is 0.6",
    ),
    "main score without metrics": (scored(0.9), "which no mean of its metrics is"),
    "main score above every metric": (
        scored(0.9, {"accuracy": 0.8, "f1": 0.85}, task=GLUE, identity=MRPC),
        "which no mean of its metrics is",
    ),
    "above 1": (scored(1.5, {"main_score": 1.5}), "a score is 1.5"),
    "below -1": (scored(-80, {"main_score": -80}), "a score is -80"),
    "lineage of another": (of_another_seed(), "does not follow from its lineage"),
    "long own data": (of_recipe(own_data="x" * 300), "longer than 200 bytes"),
    "long own data of a parent": (
        of_recipe(parents=(PARENT.model_copy(update={"own_data": "x" * 300}),)),
        "longer than 200 bytes",
    ),
    "a sweep's member of no value": (of_sweep(curve=[NO_MEMBER]), "a value that the sweep does not have"),
    "a sweep without its choice": (of_sweep(chosen=None, curve=()), "of no member"),
    "a sweep by other tasks": (of_sweep(tasks={"STS12": {}}), "other tasks than the sweep"),
    "a long name in a sweep": (of_sweep(setting="x" * 300), "longer than 200 bytes"),
    "NaN": (raw(seed="NaN"), "NaN"),
    "Infinity": (raw(seed="-Infinity"), "-Infinity"),
    "overflow": (raw(main_score="1e999"), "its main score is inf"),
    "NaN as text": (raw(main_score='"nan"'), "a score is nan"),
    "integer": (raw(seed=str(2**63)), "not within"),
    "deep": (raw(seed="[" * 40 + "]" * 40), "within one another"),
    "inner duplicate": (raw(seed='{"a": 1, "a": 2}'), "'a' stands twice"),
    "NUL": (raw(metric='"a\\u0000"'), "cannot be stored"),
    "surrogate in a name": (raw(seed='{"\\udfff": 1}'), "cannot be stored"),
    "bare artifact": (raw(artifact='"*"'), "64 digits"),
    "another artifact": (raw(artifact='"' + "12" * 32 + '"'), "another artifact"),
    "another task": ({**made(), "task": named(task="x")["task"]}, "another task"),
    "long model": (named(model="x" * 5000), "longer than 200 bytes"),
    "long task": (named(task="é" * 101), "longer than 200 bytes"),
    "no name": (named(model=" "), "no name"),
    "escape sequence": (named(model="a\x1b[2J"), "cannot be seen"),
    "turned around": (named(task="a\u202eb"), "cannot be seen"),
    "line break": (raw(source='"a\\nb"'), "cannot be seen"),
    "texts are a text": (said(texts_trained_on="all"), "`texts_trained_on`"),
    "seconds are a list": (said(seconds=[1]), "`seconds`"),
    "seconds are texts": (said(seconds={"encode": "1"}), "`seconds`"),
    "seconds are truths": (said(seconds={"encode": True}), "`seconds`"),
    "seconds below 0": (said(seconds={"encode": -2}), "`seconds`"),
    "a speed that is an object": (said(tokens_per_second={}), "`tokens_per_second`"),
    "a device that is a text": (said(device="cpu"), "`device` is not an object"),
    "notes that are a text": (said(notes="none"), "`notes` is not a list"),
    "a time that is a number": (said(written=5), "`written` is not text"),
    "a time that is none": (said(written="yesterday"), "a date that is none"),
    "a time of no zone": (said(written="2026-01-02T03:04:05"), "a date that is none"),
    "the future": (said(written=(datetime.now(UTC) + timedelta(days=3)).isoformat()), "in the future"),
    "the end before the start": (
        said(started="2026-01-02T00:00:00+00:00", written="2026-01-01T00:00:00+00:00"),
        "before it was started",
    ),
}


def contradictions(body: dict[str, Any] | str) -> list[str]:
    text = body if isinstance(body, str) else json.dumps(body)
    try:
        return [*find_contradictions(RECORDS.parse(text, where="x"), text.encode())]
    except ValueError as error:  # what every reader refuses
        return [str(error)]


@pytest.mark.parametrize(("body", "reason"), WRONG.values(), ids=list(WRONG))
def test_what_cannot_be_true_is_named(body: dict[str, Any] | str, reason: str) -> None:
    assert any(reason in text for text in contradictions(body)), contradictions(body)


@pytest.mark.parametrize(
    "body",
    [
        made(),
        of_recipe(),
        of_sweep(),
        scored(1.0, {"main_score": 1.0}),
        scored(0.6, {"main_score": 0.5}, {"main_score": 0.7}),
        made(main_score=None, scores={"test": {"default": {"main_score": None}}}),
        scored(0.5, {"main_score": 0.5, "seconds_per_text": 17.5}),
        scored(0.825, {"accuracy": 0.8, "f1": 0.85}, task=GLUE, identity=MRPC),
        said(seconds=None, tokens_per_second=None),
        said(seconds={}, tokens_encoded=0, anything=["else", {"is": "free"}]),
    ],
)
def test_what_may_be_is_left_alone(body: dict[str, Any]) -> None:
    assert contradictions(body) == []


def test_records_of_real_runs_pass(tmp_path: Path) -> None:
    found = audit(REFERENCE, tmp_path, strict=True)
    assert (found.files["records"], found.faults) == (14, ())


def placed(results: Path, body: dict[str, Any]) -> Path:
    """A record at its place in a results folder."""
    record = Record.model_validate(body)
    slug = build_artifact_slug(record.model.name, record.model.artifact)
    path = results / "records" / slug / record.task.name / f"{record.key}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(record.to_json())
    return path


def model(task: str, **changes: Any) -> dict[str, Any]:
    base = named(task=task)
    return {**base, "model": {**base["model"], "parameters": 22, "dimension": 384, **changes}}


def test_the_record_that_describes_the_weights_otherwise_is_named(tmp_path: Path) -> None:
    for task in ("A", "B"):
        placed(tmp_path, model(task))
    forged = placed(tmp_path, model("C", name="org/other", dimension=768))
    found = audit(tmp_path, tmp_path / "cache", strict=True)
    assert [(fault.file, fault.reason) for fault in found.faults] == [
        (forged, "its model's dimension is 768; other records of these weights say 384"),
        (forged, "its model's name is 'org/other'; other records of these weights say 'org/tiny'"),
    ]
    assert audit(tmp_path, tmp_path / "cache").clean


def test_of_two_that_disagree_both_are_named() -> None:
    records = [
        (Path(name), RECORDS.parse(json.dumps(model(name, parameters=number)), where="x").model)
        for name, number in (("A", 22), ("B", 23))
    ]
    assert [str(path) for path, _ in find_disagreements(records)] == ["A", "B"]
    other = model("C", weights="ef" * 32, parameters=5)
    assert not [
        *find_disagreements([records[0], (Path("C"), RECORDS.parse(json.dumps(other), where="x").model)])
    ]


def test_the_command_says_what_is_wrong_and_leaves_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = placed(tmp_path, said(written=5))
    typed = ["audit", "--results", str(tmp_path), "--cache", str(tmp_path), "--strict"]
    for more in ([], ["--repair"]):
        assert invoke([*typed, *more]) == 1
        out = capsys.readouterr().out
        assert f"✗ {path}: its provenance's `written` is not text." in out
    assert path.exists()
    assert invoke(typed[:-1]) == 0
