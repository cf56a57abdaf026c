"""Numbers and dates as pages print them."""

from __future__ import annotations


def parameters_text(number: int | None) -> str:
    """A number of parameters.

    >>> parameters_text(22_713_216), parameters_text(7_110_000_000), parameters_text(None)
    ('22.7 M', '7.11 B', '?')
    """
    if number is None:
        return "?"
    return f"{number / 1e9:.3g} B" if number >= 1e9 else f"{number / 1e6:.3g} M"
