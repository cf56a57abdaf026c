"""The page of trade-offs: the frontier, what is never on it, speed, cost, and printed compute."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

import site_data
from every_kind import build_note
from harness.core.keys import ParentPart, digest
from harness.results.audit import find_contradictions
from harness.results.notes import NOTES
from harness.results.reported import Paper, PaperTable, PaperValue
from harness.storage.record import TaskPart
from html_pages import Html, ask, figures, find_values, page, printed
from leaderboard.views.reproductions import read_aliases
from site_data import HOSTILE, Import

Json = dict[str, Any]

GPU, CPU = {"kind": "cuda", "name": "H100"}, {"kind": "cpu", "name": "AMD EPYC"}
COUNT = 40


def many(seed: int = 7) -> list[Import]:
    """Models of all sizes, some alike, the longer their input the worse; the last of each ten lacks tasks."""
    draw, tasks = random.Random(seed), site_data.names("nanobeir")
    found = []
    for number in range(COUNT):
        card: Json = {
            "card": True, "n_parameters": draw.choice([5, 20, 80, 300, 900]) * 1_000_000,
            "embed_dim": draw.choice([128, 384, 768]), "max_tokens": draw.choice([128, 512, 8192]),
            "release_date": f"20{draw.randrange(20, 26)}-0{draw.randrange(1, 9)}-11",
        }  # fmt: skip
        bonus = {128: 0.3, 512: 0.1, 8192: 0.0}[card["max_tokens"]]
        scores = site_data.spread_scores(tasks, round(bonus + draw.uniform(0.2, 0.5), 2))
        if number % 10 == 9:
            scores = {tasks[0]: 0.99}
        found.append(Import(model=f"acme/m{number}", scores=scores, card=card))
    return found


def timed(name: str, letter: str, device: Json, tasks: list[str], seconds: float, tokens: int) -> Any:
    """A measured model's records, each with its seconds and tokens."""
    model = site_data.measured_model(name, letter)
    base = site_data.spread_scores(tasks, 0.5)
    took = {"load": 1.0, "encode": seconds, "score": 2.0}
    records = []
    for task, score in base.items():
        record = site_data.scored(model, task, score)
        more = {"device": device, "seconds": took, "tokens_encoded": tokens}
        records.append(record.model_copy(update={"provenance": {**record.provenance, **more}}))
    return model, records


def fill(folder: Path) -> None:
    (folder / "results").mkdir(parents=True, exist_ok=True)
    hostile = {"card": True, "n_parameters": 1_000_000}
    tasks = site_data.names("nanobeir")
    odd = Import(model=HOSTILE, scores=site_data.spread_scores(tasks, 0.3), card=hostile)
    site_data.put_imports(folder / "results", [*many(), odd])
    for name, letter, device, seconds, tokens in (
        ("fast", "a", GPU, 2.0, 1000),
        ("slow", "b", GPU, 8.0, 1000),
        ("context", "c", CPU, 100.0, 1000),
    ):
        model, records = timed(name, letter, device, tasks, seconds, tokens)
        site_data.put(folder / "results", model, records)


def read(client: TestClient, query: str = "") -> Json:
    return ask(client, f"/pareto?suite=nanobeir&rows=all&{query}")


def undominated(points: list[Json], better: str) -> set[str]:
    """The frontier by its definition: every point against every other."""

    def beats(one: Json, other: Json) -> bool:
        across = one["x"] <= other["x"] if better == "lower" else one["x"] >= other["x"]
        same = (one["x"], one["score"]) == (other["x"], other["score"])
        return bool(across and one["score"] >= other["score"] and not same)

    return {p["model"] for p in points if not any(beats(other, p) for other in points)}


@pytest.mark.parametrize(
    ("x", "better"),
    [("parameters", "lower"), ("dimension", "lower"), ("tokens", "higher"), ("date", "lower")],
)
def test_the_frontier_is_what_nothing_beats(client: TestClient, x: str, better: str) -> None:
    document = read(client, f"x={x}")
    points = find_values(document, "points")
    assert {p["there"] for p in points} == {13}
    best = find_values(document, "frontier")
    assert {p["model"] for p in best} == undominated(points, better)
    assert len(best) > 1
    assert [p["x"] for p in best] == sorted(p["x"] for p in best)
    assert [p["score"] for p in points] == sorted((p["score"] for p in points), reverse=True)


@pytest.mark.parametrize(("x", "better"), [("parameters", "lower"), ("tokens", "higher")])
def test_each_other_point_is_beaten_by_one_of_the_frontier(client: TestClient, x: str, better: str) -> None:
    document = read(client, f"x={x}")
    points = {p["model"]: p for p in find_values(document, "points")}
    best = {p["model"] for p in find_values(document, "frontier")}
    for name, point in points.items():
        other = point.get("beaten")
        assert (name in best) == (other == "on the frontier")
        if name not in best:
            assert other in best
            across = sorted([points[other]["x"], point["x"]], reverse=better == "higher")
            assert across[0] == points[other]["x"]
            assert points[other]["score"] >= point["score"]


def test_a_name_changes_no_frontier(client: TestClient) -> None:
    whole = {p["model"]: p for p in find_values(read(client), "points")}
    named = find_values(read(client, "q=acme/m1"), "points")
    assert 1 < len(named) < len(whole)
    assert named == [p for name, p in whole.items() if name.startswith("acme/m1")]
    assert find_values(read(client, "q=acme/m1"), "frontier") == find_values(read(client), "frontier")
    *_, line = figure_of(client, "q=acme/m1")["data"]
    assert line["y"] == figure_of(client, "")["data"][-1]["y"], "the line is that of all names"


def test_a_name_is_told_where_it_stands(client: TestClient) -> None:
    points = {p["model"]: p for p in find_values(read(client), "points")}
    named = points["acme/m10"]
    rivals = [p["score"] for p in points.values() if p["x"] <= named["x"] and p is not named]
    above = sum(score > named["score"] for score in rivals) or "none"
    lead = read(client, "q=acme/m10")["lead"]
    verb = "has" if above in (1, "none") else "have"
    assert lead.endswith(f"of the {len(rivals)} others with no more of it, {above} {verb} a higher score.")
    least = min(points.values(), key=lambda p: p["x"])["model"]
    assert read(client, f"q={least}")["lead"].endswith("there is no other with no more of it.")
    assert "of the" not in read(client)["lead"]


def test_the_gain_is_the_step_to_the_neighbour(client: TestClient) -> None:
    for query in ("", "x=tokens"):
        best = find_values(read(client, query), "frontier")
        ordered = sorted(best, key=lambda p: p["score"])
        gains = [p.get("step") for p in ordered]
        assert gains[0] in (None, "")
        for low, high, gain in zip(ordered, ordered[1:], gains[1:], strict=False):
            assert gain == pytest.approx(high["score"] - low["score"], abs=0.011)


def figure_of(client: TestClient, query: str) -> Json:
    (figure,) = figures(client, f"/pareto?suite=nanobeir&rows=all&{query}")
    return figure  # type: ignore[no-any-return]


def test_what_is_incomplete_is_hollow_and_never_on_the_frontier(client: TestClient) -> None:
    whole, document = read(client), read(client, "part=1")
    lacking = {f"acme/m{n}" for n in range(9, COUNT, 10)}
    assert not lacking & {p["model"] for p in find_values(whole, "points")}
    assert lacking <= {p["model"] for p in find_values(document, "points")}
    assert find_values(document, "frontier") == find_values(whole, "frontier")
    assert max(p["score"] for p in find_values(document, "points")) == 99
    assert find_values(document, "points")[0]["there"] == 13, "incomplete ones come last"
    for query, hollow in (("part=1", lacking), ("", set())):
        data = figure_of(client, query)["data"]
        assert {
            text.removeprefix("<b>").partition("</b>")[0]
            for trace in data[:-1]
            for text, symbol in zip(trace["hovertext"], trace["marker"]["symbol"], strict=True)
            if symbol.endswith("-open")
        } == hollow
    assert f"a part of the tasks only: {len(lacking)}." in page(client, "/pareto?suite=nanobeir").text


def test_a_model_with_some_tasks_is_compared_over_these(client: TestClient) -> None:
    task, models = site_data.names("nanobeir")[0], {one.model: one for one in many()}
    document = read(client, "q=acme/m9")
    (point,) = find_values(document, "points")
    assert (point["model"], point["score"]) == ("acme/m9", 99)
    assert document["data"]["y"]["label"] == "mean over its one task"
    size = models["acme/m9"].card["n_parameters"]
    beaten = [m for m, one in models.items() if one.card["n_parameters"] < size and one.scores[task] >= 0.99]
    best = {p["model"]: p["score"] for p in find_values(document, "frontier")}
    assert {m: 100 * models[m].scores[task] for m in best if m in models} == pytest.approx(
        {m: score for m, score in best.items() if m in models}
    )
    assert ("acme/m9" in best) == (not beaten)
    assert "NanoBEIR, 1 of 13 tasks: 1 model" in document["lead"]
    assert any("compared over the tasks that each of these has" in note for note in document["notes"])


def test_models_with_unlike_tasks_are_compared_over_those_that_both_have(tmp_path: Path) -> None:
    first, second, third = site_data.names("nanobeir")[:3]
    parts = {"acme/part-a": {first: 0.4, second: 0.9}, "acme/part-b": {first: 0.6, third: 0.1}}

    def fill_parts(folder: Path) -> None:
        some = [replace(many()[0], model=model, scores=scores) for model, scores in parts.items()]
        site_data.put_imports(folder / "results", [*some, many()[1]])

    client = TestClient(site_data.small_app(tmp_path, fill_parts))
    document = read(client, "q=part-")
    assert {p["model"]: p["score"] for p in find_values(document, "points")} == {
        "acme/part-a": 40, "acme/part-b": 60
    }  # fmt: skip
    assert document["data"]["y"]["label"] == "mean over its one task"


@pytest.mark.parametrize("x", ["parameters", "tokens"])
def test_incomplete_points_alone_have_no_frontier(tmp_path: Path, x: str) -> None:
    def fill_incomplete(folder: Path) -> None:
        site_data.put_imports(folder / "results", [many()[9]])

    document = read(TestClient(site_data.small_app(tmp_path, fill_incomplete)), f"x={x}&part=1")
    assert [p["model"] for p in find_values(document, "points")] == ["acme/m9"]
    assert find_values(document, "frontier") == []


def test_the_plot_holds_the_points_of_the_table(client: TestClient) -> None:
    found = figure_of(client, "part=1")
    *groups, line = found["data"]
    places = {
        (href, x, round(y, 2))
        for one in groups
        for href, x, y in zip(one["customdata"], one["x"], one["y"], strict=True)
    }
    listed = find_values(read(client, "part=1"), "points")
    assert len(places) == len(listed)
    assert {place[1:] for place in places} == {(p["x"], p["score"]) for p in listed}
    assert {one["name"] for one in groups} == {"imported", "measured"}
    assert (found["layout"]["xaxis"]["type"], line["name"]) == ("log", "frontier")


def test_the_axis_is_what_was_asked_for(client: TestClient) -> None:
    scales = {
        query: read(client, query)["data"]["x"]["scale"]
        for query in ("", "scale=linear", "x=dimension", "x=dimension&scale=log", "x=date&scale=log")
    }
    assert list(scales.values()) == ["log", "linear", "linear", "log", "date"]


def test_scores_of_a_task_and_of_a_type(client: TestClient) -> None:
    first = site_data.names("nanobeir")[0]
    given = {one.model: one.scores for one in many()}
    for name, score in (
        (p["model"], p["score"]) for p in find_values(read(client, f"y=task:{first}"), "points")
    ):
        if name in given:
            assert score == printed(given[name][first])
    means = {p["model"]: p["score"] for p in find_values(read(client), "points")}
    assert means["acme/m0"] == printed(sum(given["acme/m0"].values()) / 13)


def test_throughput_is_of_one_device(client: TestClient) -> None:
    document = read(client, "x=throughput")
    assert {p["model"]: p["x"] for p in find_values(document, "points")} == {"fast": 500, "slow": 125}
    assert [p["model"] for p in find_values(document, "frontier")] == ["fast"]
    assert "AMD EPYC" in " ".join(document["notes"])
    other = read(client, "x=throughput&device=AMD EPYC")
    assert {p["model"]: p["x"] for p in find_values(other, "points")} == {"context": 10}
    gone = read(client, "x=throughput&device=TPU")
    assert "Nothing was measured on TPU." in gone["notes"]


def test_a_cost_is_seconds_times_the_price(client: TestClient) -> None:
    document = read(client, "x=cost&price=3.6")
    cost = {p["model"]: p["x"] for p in find_values(document, "points")}
    assert cost == {"fast": pytest.approx(13 * 5 * 0.001), "slow": pytest.approx(13 * 11 * 0.001)}
    for query in ("x=cost", "x=cost&price="):
        assert "Give the price of an hour" in page(client, f"/pareto?suite=nanobeir&{query}").text
    assert client.get("/pareto?x=cost&price=-1").status_code == 422
    assert client.get("/pareto?x=cost&price=inf").status_code == 422


def test_printed_compute_makes_points_of_its_own(client: TestClient) -> None:
    document = ask(client, "/pareto?suite=mteb&x=flops&rows=all")
    points = find_values(document, "points")
    assert len(points) == 11
    assert {p["origin"] for p in points} == {"reported"}
    largest = next(p for p in points if p["model"].startswith("OptiBERT_239M"))
    assert largest["x"] == 70, "in the unit of the head, 10¹⁸ FLOP"
    types = ask(client, "/pareto?suite=mteb&x=flops&y=types")
    means = {p["model"]: p["score"] for p in find_values(types, "points")}
    assert means[largest["model"]] == 51.53
    one = ask(client, "/pareto?suite=mteb&x=flops&y=type:STS")
    assert find_values(one, "frontier")
    html = client.get("/pareto?suite=mteb&x=flops").text
    assert 'href="/papers/optibert#table-5"' in html
    assert "were not measured here" in html
    small = ask(client, "/pareto?suite=mteb&x=flops&size=small")
    assert {p["model"].partition(" ")[0] for p in find_values(small, "points")} == {
        "OptiBERT_17M", "OptiBERT_28M",
    }  # with embeddings, which its 38M are without  # fmt: skip


def test_printed_lines_stand_against_size_and_operations(client: TestClient) -> None:
    documents = {
        x: ask(client, f"/pareto?suite=glue&x={x}&rows=all") for x in ("parameters", "without", "operations")
    }
    points = {x: find_values(one, "points") for x, one in documents.items()}
    assert {p["origin"] for some in points.values() for p in some} == {"reported"}
    base = {x: next(p for p in some if p["model"] == "ModernBERT large") for x, some in points.items()}
    assert {p["score"] for p in base.values()} == {90.47}
    # Two papers print this line; it is one point.
    assert sum(p["score"] == 90.47 for p in points["parameters"]) == 1
    assert "were not measured here" in " ".join(documents["parameters"]["notes"])
    assert 'href="/pareto?suite=glue&amp;x=operations"' in client.get("/backbones").text


@pytest.mark.parametrize(
    ("query", "says"),
    [
        ("suite=nanobeir&x=flops", "no paper at hand prints it beside this score"),
        ("suite=glue&x=throughput", "hold how fast a model encoded"),
        ("suite=glue&x=cost&price=1", "hold the seconds that a cost is made of"),
        ("suite=nanobeir&x=date&q=slow", "The release date of what passes these filters is not known."),
        ("suite=nanobeir&q=nobody", "No model that passes these filters has both values."),
        ("suite=nanobeir&origin=reported", "No model that passes these filters has both values."),
    ],
)
def test_an_empty_plot_says_why(client: TestClient, query: str, says: str) -> None:
    answer = client.get(f"/pareto?{query}")
    assert answer.status_code == 200
    assert says in Html(answer.text).text
    assert 'class="plane"' not in answer.text
    assert ask(client, f"/pareto?{query}")["tables"] == []


def test_a_name_that_is_none_is_told_with_the_nearest(client: TestClient) -> None:
    for query, near in (
        ("suite=nanobeer", "nanobeir"),
        ("suite=nanobeir&y=task:NanoArguAna", "task:NanoArguAnaRetrieval"),
        ("suite=glue&view=optbert", "optibert"),
    ):
        answer = client.get(f"/pareto?{query}")
        assert answer.status_code == 404
        assert near in answer.text
    assert client.get("/pareto?x=price").status_code == 422


def test_the_page_is_safe_and_its_scripts_are_files(client: TestClient) -> None:
    answer = client.get("/pareto?suite=nanobeir&rows=all")
    found = Html(answer.text)
    assert "<script>alert" not in answer.text
    assert any(row[0].startswith("../evil/<script>alert('x')") for row in found.texts("points"))
    assert not any("style" in attributes for _, attributes in found.tags)
    assert all(a.get("src", "").startswith("/static/") for a in found.named("script"))
    assert "unsafe-inline" not in answer.headers["content-security-policy"]


def test_points_come_in_pages_and_the_form_keeps_its_state(client: TestClient) -> None:
    found = page(client, "/pareto?suite=nanobeir&rows=25&theme=dark&x=tokens&q=acme")
    assert len(found.texts("points")) == 26
    hidden = {(a["name"], a["value"]) for a in found.named("input") if a.get("type") == "hidden"}
    assert {("rows", "25"), ("theme", "dark")} <= hidden
    links = [a["href"] for a in found.named("a") if "page=2" in a.get("href", "")]
    assert links
    assert all("x=tokens" in href and "q=acme" in href and "suite=nanobeir" in href for href in links)
    second = Html(client.get(links[0]).text)
    assert second.texts("points")[1] not in found.texts("points")


def test_each_treatment_is_a_point_where_that_is_asked_for(client: TestClient, tmp_path: Path) -> None:
    def two(folder: Path) -> None:
        tasks = site_data.names("nanobeir")
        card = {"card": True, "n_parameters": 1_000_000}
        entries = [
            Import(model="acme/m", revision=c * 40, scores=site_data.spread_scores(tasks, base), card=card)
            for c, base in (("a", 0.2), ("b", 0.3))
        ]
        (folder / "results").mkdir()
        site_data.put_imports(folder / "results", entries)

    with TestClient(site_data.small_app(tmp_path, two)) as own:
        assert len(find_values(read(own), "points")) == 1
        assert len(find_values(read(own, "each=revision"), "points")) == 2


ODD: list[Any] = [
    None, True, -1, 1e300, "much", "", [], [1, "x"], {}, {"encode": "1"}, {"encode": None}, {"encode": -3.0},
    {"encode": [1]}, {"encode": {"a": 1}}, {"encode": True}, {"": 0},
]  # fmt: skip
SAID = (
    "seconds", "device", "tokens_encoded", "tokens_per_second", "texts", "written", "notes", "packages",
    "peak_memory_bytes", "commit", "harness", "prompts_asked", "gate",
)  # fmt: skip


def oddly(tasks: list[str]) -> Iterator[tuple[Any, list[Any]]]:
    """Models, each with one field of the provenance, which is another odd value on each task."""
    for number, (said, letter) in enumerate(zip(SAID, "0123456789def", strict=True)):
        model, records = timed(f"odd-{number}", letter, GPU, tasks, 2.0, 1000)
        yield (
            model,
            [
                record.model_copy(update={"provenance": {**record.provenance, said: ODD[at % len(ODD)]}})
                for at, record in enumerate(records, 7 * number)
            ],
        )


def drawn(asking: TestClient) -> Json:
    """The document by throughput, once every page of speed and cost was looked at."""
    for query in ("x=throughput", "x=cost&price=2", "x=throughput&device=H100", "x=parameters"):
        for path in ("/pareto", "/pareto.json"):
            answer = asking.get(f"{path}?suite=nanobeir&{query}")
            assert answer.status_code == 200, (path, query)
    found: Json = asking.get("/pareto.json?suite=nanobeir&rows=all&x=throughput").json()
    return found


def test_no_provenance_in_a_folder_takes_the_page_down(tmp_path: Path) -> None:
    """Others write to these folders as well."""

    def fill_oddly(folder: Path) -> None:
        fill(folder)
        for model, records in oddly(site_data.names("nanobeir")):
            site_data.put(folder / "results", model, records)

    document = drawn(TestClient(site_data.small_app(tmp_path, fill_oddly)))
    speeds = {row["model"]: row["x"] for row in find_values(document, "points")}
    assert (speeds["fast"], speeds["slow"]) == (500, 125)
    assert all(speed > 0 for speed in speeds.values())


@pytest.mark.slow
def test_no_provenance_that_a_strict_audit_passes_takes_the_site_down(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = site_data.small_app(tmp_path, fill)
    monkeypatch.setattr(app.state.limits, "enforce", lambda client: None)
    asking, counts = TestClient(app), Counter[bool]()
    for model, records in oddly(site_data.names("nanobeir")):
        passed = [r for r in records if not [*find_contradictions(r, r.to_json().encode())]]
        counts.update({True: len(passed), False: len(records) - len(passed)})
        site_data.put(tmp_path / "results", model, passed)
    assert min(counts[True], counts[False]) > 40
    app.state.site.refresh()
    drawn(asking)
    site = app.state.site
    measured = [entry for entry in site.queries.entries.values() if entry.origin == "measured"]
    assert len(measured) > 10
    pages = [f"/models/{entry.model_slug}" for entry in measured]
    pages += [f"/results/{row.id}" for row in site.queries.find_results() if row.key]
    for path in ["/", "/suites/nanobeir", *pages]:
        assert asking.get(path).status_code == 200, path


def test_a_printed_share_is_not_divided_again(tmp_path: Path) -> None:
    def build_paper(unit: str, value: str) -> Paper:
        row = PaperValue(
            paper="p", table="t", model="m", size_class="", params="1B", setting="C=1e20", suite="GLUE dev",
            metric="CoLA", value=value, ci_low="", ci_high="", unit=unit, note="",
        )  # fmt: skip
        table = PaperTable(id="t", caption="", rows=[row])
        return Paper(slug="p", name="P", title="", year=2026, authors="", arxiv="", tables={"t": table})

    for unit, value in (("fraction", "0.613"), ("score x100", "61.3")):
        app = site_data.small_app(tmp_path / unit, fill)
        app.state.site.papers = {"p": build_paper(unit, value)}
        (point,) = find_values(ask(TestClient(app), "/pareto?suite=glue&x=flops&y=task:CoLA"), "points")
        assert (point["x"], point["score"]) == (100, pytest.approx(61.3))


MINILM = "nreimers/MiniLM-L6-H384-uncased"


def test_what_is_stated_and_what_shapes_tell_are_axes(tmp_path: Path) -> None:
    """Of a backbone of the papers, one of another size under such a name, and one made of a noted model."""

    def fill_computed(folder: Path) -> None:
        fill(folder)
        results, tasks = folder / "results", site_data.names("nanobeir")
        # The second was cut from another one.
        for seed, name, letter, parameters in ((1, "child", "e", 22_713_216), (2, "cut", "9", 2_000_000)):
            note = build_note(letter * 64, tokens=1e9, hours=4)
            counted = note.counted.model_copy(update={"parameters": parameters})
            NOTES.write_document(results, note.weights, note.model_copy(update={"counted": counted}))
            made = site_data.made_of(seed, parents=(ParentPart(name="noted", artifact=note.weights),))
            site_data.put_model(results, name, made, site_data.spread_scores(tasks, 0.4))
        # Every fake model has the parameters of MiniLM, so that the second is no ModernBERT.
        for name, letter in ((MINILM, "d"), ("answerdotai/ModernBERT-base", "f")):
            model, scores = site_data.measured_model(name, letter), site_data.spread_scores(tasks, 0.6)
            site_data.put(results, model, [site_data.scored(model, task, s) for task, s in scores.items()])

    client = TestClient(site_data.small_app(tmp_path, fill_computed))

    def read_values(x: str) -> dict[str, float]:
        return {p["model"]: p["x"] for p in find_values(read(client, f"x={x}"), "points")}

    assert read_values("without") == {MINILM: 10_992_768, "child": 1_500_000}
    assert read_values("operations") == {MINILM: 13.29, "child": 3}
    assert read_values("flops") == {"child": 0.02, "cut": 0.02}
    (trace,) = (t for t in figure_of(client, "x=flops")["data"] if t["mode"] == "markers")
    assert trace["x"] == [0.02, 0.02]
    assert "is what users stated" in client.get("/pareto?suite=nanobeir&x=flops").text
    slug = next(e.model_slug for e in client.app.state.site.queries.entries.values() if e.model == "child")  # type: ignore[attr-defined]
    html = client.get(f"/models/{slug}").text
    assert "1B tokens in sequences of 512, 2e16 operations (F_N · D), 4 h on 1 × a device" in html
    assert "not measured" in html
    assert ask(client, f"/models/{slug}")["data"]["facts"]["pretraining"]["operations"] == 2e16


def test_weights_of_a_known_model_have_its_operations(tmp_path: Path) -> None:
    weights, name = next(iter(read_aliases().items()))

    def fill_alias(folder: Path) -> None:
        results, scores = folder / "results", site_data.spread_scores(site_data.names("nanobeir"), 0.5)
        site_data.put_imports(results, [Import(model=name, scores=scores)])
        own = replace(site_data.measured_model("mine", "d"), weights=weights)
        other = site_data.measured_model("all-MiniLM-L6-v2", "f")
        for model in (own, other):
            site_data.put(results, model, [site_data.scored(model, task, s) for task, s in scores.items()])

    own_client = TestClient(site_data.small_app(tmp_path, fill_alias))
    for x, value in (("operations", 13.29), ("without", 10_992_768)):
        points = find_values(read(own_client, f"x={x}&each=revision"), "points")
        assert {p["model"]: p["x"] for p in points} == dict.fromkeys((name, "mine"), value)
    html = own_client.get("/pareto?suite=nanobeir&x=operations&each=revision").text
    assert "is not known: 1 with this score. `harness models note`" in html


def test_measured_figures_of_machines_stand_apart(tmp_path: Path) -> None:
    """Of three machines: two of one name, one was busy. The newest, whole and stable figure counts."""
    tasks = site_data.names("nanobeir")

    def fill_measured(folder: Path) -> None:
        fill(folder)
        for name, power, rate, more in (
            ("fast", 700, 9e5, {}),
            ("slow", 700, 3e5, {}),
            ("fast", 350, 1e5, {}),
            ("slow", 350, 2e5, {}),
            *(("fast", 700, 4e5 + seed, {"seed": seed}) for seed in range(4)),
            ("fast", 700, 5e5, {"limit": 3}),
            ("fast", 700, 6e5, {"seed": 6}),
        ):
            unstable, written = rate == 6e5, "2020-01-01" if 4e5 <= rate < 5e5 else "2026-01-01"
            model, busy = site_data.measured_model(name, "a" if name == "fast" else "b"), rate == 2e5
            cell = {
                "main_score": rate,
                "tokens_per_second": rate,
                "peak_memory_bytes": 2e9,
                "latency_p50": 0.012,
            }
            cell |= {"busy": busy, "unstable": unstable}
            record = site_data.scored(model, tasks[0], rate)
            machine = {"device": {**GPU, "power_limit": f"{power} W"}, "packages": {}}
            identity = {**record.identity, "task": "Efficiency512", "machine": machine, **more}
            fields = {
                "task": TaskPart(name="Efficiency512", type="Efficiency", metric="tokens_per_second"),
                "identity": identity, "key": digest(identity), "scores": {"harness": {"fixed": cell}},
                "provenance": {**record.provenance, "written": written},
            }  # fmt: skip
            site_data.put(folder / "results", model, [record.model_copy(update=fields)])

    client = TestClient(site_data.small_app(tmp_path, fill_measured))
    document = read(client, "x=speed")
    assert {p["model"]: p["x"] for p in find_values(document, "points")} == {"fast": 9e5, "slow": 3e5}
    assert document["data"]["device"].startswith("Efficiency512 fixed, harness, float32, H100 (")
    html = client.get("/pareto?suite=nanobeir&x=speed").text
    assert "other records ran on Efficiency512 fixed, harness, float32, H100 (" in html
    assert {p["x"] for p in find_values(read(client, "x=memory"), "points")} == {2}
    assert {p["x"] for p in find_values(read(client, "x=latency"), "points")} == {12}
    # Its numbers are no shares of 1: no other page shows them.
    assert client.get("/tasks/Efficiency512").status_code == 404
    assert "Efficiency512" not in client.get("/tasks").text + client.get("/models/fast").text
