"""What every command prints of documents that a stranger wrote: their names control no terminal."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.cli import invoke
from harness.core.documents import append_digest
from hostile import EVIL, obeyed

PRINTING: dict[str, tuple[str, ...]] = {
    "audit": ("audit", "--strict"),
    "baselines": ("baseline", "list"),
    "baseline": ("baseline", "show", "last"),
    "check": ("check", "--candidate", "WORSE", "--baseline", "last", "--offline"),
    "compare": ("compare", "KEY", "OTHER", "--measurements"),
    "export as csv": ("export", "/search?q=gnp", "--format", "csv"),
    "export as json": ("export", "/search?q=gnp", "--format", "json"),
    "list": ("list", "records"),
    "models": ("models", "list"),
    "run": ("run", "--model", "GOOD", "--suite", "SUITE", "--offline"),
    "show": ("show", "KEY"),
    "show suite": ("show", "KEY", "--suite", "SUITE"),
    "show task": ("show", "KEY", "--task", "alike"),
    "status": ("status", "--all"),
}
SILENT = {"export as csv", "export as json", "show task"}
"""Those without --json."""
QUIET = {"status", "audit", "baseline", "baselines", "models", "run", "check"}
"""Those that need not print the name."""


def _rename(value: Any) -> Any:
    """A document with another name for the model, and notes."""
    if isinstance(value, dict):
        notes = {"notes": [EVIL]} if "notes" in value else {}
        return {name: _rename(part) for name, part in value.items()} | notes
    if isinstance(value, list):
        return [_rename(part) for part in value]
    return EVIL if value in ("good", "cpu") else value


def spoil(results: Path) -> None:
    """Every document of a results folder with hostile names, and a right digest."""
    for path in results.rglob("*.json"):
        content = json.loads(path.read_text())
        plain = _rename({name: value for name, value in content.items() if name != "digest"})
        path.write_text(append_digest(plain) if "digest" in content else json.dumps(plain))
    for path in results.rglob("*.jsonl"):
        path.write_text(path.read_text().replace('"good"', json.dumps(EVIL)))


@pytest.mark.parametrize("as_json", [False, True])
def test_no_command_prints_a_character_that_a_terminal_obeys(
    measured: Any, asked: Any, as_json: bool
) -> None:
    rows = json.loads(asked("list", "records", "--json")[1])["records"]
    keys = {name: next(row["artifact"] for row in rows if row["model"] == name) for name in ("good", "worse")}
    spoil(measured.results)
    words = {
        "KEY": keys["good"], "OTHER": keys["worse"], "SUITE": measured.local,
        "GOOD": measured.model("good"), "WORSE": measured.model("worse"),
    }  # fmt: skip
    for name, typed in PRINTING.items():
        if not (as_json and name in SILENT):
            code, out, err = asked(*(words.get(word, word) for word in typed), *["--json"] * as_json)
            assert code in (0, 1), (name, err)
            assert obeyed(out + err) == set(), name
            assert name in QUIET or "gnp.exe" in out, (name, out)


def _make_model(folder: Path, name: str, measured: Any) -> tuple[object, ...]:
    return ("run", "--model", shutil.copytree(measured.model("good"), folder / name), "--suite", "nanobeir")


def _make_split(folder: Path, name: str, measured: Any) -> tuple[object, ...]:
    own = shutil.copytree(measured.suite, folder / "beir")
    (own / "harness.toml").unlink()
    (own / "qrels" / "test.tsv").rename(own / "qrels" / f"{name}.tsv")
    return ("run", "--model", measured.model("good"), "--suite", f"local:{own}")


MADE: dict[str, Callable[[Path, str, Any], tuple[object, ...]]] = {
    "model": lambda _, name, measured: (
        "run", "--model", f"{name}={measured.model('good')}", "--suite", "beir",
    ),
    "folder": _make_model,
    "split": _make_split,
    "suite": lambda folder, name, measured: (
        "data", "check", "--suite", f"local:{shutil.copytree(measured.suite, folder / name)}",
    ),
    "project": lambda folder, name, measured: (
        "run", "--model", measured.model("good"), "--suite", f"code:{folder}", "--project", name,
    ),
    "baseline": lambda _, name, measured: (
        "baseline", "set", name, "--model", measured.model("good"), "--suite", measured.local,
    ),
    "watch": lambda _, name, measured: (
        "watch", measured.models, "--suite", measured.local, "--name", name, "--once",
    ),
    "proxy": lambda _, name, measured: ("proxy", "fit", "--target", "nanobeir", "--name", name),
    "data": lambda folder, name, measured: (
        "train", "--model", measured.model("good"), "--recipe", "unified-contrastive", "--train-data",
        shutil.copy(measured.suite / "pairs.jsonl", folder / f"{name}.jsonl"),
    ),
}  # fmt: skip
"""The places where a name is made: by it, a command that would make it."""


@pytest.mark.parametrize("place", MADE)
@pytest.mark.parametrize(
    "name",
    ["red\x1b[31m", "a\u202eb", "a\u2028b", "a\u200bb", "a\tb", "数" * 80],
    ids=["escape", "override", "line separator", "zero width", "tab", "long"],
)
def test_a_name_is_refused_where_it_is_made(
    place: str, name: str, measured: Any, capsys: Any, tmp_path: Path
) -> None:
    typed = MADE[place](tmp_path, name, measured)
    before = {path for path in tmp_path.rglob("*") if "cache" not in path.parts}
    offline = [] if typed[0] in ("proxy", "data") else ["--offline"]
    results = [] if typed[0] == "data" else ["--results", str(measured.results)]
    assert invoke([*map(str, typed), *offline, *results]) == 2
    _, err = capsys.readouterr()
    assert "control characters" in err or "cannot be" in err or "Use letters" in err or "Give one of" in err
    assert obeyed(err) == set()
    assert {path for path in tmp_path.rglob("*") if "cache" not in path.parts} == before
