"""What harness.toml says of a task that a recipe trains a model for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from finetune.glue.tasks import TASKS
from harness.errors import UsageError
from suites._local_keys import GUIDE, flag, require_known, string, strings
from suites._local_kinds import Kind


@dataclass(frozen=True, kw_only=True)
class Learning:
    """How a model is trained for a task and scored on it.

    Attributes:
        metrics: Names in `harness.metrics.METRICS`; early stopping watches the first.
        positive: The label that is class 1 of two; empty for the last in order.
        like: The task of GLUE whose settings in a recipe hold.
        from_mnli: Whether it starts from the recipe's MNLI model, where the recipe has one.
    """

    metrics: tuple[str, ...]
    positive: str = ""
    like: str
    from_mnli: bool = False


def learning(kind: Kind, table: Mapping[str, Any], where: str) -> Learning:
    """Read what a task's table says.

    Raises:
        UsageError: It cannot be followed.
    """
    metrics = strings(table, "metrics", where, kind.metrics)
    for name in metrics:
        require_known(name, kind.allowed, f"{where} 'metrics':", f"metric of a {table['type']} task")
    like = string(table, "like", where, kind.like)
    require_known(like, TASKS, f"{where} 'like':", "task of GLUE")
    return Learning(
        metrics=metrics,
        positive=_positive(table, metrics, where),
        like=like,
        from_mnli=flag(table, "from_mnli", where),
    )


def _positive(table: Mapping[str, Any], metrics: tuple[str, ...], where: str) -> str:
    """The label that F1 counts; a label may be a whole number."""
    if "positive" not in table:
        return ""
    value = table["positive"]
    if type(value) not in (int, str) or value == "":
        raise UsageError(f"{where} 'positive' is {value!r}, not a label.", hint=GUIDE)
    if "f1" not in metrics:
        raise UsageError(
            f"{where} 'positive' says which label f1 counts, and 'metrics' has no f1.",
            hint=f"Leave it out, or add f1 to 'metrics'. {GUIDE}",
        )
    return str(value)
