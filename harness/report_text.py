"""Scores and means as tables show them."""

from __future__ import annotations

from harness.aggregate import Mean


def score_text(value: float | None) -> str:
    """A score as tables show it: times 100, two decimals; a dash for none."""
    return "–" if value is None else f"{100 * value:.2f}"


def mean_text(mean: Mean) -> str:
    """A mean with how much of it is there, e.g. "mean over tasks 56.09 (41 of 41)"."""
    return f"mean over {mean.over} {score_text(mean.value)} ({mean.there} of {mean.wanted})"
