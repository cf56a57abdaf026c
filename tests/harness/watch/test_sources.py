from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import huggingface_hub
import pytest

from harness.errors import ModelError, UsageError
from harness.watch.source import _HubSilent, open_source
from harness.watch.watch import scan_source

Write = Callable[..., Path]
Refs = Callable[..., None]


def ref(name: str, commit: str) -> SimpleNamespace:
    return SimpleNamespace(name=name, target_commit=commit * 40)


@pytest.fixture
def refs(monkeypatch: pytest.MonkeyPatch) -> Refs:
    """Lets the hub answer with branches and tags, or with an error."""

    def answer(*branches: Any, tags: Any = (), error: Exception | None = None) -> None:
        def listed(_api: object, repository: str) -> SimpleNamespace:
            assert repository == "org/name"
            if error is not None:
                raise error
            return SimpleNamespace(branches=list(branches), tags=list(tags))

        monkeypatch.setattr(huggingface_hub.HfApi, "list_repo_refs", listed)

    return answer


def test_a_folders_checkpoints_come_by_step_and_the_rest_is_named(write: Write, tmp_path: Path) -> None:
    for name in ("checkpoint-900", "checkpoint-1000", "final", "tmp-checkpoint-2000", "step_1000"):
        write(name, weights=1)
    (tmp_path / "run" / "log.txt").write_text("")
    (tmp_path / "run" / ".cache").mkdir()
    found = scan_source(str(tmp_path / "run"), settle=0)
    assert [one.checkpoint.step for one in found.new] == [900, 1000]
    assert {one.name: one.reason for one in found.skipped} == {
        "final": "no step in its name",
        "tmp-checkpoint-2000": "a name for what is being written",
        "step_1000": "step 1000, as checkpoint-1000",
    }


@pytest.mark.parametrize("under", ["hf", "anything"])
def test_a_model_one_level_down_is_found(write: Write, tmp_path: Path, under: str) -> None:
    folder = write("step5", under=under)
    (tmp_path / "run" / "step5" / "optimizer").mkdir()
    (one,) = scan_source(str(tmp_path / "run"), settle=0).new
    assert one.checkpoint.folder == folder
    assert one.checkpoint.name == "step5"


def test_of_two_models_one_level_down_hf_is_meant(write: Write, tmp_path: Path) -> None:
    write("step5", under="other")
    write("step5", under="hf")
    (one,) = scan_source(str(tmp_path / "run"), settle=0).new
    assert one.checkpoint.folder == tmp_path / "run" / "step5" / "hf"


@pytest.mark.parametrize(
    ("text", "said"),
    [("no-such", "No folder is at"), ("./org/name", "No folder is at"), ("org/name@step5", "one revision")],
)
def test_what_is_no_source_is_refused(text: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        open_source(text)


def test_one_model_and_a_file_are_no_source(write: Write, tmp_path: Path) -> None:
    folder = write("checkpoint-1")
    with pytest.raises(UsageError, match="is one model"):
        scan_source(str(folder))
    with pytest.raises(UsageError, match="is a file"):
        scan_source(str(folder / "config.json"))


def test_a_repositorys_revisions_are_pinned_to_their_commits(refs: Refs) -> None:
    refs(ref("main", "0"), ref("step1000", "a"), ref("step0", "b"), tags=[ref("step2000", "c")])
    found = scan_source("org/name")
    assert [(one.checkpoint.step, one.checkpoint.model, one.stamp) for one in found.new] == [
        (0, f"org/name@{'b' * 40}", "b" * 40),
        (1000, f"org/name@{'a' * 40}", "a" * 40),
        (2000, f"org/name@{'c' * 40}", "c" * 40),
    ]
    assert [one.name for one in found.skipped] == ["main"]


def test_a_branch_goes_before_a_tag_of_its_name(refs: Refs) -> None:
    refs(ref("step1", "a"), tags=[ref("step1", "b")])
    assert [one.stamp for one in scan_source("org/name").new] == ["a" * 40]


def test_without_a_network_a_repository_is_refused(refs: Refs) -> None:
    from huggingface_hub.errors import OfflineModeIsEnabled

    with pytest.raises(UsageError, match="--offline cannot see its revisions"):
        scan_source("org/name", offline=True)
    refs(error=OfflineModeIsEnabled("offline"))
    with pytest.raises(UsageError, match="HF_HUB_OFFLINE is set"):
        scan_source("org/name")


def test_what_the_hub_does_not_have_and_a_silent_hub_are_two_things(refs: Refs) -> None:
    import httpx
    from huggingface_hub.errors import RepositoryNotFoundError

    response = httpx.Response(404, request=httpx.Request("GET", "https://hub"))
    refs(error=RepositoryNotFoundError("no", response=response))
    with pytest.raises(ModelError, match="no model org/name") as missing:
        scan_source("org/name")
    assert not isinstance(missing.value, _HubSilent)
    refs(error=httpx.ConnectError("refused"))
    with pytest.raises(_HubSilent, match="refused"):
        scan_source("org/name")
