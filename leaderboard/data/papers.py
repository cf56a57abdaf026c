"""What papers print, as data."""

from __future__ import annotations

import functools
import itertools
import math
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from statistics import fmean
from types import MappingProxyType

from harness.catalog import open_suite
from leaderboard.web.tables import EMPTY, Cell, Column, Row


@dataclass(frozen=True, kw_only=True)
class PaperValue:
    """One printed number: a line of a paper's file.

    Attributes:
        paper: The paper's name.
        table: The table, or the section, that it stands in.
        model: The model as printed.
        size_class: `base`, `medium`, `large` or nothing.
        params: Its parameters as printed.
        setting: The recipe, and what else tells lines apart.
        suite: What was measured.
        metric: The column.
        value: The number as printed; empty where the paper has a dash.
        ci_low: The lower end, where an interval or an error was printed.
        ci_high: The upper end.
        unit: Of the value.
        note: A fact about it.
        recomputed: Ours, where the print does not follow from the numbers beside it.
        recomputed_as: How it is made from those, where it can be.
        follows: `yes`, `no`, or nothing where it cannot be made again.
        backbone: One name for what papers spell differently.
        hub_id: The model on the hub, where that is beyond doubt.
    """

    paper: str
    table: str
    model: str
    size_class: str
    params: str
    setting: str
    suite: str
    metric: str
    value: str
    ci_low: str
    ci_high: str
    unit: str
    note: str
    recomputed: str = ""
    recomputed_as: str = ""
    follows: str = ""
    backbone: str = ""
    hub_id: str = ""

    @property
    def number(self) -> float | None:
        """The value, None if it is none or no number."""
        return number_of(self.value)


@dataclass(frozen=True, kw_only=True)
class PaperTable:
    """One table of a paper, in print's order."""

    id: str
    caption: str
    rows: Sequence[PaperValue]

    @property
    def numbers(self) -> int:
        """How many numbers it prints: a dash is none, nor is a word among settings."""
        return sum(row.number is not None for row in self.rows)


@dataclass(frozen=True, kw_only=True)
class Paper:
    """One paper; `arxiv` is empty where no source at hand gives it."""

    slug: str
    name: str
    title: str
    year: int
    authors: str
    arxiv: str
    tables: Mapping[str, PaperTable]

    @property
    def rows(self) -> list[PaperValue]:
        """The lines of its file, in print's order; some hold a dash or a word."""
        return [row for table in self.tables.values() for row in table.rows]

    @property
    def numbers(self) -> int:
        """How many numbers it prints."""
        return sum(table.numbers for table in self.tables.values())


@dataclass(frozen=True, kw_only=True)
class Backbone:
    """What a printed name stands for."""

    name: str
    hub_id: str
    note: str


AVERAGE = "Avg."
SPELLED: Mapping[tuple[str, str], str] = MappingProxyType(
    {("GLUE dev", "SST"): "SST-2", ("GLUE dev", "STS"): "STS-B", ("GLUE dev", "GLUE"): AVERAGE}
)
SCORES = ("score x100", "nDCG@10 x100", "fraction")


def plain(suite: str, metric: str) -> str:
    """One name for a column that papers spell differently.

    >>> plain("GLUE dev", "SST"), plain("MTEB(eng, v1)", "Avg. (56 tasks)"), plain("BEIR", "DPR BEIR")
    ('SST-2', 'Avg.', 'Avg.')
    """
    average = metric.startswith(AVERAGE) or metric.endswith(f" {suite}")
    return AVERAGE if average else SPELLED.get((suite, metric), metric)


_QUERIES = (("TREC-DL 2019", "TREC-DL 2019"), ("dev split", "dev"))
"""Words in the note of a printed number, and the queries that they name."""


def same_queries(row: PaperValue, column: str) -> bool:
    """Whether a number is, as far as its note says, of the queries that a column names in brackets."""
    queries = next((queries for words, queries in _QUERIES if words in row.note), "")
    return not queries or "(" not in column or column.endswith(f"({queries})")


def column_of(metric: str, names: Sequence[str]) -> str | None:
    """The column that a printed name means: alike but for signs, or the only one that begins so."""
    wanted = _letters(metric)
    alike = [name for name in names if _letters(name) == wanted]
    begins = [name for name in names if _letters(name).startswith(wanted)]
    return alike[0] if alike else begins[0] if len(begins) == 1 else None


def _letters(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.casefold())


def title(table: str) -> str:
    """What a table is called in a sentence.

    >>> title("S3"), title("Sec4.4")
    ('table S3', 'Sec4.4')
    """
    return f"table {table}" if re.fullmatch(r"S?\d+", table) else table


def last_place(row: PaperValue) -> Decimal:
    """One unit of the last place that a number was printed with."""
    return Decimal(1).scaleb(int(Decimal(row.value).as_tuple().exponent))


def key_of(text: str) -> str:
    """A text as a part of a key or an anchor."""
    return re.sub(r"[^A-Za-z0-9]+", "-", text).strip("-")


def number_of(text: str) -> float | None:
    """A text as a finite number, None if it is none."""
    try:
        found = float(text)
    except ValueError:
        return None
    return found if math.isfinite(found) else None


TOLERANCE = 0.051
"""Half of the last printed place, and a hair for the parts."""
WEIGHTED = 0.075
"""For means over tasks made from types that are rounded to 0.1."""

OVER_TYPES = "mean over types"
OVER_TASKS = "mean over tasks (types weighted by their number of tasks)"

SUITES: Mapping[str, str] = MappingProxyType(
    {"MTEB(eng, v1)": "mteb-v1", "MTEB(eng, v2)": "mteb", "GLUE dev": "glue", "BEIR": "beir"}
)
"""A printed suite's name in the catalog."""

TYPES: Mapping[str, str] = MappingProxyType(
    {
        "Class.": "Classification",
        "Clust.": "Clustering",
        "PairClass.": "PairClassification",
        "Rerank.": "Reranking",
        "Retriev.": "Retrieval",
        "STS": "STS",
        "Summ.": "Summarization",
    }
)
"""MTEB's types as the papers print them."""

OVERVIEW = {"DPR BEIR": "7", "ColBERT BEIR": "8"}


@dataclass(frozen=True, kw_only=True)
class Check:
    """A printed number, made again.

    Attributes:
        of: What was printed: `value`, `ci_low` or `ci_high`.
        printed: The printed number.
        made: Ours.
        way: How it was made, in words.
        slack: By how much the two may differ.
        digits: The places that ours is given with.
    """

    of: str = "value"
    printed: float
    made: float
    way: str
    slack: float = TOLERANCE
    digits: int = 3

    @property
    def follows(self) -> bool:
        """Whether the print follows from its parts."""
        return abs(self.made - self.printed) <= self.slack

    @property
    def text(self) -> str:
        """Our number as it is shown."""
        return f"{self.made:.{self.digits}f}"


def checks(row: PaperValue, rows: Sequence[PaperValue]) -> list[Check]:
    """Every way to make a row's number again from the other `rows` of its paper; mostly there is none."""
    return [check for rule in RULES for check in rule(row, rows)] if row.number is not None else []


def verdict(found: Sequence[Check]) -> Check | None:
    """The way that a printed value was most likely made: the nearest of those that it follows, or of all."""
    values = [check for check in found if check.of == "value"]
    return min(values, key=lambda c: (not c.follows, abs(c.made - c.printed)), default=None)


def means(suite: str, values: Mapping[str, float | None]) -> dict[str, float]:
    """The means of a row of scores, by what they are over; empty unless every part is there.

    Args:
        suite: The suite as printed.
        values: Scores by type for MTEB and by task for GLUE and BEIR, in the papers' spelling.
    """
    if suite not in SUITES:
        return {}
    counts = counts_by_type(suite)
    mteb = suite.startswith("MTEB")
    there = {name: x for name, x in values.items() if x is not None and (not mteb or name in TYPES)}
    if len(there) != (len(counts) if mteb else sum(counts.values())):
        return {}
    if not mteb:
        return {f"mean of {len(there)} tasks": fmean(there.values())}
    weights = [counts[TYPES[name]] for name in there]
    return {OVER_TYPES: fmean(there.values()), OVER_TASKS: fmean(there.values(), weights)}


@functools.cache
def counts_by_type(suite: str) -> Mapping[str, int]:
    """How many columns of each type a printed suite has, by the catalog."""
    return MappingProxyType(Counter(column.type for column in open_suite(SUITES[suite]).columns))


def power_laws(rows: Sequence[PaperValue]) -> dict[str, tuple[float, float]]:
    """OptiBERT's optimum by eq. 6 and 7 from its printed fit: log10 of the prefactor, and the exponent."""
    fit = {row.metric: row.number for row in rows if row.table == "1" and row.model.startswith("Lhat")}
    a, b, alpha, beta = (fit.get(name) for name in ("A_log10", "B_log10", "alpha", "beta"))
    if a is None or b is None or not alpha or not beta:
        return {}
    n = (a + math.log10(alpha) - b - math.log10(beta)) / (alpha + beta)
    eta = beta / (alpha + beta)
    return {"F_N vs C": (n, eta), "D vs C": (-n, 1 - eta), "D/F_N vs C": (-2 * n, 1 - 2 * eta)}


def beside(row: PaperValue, rows: Sequence[PaperValue]) -> list[PaperValue]:
    """The other numbers of a row's line."""
    return [other for other in rows if _line(other) == _line(row) and other.metric != row.metric]


def _line(row: PaperValue) -> tuple[str, ...]:
    return (row.table, row.model, row.size_class, row.setting, row.suite)


def _mteb(row: PaperValue, rows: Sequence[PaperValue]) -> Iterator[Check]:
    if row.suite.startswith("MTEB(") and row.metric.startswith("Avg."):
        made = means(row.suite, {other.metric: other.number for other in beside(row, rows)})
        for way, value in made.items():
            slack = TOLERANCE if way == OVER_TYPES else WEIGHTED
            yield Check(printed=float(row.value), made=value, way=way, slack=slack, digits=2)


def _mean_of_tasks(row: PaperValue, rows: Sequence[PaperValue]) -> Iterator[Check]:
    """Also of an interval's bounds, which are no interval of the mean."""
    if row.suite not in ("GLUE dev", "BEIR") or row.metric != "Avg.":
        return
    for of in ("value", "ci_low", "ci_high"):
        parts = {r.metric: float(getattr(r, of)) for r in beside(row, rows) if getattr(r, of)}
        for way, value in means(row.suite, parts).items():
            yield Check(of=of, printed=float(getattr(row, of)), made=value, way=way)


def _overview(row: PaperValue, rows: Sequence[PaperValue]) -> Iterator[Check]:
    """ModernBERT's table 1, of which three columns stand in other tables."""
    if (row.paper, row.table) != ("ModernBERT", "1"):
        return
    same = [r for r in rows if _backbone(r) == _backbone(row)]
    if row.metric == "GLUE":
        tasks = {r.metric: r.number for r in same if r.table == "5"}
        for way, value in means("GLUE dev", tasks).items():
            yield Check(printed=float(row.value), made=value, way=f"{way} of table 5")
    for other in same:
        if other.table == OVERVIEW.get(row.metric) and other.metric == "Avg.":
            way = f"the average of table {other.table}"
            yield Check(printed=float(row.value), made=float(other.value), way=way, slack=1e-9, digits=1)


def _backbone(row: PaperValue) -> tuple[str, str]:
    return row.model.casefold().removesuffix("-2048"), row.size_class


def _throughput(row: PaperValue, rows: Sequence[PaperValue]) -> Iterator[Check]:
    """ModernBERT's table 2 from the seconds of table 11, which are rounded to 0.1."""
    if (row.paper, row.table) != ("ModernBERT", "2"):
        return
    tokens = [r for r in rows if r.table == "10" and (r.setting, r.metric) == (row.metric, "total tokens")]
    times = [r for r in rows if r.table == "11" and r.metric == row.metric and _backbone(r) == _backbone(row)]
    for total, seconds in zip(tokens, times, strict=False):
        if total.number and seconds.number:
            made = total.number / seconds.number / 1000
            slack = made * 0.05 / seconds.number + TOLERANCE
            way = "tokens of table 10 / seconds of table 11"
            yield Check(printed=float(row.value), made=made, way=way, slack=slack, digits=1)


def _utilisation(row: PaperValue, rows: Sequence[PaperValue]) -> Iterator[Check]:
    """MosaicBERT's table S4 by its eq. 3, in percent."""
    if (row.paper, row.metric) != ("MosaicBERT", "MFU"):
        return
    for other in beside(row, rows):
        if other.metric == "throughput" and other.number:
            devices = int(row.setting.partition("x")[0])
            made = 6 * float(row.params.removesuffix("M")) * 1e6 * other.number / (devices * 312e12)
            yield Check(printed=float(row.value), made=100 * made, way="6·N·T/(n·312e12)", digits=2)


def _cost(row: PaperValue, rows: Sequence[PaperValue]) -> Iterator[Check]:
    """MosaicBERT's table S5 in dollars."""
    found = re.fullmatch(r"((\d+)x.+) at \$([\d.]+)/GPU-h", row.setting)
    if not found or not row.metric.startswith("cost "):
        return
    setting, devices, rate = found.groups()
    for other in rows:
        if (other.setting, other.metric) == (setting, row.metric.replace("cost", "hours")) and other.number:
            made = int(devices) * other.number * float(rate)
            way = "devices × hours × price of an hour"
            yield Check(printed=float(row.value), made=made, way=way, slack=0.01, digits=2)


def _scaling_law(row: PaperValue, rows: Sequence[PaperValue]) -> Iterator[Check]:
    if row.paper != "OptiBERT" or row.setting != "Sec4.2 parametric":
        return
    laws = power_laws(rows)
    if row.model in laws:
        equation = "eq. 7" if row.model.startswith("D/") else "eq. 6"
        way = f"{equation} from the printed A, B, alpha, beta"
        made = laws[row.model][row.metric == "exponent"]
        yield Check(printed=float(row.value), made=made, way=way, slack=0.0101, digits=2)


RULES = (_mteb, _mean_of_tasks, _overview, _throughput, _utilisation, _cost, _scaling_law)
"""Each gives the checks of a row that it knows."""


def printed_cell(row: PaperValue) -> Cell:
    """A number with its error or its interval, and what is known of it."""
    if not row.value:
        return Cell(text="–", kind="away", note=_sentence(row.note))
    value = row.value if row.number is None else row.number
    said = [row.unit, row.note, _price(row), _odd(row)]
    return Cell(text=_text(row), value=value, kind="reported", note=_sentence(*said))


def _text(row: PaperValue) -> str:
    """The number with its error or its interval, as it was printed."""
    if not row.ci_low:
        return row.value
    value, low, high = (Decimal(text) for text in (row.value, row.ci_low, row.ci_high))
    if "plus/minus" in row.note and high - value == value - low:
        return f"{row.value} ± {high - value}"
    return f"{row.value} [{row.ci_low}, {row.ci_high}]"


def _price(row: PaperValue) -> str:
    found = re.search(r"\$[\d.]+/GPU-h$", row.setting)
    return found.group() if found else ""


def _odd(row: PaperValue) -> str:
    """Says that a number does not follow, and whether rounded parts may be why."""
    if row.follows != "no":
        return f"follows as: {row.recomputed_as}" if row.follows else ""
    said = f"does not follow from the printed numbers: {row.recomputed_as} is {row.recomputed}"
    apart = abs(Decimal(row.value) - Decimal(row.recomputed))
    return f"{said}, within what rounding of the parts can do" if apart <= last_place(row) else said


def _sentence(*parts: str) -> str:
    text = "; ".join(part for part in parts if part)
    return f"{text[0].upper()}{text[1:]}." if text else ""


SHORT = {OVER_TASKS: "mean over tasks"}


@dataclass(frozen=True, kw_only=True)
class Line:
    """One line of a table: what stands before its numbers, and these by column."""

    labels: Mapping[str, str]
    first: PaperValue
    cells: dict[str, PaperValue] = field(default_factory=dict)

    @property
    def model(self) -> tuple[str, str]:
        """Its model's name and size class, as printed."""
        return self.first.model, self.first.size_class

    @property
    def means(self) -> dict[str, float]:
        """Its means, made again."""
        suite = self.first.suite
        values = {plain(suite, name): row.number for name, row in self.cells.items()}
        return means(suite, {name: x for name, x in values.items() if name != AVERAGE})


@dataclass(frozen=True, kw_only=True)
class Numbers:
    """A column of numbers; `measured` is what measured cells call it, empty if there are none."""

    column: Column
    make: Callable[[Line], Cell]
    measured: tuple[str, str] | None = None


def printed_lines(rows: Sequence[PaperValue]) -> list[Line]:
    """The lines of a paper's table."""
    return lines_of(rows, _printed_labels, lambda row: _task(row)[1])


def _task(row: PaperValue) -> tuple[str, str]:
    """The task that a hyperparameter is of, and the column."""
    task, _, name = row.metric.rpartition(":")
    return (task, name) if row.unit == "hyperparameter" else ("", row.metric)


def _printed_labels(row: PaperValue) -> dict[str, str]:
    """MosaicBERT's settings also hold what stands in a column of print: hours, the price of an hour."""
    setting = re.sub(r"; [\d.]+ h$| at \$[\d.]+/GPU-h$", "", row.setting)
    return {
        "Model": row.model,
        "Size": row.size_class,
        "Parameters": row.params,
        "Setting": setting,
        "Task": _task(row)[0],
    }


def lines_of(
    rows: Sequence[PaperValue],
    labels: Callable[[PaperValue], dict[str, str]],
    column: Callable[[PaperValue], str],
) -> list[Line]:
    """A number goes into the last line with its labels, or a new one if its place there is taken."""
    lines: list[Line] = []
    for row in rows:
        own, name = labels(row), column(row)
        fits = (line for line in reversed(lines) if line.labels == own and name not in line.cells)
        if (line := next(fits, None)) is None:
            lines.append(line := Line(labels=own, first=row))
        line.cells[name] = row
    return lines


def heads_of(lines: Sequence[Line]) -> list[str]:
    """The labels that a table needs: a setting that all lines share goes below it."""
    values = {name: {line.labels[name] for line in lines} for name in lines[0].labels}
    return [name for name, found in values.items() if found != {""} and (name != "Setting" or len(found) > 1)]


def head_columns(heads: Sequence[str]) -> list[Column]:
    """The columns of the labels."""
    return [Column(key=key_of(name).lower(), label=name, sticky=name == heads[0]) for name in heads]


def row_of(line: Line, heads: Sequence[str], numbers: Sequence[Numbers]) -> Row:
    """A line as a row."""
    labels = [Cell(text=line.labels[name], value=line.labels[name] or None) for name in heads]
    return Row(cells=[*labels, *(one.make(line) for one in numbers)])


def numbers_of(lines: Sequence[Line], *, ways: Sequence[str], ours: bool) -> list[Numbers]:
    """The printed columns, with a column behind those that have numbers which do not follow, and means."""
    found: list[Numbers] = []
    names = dict.fromkeys(name for line in lines for name in line.cells)
    for name in names:
        cells = [line.cells[name] for line in lines if name in line.cells]
        found.append(_printed_column(name, cells))
        if ours and any(row.follows == "no" for row in cells):
            found.append(_our_column(name, cells[0]))
    return found + [_mean_column(way, lines[0].first.suite) for way in ways]


def _printed_column(name: str, cells: Sequence[PaperValue]) -> Numbers:
    units = {row.unit for row in cells if row.value}
    column = Column(
        key=key_of(name),
        label=name,
        group=cells[0].suite,
        numeric=all(row.number is not None for row in cells if row.value),
        note=units.pop() if len(units) == 1 else "",
    )
    return Numbers(
        column=column,
        make=lambda line: printed_cell(line.cells[name]) if name in line.cells else EMPTY,
        measured=(cells[0].suite, plain(cells[0].suite, name)),
    )


def _our_column(name: str, first: PaperValue) -> Numbers:
    def make(line: Line) -> Cell:
        row = line.cells.get(name)
        if row is None or not row.recomputed:
            return EMPTY
        return Cell(text=row.recomputed, value=number_of(row.recomputed), note=f"{row.recomputed_as}.")

    note = f"what {name} comes to from the printed numbers, where the print does not follow from them"
    key = f"{key_of(name)}-recomputed"
    column = Column(key=key, label="recomputed", group=first.suite, numeric=True, note=note)
    return Numbers(column=column, make=make)


def _mean_column(way: str, suite: str) -> Numbers:
    name, places = SHORT.get(way, way), 2 if way in (OVER_TYPES, OVER_TASKS) else 3

    def make(line: Line) -> Cell:
        value = line.means.get(way)
        return EMPTY if value is None else Cell(text=f"{value:.{places}f}", value=round(value, places))

    label = f"{name} (recomputed)"
    column = Column(key=key_of(name), label=label, numeric=True, note=f"{way}, from the printed numbers")
    return Numbers(column=column, make=make, measured=(suite, name))


def notes_of(lines: Sequence[Line], rows: Sequence[PaperValue], ways: Sequence[str]) -> list[str]:
    """What must be said below a paper's table."""
    settings = {line.labels["Setting"] for line in lines} - {""}
    notes = [f"Setting: {setting}." for setting in settings if len(settings) == 1]
    if ways:
        return [*notes, *_which_means(lines), *_turned(lines)]
    odd = sum(row.follows == "no" for row in rows)
    if odd:
        notes.append(
            f"{odd} of the {sum(bool(row.follows) for row in rows)} numbers that can be made again do not "
            "follow from the printed ones; ours stand beside them."
        )
    return notes + _ratio(rows)


def warnings(table: PaperTable) -> list[str]:
    """What would mislead a reader of the print: two kinds of mean in one column, and what that turns round.

    These stand among the notes of `paper_table`, too.
    """
    if not table.rows[0].suite.startswith("MTEB("):
        return []
    lines = printed_lines(table.rows)
    return [*_mixed(_ways(lines)), *_turned(lines)]


def _which_means(lines: Sequence[Line]) -> list[str]:
    """Which mean each line of MTEB printed as its average."""
    found = _ways(lines)
    notes = [f"The printed average is {_which(way)} of: {'; '.join(names)}." for way, names in found.items()]
    return [*notes, *_mixed(found)]


def _ways(lines: Sequence[Line]) -> dict[str, list[str]]:
    """The lines by the mean that they print."""
    found: dict[str, list[str]] = {}
    for line in lines:
        for row in line.cells.values():
            if row.follows:
                way = SHORT.get(row.recomputed_as, row.recomputed_as) if row.follows == "yes" else "neither"
                found.setdefault(way, []).append(_name(line, lines))
    return found


def _mixed(found: Collection[str]) -> list[str]:
    if len(set(found) - {"neither"}) < 2:
        return []
    return ["The table mixes two means: compare its lines in one of the recomputed columns only."]


def _which(way: str) -> str:
    return "neither mean" if way == "neither" else f"the {way}"


def _turned(lines: Sequence[Line]) -> list[str]:
    """Pairs that print orders one way and both means the other."""
    notes = []
    for one, other in itertools.permutations(lines, 2):
        mine, theirs, printed = one.means, other.means, (_average(one), _average(other))
        below = mine and theirs and all(mine[way] < theirs[way] for way in mine)
        if below and None not in printed and printed > printed[::-1]:
            sides = [f"{x:.2f} against {theirs[way]:.2f} as {SHORT.get(way, way)}" for way, x in mine.items()]
            names = f"{_name(one, lines)} is printed above {_name(other, lines)}"
            notes.append(f"{names} ({printed[0]} against {printed[1]}), but has {' and '.join(sides)}.")
    return notes


def _average(line: Line) -> float | None:
    return next((row.number for name, row in line.cells.items() if name.startswith(AVERAGE)), None)


def _name(line: Line, lines: Sequence[Line]) -> str:
    """A line's model, and the end of its setting where the model stands there more than once."""
    name = " ".join(line.model).strip()
    alone = sum(other.model == line.model for other in lines) == 1
    return name if alone else f"{name} ({line.labels['Setting'].rpartition('; ')[2]})"


def _ratio(rows: Sequence[PaperValue]) -> list[str]:
    """How much the two readings of OptiBERT's parametric law differ within its range of compute."""
    name = "D/F_N vs C"
    printed = {
        row.metric: row.number for row in rows if (row.model, row.setting) == (name, "Sec4.2 parametric")
    }
    prefactor, exponent = printed.get("a_log10"), printed.get("exponent")
    laws = power_laws(rows)
    if prefactor is None or exponent is None or name not in laws:
        return []
    ours = 10 ** (laws[name][0] + 19 * laws[name][1])
    text = f"At C = 1e19 the printed law gives D/F_N = {10 ** (prefactor + 19 * exponent):.2f}"
    return [f"{text}, eq. 7 with the printed A, B, alpha and beta {ours:.1f}."]
