"""Checks one Program on one set of inputs by running blocks of its grid in the asynchronous meaning."""

import math
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from dataclasses import dataclass, field

from tileyard.base.clock import Clock
from tileyard.base.errors import KernelFault
from tileyard.base.model import Record, SourceLine, Value
from tileyard.ir.hazard_records import Hazard
from tileyard.ir.hazards import Schedule, schedules
from tileyard.ir.interpret import Blocked, Plain
from tileyard.ir.nodes import Const, If, Issue, Op, Program, Roles, Stmt, Var
from tileyard.ir.specs import bind_dims, evaluate_size
from tileyard.ir.tiles import Array
from tileyard.ir.trace import Step
from tileyard.ir.walk import expressions, walk, walk_expr
from tileyard.sync.control import find_control
from tileyard.sync.findings import Finding
from tileyard.sync.recurrence import Head, HeadRun
from tileyard.sync.words import Words

MOST_NAMED = 6
"""Blocks, in each dimension of the grid, that run because the kernel names them."""


class Checked(Record):
    """The findings in ``blocks`` of a ``grid``; not ``is_whole`` if the time limit ended the run
    early. ``taken`` are the branches that ran: the statement's number, and its condition. ``heads``
    are the loops' in each block, in each order of roles.
    """

    findings: tuple[Finding, ...]
    blocks: int
    grid: int
    is_whole: bool = True
    taken: frozenset[tuple[int, bool]] = frozenset()
    heads: tuple[tuple[Head, ...], ...] = ()


@dataclass(frozen=True, kw_only=True)
class Effort:
    """A check's time limit by its clock, whether findings have timelines, and whether it seeks
    repeating loops. With ``is_compared`` every element of the outputs has to be written.
    """

    limit_s: float = math.inf
    is_traced: bool = False
    has_heads: bool = False
    is_compared: bool = False
    clock: Clock = field(default_factory=Clock)


def check_program(
    program: Program,
    lines: dict[int, SourceLine],
    arrays: Sequence[Array],
    scalars: Sequence[Value] = (),
    effort: Effort = Effort(),
) -> Checked:
    """Run the grid's corners, their neighbours and the blocks that the kernel names, with roles in
    all orders that matter; all but the first in one order if nothing depends on a block's place.
    Raises KernelFault if the kernel itself fails.
    """
    found: dict[tuple[str, int, int], tuple[Hazard, tuple[Step, ...]]] = {}
    numbers = bind_dims(program, [array.shape for array in arrays], scalars)
    grid = math.prod(evaluate_size(axis.extent, numbers) for axis in program.grid)
    count = 0
    now, is_whole = effort.clock.monotonic_s, True
    ends_at = now() + effort.limit_s
    taken: set[tuple[int, bool]] = set()
    heads: list[tuple[Head, ...]] = []
    control, named = find_control(program), find_named(program)
    are_alike = control is not None and control.are_blocks_alike
    for number, schedule in enumerate(schedules_of(program)):
        run = _LimitedRun(program, arrays, scalars, schedule=schedule, is_traced=effort.is_traced)
        run.control = control if effort.has_heads else None
        run.now, run.ends_at, run.named = now, ends_at, named
        run.is_single = are_alike and number > 0
        try:
            run.grid()
            if effort.is_compared and run.count == grid and not run.hazards:
                run.note_unwritten()
        except _OverLimit:
            is_whole = False
        except KernelFault:
            if not run.hazards:  # otherwise the failure comes from poison
                raise
        count = max(count, run.count)
        taken |= run.taken
        heads += map(tuple, run.heads)
        for key, hazard in run.hazards.items():
            found.setdefault(key, (hazard, run.traces.get(key, ())))
    words = Words(lines)
    findings = tuple(words.describe(hazard, steps) for hazard, steps in found.values())
    return Checked(
        findings=findings,
        blocks=count,
        grid=grid,
        is_whole=is_whole,
        taken=frozenset(taken),
        heads=tuple(heads),
    )


class _OverLimit(Exception):
    """The time limit has passed."""


class _LimitedRun(HeadRun):
    """A run of blocks, only the first if it ``is_single``, with a time limit; ``taken`` branches ran."""

    now: Callable[[], float]
    ends_at: float
    is_single: bool
    named: Mapping[str, set[int]]

    def _choose(self, axis: str, extent: int) -> Sequence[int]:
        return choose_blocks(extent, self.named[axis])[: 1 if self.is_single else None]

    def grid(self) -> None:
        self.taken: set[tuple[int, bool]] = set()
        super().grid()

    def _branch(self, stmt: If) -> tuple[Stmt, ...]:
        branch = super()._branch(stmt)
        self.taken.add((self._numbers[id(stmt)], branch is stmt.then))
        return branch

    def _body(self, body: tuple[Stmt, ...]) -> Generator[Blocked, None, bool]:
        self._tick()  # a loop may have nothing but conditions and parallel nests
        return (yield from super()._body(body))

    def _run(self, stmt: Plain) -> None:
        self._tick()
        super()._run(stmt)

    def _tick(self) -> None:
        if self.now() > self.ends_at:
            raise _OverLimit


def schedules_of(program: Program) -> tuple[Schedule, ...]:
    """The schedules that can make a difference: the order in which roles advance, and when loads end."""
    roles = [len(stmt.bodies) for stmt in walk(program.body) if isinstance(stmt, Roles)]
    units = {stmt.unit for stmt in walk(program.body) if isinstance(stmt, Issue)}
    found = schedules(max(roles, default=1))
    return found if roles or "tma" in units else found[:1]


def choose_blocks(extent: int, named: Collection[int] = ()) -> tuple[int, ...]:
    """The blocks along a grid dimension that run: the first two, the last, and the first ``named`` ones."""
    inside = [one for one in sorted(named) if 1 < one < extent - 1]
    some = {0, 1, extent - 1, *inside[:MOST_NAMED]}
    return tuple(one for one in sorted(some) if 0 <= one < extent)


def find_named(program: Program) -> dict[str, set[int]]:
    """Per grid dimension, by variable, the blocks that conditions compare a place with, and neighbours."""
    found: dict[str, set[int]] = {axis.var.name: set() for axis in program.grid}
    exprs = (expr for stmt in walk(program.body) for expr in expressions(stmt))
    for part in (part for expr in exprs for part in walk_expr(expr)):
        match part:
            case Op(
                args=(Var(place), Const(number)) | (Const(number), Var(place)), dtype="bool"
            ) if place in found:
                found[place] |= {int(number) + step for step in (-1, 0, 1)}
            case _:
                pass
    return found
