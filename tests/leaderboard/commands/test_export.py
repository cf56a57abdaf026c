"""`harness export`: a page as data, as the server would give it."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from unittest import mock

import pytest
from click.testing import CliRunner, Result
from starlette.testclient import TestClient

from harness.core.errors import HarnessError
from leaderboard.commands.export import command
from site_data import standard_app, suites


@pytest.fixture(scope="module")
def results() -> Path:
    """The server's own: the time when a record was written is a part of the snapshot's id."""
    return Path(standard_app().state.site.settings.results[0])


def export(results: Path, *arguments: str) -> Result:
    """The export of a page, of the day of the server's snapshot; the server of the test has no reference."""
    made = datetime.fromisoformat(standard_app().state.site.queries.snapshot.made)
    clock = mock.Mock(now=mock.Mock(return_value=made))
    with (
        mock.patch("leaderboard.data.snapshot.load_site_suites", return_value=suites()),
        mock.patch("leaderboard.data.snapshot.datetime", clock),
        mock.patch("harness.core.files.find_reference_folder", return_value=None),
    ):
        return CliRunner().invoke(command, [*arguments, "--results", str(results)])


@pytest.mark.parametrize(
    ("page", "form", "path"),
    [
        ("/suites/nanobeir", "csv", "/suites/nanobeir.csv"),
        ("suites/nanobeir", "csv", "/suites/nanobeir.csv"),
        ("/suites/nanobeir?mean=types&sort=model", "json", "/suites/nanobeir.json?mean=types&sort=model"),
        ("/suites/glue?cols=mean&cols=tasks&q=tiny", "md", "/suites/glue.md?cols=mean&cols=tasks&q=tiny"),
        ("/suites/nanobeir?cols=tasks", "tex", "/suites/nanobeir.tex?cols=tasks"),
        ("http://127.0.0.1:8000/suites/glue?q=tiny#t-suite", "csv", "/suites/glue.csv?q=tiny"),
        ("https://board.example/", "csv", "/index.csv"),
        ("http://board.example", "csv", "/index.csv"),
        ("/", "csv", "/index.csv"),
        ("/models/acme--tiny-base", "csv", "/models/acme--tiny-base.csv"),
        ("/tasks/RTE", "json", "/tasks/RTE.json"),
    ],
)  # fmt: skip
def test_it_is_what_the_server_gives(results: Path, page: str, form: str, path: str) -> None:
    done = export(results, page, "--format", form)
    assert done.exit_code == 0, done.output
    wanted = TestClient(standard_app()).get(path)
    assert wanted.status_code == 200
    assert done.stdout_bytes == wanted.content


@pytest.mark.parametrize(
    "page",
    ["/suites/glue.csv?q=tiny", "suites/glue.csv?q=tiny", "http://localhost:8000/suites/glue.csv?q=tiny"],
)
def test_the_ending_of_an_address_names_the_format(results: Path, page: str) -> None:
    wanted = TestClient(standard_app()).get("/suites/glue.csv?q=tiny").content
    for more in ((), ("--format", "csv")):
        done = export(results, page, *more)
        assert done.exit_code == 0, done.output
        assert done.stdout_bytes == wanted
    for form in ("md", "json"):
        refused = export(results, page, "--format", form)
        assert isinstance(refused.exception, HarnessError)
        assert refused.exception.exit_code == 2
        assert ".csv" in refused.exception.message
        assert form in refused.exception.message


def test_the_overview_by_the_address_of_its_format(results: Path) -> None:
    assert (
        export(results, "/index.json").stdout_bytes == export(results, "/", "--format", "json").stdout_bytes
    )


def test_a_file_is_written(results: Path, tmp_path: Path) -> None:
    done = export(results, "/suites/glue", "--format", "csv", "--out", str(tmp_path / "x.csv"))
    assert (done.exit_code, done.stdout) == (0, "")
    assert (tmp_path / "x.csv").read_text() == export(results, "/suites/glue", "--format", "csv").stdout


@pytest.mark.parametrize(
    ("page", "says"),
    [
        ("/suites/nanobier", "nanobeir"),
        ("/suites", None),
        ("/nothing/here", "/api"),
        ("/index", "/api"),
        ("/suites/nanobeir?colls=mean", "There is no parameter 'colls'. Did you mean cols?"),
        ("/suites/nanobeir?colls=", "Did you mean cols?"),
        ("/suites/nanobeir?cols=nope", "No column is called 'nope'"),
        ("/suites/nanobeir?page=0", "page"),
        ("/suites/nanobeir?sort=nothing", "nothing"),
        ("/suites/../../etc/passwd", "page"),
        ("/api", "page"),
    ],
)
def test_what_is_wrong_is_said(results: Path, page: str, says: str | None) -> None:
    done = export(results, page)
    if says is None:
        assert done.exit_code == 0
        return
    assert isinstance(done.exception, HarnessError)
    assert says in f"{done.exception.message} {done.exception.hint}"
    assert done.exception.exit_code == 2


def test_a_file_that_cannot_be_written(results: Path, tmp_path: Path) -> None:
    done = export(results, "/about", "--out", str(tmp_path / "no" / "x.md"))
    assert isinstance(done.exception, HarnessError)
    assert "cannot be written" in done.exception.message


def test_keep_makes_the_address_of_the_snapshot_last(results: Path) -> None:
    done = export(results, "/suites/nanobeir", "--keep")
    assert done.exit_code == 0, done.output
    address = done.stderr.strip().removeprefix("Kept: ")
    assert address.startswith("/s/")
    assert export(results, address).stdout_bytes == done.stdout_bytes
    assert export(results, address.replace(address[3:15], "0" * 12)).exit_code != 0
