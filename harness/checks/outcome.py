"""The result of a check: its form in memory, in JSON and under `<results>/checks/`."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from harness.core.documents import DocumentFolder, DocumentKind
from harness.core.errors import RecordError
from harness.results.scores import format_delta
from harness.results.units import TRAINED

SCHEMA = 7
"""The version of a check's JSON; a newer version is refused. Version 3 added the digest, 4 `lost`, 5
`question`, `chain` and the source "default" of margins, 7 `model`, `artifacts` and `deltas` of `chain`."""

Overall = Literal["regressed", "inconclusive", "improved", "passed", "same"]
"""The verdict of a mean and of a whole check."""

Verdict = Overall | Literal["not testable", "missing"]
"""The verdict of a task: `not testable` has scores but no units to compare, `missing` lacks a score."""

VERDICTS: tuple[Verdict, ...] = (
    "regressed", "missing", "inconclusive", "not testable", "improved", "passed", "same",
)  # fmt: skip
"""The verdicts in the order of reports."""

PROBED = dict.fromkeys(("Classification", "MultilabelClassification", "Regression"), "probe")
SEEDED: Mapping[str, str] = PROBED | {"Clustering": "clustering"}
"""Types whose tasks draw texts at random: another seed gives another score of the same model. What learns."""

Question = Literal["port", "retrain", "replace"]
"""`port`: are the outputs the same? `retrain`: is this recipe worse? `replace`: is this model worse?"""

MarginSource = Literal["default", "policy", "runs", "checks", "stated"]
"""The source of a margin: the default number, a number of the policy, or for "auto" the baseline's repeated
runs or the share of answers that an equal model changes; in older files also earlier checks."""


TRAININGS = "3 or more trainings"
"""What a line of a retraining with one training a side lacks first; `to_settle` begins with it."""


@dataclass(frozen=True, kw_only=True)
class Sensitivity:
    """The power of a check on one task or mean, in shares of 1.

    Attributes:
        margin: The loss that is allowed.
        source: The source of the margin.
        automatic: The smallest margin within which an equal model is in 97.5 % of checks, 3.6 standard errors
            of the difference of equal models; None where nothing tells it.
        detectable: The loss that is seen as such in 80 % of checks, about 2.8 of these errors; None likewise,
            and where it would be above the score.
        passing: The chance that an equal model passes; None likewise.
        counted: Whether there are enough units to tell how many would be enough.
    """

    margin: float
    source: MarginSource = "policy"
    automatic: float | None = None
    detectable: float | None = None
    passing: float | None = None
    counted: bool = True


@dataclass(frozen=True, kw_only=True)
class Power:
    """The power of a check, by task and by the suite of a mean."""

    tasks: Mapping[str, Sensitivity]
    means: Mapping[str, Sensitivity]


def _migrate_equivalence(check: dict[str, Any]) -> dict[str, Any]:
    """A check of schema 1, a test of equivalence, in the form of schema 2."""

    def migrate_line(line: dict[str, Any]) -> dict[str, Any]:
        kept = {n: v for n, v in line.items() if n not in ("p_regressed", "p_improved", "max_drop")}
        if line.get("verdict") == "equivalent":
            kept["verdict"] = "same" if line.get("low") == line.get("high") == 0 else "passed"
        return kept | {"p": line.get("p_regressed") if line.get("verdict") == "regressed" else None}

    overall = "passed" if check.get("overall") == "equivalent" else check.get("overall")
    lines = {name: [migrate_line(one) for one in check.get(name, ())] for name in ("tasks", "means")}
    return {**check, **lines, "overall": overall}


@dataclass(frozen=True, kw_only=True)
class AskedQuestion:
    """The question of a check.

    Attributes:
        name: The question.
        source: Whether a user typed it.
    """

    name: Question = "replace"
    source: Literal["default", "typed"] = "typed"


@dataclass(frozen=True, kw_only=True)
class CheckedModel:
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


@dataclass(frozen=True, kw_only=True)
class _Line:
    """What a task and a mean of a check share; scores, differences and margins are shares of 1.

    Attributes:
        candidate, baseline: The score of each side, a mean over its runs.
        delta: Candidate minus baseline.
        low: The bound above which the true difference lies, at the policy's alpha: it decides of passing.
        high: The bound below which it lies, at the level of red: it decides of a regression.
        p: The p-value of the test that gave the verdict: for `regressed` of "not lower than the baseline",
            of tasks times their number; else of "lower by the margin or more". None without a test.
        margin: The loss that is allowed; of a task of a port what it may differ by, up or down.
        margin_source: The source of the margin.
        detectable: The loss that is red in 80 % of checks of these examples; None where nothing tells it.
        error: The standard error of the difference.
        to_settle: The units or seeds that would settle an inconclusive line, in words; empty otherwise.
    """

    candidate: float | None = None
    baseline: float | None = None
    delta: float | None = None
    low: float | None = None
    high: float | None = None
    p: float | None = None
    margin: float = 0.0
    margin_source: MarginSource = "policy"
    detectable: float | None = None
    error: float | None = None
    to_settle: str = ""

    @property
    def delta_text(self) -> str:
        """The difference with its interval, e.g. "−1.50 [−2.20, −0.80]"."""
        if self.delta is None or self.low is None or self.high is None:
            return format_delta(self.delta)
        return f"{format_delta(self.delta)} [{format_delta(self.low)}, {format_delta(self.high)}]"

    @property
    def needs_trainings(self) -> bool:
        """Whether it first lacks trainings, as one a side cannot judge a recipe."""
        return self.to_settle.startswith(TRAININGS)

    @property
    def other_needs(self) -> str:
        """What would settle it beside further trainings; empty for nothing."""
        return self.to_settle.removeprefix(TRAININGS).removeprefix("; ")

    @property
    def margin_text(self) -> str:
        """The margin in points, e.g. "0.50"."""
        return f"{100 * self.margin:.2f}"


@dataclass(frozen=True, kw_only=True)
class PartLoss(_Line):
    """A split and subset of a task, as a language, on which the candidate is lower.

    It is among those that Benjamini and Hochberg's procedure finds over the parts of all tasks.

    Attributes:
        part: Its name: the subset, with the split where a task has several.
        units: The number of units.
        collapsed: Whether it fell by more than the policy's `collapse`.
    """

    part: str
    units: int = 0
    collapsed: bool = False


@dataclass(frozen=True, kw_only=True)
class TaskOutcome(_Line):
    """The outcome of a task.

    Attributes:
        task, type: The task's name and type.
        suites: The suites of the check that have the task.
        metric: The metric of the difference.
        verdict: The verdict.
        reason: The reason where the verdict alone does not tell; empty otherwise.
        must_not_regress: Whether a regression fails the check.
        collapsed: Whether it fell by more than the policy's `collapse`, with an interval below 0.
        suspect: Whether it is lower by Benjamini and Hochberg's procedure over all tasks, at alpha.
        unit: The kind of units: "queries", "pairs", "texts", "draws" and the like.
        units: The number of units.
        runs: The number of runs (seeds) of the candidate and of the baseline.
        noise: Standard deviation over the baseline's runs, None for a single run.
        candidate_keys, baseline_keys: The EvaluationKeys of each side's records.
        lost: Its parts that are lower, the largest loss first.
    """

    task: str
    type: str
    suites: tuple[str, ...] = ()
    metric: str
    verdict: Verdict
    reason: str = ""
    must_not_regress: bool = True
    collapsed: bool = False
    suspect: bool = False
    unit: str = ""
    units: int = 0
    runs: tuple[int, int] = (0, 0)
    noise: float | None = None
    candidate_keys: tuple[str, ...] = ()
    baseline_keys: tuple[str, ...] = ()
    lost: tuple[PartLoss, ...] = ()

    @property
    def learner(self) -> str:
        """What stands between the vectors and the score: a training, a clustering, a probe, or nothing."""
        return "trained" if self.unit == TRAINED else SEEDED.get(self.type, "")


@dataclass(frozen=True, kw_only=True)
class MeanOutcome(_Line):
    """The outcome of the mean over the columns of one suite.

    Attributes:
        suite: The suite's name.
        verdict: The verdict on the mean.
        there, wanted, left_out: The number of tested columns, of all columns of the suite, and of those that
            the options left out.
        predicted: The benchmark that the suite stands for, with the predicted means of both sides: empty, or
            `target`, `candidate`, `candidate_low`, `candidate_high`, `baseline`, `baseline_low` and
            `baseline_high`.
    """

    suite: str
    verdict: Overall
    there: int = 0
    wanted: int = 0
    left_out: int = 0
    predicted: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Chain:
    """The candidate against the anchor of the baseline's chain.

    Attributes:
        anchor: The anchor's name.
        when: ISO time in UTC at which it was set.
        baselines: The number of baselines since then.
        means: The suites' means; `margin` is the budget of the chain.
        model, artifacts, deltas: The anchor's first model, its ArtifactKeys, and candidate minus anchor by
            tested task; empty in older files.
    """

    anchor: str
    when: str
    baselines: int
    means: tuple[MeanOutcome, ...]
    model: str = ""
    artifacts: tuple[str, ...] = ()
    deltas: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Check:
    """A whole check.

    Attributes:
        id: The start of the digest of its content without its times.
        when: ISO time in UTC.
        candidate, baseline: The two sides.
        suites: The names of its suites.
        recipe: The recipe of tasks with labels on both sides; empty without such tasks.
        policy: Every setting of the policy (docs/check.md).
        overall: The verdict: `same` if every task is, else by the means and the tasks that must not regress.
        because: The sentences that explain the verdict.
        exit_code: 0 pass, 1 regression or a missing score, 3 inconclusive, as the policy has it (decided in
            `overall_verdict.py`).
        tasks, means: The outcomes of tasks, in the order of the suites, and of each suite's mean.
        chain: The candidate against the baseline's anchor; None without one.
        warnings: Remarks that do not decide, e.g. on other library versions.
        seconds: The time of the check, with what it measured.
        question: The question that it asks.
    """

    id: str
    when: str
    candidate: CheckedModel
    baseline: CheckedModel
    suites: tuple[str, ...]
    recipe: str = ""
    policy: Mapping[str, Any]
    overall: Overall
    because: tuple[str, ...]
    exit_code: int
    tasks: tuple[TaskOutcome, ...]
    means: tuple[MeanOutcome, ...]
    chain: Chain | None = None
    warnings: tuple[str, ...] = ()
    seconds: float = 0.0
    question: AskedQuestion = AskedQuestion(source="default")

    def of(self, verdict: Verdict) -> tuple[TaskOutcome, ...]:
        """The tasks with a verdict."""
        return tuple(task for task in self.tasks if task.verdict == verdict)

    def to_json(self) -> dict[str, Any]:
        """The check as plain values; docs/json.md documents every field."""
        plain: dict[str, Any] = json.loads(json.dumps(asdict(self), allow_nan=False))
        return {"schema": SCHEMA, **plain}

    def write(self, results: Path) -> Path:
        """Write the check to `<results>/checks/<time>-<id>.json` unless an equal one is there.

        Args:
            results: The results folder.

        Returns:
            The path of the file, or of the equal one, which may differ in its times alone.

        Raises:
            ValueError: A number of the check is not finite.
        """
        plain = self.to_json()
        for former in check_files(results, self.id):
            with contextlib.suppress(RecordError):
                saved_check = CHECKS.read_document_file(former)
                if replace(saved_check, when=self.when, seconds=self.seconds).to_json() == plain:
                    return former
        return CHECKS.write_document(results, CHECKS.stem(self), self)


CHECKS = DocumentFolder(
    kind=DocumentKind(
        name="check",
        type=Check,
        schema=SCHEMA,
        migrations={1: _migrate_equivalence, **dict.fromkeys((2, 3, 4, 5, 6), lambda check: check)},
        hint="Remove it, and run the same check again.",
        digest_since=3,
    ),
    folder="checks",
    stem=lambda check: f"{re.sub('[-:]|[.+].*', '', check.when)}-{check.id}",
    then="`harness serve` shows all.",
)


def check_files(results: Path, id_: str) -> list[Path]:
    """The files of the checks with an id, newest first."""
    return sorted((results / CHECKS.folder).glob(f"*-{id_}.json"), reverse=True)
