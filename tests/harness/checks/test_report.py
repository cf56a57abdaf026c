"""A check as it is printed, as JUnit XML and as a comment on a pull request."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from xml.etree.ElementTree import Element, fromstring

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from markdown_it.token import Token
from rich.console import Console

from check_data import TASKS, small_check
from harness.checks import report
from harness.checks.outcome import Check, MeanOutcome, TaskOutcome
from harness.checks.report import _address, _escaped, _hidden, junit, markdown, print_check

# Sentences and numbers that every report shares


REGRESSED, EQUIVALENT, INCONCLUSIVE, UNTESTED, MISSING = TASKS


def test_a_mean_reads_as_a_sentence() -> None:
    mean = replace(small_check().means[0], there=40, wanted=41)
    assert (
        report._mean_text(mean)
        == "mean over 40 of 41 columns 75.50 → 74.00, −1.50 [−2.20, −0.80], margin ±0.50"
    )


def test_a_mean_of_nothing_has_dashes() -> None:
    mean = MeanOutcome(suite="mteb", verdict="inconclusive", wanted=41)
    assert report._mean_text(mean) == "mean over 0 of 41 columns"


def predicted(**changed: object) -> MeanOutcome:
    values = {
        "target": "MTEB(eng, v2)",
        "candidate": 0.512,
        "candidate_low": 0.506,
        "candidate_high": 0.518,
        "baseline": 0.515,
        "baseline_low": 0.509,
        "baseline_high": 0.521,
    }
    return replace(small_check().means[0], predicted=values | changed)


def test_a_predicted_benchmark_has_its_error() -> None:
    assert report._predicted_text(predicted()) == "predicted MTEB(eng, v2): 51.5 ± 0.6 → 51.2 ± 0.6"
    assert report._predicted_text(small_check().means[0]) == ""


def test_a_lopsided_prediction_shows_both_bounds() -> None:
    lopsided = report._predicted_text(predicted(candidate_high=0.53, baseline=None))
    assert lopsided == "predicted MTEB(eng, v2): 51.2 [50.6, 53.0]"


@pytest.mark.parametrize(
    ("p", "text"), [(0.0004, "0.0004"), (0.00009, "<0.0001"), (0.0, "<0.0001"), (1.0, "1.0000"), (None, "–")]
)
def test_p_values(p: float | None, text: str) -> None:
    assert replace(REGRESSED, p_regressed=p).p_text == text


def test_an_improved_task_shows_the_p_value_of_the_gain() -> None:
    assert replace(REGRESSED, verdict="improved", p_improved=0.02).p_text == "0.0200"


def test_the_order_is_by_verdict_then_by_size() -> None:
    smaller = replace(REGRESSED, task="smaller", delta=-0.01)
    larger = replace(REGRESSED, task="larger", delta=-0.2)
    improved = replace(EQUIVALENT, task="improved", verdict="improved", delta=0.9)
    found = report._ordered(
        [EQUIVALENT, improved, UNTESTED, INCONCLUSIVE, MISSING, smaller, REGRESSED, larger]
    )
    assert [task.task for task in found] == [
        *("larger", "SciFact", "smaller", "TRECCOVID & <others>", "Banking77Classification"),
        *("MindSmallReranking", "improved", "STSBenchmark"),
    ]


def test_counts_and_units() -> None:
    check = small_check()
    counted = "5 tasks: 1 regressed, 1 missing, 1 inconclusive, 1 not testable, 1 equivalent"
    assert report._counts_text(check) == counted
    assert report._counts_text(small_check(tasks=())) == "0 tasks"
    assert report._units_text(INCONCLUSIVE) == "3,080 texts"
    assert report._units_text(MISSING) == "–"
    assert [report._seeds_text(task) for task in (REGRESSED, INCONCLUSIVE)] == ["1", "3 / 5"]


@pytest.mark.parametrize(
    ("overall", "code", "text"),
    [
        ("regressed", 1, "exit 1: the candidate regressed"),
        ("equivalent", 0, "exit 0: passed: no difference beyond the margins"),
        ("inconclusive", 3, "exit 3: neither a regression nor its absence is shown"),
        ("inconclusive", 0, "exit 0: passed: inconclusive, which the policy lets through"),
        ("improved", 1, "exit 1: the policy fails this verdict"),
    ],
)
def test_exit_codes_are_explained(overall: str, code: int, text: str) -> None:
    assert report._exit_text(small_check(overall=overall, exit_code=code)) == text


def test_a_regression_that_is_allowed_says_so() -> None:
    assert report._verdict_text(replace(REGRESSED, must_not_regress=False)) == "regressed (allowed)"
    assert report._verdict_text(EQUIVALENT) == "equivalent"


def test_each_reason_is_said_once() -> None:
    more = [replace(MISSING, task=f"t{number}") for number in range(3)]
    silent = replace(MISSING, task="silent", reason="")
    assert report._reasons([*more, silent]) == {
        "the candidate has no score: its data cannot be had": ["t0", "t1", "t2"],
        "no reason was recorded": ["silent"],
    }


# A check on the terminal


def printed(check: Check, *, every: bool = False, width: int = 200, colour: bool = False) -> str:
    out = io.StringIO()
    system = "standard" if colour else None
    console = Console(file=out, width=width, force_terminal=colour, color_system=system)
    print_check(check, console, every=every)
    return out.getvalue()


def test_the_first_line_is_the_verdict_with_a_reason() -> None:
    first = printed(small_check()).splitlines()[0]
    assert first == (
        "regressed: nightly-0102 against all-MiniLM-L6-v2 (baseline release) on mteb. "
        "SciFact regressed by 3.50 points (p 0.0004) and must not."
    )


def test_the_last_line_is_the_exit_code() -> None:
    assert printed(small_check()).splitlines()[-1] == "exit 1: the candidate regressed"


def test_a_row_holds_scores_interval_units_and_what_settles_it() -> None:
    row = next(line for line in printed(small_check()).splitlines() if "Banking77" in line)
    assert [cell.strip() for cell in row.strip("│").split("│")] == [
        *("Banking77Classification", "accuracy", "3,080 texts", "3 / 5", "80.00", "79.00"),
        *("−1.00 [−2.10, +0.10]", "0.1100", "inconclusive"),
        "to settle: about 4 more seeds, or 9,000 texts",
    ]


def test_equivalent_tasks_are_counted_unless_asked_for() -> None:
    check = small_check(tasks=(*TASKS, *many(TASKS[1], 30)))
    short, full = printed(check), printed(check, every=True)
    assert "STSBenchmark" not in short
    assert "equivalent, not shown: 31 of 35 tasks" in short
    assert full.count("STSBenchmark") == 31
    assert "not shown" not in full


def test_what_is_missing_is_named_with_its_reason_once() -> None:
    check = small_check(tasks=many(TASKS[4], 10))
    line = next(line for line in printed(check).splitlines() if line.startswith("missing"))
    assert line.endswith("-0005 and 4 more: the candidate has no score: its data cannot be had")
    assert "-0009" in printed(check, every=True)


def test_reasons_warnings_and_means_are_there() -> None:
    text = printed(small_check())
    assert "not testable: MindSmallReranking: no per-query results are kept of this metric" in text
    assert "warning: torch 2.10.0 made the baseline, 2.11.0 the candidate." in text
    assert (
        "mteb: mean over 3 of 5 columns 75.50 → 74.00, −1.50 [−2.20, −0.80], margin ±0.50: regressed" in text
    )


def test_many_sentences_are_cut_unless_all_is_asked_for() -> None:
    check = small_check(because=tuple(f"Reason {number}." for number in range(20)))
    assert "and 13 more" in printed(check)
    assert "Reason 19." in printed(check, every=True)


def test_names_are_never_markup() -> None:
    odd = "[red]x[/red] :smile: [/nothing]"
    party = replace(small_check().candidate, name=odd)
    check = small_check(candidate=party, tasks=(replace(TASKS[0], task=odd),), because=(odd,))
    assert printed(check).count(odd) == 3


@pytest.mark.parametrize(
    ("overall", "colour"),
    [("regressed", "31"), ("inconclusive", "33"), ("improved", "32"), ("equivalent", "32")],
)
def test_the_verdict_is_coloured(overall: str, colour: str) -> None:
    first = printed(small_check(overall=overall), colour=True).splitlines()[0]
    assert f"{colour}m{overall}\x1b[0m" in first


def test_a_narrow_terminal_shows_whole_names() -> None:
    text = printed(small_check(), width=100)
    table = [line.strip("│").split("│")[0].strip() for line in text.splitlines() if line.startswith("│")]
    assert "Banking77Classification" in "".join(table)


def test_nothing_to_say_is_no_error() -> None:
    text = printed(small_check(tasks=(), means=(), because=(), warnings=()))
    assert "0 tasks" in text
    assert "┃" not in text


def test_printing_imports_nothing_beyond_the_console_and_tables() -> None:
    code = """
import sys
sys.path[:0] = ["tests/support"]
import rich.console, rich.table, rich.box
from check_data import small_check
from harness.progress import console
from harness.checks.report import print_check
out = console()
before = set(sys.modules)
print_check(small_check(), out, every=True)
new = {name for name in sys.modules if name not in before and not name.startswith(("rich", "harness"))}
print(sorted(new))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


# A check as JUnit XML
#
# The rules of both schemas in use are written out here. `JUNIT_XSD` may name the schemas themselves
# (windyroad/JUnit-Schema's JUnit.xsd, jenkinsci/xunit-plugin's junit-10.xsd), separated like the
# folders of PATH; what validates them is the package xmlschema


NUMBER = r"[0-9]+"
SECONDS = r"[0-9]+\.[0-9]{3}"
MOMENT = r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}"
FILLED = r"(?s).*\S.*"
ANY = r"(?s).*"


@dataclass(frozen=True, kw_only=True)
class Rule:
    """What both schemas allow: attributes (all of them required) and children, in this order."""

    attributes: Mapping[str, str] = field(default_factory=dict)
    children: str = ""


RESULT = Rule(attributes={"message": ANY, "type": ANY})
RULES = {
    "testsuites": Rule(children="(testsuite )*"),
    "testsuite": Rule(
        attributes={
            **dict.fromkeys(("name", "hostname"), FILLED),
            **dict.fromkeys(("id", "tests", "failures", "errors", "skipped"), NUMBER),
            **{"package": ANY, "timestamp": MOMENT, "time": SECONDS},
        },
        children="properties (testcase )*system-out system-err ",
    ),
    "properties": Rule(children="(property )*"),
    "property": Rule(attributes={"name": FILLED, "value": ANY}),
    "testcase": Rule(
        attributes={"name": ANY, "classname": ANY, "time": SECONDS}, children="((skipped|error|failure) )?"
    ),
    "skipped": Rule(attributes={"message": ANY}),
    "error": RESULT,
    "failure": RESULT,
    "system-out": Rule(),
    "system-err": Rule(),
}


def faults(element: Element) -> list[str]:
    """Where a document breaks the rules."""
    rule = RULES[element.tag]
    found = (
        [f"{element.tag}: {sorted(element.attrib)}"] if set(element.attrib) != set(rule.attributes) else []
    )
    found += [
        f"{element.tag}.{name}: {value!r}"
        for name, value in element.attrib.items()
        if not re.fullmatch(rule.attributes.get(name, ANY), value)
    ]
    children = "".join(f"{child.tag} " for child in element)
    if not re.fullmatch(rule.children, children):
        found.append(f"{element.tag} holds {children}")
    return found + [fault for child in element for fault in faults(child)]


def case(check: Check, name: str) -> Element:
    found = [one for one in fromstring(junit(check)).iter("testcase") if one.get("name") == name]
    assert len(found) == 1
    return found[0]


def result(check: Check, name: str) -> str:
    return "".join(child.tag for child in case(check, name))


def with_tasks(*tasks: TaskOutcome, **changed: object) -> Check:
    return small_check(tasks=tasks, **changed)


EVERY_KIND = (
    small_check(),
    small_check(overall="inconclusive", exit_code=3),
    small_check(overall="inconclusive", exit_code=0),
    small_check(overall="equivalent", exit_code=0, suites=("a", "b")),
    small_check(tasks=(), means=(), because=(), warnings=(), seconds=123456.7),
    small_check(when="2026-01-02T03:04:05.678+02:00", recipe="glue"),
)


@pytest.mark.parametrize("check", EVERY_KIND)
def test_the_rules_of_both_schemas_hold(check: Check) -> None:
    assert faults(fromstring(junit(check))) == []


@pytest.mark.parametrize("check", EVERY_KIND)
@pytest.mark.skipif("JUNIT_XSD" not in os.environ, reason="needs JUNIT_XSD, the paths of the schemas")
def test_the_schemas_themselves_hold(check: Check) -> None:
    xmlschema = pytest.importorskip("xmlschema")
    for path in os.environ["JUNIT_XSD"].split(os.pathsep):
        xmlschema.XMLSchema(path).validate(junit(check))


@pytest.mark.parametrize(
    ("task", "expected"),
    [
        ("SciFact", "failure"),
        ("TRECCOVID & <others>", "error"),
        ("Banking77Classification", "skipped"),
        ("MindSmallReranking", "skipped"),
        ("STSBenchmark", ""),
        ("mean of mteb", "failure"),
        ("overall verdict", "failure"),
    ],
)
def test_each_verdict_has_its_element(task: str, expected: str) -> None:
    assert result(small_check(), task) == expected


def test_a_regression_that_is_allowed_is_no_failure() -> None:
    check = with_tasks(replace(TASKS[0], must_not_regress=False))
    assert result(check, "SciFact") == "skipped"
    assert case(check, "SciFact")[0].get("message", "").startswith("regressed (allowed)")


@pytest.mark.parametrize(("code", "expected"), [(0, "skipped"), (1, "failure"), (3, "failure")])
def test_an_inconclusive_check_fails_only_if_its_exit_code_does(code: int, expected: str) -> None:
    check = with_tasks(TASKS[2], overall="inconclusive", exit_code=code, means=())
    assert result(check, "overall verdict") == expected
    assert result(check, "Banking77Classification") == "skipped"


def test_the_counts_are_those_of_the_cases() -> None:
    for suite in fromstring(junit(small_check())):
        for name, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
            assert int(suite.get(name, "")) == len(suite.findall(f"testcase/{tag}"))
        assert int(suite.get("tests", "")) == len(suite.findall("testcase"))
        cases = sum(float(one.get("time", "")) for one in suite.iter("testcase"))
        assert float(suite.get("time", "")) == pytest.approx(cases)


def test_the_verdicts_of_each_suite_stand_in_a_testsuite_of_their_own() -> None:
    means = tuple(replace(small_check().means[0], suite=name) for name in ("first", "second"))
    held = {"SciFact": ("first", "second"), "STSBenchmark": ("second",)}
    tasks = tuple(replace(task, suites=held.get(task.task, ())) for task in TASKS)
    check = small_check(suites=("first", "second"), means=means, tasks=tasks)
    root = fromstring(junit(check))
    cases = {one.get("name"): [inner.get("name") for inner in one.iter("testcase")] for one in root}
    others = ["Banking77Classification", "MindSmallReranking", "TRECCOVID & <others>"]
    assert cases == {
        "first": ["SciFact", "mean of first"],
        "second": ["STSBenchmark", "mean of second"],
        "check": [*others, "overall verdict"],
    }
    assert [one.get("id") for one in root] == ["0", "1", "2"]


def test_times_are_utc_without_a_zone() -> None:
    check = small_check(when="2026-01-02T00:30:00.5+02:00")
    assert {one.get("timestamp") for one in fromstring(junit(check))} == {"2026-01-01T22:30:00"}


def test_candidate_baseline_and_policy_are_properties() -> None:
    suite = fromstring(junit(small_check()))[0]
    found = {one.get("name"): one.get("value") for one in suite.iter("property")}
    assert found["candidate"] == "nightly-0102"
    assert found["baseline"] == "all-MiniLM-L6-v2 (baseline release)"
    assert found["policy.mean_margin"] == "0.005"
    assert found["policy.correction"] == "holm"


def test_a_failure_tells_the_difference() -> None:
    failure = case(small_check(), "SciFact")[0]
    assert failure.get("message") == "regressed: delta −3.50 [−5.00, −2.00], p 0.0004"
    assert "candidate: 61.00" in (failure.text or "")


@given(st.text(), st.text())
def test_any_name_makes_a_document_that_can_be_read(name: str, reason: str) -> None:
    party = replace(small_check().candidate, name=name)
    tasks = (replace(TASKS[2], task=name, reason=reason),)
    text = junit(small_check(candidate=party, tasks=tasks, because=(reason,), warnings=(reason,)))
    assert faults(fromstring(text.encode())) == []


def test_control_characters_are_removed() -> None:
    tasks = (replace(TASKS[0], task="a\x00b\x1bc\ufffed\ud800e\tf"),)
    assert case(small_check(tasks=tasks), "abcde\tf") is not None


# A check as a comment on a pull request, read by another implementation of GitHub's Markdown


LIMIT = 65_536
OURS = re.compile(
    r"<!-- harness-check:[A-Za-z0-9._+-]+ -->|<details>\n<summary>[a-z ]+(: [0-9,]+)?</summary>|</details>"
)
GITHUB_LINKS = re.compile(r"@\w|#\d|://|\bwww\.|\bGH-\d|:[\w+-]+:", re.IGNORECASE)
ODD = [
    "a|b",
    "org/name|x||",
    "<script>alert(1)</script>",
    "</details> <!-- x -->",
    "`code` ``x",
    "@somebody and me@example.org",
    "*a* _b_ **c** ~~d~~",
    "[text](https://example.org) ![picture](x)",
    "https://example.org www.example.org",
    "#12 org/repo#34 GH-56",
    "&amp; &lt; &#64;",
    "back\\slash \\| end\\",
    "line\nbreak\r\n| a | b |",
    "- list",
    "1. list",
    "# heading",
    "=== ---",
    "$x^2$ :tada:",
    "[^1] [x]: y",
    "“quotes” — 日本語 🙂",
]
PARSER = MarkdownIt("commonmark").enable(["table", "strikethrough"])


def tokens(text: str) -> Iterator[Token]:
    for token in PARSER.parse(text):
        yield token
        yield from token.children or ()


def tables(text: str) -> list[list[list[str]]]:
    """The cells of every table, as a reader sees them."""
    found: list[list[list[str]]] = []
    parsed = PARSER.parse(text)
    for at, token in enumerate(parsed):
        if token.type == "table_open":
            found.append([])
        elif token.type == "tr_open":
            found[-1].append([])
        elif token.type in ("td_open", "th_open"):
            found[-1][-1].append(seen(parsed[at + 1]))
    return found


def seen(inline: Token) -> str:
    return "".join(child.content for child in inline.children or ()).replace("\u200b", "")


def named(name: str, **changed: object) -> Check:
    tasks = tuple(replace(task, task=name, reason=name, to_settle=name) for task in TASKS)
    party = replace(small_check().candidate, name=name)
    shown = small_check(candidate=party, tasks=tasks, because=(name,), warnings=(name, name))
    return replace(shown, **changed)  # type: ignore[arg-type]


def many(task: TaskOutcome, count: int, name: str = "") -> tuple[TaskOutcome, ...]:
    return tuple(replace(task, task=f"{name or task.task}-{number:04}") for number in range(count))


def test_it_begins_with_a_marker_and_the_verdict() -> None:
    first, _, heading, *_ = markdown(small_check()).splitlines()
    assert first == "<!-- harness-check:release-mteb -->"
    assert heading == "## ❌ regressed: nightly-0102 against all-MiniLM-L6-v2 (baseline release) on mteb"


def test_the_marker_stays_while_the_candidate_changes() -> None:
    other = replace(small_check().candidate, name="nightly-0103")
    markers = {markdown(check).splitlines()[0] for check in (small_check(), small_check(candidate=other))}
    assert len(markers) == 1
    assert markdown(small_check(suites=("beir",))).splitlines()[0] not in markers


def test_what_matters_is_in_the_open_and_the_rest_is_folded_away() -> None:
    in_the_open, _, folded = markdown(small_check()).partition("<details>")
    assert "SciFact" in in_the_open
    assert "Banking77Classification" in in_the_open
    assert "STSBenchmark" not in in_the_open
    assert "STSBenchmark" in folded
    summaries = re.findall("<summary>(.*)</summary>", folded)
    assert summaries == ["missing: 1", "not testable: 1", "warnings: 1", "equivalent: 1", "policy"]


def test_the_tables_hold_what_was_found() -> None:
    means, tasks, missing, *_ = tables(markdown(small_check()))
    assert means[1] == [
        *("mteb", "3 of 5 columns", "75.50", "74.00", "−1.50 [−2.20, −0.80]", "±0.50", "regressed"),
    ]
    assert tasks[1] == [
        *("SciFact", "ndcg_at_10", "300 queries", "1", "64.50", "61.00", "−3.50 [−5.00, −2.00]"),
        *("0.0004", "regressed", ""),
    ]
    assert missing[1] == ["TRECCOVID & <others>", "the candidate has no score: its data cannot be had"]


def test_a_small_p_value_is_no_html() -> None:
    check = small_check(tasks=(replace(TASKS[0], p_regressed=0.0),))
    assert tables(markdown(check))[1][1][7] == "<0.0001"


def holds(text: str) -> None:
    """Every table is whole, and nothing but our own HTML, tables and lists is in the text."""
    assert all(len(row) == len(table[0]) for table in tables(text) for row in table)
    for token in tokens(text):
        assert token.type not in ("link_open", "image", "em_open", "strong_open", "s_open", "code_inline")
        assert token.type not in (
            "html_inline",
            "code_block",
            "fence",
            "blockquote_open",
            "ordered_list_open",
        )
        assert token.type != "heading_open" or token.tag == "h2"
        if token.type == "html_block":
            assert OURS.fullmatch(token.content.strip())
        if token.type == "text":
            assert not GITHUB_LINKS.search(token.content)


@pytest.mark.parametrize("name", ODD)
def test_odd_names_are_shown_as_they_are(name: str) -> None:
    text = markdown(named(name))
    holds(text)
    assert tables(text)[1][1][0] == re.sub(r"[\r\n]+", " ", name)


@given(
    st.text(
        alphabet=st.one_of(st.sampled_from("|<>&`*_[]()!@#$~\\:/-+=.1 w\n"), st.characters()), max_size=80
    )
)
def test_no_name_is_read_as_markdown(name: str) -> None:
    holds(markdown(named(name)))


@given(st.text(max_size=200))
def test_a_marker_is_one_whole_comment(name: str) -> None:
    assert re.fullmatch(r"[A-Za-z0-9._+-]+", _hidden(name))
    assert "--" not in _hidden(name)


@pytest.mark.parametrize("task", TASKS, ids=[task.verdict for task in TASKS])
@pytest.mark.parametrize("name", ["", "@|<&" * 60])
def test_a_thousand_tasks_stay_within_the_limit(task: TaskOutcome, name: str) -> None:
    check = small_check(
        tasks=many(task, 1324, name),
        because=tuple(f"{name}{number}" for number in range(1324)),
        warnings=tuple(f"{name}{number}" for number in range(1324)),
    )
    text = markdown(check)
    assert len(text) < LIMIT
    assert len(text) > 20_000
    holds(text)
    assert text.count("<details>") == text.count("</details>")


def test_rows_that_do_not_fit_are_counted() -> None:
    text = markdown(small_check(tasks=many(TASKS[0], 1324)))
    left_out = re.search(r"^([\d,]+) of 1,324 rows are left out here\.$", text, re.MULTILINE)
    assert left_out
    assert text.count("| SciFact-") == 1324 - int(left_out[1].replace(",", ""))


def test_no_kind_of_task_crowds_out_another() -> None:
    text = markdown(small_check(tasks=tuple(one for task in TASKS for one in many(task, 264))))
    assert len(text) < LIMIT
    shown = [len(table) - 1 for table in tables(text)]
    assert shown[-1] == len(small_check().policy)
    assert all(rows > 40 for rows in shown[1:4])
    assert len(text) > 55_000


def test_a_link_leads_to_the_whole_check() -> None:
    text = markdown(small_check(), link="https://example.org/checks/1?a=b&c=(d)")
    links = [token.attrGet("href") for token in tokens(text) if token.type == "link_open"]
    assert links == ["https://example.org/checks/1?a=b&c=%28d%29"]


def test_what_is_no_web_address_is_no_link() -> None:
    assert _address("javascript:alert(1)") == ""
    assert "The whole check" not in markdown(small_check(), link="file:///etc")


def test_a_predicted_benchmark_is_told() -> None:
    predicted = {
        "target": "MTEB(eng, v2)",
        "candidate": 0.512,
        "candidate_low": 0.506,
        "candidate_high": 0.518,
    }
    mean = replace(small_check().means[0], predicted=predicted)
    assert "\npredicted MTEB(eng, v2): 51.2 ± 0.6\n" in markdown(small_check(means=(mean,)))


def test_long_text_is_cut() -> None:
    assert _escaped("x" * 400, most=10) == "x" * 9 + "…"
