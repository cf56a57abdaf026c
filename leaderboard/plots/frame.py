"""What surrounds the data: the picture, its axes, legend, and sentences below."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from leaderboard.plots.labels import Box
from leaderboard.plots.markers import marker
from leaderboard.plots.scales import Scale, laid_out
from leaderboard.plots.shapes import Axis
from leaderboard.plots.svg import FONT, colour, element, group, joined, linked, shortened, wide
from leaderboard.plots.ticks import tick_texts, written

WIDTH, SMALL = 720, 500
"""A picture's width, and up to which it is a small one."""

LINE = 17.0
"""From one line of text to the next."""


def picture(
    parts: Iterable[Markup], *, title: str, desc: str, width: float, height: float, links: bool = False
) -> Markup:
    """The whole picture.

    What holds links is a group to assistive technology: those do not look for links within an image.
    """
    return element(
        "svg",
        element("title", title),
        element("desc", desc),
        *parts,
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {round(width)} {round(height)}",
        width="100%",
        role="group" if links else "img",
        aria_label=title if links else None,
        class_="plot-svg" if width > SMALL else "plot-svg plot-small",
        font_size=FONT,
        fill="currentColor",
    )


def empty(*, title: str, desc: str, why: str, width: float) -> Markup:
    """A picture of nothing that says why."""
    lines = wrapped(why, width - 40)
    box = element("rect", x=1, y=1, width=width - 2, height=118, rx=6, class_="plot-empty", fill="none")
    texts = [
        element("text", line, x=width / 2, y=64 + LINE * i, text_anchor="middle", class_="plot-text")
        for i, line in enumerate(lines)
    ]
    said = f"{desc} {why}".strip()
    return picture([box, *texts], title=title, desc=said, width=width, height=120 + LINE * (len(lines) - 1))


def wrapped(text: str, room: float) -> list[str]:
    """The text in lines that fit."""
    lines = [""]
    for word in text.split():
        longer = f"{lines[-1]} {word}".strip()
        if wide(longer) <= room or not lines[-1]:
            lines[-1] = longer
        else:
            lines.append(word)
    return [shortened(line, room) for line in lines]


def sentences(notes: Sequence[str], *, top: float, width: float) -> tuple[Markup, float]:
    """Sentences below a picture, and how high they are."""
    lines = [line for note in notes for line in wrapped(note, width - 8)]
    texts = (
        element("text", line, x=4, y=top + LINE * (i + 1) - 4, class_="plot-note")
        for i, line in enumerate(lines)
    )
    return group("plot-notes", texts), LINE * len(lines)


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    """One line of a legend: the series at `place`, where its name leads, and the class of another colour."""

    label: str
    place: int
    href: str = ""
    colour: str = ""


def legend(entries: Sequence[Entry], *, width: float) -> tuple[Markup, float]:
    """Names of the series with their markers at the top of a picture, and how high they are."""
    x, y, parts = 4.0, 0.0, []
    for entry in entries:
        text = shortened(entry.label, width - 40)
        room = 18 + wide(text) + 14
        if x > 4 and x + room > width:
            x, y = 4.0, y + LINE + 2
        sign = element("g", marker(entry.place, x + 6, y + 9, 5), class_=entry.colour or colour(entry.place))
        name = sign + element("text", text, x=x + 17, y=y + 13.2, class_="plot-text")
        parts.append(
            linked(name, href=entry.href, name=entry.label) if entry.href or text != entry.label else name
        )
        x += room
    return group("plot-legend", parts), y + LINE + 8 if parts else 0.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Frame:
    """Two axes and the room between them."""

    x: Scale
    y: Scale
    x_label: str
    y_label: str

    @property
    def box(self) -> Box:
        """The room between the axes."""
        return (self.x.start, self.y.end, self.x.end, self.y.start)

    def drawn(self, *, lower: float | None = None) -> Markup:
        """Grid, ticks, and the axes' names; `lower` is where the ticks of x stand, if not at the axis."""
        below = self.y.start if lower is None else lower
        return joined([self._grid(), self._below(below), self._beside(), self._names(below)])

    def _grid(self) -> Markup:
        left, top, right, bottom = self.box
        across = [element("line", x1=left, x2=right, y1=self.y.at(v), y2=self.y.at(v)) for v in self.y.ticks]
        down = [element("line", x1=self.x.at(v), x2=self.x.at(v), y1=top, y2=bottom) for v in self.x.ticks]
        axis = element(
            "line", x1=left, x2=right, y1=bottom, y2=bottom, class_="plot-axis", stroke="currentColor"
        )
        return group("plot-grid", across + down, stroke="currentColor", stroke_opacity="0.15") + axis

    def _below(self, bottom: float) -> Markup:
        texts = tick_texts(self.x.ticks, self.x.kind)
        spots = ((self.x.at(v), text) for v, text in zip(self.x.ticks, texts, strict=True))
        return group(
            "plot-tick",
            (element("text", text, x=at, y=bottom + LINE) for at, text in spots),
            text_anchor="middle",
        )

    def _beside(self) -> Markup:
        texts = tick_texts(self.y.ticks, self.y.kind)
        spots = ((self.y.at(v), text) for v, text in zip(self.y.ticks, texts, strict=True))
        return group(
            "plot-tick",
            (element("text", text, x=self.x.start - 8, y=at + 4) for at, text in spots),
            text_anchor="end",
        )

    def _names(self, bottom: float) -> Markup:
        _, top, right, _ = self.box
        x_label, y_label = (shortened(text, right - 8) for text in (self.x_label, self.y_label))
        return element("text", y_label, x=4, y=top - 12, class_="plot-name") + element(
            "text", x_label, x=right, y=bottom + 2 * LINE + 3, class_="plot-name", text_anchor="end"
        )


def upright(
    marks: Sequence[tuple[float, str]],
    axis: Axis,
    frame: Frame,
    kind: str = "plot-mark",
    *,
    low: bool = False,
) -> Iterator[Markup]:
    """Upright lines with their words at the top, or `low`, at the axis.

    A word that another one would cover stands in the line's tooltip alone.
    """
    _, top, right, bottom = frame.box
    free = 0.0
    for x, label in sorted(marks):
        at = frame.x.at(x)
        line = element("line", x1=at, x2=at, y1=top, y2=bottom, class_=kind, stroke="currentColor")
        room = wide(label, 11)
        start = at + 4 if at + 4 + room <= right + 30 else at - 4 - room
        if start >= free:
            line += element("text", label, x=start, y=bottom - 6 if low else top + 10, class_="plot-note")
            free = start + room + 6
        yield linked(line, href="", name=f"{label}: {axis.label} {written(x, axis.kind, 4)}")


ABOVE, BELOW = 28.0, 2 * LINE + 10
"""What a frame needs above and below the room between its axes."""


def framed(
    axes: tuple[Axis, Axis],
    values: tuple[Sequence[float], Sequence[float]],
    *,
    width: float,
    top: float,
    bottom: float,
) -> Frame:
    """A frame that holds these values, from `top` to `bottom` between its axes."""
    x, y = axes
    upright = laid_out(values[1], y.kind, start=bottom, end=top, most=int((bottom - top) / 45))
    left = max(wide(text) for text in tick_texts(upright.ticks, y.kind)) + 12
    level = laid_out(values[0], x.kind, start=left, end=width - 30, most=int((width - left - 30) / 62))
    return Frame(x=level, y=upright, x_label=x.label, y_label=y.label)
