"""Names of tasks in URLs."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from harness.types import Column
from leaderboard.page import missing
from leaderboard.scopes import Listed, slug
from leaderboard.state import address

ENDS = (".json", ".csv", ".md", ".tex")
"""What a path of a twin ends with."""


def task_path(name: str) -> str:
    """The page of a task: its name where a path can hold it, else a short form with a digest.

    >>> task_path("STS12"), task_path("my task")
    ('/tasks/STS12', '/tasks/my%20task')
    >>> task_path("../a")
    '/tasks/a-61b4c98b'
    """
    return address(f"/tasks/{task_key(name)}")


def column_path(listed: Listed, column: Column) -> str:
    """The page of a column's only task, as the column asks for it; empty for a column of several."""
    if len(column.tasks) != 1:
        return ""
    query = {"scope": f"{listed.slug}:{column.name}"} if column.name in listed.parts else None
    return address(f"/tasks/{task_key(column.tasks[0].name)}", query)


def task_key(name: str) -> str:
    """What stands for a task in a path, not quoted."""
    safe = all(sign.isascii() and (sign.isalnum() or sign in "-_. ") for sign in name)
    if safe and name.strip(". ") and not name.endswith(ENDS) and len(name) <= 100:
        return name
    return f"{slug(name)[:80]}-{hashlib.sha256(name.encode('utf-8', 'replace')).hexdigest()[:8]}".lstrip("-")


def find_task(text: str, names: Iterable[str]) -> str:
    """The task that a part of a path names.

    Raises:
        NotFound: There is none; the nearest are named.
    """
    known = list(names)
    if text in known:
        return text
    keys = {task_key(name): name for name in known if task_key(name) != name}
    if text in keys:
        return keys[text]
    raise missing("task", text, known, then="The page /tasks lists all.")
