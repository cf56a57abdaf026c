"""Tasks from the functions of one language: code search, docstrings by package, and functions by commit.

Samples are drawn by the hash of each docstring, so the same source gives the same tasks on every machine, and
two versions of one code base give samples that mostly agree.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from suites._code.history import Commit, History
from suites._code.selection import (
    Function,
    drop_duplicates,
    extract_summary,
    normalize_text,
    order_code,
    order_docstrings,
    select_distinct,
)
from suites._code.source import LANGUAGES, filter_commit_paths
from suites._content import Clusters, Content, Document, Labelled, Query, Retrieval, Row

MIN_PAIRS = 10
QUERIES, PLAIN_CORPUS, CORPUS = 1000, 1250, 3000
"""Most queries, and most documents of the plain form and of the others."""

MAX_CODE = 1500
"""Most characters of a searched function: about what an encoder of 512 tokens sees whole."""


@dataclass(frozen=True, kw_only=True)
class Tasks:
    """The tasks that source gives, by name, with notes on what they hold and which are missing."""

    contents: Mapping[str, Content] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def build_function_tasks(language: str, functions: Iterable[Function]) -> Tasks:
    """The tasks that the functions of one language are enough for."""
    every = tuple(functions)
    documented = tuple(drop_duplicates(f for f in every if f.docstring))
    short = sum(_is_short(f) for f in documented)
    name, suffix = LANGUAGES[language].title, LANGUAGES[language].suffix
    if short < MIN_PAIRS:
        return Tasks(
            notes=(
                f"{name}: {len(documented)} documented functions were found, {short} of them short enough to "
                f"search (up to {MAX_CODE} characters); code search needs at least {MIN_PAIRS}.",
            )
        )
    search, counts = _build_hidden_search(documented, [f for f in every if not f.docstring])
    notes = [f"{name}: code search has {counts}"]
    contents: dict[str, Content] = {
        f"CodeSearch{suffix}": search,
        f"CodeSearch{suffix}.named": _build_plain_search(documented),
    }
    topics = _select_docstring_topics(documented)
    texts = sum(len(group) for group in _split_topics(topics)[1].values())
    if texts >= MIN_TEXTS:
        contents[f"DocstringClassification{suffix}"] = _build_classification(topics)
        contents[f"DocstringClustering{suffix}"] = _build_clustering(topics)
    else:
        notes.append(
            f"{name}: no classification and no clustering: of packages with at least {MIN_DOCSTRINGS} "
            f"docstrings there are {len(topics)}, with {texts} docstrings to test; {MIN_TEXTS} are needed."
        )
    return Tasks(contents=contents, notes=tuple(notes))


def _build_plain_search(documented: Sequence[Function]) -> Retrieval:
    """The task of finding the function of a docstring among documented functions, names included.

    Documents are functions from their decorators and signature on, as CodeSearchNet has them: a name that
    repeats the docstring's words makes a query easier. Functions of more than 1,500 characters are left out.
    1,250 functions are documents, the first 1,000 of them queries as well.
    """
    kept = order_docstrings(f for f in documented if _is_short(f))[:PLAIN_CORPUS]
    return _build_search_data(kept, kept[:QUERIES], lambda f: f.code)


def _build_hidden_search(documented: Sequence[Function], bare: Sequence[Function]) -> tuple[Retrieval, str]:
    """The same among all functions, each without its own name, and its counts in words.

    The queries are those of the plain form, but for functions that are nearly the same as an earlier one.
    """
    ordered = order_docstrings(f for f in documented if _is_short(f))
    # Undocumented copies of a documented function would be right answers that no judgement names.
    seen_marks = {mark for function in documented for mark in function.marks}
    new = [f for f in drop_duplicates(bare) if not f.marks & seen_marks]
    others = order_code(f for f in (*ordered[QUERIES:], *new) if _is_short(f))
    pool = [*ordered[:QUERIES], *others]
    single, twins = select_distinct(pool, CORPUS)
    kept, query_functions = order_code(single), [f for f in ordered[:QUERIES] if f.id not in twins]
    left_out = {
        f"of more than {MAX_CODE:,} characters": len(documented) + len(new) - len(pool),
        "nearly the same as another": len(twins),
        f"beyond {CORPUS:,}": len(pool) - len(twins) - len(kept),
    }
    reasons = ", ".join(f"{count:,} {what}" for what, count in left_out.items() if count)
    distractors, bare_count = len(kept) - len(query_functions), sum(not f.docstring for f in kept)
    counts = (
        f"{len(kept):,} functions, {len(query_functions):,} with a query and {distractors:,} as distractors "
        f"({bare_count:,} without documentation){'; left out: ' if reasons else ''}{reasons}."
    )
    return _build_search_data(kept, query_functions, lambda f: f.hidden), counts


def _is_short(function: Function) -> bool:
    return len(function.code) <= MAX_CODE


def _build_search_data(
    kept: Sequence[Function], asked: Sequence[Function], text: Callable[[Function], str]
) -> Retrieval:
    return Retrieval(
        documents=tuple(Document(id=f.id, text=text(f)) for f in kept),
        queries=tuple(Query(id=_format_docstring_id(f), text=f.docstring) for f in asked),
        qrels={_format_docstring_id(f): {f.id: 1} for f in asked},
    )


def _format_docstring_id(function: Function) -> str:
    """The id of a function's docstring; some evaluators drop a document with the same id as the query."""
    return f"{function.id}.__doc__"


MIN_DOCSTRINGS, MAX_LABELS, ENOUGH_LABELS = 20, 20, 8
TRAIN, TEST, GROUP = 16, 50, 50
"""Most docstrings of a label for training, for testing, and for clustering."""

MIN_TEXTS = 400
"""Fewest docstrings to classify: the 95 % interval of an accuracy is then at most ± 4.9 points."""

_Topics = Mapping[str, Sequence[Function]]
"""The documented functions of each package, in the order of their docstrings' hashes."""


def _select_docstring_topics(functions: Sequence[Function], *, at_least: int = MIN_DOCSTRINGS) -> _Topics:
    """The 20 largest packages, at the first level of nesting with eight, else at that with most of them.

    The standard library has many top-level packages, a repository often only its own: then its subpackages
    are the labels.
    """
    best: _Topics = {}
    for depth in range(1, 1 + max((len(f.package) for f in functions), default=0)):
        groups: defaultdict[str, list[Function]] = defaultdict(list)
        for function in functions:
            groups[".".join(function.package[:depth])].append(function)
        large = {label: group for label, group in groups.items() if len(group) >= at_least}
        best = large if len(large) > len(best) else best
        if len(best) >= ENOUGH_LABELS:
            break
    largest = sorted(best, key=lambda label: (-len(best[label]), label))[:MAX_LABELS]
    return {label: order_docstrings(best[label]) for label in largest}


def _split_topics(topics: _Topics) -> tuple[_Topics, _Topics]:
    """The docstrings to learn from, up to 16 and at most half of each package, and up to 50 to test."""
    train_topics = {label: group[: min(TRAIN, len(group) // 2)] for label, group in topics.items()}
    return train_topics, {label: group[len(train_topics[label]) :][:TEST] for label, group in topics.items()}


def _build_classification(topics: _Topics) -> Labelled:
    """Telling a docstring's package."""
    train_topics, test_topics = _split_topics(topics)
    return Labelled(train=tuple(_iter_topic_rows(train_topics)), test=tuple(_iter_topic_rows(test_topics)))


def _build_clustering(topics: _Topics) -> Clusters:
    """The task of grouping docstrings by package, up to 50 of each."""
    return Clusters(rows=tuple(_iter_topic_rows({label: group[:GROUP] for label, group in topics.items()})))


def _iter_topic_rows(groups: _Topics) -> Iterator[Row]:
    labels = {f.id: label for label, group in groups.items() for f in group}
    for function in order_docstrings([f for group in groups.values() for f in group]):
        yield Row(id=_format_docstring_id(function), text=function.docstring, label=labels[function.id])


MIN_COMMITS, MAX_COMMITS = 30, 500
MAX_CHANGED = 10
"""Most functions that a commit changes; more are a sweep through the code, which no subject describes."""

_ROUTINE = r"(?i)(merge|revert|bump|release|version|prepare|upgrade|update \S+ to|fixup!|squash!)\b"
_CONVENTIONAL = (
    r"(?i)^(build|chore|ci|docs?|feat|fix|lint|perf|refactor|revert|style|tests?)(\([^)]*\))?!?:\s+"
)
_NUMBER = r"(?i)\s*\(?(#|gh-)\d+\)?\.?$"
"""Patterns that are compiled when they are first used."""

Reader = Callable[[bytes, str], Iterable[Function]]
"""The functions of a file's content and path; none of a file that cannot be read."""


def build_commit_tasks(language: str, history: History, read: Reader) -> Tasks:
    """The task of finding the functions that a commit changed, from its subject.

    Documents are the functions of one language before the newest commits, queries the subjects of those of
    them that changed one to ten functions, one at least of the documents. Near-duplicates stand for each
    other: one of them is a document.

    Args:
        language: The name of the language.
        history: The files before the newest commits, and these commits.
        read: Gives the functions of a file's content and path.
    """
    paths = filter_commit_paths(history.files, [language]).get(language, ())
    files = _collect_functions({(path, history.files[path]) for path in paths}, history, read)
    every = [f for group in files.values() for f in group]
    functions = order_code({f.id: f for f in every if _is_short(f)}.values())
    before = _Before(
        paths=frozenset(paths), ids=frozenset(f.id for f in functions), counts=Counter(f.first for f in every)
    )
    changed_ids = _find_changed_functions(history, before, read)
    title, suffix = LANGUAGES[language].title, LANGUAGES[language].suffix
    if len(changed_ids) < MIN_COMMITS:
        note = (
            f"{title}: no search by commits: of the newest {len(history.commits):,}, {len(changed_ids)} have "
            f"a subject of three words and change up to {MAX_CHANGED} functions; {MIN_COMMITS} are needed."
        )
        return Tasks(notes=(note,))
    target_ids = {id_ for ids in changed_ids.values() for id_ in ids}
    # Targets come first, so that neither the limit nor a near-duplicate takes one away.
    kept, twins = select_distinct(
        sorted(functions, key=lambda f: f.id not in target_ids), max(CORPUS, len(target_ids))
    )
    content = Retrieval(
        documents=tuple(Document(id=f.id, text=f.code) for f in order_code(kept)),
        queries=tuple(Query(id=commit.id, text=_clean_commit_subject(commit)) for commit in changed_ids),
        qrels={
            commit.id: dict.fromkeys(sorted({twins.get(id_, id_) for id_ in ids}), 1)
            for commit, ids in changed_ids.items()
        },
    )
    note = (
        f"{title}: commit search has {len(changed_ids):,} of the newest {len(history.commits):,} commits as "
        f"queries, {len(kept):,} functions from before them; left out: {len(twins):,} nearly the same "
        "as another."
    )
    return Tasks(contents={f"CommitSearch{suffix}": content}, notes=(note,))


_Places = set[tuple[str, str]]
"""Paths and contents of files."""


def _collect_functions(
    places: _Places, history: History, read: Reader
) -> dict[tuple[str, str], list[Function]]:
    """The functions of files of a history."""
    functions: dict[tuple[str, str], list[Function]] = {}
    blob_paths: defaultdict[str, list[str]] = defaultdict(list)
    for path, blob in sorted(places):
        blob_paths[blob].append(path)
    # Each content is read once, though several paths or commits may have it.
    for blob, data in history.read_blobs(blob_paths):
        functions.update({(path, blob): [*read(data, path)] for path in blob_paths[blob]})
    return dict(sorted(functions.items()))


@dataclass(frozen=True, kw_only=True)
class _Before:
    """The functions before the newest commits.

    Attributes:
        paths: The files.
        ids: The functions that are short enough.
        counts: How many functions of a file have a name.
    """

    paths: frozenset[str]
    ids: frozenset[str]
    counts: Mapping[str, int]


def _find_changed_functions(history: History, before: _Before, read: Reader) -> dict[Commit, set[str]]:
    """The functions that each commit with a query changed, newest commits first."""
    changes = dict(_iter_commit_changes(history, before.paths))
    places = {(path, blob) for files in changes.values() for path, *both in files for blob in both}
    functions = {
        # Python's hash differs between processes, and is compared within this one only.
        place: {f.id: (hash(normalize_text(f.code)), f.first) for f in found}
        for place, found in _collect_functions(places, history, read).items()
    }
    changed_ids: dict[Commit, set[str]] = {}
    for commit, files in changes.items():
        pairs = [(functions[path, old], functions[path, new]) for path, old, new in files]
        ids = {id_ for old, new in pairs for id_ in _iter_changed_ids(old, new, before.counts)}
        present_ids = ids & before.ids
        # All changed functions count for the bound, those too long to be documents as well.
        if present_ids and len(ids) <= MAX_CHANGED and len(changed_ids) < MAX_COMMITS:
            changed_ids[commit] = present_ids
    return changed_ids


def _iter_commit_changes(
    history: History, paths: frozenset[str]
) -> Iterator[tuple[Commit, set[tuple[str, str, str]]]]:
    """Commits with a subject of their own, and path, content before and after of the files they change."""
    subjects = {""}
    for commit in history.commits:
        # Of commits with one subject only the newest is a query: one text cannot have two sets of answers.
        words = " ".join(re.findall(r"\w+", _clean_commit_subject(commit).casefold()))
        files = {(path, *commit.files[path]) for path in paths & commit.files.keys()}
        if words not in subjects and 0 < len(files) <= MAX_CHANGED:
            subjects.add(words)
            yield commit, files


_Codes = Mapping[str, tuple[int, str]]
"""By a function's id, the hash of its code and the id of the first function of its name."""


def _iter_changed_ids(old: _Codes, new: _Codes, counts: Mapping[str, int]) -> Iterator[str]:
    """The functions whose code differs; of a name that not always as many functions have, none is told."""
    before, after = (Counter(first for _, first in codes.values()) for codes in (old, new))
    for id_ in old.keys() & new.keys():
        (code, first), (other, _) = old[id_], new[id_]
        if code != other and counts[first] == before[first] == after[first]:
            yield id_


def _clean_commit_subject(commit: Commit) -> str:
    """A commit's subject without the kind of change and a number at its end, "" if it says too little.

    >>> _clean_commit_subject(Commit(id="1", subject="fix(app): keep the order of routes (#12)", files={}))
    'keep the order of routes'
    """
    text = re.sub(_NUMBER, "", re.sub(_CONVENTIONAL, "", commit.subject))
    routine = re.match(_ROUTINE, commit.subject) or re.match(_ROUTINE, text)
    return "" if routine else extract_summary(text) or ""
