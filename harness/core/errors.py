"""Errors a user can act on: what happened, what exists, what to type next."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.util import find_spec
from typing import Any


class HarnessError(Exception):
    """An error that stops the work; the user sees its message and no traceback.

    `hint` is what exists or what to type next. `exit_code` is 1 for failed work, 2 for an impossible request.
    """

    exit_code = 1

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}\n{self.hint}" if self.hint else self.message

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild, (type(self), self.message, self.hint))


def warn(message: str) -> None:
    """Log what went wrong without an end to the work."""
    import logging  # most commands have nothing to warn of

    logging.getLogger("harness").warning("%s", message)


class UsageError(HarnessError):
    """The request cannot be carried out as given; nothing was run."""

    exit_code = 2


class ModelError(UsageError):
    """A model does not exist, cannot be read, or is not the model that its files describe."""


class DamagedModelError(ModelError):
    """A file of a model folder is missing, or is not as it was written."""

    def __init__(self, message: str, *, hint: str | None = "Fetch or write the model folder again.") -> None:
        super().__init__(message, hint=hint)


class DataError(HarnessError):
    """Data is missing, empty or unreadable."""


class TrainingDataError(UsageError):
    """What a training needs, such as its data or its guide, is not here."""


class RecordError(UsageError):
    """A record cannot be read by this version, or must not be touched."""


class NewerSchemaError(RecordError):
    """A document was written by a newer version."""


class TrainingError(HarnessError):
    """A training has ended without a model; what it did so far is kept."""


class DivergenceError(TrainingError):
    """A training whose loss or weights are no finite numbers."""


class StoreError(HarnessError):
    """The results folder or the cache cannot be written."""


def require_package(name: str, *, extra: str, purpose: str) -> None:
    """Refuse what needs a package of an extra where it is not installed.

    Args:
        name: The package, as it is imported.
        extra: The extra of this distribution that brings it.
        purpose: What needs it, the beginning of the message.

    Raises:
        UsageError: The package is not installed.
    """
    if find_spec(name) is None:
        raise UsageError(
            f"{purpose} needs {name}, which is not installed.",
            hint=f"Type pip install 'encoder-harness[{extra}]'.",
        )


def find_similar_names(name: str, known: Iterable[str]) -> list[str]:
    """Up to three known names that look like `name`, best first.

    >>> find_similar_names("nanobier", ["beir", "nanobeir", "mteb"])
    ['nanobeir']
    """
    # Only a mistake needs difflib, so it is not imported with every command.
    from difflib import get_close_matches

    by_lower = {k.lower(): k for k in known}
    hits = get_close_matches(name.lower(), list(by_lower), n=3, cutoff=0.6)
    return [by_lower[hit] for hit in hits]


def ask_for_names(name: str, known: Iterable[str]) -> str:
    """The question whether one of the known names that look like `name` was meant; empty without any.

    >>> ask_for_names("nanobier", ["beir", "nanobeir"]), ask_for_names("glue", ["beir"])
    ('Did you mean nanobeir? ', '')
    """
    close = find_similar_names(name, known)
    return f"Did you mean {' or '.join(close)}? " if close else ""


def explain_unknown(what: str, name: str, known: Iterable[str], *, then: str) -> UsageError:
    """The error for an unknown name: the nearest names, or all names, and then the advice `then`.

    Args:
        what: What the name is of, e.g. "suite".
        name: The unknown name.
        known: The names that exist.
        then: A sentence that ends the hint.
    """
    name = name if len(name) <= 200 else f"{name[:200]}…"
    names = sorted(known)
    shown = ", ".join(names[:12]) + (", …" if len(names) > 12 else "")
    every = f"There is: {shown}. " if names else f"No {what} exists yet. "
    return UsageError(f"No {what} is called {name!r}.", hint=f"{ask_for_names(name, names) or every}{then}")


def _rebuild(kind: type[HarnessError], message: str, hint: str | None) -> HarnessError:
    return kind(message, hint=hint)


def format_command(code: str, *values: Any) -> str:
    r"""The command that runs Python code, in which each {} is a value: nothing in it ends its quotes.

    Values come from files that may want a user to paste something else.

    >>> print(format_command("print({})", "a'; ls"))
    python -c 'print("a\u0027; ls")'
    """
    import json  # few errors have a command
    import shlex

    texts = [json.dumps(value, ensure_ascii=False).replace("'", r"\u0027") for value in values]
    return f"python -c {shlex.quote(code.format(*texts))}"
