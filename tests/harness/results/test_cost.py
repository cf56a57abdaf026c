"""What work costs, by hand: ranges, texts and tokens, speeds, disk and memory, and the time that is left.

The time left is also compared with simulated runs: jobs of random durations on a number of workers.
"""

from __future__ import annotations

import heapq
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from fakes import artifact, document, encoding, lineage, record, task
from harness.core.encoding import Encoding
from harness.core.keys import build_evaluation_identity
from harness.core.types import SEED, Size, Task
from harness.data.training.sets import LocatedTraining, TrainingData
from harness.results.cost.compute import FinetuneSpeed, StepTime, estimate_run_time, expect_training
from harness.results.cost.duration import (
    LIKELY,
    PastScore,
    PastScores,
    Speed,
    TimeRange,
    Work,
    estimate_non_embedding,
    time_left,
)
from harness.results.cost.encoding import (
    DiskNeed,
    PastWork,
    PlannedWork,
    estimate_job_memory,
    note_record,
    note_speed,
    read_speeds,
)
from harness.storage.record import Record

HERE = ("cpu", "Some CPU")
OLD, NEW = "a" * 64, "b" * 64


# Ranges


def test_ranges_add_up_bound_by_bound() -> None:
    """10 s by a factor of 2 and 100 s by a factor of 4: together between 5 + 25 and 20 + 400."""
    both = TimeRange.from_seconds(10, 2) + TimeRange.from_seconds(100, 4)
    assert (both.low, both.seconds, both.high) == (30, 110, 420)
    assert both.split_time(2) == TimeRange(low=15, seconds=55, high=210)
    assert both.text == "30 s to 7 min"


# Scores from vectors


def sized(name: str = "Fake", texts: int = 1000, characters: int = 40_000) -> Task:
    return replace(task(name), size=Size(texts=texts, characters=characters))


def planned(of: Task, model: str = NEW, *, parameters: int = 10**6, **how: Any) -> PlannedWork:
    own = encoding(**how)
    return PlannedWork(
        name="new",
        task=of.name,
        key="k",
        state="to do",
        model=model,
        type=of.type,
        identity=build_evaluation_identity(artifact(Path(), model), of, own, seed=SEED),
        encoding=own,
        size=of.size,
        parameters=parameters,
    )


def made(
    of: Task, texts: int, tokens: int, model: str = OLD, how: Encoding | None = None, **more: Any
) -> Record:
    """The record of a run that took a second, on a model of 10^6 parameters, and half a second to score."""
    found = record(
        of,
        0.5,
        model=artifact(Path(), model),
        how=how or encoding(),
        texts_encoded=texts,
        tokens_encoded=tokens,
        seconds={"encode": 1.0, "score": 0.5},
        **{"device": {"kind": "cpu", "name": "Some CPU"}, **more},
    )
    return found.model_copy(update={"model": found.model.model_copy(update={"parameters": 10**6})})


def past(*arguments: Any, **more: Any) -> PastScore:
    return PastScore.from_record(made(*arguments, **more))


def known(*scores: PastScore, cached: tuple[str, ...] = (NEW, OLD), **more: Any) -> PastWork:
    return PastWork(scores=PastScores.from_scores(scores), cached=frozenset(cached), device=HERE, **more)


def rate_of(work: PastWork, parameters: int, model: str = NEW) -> Any:
    found = work.estimate_token_rate(model, parameters, "float32")
    assert found is not None
    return found


def test_embeddings_compute_nothing() -> None:
    """Of BERT-base's 109.5 million parameters 85.6 million compute."""
    assert estimate_non_embedding(109_482_240, 768) == pytest.approx(85.6e6, rel=0.02)
    assert estimate_non_embedding(1_000_000, None) == 1_000_000
    assert estimate_non_embedding(1_000_000, 768) == 250_000  # a small vocabulary


def test_without_records_four_characters_are_a_token() -> None:
    cell = planned(sized())
    assert known().expect_texts(cell) == (1000, 40_000 // 4 + 2 * 1000)
    assert known().expect_texts(planned(sized(), max_length=8)) == (1000, 8 * 1000)
    assert known().expect_texts(planned(sized(texts=5, characters=None or 0))) == (5, 10)


def test_a_run_of_the_same_data_tells_texts_and_tokens() -> None:
    """Other tasks share 400 of the texts."""
    runs = known(past(sized(), 600, 9_000), past(sized(), 0, 0))
    assert runs.expect_texts(planned(sized())) == (600, 9_000)
    assert runs.expect_texts(planned(sized(), max_length=10)) == (600, 6_000)
    assert runs.expect_texts(planned(sized("Other"))) == (1000, 12_000)


def test_texts_that_the_model_has_encoded_are_cached() -> None:
    run = past(sized(), 1000, 9_000, model=NEW)
    assert known(run).expect_texts(planned(sized())) == (0, 0)
    for others in ((), (OLD,)):  # its own were dropped
        assert known(run, cached=others).expect_texts(planned(sized())) == (1000, 9_000)
    assert known(run).expect_texts(planned(sized(), pooling="cls")) == (1000, 9_000)


def test_a_task_whose_texts_others_had_encoded_needs_those_others() -> None:
    run = past(sized(), 0, 0)
    assert known(run).expect_texts(planned(sized())) == (0, 0)
    assert known(run, alone=True).expect_texts(planned(sized())) == (1000, 12_000)


def test_characters_per_token_are_the_models_own_else_those_of_others() -> None:
    other = past(sized("Other"), 100, 1_200, characters_encoded=3_000)  # 3 a token beside the special ones
    own = past(sized("Own"), 100, 1_200, model=NEW, characters_encoded=5_000)
    assert known(other).expect_texts(planned(sized())) == (1000, round(40_000 / 3) + 2_000)
    assert known(other, own).expect_texts(planned(sized())) == (1000, 40_000 // 5 + 2_000)
    cut = past(sized("Cut"), 100, 12_000, model=NEW, characters_encoded=900_000)
    assert known(other, cut).expect_texts(planned(sized())) == (1000, round(40_000 / 3) + 2_000)
    same = past(sized(), 1000, 9_000)
    assert known(other, own, same).expect_texts(planned(sized())) == (1000, 9_000 * 3 // 5)


@pytest.mark.parametrize(("longest", "tokens"), [(128, 100 * 128), (256, 100 * 202)])
def test_texts_that_were_cut_say_little_of_longer_inputs(longest: int, tokens: int) -> None:
    of = sized(texts=100, characters=80_000)
    cut = past(of, 100, 100 * 128)
    assert known(cut).expect_texts(planned(of, max_length=longest)) == (100, tokens)


def test_time_is_by_the_device_the_model_and_its_parameters() -> None:
    own = past(sized("Own"), 100, 2_000, model=NEW)
    other = past(sized(), 1000, 9_000)
    gpu = {"kind": "cuda", "name": "GPU"}
    far = past(sized("Far"), 100, 10**9, model=NEW, device=gpu)
    both = known(own, other, far)
    for model, rate in ((NEW, 2_000), (OLD, 9_000)):
        found = rate_of(both, 10**6, model)
        assert (found.tokens, found.factor, found.source) == (rate, 1.5, "1 record on this machine")
    scaled = rate_of(known(other), 3 * 10**6)
    assert (scaled.tokens, scaled.source) == (3_000, "the rate of other models on this machine")
    cost = both.estimate_score_cost(planned(sized()))
    assert (cost.tokens, cost.flops) == (9_000, 2.0 * 10**6 * 9_000)
    assert cost.seconds == 9_000 / 2_000 + 0.5
    assert cost.low == pytest.approx(4.5 / 1.5 + 0.5 / LIKELY)
    assert cost.high == pytest.approx(4.5 * 1.5 + 0.5 * LIKELY)
    assert cost.high < 3 * cost.low


def test_the_nearest_size_tells_most_of_another_model() -> None:
    def speed(model: str, parameters: int, tokens: int) -> Speed:
        return Speed(
            model=model, parameters=parameters, device=HERE, dtype="float32", tokens=tokens, seconds=1.0
        )

    measured = PastWork(device=HERE, speeds=(speed(OLD, 10**5, 5_000), speed("c" * 64, 10**8, 1_000)))
    found = rate_of(measured, 2 * 10**8)
    assert found.tokens == 500


def test_a_tiny_model_tells_nothing_of_a_real_one() -> None:
    """Of a network of 5,544 parameters the time is that of calls."""
    tiny = Speed(model=OLD, parameters=5_544, device=HERE, dtype="float32", tokens=64, seconds=0.04)
    scored = past(sized(), 100, 2_000, model=OLD)._replace(parameters=5_544, seconds=1.0)
    unmeasured = rate_of(PastWork(device=HERE, cores=2), 10**7)
    for work in (PastWork(device=HERE, cores=2, speeds=(tiny,)), replace(known(scored), cores=2)):
        assert rate_of(work, 10**7) == unmeasured
        assert rate_of(work, 10**4).source == "the rate of other models on this machine"
    assert unmeasured.tokens == 1e11 / 2e7


def test_speeds_that_differ_widen_the_range_up_to_three() -> None:
    equal = [past(sized(name), 100, 2_000, model=NEW) for name in "ABC"]
    found = rate_of(known(*equal), 1)
    assert (found.factor, found.source) == (1.25, "3 records on this machine")
    wide = [
        past(sized(name), 100, count, model=NEW)
        for name, count in zip("ABC", (1500, 9_000, 400), strict=True)
    ]
    found = rate_of(known(*wide), 1)
    assert found.factor == pytest.approx(LIKELY)


def test_without_any_speed_a_default_says_what_it_is() -> None:
    """A core does 5e10 operations a second; 12,000 tokens of 10 million parameters are 2.4e11."""
    cost = known(cores=2).estimate_score_cost(planned(sized(), parameters=10**7))
    assert cost.source == "a default for a CPU: may be off by a factor of 3"
    assert cost.seconds == pytest.approx(2.4e11 / 1e11 + 2.0)
    assert (cost.low, cost.high) == (pytest.approx(4.4 / 3), pytest.approx(4.4 * 3))
    assert known().estimate_score_cost(planned(sized(), parameters=0)).seconds is None
    gpu = rate_of(PastWork(device=("cuda", "")), 10**6)
    assert (gpu.tokens, gpu.source.split(":")[0]) == (3e13 / 2e6, "a default for a GPU")


def test_a_check_of_a_model_measures_a_speed_and_the_last_score_renews_it(tmp_path: Path) -> None:
    check = Speed(
        model=NEW, parameters=10**6, device=HERE, dtype="float32", tokens=300, seconds=0.1, load_seconds=4.0
    )
    note_speed(tmp_path, check)
    measured = PastWork(speeds=read_speeds(tmp_path), device=HERE)
    cost = measured.estimate_score_cost(planned(sized()))
    assert cost.source == "this machine's measured rate"
    assert cost.seconds == 12_000 / 3_000 + 2.0
    assert measured.check_time(NEW).seconds == measured.check_time(OLD).seconds == 4.0
    assert measured.start_time.seconds == 3.0 + 5.0  # no process is known to have imported its libraries
    note_record(tmp_path, made(sized("Few"), 10, 500, model=NEW))  # too few tokens to tell
    assert read_speeds(tmp_path) == (check,)
    note_record(tmp_path, made(sized(), 1000, 6_000, model=NEW))
    (speed,) = read_speeds(tmp_path)
    assert (speed.tokens, speed.seconds, speed.load_seconds) == (6_000, 1.0, 4.0)
    for imports in (7.0, 0.2):  # the second process had its libraries
        note_speed(tmp_path, replace(check, import_seconds=imports))
        start = PastWork(speeds=read_speeds(tmp_path), device=HERE).start_time
        assert (start.seconds, start.high) == (3.0 + 7.0, pytest.approx(5.0 + 7.0 * LIKELY))
    (tmp_path / "speeds.json").write_text("[{")
    assert read_speeds(tmp_path) == ()


def test_loading_and_scoring_take_as_long_as_the_last_time_or_as_tasks_of_the_type(tmp_path: Path) -> None:
    of, own = past(sized("Own"), 1000, 9_000), past(sized("Own"), 1000, 9_000)
    slow = own._replace(others=8.0, data="other", type="Clustering")
    work = planned(sized("New"))
    without = known(of, slow).estimate_score_cost(work)
    assert without.seconds == pytest.approx(12_000 / 9_000 + 0.5)  # of its type, not of clustering
    assert known(slow).estimate_score_cost(work).seconds == pytest.approx(12_000 / 9_000 + 8.0)


def test_a_done_score_takes_no_time_and_an_impossible_one_has_none() -> None:
    work = planned(sized())
    assert known().estimate_score_cost(replace(work, state="done")).seconds == 0
    lost = known().estimate_score_cost(replace(work, state="cannot run", error="no data"))
    assert (lost.seconds, lost.texts, lost.error) == (None, None, "no data")


# Trainings and runs


def trained(tmp_path: Path, folder: str, **facts: Any) -> Any:
    from harness.encoder import backbones
    from tiny import folder as tiny_folder

    place = tiny_folder(backbones.list_backbones()["bert"].family, tmp_path / folder)  # type: ignore[arg-type]
    return document(place, training={"device": {"kind": "cpu", "name": "Some CPU"}, **facts})


def expected(*arguments: Any) -> tuple[TimeRange, str]:
    found = expect_training(*arguments, parameters=10**6)
    assert found is not None
    return found


def test_a_training_is_by_past_ones_else_by_operations(tmp_path: Path) -> None:
    """100 texts took 10 s, and the rest of that training 5 s: 300 texts take 35 s."""
    times = {"started": "2026-01-01T00:00:00+00:00", "written": "2026-01-01T00:00:15+00:00"}
    past_one = trained(tmp_path, "a", texts=100, seconds=10.0, **times)
    data = [LocatedTraining(data=TrainingData(), name="pairs")]
    longer = lineage(settings={"rate": 5e-5, "batch": 4, "epochs": 3})
    found = expected(longer, 300, data, [past_one], known())
    assert (found[0].seconds, found[1]) == (35, "1 training on this machine")
    assert found[0].high / found[0].low == pytest.approx(1.5**2)
    other = expected(lineage(settings={"batch": 8}), 300, data, [past_one], known())
    assert other[0].high / other[0].low == pytest.approx(LIKELY**2)
    # Three times the 32 tokens of 300 texts, at half of 9,000 tokens a second, and 10 s.
    fast = known(past(sized(), 1000, 9_000))
    first = expected(lineage(), 300, data, [], fast)
    assert first[0].seconds == pytest.approx(3 * 300 * 32 / 4_500 + 10)
    assert expect_training(lineage(), None, data, [], fast, parameters=10**6) is None


def test_two_steps_say_what_a_step_and_a_token_take() -> None:
    """100 tokens in 2 s and 300 in 4 s: 1 s for the step, 0.01 s for a token."""
    speed = FinetuneSpeed.fit_speed(
        StepTime(tokens=100, seconds=2, scoring=0.2), StepTime(tokens=300, seconds=4, scoring=0.6)
    )
    assert (speed.step, speed.token, speed.scored) == pytest.approx((1, 0.01, 0.002))
    assert speed.estimate_seconds(10, trained=2_000, scored=500) == pytest.approx(10 + 20 + 1)
    assert estimate_run_time(100, 1).high == pytest.approx(LIKELY**2 * estimate_run_time(100, 1).low)
    assert estimate_run_time(100, 4).seconds == 80


# Disk and memory


def test_the_disk_of_models_adds_up_unless_vectors_are_dropped(tmp_path: Path) -> None:
    """A vector of 32 numbers in float32 and 16 bytes of a hash: 144 for each of 1,000 texts."""
    works = [replace(planned(sized(), model), width=32, key=model) for model in (OLD, NEW)]
    both = DiskNeed.estimate_disk_need(works, tmp_path, keep=64, drop=False)
    each = DiskNeed.estimate_disk_need(works, tmp_path, keep=64, drop=True)
    assert both is not None
    assert each is not None
    assert (both.bytes, each.bytes, both.texts) == (288_000, 144_000, 2_000)
    assert DiskNeed.estimate_disk_need([replace(works[0], width=None)], tmp_path, keep=64, drop=False) is None


def test_a_training_takes_six_times_its_weights_and_an_encoder_twice() -> None:
    assert estimate_job_memory(10**9, trains=True) == 2_500_000_000 + 6 * 10**9
    assert estimate_job_memory(10**9, trains=False) == 2_500_000_000 + 2 * 10**9


# The time left


def left_of(work: Sequence[Work], now: float) -> TimeRange:
    left = time_left(work, now)
    assert left is not None
    return left


def test_before_anything_has_ended_the_plan_says_what_is_left() -> None:
    """Two of 30 s and one of 60 s, one after the other."""
    waiting = [
        Work(key=key, groups=("encode", None), expected=seconds)
        for key, seconds in (("a", 30.0), ("b", 30.0), ("c", 60.0))
    ]
    left = left_of(waiting, 0.0)
    assert left.seconds == pytest.approx(120)
    assert left.low < 120 < left.high


def test_work_that_was_twice_as_slow_as_expected_makes_the_rest_twice_as_long() -> None:
    ended = [
        Work(key=f"e{n}", groups=("encode", None), begun=20.0 * n, ended=20.0 * (n + 1), expected=10.0)
        for n in range(8)
    ]
    left = left_of([*ended, Work(key="x", groups=("encode", None), expected=100.0)], 160.0)
    assert left.seconds == pytest.approx(200)


DURATIONS: dict[str, Callable[[random.Random], float]] = {
    "uniform": lambda rng: rng.uniform(0.5, 1.5),
    "lognormal": lambda rng: math.exp(rng.gauss(0, 0.3)),
    "exponential": lambda rng: rng.expovariate(1),
}


def simulated(durations: list[float], workers: int) -> list[tuple[float, float]]:
    """When each job begins and ends, in order, on the worker that is free first."""
    free = [0.0] * workers
    times = []
    for seconds in durations:
        begun = heapq.heappop(free)
        heapq.heappush(free, begun + seconds)
        times.append((begun, begun + seconds))
    return times


@pytest.mark.slow
@pytest.mark.parametrize("law", DURATIONS)
@pytest.mark.parametrize(("jobs", "workers"), [(40, 4), (200, 12), (400, 2)])
def test_the_interval_covers_about_four_of_five_ends(law: str, jobs: int, workers: int) -> None:
    """Three groups whose means differ, seen at 30, 50 and 80 % of the time."""
    rng, covered, ratios = random.Random(7), [], []
    for _ in range(60):
        scales = [60 * math.exp(rng.gauss(0, 1)) for _ in range(3)]
        groups = [rng.randrange(3) for _ in range(jobs)]
        times = simulated([scales[group] * DURATIONS[law](rng) for group in groups], workers)
        whole = max(end for _, end in times)
        for share in (0.3, 0.5, 0.8):
            now = share * whole
            work = [
                Work(
                    key=str(number),
                    groups=(group, None),
                    begun=begun if begun < now else None,
                    ended=end if end <= now else None,
                )
                for number, (group, (begun, end)) in enumerate(zip(groups, times, strict=True))
            ]
            left = left_of(work, now)
            covered.append(left.low <= whole - now <= left.high)
            ratios.append(left.seconds / (whole - now))
    assert 0.65 <= sum(covered) / len(covered) <= 0.95
    assert 0.9 <= median(ratios) <= 1.1


def test_a_chain_lasts_as_long_as_its_parts_however_many_workers_there_are() -> None:
    ended = [Work(key=f"e{n}", groups=(None,), begun=0.0, ended=100.0) for n in range(8)]
    chain = [Work(key=str(n), groups=(None,), inputs=(str(n - 1),)) for n in range(5)]
    left = left_of([*ended, *chain], 100.0)
    assert left.seconds == pytest.approx(500)
    assert left.low < 500 < left.high


def test_a_wide_job_takes_several_workers_and_steps_say_what_is_left() -> None:
    ended = [Work(key=f"e{n}", groups=("run", None), begun=0.0, ended=100.0) for n in range(4)]
    training = Work(key="t", groups=("train", None), width=4, begun=100.0, whole=300.0)
    left = left_of([*ended, training], 200.0)
    assert left.seconds == pytest.approx(200)


def test_nothing_is_expected_before_anything_has_ended() -> None:
    assert time_left([Work(key="a", groups=(None,), begun=0.0), Work(key="b", groups=(None,))], 9.0) is None
