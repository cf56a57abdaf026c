"""The site, its files, its export and its import where torch, mteb and transformers are not there."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from blocked import BLOCK, BLOCKER, FEW
from site_data import fill

ROOT = Path(__file__).parents[2]

HEAVY = {"torch", "mteb", "transformers", "sentence_transformers", "sklearn", "datasets"}

EVERY_PAGE = f"""{BLOCKER}
import json
from pathlib import Path
from unittest import mock
from starlette.testclient import TestClient
from leaderboard.data.suites import (SiteSuite, format_slug)
from leaderboard.web.app import create_app
from leaderboard.data.settings import SiteSettings
from harness.core import files
from harness.plan import catalog
from harness.core.types import SuiteOptions

folder = Path(sys.argv[1])
typed = ("glue", "nanobeir", "mteb")
suites = {{name: SiteSuite(slug=name, typed=name, suite=catalog.open_suite(name, SuiteOptions()), main=True)
          for name in typed}}
with mock.patch("leaderboard.data.snapshot.load_site_suites", return_value=suites):
    app = create_app(SiteSettings(results=(folder,), reported=files.find_reported_folder(), refresh=0,
                              snapshots=folder / "site", pages_a_minute=10**6))
client = TestClient(app)
said = {{}}
for route in app.state.site.pages:
    for path in list(route.all_paths(app.state.site))[:3]:
        base = "/index" if path == "/" else path
        for end in ("", *(f".{{form}}" for form in route.formats)):
            address = base + end if end else path
            said[path + end] = client.get(address, headers={{"accept": "text/html"}}).status_code
for path in ("/healthz", "/metrics", "/openapi.json"):
    said[path] = client.get(path).status_code
print(json.dumps([said, sorted(name for name in sys.modules if "." not in name)]))
"""


def run(code: str, *arguments: object, **options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", code, *map(str, arguments)],
        cwd=ROOT, capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    fill(folder)
    return folder / "results"


@pytest.mark.slow
def test_every_page(results: Path) -> None:
    done = run(EVERY_PAGE, results)
    assert done.returncode == 0, done.stderr
    said, modules = json.loads(done.stdout)
    assert {path: status for path, status in said.items() if status != 200} == {}
    assert len(said) > 50
    assert not HEAVY & set(modules)


@pytest.mark.slow
def test_export(results: Path) -> None:
    done = run(BLOCK, "export", "/suites/nanobeir", "--format", "csv", "--results", results)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("Rank,Model,")
    assert "acme/tiny-large" in done.stdout
    assert "leaked" not in done.stderr


@pytest.mark.slow
def test_static_files(results: Path, tmp_path: Path) -> None:
    done = run(f"{BLOCKER}{FEW}", "serve", "--static", tmp_path / "site", "--results", results)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "site" / "suites" / "nanobeir.html").exists()


def test_import(tmp_path: Path) -> None:
    home = tmp_path / "source" / "results" / "org__model" / ("a" * 40)
    home.mkdir(parents=True)
    score = {"main_score": 0.5, "hf_subset": "default", "languages": ["eng-Latn"]}
    (home / "STS12.json").write_text(
        json.dumps({"dataset_revision": "b" * 40, "task_name": "STS12", "mteb_version": "2.1.0",
                    "scores": {"test": [score]}})
    )  # fmt: skip
    done = run(BLOCK, "import", "mteb-results", tmp_path / "source", "--results", tmp_path / "results")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "results" / "imported" / "mteb-results" / "import.json").exists()
