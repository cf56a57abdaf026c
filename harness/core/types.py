"""The vocabulary of a run as frozen dataclasses; docs/architecture.md explains each word."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Protocol, TypeGuard, runtime_checkable

from harness.core.arguments import Folder, Form, Names, Option, split_names
from harness.core.errors import UsageError

# Only the types need numpy: imported for real it would slow down every command.
if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


def is_number(value: Any) -> TypeGuard[float]:
    """Whether a value is a number; True and False are not."""
    return isinstance(value, int | float) and not isinstance(value, bool)


Raw = Mapping[tuple[str, str], float]
"""(split, metric) → value, of one task."""


@dataclass(frozen=True, kw_only=True)
class Convention:
    """A paper's way to make one table of a suite, which a user names with --view.

    Attributes:
        name: As a user types it.
        says: The convention in words, and its source.
        parts: By task, the raw metrics (split, metric) whose mean is the task's number.
    """

    name: str
    says: str
    parts: Mapping[str, tuple[tuple[str, str], ...]]

    def compute_task_number(self, task: str, raw: Raw) -> float | None:
        """A task's number; None unless every one of its parts is there."""
        values = [raw.get(part) for part in self.parts[task]]
        present_values = [value for value in values if value is not None]
        return sum(present_values) / len(present_values) if len(present_values) == len(values) else None


Output = Literal["vector", "multivector", "ranking", "label", "mlm", "measured"]
"""The output of a model, and the output that a task needs; a "ranking" is an order of documents alone."""

Role = Literal["query", "document", ""]
"""The side of a task that a text belongs to; empty where a task has no sides."""

ROLES: tuple[Role, ...] = ("query", "document", "")

SIDES: tuple[Role, ...] = ("query", "document")
"""The two sides of a retrieval task."""

Dtype = Literal["float32", "bfloat16", "float16"]

DTYPES: dict[str, Dtype] = {
    "float32": "float32",
    "fp32": "float32",
    "bfloat16": "bfloat16",
    "bf16": "bfloat16",
    "float16": "float16",
    "fp16": "float16",
}
"""The spellings of a precision that a user may type."""

Similarity = Literal["cosine", "dot", "euclidean", "manhattan", "maxsim", "maxsim-pylate"]
"""The comparison of two texts: of their vectors, or by MaxSim of the vectors of their tokens.

MaxSim is the sum over the query's tokens of the best dot product with a token of the document. As PyLate has
it, that best one is not below 0 where a longer document is compared at the same time.
"""

MAXSIM: tuple[Similarity, ...] = ("maxsim", "maxsim-pylate")
"""The comparisons of texts that have a vector for each token."""

LOWER_IS_BETTER = frozenset({"perplexity"})
"""The metrics of which a lower value is better."""

OWN_UNITS = frozenset({"perplexity", "tokens_per_second"})
"""The metrics of measured tasks, which are no shares of 1: tables have them in their own unit."""

SUBQUERIES = "max_over_subqueries_"
"""The start of the name of a metric over subqueries, each document by the best of its query's."""


DocumentText = Literal["title and text", "text"]
"""The text of a document: title, blank and text, as in mteb, or the text alone, as in CoIR."""

DOCUMENT_TEXT: DocumentText = "title and text"
"""The text of a document unless a suite or a user says otherwise."""

Purpose = Literal["final", "trial"]
"""A trial (a grid cell, a sweep member, a probe) never enters a table."""

SEED = 42
"""The default seed of samples and probes, the same as mteb's."""


CHARACTERS_PER_TOKEN, SPECIAL_TOKENS = 4.0, 3
"""Assumed where only the characters of texts are known."""


@dataclass(frozen=True, kw_only=True)
class Artifact:
    """A model that is ready to be loaded: its folder and the key of its content.

    `key` is the ArtifactKey, `weights` the weights' hash, `revision` a hub commit, `source` the text that was
    typed; `allow` are the names of what the user accepts. `recorded` is its name in records, where `name`
    tells it from another model of the same request. The key of a `trained` model is that of its lineage: it
    has no weights before its training, and other ones after another. BM25 has neither folder nor weights, and
    the key of its settings.
    """

    name: str
    source: str
    folder: Path
    key: str
    weights: str
    revision: str | None = None
    trust_remote_code: bool = False
    allow: tuple[str, ...] = ()
    trained: bool = False
    recorded: str = ""

    @property
    def slug(self) -> str:
        """The readable folder name of this artifact's records: its name and the key's start."""
        return build_artifact_slug(self.recorded or self.name, self.key)


def build_artifact_slug(name: str, key: str) -> str:
    """The readable folder name of an artifact.

    >>> build_artifact_slug("org/a model", "0123456789abcdef")
    'org-a-model-0123456789ab'
    """
    safe = "".join(c if c.isalnum() or c in "-._" else "-" for c in name)
    # A leading dot would hide the folder, and a leading dash would look like an option in a shell.
    return f"{safe.strip('.-') or 'model'}-{key[:12]}"


@dataclass(frozen=True, kw_only=True)
class Data:
    """The data of a task: a hub data set `org/name` at a pinned `revision`, or a `content` hash."""

    path: str = ""
    revision: str = ""
    content: str = ""


@dataclass(frozen=True, kw_only=True)
class Size:
    """The amount of text to encode in a task, where it is known before loading, and of scored examples."""

    texts: int | None = None
    characters: int | None = None
    examples: int | None = None

    def most_tokens(self, longest: int) -> int:
        """The tokens of the texts, at most, where none has more than `longest`; 0 where nothing is known.

        >>> Size(texts=10, characters=400).most_tokens(256), Size(texts=10).most_tokens(256)
        (130, 2560)
        """
        texts = self.texts or 0
        if self.characters is None:
            return texts * longest
        return min(texts * longest, round(self.characters / CHARACTERS_PER_TOKEN) + SPECIAL_TOKENS * texts)


@dataclass(frozen=True, kw_only=True)
class DataTable:
    """A table of a hub data set that a task reads.

    Attributes:
        config: The names that its configuration may have, the usual one first; none for the default one.
        splits: The splits that are read; with `lone_split` the only split of a data set stands for any.
        texts: Columns of text, each by the names that it may have.
        values: Further columns, likewise.
        lists: Whether each row holds a list of texts, and one of values.
        train: The split among these whose rows a classifier is trained on; empty without one.
        part: What it is in a retrieval task; empty in any other.
    """

    config: tuple[str, ...]
    splits: tuple[str, ...]
    texts: tuple[tuple[str, ...], ...] = ()
    values: tuple[tuple[str, ...], ...] = ()
    lists: bool = False
    lone_split: bool = False
    train: str = ""
    part: Literal["", "judgements", "documents", "queries"] = ""


@dataclass(frozen=True, kw_only=True)
class DataReport:
    """What was counted in the data of a task.

    Attributes:
        counts: Numbers by name, as in a record (results/README.md).
        gaps: What is missing of the data that is declared, a sentence each; refused unless that is allowed.
        faults: What no task can be scored with, likewise; always refused.
        notes: Further sentences for the record.
    """

    counts: Mapping[str, int] = field(default_factory=dict)
    gaps: tuple[str, ...] = ()
    faults: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@runtime_checkable
class TextRanker(Protocol):
    """A model that puts documents in an order for a query, without a vector for each text."""

    @property
    def titles_on_lines(self) -> bool:
        """Whether a document is its title, a line break and its text, and not as for other models."""
        ...

    def rank(
        self,
        queries: Sequence[str],
        documents: Sequence[str],
        *,
        k: int,
        language: str = "",
        candidates: Sequence[Sequence[int]] | None = None,
    ) -> Sequence[tuple[NDArray[np.int64], NDArray[np.float32]]]:
        """The best `k` documents of each query, or all if there are fewer, best first.

        Args:
            queries: Their texts.
            documents: Their texts.
            k: The number of documents for a query.
            language: That of the texts (ISO 639-3), empty where it is not known.
            candidates: For each query the places of the only documents to be put in order, all of them.

        Returns:
            For each query the places of documents in `documents`, and their scores.
        """
        ...


class TextEncoder(Protocol):
    """The view of a model that a task has while it is scored."""

    @property
    def similarity(self) -> Similarity:
        """The function that compares two vectors of this model."""
        ...

    def require(self, texts: Sequence[str], *, role: Role) -> None:
        """Announce texts that will be encoded later, perhaps in blocks."""
        ...

    def encode(self, texts: Sequence[str], *, role: Role) -> NDArray[np.float32]:
        """The vectors of `texts` on side `role`, shape (len(texts), dimension), float32."""
        ...


Scores = Mapping[str, Mapping[str, Mapping[str, Any]]]
"""split → subset → metric → value, as the task's code gives it."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The outcome of scoring a task.

    `examples` are columns as in harness.storage.record.EXAMPLE_COLUMNS, `run` as in RUN_COLUMNS; both may
    be empty. `data` are numbers that were counted in the data, and `facts` what else a measured task tells,
    both for the record.
    """

    main_score: float
    scores: Scores
    examples: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    run: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    data: Mapping[str, int] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)


class TaskSource(Protocol):
    """The origin of a task and its scoring code: a small picklable object of a suite."""

    @property
    def scoring(self) -> str:
        """Name and version of the code that scores, e.g. "mteb 2.26.24"; part of the identity."""
        ...


@runtime_checkable
class TableSource(Protocol):
    """A source that knows the tables of the hub data set that its tasks read."""

    def list_data_tables(self, task: Task) -> tuple[DataTable, ...]:
        """The tables that `task` reads; none where its own code decides."""
        ...

    def estimate_size(self, task: Task) -> Size:
        """The size of the texts to encode in the splits and subsets of `task`; empty where it is unknown."""
        ...


@runtime_checkable
class CorpusSource(Protocol):
    """A source that knows the texts of its tasks before they are encoded."""

    def corpus(self, task: Task, *, seed: int, data: Path | None) -> Sequence[Any] | None:
        """The texts of a task: its documents, else all its texts; None where its code does not name them.

        Rows that are no text are among them. Arguments as in `VectorSource.evaluate`.
        """
        ...


@runtime_checkable
class FileSource(Protocol):
    """A source of a user's own files, which can be read before a run."""

    def measure(self, task: Task, *, cache: Path) -> Size:
        """The size of the task's data, which is read and checked; `cache` keeps that of unchanged files.

        Raises:
            DataError: The data cannot be scored; the message names file and line.
        """
        ...


@runtime_checkable
class CountedSource(Protocol):
    """A source of a user's own files that counts what is odd in them."""

    def count_data(self, task: Task, *, cache: Path) -> DataReport:
        """What was counted in the task's data; arguments and errors as of `FileSource.measure`."""
        ...


@dataclass(frozen=True, kw_only=True)
class ObjectEncoder:
    """An encoder that is an object in Python, of mteb's EncoderProtocol: its own code encodes."""

    output: Output = "vector"
    encoder: Any = field(compare=False)


TextModel = TextEncoder | TextRanker | ObjectEncoder
"""A finished model as a task sees it; a ranker is for retrieval alone, an object for mteb's own code."""


@runtime_checkable
class VectorSource(TaskSource, Protocol):
    """The source of a task that is scored from a finished model's vectors, or from its order of documents."""

    def evaluate(self, task: Task, encoder: TextModel, *, seed: int, data: Path | None) -> Outcome:
        """Score `encoder` on `task`; `data` is the data set's local folder, None to load from the hub.

        Task objects are built again at every call, so no state carries over from one model to the next.
        """
        ...


@dataclass(frozen=True, kw_only=True)
class MeasuredModel:
    """A model as a measured task has it, whose source loads and runs it.

    Attributes:
        artifact: The model, whose folder is there.
        dtype: The precision to run it in.
        encoding: Its other settings (harness.core.encoding.Encoding), for a source that does not call `load`.
        device: The device in torch's words.
        load: Loads a new harness.encoder.engine.Encoder of it; picklable.
        batch_tokens: The user's bound of the tokens that are computed at once; None for the source's own.
        work: A folder that keeps what is finished, from which a killed measurement goes on.
        announce: Called with the number of steps to come.
        count: Called with a number of steps that are done.
        tell: Called with a sentence for the user; what the record shall say belongs into the outcome.
    """

    artifact: Artifact
    dtype: Dtype
    encoding: Any = None
    device: str
    load: Callable[[], Any]
    batch_tokens: int | None = None
    work: Path
    announce: Callable[[int], None]
    count: Callable[[int], None]
    tell: Callable[[str], None]


@runtime_checkable
class MeasuredSource(TaskSource, Protocol):
    """The source of a task that loads and runs the model itself: a small picklable object.

    Its metric is a share of 1, or one of OWN_UNITS, which is shown as it is and whose columns are in no mean
    (`Column.shown_only`).
    """

    @property
    def per_machine(self) -> bool:
        """Whether a result is of a machine, which is then a part of its identity and of its condition."""
        ...

    def find_model_problem(self, task: Task, artifact: Artifact, dtype: Dtype) -> str:
        """The reason why a model cannot be measured, by its files and without torch; empty if it can."""
        ...

    def estimate_tokens(self, task: Task) -> int | None:
        """The tokens that the model computes for the task, padding included; None where nothing tells."""
        ...

    def measure_model(self, task: Task, model: MeasuredModel, *, seed: int, data: Path | None) -> Outcome:
        """Measure a model; `Outcome.facts` go into the record. Raises a HarnessError with what to do next."""
        ...


@runtime_checkable
class LengthSource(Protocol):
    """A measured source whose texts all have as many tokens, which a model must take."""

    @property
    def length(self) -> int:
        """The tokens of each text, special ones included."""
        ...


@runtime_checkable
class CutSource(Protocol):
    """A measured source that cuts texts at the model's longest one, which is then a part of the identity."""

    @property
    def cuts_texts(self) -> bool:
        """Whether it does."""
        ...


@dataclass(frozen=True, kw_only=True)
class Task:
    """One scored data set; its source is a LabelSource, a MeasuredSource, or of other outputs a VectorSource.

    `roles` are the sides of its texts; only the prompts of these sides are part of a result's identity.
    `documents` is the text of a document, in retrieval tasks. `query_length` are the tokens of a query where
    each token has a vector, None for the model's own. `limit` is the number of examples of each split and
    subset that are scored for a quick look, None for all.
    """

    name: str
    type: str
    metric: str
    splits: tuple[str, ...]
    subsets: tuple[str, ...] = ("default",)
    data: Data
    source: VectorSource | LabelSource | MeasuredSource
    output: Output = "vector"
    roles: tuple[Role, ...] = ROLES
    size: Size = Size()
    documents: DocumentText = DOCUMENT_TEXT
    query_length: int | None = None
    limit: int | None = None

    @property
    def limited_size(self) -> Size:
        """The size of the texts to encode; of a limit about two an example.

        It is the whole one where the limit leaves most of them: the documents of a search, and the texts that
        a classifier is trained on.
        """
        trains = self.type in ("Classification", "MultilabelClassification", "Regression")
        if self.limit is None or self.retrieves or trains or not self.size.texts:
            return self.size
        share = min(1.0, 2 * self.limit * len(self.cells) / self.size.texts)
        return Size(
            texts=round(share * self.size.texts),
            characters=None if self.size.characters is None else round(share * self.size.characters),
        )

    @property
    def takes_token_vectors(self) -> bool:
        """Whether a model with a vector for each token can be scored."""
        return self.retrieves or isinstance(self.source, CutSource)

    @property
    def retrieves(self) -> bool:
        """Whether it searches documents for queries, or puts given ones in order."""
        return self.roles == SIDES

    @property
    def cells(self) -> tuple[tuple[str, str], ...]:
        """Every scored (split, subset)."""
        return tuple((split, subset) for split in self.splits for subset in self.subsets)


def _merge_tasks(first: Task, second: Task) -> Task:
    """A task with the splits and subsets of both, which are the same task of different columns."""
    task = replace(
        first,
        splits=tuple(dict.fromkeys((*first.splits, *second.splits))),
        subsets=tuple(dict.fromkeys((*first.subsets, *second.subsets))),
        # Parts of a task may share texts, such as a corpus: their sizes cannot be added.
        size=Size(),
    )
    source = task.source
    return replace(task, size=source.estimate_size(task)) if isinstance(source, TableSource) else task


@dataclass(frozen=True, kw_only=True)
class Column:
    """A column of a table: a task, several that count once (their mean), or none after narrowing.

    Two columns may have the same task with other splits or subsets: it is run once, and each shows its part.
    `shown_only` is the reason why it is outside of the means of the suite; empty for the columns in them.
    """

    name: str
    type: str
    tasks: tuple[Task, ...]
    shown_only: str = ""


@dataclass(frozen=True, kw_only=True)
class Predicted:
    """A benchmark's mean predicted from the scores of a few tasks, as shares of 1.

    `low` and `high` bound a `level` interval that is cross-validated over `families` of models. `outside`
    names the tasks whose scores lie outside the range of the fit, and the target where the prediction itself
    does; the prediction is then unreliable.
    """

    target: str
    value: float
    low: float
    high: float
    level: float
    families: int
    outside: tuple[str, ...] = ()


class Predictor(Protocol):
    """A predictor of a benchmark's mean from the scores of a suite's tasks."""

    @property
    def target(self) -> str:
        """The title of the benchmark."""
        ...

    @property
    def tasks(self) -> tuple[str, ...]:
        """The tasks whose scores the prediction needs."""
        ...

    def predict(self, scores: Mapping[str, float]) -> Predicted | None:
        """The prediction from main scores by task, shares of 1; None if a score is missing."""
        ...


@dataclass(frozen=True, kw_only=True)
class Suite:
    """An ordered list of columns with the aggregates over them; `predictor` belongs to a proxy suite.

    `conventions` are the papers' ways to a task's number by name; without them it is the main score. The
    means of a benchmark are over all columns, those of own data ("large") over its large tasks alone.
    `requested` are the columns that were asked for by name where these are not the whole suite.
    """

    name: str
    title: str
    columns: tuple[Column, ...]
    notes: tuple[str, ...] = ()
    conventions: Mapping[str, Convention] = field(default_factory=dict)
    predictor: Predictor | None = None
    averages: Literal["all", "large"] = "all"
    requested: tuple[str, ...] = ()

    @property
    def heading(self) -> str:
        """The title of a table, with the number of tasks that were asked for by name."""
        if not self.requested:
            return self.title
        count = "1 task" if len(self.requested) == 1 else f"{len(self.requested)} tasks"
        if len(self.requested) < len(self.columns):
            count = f"{len(self.requested)} of the {len(self.columns)} tasks"
        return f"{count} of {self.title}"

    @property
    def unit(self) -> str:
        """What stands behind the heading of a table: how its numbers are shown."""
        if any(task.metric in LOWER_IS_BETTER for task in self.tasks):
            return "as measured, lower is better"
        return "as measured" if any(task.output == "measured" for task in self.tasks) else "scores × 100"

    @property
    def tasks(self) -> tuple[Task, ...]:
        """Every task once, in the order of the columns, with the splits and subsets of all its columns."""
        tasks_by_name: dict[str, Task] = {}
        for task in (task for column in self.columns for task in column.tasks):
            before = tasks_by_name.get(task.name, task)
            tasks_by_name[task.name] = before if before == task else _merge_tasks(before, task)
        return tuple(tasks_by_name.values())

    @property
    def parts(self) -> Mapping[str, Task]:
        """The columns that show some splits or subsets of a task, which other columns have more of."""
        whole_tasks = {task.name: task for task in self.tasks}
        return {c.name: t for c in self.columns for t in c.tasks if t.cells != whole_tasks[t.name].cells}

    def with_documents(self, documents: DocumentText) -> Suite:
        """The suite whose retrieval tasks put a document's text together in this way."""
        return self._change_tasks(lambda task: replace(task, documents=documents) if task.retrieves else task)

    def with_limit(self, limit: int) -> Suite:
        """The suite whose tasks have at most so many examples in each split and subset.

        Raises:
            UsageError: A recipe trains for one of its tasks.
        """
        labelled = [task.name for task in self.tasks if task.output == "label"]
        if labelled:
            raise UsageError(
                f"--limit is for tasks that are scored from vectors, and a recipe trains for {labelled[0]}.",
                hint="Leave it out; `--recipe glue-quick` is a short training.",
            )
        note = (
            f"TRIAL: at most {limit} examples of each split and subset. These scores are in no other table; "
            "do not compare them with those of whole tasks."
        )
        limited = self._change_tasks(lambda task: replace(task, limit=limit))
        return replace(limited, title=f"{self.title} (trial)", notes=(note, *self.notes), predictor=None)

    def _change_tasks(self, change: Callable[[Task], Task]) -> Suite:
        columns = (replace(one, tasks=tuple(map(change, one.tasks))) for one in self.columns)
        return replace(self, columns=tuple(columns))

    @property
    def left_out(self) -> tuple[str, ...]:
        """The names of the columns that have no task left."""
        return tuple(c.name for c in self.columns if not c.tasks)


def _require_task_named(value: Any) -> Any:
    """The same value, unless it is a text without a name: a run of all tasks would be the costly mistake."""
    if isinstance(value, str) and not split_names(value):
        raise UsageError("tasks is empty.", hint="Name tasks, e.g. RTE,MRPC, or leave it out.")
    return value


@dataclass(frozen=True, kw_only=True)
class SuiteOptions:
    """The options that narrow a suite; an empty option leaves the suite as it is.

    `tasks` are names of columns, `subsets` names of subsets of tasks, such as `en-en`; `cache` and `results`
    are folders, None for the defaults.
    """

    tasks: Annotated[
        Names,
        Form(read=_require_task_named),
        Option(
            "Only these tasks, e.g. RTE,MRPC. type:STS stands for all of a type of the suite.",
            unset=None,
            group="What",
        ),
    ] = ()
    languages: Annotated[
        Names, Option("Only these languages of multilingual tasks, e.g. eng or eng-Latn,deu.", group="What")
    ] = ()
    subsets: Annotated[
        Names, Option("Only these subsets of tasks, by the data set's own names, e.g. en-en.", group="What")
    ] = ()
    splits: Annotated[Names, Option("Only these splits, e.g. test.", group="What")] = ()
    cache: Folder | None = None
    results: Folder | None = None


@dataclass(frozen=True, kw_only=True)
class Offer:
    """A possible argument of a suite, with its facts for a list."""

    kind: Literal["task", "benchmark"]
    name: str
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class SuiteEntry:
    """A suite in the catalog, the `SUITE` of a file in suites/; a user types `name` or `name:argument`.

    `argument` describes the argument, `alone` is whether it may be left out, and `offers` lists its values.
    `measured` is whether its tasks have a MeasuredSource: their numbers have no table on the site.
    """

    name: str
    summary: str
    open: Callable[[str, SuiteOptions], Suite]
    argument: str = ""
    alone: bool = True
    measured: bool = False
    offers: Callable[[], Sequence[Offer]] = tuple


REGRESSION = 1
"""The number of classes of a task whose labels are numbers."""


@dataclass(frozen=True, kw_only=True)
class LabelledSplit:
    """Rows with labels.

    Attributes:
        texts: One or two columns of sentences, in the order in which a model reads them.
        labels: (rows,) numbers of classes from 0 on, or numbers.
        ids: (rows,) the data's own id of each row, else its index.
    """

    texts: tuple[Sequence[str], ...]
    labels: Sequence[float]
    ids: Sequence[str]

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True, kw_only=True)
class LabelledData:
    """The labelled data of a task.

    Attributes:
        train: The rows to train on.
        dev: The rows to score on, by split: those of the task's splits that the data has.
        classes: The number of classes; REGRESSION where labels are numbers.
        notes: Sentences on rows or splits that the data lacks.
        names: The names of the classes in the order of their numbers; none where labels are numbers.
        test: Rows whose labels are hidden, and here 0, by split.
    """

    train: LabelledSplit
    dev: Mapping[str, LabelledSplit]
    classes: int
    notes: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    test: Mapping[str, LabelledSplit] = field(default_factory=dict)


@runtime_checkable
class LabelSource(TaskSource, Protocol):
    """The source of a task that a model is trained for: a small picklable object."""

    @property
    def metrics(self) -> tuple[str, ...]:
        """Names in `harness.results.weighted_metrics.METRICS`; early stopping watches the first."""
        ...

    @property
    def like(self) -> str:
        """The task whose settings in a recipe apply to this task: itself, if a recipe knows it."""
        ...

    @property
    def from_mnli(self) -> bool | None:
        """Whether training starts from a recipe's MNLI model; None leaves that to the recipe."""
        ...

    def load(self, task: Task, *, data: Path | None) -> LabelledData:
        """The rows of a task.

        Args:
            task: The task whose splits are read.
            data: The local folder of the data set, or None to load from the hub.

        Raises:
            DataError: There are no rows to train on, or none to score on.
        """
        ...
