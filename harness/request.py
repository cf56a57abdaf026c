"""The request of a run: its options, their checks, and the models, suites and recipe that it names."""

from __future__ import annotations

import contextlib
import json
import os
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from harness import bm25, catalog, paths
from harness.arguments import checked, checked_fields, split_names, with_settings
from harness.data.locate import DataSettings
from harness.data.offline import forbid_network
from harness.errors import UsageError, shortened, unknown
from harness.models import ModelOptions, subject
from harness.plan import ConfiguredModel, Plan
from harness.recipe import ModelRecipe, TaskRecipe
from harness.store import Store
from harness.training_plan import Sweep, TrainingRequest, planned_models
from harness.types import SEED, SIDES, Column, DocumentText, Purpose, Settings, Suite, SuiteOptions, Task


@dataclass(frozen=True, kw_only=True)
class Request:
    """The models, suites, settings and folders of a run, as the user gives them.

    `models`, `suites` and `recipe` are spelled as on the command line; there is one recipe at most of each
    kind, that for tasks with labels and that for models. `recipe_settings` are the settings of the recipes
    that are changed, a name as `recipe.setting` where both have it. A recipe for models makes one for each of
    `seeds` seeds, counted from the seed of the settings, of `train_data` in place of its own where that is
    given, with a checkpoint every `checkpoint_minutes`. A `sweep` of one setting (a name with values) makes
    one for each value, and that with the best mean of the main scores of the tasks in `select`
    (`suite:task,task`) is the model. `devices` are torch device names; several devices run one worker process
    each. At most `batch_tokens` padded tokens are encoded at once on each, apart from a longer text, which
    runs alone. With `gate` off, a model runs although the sanity gate refuses it, and its
    records say so; `allow_extra` are tensors (with * and ?) that may have no place in a model. After `budget`
    seconds no new job starts: the remaining tasks are "stopped", and the same request continues with them.
    With `drop_vectors` a model's cached vectors are removed once it has all scores of the request.
    `names` are, by spelling, names for models in records and tables.
    """

    models: tuple[str, ...]
    suites: tuple[str, ...]
    settings: Settings = field(default_factory=Settings)
    options: SuiteOptions = field(default_factory=SuiteOptions)
    recipe: tuple[str, ...] = ()
    recipe_settings: Mapping[str, Any] = field(default_factory=dict)
    train_data: str = ""
    seeds: int = 1
    checkpoint_minutes: float = 10.0
    sweep: Mapping[str, Any] = field(default_factory=dict)
    select: tuple[str, ...] = ()
    results: Path | None = None
    cache: Path | None = None
    data: Path | None = None
    offline: bool = False
    devices: tuple[str, ...] = ()
    threads: int | None = None
    batch_tokens: int | None = None
    workers: int | None = None
    force: bool = False
    fail_fast: bool = False
    trust_remote_code: bool = False
    allow_extra: tuple[str, ...] = ()
    gate: bool = True
    purpose: Purpose = "final"
    budget: float | None = None
    drop_vectors: bool = False
    names: Mapping[str, str] = field(default_factory=dict)

    def network(self) -> contextlib.AbstractContextManager[object]:
        """A context in which the network is available only if the request allows it."""
        return forbid_network() if self.offline else contextlib.nullcontext()

    @staticmethod
    def of_options(
        models: Sequence[str], suites: Sequence[str], given: Mapping[str, Any], **more: Any
    ) -> Request:
        """The request for options of the command line, or for those stored in a baseline.

        Args:
            models: As the user typed them.
            suites: As the user typed them.
            given: The options of an evaluation by name; the others have their values in `DEFAULTS`.
            **more: Further fields of the request.

        Raises:
            UsageError: An option's value cannot be used.
        """
        given = {**DEFAULTS, **given}
        places = ("results", "cache", "data", "offline")
        limits = ("threads", "batch_tokens", "workers", "drop_vectors")
        same = (*places, *limits, "trust_remote_code", "recipe")
        return Request(
            models=tuple(models),
            suites=tuple(suites),
            settings=_settings(given),
            options=SuiteOptions(
                **{name: given[name] for name in ("tasks", "languages", "subsets", "splits")}
            ),
            recipe_settings=_changes(given["changes"]),
            devices=given["devices"],
            allow_extra=given["allow_extra"],
            train_data=given["train_data"] or "",
            gate=not checked("gate", given["no_gate"]),
            **{name: given[name] for name in same},
            **more,
        ).checked()

    def checked(self) -> Request:
        """The request with every value in its form; a name alone stands for a list of one.

        Raises:
            UsageError: A value has another form; the message says which, and what there is.
        """
        return replace(
            checked_fields(self, Request, "request"),
            settings=checked_fields(self.settings, Settings, "settings"),
            options=checked_fields(self.options, SuiteOptions, "options"),
        )

    def check(self) -> None:
        """Refuse a request that would fail for any model, before there is a model.

        Raises:
            UsageError: An unknown suite, task, recipe, prompt or device, or no data root.
        """
        request = self.checked()
        _require_spelled(request.devices)
        _existing_folder(paths.data_root(request.data))
        suites = request.open_suites()
        _Recipes.of(suites, request)
        _check_prompts(request.settings.prompts or {}, suites)
        if request.devices:
            check_devices(request.devices)

    def refuse_model_recipe(self) -> None:
        """Refuse a recipe that makes a model, where a model that is there is compared or followed.

        Raises:
            UsageError: The message says what to type.
        """
        for name in self.recipe:
            if catalog.recipe_entry(name).kind == "model":
                raise UsageError(
                    f"{name} makes a model, which must be there before it is compared or followed.",
                    hint=f"Type harness train --model MODEL --recipe {name}, then give its folder.",
                )

    def open_suites(self) -> Sequence[Suite]:
        """The suites of a request.

        Raises:
            UsageError: There is no such suite.
        """
        cache, results = paths.cache_folder(self.cache), paths.results_folder(self.results)
        suites = catalog.open_suites(self.suites, replace(self.options, cache=cache, results=results))
        documents = self.settings.document_text
        return suites if documents is None else [_with_documents(suite, documents) for suite in suites]

    def changed(self, fields_: Mapping[str, Any], *, of: str) -> Request:
        """A request with changed fields, also those of its `settings` and its `options`.

        Raises:
            UsageError: There is no such field, and the message names the called function, `of`; or a value
                has another form.
        """
        own = {f.name for f in fields(Request)} - {"models", "suites", "settings"}
        parts = {part: {f.name for f in fields(part)} - own for part in (Settings, SuiteOptions)}
        known = own.union(*parts.values())
        for name in fields_:
            if name not in known:
                raise unknown(f"argument of {of}", name, known, then="See docs/python.md.")
        made = {part: {n: v for n, v in fields_.items() if n in names} for part, names in parts.items()}
        whole = {name: value for name, value in fields_.items() if name in own}
        before = replace(self, **whole).checked()
        return replace(
            before,
            settings=replace(before.settings, **made[Settings]),
            options=replace(before.options, **made[SuiteOptions]),
        ).checked()


def _with_documents(suite: Suite, documents: DocumentText) -> Suite:
    """A suite whose retrieval tasks put a document's text together in this way."""

    def changed(task: Task) -> Task:
        return replace(task, documents=documents) if task.retrieves else task

    columns = (replace(column, tasks=tuple(map(changed, column.tasks))) for column in suite.columns)
    return replace(suite, columns=tuple(columns))


def _changes(pairs: Sequence[str] | Mapping[str, Any]) -> dict[str, Any]:
    """The changed settings of FIELD=VALUE pairs.

    Raises:
        UsageError: A pair has no "=".
    """
    if isinstance(pairs, Mapping):
        return dict(pairs)
    found: dict[str, Any] = {}
    for pair in pairs:
        name, equals, value = str(pair).partition("=")
        if not equals:
            raise UsageError(f"--set {pair!r} has no '='.", hint="Type e.g. --set learning_rate=3e-5.")
        found[name.strip()] = value
    return found


def sweep_of(text: str | None) -> dict[str, tuple[str, ...]]:
    """The setting and the values of SETTING=VALUE,VALUE; empty for None.

    Raises:
        UsageError: There is no "=".
    """
    if text is None:
        return {}
    name, equals, values = text.partition("=")
    if not equals:
        raise UsageError(
            f"--sweep {text!r} has no '='.", hint="Type e.g. --sweep learning_rate=1e-5,2e-5,3e-5."
        )
    return {name.strip(): split_names(values)}


@dataclass(frozen=True, kw_only=True)
class _Recipes:
    """The recipes of a request: that for tasks with labels, and that for models; None where there is none."""

    task: TaskRecipe | None = None
    model: ModelRecipe | None = None
    sweep: Sweep | None = None

    @staticmethod
    def of(suites: Sequence[Suite], request: Request) -> _Recipes:
        """The recipes that a request names, with its settings.

        Raises:
            UsageError: A recipe is missing, has nothing to do, or is refused its settings.
        """
        tasks = [task for suite in suites for task in suite.tasks]
        names = _by_kind(request.recipe)
        _require_use(names, tasks, suites, request)
        changes = _changes_by_recipe(request)
        opened = {kind: catalog.open_recipe(name, changes[name]) for kind, name in names.items()}
        sweep = _sweep(names.get("model"), changes, request)
        recipes = _Recipes(task=opened.get("task"), model=opened.get("model"), sweep=sweep)  # type: ignore[arg-type]
        labelled = [task for task in tasks if task.output == "label"]
        if recipes.task is not None and len(labelled) == len(tasks):
            _refuse_settings(request)
            if request.settings.seed != SEED and not recipes.task.uses_seed:
                raise UsageError(
                    f"--seed has no effect: the seeds of {recipes.task.name} are its own, and there are no "
                    "fresh ones.",
                    hint="Type --set fresh_seeds=N for fresh seeds, or leave out --seed.",
                )
        return recipes


def _sweep(recipe: str | None, changes: Mapping[str, Mapping[str, Any]], request: Request) -> Sweep | None:
    """The sweep of a request; None without one.

    Raises:
        UsageError: There is no recipe or no setting to sweep, fewer than two values, or no task that chooses.
    """
    if not request.sweep:
        if request.select:
            raise UsageError(
                "--select names the tasks that choose among the values of a sweep.",
                hint="Type --sweep SETTING=VALUE,VALUE as well, or leave it out.",
            )
        return None
    if recipe is None:
        raise UsageError(
            "--sweep is for a setting of a recipe that makes a model; recipes for tasks with labels have "
            "their own grids.",
            hint="Name one with --recipe, e.g. dpr (`harness list recipes`).",
        )
    if len(request.sweep) > 1:
        raise UsageError("One setting can be swept at a time.", hint="Fix the others with --set.")
    setting, values = next(iter(request.sweep.items()))
    if setting in changes[recipe]:
        raise UsageError(f"{setting} is swept and set.", hint=f"Leave out --set {setting}.")
    opened = [_with_value(recipe, changes[recipe], setting, value) for value in _several(setting, values)]
    found = tuple(value for value, _ in opened)
    _require_different(setting, found)
    if not request.select:
        raise UsageError(
            "Which tasks choose among the values of the sweep?",
            hint="Type e.g. --select beir:NFCorpus,SciFact; they are then marked as no test of the model.",
        )
    return Sweep(
        setting=setting,
        values=found,
        recipes=tuple(member for _, member in opened),
        tasks=_selection(request),
    )


def _several(setting: str, values: Any) -> tuple[Any, ...]:
    if isinstance(values, str):
        values = split_names(values)
    if not isinstance(values, Sequence):
        raise UsageError(f"The values of {setting} are {values!r}, and must be a list.")
    return tuple(values)


def _require_different(setting: str, values: Sequence[Any]) -> None:
    if len(values) < 2:
        given = f"The value {values[0]}" if values else "No value"
        raise UsageError(
            f"{given} is given for {setting}: a sweep chooses among two or more.",
            hint=f"Type e.g. --sweep {setting}=VALUE,VALUE, or --set {setting}=VALUE without a sweep.",
        )
    twice = [value for number, value in enumerate(values) if value in values[:number]]
    if twice:
        raise UsageError(f"The value {twice[0]} of {setting} is given twice.", hint="Leave one of them out.")


def _with_value(recipe: str, changes: Mapping[str, Any], setting: str, value: Any) -> tuple[Any, ModelRecipe]:
    """A value of a recipe's setting in the setting's own type, and the recipe with it."""
    entry, variant = catalog.recipe_entry(recipe), recipe.partition(":")[2]
    given = {**changes, setting: value}
    settings = with_settings(entry.settings[variant], given, of=recipe)
    opened = entry.open(variant, settings)
    return getattr(settings, setting), opened  # type: ignore[return-value]


def _selection(request: Request) -> dict[str, Task]:
    """The tasks that choose by name; one of which a column shows a part has the name of the column.

    Raises:
        UsageError: There is no such suite or task, a task is no single one, or needs no vectors.
    """
    options = SuiteOptions(
        cache=paths.cache_folder(request.cache), results=paths.results_folder(request.results)
    )
    found: dict[str, Task] = {}
    for text in request.select:
        for name, tasks in _suites_of(text, options):
            parts = catalog.open_suite(name, options).parts
            for column in catalog.open_suites([name], replace(options, tasks=tasks))[0].columns:
                for task in _single(column):
                    known = column.name if column.name in parts else task.name
                    if found.setdefault(known, task) != task:
                        raise UsageError(f"--select names two tasks {known}.", hint="Name one of them.")
    return found


def _suites_of(text: str, options: SuiteOptions) -> list[tuple[str, tuple[str, ...]]]:
    """The suites that `suite`, `suite:argument` or `suite:tasks` stands for, each with names of its tasks."""
    name, _, rest = text.partition(":")
    entry, parts = catalog.suites().get(name), split_names(rest)
    if entry is None or not rest:
        return [(text, ())]
    try:
        catalog.open_suite(text, options)
    except UsageError:
        if entry.alone and not entry.offers():
            return [(name, parts)]
        if {offer.name for offer in entry.offers()}.issuperset(parts):
            return [(f"{name}:{part}", ()) for part in parts]
    return [(text, ())]


def _single(column: Column) -> tuple[Task, ...]:
    """The task of a column that chooses; none where the column was not asked for."""
    if len(column.tasks) > 1:
        raise UsageError(
            f"{column.name} is the mean of {len(column.tasks)} tasks, and cannot choose.",
            hint=f"Name tasks of it, e.g. --select mteb:{column.tasks[0].name}.",
        )
    for task in column.tasks:
        if task.output == "label":
            raise UsageError(
                f"{task.name} needs a model trained for it, and cannot choose models that give vectors.",
                hint="Name a task of vectors, e.g. --select mteb:STSBenchmark.",
            )
    return column.tasks


def _by_kind(names: Sequence[str]) -> dict[str, str]:
    """The names of recipes by their kind, "task" or "model"."""
    found: dict[str, str] = {}
    for name in names:
        kind = catalog.recipe_entry(name).kind
        if kind in found:
            what = "make models" if kind == "model" else "train for tasks with labels"
            raise UsageError(
                f"{found[kind]} and {name} both {what}.", hint="Run one after the other, one --recipe each."
            )
        found[kind] = name
    return found


def _require_use(
    names: Mapping[str, str], tasks: Sequence[Task], suites: Sequence[Suite], request: Request
) -> None:
    """Refuse recipes that no task needs, tasks that need another recipe, and options without their recipe."""
    labelled = [task.name for task in tasks if task.output == "label"]
    titles = ", ".join(suite.name for suite in suites)
    if labelled and "task" not in names:
        known = [name for name, entry in catalog.recipes().items() if entry.kind == "task"]
        also = f" beside {names['model']}" if "model" in names else ""
        raise UsageError(
            f"A model must be trained for {shortened(labelled)}: which recipe{also}?",
            hint=f"Type --recipe with one of {', '.join(known)} (`harness list recipes`).",
        )
    if not names and request.recipe_settings:
        raise UsageError(
            "--set changes a setting of a recipe.", hint="Name one with --recipe, or leave it out."
        )
    if "task" in names and not labelled:
        raise UsageError(
            f"The recipe {names['task']} has nothing to train for: {titles or 'no suite'} has no task with "
            "labels.",
            hint="Type --suite glue, or leave out --recipe.",
        )
    if "task" in names and request.purpose == "trial":
        raise UsageError("A recipe's score is final: its runs are the trials.", hint="Leave out the purpose.")
    if "model" in names:
        if tasks and len(labelled) == len(tasks):
            raise UsageError(
                f"The recipe {names['model']} makes models that give vectors; {titles} has tasks with labels "
                "only.",
                hint="Leave it out, or name a suite of vectors, e.g. --suite mteb.",
            )
        return
    for option, given in (("--train-data", request.train_data), ("--seeds", request.seeds > 1)):
        if given:
            raise UsageError(
                f"{option} is for a recipe that makes a model.",
                hint="Name one with --recipe, e.g. simcse (`harness list recipes`), or leave it out.",
            )


def _require_model_recipe(request: Request) -> None:
    """Refuse a request to train without one recipe that makes a model."""
    names = _by_kind(request.recipe)
    if names.keys() != {"model"}:
        known = [name for name, entry in catalog.recipes().items() if entry.kind == "model"]
        given = f"{names['task']} trains for tasks with labels" if "task" in names else "No recipe is named"
        raise UsageError(
            f"{given}, and what is asked for is a model.",
            hint=f"Type --recipe with one of {', '.join(known)} (`harness list recipes`).",
        )


def _changes_by_recipe(request: Request) -> dict[str, dict[str, Any]]:
    """The changed settings of each recipe: the one before a dot, or the one that has the setting."""
    entries = {name: catalog.recipe_entry(name) for name in request.recipe}
    known = {
        name: {f.name for f in fields(entry.settings[name.partition(":")[2]])}
        for name, entry in entries.items()
    }
    found: dict[str, dict[str, Any]] = {name: {} for name in entries}
    for given, value in request.recipe_settings.items():
        recipe, dot, setting = given.rpartition(".")
        if dot and recipe not in (names := [name.partition(":")[0] for name in entries]):
            raise unknown("recipe of this request", recipe, names, then=f"Type --set {setting}={value}.")
        owners = [n for n in entries if recipe == n.partition(":")[0]] if dot else []
        owners = owners or [name for name, settings in known.items() if given in settings] or [*entries][:1]
        if len(owners) > 1:
            raise UsageError(
                f"{' and '.join(owners)} both have a setting {given!r}.",
                hint=f"Type --set {owners[0].partition(':')[0]}.{given}={value}.",
            )
        if len(entries) > 1 and not dot and given not in known[owners[0]]:
            every = sorted(set().union(*known.values()))
            then = "See docs/training.md and docs/glue.md."
            raise unknown("setting of these recipes", given, every, then=then)
        if setting in found[owners[0]]:
            raise UsageError(f"The setting {setting} is given twice.", hint="Leave one of them out.")
        found[owners[0]][setting] = value
    return found


def _refuse_settings(request: Request) -> None:
    """Refuse settings for finished models, which a recipe would silently ignore."""
    for option in _given_settings(request):
        raise UsageError(
            f"{option} is for finished models; the recipe {request.recipe[0]} says how one is trained.",
            hint=f"Leave out {option}.",
        )


_OPTIONS = {"prompts": "prompt"}
"""The options of settings that have another name on the command line."""


def _given_settings(request: Request) -> list[str]:
    """The options that set how a model gives vectors."""
    names = [f.name for f in fields(Settings) if getattr(request.settings, f.name) != f.default]
    return [f"--{_OPTIONS.get(name, name).replace('_', '-')}" for name in names if name != "seed"]


def _check_prompts(prompts: Mapping[str, str], suites: Sequence[Suite]) -> None:
    """Refuse prompts for no known side, task or type (with or without a side): they would be ignored."""
    if not prompts:
        return
    offered = [o for entry in catalog.suites().values() for o in entry.offers() if o.kind == "task"]
    tasks = {c.name for suite in suites for c in suite.columns} | {o.name for o in offered}
    tasks |= {task.name for suite in suites for task in suite.tasks}
    types = {t.type for suite in suites for t in suite.tasks} | {o.facts["type"] for o in offered}
    for name in prompts:
        whole = name.removesuffix("-query").removesuffix("-document")
        if name not in SIDES and whole not in tasks | types:
            known = [*SIDES, *types, *tasks]
            then = "A prompt is for query, document, a type or a task (`harness list tasks`)."
            raise unknown("side, type or task", name, known, then=then)


def _existing_folder(root: Path | None) -> Path | None:
    """The data root, None if none is set."""
    if root is not None and not os.path.isdir(root):
        raise UsageError(
            f"The data root {root} is not a folder.",
            hint=f"`harness data pull --suite NAME --data {root}` makes one.",
        )
    return root


DEFAULTS: Mapping[str, Any] = MappingProxyType(
    {
        **dict.fromkeys(("languages", "subsets", "splits", "devices", "allow_extra"), ""),
        **dict.fromkeys(("tasks", "train_data", "pooling", "normalize", "max_length")),
        **dict.fromkeys(("similarity", "prompt_file", "results", "cache", "data")),
        **dict.fromkeys(("threads", "batch_tokens", "workers")),
        **dict.fromkeys(("offline", "no_gate", "trust_remote_code"), False),
        **dict.fromkeys(("dtype", "vectors"), "float32"),
        "document_text": None,
        "drop_vectors": False,
        "prompts": (),
        "changes": (),
        "recipe": (),
        "seed": SEED,
    }
)
"""The default values of the evaluation options."""


def _settings(given: Mapping[str, Any]) -> Settings:
    same = ("dtype", "pooling", "normalize", "max_length", "similarity", "vectors", "document_text", "seed")
    prompts = read_prompts(given["prompts"], given["prompt_file"])
    return Settings(prompts=prompts, **{name: given[name] for name in same})


def read_prompts(pairs: Sequence[str], file: Path | None) -> dict[str, str] | None:
    """Prompts from NAME=TEXT pairs over those of a JSON or TOML file; None if there are none.

    Raises:
        UsageError: A pair has no "=", or the file is not a table of strings.
    """
    prompts = _prompt_file(file) if file else {}
    for pair in pairs:
        name, found, text = str(pair).partition("=")
        if not found:
            raise UsageError(f"--prompt {pair!r} has no '='.", hint='Type --prompt query="search_query: ".')
        prompts[name] = text
    return prompts or None


def _prompt_file(file: Path) -> dict[str, str]:
    try:
        text = Path(file).read_text(encoding="utf-8")
        found = tomllib.loads(text) if Path(file).suffix == ".toml" else json.loads(text)
    except (OSError, ValueError) as error:
        raise UsageError(f"The prompts in {file} cannot be read: {error}.") from error
    if not isinstance(found, dict):
        raise UsageError(f"{file} is not a table of prompt names and texts.")
    prompts: dict[str, str] = checked("prompts", found)
    return prompts


@dataclass(frozen=True, kw_only=True)
class ResolvedRequest:
    """A resolved request.

    Attributes:
        asked: Each model of the request.
        trained: The models that a recipe makes of them, for each seed; none without such a recipe.
        recipe: The recipe for tasks with labels.
        model_recipe: The recipe that makes models.
    """

    request: Request
    asked: tuple[ConfiguredModel, ...]
    trained: tuple[ConfiguredModel, ...]
    suites: tuple[Suite, ...]
    recipe: TaskRecipe | None
    model_recipe: ModelRecipe | None
    results: Path
    cache: Path
    data: DataSettings

    @property
    def subjects(self) -> tuple[ConfiguredModel, ...]:
        """Every model that is evaluated, once."""
        labelled = any(task.output == "label" for suite in self.suites for task in suite.tasks)
        asked = self.asked if labelled or self.model_recipe is None else ()
        return tuple(dict.fromkeys((*asked, *self.trained)))

    def is_evaluated(self, one: ConfiguredModel, task: Task) -> bool:
        """Whether a model is evaluated on a task: those that a recipe made where the task needs vectors."""
        return self.model_recipe is None or (one.training is None) == (task.output == "label")

    @staticmethod
    def of(request: Request, *, training: bool = False) -> ResolvedRequest:
        """Resolve the models, suites and recipes of a request.

        Args:
            request: As the user gave it.
            training: Whether models are trained and nothing is evaluated, so that no suite is needed.

        Raises:
            UsageError: A name or a setting cannot be used.
        """
        request = request.checked()
        _require_spelled(request.devices)
        if not request.models or not (request.suites or training):
            raise UsageError(
                "A run needs at least one model and one suite.", hint="`harness list` shows what there is."
            )
        cache, results = paths.cache_folder(request.cache), paths.results_folder(request.results)
        data = DataSettings(
            root=_existing_folder(paths.data_root(request.data)), offline=request.offline, cache=cache
        )
        suites = request.open_suites()
        if training:
            _require_model_recipe(request)
        recipes = _Recipes.of(suites, request)
        _check_bm25(request, suites)
        trained = recipes.model is not None
        asked = _configured_models(request, cache, recipe=trained or _only_trained(suites), plain=trained)
        _check_prompts(request.settings.prompts or {}, suites)
        made: tuple[ConfiguredModel, ...] = ()
        if recipes.model is not None:
            how = TrainingRequest(
                settings=request.settings,
                seeds=tuple(range(request.settings.seed, request.settings.seed + request.seeds)),
                train_data=request.train_data,
                results=results,
                data=data,
                threads=request.threads,
                minutes=request.checkpoint_minutes,
                sweep=recipes.sweep,
            )
            made = planned_models(tuple(dict.fromkeys(asked)), recipes.model, how)
        return ResolvedRequest(
            request=request,
            asked=asked,
            trained=made,
            suites=tuple(suites),
            recipe=recipes.task,
            model_recipe=recipes.model,
            results=results,
            cache=cache,
            data=data,
        )


def _check_bm25(request: Request, suites: Sequence[Suite]) -> None:
    """Refuse BM25 where it has nothing to rank, where it would be trained, and settings for vectors alone."""
    named = [text for text in request.models if bm25.is_bm25(text)]
    if not named:
        return
    if request.recipe:
        raise UsageError(
            f"{named[0]} has no weights: no recipe trains it.", hint=f"Leave out --recipe, or {named[0]}."
        )
    if not any(task.retrieves for suite in suites for task in suite.tasks):
        titles = ", ".join(suite.name for suite in suites)
        raise UsageError(
            f"{named[0]} ranks documents, and {titles} has no retrieval task: each of its tasks needs a "
            "vector for each text.",
            hint="Name a suite with retrieval, e.g. --suite nanobeir, or leave it out.",
        )
    given = [option for option in _given_settings(request) if option != "--document-text"]
    if given and len(named) == len(request.models):
        raise UsageError(
            f"{given[0]} is for models that give vectors; {named[0]} ranks documents by their words.",
            hint=f"Leave it out. Settings of BM25 are typed with it, e.g. {bm25.NAME}:k1=0.9,b=0.4.",
        )


def _only_trained(suites: Sequence[Suite]) -> bool:
    """Whether a recipe trains for every task, so that no model is evaluated as it is."""
    return all(task.output == "label" for suite in suites for task in suite.tasks)


def _configured_models(
    request: Request, cache: Path, *, recipe: bool, plain: bool
) -> tuple[ConfiguredModel, ...]:
    """The models in the order of the request; of two identical models the first name is used.

    With `recipe` no model is evaluated as it is; with `plain` the settings are not meant for these models.
    """
    options = ModelOptions(
        offline=request.offline,
        trust_remote_code=request.trust_remote_code,
        cache=cache,
        allow_extra=request.allow_extra,
        trained=recipe,
    )
    settings = Settings() if plain else request.settings
    every = [_with_name(subject(text, settings, options), text, request) for text in request.models]
    first = {(one.artifact.key, one.encoding): one for one in reversed(every)}
    return tuple(first[one.artifact.key, one.encoding] for one in every)


def _with_name(one: ConfiguredModel, text: str, request: Request) -> ConfiguredModel:
    name = request.names.get(text)
    return replace(one, artifact=replace(one.artifact, name=name)) if name else one


@dataclass(frozen=True, kw_only=True)
class PreparedRun:
    """A resolved request with its plan: `asked` are its models, `subjects` those that are evaluated."""

    request: Request
    asked: tuple[ConfiguredModel, ...]
    subjects: tuple[ConfiguredModel, ...]
    suites: tuple[Suite, ...]
    plan: Plan
    store: Store
    cache: Path
    recipe: TaskRecipe | None = None
    model_recipe: ModelRecipe | None = None

    def label(self, one: ConfiguredModel) -> str:
        """A model's name, with its seed or the start of its key where another model has the same name."""
        name = one.artifact.name
        alike = [other for other in self.subjects if other.artifact.name == name]
        if len(alike) == 1:
            return name
        seeds = [other.lineage.seed for other in alike if other.lineage is not None]
        if one.lineage is not None and len(set(seeds)) == len(alike):
            return f"{name} (seed {one.lineage.seed})"
        return f"{name} ({one.artifact.key[:8]})"

    @property
    def groups(self) -> tuple[tuple[ConfiguredModel, ...], ...]:
        """The evaluated models, those that differ in the seed of their training together."""
        found: dict[str, list[ConfiguredModel]] = {}
        for one in self.subjects:
            family = one.artifact.key if one.lineage is None else one.lineage.group
            found.setdefault(f"{family} {one.encoding}", []).append(one)
        return tuple(map(tuple, found.values()))

    def with_suites(self, hint: str) -> str:
        """An advice with the run's suites in place of `--suite SUITE`."""
        return hint.replace("--suite SUITE", " ".join(f"--suite '{suite.name}'" for suite in self.suites))

    @property
    def devices(self) -> tuple[str, ...]:
        """The requested devices; else every GPU, or the CPU."""
        return self.request.devices or _default_devices()


DEVICE = re.compile(r"cpu|mps|cuda(:\d+)?")
"""The spelling of a device."""


def _require_spelled(devices: Sequence[str]) -> None:
    """Refuse names that are no device's, without importing torch."""
    for name in devices:
        if not DEVICE.fullmatch(name):
            raise UsageError(
                f"{name!r} is no device.", hint="Type cpu, cuda, cuda:0, mps, or several with commas."
            )


def check_devices(devices: tuple[str, ...]) -> tuple[str, ...]:
    """The same devices, if this machine has each of them.

    Raises:
        UsageError: There is no such device.
    """
    import torch

    there = ["cpu", *(f"cuda:{index}" for index in range(torch.cuda.device_count()))]
    if torch.backends.mps.is_available():
        there.append("mps")
    for name in devices:
        if name not in there and f"{name}:0" not in there:
            raise UsageError(f"This machine has no device {name!r}.", hint=f"There is: {', '.join(there)}.")
    return devices


def _default_devices() -> tuple[str, ...]:
    import torch

    if torch.cuda.is_available():
        return tuple(f"cuda:{index}" for index in range(torch.cuda.device_count()))
    return ("cpu",)
