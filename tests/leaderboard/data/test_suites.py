"""What columns ask of tasks, and how results answer."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes import task as fake_task
from harness.core.types import Column, Data, Suite
from harness.plan import catalog
from leaderboard.data.suites import (
    REASONS,
    WHY,
    Scope,
    SiteSuite,
    build_task_scope,
    collect_scopes,
    format_slug,
    list_conventions,
    load_site_suites,
)

PINNED = Scope(task="T", splits=("test",), subsets=("en", "fr"), data="r" * 40)


@pytest.mark.parametrize(
    ("raw", "data", "wanted"),
    [
        ({"test": {"en": 0.25, "fr": 0.75}}, "r" * 40, (0.5, "")),
        ({"test": {"en": 0.25, "fr": 0.75, "de": 9.0}, "dev": {"en": 0.1}}, "r" * 40, (0.5, "")),
        ({"test": {"en": 0, "fr": 1}}, "r" * 40, (0.5, "")),
        ({"test": {"en": 0.25, "fr": 0.75}}, "x" * 40, (0.5, "other")),
        ({"test": {"en": 0.25, "fr": 0.75}}, "", (0.5, "other")),
        ({"test": {"en": 0.25}}, "r" * 40, (None, "part")),
        ({"dev": {"en": 0.25, "fr": 0.75}}, "r" * 40, (None, "part")),
        ({}, "r" * 40, (None, "part")),
        ({"test": {"en": 0.25, "fr": None}}, "r" * 40, (None, "bad")),
        ({"test": {"en": 0.25, "fr": None}}, "x" * 40, (None, "bad")),
        ({"test": {"en": 0.25, "fr": float("nan")}}, "r" * 40, (None, "bad")),
        ({"test": {"en": 0.25, "fr": float("inf")}}, "r" * 40, (None, "bad")),
        ({"test": {"en": None}}, "r" * 40, (None, "part")),
    ],
)
def test_answers(raw: dict[str, dict[str, float | None]], data: str, wanted: tuple[object, str]) -> None:
    assert PINNED.answer(raw, data) == wanted


def test_data_that_nobody_pinned_is_taken_as_it_is() -> None:
    free = replace(PINNED, data="")
    assert free.answer({"test": {"en": 0.5, "fr": 0.5}}, "anything") == (0.5, "")


def test_every_reason_is_explained() -> None:
    assert tuple(WHY) == REASONS
    assert all(WHY[reason] for reason in REASONS if reason)


def test_the_revision_pins_the_data_and_a_content_hash_where_it_is_built() -> None:
    built, pinned = fake_task("B"), replace(fake_task("P"), data=Data(path="org/set", revision="r1"))
    assert build_task_scope(built).data == built.data.content != ""
    assert build_task_scope(pinned).data == "r1"
    raw = {"test": {"default": 0.5}}
    assert build_task_scope(built).answer(raw, built.data.content) == (0.5, "")
    assert build_task_scope(built).answer(raw, "d" * 8) == (0.5, "other")


def test_a_convention_counts_only_where_a_recipe_trains() -> None:
    assert build_task_scope(fake_task(), "optibert").view == ""
    assert build_task_scope(replace(fake_task(), output="label"), "optibert").view == "optibert"


def test_forms_tell_all_scopes_apart() -> None:
    others = [
        replace(PINNED, task="U"),
        replace(PINNED, splits=("dev",)),
        replace(PINNED, subsets=("fr", "en")),
        replace(PINNED, data="s" * 40),
        replace(PINNED, view="optibert"),
    ]
    assert len({PINNED.form, *(other.form for other in others)}) == 6
    assert replace(PINNED).form == PINNED.form
    many = replace(PINNED, subsets=tuple(f"{n}" for n in range(10_000)))
    assert len(many.form) == len(PINNED.form) == 64  # it is a key of the database


@given(st.text())
def test_a_slug_is_safe_in_paths_and_urls(text: str) -> None:
    found = format_slug(text)
    assert re.fullmatch(r"[A-Za-z0-9._-]*", found)
    assert not found.startswith((".", "-"))
    assert not found.endswith((".", "-"))
    assert format_slug(found) == found


@cache
def everything() -> dict[str, SiteSuite]:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        return load_site_suites(Path(folder))


def test_every_suite_is_listed_once() -> None:
    found = everything()
    assert list(found) == [one.slug for one in found.values()]
    assert all(re.fullmatch(r"[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)*", name) for name in found)
    columns = [
        tuple(build_task_scope(t).form for c in one.suite.columns for t in c.tasks) for one in found.values()
    ]
    assert len(set(columns)) == len(columns)
    assert all(columns)


def test_a_named_suite_goes_before_the_benchmark_with_its_columns() -> None:
    found = everything()
    # Tables of speeds and perplexities would have no shares of 1.
    speeds = {"efficiency", "efficiency-neobert", "pseudo-perplexity"}
    named = {entry.name for entry in catalog.load_suite_entries().values() if entry.alone} - speeds
    assert {one.slug for one in found.values() if one.main} == {format_slug(name) for name in named}
    first = [one.main for one in found.values()]
    assert first == sorted(first, reverse=True)
    titles = {one.typed for one in found.values()}
    assert "mteb" in titles
    assert "mteb:MTEB(eng, v2)" not in titles  # the same columns


def test_no_two_suites_are_typed_into_one_slug() -> None:
    """Else one would hide the other."""
    entries = catalog.load_suite_entries().values()
    typed = [e.name for e in entries if e.alone]
    typed += [f"{e.name}:{o.name}" for e in entries for o in e.offers() if o.kind == "benchmark"]
    assert len({format_slug(one) for one in typed}) == len(set(typed))


def test_all_scopes_by_task() -> None:
    task = replace(fake_task("L"), output="label")
    glue = everything()["glue"]
    assert set(list_conventions(glue.suite)) == set(glue.suite.conventions)
    plain = Suite(name="s", title="S", columns=(Column(name="LM", type="x", tasks=(task, fake_task("M"))),))
    found = collect_scopes([SiteSuite(slug="s", typed="s", suite=plain, main=True), glue])
    assert {scope.view for scope in found["RTE"].values()} == set(glue.suite.conventions)
    assert {scope.view for scope in found["L"].values()} == {""}
    assert [scope.form for scope in found["M"].values()] == [build_task_scope(fake_task("M")).form]
