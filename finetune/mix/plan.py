"""The plan of recipes that train on a mix of data sets."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from finetune.embedding.instructions import InstructionFormat
from finetune.embedding.plan import EmbeddingRecipe, count_set_rows, describe_training_data
from finetune.embedding.settings import compute_set_probabilities
from finetune.mix.settings import MixSet, MixSettings, choose_sets, explain_unknown_set, split_set_parts
from harness.core.errors import DataError, UsageError, explain_unknown
from harness.core.files import require_plain_name
from harness.core.keys import Lineage
from harness.core.types import SIDES, Artifact
from harness.data.training.sets import LocatedTraining, TrainingData
from harness.encoder.folder.description import Description
from harness.training.training import TrainingSpec
from suites._mteb import snapshot

Instructions = Callable[[], Mapping[str, str]]
"""A function at the top of a module that gives the instructions of an evaluation by the names of prompts."""


@dataclass(frozen=True, kw_only=True)
class MixRecipe(EmbeddingRecipe[MixSettings]):
    """A recipe that trains a model with one vector for each text on a mix of data sets.

    Attributes:
        mixes: The sets by variant, with "" for those without a variant of their own.
        evaluation: The instructions before the texts of tasks.
        own: Sets of the user's own data, which replace those of their names.
        alone: Whether they are the whole mix.
    """

    mixes: Mapping[str, tuple[MixSet, ...]]
    evaluation: Instructions
    own: tuple[MixSet, ...] = ()
    alone: bool = False

    facts: ClassVar[Mapping[str, str]] = {
        **EmbeddingRecipe.facts,
        "rows": "those with a missing or blank query or positive are left out, and blank negatives: `data` "
        "counts these rows, n of alpha does not, and the log of the training says how many they are",
    }

    @property
    def sets(self) -> tuple[MixSet, ...]:
        """The sets that are trained on, with the instructions of the user's own file."""
        user_instructions = self.settings.instruction_file.training
        mix_sets = {
            one.name: replace(one, instruction=dict(user_instructions).get(one.name, one.instruction))
            for one in self._all
        }
        return choose_sets(mix_sets, self.settings.sets)

    def list_data_parts(self) -> tuple[TrainingData | str, ...]:
        """What all sets read, in the order in which `plan` and `train` are given it."""
        return tuple(part for one in self.sets for part in one.parts)

    @property
    def all_data(self) -> tuple[TrainingData, ...]:
        """The data sets of every variant."""
        return tuple(dict.fromkeys(part for sets in self.mixes.values() for one in sets for part in one.data))

    def filter_set_names(self, absent: Collection[TrainingData]) -> tuple[str, ...]:
        """The names of the sets that read none of these."""
        return tuple(one.name for one in self.sets if not set(one.parts) & set(absent))

    def attach_user_data(self, given: Sequence[str]) -> MixRecipe:
        """The recipe with the user's own data.

        `NAME=DATA` puts data in the place of the set with that name, or adds a set; data without a name
        is a set of a mix without those of the recipe.

        Raises:
            UsageError: One is empty or left out by the settings, two have one name, named and unnamed ones
                are mixed, or a name in the settings is that of no set.
        """
        pairs = [_parse_data_argument(text) for text in given]
        if nameless := [name for name, data in pairs if not data.strip()]:
            raise UsageError(
                f"--train-data {nameless[0]}= names no data.",
                hint=f"Type --train-data {nameless[0]}=FILE. Is a variable of the shell unset?",
            )
        instructions = {one.name: one.instruction for one in self._all}
        own_sets = [
            MixSet(name=name or data, own=data, instruction=instructions.get(name, ""))
            for name, data in pairs
        ]
        alone = [not name for name, _ in pairs]
        if any(alone) and not all(alone):
            raise UsageError(
                "Of the training data some has the name of a set and some has none.",
                hint="Type NAME=DATA for each, which are added to the recipe's sets or replace them; or DATA "
                "alone for each, which are then the whole mix.",
            )
        names = [one.name for one in own_sets]
        if twice := [name for name in names if names.count(name) > 1]:
            raise UsageError(f"--train-data {twice[0]} is given twice.", hint="Leave one of them out.")
        recipe = replace(self, own=tuple(own_sets), alone=any(alone))
        recipe._check_sets()
        return recipe

    def check_recipe_settings(self) -> None:
        """Refuse settings that no training can have, whatever its data.

        Raises:
            UsageError: A value is out of its range, or an instruction is for no known task.
        """
        super().check_recipe_settings()
        for name, _ in self.settings.instruction_file.evaluation:
            _require_task(name)

    def _list_facts(self) -> dict[str, Any]:
        sets = tuple(
            f"{one.name}, divisor {one.divisor}, {one.instruction!r}: "
            + " + ".join(
                part if isinstance(part, str) else describe_training_data(part) for part in one.parts
            )
            for one in self.sets
        )
        prompts = self._build_prompts(InstructionFormat(separator="<sep>", start="<bos>"))
        return {**super()._list_facts(), "data": sets, **({"prompts": prompts} if prompts else {})}

    def _explain_data(self) -> str:
        empty = " and ".join(one.name for one in self.sets if one.divisor > self.settings.batch_size)
        none = f"; {empty} have none: a run is refused until --set sets=… leaves them out" if empty else ""
        return f"{super()._explain_data()} divisor: A group has batch_size // divisor rows of the set{none}."

    def list_assumptions(self) -> tuple[str, ...]:
        """What paper and code leave open on the sets, and the reading taken."""
        return tuple(f"{one.name}: {one.note}" for one in self.sets if one.note and not one.own)

    def _replaces_data(self, _data: Sequence[LocatedTraining]) -> bool:
        return self.alone

    def _check_sets(self) -> None:
        """Refuse names of no set, and a group without rows."""
        set_names = [one.name for one in self._all]
        for name, _ in self.settings.instruction_file.training:
            if name not in set_names:
                raise explain_unknown_set(name, set_names)
        chosen = self.settings.sets
        if chosen and (lost := [one.name for one in self.own if one.name not in chosen]):
            raise UsageError(
                f"--train-data gives {' and '.join(lost)}, which sets leaves out.",
                hint=f"Type --set sets={','.join((*chosen, *lost))}, or leave the data out.",
            )
        size = self.settings.batch_size
        empty = [one for one in self.sets if one.divisor > size]
        if empty:
            those = " and ".join(f"{one.name} has {size} // {one.divisor}" for one in empty)
            others = ",".join(one.name for one in self.sets if one not in empty)
            raise UsageError(
                f"A group of {those} = 0 rows.",
                hint=f"Type --set batch_size={max(one.divisor for one in empty)} or more, or leave them out: "
                f"--set sets={others or '…'}",
            )

    def _open_setup(self, spec: TrainingSpec, settings: MixSettings) -> Any:
        from finetune.mix.training import MixSetup

        prompts = self._build_prompts(InstructionFormat.read_instruction_format(spec.backbone.folder))
        return MixSetup(settings, self.sets, prompts)

    @property
    def _all(self) -> tuple[MixSet, ...]:
        """The sets before some are chosen."""
        base = () if self.alone else self.mixes.get(self.variant, self.mixes[""])
        return tuple({one.name: one for one in (*base, *self.own)}.values())

    def _build_prompts(self, form: InstructionFormat) -> dict[str, str]:
        """The prompts of an evaluation; a side without instructions has empty ones."""
        if self.settings.instructions == "none":
            return {}
        # The user's own instructions come last and win.
        named = {**self.evaluation(), **dict(self.settings.instruction_file.evaluation)}
        prompts = {name: form.format_prompt(text) for name, text in named.items()}
        if self.settings.instructions == "both":
            return prompts
        query, document = SIDES
        # A prompt of a whole task is for both sides; an empty one for its documents leaves it to the queries.
        bare = [name for name in prompts if not name.endswith((f"-{query}", f"-{document}"))]
        documents = {name: "" for name in prompts if name.endswith(f"-{document}")}
        return {**prompts, **documents, **{f"{name}-{document}": "" for name in bare}}

    def _plan_description(self, description: Description) -> Description:
        planned = super()._plan_description(description)
        prompts = self._build_prompts(InstructionFormat.read_instruction_format(description.folder))
        return replace(planned, prompts=prompts, default_prompt_name=None) if prompts else planned

    def _build_lineage(
        self, backbone: Artifact, settings: MixSettings, data: Sequence[LocatedTraining], seed: int
    ) -> Lineage:
        """The lineage with the sets of the mix, and whose data each of them is.

        The name of a set of own data is no part of the key, as it changes nothing.
        """
        lineage = super()._build_lineage(backbone, settings, data, seed)
        mix = [
            {
                "name": "" if one.own else one.name,
                "instruction": one.instruction if self.settings.instructions != "none" else "",
                "divisor": one.divisor,
                "parts": len(one.parts),
            }
            for one in self.sets
        ]
        own_names = [
            part.name if self.alone else f"{part.name} as {one.name}"
            for one, parts in split_set_parts(self.sets, data)
            for part in parts
            if part.own
        ]
        typed = {
            "instruction_file": str(self.settings.instruction_file),
            "sets": ",".join(self.settings.sets),
        }
        changed = {**lineage.changed, **{name: text for name, text in typed.items() if text}}
        return lineage.model_copy(
            update={
                "settings": {**lineage.settings, "mix": mix},
                "changed": changed,
                "own_data": ", ".join(own_names),
            }
        )

    def _compute_set_shares(self, data: Sequence[LocatedTraining]) -> list[tuple[MixSet, float, int]] | None:
        """The probability of each set and the rows of a group of it; None where some rows are not known.

        Where lists of negatives have to be read for that, a list is counted as one text.
        """
        if (counts := count_set_rows(data)) is None:
            return None
        rows = [sum(own) for _, own in split_set_parts(self.sets, counts)]
        chances = compute_set_probabilities(rows, self.settings.alpha).tolist()
        sizes = [
            self.settings.count_group_rows(_resolve_divisor(one, parts))
            for one, parts in split_set_parts(self.sets, data)
        ]
        return [*zip(self.sets, chances, sizes, strict=True)]

    def _estimate_work(
        self, settings: MixSettings, data: Sequence[LocatedTraining]
    ) -> tuple[int | None, int | None]:
        """The steps, and the rows that they read on average."""
        shares, counts = self._compute_set_shares(data), count_set_rows(data)
        if shares is None or counts is None:
            return settings.max_steps, None
        # The mean rows of a step, as MixOrder.count_mix_steps divides by it.
        step = self.settings.groups * sum(chance * size for _, chance, size in shares)
        if settings.max_steps is None and any(
            _is_measured(one, parts) for one, parts in split_set_parts(self.sets, data)
        ):
            return None, None
        steps = settings.max_steps or max(1, round(settings.epochs * sum(counts) / step))
        return steps, round(steps * step)

    def _count_training_texts(self, _steps: int, rows: int, data: Sequence[LocatedTraining]) -> int:
        """The texts of that many rows, a list of negatives counted as one text."""
        shares = self._compute_set_shares(data)
        if shares is None:
            return 0
        texts = [_count_max_texts(parts) for _, parts in split_set_parts(self.sets, data)]
        drawn = [chance * size for _, chance, size in shares]
        each = sum(n * part for n, part in zip(texts, drawn, strict=True)) / sum(drawn)
        return round(rows * each)

    def _check_training_data(self, data: Sequence[LocatedTraining]) -> None:
        for mix_set, parts in split_set_parts(self.sets, data):
            for part in parts:
                if part.data.score:
                    raise UsageError(
                        f"{part.name} has pairs with a score, and {mix_set.name} needs pairs that belong "
                        "together.",
                        hint="Give the pairs with a high score, in two columns.",
                    )
            divisor = _resolve_divisor(mix_set, parts)
            if not self.settings.count_group_rows(divisor):
                raise self.settings.explain_empty_group(mix_set.name, divisor)
            rows = count_set_rows(parts)
            needed = self.settings.count_group_rows(divisor) * self.settings.groups
            if rows is not None and sum(rows) < needed and not _is_measured(mix_set, parts):
                raise DataError(
                    f"{mix_set.name} has {sum(rows):,} rows, and a batch of it has {needed:,}.",
                    hint="Give more of them, leave the set out (--set sets=…), or type --set batch_size=…",
                )

    def _collect_plan_notes(
        self, backbone: Artifact, description: Description, settings: MixSettings
    ) -> tuple[str, ...]:
        notes = super()._collect_plan_notes(backbone, description, settings)
        if self.settings.instructions == "none":
            return notes
        return (*notes, *InstructionFormat.read_instruction_format(description.folder).notes)


def _parse_data_argument(text: str) -> tuple[str, str]:
    """The name of a set and its data in `NAME=DATA`; the name is empty for data alone."""
    name, equals, data = text.partition("=")
    # A path or an address may have an equals sign as well, but not in a name of letters, digits, - and _.
    if not (equals and name.replace("_", "").replace("-", "").isalnum()):
        return "", text
    require_plain_name(name, "the name of a set", hint="Type --train-data NAME=DATA.")
    return name, data


def _is_measured(mix_set: MixSet, parts: Sequence[LocatedTraining]) -> bool:
    """Whether the divisor of a set depends on rows, which have lists of negatives."""
    return not mix_set.divisor and any(path.several for part in parts for path in part.data.paths)


def _resolve_divisor(mix_set: MixSet, parts: Sequence[LocatedTraining]) -> int:
    """The divisor of a set as far as a plan knows it."""
    return mix_set.divisor or _count_max_texts(parts)


def _count_max_texts(parts: Sequence[LocatedTraining]) -> int:
    """The most texts of a row, a list of negatives counted once."""
    return max(part.data.texts_per_row for part in parts)


def _require_task(prompt: str) -> None:
    """Refuse an instruction for no known task or type of tasks.

    Raises:
        UsageError: The message names the nearest ones.
    """
    name = next((prompt.removesuffix(f"-{side}") for side in SIDES if prompt.endswith(f"-{side}")), prompt)
    tasks = snapshot.load_snapshot()
    task_names = {*tasks.tasks, *(tasks.find_task_info(one).type for one in tasks.tasks)}
    if name not in task_names:
        raise explain_unknown(
            "task or type of tasks",
            name,
            sorted(task_names),
            then="For a task of your own type --prompt TASK=TEXT in the evaluation.",
        )
