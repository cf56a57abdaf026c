"""Tokens are those of the library, and features reach a device in one copy that nothing waits for."""

from __future__ import annotations

import copy
import functools
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch._subclasses.fake_tensor import DynamicOutputShapeException, FakeTensor, FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

import late_models
import tiny
import two_stage_models
from harness.core.types import SIDES
from harness.encoder import batches
from harness.encoder.attention.interface import Nothing
from harness.encoder.attention.kernels import BACKENDS
from harness.encoder.batches import TokenizedTexts, encode_texts, move_features, tokenize_texts
from harness.encoder.engine import embed_features
from harness.encoder.folder.description import describe
from harness.encoder.library_load import RENAMED, tokenize_batch
from harness.encoder.sentence_transformer import SentenceTransformer
from harness.encoder.token_encoder import _SideInputs, compute_token_vectors, open_modules

TEXTS = [
    "the cat sat on a mat.",
    "  Stock FELL!\n",
    "",
    "x [SEP] [PAD] y",
    "日本 naïve İstanbul 😀",
    "def add(a, b): return a + b " * 9,
    "the cat sat on a mat.",
]

# Tokens


def word_piece() -> Any:
    from tokenizers import models, normalizers, pre_tokenizers

    names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *"abcdefghijklmnopqrstuvwxyz.()+:"]
    vocabulary = {token: number for number, token in enumerate([*names, *(f"##{one}" for one in names[4:])])}
    return (
        models.WordPiece(vocab=vocabulary, unk_token="[UNK]"),
        normalizers.BertNormalizer(lowercase=True),
        pre_tokenizers.BertPreTokenizer(),
    )


def byte_pairs() -> Any:
    from tokenizers import models, normalizers, pre_tokenizers

    merges = [("Ġ", "a"), ("t", "h"), ("th", "e"), ("Ġ", "c"), ("a", "t")]
    names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *sorted(pre_tokenizers.ByteLevel.alphabet())]
    names += [first + second for first, second in merges]
    vocabulary = {token: number for number, token in enumerate(names)}
    return models.BPE(vocab=vocabulary, merges=merges), normalizers.NFC(), pre_tokenizers.ByteLevel()


def unigram() -> Any:
    from tokenizers import models, normalizers, pre_tokenizers

    pieces = [(name, 0.0) for name in ("[PAD]", "[UNK]", "[CLS]", "[SEP]")]
    pieces += [
        (piece, -2.0 - number / 9) for number, piece in enumerate(["▁the", "▁cat", "▁", *"abcdefghst"])
    ]
    return models.Unigram(pieces, unk_id=1), normalizers.NFKC(), pre_tokenizers.Metaspace()


def module(kind: Callable[[], Any], *, lower: bool = False, type_id: int = 0, own: Any = None) -> Any:
    """What is used of a Transformer to tokenize."""
    from tokenizers import Tokenizer, processors
    from transformers import PreTrainedTokenizerFast

    model, normalizer, splitter = kind()
    raw = Tokenizer(model)
    raw.normalizer, raw.pre_tokenizer = normalizer, splitter
    raw.post_processor = processors.TemplateProcessing(
        single=f"[CLS]:0 $A:{type_id} [SEP]:{type_id}", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    names = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    tokenizer = (own or PreTrainedTokenizerFast)(
        tokenizer_object=raw, model_max_length=40, model_input_names=["input_ids", "token_type_ids"], **names
    )
    return SimpleNamespace(tokenizer=tokenizer, do_lower_case=lower, max_seq_length=12)


@functools.cache
def open_library_module() -> Any:
    """A Transformer of the library, whose tokenizer is set."""
    from sentence_transformers.models import Transformer

    with tempfile.TemporaryDirectory() as folder:
        return Transformer(str(tiny.folder(tiny.families()["bert"], Path(folder))))


def expected(given: Any, texts: Sequence[str], length: int | None) -> Any:
    """The tokens as `Transformer.tokenize` of the library makes them, a text at a time."""
    from sentence_transformers.models import Transformer

    if RENAMED:
        module = open_library_module()
        module.processor = copy.deepcopy(given.tokenizer)
        if length is not None:
            module.max_seq_length = length
        # A tokenizer that is set later does not get the library's lower case.
        return [tokenize_batch(module, [text.lower() if given.do_lower_case else text]) for text in texts]
    named = SimpleNamespace(**{**vars(given), "max_seq_length": length})
    return [Transformer.tokenize(named, [text]) for text in texts]


@pytest.mark.parametrize("kind", [word_piece, byte_pairs, unigram])
@pytest.mark.parametrize("length", [3, 12, None])
@pytest.mark.parametrize("lower", [False, True])
@pytest.mark.parametrize("type_id", [0, 1])
def test_tokens_are_the_librarys(
    kind: Callable[[], Any], length: int | None, lower: bool, type_id: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batches, "PART", 3)
    given = module(kind, lower=lower, type_id=type_id)
    texts = [prompt + text for prompt in ("", "query: ") for text in TEXTS]
    tokens, truth = tokenize_texts(given, texts, length), expected(given, texts, length)
    assert sorted(tokens.order) == list(range(len(texts)))
    assert (np.diff(tokens.lengths) <= 0).all()
    for place, number in enumerate(tokens.order):
        part = slice(tokens.bounds[place], tokens.bounds[place + 1])
        for name in ("input_ids", "token_type_ids"):
            assert tokens.flat[name][part].tolist() == truth[number][name][0].tolist()
    # Another length before changes nothing: the backend is set for each call.
    assert len(encode_texts(given, [TEXTS[5]], 5)[0].ids) == 5
    assert (
        tokenize_texts(given, texts, length).flat["input_ids"].tolist() == tokens.flat["input_ids"].tolist()
    )


def test_a_tokenizer_with_steps_of_its_own_is_asked_itself() -> None:
    from transformers import PreTrainedTokenizerFast

    class Own(PreTrainedTokenizerFast):
        def _encode_plus(self, text: Any, *args: Any, **kwargs: Any) -> Any:
            changed = [one.replace("cat", "dog") for one in text] if isinstance(text, list) else text
            return super()._encode_plus(changed, *args, **kwargs)

    given = module(word_piece, own=Own)
    assert [*tokenize_texts(given, TEXTS[:1], None).flat["input_ids"]] == [
        *expected(given, TEXTS[:1], None)[0]["input_ids"][0]
    ]


def test_our_network_gets_token_types_only_where_the_tokenizer_has_some() -> None:
    for type_id in (0, 1):
        given = module(word_piece, type_id=type_id)
        given.model_forward_params = {"packing"}
        assert ("token_type_ids" in tokenize_texts(given, TEXTS, None).flat) == bool(type_id)


# Features on a device


class Ops(TorchDispatchMode):
    """The names of the operations that run."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.append(func.overloadpacket.__name__)
        return func(*args, **(kwargs or {}))


WAITING = {"_local_scalar_dense", "nonzero", "is_nonzero", "item", "masked_select", "unique"}
"""The operations for which the host waits for a GPU."""


class NoAttention:
    """A backend whose kernel takes the queries for the result."""

    name = "sdpa"

    def explain_refusal(self, *_: Any) -> None:
        return None

    def build_layout(self, lengths: Any, *_: Any) -> Nothing:
        assert all(type(length) is int for length in lengths)
        return Nothing()


Run = Callable[[torch.nn.Module, dict[str, Any], Callable[..., torch.Tensor]], tuple[int, list[str]]]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs a function on features on a GPU without memory: the copies of features, and the operations."""
    monkeypatch.setitem(BACKENDS, "sdpa", NoAttention())

    def run(model: torch.nn.Module, features: dict[str, Any], function: Any) -> tuple[int, list[str]]:
        copies: list[Any] = []
        with FakeTensorMode(allow_non_fake_inputs=True) as mode, Ops() as ops, torch.inference_mode():

            def send(value: Any, device: Any) -> Any:
                copies.append(value)
                return (value if isinstance(value, FakeTensor) else mode.from_tensor(value)).to(device)

            monkeypatch.setattr(batches, "_send_tensor", send)
            for network in (one for one in model.modules() if hasattr(one, "attention_asked")):
                network.attention_asked = "sdpa"
            state = {f"model.{n}": mode.from_tensor(v.detach()).cuda() for n, v in model.state_dict().items()}
            holder = torch.nn.Module()
            holder.model, holder.forward = model, function
            moved = move_features(features, torch.device("cuda"))
            ops.names.clear()
            vectors = torch.func.functional_call(holder, state, (model, moved))
        assert vectors.device.type == "cuda"
        return len(copies), ops.names

    return run


SENTENCES = ["the cat", "river stone cloud " * 2, "", "engine letter garden music"]


def build_whole(texts: Any) -> dict[str, Any]:
    """The features of all texts in one batch."""
    features: dict[str, Any] = texts.build_features((0, len(texts.order)))
    return features


@pytest.mark.parametrize("family", ["bert", "modernbert", "roberta", "nomic_bert", "mosaicbert"])
def test_no_pass_waits_for_a_gpu(family: str, tmp_path: Path, run: Run) -> None:
    model = SentenceTransformer(str(tiny.folder(tiny.families()[family], tmp_path / family)), device="cpu")
    copies, names = run(model, build_whole(TokenizedTexts(model[0], SENTENCES)), embed_features)
    assert copies == 1
    assert len(names) > 20
    assert not WAITING & {*names}


def test_without_a_packing_a_pass_waits(tmp_path: Path, run: Run) -> None:
    model = SentenceTransformer(str(tiny.folder(tiny.families()["bert"], tmp_path / "bert")), device="cpu")
    features = build_whole(TokenizedTexts(model[0], SENTENCES))
    del features["packing"]
    with pytest.raises(DynamicOutputShapeException, match="nonzero"):
        run(model, features, embed_features)


@pytest.mark.parametrize("attends", [True, False])
@pytest.mark.parametrize("role", SIDES)
def test_no_pass_of_a_colbert_waits_for_a_gpu(attends: bool, role: Any, tmp_path: Path, run: Run) -> None:
    folder = late_models.save(tmp_path / "model", attend_to_expansion_tokens=attends)
    late = describe(folder).late_interaction
    assert late is not None
    model = open_modules(folder, {"trust_remote_code": False, "dtype": torch.float32})
    features = build_whole(_SideInputs(model[0], SENTENCES, late, role))
    counts = features.pop("counts")
    copies, names = run(model, features, compute_token_vectors)
    assert (len(counts), copies) == (len(SENTENCES), 1 + (role == "query" and not attends))
    assert not WAITING & {*names}


@pytest.mark.parametrize("body", ["bert", "nomic_bert"])
def test_no_pass_of_a_two_stage_model_waits_for_a_gpu(body: str, tmp_path: Path, run: Run) -> None:
    model = SentenceTransformer(str(two_stage_models.save(tmp_path / "model", body)), device="cpu")
    stage: Any = model[0]
    text = TokenizedTexts(stage.text_stage, SENTENCES, before=stage.settings.places)
    first = TokenizedTexts(stage.context_stage, SENTENCES)
    for names in (
        run(model, build_whole(text), embed_features)[1],
        run(model, build_whole(first), lambda model, moved: model[0].compute_context_vectors(moved))[1],
    ):
        assert names
        assert not WAITING & {*names}


def test_features_arrive_as_they_were(tmp_path: Path) -> None:
    model = SentenceTransformer(str(tiny.folder(tiny.families()["bert"], tmp_path / "bert")), device="cpu")
    sent = build_whole(TokenizedTexts(model[0], SENTENCES)) | {"weights": torch.rand(3), "prompt_length": 2}
    moved = move_features(sent, torch.device("cpu"))
    assert moved.keys() == sent.keys()
    packing, truth = vars(moved.pop("packing")), vars(sent.pop("packing"))
    for name, value in [*sent.items(), *truth.items()]:
        got = moved[name] if name in moved else packing[name]
        assert torch.equal(got, value) if isinstance(value, torch.Tensor) else got == value
    assert move_features({"task": "query"}, torch.device("cpu")) == {"task": "query"}
