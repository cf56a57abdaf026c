"""On PostgreSQL the site is the same, byte for byte, as on SQLite."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from unittest import mock

import pytest
from fastapi import FastAPI
from sqlalchemy import Engine, create_engine, text
from starlette.testclient import TestClient

import postgres
from harness.record import DIGEST_SINCE
from harness.store import Store
from leaderboard.data.queries import Queries
from leaderboard.data.snapshot import SiteIndex, open_index
from leaderboard.data.suites import all_scopes
from leaderboard.web.app import create_app
from site_data import (
    Import,
    fill,
    fill_trained,
    measured_model,
    names,
    put,
    put_imports,
    scored,
    small_settings,
    spread_scores,
    standard_imports,
    suites,
)

pytestmark = [
    pytest.mark.postgres,
    pytest.mark.skipif(postgres.missing() != "", reason=postgres.missing() or "it is there"),
]

NANO = names("nanobeir")
ODD = [
    "a-b/c",
    "A_b/c",
    "a b/C",
    "É/z",
    "e/Z",
    "ß",
    "ss",
    "10",
    "9",
    "日本",
    "a\0nul",
    "x{{7*7}}",
    "'; DROP TABLE",
]
"""Names that databases put in other orders, or do not take."""

URLS = [
    "/",
    "/?q=a&sort=model",
    "/?sort=-parameters&rows=25",
    "/?cols=nanobeir&cols=glue",
    "/suites",
    "/suites/nanobeir",
    "/suites/nanobeir?sort=model",
    "/suites/nanobeir?sort=-model&each=entry",
    "/suites/nanobeir?q=tiny&mean=types",
    "/suites/nanobeir?origin=imported&rows=25&page=2",
    "/suites/nanobeir?group=organisation",
    "/suites/nanobeir?size=small&open=1",
    "/suites/nanobeir?trust=external&revisions=any",
    "/suites/mteb-MTEB-kor-v1?revisions=any",
    "/suites/glue?view=neobert",
    "/suites/nanobeir.json",
    "/suites/nanobeir.csv?sort=model",
    "/suites/nanobeir.md?each=entry",
    "/suites/nanobeir.tex",
    "/suites/glue.json",
    "/index.json",
    "/index.csv?sort=tasks",
    "/tasks",
    "/tasks.json",
    f"/tasks/{NANO[0]}",
    f"/tasks/{NANO[0]}.csv",
    "/models/acme--tiny-base",
    "/models/acme--tiny-base.json",
    "/recipes",
    "/pareto",
    "/papers",
    "/about.json",
    "/feed.xml",
    "/suites/nope.json",
]


ENGINES: list[Engine] = []
"""All that are to be closed."""


def everything(folder: Path) -> None:
    fill_trained(folder)
    odd = [
        Import(model=name, revision=f"r{at}", scores=spread_scores(NANO[: 5 + at % 9], at / 40))
        for at, name in enumerate(ODD)
    ]
    put_imports(folder / "results", [*standard_imports(), *odd])
    for at, name in enumerate(["Zeta", "eta", "Ärger", "x" * 10_000]):
        model = measured_model(name, "cdef"[at])
        record = scored(model, NANO[at], float("nan") if at == 3 else 0.5)
        odd_one = record.model_copy(
            update={
                "provenance": {**record.provenance, "written": f"2026-11-0{at + 1}" + "T00:00:00+00:00" * 9}
            }
        )
        put(folder / "results", replace(model, name=f"m{at}"), [odd_one])


def opened(folder: Path, url: str) -> FastAPI:
    with mock.patch("leaderboard.data.snapshot.listed", return_value=suites()):
        app = create_app(replace(small_settings(folder), database=url))
    ENGINES.append(app.state.site.index.engine)
    return app


def index(folder: Path, url: str) -> SiteIndex:
    with mock.patch("leaderboard.data.snapshot.listed", return_value=suites()):
        found = open_index(replace(small_settings(folder), database=url))
    ENGINES.append(found.engine)
    return found


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with postgres.server() as found:
        yield found
        for engine in ENGINES:
            engine.dispose()


@pytest.fixture
def database(url: str, request: pytest.FixtureRequest) -> str:
    """An empty database of its own."""
    name = f"t{abs(hash(request.node.name))}"
    admin = create_engine(url, isolation_level="AUTOCOMMIT")
    with admin.connect() as connection:
        connection.execute(text(f"CREATE DATABASE {name}"))
    admin.dispose()
    return url.rpartition("/")[0] + f"/{name}"


@pytest.fixture(scope="module")
def both(url: str, tmp_path_factory: pytest.TempPathFactory) -> tuple[TestClient, TestClient]:
    folder = tmp_path_factory.mktemp("site")
    everything(folder)
    return (
        TestClient(opened(folder, f"sqlite:///{folder / 'site.sqlite'}")),
        TestClient(opened(folder, url)),
    )


@pytest.mark.parametrize("path", URLS)
def test_bodies_are_the_same(both: tuple[TestClient, TestClient], path: str) -> None:
    sqlite, server = (one.get(path, headers={"accept": "text/html"}) for one in both)
    assert server.status_code == sqlite.status_code == (404 if "nope" in path else 200)
    assert server.content == sqlite.content
    assert server.headers.get("etag") == sqlite.headers.get("etag")


def test_the_two_databases_order_texts_in_their_own_ways(
    both: tuple[TestClient, TestClient], url: str
) -> None:
    """Else the test above would prove less than it says."""
    engine = create_engine(url)
    with engine.connect() as connection:
        rows = (
            connection.execute(text('SELECT model FROM entries ORDER BY model COLLATE "default"'))
            .scalars()
            .all()
        )
    engine.dispose()
    assert rows != sorted(rows)


def test_a_changed_folder_is_taken_in(database: str, tmp_path: Path) -> None:
    fill(tmp_path)
    one = index(tmp_path, database)
    first = one.refresh()
    assert first.taken > 3
    assert one.refresh() == replace(first, taken=0, dropped=0)
    model = measured_model("minilm-ish")
    Store(tmp_path / "results").put(model.slug, scored(model, NANO[0], 0.99), again=True)
    changes = one.refresh()
    assert (changes.taken, changes.dropped, changes.version) == (1, 0, first.version + 1)


def test_those_who_start_at_once_take_in_once(database: str, tmp_path: Path) -> None:
    """Tables are made once, too."""
    fill(tmp_path)
    start, found, errors = threading.Barrier(4), [], []

    def go() -> None:
        start.wait()
        try:
            found.append(index(tmp_path, database).refresh())
        except Exception as error:
            errors.append(error)

    with mock.patch("leaderboard.data.snapshot.listed", return_value=suites()):
        threads = [threading.Thread(target=go) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert errors == []
    assert sorted(one.taken for one in found)[:3] == [0, 0, 0]
    assert {one.version for one in found} == {1}


def test_texts_of_strangers_are_texts(both: tuple[TestClient, TestClient]) -> None:
    for one in both:
        for path in (
            "/suites/nanobeir.json?q=%27%3B+DROP+TABLE+entries%3B--",
            "/index.json?q=%F0%9F%92%A3",
            "/index.json?q=%25",
            "/models/%27%3B%20DROP%20TABLE.json",
            "/results/%27%3B.json",
            "/suites/%EF%BF%BD.json",
            "/results/99999999999999999999.json",
            "/results/3000000000.json",
        ):
            assert one.get(path).status_code in (200, 404, 422), path
        assert one.get("/suites/nanobeir.json").status_code == 200


def test_every_scope_of_every_suite_has_its_place(database: str, tmp_path: Path) -> None:
    """Some tasks have thousands of subsets."""
    found = open_index(replace(small_settings(tmp_path), database=database, reported=None))
    ENGINES.append(found.engine)
    model = measured_model("m")
    long = scored(model, NANO[0], 0.5)
    odd = long.model_copy(update={"task": long.task.model_copy(update={"name": "t" * 250})})
    Store(tmp_path / "results").put(model.slug, odd)
    found.refresh()
    forms = {scope.form for some in all_scopes(list(found.suites.values())).values() for scope in some}
    assert Queries(found, 1).scope_ids.keys() == forms
    assert [row.task for row in Queries(found, 1).results()] == ["t" * 250]


def test_half_of_a_character_in_a_record(database: str, tmp_path: Path) -> None:
    """JSON may hold one; no database does."""
    model = measured_model("m")
    record = scored(model, NANO[0], 0.5)
    path = Store(tmp_path / "results").path(model.slug, NANO[0], record.key)
    path.parent.mkdir(parents=True)
    raw = {name: value for name, value in json.loads(record.to_json()).items() if name != "digest"}
    raw |= {"schema": DIGEST_SINCE - 1, "model": {**raw["model"], "name": "m\ud800\0"}}
    path.write_text(json.dumps(raw))
    for place in (database, f"sqlite:///{tmp_path / 'x.sqlite'}"):
        index(tmp_path, place).refresh()
        app = opened(tmp_path, place)
        named = [e.model for e in app.state.site.queries.entries.values() if e.origin == "measured"]
        assert all("\ud800" not in name and "\0" not in name for name in named)
        assert TestClient(app).get("/suites/nanobeir", headers={"accept": "text/html"}).status_code == 200
