"""Expected durations, each with the range in which it is likely to lie, and durations in words."""

from __future__ import annotations

from dataclasses import dataclass

LIKELY = 1.7
"""The factor of an expectation by other work: the ends of its range are 2.9 times apart."""

UNITS = ((2 * 3600.0, 3600.0, "h"), (120.0, 60.0, "min"), (0.0, 1.0, "s"))
"""From which seconds on a unit is used, its seconds, and its name."""


@dataclass(frozen=True, kw_only=True)
class TimeRange:
    """A time in seconds, with the bounds between which it is likely to lie.

    Attributes:
        seconds: The expected time.
        low: The lower bound: 80 % of times lie between the two.
        high: The upper bound.
    """

    seconds: float = 0.0
    low: float = 0.0
    high: float = 0.0

    @staticmethod
    def from_seconds(seconds: float, factor: float = LIKELY) -> TimeRange:
        """A time that may be shorter or longer by a factor."""
        return TimeRange(seconds=seconds, low=seconds / factor, high=seconds * factor)

    def __add__(self, other: TimeRange) -> TimeRange:
        """The sum; the bounds add up, since what makes one part slow makes the others slow as well."""
        return TimeRange(
            seconds=self.seconds + other.seconds, low=self.low + other.low, high=self.high + other.high
        )

    def split_time(self, by: float) -> TimeRange:
        """The time if the work is shared by this number of workers."""
        return TimeRange(seconds=self.seconds / by, low=self.low / by, high=self.high / by)

    @property
    def text(self) -> str:
        """The range in words, with two digits.

        >>> TimeRange(low=190, seconds=300, high=421).text, TimeRange(low=34, seconds=60, high=130).text
        ('3.2 to 7 min', '34 s to 2.2 min')
        >>> TimeRange(low=0.2, seconds=0.4, high=0.9).text
        'under 1 s'
        """
        if self.high < 1:
            return "under 1 s"
        (low, unit), (high, last) = _format_unit(self.low), _format_unit(self.high)
        if (low, unit) == (high, last):
            return f"{high} {last}"
        return f"{low} to {high} {last}" if unit == last else f"{low} {unit} to {high} {last}"


def _format_unit(seconds: float) -> tuple[str, str]:
    """A duration with two digits in the largest unit that fits, and the unit."""
    size, name = next((size, name) for least, size, name in UNITS if seconds >= least)
    digits = float(f"{seconds / size:.2g}")
    return (f"{digits:,.0f}" if digits >= 10 or digits == round(digits) else f"{digits:g}"), name


def format_duration(seconds: float) -> str:
    """A duration in words.

    >>> format_duration(7.2), format_duration(192), format_duration(7300)
    ('7 s', '3 min 12 s', '2 h 1 min')
    """
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"
