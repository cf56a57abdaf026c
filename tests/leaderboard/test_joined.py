"""Ranks and means over the public results, held against mteb's own code on the same files."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import numpy as np
import pytest

from leaderboard.data.mteb_import import import_results
from leaderboard.data.queries import Queries
from leaderboard.data.snapshot import open_index
from leaderboard.web.settings import SiteSettings

SUITES = {"MTEB(eng, v2)": "mteb", "MTEB(eng, v1)": "mteb-v1", "BEIR": "beir"}
AT_LEAST = {"mteb": 175, "mteb-v1": 130, "beir": 175}
NAMED = (
    "Qwen/Qwen3-Embedding-8B",
    "google/gemini-embedding-001",
    "BAAI/bge-base-en-v1.5",
    "intfloat/e5-mistral-7b-instruct",
    "sentence-transformers/all-MiniLM-L6-v2",
)

SCRIPT = """
import json, logging, math, sys, warnings
warnings.simplefilter("ignore"); logging.disable(logging.WARNING)
import mteb
from mteb.cache import ResultCache
cache, found = ResultCache(sys.argv[1]), {}
for name in sys.argv[2:]:
    benchmark = mteb.get_benchmark(name)
    loaded = cache.load_results(tasks=list(benchmark.tasks), require_model_meta=False, include_remote=False,
                                validate_and_filter=True, only_main_score=True)
    scores = {}
    for model in loaded.join_revisions().model_results:
        for task in model.task_results:
            values = [row["main_score"] for rows in task.scores.values() for row in rows]
            score = math.nan if None in values else task.get_score()  # get_score fails where one has none
            scores.setdefault(model.model_name, {})[task.task_name] = score
    wanted = [task.metadata.name for task in benchmark.tasks]
    whole = {m: [s.get(t, math.nan) for t in wanted] for m, s in scores.items()}
    found[name] = {m: sum(s) / len(s) for m, s in whole.items() if all(map(math.isfinite, s))}
print(json.dumps(found))
"""


@pytest.fixture
def results(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The public results: where HARNESS_MTEB_RESULTS names them, else unpacked."""
    if os.environ.get("HARNESS_MTEB_RESULTS"):
        return Path(os.environ["HARNESS_MTEB_RESULTS"])
    folder = tmp_path_factory.mktemp("mteb")
    with tarfile.open(shared.parent / "mteb-results.tar.xz") as archive:
        archive.extractall(folder, filter="data")
    return next(path.parent for path in (folder, *folder.glob("*")) for path in path.glob("results"))


@pytest.mark.shared
@pytest.mark.slow
def test_the_ranked_are_those_of_mteb_and_their_means_are_the_same(results: Path, tmp_path: Path) -> None:
    theirs = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(results), *SUITES], capture_output=True, text=True, check=True
    )
    expected = json.loads(theirs.stdout.splitlines()[-1])
    import_results(results, tmp_path / "results")
    index = open_index(SiteSettings(results=(tmp_path / "results",), snapshots=tmp_path / "site"))
    queries = Queries(index, index.refresh().version)
    for name, slug in SUITES.items():
        found = queries.suite_scores(queries.suites[slug])
        ranks = found.ranks("tasks", "model").place
        means = {found.entries[row].model: found.over_tasks.values[row] for row in np.flatnonzero(ranks)}
        assert means.keys() == expected[name].keys()
        assert means == {model: pytest.approx(mean, abs=1e-9) for model, mean in expected[name].items()}
        assert len(means) >= AT_LEAST[slug]
    ranked = queries.suite_scores(queries.suites["mteb"])
    names = {ranked.entries[row].model for row in np.flatnonzero(ranked.ranks("tasks", "model").place)}
    assert set(NAMED) <= names
