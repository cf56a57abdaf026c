"""Names, texts and revisions of strangers: shown as they are on every page, and nothing more."""

from __future__ import annotations

import csv
import io
import json
import re
import shutil
import time
from dataclasses import replace
from functools import cache
from pathlib import Path
from unittest import mock
from urllib.parse import quote, unquote, urlsplit
from xml.etree import ElementTree

import pytest
from fastapi import FastAPI
from pyarrow import parquet
from starlette.testclient import TestClient

import site_data
from harness.core.errors import StoreError, UsageError
from harness.core.keys import digest
from harness.storage.record import Record
from harness.storage.store import Store
from hostile import escaped, obeyed
from html_pages import BROWSER
from leaderboard.web.app import create_app
from leaderboard.web.site import Site, create_environment, open_site, write_site
from leaderboard.web.static_site import PlainFiles
from site_data import (
    HOSTILE,
    Import,
    Parsed,
    every_path,
    fill_trained,
    measured_model,
    names,
    put,
    put_imports,
    scored,
    small_settings,
    spread_scores,
    standard_app,
    suites,
)

BADGE = create_environment().get_template("badge.svg")
NANO = names("nanobeir")
NASTY_NAMES = [
    "<script>alert(1)</script>",
    "\"><img src=x onerror=alert(1)>",
    "' onmouseover='alert(1)",
    "{{7*7}}{% raw %}${7*7}",
    "'; DROP TABLE entries; --",
    "../../../../etc/passwd",
    "..",
    ".",
    "/",
    "//evil.example/x",
    "javascript:alert(1)",
    "a?b#c&d=e%2f",
    "\u202egnp.exe\u2066",
    "=HYPERLINK(\"http://x\")",
    "]]><!--</title></svg>",
    "\\input{/etc/passwd}$x^2$%",
    "\x07bell\x1b[31mred\x85",
    "\ufffe\uffff",
    "日本語/モデル é ß",
    "con", "index.json", "nul.csv",
    "x" * 10_000,
]  # fmt: skip


def odd(number: int, name: str) -> Record:
    """A record whose every text is hostile."""
    model = replace(measured_model(f"m{number}", f"{number:x}".zfill(64)), key=f"{number:064x}")
    plain = scored(model, NANO[number % len(NANO)], 0.5)
    asked = {"named": {"query": name, name: name}, "default": name}
    encoding = {**plain.identity["encoding"], "pooling": name, name: name}
    identity = {**plain.identity, "encoding": encoding}
    return plain.model_copy(
        update={
            "identity": identity,
            "key": digest(identity),
            "model": plain.model.model_copy(update={"name": name, "source": name, "revision": name}),
            "provenance": {**plain.provenance, "prompts_asked": asked, "notes": [name], "commit": name,
                           "device": {"kind": name, "name": name}, "packages": {name: name},
                           "written": name if number % 2 else plain.provenance["written"]},
            "scores": {**plain.scores, name: {name: {name: 0.5, "main_score": 0.5}}},
        }
    )  # fmt: skip


def fill(folder: Path) -> None:
    store = Store(folder / "results")
    for number, name in enumerate(NASTY_NAMES, 1):
        record = odd(number, name)
        store.put(f"m-{record.model.artifact[:12]}{number}", record)
    model = measured_model("tasks", "f")
    of = scored(model, NANO[0], 0.5)
    for name in NASTY_NAMES[:16]:
        task = of.task.model_copy(update={"name": name, "type": name, "metric": name})
        identity = {**of.identity, "task": name}
        put(folder / "results", model, [of.model_copy(
            update={"task": task, "identity": identity, "key": digest(identity)})])  # fmt: skip
    put_imports(
        folder / "results",
        [
            Import(
                model=name,
                revision=name,
                scores=spread_scores(NANO, number / 50),
                card={"card_name": name, "license": name, "adapted_from": name, "release_date": name,
                      "languages": [name], "framework": [name], "training_datasets": [name], "card": True},
            )
            for number, name in enumerate(NASTY_NAMES)
        ],
    )  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("hostile")
    fill(found)
    return found


@pytest.fixture(scope="module")
def app(folder: Path) -> FastAPI:
    with mock.patch("leaderboard.data.snapshot.load_site_suites", return_value=suites()):
        return create_app(small_settings(folder, pages_a_minute=10**6))


def paths(app: FastAPI) -> list[str]:
    """The pages, of tasks of the suites only some."""
    all_paths = every_path(app)
    plain = [
        path for path in all_paths if path.startswith("/tasks/") and path.removeprefix("/tasks/").isalnum()
    ]
    return [path for path in all_paths if path not in plain[5:]]


def test_nothing_of_a_name_becomes_part_of_a_page(app: FastAPI) -> None:
    asking, seen = TestClient(app), set[str]()
    assert len(paths(app)) > 80
    for path in paths(app):
        answer = asking.get(path, headers=BROWSER)
        assert answer.status_code == 200, path
        page = Parsed(answer.text)
        assert page.wrong == [], path
        scripts = page.all("script")
        assert all(a.get("src", "").startswith("/static/") for a in scripts), path
        assert not any(n.startswith("on") or n == "style" for _, a in page.elements for n in a), path
        assert [a for a in page.all("img") if not a["src"].startswith(("/", "data:"))] == []
        for link in page.links:
            assert re.match(r"(/(?!/)|#|\?|https?://|mailto:|data:image)", link) or link == "", (path, link)
            assert "javascript:" not in link.lower()
        seen |= {name for name in NASTY_NAMES if escaped(name) in page.text}
        assert not obeyed(answer.text), path
    assert seen >= {name for name in NASTY_NAMES if "\ufffe" not in name}


def test_every_link_to_a_model_leads_to_it(app: FastAPI) -> None:
    asking = TestClient(app)
    for entry in app.state.site.queries.entries.values():
        if entry.origin == "reported":
            continue
        answer = asking.get(f"/models/{entry.model_slug}.json")
        assert answer.status_code == 200, entry.model[:80]
        assert re.fullmatch(r"[A-Za-z0-9._-]{1,140}", entry.model_slug)
        assert re.fullmatch(r"[A-Za-z0-9._-]{1,150}", entry.slug)
        assert not entry.model_slug.startswith(".")


def test_every_format_holds_the_names_as_they_are(app: FastAPI) -> None:
    asking = TestClient(app)
    rows = json.loads(asking.get("/suites/nanobeir.json?each=revision&rows=all").text)["tables"][0]["rows"]
    found = {row["cells"]["model"]["value"] for row in rows}
    assert found >= set(NASTY_NAMES)
    lines = list(csv.reader(io.StringIO(asking.get("/suites/nanobeir.csv?rows=all").text, newline="")))
    assert {line[1].removeprefix("'") for line in lines[1:]} >= {
        escaped(n).removeprefix("'") for n in NASTY_NAMES
    }
    assert all(not cell.startswith(("=", "+", "-", "@")) for line in lines for cell in line[:2])
    tex = asking.get("/suites/nanobeir.tex?rows=all").text
    assert "\\input" not in tex
    assert "\\textbackslash{}input\\{/etc/passwd\\}\\$x" in tex
    assert not any(c < " " and c != "\n" for c in tex)
    markdown = asking.get("/suites/nanobeir.md?rows=all").text
    assert "<" not in markdown


def test_badges_are_pictures_with_texts_only(app: FastAPI) -> None:
    asking, queries = TestClient(app), app.state.site.queries
    for entry in queries.load_suite_scores(suites()["nanobeir"], pinned=True).entries:
        if entry.origin != "reported":
            answer = asking.get(f"/badges/nanobeir/{entry.slug}.svg")
            assert answer.status_code == 200
            root = ElementTree.fromstring(answer.text)
            assert {e.tag.rpartition("}")[2] for e in root.iter()} == {"svg", "title", "rect", "g", "text"}
    for name in NASTY_NAMES[:16]:
        root = ElementTree.fromstring(BADGE.render(label=name, text=name, colour="#fff", left=9, right=9))
        titles = [e.text for e in root.iter("{http://www.w3.org/2000/svg}title")]
        assert titles == [f"{escaped(name)}: {escaped(name)}"]


@pytest.mark.parametrize("name", NASTY_NAMES[:16])
def test_a_search_for_anything_finds_it_as_text(app: FastAPI, name: str) -> None:
    asking = TestClient(app)
    for path in ("/search", "/suites/nanobeir", "/tasks"):
        answer = asking.get(path, params={"q": name}, headers=BROWSER)
        assert answer.status_code == 200
        page = Parsed(answer.text)
        assert page.wrong == []
        assert escaped(name) in [a.get("value") for a in page.all("input")]
    rows = asking.get("/suites/nanobeir.json", params={"q": name}).json()["tables"][0]["rows"]
    assert name in {row["cells"]["model"]["value"] for row in rows}
    assert len(app.state.site.queries.entries) > len(NASTY_NAMES)  # the tables are still there


@pytest.mark.slow
def test_as_plain_files_nothing_leaves_the_folder(folder: Path, tmp_path: Path) -> None:
    some = {slug: suites()[slug] for slug in ("nanobeir", "mteb")}
    with mock.patch("leaderboard.data.snapshot.load_site_suites", return_value=some):
        settings = replace(small_settings(folder), snapshots=tmp_path / "x")
        write_site(settings, tmp_path / "out" / "site")
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"site"}
    site = tmp_path / "out" / "site"
    for path in site.rglob("*"):
        assert re.fullmatch(r"[\w.+,()@ -]{1,255}", path.name), path.name
    for page in site.glob("models/*.html"):
        for link in Parsed(page.read_text()).links:
            if "://" not in link and not link.startswith(("#", "?", "data:", "mailto:")):
                target = (page.parent / unquote(urlsplit(link).path)).resolve()
                assert target.is_relative_to(site), link
                assert target.exists(), (page, link)


PAGES = ("/", "/suites/nanobeir", "/search", "/pareto", "/tasks")


def start_site(folder: Path, snapshots: str) -> Site:
    """After a start from a snapshot, if there is one."""
    with mock.patch("leaderboard.data.snapshot.load_site_suites", return_value=suites()):
        site = open_site(replace(small_settings(folder), snapshots=folder / snapshots), at_once=True)
    site.refresh()
    return site


def render_pages(folder: Path, snapshots: str) -> dict[str, bytes]:
    """Some pages in every format, and the page of a result of each origin."""
    site = start_site(folder, snapshots)
    entries = site.queries.entries
    results = {
        (entries[r.entry].origin, entries[r.entry].of_seeds): r.id for r in site.queries.find_results()
    }
    paths = [*PAGES, *(f"/results/{number}" for number in results.values())]
    paths += [f"/models/{slug}" for slug in site.queries.models]
    return {f"{path}.{form}": site.export(path, {}, form) for path in paths for form in ("json", "csv")}


@pytest.mark.slow
@pytest.mark.parametrize("how", ["deleted", "stale", "damaged", "texts", "list"])
def test_a_snapshot_is_never_believed(tmp_path: Path, how: str) -> None:
    fill_trained(tmp_path)
    start_site(tmp_path, "used")
    (folder,) = (tmp_path / "used").iterdir()
    own = folder / "1" / "own"
    if how == "deleted":
        shutil.rmtree(own)
    elif how == "stale":
        model = measured_model("minilm-ish")
        Store(tmp_path / "results").put(model.slug, scored(model, NANO[0], 0.99), again=True)
    elif how == "list":
        (folder / "current.json").write_text((folder / "current.json").read_text()[:-9])
    else:
        file = own / ("texts-1.parquet" if how == "texts" else "scores.parquet")
        content = bytearray(file.read_bytes())
        content[len(content) // 3] ^= 1
        file.write_bytes(content)
    assert render_pages(tmp_path, "used") == render_pages(tmp_path, "new")


def test_a_start_shows_the_snapshot_of_before_until_a_look(tmp_path: Path) -> None:
    fill_trained(tmp_path)
    settings = small_settings(tmp_path)
    model = measured_model("minilm-ish")
    with mock.patch("leaderboard.data.snapshot.load_site_suites", return_value=suites()):
        assert not open_site(settings, at_once=True).is_stale  # there is none of before
        Store(tmp_path / "results").put(model.slug, scored(model, NANO[0], 0.99), again=True)
        site = open_site(settings, at_once=True)
        assert site.is_stale
        assert 0.99 not in {row.value for row in site.queries.find_results(task=NANO[0])}
        with TestClient(create_app(settings, site)) as client:  # --refresh 0: a look at the start alone
            for _ in range(600):
                if "snapshot 2" in client.get("/healthz").text:
                    break
                time.sleep(0.1)
    assert 0.99 in {row.value for row in site.queries.find_results(task=NANO[0])}
    assert not site.is_stale


# The site as plain files: every link leads to a file, from wherever the folder lies


URL = "https://example.org/encoders"


def written(source: Path, folder: Path) -> Path:
    if not (source / "results").exists():
        site_data.fill(source)
    with mock.patch("leaderboard.data.snapshot.load_site_suites", return_value=suites()):
        assert write_site(small_settings(source, url=URL), folder) == 0
    return folder


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("source")


@pytest.fixture(scope="module")
def site(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(source, tmp_path_factory.mktemp("host") / "deep" / "site")


def pages(site: Path) -> list[Path]:
    return sorted(site.rglob("*.html"))


@cache
def parse(page: Path) -> Parsed:
    return Parsed(page.read_text())


@pytest.mark.slow
def test_every_page_of_the_server_is_written(site: Path) -> None:
    app = standard_app()
    assert len(pages(site)) == len(every_path(app))
    for route in app.state.site.pages:
        for path in route.all_paths(app.state.site):
            home = site / path.strip("/")
            assert (
                site / f"{path}.html".strip("/") if "{" in route.path else home / "index.html"
            ).is_file(), path
            name = f"{path.strip('/') or 'index'}.parquet"
            assert (site / name).is_file() == ("tex" in route.formats), name

    for page in pages(site):
        address = f'<meta property="og:url" content="{URL}/{quote(str(page.relative_to(site)))}">'
        assert address in page.read_text(), page


def test_links_to_another_state_of_a_page_have_no_file() -> None:
    site = standard_app().state.site
    plain = PlainFiles(
        [(route, path) for route in site.pages for path in route.all_paths(site)], site.queries
    )
    assert plain.find_file("/rank?suite=mteb") == "rank/index.html"
    assert plain.find_file("/reproductions?q=m&task=T") == "reproductions/index.html?q=m&task=T"
    for address in (
        "/rank?beside=a",
        "/compare?m=a&m=b",
        "/backbones?suite=a&amp;view=b",
        "/recipes?variant=x",
    ):
        assert plain.find_file(address) is None, address


@pytest.mark.slow
def test_every_link_leads_to_a_file_below_the_folder(site: Path) -> None:
    broken: dict[str, str] = {}
    for page in pages(site):
        for link in parse(page).links:
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
        for link in parse(page).links:
            path, _, anchor = link.partition("#")
            if not anchor or "://" in link:
                continue
            target = page if not path else page.parent / unquote(path)
            ids = {a.get("id") for _, a in parse(target.resolve()).elements}
            if unquote(anchor) not in ids:
                missing.append((str(page.relative_to(site)), link))
    assert missing == []


@pytest.mark.slow
def test_what_needs_the_server_is_hidden(site: Path) -> None:
    assert {path.name for path in (site / "static").iterdir()} >= {"style.css", "site.js"}
    rules = (site / "static" / "style.css").read_text()
    (rule,) = [line for line in rules.splitlines() if ".needs-server" in line and "[data-static]" in line]
    assert "display: none" in rule
    for page in pages(site):
        found = parse(page)
        assert "data-static" in found.all("html")[0], page
        forms = [form for form in found.all("form") if "data-live" not in form and form["class"] != "find"]
        assert all("needs-server" in form["class"] for form in forms), page
    rank = parse(site / "rank" / "index.html")
    asked = {control.get("name") for control in (*rank.all("input"), *rank.all("select"))}
    # What filters models stays; what asks for other tasks would need a ranking over these.
    assert "most" in asked
    assert not asked & {"language", "type", "domain", "task"}


@pytest.mark.slow
def test_downloads_are_those_of_the_server(site: Path) -> None:
    asking = TestClient(standard_app())
    for path in ("suites/nanobeir", "suites/glue", "glue", "papers"):
        every = "?tasks=all" if path.startswith("suites/") else ""  # a file cannot unfold a type
        answer = parquet.read_table(io.BytesIO(asking.get(f"/{path}.parquet{every}").content))
        assert parquet.read_table(site / f"{path}.parquet").equals(answer), path


@pytest.mark.slow
def test_hostile_names_stay_inside(site: Path) -> None:
    names = [path.name for path in site.parent.parent.rglob("*")]
    assert all("<" not in name and '"' not in name for name in names)
    assert {path.name for path in site.parent.parent.iterdir()} == {"deep"}
    assert HOSTILE in parquet.read_table(site / "suites" / "nanobeir.parquet")["Model"].to_pylist()


@pytest.mark.slow
def test_writing_again_over_ones_own(source: Path, site: Path) -> None:
    before = {path: path.read_bytes() for path in site.rglob("*") if path.is_file()}
    (site / "suites" / "nanobeir.parquet").write_text("old")
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
    settings = small_settings(tmp_path)
    put_imports(
        settings.results[0],
        [Import(model=f"org/m{n:03}", scores={"RTE": 0.5 + n / 1000}) for n in range(130)],
    )
    with mock.patch("leaderboard.data.snapshot.load_site_suites", return_value=suites()):
        write_site(settings, tmp_path / "out")
    for name in ("suites/glue", "tasks/RTE"):
        page = (tmp_path / "out" / f"{name}.html").read_text()
        rows = re.findall(r"<tr[^\n]*>org/m[^\n]*", page)
        assert len(rows) == 130, name
        assert sum(map(len, rows)) < 130 * 200, name


@pytest.mark.slow
def test_pages_say_what_they_need_a_server_for(site: Path) -> None:
    for name in ("compare", "pareto"):
        said = Parsed((site / name / "index.html").read_text()).text
        assert "needs a running site" in said, name
        assert "harness serve" in said, name
    assert "POST" not in (site / "api" / "index.html").read_text()
