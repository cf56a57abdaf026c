"""The default folders: cache, results, data root, and the tables that come with a checkout."""

from __future__ import annotations

import os
import unicodedata
from pathlib import Path

from harness.core.errors import UsageError
from harness.core.terminal import clean_text

HOMES = (Path("/home"), Path("/Users"))
"""The folders in which users have their home folders: a user's name is in no record."""


def resolve_cache_folder(chosen: str | Path | None = None) -> Path:
    """The cache: --cache, else HARNESS_CACHE, else the user's cache folder."""
    # `or`, and not a test for None: a variable that is set to nothing counts as not set.
    place = chosen or os.environ.get("HARNESS_CACHE")
    if place:
        return resolve_home_path(place)
    from platformdirs import user_cache_path

    return user_cache_path("encoder-harness", appauthor=False)


def resolve_results_folder(chosen: str | Path | None = None) -> Path:
    """The results folder: --results, else HARNESS_RESULTS, else `results` in the current folder."""
    return resolve_home_path(chosen or os.environ.get("HARNESS_RESULTS") or "results")


def resolve_data_root(chosen: str | Path | None = None) -> Path | None:
    """The data root: --data, else HARNESS_DATA, else none."""
    place = chosen or os.environ.get("HARNESS_DATA")
    return resolve_home_path(place) if place else None


def resolve_remote_url(chosen: str | None = None) -> str | None:
    """The URL of shared object storage: --remote, else HARNESS_REMOTE, else none."""
    return chosen or os.environ.get("HARNESS_REMOTE") or None


def resolve_home_path(text: str | Path) -> Path:
    """A path with `~` replaced by the home folder.

    Raises:
        UsageError: The user after the ~ does not exist, the current folder was removed, or a name in the
            path is not UTF-8.
    """
    try:
        path = Path(text).expanduser()
        absolute = path.absolute()
    except RuntimeError as error:
        raise UsageError(f"{text}: {error}") from error
    except FileNotFoundError as error:
        raise UsageError(
            f"{text} is in the current folder, which was removed.", hint="Change to a folder that exists."
        ) from error
    require_utf8(str(absolute))
    return path


def require_utf8(text: str) -> None:
    """Refuse a text or a path that is not UTF-8: records are, and could not name it.

    Raises:
        UsageError: It has bytes of another encoding.
    """
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise explain_not_utf8(text) from error


def explain_not_utf8(text: str) -> UsageError:
    """The error for a text that is not UTF-8; a long one is cut."""
    shown = text if len(text) <= 200 else f"{text[:200]}…"
    return UsageError(
        f"{shown!r} is not UTF-8.",
        hint="Rename the file or folder, or type the text in UTF-8.",
    )


LONGEST_NAME = 200
"""The most bytes of a name in UTF-8: a file of 255 may be called by it, and a line shows it."""


def is_plain_name(name: str) -> bool:
    r"""Whether a name is not too long, and looks on a terminal and a page as it is.

    >>> [is_plain_name(name) for name in ("e5 large", "数" * 67, "red\x1b[31m", "gpj.\u202eexe")]
    [True, False, False, False]
    """
    # Control, format, unassigned, private and half characters, and separators of lines: two names that look
    # alike would be two models.
    unseen = any(unicodedata.category(sign) in ("Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp") for sign in name)
    return 0 < len(name.encode("utf-8", "surrogatepass")) <= LONGEST_NAME and not unseen


def is_displayable(text: str) -> bool:
    """Whether a text has no character that a terminal or a page obeys."""
    return "\t" not in text and clean_text(text, line=True) == text


def require_plain_name(name: str, what: str, *, hint: str) -> None:
    """Refuse a new name that is too long or has control characters.

    Args:
        name: The name.
        what: What it shall be, e.g. "a model's name".
        hint: What to do about it.

    Raises:
        UsageError: It is.
    """
    if not is_plain_name(name):
        shown = name if len(name) <= LONGEST_NAME else f"{name[:LONGEST_NAME]}…"
        must = f"A name has up to {LONGEST_NAME} bytes, and no control characters."
        raise UsageError(f"{shown!r} cannot be {what}.", hint=f"{must} {hint}")


PUBLISHED = 3
"""The most folder names of a model's path that a record has."""


def shorten_folder(folder: Path) -> str:
    """The end of a folder's path, as records have it: never the whole path, nor a user's home folder.

    >>> shorten_folder(Path("/home/ann/exp1/final")), shorten_folder(Path("/data/team/a/runs/1/final"))
    ('exp1/final', 'runs/1/final')
    """
    place = folder.resolve()
    # Path.home() raises where a container's user has no home folder.
    homes = [
        Path(os.path.expanduser("~")),
        *(root / place.parts[2] for root in HOMES if root in place.parents),
    ]
    parts = next((place.relative_to(h).parts for h in homes if h in place.parents), place.parts[2:])
    return "/".join(parts[-PUBLISHED:])


def find_reference_folder() -> Path | None:
    """The reference records of a checkout, None without a checkout."""
    # This file is harness/core/paths.py: parents[2] is the root of the checkout. A wheel has no
    # results folder beside the package.
    folder = Path(__file__).parents[2] / "results" / "reference"
    return folder if folder.is_dir() else None


def find_reported_folder() -> Path | None:
    """The papers' tables of a checkout, None without a checkout."""
    folder = Path(__file__).parents[2] / "results" / "reported"
    return folder if folder.is_dir() else None
