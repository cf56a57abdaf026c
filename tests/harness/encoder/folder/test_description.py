"""What a folder holds and how it encodes: files, settings, lengths, places that it must not lead to."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.core.encoding import Encoding, Settings
from harness.core.errors import ModelError, UsageError
from harness.encoder.engine import Encoder
from harness.encoder.folder.description import NO_LIMIT, describe
from harness.encoder.folder.modules_and_pooling import OWN_POOLING, weight_files
from harness.encoder.library_load import RENAMED
from harness.encoder.resolved_encoding import resolve_encoding
from tiny import library

# What a folder says of itself


def change(path: Path, **fields: Any) -> None:
    content = json.loads(path.read_text())
    content.update(fields)
    path.write_text(json.dumps(content))


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

    from harness.encoder.library_load import build_pooling, name_modes

    folder = build(pooling=pooling)
    library: Any = Pooling.load(str(folder), "1_Pooling")
    assert (
        describe(folder).pooling == name_modes(library) == name_modes(build_pooling(8, [pooling])) == pooling
    )


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


WEIGHTS, SETTINGS = "model.safetensors", "config_sentence_transformers.json"
MODULES = {"modules.json": b'[{"type": "sentence_transformers.models.Transformer", "path": ""}]'}
OUTSIDE = {"modules.json": MODULES["modules.json"].replace(b'""', b'"../x"')}
NOT_WHOLE = "is not a whole safetensors file: "


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({WEIGHTS: None}, "has no weights: neither model.safetensors nor pytorch_model.bin"),
        ({WEIGHTS: None, "tf_model.h5": b"?"}, "tf_model.h5, which is for another framework"),
        ({"config.json": None}, "has no config.json"),
        ({"config.json": None, "adapter_config.json": b"{}"}, "merge it into its base model"),
        ({"config.json": b"{"}, "config.json cannot be read as JSON"),
        ({"config.json": b"[1]"}, "config.json holds no JSON object"),
        ({WEIGHTS: lambda old: old[:-100]}, f"{NOT_WHOLE}it has"),
        ({WEIGHTS: lambda old: old + b"more"}, f"{NOT_WHOLE}it has"),
        ({WEIGHTS: b"\x10"}, f"{NOT_WHOLE}its header says 16 bytes"),
        ({WEIGHTS: (1 << 40).to_bytes(8, "little") + b"{}"}, f"{NOT_WHOLE}its header says"),
        ({WEIGHTS: lambda old: old[:8] + b"?" * 100 + old[108:]}, f"{NOT_WHOLE}its header cannot be read"),
        ({WEIGHTS: (2).to_bytes(8, "little") + b"{}"}, f"{NOT_WHOLE}it holds no tensor"),
        ({WEIGHTS: None, f"{WEIGHTS}.index.json": b'{"weight_map": {}}'}, "names no weight file"),
        ({"modules.json": b"[]"}, "lists no module"),
        ({"modules.json": b'["Transformer"]'}, "is not a list of modules"),
        (OUTSIDE, "names a folder outside of the model"),
        (MODULES | {SETTINGS: b'{"similarity_fn_name": "cosinus"}'}, "compares vectors with 'cosinus'"),
        (MODULES | {SETTINGS: b'{"similarity_fn_name": ""}'}, "compares vectors with ''"),
        (MODULES | {SETTINGS: b'{"model_type": "SparseEncoder"}'}, "is a SparseEncoder"),
    ],
)
def test_a_damaged_folder_says_what_is_wrong(copy: Path, changes: dict[str, Any], said: str) -> None:
    for name, content in changes.items():
        path = copy / name
        if content is None:
            path.unlink()
        else:
            path.write_bytes(content(path.read_bytes()) if callable(content) else content)
    with pytest.raises(ModelError) as caught:
        describe(copy)
    assert said in str(caught.value)


def test_a_folder_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="is not a folder"):
        describe(tmp_path / "none")


def test_describing_needs_neither_torch_nor_transformers(build: Callable[..., Path]) -> None:
    code = (
        "import sys\n"
        "for name in ('torch', 'transformers', 'sentence_transformers'): sys.modules[name] = None\n"
        "from pathlib import Path\n"
        "from harness.encoder.folder.description import compute_folder_identity\n"
        "from harness.encoder.resolved_encoding import resolve_encoding\n"
        "from harness.encoder.folder.description import describe\n"
        "from harness.core.encoding import Settings\n"
        f"folder = Path({str(build())!r})\n"
        "key = compute_folder_identity(folder).key\n"
        "print(resolve_encoding(describe(folder), Settings()).pooling, len(key))\n"
    )
    root = Path(__file__).parents[4]
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("mean 64\n", "")


# How texts are encoded: as the model does by itself, or as asked


def test_a_bare_backbone_is_mean_pooled(bare: Path) -> None:
    assert resolve_encoding(describe(bare), Settings()) == Encoding(
        pooling="mean", normalize=False, max_length=48, similarity="cosine"
    )


def test_the_models_own_way_is_the_default(build: Callable[..., Path]) -> None:
    library = {
        "prompts": {"query": "query: ", "document": "", "a": "A"},
        "default_prompt_name": "query",
        "similarity_fn_name": "dot",
    }
    found = resolve_encoding(describe(build(pooling="cls+max", normalize=True, library=library)), Settings())
    assert found == Encoding(
        pooling="cls+max",
        normalize=True,
        max_length=32,
        similarity="dot",
        prompts=(("a", "A"), ("document", ""), ("query", "query: ")),
        default_prompt="query",
    )


def test_what_is_asked_for_goes_first(build: Callable[..., Path]) -> None:
    library = {"prompts": {"query": "query: "}, "default_prompt_name": "query"}
    asked = Settings(
        dtype="bfloat16",
        pooling="lasttoken",
        normalize=False,
        max_length=64,
        similarity="euclidean",
        prompts={"query": "", "STS": "x"},
    )
    assert resolve_encoding(describe(build(normalize=True, library=library)), asked) == Encoding(
        dtype="bfloat16",
        pooling="lasttoken",
        normalize=False,
        max_length=64,
        similarity="euclidean",
        prompts=(("STS", "x"), ("document", ""), ("query", "")),
        default_prompt="query",
    )


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (Settings(pooling="meen"), "Did you mean mean"),
        (Settings(pooling="cls+mean"), "No pooling is called 'cls+mean'"),
        (Settings(max_length=65), "Its limit is 64 tokens."),
        (Settings(max_length=0), "A maximum length of 0 tokens"),
        (Settings(max_length=-1), "A maximum length of -1 tokens"),
    ],
)
def test_what_cannot_be_is_refused(build: Callable[..., Path], settings: Settings, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        resolve_encoding(describe(build()), settings)
    assert said in str(caught.value)


def test_the_models_own_combination_may_be_named(build: Callable[..., Path]) -> None:
    found = resolve_encoding(describe(build(pooling="cls+mean")), Settings(pooling="cls+mean"))
    assert found.pooling == "cls+mean"


def test_a_pooling_that_is_part_of_the_model_stays(build: Callable[..., Path]) -> None:
    folder = build()
    listed = '[{"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"}]'
    (folder / "modules.json").write_text(listed)
    with pytest.raises(UsageError, match="no Pooling module"):
        resolve_encoding(describe(folder), Settings(pooling="mean"))


# Where texts are cut: by the model's own length, unless another is asked for


Loaded = Callable[..., Encoder]
Build = Callable[..., Path]
Rewrite = Callable[..., None]

JIT = pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")

LONG = "the cat sat on a mat. " * 20


def test_a_length_is_written_only_if_asked_for(
    build: Build, loaded: Loaded, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sentence_transformers.models import Transformer

    written: list[int] = []
    folder = build()

    def spy(module: Any, value: Any) -> None:
        written.append(value)
        vars(module)["length"] = value
        if theirs.fset is not None:
            theirs.fset(module, value)

    theirs = vars(Transformer).get("max_seq_length", property(lambda module: vars(module)["length"]))
    monkeypatch.setattr(Transformer, "max_seq_length", property(theirs.fget, spy), raising=False)
    own = [] if RENAMED else [32]  # by the library itself
    loaded(folder)
    assert written == own
    loaded(folder, max_length=5)
    assert written == [*own, *own, 5]


def test_more_than_there_are_positions_for_is_cut(build: Build, loaded: Loaded) -> None:
    ours = loaded(build(max_seq_length=512))
    assert ours.model[0].max_seq_length == ours.encoding.max_length == 64
    assert np.isfinite(ours.encode([LONG])).all()


@pytest.fixture
def deberta(bare: Path, tmp_path: Path) -> Callable[..., Path]:
    def deberta(**fields: Any) -> Path:
        from transformers import DebertaV2Config, DebertaV2Model

        folder = Path(shutil.copytree(bare, tmp_path / "deberta"))
        config = DebertaV2Config(
            vocab_size=200,
            hidden_size=32,
            num_hidden_layers=2,
            num_attention_heads=4,
            intermediate_size=64,
            max_position_embeddings=24,
            relative_attention=True,
            position_buckets=8,
            pos_att_type=["p2c", "c2p"],
            type_vocab_size=2,
            **fields,
        )
        DebertaV2Model(config).save_pretrained(folder)
        return folder

    return deberta


@JIT
def test_relative_positions_go_on(deberta: Callable[..., Path], build: Build, loaded: Loaded) -> None:
    folder = build(backbone=deberta(position_biased_input=False), max_seq_length=48)
    found = describe(folder)
    assert (found.max_length, found.position_limit) == (48, 48)
    assert np.abs(loaded(folder).encode([LONG]) - library(folder).encode([LONG])).max() < 1e-5


@JIT
def test_positions_in_a_table_do_not_though_attention_is_relative(
    deberta: Callable[..., Path], build: Build, loaded: Loaded
) -> None:
    folder = build(backbone=deberta(position_biased_input=True), max_seq_length=48)
    assert describe(folder).max_length == 24
    assert np.isfinite(loaded(folder).encode([LONG])).all()
    with pytest.raises(RuntimeError, match="must match the size"):
        library(folder).encode([LONG])


def test_the_length_is_that_of_the_part_about_text(build: Build, rewrite: Rewrite) -> None:
    folder = build(max_seq_length=512)
    text = {"model_type": "clip_text_model", "max_position_embeddings": 20}
    rewrite(folder / "config.json", max_position_embeddings=None, text_config=text)
    assert (describe(folder).max_length, describe(folder).position_limit) == (20, 20)


def test_clip_takes_its_tokenizers_length(bare: Path, tmp_path: Path, rewrite: Rewrite) -> None:
    folder = Path(shutil.copytree(bare, tmp_path / "clip"))
    (folder / "config.json").unlink()
    rewrite(folder / "config.json", model_type="clip", text_config={"model_type": "clip_text_model"})
    (folder / "modules.json").write_text(
        '[{"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.CLIPModel"}]'
    )
    assert describe(folder).max_length == 48
    rewrite(folder / "config.json", text_config={"max_position_embeddings": 20})
    assert describe(folder).max_length == 20


@pytest.mark.parametrize(("own", "said"), [(7, 7), (1_000_000, NO_LIMIT)])
def test_word_embeddings_have_their_own_length_and_take_no_other(
    tmp_path: Path, loaded: Loaded, own: int, said: int
) -> None:
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.models import Pooling, WordEmbeddings
    from sentence_transformers.models.tokenizer import WhitespaceTokenizer

    words = WordEmbeddings(
        WhitespaceTokenizer(["cat", "dog"]), np.eye(2, 4, dtype=np.float32), max_seq_length=own
    )
    SentenceTransformer(modules=[words, Pooling(4)], device="cpu").save(str(tmp_path / "words"))
    assert describe(tmp_path / "words").max_length == said
    # Since 5.4 the library cuts at that length.
    dogs = 0 if RENAMED and own == 7 else 0.1
    assert loaded(tmp_path / "words").encode(["cat " * 9 + "dog"])[0, 1] == pytest.approx(dogs)
    with pytest.raises(UsageError, match="cannot truncate its input"):
        loaded(tmp_path / "words", max_length=3)


def test_the_limit_asked_for_is_the_largest_towers(build: Build, router: Build) -> None:
    folder = router(build("q", max_seq_length=8), build("d", max_seq_length=32))
    assert resolve_encoding(describe(folder), Settings(max_length=64)).max_length == 64
    with pytest.raises(UsageError, match="Its limit is 64 tokens"):
        resolve_encoding(describe(folder), Settings(max_length=65))


# What is loaded is what lies in the folder, and what was hashed


@pytest.mark.parametrize(
    ("file", "fields"),
    [
        ("sentence_bert_config.json", {"model_args": {"variant": "fp16"}}),
        ("sentence_bert_config.json", {"model_args": {"use_safetensors": False}}),
        ("sentence_bert_config.json", {"model_args": {"gguf_file": "x.gguf"}}),
        ("sentence_bert_config.json", {"model_args": {"adapter_kwargs": {"revision": "x"}}}),
        ("sentence_bert_config.json", {"model_args": {"attn_implementation": "kernels-community/flash"}}),
        ("sentence_bert_config.json", {"model_args": {"use_kernels": True}}),
        ("sentence_bert_config.json", {"config_args": {"transformers_weights": "other.safetensors"}}),
        ("sentence_bert_config.json", {"config_args": {"auto_map": {"AutoModel": "org/x--m.C"}}}),
        ("sentence_bert_config.json", {"tokenizer_args": {"tokenizer_file": "/elsewhere/tokenizer.json"}}),
        ("sentence_bert_config.json", {"tokenizer_name_or_path": "org/other"}),
        ("config.json", {"transformers_weights": "other.safetensors"}),
        ("config.json", {"text_config": {"transformers_weights": "other.safetensors"}}),
        ("config.json", {"attn_implementation": "org/kernel"}),
        ("config.json", {"attn_implementation": {"text_config": "org/kernel"}}),
    ],
)
def test_settings_that_lead_elsewhere_are_refused(
    build: Build, rewrite: Rewrite, file: str, fields: dict[str, Any]
) -> None:
    folder = build()
    rewrite(folder / file, **fields)
    with pytest.raises(ModelError, match=rf"{re.escape(file)} sets \w+, which \w+"):
        describe(folder)


def test_the_weights_that_are_named_would_be_loaded(build: Build, rewrite: Rewrite) -> None:
    """What the refusal is for: transformers takes the file that the config names."""
    from sentence_transformers import SentenceTransformer

    folder = build()
    rewrite(folder / "config.json", transformers_weights="other.safetensors")
    with pytest.raises(FileNotFoundError, match=r"other\.safetensors"):
        SentenceTransformer(str(folder), device="cpu", local_files_only=True)


def test_settings_that_change_nothing_of_that_are_the_models_own(build: Build, rewrite: Rewrite) -> None:
    folder = build()
    rewrite(
        folder / "sentence_bert_config.json",
        model_args={"use_safetensors": True, "variant": None, "attn_implementation": "eager"},
        config_args={"hidden_dropout_prob": 0.0},
        tokenizer_args={},
        tokenizer_name_or_path=None,
    )
    assert describe(folder).max_length == 32


def test_an_adapter_beside_its_base_is_refused(build: Build, rewrite: Rewrite) -> None:
    folder = build()
    rewrite(folder / "adapter_config.json", base_model_name_or_path="org/base")
    with pytest.raises(ModelError, match="holds an adapter, whose base model lies elsewhere"):
        describe(folder)
