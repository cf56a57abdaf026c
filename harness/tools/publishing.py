"""Models for the hub: the files that are a model's own, and sending them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from harness.core.errors import HarnessError, UsageError
from harness.core.lineage import FILE
from harness.encoder.folder.content import list_content_files, list_remote_classes
from harness.encoder.folder.modules import list_modules

_LIBRARIES = ("sentence_transformers", "pylate", "harness")
"""The packages whose modules need no code of a model's own."""

REPOSITORY = r"\w[\w.-]*/\w[\w.-]*"
"""The pattern of names of repositories."""


def list_published_files(folder: Path) -> dict[str, Path]:
    """The model's own files by their names in its repository.

    They are the files that decide what it computes, the indexes of weights in parts, its model.json and its
    licence. Of code only a model that runs its own has any.
    """
    packages = {str(kind).partition(".")[0] for kind, _ in list_modules(folder)}
    own_code = list_remote_classes(folder) or packages - {*_LIBRARIES}
    paths = [path for path in list_content_files(folder) if own_code or path.suffix != ".py"]
    indexes = {index for path in paths for index in path.parent.glob(f"*{path.suffix}.index.json")}
    texts = [path for pattern in ("LICENSE*", "NOTICE*") for path in folder.glob(pattern)]
    others = [folder / FILE, *(path for path in texts if path.suffix in ("", ".md", ".txt"))]
    files = {*paths, *indexes, *(path for path in others if path.is_file())}
    return {path.relative_to(folder).as_posix(): path for path in sorted(files)}


def require_repository_name(text: str) -> None:
    """Refuse what is no name of a repository."""
    if not re.fullmatch(REPOSITORY, text):
        raise UsageError(f"{text!r} is no name of a repository.", hint="Type org/name.")


def push_files(repository: str, files: Mapping[str, Path | bytes], *, private: bool) -> str:
    """Send files to a repository of the hub in one commit, and make it if it is missing; gives its URL.

    Args:
        repository: `org/name`.
        files: By their names in the repository, files or contents.
        private: Whether a new repository is private.

    Raises:
        UsageError: There is no token, it has no right to write, or the hub refuses the card.
        HarnessError: The hub cannot be reached or fails.
    """
    import httpx
    from huggingface_hub import CommitOperationAdd, HfApi, get_token
    from huggingface_hub.errors import HfHubHTTPError

    if get_token() is None:
        raise UsageError(
            "No token found.", hint="Type `hf auth login`, or set HF_TOKEN to a token that may write."
        )
    api, additions = HfApi(), [CommitOperationAdd(*pair) for pair in files.items()]
    try:
        url = api.create_repo(repository, private=private or None, exist_ok=True)
        api.create_commit(repository, additions, commit_message="Model and card by encoder-harness")
    except HfHubHTTPError as error:
        raise _explain_refusal(repository, error) from error
    except ValueError as error:
        raise UsageError(f"{repository} is refused: {error}", hint="Mend the card: --card FILE.") from error
    except (OSError, httpx.HTTPError) as error:
        raise HarnessError(f"The hub cannot be reached: {error}.", hint="Type it again.") from error
    return str(url)


def _explain_refusal(repository: str, error: Exception) -> HarnessError:
    status = getattr(getattr(error, "response", None), "status_code", None)
    if status in (401, 403):
        return UsageError(
            f"The token may not write to {repository} (HTTP {status}).",
            hint="Make one with the right to write in your settings on the hub, or name a repository of "
            "your own.",
        )
    return HarnessError(f"The hub does not take {repository}: {error}", hint="Type it again.")
