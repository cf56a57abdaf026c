"""`harness run`: evaluate models on suites; `--dry-run` shows the plan and what it will cost."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from harness.commands import options
from harness.commands.train import TrainingCost, print_trainings, training_costs
from harness.core import provenance
from harness.core.encoding import USUAL_QUERIES, Encoding
from harness.core.identity import digest
from harness.core.terminal import console, print_table
from harness.core.types import Purpose, Size, Suite
from harness.data.locate import human_size
from harness.driver import evaluation, progress
from harness.driver.evaluation import passes, size_of_index
from harness.driver.progress import duration_text
from harness.driver.report.run import impossible_results, print_failures
from harness.driver.report.suite import left_out_lines
from harness.encoder.folder.modules import weight_files
from harness.jobs.context import JobContext, WorkerLimits
from harness.jobs.recipe import Estimate
from harness.plan.plan import PlannedScore
from harness.plan.recipe_request import sweep_of
from harness.plan.request import PreparedRun, Request, check_devices
from harness.search.plaid import OF_INDEX
from harness.storage.record import Record

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table


@click.command("run")
@options.models
@options.suites
@options.project
@options.evaluation
@options.seeds
@options.context_seeds
@options.checkpoint_minutes
@options.sweep
@options.select
@click.option(
    "--force",
    is_flag=True,
    help="Score again what is there already, from known vectors and runs, and put it in its place.",
)
@click.option("--fail-fast", is_flag=True, help="Stop at the first failed task.")
@click.option("--dry-run", is_flag=True, help="Print the plan and its cost; run nothing.")
@options.as_json
def command(
    models: tuple[str, ...],
    suites: tuple[str, ...],
    project: str | None,
    seeds: int,
    context_seeds: int,
    checkpoint_minutes: float,
    sweep: tuple[str, ...],
    select: tuple[str, ...],
    force: bool,
    fail_fast: bool,
    dry_run: bool,
    as_json: bool,
    **given: Any,
) -> int:
    """Evaluate models on suites and record the scores; what is there is not done again."""
    suites = options.with_project(suites, project)
    how = {"seeds": seeds, "checkpoint_minutes": checkpoint_minutes, "force": force, "fail_fast": fail_fast}
    how["context_seeds"] = context_seeds
    request = Request.of_options(models, suites, given, sweep=sweep_of(sweep), select=select, **how)
    with request.network():
        prepared = evaluation.prepare(request)
        evaluation.require_data(prepared)
        if dry_run:
            return _show_plan(prepared, as_json)
        report = progress.carry_out(prepared, console(stderr=True))
    if as_json:
        click.echo(json.dumps(report.to_json(), indent=1, ensure_ascii=False))
    else:
        report.print(console())
    return report.exit_code


def _show_plan(prepared: PreparedRun, as_json: bool) -> int:
    estimate = _estimate(prepared)
    trainings = training_costs(prepared)
    need = evaluation.DiskNeed.of(prepared)
    if as_json:
        click.echo(json.dumps({**_to_json(estimate, trainings), "disk": need and asdict(need)}, indent=1))
    else:
        if trainings:
            print_trainings(trainings)
        _show(estimate, prepared.suites, console())
        if need is not None and need.is_large:
            console().print(f"{need.text[:1].upper()}{need.text[1:]}.", highlight=False, soft_wrap=True)
        print_failures(impossible_results(prepared), prepared, console())
    return 1 if prepared.plan.impossible else 0


@dataclass(frozen=True, kw_only=True)
class _Line:
    """The expected cost of a planned score, None where unknown.

    `texts` and `tokens` are those still to be encoded, `data_texts` and `data_characters` those of the task.
    """

    model: str
    task: str
    key: str
    state: str
    texts: int | None
    tokens: int | None
    flops: float | None
    seconds: float | None
    runs: int | None = None
    steps: int | None = None
    notes: tuple[str, ...] = ()
    data_texts: int | None = None
    data_characters: int | None = None
    search: _SearchCost | None = None
    purpose: Purpose = "final"
    error: str | None = None


@dataclass(frozen=True, kw_only=True)
class _SearchCost:
    """The expected cost of searching vectors of tokens; seconds are None where unknown.

    Attributes:
        queries: Those of an exact search, or a thousand where their number is not known.
        pairs: The pairs of tokens that it compares for them; None where an index is searched.
        seconds: The time of that, or of the search by an index.
        index_seconds: The time of making an index.
        index_bytes: The disk that it takes at most; None where the size of the task is not known.
        vectors_kept: Whether the cache has the vectors of the documents afterwards.
        is_long: Whether an exact search takes an hour or more, by past ones or a rough figure.
    """

    queries: int = 0
    pairs: int | None = None
    seconds: float | None = None
    index_seconds: float | None = None
    index_bytes: int | None = None
    vectors_kept: bool = True
    is_long: bool = False

    @property
    def is_unknown(self) -> bool:
        """Whether an index is searched, and no past one says how long that takes."""
        return self.pairs is None and (self.seconds is None or self.index_seconds is None)

    def note(self, task: str) -> str:
        """A sentence on an index, or on an exact search that is long; empty for a short one."""
        taken = self.index_seconds if self.pairs is None else self.seconds
        time = "an unknown time" if taken is None else f"about {duration_text(taken)}"
        if self.pairs is None:
            disk = "" if self.index_bytes is None else f" and about {human_size(self.index_bytes)} of disk"
            search = "" if self.seconds is None else f"; its search takes about {duration_text(self.seconds)}"
            kept = "" if self.vectors_kept else "; vectors go into it as they are encoded and are not kept"
            return f"{task}: its index takes {time}{disk}, unless it is there{search}{kept}"
        return self.is_long * (
            f"{task}: the exact search for {self.queries:,} queries compares {self.pairs:.1e} pairs of "
            f"tokens and takes {time}; --index plaid is approximate, and its recall is measured"
        )


LONG = 3600.0
"""The seconds from which an exact search is long."""

PAIRS_PER_SECOND = {"cpu": 1e9, "cuda": 1e11}
"""Rough figures for an exact search, until a run has shown one."""


def _estimate(prepared: PreparedRun) -> list[_Line]:
    """The cost of each planned score."""
    past = _PastRuns.of(prepared)
    runs = _shared_out(prepared.plan.open, _runs(prepared))

    def line(cell: PlannedScore) -> _Line:
        if cell.recipe_plan is not None:
            return _learnt(cell, runs.get(cell.key, []))
        return _ranked(cell, past) if cell.subject.ranks else _line(cell, past)

    labels = prepared.plan.trial_labels
    trials = [replace(line(trial), model=labels[trial.key]) for trial in prepared.plan.trials]
    return [*trials, *map(line, prepared.plan.cells)]


CHARACTERS_PER_TOKEN = 4.0
"""A rough figure for English, until a run has shown a model's own."""


@dataclass(frozen=True, kw_only=True)
class _PastRun:
    """The work behind a finished record, scored from vectors.

    `about` is what was encoded (task, data, splits and subsets), `how` the model, its encoding and prompts;
    `characters` are 0 in records that do not have them. `device` is its kind and name. `compared` are the
    pairs of tokens of an exact search and its seconds, `index` the tokens of new indexes and their seconds,
    `probed` the queries that indexes were searched for and their seconds, `passed` the settings of the index
    that vectors went into without being kept.
    """

    model: str
    about: str
    how: str
    max_length: int
    parameters: int
    texts: int
    characters: int
    tokens: int
    device: tuple[str, str]
    seconds: float
    others: float
    compared: tuple[float, float] = (0, 0)
    index: tuple[float, float] = (0, 0)
    passed: str = ""
    probed: tuple[float, float] = (0, 0)

    @staticmethod
    def of(record: Record) -> _PastRun:
        made, spent = record.provenance, record.provenance.get("seconds", {})
        device = made.get("device", {})
        return _PastRun(
            model=record.model.artifact,
            about=_about(record.identity),
            how=_how(record.identity),
            max_length=record.identity["encoding"]["max_length"],
            parameters=record.model.parameters or 0,
            texts=made.get("texts_encoded", 0),
            characters=made.get("characters_encoded", 0),
            tokens=made.get("tokens_encoded", 0),
            device=(device.get("kind", ""), device.get("name", "")),
            seconds=spent.get("encode", 0.0),
            others=spent.get("load", 0.0) + spent.get("score", 0.0),
            compared=(made.get("token_pairs", 0), spent.get("search", 0.0)),
            index=_new_indexes(made.get("index", {})),
            passed=_passed(made.get("index", {})),
            probed=_index_searches(made.get("index", {})),
        )

    @property
    def whole(self) -> bool:
        """Whether its texts were so short that few can have been cut."""
        return 0 < self.tokens < self.texts * self.max_length / 2


def _new_indexes(index: Mapping[str, Any]) -> tuple[float, float]:
    """The tokens of the indexes that a score made, and the seconds of that."""
    new = [search for search in index.get("searches", ()) if not search["was_there"]]
    return sum(one["tokens"] for one in new), sum(one["seconds"]["index"] for one in new)


def _passed(index: Mapping[str, Any]) -> str:
    """The settings of an index that has vectors which were not kept; empty where all were."""
    kept = all(search.get("vectors_kept", True) for search in index.get("searches", ()))
    return "" if kept else _index_settings(index["settings"])


def _index_settings(settings: Mapping[str, Any]) -> str:
    return digest({name: settings[name] for name in OF_INDEX})


def _index_searches(index: Mapping[str, Any]) -> tuple[float, float]:
    """The queries that a score's indexes were searched for, and the seconds of that with their recall."""
    done = index.get("searches", ())
    seconds = sum(one["seconds"]["search"] + one["seconds"]["recall"] for one in done)
    return sum(one["recall"]["queries"] for one in done), seconds


def _about(identity: Mapping[str, Any]) -> str:
    names = ("task", "data", "splits", "subsets", "documents")
    return digest({name: identity[name] for name in names if name in identity})


def _how(identity: Mapping[str, Any]) -> str:
    """What the vectors of a score depend on, whatever searches them."""
    encoding = {name: value for name, value in identity["encoding"].items() if name != "index"}
    return digest({**{name: identity[name] for name in ("artifact", "prompts")}, "encoding": encoding})


@dataclass(frozen=True, kw_only=True)
class _PastRuns:
    """The past runs of a results folder, from which costs are expected.

    `ranked` are the data and the seconds of past rankings, `cached` the keys of models with cached vectors,
    `device` the kind and name of the device that a run would take, `keep` the gigabytes of token vectors that
    are kept, and `alone` whether each model has a single task, so that no other task can have encoded its
    texts.
    """

    runs: tuple[_PastRun, ...]
    ranked: tuple[tuple[str, float], ...] = ()
    cached: frozenset[str]
    device: tuple[str, str]
    alone: bool = False
    keep: float = 0.0

    @staticmethod
    def of(prepared: PreparedRun) -> _PastRuns:
        """The past runs in the results folder of a run that is planned."""
        from harness.storage.vectors import cached_models

        records = [r for r in prepared.store.records() if "encoding" in r.identity]
        encoded = [r for r in records if r.identity["encoding"]["output"] != "ranking"]
        ranked = [r for r in records if r.identity["encoding"]["output"] == "ranking" and r.status == "done"]
        return _PastRuns(
            runs=tuple(map(_PastRun.of, encoded)),
            ranked=tuple((_about(r.identity), sum(r.provenance["seconds"].values())) for r in ranked),
            cached=cached_models(prepared.cache),
            device=_device(prepared.request.devices),
            alone=len(prepared.plan.cells) == len(prepared.subjects),
            keep=prepared.request.keep_vectors,
        )

    def work(self, cell: PlannedScore) -> tuple[int | None, int | None]:
        """The texts of a planned score that are still to be encoded, and their tokens; None where unknown.

        Texts that the model has encoded in the same way are cached, unless its vectors were dropped, or were
        not kept beside an index; the same index is there then. Else they are as many as a past run of the
        same data had to encode: fewer than the task has where other tasks share them. Their tokens are those
        of that run, by the two models' characters per token; without such a run the task's characters by
        this model's. No text has more tokens than the longest input.
        """
        size, model, encoding = cell.task.size, cell.subject.artifact.key, cell.encoding
        assert isinstance(encoding, Encoding)
        longest = encoding.max_length
        about = _about(cell.identity)
        same = [run for run in self.runs if run.about == about]
        there = "" if encoding.index is None else _index_settings(asdict(encoding.index))
        alike = [run for run in same if run.how == _how(cell.identity)]
        if model in self.cached and any(run.passed in ("", there) for run in alike):
            return 0, 0
        shown = max(same, key=lambda run: run.texts, default=None)
        if shown is not None and (shown.texts or not self.alone):
            if shown.whole or shown.max_length == longest or not shown.texts:
                ratio = self.characters_per_token(shown.model) / self.characters_per_token(model)
                return shown.texts, min(round(shown.tokens * ratio), shown.texts * longest)
            size = Size(texts=shown.texts, characters=shown.characters or size.characters)
        if size.texts is None or size.characters is None:
            return size.texts, None
        tokens = size.characters / self.characters_per_token(model)
        return size.texts, min(round(tokens) + 2 * size.texts, size.texts * longest)

    def characters_per_token(self, model: str) -> float:
        """Characters per token in a model's past runs of short texts, else in all models', else a default.

        Two special tokens of each text are not counted.
        """
        for runs in ([run for run in self.runs if run.model == model], self.runs):
            told = [run for run in runs if run.whole and run.characters]
            tokens = sum(run.tokens - 2 * run.texts for run in told)
            if tokens > 0:
                return sum(run.characters for run in told) / tokens
        return CHARACTERS_PER_TOKEN

    def tokens_per_second(self, model: str, parameters: int) -> float | None:
        """Tokens a second on this device in a model's past runs; else in others', by their parameters."""
        here = [run for run in self.runs if run.seconds and run.tokens and self._is_here(run)]
        own = [run for run in here if run.model == model]
        if own:
            return sum(run.tokens for run in own) / sum(run.seconds for run in own)
        work = sum(run.tokens * run.parameters for run in here)
        return work / sum(run.seconds for run in here) / parameters if work and parameters else None

    def _is_here(self, run: _PastRun) -> bool:
        kind, name = self.device
        return run.device[0] == kind and name in ("", run.device[1])

    def other_seconds(self, cell: PlannedScore) -> float:
        """The seconds for loading and scoring that the task took the last time; 0 if unknown."""
        return next((run.others for run in reversed(self.runs) if run.about == _about(cell.identity)), 0.0)

    def search(self, cell: PlannedScore) -> _SearchCost:
        """The cost of the search of a score, by past searches on this device."""
        encoding, size = cell.encoding, cell.task.size
        assert isinstance(encoding, Encoding)
        assert encoding.late_interaction is not None
        tokens = size.most_tokens(encoding.max_length) if size.texts is not None else None
        if encoding.index is not None:
            rate = self._rate([run.index for run in self.runs if self._is_here(run)])
            searched = self._rate([run.probed for run in self.runs if self._is_here(run)])
            return _SearchCost(
                seconds=(size.examples or USUAL_QUERIES) / searched if searched else None,
                index_seconds=tokens / rate if rate and tokens is not None else None,
                index_bytes=size_of_index(cell, self.keep) if tokens is not None else None,
                vectors_kept=not passes(cell, self.keep),
            )
        pairs = round(encoding.token_pairs(size))
        rate = self._rate([run.compared for run in self.runs if self._is_here(run)])
        usual = PAIRS_PER_SECOND.get(self.device[0], PAIRS_PER_SECOND["cpu"])
        return _SearchCost(
            queries=size.examples or USUAL_QUERIES,
            pairs=pairs,
            seconds=pairs / rate if rate else None,
            is_long=pairs / (rate or usual) >= LONG,
        )

    @staticmethod
    def _rate(done: Sequence[tuple[float, float]]) -> float | None:
        """Amounts a second, from amounts and seconds; None if nothing is known."""
        seconds = sum(one for amount, one in done if amount)
        return sum(amount for amount, _ in done) / seconds if seconds else None

    def parameters(self, cell: PlannedScore) -> int:
        """The parameters of a model: those in its records, else as many as its files hold in float32."""
        artifact = cell.subject.artifact
        known = next((run.parameters for run in self.runs if run.model == artifact.key and run.parameters), 0)
        folder = cell.subject.on_disk.artifact.folder
        return known or sum(path.stat().st_size for path in weight_files(folder)) // 4


def _device(devices: Sequence[str]) -> tuple[str, str]:
    """The kind and name of the device that a run would take, without importing torch; a GPU has no name."""
    gpu = Path("/proc/driver/nvidia/version").exists()
    kind = devices[0].partition(":")[0] if devices else "cuda" if gpu else "cpu"
    return kind, provenance.cpu_model() if kind == "cpu" else ""


def _runs(prepared: PreparedRun) -> dict[str, Estimate]:
    """The estimated cost of each missing run by key, from a few steps of it."""
    plan = prepared.plan
    jobs = [job for job in plan.jobs if job.kind == "finetune" and job.key not in plan.known]
    if not jobs or prepared.recipe is None:
        return {}
    request = prepared.request
    context = JobContext(
        device=check_devices(prepared.devices)[0],
        cache=prepared.cache,
        emit=lambda _event: None,
        limits=WorkerLimits(threads=request.threads),
    )
    found = prepared.recipe.estimate(jobs, context)
    return {
        job.key: replace(one, notes=tuple(f"{job.place.task}: {note}" for note in one.notes))
        for job, one in zip(jobs, found, strict=True)
        if one is not None and job.place is not None
    }


def _shared_out(cells: Sequence[PlannedScore], runs: dict[str, Estimate]) -> dict[str, list[Estimate]]:
    """Each run once: with the score of its own task, else with the first score that needs it."""
    found: dict[str, list[Estimate]] = {}
    for own in (True, False):
        for cell in cells:
            for job in cell.recipe_plan.jobs if cell.recipe_plan else ():
                if job.key in runs and (not own or (job.place and job.place.task == cell.task.name)):
                    found.setdefault(cell.key, []).append(runs.pop(job.key))
    return found


def _learnt(cell: PlannedScore, mine: Sequence[Estimate]) -> _Line:
    """The cost of a score that a recipe trains for."""
    return _Line(
        model=cell.subject.artifact.name,
        task=cell.task.name,
        key=cell.key,
        state=_state(cell),
        error=cell.problem.message if cell.problem else None,
        texts=None,
        tokens=None,
        flops=sum(one.flops for one in mine),
        seconds=sum(one.seconds for one in mine),
        runs=len(mine),
        steps=sum(one.steps for one in mine),
        notes=tuple(dict.fromkeys([*_begins(cell, mine), *(note for one in mine for note in one.notes)])),
    )


def _begins(cell: PlannedScore, mine: Sequence[Estimate]) -> list[str]:
    """The plan's own notes on a score with runs to make, such as which model is trained first."""
    notes = cell.recipe_plan.notes if cell.recipe_plan and mine else ()
    return [f"{cell.task.name}: {note}" for note in notes]


def _to_json(lines: list[_Line], trainings: list[TrainingCost]) -> dict[str, Any]:
    """The estimate as plain values (docs/json.md)."""
    return {
        "schema": 1,
        "trainings": [asdict(one) for one in trainings],
        "plan": [asdict(line) for line in lines],
    }


def _show(lines: list[_Line], suites: Sequence[Suite], console: Console) -> None:
    """Print the estimate as tables with their totals, and the notes on suites and runs."""
    learnt = [line for line in lines if line.runs is not None]
    for some, names in (
        ([line for line in lines if line.runs is None], ("texts ≈", "tokens ≈", "TFLOPs ≈", "time ≈")),
        (learnt, ("runs", "steps ≤", "TFLOPs ≈", "time ≤")),
    ):
        if some:
            print_table(_table(some, names, keys=console.width >= WIDE), console)
    if learnt:
        told = "Times of runs are from twenty steps on this machine, in one process; early stopping and"
        console.print(f"{told} several at once shorten them.", style="dim", highlight=False, soft_wrap=True)
    for note in dict.fromkeys(note for suite in suites for note in (*suite.notes, *left_out_lines(suite))):
        console.print(note, style="dim", highlight=False, soft_wrap=True)
    for note in dict.fromkeys(note for line in lines for note in line.notes):
        console.print(note, style="yellow", highlight=False, soft_wrap=True)
    to_do = [line for line in lines if line.state == "to do"]
    known = [line.seconds for line in to_do if line.seconds is not None]
    tokens = sum(line.tokens or 0 for line in to_do)
    work = f"{tokens:,} tokens, " if tokens else ""
    time = duration_text(sum(known)) if known or not to_do else "an unknown time"
    more = f", and {len(to_do) - len(known)} of unknown time" if 0 < len(known) < len(to_do) else ""
    console.print(
        f"{len(to_do)} to do, {sum(line.state == 'done' for line in lines)} done, "
        f"{sum(line.state == 'cannot run' for line in lines)} cannot run; "
        f"about {work}{time}{more}.",
        highlight=False,
    )


WIDE = 110
"""The width from which a plan shows the keys of scores, which JSON has whole."""


def _table(lines: Sequence[_Line], numbers: Sequence[str], *, keys: bool) -> Table:
    from rich.table import Table

    table = Table(title="plan; nothing was run")
    for name in ("model", "task", *(["key"] if keys else []), "state"):
        table.add_column(name)
    for name in numbers:
        table.add_column(name, justify="right")
    for line in lines:
        key = [line.key[:12]] if keys else []
        state = f"{line.state}, trial" if line.purpose == "trial" else line.state
        table.add_row(line.model, line.task, *key, state, *_numbers(line))
    return table


def _line(cell: PlannedScore, past: _PastRuns) -> _Line:
    """The cost of a score from vectors."""
    state = _state(cell)
    search = past.search(cell) if state == "to do" and cell.subject.interacts_late else None
    texts, tokens = past.work(cell) if state == "to do" else (None, None) if cell.problem else (0, 0)
    parameters = past.parameters(cell)
    rate = past.tokens_per_second(cell.subject.artifact.key, parameters)
    return _Line(
        model=cell.subject.artifact.name,
        task=cell.task.name,
        key=cell.key,
        state=state,
        purpose=cell.purpose,
        error=cell.problem.message if cell.problem else None,
        texts=texts,
        tokens=tokens,
        data_texts=cell.task.size.texts,
        data_characters=cell.task.size.characters,
        flops=_flops(cell, parameters, texts, tokens),
        seconds=None
        if tokens is None or not (rate or tokens == 0) or (search and search.is_unknown)
        else (tokens / rate if rate else 0.0)
        + (0 if cell.record else past.other_seconds(cell))
        + ((search.seconds or 0.0) + (search.index_seconds or 0.0) if search else 0.0),
        search=search,
        notes=tuple(filter(None, [search.note(cell.task.name) if search else ""])),
    )


def _flops(cell: PlannedScore, parameters: int, texts: int | None, tokens: int | None) -> float | None:
    """Two for each parameter and token; the vectors of a context are read again with each text."""
    if not parameters or tokens is None:
        return None
    encoding = cell.subject.encoding
    behind = encoding.context.size if isinstance(encoding, Encoding) and encoding.context else 0
    share = 0.5 if behind else 1.0  # each stage has half of the parameters, and texts pass through one
    return 2.0 * parameters * share * (tokens + behind * (texts or 0))


def _ranked(cell: PlannedScore, past: _PastRuns) -> _Line:
    """The cost of a score from a ranking: nothing is encoded, and the time is that of the last time."""
    state = _state(cell)
    about = _about(cell.identity)
    last = next((seconds for of, seconds in reversed(past.ranked) if of == about), None)
    return _Line(
        model=cell.subject.artifact.name,
        task=cell.task.name,
        key=cell.key,
        state=state,
        error=cell.problem.message if cell.problem else None,
        texts=None if cell.problem else 0,
        tokens=None if cell.problem else 0,
        data_texts=cell.task.size.texts,
        data_characters=cell.task.size.characters,
        flops=None if cell.problem else 0.0,
        seconds=0.0 if cell.record else None if cell.problem else last,
    )


def _state(cell: PlannedScore) -> str:
    return "cannot run" if cell.problem else "to do" if cell.record is None else "done"


def _numbers(line: _Line) -> list[str]:
    counts = (line.texts, line.tokens) if line.runs is None else (line.runs, line.steps)
    return [
        *("?" if count is None else f"{count:,}" for count in counts),
        "?" if line.flops is None else f"{line.flops / 1e12:,.1f}",
        "?" if line.seconds is None else duration_text(line.seconds),
    ]
