"""Help on one screen, hints for what people type from elsewhere, and names by the tab key."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any, get_args

import click
import pytest
from click.testing import CliRunner

from blocked import BLOCKER
from harness.cli import COMMANDS, invoke, program
from harness.commands import baseline, check, run, train, watch
from harness.commands.options import GroupedOption, HelpCommand
from harness.core.arguments import Group
from harness.core.errors import UsageError
from harness.plan.request import Request
from stored_records import iter_records

LONG = {
    "run": run.command,
    "train": train.command,
    "check": check.command,
    "watch": watch.command,
    "baseline set": baseline.command.commands["set"],
}


def help_text(name: str, option: str) -> str:
    return (
        CliRunner().invoke(program, [*name.split(), option], prog_name="harness", terminal_width=100).output
    )


@pytest.mark.parametrize("name", LONG)
def test_help_is_examples_and_twelve_options_on_one_screen(name: str) -> None:
    command: Any = LONG[name]
    assert isinstance(command, HelpCommand)
    text = help_text(name, "--help")
    assert len(text.splitlines()) <= 40
    assert max(map(len, text.splitlines())) <= 100
    before, _, after = text.partition("\nWhat:\n")
    assert before.count("  harness ") >= 2
    assert all(line.partition(" ")[2] for line in after.splitlines() if line.startswith("  --"))
    shown = [line.split()[0] for line in after.splitlines() if line.startswith("  --")]
    assert sorted(shown) == sorted(command.everyday)
    assert len(shown) == 12
    assert text.rstrip().endswith(f"harness {name} --help-all")


@pytest.mark.parametrize("name", LONG)
def test_every_option_is_in_one_group_and_the_whole_help_has_it_once(name: str) -> None:
    options = [one for one in LONG[name].params if isinstance(one, click.Option)]
    assert all(isinstance(one, GroupedOption) and one.group in get_args(Group) for one in options)
    lines = help_text(name, "--help-all").splitlines()
    for option in options:
        assert sum(line.startswith("  --") and line.split()[0] == option.opts[0] for line in lines) == 1


@pytest.mark.parametrize("name", LONG)
def test_examples_are_command_lines(name: str) -> None:
    command: Any = LONG[name]
    for example in command.examples:
        words = shlex.split(example)
        assert words[: 1 + len(name.split())] == ["harness", *name.split()]
        command.make_context(name, words[1 + len(name.split()) :])


def test_the_overview_names_commands_that_are_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke([]) == 0
    names = re.findall(r"^ *harness ([a-z]+)", capsys.readouterr().out, re.MULTILINE)
    assert len(names) == 11
    assert {*names} <= {*COMMANDS}


@pytest.mark.parametrize(
    ("typed", "instead"),
    [
        ("run -m x", "--model MODEL"),
        ("run --model_name_or_path x", "--model MODEL"),
        ("run --model_name x", "--model MODEL"),
        ("run -t x", "--tasks TASK,TASK"),
        ("run --benchmark x", "--suite SUITE"),
        ("run --batch_size 8", "--batch-tokens NUMBER, which counts tokens and not texts"),
        ("run --batch-size 8", "--batch-tokens NUMBER, which counts tokens and not texts"),
        ("run --output_dir x", "--results FOLDER"),
        ("run --name x", "--project NAME for the project of a code:FOLDER suite, or --model NAME=MODEL"),
        ("run --device cpu", "--devices DEVICE"),
        ("explain --device cpu", "--devices DEVICE"),
        ("train --learning_rate 1", "--set learning_rate=VALUE"),
        ("train --batch_size 8", "--set batch_size=NUMBER"),
        ("train --bf16", "--set precision=bfloat16"),
        ("list --limit 3", "--rows N"),
        ("check --model x", "--candidate MODEL"),
        ("check --threshold 1", "--margin POINTS"),
        ("run --task_types STS", "--tasks type:TYPE, e.g. type:STS"),
        ("run --wandb", "--track TRACKER, e.g. wandb"),
        ("show --model x", "MODEL without an option, as in harness show MODEL"),
        ("baseline set --name x", "NAME without an option, as in harness baseline set NAME"),
        ("compare --second x", "SECOND without an option, as in harness compare FIRST SECOND [FURTHER]..."),
    ],
)
def test_an_option_of_another_program_is_answered_with_ours(
    typed: str, instead: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert invoke(typed.split()) == 2
    name = next(word for word in typed.split() if word.startswith("-")).replace("_", "-")
    assert capsys.readouterr().err == f"Error: There is no {name}. Did you mean {instead}?\n"


@pytest.mark.parametrize(
    ("typed", "line"),
    [
        ("run --model x --tasks A B", "Values are joined by commas. Did you mean --tasks A,B?"),
        ("run --model x --tasks A, B", "Values are joined by commas. Did you mean --tasks A,B?"),
        ("serve x", "harness serve takes options only. Did you mean --results x?"),
        ("baseline main", "There is: export, list, set, show."),
        ("leaderboard", "No such command 'leaderboard'. Did you mean serve?"),
    ],
)
def test_a_misplaced_word_is_answered_with_what_to_type(
    typed: str, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert invoke(typed.split()) == 2
    assert capsys.readouterr().err.splitlines()[-1].removeprefix("Error: ") == line


def test_a_hint_is_not_for_a_command_without_the_option(capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["doctor", "-m", "x"]) == 2
    assert "No such option '-m'" in capsys.readouterr().err


def test_tasks_need_no_suite(capsys: pytest.CaptureFixture[str]) -> None:
    plan = ["run", "--model", "minilm", "--dry_run", "--max_length", "64", "--json"]
    assert invoke([*plan, "--tasks", "STS12,STS13"]) == 0
    ours = json.loads(capsys.readouterr().out)["plan"]
    assert invoke([*plan, "--suite", "mteb:STS12", "--suite", "mteb:STS13"]) == 0
    assert [line["key"] for line in json.loads(capsys.readouterr().out)["plan"]] == [o["key"] for o in ours]
    assert invoke([*plan[:-1], "--tasks", "STS12,STS13", "--limit", "5"]) == 0
    assert "TRIAL: at most 5 examples" in capsys.readouterr().out
    assert invoke([*plan, "--tasks", "RTE"]) == 2
    assert "A model must be trained for RTE" in capsys.readouterr().err
    assert invoke([*plan, "--tasks", "STS1"]) == 2
    assert "No task is called 'STS1'" in capsys.readouterr().err


TABS = {
    "harness run --model mini": "plain,minilm",
    "harness check --candidate mini": "plain,minilm",
    "harness run --model ./x": "dir,./x",
    "harness watch x --suite nano": "plain,nanobeir",
    "harness run --suite mteb:STS12": "plain,mteb:STS12",
    "harness run --recipe glue-qu": "plain,glue-quick",
    "harness run --tasks STS12,STS13": "plain,STS12,STS13",
    "harness run --suite glue --tasks RT": "plain,RTE",
    "harness run --lim": "plain,--limit",
}

COMPLETE = f"""{BLOCKER}
import contextlib, os
from harness.cli import invoke
for typed in sys.argv[1:]:
    count = str(len(typed.split()) - 1)
    os.environ |= {{"_HARNESS_COMPLETE": "bash_complete", "COMP_WORDS": typed, "COMP_CWORD": count}}
    with contextlib.suppress(SystemExit):
        invoke([])
    print("end of", typed)
"""


def test_the_tab_key_completes_names_without_torch(tmp_path: Path) -> None:
    command = [sys.executable, "-c", COMPLETE, *TABS]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    rest = done.stdout
    for typed, expected in TABS.items():
        names, _, rest = rest.partition(f"end of {typed}\n")
        assert expected in names.splitlines()


# A limit


def test_a_limited_run_leaves_trials_under_keys_of_their_own(
    measured: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from harness.storage.store import Store

    results = ("--results", str(tmp_path / "own"))
    plan = ["run", "--model", str(measured.model("good")), "--suite", measured.local, "--offline", *results]
    assert invoke([*plan, "--limit", "4"]) == 0
    assert "TRIAL: at most 4 examples" in capsys.readouterr().out
    store = Store(tmp_path / "own")
    trials = [*iter_records(store, purpose="trial")]
    assert {record.identity["limit"] for record in trials} == {4}
    assert all(record.purpose == "trial" for record in trials)
    assert [*iter_records(store)] == []
    assert invoke(["list", "records", *results, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["records"] == []
    assert invoke(["list", "records", *results]) == 0
    assert capsys.readouterr().out.startswith("No records yet but trials (--limit)")
    for name in (trials[0].model.name, trials[0].model.artifact[:8], str(measured.model("good"))):
        assert invoke(["show", name, *results]) == 2
        assert f"{name} has only trials (--limit)" in capsys.readouterr().err
    assert invoke([*plan, "--limit", "4", "--json"]) == 0
    lines = json.loads(capsys.readouterr().out)["records"]
    assert {(line["state"], line["purpose"], line["limit"]) for line in lines} == {("cached", "trial", 4)}
    assert invoke([*plan, "--limit", "5", "--dry-run", "--json"]) == 0
    assert {line["purpose"] for line in json.loads(capsys.readouterr().out)["plan"]} == {"trial"}
    assert invoke([*plan, "--json"]) == 0
    whole = json.loads(capsys.readouterr().out)["records"]
    states = {(line["state"], line["purpose"], line["limit"]) for line in whole}
    assert states == {("done", "final", None)}, "a trial is no cache of the whole task"
    assert not {line["key"] for line in whole} & {record.key for record in trials}


def test_a_limit_is_refused_where_it_would_mislead(capsys: pytest.CaptureFixture[str]) -> None:
    request = Request(models=("minilm",), suites=("mteb:STS12",), limit=5, purpose="final").validate_fields()
    assert request.purpose == "trial"
    with pytest.raises(UsageError, match="need whole tasks"):
        request.require_whole_tasks()
    with pytest.raises(UsageError, match="trials are never compared"):
        Request(models=(), suites=(), purpose="trial").require_whole_tasks()
    wrong = {
        ("--suite", "glue", "--recipe", "glue-quick"): "a recipe trains for CoLA",
        ("--protocol", "optibert"): "--limit and --protocol optibert exclude each other",
    }
    for words, message in wrong.items():
        assert invoke(["run", "--model", "minilm", *words, "--limit", "5"]) == 2
        assert message in capsys.readouterr().err
    assert invoke(["run", "--model", "minilm", "--suite", "mteb", "--limit", "0"]) == 2
    assert "must be a whole number of examples from 3" in capsys.readouterr().err
    assert invoke(["check", "--candidate", "minilm", "--baseline", "minilm", "--limit", "5"]) == 2
