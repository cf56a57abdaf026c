"""From a model in training to the metrics of a task's dev splits."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from torch import nn

from finetune.glue.loop import Evaluation, predict
from finetune.glue.rows import Rows
from harness.metrics import METRICS


def evaluation(
    model: nn.Module,
    dev: Mapping[str, Rows],
    metrics: Sequence[str],
    step: int,
    *,
    autocast: Callable[[], Any] = contextlib.nullcontext,
) -> Evaluation:
    """Every metric of every dev split.

    The first of both is the one that early stopping and the choice of a source for transfer go by.
    """
    predictions = {split: predict(model, rows, autocast=autocast) for split, rows in dev.items()}
    found = {}
    for split, rows in dev.items():
        gold = rows.labels.cpu().double().numpy()
        ones = np.ones((1, len(gold)))
        for name in metrics:
            said = np.nan_to_num(predictions[split].double().numpy(), nan=-1.0)
            score = METRICS[name](gold, said, ones)[0]
            found[split, name] = float(score)
    return Evaluation(step=step, metrics=found, predictions=predictions)
