"""How a model that a recipe trained is evaluated: by the settings of its recipe, or by its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from harness.core.encoding import Encoding, EvaluationSettings, Settings
from harness.core.errors import UsageError, explain_unknown
from harness.core.lineage import Lineage
from harness.encoder.encoding import describe_rope_scaling, resolve_encoding
from harness.encoder.folder.description import Description
from harness.encoder.folder.trust import find_float32_reason
from harness.executors.executor import LOCAL, parse_executor
from harness.plan import catalog
from harness.plan.devices import default_devices

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
        return find_float32_reason(folder)
