"""Checks one Program on one set of inputs: runs blocks of its grid in the asynchronous meaning."""

import math
from collections.abc import Sequence

from tileyard.check.findings import Finding, Words
from tileyard.errors import KernelFault
from tileyard.ir.hazards import Hazard, LateRun, Schedule, schedules
from tileyard.ir.nodes import If, Issue, Program, Roles, Stmt
from tileyard.ir.specs import bind_dims, evaluate_size
from tileyard.ir.tiles import Array
from tileyard.ir.walk import walk
from tileyard.model import Record, SourceLine, Value


class Checked(Record):
    """What was found in ``blocks`` of a ``grid``.

    ``taken`` are the branches that ran: the number of the statement, and whether its condition held.
    """

    findings: tuple[Finding, ...]
    blocks: int
    grid: int
    taken: frozenset[tuple[int, bool]] = frozenset()


class _Run(LateRun):
    """Notes which branches are taken."""

    taken: set[tuple[int, bool]]

    def grid(self) -> None:
        """Run all blocks."""
        self.taken = set()
        super().grid()

    def _branch(self, stmt: If) -> tuple[Stmt, ...]:
        branch = super()._branch(stmt)
        self.taken.add((self._numbers[id(stmt)], branch is stmt.then))
        return branch


def check_program(
    program: Program,
    lines: dict[int, SourceLine],
    arrays: Sequence[Array],
    scalars: Sequence[Value] = (),
) -> Checked:
    """Run the blocks at the corners of the grid and their neighbours, with roles in both orders.

    Raises KernelFault where the kernel fails by itself.
    """
    found: dict[tuple[str, int, int], Hazard] = {}
    count = 0
    taken: set[tuple[int, bool]] = set()
    for schedule in schedules_of(program):
        run = _Run(program, arrays, scalars, chosen=corners, schedule=schedule)
        try:
            run.grid()
        except KernelFault:
            if not run.hazards:  # else it is the poison that was used
                raise
        count = run.count
        taken |= run.taken
        found = {**{(*key,): hazard for key, hazard in run.hazards.items()}, **found}
    numbers = bind_dims(program, [array.shape for array in arrays], scalars)
    grid = math.prod(evaluate_size(axis.extent, numbers) for axis in program.grid)
    words = Words(lines)
    return Checked(
        findings=tuple(map(words.describe, found.values())),
        blocks=count,
        grid=grid,
        taken=frozenset(taken),
    )


def schedules_of(program: Program) -> tuple[Schedule, ...]:
    """The orders that can make a difference: in which roles go on, and when loads end."""
    roles = [len(stmt.bodies) for stmt in walk(program.body) if isinstance(stmt, Roles)]
    units = {stmt.unit for stmt in walk(program.body) if isinstance(stmt, Issue)}
    found = schedules(max(roles, default=1))
    return found if roles or "tma" in units else found[:1]


def corners(extent: int) -> tuple[int, ...]:
    """The blocks that run of a dimension of the grid: the first two, and the last one."""
    return tuple(one for one in sorted({0, 1, extent - 1}) if 0 <= one < extent)
