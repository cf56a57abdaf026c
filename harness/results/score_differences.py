"""Candidate minus baseline with its uncertainty, on one task and on the mean over a suite's columns.

What a unit (query, pair, text) does to a difference is its influence: for a mean its share of it, for other
metrics what leaving it out changes (the jackknife). The variance is that of the sum of influences, so that
the same units in several subsets or tasks count once, and no resampling is needed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean, stdev

import numpy as np

from harness.core.types import Suite
from harness.results.units import FLAT, LEVEL, TRAINED, Influences, Stratum, Units, sum_influences
from harness.results.weighted_metrics import Floats

LARGE = 1e7
"""Degrees of freedom at which Student's t and the normal distribution are the same in practice."""

SYMMETRIC = 1e-3
"""A skewness below this counts as 0."""

FARTHEST, EXACT = 8.0, 1e-7
"""The farthest bound of the search and its precision, in standard errors of a normal distribution."""

MODELS = 20
"""Equal models that are drawn to tell how far the bounds of one will be."""

EQUAL = 1e-9
"""A difference of two units' scores below this is rounding."""

LEAST_RUNS = 3
"""Fewest runs whose spread is used: by two runs it is next to unknown."""


@dataclass(frozen=True, kw_only=True)
class Part:
    """A source of uncertainty of a difference.

    Attributes:
        variance: What it adds to the variance.
        freedom: The degrees of freedom of that variance.
        third: What it adds to the third central moment, by which the bounds are not symmetric.
    """

    variance: float
    freedom: float
    third: float = 0.0

    def compute_bound_offset(self, share: float) -> float:
        """How far above the estimate a bound is that a share of truths lies below; negative below a half.

        To second order such a bound of a mean is z + skewness (2 z² + 1) / 6 standard errors away (Hall,
        1992, The Bootstrap and Edgeworth Expansion, section 3.10). Its gamma form is used, which for rare
        losses of one size is the exact bound of their number (Garwood, 1936); what Student's t is wider is
        added. Skewness makes a bound never nearer: by skewness as observed, twice as many truths lie beyond
        one at 0.002.
        """
        from scipy.special import gammaincinv, ndtri, stdtrit

        if self.variance <= FLAT:
            return 0.0
        skewness = self.third / self.variance**1.5
        errors = student = float(stdtrit(min(self.freedom, LARGE), share))
        if abs(skewness) >= SYMMETRIC:
            # A Poisson count of n has the skewness 1 / √n, so that this is the number of losses of one size
            # with the skewness of the sum, and quantiles of a gamma of shape n + 1 bound their rate. Losses
            # are mirrored: their long tail is below. Where few units differ by unlike sizes, n + 1/2, which
            # is Jeffreys' bound, is passed by 8 % of truths in place of 5.
            count = 1 / skewness**2
            quantile = float(gammaincinv(count + 1, share if skewness > 0 else 1 - share))
            lopsided = math.copysign(1.0, skewness) * (quantile / math.sqrt(count) - math.sqrt(count))
            farther = max if share >= 0.5 else min
            errors = farther(student, lopsided + student - float(ndtri(share)))
        return math.sqrt(self.variance) * errors

    def take_share(self, share: float) -> Part:
        """The part of a share of the difference."""
        return Part(variance=share**2 * self.variance, freedom=self.freedom, third=share**3 * self.third)

    @staticmethod
    def sum(parts: Sequence[Part]) -> Part:
        """The sum of independent parts, with the degrees of freedom of Welch and Satterthwaite.

        >>> Part.sum([Part(variance=1.0, freedom=4), Part(variance=1.0, freedom=4)])
        Part(variance=2.0, freedom=8.0, third=0.0)
        """
        total = sum(part.variance for part in parts)
        below = sum(part.variance**2 / part.freedom for part in parts)
        freedom = total**2 / below if below > 0 else LARGE
        return Part(variance=total, freedom=freedom, third=sum(part.third for part in parts))

    @staticmethod
    def estimate_run_part(mine: Sequence[float], theirs: Sequence[float], *, paired: bool) -> Part | None:
        """What runs add to the difference of their means; None with a single run of each side.

        Groups of one size, and a single run, share a spread (Student's test, which stands unequal spreads
        where the groups are equal in size). Of unequal sizes the smaller often has far too little spread by
        chance, so that it is the wider one of Student's and of Welch's with his degrees of freedom of 1938,
        as Satterthwaite's are too few for few runs. The spread holds what single runs do on single units:
        without that noise, a spread of few runs would often be 0 by chance.

        Args:
            mine: The scores of one side's runs.
            theirs: Those of the other side's; empty for the mean of one side.
            paired: Whether the runs pair up, as evaluations with the same seed do.

        >>> round(Part.estimate_run_part([0.5, 0.7], [0.4], paired=False).variance, 9)
        0.03
        """
        if paired and len(mine) == len(theirs) > 1:
            mine, theirs, paired = np.subtract(mine, theirs).tolist(), [], False
        groups = [np.array(group) for group in (mine, theirs) if len(group)]
        counts = np.array([len(group) for group in groups])
        freedoms, squares = counts - 1, np.array([group.var() for group in groups]) * counts
        if paired or not freedoms.any():
            return None
        shared = float(squares.sum() / freedoms.sum() * (1 / counts).sum())
        student = Part(variance=shared, freedom=int(freedoms.sum()))
        if len({*counts.tolist()}) == 1 or not freedoms.all() or shared <= FLAT:
            return student
        parts = squares / freedoms / counts
        freedom = 1 / float(((parts / parts.sum()) ** 2 / (freedoms + 2)).sum()) - 2
        freedom = min(max(freedom, int(freedoms.min())), student.freedom)
        welch = Part(variance=float(parts.sum()), freedom=freedom)
        return max(student, welch, key=lambda part: part.compute_bound_offset((1 + LEVEL) / 2))


@dataclass(frozen=True, kw_only=True)
class Uncertainty:
    """Independent parts of the uncertainty of a difference, each with degrees of freedom of its own.

    Bounds are as far away as the root of the sum of squares of those of the parts (Howe, 1974; Zou and
    Donner, 2008): where few runs tell a part, its far bounds stay those of few runs.
    """

    parts: tuple[Part, ...]

    @property
    def variance(self) -> float:
        """The variance of the difference."""
        return sum(part.variance for part in self.parts)

    def compute_bound_offset(self, share: float) -> float:
        """How far above the estimate a bound is that a share of truths lies below; negative below a half."""
        offsets = [part.compute_bound_offset(share) for part in self.parts]
        return math.copysign(math.hypot(*offsets), share - 0.5)

    def share_below(self, reach: float) -> float:
        """The share of truths below a bound so far above the estimate; inverts `compute_bound_offset`."""
        from scipy.special import ndtr, stdtr

        if self.variance <= FLAT:
            return 0.0 if reach < 0 else 1.0
        if len(self.parts) == 1 and not self.parts[0].third:
            errors = reach / math.sqrt(self.variance)
            return float(stdtr(min(self.parts[0].freedom, LARGE), errors))
        # With skewness or several parts the bound has no inverse in closed form, but it rises with the share.
        low, high = -FARTHEST, FARTHEST
        while high - low > EXACT:
            middle = (low + high) / 2
            is_below = self.compute_bound_offset(float(ndtr(middle))) < reach
            low, high = (middle, high) if is_below else (low, middle)
        return float(ndtr(high))

    @property
    def even(self) -> Uncertainty:
        """The uncertainty without skewness."""
        return Uncertainty(parts=tuple(replace(part, third=0.0) for part in self.parts))


@dataclass(frozen=True, kw_only=True)
class Compared:
    """Scores of a candidate's runs and of a baseline's, in shares of 1.

    Attributes:
        mine, theirs: The score of each run of the candidate, and of the baseline.
        examples: The uncertainty from the choice of units, and of a few probes or draws.
        same: Whether both sides are the same record, or gave the same outputs.
        paired: Whether the runs of the two sides pair up.
    """

    mine: tuple[float, ...]
    theirs: tuple[float, ...]
    examples: Part
    same: bool = False
    paired: bool = False

    @property
    def candidate(self) -> float:
        """The mean score of the candidate's runs."""
        return fmean(self.mine)

    @property
    def baseline(self) -> float:
        """The mean score of the baseline's runs."""
        return fmean(self.theirs)

    @property
    def delta(self) -> float:
        """Candidate minus baseline."""
        return self.candidate - self.baseline

    @property
    def seeds(self) -> Part | None:
        """The uncertainty from the runs; None with a single run of each side."""
        return None if self.same else Part.estimate_run_part(self.mine, self.theirs, paired=self.paired)

    @property
    def total(self) -> Uncertainty:
        """The uncertainty from units and runs."""
        parts = [part for part in (self.examples, self.seeds) if part is not None and part.variance > FLAT]
        return Uncertainty(parts=tuple(parts))

    def compute_interval(self, alpha: float) -> tuple[float, float]:
        """The bounds of the difference, each one-sided at alpha."""
        low, high = (self.total.compute_bound_offset(share) for share in (alpha, 1 - alpha))
        return self.delta + low, self.delta + high

    def compute_bound_p(self, bound: float) -> float:
        """The p-value of "the true difference is not above a bound", which the lower bound decides."""
        return self.total.share_below(bound - self.delta)

    def compute_loss_p(self) -> float:
        """The p-value of "not lower than the baseline", which the upper bound decides."""
        # Of a difference that is known exactly, 0 is no loss.
        exact = self.total.variance <= FLAT
        return float(self.delta >= 0.0) if exact else 1 - self.total.share_below(-self.delta)

    def compute_two_sided_test(self, alpha: float = 0.05) -> tuple[float, float, float]:
        """The p-value of "no difference", and the bounds of its 1 - alpha interval."""
        p = 1.0 if self.same else min(1.0, 2 * min(self.compute_bound_p(0.0), self.compute_loss_p()))
        return (p, *self.compute_interval(alpha / 2))


@dataclass(frozen=True, kw_only=True)
class Difference(Compared):
    """Candidate minus baseline on one task.

    Attributes:
        units: The number of distinct units.
        influences: What each unit adds, by sets of units.
        rest: The other parts of `examples`: probes, draws, and units that might have differed.
        noise_in_units: The variance of the difference by single units that runs answer differently; it is in
            the spread of the runs, and no part of `examples`.
        changed: The share of units that would differ; None where `influences` are of units that do.
    """

    units: int
    influences: tuple[Influences, ...] = field(default=(), compare=False, repr=False)
    rest: tuple[Part, ...] = ()
    noise_in_units: float = 0.0
    changed: float | None = None

    @property
    def noise(self) -> float | None:
        """Standard deviation over the baseline's runs; None for a single run."""
        return stdev(self.theirs) if len(self.theirs) > 1 else None

    @staticmethod
    def compare_units(candidate: Units, baseline: Units, *, paired: bool = False) -> Difference:
        """The difference of two models' runs on the same units.

        Units, runs, and what single runs do on single units are crossed: each is counted once.

        Args:
            candidate: The candidate's units.
            baseline: The baseline's units, for which `same_examples` holds.
            paired: Whether the runs pair up, as evaluations with the same seed do.
        """
        mine, theirs = candidate.score_runs(), baseline.score_runs()
        candidate, baseline = candidate.name_as_both(baseline), baseline.name_as_both(candidate)
        parts = candidate.list_influences(), baseline.list_influences()
        rest: list[Part] = []
        for stratum, other, *named in zip(candidate.strata, baseline.strata, *parts, strict=True):
            both = [own for _, own in named]
            influence = both[0].mean(axis=0) - both[1].mean(axis=0)
            if stratum.measures != ("mean",) and _is_flat(influence):
                rest.append(_estimate_flat_part(stratum, at_end=all(map(_is_flat, both))))
            else:
                rest.append(_estimate_tie_part(stratum, other, influence))
            if len(mine) == len(theirs) == 1 and stratum.predicted.shape == other.predicted.shape:
                rest.append(_estimate_repeat_part(stratum, stratum.predicted[0] - other.predicted[0]))
        sides = sum_influences(parts[0]), sum_influences(parts[1])
        pairs = [(names, one, two) for (names, one), (_, two) in zip(*sides, strict=True)]
        influences = [(names, one.mean(axis=0) - two.mean(axis=0)) for names, one, two in pairs]
        if paired:
            noise = _estimate_unit_noise([(names, one - two) for names, one, two in pairs]) / len(mine)
        else:
            first, second = (_estimate_unit_noise(side) for side in sides)
            # A single run is as uncertain as those of the other side, as in the runs' part.
            noise = (first if len(mine) > 1 else second) / len(mine)
            noise += (second if len(theirs) > 1 else first) / len(theirs)
        rest = [part for part in rest if part.variance > 0]
        return Difference(
            mine=tuple(mine.tolist()),
            theirs=tuple(theirs.tolist()),
            paired=paired,
            units=candidate.count,
            examples=Part.sum([*_compute_unit_parts(influences, noise), *rest]),
            influences=tuple(influences),
            rest=tuple(rest),
            noise_in_units=noise,
        )

    @staticmethod
    def estimate_null_difference(baseline: Units, *, changed: float, trainings: int = 0) -> Difference:
        """The difference that an equal model is expected to have from a baseline: 0, with its uncertainty.

        The spread of a baseline's trainings, where there are LEAST_RUNS or more, is that of another model.

        Args:
            baseline: The baseline's units.
            changed: The share of answers that an equal model changes. A changed one counts as drawn again,
                so each unit adds sqrt(2 changed) of what it adds to the baseline's own score.
            trainings: Where the baseline's runs are models of their own, the number of models that the other
                has; the runs then also tell what another one changes, in place of `changed`.
        """
        scores = baseline.score_runs()
        parts = baseline.list_influences()
        mean, run_influences = (float(scores.mean()),), sum_influences(parts)
        ends = [(stratum, own) for stratum, (_, own) in zip(baseline.strata, parts, strict=True)]
        rest = [_estimate_flat_part(stratum) for stratum, own in ends if _is_flat(own)]
        if len(scores) == 1:
            for stratum in baseline.strata:
                # Draws of two models are clustered apart, so that their noise is that of two; of what a probe
                # does to a model, the part of the answers that another one changes is drawn again.
                twice = 2.0 if len(stratum.texts) else 2 * changed
                rest.append(_estimate_repeat_part(stratum, stratum.predicted[0]).take_share(math.sqrt(twice)))
            rest += [_expect_tie_part(*one, changed) for one in ends]
        theirs = mean
        # A changed answer is a second draw of the same variance, and the difference of two draws has twice
        # the variance: 2 · changed of it, whose root scales an influence.
        influences = [(names, math.sqrt(2 * changed) * own.mean(axis=0)) for names, own in run_influences]
        if len(scores) >= LEAST_RUNS and (trainings or baseline.unit == TRAINED):
            runs = 1 / (trainings or len(scores)) + 1 / len(scores)
            # `mine` is a single value below, so that the spread of `theirs` will be multiplied by 1 + 1 / n,
            # for one run more; stretched scores make that `runs`, the variance for as many models as there
            # are.
            one_more = runs / (1 + 1 / len(scores))  # the spread of runs is that of a single run more
            theirs = tuple((mean[0] + math.sqrt(one_more) * (scores - mean[0])).tolist())
            if trainings:
                # All that another training changes is in the spread of those that there are.
                influences = []
        return Difference(
            mine=mean,
            theirs=theirs,
            units=baseline.count,
            examples=Part.sum([*_compute_unit_parts(influences, changed=changed), *rest]),
            influences=tuple(influences),
            rest=tuple(rest),
            changed=changed,
        )


def _compute_unit_parts(
    sets: Iterable[Influences], noise: float = 0.0, changed: float | None = None
) -> list[Part]:
    """The part of each set of units: the sum of its influences has their variance and skewness.

    Where few units differ, variance and skewness are known as well as those of so few.

    Args:
        sets: What each unit adds, by sets of units.
        noise: The part of the variance of all sets that counts elsewhere.
        changed: The share of units that would differ: influences are then those of all units, scaled to the
            same variance. None where they are of units that do differ.
    """
    parts = []
    for _, influence in sets:
        count, squares = len(influence), float((influence**2).sum())
        if count > 1 and squares > FLAT:
            # A variance of n values of this kurtosis is as uncertain as that of so many degrees of freedom
            # (Satterthwaite, 1946): 2 for each of few units of one size, n - 1 for normal values.
            kurtosis = count * float((influence**4).sum()) / squares**2
            third = float((influence**3).sum())
            if changed is not None:
                models = _draw_models(influence / math.sqrt(2 * changed), changed)
                squared = models**2
                ratios = (squared**2).sum(axis=1) / np.maximum(squared.sum(axis=1), FLAT) ** 2
                # A model of which no unit differs tells no more than one of which one does.
                kurtosis = count * float(np.where(ratios > 0, ratios, 1.0).mean())
                # Of few units that gain or lose by chance one side has more: in every other model the side
                # of the losses, by which the verdict's lower bound is farther.
                third = -float(np.abs((squared * models).sum(axis=1)).mean()) / 2
            freedom = min(count - 1, max(2 * count / max(kurtosis - 1, 1 / LARGE), 3.0))
            parts.append(Part(variance=squares * count / (count - 1), freedom=freedom, third=third))
    kept = max(1 - noise / max(sum(part.variance for part in parts), FLAT), 0.0)
    return [part.take_share(math.sqrt(kept)) for part in parts] if noise else parts


def _estimate_unit_noise(sets: Iterable[Influences]) -> float:
    """The variance of a run's score by what only this run does on single units; 0 for a single run."""
    total = 0.0
    for _, influences in sets:
        runs, units = influences.shape
        if runs > 1 and units > 1:
            # What all runs do on a unit is the unit's own share; the residuals are what a single run does
            # there.
            residuals = influences - influences.mean(axis=0)
            total += float((residuals**2).sum()) / (runs - 1) * units / (units - 1)
    return total


def _estimate_repeat_part(stratum: Stratum, values: Floats) -> Part:
    """The variance from the choice of a few probes' training texts, or of draws, beyond that of the units.

    Probes and draws of both models are the same, so their differences are a sample. What single units that
    each probe answers differently add to it is in the units' part already.

    Args:
        stratum: The units.
        values: Their scores or differences, (probes, units); of draws (1, draws).
    """
    if len(stratum.texts):
        values = values.T
    repeats, units = values.shape
    if repeats < 2 or stratum.measures != ("mean",):
        return Part(variance=0.0, freedom=1)
    # An analysis of variance of repeats × units: what both means leave is the noise of single cells, and
    # within / units of it is in the mean of each repeat.
    rest = values - values.mean(axis=0) - values.mean(axis=1, keepdims=True) + values.mean()
    within = float((rest**2).sum()) / ((repeats - 1) * max(units - 1, 1))
    spread = float(values.mean(axis=1).var(ddof=1)) - within / units
    return Part(variance=stratum.share**2 * max(spread, 0.0) / repeats, freedom=repeats - 1)


def _estimate_tie_part(stratum: Stratum, other: Stratum, influence: Floats) -> Part:
    """The uncertainty of ties: as if half a unit more were better, and half a unit worse.

    None of n differing units does not prove that none would differ. Half a unit is Jeffreys' prior of a rate;
    its size is that of the largest that differs (Fay and Feuer, 1997, Statistics in Medicine 16).
    """
    tied, count = _find_ties(stratum, other), stratum.count
    if len(stratum.texts):
        return Part(variance=0.0, freedom=1)
    if stratum.measures == ("mean",):
        values: Floats = _compute_unit_scores(stratum) - _compute_unit_scores(other)
    else:
        values = influence * count / stratum.share
        tied = np.bincount(np.arange(count) % len(values), ~tied) == 0
    values = np.where(tied, 0.0, values)
    return _build_tie_part(stratum, float(tied.mean()), values[values > 0], -values[values < 0])


def _expect_tie_part(stratum: Stratum, influence: Floats, changed: float) -> Part:
    """The part of ties that an equal model is expected to have, if it changes a share of the answers."""
    scores = influence.mean(axis=0) * stratum.count / stratum.share
    if len(stratum.texts) or _is_flat(scores):
        return Part(variance=0.0, freedom=1)
    parts = []
    for differences in _draw_models(scores, changed):
        gains, losses = differences[differences > EQUAL], -differences[differences < -EQUAL]
        tied = 1 - (len(gains) + len(losses)) / len(scores)
        parts.append(_build_tie_part(stratum, tied, gains, losses))
    variance = fmean(part.variance for part in parts)
    # Gains and losses have the same sizes in the mean.
    return Part(variance=variance, freedom=parts[0].freedom)


def _draw_models(influences: Floats, changed: float) -> Floats:
    """What each unit differs by in MODELS equal models, (models, units): a changed one is drawn from all."""
    draw = np.random.default_rng(0)
    others = draw.choice(influences, (MODELS, len(influences)))
    return np.where(draw.random(others.shape) < changed, influences - others, 0.0)


def _build_tie_part(stratum: Stratum, share: float, gains: Floats, losses: Floats) -> Part:
    """The part of a share of tied units beside others that gain and lose so much."""
    count = stratum.count
    up, down = (_estimate_unit_size(*own) / count for own in ((gains, losses), (losses, gains)))
    return Part(
        variance=stratum.share**2 * share * (up**2 + down**2) / 2,
        freedom=max(count - 1, 1),
        third=stratum.share**3 * share * (up**3 - down**3),
    )


def _is_flat(influences: Floats) -> bool:
    """Whether leaving out any unit changes nothing."""
    return float((influences**2).sum()) <= FLAT


def _estimate_flat_part(stratum: Stratum, *, at_end: bool = True) -> Part:
    """The uncertainty where no unit makes a difference: as if half a unit more were better, and half worse.

    At the end of a metric that the positives decide it is one of these: that all lie above all others proves
    no more than that few of so many would lie below.
    """
    decided = {"average_precision", "f1", "mcc"}.intersection(stratum.measures) and stratum.gold.size
    gold = stratum.gold[stratum.copies[1]] if decided and at_end else np.zeros(stratum.count)
    counts = np.unique(gold, return_counts=True)[1]
    return Part(variance=(stratum.share / min(counts)) ** 2, freedom=max(int(min(counts)) - 1, 1))


def _estimate_unit_size(differences: Floats, other: Floats) -> float:
    """The size of the unit that differs most; of the other sign if none differs so.

    Few units that differ by little do not tell how far another would: a unit of size 1 is counted with them.
    """
    sizes = differences if len(differences) else other
    typical = math.sqrt((float((sizes**2).sum()) + 1) / (len(sizes) + 1))
    return max(float(sizes.max(initial=0.0)), typical)


def _compute_unit_scores(stratum: Stratum) -> Floats:
    """The score of each distinct unit, a mean over runs, probes and copies."""
    values = np.asarray(stratum.predicted.mean(axis=(0, 1)))
    if len(stratum.texts):
        return values
    return stratum.sum_copies(values) / stratum.sum_copies(np.ones(len(values)))


def _find_ties(stratum: Stratum, other: Stratum) -> np.ndarray:
    """Whether the two models answer each distinct unit alike, (distinct,)."""
    if stratum.measures == ("mean",):
        return np.asarray(_compute_unit_scores(stratum) == _compute_unit_scores(other))
    if stratum.predicted.shape != other.predicted.shape:
        return np.zeros(stratum.count, dtype=bool)
    return np.asarray((stratum.predicted == other.predicted).all(axis=(0, 1)))[stratum.copies[1]]


@dataclass(frozen=True, kw_only=True)
class MeanDifference(Compared):
    """Candidate minus baseline, of the mean over those columns whose tasks were all tested.

    `mine` and `theirs` are the means of the runs: a single value where tasks differ in their number of runs.

    Attributes:
        spread: The uncertainty from the runs of tasks that have no runs in common; None where they have.
        columns, wanted: The tested columns, and the number of the suite's columns.
    """

    spread: Part | None
    columns: tuple[str, ...]
    wanted: int

    @property
    def seeds(self) -> Part | None:
        """The uncertainty from the runs; None where it is unknown."""
        return self.spread or super().seeds

    @staticmethod
    def aggregate_suite(suite: Suite, differences: Mapping[str, Difference]) -> MeanDifference | None:
        """The difference of the means over tested columns, each counted once; None without a tested column.

        Columns that the suite shows and does not average are left out, unless they are all that there is.
        `differences` are by task, and by column where a column shows a part of a task.

        The units of different tasks are independent of each other, unless they are the same ones. Their runs
        are not where one training gave a model for all tasks, so the spread of runs is taken from the means
        of the runs.
        """
        columns = _select_mean_columns(suite)
        tested = {name: tasks for name, tasks in columns.items() if tasks and differences.keys() >= {*tasks}}
        if not tested:
            return None
        shares: dict[str, float] = {}
        for task, count in ((task, len(tasks)) for tasks in tested.values() for task in tasks):
            shares[task] = shares.get(task, 0.0) + 1 / len(tested) / count
        # A task in several columns has the sum of its shares, so that its units count once with all of their
        # weight.
        ones = {task: differences[task] for task in shares}
        counts = {(len(o.mine), len(o.theirs), o.paired) for o in ones.values() if o.seeds is not None}
        many, others, paired = next(iter(counts)) if len(counts) == 1 else (1, 1, False)
        # Tasks with other numbers of runs share no runs, so that no means of runs exist: spreads add up.
        spreads = [one.seeds.take_share(shares[task]) for task, one in ones.items() if one.seeds]
        return MeanDifference(
            mine=_average_runs(shares, [one.mine for one in ones.values()], many),
            theirs=_average_runs(shares, [one.theirs for one in ones.values()], others),
            paired=paired,
            examples=_estimate_mean_part(shares, ones),
            spread=Part.sum(spreads) if len(counts) > 1 else None,
            columns=tuple(tested),
            wanted=len(columns),
            same=all(one.same for one in ones.values()),
        )


def _select_mean_columns(suite: Suite) -> dict[str, list[str]]:
    """The columns in a suite's mean, each with the names of its tasks, or its own where it shows a part."""
    parts = suite.parts
    apart = {column.name for column in suite.columns if column.shown_only}
    columns = {c.name: [c.name] if c.name in parts else [t.name for t in c.tasks] for c in suite.columns}
    return {name: tasks for name, tasks in columns.items() if name not in apart} or columns


def _average_runs(
    shares: Mapping[str, float], scores: Sequence[Sequence[float]], runs: int
) -> tuple[float, ...]:
    """The mean of each run; a task with another number of them, as of one record, has its mean in each."""
    tasks = [own if len(own) == runs else [fmean(own)] * runs for own in scores]
    return tuple(
        sum(share * score for share, score in zip(shares.values(), run, strict=True))
        for run in zip(*tasks, strict=True)
    )


def _estimate_mean_part(shares: Mapping[str, float], ones: Mapping[str, Difference]) -> Part:
    """The uncertainty of a mean from the units of its tasks; units of several tasks count once."""
    influences: list[Influences] = []
    others, noise = [], 0.0
    for task, share in shares.items():
        difference = ones[task]
        noise += share**2 * difference.noise_in_units
        influences += [(names, share * values) for names, values in difference.influences]
        others += [
            part.take_share(share)
            # Without influences, as of equal outputs, the part of all units is the only one.
            for part in (difference.rest if difference.influences else (difference.examples,))
        ]
    sums, changed = sum_influences(influences) if influences else (), next(iter(ones.values())).changed
    return Part.sum([*_compute_unit_parts(sums, noise, changed), *others])
