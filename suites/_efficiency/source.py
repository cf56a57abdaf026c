"""The tasks of a length and their source; no torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from harness.core.errors import UsageError
from harness.core.types import (
    Artifact,
    Column,
    Data,
    Dtype,
    MeasuredModel,
    Outcome,
    Suite,
    SuiteOptions,
    Task,
)
from harness.encoder.folder.description import describe
from harness.encoder.folder.modules import list_modules
from suites._efficiency.protocol import LARGEST_DOUBLING, METRIC, SpeedProtocol

ENGINES = ("ours", "padded")
"""Our network without padding, and transformers' own class with it."""


@dataclass(frozen=True, kw_only=True)
class _EfficiencySource:
    """The source of a task of one length, a harness.core.types.MeasuredSource."""

    protocol: SpeedProtocol
    longest: int
    per_machine: bool = True

    @property
    def scoring(self) -> str:
        """The protocol and its version."""
        return f"{self.protocol.name} 1"

    def find_model_problem(self, task: Task, artifact: Artifact, dtype: Dtype) -> str:
        """The reason why a model cannot be measured; empty if it can."""
        name, protocol = artifact.name, self.protocol
        if not protocol.waits and dtype != "float32":
            return f"{protocol.name} is in float32, as the released script: leave out --dtype {dtype}."
        description = describe(artifact.folder, own_code=artifact.trust_remote_code)
        kinds = [module.class_name for module in list_modules(artifact.folder)]
        if kinds.count("Transformer") > 1 or description.two_stage is not None:
            return f"{name} has several backbones: a speed is of one."
        # A class of the model's own has no kind.
        if kinds[0] not in ("Transformer", None):
            return f"{name} has no transformer, but a module {kinds[0]}: there is no backbone to measure."
        limit = description.position_limit
        if limit is not None and limit < self.longest and not description.is_unbound:
            shorter = task.name.replace(str(self.longest), "512")
            hint = f": take --tasks {shorter}" if limit >= 512 else ""
            return f"{name} has {limit:,} positions, and sequences of {self.longest:,} were asked for{hint}."
        return ""

    def estimate_tokens(self, task: Task) -> int:
        """The tokens of all rounds and of the passes before them, by the shapes of batches."""
        protocol, runs = self.protocol, len(task.splits) * len(task.subsets)
        # A batch of 64 stands for the one that is searched.
        count = min(task.limit or 8192, protocol.sequences or 2 * LARGEST_DOUBLING)
        steps = protocol.rounds * count + (protocol.warmup + 8) * min(64, count)
        return runs * steps * self.longest

    def measure_model(self, task: Task, model: MeasuredModel, *, seed: int, data: Path | None) -> Outcome:
        """Measure each engine on the sets of the task (suites._efficiency.measuring)."""
        from suites._efficiency.measuring import measure_speed

        return measure_speed(self.protocol, self.longest, task, model, seed=seed)


def build_speed_suite(
    protocol: SpeedProtocol, title: str, lengths: Sequence[int], options: SuiteOptions
) -> Suite:
    """A suite with a task for each length, and a column for each of its sets and engines.

    Args:
        protocol: The way to measure.
        title: The heading of its table.
        lengths: The tokens of the longest sequences.
        options: Languages, subsets and splits, none of which these sets have.

    Raises:
        UsageError: One of them is asked for.
    """
    if options.languages or options.subsets or options.splits:
        raise UsageError(
            "Synthetic sets have no languages, subsets or splits.", hint="Narrow the suite with --tasks."
        )
    prefix = protocol.name.title().replace(":", "").replace("-", "")
    columns = []
    for longest in lengths:
        task = Task(
            name=f"{prefix}{longest}",
            type="Efficiency",
            metric=METRIC,
            splits=ENGINES,
            subsets=protocol.sets,
            data=Data(content=f"synthetic {longest} {protocol.sequences} {protocol.least}"),
            source=_EfficiencySource(protocol=protocol, longest=longest),
            output="measured",
            roles=(),
        )
        columns += [
            Column(
                name=f"{longest} {name} ({engine})",
                type="Efficiency",
                tasks=(replace(task, splits=(engine,), subsets=(name,)),),
                shown_only="a speed",
            )
            for name in protocol.sets
            for engine in ENGINES
        ]
    notes = ("Numbers are tokens a second, padding not counted; docs/efficiency.md has the other figures.",)
    return Suite(name=protocol.name, title=title, columns=tuple(columns), notes=notes)
