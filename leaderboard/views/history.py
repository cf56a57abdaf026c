"""Histories: what kept snapshots say of a model's ranks and of a result."""

from __future__ import annotations

from collections.abc import Sequence

import duckdb

from harness.results.scores import score_text
from leaderboard.data.queries import Entry, EntryResult
from leaderboard.data.snapshot import Snapshot
from leaderboard.data.tables import SETTINGS
from leaderboard.views.task_scores import format_task_path
from leaderboard.web.page_state import build_address
from leaderboard.web.tables import Cell, Table, link, values_table


def build_rank_history(kept: Sequence[Snapshot], entries: Sequence[Entry], slug: str) -> Table:
    """The ranks that a model had on the boards, with its means × 100.

    Args:
        kept: Snapshots, the oldest first.
        entries: Its entries, the best known first, whose lasting name all of its checkpoints share.
        slug: Its name in URLs.
    """
    name = entries[0].typed_names[0] if entries else ""
    ranks = [(one, one.ranks.get(name, {})) for one in reversed(kept)]
    suites = dict.fromkeys(suite for _, texts in ranks for suite in texts)
    lines = [
        [_link_snapshot(one, f"/models/{slug}"), *(Cell(text=texts.get(suite, "")) for suite in suites)]
        for one, texts in ranks
        if texts
    ]
    labels = {"snapshot": "Snapshot", **{f"suite{at}": suite for at, suite in enumerate(suites)}}
    return values_table("history", "Ranks and means × 100 in earlier snapshots", labels, lines)


def build_score_history(kept: Sequence[Snapshot], result: EntryResult) -> Table:
    """The scores that an entry had on a task in snapshots, the oldest first."""
    sql = "SELECT arg_max(value, coalesce(written, '')) FROM read_parquet(?) WHERE entry = ? AND task = ?"
    lines = []
    with duckdb.connect(config={**SETTINGS, "threads": 1}) as connection:
        for snapshot in reversed(kept):
            values = [snapshot.list_table_files("results"), result.entry, result.task]
            ((score,),) = connection.execute(sql, values).fetchall()
            if score is not None:
                place = _link_snapshot(snapshot, format_task_path(result.task))
                lines.append([place, Cell(text=score_text(score), value=score)])
    labels = {"snapshot": "Snapshot", "score": "Score × 100"}
    return values_table("history", "The score in earlier snapshots", labels, lines, "score")


def _link_snapshot(snapshot: Snapshot, path: str) -> Cell:
    return link(f"{snapshot.made[:10]} {snapshot.id}", build_address(f"/s/{snapshot.id}{path}"))
