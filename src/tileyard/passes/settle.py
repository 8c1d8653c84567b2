"""Makes an asynchronous Program synchronous: what is issued is done at once, and only roles are
waited for, which the asynchronous meaning allows. A barrier becomes a count in shared memory:
arrivals add to it, a phase ends at each multiple of its arrivals, a wait checks parity. Targets
without asynchronous operations take the result, and key their builds by it.
"""

from typing import TypeGuard

import msgspec

from tileyard.ir.nodes import (
    Arrive,
    Await,
    Buffer,
    Const,
    Expr,
    Fill,
    For,
    InitBarrier,
    Issue,
    Let,
    Load,
    LoopKind,
    Op,
    Param,
    Product,
    Program,
    Region,
    Roles,
    Scalar,
    Stmt,
    Store,
    Sync,
    Synchronization,
    Tensor,
    Var,
    WaitBarrier,
)
from tileyard.ir.rewrite import Names, Rewritten, rewrite
from tileyard.ir.walk import convert, walk

COUNT = "int32"


def settle(program: Program) -> Rewritten:
    """``program`` without issues, barriers, fences, groups, schedules, layouts, threads, and hints."""
    return _Settling(program).run()


class _Settling:
    """``made`` are the counts of the numbered barriers at which several roles meet, by number."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._names = Names(program)
        self._arrivals = {buffer.name: buffer.arrivals for buffer in program.buffers}
        meetings: set[int] = set()
        for stmt in walk(program.body):
            if isinstance(stmt, Roles):
                found = [{s.barrier for s in walk(body) if _is_meeting(s)} for body in stmt.bodies]
                meetings |= set().union(*found) - {0}
                meetings |= set.intersection(
                    *found
                )  # else no role would leave the block's own barrier
        self.made = {
            number: Buffer(
                self._names.fresh(f"sync_{number}"), COUNT, (Const(1, "int32"),), "shared"
            )
            for number in sorted(meetings)
        }

    def run(self) -> Rewritten:
        done = rewrite(self._program, self._settled)
        buffers = (*map(_settled_buffer, self._program.buffers), *self.made.values())
        params = tuple(map(_settled_param, done.program.params))
        program = msgspec.structs.replace(done.program, buffers=buffers, params=params)
        return msgspec.structs.replace(done, program=program)

    def _settled(self, stmt: Stmt) -> tuple[Stmt, ...]:
        match stmt:
            case Issue():
                return stmt.body
            case For(kind="pipelined") if stmt.order or stmt.group:
                kind: LoopKind = "pipelined" if stmt.stages else "serial"
                return (msgspec.structs.replace(stmt, kind=kind, order=(), stage=(), group=()),)
            case _ if isinstance(stmt, Product) and stmt.policy != "square":
                return (msgspec.structs.replace(stmt, policy="square"),)
            case For(kind="threads"):
                return (msgspec.structs.replace(stmt, kind="serial"),)
            case Roles():
                return self._roles(stmt)
            case InitBarrier():
                return (Fill(stmt.barriers, Const(0, COUNT)),)
            case Arrive():
                return (_add(stmt.barrier, stmt.count),) if stmt.count else ()
            case WaitBarrier():
                return (self._wait(stmt.barrier, stmt.parity),)
            case Sync():
                is_kept = stmt.barrier in self.made and not stmt.given
                return self._sync(stmt) if is_kept else ()
            case Synchronization():
                return ()
            case _:
                return (stmt,)

    def _roles(self, stmt: Roles) -> tuple[Stmt, ...]:
        bodies = tuple(filter(None, stmt.bodies))
        ready = [Fill(_whole(buffer), Const(0, COUNT)) for buffer in self.made.values()]
        return (
            (*ready, msgspec.structs.replace(stmt, bodies=bodies, threads=(), registers=()))
            if bodies
            else ()
        )

    def _sync(self, stmt: Sync) -> tuple[Stmt, ...]:
        """Count the threads that arrive, and wait until the number that the phase requires has come."""
        place = Load(self.made[stmt.barrier].name, (Const(0, "int32"),), COUNT)
        before = Var(self._names.fresh(f"before_{stmt.barrier}"), COUNT)
        size = Const(stmt.count, COUNT)
        end = Op(
            "add", (Op("sub", (before, Op("truncmod", (before, size), COUNT)), COUNT), size), COUNT
        )
        wait = Await(Op("ge", (place, end), "bool"), f"for {stmt.count} threads")
        arrival = (Let(before, place), _add(place, stmt.threads))
        return (*arrival, wait) if stmt.waits else arrival[1:]

    def _wait(self, place: Load, parity: Expr) -> Stmt:
        phases = Op("truncdiv", (place, self._expected(place)), COUNT)
        current = Op("bitand", (phases, Const(1, COUNT)), COUNT)
        return Await(Op("ne", (current, convert(parity, COUNT)), "bool"), f"for {place.buffer}")

    def _expected(self, place: Load) -> Expr:
        counts = self._arrivals[place.buffer]
        found: Expr = Const(counts[-1], COUNT)
        for number in reversed(range(len(counts) - 1)):
            if counts[number] != counts[-1] or found != Const(counts[-1], COUNT):
                is_it = Op("eq", (place.indices[0], Const(number, "int32")), "bool")
                found = Op("select", (is_it, Const(counts[number], COUNT), found), COUNT)
        return found


def _is_meeting(stmt: Stmt) -> TypeGuard[Sync]:
    return isinstance(stmt, Sync) and stmt.threads < stmt.count and not stmt.given


def _add(place: Load, count: int) -> Stmt:
    return Store(place.buffer, place.indices, Op("add", (place, Const(count, COUNT)), COUNT))


def _whole(buffer: Buffer) -> Region:
    return Region(buffer.name, (Const(0, "int32"),) * len(buffer.shape), buffer.shape)


def _settled_buffer(buffer: Buffer) -> Buffer:
    is_row = buffer.scope == "barrier"
    scope = "shared" if is_row else buffer.scope
    return msgspec.structs.replace(buffer, scope=scope, arrivals=(), layout=None)


def _settled_param(param: Param) -> Param:
    if isinstance(param, Scalar):
        return param
    return Tensor(_settled_buffer(param.buffer), param.role)
