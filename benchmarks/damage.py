"""Damage files of a results folder and a cache, and see that every damage is noticed and no score changes.

    python benchmarks/damage.py [--count 300] [--seed 0]

Every kind of file is hit by bit flips, truncations, swaps (another file of its kind copied over) and edits
whose digest was made anew, as an attacker could: a main score, a name, a key, the place of a file. Each
damage of a record, a file beside it, vectors or prepared data is done twice. First with the file stamps that
writing leaves: what reads the file must name or redo it, and every score must come out as before. Then with a
stamp that is known already, as if it had been put back: `audit` must find it, and its repair must leave
nothing wrong. Of all other kinds the reader must refuse the file, make it again, or say what it said before,
and `audit` must find the damage as well. Prints counts as JSON; 1 if anything was missed. A damage that
leaves the content of JSON as it is, such as a space, is none and is counted apart.

Left out are leases and the logs of trainings, on which no score depends. A line of the cache of hashes that
was changed is not named, as one of another machine looks the same: its file is hashed again.
"""

from __future__ import annotations

import json
import logging
import os
import random
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest import mock

from measuring import read_options  # which finds the modules of tests

from every_kind import READERS, fill_folders
from fakes import FakeEncoder, FakeSource, artifact, encoding, gated
from harness.commands.audit import KINDS as AUDITED
from harness.core import files
from harness.core.documents import append_digest, verify_digest
from harness.core.errors import HarnessError
from harness.core.types import Column, Data, Outcome, Suite, Task, TextEncoder
from harness.data.locate import DataSettings
from harness.driver.execute import Driver
from harness.encoder import sanity
from harness.jobs.context import JobContext
from harness.plan.plan import ConfiguredModel, Plan
from harness.results.audit import audit
from harness.storage.record import RUN_COLUMNS
from harness.storage.store import Store
from stored_records import iter_records

KINDS = {
    "records": ("results", "records/*/*/*.json"),
    "examples": ("results", "records/*/*/*.examples.parquet"),
    "runs": ("results", "records/*/*/*.run.parquet"),
    "shards": ("cache", "vectors/*/*/*.safetensors"),
    "prepared": ("cache", "datasets/*/**/*"),
    "baselines": ("results", "baselines/*.json"),
    "checks": ("results", "checks/*.json"),
    "proxies": ("results", "proxies/*.json"),
    "watches": ("results", "watches/*.json"),
    "stamps": ("results", "imported/*/import.json"),
    "tables": ("results", "imported/*/*.parquet"),
    "models": ("results", "models/tiny-*/model.json"),
    "model weights": ("results", "models/tiny-*/*.safetensors"),
    "trainings": ("results", "models/.training-*/training.json"),
    "heads": ("results", "runs/*/run.json"),
    "heartbeats": ("results", "runs/*/status.json"),
    "events": ("results", "runs/*/jobs.jsonl"),
    "hashes": ("cache", "file-hashes.jsonl"),
    "speeds": ("cache", "speeds.json"),
    "verdicts": ("cache", "verdicts/*.json"),
    "counts": ("cache", "source/*.json"),
    "grids": ("cache", "finetuned/*/best.json"),
    "weights": ("cache", "finetuned/*/*.safetensors"),
    "units": ("cache", "units/*.npz"),
    "lists": ("cache", "records/*.sqlite"),
    "clusters": ("cache", "clusters/*/clusters.parquet"),
    "indexes": ("cache", "plaid/*/*"),
    "unpacked": ("cache", "baselines/*/**/*"),
    "site": ("cache", "site/*/**/*"),
}
"""The root and the form of the paths of every kind."""

RUN_KINDS = ("records", "examples", "runs", "shards", "prepared")
"""The kinds that a run reads, or makes scores of."""

AS_ONE = {"stamps": "imports", "tables": "imports", "model weights": "models"}
"""The reader of a kind, where it has another name."""

DAMAGES = ("flip", "truncation", "swap", "edit")
MODELS = ("a" * 64, "b" * 64)
DATA_SETS = ("org/one", "org/two")

Scores = dict[str, float | None]


@dataclass(frozen=True, kw_only=True)
class DataSource(FakeSource):
    """Scores the texts of a data set in the data root, as the datasets library prepares them."""

    def evaluate(self, task: Task, encoder: TextEncoder, *, seed: int, data: Path | None) -> Outcome:
        import datasets

        texts = tuple(datasets.load_dataset(str(data), split="train")["text"][:])
        found = FakeSource(texts=texts).evaluate(task, encoder, seed=seed, data=data)
        hit = ("test", "default", "q", task.name, 1, found.main_score)
        return replace(found, run={name: [value] for name, value in zip(RUN_COLUMNS, hit, strict=True)})


@dataclass(frozen=True, kw_only=True)
class World:
    """A results folder, a cache and a data root."""

    root: Path

    @property
    def results(self) -> Path:
        return self.root / "results"

    @property
    def cache(self) -> Path:
        return self.root / "cache"

    def files(self, kind: str) -> list[Path]:
        """The files of a kind, sorted."""
        place, pattern = KINDS[kind]
        found = (path for path in (self.root / place).glob(pattern) if path.is_file() and path.stat().st_size)
        return sorted(path for path in found if path.suffix != ".lock")

    def run(self, *, force: bool = False) -> Scores:
        """The score of every model and task; with `force` from vectors and data instead of records."""
        store = Store(self.results)
        settings = DataSettings(root=self.root / "data", cache=self.cache, offline=True)
        tasks = [
            Task(
                name=path.partition("/")[2],
                type="STS",
                metric="cosine_spearman",
                splits=("test",),
                data=Data(path=path, revision="r"),
                source=DataSource(),
            )
            for path in DATA_SETS
        ]
        suite = Suite(
            name="s", title="s", columns=tuple(Column(name=t.name, type=t.type, tasks=(t,)) for t in tasks)
        )
        subjects = [ConfiguredModel(artifact=artifact(self.root, key=k), encoding=encoding()) for k in MODELS]
        planned = Plan.make(subjects, [suite], store=store, settings=settings, force=force)
        results = Driver(planned, store=store, cache=self.cache, again=force).run()
        found = {f"{r.cell.subject.artifact.key[:1]} {r.cell.task.name}": r for r in results}
        problems = [r.failure.message for r in results if r.failure is not None]
        if problems:
            raise HarnessError(problems[0])
        return {name: r.record.main_score if r.record else None for name, r in found.items()}

    def read_beside(self) -> None:
        """Ask for every file beside a record, as whatever reads one does."""
        store = Store(self.results)
        for record in iter_records(store):
            slug = artifact(self.root, key=record.model.artifact).slug
            store.find_part_file(record, slug), store.find_part_file(record, slug, "run")


@contextmanager
def fake_models() -> Iterator[None]:
    """Models made of hashes instead of weights."""
    with (
        mock.patch.object(JobContext, "load_encoder", lambda _self, model, _how: FakeEncoder(salt=model.key)),
        mock.patch.object(sanity, "check_encoder", return_value=gated()),
        mock.patch.object(sanity, "require_sane", return_value=None),
        mock.patch.object(files, "SETTLED_NS", -1),
    ):
        yield


@contextmanager
def warnings() -> Iterator[list[str]]:
    """The warnings of the harness meanwhile."""
    heard: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: heard.append(record.getMessage())  # type: ignore[method-assign]
    logger = logging.getLogger("harness")
    logger.addHandler(handler)
    logger.propagate = False
    try:
        yield heard
    finally:
        logger.removeHandler(handler)
        logger.propagate = True


def make(root: Path) -> World:
    """A world after one run."""
    import datasets

    datasets.disable_progress_bars()
    world = World(root=root)
    for at, path in enumerate(DATA_SETS):
        folder = root / "data" / path
        folder.mkdir(parents=True)
        rows = [{"text": f"text {number} of {at}", "id": number} for number in range(200)]
        (folder / "train.jsonl").write_text("\n".join(map(json.dumps, rows)))
    world.run()
    return world


def damaged(path: Path, others: list[Path], kind: str, damage: str, chance: random.Random) -> bytes:
    """The content of a file after a damage."""
    content = path.read_bytes()
    twins = [other for other in others if other.suffix == path.suffix and other.read_bytes() != content]
    if damage == "swap" and twins:
        return chance.choice(twins).read_bytes()
    if damage == "edit" and kind in EDITS:
        edited = verify_digest(content)
        chance.choice(EDITS[kind])(edited)
        return append_digest(edited).encode()
    if damage == "truncation":
        return content[: chance.randrange(len(content))]
    at = chance.randrange(len(content))
    return content[:at] + bytes([content[at] ^ 1 << chance.randrange(8)]) + content[at + 1 :]


Edit = Callable[[dict[str, Any]], object]

EDITS: Mapping[str, Sequence[Edit]] = {
    "records": (
        lambda record: record.update(main_score=record["main_score"] + 0.01),
        lambda record: record["scores"]["test"]["default"].update(main_score=0.99),
        lambda record: record.update(scores={}),
        lambda record: record.update(key="f" * 64),
        lambda record: record["identity"].update(seed=7),
        lambda record: record["model"].update(artifact="f" * 64),
        lambda record: record["task"].update(name="other"),
        lambda record: record["examples"].update(sha256="f" * 64),
        lambda record: record["examples"].update(file="../../x"),
        lambda record: record.update(status="failed"),
    ),
    "baselines": (
        lambda baseline: baseline.update(name="other"),
        lambda baseline: baseline["runs"][0].update(folder="../../x"),
    ),
    "checks": (lambda check: check.update(id="other"), lambda check: check.update(when="2027")),
    "proxies": (lambda proxy: proxy.update(name="other"), lambda proxy: proxy.update(tasks=[])),
    "watches": (lambda watch: watch.update(name="other"),),
    "stamps": (
        lambda stamp: stamp.update(id="../../../../x"),
        lambda stamp: stamp.update(source="other"),
        lambda stamp: stamp["tables"]["scores"].update(sha256="f" * 64),
    ),
    "models": (
        lambda model: model.update(key="f" * 64),
        lambda model: model["lineage"].update(seed=7),
        lambda model: model.update(content="f" * 64),
    ),
    "trainings": (lambda facts: facts.update(key="f" * 64),),
    "verdicts": (lambda verdict: verdict.update(file="other"),),
    "counts": (lambda counts: counts.update(file="other"),),
}
"""What an attacker could write with the digest made anew, by kind, and every reader must refuse."""


def same_json(before: bytes, after: bytes) -> bool:
    """Whether two files hold the same JSON."""
    try:
        return bool(json.loads(before) == json.loads(after))
    except ValueError:
        return False


def noticed(world: World, kind: str, path: Path, truth: Scores, before: bytes) -> tuple[bool, bool]:
    """Whether what reads a damaged file names it or makes it again, and whether every score is right."""
    files._read_so_far.clear()
    with warnings() as heard:
        try:
            scores = world.run(force=kind in ("shards", "prepared"))
            world.read_beside()
        except HarnessError as error:
            return str(path) in str(error), True
    redone = kind == "prepared" and path.exists() and path.read_bytes() == before
    # A record that names other content than that of its file is named by the file beside it.
    return redone or any(str(path.with_suffix("")) in message for message in heard), scores == truth


def refused(world: World, kind: str, truth: Mapping[str, Any]) -> bool:
    """Whether the reader of a kind says nothing else than before of any of its files, or refuses them."""
    files._read_so_far.clear()
    if kind == "hashes":
        return {name: hash_data(world)[name] for name in truth} == truth
    said = READERS[AS_ONE.get(kind, kind)](world.results, world.cache)
    return all(value is None or truth.get(name) == value for name, value in said.items())


def hash_data(world: World) -> dict[str, str]:
    """The hashes of the data sets' files, as far as possible from the cache."""
    paths = sorted((world.root / "data").rglob("*.jsonl"))
    return {path.name + path.parent.name: files.hash_file(path, world.cache) for path in paths}


def place_cache(world: World) -> Any:
    """Let the cache of a world be that of this process."""
    return mock.patch.dict(os.environ, {"HARNESS_CACHE": str(world.cache)})


def put_back(world: World, path: Path, before: str) -> None:
    """Let the cache of hashes know the damaged file's stamp under its former hash."""
    files._append_hash(world.cache / files.CACHE_FILE, files._build_stat_key(path), before)
    files._read_so_far.clear()


def simulate(count: int, seed: int, say: Callable[[str], None] = lambda _: None) -> dict[str, Any]:
    """Do so many damages; gives the counts."""
    chance = random.Random(seed)
    counts: Counter[str] = Counter()
    missed: dict[str, list[str]] = {"silent": [], "score": [], "audit": [], "repair": []}
    with tempfile.TemporaryDirectory() as scratch, fake_models():
        whole = World(root=Path(scratch) / "whole")
        with place_cache(whole):
            make(whole.root)
            fill_folders(whole.results, whole.cache)
        scores = whole.run()
        assert audit(whole.results, whole.cache, kinds=AUDITED).clean
        for number in range(count):
            kind, damage = list(KINDS)[number % len(KINDS)], DAMAGES[number // len(KINDS) % len(DAMAGES)]
            if damage == "edit" and kind not in EDITS:
                damage = chance.choice(DAMAGES[:3])
            name = f"{kind} {damage}"
            paths = whole.files(kind)
            chosen = chance.choice(paths)
            before, after = chosen.read_bytes(), damaged(chosen, paths, kind, damage, chance)
            if before == after or same_json(before, after):
                counts[f"{name}: same content"] += 1
                continue
            world = World(root=Path(scratch) / "copy")
            detail = f"{number} {name} {chosen.relative_to(whole.root)}"
            with place_cache(world):
                for part, missing in try_damage(whole, world, kind, chosen, after, scores).items():
                    missed[part] += [detail] if missing else []
            counts[name] += 1
            say(f"{number + 1} of {count}")
    return {"seed": seed, "damages": count, "counts": dict(sorted(counts.items())), "missed": missed}


def try_damage(
    whole: World, world: World, kind: str, chosen: Path, after: bytes, scores: Scores
) -> dict[str, bool]:
    """Damage one file of a copy of a world, twice: what was missed."""
    place, before = world.root / chosen.relative_to(whole.root), chosen.read_bytes()
    copy(whole, world)
    truth: Mapping[str, Any] = {}
    if kind == "hashes":
        truth = hash_data(world)
    elif kind not in RUN_KINDS:
        truth = READERS[AS_ONE.get(kind, kind)](world.results, world.cache)
        copy(whole, world)
    place.write_bytes(after)
    if kind in RUN_KINDS:
        seen, right = noticed(world, kind, place, scores, before)
    else:
        seen, right = refused(world, kind, truth), True
    copy(whole, world)
    known = files.hash_file(place)
    place.write_bytes(after)
    put_back(world, place, known)
    # What counts of clusters is their content, and nothing reads the statistics in their file.
    harmless = kind == "clusters" and READERS[kind](world.results, world.cache) == truth
    found = audit(world.results, world.cache, kinds=AUDITED, repair=True)
    # What names others is at fault with them: a stamp with its tables, a grid with its weights.
    named = any(fault.file in place.parents or fault.file.parent == place.parent for fault in found.faults)
    # A line of another machine, and a log that was cut off by a crash, look the same.
    named |= harmless or kind == "hashes" or (kind == "events" and before.startswith(after))
    clean = audit(world.results, world.cache, kinds=AUDITED).clean and world.run() == scores
    return {"silent": not seen, "score": not right, "audit": not named, "repair": not clean}


def copy(whole: World, world: World) -> None:
    """Make a copy of a world, in place of an earlier one."""
    shutil.rmtree(world.root, ignore_errors=True)
    shutil.copytree(whole.root, world.root)


def main() -> int:
    asked = read_options(__doc__, count=300, seed=0)
    found = simulate(asked.count, asked.seed, lambda line: print(line, file=sys.stderr, end="\r"))
    print(json.dumps(found, indent=1))
    return 1 if any(found["missed"].values()) else 0


if __name__ == "__main__":
    sys.exit(main())
