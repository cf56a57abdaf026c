"""The request of a run: its options, their checks, and the models, suites and recipe that it names."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Annotated, Any

from harness.core import files
from harness.core.arguments import (
    Allowances,
    Examples,
    Folder,
    Form,
    Gigabytes,
    Lengths,
    Minutes,
    NamedPlaces,
    Names,
    Option,
    Places,
    Processes,
    Samples,
    Seconds,
    Seed,
    Seeds,
    Table,
    Tokens,
    check_fields,
    check_value,
    collect_options,
    split_names,
)
from harness.core.encoding import Settings
from harness.core.errors import UsageError, explain_unknown
from harness.core.provenance import forbid_network
from harness.core.types import Purpose, Suite, SuiteOptions
from harness.executors.executor import LOCAL, Failure, RaySettings, SlurmSettings, parse_executor
from harness.executors.local import default_devices
from harness.executors.run_log import DeviceUse
from harness.jobs.recipe import ModelRecipe, TaskRecipe
from harness.plan import catalog
from harness.plan.catalog import RECIPE, EvaluationChoice, read_prompts
from harness.plan.plan import ConfiguredModel, Plan
from harness.search.plaid import KEEP_GIGABYTES
from harness.storage.remote_and_leases import Remote
from harness.storage.store import Store
from harness.storage.trackers import Trackers


def parse_changes(pairs: Any) -> Any:
    """The changed settings of FIELD=VALUE pairs; any other value is returned unchanged.

    Raises:
        UsageError: A pair has no "=".
    """
    if not isinstance(pairs, list | tuple):
        return dict(pairs) if isinstance(pairs, Mapping) else pairs
    changes: dict[str, Any] = {}
    for pair in pairs:
        name, equals, value = str(pair).partition("=")
        if not equals:
            raise UsageError(f"--set {pair!r} has no '='.", hint="Type e.g. --set learning_rate=3e-5.")
        changes[name.strip()] = value
    return changes


def parse_sweep(texts: Any) -> Any:
    """The values by setting, from texts SETTING=VALUE,VALUE; any other value is returned unchanged.

    Raises:
        UsageError: One has no "=" or an empty value, or a setting is given twice.
    """
    if not isinstance(texts, list | tuple):
        return dict(texts) if isinstance(texts, Mapping) else texts
    sweeps: dict[str, tuple[str, ...]] = {}
    for text in map(str, texts):
        name, equals, values = text.partition("=")
        if not equals:
            raise UsageError(
                f"--sweep {text!r} has no '='.", hint="Type e.g. --sweep learning_rate=1e-5,2e-5,3e-5."
            )
        if not all(value.strip() for value in values.split(",")):
            raise UsageError(
                f"--sweep {text!r} has an empty value.",
                hint="Type e.g. --sweep learning_rate=1e-5,2e-5,3e-5.",
            )
        if name.strip() in sweeps:
            raise UsageError(f"--sweep {name.strip()} is given twice.", hint="Name all values in one.")
        sweeps[name.strip()] = split_names(values)
    return sweeps


@dataclass(frozen=True, kw_only=True)
class Request:
    """The models, suites, settings and folders of a run, as the user gives them.

    Each field has its description. At most one recipe of each kind can be named, one for tasks with labels
    and one for models; a setting is named `recipe.setting` where both have it. A recipe for models makes one
    model for each of `seeds` seeds, counted from the seed of the settings. A `sweep` is of one setting or
    of all combinations of several, or of `samples` of them: each is a model, or only the one whose mean main
    score on the tasks in `select` (`suite:task,task`) is best.
    """

    models: Annotated[
        NamedPlaces,
        Option(
            "A name of the catalog, org/name[@revision] of the hub, a folder, or a model trained here. "
            "NAME=MODEL gives it another name. Repeat for several.",
            typed="--model",
            metavar="MODEL",
            alone=True,
            group="What",
        ),
    ]
    suites: Annotated[
        Places,
        Option(
            "Suite of tasks, e.g. mteb, beir or local:FOLDER (`harness list suites`). Repeat for several.",
            typed="--suite",
            metavar="SUITE",
            alone=True,
            group="What",
        ),
    ]
    recipe: Annotated[
        Names,
        Form(repeated=True),
        Option(
            "How the model is trained first, e.g. simcse or glue-quick (`harness list recipes`). Two "
            "can be given: one that makes a model, and one for tasks with labels.",
            metavar="RECIPE",
            group="Training",
        ),
    ] = ()
    recipe_settings: Annotated[
        Mapping[str, Any],
        Form(read=parse_changes, must="a mapping of settings to values", repeated=True),
        Option(
            "A setting of the recipe, e.g. max_steps=500 (`harness recipes show NAME`). Repeat for several.",
            typed="--set",
            parameter="changes",
            metavar="SETTING=VALUE",
            group="Training",
        ),
    ] = field(default_factory=dict)
    train_data: Annotated[
        Places,
        Form(read=lambda value: () if value in (None, "") else value),
        Option(
            "Train on this instead of the recipe's data: org/name, a file of pairs or triplets (JSONL, CSV, "
            "Parquet), a folder in BEIR's layout or of a teacher's scores, or code:FOLDER "
            "(docs/training-data.md). Repeat to train on several. For recipes A+B type A=DATA and B=DATA. "
            "For a mix, NAME=DATA replaces the set of that name, or adds one.",
            metavar="DATA",
            group="Training",
        ),
    ] = ()
    settings: Settings = field(default_factory=Settings)
    lengths: Annotated[
        Lengths,
        Option(
            "Evaluate at each of these maximum lengths instead of one, e.g. 512,1024,4096 "
            "(docs/backbones.md).",
            metavar="TOKENS",
            alone=True,
            group="Encoding",
        ),
    ] = ()
    limit: Annotated[
        Examples | None,
        Option(
            "At most N examples of each split and subset, for a quick look. Of a retrieval task these are "
            "queries, searched in the whole corpus. The scores are trials, and enter no other table.",
            metavar="N",
            alone=True,
            group="What",
        ),
    ] = None
    evaluation: Annotated[
        str,
        Form(must="the name of an evaluation"),
        Option(
            "Settings for the evaluation of a model that a recipe trained: those of the recipe (recipe,"
            " the default), another set of them (docs/training.md), or the model's own (own).",
            metavar="NAME",
            group="Encoding",
        ),
    ] = RECIPE
    options: SuiteOptions = field(default_factory=SuiteOptions)
    results: Annotated[
        Folder | None,
        Option("Results folder (default: ./results).", envvar="HARNESS_RESULTS", group="Output"),
    ] = None
    cache: Annotated[
        Folder | None,
        Option(
            "Cache of embeddings and prepared data (default: the user's cache folder).",
            envvar="HARNESS_CACHE",
            group="Machine",
        ),
    ] = None
    data: Annotated[
        Folder | None,
        Option(
            "Folder with data in the hub's layout, ORG/NAME below it. It is used before the hub.",
            envvar="HARNESS_DATA",
            group="Machine",
        ),
    ] = None
    remote: Annotated[
        str | None,
        Form(must="the URL of object storage"),
        Option(
            "Object storage that machines without a shared disk share, e.g. s3://bucket/folder: records, "
            "vectors and trained models are fetched from there and sent there (docs/cluster.md).",
            metavar="URL",
            envvar="HARNESS_REMOTE",
            group="Machine",
        ),
    ] = None
    offline: Annotated[
        bool, Option("Forbid the network. Tasks whose data is not here are named at once.", group="Machine")
    ] = False
    devices: Annotated[
        Names,
        Option(
            "Devices, e.g. cuda:0,cuda:1, with one process each (default: every GPU, else the CPU).",
            group="Machine",
        ),
    ] = ()
    executor: Annotated[
        str,
        Option(
            "Where jobs run: local (this machine), ray[:ADDRESS] or slurm[:SETTING=VALUE,...] "
            "(docs/cluster.md).",
            metavar="EXECUTOR",
            group="Machine",
        ),
    ] = LOCAL
    threads: Annotated[
        Processes | None,
        Option(
            "CPU threads of each process (default: torch's choice; at least 2 for CPU workers beside GPUs).",
            group="Machine",
        ),
    ] = None
    batch_tokens: Annotated[
        Tokens | None,
        Option(
            "Padded tokens that are encoded at once on each device, which bounds memory (default: "
            "65536). A longer text runs alone.",
            group="Machine",
        ),
    ] = None
    workers: Annotated[
        Processes | None,
        Option(
            "Trainings that run at once on each device (default: as many as memory and cores allow).",
            group="Machine",
        ),
    ] = None
    drop_vectors: Annotated[
        bool, Option("Remove a model's cached vectors once it has all scores of the run.", group="Machine")
    ] = False
    keep_vectors: Annotated[
        Gigabytes,
        Option(
            "Store the token vectors of a corpus if they take no more gigabytes than this (default: 64). "
            "Larger ones go directly into the index.",
            metavar="GIGABYTES",
            group="Machine",
        ),
    ] = KEEP_GIGABYTES
    track: Annotated[
        Trackers,
        Option(
            "Also write trainings and scores to a tracker: wandb, tensorboard, mlflow or trackio "
            "(docs/training.md). Repeat for several.",
            metavar="TRACKER",
        ),
    ] = ()
    gate: Annotated[
        bool,
        Option(
            "Run a model that fails the sanity checks. Its records say so.",
            typed="--no-gate",
            parameter="no_gate",
        ),
    ] = True
    trust_remote_code: Annotated[
        bool, Option("Run code from the model's repository. It needs a pinned commit.")
    ] = False
    allow: Annotated[
        Allowances,
        Option(
            "Accept what is otherwise refused: a contradiction by its name (docs/backbones.md); unused "
            "tensors by tensors=PATTERN; in a check, a setting that may differ, e.g. pooling. Repeat for "
            "several.",
            metavar="NAMES",
        ),
    ] = ()
    seeds: Annotated[
        Seeds,
        Option(
            "Number of models that a recipe makes, each with its own seed. Tables show their mean and "
            "standard deviation.",
            alone=True,
            group="Training",
        ),
    ] = 1
    context_seeds: Annotated[
        Seeds,
        Option(
            "Draws of the context documents of a two-stage model, one evaluation each. Tables show their "
            "mean and standard deviation.",
            alone=True,
            group="Encoding",
        ),
    ] = 1
    checkpoint_minutes: Annotated[
        Minutes,
        Option(
            "Minutes between two checkpoints of a training. A killed training resumes from the last one.",
            alone=True,
            group="Training",
        ),
    ] = 10.0
    sweep: Annotated[
        Mapping[str, Any],
        Form(read=parse_sweep, must="a mapping of a setting to its values", repeated=True),
        Option(
            "Train with each of these values of a setting, e.g. learning_rate=1e-5,3e-5,1e-4. Each gives a "
            "model; with --select only the best counts. Several settings give all combinations of their "
            "values. Repeat for each setting.",
            metavar="SETTING=VALUES",
            alone=True,
            group="Training",
        ),
    ] = field(default_factory=dict)
    samples: Annotated[
        Samples | None,
        Option(
            "Train only so many combinations of a sweep, drawn at random (default: all).",
            alone=True,
            group="Training",
        ),
    ] = None
    sample_seed: Annotated[
        Seed | None, Option("Seed of the draw of --samples (default: 42).", alone=True, group="Training")
    ] = None
    select: Annotated[
        Places,
        Option(
            "Tasks whose mean score chooses in a sweep, e.g. beir:NFCorpus,SciFact. Tables mark them, as "
            "they no longer test the model fairly. Repeat for several suites.",
            metavar="SUITE:TASKS",
            alone=True,
            group="Training",
        ),
    ] = ()
    force: Annotated[
        bool,
        Option(
            "Compute existing scores again, and replace their records. Cached vectors and finished runs are "
            "reused.",
            alone=True,
            group="Output",
        ),
    ] = False
    fail_fast: Annotated[bool, Option("Stop at the first failed task.", alone=True, group="Output")] = False
    purpose: Annotated[
        Purpose, Option("What the scores are for; a trial never enters a table.", typed="")
    ] = "final"
    budget: Annotated[
        Seconds | None,
        Option(
            "Seconds after which no new job starts. Tasks not reached are `stopped`; the same call continues "
            "with them. A budget of operations (--budget on the command line) is a setting of the recipe.",
            typed="",
        ),
    ] = None
    names: Annotated[
        Table,
        Option(
            "A name for records and tables, for each model as you wrote it in the call: "
            '`{"runs/1/last": "first"}`.',
            typed="",
        ),
    ] = field(default_factory=dict)

    @property
    def cluster(self) -> RaySettings | SlurmSettings | None:
        """The cluster that runs the jobs; None where this machine does."""
        return None if self.executor == LOCAL else parse_executor(self.executor)

    def limit_network(self) -> contextlib.AbstractContextManager[object]:
        """A context in which the network is available only if the request allows it.

        On a cluster the workers are kept off it, and the driver is kept off the hub.
        """
        return forbid_network(sockets=self.cluster is None) if self.offline else contextlib.nullcontext()

    @staticmethod
    def parse_options(
        models: Sequence[str], suites: Sequence[str], given: Mapping[str, Any], **more: Any
    ) -> Request:
        """The request for options of the command line, or for those stored in a baseline.

        Args:
            models: As the user typed them.
            suites: As the user typed them.
            given: Options of an evaluation by the names of their parameters; the others have their defaults.
            **more: Further fields of the request.

        Raises:
            UsageError: An option's value cannot be used.
        """
        names = {argument.parameter: name for name, argument in collect_options(Request).items()}
        values = {names.get(option, option): value for option, value in given.items()} | more
        values["prompts"] = read_prompts(values.get("prompts", ()), values.pop("prompt_file", None))
        if "no_gate" in given:
            values["gate"] = not check_value("no_gate", given["no_gate"], bool)
        return Request(models=tuple(models), suites=tuple(suites)).replace_fields(
            values, of="the command line"
        )

    def validate_fields(self) -> Request:
        """The request with every value in its form; a name alone stands for a list of one.

        Raises:
            UsageError: A value has another form; the message names it and its form.
        """
        return replace(
            check_fields(self, Request, "request"),
            # Scores of a sample are never final.
            purpose=self.purpose if self.limit is None else "trial",
            settings=check_fields(self.settings, Settings, "settings"),
            options=check_fields(self.options, SuiteOptions, "options"),
        )

    def require_whole_tasks(self) -> None:
        """Refuse a sample of the examples, and other trials, whose scores are never read again.

        Raises:
            UsageError: There is a limit, or the scores are trials.
        """
        if self.limit is not None:
            raise UsageError(
                "A limit is for a quick run: baselines, checks and watches need whole tasks.",
                hint="Leave out limit.",
            )
        if self.purpose == "trial":
            raise UsageError(
                "Scores of trials are never compared: baselines, checks and watches need final ones.",
                hint="Leave out purpose.",
            )

    def require_data_root(self) -> Path | None:
        """The data root, which is a folder; None if none is set.

        Raises:
            UsageError: It is not a folder.
        """
        root = files.resolve_data_root(self.data)
        # Before Python 3.14 Path.is_dir raises where a folder above may not be entered.
        if root is not None and not os.path.isdir(root):
            raise UsageError(
                f"The data root {root} is not a folder.",
                hint=f"`harness data pull --suite NAME --data {root}` makes one.",
            )
        return root

    def open_suites(self) -> Sequence[Suite]:
        """The suites of a request.

        Raises:
            UsageError: No suite has one of these names.
        """
        cache, results = self.folders.cache, self.folders.results
        suites = catalog.open_suites(self.suites, replace(self.options, cache=cache, results=results))
        if self.settings.document_text is not None:
            suites = [suite.with_documents(self.settings.document_text) for suite in suites]
        return suites if self.limit is None else [suite.with_limit(self.limit) for suite in suites]

    def open_remote(self) -> Remote | None:
        """The storage that other machines share, tried out; None without any.

        Raises:
            UsageError: It cannot be used, or is reached by a network that the request forbids.
        """
        url = files.resolve_remote_url(self.remote)
        if not url:
            return None
        remote = Remote(url)
        if self.offline and remote.needs_network:
            raise UsageError(
                f"--offline forbids the network, which {remote.url} needs.", hint="Leave one of them out."
            )
        # Tried out before any work: a missing right would else show only when results are sent.
        remote.require_usable()
        return remote

    @property
    def folders(self) -> SuiteOptions:
        """The cache and the results, for suites that are not narrowed."""
        cache, results = files.resolve_cache_folder(self.cache), files.resolve_results_folder(self.results)
        return SuiteOptions(cache=cache, results=results)

    @property
    def recipe_chains(self) -> tuple[str, ...]:
        """The recipes, each with the chain `A+B` that it stands for."""
        return tuple(map(catalog.resolve_recipe_chain, self.recipe))

    @property
    def evaluation_choice(self) -> EvaluationChoice:
        """The evaluation of models that recipes trained, and where it runs."""
        return EvaluationChoice(name=self.evaluation, executor=self.executor, devices=self.devices)

    def replace_fields(self, fields_: Mapping[str, Any], *, of: str) -> Request:
        """A request with changed fields, also those of its `settings` and its `options`.

        Raises:
            UsageError: No field has this name (the message names the called function, `of`), or a value has
                another form.
        """
        request_fields = {f.name for f in fields(Request)} - {"models", "suites", "settings"}
        # `cache` and `results` are also fields of SuiteOptions: those of the request are meant.
        parts = {part: {f.name for f in fields(part)} - request_fields for part in (Settings, SuiteOptions)}
        valid_names = request_fields.union(*parts.values())
        for name in fields_:
            if name not in valid_names:
                raise explain_unknown(f"argument of {of}", name, valid_names, then="See docs/python.md.")
        part_values = {
            part: {n: v for n, v in fields_.items() if n in names} for part, names in parts.items()
        }
        request_values = {name: value for name, value in fields_.items() if name in request_fields}
        # `options` may be given as a whole beside single fields of it: the whole is put in first.
        before = replace(self, **request_values).validate_fields()
        return replace(
            before,
            settings=replace(before.settings, **part_values[Settings]),
            options=replace(before.options, **part_values[SuiteOptions]),
        ).validate_fields()


@dataclass(frozen=True, kw_only=True)
class Choices:
    """The outcome and the effort of sweeps that were run first, as they decide how models are evaluated.

    Attributes:
        failures: Why a sweep has chosen none, by the key of its model.
        seconds, uses: The time that they took, and of it that of each device.
        texts_encoded, tokens_encoded: What they encoded.
    """

    failures: Mapping[str, Failure]
    seconds: float
    uses: tuple[DeviceUse, ...]
    texts_encoded: int
    tokens_encoded: int


@dataclass(frozen=True, kw_only=True)
class PreparedRun:
    """A resolved request with its plan: `asked` are its models, `subjects` those that are evaluated.

    `choices` is set once the sweeps are run on which the plan depends.
    """

    request: Request
    asked: tuple[ConfiguredModel, ...]
    subjects: tuple[ConfiguredModel, ...]
    suites: tuple[Suite, ...]
    plan: Plan
    store: Store
    cache: Path
    recipe: TaskRecipe | None = None
    stages: tuple[ModelRecipe, ...] = ()
    choices: Choices | None = None

    def format_model_label(self, model: ConfiguredModel) -> str:
        """What tells a model apart in the run: its name, and its length in a run at several lengths."""
        return f"{self.format_model_name(model)}{self.format_length(model)}"

    def format_model_name(self, model: ConfiguredModel) -> str:
        """A model's name, with its own settings, seed or key where another model has the same name."""
        name, length = model.artifact.name, self.format_length(model)
        alike = [o for o in self.subjects if o.artifact.name == name and self.format_length(o) == length]
        if len(alike) == 1:
            return name
        if model.context is not None and len({other.artifact.key for other in alike}) == 1:
            return f"{name} (context {model.context.seed})"
        facts = _list_training_facts(model)
        others = [_list_training_facts(other) for other in alike if other != model]
        if facts and facts not in others and all(others):
            # Alone among its like, a model that is not evaluated has its seed.
            apart = [fact for fact in facts if not all(fact in other for other in others)] or facts[-1:]
            return f"{name} ({', '.join(apart)})"
        return f"{name} ({model.artifact.key[:8]})"

    def list_own_settings(self, model: ConfiguredModel) -> list[str]:
        """The settings of a trained model that not all evaluated models of its name have."""
        alike = [_list_training_facts(o) for o in self.subjects if o.artifact.name == model.artifact.name]
        settings = _list_training_facts(model)[:-1]
        return [setting for setting in settings if not all(setting in facts for facts in alike)]

    def format_length(self, model: ConfiguredModel) -> str:
        """The words for the length of a model in a run at several lengths; empty in any other."""
        return f", {model.text_length} tokens" if self.request.lengths and model.text_length else ""

    @property
    def groups(self) -> tuple[tuple[ConfiguredModel, ...], ...]:
        """The evaluated models, those that differ in the seed of training or context together."""
        models_by_family: dict[str, list[ConfiguredModel]] = {}
        for model in self.subjects:
            family = model.artifact.key if model.lineage is None else model.lineage.group
            # The encoding without its draw of a context, so that all draws of a model are one group; none
            # where each seed chooses its own.
            encoding = "" if model.decides_encoding else model.loaded
            models_by_family.setdefault(f"{family} {encoding}", []).append(model)
        return tuple(map(tuple, models_by_family.values()))

    def insert_suites(self, hint: str) -> str:
        """A hint with the suites of the run in place of `--suite SUITE`."""
        return hint.replace("--suite SUITE", " ".join(f"--suite '{suite.name}'" for suite in self.suites))

    @property
    def evaluations(self) -> tuple[str, ...]:
        """Sentences on how models that recipes trained are evaluated, each once."""
        encoded = [one for one in (*self.plan.trials, *self.plan.cells) if one.recipe_plan is None]
        return tuple(filter(None, dict.fromkeys(one.subject.evaluation for one in encoded)))

    @property
    def devices(self) -> tuple[str, ...]:
        """The requested devices; else every GPU (the first for an object of this process), or the CPU."""
        count = 1 if any(model.is_object for model in self.asked) else None
        return self.request.devices or default_devices()[:count]


def _list_training_facts(model: ConfiguredModel) -> list[str]:
    """What may tell a trained model apart from others of its name: settings, and the seed."""
    if model.lineage is None:
        return []
    settings = {name: value for name, value in model.lineage.settings.items() if name != "seed"}
    texts = {name: f"{value:g}" if isinstance(value, float) else value for name, value in settings.items()}
    return [*(f"{name}={text}" for name, text in texts.items()), f"seed {model.lineage.seed}"]
