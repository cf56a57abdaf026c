"""A proxy as a document: `<results>/proxies/<name>.json`, or any JSON file of its form."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from harness.core.documents import DocumentFolder, DocumentKind
from harness.core.errors import UsageError, explain_unknown

SCHEMA = 2
"""The version of a proxy's form; a newer version is refused. Version 2 added the digest."""


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, allow_inf_nan=False, populate_by_name=True)


class ProxyTarget(_Part):
    """The predicted benchmark: `suite` is its spelling for --suite, `columns` the size of its mean."""

    suite: str
    title: str
    columns: int


class ProxyImport(_Part):
    """The import that a proxy was fitted on."""

    source: str
    id: str
    when: str
    commit: str | None = None


class ProxyTask(_Part):
    """A task of a proxy; `low` and `high` are the range of its scores among the fitted models."""

    task: str
    splits: tuple[str, ...]
    subsets: tuple[str, ...]
    coefficient: float
    low: float
    high: float
    minutes: float | None


class ProxyErrors(_Part):
    """Errors, as shares of 1, on models whose families were held out.

    `rmse`, `mae`, `half_width` (of the `level` interval), `kendall` and `spearman` are nested: tasks and
    penalty were chosen without the family, too. `plain_rmse` is the error by which they were chosen, which is
    too low. `deviation` is the standard deviation of the target: the error of predicting its mean.
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
    """Minutes on a model of median speed among the fitted models, or on the requested `reference`.

    `whole` is the time of the benchmark itself, null where a task's time is unknown; `nearest` is the fitted
    model whose speed is closest to the assumed speed; `spread` is the median residual of log time, null
    without times.
    """

    minutes: float | None
    budget: float | None
    whole: float | None
    reference: str | None
    nearest: str | None
    spread: float | None


class ProxyFit(_Part):
    """The fitted models; `other_data` counts models with a score on another revision of the data."""

    models: int
    families: int
    other_data: int
    low: float
    high: float


class Proxy(_Part):
    """A few tasks, and the linear formula that predicts a benchmark's mean from them (docs/proxy.md)."""

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
        """The text of the proxy's file."""
        return PROXIES.kind.serialize_document(self)

    @staticmethod
    def find(text: str, results: Path) -> Path:
        """The file of a proxy, by its name or by a path that ends in .json.

        Raises:
            UsageError: No proxy has this name; the message names the nearest.
        """
        if text.endswith(".json"):
            path = Path(text).expanduser()
            if path.is_file():
                return path
            raise UsageError(
                f"The file {path} does not exist.", hint="`harness proxy list` shows all proxies."
            )
        names = PROXIES.list_names(results)
        if text not in names:
            raise explain_unknown(f"proxy in {results / PROXIES.folder}", text, names, then=PROXIES.then)
        return PROXIES.locate_document(results, text)


PROXIES = DocumentFolder(
    kind=DocumentKind(
        name="proxy",
        type=Proxy,
        schema=SCHEMA,
        migrations={1: lambda proxy: proxy},
        hint="Fit it again: harness proxy fit",
        digest_since=2,
    ),
    folder="proxies",
    then="`harness proxy fit` makes one.",
)
