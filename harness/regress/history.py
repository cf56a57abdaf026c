"""The checks that were made, as they lie in a results folder."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
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

    One that found the same before, of the same records under the same policy, stays as it is.

    Raises:
        StoreError: The folder cannot be written.
    """
    path = place(results, check)
    files.write_once(path, (json.dumps(check.to_json(), indent=1) + "\n").encode())
    return path


def place(results: Path, check: Check) -> Path:
    """Where a check lies, or is to lie."""
    stamp = check.when.replace(":", "").replace("-", "").partition(".")[0].partition("+")[0]
    same = sorted(folder(results).glob(f"*-{check.id}.json"))
    return same[-1] if same else folder(results) / f"{stamp}-{check.id}.json"


def checks(results: Path) -> Iterator[Check]:
    """Every check, the oldest first; a file that cannot be read is warned of and left out."""
    for path in sorted(folder(results).glob("*.json")):
        try:
            yield from_json(json.loads(path.read_text(encoding="utf-8")), where=str(path))
        except (OSError, ValueError, AttributeError) as error:
            log.warning("%s cannot be read: %s. It is left out.", path, error)
        except RecordError as error:
            log.warning("%s It is left out.", error.message)
