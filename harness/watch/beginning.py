"""The beginning of a watch: its name, what it is over, and whether that is what it was begun with."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness import catalog, paths
from harness.errors import UsageError
from harness.watch import state
from harness.watch.sources import Source
from harness.watch.state import Watch

if TYPE_CHECKING:
    from harness.request import Request
    from harness.types import Suite


def usual_name(source: Source) -> str:
    """What a watch of a source is called unless said otherwise."""
    return re.sub(r"[^A-Za-z0-9_.+-]", "-", source.name).lstrip(".-+")[:100] or "watch"


def begun(results: Path, name: str, source: Source, request: Request) -> Watch:
    """The state of a watch that goes on, or of one that begins.

    Raises:
        UsageError: The name is another watch's.
    """
    now = Watch(name=name, source=source.text, suite=request.suites[0], request=echo(request))
    former = state.read(results, name)
    if former is None:
        return now
    differs = _differences(former, now)
    if differs:
        raise UsageError(
            f"The watch {name} was begun otherwise: {'; '.join(differs)}.",
            hint="Type the options that it was begun with, or give this one another name with --name.",
        )
    return former


def echo(request: Request) -> dict[str, Any]:
    """What of a request decides the scores, as plain values."""
    places = ("cache", "results")
    options = {key: value for key, value in asdict(request.options).items() if key not in places}
    found = {
        "settings": asdict(request.settings),
        "options": options,
        "recipe": request.recipe,
        "recipe_options": asdict(request.recipe_options),
        "gate": request.gate,
        "trust_remote_code": request.trust_remote_code,
    }
    plain: dict[str, Any] = json.loads(json.dumps(found, default=str, sort_keys=True))
    return plain


def _differences(former: Watch, now: Watch) -> list[str]:
    """What two watches do not share, in words."""
    before = {"source": former.source, "suite": former.suite, **_flat(former.request)}
    after = {"source": now.source, "suite": now.suite, **_flat(now.request)}
    return [
        f"{name} was {before.get(name)!r}, here {after.get(name)!r}"
        for name in dict.fromkeys([*before, *after])
        if before.get(name) != after.get(name)
    ]


def _flat(nested: Mapping[str, Any]) -> dict[str, Any]:
    """A request's settings by their full names, as settings.seed."""
    found: dict[str, Any] = {}
    for name, value in nested.items():
        inner = {f"{name}.{key}": v for key, v in value.items()} if isinstance(value, dict) else {name: value}
        found |= inner
    return found


def opened_suites(request: Request) -> Sequence[Suite]:
    """The suites of a request.

    Raises:
        UsageError: There is no such suite.
    """
    cache, results = paths.cache_folder(request.cache), paths.results_folder(request.results)
    return catalog.open_suites(request.suites, replace(request.options, cache=cache, results=results))


def refuse_early(request: Request) -> None:
    """Refuse what no checkpoint could be evaluated with.

    Raises:
        UsageError: An unknown suite, task, recipe, prompt or device, or no data root.
    """
    from harness.devices import check_devices, require_spelled
    from harness.request import check_prompts, existing, recipe_for

    if len(request.suites) != 1:
        raise UsageError("A watch is over one suite.", hint="Give one --suite.")
    require_spelled(request.devices)
    existing(paths.data_root(request.data))
    suites = opened_suites(request)
    recipe_for(suites, request)
    check_prompts(request.settings.prompts or {}, suites)
    if request.devices:
        check_devices(request.devices)
