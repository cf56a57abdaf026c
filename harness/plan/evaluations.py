"""How models are evaluated: the prompts that a user names, and the settings of a recipe or of the model."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from harness.core.arguments import Table, check_value
from harness.core.encoding import Encoding, EvaluationSettings, Settings
from harness.core.errors import UsageError, explain_unknown
from harness.core.lineage import Lineage
from harness.core.types import SIDES, Suite
from harness.encoder.backbones import read_family
from harness.encoder.folder.description import Description
from harness.encoder.folder.modules import list_module_folders
from harness.encoder.resolved_encoding import describe_rope_scaling, resolve_encoding
from harness.executors.executor import LOCAL, parse_executor
from harness.executors.local import default_devices
from harness.plan import catalog


def read_prompts(pairs: Sequence[str], file: Path | None) -> dict[str, str] | None:
    """Prompts from NAME=TEXT pairs over those of a JSON or TOML file; None if there are none.

    Raises:
        UsageError: A pair has no "=", or the file is not a table of strings.
    """
    prompts = _read_prompt_file(file) if file else {}
    for pair in pairs:
        name, equals, text = str(pair).partition("=")
        if not equals:
            raise UsageError(f"--prompt {pair!r} has no '='.", hint='Type --prompt query="search_query: ".')
        prompts[name] = text
    return prompts or None


def _read_prompt_file(file: Path) -> dict[str, str]:
    try:
        text = Path(file).read_text(encoding="utf-8")
        content = tomllib.loads(text) if Path(file).suffix == ".toml" else json.loads(text)
    except (OSError, ValueError, RecursionError) as error:
        raise UsageError(f"The prompts in {file} cannot be read: {error}.") from error
    if not isinstance(content, dict):
        raise UsageError(f"{file} is not a table of prompt names and texts.")
    prompts: dict[str, str] = check_value("prompts", content, Table)
    return prompts


def require_sides(prompts: Mapping[str, str] | None) -> None:
    """Refuse prompts for anything but queries and documents, for commands that have no task.

    Raises:
        UsageError: A prompt has another name.
    """
    for name in prompts or {}:
        if name not in SIDES:
            raise explain_unknown("side", name, SIDES, then='Type e.g. --prompt query="search_query: ".')


def check_prompts(prompts: Mapping[str, str], suites: Sequence[Suite]) -> None:
    """Refuse prompts for no known side, task or type (with or without a side): they would be ignored."""
    if not prompts:
        return
    offered = [
        o for entry in catalog.load_suite_entries().values() for o in entry.offers() if o.kind == "task"
    ]
    tasks = {c.name for suite in suites for c in suite.columns} | {o.name for o in offered}
    # A column may have another name than its task, or several tasks: a prompt may have either name.
    tasks |= {task.name for suite in suites for task in suite.tasks}
    types = {t.type for suite in suites for t in suite.tasks} | {o.facts["type"] for o in offered}
    for name in prompts:
        base_name = name.removesuffix("-query").removesuffix("-document")
        if name not in SIDES and base_name not in tasks | types:
            valid_names = [*SIDES, *types, *tasks]
            then = "A prompt is for query, document, a type or a task (`harness list tasks`)."
            raise explain_unknown("side, type or task", name, valid_names, then=then)


OWN, RECIPE = "own", "recipe"
"""The choices that every model has: its own settings, and those of its recipe where there are any."""


@dataclass(frozen=True, kw_only=True)
class EvaluationChoice:
    """The evaluation that a user chooses for models that recipes trained.

    Attributes:
        name: "own", "recipe", or the name of another evaluation of the recipe.
        executor, devices: The places of the jobs, which may not run a recipe's precision.
    """

    name: str = OWN
    executor: str = LOCAL
    devices: tuple[str, ...] = ()

    def configure_encoding(
        self, description: Description, settings: Settings, lineage: Lineage | None, folder: Path
    ) -> tuple[Encoding, str]:
        """The encoding of a model, and a sentence on its recipe's evaluation or the scaling of its positions.

        Args:
            description: The model.
            settings: As the user asked for them, which win over those of the recipe.
            lineage: That of a trained model, which names its recipe.
            folder: The folder with its files, or with those of the backbone that is to be trained.

        Raises:
            UsageError: A setting does not fit the model.
        """
        encoding, about = self._apply_evaluation(description, settings, lineage, folder)
        scaled = describe_rope_scaling(description, settings, encoding)
        return encoding, "\n".join(filter(None, (about, scaled)))

    def _apply_evaluation(
        self, description: Description, settings: Settings, lineage: Lineage | None, folder: Path
    ) -> tuple[Encoding, str]:
        """The encoding of a model, and a sentence on the recipe's evaluation; empty if there is none."""
        evaluation = None if lineage is None else self._find_evaluation(lineage.recipe, lineage.variant)
        if lineage is None or evaluation is None:
            return resolve_encoding(description, settings), ""
        evaluation = evaluation.limit_settings(settings, description.position_limit)
        about = f"evaluation of {lineage.name}: "
        if self.name == OWN:
            about += f"the model's own settings (--evaluation recipe: {evaluation.text})"
            return resolve_encoding(description, settings), about
        reason = self._find_float32_reason(evaluation, folder)
        if reason is not None:
            evaluation = replace(evaluation, dtype=None)
            about += f"float32, as {reason}; "
        chosen = f" as in {self.name}" if self.name in catalog.find_evaluations(lineage.recipe) else ""
        about += f"{evaluation.text}{chosen} (--evaluation own: the model's own settings)"
        return resolve_encoding(description, settings, evaluation), about

    def check_name(self, lineages: Sequence[Lineage]) -> None:
        """Refuse a name that no recipe of the models of a run has.

        Raises:
            UsageError: None has it, or no recipe trained one of the models.
        """
        if self.name in (OWN, RECIPE):
            return
        if not lineages:
            raise UsageError(
                f"--evaluation {self.name} is for models that a recipe trained, and none of these is one.",
                hint="Leave it out. --max-length, --dtype, --prompt and --normalize are for any model.",
            )
        recipes = [*dict.fromkeys(lineage.recipe for lineage in lineages)]
        names = {name for recipe in recipes for name in catalog.find_evaluations(recipe) if name}
        if self.name not in names:
            then = "The evaluations of recipes are in docs/training.md."
            joined = " and ".join(recipes)
            raise explain_unknown(f"evaluation of {joined}", self.name, {OWN, RECIPE, *names}, then=then)

    def _find_evaluation(self, recipe: str, variant: str) -> EvaluationSettings | None:
        """The chosen evaluation of a recipe, or else that of the recipe; None where it has none."""
        evaluations = catalog.find_evaluations(recipe)
        return evaluations.get(self.name, evaluations.get(variant, evaluations.get("")))

    def _find_float32_reason(self, evaluation: EvaluationSettings, folder: Path) -> str | None:
        """The reason why a recipe's precision is not run, by the model or a device; None if it is."""
        if evaluation.dtype in (None, "float32"):
            return None
        if evaluation.dtype == "float16":
            # The devices of other machines are known only where a user names them.
            devices = self.devices or (() if parse_executor(self.executor) else default_devices())
            if "cpu" in devices:
                return "a CPU has no float16"
        families = (read_family(place) for place in list_module_folders(folder))
        return next((family.float32_only for family in families if family and family.float32_only), None)
