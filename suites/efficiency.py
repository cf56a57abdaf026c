"""The suite `efficiency`: speed on synthetic sets of ModernBERT, and of a real corpus with its tokenizer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from harness.core import types
from harness.core.errors import UsageError, explain_unknown
from harness.core.types import Artifact, MeasuredModel, Outcome, Suite, SuiteOptions, Task
from harness.encoder.folder.description import describe
from harness.encoder.folder.modules_and_pooling import list_modules
from suites._efficiency.protocol import HARNESS, LARGEST_DOUBLING, METRIC, WAYS, SpeedProtocol
from suites._mteb.snapshot import filter_suite_splits
from suites._texts import TextParts, resolve_text_folder

PART, PARTS = 1000, 1024
"""The characters of a text of a corpus, and how many texts count at most."""


@dataclass(frozen=True, kw_only=True)
class _SpeedSource:
    """The source of a task of one length, that of its protocol, a harness.core.types.MeasuredSource."""

    protocol: SpeedProtocol
    per_machine: bool = True

    @property
    def scoring(self) -> str:
        """The protocol, which names its attention backend, and its version."""
        return f"{self.protocol.name} 1"

    def find_model_problem(self, task: Task, artifact: Artifact, dtype: types.Dtype) -> str:
        name, protocol, (longest,) = artifact.name, self.protocol, self.protocol.lengths
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
        if limit is not None and limit < longest and not description.is_unbound:
            shorter = task.name.replace(str(longest), "512")
            hint = f": take --tasks {shorter}" if limit >= 512 else ""
            return f"{name} has {limit:,} positions, and sequences of {longest:,} were asked for{hint}."
        return ""

    def estimate_tokens(self, task: Task) -> int:
        """The tokens of all rounds and of the passes before them, by the shapes of batches."""
        # A batch of 64 stands for the one that is searched.
        count = min(task.limit or 8192, self.protocol.sequences or 2 * LARGEST_DOUBLING)
        steps = self.protocol.rounds * count + (self.protocol.warmup + 8) * min(64, count)
        return len(task.splits) * len(task.subsets) * steps * self.protocol.lengths[0]

    def measure_model(self, task: Task, model: MeasuredModel, *, seed: int, data: Path | None) -> Outcome:
        from suites._efficiency.measuring import measure_speed

        return measure_speed(self.protocol, task, model, seed=seed)


@dataclass(frozen=True, kw_only=True)
class _CorpusSource:
    """The source of a task that encodes and searches texts, a harness.core.types.MeasuredSource."""

    parts: TextParts
    per_machine: bool = True
    cuts_texts: bool = True
    scoring: str = "efficiency:corpus 1"

    def find_model_problem(self, task: Task, artifact: Artifact, dtype: types.Dtype) -> str:
        has_context = describe(artifact.folder, own_code=artifact.trust_remote_code).two_stage is not None
        return f"{artifact.name} needs context documents, which a corpus has none of." if has_context else ""

    def estimate_tokens(self, task: Task) -> int:
        """The tokens of all rounds, at four characters each."""
        return (1 + HARNESS.rounds) * min(self.parts.count, task.limit or self.parts.count) * PART // 4

    def measure_model(self, task: Task, model: MeasuredModel, *, seed: int, data: Path | None) -> Outcome:
        from suites._efficiency.measuring import measure_corpus

        return measure_corpus(self.parts.load_texts(task), HARNESS.rounds, task, model)


def _open_efficiency_suite(argument: str, options: SuiteOptions) -> Suite:
    way, _, typed = argument.partition(":")
    if way != "corpus" and argument not in WAYS:
        ways = {"corpus", *filter(None, WAYS)}
        raise explain_unknown("way to time", argument, ways, then="Or leave it out.")
    if way != "corpus":
        return build_speed_suite(WAYS[argument], options)
    folder = resolve_text_folder(typed, "efficiency:corpus")
    parts = TextParts(folder=folder, size=PART, count=PARTS)
    count = len(parts.read_texts())
    if not count:
        raise UsageError(f"{folder} has no text of {PART:,} characters.", hint="Add longer files.")
    parts = replace(parts, count=count)
    task = _build_task(
        name=f"{parts.prefix}EfficiencyCorpus", data=parts.describe_data(), splits=("ours",),
        source=_CorpusSource(parts=parts), subsets=("corpus",),
    )  # fmt: skip
    title = f"Texts encoded end to end: {count:,} from {parts.origin}"
    return _build_suite(f"efficiency:{argument}", title, {"": task}, options)


def build_speed_suite(protocol: SpeedProtocol, options: SuiteOptions) -> Suite:
    """A suite with a task for each length of a protocol, and a column for each of its sets and engines.

    Raises:
        UsageError: Options ask for languages, subsets or a split that these sets lack.
    """
    prefix = protocol.name.title().replace(":", "").replace("-", "")
    tasks = {
        f"{longest} ": _build_task(
            name=f"{prefix}{longest}", splits=("ours", "padded"), subsets=protocol.sets,
            data=types.Data(content=f"synthetic {longest} {protocol.sequences} {protocol.least}"),
            source=_SpeedSource(protocol=replace(protocol, lengths=(longest,))),
        )
        for longest in protocol.lengths
    }  # fmt: skip
    return _build_suite(protocol.name, protocol.title, tasks, options)


_build_task = partial(Task, type="Efficiency", metric=METRIC, output="measured", roles=())


def _build_suite(name: str, title: str, tasks: Mapping[str, Task], options: SuiteOptions) -> Suite:
    """A suite with a column for each set and engine of its tasks, by the start of its name."""
    if options.subsets:
        raise UsageError(
            "--subsets chooses no set of this suite.", hint="Narrow it with --tasks or --splits."
        )
    columns = (
        types.Column(
            name=f"{start}{subset} ({engine})", type=task.type, shown_only="a speed",
            tasks=(replace(task, splits=(engine,), subsets=(subset,)),),
        )
        for start, task in tasks.items()
        for subset in task.subsets
        for engine in task.splits
    )  # fmt: skip
    notes = ("Numbers are tokens a second, padding not counted; docs/efficiency.md has the other figures.",)
    suite = Suite(name=name, title=title, columns=tuple(columns), notes=notes)
    return filter_suite_splits(suite, options)


SUITE = types.SuiteEntry(
    name="efficiency",
    summary="tokens a second, memory and MFU on synthetic sets of 512 and 8,192 tokens (docs/efficiency.md)",
    open=_open_efficiency_suite,
    argument="modernbert, for the released script's way; sdpa, eager or flash; corpus[:FOLDER]",
    measured=True,
)
