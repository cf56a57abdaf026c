"""One line of a health report."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

State = Literal["ok", "warning", "missing"]
"""Only "missing" keeps a run from working."""


@dataclass(frozen=True, kw_only=True)
class Check:
    """What was looked at, how it stands, and the command that mends it (empty if all is well)."""

    name: str
    state: State = "ok"
    detail: str
    fix: str = ""

    def to_json(self) -> dict[str, Any]:
        """The check as plain values."""
        return asdict(self)
