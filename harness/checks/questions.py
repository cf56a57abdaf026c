"""The question of a check: are a port's outputs the same, is a retraining's recipe worse, is a model worse?

A port is judged by tokens, then vectors, then scores that follow from vectors alone. A retraining of one
training a side cannot tell seeds from recipes, and says so. All else asks whether the model is worse.
"""

from __future__ import annotations

import math
import random
import textwrap
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.checks.baselines import Baseline
from harness.checks.outcome import TRAININGS, Chain, MeanOutcome, Overall, TaskOutcome
from harness.checks.overall_verdict import (
    ABSENT,
    Conclusion,
    describe_chain_regressions,
    find_single_tasks,
    merge_verdicts,
)
from harness.checks.policy import EXIT_CODES, Policy
from harness.checks.sides import Comparison
from harness.checks.task_verdicts import POINT, Outcome
from harness.core.encoding import Encoding
from harness.core.errors import HarnessError
from harness.core.types import CorpusSource, Dtype, Role, Task
from harness.data.locate import locate_data
from harness.encoder.folder.files import read_tensor_headers
from harness.encoder.folder.modules_and_pooling import weight_files
from harness.executors.local import check_devices, default_devices
from harness.jobs.context import load_model
from harness.jobs.jobs import prepare_task_data
from harness.plan.plan import ConfiguredModel
from harness.plan.request import Request
from harness.plan.resolved_request import ResolvedRequest
from harness.results.units import TRAINED


def _resolve_baseline_model(baseline: Baseline, typed: Request) -> ConfiguredModel:
    """The model of a baseline under a request for the candidate.

    Raises:
        HarnessError: It is not to be had, has changed, or is one of several.
    """
    if (count := len(baseline.artifacts)) > 1:
        raise HarnessError(f"the baseline has {count} models, and a port is of one")
    run = baseline.runs[0]
    pinned = f"{run.source}@{run.revision}" if run.revision and "@" not in run.source else run.source
    # By the options of the baseline: the candidate's would make of it what is compared with it.
    stored = Request.parse_options((), typed.suites, baseline.options)
    request = replace(
        typed, models=(pinned,), recipe=(), recipe_settings={}, settings=stored.settings,
        evaluation=stored.evaluation,
    )  # fmt: skip
    try:
        (model,) = ResolvedRequest.resolve_request(request).asked
    except HarnessError as error:
        raise HarnessError(f"{ABSENT}{pinned} cannot be loaded: {error.message}") from error
    if model.artifact.key != run.artifact:
        raise HarnessError(f"{ABSENT}{pinned} has changed since the baseline was set")
    return model


def suggest_question(candidate: ConfiguredModel, baseline: ConfiguredModel) -> str:
    """A sentence on the question that two models may ask rather than which is better; empty for none.

    It decides nothing: a few more steps of a training look like a port, and are none. Of a recipe the models
    are what it makes first.
    """
    mine, theirs = candidate.lineage, baseline.lineage
    if mine is not None and theirs is not None and mine.key != theirs.key:
        parents = [[parent.artifact for parent in one.parents] for one in (mine, theirs)]
        if mine.recipe == theirs.recipe and parents[0] == parents[1]:
            return (
                f"Both models were made of {mine.parents[0].name} by {mine.recipe}: --question retrain asks "
                "whether the recipe is worse, and not this one training."
            )
    if candidate.artifact.weights and candidate.artifact.weights == baseline.artifact.weights:
        return "Both models have the same weights: --question port asks whether their outputs are the same."
    return ""


LIMITS: Mapping[Dtype, float] = {"float32": 1e-6, "float16": 1e-5, "bfloat16": 5e-4}
"""The largest median of 1 - cosine of the same weights, by the coarser dtype. On 400 pairs of STSBenchmark
all-MiniLM-L6-v2 differs from its float32 by 7e-7 in float16 and 4.3e-5 in bfloat16, and by 1.5e-3 with noise
of 0.001 on each weight."""

SCORE = 0.05
"""The points by which a score that follows from vectors alone may differ."""

SURE = 3.0
"""The standard errors within which that is chance. The same weights in bfloat16 move scores a little, up as
often as down: at the level of a loss some score of every fortieth port would be red."""

TEXTS = 256
"""The most texts that are encoded, drawn with a seed from all tasks alike."""

BEHIND = "the tokenizer is right, so look at weights, pooling, normalization, precision"
"""What to do where vectors alone differ."""

ODD = "☃ 漢字 𓀀"
"""A text of signs that few vocabularies have, for the token of unknown words."""

_STORED: Mapping[str, Dtype] = {"F16": "float16", "BF16": "bfloat16"}


@dataclass(frozen=True, kw_only=True)
class PortComparison:
    """The comparison of tokens and vectors.

    Attributes:
        text: What was found, in sentences that may follow a colon.
        stage: The first stage that differs, "tokens" or "vectors"; empty if none does.
        compared: Whether both could be compared.
    """

    text: str
    stage: str = ""
    compared: bool = True


FAR, FARTHER = 0.98, 20
"""The quantile of the distances that is bounded beside the median, and by how many limits: a port that is
broken on long texts or by one prompt alone leaves the median as it is."""


@dataclass(frozen=True, kw_only=True)
class ModelOutputs:
    """The token ids of texts, their vectors (texts, dimension), and what names a token."""

    tokens: list[list[int]]
    vectors: NDArray[np.float32]
    tokenizer: Any = None

    def format_token(self, token: int | None) -> str:
        """A token id with its text, e.g. "100 ([UNK])"; None is beyond the end of a text."""
        convert = getattr(self.tokenizer, "convert_ids_to_tokens", None)
        return str(token) if convert is None or token is None else f"{token} ({convert(token)})"


def compare_outputs(
    models: Sequence[ConfiguredModel], resolved: ResolvedRequest, baseline: Baseline | None
) -> PortComparison:
    """Compare tokens and vectors of both models on texts of the suites.

    Args:
        models: The candidate, and the model that it is compared with unless a baseline names it.
        resolved: The request, with suites and data.
        baseline: The baseline; None where a model is in its place.
    """
    try:
        if baseline is not None:
            models = [*models, _resolve_baseline_model(baseline, resolved.request)]
        if models[0] == models[1]:
            return PortComparison(text="it is compared with itself.")
        if any(model.ranks or model.interacts_late or model.has_two_stages for model in models):
            return _skip_vectors("a model has no vector that depends on the text alone")
        texts = _draw_texts(resolved)
        first, second = (_encode_texts(model, texts, resolved) for model in models)
        return compare_encoded([text for _, _, text in texts], first, second, find_coarser_dtype(models))
    except (HarnessError, OSError) as error:
        return _skip_vectors(str(error).rstrip("."))


def _skip_vectors(why: str) -> PortComparison:
    return PortComparison(text=f"vectors were not compared, only scores: {why}.", compared=False)


def _draw_texts(resolved: ResolvedRequest) -> list[tuple[Task, Role, str]]:
    """Texts of the suites' tasks, each with its task and side; of a task that searches on both sides."""
    tasks = list({task.name: task for suite in resolved.suites for task in suite.tasks}.values())
    drawn: list[tuple[Task, Role, str]] = []
    sources = [task for task in tasks if task.output == "vector" and isinstance(task.source, CorpusSource)]
    for task in sources:
        located = locate_data(task.data, resolved.data, subsets=task.subsets)
        local, seed = replace(task, data=located.data), resolved.request.settings.seed
        assert isinstance(local.source, CorpusSource)
        with prepare_task_data(local, located.folder, resolved.cache):
            rows = local.source.corpus(local, seed=seed, data=located.folder) or ()
        texts = list(dict.fromkeys(row for row in rows if isinstance(row, str) and row.strip()))
        count = min(-(-TEXTS // len(sources)), len(texts))
        for text in [*random.Random(seed).sample(texts, count), ODD]:
            drawn += [(task, role, text) for role in task.roles]
    if not drawn:
        raise HarnessError("no task of the suites names its texts")
    return drawn


def _encode_texts(
    model: ConfiguredModel, texts: Sequence[tuple[Task, Role, str]], resolved: ResolvedRequest
) -> ModelOutputs:
    """Tokens and vectors by the project's own way; the model is dropped in the end."""
    request, encoding = resolved.request, model.encoding
    assert isinstance(encoding, Encoding)
    device = check_devices(request.devices or default_devices())[0]
    loaded: Any = load_model(model.artifact, encoding, device=device, batch_tokens=request.batch_tokens)
    groups: dict[tuple[str, Role], list[int]] = {}
    for place, (task, role, _) in enumerate(texts):
        groups.setdefault((encoding.resolve_prompt(task, role), role), []).append(place)
    tokens: list[list[int]] = [[] for _ in texts]
    vectors = np.empty((len(texts), loaded.dimension), dtype=np.float32)
    for (prompt, role), places in groups.items():
        some = [texts[place][2] for place in places]
        vectors[places] = loaded.encode(some, prompt=prompt, role=role)
        for place, ids in zip(places, loaded.list_token_ids(some, prompt=prompt, role=role), strict=True):
            tokens[place] = ids
    tokenizer = getattr(loaded.model, "tokenizer", None)
    return ModelOutputs(tokens=tokens, vectors=vectors, tokenizer=tokenizer)


def find_coarser_dtype(models: Sequence[ConfiguredModel]) -> Dtype:
    """The dtype of the largest limit among those that run, and those stored in one folder alone."""
    headers = [read_tensor_headers(weight_files(model.artifact.folder)) or {} for model in models]
    stored = [{_STORED[one.dtype] for one in own.values() if one.dtype in _STORED} for own in headers]
    kinds = {model.encoding.dtype for model in models if isinstance(model.encoding, Encoding)}
    return max(kinds | (stored[0] ^ stored[1]), key=lambda kind: LIMITS[kind])


def compare_encoded(
    texts: Sequence[str], candidate: ModelOutputs, baseline: ModelOutputs, dtype: Dtype
) -> PortComparison:
    """Compare what two models make of texts, some of them perhaps twice, with other prompts.

    `dtype` is the coarser precision of the two.
    """
    for text, mine, theirs in zip(texts, candidate.tokens, baseline.tokens, strict=True):
        if mine != theirs:
            pairs = zip([*mine, None], [*theirs, None], strict=False)
            place, first, second = next((n, a, b) for n, (a, b) in enumerate(pairs) if a != b)
            start = f"tokens differ. Token {place + 1} of {textwrap.shorten(text, 44, placeholder=' …')!r}"
            differing = f"is {candidate.format_token(first)}, in the baseline {baseline.format_token(second)}"
            then = "Compare the two tokenizers (tokenizer.json, lowercasing, special tokens)."
            return PortComparison(text=f"{start} {differing}. {then}", stage="tokens")
    if candidate.vectors.shape != baseline.vectors.shape:
        sizes = f"have {candidate.vectors.shape[1]} numbers, in the baseline {baseline.vectors.shape[1]}"
        return PortComparison(text=f"tokens are equal, vectors {sizes}: {BEHIND}.", stage="vectors")
    distances = _compute_distances(candidate.vectors, baseline.vectors)
    apart, most = float(np.median(distances)), float(np.quantile(distances, FAR))
    same = apart <= LIMITS[dtype] and most <= FARTHER * LIMITS[dtype]
    text = (
        f"tokens are equal, vectors {'agree' if same else f'are not: {BEHIND}'}. 1 − cosine "
        f"over {len(texts)} texts: median {apart:.1e} (limit of {dtype}: {LIMITS[dtype]:.0e}), "
        f"{100 * FAR:g}th percentile {most:.1e} (limit: {FARTHER * LIMITS[dtype]:.0e})."
    )
    return PortComparison(text=text, stage="" if same else "vectors")


def _compute_distances(first: NDArray[np.float32], second: NDArray[np.float32]) -> NDArray[np.float64]:
    """1 - cosine of each row; in float64, as in float32 it would be as large as the limit."""
    mine, theirs = (rows.astype(np.float64) for rows in (first, second))
    norms = np.linalg.norm(mine, axis=1) * np.linalg.norm(theirs, axis=1)
    distances = 1 - (mine * theirs).sum(axis=1) / np.where(norms > 0, norms, 1)
    # A model of static vectors makes zeros of a text without a known token, which are no direction.
    return np.where((mine == theirs).all(axis=1), 0.0, distances)


def judge_port(
    tasks: Sequence[TaskOutcome],
    means: Sequence[MeanOutcome],
    outputs: PortComparison,
    policy: Policy,
    chain: Chain | None = None,
) -> tuple[tuple[TaskOutcome, ...], tuple[MeanOutcome, ...], Conclusion]:
    """The outcomes and the verdict of a port, from the outcomes by their intervals and its outputs."""
    tasks = tuple(_judge_task(one, compared=outputs.compared) for one in tasks)
    # A mean moves with its tasks, which are judged one by one.
    settled: Overall = "passed" if outputs.compared else "inconclusive"
    means = tuple(replace(one, p=None, to_settle="") for one in means)
    lower = [one for one in means if one.verdict in ("regressed", "inconclusive") and one.delta is not None]
    means = tuple(replace(one, verdict=settled) if one in lower else one for one in means)
    end, text = merge_verdicts(tasks, means, policy, chain), outputs.text[0].upper() + outputs.text[1:]
    decisive = [one for one in tasks if one.must_not_regress]
    apart = [
        f"{one.task}: {one.delta_text} points, {one.margin_text} allowed."
        for one in decisive
        if one.verdict == "regressed"
    ]
    if outputs.stage or apart:
        reasons = [outputs.text] if outputs.stage else [f"scores differ. {text}", *apart]
        slow = describe_chain_regressions(chain, means)
        because = (f"Not the same model: {reasons[0]}", *reasons[1:], *slow)
        return tasks, means, Conclusion(verdict="regressed", because=because, exit_code=1)
    # Only a missing score, or one that cannot be tested, is left to hold it back.
    unsure = sum(one.verdict == "inconclusive" and not one.learner for one in decisive)
    if unsure and not outputs.compared and end.verdict not in ("inconclusive", "regressed"):
        doubt = f"{unsure} of {len(tasks)} scores differ by more than {SCORE:g} points, perhaps by chance."
        code = EXIT_CODES[policy.inconclusive]
        return tasks, means, Conclusion(verdict="inconclusive", because=(text, doubt), exit_code=code)
    because = (f"The same model: {outputs.text}" if outputs.compared else text,)
    if end.verdict in ("inconclusive", "regressed"):
        because = (*end.because, text)
    return tasks, means, replace(end, because=because)


def _judge_task(task: TaskOutcome, *, compared: bool) -> TaskOutcome:
    """A task red where a score that follows from vectors alone differs by more than SCORE and chance."""
    if task.verdict in ("same", "missing", "not testable"):
        return task
    if task.learner:
        # Such steps multiply noise that the vectors hardly have: the same weights in float16 moved a
        # clustering by 0.10 points.
        unsure = "inconclusive" if task.verdict == "regressed" else task.verdict
        return replace(task, verdict=unsure, p=None, to_settle="")
    limit, apart = SCORE * POINT + SURE * (task.error or 0.0), abs(task.delta or 0.0)
    task = replace(task, margin=limit, margin_source="default", p=None, to_settle="")
    if apart > limit:
        return replace(task, verdict="regressed")
    may_be_chance = apart > SCORE * POINT and not compared
    return replace(task, verdict="inconclusive" if may_be_chance else "passed")


TABLE = Path(__file__).with_name("seed_deviations.toml")
"""What other seeds change by printed tables; its comments say how the figures were read."""

SINGLE = (
    "This model {change}, but the recipe cannot be judged by one training of each side: what another seed "
    "would change is {known}."
)
KNOWN = "known from printed tables, and this is no loss beyond it"
"""A sentence on what single trainings leave open, and its end where the table has all these seeds."""


def find_seed_deviations(model: ConfiguredModel, suites: Sequence[str]) -> Mapping[str, Mapping[str, float]]:
    """By suite the deviations in points of each task and of the mean, where the table has this backbone."""
    parents = model.lineage.parents if model.lineage is not None else ()
    names = [name.casefold() for name in (model.artifact.name, *(parent.name for parent in parents))]
    rows = tomllib.loads(TABLE.read_text(encoding="utf-8"))["row"]
    return {
        row["suite"]: row["deviations"]
        for row in reversed(rows)
        if row["suite"] in suites and any(row["backbone"].casefold() in name for name in names)
    }


def judge_retraining(
    tasks: Sequence[TaskOutcome],
    means: Sequence[MeanOutcome],
    sides: Comparison,
    deviations: Mapping[str, Mapping[str, float]],
) -> tuple[tuple[TaskOutcome, ...], tuple[MeanOutcome, ...], str | None]:
    """The outcomes of a retraining, and a sentence on the means that single trainings leave open.

    Of a single training a side they are at most inconclusive. A loss stays red only if it is sure beside
    twice the variance that seeds are known to have: `deviations` in points, by suite and by task or "mean".
    The sentence is None without a single training.
    """
    if any(len(side.artifacts) > 1 for side in (sides.candidate, sides.baseline)):
        return tuple(tasks), tuple(means), None
    # A task without a test has no unit, and no part in its mean.
    tested = [task for task in tasks if task.verdict not in ("missing", "not testable")]
    single = [task for task in tested if task.unit != TRAINED or max(task.runs) == 1]
    # A mean has the seeds of its tasks: one task without repeats leaves the mean without them.
    suites = {suite for task in single for suite in task.suites}
    points = {name: row[name] for row in deviations.values() for name in row}
    judged = [_limit_verdict(one, points.get(one.task, 0.0)) if one in single else one for one in tasks]
    # Seeds change the mean of some tasks more than that of all, which is printed.
    names = {one.suite: "mean" for one in means if one.there == len(deviations.get(one.suite, ())) - 1}
    names |= {suite: task.task for suite, task in find_single_tasks(tasks, means).items()}
    printed = {s: row[names[s]] for s, row in deviations.items() if names.get(s) in row}
    judged_means = [_limit_verdict(m, printed.get(m.suite, 0.0)) if m.suite in suites else m for m in means]
    limited = [one for one in judged_means if one.needs_trainings]
    seed_effect = KNOWN if all(one.suite in printed for one in limited) else "unknown"
    changes = "; ".join(_describe_change(one, several=len(means) > 1) for one in limited)
    note = SINGLE.format(known=seed_effect, change=changes) if limited else ""
    return tuple(judged), tuple(judged_means), note if suites else None


def _describe_change(mean: MeanOutcome, *, several: bool) -> str:
    """What a model lost or gained, e.g. "is surely lower, −7.42 [−8.57, −6.07] points"."""
    place = f" on {mean.suite}" if several else ""
    if (mean.high or 0.0) < 0:
        return f"is surely lower, {mean.delta_text} points{place}"
    return f"{'surely gained' if (mean.low or 0.0) > 0 else 'differs by'} {mean.delta_text} points{place}"


def _limit_verdict(line: Outcome, deviation: float) -> Outcome:
    """The line, inconclusive unless it is the same or a loss beyond what seeds do; 0 where it is unknown."""
    if line.delta is None or line.verdict == "same":
        return line
    if line.verdict == "regressed" and deviation and line.error and line.high is not None:
        delta = line.delta or 0.0
        # The bound at the line's own level, its standard error widened by the seeds of both sides.
        wider = math.sqrt(1 + 2 * (deviation * POINT / line.error) ** 2)
        if delta + wider * (line.high - delta) < 0:
            return line
    settle = "; ".join(filter(None, (TRAININGS, line.to_settle)))
    return replace(line, verdict="inconclusive", p=None, to_settle=settle)
