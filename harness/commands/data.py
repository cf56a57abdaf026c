"""`harness data`: the data of suites and recipes, and a teacher's scores for distillation (docs/json.md)."""

from __future__ import annotations

import contextlib
import json
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, NoReturn, TypeVar, get_args

import click

from harness.commands import options
from harness.core import files
from harness.core.arguments import parse_allowances, split_names
from harness.core.encoding import Settings
from harness.core.errors import DataError, UsageError
from harness.core.provenance import forbid_network
from harness.core.terminal import create_console, create_table, print_lines, print_table, shorten_names
from harness.core.types import DataTable, SuiteOptions, Task
from harness.data.folder import PARTIAL, Need, list_data_sets
from harness.data.locate import DataSettings, Finding, Unavailable, fetch_remote_size, format_size
from harness.data.mirror import Problem, Status, needs, pull, verify
from harness.data.scored_data import ScoredData
from harness.data.training.loading import TrainingSize, describe_repeats
from harness.data.training.sets import TrainingData, locate_user_training
from harness.driver import progress
from harness.executors.local import choose_device
from harness.jobs.context import WorkerLimits
from harness.jobs.recipe import ModelRecipe
from harness.plan.catalog import find_protocol, open_recipe, open_suites, read_prompts, resolve_recipe_chain
from harness.plan.catalog import load_suite_entries as catalog_suites
from harness.plan.models import ModelOptions
from harness.plan.protocol import expand_protocol
from harness.plan.request import Request
from harness.plan.resolved_request import Recipes
from harness.tools.teacher_scores import Scale, ScoringPlan, ScoringRequest, make_scored_data

SCHEMA = 1
"""The version of the --json output (docs/json.md)."""

Function = TypeVar("Function", bound=Callable[..., Any])


def _add_selection_options(function: Function) -> Function:
    """Add the options that select data sets and the form of the output."""
    text = "Suite, or suite:argument. Repeat for several."
    suite = options.make_option(Request, "suites", required=False, help=text)
    return suite(options.add_options("languages", "subsets", "data")(options.as_json(function)))


def _add_recipe_options(function: Function) -> Function:
    """Add the options that select the data of recipes and of a protocol."""
    text = "Recipe whose data is meant, also that which can choose among checkpoints. Repeat for several."
    recipe = click.option("--recipe", "recipes", multiple=True, metavar="RECIPE", help=text)
    text = "Protocol whose data is meant; --tasks names steps of it, or tasks."
    protocol = click.option("--protocol", default="", metavar="NAME", help=text)
    return recipe(protocol(options.add_options("tasks")(function)))


@click.group()
def command() -> None:
    """Show, mirror, verify and check the data that suites and recipes need.

    A data root holds data sets as the hub has them, in ORG/NAME. `pull` fills one on a connected
    machine; a run elsewhere then needs no network.
    """


@command.command("list")
@_add_selection_options
@_add_recipe_options
@options.cache
@options.offline
def _list_data(data: Path | None, as_json: bool, cache: Path | None, offline: bool, **chosen: Any) -> None:
    """List data sets: revision, tasks, size, place and state.

    Without --suite, --recipe and --protocol, lists what lies in the data root.
    """
    root = files.resolve_data_root(data)
    settings = DataSettings(root=root, offline=offline, cache=files.resolve_cache_folder(cache))
    rows = [Status.resolve_status(need, settings) for need in _select_needs(root, settings.cache, **chosen)]
    sizes = {} if offline else _fetch_remote_sizes([row.need for row in rows if row.size is None])
    if not rows and not as_json:
        click.echo("No data set of the hub is needed." if _is_chosen(chosen) else f"Nothing lies in {root}.")
        return None
    if as_json:
        return _print_json([_serialize_status(row, sizes) for row in rows])
    return _print_table(HEADER, [_format_status_row(row, sizes) for row in rows])


@command.command("pull")
@_add_selection_options
@_add_recipe_options
def _pull_data(data: Path | None, as_json: bool, **chosen: Any) -> None:
    """Fetch data sets from the hub into the data root, at their pinned revisions.

    Verified data is kept, and an interrupted download resumes. If ORG/NAME has another revision, the pinned
    one goes to ORG/NAME@REVISION.
    """
    if not _is_chosen(chosen):
        raise UsageError(
            "Which data?",
            hint="Name suites, recipes or a protocol: harness data pull --suite SUITE --recipe RECIPE "
            "--protocol NAME --data DIR",
        )
    root = files.resolve_data_root(data)
    rows = _pull_all(_select_needs(root, **chosen), _require_data_root(root), quiet=as_json)
    if as_json:
        _print_json(rows)
    absent = sum(row["state"] not in ("pulled", "kept") for row in rows)
    if absent:
        click.echo(f"{absent} of {len(rows)} data sets are missing.", err=True)
    _exit(1 if absent else 0)


@command.command("verify")
@_add_selection_options
@_add_recipe_options
@options.offline
def _verify_data(data: Path | None, as_json: bool, offline: bool, **chosen: Any) -> None:
    """Check every file in the data root against what was pulled.

    Without --suite, --recipe and --protocol, checks all that lies there. Ends with 1 if anything is
    missing or wrong. It never asks the hub, so --offline changes nothing.
    """
    root = _require_data_root(files.resolve_data_root(data))
    checked = [(need, verify(need, root)) for need in _select_needs(root, **chosen)]
    if as_json:
        _print_json([_serialize_verification(need, problems) for need, problems in checked])
    else:
        for need, problems in checked:
            _print_verified(need, problems)
    wrong = any(problem.wrong for _, problems in checked for problem in problems)
    if wrong:
        options = _format_chosen(chosen) if _is_chosen(chosen) else "--suite SUITE"
        click.echo(f"To repair: harness data pull {options} --data {shlex.quote(str(root))}", err=True)
    _exit(1 if wrong else 0)


@command.command("check")
@click.argument("folder", metavar="[DIR]", required=False, type=click.Path(path_type=Path))
@_add_selection_options
@options.add_options("splits")
@options.cache
@options.offline
@click.option(
    "--train-data",
    default=None,
    metavar="DATA",
    help="Training data of your own: a file, a folder in BEIR's layout, ORG/NAME:CONFIG, or code:FOLDER "
    "(docs/training-data.md).",
)
def _check_data_folder(
    folder: Path | None,
    suites: tuple[str, ...],
    languages: str,
    subsets: str,
    splits: str,
    data: Path | None,
    as_json: bool,
    cache: Path | None,
    offline: bool,
    train_data: str | None,
) -> None:
    """Show which data tasks need, and which of it is in DIR; no model is loaded.

    DIR is a data root, or a folder of your own data. Without --suite, every task that reads a data set in the
    root is shown, with the subsets that are there. The rows that a task reads are counted, and again only if
    the files change. Ends with 1 if anything is missing. With --train-data all rows are read.
    """
    if train_data is not None:
        settings = DataSettings(
            root=files.resolve_data_root(data), offline=offline, cache=files.resolve_cache_folder(cache)
        )
        _check_training(train_data, settings, as_json=as_json)
        return
    has_own_data = folder is not None and _has_own_data(folder)
    root = files.resolve_data_root(None if has_own_data else folder or data)
    settings = DataSettings(
        # Offline, as the question is what lies in DIR, and not what the hub could add.
        root=_require_root_folder(root),
        offline=True,
        cache=files.resolve_cache_folder(cache),
    )
    if has_own_data and not suites:
        suites = (f"local:{folder}",)
    if suites:
        narrowed = replace(
            _build_suite_options(languages, subsets), splits=split_names(splits), cache=settings.cache
        )
        tasks = [task for suite in open_suites(suites, narrowed) for task in suite.tasks]
        findings = [Finding.check_task_data(task, settings) for task in dict.fromkeys(tasks)]
    else:
        findings = _collect_root_findings(root, settings)
    if as_json:
        _print_json([_serialize_finding(one) for one in findings])
    else:
        for finding in findings:
            _print_finding(finding)
        lost = sum(one.state != "ok" for one in findings)
        click.echo(f"{len(findings) - lost} of {len(findings)} tasks can be run.")
    _exit(1 if any(one.state != "ok" for one in findings) else 0)


def _check_training(text: str, settings: DataSettings, *, as_json: bool) -> None:
    """Print the form and the size of training data."""
    located = locate_user_training(text, settings)
    size = TrainingSize.measure_training(located, settings.cache)
    notes = [*located.notes, *describe_repeats(located, settings.cache)]
    if as_json:
        _echo_json(
            {
                "schema": SCHEMA,
                "name": located.name,
                "form": located.data.form,
                "rows": size.rows,
                "score": located.data.score or None,
                "characters": size.characters,
                "documents": size.documents,
                "constant": size.constant,
                "negatives": size.negatives,
                "notes": notes,
                "identity": located.data.identity,
            }
        )
        return
    click.echo(f"{located.name}: {size.rows:,} rows, each a {located.data.form}")
    if located.read_as:
        click.echo(f"  columns: {located.read_as}")
    for name, characters in size.characters.items():
        click.echo(f"  {name}: {characters:,.1f} characters on average")
    if size.documents is not None:
        least, most = size.documents
        each = f"{least}" if least == most else f"{least} to {most}"
        click.echo(f"  {each} documents a query; {size.constant:,} with one score for all of them")
        click.echo(f"  --recipe colbert takes it with --set documents={least}")
    elif located.data.score:
        click.echo(f"  {located.data.score}: the score")
    elif size.negatives is not None:
        least, most = size.negatives
        click.echo(f"  {f'{least}' if least == most else f'{least} to {most}'} negatives a row")
        click.echo("  --recipe unified-contrastive takes it")
    for note in notes:
        click.echo(f"  {note}")


def _has_own_data(folder: Path) -> bool:
    return any(
        (folder / name).exists() for name in ("harness.toml", "corpus.jsonl", "queries.jsonl", "qrels")
    )


def _collect_root_findings(root: Path | None, settings: DataSettings) -> list[Finding]:
    """The findings on every task that reads a data set in the root, each with the subsets that are there."""
    present_paths = {need.path for need in _select_needs(root)}
    if not present_paths:
        raise UsageError(
            f"{root} holds no data set, and no data of your own.",
            hint="A data set lies in DIR/ORG/NAME (docs/data-root.md); of your own are a harness.toml, or "
            "corpus.jsonl, queries.jsonl and qrels/ (docs/local-data.md).",
        )
    names = [f"{s.name}:{o.name}" for s in catalog_suites().values() for o in s.offers() if o.kind == "task"]
    names += [suite.name for suite in catalog_suites().values() if suite.alone and not suite.argument]
    options = SuiteOptions(cache=settings.cache)
    opened = (task for name in names for task in open_suites([name], options)[0].tasks)
    tasks = {task.name: task for task in opened if task.data.path in present_paths}
    if not tasks:
        raise UsageError(
            f"No task of a suite reads what lies in {root}: {shorten_names(sorted(present_paths))}.",
            hint="DIR is the folder above ORG/NAME; `harness data list --suite SUITE` names data sets.",
        )
    return [_check_present_subsets(task, settings) for task in tasks.values()]


def _check_present_subsets(task: Task, settings: DataSettings) -> Finding:
    """The finding on the subsets of a task that can be read, if any, else on all of them."""
    finding = Finding.check_task_data(task, settings)
    if finding.state == "ok" or len(task.subsets) == 1:
        return finding
    each = [Finding.check_task_data(replace(task, subsets=(subset,)), settings) for subset in task.subsets]
    # A root may have been filled for some languages only: that is no fault of the others.
    present = tuple(one.task.subsets[0] for one in each if one.state == "ok")
    return Finding.check_task_data(replace(task, subsets=present), settings) if present else finding


def _is_chosen(chosen: Mapping[str, Any]) -> bool:
    """Whether the options name some data."""
    return any(chosen[name] for name in ("suites", "recipes", "protocol"))


def _format_chosen(chosen: Mapping[str, Any]) -> str:
    """The options that name some data, as they were typed."""
    flags = {"suites": "--suite", "recipes": "--recipe"}
    parts = (
        (flags.get(name, f"--{name}"), text)
        for name, value in chosen.items()
        for text in ((value,) if isinstance(value, str) else value or ())
        if text
    )
    return shlex.join(part for pair in parts for part in pair)


def _select_needs(
    root: Path | None,
    cache: Path | None = None,
    *,
    suites: Sequence[str] = (),
    recipes: Sequence[str] = (),
    protocol: str = "",
    tasks: str | None = None,
    languages: str = "",
    subsets: str = "",
) -> tuple[Need, ...]:
    if tasks and not (suites or protocol):
        raise UsageError("--tasks narrows a suite or a protocol.", hint="Name it: --suite or --protocol.")
    if suites or recipes or protocol:
        names = split_names(tasks or "")
        narrowed = replace(_build_suite_options(languages, subsets), tasks=names, cache=cache)
        opened = [*open_suites(suites, narrowed)] if suites else []
        training: dict[str, list[TrainingData]] = {}
        for name in recipes:
            _collect_training_data(training, name)
        base = Request(models=(), suites=(), options=narrowed)
        read: list[Task] = []
        for step in expand_protocol(find_protocol(protocol), base).values() if protocol else ():
            resolved = Recipes.resolve_recipes(step.open_suites(), step)
            opened += step.open_suites()
            read += resolved.sweep.tasks.values() if resolved.sweep else ()
            for stage in resolved.stages:
                _add_training_data(training, stage.name, stage)
        return needs([*(task for suite in opened for task in suite.tasks), *read], training)
    if root is None:
        raise UsageError("Which data?", hint="Name a suite (--suite SUITE) or a data root (--data DIR).")
    _require_root_folder(root)
    return list_data_sets(root)


def _collect_training_data(uses: dict[str, list[TrainingData]], recipe: str) -> None:
    """Add the data sets of a recipe, by their use."""
    for stage in resolve_recipe_chain(recipe).split("+"):
        opened: Any = open_recipe(stage)
        if not hasattr(opened, "all_data"):
            raise UsageError(
                f"The recipe {stage!r} trains on the data of the tasks that it is scored on.",
                hint="Name their suite: --suite SUITE.",
            )
        _add_training_data(uses, recipe, opened)


def _add_training_data(uses: dict[str, list[TrainingData]], name: str, recipe: ModelRecipe) -> None:
    """Add the data sets that a recipe trains on, under its name, and those that it can only select by."""
    trained_on = {data.path for data in recipe.data}
    for data in recipe.all_data:
        uses.setdefault(name if data.path in trained_on else f"{name} (selection)", []).append(data)


def _require_root_folder(root: Path | None) -> Path | None:
    if root is not None and not root.is_dir():
        raise UsageError(f"The data root {root} is not a folder.", hint="`harness data pull` makes one.")
    return root


def _build_suite_options(languages: str, subsets: str) -> SuiteOptions:
    return SuiteOptions(languages=split_names(languages), subsets=split_names(subsets))


def _require_data_root(root: Path | None) -> Path:
    if root is None:
        raise UsageError("Which folder?", hint="Name the data root: --data DIR, or set HARNESS_DATA.")
    return root


def _pull_all(wanted: Sequence[Need], root: Path, *, quiet: bool) -> list[dict[str, Any]]:
    """Pull one data set after the other; an error that would hit the others as well ends it."""
    rows = [{"path": n.path, "revision": n.revision, "state": "not tried", "error": None} for n in wanted]
    for number, (need, row) in enumerate(zip(wanted, rows, strict=True), 1):
        try:
            row["state"] = pull(need, root, progress=lambda line: click.echo(f"  {line}", err=True))
        except DataError as error:
            row |= {"state": "failed", "error": str(error)}
            click.echo(f"Error: {error}", err=True)
            # The hub cannot be reached: every further data set would wait for the same error.
            if isinstance(error, Unavailable):
                break
        if not quiet:
            click.echo(f"[{number}/{len(wanted)}] {row['state']} {need.path}")
    return rows


def _print_verified(need: Need, problems: Sequence[Problem]) -> None:
    colours = {"wrong": "red", "unverified": "yellow", "verified": "green"}
    verdict = _describe_verdict(problems)
    click.echo(
        f"{click.style(f'{verdict:<10}', fg=colours[verdict])} {need.path} {need.revision[:12]}".rstrip()
    )
    for problem in problems:
        click.echo(f"           {problem.message}")


def _print_finding(finding: Finding) -> None:
    colours = {"ok": "green", "faulty": "red", "missing": "red"}
    state = click.style(f"{finding.state:<8}", fg=colours[finding.state])
    click.echo(f"{state} {finding.task.name} {finding.task.data.path}".rstrip())
    report = finding.report
    for line in dict.fromkeys((*_needs(finding), *finding.faults, *report.gaps, *report.notes)):
        click.echo(f"         {line}")


OWN = "what its own code reads was not looked at"


def _needs(finding: Finding) -> Iterator[str]:
    """Lines on what a task reads: its tables, or the size of its own files."""
    alike: dict[tuple[object, ...], list[DataTable]] = {}
    for table in finding.tables:
        alike.setdefault((table.splits, table.texts, table.values), []).append(table)
    for tables in alike.values():
        configs = shorten_names([" or ".join(table.config) or "default" for table in tables], most=3)
        columns = ", ".join(" or ".join(names) for names in (*tables[0].texts, *tables[0].values))
        splits = " or the only split" if tables[0].lone_split else ""
        read = f"{', '.join(tables[0].splits) or 'any split'}{splits}"
        yield f"needs {configs}: {read}; columns {columns}" if columns else f"needs {configs}; {OWN}"
    if not finding.tables and finding.task.data.path:
        yield OWN
    if finding.size is not None and finding.size.texts is not None and not finding.task.data.path:
        yield f"has {finding.size.texts:,} texts, {finding.size.characters:,} characters"
    counts = finding.report.counts
    if counts.get("rows") and finding.task.data.path:
        declared = f" of {counts['declared']:,} declared" if "declared" in counts else ""
        parts = f" in {counts['parts']:,} of {counts['parts_declared']:,} parts" if "parts" in counts else ""
        yield f"has {counts['rows']:,} rows{declared}{parts}"


def _serialize_finding(finding: Finding) -> dict[str, Any]:
    """A finding as plain values."""
    return {
        "task": finding.task.name,
        "path": finding.task.data.path,
        "subsets": list(finding.task.subsets),
        "state": finding.state,
        "needs": [
            {
                "config": list(table.config) or ["default"],
                "splits": list(table.splits),
                "columns": [list(names) for names in (*table.texts, *table.values)],
            }
            for table in finding.tables
        ],
        "faults": list(finding.faults),
        "counts": dict(finding.report.counts),
        "notes": list(dict.fromkeys((*finding.report.gaps, *finding.report.notes))),
        "texts": finding.size.texts if finding.size else None,
    }


def _print_json(rows: list[dict[str, Any]]) -> None:
    _echo_json({"schema": SCHEMA, "data": rows})


def _echo_json(document: Mapping[str, Any]) -> None:
    click.echo(json.dumps(document, indent=1, ensure_ascii=False))


def _print_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table: drawn on a terminal, plain columns of full width anywhere else."""
    out = create_console()
    # A program that reads the output gets whole names, however long, and one line for each row.
    if not out.is_terminal:
        widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
        for row in (header, *rows):
            click.echo(
                "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip()
            )
        return
    table = create_table(*header)
    for row in rows:
        table.add_row(*row)
    print_table(table, out)


def _exit(code: int) -> NoReturn:
    click.get_current_context().exit(code)


HEADER = ("data set", "revision", "tasks", "size", "where", "state")

PLACES = {"root": "data root", "hub-cache": "hub cache", "hub": "hub"}


def _format_status_row(row: Status, sizes: Mapping[Need, int]) -> tuple[str, ...]:
    """The cells under `HEADER`; `sizes` are the known sizes of data that is not here."""
    need = row.need
    tasks = ", ".join(need.tasks[:3]) + (f" +{len(need.tasks) - 3}" if len(need.tasks) > 3 else "")
    where = PLACES.get(row.where or "", "–")
    return (
        need.path,
        need.revision[:12] or "–",
        tasks or "–",
        format_size(_find_data_size(row, sizes)),
        where,
        row.state,
    )


def _serialize_status(row: Status, sizes: Mapping[Need, int]) -> dict[str, Any]:
    """The state of a data set as plain values."""
    return {
        "path": row.need.path,
        "revision": row.need.revision,
        "content": row.data.content if row.data and row.data.content else None,
        "tasks": list(row.need.tasks),
        "subsets": list(row.need.subsets),
        "bytes": _find_data_size(row, sizes),
        "where": row.where,
        "state": row.state,
    }


def _serialize_verification(need: Need, problems: Sequence[Problem]) -> dict[str, Any]:
    """The result of a verification as plain values."""
    problem_rows = [{"kind": p.kind, "file": p.file, "message": p.message} for p in problems]
    return {
        "path": need.path,
        "revision": need.revision,
        "state": _describe_verdict(problems),
        "problems": problem_rows,
    }


def _describe_verdict(problems: Sequence[Problem]) -> Literal["wrong", "unverified", "verified"]:
    """The verdict on a data set; "unverified" if none of its problems is an error."""
    if any(p.wrong for p in problems):
        return "wrong"
    return "unverified" if problems else "verified"


def _find_data_size(row: Status, sizes: Mapping[Need, int]) -> int | None:
    return row.size if row.size is not None else sizes.get(row.need)


def _fetch_remote_sizes(wanted: Sequence[Need]) -> dict[Need, int]:
    """The sizes by the hub; after the first sign that it cannot be reached no more are requested."""
    from concurrent.futures import ThreadPoolExecutor

    # Threads read and write it without a lock: at worst a few requests more are made in vain.
    reachable = True

    def ask(need: Need) -> int | None:
        nonlocal reachable
        try:
            return fetch_remote_size(need, timeout=5) if reachable else None
        except Unavailable:
            reachable = False
        except DataError:
            pass
        return None

    # A request is one small answer of the hub, so that its delay counts and not the cores here.
    with ThreadPoolExecutor(max_workers=8) as pool:
        answers = zip(wanted, pool.map(ask, wanted), strict=True)
        return {need: size for need, size in answers if size is not None}


# `harness data score`


@command.command("score")
@click.option(
    "--teacher",
    required=True,
    metavar="MODEL",
    help="Model whose scores are written: catalog name, org/name[@revision], or a folder.",
)
@click.option(
    "--train-data",
    required=True,
    metavar="DATA",
    help="Pairs of a query and its answer: a file, a folder in BEIR's layout, ORG/NAME:CONFIG, or "
    "code:FOLDER (docs/training-data.md).",
)
@click.option(
    "--corpus",
    default="",
    metavar="DOCUMENTS",
    help="Further documents to choose from: a corpus.jsonl, or a folder with one (default: the "
    "corpus of a folder in BEIR's layout, else the positives and negatives of all pairs).",
)
@options.output_folder
@click.option(
    "--candidates",
    default="bm25",
    metavar="MODEL",
    help="Ranker that chooses the other documents of a query: bm25, also with settings, or a model "
    "(default: bm25).",
)
@click.option(
    "--documents",
    type=int,
    default=32,
    help="Documents of each query, positives included (default: 32).",
)
@click.option(
    "--queries",
    type=click.IntRange(min=1),
    default=None,
    help="Queries, drawn by chance (default: all).",
)
@click.option(
    "--scale",
    type=click.Choice(get_args(Scale)),
    default="none",
    help="How scores are written: as the teacher gives them, or from 0 to 1 for each query (default: none).",
)
@options.add_options("max_length", "query_length", "dtype", "vectors", "similarity", "prompts", "prompt_file")
@options.add_options("seed", "cache", "data", "offline")
@options.device
@options.add_options("threads", "batch_tokens", "trust_remote_code", "allow")
@click.option("--dry-run", is_flag=True, help="Print what would be scored; load no model.")
@options.as_json
def _score_data(output: Path, device: str, dry_run: bool, as_json: bool, **given: Any) -> int:
    """Make a data set for distillation: a teacher's scores of each query's answers and other documents.

    The folder is in PyLate's form, with the configurations train, queries and documents. The same
    command again finds it there; after an interruption it continues with the vectors in the cache.
    """
    output, cache = files.resolve_home_path(output), files.resolve_cache_folder(given["cache"])
    allow = parse_allowances(given["allow"])
    data = DataSettings(
        root=files.resolve_data_root(given["data"]),
        offline=given["offline"],
        cache=cache,
        partial=PARTIAL in allow,
    )
    models = ModelOptions(
        offline=given["offline"],
        trust_remote_code=given["trust_remote_code"],
        cache=cache,
        allow=allow,
        gate=True,
    )
    with forbid_network() if given["offline"] else contextlib.nullcontext():
        plan = ScoringPlan.build_scoring_plan(_build_scoring_request(given), data, models)
        scored_data = ScoredData.read_scored_data(output, plan.identity)
        if dry_run:
            _print_scoring_plan(plan, output, scored_data, as_json=as_json)
            return 0
        if scored_data is None:
            # Before the models are loaded: hours of scoring would be lost where no folder can be made.
            files.require_writable(output.absolute().parent)
            limits = WorkerLimits(threads=given["threads"], batch_tokens=given["batch_tokens"])
            with progress.follow_events(create_console(stderr=True)) as listen:
                scored_data = make_scored_data(
                    plan, output, device=choose_device(device), cache=cache, limits=limits, listen=listen
                )
    if as_json:
        _echo_json(_serialize_scored_data(scored_data, plan))
    else:
        _print_made(scored_data, plan.request.documents)
    return 0


def _build_scoring_request(values: dict[str, Any]) -> ScoringRequest:
    names = ["max_length", "query_length", "dtype", "vectors", "similarity", "seed"]
    prompts = read_prompts(values["prompts"], values["prompt_file"])
    settings = Settings(prompts=prompts, **{name: values[name] for name in names})
    names = ["teacher", "candidates", "train_data", "corpus", "documents", "queries", "scale"]
    return ScoringRequest(settings=settings, **{name: values[name] for name in names})


def _print_made(scored_data: ScoredData, documents: int) -> None:
    counts = scored_data.facts["counts"]
    print_lines(scored_data.facts["notes"], style="yellow")
    low, high = scored_data.facts["range"]
    state = "was there" if scored_data.was_there else "made"
    lines = [
        f"{scored_data.folder}: {state}, key {scored_data.key[:12]}",
        f"  {counts['queries']:,} queries, {counts['documents']:,} documents, {counts['scores']:,} scores "
        f"of {scored_data.facts['teacher']['name']}, from {low:.4g} to {high:.4g}",
    ]
    # Queries with fewer documents than were asked for do not fit one value of `documents`.
    if counts["scores"] == documents * counts["queries"]:
        arguments = f"--train-data {scored_data.folder} --set documents={documents}"
        lines.append(f"  harness train --model BACKBONE --recipe colbert {arguments}")
    print_lines(lines)


def _serialize_scored_data(scored_data: ScoredData, plan: ScoringPlan) -> dict[str, Any]:
    facts = ("teacher", "candidates", "data", "counts", "range", "constant", "left_out", "notes")
    return {
        "schema": SCHEMA,
        "folder": str(scored_data.folder),
        "key": scored_data.key,
        "state": "there" if scored_data.was_there else "made",
        "asked": plan.request.documents,
        **{name: scored_data.facts[name] for name in facts},
    }


def _print_scoring_plan(
    plan: ScoringPlan, output: Path, scored_data: ScoredData | None, *, as_json: bool
) -> None:
    """Print what would be done."""
    collection = plan.collection
    facts: dict[str, Any] = {
        "schema": SCHEMA,
        "folder": str(output),
        "key": plan.key,
        "state": "to do" if scored_data is None else "there",
        "teacher": plan.teacher.artifact.name,
        "candidates": plan.candidates.artifact.name,
        "data": collection.name,
        "queries": len(plan.queries),
        "corpus": len(collection.documents),
        "asked": plan.request.documents,
        "scores": plan.pairs,
        "texts": len(plan.queries) + min(len(collection.documents), plan.pairs),
        "notes": list(collection.notes),
    }
    if as_json:
        _echo_json(facts)
        return
    lines = (
        f"{facts['folder']}: {facts['state']}, key {facts['key'][:12]}; nothing was run",
        f"  {facts['data']}: {facts['queries']:,} queries, {facts['corpus']:,} documents to choose from",
        f"  {facts['candidates']} ranks, {facts['teacher']} scores {facts['asked']} documents of each query: "
        f"{facts['scores']:,} scores, up to {facts['texts']:,} texts to encode",
        *(f"  {note}" for note in facts["notes"]),
    )
    click.echo("\n".join(lines))
