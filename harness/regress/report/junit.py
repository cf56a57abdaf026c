"""A check as JUnit XML, in the form that both schemas in use allow.

The Ant schema (windyroad/JUnit-Schema, JUnit.xsd) fixes the order of elements and wants `package`,
`id`, `hostname`, `time` and a `timestamp` without a zone; that of Jenkins' xUnit plugin
(junit-10.xsd) fixes how a time is spelled. Attributes that one of them lacks are left out.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from harness.regress.report import words
from harness.regress.report.cases import Case, cases

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

    from harness.regress.outcome import Check

FORBIDDEN = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""What XML 1.0 cannot hold, even escaped."""


def junit(check: Check) -> str:
    """The check as a JUnit file (UTF-8).

    A testsuite for each suite holds a testcase for each task and one for the mean; `check` holds the
    overall verdict. Regressed is a failure and missing an error. What is inconclusive, is not testable,
    or regressed where the policy lets it, is skipped; the overall case fails if the exit code says so.

    Args:
        check: What was found.
    """
    from xml.etree.ElementTree import Element, indent, tostring

    root = Element("testsuites")
    for number, (name, found) in enumerate(cases(check).items()):
        root.append(_suite(check, name, found, number))
    indent(root)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{tostring(root, encoding="unicode")}\n'


def _suite(check: Check, name: str, found: list[Case], number: int) -> Element:
    from xml.etree.ElementTree import Element, SubElement

    about = {"name": name, "package": "harness.check", "id": str(number), **_counts(found)}
    made = Element("testsuite", _clean(about | {"timestamp": _moment(check.when), "hostname": "localhost"}))
    properties = SubElement(made, "properties")
    for key, value in _properties(check).items():
        SubElement(properties, "property", _clean({"name": key, "value": value}))
    made.extend([_case(case, name) for case in found])
    SubElement(made, "system-out").text = FORBIDDEN.sub("", "\n".join(check.warnings))
    SubElement(made, "system-err")
    return made


def _counts(found: list[Case]) -> dict[str, str]:
    kinds = (("failures", "failure"), ("errors", "error"), ("skipped", "skipped"))
    counts = {name: str(sum(case.result == kind for case in found)) for name, kind in kinds}
    return {"tests": str(len(found)), **counts, "time": f"{sum(case.seconds for case in found):.3f}"}


def _properties(check: Check) -> dict[str, str]:
    policy = {f"policy.{key}": value for key, value in check.policy.items()}
    return {
        "check": check.id,
        "candidate": check.candidate.name,
        "candidate.source": check.candidate.source,
        "candidate.artifacts": " ".join(check.candidate.artifacts),
        "baseline": words.baseline_text(check),
        "baseline.source": check.baseline.source,
        "baseline.artifacts": " ".join(check.baseline.artifacts),
        **({"recipe": check.recipe} if check.recipe else {}),
        **{key: v if isinstance(v, str) else json.dumps(v) for key, v in policy.items()},
    }


def _case(case: Case, suite: str) -> Element:
    from xml.etree.ElementTree import Element, SubElement

    names = {"name": case.name, "classname": f"harness.check.{suite}", "time": f"{case.seconds:.3f}"}
    made = Element("testcase", _clean(names))
    if case.result:
        kind = {} if case.result == "skipped" else {"type": case.verdict}
        told = SubElement(made, case.result, _clean(kind | {"message": case.message}))
        told.text = FORBIDDEN.sub("", case.details)
    return made


def _moment(when: str) -> str:
    """An ISO time as the schema wants it: UTC, whole seconds, no zone."""
    moment = datetime.fromisoformat(when)
    return (moment.astimezone(UTC) if moment.tzinfo else moment).strftime("%Y-%m-%dT%H:%M:%S")


def _clean(attributes: Mapping[str, str]) -> dict[str, str]:
    return {name: FORBIDDEN.sub("", value) for name, value in attributes.items()}
