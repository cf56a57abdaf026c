"""A small site: a few measured records, a small import, the papers' tables, and four suites.

`small_site(folder)` gives the site itself, `small_app(folder)` its application. Both are quick
(about a second), so a module's tests may share one; every page has something to show:

- `minilm-ish`: measured, vectors, all of NanoBEIR; a task of MTEB(eng, v2) failed.
- `acme/tiny-base`: measured with the recipe glue-optibert on RTE and CoLA, with a grid and seeds.
- checks of both and a watch (judged_data).
- `acme/tiny-base`, `acme/tiny-large`, HOSTILE: imported, all or part of NanoBEIR and MTEB(kor, v1);
  tiny-large was made of tiny-base, and its card says that it was trained on one of the tasks.

`fill_trained` adds models that a recipe made:

- `tiny-base-simcse`: a model that a recipe made of `acme/tiny-base` under three seeds: all of NanoBEIR,
  and on two tasks of mteb, of which the third seed lacks one; texts of a task are in its training data.
- `tiny-base-own`: the same once, with another batch size, own data, and a checkpoint that was chosen.

`fill_swept` adds to the standard ones `tiny-base-swept`, the best of six models that differ in their learning
rate, chosen by four tasks of NanoBEIR: 0.9 on these and 0.4 on the nine others.
"""

from __future__ import annotations

import atexit
import json
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from statistics import fmean
from typing import Any
from unittest import mock

import pyarrow as pa
from fastapi import FastAPI

from fakes import artifact, encoding
from harness.core import files
from harness.core.keys import (
    Lineage,
    MemberPart,
    ParentPart,
    SweepPart,
    build_evaluation_identity,
    build_task_identity,
    digest,
    serialize_canonical,
)
from harness.core.types import Artifact, SuiteOptions, Task
from harness.jobs.jobs import build_model_part
from harness.plan import catalog
from harness.storage import imported
from harness.storage.record import ErrorPart, Record, build_task_part
from harness.storage.store import Store
from judged_data import put_checks, put_compared_runs, put_watches
from leaderboard.data.mteb_import import SCHEMA, infer_revision_trust
from leaderboard.data.settings import SiteSettings
from leaderboard.data.suites import SiteSuite, format_slug
from leaderboard.web.app import create_app
from leaderboard.web.site import Site, open_site

HOSTILE = "../evil/<script>alert('x')</script> \"q\" é"
"""A model's name that must stand escaped wherever it is shown."""

COMMIT = "a" * 40
TYPED = ("glue", "nanobeir", "mteb:MTEB(kor, v1)", "mteb")
PACKAGES = {"torch": "2.11.0", "mteb": "2.26.24"}

Scores = Mapping[str, float]


@dataclass(frozen=True, kw_only=True)
class Import:
    """One imported entry: main scores by task (split, subset and data are the suites' own).

    `others` are tasks on another revision of the data (`other`), `card` is what the model's card says, and
    `rows` are the rows of the scores where they are not one for each split and subset.
    """

    model: str
    revision: str = COMMIT
    scores: Scores
    others: Sequence[str] = ()
    other: str = "0" * 40
    card: Mapping[str, Any] = field(default_factory=dict)
    version: str = "2.1.0"
    rows: Sequence[dict[str, Any]] = ()


def open_suites(*typed: str) -> dict[str, SiteSuite]:
    """Suites as a site lists them, by slug."""
    opened = {name: catalog.open_suite(name, SuiteOptions()) for name in typed}
    return {format_slug(name): SiteSuite(slug=format_slug(name), typed=name, suite=one, main=":" not in name)
            for name, one in opened.items()}  # fmt: skip


@cache
def suites() -> dict[str, SiteSuite]:
    """The suites of the site, by slug."""
    return open_suites(*TYPED)


def task(name: str) -> Task:
    """A task of one of the suites."""
    return next(t for one in suites().values() for t in one.suite.tasks if t.name == name)


def names(suite: str) -> list[str]:
    """The tasks of a suite, by its slug."""
    return [t.name for t in suites()[suite].suite.tasks]


def spread_scores(tasks: Sequence[str], base: float) -> dict[str, float]:
    """A score for each task, a little apart from one another."""
    return {name: round(base + (at % 5) / 50, 4) for at, name in enumerate(tasks)}


def scored(
    model: Artifact, name: str | Task, score: float | None, *, error: ErrorPart | None = None
) -> Record:
    """The record of a finished model on a task; without a score, of its failure."""
    of = task(name) if isinstance(name, str) else name
    identity = json.loads(serialize_canonical(build_evaluation_identity(model, of, encoding(), seed=42)))
    splits = {split: {s: {"main_score": score, of.metric: score} for s in of.subsets} for split in of.splits}
    return Record(
        key=digest(identity), status="failed" if error else "done", model=_model(model),
        task=build_task_part(of), identity=identity, main_score=score, scores={} if error else splits,
        error=error,
        provenance=provenance(seconds={"encode": 1.5, "score": 0.25}, notes=["batches made smaller"]),
    )  # fmt: skip


def trained(model: Artifact, name: str, score: float, **training: Any) -> Record:
    """The record of a task that a recipe trained for: a grid of 3 learning rates x 2 batch sizes, 3 seeds."""
    of = task(name)
    own: dict[str, Any] = {
        "recipe": "glue-optibert", "protocol": "p" * 64, "kind": "fresh", "view": "optibert",
        "final_seeds": [], "fresh_seeds": [42001, 42002, 42003],
    }  # fmt: skip
    identity = {**json.loads(serialize_canonical(build_task_identity(model, of))), **own}
    assert hasattr(of.source, "metrics")
    metrics = dict.fromkeys(of.source.metrics, score)
    return Record(
        key=digest(identity), status="done", model=_model(model), task=build_task_part(of), identity=identity,
        main_score=score, scores={split: {of.subsets[0]: metrics} for split in of.splits},
        training={**training_of(score), **training},
        provenance=provenance(seconds={"train": 61.5}, notes=[]),
    )  # fmt: skip


def training_of(score: float) -> dict[str, Any]:
    """What a final record says of its grid and seeds (results/README.md); the last cell diverged."""
    settings = [(rate, size) for rate in (1e-5, 3e-5, 1e-4) for size in (16, 32)]
    cells: list[dict[str, Any]] = [
        {"learning_rate": rate, "batch_size": size, "weight_decay": 0.01, "epochs": 3, "seed": 0,
         "score": round(score - at / 100, 4), "metrics": [], "diverged": False, "constant": False,
         "micro_batch": None, "key": f"{at:064x}"}
        for at, (rate, size) in enumerate(settings)
    ]  # fmt: skip
    cells[-1] |= {"score": None, "diverged": True}
    cell_names = ("learning_rate", "batch_size", "weight_decay", "epochs", "seed")
    return {
        "recipe": "glue-optibert", "from": "OptiBERT, appendix D.1", "assumed": ["the warmup"],
        "view": "optibert", "runs": {"protocol": 6, "fresh": 3}, "start": None, "source": None,
        "chosen": {name: cells[0][name] for name in cell_names}, "grid_maximum": cells[0]["score"],
        "cells": cells, "diverged": 1, "constant": 0,
        "seeds": {"kind": "fresh", "seeds": [42001, 42002, 42003], "keys": ["b" * 64, "c" * 64, "d" * 64],
                  "scores": [score - 0.01, score, score + 0.01], "standard_deviation": 0.01,
                  "diverged": 0, "constant": 0},
        "evaluation": {
            "counts": "best", "evaluations": [30, 44, 26],
            "last": {"score": round(score - 0.03, 4), "metrics": []},
            "cross_fitted": {"score": round(score - 0.02, 4), "metrics": []},
        },
    }  # fmt: skip


def provenance(**more: Any) -> dict[str, Any]:
    """What a record says of how it was run."""
    return {
        "harness": "0.1.0", "commit": "c0ffee" * 6 + "abcd", "dirty": False, "python": "3.11.7",
        "platform": "Linux x86_64", "packages": PACKAGES, "device": {"kind": "cpu", "name": "AMD EPYC"},
        "cpu": "AMD EPYC", "cores": 4, "threads": 2, "dtype_as_run": "float32", "attention": "sdpa",
        "started": "2026-11-01T10:00:00+00:00", "written": "2026-11-01T10:05:00+00:00",
        "prompts_asked": {"named": {"query": "query: "}, "default": None}, **more,
    }  # fmt: skip


def measured_model(name: str, letter: str = "a", **facts: Any) -> Artifact:
    """A model that was measured; another letter makes another one."""
    return replace(artifact(Path(name), key=letter * 64, name=name, **facts), weights=letter * 64)


def put(folder: Path, model: Artifact, records: Sequence[Record]) -> None:
    """Write records into a results folder."""
    store = Store(folder)
    for record in records:
        store.put(model.slug, record)


def standard_records(folder: Path) -> None:
    """The measured records that the module's docstring names."""
    minilm, tiny = measured_model("minilm-ish"), measured_model("acme/tiny-base", "b", revision=COMMIT)
    failed = ErrorPart(kind="DataError", message="no <b>data</b>", hint="Fetch it.", traceback="Traceback …")
    done = [scored(minilm, name, score) for name, score in spread_scores(names("nanobeir"), 0.5).items()]
    put(folder, minilm, [*done, scored(minilm, names("mteb")[0], None, error=failed)])
    put(folder, tiny, [trained(tiny, "RTE", 0.7), trained(tiny, "CoLA", 0.55)])


SEEDS = (1, 2, 3)


def made_of(seed: int, **changes: Any) -> Lineage:
    """What the recipe simcse made of acme/tiny-base under a seed."""
    fields: dict[str, Any] = {
        "recipe": "simcse", "variant": "mean", "source": "OptiBERT, fine-tuning for MTEB",
        "settings": {"pooling": "mean", "batch_size": 512}, "assumed": ("the head",),
        "parents": (ParentPart(name="acme/tiny-base", artifact="b" * 64, revision=COMMIT),),
        "data": ({"path": "sentence-transformers/all-nli", "revision": "d" * 40},), "seed": seed,
    }  # fmt: skip
    return Lineage(**{**fields, **changes})


def put_model(folder: Path, name: str, lineage: Lineage, scores: Scores, **provenance: Any) -> Artifact:
    """Write the records of a model that a recipe made; of `scores`, task to score."""
    model = replace(artifact(Path(name), key=lineage.key, name=name), weights=lineage.key)
    records = [scored(model, task, score) for task, score in scores.items()]
    more = [{"lineage": lineage, "provenance": {**one.provenance, **provenance}} for one in records]
    put(folder, model, [one.model_copy(update=own) for one, own in zip(records, more, strict=True)])
    return model


def put_simcse(folder: Path) -> None:
    """Write the models of the recipe simcse that the module's docstring names."""
    nano, more = names("nanobeir"), names("mteb")[:2]
    for at, seed in enumerate(SEEDS):
        scores = {name: score + at / 100 for name, score in spread_scores(nano, 0.55).items()}
        put_model(folder, "tiny-base-simcse", made_of(seed), {**scores, more[0]: 0.5})
        if seed != SEEDS[-1]:
            texts = {"texts": 3000, "texts_trained_on": 12}
            put_model(folder, "tiny-base-simcse", made_of(seed), {more[1]: 0.5 + at / 10}, **texts)
    own = made_of(
        1, settings={"pooling": "mean", "batch_size": 64}, changed={"batch_size": 64}, own_data="pairs.csv",
        selected_on=(nano[1],),
    )  # fmt: skip
    put_model(folder, "tiny-base-own", own, spread_scores(nano, 0.45), texts=3000, texts_trained_on=12)


RATES = (1e-5, 2e-5, 3e-5, 5e-5, 8e-5, 1e-4)


def sweep_of(
    tasks: Sequence[str] | Mapping[str, Mapping[str, Any]],
    values: Sequence[Any] = RATES,
    best: int = 4,
    **changes: Any,
) -> SweepPart:
    """A sweep whose members' scores fall from the best one on to both sides, 0.1 a step."""
    whole = not isinstance(tasks, Mapping)
    by = {name: {"task": name, "splits": list(task(name).splits)} for name in tasks} if whole else tasks
    curve = []
    for at, value in enumerate(values):
        scores = {name: 0.9 - abs(at - best) / 10 - number / 100 for number, name in enumerate(tasks)}
        member = MemberPart(value=value, artifact=f"{at:064x}", scores=scores, mean=fmean(scores.values()))
        curve.append(member)
    fields: dict[str, Any] = {
        "setting": "learning_rate", "values": tuple(values), "chosen": values[best], "curve": tuple(curve),
        "tasks": by,
    }  # fmt: skip
    return SweepPart(**{**fields, **changes})


def put_swept(
    folder: Path, name: str = "tiny-base-swept", seed: int = 1, tasks: Sequence[str] = (), **changes: Any
) -> Artifact:
    """Write the records of the swept model that the module's docstring names, or of one by other tasks."""
    nano = names("nanobeir")
    made = made_of(seed, sweep=sweep_of(tasks or nano[:4], **changes))
    return put_model(folder, name, made, {one: 0.9 if at < 4 else 0.4 for at, one in enumerate(nano)})


def standard_imports() -> list[Import]:
    """The imported entries that the module's docstring names."""
    nano, korean = names("nanobeir"), names("mteb-MTEB-kor-v1")
    base = {"card_name": "acme/tiny-base", "n_parameters": 22_000_000, "embed_dim": 384, "max_tokens": 512,
            "license": "mit", "open_weights": True, "release_date": "2025-02-03", "card": True,
            "languages": ["eng-Latn", "fra-Latn"], "framework": ["PyTorch"],
            "training_datasets": []}  # fmt: skip
    large = {**base, "card_name": "acme/tiny-large", "n_parameters": 335_000_000, "open_weights": False,
             "adapted_from": "acme/tiny-base", "training_datasets": [nano[0], "Elsewhere"]}  # fmt: skip
    return [
        Import(model="acme/tiny-base", scores=spread_scores(nano, 0.52), card=base),
        Import(model="acme/tiny-large", scores=spread_scores([*nano, *korean], 0.6), others=korean[:1],
               card=large),
        Import(model=HOSTILE, revision="external", scores=spread_scores(nano[:3], 0.4)),
    ]  # fmt: skip


FILES = pa.schema([("entry", pa.int32()), ("path", pa.string()), ("task", pa.string())])


def put_imports(folder: Path, entries: Sequence[Import]) -> None:
    """Write an import into a results folder."""
    about: list[dict[str, Any]] = []
    scores: list[dict[str, Any]] = []
    files: list[dict[str, Any]] = []
    for number, one in enumerate(entries):
        own = () if one.rows else one.scores.items()
        rows = [*one.rows, *(row for name, score in own for row in _rows(number, name, score, one))]
        about.append(
            {"folder": f"{number}", "model": one.model, "revision": one.revision, "experiment": "",
             "trust": infer_revision_trust(one.revision), "files": len(one.scores), "rows": len(rows),
             "digest": digest(rows), "card": bool(one.card), **one.card}
        )  # fmt: skip
        scores += rows
        folder_name = f"{one.model.replace('/', '__')}/{one.revision}"
        files += [{"entry": number, "path": f"{folder_name}/{t}.json", "task": t} for t in one.scores]
    tables = {
        "entries": pa.Table.from_pylist(about, schema=SCHEMA),
        "files": pa.Table.from_pylist(files, schema=FILES),
        "scores": pa.Table.from_pylist(scores),
    }
    home = imported.Imported.resolve_import_folder(folder, "mteb-results")
    with imported.Imported.lock(home):
        imported.Imported.publish(
            home,
            tables,
            {"counts": {"entries": len(about), "files": sum(one["files"] for one in about)}},
            {"parser": 1},
        )


def _rows(number: int, name: str, score: float, one: Import) -> list[dict[str, Any]]:
    of = task(name)
    data = one.other if name in one.others else of.data.revision
    return [
        {"entry": number, "task": name, "split": split, "subset": subset, "main_score": score, "flag": "",
         "data_revision": data, "mteb_version": one.version}
        for split in of.splits for subset in of.subsets
    ]  # fmt: skip


def small_settings(folder: Path, **more: Any) -> SiteSettings:
    """Settings of a site over `folder`, its snapshots beside the results."""
    return SiteSettings(
        results=(folder / "results",),
        reported=files.find_reported_folder(),
        snapshots=folder / "site",
        refresh=0,
        **more,
    )


@cache
def _template(*parts: Callable[[Path], object]) -> Path:
    """A results folder that these have written, once for a process."""
    folder = Path(tempfile.mkdtemp(prefix="small-site-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    for put_part in parts:
        put_part(folder)
    return folder


def _put_standard_imports(folder: Path) -> None:
    put_imports(folder, standard_imports())


STANDARD = (standard_records, _put_standard_imports, put_checks, put_watches, put_compared_runs)


def _fill_with(*parts: Callable[[Path], object]) -> Callable[[Path], None]:
    return lambda folder: shutil.copytree(_template(*parts), folder / "results", dirs_exist_ok=True) and None


fill = _fill_with(*STANDARD)
"""Writes the standard records and imports."""

fill_trained = _fill_with(*STANDARD, put_simcse)
"""Writes the standard ones, and models that a recipe made."""

fill_swept = _fill_with(*STANDARD, put_swept)
"""Writes the standard ones, and the model of a sweep."""


def small_site(folder: Path, make: Callable[[Path], None] = fill) -> Site:
    """The site over what `make` writes below `folder`."""
    make(folder)
    with mock.patch("leaderboard.data.snapshot.load_site_suites", return_value=suites()):
        return open_site(small_settings(folder))


def small_app(folder: Path, make: Callable[[Path], None] = fill) -> FastAPI:
    """The same as an application; `app.state.site` is the site."""
    make(folder)
    with mock.patch("leaderboard.data.snapshot.load_site_suites", return_value=suites()):
        return create_app(small_settings(folder))


def _model(model: Artifact) -> Any:
    return build_model_part(model, {"parameters": 22_713_216, "dimension": 384})


@cache
def standard_app() -> FastAPI:
    """The small site as an application that the tests of a process share; none may change what it is of."""
    folder = Path(tempfile.mkdtemp(prefix="small-site-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    fill(folder)
    with mock.patch("leaderboard.data.snapshot.load_site_suites", return_value=suites()):
        return create_app(small_settings(folder, pages_a_minute=1_000_000))


def every_path(app: FastAPI) -> list[str]:
    """The address of every page of a site, without its formats."""
    site = app.state.site
    return [path for route in site.pages for path in route.all_paths(site)]


def different_paths(app: FastAPI) -> list[str]:
    """The same, of the pages of tasks, which are alike, some twenty."""
    tasks = [path for path in every_path(app) if path.startswith("/tasks/")]
    few = tasks[:: 1 + len(tasks) // 20]
    return [path for path in every_path(app) if path not in tasks or path in few]


VOID = frozenset(
    ["area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr"]
)


CELLS = ("td", "th")
ENDED_BY = {"td": CELLS, "th": CELLS, "tr": (*CELLS, "tr")}
"""What the start of a cell or row ends: HTML lets their ends be left out."""


class Parsed(HTMLParser):
    """What a page holds: its elements in order, its texts, and what is wrong with its nesting."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.texts: list[str] = []
        self.wrong: list[str] = []
        self._open: list[str] = []
        self.feed(html)
        self.close()
        self.wrong += [f"<{tag}> is not closed" for tag in self._open]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._end(ENDED_BY.get(tag, ()))
        names = [name for name, _ in attrs]
        self.wrong += [f"<{tag}> has {name} twice" for name in set(names) if names.count(name) > 1]
        self.elements.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self._open.pop()

    def _end(self, tags: tuple[str, ...]) -> None:
        while self._open and self._open[-1] in tags:
            self._open.pop()

    def handle_endtag(self, tag: str) -> None:
        if tag in ("tr", "thead", "tbody", "table"):
            self._end(CELLS if tag == "tr" else ENDED_BY["tr"])
        if not self._open or self._open.pop() != tag:
            self.wrong.append(f"</{tag}> closes nothing at {self.getpos()}")

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    def all(self, tag: str) -> list[dict[str, str]]:
        """The attributes of every element of a name."""
        return [attributes for name, attributes in self.elements if name == tag]

    @property
    def links(self) -> list[str]:
        """Where elements lead or what they load."""
        return [a[n] for _, a in self.elements for n in ("href", "src", "action") if n in a]

    @property
    def text(self) -> str:
        """All of the texts."""
        return "".join(self.texts)
