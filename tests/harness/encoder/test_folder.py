"""Which weight files must be there, and which of a hub model's files are fetched."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harness.encoder import folder
from harness.encoder.content import content_files
from harness.encoder.describe import describe
from harness.encoder.folder import weight_files
from harness.errors import ModelError
from harness.models import ModelOptions, _resolve

Build = Callable[..., Path]


def test_every_module_of_the_library_is_known() -> None:
    from sentence_transformers import models

    assert set(models.__all__) - {"Module", "InputModule"} == folder.LIBRARY
    for name in folder.LIBRARY:
        assert folder.library_class(f"sentence_transformers.models.{name}") == name
        assert folder.library_class(f"sentence_transformers.models.{name}.{name}") == name


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
    names = {path.relative_to(folder).as_posix() for path in content_files(folder)}
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
    _resolve("org/tiny", ModelOptions())
    assert asked == fetched
