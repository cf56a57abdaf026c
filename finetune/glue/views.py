"""The papers' conventions: which raw metrics make a task's number, and the mean over tasks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from finetune.glue.tasks import TASKS
from harness.aggregate import Mean, mean

Raw = Mapping[tuple[str, str], float]
"""(split, metric) → value, of one task."""

MATCHED, MISMATCHED, DEV = "validation_matched", "validation_mismatched", "validation"


@dataclass(frozen=True, kw_only=True)
class View:
    """How a paper puts GLUE into one table.

    Attributes:
        name: What a user types.
        says: The convention, and where it is from.
        parts: Of each task, the raw metrics whose mean is its number.
    """

    name: str
    says: str
    parts: Mapping[str, tuple[tuple[str, str], ...]]

    def number(self, task: str, raw: Raw) -> float | None:
        """A task's number; None unless all that it is made of is there."""
        found = [raw.get(part) for part in self.parts[task]]
        known = [value for value in found if value is not None]
        return sum(known) / len(known) if len(known) == len(found) else None

    def mean(self, numbers: Mapping[str, float | None]) -> Mean:
        """The plain mean over the tasks that are there."""
        return mean("tasks", [numbers.get(task) for task in self.parts])


def _parts(**changed: tuple[tuple[str, str], ...]) -> Mapping[str, tuple[tuple[str, str], ...]]:
    """The first metric of every task, but for those given by the subset's name."""
    return MappingProxyType(
        {name: changed.get(task.subset, ((task.dev[0], task.metrics[0]),)) for name, task in TASKS.items()}
    )


BOTH_SETS = ((MATCHED, "accuracy"), (MISMATCHED, "accuracy"))
ACCURACY_AND_F1 = ((DEV, "accuracy"), (DEV, "f1"))
SPEARMAN = ((DEV, "spearman"),)
MEANS_OF_ALL = _parts(
    mnli=BOTH_SETS,
    mrpc=ACCURACY_AND_F1,
    qqp=ACCURACY_AND_F1,
    stsb=((DEV, "pearson"), (DEV, "spearman")),
)

_ALL = (
    View(
        name="neobert",
        says="NeoBERT, appendix C: the mean of both metrics where there are two, and of MNLI's two sets",
        parts=MEANS_OF_ALL,
    ),
    View(
        name="optibert",
        says="OptiBERT, appendix D.1, as NeoBERT: the mean of both metrics, and of MNLI's two sets",
        parts=MEANS_OF_ALL,
    ),
    View(
        name="modernbert",
        says="ModernBERT, table 5: accuracy for MRPC and QQP (its QQP can be nothing else), Spearman for "
        "STS-B, MNLI matched; the paper names none of them",
        parts=_parts(stsb=SPEARMAN),
    ),
    View(
        name="mosaicbert",
        says="MosaicBERT: MNLI matched (the paper), the mean of accuracy and F1 for MRPC and QQP, Spearman "
        "for STS-B (its code)",
        parts=_parts(mrpc=ACCURACY_AND_F1, qqp=ACCURACY_AND_F1, stsb=SPEARMAN),
    ),
)

VIEWS: Mapping[str, View] = MappingProxyType({view.name: view for view in _ALL})
"""By name."""
