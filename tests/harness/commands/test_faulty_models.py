"""Faulty models and arguments, one fault each: one error before anything runs, however they are given."""

from __future__ import annotations

import json
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import faulty
import harness
import tiny
from blocked import invoke_blocked
from harness.core.documents import append_digest, verify_digest
from harness.core.encoding import Settings
from harness.core.errors import UsageError
from harness.plan.plan import Plan
from harness.plan.request import Request
from harness.plan.resolved_request import ResolvedRequest, check_request

Measured = Any
Asked = Callable[..., tuple[int, str, str]]


@pytest.fixture
def unplanned(monkeypatch: pytest.MonkeyPatch) -> None:
    """No plan is made, so no worker can start."""

    def fail(*_: object, **__: object) -> None:
        raise AssertionError("a plan was made")

    monkeypatch.setattr(Plan, "make", fail)


@pytest.mark.parametrize("fault", faulty.FAULTS)
def test_a_faulty_model_is_one_error(
    fault: str, measured: Measured, asked: Asked, tmp_path: Path, unplanned: None
) -> None:
    folder = faulty.spoiled(measured.model("good"), tmp_path / "spoiled", fault)
    code, out, err = asked("run", "--model", folder, "--suite", measured.local, "--offline")
    assert (code, out) == (2, "")
    assert faulty.FAULTS[fault][1] in err
    message, _hint = err.splitlines()
    with pytest.raises(UsageError) as caught:
        harness.run(str(folder), measured.local, results=measured.results, offline=True)
    assert f"Error: {caught.value.message}" == message
    assert str(caught.value) == err.removeprefix("Error: ").rstrip("\n")


def test_faults_are_found_without_torch_and_without_transformers(measured: Measured, tmp_path: Path) -> None:
    """But for a type that transformers may know, and those that a trial load finds in another process."""
    names = faulty.FAULTS.keys() - faulty.TRIED - {"unknown type"}
    folders = {name: tmp_path / name.replace(" ", "-") for name in names}
    for name, folder in folders.items():
        faulty.spoiled(measured.model("good"), folder, name)
    places = ("--suite", measured.local, "--dry-run", "--offline", "--results", measured.results)
    told = invoke_blocked(("run", "--model", folder, *places) for folder in folders.values())
    for name, (code, out, err) in zip(folders, told, strict=True):
        assert (code, out, len(err.splitlines())) == (2, "", 2), (name, err)
        assert faulty.FAULTS[name][1] in err, (name, err)


@pytest.mark.parametrize(
    "command",
    [
        ("check", "--baseline", "last", "--candidate"),
        ("check", "--candidate", "minilm", "--suite", "stdlib", "--baseline"),
        ("baseline", "set", "next", "--suite", "stdlib", "--model"),
    ],
)
def test_every_command_finds_them(
    command: tuple[str, ...], measured: Measured, asked: Asked, tmp_path: Path
) -> None:
    folder = faulty.spoiled(measured.model("good"), tmp_path / "spoiled", "wrapped by a data-parallel run")
    code, out, err = asked(*command, folder, "--offline")
    assert (code, out, len(err.splitlines())) == (2, "", 2)
    assert 'with "module."' in err


ARGUMENTS: dict[str, tuple[dict[str, Any], list[str], str]] = {
    "similarity": (
        {"similarity": "cosin"},
        ["--similarity", "cosin"],
        "No similarity is called 'cosin'.\nDid you mean cosine? There is: cosine, dot, euclidean, "
        "manhattan, maxsim, maxsim-pylate.",
    ),
    "dtype": (
        {"dtype": "fp8"},
        ["--dtype", "fp8"],
        "No dtype is called 'fp8'.\nThere is: float32, fp32, bfloat16, bf16, float16, fp16.",
    ),
    "normalize": ({"normalize": "no"}, [], "normalize is 'no', and must be True or False, or left out."),
    "workers": (
        {"workers": -1},
        ["--workers", "-1"],
        "workers is -1, and must be a whole number from 1 to 1024, or left out.",
    ),
    "batch_tokens": (
        {"batch_tokens": 0},
        ["--batch-tokens", "0"],
        "batch_tokens is 0, and must be a whole number of tokens from 1 to 2 billion, or left out.",
    ),
    "threads": (
        {"threads": 0},
        ["--threads", "0"],
        "threads is 0, and must be a whole number from 1 to 1024, or left out.",
    ),
    "max_length": (
        {"max_length": 2.5},
        ["--max-length", "2.5"],
        "max_length is 2.5, and must be a whole number of tokens from 1 to 2 billion, or left out.",
    ),
    "seed": (
        {"seed": -1},
        ["--seed", "-1"],
        "seed is -1, and must be a whole number from 0 to 4294967295.",
    ),
    "seeds": ({"seeds": 0}, ["--seeds", "0"], "seeds is 0, and must be a whole number from 1 to 1000."),
    "a setting without a recipe": (
        {"recipe_settings": {"epochs": 3}},
        ["--set", "epochs=3"],
        "--set and --budget change settings of a recipe.",
    ),
    "budget": (
        {"budget": -1},
        [],
        "budget is -1, and must be a number of seconds from 0 to a billion, or left out.",
    ),
    "prompts": ({"prompts": {"query": 3}}, [], "prompts['query'] is 3, and must be a text."),
    "prompts, a text": (
        {"prompts": "q: "},
        [],
        "prompts is 'q: ', and must be a mapping of names to texts, or left out.",
    ),
    "devices": (
        {"devices": "cud"},
        ["--devices", "cud"],
        "'cud' is not a device.\nType cpu, cuda, cuda:0, mps, or several with commas.",
    ),
    "tasks": (
        {"tasks": ","},
        ["--tasks", ","],
        "tasks is empty.\nName tasks, e.g. RTE,MRPC, or leave it out.",
    ),
    "a task": ({"tasks": "fnd"}, ["--tasks", "fnd"], "fnd"),
    "pooling": (
        {"pooling": "meen"},
        ["--pooling", "meen"],
        "No pooling is called 'meen'.\nDid you mean mean?",
    ),
    "options": ({"options": {"tasks": "find"}}, [], "and must be a harness.SuiteOptions."),
    "settings": ({"settings": {"dtype": "fp16"}}, [], "and must be a harness.Settings."),
    "purpose": ({"purpose": "trail"}, [], "Did you mean trial? There is: final, trial."),
    "a name": ({"workrs": 3}, [], "Did you mean workers?"),
}
"""By argument: for Python, for the command if it can be typed, and the message."""


@pytest.mark.parametrize("name", ARGUMENTS)
def test_a_faulty_argument_has_one_message(
    name: str, measured: Measured, asked: Asked, unplanned: None
) -> None:
    given, typed, told = ARGUMENTS[name]
    good = str(measured.model("good"))
    with pytest.raises(UsageError) as caught:
        harness.run(good, measured.local, results=measured.results, **given)
    assert told in str(caught.value)
    with pytest.raises(UsageError) as checked:
        harness.check(good, "last", results=measured.results, **given)
    assert "settings" in given or told in str(checked.value).replace("harness.check", "harness.run")
    if typed:
        code, out, err = asked("run", "--model", good, "--suite", measured.local, *typed)
        assert (code, out) == (2, "")
        assert err == f"Error: {caught.value}\n"


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({"settings": Settings(similarity="cosin")}, "cosin"),  # type: ignore[arg-type]
        ({"settings": Settings(normalize="no")}, "normalize is 'no'"),  # type: ignore[arg-type]
        ({"settings": None}, "must be a harness.Settings"),
        ({"suites": 3}, "suites is 3"),
        ({"workers": True}, "workers is True"),
    ],
)
def test_what_code_puts_together_is_checked_as_well(more: dict[str, Any], told: str) -> None:
    request = Request(**{"models": ("minilm",), "suites": ("stdlib",), **more})
    for check in (check_request, ResolvedRequest.resolve_request):
        with pytest.raises(UsageError, match=told):
            check(request)


def test_a_name_alone_is_a_list_of_one(measured: Measured, tmp_path: Path) -> None:
    models, results = measured.model("good"), str(tmp_path / "other")
    report = harness.run(models, measured.local, tasks="alike, sort", results=results, devices="cpu")
    assert sorted(record.task.name for record in report.records) == ["alike", "sort"]
    again = harness.run([str(models)], [measured.local], tasks=["alike"], results=Path(results))
    assert [result.how for result in again.results] == ["cached"]


def test_the_options_of_a_baseline_are_checked_as_well(measured: Measured, asked: Asked) -> None:
    path = measured.results / "baselines" / "last.json"
    content = verify_digest(path.read_text())
    path.write_text(append_digest({**content, "options": {**content["options"], "similarity": "cosin"}}))
    given = ("--candidate", measured.model("again"), "--baseline", "last")
    assert asked("check", *given)[::2] == (
        2,
        f"Error: {ARGUMENTS['similarity'][2]}\n",
    )
    content = verify_digest(path.read_text())
    path.write_text(append_digest({**content, "options": {"similarty": "cosine"}}))
    code, _, err = asked("check", *given)
    assert code == 2
    assert "No option of the baseline last is called 'similarty'" in err
    with pytest.raises(UsageError, match="policy is 3"):
        harness.check(str(measured.model("again")), "last", results=measured.results, policy=3)  # type: ignore[arg-type]


# What is left out of a model


def notes(report: Any) -> list[str]:
    return [note for record in report.records for note in record.provenance["notes"]]


def test_a_head_that_is_left_out_is_a_note_of_every_record(measured: Measured, tmp_path: Path) -> None:
    folder = faulty.spoiled(measured.model("good"), tmp_path / "classifier", "classifier")
    given = {"tasks": "alike", "pooling": "mean", "results": tmp_path / "results"}
    told = ["not loaded: classifier.bias, classifier.weight (it belongs to the head of a task)"]
    assert notes(harness.run(str(folder), measured.local, **given)) == told
    assert notes(harness.run(str(folder), measured.local, force=True, **given)) == told
    whole = harness.run(str(measured.model("good")), measured.local, **given)
    assert notes(whole) == []


def test_a_tensor_that_is_known_to_be_harmless_is_left_out(
    measured: Measured, asked: Asked, tmp_path: Path
) -> None:
    folder = faulty.spoiled(measured.model("good"), tmp_path / "extra", "extra tensor")
    given = ("run", "--model", folder, "--suite", measured.local, "--tasks", "alike", "--json")
    assert "add --allow tensors=probe.bias" in asked(*given)[2]
    assert asked(*given, "--allow", "tensors=other.*")[0] == 2
    assert asked(*given, "--allow", "tensors=probe.*")[0] == 0
    found = harness.run(
        str(folder), measured.local, tasks="alike", results=measured.results, allow="tensors=probe.bias"
    )
    assert [result.how for result in found.results] == ["cached"]
    assert notes(found) == ["not loaded: probe.bias (it has no place in the model, and --allow names it)"]
    same = harness.run(str(measured.model("good")), measured.local, tasks="alike", results=measured.results)
    assert found.records[0].main_score == same.records[0].main_score


def test_a_contradiction_is_accepted_by_its_name_and_noted(
    measured: Measured, asked: Asked, tmp_path: Path
) -> None:
    folder = faulty.spoiled(measured.model("good"), tmp_path / "lost", "end token that is not added")
    given = ("run", "--model", folder, "--suite", measured.local, "--tasks", "alike", "--dry-run")
    assert "--allow special-tokens" in asked(*given)[2]
    assert asked(*given, "--allow", "special-tokens")[0] == 0
    report = harness.run(
        str(folder), measured.local, tasks="alike", results=measured.results, allow="special-tokens"
    )
    (note,) = notes(report)
    assert note.startswith("accepted by --allow special-tokens: tokenizer_config.json says")
    observed = report.records[0].provenance["observed"]
    assert observed["last_token"] == {"declared": "[MASK]", "observed": "[SEP]"}
    same = harness.run(str(measured.model("good")), measured.local, tasks="alike", results=measured.results)
    assert report.records[0].main_score == same.records[0].main_score


# What the sanity gate finds


def not_finite(folder: Path) -> None:
    faulty.tensors(folder, lambda held: {n: t * np.float32(np.nan) for n, t in held.items()})


def constant(folder: Path) -> None:
    faulty.tensors(folder, lambda held: {n: t if "LayerNorm.bias" in n else 0 * t for n, t in held.items()})


def pickle_of_something_else(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps(["no tensors"]))


def test_a_pickle_of_something_else_is_found_before(measured: Measured, asked: Asked, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(measured.model("good"), tmp_path / "spoiled"))
    pickle_of_something_else(folder)
    code, out, err = asked("run", "--model", folder, "--suite", measured.local, "--tasks", "alike")
    assert (code, out, len(err.splitlines())) == (2, "", 2)


def sees_padding(folder: Path) -> None:
    import transformers

    width = json.loads((folder / "config.json").read_text())["hidden_size"]
    sizes = {"hidden_size": width, "num_hidden_layers": 2, "intermediate_size": 48}
    config = transformers.FNetConfig(vocab_size=len(tiny.tokenizer()), max_position_embeddings=512, **sizes)
    transformers.FNetModel(config).save_pretrained(folder)
    tiny.tokenizer().save_pretrained(folder)


@pytest.mark.parametrize("spoil", [not_finite, constant, sees_padding])
def test_a_dry_run_and_a_run_refuse_what_the_sanity_gate_refuses(
    spoil: faulty.Spoil,
    measured: Measured,
    asked: Asked,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = Path(shutil.copytree(measured.model("good"), tmp_path / "spoiled"))
    spoil(folder)
    capsys.readouterr()
    given = ("run", "--model", folder, "--suite", measured.local, "--tasks", "alike")
    dry = asked(*given, "--dry-run")
    assert (dry[:2], len(dry[2].splitlines())) == ((2, ""), 2)
    assert asked(*given) == dry
    # What the user overrules is no fault of a dry run either; such vectors may have no score.
    assert asked(*given, "--dry-run", "--no-gate")[0] == 0
    code, out, err = asked(*given, "--no-gate")
    assert (code, "Traceback" in out + err) == (int(spoil is not sees_padding), False)


def test_a_contradiction_that_only_the_gate_finds_is_refused_before_a_run(
    measured: Measured, asked: Asked, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(measured.model("good"), tmp_path / "spoiled"))
    given = ("run", "--model", folder, "--suite", measured.local, "--tasks", "alike")
    faulty.rewrite(folder / "config.json", is_causal=True)
    dry = asked(*given, "--dry-run")
    assert dry[0] == 2
    assert "config.json says that attention is causal (is_causal)" in dry[2]
    assert asked(*given) == dry
    assert asked(*given, "--dry-run", "--allow", "attention")[0] == 0
    assert asked(*given, "--allow", "attention")[0] == 0


# Names that are no model


def test_a_path_is_not_looked_for_on_the_hub(
    measured: Measured, asked: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    import huggingface_hub

    monkeypatch.setattr(huggingface_hub, "HfApi", None)
    monkeypatch.chdir(measured.models.parent)
    for text, told in (
        ("models/goood", "There is no folder models/goood.\nDid you mean models/good?"),
        ("./models/goood", "There is no folder ./models/goood.\nDid you mean models/good?"),
        (f"{measured.models}/goood", f"Did you mean {measured.models}/good?"),
        (
            "models/x",
            "Folders in models: again, good, more, worse. For a model of the hub type models/x@main.",
        ),
        ("models/good/x", "There is no folder models/good/x."),
        ("~/no-such-model", "There is no folder ~/no-such-model."),
    ):
        code, out, err = asked("run", "--model", text, "--suite", "stdlib")
        assert (code, out) == (2, "")
        assert told in err
    code, _, err = asked("run", "--model", "models/x@main", "--suite", "stdlib", "--offline")
    assert "models/x@main is not in the local hub cache" in err
