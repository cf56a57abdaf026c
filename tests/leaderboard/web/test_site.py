"""Names, texts and revisions of strangers: shown as they are on every page, and nothing more."""

from __future__ import annotations

import csv
import io
import json
import re
import shutil
import time
from dataclasses import replace
from pathlib import Path
from unittest import mock
from xml.etree import ElementTree

import pytest
from fastapi import FastAPI
from starlette.testclient import TestClient

from harness.core.identity import digest
from harness.storage.record import Record
from harness.storage.store import Store
from hostile import escaped, obeyed
from html_pages import BROWSER
from leaderboard.web.app import create_app
from leaderboard.web.site import create_environment, open_site
from leaderboard.web.static_site import write_site
from site_data import (
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
        scripts = [a for a in page.all("script") if a != {"type": "application/json"}]
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
        settings = replace(small_settings(folder, static=True), snapshots=tmp_path / "x")
        write_site(settings, tmp_path / "out" / "site")
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"site"}
    site = tmp_path / "out" / "site"
    for path in site.rglob("*"):
        assert re.fullmatch(r"[\w.+,()@ -]{1,255}", path.name), path.name
    for page in site.glob("models/*/index.html"):
        for link in Parsed(page.read_text()).links:
            if "://" not in link and not link.startswith(("#", "?", "data:", "mailto:")):
                target = (page.parent / link.partition("#")[0]).resolve()
                assert target.is_relative_to(site), link
                assert target.exists(), (page, link)


PAGES = ("/", "/suites/nanobeir", "/search", "/pareto", "/tasks")


def render_pages(folder: Path, snapshots: str) -> dict[str, bytes]:
    """Some pages in every format, and the page of a result of each origin, after a start from a snapshot."""
    with mock.patch("leaderboard.data.snapshot.load_site_suites", return_value=suites()):
        site = open_site(replace(small_settings(folder), snapshots=folder / snapshots), at_once=True)
    site.refresh()
    entries = site.queries.entries
    results = {
        (entries[r.entry].origin, entries[r.entry].of_seeds): r.id for r in site.queries.find_results()
    }
    paths = [*PAGES, *(f"/results/{number}" for number in results.values())]
    paths += [f"/models/{slug}" for slug in site.queries.models]
    return {f"{path}.{form}": site.export(path, {}, form) for path in paths for form in ("json", "csv")}


@pytest.mark.parametrize("how", ["deleted", "stale", "damaged", "texts", "list"])
def test_a_snapshot_is_never_believed(tmp_path: Path, how: str) -> None:
    fill_trained(tmp_path)
    render_pages(tmp_path, "used")
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
