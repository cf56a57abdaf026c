"""Tasks of mteb's classes that a test has made, scored as those of a suite are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fakes import task
from harness.core.types import Outcome, Task, TextModel
from suites._mteb.source import BuiltSource


@dataclass(frozen=True, kw_only=True)
class ReadySource(BuiltSource):
    """The source of a task object that is there already, as its `loader`."""

    loader: Any

    def mteb_task(self, task: Task, *, seed: int) -> Any:
        return self.loader


def score(made: Any, model: TextModel) -> Outcome:
    return ReadySource(loader=made).evaluate(task(), model, seed=42, data=None)
