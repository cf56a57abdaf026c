"""The description of a user's own data: a folder in BEIR layout, or with a harness.toml.

docs/local-data.md describes the layout. Only the description is read here; every error names file and task.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from harness.core.errors import DataError, UsageError, ask_for_names, explain_unknown
from harness.core.files import hash_file, require_plain_name, require_size
from harness.core.keys import digest
from harness.data.tables import FORMATS, explain_file_error
from suites.glue import TASKS

DESCRIPTION = "harness.toml"

LARGEST = 2**20
"""The most bytes of a description."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_QRELS_FORMATS = (*FORMATS, ".txt", ".qrels", ".trec")


def _read_beir_tasks(folder: Path) -> tuple[LocalTask, ...]:
    splits = _list_qrels_splits(folder / "qrels")
    for split in splits:
        require_plain_name(split, "the name of a split", hint=f"Rename its file in {folder / 'qrels'}.")
    missing = [name for name in ("corpus.jsonl", "queries.jsonl") if not (folder / name).is_file()]
    missing += [] if splits else ["qrels/test.tsv"]
    if missing:
        raise UsageError(
            f"{folder} holds no {DESCRIPTION}, and for the BEIR layout it lacks {', '.join(missing)}.",
            hint=GUIDE,
        )
    # BEIR's folders often have the judgements to train on beside those of the test.
    splits = [s for s in splits if s != "train"] or splits
    base = _default_name(folder)
    return tuple(
        LocalTask(
            name=base if splits == ["test"] else f"{base}-{split}",
            type="retrieval",
            split=split,
            files=(folder / "corpus.jsonl", folder / "queries.jsonl", folder / "qrels" / f"{split}.tsv"),
        )
        for split in splits
    )


def _list_qrels_splits(folder: Path) -> list[str]:
    names = os.listdir(folder) if folder.is_dir() else []
    return sorted(Path(n).stem for n in names if n.endswith(".tsv") and not n.startswith("."))


def _read_description(folder: Path) -> tuple[LocalTask, ...]:
    path = folder / DESCRIPTION
    try:
        require_size(path, LARGEST)
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise UsageError(f"{path} is not valid TOML: {error}.", hint=GUIDE) from None
    _require_valid_keys(content, ("task",), f"{path}:", "key")
    tables = content.get("task")
    if not isinstance(tables, list) or not tables or not all(isinstance(t, dict) for t in tables):
        raise UsageError(f"{path} describes no task.", hint=f"Each starts with a line [[task]]. {GUIDE}")
    return tuple(
        _parse_task_table(folder, table, f"{path}: task {n}:") for n, table in enumerate(tables, start=1)
    )


def _parse_task_table(folder: Path, table: Mapping[str, Any], where: str) -> LocalTask:
    if "type" not in table:
        raise UsageError(f"{where} 'type' is missing.", hint=f"It is one of {', '.join(KINDS)}. {GUIDE}")
    type_ = _parse_string(table, "type", where)
    _require_known(type_, KINDS, where, "type")
    kind = KINDS[type_]
    # An unknown key is an error: a typing mistake would otherwise change the task without a word.
    valid_keys = ("name", "type", "columns", *kind.files, *kind.keys)
    _require_valid_keys(table, valid_keys, where, f"key of a {type_} task")
    name = _parse_string(table, "name", where, _default_name(folder))
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"{where} the name {name!r} cannot be used.",
            hint="A name has up to 100 letters, digits, dots, hyphens and underscores.",
        )
    split = _parse_string(table, "split", where, kind.split)
    require_plain_name(split, "the name of a split", hint=f"Correct {folder / DESCRIPTION}.")
    files = [_parse_string(table, key, where, default.format(split)) for key, default in kind.files.items()]
    return LocalTask(
        name=name,
        type=type_,
        split=split,
        files=tuple(folder / file for file in files),
        columns=_parse_column_names(table.get("columns", {}), kind, where),
        ignore_identical_ids=_parse_flag(table, RULE, where),
        learning=_parse_learning(kind, table, where) if kind.learnt else None,
    )


def _parse_column_names(table: object, kind: _Kind, where: str) -> tuple[tuple[str, str], ...]:
    if not isinstance(table, dict) or not all(isinstance(v, str) and v for v in table.values()):
        raise UsageError(f"{where} 'columns' must be a table of names.", hint=GUIDE)
    _require_valid_keys(table, kind.columns, where, "column")
    return tuple(sorted((here, there) for here, there in table.items() if here != there))


def _default_name(folder: Path) -> str:
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", folder.resolve().name).strip("-._")
    return name[:100] or "local"


def _check_files(task: LocalTask) -> None:
    for key, path in zip(KINDS[task.type].files, task.files, strict=True):
        formats = _QRELS_FORMATS if key == "qrels" else FORMATS
        if path.suffix not in formats:
            raise UsageError(f"{path}: {key!r} must be a file that ends in {', '.join(formats)}.", hint=GUIDE)
        if not path.is_file():
            file_names = [p.name for p in path.parent.iterdir()] if path.parent.is_dir() else []
            raise DataError(
                f"{path} does not exist: it is the {key!r} of task {task.name!r}.",
                hint=ask_for_names(path.name, file_names) + GUIDE,
            )
        if path.stat().st_size == 0:
            raise DataError(f"{path} is empty.")


GUIDE = "See docs/local-data.md."


def _require_valid_keys(
    table: Mapping[str, object], valid_names: Iterable[str], where: str, what: str
) -> None:
    """Refuse a key that means nothing here, which would be ignored without a word."""
    for key in table:
        _require_known(key, valid_names, where, what)


def _require_known(name: str, valid_names: Iterable[str], where: str, what: str) -> None:
    """Refuse a name that is not in `valid_names`."""
    if name not in valid_names:
        error = explain_unknown(what, name, valid_names, then=GUIDE)
        raise UsageError(f"{where} {error.message}", hint=error.hint)


def _parse_string(table: Mapping[str, Any], key: str, where: str, default: str = "") -> str:
    """The value of `key`, a string that is not empty."""
    value = table.get(key, default)
    if not isinstance(value, str) or not value:
        raise UsageError(f"{where} {key!r} is {value!r}, not a name.", hint=GUIDE)
    return value


def _parse_strings(
    table: Mapping[str, Any], key: str, where: str, default: tuple[str, ...]
) -> tuple[str, ...]:
    """The value of `key`, a list of different names."""
    value = table.get(key, list(default))
    if not isinstance(value, list) or not value or not all(isinstance(one, str) for one in value):
        raise UsageError(
            f"{where} {key!r} is {value!r}, not a list of names.", hint=f'Write {key} = ["…"]. {GUIDE}'
        )
    if len(set(value)) < len(value):
        raise UsageError(f"{where} {key!r} has a name twice: {', '.join(value)}.", hint=GUIDE)
    return tuple(value)


def _parse_flag(table: Mapping[str, Any], key: str, where: str) -> bool:
    """The value of `key`, a boolean; false by default."""
    value = table.get(key, False)
    if not isinstance(value, bool):
        raise UsageError(f"{where} {key!r} is {value!r}, not true or false.", hint=GUIDE)
    return value


RULE = "ignore_identical_ids"


@dataclass(frozen=True)
class _Kind:
    """A type of task in harness.toml.

    `type` is its name in tables. A task has the metrics in `metrics`, and is scored on `split`, unless
    harness.toml names others, which must be in `allowed`; vectors have one metric, by mteb's name. `like` is
    the GLUE task whose settings hold, empty for a type that is scored from vectors. `numeric` labels are
    numbers, not names of classes. `files` are default names by key, `keys` further keys.
    """

    type: str
    metrics: tuple[str, ...]
    files: Mapping[str, str]
    columns: tuple[str, ...]
    keys: tuple[str, ...] = ()
    allowed: tuple[str, ...] = ()
    like: str = ""
    numeric: bool = False
    split: str = "test"

    @property
    def learnt(self) -> bool:
        """Whether a recipe trains a model for this type."""
        return bool(self.like)


_TRAIN_AND_DEV = MappingProxyType({"train": "train.jsonl", "dev": "dev.jsonl"})
_TRAIN_AND_TEST = MappingProxyType({"train": "train.jsonl", "test": "test.jsonl"})
_TEXT_AND_LABEL, _TEXTS_AND_LABEL = ("id", "text", "label"), ("id", "text1", "text2", "label")

KINDS: Mapping[str, _Kind] = MappingProxyType(
    {
        "retrieval": _Kind(
            "Retrieval",
            ("ndcg_at_10",),
            {"corpus": "corpus.jsonl", "queries": "queries.jsonl", "qrels": "qrels/{}.tsv"},
            ("id", "title", "text"),
            keys=("split", RULE),
        ),
        "sts": _Kind("STS", ("cosine_spearman",), {"file": "pairs.jsonl"}, ("id", "text1", "text2", "score")),
        "classification": _Kind("Classification", ("accuracy",), _TRAIN_AND_TEST, _TEXT_AND_LABEL),
        "clustering": _Kind("Clustering", ("v_measure",), {"file": "texts.jsonl"}, _TEXT_AND_LABEL),
        "fine-tuned-classification": _Kind(
            "Classification",
            ("accuracy",),
            _TRAIN_AND_DEV,
            _TEXTS_AND_LABEL,
            keys=("metrics", "positive", "like", "from_mnli"),
            allowed=("accuracy", "f1", "mcc"),
            like="RTE",
            split="dev",
        ),
        "fine-tuned-regression": _Kind(
            "Regression",
            ("pearson", "spearman"),
            _TRAIN_AND_DEV,
            _TEXTS_AND_LABEL,
            keys=("metrics", "like", "from_mnli"),
            allowed=("pearson", "spearman"),
            like="STS-B",
            numeric=True,
            split="dev",
        ),
    }
)
"""The types of task by their names in harness.toml."""


@dataclass(frozen=True, kw_only=True)
class Learning:
    """The settings of a local task that a recipe trains a model for.

    Attributes:
        metrics: Names in `harness.results.weighted_metrics.METRICS`; early stopping watches the first.
        positive: The label that is class 1 of two; empty for the last in order.
        like: The GLUE task whose settings in a recipe hold.
        from_mnli: Whether training starts from the recipe's MNLI model, where the recipe has one.
    """

    metrics: tuple[str, ...]
    positive: str = ""
    like: str
    from_mnli: bool = False


def _parse_learning(kind: _Kind, table: Mapping[str, Any], where: str) -> Learning:
    """The training settings in a task's table."""
    metrics = _parse_strings(table, "metrics", where, kind.metrics)
    for name in metrics:
        _require_known(name, kind.allowed, f"{where} 'metrics':", f"metric of a {table['type']} task")
    like = _parse_string(table, "like", where, kind.like)
    _require_known(like, TASKS, f"{where} 'like':", "task of GLUE")
    return Learning(
        metrics=metrics,
        positive=_parse_positive_label(table, metrics, where),
        like=like,
        from_mnli=_parse_flag(table, "from_mnli", where),
    )


def _parse_positive_label(table: Mapping[str, Any], metrics: tuple[str, ...], where: str) -> str:
    """The label that F1 counts, which may be a whole number in the table."""
    if "positive" not in table:
        return ""
    value = table["positive"]
    # By type, since true is an int in Python.
    if type(value) not in (int, str) or value == "":
        raise UsageError(f"{where} 'positive' is {value!r}, not a label.", hint=GUIDE)
    if "f1" not in metrics:
        raise UsageError(
            f"{where} 'positive' says which label f1 counts, and 'metrics' has no f1.",
            hint=f"Leave it out, or add f1 to 'metrics'. {GUIDE}",
        )
    return str(value)


@dataclass(frozen=True, kw_only=True)
class LocalTask:
    """A task in a user's folder.

    `files` are in the order of the type's files in docs/local-data.md; `columns` are pairs of a column's name
    here and its name in the files, where the two differ. `ignore_identical_ids` is explained in
    suites._content.Retrieval; `learning` is set if a recipe trains a model for the task.
    """

    name: str
    type: str
    split: str = "test"
    files: tuple[Path, ...]
    columns: tuple[tuple[str, str], ...] = ()
    ignore_identical_ids: bool = False
    learning: Learning | None = None

    @property
    def metric(self) -> str:
        """The task's main metric by mteb's name, or all metrics of a task that a recipe trains for."""
        return ", ".join(self.learning.metrics if self.learning else KINDS[self.type].metrics)

    @property
    def content(self) -> str:
        """The hash of the data; every file is read again."""
        return self.hash_task_files()

    def hash_task_files(self, cache: Path | None = None) -> str:
        """The hash of the files' bytes and of harness.toml but for the name.

        With `cache`, files with the stamps of the last time are not read again.
        """
        files = [[path.suffix, _hash_local_file(path, cache)] for path in self.files]
        # Facts at their defaults are left out, so that the hashes of older results stay.
        facts = {"reader": 1, "type": self.type, "columns": dict(self.columns), "files": files}
        if self.ignore_identical_ids:
            facts[RULE] = True
        if self.learning:
            facts["learning"] = self.learning
        return digest(facts)

    def resolve_column(self, name: str) -> str:
        """The name of the column `name` in the files."""
        return dict(self.columns).get(name, name)

    @staticmethod
    def read_all(folder: Path) -> tuple[LocalTask, ...]:
        """The tasks of a folder, in the order of its harness.toml.

        Without harness.toml, a folder in BEIR layout gives a task for each file in qrels/, train.tsv only if
        alone.

        Raises:
            UsageError: The description cannot be followed.
            DataError: A file that it names is missing or empty, or this user may not reach it.
        """
        with explain_file_error(folder):
            if not folder.is_dir():
                before, _, split = str(folder).rpartition(":")
                named = before and Path(before).is_dir()
                raise UsageError(
                    f"{folder} is not a folder.",
                    hint=f"Type --suite local:{before} --splits {split}." if named else GUIDE,
                )
            tasks = (
                _read_description(folder) if (folder / DESCRIPTION).is_file() else _read_beir_tasks(folder)
            )
            counts = Counter(task.name for task in tasks)
            if twice := [name for name, count in counts.items() if count > 1]:
                raise UsageError(
                    f"{folder}: two tasks are called {twice[0]!r}.", hint="Give each a 'name' of its own."
                )
            for task in tasks:
                _check_files(task)
            return tasks


def _hash_local_file(path: Path, cache: Path | None) -> str:
    with explain_file_error(path):
        return hash_file(path, cache)
