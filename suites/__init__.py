"""Suites of tasks, one file each; `_mteb/` alone imports mteb, `_code/` reads source code."""
