"""Multi-vector (ColBERT) models: PyLate's own vectors are the truth."""

from __future__ import annotations

import json
import shutil
import string
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import late_models
import tiny
from faulty import rewrite
from harness.core.encoding import LateInteraction, Settings
from harness.core.errors import HarnessError, ModelError, UsageError
from harness.core.keys import build_encoding_identity
from harness.core.types import SIDES, Artifact
from harness.encoder.engine import Encoder
from harness.encoder.folder.description import compute_folder_identity, describe
from harness.encoder.loading import load_any
from harness.encoder.resolved_encoding import resolve_encoding
from harness.encoder.sanity import check_encoder
from harness.encoder.token_encoder import TokenEncoder
from preflights import check_model

TEXTS = (
    "the cat sat on the mat.",
    "hello, world! a far longer text, which is cut; yes, certainly: it has many more tokens than all others",
    "",
    "!!! ...",
    "a",
    "the cat",
)

Folder = Callable[..., Path]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    """PyLate folders by their body and settings, each made once."""
    made: dict[str, Path] = {}

    def make(body: str = "bert", **settings: Any) -> Path:
        name = json.dumps([body, settings], sort_keys=True)
        if name not in made:
            made[name] = late_models.save(tmp_path_factory.mktemp("late") / "model", body, **settings)
        return made[name]

    return make


def opened(folder: Path, **settings: Any) -> TokenEncoder:
    key, weights, _ = compute_folder_identity(folder)
    artifact = Artifact(name="late", source=str(folder), folder=folder, key=key, weights=weights)
    encoding = resolve_encoding(describe(folder), Settings(**settings))
    check_model(artifact, encoding)
    found = load_any(artifact, encoding, device="cpu")
    assert isinstance(found, TokenEncoder)
    return found


def copied(source: Path, target: Path, **fields: Any) -> Path:
    """A copy with other fields in the settings; None removes one."""
    import shutil

    shutil.copytree(source, target)
    path = target / "config_sentence_transformers.json"
    content = {**json.loads(path.read_text()), **fields}
    path.write_text(json.dumps({name: value for name, value in content.items() if value is not None}))
    return target


# The description


def test_a_folder_is_described_by_its_files(folder: Folder) -> None:
    found = describe(folder())
    assert found.late_interaction == LateInteraction(
        query_length=12,
        document_length=20,
        expansion=True,
        attends_to_expansion=False,
        query_prefix="[Q] ",
        document_prefix="[D] ",
        skiplist=tuple(string.punctuation),
        dimension=16,
    )
    encoding = resolve_encoding(found, Settings())
    assert (encoding.output, encoding.similarity, encoding.vectors) == ("multivector", "maxsim", "float16")
    assert (encoding.pooling, encoding.normalize, encoding.max_length) == ("", True, 20)


def test_a_folder_of_an_older_version_has_the_librarys_defaults(folder: Folder, tmp_path: Path) -> None:
    old = ("model_type", "do_query_expansion", "query_length", "document_length", "skiplist_words")
    older = copied(folder(), tmp_path / "older", **dict.fromkeys(old))
    found = describe(older).late_interaction
    assert found is not None
    library = late_models.library(older)
    assert (found.query_length, found.document_length) == (library.query_length, library.document_length)
    assert found.expansion is library.do_query_expansion is True
    assert list(found.skiplist) == library.skiplist_words


def test_every_setting_is_in_the_key(folder: Folder) -> None:
    encoding = resolve_encoding(describe(folder()), Settings())
    late = encoding.late_interaction
    assert late is not None
    others: tuple[dict[str, Any], ...] = (
        {"query_length": 13},
        {"document_length": 19},
        {"expansion": False},
        {"attends_to_expansion": True},
        {"query_prefix": ""},
        {"document_prefix": ""},
        {"skiplist": ()},
        {"dimension": 8},
    )
    keys = [
        build_encoding_identity(replace(encoding, late_interaction=replace(late, **one))) for one in others
    ]
    assert len({json.dumps(key, sort_keys=True) for key in (build_encoding_identity(encoding), *keys)}) == 9


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"pooling": "mean"}, "nothing for --pooling to change"),
        ({"normalize": False}, "nothing for --no-normalize"),
        ({"similarity": "cosine"}, "Choose one of maxsim, maxsim-pylate"),
        ({"query_length": 3}, "3 tokens is too short for queries"),
        ({"max_length": 65}, "positions"),
    ],
)
def test_settings_that_do_not_fit_are_refused(settings: dict[str, Any], told: str, folder: Folder) -> None:
    with pytest.raises(UsageError) as caught:
        resolve_encoding(describe(folder()), Settings(**settings))
    assert told in f"{caught.value.message} {caught.value.hint}"


def test_a_folder_with_too_short_queries_is_refused(folder: Folder, tmp_path: Path) -> None:
    """Special tokens and the prefix would leave nothing, and the tokenizer would cut nothing."""
    path = shutil.copytree(folder(), tmp_path / "short")
    file = path / "config_sentence_transformers.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "query_length": 2}))
    with pytest.raises(UsageError, match="2 tokens is too short for queries"):
        resolve_encoding(describe(path), Settings())


def test_a_model_with_one_vector_has_no_maxsim(tmp_path: Path) -> None:
    body = describe(tiny.folder(tiny.families()["bert"], tmp_path / "body"))
    for settings, told in (
        (Settings(similarity="maxsim"), "one vector for each text, which maxsim does not compare"),
        (Settings(query_length=8), "no length of queries"),
    ):
        with pytest.raises(UsageError, match=told):
            resolve_encoding(body, settings)


def _without_settings(folder: Path) -> None:
    (folder / "config_sentence_transformers.json").unlink()


def _colbert_ai(folder: Path) -> None:
    _without_settings(folder)
    (folder / "modules.json").unlink()
    rewrite(folder / "config.json", architectures=["HF_ColBERT"])


def _without_projection(folder: Path) -> None:
    path = folder / "modules.json"
    path.write_text(json.dumps(json.loads(path.read_text())[:1]))


def _settings(**fields: Any) -> Callable[[Path], None]:
    return lambda folder: rewrite(folder / "config_sentence_transformers.json", **fields)


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (_colbert_ai, "is a ColBERT of colbert-ai"),
        (_without_projection, "it must be a backbone followed by projections of token vectors"),
        (_settings(query_length="32"), "query_length = '32'"),
        (_settings(document_length=0), "document_length = 0"),
        (_settings(skiplist_words=5), "skiplist_words = 5"),
        (_settings(do_query_expansion="yes"), "do_query_expansion = 'yes'"),
        (_settings(query_prefix="[X] "), "'[X] ' is no token of the model's tokenizer"),
        (lambda folder: rewrite(folder / "1_Dense/config.json", in_features=31), "linear.weight"),
        (lambda folder: (folder / "1_Dense/model.safetensors").unlink(), "1_Dense/model.safetensors"),
        (lambda folder: (folder / "modules.json").unlink(), "without modules.json"),
        (_without_settings, "without config_sentence_transformers.json"),
    ],
)
def test_a_broken_folder_is_refused_before_it_is_loaded(
    spoil: Callable[[Path], None], told: str, folder: Folder, tmp_path: Path
) -> None:
    broken = copied(folder(), tmp_path / "broken")
    spoil(broken)
    with pytest.raises(HarnessError) as caught:
        opened(broken)
    assert told in caught.value.message
    assert caught.value.hint


# The vectors


@pytest.mark.parametrize("body", late_models.BODIES)
@pytest.mark.parametrize(("expansion", "attends"), [(True, False), (True, True), (False, False)])
def test_vectors_are_those_of_pylate(body: str, expansion: bool, attends: bool, folder: Folder) -> None:
    where = folder(body, do_query_expansion=expansion, attend_to_expansion_tokens=attends)
    encoder, library = opened(where), late_models.library(where)
    for role in SIDES:
        ragged = encoder.encode(TEXTS * 2, role=role)
        whole = library.encode(list(TEXTS) * 2, is_query=role == "query", batch_size=5)
        assert ragged.lengths.tolist() == [len(one) for one in whole]
        for at, text in enumerate(TEXTS):
            alone = library.encode([text], is_query=role == "query")[0]
            for truth in (whole[at], whole[at + len(TEXTS)], alone):
                assert np.abs(ragged.select_text_vectors(at) - truth).max() <= 1e-5
            assert np.abs(encoder.encode_batch([text], role=role).vectors - alone).max() <= 1e-5


@pytest.mark.parametrize("role", SIDES)
def test_vectors_in_chunks_are_those_of_one_batch(
    role: Any, folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoder, texts = opened(folder()), [*TEXTS, *(f"the cat, {'mat ' * (n % 7)}{n}" for n in range(60))]
    expected = encoder.encode_batch(texts, role=role)
    for name, value in {"_on_cpu": False, "_threads": 0, "_budget": 50, "_at_once": 50}.items():
        monkeypatch.setattr(encoder, name, value)
    before = encoder.batches
    found = encoder.encode(texts, role=role)
    assert encoder.batches - before > 10
    assert np.array_equal(found.offsets, expected.offsets)
    assert np.abs(found.vectors - expected.vectors).max() <= 1e-5


def test_a_residual_projection_and_no_prefixes_are_as_in_pylate(tmp_path: Path) -> None:
    pytest.importorskip("pylate")
    from pylate.models import Dense

    where = late_models.save(tmp_path / "model", query_prefix="", document_prefix="", skiplist_words=["the"])
    library = late_models.library(where)
    library.append(Dense(in_features=16, out_features=8, bias=True, use_residual=True))
    library.append(Dense(in_features=8, out_features=8, activation_function=torch.nn.GELU()))
    library.save_pretrained(str(tmp_path / "deeper"))
    encoder = opened(tmp_path / "deeper")
    assert encoder.dimension == 8
    for role in SIDES:
        found = encoder.encode(TEXTS, role=role)
        for at, truth in enumerate(library.encode(list(TEXTS), is_query=role == "query")):
            assert np.abs(found.select_text_vectors(at) - truth).max() <= 1e-5


def test_texts_are_in_lower_case_where_the_folder_says_so(folder: Folder, tmp_path: Path) -> None:
    cased = copied(folder(), tmp_path / "cased")
    tokenizer = cased / "tokenizer.json"
    tokenizer.write_text(json.dumps({**json.loads(tokenizer.read_text()), "normalizer": None}))
    rewrite(cased / "tokenizer_config.json", do_lower_case=False)
    rewrite(cased / "sentence_bert_config.json", do_lower_case=True)
    encoder, library = opened(cased), late_models.library(cased)
    for role in SIDES:
        found = encoder.encode(["The CAT sat"], role=role).vectors
        assert np.abs(found - library.encode(["The CAT sat"], is_query=role == "query")[0]).max() <= 1e-5
        assert np.array_equal(found, encoder.encode(["the cat sat"], role=role).vectors)


def test_lengths_may_be_changed(folder: Folder) -> None:
    encoder, library = opened(folder(), query_length=8, max_length=30), late_models.library(folder())
    library.query_length, library.document_length = 8, 30
    for role in SIDES:
        found = encoder.encode(TEXTS, role=role)
        for at, truth in enumerate(library.encode(list(TEXTS), is_query=role == "query")):
            assert np.abs(found.select_text_vectors(at) - truth).max() <= 1e-5


def test_a_text_without_a_token_has_no_vectors(tmp_path: Path) -> None:
    words = [*string.punctuation, "[CLS]", "[SEP]", "[D] "]
    encoder = opened(late_models.save(tmp_path / "model", skiplist_words=words))
    found = encoder.encode(TEXTS, role="document")
    assert found.lengths.tolist()[2:4] == [0, 0]


def test_the_gate_holds_for_each_token(folder: Folder) -> None:
    encoder = opened(folder())
    report = check_encoder(encoder, lambda: opened(folder()))
    assert report.checks == ("finite", "order", "constant", "padding", "reload")
    assert not report.failures


def test_the_gate_tells_what_padding_and_another_load_change(folder: Folder) -> None:
    encoder = opened(folder())

    def attended(_: Any, inputs: tuple[dict[str, Any]]) -> Any:
        features = {name: value for name, value in inputs[0].items() if name != "packing"}
        return {**features, "attention_mask": torch.ones_like(features["attention_mask"])}

    def other() -> TokenEncoder:
        made = opened(folder())
        with torch.no_grad():
            made.model[1].linear.weight.normal_()
        return made

    hook = encoder.model[0].register_forward_pre_hook(attended)
    assert {one.check for one in check_encoder(encoder).failures} == {"padding"}
    hook.remove()
    assert {one.check for one in check_encoder(encoder, other).failures} == {"reload"}


def test_a_vector_that_is_not_finite_is_refused(folder: Folder) -> None:
    encoder = opened(folder())
    with torch.no_grad():
        encoder.model[1].linear.weight[0] = float("nan")
    with pytest.raises(ModelError, match="token vectors are not finite; the first is of"):
        encoder.encode(TEXTS, role="query")


def test_equal_texts_are_encoded_once_and_kept_once(folder: Folder) -> None:
    class Kept:
        due = True

        def __init__(self) -> None:
            self.texts: list[str] = []

        def add_vectors(self, texts: Any, vectors: Any) -> None:
            assert len(texts) == len(vectors)
            self.texts += texts

    encoder, kept = opened(folder()), Kept()
    done: list[int] = []
    found = encoder.encode(
        [*TEXTS, *TEXTS], role="document", progress=lambda texts, _: done.append(texts), keeper=kept
    )
    assert sorted(kept.texts) == sorted(TEXTS)
    assert sum(done) == 2 * len(TEXTS)
    assert np.array_equal(found.vectors[: len(found.vectors) // 2], found.vectors[len(found.vectors) // 2 :])


def test_a_model_with_one_vector_is_still_an_encoder(tmp_path: Path) -> None:
    body = tiny.folder(tiny.families()["bert"], tmp_path / "body")
    key, weights, _ = compute_folder_identity(body)
    artifact = Artifact(name="body", source="", folder=body, key=key, weights=weights)
    found = load_any(artifact, resolve_encoding(describe(body), Settings()), device="cpu")
    assert isinstance(found, Encoder)
