"""The JSON files of a model folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from harness.errors import ModelError


def read_json(path: Path) -> Any:
    """The content of a JSON file.

    Raises:
        ModelError: If it cannot be read as JSON.
    """
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ModelError(
            f"{path} cannot be read as JSON: {error}", hint="Fetch or write the model folder again."
        ) from error


def read_object(path: Path) -> dict[str, Any]:
    """The content of a JSON file that holds an object; empty where there is no such file.

    Raises:
        ModelError: If it cannot be read as a JSON object.
    """
    if not path.is_file():
        return {}
    content = read_json(path)
    if not isinstance(content, dict):
        raise ModelError(f"{path} holds no JSON object.", hint="Fetch or write the model folder again.")
    return content
