"""The files of a model: which must be there, which are fetched, and what of them is its content."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import fakes
from harness.core.documents import append_digest
from harness.core.encoding import Settings
from harness.core.errors import ModelError, UsageError
from harness.core.keys import read_document
from harness.encoder.folder.description import compute_folder_identity, describe, list_content_files
from harness.encoder.folder.modules_and_pooling import LIBRARY, find_library_class, weight_files
from harness.plan.models import ModelOptions, resolve_model

# Which weight files must be there, and which of a hub model's files are fetched


Build = Callable[..., Path]


def test_every_module_of_the_library_is_known() -> None:
    from sentence_transformers import models

    assert set(models.__all__) - {"Module", "InputModule"} == LIBRARY
    for name in LIBRARY:
        assert find_library_class(f"sentence_transformers.models.{name}") == name
        assert find_library_class(f"sentence_transformers.models.{name}.{name}") == name


def test_a_layer_without_its_weights_is_named(build: Build) -> None:
    folder = build(dense=True)
    (folder / "2_Dense" / "model.safetensors").unlink()
    with pytest.raises(ModelError) as caught:
        describe(folder)
    said = "has no weights: neither 2_Dense/model.safetensors nor 2_Dense/pytorch_model.bin."
    assert said in str(caught.value)


def test_a_tower_without_its_weights_is_named(build: Build, router: Build) -> None:
    folder = router(build("q"), build("d"))
    (folder / "document_0_Transformer" / "model.safetensors").unlink()
    with pytest.raises(ModelError, match=r"neither document_0_Transformer/model\.safetensors"):
        describe(folder)


def test_modules_without_weights_need_none(tmp_path: Path) -> None:
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.models import BoW

    SentenceTransformer(modules=[BoW(["cat", "dog"])], device="cpu").save(str(tmp_path))
    assert weight_files(tmp_path) == []
    assert describe(tmp_path).pooling == "own"


def test_a_layers_weights_are_one_file(build: Build, rewrite: Callable[..., None]) -> None:
    """The library reads no index for it, so neither may the hash."""
    folder = build(dense=True)
    (folder / "2_Dense" / "model.safetensors").rename(folder / "2_Dense" / "part.safetensors")
    rewrite(folder / "2_Dense" / "model.safetensors.index.json", weight_map={"a": "part.safetensors"})
    with pytest.raises(ModelError, match=r"neither 2_Dense/model\.safetensors"):
        describe(folder)


def test_an_index_stays_in_its_folder(build: Build, rewrite: Callable[..., None]) -> None:
    folder = build()
    (folder / "model.safetensors").unlink()
    rewrite(folder / "model.safetensors.index.json", weight_map={"a": "../elsewhere.safetensors"})
    with pytest.raises(ModelError, match="names a file outside of the model"):
        describe(folder)


def test_a_router_within_a_router_is_read_to_its_end(build: Build, router: Build, tmp_path: Path) -> None:
    inner = router(build("a"), build("b"), "inner")
    folder = router(inner, build("c", dense=True), "outer")
    names = {path.relative_to(folder).as_posix() for path in list_content_files(folder)}
    assert "query_0_Router/document_0_Transformer/model.safetensors" in names
    assert "query_0_Router/router_config.json" in names
    assert "document_2_Dense/model.safetensors" in names


@pytest.mark.parametrize(
    ("there", "fetched"),
    [
        (
            ["model.safetensors", "pytorch_model.bin", "2_Dense/pytorch_model.bin"],
            ["model.safetensors", "2_Dense/pytorch_model.bin"],
        ),
        (["onnx/x.safetensors", "pytorch_model.bin"], ["pytorch_model.bin"]),
        (["model.fp16.safetensors", "pytorch_model.bin"], ["model.fp16.safetensors", "pytorch_model.bin"]),
        (
            ["model.safetensors.index.json", "a-1.safetensors", "a-1.bin", "optimizer.pt", "tf_model.h5"],
            ["model.safetensors.index.json", "a-1.safetensors"],
        ),
        (["a[1]/model.safetensors", "a[1]/x.bin", "a1/x.bin"], ["a[1]/model.safetensors", "a1/x.bin"]),
    ],
)
def test_pickles_are_fetched_where_no_safetensors_lie_beside_them(
    monkeypatch: pytest.MonkeyPatch, build: Build, there: list[str], fetched: list[str]
) -> None:
    import huggingface_hub
    from huggingface_hub.utils import filter_repo_objects

    folder, asked = build(), []

    def download(_repository: str, **options: Any) -> str:
        asked.extend(filter_repo_objects(there, ignore_patterns=options["ignore_patterns"]))
        return str(folder)

    info = SimpleNamespace(sha="a" * 40, siblings=[SimpleNamespace(rfilename=name) for name in there])
    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    monkeypatch.setattr(huggingface_hub.HfApi, "model_info", lambda *_, **__: info)
    resolve_model("org/tiny", Settings(), ModelOptions())
    assert asked == fetched


# What of a folder changes a model's key


def rewrite(path: Path, **fields: Any) -> None:
    content = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps({**content, **fields}, indent=3))


def test_the_files_that_decide_are_listed(build: Callable[..., Path]) -> None:
    folder = build(dense=True, library={"prompts": {}})
    (folder / "modeling.py").write_text("x = 1")
    assert [path.relative_to(folder).as_posix() for path in list_content_files(folder)] == [
        "1_Pooling/config.json",
        "2_Dense/config.json",
        "2_Dense/model.safetensors",
        "config.json",
        "config_sentence_transformers.json",
        "model.safetensors",
        "modeling.py",
        "modules.json",
        "sentence_bert_config.json",
        "tokenizer.json",
        "tokenizer_config.json",
    ]


def test_the_weights_hash_is_the_files_own(build: Callable[..., Path]) -> None:
    folder = build()
    expected = hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()
    assert compute_folder_identity(folder).weights == expected


def test_a_copy_elsewhere_is_the_same_model(build: Callable[..., Path], tmp_path: Path) -> None:
    folder = build()
    copy = Path(shutil.copytree(folder, tmp_path / "elsewhere" / "other-name"))
    assert compute_folder_identity(copy) == compute_folder_identity(folder)


def same(folder: Path) -> None:
    rewrite(folder / "config.json", _name_or_path="/home/x", transformers_version="9.9", dtype="bfloat16")
    rewrite(folder / "tokenizer_config.json", name_or_path="/home/x", special_tokens_map_file="/home/x/y")
    rewrite(folder / "data_config.json", lines=3)
    rewrite(folder / "generation_config.json", x=1)
    for name in ("README.md", ".gitattributes", "training_args.bin", "pytorch_model.bin", "tf_model.h5"):
        (folder / name).write_text("other")
    (folder / "onnx").mkdir()
    (folder / "onnx" / "config.json").write_text("{}")


def flip_last_bit(content: bytes) -> bytes:
    return content[:-1] + bytes([content[-1] ^ 1])


def length(folder: Path) -> None:
    rewrite(folder / "sentence_bert_config.json", max_seq_length=7)


NORMALIZE = {"idx": 3, "name": "3", "path": "3", "type": "sentence_transformers.models.Normalize"}


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("model.safetensors", flip_last_bit),
        ("2_Dense/model.safetensors", flip_last_bit),
        ("1_Pooling/config.json", {"pooling_mode_cls_token": True}),
        ("config.json", {"hidden_act": "relu"}),
        ("sentence_bert_config.json", {"max_seq_length": 7}),
        ("tokenizer.json", lambda content: content.replace(b'"cat"', b'"cta"')),
        ("vocab.txt", lambda _: b"[PAD]\n"),
        ("modeling.py", lambda _: b"x = 1"),
        ("modules.json", lambda content: json.dumps([*json.loads(content), NORMALIZE]).encode()),
        ("config_sentence_transformers.json", {"prompts": {"query": "q: "}}),
    ],
)
def test_the_key_follows_what_the_model_computes(
    build: Callable[..., Path], name: str, change: dict[str, Any] | Callable[[bytes], bytes]
) -> None:
    folder = build(dense=True)
    before = compute_folder_identity(folder)
    same(folder)
    assert compute_folder_identity(folder) == before
    path = folder / name
    if isinstance(change, dict):
        rewrite(path, **change)
    else:
        path.write_bytes(change(path.read_bytes() if path.exists() else b""))
    after = compute_folder_identity(folder)
    assert after[0] != before[0]
    assert (after[1] != before[1]) == (change is flip_last_bit)


def test_a_folder_that_cannot_be_looked_into_is_no_trained_model(tmp_path: Path) -> None:
    """As one of another user is; the superuser may look into any, so its name is too long."""
    assert read_document(tmp_path / ("x" * 300)) is None


def test_a_trained_model_has_the_key_of_its_lineage(build: Callable[..., Path], tmp_path: Path) -> None:
    folder = build()
    content, weights, _ = compute_folder_identity(folder)
    made = fakes.train(folder)
    assert compute_folder_identity(folder) == (fakes.lineage().key, weights, made)
    assert compute_folder_identity(folder).document == made
    (folder / "training" / "predictions").mkdir(parents=True)
    for name in ("log.jsonl", "texts.npy", "predictions/dev.csv"):
        (folder / "training" / name).write_text("x")
    assert compute_folder_identity(Path(shutil.copytree(folder, tmp_path / "elsewhere")))[0] == made.key
    length(folder)
    assert compute_folder_identity(folder).key not in (made.key, content)
    assert compute_folder_identity(folder).document is None


def test_a_model_is_called_what_is_typed_before_its_folder(
    build: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, options = build(), ModelOptions()
    plain = resolve_model(str(folder), Settings(), options).artifact
    assert resolve_model(f"best={folder}", Settings(), options).artifact == replace(plain, name="best")
    # A folder whose own path has "=" is that folder, and may be named as well.
    monkeypatch.chdir(tmp_path)
    shutil.copytree(folder, "lr=1e-5")
    assert resolve_model("lr=1e-5", Settings(), options).artifact.name == "lr=1e-5"
    assert resolve_model("x=lr=1e-5", Settings(), options).artifact.name == "x"
    assert resolve_model("x=bm25:k1=0.9", Settings(), options).artifact.name == "x"
    for name in ("a/b", "", " ", "a\tb", "a\u2028b", "n" * 201, "../x"):
        with pytest.raises(UsageError, match="cannot be a model's name"):
            resolve_model(f"{name}={folder}", Settings(), options)
    with pytest.raises(UsageError, match="no model after x="):
        resolve_model("x=", Settings(), options)
    with pytest.raises(UsageError, match="No model is called 'runs/lr=1/x'"):
        resolve_model("runs/lr=1/x", Settings(), options)


def test_a_trained_model_is_called_what_its_document_says(build: Callable[..., Path]) -> None:
    folder = build()
    plain = resolve_model(str(folder), Settings(), ModelOptions()).artifact
    fakes.train(folder)
    trained = resolve_model(str(folder), Settings(), ModelOptions()).artifact
    assert (plain.name, plain.trained) == ("model", False)
    assert (trained.name, trained.trained) == ("tiny-contrast", True)
    assert (trained.key, trained.weights) == (fakes.lineage().key, plain.weights)
    assert trained.slug == f"tiny-contrast-{trained.key[:12]}"
    length(folder)
    changed = resolve_model(str(folder), Settings(), ModelOptions()).artifact
    assert (changed.name, changed.trained) == ("model", False)


def another_key(path: Path) -> None:
    """Its digest made right again, so that the key alone does not follow."""
    made = json.loads(path.read_text())
    del made["digest"]
    path.write_text(append_digest({**made, "key": "k" * 64}))


def another_lineage(path: Path) -> None:
    made = json.loads(path.read_text())
    del made["digest"]
    path.write_text(append_digest({**made, "lineage": {**made["lineage"], "seed": 43}}))


def no_number(path: Path) -> None:
    text = path.read_text().replace("5e-05", "NaN")
    made = {name: value for name, value in json.loads(text).items() if name != "digest"}
    path.write_text(append_digest(made))


def same_digest(path: Path) -> None:
    path.write_text(path.read_text().replace('"tiny-contrast"', '"better"'))


def another_model(path: Path) -> None:
    length(path.parent)
    fakes.train(path.parent)
    rewrite(path.parent / "sentence_bert_config.json", max_seq_length=32)


@pytest.mark.parametrize(
    "damage",
    [
        another_key,
        another_lineage,
        no_number,
        same_digest,
        another_model,
        lambda path: path.write_text("{"),
        lambda path: path.write_text("[" * 100_000),
        lambda path: path.write_bytes(b"\xff"),
        lambda path: path.write_text('{"key": "k", "content": "c"}'),
        lambda path: path.write_text(path.read_text().replace('"schema": 2', '"schema": 3')),
    ],
)
def test_a_document_that_does_not_follow_says_nothing(
    build: Callable[..., Path], damage: Callable[[Path], object]
) -> None:
    folder = build()
    before = compute_folder_identity(folder)
    fakes.train(folder)
    damage(folder / "model.json")
    assert compute_folder_identity(folder) == before
    assert compute_folder_identity(folder).document is None


def test_file_hashes_are_remembered(build: Callable[..., Path], tmp_path: Path) -> None:
    folder, cache = build(), tmp_path / "cache"
    assert (
        compute_folder_identity(folder, cache)
        == compute_folder_identity(folder, cache)
        == compute_folder_identity(folder)
    )
