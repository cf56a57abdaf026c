"""On a narrow terminal every command prints names whole: they are folded, and never cut."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from check_data import TASKS, small_check
from fakes import artifact, encoding, record
from harness.checks.baselines import Baseline, BaselineModel, write_baseline
from harness.checks.report import print_check
from harness.cli import invoke
from harness.core import terminal
from harness.core.terminal import create_console
from harness.core.types import SuiteOptions
from harness.driver.estimate import PlanCost
from harness.driver.execute import Result
from harness.driver.report.plan import print_plan
from harness.driver.report.run import Report
from harness.driver.report.trained import print_trained_result
from harness.plan.catalog import open_suites
from harness.plan.plan import ConfiguredModel, Plan, PlannedScore
from harness.plan.request import PreparedRun, Request
from harness.proxy.document import PROXIES, Proxy
from harness.results.cost.duration import TimeRange
from harness.results.cost.encoding import ScoreCost
from harness.results.scores import Mean, TaskResult, TrainedResult
from harness.storage.record import Record
from harness.storage.store import Store
from harness.watch.state import WATCHES, Watch, WatchEntry

LONG = ("TweetTopicSingleClassification", "MassiveScenarioVNClassification")
SUITES = tuple(f"mteb:{name}" for name in LONG)
MODELS = tuple(
    ConfiguredModel(
        artifact=artifact(
            Path("x"), key=key * 64, name=f"organisation-{key}/encoder-base-of-prose-and-code-v2.1"
        ),
        encoding=encoding(),
    )
    for key in "abc"
)
NAMES = tuple(model.artifact.name for model in MODELS)
BASELINE = "the-release-of-last-november-with-five-repeats"
PATH = "organisation-of-data/a-data-set-with-a-long-name-of-its-own"


REVISION = open_suites(SUITES)[0].tasks[0].data.revision[:12]


def made(model: ConfiguredModel, name: str, score: float = 0.64508) -> Record:
    (suite,) = open_suites([f"mteb:{name}"], SuiteOptions())
    return record(suite.tasks[0], score, model=model.artifact)


@pytest.fixture
def results(tmp_path: Path) -> Path:
    for model in MODELS[:2]:
        for name in LONG:
            Store(tmp_path).put(model.artifact.slug, made(model, name))
    return tmp_path


def of_a_run(results: Path) -> None:
    suites = open_suites(SUITES, SuiteOptions())
    cells = {
        (model, task): PlannedScore(subject=model, task=task, seed=42, key=f"{model}{task}", identity={})
        for model in MODELS
        for suite in suites
        for task in suite.tasks
    }
    keys = {pair: cell.key for pair, cell in cells.items()}
    prepared = PreparedRun(
        request=Request(models=NAMES, suites=SUITES),
        asked=MODELS,
        subjects=MODELS,
        suites=tuple(suites),
        plan=Plan(cells=tuple(cells.values()), jobs=(), keys=keys),
        store=Store(results),
        cache=results,
    )
    found = [
        Result(cell=c, how="cached", record=made(*k))
        for k, c in zip(_pairs(cells), cells.values(), strict=True)
    ]
    Report(prepared=prepared, results=tuple(found), texts_encoded=0, tokens_encoded=0).print(create_console())


def _pairs(cells: dict[tuple[ConfiguredModel, object], PlannedScore]) -> list[tuple[ConfiguredModel, str]]:
    return [(model, task.name) for model, task in cells]  # type: ignore[attr-defined]


def of_a_plan(_results: Path) -> None:
    scores = tuple(
        ScoreCost(
            model=NAMES[0],
            task=name,
            key="k" * 64,
            state="to do",
            texts=1234567,
            tokens=987654321,
            flops=1e15,
            seconds=7300.0,
            low=3650.0,
            high=14600.0,
            source="12 records on this machine",
        )
        for name in LONG
    )
    time = TimeRange.from_seconds(14600.0, 2)
    cost = PlanCost(scores=scores, trainings=(), disk=None, time=time, unknown=0)
    print_plan(cost, (), create_console())


def of_a_trained_model(_results: Path) -> None:
    rows = tuple(
        TaskResult(
            task=name, number=0.64508, raw={("validation", "spearman_correlation"): 0.64508}, best_run=0.7
        )
        for name in LONG
    )
    average = Mean.compute_mean("tasks", [0.64508, 0.64508])
    print_trained_result(
        TrainedResult(rows=rows, convention=None, average=average), NAMES[0], create_console()
    )


def of_a_check(_results: Path) -> None:
    tasks = tuple(replace(one, task=name) for one, name in zip(TASKS, LONG, strict=False))
    party = replace(small_check().baseline, baseline=BASELINE)
    shown = replace(small_check(), tasks=tasks, baseline=party, suites=SUITES)
    print_check(shown, create_console(), every=True)


def of_baselines(results: Path) -> None:
    models = tuple(
        BaselineModel(model=name, source=name, artifact="a" * 64, folder="f", keys={"STS12": ("k",)})
        for name in NAMES
    )
    when = "2026-01-02T03:04:05+00:00"
    one = Baseline(name=BASELINE, when=when, suites=SUITES, seeds=3, options={}, runs=models[:1])
    write_baseline(results, one, replace=False)
    typed("baseline", "list")(results)


def of_watches(results: Path) -> None:
    entry = WatchEntry(step=100_000, name="step-100000", state="failed", reason=f"{LONG[0]} has no data")
    one = Watch(name=BASELINE, source=f"/data/{PATH}", suite=SUITES[1], request={}, checkpoints=(entry,))
    WATCHES.write_document(results, one.name, one)
    typed("watch", "--list")(results)
    typed("watch", one.name, "--show")(results)


def of_proxies(results: Path) -> None:
    task = {
        "splits": ["test"],
        "subsets": ["default"],
        "coefficient": 0.25,
        "low": 0.1,
        "high": 0.9,
        "minutes": 123.4,
    }
    error = dict.fromkeys(
        ("rmse", "mae", "half_width", "kendall", "spearman", "plain_rmse", "deviation"), 0.01
    )
    found = Proxy.model_validate(
        {
            "schema": 1,
            "name": BASELINE,
            "created": "",
            "chosen": "greedy",
            "target": {"suite": "mteb", "title": "MTEB(eng, v2)", "columns": 41},
            "penalty": 0.0,
            "intercept": 0.1,
            "tasks": [{"task": name, **task} for name in LONG],
            "error": {**error, "level": 0.95},
            "cost": {
                **dict.fromkeys(("minutes", "budget", "whole", "spread"), 5.0),
                "reference": NAMES[0],
                "nearest": None,
            },
            "fitted": {"models": 20, "families": 10, "other_data": 0, "low": 0.1, "high": 0.9},
            "imported": {"source": "mteb-results", "id": "x", "when": "2026-01-01"},
        }
    )
    PROXIES.write_document(results, found.name, found)
    typed("proxy", "list")(results)
    typed("proxy", "show", found.name)(results)


def of_data(results: Path) -> None:
    """A data set that lies in the root, and those that two tasks lack there."""
    (results / PATH).mkdir(parents=True)
    (results / PATH / "test.jsonl").touch()
    suites = [part for name in SUITES for part in ("--suite", name)]
    for wanted in ([], suites):
        _zero(invoke(["data", "list", "--offline", "--data", str(results), *wanted]))


def typed(*arguments: str) -> Callable[[Path], None]:
    return lambda results: _zero(invoke([*arguments, "--results", str(results)]))


def _zero(code: int) -> None:
    assert code == 0


SHOWN: dict[str, tuple[Callable[[Path], None], tuple[str, ...]]] = {
    "list suites": (
        typed("list", "suites"),
        ("mteb[:<benchmark or task>]", "proxy:<proxy or its JSON file>"),
    ),
    "list recipes": (typed("list", "recipes"), ("glue-mosaicbert:bert-large", "glue-modernbert:warmup6")),
    "list backbones": (typed("list", "backbones"), ("xlm-roberta-large", "gte-en-mlm-large", "distilbert")),
    "list tasks": (typed("list", "tasks", "--match", "massive"), ("MassiveScenarioVNClassification",)),
    "list records": (typed("list", "records"), (*NAMES[:2], *LONG, "64.51", "accuracy")),
    "show": (typed("show", NAMES[0]), (*LONG, "64.51", "accuracy")),
    "show --suite": (
        typed("show", NAMES[0], *(part for name in SUITES for part in ("--suite", name))),
        (*LONG, "64.51"),
    ),
    "compare": (typed("compare", *NAMES[:2]), (*NAMES[:2], *LONG, "64.51")),
    "run": (of_a_run, (*NAMES, *LONG, "64.51")),
    "run --dry-run": (of_a_plan, (NAMES[0], *LONG, "1,234,567", "987,654,321")),
    "run --recipe": (of_a_trained_model, (*LONG, "64.51", "spearman_correlation")),
    "check": (of_a_check, (*LONG, "−3.50")),
    "baseline list": (of_baselines, (BASELINE, NAMES[0], *SUITES)),
    "watch": (of_watches, (BASELINE, f"/data/{PATH}", SUITES[1], "100,000", LONG[0])),
    "proxy": (of_proxies, (BASELINE, *LONG, "+0.2500")),
    "data list": (of_data, (PATH, *LONG, REVISION)),
}
"""What each command prints, and names and numbers that must be there."""


WIDEST = {"run": 79, "run --dry-run": 75}
"""The width of tables whose numbers do not fit into less."""


@pytest.mark.parametrize("width", [80, 60])
@pytest.mark.parametrize("command", SHOWN)
def test_names_are_folded_and_not_cut(
    command: str,
    width: int,
    results: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(terminal, "WIDE", width)
    monkeypatch.setenv("FORCE_COLOR", "1")  # as on a terminal
    shown, names = SHOWN[command]
    shown(results)
    out = re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().out)
    assert "…" not in out
    columns: dict[int, str] = {}
    for line in out.splitlines():
        cells = re.split("[│┃]", line)
        for number, cell in enumerate(cells):
            columns[number] = columns.get(number, "") + cell.replace(" ", "")
    for name in names:
        assert any(name.replace(" ", "") in column for column in columns.values()), name
        if re.fullmatch(r"[−+\d.,]+", name):
            assert name in out
    tables = [line for line in out.splitlines() if line.startswith(("│", "┃"))]
    assert max(map(len, tables)) <= max(width, WIDEST.get(command, 0))
