"""Runs and judgements of retrieval tasks in the text formats of TREC, for trec_eval and pytrec_eval."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness import catalog, paths
from harness.errors import DataError, UsageError, unknown
from harness.record import Record
from harness.results import MeasuredSuite, all_stores, suite_views
from harness.types import SuiteOptions

_SEARCHES = ("Retrieval", "Reranking")
"""The ends of the types of tasks with a search."""


@dataclass(frozen=True, kw_only=True)
class _TrecExport:
    """The files that were written, and the retrieval tasks of the suites that have no record."""

    files: tuple[Path, ...]
    missing: tuple[str, ...]


def export_trec(
    model: str,
    folder: Path,
    *,
    suites: Sequence[str] = (),
    tasks: Sequence[str] = (),
    results: Path | None = None,
) -> _TrecExport:
    """Write `<model>/<task>.<split>[.<subset>].run` and `.qrels` for each retrieval task that was measured.

    Args:
        model: A name, six or more digits of an artifact key, or a folder.
        folder: The folder to write to; files of the same names are replaced.
        suites: Only the tasks of these suites; without any, all that were measured.
        tasks: Only these tasks.
        results: The results folder, None for the default.

    Raises:
        UsageError: There is nothing to write, or a record has no run.
        DataError: An id cannot be written.
    """
    records, wanted = _wanted(MeasuredSuite.of(model, results).newest.records, suites, results)
    for task in tasks:
        if task not in wanted:
            then = f"`harness show {model}` lists what was measured."
            raise unknown(f"retrieval task of {' or '.join(suites) or model}", task, wanted, then=then)
    chosen = [name for name in wanted if not tasks or name in tasks]
    found = [records[name] for name in chosen if name in records]
    if not found:
        raise UsageError(
            f"No retrieval task of {' or '.join(suites) or model} was measured with {model}.",
            hint=f"`harness show {model}` lists what was.",
        )
    tables = [(record, _tables(record, model, suites, results)) for record in found]
    files = [path for record, parts in tables for path in _write(record, *parts, folder)]
    return _TrecExport(files=tuple(files), missing=tuple(name for name in chosen if name not in records))


def _wanted(
    records: Sequence[Record], suites: Sequence[str], results: Path | None
) -> tuple[dict[str, Record], list[str]]:
    """The newest record of each task, and the names of the retrieval tasks that can be exported."""
    newest = {r.task.name: r for r in sorted(records, key=lambda r: str(r.provenance.get("written", "")))}
    if not suites:
        return newest, [name for name, record in newest.items() if record.task.type.endswith(_SEARCHES)]
    opened = catalog.open_suites(suites, SuiteOptions(cache=paths.cache_folder(), results=results))
    found: dict[str, Record] = {}
    for suite in opened:
        found |= next((view.records for view in suite_views(records, suite)), {})
    tasks = [task for suite in opened for task in suite.tasks]
    return found, list(dict.fromkeys(task.name for task in tasks if task.type.endswith(_SEARCHES)))


def _tables(record: Record, model: str, suites: Sequence[str], results: Path | None) -> tuple[Any, Any]:
    """The run and the per-example file of a record, as tables of pyarrow."""
    import pyarrow.parquet as pq

    slug = f"model-{record.model.artifact[:12]}"
    stores = all_stores(results)
    run = next((path for store in stores if (path := store.run(record, slug))), None)
    examples = next((path for store in stores if (path := store.examples(record, slug))), None)
    if run is None or examples is None:
        what = "run" if run is None else "per-example file"
        part = record.run if run is None else record.examples
        lost = "is gone or damaged" if part else "was not kept: an earlier version made it"
        suite = suites[0] if suites else "SUITE"
        raise UsageError(
            f"The {what} of {model} on {record.task.name} {lost}.",
            hint=f"It is made again by: harness run --model {model} --suite {suite} "
            f"--tasks {record.task.name} --force",
        )
    return pq.read_table(run), pq.read_table(examples)


def _write(record: Record, run: Any, examples: Any, folder: Path) -> Iterator[Path]:
    """Write the files of a record, two for each split and subset."""
    import pyarrow.compute as pc

    home = folder / _file_name(record.model.name)
    home.mkdir(parents=True, exist_ok=True)
    columns = ("split", "subset")
    for part in run.group_by(columns, use_threads=False).aggregate([]).to_pylist():
        name = ".".join([record.task.name, *(part[c] for c in columns if part[c] != "default")])
        for ending, table, lines in ((".run", run, _run_lines), (".qrels", examples, _qrels_lines)):
            mine = table.filter(pc.and_(*(pc.equal(table[c], part[c]) for c in columns)))
            path = home / f"{_file_name(name)}{ending}"
            content = "".join(f"{line}\n" for line in lines(mine, record))
            path.write_text(content, encoding="utf-8")
            yield path


def _run_lines(table: Any, record: Record) -> Iterator[str]:
    """query, Q0, document, rank, score, model; a score is written so that it is read as the same float32."""
    tag = "-".join(record.model.name.split()) or "model"
    scores = table["score"].to_numpy()
    columns = (table[name].to_pylist() for name in ("query_id", "document_id", "rank"))
    for query, document, rank, score in zip(*columns, scores, strict=True):
        yield f"{_id(query, record)} Q0 {_id(document, record)} {rank} {score} {tag}"


def _qrels_lines(table: Any, record: Record) -> Iterator[str]:
    """query, 0, document, grade."""
    for query, judged in zip(table["example_id"].to_pylist(), table["gold"].to_pylist(), strict=True):
        for document, grade in json.loads(judged).items():
            yield f"{_id(query, record)} 0 {_id(document, record)} {grade}"


def _id(name: str, record: Record) -> str:
    """An id as a field of a line.

    Raises:
        DataError: It is empty or has a blank, at which these formats part their fields.
    """
    if len(name.split()) != 1 or name != name.strip():
        raise DataError(
            f"{record.task.name}: the id {name!r} cannot be written: TREC's formats part fields at blanks.",
            hint="Give the data ids without blanks, or read the run file (results/README.md).",
        )
    return name


def _file_name(name: str) -> str:
    """A name without characters that a file's name cannot have."""
    return "".join(c if c.isalnum() or c in "-._+" else "-" for c in name).strip(".") or "model"
