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

from harness.core import paths
from harness.core.arguments import checked, checked_fields
from harness.core.encoding import Encoding, Settings
from harness.core.errors import UsageError, unknown
from harness.core.provenance import cores
from harness.core.types import SEED, SIDES, Purpose, Suite, SuiteOptions, Task
from harness.data.locate import DataSettings
from harness.data.offline import forbid_network
from harness.executors.executor import LOCAL, executor_settings
from harness.jobs.recipe import ModelRecipe, TaskRecipe, two_stages_refused
from harness.plan import catalog
from harness.plan.models import ModelOptions, subject
from harness.plan.plan import ConfiguredModel, Plan
from harness.plan.recipe_request import (
    RecipeRequest,
    Recipes,
    changes_of,
    require_model_recipe,
    vector_options,
)
from harness.plan.training_plan import TrainingRequest, planned_models
from harness.search import bm25, plaid
from harness.search.plaid import KEEP_GIGABYTES
from harness.storage.remote import Remote
from harness.storage.store import Store


@dataclass(frozen=True, kw_only=True)
class Request:
    """The models, suites, settings and folders of a run, as the user gives them.

    `models`, `suites` and `recipe` are spelled as on the command line; there is one recipe at most of each
    kind, that for tasks with labels and that for models. `recipe_settings` are the settings of the recipes
    that are changed, a name as `recipe.setting` where both have it. A recipe for models makes one for each of
    `seeds` seeds, counted from the seed of the settings, of all data sets of `train_data` in place of its own
    where that is given (`recipe=data` for one of several trainings), with a checkpoint every
    `checkpoint_minutes`. A `sweep` of one setting (a name with values) makes one for each value, and that
    with the best mean of the main scores of the tasks in `select` (`suite:task,task`) is the model. `devices`
    are torch device names; several devices run one worker process each. With an `executor` other than `local`
    jobs run on a cluster, spelled as on the command line. At most `batch_tokens` padded tokens are encoded at
    once on each, apart from a longer text, which runs alone. A model whose vectors depend on
    context documents is evaluated with as many draws of them as `context_seeds` says. With `gate` off, a
    model runs although the sanity gate refuses it, and its records say so; `allow_extra` are tensors (with *
    and ?) that may have no place in a model. After `budget` seconds no new job starts: the remaining tasks
    are "stopped", and the same request continues with them. With `drop_vectors` a model's cached vectors are
    removed once it has all scores of the request. Vectors of tokens of more than `keep_vectors` gigabytes, of
    the documents of an index, are not cached at all. `remote` is the URL of object storage that machines
    without a shared disk share: records, vectors and models are fetched from there and sent there. `names`
    are, by spelling, names for models in records and tables.
    """

    models: tuple[str, ...]
    suites: tuple[str, ...]
    settings: Settings = field(default_factory=Settings)
    options: SuiteOptions = field(default_factory=SuiteOptions)
    recipe: tuple[str, ...] = ()
    recipe_settings: Mapping[str, Any] = field(default_factory=dict)
    train_data: tuple[str, ...] = ()
    seeds: int = 1
    context_seeds: int = 1
    checkpoint_minutes: float = 10.0
    sweep: Mapping[str, Any] = field(default_factory=dict)
    select: tuple[str, ...] = ()
    results: Path | None = None
    cache: Path | None = None
    data: Path | None = None
    offline: bool = False
    devices: tuple[str, ...] = ()
    executor: str = LOCAL
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
    keep_vectors: float = KEEP_GIGABYTES
    remote: str | None = None
    names: Mapping[str, str] = field(default_factory=dict)

    def network(self) -> contextlib.AbstractContextManager[object]:
        """A context in which the network is available only if the request allows it.

        On a cluster the workers are kept off it, and the driver is kept off the hub.
        """
        alone = executor_settings(self.executor) is None
        return forbid_network(sockets=alone) if self.offline else contextlib.nullcontext()

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
        places = ("results", "cache", "data", "remote", "offline", "executor")
        limits = ("threads", "batch_tokens", "workers", "drop_vectors", "keep_vectors")
        same = (*places, *limits, "trust_remote_code", "recipe", "train_data")
        return Request(
            models=tuple(models),
            suites=tuple(suites),
            settings=_settings(given),
            options=SuiteOptions(
                **{name: given[name] for name in ("tasks", "languages", "subsets", "splits")}
            ),
            recipe_settings=changes_of(given["changes"]),
            devices=given["devices"],
            allow_extra=given["allow_extra"],
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
        _require_room(request)
        plaid.index_of(request.settings.index)
        _existing_folder(paths.data_root(request.data))
        request.open_remote()
        suites = request.open_suites()
        Recipes.of(suites, request.recipe_request())
        _check_prompts(request.settings.prompts or {}, suites)
        if request.devices and executor_settings(request.executor) is None:
            check_devices(request.devices)

    def open_suites(self) -> Sequence[Suite]:
        """The suites of a request.

        Raises:
            UsageError: There is no such suite.
        """
        cache, results = paths.cache_folder(self.cache), paths.results_folder(self.results)
        suites = catalog.open_suites(self.suites, replace(self.options, cache=cache, results=results))
        documents = self.settings.document_text
        return suites if documents is None else [suite.with_documents(documents) for suite in suites]

    def open_remote(self) -> Remote | None:
        """The storage that other machines share, tried out; None without any.

        Raises:
            UsageError: It cannot be used, or is reached by a network that the request forbids.
        """
        url = paths.remote_url(self.remote)
        if not url:
            return None
        remote = Remote(url)
        if self.offline and remote.needs_network:
            raise UsageError(
                f"--offline forbids the network, which {remote.url} needs.", hint="Leave one of them out."
            )
        remote.require_usable()
        return remote

    def recipe_request(self) -> RecipeRequest:
        """The part of the request that concerns recipes."""
        cache, results = paths.cache_folder(self.cache), paths.results_folder(self.results)
        return RecipeRequest(
            names=tuple(map(catalog.recipe_chain, self.recipe)),
            changes=self.recipe_settings,
            sweep=self.sweep,
            select=self.select,
            settings=self.settings,
            folders=SuiteOptions(cache=cache, results=results),
            train_data=self.train_data,
            seeds=self.seeds,
            trial=self.purpose == "trial",
        )

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
        **dict.fromkeys(("tasks", "pooling", "normalize", "max_length")),
        **dict.fromkeys(("query_length", "vectors")),
        **dict.fromkeys(("similarity", "index", "context", "prompt_file", "results", "cache", "data")),
        **dict.fromkeys(("remote",)),
        **dict.fromkeys(("threads", "batch_tokens", "workers")),
        **dict.fromkeys(("offline", "no_gate", "trust_remote_code"), False),
        "dtype": "float32",
        "executor": LOCAL,
        "document_text": None,
        "drop_vectors": False,
        "keep_vectors": KEEP_GIGABYTES,
        "prompts": (),
        "changes": (),
        "recipe": (),
        "train_data": (),
        "seed": SEED,
    }
)
"""The default values of the evaluation options."""


def _settings(given: Mapping[str, Any]) -> Settings:
    prompts = read_prompts(given["prompts"], given["prompt_file"])
    same = (field.name for field in fields(Settings) if field.name != "prompts")
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


def require_sides(prompts: Mapping[str, str] | None) -> None:
    """Refuse prompts for anything but queries and documents, where there is no task.

    Raises:
        UsageError: A prompt has another name.
    """
    for name in prompts or {}:
        if name not in SIDES:
            raise unknown("side", name, SIDES, then='Type e.g. --prompt query="search_query: ".')


@dataclass(frozen=True, kw_only=True)
class ResolvedRequest:
    """A resolved request.

    Attributes:
        asked: Each model of the request.
        trained: The models that a recipe makes of them, for each seed; none without such a recipe.
        recipe: The recipe for tasks with labels.
        stages: The recipes that make a model one after the other.
    """

    request: Request
    asked: tuple[ConfiguredModel, ...]
    trained: tuple[ConfiguredModel, ...]
    suites: tuple[Suite, ...]
    recipe: TaskRecipe | None
    stages: tuple[ModelRecipe, ...]
    results: Path
    cache: Path
    data: DataSettings

    @property
    def subjects(self) -> tuple[ConfiguredModel, ...]:
        """Every model that is evaluated, once."""
        labelled = any(task.output == "label" for suite in self.suites for task in suite.tasks)
        asked = self.asked if labelled or not self.stages else ()
        every = tuple(dict.fromkeys((*asked, *self.trained)))
        return _with_context_seeds(every, self.request.context_seeds)

    def is_evaluated(self, one: ConfiguredModel, task: Task) -> bool:
        """Whether a model is evaluated on a task: those that a recipe made where the task needs vectors."""
        return not self.stages or (one.training is None) == (task.output == "label")

    @staticmethod
    def of(request: Request, *, training: bool = False, remote: Remote | None = None) -> ResolvedRequest:
        """Resolve the models, suites and recipes of a request.

        Args:
            request: As the user gave it.
            remote: The storage from which trained models are fetched that are not here.
            training: Whether models are trained and nothing is evaluated, so that no suite is needed.

        Raises:
            UsageError: A name or a setting cannot be used.
        """
        request = request.checked()
        _require_spelled(request.devices)
        _require_room(request)
        if not request.models or not (request.suites or training):
            raise UsageError(
                "A run needs at least one model and one suite.", hint="`harness list` shows what there is."
            )
        cache, results = paths.cache_folder(request.cache), paths.results_folder(request.results)
        if executor_settings(request.executor) is not None:  # other machines know no working directory
            cache, results = cache.absolute(), results.absolute()
        data = DataSettings(
            root=_existing_folder(paths.data_root(request.data)), offline=request.offline, cache=cache
        )
        suites = request.open_suites()
        if training:
            require_model_recipe(request.recipe_request())
        recipes = Recipes.of(suites, request.recipe_request())
        _check_bm25(request, suites)
        trained = bool(recipes.stages)
        asked = _configured_models(request, cache, recipe=trained or _only_trained(suites), plain=trained)
        _check_late_interaction(asked, suites, "+".join(request.recipe))
        _check_two_stages(asked, recipes.task)
        _check_prompts(request.settings.prompts or {}, suites)
        made: tuple[ConfiguredModel, ...] = ()
        if recipes.stages:
            how = TrainingRequest(
                settings=request.settings,
                seeds=tuple(range(request.settings.seed, request.settings.seed + request.seeds)),
                train_data=request.train_data,
                results=results,
                data=data,
                threads=request.threads,
                minutes=request.checkpoint_minutes,
                sweep=recipes.sweep,
                remote=remote,
            )
            made = planned_models(tuple(dict.fromkeys(asked)), recipes.stages, how)
        return ResolvedRequest(
            request=request,
            asked=asked,
            trained=made,
            suites=tuple(suites),
            recipe=recipes.task,
            stages=recipes.stages,
            results=results,
            cache=cache,
            data=data,
        )


def _with_context_seeds(models: Sequence[ConfiguredModel], count: int) -> tuple[ConfiguredModel, ...]:
    """The models, those whose vectors depend on drawn documents once for each of `count` draws.

    Raises:
        UsageError: There are to be several draws, and no model has any.
    """
    if count > 1 and not any(one.context for one in models):
        raise UsageError(
            "--context-seeds is for models whose vectors depend on context documents; here is none.",
            hint="Leave it out.",
        )
    return tuple(own for one in models for own in _draws(one, count))


def _draws(one: ConfiguredModel, count: int) -> Sequence[ConfiguredModel]:
    """A model with each of several draws of context documents; the model alone where nothing is drawn."""
    encoding, draw = one.encoding, one.context
    if draw is None or not isinstance(encoding, Encoding):
        return [one]
    draws = [replace(draw, seed=draw.seed + number) for number in range(count)]
    return [replace(one, encoding=replace(encoding, context=draw)) for draw in draws]


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
    given = [option for option in vector_options(request.settings) if option != "--document-text"]
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
        results=request.results,
    )
    settings = Settings() if plain else request.settings
    every = [_with_name(subject(text, settings, options), text, request) for text in request.models]
    first = {(one.artifact.key, one.encoding): one for one in reversed(every)}
    return tuple(first[one.artifact.key, one.encoding] for one in every)


def _check_late_interaction(asked: Sequence[ConfiguredModel], suites: Sequence[Suite], recipe: str) -> None:
    """Refuse a multi-vector (ColBERT) model where it would be trained, or has nothing to search."""
    name = next((one.artifact.name for one in asked if one.interacts_late), None)
    if name is not None and recipe:
        raise UsageError(
            f"{name} gives a vector for each token: {recipe} does not train such a model.",
            hint="Give the backbone that it was made of, or leave out --recipe.",
        )
    if name is not None and suites and not any(task.retrieves for suite in suites for task in suite.tasks):
        titles = ", ".join(suite.name for suite in suites)
        raise UsageError(
            f"{name} gives a vector for each token, and {titles} has no retrieval task: each of its tasks "
            "needs a vector for each text.",
            hint="Name a suite with retrieval, e.g. --suite nanobeir, or leave it out.",
        )


def _check_two_stages(asked: Sequence[ConfiguredModel], recipe: TaskRecipe | None) -> None:
    """Refuse a two-stage model where a recipe would train one of its backbones for each task."""
    name = next((one.artifact.name for one in asked if one.has_two_stages), None)
    if name is not None and recipe is not None:
        raise two_stages_refused(name, recipe.name)


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
    stages: tuple[ModelRecipe, ...] = ()

    def label(self, one: ConfiguredModel) -> str:
        """A model's name, with its seed or the start of its key where another model has the same name."""
        name = one.artifact.name
        alike = [other for other in self.subjects if other.artifact.name == name]
        if len(alike) == 1:
            return name
        if one.context is not None and len({other.artifact.key for other in alike}) == 1:
            return f"{name} (context {one.context.seed})"
        seeds = [other.lineage.seed for other in alike if other.lineage is not None]
        if one.lineage is not None and len(set(seeds)) == len(alike):
            return f"{name} (seed {one.lineage.seed})"
        return f"{name} ({one.artifact.key[:8]})"

    @property
    def groups(self) -> tuple[tuple[ConfiguredModel, ...], ...]:
        """The evaluated models, those that differ in the seed of training or context together."""
        found: dict[str, list[ConfiguredModel]] = {}
        for one in self.subjects:
            family = one.artifact.key if one.lineage is None else one.lineage.group
            found.setdefault(f"{family} {one.loaded}", []).append(one)
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


def _require_room(request: Request) -> None:
    """Refuse an unknown executor, numbered devices of a cluster, and far more threads than cores here."""
    devices, executor, most = request.devices, request.executor, 2 * cores()
    if executor_settings(executor) is None:
        if request.threads is not None and request.threads > most:
            raise UsageError(
                f"--threads is {request.threads}, more than twice the {cores()} cores of this machine.",
                hint=f"Type {cores()} or fewer: more threads than cores make each step slower.",
            )
    elif tuple(devices) not in ((), ("cpu",), ("cuda",)):
        raise UsageError(
            f"--devices {','.join(devices)} with --executor {executor}: a cluster gives its workers devices.",
            hint="Type --devices cpu or --devices cuda, or leave it out.",
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


def one_device(name: str) -> str:
    """The device that a user named, or where the name is empty a GPU, or else the CPU.

    Raises:
        UsageError: This machine has no such device, or several are named.
    """
    if "," in name:
        raise UsageError(f"--device is {name!r}: this command works on one device.", hint="Name one of them.")
    return check_devices((name,))[0] if name else _default_devices()[0]


def _default_devices() -> tuple[str, ...]:
    """Every GPU of this machine, or the CPU."""
    import torch

    if torch.cuda.is_available():
        return tuple(f"cuda:{index}" for index in range(torch.cuda.device_count()))
    return ("cpu",)
