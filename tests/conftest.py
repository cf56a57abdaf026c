"""Skips what this machine lacks, saying why, and the fixtures that several folders use."""

from __future__ import annotations

import gc
import itertools
import os
import shutil
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from harness.core.provenance import shorten_exit

# Each of several workers has its share of the cores. Alone a process has one thread: networks of a
# few numbers are slower with several.
CORES = os.cpu_count() or 1
WORKERS = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", CORES))
os.environ["OMP_NUM_THREADS"] = str(max(1, CORES // WORKERS))

# What a killed process wrote is kept by the system; only a power cut would lose it.
os.fsync = lambda _: None

gc.set_threshold(10_000)
_MODULES = itertools.count()

settings.register_profile("shared cores", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("shared cores")

SHARED = Path(__file__).parents[2] / "shared" / "datasets"
CHROMIUM = ("chromium", "chromium-browser", "google-chrome")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "shared" in item.keywords and not SHARED.is_dir():
            item.add_marker(pytest.mark.skip(reason="needs the real data sets in ../shared/datasets"))
        # Not among the keywords, which hold the names of folders as well.
        if item.get_closest_marker("gpu") and not _gpu():
            item.add_marker(pytest.mark.skip(reason="needs a CUDA device"))
        if "browser" in item.keywords and not any(map(shutil.which, CHROMIUM)):
            item.add_marker(pytest.mark.skip(reason="needs Chromium"))


def pytest_configure(config: pytest.Config) -> None:
    if "PYTEST_XDIST_WORKER" in os.environ:
        shorten_exit([0])  # it has sent everything by then
    # Else libraries find their own objects alive at the end, and say so.
    config.add_cleanup(gc.unfreeze)


def pytest_unconfigure() -> None:
    """A last search of all, for errors at the end of what was dropped, in place of pytest's two."""
    gc.unfreeze()
    gc.collect()
    gc.freeze()


def _gpu() -> bool:
    import torch

    return torch.cuda.is_available()


@pytest.fixture(scope="module", autouse=True)
def _without_what_lasts() -> None:
    """Keep what is there out of every search for garbage, with which each job ends: a third of the time."""
    # What a module left and others dropped since goes at every fortieth: a search of all takes a second.
    if next(_MODULES) % 40 == 39:
        gc.unfreeze()
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def shared() -> Path:
    """The real data sets, in hub layout."""
    return SHARED


@pytest.fixture(autouse=True)
def own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test reads or writes the user's own cache, results or data root."""
    for name in ("HARNESS_DATA", "HARNESS_RESULTS", "HARNESS_REMOTE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HARNESS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
