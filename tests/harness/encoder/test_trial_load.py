"""Folders as they are out there: right, or refused in one line before anything runs."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import torch
import transformers
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file, save_model
from tokenizers import Tokenizer

import faulty
import tiny
from blocked import BLOCKER
from harness.core.encoding import Encoding, Settings
from harness.core.errors import ModelError, UsageError
from harness.core.types import Artifact
from harness.encoder import trial_load
from harness.encoder.engine import Encoder
from harness.encoder.folder.description import describe
from harness.encoder.library_load import RENAMED
from harness.encoder.loading import load_any
from harness.encoder.resolved_encoding import resolve_encoding
from harness.encoder.sanity import check_encoder, require_sane
from harness.plan.models import Verdict, check_load
from preflights import check_model, collect_verdicts
from tiny import library

TEXTS = ["the cat sat on the mat", "a query", "stone and river, cloud and engine"]
SMALL = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}

Build = Callable[..., Path]
Loaded = Callable[..., Encoder]
MakeArtifact = Callable[..., Artifact]


@pytest.fixture
def vectors(artifact: MakeArtifact, loaded: Loaded) -> Callable[..., NDArray[np.float32]]:
    """The vectors of texts by a model that passes the preflight."""

    def vectors(folder: Path, texts: list[str] = TEXTS, **settings: Any) -> NDArray[np.float32]:
        passes(artifact(folder), **settings)
        return loaded(folder, **settings).encode(texts)

    return vectors


def passes(artifact: Artifact, *, gate: bool = False, **settings: Any) -> None:
    encoding = resolve_encoding(describe(artifact.folder), Settings(**settings))
    check_model(artifact, encoding, any_kind=settings.get("pooling") is not None, gate=gate)


def refused_by_gate(artifact: Artifact, **settings: Any) -> str:
    """The message of the gate on a model that loads, which is that of its trial."""
    encoding = resolve_encoding(describe(artifact.folder), Settings(**settings))

    def load() -> Any:
        return load_any(artifact, encoding, device="cpu")

    passes(artifact, **settings)
    with pytest.raises(ModelError) as refused:
        require_sane(check_encoder(load(), load, folder=artifact.folder, allow=artifact.allow))
    with pytest.raises(ModelError) as tried:
        passes(artifact, gate=True, **settings)
    assert (tried.value.message, tried.value.hint) == (f"tiny: {refused.value.message}", refused.value.hint)
    assert "\n" not in tried.value.message
    return refused.value.message


def saved(model: Any, folder: Path, tokenizer: Any = None) -> Path:
    """A folder with a model of random weights, drawn widely, and a tokenizer."""
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.3)
    model.eval().save_pretrained(folder)
    (tokenizer or tiny.tokenizer()).save_pretrained(folder)
    return folder


def alone(folder: Path, text: str) -> NDArray[np.float32]:
    """The mean of the token vectors of one text, by transformers."""
    tokens = transformers.AutoTokenizer.from_pretrained(folder)(text, return_tensors="pt")
    with torch.no_grad():
        hidden = transformers.AutoModel.from_pretrained(folder)(**tokens)[0]
    mean: NDArray[np.float32] = hidden[0].mean(dim=0).numpy()
    return mean


@pytest.mark.filterwarnings("ignore:Deprecated in 0.9.0")
def test_a_vocabulary_is_split_as_its_tokenizer_does(
    tmp_path: Path, vectors: Callable[..., NDArray[np.float32]]
) -> None:
    """bert-base-chinese has U+2028 as a token, which Python's splitlines takes for the end of a line."""
    words = [*tiny.tokenizer().get_vocab(), "\u2028", "\x85"]
    config = transformers.BertConfig(vocab_size=len(words), max_position_embeddings=64, **SMALL)
    folder = saved(transformers.BertModel(config), tmp_path / "model")
    for path in folder.glob("tokenizer*.json"):
        path.unlink()
    (folder / "vocab.txt").write_text("\n".join(words) + "\n", encoding="utf-8")
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "BertTokenizer"}')
    assert np.abs(vectors(folder) - library(folder).encode(TEXTS)).max() <= 1e-5


def headed(name: str, **settings: Any) -> Any:
    config: Any = getattr(transformers, f"{name}Config")(vocab_size=160, **settings)
    head = {"Qwen3": "ForCausalLM", "T5": "ForConditionalGeneration"}.get(name, "ForMaskedLM")
    return getattr(transformers, f"{name}{head}")(config)


LONG = {"max_position_embeddings": 66, "pad_token_id": 1, **SMALL}
TIED: dict[str, Callable[[], Any]] = {
    "Roberta": lambda: headed("Roberta", **LONG),
    "ModernBert": lambda: headed(
        "ModernBert", **{**LONG, **{f"{n}_token_id": 0 for n in ("pad", "bos", "eos", "cls", "sep")}}
    ),
    "MPNet": lambda: headed("MPNet", **LONG),
    "Qwen3": lambda: headed("Qwen3", num_key_value_heads=2, tie_word_embeddings=True, **SMALL),
    "T5": lambda: headed("T5", d_model=32, d_kv=8, num_layers=2, num_heads=4, d_ff=48),
}


@pytest.mark.parametrize("name", TIED)
def test_a_tied_table_may_be_stored_under_the_name_of_the_head(
    name: str, tmp_path: Path, vectors: Callable[..., NDArray[np.float32]]
) -> None:
    model = TIED[name]()
    whole = saved(model, tmp_path / "whole")
    other = Path(shutil.copytree(whole, tmp_path / "other"))
    save_model(model, str(other / "model.safetensors"))
    names = set(load_file(other / "model.safetensors"))
    assert len(set(load_file(whole / "model.safetensors")) - names) == 1
    assert np.array_equal(vectors(other, pooling="mean"), vectors(whole, pooling="mean"))


def test_a_tokenizer_class_that_no_setting_of_the_folder_changes(
    tmp_path: Path, artifact: MakeArtifact, rewrite: Callable[..., None]
) -> None:
    """Newer releases of transformers take Qwen2's own for every Qwen2."""
    config = transformers.Qwen2Config(vocab_size=160, num_key_value_heads=2, **SMALL)
    folder = saved(transformers.Qwen2Model(config), tmp_path / "model")
    rewrite(folder / "tokenizer_config.json", tokenizer_class="PreTrainedTokenizerFast")
    if type(transformers.AutoTokenizer.from_pretrained(folder)).__name__ == "Qwen2Tokenizer":
        with pytest.raises(ModelError, match=r"takes that class whatever .*: use transformers 5\.3, which"):
            passes(artifact(folder))
        passes(artifact(folder, allow=("tokenization",)))
    else:
        passes(artifact(folder))


def test_an_untied_decoder_is_no_token_embedding(
    tmp_path: Path, artifact: MakeArtifact, edit: Callable[..., None]
) -> None:
    folder = saved(headed("Roberta", tie_word_embeddings=False, **LONG), tmp_path / "model")
    edit(folder, lambda tensors: tensors.pop("roberta.embeddings.word_embeddings.weight"))
    with pytest.raises(ModelError, match=r"no file.*: (roberta\.)?embeddings\.word_embeddings\.weight"):
        passes(artifact(folder))


def test_prompts_that_are_null_are_none(build: Build, vectors: Callable[..., NDArray[np.float32]]) -> None:
    plain = vectors(build("plain"))
    for name, prompts in {"none": None, "empty": {"query": None, "document": ""}}.items():
        folder = build(name, library={"prompts": prompts, "default_prompt_name": None})
        assert np.array_equal(vectors(folder), plain)


@pytest.mark.parametrize(("length", "meant"), [(8.0, 8), (-1, 48), (None, 48)])
def test_a_length_is_read_in_every_form(
    length: Any, meant: int, build: Build, vectors: Callable[..., NDArray[np.float32]]
) -> None:
    long = [" ".join(TEXTS * 8)]
    assert np.array_equal(
        vectors(build("odd", max_seq_length=length), long),
        vectors(build("plain", max_seq_length=meant), long),
    )


LENGTHS = ["32", True, 32.5, float("nan"), 0, -2, [32]]
FAULTS = {
    **{f"length {one!r}": ("sentence_bert_config.json", {"max_seq_length": one}) for one in LENGTHS},
    "prompts": ("config_sentence_transformers.json", {"prompts": ["x"]}),
    "a prompt": ("config_sentence_transformers.json", {"prompts": {"query": 3}}),
    "default prompt": ("config_sentence_transformers.json", {"default_prompt_name": ["query"]}),
    "cut": ("config_sentence_transformers.json", {"truncate_dim": 0}),
    "query length": ("config_sentence_transformers.json", {"query_length": "32"}),
    "expansion": ("config_sentence_transformers.json", {"attend_to_expansion_tokens": 1}),
    "skip list": ("config_sentence_transformers.json", {"skiplist_words": "the"}),
    "prefix": ("config_sentence_transformers.json", {"query_prefix": 3}),
    "own query length": ("sentence_bert_config.json", {"query_length": 0}),
    "classes": ("config.json", {"architectures": "BertModel"}),
    "text": ("config.json", {"text_config": [1]}),
    "labels": ("config.json", {"id2label": [1]}),
    "width": ("config.json", {"hidden_size": 32.5}),
    "epsilon": ("config.json", {"layer_norm_eps": "x"}),
    "epsilon below 0": ("config.json", {"rms_norm_eps": -1}),
    "base": ("config.json", {"rope_theta": 0}),
    "groups": ("config.json", {"num_hidden_groups": 2**31}),
    "dropout": ("config.json", {"hidden_dropout_prob": "nan"}),
    "tokens": ("tokenizer_config.json", {"added_tokens_decoder": [1]}),
    "tokenizer": ("tokenizer_config.json", {"tokenizer_class": ["x"]}),
    "tokenizer length": ("tokenizer_config.json", {"model_max_length": "64"}),
    "side": ("tokenizer_config.json", {"padding_side": "both"}),
    "added": ("added_tokens.json", {"x": "y"}),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_value_of_another_type_is_named(
    fault: str, build: Build, artifact: MakeArtifact, rewrite: Callable[..., None]
) -> None:
    name, fields = FAULTS[fault]
    folder = build(library={})
    rewrite(folder / name, **fields)
    (field,) = fields
    with pytest.raises(ModelError, match=rf"{name} has {field} = .*\nIt must be ") as caught:
        describe(folder)
    assert str(caught.value).count("\n") == 1


@pytest.mark.parametrize("kind", ["Roberta", "Mistral"])
@pytest.mark.parametrize(
    "fields",
    [{"hidden_act": "nope"}, {"hidden_act": ["gelu"]}, {"pad_token_id": 10_000}, {"num_attention_heads": -1}],
)
def test_a_value_that_makes_no_network_is_refused_by_the_trial(
    kind: str, fields: dict[str, Any], tmp_path: Path, artifact: MakeArtifact, rewrite: Callable[..., None]
) -> None:
    settings = LONG if kind == "Roberta" else {**SMALL, "num_key_value_heads": 2}
    config = getattr(transformers, f"{kind}Config")(vocab_size=160, **settings)
    folder = saved(transformers.AutoModel.from_config(config), tmp_path / "model")
    passes(artifact(folder))
    rewrite(folder / "config.json", **fields)
    with pytest.raises(ModelError) as caught:
        passes(artifact(folder))
    assert len(str(caught.value).splitlines()) <= 2


def test_a_config_of_several_models_that_is_none_is_refused_by_the_trial(
    tmp_path: Path, artifact: MakeArtifact, rewrite: Callable[..., None]
) -> None:
    config = transformers.AlbertConfig(vocab_size=160, embedding_size=16, **SMALL)
    folder = saved(transformers.AlbertModel(config), tmp_path / "model")
    passes(artifact(folder))
    rewrite(folder / "config.json", text_config={"hidden_size": 32})
    if RENAMED:
        pytest.skip("the newest libraries load it")
    with pytest.raises(ModelError, match="does not load"):
        passes(artifact(folder))


@pytest.mark.parametrize("content", ["[" * 100_000 + "]" * 100_000, '{"a":' * 3000 + "1" + "}" * 3000])
def test_json_that_is_nested_too_deeply_is_refused(content: str, build: Build) -> None:
    folder = build()
    (folder / "config.json").write_text(content)
    with pytest.raises(ModelError, match="nested too deeply"):
        describe(folder)


def test_an_unknown_default_prompt_is_refused(build: Build) -> None:
    folder = build(library={"prompts": {"passage": "p: "}, "default_prompt_name": "nope"})
    with pytest.raises(ModelError, match=r"default prompt 'nope'.*\nIt has document, passage, query\."):
        describe(folder)


def test_xlnet_has_no_length(tmp_path: Path, vectors: Callable[..., NDArray[np.float32]]) -> None:
    """Its config says -1."""
    config = transformers.XLNetConfig(vocab_size=160, d_model=32, n_layer=2, n_head=4, d_inner=48)
    folder = saved(transformers.XLNetModel(config), tmp_path / "model")
    long = [*TEXTS, " ".join(TEXTS * 40)]
    expected = np.stack([alone(folder, text) for text in long])
    assert np.abs(vectors(folder, long) - expected).max() <= 1e-5


def test_gpt2_has_no_padding_token(tmp_path: Path, vectors: Callable[..., NDArray[np.float32]]) -> None:
    tokenizer = tiny.tokenizer()
    tokenizer.pad_token, tokenizer.eos_token = None, "[SEP]"
    config = transformers.GPT2Config(vocab_size=160, n_positions=64, n_embd=32, n_layer=2, n_head=4)
    folder = saved(transformers.GPT2Model(config), tmp_path / "model", tokenizer)
    assert np.abs(vectors(folder) - np.stack([alone(folder, text) for text in TEXTS])).max() <= 1e-5


def test_dpr_is_refused_with_a_way_to_evaluate_it(
    tmp_path: Path,
    artifact: MakeArtifact,
    vectors: Callable[..., NDArray[np.float32]],
    rewrite: Callable[..., None],
) -> None:
    config = transformers.DPRConfig(vocab_size=160, max_position_embeddings=64, **SMALL)
    folder = saved(transformers.DPRContextEncoder(config), tmp_path / "model")
    with pytest.raises(ModelError, match="gives no vector for each token") as caught:
        passes(artifact(folder))
    assert "ctx_encoder.bert_model.save_pretrained(new)" in str(caught.value)
    dpr: Any = transformers.DPRContextEncoder.from_pretrained(folder)
    inner = tmp_path / "bert"
    dpr.ctx_encoder.bert_model.save_pretrained(inner)
    rewrite(inner / "config.json", model_type="bert")
    tiny.tokenizer().save_pretrained(inner)
    tokens = tiny.tokenizer()(TEXTS, padding=True, return_tensors="pt")
    with torch.no_grad():
        expected = dpr.eval()(**tokens).pooler_output.numpy()
    assert np.abs(vectors(inner, pooling="cls") - expected).max() <= 1e-5


def test_a_class_that_takes_no_texts_of_any_length_is_refused(tmp_path: Path, artifact: MakeArtifact) -> None:
    """Nyströmformer wants multiples of its landmarks, which fails at the first text."""
    config = transformers.NystromformerConfig(
        vocab_size=160, num_landmarks=8, segment_means_seq_len=64, **SMALL
    )
    folder = saved(transformers.NystromformerModel(config), tmp_path / "model")
    with pytest.raises(ModelError, match="does not load: RuntimeError: shape"):
        passes(artifact(folder))


WIDE = {"vocab_size": 160, "max_position_embeddings": 512, "pad_token_id": 0, **SMALL}
PADDED: dict[str, Callable[[], Any]] = {
    "ConvBERT": lambda: transformers.ConvBertModel(
        transformers.ConvBertConfig(embedding_size=32, head_ratio=2, **WIDE)
    ),
    "YOSO": lambda: transformers.YosoModel(transformers.YosoConfig(use_expectation=True, **WIDE)),
    "Nyströmformer": lambda: transformers.NystromformerModel(transformers.NystromformerConfig(**WIDE)),
    "FNet": lambda: transformers.FNetModel(
        transformers.FNetConfig(**{k: v for k, v in WIDE.items() if k != "num_attention_heads"})
    ),
    "Canine": lambda: transformers.CanineModel(
        transformers.CanineConfig(**{k: v for k, v in WIDE.items() if k != "vocab_size"})
    ),
}
"""By name: a class of transformers whose vectors depend on padding."""


@pytest.mark.parametrize("name", PADDED)
def test_a_class_that_sees_padding_is_refused_by_the_trial(
    name: str, tmp_path: Path, artifact: MakeArtifact
) -> None:
    folder = saved(PADDED[name](), tmp_path / "model")
    assert "of its length when its batch is padded" in refused_by_gate(artifact(folder))


def test_a_class_with_another_vector_at_each_pass_is_refused_by_the_trial(
    tmp_path: Path, artifact: MakeArtifact
) -> None:
    """Reformer draws its hashes at random, so that no message has the same numbers."""
    config = transformers.ReformerConfig(
        axial_pos_shape=[8, 64],
        axial_pos_embds_dim=[16, 16],
        attn_layers=["local", "lsh"],
        num_buckets=4,
        attention_head_size=8,
        feed_forward_size=48,
        **WIDE,
    )
    folder = saved(transformers.ReformerModel(config), tmp_path / "model")
    with pytest.raises(ModelError, match="of its length after other texts"):
        passes(artifact(folder), gate=True)


def test_a_class_that_fails_at_long_texts_is_refused_by_the_trial(
    tmp_path: Path, artifact: MakeArtifact
) -> None:
    """LED's positions end before the text does, and nothing in its config that is known here says where."""
    sizes = {f"{side}_{what}": size for side in ("encoder", "decoder") for what, size in LED.items()}
    config = transformers.LEDConfig(
        vocab_size=160, d_model=32, attention_window=8, max_encoder_position_embeddings=64, **sizes
    )
    folder = saved(transformers.LEDModel(config), tmp_path / "model")
    passes(artifact(folder))
    with pytest.raises(ModelError, match="tiny does not run: IndexError"):
        passes(artifact(folder), gate=True)


LED = {"layers": 1, "attention_heads": 4, "ffn_dim": 48}


def fill(value: float) -> Callable[[dict[str, Any]], None]:
    return lambda tensors: [tensor.fill_(value) for tensor in tensors.values()] and None


@pytest.mark.parametrize(("value", "message"), [(float("nan"), "are not finite"), (0, "the same vector")])
@pytest.mark.parametrize("dense", [True, False])
def test_weights_that_give_no_vectors_are_refused_by_the_trial(
    value: float, message: str, dense: bool, build: Build, artifact: MakeArtifact, edit: Callable[..., None]
) -> None:
    folder = build(dense=dense)
    edit(folder / "2_Dense" if dense else folder, fill(value))
    assert message in refused_by_gate(artifact(folder))


def test_attention_that_makes_rounding_large_is_refused_by_the_trial(
    copy: Path, artifact: MakeArtifact, edit: Callable[..., None]
) -> None:
    def add_to_all_scores(tensors: dict[str, Any]) -> None:
        """An offset of all keys cancels in a softmax, but for rounding."""
        for name, tensor in tensors.items():
            if name.endswith("self.key.bias"):
                tensor.fill_(1e6)

    edit(copy, add_to_all_scores)
    assert "moves by" in refused_by_gate(artifact(copy))


def test_a_token_without_a_vector_is_refused_by_the_trial(
    copy: Path, artifact: MakeArtifact, edit: Callable[..., None]
) -> None:
    number = json.loads((copy / "tokenizer.json").read_text())["model"]["vocab"]["def"]
    edit(copy, lambda tensors: tensors["embeddings.word_embeddings.weight"][number].fill_(float("inf")))
    assert (
        "vectors of short test texts are not finite, that of 'def add(a, b): return a + b' first"
        in refused_by_gate(artifact(copy))
    )


def test_a_pooling_of_another_width_is_refused_by_the_trial(build: Build, artifact: MakeArtifact) -> None:
    folder = build()
    faulty.rewrite(folder / "1_Pooling/config.json", word_embedding_dimension=48)
    assert "vectors of 48 numbers, and they have 32" in refused_by_gate(artifact(folder))


def test_a_model_that_does_not_fit_the_free_memory_is_noted_and_not_tried(
    tmp_path: Path,
    artifact: MakeArtifact,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    model = artifact(saved(PADDED["ConvBERT"](), tmp_path / "model"))
    room = psutil.virtual_memory()
    size = (model.folder / "model.safetensors").stat().st_size
    monkeypatch.setattr(psutil, "virtual_memory", lambda: room._replace(available=2 * size - 1))
    for _ in range(2):
        verdict = judged(model, tmp_path / "cache", gate=True)
        assert verdict.message is None
        assert re.search(r"^twice its weights are 0\.0 GB", str(verdict.note))
    passes(model, gate=True)
    line = capsys.readouterr().err.splitlines()[-1]
    assert line == f"tiny is not tried before a run, which may refuse it: {verdict.note}."
    # It is tried as soon as there is room.
    monkeypatch.setattr(psutil, "virtual_memory", lambda: room._replace(available=2 * size))
    assert "when its batch is padded" in str(judged(model, tmp_path / "cache", gate=True).message)


def test_a_verdict_is_that_of_a_gate_and_of_what_is_allowed(build: Build, artifact: MakeArtifact) -> None:
    folder = build(library={"prompts": {"passage": "passage: "}})
    cache, allowed = folder.parent / "cache", artifact(folder, allow=("unused-prompt",))
    for _ in range(2):
        assert judged(artifact(folder), cache).message is None
        assert "No text gets its prompt 'passage'" in str(judged(artifact(folder), cache, gate=True).message)
        assert judged(allowed, cache, gate=True).message is None


def test_a_class_that_does_not_run_without_memory_is_no_fault_where_it_is_too_large_to_load(
    tmp_path: Path, artifact: MakeArtifact, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = transformers.LongformerConfig(
        vocab_size=160, max_position_embeddings=66, pad_token_id=0, attention_window=8, **SMALL
    )
    folder = saved(transformers.LongformerModel(config), tmp_path / "model")
    room = psutil.virtual_memory()
    monkeypatch.setattr(psutil, "virtual_memory", lambda: room._replace(available=0))
    passes(artifact(folder), pooling="mean")


@pytest.mark.parametrize("zipped", [True, False])
def test_a_nested_state_dict_is_refused_with_its_cure(
    zipped: bool, copy: Path, artifact: MakeArtifact, vectors: Callable[..., NDArray[np.float32]]
) -> None:
    before = vectors(copy)
    state = load_file(copy / "model.safetensors")
    (copy / "model.safetensors").unlink()
    path = copy / "pytorch_model.bin"
    torch.save({"epoch": 3, "state_dict": state}, path, _use_new_zipfile_serialization=zipped)
    with pytest.raises(ModelError, match="is a training checkpoint") as caught:
        passes(artifact(copy))
    command = str(caught.value).split("`")[1]
    subprocess.run([sys.executable, *shlex.split(command)[1:]], check=True)
    assert np.array_equal(vectors(copy), before)


@pytest.mark.parametrize("kind", ["LSTM", "CNN"])
def test_a_text_of_unknown_words_is_as_beside_others(
    kind: str, tmp_path: Path, vectors: Callable[..., NDArray[np.float32]]
) -> None:
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.models import CNN, LSTM, Pooling, WordEmbeddings
    from sentence_transformers.models.tokenizer import WhitespaceTokenizer

    from harness.encoder.library_load import get_dimension

    torch.manual_seed(1)
    words = ["PADDING_TOKEN", *sorted({word for text in TEXTS for word in text.split()})]
    table = np.random.default_rng(1).normal(size=(len(words), 16)).astype(np.float32)
    table[0] = 0
    layer: Any = LSTM(16, 12) if kind == "LSTM" else CNN(16, 8)
    embeddings = WordEmbeddings(WhitespaceTokenizer(words, stop_words=[]), table)
    modules = [embeddings, layer, Pooling(get_dimension(layer))]
    SentenceTransformer(modules=modules, device="cpu").save(str(tmp_path / "model"))
    reference = library(tmp_path / "model")
    for texts in (TEXTS, [*TEXTS, "xyz uvw"]):
        assert np.abs(vectors(tmp_path / "model", texts) - reference.encode(texts)).max() <= 1e-6
    unknown = vectors(tmp_path / "model", ["xyz uvw", "qqq"])
    assert np.abs(unknown - reference.encode([*TEXTS, "xyz uvw"])[3]).max() <= 1e-6


def test_a_length_must_leave_something_of_a_text(copy: Path, artifact: MakeArtifact) -> None:
    passes(artifact(copy), max_length=3)
    for length in (1, 2):
        with pytest.raises(
            UsageError, match=rf"length of {length} leaves nothing of a text: .* adds 2 tokens"
        ):
            passes(artifact(copy), max_length=length)


def test_a_length_must_leave_something_of_a_text_where_only_a_load_tells(
    build: Build, artifact: MakeArtifact
) -> None:
    folder = build()
    config = json.loads((folder / "sentence_bert_config.json").read_text())
    # What arguments of a user's do is left to a load.
    config["tokenizer_args"] = {"model_max_length": 64}
    (folder / "sentence_bert_config.json").write_text(json.dumps(config))
    passes(artifact(folder), max_length=3)
    with pytest.raises(UsageError, match="length of 2 leaves nothing of a text"):
        passes(artifact(folder), max_length=2)


def test_a_word_that_is_a_special_token_has_a_row(build: Build, artifact: MakeArtifact) -> None:
    folder = build()
    config = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps({**config, "mask_token": "é"}))
    with pytest.raises(ModelError, match="tokens up to number"):
        passes(artifact(folder))


def test_words_are_not_cut(tmp_path: Path, artifact: MakeArtifact) -> None:
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.models import BoW

    SentenceTransformer(modules=[BoW(["cat", "dog"], {"cat": 1.0, "dog": 1.0})]).save(str(tmp_path / "model"))
    passes(artifact(tmp_path / "model"))
    with pytest.raises(UsageError, match="cannot truncate its input"):
        passes(artifact(tmp_path / "model"), max_length=8)


def test_padding_and_truncation_in_tokenizer_json_make_no_other_tokens(
    copy: Path, artifact: MakeArtifact
) -> None:
    tokenizer = Tokenizer.from_file(str(copy / "tokenizer.json"))
    tokenizer.enable_padding(length=40)
    tokenizer.enable_truncation(4)
    tokenizer.save(str(copy / "tokenizer.json"))
    passes(artifact(copy))


def test_a_tied_table_that_is_stored_twice_with_other_numbers(tmp_path: Path, artifact: MakeArtifact) -> None:
    config = transformers.T5Config(vocab_size=260, d_model=32, d_kv=8, d_ff=64, num_layers=1, num_heads=4)
    folder = saved(transformers.T5EncoderModel(config), tmp_path / "model")
    tensors = load_file(folder / "model.safetensors")
    for added in (0, 1):
        twice = {**tensors, "encoder.embed_tokens.weight": tensors["shared.weight"] + added}
        save_file(twice, folder / "model.safetensors", {"format": "pt"})
        if not added:
            passes(artifact(folder))
    with pytest.raises(ModelError, match=r"shared\.weight twice: other numbers are in encoder\.embed_tokens"):
        passes(artifact(folder))


def test_an_xlnet_that_reads_half_of_a_batch_backwards_is_refused(
    tmp_path: Path, artifact: MakeArtifact, rewrite: Callable[..., None]
) -> None:
    sizes = {"d_model": 32, "n_layer": 1, "n_head": 4, "d_inner": 64}
    model = transformers.XLNetModel(transformers.XLNetConfig(vocab_size=len(tiny.tokenizer()), **sizes))
    folder = saved(model, tmp_path / "model")
    passes(artifact(folder))
    rewrite(folder / "config.json", bi_data=True)
    with pytest.raises(ModelError, match='"bi_data": true: half of a batch would be read backwards'):
        passes(artifact(folder))


def test_a_tokenizer_without_a_mask_is_refused(
    copy: Path, artifact: MakeArtifact, rewrite: Callable[..., None]
) -> None:
    passes(artifact(copy))
    rewrite(copy / "tokenizer_config.json", model_input_names=["input_ids", "token_type_ids"])
    with pytest.raises(ModelError, match="gives no attention mask: padding would be in vectors"):
        passes(artifact(copy))


def judged(artifact: Artifact, cache: Path, *, gate: bool = False) -> Verdict:
    encoding: Encoding = resolve_encoding(describe(artifact.folder), Settings())
    return collect_verdicts([(artifact, encoding)], cache, gate=gate)[0]


@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("BertModel", None),
        ("BertForMaskedLM", None),
        ("BertLMHeadModel", None),
        ("NoSuchModel", None),
        ("RobertaModel", "roberta"),
        ("BertGenerationEncoder", "bert-generation"),
    ],
)
def test_a_class_of_another_model_type_is_refused(
    name: str, other: str | None, copy: Path, artifact: MakeArtifact, rewrite: Callable[..., None]
) -> None:
    rewrite(copy / "config.json", architectures=[name])
    if other is None:
        passes(artifact(copy))
        return
    with pytest.raises(ModelError, match=f"says model_type 'bert', and {name} has '{other}'"):
        passes(artifact(copy))


def test_a_folder_is_tried_once_for_each_content(
    copy: Path,
    artifact: MakeArtifact,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    rewrite: Callable[..., None],
) -> None:
    tried: list[Path] = []
    real = trial_load.try_load

    def counted(model: Artifact, encoding: Encoding, *, gate: bool) -> tuple[int, str | None]:
        tried.append(model.folder)
        return real(model, encoding, gate=gate)

    monkeypatch.setattr(trial_load, "try_load", counted)
    cache = tmp_path / "cache"
    assert judged(artifact(copy), cache) == judged(artifact(copy), cache) == Verdict(special_tokens=2)
    assert len(tried) == 1
    # A copy has the same content, and a file of the cache that is damaged does not count.
    other = Path(shutil.copytree(copy, tmp_path / "other"))
    assert judged(artifact(other), cache) == Verdict(special_tokens=2)
    assert len(tried) == 1
    (place,) = (cache / "verdicts").iterdir()
    place.write_bytes(place.read_bytes().replace(b'"special_tokens": 2', b'"special_tokens": 0'))
    assert judged(artifact(copy), cache) == Verdict(special_tokens=2)
    assert len(tried) == 2
    rewrite(copy / "config.json", architectures=["RobertaModel"])
    refusal = judged(artifact(copy), cache)
    assert "says model_type 'bert'" in str(refusal.message)
    assert judged(artifact(copy), cache) == refusal
    assert len(tried) == 3
    # A refusal names its model; and what a library's error says may be otherwise tomorrow.
    judged(replace(artifact(copy), name="other"), cache)
    assert len(tried) == 4
    rewrite(copy / "config.json", architectures=["BertModel"], hidden_act="nope")
    assert "does not load: KeyError" in str(judged(artifact(copy), cache).message)
    assert "does not load: KeyError" in str(judged(artifact(copy), cache).message)
    assert len(tried) == 6


SHORT = RuntimeError(
    "[enforce fail at alloc_cpu.cpp:117] DefaultCPUAllocator: can't allocate memory: 9 bytes."
)


@pytest.mark.parametrize("error", [SHORT, MemoryError(), OSError(12, "Cannot allocate memory")])
@pytest.mark.parametrize(
    "place", ["trial_load.AutoTokenizer.from_pretrained", "loading._build", "sanity.check_encoder"]
)
def test_a_shortage_of_memory_is_noted_and_is_no_fault_of_a_model(
    place: str, error: Exception, tmp_path: Path, artifact: MakeArtifact, monkeypatch: pytest.MonkeyPatch
) -> None:
    """torch, Python and the system report it, in the tokenizer, the load or a pass."""
    model, cache = artifact(saved(PADDED["ConvBERT"](), tmp_path / "model")), tmp_path / "cache"

    def fail(*_: Any, **__: Any) -> None:
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(f"harness.encoder.{place}", fail)
        if "Tokenizer" in place:
            patch.setattr("harness.encoder.loading._build", fail)
        verdict = judged(model, cache, gate=True)
    assert verdict.message is None
    assert re.search(r"(allocate memory.*|MemoryError)$", str(verdict.note))
    assert "when its batch is padded" in str(judged(model, cache, gate=True).message)


@pytest.mark.parametrize(
    ("error", "note"),
    [
        ("ValueError('Pointer')", "on the CPU its trial ends with ValueError: Pointer"),
        ("ImportError('mine')", None),
    ],
)
@pytest.mark.parametrize("method", ["__init__", "forward"])
def test_code_of_its_own_may_run_on_a_gpu_alone(
    method: str,
    error: str,
    note: str | None,
    copy: Path,
    artifact: MakeArtifact,
    rewrite: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What fails in it on the CPU is no fault, unless it is a package that is not here."""
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(copy.parent / "modules"))
    auto_map = {"AutoConfig": "modeling.Config", "AutoModel": "modeling.Model"}
    rewrite(copy / "config.json", model_type="mine", auto_map=auto_map)
    (copy / "modeling.py").write_text(f"""
from transformers import BertConfig, BertModel
class Config(BertConfig):
    model_type = "mine"
class Model(BertModel):
    config_class = Config
    def {method}(self, *_, **__):
        raise {error}
""")
    verdict = judged(artifact(copy, trust_remote_code=True), copy.parent / "cache", gate=True)
    assert (verdict.note, verdict.message is None) == (note, note is not None)
    assert not (copy.parent / "cache").exists()


def test_a_model_that_ends_the_process_costs_no_other_its_verdict(
    copy: Path, artifact: MakeArtifact, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each process answers up to the model named "end", in which it is killed."""
    program = """
import json, os, pickle, sys
for model, _ in pickle.load(sys.stdin.buffer)[0]:
    if model.name == "end":
        os.kill(os.getpid(), 9)
    print(json.dumps({"special_tokens": len(model.name)}), flush=True)
"""
    one = artifact(copy)
    names = ["a", "end", "end", "four", "end"]
    models = [(replace(one, name=name), resolve_encoding(describe(copy), Settings())) for name in names]
    monkeypatch.setattr("harness.plan.models.START", program)
    monkeypatch.delitem(sys.modules, "torch")
    verdicts = collect_verdicts(models, None)
    assert [verdict.special_tokens for verdict in verdicts] == [1, 0, 0, 4, 0]
    assert [verdict.note for verdict in verdicts if not verdict.lasting] == [
        "its trial ended with code -9"
    ] * 3


def test_a_trial_goes_on_beside_other_work_and_ends_with_it(
    copy: Path, artifact: MakeArtifact, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The trial waits for the work to end it, so that one after the other would never end."""
    done, pid = tmp_path / "done", tmp_path / "pid"
    program = f"""
import json, os, time
from pathlib import Path
Path({str(pid)!r}).write_text(str(os.getpid()))
while not Path({str(done)!r}).exists():
    time.sleep(0.01)
print(json.dumps({{"message": "It does not load."}}), flush=True)
"""
    models = [(artifact(copy), resolve_encoding(describe(copy), Settings()))]
    monkeypatch.setattr("harness.plan.models.START", program)
    monkeypatch.setattr("harness.plan.models.SECONDS", 60)
    monkeypatch.delitem(sys.modules, "torch")

    def fail(error: type[BaseException]) -> None:
        with check_load(models, None, gate=True):
            while not (pid.exists() and pid.read_text()):
                time.sleep(0.01)
            if error is ValueError:
                done.touch()
            raise error

    # What does not load is said in place of an error to which it may have led.
    with pytest.raises(ModelError, match="It does not load"):
        fail(ValueError)
    done.unlink()
    pid.unlink()
    with pytest.raises(KeyboardInterrupt):
        fail(KeyboardInterrupt)
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid.read_text()), 0)


def test_it_is_said_what_a_long_trial_does_and_that_it_ended_early(
    copy: Path,
    artifact: MakeArtifact,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("harness.plan.models.START", "import time; time.sleep(60)")
    monkeypatch.setattr("harness.plan.models.QUIET_SECONDS", 0.1)
    monkeypatch.setattr("harness.plan.models.SECONDS", 0.2)
    monkeypatch.delitem(sys.modules, "torch")
    verdict = judged(artifact(copy), tmp_path / "cache", gate=True)
    assert capsys.readouterr().err == "Trying tiny on the CPU, once for each content\n"
    (path,) = (tmp_path / "cache/verdicts").iterdir()
    note = f"its trial took more than 0.2 s; to try it again, remove {path}"
    assert verdict == Verdict(note=note)
    # It is not waited for again.
    assert judged(artifact(copy), tmp_path / "cache", gate=True) == verdict
    assert capsys.readouterr().err == ""


def test_a_plan_tries_models_in_another_process(
    copy: Path, tmp_path: Path, rewrite: Callable[..., None]
) -> None:
    other = Path(shutil.copytree(copy, tmp_path / "other"))
    rewrite(other / "config.json", hidden_act="nope")
    program = f"""{BLOCKER}
from pathlib import Path
from harness.core.encoding import Settings
from harness.core.errors import ModelError
from harness.plan.models import ModelOptions, resolve_models
options = ModelOptions(cache=Path({str(tmp_path / "cache")!r}))
print(resolve_models([{str(copy)!r}], Settings(), options)[0].encoding.max_length)
try:
    resolve_models([{str(copy)!r}, {str(other)!r}], Settings(), options)
except ModelError as error:
    print(error)
print("torch" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    first, message, *_, last = done.stdout.splitlines()
    assert (first, last) == ("48", "False")
    assert message.startswith("other does not load: KeyError: 'nope'")
    (path,) = (tmp_path / "cache" / "verdicts").iterdir()
    assert json.loads(path.read_text())["special_tokens"] == 2


@pytest.mark.parametrize("names", [["0", "0"], ["0", ""], ["0", "a.b"]])
def test_modules_without_names_of_their_own_are_refused(names: list[str], build: Build) -> None:
    """The library keeps modules by name, and drops the first of two alike."""
    folder = build()
    modules = json.loads((folder / "modules.json").read_text())
    for module, name in zip(modules, names, strict=True):
        module["name"] = name
    (folder / "modules.json").write_text(json.dumps(modules))
    with pytest.raises(ModelError, match="without a name of its own"):
        describe(folder)


@pytest.mark.parametrize(
    ("module", "field", "value"),
    [
        ("1_Pooling", "word_embedding_dimension", None),
        ("1_Pooling", "other", 3),
        ("2_Dense", "activation_function", "torch.nn.modules.linear.None"),
        ("2_Dense", "other", 3),
    ],
)
def test_modules_that_do_not_load_are_refused(
    module: str, field: str, value: Any, build: Build, artifact: MakeArtifact
) -> None:
    folder = build(dense=True)
    passes(artifact(folder))
    faulty.rewrite(folder / module / "config.json", **{field: value})
    with pytest.raises(
        ModelError, match=r"does not load|has no word_embedding_dimension|has the setting 'other'"
    ):
        passes(artifact(folder))


def test_a_dense_layer_of_another_width_than_its_backbone_is_refused(
    build: Build, artifact: MakeArtifact
) -> None:
    folder = build(dense=True)
    shutil.copytree(
        build("cls", pooling="cls+mean", dense=True) / "2_Dense", folder / "2_Dense", dirs_exist_ok=True
    )
    with pytest.raises(ModelError, match="does not load"):
        passes(artifact(folder))


def test_vectors_beyond_float16_are_refused_where_they_are_kept_so(
    build: Build, artifact: MakeArtifact, edit: Callable[..., None]
) -> None:
    """The largest number of float16 is 65,504; scaled vectors never come near it."""
    folder = build(dense=True)
    passes(artifact(folder), vectors="float16")
    edit(folder / "2_Dense", lambda tensors: tensors.update({n: t * 1e6 for n, t in tensors.items()}))
    faulty.rewrite(folder / "2_Dense/config.json", activation_function="torch.nn.modules.linear.Identity")
    passes(artifact(folder))
    passes(artifact(folder), vectors="float16", normalize=True)
    with pytest.raises(ModelError, match=r"tiny: A vector .* above 65,504"):
        passes(artifact(folder), vectors="float16")
