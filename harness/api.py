"""The Python call: `harness.run(...)` does what `harness run` does, and returns it."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from harness.aggregate import Aggregates, aggregate
from harness.conventions import Convention, raw
from harness.crowd import Crowd, crowd
from harness.devices import check_devices, default_devices
from harness.encoder.weights import weight_files
from harness.errors import unknown
from harness.execute import Listeners, Result, Run
from harness.opened import network, opened
from harness.plan import Plan, make_plan
from harness.recipe import Recipe, RecipeOptions
from harness.record import Record
from harness.request import Request
from harness.standing import Standing, learnt_part, standing
from harness.store import Store
from harness.types import Settings, Suite, SuiteOptions, Task
from harness.views import notes_of
from harness.wanted import Subject

SCHEMA = 1
"""Version of the JSON that a report becomes (docs/json.md)."""


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """A request with everything resolved: what will run, and where it is kept.

    `asked` is what each of the request's models came out as; `subjects` has each once.
    """

    request: Request
    asked: tuple[Subject, ...]
    subjects: tuple[Subject, ...]
    suites: tuple[Suite, ...]
    plan: Plan
    store: Store
    cache: Path
    recipe: Recipe | None = None

    def label(self, one: Subject) -> str:
        """A model's name, with the start of its key where another model has the same name."""
        name = one.artifact.name
        alike = sum(other.artifact.name == name for other in self.subjects)
        return f"{name} ({one.artifact.key[:8]})" if alike > 1 else name

    @property
    def devices(self) -> tuple[str, ...]:
        """The devices asked for; else every GPU, or the CPU."""
        return self.request.devices or default_devices()


@dataclass(frozen=True, kw_only=True, repr=False)
class Report:
    """What a run gives: a result for each wanted score, and the aggregates of each suite."""

    prepared: Prepared
    results: tuple[Result, ...]
    texts_encoded: int
    tokens_encoded: int

    @property
    def records(self) -> tuple[Record, ...]:
        """The finished records, in the order of the plan."""
        return tuple(r.record for r in self.results if r.record is not None and r.record.status == "done")

    @property
    def failures(self) -> tuple[Result, ...]:
        """What failed, could not be run, or was not reached."""
        return tuple(r for r in self.results if r.how in ("failed", "impossible", "stopped"))

    @property
    def exit_code(self) -> int:
        """0 if every wanted score is there, else 1."""
        return 1 if self.failures else 0

    def aggregates(self, one: Subject, suite: Suite) -> Aggregates:
        """A suite's columns and means for one model."""
        numbers = {name: self._number(suite, record) for name, record in self._done(one, suite).items()}
        return aggregate(suite, {name: value for name, value in numbers.items() if value is not None})

    def standing(self, one: Subject, suite: Suite) -> Standing | None:
        """One model on what it was trained for in a suite, with intervals; None if there is no such task."""
        part = learnt_part(suite)
        if part is None:
            return None
        store, slug = self.prepared.store, one.artifact.slug
        return standing(
            part,
            self._done(one, part),
            self._convention(suite),
            lambda record: store.examples(record, slug),
        )

    def _done(self, one: Subject, suite: Suite) -> dict[str, Record]:
        """What is there of a suite, by task."""
        found = {task.name: self.result(one, task).record for task in suite.tasks}
        return {name: record for name, record in found.items() if record and record.status == "done"}

    def _convention(self, suite: Suite) -> Convention | None:
        """The recipe's, where the suite has it."""
        recipe = self.prepared.recipe
        return suite.conventions.get(recipe.convention) if recipe is not None else None

    def _number(self, suite: Suite, record: Record) -> float | None:
        """What a suite's mean takes of a record."""
        convention = self._convention(suite) if "recipe" in record.identity else None
        return record.main_score if convention is None else convention.number(record.task.name, raw(record))

    def result(self, one: Subject, task: Task) -> Result:
        """What became of one model's score on a task, as a suite has it."""
        return self._by_key[self.prepared.plan.keys[one, task]]

    @functools.cached_property
    def _by_key(self) -> dict[str, Result]:
        return {result.cell.key: result for result in self.results}

    @property
    def notes(self) -> tuple[str, ...]:
        """What the records have to say, such as what was left out of the data; each once, with its tasks."""
        return notes_of([r.record for r in self.results if r.record])

    def __repr__(self) -> str:
        done = f"{len(self.records)} of {len(self.results)} scores"
        models = ", ".join(self.prepared.label(one) for one in self.prepared.subjects)
        suites = ", ".join(suite.name for suite in self.prepared.suites)
        return f"<Report: {models} on {suites}, {done}>"

    def to_json(self) -> dict[str, Any]:
        """The report for machines; docs/json.md documents every field."""
        from harness.report import report_json

        return report_json(self)


def run(
    model: str | Sequence[str],
    suite: str | Sequence[str],
    *,
    settings: Settings | None = None,
    listeners: Listeners | None = None,
    **request: Any,
) -> Report:
    """Evaluate models on suites; `harness.run` documents the arguments."""
    asked = changed(
        Request(
            models=(model,) if isinstance(model, str) else tuple(model),
            suites=(suite,) if isinstance(suite, str) else tuple(suite),
            settings=settings or Settings(),
        ),
        request,
        of="harness.run",
    )
    with network(asked):
        return execute(prepare(asked), listeners)


def changed(request: Request, fields_: Mapping[str, Any], *, of: str) -> Request:
    """A request with other fields, also those of its `settings`, `options` and `recipe_options`.

    Raises:
        UsageError: There is no such field; the message names `of`, the function that was called.
    """
    own = {f.name for f in fields(Request)} - {"models", "suites", "settings"}
    parts = {part: {f.name for f in fields(part)} - own for part in (Settings, SuiteOptions, RecipeOptions)}
    known = own.union(*parts.values())
    for name in fields_:
        if name not in known:
            raise unknown(f"argument of {of}", name, known, then="See docs/python.md.")
    made = {part: {n: v for n, v in fields_.items() if n in names} for part, names in parts.items()}
    whole = {name: value for name, value in fields_.items() if name in own}
    options = whole.pop("options", request.options)
    recipe_options = whole.pop("recipe_options", request.recipe_options)
    return replace(
        request,
        settings=replace(request.settings, **made[Settings]),
        options=replace(options, **made[SuiteOptions]),
        recipe_options=replace(recipe_options, **made[RecipeOptions]),
        **whole,
    )


def prepare(request: Request) -> Prepared:
    """Resolve models and suites and lay out the plan; nothing is encoded.

    Raises:
        UsageError: A name, a setting or a record that cannot be used.
    """
    found = opened(request)
    store = Store(found.results)
    plan = make_plan(
        found.subjects,
        found.suites,
        store=store,
        settings=found.data,
        seed=request.settings.seed,
        force=request.force,
        gate=request.gate,
        purpose=request.purpose,
        recipe=found.recipe,
    )
    return Prepared(
        request=request,
        asked=found.asked,
        subjects=found.subjects,
        suites=found.suites,
        plan=plan,
        store=store,
        cache=found.cache,
        recipe=found.recipe,
    )


def execute(prepared: Prepared, listeners: Listeners | None = None) -> Report:
    """Carry out what was prepared."""
    request = prepared.request
    plan = prepared.plan
    places = Crowd(devices=("cpu",), threads=request.threads)
    if plan.jobs:
        places = crowd(
            check_devices(prepared.devices),
            [job for job in plan.jobs if job.key not in plan.known],
            prepared.recipe,
            cache=prepared.cache,
            weights=max(_weight_bytes(one.artifact.folder) for one in prepared.subjects),
            asked=request.workers,
            threads=request.threads,
        )
    running = Run(
        plan,
        store=prepared.store,
        cache=prepared.cache,
        devices=places.devices,
        listeners=listeners,
        fail_fast=request.fail_fast,
        again=request.force,
        threads=places.threads,
        budget=request.budget,
    )
    results = running.run()
    return Report(
        prepared=prepared,
        results=results,
        texts_encoded=running.texts_encoded,
        tokens_encoded=running.tokens_encoded,
    )


def _weight_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in weight_files(folder))
