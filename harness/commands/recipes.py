"""`harness recipes`: every setting of a recipe with its source."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

import click

from harness.commands import options
from harness.core import files
from harness.core.encoding import Settings, is_bm25
from harness.core.errors import UsageError
from harness.core.provenance import forbid_network
from harness.core.sources import Source, SourcedSetting
from harness.core.terminal import group_names, shorten_names
from harness.core.types import Artifact
from harness.driver.report.protocol import list_request_settings
from harness.jobs.protocol import ProtocolColumn, ProtocolTable
from harness.jobs.recipe import PrintedRow, RecipeEntry, list_recipe_settings
from harness.plan import catalog
from harness.plan.models import ModelOptions, resolve_model
from harness.plan.request import parse_changes
from harness.results.reported import Paper, normalize_metric, read_papers


@click.group("recipes")
def command() -> None:
    """List the recipes, and show every setting of one with its source."""


@command.command("list")
@options.as_json
@click.pass_context
def _list_recipes(context: click.Context, as_json: bool) -> int:
    """List the recipes with their variants, as `harness list recipes` does."""
    program = context.find_root().command
    assert isinstance(program, click.Group)
    lists = program.get_command(context, "list")
    assert lists is not None
    code: int = context.invoke(lists, what="recipes", as_json=as_json)
    return code


@command.command("show")
@click.argument("recipe")
@click.option("--model", metavar="MODEL", help="Show values as they are for this backbone.")
@options.results
@options.cache
@options.offline
@options.as_json
def _show_recipe(
    recipe: str,
    model: str | None,
    results: Path | None,
    cache: Path | None,
    offline: bool | None,
    as_json: bool,
) -> int:
    """Show every setting of RECIPE, `NAME`, `NAME:VARIANT` or those of a paper, with its value and sources.

    A value without a source is ours. Before the settings comes the printed row that is nearest to the
    recipe, with its command. After them come what the sources leave open, what the paper chose for its
    models, and the steps of protocols that evaluate the recipe. Several trainings are shown one after the
    other.
    """
    with forbid_network() if offline else contextlib.nullcontext():
        if model is not None and is_bm25(model):
            raise UsageError(f"{model} has no weights.", hint="Name a model that can be trained.")
        places = ModelOptions(
            offline=bool(offline),
            cache=files.resolve_cache_folder(cache),
            results=files.resolve_results_folder(results),
            trained=True,
        )
        backbone = None if model is None else resolve_model(model, Settings(), places).artifact
    typed: dict[str, str] = {}
    for name in _list_paper_recipes(recipe) or [recipe]:
        for stage in catalog.resolve_recipe_chain(name).split("+"):
            typed.setdefault(stage, name)
    stages = [_describe_recipe(stage, name, backbone) for stage, name in typed.items()]
    if as_json:
        content = {"schema": 1, "model": model, "recipes": stages}
        click.echo(json.dumps(content, indent=1, ensure_ascii=False, default=str))
    else:
        click.echo("\n\n".join(map(_format_recipe, stages)))
    return 0


def _list_paper_recipes(typed: str) -> list[str]:
    """The recipes that printed rows of a paper are nearest to; none of a recipe's own name."""
    if typed.partition(":")[0] in catalog.load_recipe_entries():
        return []
    printed = [row for entry in catalog.load_recipe_entries().values() for row in entry.printed]
    # A protocol has the first word of its paper's name.
    names = {row.paper: {row.paper.lower(), row.paper.lower().partition("-")[0]} for row in printed}
    return [*dict.fromkeys(row.recipe for row in printed if typed.lower() in names[row.paper])]


def _describe_recipe(name: str, typed: str, backbone: Artifact | None) -> dict[str, Any]:
    recipe = catalog.open_recipe(name)
    entry, variant = catalog.find_recipe_entry(name), name.partition(":")[2]
    rows = list_recipe_settings(entry, variant, recipe, backbone)
    return {
        "name": recipe.name,
        "source": recipe.source,
        "settable": [field.name for field in fields(entry.settings[variant])],
        "settings": [{**asdict(row), "ours": row.ours} for row in rows],
        "facts": _list_facts(recipe, backbone or ""),
        "assumed": [*getattr(recipe, "list_assumptions", tuple)()],
        "chosen": _read_chosen_values(entry.name, rows),
        **_describe_printed_rows(entry, name, typed, backbone),
        "evaluated": [*_iter_protocol_steps(entry.name, name)],
    }


def _list_facts(recipe: Any, model: Artifact | str) -> dict[str, str]:
    facts: dict[str, str] = recipe.list_facts(model) if hasattr(recipe, "list_facts") else {}
    return facts


def _describe_printed_rows(
    entry: RecipeEntry, name: str, typed: str, backbone: Artifact | None
) -> dict[str, Any]:
    """The printed rows that a recipe is nearest to, those of other variants, and its own command."""
    rows = [row for row in entry.printed if {name, typed} & {*row.recipe.split("+")}]
    is_task = entry.kind == "task"
    any_row = PrintedRow(place="", recipe="", model="MODEL", suite="glue" if is_task else "mteb")
    base_row = (*entry.printed, any_row)[0]
    # Of a chain all trainings are typed, and settings only where they are those of one training.
    base_row = replace(
        base_row, recipe=typed, settings=() if "+" in typed + base_row.recipe else base_row.settings
    )
    printed = [
        {
            **asdict(row),
            "command": row.command,
            "changes": _list_changes(entry, name, row, backbone),
            "numbers": _read_printed_numbers(row),
        }
        for row in rows
    ]
    own_row = (rows or [base_row])[0]
    return {
        "printed": printed,
        "nearer": {row.place: row.recipe for row in entry.printed if not rows},
        "command": own_row.command,
        "changes": _list_changes(entry, name, own_row, backbone),
        "usual": replace(
            base_row, model="MODEL", recipe=name, settings=base_row.settings if is_task else ()
        ).command,
    }


def _list_changes(entry: RecipeEntry, name: str, row: PrintedRow, backbone: Artifact | None) -> list[str]:
    """The settings of a training that a command changes, and its steps, as they are then."""
    if "+" in row.recipe:
        return []
    recipes = [catalog.open_recipe(name, changes) for changes in (None, parse_changes(row.settings))]
    variant = name.partition(":")[2]
    before, after = (list_recipe_settings(entry, variant, recipe, backbone) for recipe in recipes)
    steps, new_steps = (_list_facts(recipe, row.model).get("steps") for recipe in recipes)
    effects = {one.name: (one.value, one.inert) for one in before}
    changed = [one for one in after if effects.get(one.name) != (one.value, one.inert)]
    same = {
        one.name: f" ({'now without' if one.inert else 'has now an'} effect)"
        for one in changed
        if effects.get(one.name) == (one.value, not one.inert)
    }
    return [
        *(f"{one.name} = {_format_value(one.value)}{same.get(one.name, '')}" for one in changed),
        *([f"steps = {new_steps}"] if new_steps != steps else []),
    ]


def _read_printed_papers() -> dict[str, Paper]:
    """The papers by name; none without a checkout."""
    folder = files.find_reported_folder()
    return {} if folder is None else {paper.name: paper for paper in read_papers(folder).values()}


def _read_printed_numbers(row: PrintedRow) -> list[str]:
    """The numbers of a printed row, and the means that a protocol reads them as."""
    name, place, model = row.place.split(", ")
    paper, number = _read_printed_papers().get(name), place.removeprefix("table ")
    if paper is None:
        return []
    means = {
        column.name: f" ({column.kind or column.rule})"
        for protocol in catalog.PROTOCOLS.load_entries().values()
        for table in protocol.tables
        for column in table.columns
        if (table.paper, table.table) == (paper.slug, number) and column.rule and column.kind != column.name
    }
    lines = (line for line in paper.tables[number].rows if line.name == model and line.number is not None)
    return [
        f"{line.metric} {line.value}{means.get(line.metric, '')}"
        for line in lines
        if row.line in f"{line.setting} {line.metric}"
    ]


def _read_chosen_values(name: str, rows: Sequence[SourcedSetting]) -> dict[str, list[str]]:
    """What a paper chose for a backbone, as printed in the tables that the sources of a recipe name."""
    kind, papers = name.partition("-")[0], _read_printed_papers()
    chosen = f"best {kind} |{kind} selected "
    values: dict[str, list[str]] = {}
    # A table is named by several settings, perhaps with other sections beside it.
    places = (row.source.place.split(", ") for row in rows if row.source)
    named = ((paper, part.removeprefix("table ")) for paper, *parts in places for part in parts)
    for paper, number in dict.fromkeys(named):
        tables = papers[paper].tables if paper in papers else {}
        for line in tables[number].rows if number in tables else ():
            if line.unit == "hyperparameter" and re.match(chosen, line.setting.lower()):
                where = " ".join(filter(None, (f"{paper}, table {number}:", line.model, line.size_class)))
                task, _, setting = line.metric.rpartition(":")
                # A task of GLUE has values of its own, and is run alone with them.
                options = [f"--model {line.hub_id or 'MODEL'}"]
                options += [f"--tasks {normalize_metric('GLUE dev', task)}"] if task else []
                key = ", ".join(filter(None, (where, task)))
                values.setdefault(key, options).append(f"--set {setting}={line.value}")
    # A task that starts from MNLI needs the values that the paper chose for MNLI as well.
    started = next((row.value for row in rows if row.name == "transfer"), ())
    for key, options in values.items():
        where, _, task = key.rpartition(", ")
        typed = [one.removeprefix("--set ") for one in values.get(f"{where}, MNLI", ())[2:]]
        options += [f"--set mnli={','.join(typed)}"] if typed and task in started else []
    return values


def _iter_protocol_steps(name: str, typed: str) -> Iterator[dict[str, Any]]:
    """The steps of protocols with a recipe: what to type, suites with their metrics, and means of tables."""
    for protocol in catalog.PROTOCOLS.load_entries().values():
        for step in protocol.steps:
            chains = map(catalog.resolve_recipe_chain, step.request.get("recipe", ()))
            if name not in {part.partition(":")[0] for chain in chains for part in chain.split("+")}:
                continue
            yield {
                "command": f"harness run --model MODEL --protocol {protocol.name} --tasks {step.name}",
                "request": [
                    *list_request_settings(step.request),
                    *([f"starts from the models of {step.after}"] if step.after else []),
                ],
                "suites": [*map(_describe_suite, step.request["suites"])],
                "numbers": [
                    f"{table.paper}, table {table.table}, {_name_column(table, column.name)}: "
                    f"{column.rule or column.of} of {column.suite}{_name_tasks(column)}"
                    for table in protocol.tables
                    for column in table.columns
                    # Where the table has a mean of a suite, the suite's single tasks go without saying.
                    if step.name == column.step
                    and (column.rule or column.suite not in {one.suite for one in table.columns if one.rule})
                ],
                "differs": [*step.differs],
            }


def _name_column(table: ProtocolTable, name: str) -> str:
    """The name of a column, with a note where the paper's own table has none of this name."""
    rows = [p.tables[table.table].rows for p in _read_printed_papers().values() if p.slug == table.paper]
    return f"{name} (not printed)" if rows and all(line.metric != name for line in rows[0]) else name


def _name_tasks(column: ProtocolColumn) -> str:
    """The tasks that a suite leaves out of its means, or the parts of one task that it is the mean of."""
    columns = catalog.open_suite(column.suite).columns if column.rule else ()
    names = [one.name for one in columns if one.shown_only]
    if len({task.name for one in columns for task in one.tasks}) == 1 and len(columns) > 1:
        return f" ({', '.join(one.name for one in columns)}, each a task)"
    return f" without {' and '.join(names)}" if names else ""


def _describe_suite(typed: str) -> dict[str, Any]:
    suite = catalog.open_suite(typed)
    tasks = {
        task.name: {
            "type": task.type,
            "data": f"{task.data.path}@{task.data.revision}",
            "splits": task.splits,
            "subsets": task.subsets,
            "metric": task.metric,
            **({"documents": task.documents} if task.retrieves else {}),
        }
        for task in suite.tasks
    }
    entry, described = catalog.load_suite_entries().get(typed), f"{suite.title}, {len(suite.columns)} tasks"
    return {"name": typed, "summary": entry.summary if entry else described, "tasks": tasks}


def _format_step(step: Mapping[str, Any]) -> list[str]:
    suites = []
    for suite in step["suites"]:
        facts = (
            f"{task['type']} by {task['metric']}"
            + (f" of documents' {task['documents']}" if "documents" in task else "")
            for task in suite["tasks"].values()
        )
        tasks = suite["tasks"].items()
        splits = group_names((task, "/".join(one["splits"])) for task, one in tasks)
        subsets = group_names((task, f"subset {shorten_names(one['subsets'])}") for task, one in tasks)
        parts = {one: some for one, some in (splits | subsets).items() if one != "subset default"}
        words = [*dict.fromkeys(facts), *(f"{one} of {shorten_names(some)}" for one, some in parts.items())]
        text = f"{', '.join(words)} (each data set and its revision: --json)"
        suites.append(f"{suite['name']}: {suite['summary']}; {text}")
    return _format_list(step["command"], [*step["request"], *suites, *step["numbers"], *step["differs"]])


def _format_recipe(recipe: Mapping[str, Any]) -> str:
    rows = recipe["settings"]
    typed = {text.partition(" = ")[0] for text in recipe["changes"]}
    active = [row for row in rows if not row["inert"] or row["name"] in typed]
    ours = [row["name"] for row in active if Source(**(row["source"] or {})).ours]
    which = f": {', '.join(ours)}" if 0 < len(ours) < len(active) else ""
    noted = [row["name"] for row in active if row["source"] and row["source"]["here"]]
    added = [name for name in noted if name not in ours]
    more = f"; with a source, but in our own reading (`done here`): {', '.join(added)}" if added else ""
    lines = [
        f"{recipe['name']}: {recipe['source']}",
        f"{len(active)} settings; our own choice, as no source states it, in {len(ours)}{which}{more}",
        *_format_printed_rows(recipe),
        f"To change with --set: {', '.join(recipe['settable'])}",
        *(line for row in active for line in ["", *_format_setting(row)]),
        *_format_list(
            "Without effect at these values",
            [
                f"{row['name']} = {' '.join(_explain_value(row).split())}: {_take_sentence(row['meaning'])}"
                for row in rows
                if row not in active
            ],
        ),
        *_format_list("Beside the settings", [f"{key}: {text}" for key, text in recipe["facts"].items()]),
        *_format_list("Left open by the sources, and read here as follows", recipe["assumed"]),
        *_format_list(
            "Chosen by the paper, as its tables print them",
            [
                f"{where}: {recipe['usual'].replace('--model MODEL', texts[0])} {' '.join(texts[1:])}"
                for where, texts in recipe["chosen"].items()
                # A variant without a printed row may have a grid without these values.
                if recipe["printed"]
            ],
        ),
        *(line for step in recipe["evaluated"] for line in _format_step(step)),
    ]
    return "\n".join(lines)


def _format_printed_rows(recipe: Mapping[str, Any]) -> list[str]:
    """The printed rows that a recipe is nearest to with their commands, else a command of its own."""
    lines = []
    for row in recipe["printed"]:
        lines += [f"Nearest to {row['place']}: {row['command']}"]
        which = f'Printed in the line "{row["line"]}"' if row["line"] else "Printed"
        lines += [f"    {which}: {', '.join(row['numbers'])}"] if row["numbers"] else []
        lines += [f"    {text}" for text in row["differs"]]
    if not lines:
        nearer = [f"{place} is of {name}" for place, name in recipe["nearer"].items()]
        lines = [f"{'; '.join(['No paper prints a row of it', *nearer])}. To run it: {recipe['command']}"]
    if recipe["changes"]:
        lines.append(f"    This command changes what is below: {'; '.join(recipe['changes'])}")
    return lines


def _format_list(heading: str, lines: Sequence[str]) -> list[str]:
    return ["", f"{heading}:", *(f"    {line}" for line in lines)] if lines else []


def _take_sentence(text: str) -> str:
    return text.partition(". ")[0].removesuffix(".")


def _format_setting(row: Mapping[str, Any]) -> list[str]:
    source = Source(**(row["source"] or {}))
    return [
        f"{row['name']} = {_explain_value(row)}".replace(" = \n", " =\n"),
        *([f"    {row['meaning']}"] if row["meaning"] else []),
        f"    source: {'none, our own choice' if source.ours else source.text}",
        *([f"    other sources: {source.other}"] if source.other else []),
        *([f"    done here: {source.here}"] if source.here else []),
    ]


def _explain_value(row: Mapping[str, Any]) -> str:
    """A value, and what the meaning says of it where it is none or 0, as "0 for no clipping"."""
    value = _format_value(row["value"])
    words = re.search(rf"(?<![\w.]){re.escape(value)} for ([^;.:]+)", row["meaning"])
    return f"{value} ({words[1]})" if words and value in ("none", "0") else value


def _format_value(value: Any) -> str:
    """A value as --set takes it; of several each data set, or each value of some tasks, in a line."""
    match value:
        case None | "" | ():
            return "none"
        case Mapping() if all(one == () for one in value.values()):
            return "none"
        case str() if value != value.strip():
            return repr(value)
        case bool():
            return str(value).lower()
        case float():
            return f"{value:g}"
        case Mapping():
            return "".join(f"\n    {name}: {_format_value(one)}" for name, one in value.items())
        case tuple():
            long = any(isinstance(one, str) and len(one) > 40 for one in value)
            return ("\n    " if long else ",").join(map(_format_value, value))
    return str(value)
