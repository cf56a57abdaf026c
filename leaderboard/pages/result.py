"""One result in full: scores, identity, provenance, training, its source, and how to measure it again."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

from pydantic import Field

from harness.core.keys import is_of_object
from harness.core.provenance import find_file_commit
from harness.results.results import format_setting
from harness.results.scores import score_text
from harness.storage.store import Store
from leaderboard.data.queries import Entry, EntryResult
from leaderboard.data.settings import copy_folder
from leaderboard.data.suites import SiteSuite
from leaderboard.views import cells
from leaderboard.views.model_scores import (
    TRUST,
    build_score_cell,
    build_score_history,
    collect_reasons,
    describe_result_data,
    list_result_kinds,
)
from leaderboard.views.reproductions import load_comparisons
from leaderboard.views.task_scores import find_asked_scores, format_task_path, load_questions
from leaderboard.views.training import iter_training_charts, list_training_notes
from leaderboard.web.marks import KINDS, explain_marks
from leaderboard.web.page import NotFound, Page
from leaderboard.web.page_state import State, Text, build_address, build_paging
from leaderboard.web.routes import serve_page
from leaderboard.web.site import Site
from leaderboard.web.tables import EMPTY, Cell, Table, describe_value, values_table

Document = Mapping[str, Any]
Metric = tuple[str, str, str, float | int | None]
"""Split, subset, name and value of one raw number of a result."""

SOURCES = {"mteb-results": "https://github.com/embeddings-benchmark/results/blob/{commit}/results"}
"""Where the files of an import lie on the web, by the import's name."""


class _ResultState(State):
    """What the page of a result takes."""

    q: Text = Field("", description="Part of the name of a split, a subset or a metric.")
    rows: Literal["25", "50", "100", "250", "all"] = Field("100", description="Scores on a page.")
    page: int = Field(1, ge=1, le=100_000, description="Which page of scores.")


def _iter_result_tables(record: Document, metrics: Sequence[Metric]) -> Iterator[Table]:
    """Every table of a result, of an import without a record; those of nothing have no rows."""
    parts = ("identity", "provenance", "training")
    identity, provenance, training = (dict(record.get(name) or {}) for name in parts)
    prompts = {"applied": identity.get("prompts"), "asked": provenance.pop("prompts_asked", None)}
    cells, evaluations = training.pop("cells", None) or (), training.pop("evaluations", None) or ()
    caption = "Raw metrics, each in its own unit" if record else "Main scores by split and subset, × 100"
    scores = [(*names, _build_metric_cell(value, imported=not record)) for *names, value in metrics]
    yield values_table("scores", caption, _build_column_labels("split subset metric value"), scores)
    labels = {"name": "Seed", "score": "Score", "key": "Record"}
    seeds = map(_seed_cells, record.get("seeds") or ())
    yield values_table("seeds", "The seeds that it is the mean over: scores × 100", labels, seeds, "score")
    stated = {name: prompt for name, prompt in prompts.items() if prompt is not None}
    yield build_key_table("prompts", "Prompts, by side of the task", stated)
    yield build_key_table("training", "Training", training)
    yield _build_grid_table(cells)
    during = ((one["step"], *metric) for one in evaluations for metric in one["metrics"])
    labels = _build_column_labels("step split metric value")
    yield values_table("evaluations", "Evaluations during training", labels, during)
    yield build_key_table("identity", "Identity: everything that the score depends on", identity)
    yield build_key_table("provenance", "Provenance: what happened to run it", provenance)


def _build_column_labels(names: str) -> dict[str, str]:
    return {name: name.capitalize() for name in names.split()}


def _build_metric_cell(value: float | None, *, imported: bool) -> Cell:
    if value is None:
        note = "An impossible value was here." if imported else "Not a finite number."
        return Cell(text="!" if imported else "–", kind="bad" if imported else "none", note=note)
    return Cell(text=score_text(value) if imported else f"{value:.6g}", value=value)


def _seed_cells(one: Document) -> tuple[Cell, Cell, Cell]:
    """One of the seeds that a mean is over."""
    score = Cell(text="×", kind="failed")
    if one["status"] != "failed":
        score = Cell(text=score_text(one["main_score"]), value=one["main_score"])
    seed = Cell(text=str(one["seed"]), value=one["seed"], href=f"/results/{one['result']}")
    return seed, score, Cell(text=one["key"][:12], value=one["key"])


def _build_grid_table(cells: Sequence[Document]) -> Table:
    """Every run of the grid."""
    names = list(dict.fromkeys(name for cell in cells for name in cell if name != "metrics"))
    runs = [{f"{s} {n}": value for s, n, value in cell.get("metrics", ())} for cell in cells]
    metrics = dict.fromkeys(name for run in runs for name in run)
    values = [[*map(cell.get, names), *map(run.get, metrics)] for cell, run in zip(cells, runs, strict=True)]
    rows = [[EMPTY if v is None else Cell(text=describe_value(v), value=v) for v in row] for row in values]
    labels = {name: name.replace("_", " ") for name in (*names, *metrics)}
    numbers = " ".join(name for name in names if name != "key")
    return values_table("grid", "Every run of the grid: scores as shares of 1", labels, rows, numbers)


def build_key_table(name: str, caption: str, values: Mapping[str, Any]) -> Table:
    """Nested values as a table of keys, joined with dots, and values."""
    rows = []
    for key, value in _flatten_values(values):
        several = isinstance(value, list)
        text = ", ".join(map(_format_plain_value, value)) if several else _format_plain_value(value)
        rows.append((key, Cell(text=text or "none", value=text if several else value)))
    return values_table(name, caption, {"name": "Key", "value": "Value"}, rows, numbers="")


def _flatten_values(value: Any, key: str = "") -> Iterator[tuple[str, Any]]:
    """Pairs of a joined key and a plain value or a list of plain values; an empty name stands for all.

    >>> list(_flatten_values({"a": {"b": 1, "c": [1, 2]}, "d": [{"e": None}], "f": {}, "g": {"": 2}}))
    [('a.b', 1), ('a.c', [1, 2]), ('d.0.e', None), ('g.all', 2)]
    """
    if isinstance(value, list) and any(isinstance(inner, Mapping | list) for inner in value):
        value = dict(enumerate(value))
    if isinstance(value, Mapping):
        for name, inner in value.items():
            segment = str(name) or "all"
            yield from _flatten_values(inner, f"{key}.{segment}" if key else segment)
    else:
        yield key, value


def _format_plain_value(value: Any) -> str:
    if isinstance(value, str):
        return value or "(empty)"
    return "–" if value is None else json.dumps(value, ensure_ascii=False)


def _collect_metrics(document: Any, record: Document, main: str) -> tuple[list[Metric], list[str]]:
    """Every number of a result, and the names of what is not a number."""
    scores = record.get("scores", {}) if record else document
    metrics = [
        (split, subset, name, value)
        for split, subsets in scores.items()
        for subset, values in subsets.items()
        for name, value in (values.items() if record else [(main, values)])
    ]
    other = dict.fromkeys(one[2] for one in metrics if not isinstance(one[3], int | float | None))
    return [one for one in metrics if one[2] not in other], list(other)


def _format_run_command(
    suites: Iterable[SiteSuite], entry: Entry, task: str, identity: Mapping[str, Any]
) -> str:
    """The command that measures a result again; a recipe makes its model again from the parent.

    Empty for a model whose weights are not open, and for an object in Python, which has no files.
    """
    if entry.open_weights is False or is_of_object(identity):
        return ""
    lineage = entry.lineage
    start = lineage.parents[0] if lineage and lineage.parents else None
    model, revision = (start.name, start.revision) if start else (entry.model, entry.revision)
    # Of the hub alone, and of imported models only where the revision is a commit.
    if revision and "/" in model and entry.trust in ("commit", "measured"):
        model = f"{model}@{revision}"
    recipe = ["--recipe", entry.recipe] if entry.recipe else []
    for name, value in identity.get("modified", {}).items():
        recipe += ["--set", format_setting(name, value)]
    dtype = identity.get("encoding", {}).get("dtype", "float32")
    recipe += ["--dtype", dtype] if dtype != "float32" else []
    typed = next((one.typed for one in suites if any(own.name == task for own in one.suite.tasks)), "")
    suite = ["--suite", typed, "--tasks", task] if typed else ["--suite", f"mteb:{task}"]
    return shlex.join(["harness", "run", "--model", model, *recipe, *suite])


def _format_source_url(site: Site, source: str, file: str) -> str:
    """The address of an imported file, at the commit that it was read from where that is known."""
    if not file or source not in SOURCES:
        return ""
    commits = (one.stamp.get("commit") for one in site.queries.list_imports() if one.source == source)
    return SOURCES[source].format(commit=next(commits, None) or "main") + build_address(f"/{file}")


def _find_record_origin(site: Site, row: EntryResult, entry: Entry) -> tuple[str, str]:
    """The folder or remote that has a record, and the commit that wrote its file there; empty without one."""
    if site.prefix:
        # A kept snapshot does not say what lies on disk today.
        return "", ""
    settings, artifact = site.settings, f"model-{entry.artifact}"[:18]
    remote = copy_folder(settings.remote) if settings.remote else None
    for folder in filter(None, [*settings.results, settings.reference]):
        path = Store(folder).locate_record(artifact, row.task, row.key) if row.key else folder / "none"
        if path.is_file():
            # Not the whole path: who reads a site need not know how its machine is laid out.
            return settings.remote if folder == remote else folder.absolute().name, find_file_commit(path)
    return "", ""


def _find_asked_score(site: Site, row: EntryResult) -> tuple[str, str]:
    """A result's score as suites ask for it, and of which splits and subsets; empty where it is the same.

    A file may hold others, and the mean over all of them is not the score to quote.
    """
    score = find_asked_scores(site.queries, row.task, [row.id]).get(row.id)
    if score is None or row.value is None or score_text(score) == score_text(row.value):
        return "", ""
    return score_text(score), load_questions(site.queries)[row.task][0].scope_text


def _list_result_paths(site: Site) -> Iterable[str]:
    """The page of every measured result: imported ones are too many, and hold little more."""
    measured = [e.id for e in site.queries.entries.values() if e.origin == "measured"]
    return [f"/results/{row.id}" for row in site.queries.find_results(entry=measured)]


def _iter_other_sources(site: Site, result: int) -> Iterator[tuple[str, str, str]]:
    """What another source states of a result's score: in words, its page, and what differs."""
    for pair in load_comparisons(site.queries):
        sides = [side for side in (pair.value, pair.base) if side]
        if any(side.result == result for side in sides):
            cell = pair.build_cell()
            others = [f"{score_text(side.score)} by {side.source}" for side in sides if side.result != result]
            yield ": ".join([*others, cell.text]), cell.href, pair.reason


@serve_page(
    "/results/{id}",
    "One result in full: raw metrics, identity, provenance, training, the error of a failure.",
    paths=_list_result_paths,
)
def _show_result(site: Site, state: _ResultState, id: str) -> Page:
    # Numbers of results are below 2**52, which has 16 digits; more would not fit the column.
    rows = site.queries.find_results(id=int(id)) if id.isascii() and id.isdecimal() and len(id) < 17 else []
    if not rows:
        raise NotFound(f"No result is called {id!r}.", hint="The page of a model lists its results.")
    row, path = rows[0], f"/results/{rows[0].id}"
    entry, document = site.queries.entries[row.entry], site.queries.load_result_document(row.id)
    title = f"{entry.model} on {row.task}"
    record: Document = document if entry.origin == "measured" else {}
    metrics, other = _collect_metrics(document, record, row.metric or "main score")
    shown = [one for one in metrics if state.q.casefold() in " ".join(one[:3]).casefold()]
    where = build_paging(len(shown), state, path)
    reasons = collect_reasons(site.queries.find_scores(result=row.id)).get(row.id, frozenset())
    file = site.queries.find_source_file(row)
    kinds = list_result_kinds(entry, row, reasons)
    marks = "".join(KINDS[kind].mark for kind in kinds)
    score = build_score_cell(row, entry).text + marks
    asked_score, scope = _find_asked_score(site, row)
    facts = {"metric": row.metric, "task": f"{row.task} ({scope})" if scope else row.task}
    # A deviation over seeds is that of the mean over all parts.
    quoted = asked_score + marks if scope else score
    source = (cells.SOURCES[entry.origin], cells.STATED if entry.trust == "external" else "")
    quote = explain_marks(cells.describe_score(entry.model, quoted, facts, *source))
    texts = {
        "page": format_task_path(row.task), "trust": TRUST[entry.trust],
        "data": describe_result_data(row.data, reasons),
        "score": score,
        "asked": asked_score, "scope": scope,
        "quote": f"{quote} ({site.as_of})." if row.value is not None else "",
        "bibtex": site.format_bibtex(title, path, quote),
        "command": _format_run_command(
            site.queries.suites.values(), entry, row.task, record.get("identity", {})
        ),
        "source": _format_source_url(site, entry.source, file),
    }  # fmt: skip
    snapshots = site.list_kept()
    history = [build_score_history(snapshots, row)] if snapshots else []
    texts["record"], texts["commit"] = _find_record_origin(site, row, entry)
    controls = [state.ask_name("Scores", "part of a split, subset or metric")]
    names = ("id", "task", "type", "metric", "status", "data", "key")
    training = record.get("training") or {}
    return Page(
        title=title, template="result.html",
        lead=f"{row.metric or 'Main score'} × 100: {texts['score']}, {entry.origin}",
        crumbs=[("Models", "/search"),
                (entry.model, f"/models/{entry.model_slug}")],
        tables=[one for one in (*_iter_result_tables(record, where.cut(shown)), *history) if one.rows],
        charts=list(iter_training_charts(record)) if training else [],
        data={
            **{name: getattr(row, name) for name in names},
            "model": entry.model, "entry": entry.slug, "origin": entry.origin, "score": row.value,
            "quote": quote if row.value is not None else None,
            "source": texts["source"] or None, "record": texts["record"] or None,
            "commit": texts["commit"] or None, "command": texts["command"] or None,
            "trained_on_task": None if entry.trained_on is None else row.task in entry.trained_on,
            "document": document,
        },
        context={
            "row": row, "entry": entry, "record": record, "texts": texts, "paging": where,
            "sources": list(_iter_other_sources(site, row.id)),
            "total": len(metrics), "other": other, "form": state.build_form(path, controls),
        },
        notes=list_training_notes([training]),
    )  # fmt: skip
