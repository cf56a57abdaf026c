"""The papers' conventions for GLUE: which raw metrics make a task's number."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from finetune.glue.tasks import TASKS
from harness.conventions import Convention

MATCHED, MISMATCHED, DEV = "validation_matched", "validation_mismatched", "validation"


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
    Convention(
        name="neobert",
        says="NeoBERT, appendix C: the mean of both metrics where there are two, and of MNLI's two sets",
        parts=MEANS_OF_ALL,
    ),
    Convention(
        name="optibert",
        says="OptiBERT, appendix D.1, as NeoBERT: the mean of both metrics, and of MNLI's two sets",
        parts=MEANS_OF_ALL,
    ),
    Convention(
        name="modernbert",
        says="ModernBERT, table 5: accuracy for MRPC and QQP (its QQP can be nothing else), Spearman for "
        "STS-B, MNLI matched; the paper names none of them",
        parts=_parts(stsb=SPEARMAN),
    ),
    Convention(
        name="mosaicbert",
        says="MosaicBERT: MNLI matched (the paper), the mean of accuracy and F1 for MRPC and QQP, Spearman "
        "for STS-B (its code)",
        parts=_parts(mrpc=ACCURACY_AND_F1, qqp=ACCURACY_AND_F1, stsb=SPEARMAN),
    ),
)

VIEWS: Mapping[str, Convention] = MappingProxyType({view.name: view for view in _ALL})
"""By name."""
