"""The complete check fails where programs that the site's tests need are missing, unless that is allowed."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

RUN = (Path(__file__).parents[2] / ".ci" / "run").read_text()


def checked(folder: Path, *, user: int = 1000, installs: bool = False, **environment: str) -> tuple[int, str]:
    """The part of the script that looks for programs, on a machine without a browser."""
    start, end = RUN.index("programs() {"), RUN.index("run_tests() {")
    (folder / "id").write_text(f"#!/bin/bash\necho {user}\n")
    browser = folder / "chromium"
    made = f'printf "#!/bin/bash\\n" >{browser}; /bin/chmod +x {browser}' if installs else "exit 100"
    (folder / "apt-get").write_text(f'#!/bin/bash\n[ "$1" = update ] && exit 0\n{made}\n')
    for name in ("id", "apt-get"):
        (folder / name).chmod(0o755)
    part = RUN[start:end].replace("/usr/lib/postgresql/*/bin/initdb", str(folder / "id"))
    script = f'set -euo pipefail\n{part}\nprograms\necho "the tests run"\n'
    done = subprocess.run(
        ["/bin/bash", "-c", script],
        env={"PATH": str(folder), **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize("user", [0, 1000])
def test_missing_programs_are_a_failure_that_says_how_to_go_on(tmp_path: Path, user: int) -> None:
    code, said = checked(tmp_path, user=user)
    assert code != 0
    assert "missing: chromium" in said
    assert "ALLOW_MISSING_PROGRAMS=1" in said
    assert "the tests run" not in said


@pytest.mark.parametrize("user", [0, 1000])
def test_missing_programs_can_be_allowed(tmp_path: Path, user: int) -> None:
    code, said = checked(tmp_path, user=user, ALLOW_MISSING_PROGRAMS="1")
    assert code == 0
    assert "missing: chromium" in said
    assert "left out" in said


def test_what_can_be_installed_is(tmp_path: Path) -> None:
    code, said = checked(tmp_path, user=0, installs=True)
    assert (code, said) == (0, "the tests run\n")
