"""Whether data is still what it was when the run was planned."""

from harness.errors import DataError


def require(name: str, found: str, planned: str) -> None:
    """Refuse data that is read for a plan made of other data.

    Args:
        name: The task, for the message.
        found: The content hash of what is there now.
        planned: The content hash in the plan, which names the result.

    Raises:
        DataError: The two differ.
    """
    if found != planned:
        raise DataError(
            f"The files of {name} changed after the run had begun.",
            hint="Run the same command again: it plans with the files as they are then.",
        )
