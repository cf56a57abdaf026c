"""Names of models that share one, and what a record keeps of a folder's path."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import fakes
from harness.jobs.jobs import build_model_part
from harness.results.names import NamedModel, distinguish_names


def final(key: str, folder: str = "", **fields: str | bool) -> NamedModel:
    return NamedModel(name="final", key=key * 9, folder=folder, **fields)  # type: ignore[arg-type]


def names(*models: NamedModel) -> list[str]:
    labels = distinguish_names(models)
    return [labels[one.key, one.name] for one in models]


def test_names_by_hand() -> None:
    assert names(final("a", "x/final"), final("a", "y/final")) == ["final", "final"]  # copies of one model
    assert names(final("a", "x/final"), final("b", "y/final")) == ["x/final", "y/final"]
    # A folder that was trained again, a typed name, a record of before, and a model of the catalog.
    assert names(final("a", "x/final"), final("b", "x/final")) == ["final (aaaaaaaa)", "final (bbbbbbbb)"]
    assert names(final("a", "x/1"), final("b", "y/final")) == ["final (aaaaaaaa)", "y/final"]
    assert names(final("a"), final("b", "y/final")) == ["final (aaaaaaaa)", "y/final"]
    assert names(final("a", shared=False), final("b", "y/final")) == ["final", "y/final"]
    revisions = [final("a", shared=False, revision="1" * 40), final("b", shared=False, revision="2" * 40)]
    assert names(*revisions) == ["final@11111111", "final@22222222"]
    # A path that is the name of another model tells nothing.
    hub = NamedModel(name="x/final", key="c" * 9, shared=False)
    assert names(final("a", "r/x/final"), final("b", "y/final"), hub) == ["r/x/final", "y/final", "x/final"]


parts = st.sampled_from("ab")
models = st.builds(
    lambda key, place, shared: NamedModel(name=place[-1], key=key, folder="/".join(place), shared=shared),
    st.text("01", min_size=9, max_size=9),
    st.lists(parts, min_size=1, max_size=3),
    st.booleans(),
)


@given(st.lists(models, max_size=12, unique_by=lambda one: one.key))
def test_no_two_models_have_one_name_and_no_other_is_renamed(found: list[NamedModel]) -> None:
    labels = names(*found)
    assert len({*labels}) == len(labels)
    own = [one.name for one in found]
    for model, label in zip(found, labels, strict=True):
        assert label == model.name or own.count(model.name) > 1
        assert label.startswith(f"{model.name} (") or f"/{model.folder}".endswith(f"/{label}")


def test_a_record_has_the_end_of_a_folders_path_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "exp1" / "final"
    folder.mkdir(parents=True)
    made = replace(fakes.artifact(folder, name="final"), source=str(folder))
    tail = f"{tmp_path.name}/exp1/final"
    assert build_model_part(made, {}).folder == tail
    assert str(tmp_path) not in build_model_part(made, {}).model_dump_json()
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert build_model_part(made, {}).folder == "exp1/final"
    # A name of another kind is no part of a path, and where a request tells names apart, records do not.
    assert build_model_part(replace(made, name="best"), {}).folder is None
    told_apart = build_model_part(replace(made, name="exp1/final", recorded="final"), {})
    assert (told_apart.name, told_apart.folder) == ("final", "exp1/final")
    # A model of the hub stays one beside a folder that is spelt alike.
    hub = build_model_part(replace(made, source="exp1/final", revision="0" * 40), {})
    assert (hub.source, hub.folder) == ("exp1/final", None)
