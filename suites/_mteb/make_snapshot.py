"""Write `snapshot.json` from the installed mteb: `python -m suites._mteb.make_snapshot [--check]`.

It also writes for the site, into leaderboard/data, the main revision and the size of every model
(main_revisions.csv), what models were trained on (training_tasks.json), and what tasks and benchmarks are
(descriptions.json).
A line has one task, benchmark or group of similar tasks, sorted by name, without fields at their defaults, so
that a new version of mteb gives a readable diff. `--check` writes nothing and fails where the file is out of
date.
"""

from __future__ import annotations

import ast
import csv
import inspect
import io
import itertools
import json
import math
import re
import sys
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mteb.abstasks.abstask import AbsTask
from mteb.benchmarks.benchmark import Benchmark

from suites._mteb.snapshot import PATH

COMMAND = "python -m suites._mteb.make_snapshot"
Amount = tuple[int, int]
"""The number of texts and of characters."""

Statistics = Mapping[str, Any]
"""mteb's counts for one subset of one split."""


def _render() -> str:
    """The content of the file for the installed mteb."""
    import mteb
    from mteb.get_tasks import _SIMILAR_TASKS, TASK_LIST

    tasks = {t.metadata.name: _build_task_row(t) for t in TASK_LIST if _is_text_task(t)}
    benchmarks = {b.name: _build_benchmark_row(b) for b in mteb.get_benchmarks()}
    similar = {
        first: others
        for first, *others in _group_similar_names(_SIMILAR_TASKS)
        if {first, *others} & tasks.keys()
    }
    head = f'"made_by": "{COMMAND}",\n"mteb_version": "{mteb.__version__}"'
    parts = [
        _format_section("tasks", tasks),
        _format_section("benchmarks", benchmarks),
        _format_section("similar", similar),
    ]
    return "{\n" + ",\n".join([head, *parts]) + "\n}\n"


def _is_text_task(task: type[AbsTask]) -> bool:
    return bool(task.metadata.modalities == ["text"])


def _group_similar_names(similar: Mapping[str, Sequence[str]]) -> list[list[str]]:
    """Groups of names that are similar, directly or through others; sorted.

    mteb follows the relation both ways and without end, so that each name is in one group only. A name need
    not be a text task, or a task at all: model cards hold such names too.
    """
    group = {name: {name} for name in {*similar, *itertools.chain(*similar.values())}}
    for name, other in ((name, other) for name, others in similar.items() for other in others):
        # Two groups become one set, which all their names then share.
        if group[name] is not group[other]:
            group[name] |= group[other]
            group |= dict.fromkeys(group[other], group[name])
    return sorted({id(names): sorted(names) for names in group.values()}.values())


def _format_section(name: str, rows: Mapping[str, Any]) -> str:
    lines = (f"{_dump_compact_json(key)}: {_dump_compact_json(rows[key])}" for key in sorted(rows))
    return f'"{name}": {{\n' + ",\n".join(lines) + "\n}"


def _dump_compact_json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _build_task_row(task: type[AbsTask]) -> dict[str, Any]:
    """The row of a task in the file, without its name."""
    meta = task.metadata
    members: list[AbsTask] = getattr(meta, "tasks", [])
    row = {
        "type": meta.type,
        "metric": meta.main_score,
        "class": _find_base_class(task).__name__,
        "path": "" if members else meta.dataset["path"],
        "revision": "" if members else meta.dataset["revision"],
        "splits": [] if meta.eval_splits == ["test"] else meta.eval_splits,
        **_describe_languages(task),
        "aggregate_of": [_use(member) for member in members],
        "superseded_by": meta.superseded_by,
        "roles": _has_roles(task) or any(_has_roles(type(member)) for member in members),
        "fixed_data": _has_fixed_data(task),
        "parallel": getattr(task, "parallel_subsets", False),
        "loader": "" if members else _detect_loader(task),
        "config": "" if members else meta.dataset.get("name", ""),
        "train": _train_split(task),
        **_detect_columns(task),
        "size": _count_split_sizes(task),
        "shared": _count_shared_documents(task),
    }
    return {key: value for key, value in row.items() if value}


def _find_base_class(task: type[AbsTask]) -> type[Any]:
    """The class of mteb that scores the task: its first base that is not a task itself."""
    # Tasks are classes in mteb.tasks; what they are scored by is in mteb.abstasks.
    return next(c for c in task.__mro__ if c.__module__.startswith("mteb.abstasks."))


def _detect_loader(task: type[AbsTask]) -> str:
    """The way in which the data is loaded, empty for a configuration of each subset.

    "parts" are the tables of a retrieval task, "coir" those of CodeSearchNet in CoIR, "merged" a table of all
    subsets, "columns" one with a column for each language, and "own" is code of the task's own.
    """
    from mteb.abstasks.retrieval import AbsTaskRetrieval

    if getattr(task, "parallel_subsets", False):
        return "columns"
    if _find_method_class(task, "load_data") not in ("AbsTask", "AbsTaskRetrieval", "AbsTaskReranking"):
        return "coir" if "_load_code_search_code_retrieval" in inspect.getsource(task.load_data) else "own"
    if "split" in task.metadata.dataset:
        return "own"
    if issubclass(task, AbsTaskRetrieval):
        return "own" if _find_method_class(task, "dataset_transform") != "AbsTask" else "parts"
    return "merged" if task.fast_loading else ""


def _find_method_class(task: type[AbsTask], method: str) -> str:
    """The class that defines a method, empty for a task's own."""
    home = next(c for c in task.__mro__ if method in c.__dict__)
    return home.__name__ if home.__module__.startswith("mteb.abstasks.") else ""


def _train_split(task: type[AbsTask]) -> str:
    """The split that a classifier is trained on, empty without one."""
    return "" if getattr(task, "is_cross_validation", False) else getattr(task, "train_split", "")


def _detect_columns(task: type[AbsTask]) -> dict[str, Any]:
    """The columns of `texts` and of other `values` that are read; none where its own code may read others.

    `lists` is whether a row holds several texts with their labels.
    """
    if getattr(task.metadata, "tasks", None) or _detect_loader(task) in ("own", "parts", "coir", "columns"):
        return {}
    texts, values = _list_final_columns(task)
    if _find_method_class(task, "dataset_transform") == "AbsTask":
        return {
            "texts": texts,
            "values": values,
            "lists": _find_base_class(task).__name__ == "AbsTaskClusteringLegacy",
        }
    changes = _Changes.parse_transform(task.dataset_transform, {*texts, *values, *task.metadata.eval_splits})
    # A split that the task itself cuts off is not in the data, so that its columns are not known there.
    if changes is None or (changes.split and _train_split(task)):
        return {}
    # The data has the names from before the task's own renaming.
    raw = changes.renamed
    texts, values = ([raw.get(name, name) for name in names] for names in (texts, values))
    further = {*changes.further, *raw.values()} - {*texts, *values}
    lists = changes.lists or _find_base_class(task).__name__ == "AbsTaskClusteringLegacy"
    return {"texts": texts, "values": [*values, *sorted(further)], "lists": lists}


def _list_final_columns(task: Any) -> tuple[list[str], list[str]]:
    """The columns of texts, and of labels or scores, after the task's own changes to its data."""
    kind = task.metadata.type
    if hasattr(task, "column_names"):
        return [*task.column_names], ["score"]
    if kind == "Summarization":
        names = ("text", "human_summaries", "machine_summaries")
        return [getattr(task, f"{n}_column_name") for n in names], [task.relevancy_column_name]
    if kind == "BitextMining":
        return ["sentence1", "sentence2"], []
    sides = ("input1_column_name", "input2_column_name")
    texts = [getattr(task, name) for name in sides if hasattr(task, name)]
    return texts or [task.input_column_name], [task.label_column_name]


@dataclass(frozen=True, kw_only=True)
class _Changes:
    """The columns that a task's own code renames, raw name by new name, and others that it needs.

    `split` is whether it makes splits of its own, `lists` whether it takes lists apart.
    """

    renamed: Mapping[str, str]
    further: frozenset[str]
    split: bool
    lists: bool

    @staticmethod
    def parse_transform(code: Any, known_names: set[str]) -> _Changes | None:
        """The changes of a `dataset_transform`; None where it does more than is understood.

        It may rename and remove columns, sample rows, and read the columns and splits in `known_names` under
        their own names.
        """
        nodes = [node for tree in _parse_code_trees(code) for node in ast.walk(tree)]
        read = {_get_constant_text(node.slice) for node in nodes if isinstance(node, ast.Subscript)} - {None}
        calls = [node for node in nodes if isinstance(node, ast.Call)]
        renamed: dict[str, str] = {}
        further: set[str] = set()
        names = [getattr(call.func, "attr", getattr(call.func, "id", "")) for call in calls]
        for name, call in zip(names, calls, strict=True):
            try:
                arguments = (
                    [ast.literal_eval(argument) for argument in call.args] if name in _CHANGING else []
                )
            except ValueError:
                return None
            match name, arguments:
                case ("rename_columns", [dict(pairs)]):
                    renamed |= {new: old for old, new in pairs.items()}
                case ("rename_column", [str(old), str(new)]):
                    renamed[new] = old
                case ("remove_columns" | "class_encode_column", [str() | list() as used]):
                    further |= {used} - known_names if isinstance(used, str) else set(used)
                case ("next" | "select_columns" | "rename_columns" | "rename_column", _):
                    return None
                case _ if name not in ("split", "join") and not _collect_call_texts(call) <= known_names | {
                    "train"
                }:
                    return None
        if not read <= known_names or (renamed and read):
            return None
        return _Changes(
            renamed=renamed,
            further=frozenset(further),
            split="train_test_split" in names,
            lists="from_iterable" in names,
        )


_CHANGING = ("rename_columns", "rename_column", "remove_columns", "class_encode_column")


def _parse_code_trees(code: Any) -> list[ast.Module]:
    """The source of a function, and of those in tasks' own modules that it calls or passes on."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(code)))
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    names = {one.id for call in calls for one in (call.func, *call.args) if isinstance(one, ast.Name)}
    candidates = [code.__globals__.get(name) for name in sorted(names)]
    functions = [
        one for one in candidates if inspect.isfunction(one) and one.__module__.startswith("mteb.tasks.")
    ]
    return [tree, *(ast.parse(textwrap.dedent(inspect.getsource(one))) for one in functions)]


def _collect_call_texts(call: ast.Call) -> set[str]:
    """The constant texts among the arguments of a call and in lists of them, such as columns and splits."""
    expressions = [*call.args, *(keyword.value for keyword in call.keywords)]
    inner = [
        part for one in expressions for part in (one.elts if isinstance(one, ast.List | ast.Tuple) else [one])
    ]
    return {text for part in inner if (text := _get_constant_text(part))}


def _get_constant_text(node: ast.AST) -> str | None:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def _has_fixed_data(task: type[AbsTask]) -> bool:
    """Whether the loading code never reads the metadata, and so no path and revision set there."""
    return "metadata" not in inspect.getsource(task.load_data)


def _has_roles(task: type[AbsTask]) -> bool:
    from mteb.abstasks.retrieval import AbsTaskRetrieval

    return issubclass(task, AbsTaskRetrieval) or bool(getattr(task, "input1_prompt_type", None))


def _describe_languages(task: type[AbsTask]) -> dict[str, Any]:
    """The languages: a list for a task without subsets, a map, or the codes all of whose pairs exist."""
    languages = task.metadata.eval_langs
    if isinstance(languages, list):
        return {"languages": sorted(languages)}
    codes: dict[str, str] = {}
    for subset, pair in languages.items():
        codes |= dict(zip(subset.split("-"), pair, strict=False))
    # Most parallel corpora have all pairs, hundreds of lines that a dozen codes stand for.
    pairs = {f"{a}-{b}": [codes[a], codes[b]] for a in sorted(codes) for b in sorted(codes) if a != b}
    if pairs == languages:
        return {"pairs_of": dict(sorted(codes.items()))}
    return {"languages": {subset: " ".join(languages[subset]) for subset in sorted(languages)}}


def _use(task: AbsTask) -> str | dict[str, Any]:
    """A benchmark's use of a task: its name for the whole of it, else its splits and subsets."""
    meta = task.metadata
    splits = [] if list(task.eval_splits) == meta.eval_splits else list(task.eval_splits)
    subsets = [] if sorted(task.hf_subsets) == sorted(meta.hf_subsets) else sorted(task.hf_subsets)
    used = {"task": meta.name, "splits": splits, "subsets": subsets}
    return {k: v for k, v in used.items() if v} if splits or subsets else meta.name


def _build_benchmark_row(benchmark: Benchmark) -> dict[str, Any]:
    others = sum(task.metadata.modalities != ["text"] for task in benchmark.tasks)
    aliases = {"aliases": sorted(benchmark.aliases)} if benchmark.aliases else {}
    if others:
        return aliases | {"other_tasks": others}
    return aliases | {"tasks": [_use(task) for task in benchmark.tasks]}


def _count_split_sizes(task: type[AbsTask]) -> dict[str, Any]:
    """[texts, characters] of each split, per subset where there are several, if mteb counted them."""
    stats: Statistics = task.metadata.descriptive_stats or {}
    train = _select_subset_statistics(task, stats.get(getattr(task, "train_split", "")))
    sizes: dict[str, Any] = {}
    for split in task.metadata.eval_splits:
        amounts: dict[str, Amount] = {}
        for subset, cell in sorted(_select_subset_statistics(task, stats.get(split)).items()):
            if getattr(task, "parallel_subsets", False):
                sides = _list_text_statistics(task, cell)
                amounts |= zip(subset.split("-"), map(_compute_amount, sides), strict=True)
            elif (amount := _estimate_encode_amount(task, cell, train.get(subset))) is not None:
                amounts[subset] = amount
        several = task.metadata.is_multilingual
        sizes[split] = dict(sorted(amounts.items())) if several else amounts.get("default")
    return {split: size for split, size in sizes.items() if size}


def _count_shared_documents(task: type[AbsTask]) -> dict[str, Any]:
    """[texts, characters] of the documents, by subset, where mteb counted the same ones in each split."""
    stats: Statistics = task.metadata.descriptive_stats or {}
    cells = [_select_subset_statistics(task, stats.get(split)) for split in task.metadata.eval_splits]
    shared: dict[str, Amount] = {}
    for subset in sorted(cells[0] if len(cells) > 1 else ()):
        documents = [cell.get(subset, {}).get("documents_text_statistics") for cell in cells]
        if documents[0] and all(other == documents[0] for other in documents):
            shared[subset] = _compute_amount(documents[0])
    return shared


def _select_subset_statistics(task: type[AbsTask], stats: Statistics | None) -> dict[str, Statistics]:
    """The statistics of each subset of a split that the task still has."""
    if not stats or not task.metadata.is_multilingual:
        return {"default": stats} if stats else {}
    by_subset: Statistics = stats.get("hf_subset_descriptive_stats") or {}
    return {subset: cell for subset, cell in by_subset.items() if subset in task.metadata.eval_langs}


def _estimate_encode_amount(task: type[AbsTask], cell: Statistics, train: Statistics | None) -> Amount | None:
    """The texts to encode of a subset and split: all, a sample, or all and a training sample."""
    from mteb.abstasks.classification import AbsTaskClassification
    from mteb.abstasks.clustering import AbsTaskClustering
    from mteb.abstasks.multilabel_classification import AbsTaskMultilabelClassification

    sides = _list_text_statistics(task, cell)
    if not sides:
        return None
    total = _sum(_compute_amount(side) for side in sides)
    if issubclass(task, AbsTaskMultilabelClassification):
        total = _limit_amount(task.max_eval_samples, total)
    if issubclass(task, AbsTaskClustering):
        fraction = task.max_fraction_of_documents_to_embed
        return _limit_amount(
            task.max_document_to_embed if fraction is None else int(fraction * total[0]), total
        )
    if not issubclass(task, AbsTaskClassification) or task.is_cross_validation:
        return total
    return _sum([total, _estimate_training_sample(task, train)]) if train else None


def _estimate_training_sample(task: type[AbsTask], train: Statistics) -> Amount:
    """Most training texts that the experiments of a classifier can draw, no text twice."""
    from mteb.abstasks.classification import AbsTaskClassification
    from mteb.abstasks.regression import AbsTaskRegression

    assert issubclass(task, AbsTaskClassification)
    if issubclass(task, AbsTaskRegression):
        each = task.n_samples
    else:
        each = task.samples_per_label * train["label_statistics"]["unique_labels"]
    return _limit_amount(task.n_experiments * each, _compute_amount(train["text_statistics"]))


def _list_text_statistics(task: type[AbsTask], cell: Statistics) -> list[Statistics]:
    """The statistics of each kind of encoded text, in file order; of summarization, the summaries'."""
    kinds = {k: v for k, v in cell.items() if isinstance(v, Mapping) and "total_text_length" in v}
    if task.metadata.type == "Summarization":
        del kinds["text_statistics"]
    return list(kinds.values())


def _compute_amount(statistics: Statistics) -> Amount:
    characters, mean = statistics["total_text_length"], statistics["average_text_length"]
    # The statistics hold a total and a mean: the number of texts follows from them.
    return (round(characters / mean), characters) if mean else (0, 0)


def _limit_amount(limit: int | None, amount: Amount) -> Amount:
    texts, characters = amount
    if limit is None or limit >= texts:
        return amount
    return limit, math.ceil(characters * limit / texts)


def _sum(amounts: Iterable[Amount]) -> Amount:
    texts, characters = zip(*amounts, strict=True)
    return sum(texts), sum(characters)


def _render_main_revisions() -> str:
    """The main revision and the number of parameters of each model of the installed mteb, as CSV."""
    import mteb

    metas = [meta for meta in mteb.get_model_metas() if meta.name and (meta.revision or meta.n_parameters)]
    rows = sorted((meta.name, meta.revision or "", meta.n_parameters or "") for meta in metas)
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([("model", "revision", "parameters"), *rows])
    return text.getvalue()


def _render_training_tasks() -> str:
    """The tasks that models of mteb's registry were trained on; models with the same tasks share a line.

    Of similar tasks only the first stands there: the others follow from it. A model that states nothing has
    no line.
    """
    import mteb
    from mteb.get_tasks import _SIMILAR_TASKS, TASK_LIST

    groups = _group_similar_names(_SIMILAR_TASKS)
    first = {name: names[0] for names in groups for name in names}
    tasks = {first.get(name, name) for name in (t.metadata.name for t in TASK_LIST if _is_text_task(t))}
    models: dict[str, list[str]] = {}
    for meta in sorted(mteb.get_model_metas(), key=lambda meta: meta.name or ""):
        trained = meta.get_training_datasets()
        if trained is not None and meta.name:
            names = {first.get(name, name) for name in trained} & tasks
            models.setdefault(_dump_compact_json(sorted(names)), []).append(meta.name)
    lines = (f"{_dump_compact_json(' | '.join(some))}: {names}" for names, some in models.items())
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _render_descriptions() -> str:
    """The descriptions, addresses, citations, languages and domains of text tasks and of their benchmarks.

    The text of a language is its name.
    """
    import mteb
    from mteb.languages import ISO_TO_LANGUAGE

    rows: dict[str, Any] = {}
    for task in mteb.get_tasks(exclude_superseded=False):
        about = task.metadata
        if set(about.modalities) == {"text"}:
            languages = sorted({code.partition("-")[0] for code in about.languages})
            row = _build_description_row(about, about.bibtex_citation, languages)
            rows |= {f"language:{one}": {"text": ISO_TO_LANGUAGE.get(one, one)} for one in languages}
            rows[f"task:{about.name}"] = row | ({"domains": sorted(about.domains)} if about.domains else {})
    for benchmark in mteb.get_benchmarks():
        if any(f"task:{task.metadata.name}" in rows for task in benchmark.tasks):
            rows[f"benchmark:{benchmark.name}"] = _build_description_row(benchmark, benchmark.citation, [])
    lines = [f"{json.dumps(key)}: {json.dumps(rows[key], ensure_ascii=False)}" for key in sorted(rows)]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _build_description_row(about: Any, citation: str | None, languages: list[str]) -> dict[str, Any]:
    """The parts of a description that are not empty; its text is one line, without the addresses of links."""
    facts = {
        "text": " ".join(re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", about.description or "").split()),
        "reference": str(about.reference or ""),
        "citation": (citation or "").strip(),
        "languages": languages,
    }
    return {name: value for name, value in facts.items() if value}


def _render_snapshot_files() -> dict[Path, str]:
    """The content of each file for the installed mteb."""
    site = Path(__file__).parents[2] / "leaderboard" / "data"
    return {
        PATH: _render(),
        site / "main_revisions.csv": _render_main_revisions(),
        site / "training_tasks.json": _render_training_tasks(),
        site / "descriptions.json": _render_descriptions(),
    }


def write_snapshot_files(arguments: list[str]) -> int:
    """Write the files, or with --check print how one differs; gives the exit status."""
    for path, content in _render_snapshot_files().items():
        changed = set(content.splitlines()) ^ set(path.read_text(encoding="utf-8").splitlines())
        if "--check" not in arguments:
            path.write_text(content, encoding="utf-8")
        elif changed:
            names = sorted({line.partition(":")[0] for line in changed})
            print(f"{path.name} is out of date for {len(names)}: {', '.join(names[:8])}. Next: {COMMAND}")
            return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(write_snapshot_files(sys.argv[1:]))
