"""Tables as HTML, CSV, Markdown, LaTeX and JSON: what comes out is what went in, and nothing more."""

from __future__ import annotations

import csv
import html
import io
import json
import math
import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leaderboard import render
from leaderboard.app import TableTwin
from leaderboard.page import Page
from leaderboard.site import twin_json
from leaderboard.state import State
from leaderboard.tables import KINDS, Cell, Column, Row, Table
from site_data import Parsed

SIGNS = "<>&\"'`={}\\|[]*_#~^$%@+-\t\r\n\0\x1b\u202e"
NASTY = st.text(st.one_of(st.characters(exclude_categories=["Cs"]), st.sampled_from(SIGNS)))
VALUES = st.one_of(st.none(), st.integers(-(2**53), 2**53), st.floats(), NASTY)


@st.composite
def tables(draw: st.DrawFn, text: st.SearchStrategy[str] = NASTY) -> Table:
    width = draw(st.integers(1, 4))
    columns = [
        Column(
            key=draw(st.sampled_from(["model", "name", "x"])) + str(at) * (at > 0),
            label=draw(text),
            group=draw(st.sampled_from(["", "g"])),
            numeric=draw(st.booleans()),
            sort=draw(st.sampled_from(["", "/x?sort=1"])),
            note=draw(text),
            sticky=draw(st.booleans()),
        )
        for at in range(width)
    ]
    cell = st.builds(
        Cell,
        text=text,
        value=VALUES,
        href=st.sampled_from(["", "/models/x"]),
        kind=st.sampled_from(["", *KINDS, "best leak", "other second"]),
        note=text,
        width=st.sampled_from([None, 0.0, 0.5, 1.0]),
    )
    rows = draw(st.lists(st.lists(cell, min_size=width, max_size=width), max_size=4))
    return Table(
        name="t",
        caption=draw(text),
        columns=columns,
        rows=[Row(cells=cells, key=draw(text), pin=draw(st.sampled_from(["", "/p"]))) for cells in rows],
        notes=draw(st.lists(text, max_size=2)),
    )


def finite(value: Any) -> bool:
    return not isinstance(value, float) or math.isfinite(value)


def shown(text: str) -> str:
    """A text as an HTML parser gives it back."""
    return html.unescape(html.escape(text)).replace("\r\n", "\n").replace("\r", "\n")


@settings(max_examples=150, deadline=None)
@given(tables(), st.booleans())
def test_html_is_whole_and_shows_every_text_as_it_is(table: Table, pick: bool) -> None:
    plain = Parsed(str(render.html(table, pick=pick)).replace("\r\n", "\n").replace("\r", "\n"))
    assert plain.wrong == []
    allowed = {
        "div",
        "table",
        "caption",
        "thead",
        "tbody",
        "tr",
        "th",
        "td",
        "a",
        "span",
        "ul",
        "li",
        "input",
    }
    assert {tag for tag, _ in plain.elements} <= allowed
    assert not any(n.startswith("on") or n == "style" for _, a in plain.elements for n in a)
    assert {a["href"] for a in plain.all("a")} <= {"/models/x", "/p", "/x?sort=1"}
    titles = {a.get("title") for _, a in plain.elements}
    for row in table.rows:
        for cell in row.cells:
            assert shown(cell.text) in plain.text
            assert not cell.note or shown(cell.note) in titles
    assert len(plain.all("tr")) == len(table.rows) + 1 + any(c.group for c in table.columns)
    assert plain.all("table")[0]["data-name"] == "t"


def test_every_kind_has_a_letter_of_its_own_and_a_line_in_the_legend() -> None:
    assert render.CODES.keys() == KINDS.keys()
    assert len(set(render.CODES.values())) == len(KINDS)
    assert render.SAMPLES.keys() <= KINDS.keys()


@settings(max_examples=60, deadline=None)
@given(st.lists(tables(st.just("x")), max_size=2))
def test_the_legend_lists_the_kinds_that_are_used_and_no_others(some: list[Table]) -> None:
    found = {letter: says for letter, _, says in render.legend(some)}
    used = {k for t in some for row in t.rows for cell in row.cells for k in cell.kind.split()}
    assert found == {render.CODES[kind]: KINDS[kind] for kind in used}
    classes = {
        name
        for table in some
        for tag, a in Parsed(str(render.html(table))).elements
        if tag in ("td", "th")
        for name in a.get("class", "").split()
    }
    assert found.keys() <= classes


NOT_COMPARABLE = {
    "part": "part", "other": "other revision", "leak": "trained on", "bad": "impossible", "failed": "failed",
    "reported": "reported", "chosen": "chosen",
}  # fmt: skip


def read_back(text: str) -> list[list[str]]:
    return list(csv.reader(io.StringIO(text, newline="")))


@settings(max_examples=150, deadline=None)
@given(st.lists(tables(), min_size=1, max_size=2))
def test_csv_holds_the_values_in_full(some: list[Table]) -> None:
    rows = iter(read_back(render.csv_text(some)))
    for number, table in enumerate(some):
        if number:
            assert next(rows) == []
        heads = next(rows)
        kinds = [k for row in table.rows for c in row.cells for k in c.kind.split()
                 if k != "reported" or "reported" not in c.text]  # fmt: skip
        last = bool(set(kinds) & set(NOT_COMPARABLE))
        assert not last or heads.pop() == "marks"
        assert [unguarded(head) for head in heads] == [
            f"{c.group}: {c.label}" if c.group else c.label for c in table.columns
        ]
        for row in table.rows:
            printed = next(rows)
            marks = printed.pop() if last else ""
            for word in {NOT_COMPARABLE.get(k, "") for c in row.cells for k in c.kind.split()} - {"reported"}:
                assert word in marks
            for cell, said in zip(row.cells, printed, strict=True):
                value = cell.text if cell.value is None or not finite(cell.value) else cell.value
                value = "" if cell.value is not value and value in ("?", "–") else value
                if isinstance(value, float | int):
                    assert float(said) == value
                else:
                    assert unguarded(said) == value
                    assert said[:1] not in ("=", "+", "-", "@", "\t", "\r")
    assert next(rows, None) is None


def unguarded(said: str) -> str:
    return said[1:] if said.startswith("'") and said[1:2] in ("=", "+", "-", "@", "\t", "\r") else said


@pytest.mark.parametrize(
    "name", ['=HYPERLINK("http://x","y")', "+1+cmd|' /C calc'!A0", "-2+3", "@SUM(1)", "\t=1", "\r=1"]
)
def test_a_spreadsheet_takes_no_name_for_a_formula(name: str) -> None:
    table = Table(
        name="t",
        caption="c",
        columns=[Column(key="model", label=name), Column(key="x", label="x", numeric=True)],
        rows=[Row(cells=[Cell(text=name, value=name), Cell(text="−0.5", value=-0.5)])],
    )
    for row in read_back(render.csv_text([table])):
        assert row[0] == f"'{name}"
    assert read_back(render.csv_text([table]))[1][1] == "-0.5"  # a number stays one


def controls(text: str) -> set[str]:
    return {c for c in text if (c < " " and c != "\n") or c == "\x7f"}


@settings(max_examples=150, deadline=None)
@given(tables())
def test_latex_holds_no_sign_that_does_something(table: Table) -> None:
    found = render.tex([table])
    assert controls(found) == set()
    lines = [line for line in found.splitlines() if not line.startswith("%")]
    (start,) = [at for at, line in enumerate(lines) if line == "\\midrule"]
    (end,) = [at for at, line in enumerate(lines) if line == "\\bottomrule"]
    body = [line for line in lines[start + 1 : end] if line]
    assert len(body) == len(table.rows)
    for line in [*body, lines[start - 1]]:
        assert line.endswith(" \\\\")
        assert not line.startswith(("[", "*"))  # of \\ before it
        assert len(re.findall(r"(?<!\\)&", bare(line))) == len(table.columns) - 1
    words = (
        "textbackslash|textasciitilde|textasciicircum|textless|textgreater|textbar|textbf|textit|pm|times|S|P"
    )
    marks = "\n".join(body).replace(r"$^\dagger$", "").replace(r"$^\ddagger$", "")
    rest = re.sub(rf"\\({words})(?=[{{$])" + r"|\\[&%$#_{}\\]", "", marks)
    assert "\\" not in rest
    assert not set("%#_^~<>|") & set(rest)
    depth = 0
    for sign in re.sub(r"\\[\\{}]", "", "\n".join(lines)):
        depth += (sign == "{") - (sign == "}")
        assert depth >= 0
    assert depth == 0


def bare(line: str) -> str:
    return line.replace("\\textbackslash{}", "")


@settings(max_examples=150, deadline=None)
@given(tables())
def test_markdown_keeps_its_rows_and_lets_no_html_in(table: Table) -> None:
    found = render.markdown("t", [table])
    assert controls(found) == set()
    assert "<" not in found
    body = [line for line in found.splitlines() if line.startswith("|")]
    assert len(body) == len(table.rows) + 2
    for line in body:
        assert len(re.findall(r"(?<!\\)(?:\\\\)*\|", line)) == len(table.columns) + 1


def test_markdown_and_latex_of_a_table_by_hand() -> None:
    table = Table(
        name="t",
        caption="Scores × 100",
        columns=[
            Column(key="model", label="Model"),
            Column(key="m", label="Mean", numeric=True, group="all"),
        ],
        rows=[
            Row(cells=[Cell(text="a_b|c"), Cell(text="64.51 ± 0.2", value=0.6451, kind="best")]),
            Row(cells=[Cell(text="50% & <more>"), Cell(text="–", kind="none")]),
        ],
        notes=["A note."],
    )
    assert render.markdown("T*", [table]) == (
        "# T\\*\n\n## Scores × 100\n\n| Model | all: Mean |\n| --- | ---: |\n"
        "| a\\_b\\|c | **64.51 ± 0.2** |\n| 50% &amp; &lt;more&gt; | – |\n\nA note.\n"
        "\nMarks: **bold**: the best of this column, of what is shown.\n"
    )
    assert render.tex([table]) == (
        "% A note.\n\\begin{table}\n\\centering\n\\caption{Scores $\\times$ 100}\n\\begin{tabular}{lr}\n"
        "\\toprule\nModel & Mean \\\\\n\\midrule\na\\_b\\textbar{}c & \\textbf{64.51 $\\pm$ 0.2} \\\\\n"
        "50\\% \\& \\textless{}more\\textgreater{} & -- \\\\\n\\bottomrule\n\\end{tabular}\n"
        "\\par\\smallskip\\footnotesize Marks: \\textbf{bold}: the best of this column, of what is shown.\n"
        "\\end{table}\n"
    )


@settings(max_examples=100, deadline=None)
@given(tables())
def test_json_is_what_the_description_of_the_api_says(table: Table) -> None:
    names = [replace(c, key=f"k{at}") for at, c in enumerate(table.columns)]
    table = replace(table, columns=names)
    said = json.loads(json.dumps(render.table_json(table), allow_nan=False))
    TableTwin.model_validate(said)
    for row, cells in zip(table.rows, said["rows"], strict=True):
        for column, cell in zip(names, row.cells, strict=True):
            found: dict[str, Any] | None = cells["cells"].get(column.key)
            if found is None:
                assert (cell.text, cell.value) == ("", None)
                continue
            assert finite(found["value"])
            if cell.value is not None and finite(cell.value):
                assert found["value"] == cell.value
            assert found.get("kind", "") == cell.kind
            assert found.get("note", "") == cell.note


def test_a_page_as_plain_values() -> None:
    page = Page(title="T", template="x.html", lead="l", notes=["n"], data={"a": 1})
    assert twin_json(page, State(theme="dark")) == {
        "title": "T", "lead": "l", "notes": ["n"], "state": {}, "tables": [], "data": {"a": 1},
    }  # fmt: skip


def scores(*cells: Cell) -> Table:
    columns = [Column(key=str(at), label=f"T{at}", numeric=True) for at in range(len(cells))]
    return Table(name="t", caption="c", columns=columns, rows=[Row(cells=cells)])


@pytest.mark.parametrize(
    ("kind", "md", "tex"),
    [
        ("part", "*75.01*", r"\textit{75.01}"),
        ("best", "**75.01**", r"\textbf{75.01}"),
        ("leak", "75.01†", r"75.01$^\dagger$"),
        ("other", "75.01‡", r"75.01$^\ddagger$"),
        ("chosen", "75.01§", r"75.01\S{}"),
        ("reported", "75.01¶", r"75.01\P{}"),
        ("leak best", "**75.01**†", r"\textbf{75.01}$^\dagger$"),
        ("second", "75.01", "75.01"),
        ("measured", "75.01", "75.01"),
        ("", "75.01", "75.01"),
    ],
)
def test_marks_and_what_they_mean(kind: str, md: str, tex: str) -> None:
    table = scores(Cell(text="75.01", value=0.7501, kind=kind))
    found = {"md": render.markdown("t", [table]), "tex": render.tex([table])}
    assert f"| {md} |" in found["md"]
    assert f"\n{tex} \\\\\n" in found["tex"]
    told = {name for name in kind.split() if name in (*NOT_COMPARABLE, "best")}
    for text in found.values():
        assert {name for name, says in KINDS.items() if says in text} == told
        assert ("Marks: " in text) == bool(told)


def test_what_failed_is_explained_by_its_own_sign() -> None:
    table = scores(Cell(text="×", kind="failed"), Cell(text="!", kind="bad"), Cell(kind="part"))
    assert "| × | ! |  |" in render.markdown("t", [table])
    assert "Marks: ×: it was run and failed; !: an impossible value." in render.markdown("t", [table])
    assert r"Marks: $\times$: it was run and failed; !: an" in render.tex([table])


def test_csv_says_in_its_last_column_what_cannot_be_compared() -> None:
    table = scores(
        Cell(text="75.01", value=0.7501, kind="part"), Cell(text="1.0", value=0.01, kind="best leak other"),
        Cell(text="×", kind="failed"), Cell(text="–", kind="none"), Cell(text="?"), Cell(text="by type"),
    )  # fmt: skip
    assert read_back(render.csv_text([table])) == [
        ["T0", "T1", "T2", "T3", "T4", "T5", "marks"],
        ["0.7501", "0.01", "×", "", "", "by type",
         "T0: part; T1: other revision, trained on; T2: failed"],
    ]  # fmt: skip
    assert read_back(render.csv_text([scores(Cell(text="1", value=1, kind="best"))])) == [["T0"], ["1"]]


def test_notes_and_the_view_stand_above_the_tables() -> None:
    table = scores(Cell(text="1", value=1))
    notes, view = ["Not <comparable>_\n\\end"], "q=a%20b&cols=x_y"
    md = render.markdown("T", [table], notes=notes, view=view)
    assert md.startswith("# T\n\nNot &lt;comparable&gt;\\_ \\\\end\n\nView: `q=a%20b&cols=x_y`\n\n## c\n")
    tex = render.tex([table], notes=notes, view=view)
    assert tex.startswith("% Not <comparable>_ \\end\n% View: q=a%20b&cols=x_y\n\\begin{table}\n")


def test_a_name_with_its_organisation_set_back() -> None:
    assert render.name_html("a/<b>") == '<span class="org">a/</span>&lt;b&gt;'
    assert render.name_html("<b>") == "&lt;b&gt;"
    assert render.name_html("a/b/c") == '<span class="org">a/b/</span>c'
