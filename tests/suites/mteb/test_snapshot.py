"""The snapshot of mteb's metadata: what it reads, what it says no to, and that it is not out of date."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.core.errors import UsageError
from harness.core.types import SIDES, Size, SuiteOptions
from suites._mteb import make_snapshot
from suites._mteb import snapshot as module
from suites._mteb.snapshot import PATH, TaskInfo, TaskUse, load_snapshot
from suites._mteb.source import build_mteb_suite, list_offers

ROOT = Path(__file__).parents[3]
TEXT = ["text"]

BLOCKED = """
import sys

class Block:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"mteb", "torch", "transformers", "datasets", "numpy"}:
            raise ImportError(f"{name} is blocked")

sys.meta_path.insert(0, Block())
from suites._mteb.snapshot import load_snapshot
import suites._mteb.source
snapshot = load_snapshot()
parts = snapshot.find_task_info("STS22").select_splits_and_subsets(["tur"])
print(len(snapshot.find_benchmark("MTEB(eng, v2)").tasks), *parts)
"""


def a_task(**fields: Any) -> TaskInfo:
    """A task in three languages, one of them in two scripts."""
    subsets = {"en": ("eng-Latn",), "de-en": ("deu-Latn", "eng-Latn"), "zh": ("zho-Hant",)}
    given = {"splits": ("dev", "test"), "subsets": subsets, **fields}
    return TaskInfo(name="Little", type="STS", metric="cosine_spearman", abstask="AbsTaskSTS", **given)


def of(names: list[str] | tuple[str, ...]) -> Counter[str]:
    """How many tasks there are of each type."""
    return Counter(load_snapshot().find_task_info(name).type for name in names)


# Reading it


def test_nothing_heavy_is_imported() -> None:
    done = subprocess.run(
        [sys.executable, "-c", BLOCKED], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.stderr == ""
    assert done.stdout == "41 ('test',) ('tr',)\n"


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("MTEB(eng, v1)", 56),
        ("MTEB(eng, v2)", 41),
        ("BEIR", 15),
        ("NanoBEIR", 13),
        ("CoIR", 10),
        ("MTEB(Code, v1)", 12),
        ("LongEmbed", 6),
    ],
)
def test_a_benchmark_has_the_tasks_that_are_published(name: str, count: int) -> None:
    assert len(load_snapshot().find_benchmark(name).tasks) == count


def test_the_types_of_both_english_benchmarks_are_the_published_ones() -> None:
    order = ["Classification", "Clustering", "PairClassification", "Reranking", "Retrieval", "STS"]
    v1 = of([use.name for use in load_snapshot().find_benchmark("MTEB(eng, v1)").tasks])
    v2 = of([use.name for use in load_snapshot().find_benchmark("MTEB(eng, v2)").tasks])
    assert [v1[t] for t in [*order, "Summarization"]] == [12, 11, 3, 4, 15, 10, 1]
    assert [v2[t] for t in [*order, "Summarization"]] == [8, 8, 3, 2, 10, 9, 1]


@pytest.mark.parametrize("benchmark", ["MTEB(eng, v1)", "BEIR"])
def test_cqadupstack_is_one_column_of_twelve_tasks(benchmark: str) -> None:
    names = [use.name for use in load_snapshot().find_benchmark(benchmark).tasks]
    assert [n for n in names if n.startswith("CQADupstack")] == ["CQADupstackRetrieval"]
    aggregate = load_snapshot().find_task_info("CQADupstackRetrieval")
    assert len(aggregate.aggregate_of) == 12
    assert {use.splits for use in aggregate.aggregate_of} == {("test",)}
    assert aggregate.path == aggregate.revision == ""
    assert len({load_snapshot().find_task_info(use.name).path for use in aggregate.aggregate_of}) == 12


def test_the_english_benchmarks_take_the_splits_and_subsets_that_are_published() -> None:
    for benchmark in ("MTEB(eng, v1)", "BEIR"):
        used = {use.name: use for use in load_snapshot().find_benchmark(benchmark).tasks}
        assert used["MSMARCO"].splits == ("dev",)
    used = {use.name: use for use in load_snapshot().find_benchmark("MTEB(eng, v1)").tasks}
    assert used["STS17"].subsets == ("en-en",)
    assert used["STS22"].subsets == ("en",)
    assert used["AmazonCounterfactualClassification"] == TaskUse(
        name="AmazonCounterfactualClassification", splits=("test",), subsets=("en",)
    )


def test_a_benchmark_is_found_by_its_alias() -> None:
    assert load_snapshot().find_benchmark("MTEB") == load_snapshot().find_benchmark("MTEB(eng, v1)")
    assert [load_snapshot().resolve(name) for name in ("MTEB", "BEIR", "MAEB", "Nothing")] == [
        "MTEB(eng, v1)",
        "BEIR",
        "MAEB(v1)",
        None,
    ]
    assert build_mteb_suite("MTEB(eng)", called="it", options=SuiteOptions()).title == "MTEB(eng, v2)"


def test_a_name_is_resolved_without_building_every_benchmark(monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[str] = []
    known = type(load_snapshot())
    benchmark = known.find_benchmark
    monkeypatch.setattr(
        known, "find_benchmark", lambda self, name: built.append(name) or benchmark(self, name)
    )
    build_mteb_suite("NanoBEIR", called="it", options=SuiteOptions())
    with pytest.raises(UsageError, match="No benchmark or task of mteb is called 'Nanobier'"):
        build_mteb_suite("Nanobier", called="it", options=SuiteOptions())
    assert built == ["NanoBEIR"]


def test_a_task_that_is_superseded_says_so_in_the_list() -> None:
    facts = {offer.name: offer.facts for offer in list_offers() if offer.kind == "task"}
    assert facts["STSBenchmark"]["superseded_by"] == "STSBenchmark.v2"
    assert facts["STSBenchmark.v2"]["superseded_by"] is None


def test_a_task_of_one_language_says_which_in_the_list() -> None:
    facts = {offer.name: offer.facts for offer in list_offers() if offer.kind == "task"}
    assert [facts[name]["languages"] for name in ("STSB", "STSBenchmark", "STS17")] == [
        ("cmn-Hans",),
        ("eng-Latn",),
        (),
    ]


def test_a_task_whose_revision_is_a_branch_is_told_from_those_with_a_commit() -> None:
    branches = [name for name in load_snapshot().tasks if load_snapshot().find_task_info(name).on_a_branch]
    assert branches == ["PublicHealthQA"]
    assert load_snapshot().find_task_info("IFIRAila").revision == "1cb8772"


def test_every_pair_of_languages_is_a_subset_of_flores() -> None:
    flores = load_snapshot().find_task_info("FloresBitextMining")
    assert flores.parallel
    assert len(flores.subsets) == 204 * 203
    assert flores.subsets["eng_Latn-zho_Hant"] == ("eng-Latn", "zho-Hant")


# How much there is to encode


@pytest.mark.parametrize(
    ("name", "split", "subset", "texts"),
    [
        ("MSMARCO", "dev", "default", 8_841_823 + 6_980),  # passages, queries
        ("STSBenchmark", "test", "default", 2 * 1_379),  # pairs
        ("SummEval", "test", "default", 100 * (11 + 16)),  # written by people, by machines
        ("Banking77Classification", "test", "default", 3_080 + 10 * 8 * 77),  # experiments, each, labels
        ("ImdbClassification", "test", "default", 25_000 + 10 * 8 * 2),
        ("FloresBitextMining", "devtest", "eng_Latn-fra_Latn", 2 * 1_012),
        ("STS17", "test", "en-en", 2 * 250),
    ],
)
def test_the_texts_of_a_task_are_those_of_its_paper(name: str, split: str, subset: str, texts: int) -> None:
    assert load_snapshot().find_task_info(name).estimate_size([split], [subset]).texts == texts


def test_a_parallel_task_counts_each_language_once() -> None:
    flores = load_snapshot().find_task_info("FloresBitextMining")
    both = flores.estimate_size(["devtest"], ["eng_Latn-fra_Latn", "fra_Latn-eng_Latn"])
    assert both == flores.estimate_size(["devtest"], ["eng_Latn-fra_Latn"])
    assert flores.estimate_size(flores.splits, flores.subsets).texts == 204 * 1_012


def test_sizes_add_up_and_are_unknown_when_any_part_is() -> None:
    task = a_task(sizes={("dev", "en"): (2, 10), ("test", "en"): (3, 20), ("test", "zh"): (5, 1)})
    assert task.estimate_size(["dev", "test"], ["en"]) == Size(texts=5, characters=30)
    assert task.estimate_size(["test"], ["en", "zh"]) == Size(texts=8, characters=21)
    assert task.estimate_size(["dev"], ["en", "zh"]) == Size()
    task = replace(task, shared={"en": (1, 8)})  # a document of both splits
    assert task.estimate_size(["dev", "test"], ["en"]) == Size(texts=4, characters=22)
    assert task.estimate_size(["test"], ["en"]) == Size(texts=3, characters=20)
    assert a_task().estimate_size(["dev"], []) == Size()


# Narrowing


def test_a_subset_stays_when_any_of_its_languages_is_asked_for() -> None:
    assert a_task().select_splits_and_subsets() == (("dev", "test"), ("en", "de-en", "zh"))
    assert a_task().select_splits_and_subsets(["eng"], ["test"]) == (("test",), ("en", "de-en"))
    assert a_task().select_splits_and_subsets(["deu-Latn", "zho"], ["test", "train"]) == (
        ("test",),
        ("de-en", "zh"),
    )


def test_narrowing_stays_inside_what_a_benchmark_takes() -> None:
    use = TaskUse(name="Little", splits=("test",), subsets=("de-en",))
    assert a_task().select_splits_and_subsets(["eng"], within=use) == (("test",), ("de-en",))
    with pytest.raises(UsageError, match=r"Little has no split dev\.\nIt has split test\."):
        a_task().select_splits_and_subsets(splits=["dev"], within=use)


def test_nothing_left_says_what_there_is() -> None:
    with pytest.raises(UsageError) as error:
        a_task().select_splits_and_subsets(["en", "fra"])
    assert str(error.value) == ("Little has no language en or fra.\nIt has languages deu, eng, zho.")


# Names that do not exist


def test_a_near_miss_names_the_nearest() -> None:
    with pytest.raises(UsageError) as error:
        load_snapshot().find_task_info("Banking7Classification")
    assert str(error.value).startswith(
        "No task is called 'Banking7Classification'.\nDid you mean Banking77Class"
    )
    assert str(error.value).endswith("? `harness list tasks` shows all.")
    with pytest.raises(UsageError, match=r"Did you mean MTEB\(eng, v2\)"):
        load_snapshot().find_benchmark("MTEB(eng,v2)")


def test_a_benchmark_of_images_is_left_out_and_says_why() -> None:
    assert "MIEB(eng)" in load_snapshot().excluded
    assert "MIEB(eng)" not in load_snapshot().benchmarks
    with pytest.raises(UsageError, match=r"MIEB\(eng\) is not a benchmark of texts: \d+ of its tasks"):
        load_snapshot().find_benchmark("MIEB(eng)")
    with pytest.raises(UsageError, match=r"MAEB is not a benchmark of texts: \d+ of its tasks"):
        build_mteb_suite("MAEB", called="it", options=SuiteOptions())


# Against the installed mteb


@pytest.fixture(scope="module")
def installed() -> dict[str, Any]:
    """Every text task class of the installed mteb by name."""
    from mteb.get_tasks import TASK_LIST

    return {task.metadata.name: task for task in TASK_LIST if task.metadata.modalities == TEXT}


@pytest.mark.slow
def test_the_file_is_not_out_of_date(capsys: pytest.CaptureFixture[str]) -> None:
    assert make_snapshot.write_snapshot_files(["--check"]) == 0, capsys.readouterr().out


def test_a_file_out_of_date_is_named_and_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    old = tmp_path / "snapshot.json"
    old.write_text('{\n"made_by": "hand",\n"tasks": {}\n}\n')
    monkeypatch.setattr(
        make_snapshot, "_render_snapshot_files", lambda: {old: '{\n"made_by": "hand",\n"A": {}\n}\n'}
    )
    assert make_snapshot.write_snapshot_files(["--check"]) == 1
    assert capsys.readouterr().out == (
        'snapshot.json is out of date for 2: "A", "tasks". Next: python -m suites._mteb.make_snapshot\n'
    )
    assert "tasks" in old.read_text()
    assert make_snapshot.write_snapshot_files([]) == 0
    assert make_snapshot.write_snapshot_files(["--check"]) == 0


def test_the_version_is_the_installed_one_and_the_tasks_are_all_there(installed: dict[str, Any]) -> None:
    import mteb

    assert load_snapshot().version == mteb.__version__
    assert set(load_snapshot().tasks) == set(installed)
    members = {use.name for name in installed for use in load_snapshot().find_task_info(name).aggregate_of}
    assert members <= set(load_snapshot().tasks)
    assert PATH.stat().st_size < 1_500_000


def test_every_task_says_what_mteb_says(installed: dict[str, Any]) -> None:
    for name, task in installed.items():
        meta, info = task.metadata, load_snapshot().find_task_info(name)
        assert (info.name, info.type, info.metric) == (name, meta.type, meta.main_score)
        assert info.superseded_by == meta.superseded_by
        assert list(info.splits) == meta.eval_splits
        languages = {s: sorted(langs) for s, langs in meta.hf_subsets_to_langscripts.items()}
        assert {s: sorted(langs) for s, langs in info.subsets.items()} == languages
        if info.aggregate_of:
            assert [use.name for use in info.aggregate_of] == [t.metadata.name for t in meta.tasks]
        else:
            assert {"path": info.path, "revision": info.revision}.items() <= dict(meta.dataset).items()


def test_every_task_says_what_its_class_does(installed: dict[str, Any]) -> None:
    from mteb.abstasks import AbsTaskRetrieval

    for name, task in installed.items():
        info = load_snapshot().find_task_info(name)
        assert info.abstask in [base.__name__ for base in task.__mro__]
        assert info.parallel == getattr(task, "parallel_subsets", False)
        if issubclass(task, AbsTaskRetrieval):
            assert info.roles
            made = build_mteb_suite(name, called=name, options=SuiteOptions())
            assert {one.roles for one in made.tasks} == {SIDES}
    assert [name for name in installed if load_snapshot().find_task_info(name).fixed_data] == [
        "SKQuadRetrieval"
    ]
    assert not load_snapshot().find_task_info("STSBenchmark").roles
    assert load_snapshot().find_task_info("CQADupstackRetrieval").roles


def test_every_benchmark_takes_what_mteb_takes() -> None:
    import mteb

    snapshot, all_text = load_snapshot(), []
    for benchmark in mteb.get_benchmarks():
        if any(task.metadata.modalities != TEXT for task in benchmark.tasks):
            assert benchmark.name in snapshot.excluded
            continue
        all_text.append(benchmark.name)
        info = snapshot.find_benchmark(benchmark.name)
        taken = [(t.metadata.name, [*t.eval_splits], {*t.hf_subsets}) for t in benchmark.tasks]
        assert [(u.name, [*u.splits], {*u.subsets}) for u in info.tasks] == taken
        assert info.aliases == tuple(sorted(benchmark.aliases or ()))
    assert snapshot.benchmarks == tuple(sorted(all_text))
    assert len(snapshot.benchmarks) + len(snapshot.excluded) == 78


MULTILINGUAL = [
    "AmazonCounterfactualClassification",
    "BelebeleRetrieval",
    "MultiLongDocRetrieval",
    "NTREXBitextMining",
    "SIB200Classification",
    "STS17",
    "STS22",
]


@pytest.mark.parametrize("name", MULTILINGUAL)
@pytest.mark.parametrize("languages", [["eng"], ["eng-Latn"], ["deu", "jpn"], ["zho-Hans"], ["cmn"], ["isl"]])
def test_narrowing_keeps_what_mteb_keeps(name: str, languages: list[str]) -> None:
    import mteb

    try:
        kept = mteb.get_task(name, languages=languages).hf_subsets
    except ValueError:  # mteb's word for nothing left
        with pytest.raises(UsageError):
            load_snapshot().find_task_info(name).select_splits_and_subsets(languages)
    else:
        assert sorted(load_snapshot().find_task_info(name).select_splits_and_subsets(languages)[1]) == sorted(
            kept
        )


class Counting:
    """An encoder that counts what it is given."""

    def __init__(self) -> None:
        from mteb.models.model_meta import ModelMeta

        self.mteb_model_meta = ModelMeta.create_empty(overwrites={"name": "a/counter", "revision": "1"})
        self.texts = self.characters = 0

    def encode(self, inputs: Any, **_: Any) -> Any:
        import numpy as np

        texts = [text for batch in inputs for text in batch["text"]]
        self.texts += len(texts)
        self.characters += sum(map(len, texts))
        return np.random.default_rng(0).standard_normal((len(texts), 8))

    def similarity(self, left: Any, right: Any) -> Any:
        from mteb.similarity_functions import cos_sim

        return cos_sim(left, right)

    def similarity_pairwise(self, left: Any, right: Any) -> Any:
        from mteb.similarity_functions import pairwise_cos_sim

        return pairwise_cos_sim(left, right)


def counted(task: Any) -> tuple[int, int]:
    """The texts and characters that mteb has encoded when it has scored all of `task`."""
    counting = Counting()
    for split in task.eval_splits:
        task.evaluate(counting, split, encode_kwargs={"batch_size": 8, "show_progress_bar": False})
    return counting.texts, counting.characters


def estimated(task: Any, stats: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> Size:
    """What the snapshot would say of `task` if `stats` were the statistics mteb has of it, split by split."""
    from mteb.abstasks.task_metadata import TaskMetadata

    monkeypatch.setattr(TaskMetadata, "descriptive_stats", stats)
    row = make_snapshot._build_task_row(type(task))
    info = type(load_snapshot())(version="", rows={"it": row}, benchmark_rows={}).find_task_info("it")
    parts = [info.estimate_size([split], info.subsets) for split in info.splits]
    texts, characters = ([getattr(part, name) for part in parts] for name in ("texts", "characters"))
    return Size(texts=sum(texts), characters=sum(characters))


@pytest.mark.filterwarnings("ignore")
def test_the_size_of_data_used_whole_is_what_mteb_encodes(monkeypatch: pytest.MonkeyPatch) -> None:
    """On one of mteb's own small tasks of each kind, which come with the statistics of their data."""
    from mteb.mocks import ALL_MOCK_TASK_TEST_GRID

    types, seen = of(load_snapshot().tasks), set()
    for mock in ALL_MOCK_TASK_TEST_GRID:
        kind = (mock.metadata.type, type(mock).__mro__[1], getattr(mock, "parallel_subsets", False))
        if mock.metadata.modalities == TEXT and mock.metadata.type in types and kind not in seen:
            seen.add(kind)
            task = type(mock)()
            task.n_clusters = 1
            size = estimated(task, task.expected_stats, monkeypatch)
            assert (size.texts, size.characters) == counted(task), task
    assert {kind for kind, *_ in seen} == set(types) - {"Any2AnyRetrieval"}  # the same class as Retrieval


def sampling_tasks() -> dict[str, Any]:
    """A task of each kind that encodes a sample only, over more texts than it takes."""
    from datasets import Dataset, DatasetDict
    from mteb.abstasks import AbsTaskClassification, AbsTaskClustering, AbsTaskMultilabelClassification
    from mteb.mocks.mock_tasks import MockClassificationTask

    def texts(many: int) -> list[str]:
        return [f"text number {i} of {many}" for i in range(many)]

    def data(label: str, text: str, labels: Any, **many: int) -> Any:
        parts = {s: {text: texts(n), label: [labels(i) for i in range(n)]} for s, n in many.items()}
        return DatasetDict({split: Dataset.from_dict(part) for split, part in parts.items()})

    class Loaded:
        metadata = MockClassificationTask.metadata
        data_loaded = True
        n_clusters = 1
        n_experiments = 3
        samples_per_label = 2
        max_eval_samples = 30

    class Classify(Loaded, AbsTaskClassification):
        dataset = data("label", "text", lambda i: i % 2, train=100, test=20)

    class Multilabel(Loaded, AbsTaskMultilabelClassification):
        dataset = data("label", "text", lambda i: [i % 2, 2 + i % 3], train=100, test=60)

    class Cluster(Loaded, AbsTaskClustering):
        metadata = Loaded.metadata.model_copy(update={"main_score": "v_measure"})
        max_fraction_of_documents_to_embed = 0.25
        dataset = data("labels", "sentences", lambda i: i % 2, test=99)

    class ClusterSome(Cluster):
        max_fraction_of_documents_to_embed = None
        max_document_to_embed = 30

    kinds = (Classify, Multilabel, Cluster, ClusterSome)
    return {kind.__name__: kind for kind in kinds}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("name", "most"),
    [("Classify", 20 + 3 * 2 * 2), ("Multilabel", 30 + 3 * 2 * 5), ("Cluster", 24), ("ClusterSome", 30)],
)
def test_the_size_of_data_sampled_from_is_the_most_mteb_encodes(
    name: str, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = sampling_tasks()[name]()
    stats = {split: task._calculate_descriptive_statistics_from_split(split) for split in task.dataset}
    size = estimated(task, stats, monkeypatch)
    texts, characters = counted(task)
    assert size.texts == most
    assert texts <= most <= 1.5 * texts
    assert size.characters == pytest.approx(characters * most / texts, rel=0.05)


def test_rows_read_one_by_one_are_those_of_the_file() -> None:
    whole = json.loads(PATH.read_text(encoding="utf-8"))
    rows = {
        "tasks": load_snapshot().rows,
        "benchmarks": load_snapshot().benchmark_rows,
        "similar": load_snapshot().similar_rows,
    }
    assert {name: [*part] for name, part in rows.items()} == {name: [*whole[name]] for name in rows}
    assert all(dict(part) == whole[name] for name, part in rows.items())
    assert load_snapshot().version == whole["mteb_version"]
    assert {*whole} - {*rows} == {"made_by", "mteb_version"}


def test_a_name_may_hold_a_colon_or_what_json_escapes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = {"a: b,": {"type": "STS"}, "c\u2028\\d": ["x", "y: z,"]}
    lines = ",\n".join(f"{json.dumps(n)}: {json.dumps(r)}" for n, r in rows.items())
    parts = ['"mteb_version": "1"', f'"tasks": {{\n{lines}\n}}', '"benchmarks": {\n}', '"similar": {\n}']
    (tmp_path / "rows.json").write_text("{\n" + ",\n".join(parts) + "\n}\n")
    monkeypatch.setattr(module, "PATH", tmp_path / "rows.json")
    load_snapshot.cache_clear()
    try:
        assert dict(load_snapshot().rows) == rows
    finally:
        load_snapshot.cache_clear()


# What of a data set a task reads, and narrowing to subsets


@pytest.mark.parametrize(
    ("name", "subsets", "configs", "splits", "columns"),
    [
        ("STSBenchmark", ("default",), [()], ("test",), ["sentence1", "sentence2", "score"]),
        ("Banking77Classification", ("default",), [()], ("test", "train"), ["text", "label"]),
        ("TwitterURLCorpus", ("default",), [()], ("test",), ["sent1", "sent2", "labels"]),
        (
            "SIB200Classification",
            ("eng_Latn",),
            [("eng_Latn",)],
            ("train", "validation", "test"),
            ["text", "category", "index_id"],
        ),
        ("STS17", ("en-en",), [()], ("test",), ["sentence1", "sentence2", "lang", "score"]),
        ("SlovakParlaSentClassification", ("default",), [("SK",)], (), []),
        (
            "COIRCodeSearchNetRetrieval",
            ("go",),
            [("go-qrels",), ("go-corpus",), ("go-queries",)],
            ("test",),
            ["query-id", "corpus-id", "score"],
        ),
        (
            "SciFact",
            ("default",),
            [("default", "qrels"), ("corpus",), ("queries", "query")],
            ("test",),
            ["query-id", "corpus-id", "score"],
        ),
    ],
)
def test_the_tables_that_a_task_reads(
    name: str,
    subsets: tuple[str, ...],
    configs: list[tuple[str, ...]],
    splits: tuple[str, ...],
    columns: list[str],
) -> None:
    info = load_snapshot().find_task_info(name)
    tables = info.list_data_tables(info.splits, subsets)
    assert [table.config for table in tables] == configs
    assert set(tables[0].splits if tables else ()) == set(splits)
    assert [names[0] for table in tables[:1] for names in (*table.texts, *table.values)] == columns


def test_subsets_narrow_a_task_and_a_benchmark() -> None:
    (task,) = build_mteb_suite("STS17", called="x", options=SuiteOptions(subsets=("en-en",))).tasks
    assert (task.subsets, task.size.texts) == (("en-en",), 500)
    suite = build_mteb_suite("MTEB(eng, v2)", called="x", options=SuiteOptions(subsets=("en-en",)))
    assert ([task.name for task in suite.tasks], len(suite.left_out)) == (["STS17"], 40)
    both = SuiteOptions(subsets=("en-en", "en-de"), languages=("deu",))
    assert build_mteb_suite("STS17", called="x", options=both).tasks[0].subsets == ("en-de",)


@pytest.mark.parametrize(
    ("name", "subset", "hint"),
    [("STS17", "en-em", "Did you mean en-en"), ("MTEB(eng, v2)", "af", "There is: default, en, en-en.")],
)
def test_a_subset_that_no_task_has_is_refused(name: str, subset: str, hint: str) -> None:
    with pytest.raises(UsageError, match=f"No subset of .* is called '{subset}'") as caught:
        build_mteb_suite(name, called="x", options=SuiteOptions(subsets=(subset,)))
    assert hint in str(caught.value.hint)
