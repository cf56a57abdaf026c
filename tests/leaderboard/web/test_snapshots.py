"""Numbers that can be cited: ids of snapshots, addresses that stay, names, badges and what robots read."""

from __future__ import annotations

import html
import io
import json
import random
import re
import shutil
import struct
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from unittest import mock

import pytest
from fastapi import FastAPI
from pyarrow import parquet
from starlette.testclient import TestClient

from harness.core.errors import StoreError
from harness.encoder.backbones import list_catalog_models
from harness.storage.imported import Imported
from html_pages import find_rows
from leaderboard.data.queries import CATALOG
from leaderboard.data.snapshot import _read_kept
from leaderboard.web.app import create_app
from leaderboard.web.page import NotFound
from leaderboard.web.site import Site, open_site
from site_data import (
    Import,
    fill,
    measured_model,
    names,
    put,
    put_imports,
    scored,
    small_settings,
    spread_scores,
    standard_app,
    standard_imports,
    suites,
)

NANO = names("nanobeir")
LARGE = "/models/acme--tiny-large"
PAGES = [f"{path}{form}" for path in ("/suites/nanobeir", LARGE, "/suites/mteb-MTEB-kor-v1")
         for form in ("", ".json", ".csv", ".md", ".tex")
         if path != LARGE or form in ("", ".json", ".csv")]  # fmt: skip
PAGES += ["/", "/about", "/papers", "/glue", "/search?q=tiny", f"/tasks/{NANO[0]}", "/models/tiny-LARGE",
          "/badges/nanobeir/minilm-ish.svg", "/compare?m={a}&m={b}"]  # fmt: skip


@contextmanager
def small_suites() -> Iterator[None]:
    with mock.patch("leaderboard.data.snapshot.load_site_suites", return_value=suites()):
        yield


def opened(folder: Path, **more: object) -> tuple[FastAPI, TestClient]:
    with small_suites():
        app = create_app(small_settings(folder, **more))
    return app, TestClient(app, headers={"accept": "text/html"})


def put_checkpoint(folder: Path, name: str, letter: str, score: float) -> None:
    model = measured_model(name, letter)
    put(folder / "results", model, [scored(model, task, score) for task in NANO])


def import_other(folder: Path) -> None:
    """A newer import, in which every score is another one."""
    others = [replace(one, scores={t: v - 0.1 for t, v in one.scores.items()}) for one in standard_imports()]
    put_imports(folder / "results", [*others, Import(model="new/model", scores=spread_scores(NANO, 0.7))])


def cite(client: TestClient, page: str) -> str:
    """Cite a page; the address of its citation."""
    answer = client.post("/cite", params={"of": page}, follow_redirects=False)
    assert answer.status_code == 303
    return str(answer.headers["location"])


def id_of(site: Site) -> str:
    assert site.queries.snapshot
    return site.queries.snapshot.id


def test_an_id_is_that_of_the_content_wherever_and_in_whatever_order_it_was_read(tmp_path: Path) -> None:
    fill(tmp_path / "a")
    shutil.copytree(tmp_path / "a", tmp_path / "b" / "elsewhere")
    put_checkpoint(tmp_path / "b" / "elsewhere", "later", "e", 0.4)
    with small_suites():
        one = open_site(small_settings(tmp_path / "a"))
        first = id_of(one)
        two = open_site(small_settings(tmp_path / "b" / "elsewhere"))
        assert re.fullmatch("[0-9a-f]{12}", first)
        assert id_of(two) != first
        records = tmp_path / "a" / "results" / "records"
        shutil.copytree(tmp_path / "b" / "elsewhere" / "results" / "records", records, dirs_exist_ok=True)
        one.refresh()  # the same at last, read in two looks
        assert id_of(one) == id_of(two)
        date = one.as_of
        shutil.rmtree(next(records.glob("*later*")))
        one.refresh()
        assert id_of(one) == first
        assert date.partition(",")[0] == one.as_of.partition(",")[0]


def test_the_order_of_an_imports_rows_does_not_change_the_id(tmp_path: Path) -> None:
    values, ids = random.Random(0), []
    row = {"entry": 0, "task": NANO[0], "split": "test", "flag": "", "data_revision": "", "mteb_version": "2"}
    rows = [
        {**row, "subset": f"{at}", "main_score": values.uniform(-1, 1) * 10 ** (at % 20)} for at in range(100)
    ]
    for at in range(6):
        put_imports(tmp_path / f"{at}" / "results", [Import(model="a/b", scores={NANO[0]: 0}, rows=rows)])
        (file,) = (tmp_path / f"{at}").rglob("scores-*.parquet")
        parquet.write_table(parquet.read_table(file).take(values.sample(range(100), 100)), file)
        with small_suites():
            ids.append(id_of(open_site(small_settings(tmp_path / f"{at}"))))
    assert len(set(ids)) == 1


def test_an_address_with_an_id_gives_the_same_bytes_after_refreshes_and_an_import(tmp_path: Path) -> None:
    fill(tmp_path)
    app, client = opened(tmp_path)
    site = app.state.site
    slugs = [entry.slug for entry in site.queries.entries.values() if entry.model.startswith("acme/")]
    results = [f"/results/{row.id}" for row in site.queries.find_results(task=NANO[0])]
    assert len(results) == 4
    prefix = cite(client, "/").rpartition("/cite")[0]
    pages = [f"{prefix}{page.format(a=slugs[0], b=slugs[1])}" for page in [*PAGES, *results]]
    before = {page: client.get(page) for page in pages}
    assert {answer.status_code for answer in before.values()} == {200}
    now = {page: client.get(page.removeprefix(prefix)).content for page in pages}
    for at in range(3):
        put_checkpoint(tmp_path, f"later{at}", "ef0"[at], 0.4 + at / 10)
        site.refresh()
    import_other(tmp_path)
    site.refresh()
    assert site.queries.version == 5
    shutil.rmtree(site.index.folder / "1")  # what is kept needs nothing of the version that it was
    for path in (tmp_path / "results" / "records").glob("minilm*"):
        shutil.rmtree(path)
    site.refresh()
    misses = app.state.metrics.cache.labels("miss")._value
    missed = misses.get()
    assert {page for page in pages if client.get(page).content != before[page].content} == set()
    assert misses.get() - missed == 1  # they stay in the cache, but for an address that leads to another
    _, again = opened(tmp_path)  # another process
    assert {page for page in pages if again.get(page).content != before[page].content} == set()
    assert client.get("/suites/nanobeir").content != now[f"{prefix}/suites/nanobeir"]
    page = f"{prefix}/suites/nanobeir"
    assert site.export(page, {}, "csv") == before[f"{page}.csv"].content


def test_a_citation_has_the_address_and_a_sentence_with_marks_mean_and_count(tmp_path: Path) -> None:
    fill(tmp_path)
    app, client = opened(tmp_path, url="https://example.org/e")
    place = cite(client, "/suites/mteb-MTEB-kor-v1")
    text = client.get(place).text
    address = f"https://example.org/e/s/{id_of(app.state.site)}/suites/mteb-MTEB-kor-v1"
    assert f"url = {{{address}}}" in text
    whole = client.get("/suites/mteb-MTEB-kor-v1.json").json()
    (row,) = (one for one in whole["tables"][0]["rows"] if one["key"].startswith("acme--tiny-large"))
    sentence = next(
        line for line in re.findall(r"<li data-site>([^<]*)", text) if line.startswith("acme/tiny-large")
    )
    mean = f"has a mean of {row['cells']['tasks']['text']} over the 6 tasks of MTEB(kor, v1), "
    mean += "imported from the results of mteb"
    assert sentence == f"acme/tiny-large {mean} ({app.state.site.as_of}, {address})."
    asked = client.get(cite(client, "/rank?suite=nanobeir&models=1&beside=tiny-large")).text
    first = asked.index("<li data-site>acme/")
    mean = r"has a mean of [0-9.†]+ \(ndcg_at_10 × 100; ± [0-9.]+ over other such tasks, 95 %\) over "
    assert re.search(f"<li data-site>acme/tiny-large {mean}", asked).start() == first
    keys = [re.search(r"@misc{([^,]*),", page)[1] for page in (text, asked)]
    assert keys[0].endswith("-suites-mteb-MTEB-kor-v1")
    assert keys[0] != keys[1]
    partial = client.get(cite(client, "/suites/nanobeir")).text
    assert " over 3 of the 13 tasks of NanoBEIR, " in partial
    text = client.get(cite(client, "/models/acme--tiny-large")).text
    sentences = re.findall(r"<li data-site>([^<]*)", text)
    mean = "acme/tiny-large has a mean of 63.54 over the 13 tasks of NanoBEIR, rank 1 of 3"
    assert sentences[0].startswith(f"{mean}, imported from the results of mteb (")
    assert f": {mean}, imported" in re.search("note = (.*)", text)[1]
    result = f"scores [0-9.†]+ \\(ndcg.+at.+10 .+ 100\\) on {NANO[0]}"
    # A paper has no legend: what a mark means stands with it.
    source = "imported from the results of mteb"
    task = client.get(cite(client, f"/tasks/{NANO[0]}?q=tiny-large")).text
    assert re.search(f"note = .*: acme/tiny-large {result}, rank 1 of [0-9]+, {source}; †: .+}}", task)
    asked = client.get(cite(client, f"/models/acme--tiny-large?q={NANO[0]}")).text
    number = find_rows(client.get(f"/tasks/{NANO[0]}.json").json(), "ranking")[0]["cells"]["score"]["href"]
    for page in (asked, client.get(cite(client, number)).text):
        assert re.search(f"note = .*: acme/tiny-large {result}, {source}; †: .+}}", page)
    assert client.post("/cite", params={"of": "/nothing"}).status_code == 404
    assert "<script>" not in client.post("/cite", params={"of": "/suites/nanobeir?q=<script>"}).text


def test_a_citation_says_which_scores_the_makers_of_a_model_state(tmp_path: Path) -> None:
    run = Import(model="o/m", revision="a" * 40, scores={NANO[0]: 0.1, NANO[1]: 0.2})
    stated = Import(model="o/m", revision="external", scores={NANO[2]: 0.5})
    put_imports(tmp_path / "results", [run, stated])
    _, client = opened(tmp_path)
    number = find_rows(client.get(f"/tasks/{NANO[2]}.json").json(), "ranking")[0]["cells"]["score"]["href"]
    whole, one = "mteb, 1 of 3 scores stated by its makers", "mteb, stated by its makers"
    ends = {"/suites/nanobeir": whole, "/models/o--m": whole, f"/models/o--m?q={NANO[2]}": one}
    ends |= {f"/tasks/{NANO[2]}": one, number: one, f"/tasks/{NANO[0]}": "imported from the results of mteb"}
    for page, end in ends.items():
        text = client.get(cite(client, page)).text
        assert re.search("<li data-site>(o/m [^<]*) [(]as of", text)[1].partition("; ")[0].endswith(end)
    asked = client.get("/rank.json?suite=nanobeir&models=1").json()
    assert "; 1 of 3 scores stated by its makers)" in asked["lead"]


def test_a_citation_of_a_question_says_its_filters_in_the_words_of_the_chips(tmp_path: Path) -> None:
    fill(tmp_path)
    _, client = opened(tmp_path)
    question = "/rank?suite=nanobeir&models=1&most=900&open=1&beside=tiny-large&q=tiny"
    page = client.get(question).text
    chips = re.findall("remove </span>([^<]*)", page)
    bounds = [chip for chip in chips if "models" not in chip and not chip.startswith(("tasks of", "beside"))]
    assert len(bounds) == 3
    asked = f"NanoBEIR ({', '.join(bounds)})"
    for mean in ("tasks", "types"):
        text = client.get("/cite", params={"of": f"{question}&mean={mean}"}).text
        assert asked in re.search("<li data-site>(acme/tiny-large[^<]*)", text)[1]
        assert f"title = {{Which encoder for {asked}?}}" in text


def test_a_page_to_cite_says_who_can_open_its_address_and_what_its_entry_quotes(tmp_path: Path) -> None:
    fill(tmp_path)
    (_, local), (_, public) = opened(tmp_path), opened(tmp_path, url="https://example.org/e")
    note = "nobody else can open it: <code>harness serve --url ADDRESS</code>"
    of = {"params": {"of": "/models/acme--tiny-base"}}
    texts = [client.get("/cite", **of).text for client in (local, public)]
    assert [note in text for text in texts] == [True, False]
    assert all("the site keeps at most 100" in text for text in texts)
    assert all(text.count("BibTeX, with the first of the sentences below:") == 1 for text in texts)
    assert len(re.findall("<li data-site>", texts[0])) > 1
    ranked = html.unescape(public.get("/cite", params={"of": "/suites/nanobeir?rows=25"}).text)
    [frame] = re.findall('<iframe src="https://example.org/e([^"]*)" ', ranked)
    assert "<table" in local.get(frame).text
    assert "<nav" not in local.get(frame).text
    assert "<p>BibTeX:</p>" in local.get("/cite", params={"of": "/suites/nanobeir"}).text


def test_a_kept_page_is_cited_as_what_it_is_of(tmp_path: Path) -> None:
    fill(tmp_path)
    app, client = opened(tmp_path, keep=1)
    place = cite(client, "/suites/nanobeir")
    prefix = place.partition("/cite")[0]
    text = client.get(place).text
    put_checkpoint(tmp_path, "later", "e", 0.4)
    app.state.site.refresh()
    kept = f"{prefix}/suites/nanobeir"
    # Nothing new is kept, though the site has another snapshot by now.
    assert cite(client, kept) == place
    for page in (f"{prefix}/cite", "/cite"):
        again = client.get(page, params={"of": kept}).text
        assert re.findall(r"url = {([^}]*)}", again) == [f"SITE{kept}"]
        assert re.search("@misc{.*", again)[0] == re.search("@misc{.*", text)[0]


@pytest.mark.parametrize("broken", ["_execute", "read_content_file"])
def test_what_is_kept_and_cannot_be_read_for_a_while_is_tried_again(tmp_path: Path, broken: str) -> None:
    fill(tmp_path)
    app, client = opened(tmp_path)
    prefix = cite(client, "/").partition("/cite")[0]
    pages = [f"{prefix}/suites/nanobeir", f"{prefix}/badges/nanobeir/minilm-ish.svg"]
    if broken == "_execute":
        assert client.get(f"{prefix}/about").status_code == 200
        fails = mock.patch("leaderboard.data.queries.Queries._execute", side_effect=StoreError("busy"))
    else:
        _read_kept.cache_clear()
        fails = mock.patch("leaderboard.data.snapshot.read_content_file", side_effect=OSError("busy"))
    with fails:
        answers = [client.get(page) for page in pages]
    assert [(one.status_code, one.headers["retry-after"]) for one in answers] == [(503, "5")] * 2
    assert [client.get(page).status_code for page in pages] == [200, 200]
    assert len(app.state.site.index.list_kept()) == 1


@pytest.mark.parametrize("page", ["//rank", "/\\\\rank", "rank", "https://example.org/", ""])
def test_only_addresses_of_the_site_are_cited(page: str) -> None:
    asking = TestClient(standard_app())
    for method in ("GET", "POST"):
        assert asking.request(method, "/cite", params={"of": page}).status_code == 422


def test_what_is_kept_is_bounded_and_what_was_promised_stays(tmp_path: Path) -> None:
    fill(tmp_path)
    app, client = opened(tmp_path, keep=1)
    first = cite(client, "/")
    put_checkpoint(tmp_path, "later", "e", 0.4)
    app.state.site.refresh()
    refused = client.post("/cite", params={"of": "/"})
    assert refused.status_code == 404
    assert "--keep N" in refused.text
    assert client.get(f"/s/{id_of(app.state.site)}/").status_code == 404
    assert client.get(first).status_code == 200
    assert len(app.state.site.index.list_kept()) == 1


def test_only_the_button_of_a_page_keeps(tmp_path: Path) -> None:
    fill(tmp_path)
    app, client = opened(tmp_path)
    prefix = f"/s/{id_of(app.state.site)}"
    assert client.get(f"{prefix}/").status_code == 404
    for page in ("/nonsense", "/suites/nonsense", f"{prefix}/", "/cite?of=/"):
        assert client.post("/cite", params={"of": page}).status_code == 404
    assert client.post("/cite", params={"of": "/suites/nanobeir?nonsense=1"}).status_code == 422
    for origin in ("cross-site", "same-site"):
        assert client.post("/cite", headers={"sec-fetch-site": origin}).status_code == 403
    assert app.state.site.index.list_kept() == []
    answer = client.post("/cite", headers={"sec-fetch-site": "same-origin"})
    assert (answer.status_code, answer.url.path) == (200, f"{prefix}/cite")


def test_snapshots_of_other_software_take_no_place(tmp_path: Path) -> None:
    fill(tmp_path)
    _, client = opened(tmp_path, keep=1)
    cite(client, "/")
    with mock.patch("leaderboard.data.snapshot.FORM", 10_000):
        app, client = opened(tmp_path, keep=1)
        put_checkpoint(tmp_path, "later", "e", 0.4)
        app.state.site.refresh()
        cite(client, "/")
        assert len(app.state.site.index.list_kept()) == 1


@pytest.mark.parametrize("gone", ["", "*", "*/own/results.parquet", "*/own/texts-*.parquet"])
def test_what_is_kept_never_becomes_what_is_there_today(tmp_path: Path, gone: str) -> None:
    fill(tmp_path)
    app, client = opened(tmp_path)
    prefix = cite(client, "/").rpartition("/cite")[0]
    page = f"{prefix}/tasks/{NANO[0]}"
    number = app.state.site.queries.find_results(task=NANO[0])[0].id
    pages = [page, f"{prefix}/tasks/{NANO[1]}", f"{prefix}/results/{number}"]
    badge = f"{prefix}/badges/nanobeir/minilm-ish.svg"
    assert client.get(page).status_code == 200
    folder = app.state.site.index._kept / prefix.rpartition("/")[2]
    put_checkpoint(tmp_path, "later", "e", 0.4)
    app.state.site.refresh()
    for path in folder.glob(gone) if gone else [folder]:
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    assert client.get(pages[2]).status_code == 404
    assert {client.get(one).status_code for one in (*pages[1:], badge)} == {404}


def test_work_for_kept_snapshots_and_badges_is_counted(tmp_path: Path) -> None:
    fill(tmp_path)
    app, client = opened(tmp_path, pages_a_minute=3)
    site = app.state.site
    kept, other = site.keep(), "/s/000000000000"
    assert client.get(f"{kept}/about").status_code == 200  # opened, and rendered
    assert client.get(f"{other}/about").status_code == 404
    with mock.patch.object(site, "open_kept", wraps=site.open_kept) as opening:
        assert {client.get(f"{other}{end}").status_code for end in ("/about", "/badges/a/b.svg")} == {429}
        assert not opening.called
    assert client.get(f"{kept}/about").status_code == 200
    assert client.get("/badges/nanobeir/nobody.svg").status_code == 429


@pytest.mark.parametrize("path", ["/models/tiny-LARGE", f"/tasks/{NANO[0].lower()}"])
def test_a_page_is_cited_by_any_of_its_names(tmp_path: Path, path: str) -> None:
    fill(tmp_path)
    app, client = opened(tmp_path)
    moved = client.get(path, follow_redirects=False).headers["location"]
    assert app.state.site.export(path, {}, "json") == app.state.site.export(moved, {}, "json")
    address = cite(client, path)
    assert address.startswith("/s/")
    for page in (address, f"/cite?of={path}"):
        assert client.get(page, follow_redirects=False).status_code == 200


def test_a_snapshot_that_is_open_does_not_wait_for_others(tmp_path: Path) -> None:
    fill(tmp_path)
    app, _ = opened(tmp_path)
    site, begun, ends = app.state.site, threading.Event(), threading.Event()
    kept = site.keep().removeprefix("/s/")
    first = site.open_kept(kept)

    def open_slowly(id: str) -> None:
        begun.set()
        assert ends.wait(60)

    with mock.patch.object(site.index, "open_kept", side_effect=open_slowly), ThreadPoolExecutor(2) as pool:
        slow = pool.submit(site.open_kept, "000000000000")
        assert begun.wait(60)
        assert pool.submit(site.open_kept, kept).result(timeout=30) is first
        assert not slow.done()
        ends.set()
        assert isinstance(slow.exception(), NotFound)


def test_badges_do_not_read_every_name_each_time() -> None:
    queries = standard_app().state.site.queries
    queries.find_named_entries("tiny-large")
    with mock.patch("leaderboard.data.entries.extract_letters", side_effect=AssertionError):
        assert queries.find_named_entries("nobody") == []


def test_what_is_kept_warns_of_nothing(tmp_path: Path) -> None:
    fill(tmp_path)
    app, client = opened(tmp_path)
    prefix = cite(client, "/").rpartition("/cite")[0]
    app.state.site._kept_sites.clear()
    (tmp_path / "results").rename(tmp_path / "away")
    app.state.site.refresh()
    assert "is gone or empty" in client.get("/suites").text
    assert "is gone or empty" not in client.get(f"{prefix}/suites").text


@pytest.mark.parametrize(
    "path",
    ["/s/000000000000/", "/s/%2e%2e/", "/s/..%2f..%2fetc/", "/s/ABCDEF012345/", "/s/kept/", "/s/",
     "/s/000000000000/badges/nanobeir/x.svg", "/s/00000000000g/"],
)  # fmt: skip
def test_no_path_is_made_of_an_address(path: str) -> None:
    asking = TestClient(standard_app())
    assert asking.get(path).status_code == 404


def test_other_software_does_not_read_what_is_kept(tmp_path: Path) -> None:
    fill(tmp_path)
    _, client = opened(tmp_path)
    page = cite(client, "/").rpartition("/cite")[0] + "/suites/nanobeir"
    assert client.get(page).status_code == 200
    with mock.patch("leaderboard.data.snapshot.FORM", 10_000):
        app, other = opened(tmp_path)
        put_checkpoint(tmp_path, "later", "e", 0.4)
        app.state.site.refresh()
        assert other.get(page).status_code == 404
    assert client.get(page).status_code == 200


def test_pages_and_formats_carry_the_snapshot(tmp_path: Path) -> None:
    fill(tmp_path)
    app, client = opened(tmp_path)
    as_of = app.state.site.as_of
    assert as_of in client.get("/suites/nanobeir").text
    lines = client.get("/suites/nanobeir.csv").text.splitlines()
    assert lines[0].endswith(",snapshot")
    assert all(line.endswith(f'"{as_of}"') for line in lines[1:])
    assert as_of.capitalize() in client.get("/suites/nanobeir.md").text
    assert client.get("/suites/nanobeir.tex").text.startswith(f"% {as_of.capitalize()}.")
    stated = client.get("/suites/nanobeir.json").json()["snapshot"]
    assert stated["id"] in as_of
    schema = parquet.read_schema(io.BytesIO(client.get("/suites/nanobeir.parquet").content))
    assert schema.metadata == {f"snapshot_{name}".encode(): t.encode() for name, t in stated.items()}
    assert as_of in client.get("/badges/nanobeir/minilm-ish.svg").text


def test_links_of_a_kept_page_stay_in_its_snapshot(tmp_path: Path) -> None:
    fill(tmp_path)
    _, client = opened(tmp_path)
    prefix = cite(client, "/").rpartition("/cite")[0]
    text = client.get(f"{prefix}/suites/nanobeir").text
    links = re.findall(r'(\S*) ?(?:href|action)="(/[^"]*)"', text)
    outside = {href for _, href in links if not href.startswith(prefix) and not href.startswith("/static/")}
    assert outside == {"/suites/nanobeir"}  # the page of today
    cells = json.loads(client.get(f"{prefix}/suites/nanobeir.json").content)["tables"][0]["rows"][0]["cells"]
    assert client.get(cells["model"]["href"]).status_code == 200
    assert cells["model"]["href"].startswith(prefix)
    charts = json.loads(client.get(f"{prefix}/pareto.json?suite=nanobeir").content)["charts"]
    points = [href for c in charts for t in c["figure"]["data"] for href in t.get("customdata", ())]
    assert points
    assert {client.get(href).status_code for href in points if href.startswith(prefix)} == {200}
    assert not [href for href in points if href and not href.startswith(prefix)]


def test_ranks_and_scores_have_a_history(tmp_path: Path) -> None:
    fill(tmp_path)
    app, client = opened(tmp_path)
    first = cite(client, "/").split("/")[2]
    page = client.get(f"{LARGE}.json").json()
    assert "history" not in [table["name"] for table in page["tables"]]
    rank = next(r["cells"] for r in page["tables"][0]["rows"] if r["cells"]["name"]["value"] == "nanobeir")
    (old,) = (r["value"] for r in page_scores(page) if r["task"] == NANO[0])
    import_other(tmp_path)
    app.state.site.refresh()
    after = client.get(f"{LARGE}.json").json()
    (history,) = (table for table in after["tables"] if table["name"] == "history")
    (line,) = history["rows"]
    assert first in line["cells"]["snapshot"]["text"]
    wanted = f"{rank['rank']['text']} of {rank['ranked']['text']} ({rank['tasks']['text']})"
    assert wanted in [cell["text"] for cell in line["cells"].values()]
    result = next(r["href"] for r in page_scores(after) if r["task"] == NANO[0])
    (history,) = (t for t in client.get(f"{result}.json").json()["tables"] if t["name"] == "history")
    assert [row["cells"]["score"]["value"] for row in history["rows"]] == [old]
    kept = client.get(f"/s/{first}{LARGE}.json").json()
    assert "history" not in [table["name"] for table in kept["tables"]]


def page_scores(page: dict) -> list[dict]:  # type: ignore[type-arg]
    (table,) = (table for table in page["tables"] if table["name"] == "results")
    return [{"task": row["key"], **row["cells"]["score"]} for row in table["rows"] if "score" in row["cells"]]


@pytest.mark.parametrize(
    ("typed", "leads"),
    [("/models/TINY_large", LARGE), ("/models/acme/Tiny-Large", LARGE),
     ("/models/acme/tiny-large.json?q=a", f"{LARGE}.json?q=a"),
     ("/models/Minilm-ISH", "/models/minilm-ish-aaaaaaaa"), ("/models/NeoBERT.csv", "/models/neobert.csv"),
     ("/models/acme/nothing", None), ("/models//evil.example/x", None)],
)  # fmt: skip
def test_a_model_is_found_by_the_names_that_people_type(typed: str, leads: str | None) -> None:
    answer = TestClient(standard_app()).get(typed)
    if leads is None:
        assert answer.status_code == 404
    else:
        assert (answer.status_code, str(answer.url).removeprefix("http://testserver")) == (200, leads)


def test_a_name_of_the_catalog_leads_to_the_page_of_its_repository(tmp_path: Path) -> None:
    name = "sentence-transformers/all-MiniLM-L6-v2"
    put_imports(tmp_path / "results", [Import(model=n, scores={NANO[0]: 0.5}) for n in (name, "b/x", "c/x")])
    _, client = opened(tmp_path)
    for typed in ("minilm", "all-minilm-l6-v2"):
        assert str(client.get(f"/models/{typed}").url).endswith(
            "/models/sentence-transformers--all-MiniLM-L6-v2"
        )
    assert {name: model.summary.partition(",")[0] for name, model in list_catalog_models().items()} == CATALOG
    assert client.get("/models/x").status_code == 404  # two organisations have one


def test_a_badge_by_name_survives_a_new_checkpoint(tmp_path: Path) -> None:
    put_checkpoint(tmp_path, "ours", "d", 0.5)
    app, client = opened(tmp_path)
    slug = next(slug for slug in app.state.site.queries.models if slug.startswith("ours"))
    (address,) = re.findall(r"SITE(/badges/nanobeir/\S+\.svg)", client.get(f"/models/{slug}").text)
    assert "d" * 8 not in address
    assert "50.00" in client.get(address).text
    put_checkpoint(tmp_path, "ours", "e", 0.6)
    model = measured_model("ours", "f")
    put(tmp_path / "results", model, [scored(model, NANO[0], 0.9)])  # not whole yet
    app.state.site.refresh()
    assert "60.00" in client.get(address).text
    shutil.rmtree(next((tmp_path / "results" / "records").glob("*dddd*")))
    app.state.site.refresh()
    assert "60.00" in client.get(address).text


def test_the_source_of_an_imported_score_is_at_its_commit(tmp_path: Path) -> None:
    fill(tmp_path)
    found = Imported.read_import(tmp_path / "results" / "imported" / "mteb-results")
    assert found is not None
    _, client = opened(tmp_path)
    row = client.get(f"{LARGE}.json").json()
    result = page_scores(row)[0]["href"]
    assert "/blob/main/results/" in client.get(f"{result}.json").json()["data"]["source"]
    found.update_stamp({"commit": "c" * 40})
    _, client = opened(tmp_path)
    assert f"/blob/{'c' * 40}/results/" in client.get(f"{result}.json").json()["data"]["source"]


@pytest.mark.parametrize("path", ["/", "/suites/nanobeir", LARGE, "/rank", "/models/nobody"])
def test_every_page_of_a_published_site_has_a_picture_for_links(tmp_path: Path, path: str) -> None:
    fill(tmp_path)
    _, client = opened(tmp_path, url="https://example.org/e")
    tags = dict(re.findall(r'<meta (?:property|name)="([^"]+)" content="([^"]*)">', client.get(path).text))
    assert {"og:title", "og:description", "twitter:card"} <= tags.keys()
    picture = client.get(tags["og:image"].removeprefix("https://example.org/e"))
    assert picture.headers["content-type"] == "image/png"
    assert len(picture.content) < 60_000
    sizes = (tags["og:image:width"], tags["og:image:height"])
    assert tuple(str(n) for n in struct.unpack(">II", picture.content[16:24])) == sizes == ("1200", "630")
    # A reader's own machine has no address that others can load from.
    assert "og:image" not in TestClient(standard_app()).get(path).text


def test_robots_and_other_sites_read_what_a_published_site_has(tmp_path: Path) -> None:
    fill(tmp_path)
    _, client = opened(tmp_path, url="https://example.org/e")
    assert "Disallow: /s/\n" in client.get("/robots.txt").text
    assert "Sitemap: https://example.org/e/sitemap.xml" in client.get("/robots.txt").text
    places = re.findall("<loc>https://example.org/e([^<]*)</loc>", client.get("/sitemap.xml").text)
    assert {"/", "/suites/nanobeir", LARGE} <= set(places)
    assert all(client.get(place.replace("&amp;", "&")).status_code == 200 for place in places[::20])
    for path in ("/suites/nanobeir.json", "/suites/nanobeir.csv", "/nothing.json"):
        assert client.get(path).headers["access-control-allow-origin"] == "*"
    text = client.get("/suites/nanobeir?mean=types")
    assert "access-control-allow-origin" not in text.headers
    assert '<meta property="og:url" content="https://example.org/e/suites/nanobeir?mean=types">' in text.text
    assert (
        "access-control-allow-origin" not in TestClient(standard_app()).get("/suites/nanobeir.json").headers
    )
