"""One fine-tuning run: steps at the rates of its schedule, evaluations and early stopping."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.amp.grad_scaler import GradScaler

from finetune.glue.rows import TokenizedRows
from finetune.glue.settings import Trial
from finetune.gpu_steps import READ_STEPS, choose_sum_dtype, pack_rows, works_behind
from harness.core.types import SEED
from harness.results.weighted_metrics import METRICS, Floats

EVALUATED, LEAST = 16_384, 512
"""Padded tokens of a batch that is only scored: at first, and at least when memory runs out."""


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """The scores of a run at one step.

    Attributes:
        step: Optimizer steps done.
        metrics: Metrics by split and name; the first is the watched metric.
        predictions: By split, (rows,): classes, or numbers; NaN where a score is not finite.
    """

    step: int
    metrics: Mapping[tuple[str, str], float]
    predictions: Mapping[str, Tensor]

    @property
    def finite(self) -> bool:
        """Whether every prediction is finite."""
        return all(bool(torch.isfinite(said).all()) for said in self.predictions.values())

    @property
    def watched(self) -> float:
        """The metric of early stopping."""
        return next(iter(self.metrics.values()))

    @staticmethod
    def evaluate_splits(
        model: nn.Module,
        dev: Mapping[str, TokenizedRows],
        metrics: Sequence[str],
        step: int,
        *,
        autocast: Callable[[], Any] = contextlib.nullcontext,
    ) -> Evaluation:
        """Every metric of every dev split; early stopping and transfer use the first of the first split.

        Args:
            model: From `inputs` of a batch to scores, (rows, classes).
            dev: The rows of each split.
            metrics: Names of metrics in harness.results.weighted_metrics.METRICS.
            step: Optimizer steps done.
            autocast: The autocast of the forward passes.
        """
        predictions = {split: predict(model, rows, autocast=autocast) for split, rows in dev.items()}
        scores = {}
        for split, rows in dev.items():
            gold = rows.labels.cpu().double().numpy()
            ones = np.ones((1, len(gold)))
            for name in metrics:
                scores[split, name] = float(_compute_weighted_metric(name, gold, predictions[split], ones)[0])
        return Evaluation(step=step, metrics=scores, predictions=predictions)


def _compute_weighted_metric(metric: str, gold: Floats, predicted: Tensor, weights: Floats) -> Floats:
    """A metric of predictions under each row of weights, (resamples,); NaN is a wrong prediction."""
    # -1 is no class, and so is counted as wrong.
    return METRICS[metric](gold, np.nan_to_num(predicted.double().numpy(), nan=-1.0), weights)


HALVINGS = 10
"""The number of random divisions of a dev set into halves."""


def compute_cross_fit(
    evaluations: Sequence[Evaluation], gold: Mapping[str, Sequence[float]]
) -> dict[tuple[str, str], float]:
    """The metrics of a run whose evaluation is chosen on one half of the dev set and scored on the other.

    The evaluation is the first with the best watched metric. Both halves choose once, and the result is the
    mean over HALVINGS divisions, which are the same for every run. The end of the run itself is not
    cross-fitted: early stopping saw the whole set.

    Args:
        evaluations: Every evaluation of a run, in order.
        gold: The labels of every dev split, in the order of its rows.
    """
    labels = {split: np.asarray(values, dtype=float) for split, values in gold.items()}
    halves = {split: _draw_halves(len(values)) for split, values in labels.items()}
    scores = {
        (split, name): np.stack(
            [
                _compute_weighted_metric(name, labels[split], one.predictions[split], halves[split])
                for one in evaluations
            ]
        )
        for split, name in evaluations[0].metrics
    }
    # argmax gives the first of equals, as early stopping keeps the first best evaluation.
    chosen = next(iter(scores.values())).argmax(axis=0)
    # The other half of each division: 0 and 1, 2 and 3, ….
    others = np.arange(2 * HALVINGS) ^ 1
    return {name: float(found[chosen, others].mean()) for name, found in scores.items()}


def _draw_halves(rows: int) -> Floats:
    """Weights of 0 and 1 of random halves, (2 * HALVINGS, rows): each even row and the next are one set."""
    rng = np.random.default_rng(SEED)
    first = np.stack([rng.permutation(rows) < rows // 2 for _ in range(HALVINGS)])
    return np.stack([first, ~first], axis=1).reshape(2 * HALVINGS, rows).astype(float)


@dataclass(kw_only=True)
class Progress:
    """The progress of a run.

    Attributes:
        losses: The mean loss of each step.
        evaluations: All evaluations, in order.
        best: The best evaluation so far.
        weights: The tensors at the best evaluation, where that evaluation counts.
        notes: Deviations from the settings, in sentences.
        micro_batch: Rows computed at once; the gradients of a step are summed over these.
        record: The highest watched metric, from 0 on.
        behind: Evaluations since the record; starts at 1, as in NeoBERT's code.
    """

    losses: list[float] = field(default_factory=list)
    evaluations: list[Evaluation] = field(default_factory=list)
    best: Evaluation | None = None
    weights: dict[str, Tensor] | None = None
    notes: list[str] = field(default_factory=list)
    micro_batch: int | None = None
    record: float = 0.0
    behind: int = 1

    @property
    def diverged(self) -> bool:
        """Whether the last loss, or a prediction of the last evaluation, is not finite."""
        lost = bool(self.losses) and not math.isfinite(self.losses[-1])
        return lost or (bool(self.evaluations) and not self.evaluations[-1].finite)


def train_classifier(
    model: nn.Module,
    rows: TokenizedRows,
    trial: Trial,
    evaluate: Callable[[nn.Module, int], Evaluation],
    *,
    tell: Callable[[int, int, float], None] = lambda _step, _steps, _loss: None,
    micro_batch: int | None = None,
    read_every: int = READ_STEPS,
) -> Progress:
    """Carry out a run.

    Args:
        model: From `inputs` of a batch to scores, (rows, classes); trained in place.
        rows: The training rows.
        trial: All settings; its seed must have been set before the model's head was drawn.
        evaluate: Scores the model after a number of steps.
        tell: Called for every step with the steps done, the steps in all, and the loss.
        micro_batch: Rows computed at once, where a whole batch did not fit into memory.
        read_every: Steps of a GPU whose losses are read together, as reading waits for it.
    """
    steps = trial.count_trial_steps(len(rows))
    optimizer = trial.build_optimizer(model)
    schedule = trial.training.schedule
    stopping = trial.training.stopping
    patience = math.inf if stopping.patience is None else stopping.patience
    every = trial.training.cadence.compute_interval(trial.task, rows=len(rows), batch_size=trial.batch_size)
    autocast = build_autocast(rows.labels.device, trial)
    scaled = autocast is not contextlib.nullcontext and trial.autocast == "float16"
    scaler = GradScaler(rows.labels.device.type, enabled=scaled)
    progress = Progress(micro_batch=micro_batch)
    unread: list[Tensor] = []
    read_every = read_every if works_behind(rows.labels.device.type) else 1
    model.train()
    for step, chosen in enumerate(rows.iter_row_batches(trial)):
        for group in optimizer.param_groups:
            # Set here, as no scheduler of torch has Composer's delay or NeoBERT's plateau.
            group["lr"] = trial.learning_rate * schedule.compute_factor(step, steps=steps)
        unread.append(_forward_and_backward(model, rows, chosen, autocast, scaler, progress))
        _update_weights(model, optimizer, scaler, trial.training.clip)
        # A protocol that counts the best evaluation has none at the end, unless it would have none at all.
        ends = step + 1 == steps and (stopping.counts == "last" or not progress.evaluations)
        evaluates = (step + 1) % every == 0 or ends
        if (step + 1) % read_every == 0 or evaluates or step + 1 == steps:
            for loss in _read_losses(unread, progress):
                tell(len(progress.losses), steps, loss)
            if progress.diverged:
                break
        if evaluates:
            _add_evaluation(model, progress, evaluate(model, step + 1), trial)
            model.train()
            if progress.diverged or progress.behind >= patience:
                break
    return progress


def build_autocast(device: torch.device, trial: Trial) -> Callable[[], Any]:
    """The autocast of a run's forward passes; a CPU has no float16, so it keeps float32."""
    half = trial.autocast != "float32" and not (device.type == "cpu" and trial.autocast == "float16")
    if not half:
        return contextlib.nullcontext
    return partial(torch.autocast, device.type, dtype=getattr(torch, trial.autocast))


def _read_losses(unread: list[Tensor], progress: Progress) -> Iterator[float]:
    """Add the losses of the last steps, up to the first that is not finite; this waits for the device."""
    losses = torch.stack(unread).tolist()
    unread.clear()
    for loss in losses:
        progress.losses.append(loss)
        yield loss
        if progress.diverged:
            break


def _forward_and_backward(
    model: nn.Module,
    rows: TokenizedRows,
    chosen: Tensor,
    autocast: Callable[[], Any],
    scaler: GradScaler,
    progress: Progress,
) -> Tensor:
    """The mean loss of one batch, its gradients computed in smaller batches where memory runs out."""
    while True:
        size = min(progress.micro_batch or len(chosen), len(chosen))
        try:
            total = torch.zeros((), dtype=choose_sum_dtype(rows.labels.device), device=rows.labels.device)
            for part in chosen.split(size):
                batch = rows.batch(part)
                with autocast():
                    # Weighted, so that the sum over the parts is the mean over the batch.
                    scores = model(**batch.inputs, **pack_rows(model, batch.tokens, batch.labels.device))
                    loss = batch.compute_batch_loss(scores) * (len(part) / len(chosen))
                scaler.scale(loss).backward()
                total += loss.detach()
            return total
        except torch.OutOfMemoryError:
            if size == 1:
                raise
            # The parts before have left their gradients, and the whole batch is computed again.
            model.zero_grad(set_to_none=True)
            torch.cuda.empty_cache()
            progress.micro_batch = size // 2
            progress.notes.append(f"memory ran out: {size // 2} rows at once from then on, steps as asked")


def _update_weights(
    model: nn.Module, optimizer: torch.optim.Optimizer, scaler: GradScaler, clip: float | None
) -> None:
    if clip is not None:
        # The norm to clip at is that of the gradients without float16's scale.
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), clip)
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad(set_to_none=True)


def _add_evaluation(model: nn.Module, progress: Progress, evaluation: Evaluation, trial: Trial) -> None:
    progress.evaluations.append(evaluation)
    if evaluation.watched > progress.record:
        progress.record, progress.behind = evaluation.watched, 0
    else:
        progress.behind += 1
    if progress.best is None or evaluation.watched > progress.best.watched:
        progress.best = evaluation
        if trial.training.stopping.counts == "best":
            progress.weights = {n: t.detach().clone() for n, t in model.state_dict().items()}


def predict(
    model: nn.Module, rows: TokenizedRows, *, autocast: Callable[[], Any] = contextlib.nullcontext
) -> Tensor:
    """Predicted classes or numbers, (rows,) on the CPU, batch by batch; NaN where a score is not finite."""
    model.eval()
    tokens = EVALUATED
    while True:
        try:
            with torch.inference_mode(), autocast():
                return _predict_batches(model, rows, tokens)
        except torch.OutOfMemoryError:
            if tokens <= LEAST:
                raise
            torch.cuda.empty_cache()
            tokens //= 2


def _predict_batches(model: nn.Module, rows: TokenizedRows, tokens: int) -> Tensor:
    predictions = torch.empty(len(rows))
    for chosen in rows.iter_length_batches(tokens):
        batch = rows.batch(chosen)
        scores = model(**batch.inputs, **pack_rows(model, batch.tokens, rows.labels.device))
        batch_predictions = (scores[:, 0] if scores.shape[-1] == 1 else scores.argmax(dim=-1)).float()
        finite_rows = torch.isfinite(scores).all(dim=-1)
        # argmax would give a class for NaN, too.
        predictions[chosen] = torch.where(finite_rows, batch_predictions, torch.nan).cpu()
    return predictions
