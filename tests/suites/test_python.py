"""Which functions are taken from Python source, what they look like, and the tasks made of them."""

from __future__ import annotations

import ast
import os
import shutil
import sys
import textwrap
import tokenize
from collections import Counter
from pathlib import Path
from typing import TextIO

import pytest

from harness.errors import DataError
from suites._content import content_hash, size
from suites._python import (
    Tasks,
    _classification,
    _clustering,
    _code_search,
    _docstring_topics,
    _Function,
    _scan,
    _summary,
    build,
    python_files,
    stdlib_revision,
)
from suites.stdlib import _stdlib_root

BODY = "    a = 1\n    b = 2\n    return a + b\n"


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text), encoding="utf-8")
    return root


def function(name: str, docstring: str, body: str = BODY) -> str:
    return f'def {name}(x):\n    """{docstring}"""\n{body}\n'


def extract(root: Path) -> tuple[_Function, ...]:
    return _scan(root).functions


def one(root: Path, text: str) -> _Function:
    found = extract(write(root, {"m.py": text}))
    assert len(found) == 1
    return found[0]


def made(label: str, number: int) -> _Function:
    return _Function(
        name=f"f{number}",
        module=label,
        docstring=f"Do thing number {number} of {label}.",
        code=f"def f{number}(x):\n    return {number}  # {label}",
    )


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
    assert _summary(docstring) == first


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
    assert list(python_files(tmp_path).files) == sorted(kept)
    assert list(python_files(tmp_path, include_tests=True).files) == sorted(kept + tests)


def test_files_that_give_nothing_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, {"good.py": function("f", "Add two numbers."), "broken.py": "def f(:\n"})
    (tmp_path / "bytes.py").write_bytes(b"x = '\xff'\n")
    (tmp_path / "nul.py").write_bytes(b"x = 1\0\n")
    for name in ("nonsense", "rot13", "undefined", "hex", "punycode", "idna"):
        text = f"# -*- coding: {name} -*-\n" + "x = 'ß' * 70\n"
        (tmp_path / f"{name}.py").write_bytes(text.encode())
    (tmp_path / "huge.py").write_text(function("g", "Take away both.") + "#" * 1_000_000)
    (tmp_path / "gone.py").symlink_to(tmp_path / "nowhere.py")
    (tmp_path / "warns.py").write_text('"\\d"\n')
    (tmp_path / "locked.py").write_text(function("h", "Nobody can see this."))
    opened = tokenize.open

    def refuse(path: Path) -> TextIO:
        if path.name == "locked.py":
            raise PermissionError(path)
        return opened(path)

    monkeypatch.setattr(tokenize, "open", refuse)
    source = _scan(tmp_path)
    assert source.files == 13
    assert source.skipped == {"cannot be parsed": 9, "larger than 1 MB": 1, "cannot be read": 1}
    assert [f.id for f in source.functions] == ["good:f"]


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
        _scan(tmp_path / "nowhere")


def repository(root: Path, packages: int = 6, each: int = 24) -> Path:
    return write(
        root,
        {
            f"src/pkg/part{p}/m{n}.py": function(
                f"f{n}", f"Do thing {n} in part {p}.", f"    a = {p}\n    b = {n}\n    return a + b\n"
            )
            for p in range(packages)
            for n in range(each)
        },
    )


def hashes(tasks: Tasks) -> list[str]:
    assert tasks.classification is not None
    assert tasks.clustering is not None
    return [content_hash(d) for d in (tasks.search, tasks.classification, tasks.clustering)]


def test_same_tree_elsewhere_gives_the_same_data_and_a_changed_byte_another(tmp_path: Path) -> None:
    first = repository(tmp_path / "one")
    second = tmp_path / "far" / "two"
    shutil.copytree(first, second)
    (second / "README.md").write_text("not Python")
    before = hashes(build(first))
    assert hashes(build(second)) == before
    path = second / "src/pkg/part0/m0.py"
    path.write_text(path.read_text().replace("thing 0", "thinG 0"))
    after = hashes(build(second))
    assert all(a != b for a, b in zip(after, before, strict=True))
    assert hashes(build(first)) == before


def test_order_of_the_directory_listing_is_irrelevant(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = repository(tmp_path)
    expected = extract(root)
    walk = os.walk

    def backwards(top: Path, **how: object):  # type: ignore[no-untyped-def]
        for folder, names, files in walk(top, **how):
            names.sort(reverse=True)
            yield folder, names, sorted(files, reverse=True)

    monkeypatch.setattr(os, "walk", backwards)
    assert extract(root) == expected
    assert len(expected) == 6 * 24


def test_code_search_pairs_each_docstring_with_its_function() -> None:
    functions = [made("m", n) for n in range(40)]
    data = _code_search(functions, limit=15, corpus=30)
    assert (len(data.queries), len(data.documents)) == (15, 30)
    codes = {d.id: d.text for d in data.documents}
    source = {f.docstring: f.code for f in functions}
    for query in data.queries:
        (answer,) = data.qrels[query.id]
        assert data.qrels[query.id][answer] == 1
        assert codes[answer] == source[query.text]
    assert {d.title for d in data.documents} == {""}
    assert not {q.id for q in data.queries} & set(codes)


def test_code_search_sample_does_not_depend_on_the_order_and_grows_by_adding() -> None:
    functions = [made("m", n) for n in range(40)]
    small = _code_search(functions, limit=10, corpus=12)
    assert _code_search(functions[::-1], limit=10, corpus=12) == small
    large = _code_search(functions, limit=20, corpus=24)
    assert large.queries[:10] == small.queries
    assert large.documents[:12] == small.documents
    assert [q.id for q in large.queries] != sorted(q.id for q in large.queries)


def test_code_search_leaves_out_long_functions() -> None:
    long = _Function(name="long", module="m", docstring="A long one indeed.", code="x" * 1501)
    fits = _Function(name="fits", module="m", docstring="Just fits in here.", code="x" * 1500)
    data = _code_search([made("m", n) for n in range(10)] + [long, fits])
    ids = {d.id for d in data.documents}
    assert "m:fits" in ids
    assert "m:long" not in ids


def test_code_search_needs_ten_pairs() -> None:
    assert len(_code_search([made("m", n) for n in range(10)]).queries) == 10
    with pytest.raises(DataError, match=r"^9 documented functions were found, 9 of them short enough"):
        _code_search([made("m", n) for n in range(9)])


def test_building_from_too_little_says_what_was_found(tmp_path: Path) -> None:
    write(tmp_path, {"a.py": function("f", "Add two numbers."), "b.py": "def ("})
    with pytest.raises(DataError) as caught:
        build(tmp_path)
    assert caught.value.message == (
        f"{tmp_path}: 1 documented functions were found, 1 of them short enough to search (up to 1500 "
        "characters); code search needs at least 10. 2 Python files were read. "
        "1 of 2 files: cannot be parsed."
    )
    assert "docstring of three words" in (caught.value.hint or "")


def test_a_repository_without_packages_gives_code_search_alone(tmp_path: Path) -> None:
    tasks = build(repository(tmp_path, packages=1))
    assert len(tasks.search.queries) == 24
    assert (tasks.classification, tasks.clustering) == (None, None)
    assert tasks.notes == (
        "No classification and no clustering: of the packages and modules, 1 have at least 20 docstrings; "
        "two are needed.",
    )


def test_labels_of_a_repository_are_its_subpackages(tmp_path: Path) -> None:
    tasks = build(repository(tmp_path))
    assert tasks.classification is not None
    assert tasks.clustering is not None
    labels = {f"src.pkg.part{n}" for n in range(6)}
    assert {row.label for row in tasks.classification.test} == labels
    assert {row.label for row in tasks.clustering.rows} == labels
    assert tasks.notes == ()


def test_classification_splits_each_label_without_overlap() -> None:
    functions = [made("big", n) for n in range(90)] + [made("small", n) for n in range(20)]
    functions += [made("rare", n) for n in range(19)]
    data = _classification(_docstring_topics(functions))
    assert Counter(r.label for r in data.train) == {"big": 16, "small": 10}
    assert Counter(r.label for r in data.test) == {"big": 50, "small": 10}
    assert not {r.text for r in data.train} & {r.text for r in data.test}
    for row in (*data.train, *data.test):
        assert row.text.endswith(f"of {row.label}.")
    assert _classification(_docstring_topics(functions[::-1])) == data


def test_clustering_caps_each_label_and_mixes_them() -> None:
    functions = [made("big", n) for n in range(90)] + [made("small", n) for n in range(20)]
    data = _clustering(_docstring_topics(functions))
    labels = [r.label for r in data.rows]
    assert Counter(labels) == {"big": 50, "small": 20}
    assert labels not in (sorted(labels), sorted(labels, reverse=True))


def test_at_most_the_twenty_largest_labels_are_used() -> None:
    functions = [made(f"m{label:02}", n) for label in range(25) for n in range(20 + label)]
    labels = {r.label for r in _clustering(_docstring_topics(functions)).rows}
    assert labels == {f"m{label:02}" for label in range(5, 25)}


def test_labels_need_two_packages() -> None:
    with pytest.raises(DataError, match="1 have at least 20 docstrings; two are needed"):
        _docstring_topics([made("m", n) for n in range(50)])
    with pytest.raises(DataError, match="0 have at least 60 docstrings; two are needed"):
        _docstring_topics([made("m", n) for n in range(50)], at_least=60)


@pytest.fixture(scope="module")
def stdlib() -> Tasks:
    return build(_stdlib_root())


def test_standard_library_is_the_running_one() -> None:
    assert (_stdlib_root() / "ast.py").samefile(ast.__file__)
    assert stdlib_revision().startswith(f"python-{sys.version_info.major}.{sys.version_info.minor}.")


@pytest.mark.slow
def test_standard_library_gives_all_three_tasks_at_a_size_for_a_quick_run(stdlib: Tasks) -> None:
    assert stdlib.classification is not None
    assert stdlib.clustering is not None
    sizes = [size(d) for d in (stdlib.search, stdlib.classification, stdlib.clustering)]
    texts, characters = sum(s.texts or 0 for s in sizes), sum(s.characters or 0 for s in sizes)
    print(f"{texts} texts, {characters} characters")
    assert 3000 <= texts <= 5000
    assert characters <= 850_000
    assert len(stdlib.search.queries) == 1000
    assert len({row.label for row in stdlib.classification.train}) == 20


@pytest.mark.slow
def test_no_document_of_the_standard_library_holds_its_query(stdlib: Tasks) -> None:
    codes = {d.id: " ".join(d.text.split()).casefold() for d in stdlib.search.documents}
    for query in stdlib.search.queries:
        (answer,) = stdlib.search.qrels[query.id]
        assert query.text.casefold() not in codes[answer]


@pytest.mark.slow
def test_every_document_of_the_standard_library_is_one_function_without_docstring(stdlib: Tasks) -> None:
    for document in stdlib.search.documents:
        tree = ast.parse(document.text)
        (node,) = tree.body
        assert isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        assert node.name == document.id.rpartition(":")[2].rpartition(".")[2]
        for inner in ast.walk(node):
            if isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                assert ast.get_docstring(inner) is None


@pytest.mark.slow
def test_training_docstrings_of_the_standard_library_are_no_test_docstrings(stdlib: Tasks) -> None:
    assert stdlib.classification is not None
    train = {row.text.casefold() for row in stdlib.classification.train}
    assert not train & {row.text.casefold() for row in stdlib.classification.test}
