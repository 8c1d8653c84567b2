"""Checks one Program on one set of inputs: runs blocks of its grid in the asynchronous meaning."""

import math
from collections.abc import Sequence

from tileyard.check.findings import Finding, Words
from tileyard.errors import KernelFault
from tileyard.ir.hazards import Hazard, LateRun
from tileyard.ir.nodes import Program, Roles
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


def check_program(
    program: Program,
    lines: dict[int, SourceLine],
    arrays: Sequence[Array],
    scalars: Sequence[Value] = (),
) -> Checked:
    """Run the blocks at the corners of the grid and their neighbours, with roles in both orders.

    Raises KernelFault where the kernel fails by itself.
    """
    has_roles = any(isinstance(stmt, Roles) for stmt in walk(program.body))
    found: dict[tuple[str, int, int], Hazard] = {}
    count = 0
    taken: set[tuple[int, bool]] = set()
    for backwards in (False, True)[: 1 + has_roles]:
        run = LateRun(program, arrays, scalars, chosen=_corners, backwards=backwards)
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


def _corners(extent: int) -> tuple[int, ...]:
    return tuple(one for one in sorted({0, 1, extent - 1}) if 0 <= one < extent)
