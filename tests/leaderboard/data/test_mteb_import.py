from __future__ import annotations

import json
import math
import os
import shlex
import tarfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from harness.core.errors import StoreError, UsageError
from harness.storage.imported import Imported
from hostile import EVIL
from leaderboard.commands.import_ import command
from leaderboard.data import mteb_files, mteb_import
from leaderboard.data.mteb_files import FACTS, build_task_index, parse_card_facts, parse_files
from leaderboard.data.mteb_import import (
    PARSER,
    ImportResult,
    import_results,
    infer_revision_trust,
    load_mteb_tasks,
    read_git_commit,
)

COMMIT = "a" * 40
KNOWN = build_task_index(
    {"STS12": "cosine_spearman", "SprintDuplicateQuestions": "max_ap", "NFCorpus": "ndcg_at_10"}
)


def result(task: str, *scores: Any, split: str = "test", **more: Any) -> dict[str, Any]:
    """A result as mteb writes it, a subset for each score."""
    rows = [{"main_score": s, "hf_subset": f"s{i}", "languages": []} for i, s in enumerate(scores)]
    about = {"dataset_revision": "d" * 40, "mteb_version": "2.1.0", "evaluation_time": 1.5}
    return {"task_name": task, **about, "scores": {split: rows}, **more}


def write(root: Path, files: dict[str, Any]) -> Path:
    """Files below results/, as JSON unless they are text or bytes."""
    for name, content in files.items():
        path = root / "results" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        text = content if isinstance(content, str | bytes) else json.dumps(content)
        path.write_bytes(text.encode() if isinstance(text, str) else text)
    return root


def tree(root: Path) -> Path:
    return write(
        root,
        {
            f"org__one/{COMMIT}/model_meta.json": {"name": "org/one", "n_parameters": 7, "embed_dim": 3},
            f"org__one/{COMMIT}/STS12.json": result("STS12", 0.5),
            f"org__one/{COMMIT}/Amazon.json": result("Amazon", 0.25, 0.75),
            f"org__one/{COMMIT}/experiments/long/STS12.json": result("STS12", 0.6),
            "org__two_(x=1)/external/model_meta.json": {"name": "org/two (x=1)"},
            "org__two_(x=1)/external/STS12.json": result("STS12", 0.7),
            "org__two_(x=1)/no_revision_available/STS12.json": {
                "mteb_dataset_name": "STS12",
                "test": {"cos_sim": {"pearson": 0.1, "spearman": 0.8}, "evaluation_time": 3},
            },
            "org__two_(x=1)/no_revision_available/run_settings.jsonl": "no json file",
        },
    )


@pytest.fixture
def places(tmp_path: Path) -> tuple[Path, Path]:
    """A tree to import, and a results folder."""
    return tree(tmp_path / "in"), tmp_path / "out"


def run(root: Path, to: Path, **more: Any) -> ImportResult:
    return import_results(root, to, **more)


def rows(done: ImportResult) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = done.imported.load_table("scores").to_pylist()
    return found


def tables(done: ImportResult) -> list[Any]:
    return [
        done.imported.load_table("entries"),
        done.imported.load_table("files"),
        done.imported.load_table("scores"),
    ]


def parsed(tmp_path: Path, content: Any) -> tuple[str, list[tuple[str, str, float | None, str]]]:
    """The problem of one file, and its rows."""
    write(tmp_path, {"m/r/x.json": content})
    found = parse_files(str(tmp_path / "results"), KNOWN, ["m/r/x.json"])
    assert found.files[0].rows == len(found.score)
    scores = [None if math.isnan(score) else score for score in found.score]
    return found.files[0].problem, list(zip(found.split, found.subset, scores, found.flag, strict=True))


def test_every_score_is_a_row_of_its_entry(tmp_path: Path) -> None:
    done = run(tree(tmp_path / "in"), tmp_path / "out")
    entries = done.imported.load_table("entries").to_pylist()
    named = [(e["model"], e["revision"], e["experiment"], e["trust"], e["files"], e["rows"]) for e in entries]
    assert named == [
        ("org/one", COMMIT, "", "commit", 2, 3),
        ("org/one", COMMIT, "long", "commit", 1, 1),
        ("org/two (x=1)", "external", "", "external", 1, 1),
        ("org/two (x=1)", "no_revision_available", "", "none", 1, 1),
    ]
    names = ("entry", "task", "split", "subset", "main_score", "mteb_version", "flag")
    assert [tuple(row[name] for name in names) for row in rows(done)] == [
        (0, "Amazon", "test", "s0", 0.25, "2.1.0", ""),
        (0, "Amazon", "test", "s1", 0.75, "2.1.0", ""),
        (0, "STS12", "test", "s0", 0.5, "2.1.0", ""),
        (1, "STS12", "test", "s0", 0.6, "2.1.0", ""),
        (2, "STS12", "test", "s0", 0.7, "2.1.0", ""),
        (3, "STS12", "test", "default", 0.8, None, ""),
    ]
    assert {row["data_revision"] for row in rows(done)} == {"d" * 40, None}
    counts = done.imported.counts
    assert {k: counts[k] for k in ("files", "cards", "models", "entries", "rows", "converted")} == {
        "files": 5, "cards": 2, "models": 2, "entries": 4, "rows": 6, "converted": 1,
    }  # fmt: skip
    assert counts["trust"] == {"commit": 2, "external": 1, "none": 1, "other": 0}


def test_the_facts_of_a_card_belong_to_its_own_revision_only(tmp_path: Path) -> None:
    entries = run(tree(tmp_path / "in"), tmp_path / "out").imported.load_table("entries").to_pylist()
    facts = [(e["card"], e["n_parameters"], e["embed_dim"]) for e in entries]
    assert facts == [(True, 7, 3), (False, None, None), (True, None, None), (False, None, None)]


OLD = [
    ({"test": {"ndcg_at_10": 0.3, "map_at_10": 0.1}}, [("test", "default", 0.3, "")]),
    ({"test": {"en": {"ndcg_at_10": 0.3}, "fr": {"main_score": 0.4, "ndcg_at_10": 0}, "evaluation_time": 2}},
     [("test", "en", 0.3, ""), ("test", "fr", 0.4, "")]),
    ({"dev": {"p-MRR": 0.3}}, [("dev", "default", None, "no-score")]),
    ({"test": {"main_score": None, "ndcg_at_10": 0.3}}, [("test", "default", None, "no-score")]),
    ({"test": 3, "dev": {"ndcg_at_10": 0.3}}, [("dev", "default", 0.3, "")]),
]  # fmt: skip


@pytest.mark.parametrize(("scores", "expected"), OLD)
def test_old_files_are_converted(tmp_path: Path, scores: Any, expected: Any) -> None:
    old = {"mteb_dataset_name": "nfcorpus", "mteb_version": "1.0.1.dev0", "dataset_revision": None, **scores}
    assert parsed(tmp_path, old) == ("", expected)


@pytest.mark.parametrize(
    ("task", "split", "expected"),
    [
        ("STS12", {"cos_sim": {"spearman": 0.5}, "dot": {"spearman": 0.1}}, 0.5),
        ("STS12", {"cosine_spearman": 0.4}, 0.4),
        ("SprintDuplicateQuestions", {"cos_sim": {"ap": 0.2}, "max": {"ap": 0.3}}, 0.3),
        ("SprintDuplicateQuestions", {"cos_sim": {"ap": 0.2}}, None),
        ("ScalaDaClassification", {"accuracy": 0.6, "ap": 0.5}, 0.6),
        ("A task of nobody", {"accuracy": 0.6}, None),
        ("A task of nobody", {"main_score": 0.6}, 0.6),
    ],
)
def test_an_old_main_score_is_that_of_the_tasks_metric(
    tmp_path: Path, task: str, split: Any, expected: float | None
) -> None:
    problem, [(_, subset, score, _)] = parsed(tmp_path, {"mteb_dataset_name": task, "test": split})
    assert (problem, subset, score) == ("", "default", expected)


@pytest.mark.shared
def test_old_files_read_as_mteb_reads_them(tmp_path: Path, shared: Path) -> None:
    from mteb.results import TaskResult

    archive = shared.parent / "mteb-results.tar.xz"
    if not archive.exists():
        pytest.skip("needs mteb-results.tar.xz")
    known = load_mteb_tasks()
    seen = 0
    for number, content in enumerate(old_files(archive, 400)):
        path = tmp_path / "m" / "r" / f"{number}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        mine = parse_files(str(tmp_path), known, [f"m/r/{number}.json"])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the scores it does not find, which are None
            theirs = TaskResult.from_disk(path)
        ours = {
            (split, subset): None if math.isnan(score) else score
            for split, subset, score in zip(mine.split, mine.subset, mine.score, strict=True)
        }
        assert mine.files[0].task == theirs.task_name
        given = theirs.scores.items()
        assert ours == {(split, row["hf_subset"]): row["main_score"] for split, of in given for row in of}
        seen += len(ours)
    assert seen > 400


def old_files(archive: Path, most: int) -> Iterator[bytes]:
    with tarfile.open(archive, "r|xz") as packed:
        for member in packed:
            file = packed.extractfile(member) if member.isfile() else None
            content = file.read() if file else b""
            if b'"mteb_dataset_name"' in content:
                yield content
                most -= 1
            if not most:
                return


@pytest.mark.parametrize(
    ("written", "score", "flag"),
    [
        ("0.5", 0.5, ""), ("-1", -1.0, ""), ("1", 1.0, ""),
        ("1.5", 1.5, "impossible"), ("-1.01", -1.01, "impossible"), ("26866.9", 26866.9, "impossible"),
        ("NaN", None, "impossible"), ("Infinity", None, "impossible"), ("-Infinity", None, "impossible"),
        ("1e999", None, "impossible"), ("1" + 400 * "0", None, "impossible"), ("null", None, "no-score"),
        ("true", None, "no-score"), ('"0.5"', None, "no-score"), ("[0.5]", None, "no-score"),
    ],
)  # fmt: skip
def test_a_score_is_judged(tmp_path: Path, written: str, score: float | None, flag: str) -> None:
    text = json.dumps(result("STS12", "HERE")).replace('"HERE"', written)
    assert parsed(tmp_path, text) == ("", [("test", "s0", score, flag)])


def test_a_score_told_twice_counts_once_as_the_last(tmp_path: Path) -> None:
    twice = result("STS12", 0.1, 0.2, 0.3)
    for row in twice["scores"]["test"]:
        row["hf_subset"] = "default"
    root = write(tmp_path / "in", {"m/external/STS12.json": twice})
    done = run(root, tmp_path / "out")
    assert [row["main_score"] for row in rows(done)] == [0.3]
    assert done.imported.counts["repeated"] == 2


def test_copies_that_contradict_are_named_and_the_file_of_the_tasks_name_counts(tmp_path: Path) -> None:
    names = ("STS12.json", "STS12 Copy.json", "sts12.json", "STS12 (1).json")
    files: dict[str, Any] = {f"m/external/{name}": result("STS12", 0.1 + at / 10)
                             for at, name in enumerate(names[:3])}  # fmt: skip
    files["m/external/STS12 (1).json"] = result("STS12", 0.1)
    files["m/external/BIOSSES.json"] = result("BIOSSES", 0.9)
    files["n/external/STS12.json"] = result("STS12", 0.8)
    done = run(write(tmp_path / "in", files), tmp_path / "out")
    assert [row["main_score"] for row in rows(done) if row["task"] == "STS12"][3] == 0.1  # the last counts
    assert done.imported.counts["contradicting"] == 2
    assert done.imported.stamp["contradicting"] == [
        {"path": f"m/external/{name}", "problem": "other scores than m/external/STS12.json, which counts"}
        for name in sorted(names[1:3])
    ]
    said = CliRunner().invoke(
        command, ["mteb-results", str(tmp_path / "in"), "--results", str(tmp_path / "new")]
    )
    assert "2 copies with other scores:\n    m/external/STS12 Copy.json: other scores than" in said.output


HOSTILE = [
    (b"", "not JSON"),
    (b"\xff\xfe\x00", "not JSON"),
    (b'{"task_name": "STS12"', "not JSON"),
    (b"[1]", "no JSON object"),
    (b"null", "no JSON object"),
    (b"[" * 200_000, "nested too deeply"),
    (b'{"a":' * 200_000, "nested too deeply"),
    (b'{"a": ' + b"1" * 5000 + b"}", "not JSON"),
    ({}, "its task has no name"),
    ({"task_name": 3, "scores": {}}, "its task has no name"),
    ({"task_name": "数" * 67, "scores": {}}, "its task has a name that is too long"),
    ({"task_name": "STS\x1b[31m", "scores": {}}, "its task has a name that is too long, or has control"),
    ({"task_name": "STS12", "scores": {"t\u202e": []}}, "a split has a name that is too long, or has"),
    ({"task_name": "STS12"}, "its scores are no table"),
    ({"task_name": "STS12", "scores": [1]}, "its scores are no table"),
    ({"task_name": "STS12", "scores": {"test": {}}}, "a split that is no list of tables"),
    ({"task_name": "STS12", "scores": {"test": [1]}}, "a split that is no list of tables"),
    ({"task_name": "STS12", "scores": {"": []}}, "a split has no name"),
    ({"task_name": "STS12", "scores": {"test": [{"main_score": 1}]}}, "a subset has no name"),
    (
        {"task_name": "STS12", "scores": {"a": [{"hf_subset": "x"}], "b": 3}},
        "a split that is no list of tables",
    ),
    ({"mteb_dataset_name": ["STS12"], "test": {}}, "its task has no name"),
]


@pytest.mark.parametrize(("content", "said"), HOSTILE)
def test_a_bad_file_is_counted_with_its_reason(tmp_path: Path, content: Any, said: str) -> None:
    problem, listed = parsed(tmp_path, content)
    assert problem.startswith(said)
    assert not listed


def test_a_folder_with_a_name_that_controls_a_terminal_is_left_out(tmp_path: Path) -> None:
    done = run(
        write(tree(tmp_path / "in"), {f"{EVIL}/external/STS12.json": result("STS12", 0.1)}), tmp_path / "out"
    )
    assert done.imported.counts["entries"] == 4
    assert done.imported.counts["problems"] == {"a name too long, or with control characters": 1}


def test_bad_files_do_not_keep_good_ones_out(tmp_path: Path) -> None:
    bad = {f"org__bad/external/{i}.json": content for i, (content, _) in enumerate(HOSTILE)}
    bad["org__bad/external/model_meta.json"] = "[]"
    done = run(write(tree(tmp_path / "in"), bad), tmp_path / "out")
    counts = done.imported.counts
    assert (counts["rows"], counts["unreadable"], counts["entries"]) == (6, len(HOSTILE) + 1, 5)
    assert sum(counts["problems"].values()) == len(HOSTILE) + 1
    listed = {row["path"]: row["problem"] for row in done.imported.stamp["unreadable"]}
    assert listed["org__bad/external/model_meta.json"] == "no JSON object"


def anything() -> st.SearchStrategy[Any]:
    leaves = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
    keys = st.sampled_from(
        ["test", "cos_sim", "hf_subset", "main_score", "spearman", "mteb_version", "\ud800"]
    )
    return st.recursive(leaves, lambda of: st.lists(of, max_size=3) | st.dictionaries(keys, of, max_size=3))


@given(
    old=st.booleans(),
    task=st.sampled_from(["STS12", "MLSUMClusteringP2P", "XPQARetrieval", "\udfff", "no task"]) | anything(),
    version=st.sampled_from(["1.1.2.dev0", "2.0.0", None]) | anything(),
    scores=anything(),
)
def test_no_content_makes_reading_fail(
    tmp_path_factory: pytest.TempPathFactory, old: bool, task: Any, version: Any, scores: Any
) -> None:
    if old:
        more = scores if isinstance(scores, dict) else {"test": scores}
        content = {"mteb_dataset_name": task, **more, "mteb_version": version}
    else:
        content = {"task_name": task, "mteb_version": version, "scores": scores}
    problem, listed = parsed(tmp_path_factory.mktemp("any"), content)
    assert not (problem and listed)
    for split, subset, score, flag in listed:
        assert (split + subset).encode()
        assert score is None or math.isfinite(score)
        assert flag in ("", "impossible", "no-score")


def test_links_pipes_and_odd_names_are_named_and_not_opened(tmp_path: Path) -> None:
    root = tree(tmp_path / "in")
    secret = write(tmp_path / "else", {"STS12.json": result("Secret", 0.5)}) / "results"
    folder = root / "results" / "org__one" / COMMIT
    (folder / "link.json").symlink_to(secret / "STS12.json")
    (root / "results" / "org__link").symlink_to(secret)
    os.mkfifo(folder / "pipe.json")
    (folder / os.fsdecode(b"\xff.json")).write_text(json.dumps(result("Odd", 0.5)))
    (folder / "deeper" / "more").mkdir(parents=True)
    write(root, {"loose.json": {}, "org__one/paths.json": {}})
    done = run(root, tmp_path / "out")
    listed = {row["path"]: row["problem"] for row in done.imported.stamp["unreadable"]}
    assert listed == {
        f"org__one/{COMMIT}/link.json": "a symbolic link",
        "org__link": "a symbolic link",
        f"org__one/{COMMIT}/pipe.json": "no regular file",
        f"org__one/{COMMIT}/\\udcff.json": "its name is not UTF-8",
        f"org__one/{COMMIT}/deeper": "a folder where none belongs",
        "loose.json": "not where results lie",
        "org__one/paths.json": "not where results lie",
    }
    assert done.imported.counts["rows"] == 6
    assert not run(root, tmp_path / "out").changed


def test_a_file_that_is_too_large_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mteb_files, "LARGEST", 2 * 2**20)
    problem, listed = parsed(tmp_path, result("STS12", 0.5, note="x" * 2**21))
    assert (problem, listed) == ("larger than 2 MiB", [])


def test_a_large_file_with_every_metric_gives_its_main_scores(tmp_path: Path) -> None:
    whole = result("STS12", *(i / 2000 for i in range(2000)))
    for row in whole["scores"]["test"]:
        row["scores_per_experiment"] = [{f"ndcg_at_{k}": 0.1 for k in range(10)} for _ in range(4)]
    assert len(json.dumps(whole)) > mteb_files.LARGE
    problem, listed = parsed(tmp_path, whole)
    assert (problem, [score for _, _, score, _ in listed]) == ("", [i / 2000 for i in range(2000)])


def test_nothing_new_writes_nothing(places: tuple[Path, Path]) -> None:
    root, out = places
    first = run(root, out)
    before = {p: (p.stat().st_ino, p.stat().st_mtime_ns) for p in first.imported.folder.glob("*.*")}
    again = run(root / "results", out)
    assert (again.changed, again.read, again.unchanged, again.removed) == (False, 0, 7, 0)
    assert {p: (p.stat().st_ino, p.stat().st_mtime_ns) for p in first.imported.folder.glob("*.*")} == before


def test_a_refresh_is_what_a_fresh_import_gives(places: tuple[Path, Path], tmp_path: Path) -> None:
    root, out = places
    run(root, out)
    (root / "results" / "org__one" / COMMIT / "STS12.json").unlink()
    (root / "results" / "org__two_(x=1)" / "external" / "model_meta.json").unlink()
    write(
        root,
        {
            "aaa__first/main/STS12.json": result("STS12", 0.1, split="dev"),
            f"org__one/{COMMIT}/Amazon.json": result("Amazon", 0.3),
            f"org__one/{COMMIT}/model_meta.json": {"name": "org/one", "n_parameters": 8},
            f"org__one/{COMMIT}/Broken.json": "{",
        },
    )
    again = run(root, out)
    fresh = run(root, tmp_path / "other")
    assert (again.changed, again.read, again.unchanged, again.removed) == (True, 4, 3, 2)
    assert all(mine.equals(theirs) for mine, theirs in zip(tables(again), tables(fresh), strict=True))
    assert again.imported.counts == fresh.imported.counts
    assert [row["main_score"] for row in rows(again)] == [0.1, 0.3, 0.6, 0.7, 0.8]
    assert not run(root, out).changed


def test_a_change_that_keeps_size_and_time_is_seen(places: tuple[Path, Path]) -> None:
    """All files of an archive may bear one time, so two checkouts can differ in nothing else."""
    root, out = places
    path = root / "results" / "org__one" / COMMIT / "STS12.json"
    os.utime(path, (0, 0))
    run(root, out)
    path.write_text(path.read_text().replace("0.5", "0.9"))
    os.utime(path, (0, 0))
    assert 0.9 in [row["main_score"] for row in rows(run(root, out))]


def test_a_time_beyond_what_a_column_holds_is_no_obstacle(places: tuple[Path, Path]) -> None:
    root, out = places
    path = root / "results" / "org__one" / COMMIT / "STS12.json"
    os.utime(path, (14_000_000_000, 14_000_000_000))
    if path.stat().st_mtime != 14_000_000_000:
        pytest.skip("this file system has no such times")
    assert run(root, out).imported.counts["rows"] == 6
    assert not run(root, out).changed


def test_only_the_entries_of_changed_files_get_another_digest(places: tuple[Path, Path]) -> None:
    root, out = places
    before = run(root, out).imported.load_table("entries")["digest"].to_pylist()
    write(root, {f"org__one/{COMMIT}/experiments/long/STS12.json": result("STS12", 0.61)})
    after = run(root, out).imported.load_table("entries")["digest"].to_pylist()
    assert [a == b for a, b in zip(before, after, strict=True)] == [True, False, True, True]


def test_a_card_that_becomes_unreadable_states_nothing(places: tuple[Path, Path]) -> None:
    root, out = places
    run(root, out)
    write(root, {f"org__one/{COMMIT}/model_meta.json": "{"})
    entry = run(root, out).imported.load_table("entries").to_pylist()[0]
    assert (entry["model"], entry["card"], entry["embed_dim"]) == ("org/one", False, None)


def test_another_reading_reads_everything_again(
    places: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    root, out = places
    run(root, out)
    monkeypatch.setattr("leaderboard.data.mteb_import.PARSER", PARSER + 1)
    again = run(root, out)
    assert (again.changed, again.read) == (True, 7)


def test_a_damaged_import_is_made_anew(places: tuple[Path, Path]) -> None:
    root, out = places
    first = run(root, out)
    (first.imported.folder / f"scores-{first.imported.id}.parquet").write_bytes(b"")
    again = run(root, out)
    assert (again.read, len(rows(again))) == (7, 6)


def test_a_folder_that_could_not_be_listed_is_tried_again(
    places: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    root, out = places
    scandir = os.scandir

    def closed(path: str) -> Any:
        if str(path).endswith("org__two_(x=1)"):
            raise PermissionError(13, "Permission denied")
        return scandir(path)

    with monkeypatch.context() as patched:
        patched.setattr(os, "scandir", closed)
        first = run(root, out)
        assert first.imported.counts["problems"] == {"cannot be listed": 1}
        assert first.imported.stamp["unreadable"][0]["path"] == "org__two_(x=1)"
        assert not run(root, out).changed
    assert run(root, out).imported.counts["rows"] == 6


def test_a_file_that_failed_to_open_is_tried_again_and_rewrites_nothing(
    places: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    root, out = places

    opened = os.open

    def fails(path: Any, *more: Any, **how: Any) -> int:
        if str(path).endswith(".json"):
            raise PermissionError(13, "Permission denied")
        return opened(path, *more, **how)

    with monkeypatch.context() as patched:
        patched.setattr(os, "open", fails)
        first = run(root, out)
        assert first.imported.counts["problems"] == {"cannot be read": 7}
        again = run(root, out)
        assert (again.read, again.changed) == (7, False)
    assert run(root, out).imported.counts["rows"] == 6


def test_several_processes_give_what_one_gives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tree(tmp_path / "in")
    alone = run(root, tmp_path / "one", workers=1)
    monkeypatch.setattr(mteb_import, "CHUNK", 2)
    told: list[tuple[int, int]] = []
    several = run(root, tmp_path / "two", workers=2, progress=lambda done, total: told.append((done, total)))
    assert all(a.equals(b) for a, b in zip(tables(alone), tables(several), strict=True))
    assert told[0] == (0, 7)
    assert told[-1] == (7, 7)


@pytest.mark.parametrize(("wrong", "said"), [("empty", "holds no results"), ("none", "is no folder")])
def test_a_wrong_folder_writes_nothing_and_does_not_empty_an_import(
    tmp_path: Path, wrong: str, said: str
) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match=said):
        run(tmp_path / wrong, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    run(tree(tmp_path / "in"), tmp_path / "out")
    with pytest.raises(UsageError, match=said):
        run(tmp_path / wrong, tmp_path / "out")
    assert Imported.read_imports(tmp_path / "out")[0].counts["rows"] == 6


def test_a_file_in_place_of_the_results_is_said_to_be_one(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("a file")
    with pytest.raises(StoreError) as caught:
        run(tree(tmp_path / "in"), tmp_path / "out")
    assert "a file stands where a folder should be" in caught.value.message
    assert "Move that file away" in (caught.value.hint or "")
    assert "room" not in (caught.value.hint or "")
    assert (tmp_path / "out").read_text() == "a file"


def test_what_comes_next_holds_the_folder_fit_for_a_shell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tree(tmp_path / "in")
    arguments = ["mteb-results", str(root), "--results", str(tmp_path / "a folder")]
    said = CliRunner().invoke(command, arguments, standalone_mode=False)
    assert shlex.split(said.output.splitlines()[-1]) == [
        "Next:", "harness", "serve", "--results", str(tmp_path / "a folder")
    ]  # fmt: skip
    monkeypatch.chdir(tmp_path)
    said = CliRunner().invoke(command, arguments[:2], standalone_mode=False)
    assert said.output.endswith("Next: harness serve\n")


def test_a_crash_while_writing_keeps_the_former_import(
    places: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    root, out = places
    run(root, out)
    write(root, {"org__new/main/STS12.json": result("STS12", 0.9)})
    with monkeypatch.context() as patched:
        patched.setattr(Imported, "update_stamp", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            run(root, out)
    assert Imported.read_imports(out)[0].load_table("scores").num_rows == 6
    assert len(rows(run(root, out))) == 7


def test_the_commit_of_a_checkout_is_read_without_git(tmp_path: Path) -> None:
    root = tree(tmp_path / "in")
    git = root / ".git"
    (git / "refs" / "heads").mkdir(parents=True)
    head = git / "HEAD"
    head.write_text(f"{'1' * 40}\n")
    assert read_git_commit(root / "results") == read_git_commit(root) == "1" * 40
    head.write_text("ref: refs/heads/main\n")
    assert read_git_commit(root) is None
    (git / "packed-refs").write_text(f"# pack-refs with: peeled\n{'2' * 40} refs/heads/main\n^{'3' * 40}\n")
    assert run(root, tmp_path / "out").imported.stamp["commit"] == "2" * 40
    (git / "refs" / "heads" / "main").write_text(f"{'4' * 40}\n")
    again = run(root, tmp_path / "out")
    assert (again.changed, again.imported.stamp["commit"]) == (False, "4" * 40)
    head.write_text("ref: refs/../../../secret\n")
    assert read_git_commit(root) is None


CARDS = [
    ({"max_tokens": math.inf}, {"max_tokens": None, "tokens_unlimited": True}),
    ({"max_tokens": 512.0}, {"max_tokens": 512, "tokens_unlimited": False}),
    ({"max_tokens": "512"}, {"max_tokens": None, "tokens_unlimited": None}),
    ({"n_parameters": True, "embed_dim": -3}, {"n_parameters": None, "embed_dim": None}),
    ({"n_parameters": 10**30, "memory_usage_mb": math.nan}, {"n_parameters": None, "memory_usage_mb": None}),
    ({"memory_usage": 87}, {"memory_usage_mb": 87.0}),
    ({"memory_usage": 87, "memory_usage_mb": None}, {"memory_usage_mb": None}),
    ({"training_datasets": None}, {"training_datasets": None}),
    ({"training_datasets": []}, {"training_datasets": []}),
    ({"training_datasets": ["B", "A", "A", 3]}, {"training_datasets": ["A", "B"]}),
    ({"training_datasets": {"B": ["train"], "A": []}}, {"training_datasets": ["A", "B"]}),
    ({"languages": "nob-Latn", "framework": []}, {"languages": ["nob-Latn"], "framework": None}),
    ({"languages": ["zho_Hans"]}, {"languages": ["zho-Hans"]}),
    ({"similarity_fn_name": "MaxSim"}, {"similarity_fn_name": "max_sim"}),
    ({"license": "not specified", "reference": "javascript:alert(1)"}, {"license": None, "reference": None}),
    ({"release_date": "2024-02-31"}, {"release_date": None}),
    ({"release_date": "2024-02-29"}, {"release_date": "2024-02-29"}),
    ({"adapted_from": "https://huggingface.co/a/b"}, {"adapted_from": "a/b"}),
    ({"public_training_data": "https://x.org"},
     {"public_training_data": True, "training_data_link": "https://x.org"}),
    ({"public_training_data": False}, {"public_training_data": False, "training_data_link": None}),
    ({"public_training_data": "some words"}, {"public_training_data": None}),
    ({"open_source": True}, {"open_weights": True}),
]  # fmt: skip


@pytest.mark.parametrize(("card", "expected"), CARDS)
def test_a_card_is_cleaned(tmp_path: Path, card: dict[str, Any], expected: dict[str, Any]) -> None:
    found = parse_card_facts(card)
    assert {name: found[name] for name in expected} == expected
    root = write(tmp_path / "in", {"m/external/model_meta.json": card})
    [entry] = run(root, tmp_path / "out").imported.load_table("entries").to_pylist()
    assert {name: entry[name] for name in expected} == expected


@given(st.dictionaries(st.sampled_from([field for field, _ in FACTS.values()]), anything()))
def test_no_card_makes_an_import_fail(card: dict[str, Any]) -> None:
    assert parse_card_facts(card).keys() == parse_card_facts({}).keys()


@pytest.mark.parametrize(
    ("revision", "trust"),
    [
        (COMMIT, "commit"),
        ("external", "external"),
        ("no_revision", "none"),
        ("1", "other"),
        ("A" * 40, "other"),
    ],
)
def test_a_revision_says_how_far_it_can_be_trusted(revision: str, trust: str) -> None:
    assert infer_revision_trust(revision) == trust


def test_the_command_tells_what_was_imported(tmp_path: Path) -> None:
    root = tree(tmp_path / "in")
    write(
        root,
        {"org__one/external/GPUSpeedTask.json": result("GPUSpeedTask", 3453.5), "org__one/1/x.json": "{"},
    )
    arguments = ["mteb-results", str(root), "--results", str(tmp_path / "out")]
    said = CliRunner().invoke(command, arguments, standalone_mode=False)
    assert said.return_value == 0
    assert "  2 models, 6 entries, 6 files, 7 scores" in said.output
    assert "org__one/external/GPUSpeedTask.json: 3453.5" in said.output
    assert "org__one/1/x.json: not JSON" in said.output
    assert said.output.endswith(f"Next: harness serve --results {tmp_path / 'out'}\n")
    again = CliRunner().invoke(command, arguments, standalone_mode=False)
    assert "Nothing is new" in again.output
    document = json.loads(CliRunner().invoke(command, [*arguments, "--json"], standalone_mode=False).output)
    assert (document["changed"], document["unchanged"], document["import"]["counts"]["rows"]) == (False, 9, 7)


def test_the_time_that_a_file_tells_is_kept(tmp_path: Path) -> None:
    one = f"org__one/{COMMIT}"
    old = {"mteb_dataset_name": "STS12", "dev": {"cos_sim": {"spearman": 0.8}, "evaluation_time": 3}}
    root = write(
        tmp_path / "in",
        {
            f"{one}/A.json": result("A", 0.5),
            f"{one}/B.json": result("B", 0.5, evaluation_time=None),
            f"{one}/C.json": result("C", 0.5, evaluation_time=-1),
            f"{one}/D.json": {**old, "test": {"cos_sim": {"spearman": 0.8}, "evaluation_time": 4}},
            f"{one}/E.json": {**old, "test": {"cos_sim": {"spearman": 0.8}}},
        },
    )
    kept = run(root, tmp_path / "out").imported.load_table("files", ["path", "seconds"]).to_pylist()
    told = {row["path"].rpartition("/")[2][0]: row["seconds"] for row in kept}
    assert told == {"A": 1.5, "B": None, "C": None, "D": 7.0, "E": None}
    write(root, {f"{one}/B.json": result("B", 0.5, evaluation_time=2)})
    again = run(root, tmp_path / "out").imported.load_table("files", ["path", "seconds"]).to_pylist()
    assert {row["path"].rpartition("/")[2][0]: row["seconds"] for row in again} == {**told, "B": 2.0}
