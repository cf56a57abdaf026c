"""Names of models in tables: where several models have one name, each gets what tells it from the others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from harness.storage.record import Record


@dataclass(frozen=True, kw_only=True)
class NamedModel:
    """A model's name, with what tells it from another model of the same name.

    Attributes:
        name: Fit for a table.
        key: What is the same for one model alone: its ArtifactKey, or of a training the group of its seeds.
        folder: The end of its folder's path; empty where that is not known.
        revision: The pinned commit of a hub model.
        shared: Whether any model may have the name, as that of a folder, and not only this one.
    """

    name: str
    key: str
    folder: str = ""
    revision: str = ""
    shared: bool = True

    @staticmethod
    def from_fields(
        name: str, source: str, artifact: str, *, folder: str | None, revision: str | None, group: str | None
    ) -> NamedModel:
        """The model of a record by the record's fields; `group` is that of the seeds of its training."""
        return NamedModel(
            name=name,
            key=group or artifact,
            folder=folder or "",
            revision=revision or "",
            shared=source == "local" or group is not None,
        )

    @property
    def labels(self) -> list[str]:
        """The names that may tell it from others, the best first.

        >>> NamedModel(name="final", key="0123456789", folder="runs/exp1/final").labels
        ['exp1/final', 'runs/exp1/final', 'final (01234567)', 'final (0123456789)']
        """
        parts = self.folder.split("/")
        # A model that was given a name is not called by its path.
        ends = range(len(parts) - 2, -1, -1) if parts[-1] == self.name else range(0)
        revisions = [f"{self.name}@{self.revision[:8]}"] if self.revision else []
        paths = ["/".join(parts[end:]) for end in ends]
        return [*paths, *revisions, f"{self.name} ({self.key[:8]})", f"{self.name} ({self.key})"]


def distinguish_names(models: Iterable[NamedModel]) -> dict[tuple[str, str], str]:
    """A name for each model by its key and its present name, which no other of the models has.

    Of models with one name a folder gets as much of its path as tells it from the others, a hub model its
    revision, and any other the start of its key. A name that is one model's own, as in the catalog, stays.
    """
    # Of several records of a model the newest that knows its folder counts.
    known = {(one.key, one.name): one for one in sorted(models, key=lambda one: bool(one.folder))}
    names: dict[str, list[NamedModel]] = {}
    for model in known.values():
        names.setdefault(model.name, []).append(model)
    labels = {place: model.name for place, model in known.items()}
    for name, alike in names.items():
        if len(alike) == 1:
            continue
        owners = [model for model in alike if not model.shared]
        counts = Counter(label for model in alike for label in model.labels)
        for model in alike:
            if [model] != owners:
                free = (one for one in model.labels if counts[one] == 1 and one not in names)
                labels[model.key, name] = next(free, name)
    return labels


def rename_record(record: Record, name: str) -> Record:
    """The record with another name of its model."""
    if record.model.name == name:
        return record
    return record.model_copy(update={"model": record.model.model_copy(update={"name": name})})
