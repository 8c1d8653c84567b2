"""Runs one block in the asynchronous meaning, as ``tileyard check`` does, and records its history."""

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from tileyard.base.errors import KernelFault
from tileyard.ir.asynchronous import Barrier, Operation
from tileyard.ir.clocks import Places
from tileyard.ir.dtypes import find_dtype
from tileyard.ir.interpret import Plain, Waiting
from tileyard.ir.lane_conflicts import Access as LaneAccess
from tileyard.ir.nodes import (
    Expr,
    For,
    Let,
    Program,
    Stmt,
    Synchronization,
    TileOperation,
    Var,
)
from tileyard.ir.specs import evaluate_size, tensors
from tileyard.ir.tiles import Array
from tileyard.ir.trace import LENGTH
from tileyard.ir.walk import has_order, regions
from tileyard.look.history import Access, History, Step, box_access
from tileyard.look.records import BarrierState, GroupState, Kind, State
from tileyard.sync.block_spans import OneBlock

MOST_BYTES = 256 << 20
"""Bytes of contents that are kept of one block. Beyond these only steps that are shown have values."""
MOST_STEPS = 100_000
"""Number of steps of one block that are recorded."""

Loops = tuple[tuple[str, int], ...]


class _OverLimit(Exception):
    """The time limit has passed, or there are too many steps."""


class BlockRun(OneBlock):
    """Runs the ``block`` (``blockIdx.x`` first) until ``is_late`` is true; ``history`` has its steps,
    ``before`` is what earlier blocks left in outputs and workspaces, if that matters. ``fault`` says why
    the kernel failed itself, empty if it did not. Not ``is_whole`` if the limit ended it.
    """

    length = LENGTH  # each hazard has a copy of them
    most_bytes = MOST_BYTES

    def __init__(
        self,
        program: Program,
        arrays: Sequence[Array],
        block: tuple[int, ...],
        is_late: Callable[[], bool],
        before: Mapping[str, Array] | None = None,
    ) -> None:
        self._is_late = is_late
        self._step: Step | None = None
        self._of_lanes: list[LaneAccess] = []
        self._bounds: dict[str, tuple[int, int]] = {}
        self._issued: dict[int, list[tuple[Step, tuple[Access, ...]]]] = {}
        self._kept_bytes = 0
        self._has_order = has_order(program)
        self._state = State()
        self.fault, self.is_whole = "", True
        names = [tensor.buffer.name for tensor in tensors(program) if tensor.role != "out"]
        place = {axis.var.name: at for axis, at in zip(program.grid, block, strict=True)}
        super().__init__(program, arrays, (), place)
        owners = {
            one.name: (one.view_of or one.name, find_dtype(one.dtype).numpy.itemsize)
            for one in program.buffers
        }
        self._shapes: dict[str, tuple[int, ...]] = {
            name: array.shape for name, array in self._raw.parameters.items()
        }
        given = dict(before or {})
        for name, content in given.items():
            self._raw.array(name)[...] = content
        known = {**dict(zip(names, arrays, strict=True)), **given}
        self.history = History(self._shapes, known, owners)

    def _block(self) -> None:
        for one in self._program.buffers:
            if one.scope != "global":
                self._shapes[one.name] = tuple(evaluate_size(size, {}) for size in one.shape)
        super()._block()

    def outputs(self) -> dict[str, Array]:
        """The arrays that the Program writes, by name in calling order."""
        names = [tensor.buffer.name for tensor in tensors(self._program) if tensor.role != "in"]
        return {name: self._raw.array(name) for name in names}

    def number_at(self) -> int:
        """The statement that ran last, -1 if there is none."""
        return self._numbers.get(id(self.at), -1)

    def record(self) -> None:
        """Run the block."""
        try:
            self.grid()
        except KernelFault as fault:
            self.fault = fault.message
        except _OverLimit:
            self.is_whole = False

    # ---- steps ------------------------------------------------------------------------------

    def _begin(self, stmt: Stmt | Synchronization, kind: Kind, loops: Loops | None = None) -> Step:
        if self._is_late() or len(self.history.steps) > MOST_STEPS:
            raise _OverLimit
        number = self._numbers[id(stmt)]
        loops = self._moment().loops if loops is None else loops
        return Step(
            index=-1,
            number=number,
            stmt=stmt,
            kind=kind,
            loops=loops,
            role=self._roles_of.get(self._actor, 0),
            is_kept=all(self._is_shown(name, value) for name, value in loops),
        )

    def _add_step(self, step: Step) -> None:
        step.index = len(self.history.steps)
        size = sum(one.content.nbytes for one in step.writes if one.content is not None)
        self._kept_bytes += size
        if self._kept_bytes > self.most_bytes and not step.is_kept:
            self._kept_bytes -= size
            step.writes = [replace(one, content=None) for one in step.writes]
        if self._has_order:
            state = self._take_state()
            self._state = self._state if state == self._state else state
        step.state = self._state
        self.history.add(step)

    def _is_shown(self, name: str, value: int) -> bool:
        """Whether this is one of the first two iterations of a loop, or its last one."""
        first, extent = self._bounds.get(name, (0, 0))
        return value - first in (0, 1, extent - 1)

    def _take_state(self) -> State:
        def state_of(one: Barrier) -> BarrierState:
            return BarrierState(
                name=one.name,
                phase=one.phase,
                arrived=one.arrived,
                expected=one.expected,
                pending=one.pending,
            )

        met = (*self._barriers.values(), *self._named.values())
        groups = (
            GroupState(
                unit=unit,
                role=self._roles_of.get(actor, 0),
                open=_count(found.open),
                groups=tuple(map(_count, found.groups)),
            )
            for (actor, unit), found in self._groups.items()
        )
        return State(barriers=tuple(map(state_of, met)), groups=tuple(groups))

    def _iterate(self, var: Var, start: Expr, extent: Expr) -> Iterator[None]:
        number = self._evaluator.number
        self._bounds[var.name] = (number(start), number(extent))
        return super()._iterate(var, start, extent)

    # ---- statements -------------------------------------------------------------------------

    def _run(self, stmt: Plain) -> None:
        if self._issuing is not None:
            self._run_issued(stmt, self._issuing)
            return
        self._step = step = self._begin(stmt, "run")
        try:
            if isinstance(stmt, TileOperation):
                step.boxes = tuple(map(self._box, regions(stmt)))
            super()._run(stmt)
        finally:
            self._step = None
            if step.writes or step.reads:
                self._add_step(step)

    def _note(self, buffer: str, where: Places, content: Array | None) -> None:
        step = self._step
        if step is not None:
            access = box_access(buffer, self._raw.array(buffer).shape, where, content)
            (step.reads if content is None else step.writes).append(access)
        super()._note(buffer, where, content)

    def _run_nest(self, nest: For) -> bool:
        self._of_lanes = []
        if not super()._run_nest(nest):
            return False
        outer = self._moment_of(nest).loops
        values: dict[str, set[int]] = {}
        for name, value in (pair for one in self._of_lanes for pair in one.inner):
            values.setdefault(name, set()).add(value)
        for name, found in values.items():
            self._bounds[name] = (min(found), max(found) - min(found) + 1)
        for _, group in itertools.groupby(
            self._of_lanes, key=lambda one: (id(one.stmt), one.inner)
        ):
            self._add_lanes(list(group), outer)
        return True

    def _note_lanes(self, access: LaneAccess) -> None:
        self._of_lanes.append(access)
        super()._note_lanes(access)

    def _add_lanes(self, accesses: list[LaneAccess], outer: Loops) -> None:
        first = accesses[0]
        step = self._begin(first.stmt, "run", (*outer, *first.inner))
        for one in accesses:
            array = self._raw.array(one.buffer)
            content = one.values
            if one.is_write and content is None:  # an atomic update
                content = array.reshape(-1)[one.elements]
            access = Access(
                buffer=one.buffer,
                shape=array.shape,
                elements=one.elements,
                lanes=one.lanes,
                content=np.array(content) if one.is_write else None,
            )
            (step.writes if one.is_write else step.reads).append(access)
        if step.writes or isinstance(step.stmt, Let):
            self._add_step(step)

    # ---- operations -------------------------------------------------------------------------

    def _run_issued(self, stmt: Plain, operation: Operation) -> None:
        """Note an operation as it starts; the destination of a load is undefined from here on."""
        self._step = step = self._begin(stmt, "issue")
        step.unit = operation.unit
        if isinstance(stmt, TileOperation):
            step.boxes = tuple(map(self._box, regions(stmt)))
        try:
            super()._run(stmt)
        finally:
            self._step = None
        if not step.writes:
            return
        self._issued.setdefault(operation.number, []).append((step, tuple(step.writes)))
        is_load = operation.unit in ("cp_async", "tma")
        step.writes = [self._with_content(one) for one in step.writes] if is_load else []
        self._add_step(step)

    def _reads(self, operation: Operation, buffer: str, where: Places) -> None:
        if self._step is not None:
            self._step.reads.append(box_access(buffer, self._raw.array(buffer).shape, where))
        super()._reads(operation, buffer, where)

    def _writes(self, operation: Operation, buffer: str, where: Places) -> None:
        if self._step is not None:
            self._step.writes.append(box_access(buffer, self._raw.array(buffer).shape, where))
        super()._writes(operation, buffer, where)

    def _do(self, operation: Operation) -> None:
        if operation.is_done:
            return
        super()._do(operation)
        for issue, written in self._issued.pop(operation.number, ()):
            step = replace(
                issue,
                kind="land",
                issued=issue.index,
                writes=[self._with_content(one) for one in written],
            )
            self._add_step(step)

    def _with_content(self, access: Access) -> Access:
        """The access with what its elements hold now."""
        box = tuple(
            slice(start, start + size)
            for start, size in zip(access.starts, access.extents, strict=True)
        )
        return replace(access, content=np.array(self._raw.array(access.buffer)[box]))

    def _synchronize(self, stmt: Synchronization) -> Waiting:
        step = self._begin(stmt, "sync")
        last = self._steps[-1] if self._steps else None
        yield from super()._synchronize(stmt)
        news = itertools.takewhile(lambda one: one is not last, reversed(self._steps))
        mine = self._actor - self._first  # not what others and units did during the wait
        own = [one.text for one in news if one.actor == mine and not one.unit]
        if own:
            step.text = own[0]
            self._add_step(step)

    def _tick(self) -> None:
        if self._is_late():
            raise _OverLimit


def _count(operations: Sequence[Operation]) -> int:
    return sum(not one.is_done for one in operations)
