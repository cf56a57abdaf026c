"""What strangers may write into files: names that control a terminal."""

from __future__ import annotations

import unicodedata

EVIL = "\x1b[31mred\x1b]0;title\x07 \x9b2J \u202egnp.exe\u2066 \x7f"
"""A name that colours a terminal, renames its window, clears it and turns what follows."""

TURNING = {*map(chr, range(0x202A, 0x202F)), *map(chr, range(0x2066, 0x206A))}
"""The characters that Unicode's rules for right-to-left texts call embeddings, overrides and isolates."""


def obeyed(text: str) -> set[str]:
    """The characters of a text, ends of lines aside, that a terminal or a browser obeys."""
    signs = {*text.replace("\r\n", "").replace("\n", "")}
    return {c for c in signs if c in TURNING or unicodedata.category(c) in ("Cc", "Zl", "Zp")}


def escaped(text: str) -> str:
    """A text as it is shown."""
    lines = text.split("\r\n")
    return "\r\n".join(
        "".join(f"\\u{ord(c):04x}" if c != "\t" and obeyed(c) else c for c in line) for line in lines
    )
