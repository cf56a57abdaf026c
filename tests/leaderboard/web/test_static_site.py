"""Pages without a server: the whole site as plain files, and one page as data."""

from __future__ import annotations

import json
from pathlib import Path
from unittest import mock
from urllib.parse import unquote, urlsplit

import pytest
from click.testing import CliRunner, Result
from starlette.testclient import TestClient

from harness.core.errors import HarnessError, StoreError, UsageError
from leaderboard.commands.export import command
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

# The site as plain files: every link leads to a file, from wherever the folder lies


URL = "https://example.org/encoders"


def written(source: Path, folder: Path) -> Path:
    if not (source / "results").exists():
        fill(source)
    with mock.patch("leaderboard.data.snapshot.listed", return_value=suites()):
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


def test_what_needs_the_server_is_hidden(site: Path) -> None:
    assert {path.name for path in (site / "static").iterdir()} >= {"style.css", "site.js", "plotly.min.js"}
    rules = (site / "static" / "style.css").read_text()
    (rule,) = [line for line in rules.splitlines() if ".needs-server" in line and "[data-static]" in line]
    assert "display: none" in rule
    for page in pages(site):
        found = Parsed(page.read_text())
        assert "data-static" in found.all("html")[0], page
        assert all("needs-server" in form.get("class", "") for form in found.all("form")), page


def test_formats_are_those_of_the_server(site: Path) -> None:
    from starlette.testclient import TestClient

    asking = TestClient(standard_app())
    for path in ("suites/nanobeir", "suites/glue", "index", "tasks", "models/acme--tiny-base"):
        for form in ("csv", "json"):
            answer = asking.get(f"/{path}.{form}").content
            assert (site / f"{path}.{form}").read_bytes() == answer, path


def test_hostile_names_stay_inside(site: Path) -> None:
    names = [path.name for path in site.parent.parent.rglob("*")]
    assert all("<" not in name and '"' not in name for name in names)
    assert {path.name for path in site.parent.parent.iterdir()} == {"deep"}
    whole = json.loads((site / "suites" / "nanobeir.json").read_text())
    rows = whole["tables"][0]["rows"]
    assert HOSTILE in {row["cells"]["model"]["value"] for row in rows}


def test_writing_again_over_ones_own(source: Path, site: Path) -> None:
    before = {path: path.read_bytes() for path in site.rglob("*") if path.is_file()}
    (site / "suites" / "nanobeir.csv").write_text("old")
    assert written(source, site) == site
    assert {path: path.read_bytes() for path in site.rglob("*") if path.is_file()} == before


def test_a_folder_with_other_things_is_left_alone(tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "thesis.tex").write_text("years of work")
    with pytest.raises(UsageError, match="none of a site's"):
        written(tmp_path / "source", folder)
    assert [path.name for path in folder.iterdir()] == ["thesis.tex"]


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises((StoreError, UsageError)):
        written(tmp_path / "source", tmp_path / "file")


def test_pages_hold_all_of_their_rows(tmp_path: Path) -> None:
    settings = small_settings(tmp_path, static=True)
    put_imports(
        settings.results[0],
        [Import(model=f"org/m{n:03}", scores={"RTE": 0.5 + n / 1000}) for n in range(130)],
    )
    with mock.patch("leaderboard.data.snapshot.listed", return_value=suites()):
        write_site(settings, tmp_path / "out")
    for name in ("suites/glue", "tasks/RTE"):
        page = (tmp_path / "out" / name / "index.html").read_text()
        assert page.count("org/</span>m") == 130, name
        tables = json.loads((tmp_path / "out" / f"{name}.json").read_text())["tables"]
        models = [row["cells"]["model"]["value"] for row in tables[0]["rows"]]
        assert sum(model.startswith("org/m") for model in models) == 130, name


def test_pages_say_what_they_need_a_server_for(site: Path) -> None:
    for name in ("compare", "pareto"):
        said = Parsed((site / name / "index.html").read_text()).text
        assert "needs a running site" in said, name
        assert "harness serve" in said, name
    assert "POST" not in (site / "api" / "index.html").read_text()


# `harness export`: a page as data, as the server would give it


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("export")
    fill(folder)
    return folder / "results"


def export(results: Path, *arguments: str) -> Result:
    with (
        mock.patch("leaderboard.data.snapshot.listed", return_value=suites()),
        mock.patch(
            "harness.core.paths.reference_folder", return_value=None
        ),  # the server of the test has none
    ):
        return CliRunner().invoke(command, [*arguments, "--results", str(results)])


@pytest.mark.parametrize(
    ("page", "form", "path"),
    [
        ("/suites/nanobeir", "csv", "/suites/nanobeir.csv"),
        ("suites/nanobeir", "csv", "/suites/nanobeir.csv"),
        ("/suites/nanobeir?mean=types&sort=model", "json", "/suites/nanobeir.json?mean=types&sort=model"),
        ("/suites/glue?cols=mean&cols=tasks&q=tiny", "md", "/suites/glue.md?cols=mean&cols=tasks&q=tiny"),
        ("/suites/nanobeir?cols=tasks", "tex", "/suites/nanobeir.tex?cols=tasks"),
        ("http://127.0.0.1:8000/suites/glue?q=tiny#t-suite", "csv", "/suites/glue.csv?q=tiny"),
        ("https://board.example/", "csv", "/index.csv"),
        ("http://board.example", "csv", "/index.csv"),
        ("/", "csv", "/index.csv"),
        ("/models/acme--tiny-base", "csv", "/models/acme--tiny-base.csv"),
        ("/tasks/RTE", "json", "/tasks/RTE.json"),
    ],
)  # fmt: skip
def test_it_is_what_the_server_gives(results: Path, page: str, form: str, path: str) -> None:
    done = export(results, page, "--format", form)
    assert done.exit_code == 0, done.output
    wanted = TestClient(standard_app()).get(path)
    assert wanted.status_code == 200
    assert done.stdout_bytes == wanted.content


@pytest.mark.parametrize(
    "page",
    ["/suites/glue.csv?q=tiny", "suites/glue.csv?q=tiny", "http://localhost:8000/suites/glue.csv?q=tiny"],
)
def test_the_ending_of_an_address_names_the_format(results: Path, page: str) -> None:
    wanted = TestClient(standard_app()).get("/suites/glue.csv?q=tiny").content
    for more in ((), ("--format", "csv")):
        done = export(results, page, *more)
        assert done.exit_code == 0, done.output
        assert done.stdout_bytes == wanted
    for form in ("md", "json"):
        refused = export(results, page, "--format", form)
        assert isinstance(refused.exception, HarnessError)
        assert refused.exception.exit_code == 2
        assert ".csv" in refused.exception.message
        assert form in refused.exception.message


def test_the_overview_by_the_address_of_its_format(results: Path) -> None:
    assert (
        export(results, "/index.json").stdout_bytes == export(results, "/", "--format", "json").stdout_bytes
    )


def test_a_file_is_written(results: Path, tmp_path: Path) -> None:
    done = export(results, "/suites/glue", "--format", "csv", "--out", str(tmp_path / "x.csv"))
    assert (done.exit_code, done.stdout) == (0, "")
    assert (tmp_path / "x.csv").read_text() == export(results, "/suites/glue", "--format", "csv").stdout


@pytest.mark.parametrize(
    ("page", "says"),
    [
        ("/suites/nanobier", "nanobeir"),
        ("/suites", None),
        ("/nothing/here", "/api"),
        ("/index", "/api"),
        ("/suites/nanobeir?colls=mean", "There is no parameter 'colls'. Did you mean cols?"),
        ("/suites/nanobeir?colls=", "Did you mean cols?"),
        ("/suites/nanobeir?cols=nope", "No column is called 'nope'"),
        ("/suites/nanobeir?page=0", "page"),
        ("/suites/nanobeir?sort=nothing", "nothing"),
        ("/suites/../../etc/passwd", "page"),
        ("/api", "page"),
    ],
)
def test_what_is_wrong_is_said(results: Path, page: str, says: str | None) -> None:
    done = export(results, page)
    if says is None:
        assert done.exit_code == 0
        return
    assert isinstance(done.exception, HarnessError)
    assert says in f"{done.exception.message} {done.exception.hint}"
    assert done.exception.exit_code == 2


def test_a_file_that_cannot_be_written(results: Path, tmp_path: Path) -> None:
    done = export(results, "/about", "--out", str(tmp_path / "no" / "x.md"))
    assert isinstance(done.exception, HarnessError)
    assert "cannot be written" in done.exception.message
