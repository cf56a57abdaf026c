"""What papers print: a file that is not as it should be is named with its line."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.core.errors import RecordError
from harness.results.reported import read_papers

FOLDER = Path(__file__).parents[3] / "results" / "reported"


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    return Path(shutil.copytree(FOLDER, tmp_path / "reported"))


def broken(name: str, change: Callable[[str], str]) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        path = folder / name
        path.write_text(change(path.read_text()))

    return write


def line_of(name: str, number: int, line: str) -> Callable[[Path], None]:
    def change(text: str) -> str:
        lines = text.splitlines(keepends=True)
        return "".join([*lines[: number - 1], line + "\n", *lines[number:]])

    return broken(name, change)


GOOD = "NeoBERT,3,BERT,base,,s,GLUE dev,MNLI,84.0,,,score x100,,,,"


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (GOOD.replace("NeoBERT", "Neo"), r"line 4: it is of 'Neo', not of 'NeoBERT'"),
        (GOOD.replace(",3,", ",33,"), r"line 4: papers.toml has no table '33'"),
        (GOOD.replace("MNLI", ""), r"line 4: it names no model or no metric"),
        (GOOD.replace("84.0,,", "84.0,low,85"), r"line 4: ci_low is 'low'"),
        (GOOD.replace("84.0,,", "84.0,83,"), r"line 4: it has one end of an interval"),
        (GOOD + "perhaps", r"line 4: follows is 'perhaps', not yes, no or nothing"),
        (GOOD + "no", r"line 4: recomputed and recomputed_as do not fit"),
        ("NeoBERT,3", r"line 4: 2 fields where 16 belong"),
        ('"' + GOOD, r"neobert\.csv is no CSV file in UTF-8"),
    ],
)
def test_a_wrong_line_is_named(copied: Path, line: str, says: str) -> None:
    test_a_malformed_file_is_named(copied, line_of("neobert.csv", 4, line), says)


def without_table(text: str) -> str:
    return "\n".join(line for line in text.split("\n") if not line.startswith("OptiBERT,4,"))


@pytest.mark.parametrize(
    ("break_it", "says"),
    [
        (lambda folder: (folder / "neobert.csv").unlink(), r"neobert\.csv cannot be read: No such file"),
        (line_of("neobert.csv", 1, "paper,table"), r"neobert\.csv, line 1: the columns are paper, table\."),
        (broken("optibert.csv", without_table), r"optibert\.csv has no line of table 4"),
        (broken("papers.toml", lambda text: text + "["), r"papers\.toml is no TOML file"),
        (broken("papers.toml", lambda text: text.replace("= 2023", '= "x"')), "mosaicbert has no year"),
        (broken("papers.toml", lambda text: "neobert = 1\n"), "neobert has no name"),
        (lambda folder: (folder / "papers.toml").unlink(), r"papers\.toml cannot be read"),
        (line_of("models.csv", 3, "BERT,base,BERT base,,"), r"models\.csv, line 3: BERT base has two lines"),
        (line_of("models.csv", 3, "BERT,base,,,"), r"models\.csv, line 3: it names no model or no backbone"),
    ],
)  # fmt: skip
def test_a_malformed_file_is_named(copied: Path, break_it: Callable[[Path], None], says: str) -> None:
    break_it(copied)
    with pytest.raises(RecordError, match=says):
        read_papers(copied)


def test_reading_needs_neither_torch_nor_mteb() -> None:
    code = (
        "import sys; from pathlib import Path; from harness.results.reported import read_papers\n"
        "from leaderboard.views.paper_tables import build_paper_table\n"
        "for paper in read_papers(Path(sys.argv[1])).values():\n"
        "    assert [build_paper_table(paper, table) for table in paper.tables.values()]\n"
        "print(sorted({'torch', 'mteb', 'transformers'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(FOLDER)],
        capture_output=True,
        text=True,
        check=True,
        cwd=FOLDER.parents[1],
    )
    assert done.stdout == "[]\n"
