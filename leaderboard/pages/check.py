"""One check: its verdict, why, and every number behind it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from harness.checks.outcome import VERDICTS, Check, Party
from leaderboard.data.checks import adapter, line_of
from leaderboard.data.queries import Queries
from leaderboard.pages._check_tables import (
    TAGS,
    Links,
    links_of,
    means_table,
    policy_table,
    tasks_table,
    when_text,
)
from leaderboard.web.filters import Control, Form, form
from leaderboard.web.page import Crumb, NotFound, Page, PageRoute
from leaderboard.web.parameters import State, Text, address
from leaderboard.web.tables import Table

if TYPE_CHECKING:
    from leaderboard.web.site import Site


Fact = tuple[str, str, str, str]
"""Name, value, URL, and what must be known of it."""


@dataclass(frozen=True, kw_only=True)
class CheckPage:
    """What the template of a check takes.

    Attributes:
        check: The check.
        tone: Of its verdict.
        facts: What was compared.
        links: Where its parts lead.
        line: Label and URL of its model line.
        form: The filters over tasks.
        tables: Means, tasks, policy.
        data: For the JSON twin.
    """

    check: Check
    tone: str
    facts: Sequence[Fact]
    links: Links
    line: str
    form: Form
    tables: Sequence[Table]
    data: Mapping[str, Any]

    @property
    def shown(self) -> frozenset[str]:
        """The names of the tables that have rows."""
        return frozenset(table.name for table in self.tables if table.rows)


def find_check(queries: Queries, name: str) -> str | None:
    """The check that a part of a path names: by its own name, or the newest of an id."""
    if name in queries.checks:
        return name
    return next((one.name for one in queries.checks.values() if one.id == name), None)


def check_page(queries: Queries, name: str, state: CheckState) -> CheckPage:
    """The page of a check that is there, in a state."""
    check = adapter().validate_json(queries.document("check", name))
    links, path = links_of(queries, check), address(f"/check/{name}")
    tables = [means_table(check, links), tasks_table(check, links, state, path), policy_table(check)]
    return CheckPage(
        check=check,
        tone=TAGS[check.overall],
        facts=_facts(check, links),
        links=links,
        line=address(f"/checks/{line_of(check)}"),
        form=form(state, path, _controls(check, state), chips=_chips(state, path)),
        tables=tables,
        data={
            "check": json.loads(adapter().dump_json(check)),
            "line": line_of(check),
            "compare": links.compare or None,
        },
    )


def _facts(check: Check, links: Links) -> list[Fact]:
    return [
        ("Candidate", check.candidate.name, links.models[0], _said(check.candidate)),
        ("Baseline", check.baseline.baseline or check.baseline.name, links.models[1], _said(check.baseline)),
        *(("Suite", typed, links.suites.get(typed, ""), "") for typed in check.suites),
        *([("Recipe", check.recipe, "", "")] if check.recipe else []),
        ("When", when_text(check.when), "", ""),
        ("Exit code", str(check.exit_code), "", EXITS.get(check.exit_code, "")),
    ]


EXITS = {0: "pass", 1: "regression", 3: "inconclusive"}


def _said(party: Party) -> str:
    """What tells one side from others of its name."""
    runs = f"{len(party.artifacts)} runs" if len(party.artifacts) > 1 else ""
    name = party.name if party.baseline else ""
    source = party.source if party.source not in (party.name, party.baseline) else ""
    revision = f"revision {party.revision[:12]}" if party.revision else ""
    return " · ".join(filter(None, (name, source, revision, runs)))


def _controls(check: Check, state: CheckState) -> list[Control]:
    kinds = sorted({task.type for task in check.tasks})
    options: dict[str, tuple[str, Sequence[tuple[str, str]]]] = {
        "verdict": ("Verdict", [(name, f"{name} ({n})") for name in VERDICTS if (n := len(check.of(name)))]),
        "type": ("Tasks of type", [(kind, kind) for kind in kinds]),
    }
    return [
        Control(kind="select", name=name, label=label, value=getattr(state, name),
                options=[("", "all"), *some])
        for name, (label, some) in options.items() if len(some) > 1
    ]  # fmt: skip


def _chips(state: CheckState, path: str) -> list[tuple[str, str]]:
    asked = {"verdict": state.verdict, "type": state.type}
    return [(value, f"{path}?{state.query(**{name: ''})}") for name, value in asked.items() if value]


class CheckState(State):
    """What the page of a check can be asked."""

    verdict: Literal["", "regressed", "missing", "inconclusive", "not testable", "improved", "equivalent"] = (
        Field("", description="Only tasks of this verdict.")
    )
    type: Text = Field("", description="Only tasks of this type.")
    sort: Text = Field(
        "verdict", description="A column's key of the table of tasks; with - in front downwards."
    )


def view(site: Site, state: CheckState, check: str) -> Page:
    """The page of a check."""
    name = find_check(site.queries, check)
    if name is None:
        raise NotFound(f"No check is called {check!r}.", hint="The page /checks leads to all of them.")
    found: CheckPage = check_page(site.queries, name, state)
    made = found.check
    against = made.baseline.baseline or made.baseline.name
    return Page(
        title=f"{made.candidate.name} against {against}",
        template="check.html",
        lead=f"{made.overall.capitalize()} on {', '.join(made.suites) or 'no suite'}.",
        crumbs=[Crumb(label="Checks", href="/checks"), Crumb(label=f"Against {against}", href=found.line)],
        tables=found.tables,
        data=found.data,
        context=found,
        notes=made.warnings,
    )


PAGE = PageRoute(
    path="/check/{check}",
    state=CheckState,
    view=view,
    summary="A check in full: verdict and why, means and tasks with their intervals, the policy.",
    all_paths=lambda site: [f"/check/{name}" for name in site.queries.checks],
)

PAGES = (PAGE,)
