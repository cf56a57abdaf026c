"""What others read of ours: a model's files on the hub, its scores as mteb's results, its runs as TREC's."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from harness.core import files
from harness.core.errors import DataError, HarnessError, UsageError
from harness.core.keys import MODEL_FILE
from harness.core.types import SEED, Suite, SuiteOptions, Task, build_artifact_slug
from harness.encoder.folder.description import list_content_files
from harness.encoder.folder.modules_and_pooling import list_modules, list_remote_classes
from harness.plan import catalog
from harness.results.results import MeasuredSuite, open_stores
from harness.results.revisions import find_data_revision
from harness.results.scores import MAIN_SCORE
from harness.storage.record import Record
from harness.tools.conditions import build_rerun_command, choose_condition, select_conditions
from harness.tools.model_card import list_marks

_LIBRARIES = ("sentence_transformers", "pylate", "harness")
"""The packages whose modules need no code of a model's own."""

_REPOSITORY = r"\w[\w.-]*/\w[\w.-]*"
"""The pattern of names of repositories."""


def list_published_files(folder: Path) -> dict[str, Path]:
    """The model's own files by their names in its repository.

    They are the files that decide what it computes, the indexes of weights in parts, its model.json and its
    licence. Of code only a model that runs its own has any.
    """
    packages = {module.kind.partition(".")[0] for module in list_modules(folder)}
    own_code = list_remote_classes(folder) or packages - {*_LIBRARIES}
    paths = [path for path in list_content_files(folder) if own_code or path.suffix != ".py"]
    indexes = {index for path in paths for index in path.parent.glob(f"*{path.suffix}.index.json")}
    texts = [path for pattern in ("LICENSE*", "NOTICE*") for path in folder.glob(pattern)]
    others = [folder / MODEL_FILE, *(path for path in texts if path.suffix in ("", ".md", ".txt"))]
    files = {*paths, *indexes, *(path for path in others if path.is_file())}
    return {path.relative_to(folder).as_posix(): path for path in sorted(files)}


def require_repository_name(text: str) -> None:
    """Refuse what is no name of a repository."""
    if not re.fullmatch(_REPOSITORY, text):
        raise UsageError(f"{text!r} is no name of a repository.", hint="Type org/name.")


def push_files(repository: str, files: Mapping[str, Path | bytes], *, private: bool) -> str:
    """Send files to a repository of the hub in one commit, and make it if it is missing; gives its URL.

    Args:
        repository: `org/name`.
        files: By their names in the repository, files or contents.
        private: Whether a new repository is private.

    Raises:
        UsageError: There is no token, it has no right to write, or the hub refuses the card.
        HarnessError: The hub cannot be reached or fails.
    """
    import httpx
    from huggingface_hub import CommitOperationAdd, HfApi, get_token
    from huggingface_hub.errors import HfHubHTTPError

    if get_token() is None:
        raise UsageError(
            "No token found.", hint="Type `hf auth login`, or set HF_TOKEN to a token that may write."
        )
    api, additions = HfApi(), [CommitOperationAdd(*pair) for pair in files.items()]
    try:
        url = api.create_repo(repository, private=private or None, exist_ok=True)
        api.create_commit(repository, additions, commit_message="Model and card by encoder-harness")
    except HfHubHTTPError as error:
        raise _explain_refusal(repository, error) from error
    except ValueError as error:
        raise UsageError(f"{repository} is refused: {error}", hint="Mend the card: --card FILE.") from error
    except (OSError, httpx.HTTPError) as error:
        raise HarnessError(f"The hub cannot be reached: {error}.", hint="Type it again.") from error
    return str(url)


def _explain_refusal(repository: str, error: Exception) -> HarnessError:
    status = getattr(getattr(error, "response", None), "status_code", None)
    if status in (401, 403):
        return UsageError(
            f"The token may not write to {repository} (HTTP {status}).",
            hint="Make one with the right to write in your settings on the hub, or name a repository of "
            "your own.",
        )
    return HarnessError(f"The hub does not take {repository}: {error}", hint="Type it again.")


_UNMEASURED = "not measured with these settings"

# "." and ".." would lead out of the revision's folder.
_PUBLISHED = re.compile(rf"({_REPOSITORY})@(\w[\w.-]*)")


@runtime_checkable
class _ResultWriter(Protocol):
    """A source of tasks that can write their scores in the layout of its own project."""

    def write_results(
        self, records: Sequence[Record], *, name: str, revision: str, folder: Path
    ) -> tuple[Path, ...]:
        """Write complete records of its tasks for the model `org/name` at a revision; gives the files."""
        ...


@dataclass(frozen=True, kw_only=True)
class _Export:
    """The files that an export wrote, and what it left out.

    Attributes:
        files: The files.
        settings: The settings under which their scores were measured.
        left_out: By task, the reason why there is no file of it.
        others: Other settings with which some of the tasks were measured.
    """

    files: tuple[Path, ...]
    settings: str
    left_out: Mapping[str, str]
    others: tuple[str, ...]


def export_mteb(
    model: str,
    folder: Path,
    *,
    published: str = "",
    suites: Sequence[str] = (),
    tasks: str = "",
    settings: str = "",
    results: Path | None = None,
) -> _Export:
    """Write `results/ORG__NAME/REVISION/` with mteb's card of the model and a file for each of its tasks.

    All scores are of one condition. A task is left out, with the reason, where mteb has no such task, pins
    other data, or asks for splits or subsets that were not measured, and where tables mark its score.

    Args:
        model: A name, six or more digits of an artifact key, or a folder.
        folder: The folder to write to, a cache of results for mteb.
        published: `org/name@revision` of the model; empty for that of a hub model.
        suites: Only the tasks of these suites, with the splits and subsets that they use.
        tasks: Only these tasks, separated by commas.
        settings: A part of the text of the condition to write, where there are several.
        results: The results folder, None for the default.

    Raises:
        UsageError: Nothing can be written, none of several conditions is chosen, or the model has no name and
            revision.
    """
    measured = MeasuredSuite.load_own_records(model, results)
    records = [record for record in measured.records if record.main_score is not None]
    name, revision = _resolve_published(measured.records[0], published)
    options = SuiteOptions(cache=files.resolve_cache_folder(), results=results)
    opened = catalog.open_suites(suites, options)
    uses = {task.name: task for suite in opened for task in suite.tasks}
    names = list(uses or dict.fromkeys(record.task.name for record in records))
    kind = f"task of {' or '.join(suites) or model}"
    selected, conditions = select_conditions(model, records, opened, names, tasks, kind=kind)
    texts = dict.fromkeys(one.condition.text for one in conditions)
    if len(texts) > 1 and not settings:
        raise UsageError(
            f"{model} was measured with these settings: {'; '.join(texts)}. mteb's files do not name them.",
            hint="Choose: type a part of one with --settings.",
        )
    chosen = choose_condition(conditions, settings)
    left_out: dict[str, str] = {}
    complete: dict[_ResultWriter, list[Record]] = {}
    for task_name in selected:
        record, task = chosen.records.get(task_name), uses.get(task_name) or _find_task(task_name)
        if reason := _find_obstacle(record, task):
            left_out[task_name] = reason
        elif record is not None and task is not None and isinstance(task.source, _ResultWriter):
            complete.setdefault(task.source, []).append(record)
    written = tuple(
        path
        for source, mine in complete.items()
        for path in source.write_results(mine, name=name, revision=revision, folder=folder)
    )
    others = tuple(one.condition.text for one in conditions if one is not chosen)
    return _Export(files=written, settings=chosen.condition.text, left_out=left_out, others=others)


def _resolve_published(record: Record, typed: str) -> tuple[str, str]:
    """The name and the revision of a model on the hub."""
    about = record.model
    hub_id = f"{about.source.partition('@')[0]}@{about.revision}" if about.revision else ""
    match = _PUBLISHED.fullmatch(typed or hub_id)
    if match is None:
        what = f"{typed!r} is no name of a model" if typed else f"{about.name} has no name"
        raise UsageError(
            f"{what} and revision on the hub, which mteb's results are stored by.",
            hint="Give both: --as org/name@revision.",
        )
    return match[1], match[2]


def _find_task(name: str) -> Task | None:
    """The task of mteb of this name, with all splits and subsets that mteb scores."""
    try:
        (task,) = catalog.open_suite(f"mteb:{name}").tasks
    except (UsageError, ValueError):
        return None
    return task


def _find_obstacle(record: Record | None, task: Task | None) -> str:
    """Why a record is no whole result of a task of mteb; empty if it is."""
    if task is None or not isinstance(task.source, _ResultWriter):
        return "mteb has no such task"
    if record is None:
        return _UNMEASURED
    if marks := list_marks(record, record.lineage):
        return f"tables mark its score: {', '.join(marks)}; mteb's files have no marks"
    identity, data = record.identity, record.identity["data"]
    if identity.get("scoring", "").partition(" ")[0] != task.source.scoring.partition(" ")[0]:
        return f"scored by {identity.get('scoring')}, not by mteb"
    if (data.get("path"), find_data_revision(record)) != (task.data.path, task.data.revision):
        return f"its data is not known to be {task.data.path} at {task.data.revision[:12]}, which mteb pins"
    if identity.get("documents") or identity["seed"] != SEED:
        return "measured with another text of documents or another seed than mteb's"
    missing = [
        f"{split}, {subset}"
        for split, subset in task.cells
        if MAIN_SCORE not in record.scores.get(split, {}).get(subset, {})
    ]
    if missing:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        return f"no score of {missing[0]}{more} (--suite SUITE takes the parts that a benchmark uses)"
    return ""


def export_trec(
    model: str,
    folder: Path,
    *,
    suites: Sequence[str] = (),
    tasks: str = "",
    settings: str = "",
    results: Path | None = None,
) -> _Export:
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
    opened = catalog.open_suites(suites, SuiteOptions(cache=files.resolve_cache_folder(), results=results))
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
    return _Export(
        files=tuple(written),
        settings=chosen.condition.text,
        left_out={name: _UNMEASURED for name in task_names if name not in chosen.records},
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
