"""Makes revisions.csv from an import's folder: `python -m leaderboard.data.revisions IMPORT`."""

from __future__ import annotations

import argparse
import csv
import sys
from collections.abc import Sequence
from pathlib import Path

import duckdb

from harness.imported import Imported
from leaderboard.data.imports import table_path
from leaderboard.data.suites import REVISIONS

AGREE = 5
"""Models that must have the same scores on two revisions of a task's data, where none may differ."""

PAIRS = """
WITH files AS (
  SELECT e.model, s.task, s.data_revision AS data, s.split, s.subset, any_value(s.main_score) AS score
  FROM read_parquet(?) s
    JOIN (SELECT *, file_row_number AS number FROM read_parquet(?, file_row_number = true)) e
    ON e.number = s.entry
  WHERE s.data_revision IS NOT NULL AND coalesce(s.flag, '') = '' AND e.experiment = ''
  GROUP BY ALL HAVING max(s.main_score) - min(s.main_score) <= 1e-9),
pairs AS (
  SELECT task, model, a.data AS one, b.data AS other, bool_and(abs(a.score - b.score) <= 1e-9) AS same
  FROM files a JOIN files b USING (task, model, split, subset) WHERE a.data < b.data GROUP BY ALL)
SELECT task, one, other, count(*) AS models FROM pairs GROUP BY ALL HAVING bool_and(same) AND count(*) >= ?
ORDER BY ALL
"""


def same_revisions(source: Imported) -> list[tuple[str, str, str, int]]:
    """Pairs of revisions with the same scores: task, revision, the one that it is the same as, models.

    Revisions that are the same as a third one are all led back to the first of them.
    """
    with duckdb.connect() as connection:
        paths = [str(table_path(source, table)) for table in ("scores", "entries")]
        pairs = connection.execute(PAIRS, [*paths, AGREE]).fetchall()
    first: dict[tuple[str, str], str] = {}
    found = []
    for task, one, other, models in pairs:
        root = first.get((task, one), one)
        if (task, other) not in first:
            first[task, other] = root
            found.append((task, other, root, models))
    return found


def main(argv: Sequence[str] | None = None) -> int:
    """Write the table of an import."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="where import.json lies")
    parser.add_argument("--to", type=Path, default=REVISIONS, help="default: %(default)s")
    options = parser.parse_args(argv)
    source = Imported.read(options.folder)
    if source is None:
        print(f"{options.folder} holds no import.", file=sys.stderr)
        return 2
    with options.to.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["task", "revision", "same_as", "models"])
        writer.writerows(same_revisions(source))
    return 0


if __name__ == "__main__":
    sys.exit(main())
