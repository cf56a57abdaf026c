"""The values of a request: the form of each, checked in one place for the command line, Python and files."""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from annotated_types import Interval, MinLen, Predicate
from pydantic import TypeAdapter

from harness.core.encoding import ContextChoice
from harness.core.errors import UsageError, nearest
from harness.core.types import DTYPES, DocumentText, Purpose, Similarity

Part = TypeVar("Part")


def _as_given(value: Any) -> Any:
    return value


def split_names(text: str) -> tuple[str, ...]:
    """The parts of a comma-separated list."""
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _names(value: Any) -> Any:
    """A comma-separated text as its parts, any other sequence as a tuple, and None as no names."""
    if value is None:
        return ()
    if isinstance(value, str):
        return split_names(value)
    return tuple(value) if isinstance(value, Sequence) and not isinstance(value, bytes) else value


def _places(value: Any) -> Any:
    """A single name or path as a tuple of one, and any other sequence as a tuple of texts."""
    several = (value,) if isinstance(value, str | os.PathLike) else value
    if not isinstance(several, Sequence) or isinstance(several, bytes):
        return value
    return tuple(_place(one) for one in several)


def _places_or_none(value: Any) -> Any:
    return () if value is None or value == "" else _places(value)


def _table(value: Any) -> Any:
    return dict(value) if isinstance(value, Mapping) else value


def _place(value: Any) -> Any:
    return os.fspath(value) if isinstance(value, os.PathLike) else value


@dataclass(frozen=True, kw_only=True)
class _Rule:
    """The form of a value: `must` says it in words; `choices` are the spellings of a choice, with its values.

    `before` brings an accepted spelling into this form; unless `strict`, so does pydantic.
    """

    type: Any = None
    strict: bool = True
    must: str = ""
    choices: Mapping[str, str] | None = None
    before: Callable[[Any], Any] = _as_given

    def checked(self, name: str, value: Any) -> Any:
        """The value in its form.

        Raises:
            UsageError: It has another form.
        """
        if self.choices is not None:
            return self._chosen(name, value, self.choices)
        from pydantic import ValidationError

        try:
            return self._adapter.validate_python(self.before(value), strict=self.strict)
        except ValidationError as error:
            place = error.errors()[0]["loc"]
            raise _refusal(name, value, place, self.must) from error

    def _chosen(self, name: str, value: Any, choices: Mapping[str, str]) -> str:
        if isinstance(value, str) and value in choices:
            return choices[value]
        close = nearest(str(value), choices)
        near = f"Did you mean {' or '.join(close)}? " if close else ""
        raise UsageError(
            f"No {name} is called {value!r}.", hint=f"{near}There is: {', '.join(dict.fromkeys(choices))}."
        )

    @functools.cached_property
    def _adapter(self) -> TypeAdapter[Any]:
        from pydantic import TypeAdapter

        return TypeAdapter(self.type)


def _refusal(name: str, value: Any, place: tuple[Any, ...], must: str) -> UsageError:
    """The error for a value, or for an entry of a mapping."""
    if isinstance(value, Mapping) and place and place[0] in value:
        return UsageError(f"{name}[{place[0]!r}] is {value[place[0]]!r}, and must be a text.")
    if isinstance(value, Sequence) and not isinstance(value, str | bytes) and "" in value:
        return UsageError(f"{name} has an empty name.", hint="Is a variable of the shell unset?")
    return UsageError(f"{name} is {value!r}, and must be {must}.")


def _whole(least: int, most: int | None = None) -> Any:
    return Annotated[int, Interval(ge=least, le=most)]


def _optional(rule: _Rule) -> _Rule:
    """The same form, or None."""
    if rule.choices is None:
        return replace(rule, type=rule.type | None, must=f"{rule.must}, or left out")
    return rule


_TEXT = _Rule(type=str, must="a text")
_SWITCH = _Rule(type=bool, must="True or False")
_COUNT = _Rule(type=_whole(1), must="a whole number, 1 or more")
_SEEDS = _Rule(type=_whole(1, 1000), must="a whole number from 1 to 1000")
_SEED = _Rule(type=_whole(0, 2**32 - 1), must="a whole number from 0 to 4294967295")
_SECONDS = _Rule(
    type=Annotated[float, Interval(ge=0), Predicate(math.isfinite)], must="a number of seconds, 0 or more"
)
_GIGABYTES = _Rule(
    type=Annotated[float, Interval(ge=0), Predicate(math.isfinite)], must="a number of gigabytes, 0 or more"
)
_FOLDER = _Rule(type=Path, strict=False, must="a path")
_TEXTS = tuple[Annotated[str, MinLen(1)], ...]
_NAMES = _Rule(type=_TEXTS, must="names, as a comma-separated text or a list of texts", before=_names)
_PLACES = _Rule(type=_TEXTS, must="a name or a list of names", before=_places)
_TABLE = _Rule(type=dict[str, str], must="a mapping of names to texts", before=_table)


def _same(names: Sequence[str]) -> Mapping[str, str]:
    return {name: name for name in names}


VECTORS = {name: dtype for name, dtype in DTYPES.items() if dtype != "bfloat16"}
"""The precisions in which vectors are kept, by their spellings."""

_RULES: Mapping[str, _Rule] = {
    "models": _PLACES,
    "suites": _PLACES,
    "model": _Rule(type=str, must="a name or a path", before=_place),
    "baseline": _Rule(type=str, must="a name or a path", before=_place),
    "dtype": _Rule(choices=DTYPES),
    "vectors": _Rule(choices=VECTORS),
    "document_text": _Rule(choices=_same(get_args(DocumentText))),
    "pooling": _optional(_TEXT),
    "normalize": _optional(_SWITCH),
    "max_length": _optional(_Rule(type=_whole(1), must="a whole number of tokens, 1 or more")),
    "query_length": _optional(_Rule(type=_whole(1), must="a whole number of tokens, 1 or more")),
    "similarity": _Rule(choices=_same(get_args(Similarity))),
    "index": _optional(_TEXT),
    "context": _Rule(choices=_same(get_args(ContextChoice))),
    "context_seeds": _SEEDS,
    "prompts": _optional(_TABLE),
    "seed": _SEED,
    "seeds": _SEEDS,
    "tasks": _NAMES,
    "languages": _NAMES,
    "subsets": _NAMES,
    "splits": _NAMES,
    "recipe": _NAMES,
    "checkpoint_minutes": _Rule(
        type=Annotated[float, Interval(ge=0), Predicate(math.isfinite)], must="a number of minutes, 0 or more"
    ),
    "recipe_settings": _Rule(type=dict[str, Any], must="a mapping of settings to values", before=_table),
    "sweep": _Rule(type=dict[str, Any], must="a mapping of a setting to its values", before=_table),
    "select": _PLACES,
    "train_data": _Rule(type=_TEXTS, must="a name or a list of names", before=_places_or_none),
    "results": _optional(_FOLDER),
    "cache": _optional(_FOLDER),
    "data": _optional(_FOLDER),
    "remote": _optional(_Rule(type=str, must="the URL of object storage")),
    "offline": _SWITCH,
    "devices": _NAMES,
    "executor": _TEXT,
    "threads": _optional(_COUNT),
    "drop_vectors": _SWITCH,
    "keep_vectors": _GIGABYTES,
    "batch_tokens": _optional(_COUNT),
    "workers": _optional(_COUNT),
    "force": _SWITCH,
    "fail_fast": _SWITCH,
    "trust_remote_code": _SWITCH,
    "allow_extra": _NAMES,
    "gate": _SWITCH,
    "purpose": _Rule(choices=_same(get_args(Purpose))),
    "budget": _optional(_SECONDS),
    "names": _TABLE,
    "every": _SECONDS,
    "settle": _SECONDS,
    "once": _SWITCH,
    "until": _optional(_Rule(type=_whole(0), must="a whole number, 0 or more")),
}
"""The form of every value of a request, of a check and of a watch, by its name in Python."""

UNSET = frozenset({"similarity", "document_text", "vectors", "context"})
"""Choices that may be None."""


def checked(name: str, value: Any) -> Any:
    """A value of a request in its form.

    Raises:
        UsageError: It has another form; the message has the nearest match, or says what it must be.

    Example:
        >>> checked("tasks", "RTE, MRPC"), checked("dtype", "bf16")
        (('RTE', 'MRPC'), 'bfloat16')
    """
    if value is None and name in UNSET:
        return None
    if name == "vectors" and DTYPES.get(str(value)) == "bfloat16":
        raise UsageError(
            "Vectors are kept in float32 or float16; bfloat16 has too few digits for them.",
            hint="The precision of the model itself is --dtype bfloat16.",
        )
    if name == "tasks" and isinstance(value, str) and not split_names(value):
        raise UsageError("tasks is empty.", hint="Name tasks, e.g. RTE,MRPC, or leave it out.")
    return _RULES[name].checked(name, value)


def checked_fields(part: Part, kind: type[Part], name: str) -> Part:
    """A dataclass of values, each in its form; its own dataclasses are left as they are.

    Raises:
        UsageError: It is of another class, or a value has another form.
    """
    if not isinstance(part, kind):
        raise UsageError(f"{name} is {part!r}, and must be a harness.{kind.__name__}.")
    given: Any = part
    values = {f.name: checked(f.name, getattr(given, f.name)) for f in fields(given) if f.name in _RULES}
    made: Part = replace(given, **values)
    return made


def split_settings(text: str, *, of: str) -> dict[str, str]:
    """The settings that a user types as NAME=VALUE,NAME=VALUE.

    Raises:
        UsageError: One has no value, or is given twice.

    Example:
        >>> split_settings("k1=0.9, b=0.4", of="bm25")
        {'k1': '0.9', 'b': '0.4'}
    """
    settings: dict[str, str] = {}
    for pair in split_names(text):
        name, _, value = (part.strip() for part in pair.partition("="))
        if not value:
            raise UsageError(
                f"The setting {name} of {of} has no value.", hint=f"Type e.g. {of}:{name}=VALUE."
            )
        if name in settings:
            raise UsageError(f"The setting {name} of {of} is given twice.", hint="Leave one of them out.")
        settings[name] = value
    return settings


def join_settings(name: str, settings: Mapping[str, Any], usual: Mapping[str, Any]) -> str:
    """The shortest text that names something with its settings; missing ones have their usual value.

    >>> join_settings("plaid", {"nbits": 2}, {"nbits": 4, "seed": 42}), join_settings("bm25", {}, {"b": 1})
    ('plaid:nbits=2', 'bm25')
    """
    changed = [f"{key}={settings[key]}" for key, value in usual.items() if settings.get(key, value) != value]
    return f"{name}:{','.join(changed)}" if changed else name


SET = "--set {}=VALUE; `harness list recipes` shows the recipes"
"""How a setting of a recipe is typed."""


def with_settings(
    settings: Part, given: Mapping[str, Any], *, of: str, fixed: Collection[str] = (), example: str = SET
) -> Part:
    """A dataclass of settings with changed values, each in the form that the dataclass declares.

    Args:
        settings: The values before.
        given: New values by field; texts are read as the field's type, "none" as no value and commas as
            the separators of several.
        of: The name of what the settings belong to, in messages.
        fixed: Fields that are no settings.
        example: How a setting is typed, with {} for its name.

    Raises:
        UsageError: There is no such field, and the message lists all; or a value has another form.

    Example:
        >>> from dataclasses import dataclass
        >>> @dataclass(frozen=True)
        ... class Example:
        ...     rate: float = 0.1
        ...     betas: tuple[float, float] = (0.9, 0.999)
        >>> with_settings(Example(), {"rate": "3e-5", "betas": "0.9,0.98"}, of="example")
        Example(rate=3e-05, betas=(0.9, 0.98))
    """
    declared: Any = settings
    known = [field.name for field in fields(declared) if field.name not in fixed]
    for name in given:
        if name not in known:
            close = nearest(name, known)
            near = f"Did you mean {' or '.join(close)}? " if close else ""
            has = ", ".join(f"{key}={_setting_text(getattr(declared, key))}" for key in known)
            raise UsageError(f"{of} has no setting {name!r}.", hint=f"{near}It has: {has}.")
    types = get_type_hints(type(settings), include_extras=True)
    changed: Part = replace(
        declared, **{name: _setting(types[name], name, value, of, example) for name, value in given.items()}
    )
    return changed


def _setting(kind: Any, name: str, value: Any, of: str, example: str) -> Any:
    from pydantic import TypeAdapter, ValidationError

    given = value
    if isinstance(value, str):
        if value.lower() in ("none", "") and type(None) in get_args(kind):
            return None
        if get_origin(kind) is tuple:
            given = split_names(value)
        elif get_origin(kind) is Literal:
            given = next((choice for choice in get_args(kind) if str(choice) == value), value)
    try:
        return TypeAdapter(kind).validate_python(given)
    except ValidationError as error:
        reason = error.errors()[0]["msg"]
        raise UsageError(
            f"The setting {name} of {of} cannot be {value!r}: {reason[:1].lower()}{reason[1:]}.",
            hint=f"Type e.g. {example.format(name)}.",
        ) from error


def _setting_text(value: Any) -> str:
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return "none" if value in (None, "") else str(value)
