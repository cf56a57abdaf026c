"""The vocabulary: Artifact, Encoding, Settings, Task, Suite, Column, Convention, labelled data.

The vocabulary of a run, as frozen dataclasses (docs/architecture.md explains each word).

Tasks that a model is trained for: their rows with labels, and where those come from.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


Raw = Mapping[tuple[str, str], float]
"""(split, metric) → value, of one task."""


@dataclass(frozen=True, kw_only=True)
class Convention:
    """How a paper puts a suite into one table: what a user names with --view.

    Attributes:
        name: What a user types.
        says: The convention, and where it is from.
        parts: Of each task, the raw metrics whose mean is its number: (split, metric).
    """

    name: str
    says: str
    parts: Mapping[str, tuple[tuple[str, str], ...]]

    def number(self, task: str, raw: Raw) -> float | None:
        """A task's number; None unless all that it is made of is there."""
        found = [raw.get(part) for part in self.parts[task]]
        known = [value for value in found if value is not None]
        return sum(known) / len(known) if len(known) == len(found) else None


Output = Literal["vector", "multivector", "label", "mlm"]
"""What a model gives and a task needs."""

Role = Literal["query", "document", ""]
"""The side of a task a text stands on; empty where a task has no sides."""

ROLES: tuple[Role, ...] = ("query", "document", "")

SIDES: tuple[Role, ...] = ("query", "document")
"""The roles of a task that searches."""

Dtype = Literal["float32", "bfloat16", "float16"]

DTYPES: dict[str, Dtype] = {
    "float32": "float32",
    "fp32": "float32",
    "bfloat16": "bfloat16",
    "bf16": "bfloat16",
    "float16": "float16",
    "fp16": "float16",
}
"""What may be typed for a precision."""

Similarity = Literal["cosine", "dot", "euclidean", "manhattan"]

Purpose = Literal["final", "trial"]
"""A trial (a grid cell, a sweep member, a probe) never enters a table."""


SEED = 42
"""The seed of samples and probes unless another is asked for: mteb's own."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How a model is to be evaluated, as asked for; None means the model's own default."""

    dtype: Dtype = "float32"
    pooling: str | None = None
    normalize: bool | None = None
    max_length: int | None = None
    similarity: Similarity | None = None
    prompts: Mapping[str, str] | None = None
    seed: int = SEED


@dataclass(frozen=True, kw_only=True)
class Encoding:
    """How a model turns text into vectors, every default filled in: part of a result's identity.

    `max_length` counts tokens, special ones included; of a model with a tower for each side it is
    the longer one. `prompts` are the model's named prompts with the asked-for ones over them,
    sorted by name, an empty text standing for none; `default_prompt` names the one that stands in
    where no name matches a task.
    """

    output: Output = "vector"
    dtype: Dtype = "float32"
    pooling: str
    normalize: bool
    max_length: int
    similarity: Similarity = "cosine"
    prompts: tuple[tuple[str, str], ...] = ()
    default_prompt: str | None = None

    def prompt(self, task: Task, role: Role) -> str:
        """The text put before each input of `task` on side `role`, empty if none.

        The order of names is the one sentence-transformers models are evaluated with in mteb:
        task and role, task, type and role, type, role, then the model's default.
        """
        return prompt_for(task, role, dict(self.prompts), self.default_prompt)


def prompt_for(task: Task, role: Role, named: Mapping[str, str], default: str | None) -> str:
    """Which of the prompts in `named` is put before inputs of `task` (see `Encoding.prompt`)."""
    sided = [f"{task.name}-{role}", task.name, f"{task.type}-{role}", task.type, role]
    names = sided if role else [task.name, task.type]
    return next((named[n] for n in (*names, default) if n is not None and n in named), "")


@dataclass(frozen=True, kw_only=True)
class Artifact:
    """A model ready to be loaded: where it lies, and the key its content has.

    `key` is the ArtifactKey; `weights` the hash of the weights alone; `revision` the pinned
    commit of a hub model. `source` is what the user typed; `name` is fit for a table.
    """

    name: str
    source: str
    folder: Path
    key: str
    weights: str
    revision: str | None = None
    trust_remote_code: bool = False

    @property
    def slug(self) -> str:
        """The readable folder name of this artifact's records: its name and the key's start."""
        safe = "".join(c if c.isalnum() or c in "-._" else "-" for c in self.name)
        return f"{safe.strip('.-') or 'model'}-{self.key[:12]}"


@dataclass(frozen=True, kw_only=True)
class Data:
    """The data of a task: a hub data set at a pinned revision, or a content hash.

    `path` is `org/name` for hub data (empty for data that is built or local), `revision` the
    pinned commit, `content` the hash of what lies on disk; one of the two last is set.
    """

    path: str = ""
    revision: str = ""
    content: str = ""


@dataclass(frozen=True, kw_only=True)
class Size:
    """How much there is to encode in a task, where it is known before loading."""

    texts: int | None = None
    characters: int | None = None


class TextEncoder(Protocol):
    """What a task sees of a model while it is being scored."""

    @property
    def similarity(self) -> Similarity:
        """The function that compares two vectors of this model."""
        ...

    def require(self, texts: Sequence[str], *, role: Role) -> None:
        """Announce texts whose vectors will be asked for, perhaps in blocks."""
        ...

    def encode(self, texts: Sequence[str], *, role: Role) -> NDArray[np.float32]:
        """The vectors of `texts` on side `role`, shape (len(texts), dimension), float32."""
        ...


Scores = Mapping[str, Mapping[str, Mapping[str, Any]]]
"""split → subset → metric → value, as the task code printed it."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What scoring a task gives.

    `examples` maps the columns of the per-example file (harness.record.EXAMPLE_COLUMNS) to
    lists of equal length. `notes` say in sentences what was left out of the data.
    """

    main_score: float
    scores: Scores
    examples: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


class TaskSource(Protocol):
    """Where a task comes from and how it is scored: a small picklable object of a suite."""

    @property
    def scoring(self) -> str:
        """Name and version of the code that scores, e.g. "mteb 2.26.24"; part of the identity."""
        ...


@runtime_checkable
class VectorSource(TaskSource, Protocol):
    """The source of a task that is scored from a finished model's vectors."""

    def evaluate(self, task: Task, encoder: TextEncoder, *, seed: int, data: Path | None) -> Outcome:
        """Score `encoder` on `task`.

        `data` is the local folder that holds the task's data set, or None to load from the hub.
        Task objects are built fresh at every call, so nothing carries over between two models.
        """
        ...


@dataclass(frozen=True, kw_only=True)
class Task:
    """One scored data set.

    `roles` are the sides its texts can stand on; only their prompts are part of a result's identity.
    A task whose output is "label" has a LabelSource (harness.types), any other a VectorSource.
    """

    name: str
    type: str
    metric: str
    splits: tuple[str, ...]
    subsets: tuple[str, ...] = ("default",)
    data: Data
    source: VectorSource | LabelSource
    output: Output = "vector"
    roles: tuple[Role, ...] = ROLES
    size: Size = Size()


@dataclass(frozen=True, kw_only=True)
class Column:
    """One column of a suite's table: a task, or several tasks that count once (their mean).

    It has no tasks where the suite was narrowed to languages or splits that this column lacks.
    """

    name: str
    type: str
    tasks: tuple[Task, ...]


@dataclass(frozen=True, kw_only=True)
class Predicted:
    """What a few tasks say of the mean of a whole benchmark, shares of 1.

    `low` and `high` are the bounds of a `level` interval, cross-validated over `families` of
    models. `outside` names the tasks whose scores lie outside of those that the prediction was
    fitted on, and the target where the prediction itself does: there it says little.
    """

    target: str
    value: float
    low: float
    high: float
    level: float
    families: int
    outside: tuple[str, ...] = ()


class Predictor(Protocol):
    """Predicts the mean of a benchmark from the scores of a suite's tasks."""

    @property
    def target(self) -> str:
        """The title of the benchmark."""
        ...

    @property
    def tasks(self) -> tuple[str, ...]:
        """The tasks whose scores it needs."""
        ...

    def predict(self, scores: Mapping[str, float]) -> Predicted | None:
        """The prediction from main scores by task, shares of 1; None if one of them is missing."""
        ...


@dataclass(frozen=True, kw_only=True)
class Suite:
    """An ordered list of columns with the aggregates over them.

    `conventions` are the papers' ways to make one number of a task's raw metrics, by name; where
    there are none, a task's number is its main score. `predictor` is that of a proxy.
    """

    name: str
    title: str
    columns: tuple[Column, ...]
    notes: tuple[str, ...] = ()
    conventions: Mapping[str, Convention] = field(default_factory=dict)
    predictor: Predictor | None = None

    @property
    def tasks(self) -> tuple[Task, ...]:
        """Every task once, in the order of the columns."""
        return tuple({t.name: t for c in self.columns for t in c.tasks}.values())

    @property
    def left_out(self) -> tuple[str, ...]:
        """The names of the columns of which nothing is left."""
        return tuple(c.name for c in self.columns if not c.tasks)


@dataclass(frozen=True, kw_only=True)
class SuiteOptions:
    """What a user may narrow a suite down to; empty means the suite's own choice.

    `tasks` are names of columns. `cache` is where a suite may keep what it builds, `results` the
    results folder; None for the user's own.
    """

    tasks: tuple[str, ...] = ()
    languages: tuple[str, ...] = ()
    splits: tuple[str, ...] = ()
    cache: Path | None = None
    results: Path | None = None


@dataclass(frozen=True, kw_only=True)
class Offer:
    """One thing that may stand as a suite's argument, with its facts for a list."""

    kind: Literal["task", "benchmark"]
    name: str
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class SuiteEntry:
    """A suite as the catalog lists it: one module-level `SUITE` in a file of suites/.

    A suite is asked for as `name`, or as `name:argument` where `argument` says what may stand
    there; `alone` is whether it can be asked for without one. `offers` lists the arguments there
    are, where they are a closed list.
    """

    name: str
    summary: str
    open: Callable[[str, SuiteOptions], Suite]
    argument: str = ""
    alone: bool = True
    offers: Callable[[], Sequence[Offer]] = tuple


REGRESSION = 1
"""Classes of a task whose labels are numbers."""


@dataclass(frozen=True, kw_only=True)
class LabelledSplit:
    """Rows with labels.

    Attributes:
        texts: One or two columns of sentences, in the order in which a model reads them.
        labels: (rows,) numbers of classes from 0 on, or numbers.
        ids: (rows,) the data's own id of each row, else its place.
    """

    texts: tuple[Sequence[str], ...]
    labels: Sequence[float]
    ids: Sequence[str]

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True, kw_only=True)
class LabelledData:
    """The data of a task.

    Attributes:
        train: To train on.
        dev: To score on: those of the task's splits that the data has, by name.
        classes: How many there are; REGRESSION where labels are numbers.
        notes: What the data lacks, in sentences.
    """

    train: LabelledSplit
    dev: Mapping[str, LabelledSplit]
    classes: int
    notes: tuple[str, ...] = ()


@runtime_checkable
class LabelSource(TaskSource, Protocol):
    """The source of a task that a model is trained for: a small picklable object."""

    @property
    def metrics(self) -> tuple[str, ...]:
        """Names in `harness.metrics.METRICS`; early stopping watches the first."""
        ...

    @property
    def like(self) -> str:
        """The task whose settings in a recipe hold for this one: itself, if a recipe knows it."""
        ...

    @property
    def from_mnli(self) -> bool | None:
        """Whether it starts from a recipe's MNLI model; None for what the recipe says."""
        ...

    def load(self, task: Task, *, data: Path | None) -> LabelledData:
        """The rows of a task.

        Args:
            task: Whose splits are wanted.
            data: The local folder that holds the data set, or None to load from the hub.

        Raises:
            DataError: There are no rows to train on, or none to score on.
        """
        ...
