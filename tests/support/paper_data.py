"""Records of models that papers print: of GLUE with metrics apart, and of tasks of vectors."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import site_data
from fakes import encoding
from harness.core.keys import build_evaluation_identity, digest, serialize_canonical
from harness.core.types import Artifact, Task
from harness.storage.record import Record, build_task_part
from suites.glue import TASKS

ACCURACY, F1 = 0.8, 0.9


def with_metrics(model: Artifact, name: str) -> Record:
    """A GLUE record whose metrics differ, so that conventions do."""
    record = site_data.trained(model, name, ACCURACY)
    metrics = {metric: ACCURACY if at == 0 else F1 for at, metric in enumerate(TASKS[name].metrics)}
    splits = {split: dict.fromkeys(subsets, metrics) for split, subsets in record.scores.items()}
    return record.model_copy(update={"scores": splits})


def vectors(model: Artifact, of: Task, score: float, **how: object) -> Record:
    identity = json.loads(serialize_canonical(build_evaluation_identity(model, of, encoding(**how), seed=42)))
    some = site_data.scored(model, of.name, score)
    splits = {split: {s: {"main_score": score} for s in of.subsets} for split in of.splits}
    changed: Mapping[str, Any] = {"key": digest(identity), "identity": identity, "task": build_task_part(of)}
    return some.model_copy(update={**changed, "scores": splits})
