"""All records of a store, for tests and benchmarks; the program reads those of a model, or an index."""

from __future__ import annotations

from collections.abc import Iterator

from harness.core.documents import read_or_warn
from harness.storage.record import Record
from harness.storage.store import FAILED, Store


def iter_records(store: Store, *, purpose: str = "final", failed: bool = False) -> Iterator[Record]:
    """Every finished record (or failure) of a purpose, sorted by path; unreadable files only warn."""
    for path in sorted((store.root / "records").glob("*/*/*.json")):
        if path.name.endswith(FAILED) == failed:
            record = read_or_warn(store.read_record, path)
            if record is not None and record.purpose == purpose:
                yield record
