"""The suite `proxy:<name>`: a few tasks that predict a benchmark's mean, from `harness proxy fit`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from harness.core import files
from harness.core.errors import UsageError
from harness.core.types import Column, Predicted, Suite, SuiteEntry, SuiteOptions
from harness.plan import catalog
from harness.proxy.document import PROXIES, Proxy, ProxyTask


def _open_proxy_suite(argument: str, options: SuiteOptions) -> Suite:
    if options.languages or options.subsets or options.splits:
        raise UsageError(
            "A proxy predicts from its tasks as they were fitted.",
            hint="Leave out --languages, --subsets and --splits.",
        )
    proxy = PROXIES.read_document_file(Proxy.find(argument, files.resolve_results_folder(options.results)))
    if proxy.target.suite.partition(":")[0] == "proxy":
        raise UsageError(f"{proxy.name} is a proxy of a proxy.", hint="Fit one on a benchmark.")
    target = catalog.open_suite(proxy.target.suite, SuiteOptions(cache=options.cache))
    columns = tuple(_build_proxy_column(part, proxy, target) for part in proxy.tasks)
    count, title = len(columns), proxy.target.title
    return Suite(
        name=f"proxy:{argument}",
        title=f"{count} tasks that predict {title}",
        columns=columns,
        notes=(f"The mean over these {count} tasks is not that of {title}; the prediction is.",),
        predictor=_ProxyPredictor(proxy=proxy),
    )


def _build_proxy_column(part: ProxyTask, proxy: Proxy, target: Suite) -> Column:
    task = next((task for task in target.tasks if task.name == part.task), None)
    # Another split or subset has other scores, and the coefficients would be wrong for them.
    if task is None or (set(task.splits), set(task.subsets)) != (set(part.splits), set(part.subsets)):
        raise UsageError(
            f"{target.title} no longer asks for {part.task} as the proxy {proxy.name} was fitted on it.",
            hint=f"Fit it again: harness proxy fit --target '{proxy.target.title}'",
        )
    return Column(name=task.name, type=task.type, tasks=(task,))


SUITE = SuiteEntry(
    name="proxy",
    summary="a few tasks that predict a benchmark's mean, chosen by `harness proxy fit`",
    open=_open_proxy_suite,
    argument="proxy or its JSON file",
    alone=False,
)


@dataclass(frozen=True, kw_only=True)
class _ProxyPredictor:
    """The linear formula of a proxy as a suite's predictor (harness.core.types.Predictor)."""

    proxy: Proxy

    @property
    def target(self) -> str:
        """The title of the benchmark."""
        return self.proxy.target.title

    @property
    def tasks(self) -> tuple[str, ...]:
        """The tasks whose scores the prediction needs."""
        return tuple(task.task for task in self.proxy.tasks)

    def predict(self, scores: Mapping[str, float]) -> Predicted | None:
        """The prediction from main scores by task; None if a score is missing."""
        proxy = self.proxy
        if any(task.task not in scores for task in proxy.tasks):
            return None
        value = proxy.intercept + sum(task.coefficient * scores[task.task] for task in proxy.tasks)
        # A linear formula says little beyond the scores that it was fitted on.
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
