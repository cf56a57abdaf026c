"""Workers of benchmarks/bench_encode.py, through which it measures the libraries of another environment."""

from __future__ import annotations

import re
import sys
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pytest
from bench_encode import __file__ as SCRIPT
from measuring import load_library, locate_minilm, locate_python, start_worker

TEXTS = ["the cat sat on a mat .", "what is a query ?", "a word " * 300]


def test_a_worker_gives_the_vectors_of_its_library_each_time_it_is_asked() -> None:
    words = ("--data", "none", "--alone", "theirs float32 batch 32", "--serve")
    with start_worker(locate_python(Path(sys.prefix)), SCRIPT, *words) as (about, ask):
        first, second = ask(TEXTS), ask(TEXTS[1:])
    assert f"sentence-transformers {version('sentence-transformers')}" in about
    expected = load_library(locate_minilm()).encode(TEXTS)
    np.testing.assert_allclose(first, expected, atol=1e-6)
    np.testing.assert_allclose(second, expected[1:], atol=1e-6)


def test_a_worker_that_ends_at_once_is_an_error_that_names_it() -> None:
    with (
        pytest.raises(SystemExit, match=f"^{re.escape(sys.executable)} ended before it was ready"),
        start_worker(sys.executable, "-c", "raise SystemExit('no model')"),
    ):
        pass


def test_an_environment_without_python_is_an_error(tmp_path: Path) -> None:
    assert locate_python(Path(sys.executable)) == sys.executable
    with pytest.raises(SystemExit, match=r"There is no .*bin/python.*make test-newest"):
        locate_python(tmp_path)
