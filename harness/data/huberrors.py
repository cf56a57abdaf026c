"""What went wrong while fetching from the hub, in one message each."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from harness.data.needs import Need
from harness.errors import DataError, HarnessError

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_DENIED = {errno.EACCES, errno.EPERM, errno.EROFS}
_TOKEN = "make a token at the hub's settings page and set HF_TOKEN to it"


class Unavailable(DataError):
    """What hits every data set alike, so that trying the next one is no use."""


@contextmanager
def explained(need: Need, root: Path | None) -> Iterator[None]:
    """Turn whatever goes wrong while fetching `need` into a DataError."""
    try:
        yield
    except HarnessError:
        raise
    except Exception as error:
        raise explain(error, need, root) from error


def explain(error: Exception, need: Need, root: Path | None) -> DataError:
    """The error a user can act on for what huggingface_hub, or writing under `root`, raised."""
    from huggingface_hub.errors import LocalEntryNotFoundError

    if isinstance(error, LocalEntryNotFoundError) and isinstance(error.__cause__, Exception):
        error = error.__cause__  # "not found here", said because asking the hub failed
    return (
        _from_hub(error, need)
        or _from_network(error, need)
        or _from_disk(error, need, root)
        or _other(error, need)
    )


def _from_hub(error: Exception, need: Need) -> DataError | None:
    from huggingface_hub import errors as hub

    match error:
        case hub.GatedRepoError():
            return DataError(
                f"The data set {need.path} is gated: its owner must let you in.",
                hint=f"Accept its terms on its page on the hub, then {_TOKEN}.",
            )
        case hub.RevisionNotFoundError():
            return DataError(
                f"The data set {need.path} has no revision {need.revision} on the hub.",
                hint="The revision is pinned by the suite; its owner may have rewritten the history.",
            )
        case hub.RepositoryNotFoundError():
            return DataError(
                f"The hub has no data set {need.path}, or it is private.",
                hint=f"If it is private, {_TOKEN}.",
            )
        case hub.HfHubHTTPError():
            return _from_status(error.response.status_code, need)
    return None


def _from_status(code: int, need: Need) -> DataError:
    if code in (401, 403):
        return DataError(
            f"The hub refuses access to {need.path} (HTTP {code}).", hint=f"To be let in, {_TOKEN}."
        )
    if code == 429:
        return DataError(
            f"The hub turns down further requests for {need.path} (HTTP 429).",
            hint=f"Wait some minutes and run the same command again; to be allowed more, {_TOKEN}.",
        )
    return DataError(
        f"The hub answered HTTP {code} for {need.path}.", hint="Run the same command again later."
    )


def _from_network(error: Exception, need: Need) -> DataError | None:
    import httpx
    from huggingface_hub.errors import LocalEntryNotFoundError, OfflineModeIsEnabled

    if isinstance(error, OfflineModeIsEnabled):
        return Unavailable(
            f"The hub may not be asked for {need.path}: offline mode is on.",
            hint="Unset HF_HUB_OFFLINE (or leave out --offline) and run the same command again.",
        )
    if isinstance(error, httpx.HTTPError | ConnectionError | TimeoutError | LocalEntryNotFoundError):
        return Unavailable(
            f"No connection to the hub for {need.path}: {_first_line(error)}.",
            hint="Run the same command on a connected machine; what was fetched so far is kept.",
        )
    return None


def _from_disk(error: Exception, need: Need, root: Path | None) -> DataError | None:
    code = error.errno if isinstance(error, OSError) else None
    if code in _FULL or "No space left" in str(error):  # the hub's compiled part gives text only
        return Unavailable(
            f"The disk is full: {need.path} cannot be written under {root} ({_first_line(error)}).",
            hint="Free some room and run the same command again: it goes on where it stopped.",
        )
    if isinstance(error, OSError) and code in _DENIED:
        return Unavailable(
            f"No permission to write {error.filename or root}.",
            hint="Choose a folder this user may write: --data DIR.",
        )
    return None


def _other(error: Exception, need: Need) -> DataError:
    return DataError(
        f"Fetching {need.path} failed: {type(error).__name__}: {_first_line(error)}.",
        hint="Run the same command again: it goes on where it stopped.",
    )


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
