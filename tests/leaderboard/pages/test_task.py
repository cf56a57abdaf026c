"""The pages of tasks: ranks, ties, revisions, subsets and questions, names that are hostile."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import quantiles
from typing import Any
from unittest import mock
from urllib.parse import quote

import numpy as np
import pytest
from scipy.stats import spearmanr
from starlette.testclient import TestClient

import site_data
from harness.core.types import SuiteOptions
from harness.plan import catalog
from html_pages import ask, figures, find_rows, find_values, page
from leaderboard.views.task_scores import (
    MOST,
    add_score_intervals,
    find_common_question,
    find_task,
    format_task_key,
    format_task_path,
    load_question_scores,
    load_questions,
)
from leaderboard.web.app import create_app
from leaderboard.web.site import Site
from site_data import HOSTILE, Import

FIRST = site_data.names("nanobeir")[0]
WATCHED = {"NFCorpus", "SciFact"}
"""The tasks of a watch, which are in no suite."""
KOREAN = site_data.names("mteb-MTEB-kor-v1")[0]


def table(client: TestClient, path: str, name: str = "ranking") -> list[dict[str, Any]]:
    """The values of a table of a page."""
    return find_values(ask(client, path.replace(".json", "", 1)), name)


def client_of(folder: Path, models: Mapping[str, Sequence[Mapping[str, Any]]], *typed: str) -> TestClient:
    """A site of some suites over an import whose scores are given row by row."""
    usual = {"split": "test", "subset": "default", "flag": "", "data_revision": "1" * 40, "mteb_version": "2"}
    entries = [
        Import(model=name, scores={row["task"]: row["main_score"] for row in rows},
               rows=[{"entry": at, **usual, **row} for row in rows])
        for at, (name, rows) in enumerate(models.items())
    ]  # fmt: skip
    site_data.put_imports(folder / "results", entries)
    with mock.patch("leaderboard.data.snapshot.load_site_suites", return_value=site_data.open_suites(*typed)):
        return TestClient(create_app(site_data.small_settings(folder)))


def test_the_ranking_is_by_score_with_one_row_for_each_model(client: TestClient) -> None:
    rows = table(client, f"/tasks/{FIRST}.json")
    told = [(row["rank"], row["model"], row["score"]) for row in rows]
    assert told == [
        (1, "acme/tiny-large", 60), (2, "acme/tiny-base", 52), (3, "minilm-ish", 50), (4, HOSTILE, 40)
    ]  # fmt: skip
    assert [row["origin"] for row in rows] == ["imported", "imported", "measured", "imported"]
    assert rows[0]["parameters"] == 335_000_000
    assert [row["trust"] for row in rows] == ["commit", "commit", "measured", "external"]


def test_filters_keep_ranks_and_narrow_the_distribution(client: TestClient) -> None:
    answer = client.get(f"/tasks/{FIRST}.json?q=tiny").json()
    assert [row["cells"]["rank"]["value"] for row in answer["tables"][0]["rows"]] == [1, 2]
    assert answer["data"]["quartiles"] == pytest.approx([0.54, 0.56, 0.58])
    assert table(client, f"/tasks/{FIRST}.json?q=nobody") == []
    assert "No entry passes these filters" in page(client, f"/tasks/{FIRST}?q=nobody").text


def test_quartiles_are_those_of_the_ranked_scores(client: TestClient) -> None:
    data = client.get(f"/tasks/{FIRST}.json").json()["data"]
    assert data["quartiles"] == pytest.approx(quantiles([0.4, 0.5, 0.52, 0.6], n=4, method="inclusive"))


def test_the_suites_that_hold_a_task_are_linked(client: TestClient) -> None:
    links = page(client, f"/tasks/{FIRST}").links
    assert ("/suites/nanobeir", "NanoBEIR") in links


def test_a_score_on_another_revision_is_marked_and_not_ranked_by_pinned_data(client: TestClient) -> None:
    document = client.get(f"/tasks/{KOREAN}.json").json()
    (row,) = document["tables"][0]["rows"]
    assert row["cells"]["rank"]["value"] == 1
    assert row["cells"]["score"]["kind"] == "other best"
    assert row["cells"]["data"]["value"] == "0" * 40
    assert "1 ranked on another revision" in document["tables"][0]["notes"][1]
    strict = client.get(f"/tasks/{KOREAN}.json?revisions=pinned").json()["tables"][0]
    assert "rank" not in strict["rows"][0]["cells"]
    assert strict["rows"][0]["cells"]["score"]["kind"] == "other"
    assert "1 not ranked: on another revision" in strict["notes"][0]


def test_the_best_of_each_size_class_is_named_and_marked(client: TestClient) -> None:
    sizes = table(client, f"/tasks/{FIRST}.json", "sizes")
    assert [(row["size"].partition(",")[0], row["model"]) for row in sizes] == [
        ("small", "acme/tiny-base"), ("large", "acme/tiny-large")
    ]  # fmt: skip
    (figure,) = figures(client, f"/tasks/{FIRST}")
    assert len(figure["data"][1]["x"]) == 2


def test_a_task_says_what_it_is(client: TestClient) -> None:
    document = page(client, "/tasks/STS12")
    assert "Semantic" in document.text or "similarity" in document.text
    assert "cosine_spearman" in document.text
    assert "How to cite it" in document.text
    assert any(href.startswith("https://huggingface.co/datasets/mteb/") for href, _ in document.links)


@pytest.mark.parametrize(
    ("path", "place"),
    [("/tasks/sts12?rows=25", "/tasks/STS12?rows=25"), ("/tasks/sts12.json", "/tasks/STS12.json"),
     ("/recipes/simcse:mean", "/recipes/simcse")],
)  # fmt: skip
def test_a_name_in_other_capitals_or_of_a_variant_leads_to_its_page(
    client: TestClient, path: str, place: str
) -> None:
    assert client.get(path, follow_redirects=False).headers["location"] == place


def test_equal_scores_share_a_rank(tmp_path: Path) -> None:
    scores = {"org/a": 0.5, "org/b": 0.7, "org/c": 0.5, "org/d": 0.4}

    def make(folder: Path) -> None:
        site_data.put_imports(
            folder / "results", [Import(model=name, scores={FIRST: value}) for name, value in scores.items()]
        )

    client = TestClient(site_data.small_app(tmp_path, make))
    document = client.get(f"/tasks/{FIRST}.json").json()
    ranks = {r["cells"]["model"]["value"]: r["cells"]["rank"]["value"] for r in document["tables"][0]["rows"]}
    assert ranks == {"org/b": 1, "org/a": 2, "org/c": 2, "org/d": 4}
    assert any("No interval is known" in note for note in document["tables"][0]["notes"])


def rank(client: TestClient, values: Mapping[str, float], halves: Mapping[str, float]) -> list[int]:
    """The ranks of models of the small site, had they these scores and intervals."""
    site: Site = client.app.state.site  # type: ignore[attr-defined]
    scores = load_question_scores(site.queries, load_questions(site.queries)[FIRST][0])
    models = [entry.model for entry in scores.entries]
    column = np.array([[values.get(model, np.nan)] for model in models])
    widths = np.array([[halves.get(model, np.nan)] for model in models])
    counted, means = np.isfinite(column), scores.over_tasks
    over_tasks = replace(means, values=column[:, 0], count=counted[:, 0].astype(int))
    arrays = {"values": column, "low": column - widths, "high": column + widths, "counted": counted}
    known = add_score_intervals(replace(scores, over_tasks=over_tasks, **arrays))  # type: ignore[arg-type]
    places = dict(zip(models, known.compute_ranks("tasks", "model").place.tolist(), strict=True))
    return [places[model] for model in values]


def test_intervals_make_ties_only_where_both_are_known(client: TestClient) -> None:
    """0.03 and 0.04 put together reach over 0.05 and not over 0.051; a group begins with its best."""
    one, two, three = "acme/tiny-large", "acme/tiny-base", "minilm-ish"
    assert rank(client, {one: 0.80, two: 0.7501}, {one: 0.03, two: 0.04}) == [1, 1]
    assert rank(client, {one: 0.80, two: 0.749}, {one: 0.03, two: 0.04}) == [1, 2]
    assert rank(client, {one: 0.80, two: 0.799}, {one: 0.03}) == [1, 2]
    chain = {one: 0.80, two: 0.77, three: 0.74}
    assert rank(client, chain, dict.fromkeys(chain, 0.03)) == [1, 1, 3]


def test_a_task_has_the_filters_of_a_suites_table(client: TestClient) -> None:
    """Of four models one states that it was trained on no data of the task, and one that it was."""
    assert [row["model"] for row in table(client, f"/tasks/{FIRST}.json?zero=all")] == ["acme/tiny-base"]
    assert [row["model"] for row in table(client, f"/tasks/{FIRST}.json?licence=mit&rank=borda")] == [
        "acme/tiny-large", "acme/tiny-base"
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("sort", "order"),
    [("score", [40, 50, 52, 60]), ("-rank", [40, 50, 52, 60]), ("rank", [60, 52, 50, 40])],
)
def test_sorting(client: TestClient, sort: str, order: list[float]) -> None:
    assert [row["score"] for row in table(client, f"/tasks/{FIRST}.json?sort={sort}")] == order


def test_a_column_that_is_none_is_said(client: TestClient) -> None:
    answer = client.get(f"/tasks/{FIRST}.json?sort=skore")
    assert answer.status_code == 404
    assert "score" in answer.json()["error"]["hint"]


def test_rows_without_a_value_stand_last_whatever_they_are_sorted_by(client: TestClient) -> None:
    models = [row["model"] for row in table(client, f"/tasks/{FIRST}.json?sort=released")]
    assert set(models[:2]) == {"acme/tiny-base", "acme/tiny-large"}


def test_a_failure_is_shown_with_a_link_to_its_result(client: TestClient) -> None:
    (row,) = client.get(f"/tasks/{site_data.names('mteb')[0]}.json").json()["tables"][0]["rows"]
    assert row["cells"]["score"]["kind"] == "failed"
    assert row["cells"]["score"]["href"].startswith("/results/")
    assert "rank" not in row["cells"]


def test_a_task_of_a_suite_without_results_has_a_page(client: TestClient) -> None:
    assert "No entry has a result" in page(client, "/tasks/MNLI").text


def test_hostile_names_are_escaped(client: TestClient) -> None:
    document = page(client, f"/tasks/{FIRST}")
    assert not document.has_foreign_script
    assert any(told == HOSTILE for _, told in document.links)
    assert not [href for href, _ in document.links if ".." in href]


def test_an_unknown_task_names_its_neighbours(client: TestClient) -> None:
    answer = client.get(f"/tasks/{FIRST}s.json")
    assert answer.status_code == 404
    assert FIRST in answer.json()["error"]["hint"]
    document = page(client, "/tasks/%3Cscript%3E", 404)
    assert not document.has_foreign_script


NASTY = [
    "../../etc", "a/b", "<b>x</b>", 'q"uote', "x.json", "..", "a b", "ünïcode", "50%25", "a?b#c", "x" * 150,
]  # fmt: skip


def test_every_name_has_a_path_of_one_part_that_leads_back() -> None:
    for name in NASTY:
        part = format_task_path(name).removeprefix("/tasks/")
        assert "/" not in part
        assert not part.endswith((".json", ".csv", ".md", ".tex"))
        assert find_task(format_task_key(name), NASTY) == name
    assert len({format_task_key(name) for name in NASTY}) == len(NASTY)


def test_tasks_with_hostile_names_can_be_reached(tmp_path: Path) -> None:
    names = [name for name in NASTY if len(name) < 100]
    rows = [{"task": name, "main_score": 0.1 + at / 100} for at, name in enumerate(names)]
    client = client_of(tmp_path, {"org/a": rows, "org/b": rows[:3]}, "nanobeir")
    links = {told: href for href, told in page(client, "/tasks?scored=1").links}
    for at, name in enumerate(names):
        document = page(client, links[name])
        assert ("h1", {}) in document.tags
        assert name in document.text
        assert not [a for tag, a in document.tags if tag in ("b", "script") and not {"src", "type"} & set(a)]
        found = table(client, f"{links[name]}.json")
        assert [row["score"] for row in found] == [10 + at] * (2 if at < 3 else 1)
    assert client.get(f"/tasks/{quote('<b>x</b>'.replace('/', ''), safe='')}").status_code == 404
    assert client.get(f"/tasks/{quote('ünïcode')}").status_code == 200


def test_a_task_in_no_suite_is_ranked_on_what_most_have(tmp_path: Path) -> None:
    row = {"task": "Mine", "main_score": 0.5}
    models = {
        "a": [row],
        "b": [{**row, "main_score": 0.6}],
        "c": [{**row, "main_score": 0.9, "data_revision": "2" * 40}],
        "d": [{**row, "main_score": 0.8, "split": "dev"}],
    }
    client = client_of(tmp_path, models, "nanobeir")
    document = client.get("/tasks/Mine.json").json()
    cells = [row["cells"] for row in document["tables"][0]["rows"]]
    told = [(c["model"]["value"], c.get("rank", {}).get("value"), c["score"].get("kind", "")) for c in cells]
    assert told == [("c", 1, "other best"), ("b", 2, "second"), ("a", 3, ""), ("d", None, "")]
    strict = client.get("/tasks/Mine.json?revisions=pinned").json()["tables"][0]["rows"]
    assert [row["cells"].get("rank", {}).get("value") for row in strict] == [1, 2, None, None]
    assert "No suite of this site has" in document["notes"][0]
    assert document["data"]["scope"] == MOST
    (best,) = [r for r in table(client, "/tasks.json?q=Mine", "tasks") if r["name"] == "Mine"]
    assert (best["best"], best["model"], best["results"]) == (90, "c", 4)


def test_what_most_have_prefers_the_commonest_shape_and_its_data() -> None:
    one, two = {"test": {"en": 0.1}}, {"test": {"en": 0.1, "de": 0.2}}
    found = find_common_question("t", [(one, "x"), (two, "y"), (two, "y"), (one, "z"), (two, "x")])
    assert (found.scope.splits, found.scope.subsets, found.scope.data) == (("test",), ("de", "en"), "y")
    assert find_common_question("t", []).scope.splits == ()


MASSIVE = "MassiveIntentClassification"


@pytest.fixture(scope="module")
def massive(tmp_path_factory: pytest.TempPathFactory) -> TestClient:
    """Two suites ask one task for different subsets and splits; `half` has only English."""
    suite = catalog.open_suite("mteb", SuiteOptions())
    data = next(task for task in suite.tasks if task.name == MASSIVE).data.revision

    def rows(**scores: float) -> list[dict[str, Any]]:
        return [
            {"task": MASSIVE, "split": name.split("_")[0], "subset": name.split("_")[1], "main_score": score,
             "data_revision": data}
            for name, score in scores.items()
        ]  # fmt: skip

    models = {
        "org/full": rows(test_en=0.7, test_de=0.6, validation_de=0.4),
        "org/half": rows(test_en=0.8),
    }
    return client_of(tmp_path_factory.mktemp("massive"), models, "mteb", "mteb:MTEB(deu, v1)")


def test_suites_may_ask_a_task_for_other_subsets(massive: TestClient) -> None:
    english = table(massive, f"/tasks/{MASSIVE}.json")
    assert [(row["model"], row["score"]) for row in english] == [("org/half", 80), ("org/full", 70)]
    german = table(massive, f"/tasks/{MASSIVE}.json?scope=mteb-MTEB-deu-v1")
    assert [(row["model"], row.get("rank"), row.get("score")) for row in german] == [
        ("org/full", 1, 50), ("org/half", None, None)
    ]  # fmt: skip
    asked = massive.get(f"/tasks/{MASSIVE}.json").json()["data"]["scopes"]
    assert [one["name"] for one in asked] == ["mteb", "mteb-MTEB-deu-v1"]
    assert "subset de" in asked[1]["label"]


def test_a_single_subset_is_scored_on_the_splits_that_are_asked(massive: TestClient) -> None:
    german = table(massive, f"/tasks/{MASSIVE}.json?subset=de")
    assert [(row["model"], row.get("rank")) for row in german] == [("org/full", 1), ("org/half", None)]
    assert german[0]["score"] == 60
    english = table(massive, f"/tasks/{MASSIVE}.json?scope=mteb-MTEB-deu-v1&subset=en")
    assert {row.get("rank") for row in english} == {None}, "nobody has English on the validation split"


def test_one_of_many_subsets_is_typed(massive: TestClient) -> None:
    def find_controls(query: str) -> list[tuple[str, str]]:
        text = massive.get(f"/tasks/{MASSIVE}?{query}").text
        return re.findall(r'<(select|input)[^>]* name="subset"(?: value="(\w*)")?', text)

    assert find_controls("") == [("select", "")]
    with mock.patch("leaderboard.pages.task.MANY", 1):
        assert find_controls("theme=dark") == [("input", "")]
        assert find_controls("theme=dark&subset=de") == [("input", "de")]


@pytest.mark.parametrize("query", ["scope=mteb-MTEB-dew-v1", "subset=dee"])
def test_a_question_that_is_none_names_its_neighbours(massive: TestClient, query: str) -> None:
    answer = massive.get(f"/tasks/{MASSIVE}.json?{query}")
    assert answer.status_code == 404
    assert "de" in answer.json()["error"]["hint"]


def test_the_list_has_type_metric_results_best_and_suites(client: TestClient) -> None:
    rows = {row["name"]: row for row in table(client, "/tasks.json?rows=all", "tasks")}
    held = {name for one in site_data.suites().values() for name in site_data.names(one.slug)}
    assert set(rows) == held | WATCHED
    first = rows[FIRST]
    assert (first["type"], first["results"]) == ("Retrieval", 4)
    assert (first["best"], first["model"], first["suites"]) == (60, "acme/tiny-large", "NanoBEIR")
    assert rows[KOREAN]["best"] == 66, "on another revision of the data"


def test_the_list_is_filtered_sorted_and_paged(client: TestClient) -> None:
    held = table(client, "/tasks.json?suite=mteb-MTEB-kor-v1", "tasks")
    assert {row["name"] for row in held} == set(site_data.names("mteb-MTEB-kor-v1"))
    best = [row["best"] for row in table(client, "/tasks.json?suite=nanobeir&sort=-best", "tasks")]
    assert best == sorted(best, reverse=True)
    assert len(table(client, "/tasks.json?rows=25&page=2", "tasks")) == 25
    assert {row["name"] for row in table(client, "/tasks.json?held=none", "tasks")} == WATCHED
    assert "No task passes these filters" in page(client, "/tasks?q=%3Cb%3E").text
    for query in ("type=Retrievel", "suite=nanobier", "sort=bset"):
        assert client.get(f"/tasks.json?{query}").status_code == 404


def test_a_site_without_results_lists_the_tasks_of_its_suites(tmp_path: Path) -> None:
    client = TestClient(site_data.small_app(tmp_path, lambda folder: (folder / "results").mkdir()))
    assert len(table(client, "/tasks.json?suite=nanobeir", "tasks")) == 13
    assert "No entry has a result" in page(client, f"/tasks/{FIRST}").text
    assert client.get(f"/tasks/{FIRST}.csv").status_code == 200


def test_the_task_of_each_type_that_follows_its_mean_is_scipys(tmp_path: Path) -> None:
    names, rng = site_data.names("nanobeir"), np.random.default_rng(4)
    values = rng.random((14, 1)) + 0.3 * rng.random((14, len(names)))
    entries = [
        # Of no model but a published baseline its name takes it out.
        Import(model=f"org/my-baseline-{n}", scores=dict(zip(names, row.tolist(), strict=True)))
        for n, row in enumerate(values / 2)
    ]
    entries.append(Import(model="mteb/baseline-random", scores=dict.fromkeys(names, 0.1)))
    client = TestClient(
        site_data.small_app(tmp_path, lambda folder: site_data.put_imports(folder / "results", entries))
    )
    (row,) = find_values(ask(client, "/tasks?suite=nanobeir"), "types")
    found = {name: spearmanr(values[:, at], values.mean(axis=1)).statistic for at, name in enumerate(names)}
    assert (row["first"], row["models"]) == (max(found, key=lambda name: found[name]), 14)
    assert row["whole"] == pytest.approx(max(found.values()))
    assert [one["name"] for one in ask(client, "/tasks")["tables"]] == ["tasks"]


def test_a_training_with_some_seeds_has_no_mean_on_a_task_in_no_suite(tmp_path: Path) -> None:
    site_data.fill_trained(tmp_path)
    with mock.patch(
        "leaderboard.data.snapshot.load_site_suites", return_value=site_data.open_suites("nanobeir")
    ):
        client = TestClient(create_app(site_data.small_settings(tmp_path)))
    name = site_data.names("mteb")[1]
    scores = [row["cells"]["score"] for row in find_rows(ask(client, f"/tasks/{name}"), "ranking")]
    assert [(cell["text"], cell["kind"]) for cell in scores] == [("2 of 3 seeds", "seeds")]


def test_a_convention_names_its_question(client: TestClient) -> None:
    for view in site_data.suites()["glue"].suite.conventions:
        data = ask(client, f"/tasks/MNLI?view={view}")["data"]
        assert data["scope"] == f"glue:{view}"
    assert ask(client, "/tasks/MNLI?view=modernbret", 404)["error"]["hint"].startswith(
        "Did you mean modernbert"
    )
    assert ask(client, f"/tasks/{FIRST}?view=modernbert", 404)
