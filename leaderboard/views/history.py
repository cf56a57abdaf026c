"""Histories: what kept snapshots say of a model's ranks and of a result."""

from __future__ import annotations

from collections.abc import Sequence

from harness.results.scores import score_text
from leaderboard.data.history import locate_standings, query_kept
from leaderboard.data.queries import Entry, EntryResult
from leaderboard.data.snapshot import Snapshot
from leaderboard.views.task_scores import format_task_path
from leaderboard.web.parameters import build_address
from leaderboard.web.tables import EMPTY, Cell, Table, link, values_table


def build_rank_history(kept: Sequence[Snapshot], entries: Sequence[Entry], slug: str) -> Table | None:
    """The ranks of a model in kept snapshots, the newest first; None where it has none.

    Args:
        kept: The snapshots, the oldest first.
        entries: The entries of the model.
        slug: Its name in URLs.
    """
    rows = query_kept(
        """SELECT filename, suite, min(rank), max(ranked), arg_min(mean, rank)
           FROM read_parquet(?, filename = true) WHERE list_contains(?, name) GROUP BY ALL ORDER BY suite""",
        {str(locate_standings(one.folder.parent)): one for one in kept},
        sorted({entry.typed_names[0] for entry in entries}),
    )
    cells = {
        (one.id, suite): Cell(text=f"{rank} of {ranked} ({score_text(mean)})", value=rank)
        for one, suite, rank, ranked, mean in rows
    }
    suites = list(dict.fromkeys(suite for _, suite in cells))
    labels = {"snapshot": "Snapshot", **{f"suite{at}": suite for at, suite in enumerate(suites)}}
    shown = [one for one in reversed(kept) if any(one.id == id for id, _ in cells)]
    lines = [
        [_link_snapshot(one, f"/models/{slug}"), *(cells.get((one.id, suite), EMPTY) for suite in suites)]
        for one in shown
    ]
    caption = "Rank (mean × 100) in the snapshots that were kept before this one"
    return values_table("history", caption, labels, lines, " ".join(list(labels)[1:])) if lines else None


def build_value_history(kept: Sequence[Snapshot], result: EntryResult) -> Table | None:
    """What kept snapshots have for the entry and the task of a result, the newest first."""
    rows = query_kept(
        """SELECT filename, arg_max(value, coalesce(written, '')) FROM read_parquet(?, filename = true)
           WHERE entry = ? AND task = ? GROUP BY ALL""",
        {path: one for one in kept for path in one.list_table_files("results")},
        result.entry,
        result.task,
    )
    values = {one.id: value for one, value in rows}
    lines = [
        [_link_snapshot(one, format_task_path(result.task)), Cell(text=score_text(values[one.id]))]
        for one in reversed(kept)
        if one.id in values
    ]
    labels = {"snapshot": "Snapshot", "score": "Score × 100"}
    caption = "The score in the snapshots that were kept before this one"
    return values_table("history", caption, labels, lines, "score") if lines else None


def _link_snapshot(one: Snapshot, path: str) -> Cell:
    return link(f"{one.made[:10]} {one.id}", build_address(f"/s/{one.id}{path}"))
