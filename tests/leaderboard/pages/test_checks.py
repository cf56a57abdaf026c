"""The pages of checks and of watches."""

from __future__ import annotations

import copy
import csv
import io
import json
import math
import os
import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

import site_data
from check_data import TASKS, small_check
from harness.checks.outcome import CHECKS, VERDICTS, AskedQuestion, CheckedModel
from harness.core.documents import append_digest
from harness.storage.store import Store
from harness.watch import state
from html_pages import BROWSER, Html, ask, figures, find_rows, printed
from judged_data import (
    NEWEST,
    NIGHTS,
    OLDEST,
    checkpoint,
    nightly,
    put_records,
    put_watch,
    rescore,
    small_watch,
)
from leaderboard.data.documents import format_document_name, format_line_name
from leaderboard.pages.runs import list_watch_values
from leaderboard.views.documents import find_suite_path
from site_data import HOSTILE, Parsed, every_path

# The pages of checks: model lines, their histories, and every number of a check
LINE = format_line_name(nightly(0))
LONE = "20260102T030405-0123456789ab"


def opened(folder: Path) -> TestClient:
    """A site over checks or watches alone."""
    return TestClient(site_data.small_app(folder, lambda _: None))


def page(client: TestClient, path: str) -> Html:
    """A page, whose elements must be well nested."""
    answer = client.get(path, headers=BROWSER)
    assert answer.status_code == 200, answer.text
    assert Parsed(answer.text).wrong == []
    return Html(answer.text)


def rows(client: TestClient, path: str, name: str) -> list[dict[str, Any]]:
    return find_rows(ask(client, path.removesuffix(".json")), name)


def test_every_line_with_its_last_verdict(client: TestClient) -> None:
    found = page(client, "/checks")
    head, *body = found.texts("lines")
    assert [row[0] for row in body] == ["release", "acme/elsewhere"]
    first = dict(zip(head, body[0], strict=True))
    assert first["Suites"] == "nanobeir"
    assert first["Last verdict"] == "regressed"
    assert first["Difference of the mean"] == "−1.50"
    assert first["Last candidate"] == "minilm-ish"
    assert first["When"] == "2026-01-28 03:04 UTC"
    assert first["Checks"] == str(NIGHTS)
    assert {f"/checks/{LINE}", f"/check/{NEWEST}"} <= found.hrefs


def test_marks_are_the_last_twenty_in_words_as_well(client: TestClient) -> None:
    """The newest stands on the right; those who cannot see marks get one sentence."""
    expected = [nightly(number).overall for number in range(NIGHTS)][-20:]
    found = page(client, "/checks")
    marks = found.named("span")
    (label,) = [a["aria-label"] for a in marks if "passed 4 times, then regressed" in a.get("aria-label", "")]
    assert label.startswith("inconclusive, then passed 6 times")
    titles = [a["title"].rpartition(": ")[2] for a in marks if a.get("title", "").endswith(tuple(VERDICTS))]
    assert titles[:20] == expected
    (row, _) = rows(client, "/checks.json", "lines")
    assert row["cells"]["history"]["value"] == ", ".join(expected)


def test_a_site_without_checks_says_how_to_make_one(tmp_path: Path) -> None:
    client = opened(tmp_path)
    assert "harness check --candidate" in page(client, "/checks").text
    assert "harness watch" in page(client, "/watches").text
    assert not {"/checks", "/watches"} & page(client, "/").hrefs
    paths = every_path(client.app)  # type: ignore[arg-type]
    assert not [path for path in paths if "check" in path or "watch" in path]


def test_the_header_leads_to_what_there_is(client: TestClient) -> None:
    assert "/checks" in page(client, "/").hrefs
    assert "/watches" in page(client, "/checks").hrefs
    assert {"/checks", "/watches"} <= page(client, "/watch/base-run").hrefs


def test_the_history_of_a_line(client: TestClient) -> None:
    found = page(client, f"/checks/{LINE}")
    *_, head = [row for row in found.texts("history") if "Candidate" in row]
    body = [dict(zip(head, row, strict=True)) for row in found.texts("history") if len(row) == len(head)][1:]
    assert [row["When"][8:10] for row in body] == [f"{day:02}" for day in range(NIGHTS + 2, 2, -1)]
    ends = [body[0][name] for name in ("Verdict", "Difference", "from", "to")]
    assert ends == ["regressed", "−1.50", "−1.80", "−1.20"]
    counts = [body[0][name] for name in ("regressed", "inconclusive", "untested", "of")]
    assert counts == ["1", "1", "2", "5"]
    assert "Newest verdicts: passed 4 times, then regressed." in found.text


def test_the_picture_of_a_line(client: TestClient) -> None:
    """A link and an interval for each check, and the margin behind them."""
    figure = drawn(client, f"/checks/{LINE}")
    by_time = {
        x: ends
        for trace in figure["data"] for bars in [trace["error_y"]]
        for x, *ends in zip(trace["x"], trace["customdata"], bars["array"], bars["arrayminus"], strict=True)
    }  # fmt: skip
    assert len(by_time) == NIGHTS
    assert by_time[min(by_time)][0] == f"/check/{OLDEST}"
    assert by_time[max(by_time)] == [f"/check/{NEWEST}", pytest.approx(0.3), pytest.approx(0.3)]
    (band,) = figure["layout"]["shapes"]
    assert (band["y0"], band["y1"]) == (-0.5, 0.0)


def test_a_check_in_full(client: TestClient) -> None:
    found, check = page(client, f"/check/{NEWEST}"), nightly(NIGHTS - 1)
    head, *body = found.texts("tasks")
    by_task = {row[0]: dict(zip(head, row, strict=True)) for row in body}
    assert [row[1] for row in body] == sorted((t.verdict for t in TASKS), key=VERDICTS.index)
    fact = by_task["SciFact"]
    shown = ("Difference", "from", "to", "p", "Allowed loss", "Loss it can see")
    assert [fact[n] for n in shown] == ["−3.50", "−5.00", "−2.00", "< 0.001", "2.50", "1.70"]
    assert (fact["Candidate"], fact["Baseline"], fact["Units"]) == ("61.00", "64.50", "300 queries")
    banking = by_task["Banking77Classification"]
    assert banking["Units"] == "3,080 texts, 3 against 5 runs"
    assert banking["Why, what would settle it"] == "about 9,000 texts or about 12 seeds of each"
    assert "Look at SciFact first" in found.text
    assert "harness compare" in found.text
    # Its suspect is inconclusive, which its row says.
    assert "Lower, but" not in found.text
    for sentence in (*check.because, *check.warnings, "tiny-base", "runs/night-25"):
        assert sentence in found.text
    assert {row[0]: row[1] for row in found.texts("policy")}["changed"] == "0.15"
    (means,) = rows(client, f"/check/{NEWEST}.json", "means")
    assert means["cells"]["delta"]["value"] == printed(check.means[0].delta)
    assert means["cells"]["candidate"]["value"] == printed(check.means[0].candidate)


def test_the_formats_of_a_check(client: TestClient) -> None:
    document = client.get(f"/check/{NEWEST}.json").json()
    plain = json.loads(json.dumps(nightly(NIGHTS - 1).to_json()))
    assert document["data"]["check"] == {name: value for name, value in plain.items() if name != "schema"}
    assert (document["data"]["line"], document["notes"]) == (LINE, list(nightly(NIGHTS - 1).warnings))
    lines = list(csv.reader(io.StringIO(client.get(f"/check/{NEWEST}.csv").text, newline="")))
    tasks = lines[lines.index([]) + 1 :]
    scifact = dict(zip(tasks[0], next(row for row in tasks if row and row[0] == "SciFact"), strict=False))
    assert (scifact["Difference"], scifact["from"]) == ("-3.5", "-5.0")


def test_a_check_leads_to_what_the_site_has(client: TestClient) -> None:
    """Both models by ArtifactKey, the baseline first in the comparison; tasks and suites with pages."""
    entries = {e.artifact: e for e in client.app.state.site.queries.entries.values()}  # type: ignore[attr-defined]
    candidate, baseline = entries["a" * 64], entries["b" * 64]
    found = page(client, f"/check/{NEWEST}").hrefs
    compare = f"/compare?m={baseline.slug}&m={candidate.slug}&suite=nanobeir"
    assert compare in found
    assert client.get(f"/check/{NEWEST}.json").json()["data"]["compare"] == compare
    assert page(client, compare).text
    assert f"/models/{candidate.model_slug}?entry={candidate.slug}" in found
    assert {"/tasks/Banking77Classification", "/suites/nanobeir", f"/checks/{LINE}"} <= found
    assert not any("TRECCOVID" in href for href in found)


def test_a_suite_is_found_by_its_name_or_as_it_was_typed(client: TestClient) -> None:
    queries = client.app.state.site.queries  # type: ignore[attr-defined]
    for found, one in queries.suites.items():
        assert {find_suite_path(queries, name) for name in (one.typed, one.suite.name)} == {
            f"/suites/{found}"
        }
    assert find_suite_path(queries, "nothing") == ""


def test_models_that_the_site_lacks_are_said(client: TestClient) -> None:
    found = page(client, f"/check/{LONE}")
    assert "Not both models have records on this site" in found.text
    assert not any(href.startswith("/compare?") for href in found.hrefs)
    assert client.get(f"/check/{LONE}.json").json()["data"]["compare"] is None


def test_scores_lead_to_their_records(tmp_path: Path) -> None:
    model = site_data.measured_model("minilm-ish")
    record = site_data.scored(model, site_data.names("nanobeir")[0], 0.5)
    site_data.put(tmp_path / "results", model, [record])
    task = replace(TASKS[0], task=record.task.name, candidate_keys=(record.key,))
    same = CheckedModel(name="minilm-ish", source="x", artifacts=("a" * 64,))
    small_check(tasks=(task,), candidate=same, baseline=same).write(tmp_path / "results")
    client = opened(tmp_path)
    (row,) = rows(client, f"/check/{LONE}.json", "tasks")
    answer = client.get(row["cells"]["candidate"]["href"] + ".json")
    assert answer.json()["title"] == f"minilm-ish on {record.task.name}"
    assert "href" not in row["cells"]["baseline"]
    assert "Both are one model here" in page(client, f"/check/{LONE}").text


def test_a_page_names_the_suspects_that_a_report_names(tmp_path: Path) -> None:
    """Of a port neither what is red nor what may be no lower."""
    red, passed, chance = (
        replace(TASKS[0], task=name, verdict=verdict, high=high, suspect=True)
        for name, verdict, high in (
            ("Red", "regressed", -0.02),
            ("Low", "passed", -0.02),
            ("Far", "passed", 0.01),
        )
    )
    for question, named in (("port", "Low"), ("replace", "Low Far")):
        folder = tmp_path / question
        asked = AskedQuestion(name=question)
        small_check(tasks=(red, passed, chance), question=asked).write(folder / "results")
        text = page(opened(folder), f"/check/{LONE}").text
        (line,) = (line for line in text.splitlines() if "Lower, but" in line)
        assert [name for name in ("Red", "Low", "Far") if f"{name} −3.50" in line] == named.split()


def test_an_id_leads_to_the_newest_check_of_it(tmp_path: Path) -> None:
    results = tmp_path / "results"
    for hour, overall in (("03", "passed"), ("05", "improved"), ("04", "regressed")):
        small_check(when=f"2026-01-02T{hour}:00:00+00:00", overall=overall).write(results)
    client = opened(tmp_path)
    for name, overall in (("0123456789ab", "improved"), ("20260102T040000-0123456789ab", "regressed")):
        assert ask(client, f"/check/{name}")["data"]["check"]["overall"] == overall


@pytest.mark.parametrize("path", ["/check/none", "/checks/none", "/check/..%2f..", "/watch/none"])
def test_what_is_none_is_said(client: TestClient, path: str) -> None:
    assert client.get(path, headers=BROWSER).status_code == 404


def test_a_line_is_a_baseline_its_suites_and_a_recipe() -> None:
    one = small_check()
    assert format_line_name(one) == format_line_name(
        replace(one, candidate=CheckedModel(name="x", source="x", artifacts=()))
    )
    assert format_line_name(one) == format_line_name(
        replace(one, baseline=replace(one.baseline, name="later", artifacts=("1",)))
    )
    others = [
        replace(one, suites=("beir",)),
        replace(one, recipe="glue-quick"),
        replace(one, baseline=replace(one.baseline, baseline="stable")),
        replace(one, baseline=replace(one.baseline, name="release", baseline="")),
    ]
    assert len({format_line_name(check) for check in [one, *others]}) == 5
    ends = [
        format_line_name(replace(one, suites=suites)).rpartition("-")[2]
        for suites in (("a", "b"), ("b", "a"))
    ]
    assert ends[0] == ends[1]


def test_a_model_names_the_checks_that_judged_it(client: TestClient) -> None:
    entries = {e.artifact: e for e in client.app.state.site.queries.entries.values()}  # type: ignore[attr-defined]
    found = page(client, f"/models/{entries['a' * 64].model_slug}")
    assert f"It was checked {NIGHTS} times; the newest 10" in found.text
    assert f"/check/{NEWEST}" in found.hrefs
    assert len(found.texts("checks")) == 11
    assert "checks" not in page(client, f"/models/{entries['b' * 64].model_slug}").tables


def test_what_is_new_gone_or_changed_is_seen(tmp_path: Path) -> None:
    results, path = tmp_path / "results", Path()
    client = opened(tmp_path)
    site = client.app.state.site  # type: ignore[attr-defined]

    def shown() -> list[str]:
        site.refresh()
        return [row["cells"]["verdict"]["value"] for row in rows(client, "/checks.json", "lines")]

    assert shown() == []
    path = small_check(overall="passed").write(results)
    assert shown() == ["passed"]
    assert "/checks" in page(client, "/").hrefs
    version = site.queries.version
    assert shown() == ["passed"]
    assert site.queries.version == version  # nothing was read anew
    small_check(overall="inconclusive").write(results)
    assert shown() == ["inconclusive"]
    path.unlink()
    assert shown() == []
    assert "/checks" not in page(client, "/").hrefs


def damaged() -> Iterator[bytes]:
    """Files that are no checks."""
    whole = small_check().to_json()
    yield from (b"", b"{", b"[]", b"null", b"3", b'"x"', b"{}", b"\xff\xfe", b"[" * 100_000)
    yield b'{"schema": "1"}'
    yield json.dumps({**whole, "schema": 99}).encode()
    yield json.dumps(whole).encode()[:-200]
    for name, value in (
        ("tasks", None), ("tasks", [1]), ("tasks", "SciFact"), ("candidate", "x"), ("overall", "fine"),
        ("when", None), ("means", [{"suite": "mteb"}]), ("policy", [1]), ("exit_code", "none"),
    ):  # fmt: skip
        yield json.dumps({**whole, name: value}).encode()
    yield json.dumps({name: value for name, value in whole.items() if name != "baseline"}).encode()


def test_damaged_files_are_left_out(tmp_path: Path) -> None:
    folder = tmp_path / "results" / "checks"
    small_check().write(tmp_path / "results")
    for number, content in enumerate(damaged()):
        (folder / f"broken-{number}.json").write_bytes(content)
    (folder / "folder.json").mkdir()
    os.symlink("nowhere", folder / "gone.json")
    (folder / ".half.json").write_text("{")
    client = opened(tmp_path)
    assert [row["key"] for row in rows(client, "/checks.json", "lines")] == [format_line_name(small_check())]
    assert client.get("/check/broken-0", headers=BROWSER).status_code == 404
    page(client, f"/check/{LONE}")


def leaves(value: Any, *above: Any) -> Iterator[tuple[Any, ...]]:
    """The ways to every value of a document."""
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    yield above
    for key, inner in pairs:
        yield from leaves(inner, *above, key)


def test_a_check_with_an_odd_value_takes_no_page_down(tmp_path: Path) -> None:
    """Any part of a check becomes something else: it is shown or left out, and every page answers."""
    draw = random.Random(7)
    odd: list[Any] = [
        None, "", HOSTILE, "\x00\ud800", -1, 10**400, 1e308, float("nan"), float("inf"), True, [], {}, ["x"],
    ]  # fmt: skip
    folder = tmp_path / "results" / "checks"
    folder.mkdir(parents=True)
    whole, night = nightly(NIGHTS - 1).to_json(), CHECKS.stem(nightly(NIGHTS - 1)).partition("-")[0]
    ways = [way for way in leaves(whole) if way]
    for number in range(250):
        changed = copy.deepcopy(whole) | {"id": f"c{number}"}
        *above, last = draw.choice(ways)
        part: Any = changed
        for key in above:
            part = part[key]
        part[last] = draw.choice(odd)
        (folder / f"{night}-c{number}.json").write_bytes(
            append_digest(changed).encode("utf-8", "surrogatepass")
        )
    client = opened(tmp_path)
    site = client.app.state.site  # type: ignore[attr-defined]
    shown = list(site.queries.checks)
    assert 40 < len(shown) < 250
    for route in site.pages:
        for path in route.all_paths(site) if "/check" in route.path else ():
            page(client, path)
            for form in ("json", "csv"):
                assert client.get(f"{path}.{form}").status_code == 200, path


ODD = ("a b", "x.json", "a..", "é", "q?#&")


def test_names_that_a_path_cannot_hold(tmp_path: Path) -> None:
    folder = tmp_path / "results" / "checks"
    folder.mkdir(parents=True)
    hostile = CheckedModel(
        name=HOSTILE, source=HOSTILE, artifacts=(HOSTILE,), baseline=HOSTILE, revision=HOSTILE
    )
    odd = small_check(
        candidate=hostile, baseline=hostile, suites=(HOSTILE,), because=(HOSTILE,), recipe=HOSTILE,
        warnings=(HOSTILE,), policy={HOSTILE: HOSTILE},
    )  # fmt: skip
    for name in ODD:
        check = replace(odd, when="", id=name)
        (folder / f"{CHECKS.stem(check)}.json").write_text(append_digest(check.to_json()))
    client = opened(tmp_path)
    names = list(client.app.state.site.queries.checks)  # type: ignore[attr-defined]
    assert set(names) == {format_document_name(f"-{name}") for name in ODD}
    for path in ("/checks", f"/checks/{format_line_name(odd)}", *(f"/check/{name}" for name in names)):
        found = page(client, path)
        assert HOSTILE.rpartition("/")[2] in found.text
        assert not found.has_foreign_script


def test_one_folder_goes_before_another(tmp_path: Path) -> None:
    from unittest import mock

    from leaderboard.web.site import open_site

    for name, overall in (("results", "improved"), ("other", "regressed")):
        small_check(overall=overall).write(tmp_path / name)
    settings = replace(site_data.small_settings(tmp_path), results=(tmp_path / "results", tmp_path / "other"))
    with mock.patch("leaderboard.data.snapshot.load_site_suites", return_value=site_data.suites()):
        checks = open_site(settings).queries.checks
    assert [check.overall for check in checks.values()] == ["improved"]


# The pages of watches: how far each is, its curve, and every checkpoint


PATH = "/watch/base-run"


def drawn(client: TestClient, path: str) -> Any:
    """The figure of a page's only chart."""
    (figure,) = figures(client, path)
    return figure


def points(figure: Any) -> dict[float, tuple[str, str]]:
    """The symbol and the text of every point, by step."""
    return {
        x: (symbol, text)
        for trace in figure["data"]
        if trace["mode"] == "markers"
        for x, symbol, text in zip(trace["x"], trace["marker"]["symbol"], trace["hovertext"], strict=True)
    }


def test_the_list_says_how_far_each_is(client: TestClient) -> None:
    *_, head, row = page(client, "/watches").texts("watches")
    found = dict(zip(head, row, strict=True))
    named = [found[name] for name in ("Watch", "What is watched", "Suite")]
    assert named == ["base-run", "/runs/base", "nanobeir"]
    assert [found[name] for name in ("done", "partial", "waiting", "failed")] == ["11", "1", "1", "1"]
    assert [found[name] for name in ("Last step", "Its mean", "Best mean")] == ["12,000", "37.00", "38.10"]
    assert found["Drops at step"] == "8,000"
    (row,) = client.get("/watches.json").json()["tables"][0]["rows"]
    assert (row["cells"]["best"]["value"], row["cells"]["best"]["note"]) == (38.1, "at step 7,000")


def test_the_curve_joins_what_is_comparable(client: TestClient) -> None:
    """Eleven of fourteen have a mean, one of them measured otherwise; an incomplete one is an outline."""
    figure = drawn(client, PATH)
    line = figure["data"][0]
    assert (line["mode"], len(line["x"])) == ("lines", 10)
    by_step = points(figure)
    assert len(by_step) == 12
    assert sum(symbol.endswith("-open") for symbol, _ in by_step.values()) == 2
    assert "mean × 100 31" in by_step[11000][1]
    assert "1 of 2 tasks" in by_step[11000][1]
    assert "measured in another way" in by_step[1000][1]
    assert "mean × 100 38.1" in by_step[7000][1]
    assert by_step[7000][0] != by_step[8000][0], "the drop has another marker"
    (mark,), (word,) = figure["layout"]["shapes"], figure["layout"]["annotations"]
    assert (mark["x0"], mark["x1"], word["text"]) == (8000, 8000, "−3.40")


def test_the_curve_of_a_task(client: TestClient) -> None:
    figure = drawn(client, f"{PATH}?task=NFCorpus")
    by_step = points(figure)
    assert len(by_step) == 12
    hollow = [step for step, (symbol, _) in by_step.items() if symbol.endswith("-open")]
    assert len(hollow) == 1, "measured otherwise; a task's score is whole by itself"
    assert figure["layout"]["shapes"] == []
    assert by_step[2000][1] == "<b>step2000</b><br>score × 100 23<br>step 2000<br>checkpoint"
    found = page(client, f"{PATH}?task=NFCorpus")
    assert "NFCorpus" in found.texts("checkpoints")[0]
    document = client.get(f"{PATH}.json?task=NFCorpus").json()
    values = {point["step"]: point["value"] for point in document["data"]["points"]}
    assert values[2000] == pytest.approx(0.23)
    assert values[13000] is None


def test_steps_by_their_logarithm(client: TestClient) -> None:
    layouts = [drawn(client, f"{PATH}?scale={scale}")["layout"] for scale in ("log", "linear")]
    assert [layout["xaxis"]["type"] for layout in layouts] == ["log", "linear"]
    assert layouts[0]["annotations"][0]["x"] == pytest.approx(math.log10(8000))


def test_every_checkpoint_with_its_reason(client: TestClient) -> None:
    head, *body = page(client, PATH).texts("checkpoints")
    found = {row[0]: dict(zip(head, row, strict=True)) for row in body}
    assert list(found)[:2] == ["step14000", "step13000"]
    assert found["step13000"]["State"] == "failed"
    assert found["step13000"]["Why"] == "SciFact: <b>no</b> data"
    assert found["step14000"]["Why"] == "it changed 3 s ago"
    assert (found["step11000"]["Tasks"], found["step11000"]["of"]) == ("1", "2")
    assert found["step8000"]["Drop of the level"] == "−3.40"
    assert found["step1000"]["Why"] == "measured in another way than the newest one"
    assert found["step5000"]["Mean"] == "36.00"


def test_a_checkpoint_leads_to_its_model(client: TestClient) -> None:
    entries = {e.artifact: e for e in client.app.state.site.queries.entries.values()}  # type: ignore[attr-defined]
    entry = entries["a" * 64]
    rows = client.get(f"{PATH}.json").json()["tables"][0]["rows"]
    hrefs = {row["key"]: row["cells"]["name"].get("href") for row in rows}
    assert hrefs["step12000"] == f"/models/{entry.model_slug}?entry={entry.slug}"
    assert hrefs["step5000"].startswith("/models/base-5000-")
    assert hrefs["step14000"] is None
    page(client, hrefs["step12000"])


def test_the_json_holds_the_state(client: TestClient) -> None:
    document = client.get(f"{PATH}.json").json()
    results = Path(client.app.state.site.settings.results[0])  # type: ignore[attr-defined]
    assert document["data"]["watch"] == state.read_watch(results, "base-run").dump_output()
    shown = small_watch().dump_output()["checkpoints"]
    for found, wanted in zip(document["data"]["watch"]["checkpoints"], shown, strict=True):
        assert found == {**wanted, "records": found["records"]}
    lines = client.get(f"{PATH}.csv").text.splitlines()
    assert len(lines) == 15


def test_a_task_that_is_none_is_said(client: TestClient) -> None:
    answer = client.get(f"{PATH}?task=NFCorpsu", headers=BROWSER)
    assert answer.status_code == 404
    assert "NFCorpus" in answer.text


def test_values_are_of_the_newest_treatment() -> None:
    points = [checkpoint(1000, 0.1, treatment="old"), checkpoint(2000, 0.2), checkpoint(3000, 0.3)]
    watch = small_watch().model_copy(update={"checkpoints": tuple(points)})
    assert [bool(value.apart) for value in list_watch_values(watch)] == [True, False, False]
    newest = [points[0].model_copy(update={"evaluated": "2027"}), *points[1:]]
    watch = watch.model_copy(update={"checkpoints": tuple(newest)})
    assert [bool(value.apart) for value in list_watch_values(watch)] == [False, True, True]


def test_a_watch_goes_on(tmp_path: Path) -> None:
    results = tmp_path / "results"
    watch = small_watch("run.1").model_copy(update={"checkpoints": (), "change_points": ()})
    state.WATCHES.write_document(results, watch.name, watch)
    client = opened(tmp_path)
    assert "/watches" in page(client, "/").hrefs
    assert "No checkpoint was seen yet." in page(client, "/watch/run.1").text
    assert page(client, "/watches").texts("watches")[-1][0] == "run.1"
    put_watch(results, watch.add_entry(checkpoint(1000, 0.5)))
    client.app.state.site.refresh()  # type: ignore[attr-defined]
    assert "step1000" in page(client, "/watch/run.1").text


def test_a_watch_is_read_again_when_one_of_its_records_changes(tmp_path: Path) -> None:
    results = tmp_path / "results"
    watch = small_watch().model_copy(update={"checkpoints": (checkpoint(1000, 0.5), checkpoint(2000, 0.25))})
    second = put_watch(results, watch).checkpoints[1]
    client = opened(tmp_path)
    path = Store(results).locate_record(f"x-{second.artifact[:12]}", "SciFact", second.records["SciFact"])
    content = path.read_text()
    changed = rescore(Store.parse(path), 0.9)

    def last(document: str) -> tuple[str, float | None, float | None]:
        path.write_text(document) if document else path.unlink()
        client.app.state.site.refresh()  # type: ignore[attr-defined]
        data = client.get(f"{PATH}.json").json()["data"]
        (row,) = client.get("/watches.json").json()["tables"][0]["rows"]
        return (
            data["watch"]["checkpoints"][1]["state"],
            data["points"][1]["value"],
            row["cells"]["mean"]["value"],
        )

    assert last(changed.to_json()) == ("done", pytest.approx(0.55), pytest.approx(55))
    assert last("") == ("lost", pytest.approx(0.2), pytest.approx(50))
    row = dict(zip(*page(client, PATH).texts("checkpoints")[:2], strict=True))
    assert row["State"] == "lost"
    assert row["Why"].startswith("scores of step 2000 are gone: SciFact")
    *_, head, row = page(client, "/watches").texts("watches")
    assert dict(zip(head, row, strict=True))["lost"] == "1"
    assert last(content) == ("done", pytest.approx(0.25), pytest.approx(25))


def test_a_long_run(tmp_path: Path) -> None:
    """Of many checkpoints the line has all, and the table a page."""
    some = tuple(checkpoint(1000 * at, 0.3, evaluated="2026") for at in range(1, 701))
    drop = state.ChangePoint(step=300_000, last=300_000, kind="drop", size=0.01, p=0.001)
    watch = small_watch().model_copy(update={"checkpoints": some, "change_points": (drop,)})
    put_watch(tmp_path / "results", watch)
    client = opened(tmp_path)
    assert len(drawn(client, PATH)["data"][0]["x"]) == 700
    assert len(page(client, PATH).texts("checkpoints")) == 51
    assert page(client, f"{PATH}?page=14").texts("checkpoints")[-1][0] == "step1000"
    assert len(client.get(f"{PATH}.csv").text.splitlines()) == 701


def test_damaged_and_odd_watches(tmp_path: Path) -> None:
    """Any part of a watch becomes something else: it is shown or left out, and every page answers."""
    draw, folder = random.Random(3), tmp_path / "results" / "watches"
    folder.mkdir(parents=True)
    whole = json.loads(
        state.WATCHES.kind.serialize_document(put_records(tmp_path / "results", small_watch()))
    )
    del whole["digest"]
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
        if changed.get("name") == whole["name"]:
            changed["name"] = f"w{number}"
        (folder / f"w{number}.json").write_text(append_digest(changed))
    for number, content in enumerate((b"", b"{", b"[]", b"null", b'{"schema": 7}', b"\xff")):
        (folder / f"x{number}.json").write_bytes(content)
    (folder / "no name.json").write_text(state.WATCHES.kind.serialize_document(small_watch()))
    client = opened(tmp_path)
    shown = [one["name"] for one in client.app.state.site.queries.list_document_facts("watch")]
    assert 20 < len(shown) < 150
    assert all(name.startswith("w") for name in shown)
    for path in ("/watches", *(f"/watch/{name}" for name in shown)):
        assert "<script>alert" not in client.get(path, headers=BROWSER).text
        page(client, path)
        for form in ("json", "csv"):
            assert client.get(f"{path}.{form}").status_code == 200, path
