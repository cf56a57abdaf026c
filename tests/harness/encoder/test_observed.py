"""What files declare and what a loaded model does, of small folders in many layouts, written down by hand."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import late_models
import tiny
from harness.core.arguments import ALLOWANCES
from harness.core.encoding import Settings
from harness.core.errors import ModelError
from harness.core.types import Artifact
from harness.encoder.folder.description import describe
from harness.encoder.folder.preflight import check_folder
from harness.encoder.resolved_encoding import resolve_encoding
from harness.encoder.sanity import check_encoder
from harness.results.differences import is_field_name
from preflights import check_model, collect_verdicts

Build = Callable[..., Path]

SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
SPECIALS = ["<pad>", "<s>", "</s>", "<mask>"]
PLAIN: dict[str, tuple[Any, Any]] = {
    "max_length": (48, 48),
    "first_token": ("[CLS]", "[CLS]"),
    "last_token": ("[SEP]", "[SEP]"),
    "padding_side": (None, "right"),
    "lower_case": (None, False),
    "attention": ("both ways", "both ways"),
    "dtype": ("float32", "float32"),
    "normalize": (False, False),
    "dimension": (32, 32),
    "prompts": ([], []),
}
"""The observations of the bare BERT."""
SAVED = {**PLAIN, "max_length": (32, 32)}
"""Those of one that sentence-transformers has saved."""
DECODER = {
    **PLAIN,
    "max_length": (64, 64),
    "first_token": ("", ""),
    "last_token": ("", ""),
    "lower_case": (None, False),
    "attention": ("causal", "causal"),
}


def write_bytes(folder: Path, single: str, **config: Any) -> Path:
    """Put a byte-level tokenizer with this template into a folder."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({one: at for at, one in enumerate([*SPECIALS, *alphabet])}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.add_special_tokens(SPECIALS)
    used = [(one, SPECIALS.index(one)) for one in SPECIALS if one in single]
    tokenizer.post_processor = processors.TemplateProcessing(single=single, special_tokens=used)
    folder.mkdir(exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    named = {"pad_token": "<pad>", "model_max_length": 64, "tokenizer_class": "PreTrainedTokenizerFast"}
    (folder / "tokenizer_config.json").write_text(json.dumps({**named, **config}))
    return folder


def write_network(folder: Path, kind: str, tokens: int = 260, **config: Any) -> Path:
    """Put a tiny network of a transformers model type into a folder."""
    import torch
    from transformers import AutoConfig, AutoModel

    sizes = {**SIZES, "vocab_size": tokens, "max_position_embeddings": 64, "pad_token_id": 0}
    settings = AutoConfig.for_model(kind, **{**sizes, **config})
    if "is_causal" in config:
        settings.is_causal = config["is_causal"]
    torch.manual_seed(2)
    model = AutoModel.from_config(settings)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.normal_(std=0.2)
    model.save_pretrained(folder)
    return folder


def decoder(target: Path, single: str = "$A", *, kind: str = "qwen2", files: Any = (), **config: Any) -> Path:
    """A tiny decoder."""
    return write_network(write_bytes(target, single, **dict(files)), kind, num_key_value_heads=2, **config)


ADDS = {"bos_token": "<s>", "eos_token": "</s>", "add_bos_token": True, "add_eos_token": True}


def encoder_without(target: Path) -> Path:
    return write_network(write_bytes(target, "$A", cls_token="<s>", sep_token="</s>"), "bert")


def upper(target: Path) -> Path:
    """A tokenizer of bytes that is said to lower the case."""
    return write_network(write_bytes(target, "<s> $A </s>", do_lower_case=True), "bert")


MAKERS: dict[str, tuple[Callable[[Path], Path], dict[str, Any], dict[str, tuple[Any, Any]], str]] = {
    "qwen2": (decoder, {}, DECODER, ""),
    "qwen2 that is not causal": (
        lambda f: decoder(f, is_causal=False),
        {},
        {**DECODER, "attention": ("both ways", "both ways")},
        "",
    ),
    "mistral with both ends": (
        lambda f: decoder(f, "<s> $A </s>", kind="mistral", files={**ADDS, "padding_side": "left"}),
        {},
        {
            **DECODER,
            "first_token": ("<s>", "<s>"),
            "last_token": ("</s>", "</s>"),
            "padding_side": ("left", "left"),
        },
        "",
    ),
    "end token lost": (
        lambda f: decoder(f, "<s> $A", kind="mistral", files=ADDS),
        {},
        {**DECODER, "first_token": ("<s>", "<s>"), "last_token": ("</s>", "")},
        "special-tokens",
    ),
    "first token lost": (
        lambda f: decoder(f, "$A </s>", files=ADDS),
        {},
        {**DECODER, "first_token": ("<s>", ""), "last_token": ("</s>", "</s>")},
        "special-tokens",
    ),
    "another end token": (
        lambda f: decoder(f, "<s> $A <mask>", files=ADDS),
        {},
        {**DECODER, "first_token": ("<s>", "<s>"), "last_token": ("</s>", "<mask>")},
        "special-tokens",
    ),
    "end token that is not to be": (
        lambda f: decoder(f, "$A </s>", files={"eos_token": "</s>", "add_eos_token": False}),
        {},
        {**DECODER, "last_token": ("", "</s>")},
        "special-tokens",
    ),
    "end token that is the padding": (
        lambda f: decoder(f, "<s> $A </s>", files={**ADDS, "pad_token": "</s>"}),
        {},
        {**DECODER, "first_token": ("<s>", "<s>"), "last_token": ("</s>", "</s>")},
        "",
    ),
    "decoder with cls pooling": (
        lambda f: decoder(f),
        {"pooling": "cls"},
        {**DECODER, "pooling": ("cls", "a token that sees none of the text behind it")},
        "blind-pooling",
    ),
    "encoder without ends": (
        encoder_without,
        {},
        {**DECODER, "attention": ("both ways", "both ways")},
        "special-tokens",
    ),
    "other ends than those that are named": (
        lambda f: write_network(write_bytes(f, "<s> $A </s>", cls_token="<s>", sep_token="<mask>"), "bert"),
        {},
        {
            **PLAIN,
            "max_length": (64, 64),
            "first_token": ("<s>", "<s>"),
            "last_token": ("</s>", "</s>"),
            "lower_case": (None, False),
        },
        "special-tokens",
    ),
    "case that is kept": (
        upper,
        {},
        {
            **PLAIN,
            "max_length": (64, 64),
            "first_token": ("<s>", "<s>"),
            "last_token": ("</s>", "</s>"),
            "lower_case": (True, False),
        },
        "lower-case",
    ),
    "bert as a decoder": (
        lambda f: write_network(write_bytes(f, "<s> $A </s>"), "bert", is_decoder=True),
        {},
        {
            **PLAIN,
            "max_length": (64, 64),
            "first_token": ("<s>", "<s>"),
            "last_token": ("</s>", "</s>"),
            "lower_case": (None, False),
            "attention": ("causal", "causal"),
        },
        "",
    ),
    "bert that is said to be causal": (
        lambda f: write_network(write_bytes(f, "<s> $A </s>"), "bert", is_causal=True),
        {},
        {
            **PLAIN,
            "max_length": (64, 64),
            "first_token": ("<s>", "<s>"),
            "last_token": ("</s>", "</s>"),
            "lower_case": (None, False),
            "attention": ("causal", "both ways"),
        },
        "attention",
    ),
    "positions counted from another token": (
        lambda f: write_network(write_bytes(f, "<s> $A </s>"), "roberta", pad_token_id=3),
        {},
        {
            **PLAIN,
            "max_length": (64, 60),
            "first_token": ("<s>", "<s>"),
            "last_token": ("</s>", "</s>"),
            "lower_case": (None, False),
            "padding_token": (3, 0),
        },
        "special-tokens",
    ),
    "windows of no layer": (
        lambda f: decoder(
            f,
            use_sliding_window=True,
            sliding_window=4,
            max_window_layers=0,
            layer_types=["full_attention"] * 2,
        ),
        {},
        {**DECODER, "sliding_window": (True, False)},
        "attention",
    ),
    "class that builds another tokenizer": (
        lambda f: decoder(
            f, kind="llama", files={"tokenizer_class": "GemmaTokenizerFast", "unk_token": "<s>"}
        ),
        {},
        {**DECODER, "padding_side": (None, "left"), "tokens": ("tokenizer.json", "GemmaTokenizer")},
        "tokenization",
    ),
    "prefix space that is not added": (
        lambda f: decoder(f, kind="llama", files={"add_prefix_space": True}),
        {},
        {**DECODER, "tokens": ("tokenizer.json", "TokenizersBackend")},
        "tokenization",
    ),
    "prefix space as declared": (lambda f: decoder(f, files={"add_prefix_space": False}), {}, DECODER, ""),
    "bigbird": (
        lambda f: write_network(write_bytes(f, "<s> $A </s>"), "big_bird", block_size=8, num_random_blocks=1),
        {},
        {
            **PLAIN,
            "max_length": (64, 64),
            "first_token": ("<s>", "<s>"),
            "last_token": ("</s>", "</s>"),
            "lower_case": (None, False),
            "sparse_attention": ("block_sparse", "original_full"),
        },
        "order-dependence",
    ),
}
"""By name: a maker of a folder, settings, what is observed, and the name of the one contradiction."""

SAVES: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, tuple[Any, Any]], str]] = {
    "mean": ({}, {}, {}, ""),
    "cls, normalised": ({"pooling": "cls", "normalize": True}, {}, {"normalize": (True, True)}, ""),
    "last token": ({"pooling": "lasttoken"}, {}, {}, ""),
    "two poolings": ({"pooling": "cls+mean"}, {}, {"dimension": (64, 64)}, ""),
    "dense": ({"dense": True}, {}, {"dimension": (8, 8)}, ""),
    "lower case": ({"lower": True}, {}, {"lower_case": (True, True)}, ""),
    "shorter": ({}, {"max_length": 16}, {"max_length": (32, 16)}, ""),
    "bfloat16": ({}, {"dtype": "bfloat16"}, {"dtype": ("bfloat16", "bfloat16")}, ""),
    "prompts": (
        {"library": {"prompts": {"query": "query: ", "document": "", "STS": "the "}}},
        {},
        {"prompts": (["STS", "query"], ["STS", "query"])},
        "",
    ),
    "prompt that no text gets": (
        {"library": {"prompts": {"query": "query: ", "passage": "passage: "}}},
        {},
        {"prompts": (["passage", "query"], ["query"])},
        "unused-prompt",
    ),
    "slip in the name of a prompt": (
        {"library": {"prompts": {"querry": "query: ", "STS22": "x: ", "s2p_query": "y: "}}},
        {},
        {"prompts": (["STS22", "querry", "s2p_query"], ["STS22", "s2p_query"])},
        "unused-prompt",
    ),
    "fewer dimensions": (
        {"normalize": True, "library": {"truncate_dim": 8}},
        {},
        {"dimension": (8, 8), "normalize": (True, False)},
        "",
    ),
}
"""By name: what was saved, settings, what is observed unlike SAVED, and the name of the one contradiction."""


def observe(folder: Path, artifact: Callable[..., Artifact], **settings: Any) -> tuple[Any, list[str]]:
    """What is observed of a folder, and the names of its contradictions, for which the trial refuses it."""
    from harness.encoder.loading import load_any

    encoding = resolve_encoding(describe(folder), Settings(**settings))

    def load() -> Any:
        return load_any(artifact(folder), encoding, device="cpu")

    report = check_encoder(load(), load, folder=folder)
    seen = {name: (one["declared"], one["observed"]) for name, one in report.observed.items()}
    named = [failure.allowance for failure in report.failures]
    if named:
        accepted = check_encoder(load(), load, folder=folder, allow=named)
        assert accepted.failures == ()
        told = [one.partition(": ")[0] for one in accepted.accepted]
        assert told == [f"accepted by --allow {name}" for name in named]
    allowed = artifact(folder, allow=tuple(named))
    refused, passed = collect_verdicts([(artifact(folder), encoding), (allowed, encoding)], None, gate=True)
    assert all(f"--allow {name}" in str(refused.hint) for name in named), refused
    assert (refused.message is not None, passed.message) == (bool(named), None)
    return seen, named


@pytest.mark.parametrize("name", MAKERS)
def test_a_folder_is_observed(name: str, tmp_path: Path, artifact: Callable[..., Artifact]) -> None:
    make, settings, expected, contradiction = MAKERS[name]
    seen, named = observe(make(tmp_path / "model"), artifact, **settings)
    assert seen == expected
    assert named == [contradiction] * bool(contradiction)


@pytest.mark.parametrize("name", SAVES)
def test_a_saved_folder_is_observed(name: str, build: Build, artifact: Callable[..., Artifact]) -> None:
    saved, settings, changed, contradiction = SAVES[name]
    seen, named = observe(build(**saved), artifact, **settings)
    assert seen == {**SAVED, **changed}
    assert named == [contradiction] * bool(contradiction)


def test_a_bare_folder_and_one_of_pylate(
    bare: Path, tmp_path: Path, artifact: Callable[..., Artifact]
) -> None:
    assert observe(bare, artifact) == (PLAIN, [])
    seen, named = observe(late_models.save(tmp_path / "late"), artifact)
    assert named == []
    assert seen["dimension"] == (16, 16)
    assert seen["normalize"] == (True, True)


@pytest.mark.parametrize("name", tiny.families())
def test_no_family_contradicts_itself(name: str, tmp_path: Path, artifact: Callable[..., Artifact]) -> None:
    seen, named = observe(tiny.folder(tiny.families()[name], tmp_path / "model"), artifact)
    assert named == []
    assert seen["attention"][1] == "both ways"
    assert (seen["first_token"], seen["last_token"]) == (("[CLS]", "[CLS]"), ("[SEP]", "[SEP]"))


def test_each_tower_is_observed(build: Build, router: Build, artifact: Callable[..., Artifact]) -> None:
    query, document = build("query", max_seq_length=16), build("document", lower=True)
    seen, named = observe(router(query, document), artifact)
    assert named == []
    of_towers = {name.rpartition(".")[0] for name in seen if "." in name}
    assert len(of_towers) == 2
    assert sorted(seen[f"{tower}.max_length"] for tower in of_towers) == [(16, 16), (32, 32)]


def test_a_cut_dimension_is_a_contradiction_unless_vectors_have_it(
    build: Build, artifact: Callable[..., Artifact]
) -> None:
    seen, named = observe(build(library={"truncate_dim": 8}), artifact)
    declared, observed = seen["dimension"]
    assert declared == 8
    assert named == ["vector-size"] * (observed != 8)


@pytest.mark.parametrize(
    "name", ["end token lost", "first token lost", "another end token", "end token that is not to be"]
)
def test_files_that_contradict_each_other_are_refused_in_a_trial_and_mended_by_the_cure(
    name: str, tmp_path: Path, artifact: Callable[..., Artifact]
) -> None:
    folder = MAKERS[name][0](tmp_path / "model")
    encoding = resolve_encoding(describe(folder), Settings())
    with pytest.raises(ModelError, match=r"tokenizer_config\.json says") as caught:
        check_model(artifact(folder), encoding)
    check_model(artifact(folder, allow=("special-tokens",)), encoding)
    hint = str(caught.value.hint)
    command = hint[hint.index("python -c") : hint.index("t.save(f)'") + len("t.save(f)'")]
    subprocess.run(command.replace("python", sys.executable, 1), shell=True, check=True)
    check_model(artifact(folder), encoding)
    assert observe(folder, artifact)[1] == []


@pytest.mark.parametrize("name", ["encoder without ends", "other ends than those that are named"])
def test_the_tokens_that_a_tokenizer_adds_are_compared_in_a_trial(
    name: str, tmp_path: Path, artifact: Callable[..., Artifact]
) -> None:
    folder = MAKERS[name][0](tmp_path / "model")
    encoding = resolve_encoding(describe(folder), Settings())
    with pytest.raises(ModelError, match="The tokenizer names <s> and "):
        check_model(artifact(folder), encoding)
    check_model(artifact(folder, allow=("special-tokens",)), encoding)


@pytest.mark.parametrize(
    ("name", "cure"),
    [
        ("class that builds another tokenizer", {"tokenizer_class": "PreTrainedTokenizerFast"}),
        ("prefix space that is not added", {"add_prefix_space": False}),
    ],
)
def test_other_tokens_are_refused_in_a_trial_and_mended_by_the_cure(
    name: str,
    cure: dict[str, Any],
    tmp_path: Path,
    artifact: Callable[..., Artifact],
    rewrite: Callable[..., None],
) -> None:
    folder = MAKERS[name][0](tmp_path / "model")
    encoding = resolve_encoding(describe(folder), Settings())
    with pytest.raises(ModelError) as caught:
        check_model(artifact(folder), encoding)
    assert json.dumps(cure)[1:-1] in str(caught.value.hint)
    check_model(artifact(folder, allow=("tokenization",)), encoding)
    rewrite(folder / "tokenizer_config.json", **cure)
    check_model(artifact(folder), encoding)


def test_a_class_that_replaces_the_ends_of_the_file_and_the_one_that_takes_them(
    copy: Path, artifact: Callable[..., Artifact], rewrite: Callable[..., None]
) -> None:
    content = json.loads((copy / "tokenizer.json").read_text())
    del content["post_processor"]["single"][-1]
    (copy / "tokenizer.json").write_text(json.dumps(content))
    rewrite(copy / "tokenizer_config.json", tokenizer_class="BertTokenizer", do_lower_case=False)
    seen, named = observe(copy, artifact)
    assert seen["last_token"] == ("", "[SEP]")
    assert named == ["special-tokens"]
    rewrite(copy / "tokenizer_config.json", tokenizer_class="PreTrainedTokenizerFast")
    seen, named = observe(copy, artifact)
    assert seen["last_token"] == ("", "")
    assert named == []


def test_a_tokenizer_without_tokenizer_json(
    copy: Path, artifact: Callable[..., Artifact], rewrite: Callable[..., None]
) -> None:
    vocabulary = json.loads((copy / "tokenizer.json").read_text())["model"]["vocab"]
    (copy / "tokenizer.json").unlink()
    (copy / "vocab.txt").write_text("".join(f"{word}\n" for word in sorted(vocabulary, key=vocabulary.get)))
    rewrite(copy / "tokenizer_config.json", tokenizer_class="BertTokenizer", do_lower_case=True)
    seen, named = observe(copy, artifact)
    assert seen["first_token"] == (None, "[CLS]")
    assert seen["last_token"] == (None, "[SEP]")
    assert seen["lower_case"] == (True, True)
    assert named == []


def test_full_attention_is_the_cure_of_block_sparse_attention(
    tmp_path: Path, artifact: Callable[..., Artifact]
) -> None:
    folder = MAKERS["bigbird"][0](tmp_path / "model")
    full = Path(shutil.copytree(folder, tmp_path / "full"))
    config = json.loads((full / "config.json").read_text())
    (full / "config.json").write_text(json.dumps({**config, "attention_type": "original_full"}))
    assert observe(full, artifact)[1] == []
    encoding = resolve_encoding(describe(folder), Settings())
    with pytest.raises(ModelError, match="switches off for good"):
        check_folder(artifact(folder), encoding)
    check_folder(artifact(folder, allow=("order-dependence",)), encoding)
    check_folder(artifact(full), encoding)


def lengthened(target: Path) -> Path:
    """A decoder whose positions follow the length of texts beyond 32 tokens."""
    rotary = {"rope_type": "longrope", "short_factor": [1.0] * 4, "long_factor": [3.0] * 4}
    original = {"original_max_position_embeddings": 32}
    parts: dict[str, Any] = {"rope_parameters": {**rotary, **original, "rope_theta": 1e4}, **original}
    return write_network(write_bytes(target, "$A"), "phi3", bos_token_id=1, eos_token_id=2, **parts)


def saved(target: Path) -> Path:
    """A bare encoder in the layout of sentence-transformers."""
    write_network(write_bytes(target, "<s> $A </s>"), "bert")
    kinds = ("Transformer", ""), ("Pooling", "1_Pooling")
    modules = [
        {"idx": at, "name": str(at), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for at, (kind, path) in enumerate(kinds)
    ]
    (target / "modules.json").write_text(json.dumps(modules))
    (target / "1_Pooling").mkdir()
    pooling = {"word_embedding_dimension": 32, "pooling_mode_mean_tokens": True}
    (target / "1_Pooling/config.json").write_text(json.dumps(pooling))
    (target / "sentence_bert_config.json").write_text('{"max_seq_length": 32}')
    return target


ROBERTA = {"architectures": ["RobertaModel"]}


@pytest.mark.parametrize(
    ("make", "file", "content", "mended", "said"),
    [
        (saved, "config.json", ROBERTA, {"architectures": ["BertModel"]}, "'bert', and RobertaModel has"),
        (
            saved,
            "1_Pooling/config.json",
            {"pooling_mode": "cls"},
            {"pooling_mode": "mean"},
            "has pooling_mode = 'cls', and flags of another pooling",
        ),
        (
            saved,
            "sentence_albert_config.json",
            {"max_seq_length": 8},
            {"max_seq_length": 32},
            "sentence_albert_config.json and sentence_bert_config.json, which contradict each other",
        ),
        (decoder, "config.json", {"rope_theta": 1e6}, {"rope_theta": 1e4}, "says rope_theta 1000000.0, and"),
        (
            decoder,
            "config.json",
            {"num_hidden_layers": 1, "layer_types": None},
            {"num_hidden_layers": 2},
            "12 tensors of further layers have no place in the model",
        ),
        (
            lengthened,
            "tokenizer_config.json",
            {"model_max_length": 64},
            {"model_max_length": 32},
            "follow the longest text of a batch beyond 32 tokens",
        ),
    ],
)
def test_a_contradiction_is_refused_before_a_run_and_the_same_folder_mended_is_not(
    make: Callable[[Path], Path],
    file: str,
    content: dict[str, Any],
    mended: dict[str, Any],
    said: str,
    tmp_path: Path,
    artifact: Callable[..., Artifact],
    rewrite: Callable[..., None],
) -> None:
    folder = make(tmp_path / "model")
    rewrite(folder / file, **content)
    with pytest.raises(ModelError, match=said):
        check_model(artifact(folder), resolve_encoding(describe(folder), Settings()))
    rewrite(folder / file, **mended)
    check_model(artifact(folder), resolve_encoding(describe(folder), Settings()))
    assert observe(folder, artifact)[1] == []


def test_further_layers_are_left_out_where_that_is_accepted(
    tmp_path: Path, artifact: Callable[..., Artifact], rewrite: Callable[..., None]
) -> None:
    folder = decoder(tmp_path / "model")
    rewrite(folder / "config.json", num_hidden_layers=1, layer_types=None)
    allowed = artifact(folder, allow=("tensors=layers.1.*",))
    check_model(allowed, resolve_encoding(describe(folder), Settings()))


def test_a_vocabulary_that_the_tokenizer_does_not_follow_is_noted(
    copy: Path, artifact: Callable[..., Artifact]
) -> None:
    from harness.encoder.loading import load_any

    def list_notes(words: list[str]) -> tuple[str, ...]:
        (copy / "vocab.txt").write_text("".join(f"{word}\n" for word in words))
        encoder = load_any(artifact(copy), resolve_encoding(describe(copy), Settings()), device="cpu")
        return check_encoder(encoder, folder=copy).accepted

    vocabulary = json.loads((copy / "tokenizer.json").read_text())["model"]["vocab"]
    words = sorted(vocabulary, key=vocabulary.get)
    assert list_notes(words) == ()
    (note,) = list_notes([*words[:10], words[11], words[10], *words[12:]])
    assert note.startswith("vocab.txt numbers 2 tokens otherwise than the tokenizer")


@pytest.fixture
def list_notes(artifact: Callable[..., Artifact]) -> Callable[..., tuple[str, ...]]:
    """The notes on a folder, whose vectors are computed with these settings."""
    from harness.encoder.loading import load_any

    def list_notes(folder: Path, **settings: Any) -> tuple[str, ...]:
        encoding = resolve_encoding(describe(folder), Settings(**settings))
        check_model(artifact(folder), encoding)
        return check_encoder(load_any(artifact(folder), encoding, device="cpu"), folder=folder).accepted

    return list_notes


def cut(path: Path, keep: float) -> None:
    """Leave the first lines of a file."""
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    path.write_text("".join(lines[: int(len(lines) * keep)]), encoding="utf-8")


@pytest.mark.parametrize("beside", [True, False])
def test_a_vocabulary_that_is_cut_at_a_line_end_is_noted(
    beside: bool, copy: Path, rewrite: Callable[..., None], list_notes: Callable[..., tuple[str, ...]]
) -> None:
    vocabulary = json.loads((copy / "tokenizer.json").read_text())["model"]["vocab"]
    (copy / "vocab.txt").write_text("".join(f"{word}\n" for word in sorted(vocabulary, key=vocabulary.get)))
    if not beside:
        (copy / "tokenizer.json").unlink()
        rewrite(copy / "tokenizer_config.json", tokenizer_class="BertTokenizer", do_lower_case=False)
    assert list_notes(copy) == ()
    cut(copy / "vocab.txt", 0.97 if beside else 0.6)
    (note,) = list_notes(copy)
    other = "tokenizer.json" if beside else "config.json"
    assert re.fullmatch(rf"vocab.txt has \d+ lines, and {other} speaks of \d+: the file may be cut", note)


@pytest.mark.parametrize("beside", [True, False])
def test_merges_that_are_cut_at_a_line_end_are_noted(
    beside: bool, tmp_path: Path, rewrite: Callable[..., None], list_notes: Callable[..., tuple[str, ...]]
) -> None:
    from tokenizers import Tokenizer, models, pre_tokenizers, processors, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 1))
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(special_tokens=[*SPECIALS, "<unk>"], initial_alphabet=alphabet)
    tokenizer.train_from_iterator([Path(__file__).read_text()], trainer)
    folder = write_network(tmp_path / "model", "roberta", tokenizer.get_vocab_size())
    tokenizer.model.save(str(folder))
    config = {"tokenizer_class": "RobertaTokenizer", "pad_token": "<pad>", "model_max_length": 60}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    if beside:
        tokenizer.save(str(folder / "tokenizer.json"))
    assert list_notes(folder) == ()
    cut(folder / "merges.txt", 0.99 if beside else 0.8)
    (note,) = list_notes(folder)
    other = "tokenizer.json" if beside else "vocab.json"
    assert re.fullmatch(rf"merges.txt has [\d,]+ lines, and {other} speaks of [\d,]+: .*", note)


@pytest.mark.parametrize(
    ("declared", "stored", "dtype", "noted"),
    [
        ("float16", "float32", "float32", True),
        ("bfloat16", "float16", "float32", True),
        ("bfloat16", "float32", "bfloat16", False),
        # transformers computes what is computed here.
        ("float32", "float16", "float32", False),
        ("float16", "float16", "float32", False),
        (None, "float16", "float32", False),
    ],
)
def test_weights_in_another_precision_than_declared_are_noted_where_the_libraries_vectors_are_others(
    declared: str | None,
    stored: str,
    dtype: str,
    noted: bool,
    copy: Path,
    rewrite: Callable[..., None],
    list_notes: Callable[..., tuple[str, ...]],
) -> None:
    import torch
    from safetensors.torch import load_file, save_file
    from transformers import AutoModel

    path, as_stored = copy / "model.safetensors", getattr(torch, stored)
    save_file({name: one.to(as_stored) for name, one in load_file(path).items()}, path, {"format": "pt"})
    rewrite(copy / "config.json", dtype=None, torch_dtype=declared)
    notes = list_notes(copy, dtype=dtype)
    assert len(notes) == noted
    if noted:
        start = f"config.json says {declared}, and the weights are {stored}: transformers alone would"
        assert notes[0].startswith(start)
        assert AutoModel.from_pretrained(copy).dtype == getattr(torch, str(declared))


def test_no_name_is_also_that_of_a_field() -> None:
    assert [name for name in ALLOWANCES if is_field_name(name)] == []


def test_a_leftover_of_bert_beside_a_tokenizer_of_sentencepiece_declares_no_case(
    tmp_path: Path, artifact: Callable[..., Artifact]
) -> None:
    from tokenizers import Tokenizer, models

    folder = upper(tmp_path / "model")
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    words = sorted(tokenizer.get_vocab(), key=tokenizer.get_vocab().__getitem__)
    tokenizer.model = models.Unigram([(word, -float(at)) for at, word in enumerate(words)], 0)
    tokenizer.save(str(folder / "tokenizer.json"))
    seen, named = observe(folder, artifact)
    assert (seen["lower_case"], named) == ((None, False), [])


def test_padding_on_the_side_that_the_settings_say_is_no_contradiction(
    build: Build, artifact: Callable[..., Artifact], rewrite: Callable[..., None]
) -> None:
    # sentence-transformers gives the tokenizer these arguments, before those of its own file.
    folder = build("model", max_seq_length=16)
    settings = folder / "sentence_bert_config.json"
    rewrite(folder / "tokenizer_config.json", padding_side="right")
    rewrite(settings, tokenizer_args={"padding_side": "left"})
    seen, named = observe(folder, artifact)
    assert (seen["padding_side"], named) == (("left", "left"), [])
    # A first token is found behind no padding, whatever the files say.
    (mode,) = folder.glob("*_Pooling/config.json")
    rewrite(mode, pooling_mode_cls_token=True, pooling_mode_mean_tokens=False)
    seen, named = observe(folder, artifact)
    assert (seen["padding_side"], named) == ((None, "right"), [])


@pytest.mark.parametrize(
    ("field", "content", "config", "observation", "note"),
    [
        (
            "padding",
            {
                "strategy": "BatchLongest",
                "direction": "Left",
                "pad_to_multiple_of": None,
                "pad_id": 0,
                "pad_type_id": 0,
                "pad_token": "[PAD]",
            },
            {"padding_side": "right"},
            {"padding_side": ("right", "right")},
            "tokenizer.json says that padding stands left: other files say otherwise",
        ),
        (
            "normalizer",
            {"type": "Sequence", "normalizers": [{"type": "NFC"}, {"type": "Lowercase"}]},
            {"tokenizer_class": "BertTokenizer", "do_lower_case": False},
            {"lower_case": (False, False)},
            "tokenizer.json says that texts are lower-cased: other files say otherwise",
        ),
    ],
)
def test_a_file_that_the_model_does_not_follow_is_noted(
    field: str,
    content: dict[str, Any],
    config: dict[str, Any],
    observation: dict[str, Any],
    note: str,
    copy: Path,
    artifact: Callable[..., Artifact],
    rewrite: Callable[..., None],
) -> None:
    from harness.encoder.loading import load_any

    def list_notes() -> tuple[str, ...]:
        seen, named = observe(copy, artifact)
        assert named == []
        assert seen | observation == seen
        return check_encoder(
            load_any(artifact(copy), resolve_encoding(describe(copy), Settings()), device="cpu"), folder=copy
        ).accepted

    rewrite(copy / "tokenizer_config.json", **config)
    assert list_notes() == ()
    rewrite(copy / "tokenizer.json", **{field: content})
    (said,) = list_notes()
    assert said.startswith(note)


def save_weights(folder: Path, change: Callable[[dict[str, Any]], dict[str, Any]], form: str) -> None:
    """Write changed weights beside those of a folder, as a pickle or in parts."""
    import torch
    from safetensors.torch import load_file, save_file

    tensors = change(load_file(folder / "model.safetensors"))
    if form == "pytorch_model.bin":
        torch.save(tensors, folder / form)
        return
    names = {f"model-0000{at}-of-00002.safetensors": [*tensors][at - 1 :: 2] for at in (1, 2)}
    for file, some in names.items():
        save_file({name: tensors[name].contiguous() for name in some}, folder / file)
    index = {"weight_map": {name: file for file, some in names.items() for name in some}}
    (folder / form).write_text(json.dumps(index))


def transpose(tensors: dict[str, Any]) -> dict[str, Any]:
    """The same tensors, with matrices in the other order of memory, and one more."""
    order = {name: range(one.ndim)[::-1] for name, one in tensors.items()}
    turned = {name: one.permute(*order[name]) for name, one in tensors.items()}
    more = {"head.bias": next(iter(tensors.values()))}
    return more | {name: one.contiguous().permute(*order[name]) for name, one in turned.items()}


HALVES = {
    "pytorch_model.bin": "pytorch_model.bin",
    "model.safetensors.index.json": "model-00001-of-00002.safetensors",
}
"""By the form of other weights, a file of theirs."""


@pytest.mark.parametrize("form", HALVES)
def test_other_weights_beside_those_that_are_loaded_are_noted(
    form: str, copy: Path, artifact: Callable[..., Artifact]
) -> None:
    """transformers prefers model.safetensors, whichever was written last."""
    same = transpose if form.endswith(".bin") else dict
    for change in (same, lambda tensors: {name: one.half() for name, one in tensors.items()}):
        save_weights(copy, change, form)
        assert "weights" not in observe(copy, artifact)[0]
    save_weights(copy, lambda tensors: {name: one * 1.01 for name, one in tensors.items()}, form)
    check_model(artifact(copy), resolve_encoding(describe(copy), Settings()))
    assert observe(copy, artifact)[0]["weights"] == (form, "model.safetensors")
    (copy / HALVES[form]).write_bytes(b"half of a download")
    assert "weights" not in observe(copy, artifact)[0]


@pytest.mark.parametrize(
    "change",
    [
        lambda tensors: {name: one[..., :8] for name, one in tensors.items()},
        lambda tensors: {f"encoder.{name}": one for name, one in tensors.items()},
    ],
)
def test_parts_of_another_model_beside_a_whole_one_are_refused(
    change: Callable[[dict[str, Any]], dict[str, Any]], copy: Path, artifact: Callable[..., Artifact]
) -> None:
    save_weights(copy, change, "model.safetensors.index.json")
    with pytest.raises(ModelError, match=r"has two models, in model\.safetensors and in the parts of"):
        check_model(artifact(copy), resolve_encoding(describe(copy), Settings()))
    (copy / "model-00002-of-00002.safetensors").unlink()
    check_model(artifact(copy), resolve_encoding(describe(copy), Settings()))
