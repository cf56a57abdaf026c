import pytest

from harness.data.folder import Need
from harness.data.locate import human_size
from harness.data.mirror import files_found, needs, status
from harness.types import Data, Task


def task(name, path="org/toy", revision="r" * 40, subsets=("default",), content=""):
    data = Data(path=path, revision=revision, content=content)
    return Task(
        name=name, type="STS", metric="spearman", splits=("test",), subsets=subsets, data=data, source=None
    )


def test_a_data_set_is_needed_once_with_all_its_tasks_and_subsets():
    tasks = [
        task("B", subsets=("fr", "en")),
        task("Other", path="org/other"),
        task("A", subsets=("en", "de")),
        task("Built", path="", revision="", content="sha256:1"),
    ]
    assert needs(tasks) == (
        Need(path="org/toy", revision="r" * 40, tasks=("B", "A"), subsets=("fr", "en", "de")),
        Need(path="org/other", revision="r" * 40, tasks=("Other",), subsets=("default",)),
    )


def test_two_revisions_are_two_needs():
    assert [n.revision for n in needs([task("A", revision="1"), task("B", revision="2")])] == ["1", "2"]


@pytest.fixture
def need(revision):
    return Need(path="org/toy", revision=revision, tasks=("A",))


def test_nothing_offline_is_missing(need, settings):
    row = status(need, settings)
    assert (row.state, row.where, row.size) == ("missing", None, None)


def test_nothing_online_is_remote(need, settings):
    from dataclasses import replace

    row = status(need, replace(settings, offline=False))
    assert (row.state, row.where, row.size) == ("remote", "hub", None)


def test_pulled_and_whole_is_verified_with_its_size(need, settings, root, lay, sign):
    lay(root / "org/toy", {"README.md": "12345", "data/test.jsonl": "678", ".hidden": "not counted"})
    sign(root / "org/toy", "org/toy")
    row = status(need, settings)
    assert (row.state, row.where, row.size) == ("verified", "root", 8)
    assert row.data == need.data


def test_a_folder_made_by_hand_is_unverified(need, settings, root, lay):
    lay(root / "org/toy", {"test.jsonl": "x"})
    row = status(need, settings)
    assert row.state == "unverified"
    assert row.data.content.startswith("sha256:")


@pytest.mark.parametrize("how", ["bytes", "manifest"])
def test_what_differs_from_what_was_pulled_is_changed(need, settings, root, lay, sign, how):
    folder = lay(root / "org/toy", {"test.jsonl": "x"})
    sign(folder, "org/toy", need.revision)
    if how == "bytes":
        (folder / "test.jsonl").write_text("y")
    if how == "manifest":
        (folder / ".harness.json").write_text("{")
    assert status(need, settings).state == "changed"


def test_found_lists_what_lies_in_a_root(root, lay, sign, revision):
    lay(root / "org/toy", {"test.jsonl": "x"})
    sign(root / "org/toy", "org/toy")
    lay(root / "org/by-hand", {"test.jsonl": "x"})
    lay(root, {"README.md": "a file", "org/.toy.partial/test.jsonl": "x"})
    (root / "org/empty").mkdir()
    assert [(n.path, n.revision) for n in files_found(root)] == [("org/by-hand", ""), ("org/toy", revision)]


@pytest.mark.parametrize(
    ("size", "text"),
    [(None, "?"), (0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (2_500_000_000, "2.5 GB"), (3e12, "3.0 TB")],
)
def test_sizes_are_fit_to_read(size, text):
    assert human_size(size) == text
