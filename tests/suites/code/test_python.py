"""Which functions are taken from Python source, what they look like, and the tasks made of them."""

from __future__ import annotations

import ast
import textwrap
from pathlib import Path

import pytest

from harness.core.errors import DataError
from suites._code.parsing import parse_python_functions
from suites._code.selection import Function, drop_duplicates, extract_summary
from suites._code.source import UnreadableError, filter_commit_paths, find_source_files, read_source

BODY = "    a = 1\n    b = 2\n    return a + b\n"


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text), encoding="utf-8")
    return root


def function(name: str, docstring: str, body: str = BODY) -> str:
    return f'def {name}(x):\n    """{docstring}"""\n{body}\n'


def extract(root: Path) -> tuple[Function, ...]:
    paths = find_source_files(root).files.get("python", ())
    every = (f for path in paths for f in parse_python_functions(read_source(root, path), path))
    return tuple(drop_duplicates(f for f in every if f.docstring))


def one(root: Path, text: str) -> Function:
    found = extract(write(root, {"m.py": text}))
    assert len(found) == 1
    return found[0]


def test_a_method_with_decorators_comments_and_a_long_docstring(tmp_path: Path) -> None:
    found = one(
        tmp_path,
        '''
        class Shop:
            class Till:
                @property
                @cached(size=3)
                def total(
                    self,
                ):
                    # before
                    """The sum of all
                    items   sold.

                    Longer text with tax.
                    """  # noqa

                    tax = 1.19

                    # then
                    net = self.net
                    return net * tax
        ''',
    )
    assert (found.id, found.name, found.module) == ("m:Shop.Till.total", "Shop.Till.total", "m")
    assert found.docstring == "The sum of all items sold."
    assert found.code == (
        "@property\n@cached(size=3)\ndef total(\n    self,\n):\n    # before\n\n"
        "    tax = 1.19\n\n    # then\n    net = self.net\n    return net * tax"
    )


def test_async_functions_and_functions_below_conditions_are_taken(tmp_path: Path) -> None:
    def indented(name: str, docstring: str, by: int) -> str:
        body = f"    a = {by}\n    b = {len(name)}\n    return a\n"
        return textwrap.indent(function(name, docstring, body), " " * by)

    text = (
        "try:\n    import x\nexcept ImportError:\n"
        + indented("fallback", "Do without the library.", 4)
        + "if True:\n    pass\nelse:\n"
        + indented("other", "Do it on others.", 4)
        + "async "
        + function("wait", "Wait for the end.")
        + "match 1:\n    case 1:\n"
        + indented("matched", "Found by its pattern.", 8)
    )
    found = extract(write(tmp_path, {"m.py": text}))
    assert [f.name for f in found] == ["fallback", "other", "wait", "matched"]
    assert found[2].code == "async def wait(x):\n    a = 1\n    b = 2\n    return a + b"
    assert found[3].code == "def matched(x):\n    a = 8\n    b = 7\n    return a"


def test_nested_functions_belong_to_the_outer_one_and_lose_their_docstrings(tmp_path: Path) -> None:
    found = one(
        tmp_path,
        '''
        def outer(x):
            """Wrap the given callable."""
            class Inner:
                """Say nothing more."""
            def inner(y):
                """Secret words of the inner one.

                And more."""
                one = x(y)
                return one
            return inner
        ''',
    )
    assert found.code == (
        "def outer(x):\n    class Inner:\n        pass\n    def inner(y):\n        one = x(y)\n"
        "        return one\n    return inner"
    )


def test_text_inside_a_string_and_odd_line_breaks_do_not_shift_lines(tmp_path: Path) -> None:
    text = 'X = "\u2028\x0c"\n\x0c\n' + function(
        "padded", "Pad it with böses.", '    s = """\nat the margin\n    é"""\n    t = s\n    return t\n'
    )
    path = tmp_path / "m.py"
    path.write_bytes(text.encode().replace(b"\n", b"\r\n"))
    (found,) = extract(tmp_path)
    assert found.code == 'def padded(x):\n    s = """\nat the margin\n    é"""\n    t = s\n    return t'


def test_other_encodings_are_read_as_declared(tmp_path: Path) -> None:
    text = "# -*- coding: latin-1 -*-\n" + function("greet", "Say grüß Gott twice.")
    (tmp_path / "m.py").write_bytes(text.encode("latin-1"))
    assert extract(tmp_path)[0].docstring == "Say grüß Gott twice."


@pytest.mark.parametrize(
    "text",
    [
        "def bare(x):\n" + BODY,
        function("short", "It has two lines.", "    a = 1\n    return a\n"),
        function("padded", "It has two lines.", "    a = 1\n\n    # more\n    # and more\n    return a\n"),
        function("only", "It has no body.", ""),
        function("words", "Two words."),
        function("called", "called(x, y) -> the item that is wanted"),
        function("doctest", ">>> one and two and three"),
        function("link", "https://example.org/one-two/three see https://example.org/x/y/z"),
        function("greek", "Επιστρέφει το άθροισμα των αριθμών (a b c)"),
        function("chinese", "返回两个数字的总和"),
        function("run_tests", "Run all of them."),
        function("testing", "Run all of them."),
        function("isLatest", "Say if it is new."),
        "class A:\n" + textwrap.indent(function("__init__", "Make a new one."), "    "),
        "class A:\n" + textwrap.indent(function("__repr__", "Show it as text."), "    "),
        'def line(x): "All on one line."; a = 1; b = 2; return a\n',
        'def line(x):\n    "Two statements here."; a = 1\n    b = 2\n    c = 3\n    return a\n',
        function(
            "told",
            "Add one to it.",
            "    # add   ONE\n    # to it.\n    a = 'add one to it.'\n    b = 1\n    return a\n",
        ),
    ],
)
def test_functions_that_are_left_out(tmp_path: Path, text: str) -> None:
    ast.parse(text)
    assert extract(write(tmp_path, {"m.py": text})) == ()


def test_three_words_and_three_lines_are_enough(tmp_path: Path) -> None:
    assert one(tmp_path, function("enough", "Add two numbers")).docstring == "Add two numbers"


@pytest.mark.parametrize(
    ("docstring", "first"),
    [
        ("Add two numbers.\n\nMore.", "Add two numbers."),
        ("\n\n  Add two\n  numbers.  \n   \nMore.", "Add two numbers."),
        ("Add two numbers.\n:param x: the first", "Add two numbers."),
        ("Add two numbers.\n@return the sum", "Add two numbers."),
        ("Add two numbers.\n>>> add(1, 2)", "Add two numbers."),
        ("See https://example.org for these sums", "See https://example.org for these sums"),
        ("The naïve sum of numbers", "The naïve sum of numbers"),
        ("Add two", None),
        ("", None),
        (" ".join(["word"] * 256), " ".join(["word"] * 256)),
        (" ".join(["word"] * 257), None),
    ],
)
def test_summary_is_the_first_paragraph(docstring: str, first: str | None) -> None:
    assert extract_summary(docstring) == first


def test_first_of_equal_docstrings_codes_and_names_is_kept(tmp_path: Path) -> None:
    other = "    c = 3\n    d = 4\n    return c * d\n"
    third = "    e = 5\n    f = 6\n    return e / f\n"
    write(
        tmp_path,
        {
            "b.py": function("second", "Add two numbers", other)  # same words as the first
            + function("renamed", "Sum up both terms.")  # same code but for its name
            + function("third", "Divide one by another.", third),
            "a.py": function("first", "Add two numbers."),
            "c.py": function("same", "Multiply two numbers here.", other)
            + function("same", "Something else at last.", "    g = 7\n    h = 8\n    return g\n"),
        },
    )
    assert [f.id for f in extract(tmp_path)] == ["a:first", "b:third", "c:same"]
    assert extract(tmp_path)[2].docstring == "Multiply two numbers here."


def test_folders_and_files_that_are_passed_over(tmp_path: Path) -> None:
    text = function("f", "Add two numbers.")
    kept = ["pkg/__init__.py", "pkg/b.py", "pkg/testing/c.py", "venv/__init__.py", "venv/d.py", "a.py"]
    tests = ["pkg/tests/x.py", "test/x.py", "idlelib/idle_test/x.py", "test_x.py", "x_test.py", "conftest.py"]
    dropped = [
        "pkg/__pycache__/x.py",
        "site-packages/x.py",
        "dist-packages/x.py",
        ".hidden/x.py",
        "build/x.py",
        "dist/x.py",
        "node_modules/x.py",
        "env/x.py",
        "mine/x.py",
        "notes.txt",
    ]
    write(tmp_path, dict.fromkeys([*kept, *tests, *dropped], text) | {"mine/pyvenv.cfg": ""})
    assert list(find_source_files(tmp_path).files["python"]) == sorted(kept)
    everything = [path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file()]
    assert filter_commit_paths(everything, ["python"]) == {"python": tuple(sorted(kept))}


@pytest.mark.parametrize("name", ["nonsense", "rot13", "undefined", "hex", "punycode", "idna"])
def test_an_encoding_that_is_none_is_no_python(name: str) -> None:
    with pytest.raises(UnreadableError, match="cannot be parsed"):
        list(parse_python_functions(f"# -*- coding: {name} -*-\n{'x = ß' * 70}\n".encode(), "m.py"))


@pytest.mark.parametrize("data", [b"def f(:\n", b"x = '\xff'\n", b"x = 1\0\n"])
def test_bytes_that_are_no_python(data: bytes) -> None:
    with pytest.raises(UnreadableError, match="cannot be parsed"):
        list(parse_python_functions(data, "m.py"))


def test_files_that_are_not_read(tmp_path: Path) -> None:
    (tmp_path / "huge.py").write_text(function("g", "Take away both.") + "#" * 1_000_000)
    (tmp_path / "gone.py").symlink_to(tmp_path / "nowhere.py")
    (tmp_path / "warns.py").write_text('"\\d"\n')
    assert find_source_files(tmp_path).files == {"python": ("huge.py", "warns.py")}
    assert list(parse_python_functions(read_source(tmp_path, "warns.py"), "warns.py")) == []
    for path, reason in (("huge.py", "larger than 1 MB"), ("gone.py", "cannot be read")):
        with pytest.raises(UnreadableError, match=reason):
            read_source(tmp_path, path)


def test_module_names_follow_the_path(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "__init__.py": function("a", "Add two numbers.", "    x = 1\n    y = 1\n    return 1\n"),
            "p/__init__.py": function("b", "Take two numbers.", "    x = 1\n    y = 1\n    return 2\n"),
            "p/q/r.py": function("c", "Divide two numbers.", "    x = 1\n    y = 1\n    return 3\n"),
        },
    )
    assert [f.module for f in extract(tmp_path)] == ["__init__", "p", "p.q.r"]


def test_a_missing_folder_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="is not a folder"):
        find_source_files(tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("name", "code", "hidden"),
    [
        (
            "A.get",
            "def get(self):\n    'get one'\n    return self.get(target, get=get)  # get it",
            "def Func(self):\n    'get one'\n    return self.Func(target, Func=Func)  # get it",
        ),
        (
            "get_json",
            "@cached(get_json)\ndef get_json(x):\n    # get_json, no get_jsons\n    raise E('get_json() is')",
            "@cached(Func)\ndef Func(x):\n    # Func, no get_jsons\n    raise E('Func() is')",
        ),
        (
            "total",
            "@total.setter\ndef total(a):\n    s = f'{total}'",
            "@Func.setter\ndef Func(a):\n    s = f'{total}'",
        ),
        (
            "size",
            'def size(a):\n    """size\n    \'size"""\n    b = size',
            'def Func(a):\n    """size\n    \'size"""\n    b = Func',
        ),
    ],
)
def test_a_name_is_hidden_where_it_is_an_identifier(name: str, code: str, hidden: str) -> None:
    assert Function(name=name, module="m", docstring="", code=code).hidden == hidden


def test_functions_without_documentation_are_taken_as_well(tmp_path: Path) -> None:
    (path,) = find_source_files(write(tmp_path, {"m.py": "def bare(x):\n" + BODY})).files["python"]
    (found,) = parse_python_functions(read_source(tmp_path, path), path)
    assert (found.id, found.docstring, found.code) == ("m:bare", "", "def bare(x):\n" + BODY.rstrip())
