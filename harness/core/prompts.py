"""The choice of a prompt, the text that is put before an input: by the task, its type and its side."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from harness.core.types import Role


class TextTask(Protocol):
    """What texts are encoded for: its name and its type choose their prompt."""

    @property
    def name(self) -> str:
        """The name of the task."""
        ...

    @property
    def type(self) -> str:
        """The type of the task, as mteb names it."""
        ...


@dataclass(frozen=True, kw_only=True)
class OwnTexts:
    """Queries and documents that belong to no task: prompts of retrieval and of the sides apply."""

    name: str = ""
    type: str = "Retrieval"


def select_prompt(task: TextTask, role: Role, named: Mapping[str, str], default: str | None) -> str:
    """The prompt in `named` that is put before inputs of `task`, empty if none.

    Tried in mteb's order: task and role, task, type and role, type, role, then the model's default.

    Args:
        task: The name and the type of the task.
        role: The side of the inputs; empty for a task without sides.
        named: Texts by task, type or side, also as `STS12-query`.
        default: The name of the prompt where no other name fits.
    """
    sided = [f"{task.name}-{role}", task.name, f"{task.type}-{role}", task.type, role]
    names = sided if role else [task.name, task.type]
    return next((named[n] for n in (*names, default) if n is not None and n in named), "")
