"""What measured entries took on a suite: seconds, tokens and the device, from their records."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeGuard

import numpy as np
from numpy.typing import NDArray

from leaderboard.data.papers import (
    OVER_TASKS,
    OVER_TYPES,
    SUITES,
    TYPES,
    Line,
    Paper,
    key_of,
    plain,
    printed_lines,
)
from leaderboard.data.queries import Entry, Queries
from leaderboard.data.scores import Floats, Means, SuiteScores, UntouchedMeans
from leaderboard.web.charts import Axis, Better, Point, Scatter, frontier_points
from leaderboard.web.formats import parameters_text
from leaderboard.web.page import missing

if TYPE_CHECKING:
    from leaderboard.pages.pareto import ParetoState


@dataclass(kw_only=True)
class Work:
    """What an entry took on one device.

    Attributes:
        tasks: Tasks of the suite that ran there.
        seconds: Of all their steps; for a trained task of every run behind it.
        tokens: Tokens that were encoded.
        encoding: Seconds of encoding them.
    """

    tasks: int = 0
    seconds: float = 0.0
    tokens: float = 0.0
    encoding: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Works:
    """The work of a grid's measured entries: row → device → work."""

    rows: Mapping[int, Mapping[str, Work]] = field(default_factory=dict)

    def devices(self) -> list[str]:
        """The devices, those with the most entries first."""
        count = Counter(device for found in self.rows.values() for device in found)
        return sorted(count, key=lambda device: (-count[device], device))

    def throughput(self, device: str) -> dict[int, float]:
        """Tokens per second of each row on a device."""
        found = {row: works[device] for row, works in self.rows.items() if device in works}
        return {row: w.tokens / w.encoding for row, w in found.items() if w.tokens and w.encoding}

    def cost(self, device: str, price: float) -> dict[int, float]:
        """The price of each row's seconds, where all that is known of it ran on this device."""
        return {
            row: works[device].seconds * price / 3600
            for row, works in self.rows.items()
            if set(works) == {device} and works[device].seconds
        }


def works(queries: Queries, grid: SuiteScores) -> Works:
    """What the measured entries of a grid took, in one look at their records."""
    rows = {entry.id: row for row, entry in enumerate(grid.entries) if entry.origin == "measured"}
    names = [task.name for task in grid.site_suite.suite.tasks]
    found: dict[int, dict[str, Work]] = {}
    for entry, document in queries.records(list(rows), names):
        said = document.get("provenance", {})  # an object: the record's schema says so
        work = found.setdefault(rows[entry], {}).setdefault(_device(said), Work())
        _add(work, said)
    return Works(rows=found)


def _device(said: Mapping[str, Any]) -> str:
    device = said.get("device")
    return str(device.get("name") or device.get("kind")) if isinstance(device, dict) else "unknown device"


def _add(work: Work, said: Mapping[str, Any]) -> None:
    steps = said.get("seconds")
    seconds = {k: v for k, v in steps.items() if _amount(v)} if isinstance(steps, Mapping) else {}
    tokens = said.get("tokens_encoded")
    work.tasks += 1
    work.seconds += sum(seconds.values())
    if _amount(tokens) and seconds.get("encode"):
        work.tokens += tokens
        work.encoding += seconds["encode"]


def _amount(value: Any) -> TypeGuard[float]:
    """Whether this is a number of something; records of any origin may say what they like."""
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < math.inf


Key = Literal["parameters", "dimension", "tokens", "date", "flops", "throughput", "cost"]

FLOPS = 1e18
"""Training compute is drawn in units of so many FLOP: ticks know no prefix beyond T."""


@dataclass(frozen=True, kw_only=True)
class Measure:
    """Something to set a score against.

    Attributes:
        name: In a sentence, and where it is chosen.
        label: On the axis, with its unit.
        better: Which end is better; of dates the earlier one, so that the frontier is what led when.
        why: What is said where no entry has it.
        text: A value as the table prints it.
        of: A value of an entry by its own facts; None for what is found elsewhere.
    """

    name: str
    label: str
    better: Better
    why: str
    text: Callable[[Any], str]
    of: Callable[[Entry], float | date | None] | None = None


def day(text: str | None) -> date | None:
    """A date, None where the text is none.

    >>> day("2024-05-06"), day("2024-05"), day(None)
    (datetime.date(2024, 5, 6), None, None)
    """
    try:
        return date.fromisoformat(text) if text else None
    except ValueError:
        return None


def _whole(number: float) -> str:
    return f"{number:,.0f}"


CARD = "No model with a score here says {} on its card, and no record holds it."

MEASURES: Mapping[Key, Measure] = {
    "parameters": Measure(
        name="parameter count",
        label="Parameters", better="lower", of=lambda entry: entry.parameters,
        text=parameters_text, why=CARD.format("how many parameters it has"),
    ),
    "dimension": Measure(
        name="embedding dimension",
        label="Embedding dimension", better="lower", of=lambda entry: entry.dimension,
        text=_whole, why=CARD.format("how long its vectors are"),
    ),
    "tokens": Measure(
        name="longest input",
        label="Longest input, tokens", better="higher", of=lambda entry: entry.max_tokens,
        text=_whole, why=CARD.format("how many tokens it takes"),
    ),
    "date": Measure(
        name="release date",
        label="Release date", better="lower", of=lambda entry: day(entry.released),
        text=str, why=CARD.format("when it was released"),
    ),
    "flops": Measure(
        name="training compute",
        label="Training compute, 10¹⁸ FLOP", better="lower", text=lambda flop: f"{flop:.3g} FLOP",
        why="Nobody says what it took to pretrain these models: records and imports do not hold it, and no "
        "paper at hand prints it beside this score.",
    ),
    "throughput": Measure(
        name="tokens per second",
        label="Tokens per second", better="higher", text=_whole,
        why="Only records measured by this harness hold how fast a model encoded; no finished model was "
        "measured on this suite, or all its vectors were known from before.",
    ),
    "cost": Measure(
        name="cost in dollars",
        label="Cost, USD", better="lower", text=lambda dollars: f"${dollars:,.4g}",
        why="Only records measured by this harness hold the seconds that a cost is made of; nothing was "
        "measured on this suite.",
    ),
}  # fmt: skip


@dataclass(frozen=True, kw_only=True, eq=False)
class Target:
    """A score of every entry of a grid: (entries,) each, shares of 1.

    Attributes:
        label: What it is.
        values: NaN where nothing is known.
        whole: Whether all that it is made of is there.
        there: How many columns it is made of.
        wanted: How many there are.
        low: Of the 95 % interval; NaN for none.
        high: Likewise.
        selected: Whether scores that it is made of chose the model.
    """

    label: str
    values: Floats
    whole: NDArray[np.bool_]
    there: NDArray[np.int64]
    wanted: int
    low: Floats
    high: Floats
    selected: NDArray[np.bool_]


def targets(grid: SuiteScores, untouched: UntouchedMeans | None) -> dict[str, str]:
    """The scores that can be asked for: key and name."""
    part = untouched.part if untouched else None
    own = {"untouched": f"mean over the {part.count} untouched tasks"} if part else {}
    count = len(grid.site_suite.suite.columns)
    means = {"tasks": f"mean over {count} tasks", "types": "mean over task types"}
    several = len(grid.by_type) > 1
    types = {f"type:{kind}": f"mean of {kind}" for kind in grid.by_type} if several else {}
    tasks = {f"task:{column.name}": column.name for column in grid.site_suite.suite.columns}
    return {**{key: means[key] for key in means if key == "tasks" or several}, **own, **types, **tasks}


def target(grid: SuiteScores, key: str, untouched: UntouchedMeans | None) -> Target:
    """The score of this key.

    Raises:
        NotFound: There is none.
    """
    known = targets(grid, untouched)
    if key not in known:
        raise missing("score", key, known, then="The form above the plot offers those there are.")
    kind, _, name = key.partition(":")
    if kind == "task":
        return _of_task(grid, name)
    if untouched is not None and key == "untouched":
        return _of_means(
            known[key], untouched.over_tasks, *_bounds(grid, key), np.zeros(len(grid.entries), bool)
        )
    means = grid.by_type[name] if kind == "type" else grid.mean(key)
    selected = np.array([bool(grid.chose(row, name)) for row in range(len(grid.entries))], bool)
    return _of_means(known[key], means, *_bounds(grid, key), selected)


def _of_task(grid: SuiteScores, name: str) -> Target:
    at = [column.name for column in grid.site_suite.suite.columns].index(name)
    counted = grid.counted[:, at]
    values = np.where(counted, grid.values[:, at], np.nan)
    return Target(
        label=name, values=values, whole=counted, there=counted.astype(np.int64), wanted=1,
        low=grid.low[:, at], high=grid.high[:, at], selected=grid.selected[:, at],
    )  # fmt: skip


def _of_means(label: str, means: Means, low: Floats, high: Floats, selected: NDArray[np.bool_]) -> Target:
    return Target(
        label=label, values=means.values, whole=means.complete, there=means.count, wanted=means.expected,
        low=low, high=high, selected=selected,
    )  # fmt: skip


def _bounds(grid: SuiteScores, key: str) -> tuple[Floats, Floats]:
    """The known intervals of the mean over tasks."""
    low, high = np.full((2, len(grid.entries)), np.nan)
    for row, average in grid.averages.items() if key == "tasks" else ():
        if average.get("interval"):
            low[row], high[row] = average["interval"]
    return low, high


Place: TypeAlias = float | date

SERIES = ("imported", "reported", "measured")
"""In the order of the plot's colours, which are those of the origins elsewhere."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Dot:
    """One point.

    Attributes:
        entry: What it is of.
        x: What the score costs, in the measure's own unit.
        score: A share of 1.
        low: Of the 95 % interval; NaN for none.
        high: Likewise.
        whole: Whether the score is of all that it should be of.
        there: Of how many columns it is.
        href: Where it leads.
        note: What must be known of it.
        selected: Whether scores that it is made of chose the model.
    """

    entry: Entry
    x: Place
    score: float
    low: float = float("nan")
    high: float = float("nan")
    whole: bool = True
    there: int
    href: str
    note: str = ""
    selected: bool = False


@dataclass(frozen=True, kw_only=True, eq=False)
class Cloud:
    """All points of a page.

    Attributes:
        dots: The best score first, incomplete ones last.
        best: Those of `dots` on the frontier, by x.
        plot: The points as a scatter.
        title: Of the chart.
        without: How many models pass the filters and have the score, but no known x.
        part: How many have some of the score's columns only and are not shown.
    """

    dots: Sequence[Dot]
    best: Sequence[Dot]
    plot: Scatter
    title: str
    without: int
    part: int

    def beaten_by(self, dot: Dot) -> Dot | None:
        """The best of the frontier that is at least as good on both axes, None for one on it."""
        if dot in self.best or not dot.whole:
            return None
        lower = self.plot.better == "lower"
        return max(
            (one for one in self.best if (one.x <= dot.x if lower else one.x >= dot.x)),  # type: ignore[operator]
            key=lambda one: one.score,
            default=None,
        )


def rows_shown(grid: SuiteScores, state: ParetoState) -> list[int]:
    """The rows that pass the filters, without those of papers."""
    return [
        row for row, entry in enumerate(grid.entries) if entry.origin != "reported" and state.keeps(entry)
    ]


def cloud(
    grid: SuiteScores,
    state: ParetoState,
    score: Target,
    values: Mapping[int, Place],
    printed: Iterable[PrintedPoint],
    axis: Axis,
) -> Cloud:
    """The points of a grid in a state.

    Args:
        grid: The suite.
        state: Its filters hold.
        score: What stands upwards.
        values: What stands across, by row.
        printed: Points of papers.
        axis: Of the values.
    """
    kept = [row for row in rows_shown(grid, state) if score.there[row]]
    whole = [row for row in kept if score.whole[row]]
    shown = _standing(grid, score, [row for row in (kept if state.part else whole) if row in values], state)
    dots = [_dot(grid, score, row, values[row]) for row in shown]
    dots += [_printed(point, score) for point in printed if state.keeps(point.entry)]
    dots.sort(key=lambda dot: (not dot.whole, -dot.score))
    plot = _plot(dots, state, axis, score.label)
    what = f"{score.label[0].upper()}{score.label[1:]}, {grid.site_suite.suite.title}"
    own = {id(dot_point): dot for dot, dot_point in zip(dots, plot.points, strict=True)}
    return Cloud(
        dots=dots,
        best=[own[id(point)] for point in frontier_points(plot)],
        plot=plot,
        title=f"{what}, against {MEASURES[state.x].name}",
        without=_models(grid, kept if state.part else whole) - _models(grid, shown),
        part=0 if state.part else _models(grid, kept) - _models(grid, whole),
    )


def _models(grid: SuiteScores, rows: Iterable[int]) -> int:
    return len({grid.entries[row].model_slug for row in rows})


def _standing(grid: SuiteScores, score: Target, rows: Sequence[int], state: ParetoState) -> list[int]:
    """One row for each model: that with the most columns, then the best known revision."""
    if state.each == "entry":
        return list(rows)
    return grid.one_for_each_model(rows, score.there)


def _dot(grid: SuiteScores, score: Target, row: int, x: Place) -> Dot:
    entry = grid.entries[row]
    whole, there, selected = bool(score.whole[row]), int(score.there[row]), bool(score.selected[row])
    notes = [] if whole else [f"only {there} of {score.wanted}: not comparable"]
    notes += ["scores in it chose the model"] if selected else []
    return Dot(
        entry=entry, x=x, score=float(score.values[row]), low=float(score.low[row]),
        high=float(score.high[row]), whole=whole, there=there, href=f"/models/{entry.model_slug}",
        note="; ".join(notes), selected=selected,
    )  # fmt: skip


def _printed(point: PrintedPoint, score: Target) -> Dot:
    return Dot(
        entry=point.entry, x=point.flop, score=point.score, there=score.wanted, href=point.href,
        note=point.note,
    )  # fmt: skip


def _plot(dots: Sequence[Dot], state: ParetoState, axis: Axis, label: str) -> Scatter:
    return Scatter(
        x=axis,
        y=Axis(label=f"{label[0].upper()}{label[1:]} (× 100)"),
        points=[_point(dot, state) for dot in dots],
        better=MEASURES[state.x].better,
        series=SERIES,
    )


def _point(dot: Dot, state: ParetoState) -> Point:
    x = dot.x / FLOPS if state.x == "flops" and isinstance(dot.x, int | float) else dot.x
    return Point(
        label=dot.entry.model, x=x, y=100 * dot.score, low=100 * dot.low, high=100 * dot.high,
        href=dot.href, series=dot.entry.origin, hollow=not dot.whole, note=dot.note,
    )  # fmt: skip


COMPUTE = re.compile(r"\bC=([\d.]+(?:e\d+)?)")
TOKENS = re.compile(r"\btokens ([\d.]+ ?[KMBT])\b")
SHORT = {full: short for short, full in TYPES.items()}
UNITS = {"K": 1e3, "M": 1e6, "B": 1e9, "T": 1e12}


@dataclass(frozen=True, kw_only=True)
class PrintedPoint:
    """A line of a paper's table.

    Attributes:
        entry: The line as filters see it; it is none of the index.
        flop: The printed training compute.
        score: A share of 1.
        href: The table.
        note: The printed setting.
    """

    entry: Entry
    flop: float
    score: float
    href: str
    note: str


def printed_points(papers: Iterable[Paper], suite: str, score: str) -> list[PrintedPoint]:
    """The lines that print both a training compute and a score.

    Args:
        papers: Where to look.
        suite: The suite's name in the catalog.
        score: As in `leaderboard.pages._costs.targets`.
    """
    return [point for paper in papers for point in _of_paper(paper, suite, score)]


def _of_paper(paper: Paper, suite: str, score: str) -> Iterator[PrintedPoint]:
    for table in paper.tables.values():
        for line in printed_lines(table.rows) if SUITES.get(table.rows[0].suite) == suite else ():
            compute, value = COMPUTE.search(line.first.setting), _score(line, score)
            if compute and value is not None:
                scale = 1 if line.first.unit == "fraction" else 100
                yield PrintedPoint(
                    entry=_entry(line, paper), flop=float(compute[1]), score=value / scale,
                    href=f"/papers/{paper.slug}#table-{key_of(table.id)}",
                    note=f"{paper.name}: {line.first.setting}",
                )  # fmt: skip


def _score(line: Line, score: str) -> float | None:
    kind, _, name = score.partition(":")
    if name:
        wanted = SHORT.get(name) if kind == "type" else name
        found = (row.number for column, row in line.cells.items() if plain(row.suite, column) == wanted)
        return next(found, None)
    if score == "untouched":
        return None  # a printed mean has the tasks that it leaves out
    means = line.means
    if score == "types":
        return means.get(OVER_TYPES)
    return means.get(OVER_TASKS) if OVER_TASKS in means else next(iter(means.values()), None)


def _entry(line: Line, paper: Paper) -> Entry:
    model, _ = line.model
    tokens = TOKENS.search(line.first.setting)
    name = f"{model} ({tokens[1]} tokens)" if tokens else model
    return Entry(
        id=0, slug="", model=name, model_slug="", origin="reported", source=paper.slug, revision=None,
        trust="reported", artifact=None, treatment=line.first.setting, recipe=None, output="",
        parameters=number_with_unit(line.first.params), dimension=None, max_tokens=None, released=None,
        open_weights=None, adapted_from=None, trained_on=None, newest=None, tasks=0,
    )  # fmt: skip


def number_with_unit(text: str) -> int | None:
    """A printed number of parameters.

    >>> number_with_unit("198M"), number_with_unit("1.3B"), number_with_unit("")
    (198000000, 1300000000, None)
    """
    found = re.fullmatch(r"([\d.]+) ?([KMBT])", text)
    return round(float(found[1]) * UNITS[found[2]]) if found else None
