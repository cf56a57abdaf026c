from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.core.encoding import Settings
from harness.core.errors import ModelError
from harness.encoder import sanity
from harness.encoder.engine import Encoder
from harness.encoder.folder.description import describe
from harness.encoder.resolved_encoding import resolve_encoding
from harness.encoder.sanity import check_encoder, require_sane

Loaded = Callable[..., Encoder]
Edit = Callable[[Path, Callable[[dict[str, Any]], Any]], None]

LAST = "encoder.layer.1.output.LayerNorm"


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_sound_model_passes(bare: Path, loaded: Loaded, dtype: str) -> None:
    report = check_encoder(loaded(bare, dtype=dtype), lambda: loaded(bare, dtype=dtype))
    assert report.checks == ("finite", "order", "constant", "padding", "reload")
    assert report.failures == ()
    assert report.seconds > 0
    require_sane(report)


def test_there_is_one_model_at_a_time(bare: Path, loaded: Loaded) -> None:
    import weakref

    encoder = loaded(bare)
    first = weakref.ref(encoder.model)

    def reload() -> Encoder:
        assert first() is None
        return loaded(bare)

    before = encoder.encode(sanity.SHORT)
    assert check_encoder(encoder, reload).failures == ()
    assert (encoder.encode(sanity.SHORT) == before).all()


def test_two_loads_that_disagree_and_the_tensors_that_differ(copy: Path, loaded: Loaded, edit: Edit) -> None:
    encoder = loaded(copy)
    edit(copy, lambda tensors: tensors["encoder.layer.0.output.dense.weight"][0, 0].add_(0.01))
    failure = only_failure(encoder, lambda: loaded(copy))
    assert failure.check == "reload"
    assert "Two loads of the model disagree" in failure.message
    assert re.search(r"that differ: 0\.(auto_)?model\.layers\.0\.mlp\.down\.weight\.", failure.message)


def test_a_tensor_that_no_vector_depends_on_may_differ(copy: Path, loaded: Loaded, edit: Edit) -> None:
    encoder = loaded(copy)
    edit(copy, lambda tensors: tensors["pooler.dense.weight"].add_(1))
    assert check_encoder(encoder, lambda: loaded(copy)).failures == ()


def test_without_a_second_load_that_check_is_left_out(bare: Path, loaded: Loaded) -> None:
    assert "reload" not in check_encoder(loaded(bare)).checks


def only_failure(encoder: Encoder, reload: Callable[[], Encoder] | None = None) -> Any:
    report = check_encoder(encoder, reload)
    with pytest.raises(ModelError) as caught:
        require_sane(report)
    assert len(report.failures) == 1
    assert caught.value.message == str(report.failures[0])
    assert caught.value.hint
    return report.failures[0]


def test_vectors_that_are_not_finite(copy: Path, loaded: Loaded, edit: Edit) -> None:
    edit(copy, lambda tensors: tensors[f"{LAST}.bias"].fill_(float("nan")))
    failure = only_failure(loaded(copy))
    assert failure.check == "finite"
    assert (
        "6 of 6 vectors of short test texts are not finite, that of 'A cat sat on the mat.' first"
        in failure.message
    )


@pytest.mark.parametrize("value", [0.0, 1.0])
def test_vectors_that_are_all_the_same(copy: Path, loaded: Loaded, edit: Edit, value: float) -> None:
    def flatten(tensors: dict[str, Any]) -> None:
        tensors[f"{LAST}.weight"].zero_()
        tensors[f"{LAST}.bias"].fill_(value)

    edit(copy, flatten)
    failure = only_failure(loaded(copy))
    assert failure.check == "constant"
    assert "6 different texts all have the same vector" in failure.message


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_model_that_pools_over_padding(bare: Path, loaded: Loaded, dtype: str) -> None:
    import torch

    class PoolsAll(torch.nn.Module):
        def forward(self, features: dict[str, Any]) -> dict[str, Any]:
            return {**features, "sentence_embedding": features["token_embeddings"].mean(1)}

    encoder = loaded(bare, dtype=dtype)
    encoder.model[1] = PoolsAll()
    failure = only_failure(encoder)
    assert failure.check == "padding"
    assert "moves by" in failure.message


def test_a_model_that_attends_to_padding(bare: Path, loaded: Loaded) -> None:
    encoder = loaded(bare)
    first: Any = encoder.model[0]
    backbone = first.auto_model.forward

    def forgets(*args: Any, **kwargs: Any) -> Any:
        return backbone(*args, **{**kwargs, "attention_mask": None, "packing": None})

    first.auto_model.forward = forgets
    assert only_failure(encoder).check == "padding"


def test_a_padded_vector_that_is_not_finite(bare: Path, loaded: Loaded) -> None:
    encoder = loaded(bare)
    first: Any = encoder.model[0]
    forward = first.forward

    def breaks(features: dict[str, Any]) -> Any:
        out = forward(features)
        return {**out, "token_embeddings": out["token_embeddings"] / out["attention_mask"].min()}

    first.forward = breaks
    assert only_failure(encoder).check == "padding"


def test_fresh_weights_disagree_with_themselves(bare: Path) -> None:
    from sentence_transformers import SentenceTransformer
    from transformers import AutoConfig, AutoModel

    def fresh() -> Encoder:
        model = SentenceTransformer(str(bare), device="cpu", local_files_only=True)
        first: Any = model[0]
        name = "model" if hasattr(first, "model") else "auto_model"
        setattr(first, name, AutoModel.from_config(AutoConfig.from_pretrained(bare)).eval())
        return Encoder(model, resolve_encoding(describe(bare), Settings()))

    assert only_failure(fresh(), fresh).check == "reload"


def test_all_failures_are_told(bare: Path, loaded: Loaded, copy: Path, edit: Edit) -> None:
    edit(copy, lambda tensors: tensors[f"{LAST}.weight"].zero_())
    report = check_encoder(loaded(copy), lambda: loaded(bare))
    assert [failure.check for failure in report.failures] == ["constant", "reload"]
    with pytest.raises(ModelError, match=r"(?s)same vector.*Two loads"):
        require_sane(report)


class Counts:
    """Every call adds to a Python attribute."""

    calls = 0

    def __call__(self, vectors: Any, tokens: int) -> Any:
        self.calls += 1
        return vectors + self.calls


class Remembers:
    """The vector of a batch depends on the batch before it."""

    last: Any = 0.0

    def __call__(self, vectors: Any, tokens: int) -> Any:
        last, self.last = self.last, vectors[0, 0].item()
        return vectors + last


class Averages:
    """A running mean, as that of a normalisation that was left in training mode."""

    mean: Any = 0.0

    def __call__(self, vectors: Any, tokens: int) -> Any:
        self.mean = 0.9 * self.mean + 0.1 * vectors[0]
        return vectors - self.mean


class Caches:
    """What was computed for the first batch of all is used for every later one."""

    first: Any = None

    def __call__(self, vectors: Any, tokens: int) -> Any:
        self.first = vectors[0] if self.first is None else self.first
        return vectors + self.first


class SwitchesAtShort:
    """A short text switches something off for good, as in BigBird."""

    off = False

    def __call__(self, vectors: Any, tokens: int) -> Any:
        self.off = self.off or tokens < 20
        return vectors if self.off else vectors * vectors


class SwitchesAtLong:
    """The longest text so far stretches the positions of all later ones."""

    most = 0

    def __call__(self, vectors: Any, tokens: int) -> Any:
        self.most = max(self.most, tokens)
        return vectors + (self.most > 40)


class SwitchesAtMany:
    """A large batch switches something off for good."""

    off = False

    def __call__(self, vectors: Any, tokens: int) -> Any:
        self.off = self.off or len(vectors) > 16
        return vectors * vectors if self.off else vectors


class SwitchesLate:
    """The first hundred texts are a warm-up."""

    texts = 0

    def __call__(self, vectors: Any, tokens: int) -> Any:
        self.texts += len(vectors)
        return vectors if self.texts < 100 else vectors * vectors


class CountsEmpty:
    """A text without words, of special tokens alone, breaks a statistic for good."""

    broken = 0.0
    mask: Any = None

    def __call__(self, vectors: Any, tokens: int) -> Any:
        lengths = self.mask.sum(1)
        self.broken += float((lengths <= 2).any())
        return vectors + self.broken


CHANGES = [
    *(Counts, Remembers, Averages, SwitchesAtShort, SwitchesAtLong, Caches),
    *(SwitchesAtMany, SwitchesLate, CountsEmpty),
]


@pytest.mark.parametrize("change", CHANGES)
def test_a_forward_that_changes_the_model(bare: Path, change: Callable[[], Any]) -> None:
    import torch
    from sentence_transformers import SentenceTransformer

    class Changes(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.changes = change()

        def forward(self, features: dict[str, Any]) -> dict[str, Any]:
            tokens, self.changes.mask = features["input_ids"].shape[1], features["attention_mask"]
            return {**features, "sentence_embedding": self.changes(features["sentence_embedding"], tokens)}

    def load() -> Encoder:
        model = SentenceTransformer(str(bare), device="cpu", local_files_only=True)
        model.append(Changes())
        return Encoder(model, resolve_encoding(describe(bare), Settings()))

    report = check_encoder(load(), load)
    # A first batch that all later ones depend on is like numbers that each load draws at random.
    assert report.failures[-1].check == ("reload" if change is Caches else "order")
    with pytest.raises(ModelError, match=r"forward pass changes the model"):
        require_sane(report)


def test_a_vector_that_is_another_one_among_many(bare: Path, loaded: Loaded) -> None:
    encoder = loaded(bare)
    first: Any = encoder.model[0]
    forward = first.forward

    def shift(features: dict[str, Any]) -> Any:
        out = forward(features)
        return {**out, "token_embeddings": out["token_embeddings"] + (len(out["token_embeddings"]) > 16)}

    first.forward = shift
    failure = only_failure(encoder)
    assert failure.check == "padding"
    assert "among many texts" in failure.message


def test_dropout_that_is_left_on(bare: Path) -> None:
    from sentence_transformers import SentenceTransformer

    def load() -> Encoder:
        model = SentenceTransformer(str(bare), device="cpu", local_files_only=True)
        return Encoder(model.train(), resolve_encoding(describe(bare), Settings()))

    failure = only_failure(load(), load)
    assert failure.check == "order"
    assert "training mode" in failure.hint
