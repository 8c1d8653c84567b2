"""One block of a Program in the asynchronous meaning: its roles and what is in flight, step by step."""

from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from typing import Literal

from tileyard.base.model import SourceLine, Value
from tileyard.ir.clocks import Moment
from tileyard.ir.nodes import Program, Unit
from tileyard.ir.tiles import Array
from tileyard.ir.trace import Step, TracedRun
from tileyard.sync.findings import BlockSpan

MOST_STEPS = 200_000
"""Steps of a block that are kept by default."""


class OneBlock(TracedRun):
    """A run of the block at this ``place``, by variable of the grid; ``steps`` has what it did, of
    which the last ``length`` are kept.
    """

    length = MOST_STEPS

    def __init__(
        self,
        program: Program,
        arrays: Sequence[Array],
        scalars: Sequence[Value],
        place: Mapping[str, int],
    ) -> None:
        self._place = place
        super().__init__(program, arrays, scalars, is_traced=True)
        self._steps = deque(maxlen=self.length)

    def _choose(self, axis: str, extent: int) -> Sequence[int]:
        return range(extent)[self._place[axis] :][:1]

    @property
    def steps(self) -> Sequence[Step]:
        """The steps so far, in order."""
        return tuple(self._steps)


def list_spans(steps: Sequence[Step], lines: Mapping[int, SourceLine]) -> list[BlockSpan]:
    """The spans of these steps, each of which takes one unit of time. An operation that does not land stays
    in flight until the end.
    """
    in_flight: defaultdict[tuple[int, Moment], deque[tuple[int, Step]]] = defaultdict(deque)
    over: dict[int, int] = {}  # by role, the end of its last step
    spans = []

    def add(step: Step, text: str, begin: int, end: int, unit: Unit | Literal[""] = "") -> None:
        where = lines.get(step.moment.number)
        line = 0 if where is None else where.line
        spans.append(
            BlockSpan(role=step.role, unit=unit, line=line, text=text, begin=begin, end=end)
        )

    for at, step in enumerate(steps):
        if step.unit:
            issued = in_flight[step.actor, step.moment]
            begin, name = (at, "") if not issued else (issued[0][0], issued.popleft()[1].text)
            add(step, name.removeprefix("issue ") or step.text, begin, at + 1, step.unit)
            continue
        is_wait = step.text.startswith(("wait ", "waits ", "sync "))
        add(step, step.text, over.get(step.role, at) if is_wait else at, at + 1)
        over[step.role] = at + 1
        if step.text.startswith("issue "):
            in_flight[step.actor, step.moment].append((at, step))
    for left in in_flight.values():
        for begin, step in left:
            text = step.text.removeprefix("issue ")
            unit = next((one for one in UNITS if text.startswith(one)), None)
            if unit is not None:
                add(step, f"{text}, which nothing waits for", begin, len(steps), unit)
    return sorted(spans, key=lambda one: (one.begin, one.end))


UNITS: tuple[Unit, ...] = ("cp_async", "tma_store", "tma", "wgmma")
