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

from harness import catalog, paths
from harness.arguments import checked, checked_fields
from harness.data.locate import DataSettings
from harness.data.offline import forbid_network
from harness.errors import UsageError, shortened, unknown
from harness.models import ModelOptions, subject
from harness.plan import ConfiguredModel, Plan
from harness.recipe import Recipe, RecipeOptions
from harness.store import Store
from harness.types import SEED, SIDES, Purpose, Settings, Suite, SuiteOptions


@dataclass(frozen=True, kw_only=True)
class Request:
    """The models, suites, settings and folders of a run, as the user gives them.

    `models`, `suites` and `recipe` are spelled as on the command line. `devices` are torch device names;
    several devices run one worker process each. With `gate` off, a model runs although the sanity gate
    refuses it, and its records say so; `allow_extra` are tensors (with * and ?) that may have no place in a
    model. After `budget` seconds no new job starts: the remaining tasks are "stopped", and the same request
    continues with them. `names` are, by spelling, names for models in records and tables.
    """

    models: tuple[str, ...]
    suites: tuple[str, ...]
    settings: Settings = field(default_factory=Settings)
    options: SuiteOptions = field(default_factory=SuiteOptions)
    recipe: str = ""
    recipe_options: RecipeOptions = field(default_factory=RecipeOptions)
    results: Path | None = None
    cache: Path | None = None
    data: Path | None = None
    offline: bool = False
    devices: tuple[str, ...] = ()
    threads: int | None = None
    workers: int | None = None
    force: bool = False
    fail_fast: bool = False
    trust_remote_code: bool = False
    allow_extra: tuple[str, ...] = ()
    gate: bool = True
    purpose: Purpose = "final"
    budget: float | None = None
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
        same = ("results", "cache", "data", "offline", "threads", "workers", "trust_remote_code")
        return Request(
            models=tuple(models),
            suites=tuple(suites),
            settings=_settings(given),
            options=SuiteOptions(
                **{name: given[name] for name in ("tasks", "languages", "subsets", "splits")}
            ),
            recipe=given["recipe"],
            recipe_options=RecipeOptions(
                fresh_seeds=given["fresh_seeds"],
                transfer=not checked("transfer", given["no_transfer"]),
                source=given["mnli"] or None,
            ),
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
            recipe_options=checked_fields(self.recipe_options, RecipeOptions, "recipe_options"),
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
        _open_recipe_for(suites, request)
        _check_prompts(request.settings.prompts or {}, suites)
        if request.devices:
            check_devices(request.devices)

    def open_suites(self) -> Sequence[Suite]:
        """The suites of a request.

        Raises:
            UsageError: There is no such suite.
        """
        cache, results = paths.cache_folder(self.cache), paths.results_folder(self.results)
        return catalog.open_suites(self.suites, replace(self.options, cache=cache, results=results))

    def changed(self, fields_: Mapping[str, Any], *, of: str) -> Request:
        """A request with changed fields, also those of its `settings`, `options` and `recipe_options`.

        Raises:
            UsageError: There is no such field, and the message names the called function, `of`; or a value
                has another form.
        """
        own = {f.name for f in fields(Request)} - {"models", "suites", "settings"}
        parts = {
            part: {f.name for f in fields(part)} - own for part in (Settings, SuiteOptions, RecipeOptions)
        }
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
            recipe_options=replace(before.recipe_options, **made[RecipeOptions]),
        ).checked()


def _open_recipe_for(suites: Sequence[Suite], request: Request) -> Recipe | None:
    """The recipe for the tasks that need training, None where no task does."""
    learnt = [task.name for suite in suites for task in suite.tasks if task.output == "label"]
    if not learnt:
        if request.recipe_options != RecipeOptions():
            raise UsageError(
                "--fresh-seeds, --no-transfer and --mnli hold for tasks that a recipe trains for.",
                hint="Type --suite glue, or leave them out.",
            )
        if request.recipe:
            names = ", ".join(suite.name for suite in suites)
            raise UsageError(
                f"The recipe {request.recipe} has nothing to train for: {names} has no task with labels.",
                hint="Type --suite glue, or leave out --recipe.",
            )
        return None
    if not request.recipe:
        raise UsageError(
            f"A model must be trained for {shortened(learnt)}: which recipe?",
            hint=f"Type --recipe with one of {', '.join(catalog.recipes())} (`harness list recipes`).",
        )
    _refuse_options(request)
    alone = len(learnt) == sum(len(suite.tasks) for suite in suites)
    if alone:
        _refuse_settings(request)
    options = replace(request.recipe_options, seed=request.settings.seed)
    recipe = catalog.open_recipe(request.recipe, options)
    if alone and request.settings.seed != SEED and not recipe.uses_seed:
        raise UsageError(
            f"--seed has no effect: the seeds of {recipe.name} are its own, and there are no fresh ones.",
            hint="Type --fresh-seeds N for fresh seeds, or leave out --seed.",
        )
    return recipe


def _refuse_options(request: Request) -> None:
    """Refuse recipe options that contradict each other."""
    options = request.recipe_options
    if request.purpose == "trial":
        raise UsageError("A recipe's score is final: its runs are the trials.", hint="Leave out the purpose.")
    if options.source is not None and not options.transfer:
        raise UsageError("--mnli and --no-transfer contradict each other.", hint="Leave one of them out.")
    if options.source is not None and not options.source.exists():
        raise UsageError(f"There is no {options.source}.", hint="--mnli takes a model folder, or weights.")


def _refuse_settings(request: Request) -> None:
    """Refuse settings for finished models, which a recipe would silently ignore."""
    for one in fields(Settings):
        if one.name != "seed" and getattr(request.settings, one.name) != one.default:
            option = one.name.replace("_", "-")
            raise UsageError(
                f"--{option} holds for finished models; the recipe {request.recipe} says how one is trained.",
                hint=f"Leave out --{option}.",
            )


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
        **dict.fromkeys(("recipe", "languages", "subsets", "splits", "devices", "allow_extra"), ""),
        **dict.fromkeys(("tasks", "fresh_seeds", "mnli", "pooling", "normalize", "max_length")),
        **dict.fromkeys(("similarity", "prompt_file", "results", "cache", "data", "threads", "workers")),
        **dict.fromkeys(("no_transfer", "offline", "no_gate", "trust_remote_code"), False),
        "dtype": "float32",
        "prompts": (),
        "seed": SEED,
    }
)
"""The default values of the evaluation options."""


def _settings(given: Mapping[str, Any]) -> Settings:
    same = ("dtype", "pooling", "normalize", "max_length", "similarity", "seed")
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
    """A resolved request: `asked` has each model of the request, `subjects` each model once."""

    request: Request
    asked: tuple[ConfiguredModel, ...]
    suites: tuple[Suite, ...]
    recipe: Recipe | None
    results: Path
    cache: Path
    data: DataSettings

    @property
    def subjects(self) -> tuple[ConfiguredModel, ...]:
        """Every model, once."""
        return tuple(dict.fromkeys(self.asked))

    @staticmethod
    def of(request: Request) -> ResolvedRequest:
        """Resolve the models, suites and recipe of a request.

        Raises:
            UsageError: A name or a setting cannot be used.
        """
        request = request.checked()
        _require_spelled(request.devices)
        if not request.models or not request.suites:
            raise UsageError(
                "A run needs at least one model and one suite.", hint="`harness list` shows what there is."
            )
        cache, results = paths.cache_folder(request.cache), paths.results_folder(request.results)
        data = DataSettings(
            root=_existing_folder(paths.data_root(request.data)), offline=request.offline, cache=cache
        )
        suites = request.open_suites()
        recipe = _open_recipe_for(suites, request)
        asked = _configured_models(request, cache, trained=_only_trained(suites))
        _check_prompts(request.settings.prompts or {}, suites)
        return ResolvedRequest(
            request=request,
            asked=asked,
            suites=tuple(suites),
            recipe=recipe,
            results=results,
            cache=cache,
            data=data,
        )


def _only_trained(suites: Sequence[Suite]) -> bool:
    """Whether a recipe trains for every task, so that no model is evaluated as it is."""
    return all(task.output == "label" for suite in suites for task in suite.tasks)


def _configured_models(request: Request, cache: Path, *, trained: bool) -> tuple[ConfiguredModel, ...]:
    """The models in the order of the request; of two identical models the first name is used."""
    options = ModelOptions(
        offline=request.offline,
        trust_remote_code=request.trust_remote_code,
        cache=cache,
        allow_extra=request.allow_extra,
        trained=trained,
    )
    every = [_with_name(subject(text, request.settings, options), text, request) for text in request.models]
    first = {(one.artifact.key, one.encoding): one for one in reversed(every)}
    return tuple(first[one.artifact.key, one.encoding] for one in every)


def _with_name(one: ConfiguredModel, text: str, request: Request) -> ConfiguredModel:
    name = request.names.get(text)
    return replace(one, artifact=replace(one.artifact, name=name)) if name else one


@dataclass(frozen=True, kw_only=True)
class PreparedRun:
    """A resolved request with its plan: `asked` has each model of the request, `subjects` each model once."""

    request: Request
    asked: tuple[ConfiguredModel, ...]
    subjects: tuple[ConfiguredModel, ...]
    suites: tuple[Suite, ...]
    plan: Plan
    store: Store
    cache: Path
    recipe: Recipe | None = None

    def label(self, one: ConfiguredModel) -> str:
        """A model's name, with the start of its key where another model has the same name."""
        name = one.artifact.name
        alike = sum(other.artifact.name == name for other in self.subjects)
        return f"{name} ({one.artifact.key[:8]})" if alike > 1 else name

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
