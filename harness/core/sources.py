"""The sources of settings: the place where a value is printed or coded, and the values that are ours.

`read_sources` reads them from a list in text.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

from harness.core.terminal import group_names, shorten_names

_OTHERS, _HERE = "other sources: ", "done here: "
"""The beginnings of the two parts of a note."""


@dataclass(frozen=True)
class Source:
    """The source of a setting's value; it is ours without a place and without a line of code.

    Attributes:
        place: A paper with its sections or tables (`NeoBERT, appendix C, table 6`), an author's answer
            (`answer in OWNER/NAME#176`), or the library whose default it is (`default of NAME`).
        code: A line of the authors' code or of the library: `OWNER/NAME@COMMIT:PATH#L12`.
        other: What other sources say, or leave open.
        here: What is done here, where that is more than the value.
    """

    place: str = ""
    code: str = ""
    other: str = ""
    here: str = ""

    @property
    def note(self) -> str:
        """What other sources say, and what is done here."""
        parts = (self.other and f"{_OTHERS}{self.other}", self.here and f"{_HERE}{self.here}")
        return "; ".join(filter(None, parts))

    @property
    def ours(self) -> bool:
        """Whether the value is our own choice."""
        return not (self.place or self.code)

    @property
    def address(self) -> str:
        """The page of the line of code on GitHub; empty without code."""
        repository, _, place = self.code.partition("@")
        return f"https://github.com/{repository}/blob/{place.replace(':', '/', 1)}" if self.code else ""

    @property
    def text(self) -> str:
        """The source in a line, without what other sources say."""
        return "; ".join(filter(None, (self.place, self.code))) or "ours"


Sources = Mapping[str, Mapping[str, Source]]
"""Sources by variant, with "" for the recipe's own, then by setting.

A name before a dot stands for all settings behind it, and "" for every setting without a source of its own.
"""

CHANGED = Source(place="as given with --set")


@dataclass(frozen=True, kw_only=True)
class SourcedSetting:
    """A setting of a recipe with its value and source.

    Attributes:
        name: Its name, that of a part behind the part's and a dot.
        value: The value.
        meaning: What it is, in words.
        source: The source; None where none was written down, so that the value is ours.
        inert: Whether it changes nothing beside the other settings.
    """

    name: str
    value: Any
    meaning: str = ""
    source: Source | None = None
    inert: bool = False

    @property
    def ours(self) -> bool:
        """Whether the value takes effect and is our own choice."""
        return not self.inert and (self.source is None or self.source.ours)


def list_settings(
    part: Any,
    sources: Mapping[str, Source],
    *,
    above: str = "",
    meaning: str = "",
    left_out: Sequence[str] = (),
) -> list[SourcedSetting]:
    """Every setting of a dataclass; those of its parts have the names of the parts before theirs.

    Args:
        part: The dataclass; its `inert`, where it has that, names settings that change nothing.
        sources: Sources by the name of a setting.
        above: Put before the names.
        meaning: What a field is that its dataclass does not explain.
        left_out: The names of fields that are no settings.
    """
    inert, meanings = getattr(part, "inert", ()), describe_fields(type(part))
    rows: list[SourcedSetting] = []
    for field in fields(part):
        value, name = getattr(part, field.name), f"{above}{field.name}"
        words = meanings.get(field.name, meaning)
        if field.name in left_out:
            continue
        if is_dataclass(value) and field.name not in inert:
            rows += list_settings(value, sources, above=f"{name}.", meaning=words)
            continue
        source = find_source(name, sources)
        unused = field.name in inert
        rows.append(SourcedSetting(name=name, value=value, meaning=words, source=source, inert=unused))
    return rows


def find_source(name: str, sources: Mapping[str, Source]) -> Source | None:
    """The source of a setting: its own, that of the part that it is in, or that of all settings."""
    return sources.get(name) or sources.get(name.partition(".")[0]) or sources.get("")


def inherit_sources(rows: Sequence[SourcedSetting], base: Sequence[SourcedSetting]) -> dict[str, Source]:
    """The sources of a variant's settings: its own, else those of the recipe where the value is the same."""
    before = {row.name: row for row in base}
    shared = {
        row.name: before[row.name].source
        for row in rows
        if row.name in before and before[row.name].value == row.value
    }
    sources = {row.name: row.source or shared.get(row.name) for row in rows}
    return {name: source for name, source in sources.items() if source is not None}


_CHOICE = "our own choice"
OURS = "Our own choice, as no source states it: "


def describe_ours(rows: Sequence[SourcedSetting]) -> tuple[str, ...]:
    """The sentence with the settings that are ours and their values; none where every value has a source."""
    ours = [row for row in rows if row.ours]
    every = len(ours) == sum(not row.inert for row in rows)
    return (OURS + ("all values." if every else f"{'; '.join(map(_format_row, ours))}."),) if ours else ()


def _format_row(row: SourcedSetting) -> str:
    """A setting with its value, without one that is long."""
    value = row.value
    if isinstance(value, tuple | list):
        value = ",".join(map(str, value))
    text = "none" if value in (None, "") else str(value)
    if value is None and row.name.rpartition(".")[2] == "max_length":
        text = "the model's own"
    return f"{row.name} = {text}" if len(text) <= LONGEST_VALUE else row.name


LONGEST_VALUE = 30
"""The characters of a value that a sentence on several settings has."""


def describe_notes(rows: Sequence[SourcedSetting]) -> tuple[str, ...]:
    """What is followed where sources differ, and which settings are ours, for lineages and records.

    Settings with one source and one note are named together.
    """
    noted = group_names(
        (row.name, f"{_CHOICE if row.ours else f'as in {row.source.text}'}; {row.source.note}")
        for row in rows
        if row.source is not None and row.source.note and not row.inert
    )
    # The last sentence has all choices of ours. Other names are cut where they are printed.
    named = {
        note: shorten_names(names) if note.startswith(_CHOICE) else ", ".join(names)
        for note, names in noted.items()
    }
    return (*(f"{names}: {note}" for note, names in named.items()), *describe_ours(rows))


def explain_sources(recipe: str) -> str:
    """Where the sources of a recipe's settings are shown."""
    return f"each setting with its source, and what other sources say: `harness recipes show {recipe}`"


def describe_assumptions(sentences: Sequence[str]) -> list[str]:
    """Up to three lines on the sentences of a lineage or a record, and those that are of no setting.

    >>> describe_assumptions(["seed: as in a paper; other sources: 7", OURS + "heads = 1; rate = 2."])
    ['our own choice, as no source states it: heads = 1; rate = 2', 'sources differ on or leave open: seed']
    >>> describe_assumptions(["seed: as in a paper; done here: one for each device"])
    ['done in our own way: seed']
    """
    lines: list[str] = []
    names: dict[str, list[str]] = {"sources differ on or leave open": [], "done in our own way": []}
    differ, own_way = names.values()
    for sentence in sentences:
        name, _, text = sentence.partition(": ")
        if sentence.startswith(OURS):
            choices = shorten_names(text.removesuffix(".").split("; "), between="; ")
            lines.append(f"{OURS[:1].lower()}{OURS[1:]}{choices}")
        elif text and _NAMES.fullmatch(name):
            # Choices of ours have the line above.
            if not text.startswith(_CHOICE):
                is_own = f"; {_HERE}" in text and f"; {_OTHERS}" not in text
                (own_way if is_own else differ).extend(name.split(", "))
        else:
            lines.append(f"assumed: {sentence}")
    return [*lines, *(f"{what}: {shorten_names(some)}" for what, some in names.items() if some)]


_NAMES = re.compile(r"[^\s,]+(, [^\s,]+)*( and [\d,]+ more)?")


_ATTRIBUTE = re.compile(r"^    (?:    )?(\w+(?:, \w+)*): (.*(?:\n {8,}.*)*)", re.MULTILINE)


@functools.cache
def _parse_attributes(docstring: str) -> Mapping[str, str]:
    meanings: dict[str, str] = {}
    for names, text in _ATTRIBUTE.findall(inspect.cleandoc(docstring).partition("Attributes:\n")[2]):
        meanings |= dict.fromkeys(names.split(", "), " ".join(text.split()))
    return meanings


def describe_fields(kind: type) -> dict[str, str]:
    """The fields of a dataclass in the words of its docstring and of those of its bases."""
    docstrings = [part.__doc__ or "" for part in reversed(kind.__mro__)]
    return {name: text for one in docstrings for name, text in _parse_attributes(one).items()}


def read_sources(
    repository: str, text: str, base: Mapping[str, Mapping[str, Source]] | None = None
) -> dict[str, dict[str, Source]]:
    """The sources of settings by variant.

    Args:
        repository: Where files are, unless their line names another repository.
        text: Lines of four kinds: `path: name 12, name 14`, settings with their lines in a file;
            `[place]: name, name`, settings that a paper states; and `name = text`, what other sources say, or
            `name := text`, what is done here. A line `:variant` goes before those of a variant, and "*" is
            every setting without a source.
        base: Further sources by variant, which those of the text replace.
    """
    sources: dict[str, dict[str, Source]] = {"": {}}
    variant = ""
    for line in re.sub(r"\n {4,}", " ", inspect.cleandoc(text)).splitlines():
        if line.startswith(":"):
            variant = line.removeprefix(":")
            continue
        where, _, names = line.partition(": ")
        if note := re.match(r"([\w.*]+) (:?)= (.*)", line):
            fields = {note[1]: {"here" if note[2] else "other": note[3]}}
        elif where.startswith("["):
            fields = {name: {"place": where.strip("[]")} for name in names.split(", ")}
        else:
            file = where if "@" in where else f"{repository}{where}"
            pairs = (item.rpartition(" ") for item in names.split(", "))
            fields = {name: {"code": f"{file}#L{number}"} for name, _, number in pairs}
        named = sources.setdefault(variant, {})
        for name, field in fields.items():
            named[name.strip("*")] = replace(named.get(name.strip("*"), Source()), **field)
    for variant, inherited in (base or {}).items():
        sources[variant] = {**inherited, **sources.get(variant, {})}
    return sources
