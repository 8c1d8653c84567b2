"""The steps of a block before a mistake, in 80 columns: a lane per role and per unit that works for it."""

from collections import Counter
from collections.abc import Iterator, Sequence

from tileyard.sync.findings import Finding, TimelineStep

WIDTH = 80
MOST_LANES = 5
BEFORE, HEAD, TAIL = 4, 10, 12
"""Steps shown before the first mark, and between two far marks: after the first and before the second."""
_MARKS = ("  ", "1>", "2>")
_UNITS = ("", "cp_async", "tma", "tma_store", "wgmma")
_BETWEEN = " | "


def draw_timeline(finding: Finding) -> Iterator[str]:
    """Lines of plain characters, each with at most 80; none if a finding has no timeline."""
    steps = _cut(finding.timeline)
    if not steps:
        return
    lanes = _choose_lanes([step for step in steps if step is not None])
    width = (WIDTH - 3 - len(_BETWEEN) * (len(lanes) - 1)) // len(lanes)
    yield _row("", [_name(*lane) for lane in lanes], width)
    for step in steps:
        if step is None:
            yield "   ..."
            continue
        lane = (step.role, step.unit)
        if lane in lanes:
            text = f"{step.line or '?'} {step.text}"
            yield _row(_MARKS[step.mark], [text if one == lane else "" for one in lanes], width)
    if finding.other is not None:
        yield "   1> is the earlier of the two accesses, 2> the later one; numbers are lines"
    else:
        yield "   2> is where it was found; numbers are lines"


def _cut(steps: Sequence[TimelineStep]) -> list[TimelineStep | None]:
    """The steps around the marks; None replaces those that are left out."""
    marked = [i for i, step in enumerate(steps) if step.mark]
    start = max(0, min(marked, default=len(steps) - TAIL) - BEFORE)
    shown = list(steps[start:])
    if len(shown) <= HEAD + TAIL:
        return [*shown]
    return [*shown[:HEAD], None, *shown[-TAIL:]]


def _choose_lanes(steps: Sequence[TimelineStep]) -> list[tuple[int, str]]:
    """The lanes of the marked steps, and the busiest others."""
    counted = Counter((step.role, str(step.unit)) for step in steps)
    marked = {(step.role, step.unit) for step in steps if step.mark}
    ranked = sorted(counted, key=lambda lane: (lane not in marked, -counted[lane]))
    return sorted(ranked[:MOST_LANES], key=lambda lane: (lane[0], _UNITS.index(lane[1])))


def _name(role: int, unit: str) -> str:
    who = f"role {role}" if role else "block"
    return f"{who}: {unit}" if unit else who


def _row(mark: str, cells: Sequence[str], width: int) -> str:
    return f"{mark:<3}{_BETWEEN.join(_fit(cell, width) for cell in cells)}".rstrip()


def _fit(cell: str, width: int) -> str:
    """A cell shortened to its width; it keeps its end, the stage of a tile."""
    return f"{cell if len(cell) <= width else f'{cell[: width - 5]}~{cell[-4:]}':<{width}}"
