"""Whether a record's data is known to be that of a revision."""

from __future__ import annotations

from harness.core.registry import open_entry
from harness.storage.record import Record


def find_data_revision(record: Record) -> str | None:
    """The revision of the data on the hub that a record was measured on, or is proven to equal; else None."""
    data: dict[str, str | None] = record.identity["data"]
    content = data.get("content")
    if data.get("revision") or not content:
        return data.get("revision")
    # The site, a floor above, has the table of the proofs.
    resolve = open_entry("leaderboard.data.suites", "resolve_data_revision")
    revision = str(resolve(record.task.name, content))
    return None if revision == content else revision
