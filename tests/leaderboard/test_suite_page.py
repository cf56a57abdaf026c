"""A suite's page: filters, orders, columns, pins and groups, told from its twin."""

from __future__ import annotations

from typing import Any

import pytest
from starlette.testclient import TestClient

from leaderboard.tables import KINDS
from site_data import HOSTILE, Parsed, names, standard_app, suites

PATH = "/suites/nanobeir"
NANO = names("nanobeir")


def asked(path: str = PATH, **query: Any) -> dict[str, Any]:
    answer = TestClient(standard_app()).get(f"{path}.json", params=query)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def rows(**query: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = asked(**query)["tables"][0]["rows"]
    return found


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
        ({"recipe": "none"}, {"acme/tiny-base", "acme/tiny-large", "minilm-ish", HOSTILE}),
        ({"q": "nobody"}, set()),
    ],
)
def test_filters(query: dict[str, str], wanted: set[str]) -> None:
    assert set(models(**query)) == wanted


def test_orders_by_every_column_that_can_be_sorted() -> None:
    page = Parsed(TestClient(standard_app()).get(PATH, headers={"accept": "text/html"}).text)
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


def test_pinned_rows_stay_on_top_and_are_no_part_of_the_pages() -> None:
    last = rows()[-1]["key"]
    found = rows(pin=last, sort="model")
    assert (found[0]["key"], found[0]["kind"]) == (last, "pinned")
    assert [row["key"] for row in found].count(last) == 1
    assert rows(pin=last, q="tiny")[0]["key"] == last  # also where a filter would hide it
    assert rows(pin="nobody-00000000") == rows()


def test_columns_that_are_picked() -> None:
    key = f"task:{NANO[2]}"
    found = asked(cols=["tasks", key])["tables"][0]["columns"]
    assert [column["key"] for column in found] == ["rank", "model", "tasks", key]
    usual = {column["key"] for column in asked()["tables"][0]["columns"]}
    assert "borda" not in usual
    assert {f"task:{name}" for name in NANO} <= usual


def test_a_type_alone() -> None:
    listed = suites()["mteb-MTEB-kor-v1"]
    kind = listed.suite.columns[0].type
    found = asked("/suites/mteb-MTEB-kor-v1", type=kind)["tables"][0]["columns"]
    shown = [column["key"] for column in found if column["key"].startswith("task:")]
    assert shown == [f"task:{c.name}" for c in listed.suite.columns if c.type == kind]


def test_groups_hold_their_rows() -> None:
    found = rows(group="organisation")
    heads = [row["cells"]["model"]["value"] for row in found if row["kind"] == "group"]
    assert "acme" in heads
    under: dict[str, list[str]] = {}
    for row in found:
        name = row["cells"]["model"]["value"]
        if row["kind"] == "group":
            current = under.setdefault(name, [])
        else:
            current.append(name)
    assert set(under["acme"]) == {"acme/tiny-base", "acme/tiny-large"}
    assert sorted(name for some in under.values() for name in some) == sorted(models())


def test_scores_on_other_data_are_marked_and_counted_when_asked() -> None:
    listed = suites()["mteb-MTEB-kor-v1"]
    key = f"task:{listed.suite.columns[0].name}"
    for revisions, complete in (("pinned", 0), ("any", 1)):
        found = asked("/suites/mteb-MTEB-kor-v1", revisions=revisions)
        (row,) = [r for r in found["tables"][0]["rows"] if r["cells"]["model"]["value"] == "acme/tiny-large"]
        assert "other" in row["cells"][key]["kind"].split()
        assert found["data"]["rows_complete"] == complete
        assert any("not comparable" in n or "other texts" in n for n in found["notes"]) == (
            revisions == "any"
        )


def test_what_a_model_was_trained_on_is_marked() -> None:
    (row,) = [r for r in rows() if r["cells"]["model"]["value"] == "acme/tiny-large"]
    marked = [key for key, cell in row["cells"].items() if "leak" in cell.get("kind", "").split()]
    assert marked == [f"task:{NANO[0]}"]
    assert row["cells"]["unseen"]["value"] == pytest.approx(1 - 1 / len(NANO))


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
        text = Parsed(TestClient(standard_app()).get(f"/suites/{slug}", headers={"accept": "text/html"}).text)
        plain = " ".join(text.text.split())
        assert all(KINDS[kind] in plain for kind in used), slug


def test_a_paper_has_no_rank_and_no_mark() -> None:
    found = [row for row in asked("/suites/glue", rows="all")["tables"][0]["rows"]
             if row["cells"].get("origin", {}).get("value") == "reported"]  # fmt: skip
    assert len(found) > 5
    for row in found:
        assert "rank" not in row["cells"]
        kinds = {k for cell in row["cells"].values() for k in cell.get("kind", "").split()}
        assert not kinds & {"best", "second"}


@pytest.mark.parametrize("query", [{"type": "Nothing"}, {"sort": "nothing"}, {"view": "nothing"}])
def test_names_that_are_none(query: dict[str, str]) -> None:
    answer = TestClient(standard_app()).get(f"{PATH}.json", params=query)
    assert answer.status_code == 404
    assert "nothing" in answer.json()["error"]["message"].casefold()
