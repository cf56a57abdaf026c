"""The names of --allow: which exist, and what a name that does not exist is told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import harness
from harness.checks.policy import Policy
from harness.core.arguments import ALLOWANCES
from harness.core.errors import UsageError
from harness.plan.request import Request


def request(allow: Any) -> Request:
    return Request(models=("a",), suites=("b",)).replace_fields({"allow": allow}, of="a test")


@pytest.mark.parametrize("given", [("tensors=a.*", "partial-data"), "tensors=a.*, partial-data"])
def test_names_are_a_text_or_several(given: Any) -> None:
    assert request(given).allow == ("tensors=a.*", "partial-data")


@pytest.mark.parametrize("given", ["partial", "tensors=", "pooling", ["partial-data", "x"]])
def test_an_unknown_name_is_refused_with_those_that_exist(given: Any) -> None:
    with pytest.raises(UsageError, match="names nothing that can be accepted") as caught:
        request(given)
    assert all(name in str(caught.value) for name in (*ALLOWANCES, "tensors=PATTERN"))


def test_a_check_takes_fields_beside_the_names() -> None:
    policy, names = Policy(allow_differences=("prompts",)).accept_names(["partial-data", "pooling,data.*"])
    assert policy.allow_differences == ("prompts", "pooling", "data.*")
    assert names == ("partial-data",)
    with pytest.raises(UsageError, match="--allow poling"):
        harness.check("a", "b", "c", allow="poling")


def test_every_name_is_documented() -> None:
    page = (Path(__file__).parents[3] / "docs" / "backbones.md").read_text()
    assert [name for name in ALLOWANCES if f"`{name}`" not in page] == []


@pytest.mark.parametrize("given", [3, [3], {"a": 1}])
def test_what_is_no_name_is_refused(given: Any) -> None:
    with pytest.raises(UsageError, match="must be names"):
        request(given)
    with pytest.raises(UsageError, match="must be names"):
        Policy().accept_names(given)


def test_a_misspelled_field_has_its_nearest() -> None:
    with pytest.raises(UsageError) as refused:
        Policy().accept_names("normalise")
    assert "Did you mean normalize" in str(refused.value.hint)


@pytest.mark.parametrize("option", ["--allow-extra", "--allow-differences"])
def test_a_removed_option_names_its_replacement(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    from harness.cli import invoke

    assert invoke(["check", option, "probe.*"]) == 2
    assert capsys.readouterr().err.startswith(f"Error: {option} was removed: --allow ")
