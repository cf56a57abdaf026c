"""Runs as rows: what is known of models and checkpoints beside their scores, from a results folder or a file.

A row is a model with the run, the seed and the step that it is of, its facts as far as something states them,
and its scores. A column of scores is of one suite or task under one condition.
"""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, TypeAlias

from harness.core import files
from harness.core.errors import DataError, HarnessError, UsageError
from harness.core.groups import group_by
from harness.core.keys import digest
from harness.core.terminal import shorten_names
from harness.data.tables import explain_file_error, read_rows
from harness.plan import catalog
from harness.results.cost.compute import read_backbone_compute
from harness.results.cost.price import DevicePrice, TrainingBill, read_prices
from harness.results.differences import flatten
from harness.results.index import RecordIndex
from harness.results.notes import NOTES
from harness.results.results import MeasuredSuite, build_suite_views, serialize_condition
from harness.results.scores import Aggregates
from harness.training.model_store import TRAINING, ModelStore, StoredModel
from harness.training.training import LOG, read_log
from harness.watch.curves import FACTS, MEAN, TEXTS, Row, read_number
from harness.watch.state import WATCHES, Watch, WatchEntry, read_watch

Score: TypeAlias = tuple[str, str, str, float]
"""The name of a column, the condition in words, its digest, and the score."""

LENGTHS = ("budget", "epochs", "max_steps")
"""Settings that say how long a training is, which has columns of its own: they are of no method."""

LOGGED = 10
"""The last logged losses whose mean is the loss of a model."""


def list_run_rows(results: Path, cache: Path, suites: Sequence[str] = ()) -> list[Row]:
    """A row for each checkpoint on the curve of a watch, each trained model, and each other noted one.

    Args:
        results: The results folder.
        cache: The cache folder.
        suites: The suites whose scores trained and noted models have; checkpoints have those of their watch.

    Raises:
        UsageError: A suite does not exist.
    """
    notes, opened, prices = _read_note_facts(results), catalog.open_suites(suites), read_prices()
    watches = [read_watch(results, name) for name in WATCHES.list_names(results)]
    pairs = [pair for watch in watches for pair in _iter_watch_rows(watch, watch.name, "", notes)]
    on_curves = {entry.artifact for watch in watches for entry in watch.curve}
    models = {one.key: one for one in ModelStore(results).list_stored_models(cache) if one.document}
    measured = {one.artifact for one in RecordIndex(results, cache).list_models()}
    for key in dict.fromkeys([*models, *notes]):
        if key not in on_curves:
            facts = notes.get(key, {}) | (_list_model_facts(models[key], prices) if key in models else {})
            records = MeasuredSuite.load_records(key, results, cache).records if key in measured else ()
            scores: list[Score] = []
            for suite, view in ((one, view) for one in opened for view in build_suite_views(records, one)):
                condition = view.text, digest(serialize_condition(view.treatment))
                means = Aggregates.aggregate_scores(suite, dict(view.scores))
                scores += _list_scores(suite.name, condition, means.over_tasks.whole, means.columns)
            pairs.append((facts, scores))
    return _name_columns(pairs)


def read_watch_rows(watches: Sequence[tuple[str, str]], results: Path) -> list[Row]:
    """The checkpoints of watches of one suite under one condition, a seed each.

    Args:
        watches: The name of the run, and that of the watch.
        results: The results folder.

    Raises:
        UsageError: There is no such watch, none has a score, or they are of different suites or recipes.
    """
    notes = _read_note_facts(results)
    opened = [read_watch(results, name) for _, name in watches]
    for watch in opened:
        if not watch.curve:
            raise UsageError(
                f"The watch {watch.name} has no complete checkpoint yet.",
                hint=f"harness watch {watch.name} --show tells why.",
            )
        _require_alike(opened[0], watch)
    pairs = [
        pair
        for (run, name), watch in zip(watches, opened, strict=True)
        for pair in _iter_watch_rows(watch, run, name, notes)
    ]
    return _name_columns(pairs)


def _require_alike(first: Watch, watch: Watch) -> None:
    """Refuse two watches whose scores are of different suites, settings or data."""
    before, after = ({"suite": one.suite, **flatten(one.request)} for one in (first, watch))
    # The seed of a recipe is that of its trainings, whose scores all have one seed.
    allowed = {"settings.seed"} if watch.request.get("recipe") else set()
    differs = [
        f"{name} is {before.get(name)!r} and {after.get(name)!r}"
        for name in dict.fromkeys([*before, *after])
        if before.get(name) != after.get(name) and name not in allowed
    ]
    if first.curve[-1].treatment != watch.curve[-1].treatment:
        differs = differs or ["their data, scoring code or encoding are not the same"]
    if differs:
        raise UsageError(
            f"The watches {first.name} and {watch.name} cannot be compared: {'; '.join(differs)}.",
            hint="Watch both with the same suite, recipe and settings, under another --name.",
        )


def _iter_watch_rows(
    watch: Watch, run: str, seed: str, notes: Mapping[str, Row]
) -> Iterator[tuple[Row, Sequence[Score]]]:
    for entry in watch.curve:
        row = {
            **notes.get(entry.backbone or entry.artifact, {}),
            **_read_trainer_state(entry),
            "model": entry.model or entry.name,
            "run": run,
            "seed": seed,
            "step": entry.step,
            "method": ", ".join(watch.request.get("recipe") or ()) or None,
        }
        condition = f"watch {watch.name}", entry.treatment
        yield row, _list_scores(watch.suite, condition, entry.mean, entry.scores)


def _read_note_facts(results: Path) -> dict[str, Row]:
    """What is stated of models, by their ArtifactKeys."""
    notes, prices = [NOTES.find_document(results, name) for name in NOTES.list_names(results)], read_prices()
    names = ("model", "tokens", "hours", "operations", "masking")
    return {
        note.artifact: {
            **{name: getattr(note, name) for name in names},
            "cost": note.compute_dollars(prices),
            "size": note.counted.without_embeddings,
        }
        for note in notes
    }


def _read_trainer_state(entry: WatchEntry) -> Row:
    """What trainer_state.json of transformers says beside a checkpoint."""
    with contextlib.suppress(OSError, ValueError, AttributeError, TypeError):
        state = json.loads((Path(entry.folder or "") / "trainer_state.json").read_text(encoding="utf-8"))
        # A Trainer that counts neither leaves 0.
        facts = {"tokens": state.get("num_input_tokens_seen"), "operations": state.get("total_flos")}
        losses = [line["loss"] for line in state.get("log_history", ()) if "loss" in line]
        return {name: value for name, value in facts.items() if value} | _average_losses(losses)
    return {}


def _average_losses(losses: Sequence[float]) -> Row:
    return {"loss": fmean(losses[-LOGGED:])} if losses else {}


def _list_model_facts(model: StoredModel, prices: Sequence[DevicePrice]) -> Row:
    """What model.json and the log of a training say."""
    document = model.document
    assert document is not None
    changed = {name: value for name, value in document.lineage.changed.items() if name not in LENGTHS}
    facts: Row = {
        "model": document.name,
        "run": document.lineage.group[:12],
        "seed": document.lineage.seed,
        "step": document.training.get("steps"),
        "method": document.lineage.model_copy(update={"changed": changed}).text,
    }
    with contextlib.suppress(HarnessError, OSError):
        compute = read_backbone_compute(model.folder)
        facts["size"] = compute.without_embeddings
        if bill := TrainingBill.from_document(document, compute, prices):
            facts |= {"tokens": bill.tokens, "hours": bill.seconds / 3600}
            facts |= {"operations": bill.operations, "cost": bill.dollars}
    log = read_log(model.folder / TRAINING / LOG)
    return facts | _average_losses(
        [line["loss"] for line in log if isinstance(line.get("loss"), int | float)]
    )


def _list_scores(
    suite: str, condition: tuple[str, str], mean: float | None, scores: Mapping[str, float | None]
) -> list[Score]:
    columns = {f"{MEAN}{suite}": mean} | {f"{task} of {suite}": score for task, score in scores.items()}
    return [(name, *condition, score) for name, score in columns.items() if score is not None]


def _name_columns(pairs: Sequence[tuple[Row, Sequence[Score]]]) -> list[Row]:
    """The rows with their scores, in a column for each condition where a suite has several."""
    conditions: dict[str, dict[str, str]] = {}
    for _, scores in pairs:
        for column, text, key, _ in scores:
            conditions.setdefault(column, {}).setdefault(key, text)
    rows = []
    for facts, scores in pairs:
        row = {name: facts.get(name) for name in FACTS}
        for column, _, key, score in scores:
            texts = conditions[column]
            twice = f" {key[:6]}" if [*texts.values()].count(texts[key]) > 1 else ""
            row[f"{column} ({texts[key]}{twice})" if len(texts) > 1 else column] = score
        rows.append(row)
    names = sorted({name for row in rows for name in row if name not in FACTS})
    names.sort(key=lambda name: not name.startswith(MEAN))
    return [{name: row.get(name) for name in (*FACTS, *names)} for row in rows]


# Files


def read_table(path: Path) -> list[Row]:
    """The rows of a CSV or Parquet file; a blank is None, and a text that is a number is one.

    Raises:
        UsageError: It cannot be read, has another ending, or two columns of one name.
    """
    _require_ending(path)
    try:
        with explain_file_error(path):
            rows = read_rows(path)
    except DataError as error:
        raise UsageError(error.message, hint=error.hint) from error
    # An export of W&B has Step, and its own columns begin with "_".
    names = {name: _clean_name(name) for name in rows[0].fields}
    if twice := [name for name, count in Counter(names.values()).items() if count > 1]:
        raise UsageError(f"{path} has two columns {twice[0]}.", hint="Leave one of them out.")
    return [{names[n]: _read_value(names[n], value) for n, value in row.fields.items()} for row in rows]


def _read_value(name: str, value: Any) -> Any:
    if name not in TEXTS and isinstance(value, str):
        with contextlib.suppress(ValueError):
            return float(value)
    return None if value == "" else value


def _clean_name(name: str) -> str:
    folded = name.strip().lower().lstrip("_")
    return folded if folded in FACTS else name.strip()


def write_table(path: Path, rows: Sequence[Row]) -> None:
    """Write rows to a CSV or Parquet file.

    Raises:
        UsageError: It has another ending.
    """
    import pyarrow
    from pyarrow import csv, parquet

    _require_ending(path)
    # A seed may be a number or the name of a watch.
    texts = [{**row, "seed": None if row["seed"] is None else str(row["seed"])} for row in rows]
    table, sink = pyarrow.Table.from_pylist(texts), pyarrow.BufferOutputStream()
    (csv.write_csv if path.suffix == ".csv" else parquet.write_table)(table, sink)
    files.replace(path, sink.getvalue().to_pybytes())


def _require_ending(path: Path) -> None:
    if path.suffix not in (".csv", ".parquet"):
        raise UsageError(
            f"{path} is neither .csv nor .parquet.", hint="Give a file with one of these endings."
        )


def add_facts(rows: Sequence[Row], stated: Sequence[Row]) -> list[Row]:
    """Rows with what a file states of them, in place of what was known.

    A line of the file is of the rows with its model, run, seed and step, as far as it has them. Losses are
    averaged over the last lines up to the step of a row.

    Raises:
        UsageError: The file has none of these columns or no fact, or no line is of any row.
    """
    columns = {name for line in stated for name in line}
    keys = [name for name in ("model", "run", "seed") if name in columns]
    facts = [name for name in FACTS if name in columns and name not in (*keys, "step")]
    if not facts or not (keys or "step" in columns):
        raise UsageError(
            f"The file of facts has the columns {shorten_names(sorted(columns))}.",
            hint=f"It needs one of model, run, seed and step, and some of {', '.join(FACTS[4:])}.",
        )
    lines = group_by(stated, lambda line: tuple(str(line[name]) for name in keys))
    joined = [
        {**row, **_select_facts(row, lines.get(tuple(str(row[name]) for name in keys), []), facts)}
        for row in rows
    ]
    if rows and joined == [*rows]:
        raise UsageError(
            f"No line of the file of facts is of a row: {', '.join(keys) or 'step'} differs.",
            hint="`harness list runs` shows the names.",
        )
    return joined


def _select_facts(row: Row, lines: Sequence[Row], facts: Sequence[str]) -> Row:
    def read(line: Row, name: str) -> Any:
        value = line.get(name)
        return value if name in TEXTS else read_number(value, f"{name} of the file of facts")

    same = [line for line in lines if line.get("step", row["step"]) == row["step"]]
    values = {name: read(line, name) for line in same for name in facts if line[name] is not None}
    steps = [(line, read(line, "step")) for line in lines]
    before = [line for line, step in steps if None not in (step, row["step"]) and step <= row["step"]]
    losses = [loss for line in before if (loss := read(line, "loss")) is not None]
    return values | _average_losses(losses)
