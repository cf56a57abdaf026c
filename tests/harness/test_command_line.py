"""The command line on a real model and small data of one's own: scores, resuming, bad input."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from safetensors.numpy import load_file, save_file

from blocked import BLOCK
from fakes import Evil
from harness import cli
from harness.cli import invoke
from harness.core.errors import UsageError
from harness.encoder import backbones
from harness.storage.record import SCHEMA
from nobody import as_nobody
from tiny import WORDS


def published() -> str:
    """The folder of the model minilm."""
    entry = backbones.list_backbones()["minilm"]
    assert entry.locate is not None
    return entry.locate()


@pytest.fixture
def own_data(tmp_path: Path) -> Path:
    """A retrieval task, an STS task and a classification task in one folder."""
    folder = tmp_path / "own"
    (folder / "qrels").mkdir(parents=True)
    lines = [
        json.dumps({"_id": f"d{i}", "title": w, "text": f"all about the {w}"}) for i, w in enumerate(WORDS)
    ]
    (folder / "corpus.jsonl").write_text("\n".join(lines))
    lines = [json.dumps({"_id": f"q{i}", "text": f"what is a {w}?"}) for i, w in enumerate(WORDS)]
    (folder / "queries.jsonl").write_text("\n".join(lines))
    rows = [f"q{i}\td{i}\t1" for i in range(len(WORDS))]
    (folder / "qrels" / "test.tsv").write_text("\n".join(["query-id\tcorpus-id\tscore", *rows]))
    pairs = [
        {"text1": a, "text2": b, "score": 5.0 if a == b else float(i)}
        for i, (a, b) in enumerate(zip(WORDS, WORDS[:5] * 2, strict=True))
    ]
    (folder / "pairs.jsonl").write_text("\n".join(map(json.dumps, pairs)))
    (folder / "harness.toml").write_text(
        '[[task]]\nname = "find"\ntype = "retrieval"\n\n'
        '[[task]]\nname = "alike"\ntype = "sts"\nfile = "pairs.jsonl"\n'
    )
    return folder


def harness(*arguments: object, **options: Any) -> tuple[int, Any, str]:
    """The command in a process of its own."""
    command = [sys.executable, "-m", "harness", *map(str, arguments), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, **options)
    return _told(done.returncode, done.stdout, done.stderr)


def say(words: list[str]) -> tuple[int, str, str]:
    """The code, output and errors of a command in this process, which has the libraries imported already."""
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as err:
        code = invoke(words)
    return code, out.getvalue(), err.getvalue()


def here(*arguments: object) -> tuple[int, Any, str]:
    return _told(*say([*map(str, arguments), "--json"]))


def _told(code: int, out: str, err: str) -> tuple[int, Any, str]:
    assert "Traceback" not in err, err
    return code, json.loads(out) if out else out, err


def run(own_data: Path, results: Path, *more: object, **options: Any) -> tuple[int, Any, str]:
    return harness(
        "run", "--model", "minilm", "--suite", f"local:{own_data}", "--results", results, *more, **options
    )


@pytest.mark.slow
def test_a_run_and_what_changes_it(own_data: Path, tmp_path: Path) -> None:
    results = tmp_path / "results"
    asked = ("run", "--model", "minilm", "--suite", f"local:{own_data}", "--results", results)
    code, first, _ = here(*asked)
    assert code == 0
    assert first["texts_encoded"] > 0
    (use,) = first["uses"]
    assert use["device"] == "cpu"
    assert 0 < use["seconds"] <= first["seconds"]
    assert [r["state"] for r in first["records"]] == ["done", "done"]
    assert first["records"][0]["main_score"] > 0.9  # each query names its document
    code, again, _ = here(*asked)
    assert (code, again["texts_encoded"], again["uses"]) == (0, 0, [])
    assert [r["state"] for r in again["records"]] == ["cached", "cached"]
    assert [r["key"] for r in again["records"]] == [r["key"] for r in first["records"]]
    cached = [sys.executable, "-c", BLOCK, *map(str, asked)]
    subprocess.run(cached, check=True)  # without torch and mteb
    _, other, _ = here(*asked, "--prompt", "query=q: ")
    assert [r["state"] for r in other["records"]] == ["done", "cached"]  # pairs stand on no side
    for change in (["--pooling", "cls"], ["--max-length", "16"], ["--dtype", "bf16"]):
        _, other, _ = here(*asked, *change)
        assert other["texts_encoded"] > 0, change
        assert [r["state"] for r in other["records"]] == ["done", "done"], change
    corpus = own_data / "corpus.jsonl"
    corpus.write_text(corpus.read_text().replace("river", "brook"))
    _, changed, _ = here(*asked)
    assert [r["state"] for r in changed["records"]] == ["done", "cached"]
    files = list(results.rglob("*.examples.parquet"))
    assert files
    rows = pq.read_table(next(p for p in files if p.parent.name == "find")).to_pylist()
    assert {row["example_id"] for row in rows} == {f"q{i}" for i in range(len(WORDS))}


@pytest.mark.slow
def test_two_checkpoints_of_one_folder_name_are_two_models(own_data: Path, tmp_path: Path) -> None:
    """The second has its word embeddings shuffled; in both orders each scores as it does alone."""
    folders = [tmp_path / name / "model" for name in ("a", "b")]
    for folder in folders:
        shutil.copytree(published(), folder)
    weights = load_file(folders[1] / "model.safetensors")
    words = weights["embeddings.word_embeddings.weight"]
    weights["embeddings.word_embeddings.weight"] = np.ascontiguousarray(np.roll(words, 500, axis=0))
    save_file(weights, folders[1] / "model.safetensors", metadata={"format": "pt"})
    suite = ["--suite", f"local:{own_data}"]
    scores = []
    for number, order in enumerate((folders, folders[::-1], folders[:1], folders[1:])):
        models = [part for folder in order for part in ("--model", folder)]
        places = ["--results", tmp_path / f"r{number}", "--cache", tmp_path / f"c{number}"]
        code, found, _ = here("run", *models, *suite, *places)
        assert code == 0
        scores.append({(r["artifact"], r["task"]): r["main_score"] for r in found["records"]})
    assert scores[0] == pytest.approx(scores[1], abs=1e-6)
    assert scores[0] == pytest.approx(scores[2] | scores[3], abs=1e-6)
    assert len(scores[2] | scores[3]) == 4
    assert list(scores[2].values()) != list(scores[3].values())


def test_one_checkpoint_by_name_path_and_copy_is_one_artifact(own_data: Path, tmp_path: Path) -> None:
    copy = tmp_path / "elsewhere"
    shutil.copytree(published(), copy)
    models = ["--model", "minilm", "--model", published(), "--model", copy]
    what = ("run", *models, "--suite", f"local:{own_data}", "--results", tmp_path / "r")
    code, found, _ = here(*what)
    assert (code, len(found["records"]), len(found["suites"])) == (0, 2, 1)
    assert [one["asked"] for one in found["models"]] == ["minilm", published(), str(copy)]
    assert len({one["artifact"] for one in found["models"]}) == 1
    assert len(found["suites"][0]["columns"]) == 2
    code, again, _ = here("run", "--model", copy, *what[7:])
    assert (code, [r["state"] for r in again["records"]]) == (0, ["cached", "cached"])
    assert len(list((tmp_path / "r" / "records").iterdir())) == 1


@pytest.mark.slow
def test_killed_at_any_moment_it_ends_as_undisturbed(own_data: Path, tmp_path: Path) -> None:
    """Killed when the first vectors are there, and when the first record is (benchmarks/kill_commands.py)."""
    asked = ("run", "--model", "minilm", "--suite", f"local:{own_data}", "--results")
    _, whole, _ = here(*asked, tmp_path / "whole")
    truth = {r["key"]: r["main_score"] for r in whole["records"]}
    results, cache = tmp_path / "killed", tmp_path / "cache2"
    command = (*asked, results, "--cache", cache)
    for folder, files in ((cache, "vectors/**/*.safetensors"), (results, "records/*/*/*.json")):
        process = subprocess.Popen(
            [sys.executable, "-m", "harness", *map(str, command)], stderr=subprocess.DEVNULL
        )
        while not any(folder.glob(files)):
            assert process.poll() is None
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
        process.wait()
    code, after, _ = here(*command)
    assert code == 0
    assert {r["key"]: r["main_score"] for r in after["records"]} == pytest.approx(truth, abs=1e-6)
    assert not [p for p in results.rglob("*") if p.suffix in (".tmp", ".broken")]


@pytest.mark.slow
def test_two_processes_share_one_folder(own_data: Path, tmp_path: Path) -> None:
    results = tmp_path / "results"
    command = [
        sys.executable,
        "-m",
        "harness",
        "run",
        "--model",
        "minilm",
        "--suite",
        f"local:{own_data}",
        "--json",
    ]
    both = [
        subprocess.Popen([*command, "--results", str(results)], stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    told = [json.loads(process.communicate()[0]) for process in both]
    assert [process.returncode for process in both] == [0, 0]
    states = [[r["state"] for r in report["records"]] for report in told]
    for pair in zip(*states, strict=True):
        assert sorted(pair)[0] in ("done", "cached")
        assert sorted(pair).count("done") == 1
    assert len(list((results / "records").rglob("*.json"))) == 2


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--model", "minlm", "--suite", "stdlib"], "Did you mean minilm?"),
        (["--model", "./nowhere", "--suite", "mteb:STS12"], "There is no folder ./nowhere"),
        (["--model", "minilm", "--suite", "nanobier"], "Did you mean nanobeir?"),
        (["--model", "minilm", "--suite", "SciFact"], "Did you mean mteb:SciFact?"),
        (["--model", "minilm", "--suite", "mteb:SciFct"], "SciFact"),
        (["--model", "minilm", "--suite", "code"], "needs an argument"),
        (["--model", "minilm", "--suite", "nanobeir:x"], "takes no argument"),
        (["--model", "minilm", "--suite", "mteb:STS12", "--pooling", "maen"], "Did you mean mean"),
        (["--model", "minilm", "--suite", "mteb:STS12", "--max-length", "9999"], "512"),
        (["--model", "minilm", "--suite", "mteb:STS12", "--prompt", "query"], "has no '='"),
        (["--model", "minilm", "--suite", "mteb:STS12", "--data", "./nowhere"], "is not a folder"),
        (["--model", "org/name", "--suite", "mteb:STS12", "--offline"], "not in the local hub cache"),
        (["--model", "org/name", "--suite", "mteb:STS12", "--trust-remote-code"], "needs a pinned commit"),
        (["--model", "~nosuchuser/x", "--suite", "mteb:STS12"], "~nosuchuser/x"),
        (["--model", "runs/bert--final", "--suite", "mteb:STS12"], "no folder lies there"),
        (["--model", "x" * 300, "--suite", "mteb:STS12"], "cannot be read"),
        (["--model", "minilm", "--suite", "mteb:STS12", "--prompt", "qurey=a: "], "Did you mean query?"),
        (["--model", "minilm", "--suite", "mteb:STS12", "--prompt", "STS21=a: "], "STS22"),
        (["--model", "minilm", "--suite", "mteb:STS12", "--threads", "-3"], "from 1 to 1024"),
        (["--model", "minilm", "--suite", "mteb:STS12", "--threads", "1000"], "more than twice the"),
        (["--model", "minilm", "--suite", "mteb:STS12", "--seeds", "1001"], "from 1 to 1000"),
        (["--model", "minilm", "--suite", "mteb:STS12", "--seed", "-1"], "from 0 to 4294967295"),
        (
            [
                *("--model", "minilm", "--suite", "stdlib", "--recipe", "dpr", "--select", "mteb:SciFact"),
                *("--sweep", "epochs=1,2", "--sweep", "epochs=3,4"),
            ],
            "given twice",
        ),
        (["--model", "minilm", "--suite", "stdlib", "--sweep", "epochs=1,,2"], "has an empty value"),
        (["--model", "minilm", "--suite", "stdlib", "--devices", "cuda:99"], "There is: cpu"),
        (["--model", "minilm", "--suite", "stdlib", "--devices", "cpu,tpu"], "'tpu' is not a device"),
    ],
)
def test_misuse_is_one_message_and_exit_2(
    arguments: list[str],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert invoke(["run", *arguments]) == 2
    error = capfd.readouterr().err
    assert said in error
    assert "Traceback" not in error
    assert not (tmp_path / "results").exists()


def test_a_folder_without_data_that_is_known_is_an_error(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    for made, says in (
        ("", "holds no data set, and no data of your own"),
        ("org/name", "No task of a suite reads what lies in"),
        ("qrels", "it lacks corpus.jsonl, queries.jsonl, qrels/test.tsv"),
    ):
        (tmp_path / made).mkdir(parents=True, exist_ok=True)
        (tmp_path / made / "test.jsonl").touch()
        assert invoke(["data", "check", str(tmp_path)]) == 2
        assert says in capfd.readouterr().err


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda f: (f / "model.safetensors").unlink(), "weights"),
        (
            lambda f: (f / "model.safetensors").write_bytes((f / "model.safetensors").read_bytes()[:10_000]),
            "model.safetensors",
        ),
        (lambda f: (f / "config.json").write_text("{"), "config.json"),
        (lambda f: (f / "config.json").unlink(), "config.json"),
    ],
)
def test_a_spoilt_model_folder_is_one_message_and_exit_2(
    spoil: Any, said: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "spoilt"
    shutil.copytree(published(), folder)
    spoil(folder)
    assert invoke(["run", "--model", str(folder), "--suite", "stdlib", "--results", str(tmp_path / "r")]) == 2
    assert said in capfd.readouterr().err


def with_a_pickle(folder: Path, trace: Path) -> None:
    import torch

    (folder / "model.safetensors").unlink()
    torch.save({"weight": Evil(trace)}, folder / "pytorch_model.bin")


def without_a_layer(folder: Path, _: Path) -> None:
    file = folder / "model.safetensors"
    kept = {name: value for name, value in load_file(file).items() if "layer.3." not in name}
    save_file(kept, file, metadata={"format": "pt"})


@pytest.mark.parametrize(
    ("spoil", "said", "code"),
    [(with_a_pickle, "the pickle contains code", 2), (without_a_layer, "encoder.layer.3", 2)],
)
def test_a_model_that_does_not_load_as_it_should_has_no_record(
    spoil: Any, said: str, code: int, own_data: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "spoilt"
    shutil.copytree(published(), folder)
    spoil(folder, tmp_path / "trace")
    places = ["--results", str(tmp_path / "r"), "--cache", str(tmp_path / "c")]
    assert invoke(["run", "--model", str(folder), "--suite", f"local:{own_data}", *places]) == code
    captured = capfd.readouterr()
    assert said in captured.out + captured.err
    assert "Traceback" not in captured.out + captured.err
    assert not (tmp_path / "trace").exists()
    assert list((tmp_path / "r" / "records").rglob("*.json")) == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("rnu", "Did you mean run?"),
        ("evaluate", "Did you mean run?"),
        ("card", "Did you mean models card?"),
        ("run tiny --suite stdlib", "Did you mean --model tiny?"),
        ("check tiny", "Did you mean --candidate tiny?"),
    ],
)
def test_a_near_miss_of_a_command(words: str, said: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert invoke(words.split()) == 2
    assert said in capfd.readouterr().err


def test_tasks_without_data_are_named_at_once_and_the_rest_is_planned(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    arguments = [
        "--suite",
        "mteb:SciFact",
        "--suite",
        "stdlib",
        "--offline",
        "--results",
        str(tmp_path / "r"),
    ]
    assert invoke(["run", "--model", "minilm", *arguments, "--dry-run", "--json"]) == 1
    states = {line["task"]: line["state"] for line in json.loads(capfd.readouterr().out)["plan"]}
    assert states["SciFact"] == "cannot run"
    assert states["StdlibCodeSearch"] == "to do"


@pytest.mark.parametrize(
    ("file", "row", "said"),
    [
        ("corpus.jsonl", '{"_id": "d0", "te', "corpus.jsonl:1"),
        ("corpus.jsonl", "", "corpus.jsonl"),
        ("queries.jsonl", '{"_id": "q0"}', "queries.jsonl:1"),
    ],
)
def test_a_bad_row_fails_its_task_with_file_and_line(
    own_data: Path, tmp_path: Path, file: str, row: str, said: str
) -> None:
    (own_data / file).write_text(row)
    where = ("--results", tmp_path / "r", "--cache", tmp_path / "c")
    code, found, error = here("run", "--model", "minilm", "--suite", f"local:{own_data}", *where)
    assert code == (1 if row else 2)  # of a file with rows, the other task runs
    told = error + json.dumps(found)
    assert said in told


def test_a_record_of_a_newer_schema_is_refused(
    own_data: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    from harness.driver.evaluation import prepare
    from harness.plan.request import Request
    from harness.storage.store import Store

    request = Request(models=("minilm",), suites=(f"local:{own_data}",), results=tmp_path / "r")
    cell = prepare(request).plan.cells[0]
    path = Store(tmp_path / "r").locate_record(cell.subject.artifact.slug, cell.task.name, cell.key)
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({"schema": SCHEMA + 1}))
    assert (
        invoke(["run", "--model", "minilm", "--suite", f"local:{own_data}", "--results", str(tmp_path / "r")])
        == 2
    )
    assert "written by a newer version" in capfd.readouterr().err
    assert json.loads(path.read_text()) == {"schema": SCHEMA + 1}


@pytest.mark.slow
def test_a_full_disk_stops_the_run_with_nothing_lost(own_data: Path, tmp_path: Path) -> None:
    """No file may grow beyond 10 kB, and the vectors of ten texts take 15 kB."""

    def little_room() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))

    results, cache = tmp_path / "r", ["--cache", tmp_path / "c"]
    code, _, error = run(own_data, results, *cache, preexec_fn=little_room)
    assert code == 1
    assert "Cannot write" in error
    assert "run the same command again" in error
    left = [p for p in (tmp_path / "c").rglob("*") if p.suffix in (".tmp", ".safetensors")]
    assert left == []
    what = ("run", "--model", "minilm", "--suite", f"local:{own_data}", "--results", results)
    code, found, _ = here(*what, *cache)
    assert (code, [r["state"] for r in found["records"]]) == (0, ["done", "done"])


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become nobody")
def test_what_may_not_be_read_or_written_is_said(own_data: Path) -> None:
    """As user nobody: locked results, cache, model folder, weights, own data; each one message."""
    with tempfile.TemporaryDirectory() as made:
        place = Path(made)
        place.chmod(0o755)
        shutil.copytree(published(), place / "model")
        shutil.copytree(own_data, place / "own")
        (place / "open").mkdir(mode=0o777)
        (place / "open").chmod(0o777)
        for name in ("locked", "secret"):
            (place / name).mkdir()
        shutil.copytree(published(), place / "secret" / "model")
        shutil.copytree(own_data, place / "secret" / "own")
        (place / "secret").chmod(0o700)
        shutil.copytree(published(), place / "weightless")
        (place / "weightless" / "model.safetensors").chmod(0)

        def command(model: str, own: str, results: str, cache: str) -> list[str]:
            what = ["run", "--model", str(place / model), "--suite", f"local:{place / own}"]
            return [*what, "--results", str(place / results), "--cache", str(place / cache)]

        commands = [
            command("model", "own", "warm-r", "warm-c"),
            command("model", "own", "locked/r", "open/c"),
            command("model", "own", "open/r", "locked/c"),
            command("secret/model", "own", "open/r", "open/c"),
            command("weightless", "own", "open/r", "open/c"),
            command("model", "secret/own", "open/r", "open/c"),
            ["list", "records", "--results", str(place / "secret" / "r")],
            ["cache", "size", "--cache", str(place / "secret")],
            ["doctor", "--results", str(place / "secret" / "r"), "--cache", str(place / "open" / "c")],
            command("model", "own", "open/r", "open/c"),
        ]
        assert say(commands.pop(0))[0] == 0  # imports everything while it may be read
        with as_nobody():
            told = [say(words) for words in commands]
    expected = [
        (1, "locked/r"),
        (1, "locked/c"),
        (2, "secret/model"),
        (2, "model.safetensors"),
        (1, "secret/own"),
        (70, "secret/r"),
        (2, "secret"),
        (1, "results"),
        (0, "find"),
    ]
    for (code, *said), (wanted, name), asked in zip(told, expected, commands, strict=True):
        text = "".join(said)
        assert (code, name in text, "Traceback" in text) == (wanted, True, False), (asked, code, text)


def test_what_is_asked_for_twice_alike_is_told_apart_or_said(own_data: Path, tmp_path: Path) -> None:
    """Two names of one model, and two models of one name."""
    for name in ("a", "b"):
        shutil.copytree(published(), tmp_path / name / "model")
    config = tmp_path / "b" / "model" / "1_Pooling" / "config.json"
    text = config.read_text()
    for mode, on in (("mean_tokens", "false"), ("cls_token", "true")):
        text = re.sub(f'("pooling_mode_{mode}": )(true|false)', rf"\g<1>{on}", text)
    config.write_text(text)
    models = [
        "--model",
        "minilm",
        "--model",
        str(tmp_path / "a" / "model"),
        "--model",
        str(tmp_path / "b" / "model"),
    ]
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as err:
        assert invoke(["run", *models, "--suite", f"local:{own_data}", "--results", str(tmp_path / "r")]) == 0
    same = f"{tmp_path / 'a' / 'model'} is the same model as minilm"
    assert same in err.getvalue()
    with contextlib.redirect_stdout(io.StringIO()) as out:
        assert invoke(["run", *models, "--suite", f"local:{own_data}", "--dry-run"]) == 0
    assert same in out.getvalue()
    both = models[2:]
    with contextlib.redirect_stdout(io.StringIO()) as out:
        assert invoke(["run", *both, "--suite", f"local:{own_data}", "--results", str(tmp_path / "r")]) == 0
    assert "a/model" in out.getvalue()
    assert "b/model" in out.getvalue()


def test_tasks_without_data_are_one_message(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    places = ["--results", str(tmp_path / "r"), "--cache", str(tmp_path / "c")]
    assert invoke(["run", "--model", "minilm", "--suite", "beir", "--offline", *places]) == 1
    captured = capfd.readouterr()
    for text in (captured.out, captured.err):
        assert text.count("harness data pull --suite 'beir' --data DIR") == 1
        assert "The same holds for" in text


def test_what_was_left_out_of_the_data_is_said_each_time(own_data: Path, tmp_path: Path) -> None:
    with (own_data / "queries.jsonl").open("a") as file:
        file.write("\n" + json.dumps({"_id": "q99", "text": "never judged"}))
    for _ in range(2):
        _, found, _ = here("run", "--model", "minilm", "--suite", f"local:{own_data}", "--results", tmp_path)
        assert found["records"][0]["notes"] == ["1 of 11 queries have no judgement: left out."]


def test_the_same_from_python(own_data: Path, tmp_path: Path) -> None:
    import harness as package

    places = {"results": tmp_path / "r", "cache": tmp_path / "c"}
    report = package.run("minilm", f"local:{own_data}", pooling="cls", **places)
    assert repr(report) == f"<Report: minilm on local:{own_data}, 2 of 2 scores>"
    assert report.records[0].identity["encoding"]["pooling"] == "cls"
    with pytest.raises(UsageError, match="Did you mean pooling"):
        package.run("minilm", f"local:{own_data}", poling="cls", **places)


def test_a_dry_run_names_every_task_and_what_it_takes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    places = ("--results", str(tmp_path / "r"), "--cache", str(tmp_path / "c"))
    assert invoke(["run", "--model", "minilm", "--suite", "stdlib", "--dry-run", *places]) == 0
    out = capsys.readouterr().out
    for name in ("StdlibCodeSearch", "StdlibCodeSearch.named", "StdlibDocstringClassification"):
        assert f"{name} " in out
    assert "Python: code search has 3,000 functions" in out
    assert "4 to do, 0 done, 0 cannot run" in out
    assert not (tmp_path / "r").exists()


def test_an_interrupt_in_a_query_of_the_database_ends_without_a_traceback(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def ask(*_: object) -> int:
        # What DuckDB makes of a signal that comes while it answers.
        raise RuntimeError("Query interrupted")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("leaderboard.web.site.write_site", ask)
    assert invoke(["serve", "--static", "site"]) == 130
    assert "Interrupted." in capsys.readouterr().err


def test_an_error_that_nobody_foresaw_ends_with_70_and_not_as_a_regression(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    for error, said in (
        (KeyError("lost"), "KeyError: 'lost'"),
        (FileNotFoundError(2, "gone", "x"), "x: gone"),
    ):
        monkeypatch.setattr(cli.program, "main", lambda error=error, **_: _raise(error))
        with pytest.raises(SystemExit) as ended:
            cli.main(["check"])
        assert (ended.value.code, said in capfd.readouterr().err) == (70, True)


def _raise(error: Exception) -> None:
    raise error


def test_an_option_and_its_value_in_one_argument_are_told_apart(capfd: pytest.CaptureFixture[str]) -> None:
    assert invoke(["check", "--data /my/data"]) == 2
    error = capfd.readouterr().err
    assert error.startswith("Error: '--data /my/data' is one argument. An option and its value are two")


@pytest.mark.parametrize(("word", "code"), [("--version", 0), ("--nonsense", 2)])
def test_it_ends_with_its_code_after_what_is_registered_and_before_objects_are_taken_apart(
    tmp_path: Path, word: str, code: int
) -> None:
    (tmp_path / "harness").write_text(
        "import atexit, threading, time\n"
        "from harness.cli import main\n"
        "class Loud:\n"
        "    def __del__(self): print('taken apart')\n"
        "loud = Loud()\n"
        "def work():\n"
        "    time.sleep(0.3)\n"
        "    atexit.register(print, 'registered')\n"
        "    print('a thread')\n"
        "threading.Thread(target=work).start()\n"
        "main()\n"
    )
    done = subprocess.run([sys.executable, "harness", word], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == code
    assert done.stdout.splitlines()[-2:] == ["a thread", "registered"]


def test_a_program_that_calls_it_ends_in_its_own_way(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(
        "import atexit, sys\n"
        "atexit.register(print, 'saved')\n"
        "from harness.cli import main\n"
        "try: main()\n"
        "except SystemExit: sys.exit(5)\n"
    )
    done = subprocess.run(
        [sys.executable, "own.py", "--version"], capture_output=True, text=True, cwd=tmp_path
    )
    assert (done.returncode, done.stdout.splitlines()[-1]) == (5, "saved")


@pytest.mark.parametrize("words", [("audit",), ("list", "records"), ("baseline", "show", "b")])
def test_a_name_that_no_file_can_have_is_misuse(
    words: tuple[str, ...], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    long = tmp_path / ("x" * 300)
    assert invoke([*words, "--results", str(long)]) == 2
    assert capfd.readouterr().err.startswith(f"Error: {long}")
