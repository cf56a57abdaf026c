"""`harness models`: what lies there in words, and a model that goes only when it is meant."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

import fakes
from harness.cli import invoke
from harness.core.lineage import Lineage
from harness.encoder.folder.content import compute_content_key
from harness.training.model_store import ModelStore

Say = Callable[..., tuple[int, str, str]]

MEAN = "sentence_transformers.models.Pooling"
TRAINED = {
    "device": {"name": "a CPU"},
    "devices": ["cpu"],
    "steps": 3,
    "seconds": 192.0,
    "tokens": 1200,
    "micro_batch": 2,
    "notes": ["trained in float32"],
}
ATTENTIVE = "harness.encoder.attentive_pooling.AttentivePooling"


@pytest.fixture
def say(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Say:
    """The exit code and the output of `harness models ...`."""
    monkeypatch.setenv("HARNESS_RESULTS", str(tmp_path / "results"))
    monkeypatch.setenv("HARNESS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", "200")

    def say(*arguments: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = invoke(["models", *arguments])
        return (code, *capsys.readouterr())

    return say


def begin(store: ModelStore, name: str, made: Lineage) -> Path:
    """The folder of a training that is at its third of four steps."""
    work = store.start_training(made.key, name=name, lineage=made, steps=4)
    every = {"rate": 5e-5, "memory": 1_592_733_696}
    lines = [json.dumps({"step": n, "loss": 1 / n, **every}) + "\n" for n in (1, 2, 3)]
    (work / "log.jsonl").write_text("".join(lines))
    return work


def put(store: ModelStore, name: str = "tiny-contrast", *, pooling: str = MEAN, **fields: Any) -> Path:
    made = fakes.lineage(**fields)
    model = begin(store, name, made) / "model"
    (model / "1_Pooling").mkdir(parents=True)
    (model / "config.json").write_text('{"model_type": "bert"}')
    (model / "1_Pooling" / "config.json").write_text("{}")
    kinds = (("sentence_transformers.models.Transformer", ""), (pooling, "1_Pooling"))
    (model / "modules.json").write_text(json.dumps([{"type": kind, "path": path} for kind, path in kinds]))
    for folder in (model, model / "1_Pooling"):
        save_file({"w": np.full((2, 2), made.seed, np.float32)}, folder / "model.safetensors")
    document = fakes.document(model, made, name=name, training=TRAINED)
    return store.put(model, document, f"{name}-{made.key[:12]}")


@pytest.fixture
def store(tmp_path: Path) -> ModelStore:
    return ModelStore(tmp_path / "results")


def test_a_list_has_every_model_and_its_state(say: Say, store: ModelStore) -> None:
    assert say("list")[1].startswith("No trained models yet.")
    assert json.loads(say("list", "--json")[1]) == {"schema": 1, "models": []}
    whole = put(store)
    damaged = put(store, seed=43, variant="mean", changed={"batch": 8})
    (damaged / "config.json").write_text("{}")
    begin(store, "small", fakes.lineage(seed=44))
    text = say("list")[1]
    for expected in (
        f"tiny-contrast │ contrast │ 42 │ {fakes.lineage().key[:12]}",
        "contrast:mean, batch=8 │ 43",
        "│ damaged",
        "│ unfinished, step 3 of 4",
    ):
        assert expected in " ".join(text.split())
    rows = {row["seed"]: row for row in json.loads(say("list", "--json")[1])["models"]}
    assert [rows[seed]["state"] for seed in (42, 43, 44)] == ["whole", "damaged", "unfinished"]
    assert [rows[seed]["problem"] == "" for seed in (42, 43, 44)] == [True, False, True]
    assert (rows[42]["folder"], rows[42]["step"], rows[44]["step"]) == (str(whole), None, 3)
    assert rows[42]["bytes"] == sum(p.stat().st_size for p in whole.rglob("*") if p.is_file())


def test_show_has_the_lineage_the_loss_and_the_next_command(say: Say, store: ModelStore) -> None:
    folder = put(store, assumed=("one query a head",), own_data="my-pairs", selected_on=("STSBenchmark",))
    for name in ("tiny-contrast", fakes.lineage().key[:6], folder.name):
        code, out, _ = say("show", name)
        assert code == 0
        for expected in (
            *("tiny (aaaaaaaaaaaa)", "rate 5e-05, batch 4", "path org/pairs", "one query a head"),
            *("trained on my-pairs, seed 42", "STSBenchmark"),
            "training: 3 steps in 3 min 12 s, 1,200 tokens, on cpu (a CPU), 2 rows in a pass, trained in f",
            *("Loss: 1.0000 at step 1, 0.3333 at step 3", "step 3, loss 0.3333, rate 5e-05, memory 1.6 GB"),
            f"harness run --model {folder} --suite SUITE",
        ):
            assert expected in out
    content = json.loads(say("show", "tiny-contrast", "--json")[1])
    assert content["document"]["lineage"]["own_data"] == "my-pairs"
    assert [line["step"] for line in content["log"]] == [1, 2, 3]
    begin(store, "small", fakes.lineage(seed=44))
    out = say("show", "small")[1]
    assert "unfinished, step 3 of 4" in out
    assert "Loss: 1.0000" in out
    assert "harness run" not in out
    (folder / "config.json").write_text("{}")
    out = say("show", "tiny-contrast")[1]
    assert "damaged: its content is not that in its model.json" in out
    assert "harness run" not in out


def test_scores_of_a_model_that_is_only_trained_are_not_there_yet(
    say: Say, store: ModelStore, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = put(store)
    for name in ("tiny-contrast", fakes.lineage().key[:6]):
        assert invoke(["show", name]) == 2
        assert f"Type: harness run --model {folder} --suite SUITE" in capsys.readouterr().err


def test_a_name_that_is_none_or_several_is_refused(say: Say, store: ModelStore) -> None:
    for seed in (42, 43):
        put(store, seed=seed)
    for command in (("show",), ("remove", "--yes")):
        code, _, error = say(*command, "tiny-contrast")
        assert code == 2
        assert "2 trained models are called tiny-contrast." in error
        assert f"{fakes.lineage(seed=43).key[:12]} (contrast, seed 43)" in error
        code, _, error = say(*command, "tiny-contrats")
        assert code == 2
        assert "Did you mean tiny-contrast?" in error
        assert say(*command, fakes.lineage().key[:5])[0] == 2
    assert len(store.list_stored_models()) == 2


def test_a_model_is_removed_when_it_is_meant(
    say: Say, store: ModelStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = [fakes.lineage(seed=seed).key for seed in (42, 43)]
    folders = [put(store, seed=seed) for seed in (42, 43)]
    for answer, code in ((keys[1], 1), ("", 2)):
        monkeypatch.setattr("sys.stdin", io.StringIO(f"{answer}\n" if answer else ""))
        assert say("remove", keys[0])[0] == code
        assert folders[0].is_dir()
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{keys[0][:8]}\n"))
    code, out, _ = say("remove", keys[0][:12])
    assert (code, "Removed tiny-contrast" in out) == (0, True)
    begin(store, "small", fakes.lineage(seed=44))
    assert say("remove", "small", "--yes")[0] == 0
    assert [*store.root.iterdir()] == [folders[1]]


@pytest.mark.parametrize(
    ("pooling", "needed"), [(MEAN, "loads it."), (ATTENTIVE, "loads it where encoder-harness is installed.")]
)
def test_an_export_is_the_model_without_its_log(
    say: Say, store: ModelStore, tmp_path: Path, pooling: str, needed: str
) -> None:
    folder = put(store, pooling=pooling)
    to = tmp_path / "to" / "publish"
    code, out, _ = say("export", "tiny-contrast", str(to))
    assert code == 0
    assert f"sentence-transformers {needed}" in out
    wanted = {p.relative_to(folder) for p in folder.rglob("*") if p.is_file()}
    assert {p.relative_to(to) for p in to.rglob("*") if p.is_file()} == {
        path for path in wanted if path.parts[0] != "training"
    }
    assert compute_content_key(to) == compute_content_key(folder)
    assert [path.name for path in to.parent.iterdir()] == ["publish"]
    code, _, error = say("export", "tiny-contrast", str(to))
    assert (code, "exists already" in error) == (2, True)
    (tmp_path / "empty").mkdir()
    assert say("export", "tiny-contrast", str(tmp_path / "empty"))[0] == 0
    begin(store, "small", fakes.lineage(seed=44))
    assert "has not finished" in say("export", "small", str(tmp_path / "small"))[2]
    (folder / "config.json").write_text("{}")
    assert "is damaged" in say("export", "tiny-contrast", str(tmp_path / "damaged"))[2]
