"""What papers print of a model, beside what was measured here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from harness.scores import score_text
from leaderboard.pages.model.suites import Standing
from leaderboard.queries import Entry
from leaderboard.reported.printed import AVERAGE, SCORES, Paper, Printed, plain, title
from leaderboard.state import address
from leaderboard.tables import EMPTY, Cell, Column, Row, Table

GLUE = "GLUE dev"
"""The printed suite whose columns are those of the suite glue."""


def printed_name(row: Printed) -> str:
    """The name under which the site lists a printed row's model."""
    return f"{row.model} ({row.size_class})" if row.size_class else row.model


def printed_rows(papers: Mapping[str, Paper], model: str) -> list[tuple[str, Printed]]:
    """The printed scores of a model with their papers: of a hub model, or of a name as printed."""
    every = [(slug, row) for slug, paper in papers.items() for row in paper.rows]
    own = {row.hub_id or printed_name(row) for _, row in every if model in (printed_name(row), row.hub_id)}
    alike = own - {""}
    return [
        (slug, row)
        for slug, row in every
        if row.unit in SCORES and row.number is not None and (row.hub_id or printed_name(row)) in alike
    ]


def other_names(rows: Sequence[tuple[str, Printed]], model: str) -> list[str]:
    """What else the model of printed rows is called."""
    names = {name for _, row in rows for name in (row.hub_id, printed_name(row)) if name}
    return sorted(names - {model})


def printed_table(
    rows: Sequence[tuple[str, Printed]], entry: Entry | None, standings: Sequence[Standing]
) -> Table | None:
    """The table of printed scores; None without any."""
    if not rows:
        return None
    ours = _ours(standings) if entry is not None and entry.origin == "measured" else {}
    columns = [c for c in COLUMNS if ours or c.key != "ours"]
    return Table(
        name="printed",
        caption="What papers print of this model",
        columns=columns,
        rows=[Row(cells=list(_cells(slug, row, ours))) for slug, row in rows],
        notes=list(_notes(ours)),
    )


COLUMNS = [
    Column(key="name", label="Paper", sticky=True),
    Column(key="table", label="Table"),
    Column(key="model", label="Printed as"),
    Column(key="setting", label="Setting"),
    Column(key="suite", label="Suite"),
    Column(key="metric", label="Column"),
    Column(key="value", label="Printed", numeric=True, note="As printed, with its interval if there is one."),
    Column(key="ours", label="Measured here", numeric=True,
           note="The chosen entry's number by this paper's convention, × 100."),
]  # fmt: skip


def _cells(slug: str, row: Printed, ours: Mapping[tuple[str, str], float]) -> Iterator[Cell]:
    yield Cell(text=row.paper, value=slug, href=address(f"/papers/{slug}"))
    yield Cell(text=title(row.table), value=row.table)
    yield Cell(text=f"{row.model} {row.size_class}".strip())
    yield Cell(text=row.setting)
    yield Cell(text=row.suite)
    yield Cell(text=row.metric)
    interval = f" [{row.ci_low}, {row.ci_high}]" if row.ci_low and row.ci_high else ""
    unit = "" if row.unit == SCORES[0] else row.unit
    note = "; ".join(part for part in (unit, row.note) if part)
    yield Cell(text=f"{row.value}{interval}", value=row.number, kind="reported", note=note)
    if ours:
        value = ours.get((slug, plain(row.suite, row.metric))) if row.suite == GLUE else None
        yield EMPTY if value is None else Cell(text=score_text(value), value=value, kind="measured")


def _ours(standings: Sequence[Standing]) -> dict[tuple[str, str], float]:
    """The measured numbers of GLUE, by paper and printed column."""
    found: dict[tuple[str, str], float] = {}
    for one in (s for s in standings if s.listed.slug == "glue" and s.grid.view):
        for at, column in enumerate(one.listed.suite.columns):
            if one.grid.counted[0, at]:
                found[one.grid.view, column.name] = float(one.grid.values[0, at])
        if one.grid.over_tasks.complete[0]:
            found[one.grid.view, AVERAGE] = float(one.grid.over_tasks.values[0])
    return found


def _notes(ours: Mapping[tuple[str, str], float]) -> Iterator[str]:
    yield "Printed numbers are each paper's own: recipes, seeds and choices differ, and none is in any mean."
    if ours:
        yield "Measured numbers are of the entry that is shown above, under its own recipe."
