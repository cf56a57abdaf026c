"""Text of others inside GitHub's Markdown: shown as it is, whatever it holds."""

from __future__ import annotations

import re

GAP = "&#8203;"
"""A space of no width: what it splits is no mention, no reference and no address any more."""

CONTROL = re.compile("[\u0000-\u001f\u007f-\u009f\u2028\u2029\ud800-\udfff]+")
ENTITIES = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}
SPECIAL = re.compile(
    r"(?P<html>[&<>])"
    r"|(?P<split>@|:(?=//)|\bGH(?=-\d)|\bwww(?=\.)|:(?=[\w+-]+:))"  # mentions, addresses, pictures
    r"|(?P<mark>[\\`*_\[\]~|$]|^[-+=]|\#(?!\d))"
    r"|(?P<item>^\d+(?=[.)]))"
    r"|(?P<reference>\#)",
    re.IGNORECASE,
)
UNSAFE = re.compile(r"[^!#$%&'*+,\-./0-9:;=?@A-Z_a-z~]")


def escaped(text: str, *, most: int = 300) -> str:
    r"""A name or sentence as one line that GitHub shows as it was written.

    It is no HTML, link, mention, reference, picture or formula, and it ends no cell of a table.

    Args:
        text: Of any kind.
        most: Characters after which it is cut.

    >>> print(escaped("a|b <i> `c` @me #7"))
    a\|b &lt;i&gt; \`c\` @&#8203;me \#&#8203;7
    """
    line = CONTROL.sub(" ", text).strip()
    line = line if len(line) <= most else f"{line[: most - 1]}…"
    return SPECIAL.sub(_harmless, line)


def _harmless(found: re.Match[str]) -> str:
    sign = found[0]
    if found["html"]:
        return ENTITIES[sign]
    if found["item"]:
        return f"{sign}\\"
    return f"{sign}{GAP}" if found["split"] else f"\\{sign}{GAP if found['reference'] else ''}"


def hidden(text: str) -> str:
    """A name that may stand in an HTML comment: letters, digits, dots, single hyphens."""
    return re.sub(r"[^A-Za-z0-9._+]+", "-", text).strip("-") or "check"


def address(link: str) -> str:
    """A web address for the target of a link; empty of anything else."""
    if not re.match(r"https?://", link):
        return ""
    return UNSAFE.sub(lambda found: "".join(f"%{byte:02X}" for byte in found[0].encode()), link)
