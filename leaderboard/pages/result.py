"""The tables of one result: scores, prompts, training, identity, provenance."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from harness.scores import score_text
from leaderboard.data.queries import Entry, Queries
from leaderboard.data.suites import REASONS, WHY
from leaderboard.pages._suite_table import training_text
from leaderboard.pages._task_scores import task_path
from leaderboard.pages._training import figures_of, notes_on
from leaderboard.pages.model import KNOWN, Fact
from leaderboard.web.charts import Chart
from leaderboard.web.filters import Control, Form, form
from leaderboard.web.formats import over_seeds, seeds_text, some_seeds
from leaderboard.web.page import Crumb, NotFound, Page, PageRoute
from leaderboard.web.parameters import Paging, State, Text, address, paging
from leaderboard.web.tables import EMPTY, Cell, Column, Row, Table

if TYPE_CHECKING:
    from leaderboard.web.site import Site


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


ResultDocument = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class ResultPage:
    """What the template of a result takes.

    Attributes:
        tables: Those that have rows, in the page's order.
        facts: The result in a few words.
        error: Kind, message, hint and traceback of a failure; None without one.
        paging: Of the scores.
        form: The form above it, with the filters in force.
        total: How many scores there are before the filter.
        unequal: Metrics that are no single numbers: they stand in the JSON twin alone.
        figures: Plots of the training.
        notes: What must be read with the page.
        path: The page's own.
        data: For the JSON twin.
    """

    tables: Sequence[Table]
    facts: Sequence[Fact]
    error: Mapping[str, str] | None
    paging: Paging
    form: Form
    total: int
    unequal: Sequence[str]
    figures: Sequence[Chart]
    notes: Sequence[str]
    path: str
    data: Mapping[str, Any] = field(default_factory=dict)

    @property
    def shown(self) -> frozenset[str]:
        """The names of the tables."""
        return frozenset(table.name for table in self.tables)


def result_page(queries: Queries, row: Any, state: ResultState, path: str) -> ResultPage:
    """The page of a row of the index."""
    entry = queries.entries[row.entry]
    document = queries.result_document(row.id)
    record: ResultDocument = document if entry.origin == "measured" else {}
    metrics, unequal = _metrics(document, record, row)
    kept = [metric for metric in metrics if _keeps(state, metric)]
    where = paging(len(kept), state, path)
    shown = kept[where.first - 1 : where.last] if kept else []
    training = record.get("training") or {}
    return ResultPage(
        tables=[table for table in result_tables(record, shown) if table.rows],
        facts=list(_facts(queries, entry, row, record)),
        error=record.get("error"),
        paging=where,
        form=form(state, path, _controls(state, metrics)),
        total=len(metrics),
        unequal=unequal,
        figures=list(figures_of(record)) if training else [],
        notes=notes_on([training]),
        path=path,
        data=_data(entry, row, document),
    )


def _data(entry: Entry, row: Any, document: Any) -> dict[str, Any]:
    about = {name: getattr(row, name) for name in ("id", "task", "type", "metric", "status", "data", "key")}
    owner = {"model": entry.model, "entry": entry.slug, "origin": entry.origin}
    return {**about, **owner, "score": row.value, "document": document}


def _facts(queries: Queries, entry: Entry, row: Any, record: ResultDocument) -> Iterator[Fact]:
    model = address(f"/models/{entry.model_slug}", {"entry": entry.slug})
    yield "Model", entry.model, model, ""
    yield "Task", row.task, task_path(row.task), row.type or "of no known type"
    yield "Main metric", row.metric or "not known", "", ""
    yield "Score × 100", score_of(row, entry), "", seeds_text(entry.seeds) if entry.of_seeds else ""
    yield "Origin", entry.origin, "", KNOWN[entry.trust]
    yield "Revision of the model", entry.revision or "not said", "", ""
    yield "Treatment", entry.treatment or "not said", "", ""
    if entry.lineage:
        yield "Made by", training_text(entry), address(f"/recipes/{entry.lineage.recipe}"), ""
    if row.trained_on:
        yield "Trained on its texts", f"{row.trained_on:,}", "", _texts_note(record)
    yield "Data", row.data or "its source proves no revision", "", _data_note(queries, row)
    if row.key:
        yield "Key", row.key, "", ""
    if record.get("examples"):
        yield "Per-example file", record["examples"]["file"], "", f"{record['examples']['rows']:,} rows"
    if record.get("run"):
        yield "Run file", record["run"]["file"], "", f"the first {record['run']['depth']:,} of each query"


def score_of(row: Any, entry: Entry) -> str:
    """A result's score times 100, or why there is none."""
    if row.status == "failed":
        return "failed"
    if row.status == "part":
        return some_seeds(row.seeds or 0, len(entry.seeds)).text
    return over_seeds(Cell(text=score_text(row.value)), row.deviation, entry.seeds).text


def _texts_note(record: ResultDocument) -> str:
    texts = record["provenance"].get("texts")
    return f"of {texts:,} texts" if isinstance(texts, int) else ""


def _data_note(queries: Queries, row: Any) -> str:
    """What suites say of the data."""
    codes = {score.reason for score in queries.scores(result=row.id)}
    if not codes:
        return "no suite asks for this task"
    if 0 in codes:
        return "as suites pin it"
    return "; ".join(WHY[REASONS[code]] for code in sorted(codes))


def _metrics(document: Any, record: ResultDocument, row: Any) -> tuple[list[Metric], list[str]]:
    """Every number by split, subset and metric, and the names of what is no number."""
    found: list[Metric] = []
    unequal: dict[str, None] = {}
    for split, subsets in (record.get("scores", {}) if record else document).items():
        for subset, values in subsets.items():
            for name, value in values.items() if record else [(row.metric or "main score", values)]:
                if value is None or isinstance(value, int | float):
                    found.append(Metric(split=split, subset=subset, name=name, value=value))
                else:
                    unequal[name] = None
    return found, list(unequal)


def _keeps(state: ResultState, metric: Metric) -> bool:
    text = f"{metric.subset} {metric.name}".casefold()
    return state.split in ("", metric.split) and state.q.casefold() in text


def _controls(state: ResultState, metrics: Sequence[Metric]) -> list[Control]:
    what = "part of a subset or metric"
    found = [Control(kind="search", name="q", label="Scores", value=state.q, placeholder=what)]
    splits = list(dict.fromkeys(metric.split for metric in metrics))
    if len(splits) > 1:
        options = [("", "any"), *((split, split) for split in splits)]
        found.append(Control(kind="select", name="split", label="Split", value=state.split, options=options))
    return found


class ResultState(State):
    """What the page of a result can be asked."""

    q: Text = Field("", description="Part of the name of a subset or a metric.")
    split: Text = Field("", description="Only scores of this split.")
    rows: Literal["25", "50", "100", "250", "all"] = Field("100", description="Scores on a page.")
    page: int = Field(1, ge=1, le=100_000, description="Which page of scores.")


def view(site: Site, state: ResultState, id: str) -> Page:
    """The page of a result."""
    rows = site.queries.results(id=int(id)) if id.isascii() and id.isdecimal() and len(id) < 17 else []
    if not rows:
        raise NotFound(f"No result is called {id!r}.", hint="The page of a model lists its results.")
    row = rows[0]
    found = result_page(site.queries, row, state, f"/results/{row.id}")
    entry = site.queries.entries[row.entry]
    return Page(
        title=f"{entry.model} on {row.task}",
        template="result.html",
        lead=_lead(row, entry),
        crumbs=[
            Crumb(label="Models", href="/"),
            Crumb(label=entry.model, href=f"/models/{entry.model_slug}"),
        ],
        tables=found.tables,
        data=found.data,
        context=found,
        notes=found.notes,
        charts=found.figures,
    )


def _lead(row: Any, entry: Entry) -> str:
    if row.status == "failed":
        return "It was run and failed."
    return f"{row.metric or 'Main score'} × 100: {score_of(row, entry)}, {entry.origin}."


def all_paths(site: Site) -> Iterable[str]:
    """The page of every measured result: imported ones are too many, and hold little more."""
    measured = [e.id for e in site.queries.entries.values() if e.origin == "measured"]
    return [f"/results/{row.id}" for row in site.queries.results(entry=measured)]


PAGE = PageRoute(
    path="/results/{id}",
    state=ResultState,
    view=view,
    summary="One result in full: raw metrics, identity, provenance, training, and the error of a failure.",
    all_paths=all_paths,
)

PAGES = (PAGE,)
