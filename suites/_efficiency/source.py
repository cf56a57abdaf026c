"""The tasks of synthetic sets and of a corpus; no torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
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
from harness.encoder.folder.modules_and_pooling import list_modules
from suites._efficiency.protocol import HARNESS, LARGEST_DOUBLING, METRIC, SpeedProtocol
from suites._texts import TextParts

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
        """The protocol, which names its attention backend, and its version."""
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


@dataclass(frozen=True, kw_only=True)
class _CorpusSource:
    """The source of a task that encodes and searches texts, a harness.core.types.MeasuredSource."""

    parts: TextParts
    per_machine: bool = True
    cuts_texts: bool = True
    scoring: str = "efficiency:corpus 1"

    def find_model_problem(self, task: Task, artifact: Artifact, dtype: Dtype) -> str:
        """The reason why a model cannot be measured; empty if it can."""
        has_context = describe(artifact.folder, own_code=artifact.trust_remote_code).two_stage is not None
        return f"{artifact.name} needs context documents, which a corpus has none of." if has_context else ""

    def estimate_tokens(self, task: Task) -> int:
        """The tokens of all rounds, at four characters each."""
        return (1 + HARNESS.rounds) * min(self.parts.count, task.limit or self.parts.count) * PART // 4

    def measure_model(self, task: Task, model: MeasuredModel, *, seed: int, data: Path | None) -> Outcome:
        """Encode the texts and search among them (suites._efficiency.measuring)."""
        from suites._efficiency.measuring import measure_corpus

        return measure_corpus(self.parts.load_texts(task), HARNESS, task, model)


PART, PARTS = 1000, 1024
"""The characters of a text of a corpus, and how many texts count at most."""


def build_corpus_suite(folder: Path | None, argument: str, options: SuiteOptions) -> Suite:
    """A suite with one task: texts are encoded end to end and searched.

    Args:
        folder: The user's files; None for the documentation of the running Python.
        argument: What the user typed behind the suite's name.
        options: Languages, subsets and splits, none of which a corpus has.

    Raises:
        UsageError: The folder has no text of that size, or options narrow the suite.
    """
    parts = TextParts(folder=folder, size=PART, count=PARTS)
    count = len(parts.read_texts())
    if not count:
        raise UsageError(f"{folder} has no text of {PART:,} characters.", hint="Add longer files.")
    parts = replace(parts, count=count)
    task = _build_task(
        name=f"{parts.prefix}EfficiencyCorpus",
        data=parts.describe_data(),
        source=_CorpusSource(parts=parts),
        splits=ENGINES[:1],
        subsets=("corpus",),
    )
    title = f"Texts encoded end to end: {count:,} from {parts.origin}"
    return _build_suite(f"efficiency:{argument}", title, {"": task}, options)


def build_speed_suite(protocol: SpeedProtocol, options: SuiteOptions) -> Suite:
    """A suite with a task for each length of a protocol, and a column for each of its sets and engines.

    Raises:
        UsageError: Options ask for languages, subsets or splits, none of which these sets have.
    """
    prefix = protocol.name.title().replace(":", "").replace("-", "")
    tasks = {
        f"{longest} ": _build_task(
            name=f"{prefix}{longest}",
            data=Data(content=f"synthetic {longest} {protocol.sequences} {protocol.least}"),
            source=_EfficiencySource(protocol=protocol, longest=longest),
            splits=ENGINES,
            subsets=protocol.sets,
        )
        for longest in protocol.lengths
    }
    return _build_suite(protocol.name, protocol.title, tasks, options)


_build_task = partial(Task, type="Efficiency", metric=METRIC, output="measured", roles=())


def _build_suite(name: str, title: str, tasks: Mapping[str, Task], options: SuiteOptions) -> Suite:
    """A suite with a column for each set and engine of its tasks, by the start of its name."""
    if options.languages or options.subsets or options.splits:
        raise UsageError(
            "Sets of this suite have no languages, subsets or splits.", hint="Narrow the suite with --tasks."
        )
    columns = [
        Column(
            name=f"{start}{subset} ({engine})",
            type=task.type,
            tasks=(replace(task, splits=(engine,), subsets=(subset,)),),
            shown_only="a speed",
        )
        for start, task in tasks.items()
        for subset in task.subsets
        for engine in task.splits
    ]
    notes = ("Numbers are tokens a second, padding not counted; docs/efficiency.md has the other figures.",)
    return Suite(name=name, title=title, columns=tuple(columns), notes=notes)
