"""A request with everything that it names found, before anything is looked up."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest

import tiny
from harness.errors import HarnessError, UsageError
from harness.request import Request, network, resolve_request
from harness.types import Settings, SuiteOptions


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.folder(tiny.families()["bert"], tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture
def folders(tmp_path: Path) -> dict[str, Path]:
    return {"cache": tmp_path / "cache", "results": tmp_path / "results"}


def asked(*models: object, folders: dict[str, Path], **more: Any) -> Request:
    return Request(
        **{"models": tuple(map(str, models)), "suites": ("mteb:STS12",), "offline": True, **folders, **more}
    )


def test_what_a_request_names_is_found(model: Path, folders: dict[str, Path]) -> None:
    found = resolve_request(asked(model, folders=folders, settings=Settings(max_length=32)))
    (subject,) = found.subjects
    assert (subject.artifact.name, subject.encoding.max_length) == ("tiny", 32)
    assert [task.name for suite in found.suites for task in suite.tasks] == ["STS12"]
    assert (found.recipe, found.results, found.cache) == (None, folders["results"], folders["cache"])
    assert found.data.offline


def test_a_model_that_was_typed_twice_is_one(model: Path, folders: dict[str, Path], tmp_path: Path) -> None:
    link = tmp_path / "other-name"
    link.symlink_to(model)
    found = resolve_request(asked(model, link, model, folders=folders))
    assert len(found.asked) == 3
    assert len(found.subjects) == 1
    assert {one.artifact.name for one in found.asked} == {"tiny"}


def test_a_request_may_name_its_models(model: Path, folders: dict[str, Path]) -> None:
    found = resolve_request(asked(model, folders=folders, names={str(model): "step 100"}))
    assert found.asked[0].artifact.name == "step 100"
    assert found.asked[0].artifact.key == resolve_request(asked(model, folders=folders)).asked[0].artifact.key


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({"models": ()}, "at least one model and one suite"),
        ({"suites": ()}, "at least one model and one suite"),
        ({"suites": ("mtbe",)}, "mtbe"),
        ({"devices": ("cud",)}, "cud"),
        ({"recipe": "glue-quick"}, "nothing to train for"),
        ({"options": SuiteOptions(tasks=("STS99",))}, "STS99"),
        ({"settings": Settings(prompts={"qeury": "x"})}, "qeury"),
    ],
)
def test_what_cannot_be_used_is_named(
    more: dict[str, Any], told: str, model: Path, folders: dict[str, Path]
) -> None:
    with pytest.raises(UsageError, match=told):
        resolve_request(asked(model, folders=folders, **more))


def test_a_suite_with_labels_needs_a_recipe(model: Path, folders: dict[str, Path]) -> None:
    with pytest.raises(UsageError, match="which recipe"):
        resolve_request(asked(model, folders=folders, suites=("glue",)))
    found = resolve_request(asked(model, folders=folders, suites=("glue",), recipe="glue-quick"))
    assert found.recipe is not None


def test_offline_means_no_network(folders: dict[str, Path]) -> None:
    with (
        network(asked("x", folders=folders)),
        pytest.raises((HarnessError, OSError)),
        socket.create_connection(("127.0.0.1", 9), timeout=1),
    ):
        pass
    with network(asked("x", folders=folders, offline=False)):
        assert socket.socket().close() is None
