"""How the tables of papers are laid out."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from harness.results.reported import Paper, read_papers
from leaderboard.views.paper_tables import build_paper_table
from leaderboard.web.tables import Cell, Table, TableRow

FOLDER = Path(__file__).parents[3] / "results" / "reported"
ROWS = {"optibert": 309, "mosaicbert": 222, "neobert": 301, "modernbert": 786, "efficient-embeddings": 26}


@pytest.fixture(scope="module")
def all_papers() -> dict[str, Paper]:
    return read_papers(FOLDER)


def laid(paper: Paper, table: str) -> Table:
    return build_paper_table(paper, paper.tables[table])


def texts(row: TableRow) -> list[str]:
    return [cell.text for cell in row.cells]


def column(table: Table, label: str) -> list[str]:
    at = [one.label for one in table.columns].index(label)
    return [row.cells[at].text for row in table.rows]


def test_every_printed_value_stands_in_its_table(all_papers: dict[str, Paper]) -> None:
    seen = 0
    for paper in all_papers.values():
        for table in paper.tables.values():
            shown = build_paper_table(paper, table)
            assert {len(row.cells) for row in shown.rows} == {len(shown.columns)}
            assert len({one.key for one in shown.columns}) == len(shown.columns)
            cells = [cell for row in shown.rows for cell in row.cells]
            printed = [re.split(r" ±| \[", cell.text)[0] for cell in cells if cell.kind == "reported"]
            assert Counter(printed) == Counter(row.value for row in table.rows if row.value)
            dashes = [cell for cell in cells if cell.kind == "away"]
            assert len(dashes) == sum(not row.value for row in table.rows)
            assert all(cell.note for cell in dashes)
            seen += len(printed) + len(dashes)
    assert seen == sum(ROWS.values())


def test_values_stand_under_their_own_names(all_papers: dict[str, Paper]) -> None:
    shown = laid(all_papers["neobert"], "3")
    assert [one.label for one in shown.columns][-2:] == ["Avg.", "recomputed"]
    scores = ["84.0", "90.5", "71.2", "66.4", "93.5", "88.9", "52.1", "85.8", "79.6", "79.050"]
    assert texts(shown.rows[0]) == ["BERT", "base", "", *scores]
    assert "does not follow" in shown.rows[0].cells[-2].note
    assert "test-server numbers" in shown.rows[0].cells[3].note
    assert shown.rows[1].cells[-1].text == ""
    assert shown.columns[0].sticky
    assert all(one.numeric for one in shown.columns[3:])


def test_errors_and_intervals_are_shown_as_printed(all_papers: dict[str, Paper]) -> None:
    assert "27.6 ± 3.6" in texts(laid(all_papers["neobert"], "10").rows[0])
    assert "76.0 [72.9, 79.2]" in texts(laid(all_papers["optibert"], "3").rows[2])
    assert "-3.59 ± 4.28" in texts(laid(all_papers["optibert"], "1").rows[7])


def test_a_damaged_number_is_read_and_explained_below(all_papers: dict[str, Paper]) -> None:
    shown = laid(all_papers["modernbert"], "11")
    assert "1444.7 [read 4144.7]" in [cell.text for row in shown.rows for cell in row.cells]
    assert any(note.startswith("[read …]") for note in shown.notes)
    assert not any("[read" in note for note in laid(all_papers["modernbert"], "2").notes)
    assert "recomputed" not in [one.label for one in laid(all_papers["modernbert"], "2").columns]


def test_lines_are_those_of_print(all_papers: dict[str, Paper]) -> None:
    """Hours stand beside the score they lead to, dollars beside hours, a task's choices in one line."""
    first = laid(all_papers["mosaicbert"], "1")
    scores = [texts(row)[-2:] for row in first.rows[:4]]
    assert scores == [["79.6", "1.13"], ["82.2", "2.81"], ["83.2", "4.6"], ["83.4", "5.27"]]
    assert len(first.rows) == 9
    cost = laid(all_papers["mosaicbert"], "S5")
    assert texts(cost.rows[1])[4:7] == ["1.28", "20.0", "20.48"]
    assert "$2.0/GPU-h" in cost.rows[1].cells[5].note
    chosen = laid(all_papers["neobert"], "6")
    assert texts(chosen.rows[0]) == ["NeoBERT_1024", "medium", "250M", "CoLA", "4", "6e-6", "1e-5"]
    assert len(chosen.rows) == 16


def test_rounding_is_named_where_it_may_be_why(all_papers: dict[str, Paper]) -> None:
    average = laid(all_papers["modernbert"], "8")
    notes = [row.cells[-2].note for row in average.rows if row.cells[-1].text]
    assert len(notes) == 3
    assert all("within what rounding of the parts can do" in note for note in notes)
    assert "rounding" not in laid(all_papers["neobert"], "3").rows[0].cells[-2].note


def test_optibert_mixes_two_means(all_papers: dict[str, Paper]) -> None:
    shown = laid(all_papers["optibert"], "2")
    types, tasks = (column(shown, f"mean over {over} (recomputed)") for over in ("types", "tasks"))
    assert (types[4], tasks[4]) == ("51.87", "50.44")
    assert (types[1], tasks[1]) == ("52.41", "51.32")
    assert "130B" in texts(shown.rows[4])[2]
    over_tasks, over_types, mixed, turned, other = shown.notes
    assert over_tasks.endswith("is the mean over tasks of: ModernBERT_large; NeoBERT_4096.")
    assert over_types.count("OptiBERT_neo") == 3
    assert over_types.endswith("OptiBERT_239M.")
    assert "mixes two means" in mixed
    assert "130B" in turned
    assert "above NeoBERT_4096 (51.9 against 51.3)" in turned
    assert "51.87 against 52.41" in turned
    assert "50.44 against 51.32" in turned
    assert other.startswith("OptiBERT_239M is printed above NeoBERT_4096")


def test_neobert_prints_the_mean_over_tasks(all_papers: dict[str, Paper]) -> None:
    notes = laid(all_papers["neobert"], "4").notes
    assert "The printed average is neither mean of: BERT base." in notes
    assert sum("mean over tasks of" in note for note in notes) == 1
    assert not any("mixes" in note or "printed above" in note for note in notes)


def test_the_law_of_optibert_in_numbers(all_papers: dict[str, Paper]) -> None:
    assert any(
        "D/F_N = 0.28" in note and note.endswith("32.5.") for note in laid(all_papers["optibert"], "1").notes
    )


def test_measured_cells_stand_below_the_last_line_of_their_model(all_papers: dict[str, Paper]) -> None:
    paper = all_papers["optibert"]
    cell = Cell(text="61.0", value=61.0, href="/results/1", kind="best")
    given = {
        ("OptiBERT_neo", "", "MTEB(eng, v1)", "STS"): cell,
        ("OptiBERT_neo", "", "MTEB(eng, v1)", "mean over tasks"): cell,
        ("OptiBERT_neo", "", "MTEB(eng, v2)", "STS"): cell,
        ("Nobody", "", "MTEB(eng, v1)", "STS"): cell,
    }
    shown = build_paper_table(paper, paper.tables["2"], given)
    assert len(shown.rows) == 7
    below = shown.rows[5]
    assert below.cells[0].kind == "measured"
    named = {one.label: c for one, c in zip(shown.columns, below.cells, strict=True) if c.text == "61.0"}
    assert named.keys() == {"STS", "mean over tasks (recomputed)"}
    assert (named["STS"].kind, named["STS"].href) == ("best measured", "/results/1")
    assert shown.rows[6].cells[0].text == "OptiBERT_239M"


def test_measured_cells_go_by_either_name_of_a_task(all_papers: dict[str, Paper]) -> None:
    paper = all_papers["neobert"]
    for name in ("SST", "SST-2"):
        given = {("BERT", "base", "GLUE dev", name): Cell(text="92.0", value=92.0)}
        shown = build_paper_table(paper, paper.tables["3"], given)
        assert [row.cells[7].text for row in shown.rows[:3]] == ["93.5", "92.0", "94.8"]
