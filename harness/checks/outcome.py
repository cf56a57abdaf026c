"""Check on disk and in JSON; history.

What a check found: the form it has in memory, in JSON and under `<results>/checks/`.

The checks that were made, as they lie in a results folder.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from harness.documents import DocumentFolder, DocumentKind
from harness.scores import delta_text

SCHEMA = 1
"""The form of a check's JSON. A newer one is refused."""

Verdict = Literal["regressed", "improved", "equivalent", "inconclusive", "not testable", "missing"]
"""Of a task: `not testable` has scores but no units to resample, `missing` lacks a score."""

Overall = Literal["regressed", "improved", "equivalent", "inconclusive"]

VERDICTS: tuple[Verdict, ...] = (
    *("regressed", "missing", "inconclusive", "not testable"),
    *("improved", "equivalent"),
)
"""In the order in which a reader wants to see them."""


@dataclass(frozen=True, kw_only=True)
class Party:
    """One side of a check.

    Attributes:
        name: Of the model, fit for a table.
        source: What was typed.
        artifacts: The ArtifactKeys; several where a baseline holds repeated runs.
        revision: The pinned commit of a hub model.
        baseline: The name of the baseline that it was taken from, empty for a model.
    """

    name: str
    source: str
    artifacts: tuple[str, ...]
    revision: str | None = None
    baseline: str = ""


class _Difference:
    """The texts of a difference, shares of 1, as every report shows them."""

    delta: float | None
    low: float | None
    high: float | None
    margin: float

    @property
    def delta_text(self) -> str:
        """The difference with its interval, e.g. "−1.50 [−2.20, −0.80]"."""
        if self.delta is None or self.low is None or self.high is None:
            return delta_text(self.delta)
        return f"{delta_text(self.delta)} [{delta_text(self.low)}, {delta_text(self.high)}]"

    @property
    def margin_text(self) -> str:
        """The margin on both sides, e.g. "±0.50"."""
        return f"±{100 * self.margin:.2f}"


@dataclass(frozen=True, kw_only=True)
class TaskOutcome(_Difference):
    """One task. Scores, differences, margins and bounds are shares of 1; tables show them times 100.

    Attributes:
        task: Its name.
        type: Its type.
        suites: The suites of the check that have it.
        metric: The metric that was resampled.
        verdict: What is said of it.
        reason: Why, where the verdict alone does not tell; empty otherwise.
        must_not_regress: Whether the policy fails the check if it regresses.
        candidate: The candidate's score, a mean over its runs.
        baseline: Likewise.
        delta: Candidate minus baseline.
        low: Lower bound of the difference, one-sided at alpha.
        high: Upper bound.
        p_regressed: Corrected p-value of "not lower than by max_drop".
        p_improved: Corrected p-value of "not higher".
        margin: Differences within it do not count.
        max_drop: The drop that is allowed.
        unit: What was resampled: "queries", "pairs", "texts", "draws" and the like.
        units: How many there are.
        runs: Runs (seeds) of the candidate and of the baseline.
        noise: Standard deviation of the baseline's runs, None of a single one.
        to_settle: What would turn `inconclusive` into a verdict, in words; empty otherwise.
        candidate_keys: EvaluationKeys of its records.
        baseline_keys: Likewise.
    """

    task: str
    type: str
    suites: tuple[str, ...] = ()
    metric: str
    verdict: Verdict
    reason: str = ""
    must_not_regress: bool = True
    candidate: float | None = None
    baseline: float | None = None
    delta: float | None = None
    low: float | None = None
    high: float | None = None
    p_regressed: float | None = None
    p_improved: float | None = None
    margin: float = 0.0
    max_drop: float = 0.0
    unit: str = ""
    units: int = 0
    runs: tuple[int, int] = (0, 0)
    noise: float | None = None
    to_settle: str = ""
    candidate_keys: tuple[str, ...] = ()
    baseline_keys: tuple[str, ...] = ()

    @property
    def p_text(self) -> str:
        """The corrected p-value behind the verdict: of a gain where a task improved, else of a drop."""
        p = self.p_improved if self.verdict == "improved" else self.p_regressed
        if p is None:
            return "–"
        return "<0.0001" if p < 0.0001 else f"{p:.4f}"


@dataclass(frozen=True, kw_only=True)
class MeanOutcome(_Difference):
    """The mean over the columns of one suite, shares of 1.

    Attributes:
        suite: The suite's name.
        verdict: Of the mean.
        candidate: Over the columns that were tested.
        baseline: Likewise.
        delta: Candidate minus baseline.
        low: Lower bound at the level 1 − alpha; of several suites each has its part of alpha, and the mean
            of a single task has the bounds of that task.
        high: Upper bound.
        margin: Of the mean.
        there: Columns that were tested.
        wanted: Columns that the suite has.
        predicted: The benchmark that the suite stands for, with the candidate's and the baseline's
            predicted mean: empty, or `target`, `candidate`, `candidate_low`, `candidate_high`,
            `baseline`, `baseline_low` and `baseline_high`.
    """

    suite: str
    verdict: Overall
    candidate: float | None = None
    baseline: float | None = None
    delta: float | None = None
    low: float | None = None
    high: float | None = None
    margin: float = 0.0
    there: int = 0
    wanted: int = 0
    predicted: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Check:
    """A whole check.

    Attributes:
        id: Names it among others: the start of the digest of what was compared and how.
        when: ISO time in UTC.
        candidate: Who is judged.
        baseline: By whom.
        suites: The names of its suites.
        recipe: How both were trained for tasks with labels; empty without such tasks.
        policy: Every setting of the policy (docs/check.md).
        overall: The verdict.
        because: Sentences: what decided.
        exit_code: 0 pass, 1 regression, 3 inconclusive, as the policy has it.
        tasks: In the order of the suites.
        means: One for each suite.
        warnings: What does not decide but should be known, as other library versions.
        seconds: What the statistics took.
    """

    id: str
    when: str
    candidate: Party
    baseline: Party
    suites: tuple[str, ...]
    recipe: str = ""
    policy: Mapping[str, Any]
    overall: Overall
    because: tuple[str, ...]
    exit_code: int
    tasks: tuple[TaskOutcome, ...]
    means: tuple[MeanOutcome, ...]
    warnings: tuple[str, ...] = ()
    seconds: float = 0.0

    def of(self, verdict: Verdict) -> tuple[TaskOutcome, ...]:
        """The tasks of one verdict."""
        return tuple(task for task in self.tasks if task.verdict == verdict)

    def to_json(self) -> dict[str, Any]:
        """The check for machines; docs/json.md documents every field."""
        plain: dict[str, Any] = json.loads(json.dumps(asdict(self), allow_nan=False))
        return {"schema": SCHEMA, **plain}


CHECKS = DocumentFolder(
    kind=DocumentKind(name="check", type=Check, schema=SCHEMA),
    folder="checks",
    then="`harness serve` shows all.",
)


def check_files(results: Path, id_: str) -> list[Path]:
    """The files of the checks of one id, the newest first."""
    return sorted((results / CHECKS.folder).glob(f"*-{id_}.json"), reverse=True)
