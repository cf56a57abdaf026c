"""The expected cost of a plan, learnt from records that are made by hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fakes import artifact, encoding, record, task
from harness.commands.run import _line, _PastRun, _PastRuns
from harness.core.encoding import Encoding
from harness.core.types import Column, Size, Suite, Task
from harness.data.locate import DataSettings
from harness.plan.plan import ConfiguredModel, PlannedScore, plan_scores

HERE = ("cpu", "Some CPU")
OLD, NEW = "a" * 64, "b" * 64


def sized(name: str = "Fake", texts: int = 1000, characters: int = 40_000) -> Task:
    return replace(task(name), size=Size(texts=texts, characters=characters))


def planned(of: Task, model: str = NEW, **how: Any) -> PlannedScore:
    subject = ConfiguredModel(artifact=artifact(Path(), model), encoding=encoding(**how))
    suite = Suite(name="s", title="s", columns=(Column(name=of.name, type=of.type, tasks=(of,)),))
    (cell,) = plan_scores([subject], [suite], settings=DataSettings(cache=Path())).cells
    return cell


def past(
    of: Task, texts: int, tokens: int, model: str = OLD, how: Encoding | None = None, **more: Any
) -> _PastRun:
    """A run that took a second, on a model of a million parameters, and half a second to score."""
    made = record(
        of,
        0.5,
        model=artifact(Path(), model),
        how=how or encoding(),
        texts_encoded=texts,
        tokens_encoded=tokens,
        seconds={"encode": 1.0, "score": 0.5},
        **{"device": {"kind": "cpu", "name": "Some CPU"}, **more},
    )
    return _PastRun.of(made.model_copy(update={"model": made.model.model_copy(update={"parameters": 10**6})}))


def known(*runs: _PastRun, cached: tuple[str, ...] = (NEW, OLD), alone: bool = False) -> _PastRuns:
    return _PastRuns(runs=runs, cached=frozenset(cached), device=HERE, alone=alone)


def test_without_records_four_characters_are_a_token() -> None:
    cell = planned(sized())
    assert known().work(cell) == (1000, 40_000 // 4 + 2 * 1000)
    assert known().work(planned(sized(), max_length=8)) == (1000, 8 * 1000)
    assert known().work(planned(sized(texts=5, characters=None or 0))) == (5, 10)
    assert known().tokens_per_second(NEW, 10**6) is None


def test_a_run_of_the_same_data_tells_texts_and_tokens() -> None:
    """Other tasks share 400 of the texts."""
    runs = known(past(sized(), 600, 9_000), past(sized(), 0, 0))
    assert runs.work(planned(sized())) == (600, 9_000)
    assert runs.work(planned(sized(), max_length=10)) == (600, 6_000)
    assert runs.work(planned(sized("Other"))) == (1000, 12_000)


def test_texts_that_the_model_has_encoded_are_cached() -> None:
    run = past(sized(), 1000, 9_000, model=NEW)
    assert known(run).work(planned(sized())) == (0, 0)
    for others in ((), (OLD,)):  # its own were dropped
        assert known(run, cached=others).work(planned(sized())) == (1000, 9_000)
    assert known(run).work(planned(sized(), pooling="cls")) == (1000, 9_000)


def test_a_task_whose_texts_others_had_encoded_needs_those_others() -> None:
    run = past(sized(), 0, 0)
    assert known(run).work(planned(sized())) == (0, 0)
    assert known(run, alone=True).work(planned(sized())) == (1000, 12_000)


def test_characters_per_token_are_the_models_own_else_those_of_others() -> None:
    other = past(sized("Other"), 100, 1_200, characters_encoded=3_000)  # 3 a token beside the special ones
    own = past(sized("Own"), 100, 1_200, model=NEW, characters_encoded=5_000)
    assert known(other).work(planned(sized())) == (1000, round(40_000 / 3) + 2_000)
    assert known(other, own).work(planned(sized())) == (1000, 40_000 // 5 + 2_000)
    cut = past(sized("Cut"), 100, 12_000, model=NEW, characters_encoded=900_000)
    assert known(other, cut).work(planned(sized())) == (1000, round(40_000 / 3) + 2_000)
    same = past(sized(), 1000, 9_000)
    assert known(other, own, same).work(planned(sized())) == (1000, 9_000 * 3 // 5)


@pytest.mark.parametrize(("longest", "tokens"), [(128, 100 * 128), (256, 100 * 202)])
def test_texts_that_were_cut_say_little_of_longer_inputs(longest: int, tokens: int) -> None:
    of = sized(texts=100, characters=80_000)
    cut = past(of, 100, 100 * 128)
    assert known(cut).work(planned(of, max_length=longest)) == (100, tokens)


def test_time_is_by_the_device_the_model_and_its_parameters(tmp_path: Path) -> None:
    own = past(sized("Own"), 100, 2_000, model=NEW)
    other = past(sized(), 1000, 9_000)
    far = past(sized("Far"), 100, 10**9, model=NEW, device={"kind": "cuda", "name": "GPU"})
    runs = known(own, other, far)
    assert (runs.tokens_per_second(NEW, 10**6), runs.tokens_per_second(OLD, 10**6)) == (2_000, 9_000)
    assert known(other).tokens_per_second(NEW, 3 * 10**6) == 3_000
    assert known(far).tokens_per_second(NEW, 10**6) is None
    line = _line(planned(sized()), runs)
    assert (line.tokens, line.flops, line.seconds) == (9_000, 2.0 * 10**6 * 9_000, 9_000 / 2_000 + 0.5)
