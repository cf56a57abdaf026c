"""Which run of a GLUE grid is selected."""

from __future__ import annotations

import pytest

from finetune.glue.selection import RunScore
from finetune.recipes import glue_neobert
from harness.core.errors import HarnessError

TRIALS = glue_neobert.PROTOCOL.list_trials("MNLI")


def tried(*scores: float | None, watched: tuple[float | None, ...] | None = None) -> list[RunScore]:
    by = watched or scores
    return [RunScore(trial=t, score=s, watched=w) for t, s, w in zip(TRIALS, scores, by, strict=False)]


def test_the_highest_score_is_chosen_and_the_first_of_equals() -> None:
    assert RunScore.select(tried(0.4, 0.9, None, 0.9, 0.2)).trial == TRIALS[1]
    assert RunScore.select(tried(None, 0.0)).score == 0.0


def test_a_source_goes_by_the_matched_set() -> None:
    runs = tried(0.8, 0.9, 0.7, watched=(0.81, 0.79, 0.82))
    assert RunScore.select(runs).trial == TRIALS[1]
    assert RunScore.select(runs, by="watched").trial == TRIALS[2]


def test_nothing_is_chosen_where_all_diverged() -> None:
    with pytest.raises(HarnessError, match="All 2 runs of the grid diverged"):
        RunScore.select(tried(None, None))
