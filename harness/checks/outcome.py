"""The result of a check: its form in memory, in JSON and under `<results>/checks/`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from harness.documents import DocumentFolder, DocumentKind
from harness.scores import delta_text

SCHEMA = 1
"""The version of a check's JSON; a newer version is refused."""

Verdict = Literal["regressed", "improved", "equivalent", "inconclusive", "not testable", "missing"]
"""The verdict of a task: `not testable` has scores but no units to compare, `missing` lacks a score."""

Overall = Literal["regressed", "improved", "equivalent", "inconclusive"]

VERDICTS: tuple[Verdict, ...] = (
    *("regressed", "missing", "inconclusive", "not testable"),
    *("improved", "equivalent"),
)
"""The verdicts in the order of reports."""


@dataclass(frozen=True, kw_only=True)
class Party:
    """One side of a check.

    Attributes:
        name: The model's name, fit for a table.
        source: The model as a user typed it.
        artifacts: The ArtifactKeys; several where a baseline holds repeated runs.
        revision: The pinned commit of a hub model.
        baseline: The name of the baseline; empty for a model.
    """

    name: str
    source: str
    artifacts: tuple[str, ...]
    revision: str | None = None
    baseline: str = ""


class _Difference:
    """A difference between two sides in shares of 1, with its texts in reports."""

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
    """The outcome of a task; scores, differences, margins and bounds are shares of 1, in tables times 100.

    Attributes:
        task, type: The task's name and type.
        suites: The suites of the check that have the task.
        metric: The metric of the difference.
        verdict: The verdict.
        reason: The reason where the verdict alone does not tell; empty otherwise.
        must_not_regress: Whether a regression fails the check.
        candidate, baseline: The score of each side, a mean over its runs.
        delta: Candidate minus baseline.
        low, high: Bounds of the difference, each one-sided at alpha.
        p_regressed, p_improved: Corrected p-values of "not lower than by max_drop" and of "not higher".
        margin: Differences within it do not count.
        max_drop: The allowed drop.
        unit: The kind of units: "queries", "pairs", "texts", "draws" and the like.
        units: The number of units.
        runs: The number of runs (seeds) of the candidate and of the baseline.
        noise: Standard deviation over the baseline's runs, None for a single run.
        to_settle: The units or seeds that would settle an inconclusive task, in words; empty otherwise.
        candidate_keys, baseline_keys: The EvaluationKeys of each side's records.
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
    """The outcome of the mean over the columns of one suite, in shares of 1.

    Attributes:
        suite: The suite's name.
        verdict: The verdict on the mean.
        candidate, baseline: The mean of each side over the tested columns.
        delta: Candidate minus baseline.
        low, high: Bounds at the level 1 − alpha; of several suites each has its part of alpha, and the mean
            of a single task has the bounds of that task.
        margin: The margin of the mean.
        there, wanted: The number of tested columns, and of all columns of the suite.
        predicted: The benchmark that the suite stands for, with the predicted means of both sides: empty, or
            `target`, `candidate`, `candidate_low`, `candidate_high`, `baseline`, `baseline_low` and
            `baseline_high`.
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
        id: The start of the digest of the compared records and the policy.
        when: ISO time in UTC.
        candidate, baseline: The two sides.
        suites: The names of its suites.
        recipe: The recipe of tasks with labels on both sides; empty without such tasks.
        policy: Every setting of the policy (docs/check.md).
        overall: The verdict.
        because: The sentences that explain the verdict.
        exit_code: 0 pass, 1 regression, 3 inconclusive, as the policy has it.
        tasks, means: The outcomes of tasks, in the order of the suites, and of each suite's mean.
        warnings: Remarks that do not decide, e.g. on other library versions.
        seconds: The time of the statistics.
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
        """The tasks with a verdict."""
        return tuple(task for task in self.tasks if task.verdict == verdict)

    def to_json(self) -> dict[str, Any]:
        """The check as plain values; docs/json.md documents every field."""
        plain: dict[str, Any] = json.loads(json.dumps(asdict(self), allow_nan=False))
        return {"schema": SCHEMA, **plain}


CHECKS = DocumentFolder(
    kind=DocumentKind(name="check", type=Check, schema=SCHEMA),
    folder="checks",
    then="`harness serve` shows all.",
)


def check_files(results: Path, id_: str) -> list[Path]:
    """The files of the checks with an id, newest first."""
    return sorted((results / CHECKS.folder).glob(f"*-{id_}.json"), reverse=True)
