"""The columns that tables of several papers have: GLUE by task, MTEB by type."""

from __future__ import annotations

from harness.jobs.protocol import ProtocolColumn
from harness.results.reported import TYPES, normalize_metric

SMALL_GLUE = {"recipe": ("glue-quick",), "tasks": ("CoLA", "MRPC", "STS-B", "RTE"), "recipe_settings": {}}
"""The fields of a quick run of GLUE: one cell a task with three seeds, on the four small tasks."""

MAXIMUM = "a score of GLUE is the maximum of its grid on the development set, which errs upward"
"""What the numbers of a grid are, in the paper as here."""


def list_glue_columns(names: str) -> tuple[ProtocolColumn, ...]:
    """The columns of GLUE's tasks by their printed names, and their mean."""
    columns = {name: normalize_metric("GLUE dev", name) for name in names.split()} | {"Avg.": "tasks"}
    return tuple(ProtocolColumn(name=name, step="glue", suite="glue", of=of) for name, of in columns.items())


def list_mteb_columns(step: str, suite: str, average: str, of: str) -> tuple[ProtocolColumn, ...]:
    """The columns of MTEB's types, their printed average, and the mean that it is not.

    Args:
        step: The step whose models are scored.
        suite: The suite.
        average: The printed name of the average.
        of: What it is over: "tasks" or "types".
    """
    other = "types" if of == "tasks" else "tasks"
    columns = {name: f"type:{kind}" for name, kind in TYPES.items()} | {f"over {other}": other, average: of}
    return tuple(ProtocolColumn(name=name, step=step, suite=suite, of=of) for name, of in columns.items())
