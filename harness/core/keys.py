"""Keys: the hashes that tell whether work is already done; and the lineages of trained models.

A key is the SHA-256 of canonical JSON and covers only the request; the circumstances of a run are provenance.
A field that is added later is left out at its default, so that old keys stay valid.

A trained model's key is known before it is trained: it is the digest of the recipe with every setting, the
keys of the models it starts from, its data and the seed. `model.json` holds the lineage, the key and the hash
of the folder's content; if its key does not follow from its lineage, or the content has changed, it counts
for nothing.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass, replace
from dataclasses import Field as DataclassField
from pathlib import Path
from typing import Any

from pydantic import Field, model_validator

from harness.core.documents import DocumentKind, DocumentPart
from harness.core.encoding import AnyEncoding, ContextDraw, Encoding, Plaid, Ranking
from harness.core.errors import RecordError
from harness.core.terminal import shorten_names
from harness.core.types import DOCUMENT_TEXT, SEED, Artifact, CutSource, Data, MeasuredSource, Task

ALWAYS = frozenset({"output", "dtype", "similarity"})
"""Original fields, which are written even at their default."""


class AlwaysHashed:
    """A dataclass with every field in the key, but for `metadata={"later": True}` at its default.

    A Ranking, the settings of an index and the draw of a context are written in the same way.
    """


def serialize_canonical(value: Any) -> str:
    """Canonical JSON: sorted keys, no spaces, UTF-8, no NaN; dataclasses become objects.

    >>> serialize_canonical({"b": 1, "a": (2.0, None)})
    '{"a":[2.0,null],"b":1}'
    """
    return json.dumps(
        _serialize_plain(value), sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )


def digest(value: Any) -> str:
    """The key of a value: the SHA-256 of its canonical JSON, 64 hex digits."""
    return hashlib.sha256(serialize_canonical(value).encode()).hexdigest()


def build_evaluation_identity(
    artifact: Artifact,
    task: Task,
    encoding: AnyEncoding,
    *,
    seed: int,
    machine: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Everything that a score depends on; its digest is the EvaluationKey.

    Only the prompts that are applied count, and lengths of queries and documents or an index that are the
    task's own.

    Args:
        artifact: The model.
        task: The task, with the revision or content of its data.
        encoding: The model's own encoding or ranking, not yet adapted to the task.
        seed: The seed of samples and probes.
        machine: The machine (`provenance.describe_machine`), which counts where the task measures it.
    """
    if isinstance(encoding, Encoding):
        encoding = encoding.choose_document_length(task)
    prompts = {
        role: encoding.resolve_prompt(task, role) if isinstance(encoding, Encoding) else ""
        for role in task.roles
    }
    return {
        **build_task_identity(artifact, task),
        "encoding": _build_task_encoding(encoding, task),
        "prompts": prompts,
        # What is no figure of a machine draws by the hashes of its texts.
        "seed": seed if task.output != "measured" or is_per_machine(task) else SEED,
        **_collect_task_settings(encoding, task),
        **({"machine": machine} if is_per_machine(task) else {}),
    }


def _build_task_encoding(encoding: AnyEncoding, task: Task) -> dict[str, Any]:
    """The encoding, or what a task reads of it that runs the model itself: dtype and scaling of positions."""
    how = build_encoding_identity(encoding)
    if task.output != "measured":
        return how
    cuts = "rope_scaling" in how or isinstance(task.source, CutSource)
    names = ("dtype", "rope_scaling", *(["max_length"] if cuts else []))
    return {"output": task.output, **{name: how[name] for name in names if name in how}}


def is_per_machine(task: Task) -> bool:
    """Whether the scores of a task are those of a machine."""
    return isinstance(task.source, MeasuredSource) and task.source.per_machine


def _collect_task_settings(encoding: AnyEncoding, task: Task) -> dict[str, Any]:
    """The settings of an encoding on a task that are not the model's: a length of queries, an index."""
    if not isinstance(encoding, Encoding) or encoding.late_interaction is None:
        return {}
    task_encoding = encoding.adapt_encoding(task)
    assert task_encoding.late_interaction is not None
    length = task_encoding.late_interaction.query_length
    return {
        # Each only where the task changes it, as the model's own length and index are in "encoding" already.
        **({"query_length": length} if length != encoding.late_interaction.query_length else {}),
        **({"index": _serialize_plain(task_encoding.index)} if task_encoding.index != encoding.index else {}),
    }


def build_task_identity(artifact: Artifact, task: Task) -> dict[str, Any]:
    """The identity's fields that every score has: model, task, data and scoring code."""
    return {
        "artifact": artifact.key,
        "task": task.name,
        "data": build_data_identity(task.data),
        # Sorted, as the order in which splits and subsets are named changes no score.
        "splits": sorted(task.splits),
        "subsets": sorted(task.subsets),
        "scoring": task.source.scoring,
        # Newer than the first records: left out at the default, so that their keys stay valid.
        **({"documents": task.documents} if task.documents != DOCUMENT_TEXT else {}),
        **({} if task.limit is None else {"limit": task.limit}),
    }


def build_data_identity(data: Data) -> dict[str, Any]:
    """The data in an identity: path, and revision or content."""
    identity: dict[str, Any] = _serialize_plain(data)
    return identity


def is_of_object(identity: Mapping[str, Any]) -> bool:
    """Whether the identity of an evaluation is of an encoder in memory: no setting of it is known."""
    return identity.get("encoding") == {"output": "vector"}


def build_encoding_identity(encoding: AnyEncoding) -> dict[str, Any]:
    """An encoding without its prompts, choice of a search and longer documents, which depend on the task.

    Of a ranking every setting.
    """
    if isinstance(encoding, Encoding):
        encoding = replace(encoding, prompts=(), default_prompt=None, exact=False, document_lengths=())
    how: dict[str, Any] = _serialize_plain(encoding)
    return how


_PLAIN = (str, bool, int, float, type(None))


def _serialize_plain(value: Any) -> Any:
    # First, as most values are: each record that is read has a hundred.
    if isinstance(value, _PLAIN):
        return value
    # Keys of JSON are texts; two keys that differ only in their type would be one here.
    if isinstance(value, Mapping):
        return {str(k): _serialize_plain(v) for k, v in value.items()}
    if is_dataclass(value) and not isinstance(value, type):
        return {
            f.name: _serialize_plain(getattr(value, f.name)) for f in fields(value) if _is_written(value, f)
        }
    if isinstance(value, list | tuple):
        return [_serialize_plain(v) for v in value]
    if isinstance(value, set | frozenset):
        return sorted(_serialize_plain(v) for v in value)
    if isinstance(value, Path):
        raise TypeError("a path is where something lies, not what it is: hash its content")
    raise TypeError(f"a key cannot hold a {type(value).__name__}")


def _is_written(value: Any, field: DataclassField[Any]) -> bool:
    """Whether a field of a dataclass is in the key."""
    # An object in memory, of which no content is known.
    if not field.compare:
        return False
    has_every_field = isinstance(value, AlwaysHashed | Ranking | Plaid | ContextDraw)
    if field.name in ALWAYS or (has_every_field and not field.metadata.get("later")):
        return True
    default = field.default if field.default_factory is MISSING else field.default_factory()
    return bool(getattr(value, field.name) != default)


MODEL_FILE = "model.json"
"""The name of the document in a model's folder."""


class _SelectionPart(DocumentPart):
    """A task, or some splits and subsets of one, whose score chose a model."""

    name: str
    """That of the task, or of the column that shows the part."""
    task: str
    splits: tuple[str, ...] = ()
    """Empty for all, as are `subsets`."""
    subsets: tuple[str, ...] = ()

    def has_overlap(self, task: str, splits: Sequence[str], subsets: Sequence[str]) -> bool:
        """Whether some split and subset of a task is among those that chose; none given are all."""
        pairs = ((self.splits, splits), (self.subsets, subsets))
        return self.task == task and all(not a or not b or not set(a).isdisjoint(b) for a, b in pairs)


class ParentPart(DocumentPart):
    """A model that a training starts from."""

    name: str
    artifact: str
    """Its ArtifactKey."""
    revision: str | None = None
    own_data: str = ""
    """The names of users' own data that it and its own parents were trained on."""
    selected_on: tuple[str, ...] = ()
    """The tasks whose scores chose it among others, or one of its own parents."""
    selections: tuple[_SelectionPart, ...] = ()
    """The splits and subsets of those tasks; a task without an entry chose as a whole."""

    @staticmethod
    def of(artifact: Artifact, planned: Lineage | None = None) -> ParentPart:
        """A model that a training starts from.

        Args:
            artifact: The model; its `model.json` says what it was trained on itself.
            planned: Its lineage, if it may not be trained yet.
        """
        document = read_document(artifact.folder) if artifact.trained and planned is None else None
        lineage = planned if document is None else document.lineage
        return ParentPart(
            name=artifact.name,
            artifact=artifact.key,
            revision=artifact.revision,
            own_data=lineage.all_own_data if lineage else "",
            selected_on=lineage.all_selected_on if lineage else (),
            selections=lineage.all_selections if lineage else (),
        )

    @property
    def all_selections(self) -> tuple[_SelectionPart, ...]:
        """Everything whose scores chose it or one of its own parents."""
        named = {one.name for one in self.selections}
        return (
            *self.selections,
            *_select_whole_tasks([task for task in self.selected_on if task not in named]),
        )

    @property
    def text(self) -> str:
        """The name, with the user's own data that the model was trained on."""
        return f"{self.name} (trained on {self.own_data})" if self.own_data else self.name


def list_swept_settings(setting: str, value: Any) -> dict[str, Any]:
    """The swept settings of a member by name, from the names and the value that a sweep has.

    >>> list_swept_settings("scale", 20), list_swept_settings("scale, epochs", {"epochs": 3, "scale": 20})
    ({'scale': 20}, {'scale': 20, 'epochs': 3})
    """
    names = setting.split(", ")
    return {name: value[name] for name in names} if len(names) > 1 else {setting: value}


def format_swept_settings(setting: str, value: Any) -> str:
    """The swept settings of a member with their values."""
    return ", ".join(f"{name}={one}" for name, one in list_swept_settings(setting, value).items())


class MemberPart(DocumentPart):
    """One of the models that a sweep chose from."""

    value: Any
    """Its value of the setting; of several settings their values by name."""
    artifact: str
    """Its ArtifactKey."""
    scores: Mapping[str, float]
    """Its main score on each task of the selection; none where its training diverged."""
    mean: float | None
    """Their mean, by which the choice was made; None where its training diverged."""


class SweepPart(DocumentPart):
    """The sweep of a setting, or of several; the model is its best member."""

    setting: str
    """The name of the setting, of several joined by ", "; it is not among the settings of the lineage."""
    values: tuple[Any, ...]
    """That of each member, in order; of several settings a mapping of their names to values."""
    tasks: Mapping[str, Mapping[str, Any]]
    """By the name of its column, the identity of each task whose score chose, without a model."""
    chosen: Any = None
    """The value of the chosen member; None until the choice is made, and no part of the key."""
    curve: tuple[MemberPart, ...] = ()
    """Every member with its scores; empty until the choice is made, and no part of the key."""

    @model_validator(mode="after")
    def _check_parts(self) -> SweepPart:
        # Building the selections validates them, so that a bad identity is found when the document is read.
        assert self.selections is not None
        values = [*self.values, *(member.value for member in self.curve), *[self.chosen][: len(self.curve)]]
        assert len(self.names) == 1 or all(
            isinstance(value, Mapping) and value.keys() == {*self.names} for value in values
        ), "a member has not a value of each setting"
        return self

    @property
    def selections(self) -> tuple[_SelectionPart, ...]:
        """The tasks, or parts of them, whose scores chose."""
        # The task of an identity, and its splits and subsets where it has them.
        names = ("task", "splits", "subsets")
        return tuple(
            _SelectionPart.model_validate(
                {"task": name, **{n: identity[n] for n in names if n in identity}, "name": name}
            )
            for name, identity in self.tasks.items()
        )

    @property
    def names(self) -> tuple[str, ...]:
        """The settings that are swept."""
        return tuple(self.setting.split(", "))

    @property
    def grid(self) -> dict[str, tuple[Any, ...]]:
        """The values of each setting, each once, in order."""
        members = [list_swept_settings(self.setting, value) for value in self.values]
        lists = {name: [member[name] for member in members] for name in self.names}
        return {name: tuple(v for at, v in enumerate(vs) if v not in vs[:at]) for name, vs in lists.items()}

    @property
    def count_text(self) -> str:
        """The number of members in words."""
        return f"{len(self.values)} {'combinations' if len(self.names) > 1 else 'values'}"

    @property
    def identity(self) -> dict[str, Any]:
        """What is known of the sweep before the choice."""
        return {"setting": self.setting, "values": self.values, "tasks": self.tasks}

    @property
    def text(self) -> str:
        """The setting with its chosen value, or with all of them before the choice."""
        if self.curve:
            return f"{format_swept_settings(self.setting, self.chosen)} of {self.count_text}"
        several = len(self.names) > 1
        return f"{self.setting} among {self.count_text if several else ', '.join(map(str, self.values))}"


class Lineage(DocumentPart):
    """Everything that a trained model was made of."""

    recipe: str
    """The recipe's name, without a variant."""
    variant: str = ""
    """The variant that a user typed; the settings say what it means."""
    source: str = ""
    """The section of the paper."""
    settings: Mapping[str, Any]
    """Every setting of the recipe."""
    changed: Mapping[str, Any] = {}
    """The settings that a user changed."""
    parents: tuple[ParentPart, ...]
    data: tuple[Mapping[str, Any], ...]
    """The identities of the training data."""
    seed: int
    assumed: tuple[str, ...] = ()
    """What the paper leaves open, and the reading that was taken."""
    selected_on: tuple[str, ...] = ()
    """The tasks whose scores chose among checkpoints."""
    own_data: str = ""
    """The name of the user's own training data; empty for the recipe's."""
    sweep: SweepPart | None = None
    """The sweep that chose the model from several; None for a model that is trained alone."""

    @property
    def key(self) -> str:
        """The ArtifactKey of the model."""
        return digest(
            {
                "recipe": self.recipe,
                "settings": self.settings,
                "parents": [parent.artifact for parent in self.parents],
                "data": self.data,
                "seed": self.seed,
                # Left out without a sweep, so that models of before sweeps keep their keys.
                **({"sweep": self.sweep.identity} if self.sweep is not None else {}),
            }
        )

    @property
    def group(self) -> str:
        """The digest of everything but the seed: models that share it differ in nothing else."""
        # Any fixed seed would do: the digest only has to be the same for all seeds.
        return self.model_copy(update={"seed": 0}).key

    @property
    def all_own_data(self) -> str:
        """The names of users' own data that the model and its parents were trained on, each once."""
        names = (self.own_data, *(parent.own_data for parent in self.parents))
        return ", ".join(dict.fromkeys(filter(None, names)))

    @property
    def beside_own_data(self) -> str:
        """In words, the data of the recipe that the model was trained on besides the user's own."""
        names = [part["name"] for part in self.settings.get("mix", ()) if part["name"]]
        return f"and of the recipe's data on {shorten_names(names)}" if names else "not on the recipe's data"

    @property
    def all_selected_on(self) -> tuple[str, ...]:
        """The names of the tasks whose scores chose the model or one of its parents, each once."""
        return tuple(dict.fromkeys(one.name for one in self.all_selections))

    @property
    def all_selections(self) -> tuple[_SelectionPart, ...]:
        """Everything whose scores chose the model or one of its parents, each once."""
        return tuple(dict.fromkeys(one for selections in self.selections.values() for one in selections))

    @property
    def selections(self) -> dict[str, tuple[_SelectionPart, ...]]:
        """What the scores of tasks chose, in words, with those tasks: a checkpoint, a setting, a parent."""
        tasks_by_choice = {"checkpoint": _select_whole_tasks(self.selected_on)}
        if self.sweep is not None:
            tasks_by_choice[f"{self.sweep.setting} among {self.sweep.count_text}"] = self.sweep.selections
        tasks_by_choice |= {f"{parent.name}, the parent": parent.all_selections for parent in self.parents}
        return {what: selections for what, selections in tasks_by_choice.items() if selections}

    @property
    def choices(self) -> dict[str, tuple[str, ...]]:
        """What the scores of tasks chose, in words, with the names of those tasks."""
        return {what: tuple(one.name for one in by) for what, by in self.selections.items()}

    def chosen_by(self, task: str, splits: Sequence[str], subsets: Sequence[str]) -> list[str]:
        """In words, what the score on some splits and subsets of a task chose.

        Args:
            task: The name of the task.
            splits: Its splits; none for all.
            subsets: Its subsets; none for all.
        """
        selections = self.selections.items()
        return [what for what, by in selections if any(one.has_overlap(task, splits, subsets) for one in by)]

    @property
    def choices_text(self) -> str:
        """In words, the choices that scores made, each with its tasks; empty if there were none."""
        return "; ".join(f"{what} chosen by {', '.join(names)}" for what, names in self.choices.items())

    @property
    def name(self) -> str:
        """The recipe with its variant, as a user types it."""
        return f"{self.recipe}:{self.variant}" if self.variant else self.recipe

    @property
    def text(self) -> str:
        """The recipe with its variant, the changed settings and own data, in a few words."""
        changed = [f"{key}={value}" for key, value in self.changed.items()]
        swept = [self.sweep.text] if self.sweep is not None else []
        own_data = [f"trained on {self.own_data}"] if self.own_data else []
        return ", ".join([self.name, *changed, *swept, *own_data])


def _select_whole_tasks(tasks: Sequence[str]) -> tuple[_SelectionPart, ...]:
    """The selections by whole tasks of these names."""
    return tuple(_SelectionPart(name=task, task=task) for task in tasks)


class ModelDocument(DocumentPart):
    """The `model.json` of a trained model."""

    schema_version: int = Field(default=2, alias="schema")
    name: str
    """A name fit for a table."""
    key: str
    """The ArtifactKey: that of the lineage."""
    content: str
    """The hash of the folder's content."""
    weights: str
    """The hash of the weights alone."""
    lineage: Lineage
    training: Mapping[str, Any] = {}
    """The circumstances of the training: steps, seconds, device, versions, notes."""

    def to_json(self) -> str:
        """The document as indented JSON, its last field the digest of all others."""
        return MODEL_DOCUMENTS.serialize_document(self)


MODEL_DOCUMENTS = DocumentKind(
    name="model document",
    type=ModelDocument,
    schema=2,
    # Schema 2 added a lineage's sweep and a parent's selections, which have defaults.
    migrations={1: lambda document: document},
    hint="Train the model again, or remove model.json: the folder is then a model like any other.",
    digest_since=1,
    find_problem=lambda model: (
        "" if model.key == model.lineage.key else "its key does not follow from its lineage"
    ),
)


def read_document(folder: Path) -> ModelDocument | None:
    """The `model.json` of a folder; None without one, or where its key does not follow from its lineage.

    Whether the folder's content is still that of the document is for the caller to compare.
    """
    path = folder / MODEL_FILE
    try:
        # Without a model.json that can be believed the folder is a model like any other, whose key is the
        # hash of its content: no score is mixed up.
        return MODEL_DOCUMENTS.read_document_file(path) if os.path.isfile(path) else None
    except RecordError:
        return None
