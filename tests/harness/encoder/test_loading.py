from __future__ import annotations

import json
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fakes import Evil
from harness.core.encoding import Settings
from harness.core.errors import ModelError, UsageError
from harness.core.types import Artifact
from harness.encoder import loading
from harness.encoder.engine import Encoder
from harness.encoder.folder.description import describe
from harness.encoder.loading import load_encoder
from harness.encoder.resolved_encoding import resolve_encoding

Loaded = Callable[..., Encoder]
Build = Callable[..., Path]
Rewrite = Callable[..., None]
Edit = Callable[[Path, Callable[[dict[str, Any]], Any]], None]

TEXTS = ["the cat sat on a mat.", "stock fell!", "def add(a, b): return a + b", "x"]

LAYER = "encoder.layer.1.output.dense"


def test_an_encoder_says_what_it_is(bare: Path, loaded: Loaded) -> None:
    encoder = loaded(bare)
    assert (encoder.dimension, encoder.device, encoder.dtype_as_run) == (32, "cpu", "float32")
    assert encoder.attention == "sdpa"
    assert encoder.parameters == sum(p.numel() for p in encoder.model.parameters()) > 10_000
    assert encoder.notes == []


def test_projections_are_fused_on_a_gpu_alone(bare: Path, loaded: Loaded) -> None:
    encoder = loaded(bare)
    network: Any = encoder.model[0].auto_model
    expected = encoder.encode(TEXTS)
    for device, fused in (("cpu", False), ("cuda:1", True)):
        loading._fuse_projections(encoder.model, device)
        assert {block.attention.is_fused for block in network.layers} == {fused}
    np.testing.assert_allclose(encoder.encode(TEXTS), expected, rtol=0, atol=1e-6)


def test_loading_is_quiet(copy: Path, loaded: Loaded, edit: Edit, capfd: pytest.CaptureFixture[str]) -> None:
    import torch
    from transformers.utils import logging

    edit(copy, lambda tensors: tensors.update({"cls.predictions.bias": torch.zeros(3)}))
    before = logging.get_verbosity()
    loaded(copy)
    assert capfd.readouterr() == ("", "")
    assert logging.get_verbosity() == before
    assert logging.is_progress_bar_enabled()


def test_a_pooling_asked_for_replaces_the_models_own(build: Build, loaded: Loaded) -> None:
    asked = loaded(build("mean", normalize=True), pooling="cls").encode(TEXTS)
    own = loaded(build("cls", pooling="cls", normalize=True)).encode(TEXTS)
    assert np.array_equal(asked, own)


def test_include_prompt_survives_another_pooling(build: Build, loaded: Loaded) -> None:
    asked = loaded(build("mean", include_prompt=False), pooling="max").encode(TEXTS, prompt="query")
    own = loaded(build("max", pooling="max", include_prompt=False)).encode(TEXTS, prompt="query")
    assert np.array_equal(asked, own)


def test_the_first_token_is_of_all_where_the_prompt_is_left_out(build: Build, loaded: Loaded) -> None:
    """As sentence-transformers up to 5.3, which writes flags, has it."""
    modes = {"cls": True, "mean": False}
    alone = [build(mode, pooling=mode, include_prompt=include) for mode, include in modes.items()]
    joined, *parts = (
        loaded(folder).encode(TEXTS, prompt="query")
        for folder in (build(pooling="cls+mean", include_prompt=False), *alone)
    )
    assert np.abs(joined - np.concatenate(parts, axis=1)).max() <= 2e-6


def test_normalisation_is_added_and_taken_away(build: Build, loaded: Loaded) -> None:
    raw, unit = build("raw"), build("unit", normalize=True)
    assert np.array_equal(loaded(unit, normalize=False).encode(TEXTS), loaded(raw).encode(TEXTS))
    added = loaded(raw, normalize=True).encode(TEXTS)
    assert np.array_equal(added, loaded(unit).encode(TEXTS))
    assert np.linalg.norm(added, axis=1) == pytest.approx(1, abs=1e-6)


def test_a_pooling_that_a_further_layer_cannot_take_is_an_error(build: Build, loaded: Loaded) -> None:
    with pytest.raises(ModelError, match="tiny does not load: RuntimeError"):
        loaded(build(pooling="cls+mean", dense=True), pooling="mean")


def test_bfloat16_runs_the_backbone_alone_in_it(build: Build, loaded: Loaded) -> None:
    folder = build(dense=True)
    half, full = loaded(folder, dtype="bfloat16"), loaded(folder)
    assert half.dtype_as_run == "bfloat16"
    assert [str(p.dtype) for p in half.model[2].parameters()] == ["torch.float32", "torch.float32"]
    got, expected = half.encode(TEXTS), full.encode(TEXTS)
    assert got.dtype == np.float32
    assert 1e-6 < np.abs(got - expected).max() / np.abs(expected).max() < 5e-2


def test_rotary_frequencies_stay_exact_in_bfloat16(tmp_path: Path, bare: Path, loaded: Loaded) -> None:
    import torch
    from transformers import GPTNeoXConfig, GPTNeoXModel

    folder = Path(shutil.copytree(bare, tmp_path / "rotary"))
    config = GPTNeoXConfig(
        vocab_size=200,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        max_position_embeddings=64,
    )
    GPTNeoXModel(config).save_pretrained(folder)
    buffers = {n: b for n, b in loaded(folder, dtype="bfloat16").model.named_buffers() if "inv_freq" in n}
    exact = {n: b for n, b in loaded(folder).model.named_buffers() if "inv_freq" in n}
    assert buffers
    assert all(torch.equal(buffers[name], exact[name]) for name in exact)


def test_float16_is_not_run_on_a_cpu(bare: Path, loaded: Loaded) -> None:
    with pytest.raises(UsageError, match="float16 is not run on a CPU"):
        loaded(bare, dtype="float16")


def test_a_missing_pooler_does_not_reach_a_mean(copy: Path, loaded: Loaded, edit: Edit, bare: Path) -> None:
    def drop(tensors: dict[str, Any]) -> None:
        del tensors["pooler.dense.weight"], tensors["pooler.dense.bias"]

    edit(copy, drop)
    assert np.array_equal(loaded(copy).encode(TEXTS), loaded(bare).encode(TEXTS))


def test_a_missing_tensor_that_reaches_the_vectors_is_named(copy: Path, loaded: Loaded, edit: Edit) -> None:
    edit(copy, lambda tensors: [tensors.pop(f"{LAYER}.{part}") for part in ("weight", "bias")])
    with pytest.raises(ModelError) as caught:
        loaded(copy)
    assert "2 tensors that its vectors depend on" in str(caught.value)
    assert f"{LAYER}.bias, {LAYER}.weight." in str(caught.value)
    assert "pooler" not in str(caught.value)


def test_where_no_gradient_can_tell_every_missing_tensor_counts(
    copy: Path, loaded: Loaded, edit: Edit, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch
    from sentence_transformers.models import Transformer

    monkeypatch.setattr(Transformer, "forward", torch.no_grad()(Transformer.forward))
    edit(copy, lambda tensors: tensors.pop("pooler.dense.bias"))
    with pytest.raises(ModelError, match=r"pooler\.dense\.bias"):
        loaded(copy)


def test_a_tensor_of_another_shape_is_named_with_both(copy: Path, loaded: Loaded, rewrite: Rewrite) -> None:
    rewrite(copy / "config.json", intermediate_size=48)
    with pytest.raises(ModelError, match=r"\(\(64, 32\) in the file, \(48, 32\) in the model\).* and 1 more"):
        loaded(copy)


def test_weights_of_another_architecture_are_not_loaded(copy: Path, loaded: Loaded, edit: Edit) -> None:
    def rename(tensors: dict[str, Any]) -> None:
        for name in list(tensors):
            tensors[f"other.{name}"] = tensors.pop(name)

    edit(copy, rename)
    with pytest.raises(ModelError, match=r"not loaded whole: \d+ tensors .* and \d+ more; 39 tensors"):
        loaded(copy)


def test_a_pickle_of_tensors_loads(copy: Path, loaded: Loaded, bare: Path) -> None:
    import torch
    from safetensors.torch import load_file

    torch.save(load_file(copy / "model.safetensors"), copy / "pytorch_model.bin")
    (copy / "model.safetensors").unlink()
    assert np.array_equal(loaded(copy).encode(TEXTS), loaded(bare).encode(TEXTS))


@pytest.mark.parametrize("zipped", [True, False])
def test_a_pickle_with_code_is_refused_unrun(
    copy: Path, loaded: Loaded, tmp_path: Path, zipped: bool
) -> None:
    import torch

    trace = tmp_path / "trace"
    (copy / "model.safetensors").unlink()
    path = copy / "pytorch_model.bin"
    torch.save({"weight": Evil(trace)}, path, _use_new_zipfile_serialization=zipped)
    with pytest.raises(ModelError, match=r"refused: the pickle contains code, \w+\.mkdir"):
        loaded(copy)
    assert not trace.exists()


def test_a_further_layers_pickle_with_code_is_refused_unrun(
    build: Build, loaded: Loaded, tmp_path: Path
) -> None:
    import torch

    folder, trace = build(dense=True), tmp_path / "trace"
    (folder / "2_Dense" / "model.safetensors").unlink()
    torch.save({"weight": Evil(trace)}, folder / "2_Dense" / "pytorch_model.bin")
    with pytest.raises(ModelError, match="refused: the pickle contains code"):
        loaded(folder)
    assert not trace.exists()


def test_the_folders_own_settings_cannot_allow_code(build: Build, loaded: Loaded, tmp_path: Path) -> None:
    import torch

    folder, trace = build(), tmp_path / "trace"
    options = {"max_seq_length": 32, "model_args": {"weights_only": False, "trust_remote_code": True}}
    (folder / "sentence_bert_config.json").write_text(json.dumps(options))
    (folder / "model.safetensors").unlink()
    torch.save({"weight": Evil(trace)}, folder / "pytorch_model.bin")
    with pytest.raises(ModelError, match="refused"):
        loaded(folder)
    assert not trace.exists()


def test_this_pickle_would_have_run(tmp_path: Path) -> None:
    pickle.loads(pickle.dumps(Evil(tmp_path / "trace")))
    assert (tmp_path / "trace").exists()


def test_a_file_that_is_no_pickle_is_refused(copy: Path, loaded: Loaded) -> None:
    (copy / "model.safetensors").unlink()
    (copy / "pytorch_model.bin").write_bytes(b"garbage" * 100)
    with pytest.raises(ModelError, match="refused: the file is no pickle of tensors"):
        loaded(copy)


def test_a_missing_tokenizer_is_an_error(copy: Path, loaded: Loaded) -> None:
    (copy / "tokenizer.json").unlink()
    with pytest.raises(ModelError, match="brings no tokenizer"):
        loaded(copy)


MODELING = """
import pathlib
pathlib.Path({trace!r}).write_text("run")
from transformers import BertConfig, BertModel
class Config(BertConfig):
    model_type = "mine"
class Model(BertModel):
    config_class = Config
"""


@pytest.fixture
def foreign(
    copy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rewrite: Rewrite
) -> tuple[Path, Path]:
    """A folder that needs its own code, and the file that code leaves behind when it runs."""
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(tmp_path / "modules"))
    auto_map = {"AutoConfig": "modeling.Config", "AutoModel": "modeling.Model"}
    rewrite(copy / "config.json", model_type="mine", auto_map=auto_map)
    (copy / "modeling.py").write_text(MODELING.format(trace=str(tmp_path / "trace")))
    return copy, tmp_path / "trace"


def test_code_is_not_run_unasked(foreign: tuple[Path, Path], loaded: Loaded) -> None:
    folder, trace = foreign
    with pytest.raises(ModelError) as caught:
        loaded(folder)
    assert "tiny needs code of its own: transformers knows no 'mine'." in str(caught.value)
    assert "add --trust-remote-code." in str(caught.value)
    assert not trace.exists()


def test_code_of_a_local_folder_runs_if_allowed(
    foreign: tuple[Path, Path], artifact: Callable[..., Artifact]
) -> None:
    folder, trace = foreign
    encoding = resolve_encoding(describe(folder), Settings())
    encoder = load_encoder(artifact(folder, trust_remote_code=True), encoding, device="cpu")
    assert encoder.encode(TEXTS).shape == (4, 32)
    assert trace.exists()


@pytest.mark.parametrize(
    ("revision", "said"),
    [("main", "needs a pinned commit, and tiny is at 'main'"), ("a" * 40, None)],
)
def test_code_from_the_hub_runs_from_a_pinned_commit_alone(
    foreign: tuple[Path, Path], artifact: Callable[..., Artifact], revision: str, said: str | None
) -> None:
    folder, trace = foreign
    given = artifact(folder, source="org/tiny", revision=revision, trust_remote_code=True)
    encoding = resolve_encoding(describe(folder), Settings())
    if said is None:
        load_encoder(given, encoding, device="cpu")
        return
    with pytest.raises(ModelError) as caught:
        load_encoder(given, encoding, device="cpu")
    assert said in str(caught.value)
    assert "org/tiny@<40 hex digits" in str(caught.value)
    assert not trace.exists()


def test_code_of_another_repository_is_not_pinned(
    foreign: tuple[Path, Path], artifact: Callable[..., Artifact]
) -> None:
    folder, _ = foreign
    config = json.loads((folder / "config.json").read_text())
    config["auto_map"]["AutoModel"] = "org/code--modeling.Model"
    (folder / "config.json").write_text(json.dumps(config))
    encoding = resolve_encoding(describe(folder), Settings())
    with pytest.raises(ModelError, match=r"takes its code \(AutoModel\) from org/code, at no pinned commit"):
        load_encoder(artifact(folder, trust_remote_code=True), encoding, device="cpu")


def test_a_module_of_the_folders_own_is_not_run_unasked(build: Build, loaded: Loaded, tmp_path: Path) -> None:
    folder, trace = build(), tmp_path / "trace"
    (folder / "custom.py").write_text(f"import pathlib; pathlib.Path({str(trace)!r}).write_text('run')")
    modules = json.loads((folder / "modules.json").read_text())
    modules[1]["type"] = "custom.Pooling"
    (folder / "modules.json").write_text(json.dumps(modules))
    with pytest.raises(ModelError, match=r"needs code of its own: its module custom\.Pooling"):
        loaded(folder)
    assert not trace.exists()


def test_an_activation_function_is_not_any_function(build: Build, loaded: Loaded, rewrite: Rewrite) -> None:
    folder = build(dense=True)
    rewrite(folder / "2_Dense" / "config.json", activation_function="os.getcwd")
    with pytest.raises(ModelError, match=r"'os\.getcwd' as its activation function: refused"):
        loaded(folder)


def test_relative_positions_are_not_left_out_unsaid(copy: Path, loaded: Loaded, rewrite: Rewrite) -> None:
    rewrite(copy / "config.json", position_embedding_type="relative_key")
    with pytest.raises(ModelError, match="relative_key positions, which transformers 5 has dropped"):
        loaded(copy)
