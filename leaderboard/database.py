"""The index: what the folders hold, in tables that can be asked. It can be thrown away and made anew."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from filelock import FileLock
from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Connection,
    Engine,
    Float,
    Index,
    Integer,
    MetaData,
    SmallInteger,
    String,
    Table,
    Text,
    create_engine,
    event,
    text,
)
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, NoSuchModuleError, OperationalError

from harness.errors import StoreError, UsageError

METADATA = MetaData()


def _text(length: int | None = None) -> String:
    """Text that every database puts in one order: that of its code points."""
    kind = Text if length is None else String
    return kind(length).with_variant(kind(length, collation="C"), "postgresql")


META = Table("meta", METADATA, Column("name", _text(64), primary_key=True), Column("value", _text()))
"""`version` rises whenever anything changed; `form` tells an index that this program cannot read."""

UNITS = Table(
    "units",
    METADATA,
    Column("id", Integer, primary_key=True),
    Column("source", _text(), nullable=False),
    Column("name", _text(), nullable=False),
    Column("stamp", _text(64), nullable=False),
)
"""What is taken in or dropped as a whole: a folder of records, or one entry of an import."""

ENTRIES = Table(
    "entries",
    METADATA,
    Column("id", BigInteger, primary_key=True, autoincrement=False),
    Column("unit", Integer, nullable=False, index=True),
    Column("slug", _text(200), nullable=False, unique=True),
    Column("model", _text(), nullable=False),
    Column("model_slug", _text(200), nullable=False, index=True),
    Column("origin", _text(16), nullable=False),
    Column("source", _text(), nullable=False),
    Column("revision", _text()),
    Column("trust", _text(16), nullable=False),
    Column("artifact", _text(64)),
    Column("treatment", _text(), nullable=False),
    Column("recipe", _text()),
    Column("output", _text(16), nullable=False),
    Column("parameters", BigInteger),
    Column("dimension", Integer),
    Column("max_tokens", Integer),
    Column("released", _text(10)),
    Column("open_weights", Boolean),
    Column("adapted_from", _text()),
    Column("trained_on", _text()),
    Column("facts", _text(), nullable=False),
    Column("newest", _text(32)),
    Column("tasks", Integer, nullable=False),
    Column("lineage", _text()),
    Column("group", _text(64), index=True),
    Column("seeds", _text()),
    Column("member", Boolean, nullable=False),
)
"""One thing with scores: a model, its revision, and how it was measured; its number stays likewise.

Entries of one `group` differ only in the seed of their training. Where there are several, one more stands for
all of `seeds` (JSON), and they are its members.
"""

RESULTS = Table(
    "results",
    METADATA,
    Column("id", BigInteger, primary_key=True, autoincrement=False),
    Column("entry", BigInteger, nullable=False, index=True),
    Column("task", _text(500), nullable=False, index=True),
    Column("type", _text(), nullable=False),
    Column("metric", _text(), nullable=False),
    Column("status", _text(8), nullable=False),
    Column("value", Float),
    Column("data", _text(), nullable=False),
    Column("key", _text(64), index=True),
    Column("written", _text(32)),
    Column("deviation", Float),
    Column("seeds", SmallInteger),
    Column("trained_on", Integer),
    Column("document", _text(), nullable=False),
)
"""One task's outcome as it was found, under a number that stays when the index is made anew.

`document` is its JSON; of an import: split → subset → score. Of several seeds there is their mean if all have
one, its standard deviation, and how many `seeds` have a score. `trained_on` counts the task's texts that the
model was trained on.
"""

SCOPES = Table(
    "scopes",
    METADATA,
    Column("id", Integer, primary_key=True),
    Column("form", _text(64), nullable=False, unique=True),
)
"""What a suite's column asks of a task: its splits, subsets, data, and the paper's convention."""

SCORES = Table(
    "scores",
    METADATA,
    Column("scope", Integer, primary_key=True, autoincrement=False),
    Column("entry", BigInteger, primary_key=True, autoincrement=False),
    Column("value", Float),
    Column("low", Float),
    Column("high", Float),
    Column("reason", SmallInteger, nullable=False),
    Column("result", BigInteger, nullable=False),
    Column("deviation", Float),
    Column("seeds", SmallInteger),
    Column("trained_on", Integer),
    Index("scores_entry", "entry"),
)
"""An entry's number for a scope, or why there is none (leaderboard.scopes.REASONS)."""

AVERAGES = Table(
    "averages",
    METADATA,
    Column("entry", BigInteger, primary_key=True, autoincrement=False),
    Column("suite", _text(200), primary_key=True),
    Column("view", _text(64), primary_key=True),
    Column("document", _text(), nullable=False),
)
"""Means of tasks that a recipe trained for, with their intervals (docs/json.md)."""

FILED = Table(
    "filed",
    METADATA,
    Column("id", BigInteger, primary_key=True, autoincrement=False),
    Column("unit", Integer, nullable=False, index=True),
    Column("kind", _text(8), nullable=False),
    Column("name", _text(120), nullable=False),
    Column("written", _text(40), nullable=False),
    Column("facts", _text(), nullable=False),
    Column("document", _text(), nullable=False),
    Index("filed_kind", "kind"),
)
"""Checks and watches (leaderboard.found.Filed); `facts` and `document` are JSON."""


def open_engine(url: str, *, file: Path) -> Engine:
    """The database at `url`, or the SQLite file where there is no URL.

    Raises:
        UsageError: The URL is none that can be used.
        StoreError: The database does not answer.
    """
    if not url:
        file.parent.mkdir(parents=True, exist_ok=True)
        url = f"sqlite:///{file}"
    try:
        engine = create_engine(make_url(url), **_arguments(url))
    except (ArgumentError, NoSuchModuleError, ModuleNotFoundError) as error:
        raise UsageError(
            f"HARNESS_DATABASE_URL cannot be used: {error}.",
            hint="For example postgresql+psycopg://user:password@host/name, or leave it out for a file.",
        ) from None
    try:
        if engine.dialect.name == "sqlite":
            event.listen(engine, "connect", _tune)
            event.listen(engine, "begin", lambda connection: connection.exec_driver_sql("BEGIN"))
        with alone(engine), engine.begin() as connection:
            lock(connection)
            METADATA.create_all(connection)
    except OperationalError as error:
        where = make_url(url).render_as_string(hide_password=True)
        raise StoreError(
            f"The database {where} does not answer: {error.orig}.",
            hint="Start it, or mend HARNESS_DATABASE_URL.",
        ) from None
    return engine


def alone(engine: Engine) -> AbstractContextManager[Any]:
    """Keeps other processes from writing the same file."""
    file = engine.url.database
    known = engine.dialect.name == "sqlite" and file not in (None, "", ":memory:")
    return FileLock(f"{file}.lock") if known else nullcontext()


def lock(connection: Connection) -> None:
    """Keep others from writing the same database on a server until the transaction ends."""
    if connection.dialect.name == "postgresql":
        connection.execute(text("SELECT pg_advisory_xact_lock(4717)"))


def _arguments(url: str) -> dict[str, Any]:
    if make_url(url).get_backend_name() == "sqlite":
        return {"connect_args": {"check_same_thread": False, "timeout": 30}}
    return {"pool_pre_ping": True}


def _tune(connection: Any, _record: Any) -> None:
    """Readers go on while the index is refreshed; tables are made and dropped in transactions, too."""
    connection.isolation_level = None
    for pragma in ("journal_mode=WAL", "synchronous=NORMAL", "cache_size=-20000", "temp_store=MEMORY"):
        connection.execute(f"PRAGMA {pragma}")
