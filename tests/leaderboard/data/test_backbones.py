"""The papers' backbones: their names, what was made from them, and what is printed of each."""

from __future__ import annotations

import csv
import json
import math
import shutil
from collections import Counter
from pathlib import Path

import pytest

from harness.core.errors import RecordError
from harness.core.types import SuiteOptions
from harness.encoder.backbones import list_backbones
from harness.plan import catalog
from harness.plan.catalog import load_suite_entries
from harness.results.reported import read_papers
from harness.results.scores import Aggregates
from leaderboard.data.backbones import (
    BENCHMARKS,
    GlueLine,
    collect_glue_lines,
    collect_printed_scores,
    find_backbone,
    find_printed_parameters,
    iter_paper_units,
    load_backbones,
    resolve_base_backbones,
)
from leaderboard.data.entries import NewEntry, find_size_class
from leaderboard.data.suites import SiteSuite
from suites.glue import VIEWS

FOLDER = Path(__file__).parents[3] / "results" / "reported"
NO_MODEL = {"all", "synthetic set", "Lhat(F_N,D)", "F_N vs C", "D vs C", "D/F_N vs C"}


@pytest.fixture(scope="module")
def lines() -> list[GlueLine]:
    return collect_glue_lines(read_papers(FOLDER))


@pytest.mark.parametrize(
    ("name", "slug"),
    [
        ("google-bert/bert-base-uncased", "bert-base"),
        ("bert-base-uncased", "bert-base"),
        ("BERT_base", "bert-base"),
        ("Answerdotai/ModernBERT-Base", "modernbert-base"),
        ("ModernBERT_large", "modernbert-large"),
        ("NomicBERT-2048", "nomic-bert-2048"),
        ("NeoBERT_4096", "neobert"),
        ("OptiBERT_neo 13B tokens", "optibert-neo"),
        ("MosaicBERT-128", "mosaicbert-base"),
        ("BERT", None),
        ("RoBERTa", None),
        ("Alibaba-NLP/gte-modernbert-base", None),
        ("gte-modernbert-base", None),
        ("somebody/ModernBERT-base", None),
        ("google-bert/bert-base-multilingual-cased", None),
        ("", None),
    ],
)
def test_a_backbone_is_known_by_whole_names(name: str, slug: str | None) -> None:
    found = find_backbone(name)
    assert (found.slug if found else None) == slug


def test_both_sizes_are_those_of_the_shapes() -> None:
    """Counted from the networks that the harness builds, without a head, as far as it has their shapes."""
    compared, known = 0, load_backbones()
    for family in (one.family for one in list_backbones().values()):
        for name, config in family.sizes.items() if family and family.shape else ():
            if name in known:
                assert family is not None
                counts = {n: math.prod(shape) for n, shape in family.outline(config).tensors().items()}
                body = sum(counts.values()) - counts["embeddings.tokens.weight"]
                assert known[name].without_embeddings == pytest.approx(body, rel=0.02)
                assert known[name].parameters == pytest.approx(sum(counts.values()), rel=0.02)
                compared += 1
    assert compared > 15


def test_a_model_has_one_size_whoever_prints_it() -> None:
    """OptiBERT prints sizes without embeddings and NeoBERT with them: 198M and 250M are one architecture."""
    printed = [row for paper in read_papers(FOLDER).values() for row in paper.rows if row.params]
    assert {row.params for row in printed} >= {"198M", "250M"}
    for row in printed:
        backbone = find_backbone(row.backbone)
        assert backbone is not None
        assert find_printed_parameters(row) == backbone.parameters
    neo, opti = find_backbone("NeoBERT"), find_backbone("OptiBERT_neo")
    assert neo is not None
    assert opti is not None
    assert neo.without_embeddings == opti.without_embeddings == 198_000_000
    assert [find_size_class(one.parameters) for one in (neo, opti)] == ["large", "large"]


def test_each_of_the_30_most_printed_models_is_one_backbone_with_all_its_numbers() -> None:
    counts: Counter[tuple[str, str]] = Counter()
    for path in FOLDER.glob("*.csv"):
        if path.stem not in ("models", "backbones"):
            with path.open(newline="") as file:
                lines = [line for line in csv.DictReader(file) if line["value"]]
            counts.update((line["model"], line["size_class"]) for line in lines)
    counts = Counter({key: count for key, count in counts.items() if key[0] not in NO_MODEL})
    printed = [row for paper in read_papers(FOLDER).values() for row in paper.rows if row.value]
    for key, count in counts.most_common(30):
        [one] = [backbone for backbone in load_backbones().values() if key in backbone.printed]
        own = [row for row in printed if (row.model, row.size_class) == key]
        assert len(own) == count
        assert {row.backbone for row in own} == {one.name}


def test_every_backbone_is_of_a_known_family_and_its_names_are_its_own() -> None:
    known = load_backbones()
    assert {one.family for one in known.values()} <= list_backbones().keys()
    hub_ids = [hub_id for one in known.values() for hub_id in one.hub_ids]
    assert len(hub_ids) == len(set(hub_ids))
    for one in known.values():
        assert all(find_backbone(name) == one for name in (one.slug, one.name, *one.hub_ids))
    for row in (row for paper in read_papers(FOLDER).values() for row in paper.rows if row.hub_id):
        own = find_backbone(row.hub_id)
        assert own is not None
        assert own.name == row.backbone


def test_a_finished_model_goes_back_to_its_backbone() -> None:
    parents = {
        "a/finished": "a/halfway",
        "a/halfway": "google-bert/bert-base-uncased",
        "b/other": "nobody/knows",
        "c/one": "c/two",
        "c/two": "c/one",
        "d/none": None,
        "answerdotai/ModernBERT-base": "answerdotai/ModernBERT-large",
        "e/modern": "Alibaba-NLP/gte-modernbert-base",
        "intfloat/e5-small": "sentence-transformers/all-MiniLM-L6-v2",
    }
    found = resolve_base_backbones(parents)
    assert {model: one.slug for model, one in found.items()} == {
        "a/finished": "bert-base",
        "a/halfway": "bert-base",
        "e/modern": "modernbert-base",
        "intfloat/e5-small": "minilm-l12",
    }


PRINTED = {
    ("modernbert-base", "dpr-beir"): ["41.6"],
    ("modernbert-base", "dpr-mldr-ood"): ["27.4"],
    ("modernbert-base", "dpr-mldr-id"): ["44.0"],
    ("modernbert-base", "colbert-beir"): ["51.3"],
    ("modernbert-base", "colbert-mldr-ood"): ["80.2"],
    ("modernbert-base", "dpr-codesearchnet"): ["56.4"],
    ("modernbert-base", "dpr-stackqa"): ["73.6"],
    ("modernbert-large", "dpr-beir"): ["44.0"],
    ("modernbert-large", "glue"): ["90.5", "90.4"],
    ("deberta-v3-base", "dpr-mldr-ood"): ["5.4"],
    ("neobert", "unified-mteb-v1"): ["51.3"],
    ("neobert", "cde-mteb-v1"): ["66.6"],
    ("neobert", "glue"): ["89.0"],
    ("optibert-239m", "simcse-mteb-v1"): ["51.5"],
    ("optibert-239m", "simcse-mteb"): ["51.6"],
    ("optibert-neo", "glue"): ["76.0", "84.6", "88.1"],
    ("mosaicbert-base", "glue"): ["79.6", "82.2", "83.2", "83.4", "85.4"],
}


def test_printed_scores_by_recipe_and_suite() -> None:
    found = collect_printed_scores(read_papers(FOLDER))
    assert {key: [row.value for _, row, _ in found[key]] for key in PRINTED} == PRINTED
    assert {one.suite for one in BENCHMARKS} <= load_suite_entries().keys()
    assert ("neobert", "simcse-mteb") not in found  # nobody printed it
    [(paper, row, notes)] = found["modernbert-base", "dpr-beir"]
    assert (paper, row.table) == ("modernbert", "7")
    assert [note.startswith("MSMARCO: inferred split") for note in notes] == [True]
    assert found["roberta-base", "glue"][0][2] == ("from RoBERTa paper Table 8",)


def test_glue_lines_of_all_papers(lines: list[GlueLine]) -> None:
    printed = [row for paper in read_papers(FOLDER).values() for row in paper.rows]
    scores = Counter(row.value for row in printed if row.suite == "GLUE dev" and row.is_score)
    held = [
        *(row for line in lines for row in line.tasks.values()),
        *(line.average for line in lines if line.average),
    ]
    assert Counter(row.value for row in held) == scores
    assert all(line.backbone for line in lines)
    assert {line.convention for line in lines} == {"", *VIEWS}
    by_line = {(line.paper, line.table, line.name): line for line in lines}
    own = by_line["modernbert", "5", "ModernBERT base"]
    assert {name: row.value for name, row in own.tasks.items()} == {
        "CoLA": "65.1", "SST-2": "96.0", "MRPC": "92.2", "STS-B": "91.8",
        "QQP": "92.1", "MNLI": "89.1", "QNLI": "93.9", "RTE": "87.4",
    }  # fmt: skip
    assert own.average is not None
    assert (own.average.value, own.average.table) == ("88.4", "1")
    assert (own.convention, own.source) == ("modernbert", "")


@pytest.mark.parametrize(
    ("paper", "name", "convention", "source"),
    [
        ("neobert", "NeoBERT_4096 medium", "neobert", ""),
        ("neobert", "ModernBERT large", "modernbert", "Warner 2024 Table 5"),
        ("neobert", "BERT base", "", "Devlin Table 1 (these are test-server numbers, QQP is F1)"),
        ("modernbert", "BERT base", "mosaicbert", "copied from MosaicBERT Table S3"),
        ("mosaicbert", "CrammingBERT-Base [18] base", "", ""),
        ("optibert", "OptiBERT_239M", "optibert", ""),
        ("optibert", "NeoBERT_1024", "", "copied from the baseline papers"),
    ],
)
def test_a_line_has_the_convention_of_who_measured_it(
    lines: list[GlueLine], paper: str, name: str, convention: str, source: str
) -> None:
    [line] = [line for line in lines if (line.paper, line.name) == (paper, name)]
    assert (line.convention, line.source) == (convention, source)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("bert-base,BERT base,bert,base,110M,,,,", "the slug of an earlier line"),
        ("x,,bert,base,110M,,,,", "has no name"),
        ("x,X,bert,base,110M", "5 fields where 9 belong"),
    ],
)
def test_a_malformed_table_of_backbones_is_named(tmp_path: Path, line: str, says: str) -> None:
    folder = Path(shutil.copytree(FOLDER, tmp_path / "reported"))
    with (folder / "backbones.csv").open("a") as file:
        file.write(f"{line}\n")
    with pytest.raises(RecordError, match=rf"backbones\.csv, line \d+: .*{says}"):
        load_backbones(folder)


def test_a_printed_name_without_a_backbone_is_named(tmp_path: Path) -> None:
    folder = Path(shutil.copytree(FOLDER, tmp_path / "reported"))
    path = folder / "models.csv"
    path.write_text(path.read_text().replace(",BERT large,", ",BERT huge,"))
    with pytest.raises(RecordError, match="no backbone is called 'BERT huge'"):
        load_backbones(folder)


# Papers' rows in suites: shares of 1, under the right columns, never ranked with the rest


TYPED = ("glue", "mteb", "mteb-v1", "beir")
SUITES = {
    typed: SiteSuite(slug=typed, typed=typed, suite=catalog.open_suite(typed, SuiteOptions()), main=True)
    for typed in TYPED
}


@pytest.fixture(scope="module")
def entries() -> list[NewEntry]:
    (unit,) = iter_paper_units(FOLDER, SUITES)
    return list(unit.read())


def test_without_a_folder_there_is_nothing() -> None:
    assert list(iter_paper_units(None, SUITES)) == []


def test_every_entry_is_a_papers_and_has_a_name_of_its_own(entries: list[NewEntry]) -> None:
    assert len(entries) > 20
    assert {(entry.origin, entry.trust) for entry in entries} == {("reported", "reported")}
    assert all(entry.outcomes == () for entry in entries)
    assert len({entry.slug for entry in entries}) == len(entries)


def test_columns_and_types_are_the_suites_own(entries: list[NewEntry]) -> None:
    for entry in entries:
        for typed, view, text in entry.averages:
            suite, document = SUITES[typed].suite, json.loads(text)
            columns = {column.name: column.type for column in suite.columns}
            assert document["columns"].keys() <= columns.keys()
            assert document["types"].keys() <= set(columns.values())
            assert bool(document["columns"]) != bool(document["types"])
            assert view in suite.conventions or (view == "" and not suite.conventions)
            shares = [*document["columns"].values(), *document["types"].values()]
            assert all(-1 <= share <= 1 for share in shares), (entry.model, document)


def test_a_mean_over_tasks_is_made_of_the_printed_types(entries: list[NewEntry]) -> None:
    """A score of its type's printed mean for every task gives that mean by the harness's own way."""
    checked = 0
    for entry in entries:
        for typed, _, text in entry.averages:
            suite, document = SUITES[typed].suite, json.loads(text)
            types = {column.type for column in suite.columns}
            if not document["types"] or document["types"].keys() != types:
                continue
            scores = {t.name: document["types"][c.type] for c in suite.columns for t in c.tasks}
            wanted = Aggregates.aggregate_scores(suite, scores)
            assert document["over_tasks"] == pytest.approx(wanted.over_tasks.value, abs=1e-9)
            assert document["over_types"] == pytest.approx(wanted.over_types.value, abs=1e-9)
            checked += 1
    assert checked > 5


def test_glue_rows_hold_what_the_file_says(entries: list[NewEntry]) -> None:
    assert FOLDER is not None
    found = 0
    for path in sorted(FOLDER.glob("*.csv")):
        with path.open(newline="") as file:
            lines = [line for line in csv.DictReader(file) if line.get("suite") == "GLUE dev"]
        for line in lines:
            if line["metric"] not in ("RTE", "QNLI", "CoLA") or not line["value"]:
                continue
            try:
                value = float(line["value"])
            except ValueError:
                continue
            same = [
                json.loads(text)["columns"].get(line["metric"])
                for entry in entries
                if entry.model.startswith(line["model"]) and line["setting"] in entry.treatment
                for slug, _, text in entry.averages
                if slug == "glue"
            ]
            scale = 1 if line["unit"] == "fraction" else 100
            assert any(share == pytest.approx(value / scale) for share in same if share is not None), line
            found += 1
    assert found > 10


def test_a_line_that_a_paper_copies_is_by_the_convention_of_its_source() -> None:
    """NeoBERT's table 3 has ModernBERT's numbers from "Warner 2024 Table 5", and NeoBERT's are its own."""
    (unit,) = iter_paper_units(FOLDER, SUITES)
    by_model = {
        entry.model: [view for slug, view, _ in entry.averages if slug == "glue"]
        for entry in unit.read()
        if isinstance(entry, NewEntry) and entry.source == "neobert" and entry.facts["table"] == "3"
    }
    # Of two conventions that make every task's number in the same way both are named.
    assert by_model["ModernBERT (base)"] == ["modernbert", "mosaicbert"]
    assert {tuple(by_model[model]) for model in by_model if model.startswith("NeoBERT")} == {
        ("neobert", "optibert")
    }


def test_a_stamp_follows_the_files(tmp_path: Path) -> None:
    assert FOLDER is not None
    for path in FOLDER.glob("*.*"):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    (first,) = iter_paper_units(tmp_path, SUITES)
    (tmp_path / "__pycache__").mkdir()
    (again,) = iter_paper_units(tmp_path, SUITES)
    assert first.stamp == again.stamp
    (tmp_path / "papers.toml").write_text((tmp_path / "papers.toml").read_text() + "\n")
    (later,) = iter_paper_units(tmp_path, SUITES)
    assert later.stamp != first.stamp
