"""Charts of rows: an axis shared by all, and for each row a small drawing whose places are shares of its
width, so that text keeps its size on every screen.
"""

import math
from collections.abc import Sequence

from markupsafe import Markup

from tileyard.base.model import Record

LOG_FROM = 5
"""Factor between the ends of an axis from which on it is logarithmic."""
ROOM = 4.0
"""Percent of the width that stay free at both sides."""
FEWEST_TICKS, MOST_TICKS = 3, 6


NOTHING = Markup("")


class Tick(Record):
    """A labelled place of an axis, in percent of its width."""

    label: str
    place: float


class Axis(Record):
    """Values from ``low`` to ``high``, in units of ``size``; ``unit`` names one."""

    low: float
    high: float
    unit: str = ""
    size: float = 1.0
    is_log: bool = False

    def place(self, value: float) -> float:
        """The place of a value in percent of the width; values beyond the ends are at the ends."""
        held = min(max(value, self.low), self.high)
        if self.is_log:
            share = math.log(held / self.low) / math.log(self.high / self.low)
        else:
            share = (held - self.low) / (self.high - self.low)
        return round(ROOM + (100 - 2 * ROOM) * share, 2)

    @property
    def ticks(self) -> list[Tick]:
        """Round values."""
        low, high = self.low / self.size, self.high / self.size
        found = _list_steps(low, high)
        if self.is_log:
            found = next(
                (one for one in _list_powers(low, high) if len(one) >= FEWEST_TICKS), found
            )
        return [Tick(label=f"{one:.6g}", place=self.place(one * self.size)) for one in found]


class Line(Record):
    """A row of a chart: texts, a drawing, and texts after it. ``kind`` chooses its look."""

    before: tuple[str, ...]
    drawing: Markup = NOTHING
    after: tuple[str, ...] = ()
    kind: str = ""


class Group(Record):
    """Rows below a title, if it has one."""

    rows: tuple[Line, ...]
    title: str = ""


class Chart(Record):
    """Rows with a drawing each, below an ``axis`` whose ``label`` has the unit; without a label they are
    texts alone. ``see`` says in a sentence what to see.
    """

    title: str
    see: str
    label: str
    groups: tuple[Group, ...]
    axis: Markup = NOTHING
    columns: tuple[str, ...] = ()
    after: tuple[str, ...] = ()


def make_axis(values: Sequence[float], unit: str = "", size: float = 1.0) -> Axis:
    """An axis that has room for all values, logarithmic if they differ much."""
    low, high = min(values, default=0.0), max(values, default=1.0)
    if high <= low:
        low, high = (low - abs(low) / 10, high + abs(high) / 10) if high else (0.0, 1.0)
    return Axis(low=low, high=high, unit=unit, size=size, is_log=high > LOG_FROM * low > 0)


def _list_steps(low: float, high: float) -> list[float]:
    """Multiples of 1, 2 or 5 times a power of ten."""
    power = 10 ** math.floor(math.log10((high - low) / FEWEST_TICKS))
    step = next(
        (one * power for one in (1, 2, 5) if (high - low) / (one * power) <= MOST_TICKS), 10 * power
    )
    first = math.ceil(low / step - 1e-9)
    return [number * step for number in range(first, math.floor(high / step + 1e-9) + 1)]


def _list_powers(low: float, high: float) -> list[list[float]]:
    """Powers of ten alone, or with twice and five times each: the fewest first."""
    powers = [10.0**one for one in range(math.floor(math.log10(low)), math.ceil(math.log10(high)))]
    return [
        [one * power for power in powers for one in factors if low <= one * power <= high]
        for factors in ((1,), (1, 2, 5))
    ]


def draw_axis(axis: Axis) -> Markup:
    """The labels of an axis, for the head of the column of drawings."""
    marks = NOTHING.join(
        Markup('<text x="{}%" y="13" text-anchor="middle">{}</text>').format(tick.place, tick.label)
        for tick in axis.ticks
    )
    return Markup('<svg class="axis" aria-hidden="true">{}</svg>').format(marks)


def draw_band(axis: Axis, low: float, high: float) -> Markup:
    """A band behind a drawing, with a line in its middle."""
    low_at, high_at = axis.place(low), axis.place(high)
    return Markup(
        '<rect class="band" x="{0}%" width="{1}%" y="0" height="100%"/>'
        '<line class="zero" x1="{2}%" x2="{2}%" y1="0" y2="100%"/>'
    ).format(low_at, round(high_at - low_at, 2), axis.place((low + high) / 2))


def draw_interval(
    axis: Axis, bounds: tuple[float, float], middle: float, kind: str = "", band: Markup = NOTHING
) -> Markup:
    """A value with its interval, before a ``band`` if there is one; ``kind`` chooses the colour: best, worse,
    good, bad, or the usual one. An end beyond the axis has no cap: the interval goes on there.
    """
    low_at, at, high_at = map(axis.place, (bounds[0], middle, bounds[1]))
    caps = NOTHING.join(
        Markup('<line class="end" x1="{0}%" x2="{0}%" y1="25%" y2="75%"/>').format(axis.place(one))
        for one in bounds
        if axis.low <= one <= axis.high
    )
    return _draw(
        axis,
        kind,
        band
        + Markup('<line class="span" x1="{0}%" x2="{1}%" y1="50%" y2="50%"/>').format(
            low_at, high_at
        )
        + caps
        + Markup('<circle class="mark" cx="{}%" cy="50%" r="4.5"/>').format(at),
    )


def draw_range(axis: Axis, low: float, middle: float, kind: str = "") -> Markup:
    """A best value as a dot, and the median as a ring."""
    low_at, at = axis.place(low), axis.place(middle)
    return _draw(
        axis,
        kind,
        Markup('<line class="span" x1="{}%" x2="{}%" y1="50%" y2="50%"/>').format(low_at, at)
        + Markup('<circle class="ring" cx="{}%" cy="50%" r="4"/>').format(at)
        + Markup('<circle class="mark" cx="{}%" cy="50%" r="4.5"/>').format(low_at),
    )


def draw_bar(share: float, kind: str = "", axis: Axis | None = None) -> Markup:
    """A bar of this share of the width, or of an axis that begins with 0."""
    on = axis or Axis(low=0, high=1)
    end = on.place(share * on.high) - ROOM
    bar = Markup('<rect class="bar" x="{}%" y="20%" width="{}%" height="60%"/>').format(ROOM, end)
    if axis is None:
        return Markup('<svg class="plot {}" aria-hidden="true">{}</svg>').format(kind, bar)
    return _draw(axis, kind, bar)


def _draw(axis: Axis, kind: str, marks: Markup) -> Markup:
    grid = NOTHING.join(
        Markup('<line class="grid" x1="{0}%" x2="{0}%" y1="0" y2="100%"/>').format(tick.place)
        for tick in axis.ticks
    )
    return Markup('<svg class="plot {}" aria-hidden="true">{}{}</svg>').format(kind, grid, marks)
