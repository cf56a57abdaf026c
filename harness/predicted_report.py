"""What a proxy predicts, as lines for people and as JSON for machines."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from harness.failures import shortened

if TYPE_CHECKING:
    from harness.aggregate import Aggregates
    from harness.types import Predicted, Suite


def predicted_lines(suite: Suite, found: Aggregates) -> list[str]:
    """The prediction from a suite's columns with its interval, or why there is none; none without a proxy."""
    if suite.predictor is None:
        return []
    predicted = suite.predictor.predict(_scores(found))
    if predicted is None:
        missing = [name for name in suite.predictor.tasks if name not in _scores(found)]
        return [f"{suite.predictor.target} is not predicted: no score of {shortened(missing)}"]
    return [predicted_text(predicted), *_warnings(predicted)]


def predicted_text(predicted: Predicted) -> str:
    """A prediction in a line, its scores times 100.

    >>> from harness.types import Predicted
    >>> predicted_text(Predicted(target="MTEB", value=0.512, low=0.506, high=0.518, level=0.95, families=9))
    'predicted MTEB: 51.2 ± 0.6 (95 %, cross-validated over 9 families)'
    """
    half = (predicted.high - predicted.low) / 2
    return (
        f"predicted {predicted.target}: {100 * predicted.value:.1f} ± {100 * half:.1f} "
        f"({100 * predicted.level:g} %, cross-validated over {predicted.families} families)"
    )


def predicted_json(suite: Suite, found: Aggregates) -> dict[str, Any] | None:
    """The prediction as plain values (docs/json.md); None where a score is missing."""
    predicted = suite.predictor.predict(_scores(found)) if suite.predictor else None
    return None if predicted is None else {**asdict(predicted), "outside": list(predicted.outside)}


def _warnings(predicted: Predicted) -> list[str]:
    if not predicted.outside:
        return []
    named = shortened(predicted.outside)
    return [f"outside of what the proxy was fitted on, so that its interval may not hold: {named}"]


def _scores(found: Aggregates) -> dict[str, float]:
    """The scores of a proxy's columns, each of which is a task."""
    return {name: value for name, value in found.columns.items() if value is not None}
