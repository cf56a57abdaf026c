from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tiny
from blocked import invoke_blocked
from harness.cli import invoke
from judged_data import put_watch
from tiny import WORDS

Asked = Callable[..., tuple[int, str, str]]


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """A suite of one task."""
    folder = tmp_path / "own"
    folder.mkdir()
    pairs = [{"text1": a, "text2": WORDS[i // 2], "score": float(i % 5)} for i, a in enumerate(WORDS)]
    (folder / "pairs.jsonl").write_text("\n".join(map(json.dumps, pairs)))
    (folder / "harness.toml").write_text('[[task]]\nname = "alike"\ntype = "sts"\nfile = "pairs.jsonl"\n')
    return folder


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """The folder of a run with one checkpoint."""
    tiny.folder(tiny.families()["bert"], tmp_path / "run" / "checkpoint-1000", seed=1)
    return tmp_path / "run"


@pytest.fixture
def watch(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Asked:
    """The command in this process: exit code, standard output, standard error."""

    def asked(*arguments: object) -> tuple[int, str, str]:
        code = invoke(["watch", *map(str, arguments), "--results", str(tmp_path / "results")])
        said = capsys.readouterr()
        assert "Traceback" not in said.err
        return code, said.out, said.err

    return asked


def test_a_run_is_evaluated_shown_and_gone_on_with(run: Path, own: Path, watch: Asked) -> None:
    (run / "final").mkdir()
    (run / "checkpoint-2000").mkdir()
    asked = (run, "--suite", f"local:{own}", "--once", "--settle", "0", "--offline")
    code, out, err = watch(*asked)
    assert code == 0
    assert "step 1000 (checkpoint-1000): evaluated (1 scored now, 0 known), mean " in out
    assert out.count("▄") == 1
    assert "waiting for step 2000 (checkpoint-2000): it has no config.json" in err
    assert "skipped final: no step in its name" in err
    tiny.folder(tiny.families()["bert"], run / "checkpoint-2000", seed=2)
    code, out, _ = watch(*asked, "--json")
    lines = [json.loads(line) for line in out.splitlines()]
    assert [line["event"] for line in lines] == ["look", "checkpoint", "end"]
    assert (lines[0]["ready"], lines[0]["known"]) == ([2000], [1000])
    assert (lines[1]["how"], lines[1]["scored"], lines[1]["known"]) == ("evaluated", 1, 0)
    assert lines[1]["checkpoint"] == lines[2]["watch"]["checkpoints"][1]
    code, out, _ = watch("run", "--show", "--json")
    assert json.loads(out) == {"schema": 1, "watch": lines[2]["watch"]}
    code, out, _ = watch(run, "--show", "--task", "alike")
    assert code == 0
    assert "run: alike of local:" in out
    code, out, _ = watch("--list", "--json")
    (row,) = json.loads(out)["watches"]
    assert (row["name"], row["done"], row["last_step"]) == ("run", 2, 2000)
    assert row["last_mean"] == lines[1]["checkpoint"]["mean"]
    assert "run" in watch("--list")[1]
    code, _, err = watch(*asked, "--seed", "7")
    assert code == 2
    assert "settings.seed was 42, here 7" in err


def test_a_checkpoint_that_fails_ends_with_1_and_the_others_are_there(
    run: Path, own: Path, watch: Asked
) -> None:
    from safetensors.numpy import load_file, save_file

    broken = tiny.folder(tiny.families()["bert"], run / "checkpoint-500")
    weights = load_file(broken / "model.safetensors")
    save_file({name: 0 * tensor for name, tensor in weights.items()}, broken / "model.safetensors")
    code, out, _ = watch(run, "--suite", f"local:{own}", "--once", "--settle", "0", "--offline", "--json")
    assert code == 1
    first, second = json.loads(out.splitlines()[-1])["watch"]["checkpoints"]
    assert (first["state"], second["state"]) == ("failed", "done")
    assert first["reason"].startswith("checkpoint-500: 6 different texts all have the same vector.")


def test_scores_that_are_gone_are_told_by_every_form_and_the_exit_code(
    run: Path, own: Path, watch: Asked, tmp_path: Path
) -> None:
    asked = (run, "--suite", f"local:{own}", "--once", "--settle", "0", "--offline")
    assert watch(*asked)[0] == 0
    shutil.rmtree(tmp_path / "results" / "records")
    code, out, _ = watch(*asked)
    assert (code, "evaluated (1 scored now, 0 known)" in out) == (0, True)
    shutil.rmtree(tmp_path / "results" / "records")
    shutil.rmtree(run / "checkpoint-1000")
    gone = (
        "scores of step 1000 are gone: alike; its checkpoint is not there any more, so they cannot be "
        "measured again"
    )
    code, out, err = watch(*asked)
    assert (code, f"{gone}." in out, f"{gone}." in err) == (1, True, True)
    code, out, _ = watch(*asked, "--json")
    look, end = map(json.loads, out.splitlines())
    assert (code, look["lost"]) == (1, [{"step": 1000, "name": "checkpoint-1000", "reason": gone}])
    (entry,) = end["watch"]["checkpoints"]
    assert (entry["state"], entry["mean"], entry["scores"], entry["there"]) == ("lost", None, {}, 0)
    code, out, _ = watch("run", "--show")
    assert (code, f"{gone}." in out) == (0, True)
    (row,) = json.loads(watch("--list", "--json")[1])["watches"]
    assert (row["lost"], row["done"], row["last_mean"]) == (1, 0, None)
    assert "1 lost" in watch("--list")[1]


def test_a_file_with_a_changed_digit_is_refused_in_one_line(
    run: Path, own: Path, watch: Asked, tmp_path: Path
) -> None:
    asked = (run, "--suite", f"local:{own}", "--once", "--settle", "0", "--offline")
    assert watch(*asked)[0] == 0
    path = tmp_path / "results" / "watches" / "run.json"
    path.write_text(path.read_text().replace('"wanted": 1', '"wanted": 2'))
    for arguments in (asked, ("run", "--show"), ("--list",)):
        code, out, err = watch(*arguments)
        assert (code, out) == (2, "")
        assert "its content is not what its digest says" in err
        assert "Remove it and type the same command again" in err
    path.unlink()
    assert "known already (0 scored now, 1 known)" in watch(*asked)[1]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "A watch needs a folder or a hub repository, and a suite."),
        (["."], "A watch needs a folder or a hub repository, and a suite."),
        (["no-such", "--suite", "stdlib"], "No folder is at no-such"),
        (["org/name", "--suite", "stdlib", "--offline"], "--offline cannot see its revisions"),
        ([".", "--suite", "stdlibb"], "stdlib"),
        ([".", "--suite", "stdlib", "--task", "nope"], "No task of this watch is called 'nope'"),
        ([".", "--suite", "stdlib", "--name", "a/b"], "cannot be the name of a watch"),
        (["nope", "--show"], "No watch is called 'nope'"),
        (["nope", "--show"], "No watch exists yet. `harness watch FOLDER --suite SUITE` begins one"),
        (["--show"], "Which watch?"),
        ([".", "--suite", "glue", "--once"], "which recipe?"),
    ],
)
def test_misuse_says_what_to_type(watch: Asked, arguments: list[str], said: str) -> None:
    code, out, err = watch(*arguments)
    assert (code, out) == (2, "")
    assert said in err


def test_what_there_is_is_told_without_torch(tmp_path: Path) -> None:
    from harness.watch import state

    entries = [
        state.WatchEntry(
            step=100 * n, name=f"step{n}", state="done", wanted=1, scores={"Fake": 0.5 + 0.01 * n},
            artifact=f"{n:064x}",
        )
        for n in range(1, 9)
    ]  # fmt: skip
    bounds = {"delta": -0.03, "low": -0.04, "high": -0.02, "p": 1e-9, "level": 0.0012}
    counts = {"number": 6, "reference": 600, "columns": 1, "wanted": 1}
    look = state.Look(**bounds, **counts, verdict="lower")  # type: ignore[arg-type]
    entries[6] = entries[6].model_copy(update={"look": look})
    broken = state.ChangePoint(step=700, last=700, kind="drop", size=0.03, p=0.0004)
    kept: dict[str, Any] = {"name": "mine", "source": "/run", "suite": "s", "request": {}}
    results = tmp_path / "results"
    watch = state.Watch(**kept, checkpoints=tuple(entries), change_points=(broken,))
    put_watch(results, watch)
    asked = (["--list"], ["mine", "--show"], ["mine", "--show", "--json"])
    told = invoke_blocked(["watch", *words, "--results", results] for words in asked)
    assert all(code == 0 and "mine" in out for code, out, _ in told)
    shown = told[1][1]
    assert "step 700 is LOWER than step 600: −3.00 [−4.00, −2.00], p < 0.000001 (level 0.0012)" in shown
    assert "600: −3.00 [−4.00, −2.00] LOWER" in shown
    assert "step 700 is 3.00 points below" in shown
    assert "by chance in 1 of 2,500 checkpoints" in shown
    assert "▁▂▃▄▅▆▇█" in shown


def test_a_watch_that_is_there_is_read_whatever_its_name(tmp_path: Path, watch: Asked) -> None:
    from harness.watch import state

    kept: dict[str, Any] = {"source": "/run", "suite": "s", "request": {}}
    for name in ("run.json", "other"):
        state.WATCHES.write_document(tmp_path / "results", name, state.Watch(name=name, **kept))
    code, out, _ = watch("--list", "--json")
    assert (code, [one["name"] for one in json.loads(out)["watches"]]) == (0, ["other", "run.json"])
