"""Runs as rows, in files and in `harness list runs`, and their curves in `harness watch --run`."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

import fakes
import tiny
from harness.cli import invoke
from harness.core.errors import UsageError
from harness.results.notes import NOTES, ComputeNote, CountedPart
from harness.watch.curves import CURVES, FACTS, Row, build_curves
from harness.watch.runs import add_facts, read_table, write_table
from harness.watch.state import Watch
from judged_data import checkpoint, put_watch

Say = Callable[..., tuple[int, str, str]]
STEPS = (1000, 2000, 4000)


@pytest.fixture
def say(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Say:
    """A command in this process: exit code, standard output, standard error."""

    def invoke_command(*arguments: object) -> tuple[int, str, str]:
        places = ("--results", str(tmp_path / "results"), "--cache", str(tmp_path / "cache"))
        code = invoke([*map(str, arguments), *places])
        said = capsys.readouterr()
        assert "Traceback" not in said.err
        return code, said.out, said.err

    return invoke_command


def put_run(results: Path, name: str, means: Sequence[float], **facts: Any) -> Watch:
    """A watch of three checkpoints whose artifacts are its own."""
    start = name.encode().hex()
    checkpoints = [
        checkpoint(step, mean, artifact=f"{start}{step:05}".ljust(64, "0"), model=f"{name}-{step}", **facts)
        for step, mean in zip(STEPS, means, strict=True)
    ]
    source = f"/runs/{name}"
    watch = Watch(name=name, source=source, suite="nanobeir", request={"recipe": ["simcse"]})
    return put_watch(results, watch.model_copy(update={"checkpoints": tuple(checkpoints)}))


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """Two runs of two seeds; of one checkpoint something is stated."""
    folder = tmp_path / "results"
    for n in range(2):
        put_run(folder, f"a{n}", [0.3 + n / 1000, 0.4, 0.5 + n / 500])
        watch = put_run(folder, f"b{n}", [0.2 + n / 1000, 0.3, 0.4 + n / 500])
    counted = CountedPart(parameters=100, without_embeddings=80, operations=1.0, token_flops=2.0)
    note = ComputeNote(
        model="b1-1000", weights="c" * 64, artifact=watch.checkpoints[0].artifact, when="", tokens=5e9,
        length=64, masking=0.3, counted=counted,
    )  # fmt: skip
    NOTES.write_document(folder, note.weights, note)
    return folder


RUNS = [part for name in ("a0", "a1", "b0", "b1") for part in ("--run", f"{name[0]}={name}")]


def test_watches_are_compared_and_their_rows_give_the_same(say: Say, results: Path, tmp_path: Path) -> None:
    code, out, _ = say("watch", *RUNS, "--reach", 35)
    assert code == 0
    assert "mean of nanobeir against step, scores × 100 with 95 % intervals over seeds" in out
    assert "a against b: better at every budget; reaches it 2.0" in out
    assert "b reaches 35.00: step 2.8" in out
    document = json.loads(say("watch", *RUNS, "--reach", 35, "--json")[1])
    assert (document["against"], document["without_diverged"]) == ("step", None)
    file = tmp_path / "runs.csv"
    code, out, _ = say("list", "runs", "--out", file)
    assert (code, out) == (0, f"{file}: 12 rows.\n")
    rows = [{**row, "seed": row["run"], "run": row["run"][0]} for row in read_table(file)]
    assert list(rows[0])[: len(FACTS)] == list(FACTS)
    (stated,) = [row for row in rows if row["tokens"]]
    assert (stated["model"], stated["tokens"], stated["operations"]) == ("b1-1000", 5e9, 1e10)
    assert (stated["masking"], stated["size"], stated["method"]) == (0.3, 80, "simcse")
    edited = tmp_path / "edited.parquet"
    write_table(edited, rows)
    same = json.loads(say("watch", "--runs", edited, "--reach", 35, "--json")[1])
    assert same["comparison"] == document["comparison"]
    assert say("watch", "--runs", edited, "--task", "SciFact", "--json")[0] == 0


def test_a_missing_fact_is_named_with_what_states_it(say: Say, results: Path) -> None:
    code, _, err = say("watch", *RUNS, "--against", "tokens")
    assert code == 2
    assert "The tokens of a/a0 is missing at 3 of 3 points" in err
    assert "harness models note CHECKPOINT --pretraining-tokens" in err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--run", "a"], "'a' is not of the form NAME=WATCH"),
        (["--run", "a=a0", "--run", "b=a0"], "The watch a0 is given twice"),
        (["--run", "a=a0", "--run", "b=other"], "suite is 'nanobeir' and 'beir'"),
        (["--run", "a=a0", "--run", "b=apart"], "their data, scoring code or encoding are not the same"),
        (["--run", "a=a0", "--runs", "runs.csv"], "--run and --runs both name runs"),
        (["--run", "a=nothing"], "nothing"),
        (["--runs", "runs.txt"], "runs.txt is neither .csv nor .parquet"),
        (["--runs", "missing.csv"], "missing.csv: No such file"),
    ],
)
def test_watches_that_cannot_be_compared_are_refused(
    say: Say, results: Path, arguments: Sequence[str], message: str
) -> None:
    put_run(results, "apart", [0.1, 0.2, 0.3], treatment="v" * 64)
    put_watch(results, put_run(results, "other", [0.1, 0.2, 0.3]).model_copy(update={"suite": "beir"}))
    code, _, err = say("watch", *arguments)
    assert (code, message in err) == (2, True), err


@pytest.mark.parametrize(("recipe", "code"), [(["simcse"], 0), ([], 2)])
def test_seeds_of_a_recipe_are_seeds_of_a_run_and_those_of_probes_are_another_condition(
    say: Say, results: Path, recipe: Sequence[str], code: int
) -> None:
    for seed in range(2):
        watch = put_run(results, f"c{seed}", [0.1, 0.2, 0.3 + seed / 100])
        request = {"recipe": recipe, "settings": {"seed": seed}}
        put_watch(results, watch.model_copy(update={"request": request}))
    given, out, err = say("watch", "--run", "c=c0", "--run", "c=c1")
    assert given == code
    assert "c reaches" in out if recipe else "settings.seed is 0 and 1" in err


def test_a_suite_under_two_conditions_has_two_columns(say: Say, results: Path) -> None:
    put_run(results, "apart", [0.1, 0.2, 0.3], treatment="v" * 64)
    rows = json.loads(say("list", "runs", "--json")[1])["runs"]
    means = [name for name in rows[0] if name.startswith("mean of ")]
    assert means == ["mean of nanobeir (watch a0)", "mean of nanobeir (watch apart)"]
    assert all((row[means[0]] is None) == (row["run"] == "apart") for row in rows)
    with pytest.raises(UsageError, match="There are 2 columns of scores"):
        build_curves(rows, "step")
    with pytest.raises(UsageError, match="apart/1 has no score in mean of nanobeir \\(watch a0\\)"):
        build_curves(rows, "step", means[0])


def lines(**changed: Any) -> list[Row]:
    """A run of three points with a column of scores."""
    points = [{"run": "a", "step": step, "score": step / 100} for step in (10, 20, 30)]
    return [{**row, **changed} if row["step"] == 20 else row for row in points]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (lines(run=None), "A row has no run"),
        (lines(score="much"), "'much' is no number: score of a/1"),
        ([*lines(), *({**row, "run": "b", "score": 70} for row in lines())], "a/1 lies between 0 and 1"),
        ([{**row, "step": 5} for row in lines()], "step of a/1 is 5 everywhere"),
        ([{**row, "step": None, "tokens": 1} for row in lines()], "Or type --against tokens"),
        ([{**row, "method": row["step"]} for row in lines()], "The rows of the run a have several methods"),
        (lines()[:1], "a/1 has 1 score in score; a curve has two or more"),
        ([{"run": "a", "step": 1}], "There are 0 columns of scores: none"),
    ],
)
def test_rows_that_do_not_fit_together_are_refused(rows: list[Row], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        build_curves(rows, "step")


def test_the_columns_of_a_table_without_runs_are_named() -> None:
    with pytest.raises(UsageError) as error:
        build_curves([{"name": "a", "step": 10, "score": 0.1}], "step", "score")
    assert str(error.value.hint).endswith("There is: name, step, score.")


@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        (lines(), ""),
        (lines(diverged="yes"), "as stated"),
        (lines(diverged="false"), ""),
        (lines(score=float("nan")), "a score or loss is no number"),
        ([{**row, "loss": row["step"]} for row in lines()], "its last loss is above its first"),
    ],
)
def test_a_diverged_seed_is_counted_with_its_reason(rows: list[Row], reason: str) -> None:
    column, (curve,) = build_curves(rows, "step")
    assert (column, curve.diverged, curve.scores[0]) == ("score", reason, 10)


def test_runs_are_compared_with_and_without_what_diverged(say: Say, tmp_path: Path) -> None:
    file = tmp_path / "runs.csv"
    ends = {"a/1": 0.5, "a/2": 0.52, "a/3": "nan", "b/1": 0.4, "b/2": 0.41}
    text = [f"{name.replace('/', ',')},{x},{y}" for name, end in ends.items()
            for x, y in (("1B", 0.2), ("2B", 0.3), ("4B", end))]  # fmt: skip
    file.write_text("\n".join(["run,seed,tokens,score", *text]))
    # The last seed of a has no point at 4B.
    code, out, _ = say("watch", "--runs", file, "--against", "tokens", "--reach", 35)
    assert code == 0
    assert "a reaches 35.00: 2 of 3 seeds" in out
    assert "a/3 diverged: a score or loss is no number." in out
    assert "a reaches 35.00: tokens 2.3" in out.partition("Without what diverged")[2]


def test_compared_runs_are_kept_for_the_site(say: Say, tmp_path: Path) -> None:
    file = tmp_path / "runs.csv"
    file.write_text("run,seed,step,score\n" + "a,1,0,0.1\na,1,10,0.2\na,1,20,0.3\na,2,10,nan\n")
    code, _, err = say("watch", "--runs", file, "--out", "mine", "--reach", 25)
    assert (code, "4 points. `harness serve` shows them at /curves/mine." in err) == (0, True)
    table = CURVES.find_document(tmp_path / "results", "mine")
    assert (table.column, table.axis, table.reach) == ("score", "step", 25)
    assert table.points[-1].diverged == "a score or loss is no number"
    _, curves = build_curves(read_table(file), "step")
    again = table.build_curves("step")
    assert [(one.name, one.diverged, *one.scores) for one in again] == [
        (one.name, one.diverged, *one.scores) for one in curves
    ]
    assert say("watch", "--runs", file, "--out", "../mine")[0] == 2
    assert say("watch", "x", "--suite", "stdlib", "--out", "mine")[0] == 2


def test_facts_of_a_file_are_joined_by_what_it_names() -> None:
    rows: list[Row] = [
        {**dict.fromkeys(FACTS), "run": run, "step": step} for run in "ab" for step in (10, 20)
    ]
    stated = [{"run": "a", "step": step, "loss": float(step), "hours": step / 10} for step in range(1, 21)]
    joined = add_facts(rows, stated)
    assert [row["hours"] for row in joined] == [1, 2, None, None]
    # The mean of the last ten logged losses up to the step.
    assert [row["loss"] for row in joined] == [5.5, 15.5, None, None]
    with pytest.raises(UsageError, match="The file of facts has the columns hours"):
        add_facts(rows, [{"hours": 1}])
    with pytest.raises(UsageError, match="No line of the file of facts is of a row: run differs"):
        add_facts(rows, [{"run": "c", "hours": 1}])


def test_trainings_of_other_lengths_are_of_one_method(say: Say, tmp_path: Path) -> None:
    for budget in (1e9, 4e9):
        made = fakes.lineage(settings={"budget": budget}, changed={"rank": 8, "budget": budget})
        folder = tiny.folder(
            tiny.families()["bert"], tmp_path / "results" / "models" / f"tiny-{made.key[:12]}"
        )
        fakes.train(folder, made, training={"steps": int(budget / 1e9)})
    rows = json.loads(say("list", "runs", "--json")[1])["runs"]
    assert sorted((row["step"], row["method"]) for row in rows) == [
        (1, "contrast, rank=8"),
        (4, "contrast, rank=8"),
    ]


def test_an_export_of_wandb_and_trainer_state_are_read(say: Say, results: Path, tmp_path: Path) -> None:
    folder = tmp_path / "step1000"
    folder.mkdir()
    logged = [{"step": step, "loss": step} for step in range(1, 21)]
    state = {"num_input_tokens_seen": 7, "total_flos": 0, "log_history": [*logged, {"eval_loss": 9}]}
    (folder / "trainer_state.json").write_text(json.dumps(state))
    put_run(results, "c0", [0.1, 0.2, 0.3], folder=str(folder))
    facts = tmp_path / "export.csv"
    facts.write_text("_step,Hours\n1000,0.5\n")
    rows = json.loads(say("list", "runs", "--facts", facts, "--match", "c0", "--json")[1])["runs"]
    assert [(row["tokens"], row["operations"], row["loss"]) for row in rows] == [(7, None, 15.5)] * 3
    assert [row["hours"] for row in rows] == [0.5, None, None]
    assert say("list", "suites", "--facts", facts)[0] == 2
