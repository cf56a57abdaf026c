"""The form of the values that users give: written on the fields of dataclasses, and checked in one place.

A field says everything about its value: its type with bounds is what pydantic checks, `Form` is what a type
cannot say, and `Option` has its option on the command line and its words, also those of docs/python.md.
"""

from __future__ import annotations

import functools
import json
import math
import os
import types
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, MISSING, dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from annotated_types import Interval, MinLen, Predicate

from harness.core.errors import UsageError, ask_for_names
from harness.core.files import explain_not_utf8, is_displayable

Part = TypeVar("Part")
Group = Literal["What", "Encoding", "Training", "Machine", "Output", "Rare"]


@dataclass(frozen=True, kw_only=True)
class Form:
    """What the type of a value does not say.

    Attributes:
        must: What the value must be, in words.
        read: Brings an accepted spelling into the form, before it is checked; leaves anything else as it is.
        choices: The spellings of a choice with its values, where it has others than its values.
        repeated: Whether several are typed one by one, and not with commas.
    """

    must: str = ""
    read: Callable[[Any], Any] | None = None
    choices: Mapping[str, str] | None = None
    repeated: bool = False

    def __get_pydantic_core_schema__(self, source: Any, handler: Callable[[Any], Any]) -> Any:
        # pydantic is imported where a value is checked, and not above: `import harness` and `harness --help`
        # need none of it, and stay fast.
        from pydantic_core.core_schema import no_info_before_validator_function

        return no_info_before_validator_function(self._read_spelling, handler(source))

    def _read_spelling(self, value: Any) -> Any:
        value = value if self.read is None else self.read(value)
        return self.choices.get(value, value) if self.choices and isinstance(value, str) else value


@dataclass(frozen=True)
class Option:
    """The words of a field, and its option on the command line.

    Attributes:
        help: What the value does.
        typed: The option, where it is not the field's name; "" where the command line has none.
        parameter: The name of its value in a command, where it is not the field's name.
        metavar: The placeholder of the value in the help; None for that of its type.
        envvar: The environment variable that sets it.
        unset: The value of a list with commas that nobody typed.
        alone: Whether only some commands that evaluate have it.
        group: The group of options in which the help shows it.
    """

    help: str
    _: KW_ONLY
    typed: str | None = None
    parameter: str | None = None
    metavar: str | None = None
    envvar: str | None = None
    unset: str | None = ""
    alone: bool = False
    group: Group = "Rare"


def format_toml_value(value: Any) -> str:
    """A value as TOML writes it; a table in a line, without what is None.

    >>> print(format_toml_value(["*"]), format_toml_value({"SciFact": {"margin": 2.0}}))
    ["*"] {"SciFact" = {"margin" = 2.0}}
    """
    if isinstance(value, tuple | list):
        return f"[{', '.join(map(format_toml_value, value))}]"
    if isinstance(value, Mapping):
        settings = (
            f"{format_toml_value(name)} = {format_toml_value(setting)}"
            for name, setting in value.items()
            if setting is not None
        )
        return f"{{{', '.join(settings)}}}"
    # JSON's texts and numbers are those of TOML, but for DEL, which JSON leaves as it is and TOML forbids.
    return json.dumps(value, ensure_ascii=False, default=str).replace("\x7f", "\\u007f")


def split_names(text: str) -> tuple[str, ...]:
    """The parts of a comma-separated list."""
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _read_names(value: Any) -> Any:
    """A comma-separated text as its parts, any other sequence as a tuple, and None as no names."""
    if value is None:
        return ()
    if isinstance(value, str):
        return split_names(value)
    # Bytes are a sequence of numbers in Python: they stay as they are, and the check refuses them.
    return tuple(value) if isinstance(value, Sequence) and not isinstance(value, bytes) else value


def _read_numbers(value: Any) -> Any:
    """A number, a comma-separated text or a sequence as different numbers, and None as none."""
    parts = (value,) if type(value) is int else _read_names(value)
    if not isinstance(parts, tuple):
        return value
    return tuple(dict.fromkeys(int(p) if isinstance(p, str) and p.isdecimal() else p for p in parts))


def _read_places(value: Any) -> Any:
    """A single name or path as a tuple of one, and any other sequence as a tuple of texts."""
    several = (value,) if isinstance(value, str | os.PathLike) else value
    if not isinstance(several, Sequence) or isinstance(several, bytes):
        return value
    return tuple(_read_place(place) for place in several)


def _read_named_places(value: Any) -> Any:
    """A mapping of names to models as texts NAME=MODEL, and anything else as places."""
    if not isinstance(value, Mapping):
        return _read_places(value)
    for name in value:
        if not isinstance(name, str) or "=" in name:
            raise UsageError(f"{name!r} cannot be a model's name.", hint='Names are texts without "=".')
    return tuple(f"{name}={_read_place(place)}" for name, place in value.items())


def _read_place(value: Any) -> Any:
    return os.fspath(value) if isinstance(value, os.PathLike) else value


def _read_folder(value: Any) -> Any:
    # The path of an empty text would be the current folder.
    return Path(value) if value and isinstance(value, str | os.PathLike) else value


# Bounds far above any use, within which sizes stay what libraries take and times what clocks count.
Processes = Annotated[int, Interval(ge=1, le=1024), Form(must="a whole number from 1 to 1024")]
Tokens = Annotated[
    int, Interval(ge=1, le=2_000_000_000), Form(must="a whole number of tokens from 1 to 2 billion")
]
Lengths = Annotated[
    tuple[Annotated[int, Interval(ge=1, le=2_000_000_000)], ...],
    Form(
        must="a number of tokens from 1 to 2 billion, or several as a comma-separated text or a list",
        read=_read_numbers,
    ),
]
Examples = Annotated[
    int, Interval(ge=3, le=2_000_000_000), Form(must="a whole number of examples from 3 to 2 billion")
]
Step = Annotated[int, Interval(ge=0, lt=2**63), Form(must="a whole number, 0 or more and below 2**63")]
Seeds = Annotated[int, Interval(ge=1, le=1000), Form(must="a whole number from 1 to 1000")]
Samples = Annotated[int, Interval(ge=2, le=1000), Form(must="a whole number from 2 to 1000")]
# The largest seed that numpy's older generator takes, and with it scikit-learn's random_state.
Seed = Annotated[int, Interval(ge=0, le=2**32 - 1), Form(must="a whole number from 0 to 4294967295")]
_Amount = Annotated[float, Interval(ge=0, le=1e9), Predicate(math.isfinite)]
Seconds = Annotated[_Amount, Form(must="a number of seconds from 0 to a billion")]
Minutes = Annotated[_Amount, Form(must="a number of minutes from 0 to a billion")]
Gigabytes = Annotated[_Amount, Form(must="a number of gigabytes from 0 to a billion")]
_PlainText = Annotated[str, Predicate(is_displayable)]
Place = Annotated[_PlainText, Form(must="a name or a path", read=_read_place)]
Folder = Annotated[
    Path, Predicate(lambda path: is_displayable(str(path))), Form(must="a path", read=_read_folder)
]
_Texts = tuple[Annotated[_PlainText, MinLen(1)], ...]
Names = Annotated[_Texts, Form(must="names, as a comma-separated text or a list of texts", read=_read_names)]
Places = Annotated[_Texts, Form(must="a name or a list of names", read=_read_places, repeated=True)]
NamedPlaces = Annotated[
    _Texts,
    Form(
        must="a name, a list of names, or a mapping of names to models",
        read=_read_named_places,
        repeated=True,
    ),
]
Table = Annotated[
    Mapping[str, str],
    Form(
        must="a mapping of names to texts",
        read=lambda value: dict(value) if isinstance(value, Mapping) else value,
    ),
]

LARGEST_COUNT = 2**53
"""The largest whole number up to which a float has all of them."""

_MUST = {bool: "True or False", str: "a text"}
"""What values of plain types must be, in words."""


@dataclass(frozen=True, kw_only=True)
class Argument:
    """A field whose value users give, read off its annotation.

    Attributes:
        name: The name in Python.
        kind: The type without None, bounds and words.
        must: What the value must be, in words.
        choices: The spellings of a choice with its values; empty where any value of the type can be.
        repeated: Whether several are typed one by one.
        optional: Whether it may be None.
        annotation: As the field has it, for pydantic.
        default: That of the field; MISSING without one.
        option: The words of the field.
    """

    name: str
    kind: Any
    must: str
    choices: Mapping[str, str]
    repeated: bool
    optional: bool
    annotation: Any
    default: Any
    option: Option

    @staticmethod
    def parse_annotation(name: str, annotation: Any, default: Any = MISSING) -> Argument:
        """The argument of an annotation."""
        kind, words, optional = annotation, list[Any](), False
        # Before Python 3.14 `X | None` is a types.UnionType, but a typing.Union where X is Annotated.
        while (origin := get_origin(kind)) in (Annotated, Union, types.UnionType):
            if origin is Annotated:
                words += kind.__metadata__
                kind = kind.__origin__
            else:
                (kind,) = [part for part in get_args(kind) if part is not type(None)]
                optional = True
        forms = [word for word in words if isinstance(word, Form)]
        values = get_args(kind) if get_origin(kind) is Literal else ()
        return Argument(
            name=name,
            kind=kind,
            must=next((form.must for form in forms if form.must), _MUST.get(kind, "")),
            choices=next((form.choices for form in forms if form.choices), {text: text for text in values}),
            repeated=any(form.repeated for form in forms),
            optional=optional,
            annotation=annotation,
            default=default,
            option=next((word for word in words if isinstance(word, Option)), Option("", typed="")),
        )

    @property
    def parameter(self) -> str:
        """The name of its value in the function of a command."""
        return self.option.parameter or self.name

    @property
    def wanted(self) -> str:
        """What the value must be, in words."""
        must = f"one of {', '.join(self.choices)}" if self.choices else self.must
        return f"{must}, or left out" if self.optional else must

    def validate_value(self, value: Any) -> Any:
        """The value in its form.

        Raises:
            UsageError: It has another form; the message has the nearest match, or says what it must be.
        """
        from pydantic import ValidationError

        try:
            # Strict, as pydantic would else take "3" and True for the number 3 and 1.
            return self._adapter.validate_python(value, strict=True)
        except ValidationError as error:
            first = error.errors()[0]
            if first["type"] == "string_unicode":
                raise explain_not_utf8(first["input"]) from error
            raise self._explain_refusal(value, first["loc"]) from error

    @functools.cached_property
    def _adapter(self) -> Any:
        from pydantic import TypeAdapter

        return TypeAdapter(self.annotation)

    def _explain_refusal(self, value: Any, place: tuple[Any, ...]) -> UsageError:
        """The error for a value, or for an entry of a mapping."""
        name = self.name
        if self.choices:
            hint = f"{ask_for_names(str(value), self.choices)}There is: {', '.join(self.choices)}."
            return UsageError(f"No {name} is called {value!r}.", hint=hint)
        if isinstance(value, Mapping) and place and place[0] in value:
            return UsageError(f"{name}[{place[0]!r}] is {value[place[0]]!r}, and must be a text.")
        texts = value if isinstance(value, list | tuple) else [value]
        if any(isinstance(text, str) and not is_displayable(text) for text in texts):
            hint = "Rename the file or folder."
            return UsageError(f"{name} is {value!r}, and has control characters.", hint=hint)
        # Repeated options keep an empty text, while a comma-separated list drops it.
        if isinstance(value, Sequence) and not isinstance(value, str | bytes) and "" in value:
            return UsageError(f"{name} has an empty name.", hint="Is a variable of the shell unset?")
        return UsageError(f"{name} is {value!r}, and must be {self.wanted}.")


@functools.cache
def _collect_arguments(kind: Any) -> Mapping[str, Argument]:
    """The fields of a dataclass that users give; its own dataclasses are not among them."""
    hints = get_type_hints(kind, include_extras=True)
    arguments: dict[str, Argument] = {}
    for field in fields(kind):
        if not is_dataclass(hints[field.name]):
            default = field.default if field.default_factory is MISSING else field.default_factory()
            arguments[field.name] = Argument.parse_annotation(field.name, hints[field.name], default)
    return arguments


@functools.cache
def collect_options(kind: Any) -> Mapping[str, Argument]:
    """The fields of a dataclass that have words, those of its own dataclasses in their place."""
    hints, own_arguments = get_type_hints(kind), _collect_arguments(kind)
    options: dict[str, Argument] = {}
    for field in fields(kind):
        several = (
            {field.name: own_arguments[field.name]}
            if field.name in own_arguments
            else collect_options(hints[field.name])
        )
        options |= {name: argument for name, argument in several.items() if argument.option.help}
    return options


def check_value(name: str, value: Any, annotation: Any) -> Any:
    """A value in the form of an annotation.

    Args:
        name: The name of the value in messages.
        value: As a user gave it.
        annotation: A type with its bounds and words, such as `Names`.

    Raises:
        UsageError: It has another form; the message has the nearest match, or says what it must be.

    Example:
        >>> check_value("tasks", "RTE, MRPC", Names), check_value("seeds", 3, Seeds)
        (('RTE', 'MRPC'), 3)
    """
    return Argument.parse_annotation(name, annotation).validate_value(value)


def check_fields(part: Part, kind: type[Part], name: str) -> Part:
    """A dataclass of values, each in its form; its own dataclasses are left as they are.

    Args:
        part: The dataclass with values as a user gave them.
        kind: The class that it must have.
        name: Its name in messages.

    Raises:
        UsageError: It is of another class, or a value has another form.
    """
    if not isinstance(part, kind):
        raise UsageError(f"{name} is {part!r}, and must be a harness.{kind.__name__}.")
    source, declared = cast(Any, part), cast(Any, kind)
    values = {}
    for name, argument in _collect_arguments(declared).items():
        value = getattr(source, name)
        # A default has its form.
        values[name] = value if value is argument.default else argument.validate_value(value)
    checked_part: Part = replace(source, **values)
    return checked_part


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

    Args:
        name: The name before the colon.
        settings: Values by setting.
        usual: The default of every setting, in the order of the text.

    >>> join_settings("plaid", {"nbits": 2}, {"nbits": 4, "seed": 42}), join_settings("bm25", {}, {"b": 1})
    ('plaid:nbits=2', 'bm25')
    """
    changed = [f"{key}={settings[key]}" for key, value in usual.items() if settings.get(key, value) != value]
    return f"{name}:{','.join(changed)}" if changed else name


SET = "--set {}=VALUE; `harness recipes show RECIPE` shows its settings"
"""How a setting of a recipe is typed."""


def replace_settings(
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
        UsageError: No field has this name (the message lists all), or a value has another form.

    Example:
        >>> from dataclasses import dataclass
        >>> @dataclass(frozen=True)
        ... class Example:
        ...     rate: float = 0.1
        ...     betas: tuple[float, float] = (0.9, 0.999)
        >>> replace_settings(Example(), {"rate": "3e-5", "betas": "0.9,0.98"}, of="example")
        Example(rate=3e-05, betas=(0.9, 0.98))
    """
    declared: Any = settings
    setting_names = [field.name for field in fields(declared) if field.name not in fixed]
    for name in given:
        if name not in setting_names:
            near = ask_for_names(name, setting_names)
            has = ", ".join(f"{key}={_format_setting(getattr(declared, key))}" for key in setting_names)
            raise UsageError(f"{of} has no setting {name!r}.", hint=f"{near}It has: {has}.")
    types = get_type_hints(type(settings), include_extras=True)
    changed: Part = replace(
        declared,
        **{name: _parse_setting(types[name], name, value, of, example) for name, value in given.items()},
    )
    return changed


def _parse_setting(kind: Any, name: str, value: Any, of: str, example: str) -> Any:
    from pydantic import TypeAdapter, ValidationError

    if isinstance(value, bool) and bool not in (kind, *get_args(kind)):
        value = str(value)  # Else True would be the number 1.
    # A number alone is one value of several, as it is where it is typed.
    raw_value = (value,) if get_origin(kind) is tuple and isinstance(value, int | float) else value
    if isinstance(value, str):
        if value.lower() in ("none", "") and type(None) in get_args(kind):
            return None
        if get_origin(kind) is tuple:
            raw_value = split_names(value)
        elif get_origin(kind) is Literal:
            # Choices may be numbers, as for `nbits`; pydantic reads no number of a Literal out of a text.
            raw_value = next((choice for choice in get_args(kind) if str(choice) == value), value)
    try:
        # Not strict as in validate_value: here a number may be typed text, such as "3e-5".
        parsed = TypeAdapter(kind).validate_python(raw_value)
    except ValidationError as error:
        reason = error.errors()[0]["msg"]
        raise UsageError(
            f"The setting {name} of {of} cannot be {value!r}: {reason[:1].lower()}{reason[1:]}.",
            hint=f"Type e.g. {example.format(name)}.",
        ) from error
    # Libraries that count in 64 bits, and floats, would take a larger number for another one.
    if isinstance(parsed, int) and abs(parsed) > LARGEST_COUNT:
        raise UsageError(f"The setting {name} of {of} is {value}, more than can be counted.", hint=None)
    return parsed


def _format_setting(value: Any) -> str:
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return "none" if value in (None, "") else str(value)


ALLOWANCES = {
    "attention": "attention in another direction than config.json says",
    "blind-pooling": "pooling of a first token that sees no other",
    "lower-case": "letters in another case than do_lower_case says",
    "model-card": "other modules than README.md shows",
    "order-dependence": "vectors that depend on the texts before or beside them",
    "padding-side": "padding on another side than the tokenizer's files say",
    "partial-data": "a data set with fewer rows than it declares",
    "special-tokens": "other special tokens than the tokenizer's files say",
    "tokenization": "other tokens than the tokenizer's files say",
    "unnamed-modules": "files of sentence-transformers that no modules.json names",
    "unused-prompt": "a prompt of a side under a name by which no text gets it",
    "vector-length": "vectors that are to have length 1, and have not",
    "vector-size": "another dimension than the files say",
}
"""The contradictions that can be accepted, each with what it is."""

_TENSORS = "tensors="


def parse_allowances(
    value: Any, *, is_field: Callable[[str], bool] = lambda _: False, fields: Iterable[str] = ()
) -> Any:
    """The names of a text with commas, or of several; any other value is returned unchanged.

    Args:
        value: As a user gave it; None for no names.
        is_field: Whether a name is of a field of evaluations, which `harness check` lets differ.
        fields: The names of these fields.

    Raises:
        UsageError: A name is unknown; the message lists all.

    >>> parse_allowances("partial-data, tensors=probe.*")
    ('partial-data', 'tensors=probe.*')
    """
    texts = [value] if isinstance(value, str) else value or ()
    if not isinstance(texts, Sequence) or not all(isinstance(text, str) for text in texts):
        return value
    names = tuple(name for text in texts for name in split_names(text))
    for name in names:
        is_pattern = name.startswith(_TENSORS) and name != _TENSORS
        if not (name in ALLOWANCES or is_pattern or is_field(name)):
            near = ask_for_names(name, (*ALLOWANCES, *fields))
            kinds = "; ".join(f"{one} ({what})" for one, what in ALLOWANCES.items())
            raise UsageError(
                f"--allow {name} names nothing that can be accepted.",
                hint=f"{near}There is: {kinds}; {_TENSORS}PATTERN (tensors that have no place in the model); "
                "in harness check also a field that may differ, e.g. pooling.",
            )
    return names


def list_allowed_tensors(names: Sequence[str]) -> tuple[str, ...]:
    """The patterns of tensors that may have no place in a model.

    >>> list_allowed_tensors(("partial-data", "tensors=probe.*"))
    ('probe.*',)
    """
    return tuple(name.removeprefix(_TENSORS) for name in names if name.startswith(_TENSORS))


Allowances = Annotated[Names, Form(read=parse_allowances, repeated=True)]
