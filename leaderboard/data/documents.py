"""Checks, watches, notes, compared runs and fits: from results folders into the index, and out of it."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache, lru_cache, partial
from pathlib import Path
from typing import Any, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, TypeAdapter

from harness.checks.outcome import CHECKS, Check, MeanOutcome, Overall
from harness.core.documents import DocumentFolder
from harness.core.errors import HarnessError
from harness.fits.stored import FITS, StoredFit
from harness.results.notes import NOTES
from harness.watch.curves import CURVES, RunTable, compare_runs
from harness.watch.grids import GRIDS, RunGrid
from harness.watch.state import WATCHES, Watch, read_watch, stamp_records
from leaderboard.data.entries import StoredDocument, Unit
from leaderboard.data.suites import format_slug

log = logging.getLogger(__name__)

Kind = Literal["check", "watch", "note", "curves", "grid", "fit"]
_Described: TypeAlias = tuple[str, dict[str, Any], str]
"""When a document was written, what lists show of it, and the whole as JSON."""


def iter_document_units(roots: Sequence[Path]) -> Iterator[Unit]:
    """One unit for each document; of two with one name that of the earlier folder."""
    for kind, (documents, _) in _KINDS.items():
        seen = set()
        folders = [root / documents.folder for root in roots]
        for path, stamp in (file for folder in folders for file in _iter_json_files(folder)):
            name = format_document_name(path.stem)
            if name not in seen:
                seen.add(name)
                if kind == "watch" and (watch := _parse_watch(path, stamp)):
                    # Its scores are those of records, which change without it.
                    stamp += f"-{stamp_records(watch, path.parent.parent)}"
                read = partial(_read_document, kind, name, path)
                yield Unit(source=documents.folder, name=name, stamp=stamp, read=read)


def _read_document(kind: Kind, name: str, path: Path) -> list[StoredDocument]:
    """A document for the index; empty, with a line in the log, if the file is not one."""
    documents, describe = _KINDS[kind]
    try:
        if kind == "watch":
            documents.check_name(path.stem)
            document = read_watch(path.parent.parent, path.stem)
        else:
            document = documents.read_document_file(path)
        written, facts, text = describe(document, name)
        return [StoredDocument(kind=kind, name=name, written=written, facts=facts, document=text)]
    except HarnessError as error:
        log.warning("%s It is left out.", error.message)
    # Other programs and other versions write these files: a bad one must not take the rest off the site.
    except (ValueError, AttributeError, TypeError, RecursionError) as error:
        log.warning("%s is no %s: %s. It is left out.", path, kind, " ".join(str(error).split())[:300])
    return []


def format_document_name(stem: str) -> str:
    """A file's name in URLs: as it is, or its safe letters with a digest.

    >>> format_document_name("20260102T030405-0123456789ab"), format_document_name("a b")
    ('20260102T030405-0123456789ab', 'a-b-c8687a08')
    """
    if re.fullmatch(r"[A-Za-z0-9_][\w.+-]{0,99}", stem, re.ASCII) and format_slug(stem) == stem:
        return stem
    # File names need not be UTF-8; Python holds their other bytes as surrogates.
    digest = hashlib.sha256(stem.encode("utf-8", "surrogateescape")).hexdigest()[:8]
    return f"{format_slug(stem)[:80]}-{digest}".lstrip("-")


def _iter_json_files(folder: Path) -> Iterator[tuple[Path, str]]:
    """The JSON files of a folder, by name, each with a stamp that changes whenever the file does."""
    # A file of the same name, size and time may lie in another folder after a change of folders.
    place = hashlib.sha256(os.fsencode(folder)).hexdigest()[:12]
    for path in sorted(folder.glob("[!.]*.json")):
        # A file may be removed between the listing and this look at it.
        with suppress(OSError):
            facts = path.stat()
            yield path, f"{place}-{facts.st_size:x}-{facts.st_mtime_ns:x}"


# Checks


OVERALL: tuple[Overall, ...] = ("regressed", "inconclusive", "improved", "passed", "same")
"""The verdicts of a whole check, in the order in which a reader wants to see them."""


class CheckSummary(BaseModel):
    """What lists show of a check.

    `name` is its own in URLs, `line` that of its model line; `id` is shared by checks of the same two models.
    `baseline` is the name of the baseline, or of the model where it is not `named`; `artifacts` are the
    candidate's. `verdicts` counts the tasks of each outcome.
    """

    model_config = ConfigDict(frozen=True)

    name: str
    id: str
    when: str
    line: str
    baseline: str
    named: bool
    candidate: str
    artifacts: tuple[str, ...]
    suites: tuple[str, ...]
    recipe: str
    overall: Overall
    means: tuple[MeanOutcome, ...]
    verdicts: Mapping[str, int]


def _describe_check(check: Check, name: str) -> _Described:
    adapter = build_document_adapter("check")
    document = adapter.dump_json(check)
    check = adapter.validate_json(document)
    summary = CheckSummary(
        name=name, when=check.when, id=check.id, line=format_line_name(check),
        baseline=check.baseline.baseline or check.baseline.name, named=bool(check.baseline.baseline),
        candidate=check.candidate.name, artifacts=check.candidate.artifacts, suites=check.suites,
        recipe=check.recipe, overall=check.overall, means=check.means,
        verdicts=Counter(task.verdict for task in check.tasks),
    )  # fmt: skip
    return check.when, summary.model_dump(mode="json"), document.decode()


def format_line_name(check: Check) -> str:
    """The name of a check's model line in URLs: one for a baseline, its suites and a recipe."""
    name = check.baseline.baseline or check.baseline.name
    # A named baseline and a model that has the same name are two lines.
    parts = (bool(check.baseline.baseline), name, sorted(check.suites), check.recipe)
    digest = hashlib.sha256(repr(parts).encode("utf-8", "replace")).hexdigest()[:8]
    readable = "-".join(filter(None, (format_slug(name)[:60], format_slug("-".join(check.suites))[:40])))
    return f"{readable}-{digest}".lstrip("-.")


# Watches


@lru_cache(maxsize=256)
def _parse_watch(path: Path, _stamp: str) -> Watch | None:
    """A watch without its scores, parsed again when its file changes; None if it is damaged."""
    with suppress(HarnessError, ValueError, AttributeError, TypeError):
        return WATCHES.kind.read_document_file(path)
    return None


def _describe_watch(watch: Watch, name: str) -> _Described:
    """With the time of the newest evaluation; `best` is the best mean of the checkpoints measured alike."""
    document = json.dumps(watch.dump_output(), allow_nan=False)
    curve = [(one.mean, one.step) for one in watch.curve if one.mean is not None]
    # Of equal means the later step counts, as pairs compare by their second part then.
    best, best_step = max(curve, default=(None, None))
    mean, step = curve[-1] if curve else (None, None)
    facts = {
        "source": watch.source, "suite": watch.suite, "step": step, "mean": mean, "best": best,
        "best_step": best_step, "states": Counter(one.state for one in watch.checkpoints),
        "changes": [change.step for change in watch.change_points],
    }  # fmt: skip
    return max((one.evaluated for one in watch.checkpoints), default=""), facts, document


# Other documents


def _describe_with(describe: Callable[[Any], dict[str, Any]]) -> Callable[[Any, str], _Described]:
    """What describes a document that the index has whole: `describe` gives the facts for lists."""
    return lambda one, name: (one.when, describe(one), one.model_dump_json())


def _describe_curves(table: RunTable) -> dict[str, Any]:
    # What cannot be compared has no page, and is left out.
    curves = table.build_curves(table.axis)
    compare_runs(curves, table.reach)
    return {"column": table.column, "runs": len({one.run for one in curves}), "seeds": len(curves)}


def _describe_grid(grid: RunGrid) -> dict[str, Any]:
    # A grid whose edges do not ascend has no page either.
    grid.compute_cells()
    return {"column": grid.column, "axes": [axis.name for axis in grid.axes], "runs": len(grid.runs)}


def _describe_fit(fit: StoredFit) -> dict[str, Any]:
    untold = sum(bool(quantity.reason) for quantity in fit.quantities)
    methods = [method for method in dict.fromkeys(fit.method) if method]
    return {"law": fit.law, "runs": len(fit.method), "methods": methods, "untold": untold}


_KINDS: Mapping[Kind, tuple[DocumentFolder[Any], Callable[[Any, str], _Described]]] = {
    "check": (CHECKS, _describe_check),
    "watch": (WATCHES, _describe_watch),
    "note": (NOTES, _describe_with(lambda note: {})),
    "curves": (CURVES, _describe_with(_describe_curves)),
    "grid": (GRIDS, _describe_with(_describe_grid)),
    "fit": (FITS, _describe_with(_describe_fit)),
}
"""The folder of each kind of documents, and what the index has of one."""


@cache
def build_document_adapter(kind: Kind) -> TypeAdapter[Any]:
    """Reads and writes the documents of a kind, and sees that each field holds what it should."""
    return TypeAdapter(_KINDS[kind][0].kind.type)
