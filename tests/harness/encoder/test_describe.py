from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.encoder.describe import NO_LIMIT, OWN_POOLING, describe
from harness.encoder.folder import weight_files
from harness.errors import ModelError


def change(path: Path, **fields: Any) -> None:
    content = json.loads(path.read_text())
    content.update(fields)
    path.write_text(json.dumps(content))


@pytest.fixture
def copy(bare: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(bare, tmp_path / "copy"))


def test_a_bare_backbone_has_no_pooling_and_its_tokenizers_length(bare: Path) -> None:
    found = describe(bare)
    assert (found.pooling, found.normalize) == (None, False)
    assert (found.max_length, found.position_limit) == (48, 64)


def test_a_sentence_transformers_folder_says_how_it_pools(build: Callable[..., Path]) -> None:
    library = {"prompts": {"query": "query: ", "document": ""}, "default_prompt_name": "query"}
    folder = build(pooling="cls+mean", include_prompt=False, normalize=True, library=library)
    found = describe(folder)
    assert (found.pooling, found.normalize) == ("cls+mean", True)
    assert (found.max_length, found.position_limit) == (32, 64)
    assert (found.prompts, found.default_prompt_name) == ({"query": "query: ", "document": ""}, "query")
    assert found.similarity_fn_name == "cosine"


@pytest.mark.parametrize(
    "pooling", ["cls", "mean", "max", "mean_sqrt_len_tokens", "weightedmean", "lasttoken"]
)
def test_pooling_has_the_librarys_name(build: Callable[..., Path], pooling: str) -> None:
    from sentence_transformers.models import Pooling

    folder = build(pooling=pooling)
    library = Pooling(**json.loads((folder / "1_Pooling" / "config.json").read_text()))
    assert describe(folder).pooling == library.get_pooling_mode_str() == pooling


def test_an_old_pooling_config_without_flags_is_the_mean(build: Callable[..., Path]) -> None:
    folder = build()
    (folder / "1_Pooling" / "config.json").write_text('{"word_embedding_dimension": 32}')
    assert describe(folder).pooling == "mean"


def test_normalize_counts_only_as_the_last_module(build: Callable[..., Path]) -> None:
    folder = build(normalize=True, dense=True)
    modules = json.loads((folder / "modules.json").read_text())
    (folder / "modules.json").write_text(json.dumps([modules[0], modules[1], modules[3], modules[2]]))
    assert not describe(folder).normalize


def test_the_length_is_the_one_sentence_transformers_uses(build: Callable[..., Path], bare: Path) -> None:
    from sentence_transformers import SentenceTransformer

    for folder in (bare, build()):
        model = SentenceTransformer(str(folder), device="cpu", local_files_only=True)
        assert describe(folder).max_length == model.max_seq_length


def test_roberta_has_two_positions_less_than_its_table(copy: Path) -> None:
    change(copy / "config.json", model_type="roberta", max_position_embeddings=514, pad_token_id=1)
    change(copy / "tokenizer_config.json", model_max_length=int(1e30))
    found = describe(copy)
    assert (found.position_limit, found.max_length) == (512, 512)


def test_a_table_of_positions_bounds_the_models_own_length(build: Callable[..., Path]) -> None:
    folder = build(max_seq_length=512)
    assert describe(folder).max_length == 64


def test_computed_positions_go_on_to_the_models_own_length(build: Callable[..., Path]) -> None:
    folder = build(max_seq_length=512)
    change(folder / "config.json", model_type="gpt_neox", rope_theta=10000.0)
    assert (describe(folder).position_limit, describe(folder).max_length) == (512, 512)


def test_nothing_names_a_length(copy: Path) -> None:
    change(copy / "config.json", model_type="t5")
    change(copy / "tokenizer_config.json", model_max_length=int(1e30))
    assert (describe(copy).position_limit, describe(copy).max_length) == (None, NO_LIMIT)


def test_a_model_without_a_pooling_module_pools_on_its_own(build: Callable[..., Path]) -> None:
    folder = build()
    modules = json.loads((folder / "modules.json").read_text())
    (folder / "modules.json").write_text(json.dumps(modules[:1]))
    assert describe(folder).pooling == OWN_POOLING


def test_safetensors_go_before_a_pickle(copy: Path) -> None:
    (copy / "pytorch_model.bin").write_bytes(b"?")
    (copy / "onnx").mkdir()
    (copy / "onnx" / "model.onnx").write_bytes(b"?")
    (copy / "tf_model.h5").write_bytes(b"?")
    assert weight_files(copy) == [copy / "model.safetensors"]


def test_a_sharded_index_stands_for_its_parts(copy: Path) -> None:
    (copy / "model.safetensors").rename(copy / "part-2.safetensors")
    shutil.copy(copy / "part-2.safetensors", copy / "part-1.safetensors")
    index = {"weight_map": {"a": "part-2.safetensors", "b": "part-1.safetensors", "c": "part-1.safetensors"}}
    (copy / "model.safetensors.index.json").write_text(json.dumps(index))
    assert [path.name for path in weight_files(copy)] == ["part-1.safetensors", "part-2.safetensors"]
    (copy / "part-1.safetensors").unlink()
    with pytest.raises(ModelError, match=r"lacks 1 of its 2 weight files, part-1\.safetensors first"):
        weight_files(copy)


def test_modules_weights_count_too(build: Callable[..., Path]) -> None:
    folder = build(dense=True)
    names = [path.relative_to(folder).as_posix() for path in weight_files(folder)]
    assert names == ["2_Dense/model.safetensors", "model.safetensors"]


def remove_weights(folder: Path) -> None:
    (folder / "model.safetensors").unlink()


def only_tensorflow(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "tf_model.h5")


def remove_config(folder: Path) -> None:
    (folder / "config.json").unlink()


def only_an_adapter(folder: Path) -> None:
    (folder / "config.json").rename(folder / "adapter_config.json")


def break_json(folder: Path) -> None:
    (folder / "config.json").write_text("{")


def no_object(folder: Path) -> None:
    (folder / "config.json").write_text("[1]")


def truncate(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])


def grow(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes() + b"more")


def only_a_header_length(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes(b"\x10")


def lie_about_the_header(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes((1 << 40).to_bytes(8, "little") + b"{}")


def garble_the_header(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:8] + b"?" * 100 + path.read_bytes()[108:])


def empty_index(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors.index.json").write_text('{"weight_map": {}}')


def list_no_module(folder: Path) -> None:
    (folder / "modules.json").write_text("[]")


def list_nonsense(folder: Path) -> None:
    (folder / "modules.json").write_text('["Transformer"]')


def leave_the_folder(folder: Path) -> None:
    (folder / "modules.json").write_text(
        '[{"type": "sentence_transformers.models.Transformer", "path": "../x"}]'
    )


def other_similarity(folder: Path) -> None:
    modules = [{"type": "sentence_transformers.models.Transformer", "path": ""}]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "config_sentence_transformers.json").write_text('{"similarity_fn_name": "cosinus"}')


def sparse(folder: Path) -> None:
    other_similarity(folder)
    (folder / "config_sentence_transformers.json").write_text('{"model_type": "SparseEncoder"}')


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (shutil.rmtree, "is not a folder"),
        (remove_weights, "has no weights: neither model.safetensors nor pytorch_model.bin"),
        (only_tensorflow, "tf_model.h5, which is for another framework"),
        (remove_config, "has no config.json"),
        (only_an_adapter, "merge it into its base model"),
        (break_json, "config.json cannot be read as JSON"),
        (no_object, "config.json holds no JSON object"),
        (truncate, "is not a whole safetensors file: it has"),
        (grow, "is not a whole safetensors file: it has"),
        (only_a_header_length, "is not a whole safetensors file: its header says"),
        (lie_about_the_header, "is not a whole safetensors file: its header says"),
        (garble_the_header, "is not a whole safetensors file: its header cannot be read"),
        (empty_index, "names no weight file"),
        (list_no_module, "lists no module"),
        (list_nonsense, "is not a list of modules"),
        (leave_the_folder, "names a folder outside of the model"),
        (other_similarity, "compares vectors with 'cosinus'"),
        (sparse, "is a SparseEncoder"),
    ],
)
def test_a_damaged_folder_says_what_is_wrong(copy: Path, damage: Callable[[Path], Any], said: str) -> None:
    damage(copy)
    with pytest.raises(ModelError) as caught:
        describe(copy)
    assert said in str(caught.value)


def test_describing_needs_neither_torch_nor_transformers(build: Callable[..., Path]) -> None:
    code = (
        "import sys\n"
        "for name in ('torch', 'transformers', 'sentence_transformers'): sys.modules[name] = None\n"
        "from pathlib import Path\n"
        "from harness.encoder.describe import *\n"
        "from harness.types import Settings\n"
        f"folder = Path({str(build())!r})\n"
        "print(resolve_encoding(describe(folder), Settings()).pooling, len(content_key(folder)[0]))\n"
    )
    root = Path(__file__).parents[3]
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("mean 64\n", "")
