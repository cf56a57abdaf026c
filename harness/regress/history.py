"""The checks that were made, as they lie in a results folder."""

from __future__ import annotations

import contextlib
import json
import logging
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from harness import files
from harness.errors import RecordError
from harness.regress.outcome import Check, from_json

log = logging.getLogger(__name__)


def folder(results: Path) -> Path:
    """Where the checks of a results folder lie."""
    return results / "checks"


def keep(results: Path, check: Check) -> Path:
    """Write a check down as `<results>/checks/<time>-<id>.json`; returns where it lies.

    One that found the same before stays as it is.

    Raises:
        StoreError: The folder cannot be written.
    """
    for former in named(results, check.id):
        with contextlib.suppress(OSError, ValueError, AttributeError, RecordError):
            found = from_json(json.loads(former.read_text(encoding="utf-8")), where=str(former))
            if replace(found, when=check.when, seconds=check.seconds).to_json() == check.to_json():
                return former
    stamp = check.when.replace(":", "").replace("-", "").partition(".")[0].partition("+")[0]
    path = folder(results) / f"{stamp}-{check.id}.json"
    files.replace(path, (json.dumps(check.to_json(), indent=1) + "\n").encode())
    return path


def named(results: Path, id_: str) -> list[Path]:
    """The files of the checks of one id, the newest first."""
    return sorted(folder(results).glob(f"*-{id_}.json"), reverse=True)


def checks(results: Path) -> Iterator[Check]:
    """Every check, the oldest first; a file that cannot be read is warned of and left out."""
    for path in sorted(folder(results).glob("*.json")):
        try:
            yield from_json(json.loads(path.read_text(encoding="utf-8")), where=str(path))
        except (OSError, ValueError, AttributeError) as error:
            log.warning("%s cannot be read: %s. It is left out.", path, error)
        except RecordError as error:
            log.warning("%s It is left out.", error.message)
