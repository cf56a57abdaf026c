"""Laws through runs: what was fitted here, and what papers print with what follows from it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
from pydantic import Field

from harness.core.groups import group_by
from harness.fits.laws import LOSS_LAWS
from harness.fits.runs import SIZES, Floats, LawName
from harness.fits.stored import Quantity, StoredFit
from harness.results.reported import Paper, PaperValue
from leaderboard.data.paper_lines import compute_power_laws
from leaderboard.views.cells import format_count, format_heading, format_time
from leaderboard.views.documents import build_documents_table, iter_document_paths, load_document
from leaderboard.views.paper_tables import build_printed_cell
from leaderboard.web.charts import Axis, Chart, Curve, Lines, Point, Scatter, build_chart, format_chart_value
from leaderboard.web.drawing import format_tick
from leaderboard.web.page import Page, check_name
from leaderboard.web.page_state import State, Text, build_address
from leaderboard.web.routes import serve_page
from leaderboard.web.site import Site
from leaderboard.web.tables import EMPTY, Cell, Table, values_table

PATH = "/fits"
LAWS: Mapping[LawName, str] = {
    "isoflop": "isoFLOP parabolas",
    "chinchilla": "L = E + A / N^α + B / D^β",
    "finetune": "L(S, N, D) of fine-tuning",
    "power": "power laws of settings",
    "frontier": "frontiers",
    "correlation": "correlation of loss and score",
}
AT = 19
"""The power of ten of the operations at which printed laws are compared: within OptiBERT's budgets."""
BESIDE = 8
"""Most fits whose constants stand beside the printed ones: the newest."""
DRAWN = 12
"""Most budgets that are drawn apart."""
POINTS = 33
"""Points of a drawn law."""
PRINTED = {
    "E": "E_log10",
    "A": "A_log10",
    "α": "alpha",
    "B": "B_log10",
    "β": "beta",
    "exponent of size": "F_N vs C",
    "exponent of tokens": "D vs C",
}
"""By constant of a fit here the metric of OptiBERT's parametric fit, or its power law."""


class _FitState(State):
    """The parameters of the page of a fit."""

    method: Text = Field("", description="The method whose runs are drawn; empty for the first.")


@serve_page(PATH, "Laws that were fitted to runs, and the constants that papers print.")
def _list_view(site: Site, state: State) -> Page:
    facts = site.queries.list_document_facts("fit")
    heads = {"name": "Fit", "law": "Law", "runs": "Runs", "methods": "Methods", "untold": "Not told"}
    named = [{**one, "law": LAWS[one["law"]], "methods": ", ".join(one["methods"])} for one in facts]
    tables = [build_documents_table(named, "fits", "fit", PATH, {**heads, "when": "When"})]
    names = [one["name"] for one in facts if one["law"] in ("isoflop", "chinchilla")]
    if "optibert" in site.papers:
        fits = [load_document(site.queries, "fit", name, "fit", PATH) for name in names[:BESIDE]]
        printed = [row for row in site.papers["optibert"].rows if row.table == "1"]
        tables += [_build_constants_table(printed, fits), _build_laws_table(printed)]
    if "efficient-embeddings" in site.papers:
        tables.append(_build_crossing_table(site.papers["efficient-embeddings"]))
    return Page(
        title="Laws through runs",
        lead="What was fitted here, beside the constants that papers print, and what follows from these.",
        template="documents.html",
        tables=tables,
        context={
            "empty": (
                "Nothing is fitted yet.",
                "A law through the runs of a table is kept in the results folder:",
                "harness fit TABLE --law isoflop --out NAME",
            )
        },
    )


# What papers print


def _build_constants_table(printed: Sequence[PaperValue], fits: Sequence[StoredFit]) -> Table:
    """OptiBERT's constants, and those that fits here have."""
    parametric = {
        row.metric if row.model.startswith("Lhat") else row.model: row
        for row in printed
        if "parametric" in row.setting and (row.model.startswith("Lhat") or row.metric == "exponent")
    }
    columns = [(fit, method) for fit in fits for method in fit.methods]
    labels = [f"{fit.name} {method}".rstrip() for fit, method in columns]
    heads = {"constant": "Constant", "optibert": "OptiBERT, parametric"}
    heads |= {f"fit-{n}": label for n, label in enumerate(labels)}
    rows = []
    for name, metric in PRINTED.items():
        row = parametric.get(metric)
        cell = EMPTY if row is None else build_printed_cell(row)
        label = f"log10 of {name}" if metric.endswith("log10") else name
        rows.append((label, cell, *(_find_constant(fit, method, name, label) for fit, method in columns)))
    notes = [
        "In brackets are 95 % intervals. Sizes are operations per token in OptiBERT, and in a fit here what "
        "its page says.",
        f"Of the fits here, the newest {BESIDE} at most.",
    ]
    return values_table("constants", "Constants of laws, printed and fitted", heads, rows, notes=notes)


def _find_constant(fit: StoredFit, method: str, name: str, label: str) -> Cell:
    """A value with its interval, or a dash with the reason why there is none."""
    quantity = next((q for q in fit.quantities if (q.name, q.method) == (name, method)), None)
    if quantity is None:
        return EMPTY
    ends = [quantity.value, quantity.low, quantity.high]
    if label != name:
        ends = [None if end is None or end <= 0 else math.log10(end) for end in ends]
    if ends[0] is None:
        return Cell(text="–", kind="away", note=quantity.reason)
    value, *bounds = ["" if end is None else f"{end:.4g}" for end in ends]
    return Cell(text=f"{value} [{', '.join(bounds)}]" if all(bounds) else value, value=ends[0])


def _build_laws_table(printed: Sequence[PaperValue]) -> Table:
    """The printed power laws, and those that equations 6 and 7 give of the printed fit."""
    laws = compute_power_laws(printed)
    numbers = (row for row in printed if row.metric in ("a_log10", "exponent"))
    pairs = group_by(numbers, lambda row: (row.model, row.setting))
    law_heads = {"prefactor": "log10 of the prefactor", "exponent": "Exponent", "at": f"At C = 1e{AT}"}
    # A space behind the same headings: other columns may not have the same ones.
    other_heads = {f"{key}-6": f"{label} " for key, label in law_heads.items()}
    heads = {"law": "Law", "how": "Fitted as", **law_heads, **other_heads, "apart": "Printed otherwise"}
    rows: list[list[Any]] = []
    for (law, setting), both in pairs.items():
        both.sort(key=lambda row: row.metric)
        as_printed = [*map(build_printed_cell, both), _build_power_cell(*(row.number or 0.0 for row in both))]
        beside: list[Any] = [EMPTY, EMPTY, EMPTY, ""]
        if "parametric" in setting and (ours := laws.get(law)):
            words = zip(("the prefactor", "the exponent"), both, ours, strict=True)
            odd = [word for word, row, x in words if abs((row.number or 0.0) - x) > float(row.last_place)]
            differs = " and ".join(odd) or "neither"
            beside = [*map(_build_rounded_cell, ours), _build_power_cell(*ours), differs]
        rows.append([law, setting, *as_printed, *beside])
    groups = dict.fromkeys(law_heads, "as printed")
    groups |= dict.fromkeys(other_heads, "by equations 6, 7 from E, A, α, B, β")
    caption = "OptiBERT's power laws, and what its parametric fit gives"
    notes = [
        "C are the operations of a training, F_N those for each token, D its tokens, L − E the loss above "
        "E. A law is the prefactor, times C to the exponent.",
        "Printed otherwise: which printed number is not what the equations give, beyond its last digit.",
    ]
    return values_table("laws", caption, heads, rows, notes=notes, groups=groups)


def _build_rounded_cell(value: float, form: str = ".3f") -> Cell:
    return Cell(text=f"{value:{form}}", value=value)


def _build_power_cell(prefactor: float, exponent: float) -> Cell:
    """What a law gives at the operations at which printed laws are compared."""
    return _build_rounded_cell(10 ** (prefactor + AT * exponent), ".3g")


def _build_crossing_table(paper: Paper) -> Table:
    """Where the two printed lines of full fine-tuning and of LoRA cross, against the printed budget."""
    rows = {(row.model, row.metric): row for row in paper.rows if row.number is not None}
    (full, slope), (other, low) = [
        [rows[method, name] for name in ("intercept", "slope")] for method in ("full fine-tuning", "LoRA")
    ]
    stated = rows["threshold", "crossover budget"]
    rise, fall = ((a.number or 0) - (b.number or 0) for a, b in ((other, full), (slope, low)))
    # Both numbers of a difference are rounded: it is known to a whole last place.
    least = math.exp((rise - float(full.last_place)) / (fall + float(slope.last_place)))
    ratio = math.exp(rise - fall * math.log(stated.number or math.nan))
    values = {
        "operations from which on LoRA is better, as printed": build_printed_cell(stated),
        "operations at which the printed lines cross": _build_rounded_cell(math.exp(rise / fall), ".2g"),
        "the fewest at which they can cross, as the four numbers are rounded":
        _build_rounded_cell(least, ".2g"),
        "LoRA's loss, divided by that of full fine-tuning, at the budget printed, by the lines":
        _build_rounded_cell(ratio),
    }  # fmt: skip
    signs = {row: build_printed_cell(row).text for row in (full, slope, other, low)}
    notes = [
        f"Printed: ln loss = {signs[slope]} ln C + {signs[full]} (full fine-tuning), "
        f"{signs[low]} ln C + {signs[other]} (LoRA)."
    ]
    caption = f"{paper.name}: the budget at which two frontiers cross"
    heads = {"what": "What", "flops": "Value"}
    return values_table("crossing", caption, heads, values.items(), "flops", notes=notes)


# A fit


@serve_page(
    f"{PATH}/{{name}}",
    "A law through runs: what it gives with intervals, what the runs cannot tell, and the residuals.",
    paths=iter_document_paths("fit", PATH),
)
def _show_fit(site: Site, state: _FitState, name: str) -> Page:
    fit: StoredFit = load_document(site.queries, "fit", name, "fit", PATH)
    then = "The form above the charts lists all."
    check_name("method of this fit", state.method, fit.methods, then=then)
    method = state.method or fit.methods[0]
    # Frontiers and scores of all methods are drawn together.
    drawn = fit.methods if fit.law not in ("frontier", "correlation") else []
    offered = {"method": ("Runs of", [(one, one or "no method") for one in drawn])}
    controls = state.offer(offered, values={"method": method})
    charts, notes = [*_plot_fit(fit, method)], [*fit.notes]
    if fit.law in LOSS_LAWS and "residuals" not in {chart.name for chart in charts}:
        notes.append(f"{method or 'The law'} is not drawn, as the runs do not tell all its constants.")
    tables = [_build_quantity_table("quantities", "What the fit gives, with 95 % intervals", fit.quantities)]
    if fit.plans:
        caption = f"At {fit.budget or 0:.4g} operations, with 95 % intervals"
        tables.append(_build_quantity_table("plan", caption, fit.planned))
    what = f"do not tell {format_count(fit.untold, 'quantity')}" if fit.untold else "tell every quantity"
    return Page(
        title=name,
        template="document.html",
        crumbs=[("Laws through runs", PATH)],
        lead=f"Fitted to {format_count(len(fit.method), 'run')}: {LAWS[fit.law]}. They {what}.",
        charts=charts,
        tables=tables,
        notes=notes,
        data={**fit.model_dump(include={"law", "size_is", "budget", "when"}), "method": method},
        context={
            "form": state.build_form(build_address(f"{PATH}/{name}"), controls) if controls else None,
            "facts": [
                ("Law", LAWS[fit.law]),
                ("Sizes", SIZES[fit.size_is]),
                ("Runs", len(fit.method)),
                ("Fitted", format_time(fit.when)),
            ],
        },
    )


def _build_quantity_table(name: str, caption: str, quantities: Sequence[Quantity]) -> Table:
    heads = {"quantity": "Quantity"}
    # A column in which nothing stands takes room on a phone.
    heads |= {"method": "Method"} if any(one.method for one in quantities) else {}
    heads |= {"value": "Value", "low": "from", "high": "to"}
    heads |= {"reason": "Not told, because"} if any(one.reason for one in quantities) else {}
    rows = [
        [_build_quantity_cell(getattr(one, {"quantity": "name"}.get(key, key))) for key in heads]
        for one in quantities
    ]
    return values_table(name, caption, heads, rows, "value low high")


def _build_quantity_cell(value: float | str | None) -> Any:
    return value if isinstance(value, str) else Cell(text=_format_number(value), value=value)


def _format_number(value: float | None) -> str:
    """A number with four digits; sizes and tokens with their letter.

    >>> _format_number(0.34781), _format_number(85_610_000), _format_number(7.5823e15), _format_number(None)
    ('0.3478', '85.61M', '7.582e+15', '–')
    """
    if value is None:
        return "–"
    return format_chart_value(value) if 1e6 <= abs(value) < 1e15 else f"{value:.4g}"


def _plot_fit(fit: StoredFit, method: str) -> Iterator[Chart]:
    """What can be drawn of the runs of a method, by the law."""
    runs, values = fit.select_columns(method), fit.find_values(method)
    if fit.law in ("isoflop", "chinchilla"):
        yield from _plot_budgets(fit, method)
    elif fit.law == "finetune":
        yield from _plot_residuals(runs, _predict_losses(fit.law, values, runs))
    elif fit.law == "frontier":
        crossings = [q.value for q in fit.quantities if q.name.startswith("crossing") and q.value]
        yield _plot_lines(fit, "loss", fit.methods, crossings)
    elif fit.law == "correlation":
        pairs = enumerate(zip(fit.columns["loss"], fit.columns["score"], fit.method, strict=True), 1)
        points = [Point(x=x, y=y, label=f"run {number}", series=group) for number, (x, y, group) in pairs]
        plot = Scatter(x=Axis(label="loss"), y=Axis(label="score"), points=points, better=None)
        yield build_chart("scores", "Score of each run against its loss", plot)
    else:
        yield from (_plot_lines(fit, each, [method]) for each in ("learning_rate", "batch") if each in runs)


def _predict_losses(law: LawName, values: Mapping[str, float], runs: Mapping[str, Floats]) -> Floats | None:
    """The losses of the law, None where the runs do not tell its constants."""
    with suppress(KeyError):
        return LOSS_LAWS[law].predict_losses(values, runs)
    return None


def _build_curve(label: str, points: Sequence[Point], across: Floats, law: Floats | None) -> Curve:
    return Curve(label=label, points=points, law=[] if law is None else _list_points(across, law))


def _list_points(x: Floats, y: Floats) -> list[Point]:
    return [Point(x=across, y=up) for across, up in zip(x.tolist(), y.tolist(), strict=True)]


def _plot_budgets(fit: StoredFit, method: str) -> Iterator[Chart]:
    """The loss against the size at each budget with the law through it, the optima, and the residuals."""
    runs, values = fit.select_columns(method), fit.find_values(method)
    whole = fit.law == "chinchilla"
    losses = _predict_losses(fit.law, values, runs) if whole else None
    predicted = np.full(len(runs["loss"]), np.nan) if losses is None else losses
    unit = float(np.median(runs["flops"] / (runs["size"] * runs["tokens"])))
    # Runs of no common budgets are drawn as residuals alone.
    budgets = runs.get("budget", np.zeros(0))
    levels, lines = np.unique(budgets), []
    for level in levels:
        kept = budgets == level
        size, loss, law = runs["size"][kept], runs["loss"][kept], None
        across = np.geomspace(size.min(), size.max(), POINTS)
        if whole:
            law = _predict_losses(fit.law, values, {"size": across, "tokens": level / unit / across})
        elif len({*size.tolist()}) > 3:
            parabola = np.polyfit(np.log(size), loss, 2)
            law, predicted[kept] = (np.polyval(parabola, np.log(x)) for x in (across, size))
        label = f"{format_tick(float(f'{level:.3g}'))} operations"
        lines.append(_build_curve(label, _list_points(size, loss), across, law))
    sizes = Axis(label=SIZES[fit.size_is], kind="log")
    if 0 < len(lines) <= DRAWN:
        through = ", and the law" if whole else ", and a parabola through each"
        plot = Lines(x=sizes, y=Axis(label="loss"), lines=lines)
        yield build_chart("budgets", f"Loss against size at each budget{through}", plot)
    if not whole and {"prefactor of size", "exponent of size"} <= values.keys():
        quantities = {q.name: q for q in fit.quantities if q.method == method}
        optima = [(float(level), quantities.get(f"size at {level:.3g}")) for level in levels]
        points = [Point(x=level, y=q.value, low=q.low, high=q.high) for level, q in optima if q and q.value]
        across = np.geomspace(levels.min(), levels.max(), POINTS)
        law = values["prefactor of size"] * across ** values["exponent of size"]
        line = _build_curve("optimum", points, across, law)
        plot = Lines(x=Axis(label="operations", kind="log"), y=sizes, lines=[line])
        yield build_chart("optima", "The optimal size of each budget, with its 95 % interval", plot)
    yield from _plot_residuals(runs, predicted)


def _plot_lines(fit: StoredFit, column: str, methods: Sequence[str], marks: Sequence[float] = ()) -> Chart:
    """A column against the operations with the fitted line of each method."""
    lines = []
    for method in methods:
        runs, values = fit.select_columns(method), fit.find_values(method)
        across, law = np.geomspace(runs["flops"].min(), runs["flops"].max(), POINTS), None
        if f"slope of ln {column}" in values:
            line = values[f"intercept of ln {column}"] + values[f"slope of ln {column}"] * np.log(across)
            law = np.exp(line)
        points = _list_points(runs["flops"], runs[column])
        lines.append(_build_curve(method or "runs", points, across, law))
    name = column.replace("_", " ")
    x, y = (Axis(label=label, kind="log") for label in ("operations", name))
    plot = Lines(x=x, y=y, lines=lines, marks=[(mark, "crossing") for mark in marks])
    title = f"{format_heading(name)} of each run against operations, and the line of the best"
    return build_chart(f"{column}-lines", title, plot)


def _plot_residuals(runs: Mapping[str, Floats], predicted: Floats | None) -> Iterator[Chart]:
    """How far each run's loss lies from the law, in per cent."""
    if predicted is None or not np.isfinite(predicted).any():
        return
    columns = (runs["flops"], 100 * (runs["loss"] / predicted - 1), runs["size"], runs["tokens"])
    points = []
    for number, (x, y, size, tokens) in enumerate(zip(*(each.tolist() for each in columns), strict=True), 1):
        note = f"size {_format_number(size)}, tokens {_format_number(tokens)}"
        points += (
            [Point(x=x, y=y, label=f"run {number}", series="runs", note=note)] if math.isfinite(y) else []
        )
    across, up = Axis(label="operations", kind="log"), Axis(label="loss above the law, %")
    plot = Scatter(x=across, y=up, points=points, better=None)
    yield build_chart("residuals", "Residuals: the loss of each run against the law", plot)
