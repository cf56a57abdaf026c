"""Suites from source code: its files, functions and history by language, and the tasks made of them."""
