"""Makes revisions.csv from an import's folder: `python -m leaderboard.data.revisions IMPORT`."""

from __future__ import annotations

import sys
from pathlib import Path

import duckdb

from harness.storage.imported import Imported
from leaderboard.data.imports import resolve_table_path
from leaderboard.data.suites import REVISIONS

AGREE = 3
"""Models that must have the same scores on two revisions of a task's data, where none may differ."""

PAIRS = f"""
WITH files AS (
  SELECT e.model, s.task, s.data_revision AS data, s.split, s.subset, any_value(s.main_score) AS score
  FROM read_parquet(?) s
    JOIN (SELECT *, file_row_number AS number FROM read_parquet(?, file_row_number = true)) e
    ON e.number = s.entry
  WHERE s.data_revision != 'None' AND coalesce(s.flag, '') = '' AND e.experiment = ''
  GROUP BY ALL HAVING max(s.main_score) - min(s.main_score) <= 1e-9),
pairs AS (
  SELECT task, model, a.data AS one, b.data AS other, bool_and(abs(a.score - b.score) <= 1e-9) AS same
  FROM files a JOIN files b USING (task, model, split, subset) WHERE a.data < b.data GROUP BY ALL)
SELECT task, other AS revision, min(one) AS same_as, max(n) AS models FROM (
  SELECT task, one, other, count(*) AS n FROM pairs GROUP BY ALL
  HAVING bool_and(same) AND count(*) >= {AGREE})
GROUP BY ALL ORDER BY ALL
"""


def write_revision_table(folder: str) -> int:
    """Write the table of the import in a folder."""
    source = Imported.read_import(Path(folder))
    if source is None:
        print(f"{folder} holds no import.", file=sys.stderr)
        return 2
    # The paths go in as parameters, as names of folders may hold quotes.
    with duckdb.connect() as connection:
        paths = [str(resolve_table_path(source, table)) for table in ("scores", "entries")]
        connection.sql(PAIRS, params=paths).write_csv(str(REVISIONS), header=True)
    return 0


if __name__ == "__main__":
    sys.exit(write_revision_table(sys.argv[1]))
