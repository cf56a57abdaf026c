"""Where data is found: under a data root, in the cache of the hub, and what is prepared of it."""

import hashlib
import json
import os
from dataclasses import replace
from pathlib import Path

import datasets
import pytest

from harness.core.errors import DataError
from harness.core.types import Data
from harness.data.locate import DataMissing, DataSettings, locate_data
from nobody import as_nobody

# Folders under a data root


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


@pytest.mark.parametrize("level", ["..", "sub"])
def test_a_data_root_one_level_off_is_named(settings, root, lay, revision, level):
    lay(root / level / PATH, {"data.jsonl": "{}"})
    with pytest.raises(DataMissing) as caught:
        locate_data(Data(path=PATH, revision=revision), settings)
    place = (root / level).resolve()
    assert caught.value.hint == f"{place} has it: type --data {place}."


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


@pytest.mark.parametrize("closed", ["org/toy/test.jsonl", "org/toy/data"], ids=["file", "folder"])
def test_what_this_user_may_not_read_is_named(public_folder: Path, lay, closed):
    lay(public_folder, {"org/toy/test.jsonl": "x", "org/toy/data/more.jsonl": "y"})
    (public_folder / closed).chmod(0)
    settings = DataSettings(root=public_folder, cache=Path("none"))
    with as_nobody(), pytest.raises(DataError) as error:
        locate_data(Data(path=PATH, revision="r"), settings)
    (public_folder / closed).chmod(0o755)
    assert f"Cannot read {public_folder / closed}: Permission denied." in str(error.value)


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
    assert "--subsets eng," in caught.value.hint
    lay(root / PATH, {"README.md": readme.replace("eng", "eng_Latn"), "eng_Latn.jsonl": "{}"})
    with pytest.raises(DataMissing, match="--languages eng-Latn,"):
        locate_data(wanted, settings, subsets=("deu_Latn", "eng_Latn"))


def test_a_configuration_stands_for_the_subset_of_its_name_only(settings, root, lay, revision):
    configs = "".join(f"- config_name: {name}\n  data_files: a.jsonl\n" for name in ("en-ext", "ja"))
    readme = f"---\nconfigs:\n{configs}---\n"
    lay(root / PATH, {"README.md": readme, "a.jsonl": "{}"})
    wanted = Data(path=PATH, revision=revision)
    assert locate_data(wanted, settings, subsets=("en-ext", "ja")).origin == "root"
    with pytest.raises(DataMissing, match=r"without en\."):
        locate_data(wanted, settings, subsets=("en", "ja"))
    lay(root / PATH, {"README.md": readme.replace("en-ext", "corpus-en")})
    assert locate_data(wanted, settings, subsets=("en", "ja")).origin == "root"


# Snapshots in the hub's cache, laid out as its library does it (links into blobs)


README = """---
configs:
- config_name: en
  default: true
  data_files:
  - split: test
    path: en/test-*.jsonl
- config_name: fr-corpus
  data_files: fr/corpus.jsonl
- config_name: fr-queries
  data_files:
  - split: test
    path: [fr/queries.jsonl]
---
A toy.
"""
WHOLE = {
    "README.md": README,
    ".gitattributes": "",
    "en/test-00000-of-00002.jsonl": '{"a": 1}\n',
    "en/test-00001-of-00002.jsonl": '{"a": 2}\n',
    "fr/corpus.jsonl": '{"a": 3}\n',
    "fr/queries.jsonl": '{"a": 4}\n',
}


@pytest.fixture
def online(tmp_path, hub_cache):
    return DataSettings(cache=tmp_path / "cache")


@pytest.fixture
def offline(online):
    return replace(online, offline=True)


@pytest.fixture
def snapshot(hub_cache, revision):
    """Lays files into the cache as a download of some of them leaves them."""

    def lay(*names, files=WHOLE, listed=False):
        repo = hub_cache / "datasets--org--toy"
        for name in names or files:
            blob = repo / "blobs" / hashlib.sha1(files[name].encode()).hexdigest()
            link = repo / "snapshots" / revision / name
            blob.parent.mkdir(parents=True, exist_ok=True)
            link.parent.mkdir(parents=True, exist_ok=True)
            blob.write_text(files[name])
            link.symlink_to(blob)
        if listed:
            tree = {name: {"size": len(text), "blob_id": "0" * 40} for name, text in files.items()}
            (repo / "trees").mkdir()
            content = json.dumps({"format_version": 1, "files": tree})
            (repo / "trees" / f"{revision}.json").write_text(content)
        return repo / "snapshots" / revision

    return lay


def test_a_whole_snapshot_is_used_at_its_revision(snapshot, online, revision):
    folder, pinned = snapshot(), Data(path=PATH, revision=revision)
    found = locate_data(pinned, online)
    assert (found.data, found.folder, found.origin) == (pinned, folder, "hub-cache")


def test_a_data_root_goes_before_the_hub_cache(snapshot, online, root, lay, revision):
    snapshot()
    lay(root / PATH, {"test.jsonl": "x"})
    assert locate_data(Data(path=PATH, revision=revision), replace(online, root=root)).origin == "root"


def test_another_revision_in_the_cache_is_not_used(snapshot, online):
    snapshot()
    assert locate_data(Data(path=PATH, revision="f" * 40), online).origin == "hub"


@pytest.mark.parametrize(
    "lacking",
    ["en/test-00000-of-00002.jsonl", "en/test-00001-of-00002.jsonl", "fr/corpus.jsonl", "fr/queries.jsonl"],
)
def test_a_snapshot_that_lacks_a_file_is_completed_from_the_hub(snapshot, online, revision, lacking):
    snapshot(*(name for name in WHOLE if name != lacking))
    assert locate_data(Data(path=PATH, revision=revision), online).origin == "hub"


def test_offline_a_partial_snapshot_is_an_error_that_says_what_lacks(snapshot, offline, revision):
    snapshot("README.md", "en/test-00000-of-00002.jsonl", "en/test-00001-of-00002.jsonl")
    with pytest.raises(DataMissing, match=r"only in part .*fr/corpus\.jsonl"):
        locate_data(Data(path=PATH, revision=revision), offline)


def test_a_partial_snapshot_does_for_the_subset_it_holds(snapshot, offline, revision):
    snapshot("README.md", "en/test-00000-of-00002.jsonl", "en/test-00001-of-00002.jsonl")
    pinned = Data(path=PATH, revision=revision)
    assert locate_data(pinned, offline, subsets=("en",)).origin == "hub-cache"
    with pytest.raises(DataMissing):
        locate_data(pinned, offline, subsets=("fr",))


def test_the_first_configuration_is_needed_whatever_is_read(snapshot, offline, revision):
    """The loader infers the format of every configuration from the files of the first one."""
    snapshot("README.md", "fr/corpus.jsonl", "fr/queries.jsonl")
    with pytest.raises(DataMissing, match="en/test-"):
        locate_data(Data(path=PATH, revision=revision), offline, subsets=("fr",))


def test_readme_alone_is_no_data_set(snapshot, offline, revision):
    snapshot("README.md")
    with pytest.raises(DataMissing):
        locate_data(Data(path=PATH, revision=revision), offline)


def test_a_link_to_a_blob_that_is_gone_is_a_missing_file(snapshot, online, revision):
    folder = snapshot()
    (folder / "fr/corpus.jsonl").resolve().unlink()
    assert locate_data(Data(path=PATH, revision=revision), online).origin == "hub"


def test_the_list_of_a_whole_download_settles_it(snapshot, online, revision):
    files = {"README.md": "no header", "test.jsonl": "x"}
    snapshot(files=files, listed=True)
    assert locate_data(Data(path=PATH, revision=revision), online).origin == "hub-cache"


def test_shards_with_hashes_in_their_names_are_counted_by_number(snapshot, online, revision):
    files = {"data/test-00000-of-00002-aa11.parquet": "x", "data/test-00001-of-00002-bb22.parquet": "y"}
    snapshot(files=files)
    assert locate_data(Data(path=PATH, revision=revision), online).origin == "hub-cache"


def test_a_short_revision_is_resolved_as_the_cache_recorded_it(snapshot, hub_cache, online, revision):
    folder = snapshot()
    refs = hub_cache / "datasets--org--toy" / "refs"
    refs.mkdir()
    (refs / revision[:7]).write_text(revision)
    found = locate_data(Data(path=PATH, revision=revision[:7]), online)
    assert (found.folder, found.data.revision) == (folder, revision[:7])


def test_datasets_reads_a_snapshot_folder(snapshot, offline, revision, tmp_path):

    snapshot()
    folder = locate_data(Data(path=PATH, revision=revision), offline).folder
    rows = datasets.load_dataset(str(folder), "en", split="test", cache_dir=str(tmp_path / "prepared"))
    assert rows["a"][:] == [1, 2]


def test_a_retrieval_data_set_of_which_only_the_judgements_came_is_not_whole(snapshot, offline, revision):
    readme = """---
configs:
- config_name: default
  data_files: qrels/test.jsonl
- config_name: corpus
  data_files: corpus.jsonl
- config_name: queries
  data_files: queries.jsonl
---
"""
    files = {"README.md": readme, "qrels/test.jsonl": "{}"}
    snapshot(files=files)
    with pytest.raises(DataMissing, match=r"no corpus.jsonl, queries.jsonl"):
        locate_data(Data(path=PATH, revision=revision), offline, subsets=("default",))
    snapshot(files={"corpus.jsonl": "[]", "queries.jsonl": "[{}]"})
    assert (
        locate_data(Data(path=PATH, revision=revision), offline, subsets=("default",)).origin == "hub-cache"
    )
