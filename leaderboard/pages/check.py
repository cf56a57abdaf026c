"""One check: its verdict, why, and every number behind it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence

from harness.checks.outcome import VERDICTS, Check, MarginSource, MeanOutcome, Party, TaskOutcome
from harness.checks.report import advice
from leaderboard.data.documents import adapter, line_of
from leaderboard.data.queries import Entry, Queries
from leaderboard.views.cells import counted, delta_cell, score_cell, when_text
from leaderboard.views.check_tables import suite_path, verdict_cell
from leaderboard.views.task_scores import known_tasks, task_path
from leaderboard.web.page import Crumb, NotFound, Page, serve_page
from leaderboard.web.parameters import State, address
from leaderboard.web.site import Site
from leaderboard.web.tables import Cell, Table, TableRow, link, values_row, values_table, words

TONES = {"regressed": "bad", "inconclusive": "warn", "improved": "good", "passed": "good", "same": "good"}
EXITS = {0: "pass", 1: "regression", 3: "inconclusive"}
HEADS = {
    "verdict": "Verdict", "delta": "Difference", "low": "from", "high": "to", "p": "p",
    "margin": "Allowed loss", "detectable": "Loss it can see", "candidate": "Candidate",
    "baseline": "Baseline",
}  # fmt: skip
"""What is known of a mean and of a task."""
SOURCES: Mapping[MarginSource, str] = {
    "policy": "set by the policy",
    "runs": "from the baseline's repeated runs",
    "checks": "as models differed by that passed earlier checks of this baseline",
    "stated": "from the share of answers that an equal model is taken to change",
}


@serve_page(
    "/check/{check}",
    "A check in full: verdict and why, means and tasks with their intervals, the policy.",
    paths=lambda site: [f"/check/{name}" for name in site.queries.checks],
)
def _view(site: Site, state: State, check: str) -> Page:
    """The page of a check: by its own name, or the newest of an id."""
    queries = site.queries
    ids = (one.name for one in queries.checks.values() if one.id == check)
    name = check if check in queries.checks else next(ids, None)
    if name is None:
        raise NotFound(f"No check is called {check!r}.", hint="The page /checks leads to all of them.")
    made = adapter().validate_json(queries.document("check", name))
    line = address(f"/checks/{line_of(made)}")
    candidates, baselines = (
        [entry for entry in queries.entries.values() if entry.artifact in party.artifacts]
        for party in (made.candidate, made.baseline)
    )
    pair = _pair(candidates, baselines, made.recipe)
    suites = {typed: suite_path(queries, typed) for typed in made.suites}
    compare = _compare(pair, [suite.rpartition("/")[2] for suite in suites.values() if suite])
    models = [_model(some, pair, side) for side, some in enumerate((candidates, baselines))]
    settings = [(name, words(value)) for name, value in made.policy.items()]
    labels = {"setting": "Setting", "value": "Value"}
    policy = values_table("policy", "The policy that decided", labels, settings)
    tables = [_means(made, suites), _tasks(queries, made), policy]
    against = made.baseline.baseline or made.baseline.name
    return Page(
        title=f"{made.candidate.name} against {against}",
        template="check.html",
        lead=f"{made.overall.capitalize()} on {', '.join(made.suites) or 'no suite'}.",
        crumbs=[Crumb(label="Checks", href="/checks"), Crumb(label=f"Against {against}", href=line)],
        tables=tables,
        data={
            "check": json.loads(adapter().dump_json(made)),
            "line": line_of(made),
            "compare": compare or None,
        },
        notes=made.warnings,
        context={
            "check": made,
            "tone": TONES[made.overall],
            "advice": advice(made).split("\n"),
            "suspects": [f"{task.task}: {task.delta_text}" for task in made.tasks if task.suspect],
            "facts": [
                ("Candidate", made.candidate.name, models[0], _party(made.candidate)),
                ("Baseline", against, models[1], _party(made.baseline)),
                *(("Suite", typed, suite, "") for typed, suite in suites.items()),
                *([("Recipe", made.recipe, "", "")] if made.recipe else []),
                ("When", when_text(made.when), "", ""),
                ("Exit code", str(made.exit_code), "", EXITS.get(made.exit_code, "")),
            ],
            "compare": compare,
            "why": _why(pair),
            "line": line,
        },
    )


def _pair(candidates: Sequence[Entry], baselines: Sequence[Entry], recipe: str) -> tuple[Entry, Entry] | None:
    """An entry of each side: treated alike if there are such, as the check has it, with the most tasks."""

    def order(pair: tuple[Entry, Entry]) -> tuple[bool, bool, int]:
        one, other = pair
        return one.treatment == other.treatment, (one.recipe or "") == recipe, one.tasks + other.tasks

    return max(((one, other) for one in candidates for other in baselines), key=order, default=None)


def _compare(pair: tuple[Entry, Entry] | None, suites: Sequence[str]) -> str:
    if pair is None or pair[0] is pair[1]:
        return ""
    return address(
        "/compare", {"m": [pair[1].slug, pair[0].slug], **({"suite": suites[0]} if suites else {})}
    )


def _why(pair: tuple[Entry, Entry] | None) -> str:
    """Why two models cannot be put side by side; empty where they can."""
    if pair is None:
        return "Not both models have records on this site."
    return "Both are one model here: the files are the same." if pair[0] is pair[1] else ""


def _model(entries: Sequence[Entry], pair: tuple[Entry, Entry] | None, side: int) -> str:
    entry = pair[side] if pair is not None else next(iter(entries), None)
    return "" if entry is None else address(f"/models/{entry.model_slug}", {"entry": entry.slug})


def _party(party: Party) -> str:
    """What tells one side from others of its name."""
    runs = f"{len(party.artifacts)} runs" if len(party.artifacts) > 1 else ""
    name = party.name if party.baseline else ""
    source = party.source if party.source not in (party.name, party.baseline) else ""
    revision = f"revision {party.revision[:12]}" if party.revision else ""
    return " · ".join(filter(None, (name, source, revision, runs)))


def _means(check: Check, suites: Mapping[str, str]) -> Table:
    """The means: one row for each suite."""
    heads = {"name": "Suite", **HEADS, "there": "Tasks tested", "wanted": "of"}
    rows = [_mean(mean, suites.get(mean.suite, "")) for mean in check.means]
    return values_table("means", "Means over the tasks that were tested", heads, rows)


def _mean(mean: MeanOutcome, href: str) -> TableRow:
    lacking = mean.wanted - mean.there
    note = f"{lacking} of its tasks were not tested" if lacking > 0 else ""
    return values_row(
        link(mean.suite, href),
        verdict_cell(mean.verdict),
        *_show_numbers(mean),
        Cell(text=str(mean.there), value=mean.there, kind="part" if note else "", note=note),
        mean.wanted,
        key=mean.suite,
    )


def _show_numbers(outcome: MeanOutcome | TaskOutcome, pages: Sequence[str] = ("", "")) -> Iterator[Cell]:
    """What is known of a mean or a task; `pages` are those of the candidate's and the baseline's result."""
    yield from map(delta_cell, (outcome.delta, outcome.low, outcome.high))
    yield _p(outcome.p)
    yield score_cell(outcome.margin, note=SOURCES[outcome.margin_source])
    yield score_cell(outcome.detectable)
    yield from map(score_cell, (outcome.candidate, outcome.baseline), pages)


def _tasks(queries: Queries, check: Check) -> Table:
    """The tasks, by verdict, collapsed ones and the largest losses first."""
    heads = {"name": "Task", **HEADS, "units": "Units", "why": "Why, what would settle it"}
    keys = [key for task in check.tasks for key in (*task.candidate_keys, *task.baseline_keys)]
    results, known = _results(queries, list(dict.fromkeys(keys))), known_tasks(queries)
    tasks = sorted(check.tasks, key=lambda t: (VERDICTS.index(t.verdict), not t.collapsed, t.delta or 0))
    rows = [_task(task, results, task_path(task.task) if task.task in known else "") for task in tasks]
    return values_table("tasks", counted(len(tasks), "task"), heads, rows)


def _task(task: TaskOutcome, results: Mapping[str, str], href: str) -> TableRow:
    what, units = f"{task.type}, {task.metric}", f"{task.units:,} {task.unit}".strip() if task.units else ""
    runs = "" if task.runs in ((0, 0), (1, 1)) else f", {task.runs[0]} against {task.runs[1]} runs"
    pages = [
        next((results[key] for key in keys if key in results), "")
        for keys in (task.candidate_keys, task.baseline_keys)
    ]
    return values_row(
        link(task.task, note=what, href=href),
        verdict_cell(task.verdict, note=what if task.must_not_regress else f"{what} · may regress"),
        *_show_numbers(task, pages),
        units + runs or None,
        " · ".join(filter(None, ("collapsed" * task.collapsed, task.reason, task.to_settle))) or None,
        key=task.task,
    )


def _results(queries: Queries, keys: Sequence[str]) -> dict[str, str]:
    """The pages of results by their EvaluationKeys."""
    found = [row for at in range(0, len(keys), 500) for row in queries.results(key=keys[at : at + 500])]
    return {row.key: f"/results/{row.id}" for row in found if row.key}


def _p(value: float | None) -> Cell:
    """A p-value with what decides of it.

    >>> _p(0.00004).text, _p(0.0312).text
    ('< 0.001', '0.031')
    """
    text = "–" if value is None else "< 0.001" if value < 0.001 else f"{value:.3f}"
    return Cell(text=text, value=value)
