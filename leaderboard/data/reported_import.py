"""Makes `results/reported/*.csv`: `python -m leaderboard.data.reported_import FOLDER`."""

from __future__ import annotations

import argparse
import csv
import io
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from harness.errors import HarnessError
from leaderboard.data.paper_tables import FIELDS, odd_numbers, records, wrong
from leaderboard.data.papers import Check, PaperValue, checks, verdict

SOURCES = ("optibert", "mosaicbert", "neobert", "modernbert", "efficient-embeddings")
RENAMED = {"setting": "recipe_or_setting", "metric": "task_or_metric"}
OURS = ("recomputed", "recomputed_as", "follows")
COLUMNS = tuple(RENAMED.get(name, name) for name in FIELDS if name not in OURS)


def main(argv: Sequence[str] | None = None) -> int:
    """Writes one file for each paper; 0, or the exit code of what went wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="where the transcribed CSV files lie")
    parser.add_argument("--to", type=Path, default=Path("results/reported"), help="default: %(default)s")
    options = parser.parse_args(argv)
    try:
        made = {slug: text(read(options.folder, slug)) for slug in SOURCES}
    except HarnessError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    options.to.mkdir(parents=True, exist_ok=True)
    for slug, content in made.items():
        (options.to / f"{slug}.csv").write_text(content, encoding="utf-8", newline="\n")
    return 0


def read(folder: Path, slug: str) -> list[PaperValue]:
    """A paper's transcribed rows, with what we make of their aggregates.

    Raises:
        RecordError: A file is missing or malformed.
    """
    path = folder / f"{slug.replace('-', '_')}.csv"
    rows = []
    for line, record in records(path, COLUMNS):
        if problem := odd_numbers(record):
            raise wrong(path, line, problem)
        rows.append(_printed(record))
    return [judged(row, checks(row, rows)) for row in rows]


def judged(row: PaperValue, found: Sequence[Check]) -> PaperValue:
    """A row with what its checks say."""
    best = verdict(found)
    if best is None:
        return row
    bounds = [check.follows for check in found if check.of != "value"]
    way = best.way + ("; its bounds are the means of the tasks' bounds" if bounds and all(bounds) else "")
    ours = "" if best.follows else best.text
    return replace(row, recomputed=ours, recomputed_as=way, follows="yes" if best.follows else "no")


def text(rows: Sequence[PaperValue]) -> str:
    """The committed file."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(FIELDS)
    writer.writerows([getattr(row, name) for name in FIELDS] for row in rows)
    return out.getvalue()


def _printed(record: Mapping[str, str]) -> PaperValue:
    return PaperValue(**{name: record[RENAMED.get(name, name)] for name in FIELDS if name not in OURS})


if __name__ == "__main__":
    sys.exit(main())
