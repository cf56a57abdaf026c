"""What a proxy says of a model from its scores."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from harness.proxy.document import Proxy
from harness.types import Predicted


@dataclass(frozen=True, kw_only=True)
class ProxyPredictor:
    """The line of a proxy as a suite has it (harness.types.Predictor)."""

    proxy: Proxy

    @property
    def target(self) -> str:
        """The title of the benchmark."""
        return self.proxy.target.title

    @property
    def tasks(self) -> tuple[str, ...]:
        """The tasks whose scores it needs."""
        return tuple(task.task for task in self.proxy.tasks)

    def predict(self, scores: Mapping[str, float]) -> Predicted | None:
        """The prediction from main scores by task; None if one of them is missing."""
        proxy = self.proxy
        if any(task.task not in scores for task in proxy.tasks):
            return None
        value = proxy.intercept + sum(task.coefficient * scores[task.task] for task in proxy.tasks)
        outside = [task.task for task in proxy.tasks if not task.low <= scores[task.task] <= task.high]
        if not proxy.fitted.low <= value <= proxy.fitted.high:
            outside.append(self.target)
        return Predicted(
            target=self.target,
            value=value,
            low=value - proxy.error.half_width,
            high=value + proxy.error.half_width,
            level=proxy.error.level,
            families=proxy.fitted.families,
            outside=tuple(outside),
        )
