"""Documents of every kind under a name: what is damaged, newer or gone is named, and never read as one."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from check_data import small_check
from every_kind import build_note, build_proxy
from harness.checks.baselines import BASELINES, Baseline, BaselineModel
from harness.checks.outcome import CHECKS, Check
from harness.core.documents import DocumentFolder, DocumentKind, read_content_file, write_content_file
from harness.core.errors import RecordError, UsageError
from harness.executors.run_log import HEADERS, HEARTBEATS, Heartbeat, RunHeader
from harness.fits.stored import FITS
from harness.proxy.document import PROXIES
from harness.results.notes import NOTES
from harness.storage.imported import STAMPS
from harness.storage.record import ExamplesPart
from harness.watch.curves import CURVES
from harness.watch.grids import GRIDS
from harness.watch.state import WATCHES, Watch
from judged_data import build_small_grid

Kind = DocumentFolder[Any]

DOCUMENTS: tuple[tuple[Kind, Mapping[str, Any]], ...] = (
    (BASELINES, {"name": "n", "when": "", "suites": ["s"], "seeds": 1, "options": {}, "runs": []}),
    (CHECKS, small_check().to_json()),
    (CURVES, {"name": "n", "when": "", "column": "s", "axis": "step", "points": []}),
    (FITS, {"name": "n", "when": "", "law": "power", "size_is": "total", "method": [], "quantities": []}),
    (GRIDS, build_small_grid().model_dump(mode="json")),
    (NOTES, build_note("n").model_dump(mode="json")),
    (PROXIES, {"name": "n", "tasks": []}),
    (WATCHES, Watch(name="n", source="/run", suite="s", request={}).model_dump(mode="json", by_alias=True)),
)
"""A document of each kind, whole or nearly so."""

NAMES = [folder.kind.name for folder, _ in DOCUMENTS]
every_kind = pytest.mark.parametrize("folder", [folder for folder, _ in DOCUMENTS], ids=NAMES)


@every_kind
@pytest.mark.parametrize(
    "content", ["", "{", "[]", "3", "null", "{}", '{"schema": "1"}', '{"schema": 1, "runs": 3}', "\0"]
)
def test_what_is_damaged_is_named(folder: Kind, content: str, tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text(content)
    with pytest.raises(RecordError, match=rf"x\.json is not a {folder.kind.name}"):
        folder.kind.read_document_file(path)


@pytest.mark.parametrize(("folder", "document"), DOCUMENTS, ids=NAMES)
def test_what_is_newer_is_refused_whatever_its_form(
    folder: Kind, document: Mapping[str, Any], tmp_path: Path
) -> None:
    path = folder.locate_document(tmp_path, "n")
    path.parent.mkdir()
    for more in ({}, {"more": 1}, {"name": {"of": "another form"}}):
        path.write_text(json.dumps({**document, "schema": folder.kind.schema + 1, **more}))
        with pytest.raises(RecordError, match="written by a newer version") as caught:
            folder.find_document(tmp_path, "n")
        assert "Update" in (caught.value.hint or "")


@every_kind
def test_what_is_not_there_is_told_with_its_nearest(folder: Kind, tmp_path: Path) -> None:
    assert folder.list_names(tmp_path) == []
    path = folder.locate_document(tmp_path, "release-1.2")
    path.parent.mkdir()
    path.write_text("{}")
    with pytest.raises(UsageError, match=r"release-1\.3") as caught:
        folder.find_document(tmp_path, "release-1.3")
    assert "release-1.2" in f"{caught.value.message} {caught.value.hint}"
    with pytest.raises(RecordError, match="cannot be read: No such file"):
        folder.kind.read_document_file(tmp_path / "gone.json")


# Limits, names and digests


def checked() -> tuple[Check, Path]:
    return small_check(), Path("checks") / f"{CHECKS.stem(small_check())}.json"


def test_a_document_is_written_with_its_digest_and_read_as_it_was(tmp_path: Path) -> None:
    check, place = checked()
    path = CHECKS.write_document(tmp_path, CHECKS.stem(check), check)
    assert path == tmp_path / place
    assert CHECKS.read_document_file(path) == check
    content = json.loads(path.read_text())
    body = {name: value for name, value in content.items() if name != "digest"}
    text = json.dumps(body, indent=1, ensure_ascii=False) + "\n"
    assert content["digest"] == hashlib.sha256(text.encode()).hexdigest()
    path.write_text(path.read_text().replace("0.61", "0.62"))
    with pytest.raises(RecordError, match="its content is not what its digest says") as caught:
        CHECKS.read_document_file(path)
    assert "run the same check again" in (caught.value.hint or "")


@every_kind
def test_a_document_without_a_digest_is_refused_from_its_schema_on(folder: Kind, tmp_path: Path) -> None:
    since = folder.kind.digest_since
    path = tmp_path / "x.json"
    path.write_text(json.dumps({"schema": since, "name": "x"}))
    with pytest.raises(RecordError, match="it has no digest"):
        folder.kind.read_document_file(path)


def test_a_size_is_looked_at_before_a_file_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x.json"
    with path.open("wb") as file:
        file.truncate(3 * 10**9)
    monkeypatch.setattr(Path, "read_bytes", lambda _: pytest.fail("it is read"))
    with pytest.raises(RecordError, match="it has 3,000,000,000 bytes, and 67,108,864 are the most"):
        BASELINES.read_document_file(path)


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "x.json")
    with pytest.raises(RecordError, match="a pipe or a device"):
        BASELINES.read_document_file(tmp_path / "x.json")


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("[" * 200_000, "nested too deeply"),
        ('{"schema": 4, "name": ' + "[" * 100_000 + "]" * 100_000 + "}", "nested too deeply"),
        ('{"schema": 4, "name": [' + "[],[" * 1_100_000 + "]", "or 2,000,000 values"),
    ],
)
def test_what_would_fill_the_memory_is_one_error(content: str, reason: str, tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text(content)
    with pytest.raises(RecordError, match=reason):
        BASELINES.read_document_file(path)


def test_a_document_under_the_name_of_another_is_refused(tmp_path: Path) -> None:
    check, _ = checked()
    path = CHECKS.write_document(tmp_path, CHECKS.stem(check), check)
    other = path.rename(path.with_name("20260102T030405-ffffffffffff.json"))
    with pytest.raises(RecordError, match="is the check of another name, '20260102T030405-0123456789ab'"):
        CHECKS.read_document_file(other)
    elsewhere = tmp_path / "mine.json"
    elsewhere.write_bytes(other.read_bytes())
    assert CHECKS.read_document_file(elsewhere) == check


def test_content_of_another_file_is_refused(tmp_path: Path) -> None:
    write_content_file(tmp_path / "a.json", {"n": 1})
    assert read_content_file(tmp_path / "a.json") == {"n": 1}
    (tmp_path / "a.json").rename(tmp_path / "b.json")
    with pytest.raises(ValueError, match="that of another file"):
        read_content_file(tmp_path / "b.json")


@pytest.mark.parametrize("name", ["../../x", "a/b", "..", ".hidden", "a\\b", "a\nb"])
def test_a_name_in_a_document_is_no_path(name: str) -> None:
    with pytest.raises(ValidationError, match="pattern"):
        ExamplesPart(file=name, rows=1, sha256="")


# Golden files


GOLDEN = Path(__file__).parent / "golden"


def golden_documents() -> dict[str, tuple[DocumentKind[Any], Any]]:
    """A document of each kind whose form on disk must stay readable, by the start of its golden files."""
    run = BaselineModel(
        model="m", source="./m", artifact="a" * 64, folder="m-aaaaaaaaaaaa", keys={"T": ("k",)}
    )
    options = {"dtype": "float32", "prompts": ["query=é: "]}
    fields = {"suites": ("s",), "seeds": 2, "options": options, "runs": (run,)}
    node = {"name": "n", "devices": ("cpu",), "workers": 2}
    job = {"kind": "score", "label": "T", "key": "k", "inputs": (0,), "seconds": 1.5}
    stamp = {"id": "0123456789ab", "source": "s", "tables": {}, "counts": {"entries": 1}}
    return {
        "baseline": (BASELINES.kind, Baseline(name="n", when="2026-01-01", **fields)),
        "check": (CHECKS.kind, small_check()),
        "proxy": (PROXIES.kind, build_proxy("n", intercept=0.5)),
        "import": (STAMPS, STAMPS.type.model_validate(stamp)),
        "head": (
            HEADERS,
            RunHeader.model_validate(
                {"host": "h", "pid": 7, "started": "2026", "executor": "e", "command": "c", "jobs": (job,)}
            ),
        ),
        "heartbeat": (HEARTBEATS, Heartbeat.model_validate({"beat": 1, "seconds": 2.5, "nodes": (node,)})),
    }


@pytest.mark.parametrize("name", golden_documents())
def test_the_form_on_disk_is_golden_and_that_before_digests_is_read(name: str) -> None:
    """A change needs a new schema number, a migration and another golden file."""
    kind, document = golden_documents()[name]
    golden = GOLDEN / f"{name}-{kind.schema}.json"
    assert kind.serialize_document(document) == golden.read_text()
    earlier = sorted(GOLDEN.glob(f"{name}-*.json"))
    assert golden in earlier
    # The first form is that before digests.
    assert kind.digest_since == kind.schema - len(earlier) + 2
    for path in earlier:
        assert kind.read_document_file(path) == document
