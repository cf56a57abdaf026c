"""A check as a comment on a pull request, read by another implementation of GitHub's Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from markdown_it.token import Token

from check_data import TASKS, small_check
from harness.checks.outcome import Check, TaskOutcome
from harness.checks.report import _address, _escaped, _hidden, markdown

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
