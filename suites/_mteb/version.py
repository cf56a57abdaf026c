"""The version of mteb that scores: the snapshot names it, and only that one may run."""

from __future__ import annotations

from harness.errors import UsageError
from suites._mteb import snapshot


def scoring(rules: int = 1) -> str:
    """The scoring code's name and version, with the number of our own rules where it is not 1."""
    name = f"mteb {snapshot.load().version}"
    return name if rules == 1 else f"{name}, rules {rules}"


def require() -> None:
    """Refuse to score with another mteb than the one that results name.

    Raises:
        UsageError: Another version is installed, or none.
    """
    wanted, there = snapshot.load().version, _installed()
    if there != wanted:
        raise UsageError(
            f"mteb {wanted} is needed to score, and {there or 'none'} is installed.",
            hint=f'Type: python -m pip install "mteb=={wanted}"',
        )


def _installed() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("mteb")
    except PackageNotFoundError:
        return ""
