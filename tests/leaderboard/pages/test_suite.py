"""A suite's page: filters, orders, columns and groups, by its JSON."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from starlette.testclient import TestClient

from html_pages import BROWSER, ask, find_rows
from leaderboard.views import suite_table
from leaderboard.web.marks import KINDS, PLAIN
from site_data import (
    HOSTILE,
    Import,
    Parsed,
    names,
    put_imports,
    small_app,
    spread_scores,
    standard_app,
    suites,
)

PATH = "/suites/nanobeir"
NANO = names("nanobeir")


def asked(path: str = PATH, **query: Any) -> dict[str, Any]:
    return ask(TestClient(standard_app()), f"{path}?{urlencode(query, doseq=True)}")


def rows(**query: Any) -> list[dict[str, Any]]:
    return find_rows(asked(**query), "suite")


def shown(path: str, client: TestClient | None = None) -> Parsed:
    """A page as a browser gets it."""
    return Parsed((client or TestClient(standard_app())).get(path, headers=BROWSER).text)


def models(**query: Any) -> list[str]:
    return [row["cells"]["model"]["value"] for row in rows(**query) if row["kind"] != "group"]


def test_the_complete_are_ranked_and_the_rest_stands_below() -> None:
    found = rows()
    ranked = [row["cells"].get("rank", {}).get("value") for row in found]
    numbers = [rank for rank in ranked if rank is not None]
    assert numbers == sorted(numbers)
    assert ranked == [*numbers, *[None] * (len(ranked) - len(numbers))]
    assert {row["cells"]["model"]["value"] for row in found if row["kind"] == "part"} == {HOSTILE}
    assert asked()["data"]["rows_complete"] == len(numbers) == 3


@pytest.mark.parametrize(
    ("query", "wanted"),
    [
        ({"q": "TINY"}, {"acme/tiny-base", "acme/tiny-large"}),
        ({"origin": "measured"}, {"minilm-ish"}),
        ({"size": "small", "origin": "imported"}, {"acme/tiny-base"}),
        ({"size": "large"}, {"acme/tiny-large"}),
        ({"trust": "external"}, {HOSTILE}),
        ({"open": "1"}, {"acme/tiny-base", "minilm-ish"}),
        ({"tokens": "500"}, {"acme/tiny-base", "acme/tiny-large"}),
        ({"tokens": "513"}, set()),
        ({"zero": "all"}, {"acme/tiny-base"}),
        ({"zero": "most"}, {"acme/tiny-base", "acme/tiny-large"}),
        ({"backbone": "acme/tiny-base"}, {"acme/tiny-base", "acme/tiny-large"}),
        ({"organisation": "acme"}, {"acme/tiny-base", "acme/tiny-large"}),
        ({"organisation": "acm"}, set()),
        ({"recipe": "none"}, {"acme/tiny-base", "acme/tiny-large", "minilm-ish", HOSTILE}),
        ({"q": "nobody"}, set()),
    ],
)
def test_filters(query: dict[str, str], wanted: set[str]) -> None:
    assert set(models(**query)) == wanted


def test_orders_by_every_column_that_can_be_sorted() -> None:
    page = shown(PATH)
    sorts = {a["href"].partition("sort=")[2].partition("&")[0] for a in page.all("a") if "sort=" in a["href"]}
    assert len(sorts) > 10
    task = f"task:{NANO[0]}"
    for sort in (task, f"-{task}", "tasks", "-tasks", "parameters", "-parameters"):
        key = sort.removeprefix("-")
        cells = [row["cells"].get(key, {}).get("value") for row in rows(sort=sort) if row["kind"] != "part"]
        known = [value for value in cells if value is not None]
        assert known == sorted(known, reverse=sort.startswith("-"))
        assert cells == [*known, *[None] * (len(cells) - len(known))]
    assert models(sort="model") == sorted(models(), key=str.casefold)
    assert models(sort="-model") == models(sort="model")[::-1]


def test_columns_that_are_picked() -> None:
    key = f"task:{NANO[2]}"
    found = asked(cols=["tasks", key])["tables"][0]["columns"]
    assert [column["key"] for column in found] == ["rank", "model", "tasks", key]
    usual = {column["key"] for column in asked()["tables"][0]["columns"]}
    assert "mean_rank" not in usual
    assert {f"task:{name}" for name in NANO} <= usual


def test_a_download_has_the_columns_of_the_page_unless_all_are_wanted() -> None:
    keys = {column["key"] for column in asked(cols="all")["tables"][0]["columns"]}
    shown_keys = {head["data-key"] for head in shown(PATH).all("th") if "data-key" in head} - {""}
    usual = [column["key"] for column in asked()["tables"][0]["columns"]]
    assert set(usual) == shown_keys & keys
    assert keys - set(usual) >= {"mean_rank", "how"}
    assert any(link.startswith(f"{PATH}.csv?cols=all") for link in shown(PATH).links)


def test_notes_are_on_the_rows_and_the_type_that_are_shown() -> None:
    path = "/suites/mteb-MTEB-kor-v1"
    columns = suites()["mteb-MTEB-kor-v1"].suite.columns
    other = columns[0].type
    kind = next(column.type for column in columns if column.type != other)

    def count(**query: Any) -> int:
        notes = asked(path, **query)["tables"][0]["notes"]
        return sum(int(note.split()[0]) for note in notes if "pinned revision" in note)

    assert count() == count(q="large") == 1
    assert count(q="tiny-base") == count(type=kind) == 0
    assert count(type=other) == 1
    papers = asked("/suites/glue", origin="measured")["tables"][0]["notes"]
    assert not [note for note in papers if note.startswith("Rows of papers")]


def test_a_mean_says_which_one_it_is() -> None:
    def tex(**query: Any) -> str:
        return TestClient(standard_app()).get(f"{PATH}.tex?{urlencode(query, doseq=True)}").text

    assert "ranked by the mean over tasks}" in tex()
    assert "ranked by Borda points}" in tex(rank="borda")
    groups = next(line for line in tex().splitlines() if line.startswith("\\multicolumn"))
    assert "{Mean}" in groups


def test_types_fold_open(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(suite_table, "FEW", 3)
    client = TestClient(small_app(tmp_path))  # the app that tests share may have these pages with another FEW
    path, listed = "/suites/mteb-MTEB-kor-v1", suites()["mteb-MTEB-kor-v1"]
    columns = {column.name: column.type for column in listed.suite.columns}

    def tasks(**query: Any) -> set[str]:
        (table,) = ask(client, f"{path}?{urlencode({'rows': 'all', **query})}")["tables"][:1]
        keys = [column["key"] for column in table["columns"]]
        assert {f"type:{kind}" for kind in columns.values()} <= set(keys)
        return {key.removeprefix("task:") for key in keys if key.startswith("task:")}

    (kind, *others) = dict.fromkeys(columns.values())
    assert others
    assert tasks(tasks="all") == set(columns) == tasks(cols="all")
    assert tasks() == set()  # data holds the columns that the page shows
    assert tasks(tasks=kind) == {name for name, of in columns.items() if of == kind}
    page = shown(f"{path}?rows=25", client)
    assert not any(f"task:{name}" == th.get("data-key") for th in page.all("th") for name in columns)
    assert f"?tasks={kind}&rows=25" in page.links
    page = shown(f"{path}?tasks={kind}&rows=25", client)
    folds = [a["href"] for a in page.all("a") if a.get("class") == "fold" and "tasks" not in a["href"]]
    assert folds == ["?rows=25"]


def test_a_type_alone() -> None:
    listed = suites()["mteb-MTEB-kor-v1"]
    kind = listed.suite.columns[0].type
    found = asked("/suites/mteb-MTEB-kor-v1", type=kind)["tables"][0]["columns"]
    tasks = [column["key"] for column in found if column["key"].startswith("task:")]
    assert tasks == [f"task:{c.name}" for c in listed.suite.columns if c.type == kind]


def test_groups_hold_their_rows() -> None:
    under: dict[str, set[str]] = {}
    for row in rows(group="organisation"):
        under.setdefault(row["group"], set()).add(row["cells"]["model"]["value"])
    assert under["acme"] == {"acme/tiny-base", "acme/tiny-large"}
    assert set().union(*under.values()) == set(models())


def test_scores_on_other_data_are_marked_and_counted_when_asked() -> None:
    listed = suites()["mteb-MTEB-kor-v1"]
    key = f"task:{listed.suite.columns[0].name}"
    for revisions, complete in (("pinned", 0), ("any", 1)):
        found = asked("/suites/mteb-MTEB-kor-v1", revisions=revisions)
        (row,) = [r for r in found["tables"][0]["rows"] if r["cells"]["model"]["value"] == "acme/tiny-large"]
        assert "other" in row["cells"][key]["kind"].split()
        assert found["data"]["rows_complete"] == complete
        (note,) = [note for note in found["tables"][0]["notes"] if "pinned revision" in note]
        assert ("in no mean" in note) == (revisions == "pinned")
        (head,) = [column["note"] for column in found["tables"][0]["columns"] if column["key"] == key]
        assert re.search(r"data revision \w{7,10}; ‡ mostly on \w{7,10}$", head)
        assert "data revision" not in row["cells"][key].get("note", "")


def test_what_a_model_was_trained_on_is_marked() -> None:
    (row,) = [r for r in rows() if r["cells"]["model"]["value"] == "acme/tiny-large"]
    marked = [key for key, cell in row["cells"].items() if "leak" in cell.get("kind", "").split()]
    assert marked == ["unseen", f"task:{NANO[0]}"]
    assert row["cells"]["unseen"]["value"] == round(100 * (1 - 1 / len(NANO)))
    assert row["cells"]["unseen"]["note"] == f"trained on {NANO[0]}"


def test_what_is_not_zero_shot_stands_in_the_first_columns_and_on_phones() -> None:
    (table, *_) = asked()["tables"]
    assert [column["key"] for column in table["columns"]][:3] == ["rank", "model", "unseen"]
    (cell,) = [td for td in shown(PATH).all("td") if td.get("title") == f"trained on {NANO[0]}"]
    assert cell["data-label"] == "Zero-shot"
    assert {"card", "leak"} <= {*cell["class"].split()}


def test_the_best_and_the_second_best_are_marked() -> None:
    for name in NANO:
        values = [
            (cell["value"], cell.get("kind", "").split())
            for row in rows()
            if (cell := row["cells"].get(f"task:{name}")) and cell["value"] is not None
        ]
        scores = sorted({value for value, _ in values}, reverse=True)
        assert all(("best" in kinds) == (value == scores[0]) for value, kinds in values)


def test_kinds_are_known_and_told_on_the_page() -> None:
    for slug in suites():
        said = asked(f"/suites/{slug}")
        used = {k for t in said["tables"] for r in t["rows"] for c in r["cells"].values()
                for k in c.get("kind", "").split()}  # fmt: skip
        assert used <= KINDS.keys()
        plain = " ".join(shown(f"/suites/{slug}?tasks=all&rows=all").text.split())
        assert all(KINDS[kind].meaning in plain for kind in used - PLAIN), slug


def test_an_empty_score_is_none_and_not_an_impossible_one(tmp_path: Path) -> None:
    def make(folder: Path) -> None:
        def build_row(name: str, value: float | None, flag: str) -> dict[str, Any]:
            (of,) = [t for t in suites()["nanobeir"].suite.tasks if t.name == name]
            where = {"entry": 0, "task": name, "split": of.splits[0], "subset": of.subsets[0]}
            data = {"data_revision": of.data.revision, "mteb_version": "2.1.0"}
            return {**where, "main_score": value, "flag": flag, **data}

        cells = [(0.5, ""), (None, "no-score"), (1.5, "impossible")]
        lines = [build_row(name, *cell) for name, cell in zip(NANO, cells, strict=False)]
        put_imports(
            folder / "results", [Import(model="x/y", scores=dict.fromkeys(NANO[:3], 0.5), rows=lines)]
        )

    client = TestClient(small_app(tmp_path, make))
    (row,) = [row["cells"] for row in find_rows(ask(client, PATH), "suite") if row["kind"] != "group"]
    texts = {name: row[f"task:{name}"] for name in NANO[:3]}
    assert [texts[name]["text"] for name in NANO[:3]] == ["50.00", "–", "!"]
    (note,) = [one for one in ask(client, PATH)["tables"][0]["notes"] if "impossible" in one]
    assert note.startswith("1 impossible")
    page = client.get("/models/x--y", headers=BROWSER).text
    assert "Its file holds no score." in page
    assert page.count("A score is impossible") == 1


def test_sizes_on_the_frontier_are_marked() -> None:
    """By the definition: no ranked row that is at most as large has a higher mean."""
    queries: list[dict[str, str]] = [{}, {"origin": "imported"}, {"q": "large"}]
    for query in queries:
        ranked = [row["cells"] for row in rows(**query) if "rank" in row["cells"]]
        points = [(c["parameters"], c["tasks"]["value"]) for c in ranked if "parameters" in c]
        assert points
        for size, mean in points:
            better = [other for other in points if other[0]["value"] <= size["value"] and other[1] > mean]
            assert ("frontier" in size.get("kind", "").split()) == (not better)


def test_models_that_give_no_single_vector_are_told_apart(tmp_path: Path) -> None:
    kinds: dict[str, dict[str, Any]] = {
        "x/late": {"model_type": ["late-interaction"]}, "x/sparse": {"model_type": ["sparse"]},
        "x/cross": {"model_type": ["cross-encoder"]}, "x/reads-both": {"is_cross_encoder": True},
        "x/plain": {"model_type": ["dense"]},
    }  # fmt: skip

    def make(folder: Path) -> None:
        scores = spread_scores(NANO, 0.4)
        put_imports(
            folder / "results", [Import(model=name, scores=scores, card=kinds[name]) for name in kinds]
        )

    client = TestClient(small_app(tmp_path, make))

    def find_models(output: str) -> dict[str, str]:
        found = [row["cells"]["model"] for row in find_rows(ask(client, f"{PATH}?output={output}"), "suite")]
        return {cell["value"]: cell.get("kind", "") for cell in found}

    assert find_models("multivector") == {"x/late": "multivector"}
    assert find_models("sparse") == {"x/sparse": "sparse"}
    assert find_models("cross-encoder") == dict.fromkeys(["x/cross", "x/reads-both"], "cross-encoder")
    assert find_models("vector") == {"x/plain": ""}
    assert "x/late (multi-vector)" in client.get(f"{PATH}.md").text


def test_one_backbone_has_one_name_on_every_page() -> None:
    lines = [row["cells"] for row in asked("/suites/glue", rows="all")["tables"][0]["rows"]]
    rows = [cells["model"] for cells in lines if cells.get("origin", {}).get("value") == "reported"]
    lines = [row["cells"] for row in find_rows(asked("/glue"), "glue")]
    glue = {cells["name"]["value"] for cells in lines if cells["source"]["kind"] == "reported"}
    assert {cell["value"] for cell in rows} <= glue
    assert any("printed as NeoBERT_4096 (medium)" in cell["note"] for cell in rows)
    boards = [row["cells"] for row in find_rows(asked("/index"), "boards")]
    assert {cells["model"]["value"] for cells in boards if cells["board"]["value"] == "GLUE"} <= glue


def test_a_paper_has_no_rank_and_no_mark() -> None:
    found = [row for row in asked("/suites/glue", rows="all")["tables"][0]["rows"]
              if row["cells"].get("origin", {}).get("value") == "reported"]  # fmt: skip
    assert len(found) > 5
    for row in found:
        assert "rank" not in row["cells"]
        kinds = {k for cell in row["cells"].values() for k in cell.get("kind", "").split()}
        assert not kinds & {"best", "second"}


@pytest.mark.parametrize(
    "query", [{"type": "Nothing"}, {"sort": "nothing"}, {"view": "nothing"}, {"beside": "nothing"}]
)
def test_names_that_are_none(query: dict[str, str]) -> None:
    answer = TestClient(standard_app()).get(f"{PATH}.json", params=query)
    assert answer.status_code == 404
    assert "nothing" in answer.json()["error"]["message"].casefold()
