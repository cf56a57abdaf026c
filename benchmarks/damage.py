"""Damage files of a results folder and a cache, and see that every damage is noticed and no score changes.

    python benchmarks/damage.py [--count 200] [--seed 0]

Records, files beside them, shards of vectors and prepared data sets of a small run with fake models are
hit by bit flips, truncations and swaps (another file of the kind copied over). Each is done twice. First
with the file stamps that writing leaves: what reads the file must name or redo it, and every score must come
out as before. Then with a stamp that is known already, as if it had been put back: `audit` must find it, and
its repair must leave nothing wrong. Prints counts as JSON; 1 if anything was missed. A damage that leaves the
content of JSON as it is, such as a space, is none and is counted apart.
"""

from __future__ import annotations

import json
import logging
import random
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest import mock

from measuring import read_options  # which finds the modules of tests

from fakes import FakeEncoder, FakeSource, artifact, encoding, gated
from harness.core import files
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

KINDS = {
    "records": ("results", "records/*/*/*.json"),
    "examples": ("results", "records/*/*/*.examples.parquet"),
    "runs": ("results", "records/*/*/*.run.parquet"),
    "shards": ("cache", "vectors/*/*/*.safetensors"),
    "prepared": ("cache", "datasets/*/**/*"),
}
DAMAGES = ("flip", "truncation", "swap")
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
        found = (path for path in (self.root / place).glob(pattern) if path.is_file())
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
        for record in store.iter_records():
            slug = artifact(self.root, key=record.model.artifact).slug
            store.find_examples_file(record, slug), store.run(record, slug)


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


def damaged(path: Path, others: list[Path], damage: str, chance: random.Random) -> bytes:
    """The content of a file after a damage."""
    content = path.read_bytes()
    twins = [other for other in others if other.suffix == path.suffix and other.read_bytes() != content]
    if damage == "swap" and twins:
        return chance.choice(twins).read_bytes()
    if damage == "truncation":
        return content[: chance.randrange(len(content))]
    at = chance.randrange(len(content))
    return content[:at] + bytes([content[at] ^ 1 << chance.randrange(8)]) + content[at + 1 :]


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
    return redone or any(str(path) in message for message in heard), scores == truth


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
        whole = make(Path(scratch) / "whole")
        truth = whole.run()
        assert audit(whole.results, whole.cache).clean
        for number in range(count):
            kind, damage = list(KINDS)[number % len(KINDS)], DAMAGES[number // len(KINDS) % len(DAMAGES)]
            name = f"{kind} {damage}"
            paths = whole.files(kind)
            chosen = chance.choice(paths)
            before, after = chosen.read_bytes(), damaged(chosen, paths, damage, chance)
            if before == after or same_json(before, after):
                counts[f"{name}: same content"] += 1
                continue
            world = World(root=Path(scratch) / str(number))
            place = world.root / chosen.relative_to(whole.root)
            shutil.copytree(whole.root, world.root)
            place.write_bytes(after)
            seen, right = noticed(world, kind, place, truth, before)
            counts[f"{name}: noticed"] += seen
            detail = f"{number} {name} {chosen.relative_to(whole.root)}"
            missed["silent"] += [] if seen else [detail]
            missed["score"] += [] if right else [detail]

            shutil.rmtree(world.root)
            shutil.copytree(whole.root, world.root)
            known = files.hash_file(place)
            place.write_bytes(after)
            put_back(world, place, known)
            found = audit(world.results, world.cache, repair=True)
            named = any(place == fault.file or fault.file in place.parents for fault in found.faults)
            counts[f"{name}: found by audit"] += named
            missed["audit"] += [] if named else [detail]
            clean = audit(world.results, world.cache).clean and world.run() == truth
            missed["repair"] += [] if clean else [detail]
            shutil.rmtree(world.root)
            say(f"{number + 1} of {count}")
    return {"seed": seed, "damages": count, "counts": dict(sorted(counts.items())), "missed": missed}


def main() -> int:
    asked = read_options(__doc__, count=200, seed=0)
    found = simulate(asked.count, asked.seed, lambda line: print(line, file=sys.stderr, end="\r"))
    print(json.dumps(found, indent=1))
    return 1 if any(found["missed"].values()) else 0


if __name__ == "__main__":
    sys.exit(main())
