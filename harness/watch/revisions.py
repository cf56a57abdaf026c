"""A hub repository whose branches and tags are checkpoints."""

from __future__ import annotations

from dataclasses import replace

from harness.errors import ModelError, UsageError
from harness.watch.sources import Checkpoint, Found, by_step
from harness.watch.whole import Condition


class Hub:
    """A hub repository whose branches and tags are checkpoints; each is pinned to its commit."""

    def __init__(self, repository: str) -> None:
        self.text = repository
        self.name = repository.replace("/", "--")

    def found(self) -> Found:
        """The branches and tags with a step in their name.

        Raises:
            ModelError: There is no such repository, or the hub does not answer.
        """
        refs = _refs(self.text)
        commits = dict(reversed(refs))
        found, skipped = by_step((name, None) for name in sorted(commits))
        pinned = (
            Checkpoint(
                step=c.step, name=c.name, model=f"{self.text}@{commits[c.name]}", commit=commits[c.name]
            )
            for c in found
        )
        return tuple(pinned), skipped

    def _pinned(self, one: Checkpoint, commit: str) -> Checkpoint:
        return replace(one, model=f"{self.text}@{commit}", commit=commit)

    def condition(self, one: Checkpoint, *, settle: float, own_code: bool) -> Condition:
        """A commit is whole."""
        return Condition(stamp=one.commit)

    def stamp(self, one: Checkpoint) -> str:
        """The commit."""
        return one.commit

    def label(self, one: Checkpoint) -> str:
        """Its own: a record names the revision beside it."""
        return ""


def _refs(repository: str) -> list[tuple[str, str]]:
    """The names and commits of a repository's branches, then of its tags."""
    import httpx
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError, OfflineModeIsEnabled, RepositoryNotFoundError

    try:
        refs = HfApi().list_repo_refs(repository)
    except RepositoryNotFoundError as error:
        raise ModelError(
            f"The hub has no model {repository}, or it is private; and no folder lies there.",
            hint="Check the spelling; for a private one set HF_TOKEN.",
        ) from error
    except OfflineModeIsEnabled as error:
        raise UsageError(
            f"{repository} is a hub repository (no folder lies there), and HF_HUB_OFFLINE is set.",
            hint="Unset it, or give a folder.",
        ) from error
    except (HfHubHTTPError, httpx.HTTPError, OSError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise HubSilent(
            f"No folder is at {repository}, and the hub does not tell its revisions: {reason}.",
            hint="Check the path of the folder; a repository of the hub needs the network.",
        ) from error
    return [(ref.name, ref.target_commit) for ref in (*refs.branches, *refs.tags)]


class HubSilent(ModelError):
    """The hub could not be asked: a watch asks again at its next look."""
