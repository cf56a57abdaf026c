"""One line of a per-example file, and the id of the example it is of."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Sequence
from typing import Any

Line = tuple[str, int, str | None, str | None, float | None]
"""example id, replicate, prediction, gold, metric"""


def row_ids(rows: Any, columns: Sequence[str]) -> list[str]:
    """The rows' own ids; else ids from their content, which stay the same when rows move.

    A content id is the start of the hash of the given columns, with a count if it is repeated.
    """
    if "id" in rows.column_names:
        return [str(name) for name in rows["id"]]
    seen: Counter[str] = Counter()
    ids = []
    for row in zip(*(rows[column] for column in columns), strict=True):
        name = hashlib.sha256(json.dumps([str(part) for part in row]).encode()).hexdigest()[:16]
        seen[name] += 1
        ids.append(name if seen[name] == 1 else f"{name}-{seen[name]}")
    return ids
