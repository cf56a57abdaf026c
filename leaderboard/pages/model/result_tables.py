"""The tables of one result: scores, prompts, training, identity, provenance."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harness.scores import score_text
from leaderboard.tables import EMPTY, Cell, Column, Row, Table

Document = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Metric:
    """One raw number of a result."""

    split: str
    subset: str
    name: str
    value: float | None


def result_tables(record: Document, metrics: Sequence[Metric]) -> Iterator[Table]:
    """Every table of a result; those of nothing have no rows.

    Args:
        record: What was measured; empty for an import.
        metrics: The numbers of this page.
    """
    identity, provenance = dict(record.get("identity") or {}), dict(record.get("provenance") or {})
    training = dict(record.get("training") or {})
    prompts = {"applied": identity.get("prompts"), "asked": provenance.pop("prompts_asked", None)}
    prompts = {name: said for name, said in prompts.items() if said is not None}
    cells, evaluations = training.pop("cells", ()), training.pop("evaluations", ())
    yield _scores(metrics, imported=not record)
    yield _seeds(record.get("seeds") or ())
    yield keyed("prompts", "Prompts, by side of the task", prompts)
    yield keyed("training", "Training", training)
    yield _grid(cells or ())
    yield _evaluations(evaluations or ())
    yield keyed("identity", "Identity: everything that the score depends on", identity)
    yield keyed("provenance", "Provenance: what happened to run it", provenance)


def _scores(metrics: Sequence[Metric], *, imported: bool) -> Table:
    columns = [
        Column(key="split", label="Split"),
        Column(key="subset", label="Subset"),
        Column(key="metric", label="Metric"),
        Column(key="value", label="Value", numeric=True),
    ]
    what = "Main scores by split and subset, × 100" if imported else "Raw metrics, each in its own unit"
    rows = [
        Row(cells=[Cell(text=m.split), Cell(text=m.subset), Cell(text=m.name), _value(m, imported=imported)])
        for m in metrics
    ]
    return Table(name="scores", caption=what, columns=columns, rows=rows)


def _seeds(seeds: Sequence[Document]) -> Table:
    """The results of the seeds that a mean is over."""
    columns = [
        Column(key="name", label="Seed", sticky=True),
        Column(key="score", label="Score", numeric=True),
        Column(key="key", label="Record"),
    ]
    rows = [
        Row(cells=[Cell(text=str(one["seed"]), value=one["seed"], href=f"/results/{one['result']}"),
                   _seed_score(one), Cell(text=one["key"][:12], value=one["key"])])
        for one in seeds
    ]  # fmt: skip
    return Table(
        name="seeds", caption="The seeds that it is the mean over: scores × 100", columns=columns, rows=rows
    )


def _seed_score(one: Document) -> Cell:
    if one["status"] == "failed":
        return Cell(text="×", kind="failed")
    return Cell(text=score_text(one["main_score"]), value=one["main_score"])


def _value(metric: Metric, *, imported: bool) -> Cell:
    if metric.value is None:
        note = "An impossible value was here." if imported else "Not a finite number."
        return Cell(text="!" if imported else "–", kind="bad" if imported else "none", note=note)
    text = score_text(metric.value) if imported else f"{metric.value:.6g}"
    return Cell(text=text, value=metric.value)


def keyed(name: str, caption: str, values: Mapping[str, Any]) -> Table:
    """Nested values as a table of keys, joined with dots, and values."""
    columns = [Column(key="name", label="Key", sticky=True), Column(key="value", label="Value")]
    rows = [Row(cells=[Cell(text=key, value=key), _plain(value)]) for key, value in flattened(values)]
    return Table(name=name, caption=caption, columns=columns, rows=rows)


def flattened(value: Any, key: str = "") -> Iterator[tuple[str, Any]]:
    """Pairs of a joined key and a plain value or a list of plain values.

    A name that is empty stands for all there is: the one side of a task that has no two.

    >>> list(flattened({"a": {"b": 1, "c": [1, 2]}, "d": [{"e": None}], "f": {}, "g": {"": 2}}))
    [('a.b', 1), ('a.c', [1, 2]), ('d.0.e', None), ('g.all', 2)]
    """
    if isinstance(value, Mapping):
        for name, inner in value.items():
            own = str(name) or "all"
            yield from flattened(inner, f"{key}.{own}" if key else own)
    elif isinstance(value, list) and any(isinstance(inner, Mapping | list) for inner in value):
        for at, inner in enumerate(value):
            yield from flattened(inner, f"{key}.{at}")
    else:
        yield key, value


def _plain(value: Any) -> Cell:
    if isinstance(value, list):
        text = ", ".join(_text(one) for one in value)
        return Cell(text=text or "none", value=text)
    return Cell(text=_text(value), value=value)


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value or "(empty)"
    return "–" if value is None else json.dumps(value, ensure_ascii=False)


def _grid(cells: Sequence[Document]) -> Table:
    """Every run of the grid."""
    names = list(dict.fromkeys(name for cell in cells for name in cell if name != "metrics"))
    metrics = list(
        dict.fromkeys((split, name) for cell in cells for split, name, _ in cell.get("metrics", ()))
    )
    columns = [Column(key=name, label=name.replace("_", " "), numeric=name != "key") for name in names]
    columns += [Column(key=f"{s}:{n}", label=n, group=s, numeric=True) for s, n in metrics]
    rows = []
    for cell in cells:
        values = {(split, name): value for split, name, value in cell.get("metrics", ())}
        told = [_cell(name, cell.get(name)) for name in names]
        rows.append(Row(cells=[*told, *(_cell("", values.get(pair)) for pair in metrics)]))
    return Table(
        name="grid", caption="Every run of the grid: scores as shares of 1", columns=columns, rows=rows
    )


def _cell(name: str, value: Any) -> Cell:
    if value is None:
        return EMPTY
    if isinstance(value, bool):
        return Cell(text="yes" if value else "no", value=value)
    if isinstance(value, int | float):
        return Cell(text=f"{value:.6g}", value=value)
    return Cell(text=str(value)[:12] if name == "key" else _text(value), value=str(value))


def _evaluations(evaluations: Sequence[Document]) -> Table:
    columns = [
        Column(key="step", label="Step", numeric=True),
        Column(key="split", label="Split"),
        Column(key="metric", label="Metric"),
        Column(key="value", label="Value", numeric=True),
    ]
    rows = [
        Row(cells=[_cell("", one["step"]), Cell(text=split), Cell(text=name), _cell("", value)])
        for one in evaluations
        for split, name, value in one["metrics"]
    ]
    return Table(name="evaluations", caption="Evaluations during training", columns=columns, rows=rows)
