"""The tasks made of functions: what is searched for among what, near-duplicates, labels, and commits."""

from __future__ import annotations

import ast
import io
import random
import re
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from harness.core.types import SuiteOptions
from suites._code import tasks
from suites._code.parsing import format_python_version
from suites._code.selection import Function, select_distinct
from suites._code.tasks import CORPUS, Tasks, build_function_tasks
from suites._content import Clusters, Content, Labelled, Retrieval, hash_content, measure_content
from suites.stdlib import SUITE

WORDS = ["alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta", "iota", "kappa", "mu", "nu"]


def made(label: str, number: int, *, docstring: str | None = None) -> Function:
    """A function whose code shares next to nothing with that of another number or label."""
    draw = random.Random(f"{label} {number}")
    lines = [f"    {draw.choice(WORDS)}_{draw.randrange(10**6)} = {draw.random()}" for _ in range(6)]
    return Function(
        name=f"f{number}",
        module=label,
        docstring=f"Do thing number {number} of {label}." if docstring is None else docstring,
        code="\n".join([f"def f{number}(x):", *lines, f"    return f{number}"]),
    )


def plain_search(functions: Sequence[Function]) -> Any:
    return build_function_tasks("python", functions).contents["CodeSearch.named"]


def hidden_search(functions: Sequence[Function]) -> tuple[Any, str]:
    """The task, and the words on its functions."""
    found = build_function_tasks("python", functions)
    return found.contents["CodeSearch"], found.notes[0].removeprefix("Python: code search has ")


def topic_tasks(functions: Sequence[Function]) -> tuple[Any, Any]:
    """The classification and the clustering, however few texts there are."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tasks, "MIN_TEXTS", 1)
        found = build_function_tasks("python", functions).contents
    return found["DocstringClassification"], found["DocstringClustering"]


def classification(functions: Sequence[Function]) -> Any:
    return topic_tasks(functions)[0]


def clustering(functions: Sequence[Function]) -> Any:
    return topic_tasks(functions)[1]


def test_plain_search_pairs_each_docstring_with_its_function(monkeypatch: pytest.MonkeyPatch) -> None:
    limits(monkeypatch, queries=15, plain=30)
    functions = [made("m", n) for n in range(40)]
    data = plain_search(functions)
    assert (len(data.queries), len(data.documents)) == (15, 30)
    codes = {d.id: d.text for d in data.documents}
    source = {f.docstring: f.code for f in functions}
    for query in data.queries:
        (answer,) = data.qrels[query.id]
        assert data.qrels[query.id][answer] == 1
        assert codes[answer] == source[query.text]
    assert {d.title for d in data.documents} == {""}
    assert not {q.id for q in data.queries} & set(codes)


def limits(
    monkeypatch: pytest.MonkeyPatch, *, queries: int = 1000, plain: int = 1250, corpus: int = CORPUS
) -> None:
    for name, value in {"QUERIES": queries, "PLAIN_CORPUS": plain, "CORPUS": corpus}.items():
        monkeypatch.setattr(f"suites._code.tasks.{name}", value)


def test_samples_do_not_depend_on_the_order_and_grow_by_adding(monkeypatch: pytest.MonkeyPatch) -> None:
    functions = [made("m", n) for n in range(40)]
    limits(monkeypatch, queries=10, plain=12, corpus=15)
    small, hidden = plain_search(functions), hidden_search(functions)[0]
    assert plain_search(functions[::-1]) == small
    assert hidden_search(functions[::-1])[0] == hidden
    limits(monkeypatch, queries=20, plain=24, corpus=30)
    large = plain_search(functions)
    assert large.queries[:10] == small.queries
    assert large.documents[:12] == small.documents
    assert [q.id for q in large.queries] != sorted(q.id for q in large.queries)
    assert {d.id for d in hidden.documents} <= {d.id for d in hidden_search(functions)[0].documents}


def test_functions_without_documentation_are_distractors_and_no_name_is_told() -> None:
    documented, bare = [made("m", n) for n in range(10)], [made("n", n, docstring="") for n in range(5)]
    data, said = hidden_search([*documented, *bare])
    assert {d.id for d in data.documents} == {f.id for f in (*documented, *bare)}
    assert {q.text for q in data.queries} == {f.docstring for f in documented}
    assert {q: [*grades] for q, grades in data.qrels.items()} == {
        f"{f.id}.__doc__": [f.id] for f in documented
    }
    source = {f.id: f for f in (*documented, *bare)}
    for document in data.documents:
        function = source[document.id]
        assert document.text == function.code.replace(function.name, "Func")
    assert [d.id for d in data.documents] != [q.id.removesuffix(".__doc__") for q in data.queries]
    assert said == "15 functions, 10 with a query and 5 as distractors (5 without documentation)."


def test_what_is_left_out_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    limits(monkeypatch, corpus=12)
    documented = [made("m", n) for n in range(10)]
    same = [Function(name=f"f{n}", module="n", docstring="", code=documented[n].code) for n in range(2)]
    near = [
        Function(name="f3", module="n", docstring="", code=documented[3].code + "\n    # more"),
        Function(name="f4", module="n", docstring="Nearly the fourth one.", code=documented[4].code + " + 1"),
    ]
    long = Function(name="long", module="n", docstring="", code="x" * 1501)
    bare = [made("o", n, docstring="") for n in range(5)]
    data, said = hidden_search([*documented, near[1], *same, near[0], long, *bare])
    assert len(data.queries) == 10
    assert not {f.id for f in (*same, near[0], long)} & {d.id for d in data.documents}
    assert said == (
        "12 functions, 10 with a query and 2 as distractors (2 without documentation); left out: 1 of more "
        "than 1,500 characters, 2 nearly the same as another, 3 beyond 12."
    )


def shingles(code: str) -> set[tuple[str, ...]]:
    tokens = re.findall(r"\w+|[^\w\s]", code)
    return {tuple(tokens[at : at + 3]) for at in range(len(tokens) - 2)}


def test_near_duplicates_are_those_of_a_comparison_of_all_with_all() -> None:
    draw = random.Random(7)
    codes = [made("m", n).code for n in range(40)]
    for _ in range(160):
        tokens = draw.choice(codes).split(" ")
        for _ in range(draw.randrange(4)):
            tokens[draw.randrange(len(tokens))] = draw.choice(WORDS)
        codes.append(" ".join(tokens))
    functions = [Function(name=f"x{n}", module="m", docstring="", code=code) for n, code in enumerate(codes)]
    sets = {f.id: shingles(f.code) for f in functions}
    kept: list[str] = []
    expected: dict[str, str] = {}
    for function in functions:
        mine = sets[function.id]
        twins = [o for o in kept if len(mine & sets[o]) >= 0.8 * len(mine | sets[o])]
        kept += [] if twins else [function.id]
        expected |= {function.id: twins[0]} if twins else {}
    assert 50 < len(expected) < 150
    stay = [f for f in functions if f.id in kept]
    assert select_distinct(functions, 1000) == (stay, expected)
    assert select_distinct(functions, 30)[0] == stay[:30]


def test_a_sync_and_an_async_twin_are_near_duplicates_and_two_getters_are_not() -> None:
    body = "\n".join(f"    {word} = self.{word}(request, {n})" for n, word in enumerate(WORDS))
    pair = [f"def run(self, request):\n{body}", f"async def arun(self, request):\n{body}"]
    others = [
        "def width(self):\n    a = 1\n    return self.x",
        "def height(self):\n    a = 2\n    return self.y",
    ]
    functions = [
        Function(name=re.findall(r"def (\w+)", code)[0], module="m", docstring="", code=code)
        for code in (*pair, *others)
    ]
    assert select_distinct(functions, 9)[1] == {"m:arun": "m:run"}


def test_long_functions_are_left_out() -> None:
    long = Function(name="long", module="m", docstring="A long one indeed.", code="x" * 1501)
    fits = Function(name="fits", module="m", docstring="Just fits in here.", code="x" * 1500)
    ids = {d.id for d in plain_search([made("m", n) for n in range(10)] + [long, fits]).documents}
    assert "m:fits" in ids
    assert "m:long" not in ids


def test_code_search_needs_ten_pairs() -> None:
    assert [*build_function_tasks("python", [made("m", n) for n in range(10)]).contents] == [
        "CodeSearch",
        "CodeSearch.named",
    ]
    found = build_function_tasks("python", [made("m", n) for n in range(9)])
    assert found == Tasks(
        notes=(
            "Python: 9 documented functions were found, 9 of them short enough to search (up to 1500 "
            "characters); code search needs at least 10.",
        )
    )


def test_labels_are_offered_from_400_docstrings_on() -> None:
    """Eight packages of 66: 16 to learn from, 50 to test."""
    functions = [made(f"p{label}", n) for label in range(8) for n in range(66)]
    enough = build_function_tasks("python", functions)
    assert [*enough.contents] == [
        "CodeSearch",
        "CodeSearch.named",
        "DocstringClassification",
        "DocstringClustering",
    ]
    few = build_function_tasks("python", functions[1:])
    assert [*few.contents] == ["CodeSearch", "CodeSearch.named"]
    assert few.notes[1] == (
        "Python: no classification and no clustering: of packages with at least 20 docstrings there are 8, "
        "with 399 docstrings to test; 400 are needed."
    )


def test_labels_of_a_repository_are_its_subpackages() -> None:
    functions = [made(f"src.pkg.part{label}.m{n}", n) for label in range(8) for n in range(24)]
    topics = {f"src.pkg.part{n}" for n in range(8)}
    assert {row.label for row in classification(functions).test} == topics
    assert {row.label for row in clustering(functions).rows} == topics


def test_classification_splits_each_label_without_overlap() -> None:
    functions = [made("big", n) for n in range(90)] + [made("small", n) for n in range(20)]
    functions += [made("rare", n) for n in range(19)]
    data = classification(functions)
    assert Counter(r.label for r in data.train) == {"big": 16, "small": 10}
    assert Counter(r.label for r in data.test) == {"big": 50, "small": 10}
    assert not {r.text for r in data.train} & {r.text for r in data.test}
    for row in (*data.train, *data.test):
        assert row.text.endswith(f"of {row.label}.")
    assert classification(functions[::-1]) == data


def test_clustering_caps_each_label_and_mixes_them() -> None:
    functions = [made("big", n) for n in range(90)] + [made("small", n) for n in range(20)]
    labels = [r.label for r in clustering(functions).rows]
    assert Counter(labels) == {"big": 50, "small": 20}
    assert labels not in (sorted(labels), sorted(labels, reverse=True))


def test_at_most_the_twenty_largest_labels_are_used() -> None:
    functions = [made(f"m{label:02}", n) for label in range(25) for n in range(20 + label)]
    labels = {r.label for r in clustering(functions).rows}
    assert labels == {f"m{label:02}" for label in range(5, 25)}


@pytest.fixture(scope="module")
def stdlib(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Content]:
    cache = tmp_path_factory.mktemp("cache")
    sources: list[Any] = [task.source for task in SUITE.open("", SuiteOptions(cache=cache)).tasks]
    return {one.loader.name: one.loader.content() for one in sources}


def searches(stdlib: dict[str, Content]) -> Sequence[Retrieval]:
    hidden, plain = stdlib["CodeSearch"], stdlib["CodeSearch.named"]
    assert isinstance(hidden, Retrieval)
    assert isinstance(plain, Retrieval)
    return hidden, plain


def test_standard_library_is_the_running_one() -> None:
    source: Any = SUITE.open("", SuiteOptions()).tasks[0].source
    assert (source.loader.folder.root / "ast.py").samefile(ast.__file__)
    assert format_python_version().startswith(f"python-{sys.version_info.major}.{sys.version_info.minor}.")


def test_standard_library_gives_every_task_at_a_size_for_a_quick_run(stdlib: dict[str, Content]) -> None:
    hidden, plain = searches(stdlib)
    labelled, clusters = stdlib["DocstringClassification"], stdlib["DocstringClustering"]
    assert isinstance(labelled, Labelled)
    assert isinstance(clusters, Clusters)
    sizes = {name: measure_content(content) for name, content in stdlib.items()}
    assert sum(s.texts or 0 for s in sizes.values()) <= 10_000
    assert sum(s.characters or 0 for s in sizes.values()) <= 2_500_000
    assert (len(plain.queries), len(plain.documents), len(hidden.documents)) == (1000, 1250, 3000)
    assert len({row.label for row in labelled.train}) == 20


@pytest.mark.skipif(format_python_version() != "python-3.11.7", reason="another Python has another library")
def test_the_plain_form_and_the_labels_are_what_they_always_were(stdlib: dict[str, Content]) -> None:
    """The hashes of these data before there was another form."""
    assert {name: hash_content(content)[:16] for name, content in stdlib.items() if name != "CodeSearch"} == {
        "CodeSearch.named": "d1cb89e1d5c22359",
        "DocstringClassification": "ec8f4d8e13349bc5",
        "DocstringClustering": "dafc4b08aa046c8d",
    }


def test_queries_of_both_forms_are_the_same_but_for_near_duplicates(stdlib: dict[str, Content]) -> None:
    hidden, plain = searches(stdlib)
    assert {q.id: q.text for q in hidden.queries}.items() <= {q.id: q.text for q in plain.queries}.items()
    assert 950 <= len(hidden.queries) < 1000


def test_no_document_of_the_standard_library_holds_its_query(stdlib: dict[str, Content]) -> None:
    for data in searches(stdlib):
        codes = {d.id: " ".join(d.text.split()).casefold() for d in data.documents}
        for query in data.queries:
            (answer,) = data.qrels[query.id]
            assert query.text.casefold() not in codes[answer]


def test_every_document_of_the_standard_library_is_one_function_without_docstring(
    stdlib: dict[str, Content],
) -> None:
    for data in searches(stdlib):
        for document in data.documents:
            tree = ast.parse(document.text)
            (node,) = tree.body
            assert isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            for inner in ast.walk(node):
                if isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                    assert ast.get_docstring(inner) is None


def test_no_hidden_document_has_a_token_of_its_own_name(stdlib: dict[str, Content]) -> None:
    hidden, plain = searches(stdlib)
    for data, expected in ((hidden, False), (plain, True)):
        told = [
            document.id.rpartition(":")[2].rpartition(".")[2] in names(document.text)
            for document in data.documents
        ]
        assert all(told) if expected else not any(told)


def names(code: str) -> Iterator[str]:
    tokens = tokenize.generate_tokens(io.StringIO(code).readline)
    return (token.string for token in tokens if token.type == tokenize.NAME)


def test_training_docstrings_of_the_standard_library_are_no_test_docstrings(
    stdlib: dict[str, Content],
) -> None:
    data = stdlib["DocstringClassification"]
    assert isinstance(data, Labelled)
    assert not {row.text.casefold() for row in data.train} & {row.text.casefold() for row in data.test}
