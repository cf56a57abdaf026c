"""The Python call: `harness.run(...)` does what `harness run` does, and returns it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from harness.encoder.folder import weight_files
from harness.errors import unknown
from harness.execute import Driver, Listeners
from harness.plan import make_plan
from harness.provenance import check_devices
from harness.recipe import RecipeOptions
from harness.report import Report
from harness.request import PreparedRun, Request, network, resolve_request
from harness.store import Store
from harness.types import Settings, SuiteOptions
from harness.workers import WorkerPlan, plan_workers


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


def prepare(request: Request) -> PreparedRun:
    """Resolve models and suites and lay out the plan; nothing is encoded.

    Raises:
        UsageError: A name, a setting or a record that cannot be used.
    """
    found = resolve_request(request)
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
    return PreparedRun(
        request=request,
        asked=found.asked,
        subjects=found.subjects,
        suites=found.suites,
        plan=plan,
        store=store,
        cache=found.cache,
        recipe=found.recipe,
    )


def execute(prepared: PreparedRun, listeners: Listeners | None = None) -> Report:
    """Carry out what was prepared."""
    request = prepared.request
    plan = prepared.plan
    places = WorkerPlan(devices=("cpu",), threads=request.threads)
    if plan.jobs:
        places = plan_workers(
            check_devices(prepared.devices),
            [job for job in plan.jobs if job.key not in plan.known],
            prepared.recipe,
            cache=prepared.cache,
            weights=max(_weight_bytes(one.artifact.folder) for one in prepared.subjects),
            asked=request.workers,
            threads=request.threads,
        )
    running = Driver(
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
