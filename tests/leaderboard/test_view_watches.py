"""The pages of watches: how far each is, its curve, and every checkpoint."""

from __future__ import annotations

import copy
import json
import math
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from starlette.testclient import TestClient

import site_data
from harness.watch import state
from html_pages import Html
from judged_data import checkpoint, small_watch
from leaderboard.pages.watch.values import values_of
from site_data import HOSTILE, Parsed

BROWSER = {"accept": "text/html"}
PATH = "/watch/base-run"


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    with TestClient(site_data.small_app(tmp_path_factory.mktemp("watches"))) as found:
        yield found


def opened(folder: Path) -> TestClient:
    """A site over watches alone."""
    return TestClient(site_data.small_app(folder, lambda _: None))


def page(client: TestClient, path: str) -> Html:
    answer = client.get(path, headers=BROWSER)
    assert answer.status_code == 200, answer.text
    assert Parsed(answer.text).wrong == []
    return Html(answer.text)


def drawn(client: TestClient, path: str) -> ElementTree.Element:
    """The picture of a page."""
    text = client.get(path, headers=BROWSER).text
    return ElementTree.fromstring(text[text.index("<svg xmlns") : text.rindex("</svg>") + 6])


def of(svg: ElementTree.Element, kind: str) -> list[ElementTree.Element]:
    return [element for element in svg.iter() if kind in element.get("class", "").split()]


def told(svg: ElementTree.Element) -> list[str]:
    """The tooltips of the points."""
    return [e.text or "" for e in svg.iter() if e.tag.endswith("title") and (e.text or "").startswith("step")]


def test_the_list_says_how_far_each_is(client: TestClient) -> None:
    *_, head, row = page(client, "/watches").texts("watches")
    found = dict(zip(head, row, strict=True))
    assert (found["Watch"], found["What is watched"], found["Suite"]) == (
        "base-run",
        "/runs/base",
        "nanobeir",
    )
    assert [found[name] for name in ("done", "partial", "waiting", "failed")] == ["11", "1", "1", "1"]
    assert [found[name] for name in ("Last step", "Its mean", "Best mean")] == ["12,000", "37.00", "38.10"]
    assert found["Drops at step"] == "8,000"
    (twin,) = client.get("/watches.json").json()["tables"][0]["rows"]
    assert (twin["cells"]["best"]["value"], twin["cells"]["best"]["note"]) == (0.381, "at step 7,000")


def test_the_curve_joins_what_is_comparable(client: TestClient) -> None:
    """Eleven of fourteen have a mean, one of them measured otherwise; an incomplete one is an outline."""
    svg = drawn(client, PATH)
    (line,) = of(svg, "plot-line")
    (path,) = line
    assert path.get("d", "").count("L") + 1 == 10
    assert len(of(svg, "plot-hollow")) == 2
    assert len(of(svg, "plot-point")) == 12
    by_step = {text.partition(":")[0]: text for text in told(svg)}
    assert "mean × 100 31" in by_step["step11000"]
    assert "1 of 2 columns" in by_step["step11000"]
    assert "measured in another way" in by_step["step1000"]
    assert "mean × 100 38.1" in by_step["step7000"]
    (mark,) = of(svg, "plot-mark")
    places = [float(e[0].get("cx", "")) for e in of(svg, "plot-point") if e[0].get("cx")]
    before, after = places[6], places[7]  # of 7,000 and 9,000: the drop between them has another marker
    assert float(mark.get("x1", "")) == pytest.approx((before + after) / 2, abs=0.02)
    assert "−3.40" in [e.text for e in svg.iter()]


def test_the_curve_of_a_task(client: TestClient) -> None:
    svg = drawn(client, f"{PATH}?task=NFCorpus")
    assert len(of(svg, "plot-point")) == 12
    assert len(of(svg, "plot-hollow")) == 1  # measured otherwise; a task's score is whole by itself
    assert of(svg, "plot-mark") == []
    assert "step2000: score × 100 23 · step 2000 · checkpoint" in told(svg)
    found = page(client, f"{PATH}?task=NFCorpus")
    assert "NFCorpus" in found.texts("checkpoints")[0]
    twin = client.get(f"{PATH}.json?task=NFCorpus").json()
    values = {point["step"]: point["value"] for point in twin["data"]["points"]}
    assert values[2000] == pytest.approx(0.23)
    assert values[13000] is None


def test_steps_by_their_logarithm(client: TestClient) -> None:
    xs = [
        float(e[0].get("cx", "nan"))
        for e in of(drawn(client, f"{PATH}?scale=log"), "plot-point")
        if e[0].get("cx")
    ]
    steps = [1000 * n for n in (1, 2, 3, 4)]
    assert [(x - xs[0]) / (xs[1] - xs[0]) for x in xs[:4]] == pytest.approx(
        [math.log(step / 1000) / math.log(2) for step in steps], abs=0.01
    )


def test_every_checkpoint_with_its_reason(client: TestClient) -> None:
    head, *body = page(client, PATH).texts("checkpoints")
    found = {row[0]: dict(zip(head, row, strict=True)) for row in body}
    assert list(found)[:2] == ["step14000", "step13000"]
    assert found["step13000"]["State"] == "failed"
    assert found["step13000"]["Why"] == "SciFact: <b>no</b> data"
    assert found["step14000"]["Why"] == "it changed 3 s ago"
    assert (found["step11000"]["Columns"], found["step11000"]["of"]) == ("1", "2")
    assert found["step8000"]["Drop of the level"] == "−3.40"
    assert found["step1000"]["Why"] == "measured in another way than the newest one"
    assert found["step5000"]["Mean"] == "36.00"


def test_a_checkpoint_leads_to_its_model(client: TestClient) -> None:
    entries = {e.artifact: e for e in client.app.state.site.queries.entries.values()}  # type: ignore[attr-defined]
    entry = entries["a" * 64]
    rows = client.get(f"{PATH}.json").json()["tables"][0]["rows"]
    hrefs = {row["key"]: row["cells"]["name"].get("href") for row in rows}
    assert hrefs["step12000"] == f"/models/{entry.model_slug}?entry={entry.slug}"
    assert hrefs["step5000"] is None
    page(client, hrefs["step12000"])


def test_the_twin_holds_the_state(client: TestClient) -> None:
    twin = client.get(f"{PATH}.json").json()
    assert twin["data"]["watch"] == json.loads(small_watch().to_json())
    lines = client.get(f"{PATH}.csv").text.splitlines()
    assert len(lines) == 15


def test_a_task_that_is_none_is_said(client: TestClient) -> None:
    answer = client.get(f"{PATH}?task=NFCorpsu", headers=BROWSER)
    assert answer.status_code == 404
    assert "NFCorpus" in answer.text


def test_values_are_of_the_newest_treatment() -> None:
    points = [checkpoint(1000, 0.1, treatment="old"), checkpoint(2000, 0.2), checkpoint(3000, 0.3)]
    watch = small_watch().model_copy(update={"checkpoints": tuple(points)})
    assert [bool(value.apart) for value in values_of(watch)] == [True, False, False]
    newest = [points[0].model_copy(update={"evaluated": "2027"}), *points[1:]]
    watch = watch.model_copy(update={"checkpoints": tuple(newest)})
    assert [bool(value.apart) for value in values_of(watch)] == [False, True, True]


def test_a_watch_goes_on(tmp_path: Path) -> None:
    results = tmp_path / "results"
    watch = small_watch("run.1").model_copy(update={"checkpoints": (), "change_points": ()})
    state.write(results, watch)
    client = opened(tmp_path)
    assert "/watches" in {a.get("href") for a in page(client, "/").named("a")}
    assert "No checkpoint was seen yet." in page(client, "/watch/run.1").text
    assert page(client, "/watches").texts("watches")[-1][0] == "run.1"
    state.write(results, watch.with_entry(checkpoint(1000, 0.5)))
    client.app.state.site.refresh()  # type: ignore[attr-defined]
    assert "step1000" in page(client, "/watch/run.1").text


def test_a_long_run(tmp_path: Path) -> None:
    """Of many checkpoints the line has all, the table a page, and markers stand where something is."""
    some = tuple(checkpoint(1000 * at, 0.3, evaluated="2026") for at in range(1, 701))
    drop = state.ChangePoint(step=300_000, last=300_000, kind="drop", size=0.01, p=0.001)
    watch = small_watch().model_copy(update={"checkpoints": some, "change_points": (drop,)})
    state.write(tmp_path / "results", watch)
    client = opened(tmp_path)
    svg = drawn(client, PATH)
    assert len(of(svg, "plot-point")) == 3
    assert (of(svg, "plot-line")[0][0].get("d") or "").count("L") == 699
    assert len(page(client, PATH).texts("checkpoints")) == 51
    assert page(client, f"{PATH}?page=14").texts("checkpoints")[-1][0] == "step1000"
    assert len(client.get(f"{PATH}.csv").text.splitlines()) == 701


def test_damaged_and_odd_watches(tmp_path: Path) -> None:
    """Any part of a watch becomes something else: it is shown or left out, and every page answers."""
    draw, folder = random.Random(3), tmp_path / "results" / "watches"
    folder.mkdir(parents=True)
    whole = json.loads(small_watch().to_json())
    odd: list[Any] = [None, "", HOSTILE, -1, 10**400, 1e308, float("nan"), float("inf"), [], {}, "\x00", 0]
    for number in range(150):
        changed = copy.deepcopy(whole)
        part: Any = changed
        while True:
            key = draw.choice(list(part) if isinstance(part, dict) else range(len(part)))
            if not isinstance(part[key], dict | list) or not part[key] or draw.random() < 0.1:
                break
            part = part[key]
        part[key] = draw.choice(odd)
        (folder / f"w{number}.json").write_text(json.dumps(changed))
    for number, content in enumerate((b"", b"{", b"[]", b"null", b'{"schema": 7}', b"\xff")):
        (folder / f"x{number}.json").write_bytes(content)
    (folder / "no name.json").write_text(small_watch().to_json())
    client = opened(tmp_path)
    shown = list(client.app.state.site.queries.watches)  # type: ignore[attr-defined]
    assert 20 < len(shown) < 150
    assert all(name.startswith("w") for name in shown)
    for path in ("/watches", *(f"/watch/{name}" for name in shown)):
        assert "<script>alert" not in client.get(path, headers=BROWSER).text
        page(client, path)
        for form in ("json", "csv", "md", "tex"):
            assert client.get(f"{path}.{form}").status_code == 200, path
