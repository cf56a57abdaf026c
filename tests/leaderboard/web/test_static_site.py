"""The site as plain files: every link leads to a file, from wherever the folder lies."""

from __future__ import annotations

import json
from pathlib import Path
from unittest import mock
from urllib.parse import unquote, urlsplit

import pytest

from harness.core.errors import StoreError, UsageError
from leaderboard.web.static_site import write_site
from site_data import (
    HOSTILE,
    Import,
    Parsed,
    every_path,
    fill,
    put_imports,
    small_settings,
    standard_app,
    suites,
)

URL = "https://example.org/encoders"


def written(source: Path, folder: Path) -> Path:
    if not (source / "results").exists():
        fill(source)
    with mock.patch("leaderboard.data.snapshot.load_site_suites", return_value=suites()):
        assert write_site(small_settings(source, static=True, url=URL), folder) == 0
    return folder


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("source")


@pytest.fixture(scope="module")
def site(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(source, tmp_path_factory.mktemp("host") / "deep" / "site")


def pages(site: Path) -> list[Path]:
    return sorted(site.rglob("*.html"))


@pytest.mark.slow
def test_every_page_of_the_server_is_written_in_its_formats(site: Path) -> None:
    app = standard_app()
    assert len(pages(site)) == len(every_path(app))
    for route in app.state.site.pages:
        for path in route.all_paths(app.state.site):
            home = site / path.strip("/")
            assert (home / "index.html").is_file(), path
            for form in route.formats:
                name = f"{path.strip('/') or 'index'}.{form}"
                assert (site / name).is_file(), name


@pytest.mark.slow
def test_every_link_leads_to_a_file_below_the_folder(site: Path) -> None:
    broken: dict[str, str] = {}
    for page in pages(site):
        for link in Parsed(page.read_text()).links:
            parts = urlsplit(link)
            if parts.scheme or link.startswith(("#", "data:")) or not parts.path:
                assert parts.scheme in ("", "https", "http", "mailto", "data"), link
                continue
            assert not link.startswith("/"), (page, link)  # else it would not work from a sub-folder
            target = (page.parent / unquote(parts.path)).resolve()
            assert target.is_relative_to(site), (page, link)
            if not target.is_file():
                broken.setdefault(link, str(page.relative_to(site)))
    assert broken == {}


@pytest.mark.slow
def test_anchors_are_there(site: Path) -> None:
    missing = []
    for page in pages(site):
        for link in Parsed(page.read_text()).links:
            path, _, anchor = link.partition("#")
            if not anchor or "://" in link:
                continue
            target = page if not path else page.parent / unquote(path)
            ids = {a.get("id") for _, a in Parsed(target.read_text()).elements}
            if unquote(anchor) not in ids:
                missing.append((str(page.relative_to(site)), link))
    assert missing == []


@pytest.mark.slow
def test_what_needs_the_server_is_hidden(site: Path) -> None:
    assert {path.name for path in (site / "static").iterdir()} >= {"style.css", "site.js", "plotly.min.js"}
    rules = (site / "static" / "style.css").read_text()
    (rule,) = [line for line in rules.splitlines() if ".needs-server" in line and "[data-static]" in line]
    assert "display: none" in rule
    for page in pages(site):
        found = Parsed(page.read_text())
        assert "data-static" in found.all("html")[0], page
        assert all("needs-server" in form.get("class", "") for form in found.all("form")), page


@pytest.mark.slow
def test_formats_are_those_of_the_server(site: Path) -> None:
    from starlette.testclient import TestClient

    asking = TestClient(standard_app())
    for path in ("suites/nanobeir", "suites/glue", "index", "tasks", "models/acme--tiny-base"):
        for form in ("csv", "json"):
            answer = asking.get(f"/{path}.{form}").content
            assert (site / f"{path}.{form}").read_bytes() == answer, path


@pytest.mark.slow
def test_hostile_names_stay_inside(site: Path) -> None:
    names = [path.name for path in site.parent.parent.rglob("*")]
    assert all("<" not in name and '"' not in name for name in names)
    assert {path.name for path in site.parent.parent.iterdir()} == {"deep"}
    whole = json.loads((site / "suites" / "nanobeir.json").read_text())
    rows = whole["tables"][0]["rows"]
    assert HOSTILE in {row["cells"]["model"]["value"] for row in rows}


@pytest.mark.slow
def test_writing_again_over_ones_own(source: Path, site: Path) -> None:
    before = {path: path.read_bytes() for path in site.rglob("*") if path.is_file()}
    (site / "suites" / "nanobeir.csv").write_text("old")
    assert written(source, site) == site
    assert {path: path.read_bytes() for path in site.rglob("*") if path.is_file()} == before


def test_a_folder_with_other_things_is_left_alone(tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "thesis.tex").write_text("years of work")
    with pytest.raises(UsageError, match="did not write"):
        written(tmp_path / "source", folder)
    assert [path.name for path in folder.iterdir()] == ["thesis.tex"]


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises((StoreError, UsageError)):
        written(tmp_path / "source", tmp_path / "file")


@pytest.mark.slow
def test_pages_hold_all_of_their_rows(tmp_path: Path) -> None:
    settings = small_settings(tmp_path, static=True)
    put_imports(
        settings.results[0],
        [Import(model=f"org/m{n:03}", scores={"RTE": 0.5 + n / 1000}) for n in range(130)],
    )
    with mock.patch("leaderboard.data.snapshot.load_site_suites", return_value=suites()):
        write_site(settings, tmp_path / "out")
    for name in ("suites/glue", "tasks/RTE"):
        page = (tmp_path / "out" / name / "index.html").read_text()
        assert page.count("org/</span>m") == 130, name
        tables = json.loads((tmp_path / "out" / f"{name}.json").read_text())["tables"]
        models = [row["cells"]["model"]["value"] for row in tables[0]["rows"]]
        assert sum(model.startswith("org/m") for model in models) == 130, name


@pytest.mark.slow
def test_pages_say_what_they_need_a_server_for(site: Path) -> None:
    for name in ("compare", "pareto"):
        said = Parsed((site / name / "index.html").read_text()).text
        assert "needs a running site" in said, name
        assert "harness serve" in said, name
    assert "POST" not in (site / "api" / "index.html").read_text()
