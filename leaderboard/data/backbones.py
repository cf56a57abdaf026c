"""What papers print: their backbones under all names, numbers by recipe and suite, and lines as entries."""

from __future__ import annotations

import functools
import hashlib
import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from harness.core import files
from harness.core.groups import group_by
from harness.results.notes import parse_amount
from harness.results.reported import (
    AVERAGE,
    SCORES,
    TYPES,
    Paper,
    PaperValue,
    build_csv_error,
    iter_csv_records,
    normalize_metric,
    read_papers,
    read_printed_names,
)
from leaderboard.data.entries import Entry, NewEntry, Unit
from leaderboard.data.paper_lines import (
    OVER_TASKS,
    OVER_TYPES,
    SUITES,
    compute_printed_means,
    format_table_title,
    group_printed_lines,
    has_same_queries,
    match_task_column,
)
from leaderboard.data.suites import SiteSuite, list_conventions

_FIELDS = ("slug", "name", "family", "size_class", "parameters", "without_embeddings", "size_note", "hub_ids",
           "models")  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Backbone:
    """A pretrained encoder that models are made from.

    Attributes:
        parameters: With the embeddings of tokens, without the output layer of pretraining.
        without_embeddings: The same without the embeddings of tokens.
        size_note: What a reader of both numbers must know.
        hub_ids: Its names on the hub, the one of today first; none where no release is known.
        models: Finished models made from it, where mteb's cards do not say so.
        printed: The papers' names for it: (model, size class).
    """

    slug: str
    name: str
    family: str
    size_class: str
    parameters: int | None
    without_embeddings: int | None = None
    size_note: str = ""
    hub_ids: tuple[str, ...]
    models: tuple[str, ...]
    printed: tuple[tuple[str, str], ...]

    @property
    def aliases(self) -> frozenset[str]:
        """All of its names; some may also be those of another size."""
        printed = [name for model, size in self.printed for name in (model, f"{model} {size}")]
        repositories = [hub_id.rpartition("/")[2] for hub_id in self.hub_ids]
        return frozenset([self.slug, self.name, *self.hub_ids, *repositories, *printed])


def load_backbones(folder: Path | None = None) -> dict[str, Backbone]:
    """The backbones by slug, in the order of `backbones.csv` of `results/reported` (or another folder)."""
    folder = folder or files.find_reported_folder()
    return _read_backbones_csv(folder) if folder else {}


@functools.cache
def _read_backbones_csv(folder: Path) -> dict[str, Backbone]:
    names = read_printed_names(folder)
    printed = group_by(names, lambda key: names[key].backbone)
    backbones_by_slug: dict[str, Backbone] = {}
    path = folder / "backbones.csv"
    for line, record in iter_csv_records(path, _FIELDS):
        if record["slug"] in backbones_by_slug or not record["name"]:
            raise build_csv_error(path, line, "it has no name, or the slug of an earlier line.")
        fields: dict[str, Any] = {
            **record,
            **{name: tuple(record[name].split()) for name in ("hub_ids", "models")},
            **{name: parse_parameter_count(record[name]) for name in ("parameters", "without_embeddings")},
            "printed": tuple(printed.pop(record["name"], ())),
        }
        backbones_by_slug[record["slug"]] = Backbone(**fields)
    # A name of models.csv that fits no backbone is misspelt: its numbers would be on no page.
    if printed:
        raise build_csv_error(path, line, f"no backbone is called {next(iter(printed))!r}, as in models.csv.")
    return backbones_by_slug


def parse_parameter_count(text: str) -> int | None:
    """A printed number of parameters.

    >>> parse_parameter_count("137M"), parse_parameter_count("1.2 B"), parse_parameter_count("")
    (137000000, 1200000000, None)
    """
    number = parse_amount(text)
    return round(number) if number and text.strip()[-1].isalpha() else None


def find_printed_parameters(row: PaperValue) -> int | None:
    """The parameters of a printed line's model with embeddings: its backbone's, else as printed."""
    # Papers count in different ways, so a print of a known backbone would be another model's size.
    backbone = find_backbone(row.backbone)
    return backbone.parameters if backbone else parse_parameter_count(row.params)


def find_backbone(name: str) -> Backbone | None:
    """The backbone with this name as a whole: its slug, name, hub id, repository or printed name.

    None for a name of several sizes, such as BERT, and for a model made from a backbone.

    >>> find_backbone("Alibaba-NLP/gte-modernbert-base"), find_backbone("BERT")
    (None, None)
    """
    folder = files.find_reported_folder()
    return _map_aliases(folder).get(_normalize_backbone_name(name)) if folder else None


@functools.cache
def _map_aliases(folder: Path) -> dict[str, Backbone]:
    owners: dict[str, set[str]] = defaultdict(set)
    backbones_by_slug = load_backbones(folder)
    for backbone in backbones_by_slug.values():
        for alias in backbone.aliases:
            owners[_normalize_backbone_name(alias)].add(backbone.slug)
    # An alias of several sizes, such as BERT, names none of them: a guess would mix their scores.
    names = {alias: backbones_by_slug[min(slugs)] for alias, slugs in owners.items() if len(slugs) == 1}
    # The own name of a backbone names it even where it is an alias of another.
    exact = {
        _normalize_backbone_name(name): one
        for one in backbones_by_slug.values()
        for name in (one.name, one.slug)
    }
    return {**names, **exact}


def _normalize_backbone_name(name: str) -> str:
    return re.sub(r"[^a-z0-9/]+", "-", name.casefold()).strip("-")


def resolve_base_backbones(parents: Mapping[str, str | None]) -> dict[str, Backbone]:
    """The backbone that each finished model was made from, through what each was adapted from.

    The table of backbones goes before what `parents` say.
    """
    backbone_by_model = {model: one for one in load_backbones().values() for model in one.models}
    behind = {}
    for model in parents:
        # Cards may name each other as parents: `seen` ends the circle.
        name, seen = None if find_backbone(model) else model, set[str]()
        while name and name not in seen:
            if backbone := backbone_by_model.get(name) or find_backbone(name):
                behind[model] = backbone
                break
            seen.add(name)
            name = parents.get(name)
    return behind


def resolve_backbones(entries: Iterable[Entry], models: Mapping[str, list[Entry]]) -> dict[int, Backbone]:
    """What each entry was made of, by the entry's number: a backbone of the papers, or another model."""
    entries = list(entries)
    behind = resolve_base_backbones({entry.model: entry.adapted_from for entry in entries})
    first = {some[0].model: some[0] for some in models.values()}
    backbones = {}
    for entry in entries:
        root = first.get(entry.backbone, entry)
        other = Backbone(
            slug=root.model_slug, name=entry.backbone, family="", size_class="", parameters=root.parameters,
            hub_ids=(), models=(), printed=(),
        )  # fmt: skip
        backbones[entry.id] = find_backbone(entry.model) or behind.get(entry.model) or other
    return backbones


# What is printed


class Benchmark(NamedTuple):
    """A printed recipe, a suite of the catalog, and the printed suite and column (if empty, the average)."""

    key: str
    recipe: str
    suite: str
    title: str
    printed: str
    metric: str = ""

    def has(self, row: PaperValue) -> bool:
        """Whether a printed number belongs in this column."""
        if row.suite != self.printed or not row.is_score or row.is_copy:
            return False
        if self.metric:
            return row.metric == self.metric
        average = normalize_metric(row.suite, row.metric) == AVERAGE
        return average and (row.treatment or "fine-tuning") == self.recipe


_V1, _V2 = "MTEB(eng, v1)", "MTEB(eng, v2)"
BENCHMARKS = (
    Benchmark("glue", "fine-tuning", "glue", "GLUE", "GLUE dev"),
    Benchmark("simcse-mteb-v1", "SimCSE", "mteb-v1", _V1, _V1),
    Benchmark("simcse-mteb", "SimCSE", "mteb", _V2, _V2),
    Benchmark("unified-mteb-v1", "unified contrastive", "mteb-v1", _V1, _V1),
    Benchmark("cde-mteb-v1", "CDE", "mteb-v1", _V1, _V1),
    Benchmark("dpr-beir", "DPR", "beir", "BEIR", "BEIR"),
    Benchmark("dpr-mldr-ood", "DPR", "mldr", "MLDR, out of domain", "MLDR-en", "DPR MLDR-OOD"),
    Benchmark("dpr-mldr-id", "DPR", "mldr", "MLDR, in domain", "MLDR-en", "DPR MLDR-ID"),
    Benchmark("dpr-codesearchnet", "DPR", "codesearchnet", "CodeSearchNet", "CoIR", "CodeSearchNet"),
    Benchmark("dpr-stackqa", "DPR", "stackqa", "StackQA", "CoIR", "StackQA"),
    Benchmark("colbert-beir", "ColBERT", "beir", "BEIR", "BEIR"),
    Benchmark("colbert-mldr-ood", "ColBERT", "mldr", "MLDR, out of domain", "MLDR-en", "ColBERT MLDR-OOD"),
)
"""The columns of /backbones: ModernBERT evaluates code with one vector for each text, so by DPR."""

RECIPES = {
    "SimCSE": "simcse", "unified contrastive": "unified-contrastive", "CDE": "cde", "DPR": "dpr",
    "dpr-mldr-id": "mldr", "ColBERT": "colbert",
}  # fmt: skip
"""The recipes of the harness that make what a printed recipe (or a benchmark's own) makes."""


def list_recipe_suites(recipe: str) -> list[str]:
    """The suites of the columns whose models a recipe of the harness makes."""
    names = {one: RECIPES.get(one.key) or RECIPES.get(one.recipe) for one in BENCHMARKS}
    return list(dict.fromkeys(one.suite for one in BENCHMARKS if names[one] == recipe))


_LINE = ("table", "model", "size_class", "setting", "suite")
"""What the numbers of one printed line share."""


PrintedScore: TypeAlias = tuple[str, PaperValue, tuple[str, ...]]
"""A printed number of a backbone: its paper's slug, the number, the notes of it and of the tasks in it."""


def collect_printed_scores(papers: Mapping[str, Paper]) -> dict[tuple[str, str], list[PrintedScore]]:
    """The printed numbers by backbone (its slug) and benchmark (its key), in print's order.

    Copied numbers are left out; a number that an overview repeats counts once.
    """
    scores: dict[tuple[str, str], list[PrintedScore]] = defaultdict(list)
    for paper in papers.values():
        # Overviews last: their numbers count only where no other table of the paper has them.
        rows = sorted(paper.rows, key=lambda row: row.setting == "overview")
        for row, benchmark in ((row, one) for row in rows for one in BENCHMARKS if one.has(row)):
            backbone = find_backbone(row.backbone)
            column_scores = scores[backbone.slug, benchmark.key] if backbone else []
            seen_values = {(slug, other.value) for slug, other, _ in column_scores}
            if row.setting != "overview" or (paper.slug, row.value) not in seen_values:
                column_scores.append((paper.slug, row, _collect_score_notes(row, rows)))
    return dict(scores)


def _collect_score_notes(row: PaperValue, rows: Sequence[PaperValue]) -> tuple[str, ...]:
    """The note of a number, and for an average those of its tasks."""
    if normalize_metric(row.suite, row.metric) != AVERAGE:
        return (row.note,) if row.note else ()
    line = [one for one in rows if all(getattr(one, name) == getattr(row, name) for name in _LINE)]
    notes: dict[str, list[str]] = defaultdict(list)
    for part in line:
        if part.metric != row.metric and part.note:
            notes[part.note].append(part.metric)
    # The note of the average stands in front of the others anyway.
    notes.pop(row.note, None)
    # A note of all tasks needs no list of them; the line also holds the average, hence - 1.
    texts = [n if len(of) == len(line) - 1 else f"{', '.join(of)}: {n}" for n, of in notes.items()]
    return tuple(filter(None, [row.note, *texts]))


@dataclass(frozen=True, kw_only=True)
class GlueLine:
    """A printed line of GLUE: its numbers by task, none where the average alone is printed.

    `convention` is that of the numbers (suites/glue.py), empty where it is not known; `source` says where
    the paper has them from, empty for its own; the average may stand in another table.
    """

    paper: str
    backbone: Backbone | None
    name: str
    table: str
    setting: str
    convention: str
    source: str
    tasks: Mapping[str, PaperValue]
    average: PaperValue | None


_SOURCES = {"MosaicBERT Table": "mosaicbert", "Warner 2024": "modernbert"}
"""Words in notes that name a paper whose convention is known."""
_OWN = ("own result", "best average value", "interval bounds")


def collect_glue_lines(papers: Mapping[str, Paper]) -> list[GlueLine]:
    """Every printed line of GLUE; an average in an overview stands in the line of its tasks."""
    lines = [line for paper in papers.values() for line in _iter_glue_lines(paper)]
    for overview in [line for line in lines if not line.tasks]:
        place = (overview.paper, overview.backbone, None)
        matches = [at for at, line in enumerate(lines) if (line.paper, line.backbone, line.average) == place]
        # Where two lines could take the average, it stays a line of its own: a guess may be wrong.
        if len(matches) == 1:
            lines[matches[0]] = replace(lines[matches[0]], average=overview.average)
            lines.remove(overview)
    return lines


def find_glue_source(paper: Paper, row: PaperValue) -> tuple[str, str]:
    """Where a line of GLUE is copied from, and whose convention it is by; empty: nowhere, and unknown."""
    note = row.setting.partition(";")[0] if row.is_copy else row.note
    source = "" if note.startswith(_OWN) else note
    named = next((slug for words, slug in _SOURCES.items() if words in source), "")
    # "BERT-Base [14, 18]": papers also cite the source of a line in the name of its model.
    copied = source or re.search(r"\[\d", row.model)
    return source, named if copied else paper.slug


def _iter_glue_lines(paper: Paper) -> Iterator[GlueLine]:
    rows = [row for row in paper.rows if row.suite == "GLUE dev" and row.is_score]
    for table in paper.tables:
        for line in group_printed_lines([row for row in rows if row.table == table]):
            first = line.first
            tasks = {normalize_metric(first.suite, name): row for name, row in line.cells.items()}
            average = tasks.pop(AVERAGE, None)
            source, convention = find_glue_source(paper, first)
            yield GlueLine(
                paper=paper.slug, backbone=find_backbone(first.backbone), name=first.name,
                table=table, setting=first.setting, convention=convention, source=source, tasks=tasks,
                average=average,
            )  # fmt: skip


# The papers' lines as entries, which are never ranked with the rest


SOURCE = "reported"


def iter_paper_units(folder: Path | None, suites: Mapping[str, SiteSuite]) -> Iterator[Unit]:
    """One unit for all papers of a folder."""
    if folder is None:
        return
    # By content: a checkout gives files new times.
    digest = hashlib.sha256()
    for path in sorted(folder.glob("*")):
        digest.update(path.name.encode() + path.read_bytes() if path.is_file() else b"")
    yield Unit(
        source=SOURCE, name=SOURCE, stamp=digest.hexdigest(),
        read=lambda: [e for one in read_papers(folder).values() for e in _iter_paper_entries(one, suites)],
    )  # fmt: skip


def _iter_paper_entries(paper: Paper, suites: Mapping[str, SiteSuite]) -> Iterator[NewEntry]:
    kept = [
        row for row in paper.rows
        if (suite := suites.get(SUITES.get(row.suite, ""))) and row.unit in SCORES
        if not (row.is_copy and not suite.suite.conventions)
    ]  # fmt: skip
    lines = group_by(kept, lambda row: tuple(getattr(row, name) for name in _LINE))
    for rows in lines.values():
        suite = suites[SUITES[rows[0].suite]]
        if document := _build_scores_document(rows, suite):
            yield _build_paper_entry(paper, rows[0], suite, document)


def _build_scores_document(rows: Sequence[PaperValue], listed: SiteSuite) -> dict[str, Any]:
    """A printed line's scores by task or by type, as shares of 1; empty without any."""
    suite = rows[0].suite
    values = {normalize_metric(suite, row.metric): row.share for row in rows if row.number is not None}
    average = values.pop(AVERAGE, None)
    types = {TYPES[m]: v for m, v in values.items() if m in TYPES} if suite.startswith("MTEB") else {}
    names = [column.name for column in listed.suite.columns]
    columns = {}
    for row in rows:
        metric = normalize_metric(suite, row.metric)
        name = None if types or metric == AVERAGE else match_task_column(metric, names)
        if name is not None and metric in values and has_same_queries(row, name):
            columns[name] = values[metric]
    mean_values = compute_printed_means(suite, values) if types else {}
    if not columns and not types:
        return {}
    return {
        "columns": columns, "types": types, "printed": average, "over_tasks": mean_values.get(OVER_TASKS),
        "over_types": mean_values.get(OVER_TYPES),
    }  # fmt: skip


def _build_paper_entry(
    paper: Paper, row: PaperValue, listed: SiteSuite, document: Mapping[str, Any]
) -> NewEntry:
    conventions = listed.suite.conventions
    printed = conventions.get(find_glue_source(paper, row)[1])
    matching_views = [view for view, one in conventions.items() if printed and one.parts == printed.parts]
    # Numbers of an unknown convention are shown, and enter no mean: /glue refuses to compare them, too.
    document = {**document, "apart": True} if conventions and not matching_views else document
    backbone = find_backbone(row.backbone)
    return NewEntry(
        model=f"{row.model} ({row.size_class})" if row.size_class else row.model,
        origin="reported", source=paper.slug, trust="reported",
        treatment=f"{paper.name}, {format_table_title(row.table)}: {row.setting}",
        parameters=find_printed_parameters(row), output="label" if listed.slug == "glue" else "vector",
        facts={"paper": paper.slug, "table": row.table, "hub_id": row.hub_id,
               "backbone": backbone.slug if backbone else ""},
        averages=[(listed.slug, view, json.dumps(document))
                  for view in matching_views or list_conventions(listed.suite)[:1]],
    )  # fmt: skip
