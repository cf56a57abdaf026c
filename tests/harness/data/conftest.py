import hashlib
import json
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from harness.data.locate import DataSettings

REVISION = "0123456789abcdef0123456789abcdef01234567"


def write(folder: Path, content: Mapping[str, str]) -> Path:
    for name, text in content.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return folder


def write_manifest(folder: Path, repo: str, revision: str = REVISION, /, **changes: object) -> None:
    """A manifest as a pull writes it, made here from the bytes on disk."""
    names = [p for p in folder.rglob("*") if p.is_file() and not p.name.startswith(".")]
    entries = {
        p.relative_to(folder).as_posix(): {
            "size": len(p.read_bytes()),
            "sha256": hashlib.sha256(p.read_bytes()).hexdigest(),
        }
        for p in names
    }
    manifest = {"schema": 1, "repo": repo, "revision": revision, "files": entries, **changes}
    (folder / ".harness.json").write_text(json.dumps(manifest))


@pytest.fixture
def revision() -> str:
    return REVISION


@pytest.fixture
def lay() -> Callable[[Path, Mapping[str, str]], Path]:
    return write


@pytest.fixture
def sign() -> Callable[..., None]:
    return write_manifest


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "root"
    folder.mkdir()
    return folder


@pytest.fixture
def settings(root: Path, tmp_path: Path, hub_cache: Path) -> DataSettings:
    return DataSettings(root=root, offline=True, cache=tmp_path / "cache")


@pytest.fixture
def hub_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache of the hub's library, instead of the user's own; the library may go online."""
    folder = tmp_path / "hub"
    folder.mkdir()
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(folder))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    return folder


@pytest.fixture
def public_folder() -> Iterator[Path]:
    """A temporary folder that every user can enter."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)
