"""Where checkpoints come from: which there are, their steps, and whether they are whole."""

from __future__ import annotations

import json
import pickle
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import huggingface_hub
import pytest
from safetensors.numpy import load_file, save_file

from blocked import BLOCKER
from harness.core.errors import ModelError, UsageError
from harness.watch.source import Checkpoint, open_source
from harness.watch.watch import scan_source

# Folders and refs


Write = Callable[..., Path]
Refs = Callable[..., None]


def ref(name: str, commit: str) -> SimpleNamespace:
    return SimpleNamespace(name=name, target_commit=commit * 40)


@pytest.fixture
def refs(monkeypatch: pytest.MonkeyPatch) -> Refs:
    """Lets the hub answer with branches and tags, or with an error."""

    def answer(*branches: Any, tags: Any = (), error: Exception | None = None) -> None:
        def listed(_api: object, repository: str) -> SimpleNamespace:
            assert repository == "org/name"
            if error is not None:
                raise error
            return SimpleNamespace(branches=list(branches), tags=list(tags))

        monkeypatch.setattr(huggingface_hub.HfApi, "list_repo_refs", listed)

    return answer


def test_a_folders_checkpoints_come_by_step_and_the_rest_is_named(write: Write, tmp_path: Path) -> None:
    for name in (
        "checkpoint-900",
        "checkpoint-1000",
        "final",
        "tmp-checkpoint-2000",
        "step_1000",
        "run-20261129121636123456",
    ):
        write(name, weights=1)
    (tmp_path / "run" / "log.txt").write_text("")
    (tmp_path / "run" / ".cache").mkdir()
    found = scan_source(str(tmp_path / "run"), settle=0)
    assert [one.checkpoint.step for one in found.new] == [900, 1000]
    assert {one.name: one.reason for one in found.skipped} == {
        "final": "no step in its name",
        "tmp-checkpoint-2000": "a name for what is being written",
        "run-20261129121636123456": "the number in its name is too large for a step",
        "step_1000": "step 1000, as checkpoint-1000",
    }


@pytest.mark.parametrize("under", ["hf", "anything"])
def test_a_model_one_level_down_is_found(write: Write, tmp_path: Path, under: str) -> None:
    folder = write("step5", under=under)
    (tmp_path / "run" / "step5" / "optimizer").mkdir()
    (one,) = scan_source(str(tmp_path / "run"), settle=0).new
    assert one.checkpoint.folder == folder
    assert one.checkpoint.name == "step5"


def test_of_two_models_one_level_down_hf_is_meant(write: Write, tmp_path: Path) -> None:
    write("step5", under="other")
    write("step5", under="hf")
    (one,) = scan_source(str(tmp_path / "run"), settle=0).new
    assert one.checkpoint.folder == tmp_path / "run" / "step5" / "hf"


@pytest.mark.parametrize(
    ("text", "said"),
    [("no-such", "No folder is at"), ("./org/name", "No folder is at"), ("org/name@step5", "one revision")],
)
def test_what_is_no_source_is_refused(text: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        open_source(text)


def test_one_model_and_a_file_are_no_source(write: Write, tmp_path: Path) -> None:
    folder = write("checkpoint-1")
    with pytest.raises(UsageError, match="is one model"):
        scan_source(str(folder))
    with pytest.raises(UsageError, match="is a file"):
        scan_source(str(folder / "config.json"))


def test_a_repositorys_revisions_are_pinned_to_their_commits(refs: Refs) -> None:
    refs(ref("main", "0"), ref("step1000", "a"), ref("step0", "b"), tags=[ref("step2000", "c")])
    found = scan_source("org/name")
    assert [(one.checkpoint.step, one.checkpoint.model, one.stamp) for one in found.new] == [
        (0, f"org/name@{'b' * 40}", "b" * 40),
        (1000, f"org/name@{'a' * 40}", "a" * 40),
        (2000, f"org/name@{'c' * 40}", "c" * 40),
    ]
    assert [one.name for one in found.skipped] == ["main"]


def test_a_branch_goes_before_a_tag_of_its_name(refs: Refs) -> None:
    refs(ref("step1", "a"), tags=[ref("step1", "b")])
    assert [one.stamp for one in scan_source("org/name").new] == ["a" * 40]


def test_without_a_network_a_repository_is_refused(refs: Refs) -> None:
    from huggingface_hub.errors import OfflineModeIsEnabled

    with pytest.raises(UsageError, match="--offline cannot see its revisions"):
        scan_source("org/name", offline=True)
    refs(error=OfflineModeIsEnabled("offline"))
    with pytest.raises(UsageError, match="HF_HUB_OFFLINE is set"):
        scan_source("org/name")


def test_a_name_that_no_hub_repository_can_have_is_refused() -> None:
    with pytest.raises(UsageError, match="not the name of a hub repository"):
        scan_source("a--b/c")


def test_what_the_hub_does_not_have_and_a_silent_hub_are_two_things(refs: Refs) -> None:
    import httpx
    from huggingface_hub.errors import RepositoryNotFoundError

    response = httpx.Response(404, request=httpx.Request("GET", "https://hub"))
    refs(error=RepositoryNotFoundError("no", response=response))
    with pytest.raises(ModelError, match="no model org/name") as missing:
        scan_source("org/name")
    refs(error=httpx.ConnectError("refused"))
    with pytest.raises(ModelError, match="refused") as silent:
        scan_source("org/name")
    assert type(silent.value) is not type(missing.value), "a watch asks again where the hub is silent"


# Steps


STEPS = {
    "checkpoint-1000": 1000,  # transformers' Trainer
    "step_1000": 1000,
    "step1000": 1000,  # Pythia
    "step1000-tokens4B": 1000,  # OLMo
    "stage1-step1000-tokens4B": 1000,  # OLMo 2
    "step0": 0,
    "global_step500": 500,  # DeepSpeed
    "iter_0001000": 1000,  # Megatron
    "ep0-ba1000-rank0": 1000,  # Composer
    "ckpt-1000": 1000,
    "checkpoint_epoch3_step200": 200,
    "checkpoint-1000-merged": 1000,
    "step=100-loss=2.31": 100,  # Lightning
    "step-1.5k": 1500,
    "step143k": 143_000,
    "ckpt1M": 1_000_000,
    "0001000": 1000,
    "1000-hf": 1000,
    "1000steps": 1000,
    "model_1000": 1000,
    "epoch3": 3,
    "step1000_step2000": 2000,
    "final": None,
    "latest": None,
    "main": None,
    "checkpoint-best": None,
    "e5-base-v2": None,
    "tokens4B": None,
    "1.5": None,
    "bert-2024-run": None,
    "footstep": None,
    "": None,
}


@pytest.mark.parametrize(("name", "step"), STEPS.items())
def test_the_step_of_a_name(refs: Refs, name: str, step: int | None) -> None:
    refs(ref(name, "a"))
    found = scan_source("org/name")
    assert [one.checkpoint.step for one in found.new] == ([] if step is None else [step])
    assert [one.reason for one in found.skipped] == (["no step in its name"] if step is None else [])


@pytest.mark.parametrize("name", ["tmp-checkpoint-1000", ".step5", "step5.tmp", "_step5", "step5.incomplete"])
def test_names_of_what_is_being_written(refs: Refs, name: str) -> None:
    refs(ref(name, "a"))
    found = scan_source("org/name")
    assert [one.reason for one in found.skipped] == ["a name for what is being written"]
    assert found.new == ()


# Whole or not yet


def condition(folder: Path, *, settle: float) -> Any:
    one = Checkpoint(step=1, name=folder.name, model=str(folder), folder=folder)
    return open_source(str(folder.parent)).check_condition(one, settle=settle, own_code=False)


def problem(folder: Path) -> str:
    return str(condition(folder, settle=0).problem)


def test_a_checkpoint_may_be_an_adapter(write: Write, tmp_path: Path) -> None:
    import peft
    from transformers import AutoModel

    base, folder = write("base"), tmp_path / "adapters" / "checkpoint-1"
    peft.get_peft_model(AutoModel.from_pretrained(base), peft.LoraConfig()).save_pretrained(str(folder))
    source = open_source(str(folder.parent), offline=True, cache=tmp_path / "cache")
    (one,), _ = source.list_checkpoints()
    whole = source.check_condition(one, settle=0, own_code=False)
    assert (whole.problem, whole.stamp) == ("", source.compute_stamp(one))
    shutil.rmtree(tmp_path / "cache")  # what is laid out again is the same checkpoint
    assert source.compute_stamp(one) == whole.stamp
    config = folder / "adapter_config.json"
    text = config.read_text()
    config.write_text(text.replace('"lora_alpha": 8', '"lora_alpha": 9'))
    assert source.compute_stamp(one) not in ("", whole.stamp)
    config.write_text(text)
    weights = folder / "adapter_model.safetensors"
    content = weights.read_bytes()
    weights.write_bytes(content[:-9])
    damaged = source.check_condition(one, settle=0, own_code=False)
    assert damaged.problem.startswith("adapter_model.safetensors is not a whole safetensors file")
    assert source.compute_stamp(one) == damaged.stamp == ""
    weights.write_bytes(content)
    assert source.check_condition(one, settle=0, own_code=False).stamp not in ("", whole.stamp)


def test_the_stamp_of_an_adapter_asks_no_hub(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every look at a watch's folder asks for the stamp of every checkpoint."""
    import peft
    from transformers import AutoModel

    base, folder = write("base"), tmp_path / "adapters" / "checkpoint-1"
    peft.get_peft_model(AutoModel.from_pretrained(base), peft.LoraConfig()).save_pretrained(str(folder))
    config = folder / "adapter_config.json"
    named = {**json.loads(config.read_text()), "base_model_name_or_path": "org/base"}
    config.write_text(json.dumps(named))
    asked: list[str] = []

    def tell(_api: object, name: str, **_options: object) -> SimpleNamespace:
        asked.append(name)
        return SimpleNamespace(siblings=(), sha="0" * 40)

    monkeypatch.setattr(huggingface_hub.HfApi, "model_info", tell)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", lambda *_names, **_options: str(base))
    source = open_source(str(folder.parent), cache=tmp_path / "cache")
    (one,), _ = source.list_checkpoints()
    whole = source.check_condition(one, settle=0, own_code=False)
    assert (whole.problem, asked) == ("", ["org/base"])
    assert (source.compute_stamp(one), asked) == (whole.stamp, ["org/base"])


def test_a_whole_checkpoint_has_a_stamp_that_its_weights_change(write: Write) -> None:
    folder = write("checkpoint-1")
    first = condition(folder, settle=0)
    assert (first.problem, bool(first.stamp)) == ("", True)
    (folder / "trainer_state.json").write_text("{}")
    assert condition(folder, settle=0).stamp == first.stamp
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes())
    assert condition(folder, settle=0).stamp != first.stamp


@pytest.mark.parametrize("left", [0, 4, 100, -1])
def test_truncated_weights_are_told(write: Write, left: int) -> None:
    weights = write("checkpoint-1") / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:left])
    told = "model.safetensors is not a whole safetensors file" if left else "model.safetensors is empty"
    assert told in problem(weights.parent)
    assert str(weights.parent) not in problem(weights.parent)


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("config.json", None, "it has no config.json"),
        ("config.json", '{"model_type": "be', "config.json cannot be read as JSON"),
        ("tokenizer.json", '{"version": ', "tokenizer.json cannot be read as JSON"),
        ("tokenizer_config.json", "", "tokenizer_config.json cannot be read as JSON"),
        ("model.safetensors", None, "it has no weights"),
    ],
)
def test_a_file_that_lacks_or_is_half_written_is_told(
    write: Write, name: str, content: str | None, told: str
) -> None:
    path = write("checkpoint-1") / name
    path.unlink() if content is None else path.write_text(content)
    assert told in problem(path.parent)


def test_a_checkpoint_without_tokenizer_is_told_how_to_get_one(write: Write) -> None:
    folder = write("checkpoint-1")
    for path in [*folder.glob("tokenizer*"), *folder.glob("vocab*")]:
        path.unlink()
    assert "brings no tokenizer" in problem(folder)


def test_every_part_of_an_index_must_be_there_and_whole(write: Write) -> None:
    folder = write("checkpoint-1")
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    names = sorted(tensors)
    parts = {f"model-0000{i}-of-00002.safetensors": names[i - 1 :: 2] for i in (1, 2)}
    for part, held in parts.items():
        save_file({name: tensors[name] for name in held}, folder / part, metadata={"format": "pt"})
    index = {"weight_map": {name: part for part, held in parts.items() for name in held}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    assert problem(folder) == ""
    second = folder / "model-00002-of-00002.safetensors"
    content = second.read_bytes()
    second.write_bytes(content[:-1])
    assert "not a whole safetensors file" in problem(folder)
    second.unlink()
    assert "lacks 1 of its 2 weight files" in problem(folder)
    (folder / "model.safetensors.index.json").write_text('{"weight_map"')
    assert "cannot be read as JSON" in problem(folder)


def test_a_zip_of_torchs_is_read_to_its_directory(write: Write) -> None:
    import torch

    folder = write("checkpoint-1")
    (folder / "model.safetensors").unlink()
    weights = folder / "pytorch_model.bin"
    torch.save({"w": torch.zeros(1000)}, weights)
    assert problem(folder) == ""
    content = weights.read_bytes()
    for left in (2, 100, len(content) - 30):
        weights.write_bytes(content[:left])
        assert "pytorch_model.bin is not a whole file of torch's" in problem(folder)
    torch.save({"w": torch.zeros(1000)}, weights, _use_new_zipfile_serialization=False)
    assert weights.read_bytes()[:2] == pickle.dumps(0, protocol=2)[:2]
    assert problem(folder) == ""


def test_a_checkpoint_must_lie_still(write: Write) -> None:
    folder = write("checkpoint-1")
    (folder / "optimizer.pt").write_bytes(b"x")
    found = condition(folder, settle=30)
    assert found.problem == "it changed 0 s ago"
    assert 25 < found.settles <= 30
    assert found.stamp == ""


def test_a_checkpoint_that_is_removed_meanwhile_is_no_crash(write: Write) -> None:
    folder = write("checkpoint-1")
    shutil.rmtree(folder)
    assert problem(folder)


def test_looking_needs_no_torch(write: Write) -> None:
    write("checkpoint-1")
    folder = write("checkpoint-2").parent
    asked = (
        f"from harness.watch.watch import scan_source; print(len(scan_source({str(folder)!r}, settle=0).new))"
    )
    done = subprocess.run(
        [sys.executable, "-c", f"{BLOCKER}\n{asked}"], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "2"
