"""Records of a model, with reference records, grouped by the condition under which they were measured."""

from __future__ import annotations

import contextlib
import functools
import os
import shlex
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, is_dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from harness.core import files
from harness.core.encoding import is_bm25, select_prompt
from harness.core.errors import ModelError, UsageError, explain_unknown
from harness.core.keys import Lineage, build_data_identity
from harness.core.types import DOCUMENT_TEXT, SEED, Suite, Task
from harness.encoder.backbones import find_catalog_model
from harness.encoder.folder.description import compute_folder_identity
from harness.encoder.resolved_encoding import describe_encoding
from harness.results.index import ModelRow, RecordIndex, distinguish_models
from harness.results.revisions import find_data_revision
from harness.results.scores import MAIN_SCORE, compute_metric_scores, rename_record
from harness.search.bm25 import resolve_bm25
from harness.storage.record import Record
from harness.storage.store import Store


class Condition(Protocol):
    """The settings with which a model was measured; records in one mean must share them."""

    @property
    def text(self) -> str:
        """The condition in a few words."""

    @property
    def rank(self) -> tuple[Any, ...]:
        """The sort key of conditions with the same number of tasks."""

    def is_match(self, record: Record, task: Task) -> bool:
        """Whether `record` was measured under this condition on `task`."""


@dataclass(frozen=True, kw_only=True)
class RecipeCondition:
    """A recipe with a user's options, under which a model was measured.

    `modified` are the settings that are not the protocol's own, with their values, and `protocol` is the
    digest of all settings. `kind` is the kind of seeds behind a score (results/README.md), and `start` the
    model from which the protocol starts some tasks; None in records of other tasks, which fit every start.
    """

    recipe: str
    modified: Mapping[str, Any] = field(default_factory=dict)
    protocol: str = ""
    kind: str = ""
    view: str
    final_seeds: tuple[int, ...]
    fresh_seeds: tuple[int, ...]
    start: Mapping[str, Any] | None = None
    scoring: str

    @property
    def text(self) -> str:
        """The recipe and its seeds."""
        seeds = [f"fresh seeds {_format_seeds(self.fresh_seeds)}"] if self.fresh_seeds else []
        content = str((self.start or {}).get("content", ""))[:8]
        start = {"backbone": ["no transfer"], "checkpoint": [f"started from the checkpoint {content}"]}
        if self.kind == "maximum":
            seeds = ["the grid's maximum"]
        modified = describe_modified(self.modified)
        return ", ".join([self.recipe, *modified, *seeds, *start.get((self.start or {}).get("from", ""), [])])

    @property
    def rank(self) -> tuple[Any, ...]:
        """The sort key: after finished models, modified settings last, by name."""
        return (1, bool(self.modified), self.text)

    def is_match(self, record: Record, task: Task) -> bool:
        """Whether `record` was measured under this condition on `task`."""
        if "recipe" not in record.identity or task.output != "label":
            return False
        condition = _extract_recipe_condition(record)
        alike = replace(condition, start=self.start) == self and condition.start in (None, self.start)
        data = task.data.content == "" or record.identity["data"] == build_data_identity(task.data)
        same = record.task.name == task.name and record.identity["scoring"] == task.source.scoring
        return same and alike and data and record.identity["splits"] == sorted(task.splits)


def format_setting(name: str, value: Any) -> str:
    """A setting as a user types it."""
    return f"{name}={','.join(map(str, value)) if isinstance(value, list | tuple) else value}"


def describe_modified(settings: Mapping[str, Any]) -> list[str]:
    """The words that stand behind a recipe's name where settings are modified; none where none is.

    >>> describe_modified({"learning_rate": (1e-5, 3e-5), "max_length": 64}), describe_modified({})
    (['modified: learning_rate=1e-05,3e-05 and max_length=64'], [])
    """
    texts = " and ".join(format_setting(name, value) for name, value in settings.items())
    return [f"modified: {texts}"] if texts else []


def _format_seeds(seeds: Sequence[int]) -> str:
    """Consecutive seeds in short.

    >>> _format_seeds((42001, 42002, 42003)), _format_seeds((7,))
    ('42001–42003', '7')
    """
    return str(seeds[0]) if len(seeds) == 1 else f"{seeds[0]}–{seeds[-1]}"


@dataclass(frozen=True, kw_only=True)
class EncodingCondition:
    """The settings with which a finished model was measured; `prompts` are all prompts, for any task.

    Those of BM25 are the settings of its ranking.
    `documents` is the text of a document where it is not title and text; where empty, it is a suite's own.
    `machine` is the one that was measured, empty where scores depend on none.
    """

    encoding: Mapping[str, Any]
    prompts: Mapping[str, str]
    default_prompt: str | None
    seed: int
    scoring: str
    documents: str = ""
    machine: Mapping[str, Any] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """The condition in a few words."""
        named = [f"{name} prompt {text!r}" for name, text in self.prompts.items() if text]
        if len(named) > 4:
            named = [f"{len(named)} prompts"]
        return _join_condition(self, named)

    @property
    def rank(self) -> tuple[Any, ...]:
        """The sort key: full precision first, then by the text."""
        dtypes = {self.encoding.get(name, "float32") for name in ("dtype", "vectors")}
        return (0, dtypes != {"float32"}, self.text)

    def is_match(self, record: Record, task: Task) -> bool:
        """Whether `record` was measured under this condition on `task`."""
        applied = {r: select_prompt(task, r, self.prompts, self.default_prompt) for r in task.roles}
        expected = {
            "task": task.name,
            "splits": sorted(task.splits),
            "subsets": sorted(task.subsets),
            "encoding": self.encoding,
            "prompts": applied,
            "seed": self.seed,
            "scoring": self.scoring,
        }
        if task.data.content:
            expected["data"] = build_data_identity(task.data)
        if self.machine:
            expected["machine"] = self.machine
        documents = self.documents or task.documents
        if task.retrieves and record.identity.get("documents", DOCUMENT_TEXT) != documents:
            return False
        return all(record.identity.get(name) == value for name, value in expected.items())


def _join_condition(condition: EncodingCondition, prompts: Sequence[str]) -> str:
    """A condition in a few words, with these for its prompts."""
    seed = [] if condition.seed == SEED else [f"seed {condition.seed}"]
    documents = [*_describe_documents(condition.documents), *_describe_machine(condition.machine)]
    encoding = describe_encoding(condition.encoding)
    return ", ".join([encoding, *documents, *prompts, *seed])


def extract_condition(record: Record) -> Condition:
    """The condition under which a record was made."""
    if "recipe" in record.identity:
        return _extract_recipe_condition(record)
    prompt_settings = record.provenance.get("prompts_asked", {})
    return EncodingCondition(
        encoding=record.identity["encoding"],
        prompts=prompt_settings.get("named", {}),
        default_prompt=prompt_settings.get("default"),
        seed=record.identity["seed"],
        scoring=record.identity["scoring"],
        documents=record.identity.get("documents", ""),
        machine=record.identity.get("machine", {}),
    )


def _extract_recipe_condition(record: Record) -> RecipeCondition:
    names = {field.name for field in fields(RecipeCondition)}
    settings = {name: value for name, value in record.identity.items() if name in names}
    seeds = {name: tuple(settings[name]) for name in ("final_seeds", "fresh_seeds")}
    return RecipeCondition(**{**settings, **seeds})


_DOCUMENTS: dict[str, str] = {"text": "without titles", DOCUMENT_TEXT: "with titles"}


def _describe_documents(documents: str) -> list[str]:
    """The words for the text of documents where a record or a condition says it."""
    return [f"documents {_DOCUMENTS[documents]}"] if documents else []


def _describe_machine(machine: Mapping[str, Any]) -> list[str]:
    """The words for the machine that was measured, where one was."""
    if not machine:
        return []
    device, torch = machine["device"], machine["packages"].get("torch")
    limit = (
        f"{machine['threads']} thread{'s' * (machine['threads'] != 1)}"
        if device["kind"] == "cpu"
        else device["power_limit"]
    )
    return [f"on {device['name']} ({', '.join(filter(None, (limit, f'torch {torch}')))})"]


def serialize_condition(treatment: Condition) -> dict[str, Any]:
    """A condition as plain values (docs/json.md)."""
    assert is_dataclass(treatment)
    return {
        name: value
        for name, value in asdict(treatment).items()
        if name not in ("documents", "machine", "modified") or value
    }


def open_stores(results: Path | None) -> list[Store]:
    """The store of the results folder, and that of the reference records where they exist."""
    reference = files.find_reference_folder()
    stores = [Store(files.resolve_results_folder(results))]
    return [*stores, Store(reference)] if reference else stores


def choose_settings(texts: Sequence[str], wanted: str) -> str:
    """The text that is `wanted`, or else the only one that has it as a part.

    Raises:
        UsageError: No text has it, or several have.
    """
    matches = [text for text in texts if text == wanted] or [text for text in texts if wanted in text]
    if len(matches) == 1:
        return matches[0]
    what = f"{len(matches)} of them have" if matches else "None of them has"
    raise UsageError(
        f"Its scores were measured with these settings: {'; '.join(texts)}. {what} {wanted!r}.",
        hint="Type a part of one with --settings that no other has.",
    )


@dataclass(frozen=True, kw_only=True)
class MeasuredSuite:
    """Every final record of a model; `reference` are the keys of records that came with the project."""

    records: tuple[Record, ...]
    reference: frozenset[str]

    @staticmethod
    def load_records(model: str, results: Path | None, cache: Path | None = None) -> MeasuredSuite:
        """The records of a model, given by name, artifact key (six digits or more), or folder.

        A record of the results folder replaces the reference record of the same key.

        Raises:
            UsageError: The name has no records, or matches several artifacts.
        """
        suites = MeasuredSuite._load_matches(model, results, cache)
        if len(suites) > 1:
            raise _explain_ambiguous_model(model, suites)
        return suites[0]

    @staticmethod
    def load_own_records(model: str, results: Path | None, cache: Path | None = None) -> MeasuredSuite:
        """The newest records of a model (see `load_records`), without those that came with the project."""
        measured = MeasuredSuite.load_records(model, results, cache)
        return drop_reference_records(model, [measured], results)[0].newest

    @staticmethod
    def load_seeds(model: str, results: Path | None, cache: Path | None = None) -> tuple[MeasuredSuite, ...]:
        """The records of a model, or of several that differ only in the seed of their training, by seed.

        Raises:
            UsageError: The name has no records, or matches artifacts that differ in more.
        """
        suites = MeasuredSuite._load_matches(model, results, cache)
        groups = {one.lineage.group if one.lineage else None for one in suites}
        if len(suites) > 1 and (None in groups or len(groups) > 1):
            raise _explain_ambiguous_model(model, suites)
        return tuple(sorted(suites, key=lambda one: one.lineage.seed if one.lineage else 0))

    @property
    def lineage(self) -> Lineage | None:
        """The lineage of the model; None unless a recipe made it."""
        return next((record.lineage for record in self.records if record.lineage), None)

    @functools.cached_property
    def weights(self) -> str:
        """The newest weights of a trained model; empty for any other."""
        return next(iter(group_records(self.records)))

    def is_former(self, record: Record) -> bool:
        """Whether a record is of weights that a trained model no longer has."""
        return get_record_weights(record) not in ("", self.weights)

    @functools.cached_property
    def settings(self) -> list[str]:
        """The settings under which it was measured, each once, in words."""
        return list(dict.fromkeys(extract_condition(record).text for record in self.records))

    def select_settings(self, wanted: str) -> MeasuredSuite:
        """The records under one of several settings (`choose_settings`); all where there is one."""
        if not wanted or len(self.settings) < 2:
            return self
        text = choose_settings(self.settings, wanted)
        return replace(self, records=tuple(r for r in self.records if extract_condition(r).text == text))

    @property
    def newest(self) -> MeasuredSuite:
        """The records that are not of former weights."""
        return replace(self, records=tuple(r for r in self.records if not self.is_former(r)))

    @property
    def former(self) -> tuple[Record, ...]:
        """The records of former weights, which no mean may hold beside those of the newest."""
        return tuple(record for record in self.records if self.is_former(record))

    @staticmethod
    def _load_matches(model: str, results: Path | None, cache: Path | None) -> list[MeasuredSuite]:
        """The records of every artifact that a name matches; only theirs are read."""
        cache = files.resolve_cache_folder(cache)
        indexes = [RecordIndex(store.root, cache) for store in open_stores(results)]
        models = [row for index in reversed(indexes) for row in index.list_models()]
        labels = distinguish_models(models)
        named, _, revision = model.partition("@")
        names = [resolve_bm25(model)[0].key] if is_bm25(model) else _list_folder_keys(model)
        # A folder by its content; else the name that tables show, which only this model has, before any that
        # it was recorded under.
        artifacts = {one.artifact for one in models if not names and labels[one] == model}
        artifacts = artifacts or {
            one.artifact for one in models if any(_is(one, w, revision) for w in names or [named])
        }
        if not artifacts and not names and os.path.isfile(os.path.join(model, "config.json")):
            # A folder of the present one, as after `harness run --model`, recorded under another name.
            with contextlib.suppress(ModelError):
                names = _list_folder_keys(f"./{model}")
            artifacts = {one.artifact for one in models if one.artifact in names}
        if not artifacts and not names:
            names = _list_catalog_keys(model)
            artifacts = {one.artifact for one in models if one.artifact in names}
        read, keys = _read_artifacts(artifacts, indexes, labels)
        mine = [_name_model(records, model) for records in read if records]
        if not mine:
            trials = [row for index in indexes for row in index.list_models(purpose="trial")]
            if any(_is(one, wanted, revision) for one in trials for wanted in names or [named]):
                raise NotMeasuredError(
                    f"{model} has only trials (--limit), which no table shows.",
                    hint=f"Type: harness run --model {shlex.quote(model)} --suite SUITE, without --limit.",
                )
            raise _explain_missing_records(named, revision, labels)
        return [MeasuredSuite(records=some, reference=frozenset(r.key for r in some) - keys) for some in mine]


def drop_reference_records(
    model: str, seeds: Sequence[MeasuredSuite], results: Path | None
) -> tuple[MeasuredSuite, ...]:
    """The models without the scores that came with the project, which no table shows unasked."""
    kept = [[record for record in one.records if record.key not in one.reference] for one in seeds]
    left = [replace(one, records=tuple(some)) for one, some in zip(seeds, kept, strict=True) if some]
    if not left:
        raise UsageError(
            f"Nothing is recorded of {model} in {files.resolve_results_folder(results)}.",
            hint=f"Type: harness run --model {model} --suite SUITE. "
            "--reference shows the scores that came with the project.",
        )
    return tuple(left)


def _read_artifacts(
    artifacts: Collection[str], indexes: Sequence[RecordIndex], labels: Mapping[ModelRow, str]
) -> tuple[list[list[Record]], set[str]]:
    """The records of each artifact with the names that tables show, without those that are gone meanwhile.

    With them come the keys of those in the results folder.
    """
    results_rows, *others = [[(row, index) for row in index.list_rows(artifacts)] for index in indexes]
    unique = {
        # The results folder comes last, so that its record replaces the reference record of the same key.
        (row.key, row.weights): (row, index)
        for pairs in (*others, results_rows)
        for row, index in pairs
    }
    read: dict[str, list[Record]] = {row.model.artifact: [] for row, _ in unique.values()}
    for row, index in unique.values():
        record = index.read_record(row)
        if record is not None:
            read[row.model.artifact].append(rename_record(record, labels[row.model]))
    return [*read.values()], {row.key for row, _ in results_rows}


def _name_model(records: Sequence[Record], typed: str) -> tuple[Record, ...]:
    """The records of a model, all with the name that was typed, or else with that of the last record."""
    names = [record.model.name for record in records]
    return tuple(rename_record(record, typed if typed in names else names[-1]) for record in records)


def get_record_weights(record: Record) -> str:
    """The weights that a record is of, where a training made them; empty for any other model.

    Trained again, a model may have other weights under its key.
    """
    return record.model.weights if record.lineage else ""


def group_records(records: Iterable[Record]) -> dict[str, tuple[Record, ...]]:
    """The records of a model by its weights, the newest weights first.

    Records without weights, such as those of failures, are with the newest.
    """
    every = list(records)
    newest = sorted(every, key=_get_write_time, reverse=True)
    names = [name for name in dict.fromkeys(map(get_record_weights, newest)) if name]
    if not names:
        return {"": tuple(every)}
    return {name: tuple(r for r in every if (get_record_weights(r) or names[0]) == name) for name in names}


def describe_former_weights(weights: str) -> str:
    """The words for a condition under which a model had other weights than it has now.

    >>> describe_former_weights("0123456789abcdef")
    'former weights 01234567'
    """
    return f"former weights {weights[:8]}"


@dataclass(frozen=True, kw_only=True)
class _View:
    """The records and scores of a suite under one condition, and tasks with data of an unproven revision.

    Records are by task, those of a part of a task by the column that shows it.
    `former` are the weights, where a trained model has other ones now.
    """

    treatment: Condition
    former: str
    records: Mapping[str, Record]
    scores: Mapping[str, float]
    unproven: tuple[str, ...]

    @property
    def text(self) -> str:
        """The condition in a few words, with former weights."""
        return ", ".join(
            [self.treatment.text, *([describe_former_weights(self.former)] if self.former else [])]
        )


def build_suite_views(records: Sequence[Record], suite: Suite) -> list[_View]:
    """The views of a suite, one for each condition; the condition with the most tasks comes first.

    A view whose records another view also has is left out. Built or local data must be the suite's present
    data. Of several records of a hub task that differ only in their data the newest counts. Former weights
    of a trained model have views of their own, which come last.
    """
    mine = [record for record in records if record.main_score is not None or record.training]
    return [
        view
        for at, (weights, group) in enumerate(group_records(mine).items())
        for view in _list_condition_views(sorted(group, key=_get_write_time), suite, weights if at else "")
    ]


def _list_condition_views(mine: Sequence[Record], suite: Suite, former: str) -> list[_View]:
    """The views of a suite of records of the same weights, oldest first."""
    names = {task.name for task in suite.tasks}
    candidates = []
    for treatment in _list_distinct_conditions([extract_condition(r) for r in mine if r.task.name in names]):
        exact_records = {t.name: r for t in suite.tasks for r in mine if treatment.is_match(r, t)}
        candidates.append(
            (treatment, {**_find_wider_records(treatment, mine, suite, exact_records), **exact_records})
        )
    candidates.sort(key=lambda pair: (-len(pair[1]), pair[0].rank))
    views, seen = [], list[set[str]]()
    for treatment, kept in candidates:
        keys = {record.key for record in kept.values()}
        # The longest views come first, so a view within a former one says nothing new.
        if keys and not any(keys <= others for others in seen):
            seen.append(keys)
            views.append(_build_condition_view(treatment, kept, suite, former))
    return views


def _find_wider_records(
    treatment: Condition, mine: Sequence[Record], suite: Suite, exact_records: Mapping[str, Record]
) -> dict[str, Record]:
    """The records with other splits and subsets than a task, for columns whose parts they all have."""
    tasks = {**{task.name: task for task in suite.tasks}, **suite.parts}
    lacking = {name: task for name, task in tasks.items() if task.name not in exact_records}
    return {
        name: record
        for name, task in lacking.items()
        for record in mine
        if (wider := _extend_task(task, record)) is not None and treatment.is_match(record, wider)
    }


def _extend_task(task: Task, record: Record) -> Task | None:
    """A task with all splits and subsets of a record; None unless it has a score of each of the task's."""
    if record.task.name != task.name:
        return None
    splits, subsets = record.identity["splits"], record.identity.get("subsets", [])
    has_cells = {*task.splits} <= {*splits} and {*task.subsets} <= {*subsets}
    cell_metrics = (record.scores.get(split, {}).get(subset, {}) for split, subset in task.cells)
    if not (has_cells and all(MAIN_SCORE in metrics for metrics in cell_metrics)):
        return None
    return replace(task, splits=tuple(splits), subsets=tuple(subsets))


def _build_condition_view(
    treatment: Condition, kept: Mapping[str, Record], suite: Suite, former: str
) -> _View:
    pinned = {task.name: task.data.revision for task in suite.tasks if task.data.path}
    mine = [(name, record.task.name, record) for name, record in kept.items()]
    unproven = [n for n, t, r in mine if t in pinned and find_data_revision(r) != pinned[t]]
    tasks = {task.name: task for task in suite.tasks if task.name in kept}
    exact_records = {name: kept[name] for name, task in tasks.items() if treatment.is_match(kept[name], task)}
    scores = compute_metric_scores(suite, kept, MAIN_SCORE)
    scores |= {name: r.main_score for name, r in exact_records.items() if r.main_score is not None}
    return _View(treatment=treatment, former=former, records=kept, scores=scores, unproven=tuple(unproven))


def describe_record(record: Record) -> str:
    """The distinguishing settings of a record: encoding, applied prompts and seed, or the recipe."""
    condition = extract_condition(record)
    if not isinstance(condition, EncodingCondition):
        return condition.text
    return _join_condition(condition, sorted({repr(p) for p in record.identity["prompts"].values() if p}))


def _list_distinct_conditions(treatments: Iterable[Condition]) -> list[Condition]:
    conditions: list[Condition] = []
    for condition in treatments:
        if condition not in conditions:
            conditions.append(condition)
    return conditions


def _get_write_time(record: Record) -> str:
    return str(record.provenance.get("written", ""))


def _is(about: ModelRow, wanted: str, revision: str) -> bool:
    by_key = len(wanted) >= 6 and about.artifact.startswith(wanted)
    return by_key or (about.name == wanted and (about.revision or "").startswith(revision))


def _explain_ambiguous_model(model: str, suites: Sequence[MeasuredSuite]) -> UsageError:
    in_order = sorted(suites, key=lambda one: max(map(_get_write_time, one.records)))
    listed = ", ".join(map(_describe_match, in_order))
    return UsageError(
        f"{model!r} names {len(suites)} models, the newest last: {listed}.",
        hint="Type one of these keys instead.",
    )


def _describe_match(measured: MeasuredSuite) -> str:
    """The key of a model, with its training, or its name where that has not the key in it."""
    about, lineage = measured.records[0].model, measured.lineage
    text = about.name if lineage is None else f"{lineage.text}, seed {lineage.seed}"
    written = max(map(_get_write_time, measured.records))[:16].replace("T", " ")
    facts = ["" if about.artifact[:8] in text else text, written and f"of {written}"]
    return about.artifact[:12] + (f" ({', '.join(filter(None, facts))})" if any(facts) else "")


class NotMeasuredError(UsageError):
    """Nothing is recorded of a model."""


def _explain_missing_records(named: str, revision: str, labels: Mapping[ModelRow, str]) -> NotMeasuredError:
    names = {*labels.values(), *(model.name for model in labels)}
    if is_bm25(named):
        return NotMeasuredError(
            f"Nothing is recorded of {named}.",
            hint=f"Type: harness run --model {named} --suite SUITE, with a retrieval suite.",
        )
    if revision and named in names:
        mine = [model for model, label in labels.items() if named in (label, model.name)]
        revisions = {model.revision[:12] for model in mine if model.revision}
        message = f"Nothing is recorded of {named} at revision {revision}."
        return NotMeasuredError(
            message, hint=f"Recorded revisions: {', '.join(sorted(revisions)) or 'none'}."
        )
    error = explain_unknown(
        "measured model",
        named,
        names,
        then=f"`harness list records` shows all; `harness run --model {named} --suite SUITE` measures it. "
        "Imported and printed scores are on the leaderboard (`harness serve`).",
    )
    return NotMeasuredError(error.message, hint=error.hint)


def _list_catalog_keys(model: str) -> list[str]:
    """The keys that a model of the catalog may have in records that name its folder, if it lies here."""
    entry = find_catalog_model(model)
    with contextlib.suppress(ModelError):
        return _list_folder_keys(entry.locate()) if entry is not None and entry.locate is not None else []
    return []


def _list_folder_keys(model: str) -> list[str]:
    """The keys that a model folder may have in records: without and with its own code."""
    folder = files.resolve_home_path(model)
    if "/" not in model or not folder.is_dir():
        return []
    return [compute_folder_identity(folder, trust_remote_code=trusted).key for trusted in (False, True)]
