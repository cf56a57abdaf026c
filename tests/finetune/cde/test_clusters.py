"""Contextual batches: clusters, packing, the filter of false negatives, and the recipe that has all three."""

from __future__ import annotations

import math
import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file
from transformers.trainer_callback import CallbackHandler

import faulty
import tiny
from contextual_pairs import pairs_file
from finetune.cde import clusters as module
from finetune.cde import training as preparing
from finetune.cde.clusters import FILE, ClusterWork, KMeans, PairClusters, Stopped, make_clusters
from finetune.cde.plan import ContextualRecipe
from finetune.cde.settings import ClusterSettings, ContextualSettings
from finetune.embedding.losses import NegativeFilter, build_filtered_loss
from finetune.embedding.settings import info_nce
from finetune.embedding.setups import PackedOrder, pack_clusters
from finetune.recipes import cde_batching
from harness.core.encoding import Settings
from harness.core.errors import DataError, HarnessError, UsageError
from harness.core.keys import ParentPart
from harness.core.types import Artifact
from harness.encoder.folder.description import describe
from harness.plan.models import ModelOptions, resolve_model
from harness.plan.request import Request
from harness.plan.training_plan import TrainingRequest, _resolve_guide, plan_models
from harness.training import training
from harness.training.training import TrainingSpec, read_log
from small_trainings import trained
from stopped_trainings import train_on_devices

SMALL = ClusterSettings(cluster_size=50, dimensions=16, iterations=10, starts=2)

TOPICS = 20


class Planted:
    """Pairs whose texts are a topic's direction with noise (finetune.cde.clusters.PairVectors)."""

    name = "planted"

    def __init__(self, pairs: int = 2_000, *, topics: int = TOPICS, dimensions: int = 32) -> None:
        draw = np.random.default_rng(5)
        centres = np.linalg.qr(draw.standard_normal((dimensions, topics)))[0].T.astype(np.float32)
        self.topics = draw.integers(topics, size=pairs)
        shape = (2, pairs, dimensions)
        noise = draw.standard_normal(shape, dtype=np.float32) * np.float32(0.3 / dimensions**0.5)
        self.query, self.document = centres[self.topics] + noise
        self.twice = np.zeros(pairs, np.bool_)

    def __len__(self) -> int:
        return len(self.topics)

    def mark_duplicates(self) -> NDArray[np.bool_]:
        return self.twice

    def load_pair_vectors(self, begin: int, end: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        return self.query[begin:end], self.document[begin:end]


def made(pairs: Planted, folder: Path, settings: ClusterSettings = SMALL, **work: Any) -> PairClusters:
    return make_clusters(pairs, settings, {"of": "test"}, ClusterWork(folder=folder, **work))


# Clusters


def test_planted_topics_are_the_clusters_and_fill_the_batches(tmp_path: Path) -> None:
    """A batch of half a topic's size has one topic but where clusters meet."""
    pairs = Planted()
    found = made(pairs, tmp_path, replace(SMALL, cluster_size=100, dimensions=TOPICS))
    table = np.zeros((int(found.numbers.max()) + 1, TOPICS), int)
    np.add.at(table, (found.numbers, pairs.topics), 1)
    assert table.max(1).sum() / len(pairs) >= 0.95
    assert found.facts["clusters"] == 20
    assert found.facts["empty"] == 20 - len(np.unique(found.numbers))
    batches = pack_clusters(found.numbers, 50, seed=1)
    mixed = [len(np.unique(found.numbers[rows])) > 1 for rows in batches]
    assert sum(mixed) < len(np.unique(found.numbers))  # at most one batch at each border
    pure = [len(np.unique(found.numbers[rows])) == 1 for rows in pack_clusters(found.numbers, 1, seed=1)]
    assert all(pure)


def test_the_points_are_those_of_the_definition(tmp_path: Path) -> None:
    """[q;d] of the SVD of queries that scikit-learn gives, up to the signs, which no product shows."""
    from sklearn.decomposition import TruncatedSVD

    pairs = Planted(300)
    points = np.asarray(
        module._build_points(pairs, 16, tmp_path / "points.npy", ClusterWork(folder=tmp_path))
    )
    library = TruncatedSVD(16, algorithm="arpack", random_state=0).fit(pairs.query.astype(np.float64))
    halves = [library.transform(part) for part in (pairs.query, pairs.document)]
    wanted = np.hstack([half / np.linalg.norm(half, axis=1, keepdims=True) for half in halves]) / math.sqrt(2)
    np.testing.assert_allclose(points.astype(np.float64) @ points.T, wanted @ wanted.T, atol=2e-3)
    assert points.dtype == np.float16


def test_k_means_iterates_as_a_loop_does() -> None:
    """Each centroid is the normalised sum of the points that it is most similar to, of both orders."""
    draw = np.random.default_rng(0)
    points = draw.standard_normal((60, 8)).astype(np.float32)
    points /= np.linalg.norm(points, axis=1, keepdims=True)
    means = KMeans(points, np.arange(60), 4, SMALL, ClusterWork(folder=Path()))
    first = points[:4].copy()
    found, value = means._iterate(first)
    both = np.vstack([points, np.hstack([points[:, 4:], points[:, :4]])])
    nearest = (both @ first.T).argmax(1)
    sums = np.stack([both[nearest == number].sum(0) for number in range(4)])
    np.testing.assert_allclose(found, sums / np.linalg.norm(sums, axis=1, keepdims=True), atol=1e-6)
    assert value == pytest.approx((both @ first.T).max(1).mean(), abs=1e-6)
    least = both[(both @ first[:3].T).max(1).argmin()]
    found, _ = means._iterate(np.vstack([first[:3], first[:1]]))  # of equals the first has all points
    np.testing.assert_allclose(found[3], least, atol=1e-6)


def test_a_seed_gives_one_file_and_another_seed_another(tmp_path: Path) -> None:
    pairs = Planted()
    files = []
    for name, seed in (("one", 42), ("again", 42), ("other", 43)):
        made(pairs, tmp_path / name, replace(SMALL, cluster_seed=seed))
        files.append((tmp_path / name / FILE).read_bytes())
    assert files[0] == files[1] != files[2]


@pytest.mark.parametrize("after", [1, 12, 25, 40])
def test_clusters_that_were_killed_end_as_undisturbed_ones(
    after: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stopped among the points, in either start, and while pairs are assigned."""
    monkeypatch.setattr(module, "KEPT_SECONDS", -1.0)
    monkeypatch.setattr(module, "ROWS", 500)
    pairs, tight = Planted(), replace(SMALL, iterations=4)
    made(pairs, tmp_path / "whole", tight)
    looks = iter(range(10_000))
    with pytest.raises(Stopped):
        made(pairs, tmp_path / "cut", tight, stop=lambda: next(looks) >= after)
    assert not (tmp_path / "cut" / FILE).exists()
    made(pairs, tmp_path / "cut", tight)
    assert (tmp_path / "cut" / FILE).read_bytes() == (tmp_path / "whole" / FILE).read_bytes()
    assert [path.name for path in (tmp_path / "cut").iterdir()] == [FILE]


@pytest.mark.parametrize("name", ["points.npy", "state.npz"])
def test_a_damaged_file_of_a_killed_run_is_noted_and_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(module, "KEPT_SECONDS", -1.0)
    monkeypatch.setattr(module, "ROWS", 500)
    pairs, tight = Planted(), replace(SMALL, iterations=4)
    made(pairs, tmp_path / "whole", tight)
    looks = iter(range(10_000))
    with pytest.raises(Stopped):
        made(pairs, tmp_path / "cut", tight, stop=lambda: next(looks) >= 25)
    (path,) = (tmp_path / "cut").rglob(name)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    notes: list[str] = []
    made(pairs, tmp_path / "cut", tight, note=notes.append)
    (note,) = notes
    assert note.startswith(f"{path} is damaged")
    assert (tmp_path / "cut" / FILE).read_bytes() == (tmp_path / "whole" / FILE).read_bytes()


def test_a_file_that_is_not_what_was_written_says_nothing(tmp_path: Path) -> None:
    found = made(Planted(), tmp_path)
    again = PairClusters.read_clusters(tmp_path / FILE, {"of": "test"})
    assert again is not None
    assert (again.tour, again.facts) == (found.tour, found.facts)
    np.testing.assert_array_equal(again.numbers, found.numbers)
    assert PairClusters.read_clusters(tmp_path / FILE, {"of": "another"}) is None
    import pyarrow.parquet as pq

    table = pq.read_table(tmp_path / FILE)
    changed = table["cluster"].to_numpy().copy()
    changed[0] += 1
    pq.write_table(table.set_column(0, "cluster", [changed]), tmp_path / "changed.parquet")
    assert PairClusters.read_clusters(tmp_path / "changed.parquet", {"of": "test"}) is None
    (tmp_path / FILE).write_bytes((tmp_path / FILE).read_bytes()[:200])
    assert PairClusters.read_clusters(tmp_path / FILE, {"of": "test"}) is None


def test_a_sample_of_very_many_pairs_gives_clusters_nearly_as_good(tmp_path: Path) -> None:
    whole = made(Planted(), tmp_path / "whole").facts
    part = made(Planted(), tmp_path / "part", replace(SMALL, sample=700)).facts
    assert (whole["sample"], part["sample"]) == (2_000, 32 * 40)
    assert part["similarity"] == pytest.approx(whole["similarity"], abs=0.02)


def test_a_tour_goes_to_the_nearest_that_is_left(tmp_path: Path) -> None:
    found = made(Planted(), tmp_path)
    assert sorted(found.tour) == np.unique(found.numbers).tolist()
    line = np.array([[math.cos(angle), math.sin(angle)] for angle in (0.0, 0.9, 0.2, 0.5)], np.float32)
    for numbers, tour in {(0, 1, 2, 3): (0, 2, 3, 1), (1, 3): (1, 3)}.items():
        work = ClusterWork(folder=tmp_path)
        assert module._plan_cluster_tour(line, np.array(numbers), work) == tour


# Bad input of clusters


def test_more_clusters_than_pairs_are_refused() -> None:
    points = np.eye(4, dtype=np.float32)
    with pytest.raises(UsageError, match="3 pairs cannot make 4 clusters") as caught:
        KMeans(points, np.arange(3), 4, SMALL, ClusterWork(folder=Path()))
    assert "cluster_size" in (caught.value.hint or "")


@pytest.mark.parametrize("side", ["query", "document"])
def test_a_guide_that_gives_nan_is_named(side: str, tmp_path: Path) -> None:
    pairs = Planted(200)
    getattr(pairs, side)[150, 3] = np.nan
    with pytest.raises(DataError, match="a text of planted a vector that is not finite"):
        made(pairs, tmp_path)


def test_empty_clusters_and_repeated_pairs_are_in_no_batch(tmp_path: Path) -> None:
    """Of pairs that are all alike one cluster has all, and the rest are counted as empty."""
    pairs = Planted(400)
    pairs.query[:], pairs.document[:] = pairs.query[0], pairs.document[0]
    pairs.twice[100:] = True
    found = made(pairs, tmp_path)
    assert (found.facts["repeated"], found.facts["clusters"], found.facts["empty"]) == (300, 2, 1)
    assert len(found.tour) == 1
    assert sorted(pack_clusters(found.numbers, 30, seed=0).ravel()) == sorted(
        set(pack_clusters(found.numbers, 30, seed=0).ravel()) & set(range(100))
    )
    assert pack_clusters(found.numbers, 30, seed=0, tour=found.tour).shape == (3, 30)


# Batches


def test_an_order_of_packed_batches() -> None:
    """Every epoch has the same batches in another order, each shuffled; a pure function of seed and step."""
    clusters = np.repeat(np.arange(10, dtype=np.int32), 7)
    clusters[3] = -1
    batches = pack_clusters(clusters, 8, seed=3)
    assert batches.shape == (8, 8)
    assert 3 not in batches
    assert len(np.unique(batches)) == 64
    order = PackedOrder(batches, epochs=3, seed=3)
    assert order.steps == 24
    seen = list(order.iter_batches(0))
    known = {frozenset(rows) for rows in batches.tolist()}
    for epoch in range(3):
        assert {frozenset(rows.tolist()) for rows in seen[8 * epoch : 8 * epoch + 8]} == known
    assert [rows.tolist() for rows in seen[:8]] != [rows.tolist() for rows in seen[8:16]]
    assert any(sorted(rows.tolist()) != rows.tolist() for rows in seen)
    again = PackedOrder(pack_clusters(clusters, 8, seed=3), epochs=3, seed=3)
    np.testing.assert_array_equal(np.array(list(again.iter_batches(11))), np.array(seen[11:]))
    assert not np.array_equal(pack_clusters(clusters, 8, seed=4), batches)


def test_a_tour_is_kept_but_for_its_beginning() -> None:
    clusters = np.repeat(np.arange(5, dtype=np.int32), 4)
    tour = (2, 4, 0, 1, 3)
    begins = set()
    for seed in range(20):
        order = clusters[pack_clusters(clusters, 4, seed=seed, tour=tour)][:, 0].tolist()
        begin = tour.index(order[0])
        assert order == [*tour[begin:], *tour[:begin]]
        begins.add(begin)
    assert len(begins) > 2


# The filter


def guide_vectors(rows: int, columns: int, *, seed: int = 0) -> list[torch.Tensor]:
    """Vectors of queries and documents, of which some documents are exact duplicates of others."""
    draw = torch.Generator().manual_seed(seed)
    found = [torch.randn(rows, 24, generator=draw) for _ in range(columns)]
    found[1] = 0.6 * found[0] + found[1]
    found[1][rows // 2 :: 3] = found[1][: len(found[1][rows // 2 :: 3])]  # duplicates of earlier positives
    if columns > 2:
        found[2][1] = found[1][0]  # a negative that is another query's positive
        found[2][3] = found[1][3]  # and one that is its own
    return found


def mask_every_row(vectors: list[torch.Tensor], **how: float) -> torch.Tensor:
    rows = torch.arange(len(vectors[0]))
    return NegativeFilter(vectors=lambda _: vectors, **how).mask(rows, rows)


@pytest.mark.parametrize("margin", [-0.05, 0.0, 0.05])
@pytest.mark.parametrize("columns", [2, 3])
def test_the_mask_is_that_of_a_double_loop(margin: float, columns: int) -> None:
    vectors = guide_vectors(17, columns)
    found = mask_every_row(vectors, margin=margin)
    documents = [row for column in vectors[1:] for row in column]
    for query in range(17):
        cosines = [float(torch.cosine_similarity(vectors[0][query], one, 0, 0)) for one in documents]
        for at, cosine in enumerate(cosines):
            if at % 17 == query:
                assert not found[query, at]
            elif torch.equal(documents[at], documents[query]) and margin <= 0:
                assert found[query, at]
            elif abs(cosine - cosines[query] - margin) > 1e-6:
                assert bool(found[query, at]) == (cosine >= cosines[query] + margin)


@pytest.mark.parametrize("rows", [5, 64, 333])
def test_every_exact_duplicate_is_masked(rows: int) -> None:
    """Whatever the kernel of the product makes of a text's place."""
    for seed in range(5):
        vectors = guide_vectors(rows, 3, seed=seed)
        found = mask_every_row(vectors)
        documents = torch.cat(vectors[1:])
        same = (documents[None] == vectors[1][:, None]).all(2)
        same[torch.arange(rows), torch.arange(rows)] = False
        same[torch.arange(rows), rows + torch.arange(rows)] = (
            False  # its own negative, if that is its positive
        )
        assert same.sum() > rows // 8
        assert bool(found[same].all())


def test_a_threshold_takes_the_place_of_the_margin() -> None:
    vectors = guide_vectors(9, 2)
    found = mask_every_row(vectors, margin=5.0, threshold=0.1)
    cosines = torch.nn.functional.normalize(vectors[0]) @ torch.nn.functional.normalize(vectors[1]).T
    assert torch.equal(found, (cosines >= 0.1) & ~torch.eye(9, dtype=torch.bool))


class Texts(torch.nn.Module):
    """A model whose texts are rows of one weight."""

    def __init__(self, columns: list[torch.Tensor]) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.cat(columns).double())

    def __getitem__(self, _number: int) -> None:
        return None

    def forward(self, features: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        return {"sentence_embedding": self.weight[features["input_ids"][:, 0]]}


def loss_and_gradient(rows: int, micro_batch: int | None, group: int) -> tuple[torch.Tensor, torch.Tensor]:
    draw = torch.Generator().manual_seed(1)
    model: Any = Texts([torch.randn(rows, 6, generator=draw) for _ in range(3)])
    guide = guide_vectors(rows, 3)
    negatives = NegativeFilter(vectors=lambda numbers: [one[list(numbers)].double() for one in guide])
    loss = build_filtered_loss(model, negatives, 20.0, group=group, micro_batch=micro_batch, gather=False)
    features = [{"input_ids": torch.arange(rows)[:, None] + at * rows} for at in range(3)]
    found = loss(features, torch.arange(rows))
    found.backward()
    assert 0 < loss.measures["masked"] < 1
    return found.detach(), model.weight.grad


@pytest.mark.parametrize("group", [0, 6])
def test_the_filtered_loss_is_that_of_a_loop_with_any_chunk(group: int) -> None:
    found, gradient = loss_and_gradient(12, None, group)
    for chunk in (1, 5):
        other, same = loss_and_gradient(12, chunk, group)
        torch.testing.assert_close(other, found, rtol=1e-12, atol=0)
        torch.testing.assert_close(same, gradient, rtol=1e-9, atol=1e-12)
    draw = torch.Generator().manual_seed(1)
    vectors = [torch.randn(12, 6, generator=draw).double() for _ in range(3)]
    guide, total = [one.double() for one in guide_vectors(12, 3)], 0.0
    for at in range(12):
        rows = range(at // 6 * 6, at // 6 * 6 + 6) if group else range(12)
        cosine = lambda one, other: float(torch.cosine_similarity(one, other, 0, 0))  # noqa: E731
        least = cosine(guide[0][at], guide[1][at])
        logits = [
            20 * cosine(vectors[0][at], vectors[column][row])
            for column in (1, 2)
            for row in rows
            if row == at
            or not (
                torch.equal(guide[column][row], guide[1][at])
                or cosine(guide[0][at], guide[column][row]) >= least
            )
        ]
        own = 20 * cosine(vectors[0][at], vectors[1][at])
        total += math.log(sum(map(math.exp, logits))) - own
    assert float(found) == pytest.approx(total / 12, abs=1e-9)


@pytest.mark.parametrize("margin", [0.0, 0.1])
def test_without_ties_and_negatives_the_loss_is_that_of_gist(margin: float) -> None:
    """The library masks what is more similar than the positive less its margin, and spares the positive."""
    from sentence_transformers.losses import CachedGISTEmbedLoss

    draw = torch.Generator().manual_seed(2)
    model: Any = Texts([torch.randn(10, 6, generator=draw) for _ in range(2)])
    guide = [torch.randn(10, 24, generator=draw).double() for _ in range(2)]
    negatives = NegativeFilter(vectors=lambda rows: [one[list(rows)] for one in guide], margin=-margin)
    ours = build_filtered_loss(model, negatives, 20.0, group=0, micro_batch=4, gather=False)
    features = [{"input_ids": torch.arange(10)[:, None] + at * 10} for at in range(2)]
    theirs: Any = CachedGISTEmbedLoss.__new__(CachedGISTEmbedLoss)
    torch.nn.Module.__init__(theirs)
    theirs.mini_batch_size, theirs.show_progress_bar, theirs.gather_across_devices = 4, False, False
    theirs.temperature, theirs.margin_strategy, theirs.margin = 1 / 20, "absolute", margin
    theirs.contrast_anchors = theirs.contrast_positives = False
    theirs.similarity_fct = torch.nn.CosineSimilarity(dim=-1)
    theirs.cross_entropy_loss = torch.nn.CrossEntropyLoss()
    columns = [[*model.weight[at : at + 10].split(4)] for at in (0, 10)]
    wanted = theirs.calculate_loss(columns, [[*one.split(4)] for one in guide])
    found = ours(features, torch.arange(10))
    assert float(found.detach()) == pytest.approx(float(wanted.detach()), abs=1e-12)


# The recipe


def contextual(spec: TrainingSpec) -> ContextualRecipe:
    assert isinstance(spec.recipe, ContextualRecipe)
    return spec.recipe


def settings_of(spec: TrainingSpec) -> ContextualSettings:
    settings = contextual(spec).settings
    assert isinstance(settings, ContextualSettings)
    return settings


def test_the_model_is_the_planned_one_with_the_prefixes(make: Callable[..., TrainingSpec]) -> None:
    spec = make()
    planned = contextual(spec).plan(spec.backbone, spec.data, seed=7)
    trained(spec)
    found = describe(spec.output)
    assert planned.steps == 2 * (60 // 8)
    assert planned.texts == planned.steps * 8 * 2
    named = {name: text for name, text in found.prompts.items() if text}
    assert named == dict(planned.description.prompts)
    assert (found.pooling, found.max_length) == ("mean", planned.description.max_length)
    log = read_log(spec.folder / "log.jsonl")
    assert len(log) == planned.steps
    assert all(0 <= line["masked"] <= 1 for line in log)
    assert len({line["masked"] for line in log}) > 1


def test_a_training_that_was_killed_ends_as_an_undisturbed_one(
    make: Callable[..., TrainingSpec], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """In the guide's encoding, in the clusters, and in the steps: the same clusters, batches and weights."""
    whole = trained(make("whole"))
    (clusters,) = (tmp_path / "cache" / "clusters").glob("*/*.parquet")
    undisturbed = clusters.read_bytes()
    for part in ("clusters", "vectors"):
        shutil.rmtree(tmp_path / "cache" / part)
    spec = make("cut")

    class Killed(BaseException):
        pass

    def killed(place: Any, name: str, when: Callable[..., bool]) -> None:
        real = getattr(place, name)

        def die(*given: Any, **options: Any) -> Any:
            made = real(*given, **options)
            if when(*given):
                raise Killed
            return made

        with monkeypatch.context() as patch:
            patch.setattr(place, name, die)
            with pytest.raises(Killed):
                spec.recipe.train(spec)

    killed(preparing.GuideVectors, "encode_side_texts", lambda *_: True)
    killed(KMeans, "_iterate", lambda *_: True)
    assert not list((tmp_path / "cache" / "clusters").glob("*/*.parquet"))
    killed(CallbackHandler, "on_step_end", lambda _own, _args, state, _control: state.global_step >= 5)
    found = trained(spec)
    assert clusters.read_bytes() == undisturbed
    assert all(torch.equal(found[name], one) for name, one in whole.items())
    assert [line["step"] for line in read_log(spec.folder / "log.jsonl")] == list(range(1, 15))


def test_a_request_to_stop_is_heard_before_the_first_step(make: Callable[..., TrainingSpec]) -> None:
    spec = make()
    training.STOP.set()
    try:
        spec.recipe.train(spec)
    finally:
        training.STOP.clear()
    assert not spec.output.exists()
    assert not spec.checkpoints.exists()


def test_clusters_are_shared_by_seeds_and_guides_vectors_by_all(
    make: Callable[..., TrainingSpec], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    trained(make("one"))

    def none(*_: Any, **__: Any) -> None:
        raise AssertionError

    with monkeypatch.context() as patch:
        patch.setattr(preparing, "make_clusters", none)
        patch.setattr(preparing, "Resolve", none)
        one = load_file(tmp_path / "one" / "model" / "model.safetensors")
        two = trained(make("two", seed=8))
        shuffled = trained(make("three", {"batches": "shuffled", "margin": None}))
        tour = trained(make("four", {"packing": "tour", "dropout": False, "threshold": 0.9}))
    for other in (two, shuffled, tour):
        assert any(not torch.equal(other[name], tensor) for name, tensor in one.items())


def test_vectors_removed_in_a_training_are_made_anew_with_its_random_numbers_as_they_were(
    make: Callable[..., TrainingSpec], monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = make()
    found = contextual(spec).found
    assert found is not None
    vectors = preparing.GuideVectors(found, spec)
    real = vectors.encode_side_texts

    def drawing(*given: Any) -> None:
        torch.rand(3)
        real(*given)

    monkeypatch.setattr(vectors, "encode_side_texts", drawing)
    before = torch.get_rng_state()
    assert vectors.get_side_vectors("document", ["river stone", "cloud"]).shape[0] == 2
    assert torch.equal(torch.get_rng_state(), before)


def test_without_dropout_a_text_has_one_vector_in_training(
    make: Callable[..., TrainingSpec], backbone: Artifact
) -> None:
    for dropout in (True, False):
        spec = make(settings={"dropout": dropout})
        prefixes = preparing.RowPrefixes(spec, [{"": ("", "")}])
        setup = preparing.ContextualSetup(settings_of(spec), info_nce, prefixes, None, (), caches=True)
        model = setup.build_model(spec).train()
        features = model.tokenize(["river stone cloud engine letter"] * 2)
        one, other = model(features)["sentence_embedding"]
        assert torch.equal(one, other) != dropout


@pytest.mark.slow
def test_two_processes_take_the_steps_of_one(
    make: Callable[..., TrainingSpec], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Candidates and the filter's texts come from both; an abort in Python's finalization changes nothing."""
    (tmp_path / "sitecustomize.py").write_text("import atexit, os\natexit.register(os.abort)\n")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]))
    for name, devices in (("one", ("cpu",)), ("two", ("cpu", "cpu"))):
        spec = make(
            name,
            {"epochs": 1, "chunk": 3, "dropout": False},
            devices=devices,
            cache=tmp_path / f"cache-{name}",
        )
        train_on_devices(spec)
    alone, shared = (read_log(tmp_path / name / "log.jsonl") for name in ("one", "two"))
    assert len(alone) == len(shared) == 7
    for name in ("loss", "masked"):
        assert [line[name] for line in alone] == pytest.approx([line[name] for line in shared], abs=1e-5)


def test_the_key_follows_from_what_the_guide_is_not_from_its_name(
    recipe: Callable[..., ContextualRecipe], backbone: Artifact, guide: Path, tmp_path: Path
) -> None:
    data = [pairs_file(tmp_path / "rows", 60)]
    plan = recipe().plan(backbone, data, seed=1)
    moved = shutil.copytree(guide, tmp_path / "moved")
    same = recipe(guide=str(moved)).plan(backbone, data, seed=1)
    assert same.lineage.key == plan.lineage.key
    assert plan.lineage.parents[1] == ParentPart(
        name="guide", artifact=resolve_model(str(guide), Settings(), ModelOptions(offline=True)).artifact.key
    )
    other = recipe()
    assert other.found is not None
    artifact, encoding = other.found.artifact, other.found.encoding
    changes = {
        "weights": other.attach_guide(replace(artifact, key="e" * 64), encoding),
        "prompts": other.attach_guide(artifact, replace(encoding, prompts=(("query", "ask: "),))),
        "length": other.attach_guide(artifact, replace(encoding, max_length=9)),
        "packing": recipe(packing="tour"),
        "margin": recipe(margin=0.1),
        "none": recipe(margin=None),
        "threshold": recipe(threshold=0.5),
        "cluster_seed": recipe(cluster_seed=1),
    }
    keys = {name: one.plan(backbone, data, seed=1).lineage.key for name, one in changes.items()}
    assert len({plan.lineage.key, *keys.values()}) == 1 + len(keys)


def test_settings_without_effect_make_no_other_model(
    recipe: Callable[..., ContextualRecipe],
    make: Callable[..., TrainingSpec],
    backbone: Artifact,
    tmp_path: Path,
) -> None:
    """Random batches without a filter have neither clusters nor a guide, and train without one."""
    data = [pairs_file(tmp_path / "rows", 60)]

    def key(**settings: Any) -> str:
        return recipe(**settings).plan(backbone, data, seed=1).lineage.key

    plain: dict[str, Any] = {"batches": "shuffled", "margin": None}
    changes = [{"guide": ""}, {"cluster_size": 9}, {"starts": 4, "cluster_seed": 3}, {"packing": "tour"}]
    assert {key(**plain, **change) for change in changes} == {key(**plain)}
    assert key(threshold=0.5, margin=0.1) == key(threshold=0.5) != key(threshold=0.6)
    assert key(batches="shuffled", cluster_size=9) == key(batches="shuffled") != key(**plain)
    assert key(cluster_size=9) != key()
    spec = make("bare", {**plain, "guide": ""})
    assert trained(spec)
    assert not (tmp_path / "cache" / "vectors").exists()


def test_the_same_rows_under_two_names_are_refused(backbone: Artifact, tmp_path: Path) -> None:
    from finetune.recipes import simcse
    from harness.data.locate import DataSettings

    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"query": "river", "positive": "stone"}\n' * 4)
    shutil.copy(rows, tmp_path / "same.jsonl")
    names = (str(rows), str(tmp_path / "same.jsonl"))
    typed, data = Request(models=(), suites=(), train_data=names), DataSettings(offline=True, cache=tmp_path)
    request = TrainingRequest(typed=typed, seeds=(1,), data=data, results=tmp_path)
    opened = simcse.RECIPE.open("", simcse.SETTINGS)
    with pytest.raises(UsageError, match=r"same\.jsonl has the same rows as .*rows\.jsonl"):
        plan_models((), (opened,), request)  # type: ignore[arg-type]


def test_the_guide_is_found_like_any_model(guide: Path, tmp_path: Path) -> None:
    from harness.data.locate import DataSettings

    typed, data = Request(models=(), suites=()), DataSettings(offline=True, cache=tmp_path)
    request = TrainingRequest(typed=typed, seeds=(1,), data=data, results=tmp_path)

    def found(name: str) -> Any:
        return _resolve_guide(cde_batching.RECIPE.open("", replace(cde_batching.PAPER, guide=name)), request)  # type: ignore[arg-type]

    assert found(str(guide)).found.artifact.name == "guide"
    with pytest.raises(
        UsageError, match=r"guide of cde-batching: .*gtr-t5-base.* is not in the local"
    ) as caught:
        found(cde_batching.GTR)
    assert "--set guide=minilm" in (caught.value.hint or "")
    with pytest.raises(UsageError, match="bm25 gives no vectors"):
        found("bm25")
    # The training's gate would refuse it.
    flat = Path(shutil.copytree(guide, tmp_path / "flat"))
    faulty.tensors(flat, lambda held: {name: np.zeros_like(tensor) for name, tensor in held.items()})
    with pytest.raises(UsageError, match=r"guide of cde-batching: flat: .*the same vector"):
        found(str(flat))


def test_numbers_are_those_of_the_sources() -> None:
    """Typed from NeoBERT's appendix G, the authors' code and their command."""
    paper = {
        "batch_size": 512,
        "cluster_size": 512,
        "epochs": 3,
        "learning_rate": 5e-5,
        "warmup": 1000,
        "schedule": "linear",
        "max_length": 512,
        "scale": 50.0,
        "margin": 0.0,
        "guide": cde_batching.GTE,
        "iterations": 100,
        "starts": 3,
        "dimensions": 128,
        "cluster_seed": 42,
        "packing": "random",
        "query_prefix": "search_query: ",
        "document_prefix": "search_document: ",
        "batches": "contextual",
    }
    authors = {
        "epochs": 5,
        "learning_rate": 2e-5,
        "batch_size": 4096,
        "group_size": 512,
        "warmup": 25,
        "schedule": "constant",
        "weight_decay": 0.01,
        "margin": None,
        "guide": cde_batching.GTR,
        "iterations": 100,
        "starts": 3,
        "dropout": False,
        "scale": 50.0,
    }
    for settings, typed in ((cde_batching.PAPER, paper), (cde_batching.AUTHORS, authors)):
        assert {name: value for name, value in asdict(settings).items() if name in typed} == typed
    assert isinstance(cde_batching.AUTHORS, ContextualSettings)
    assert (
        cde_batching.PAPER.count_warmup_steps(5_000),
        replace(cde_batching.PAPER, warmup=0.06).count_warmup_steps(50),
    ) == (1_000, 3)


# Bad input


def test_a_set_smaller_than_one_batch_is_refused_by_the_plan_and_by_the_training(
    recipe: Callable[..., ContextualRecipe],
    make: Callable[..., TrainingSpec],
    backbone: Artifact,
    tmp_path: Path,
) -> None:
    large, small = pairs_file(tmp_path / "large", 60), pairs_file(tmp_path / "small", 5)
    with pytest.raises(DataError, match="rows has 5 rows, and a batch has 8 of one set"):
        recipe().plan(backbone, [large, small], seed=1)
    recipe(batches="shuffled").plan(backbone, [large, small], seed=1)
    alike = pairs_file(tmp_path / "alike", 60, texts=lambda at: f"river {tiny.WORDS[at % 7]}")
    spec = make(data=(alike,))
    with pytest.raises(HarnessError, match=r"rows has 60 pairs \(53 repeat an earlier one\)"):
        spec.recipe.train(spec)
    spec = make("groups", {"batch_size": 8, "group_size": 4}, data=(alike,))
    with pytest.raises(HarnessError, match="different pairs fill 1 of the 2 groups of a batch, each of 4"):
        spec.recipe.train(spec)


def test_repeated_pairs_are_left_out_and_counted(make: Callable[..., TrainingSpec], tmp_path: Path) -> None:
    words = [f"{one} {other}" for one in tiny.WORDS for other in tiny.WORDS]
    spec = make(data=(pairs_file(tmp_path / "twice", 60, texts=lambda at: words[at % 40]),))
    trained(spec)
    assert len(read_log(spec.folder / "log.jsonl")) == 2 * (40 // 8)
    assert "20 of 60 pairs repeat an earlier one" in (spec.folder / "events.jsonl").read_text()


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"cluster_size": 0}, "cluster_size is 0"),
        ({"starts": 0}, "starts is 0"),
        ({"guide": " "}, "guide is"),
        ({"margin": math.inf}, "margin is inf"),
        ({"last_batch": "kept"}, "last_batch is kept"),
        ({"warmup": 2.5}, "warmup is 2.5"),
        ({"warmup": -2}, "warmup is -2"),
    ],
)
def test_settings_that_no_training_can_have(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        cde_batching.RECIPE.open("", replace(cde_batching.PAPER, **settings))


def test_other_recipes_have_no_contextual_batches() -> None:
    from finetune.recipes import simcse

    with pytest.raises(UsageError, match="batches is contextual") as caught:
        simcse.RECIPE.open("", replace(simcse.SETTINGS, batches="contextual"))
    assert "cde-batching" in (caught.value.hint or "")


def test_a_warmup_longer_than_the_training_is_said(
    recipe: Callable[..., ContextualRecipe], backbone: Artifact, tmp_path: Path
) -> None:
    data = [pairs_file(tmp_path / "rows", 60)]
    notes = recipe(warmup=1_000).plan(backbone, data, seed=1).notes
    assert any("rises for 1,000 steps, and there are 14" in note for note in notes)
    assert not any("rises for" in note for note in recipe().plan(backbone, data, seed=1).notes)
