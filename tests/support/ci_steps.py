"""The shell steps of CI files, run here as a runner would, with stubs for the programs they call."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

EXPRESSION = re.compile(r"\$\{\{\s*([\w.-]+)\s*\}\}")

RECORDER = """#!{python}
import json, os, pathlib, shutil, sys
here = pathlib.Path(os.environ["STUBS"])
name = pathlib.Path(sys.argv[0]).name
with open(here / "calls.jsonl", "a") as calls:
    told = {{"HARNESS_CACHE": os.environ.get("HARNESS_CACHE")}}
    print(json.dumps([name, sys.argv[1:], told]), file=calls)
{body}
"""

HARNESS = """
given = dict(zip(sys.argv, sys.argv[1:]))
for flag, name in (("--json-file", "check.json"), ("--junit", "junit.xml"), ("--markdown", "check.md")):
    if flag in given and (here / name).exists():
        shutil.copyfile(here / name, given[flag])
summary = os.environ.get("GITHUB_STEP_SUMMARY")
if "check" in sys.argv and summary and (here / "check.md").exists():
    with open(summary, "a") as file:
        file.write((here / "check.md").read_text())
if "--show" in sys.argv:
    print((here / "watch.json").read_text())
sys.stderr.write(os.environ.get("STUB_ERROR", ""))
sys.exit(int(os.environ.get("STUB_EXIT", "0")))
"""

PYTHON = """
if sys.argv[1:3] == ["-m", "venv"]:
    made = pathlib.Path(sys.argv[3], "bin")
    made.mkdir(parents=True, exist_ok=True)
    shutil.copy(here / "python", made / "python")
    shutil.copy(here / "harness", made / "harness")
"""

GH = """
import subprocess
if os.environ.get("GH_FAILS"):
    sys.exit("HTTP 403")
if "--jq" in sys.argv:
    program = sys.argv[sys.argv.index("--jq") + 1]
    sys.exit(subprocess.run(["jq", "-r", program, here / "comments.json"]).returncode)
body = next(one for one in sys.argv if one.startswith("body=@")).removeprefix("body=@")
shutil.copyfile(body, here / "written.md")
"""


@dataclass(kw_only=True)
class Runner:
    """A folder that stands for a runner: workspace, stubs on the PATH, what the steps wrote.

    `context` is what `${{ ... }}` reads, by its dotted name; the outputs of steps are added to it.
    """

    folder: Path
    context: dict[str, str] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("stubs", "temp", "workspace"):
            (self.folder / name).mkdir(parents=True)
        for name, body in (("harness", HARNESS), ("python", PYTHON), ("gh", GH)):
            path = self.stubs / name
            path.write_text(RECORDER.format(python=sys.executable, body=body))
            path.chmod(0o755)
        (self.stubs / "python3").symlink_to(sys.executable)

    @property
    def stubs(self) -> Path:
        """What stands first on the PATH."""
        return self.folder / "stubs"

    @property
    def workspace(self) -> Path:
        """Where the steps run."""
        return self.folder / "workspace"

    @property
    def summary(self) -> str:
        """The summary of the run, so far."""
        path = self.folder / "summary"
        return path.read_text() if path.exists() else ""

    def calls(self, name: str) -> list[list[str]]:
        """The arguments with which a stub was called, each time."""
        path = self.stubs / "calls.jsonl"
        found = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
        return [arguments for one, arguments, _ in found if one == name]

    def value(self, text: Any) -> str:
        """A value with its `${{ ... }}` filled in; what is not known is empty."""
        return EXPRESSION.sub(lambda found: self.context.get(found[1], ""), str(text))

    def run(self, step: Mapping[str, Any], *options: str) -> subprocess.CompletedProcess[str]:
        """Run a step as `bash` with these options, and take what it put out."""
        output = self.folder / "output"
        output.write_text("")
        env = {
            **os.environ,
            **{name: self.value(text) for name, text in step.get("env", {}).items()},
            "PATH": f"{self.stubs}{os.pathsep}{os.environ['PATH']}",
            "STUBS": str(self.stubs),
            "RUNNER_TEMP": str(self.folder / "temp"),
            "RUNNER_OS": "Linux",
            "GITHUB_OUTPUT": str(output),
            "GITHUB_PATH": str(self.folder / "path"),
            "GITHUB_STEP_SUMMARY": str(self.folder / "summary"),
            "GITHUB_ACTION_PATH": "/the action",
            "GITHUB_REPOSITORY": "owner/name",
            "GITHUB_SERVER_URL": "https://example.org",
            "GITHUB_RUN_ID": "7",
            "GITHUB_RUN_ATTEMPT": "1",
            **self.environment,
        }
        done = subprocess.run(
            ["bash", "--noprofile", "--norc", *options, "-c", step["run"]],
            cwd=self.workspace,
            env=env,
            capture_output=True,
            text=True,
            check=False,
        )
        for line in output.read_text().splitlines():
            name, _, value = line.partition("=")
            self.context[f"steps.{step.get('id')}.outputs.{name}"] = value
        return done
