"""The policy of a check: margins, levels and the tasks that must not regress, read from TOML."""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from harness.core.arguments import Form, Names, check_value, format_toml_value, parse_allowances
from harness.core.errors import UsageError, explain_unknown
from harness.results.differences import FIELDS, is_field_name

AUTO: Literal["auto"] = "auto"
"""The word for a margin that nearly all equal models pass, between the default and `most_margin`."""

TASK_POINTS, MEAN_POINTS = 2.0, 1.0
"""The default margins of a task and of a suite's mean, in points."""

RED = 0.025
"""The level of a regression of a suite's mean, of several suites together."""

Points = Annotated[float, Field(strict=True, ge=0, le=100)]
Level = Annotated[float, Field(strict=True, ge=1e-6, le=0.5)]
Margin = Points | Literal["auto"]

Inconclusive = Literal["exit-3", "fail", "pass"]
Parts = Literal["name", "fail"]

EXIT_CODES: Mapping[Inconclusive, int] = {"exit-3": 3, "fail": 1, "pass": 0}

_FORMER = {
    "max_drop": "margin is the loss that is allowed",
    "correction": "task_alpha is the level of all tasks together",
    "draws": "nothing is resampled any more",
    "seed": "nothing is resampled any more",
    **dict.fromkeys(("least_margin", "least_mean_margin"), "an automatic margin begins at the default one"),
}
"""Settings of earlier versions, each with what replaces it."""


_AllowedInCheck = Annotated[
    Names, Form(read=functools.partial(parse_allowances, is_field=is_field_name, fields=FIELDS))
]


class _TaskPolicy(BaseModel):
    """The settings of one task, which replace the general ones."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    margin: Margin | None = None
    must_not_regress: Annotated[bool, Field(strict=True)] | None = None


class Policy(BaseModel):
    """Every setting of a check. Margins are in points: hundredths of a score."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    margin: Margin = Field(
        default=TASK_POINTS,
        description='points; the allowed loss of a task, or "auto": wider if examples are few',
    )
    mean_margin: Margin = Field(
        default=MEAN_POINTS,
        description='points; the allowed loss of a mean, or "auto"; a suite of one task takes margin',
    )
    chain_margin: Points | Literal["mean_margin"] = Field(
        default="mean_margin",
        description="points; the allowed loss of a mean since the anchor of the baseline",
    )
    most_margin: Points = Field(default=3.0, description="points; the widest automatic margin")
    changed: Annotated[float, Field(strict=True, gt=0, le=1)] = Field(
        default=0.15,
        description="share of answers that an equal model is assumed to change, if no repeated runs show it",
    )
    alpha: Level = Field(default=0.05, description="chance that a model worse by the whole margin passes")
    task_alpha: Level = Field(
        default=0.02, description="chance that an equal model is called regressed on at least one task"
    )
    must_not_regress: tuple[str, ...] = Field(
        default=("*",),
        description="tasks that fail the check if they regress; * and ? stand for any characters",
    )
    collapse: Points = Field(
        default=5.0,
        description="points; a task that fell by more is named first, however wide its margin, and is red if "
        "the loss is sure",
    )
    parts: Parts = Field(
        default="name",
        description="what happens if a split or subset (e.g. a language) is surely lower and fell by more "
        "than collapse: name it, or fail",
    )
    inconclusive: Inconclusive = Field(
        default="exit-3", description="exit code of an inconclusive check: exit-3, fail (1) or pass (0)"
    )
    missing: Literal["exit-3", "fail"] = Field(
        default="fail", description="exit code if a score is missing or nothing is tested: exit-3 or fail (1)"
    )
    not_testable: Literal["inconclusive", "ignore"] = Field(
        default="inconclusive", description="tasks without units to compare: inconclusive, or ignore them"
    )
    allow_differences: tuple[str, ...] = Field(
        default=(),
        description="fields of an evaluation that may differ, such as pooling or encoding.max_length",
    )
    budget_minutes: Annotated[float, Field(strict=True, ge=0, le=1e6)] = Field(
        default=0.0, description="minutes after which no further work is begun; 0 for no limit"
    )
    tasks: Mapping[str, _TaskPolicy] = Field(
        default={},
        description='margin and must_not_regress (true or false) of single tasks, each under [tasks."NAME"]',
    )

    def margin_of(self, task: str) -> Margin:
        """The margin of a task, in points, or "auto"."""
        margin = self.tasks[task].margin if task in self.tasks else None
        return self.margin if margin is None else margin

    def states(self, setting: str, task: str = "") -> bool:
        """Whether a margin is a number of the policy, in general or for a task, and not the default."""
        own = task in self.tasks and self.tasks[task].margin is not None
        return own or setting in self.model_fields_set

    def forbids(self, task: str) -> bool:
        """Whether the task must not regress."""
        rule = self.tasks[task].must_not_regress if task in self.tasks else None
        return any(fnmatchcase(task, one) for one in self.must_not_regress) if rule is None else rule

    def to_json(self) -> dict[str, Any]:
        """Every setting as plain values."""
        return self.model_dump(mode="json")

    def to_toml(self) -> str:
        """The policy as a TOML file, with the meaning of each setting above it."""
        lines = []
        for name, field in Policy.model_fields.items():
            if name != "tasks":
                lines += [f"# {field.description}", f"{name} = {format_toml_value(getattr(self, name))}"]
        for task, settings in self.tasks.items():
            lines += ["", f"[tasks.{format_toml_value(task)}]"]
            lines += [f"{name} = {format_toml_value(value)}" for name, value in settings if value is not None]
        return "\n".join(lines)

    @staticmethod
    def of(policy: Policy | Path | str | None) -> Policy:
        """The policy for an argument: a Policy, the path of a TOML file, or None for the default.

        Raises:
            UsageError: It is none of these, or a setting cannot be used.
        """
        if isinstance(policy, Path | str):
            return Policy.read(Path(policy))
        if not isinstance(policy, Policy | None):
            raise UsageError(f"policy is {policy!r}, and must be a Policy or the path of a TOML file.")
        return policy or DEFAULT

    def accept_names(self, allow: Any) -> tuple[Policy, tuple[str, ...]]:
        """The policy with the fields among the names of `allow`, which may then differ, and the other names.

        Raises:
            UsageError: A name is unknown.
        """
        names = check_value("allow", allow, _AllowedInCheck)
        fields = tuple(filter(is_field_name, names))
        policy = self.model_copy(update={"allow_differences": (*self.allow_differences, *fields)})
        return policy, tuple(name for name in names if name not in fields)

    def set_margins(self, text: str) -> Policy:
        """The policy with one margin of every mean and task: points, or "auto".

        Raises:
            UsageError: The text is neither.
        """
        try:
            margin = text if text == AUTO else float(text)
            stated = self.model_dump(exclude_unset=True)
            # In place of the margins of single tasks, too.
            tables = {name: {**table, "margin": None} for name, table in stated.get("tasks", {}).items()}
            return Policy.model_validate({**stated, "margin": margin, "mean_margin": margin, "tasks": tables})
        except ValueError as error:
            raise UsageError(f"--margin is {text!r}, and must be points from 0 to 100, or auto.") from error

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
        except (ValueError, RecursionError) as error:
            raise UsageError(f"The policy {path} is not valid TOML: {error}.") from error
        try:
            return Policy.model_validate(raw)
        except ValidationError as error:
            raise _explain_policy_error(error, f"the policy {path}") from error


DEFAULT = Policy()


def _explain_policy_error(error: ValidationError, where: str) -> UsageError:
    """The error for the first fault of a policy, with what to type."""
    first = error.errors()[0]
    place = [str(part) for part in first["loc"]]
    name, of_task = place[0], len(place) > 2 and place[0] == "tasks"
    if first["type"] == "extra_forbidden":
        valid_names = [*(_TaskPolicy if of_task else Policy).model_fields]
        if place[-1] in _FORMER:
            return UsageError(f"In {where} {place[-1]} was removed.", hint=f"Instead: {_FORMER[place[-1]]}.")
        return explain_unknown(f"setting of {where}", place[-1], valid_names, then="See docs/check.md.")
    if name == "tasks" and not of_task:
        return UsageError(f"In {where} tasks is not a table of tables.", hint='Write [tasks."SciFact"].')
    if first["input"] == "measured":
        return UsageError(f'In {where} {name} is "measured", which was removed.', hint='Use "auto".')
    depth = 3 if of_task else 1
    messages = [one["msg"] for one in error.errors() if one["loc"][:depth] == first["loc"][:depth]]
    message = " or ".join(dict.fromkeys(messages)).replace("tuple", "list")
    message = message.replace(" or Input should be", " or").replace("Input should be", "it must be")
    return UsageError(f"In {where} {', '.join(place[:depth][-2:])} is {first['input']!r}: {message}.")
