"""What the pages over backbones share: one convention of GLUE, the filters, and a number's backbone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

from pydantic import Field

from harness.core.types import Convention
from harness.plan.catalog import open_suite
from harness.results.reported import Paper, PaperValue
from leaderboard.data.backbones import Backbone, find_backbone, resolve_base_backbones
from leaderboard.data.queries import SIZES, Entry, find_size_class
from leaderboard.views.cells import build_size_cell
from leaderboard.views.paper_tables import build_printed_cell
from leaderboard.web.filters import CHIPS, SIZE_NAMES
from leaderboard.web.formats import format_parameters
from leaderboard.web.page import check_name
from leaderboard.web.page_state import FilterForm, Options, State, Text
from leaderboard.web.tables import Cell, link

GLUE = "glue"


class BackboneState(State):
    """The parameters of a page over backbones."""

    view: Text = Field("", description="The convention of GLUE that numbers are compared in: a paper's name.")
    q: Text = Field("", description="Part of a name or alias; of several words each must be in one.")
    size: Literal["", "small", "base", "large", "xl", "xxl"] = Field("", description="Size class.")
    origin: Literal["", "reported", "measured"] = Field("", description="Printed in papers, or measured.")
    sort: Text = Field("-glue", description="A column's key; with - in front the highest first.")

    def should_keep(self, backbone: Backbone, origin: str) -> bool:
        """Whether a backbone's numbers of an origin pass the filters."""
        names = " ".join([backbone.name, *backbone.aliases]).casefold()
        if not all(word in names for word in self.q.casefold().split()) or self.origin not in ("", origin):
            return False
        return self.size in ("", find_size_class(backbone.parameters))


def build_backbone_cells(backbone: Backbone) -> dict[str, Cell]:
    """The name and the size of a backbone, with and without embeddings."""
    without = backbone.without_embeddings
    size = build_size_cell(backbone.parameters, unknown="")
    notes = [f"{format_parameters(without)} without embeddings" if without else "", backbone.size_note]
    return {
        "name": link(backbone.name, f"/models/{backbone.slug}"),
        "parameters": replace(size, note="; ".join(filter(None, notes))),
        "without_embeddings": build_size_cell(without, unknown=""),
    }


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


@dataclass(frozen=True, kw_only=True)
class GlueView:
    """The convention of GLUE that a page compares numbers in."""

    chosen: str
    papers: Mapping[str, Paper]

    @staticmethod
    def resolve_convention(state: BackboneState, papers: Mapping[str, Paper]) -> GlueView:
        """The convention that a state names; the suite's first, if none.

        Raises:
            NotFound: GLUE has no convention of this name.
        """
        conventions = open_suite(GLUE).conventions
        check_name("convention", state.view, conventions, then="The page /glue offers all conventions.")
        return GlueView(chosen=state.view or next(iter(conventions)), papers=papers)

    @cached_property
    def known(self) -> Mapping[str, Convention]:
        """Every convention by name."""
        return open_suite(GLUE).conventions

    @property
    def tasks(self) -> Mapping[str, tuple[tuple[str, str], ...]]:
        """The metrics of each task, by the chosen convention."""
        return self.known[self.chosen].parts

    def name(self, convention: str) -> str:
        """A convention's name as readers know it: that of its paper."""
        paper = self.papers.get(convention)
        return paper.name if paper else convention or "not stated"

    def explain_difference(self, other: str) -> str:
        """Why numbers of another convention are not to be compared."""
        return f"by {self.name(other)}'s convention" if other else "its convention is not known"

    def find_other_tasks(self, other: str) -> frozenset[str]:
        """The tasks whose numbers another convention makes in another way; all tasks if it is not known."""
        return frozenset(t for t in self.tasks if not other or self.known[other].parts[t] != self.tasks[t])

    def list_convention_tabs(self, path: str, state: BackboneState) -> list[tuple[str, str, bool]]:
        """The conventions: label, URL, current."""
        return [
            (self.name(name), f"{path}?{state.build_query(view=name)}", name == self.chosen)
            for name in self.known
        ]


def build_plain_cell(row: PaperValue) -> Cell:
    """A printed number without its mark, in a table that says so by row, its interval in the note."""
    cell = build_printed_cell(row)
    interval = cell.text.removeprefix(row.value).strip()
    note = "; ".join(filter(None, [f"printed with {interval}" if interval else "", cell.note.rstrip(".")]))
    return replace(cell, text=row.value, kind="", note=note)


def build_backbone_form(state: BackboneState, path: str, sizes: Iterable[int | None]) -> FilterForm:
    """The form above the table; size classes that nothing is of are not offered."""
    classes = {find_size_class(size) for size in sizes}
    offered: Options = {
        "size": ("Size", [("", "any"), *((name, SIZE_NAMES[name]) for name in SIZES if name in classes)]),
        "origin": ("Origin", [("", "any"), ("reported", "printed in papers"), ("measured", "measured here")]),
    }
    controls = [state.ask_name("Backbone"), *state.offer(offered, always=offered)]
    texts = {name: CHIPS[name] for name in ("q", "size", "origin")}
    return state.build_form(path, controls, chips=texts)
