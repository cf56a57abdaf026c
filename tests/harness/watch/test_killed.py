from __future__ import annotations

from pathlib import Path

import kill_watch
import pytest


@pytest.mark.slow
def test_five_checkpoints_one_cut_off_one_kill_are_five_evaluations(tmp_path: Path) -> None:
    found = kill_watch.scenario(tmp_path)
    assert (found["evaluations"], found["twice"], found["exit_code"]) == (5, 0, 0)
    assert found["states"] == ["done"] * 5
    assert found["order"][-1] == kill_watch.BROKEN
