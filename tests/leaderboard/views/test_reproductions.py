"""Reproductions: the verdict on two numbers, planted copies, and MiniLM's records beside public numbers."""

from __future__ import annotations

import re
import subprocess
import tarfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from scipy import stats
from starlette.testclient import TestClient

import data_files
import site_data
from fakes import artifact
from harness.core import files
from harness.results.revisions import resolve_data_revision
from html_pages import BROWSER, Html, ask, find_rows, find_values
from leaderboard.data.entries import Entry, Origin, Trust
from leaderboard.data.mteb_import import import_results
from leaderboard.data.scores import RANDOM
from leaderboard.views.reproductions import (
    NumberPair,
    Value,
    compare_values,
    join_models,
    judge_value,
    load_comparisons,
    measure_draws,
    read_aliases,
)
from leaderboard.web.app import create_app
from leaderboard.web.site import Site, open_site
from site_data import Import

NANO = site_data.names("nanobeir")
MINILM = "sentence-transformers/all-MiniLM-L6-v2"
PUBLISHED = {
    "Banking77Classification": (0.8004220779220779, "0fd18e25b25c072e09e0d92ab615fda904d66300"),
    "EmotionClassification": (0.4083, "4f58c6b202a23cf9a4da393831edf4f9183cad37"),
    "STSBenchmark": (0.8203247283076371, "b0fddb56ed78048fa8b90373c8a3cfc37b684831"),
    "SciFact": (0.64508, "0228b52cf27578f30900b9e5271d331663a030d7"),
    "TweetSentimentExtractionClassification": (
        0.5404357668364459,
        "d604517c81ca91fe16a244d1248fc021f9ecee7a",
    ),
    "STS12": (0.7236899998079941, "a0d554a64d88156834ff5ae9920b964011b16384"),
}
"""Main scores of MiniLM in mteb's results, with the revision of their data."""


def value(score: float, origin: Origin = "imported", trust: Trust = "commit", **more: Any) -> Value:
    """A number of a model."""
    entry = Entry(
        model="o/m", origin=origin, source="paper-a" if origin == "reported" else origin, trust=trust,
        id=1, slug="s", model_slug="o--m", trained_on=None, newest=None, tasks=1,
    )  # fmt: skip
    facts = {"data": "d", "length": "256", "prompts": "{}"} if origin != "reported" else {}
    return Value(entry=entry, score=score, **{"conditions": facts, **more})


def stating(base: Value, **conditions: str) -> Value:
    """The same number, under other conditions."""
    return replace(base, conditions={**base.conditions, **conditions})


BASE = value(0.5, "measured", "measured")


@pytest.mark.parametrize(
    ("other", "expected"),
    [
        (value(0.5), "same"),
        (value(0.50014), "same"),
        (value(0.50016), "differs"),
        (value(0.52), "differs"),
        (stating(value(0.5), prompts='{"query": "q"}'), "settings"),
        (stating(value(0.5), length="512"), "settings"),
        (stating(value(0.5), data="e"), "data"),
        (stating(value(0.5), weights="w", data="e"), "data"),
        (replace(value(0.5), conditions={"length": "256"}), "unproven"),
        (replace(value(0.52), conditions={}), "differs"),
        (value(0.5005, "reported", "reported", unit=1e-3), "unproven"),
        (value(0.5007, "reported", "reported", unit=1e-3), "differs"),
        (value(0.0099, chance=0.0), "chance"),
        (value(0.0101, chance=0.0), "differs"),
        (value(0.5, chance=0.495), "chance"),
        (value(0.5, parts=0.3564), "parts"),
        (value(0.5, parts=0.5004), "same"),
    ],
)
def test_the_verdict_on_a_number_beside_another(other: Value, expected: str) -> None:
    assert judge_value(other, BASE) == expected


def test_two_commits_or_two_hashes_are_other_models() -> None:
    commits = [stating(value(0.5), commit=letter * 40) for letter in "ab"]
    weights = [stating(value(0.5), weights=letter * 64) for letter in "ab"]
    assert judge_value(*commits) == judge_value(*weights) == "weights"
    assert judge_value(commits[0], weights[0]) == "same"


def test_a_number_stands_beside_the_better_known_one_that_it_agrees_with_best() -> None:
    prompted = stating(value(0.7, "measured", "measured"), prompts='{"query": "q"}')
    public, broken = value(0.5), value(0.001, trust="external", chance=0.0)
    rows = list(compare_values("o--m", "T", "", [broken, public, prompted, BASE]))
    assert [(one.value, one.base, one.verdict) for one in rows] == [
        (BASE, prompted, "settings"), (public, BASE, "same"), (broken, prompted, "chance"),
    ]  # fmt: skip
    assert [one.is_independent for one in rows] == [False, True, True]
    lines = [value(0.5, "reported", "reported"), value(0.6, "reported", "reported")]
    assert list(compare_values("o--m", "T", "", lines)) == []


def site_over(folder: Path, imports: list[Import], scores: Mapping[str, float], **settings: Any) -> Site:
    """A site over an import, and over records of the model o/m."""
    measured = artifact(Path("o/m"), key="c" * 64, name="o/m", revision=site_data.COMMIT)
    records = [site_data.scored(measured, *pair) for pair in scores.items()]
    plain = {"prompts_asked": {"named": {}, "default": None}}
    records = [r.model_copy(update={"provenance": {**r.provenance, **plain}}) for r in records]
    site_data.put(folder / "results", measured, records)
    site_data.put_imports(folder / "results", imports)
    with mock.patch("leaderboard.data.snapshot.load_site_suites", return_value=site_data.suites()):
        return open_site(replace(site_data.small_settings(folder), **settings))


def by_task(site: Site, model: str) -> dict[str, NumberPair]:
    """The comparisons of a model's public numbers by task."""
    rows = load_comparisons(site.queries)
    return {one.task: one for one in rows if one.value.entry.model == model}


CARD = {"max_tokens": 128.0, "use_instructions": False}
PLANTED = {"same": 0.6, "differs": 0.62, "data": 0.6, "chance": 0.31, "wide": 0.4}
TASKS = dict(zip(PLANTED, NANO, strict=False))


def planted(folder: Path, **card: Any) -> Site:
    """Copies of measured scores: the same, 2 points off, on other data, at chance level, and a fair one."""
    public = {TASKS[kind]: score for kind, score in PLANTED.items()}
    imports = [
        Import(model="o/m", scores=public, others=[TASKS["data"]], card={**CARD, **card}),
        Import(model=RANDOM, revision="1", scores={TASKS["chance"]: 0.305}),
        Import(model="o/broken", scores={TASKS["same"]: 0.004, TASKS["wide"]: 0.3}),
    ]
    return site_over(folder, imports, dict.fromkeys(NANO[:4], 0.6))


def test_planted_copies_get_the_right_verdicts(tmp_path: Path) -> None:
    site = planted(tmp_path)
    verdicts = {task: (one.verdict, one.build_cell().text) for task, one in by_task(site, "o/m").items()}
    assert verdicts == {
        TASKS["same"]: ("same", "same"), TASKS["differs"]: ("differs", "differs by +2.00"),
        TASKS["data"]: ("data", "other data revision"), TASKS["chance"]: ("chance", "at chance level"),
    }  # fmt: skip
    assert {one.verdict for one in by_task(site, "o/broken").values()} == {"chance"}
    prompted = planted(tmp_path / "prompted", use_instructions=True)
    assert by_task(prompted, "o/m")[TASKS["same"]].verdict == "settings"
    longer = planted(tmp_path / "longer", max_tokens=512.0)
    assert by_task(longer, "o/m")[TASKS["same"]].verdict == "settings"


DRAWS = {"Level 0": [0.33, 0.41, 0.46, 0.52], "Level 1": [0.4, 0.5, 0.6, 0.7]}


def test_the_interval_of_random_draws_is_that_of_two_independent_runs() -> None:
    halves = [stats.sem(draws) * stats.t.ppf(0.975, 3) for draws in DRAWS.values()]
    mean = float(np.mean([*DRAWS.values()]))
    metrics = {"v_measures": DRAWS, "v_measure": mean, "main_score": mean}
    # The mean of two lists, of which each run has its own.
    wanted = np.sqrt(2 * (halves[0] ** 2 + halves[1] ** 2)) / 2
    assert measure_draws({"test": {"default": metrics}}) == pytest.approx(wanted)
    assert measure_draws({"test": {"a": metrics, "b": metrics}}) == pytest.approx(wanted / np.sqrt(2))
    for other in (
        {"main_score": mean + 0.01},
        {"v_measures": mean},
        {"v_measures": [{"a": 0.1}, {"a": 0.2}]},
    ):
        assert measure_draws({"test": {"default": {**metrics, **other}}}) == 0
    assert measure_draws({"test": {"a": metrics, "b": {"main_score": mean}}}) == measure_draws({}) == 0


@pytest.mark.parametrize(
    ("score", "version", "expected"),
    [
        (0.60, "1.12.75", ("draws", "differs by +10.00, as two runs may")),
        (0.90, "1.12.75", ("differs", "differs by +40.00")),
        # One version draws the same.
        (0.60, "2.26.24", ("differs", "differs by +10.00")),
        (0.60, "", ("differs", "differs by +10.00")),
    ],
)
def test_random_draws_of_another_version_of_mteb_explain_a_difference(
    tmp_path: Path, score: float, version: str, expected: tuple[str, str]
) -> None:
    measured = artifact(Path("o/m"), key="c" * 64, name="o/m", revision=site_data.COMMIT)
    record = site_data.scored(measured, NANO[0], 0.5)
    metrics = {"v_measures": {"Level 0": [0.4, 0.5, 0.5, 0.6]}, "main_score": 0.5}
    scores = {split: dict.fromkeys(subsets, metrics) for split, subsets in record.scores.items()}
    identity = {**record.identity, "scoring": "mteb 2.26.24"}
    provenance = {**record.provenance, "prompts_asked": {"named": {}, "default": None}}
    new = {"scores": scores, "identity": identity, "provenance": provenance}
    record = record.model_copy(update=new)
    site_data.put(tmp_path / "results", measured, [record])
    imports = [Import(model="o/m", scores={NANO[0]: score}, card=CARD, version=version)]
    site = site_over(tmp_path, imports, {})
    (pair,) = by_task(site, "o/m").values()
    assert (pair.verdict, pair.build_cell().text) == expected
    assert ("other random draws: ± " in pair.reason) == (version == "1.12.75")


def test_a_file_that_contradicts_its_own_parts_says_so(tmp_path: Path) -> None:
    column = next(c for c in site_data.open_suites("beir")["beir"].suite.columns if len(c.tasks) > 1)
    usual = {"entry": 0, "split": "test", "subset": "default", "flag": "", "mteb_version": "2"}
    rows = [
        {**usual, "task": t.name, "data_revision": t.data.revision, "main_score": 0.35} for t in column.tasks
    ]
    whole = {**usual, "task": column.name, "data_revision": "1" * 40, "main_score": 0.05}
    folder = tmp_path / "results"
    good = [{**row, "entry": 1} for row in [*rows, {**whole, "main_score": 0.3504}]]
    imports = [Import(model=name, scores={r["task"]: 0.0 for r in some}, rows=some)
               for name, some in (("o/bad", [*rows, whole]), ("o/good", good))]  # fmt: skip
    site_data.put_imports(folder, imports)
    with mock.patch("leaderboard.data.snapshot.load_site_suites", return_value=site_data.open_suites("beir")):
        site = open_site(site_data.small_settings(tmp_path))
    assert {task: one.verdict for task, one in by_task(site, "o/bad").items()} == {column.name: "parts"}
    assert by_task(site, "o/good") == {}


def test_pages_show_the_verdicts(tmp_path: Path) -> None:
    planted(tmp_path)
    with mock.patch("leaderboard.data.snapshot.load_site_suites", return_value=site_data.suites()):
        client = TestClient(create_app(site_data.small_settings(tmp_path)))
    model = find_values(ask(client, "/models/o--m"), "reproductions")
    assert {row["name"]: row["verdict"] for row in model}[TASKS["differs"]] == "differs by +2.00"
    assert [row["delta"] for row in model][:2] == [-29.0, 2.0]
    assert not any(row["base"] is None for row in model)
    [table] = [one for one in ask(client, "/models/o--m")["tables"] if one["name"] == "reproductions"]
    same = sum(row["verdict"] == "same" for row in model)
    assert table["caption"].startswith(
        f"{same} of {len(model)} numbers agree with a second number of this model"
    )
    refused = client.get("/reproductions.json?model=m")
    assert refused.json()["error"]["message"] == "There is no parameter 'model'. Did you mean q?"
    ranking = find_values(ask(client, f"/tasks/{TASKS['same']}"), "ranking")
    assert {row["model"]: row.get("reproduced") for row in ranking} == {
        "o/m": "same",
        "o/broken": "at chance level",
    }
    every = find_values(ask(client, "/suites/nanobeir"), "suite")
    assert {row["model"]: row.get("reproduced") for row in every} == {
        "o/m": 1,
        "o/broken": None,
        RANDOM: None,
    }
    cells = [row["cells"].get("reproduced") for row in ask(client, "/suites/nanobeir")["tables"][0]["rows"]]
    [note] = [cell["note"] for cell in cells if cell]
    assert re.match(r"1 same: Nano\w+; .*\b\d not comparable: Nano", note)
    some = find_values(ask(client, "/suites/nanobeir?reproduced=1"), "suite")
    assert {row["model"] for row in some} == {"o/m"}
    pairs = ask(client, f"/reproductions?task={TASKS['differs']}")["tables"][0]["rows"]
    numbers = [pairs[0]["cells"][key] for key in ("base", "value")]
    for number, other, source in zip(numbers, numbers[::-1], ("mteb's results", "this harness"), strict=True):
        text = Html(client.get(number["href"], headers=BROWSER).text).text
        assert f"{other['text']} by {source}: differs by +2.00" in text
    page = ask(client, "/reproductions")
    assert len(find_values(page, "pairs")) == 4
    assert 'data-label="Difference"' in client.get("/reproductions", headers=BROWSER).text
    assert page["lead"].startswith("4 numbers stand beside another")
    assert page["lead"].endswith(" scores are at chance level.")
    address = f"/reproductions?task={TASKS['differs']}"
    assert ask(client, address)["lead"].startswith("1 number stands beside another")
    assert "chance" not in ask(client, address)["lead"]
    assert {row["by"] for row in find_values(page, "pairs")} == {"this harness"}
    assert {row["source"] for row in find_values(page, "pairs")} == {"mteb's results"}
    assert f'name="task" value="{TASKS["differs"]}"' in client.get(address, headers=BROWSER).text
    assert find_values(page, "versions")[0]["compared"] == 4
    [row] = [row for row in find_values(page, "tasks") if row["name"] == TASKS["differs"]]
    assert (row["same"], row["differs"], row["median"], row["most"]) == (0, 1, 2.0, 2.0)
    assert [r["task"] for r in find_values(ask(client, "/reproductions?verdict=same"), "pairs")] == [
        TASKS["same"]
    ]
    broken = ask(client, "/reproductions?verdict=chance&q=broken")
    rows = find_values(broken, "pairs")
    plural = "s" if len(rows) > 1 else ""
    assert broken["lead"] == f"{len(rows)} number{plural} with the verdict “at chance level”."
    assert all(row["why"].startswith("a random answer gets ") for row in rows)
    # What a verdict or a model's page leads to has the rows that it is about.
    cells = [
        row["cells"].get("reproduced") for row in find_rows(ask(client, f"/tasks/{TASKS['same']}"), "ranking")
    ]
    [link] = [cell["href"] for cell in cells if cell and cell["text"] == "at chance level"]
    assert [(row["model"], row["verdict"]) for row in find_values(ask(client, link), "pairs")] == [
        ("o/broken", "at chance level")
    ]
    own = Html(client.get("/models/o--broken", headers=BROWSER).text).hrefs
    [link] = [href for href in own if href.startswith("/reproductions?") and "task=" not in href]
    shown = ask(client, link)
    assert len(find_values(shown, "pairs")) == len(
        find_values(ask(client, "/models/o--broken"), "reproductions")
    )
    assert shown["lead"].endswith(f" {len(rows)} broken number{plural} without another.")


def test_a_mark_says_which_scores_are_at_chance_level(tmp_path: Path) -> None:
    planted(tmp_path)
    with mock.patch("leaderboard.data.snapshot.load_site_suites", return_value=site_data.suites()):
        client = TestClient(create_app(site_data.small_settings(tmp_path)))
    text = client.get(f"/suites/nanobeir.md?cols={TASKS['same']}").text
    assert "0.40○" in text
    assert "60.00○" not in text
    # A mean is not at chance level as one of its parts is.
    (mean,) = (row["cells"]["tasks"] for row in find_rows(ask(client, "/suites/nanobeir"), "suite")
               if row["cells"]["model"]["value"] == "o/broken")  # fmt: skip
    assert "chance" in mean["kind"].split()
    assert re.search("[0-9]+ of its [0-9]+ tasks at chance level", mean["note"])
    legend = Html(client.get("/suites/nanobeir", headers=BROWSER).text).text
    assert "no better than a random answer (at a mean: a part of it is, not the mean)" in legend


@pytest.mark.parametrize("apart", [False, True])
def test_printed_numbers_of_an_unknown_convention_are_not_compared(tmp_path: Path, apart: bool) -> None:
    queries = planted(tmp_path).queries
    number = next(one.id for one in queries.entries.values() if one.model == "o/m")
    document = {"columns": {TASKS["same"]: 0.75}, "apart": apart}
    with mock.patch.object(queries, "list_averages", return_value=[(number, "nanobeir", "", document)]):
        scores = {one.value.score for one in load_comparisons(queries)}
    assert (0.75 in scores) == (not apart)


def test_models_are_joined_by_the_hash_of_their_weights_alone(tmp_path: Path) -> None:
    weights, name = next(iter(read_aliases().items()))
    imports = [Import(model=name, scores={NANO[0]: 0.5}), Import(model="o/minilm", scores={NANO[0]: 0.5})]
    for folder, model, key, own in (("a", "minilm", "d", weights), ("b", "copy", "e", weights),
                                    ("c", "all-MiniLM-L6-v2", "f", "9" * 64)):  # fmt: skip
        made = replace(artifact(Path(folder), key=key * 64, name=model), weights=own)
        site_data.put(tmp_path / "results", made, [site_data.scored(made, NANO[0], 0.5)])
    queries = site_over(tmp_path, imports, {}).queries
    pages = join_models(queries)
    joined = {
        entry.model: pages[entry.id] for entry in queries.entries.values() if entry.origin != "reported"
    }
    assert joined["minilm"] == joined["copy"] == joined[name] == queries.models[joined[name]][0].model_slug
    assert joined[name] not in (joined["all-MiniLM-L6-v2"], joined["o/minilm"])


def test_measured_minilm_agrees_with_the_published_numbers(tmp_path: Path) -> None:
    usual = {"entry": 0, "split": "test", "subset": "default", "flag": "", "mteb_version": "1.12.75"}
    rows = [{**usual, "task": task, "main_score": score, "data_revision": data}
            for task, (score, data) in PUBLISHED.items()]  # fmt: skip
    card = {"max_tokens": 256.0, "use_instructions": False}
    scores = {task: score for task, (score, _) in PUBLISHED.items()}
    site_data.put_imports(tmp_path / "results", [Import(model=MINILM, scores=scores, rows=rows, card=card)])
    typed = tuple(f"mteb:{task}" for task in PUBLISHED)
    with mock.patch("leaderboard.data.snapshot.load_site_suites", return_value=site_data.open_suites(*typed)):
        site = open_site(replace(site_data.small_settings(tmp_path), reference=files.find_reference_folder()))
    verdicts = {task: one.verdict for task, one in by_task(site, MINILM).items()}
    # The texts of this copy are others: mteb's statistics of the revision do not fit it.
    assert verdicts.pop("STS12") == "data"
    assert "test, sentence1: 193,389 characters, stated are 198,256" in by_task(site, MINILM)["STS12"].reason
    assert verdicts == dict.fromkeys(PUBLISHED.keys() - {"STS12"}, "same")


@pytest.mark.slow
@pytest.mark.shared
def test_measured_minilm_agrees_with_the_whole_import(tmp_path: Path, shared: Path) -> None:
    archive = shared.parent / "mteb-results.tar.xz"
    if not archive.exists():
        pytest.skip("needs mteb-results.tar.xz, a copy of mteb's public results")
    with tarfile.open(archive, "r|xz") as packed:
        for member in packed:
            if MINILM.replace("/", "__") in member.name:
                packed.extract(member, tmp_path, **data_files.UNPACKED)
    import_results(tmp_path / "results", tmp_path / "out")
    settings = replace(site_data.small_settings(tmp_path), results=(tmp_path / "out",),
                       reference=files.find_reference_folder())  # fmt: skip
    rows = load_comparisons(open_site(settings).queries)
    measured = {one.task: one for one in rows if one.base and one.base.entry.origin == "measured"}
    others = {task: one.build_cell().text for task, one in measured.items() if one.verdict != "same"}
    assert others == {
        "STS12": "other data revision", "STS13": "other data revision",
        "SIB200ClusteringS2S": "differs by −2.69, as two runs may",
    }  # fmt: skip
    assert len(measured) == 10
    assert measured["STS13"].reason.endswith("sentence2: 67,475 characters, stated are 68,848")
    assert measured["SIB200ClusteringS2S"].reason == (
        "scored by mteb 2.26.24 / 1.12.75; other random draws: ± 4.91"
    )


def test_a_revision_is_the_same_as_another_only_by_the_table() -> None:
    assert (
        resolve_data_revision("SciFact", PUBLISHED["SciFact"][1])
        == "d56462d0e63a25450459c4f213e49ffdb866f7f9"
    )
    assert resolve_data_revision("SciFact", "a75ae049398addde9b70f6b268875f5cbce99089").startswith("a75ae049")


def test_a_result_says_which_folder_and_commit_have_its_record(tmp_path: Path) -> None:
    def show_origin() -> tuple[str, str]:
        with mock.patch("leaderboard.data.snapshot.load_site_suites", return_value=site_data.suites()):
            client = TestClient(create_app(site_data.small_settings(tmp_path)))
        number = client.app.state.site.queries.find_results(task=NANO[0])[0].id  # type: ignore[attr-defined]
        data = ask(client, f"/results/{number}")["data"]
        return data["record"], data["commit"]

    measured = artifact(Path("o/m"), key="c" * 64, name="o/m")
    site_data.put(tmp_path / "results", measured, [site_data.scored(measured, NANO[0], 0.5)])
    assert show_origin() == ("results", None)
    for command in ("init -q", "add .", "-c user.name=n -c user.email=e@e commit -qm m"):
        subprocess.run(["git", *command.split()], cwd=tmp_path / "results", check=True)
    shown, commit = show_origin()
    assert (shown, len(commit)) == ("results", 40)
