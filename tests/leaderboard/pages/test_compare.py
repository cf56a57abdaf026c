"""The page that puts entries side by side: like for like, ties, intervals, and why they differ."""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock
from urllib.parse import urlencode

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet
from scipy import stats
from sklearn.metrics import average_precision_score
from starlette.testclient import TestClient

import site_data
from harness.core.keys import Lineage
from harness.storage.record import ExamplesPart
from harness.storage.store import Store
from html_pages import BROWSER, Html, ask, figures, find_rows, find_values, list_entries, page
from leaderboard.views import comparison
from leaderboard.views.comparison import Common, iter_field_differences, load_common
from leaderboard.web.app import create_app
from leaderboard.web.site import Site
from site_data import HOSTILE, Import

NANO = site_data.names("nanobeir")
KOREAN = site_data.names("mteb-MTEB-kor-v1")


def shown(share: float) -> Any:
    """A share as tables print it: hundredths of 100."""
    return pytest.approx(100 * share, abs=0.00501)


def parsed(client: TestClient, query: Mapping[str, Any]) -> Html:
    return page(client, f"/compare?{urlencode(query, doseq=True)}")


def asked(client: TestClient, status: int = 200, **query: Any) -> Any:
    return ask(client, f"/compare?{urlencode(query, doseq=True)}", status)


def rows(page: Any, name: str) -> dict[str, dict[str, Any]]:
    """The rows of a table by their first cell, each as values."""
    return {str(next(iter(row.values()))): row for row in find_values(page, name)}


@pytest.fixture(scope="module")
def slugs(client: TestClient) -> dict[str, str]:
    found = list_entries(client)
    return {
        "minilm": found["minilm-ish", "measured"], "base": found["acme/tiny-base", "imported"],
        "large": found["acme/tiny-large", "imported"], "hostile": found[HOSTILE, "imported"],
        "glue": found["acme/tiny-base", "measured"],
    }  # fmt: skip


def site_of(folder: Path, *entries: Import) -> TestClient:
    def make(folder: Path) -> None:
        site_data.put_imports(folder / "results", list(entries))

    return TestClient(site_data.small_app(folder, make))


def test_a_model_goes_by_each_of_its_names(tmp_path: Path) -> None:
    """Of a copy in a folder too, which leads to the model that it is a copy of."""
    model, other = site_data.measured_model("minilm"), site_data.measured_model("org/other", "b")
    copy = replace(model, name="last-night", source="local")

    def make(folder: Path) -> None:
        for one, score in ((copy, 0.5), (other, 0.6)):
            site_data.put(folder / "results", one, [site_data.scored(one, NANO[0], score)])
        site_data.put(folder / "results", model, [site_data.scored(model, NANO[1], 0.5)])

    client = TestClient(site_data.small_app(tmp_path, make))
    for name in ("minilm", "last-night"):
        assert asked(client, m=[name, "other"])["title"] == "minilm and other"
        assert client.get(f"/models/{name}").url.path == "/models/minilm-aaaaaaaa"


def test_means_and_deltas_are_those_of_the_common_tasks(client: TestClient, slugs: dict[str, str]) -> None:
    document = asked(client, m=[slugs["base"], slugs["hostile"]])
    one, two = site_data.spread_scores(NANO, 0.52), site_data.spread_scores(NANO[:3], 0.4)
    assert document["data"]["suite"] == "nanobeir"
    assert list(rows(document, "tasks")) == NANO[:3]
    means = rows(document, "means")
    assert means["Over tasks"]["s0"] == shown(float(np.mean([one[name] for name in NANO[:3]])))
    assert means["Over tasks"]["s1"] == shown(float(np.mean(list(two.values()))))
    assert means["Own, over tasks"]["s0"] == shown(float(np.mean(list(one.values()))))
    assert means["Over tasks"]["of"] == "3 of the suite’s 13 tasks"
    assert means["Own, over tasks"]["of"] == "those that each has, of 13 tasks"
    for name, row in rows(document, "tasks").items():
        assert row["d1"] == shown(two[name] - one[name])
        assert row["best"] == "A tiny-base"


def test_what_only_some_have_is_listed_with_why(client: TestClient, slugs: dict[str, str]) -> None:
    document = asked(client, m=[slugs["base"], slugs["hostile"]])
    missing = rows(document, "missing")
    assert list(missing) == NANO[3:]
    assert missing[NANO[3]]["s0"] == shown(site_data.spread_scores(NANO, 0.52)[NANO[3]])
    row = find_rows(document, "missing")[0]["cells"]
    assert (row["s1"]["text"], row["s1"]["kind"]) == ("–", "none")


def test_the_interval_is_that_of_a_paired_t_test(tmp_path: Path) -> None:
    spread = np.random.default_rng(7).normal(0.01, 0.02, len(NANO))
    one = {name: round(float(0.5 + d), 6) for name, d in zip(NANO, spread, strict=True)}
    two = dict.fromkeys(NANO, 0.5)
    client = site_of(tmp_path, Import(model="a/one", scores=one), Import(model="a/two", scores=two))
    found = list_entries(client)
    document = asked(client, m=[found["a/one", "imported"], found["a/two", "imported"]])
    (pair,) = rows(document, "pairs").values()
    test = stats.ttest_rel(list(one.values()), list(two.values()))
    low, high = test.confidence_interval(0.95)
    assert pair["tasks"] == shown((low + high) / 2)
    assert pair["tasks_half"] == shown((high - low) / 2)
    assert ("higher" in pair["tasks_verdict"]) == (test.pvalue < 0.05)
    higher = sum(value > 0.5 for value in one.values())
    assert (pair["wins"], pair["losses"], pair["ties"]) == (higher, 13 - higher, 0)


def test_equal_entries_tie_everywhere_and_cannot_be_told_apart(tmp_path: Path) -> None:
    same = [Import(model=f"a/{name}", scores=dict.fromkeys(NANO, 0.5)) for name in ("one", "two", "three")]
    client = site_of(tmp_path, *same)
    document = asked(client, m=list(list_entries(client).values()))
    assert {row["ties"] for row in find_values(document, "pairs")} == {13}
    assert {row["tasks_verdict"] for row in find_values(document, "pairs")} == {"cannot be told apart"}
    assert {row["best"] for row in rows(document, "tasks").values()} == {"tie"}


@pytest.mark.parametrize("count", [1, 3, 5])
def test_few_common_tasks_give_no_interval_and_no_tie(tmp_path: Path, count: int) -> None:
    """By Student's interval over three tasks a random model would be level with a good one."""
    good = dict(zip(NANO[:count], [0.62, 0.71, 0.93, 0.5, 0.4], strict=False))
    random = dict(zip(NANO[:count], [0.05, 0.02, 0.30, 0.01, 0.03], strict=False))
    client = site_of(tmp_path, Import(model="a/good", scores=good), Import(model="a/random", scores=random))
    (pair,) = find_values(asked(client, m=list(list_entries(client).values())), "pairs")
    assert "tasks_half" not in pair
    assert (pair["ties"], pair["tasks_verdict"]) == (0, "too few tasks to say")


def put_queries(
    folder: Path, name: str, letter: str, scores: Mapping[str, np.ndarray], lineage: Lineage | None = None
) -> None:
    """A measured model whose records hold a score for each query."""
    model, store = site_data.measured_model(name, letter), Store(folder / "results")
    for task, values in scores.items():
        record = site_data.scored(model, task, float(values.mean()))
        ((split, subset),) = site_data.task(task).cells
        usual = {"split": split, "subset": subset, "replicate": 0, "prediction": "", "gold": ""}
        rows = [{**usual, "example_id": f"q{at}", "metric": one} for at, one in enumerate(values.tolist())]
        sink = io.BytesIO()
        parquet.write_table(pa.Table.from_pylist(rows), sink)
        part = ExamplesPart(file="", rows=len(rows), sha256="")
        store.put(
            model.slug, record.model_copy(update={"examples": part, "lineage": lineage}), sink.getvalue()
        )


def test_examples_decide_where_records_hold_them(tmp_path: Path) -> None:
    """On one task the queries tell two models apart and on two they do not, over three tasks."""
    draw = np.random.default_rng(5)
    one = {name: draw.uniform(0.3, 0.9, 200) for name in NANO[:3]}
    noise = {NANO[0]: draw.normal(0.1, 0.05, 200), NANO[1]: draw.normal(0, 0.2, 200)}
    two = {name: values - noise.get(name, np.zeros(200)) for name, values in one.items()}
    two[NANO[2]] = one[NANO[2]][::-1] + 1e-4

    def make(folder: Path) -> None:
        put_queries(folder, "one", "a", one)
        put_queries(folder, "two", "d", two)

    client = TestClient(site_data.small_app(tmp_path, make))
    document = asked(client, m=[list_entries(client)[name, "measured"] for name in ("one", "two")])
    differences = {name: one[name] - two[name] for name in one}
    apart = [name for name, gaps in differences.items() if stats.ttest_1samp(gaps, 0).pvalue < 0.05]
    assert apart == NANO[:1]
    assert [row["best"] for row in rows(document, "tasks").values()] == ["A one", "tie", "tie"]
    (pair,) = find_values(document, "pairs")
    assert (pair["wins"], pair["losses"], pair["ties"]) == (1, 0, 2)
    wide = 1.96 * np.sqrt(sum(np.var(gaps, ddof=1) / 200 for gaps in differences.values())) / 3
    assert pair["tasks_half"] == pytest.approx(100 * wide, rel=0.1)
    assert document["tables"][2]["rows"][0]["cells"]["tasks_half"]["note"].startswith(
        "It is made of the scores of the examples"
    )
    assert pair["tasks_verdict"] == "A one is higher"


def test_seeds_of_a_training_are_tested_together(tmp_path: Path) -> None:
    """The interval holds the spread of three seeds; the other side's single run is taken to vary alike."""
    draw = np.random.default_rng(5)
    one, lifts = draw.uniform(0.3, 0.6, 400), (0.05, 0.06, 0.07)
    noise = [draw.normal(0, 0.01, 400) for _ in lifts]
    noise = [values - values.mean() for values in noise]

    def make(folder: Path) -> None:
        put_queries(folder, "one", "a", {NANO[0]: one})
        for seed, lift, letter in zip(site_data.SEEDS, lifts, "def", strict=True):
            scores = {NANO[0]: one + lift + noise[seed - 1]}
            put_queries(folder, "one-simcse", letter, scores, site_data.made_of(seed))

    client = TestClient(site_data.small_app(tmp_path, make))
    site: Site = client.app.state.site  # type: ignore[attr-defined]
    chosen = [e.slug for e in site.queries.entries.values() if e.origin == "measured" and not e.member]
    assert len(chosen) == 2
    (pair,) = find_values(asked(client, m=chosen), "pairs")
    assert (abs(pair["tasks"]), pair["ties"]) == (6, 0)
    reach = 100 * stats.t.ppf(0.975, 2) * np.std(lifts, ddof=1) * np.sqrt(1 / 3 + 1)
    assert pair["tasks_half"] == pytest.approx(reach, rel=0.15)


def test_examples_of_other_queries_decide_nothing(tmp_path: Path) -> None:
    draw = np.random.default_rng(5)

    def make(folder: Path) -> None:
        put_queries(folder, "one", "a", {NANO[0]: draw.uniform(0.3, 0.9, 200)})
        put_queries(folder, "two", "d", {NANO[0]: draw.uniform(0.3, 0.9, 150)})

    client = TestClient(site_data.small_app(tmp_path, make))
    document = asked(client, m=[list_entries(client)[name, "measured"] for name in ("one", "two")])
    assert find_values(document, "pairs")[0]["tasks_verdict"] == "too few tasks to say"


@pytest.mark.parametrize(("lift", "verdict"), [(0, "A one is higher"), (0.05, "too few tasks to say")])
def test_examples_of_another_metric_than_that_shown_decide_nothing(
    tmp_path: Path, lift: float, verdict: str
) -> None:
    """Pairs give the precision by one similarity; shown is the best of all, which may be that of another."""
    draw, task = np.random.default_rng(5), site_data.task("SprintDuplicateQuestions")
    gold = np.arange(200) % 2
    ((split, subset),) = task.cells

    def put_pairs(folder: Path, name: str, letter: str, noise: float, lift: float) -> None:
        near = gold + draw.normal(0, noise, 200)
        rows = [
            {"split": split, "subset": subset, "example_id": f"p{at}", "replicate": 0, "gold": str(gold[at]),
             "prediction": str(near[at]), "metric": None}
            for at in range(200)
        ]  # fmt: skip
        own = float(average_precision_score(gold, near))
        shown = {"main_score": own + lift, "max_ap": own + lift, "similarity_ap": own}
        model, sink = site_data.measured_model(name, letter), io.BytesIO()
        parquet.write_table(pa.Table.from_pylist(rows), sink)
        record = site_data.scored(model, task.name, own + lift)
        changes = {"examples": ExamplesPart(file="", rows=200, sha256=""), "scores": {split: {subset: shown}}}
        Store(folder / "results").put(model.slug, record.model_copy(update=changes), sink.getvalue())

    def make(folder: Path) -> None:
        put_pairs(folder, "one", "a", 0.3, 0)
        put_pairs(folder, "two", "d", 1.0, lift)

    client = TestClient(site_data.small_app(tmp_path, make))
    document = asked(client, m=[list_entries(client)[name, "measured"] for name in ("one", "two")])
    assert list(rows(document, "tasks")) == [task.name]
    assert find_values(document, "pairs")[0]["tasks_verdict"] == verdict


def test_the_mean_over_types_is_over_the_types_of_common_columns(tmp_path: Path) -> None:
    """Two of MTEB(kor, v1) lack one task each: its types are then one or two columns wide."""
    left = {name: 0.1 * (at + 1) for at, name in enumerate(KOREAN) if name != KOREAN[0]}
    right = {name: 0.05 * (at + 1) for at, name in enumerate(KOREAN) if name != "KorSTS"}
    client = site_of(tmp_path, Import(model="a/left", scores=left), Import(model="a/right", scores=right))
    found = list_entries(client)
    document = asked(client, m=[found["a/left", "imported"], found["a/right", "imported"]])
    types: dict[str, list[str]] = {}
    for name in KOREAN:
        if name in left and name in right:
            types.setdefault(site_data.task(name).type, []).append(name)
    assert sorted(map(len, types.values())) == [1, 1, 2]
    means = rows(document, "means")
    for column, scores in (("s0", left), ("s1", right)):
        wanted = np.mean([np.mean([scores[name] for name in some]) for some in types.values()])
        assert means["Over types"][column] == shown(float(wanted))
    assert find_values(document, "pairs")[0]["types"] == pytest.approx(
        means["Over types"]["s0"] - means["Over types"]["s1"], abs=0.0101
    )


def test_means_are_bars_by_type(client: TestClient, slugs: dict[str, str], tmp_path: Path) -> None:
    """Or by task, where all tasks are of one type."""
    models = [Import(model=f"a/{n}", scores=site_data.spread_scores(KOREAN, n / 10)) for n in (4, 6)]
    korean = site_of(tmp_path, *models)
    for asking, chosen in (
        (korean, [*list_entries(korean).values()]),
        (client, [slugs["base"], slugs["large"]]),
    ):
        found = asked(asking, m=chosen)
        numbers = rows(found, "means") | rows(found, "tasks")
        (figure,) = figures(asking, "/compare?" + urlencode({"m": chosen}, doseq=True))
        for at, trace in enumerate(figure["data"]):
            drawn = dict(zip(trace["y"], trace["x"], strict=True))
            assert len(drawn) > 3
            assert drawn == pytest.approx({name: numbers[name][f"s{at}"] for name in drawn}, abs=0.00501)


@pytest.fixture
def grids(client: TestClient, slugs: dict[str, str]) -> Common:
    site: Site = client.app.state.site  # type: ignore[attr-defined]
    entries = [site.queries.by_slug[slugs[name]] for name in ("base", "large", "minilm")]
    return load_common(site.queries, entries, suite="nanobeir")


def test_known_intervals_make_ties_on_a_task(grids: Common) -> None:
    """0.52, 0.60 and 0.50 on every fifth task: 0.06 and 0.06 put together reach over 0.08, not over 0.10."""
    half = np.full_like(grids.scores.values, 0.06)
    known = replace(grids.scores, low=grids.scores.values - half, high=grids.scores.values + half)
    wide = replace(grids, scores=known)
    assert grids.find_winners(0) == [1]
    assert wide.find_winners(0) == [0, 1]
    counts = {(p.first, p.second): (p.wins, p.losses, p.ties) for p in wide.list_pairs()}
    assert counts == {(0, 1): (0, 0, 13), (0, 2): (0, 0, 13), (1, 2): (13, 0, 0)}


def test_columns_that_are_only_shown_are_in_no_difference_of_means(grids: Common) -> None:
    site_suite = grids.scores.site_suite
    first, *rest = site_suite.suite.columns
    suite = replace(site_suite.suite, columns=(replace(first, shown_only="an extra"), *rest))
    shown = replace(grids, scores=replace(grids.scores, site_suite=replace(site_suite, suite=suite)))
    gaps = grids.scores.values[0] - grids.scores.values[1] + np.arange(13) / 100
    values = grids.scores.values.copy()
    values[0] = values[1] + gaps
    shown = replace(shown, scores=replace(shown.scores, values=values))
    assert shown.list_pairs()[0].tasks.value == pytest.approx(gaps[1:].mean())


def test_tasks_are_counted_as_on_the_page_of_a_model(tmp_path: Path) -> None:
    """Without those that a suite only shows."""
    nano = site_data.suites()["nanobeir"]
    first, *rest = nano.suite.columns
    suite = replace(nano.suite, columns=(replace(first, shown_only="an extra"), *rest))
    listed = {"nanobeir": replace(nano, suite=suite)}
    models = [Import(model=f"a/{n}", scores=dict.fromkeys(NANO, n / 10)) for n in (4, 6)]
    site_data.put_imports(tmp_path / "results", models)
    with mock.patch("leaderboard.data.snapshot.load_site_suites", return_value=listed):
        client = TestClient(create_app(site_data.small_settings(tmp_path)))
    entries = [*list_entries(client).values()]
    found = asked(client, m=entries)
    assert found["lead"].endswith(": all of them have 12 of the 12 tasks of its mean.")
    assert found["data"]["overlaps"] == {"nanobeir": 12}
    assert (
        ">12/12 Nano" in client.get("/compare?" + urlencode({"m": entries}, doseq=True), headers=BROWSER).text
    )
    suites = [
        row for one in ask(client, "/models/a--4")["tables"] for row in one["rows"] if "count" in row["cells"]
    ]
    assert [row["cells"]["count"]["text"] for row in suites] == ["12/12"]


def test_known_intervals_of_means_serve_where_all_have_the_whole_suite(grids: Common) -> None:
    values = grids.scores.values + np.random.default_rng(3).normal(0, 0.01, grids.scores.values.shape)
    bounds = {0: {"interval": [0.5, 0.56]}, 1: {"interval": [0.6, 0.68]}}
    known = replace(grids, scores=replace(grids.scores, values=values, averages=bounds))
    by = {(p.first, p.second): p.tasks.half for p in known.list_pairs()}
    assert by[0, 1] == pytest.approx(0.05)
    counted = grids.scores.counted.copy()
    counted[2, 0] = False
    part = replace(known, scores=replace(known.scores, counted=counted))
    low, high = stats.ttest_rel(values[0, 1:], values[1, 1:]).confidence_interval(0.95)
    (half,) = [p.tasks.half for p in part.list_pairs() if (p.first, p.second) == (0, 1)]
    assert half == pytest.approx((high - low) / 2)


def test_the_suite_with_the_most_in_common_is_taken(client: TestClient, slugs: dict[str, str]) -> None:
    chosen = [slugs["base"], slugs["large"]]
    assert asked(client, m=chosen)["data"]["suite"] == "nanobeir"
    other = asked(client, m=chosen, suite="mteb-MTEB-kor-v1")
    assert find_values(other, "tasks") == []
    assert "has a score of all of them" in other["notes"][0]
    assert asked(client, 404, m=chosen, suite="nanobier")["error"]["hint"].startswith("Did you mean nanobeir")


def test_most_shared_tasks_go_before_the_largest_share_of_a_suite() -> None:
    """MTEB(kor, v1) has six tasks and MTEB(eng, v2) 41: two shared of these are more than one of those."""
    site = site_data.standard_app().state.site
    assert len(KOREAN) < 2 * len(site_data.names("mteb")) / 8
    choose = comparison._choose_best_suite
    assert choose(site.queries, {"mteb-MTEB-kor-v1": 1, "mteb": 2}) == "mteb"
    assert choose(site.queries, {"mteb-MTEB-kor-v1": 2, "mteb": 2}) == "mteb-MTEB-kor-v1"
    assert choose(site.queries, {"nanobeir": len(NANO), "mteb": len(NANO) + 1}) == "nanobeir"


def test_scores_on_other_data_are_marked_and_left_out_of_pinned_data(tmp_path: Path) -> None:
    scores = site_data.spread_scores(KOREAN, 0.5)
    pinned = Import(model="a/one", scores=scores)
    client = site_of(tmp_path, pinned, Import(model="a/two", scores=scores, others=KOREAN[:2]))
    chosen = list(list_entries(client).values())
    every = asked(client, m=chosen)
    assert len(find_values(every, "tasks")) == 6
    assert "On 2 of the tasks" in every["notes"][0]
    assert rows(every, "facts")["Data"]["s1"] == "pinned on 4 of 6 tasks"
    strict = asked(client, m=chosen, revisions="pinned")
    assert len(find_values(strict, "tasks")) == 4
    assert "2 more of its tasks" in strict["notes"][0]
    assert rows(strict, "missing").keys() == set(KOREAN[:2])


def test_facts_stand_side_by_side(client: TestClient, slugs: dict[str, str]) -> None:
    facts = rows(asked(client, m=[slugs["base"], slugs["large"]]), "facts")
    assert (facts["Parameters"]["s0"], facts["Parameters"]["s1"]) == (22_000_000, 335_000_000)
    assert facts["Made of"]["s1"] == "acme/tiny-base"
    assert (facts["Trained on this suite"]["s0"], facts["Trained on this suite"]["s1"]) == (0, 1)
    assert facts["Revision"]["s0"] == site_data.COMMIT


def test_another_entry_can_be_made_the_first(client: TestClient, slugs: dict[str, str]) -> None:
    document = parsed(client, {"m": [slugs["base"], slugs["large"]]})
    (turned,) = [href for href, told in document.links if told == "make it the first"]
    assert turned == f"/compare?m={slugs['large']}&m={slugs['base']}"


def test_tasks_are_sorted_and_filtered(client: TestClient, slugs: dict[str, str], tmp_path: Path) -> None:
    chosen = [slugs["base"], slugs["large"]]
    up = [row["d1"] for row in rows(asked(client, m=chosen, sort="s1"), "tasks").values()]
    assert up == sorted(up) or len({round(d, 9) for d in up}) == 1
    names = list(rows(asked(client, m=chosen, sort="-name"), "tasks"))
    assert names == sorted(NANO, key=str.casefold, reverse=True)
    assert asked(client, 404, m=chosen, sort="d7")["error"]["hint"]
    models = [Import(model=f"a/{n}", scores=site_data.spread_scores(KOREAN, n / 10)) for n in (4, 6)]
    korean = site_of(tmp_path, *models)
    only = rows(asked(korean, m=list(list_entries(korean).values()), type="STS"), "tasks")
    assert {row["type"] for row in only.values()} == {"STS"}


def test_too_few_and_too_many_are_said_with_the_chooser(client: TestClient, tmp_path: Path) -> None:
    assert "Choose 2 to 6 entries" in page(client, "/compare").text
    many = [Import(model=f"a/m{n}", scores={NANO[0]: n / 10}) for n in range(7)]
    crowd = site_of(tmp_path, *many)
    chosen = list(list_entries(crowd).values())
    document = parsed(crowd, {"m": chosen})
    assert "7 entries are chosen" in document.text
    assert document.text.count("remove ") == 7
    assert asked(crowd, m=chosen)["tables"] == []
    six = asked(crowd, m=chosen[:6])
    assert len(find_values(six, "pairs")) == 15
    gaps = {(row["one"], row["other"]): row["tasks"] for row in find_values(six, "pairs")}
    chain, first = find_values(six, "chain"), next(iter(gaps))[0]
    names = [first, *(row["entry"] for row in chain)]
    for at, row in enumerate(chain, 1):
        assert row["before"] == pytest.approx(-gaps[names[at - 1], names[at]])
        assert row["first"] == pytest.approx(-gaps[first, names[at]])
    assert "chain" not in {table["name"] for table in asked(crowd, m=chosen[:2])["tables"]}
    assert "One entry is chosen" in parsed(crowd, {"m": chosen[:1]}).text
    assert "One entry is chosen" in parsed(crowd, {"m": chosen[:1] * 2}).text


def test_a_search_offers_entries_that_its_links_add(client: TestClient, slugs: dict[str, str]) -> None:
    document = parsed(client, {"m": slugs["base"], "q": "tiny-l"})
    (href,) = [href for href, told in document.links if told == "add acme/tiny-large"]
    added = client.get(href.replace("/compare?", "/compare.json?")).json()
    assert list(rows(added, "facts")["Model"].values())[1:3] == ["acme/tiny-base", "acme/tiny-large"]
    assert "Did you mean acme/tiny-large" in parsed(client, {"q": "acme/tiny-larje"}).text


def test_a_models_name_stands_for_its_best_known_entry(client: TestClient, slugs: dict[str, str]) -> None:
    document = asked(client, m=["acme--tiny-base", slugs["large"]])
    assert rows(document, "facts")["Origin"]["s0"] == "measured"


def test_an_unknown_entry_names_its_neighbours(client: TestClient, slugs: dict[str, str]) -> None:
    answer = asked(client, 404, m=[slugs["base"], slugs["large"][:-1]])
    assert slugs["large"] in answer["error"]["hint"]


def test_hostile_names_are_escaped(client: TestClient, slugs: dict[str, str]) -> None:
    document = parsed(client, {"m": [slugs["hostile"], slugs["base"]], "q": "<script>"})
    assert not document.has_foreign_script
    assert HOSTILE in document.text
    assert not [href for href, _ in document.links if ".." in href]


def test_entries_without_anything_in_common_are_said(client: TestClient, slugs: dict[str, str]) -> None:
    document = asked(client, m=[slugs["glue"], slugs["base"]])
    assert find_values(document, "tasks") == []
    assert "has a score of all of them" in document["notes"][0]
    assert parsed(client, {"m": [slugs["glue"], slugs["base"]]}).text.count("tiny-base") > 2


def printed(client: TestClient, model: str, treatment: str) -> str:
    """The entry of a paper's row."""
    site: Site = client.app.state.site  # type: ignore[attr-defined]
    (found,) = [
        e.slug
        for e in site.queries.entries.values()
        if e.origin == "reported" and e.model == model and treatment in e.treatment
    ]
    return found


def test_rows_of_papers_are_compared_by_the_means_that_both_print(tmp_path: Path) -> None:
    """NeoBERT's 51.3 is a mean over tasks and OptiBERT's 51.9 one over types: like for like NeoBERT leads."""
    (tmp_path / "results").mkdir()
    with mock.patch(
        "leaderboard.data.snapshot.load_site_suites", return_value=site_data.open_suites("mteb-v1")
    ):
        client = TestClient(create_app(site_data.small_settings(tmp_path)))
    chosen = [
        printed(client, "NeoBERT_4096 (medium)", "table 4"),
        printed(client, "OptiBERT_neo", "tokens 130B"),
    ]
    document = asked(client, m=chosen)
    means = rows(document, "means")
    assert [means["Over types"][s] for s in ("s0", "s1")] == [52.41, 51.87]
    assert [means["Over tasks"][s] for s in ("s0", "s1")] == [51.32, 50.44]
    assert means["Retrieval"]["s0"] == pytest.approx(31.6)
    assert "no task to compare on" in document["notes"][0]
    assert find_values(document, "pairs") == []


def test_tasks_that_two_papers_print_are_compared(client: TestClient) -> None:
    optibert = printed(client, "OptiBERT_neo", "5 seeds, 1000 bootstraps; pretrain tokens 130B")
    document = asked(client, m=[printed(client, "NeoBERT_1024 (medium)", "table 3"), optibert])
    copied = asked(client, m=[printed(client, "NeoBERT_1024", "table 3"), optibert])
    assert find_values(copied, "tasks") == []  # by an unknown convention: /glue compares it with none
    other = printed(client, "MosaicBERT-Base (base)", "steps 178k, seqlen 128")
    assert asked(client, m=[other, optibert])["data"]["overlaps"] == {}, "each is by a convention of its own"
    # Both conventions make every task's number in the same way; neobert's is the first of the suite.
    assert (document["data"]["suite"], document["data"]["view"]) == ("glue", "neobert")
    tasks = rows(document, "tasks")
    assert tasks["MNLI"]["d1"] == pytest.approx(0.1)
    assert tasks["RTE"]["d1"] == pytest.approx(-2.3)
    (pair,) = find_values(document, "pairs")
    assert (pair["wins"], pair["losses"], pair["ties"]) == (7, 1, 0)


def measured(folder: Path, name: str, letter: str, **provenance: Any) -> None:
    model = site_data.measured_model(name, letter)
    found = [
        site_data.scored(model, task, score) for task, score in site_data.spread_scores(NANO, 0.5).items()
    ]
    changed = [one.model_copy(update={"provenance": {**one.provenance, **provenance}}) for one in found]
    site_data.put(folder / "results", model, changed)


def test_why_measured_entries_differ(tmp_path: Path) -> None:
    """Fields of identity and provenance, without those that differ between any two and measurements."""

    def make(folder: Path) -> None:
        measured(folder, "one", "a", threads=2)
        measured(folder, "two", "d", threads=8, written="2026-11-09T00:00:00+00:00", seconds={"encode": 9})

    client = TestClient(site_data.small_app(tmp_path, make))
    document = asked(client, m=[list_entries(client)[name, "measured"] for name in ("one", "two")])
    found = rows(document, "differences")
    assert found.keys() == {"provenance.threads"}
    assert found["provenance.threads"] == {
        "field": "provenance.threads", "e0": "2", "e1": "8", "tasks": 13
    }  # fmt: skip


def test_measured_entries_that_differ_in_nothing_are_said(tmp_path: Path) -> None:
    def make(folder: Path) -> None:
        measured(folder, "one", "a")
        measured(folder, "two", "d")

    client = TestClient(site_data.small_app(tmp_path, make))
    document = parsed(client, {"m": [list_entries(client)[name, "measured"] for name in ("one", "two")]})
    assert "nothing else differs on their 13 common tasks" in document.text


def test_a_field_that_is_there_only_sometimes_differs() -> None:
    found = iter_field_differences(
        [[{"a": 1}, {}, {"a": 1}], [{"a": 2}, {"a": 2}, {"a": 2}], [{"a": 3}, {}, {"a": 3}]]
    )
    assert list(found) == [("a", [[1, 3], [None], [1, 3]], 2)]


def test_origins_say_what_differs_between_entries(client: TestClient, slugs: dict[str, str]) -> None:
    document = asked(client, m=[slugs["minilm"], slugs["base"]])
    facts = rows(document, "facts")
    assert (facts["Origin"]["s0"], facts["Origin"]["s1"]) == ("measured", "imported")
    assert (facts["Origin"].get("differs"), "differs" in facts["Output"]) == ("yes", False)
    assert "different origin" in document["notes"][0]


@pytest.mark.parametrize("form", ["csv", "md", "tex"])
def test_every_format_holds_the_tables(client: TestClient, slugs: dict[str, str], form: str) -> None:
    query = urlencode({"m": [slugs["base"], slugs["hostile"]]}, doseq=True)
    text = client.get(f"/compare.{form}?{query}").text
    assert NANO[0] in text
    assert "B − A" in text or "B $-$ A" in text
