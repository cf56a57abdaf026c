"""Reproductions: which numbers of several sources agree, which do not and by how much, which are broken."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from statistics import median
from typing import Literal

from pydantic import Field

from harness.core.groups import group_by
from leaderboard.views import sorting
from leaderboard.views.cells import build_score_cell, format_count
from leaderboard.views.reproductions import (
    COMPARISON_FIELDS,
    PATH,
    VERDICTS,
    NumberPair,
    Verdict,
    load_comparisons,
)
from leaderboard.web.page import Page, check_name
from leaderboard.web.page_state import Options, State, Text, build_address, build_paging
from leaderboard.web.routes import serve_page
from leaderboard.web.site import Site
from leaderboard.web.tables import EMPTY, Table, link, values_table

CHIPS = {"q": "model has “{}”", "task": "{}", "verdict": "{}"}

COUNTS = {"compared": "Compared", "same": "Same", "draws": "Differ as two runs may", "differs": "Differ",
          "unproven": "Data not stated",
          "data": "Other data", "settings": "Other settings", "weights": "Other weights",
          "median": "Median difference", "most": "Largest"}  # fmt: skip
"""The columns of a summary; differences are over those that are the same or differ."""


class _ReproductionsState(State):
    """The parameters of the page."""

    q: Text = Field("", description="Part of a model's name.")
    task: Text = Field("", description="Only this task.")
    verdict: Literal[""] | Verdict = Field(
        "", description="Only this verdict; empty for all compared with another, and with q broken ones too."
    )
    sort: Text = Field("-delta", description="A column's key; with - in front the highest first.")
    rows: Literal["25", "50", "100", "250", "all"] = Field("50", description="Comparisons on a page.")
    page: int = Field(1, ge=1, le=100_000, description="Which page of comparisons.")

    def should_show(self, one: NumberPair) -> bool:
        """Whether a comparison passes the filters."""
        name = f"{one.model} {one.value.entry.model} {one.base.entry.model if one.base else ''}".casefold()
        fits = self.verdict == one.verdict if self.verdict else one.base is not None or self.q
        return bool(fits) and self.q.casefold() in name and self.task in ("", one.task)


@serve_page(PATH, "Numbers of several sources side by side: what agrees, what does not, and by how much.")
def _show_reproductions(site: Site, state: _ReproductionsState) -> Page:
    every = load_comparisons(site.queries)
    compared = [one for one in every if one.base is not None]
    check_name("task", state.task, {one.task for one in every}, then="The page /tasks lists all.")
    model = sorting.Field[NumberPair](
        "model", "Model", lambda one: link(one.value.entry.model, build_address(f"/models/{one.model}")),
        lambda one: one.value.entry.model.casefold(), sticky=True,
    )  # fmt: skip
    task, *others = COMPARISON_FIELDS
    fields = [model, replace(task, key="task", card="Task", sticky=False), *others]
    rows = sorting.sort_rows([one for one in every if state.should_show(one)], fields, state.sort)
    shown, beside = Counter(one.verdict for one in rows), sum(one.base is not None for one in rows)
    others_count = beside - shown["same"] - shown["differs"]
    where, counts = build_paging(len(rows), state, PATH), Counter(one.verdict for one in every)
    labels: dict[str, str] = {key: label.format("…") for key, (label, _) in VERDICTS.items()}
    verdicts = [(labels[key], counts[key], about) for key, (_, about) in VERDICTS.items()]
    offered: Options = {"verdict": ("Verdict", [("", "all that are compared"), *labels.items()])}
    by_task = state.ask("line", "task", "Task", placeholder="STS12")
    controls = [state.ask_name("Model"), by_task, *state.offer(offered)]
    named = {"verdict": labels.get(state.verdict, "")}
    form = state.build_form(PATH, controls, chips=CHIPS, values=named)
    lead = (
        f"{beside:,} number{'s stand' if beside != 1 else ' stands'} beside another of the same model "
        f"and task: {shown['same']:,} the same, {shown['differs']:,} different"
        f"{f', {others_count:,} not comparable or undecided' if others_count else ''}."
    )
    if alone := len(rows) - beside:
        lead += f" {format_count(alone, 'broken number')} without another."
    if state.verdict:
        lead = f"{format_count(len(rows), 'number')} with the verdict “{labels[state.verdict]}”."
    elif not form.chips:
        lead += f" In all {counts['chance']:,} scores are at chance level."
    return Page(
        title="Reproductions", lead=lead,
        tables=[
            sorting.fill_table("pairs", "Numbers of two sources: scores × 100", fields, where.cut(rows),
                               state=state, cards=True),
            values_table("verdicts", "Verdicts", {"name": "Verdict", "count": "Numbers", "about": "Meaning"},
                         verdicts, "count"),
            _summarize("tasks", "By task", compared, lambda one: one.task),
            _summarize("versions", "By versions of mteb", compared, lambda one: one.versions),
        ],
        data={"verdicts": dict(counts)},
        context={"form": form, "paging": where},
    )  # fmt: skip


def _summarize(
    name: str, caption: str, compared: Sequence[NumberPair], key: Callable[[NumberPair], str]
) -> Table:
    """How many of each group are the same, and how far apart those are that can be compared."""
    rows = []
    for head, some in sorted(group_by(compared, key).items(), key=lambda pair: -len(pair[1])):
        counts = Counter(one.verdict for one in some)
        gaps = [abs(one.delta or 0.0) for one in some if one.verdict in ("same", "differs")]
        numbers = [counts[verdict] for verdict in VERDICTS if verdict in COUNTS]
        ends = [build_score_cell(most(gaps)) if gaps else EMPTY for most in (median, max)]
        rows.append((head, len(some), *numbers, *ends))
    return values_table(name, caption, {"name": caption, **COUNTS}, rows, " ".join(COUNTS))
