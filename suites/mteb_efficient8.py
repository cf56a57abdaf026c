"""The suite `mteb-efficient8`: the tasks on which the authors of Efficient-Embeddings chose and compared."""

from harness.core.types import Suite, SuiteEntry, SuiteOptions
from suites._mteb.source import build_full_use, build_task_suite, list_task_uses

TASKS = (
    "EmotionClassification",
    "TwentyNewsgroupsClustering",
    "SprintDuplicateQuestions",
    "AskUbuntuDupQuestions",
    "SciFact",
    "STS15",
    "SummEval",
)
"""One task of each type of MTEB(eng, v1), that whose scores follow its type's mean best."""

BITEXT = "Tatoeba"


def _open_efficient8_suite(_argument: str, options: SuiteOptions) -> Suite:
    english = list_task_uses("MTEB(eng, v1)")
    return build_task_suite(
        {**{name: english[name] for name in TASKS}, BITEXT: build_full_use(BITEXT)},
        called="mteb-efficient8",
        title="MTEB, 8 tasks of Efficient-Embeddings",
        options=options,
        shown_only={BITEXT: "112 languages, outside of the paper's mean"},
    )


SUITE = SuiteEntry(
    name="mteb-efficient8",
    summary="8 tasks of Efficient-Embeddings, one of each type; its mean is over 7, without Tatoeba",
    open=_open_efficient8_suite,
)
