"""The marks of cells, and when a score has one: trained on its data or texts, or chosen by its scores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from harness.results.scores import score_text
from leaderboard.data.entries import Entry
from leaderboard.data.suites import Scope


@dataclass(frozen=True, kw_only=True, slots=True)
class CellKind:
    """A kind of cell: its meaning in the legend, a sample, its mark behind a number, its name in CSV."""

    meaning: str
    sample: str = "score"
    mark: str = ""
    csv: str = ""


OUTPUTS = {
    "multivector": ("multi-vector", "late interaction: several vectors for a text"),
    "sparse": ("sparse", "sparse vectors over words"),
    "cross-encoder": ("cross-encoder", "reads query and document together: no embeddings"),
}
"""What models give that give no single vector: in a word, and in a sentence."""

KINDS: Mapping[str, CellKind] = {
    "best": CellKind(meaning="best of the rows shown"),
    "second": CellKind(meaning="second best of the rows shown"),
    "part": CellKind(meaning="mean of some of the tasks: not ranked", csv="part"),
    "none": CellKind(meaning="no score", sample="–"),
    "failed": CellKind(meaning="the run failed", sample="×", csv="failed"),
    "other": CellKind(meaning="on another revision of the data than the pinned one, or on one that is not "
            "stated", mark="‡", csv="other revision"),
    "apart": CellKind(meaning="by another convention or on other splits than the column's: not to be "
            "compared with the unmarked", mark="≠", csv="not comparable"),
    "chance": CellKind(meaning="no better than a random answer (at a mean: a part of it is, not the mean)",
            mark="○", csv="at chance level"),
    "bad": CellKind(meaning="impossible value, never counted", sample="!", csv="impossible"),
    "away": CellKind(meaning="not applicable", sample="·"),
    "measured": CellKind(meaning="measured by this harness", sample="measured"),
    "imported": CellKind(meaning="from a public results repository", sample="imported"),
    "reported": CellKind(meaning="printed in a paper", mark="¶", csv="reported"),
    "leak": CellKind(meaning="the model was trained on this task's data, as its makers state (at a zero-shot "
            "share: on the rest of the tasks)", mark="†", csv="trained on"),
    "chosen": CellKind(meaning="settings were chosen on this data: the score errs upward", mark="§",
            csv="chosen"),
    "contradicted": CellKind(meaning="the source's own number of the whole and the mean of its parts differ "
            "by more than 0.05", mark="‖", csv="contradicted"),
    "seeds": CellKind(meaning="some seeds have no score: no mean", sample="2 of 3 seeds", csv="some seeds"),
    "approximate": CellKind(meaning="scores are from an approximate search, and not from an exact one",
            sample="model", mark=" (approximate search)", csv="approximate search"),
    "own": CellKind(meaning="trained on the user's own data", sample="model", mark=" (own data)",
            csv="own data"),
    "changed": CellKind(meaning="trained with other settings than the recipe's", sample="model",
            mark=" (changed settings)", csv="changed settings"),
    "selected": CellKind(meaning="scores on tasks selected the model: it errs upward on them and in means "
            "that have them", sample="model", mark=" (selected)", csv="selected"),
    **{output: CellKind(meaning=meaning, sample="model", mark=f" ({word})", csv=word)
       for output, (word, meaning) in OUTPUTS.items()},
    "outside": CellKind(meaning="outside the bounds: shown beside the models that pass them, without a rank",
            sample="model", mark=" (outside the bounds)", csv="outside the bounds"),
    "frontier": CellKind(meaning="on the frontier: no smaller model of the rows shown has as high a mean",
            sample="size", mark="★", csv="frontier"),
    "texts": CellKind(meaning="texts of this task are in the training data", mark="◊",
            csv="trained on texts"),
    "regressed": CellKind(meaning="lower than it may be", sample="▼"),
    "improved": CellKind(meaning="higher", sample="▲"),
    "unsure": CellKind(meaning="undecided, or something is missing", sample="?"),
}  # fmt: skip
"""Every kind of cell by its name, which is its class in HTML."""


def explain_marks(sentence: str) -> str:
    """The sentence, with what the marks at its numbers mean, once: a paper that quotes it has no legend.

    >>> explain_marks("a scores 26.10¶"), explain_marks("a scores 26.10")
    ('a scores 26.10¶; ¶: printed in a paper', 'a scores 26.10')
    """
    kinds = (kind for kind in KINDS.values() if len(kind.mark) == 1 and kind.mark in sentence)
    texts = (f"{kind.mark}: {kind.meaning}" for kind in kinds)
    return "; ".join([sentence, *(text for text in texts if text not in sentence)])


PLAIN = {"away", "measured", "imported"}
"""Kinds that need no line in a legend."""


def find_leak_kinds(entry: Entry, scopes: Sequence[Scope], texts: int | None, column: str = "") -> list[str]:
    """Why a score of some scopes flatters a model, as kinds.

    Args:
        entry: The entry that has the score.
        scopes: What the score answers.
        texts: How many texts of the task are in the training data; None where nobody counted.
        column: The name of a column of several tasks; else empty.
    """
    trained = entry.trained_on or ()
    marks = (
        ("leak", any(name in trained for name in (column, *(scope.task for scope in scopes)))),
        ("selected", describe_score_choices(entry, scopes)),
        ("texts", texts),
    )
    return [kind for kind, there in marks if there]


def describe_score_choices(entry: Entry, scopes: Sequence[Scope]) -> list[str]:
    """What the scores of some scopes chose of a model, in a sentence; none where they chose nothing."""
    lineage = entry.lineage
    chosen = [
        what for one in scopes if lineage for what in lineage.chosen_by(one.task, one.splits, one.subsets)
    ]
    return [f"its scores chose: {', '.join(dict.fromkeys(chosen))}"] if chosen else []


def format_part_mean(mean: float) -> str:
    """What the parts of a task come to, where its own result contradicts them.

    >>> format_part_mean(0.3565)
    'the mean of its parts is 35.65'
    """
    return f"the mean of its parts is {score_text(mean)}"


def format_leak_count(count: int) -> str:
    """How many texts of a task are in the training data.

    >>> format_leak_count(1), format_leak_count(1200)
    ('1 text of it is in the training data', '1,200 texts of it are in the training data')
    """
    phrase = "1 text of it is" if count == 1 else f"{count:,} texts of it are"
    return f"{phrase} in the training data"
