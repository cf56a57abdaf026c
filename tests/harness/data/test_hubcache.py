"""Snapshots in the hub's cache, recipe_plan out as its library lays them out (links into blobs)."""

import hashlib
import json
from dataclasses import replace

import pytest

from harness.data.locate import DataMissing, DataSettings, locate_data
from harness.types import Data

PATH = "org/toy"

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
    import datasets

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
