"""Policies: what may stand in one, what every mistake is answered with, and that one reads what it wrote."""

from __future__ import annotations

import tomllib
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.checks.policy import CORRECTIONS, DEFAULT, MEASURED, Policy, _parse, _TaskPolicy
from harness.commands.check import MEANINGS, _explanation, _to_toml
from harness.errors import UsageError

FULL = {
    "alpha": 0.01,
    "margin": "measured",
    "least_margin": 0.2,
    "mean_margin": 2,
    "max_drop": 0.5,
    "must_not_regress": ["Sci*"],
    "correction": "benjamini-hochberg",
    "inconclusive": "fail",
    "missing": "fail",
    "not_testable": "ignore",
    "allow_differences": ["encoding.max_length", "prompts.*"],
    "budget_minutes": 30,
    "tasks": {"SciFact": {"margin": 3.0, "max_drop": 1, "must_not_regress": False}},
}


def test_settings_of_the_former_resampling_are_ignored() -> None:
    assert _parse({"draws": 2000, "seed": 7, "alpha": 0.1}, where="here") == replace(DEFAULT, alpha=0.1)


def test_every_setting_can_be_set() -> None:
    policy = _parse(FULL, where="here")
    assert FULL.keys() == {one.name for one in fields(Policy)}
    assert policy.margin_of("Other") == MEASURED
    assert (policy.margin_of("SciFact"), policy.max_drop_of("SciFact")) == (3.0, 1.0)
    assert policy.max_drop_of("Other") == 0.5
    assert (policy.forbids("SciFact"), policy.forbids("SciDocs"), policy.forbids("STS12")) == (
        False,
        True,
        False,
    )
    assert policy.tasks == {"SciFact": _TaskPolicy(margin=3.0, max_drop=1.0, must_not_regress=False)}
    assert _parse({}, where="here") == DEFAULT


@pytest.mark.parametrize(
    ("raw", "told"),
    [
        ({"margn": 1}, "margin"),
        ({"must_not_regres": []}, "must_not_regress"),
        ({"tasks": {"A": {"margn": 1}}}, "margin"),
        ({"tasks": {"A": {"alpha": 0.1}}}, "alpha"),
        ({"tasks": 3}, "no table of tables"),
        ({"tasks": {"A": 3}}, "no table of tables"),
        ({"alpha": 0}, "alpha is 0"),
        ({"alpha": 0.6}, "alpha is 0.6"),
        ({"alpha": "small"}, "must be a number"),
        ({"alpha": True}, "alpha is True"),
        ({"alpha": float("nan")}, "alpha is nan"),
        ({"alpha": MEASURED}, "alpha is 'measured'"),
        ({"margin": -1}, "margin is -1"),
        ({"margin": "big"}, 'or "measured"'),
        ({"margin": float("inf")}, "margin is inf"),
        ({"mean_margin": "big"}, 'or "measured"'),
        ({"least_margin": MEASURED}, "least_margin is 'measured'"),
        ({"max_drop": [1]}, r"max_drop is \[1\]"),
        ({"budget_minutes": -1}, "budget_minutes is -1"),
        ({"correction": "bonferroni"}, "correction is 'bonferroni'"),
        ({"correction": ["holm"]}, "correction is"),
        ({"inconclusive": "maybe"}, "inconclusive is 'maybe'"),
        ({"not_testable": "fail"}, "not_testable is 'fail'"),
        ({"must_not_regress": "SciFact"}, "a list of texts"),
        ({"must_not_regress": [1]}, "a list of texts"),
        ({"allow_differences": True}, "a list of texts"),
        ({"tasks": {"A": {"must_not_regress": "yes"}}}, "true or false"),
    ],
)
def test_what_cannot_be_used_is_named(raw: dict[str, Any], told: str) -> None:
    with pytest.raises(UsageError, match=told) as caught:
        _parse(raw, where="the policy p.toml")
    error = caught.value
    assert "p.toml" in f"{error.message} {error.hint}"


@pytest.mark.parametrize(
    ("raw", "told"),
    [
        ({"margin": 1, "max_drop": 2}, r"max_drop \(2\) is more than margin \(1\)"),
        ({"max_drop": 0.5, "tasks": {"A": {"margin": 0.4}}}, "of A"),
        ({"tasks": {"A": {"max_drop": 1.5}}}, "of A"),
    ],
)
def test_a_drop_beyond_the_margin_is_refused(raw: dict[str, Any], told: str) -> None:
    with pytest.raises(UsageError, match=told):
        _parse(raw, where="p")
    _parse({"margin": MEASURED, "max_drop": 2}, where="p")
    _parse({"margin": 2, "max_drop": 2}, where="p")


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"gone\.toml cannot be read: No such file"):
        Policy.read(tmp_path / "gone.toml")
    with pytest.raises(UsageError, match="cannot be read: Is a directory"):
        Policy.read(tmp_path)
    for content in (b"alpha = = 3", b"\xff\xfe", b"alpha = 1\nalpha = 2"):
        (tmp_path / "p.toml").write_bytes(content)
        with pytest.raises(UsageError, match="is no TOML"):
            Policy.read(tmp_path / "p.toml")


points = st.floats(0, 50).map(lambda value: round(value, 3))
margins = st.one_of(st.floats(50, 100), st.just(MEASURED))
texts = st.text(st.characters(codec="utf-8"), max_size=12)
policies = st.builds(
    Policy,
    alpha=st.floats(1e-6, 0.5),
    margin=margins,
    least_margin=points,
    mean_margin=margins,
    max_drop=points,
    must_not_regress=st.lists(texts, max_size=3).map(tuple),
    correction=st.sampled_from(CORRECTIONS),
    inconclusive=st.sampled_from(("exit-3", "fail", "pass")),
    not_testable=st.sampled_from(("inconclusive", "ignore")),
    allow_differences=st.lists(texts, max_size=3).map(tuple),
    budget_minutes=points,
    tasks=st.dictionaries(
        texts,
        st.builds(
            _TaskPolicy,
            margin=st.none() | margins,
            max_drop=st.none() | points,
            must_not_regress=st.none() | st.booleans(),
        ),
        max_size=3,
    ),
)


@given(policies)
def test_a_policy_reads_what_it_wrote(policy: Policy) -> None:
    assert _parse(tomllib.loads(_to_toml(policy)), where="p") == policy
    assert _parse(tomllib.loads(_explanation(policy)), where="p") == policy


def test_the_explanation_says_what_each_setting_means(tmp_path: Path) -> None:
    told = _explanation(DEFAULT)
    assert MEANINGS.keys() == {one.name for one in fields(Policy)} - {"tasks"}
    lines = told.splitlines()
    for name, meaning in MEANINGS.items():
        at = lines.index(f"# {meaning}")
        assert lines[at + 1].startswith(f"{name} = ")
    path = tmp_path / "p.toml"
    path.write_text(told)
    assert Policy.read(path) == DEFAULT
