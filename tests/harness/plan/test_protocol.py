"""What protocols expand to: their trainings, runs and scores, counted by hand, and what narrows them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from fakes import train
from finetune.recipes.dpr import MSMARCO
from harness.commands import show
from harness.commands.run import command
from harness.core.errors import UsageError
from harness.core.terminal import create_console
from harness.data.training import sets
from harness.driver import evaluation
from harness.driver.protocol import PreparedProtocol, prepare_protocol
from harness.driver.report.protocol import ProtocolReport
from harness.jobs.protocol import ProtocolStep
from harness.plan.catalog import PROTOCOLS, find_evaluations, find_protocol
from harness.plan.protocol import expand_protocol
from harness.plan.request import Request
from harness.results.cost.compute import read_backbone_compute
from harness.results.cost.price import read_prices
from harness.tools.model_card import collect_protocol_bill
from harness.training.model_store import ModelStore
from protocol_data import backbone, lay_protocol_data

# By step: trainings, fine-tuning runs, scores that choose in a sweep, and scores.
# BEIR has 14 tasks and CQADupstack's 12; MTEB(eng, v1) 55 and these 12; of MTEB(eng, v2)'s 41 tasks 27 are
# in v1 as well, two of them as parts of CQADupstack.
COUNTS = {
    "modernbert": {
        "dpr": (6, 0, 6 * 4, 26 + 3),
        "mldr": (1, 0, 0, 1),
        "colbert": (6, 0, 6 * 4, 27),
        "glue": (0, 8 * 4 * 4 * 3, 0, 8),
    },
    "neobert": {
        "glue": (0, 8 * 6 * 5 * 2, 0, 8),
        "unified-contrastive": (1, 0, 0, 67),
        "cde": (2, 0, 0, 67),
        "bare": (0, 0, 0, 67),
    },
    "optibert": {"glue": (0, 8 * 5 * 4 * 2 * 2 + 8 * 5, 0, 8), "simcse": (1, 0, 0, 67 + 41 - 27)},
    "mosaicbert": {"glue": (0, 25, 0, 8)},
    "efficient": dict.fromkeys(("full", "freeze", "lora", "bias"), (1, 0, 0, 8)),
}


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return backbone(tmp_path_factory.mktemp("protocol") / "tiny")


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> None:
    """The hub as if it were there: a plan asks it only whether it has a data set, and for its commit."""
    monkeypatch.setattr(sets, "_ask_hub", lambda *_: None)
    monkeypatch.setattr(sets, "_resolve_commit", lambda *_: "f" * 40)


def request(bare: Path, folder: Path, **fields: Any) -> Request:
    return Request(models=(str(bare),), suites=()).replace_fields(
        {"results": folder / "results", **fields}, of="the test"
    )


def counts(prepared: PreparedProtocol) -> Mapping[str, tuple[int, ...]]:
    return {s.step: (s.trainings, s.runs, s.trials, s.scores) for s in prepared.count_steps()}


@pytest.mark.parametrize("name", COUNTS)
@pytest.mark.usefixtures("hub")
def test_a_protocol_has_the_trainings_and_scores_of_its_paper(name: str, bare: Path, tmp_path: Path) -> None:
    # The clusters of cde need a guide that is here, and its context has more documents than this backbone
    # has positions.
    settings = {"guide": str(bare), "context_size": 16, "cde.max_length": 64} if name == "neobert" else {}

    prepared = prepare_protocol(find_protocol(name), request(bare, tmp_path, recipe_settings=settings))

    assert prepared.gaps == {}
    assert counts(prepared) == COUNTS[name]
    assert len(prepared.joined.plan.cells) == sum(numbers[3] for numbers in COUNTS[name].values())


def test_there_are_five_protocols_whose_columns_are_printed_and_of_their_suites(tmp_path: Path) -> None:
    assert PROTOCOLS.load_entries().keys() == COUNTS.keys()
    for entry in PROTOCOLS.load_entries().values():
        steps = {step.name: step for step in entry.steps}
        for table in entry.tables:
            for column in table.columns:
                for step in table.lines.values() or [column.step]:
                    assert column.suite in steps[step].request["suites"]


def test_a_dry_run_lists_every_training_and_score_with_its_cost(bare: Path, tmp_path: Path) -> None:
    root = lay_protocol_data(tmp_path / "data")
    places = ["--results", tmp_path / "results", "--data", root, "--devices", "cpu", "--offline"]
    words = ["--model", bare, "--protocol", "modernbert", "--quick", "--dry-run", "--json", *places]

    result = CliRunner().invoke(command, list(map(str, words)), catch_exceptions=False, standalone_mode=False)

    plan = json.loads(result.stdout)
    assert [one["state"] for one in plan["trainings"]].count("to do") == 13
    assert [one["state"] for one in plan["trainings"]].count("to choose") == 2
    counted = [str(one["notes"]) for one in plan["trainings"] if " rows)" in str(one["data"])]
    assert counted
    assert all(" rows here, and " in notes for notes in counted)
    # 4 tasks of GLUE with 3 runs each, and 11 scores of vectors beside the 24 of the two sweeps.
    assert len(plan["plan"]) == 4 + 11 + 24
    assert sum(one["runs"] or 0 for one in plan["plan"]) == 12
    assert all(one["seconds"] is not None for one in plan["plan"])
    assert (plan["quick"], plan["gaps"]) == (True, {})
    assert [step["step"] for step in plan["steps"]] == ["dpr", "mldr", "colbert", "glue"]


def test_tasks_narrow_a_protocol_to_the_steps_that_have_them(bare: Path, tmp_path: Path) -> None:
    protocol = find_protocol("modernbert")

    def steps(*tasks: str) -> dict[str, tuple[tuple[str, ...], tuple[str, ...]]]:
        requests = expand_protocol(protocol, request(bare, tmp_path, tasks=tasks))
        return {name: (one.suites, one.options.tasks) for name, one in requests.items()}

    assert steps("RTE", "NFCorpus") == {
        "dpr": (("beir:dl19",), ("NFCorpus",)),
        "colbert": (("beir",), ("NFCorpus",)),
        "glue": (("glue",), ("RTE",)),
    }
    # The step is named: its parent is trained for it, and not evaluated.
    assert steps("mldr") == {"dpr": ((), ()), "mldr": (("mldr",), ("MLDR (test)",))}
    with pytest.raises(UsageError, match="No task of this protocol is called 'RTW'"):
        steps("RTW")


def test_settings_and_data_go_to_the_steps_that_take_them(bare: Path, tmp_path: Path) -> None:
    protocol = find_protocol("modernbert")
    base = request(
        bare,
        tmp_path,
        recipe_settings={"fresh_seeds": 3, "dpr.batch_size": 8},
        train_data=("colbert=own",),
        dtype="bfloat16",
    )

    requests = expand_protocol(protocol, base)

    assert requests["glue"].recipe_settings == {"fresh_seeds": 3}
    assert requests["dpr"].recipe_settings == {"dpr.batch_size": 8}
    assert requests["mldr"].recipe_settings == {}
    assert [one.train_data for one in requests.values()] == [(), (), ("colbert=own",), ()]
    # Recipes for tasks have a precision of their own.
    assert [one.settings.dtype for one in requests.values()] == ["bfloat16"] * 3 + [None]
    with pytest.raises(UsageError, match="No setting of this protocol is called 'heads2'"):
        expand_protocol(protocol, request(bare, tmp_path, recipe_settings={"heads2": 3}))
    with pytest.raises(UsageError, match="--protocol modernbert takes a single budget"):
        expand_protocol(protocol, request(bare, tmp_path, sweep={"budget": [1e15, 4e15]}))
    with pytest.raises(UsageError, match="--recipe and --protocol modernbert exclude each other"):
        expand_protocol(protocol, request(bare, tmp_path, recipe=("dpr",)))


def test_scores_of_a_quick_run_are_trials_or_of_a_recipe_of_its_own(bare: Path, tmp_path: Path) -> None:
    for entry in PROTOCOLS.load_entries().values():
        requests = expand_protocol(entry, request(bare, tmp_path), quick=True)
        marked = [one.purpose == "trial" or one.recipe == ("glue-quick",) for one in requests.values()]
        assert all(marked), entry.name


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "A run needs a suite."),
        (("--suite", "stdlib", "--quick"), "--quick is for a protocol."),
        (("--protocol", "modernbird"), "No protocol is called 'modernbird'."),
    ],
)
def test_misuse_is_named(words: tuple[str, ...], message: str, bare: Path) -> None:
    with pytest.raises(UsageError, match=message):
        CliRunner().invoke(
            command, ["--model", str(bare), *words], catch_exceptions=False, standalone_mode=False
        )


@pytest.mark.usefixtures("hub")
def test_every_column_that_is_not_measured_names_what_it_lacks(bare: Path, tmp_path: Path) -> None:
    prepared = prepare_protocol(find_protocol("modernbert"), request(bare, tmp_path))

    tables = ProtocolReport.build_report(prepared, prepared.read_results()).to_json()["tables"]

    gaps = {
        f"{table['table']} {name}": number["gap"]
        for table in tables
        for row in table["rows"]
        if row["origin"] == "measured"
        for name, number in row["numbers"].items()
    }
    assert len(gaps) == 8 + 16 + 16 + 9
    assert gaps["1 DPR MLDR-OOD"] == gaps["1 ColBERT MLDR-OOD"] == "not measured"
    assert gaps["1 CodeSearchNet"] == "not measured: go, java, javascript, php, python, ruby"
    assert gaps["7 CQADupstack"] == gaps["8 MSMARCO"] == gaps["5 RTE"] == "not measured"


@pytest.mark.usefixtures("hub")
def test_rows_that_are_not_measured_are_named_gaps_beside_printed_ones(bare: Path, tmp_path: Path) -> None:
    prepared = prepare_protocol(find_protocol("optibert"), request(bare, tmp_path, tasks=("simcse",)))

    report = ProtocolReport.build_report(prepared, prepared.read_results())

    older, newer = report.to_json()["tables"]
    printed = {row["model"]: row["numbers"] for row in older["rows"] if row["origin"] == "printed"}
    # These two print the mean over tasks in a column of means over types; the others print that over types.
    assert printed["ModernBERT_large"]["Avg."]["printed"] == "48.0 (recomputed; 46.9 is over tasks)"
    assert printed["NeoBERT_4096"]["Avg."]["printed"] == "52.4 (recomputed; 51.3 is over tasks)"
    assert printed["OptiBERT_neo"]["Avg."]["printed"] == "50.0"
    (mine,) = [row for row in older["rows"] if row["origin"] == "measured"]
    assert all(number["value"] is None for number in mine["numbers"].values())
    assert mine["numbers"]["Summ."]["gap"] == "not measured: SummEval"
    assert (older["sorted_by"], older["means"]["Avg."]) == ("", "the mean over types")
    assert report.exit_code == 1
    # The only step that is left out has no table, and says why.
    assert prepared.gaps == {"glue": "left out by --tasks"}
    assert newer["table"] == "5"


@pytest.mark.usefixtures("hub")
def test_a_report_over_seeds_says_so_and_has_what_the_run_took_once(bare: Path, tmp_path: Path) -> None:
    base = request(bare, tmp_path, tasks=("dpr", "mldr"), seeds=2)
    prepared = prepare_protocol(find_protocol("modernbert"), base)

    report = ProtocolReport.build_report(prepared, prepared.read_results(), {"texts_encoded": 7}).to_json()

    models = {name: [model["asked"] for model in step["models"]] for name, step in report["steps"].items()}
    assert models == {"dpr": [str(bare)], "mldr": ["tiny-dpr:authors"] * 2}
    (row,) = [row for row in report["tables"][0]["rows"] if row["origin"] == "measured"]
    assert row["setting"] == "mean of 2 seeds"
    assert report["texts_encoded"] == 7
    assert not any("texts_encoded" in step or "seconds" in step for step in report["steps"].values())


@pytest.mark.usefixtures("hub")
def test_the_bill_of_a_protocol_has_each_training_and_score_once(
    bare: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two of six members of a sweep are trained, and the copy of one is its best; two scores are there."""
    prepared = prepare_protocol(find_protocol("modernbert"), request(bare, tmp_path, tasks=("dpr",)))
    plan = prepared.joined.plan
    made = [model.lineage for model in (*plan.trained_models[:2], *plan.trainings) if model.lineage]
    card = {"device": {"name": "A100 80GB"}, "devices": ["cuda:0"] * 8, "tokens": 1200, "seconds": 1800.0}
    for number, one in enumerate(made):
        folder = ModelStore(tmp_path / "results").locate_model(f"m{number}-{one.key[:12]}")
        train(shutil.copytree(bare, folder), one, name=f"m{number}", training=card)
    assert [one.sweep is None for one in made] == [True, True, False]
    facts = {"device": {"name": "A100 40GB"}, "seconds": {"encode": 1800.0, "score": 900.0}}
    records = [SimpleNamespace(record=SimpleNamespace(key=key, provenance=facts)) for key in "aab"]
    monkeypatch.setattr(PreparedProtocol, "read_results", lambda _self: records)

    bill = collect_protocol_bill(prepared, read_backbone_compute(bare), read_prices())

    # Half an hour on 8 devices at $2.50 each; two scores of 45 minutes at $2.00 an hour.
    assert [(one.seconds, one.dollars) for one in bill.trainings] == [(1800.0, 10.0)] * 2
    assert (bill.scores, bill.seconds, bill.dollars) == (2, 5400.0, 3.0)
    assert bill.text.startswith("protocol modernbert: 2 trainings: 1 h")
    assert bill.text.endswith("2 scores in 1 h 30 min; $23.00 together")
    assert "no record yet" in replace(bill, trainings=[], scores=0).text


@pytest.mark.usefixtures("hub")
def test_typed_options_that_change_numbers_are_named(bare: Path, tmp_path: Path) -> None:
    fields = {
        "max_length": 64,
        "evaluation": "own",
        "recipe_settings": {"fresh_seeds": 1},
    }
    prepared = prepare_protocol(find_protocol("modernbert"), request(bare, tmp_path, **fields))

    differences = ProtocolReport.build_report(prepared, prepared.read_results()).list_differences()

    assert "dpr, mldr, colbert: typed: max_length=64" in differences
    assert "glue: typed: fresh_seeds=1" in differences
    (evaluated,) = [line for line in differences if line.startswith("colbert: evaluation of colbert")]
    assert "the model's own settings" in evaluated


def test_a_step_that_a_quick_run_leaves_as_it_is_says_what_differs(bare: Path, tmp_path: Path) -> None:
    protocol = find_protocol("modernbert")
    (step,) = (step for step in protocol.steps if step.name == "glue")
    whole = replace(protocol, steps=tuple(replace(one, quick={}) for one in protocol.steps))
    asked = request(bare, tmp_path, data=lay_protocol_data(tmp_path / "data"), offline=True, tasks=("glue",))
    prepared = prepare_protocol(whole, asked, quick=True)
    differences = ProtocolReport.build_report(prepared, prepared.read_results()).list_differences()
    assert f"glue: {step.differs[0]}" in differences


def test_a_step_without_data_is_a_gap_and_a_wrong_option_is_none(bare: Path, tmp_path: Path) -> None:
    root = lay_protocol_data(tmp_path / "data")
    places = {"data": root, "offline": True, "tasks": ("dpr", "mldr", "glue")}
    (root / MSMARCO.path).rename(root / "absent")

    prepared = prepare_protocol(find_protocol("modernbert"), request(bare, tmp_path, **places), quick=True)

    assert prepared.open_gaps.keys() == {"dpr", "mldr"}
    assert "harness data pull --protocol modernbert --data DIR; then name" in prepared.open_gaps["dpr"]
    assert prepared.open_gaps["mldr"] == "it starts from the models of dpr."
    shown = create_console()
    with shown.capture() as printed:
        ProtocolReport.build_report(prepared, prepared.read_results()).print(shown)
    lines = printed.get().splitlines()
    # The reason stands once, below the tables whose gaps name the step.
    assert sum("is not in" in line for line in lines) == 1
    assert "gap in all of tiny QUICK: the step dpr cannot run, see below" in lines
    # So is one whose sweep has no data to choose by.
    (root / "absent").rename(root / MSMARCO.path)
    (root / "mteb/nfcorpus").rename(root / "absent")
    prepared = prepare_protocol(find_protocol("modernbert"), request(bare, tmp_path, **places), quick=True)
    assert "NFCorpus of --select cannot be scored" in prepared.open_gaps["dpr"]
    wrong = request(bare, tmp_path, tasks=("glue",), recipe_settings={"learning_rate": "fast"})
    with pytest.raises(UsageError, match="learning_rate"):
        prepare_protocol(find_protocol("modernbert"), wrong, quick=True)


@pytest.mark.parametrize(
    ("name", "quick", "fields", "message"),
    [
        ("neobert", False, {"pooling": "cls"}, "The step bare has --pooling mean, and cls was asked for."),
        ("optibert", True, {"max_length": 64}, "The step simcse has --max-length 128, and 64"),
        ("mosaicbert", False, {"seeds": 3}, "--seeds is for recipes that make a model"),
        ("mosaicbert", False, {"pooling": "cls"}, "--pooling is for models that give vectors"),
        ("modernbert", False, {"train_data": ("own",)}, "several recipes take own"),
        ("modernbert", False, {"train_data": ("simcse=own",)}, "no step of this run trains it: simcse=own"),
        ("modernbert", False, {"evaluation": "pylate-script2"}, "No evaluation of this protocol is called"),
        ("neobert", True, {"tasks": ("cde",)}, "A quick run has none of cde."),
    ],
)
def test_options_that_no_step_takes_as_typed_are_refused(
    name: str, quick: bool, fields: Mapping[str, Any], message: str, bare: Path, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match=message):
        expand_protocol(find_protocol(name), request(bare, tmp_path, **fields), quick=quick)


def test_a_named_evaluation_goes_to_the_steps_whose_recipe_has_it(bare: Path, tmp_path: Path) -> None:
    chosen = next(filter(None, find_evaluations("colbert")))

    requests = expand_protocol(find_protocol("modernbert"), request(bare, tmp_path, evaluation=chosen))

    assert {name for name, one in requests.items() if one.evaluation == chosen} == {"colbert"}


@pytest.mark.usefixtures("hub")
def test_a_step_may_sweep_several_settings_but_not_how_it_is_evaluated(bare: Path, tmp_path: Path) -> None:
    def prepare(**sweep: Any) -> PreparedProtocol:
        step = {"recipe": ("dpr",), "suites": ("beir",), "select": ("beir:NFCorpus",), "sweep": sweep}
        protocol = replace(find_protocol("modernbert"), steps=(ProtocolStep(name="dpr", request=step),))
        return prepare_protocol(protocol, request(bare, tmp_path, tasks=("NFCorpus",)))

    prepared = prepare(learning_rate=(1e-5, 1e-4, 1e-3), scale=(10, 20))
    assert counts(prepared) == {"dpr": (6, 0, 6, 1)}
    with pytest.raises(UsageError, match="The sweep of the step dpr decides how its model is evaluated"):
        prepare(learning_rate=(1e-5, 1e-4), pooling=("mean", "cls"))


def test_a_step_after_another_has_a_recipe() -> None:
    with pytest.raises(UsageError, match="The step again starts from the models of dpr and has no recipe"):
        ProtocolStep(name="again", request={"suites": ("mldr",)}, after="dpr")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--protocol", "optibert", "--task", "RTE"), "--task and --protocol exclude each other."),
        (("--quick",), "--quick is for a protocol."),
    ],
)
def test_show_refuses_what_a_protocol_does_not_take(words: tuple[str, ...], message: str, bare: Path) -> None:
    with pytest.raises(UsageError, match=message):
        CliRunner().invoke(show.command, [str(bare), *words], catch_exceptions=False, standalone_mode=False)


def test_a_backbone_that_a_step_cannot_take_is_a_gap(
    bare: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare = evaluation.prepare

    def refuse_glue(asked: Request, **how: Any) -> Any:
        if "glue-quick" in asked.recipe:
            raise UsageError("The backbone is too small.", hint="Take another.")
        return prepare(asked, **how)

    monkeypatch.setattr(evaluation, "prepare", refuse_glue)
    places = {"data": lay_protocol_data(tmp_path / "data"), "offline": True, "tasks": ("dpr", "glue")}
    prepared = prepare_protocol(find_protocol("modernbert"), request(bare, tmp_path, **places), quick=True)
    assert prepared.open_gaps == {"glue": "The backbone is too small. Take another."}
