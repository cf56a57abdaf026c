"""How recipes train: settings, the choice among them, seeds and sweeps, as tables and charts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from statistics import mean, median
from typing import Any, TypeAlias

from harness.core.keys import Lineage, MemberPart, SweepPart, list_swept_settings
from harness.core.types import is_number
from harness.jobs.recipe import ModelRecipe, TaskRecipe
from harness.results.reported import Paper
from harness.results.scores import score_text
from leaderboard.data.suites import format_slug
from leaderboard.views.task_scores import format_task_path
from leaderboard.web.charts import Axis, Bars, BarSeries, Chart, Curve, Lines, Point, build_chart
from leaderboard.web.tables import (
    EMPTY,
    Cell,
    Table,
    TableColumn,
    TableRow,
    describe_value,
    format_value_cell,
    link,
    values_table,
)

AnyRecipe: TypeAlias = TaskRecipe | ModelRecipe
Document: TypeAlias = Mapping[str, Any]
Sweeps: TypeAlias = Sequence[tuple[int, SweepPart]]
"""The sweep of each seed of a model."""

SETTINGS = {"batch_size": "batch", "weight_decay": "decay", "epochs": "epochs"}
"""The settings of a grid beside the learning rate, as a line of a chart is named."""

MOST_LINES = 5
"""Lines of a chart, beyond which a summary stands for all."""

LOG_RATIO = 3
"""From which ratio of the greatest value to the least an axis is logarithmic."""

SEED_KINDS = {
    "fresh": "fresh seeds at the chosen settings",
    "final": "the recipe's own seeds at the chosen settings",
    "protocol": "all runs of a recipe that chooses nothing",
    "maximum": "the best run of the grid",
}
"""What the seeds behind a score are (results/README.md)."""

CHOSEN_ON_SCORES = (
    "The development sets chose the settings, and the scores are measured on the same sets: they err upward. "
    "Fresh seeds take away the luck of a seed, not that of the choice."
)
BEST_EVALUATION = (
    "A score is that of each run's best evaluation on the development set, as the recipe has it: it errs "
    "upward, which the interval does not see. The last and the cross-fitted evaluations stand beside it."
)
SWEEP_NOTES = (
    "A model was trained for each row; the one with the highest mean is the model of this page.",
    "The tasks of this table chose it, and its scores there err upward; means over untouched tasks leave "
    "them out.",
)


def is_of_paper(recipe: AnyRecipe, paper: Paper) -> bool:
    """Whether a recipe is made after a paper: its source begins with the paper's name."""
    return recipe.source.startswith(f"{paper.name},")


def was_chosen(training: Document) -> bool:
    """Whether settings were chosen on the data of the score."""
    return bool(training.get("chosen")) and len(training.get("cells") or ()) > 1


def list_training_notes(trainings: Sequence[Document]) -> list[str]:
    """Why scores of recipes err upward."""
    best = any((one.get("evaluation") or {}).get("counts") == "best" for one in trainings)
    notes = [CHOSEN_ON_SCORES] if any(map(was_chosen, trainings)) else []
    return [*notes, BEST_EVALUATION] if best else notes


COLUMNS = [
    TableColumn(key="name", label="Task", sticky=True),
    TableColumn(key="score", label="Score", numeric=True, note="By the recipe's own convention."),
    TableColumn(key="last", label="last", numeric=True, group="other evaluations",
           note="The last evaluation of each run, where the score is that of its best."),
    TableColumn(key="cross_fitted", label="cross-fitted", numeric=True, group="other evaluations",
           note="Chosen on one half of the development set and scored on the other."),
    TableColumn(key="interval", label="95 % interval", note="Over seeds and examples."),
    TableColumn(key="deviation", label="sd", numeric=True, group="seeds",
                note="Standard deviation over seeds."),
    TableColumn(key="seeds", label="scores", group="seeds", note="× diverged"),
    TableColumn(key="kind", label="which", group="seeds"),
    TableColumn(key="cells", label="runs", numeric=True, group="grid"),
    TableColumn(key="best", label="best", numeric=True, group="grid", note="The best run: it errs upward."),
    TableColumn(key="diverged", label="diverged", numeric=True, group="grid"),
    TableColumn(key="constant", label="constant", numeric=True, group="grid",
           note="Runs that give one and the same answer for every row."),
    TableColumn(key="chosen", label="Chosen settings"),
    TableColumn(key="loss", label="Loss", note="At the first step and at the last."),
]  # fmt: skip


def build_training_table(
    records: Mapping[int, Document], intervals: Mapping[tuple[str, str], tuple[float, float]]
) -> Table | None:
    """What was trained for each task, of records by result and intervals by task and convention."""
    trained = {number: one for number, one in records.items() if one.get("training")}
    if not trained:
        return None
    return Table(
        name="training",
        caption="What was trained for each task: scores × 100",
        columns=COLUMNS,
        rows=[TableRow(cells=list(_iter_training_cells(n, one, intervals))) for n, one in trained.items()],
        notes=list_training_notes([record["training"] for record in trained.values()]),
    )


def _iter_training_cells(
    number: int, record: Document, intervals: Mapping[tuple[str, str], tuple[float, float]]
) -> Iterator[Cell]:
    training, task = record["training"], record["task"]["name"]
    seeds, loss, evaluation = (training.get(name) or {} for name in ("seeds", "loss", "evaluation"))
    scores = [_convert_number(score) for score in seeds.get("scores") or ()]
    others = evaluation if evaluation.get("counts") == "best" else {}
    interval = intervals.get((task, str(training.get("view"))))
    first, last = (_convert_number(loss.get(name)) for name in ("first", "last"))
    yield link(task, format_task_path(task))
    kind = "chosen" if was_chosen(training) else ""
    yield _build_score_cell(record["main_score"], kind, f"/results/{number}")
    yield from (_build_score_cell((others.get(name) or {}).get("score")) for name in ("last", "cross_fitted"))
    yield format_value_cell("–".join(map(score_text, interval)) if interval else "")
    yield _build_score_cell(seeds.get("standard_deviation"))
    yield format_value_cell(" ".join("×" if score is None else score_text(score) for score in scores))
    yield format_value_cell(SEED_KINDS.get(str(seeds.get("kind")), ""))
    yield format_value_cell(len(training.get("cells") or ()) or "")
    yield _build_score_cell(training.get("grid_maximum"))
    yield from (format_value_cell(training.get(name, "")) for name in ("diverged", "constant"))
    yield format_value_cell(_format_settings(training.get("chosen") or {}))
    yield format_value_cell("" if first is None or last is None else f"{first:.3g} → {last:.3g}")


def _format_settings(run: Document) -> str:
    """The settings of a run in a few words.

    >>> _format_settings({"learning_rate": 3e-05, "batch_size": 16, "epochs": 2})
    'lr 3e-05, batch 16, epochs 2'
    """
    names = {"learning_rate": "lr", **SETTINGS, "seed": "seed"}
    settings = {word: _convert_number(run.get(name)) for name, word in names.items()}
    return ", ".join(f"{word} {number:g}" for word, number in settings.items() if number is not None)


def _build_score_cell(value: Any, kind: str = "", href: str = "") -> Cell:
    number = _convert_number(value)
    return EMPTY if number is None else Cell(text=score_text(number), value=number, kind=kind, href=href)


def iter_training_charts(record: Document) -> Iterator[Chart]:
    """The charts of one record: its grid against the learning rate, and its evaluations."""
    task, training = record["task"]["name"], record["training"]
    lines = build_grid_lines(training.get("cells") or ())
    if len({point.x for line in lines for point in line.points}) > 1:
        rates = Axis(label="learning rate", kind="log")
        yield _plot_scores(f"{task}: scores of the grid by learning rate", rates, lines)
    curves: dict[str, list[Point]] = {}
    for evaluation in training.get("evaluations") or ():
        for split, name, value in evaluation["metrics"]:
            point = Point(x=evaluation["step"], y=_convert_number(value))
            curves.setdefault(f"{split} {name}", []).append(point)
    if curves:
        title = f"{task}: evaluations during training"
        lines = [Curve(label=name, points=points) for name, points in curves.items()]
        plot = Lines(x=Axis(label="step"), y=Axis(label="value"), lines=lines)
        yield build_chart(format_slug(title), title, plot)


def _plot_scores(
    title: str, x: Axis, lines: Sequence[Curve], marks: Sequence[tuple[float, str]] = ()
) -> Chart:
    """Lines of scores, times 100."""
    scaled = [replace(line, points=[_scale_point(point) for point in line.points]) for line in lines]
    plot = Lines(x=x, y=Axis(label="score × 100"), lines=scaled, marks=marks)
    return build_chart(format_slug(title), title, plot)


def _scale_point(point: Point) -> Point:
    y, low, high = (None if v is None else 100 * float(v) for v in (point.y, point.low, point.high))
    return Point(x=point.x, y=y, low=low, high=high)


def build_grid_lines(cells: Sequence[Document]) -> list[Curve]:
    """The scores of a grid by learning rate: a line for each of the other settings.

    Of many lines the best, the median and the worst are shown.
    """
    varying = [name for name in SETTINGS if len({str(cell.get(name)) for cell in cells}) > 1]
    groups: dict[str, dict[float, list[float | None]]] = {}
    for cell in cells:
        rate = _convert_number(cell.get("learning_rate"))
        if rate is not None and rate > 0:
            label = ", ".join(f"{SETTINGS[name]} {cell.get(name)}" for name in varying) or "all runs"
            groups.setdefault(label, {}).setdefault(rate, []).append(_convert_number(cell.get("score")))
    if len(groups) <= MOST_LINES:
        lines = {name: [_mean_point(x, at[x]) for x in sorted(at)] for name, at in groups.items()}
        return [Curve(label=name, points=points) for name, points in lines.items()]
    rates: dict[float, list[float]] = {}
    for group in groups.values():
        for rate, scores in group.items():
            rates.setdefault(rate, []).extend(score for score in scores if score is not None)
    ways: dict[str, Callable[[list[float]], float]] = {"best": max, "median": median, "worst": min}
    return [
        Curve(label=name, points=[Point(x=x, y=way(of) if of else None) for x, of in sorted(rates.items())])
        for name, way in ways.items()
    ]


def _mean_point(rate: float, scores: Sequence[float | None]) -> Point:
    """The mean of the runs that did not diverge, with their range where several did not."""
    done = [score for score in scores if score is not None]
    low, high = (min(done), max(done)) if len(done) > 1 else (None, None)
    return Point(x=rate, y=mean(done) if done else None, low=low, high=high)


def collect_sweeps(lineages: Sequence[Lineage]) -> Sweeps:
    """The sweeps that chose a model's seeds and whose curves are known."""
    return [(made.seed, made.sweep) for made in lineages if made.sweep is not None and made.sweep.curve]


def sweep_table(sweeps: Sweeps) -> Table | None:
    """The score of every member of the sweeps; None without any."""
    if not sweeps:
        return None
    first = sweeps[0][1]
    tasks = {f"task:{name}": name for name in first.tasks}
    seed = {"seed": "Seed"} if len(sweeps) > 1 else {}
    names = {"value" if name == first.setting else f"set:{name}": name for name in first.names}
    labels = {**seed, **names, **tasks, "mean": "Mean", "chosen": "Chosen", "model": "Model"}
    rows = [
        [*([number] if seed else []), *_iter_member_cells(first, sweep, member)]
        for number, sweep in sweeps for member in sweep.curve
    ]  # fmt: skip
    caption = f"The sweep of {first.setting} that chose this model: scores × 100"
    return values_table("sweep", caption, labels, rows, notes=[*SWEEP_NOTES, *_note_sweep_end(sweeps)])


def _iter_member_cells(first: SweepPart, sweep: SweepPart, member: MemberPart) -> Iterator[Cell]:
    chosen = member.value == sweep.chosen
    for value in list_swept_settings(sweep.setting, member.value).values():
        plain = value if isinstance(value, int | float | str) else describe_value(value)
        yield Cell(text=describe_value(value), value=plain, kind="best" if chosen else "")
    yield from (_build_score_cell(member.scores.get(name)) for name in first.tasks)
    yield _build_score_cell(member.mean)
    diverged = "diverged" if member.mean is None else ""
    yield Cell(text="chosen" if chosen else diverged, value=chosen)
    yield Cell(text=member.artifact[:12], value=member.artifact)


def _note_sweep_end(sweeps: Sweeps) -> list[str]:
    """A note where the best value is the least or the greatest: a wider sweep may have a better one."""
    notes = []
    for _, sweep in _list_plotted_sweeps(sweeps):
        values, chosen = _convert_numbers(sweep.values), _convert_number(sweep.chosen)
        if values and len(values) > 1 and chosen in (min(values), max(values)):
            which = "least" if chosen == min(values) else "greatest"
            text = f"The chosen {sweep.setting} is the {which} that was tried: one beyond may be better."
            notes.append(text)
    return [*dict.fromkeys(notes)]


def _list_plotted_sweeps(sweeps: Sweeps) -> Sweeps:
    """The sweeps, one of several settings as a sweep of each, with the best member of each value."""
    plotted = []
    for seed, sweep in sweeps:
        scored = sweep.model_copy(update={"values": tuple(member.value for member in sweep.curve)})
        for name, values in scored.grid.items() if len(sweep.names) > 1 else ():
            members = [[one for one in sweep.curve if one.value[name] == value] for value in values]
            best = [max(some, key=lambda one: -1 if one.mean is None else one.mean) for some in members]
            curve = [one.model_copy(update={"value": v}) for v, one in zip(values, best, strict=True)]
            changes = {"setting": name, "values": values, "chosen": sweep.chosen[name], "curve": tuple(curve)}
            plotted.append((seed, sweep.model_copy(update=changes)))
    return plotted or sweeps


def sweep_charts(sweeps: Sweeps) -> Iterator[Chart]:
    """The scores of each sweep against the values: curves of numbers, bars of anything else.

    Of several settings each has a chart, with the best score of each value over the others.
    """
    plotted = _list_plotted_sweeps(sweeps)
    kind = "Scores" if plotted is sweeps else "Best scores"
    for seed, sweep in plotted:
        title = f"{kind} by {sweep.setting}" + (f", seed {seed}" if len(sweeps) > 1 else "")
        values, chosen = _convert_numbers([one.value for one in sweep.curve]), _convert_number(sweep.chosen)
        if values is None:
            yield build_chart(format_slug(title), title, _sweep_bars(sweep))
        else:
            # A sweep of rates goes over decades, one of shares or counts does not.
            log = min(values) > 0 and max(values) > LOG_RATIO * min(values)
            axis = Axis(label=sweep.setting, kind="log" if log else "linear")
            marks = [] if chosen is None else [(chosen, "chosen")]
            yield _plot_scores(title, axis, list(_sweep_lines(sweep, values)), marks)


def _sweep_lines(sweep: SweepPart, values: Sequence[float]) -> Iterator[Curve]:
    """The mean, and each task by which was chosen; of many tasks the range about the mean."""
    many, means = len(sweep.tasks) > MOST_LINES, []
    for x, member in zip(values, sweep.curve, strict=True):
        low, high = (way(member.scores.values(), default=None) if many else None for way in (min, max))
        means.append(Point(x=x, y=member.mean, low=low, high=high))
    yield Curve(label=f"mean of {len(sweep.tasks)} tasks{', and their range' if many else ''}", points=means)
    for name in () if many else sweep.tasks:
        scores = [member.scores.get(name) for member in sweep.curve]
        yield Curve(label=name, points=[Point(x=x, y=y) for x, y in zip(values, scores, strict=True)])


def _sweep_bars(sweep: SweepPart) -> Bars:
    tasks = sweep.tasks if len(sweep.tasks) <= MOST_LINES else ()
    scores = {"mean": [member.mean for member in sweep.curve]}
    scores |= {name: [member.scores.get(name) for member in sweep.curve] for name in tasks}
    chosen = {True: " (chosen)", False: ""}
    return Bars(
        axis=Axis(label="score × 100"),
        categories=[f"{describe_value(m.value)}{chosen[m.value == sweep.chosen]}" for m in sweep.curve],
        series=[BarSeries(label=name, values=[None if score is None else 100 * score for score in values])
                for name, values in scores.items()],
    )  # fmt: skip


def _convert_numbers(values: Sequence[Any]) -> list[float] | None:
    """Values as numbers; None where one of them is none."""
    numbers = [number for value in values if (number := _convert_number(value)) is not None]
    return numbers if len(numbers) == len(values) else None


def _convert_number(value: Any) -> float | None:
    return float(value) if is_number(value) else None
