"""A check as JUnit XML.

The rules of both schemas in use are written out here. `JUNIT_XSD` may name the schemas themselves
(windyroad/JUnit-Schema's JUnit.xsd, jenkinsci/xunit-plugin's junit-10.xsd), separated like the
folders of PATH; what validates them is the package xmlschema.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from xml.etree.ElementTree import Element, fromstring

import pytest
from hypothesis import given
from hypothesis import strategies as st

from check_data import TASKS, small_check
from harness.checks.outcome import Check, TaskOutcome
from harness.checks.report import junit

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
