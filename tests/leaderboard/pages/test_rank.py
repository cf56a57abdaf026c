"""The page of a question: its answer against one computed apart, its parameters, and what the page says."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from starlette.testclient import TestClient

import data_files
from fakes import task as fake_task
from harness.core.types import Column, Data, Suite, Task
from harness.results.scores import score_text
from html_pages import BROWSER, ask, find_rows
from leaderboard.data.mteb_import import import_results
from leaderboard.data.queries import Queries
from leaderboard.data.settings import SiteSettings
from leaderboard.data.suites import SiteSuite
from leaderboard.views.question import PATH, QuestionState, answer_question
from leaderboard.views.suite_table import SuiteTable
from leaderboard.web.page_state import Paging, build_paging
from leaderboard.web.site import Site, open_site
from questions import Scores, answer_apart, draw_question
from site_data import Import, names, open_suites, put_imports, small_settings, suites

MODELS, ONE_IN = 14, 4
"""Made-up models, and one in how many of the public ones is asked about."""
TASKS = [name for name in dict.fromkeys([*names("nanobeir"), *names("mteb-MTEB-kor-v1"), *names("mteb")])
         if sum(name in names(slug) for slug in suites()) == 1]  # fmt: skip


def draw_models() -> dict[str, tuple[dict[str, float], dict[str, Any]]]:
    """Scores with gaps, and a card, of each model."""
    rng = np.random.default_rng(7)
    ability = {name: rng.normal(0.5, 0.15) for name in TASKS}
    models = {}
    for number in range(MODELS):
        has = [name for name in TASKS if rng.random() < (1 if number % 3 else 0.85)]
        level = rng.normal(0, 0.04)
        scores = {n: round(float(np.clip(ability[n] + level + rng.normal(0, 0.03), 0, 1)), 4) for n in has}
        card = {
            "card": True, "card_name": f"acme/m{number}", "max_tokens": int(rng.choice([512, 8192])),
            "n_parameters": int(rng.choice([22, 150, 500])) * 10**6,
            "embed_dim": int(rng.choice([384, 1024])),
            "license": str(rng.choice(["mit", "cc-by-nc-4.0", "gemma"])),
            "memory_usage_mb": float(rng.choice([80, 400])), "open_weights": bool(rng.integers(2)),
            "training_datasets": [TASKS[0]] if number % 2 else [],
        }  # fmt: skip
        models[f"acme/m{number}"] = (scores, card)
    return models


def fill(folder: Path) -> None:
    """Write the import of these models."""
    (folder / "results").mkdir(parents=True)
    put_imports(folder / "results", [Import(model=name, scores=scores, card=card)
                                     for name, (scores, card) in draw_models().items()])  # fmt: skip


@pytest.fixture(scope="module")
def queries(client: TestClient) -> Queries:
    app: Any = client.app
    site: Site = app.state.site
    return site.queries


@cache
def pool() -> dict[str, Column]:
    """The columns of every suite but GLUE, in the order of the suites."""
    columns: dict[str, Column] = {}
    for slug, listed in suites().items():
        columns |= {c.name: c for c in listed.suite.columns if slug != "glue" and c.name not in columns}
    return columns


def passes(card: dict[str, Any], question: dict[str, Any]) -> bool:
    group = {"mit": "permissive", "cc-by-nc-4.0": "non-commercial", "gemma": "unknown"}[card["license"]]
    return (
        card["n_parameters"] <= question.get("most", np.inf) * 1e6
        and card["max_tokens"] >= question.get("tokens", 0)
        and card["embed_dim"] <= question.get("dimensions", np.inf)
        and question.get("licence") in (None, group)
    )


def compare_with_apart(queries: Queries, question: dict[str, Any], scores: Scores, tasks: list[str],
                       types: dict[str, str]) -> int:  # fmt: skip
    """Hold the site's answer against the one apart; returns how many models are ranked."""
    weights = {
        name: float(number) for name, _, number in (w.rpartition(":") for w in question.get("weight", []))
    }
    answer = answer_question(queries, QuestionState.model_validate(question))
    scores = {model: of for model, of in scores.items() if any(name in of for name in tasks)}
    expected = answer_apart(scores, tasks, types, weights, question.get("models"), question["mean"])
    table = answer.table
    entries, means = table.scores.entries, table.scores.mean(question["mean"]).values
    assert {c.name for c in table.scores.site_suite.suite.columns} == expected.tasks
    ranked = {entries[row].model: row for row in answer.ranked}
    assert ranked.keys() == expected.means.keys()
    assert {m: int(table.ranks.place[row]) for m, row in ranked.items()} == expected.ranks
    columns = {column.key: column for column in table.columns}
    for model, row in ranked.items():
        assert means[row] == pytest.approx(expected.means[model], abs=1e-12)
        low, high = expected.bounds[model]
        places = f"{low}–{high}" if low < high else str(low)
        assert columns["places"].build_cell(row).text == (places if model in expected.halves else "–")
        half = columns["half"].build_cell(row).value
        assert half == pytest.approx(expected.halves[model]) if model in expected.halves else half is None
    if ranked:
        first = min(ranked, key=lambda model: (expected.ranks[model], -expected.means[model]))
        (low, high), half = expected.bounds[first], columns["half"].build_cell(ranked[first]).text
        places = f"rank {low} to {high}" if low < high else f"rank {low}"
        count, asked = len(answer.places), len(answer.pool.site_suite.suite.columns)
        tasks_text = f"all {asked} tasks" if count == asked else f"the same {count} of {asked} tasks"
        among = f" among the {len(ranked)} models with {tasks_text}" if len(ranked) > 1 else ""
        sure = f" ± {half}, {places}{among}" if first in expected.halves else ""
        lead = answer.describe()
        start = f"First is {first} ({score_text(expected.means[first])}{sure}"
        # Behind it the answer says how many scores the makers state.
        assert lead.startswith((f"{start})", f"{start}; "))
    if answer.wider:
        more, fewer, winner = answer.wider
        least = len(ranked) + more
        wide = answer_question(queries, QuestionState.model_validate({**question, "models": least}))
        assert (len(wide.places), len(wide.ranked)) == (fewer, least)
        assert wide.describe().startswith(f"First is {winner} (")
        assert (f"over which {winner} is first" in lead) == (winner != first)
    return len(ranked)


@pytest.mark.parametrize("seed", range(20))
def test_a_random_question_has_the_answer_computed_apart(queries: Queries, seed: int) -> None:
    rng = np.random.default_rng(seed)
    types = sorted({column.type for column in pool().values()})
    question = draw_question(rng, ["mteb", "nanobeir", "mteb-MTEB-kor-v1"], types, TASKS)
    asked = [
        name for slug in question.get("suite", [*suites()]) for name in names(slug)
        if name in pool() and pool()[name].type in question.get("type", types)
        and name in question.get("task", TASKS)
    ]  # fmt: skip
    asked = list(dict.fromkeys(asked))
    if rng.random() < 0.6 and asked:
        question["weight"] = [f"{pool()[asked[0]].type}:2.5", f"{asked[-1]}:0.5"]
    scores = {name: of for name, (of, card) in draw_models().items() if passes(card, question)}
    compare_with_apart(
        queries, question, scores, asked, {name: column.type for name, column in pool().items()}
    )


@pytest.mark.shared
@pytest.mark.slow
def test_random_questions_over_the_public_results(tmp_path: Path, shared: Path) -> None:
    archive = shared.parent / "mteb-results.tar.xz"
    if not archive.exists():
        pytest.skip("needs mteb-results.tar.xz")
    published = data_files.find_published(archive, tmp_path / "raw", ONE_IN)
    import_results(published, tmp_path / "results", workers=1)
    queries = open_site(SiteSettings(results=(tmp_path / "results",), snapshots=tmp_path / "site")).queries
    slugs = ["mteb", "beir", "mteb-v1", "mteb-MTEB-Multilingual-v2", "mteb-MTEB-Europe-v1"]
    ranked = 0
    for seed in range(20):
        rng = np.random.default_rng(seed)
        slug = str(rng.choice(slugs))
        listed = queries.suites[slug]
        types = {column.name: column.type for column in listed.suite.columns}
        question = draw_question(rng, [slug], sorted({*types.values()}), sorted(types)) | {"suite": [slug]}
        question["weight"] = [
            f"{rng.choice(sorted({*types.values()} & {*question.get('type', types.values())}))}:3"
        ]
        asked = [name for name, kind in types.items() if kind in question.get("type", [kind])
                 and name in question.get("task", [name])]  # fmt: skip
        if not {*question["weight"][0].split(":")} & {types[name] for name in asked}:
            del question["weight"]
        # The cells are those of the suite's page; what is done with them is computed apart.
        suite = queries.load_suite_scores(listed)
        bounds = QuestionState.model_validate({key: one for key, one in question.items() if key in BOUNDS})
        table = SuiteTable(scores=suite, state=bounds, path="", cards=queries.cards, entries=queries.entries)
        scores = {
            suite.entries[row].model: {
                column.name: float(suite.values[row, at])
                for at, column in enumerate(listed.suite.columns) if suite.counted[row, at]
            }
            for row in table.rows if suite.entries[row].origin == "imported"
        }  # fmt: skip
        ranked += compare_with_apart(queries, question, scores, asked, types)
    assert ranked > 500 / ONE_IN
    multilingual = answer_question(queries, QuestionState(suite=["mteb-MTEB-Multilingual-v2"]))
    assert len(multilingual.ranked) * len(multilingual.places) >= 149 * 120 / (2 * ONE_IN)


BOUNDS = ("most", "tokens", "dimensions", "licence")


@pytest.mark.parametrize(
    ("query", "wanted"),
    [
        ("suite=nothing", "No suite is called 'nothing'"),
        ("task=Nothing", "No task is called 'Nothing'"),
        ("type=Retrieving", "No type is called 'Retrieving'"),
        ("language=german", "No language is called 'german'"),
        ("domain=Legals", "No domain is called 'Legals'"),
        ("task=NanoSciFactRetrieval&suite=mteb", "NanoSciFactRetrieval is not in MTEB(eng, v2). It is in "),
        ("weight=Retrieval", "'Retrieval' is no weight"),
        ("weight=Retrieval:0", "'Retrieval:0' is no weight"),
        ("weight=Nothing:2", "No type or task is called 'Nothing'"),
    ],
)
def test_a_question_about_what_does_not_exist_is_refused(client: TestClient, query: str, wanted: str) -> None:
    assert wanted in ask(client, f"{PATH}?{query}", 404)["error"]["message"]


def test_the_answer_says_that_no_task_is_of_all_that_was_asked_for(client: TestClient) -> None:
    assert ask(client, f"{PATH}?suite=nanobeir&type=STS")["lead"] == "No task is of all that was asked for."


@pytest.mark.parametrize(
    ("query", "note", "near"),
    [
        ("beside=me/m", "No model is called 'me/m'.", "acme%2Fm0"),
        ("beside=m1&suite=glue", "m1 has no score", "acme%2Fm1"),
    ],
)
def test_a_model_that_cannot_stand_beside_the_others_leaves_the_form_and_their_ranking(
    client: TestClient, query: str, note: str, near: str
) -> None:
    assert ask(client, f"{PATH}?most=900&{query}")["notes"][0].startswith(note)
    text = client.get(f"{PATH}?most=900&{query}", headers=BROWSER).text
    typed = query.partition("&")[0].removeprefix("beside=")
    # JavaScript sends a field of kind search while a reader types.
    assert re.search(f'type="text" name="beside" value="{typed}"', text)
    assert re.search(rf'href="/rank\?[^"]*most=900[^"]*beside={near}', text)


def test_a_model_of_a_later_page_stands_on_top_of_the_first(client: TestClient) -> None:
    def build_short(total: int, state: Any, path: str) -> Paging:
        return build_paging(total, state.model_copy(update={"rows": "3"}), path)

    with mock.patch("leaderboard.pages.rank.build_paging", build_short):
        query = f"{PATH}?suite=mteb&beside=m5&most=901"
        page, named = (ask(client, f"{query}&rows=50{more}")["tables"][0]["rows"] for more in ("", "&page=1"))
    models = [[row["cells"]["model"]["value"] for row in rows] for rows in (page, named)]
    assert (models[0][0], len(models[1])) == ("acme/m5", 3)
    assert models[0][1:] == models[1]
    assert "acme/m5" not in models[1]


def test_the_page_names_the_tasks_left_out_and_what_they_would_do(client: TestClient) -> None:
    page = ask(client, f"{PATH}?suite=mteb")
    data, left_out = page["data"], find_rows(page, "left-out")
    assert data["tasks_asked"] == len(data["tasks"]) + len(left_out) == 41
    ranked = {row["cells"]["model"]["value"] for row in find_rows(page, "suite") if "rank" in row["cells"]}
    assert len(ranked) == data["models_ranked"]
    models = draw_models()
    for row in left_out:
        name = row["cells"]["name"]["value"]
        has = {model for model, (scores, _) in models.items() if name in scores}
        assert row["cells"]["models"]["value"] == len(has)
        assert row["cells"]["ranked"]["value"] == len(has & ranked) < len(ranked)


def test_the_answer_is_in_numbers_that_agree(client: TestClient) -> None:
    alone = f"{PATH}?q=acme/m0&task="
    for query, wanted in [
        (f"{alone}{TASKS[0]}", "Of 1 model that passes, 1 has the one task, and is ranked over it."),
        (
            f"{alone}{TASKS[0]},{TASKS[1]}",
            "Of 1 model that passes, 1 has all 2 tasks, and is ranked over these.",
        ),
        (
            f"{PATH}?models=1&task={TASKS[0]}",
            "12 models that pass, 12 have the one task, and are ranked over it.",
        ),
    ]:
        assert wanted in ask(client, query)["lead"]


def test_more_models_are_ranked_over_fewer_tasks(client: TestClient) -> None:
    for choice in ask(client, f"{PATH}?suite=mteb")["data"]["choices"]:
        data = ask(client, f"{PATH}?suite=mteb&models={choice['models']}")["data"]
        assert (len(data["tasks"]), data["models_ranked"]) == (choice["tasks"], choice["models"])


def test_the_current_choice_is_offered_however_few_scores_it_has(queries: Queries) -> None:
    answer = answer_question(queries, QuestionState(suite=["mteb"], models=1))
    others = [(1, 1000 - number) for number in range(20)]
    current = (len(answer.places), len(answer.ranked))
    choices = replace(answer, widths=[(41, 1), *others, current]).list_widths()
    labels = [label for label, _, is_current in choices if is_current]
    assert labels == ["{} tasks: {} models".format(*current)]
    assert "41 tasks: 1 model" in [label for label, *_ in choices]


def test_zero_shot_is_over_the_tasks_that_rank(client: TestClient) -> None:
    page = ask(client, f"{PATH}?suite=nanobeir&models=1&zero=all")
    trained = {name for name, (_, card) in draw_models().items() if card["training_datasets"]}
    assert page["data"]["tasks"][0] == TASKS[0]
    models = {row["cells"]["model"]["value"] for row in find_rows(page, "suite")}
    assert models
    assert models.isdisjoint(trained)
    without = ",".join(names("nanobeir")[1:])
    assert {*trained} & {
        row["cells"]["model"]["value"]
        for row in find_rows(ask(client, f"{PATH}?task={without}&zero=all"), "suite")
    }


@pytest.mark.parametrize(("zero", "most"), [("all", 0), ("most", 0.5)])
def test_the_choices_of_zero_shot_are_what_they_lead_to(client: TestClient, zero: str, most: float) -> None:
    asked = f"{PATH}?suite=nanobeir,mteb-MTEB-kor-v1&zero={zero}"
    choices = ask(client, asked)["data"]["choices"]
    assert len(choices) > 1
    models = draw_models()
    for choice in choices:
        address = f"{asked}&models={choice['models']}"
        data = ask(client, address)["data"]
        assert (len(data["tasks"]), data["models_ranked"]) == (choice["tasks"], choice["models"])
        unseen = [
            name for name, (scores, card) in models.items()
            if len({*card["training_datasets"]} & {*data["tasks"]}) <= most * len(data["tasks"])
            and {*data["tasks"]} <= scores.keys()
        ]  # fmt: skip
        assert len(unseen) == choice["models"]
        assert f"{choice['tasks']} tasks: {choice['models']} models" in re.findall(
            r'aria-current="true"[^>]*>([^<]*)', client.get(address, headers=BROWSER).text
        )
    assert "can be ranked." in ask(client, f"{asked}&models=99")["lead"]
    left_out = find_rows(ask(client, f"{asked}&models=1"), "left-out")
    passing = ask(client, f"{asked}&models=1")["data"]["models_pass"]
    assert all(row["cells"]["models"]["value"] <= passing for row in left_out)


def test_a_model_stands_beside_the_others_over_its_own_tasks_whatever_the_bounds(client: TestClient) -> None:
    scores = draw_models()["acme/m0"][0]
    page = ask(client, f"{PATH}?suite=mteb&beside=M0&most=1")
    rows = find_rows(page, "suite")
    assert [(row["kind"], "rank" in row["cells"]) for row in rows] == [("beside", False)]
    assert {*page["data"]["tasks"]} == {*scores} & {*names("mteb")}
    assert page["data"]["models_pass"] == 0
    assert page["lead"].startswith("No model that passes these bounds")
    assert "First is" not in page["lead"]
    assert '"frontier"' not in json.dumps(page["tables"][0])
    page = ask(client, f"{PATH}?suite=mteb&beside=m0&q=m1")
    passing = [row for row in find_rows(page, "suite") if row["kind"] != "beside"]
    outside = next(row["cells"] for row in find_rows(page, "suite") if row["kind"] == "beside")
    assert page["data"]["models_pass"] == len(passing)
    assert f"First is {passing[0]['cells']['model']['value']} (" in page["lead"]
    assert "acme/m0 does not pass the bounds, and is shown without a rank." in page["lead"]
    assert (outside["model"]["kind"], {"rank", "places", "borda"} & outside.keys()) == ("outside", set())
    # The others rank as if it were not there.
    alone = ask(client, f"{PATH}?q=m1&models=1&task={'&task='.join(page['data']['tasks'])}")
    for name in ("rank", "places"):
        with_it, without = (
            {
                row["key"]: row["cells"][name]["text"]
                for row in find_rows(one, "suite")
                if name in row["cells"]
            }
            for one in (page, alone)
        )
        assert with_it == without != {}
    inside = next(row for row in find_rows(ask(client, f"{PATH}?suite=mteb&beside=m0"), "suite")
                  if row["kind"] == "beside")  # fmt: skip
    assert (inside["cells"]["rank"]["value"] > 0, "kind" in inside["cells"]["model"]) == (True, False)


def test_the_answer_says_which_suite_was_taken_how_many_can_be_ranked_and_where_printed_glue_is(
    client: TestClient,
) -> None:
    assert "These are the tasks of MTEB(eng, v2), as no suite was chosen." in ask(client, PATH)["lead"]
    # Bounds of the tasks narrow that suite, unless it has no such task; any asks for those of every suite.
    narrowed, same, every = (
        ask(client, f"{PATH}?{query}type=Retrieval") for query in ("", "suite=mteb&", "suite=any&")
    )
    assert narrowed["data"] == same["data"]
    assert same["data"]["tasks_asked"] < every["data"]["tasks_asked"]
    assert "These are the tasks of MTEB(eng, v2), as no suite was chosen." in narrowed["lead"]
    assert "no suite was chosen" not in same["lead"] + every["lead"]
    korean = ask(client, f"{PATH}?language=kor")
    assert korean["data"] == ask(client, f"{PATH}?suite=any&language=kor")["data"]
    assert "These are the tasks of all suites, as no suite was chosen." in korean["lead"]
    assert "Asked of" not in ask(client, f"{PATH}?suite=mteb")["lead"]
    data = ask(client, f"{PATH}?suite=mteb&models=99999")
    assert f"No more than {data['data']['models_ranked']} can be ranked." in data["lead"]
    text = client.get(f"{PATH}?suite=glue", headers=BROWSER).text
    assert "No measured GLUE here; what papers print is on /glue." in text
    assert '<a href="/glue">GLUE as papers print it</a>' in text


def test_a_model_page_leads_to_its_place_in_the_suite_that_it_has_most_of(client: TestClient) -> None:
    page = client.get("/models/acme--m0", headers=BROWSER).text
    assert '<a href="/rank?beside=acme--m0">' in page
    data = ask(client, f"{PATH}?beside=acme--m0")["data"]
    assert {*data["tasks"]} <= {*draw_models()["acme/m0"][0]} & {*names("mteb")}


def test_a_task_under_several_names_counts_once(queries: Queries, client: TestClient) -> None:
    def make_suite(slug: str, *columns: Column) -> SiteSuite:
        return SiteSuite(
            slug=slug, typed=slug, suite=Suite(name=slug, title=slug, columns=columns), main=True
        )

    def make_column(name: str, task: Task, only: str = "") -> Column:
        return Column(name=name, type="STS", tasks=(task,), shown_only=only)

    sts, newer = (replace(fake_task(name), data=Data(path="a/sts")) for name in ("STS22", "STS22.v2"))
    other, long = fake_task("STS12"), replace(newer, splits=("long",))
    listed = {
        one.slug: one
        for one in (
            make_suite("first", make_column("part", sts), make_column("STS12", other, "too small")),
            make_suite("second", make_column("STS22", sts), make_column("STS12", other)),
            make_suite(
                "third",
                make_column("STS22.v2", newer),
                make_column("long", long),
                make_column("twelve", other),
            ),
        )
    }
    with mock.patch.object(queries, "suites", listed):
        # The order is that of the site, whatever that of the address; what is only shown is not there.
        for suites in ([], ["third", "second", "first"]):
            answer = answer_question(queries, QuestionState(type=["STS"], suite=suites))
            assert [column.name for column in answer.pool.site_suite.suite.columns] == [
                "part",
                "STS12",
                "long",
            ]
            assert answer.twins == {"STS22": "part", "STS22.v2": "part", "twelve": "STS12"}
        answer = answer_question(queries, QuestionState(suite=["second"]))
        columns = [column.name for column in answer.pool.site_suite.suite.columns]
        assert (columns, answer.twins) == (["STS22", "STS12"], {})
    twins = {"MSMARCO": "MSMARCO (dev)", **{f"T{n}": "U" for n in range(5)}}
    answer = replace(answer_question(queries, QuestionState(suite=["mteb"])), twins=twins)
    with mock.patch("leaderboard.pages.rank.answer_question", return_value=answer):
        page = ask(client, f"{PATH}?suite=mteb&most=899")  # in no cache
    assert page["data"]["counted_as"] == twins
    (note,) = (one for one in page["tables"][0]["notes"] if one.startswith("A task that is in another"))
    assert note.endswith(" counts once: MSMARCO (as MSMARCO (dev)), T0 (as U), T1 (as U), T2 (as U), "
                         "T3 (as U) and 1 more.")  # fmt: skip


def test_a_weight_is_the_same_as_a_task_several_times(queries: Queries) -> None:
    question = QuestionState(task=TASKS[:3], weight=[f"{TASKS[0]}:2"], models=1)
    scores = answer_question(queries, question).table.scores
    for row, entry in enumerate(scores.entries):
        if scores.over_tasks.complete[row]:
            own = draw_models()[entry.model][0]
            wanted = (2 * own[TASKS[0]] + own[TASKS[1]] + own[TASKS[2]]) / 4
            assert scores.over_tasks.values[row] == pytest.approx(wanted, abs=1e-12)


@pytest.mark.parametrize(("tasks", "has_half"), [(5, False), (6, True)])
def test_few_tasks_have_no_interval_of_the_mean(client: TestClient, tasks: int, has_half: bool) -> None:
    text = client.get(f"{PATH}.md?task={','.join(TASKS[:tasks])}&models=1").text
    assert ("± 95 %" in text, "Ranks are by the mean alone" in text) == (has_half, not has_half)


def test_few_tasks_claim_no_possible_ranks_and_the_answer_names_the_tasks(client: TestClient) -> None:
    for count in (2, 5):
        answer = ask(client, f"{PATH}?task={','.join(TASKS[:count])}&models=1&beside=m1")
        ranked = [row["cells"] for row in find_rows(answer, "suite") if "rank" in row["cells"]]
        assert {cells["places"]["text"] for cells in ranked} == {"–"}
        assert len(ranked) == answer["data"]["models_ranked"] > 1
        over = " and ".join(TASKS[:count]) if count == 2 else f"these {count} tasks"
        rank = next(cells["rank"]["text"] for cells in ranked if cells["model"]["value"] == "acme/m1")
        assert f"acme/m1 has rank {rank} of {len(ranked)} over {over}." in answer["lead"]
        (head,) = (one for one in answer["tables"][0]["columns"] if one["key"] == "places")
        assert head["note"] == "Fewer than 6 tasks leave every rank open."


def test_a_language_takes_the_subsets_in_it_alone(tmp_path: Path) -> None:
    name = "MassiveIntentClassification"
    listed = open_suites(f"mteb:{name}", "mteb:STS12")
    whole = next(iter(listed.values())).suite.tasks[0]
    (tmp_path / "results").mkdir()
    rows = [
        {"entry": 0, "task": name, "split": split, "subset": subset, "data_revision": whole.data.revision,
         "main_score": 0.9 if subset == "de" else 0.2, "flag": "", "mteb_version": "2.1.0"}
        for split in whole.splits for subset in whole.subsets
    ]  # fmt: skip
    put_imports(tmp_path / "results", [Import(model="acme/m", scores={name: 0.0}, rows=rows)])
    with mock.patch("leaderboard.data.snapshot.load_site_suites", return_value=listed):
        queries = open_site(small_settings(tmp_path)).queries
    answers = {
        code: answer_question(queries, QuestionState(language=[code])) for code in ("deu", "fra", "swe")
    }
    means = {code: one.table.scores.over_tasks.values.tolist() for code, one in answers.items()}
    assert means == {"deu": [0.9], "fra": [pytest.approx(0.2)], "swe": [pytest.approx(0.2)]}
    assert answers["deu"].table.scores.site_suite.suite.columns[0].tasks[0].subsets == ("de",)


def test_the_form_holds_the_whole_question_and_its_presets_are_answered(client: TestClient) -> None:
    page = client.get(f"{PATH}?type=Retrieval,STS&weight=STS:2&most=200", headers=BROWSER).text
    for field in ('value="Retrieval,STS" selected', 'name="weight" value="STS:2"', 'name="most" value="200"'):
        assert field in page
    home = client.get("/", headers=BROWSER).text
    presets = re.findall(
        r'href="(/rank[^"]*)"', home.partition('<section id="question">')[2].partition("</section>")[0]
    )
    assert len(presets) > 2
    for address in presets:
        assert client.get(address.replace("&amp;", "&"), headers=BROWSER).status_code == 200


def test_the_first_page_begins_with_the_question_and_its_answer(client: TestClient) -> None:
    home = client.get("/", headers=BROWSER).text
    main = home.partition("<main")[2]
    assert main.index('action="/rank"') < main.index("First is ") < main.index("board-cards")
    assert ask(client, PATH)["lead"] in home
