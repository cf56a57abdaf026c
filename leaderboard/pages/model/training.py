"""How a recipe trained for an entry's scores: the choice, the seeds, and how much settings matter.

Of a model that is the best of a sweep, the score of every member by its value of the setting.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import mean, median
from typing import Any

from markupsafe import Markup

from harness.lineage import Lineage, SweepPart
from harness.scores import score_text
from leaderboard.pages.model.suites import Standing
from leaderboard.pages.recipe.facts import words
from leaderboard.pages.task.names import task_path
from leaderboard.plots.bar_plot import bars
from leaderboard.plots.line_plot import lines
from leaderboard.plots.shapes import Axis, Bars, BarSeries, Line, LinePoint, Lines
from leaderboard.tables import EMPTY, Cell, Column, Row, Table, Value

Document = Mapping[str, Any]

SETTINGS = {"batch_size": "batch", "weight_decay": "decay", "epochs": "epochs"}
"""The settings of a grid beside the learning rate, as a line of a plot is named."""

MOST = 5
"""Lines of a plot, beyond which the best, the median and the worst stand for all."""

KINDS = {
    "fresh": "fresh seeds at the chosen settings",
    "final": "the recipe's own seeds at the chosen settings",
    "protocol": "all runs of a recipe that chooses nothing",
    "maximum": "the best run of the grid",
}
"""What the seeds behind a score are (results/README.md)."""

CHOSEN = (
    "The development sets chose the settings, and the scores are measured on the same sets: they err upward. "
    "Fresh seeds take away the luck of a seed, not that of the choice."
)


BEST = (
    "A score is that of each run's best evaluation on the development set, as the recipe has it: it errs "
    "upward, which the interval does not see. The last and the cross-fitted evaluations stand beside it."
)


@dataclass(frozen=True, kw_only=True)
class Figure:
    """A plot with its caption."""

    caption: str
    svg: Markup


@dataclass(frozen=True, kw_only=True)
class SweepCurves:
    """The scores of a sweep's members, of each seed of the model: a table, plots, and plain values."""

    table: Table | None = None
    figures: Sequence[Figure] = ()
    data: Sequence[Mapping[str, Any]] = ()


@dataclass(frozen=True, kw_only=True)
class Trained:
    """What the records of an entry say of their training.

    `chosen` holds the results for which settings were chosen on the data they were measured on.
    """

    table: Table | None = None
    figures: Sequence[Figure] = ()
    data: Sequence[Mapping[str, Any]] = ()
    chosen: frozenset[int] = frozenset()


def trained_of(documents: Mapping[int, Document], standings: Sequence[Standing]) -> Trained:
    """What records say, by the number of their results.

    Args:
        documents: Records.
        standings: Of the entry, for its intervals.
    """
    records = {number: one for number, one in documents.items() if one.get("training")}
    if not records:
        return Trained()
    chosen = frozenset(number for number, one in records.items() if was_chosen(one["training"]))
    bounds = _intervals(standings)
    return Trained(
        table=Table(
            name="training",
            caption="What was trained for each task: scores × 100",
            columns=COLUMNS,
            rows=[Row(cells=_cells(n, one, bounds, n in chosen)) for n, one in records.items()],
            notes=notes_on([record["training"] for record in records.values()]),
        ),
        figures=[figure for one in records.values() for figure in figures_of(one)],
        data=[{"task": one["task"]["name"], "result": n, **sensitivity(one)} for n, one in records.items()],
        chosen=chosen,
    )


def notes_on(trainings: Sequence[Document]) -> list[str]:
    """Why scores of recipes err upward."""
    best = any((one.get("evaluation") or {}).get("counts") == "best" for one in trainings)
    return [*([CHOSEN] if any(map(was_chosen, trainings)) else []), *([BEST] if best else [])]


def was_chosen(training: Document) -> bool:
    """Whether settings were chosen on the data of the score."""
    return bool(training.get("chosen")) and len(training.get("cells") or ()) > 1


def cell_text(cell: Document) -> str:
    """Settings in a few words.

    >>> cell_text({"learning_rate": 3e-05, "batch_size": 16, "epochs": 2})
    'lr 3e-05, batch 16, epochs 2'
    """
    named = {"learning_rate": "lr", **SETTINGS, "seed": "seed"}
    parts = [f"{word} {cell[name]:g}" for name, word in named.items() if _number(cell.get(name)) is not None]
    return ", ".join(parts)


COLUMNS = [
    Column(key="name", label="Task", sticky=True),
    Column(key="score", label="Score", numeric=True, note="By the recipe's own convention."),
    Column(key="last", label="last", numeric=True, group="other evaluations",
           note="The last evaluation of each run, where the score is that of its best."),
    Column(key="cross_fitted", label="cross-fitted", numeric=True, group="other evaluations",
           note="Chosen on one half of the development set and scored on the other."),
    Column(key="interval", label="95 % interval", note="Over seeds and examples."),
    Column(key="deviation", label="sd", numeric=True, group="seeds", note="Standard deviation over seeds."),
    Column(key="seeds", label="scores", group="seeds"),
    Column(key="kind", label="which", group="seeds"),
    Column(key="cells", label="Runs", numeric=True, group="grid", note="Runs of the grid."),
    Column(key="best", label="best", numeric=True, group="grid", note="The best run: it errs upward."),
    Column(key="diverged", label="diverged", numeric=True, group="grid"),
    Column(key="constant", label="constant", numeric=True, group="grid",
           note="Runs that give one and the same answer for every row."),
    Column(key="chosen", label="Chosen settings"),
    Column(key="loss", label="Loss", note="At the first step and at the last."),
]  # fmt: skip


def _cells(number: int, record: Document, bounds: Mapping[tuple[str, str], Any], chosen: bool) -> list[Cell]:
    training, task = record["training"], record["task"]["name"]
    seeds = training.get("seeds") or {}
    scores = [_number(score) for score in seeds.get("scores") or ()]
    cells = training.get("cells") or ()
    told = " ".join("×" if score is None else score_text(score) for score in scores)
    kind = "chosen" if chosen else ""
    best = training.get("grid_maximum")
    return [
        Cell(text=task, value=task, href=task_path(task)),
        Cell(text=score_text(record["main_score"]), value=record["main_score"], kind=kind,
             href=f"/results/{number}"),
        *(_share(other) for other in _other_evaluations(training)),
        _bounds(bounds.get((task, str(training.get("view"))))),
        _share(seeds.get("standard_deviation")),
        Cell(text=told, value=told or None, note="× diverged" if None in scores else ""),
        Cell(text=KINDS.get(str(seeds.get("kind")), ""), value=seeds.get("kind")),
        Cell(text=str(len(cells)) if cells else "", value=len(cells) or None),
        _share(best),
        *(Cell(text=str(training[n]), value=training[n]) if n in training else EMPTY
          for n in ("diverged", "constant")),
        Cell(text=cell_text(training.get("chosen") or {})),
        Cell(text=loss_text(training.get("loss") or {})),
    ]  # fmt: skip


def _other_evaluations(training: Document) -> list[float | None]:
    """The scores of the last and the cross-fitted evaluations, where the best one counts."""
    part = training.get("evaluation") or {}
    others = [part.get(name) or {} for name in ("last", "cross_fitted")]
    return [_number(one.get("score")) if part.get("counts") == "best" else None for one in others]


def loss_text(loss: Document) -> str:
    """A loss from its first to its last value."""
    first, last = _number(loss.get("first")), _number(loss.get("last"))
    return "" if first is None or last is None else f"{first:.3g} → {last:.3g}"


def _share(value: Any) -> Cell:
    known = _number(value)
    return EMPTY if known is None else Cell(text=score_text(known), value=known)


def _bounds(pair: tuple[float, float] | None) -> Cell:
    if pair is None:
        return EMPTY
    return Cell(text=f"{score_text(pair[0])}–{score_text(pair[1])}", value=f"{pair[0]} {pair[1]}")


def _intervals(standings: Sequence[Standing]) -> dict[tuple[str, str], tuple[float, float]]:
    """The intervals of tasks, by task and convention."""
    found = {}
    for one in standings:
        for at, column in enumerate(one.listed.suite.columns):
            low, high = float(one.grid.low[0, at]), float(one.grid.high[0, at])
            if one.grid.view and low == low and len(column.tasks) == 1:
                found[column.tasks[0].name, one.grid.view] = (low, high)
    return found


def sensitivity(record: Document) -> dict[str, Any]:
    """What the plots of a record show, as plain values."""
    training = record["training"]
    points = {line.label: line.points for line in _lines(training.get("cells") or ())}
    return {
        "lines": {
            label: [{"learning_rate": p.x, "score": p.y, "low": p.low, "high": p.high} for p in found]
            for label, found in points.items()
        },
        "seeds": dict(training.get("seeds") or {}),
        "evaluations": list(training.get("evaluations") or ()),
    }


def figures_of(record: Document) -> Iterator[Figure]:
    """The plots of one record: its grid against the learning rate, and its evaluations."""
    task, training = record["task"]["name"], record["training"]
    found = _lines(training.get("cells") or ())
    if len({point.x for line in found for point in line.points}) > 1:
        plot = Lines(
            title=f"{task}: scores of the grid against the learning rate",
            x=Axis(label="learning rate", kind="log"),
            y=Axis(label="score × 100"),
            lines=[_times_100(line) for line in found],
        )
        yield Figure(caption=f"{task}: how much the learning rate matters", svg=lines(plot))
    curves = list(_curves(training.get("evaluations") or ()))
    if curves:
        curve = Lines(title=f"{task}: evaluations", x=Axis(label="step"), y=Axis(label="value"), lines=curves)
        yield Figure(caption=f"{task}: evaluations during training", svg=lines(curve))


def _times_100(line: Line) -> Line:
    def scaled(value: Any) -> float | None:
        return None if value is None else 100 * float(value)

    points = [LinePoint(x=p.x, y=scaled(p.y), low=scaled(p.low), high=scaled(p.high)) for p in line.points]
    return Line(label=line.label, points=points)


def _lines(cells: Sequence[Document]) -> list[Line]:
    """One line for each of the other settings; of many the best, the median and the worst."""
    varying = [name for name in SETTINGS if len({str(cell.get(name)) for cell in cells}) > 1]
    groups: dict[str, dict[float, list[float | None]]] = {}
    for cell in cells:
        rate = _number(cell.get("learning_rate"))
        if rate is not None and rate > 0:
            label = ", ".join(f"{SETTINGS[name]} {cell.get(name)}" for name in varying) or "all runs"
            groups.setdefault(label, {}).setdefault(rate, []).append(_number(cell.get("score")))
    if len(groups) > MOST:
        return _summary(groups)
    return [Line(label=label, points=[_point(r, at[r]) for r in sorted(at)]) for label, at in groups.items()]


def _point(rate: float, scores: Sequence[float | None]) -> LinePoint:
    """The mean of the runs that did not diverge, with its least and greatest where there are several."""
    known = [score for score in scores if score is not None]
    if not known:
        return LinePoint(x=rate, y=None)
    several = len(known) > 1
    return LinePoint(
        x=rate, y=mean(known), low=min(known) if several else None, high=max(known) if several else None
    )


def _summary(groups: Mapping[str, Mapping[float, Sequence[float | None]]]) -> list[Line]:
    at: dict[float, list[float]] = {}
    for group in groups.values():
        for rate, scores in group.items():
            at.setdefault(rate, []).extend(score for score in scores if score is not None)
    ways: dict[str, Callable[[list[float]], float]] = {"best": max, "median": median, "worst": min}
    return [
        Line(label=name, points=[LinePoint(x=r, y=way(at[r]) if at[r] else None) for r in sorted(at)])
        for name, way in ways.items()
    ]


def sweeps_of(lineages: Sequence[Lineage]) -> SweepCurves:
    """The sweeps of a model's seeds; nothing where none was chosen by one, or the curves are not known."""
    found = [(made.seed, made.sweep) for made in lineages if made.sweep is not None and made.sweep.curve]
    if not found:
        return SweepCurves()
    several = len(found) > 1
    setting, first = found[0][1].setting, found[0][1]
    return SweepCurves(
        table=Table(
            name="sweep",
            caption=f"The sweep of {setting} that chose this model: scores × 100",
            columns=_sweep_columns(first, seeds=several),
            rows=[
                row for seed, sweep in found for row in _sweep_rows(first, sweep, seed if several else None)
            ],
            notes=[*SWEEP_NOTES, *_at_the_end(found)],
        ),
        figures=[
            figure for seed, sweep in found for figure in _sweep_figures(sweep, seed if several else None)
        ],
        data=[{"seed": seed, **sweep.model_dump(mode="json", exclude={"tasks"})} for seed, sweep in found],
    )


SWEEP_NOTES = (
    "A model was trained for each value; that with the highest mean was chosen, and is the one of this page.",
    "The tasks of this table chose it, and its scores there err upward; means over untouched tasks leave "
    "them out.",
)


def _at_the_end(found: Sequence[tuple[int, SweepPart]]) -> list[str]:
    """A note where the best value is the least or the greatest: a wider sweep may have had a better one."""
    for _, sweep in found:
        values = _numbers(sweep.values)
        chosen = _number(sweep.chosen)
        if values and len(values) > 1 and chosen in (min(values), max(values)):
            which = "least" if chosen == min(values) else "greatest"
            return [f"The chosen value is the {which} that was tried: one beyond it may be better."]
    return []


def _sweep_columns(sweep: SweepPart, *, seeds: bool) -> list[Column]:
    return [
        *([Column(key="seed", label="Seed", numeric=True)] if seeds else []),
        Column(key="value", label=sweep.setting, numeric=_numbers(sweep.values) is not None, sticky=True),
        *(Column(key=f"task:{name}", label=name, numeric=True) for name in sweep.tasks),
        Column(key="mean", label="Mean", numeric=True, note="The mean by which the choice was made."),
        Column(key="chosen", label="Chosen"),
        Column(key="model", label="Model", note="The start of the key of its lineage."),
    ]


def _sweep_rows(first: SweepPart, sweep: SweepPart, seed: int | None) -> Iterator[Row]:
    """A row for each member; the columns are those of the first seed's sweep."""
    for member in sweep.curve:
        best = member.value == sweep.chosen
        yield Row(
            kind="pinned" if best else "",
            cells=[
                *([Cell(text=str(seed), value=seed)] if seed is not None else []),
                Cell(text=words(member.value), value=_plain_value(member.value)),
                *(_share(member.scores.get(name)) for name in first.tasks),
                _share(member.mean),
                Cell(text="chosen" if best else "diverged" if member.mean is None else "", value=best),
                Cell(text=member.artifact[:12], value=member.artifact),
            ],
        )


def _plain_value(value: Any) -> Value:
    return value if isinstance(value, int | float | str) else words(value)


SPAN = 3
"""From which ratio of the greatest value to the least on an axis is logarithmic."""

CURVES = 5
"""Tasks of a plot, beyond which the mean stands alone, in the range of the tasks' scores."""


def _sweep_figures(sweep: SweepPart, seed: int | None) -> Iterator[Figure]:
    """The scores against the values: curves of numbers, bars of anything else."""
    of = "" if seed is None else f", seed {seed}"
    title = f"Scores by {sweep.setting}{of}"
    values = _numbers([member.value for member in sweep.curve])
    svg = _sweep_bars(sweep, title) if values is None else _sweep_lines(sweep, title, values)
    yield Figure(caption=f"How much {sweep.setting} matters{of}: scores of the sweep", svg=svg)


def _sweep_lines(sweep: SweepPart, title: str, values: Sequence[float]) -> Markup:
    log = min(values) > 0 and max(values) > SPAN * min(values)
    chosen = _number(sweep.chosen)
    plot = Lines(
        title=title,
        x=Axis(label=sweep.setting, kind="log" if log else "linear"),
        y=Axis(label="score × 100"),
        lines=[_times_100(line) for line in _sweep_series(sweep, values)],
        marks=[] if chosen is None else [(chosen, "chosen")],
    )
    return lines(plot)


def _sweep_series(sweep: SweepPart, values: Sequence[float]) -> Iterator[Line]:
    """The mean, and each task by which was chosen; of many tasks the range about the mean."""
    tasks, members = list(sweep.tasks), list(zip(values, sweep.curve, strict=True))
    many = len(tasks) > CURVES
    known = [m.scores.values() if many else () for m in sweep.curve]
    ends = [(min(scores, default=None), max(scores, default=None)) for scores in known]
    yield Line(
        label=f"mean of {len(tasks)} tasks{', and their range' if many else ''}",
        points=[
            LinePoint(x=x, y=m.mean, low=low, high=high)
            for (x, m), (low, high) in zip(members, ends, strict=True)
        ],
    )
    for name in () if many else tasks:
        yield Line(label=name, points=[LinePoint(x=x, y=m.scores.get(name)) for x, m in members])


def _sweep_bars(sweep: SweepPart, title: str) -> Markup:
    tasks = list(sweep.tasks) if len(sweep.tasks) <= CURVES else []

    def times_100(scores: Sequence[float | None]) -> list[float | None]:
        return [None if score is None else 100 * score for score in scores]

    plot = Bars(
        title=title,
        axis=Axis(label="score × 100"),
        categories=[f"{words(m.value)}{' (chosen)' if m.value == sweep.chosen else ''}" for m in sweep.curve],
        series=[
            BarSeries(label="mean", values=times_100([m.mean for m in sweep.curve])),
            *(
                BarSeries(label=name, values=times_100([m.scores.get(name) for m in sweep.curve]))
                for name in tasks
            ),
        ],
    )
    return bars(plot)


def _numbers(values: Sequence[Any]) -> list[float] | None:
    """Values as numbers; None where one of them is none."""
    found = [_number(value) for value in values]
    return [value for value in found if value is not None] if None not in found else None


def _curves(evaluations: Sequence[Document]) -> Iterator[Line]:
    """A curve for each metric of each split."""
    found: dict[str, list[LinePoint]] = {}
    for one in evaluations:
        for split, name, value in one["metrics"]:
            found.setdefault(f"{split} {name}", []).append(LinePoint(x=one["step"], y=_number(value)))
    yield from (Line(label=label, points=points) for label, points in found.items())


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
