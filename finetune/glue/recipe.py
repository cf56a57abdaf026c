"""A protocol as a recipe of the catalog."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from finetune.glue import probe
from finetune.glue.layout import Layout
from finetune.glue.protocol import Protocol
from finetune.glue.run import Finetune
from finetune.glue.runs import Runs
from harness.desk import Desk
from harness.errors import DataError, UsageError, unknown
from harness.jobs import Job
from harness.labelled import LabelSource
from harness.recipe import Estimate, Laid, Locate, Recipe, RecipeEntry, RecipeOptions
from harness.types import Artifact, Task


def entry(protocol: Protocol, summary: str) -> RecipeEntry:
    """A protocol with its variants, as the catalog lists it."""

    def open_(variant: str, options: RecipeOptions) -> Recipe:
        if variant and variant not in protocol.variants:
            then = f"Without one it is the recipe's own default: --recipe {protocol.name}."
            raise unknown(f"variant of {protocol.name}", variant, protocol.variants, then=then)
        chosen = protocol.variants[variant] if variant else protocol
        if (options.source is not None or not options.transfer) and not chosen.transfer:
            option = "--mnli" if options.source is not None else "--no-transfer"
            raise UsageError(
                f"{protocol.name} starts no task from a model for MNLI.", hint=f"Leave out {option}."
            )
        return GlueRecipe(protocol=chosen, variant=variant, options=options)

    says = {name: f"{one.source}; {one.runs} runs" for name, one in protocol.variants.items()}
    return RecipeEntry(
        name=protocol.name,
        summary=f"{summary}; {protocol.runs} runs on all of GLUE",
        open=open_,
        variants=says,
    )


@dataclass(frozen=True, kw_only=True)
class GlueRecipe:
    """A protocol with what a user asked of it (see harness.recipe.Recipe)."""

    protocol: Protocol
    variant: str
    options: RecipeOptions

    @property
    def name(self) -> str:
        """As a user types it."""
        return f"{self.protocol.name}:{self.variant}" if self.variant else self.protocol.name

    @property
    def source(self) -> str:
        """The paper's section, and its code."""
        return self.protocol.source

    @property
    def convention(self) -> str:
        """The paper's own, or NeoBERT's where there is no paper."""
        return self.protocol.view

    def lay_out(self, artifact: Artifact, task: Task, *, locate: Locate) -> Laid:
        """The runs of the task's grid, the choice, the runs at the chosen cell, and the score."""
        source = task.source
        assert isinstance(source, LabelSource)
        if source.like not in self.protocol.grids:
            raise unknown("task of GLUE", source.like, self.protocol.grids, then="See docs/glue.md.")
        runs = Runs(protocol=self.protocol, artifact=artifact, locate=locate, transfer=self.options.transfer)
        try:
            return Layout(runs=runs, options=self.options).score(task, self.name)
        except DataError as error:
            identity = {"artifact": artifact.key, "task": task.name, "recipe": self.name}
            return Laid(identity=identity, problem=error)

    def estimate(self, jobs: Sequence[Job], desk: Desk) -> list[Estimate | None]:
        """What each of these runs will take, from twenty steps on this machine."""
        return probe.estimates(desk, [job.work if isinstance(job.work, Finetune) else None for job in jobs])

    def probe(self, jobs: Sequence[Job]) -> Job | None:
        """A job that measures the memory of one run."""
        works = probe.largest([job.work for job in jobs if isinstance(job.work, Finetune)])
        if not works:
            return None
        work = probe.Memory(runs=works)
        return Job(key="memory", kind="train", label="memory of one run", work=work)
