"""The policy of a check: margins, levels and the tasks that must not regress, read from TOML."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Literal

from harness.errors import UsageError, unknown

Correction = Literal["holm", "benjamini-hochberg", "none"]

CORRECTIONS: tuple[Correction, ...] = ("holm", "benjamini-hochberg", "none")

MEASURED: Literal["measured"] = "measured"
"""In place of a number: the margin is the spread of the baseline's own runs."""

Margin = float | Literal["measured"]

Inconclusive = Literal["exit-3", "fail", "pass"]

EXIT_CODES: Mapping[Inconclusive, int] = {"exit-3": 3, "fail": 1, "pass": 0}

Missing = Literal["exit-3", "fail"]

NotTestable = Literal["inconclusive", "ignore"]


@dataclass(frozen=True, kw_only=True)
class _TaskPolicy:
    """The settings of one task in place of the general settings."""

    margin: Margin | None = None
    max_drop: float | None = None
    must_not_regress: bool | None = None


@dataclass(frozen=True, kw_only=True)
class Policy:
    """Every setting of a check. Margins and drops are in points: hundredths of a score.

    Attributes:
        alpha: The accepted probability of a false alarm.
        margin: Differences within it do not count; or "measured".
        least_margin: The least value of a measured margin.
        mean_margin: The margin of a suite's mean; or "measured".
        max_drop: The allowed drop of a task.
        must_not_regress: Tasks that fail the check if they regress, with * and ? for any characters.
        correction: The correction for the number of tasks: holm, benjamini-hochberg or none.
        inconclusive: The end of a check that decides nothing: exit-3, fail or pass.
        missing: The end of a check with a missing score or an untested mean: exit-3 or fail; it never passes.
        not_testable: Whether tasks without units make a check inconclusive, or are ignored.
        allow_differences: Fields of an evaluation's identity that may differ, e.g. encoding.max_length.
        budget_minutes: Minutes after which no further work begins; 0 for no limit.
        tasks: The settings of single tasks, by name.
    """

    alpha: float = 0.05
    margin: Margin = 1.0
    least_margin: float = 0.1
    mean_margin: Margin = 0.5
    max_drop: float = 0.0
    must_not_regress: tuple[str, ...] = ("*",)
    correction: Correction = "holm"
    inconclusive: Inconclusive = "exit-3"
    missing: Missing = "exit-3"
    not_testable: NotTestable = "inconclusive"
    allow_differences: tuple[str, ...] = ()
    budget_minutes: float = 0.0
    tasks: Mapping[str, _TaskPolicy] = field(default_factory=dict)

    def margin_of(self, task: str) -> Margin:
        """The margin of a task, in points."""
        own = self.tasks.get(task, _TaskPolicy()).margin
        return self.margin if own is None else own

    def max_drop_of(self, task: str) -> float:
        """The allowed drop of a task, in points."""
        own = self.tasks.get(task, _TaskPolicy()).max_drop
        return self.max_drop if own is None else own

    def forbids(self, task: str) -> bool:
        """Whether the task must not regress."""
        own = self.tasks.get(task, _TaskPolicy()).must_not_regress
        return any(fnmatchcase(task, one) for one in self.must_not_regress) if own is None else own

    def to_json(self) -> dict[str, Any]:
        """Every setting as plain values."""
        return asdict(self)

    @staticmethod
    def of(given: Policy | Path | str | None) -> Policy:
        """The policy for an argument: a Policy, the path of a TOML file, or None for the default.

        Raises:
            UsageError: It is neither, or a setting cannot be used.
        """
        if given is None:
            return DEFAULT
        if isinstance(given, Path | str):
            return Policy.read(Path(given))
        if not isinstance(given, Policy):
            raise UsageError(f"policy is {given!r}, and must be a Policy or the path of a TOML file.")
        return _parse(_raw(given), where="the policy")

    @staticmethod
    def read(path: Path) -> Policy:
        """The policy in a TOML file; settings that it does not name stay at their defaults.

        Raises:
            UsageError: The file cannot be read, or a setting is unknown or cannot be used.
        """
        try:
            raw = tomllib.loads(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise UsageError(
                f"The policy {path} cannot be read: {error.strerror}.",
                hint="`harness check --explain` prints the default one, to start from.",
            ) from error
        except ValueError as error:
            raise UsageError(f"The policy {path} is no TOML: {error}.") from error
        return _parse(raw, where=f"the policy {path}")


DEFAULT = Policy()

_CHOICES: Mapping[str, tuple[str, ...]] = {
    "correction": CORRECTIONS,
    "inconclusive": tuple(EXIT_CODES),
    "missing": ("exit-3", "fail"),
    "not_testable": ("inconclusive", "ignore"),
}
_RANGES: Mapping[str, tuple[float, float]] = {
    "alpha": (1e-6, 0.5),
    "margin": (0.0, 100.0),
    "mean_margin": (0.0, 100.0),
    "least_margin": (0.0, 100.0),
    "max_drop": (0.0, 100.0),
    "budget_minutes": (0.0, 1e6),
}
_FORMER = ("draws", "seed")
"""Settings of a resampling that there no longer is."""

_LISTS = ("must_not_regress", "allow_differences")


def _raw(policy: Policy) -> dict[str, Any]:
    """The settings of a policy as TOML would give them."""
    plain = policy.to_json()
    tasks = plain.pop("tasks")
    if isinstance(tasks, Mapping):
        tasks = {
            name: {n: v for n, v in one.items() if v is not None} if isinstance(one, Mapping) else one
            for name, one in tasks.items()
        }
    return {**{n: list(v) if isinstance(v, tuple) else v for n, v in plain.items()}, "tasks": tasks}


def _parse(raw: Mapping[str, Any], *, where: str) -> Policy:
    """A policy from plain values, as TOML gives them."""
    tasks = raw.get("tasks", {})
    if not isinstance(tasks, Mapping) or not all(isinstance(one, Mapping) for one in tasks.values()):
        raise UsageError(f"In {where} tasks is no table of tables.", hint='Write [tasks."SciFact"].')
    values = {n: _value(n, v, Policy, where) for n, v in raw.items() if n not in ("tasks", *_FORMER)}
    own = {
        name: _TaskPolicy(**{n: _value(n, v, _TaskPolicy, f"{where}, {name}") for n, v in one.items()})
        for name, one in tasks.items()
    }
    policy = replace(Policy(**values), tasks=own)
    for name in ("", *own):
        _fit(policy, name, where)
    return policy


def _value(name: str, value: Any, kind: type, where: str) -> Any:
    known = [one.name for one in fields(kind) if one.name != "tasks"]
    if name not in known:
        raise unknown(f"setting of {where}", name, known, then="docs/check.md explains each.")
    if name in _CHOICES:
        return _chosen(name, value, where)
    if kind is _TaskPolicy and name == "must_not_regress":
        if not isinstance(value, bool):
            raise UsageError(f"In {where} must_not_regress is {value!r}, and must be true or false.")
        return value
    if name in _LISTS:
        if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
            raise UsageError(f"In {where} {name} is {value!r}, and must be a list of texts.")
        return tuple(value)
    if name.endswith("margin") and name != "least_margin" and value == MEASURED:
        return MEASURED
    return _number(name, value, where)


def _chosen(name: str, value: Any, where: str) -> Any:
    if value not in _CHOICES[name]:
        raise UsageError(f"In {where} {name} is {value!r}.", hint=f"There is: {', '.join(_CHOICES[name])}.")
    return value


def _number(name: str, value: Any, where: str) -> float:
    low, high = _RANGES[name]
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        or_measured = ' or "measured"' if name in ("margin", "mean_margin") else ""
        raise UsageError(
            f"In {where} {name} is {value!r}, and must be a number from {low:g} to {high:g}{or_measured}."
        )
    return float(value)


def _fit(policy: Policy, task: str, where: str) -> None:
    margin, drop = policy.margin_of(task), policy.max_drop_of(task)
    if margin != MEASURED and drop > margin:
        of = f" of {task}" if task else ""
        raise UsageError(
            f"In {where} max_drop{of} ({drop:g}) is more than margin ({margin:g}).",
            hint="A drop between the two could never be told: raise margin, or lower max_drop.",
        )
