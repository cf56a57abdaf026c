"""Files for CI services and scripts: linted, and their shell steps run with stubs of what they call."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from check_data import small_check
from ci_steps import Runner
from harness.checks.report import render_junit, render_markdown

ROOT = Path(__file__).parents[1]
ACTION = ROOT / "action.yml"
NIGHTLY = ROOT / "docs" / "ci" / "nightly.yml"
PULL_REQUEST = ROOT / "docs" / "ci" / "pull-request.yml"
GITLAB = ROOT / "docs" / "ci" / "gitlab-ci.yml"
RECORDS = ROOT / "docs" / "ci" / "records.yml"
WORKFLOWS = (NIGHTLY, PULL_REQUEST, RECORDS)
EVERY = (ACTION, *WORKFLOWS, GITLAB)
PAGE = (ROOT / "docs" / "ci.md").read_text()
FORMS = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"))
SCHEMAS = (
    (ACTION, ["vendor.github-actions"]),
    *((path, ["vendor.github-workflows"]) for path in WORKFLOWS),
    *((path, ["custom.github-workflows-require-timeout"]) for path in WORKFLOWS),
    (GITLAB, ["vendor.gitlab-ci", "--data-transform", "gitlab-ci"]),
    *((path, ["vendor.github-issue-forms"]) for path in FORMS),
    (ROOT / "CITATION.cff", ["vendor.citation-file-format"]),
)
YAML_RULES = "{extends: default, rules: {document-start: disable, line-length: {max: 110}, \
truthy: {check-keys: false}, comments: {min-spaces-from-content: 1}}}"
ODD = 'runs/it\'s "one" $(touch hacked) `touch hacked`; touch hacked & * ${HOME} \\ é'


def read(path: Path) -> Any:
    return yaml.safe_load(path.read_text())


def steps(path: Path) -> list[dict[str, Any]]:
    found = read(path)
    if path == ACTION:
        return list(found["runs"]["steps"])
    return [step for job in found["jobs"].values() for step in job["steps"]]


def step(path: Path, name: str) -> dict[str, Any]:
    return next(one for one in steps(path) if one["name"] == name)


def shell_steps() -> Iterator[tuple[str, str]]:
    for path in (ACTION, *WORKFLOWS):
        yield from ((f"{path.name}: {one['name']}", one["run"]) for one in steps(path) if "run" in one)
    yield GITLAB.name, "\n".join(read(GITLAB)["harness-check"]["script"])


SHELL = dict(shell_steps())


def linted(tool: str, *arguments: str | Path, text: str | None = None) -> None:
    """Run a linter of this environment; it says nothing that is wrong."""
    program = Path(sys.executable).with_name(tool)
    if not program.exists():
        pytest.skip(f"needs {tool} (make setup-dev)")
    done = subprocess.run(
        [program, *arguments], input=text, cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(("path", "schema"), SCHEMAS, ids=[f"{p.name}-{s[0]}" for p, s in SCHEMAS])
def test_the_schema_of_the_service_holds(path: Path, schema: list[str]) -> None:
    linted("check-jsonschema", "--builtin-schema", *schema, path)


def test_the_workflow_linter_is_clean() -> None:
    linted("zizmor", "--offline", "--no-progress", "--persona=pedantic", ACTION, *WORKFLOWS)


def test_the_files_are_tidy() -> None:
    linted("yamllint", "--strict", "--config-data", YAML_RULES, *EVERY)


@pytest.mark.parametrize("name", SHELL)
def test_the_shell_linter_is_clean(name: str) -> None:
    linted("shellcheck", "--shell=bash", "--severity=style", "-", text=SHELL[name])


@pytest.mark.parametrize("name", SHELL)
def test_nothing_is_filled_into_the_text_of_a_command(name: str) -> None:
    assert "${{" not in SHELL[name]


def test_every_action_is_pinned_to_a_commit() -> None:
    used = [one["uses"] for path in (ACTION, *WORKFLOWS) for one in steps(path) if "uses" in one]
    assert used
    for one in used:
        assert one == "./encoder-harness" or re.fullmatch(r"actions/[\w/-]+@[0-9a-f]{40}", one), one


def test_one_action_has_one_commit() -> None:
    text = "".join(path.read_text() for path in (*EVERY, ROOT / "docs" / "ci.md"))
    pins: dict[str, set[str]] = {}
    for name, commit in re.findall(
        r"uses: actions/([a-z-]+)\S*@([0-9a-f]{40} # v[\d.]+)$", text, re.MULTILINE
    ):
        pins.setdefault(name, set()).add(commit)
    assert {name: len(commits) for name, commits in pins.items()} == dict.fromkeys(pins, 1)


def test_inputs_outputs_and_variables_are_documented() -> None:
    action = read(ACTION)
    declared = set(action["inputs"])
    text = ACTION.read_text()
    assert set(re.findall(r"inputs\.([\w-]+)", text)) == declared
    variables = {name for path in WORKFLOWS for name in re.findall(r"vars\.(\w+)", path.read_text())}
    variables |= {name for name in re.findall(r"\$(\w+)", GITLAB.read_text()) if not name.startswith("CI_")}
    rows = set(re.findall(r"^\| `([\w-]+)` \|", PAGE, re.MULTILINE))
    assert declared | set(action["outputs"]) | variables == rows
    assert all(f"(ci/{path.name})" in PAGE for path in (*WORKFLOWS, GITLAB))


@pytest.mark.parametrize("path", [NIGHTLY, PULL_REQUEST], ids=["nightly", "pull request"])
def test_the_workflows_give_the_action_what_it_takes(path: Path) -> None:
    used = [one["with"] for one in steps(path) if one.get("uses") == "./encoder-harness"]
    assert len(used) == 1
    inputs = read(ACTION)["inputs"]
    assert set(used[0]) <= set(inputs)
    assert {name for name, one in inputs.items() if one.get("required")} <= set(used[0])


def test_the_commands_have_the_flags_that_are_used() -> None:
    from harness.cli import program

    for name, flags in (
        ("check", re.findall(r"--[a-z-]+", SHELL["action.yml: Check"] + SHELL[GITLAB.name])),
        ("watch", ["--suite", "--once", "--show", "--json"]),
    ):
        command = program.get_command(program.make_context("harness", ["list"]), name)
        assert command is not None, name
        assert set(flags) <= {option for parameter in command.params for option in parameter.opts}


# The action


@pytest.fixture
def runner(tmp_path: Path) -> Runner:
    made = Runner(folder=tmp_path / "runner")
    check = small_check()
    (made.stubs / "check.json").write_text(json.dumps(check.to_json()))
    (made.stubs / "check.md").write_text(render_markdown(check))
    (made.stubs / "junit.xml").write_text(render_junit(check))
    for name, about in read(ACTION)["inputs"].items():
        made.context[f"inputs.{name}"] = about.get("default", "")
    made.context |= {"inputs.candidate": "models/mine", "inputs.baseline": "release"}
    made.context |= {"inputs.python-version": "", "github.event.pull_request.number": "12"}
    return made


def act(runner: Runner, *names: str) -> subprocess.CompletedProcess[str]:
    """Run steps of the action, by name, after the one that names the reports."""
    done = None
    for name in ("Name the reports and the cache", *names):
        done = runner.run(step(ACTION, name), "-eo", "pipefail")
    assert done is not None
    return done


def outputs(runner: Runner) -> dict[str, str]:
    return {name: runner.value(one["value"]) for name, one in read(ACTION)["outputs"].items()}


def test_the_action_hands_its_inputs_to_the_command(runner: Runner) -> None:
    runner.context |= {
        "inputs.suite": "nanobeir\nlocal:my data\n",
        "inputs.policy": "policy.toml",
        "inputs.arguments": "--seeds\n3\n",
    }
    assert act(runner, "Check").returncode == 0
    reports = outputs(runner)["reports"]
    assert runner.calls("harness") == [
        [
            *("check", "--candidate", "models/mine", "--baseline", "release", "--results", "results"),
            *("--suite", "nanobeir", "--suite", "local:my data", "--policy", "policy.toml", "--seeds", "3"),
            *("--json-file", f"{reports}/check.json"),
            *("--junit", f"{reports}/junit.xml", "--markdown", f"{reports}/check.md"),
        ]
    ]


def test_without_suite_and_policy_the_command_has_its_own(runner: Runner) -> None:
    act(runner, "Check")
    assert not {"--suite", "--policy", ""} & set(runner.calls("harness")[0])


@pytest.mark.parametrize("name", ["candidate", "baseline", "suite", "policy", "results", "arguments"])
def test_odd_names_stay_one_argument(runner: Runner, name: str) -> None:
    runner.context[f"inputs.{name}"] = ODD
    assert act(runner, "Check").returncode == 0
    assert ODD in runner.calls("harness")[0]
    assert not list(runner.folder.rglob("hacked"))


@pytest.mark.parametrize("code", [0, 1, 3])
def test_verdict_summary_and_exit_code_are_handed_through(runner: Runner, code: int) -> None:
    runner.environment["STUB_EXIT"] = str(code)
    assert act(runner, "Check").returncode == code
    found = outputs(runner)
    assert (found["verdict"], found["exit-code"]) == ("regressed", str(code))
    assert runner.summary == (runner.stubs / "check.md").read_text()
    assert {path.name for path in Path(found["reports"]).iterdir()} == {"check.json", "check.md", "junit.xml"}


def test_a_misuse_has_no_verdict(runner: Runner) -> None:
    for name in ("check.json", "check.md", "junit.xml"):
        (runner.stubs / name).unlink()
    runner.environment |= {"STUB_EXIT": "2", "STUB_ERROR": "Progress\nError: no *data*.\nType --data.\n"}
    done = act(runner, "Check")
    assert (done.returncode, done.stderr) == (2, runner.environment["STUB_ERROR"])
    assert (outputs(runner)["verdict"], outputs(runner)["exit-code"]) == ("", "2")
    assert runner.summary == "## Not checked (exit code 2)\n\n    Error: no *data*.\n    Type --data.\n"


def test_the_harness_is_installed_from_the_lock_of_the_action(runner: Runner) -> None:
    runner.context |= {"inputs.python-version": "3.12", "steps.python.outputs.python-path": "python"}
    assert act(runner, "Install the harness", "Check").returncode == 0
    environment = f"{runner.folder}/temp/encoder-harness"
    assert runner.calls("python") == [
        ["-m", "venv", environment],
        ["/the action/requirements/install.py", "/the action/requirements/demo.txt"],
    ]
    assert len(runner.calls("harness")) == 1
    assert (ROOT / "requirements" / "install.py").exists()
    assert (ROOT / "requirements" / "demo.txt").exists()


def test_the_cache_is_named_by_what_is_compared(runner: Runner) -> None:
    def key() -> tuple[str, str]:
        act(runner)
        found = runner.context
        return found["steps.names.outputs.scope"], found["steps.names.outputs.mine"]

    scope, mine = key()
    runner.context["inputs.candidate"] = "models/other, with a comma"
    assert key() == (scope, runner.context["steps.names.outputs.mine"]) != (scope, mine)
    runner.context["inputs.baseline"] = "older"
    assert key()[0] != scope
    assert all(re.fullmatch(r"[\w-]+", part) for part in (*key(), scope, mine))
    kept = step(ACTION, "Keep results and data for later runs")["with"]
    taken = step(ACTION, "Take results and data of earlier runs")["with"]
    assert kept == {name: taken[name] for name in ("path", "key")}
    assert runner.value(kept["key"]).startswith(runner.value(taken["restore-keys"]))


needs_jq = pytest.mark.skipif(shutil.which("jq") is None, reason="needs jq, which stands for gh's own")


def commented(runner: Runner, *bodies: str, by: str = "Bot") -> subprocess.CompletedProcess[str]:
    user = {"type": by}
    comments = [{"id": 40 + number, "body": body, "user": user} for number, body in enumerate(bodies)]
    (runner.stubs / "comments.json").write_text(json.dumps(comments))
    return act(runner, "Check", "Comment on the pull request")


@needs_jq
def test_the_first_verdict_is_a_new_comment(runner: Runner) -> None:
    done = commented(runner, "Looks good.", "Quoting: <!-- harness-check:release-mteb -->")
    assert done.returncode == 0, done.stderr
    written = runner.calls("gh")[-1]
    assert written[:4] == ["api", "--method", "POST", "repos/owner/name/issues/12/comments"]
    body = (runner.stubs / "written.md").read_text()
    assert (runner.stubs / "check.md").read_text() in body
    assert body.endswith("\n[The run](https://example.org/owner/name/actions/runs/7)\n")


@needs_jq
def test_later_verdicts_go_into_the_same_comment(runner: Runner) -> None:
    assert commented(runner).returncode == 0
    old = (runner.stubs / "written.md").read_text()
    assert commented(runner, "Looks good.", old, old).returncode == 0
    update = ["api", "--method", "PATCH", "repos/owner/name/issues/comments/41"]
    assert runner.calls("gh")[-1][:4] == update
    # Also that nothing was checked, so that no former verdict stays.
    (runner.stubs / "check.json").unlink()
    runner.environment |= {"STUB_EXIT": "2", "STUB_ERROR": "Error: no data.\n"}
    done = act(runner, "Check")
    assert done.returncode == 2
    assert runner.run(step(ACTION, "Comment on the pull request"), "-eo", "pipefail").returncode == 0
    assert runner.calls("gh")[-1][:4] == update
    assert (
        "## Not checked (exit code 2)\n\n    Error: no data.\n" in (runner.stubs / "written.md").read_text()
    )


@needs_jq
def test_a_comment_of_somebody_else_is_not_written_over(runner: Runner) -> None:
    assert commented(runner).returncode == 0
    assert commented(runner, (runner.stubs / "written.md").read_text(), by="User").returncode == 0
    assert runner.calls("gh")[-1][2] == "POST"


def test_baselines_and_proxies_are_never_cached() -> None:
    """What a run restores must not lie over what the repository holds."""
    paths = [
        line.strip().lstrip("- ")
        for text in (path.read_text() for path in EVERY)
        for line in text.splitlines()
        if line.strip().lstrip("- ").startswith(("results", "${{ inputs.results }}"))
    ]
    cached = [path for path in paths if ":" not in path]
    assert cached
    assert all(path.rstrip("/").endswith(("/records", "/checks", "/watches")) for path in cached), cached


def test_a_token_that_cannot_comment_is_a_warning(runner: Runner) -> None:
    runner.environment["GH_FAILS"] = "1"
    done = commented(runner)
    assert done.returncode == 0
    assert done.stdout.startswith("::warning title=harness check::The comment was not written.")


# The others


def test_the_nightly_workflow_checks_the_newest_that_is_evaluated(runner: Runner) -> None:
    entries = [("step-1", "done"), ("step-2 é", "done"), ("step-3", "waiting")]
    watch = {"checkpoints": [{"folder": f"/runs/{name}", "state": state} for name, state in entries]}
    (runner.stubs / "watch.json").write_text(json.dumps({"schema": 1, "watch": watch}))
    runner.environment |= {"CHECKPOINTS": "/my runs", "SUITE": "nanobeir"}
    assert runner.run(step(NIGHTLY, "Evaluate the new checkpoints"), "-e").returncode == 0
    assert runner.run(step(NIGHTLY, "Find the newest that is evaluated"), "-e").returncode == 0
    assert runner.calls("harness") == [
        ["watch", "/my runs", "--suite", "nanobeir", "--once"],
        ["watch", "/my runs", "--show", "--json"],
    ]
    used = next(one["with"] for one in steps(NIGHTLY) if one.get("uses") == "./encoder-harness")
    assert runner.value(used["candidate"]) == "/runs/step-2 é"


def test_a_night_without_a_checkpoint_says_so(runner: Runner) -> None:
    (runner.stubs / "watch.json").write_text(json.dumps({"schema": 1, "watch": {"checkpoints": []}}))
    done = runner.run(step(NIGHTLY, "Find the newest that is evaluated"), "-e")
    assert done.returncode == 1
    assert done.stderr.strip().endswith("No checkpoint is evaluated yet.")
    assert "Traceback" not in done.stderr


def test_the_nightly_workflow_installs_as_the_action_does(runner: Runner) -> None:
    assert runner.run(step(NIGHTLY, "Install the harness"), "-e").returncode == 0
    assert runner.calls("python")[1] == [
        "encoder-harness/requirements/install.py",
        "encoder-harness/requirements/demo.txt",
    ]
    assert (runner.folder / "path").read_text().strip() == f"{runner.folder}/temp/encoder-harness/bin"


def test_the_snippet_of_gitlab_writes_the_reports_it_names(runner: Runner) -> None:
    job = read(GITLAB)["harness-check"]
    runner.environment |= {"CHECK_CANDIDATE": ODD, **job["variables"]}
    runner.environment["STUB_EXIT"] = "3"
    assert runner.run({"run": SHELL[GITLAB.name]}, "-eo", "pipefail").returncode == 3
    given = ("check", "--candidate", ODD, "--baseline", "baselines/release.zip", "--json-file")
    assert tuple(runner.calls("harness")[0][:6]) == given
    assert (runner.workspace / job["artifacts"]["reports"]["junit"]).exists()
    assert job["allow_failure"] == {"exit_codes": [3]}


def test_no_host_of_a_registry_is_named() -> None:
    for path in (*EVERY, ROOT / "docs" / "ci.md"):
        assert not re.search(r"\b[\w-]+\.(io|org|com|dev)\b", path.read_text()), path.name


# The complete check fails where programs that the site's tests need are missing, unless that is allowed


RUN = (ROOT / ".ci" / "run").read_text()


def checked(folder: Path, *, user: int = 1000, installs: bool = False, **environment: str) -> tuple[int, str]:
    """The part of the script that looks for programs, on a machine without a browser."""
    start, end = RUN.index("programs() {"), RUN.index("run_tests() {")
    (folder / "id").write_text(f"#!/bin/bash\necho {user}\n")
    browser = folder / "chromium"
    made = f'printf "#!/bin/bash\\n" >{browser}; /bin/chmod +x {browser}' if installs else "exit 100"
    (folder / "apt-get").write_text(f'#!/bin/bash\n[ "$1" = update ] && exit 0\n{made}\n')
    for name in ("id", "apt-get"):
        (folder / name).chmod(0o755)
    script = f'set -euo pipefail\n{RUN[start:end]}\nprograms\necho "the tests run"\n'
    done = subprocess.run(
        ["/bin/bash", "-c", script],
        env={"PATH": str(folder), **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize("user", [0, 1000])
def test_missing_programs_are_a_failure_that_says_how_to_go_on(tmp_path: Path, user: int) -> None:
    code, said = checked(tmp_path, user=user)
    assert code != 0
    assert "missing: chromium" in said
    assert "ALLOW_MISSING_PROGRAMS=1" in said
    assert "the tests run" not in said


@pytest.mark.parametrize("user", [0, 1000])
def test_missing_programs_can_be_allowed(tmp_path: Path, user: int) -> None:
    code, said = checked(tmp_path, user=user, ALLOW_MISSING_PROGRAMS="1")
    assert code == 0
    assert "missing: chromium" in said
    assert "left out" in said


def test_what_can_be_installed_is(tmp_path: Path) -> None:
    code, said = checked(tmp_path, user=0, installs=True)
    assert (code, said) == (0, "the tests run\n")


# The script that makes the committed reference records replaces them whole or not at all


SCRIPT = ROOT / "results" / "make_reference.sh"
HARNESS = """#!/bin/sh
echo "$*" >>calls
case "$*" in *"$FAILS"*) exit 1 ;; esac
while [ "$1" != --results ]; do shift; done
mkdir -p "$2/records/minilm/task"
touch "$2/records/minilm/task/new.json" "$2/records/minilm/task/new.examples.parquet"
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout with one old record, a data root and a program that only writes a record."""
    place = tmp_path / "checkout"
    (place / "results" / "reference" / "records").mkdir(parents=True)
    (place / "results" / "reference" / "records" / "old.json").touch()
    (tmp_path / "data" / "mteb").mkdir(parents=True)
    shutil.copy(SCRIPT, place / "results")
    (place / "harness").write_text(HARNESS)
    (place / "harness").chmod(0o755)
    return place


def make(checkout: Path, data: str, fails: str = "nothing") -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "HARNESS": "./harness", "HARNESS_DATA": data, "FAILS": fails}
    command = ["sh", str(checkout / "results" / "make_reference.sh")]
    return subprocess.run(command, env=env, capture_output=True, text=True, check=False)


def records(checkout: Path) -> set[str]:
    return {path.name for path in (checkout / "results").rglob("*") if path.suffix in (".json", ".parquet")}


def test_without_a_data_root_nothing_is_touched(checkout: Path) -> None:
    done = make(checkout, "nowhere")
    assert done.returncode == 1
    assert done.stderr == "nowhere holds no data sets of mteb: set HARNESS_DATA to a data root that does\n"
    assert records(checkout) == {"old.json"}
    assert not (checkout / "calls").exists()


@pytest.mark.parametrize("fails", ["stdlib", "SciFact", "SIB200"])
def test_a_run_that_fails_leaves_the_old_records(checkout: Path, fails: str) -> None:
    assert make(checkout, "../data", fails).returncode == 1
    assert records(checkout) == {"old.json"}


def test_the_new_records_take_the_place_of_the_old_ones_without_their_examples(checkout: Path) -> None:
    for _ in range(2):
        done = make(checkout, "../data")
        assert (done.returncode, done.stderr) == (0, "")
        assert records(checkout) == {"new.json"}
    assert sorted(path.name for path in (checkout / "results").iterdir()) == [
        "make_reference.sh",
        "reference",
    ]


@pytest.mark.parametrize(
    ("tag", "commits", "version"),
    [("", 1, "0.3.0.dev1"), ("v1.2.3", 0, "1.2.3"), ("v1.2.3", 2, "1.2.4.dev2"), ("", 0, "0.3.0.dev0")],
)
def test_the_version_is_that_of_the_last_tag(tag: str, commits: int, version: str, tmp_path: Path) -> None:
    """In a clone without tags, and in a folder without git, it is counted from that of pyproject.toml."""
    pytest.importorskip("setuptools_scm", reason="needs setuptools-scm (make setup-dev)")
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-C", str(tmp_path)]
    commit = [*git, "commit", "--quiet", "--allow-empty", "--message=x"]
    commands = [[*git, "init", "--quiet"], [*git, "add", "."]] if tag or commits else []
    commands += [commit, [*git, "tag", tag]] if tag else []
    for command in (*commands, *[commit] * commits):
        subprocess.run(command, check=True)
    done = subprocess.run(
        [sys.executable, "-m", "setuptools_scm"], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == version
