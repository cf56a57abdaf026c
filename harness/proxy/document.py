"""A proxy on disk, its prediction, its text.

A proxy as a file: `<results>/proxies/<name>.json`, or any JSON file of its form.

What a proxy says of a model from its scores.

A proxy as tables and lines for people.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from harness import files
from harness.errors import RecordError, UsageError, unknown
from harness.types import Predicted

SCHEMA = 1
"""The form of a proxy; a newer one is refused."""


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, allow_inf_nan=False)


class ProxyTarget(_Part):
    """What is predicted: `suite` is what --suite takes, `columns` how many its mean is over."""

    suite: str
    title: str
    columns: int


class ProxyImport(_Part):
    """The import that it was fitted on."""

    source: str
    id: str
    when: str
    commit: str | None = None


class ProxyTask(_Part):
    """One task of the proxy: `low` and `high` are its scores' range among the fitted models."""

    task: str
    splits: tuple[str, ...]
    subsets: tuple[str, ...]
    coefficient: float
    low: float
    high: float
    minutes: float | None


class ProxyErrors(_Part):
    """Errors as shares of 1 on models whose families were held out.

    `rmse`, `mae`, `half_width` (of the `level` interval), `kendall` and `spearman` are nested: tasks and
    penalty were chosen without the family, too. `plain_rmse` is the error by which they were chosen, which
    errs on the low side. `deviation` is the standard deviation of the target: the error of knowing nothing.
    """

    rmse: float
    mae: float
    half_width: float
    level: float
    kendall: float | None
    spearman: float | None
    plain_rmse: float
    deviation: float


class ProxyCost(_Part):
    """Minutes on a model of median speed among the fitted ones, or on the `reference` asked for.

    `whole` is what the benchmark itself takes, null where a task's time is unknown; `nearest` is the fitted
    model whose speed is closest to the one that is meant; `spread` the median residual of log time, null
    without times.
    """

    minutes: float | None
    budget: float | None
    whole: float | None
    reference: str | None
    nearest: str | None
    spread: float | None


class ProxyFit(_Part):
    """What it was fitted on: `other_data` counts models with a score on another revision of the data."""

    models: int
    families: int
    other_data: int
    low: float
    high: float


class Proxy(_Part):
    """A few tasks and the line that predicts a benchmark's mean from their scores (docs/proxy.md)."""

    form: int = Field(default=SCHEMA, alias="schema")
    name: str
    created: str
    target: ProxyTarget
    chosen: str
    penalty: float
    intercept: float
    tasks: tuple[ProxyTask, ...] = Field(min_length=1)
    error: ProxyErrors
    cost: ProxyCost
    fitted: ProxyFit
    imported: ProxyImport

    def to_json(self) -> str:
        """The contents of its file."""
        return self.model_dump_json(by_alias=True, indent=1) + "\n"


def _home(results: Path) -> Path:
    """Where the proxies of a results folder lie."""
    return results / "proxies"


def require_proxy_name(name: str) -> str:
    """A proxy's name, if it is one.

    Raises:
        UsageError: It is not fit for a file.
    """
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", name) or name.endswith(".json"):
        raise UsageError(
            f"{name!r} is no name for a proxy.", hint="Type --name with letters, digits, dots and dashes."
        )
    return name


def write_proxy(proxy: Proxy, results: Path) -> Path:
    """Write a proxy under its name, in place of the former one; gives its file."""
    path = _home(results) / f"{proxy.name}.json"
    files.replace(path, proxy.to_json().encode())
    return path


def read_proxy(path: Path) -> Proxy:
    """The proxy in a file.

    Raises:
        RecordError: It cannot be read, is none, or is of a newer schema.
    """
    again = "Fit it again: harness proxy fit"
    try:
        found = Proxy.model_validate_json(path.read_bytes())
    except OSError as error:
        raise RecordError(f"{path} cannot be read: {error.strerror}.", hint=again) from error
    except ValidationError as error:
        schema = _schema(path)
        if schema is not None and schema > SCHEMA:
            raise _newer(path, schema) from error
        where = ".".join(map(str, error.errors()[0]["loc"])) or "all of it"
        raise RecordError(f"{path} is no proxy: {where}: {error.errors()[0]['msg']}.", hint=again) from error
    if found.form > SCHEMA:
        raise _newer(path, found.form)
    return found


def find_proxy(text: str, results: Path) -> Path:
    """The file of a proxy, from its name or from a path that ends in .json.

    Raises:
        UsageError: There is none; it names the nearest.
    """
    if text.endswith(".json"):
        path = Path(text).expanduser()
        if path.is_file():
            return path
        raise UsageError(f"There is no {path}.", hint="`harness proxy list` shows what there is.")
    path = _home(results) / f"{text}.json"
    if not path.is_file() or Path(text).name != text:
        names = [one.stem for one in proxy_files(results)]
        raise unknown(f"proxy in {_home(results)}", text, names, then="`harness proxy fit` makes one.")
    return path


def proxy_files(results: Path) -> Iterator[Path]:
    """The files of all proxies of a results folder, by name."""
    yield from sorted(_home(results).glob("*.json"))


def _schema(path: Path) -> int | None:
    import json

    try:
        found = json.loads(path.read_bytes())
    except ValueError:
        return None
    schema = found.get("schema") if isinstance(found, dict) else None
    return schema if isinstance(schema, int) else None


def _newer(path: Path, schema: int) -> RecordError:
    return RecordError(
        f"{path} was written by a newer version (schema {schema}; this one reads {SCHEMA}).",
        hint="Update the program.",
    )


@dataclass(frozen=True, kw_only=True)
class ProxyPredictor:
    """The line of a proxy as a suite has it (harness.types.Predictor)."""

    proxy: Proxy

    @property
    def target(self) -> str:
        """The title of the benchmark."""
        return self.proxy.target.title

    @property
    def tasks(self) -> tuple[str, ...]:
        """The tasks whose scores it needs."""
        return tuple(task.task for task in self.proxy.tasks)

    def predict(self, scores: Mapping[str, float]) -> Predicted | None:
        """The prediction from main scores by task; None if one of them is missing."""
        proxy = self.proxy
        if any(task.task not in scores for task in proxy.tasks):
            return None
        value = proxy.intercept + sum(task.coefficient * scores[task.task] for task in proxy.tasks)
        outside = [task.task for task in proxy.tasks if not task.low <= scores[task.task] <= task.high]
        if not proxy.fitted.low <= value <= proxy.fitted.high:
            outside.append(self.target)
        return Predicted(
            target=self.target,
            value=value,
            low=value - proxy.error.half_width,
            high=value + proxy.error.half_width,
            level=proxy.error.level,
            families=proxy.fitted.families,
            outside=tuple(outside),
        )
