"""Makes `results/reported/*.csv`: `python results/reported/recompute.py FOLDER`.

To the transcribed rows it adds which printed aggregates follow from the numbers beside them.
"""

from __future__ import annotations

import argparse
import csv
import io
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from harness.core.errors import HarnessError
from harness.results.cost.price import compute_utilisation
from harness.results.reported import (
    FIELDS,
    PaperValue,
    build_csv_error,
    find_number_problem,
    iter_csv_records,
)
from leaderboard.data.paper_lines import (
    OVER_TYPES,
    compute_power_laws,
    compute_printed_means,
    find_read_value,
)

SOURCES = ("optibert", "mosaicbert", "neobert", "modernbert", "efficient-embeddings")
_SPELLED = {"setting": "recipe_or_setting", "metric": "task_or_metric"}
_TRANSCRIBED = [name for name in FIELDS if name not in ("recomputed", "recomputed_as", "follows")]

_TOLERANCE = 0.051
"""Half of the last printed place, and a hair for the parts."""
_WEIGHTED_TOLERANCE = 0.075
"""For means over tasks of types that are rounded to 0.1."""

_OVERVIEW = {"DPR BEIR": "7", "ColBERT BEIR": "8"}
"""The tables of ModernBERT that columns of its table 1 are averages of."""


def main(argv: Sequence[str] | None = None) -> int:
    """Write one file for each paper; 0, or the exit code of what went wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="the folder of the transcribed CSV files")
    parser.add_argument("--to", type=Path, default=Path("results/reported"), help="default: %(default)s")
    options = parser.parse_args(argv)
    try:
        texts = {slug: _text(_rows(options.folder, slug)) for slug in SOURCES}
    except HarnessError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    options.to.mkdir(parents=True, exist_ok=True)
    for slug, text in texts.items():
        (options.to / f"{slug}.csv").write_text(text, encoding="utf-8", newline="\n")
    return 0


def _rows(folder: Path, slug: str) -> list[PaperValue]:
    path = folder / f"{slug.replace('-', '_')}.csv"
    rows = []
    for line, record in iter_csv_records(path, [_SPELLED.get(name, name) for name in _TRANSCRIBED]):
        if problem := find_number_problem(record):
            raise build_csv_error(path, line, problem)
        rows.append(PaperValue(**{name: record[_SPELLED.get(name, name)] for name in _TRANSCRIBED}))
    return [_with_verdict(row, checks(row, rows)) for row in rows]


def _text(rows: Sequence[PaperValue]) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(FIELDS)
    writer.writerows([getattr(row, name) for name in FIELDS] for row in rows)
    return out.getvalue()


@dataclass(frozen=True, kw_only=True)
class Recomputation:
    """A printed number (`of` value, ci_low or ci_high), computed again in some `way` (in words).

    The two may differ by `slack`; ours is given with `digits` places.
    """

    of: str = "value"
    printed: float
    value: float
    way: str
    slack: float = _TOLERANCE
    digits: int = 3

    @property
    def follows(self) -> bool:
        """Whether the print follows from its parts."""
        return abs(self.value - self.printed) <= self.slack


def checks(row: PaperValue, rows: Sequence[PaperValue]) -> list[Recomputation]:
    """Every way to compute a row's number from the other `rows` of its paper; mostly there is none."""
    return [check for rule in _RULES for check in rule(row, rows)] if row.number is not None else []


def verdict(checks: Sequence[Recomputation]) -> Recomputation | None:
    """The way a value was most likely computed: the nearest of those that it follows, or of all."""
    values = [check for check in checks if check.of == "value"]
    return min(values, key=lambda c: (not c.follows, abs(c.value - c.printed)), default=None)


def _with_verdict(row: PaperValue, checks: Sequence[Recomputation]) -> PaperValue:
    best = verdict(checks)
    if best is None:
        return row
    bounds = [check.follows for check in checks if check.of != "value"]
    way = best.way + ("; its bounds are the means of the tasks' bounds" if bounds and all(bounds) else "")
    ours = "" if best.follows else f"{best.value:.{best.digits}f}"
    return replace(row, recomputed=ours, recomputed_as=way, follows="yes" if best.follows else "no")


def _beside(row: PaperValue, rows: Sequence[PaperValue]) -> list[PaperValue]:
    """The other numbers of a row's line."""

    def line(row: PaperValue) -> tuple[str, ...]:
        return (row.table, row.model, row.size_class, row.setting, row.suite)

    return [other for other in rows if line(other) == line(row) and other.metric != row.metric]


def _backbone(row: PaperValue) -> tuple[str, str]:
    return row.model.casefold().removesuffix("-2048"), row.size_class


def _mteb(row: PaperValue, rows: Sequence[PaperValue]) -> Iterator[Recomputation]:
    if row.suite.startswith("MTEB(") and row.metric.startswith("Avg."):
        parts = {other.metric: other.number for other in _beside(row, rows)}
        for way, value in compute_printed_means(row.suite, parts).items():
            slack = _TOLERANCE if way == OVER_TYPES else _WEIGHTED_TOLERANCE
            yield Recomputation(printed=float(row.value), value=value, way=way, slack=slack, digits=2)


def _mean_of_tasks(row: PaperValue, rows: Sequence[PaperValue]) -> Iterator[Recomputation]:
    """Also of an interval's bounds, which are no interval of the mean."""
    if row.suite not in ("GLUE dev", "BEIR") or row.metric != "Avg.":
        return
    for of in ("value", "ci_low", "ci_high"):
        parts = {r.metric: float(getattr(r, of)) for r in _beside(row, rows) if getattr(r, of)}
        for way, value in compute_printed_means(row.suite, parts).items():
            yield Recomputation(of=of, printed=float(getattr(row, of)), value=value, way=way)


def _overview(row: PaperValue, rows: Sequence[PaperValue]) -> Iterator[Recomputation]:
    """ModernBERT's table 1, of which three columns stand in other tables."""
    if (row.paper, row.table) != ("ModernBERT", "1"):
        return
    same = [r for r in rows if _backbone(r) == _backbone(row)]
    if row.metric == "GLUE":
        tasks = {r.metric: r.number for r in same if r.table == "5"}
        for way, value in compute_printed_means("GLUE dev", tasks).items():
            yield Recomputation(printed=float(row.value), value=value, way=f"{way} of table 5")
    for other in same:
        if other.table == _OVERVIEW.get(row.metric) and other.metric == "Avg.":
            way, value = f"the average of table {other.table}", float(other.value)
            yield Recomputation(printed=float(row.value), value=value, way=way, slack=1e-9, digits=1)


def _throughput(row: PaperValue, rows: Sequence[PaperValue]) -> Iterator[Recomputation]:
    """ModernBERT's table 2 from the seconds of table 11, which are rounded to 0.1."""
    if (row.paper, row.table) != ("ModernBERT", "2"):
        return
    tokens = [r for r in rows if r.table == "10" and (r.setting, r.metric) == (row.metric, "total tokens")]
    times = [r for r in rows if r.table == "11" and r.metric == row.metric and _backbone(r) == _backbone(row)]
    for total, seconds in zip(tokens, times, strict=False):
        if total.number and seconds.number:
            read = find_read_value(seconds)
            took = float(read or seconds.number)
            value = total.number / took / 1000
            slack = value * 0.05 / took + _TOLERANCE
            way = f"tokens of table 10 / seconds of table 11{f', read as {read}' if read else ''}"
            yield Recomputation(printed=float(row.value), value=value, way=way, slack=slack, digits=1)


def _utilisation(row: PaperValue, rows: Sequence[PaperValue]) -> Iterator[Recomputation]:
    """MosaicBERT's table S4 by its eq. 3, in percent."""
    if (row.paper, row.metric) != ("MosaicBERT", "MFU"):
        return
    for other in _beside(row, rows):
        if other.metric == "throughput" and other.number:
            devices = int(row.setting.partition("x")[0])
            size = float(row.params.removesuffix("M")) * 1e6
            share = compute_utilisation(size, other.number, devices, 312e12)
            way = "6·N·T/(n·312e12)"
            yield Recomputation(printed=float(row.value), value=100 * share, way=way, digits=2)


def _cost(row: PaperValue, rows: Sequence[PaperValue]) -> Iterator[Recomputation]:
    """MosaicBERT's table S5 in dollars."""
    match = re.fullmatch(r"((\d+)x.+) at \$([\d.]+)/GPU-h", row.setting)
    if not match or not row.metric.startswith("cost "):
        return
    setting, devices, rate = match.groups()
    for other in rows:
        if (other.setting, other.metric) == (setting, row.metric.replace("cost", "hours")) and other.number:
            value = int(devices) * other.number * float(rate)
            way = "devices × hours × price of an hour"
            yield Recomputation(printed=float(row.value), value=value, way=way, slack=0.01, digits=2)


def _scaling_law(row: PaperValue, rows: Sequence[PaperValue]) -> Iterator[Recomputation]:
    laws = compute_power_laws(rows) if (row.paper, row.setting) == ("OptiBERT", "Sec4.2 parametric") else {}
    if row.model in laws:
        way = f"{'eq. 7' if row.model.startswith('D/') else 'eq. 6'} from the printed A, B, alpha, beta"
        value = laws[row.model][row.metric == "exponent"]
        yield Recomputation(printed=float(row.value), value=value, way=way, slack=0.0101, digits=2)


_RULES = (_mteb, _mean_of_tasks, _overview, _throughput, _utilisation, _cost, _scaling_law)

if __name__ == "__main__":
    sys.exit(main())
