"""SVG as text: elements with everything escaped, and the words that go into them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from unicodedata import east_asian_width
from urllib.parse import urlsplit

from markupsafe import Markup, escape

FONT = 12
COLOURS = 6
"""Series with a colour of their own; what is beyond shares one."""

_UNUSABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff\ufffe\uffff]")
_NARROW, _BROAD = frozenset("iIjltfr.,:;'|!()[]/ "), frozenset("mwMW@%")


def element(name: str, *children: str, **attributes: object) -> Markup:
    """An element; text that is no Markup is escaped.

    `class_` is the attribute class, `stroke_width` is stroke-width; an attribute of None or "" is left out.

    >>> element("text", "a < b", x=1.50, class_="plot-text")
    Markup('<text x="1.5" class="plot-text">a &lt; b</text>')
    """
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{_value(value)}"'
        for key, value in attributes.items()
        if value is not None and value != ""
    )
    inside = "".join(c if isinstance(c, Markup) else escape(clean(c)) for c in children)
    return Markup(f"<{name}{written}>{inside}</{name}>" if inside else f"<{name}{written}/>")


def _value(value: object) -> str:
    return _short(value) if isinstance(value, float) else str(escape(clean(str(value))))


def _short(value: float) -> str:
    return f"{round(value, 2) + 0.0:.2f}".rstrip("0").rstrip(".")


def clean(text: str) -> str:
    """Text that XML can hold, on one line."""
    return _UNUSABLE.sub("\ufffd", text).replace("\r", " ").replace("\n", " ").replace("\t", " ")


def joined(parts: Iterable[Markup]) -> Markup:
    """Elements one after another."""
    return Markup("").join(parts)


def group(class_: str, parts: Iterable[Markup], **attributes: object) -> Markup:
    """Elements under one class; nothing for no elements."""
    inside = joined(parts)
    return element("g", inside, class_=class_, **attributes) if inside else Markup("")


def linked(inside: Markup, *, href: str, name: str, focusable: bool = True) -> Markup:
    """Something to point at, with a tooltip; a link where there is somewhere to go."""
    title = element("title", name)
    target = safe(href)
    if not target:
        return element("g", title, inside)
    return element("a", title, inside, href=target, tabindex=None if focusable else "-1")


def safe(href: str) -> str:
    r"""The address, or nothing where following it could run code.

    >>> safe("/models/a"), safe("java\nscript:alert(1)")
    ('/models/a', '')
    """
    try:
        scheme = urlsplit(href.strip()).scheme
    except ValueError:
        return ""
    return href if scheme in ("", "http", "https") else ""


def path(corners: Sequence[tuple[float, float]], *, closed: bool = False) -> str:
    """The `d` of a path through these."""
    return "M" + "L".join(f"{_short(x)},{_short(y)}" for x, y in corners) + ("Z" if closed else "")


def colour(place: int) -> str:
    """The class of the series at a place, from 0."""
    return f"series-{place + 1}" if place < COLOURS else "series-other"


def wide(text: str, size: float = FONT) -> float:
    """About how wide a text is; rather too wide."""
    return size * sum(map(_em, text))


def _em(letter: str) -> float:
    if letter in _NARROW:
        return 0.36
    if letter in _BROAD:
        return 0.95
    if east_asian_width(letter) in "WF":
        return 1.05
    return 0.7 if letter.isupper() else 0.6


def shortened(text: str, room: float, size: float = FONT) -> str:
    """The text, or its two ends where it is too wide for the room.

    >>> shortened("organisation/model-with-a-long-name-v2", 120)
    'organisa…name-v2'
    """
    text = clean(text)
    if wide(text, size) <= room:
        return text
    kept = min(len(text), int(room / size / 0.36))
    while kept > 2 and wide(text[: kept - kept // 2] + "…" + text[-(kept // 2) :], size) > room:
        kept -= 1
    return text[: kept - kept // 2] + "…" + (text[-(kept // 2) :] if kept > 1 else "")
