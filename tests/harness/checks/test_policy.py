"""Policies: what may stand in one, what every mistake is answered with, and that one reads what it wrote."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.checks.policy import AUTO, DEFAULT, Policy
from harness.core.errors import UsageError

FULL = {
    "margin": 2,
    "mean_margin": "auto",
    "chain_margin": 2.0,
    "most_margin": 5.0,
    "changed": 0.3,
    "alpha": 0.01,
    "task_alpha": 0.05,
    "must_not_regress": ["Sci*"],
    "collapse": 10.0,
    "parts": "fail",
    "inconclusive": "fail",
    "missing": "exit-3",
    "not_testable": "ignore",
    "allow_differences": ["encoding.max_length", "prompts.*"],
    "budget_minutes": 30,
    "tasks": {"SciFact": {"margin": 3.0, "must_not_regress": False}, "STS12": {"margin": "auto"}},
}


def toml(value: Any) -> str:
    """A value of a TOML file; JSON's texts, numbers and lists are TOML's."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(name)} = {toml(one)}" for name, one in value.items()) + "}"
    return json.dumps(value).replace("NaN", "nan").replace("Infinity", "inf")


def read(folder: Path, settings: dict[str, Any]) -> Policy:
    path = folder / "p.toml"
    path.write_text("\n".join(f"{name} = {toml(value)}" for name, value in settings.items()))
    return Policy.read(path)


def test_every_setting_can_be_set(tmp_path: Path) -> None:
    policy = read(tmp_path, FULL)
    assert FULL.keys() == Policy.model_fields.keys()
    assert [policy.margin_of(task) for task in ("Other", "SciFact", "STS12")] == [2, 3, AUTO]
    assert [policy.forbids(task) for task in ("SciFact", "SciDocs", "STS12")] == [False, True, False]
    assert policy.to_json() == FULL | {
        "tasks": {
            "SciFact": {"margin": 3.0, "must_not_regress": False},
            "STS12": {"margin": "auto", "must_not_regress": None},
        }
    }
    assert read(tmp_path, {}) == DEFAULT


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        ({"margn": 1}, "Did you mean margin"),
        ({"must_not_regres": []}, "Did you mean must_not_regress"),
        ({"tasks": {"A": {"margn": 1}}}, "Did you mean margin"),
        ({"tasks": {"A": {"alpha": 0.1}}}, "'alpha'"),
        ({"tasks": 3}, "not a table of tables"),
        ({"tasks": {"A": 3}}, "not a table of tables"),
        ({"alpha": 0}, "alpha is 0: .*greater than or equal to 0.000001"),
        ({"alpha": 0.6}, "alpha is 0.6: .*less than or equal to 0.5"),
        ({"alpha": "small"}, "alpha is 'small': .*valid number"),
        ({"alpha": True}, "alpha is True: .*valid number"),
        ({"alpha": float("nan")}, "alpha is nan"),
        ({"alpha": "auto"}, "alpha is 'auto'"),
        ({"margin": -1}, "margin is -1: .*greater than or equal to 0 or 'auto'"),
        ({"margin": "big"}, "margin is 'big': .*'auto'"),
        ({"margin": float("inf")}, "margin is inf"),
        ({"changed": 0}, "changed is 0: .*greater than 0"),
        ({"budget_minutes": -1}, "budget_minutes is -1"),
        ({"inconclusive": "maybe"}, "inconclusive is 'maybe': .*'exit-3', 'fail' or 'pass'"),
        ({"not_testable": "fail"}, "not_testable is 'fail'"),
        ({"must_not_regress": "SciFact"}, "must_not_regress is 'SciFact': .*valid list"),
        ({"must_not_regress": [1]}, "must_not_regress is 1: .*valid string"),
        ({"tasks": {"A": {"must_not_regress": "yes"}}}, "A, must_not_regress is 'yes': .*valid boolean"),
        ({"margin": "measured"}, 'margin is "measured", which was removed. Use "auto".'),
        ({"max_drop": 1}, "max_drop was removed. Instead: margin is the loss"),
        ({"tasks": {"A": {"max_drop": 1}}}, "max_drop was removed. Instead: margin is the loss"),
        ({"correction": "holm"}, "correction was removed. Instead: task_alpha"),
        ({"least_margin": 1}, "least_margin was removed. Instead: an automatic margin begins at the default"),
        ({"draws": 2000}, "draws was removed. Instead: nothing is resampled"),
    ],
)
def test_what_cannot_be_used_is_named(raw: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        read(tmp_path, raw)
    text = f"{caught.value.message} {caught.value.hint}"
    assert "p.toml" in text
    assert re.search(message, text), text


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"gone\.toml cannot be read: No such file"):
        Policy.read(tmp_path / "gone.toml")
    with pytest.raises(UsageError, match="cannot be read: Is a directory"):
        Policy.read(tmp_path)
    for content in (b"alpha = = 3", b"\xff\xfe", b"alpha = 1\nalpha = 2"):
        (tmp_path / "p.toml").write_bytes(content)
        with pytest.raises(UsageError, match="is not valid TOML"):
            Policy.read(tmp_path / "p.toml")


margins = st.one_of(st.floats(0, 100), st.just(AUTO))
texts = st.text(st.characters(codec="utf-8"), max_size=12)
policies = st.builds(
    Policy,
    margin=margins,
    mean_margin=margins,
    alpha=st.floats(1e-6, 0.5),
    must_not_regress=st.lists(texts, max_size=3).map(tuple),
    inconclusive=st.sampled_from(("exit-3", "fail", "pass")),
    allow_differences=st.lists(texts, max_size=3).map(tuple),
    tasks=st.dictionaries(
        texts,
        st.fixed_dictionaries({"margin": st.none() | margins, "must_not_regress": st.none() | st.booleans()}),
        max_size=3,
    ),
)


@given(policies)
def test_a_policy_reads_what_it_wrote(policy: Policy) -> None:
    assert Policy.model_validate(tomllib.loads(policy.to_toml())) == policy
    assert Policy.model_validate(policy.to_json()) == policy


def test_a_written_policy_says_what_each_setting_means(tmp_path: Path) -> None:
    lines = DEFAULT.to_toml().splitlines()
    for name, field in Policy.model_fields.items():
        if name != "tasks":
            at = lines.index(f"# {field.description}")
            assert lines[at + 1].startswith(f"{name} = ")
    path = tmp_path / "p.toml"
    path.write_text(DEFAULT.to_toml())
    assert Policy.read(path) == DEFAULT


def test_a_margin_is_stated_or_the_default(tmp_path: Path) -> None:
    policy = read(tmp_path, {"margin": 2.0, "tasks": {"A": {"margin": 1.0}, "B": {}}})
    assert [policy.states("margin"), policy.states("mean_margin")] == [True, False]
    own = read(tmp_path, {"tasks": {"A": {"margin": 1.0}, "B": {}}})
    assert [own.states("margin", name) for name in "AB"] == [True, False]


def test_a_margin_that_is_typed_is_that_of_means_and_tasks() -> None:
    policy = Policy(alpha=0.01).set_margins("1.5")
    assert (policy.margin, policy.mean_margin, policy.alpha) == (1.5, 1.5, 0.01)
    assert policy.states("mean_margin")
    assert policy.set_margins("auto").mean_margin == AUTO
    for text in ("wide", "-1", "nan", "101"):
        with pytest.raises(UsageError, match="--margin is "):
            DEFAULT.set_margins(text)


def test_forms_of_one_setting_are_joined_by_or(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as told:
        read(tmp_path, {"mean_margin": "0.5"})
    assert told.value.message.endswith("mean_margin is '0.5': it must be a valid number or 'auto'.")
