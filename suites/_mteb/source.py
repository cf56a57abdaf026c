"""Suites of mteb's tasks and benchmarks, from the snapshot alone, and the source by which mteb scores a task.

Each score starts from a fresh copy of the loaded task. Columns of a data set are read once as lists, since
task code asks for a label row by row, and a data set on disk decodes a whole table for each row. mteb's
progress bars, log lines and warnings are hidden.
"""

from __future__ import annotations

import copy
import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from harness.core.errors import DataError, HarnessError, UsageError, explain_unknown
from harness.core.provenance import find_package_version, hold_collector
from harness.core.types import (
    DOCUMENT_TEXT,
    ROLES,
    SIDES,
    Column,
    Data,
    DataTable,
    DocumentText,
    Offer,
    Outcome,
    Role,
    Size,
    Suite,
    SuiteOptions,
    Task,
    TextModel,
)
from harness.data.locate import explain_unreachable
from harness.data.schema import resolve_readable_folder
from harness.storage.record import Record
from suites._mteb import snapshot
from suites._mteb.examples import Examples, Run, is_parallel, limit_examples
from suites._mteb.model import build_model, collect_corpus_texts, write_results
from suites._mteb.snapshot import TaskInfo, TaskUse, explain_empty_selection, load_snapshot

if TYPE_CHECKING:
    from datasets import Dataset
    from mteb.abstasks.abstask import AbsTask


_loaded: dict[tuple[object, ...], AbsTask] = {}
"""The task whose data was loaded last, in its state before any run."""


@dataclass(frozen=True, kw_only=True)
class MtebSource:
    """The source of the mteb task of the same name."""

    @property
    def scoring(self) -> str:
        """The scoring code's name and version."""
        return format_scoring_version()

    def list_data_tables(self, task: Task) -> tuple[DataTable, ...]:
        """The tables that the task reads (see harness.core.types.TableSource)."""
        return load_snapshot().find_task_info(task.name).list_data_tables(task.splits, task.subsets)

    def estimate_size(self, task: Task) -> Size:
        """The size of the texts to encode (see harness.core.types.TableSource)."""
        return load_snapshot().find_task_info(task.name).estimate_size(task.splits, task.subsets)

    def evaluate(self, task: Task, encoder: TextModel, *, seed: int, data: Path | None) -> Outcome:
        """Score `encoder` on the mteb task of this name (see harness.core.types.TaskSource)."""
        require_mteb()
        info = snapshot.load_snapshot().find_task_info(task.name)
        _require_hub(info, data)
        with hide_mteb_output():
            mteb_task = _load_fresh_task(task, seed=seed, data=data)
            outcome = run_mteb_task(mteb_task, encoder, task.documents)
        return replace(outcome, notes=(*outcome.notes, *_list_revision_notes(info, task.data)))

    def corpus(self, task: Task, *, seed: int, data: Path | None) -> list[Any] | None:
        """The texts of the task (see harness.core.types.CorpusSource)."""
        require_mteb()
        _require_hub(snapshot.load_snapshot().find_task_info(task.name), data)
        with hide_mteb_output():
            return collect_corpus_texts(_load_fresh_task(task, seed=seed, data=data), task.documents)

    def write_results(
        self, records: Sequence[Record], *, name: str, revision: str, folder: Path
    ) -> tuple[Path, ...]:
        """Write records as files of mteb's results (see suites._mteb.model)."""
        require_mteb()
        with hide_mteb_output():
            return write_results(records, name=name, revision=revision, folder=folder)


def _require_hub(info: TaskInfo, data: Path | None) -> None:
    """Refuse a task whose code always reads the hub, if its data is to come from a folder."""
    from huggingface_hub import constants

    if not info.fixed_data or data is None:
        return
    if constants.HF_HUB_OFFLINE or not data.is_relative_to(constants.HF_HUB_CACHE):
        raise DataError(
            f"mteb's code of {info.name} reads {info.path} from the hub by itself, not from {data}.",
            hint="It can be scored online only, and not with a data root that holds this data set.",
        )


def _list_revision_notes(info: TaskInfo, data: Data) -> tuple[str, ...]:
    """Notes on a result whose data set is not pinned to a commit."""
    if info.fixed_data:
        return (f"mteb reads {info.path} at the hub's newest revision: a change of it is not noticed.",)
    if info.on_a_branch and data.revision == info.revision:
        return (f"mteb pins {info.path} to the branch {info.revision}: a change of it is not noticed.",)
    return ()


def _load_fresh_task(task: Task, *, seed: int, data: Path | None) -> AbsTask:
    """A task object of mteb with its data, on which nothing has run yet."""

    def make() -> AbsTask:
        built = _build(task, seed=seed, data=data)
        with _wrap_load_errors(data, task):
            built.load_data()
            _require_subsets(built)
            # Data that a retrieval task's own code has loaded is put into mteb's present form.
            if hasattr(built, "convert_v1_dataset_format_to_v2"):
                built.convert_v1_dataset_format_to_v2(num_proc=None)
        if _is_own_retrieval(load_snapshot().find_task_info(task.name), task):
            _require_ids(built, data)
        return built

    return copy_loaded_task(task, (seed, data), make)


@contextmanager
def _wrap_load_errors(data: Path | None, task: Task) -> Iterator[None]:
    """Turn any error while a folder's data is loaded into one that names the folder and the first cause."""
    try:
        yield
    except HarnessError:
        raise
    except Exception as error:
        if data is None:
            if isinstance(error, ConnectionError):
                raise explain_unreachable(task.data.path, error) from error
            raise
        # The first cause: datasets wraps an error of a file in several of its own.
        cause: BaseException = error
        while cause.__cause__ is not None:
            cause = cause.__cause__
        message = (str(cause).strip().splitlines() or ["no message"])[0].rstrip(".")
        raise DataError(
            f"{data}: mteb cannot load {task.name}: {type(cause).__name__}: {message}.",
            hint=f"What it needs: harness data check DIR --suite mteb:{task.name}; see docs/data-root.md.",
        ) from error


def _require_subsets(task: AbsTask) -> None:
    """Refuse a merged table in which a scored subset has no row."""
    if snapshot.load_snapshot().find_task_info(task.metadata.name).loader != "merged":
        return
    lost = [subset for subset in task.hf_subsets if subset not in (task.dataset or ())]
    if lost:
        raise DataError(f"The data has no row of {task.metadata.name}'s subset {lost[0]}.")


def _is_own_retrieval(info: TaskInfo, task: Task) -> bool:
    """Whether a retrieval task's data is the user's own folder, which has to be checked."""
    return bool(task.data.content) and info.loader in ("parts", "coir")


def _require_ids(task: Any, data: Path | None) -> None:
    """Refuse a retrieval task whose ids repeat, or match no judgement: its scores would mean nothing."""
    for name, part in _iter_split_parts(task):
        for what, rows in _iter_raw_texts(task, name, part):
            twice = _find_ambiguous_id(rows)
            if twice:
                raise DataError(
                    f"{data}: {_format_task_cell(task, name)}: two texts in {what} have the id {twice!r}.",
                    hint="Ids must be unique, as judgements and results name texts by them.",
                )
        judged = _collect_judged_ids(part)
        if not judged["document"]:
            raise DataError(
                f"{data}: {_format_task_cell(task, name)} has no judgement.",
                hint="Its qrels need rows with a query's id, a document's id and a grade.",
            )
        for what, part_name in (("query", "queries"), ("document", "corpus")):
            if judged[what].isdisjoint(part[part_name]["id"]):
                raise DataError(
                    f"{data}: {_format_task_cell(task, name)}: no judged {what} is in {part_name}: "
                    f"{min(judged[what])!r} is not.",
                    hint=f"The judgements name a {what} by its _id in {part_name}.",
                )


def _iter_split_parts(task: Any) -> Iterator[tuple[tuple[str, str], Mapping[str, Any]]]:
    """The data of each (subset, split) of a retrieval task."""
    for subset, splits in task.dataset.items():
        for split, part in splits.items():
            yield (subset, split), part


def _format_task_cell(task: Any, cell: tuple[str, str]) -> str:
    subset, split = cell
    return f"{task.metadata.name} ({split}{'' if subset == 'default' else f', {subset}'})"


def _iter_raw_texts(
    task: Any, cell: tuple[str, str], part: Mapping[str, Any]
) -> Iterator[tuple[str, Dataset]]:
    """The documents and the queries as in the files; CoIR's own code keeps one row of each id."""
    from datasets import load_dataset

    is_coir = load_snapshot().find_task_info(task.metadata.name).loader == "coir"
    for what in ("corpus", "queries"):
        if is_coir:
            # CoIR's loader makes a dictionary by id, in which a second text has already replaced the first.
            rows = load_dataset(task.metadata.dataset["path"], f"{cell[0]}-{what}", split=what)
            yield what, rows.rename_column("_id", "id")
        else:
            yield what, part[what]


def _collect_judged_ids(part: Mapping[str, Any]) -> dict[str, set[str]]:
    """The ids of the judged queries and documents."""
    grades = part["relevant_docs"]
    return {"query": {*grades}, "document": {d for found in grades.values() for d in found}}


def _find_ambiguous_id(rows: Dataset) -> str:
    """An id of two rows with different texts; empty if every id has one text."""
    ids = rows["id"][:]
    if len(set(ids)) == len(ids):
        return ""
    texts_by_id: dict[str, tuple[Any, ...]] = {}
    for row in rows:
        text = (row.get("title"), row["text"])
        if texts_by_id.setdefault(row["id"], text) != text:
            return str(row["id"])
    return ""


def copy_loaded_task(planned: Task, more: tuple[object, ...], make: Callable[[], AbsTask]) -> AbsTask:
    """A copy of the task that `make` loads, with its random state right after loading; the last is cached."""
    identity = (planned, *more)
    if identity not in _loaded:
        # One at a time: the corpus of a retrieval task can fill the memory.
        _loaded.clear()
        task = make()
        if planned.limit is not None:
            limit_examples(task, planned.limit)
        task.dataset = _map_containers(task.dataset, _wrap_list_columns)
        _loaded[identity] = task
    return _copy_mteb_task(_loaded[identity])


def _build(task: Task, *, seed: int, data: Path | None) -> AbsTask:
    """mteb's task object, narrowed to the splits and subsets, with its data path in place."""
    with hold_collector():
        import mteb

    mteb_task = mteb.get_task(task.name, eval_splits=list(task.splits), hf_subsets=list(task.subsets))
    # mteb.get_task takes no seed, and 42 is mteb's own.
    if seed != 42:
        built = type(mteb_task)(seed=seed)
        built.filter_eval_splits(list(task.splits))
        built.hf_subsets = mteb_task.hf_subsets
        mteb_task = built
    if data is not None:
        where = {**mteb_task.metadata.dataset, "path": str(resolve_readable_folder(data))}
        mteb_task.metadata = mteb_task.metadata.model_copy(update={"dataset": where})
    return mteb_task


def _copy_mteb_task(task: AbsTask) -> AbsTask:
    """A copy that shares the data, but not the random state or the containers around the data."""
    twin = copy.copy(task)
    # A run draws from these: the next model has to get the same samples.
    twin.rng_state = copy.deepcopy(task.rng_state)
    twin.np_rng = copy.deepcopy(task.np_rng)
    twin.dataset = _map_containers(task.dataset, lambda data: data)
    return twin


def run_mteb_task(task: AbsTask, encoder: TextModel, documents: DocumentText = DOCUMENT_TEXT) -> Outcome:
    """Run a loaded task; gives its scores, examples and run."""
    import tempfile

    model = build_model(encoder, documents)
    scores: dict[str, dict[str, Mapping[str, Any]]] = {}
    together, run = is_parallel(task), Run(task)
    with tempfile.TemporaryDirectory() as folder:
        examples = Examples(task, model, Path(folder))
        for split in task.eval_splits:
            scores[split] = {}
            for subsets in [list(task.hf_subsets)] if together else [[s] for s in task.hf_subsets]:
                examples.prepare_subsets(split, subsets)
                results = task.evaluate(
                    model,
                    split,
                    # One subset a call, so that the rows and rankings of a subset can be taken before the
                    # next one.
                    subsets_to_run=subsets,
                    encode_kwargs={"batch_size": 32, "show_progress_bar": False},  # mteb's own size
                    prediction_folder=examples.folder,
                )
                scores[split].update({name: _convert_json_value(values) for name, values in results.items()})
                examples.add_subset_rows(split, subsets)
                run.add_rankings(model.found)
                # Otherwise the next subset would add these rankings again.
                model.found.clear()
    values = [subset["main_score"] for parts in scores.values() for subset in parts.values()]
    if None in values:
        raise DataError(
            f"{task.metadata.main_score} of {task.metadata.name} is not a number.",
            hint="A correlation needs two different values on each side: all similarities are the same, "
            "or all scores of the data.",
        )
    mean = sum(map(float, values)) / len(values)  # over all splits and subsets, as in mteb
    return Outcome(
        main_score=mean,
        scores=scores,
        examples=examples.columns,
        run=run.columns,
        facts={"dimension": model.dimension},
        notes=(*getattr(task, "notes", ()), *examples.notes),
    )


def _convert_json_value(value: Any) -> Any:
    """A value from task code in JSON's own types; NaN becomes None."""
    if isinstance(value, Mapping):
        return {str(k): _convert_json_value(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_convert_json_value(v) for v in value]
    if hasattr(value, "tolist"):
        return _convert_json_value(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def _map_containers(value: Any, change: Callable[[Any], Any], *, depth: int = 3) -> Any:
    """A task's data after `change`, in copies of the subsets, splits and parts that hold it."""
    if not depth or not isinstance(value, dict):
        return change(value)
    twin = copy.copy(value)
    twin.update({name: _map_containers(inner, change, depth=depth - 1) for name, inner in value.items()})
    return twin


def _wrap_list_columns(data: Any) -> Any:
    """The same data set with columns that come as lists; other data as it is."""
    from datasets import Dataset

    if not isinstance(data, Dataset):
        return data
    twin = copy.copy(data)
    twin.__class__ = _create_listed_class()
    return twin


@functools.cache
def _create_listed_class() -> type[Dataset]:
    from datasets import Dataset

    class Listed(Dataset):  # type: ignore[misc]
        """A data set that reads each column once; every access gives a list of its own."""

        def __getitem__(self, key: Any) -> Any:
            """A column by name, or rows."""
            if not isinstance(key, str):
                return super().__getitem__(key)
            columns = self.__dict__.setdefault("_lists", {})
            if key not in columns:
                # Since version 4 datasets gives a lazy column, which decodes at every access; mteb reads
                # columns often.
                columns[key] = super().__getitem__(key)[:]
            # A list of its own, as the caller may change it.
            return list(columns[key])

    return Listed


@contextmanager
def hide_mteb_output() -> Iterator[None]:
    """Hide mteb's own progress bars, log lines and warnings."""
    import logging
    import warnings

    loggers = [logging.getLogger(name) for name in ("mteb", "datasets")]
    levels = [logger.level for logger in loggers]
    try:
        for logger in loggers:
            logger.setLevel(logging.CRITICAL)
        with warnings.catch_warnings(), _hide_progress_bars():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


@contextmanager
def _hide_progress_bars() -> Iterator[None]:
    from tqdm.std import tqdm

    # Some bars of mteb and datasets cannot be turned off by an argument.
    bar: Any = tqdm
    shown = bar.__init__

    def hide_bar(self: Any, *args: Any, **options: Any) -> None:
        shown(self, *args, **{**options, "disable": True})

    bar.__init__ = hide_bar
    try:
        yield
    finally:
        bar.__init__ = shown


def format_scoring_version(rules: int = 1) -> str:
    """The scoring code's name and version, with the version of our own rules where it is not 1."""
    # Without "rules 1" the keys of results from before the number stay.
    name = f"mteb {load_snapshot().version}"
    return name if rules == 1 else f"{name}, rules {rules}"


def require_mteb() -> None:
    """Refuse to score with a version of mteb other than the snapshot's, which results name."""
    required, installed = load_snapshot().version, find_package_version("mteb")
    # Keys of results name this version, and another one may score otherwise.
    if installed != required:
        raise UsageError(
            f"mteb {required} is needed to score, and {installed or 'none'} is installed.",
            hint=f'Type: python -m pip install "mteb=={required}"',
        )


def build_benchmark_suite(name: str, *, called: str, options: SuiteOptions) -> Suite:
    """The benchmark `name` of mteb as a suite.

    Args:
        name: Its name in mteb, or an alias.
        called: The name of the suite.
        options: The options that narrow it.

    Raises:
        UsageError: No benchmark has this name, or nothing is left of any of its tasks.
    """
    info = snapshot.load_snapshot().find_benchmark(name)
    return build_task_suite(
        {use.name: use for use in info.tasks}, called=called, title=info.name, options=options
    )


def list_task_uses(name: str) -> dict[str, TaskUse]:
    """The tasks of a benchmark of mteb by name, as it uses them."""
    return {use.name: use for use in snapshot.load_snapshot().find_benchmark(name).tasks}


def build_full_use(name: str) -> TaskUse:
    """The use of all scored splits and subsets of a task of mteb."""
    info = snapshot.load_snapshot().find_task_info(name)
    return TaskUse(name=name, splits=info.splits, subsets=tuple(info.subsets))


def build_task_suite(
    uses: Mapping[str, TaskUse],
    *,
    called: str,
    title: str,
    options: SuiteOptions,
    shown_only: Mapping[str, str] = MappingProxyType({}),
    parts: bool = False,
) -> Suite:
    """The suite of a column for each task, or for each of several parts of a task, which is run once.

    Args:
        uses: The task, or the splits and subsets of it, that each column shows, by the columns' names.
        called: The name of the suite.
        title: The title of its tables.
        options: The options that narrow it.
        shown_only: The columns outside of the mean, each with the reason.
        parts: Whether the columns are parts of one task.

    Raises:
        UsageError: Nothing is left of any column.
    """
    _check_subsets(title, [_merge_uses([*uses.values()])] if parts else [*uses.values()], options.subsets)
    columns = tuple(
        replace(
            _try_task_column(use, options, name, within=use if parts else None),
            shown_only=shown_only.get(name, ""),
        )
        for name, use in uses.items()
    )
    # An error is about the columns that the user asked for, if any of them is left empty.
    selected_uses = _select_uses(uses, options)
    if not any(column.tasks for column in columns if column.name in selected_uses):
        selection = [*selected_uses.values()]
        if parts:
            every = _merge_uses(selection)
            _require_splits(
                " and ".join(selected_uses) if len(selected_uses) < len(uses) else title,
                [every],
                options.splits,
            )
            _build_task_column(every, options, within=every)  # raises the reason
        else:
            _require_splits(
                next(iter(selected_uses)) if len(selected_uses) == 1 else title, selection, options.splits
            )
            _build_task_column(selection[0], options)  # raises the reason
    return Suite(name=called, title=title, columns=columns)


def _select_uses(uses: Mapping[str, TaskUse], options: SuiteOptions) -> Mapping[str, TaskUse]:
    """The uses whose columns the options name; all where they name none of them."""
    return {name: use for name, use in uses.items() if {name, use.name} & {*options.tasks}} or uses


def _merge_uses(uses: Sequence[TaskUse]) -> TaskUse:
    """The use of all splits and subsets of several uses of a task."""
    splits = dict.fromkeys(split for use in uses for split in use.splits)
    subsets = dict.fromkeys(subset for use in uses for subset in use.subsets)
    return replace(uses[0], splits=tuple(splits), subsets=tuple(subsets))


def _require_splits(title: str, uses: Sequence[TaskUse], wanted: Sequence[str]) -> None:
    """Refuse a choice of splits that leaves no split of any task."""
    members = [
        member
        for use in uses
        for member in snapshot.load_snapshot().find_task_info(use.name).aggregate_of or (use,)
    ]
    valid_splits = dict.fromkeys(split for member in members for split in member.splits)
    if wanted and not valid_splits.keys() & set(wanted):
        raise explain_empty_selection(title, "split", wanted, [*valid_splits])


def _check_subsets(title: str, uses: Sequence[TaskUse], wanted: Sequence[str]) -> None:
    """Refuse the name of a subset that no task has."""
    if not wanted:
        return
    members = [
        member
        for use in uses
        for member in snapshot.load_snapshot().find_task_info(use.name).aggregate_of or (use,)
    ]
    valid_subsets = {subset for member in members for subset in member.subsets}
    for name in wanted:
        if name not in valid_subsets:
            raise explain_unknown(
                f"subset of {title}", name, valid_subsets, then="--subsets takes names of subsets."
            )


def _build_task_column(
    use: TaskUse, options: SuiteOptions, name: str = "", *, within: TaskUse | None = None
) -> Column:
    """A column: a task, or the members of an aggregate, which count once."""
    info = snapshot.load_snapshot().find_task_info(use.name)
    members = info.aggregate_of or (use,)
    tasks = tuple(_build_planned_task(member, options, within=within) for member in members)
    return Column(name=name or info.name, type=info.type, tasks=tasks)


def _try_task_column(
    use: TaskUse, options: SuiteOptions, name: str, *, within: TaskUse | None = None
) -> Column:
    try:
        return _build_task_column(use, options, name, within=within)
    # An empty column stays in the table; that all are empty is an error above.
    except UsageError:
        return Column(name=name, type=snapshot.load_snapshot().find_task_info(use.name).type, tasks=())


def _build_planned_task(use: TaskUse, options: SuiteOptions, *, within: TaskUse | None = None) -> Task:
    """A task; options choose among the splits and subsets of `within`, by default among all its splits."""
    info = snapshot.load_snapshot().find_task_info(use.name)
    within = within or TaskUse(name=info.name, splits=info.splits, subsets=use.subsets)
    splits, subsets = use.splits, use.subsets
    if options.languages or options.splits or options.subsets:
        if options.subsets:
            subsets = tuple(s for s in subsets if s in options.subsets)
            if not subsets:
                raise explain_empty_selection(info.name, "subset", options.subsets, use.subsets)
            within = replace(within, subsets=subsets)
        kept_splits, subsets = info.select_splits_and_subsets(
            options.languages, options.splits, within=within
        )
        # A choice of languages alone leaves a benchmark its own splits.
        splits = kept_splits if options.splits else splits
    return Task(
        name=info.name,
        type=info.type,
        metric=info.metric,
        splits=tuple(splits),
        subsets=tuple(subsets),
        data=Data(path=info.path, revision=info.revision),
        source=MtebSource(),
        roles=_resolve_roles(info),
        size=info.estimate_size(splits, subsets),
        query_length=_QUERY_LENGTHS.get(info.name),
    )


_QUERY_LENGTHS = {
    **dict.fromkeys(("SciFact", "TRECCOVID", "SCIDOCS"), 48),
    **dict.fromkeys(("ArguAna", "ClimateFEVER"), 64),
}
"""The tasks whose queries are longer than 32 tokens in PyLate's script for BEIR."""


def _resolve_roles(info: TaskInfo) -> tuple[Role, ...]:
    if info.abstask == "AbsTaskRetrieval":
        return SIDES
    return ROLES if info.roles else ("",)


def build_mteb_suite(name: str, *, called: str, options: SuiteOptions) -> Suite:
    """The benchmark or the single task `name` of mteb as a suite.

    Args:
        name: Its name in mteb, or an alias.
        called: The name of the suite.
        options: The options that narrow it.

    Raises:
        UsageError: The name is unknown, or the options leave nothing.
    """
    mteb_snapshot = snapshot.load_snapshot()
    if name in mteb_snapshot.tasks:
        return build_task_suite({name: build_full_use(name)}, called=called, title=name, options=options)
    if mteb_snapshot.resolve(name):
        return build_benchmark_suite(name, called=called, options=options)
    raise explain_unknown(
        "benchmark or task of mteb",
        name,
        [*mteb_snapshot.benchmark_rows, *mteb_snapshot.tasks],
        then="`harness list benchmarks` and `harness list tasks` show all.",
    )


def open_mteb_suite(argument: str, options: SuiteOptions) -> Suite:
    """The benchmark or task of mteb that a user names; MTEB(eng, v2) without a name."""
    if not argument:
        return build_benchmark_suite("MTEB(eng, v2)", called="mteb", options=options)
    return build_mteb_suite(argument, called=f"mteb:{argument}", options=options)


@functools.cache
def list_offers() -> tuple[Offer, ...]:
    """Every benchmark and task of mteb that a user can name."""
    mteb_snapshot = snapshot.load_snapshot()
    benchmarks = [
        Offer(kind="benchmark", name=name, facts={"tasks": len(mteb_snapshot.find_benchmark(name).tasks)})
        for name in mteb_snapshot.benchmarks
    ]
    return (
        *benchmarks,
        *(
            _build_task_offer(mteb_snapshot.find_task_info(name), mteb_snapshot.list_similar_tasks(name))
            for name in mteb_snapshot.tasks
        ),
    )


def _build_task_offer(info: TaskInfo, similar: tuple[str, ...]) -> Offer:
    languages = next(iter(info.subsets.values()), ()) if len(info.subsets) < 2 else ()
    facts = {"type": info.type, "metric": info.metric, "languages": languages, "splits": info.splits}
    more = {"subsets": len(info.subsets), "superseded_by": info.superseded_by}
    others = {"similar": similar} if similar else {}
    return Offer(kind="task", name=info.name, facts={**facts, **more, **others})
