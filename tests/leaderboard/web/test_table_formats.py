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
from pyarrow import parquet

from hostile import escaped
from leaderboard.web import table_formats as render
from leaderboard.web.app import TableJson
from leaderboard.web.marks import KINDS, PLAIN
from leaderboard.web.page import Page
from leaderboard.web.page_state import State
from leaderboard.web.site import build_page_json, create_environment
from leaderboard.web.tables import Cell, Table, TableColumn, TableRow
from site_data import Parsed

MACROS: Any = create_environment().get_template("_macros.html").module
SIGNS = "<>&\"'`={}\\|[]*_#~^$%@+-\t\r\n\0\x1b\u202e"
NASTY = st.text(st.one_of(st.characters(exclude_categories=["Cs"]), st.sampled_from(SIGNS)))
VALUES = st.one_of(st.none(), st.integers(-(2**53), 2**53), st.floats(), NASTY)


@st.composite
def tables(draw: st.DrawFn, text: st.SearchStrategy[str] = NASTY) -> Table:
    width = draw(st.integers(1, 4))
    columns = [
        TableColumn(
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
    )
    rows = draw(st.lists(st.lists(cell, min_size=width, max_size=width), max_size=4))
    return Table(
        name="t",
        caption=draw(text),
        columns=columns,
        rows=[TableRow(cells=cells, key=draw(text)) for cells in rows],
        notes=draw(st.lists(text, max_size=2)),
    )


def finite(value: Any) -> bool:
    return not isinstance(value, float) or math.isfinite(value)


def shown(text: str) -> str:
    """A text as an HTML parser gives it back."""
    return html.unescape(html.escape(escaped(text))).replace("\r\n", "\n")


@settings(max_examples=150, deadline=None)
@given(tables(), st.booleans())
def test_html_is_whole_and_shows_every_text_as_it_is(table: Table, pick: bool) -> None:
    plain = Parsed(str(MACROS.table(table, pick)).replace("\r\n", "\n").replace("\r", "\n"))
    assert plain.wrong == []
    tags = "div table caption thead tbody tr th td a span ul li input wbr"
    assert {tag for tag, _ in plain.elements} <= set(tags.split())
    assert not any(n.startswith("on") or n == "style" for _, a in plain.elements for n in a)
    assert {a["href"] for a in plain.all("a")} <= {"/models/x", "/x?sort=1"}
    titles = {a.get("title") for _, a in plain.elements}
    for row in table.rows:
        for cell in row.cells:
            assert shown(cell.text) in plain.text
            assert not cell.note or shown(cell.note) in titles
    assert len(plain.all("tr")) == len(table.rows) + 1 + any(c.group for c in table.columns)
    assert plain.all("table")[0]["data-name"] == "t"


@settings(max_examples=60, deadline=None)
@given(tables(st.just("x")))
def test_the_legend_lists_the_kinds_that_are_used_and_no_others(table: Table) -> None:
    used = {kind for row in table.rows for cell in row.cells for kind in cell.kind.split()}
    assert [name for name, _ in table.legend] == [kind for kind in KINDS if kind in used - PLAIN]
    classes = {
        name
        for tag, a in Parsed(str(MACROS.table(table))).elements
        if tag in ("td", "th")
        for name in a.get("class", "").split()
    }
    assert used <= classes


NOT_COMPARABLE = {
    "part": "part", "other": "other revision", "leak": "trained on", "bad": "impossible", "failed": "failed",
    "reported": "reported", "chosen": "chosen", "seeds": "some seeds", "own": "own data",
    "changed": "changed settings", "selected": "selected", "texts": "trained on texts",
    "apart": "not comparable", "approximate": "approximate search", "chance": "at chance level",
    "contradicted": "contradicted",
}  # fmt: skip


def read_back(text: str) -> list[list[str]]:
    return list(csv.reader(io.StringIO(text, newline="")))


@settings(max_examples=150, deadline=None)
@given(st.lists(tables(), min_size=1, max_size=2))
def test_csv_holds_the_values_in_full(some: list[Table]) -> None:
    rows = iter(read_back(render.render_csv(some)))
    for number, table in enumerate(some):
        if number:
            assert next(rows) == []
        heads = next(rows)
        kinds = [k for row in table.rows for c in row.cells for k in c.kind.split()
                 if k != "reported" or "reported" not in c.text]  # fmt: skip
        last = any(KINDS[kind].csv for kind in kinds)
        assert not last or heads.pop() == "marks"
        assert [unguarded(head) for head in heads] == [
            escaped(f"{c.group}: {c.label}" if c.group else c.label) for c in table.columns
        ]
        for row in table.rows:
            printed = next(rows)
            marks = printed.pop() if last else ""
            for word in {NOT_COMPARABLE.get(k, "") for c in row.cells for k in c.kind.split()} - {"reported"}:
                assert word in marks
            for cell, said in zip(row.cells, printed, strict=True):
                known = render.parse_cell_value(cell)
                value = cell.text if known is None else known
                value = "" if known is None and value in ("?", "–") else value
                if isinstance(value, float | int):
                    assert type(value)(said) == value
                else:
                    assert unguarded(said) == (escaped(value) if isinstance(value, str) else value)
                    assert said[:1] not in ("=", "+", "-", "@", "\t", "\r")
    assert next(rows, None) is None


def unguarded(said: str) -> str:
    return said[1:] if said.startswith("'") and said[1:2] in ("=", "+", "-", "@", "\t", "\r") else said


@pytest.mark.parametrize(
    "name", ['=HYPERLINK("http://x","y")', "+1+cmd|' /C calc'!A0", "-2+3", "@SUM(1)", "\t=1", "\r\n=1"]
)
def test_a_spreadsheet_takes_no_name_for_a_formula(name: str) -> None:
    table = Table(
        name="t",
        caption="c",
        columns=[TableColumn(key="model", label=name), TableColumn(key="x", label="x", numeric=True)],
        rows=[TableRow(cells=[Cell(text=name, value=name), Cell(text="−0.5", value=-0.5)])],
    )
    for row in read_back(render.render_csv([table])):
        assert row[0] == f"'{name}"
    assert read_back(render.render_csv([table]))[1][1] == "-0.5"  # a number stays one


def controls(text: str) -> set[str]:
    return {c for c in text if (c < " " and c != "\n") or c == "\x7f"}


@settings(max_examples=150, deadline=None)
@given(tables())
def test_latex_holds_no_sign_that_does_something(table: Table) -> None:
    found = render.render_tex([table])
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
    marks = re.sub(r"\$\^(\\(dagger|ddagger|diamond|parallel|circ|star)|\{\\neq\})\$", "", "\n".join(body))
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
    found = render.render_markdown("t", [table])
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
            TableColumn(key="model", label="Model"),
            TableColumn(key="m", label="Mean", numeric=True, group="all"),
        ],
        rows=[
            TableRow(cells=[Cell(text="a_b|c"), Cell(text="64.51 ± 0.2", value=0.6451, kind="best")]),
            TableRow(cells=[Cell(text="50% & <more>"), Cell(text="–", kind="none")]),
        ],
        notes=["A note."],
    )
    assert render.render_markdown("T*", [table]) == (
        "# T\\*\n\n## Scores × 100\n\n| Model | all: Mean |\n| --- | ---: |\n"
        "| a\\_b\\|c | **64.51 ± 0.2** |\n| 50% &amp; &lt;more&gt; | – |\n\nA note.\n"
        "\nMarks: **bold**: best of the rows shown.\n"
    )
    assert render.render_tex([table]) == (
        "% A note.\n\\begin{table}\n\\centering\n\\caption{Scores $\\times$ 100}\n\\begin{tabular}{lr}\n"
        "\\toprule\n\\multicolumn{1}{c}{} & \\multicolumn{1}{c}{all} \\\\\n\\cmidrule(lr){2-2}\n"
        "Model & Mean \\\\\n\\midrule\na\\_b\\textbar{}c & \\textbf{64.51 $\\pm$ 0.2} \\\\\n"
        "50\\% \\& \\textless{}more\\textgreater{} & -- \\\\\n\\bottomrule\n\\end{tabular}\n"
        "\\par\\smallskip\\footnotesize Marks: \\textbf{bold}: best of the rows shown.\n"
        "\\end{table}\n"
    )


@settings(max_examples=100, deadline=None)
@given(tables())
def test_json_is_what_the_description_of_the_api_says(table: Table) -> None:
    names = [replace(c, key=f"k{at}") for at, c in enumerate(table.columns)]
    table = replace(table, columns=names)
    said = json.loads(json.dumps(render.build_table_json(table), allow_nan=False))
    TableJson.model_validate(said)
    for row, cells in zip(table.rows, said["rows"], strict=True):
        for column, cell in zip(names, row.cells, strict=True):
            found: dict[str, Any] | None = cells["cells"].get(column.key)
            if found is None:
                assert (cell.text, cell.value) == ("", None)
                continue
            assert finite(found["value"])
            if cell.value is not None and finite(cell.value):
                assert found["value"] == render.parse_cell_value(cell)
            assert found.get("kind", "") == cell.kind
            assert found.get("note", "") == cell.note


def test_a_page_as_plain_values() -> None:
    page = Page(title="T", template="x.html", lead="l", notes=["n"], data={"a": 1})
    assert build_page_json(page, State(theme="dark")) == {
        "snapshot": None,
        "title": "T", "lead": "l", "notes": ["n"], "state": {}, "tables": [], "charts": [],
        "data": {"a": 1},
    }  # fmt: skip


def scores(*cells: Cell) -> Table:
    columns = [TableColumn(key=str(at), label=f"T{at}", numeric=True) for at in range(len(cells))]
    return Table(name="t", caption="c", columns=columns, rows=[TableRow(cells=cells)])


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
    found = {"md": render.render_markdown("t", [table]), "tex": render.render_tex([table])}
    assert f"| {md} |" in found["md"]
    assert f"\n{tex} \\\\\n" in found["tex"]
    told = {name for name in kind.split() if name in (*NOT_COMPARABLE, "best")}
    for text in found.values():
        assert {name for name, kind in KINDS.items() if f": {kind.meaning}" in text} == told
        assert ("Marks: " in text) == bool(told)


def test_what_failed_is_explained_by_its_own_sign() -> None:
    table = scores(Cell(text="×", kind="failed"), Cell(text="!", kind="bad"), Cell(kind="part"))
    assert "| × | ! |  |" in render.render_markdown("t", [table])
    assert "Marks: ×: the run failed; !: impossible value, never counted." in render.render_markdown(
        "t", [table]
    )
    assert r"Marks: $\times$: the run failed; !: imp" in render.render_tex([table])


def test_csv_says_in_its_last_column_what_cannot_be_compared() -> None:
    table = scores(
        Cell(text="75.01", value=0.7501, kind="part"), Cell(text="1.0", value=0.01, kind="best leak other"),
        Cell(text="×", kind="failed"), Cell(text="–", kind="none"), Cell(text="?"), Cell(text="by type"),
    )  # fmt: skip
    assert read_back(render.render_csv([table])) == [
        ["T0", "T1", "T2", "T3", "T4", "T5", "marks"],
        ["75.01", "1.0", "×", "", "", "by type",
         "T0: part; T1: other revision, trained on; T2: failed"],
    ]  # fmt: skip
    assert read_back(render.render_csv([scores(Cell(text="1", value=1, kind="best"))])) == [["T0"], ["1"]]


def test_notes_and_the_view_stand_above_the_tables() -> None:
    table = scores(Cell(text="1", value=1))
    notes, view = ["Not <comparable>_\n\\end"], "q=a%20b&cols=x_y"
    md = render.render_markdown("T", [table], notes=notes, view=view)
    assert md.startswith("# T\n\nNot &lt;comparable&gt;\\_ \\\\end\n\nView: `q=a%20b&cols=x_y`\n\n## c\n")
    tex = render.render_tex([table], notes=notes, view=view)
    assert tex.startswith("% Not <comparable>_ \\end\n% View: q=a%20b&cols=x_y\n\\begin{table}\n")


def test_a_name_with_its_organisation_set_back() -> None:
    assert MACROS.model("a/<b>") == '<span class="org">a/</span>&lt;b&gt;'
    assert MACROS.model("<b>", "/m") == '<a href="/m">&lt;b&gt;</a>'


@pytest.mark.parametrize(
    ("text", "value", "printed"),
    [
        ("71.40", 0.7139999, 71.4), ("71.40 ± 0.20", 0.714, 71.4), ("+1.20", 0.012, 1.2),
        ("−0.50", -0.005, -0.5),
        ("1,234", 1234, 1234), ("85 %", 0.85, 85), ("37/41", 37, 37), ("22.7 M", 22_713_216, 22_713_216),
        ("?", None, None), ("–", math.nan, None), ("yes", True, True), ("2024", "2024", "2024"),
    ],
)  # fmt: skip
def test_values_are_as_printed(text: str, value: Any, printed: Any) -> None:
    cell = Cell(text=text, value=value, deviation=0.002 if "±" in text else None)
    found = render.build_table_json(scores(cell))["rows"][0]["cells"]["0"]
    assert found["value"] == printed
    assert found.get("deviation") == (0.2 if "±" in text else None)
    written = read_back(render.render_csv([scores(cell)]))[1][0]
    assert written == ("" if printed is None else str(printed))


def test_headings_over_rows_are_a_column() -> None:
    """In HTML a row of its own; in CSV and JSON each row names it."""
    rows = [TableRow(cells=[Cell(text=text), Cell(text="1", value=1)], kind=kind)
            for text, kind in (("a", ""), ("papers", "group"), ("b", "part"))]  # fmt: skip
    rows[1] = replace(rows[1], cells=[Cell(text="papers"), Cell()])
    columns = [TableColumn(key="model", label="Model"), TableColumn(key="x", label="x", numeric=True)]
    table = Table(name="t", caption="c", columns=columns, rows=rows)
    lines = [["Group", "Model", "x"], ["", "a", "1"], ["papers", "b", "1"]]
    assert read_back(render.render_csv([table])) == lines
    assert [row["group"] for row in render.build_table_json(table)["rows"]] == ["", "papers"]
    assert '<th colspan="2" scope="rowgroup"><span>papers</span></th>' in MACROS.table(table)


def test_headings_of_columns_may_break_and_leave_out_their_group() -> None:
    def parts(label: str, group: str = "") -> list[str]:
        return TableColumn(key="x", label=label, group=group).syllables

    assert parts("AmazonCounterfactualClassification", "Classification") == ["Amazon", "Counterfactual"]
    assert parts("TwentyNewsgroupsClustering.v2", "Clustering") == ["Twenty", "Newsgroups.", "v2"]
    assert parts("STS12", "STS") == ["STS12"]
    assert parts("STSBenchmark", "STS") == parts("STSBenchmark") == ["STSBenchmark"]
    assert parts("Mean") == ["Mean"]


def test_columns_of_a_group_fold_and_cards_have_labels() -> None:
    columns = [
        TableColumn(key="model", label="Model", sticky=True),
        TableColumn(
            key="r", label="Mean", group="Retrieval", fold="?open=Retrieval", numeric=True, card="Retr."
        ),
        TableColumn(key="s", label="SciFact", group="Retrieval", numeric=True),
    ]
    rows = [TableRow(cells=[Cell(text="a"), Cell(text="1"), Cell(text="2")])]
    made = Parsed(MACROS.table(Table(name="t", caption="c", columns=columns, rows=rows, cards=True)))
    assert [a["href"] for a in made.all("a")] == ["?open=Retrieval"]
    assert [a.get("data-label") for a in made.all("td")][-2:] == ["Retr.", None]
    assert "cards" in (made.all("table")[0]["class"] or "")


def test_columns_of_one_name_are_told_apart_by_their_keys() -> None:
    columns = [TableColumn(key=key, label="by") for key in ("by", "source")]
    rows = [TableRow(cells=[Cell(text="a"), Cell(text="b")])]
    table = Table(name="t", caption="c", columns=columns, rows=rows)
    found = parquet.read_table(io.BytesIO(render.render_parquet([table], {"snapshot_id": "0"})))
    assert found.to_pydict() == {"by": ["a"], "source": ["b"]}
    assert found.schema.metadata == {b"snapshot_id": b"0"}


def test_parquet_holds_the_numbers_of_csv_as_numbers() -> None:
    table = Table(
        name="t", caption="c",
        columns=[TableColumn(key="model", label="Model"), TableColumn(key="m", label="mean", group="STS"),
                 TableColumn(key="x", label="Mixed")],
        rows=[
            TableRow(kind="group", cells=[Cell(text="first"), Cell(), Cell()]),
            TableRow(cells=[Cell(text="=a"), Cell(text="64.51", value=0.6451, kind="leak"), Cell(text="x")]),
            TableRow(cells=[Cell(text="b"), Cell(text="–"), Cell(text="2", value=2)]),
        ],
    )  # fmt: skip
    found = parquet.read_table(io.BytesIO(render.render_parquet([table, table])))
    assert found.to_pydict() == {
        "Group": ["first", "first"], "Model": ["=a", "b"], "STS: mean": [64.51, None], "Mixed": ["x", "2"],
        "marks": ["mean: trained on", None],
    }  # fmt: skip
    assert parquet.read_table(io.BytesIO(render.render_parquet([]))).num_columns == 0
