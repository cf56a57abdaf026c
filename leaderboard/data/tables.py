"""Tables of a snapshot: their columns, how units are read into rows, and their Parquet files."""

from __future__ import annotations

import gc
import hashlib
import json
import logging
import multiprocessing
import os
import signal
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from itertools import islice
from logging.handlers import QueueHandler
from pathlib import Path
from pickle import PicklingError
from queue import SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING, Any, NoReturn

import duckdb
import numpy as np

from harness.core.provenance import count_cores
from leaderboard.data.entries import EntryOutcome, NewEntry, StoredDocument, Unit
from leaderboard.data.suites import REASONS, Scope, Scopes, is_possible_score

if TYPE_CHECKING:
    # Servers that only read do without 35 MB of it.
    import pyarrow as pa

log = logging.getLogger(__name__)

Row = dict[str, Any]

_RESULT = {"deviation": "DOUBLE", "seeds": "SMALLINT", "trained_on": "INTEGER", "data": "VARCHAR"}

TABLES: Mapping[str, Mapping[str, str]] = {
    "entries": {
        "unit": "VARCHAR", "id": "BIGINT", "slug": "VARCHAR", "model": "VARCHAR", "model_slug": "VARCHAR",
        "origin": "VARCHAR", "source": "VARCHAR", "revision": "VARCHAR", "trust": "VARCHAR",
        "artifact": "VARCHAR", "treatment": "VARCHAR", "recipe": "VARCHAR", "output": "VARCHAR",
        "parameters": "BIGINT", "dimension": "INTEGER", "max_tokens": "INTEGER",
        "tokens_unlimited": "BOOLEAN", "released": "VARCHAR", "open_weights": "BOOLEAN",
        "adapted_from": "VARCHAR", "trained_on": "VARCHAR", "newest": "VARCHAR", "tasks": "INTEGER",
        "lineage": "VARCHAR", "group": "VARCHAR", "seeds": "VARCHAR", "revisions": "VARCHAR",
        "member": "BOOLEAN", "facts": "VARCHAR", "number": "INTEGER", "folder": "VARCHAR",
    },
    "results": {
        "unit": "VARCHAR", "id": "BIGINT", "entry": "BIGINT", "source": "BIGINT", "task": "VARCHAR",
        "type": "VARCHAR", "metric": "VARCHAR", "status": "VARCHAR", "value": "DOUBLE", "key": "VARCHAR",
        "written": "VARCHAR", **_RESULT, "batch": "INTEGER",
    },
    "scores": {
        "unit": "VARCHAR", "scope": "INTEGER", "entry": "BIGINT", "source": "BIGINT", "value": "DOUBLE",
        "low": "DOUBLE", "high": "DOUBLE", "reason": "UTINYINT", "result": "BIGINT", **_RESULT,
    },
    "averages": {
        "unit": "VARCHAR", "entry": "BIGINT", "suite": "VARCHAR", "convention": "VARCHAR",
        "document": "VARCHAR",
    },
    "documents": {
        "unit": "VARCHAR", "kind": "VARCHAR", "name": "VARCHAR", "written": "VARCHAR", "facts": "VARCHAR",
        "document": "VARCHAR",
    },
}  # fmt: skip
"""The columns of every table. Lists, `facts` and documents are JSON.

`results.source` is the entry whose own result it is: of several revisions of a model, one. `entries.number`
is the row of an import. `results.batch` is the version whose file of texts has the record.
"""

TEXT_ROWS, TEXT_BYTES = 512, 4 << 20
"""The texts in a row group, at most: a query reads whole groups, and has little memory."""

ORDER = {"entries": "model, id", "results": "entry, task, id", "scores": "entry, scope"}
"""How rows lie in files, so that what is asked for together lies together."""

LOCAL = ("unit", "number", "batch")
"""Columns that only say how and in which order something was read."""

LENGTHS = {"written": 40, "newest": 32, "name": 120}

BEST = [REASONS.index(reason) for reason in ("", "other", "part", "bad", "failed", "none", "seeds")]
"""Which of several results of a task answers a scope: the first in this order, then the newest."""

SETTINGS: dict[str, Any] = {"autoinstall_known_extensions": False, "autoload_known_extensions": False}

DOUBLE = "%s (%s) stands in two folders. One is left out."


def compute_permanent_id(*parts: str) -> int:
    """A number made of texts, which every program can hold exactly: below 2**52."""
    return int(hashlib.sha256("\0".join(parts).encode("utf-8", "replace")).hexdigest()[:13], 16)


def clean_stored_text(text: str) -> str:
    """Text without NUL and halves of characters."""
    if text.isascii() and "\0" not in text:
        return text
    return text.replace("\0", "\ufffd").encode("utf-8", "replace").decode()


class Tables:
    """Tables in memory, on their way into a snapshot."""

    def __init__(self) -> None:
        self.connection = duckdb.connect(config=SETTINGS)
        self.slugs: set[str] = set()
        for name, columns in TABLES.items():
            fields = ", ".join(f'"{column}" {kind}' for column, kind in columns.items())
            self.connection.execute(f"CREATE TABLE {name} ({fields})")

    def keep(self, folder: Path, units: Iterable[str]) -> None:
        """Take the rows of some units over from Parquet files."""
        for name in TABLES:
            self.connection.execute(
                f"""INSERT INTO {name} SELECT * FROM read_parquet(?)
                    WHERE unit IN (SELECT unnest(?::VARCHAR[]))""",
                [str(folder / f"{name}.parquet"), list(units)],
            )
        self.slugs = {slug for (slug,) in self.connection.execute("SELECT slug FROM entries").fetchall()}

    def take(self, rows: Mapping[str, pa.Table], batch: int) -> pa.Table:
        """Take the rows of some units, of two entries with one slug only the first.

        Args:
            rows: Rows by the table's name.
            batch: The number of the file that the texts go into.

        Returns:
            The texts of the results.
        """
        entries = rows["entries"].select(["id", "slug", "model", "treatment"]).to_pylist()
        doubles = [entry["id"] for entry in entries if entry["slug"] in self.slugs]
        for entry in entries:
            if entry["slug"] in self.slugs:
                log.warning(DOUBLE, entry["model"], entry["treatment"])
        self.slugs |= {entry["slug"] for entry in entries}
        for name in TABLES:
            data = rows[name]
            if name != "documents":
                data = _leave_out(data, "id" if name == "entries" else "entry", doubles)
            if name == "results":
                column = _build_array("batch", "INTEGER", [batch] * len(data))
                data = data.set_column(data.column_names.index("batch"), "batch", column)
            self._fill(f"INSERT INTO {name}", TABLES[name], data)
        schema = create_text_schema()
        return _leave_out(rows["texts"], "entry", doubles).select(schema.names).cast(schema)

    def insert(self, rows: Mapping[str, Sequence[Row]]) -> None:
        """Put rows into tables by name; columns that a row lacks are NULL."""
        for name, some in rows.items():
            self._fill(f"INSERT INTO {name}", TABLES[name], _convert_rows(some, TABLES[name]))

    def create(self, name: str, kinds: Mapping[str, str], rows: Sequence[Sequence[Any]]) -> None:
        """Make a temporary table of rows, which have a value for each column."""
        import pyarrow as pa

        columns = zip(*rows, strict=True) if rows else [()] * len(kinds)
        arrays = [_build_array(*kind, values) for kind, values in zip(kinds.items(), columns, strict=True)]
        data = pa.Table.from_arrays(arrays, names=list(kinds))
        self._fill(f"CREATE TEMP TABLE {name} AS", kinds, data)

    def _fill(self, statement: str, kinds: Mapping[str, str], data: pa.Table) -> None:
        fields = ", ".join(f'"{column}"::{kind} AS "{column}"' for column, kind in kinds.items())
        self.connection.register("given", data)
        self.connection.execute(f"{statement} SELECT {fields} FROM given")
        self.connection.unregister("given")

    def fetch_rows(self, sql: str, *values: Any) -> list[Row]:
        """Rows of a query by column."""
        cursor = self.connection.execute(sql, list(values))
        names = [column[0] for column in cursor.description or ()]
        return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]

    def save_tables(self, folder: Path) -> None:
        """Write all tables into a folder."""
        folder.mkdir(parents=True, exist_ok=True)
        for name in TABLES:
            order = f"ORDER BY {ORDER[name]}" if name in ORDER else ""
            # The path is part of the statement: a quote in the name of a folder would end it.
            path = str(folder / f"{name}.parquet").replace("'", "''")
            self.connection.execute(
                # Small row groups, with rows in the order of the questions: a query reads only the few that
                # it needs.
                f"COPY (SELECT * FROM {name} {order}) TO '{path}' "
                "(FORMAT parquet, COMPRESSION zstd, ROW_GROUP_SIZE 20480)"
            )


def hash_tables(folder: Path, scopes: Sequence[str]) -> str:
    """A digest of what the Parquet files of a folder hold, whatever the order of their rows.

    Args:
        folder: Where the tables are.
        scopes: The forms of all scopes; the first has the number 1.
    """
    digest, connection = hashlib.sha256(), duckdb.connect(config=SETTINGS)
    connection.execute("SET VARIABLE forms = ?", [list(scopes)])
    for name, columns in TABLES.items():
        # Numbers of scopes depend on the suites that a site has.
        forms = {"scope": "getvariable('forms')[scope]"}
        fields = ", ".join(forms.get(column, f'"{column}"') for column in columns if column not in LOCAL)
        rows = connection.execute(
            f"""SELECT string_agg(line, '' ORDER BY line)
                FROM (SELECT sha256(row({fields})::VARCHAR) AS line FROM read_parquet(?))""",
            [str(folder / f"{name}.parquet")],
        )
        digest.update(f"{name} {rows.fetchall()[0][0]}".encode())
    connection.close()
    return digest.hexdigest()


def create_text_schema() -> pa.Schema:
    """The columns of a file of texts: the records of some results as JSON.

    It is written once, and taken over by later versions; a text counts where a result names its batch.
    """
    import pyarrow as pa

    return pa.schema({"id": pa.int64(), "document": pa.string()})


def write_texts(writer: Any, texts: pa.Table) -> None:
    """Write the texts of some results with a ParquetWriter, in row groups that a query can read."""
    size = max(1, texts.nbytes // max(1, len(texts)))
    writer.write_table(texts, row_group_size=max(1, min(TEXT_ROWS, TEXT_BYTES // size)))


def _convert_rows(rows: Sequence[Row], kinds: Mapping[str, str]) -> pa.Table:
    """Rows as an Arrow table; columns that a row lacks are NULL."""
    import pyarrow as pa

    arrays = [_build_array(*kind, [row.get(kind[0]) for row in rows]) for kind in kinds.items()]
    return pa.Table.from_arrays(arrays, names=list(kinds))


def _build_array(name: str, kind: str, values: Sequence[Any]) -> pa.Array:
    """Values as Arrow has them: texts that can be written, numbers within a column's bounds, else NULL."""
    import pyarrow as pa

    present: Any
    # Not pa.array, which would import pandas: 50 MB and 0.2 s of each process.
    if kind == "VARCHAR":
        texts = [
            b"" if v is None else clean_stored_text(str(v))[: LENGTHS.get(name)].encode() for v in values
        ]
        ends = np.cumsum([0, *map(len, texts)], dtype=np.int64)
        form, parts, present = pa.large_string(), [ends, b"".join(texts)], [v is not None for v in values]
    elif kind == "DOUBLE":
        numbers = np.array(values, np.float64)
        form, parts, present = pa.float64(), [numbers], np.isfinite(numbers)
    else:
        most = 2**63 if kind == "BIGINT" else 2**31
        present = [isinstance(v, int | float) and -most <= v < most for v in values]
        integers = [v if fits else 0 for v, fits in zip(values, present, strict=True)]
        form, parts = pa.int64(), [np.array(integers, np.int64)]
    nulls = np.packbits(np.array(present, np.bool), bitorder="little")
    return pa.Array.from_buffers(form, len(values), [pa.py_buffer(part) for part in (nulls, *parts)])


def _leave_out(data: pa.Table, column: str, values: Sequence[int]) -> pa.Table:
    if not values:
        return data
    from pyarrow.compute import field

    return data.filter(~field(column).isin(values))


def _warn_double(model: str, treatment: str) -> None:
    """Say that an entry stands in two folders."""
    log.warning("%s (%s) stands in two folders. One is left out.", model, treatment)


def build_entry_row(entry: NewEntry, unit: str = "") -> Row:
    """The row of an entry."""
    written = [outcome.written for outcome in entry.outcomes if outcome.written]
    return {
        **{name: getattr(entry, name, None) for name in TABLES["entries"]}, "unit": unit,
        "id": compute_permanent_id(entry.slug),
        "trained_on": None if entry.trained_on is None else json.dumps(list(entry.trained_on)),
        "facts": json.dumps(entry.facts, default=str), "newest": max(written, default=None),
        "tasks": len(entry.outcomes), "lineage": entry.lineage.model_dump_json() if entry.lineage else None,
        "seeds": json.dumps([entry.lineage.seed] if entry.lineage else []),
        "revisions": "[]", "member": False,
    }  # fmt: skip


_TEXTS = {"entry": "BIGINT", "id": "BIGINT", "document": "VARCHAR"}
"""The columns of the texts of results, with their entries."""


def _add_entry(rows: Mapping[str, list[Row]], entry: NewEntry, unit: str, scopes: Scopes) -> None:
    """Add an entry, its results with their texts, and how these answer scopes."""
    row = build_entry_row(entry, unit)
    number = row["id"]
    rows["entries"].append(row)
    scores: dict[int, list[Row]] = {}
    results: set[int] = set()
    for outcome in sorted(entry.outcomes, key=lambda one: one.written or "", reverse=True):
        result = compute_permanent_id(entry.slug, outcome.key or outcome.task)
        while result in results:
            result += 1
        results.add(result)
        shared = {"unit": unit, "entry": number, "source": number, "data": outcome.data,
               "trained_on": outcome.trained_on}  # fmt: skip
        columns = {name: getattr(outcome, name, None) for name in TABLES["results"]}
        rows["results"].append({**columns, **shared, "id": result})
        rows["texts"].append({"entry": number, "id": result, "document": outcome.document})
        for place, scope in scopes.get(outcome.task, {}).items():
            value, low, high, reason = _answer(scope, outcome)
            score = {"scope": place, "value": value, "low": low, "high": high,
                     "reason": REASONS.index(reason), "result": result}  # fmt: skip
            scores.setdefault(place, []).append({**shared, **score})
    rows["scores"] += [min(some, key=lambda s: BEST.index(s["reason"])) for some in scores.values()]
    rows["averages"] += [
        {"unit": unit, "entry": number, "suite": suite, "convention": convention, "document": document}
        for suite, convention, document in entry.averages
    ]


def _answer(scope: Scope, outcome: EntryOutcome) -> tuple[float | None, float | None, float | None, Any]:
    if outcome.status == "failed":
        return None, None, None, "failed"
    if not scope.view:
        value, reason = scope.answer(outcome.raw, outcome.data)
        if value is None or outcome.half is None:
            return value, None, None, reason
        return value, value - outcome.half, value + outcome.half, reason
    number = outcome.numbers.get(scope.view)
    if number is None or number.value is None:
        return None, None, None, "part"
    if not is_possible_score(number.value):
        return None, None, None, "bad"
    return number.value, number.low, number.high, "" if scope.is_same_data(outcome.data) else "other"


# Units read into rows, by this process or, where they are many, by several


MANY = 3000
"""Records from which on several processes read them: these take more than a second to start."""

MOST = 4
"""Processes that read, at most: the one that writes keeps up with no more."""

CHUNK = 64
"""Units that are read together, which bounds the memory of what is on its way."""


@dataclass(frozen=True, kw_only=True)
class _Chunk:
    """What some units hold.

    Attributes:
        names: The units.
        failed: Those that could not be read.
        rows: Rows of the others by the table's name, and the texts of results.
        messages: What another process had to say about them.
    """

    names: Sequence[str]
    failed: Sequence[str]
    rows: Mapping[str, pa.Table]
    messages: Sequence[logging.LogRecord] = ()


def read_units(units: Mapping[str, Unit], scopes: Scopes) -> Iterator[_Chunk]:
    """The contents of some units, which have a name each, and how they answer the scopes of all suites."""
    rest = dict(units)
    workers = min(MOST, count_cores())
    if workers > 1 and sum(len(unit.records) for unit in units.values()) >= MANY:
        for chunk in _read_in_processes(units, scopes, workers):
            for name in chunk.names:
                del rest[name]
            yield chunk
    for names in _split(rest):
        yield _read_chunk({name: rest[name] for name in names}, scopes)


def _split(names: Iterable[str]) -> Iterator[list[str]]:
    places = iter(names)
    while some := list(islice(places, CHUNK)):
        yield some


def _read_chunk(units: Mapping[str, Unit], scopes: Scopes) -> _Chunk:
    rows: dict[str, list[Row]] = {name: [] for name in (*TABLES, "texts")}
    slugs, failed = set[str](), []
    for name, unit in units.items():
        try:
            items = unit.read()
        # Whatever is wrong with a single file, the site shows the rest; the next refresh tries again.
        except Exception:
            log.exception("%s of %s cannot be read. What was known of it stays.", unit.name, unit.source)
            failed.append(name)
            continue
        for item in items:
            if isinstance(item, StoredDocument):
                values = {column: getattr(item, column) for column in ("kind", "name", "written", "document")}
                rows["documents"].append({**values, "unit": name, "facts": json.dumps(item.facts)})
            elif item.slug in slugs:
                log.warning(DOUBLE, item.model, item.treatment)
            else:
                slugs.add(item.slug)
                _add_entry(rows, item, name, scopes)
    tables = {name: _convert_rows(some, TABLES.get(name, _TEXTS)) for name, some in rows.items()}
    return _Chunk(names=list(units), failed=failed, rows=tables)


def _read_in_processes(units: Mapping[str, Unit], scopes: Scopes, workers: int) -> Iterator[_Chunk]:
    """What artifacts hold, read by other processes; those of a process that ended are left out."""
    jobs = (
        {name: units[name] for name in names}
        for names in _split(name for name, unit in units.items() if unit.records)
    )
    # Not forked: the process that serves pages has threads, whose locks a fork would copy.
    context = multiprocessing.get_context("spawn")
    executor = ProcessPoolExecutor(workers, context, initializer=_start_reader, initargs=(scopes,))
    try:
        # Two ahead for each process: of all at once, those that wait to be written would fill the memory.
        ahead = deque(executor.submit(_read_artifacts, job) for job in islice(jobs, 2 * workers))
        while ahead:
            chunk = ahead.popleft().result()
            ahead.extend(executor.submit(_read_artifacts, job) for job in islice(jobs, 1))
            for message in chunk.messages:
                logging.getLogger(message.name).handle(message)
            yield chunk
    # One was killed; none can start, as the program that opens the site guards no `__main__`; or a suite of
    # one's own cannot be pickled.
    except (BrokenProcessPool, PicklingError, AttributeError, TypeError) as error:
        log.warning("Records are read by one process, which is slower: %r", error)
    finally:
        executor.shutdown(cancel_futures=True)


_worker: dict[str, Any] = {}
"""What a process that reads has: the `scopes` of all suites, and the `messages` of its log."""


def _start_reader(scopes: Scopes) -> None:
    """Prepare a process that reads."""
    # Ctrl-C is for the process that started this one, which ends it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    Thread(target=_end_with_parent, daemon=True).start()
    messages: SimpleQueue[logging.LogRecord] = SimpleQueue()
    logging.getLogger().addHandler(QueueHandler(messages))
    _worker.update(scopes=scopes, messages=messages)
    # Records make no circles, and each collection would look through all that was imported.
    gc.set_threshold(100_000)


def _end_with_parent() -> NoReturn:
    # The queue of jobs stays open in all readers: nobody else would tell them that nobody waits.
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _read_artifacts(units: Mapping[str, Unit]) -> _Chunk:
    messages = _worker["messages"]
    chunk = _read_chunk(units, _worker["scopes"])
    return replace(chunk, messages=[messages.get() for _ in range(messages.qsize())])
