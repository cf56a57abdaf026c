"""The form above a suite's table, its chips, its column picker and its tabs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from leaderboard.filters import Choices, Control, chips
from leaderboard.grid import Grid, UntouchedMeans
from leaderboard.pages.suite.columns import SuiteColumn, is_usual
from leaderboard.scopes import views

if TYPE_CHECKING:
    from leaderboard.views.suite import SuiteState


ZERO = (("", "any"), ("all", "none of the tasks"), ("most", "under half of the tasks"))


GROUPS = (("", "nothing"), ("backbone", "backbone"), ("recipe", "recipe"), ("organisation", "organisation"))


EACH = (("model", "each model"), ("entry", "each revision and treatment"))


REVISIONS = (("pinned", "the suite's own"), ("any", "any (not comparable)"))


def more_controls(grid: Grid, state: SuiteState) -> list[Control]:
    """What the form of a suite has beside the filters over entries."""
    selects = [("zero", "Trained on", ZERO), ("group", "Group by", GROUPS), ("each", "A row for", EACH)]
    found = [
        Control(kind="select", name=name, label=label, value=getattr(state, name), options=options, more=True)
        for name, label, options in [*selects, ("revisions", "Data revisions", REVISIONS)]
    ]
    if len(grid.by_type) > 1:
        kinds = [("", "all"), *((kind, kind) for kind in grid.by_type)]
        found.insert(
            0, Control(kind="select", name="type", label="Task type", value=state.type, options=kinds)
        )
    names = views(grid.listed.suite)
    if len(names) > 1:
        kinds = [(name, f"as {name} prints") for name in names]
        found.insert(0, Control(kind="select", name="view", label="Numbers", value=grid.view, options=kinds))
    return found


def suite_chips(grid: Grid, state: SuiteState, path: str) -> list[tuple[str, str]]:
    """The filters in force, each with the URL without it."""
    own = {"zero": "trained on {} tasks", "type": "only {}", "revisions": "{} data revision"}
    words = {"all": "no", "most": "under half of the"}
    found = chips(state, path)
    for name, label in own.items():
        default = type(state).model_fields[name].get_default()
        value = getattr(state, name)
        if value != default:
            found.append(
                (label.format(words.get(value, value)), f"{path}?{state.query(**{name: default, 'page': 1})}")
            )
    return found


def choices_of(columns: Sequence[SuiteColumn], shown: Sequence[SuiteColumn], state: SuiteState) -> Choices:
    """The column picker."""
    keys = {column.key for column in shown}
    groups: dict[str, list[tuple[str, str, bool, bool]]] = {}
    for column in columns:
        if column.key not in ("rank", "model"):
            groups.setdefault(column.group, []).append(
                (column.key, column.label, column.key in keys, is_usual(column.key, state))
            )
    return Choices(name="cols", groups=list(groups.items()))


def mean_tabs(state: SuiteState, path: str, untouched: UntouchedMeans | None) -> list[tuple[str, str, bool]]:
    """The tabs that choose the mean that ranks."""
    labels = {"tasks": "Rank by the mean over tasks", "types": "Rank by the mean over types"}
    if untouched is not None:
        labels["untouched"] = f"Rank by the mean over the {untouched.part.count} untouched"
    return [
        (label, f"{path}?{state.query(mean=over, sort='-mean', page=1)}", state.mean == over)
        for over, label in labels.items()
    ]
