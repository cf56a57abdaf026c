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

META = Table("meta", METADATA, Column("name", String(64), primary_key=True), Column("value", Text))
"""`version` rises whenever anything changed; `form` tells an index that this program cannot read."""

UNITS = Table(
    "units",
    METADATA,
    Column("id", Integer, primary_key=True),
    Column("source", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("stamp", String(64), nullable=False),
)
"""What is taken in or dropped as a whole: a folder of records, or one entry of an import."""

ENTRIES = Table(
    "entries",
    METADATA,
    Column("id", Integer, primary_key=True),
    Column("unit", Integer, nullable=False, index=True),
    Column("slug", String(200), nullable=False, unique=True),
    Column("model", Text, nullable=False),
    Column("model_slug", String(200), nullable=False, index=True),
    Column("origin", String(16), nullable=False),
    Column("source", Text, nullable=False),
    Column("revision", Text),
    Column("trust", String(16), nullable=False),
    Column("artifact", String(64)),
    Column("treatment", Text, nullable=False),
    Column("recipe", Text),
    Column("output", String(16), nullable=False),
    Column("parameters", BigInteger),
    Column("dimension", Integer),
    Column("max_tokens", Integer),
    Column("released", String(10)),
    Column("open_weights", Boolean),
    Column("adapted_from", Text),
    Column("trained_on", Text),
    Column("facts", Text, nullable=False),
    Column("newest", String(32)),
    Column("tasks", Integer, nullable=False),
)
"""One thing with scores: a model, its revision, and how it was measured."""

RESULTS = Table(
    "results",
    METADATA,
    Column("id", Integer, primary_key=True),
    Column("entry", Integer, nullable=False, index=True),
    Column("task", Text, nullable=False, index=True),
    Column("type", Text, nullable=False),
    Column("metric", Text, nullable=False),
    Column("status", String(8), nullable=False),
    Column("value", Float),
    Column("data", Text, nullable=False),
    Column("key", String(64), index=True),
    Column("written", String(32)),
    Column("document", Text, nullable=False),
)
"""One task's outcome as it was found; `document` is its JSON (of an import: split → subset → score)."""

SCOPES = Table(
    "scopes",
    METADATA,
    Column("id", Integer, primary_key=True),
    Column("form", Text, nullable=False, unique=True),
)
"""What a suite's column asks of a task: its splits, subsets, data, and the paper's convention."""

SCORES = Table(
    "scores",
    METADATA,
    Column("scope", Integer, primary_key=True, autoincrement=False),
    Column("entry", Integer, primary_key=True, autoincrement=False),
    Column("value", Float),
    Column("low", Float),
    Column("high", Float),
    Column("reason", SmallInteger, nullable=False),
    Column("result", Integer, nullable=False),
    Index("scores_entry", "entry"),
)
"""An entry's number for a scope, or why there is none (leaderboard.scopes.REASONS)."""

AVERAGES = Table(
    "averages",
    METADATA,
    Column("entry", Integer, primary_key=True, autoincrement=False),
    Column("suite", String(200), primary_key=True),
    Column("view", String(64), primary_key=True),
    Column("document", Text, nullable=False),
)
"""Means of tasks that a recipe trained for, with their intervals (docs/json.md)."""


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
