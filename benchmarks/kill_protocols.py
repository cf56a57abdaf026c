"""Quick runs of protocols from beginning to end, left in peace and killed on the way.

PYTHONPATH=.:tests/support:benchmarks python benchmarks/kill_protocols.py --only modernbert --kills 3
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from measuring import read_options

from harness.cli import invoke
from protocol_data import backbone, lay_protocol_data


def words(folder: Path, place: str, protocol: str) -> list[str]:
    """The command of a quick run; several commands share backbone and data."""
    places = {name: folder / place / name for name in ("results", "cache")} | {"data": folder / "data"}
    options = [part for name, path in places.items() for part in (f"--{name}", str(path))]
    models = ["--model", str(folder / "tiny"), "--protocol", protocol, "--quick"]
    how = ["--offline", "--devices", "cpu", "--threads", "1", "--workers", "1", "--json"]
    return [sys.executable, "-m", "harness", "run", *models, *options, *how]


def outputs(results: Path) -> dict[str, Any]:
    """The scores of every record, and the weights of every model."""
    records = {
        str(path.relative_to(results)): (record["status"], record["purpose"], record["scores"])
        for path in results.glob("records/*/*/*.json")
        for record in [json.loads(path.read_text())]
    }
    models = {
        path.parent.name: json.loads(path.read_text())["weights"]
        for path in results.glob("models/*/model.json")
    }
    return records | models


def run(command: Sequence[str], *, here: bool = False) -> dict[str, Any]:
    """The report of a command, which runs in a process of its own or in this one."""
    if here:
        with contextlib.redirect_stdout(io.StringIO()) as out:
            invoke(list(command[3:]))
        text, said = out.getvalue(), ""
    else:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        text, said = done.stdout, done.stderr[-3000:]
    assert text, said
    report: dict[str, Any] = json.loads(text)
    return report


def kill(command: Sequence[str], results: Path, count: int) -> bool:
    """Start a command, and kill it with all of its processes once it has left `count` records and models.

    Returns whether it was killed before its end.
    """
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    while process.poll() is None and len(outputs(results)) < count:
        time.sleep(0.1)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    return process.wait() == -signal.SIGKILL


def compare_quick_runs(protocol: str, folder: Path, kills: int, *, here: bool = False) -> None:
    """Assert that a quick run killed so many times gives what one left in peace gives, and whole rows.

    Args:
        protocol: The name of the protocol.
        folder: Where everything is written.
        kills: How often.
        here: Whether runs that are left in peace run in this process, without the seconds of a start.
    """
    backbone(folder / "tiny")
    lay_protocol_data(folder / "data")

    peaceful = run(words(folder, "peaceful", protocol), here=here)
    expected = outputs(folder / "peaceful" / "results")
    counts = [number * len(expected) // (kills + 1) for number in range(1, kills + 1)]
    # A quick run may be at its end between two looks; then it is made anew.
    for place in ("killed", "killed-2", "killed-3"):
        results = folder / place / "results"
        if all(kill(words(folder, place, protocol), results, count) for count in counts):
            break
    else:
        raise AssertionError("three runs were at their ends before they were killed")
    killed = run(words(folder, place, protocol), here=here)

    assert outputs(results) == expected
    assert killed["tables"] == peaceful["tables"]
    for table in peaceful["tables"]:
        measured = [row for row in table["rows"] if row["origin"] == "measured"]
        assert [row["setting"] for row in measured] == ["QUICK"]
        assert any(row["origin"] == "printed" for row in table["rows"])
        # Every number is there, or says what it lacks.
        for number in measured[0]["numbers"].values():
            assert number["gap"] if number["count"] < number["total"] else number["value"] is not None


def main() -> None:
    """Compare the quick runs of a protocol in a temporary folder."""
    asked = read_options(__doc__, only="modernbert", kills=3)
    with tempfile.TemporaryDirectory() as folder:
        compare_quick_runs(asked.only, Path(folder), asked.kills)
    print(f"{asked.only}: a run killed {asked.kills} times gave the records, weights and rows of another")


if __name__ == "__main__":
    main()
