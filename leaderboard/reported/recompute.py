"""What a printed aggregate comes to when it is made again from the numbers printed beside it."""

from __future__ import annotations

import functools
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from types import MappingProxyType
from typing import TYPE_CHECKING

from harness.catalog import open_suite

if TYPE_CHECKING:
    from leaderboard.reported.printed import Printed

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


def checks(row: Printed, rows: Sequence[Printed]) -> list[Check]:
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


def power_laws(rows: Sequence[Printed]) -> dict[str, tuple[float, float]]:
    """OptiBERT's optimum by eq. 6 and 7 from its printed fit: log10 of the prefactor, and the exponent."""
    fit = {row.metric: row.number for row in rows if row.table == "1" and row.model.startswith("Lhat")}
    a, b, alpha, beta = (fit.get(name) for name in ("A_log10", "B_log10", "alpha", "beta"))
    if a is None or b is None or not alpha or not beta:
        return {}
    n = (a + math.log10(alpha) - b - math.log10(beta)) / (alpha + beta)
    eta = beta / (alpha + beta)
    return {"F_N vs C": (n, eta), "D vs C": (-n, 1 - eta), "D/F_N vs C": (-2 * n, 1 - 2 * eta)}


def beside(row: Printed, rows: Sequence[Printed]) -> list[Printed]:
    """The other numbers of a row's line."""
    return [other for other in rows if _line(other) == _line(row) and other.metric != row.metric]


def _line(row: Printed) -> tuple[str, ...]:
    return (row.table, row.model, row.size_class, row.setting, row.suite)


def _mteb(row: Printed, rows: Sequence[Printed]) -> Iterator[Check]:
    if row.suite.startswith("MTEB(") and row.metric.startswith("Avg."):
        made = means(row.suite, {other.metric: other.number for other in beside(row, rows)})
        for way, value in made.items():
            slack = TOLERANCE if way == OVER_TYPES else WEIGHTED
            yield Check(printed=float(row.value), made=value, way=way, slack=slack, digits=2)


def _mean_of_tasks(row: Printed, rows: Sequence[Printed]) -> Iterator[Check]:
    """Also of an interval's bounds, which are no interval of the mean."""
    if row.suite not in ("GLUE dev", "BEIR") or row.metric != "Avg.":
        return
    for of in ("value", "ci_low", "ci_high"):
        parts = {r.metric: float(getattr(r, of)) for r in beside(row, rows) if getattr(r, of)}
        for way, value in means(row.suite, parts).items():
            yield Check(of=of, printed=float(getattr(row, of)), made=value, way=way)


def _overview(row: Printed, rows: Sequence[Printed]) -> Iterator[Check]:
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


def _backbone(row: Printed) -> tuple[str, str]:
    return row.model.casefold().removesuffix("-2048"), row.size_class


def _throughput(row: Printed, rows: Sequence[Printed]) -> Iterator[Check]:
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


def _utilisation(row: Printed, rows: Sequence[Printed]) -> Iterator[Check]:
    """MosaicBERT's table S4 by its eq. 3, in percent."""
    if (row.paper, row.metric) != ("MosaicBERT", "MFU"):
        return
    for other in beside(row, rows):
        if other.metric == "throughput" and other.number:
            devices = int(row.setting.partition("x")[0])
            made = 6 * float(row.params.removesuffix("M")) * 1e6 * other.number / (devices * 312e12)
            yield Check(printed=float(row.value), made=100 * made, way="6·N·T/(n·312e12)", digits=2)


def _cost(row: Printed, rows: Sequence[Printed]) -> Iterator[Check]:
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


def _scaling_law(row: Printed, rows: Sequence[Printed]) -> Iterator[Check]:
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
