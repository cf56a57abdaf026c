"""Numbers and dates as pages print them."""

from __future__ import annotations


def score_text(value: float | None) -> str:
    """A share of 1, times 100; a dash for none.

    >>> score_text(0.64508), score_text(None)
    ('64.51', '–')
    """
    return "–" if value is None or value != value else f"{100 * value:.2f}"


def parameters_text(number: int | None) -> str:
    """A number of parameters.

    >>> parameters_text(22_713_216), parameters_text(7_110_000_000), parameters_text(None)
    ('22.7 M', '7.11 B', '?')
    """
    if number is None:
        return "?"
    return f"{number / 1e9:.3g} B" if number >= 1e9 else f"{number / 1e6:.3g} M"


def delta_text(value: float | None) -> str:
    """A difference of shares, times 100, with its sign.

    >>> delta_text(0.0123), delta_text(-0.5), delta_text(-0.00001)
    ('+1.23', '−50.00', '0.00')
    """
    if value is None or value != value:
        return "–"
    hundredths = round(100 * value, 2)
    return "0.00" if hundredths == 0 else f"{hundredths:+.2f}".replace("-", "−")
