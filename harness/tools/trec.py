"""Runs and judgements of retrieval tasks in the text formats of TREC, for trec_eval and pytrec_eval."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.core import files, paths
from harness.core.errors import DataError, UsageError
from harness.core.types import Suite, SuiteOptions, build_artifact_slug
from harness.plan import catalog
from harness.results.results import MeasuredSuite, open_stores
from harness.storage.record import Record
from harness.tools.conditions import build_rerun_command, choose_condition, select_conditions


@dataclass(frozen=True, kw_only=True)
class _TrecExport:
    """The files that an export wrote, and what it left out.

    Attributes:
        files: The files.
        settings: The settings under which their scores were measured.
        missing: The retrieval tasks that were not measured with these settings.
        others: Other settings with which some of the tasks were measured.
    """

    files: tuple[Path, ...]
    settings: str
    missing: tuple[str, ...]
    others: tuple[str, ...]


def export_trec(
    model: str,
    folder: Path,
    *,
    suites: Sequence[str] = (),
    tasks: str = "",
    settings: str = "",
    results: Path | None = None,
) -> _TrecExport:
    """Write `<model>-<key>/<task>.<split>[.<subset>].run` and `.qrels` of each retrieval task of a model.

    All are of one condition: that of the most tasks, and among equals that in full precision. It is the
    condition of the first table of `harness show`.

    Args:
        model: A name, six or more digits of an artifact key, or a folder.
        folder: The folder to write to; files of the same names are replaced.
        suites: Only the tasks of these suites; without any, all that were measured.
        tasks: Only these tasks, separated by commas.
        settings: A part of the text of the condition to write, where there are several.
        results: The results folder, None for the default.

    Raises:
        UsageError: No task was measured, or a record has no run.
        DataError: An id cannot be written.
        StoreError: The folder cannot be written.
    """
    of = " or ".join(suites) or model
    records = MeasuredSuite.load_records(model, results).newest.records
    opened = catalog.open_suites(suites, SuiteOptions(cache=paths.resolve_cache_folder(), results=results))
    names = _list_retrieval_tasks(records, opened)
    task_names, measured = select_conditions(
        model, records, opened, names, tasks, kind=f"retrieval task of {of}"
    )
    chosen = choose_condition(measured, settings)
    again = {
        name: build_rerun_command(record, model, opened, results) for name, record in chosen.records.items()
    }
    kept = [name for name, record in chosen.records.items() if record.run]
    # Where only some records have a run, the others can be left out instead.
    if 0 < len(kept) < len(again):
        again = {name: f"{text}\nWithout it: --tasks {','.join(kept)}" for name, text in again.items()}
    for name, record in chosen.records.items():
        # All ids are checked before the first file is written: an export that fails leaves no files.
        _check_ids(record, *_read_run_tables(record, again[name], results))
    written = [
        path
        for name, record in chosen.records.items()
        for path in _write_trec_files(
            record,
            *_read_run_tables(record, again[name], results),
            folder / _find_artifact_folder(record, results),
        )
    ]
    return _TrecExport(
        files=tuple(written),
        settings=chosen.condition.text,
        missing=tuple(name for name in task_names if name not in chosen.records),
        others=tuple(one.condition.text for one in measured if one is not chosen),
    )


def _list_retrieval_tasks(records: Sequence[Record], suites: Sequence[Suite]) -> list[str]:
    """The names of the retrieval tasks of suites, without any of those that were measured."""
    if suites:
        names = [task.name for suite in suites for task in suite.tasks if task.retrieves]
    else:
        names = [record.task.name for record in records if record.retrieves]
    return list(dict.fromkeys(names))


def _read_run_tables(record: Record, again: str, results: Path | None) -> tuple[Any, Any]:
    """The run and the per-example file of a record, as tables of pyarrow."""
    import pyarrow.parquet as pq

    stores, slug = open_stores(results), _find_artifact_folder(record, results)
    run, examples = (
        next((path for store in stores if (path := store.find_part_file(record, slug, part))), None)
        for part in ("run", "examples")
    )
    if run is None or examples is None:
        what = "run" if run is None else "per-example file"
        part = record.run if run is None else record.examples
        lost = "is gone or damaged" if part else "was not kept"
        raise UsageError(
            f"The {what} of {record.model.name} on {record.task.name} {lost}.",
            hint=f"To make it again: {again}",
        )
    return pq.read_table(run), pq.read_table(examples)


def _find_artifact_folder(record: Record, results: Path | None) -> str:
    """The name of the folder of its records, whose name in tables may tell it from others."""
    slug = build_artifact_slug(record.model.name, record.model.artifact)
    places = [store.locate_record(slug, record.task.name, record.key) for store in open_stores(results)]
    return next((place for place in places if place.exists()), places[0]).parents[1].name


def _check_ids(record: Record, run: Any, examples: Any) -> None:
    """Refuse ids that cannot be a field of a line.

    Raises:
        DataError: One is empty or has a blank, which separates fields in these formats.
    """
    judged = {name for gold in examples["gold"].to_pylist() for name in json.loads(gold)}
    columns = (run["query_id"], run["document_id"], examples["example_id"])
    for name in (*(name for column in columns for name in column.unique().to_pylist()), *judged):
        if len(name.split()) != 1 or name != name.strip():
            raise DataError(
                f"{record.task.name}: the id {name!r} cannot be written: TREC's formats separate "
                "fields by blanks.",
                hint="Give the data ids without blanks, or read the run file (results/README.md).",
            )


def _write_trec_files(record: Record, run: Any, examples: Any, folder: Path) -> Iterator[Path]:
    """Write the files of a record, two for each split and subset."""
    import pyarrow.compute as pc

    columns = ("split", "subset")
    # With threads pyarrow gives the groups in any order, and so the files that are reported.
    for part in run.group_by(columns, use_threads=False).aggregate([]).to_pylist():
        name = ".".join([record.task.name, *(part[c] for c in columns if part[c] != "default")])
        for ending, table, lines in ((".run", run, _run_lines), (".qrels", examples, _iter_qrels_lines)):
            mine = table.filter(pc.and_(*(pc.equal(table[c], part[c]) for c in columns)))
            path = folder / f"{_clean_file_name(name)}{ending}"
            files.replace(path, "".join(f"{line}\n" for line in lines(mine, record)).encode())
            yield path


def _run_lines(table: Any, record: Record) -> Iterator[str]:
    """Lines of query, Q0, document, rank, score, model; a score is read again as the same float32."""
    tag = "-".join(record.model.name.split()) or "model"
    scores = table["score"].to_numpy()
    columns = (table[name].to_pylist() for name in ("query_id", "document_id", "rank"))
    for query, document, rank, score in zip(*columns, scores, strict=True):
        # Q0 and the 0 of a judgement are fields that trec_eval expects and ignores.
        yield f"{query} Q0 {document} {rank} {score} {tag}"


def _iter_qrels_lines(table: Any, _record: Record) -> Iterator[str]:
    """Lines of query, 0, document, grade."""
    for query, judged in zip(table["example_id"].to_pylist(), table["gold"].to_pylist(), strict=True):
        for document, grade in json.loads(judged).items():
            yield f"{query} 0 {document} {grade}"


def _clean_file_name(name: str) -> str:
    """A name without characters that a file's name cannot have."""
    return "".join(c if c.isalnum() or c in "-._+" else "-" for c in name).strip(".") or "model"
