"""From a model in training to the metrics of a task's dev splits."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from torch import nn

from finetune.glue.loop import Evaluation, predict
from finetune.glue.rows import Rows
from harness.metrics import METRICS


def evaluation(model: nn.Module, dev: Sequence[Rows], metrics: Sequence[str], step: int) -> Evaluation:
    """Every metric of every dev split; a split behind the first has its number in the metric's name.

    The first is the one that early stopping and the choice of a source for transfer go by.
    """
    predictions = tuple(predict(model, rows) for rows in dev)
    found = {}
    for at, (rows, predicted) in enumerate(zip(dev, predictions, strict=True)):
        gold = rows.labels.cpu().double().numpy()
        ones = np.ones((1, len(gold)))
        for name in metrics:
            score = METRICS[name](gold, predicted.double().numpy(), ones)[0]
            found[name if at == 0 else f"{name}_{at + 1}"] = float(score)
    return Evaluation(step=step, metrics=found, predictions=predictions)
