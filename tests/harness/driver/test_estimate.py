"""Estimates of a run learn from the records of its tasks, and from all where these tell no speed."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from bench_records import write_models

from harness.core import provenance
from harness.driver import estimate
from harness.results.cost.past import PastScore
from harness.storage.store import Store
from stored_records import iter_records


@pytest.mark.parametrize(
    ("known", "late", "trainings", "some"),
    [
        (True, None, (), True),
        (False, None, (), False),
        (True, "late", (), False),
        (True, None, ("a",), False),
    ],
)
def test_past_work_is_that_of_the_same_tasks_where_it_tells_a_speed(
    known: bool, late: Any, trainings: Any, some: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_models(tmp_path, range(4))
    records = list(iter_records(Store(tmp_path)))
    first = next(record for record in records if record.provenance.get("tokens_encoded"))
    device, task = first.provenance["device"], first.task.name if known else "another"
    monkeypatch.setattr(provenance, "read_cpu_model", lambda: device["name"])
    score = SimpleNamespace(task=SimpleNamespace(name=task), encoding=SimpleNamespace(late_interaction=late))
    prepared: Any = SimpleNamespace(
        plan=SimpleNamespace(open=[score], trials=[], trainings=trainings, cells=[score]),
        request=SimpleNamespace(devices=(device["kind"],), keep_vectors=0.0),
        store=SimpleNamespace(root=tmp_path),
        cache=tmp_path / "cache",
        subjects=[score],
    )
    expected = [
        PastScore.from_record(record) for record in records if not some or record.task.name == first.task.name
    ]
    assert estimate._learn_from_records(prepared).scores.list_scores() == expected
