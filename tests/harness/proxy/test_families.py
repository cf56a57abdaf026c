from __future__ import annotations

from harness.proxy.table import _families


def test_a_line_of_models_is_one_family_and_a_model_of_nothing_is_of_its_organisation() -> None:
    models = ["acme/base", "acme/other", "new/tuned", "new/again", "lone/one"]
    parents = {"new/tuned": "acme/base", "new/again": "new/tuned", "lone/one": "away/root"}
    assert _families(models, parents) == ["acme", "acme", "acme", "acme", "away/root"]


def test_two_models_with_a_root_that_was_never_scored_are_one_family() -> None:
    parents = {"a/one": "away/root", "b/two": "away/root"}
    one, two, three = _families(["a/one", "b/two", "away/sibling"], parents)
    assert one == two == "away/root"
    assert three == "away"


def test_a_circle_ends() -> None:
    parents = {"a/one": "b/two", "b/two": "a/one", "c/three": "b/two", "d/self": "d/self"}
    assert _families(["a/one", "b/two", "c/three", "d/self"], parents) == ["a", "a", "a", "d"]
