"""Runs a Program synchronously; records the last writers of what each execution of a statement reads."""

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec
import numpy as np

from tileyard.base.model import SourceLine, Value
from tileyard.ir.clocks import Marks, Places
from tileyard.ir.interpret import Blocked, Plain, Run, Waiting
from tileyard.ir.lanes import Lanes, is_spread
from tileyard.ir.nodes import (
    Atomic,
    Expr,
    For,
    If,
    Issue,
    Let,
    Load,
    Program,
    Roles,
    Stmt,
    Store,
    Synchronization,
    TileOperation,
    Var,
)
from tileyard.ir.rewrite import rewrite
from tileyard.ir.specs import tensors
from tileyard.ir.tiles import Array, Memory, Watched
from tileyard.ir.walk import bodies, walk, walk_expr, written_region
from tileyard.sync.blocks import Checked
from tileyard.sync.findings import Finding
from tileyard.sync.shapes import Instance, Measured

Lines = Mapping[int, SourceLine]


class Form(NamedTuple):
    """A Program with the lines of its numbered statements."""

    program: Program
    lines: dict[int, SourceLine]


class Source(NamedTuple):
    """A statement of the user's file: line, kind and what it writes, which all of its copies share."""

    line: SourceLine
    kind: str
    target: str


class Execution(NamedTuple):
    """Execution number ``number``, from 1, of a statement in one block."""

    block: tuple[int, ...]
    source: Source
    number: int


class Recorder(Run):
    """A synchronous run that records who reads what from whom; roles run until they must wait. ``chosen``
    gives the blocks per grid dimension. ``reads`` is filled per role, as several may execute copies of a
    statement; ``totals`` has each statement's most executions by one role in a block.
    """

    def __init__(
        self,
        form: Form,
        arrays: Sequence[Array],
        scalars: Sequence[Value] = (),
        chosen: Callable[[int], Sequence[int]] | None = None,
    ) -> None:
        lines = form.lines
        program = rewrite(form.program, lambda stmt: (stmt,)).program  # one object per statement
        self._chosen = chosen
        self._axes = {axis.var.name for axis in program.grid}
        roles = _roles_of(program.body)
        self._owners = {one.name: one.view_of or one.name for one in program.buffers}
        self._sources = {
            id(stmt): (self._source(stmt, lines[number]), roles[id(stmt)])
            for number, stmt in enumerate(walk(program.body))
            if number in lines
        }
        self._viewed = {one.view_of for one in program.buffers if one.view_of}
        self._shared = {one.name for one in program.buffers if one.scope == "global"}
        self._marks: dict[str, Marks] = {}
        self._events: list[Execution | None] = [None]
        self._counts: dict[tuple[Source, int], int] = {}
        self._nest: set[int] | None = None
        self._current = 0
        self.reads: dict[tuple[Execution, str, int], set[Execution | None]] = {}
        self.totals: dict[tuple[tuple[int, ...], Source], int] = {}
        super().__init__(program, arrays, scalars, lambda _: None)
        self._lanes = Lanes(self._raw, self._values)

    def _source(self, stmt: Stmt, line: SourceLine) -> Source:
        region = written_region(stmt)
        target = (
            stmt.buffer if isinstance(stmt, Store | Atomic) else region.buffer if region else ""
        )
        return Source(line, str(stmt.__struct_config__.tag), self._owners.get(target, target))

    def _make_memory(self, storage: dict[str, Array]) -> Memory:
        self._raw = super()._make_memory(storage)
        return Watched(self._raw, self._note)

    def _iterate(self, var: Var, start: Expr, extent: Expr) -> Iterator[None]:
        wanted = None
        if var.name in self._axes and self._chosen is not None:
            wanted = set(self._chosen(self._evaluator.number(extent)))
        for index, _ in enumerate(super()._iterate(var, start, extent)):
            if wanted is None or index in wanted:
                yield

    def _block(self) -> None:
        self._counts.clear()
        for name in [name for name in self._marks if name in self._owners]:
            if name not in self._shared:
                del self._marks[name]
        super()._block()

    # ---- executions -------------------------------------------------------------------------

    def _body(self, body: tuple[Stmt, ...]) -> Generator[Blocked, None, bool]:
        for stmt in body:
            if self._nest is not None or not is_spread(stmt):
                if (yield from super()._body((stmt,))):
                    return True
                continue
            self._nest = set()
            if not self._run_nest(stmt):
                yield from super()._body((stmt,))
            self._nest = None
        return False

    def _run_nest(self, nest: For) -> bool:
        """Run a parallel nest at once, if possible: each of its statements then counts as executed once."""
        report = self._lanes.run(nest)
        if report.refusal is not None:
            return False
        for access in report.accesses:
            self._begin(access.stmt)
            marks = self._marks_of(access.buffer, (self._raw.array(access.buffer).size,))
            if not access.is_write:
                self._read(access.stmt, access.buffer, marks[access.elements])
            elif _rewrites(access.stmt) and access.before is not None and access.values is not None:
                marks[access.elements[access.before != access.values]] = self._current
            else:
                marks[access.elements] = self._current
        return True

    def _synchronize(self, stmt: Synchronization) -> Waiting:
        for wait in super()._synchronize(stmt):
            if (
                not wait.is_over()
            ):  # otherwise the role runs on, as far ahead of the others as it can
                yield wait

    def _run(self, stmt: Plain) -> None:
        self._begin(stmt)
        super()._run(stmt)

    def _begin(self, stmt: Stmt) -> None:
        """Count an execution of a statement; in a parallel nest the first one counts for all."""
        found = self._sources.get(id(stmt))
        if found is None:
            self._current = 0
            return
        source, role = found
        if self._nest is None or id(stmt) not in self._nest:
            self._counts[source, role] = self._counts.get((source, role), 0) + 1
            if self._nest is not None:
                self._nest.add(id(stmt))
        block = tuple(int(self._values[axis.var.name]) for axis in self._program.grid)
        execution = Execution(block, source, self._counts[source, role])
        self.totals[block, source] = max(self.totals.get((block, source), 0), execution.number)
        if self._events[-1] != execution:
            self._events.append(execution)
        self._current = len(self._events) - 1

    # ---- accesses ---------------------------------------------------------------------------

    def _note(self, buffer: str, where: Places, content: Array | None) -> None:
        stmt, array = self.at, self._raw.array(buffer)
        if stmt is None:
            return
        marks = self._marks_of(buffer, array.shape)
        if content is None:
            self._read(stmt, buffer, marks[where])
        elif not _rewrites(stmt) or not np.array_equal(array[where], content):
            marks[where] = self._current

    def _read(self, stmt: Stmt, buffer: str, marks: Marks) -> None:
        event = self._events[self._current]
        if event is not None and self._counts_reads(stmt):
            role = self._sources[id(stmt)][1]
            owner = self._owners.get(buffer, buffer)
            found = self.reads.setdefault((event, owner, role), set())
            found.update(self._events[one] for one in np.unique(marks))

    def _counts_reads(self, stmt: Stmt) -> bool:
        """Whether the sources of a statement's reads matter: the order of atomic updates does not.
        Bindings count only in nests: elsewhere passes may bind a value several times.
        """
        if isinstance(stmt, Let):
            return self._nest is not None
        is_update = isinstance(stmt, Atomic) and stmt.var is None
        return isinstance(stmt, Store | Atomic | TileOperation) and not is_update

    def left(self) -> dict[str, tuple[Marks, list[Execution | None]]]:
        """For each written array, the marks of its elements, and the executions that the marks refer to."""
        names = [tensor.buffer.name for tensor in tensors(self._program) if tensor.role != "in"]
        return {name: (self._marks[name], self._events) for name in names if name in self._marks}

    def _marks_of(self, buffer: str, shape: tuple[int, ...]) -> Marks:
        """The marks of a buffer's storage in ``shape``, per byte if other buffers view it."""
        owner = self._owners.get(buffer, buffer)
        is_viewed = owner in self._viewed
        if owner not in self._marks:
            whole = self._raw.array(owner)
            self._marks[owner] = np.zeros(whole.nbytes if is_viewed else whole.size, np.int32)
        size = (self._raw.array(buffer).itemsize,) if is_viewed else ()
        return self._marks[owner].reshape((*shape, *size))


def _rewrites(stmt: Stmt) -> bool:
    """Whether ``stmt`` stores what it reads: passes omit it for elements that stay the same."""
    if not isinstance(stmt, Store):
        return False
    loads = (part for part in walk_expr(stmt.value) if isinstance(part, Load))
    return any((one.buffer, one.indices) == (stmt.buffer, stmt.indices) for one in loads)


def _roles_of(body: tuple[Stmt, ...], role: int = 0) -> dict[int, int]:
    """The number of the role of each statement, by the statement's identity."""
    found: dict[int, int] = {}
    for stmt in body:
        found[id(stmt)] = role
        for number, inner in enumerate(bodies(stmt)):
            found |= _roles_of(inner, number if isinstance(stmt, Roles) else role)
    return found


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
