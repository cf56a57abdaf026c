"""A model, or a backbone of the papers under all of its names: facts, ranks, results, training, checks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

from pydantic import Field

from harness.results.cost.price import read_prices
from harness.results.reported import AVERAGE, SCORES, TYPES, PaperValue, normalize_metric
from leaderboard.data.backbones import Backbone, find_backbone, load_backbones, resolve_base_backbones
from leaderboard.data.compute import build_entry_compute, load_entry_compute
from leaderboard.data.entries import compute_precedence
from leaderboard.data.paper_lines import SUITES, format_anchor, format_table_title, group_table_lines
from leaderboard.data.queries import Entry, Queries
from leaderboard.views.cells import build_size_cell
from leaderboard.views.documents import build_checks_table
from leaderboard.views.model_scores import (
    TRUST,
    EntryResults,
    Standing,
    build_rank_history,
    build_result_fields,
    build_source_cell,
    build_suites_tables,
    format_entry_name,
    load_entry_results,
)
from leaderboard.views.paper_tables import build_printed_cell
from leaderboard.views.reproductions import COMPARISON_FIELDS, join_models, load_comparisons
from leaderboard.views.sorting import fill_table, sort_rows
from leaderboard.views.suite_table import build_task_cell, format_entry_kinds, mean_cell
from leaderboard.views.task_scores import format_task_path
from leaderboard.views.training import (
    build_training_table,
    collect_sweeps,
    iter_training_charts,
    sweep_charts,
    sweep_table,
)
from leaderboard.web.page import Moved, Page, build_missing_error, check_name
from leaderboard.web.page_state import FilterForm, Paging, State, Text, build_address, build_paging
from leaderboard.web.routes import serve_page
from leaderboard.web.site import Site
from leaderboard.web.table_formats import format_parameters
from leaderboard.web.tables import EMPTY, Cell, Table, describe_value, link, values_table

SIDE_BY_SIDE, SHOWN = 6, 25
"""Entries whose results stand side by side, and comparisons of numbers of several sources."""

AGAINST = {"parameters": ("parameters", "size"), "operations": ("operations", "forward compute"),
           "flops": ("pretraining", "training compute")}  # fmt: skip
"""What the page of trade-offs sets a score against, by its parameter: the fact that tells it, and a label."""

FACTS = (
    "parameters", "n_embedding_parameters", "dimension", "max_tokens", "tokens_unlimited", "memory_usage_mb",
    "memory_note", "license", "released", "open_weights", "languages", "framework", "modalities",
    "similarity_fn_name", "use_instructions", "adapted_from", "superseded_by", "training_datasets",
    "public_training_data", "public_training_code", "training_data_link", "training_code_link", "reference",
)  # fmt: skip
"""What is stated of models, by the names in the JSON form."""


class _ModelState(State):
    """What the page of a model takes."""

    entry: Text = Field(
        "", description="The entry to show in full, by its name in URLs; empty for the best known."
    )
    q: Text = Field("", description="Part of the name of a task, of its type, or of a suite that has it.")
    sort: Text = Field("name", description="A column of the results; with - in front the highest first.")
    rows: Literal["25", "50", "100", "250", "all"] = Field("100", description="Results on a page.")
    page: int = Field(1, ge=1, le=100_000, description="Which page of results.")


@dataclass(frozen=True, kw_only=True)
class _Model:
    """A model or backbone with its entries, the best known first; `copies` are further names in records."""

    name: str
    slug: str
    entries: Sequence[Entry]
    copies: Sequence[str]
    backbone: Backbone | None = None

    @cached_property
    def names(self) -> list[str]:
        """Every name that it has."""
        hub = self.backbone.hub_ids if self.backbone else ()
        printed = (" ".join(pair).strip() for pair in (self.backbone.printed if self.backbone else ()))
        models = (entry.model for entry in self.entries)
        return list(dict.fromkeys((self.name, *hub, *printed, *models, *self.copies)))


def find_model(queries: Queries, slug: str) -> _Model:
    """The model of a path; a backbone, or a model of the same weights, also has the path of any of its names.

    Raises:
        Moved: Another path is that of the model with this name.
        NotFound: No model has this path or name; the message names the nearest.
    """
    pages, candidates = join_models(queries), queries.models.get(slug, [])
    backbone = load_backbones().get(slug) or (find_backbone(candidates[0].model) if candidates else None)
    if backbone is None and not candidates:
        if backbone := find_backbone(slug.replace("--", "/")):
            raise Moved(model=backbone.slug)
        if named_entries := queries.find_named_entries(slug):
            raise Moved(model=named_entries[0].model_slug)
        slugs = [*queries.models, *load_backbones()]
        hint = "The page /search finds models by a part of their name."
        raise build_missing_error("model", slug, slugs, then=hint)
    if backbone is not None:
        candidates = [entry for entry in queries.entries.values() if find_backbone(entry.model) == backbone]
    names = {pages[entry.id] for entry in candidates}
    candidates = [e for e in queries.entries.values() if pages[e.id] in names or e.model_slug == slug]
    entries = sorted(candidates, key=lambda entry: (*compute_precedence(entry), entry.slug), reverse=True)
    copies = queries.list_other_names(entries)
    if backbone is None:
        main = next((name for name in names if name in queries.models), slug)
        return _Model(name=queries.models[main][0].model, slug=main, entries=entries, copies=copies)
    return _Model(name=backbone.name, slug=backbone.slug, entries=entries, copies=copies, backbone=backbone)


def _collect_model_facts(queries: Queries, model: _Model) -> dict[str, Any]:
    """The facts of a model: each from the best known entry that states it."""
    names = ("parameters", "dimension", "max_tokens", "released", "open_weights", "adapted_from")
    cards = queries.load_facts(id=[entry.id for entry in model.entries])
    stated = [{**cards[e.id], **{name: getattr(e, name) for name in names}} for e in model.entries]
    facts: dict[str, Any]
    facts = {name: next((s[name] for s in stated if s.get(name) is not None), None) for name in FACTS}
    # As the marks of scores: of the card, mteb's registry and all that it was made from.
    trained = [entry.trained_on for entry in model.entries if entry.trained_on is not None]
    facts["training_datasets"] = sorted(frozenset().union(*trained)) if trained else None
    limits = (entry.tokens_unlimited for entry in model.entries if entry.length is not None)
    facts["tokens_unlimited"] = next(limits, None)
    facts["size_from"] = next((s.get("size_from") for s in stated if s["parameters"] is not None), None)
    if facts["parameters"] is None and model.backbone:
        facts["parameters"] = model.backbone.parameters
    card = {"n_embedding_parameters": facts.pop("n_embedding_parameters")}
    computes = [
        *load_entry_compute(queries, model.entries).values(),
        build_entry_compute(facts["parameters"], card, model.backbone, None),
    ]
    without = [
        model.backbone and model.backbone.without_embeddings,
        *(c.without_embeddings for c in computes),
    ]
    facts["without_embeddings"] = next(filter(None, without), None)
    facts["operations"] = next(filter(None, (compute.operations for compute in computes)), None)
    note = next(filter(None, (compute.note for compute in computes)), None)
    facts["pretraining"] = note and {
        "operations": note.operations, "text": ", ".join(note.list_statements(read_prices())),
        **note.model_dump(mode="json", exclude={"counted"}),
    }  # fmt: skip
    return facts


def list_parents(queries: Queries, model: _Model, parent: str | None) -> list[str]:
    """What a model was made from, and what that was made from, as far as it is stated."""
    made_from = {entry.model: entry.adapted_from for entry in queries.entries.values() if entry.adapted_from}
    parents: list[str] = []
    # Cards may name each other as parents: a name that comes again ends the walk.
    while parent and parent not in (*model.names, *parents):
        parents.append(parent)
        parent = made_from.get(parent)
    return parents


def _find_model_path(queries: Queries, name: str) -> str:
    """The path of a model's page by its name; empty if the site does not have the model."""
    backbone = find_backbone(name)
    slugs = (entry.model_slug for entry in queries.entries.values() if entry.model == name)
    slug = backbone.slug if backbone else next(slugs, "")
    return build_address(f"/models/{slug}") if slug else ""


def _build_children_table(queries: Queries, model: _Model) -> Table:
    """The models that were made from this one."""
    entries = [entry for entry in queries.entries.values() if not entry.member]
    made_from = {entry.model: entry.adapted_from for entry in entries}
    behind = resolve_base_backbones(made_from) if model.backbone else {}
    children = {
        e.model_slug: e for e in entries
        if e.model not in model.names
        and (e.adapted_from in model.names or (model.backbone and behind.get(e.model) == model.backbone))
    }  # fmt: skip
    labels = {"model": "Model", "recipe": "Made by", "parameters": "Parameters", "tasks": "Tasks"}
    rows = [
        (link(e.model, f"/models/{e.model_slug}", kind=format_entry_kinds(e)),
         Cell(text=e.recipe or "its makers", value=e.recipe, note=e.lineage_text),
         build_size_cell(e.parameters), e.tasks)
        for e in sorted(children.values(), key=lambda e: e.model.casefold())
    ]  # fmt: skip
    return values_table("children", f"Models made from {model.name}", labels, rows, "parameters tasks")


def _build_entries_table(model: _Model, shown: Entry | None, path: str) -> Table:
    """Every entry of a model."""
    labels = {"name": "Entry", "source": "Source", "trust": "Revision", "treatment": "Treatment",
              "tasks": "Tasks", "newest": "Newest"}  # fmt: skip
    rows = [
        (Cell(text=format_entry_name(e), value=e.slug, href=f"{path}?entry={e.slug}", note=e.revision or ""),
         build_source_cell(e, path), Cell(text=TRUST[e.trust], value=e.trust),
         Cell(text=e.lineage_text or e.treatment or "not stated", value=e.treatment or None),
         e.tasks, Cell(text=(e.newest or "")[:10], value=e.newest))
        for e in model.entries
    ]  # fmt: skip
    caption = f"Every source of its scores; {format_entry_name(shown)} is shown in full" if shown else ""
    return values_table("entries", caption, labels, rows, "tasks")


def _build_reproductions_table(queries: Queries, model: _Model) -> Table:
    """The numbers of several sources of a model by task, the furthest apart first; else broken ones."""
    every = [one for one in load_comparisons(queries) if one.model == model.slug]
    rows = sorted((one for one in every if one.base), key=lambda one: -abs(one.delta or 0.0))
    same = sum(one.verdict == "same" for one in rows)
    caption = f"{same} of {len(rows)} numbers agree with a second number of this model: scores × 100"
    alone = f"{len(every) - len(rows)} broken numbers, e.g. at chance level, stand beside no other one"
    if not rows:
        caption, rows = f"{alone}: scores × 100", every
    notes = [f"{alone}."] if len(every) > len(rows) else []
    return fill_table("reproductions", caption, COMPARISON_FIELDS, rows[:SHOWN], notes=notes, cards=True)


def _build_paper_tables(site: Site, model: _Model, standings: Sequence[Standing]) -> list[Table]:
    """What papers print of a model, below what was measured of it and imported: a table for each suite."""
    names, suites = set(model.names), dict[str, list[PaperValue]]()
    for row in (row for paper in site.papers.values() for row in paper.rows if row.value):
        if not names.isdisjoint((row.hub_id, row.backbone, row.name)):
            suite = row.suite if row.unit in SCORES else f"{row.suite}: {row.unit}".removeprefix(": ")
            suites.setdefault(suite, []).append(row)
    sources, entries = [one for one in standings if one.entry.origin != "reported"], site.queries.entries
    return [
        _build_printed_table(name, rows, [o for o in sources if o.suite.slug == SUITES.get(name)], entries)
        for name, rows in sorted(suites.items(), key=lambda pair: pair[0] not in SUITES)
    ]


def _build_printed_table(
    suite: str, rows: Sequence[PaperValue], standings: Sequence[Standing], entries: Mapping[int, Entry]
) -> Table:
    """The lines of papers; the first column says where a line's numbers come from."""

    def build_value_cell(value: PaperValue) -> Cell:
        # Where every line is printed, a mark on each cell would say nothing.
        return build_printed_cell(value) if standings else replace(build_printed_cell(value), kind="")

    def describe_line(row: PaperValue) -> dict[str, str]:
        source = f"{row.paper}, {format_table_title(row.table)}"
        return {"Source": source, "As": row.name, "Setting": row.setting}

    lines = group_table_lines(rows, describe_line, lambda row: normalize_metric(row.suite, row.metric))
    metrics = dict.fromkeys(name for line in lines for name in line.cells)
    numbers = {format_anchor(name): name for name in metrics}
    rows_of: list[Sequence[Any]] = [_build_standing_cells(one, entries, list(metrics)) for one in standings]
    for line in lines:
        values = [build_value_cell(line.cells[m]) if m in line.cells else EMPTY for m in metrics]
        rows_of.append([*line.labels.values(), *values])
    caption = f"{suite}: printed in papers{', measured and imported' if standings else ''}"
    labels = {"source": "Source", "as": "As", "setting": "Setting", **numbers}
    more = "" if suite in SUITES or rows[0].unit in SCORES else "more-"
    return values_table(f"printed-{more}{format_anchor(suite)}", caption, labels, rows_of, " ".join(numbers))


def _build_standing_cells(
    standing: Standing, entries: Mapping[int, Entry], metrics: Sequence[str]
) -> list[Cell]:
    """The numbers of a measured or an imported entry under the names of a paper's columns."""
    scores, entry = standing.scores, standing.entry
    tasks = {column.name: at for at, column in enumerate(standing.suite.suite.columns)}
    means = {name: scores.by_type[kind] for name, kind in TYPES.items() if kind in scores.by_type}
    means[AVERAGE] = scores.over_tasks
    setting = scores.convention or entry.treatment

    def build_metric_cell(name: str) -> Cell:
        if name in tasks:
            return build_task_cell(scores, standing.row, tasks[name], entries)
        return mean_cell(means[name], standing.row, None, entry.seeds) if name in means else EMPTY

    return [
        link(entry.origin, kind=entry.origin),
        Cell(text=format_entry_name(entry), value=entry.slug),
        Cell(text=setting, value=setting or None),
        *(build_metric_cell(name) for name in metrics),
    ]


@serve_page(
    "/models/{model}",
    "A model under all of its names: facts, ranks and means on every board, results by task.",
    paths=lambda site: [f"/models/{slug}" for slug in {**site.queries.models, **load_backbones()}],
)
def _show_model(site: Site, state: _ModelState, model: str) -> Page:
    queries, shown = site.queries, find_model(site.queries, model)
    path, by_slug = build_address(f"/models/{shown.slug}"), {entry.slug: entry for entry in shown.entries}
    check_name("entry", state.entry, by_slug, then="The model's page lists its entries.")
    entry = by_slug[state.entry] if state.entry else next(iter(shown.entries), None)
    entry_results = load_entry_results(queries, [e for e in shown.entries if not e.member or e is entry])
    entry_results.sort(key=lambda one: one.entry is not entry)
    standings = [one for results in entry_results for one in results.standings]
    records, facts = _load_training_records(queries, entry_results), _collect_model_facts(queries, shown)
    lineages = [one.lineage for one in (queries.list_members(entry) or [entry])] if entry else []
    sweeps = collect_sweeps([made for made in lineages if made])
    provenances = [record.get("provenance") or {} for record in records.values()]
    newest = max(provenances, key=lambda one: str(one.get("written", "")), default={})
    results, where, controls, total = _build_results_section(
        queries, [one for one in entry_results if one.rows], state, path
    )
    parents = list_parents(queries, shown, facts["adapted_from"])
    lineage_parents = entry.lineage.parents if entry and entry.lineage else ()
    names = (*parents, *(parent.name for parent in lineage_parents))
    pages = {name: _find_model_path(queries, name) for name in names}
    trained = [name for name in facts["training_datasets"] or () if name in queries.tasks]
    context: dict[str, Any] = {
        "model": shown, "entry": entry, "facts": facts, "parents": parents, "words": describe_value,
        "provenance": newest,
        "reproduced": sum(
            pair.model == shown.slug and pair.is_independent and pair.verdict == "same"
            for pair in load_comparisons(queries)
        ),
        "pages": {name: format_task_path(name) for name in trained}
        | {name: href for name, href in pages.items() if href},
        "total": total, "paging": where, "form": controls, "path": path,
        "badges": _list_badges(entry, standings), "sweeps": list(sweep_charts(sweeps)),
        "trade_offs": _list_trade_offs(standings, facts),
        "training": [c for one in records.values() if one.get("training") for c in iter_training_charts(one)],
    }  # fmt: skip
    tables = [
        *build_suites_tables(queries, standings, path, site.papers),
        *_build_paper_tables(site, shown, standings), _build_reproductions_table(queries, shown), *results,
        _build_entries_table(shown, entry, path),
        build_training_table(records, entry_results[0].intervals) if entry_results else None,
        sweep_table(sweeps), build_rank_history(site.list_kept(), shown.entries, shown.slug),
        build_checks_table(queries, shown.entries), _build_children_table(queries, shown),
    ]  # fmt: skip
    return Page(
        title=shown.name,
        lead=_describe_facts(facts, parents),
        crumbs=[("Models", "/search")],
        # A table of results that a search left empty stays, below its search.
        tables=[table for table in tables if (table and table.rows) or table in results],
        charts=[*context["training"], *context["sweeps"]],
        data={
            "model": shown.name, "names": shown.names, "entry": entry.slug if entry else None,
            "seeds": list(entry.seeds) or None if entry else None,
            "lineage": entry.lineage.model_dump(mode="json") if entry and entry.lineage else None,
            "facts": facts, "made_from": parents, "provenance": newest or None,
        },
        context=context,
    )  # fmt: skip


def _load_training_records(queries: Queries, results: Sequence[EntryResults]) -> dict[int, Mapping[str, Any]]:
    """Records of the first entry by result: all where a recipe trained for tasks, else the newest."""
    if not results or results[0].entry.origin != "measured" or not results[0].rows:
        return {}
    rows = list(results[0].rows.values())
    if results[0].entry.output != "label":
        rows = [max(rows, key=lambda row: row.written or "")]
    return {row.id: queries.load_result_document(row.id) for row in rows}


def _build_results_section(
    queries: Queries, entries: Sequence[EntryResults], state: _ModelState, path: str
) -> tuple[list[Table], Paging, FilterForm, int]:
    """The results of some entries by task, the search above them, and the number of all results."""
    shown = entries[:SIDE_BY_SIDE]
    # From the last entry to the first, whose rows then replace those of the others.
    rows = {task: row for one in reversed(shown) for task, row in one.rows.items()}
    suites = {one.suite.suite.title: one.suite.suite.tasks for own in shown for one in own.standings}
    query = state.q.casefold()
    inside = {task.name for title, tasks in suites.items() if query in title.casefold() for task in tasks}
    some = [row for task, row in rows.items() if task in inside or query in f"{task} {row.type}".casefold()]
    where = build_paging(len(some), state, path)
    controls = state.build_form(path, [state.ask_name("Tasks", "part of a task, a type or a suite")])
    if not rows:
        return [], where, controls, 0
    fields = build_result_fields(shown)
    table = fill_table(
        "results", "Results by task: main scores × 100", fields,
        where.cut(sort_rows(some, fields, state.sort)), state=state, key=lambda row: row.task,
        notes=["A score is the mean over all splits and subsets of its result."],
    )  # fmt: skip
    return [table], where, controls, len(rows)


def _describe_facts(facts: Mapping[str, Any], parents: Sequence[str]) -> str:
    """The facts that tell models apart, in a line."""
    stated = {
        "parameters": f"{format_parameters(facts['parameters'])} parameters"
        + (f" (from {facts['size_from']})" if facts["size_from"] else ""),
        "dimension": f"{facts['dimension']} dimensions",
        "max_tokens": f"{facts['max_tokens']} tokens",
        "license": f"licence {facts['license']}",
        "released": f"released {facts['released']}",
    }
    parts = [text for name, text in stated.items() if facts[name] is not None]
    return " · ".join([*parts, *(f"made from {name}" for name in parents[:1])])


def _list_trade_offs(standings: Sequence[Standing], facts: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Where the model stands by size and compute, on the board that has most of it; none without a mean."""
    boards = [one for one in standings if one.suite.main and one.entry.origin != "reported"]
    if not boards:
        return []
    best = max(boards, key=lambda one: (one.complete, one.scores.over_tasks.count[one.row]))
    query = {"suite": best.suite.slug, "q": best.entry.model}
    known = {x: label for x, (fact, label) in AGAINST.items() if facts[fact]}
    if known and not best.complete:
        means = best.scores.over_tasks
        count = f"{means.count[best.row]} of the {means.expected} tasks of {best.suite.suite.title}"
        return [(f"{' and '.join(known.values())}: not drawn, as it has {count}", "")]
    return [(label, build_address("/pareto", {**query, "x": x})) for x, label in known.items()]


def _list_badges(entry: Entry | None, standings: Sequence[Standing]) -> list[tuple[str, str]]:
    """The badges of an entry: of every suite that it has all of, or of the first."""
    if entry is None or entry.origin == "reported" or entry.member:
        return []
    ranks = [one for one in standings if one.entry is entry]
    some = [one for one in ranks if one.complete] or ranks[:1]
    titles = {one.suite.slug: one.suite.suite.title for one in some}
    return [(title, f"/badges/{slug}/{entry.lasting_slug}.svg") for slug, title in titles.items()]
