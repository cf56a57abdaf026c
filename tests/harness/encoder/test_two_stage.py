"""Two-stage models: their vectors by hand, contexts, folders, and what makes no model."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import tiny
import two_stage_models
from finetune.cde.plan import describe_two_stage
from harness.core.encoding import OwnTexts, Settings
from harness.core.errors import HarnessError, ModelError, UsageError
from harness.core.keys import build_encoding_identity
from harness.core.types import Artifact
from harness.encoder.folder.description import compute_folder_identity, describe
from harness.encoder.loading import load_any
from harness.encoder.resolved_encoding import resolve_encoding
from harness.encoder.sanity import check_encoder
from harness.encoder.sentence_transformer import Transformer
from harness.encoder.two_stage import ContextualEncoder, TwoStage
from harness.encoder.two_stage_settings import PREFIXES, TwoStageSettings
from preflights import check_model

TEXTS = ["the cat sat on the mat.", "a", "hello, world! 42"]
DOCUMENTS = ["the mat", "a cat, a query", "sat", "on; the", "hello", "42 mats"]

Folder = Callable[..., Path]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    """Folders of two-stage models by their body and settings, each made once."""
    made: dict[str, Path] = {}

    def make(body: str = "bert", **settings: Any) -> Path:
        name = json.dumps([body, settings], sort_keys=True)
        if name not in made:
            made[name] = two_stage_models.save(tmp_path_factory.mktemp("two") / "model", body, **settings)
        return made[name]

    return make


def artifact_of(folder: Path) -> Artifact:
    key, weights, _ = compute_folder_identity(folder)
    return Artifact(name="two", source=str(folder), folder=folder, key=key, weights=weights)


def opened(folder: Path, **settings: Any) -> ContextualEncoder:
    artifact, encoding = artifact_of(folder), resolve_encoding(describe(folder), Settings(**settings))
    check_model(artifact, encoding)
    found = load_any(artifact, encoding, device="cpu")
    assert isinstance(found, ContextualEncoder)
    return found


def ids(tokenizer: Any, text: str) -> list[int]:
    found: list[int] = tokenizer(text)["input_ids"]
    return found


def by_hand(module: TwoStage, texts: list[str], documents: list[str] | None) -> Tensor:
    state = {name: tensor.double() for name, tensor in module.state_dict().items()}
    first, second = (stage.auto_model.shape for stage in (module.context_stage, module.text_stage))
    if documents is None:
        context = state["null"].repeat(module.settings.size, 1)
    else:
        tokens = [ids(module.context_stage.tokenizer, text) for text in documents]
        context = torch.stack([two_stage_models.context_vector(state, first, one) for one in tokens])
    rows = [
        two_stage_models.text_vector(state, second, ids(module.tokenizer, text), context, module.settings)
        for text in texts
    ]
    return torch.stack(rows)


# The module


@pytest.mark.parametrize(
    ("body", "settings"),
    [
        ("bert", {}),
        ("bert", {"pooling": "all"}),
        ("nomic_bert", {}),
        ("nomic_bert", {"rotary_from": "prompts"}),
        ("nomic_bert", {"rotary_from": "prompts", "pooling": "all"}),
    ],
)
@pytest.mark.parametrize("documents", [DOCUMENTS, None], ids=["context", "null"])
def test_vectors_by_hand(
    tmp_path: Path, body: str, settings: dict[str, Any], documents: list[str] | None
) -> None:
    module = two_stage_models.module(tmp_path, body, **settings).double()
    with torch.no_grad():
        context = (
            None if documents is None else module.compute_context_vectors(module.tokenize_context(documents))
        )
        vectors = module.compute_text_vectors(module.tokenize(TEXTS), context)
    assert (vectors - by_hand(module, TEXTS, documents)).abs().max() < 1e-6


@pytest.mark.parametrize("body", sorted(tiny.families()))
def test_every_family_reads_a_context(tmp_path: Path, body: str) -> None:
    """A text's vector depends on the context, and not on the texts beside it."""
    module = two_stage_models.module(tmp_path, body)
    context = torch.randn(6, 32)
    with torch.no_grad():
        together = module.compute_text_vectors(module.tokenize(TEXTS), context)
        alone = torch.cat([module.compute_text_vectors(module.tokenize([text]), context) for text in TEXTS])
        without = module.compute_text_vectors(module.tokenize(TEXTS))
    assert (together - alone).abs().max() < 1e-5 * together.abs().max()
    assert (together - without).abs().max() > 1e-3


def test_variants_differ(tmp_path: Path) -> None:
    made = [
        two_stage_models.module(tmp_path, "nomic_bert", **settings)
        for settings in ({}, {"pooling": "all"}, {"rotary_from": "prompts"})
    ]
    with torch.no_grad():
        found = [module.compute_text_vectors(module.tokenize(TEXTS)) for module in made]
    assert (found[0] - found[1]).abs().max() > 1e-3 < (found[0] - found[2]).abs().max()


def test_sequence_dropout_puts_the_null_vector_in_place(tmp_path: Path) -> None:
    """Of a share so large that nothing of the context is left, the null context is what remains."""
    module = two_stage_models.module(tmp_path, sequence_dropout=1 - 1e-9)
    context = torch.randn(6, 32)
    features = module.tokenize(TEXTS)
    with torch.no_grad():
        without, evaluated = (
            module.compute_text_vectors(features),
            module.compute_text_vectors(features, context),
        )
        dropped = module.train().compute_text_vectors(features, context)
    assert torch.allclose(dropped, without, atol=1e-6)
    assert (evaluated - without).abs().max() > 1e-3, "in an evaluation nothing is dropped"


def test_each_text_has_the_context_in_an_order_of_its_own_in_training(tmp_path: Path) -> None:
    context = torch.arange(6.0)[:, None].expand(6, 32)
    module = two_stage_models.module(tmp_path).train()
    rows = module._build_context_rows(context, 50)[..., 0]
    assert torch.equal(rows.sort(dim=1).values, torch.arange(6.0).expand(50, 6))
    assert len(rows.unique(dim=0)) > 30
    assert torch.equal(
        module.eval()._build_context_rows(context, 50)[..., 0], torch.arange(6.0).expand(50, 6)
    )


def test_tied_stages_share_one_table_and_stay_tied(tmp_path: Path) -> None:
    body = tiny.folder(tiny.families()["bert"], tmp_path / "body")
    stages = [Transformer(str(body), model_args={"dtype": torch.float32}) for _ in range(2)]
    for stage in stages:
        stage.max_seq_length = 24
    module = TwoStage(*stages, TwoStageSettings(size=4, tied=True))
    module.save(str(tmp_path))
    again = TwoStage.load(str(tmp_path))
    for one in (module, again):
        tables = [s.auto_model.get_input_embeddings().weight for s in (one.text_stage, one.context_stage)]
        assert tables[0] is tables[1]
    assert sum(p.numel() for p in again.parameters()) == sum(p.numel() for p in module.parameters())


# A folder


def test_a_folder_is_described_keyed_and_opened_alike_everywhere(folder: Folder) -> None:
    found = describe(folder())
    assert found.two_stage == TwoStageSettings(size=6, prompts=3)
    assert (found.max_length, found.position_limit) == (24, 64 - 9)
    encoder = opened(folder())
    assert encoder.encoding.context is not None
    identity = build_encoding_identity(encoder.encoding)
    assert identity["context"] == {"size": 6, "documents": "task", "seed": 42}
    theirs = tiny.library(folder()).encode(TEXTS)
    assert np.abs(encoder.encode(TEXTS) - theirs).max() < 1e-5
    module = encoder.model[0]
    assert isinstance(module, TwoStage)
    assert np.abs(theirs - by_hand(module, TEXTS, None).numpy()).max() < 1e-4
    keys = {
        compute_folder_identity(folder(body, **more)).key
        for body in ("bert",)
        for more in ({}, {"pooling": "all"})
    }
    assert len(keys) == 2


@pytest.mark.parametrize("body", ["bert", "nomic_bert"])
def test_a_model_that_is_to_be_made_is_described_as_its_folder_will_be(
    folder: Folder, tmp_path: Path, body: str
) -> None:
    there = folder(body)
    planned = describe_two_stage(
        describe(tiny.folder(tiny.families()[body], tmp_path / "body")),
        TwoStageSettings(size=6, prompts=3),
        max_length=24,
    )
    assert replace(planned, folder=there, name=there.name, prompts=dict(PREFIXES)) == describe(there)
    if body == "bert":
        with pytest.raises(ModelError, match="6 context vectors, 8 soft prompts and texts of 60 tokens"):
            describe_two_stage(describe(tmp_path / "body"), TwoStageSettings(size=6), max_length=60)


@pytest.mark.parametrize("body", ["bert", "nomic_bert"])
def test_null_context_and_context(folder: Folder, body: str) -> None:
    encoder = opened(folder(body))
    alone = np.concatenate([encoder.encode_batch([text]) for text in TEXTS])
    assert np.abs(alone - encoder.encode_batch(TEXTS)).max() < 1e-5
    found = []
    for documents in (DOCUMENTS, DOCUMENTS, DOCUMENTS[::-1]):
        encoder.set_context(encoder.compute_context_vectors(documents))
        found.append(encoder.encode(TEXTS))
    assert np.array_equal(found[0], found[1])
    assert np.abs(found[0] - alone).max() > 1e-3
    assert (np.abs(found[0] - found[2]).max() > 1e-3) == (body == "bert"), (
        "only learned positions see an order"
    )
    encoder.set_context(None)
    assert np.abs(encoder.encode(TEXTS) - alone).max() < 1e-5


def test_the_gate(folder: Folder, tmp_path: Path) -> None:
    report = check_encoder(opened(folder()), lambda: opened(folder()))
    assert report.failures == ()
    assert report.checks == ("finite", "order", "constant", "padding", "context", "reload")
    encoder = opened(folder())
    module = encoder.model[0]
    assert isinstance(module, TwoStage)
    for part in (module.context_head[2].weight, module.context_head[2].bias, module.null):
        torch.nn.init.zeros_(part)
    assert [one.check for one in check_encoder(encoder).failures] == ["context"]


def test_prefixes_by_task(folder: Folder) -> None:
    encoding = opened(folder()).encoding
    asked = {
        ("SciFact", "Retrieval", "query"): "search_query: ",
        ("SciFact", "Retrieval", "document"): "search_document: ",
        ("QuoraRetrieval", "Retrieval", "document"): "search_query: ",
        ("AskUbuntuDupQuestions", "Reranking", "query"): "classification: ",
        ("STS12", "STS", ""): "classification: ",
        ("TwitterSemEval2015", "PairClassification", ""): "classification: ",
        ("ArXivHierarchicalClusteringP2P", "Clustering", ""): "clustering: ",
    }
    for (name, kind, side), prefix in asked.items():
        assert encoding.resolve_prompt(OwnTexts(name=name, type=kind), side) == prefix  # type: ignore[arg-type]


# What makes no model


def edited(source: Path, target: Path, **changes: Any) -> Path:
    shutil.copytree(source, target)
    path = target / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
    return target


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"size": 50},
            "50 context vectors, 3 soft prompts and texts of 24 tokens need more positions than the 64",
        ),
        ({"size": 7, "prompts": 2}, "config.json wants .*prompt_head.2.weight"),
        ({"pooling": "max"}, "pooling = 'max': input should be 'text' or 'all'"),
        ({"sequence_dropout": 1.0}, "sequence_dropout = 1.0: input should be less than 1"),
        ({"depth": 3}, "settings that are not known here: depth"),
        ({"size": 0}, "size = 0: input should be greater than or equal to 1"),
    ],
)
def test_bad_folders(folder: Folder, tmp_path: Path, changes: dict[str, Any], words: str) -> None:
    with pytest.raises(HarnessError, match=words.replace("(", r"\(")):
        opened(edited(folder(), tmp_path / "model", **changes))


def test_requests_that_do_not_fit(folder: Folder, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="its context documents would have 'passage: '"):
        opened(folder(), prompts={"document": "passage: "})
    with pytest.raises(UsageError, match=r"more than .* has positions for"):
        opened(folder(), max_length=60)
    body = tiny.folder(tiny.families()["bert"], tmp_path / "body")
    with pytest.raises(UsageError, match="depend on no context documents"):
        resolve_encoding(describe(body), Settings(context="null"))


def test_tied_embeddings_of_two_vocabularies(tmp_path: Path) -> None:
    first = tiny.folder(tiny.families()["bert"], tmp_path / "first")
    second = tiny.folder(tiny.families()["bert"], tmp_path / "second", vocab_size=170)
    stages = [Transformer(str(place), model_args={"dtype": torch.float32}) for place in (first, second)]
    for stage in stages:
        stage.max_seq_length = 24
    with pytest.raises(ModelError, match="two vocabularies"):
        TwoStage(*stages, TwoStageSettings(size=4, tied=True))


def test_a_context_of_another_size(tmp_path: Path) -> None:
    module = two_stage_models.module(tmp_path)
    with pytest.raises(ModelError, match=r"6 context vectors of 32 dimensions .* \(5, 32\) were given"):
        module.compute_text_vectors(module.tokenize(TEXTS), torch.zeros(5, 32))
