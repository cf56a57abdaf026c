"""The sources that mteb's own code scores: tasks of mteb, and data that we build or read ourselves.

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
from typing import TYPE_CHECKING, Any, Protocol

from harness.core.errors import DataError, HarnessError, UsageError
from harness.core.process import hold_collector
from harness.core.provenance import find_package_version
from harness.core.types import DOCUMENT_TEXT, Data, DataTable, DocumentText, Outcome, Size, Task, TextModel
from harness.data.locate import explain_unreachable
from harness.data.schema import resolve_readable_folder
from harness.storage.record import Record
from suites._content import Clusters, Content, Labelled, Pairs, Retrieval
from suites._mteb import snapshot
from suites._mteb.examples import Examples, Run, is_parallel, limit_examples
from suites._mteb.model import build_model, collect_corpus_texts, write_results
from suites._mteb.snapshot import TaskInfo, load_snapshot

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
        return _format_scoring_version()

    def list_data_tables(self, task: Task) -> tuple[DataTable, ...]:
        """The tables that the task reads (see harness.core.types.TableSource)."""
        return load_snapshot().find_task_info(task.name).list_data_tables(task.splits, task.subsets)

    def estimate_size(self, task: Task) -> Size:
        """The size of the texts to encode (see harness.core.types.TableSource)."""
        return load_snapshot().find_task_info(task.name).estimate_size(task.splits, task.subsets)

    def evaluate(self, task: Task, encoder: TextModel, *, seed: int, data: Path | None) -> Outcome:
        """Score `encoder` on the mteb task of this name (see harness.core.types.TaskSource)."""
        _require()
        info = snapshot.load_snapshot().find_task_info(task.name)
        _require_hub(info, data)
        with _hide_mteb_output():
            mteb_task = _load_fresh_task(task, seed=seed, data=data)
            outcome = _run_mteb_task(mteb_task, encoder, task.documents)
        return replace(outcome, notes=(*outcome.notes, *_list_revision_notes(info, task.data)))

    def corpus(self, task: Task, *, seed: int, data: Path | None) -> list[Any] | None:
        """The texts of the task (see harness.core.types.CorpusSource)."""
        _require()
        _require_hub(snapshot.load_snapshot().find_task_info(task.name), data)
        with _hide_mteb_output():
            return collect_corpus_texts(_load_fresh_task(task, seed=seed, data=data), task.documents)

    def write_results(
        self, records: Sequence[Record], *, name: str, revision: str, folder: Path
    ) -> tuple[Path, ...]:
        """Write records as files of mteb's results (see suites._mteb.model)."""
        _require()
        with _hide_mteb_output():
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

    return _copy_loaded_task(task, (seed, data), make)


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


def _copy_loaded_task(planned: Task, more: tuple[object, ...], make: Callable[[], AbsTask]) -> AbsTask:
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


def _run_mteb_task(task: AbsTask, encoder: TextModel, documents: DocumentText = DOCUMENT_TEXT) -> Outcome:
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


DRAWS = 10
"""Repetitions of a clustering on drawn texts, as in mteb."""

RULES = 1
"""The version of our rules, raised when a change gives other scores with the same mteb and data."""


class _Loader(Protocol):
    """A loader of a task's data; small, picklable and hashable."""

    def content(self) -> Content:
        """The data, checked."""
        ...


@dataclass(frozen=True, kw_only=True)
class BuiltSource:
    """The source of data that a loader gives, scored under mteb's rules for its kind."""

    loader: _Loader

    @property
    def scoring(self) -> str:
        """The scoring code's name and version."""
        return _format_scoring_version(RULES)

    def evaluate(self, task: Task, encoder: TextModel, *, seed: int, data: Path | None) -> Outcome:
        """Score `encoder` on the loader's data (see harness.core.types.TaskSource)."""
        _require()
        with _hide_mteb_output():
            return _run_mteb_task(self.build_mteb_task(task, seed=seed), encoder, task.documents)

    def corpus(self, task: Task, *, seed: int, data: Path | None) -> list[Any] | None:
        """The texts of the task (see harness.core.types.CorpusSource)."""
        _require()
        with _hide_mteb_output():
            return collect_corpus_texts(self.build_mteb_task(task, seed=seed), task.documents)

    def build_mteb_task(self, task: Task, *, seed: int) -> AbsTask:
        """The task object of mteb that is scored: it holds the loader's content, and nothing has run on it.

        Args:
            task: The task.
            seed: The seed of the samples that mteb draws.
        """
        return _copy_loaded_task(
            task, (seed,), lambda: _build_content_task(task, self.loader.content(), seed=seed)
        )


def _build_content_task(task: Task, content: Content, *, seed: int) -> AbsTask:
    """An mteb task object that holds `content`, ready to be scored."""
    from datasets import Dataset, DatasetDict
    from mteb.abstasks import AbsTaskClassification, AbsTaskClustering, AbsTaskRetrieval, AbsTaskSTS

    make, split = functools.partial(_make, task, seed), task.splits[0]
    match content:
        case Retrieval():
            corpus = [{"id": d.id, "title": d.title, "text": d.text} for d in content.documents]
            part = {
                "corpus": Dataset.from_list(corpus),
                "queries": Dataset.from_list([{"id": q.id, "text": q.text} for q in content.queries]),
                "relevant_docs": {query: dict(grades) for query, grades in content.qrels.items()},
                "top_ranked": None,
            }
            rules = {"ignore_identical_ids": content.ignore_identical_ids, "notes": content.notes}
            return make(AbsTaskRetrieval, {"default": {split: part}}, **rules)
        case Pairs():
            pairs = [
                {"id": r.id, "sentence1": r.text1, "sentence2": r.text2, "score": r.score}
                for r in content.rows
            ]
            scores = [row.score for row in content.rows]
            data = DatasetDict({split: Dataset.from_list(pairs)})
            return make(AbsTaskSTS, data, min_score=min(scores), max_score=max(scores))
        case Labelled():
            # Labels become numbers in text order, as mteb cannot score two words.
            names = sorted({row.label for row in content.train})
            number = {name: place for place, name in enumerate(names)}
            data = DatasetDict(
                {
                    name: Dataset.from_list(
                        [{"id": r.id, "text": r.text, "label": number[r.label]} for r in rows]
                    )
                    for name, rows in {"train": content.train, split: content.test}.items()
                }
            )
            return make(AbsTaskClassification, data, label_names=names)
        case Clusters():
            texts = [{"id": r.id, "sentences": r.text, "labels": r.label} for r in content.rows]
            return make(
                AbsTaskClustering,
                DatasetDict({split: Dataset.from_list(texts)}),
                # mteb's default, 4 % of the texts, is made for very large sets.
                max_fraction_of_documents_to_embed=None,
                # 16,384 is mteb's own number.
                max_documents_per_cluster=min(len(content.rows), 16_384),
                n_clusters=DRAWS,
            )


def _make(task: Task, seed: int, base: Any, data: dict[str, Any], **attributes: Any) -> AbsTask:
    """An instance of a new subclass of an mteb task class, with its data."""
    from mteb.abstasks.task_metadata import TaskMetadata

    metadata = TaskMetadata(
        name=task.name,
        description=task.name,
        reference=None,
        dataset={"path": "built/here", "revision": task.data.content},
        type=task.type,  # type: ignore[arg-type]
        category="t2t" if task.type in ("Retrieval", "STS") else "t2c",
        modalities=["text"],
        eval_splits=list(task.splits),
        eval_langs=["eng-Latn"],
        main_score=task.metric,
    )
    mteb_task: AbsTask = type(base.__name__, (base,), {"metadata": metadata, **attributes})(seed=seed)
    mteb_task.dataset = data
    mteb_task.data_loaded = True
    return mteb_task


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
def _hide_mteb_output() -> Iterator[None]:
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


def _format_scoring_version(rules: int = 1) -> str:
    """The scoring code's name and version, with the version of our own rules where it is not 1."""
    # Without "rules 1" the keys of results from before the number stay.
    name = f"mteb {load_snapshot().version}"
    return name if rules == 1 else f"{name}, rules {rules}"


def _require() -> None:
    """Refuse to score with a version of mteb other than the snapshot's, which results name."""
    required, installed = load_snapshot().version, find_package_version("mteb")
    # Keys of results name this version, and another one may score otherwise.
    if installed != required:
        raise UsageError(
            f"mteb {required} is needed to score, and {installed or 'none'} is installed.",
            hint=f'Type: python -m pip install "mteb=={required}"',
        )
