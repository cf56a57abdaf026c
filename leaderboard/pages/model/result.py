"""One result in full: every raw metric, what it depends on, what happened to run it, how it was trained."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sqlalchemy import select

from harness.scores import score_text
from leaderboard.database import SCORES
from leaderboard.filters import Control, Form, form
from leaderboard.pages.model.facts import Fact
from leaderboard.pages.model.page import KNOWN
from leaderboard.pages.model.result_tables import Metric, result_tables
from leaderboard.pages.model.training import Figure, figures_of, notes_on
from leaderboard.pages.suite.cells import training_text
from leaderboard.pages.task.names import task_path
from leaderboard.paging import Paging, paging
from leaderboard.queries import Entry, Queries
from leaderboard.scopes import REASONS, WHY
from leaderboard.state import address
from leaderboard.tables import Cell, Table
from leaderboard.words import over_seeds, seeds_text, some_seeds

if TYPE_CHECKING:
    from leaderboard.views.result import ResultState

Document = Mapping[str, Any]


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
    figures: Sequence[Figure]
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
    document = queries.document(row.id)
    record: Document = document if entry.origin == "measured" else {}
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


def _facts(queries: Queries, entry: Entry, row: Any, record: Document) -> Iterator[Fact]:
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


def _texts_note(record: Document) -> str:
    texts = record["provenance"].get("texts")
    return f"of {texts:,} texts" if isinstance(texts, int) else ""


def _data_note(queries: Queries, row: Any) -> str:
    """What suites say of the data."""
    with queries.reading() as connection:
        codes = set(connection.scalars(select(SCORES.c.reason).where(SCORES.c.result == row.id)))
    if not codes:
        return "no suite asks for this task"
    if 0 in codes:
        return "as suites pin it"
    return "; ".join(WHY[REASONS[code]] for code in sorted(codes))


def _metrics(document: Any, record: Document, row: Any) -> tuple[list[Metric], list[str]]:
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
