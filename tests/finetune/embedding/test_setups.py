"""The order of a mix: chances of the sets, batches of one set, passes, labels, exact resumption."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain, pairwise
from types import SimpleNamespace
from typing import Any, Literal

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import chisquare

from finetune.embedding.settings import compute_set_probabilities
from finetune.embedding.setups import DrawnSet, MixOrder, Rows, Slices
from harness.core.errors import HarnessError

Draws = Literal["replacement", "turns"]
Labels = Callable[[Rows], NDArray[np.uint64]]

KINDS: tuple[Draws, ...] = ("replacement", "turns")

CHANCES = {
    0.5: (0.625, 0.0625, 0.3125),
    0.1: (0.39975888, 0.25223080, 0.34801032),
    0: (1 / 3, 1 / 3, 1 / 3),
    1: (10_000 / 12_600, 100 / 12_600, 2_500 / 12_600),
}
"""Those of sets with 10,000, 100 and 2,500 rows; for 0.1 the powers are 2.51189, 1.58489 and 2.18672."""


def classes(count: int) -> Labels:
    """Rows with a text of their own, and one of so many classes in turn."""
    return lambda rows: np.stack([rows + 1_000, rows % count], axis=1).astype(np.uint64)


def sets(labels: Labels | None = None) -> list[DrawnSet]:
    """Sets of which the third has rows that may not meet."""
    shapes = [("large", 50, 4, None), ("small", 7, 1, None), ("other", 23, 3, labels)]
    return [DrawnSet(name=name, rows=rows, size=size, labels=own) for name, rows, size, own in shapes]


def order(
    draws: Draws = "replacement", labels: Labels | None = None, seed: int = 3, groups: int = 2
) -> MixOrder:
    return MixOrder(sets(labels), steps=60, seed=seed, alpha=0.5, draws=draws, groups=groups)


def listed(batches: MixOrder, done: int = 0) -> list[list[int]]:
    return [rows.tolist() for rows in batches.iter_batches(done)]


def of_set(rows: Sequence[int]) -> int:
    """The number of the set of a batch, whose rows are all of it."""
    (number,) = set(np.searchsorted([50, 57, 80], rows, side="right").tolist())
    return int(number)


@pytest.mark.parametrize("alpha", CHANCES)
def test_sets_are_drawn_with_their_probabilities(alpha: float) -> None:
    rows = (10_000, 100, 2_500)
    assert compute_set_probabilities(rows, alpha) == pytest.approx(CHANCES[alpha], abs=1e-7)
    drawn = MixOrder(
        [DrawnSet(name=str(count), rows=count, size=1) for count in rows], steps=100_000, seed=5, alpha=alpha
    ).drawn
    expected = np.array(CHANCES[alpha]) / sum(CHANCES[alpha]) * len(drawn)
    assert chisquare(np.bincount(drawn, minlength=3), expected).pvalue > 0.001


@pytest.mark.parametrize("labels", [None, classes(5)])
@pytest.mark.parametrize("draws", KINDS)
@pytest.mark.parametrize("groups", [1, 2, 4])
def test_a_batch_has_the_groups_of_one_set_and_no_row_twice(
    draws: Draws, labels: Labels | None, groups: int
) -> None:
    made = order(draws, labels, groups=groups)
    found, read = listed(made), 0
    assert len(found) == made.steps == 60
    for step, rows in enumerate(found, 1):
        one = sets()[of_set(rows)]
        assert (made.name(step), made.group(step)) == (one.name, one.size)
        assert len(rows) == len(set(rows)) == made.count_batch_rows(step) == one.size * groups
        read += len(rows)
        assert made.count_epochs(step) == pytest.approx(read / 80)
    assert {of_set(rows) for rows in found} == {0, 1, 2}


@pytest.mark.parametrize("groups", [1, 2])
def test_turns_have_each_row_at_most_once_in_a_pass(groups: int) -> None:
    found = listed(order("turns", groups=groups))
    for number, one in enumerate(sets()):
        own, each = [rows for rows in found if of_set(rows) == number], one.rows // (one.size * groups)
        passes = [[*chain(*own[begin : begin + each])] for begin in range(0, len(own), each)]
        assert len(passes) > 1
        assert all(len(rows) == len(set(rows)) for rows in passes)
        assert passes[0] != passes[1][: len(passes[0])]


def test_replacement_draws_from_the_whole_set_at_every_step() -> None:
    rows, steps, size = 20, 5_000, 4
    one = DrawnSet(name="one", rows=rows, size=size)
    found = np.array(listed(MixOrder([one], steps=steps, seed=1, alpha=1)))
    assert chisquare(np.bincount(found.ravel(), minlength=rows)).pvalue > 0.001
    assert np.mean([bool(set(a) & set(b)) for a, b in pairwise(found)]) > 0.5


@pytest.mark.parametrize("labels", [None, classes(5)])
@pytest.mark.parametrize("draws", KINDS)
def test_an_order_goes_on_from_any_step(draws: Draws, labels: Labels | None) -> None:
    whole, again = listed(order(draws, labels)), order(draws, labels)
    for done in reversed(range(61)):
        assert listed(order(draws, labels), done) == listed(again, done) == whole[done:]
    one, other = again.iter_batches(0), again.iter_batches(30)
    for step in range(30):
        assert (next(one).tolist(), next(other).tolist()) == (whole[step], whole[30 + step])


@pytest.mark.parametrize("draws", KINDS)
def test_the_order_follows_from_the_seed(draws: Draws) -> None:
    first, other = order(draws, seed=3), order(draws, seed=4)
    assert listed(first) == listed(order(draws, seed=3))
    assert first.drawn.tolist() != other.drawn.tolist()
    one = [DrawnSet(name="one", rows=1_000, size=8)]
    batches = [listed(MixOrder(one, steps=5, seed=seed, alpha=1, draws=draws)) for seed in (3, 4)]
    assert batches[0] != batches[1]


@pytest.mark.parametrize("draws", KINDS)
@pytest.mark.parametrize(("count", "size"), [(3, 3), (5, 3), (40, 8)])
def test_no_rows_of_a_group_share_a_label(draws: Draws, count: int, size: int) -> None:
    one = DrawnSet(name="one", rows=90, size=size, labels=classes(count))
    for rows in MixOrder([one], steps=40, seed=2, alpha=1, draws=draws, groups=3).iter_batches(0):
        labels = classes(count)(rows)[:, 1].reshape(3, size)
        assert all(len(set(group)) == size for group in labels.tolist())


@pytest.mark.parametrize("draws", KINDS)
@pytest.mark.parametrize(
    ("rows", "size", "labels", "found"),
    [(90, 4, classes(3), 3), (90, 4, classes(1), 1), (7, 4, classes(7), 7)],
)
def test_too_few_labels_or_rows_are_an_error(
    draws: Draws, rows: int, size: int, labels: Labels, found: int
) -> None:
    one = DrawnSet(name="Yahoo", rows=rows, size=size, labels=labels)
    batches = MixOrder([one], steps=2, seed=2, alpha=1, draws=draws, groups=2).iter_batches(0)
    with pytest.raises(
        HarnessError, match=f"Yahoo: of {rows} rows {found} can be in one batch of 8"
    ) as caught:
        next(batches)
    assert "batch_size" in str(caught.value.hint)


@pytest.mark.parametrize("draws", KINDS)
def test_too_few_rows_without_labels_are_the_same_error(draws: Draws) -> None:
    one = DrawnSet(name="few", rows=3, size=4)
    with pytest.raises(HarnessError, match="few: of 3 rows 3 can be in one batch of 4"):
        next(MixOrder([one], steps=2, seed=2, alpha=1, draws=draws).iter_batches(0))


@pytest.mark.parametrize("done", [0, 7])
@pytest.mark.parametrize("draws", KINDS)
@pytest.mark.parametrize(("groups", "ranks"), [(2, 2), (4, 2), (4, 4)])
def test_processes_have_the_groups_of_a_batch_among_them(
    draws: Draws, groups: int, ranks: int, done: int
) -> None:
    def slices(rank: int) -> list[list[int]]:
        spec: Any = SimpleNamespace(rank=rank, ranks=ranks)
        made = Slices(order(draws, classes(5), groups=groups), done, spec)
        assert len(made) == 60
        return [*made]

    whole = listed(order(draws, classes(5), groups=groups), done)
    for rows, *own in zip(whole, *map(slices, range(ranks)), strict=True):
        assert {of_set(part) for part in own} == {of_set(rows)}
        assert {len(part) for part in own} == {len(rows) // ranks}
        assert [*chain(*own)] == rows
