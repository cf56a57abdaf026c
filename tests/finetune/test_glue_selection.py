from __future__ import annotations

from dataclasses import replace

import pytest

from finetune.glue.protocol import RunScore, select, select_source
from finetune.recipes import glue_neobert
from harness.errors import HarnessError

TRIALS = glue_neobert.PROTOCOL.trials("MNLI")


def tried(*scores: float | None, watched: tuple[float | None, ...] | None = None) -> list[RunScore]:
    by = watched or scores
    return [RunScore(trial=t, score=s, watched=w) for t, s, w in zip(TRIALS, scores, by, strict=False)]


def test_the_highest_score_is_chosen_and_the_first_of_equals() -> None:
    found = select(tried(0.4, 0.9, None, 0.9, 0.2))
    assert found.chosen.trial == TRIALS[1]
    assert found.maximum == 0.9
    assert (found.diverged, found.constant) == (1, 0)


def test_a_source_goes_by_the_matched_set() -> None:
    runs = tried(0.8, 0.9, 0.7, watched=(0.81, 0.79, 0.82))
    assert select(runs).chosen.trial == TRIALS[1]
    assert select_source(runs).chosen.trial == TRIALS[2]


def test_runs_that_learn_nothing_are_counted_and_shown() -> None:
    runs = tried(0.0, 0.1, None)
    found = select([replace(runs[0], constant=True), *runs[1:]])
    assert (found.diverged, found.constant, found.chosen.score) == (1, 1, 0.1)


def test_nothing_is_chosen_where_all_diverged() -> None:
    with pytest.raises(HarnessError, match="All 2 runs of the grid diverged"):
        select(tried(None, None))


def test_a_score_of_zero_is_a_score() -> None:
    assert select(tried(None, 0.0)).chosen.score == 0.0
