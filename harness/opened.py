"""A request with its models, suites and recipe found: what is wanted, before anything is looked up."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, replace
from pathlib import Path

from harness import catalog, paths
from harness.data import DataSettings, forbid_network
from harness.devices import require_spelled
from harness.errors import UsageError
from harness.recipe import Recipe
from harness.request import Request, check_prompts, existing, recipe_for
from harness.resolve import ModelOptions, subject
from harness.types import Suite
from harness.wanted import Subject


@dataclass(frozen=True, kw_only=True)
class Opened:
    """What a request names.

    `asked` is what each of its models came out as; `subjects` has each once.
    """

    request: Request
    asked: tuple[Subject, ...]
    suites: tuple[Suite, ...]
    recipe: Recipe | None
    results: Path
    cache: Path
    data: DataSettings

    @property
    def subjects(self) -> tuple[Subject, ...]:
        """Every model once."""
        return tuple(dict.fromkeys(self.asked))


def opened(request: Request) -> Opened:
    """Find the models, suites and recipe of a request.

    Raises:
        UsageError: A name or a setting that cannot be used.
    """
    require_spelled(request.devices)
    if not request.models or not request.suites:
        raise UsageError(
            "A run needs at least one model and one suite.", hint="`harness list` shows what there is."
        )
    cache, results = paths.cache_folder(request.cache), paths.results_folder(request.results)
    data = DataSettings(root=existing(paths.data_root(request.data)), offline=request.offline, cache=cache)
    suites = catalog.open_suites(request.suites, replace(request.options, cache=cache, results=results))
    asked = _subjects(request, cache)
    recipe = recipe_for(suites, request)
    check_prompts(request.settings.prompts or {}, suites)
    return Opened(
        request=request,
        asked=asked,
        suites=tuple(suites),
        recipe=recipe,
        results=results,
        cache=cache,
        data=data,
    )


def network(request: Request) -> contextlib.AbstractContextManager[object]:
    """The network as the request allows it."""
    return forbid_network() if request.offline else contextlib.nullcontext()


def _subjects(request: Request, cache: Path) -> tuple[Subject, ...]:
    """The models as they were asked for; of two that are the same the first one's name stands."""
    options = ModelOptions(offline=request.offline, trust_remote_code=request.trust_remote_code, cache=cache)
    every = [_named(subject(text, request.settings, options), text, request) for text in request.models]
    first = {(one.artifact.key, one.encoding): one for one in reversed(every)}
    return tuple(first[one.artifact.key, one.encoding] for one in every)


def _named(one: Subject, text: str, request: Request) -> Subject:
    """A model under the name that the request has for it."""
    name = request.names.get(text)
    return replace(one, artifact=replace(one.artifact, name=name)) if name else one
