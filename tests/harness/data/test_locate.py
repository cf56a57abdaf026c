import hashlib
import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from harness.data.locate import DataMissing, DataSettings, locate_data
from harness.errors import DataError
from harness.types import Data

PATH = "org/toy"


def content_hash(files):
    """The documented content hash, computed here: sorted (name, sha256) pairs as JSON."""
    pairs = sorted([name, hashlib.sha256(text.encode()).hexdigest()] for name, text in files.items())
    return "sha256:" + hashlib.sha256(json.dumps(pairs, separators=(",", ":")).encode()).hexdigest()


def test_built_data_is_left_as_it_is(settings):
    data = Data(content="sha256:abc")
    found = locate_data(data, settings)
    assert (found.data, found.folder, found.origin) == (data, None, "built")


def test_a_folder_without_manifest_is_named_by_its_content(settings, root, lay, revision):
    files = {"README.md": "about", "en/test.jsonl": '{"a": 1}\n'}
    lay(root / PATH, files)
    found = locate_data(Data(path=PATH, revision=revision), settings)
    assert found.origin == "root"
    assert found.folder == root / PATH
    assert found.data == Data(path=PATH, content=content_hash(files))


def test_hidden_files_are_no_part_of_the_content(settings, root, lay):
    files = {"test.jsonl": "x"}
    lay(
        root / PATH, {**files, ".gitattributes": "y", ".cache/huggingface/z": "z", ".harness.json": "no json"}
    )
    assert locate_data(Data(path=PATH, revision="r"), settings).data.content == content_hash(files)


def test_a_true_manifest_proves_the_revision(settings, root, lay, sign, revision):
    lay(root / PATH, {"README.md": "about", "data/test.jsonl": "x"})
    sign(root / PATH, PATH)
    pinned = Data(path=PATH, revision=revision)
    assert locate_data(pinned, settings).data == pinned


@pytest.mark.parametrize(
    "spoil",
    [
        lambda folder: (folder / "test.jsonl").write_text("y"),
        lambda folder: (folder / "test.jsonl").unlink(),
        lambda folder: (folder / "train.jsonl").write_text("added"),
    ],
    ids=["changed", "removed", "added"],
)
def test_a_manifest_that_does_not_fit_proves_nothing(settings, root, lay, sign, revision, spoil):
    lay(root / PATH, {"README.md": "about", "test.jsonl": "x"})
    sign(root / PATH, PATH)
    spoil(root / PATH)
    left = {p.name: p.read_text() for p in (root / PATH).iterdir() if not p.name.startswith(".")}
    assert locate_data(Data(path=PATH, revision=revision), settings).data == Data(
        path=PATH, content=content_hash(left)
    )


@pytest.mark.parametrize("change", [{"repo": "org/other"}, {"schema": 2}, {"files": "none"}])
def test_a_foreign_newer_or_damaged_manifest_proves_nothing(settings, root, lay, sign, revision, change):
    lay(root / PATH, {"test.jsonl": "x"})
    sign(root / PATH, PATH, **change)
    found = locate_data(Data(path=PATH, revision=revision), settings)
    assert found.data == Data(path=PATH, content=content_hash({"test.jsonl": "x"}))


def test_a_proven_other_revision_is_not_what_is_wanted(settings, root, lay, sign, revision):
    lay(root / PATH, {"test.jsonl": "x"})
    sign(root / PATH, PATH, "f" * 40)
    wanted = Data(path=PATH, revision=revision)
    assert locate_data(wanted, replace(settings, offline=False)).origin == "hub"
    with pytest.raises(DataMissing, match="the data root has it at ffff"):
        locate_data(wanted, replace(settings, offline=True))
    beside = lay(root / f"{PATH}@{revision[:12]}", {"test.jsonl": "y"})
    sign(beside, PATH, revision)
    assert locate_data(wanted, settings).folder == beside
    assert locate_data(wanted, settings).data == wanted
    assert locate_data(replace(wanted, revision="f" * 40), settings).folder == root / PATH


def test_same_size_and_time_but_other_bytes_is_other_content(settings, root, lay):
    file = lay(root / PATH, {"test.jsonl": "aaaa"}) / "test.jsonl"
    os.utime(file, ns=(10**18, 10**18))
    before = locate_data(Data(path=PATH, revision="r"), settings).data
    file.write_text("bbbb")
    os.utime(file, ns=(10**18, 10**18))
    assert locate_data(Data(path=PATH, revision="r"), settings).data != before


def test_offline_and_nowhere_says_what_and_how_to_get_it(settings, revision):
    with pytest.raises(DataMissing, match="org/toy") as caught:
        locate_data(Data(path=PATH, revision=revision), settings)
    assert isinstance(caught.value, DataError)
    assert revision in str(caught.value)
    assert "harness data pull --suite" in str(caught.value)


def test_online_and_nowhere_loads_the_pinned_revision_from_the_hub(settings, revision):
    pinned = Data(path=PATH, revision=revision)
    found = locate_data(pinned, replace(settings, offline=False))
    assert (found.data, found.folder, found.origin) == (pinned, None, "hub")


def test_an_empty_folder_is_no_data_set(settings, root):
    (root / PATH).mkdir(parents=True)
    with pytest.raises(DataMissing):
        locate_data(Data(path=PATH, revision="r"), settings)


def test_a_data_root_that_does_not_exist_is_an_error_and_not_a_download(settings, tmp_path):
    wrong = replace(settings, root=tmp_path / "typo", offline=False)
    with pytest.raises(DataError, match="typo is not a folder"):
        locate_data(Data(path=PATH, revision="r"), wrong)


def test_a_linked_data_set_is_read_through_the_link(settings, root, lay, tmp_path):
    lay(tmp_path / "elsewhere", {"data/test.jsonl": "x"})
    (root / "org").mkdir()
    (root / PATH).symlink_to(tmp_path / "elsewhere")
    assert locate_data(Data(path=PATH, revision="r"), settings).data.content == content_hash(
        {"data/test.jsonl": "x"}
    )


READ = """
from pathlib import Path
from harness.errors import DataError
from harness.types import Data
try:
    locate_data(Data(path="org/toy", revision="r"), DataSettings(root=Path(sys.argv[1]), cache=Path("none")))
except DataError as error:
    print(error)
"""


@pytest.mark.parametrize("closed", ["org/toy/test.jsonl", "org/toy/data"], ids=["file", "folder"])
def test_what_this_user_may_not_read_is_named(public_folder: Path, lay, as_nobody, closed):
    lay(public_folder, {"org/toy/test.jsonl": "x", "org/toy/data/more.jsonl": "y"})
    (public_folder / closed).chmod(0)
    said = as_nobody(READ, str(public_folder))
    (public_folder / closed).chmod(0o755)
    assert f"Cannot read {public_folder / closed}: Permission denied." in said


def test_settings_need_a_cache_only():
    assert DataSettings(cache=Path("c")).root is None


def test_a_folder_with_some_of_the_subsets_is_refused_for_the_others(settings, root, lay, revision):
    readme = "---\nconfigs:\n- config_name: eng\n  data_files: eng.jsonl\n---\n"
    lay(root / PATH, {"README.md": readme, "eng.jsonl": "{}"})
    wanted = Data(path=PATH, revision=revision)
    assert locate_data(wanted, settings, subsets=("eng",)).origin == "root"
    assert locate_data(wanted, settings, subsets=("default",)).origin == "root"  # names of another kind
    with pytest.raises(DataMissing, match=r"without deu, fra\.") as caught:
        locate_data(wanted, settings, subsets=("deu", "eng", "fra"))
    assert "--languages" in caught.value.hint
