import os

import pytest

from harness.data.folder import Need
from harness.data.mirror import verify


@pytest.fixture
def need(revision):
    return Need(path="org/toy", revision=revision)


@pytest.fixture
def folder(root, lay, sign):
    folder = lay(
        root / "org/toy", {"README.md": "about", "data/test.jsonl": "aaaa", "data/train.jsonl": "bbbb"}
    )
    sign(folder, "org/toy")
    return folder


def told(problems):
    return [(p.kind, p.file, p.wrong) for p in problems]


def test_what_was_pulled_has_no_problem(need, root, folder):
    assert verify(need, root) == ()


def test_each_damaged_file_is_named_with_what_is_wrong(need, root, folder):
    (folder / "README.md").unlink()
    (folder / "data/test.jsonl").write_text("aaaab")
    (folder / "data/train.jsonl").write_text("bbbc")
    problems = verify(need, root)
    assert sorted(told(problems)) == [
        ("missing", "README.md", True),
        ("sha256", "data/train.jsonl", True),
        ("size", "data/test.jsonl", True),
    ]
    assert {p.message.split()[0] for p in problems} == {"README.md", "data/test.jsonl", "data/train.jsonl"}


def test_damage_that_keeps_size_and_time_is_found(need, root, folder):
    file = folder / "data/test.jsonl"
    before = file.stat()
    file.write_text("aaba")
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert told(verify(need, root)) == [("sha256", "data/test.jsonl", True)]


def test_an_added_file_is_told_and_not_wrong(need, root, folder):
    (folder / "notes.txt").write_text("mine")
    assert told(verify(need, root)) == [("extra", "notes.txt", False)]


def test_no_folder_is_missing(need, root):
    assert told(verify(need, root)) == [("missing", "", True)]


def test_a_folder_made_by_hand_is_unproven_and_not_wrong(need, root, lay):
    lay(root / "org/toy", {"test.jsonl": "x"})
    assert told(verify(need, root)) == [("unproven", "", False)]


def test_a_damaged_manifest_is_wrong(need, root, folder):
    (folder / ".harness.json").write_text('{"schema": 1')
    assert told(verify(need, root)) == [("manifest", ".harness.json", True)]


def test_another_revision_than_wanted_is_wrong(root, folder, revision):
    problems = verify(Need(path="org/toy", revision="f" * 40), root)
    assert told(problems) == [("revision", "", True)]
    assert revision in problems[0].message
