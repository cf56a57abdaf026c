"""A model's facts: what its makers say of it, what it was made of, and what was made of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from pydantic import Field

from harness.lineage import Lineage
from harness.scores import score_text
from leaderboard.data.entries import precedence
from leaderboard.data.papers import AVERAGE, SCORES, Paper, PaperValue, plain, title
from leaderboard.data.queries import Entry, Queries
from leaderboard.pages._check_tables import judged_table
from leaderboard.pages._model_scores import (
    Results,
    Standing,
    answers_of,
    results_of,
    standings,
    suites_tables,
)
from leaderboard.pages._suite_table import kinds_of, made_of
from leaderboard.pages._task_scores import task_path
from leaderboard.pages._training import SweepCurves, Trained, sweeps_of, trained_of
from leaderboard.pages.recipes import words
from leaderboard.web.charts import Chart
from leaderboard.web.formats import parameters_text, seeds_text
from leaderboard.web.page import Crumb, Page, PageRoute, missing
from leaderboard.web.parameters import State, Text, address
from leaderboard.web.tables import EMPTY, Cell, Column, Row, Table

if TYPE_CHECKING:
    from leaderboard.web.site import Site


Fact: TypeAlias = tuple[str, str, str, str]
"""Name, text, link and remark, as `ui.facts` takes them."""

UNSAID = "not said"


@dataclass(frozen=True, kw_only=True)
class Kin:
    """A model of the same line; `href` is empty where the site knows nothing else of it."""

    name: str
    href: str = ""


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What is known of a model beside its scores.

    Attributes:
        shown: For the page.
        values: The same as plain values.
        up: What it was made of, the nearest first.
        down: What was made of it.
        trained_on: The training data that its makers declare, None where they say nothing.
    """

    shown: Sequence[Fact]
    values: Mapping[str, Any]
    up: Sequence[Kin] = ()
    down: Sequence[Kin] = ()
    trained_on: Sequence[Kin] | None = None
    languages: Sequence[str] = field(default=())


def facts_of(queries: Queries, model: str, entries: Sequence[Entry], chosen: Entry | None) -> Facts:
    """The facts of a model.

    What is not said of the chosen entry is taken from the model's other ones, the best known first.
    """
    ordered = [chosen, *(entry for entry in entries if entry is not chosen)] if chosen else []
    said = [{**queries.facts(entry), **_indexed(entry)} for entry in ordered if entry is not None]
    values = {name: _first(said, name) for name in NAMES}
    up = [_kin(queries, name) for name in line(queries, model, values["adapted_from"])]
    values["adapted_from"] = up[0].name if up else None
    return Facts(
        shown=[*_shown(queries, values, up), *_links(values)],
        values=values,
        up=up,
        down=[Kin(name=name, href=f"/models/{slug}") for name, slug in children(queries, model)],
        trained_on=_training(queries, values["training_datasets"]),
        languages=values["languages"] or (),
    )


NAMES = (
    "parameters", "dimension", "max_tokens", "tokens_unlimited", "released", "license", "open_weights",
    "adapted_from", "superseded_by", "languages", "framework", "modalities", "similarity_fn_name",
    "use_instructions", "training_datasets", "public_training_data", "training_data_link",
    "public_training_code", "training_code_link", "reference",
)  # fmt: skip
"""What is asked of entries, by the names the twins carry."""


def line(queries: Queries, model: str, parent: str | None) -> list[str]:
    """What a model was made of, and what that was made of, as far as it is known."""
    made_of = {entry.model: entry.adapted_from for entry in queries.entries.values() if entry.adapted_from}
    found: list[str] = []
    while parent and parent not in (model, *found):
        found.append(parent)
        parent = made_of.get(parent)
    return found


def children(queries: Queries, model: str) -> list[tuple[str, str]]:
    """Name and slug of every model that was made of this one."""
    of = {(e.model, e.model_slug) for e in queries.entries.values() if e.adapted_from == model}
    return sorted(pair for pair in of if pair[0] != model)


def known_models(queries: Queries) -> dict[str, str]:
    """The slug of every model that has scores, by its name."""
    return {entry.model: entry.model_slug for entry in queries.entries.values()}


def _kin(queries: Queries, name: str) -> Kin:
    slug = known_models(queries).get(name)
    return Kin(name=name, href=f"/models/{slug}" if slug else "")


def _indexed(entry: Entry) -> dict[str, Any]:
    """What the index itself has of an entry."""
    names = ("parameters", "dimension", "max_tokens", "released", "open_weights", "adapted_from")
    return {name: getattr(entry, name) for name in names}


def _first(said: Sequence[Mapping[str, Any]], name: str) -> Any:
    return next((found[name] for found in said if found.get(name) is not None), None)


def _shown(queries: Queries, values: Mapping[str, Any], up: Sequence[Kin]) -> Iterator[Fact]:
    yield "Parameters", _text(values["parameters"], parameters_text), "", _exact(values["parameters"])
    yield "Dimension", _text(values["dimension"], "{:,}".format), "", ""
    yield "Input tokens, at most", _tokens(values), "", ""
    yield "Released", _text(values["released"]), "", ""
    yield "Licence", _text(values["license"]), "", ""
    yield "Open weights", _yes(values["open_weights"]), "", ""
    yield "Made of", _text(values["adapted_from"]), up[0].href if up else "", ""
    yield (
        "Languages",
        _text(values["languages"], lambda found: f"{len(found)}"),
        "",
        _few(values["languages"]),
    )
    yield "Framework", _text(values["framework"], ", ".join), "", ""
    yield "Similarity", _text(values["similarity_fn_name"]), "", ""
    yield "Needs instructions", _yes(values["use_instructions"]), "", ""
    yield "Training data declared", _text(values["training_datasets"], _sets), "", ""
    if values["superseded_by"]:
        after = _kin(queries, values["superseded_by"])
        yield "Superseded by", after.name, after.href, ""


def _links(values: Mapping[str, Any]) -> Iterator[Fact]:
    """Links out of the site: only such as are https."""
    labels = {
        "reference": "Home page",
        "training_code_link": "Training code",
        "training_data_link": "Training data",
    }
    for name, label in labels.items():
        text = str(values[name] or "")
        if text.startswith("https://") and not any(sign in text for sign in " \"'<>\\"):
            yield label, text.removeprefix("https://"), text, ""


def _text(value: Any, form: Any = str) -> str:
    return UNSAID if value is None else form(value)


def _exact(number: int | None) -> str:
    return "" if number is None else f"{number:,}"


def _yes(value: bool | None) -> str:
    return UNSAID if value is None else "yes" if value else "no"


def _tokens(values: Mapping[str, Any]) -> str:
    if values["tokens_unlimited"]:
        return "no limit"
    return _text(values["max_tokens"], "{:,}".format)


def _sets(found: Sequence[str]) -> str:
    return {0: "none", 1: "1 data set"}.get(len(found), f"{len(found)} data sets")


def _few(names: Sequence[str] | None) -> str:
    return ", ".join(names) if names and len(names) <= 6 else ""


def _training(queries: Queries, names: Sequence[str] | None) -> list[Kin] | None:
    if names is None:
        return None
    tasks = queries.tasks
    return [Kin(name=n, href=task_path(n) if n in tasks else "") for n in sorted(names)]


LIBRARIES = ("torch", "transformers", "sentence-transformers", "mteb")


def measured_facts(entry: Entry, record: Mapping[str, Any]) -> list[Fact]:
    """How an entry was measured, by its newest record."""
    recipe, key = entry.recipe or "", (entry.artifact or "")[:12]
    link = address(f"/recipes/{recipe.partition(':')[0]}") if recipe else ""
    made = entry.lineage
    what = "the start of the key of its lineage" if made else "the start of the key of its files"
    return [
        (
            "Recipe",
            (made.text if made else recipe) or "none: a finished model",
            link,
            made.source if made else "",
        ),
        *(_trained_facts(made) if made else []),
        *([("Seeds", seeds_text(entry.seeds), "", "")] if entry.seeds else []),
        ("Treatment", entry.treatment, "", ""),
        *([("Artifact", key, "", what)] if key else []),
        *ran_facts(record.get("provenance") or {}),
    ]


def _trained_facts(made: Lineage) -> Iterator[Fact]:
    """The training of a model."""
    parents = ", ".join(parent.text for parent in made.parents)
    yield "Backbone", parents, "", ", ".join((p.revision or p.artifact)[:12] for p in made.parents)
    if made.changed:
        yield "Settings changed", ", ".join(f"{n}={words(v)}" for n, v in made.changed.items()), "", ""
    data = ", ".join(str(one.get("path") or one.get("content", ""))[:60] for one in made.data)
    yield "Training data", made.own_data or data, "", "the user's own" if made.own_data else ""
    if made.sweep is not None:
        yield "Sweep", f"{made.sweep.setting} among {', '.join(map(words, made.sweep.values))}", "", ""
    for what, tasks in made.choices.items():
        yield "Chosen by scores", f"{what}: {', '.join(tasks)}", "", "scores there err upward"
    if made.assumed:
        yield "Assumed", " ".join(made.assumed), "", ""


def ran_facts(provenance: Mapping[str, Any]) -> Iterator[Fact]:
    """Where and with what a record ran; what it does not say is left out."""
    device, packages = (_mapping(provenance.get(name)) for name in ("device", "packages"))
    versions = [f"{name} {packages[name]}" for name in LIBRARIES if name in packages]
    said = {
        "Device": " ".join(str(device[n]) for n in ("kind", "name") if device.get(n)),
        "Threads": provenance.get("threads"),
        "Dtype as run": provenance.get("dtype_as_run"),
        "Attention": provenance.get("attention"),
        "Harness": _code(provenance),
        "Versions": ", ".join(versions),
        "Seconds": seconds_text(provenance.get("seconds") or {}),
        "Written": provenance.get("written"),
    }
    yield from ((name, str(value), "", "") for name, value in said.items() if value not in (None, ""))


def _mapping(value: Any) -> Mapping[str, Any]:
    """A part of the provenance; nothing where a record has something else there."""
    return value if isinstance(value, Mapping) else {}


def _code(provenance: Mapping[str, Any]) -> str:
    commit = str(provenance.get("commit") or "")[:12]
    changed = " with changes" if provenance.get("dirty") else ""
    parts = [str(provenance.get("harness") or ""), f"commit {commit}{changed}" if commit else ""]
    return " ".join(part for part in parts if part)


def seconds_text(seconds: Any) -> str:
    """What took how long.

    >>> seconds_text({"encode": 61.52, "score": 0.25}), seconds_text(2)
    ('encode 61.5, score 0.25', '2')
    """
    if not isinstance(seconds, Mapping):
        return f"{seconds:.3g}" if isinstance(seconds, int | float) else ""
    return ", ".join(f"{n} {v:.3g}" for n, v in seconds.items() if isinstance(v, int | float))


GLUE = "GLUE dev"
"""The printed suite whose columns are those of the suite glue."""


def printed_name(row: PaperValue) -> str:
    """The name under which the site lists a printed row's model."""
    return f"{row.model} ({row.size_class})" if row.size_class else row.model


def printed_rows(papers: Mapping[str, Paper], model: str) -> list[tuple[str, PaperValue]]:
    """The printed scores of a model with their papers: of a hub model, or of a name as printed."""
    all_paths = [(slug, row) for slug, paper in papers.items() for row in paper.rows]
    own = {
        row.hub_id or printed_name(row) for _, row in all_paths if model in (printed_name(row), row.hub_id)
    }
    alike = own - {""}
    return [
        (slug, row)
        for slug, row in all_paths
        if row.unit in SCORES and row.number is not None and (row.hub_id or printed_name(row)) in alike
    ]


def other_names(rows: Sequence[tuple[str, PaperValue]], model: str) -> list[str]:
    """What else the model of printed rows is called."""
    names = {name for _, row in rows for name in (row.hub_id, printed_name(row)) if name}
    return sorted(names - {model})


def printed_table(
    rows: Sequence[tuple[str, PaperValue]], entry: Entry | None, standings: Sequence[Standing]
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


def _cells(slug: str, row: PaperValue, ours: Mapping[tuple[str, str], float]) -> Iterator[Cell]:
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
    for one in (s for s in standings if s.listed.slug == "glue" and s.grid.convention):
        for at, column in enumerate(one.listed.suite.columns):
            if one.grid.counted[0, at]:
                found[one.grid.convention, column.name] = float(one.grid.values[0, at])
        if one.grid.over_tasks.complete[0]:
            found[one.grid.convention, AVERAGE] = float(one.grid.over_tasks.values[0])
    return found


def _notes(ours: Mapping[tuple[str, str], float]) -> Iterator[str]:
    yield "Printed numbers are each paper's own: recipes, seeds and choices differ, and none is in any mean."
    if ours:
        yield "Measured numbers are of the entry that is shown above, under its own recipe."


KNOWN = {
    "measured": "known by the hash of its files", "commit": "pinned to a commit",
    "external": "told by its makers", "none": "no revision known",
    "other": "a revision that is no commit", "reported": "none is printed",
}  # fmt: skip
"""How far an entry's model is known, in words."""


@dataclass(frozen=True, kw_only=True)
class ModelPage:
    """What the template of a model takes.

    Attributes:
        tables: Those that have rows, in the page's order.
        lead: What there is, in a sentence.
        entry: The one that is shown.
        facts: Of the model.
        same: The names that papers give it, or the hub's.
        results: The task results.
        measured: How it was measured.
        remarks: Notes of the newest record.
        figures: Plots of its training.
        sweeps: Plots of the sweep that chose it.
        badges: Suite and Markdown of its badges.
        path: The page's own.
        data: For the JSON twin.
    """

    tables: Sequence[Table]
    lead: str
    entry: Entry
    facts: Facts
    same: Sequence[Kin]
    results: Results
    measured: Sequence[Fact]
    remarks: Sequence[str]
    figures: Sequence[Chart]
    sweeps: Sequence[Chart]
    badges: Sequence[tuple[str, str]]
    path: str
    data: Mapping[str, Any] = field(default_factory=dict)

    @property
    def shown(self) -> frozenset[str]:
        """The names of the tables."""
        return frozenset(table.name for table in self.tables)

    @property
    def parts(self) -> int:
        """How many suites stand in the folded table."""
        return sum(len(table.rows) for table in self.tables if table.name == "parts")


def model_page(site: Site, state: ModelState, entries: Sequence[Entry], path: str) -> ModelPage:
    """The page of a model.

    Raises:
        NotFound: The state names an entry, a type or a column that is none.
    """
    queries, name = site.queries, entries[0].model
    ordered = sorted(entries, key=_best, reverse=True)
    entry = _chosen(ordered, state.entry)
    answers = answers_of(queries, entry)
    found = standings(queries, entry, answers)
    rows = queries.results(entry=entry.id)
    documents = _documents(queries, entry, rows)
    trained = trained_of(documents, found)
    swept = sweeps_of([one.lineage for one in queries.members(entry) or [entry] if one.lineage])
    results = results_of(entry, rows, answers, trained.chosen, state, path)
    printed = printed_rows(site.papers, name)
    facts = facts_of(queries, name, ordered, entry)
    newest = _newest(documents)
    tables = [
        _entries_table(ordered, entry, state, path),
        *suites_tables(entry, found),
        judged_table(queries, ordered),
        trained.table,
        swept.table,
        results.table if rows else None,
        printed_table(printed, entry, found),
    ]
    return ModelPage(
        tables=[table for table in tables if table is not None],
        lead=_lead(ordered, entry, found),
        entry=entry,
        facts=facts,
        same=_same(queries, other_names(printed, name)),
        results=results,
        measured=measured_facts(entry, newest) if entry.origin == "measured" else [],
        remarks=_remarks(newest.get("provenance") or {}),
        figures=trained.figures,
        sweeps=swept.figures,
        badges=_badges(entry, found) if entry.origin != "reported" and not entry.member else [],
        path=path,
        data=_data(entry, facts, trained, swept, newest, printed),
    )


def _remarks(provenance: Mapping[str, Any]) -> list[str]:
    """What a record has to say of itself."""
    notes = provenance.get("notes")
    return [str(note) for note in notes] if isinstance(notes, list) else []


def _best(entry: Entry) -> tuple[Any, ...]:
    return (*precedence(entry), entry.slug)


def _chosen(ordered: Sequence[Entry], slug: str) -> Entry:
    if not slug:
        return ordered[0]
    known = {entry.slug: entry for entry in ordered}
    if slug not in known:
        raise missing("entry", slug, known, then="The model's page lists its entries.")
    return known[slug]


def _documents(queries: Queries, entry: Entry, rows: Sequence[Any]) -> dict[int, Mapping[str, Any]]:
    """Records of a measured entry by result: all where a recipe trained, else the newest."""
    if entry.origin != "measured" or not rows:
        return {}
    newest = max(rows, key=lambda row: row.written or "")
    found = queries.result_documents([row.id for row in (rows if entry.output == "label" else [newest])])
    return {row.id: found[row.id] for row in rows if row.id in found}


def _newest(documents: Mapping[int, Mapping[str, Any]]) -> Mapping[str, Any]:
    def written(one: Mapping[str, Any]) -> str:
        return str((one.get("provenance") or {}).get("written", ""))

    return max(documents.values(), key=written, default={})


def _entries_table(ordered: Sequence[Entry], chosen: Entry, state: ModelState, path: str) -> Table:
    columns = [
        Column(key="name", label="Entry", sticky=True),
        Column(key="origin", label="Origin"),
        Column(key="trust", label="Revision"),
        Column(key="treatment", label="Treatment"),
        Column(key="tasks", label="Tasks", numeric=True),
        Column(key="newest", label="Newest"),
    ]
    return Table(
        name="entries",
        caption=f"{len(ordered)} entries of this model; the shaded one is shown"
        if len(ordered) > 1
        else "The one entry of this model",
        columns=columns,
        rows=[_entry_row(entry, chosen, state, path) for entry in ordered],
    )


def _entry_row(entry: Entry, chosen: Entry, state: ModelState, path: str) -> Row:
    href = f"{path}?{state.query(entry=entry.slug, page=1, q='', type='')}"
    printed = entry.treatment.partition(":")[0]
    name = printed if entry.origin == "reported" else (entry.revision or entry.artifact or entry.slug)[:12]
    name = seeds_text(entry.seeds) if entry.seeds else name
    cells = [
        Cell(text=name, value=entry.slug, href=href, note=entry.revision or entry.slug, kind=kinds_of(entry)),
        Cell(text=entry.origin, value=entry.origin, kind=entry.origin, note=entry.source),
        Cell(text=KNOWN[entry.trust], value=entry.trust),
        Cell(text=made_of(entry) or entry.treatment or "not said", value=entry.treatment or None),
        Cell(text=str(entry.tasks), value=entry.tasks),
        Cell(text=(entry.newest or "")[:10], value=entry.newest),
    ]
    return Row(cells=cells, key=entry.slug, kind="pinned" if entry is chosen else "")


def _lead(ordered: Sequence[Entry], entry: Entry, found: Sequence[Standing]) -> str:
    entries = f"{len(ordered)} entries" if len(ordered) > 1 else "One entry"
    if entry.of_seeds:
        entries = f"{entries}, of which one is the mean over {len(entry.seeds)} seeds"
    suites = {one.listed.slug: bool(one.grid.over_tasks.complete[0]) for one in found}
    tasks = _counted(entry.tasks, "task result")
    what = "printed means" if entry.origin == "reported" and not entry.tasks else tasks
    return f"{entries}; the one shown is {entry.origin}, with {what}. {_of_suites(suites)}"


def _of_suites(suites: Mapping[str, bool]) -> str:
    """Of how many suites all is there, and of how many a part."""
    whole = sum(suites.values())
    part = len(suites) - whole
    if not suites:
        return "No suite asks for any of it."
    if not whole:
        return f"It has a part of {_counted(part, 'suite')}."
    also = f" and a part of {_counted(part, 'other')}" if part else ""
    return f"It has all of {_counted(whole, 'suite')}{also}."


def _counted(number: int, what: str) -> str:
    return {0: f"no {what}", 1: f"one {what}"}.get(number, f"{number:,} {what}s")


def _same(queries: Queries, names: Sequence[str]) -> list[Kin]:
    known = known_models(queries)
    return [Kin(name=name, href=f"/models/{known[name]}" if name in known else "") for name in names]


def _badges(entry: Entry, found: Sequence[Standing]) -> list[tuple[str, str]]:
    """Markdown of a badge for every suite of which all is there, or for the fullest one."""
    whole = [one for one in found if one.grid.over_tasks.complete[0]] or found[:1]
    titles = {one.listed.slug: one.listed.suite.title for one in whole}
    return [
        (title, f"[![{title}](SITE/badges/{slug}/{entry.slug}.svg)](SITE/models/{entry.model_slug})")
        for slug, title in titles.items()
    ]


def _data(
    entry: Entry,
    facts: Facts,
    trained: Trained,
    swept: SweepCurves,
    newest: Mapping[str, Any],
    printed: Sequence[Any],
) -> dict[str, Any]:
    return {
        "model": entry.model,
        "entry": entry.slug,
        "seeds": list(entry.seeds) or None,
        "lineage": entry.lineage.model_dump(mode="json") if entry.lineage else None,
        "facts": dict(facts.values),
        "made_of": [kin.name for kin in facts.up],
        "made_from_it": [kin.name for kin in facts.down],
        "training": list(trained.data),
        "sweeps": list(swept.data),
        "provenance": newest.get("provenance"),
        "printed": len(printed),
    }


class ModelState(State):
    """What the page of a model can be asked."""

    entry: Text = Field("", description="Which entry to show, by its name in URLs; empty for the best known.")
    q: Text = Field("", description="Part of a task's name.")
    type: Text = Field("", description="Only results of this task type.")
    sort: Text = Field("task", description="A column of the results; with - in front the highest first.")
    rows: Literal["25", "50", "100", "250", "all"] = Field("100", description="Results on a page.")
    page: int = Field(1, ge=1, le=100_000, description="Which page of results.")


def view(site: Site, state: ModelState, model: str) -> Page:
    """The page of a model."""
    models = site.queries.models
    if model not in models:
        raise missing("model", model, models, then="The overview at / finds models by a part of their name.")
    found = model_page(site, state, models[model], address(f"/models/{model}"))
    return Page(
        title=found.entry.model,
        template="model.html",
        lead=found.lead,
        crumbs=[Crumb(label="Models", href="/")],
        tables=found.tables,
        data=found.data,
        context=found,
        charts=[*found.figures, *found.sweeps],
    )


def all_paths(site: Site) -> Iterable[str]:
    """The page of every model."""
    return [f"/models/{slug}" for slug in site.queries.models]


PAGE = PageRoute(
    path="/models/{model}",
    state=ModelState,
    view=view,
    summary="A model: facts, lineage, entries, its place in every suite, and all its task results.",
    all_paths=all_paths,
)

PAGES = (PAGE,)
