"""Reproductions: which numbers of several sources agree, which do not and by how much, which are broken."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from statistics import median
from typing import Any, Literal

from pydantic import Field

from leaderboard.data.groups import group_by
from leaderboard.views import sorting
from leaderboard.views.cells import build_score_cell
from leaderboard.views.reproductions import (
    COMPARISON_FIELDS,
    PATH,
    VERDICTS,
    Comparison,
    format_versions,
    load_reproductions,
)
from leaderboard.views.task_scores import format_task_path
from leaderboard.web.filters import FilterForm, Options, ask_name, build_filter_chips, build_form, offer
from leaderboard.web.page import Page, check_name, serve_page
from leaderboard.web.parameters import State, Text, build_address, build_paging
from leaderboard.web.site import Site
from leaderboard.web.tables import EMPTY, Table, link, values_table

CHIPS = {"q": "model has “{}”", "task": "{}", "verdict": "{}", "mteb": "mteb {}"}
"""The filters in force, as texts."""

COUNTS = {"compared": "Compared", "same": "Same", "differs": "Differ", "unproven": "Data not stated",
          "data": "Other data", "settings": "Other settings", "weights": "Other weights",
          "median": "Median difference", "most": "Largest"}  # fmt: skip
"""The columns of a summary; differences are over those that are the same or differ."""


class _ReproductionsState(State):
    """The parameters of the page."""

    q: Text = Field("", description="Part of a model's name.")
    task: Text = Field("", description="Only this task.")
    verdict: Literal["", "same", "differs", "unproven", "data", "settings", "weights", "chance", "parts"] = (
        Field("", description="Only numbers with this verdict; empty for all that are compared with another.")
    )
    mteb: Text = Field("", description="Only comparisons of these versions of mteb, as listed.")
    sort: Text = Field("-delta", description="A column's key; with - in front the highest first.")
    rows: Literal["25", "50", "100", "250", "all"] = Field("50", description="Comparisons on a page.")
    page: int = Field(1, ge=1, le=100_000, description="Which page of comparisons.")


@serve_page(PATH, "Numbers of several sources side by side: what agrees, what does not, and by how much.")
def _show_reproductions(site: Site, state: _ReproductionsState) -> Page:
    """The page of all comparisons."""
    every = load_reproductions(site.queries).comparisons
    compared = [one for one in every if one.base is not None]
    versions = Counter(map(format_versions, compared))
    check_name("task", state.task, {one.task for one in every}, then="The page /tasks lists all.")
    rows = [one for one in every if _should_show(state, one)]
    task = replace(COMPARISON_FIELDS[0], key="task", card="Task", sticky=False)
    fields = [_MODEL, task, *COMPARISON_FIELDS[1:]]
    rows = sorting.sort_rows(rows, fields, state.sort)
    where = build_paging(len(rows), state, PATH)
    pairs = sorting.fill_table(
        "pairs",
        "Numbers of two sources: scores × 100",
        fields,
        where.cut(rows),
        state=state,
        path=PATH,
        cards=True,
    )
    by_task = sorted(group_by(compared, lambda one: one.task).items(), key=lambda pair: -len(pair[1]))
    by_version = group_by(compared, format_versions)
    counts = Counter(one.verdict for one in every)
    verdicts = [(label.format("…"), counts[key], about) for key, (label, about) in VERDICTS.items()]
    return Page(
        title="Reproductions",
        template="reproductions.html",
        lead=f"{len(compared):,} numbers stand beside another of the same model and task: {counts['same']:,} "
        f"are the same, {counts['differs']:,} differ. {counts['chance']:,} are at chance level.",
        tables=[
            pairs,
            values_table("verdicts", "Verdicts", {"name": "Verdict", "count": "Numbers", "about": "Meaning"},
                         verdicts, "count"),
            _summarize("tasks", "By task", "Task",
                       {link(name, format_task_path(name)): some for name, some in by_task}),
            _summarize("versions", "By versions of mteb: the best known number’s, and the other’s", "mteb",
                       {link(n): some for n, some in by_version.items()}),
        ],
        data={"verdicts": dict(counts)},
        context={"form": _build_reproductions_form(state, versions), "paging": where},
    )  # fmt: skip


_MODEL = sorting.Field[Comparison](
    "model", "Model", lambda one: link(one.value.entry.model, build_address(f"/models/{one.model}")),
    lambda one: one.value.entry.model.casefold(), sticky=True,
)  # fmt: skip


def _should_show(state: _ReproductionsState, one: Comparison) -> bool:
    name = f"{one.model} {one.value.entry.model} {one.base.entry.model if one.base else ''}".casefold()
    return (
        state.q.casefold() in name
        and state.task in ("", one.task)
        and state.mteb in ("", format_versions(one))
        and (one.base is not None if not state.verdict else state.verdict == one.verdict)
    )


def _build_reproductions_form(state: _ReproductionsState, versions: Mapping[str, int]) -> FilterForm:
    offered: Options = {
        "verdict": ("Verdict", [("", "all that are compared"),
                                *((key, label.format("…")) for key, (label, _) in VERDICTS.items())]),
        "mteb": ("mteb", [("", "any versions"), *((name, f"{name} ({n})") for name, n in versions.items())]),
    }  # fmt: skip
    controls = [ask_name(state, "Model"), *offer(state, offered)]
    texts = {"verdict": VERDICTS[state.verdict][0].format("…")} if state.verdict else {}
    return build_form(state, PATH, controls, chips=build_filter_chips(state, PATH, CHIPS, texts))


def _summarize(name: str, caption: str, label: str, groups: Mapping[Any, Sequence[Comparison]]) -> Table:
    """How many of each group are the same, and how far apart those are that can be compared."""
    rows = [(head, *_count_verdicts(some)) for head, some in groups.items()]
    return values_table(name, caption, {"name": label, **COUNTS}, rows, " ".join(COUNTS))


def _count_verdicts(rows: Sequence[Comparison]) -> Iterator[Any]:
    counts = Counter(one.verdict for one in rows)
    gaps = [abs(one.delta or 0.0) for one in rows if one.verdict in ("same", "differs")]
    yield len(rows)
    yield from (counts[verdict] for verdict in ("same", "differs", "unproven", "data", "settings", "weights"))
    yield from (build_score_cell(most(gaps)) if gaps else EMPTY for most in (median, max))
