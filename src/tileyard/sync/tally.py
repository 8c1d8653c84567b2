"""Combines the results of several instances of one kernel: each mistake once, and branches never taken."""

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from tileyard.base.model import SourceLine
from tileyard.ir.lane_plans import is_spread
from tileyard.ir.nodes import Atomic, Expr, If, Issue, Let, Load, Program, Stmt, Var
from tileyard.ir.walk import bodies, walk, walk_expr
from tileyard.sync.blocks import Checked
from tileyard.sync.findings import Finding
from tileyard.sync.shapes import Instance, Measured

Lines = Mapping[int, SourceLine]


class Tally:
    """Adds up instances in the order in which they are checked. Statements are identified by their lines."""

    def __init__(self) -> None:
        self.blocks = 0
        self.grid = 0
        self.instances: list[dict[str, int]] = []
        self.periods: dict[int, int] = {}
        self._findings: dict[object, Finding] = {}
        self._branches: dict[SourceLine, dict[bool, bool]] = {}
        self._trips: dict[tuple[int, int], set[int]] = {}

    def add(self, program: Program, lines: Lines, checked: Checked, instance: Instance) -> None:
        """Add one instance."""
        self.instances.append(instance.shown)
        self.blocks += checked.blocks
        self.grid += checked.grid
        self.add_findings(checked.findings, instance.text)
        for number, stmt in _branches(program):
            if number in lines:
                known = self._branches.setdefault(lines[number], {})
                for holds, body in ((True, stmt.then), (False, stmt.orelse)):
                    known[holds] = (
                        known.get(holds, False) or not body or (number, holds) in checked.taken
                    )

    def add_findings(self, findings: tuple[Finding, ...], instance: str) -> None:
        """Add findings that were not seen before."""
        for one in findings:
            key = (one.kind, one.buffer, one.access, one.other)
            named = msgspec.structs.replace(one, instance=instance)
            self._findings.setdefault(key, named)

    def add_trips(self, measured: Measured) -> None:
        """Record how often the loops of an instance run."""
        for loop in measured.loops:
            if loop.trips is not None:
                self._trips.setdefault((loop.line, loop.copy), set()).add(max(loop.trips, 0))

    def add_period(self, iterations: int, some: Iterable[Measured]) -> None:
        """Record that the loops whose trip counts differ in ``some`` repeat at all further trip counts."""
        first, *others = some
        for line in frozenset[int]().union(*(one.lines_of(first) for one in others)):
            self.periods[line] = iterations

    @property
    def findings(self) -> tuple[Finding, ...]:
        """All mistakes, each with the first instance in which it was seen."""
        return tuple(self._findings.values())

    def untaken(self) -> Iterator[str]:
        """The branches that never ran, except those that depend on the content of memory."""
        for where, taken in self._branches.items():
            for holds, ran in taken.items():
                if not ran:
                    name = "branch" if holds else "else branch"
                    yield f"{where.file}:{where.line}: the {name} of line {where.line} was never taken"

    def trips(self) -> dict[int, tuple[int, ...]]:
        """The trip counts of each loop that waits or overlaps, by its line."""
        lines: dict[int, set[int]] = {}
        for (line, _), counts in self._trips.items():
            lines.setdefault(line, set()).update(counts)
        return {line: tuple(sorted(counts)) for line, counts in lines.items() if line}


def _branches(program: Program) -> Iterator[tuple[int, If]]:
    """The branches that a role takes as a whole, and that do not depend on the content of memory."""
    stmts = list(walk(program.body))
    numbers = {id(stmt): number for number, stmt in enumerate(stmts)}
    values = {stmt.var.name: stmt.value for stmt in stmts if isinstance(stmt, Let)}
    read = {stmt.var.name for stmt in stmts if isinstance(stmt, Atomic) and stmt.var is not None}

    def depends_on_data(expr: Expr) -> bool:
        names: set[str] = set()
        left = [expr]
        while left:
            parts = list(walk_expr(left.pop()))
            found = {part.name for part in parts if isinstance(part, Var)} - names
            if found & read or any(isinstance(part, Load) for part in parts):
                return True
            names |= found
            left += [values[name] for name in found if name in values]
        return False

    def inside(body: tuple[Stmt, ...]) -> Iterator[tuple[int, If]]:
        for stmt in body:
            if isinstance(stmt, Issue) or is_spread(stmt):
                continue
            if isinstance(stmt, If) and not depends_on_data(stmt.cond):
                yield numbers[id(stmt)], stmt
            for inner in bodies(stmt):
                yield from inside(inner)

    return inside(program.body)
