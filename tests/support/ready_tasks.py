"""The score of a task of mteb that a test has made, as one of a suite's has it."""

from __future__ import annotations

from typing import Any
from unittest import mock

from fakes import task
from harness.core.types import Outcome, TextModel
from suites._mteb.source import BuiltSource


def score(made: Any, model: TextModel) -> Outcome:
    with mock.patch.object(BuiltSource, "mteb_task", return_value=made):
        return BuiltSource(loader=made).evaluate(task(), model, seed=42, data=None)
