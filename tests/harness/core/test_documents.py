"""Documents of every kind under a name: what is damaged, newer or gone is named, and never read as one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from check_data import small_check
from harness.checks.baselines import BASELINES
from harness.checks.outcome import CHECKS
from harness.core.documents import DocumentFolder
from harness.core.errors import RecordError, UsageError
from harness.proxy.document import PROXIES
from harness.watch.state import WATCHES, Watch

Kind = DocumentFolder[Any]

DOCUMENTS: tuple[tuple[Kind, Mapping[str, Any]], ...] = (
    (BASELINES, {"name": "n", "when": "", "suites": ["s"], "seeds": 1, "options": {}, "runs": []}),
    (CHECKS, small_check().to_json()),
    (PROXIES, {"name": "n", "tasks": []}),
    (WATCHES, json.loads(Watch(name="n", source="/run", suite="s", request={}).to_json())),
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
