"""Compression: which encoding a client takes, and a body in it."""

from __future__ import annotations

import gzip
import re

import brotli

PREFERRED = ("br", "gzip", "identity")
"""What there is, the best first."""

SMALLEST = 256
"""Bytes below which compressing a body is not worth its header."""

BROTLI, GZIP = 5, 6

_QUALITY = re.compile(r"0(\.\d{0,3})?|1(\.0{0,3})?")


def compressed(body: bytes, accept_encoding: str) -> tuple[bytes, str]:
    """A body as a client takes it, and its Content-Encoding; `identity` needs no such header.

    The same body always gives the same bytes, so an ETag of them holds. What depends on it must
    say `Vary: Accept-Encoding`.
    """
    chosen = choose(accept_encoding) if len(body) >= SMALLEST else "identity"
    if chosen == "br":
        return brotli.compress(body, quality=BROTLI), chosen
    if chosen == "gzip":
        return gzip.compress(body, compresslevel=GZIP, mtime=0), chosen
    return body, "identity"


def choose(accept_encoding: str) -> str:
    """The encoding with the highest quality, of equal ones the best (RFC 9110, section 12.5.3).

    Encodings that are not named have the quality of `*`. `identity` is what remains: it is chosen
    where it is named with a higher quality than all others, or where none of them is taken, even
    if it is refused then; an answer that a client may not read is better than none.

    >>> choose("gzip;q=1.0, identity; q=0.5, *;q=0"), choose("*"), choose("")
    ('gzip', 'br', 'identity')
    """
    asked = _qualities(accept_encoding)
    other = asked.get("*", 0.0)
    offered = {name: asked.get(name, other) for name in PREFERRED[:-1]}
    best = max(offered, key=lambda name: offered[name])  # the first of equal ones
    return best if offered[best] > 0 and offered[best] >= asked.get("identity", 0.0) else "identity"


def _qualities(header: str) -> dict[str, float]:
    found: dict[str, float] = {}
    for member in header.split(","):
        name, *parameters = (part.strip().lower() for part in member.split(";"))
        if name:
            found["gzip" if name == "x-gzip" else name] = _quality(parameters)
    return found


def _quality(parameters: list[str]) -> float:
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name.strip() == "q":
            return float(value) if _QUALITY.fullmatch(value.strip()) else 0.0
    return 1.0
