"""A proxy as tables and lines for people."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.table import Table

    from harness.proxy.document import Proxy


def table(proxy: Proxy) -> Table:
    """The tasks of a proxy with their weights."""
    from rich.table import Table

    found = Table(title=f"{proxy.name}: {len(proxy.tasks)} tasks that predict {proxy.target.title}")
    found.title_justify = "left"
    found.add_column("task", overflow="fold")
    for name in ("weight", "minutes", "seen from", "to"):
        found.add_column(name, justify="right")
    for task in proxy.tasks:
        seen = (f"{100 * task.low:.1f}", f"{100 * task.high:.1f}")
        found.add_row(task.task, f"{task.coefficient:+.4f}", _minutes(task.minutes), *seen)
    return found


def lines(proxy: Proxy) -> list[str]:
    """The intercept, the error, the cost, and what it was fitted on."""
    error, cost, fitted = proxy.error, proxy.cost, proxy.fitted
    whom = cost.reference or "a model of median speed" + (f", as {cost.nearest}" if cost.nearest else "")
    chosen = "tasks chosen and fitted" if proxy.chosen == "greedy" else "fitted"
    return [
        f"intercept {100 * proxy.intercept:+.2f}; scores × 100",
        f"±{100 * error.half_width:.2f} ({100 * error.level:g} %) on models of held-out families, "
        f"{chosen} without them: RMSE {100 * error.rmse:.2f}, mean error {100 * error.mae:.2f}, "
        f"Kendall {_rank(error.kendall)}, Spearman {_rank(error.spearman)}",
        f"(the error it was chosen by, which errs on the low side: RMSE {100 * error.plain_rmse:.2f}; "
        f"of the models' mean alone: {100 * error.deviation:.2f})",
        f"{_minutes(cost.minutes)} of {_minutes(cost.whole)} minutes of the whole benchmark, on {whom}",
        f"fitted on {fitted.models} complete models of {fitted.families} families of {proxy.imported.source} "
        f"({proxy.imported.when[:10]}), {fitted.other_data} of them with a score on another data revision",
    ]


def listing(found: Sequence[Proxy]) -> Table:
    """Proxies, one in a row."""
    from rich.table import Table

    rows = Table(title=f"{len(found)} {'proxy' if len(found) == 1 else 'proxies'}", title_justify="left")
    rows.add_column("name", overflow="fold")
    rows.add_column("target")
    for name in ("tasks", "minutes", "± (95 %)"):
        rows.add_column(name, justify="right")
    for one in found:
        facts = (str(len(one.tasks)), _minutes(one.cost.minutes), f"{100 * one.error.half_width:.2f}")
        rows.add_row(one.name, one.target.title, *facts)
    return rows


def _minutes(value: float | None) -> str:
    return "?" if value is None else f"{value:.3g}" if value < 100 else f"{value:,.0f}"


def _rank(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"
