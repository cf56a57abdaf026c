"""One result in full: scores, identity, provenance, training, its source, and how to measure it again."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import Field

from harness.scores import score_text
from leaderboard.data.queries import Entry
from leaderboard.pages._model_scores import TRUST, data_text, entry_scores
from leaderboard.pages._task_scores import task_path
from leaderboard.pages._training import notes_on, training_charts
from leaderboard.web.filters import Control, Form, form
from leaderboard.web.formats import over_seeds, some_seeds
from leaderboard.web.page import Crumb, NotFound, Page, PageRoute
from leaderboard.web.parameters import Paging, State, Text, address, paging
from leaderboard.web.site import Site
from leaderboard.web.tables import EMPTY, Cell, Column, Row, Table

Document = Mapping[str, Any]
Metric = tuple[str, str, str, Any]
"""Split, subset, name and value of one raw number of a result."""

SOURCES = {"mteb-results": "https://github.com/embeddings-benchmark/results/blob/main/results"}
"""Where the files of an import lie on the web, by the import's name."""


class ResultState(State):
    """What the page of a result takes."""

    q: Text = Field("", description="Part of the name of a subset or a metric.")
    split: Text = Field("", description="Only scores of this split.")
    rows: Literal["25", "50", "100", "250", "all"] = Field("100", description="Scores on a page.")
    page: int = Field(1, ge=1, le=100_000, description="Which page of scores.")


@dataclass(frozen=True, kw_only=True)
class ResultPage:
    """What the template of a result takes beside the tables.

    Attributes:
        row: The result, without its document.
        entry: Whose it is.
        record: What was measured; empty for an import.
        task_path: The page of its task.
        trust: How far the model's revision is known, in words.
        data: Which data it is of, and whether suites count it, in words.
        score: The score times 100, or why there is none.
        source: The address of the file of an imported score; empty where it is not known.
        command: What measures it again; empty where nothing does.
        paging: Of the scores.
        form: The filters of the scores.
        total: How many scores there are before the filter.
        other: Metrics that are not single numbers: they stand in the JSON form alone.
    """

    row: Any
    entry: Entry
    record: Document
    task_path: str
    trust: str
    data: str
    score: str
    source: str
    command: str
    paging: Paging
    form: Form
    total: int
    other: Sequence[str]


def result_tables(record: Document, metrics: Sequence[Metric]) -> Iterator[Table]:
    """Every table of a result; those of nothing have no rows.

    Args:
        record: What was measured; empty for an import.
        metrics: The numbers of this page.
    """
    identity, provenance = dict(record.get("identity") or {}), dict(record.get("provenance") or {})
    training = dict(record.get("training") or {})
    prompts = {"applied": identity.get("prompts"), "asked": provenance.pop("prompts_asked", None)}
    cells, evaluations = training.pop("cells", None) or (), training.pop("evaluations", None) or ()
    yield scores_table(metrics, imported=not record)
    yield _seeds_table(record.get("seeds") or ())
    yield keyed(
        "prompts", "Prompts, by side of the task", {n: p for n, p in prompts.items() if p is not None}
    )
    yield keyed("training", "Training", training)
    yield _grid_table(cells)
    yield _evaluations_table(evaluations)
    yield keyed("identity", "Identity: everything that the score depends on", identity)
    yield keyed("provenance", "Provenance: what happened to run it", provenance)


def scores_table(metrics: Sequence[Metric], *, imported: bool) -> Table:
    """The numbers of a result by split and subset."""
    caption = "Main scores by split and subset, × 100" if imported else "Raw metrics, each in its own unit"
    return Table(
        name="scores",
        caption=caption,
        columns=[
            Column(key=name, label=name.capitalize(), numeric=name == "value") for name in METRIC_COLUMNS
        ],
        rows=[
            Row(cells=[*(Cell(text=t) for t in texts), _metric_cell(v, imported)]) for *texts, v in metrics
        ],
    )


METRIC_COLUMNS = ("split", "subset", "metric", "value")


def _metric_cell(value: float | None, imported: bool) -> Cell:
    if value is None:
        note = "An impossible value was here." if imported else "Not a finite number."
        return Cell(text="!" if imported else "–", kind="bad" if imported else "none", note=note)
    return Cell(text=score_text(value) if imported else f"{value:.6g}", value=value)


def _seeds_table(seeds: Sequence[Document]) -> Table:
    """The results of the seeds that a mean is over."""
    rows = []
    for one in seeds:
        score = Cell(text=score_text(one["main_score"]), value=one["main_score"])
        name = Cell(text=str(one["seed"]), value=one["seed"], href=f"/results/{one['result']}")
        key = Cell(text=one["key"][:12], value=one["key"])
        rows.append(
            Row(cells=[name, Cell(text="×", kind="failed") if one["status"] == "failed" else score, key])
        )
    columns = [
        Column(key="name", label="Seed", sticky=True),
        Column(key="score", label="Score", numeric=True),
        Column(key="key", label="Record"),
    ]
    return Table(
        name="seeds", caption="The seeds that it is the mean over: scores × 100", columns=columns, rows=rows
    )


def keyed(name: str, caption: str, values: Mapping[str, Any]) -> Table:
    """Nested values as a table of keys, joined with dots, and values."""
    columns = [Column(key="name", label="Key", sticky=True), Column(key="value", label="Value")]
    rows = [Row(cells=[Cell(text=key, value=key), _value_cell(value)]) for key, value in flattened(values)]
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


def _value_cell(value: Any) -> Cell:
    if isinstance(value, list):
        text = ", ".join(_text(one) for one in value)
        return Cell(text=text or "none", value=text)
    return Cell(text=_text(value), value=value)


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value or "(empty)"
    return "–" if value is None else json.dumps(value, ensure_ascii=False)


def _grid_table(cells: Sequence[Document]) -> Table:
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
        own = [_grid_cell(name, cell.get(name)) for name in names]
        rows.append(Row(cells=[*own, *(_grid_cell("", values.get(pair)) for pair in metrics)]))
    return Table(
        name="grid", caption="Every run of the grid: scores as shares of 1", columns=columns, rows=rows
    )


def _grid_cell(name: str, value: Any) -> Cell:
    if value is None:
        return EMPTY
    if isinstance(value, bool):
        return Cell(text="yes" if value else "no", value=value)
    if isinstance(value, int | float):
        return Cell(text=f"{value:.6g}", value=value)
    return Cell(text=str(value)[:12] if name == "key" else _text(value), value=str(value))


def _evaluations_table(evaluations: Sequence[Document]) -> Table:
    labels = ("step", "split", "metric", "value")
    columns = [
        Column(key=name, label=name.capitalize(), numeric=name in ("step", "value")) for name in labels
    ]
    rows = [
        Row(cells=[_grid_cell("", one["step"]), Cell(text=split), Cell(text=name), _grid_cell("", value)])
        for one in evaluations
        for split, name, value in one["metrics"]
    ]
    return Table(name="evaluations", caption="Evaluations during training", columns=columns, rows=rows)


def score_of(row: Any, entry: Entry) -> str:
    """A result's score times 100, or why there is none."""
    if row.status == "failed":
        return "failed"
    if row.status == "part":
        return some_seeds(row.seeds or 0, len(entry.seeds)).text
    return over_seeds(Cell(text=score_text(row.value)), row.deviation, entry.seeds).text


def command_of(entry: Entry, task: str) -> str:
    """The command that measures a result again.

    A model of a recipe is made again from its parent; of a folder the name is all that is known.
    """
    made = entry.lineage
    model = made.parents[0].name if made and made.parents else entry.model
    recipe = ["--recipe", entry.recipe] if entry.recipe else []
    suite = "glue" if entry.output == "label" else "mteb"
    words = ["harness", "run", "--model", model, *recipe, "--suite", f"{suite}:{task}"]
    return shlex.join(words) if entry.origin != "reported" else ""


def source_of(entry: Entry, facts: Mapping[str, Any], task: str) -> str:
    """The address of the file that an imported score is from; empty where it is not known."""
    base, folder = SOURCES.get(entry.source, ""), facts.get("folder")
    return f"{base}{address(f'/{folder}/{task}.json')}" if base and folder else ""


def metrics_of(document: Any, record: Document, main: str) -> tuple[list[Metric], list[str]]:
    """Every number of a result, and the names of what is not a number."""
    found: list[Metric] = []
    other: dict[str, None] = {}
    for split, subsets in (record.get("scores", {}) if record else document).items():
        for subset, values in subsets.items():
            for name, value in values.items() if record else [(main, values)]:
                if value is None or isinstance(value, int | float):
                    found.append((split, subset, name, value))
                else:
                    other[name] = None
    return found, list(other)


def view(site: Site, state: ResultState, id: str) -> Page:
    """The page of a result."""
    rows = site.queries.results(id=int(id)) if id.isascii() and id.isdecimal() and len(id) < 17 else []
    if not rows:
        raise NotFound(f"No result is called {id!r}.", hint="The page of a model lists its results.")
    row, path = rows[0], f"/results/{rows[0].id}"
    entry, document = site.queries.entries[row.entry], site.queries.result_document(row.id)
    record: Document = document if entry.origin == "measured" else {}
    metrics, other = metrics_of(document, record, row.metric or "main score")
    shown = [
        m for m in metrics if state.split in ("", m[0]) and state.q.casefold() in f"{m[1]} {m[2]}".casefold()
    ]
    where = paging(len(shown), state, path)
    splits = list(dict.fromkeys(split for split, *_ in metrics))
    options = [("", "any"), *((split, split) for split in splits)]
    placeholder = "part of a subset or metric"
    controls = [Control(kind="search", name="q", label="Scores", value=state.q, placeholder=placeholder)]
    if len(splits) > 1:
        controls.append(
            Control(kind="select", name="split", label="Split", value=state.split, options=options)
        )
    training = record.get("training") or {}
    reasons = entry_scores(site.queries, entry).reasons.get(row.id, frozenset())
    context = ResultPage(
        row=row, entry=entry, record=record, task_path=task_path(row.task), trust=TRUST[entry.trust],
        data=data_text(row.data, reasons),
        score=score_of(row, entry), source=source_of(entry, site.queries.facts(entry), row.task),
        command=command_of(entry, row.task), paging=where, form=form(state, path, controls), total=len(metrics),
        other=other,
    )  # fmt: skip
    tables = result_tables(record, shown[where.first - 1 : where.last] if shown else [])
    return Page(
        title=f"{entry.model} on {row.task}",
        template="result.html",
        lead=f"{row.metric or 'Main score'} × 100: {context.score}, {entry.origin}",
        crumbs=[
            Crumb(label="Models", href="/search"),
            Crumb(label=entry.model, href=f"/models/{entry.model_slug}"),
        ],
        tables=[table for table in tables if table.rows],
        charts=list(training_charts(record)) if training else [],
        data=_data(context, document),
        context=context,
        notes=notes_on([training]),
    )


def _data(page: ResultPage, document: Any) -> dict[str, Any]:
    about = {
        name: getattr(page.row, name) for name in ("id", "task", "type", "metric", "status", "data", "key")
    }
    entry = {"model": page.entry.model, "entry": page.entry.slug, "origin": page.entry.origin}
    more = {"score": page.row.value, "source": page.source or None, "command": page.command or None}
    return {**about, **entry, **more, "document": document}


def all_paths(site: Site) -> Iterable[str]:
    """The page of every measured result: imported ones are too many, and hold little more."""
    measured = [e.id for e in site.queries.entries.values() if e.origin == "measured"]
    return [f"/results/{row.id}" for row in site.queries.results(entry=measured)]


PAGES = (
    PageRoute(
        path="/results/{id}",
        state=ResultState,
        view=view,
        summary="One result in full: raw metrics, identity, provenance, training, and the error of a failure.",
        all_paths=all_paths,
    ),
)
