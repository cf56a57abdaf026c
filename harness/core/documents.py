"""Versioned JSON documents on disk: one reader and writer for every kind.

A document has a schema number: a newer number is refused, an older document is migrated step by step, and for
an invalid document the error names the field. Its last field is the digest of all others. Its size is looked
at before it is read, and it is written in one step. What caches keep is JSON with a digest and no schema.
"""

from __future__ import annotations

import functools
import hashlib
import json
import re
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Generic, TypeVar

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from harness.core import files
from harness.core.errors import NewerSchemaError, RecordError, UsageError, explain_unknown, warn
from harness.core.files import is_plain_name

Migration = Callable[[dict[str, Any]], dict[str, Any]]
"""A function from a document of one schema number to a document of the next."""


class DocumentPart(BaseModel):
    """A part of a document: frozen, and without fields that are not declared."""

    # defer_build: pydantic builds a validator when the first document is read; most commands read few kinds.
    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True, defer_build=True)


FileName = Annotated[str, Field(pattern=r"^([^./\\\x00-\x1f][^/\\\x00-\x1f]*)?$")]
"""The name of a file beside a document, or of a folder: no path, which could lead out of the folder."""

Document = TypeVar("Document")


def read_or_warn(read: Callable[[Path], Document | None], path: Path) -> Document | None:
    """What `read` reads in a file; None where it cannot be read, which is logged as a warning."""
    try:
        return read(path)
    except RecordError as error:
        warn(f"{error.message} It is left out.")
        return None


LIMIT = 64 * 2**20
"""The most bytes of a document; a record of a task with 40,000 pairs of languages has 25 MB."""

CACHE_LIMIT = 2**30
"""The most bytes of a JSON file in the cache; that of a task from source code has the texts of the task."""

VALUES = 2_000_000
"""The most values in a document, as a value of two bytes may take a hundred times as many in memory."""


def read_limited(path: Path, limit: int) -> bytes:
    """The content of a file that is not larger than `limit` bytes.

    Raises:
        OSError: It cannot be read.
        ValueError: It is larger, or a pipe or device, which may have no end.
    """
    facts = path.stat()
    if facts.st_size > limit:
        raise ValueError(f"it has {facts.st_size:,} bytes, and {limit:,} are the most")
    if not (stat.S_ISREG(facts.st_mode) or stat.S_ISDIR(facts.st_mode)):
        raise ValueError("it is a pipe or a device")
    return path.read_bytes()


def read_content_file(path: Path) -> dict[str, Any]:
    """The content of a file that `write_content_file` wrote.

    Raises:
        OSError: It cannot be read.
        ValueError: It is too large, no JSON, has no digest, its content has changed, or is another file's.
    """
    content = verify_digest(read_limited(path, CACHE_LIMIT))
    if content.pop("file", path.name) != path.name:
        raise ValueError("its content is that of another file")
    return content


def write_content_file(path: Path, content: Mapping[str, Any]) -> None:
    """Write JSON content with the file's name and a digest in one step, in place of an existing file.

    Raises:
        StoreError: The file cannot be written.
    """
    files.replace(path, append_digest({"file": path.name, **content}).encode())


def append_digest(content: Mapping[str, Any]) -> str:
    """JSON content as indented text with a final newline, whose last field is a digest of all others."""
    text = _format_content(content)
    return f"{text[: -len(_END)]}{_format_digest_ending(_hash_content_text(text))}"


def verify_digest(text: str | bytes) -> dict[str, Any]:
    """The content of a text that `append_digest` made, also if its spaces have changed.

    Raises:
        ValueError: It is not JSON, has no digest, or its content has changed.
    """
    try:
        return _verify_content(json.loads(text), text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _verify_content(document: Any, text: str | bytes) -> dict[str, Any]:
    """The content of a document with a digest; `text` is its JSON."""
    text = text.decode() if isinstance(text, bytes) else text
    if not isinstance(document, dict) or "digest" not in document:
        raise ValueError("it has no digest")
    content = {name: value for name, value in document.items() if name != "digest"}
    written = document["digest"]
    ending = _format_digest_ending(written)
    # A file as append_digest wrote it is hashed as it lies, which saves writing its JSON again. One that a
    # tool has formatted in another way is hashed as it would have been written.
    as_written = text.endswith(ending) and _hash_content_text(text.removesuffix(ending) + _END) == written
    if not as_written and _hash_content_text(_format_content(content)) != written:
        raise ValueError("its content is not what its digest says")
    return content


_END = "\n}\n"


def _format_digest_ending(sha256: object) -> str:
    return f',\n "digest": "{sha256}"{_END}'


def _format_content(content: Mapping[str, Any]) -> str:
    return json.dumps(content, indent=1, ensure_ascii=False) + "\n"


def _hash_content_text(text: str) -> str:
    # json.loads makes a lone surrogate of an escape such as \ud800, which plain UTF-8 refuses to encode.
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


@dataclass(frozen=True, kw_only=True)
class DocumentKind(Generic[Document]):
    """A kind of document.

    Attributes:
        name: The kind in messages, e.g. "baseline".
        type: The class: a pydantic model with the schema number as a field, or a frozen dataclass.
        schema: The schema number that this version writes.
        migrations: By schema number, the step to the next number.
        hint: Advice for a damaged document.
        newer: Advice for a document of a newer version.
        digest_since: The first schema whose documents hold a digest of their content.
        limit: The most bytes of a document.
        find_problem: What a document says that cannot be true, as the end of a sentence; empty for nothing.
    """

    name: str
    type: type[Document]
    schema: int = 1
    migrations: Mapping[int, Migration] = field(default_factory=dict)
    hint: str | None = "Remove it, or put back a whole copy of it."
    newer: str = "Update the harness."
    digest_since: int = 1
    limit: int = LIMIT
    find_problem: Callable[[Document], str] = lambda document: ""

    def parse(self, text: str | bytes, *, where: object) -> Document:
        """The document in a text.

        Args:
            text: JSON.
            where: The document's name in messages, e.g. its path.

        Raises:
            RecordError: The text is of a newer schema, or not a document of this kind.
            ValueError: The text is not complete JSON (a truncated file), is too large or nested too deeply,
                is not what its digest says, or contradicts itself.
        """
        text = text.decode() if isinstance(text, bytes) else text
        if len(text) > self.limit or (len(text) > VALUES and sum(map(text.count, ",[{")) > VALUES):
            raise ValueError(f"it has more than {self.limit:,} bytes or {VALUES:,} values")
        try:
            raw = json.loads(text)
            raw = raw if isinstance(raw, dict) else {}
            version = raw["schema"] if isinstance(raw.get("schema"), int) else 0
            # A newer version may have another digest; that its number is refused says more.
            if version <= self.schema and ("digest" in raw or version >= self.digest_since):
                raw = _verify_content(raw, text)
            document = self._build_document(raw, where)
            problem = self.find_problem(document)
        except RecursionError:
            problem = "it is nested too deeply"
        if problem:
            raise ValueError(problem)
        return document

    def serialize_document(self, document: Document) -> str:
        """The text of a document's file, whose last field is the digest of all others."""
        fields = self._adapter.dump_python(document, mode="json", by_alias=True)
        return append_digest({"schema": self.schema, **fields})

    def read_document_file(self, path: Path) -> Document:
        """The document in a file.

        Raises:
            RecordError: It cannot be read, is of a newer schema, or is not a document of this kind.
        """
        try:
            return self.parse(read_limited(path, self.limit), where=path)
        except OSError as error:
            raise RecordError(f"{path} cannot be read: {error.strerror}.", hint=self.hint) from error
        except ValueError as error:
            message = f"{path} is not a {self.name}, it cannot be read: {error}."
            raise RecordError(message, hint=self.hint) from error

    def _build_document(self, raw: Mapping[str, Any], where: object) -> Document:
        """The document in JSON values whose digest fits."""
        version = raw.get("schema")
        if not isinstance(version, int):
            raise RecordError(f"{where} is not a {self.name}: it has no schema number.", hint=self.hint)
        if version > self.schema:
            schemas = f"schema {version}, this one reads up to {self.schema}"
            raise NewerSchemaError(f"{where} was written by a newer version ({schemas}).", hint=self.newer)
        for number in range(version, self.schema):
            if number not in self.migrations:
                raise RecordError(f"{where} has schema {number}, which no version ever wrote.")
            try:
                raw = self.migrations[number]({**raw, "schema": number})
            except (AttributeError, LookupError, TypeError) as error:
                problem = f"its fields have other types than those of schema {number}"
                raise RecordError(f"{where} is not a {self.name}: {problem}.", hint=self.hint) from error
        fields = {name: value for name, value in raw.items() if name != "schema"}
        try:
            return self._adapter.validate_python(fields)
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(str(part) for part in first["loc"])
            message = f"{where} is not a {self.name} of schema {self.schema}: {place}: {first['msg']}."
            raise RecordError(message, hint=self.hint) from error

    @functools.cached_property
    def _adapter(self) -> TypeAdapter[Document]:
        return TypeAdapter(self.type)


@dataclass(frozen=True, kw_only=True)
class DocumentFolder(Generic[Document]):
    """Documents of one kind that lie under names of their own in a results folder.

    Attributes:
        kind: The kind of the documents.
        folder: The folder's name below the results folder.
        stem: The name of a document's file, without the ending.
        then: Advice that names the command that lists the names.
        pattern: The form of a new name.
        hint: What a user types in place of a name that is refused.
    """

    kind: DocumentKind[Document]
    folder: str
    stem: Callable[[Document], str] = lambda document: str(getattr(document, "name"))  # noqa: B009
    then: str = ""
    # Baselines are typed as a name or as a file: a name that ends in .json would be taken for a file.
    pattern: str = r"(?!.*\.json$)[A-Za-z0-9][A-Za-z0-9._-]{0,99}"
    hint: str = "Use letters, digits, dots, dashes and underscores, e.g. release-1.2."

    def check_name(self, name: str) -> None:
        """Refuse a new name that is not fit for a file.

        Raises:
            UsageError: It has characters that it may not have, or would be read as a file.
        """
        if not (re.fullmatch(self.pattern, name) and is_plain_name(name)):
            raise UsageError(f"{name!r} cannot be the name of a {self.kind.name}.", hint=self.hint)

    def locate_document(self, results: Path, name: str) -> Path:
        """The file of the document with a name, whether it exists or not."""
        return results / self.folder / f"{name}.json"

    def list_names(self, results: Path) -> list[str]:
        """The names of the documents in the folder, sorted."""
        return sorted(path.stem for path in (results / self.folder).glob("*.json"))

    def find_document(self, results: Path, name: str) -> Document:
        """The document of a name.

        Raises:
            UsageError: No document has this name.
            RecordError: It cannot be read, or is of a newer schema.
        """
        names = self.list_names(results)
        if name not in names:
            raise explain_unknown(self.kind.name, name, names, then=self.then)
        return self.read_document_file(self.locate_document(results, name))

    def read_document_file(self, path: Path) -> Document:
        """The document in a file; in the folder itself a file has the name of its document.

        Raises:
            RecordError: It cannot be read, is of a newer schema, or is that of another name.
        """
        try:
            document = self.kind.read_document_file(path)
        except RecordError as error:
            if path.parent.name == self.folder and error.hint:
                error.hint = error.hint.replace("NAME", path.stem)
            raise
        if path.parent.name == self.folder and (name := self.stem(document)) != path.stem:
            message = f"{path} is the {self.kind.name} of another name, {name!r}."
            raise RecordError(message, hint=self.kind.hint)
        return document

    def write_document(self, results: Path, name: str, document: Document) -> Path:
        """Write a document in one step, replacing one of the same name; returns its file.

        Args:
            results: The results folder.
            name: A name that `check_name` accepts.
            document: The document.

        Raises:
            StoreError: The folder cannot be written.
        """
        path = self.locate_document(results, name)
        files.replace(path, self.kind.serialize_document(document).encode())
        return path
