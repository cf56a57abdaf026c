from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from harness.errors import RecordError, UsageError
from harness.imported import Imported
from harness.proxy import document
from harness.proxy.document import PROXIES, Proxy, ProxyPredictor, find_proxy
from harness.proxy.fit import Wish, fit_proxy
from proxies import put, suite

COLUMNS = 8


def imported(folder: Path, seed: int = 7) -> Imported:
    """Forty models of twenty families: B and D follow what all tasks share, closely; A is dear."""
    draw = np.random.default_rng(seed)
    level = draw.uniform(0.3, 0.8, (40, 1))
    noise = np.where(np.isin(np.arange(COLUMNS), [1, 3]), 0.001, 0.08)
    scores = level + draw.normal(0, 1, (40, COLUMNS)) * noise
    seconds = np.outer(draw.uniform(0.5, 2, 40), [6000, *[60.0] * (COLUMNS - 1)])
    models = [f"org{row // 2}/model{row}" for row in range(40)]
    return put(folder, suite(COLUMNS), np.clip(scores, 0, 1), models=models, seconds=seconds)


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> Proxy:
    folder = tmp_path_factory.mktemp("import")
    return fit_proxy(imported(folder), suite(COLUMNS), Wish(suite="made", minutes=3.5))


def test_what_is_fitted_is_told(fitted: Proxy) -> None:
    assert fitted.name == "made-up-v1-3.5min"
    assert (fitted.target.title, fitted.target.columns, fitted.chosen) == ("MADE(up, v1)", 8, "greedy")
    assert (fitted.fitted.models, fitted.fitted.families, fitted.fitted.other_data) == (40, 20, 0)
    assert fitted.cost.minutes is not None
    assert fitted.cost.minutes <= 3.5
    assert fitted.cost.whole is not None
    assert fitted.cost.whole / fitted.cost.minutes == pytest.approx(107 / len(fitted.tasks))
    assert {task.task for task in fitted.tasks} & {"B", "D"}
    assert "A" not in {task.task for task in fitted.tasks}
    assert fitted.error.rmse < 0.05 < fitted.error.deviation
    assert fitted.error.rmse <= fitted.error.half_width
    assert fitted.error.kendall is not None
    assert fitted.error.kendall > 0.8


def test_a_prediction_is_the_formula_of_the_file(fitted: Proxy) -> None:
    told = json.loads(fitted.to_json())
    scores = {task["task"]: 0.5 + 0.01 * at for at, task in enumerate(told["tasks"])}
    by_hand = told["intercept"] + sum(t["coefficient"] * scores[t["task"]] for t in told["tasks"])
    found = ProxyPredictor(proxy=fitted).predict(scores)
    assert found is not None
    assert found.value == pytest.approx(by_hand)
    assert (found.high - found.value, found.value - found.low) == pytest.approx(
        (told["error"]["half_width"],) * 2
    )
    assert (found.target, found.level, found.families, found.outside) == ("MADE(up, v1)", 0.95, 20, ())


def test_a_missing_task_is_never_guessed(fitted: Proxy) -> None:
    predictor = ProxyPredictor(proxy=fitted)
    scores = dict.fromkeys(predictor.tasks, 0.5)
    assert predictor.predict(scores) is not None
    for name in predictor.tasks:
        assert predictor.predict({key: value for key, value in scores.items() if key != name}) is None


def test_scores_that_no_fitted_model_has_are_named(fitted: Proxy) -> None:
    predictor = ProxyPredictor(proxy=fitted)
    first = predictor.tasks[0]
    found = predictor.predict({**dict.fromkeys(predictor.tasks, 0.5), first: 0.0001})
    assert found is not None
    assert found.outside[0] == first
    every = predictor.predict(dict.fromkeys(predictor.tasks, 0.999))
    assert every is not None
    assert every.outside[-1] == "MADE(up, v1)"


def test_given_tasks_are_taken_whatever_they_cost(tmp_path: Path) -> None:
    found = fit_proxy(imported(tmp_path), suite(COLUMNS), Wish(suite="made", tasks=("C", "A"), name="mine"))
    assert [task.task for task in found.tasks] == ["A", "C"]
    assert (found.name, found.chosen, found.cost.budget) == ("mine", "given", None)


def test_minutes_can_be_those_of_a_named_model(tmp_path: Path) -> None:
    source = imported(tmp_path)
    names = source.files()["seconds"].to_pylist()
    found = fit_proxy(source, suite(COLUMNS), Wish(suite="made", tasks=("B",), reference="org3/model7"))
    seconds = names[7 * COLUMNS + 1]
    assert found.cost.minutes == pytest.approx(seconds / 60)
    assert (found.cost.reference, found.cost.nearest) == ("org3/model7", None)


def test_the_same_import_gives_the_same_proxy(fitted: Proxy, tmp_path: Path) -> None:
    again = fit_proxy(imported(tmp_path), suite(COLUMNS), Wish(suite="made", minutes=3.5))
    assert (again.tasks, again.error, again.cost) == (fitted.tasks, fitted.error, fitted.cost)


@pytest.mark.parametrize(
    ("wish", "said"),
    [
        (Wish(suite="made", minutes=0.001), "No task fits into 0.001 minutes: the cheapest"),
        (Wish(suite="made", tasks=("B", "Bee")), "No task of the target is called 'Bee'"),
        (Wish(suite="made", reference="org3/model8"), "No imported model with recorded times is called"),
    ],
)
def test_what_cannot_be_is_said(tmp_path: Path, wish: Wish, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        fit_proxy(imported(tmp_path), suite(COLUMNS), wish)


def test_an_import_without_times_can_only_take_given_tasks(tmp_path: Path) -> None:
    draw = np.random.default_rng(8)
    scores = draw.random((30, 4))
    source = put(tmp_path, suite(4), scores, seconds=np.full((30, 4), np.nan))
    with pytest.raises(UsageError, match="the time of none"):
        fit_proxy(source, suite(4), Wish(suite="made"))
    found = fit_proxy(source, suite(4), Wish(suite="made", tasks=("A",)))
    assert (found.cost.minutes, found.cost.nearest) == (None, None)


def test_a_file_reads_as_what_was_written(fitted: Proxy, tmp_path: Path) -> None:
    path = PROXIES.write(tmp_path, fitted.name, fitted.to_json())
    assert path == tmp_path / "proxies" / "made-up-v1-3.5min.json"
    assert PROXIES.kind.read(path) == fitted
    assert find_proxy(fitted.name, tmp_path) == find_proxy(str(path), tmp_path) == path
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("more", [{}, {"error": "of another form"}])
def test_a_newer_schema_is_refused(fitted: Proxy, tmp_path: Path, more: dict[str, object]) -> None:
    path = PROXIES.write(tmp_path, fitted.name, fitted.to_json())
    path.write_text(json.dumps({**json.loads(path.read_text()), "schema": document.SCHEMA + 1, **more}))
    with pytest.raises(RecordError, match="newer version"):
        PROXIES.kind.read(path)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"schema": "x"}', '{"schema": 1, "tasks": []}', "\x00"])
def test_what_is_no_proxy_is_said(tmp_path: Path, text: str) -> None:
    path = tmp_path / "one.json"
    path.write_text(text)
    with pytest.raises(RecordError, match="is not a proxy"):
        PROXIES.kind.read(path)


def test_a_name_that_is_not_there_has_its_nearest_told(fitted: Proxy, tmp_path: Path) -> None:
    PROXIES.write(tmp_path, fitted.name, fitted.to_json())
    with pytest.raises(UsageError, match=r"made-up-v1-3\.5min") as caught:
        find_proxy("made-up-v1-3min", tmp_path)
    assert "No proxy in" in caught.value.message
    for text in ("../made-up-v1-3.5min", "away.json"):
        with pytest.raises(UsageError):
            find_proxy(text, tmp_path)
