"""A process where heavy libraries cannot be imported, and the command line in one."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

BLOCKER = """
import sys
class Block:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {"torch", "mteb", "transformers", "sentence_transformers", "sklearn"}:
            raise ImportError("blocked: " + name)
sys.meta_path.insert(0, Block())
"""

BLOCK = f"""{BLOCKER}
from harness.cli import invoke
sys.exit(invoke(sys.argv[1:]))
"""

FEW = """
import sys
from unittest import mock
from harness.cli import invoke
from harness.core.types import SuiteOptions
from harness.plan import catalog
from leaderboard.data.suites import SiteSuite
suites = {name: SiteSuite(slug=name, typed=name, suite=catalog.open_suite(name, SuiteOptions()), main=True)
          for name in ("nanobeir", "mteb")}
with mock.patch("leaderboard.data.snapshot.load_site_suites", return_value=suites):
    sys.exit(invoke(sys.argv[1:]))
"""
"""The command line, its site with two suites: all of them make some thousand files."""

SEVERAL = f"""{BLOCKER}
import contextlib, io, json
from harness.cli import invoke
from harness.plan import models
untried = models.Verdict(lasting=False)
models._try_models = lambda tried, **_: contextlib.nullcontext(lambda: [untried] * len(tried))
told = []
for words in json.loads(sys.argv[1]):
    with contextlib.redirect_stderr(io.StringIO()) as err, contextlib.redirect_stdout(io.StringIO()) as out:
        code = invoke(words)
    told.append([code, out.getvalue(), err.getvalue()])
print(json.dumps(told))
"""


def invoke_blocked(
    commands: Iterable[Iterable[object]], cwd: Path | None = None
) -> list[tuple[int, str, str]]:
    """Code, output and errors of several commands, all in one process, which tries no model in another."""
    words = json.dumps([[*map(str, command)] for command in commands])
    command = [sys.executable, "-c", SEVERAL, words]
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False, timeout=200)
    assert done.returncode == 0, done.stderr
    return [(code, out, err) for code, out, err in json.loads(done.stdout)]
