"""Charts of histories: a dot with its interval per run, levels between changes, and small ones for tables."""

import itertools
from collections.abc import Sequence

from markupsafe import Markup, escape

from tileyard.base.model import Record
from tileyard.pages.charts import Axis, make_axis
from tileyard.show.words import make_visible

LABELS = 5
"""Most labels below the points."""
LOOSE = 3.0
"""An interval may be this many times as long as all points are apart; beyond it is cut."""


class Dot(Record):
    """A run: its value with an interval, its short name, and all about it in a line. The value of one that
    ``is_borrowed`` is that of another run.
    """

    value: float
    low: float
    high: float
    name: str
    about: str
    is_borrowed: bool = False


class Step(Record):
    """A change before the dot with this number, from 0; its name, and whether it is for the worse."""

    at: int
    name: str
    is_worse: bool


def draw_history(
    dots: Sequence[Dot], steps: Sequence[Step], scale: tuple[str, float], across: str, label: str
) -> Markup:
    """The dots from left to right, with the mean of each level between steps. ``scale`` is the unit of values
    and its size, ``across`` the name of the other axis; ``label`` describes the chart to screen readers.
    """
    unit, size = scale
    values = [one.value for one in dots]
    spread = max(max(values) - min(values), 0.02 * max(values)) * LOOSE
    ends = [max(min(one.low for one in dots), min(values) - spread), *values]
    ends.append(min(max(one.high for one in dots), max(values) + spread))
    axis = make_axis([*ends, min(values) * 0.99, max(values) * 1.01], unit, size)
    parts = [
        Markup(
            '<line class="grid" x1="0" x2="100%" y1="{0}%" y2="{0}%"/>'
            '<text class="tick" x="0" y="{0}%" dy="-3">{1} {2}</text>'
        ).format(_flip(tick.place), tick.label, unit)
        for tick in axis.ticks
    ]
    for step in steps:
        at = _place(step.at - 0.5, len(dots))
        anchor = "end" if at > 60 else "start"
        parts.append(
            Markup(
                '<g class="step {kind}"><line x1="{at}%" x2="{at}%" y1="0" y2="100%"/>'
                '<text x="{at}%" y="14" dx="{dx}" text-anchor="{anchor}">{name}</text></g>'
            ).format(
                kind="worse" if step.is_worse else "better",
                at=at,
                dx=-5 if anchor == "end" else 5,
                anchor=anchor,
                name=step.name,
            )
        )
    bounds = [0, *(one.at for one in steps), len(dots)]
    for begin, end in itertools.pairwise(bounds):
        own = values[begin:end]
        if own:
            parts.append(
                Markup('<line class="level" x1="{}%" x2="{}%" y1="{y}%" y2="{y}%"/>').format(
                    _place(begin - 0.4, len(dots)),
                    _place(end - 0.6, len(dots)),
                    y=_flip(axis.place(sum(own) / len(own))),
                )
            )
    parts += [_draw_dot(one, _place(number, len(dots)), axis) for number, one in enumerate(dots)]
    every = -(-len(dots) // LABELS)
    names = [
        Markup('<text class="tick" x="{}%" y="12" text-anchor="middle">{}</text>').format(
            _place(number, len(dots)), make_visible(one.name)
        )
        for number, one in enumerate(dots)
        if number % every == every // 2
    ]
    return Markup(
        '<svg class="history" role="img" aria-label="{}">{}</svg>'
        '<svg class="names" aria-hidden="true">{}'
        '<text class="tick" x="53%" y="30" text-anchor="middle">{}</text></svg>'
    ).format(make_visible(label), Markup("").join(parts), Markup("").join(names), across)


def _draw_dot(dot: Dot, at: float, axis: Axis) -> Markup:
    # Numbers need no escaping, which would take most of the time of a large site.
    high, low, middle = (_flip(axis.place(one)) for one in (dot.high, dot.low, dot.value))
    kind = " borrowed" if dot.is_borrowed else ""
    return Markup(
        f'<g class="dot{kind}"><title>{escape(make_visible(dot.about))}</title>'
        f'<line x1="{at}%" x2="{at}%" y1="{high}%" y2="{low}%"/>'
        f'<circle cx="{at}%" cy="{middle}%" r="3.5"/></g>'
    )


def draw_sparkline(values: Sequence[float], steps: Sequence[Step]) -> Markup:
    """The values as a line, without an axis, and its latest change."""
    low, high = min(values), max(values)
    room = max(high - low, 0.04 * high)
    middle = (low + high) / 2

    def place(number: int) -> str:
        x = 2 + 96 * number / max(len(values) - 1, 1)
        y = 12 - 20 * (values[number] - middle) / room
        return f"{x:.3g},{y:.3g}"

    line = Markup('<polyline points="{}"/>').format(" ".join(map(place, range(len(values)))))
    marks = Markup("").join(
        Markup('<line class="{}" x1="{at}" x2="{at}" y1="0" y2="24"/>').format(
            "worse" if one.is_worse else "better",
            at=f"{2 + 96 * (one.at - 0.5) / max(len(values) - 1, 1):.3g}",
        )
        for one in steps[-1:]
    )
    return Markup(
        '<svg class="spark" viewBox="0 0 100 24" preserveAspectRatio="none" aria-hidden="true">{}{}</svg>'
    ).format(marks, line)


def _place(number: float, count: int) -> float:
    """The place of a dot, in percent of the width; labels of the axis are at the left of all."""
    return round(10 + 88 * (number + 0.5) / count, 2)


def _flip(place: float) -> float:
    return round(100 - place, 2)
