"""Roles in C: bodies that advance in turns, each a ``switch`` that is entered where it last had to wait.

What has to outlive a wait, bindings and the counters of loops, is declared outside the ``switch``.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from tileyard.ir.interpret import describe_deadlock
from tileyard.ir.nodes import Atomic, Await, For, If, Let, Roles, Stmt, Var, While
from tileyard.ir.walk import walk
from tileyard.targets.cpu.emit.context import Context
from tileyard.targets.cpu.emit.exprs import value
from tileyard.targets.cpu.emit.reports import failure
from tileyard.targets.cpu.emit.scalars import SCALARS


@dataclass(kw_only=True, slots=True)
class Role:
    """One body while it is written. ``waits`` has the fault of each of its waits, in order."""

    at: str
    rests: str
    moved: str
    waits: list[int] = field(default_factory=list)


def emit_roles(ctx: Context, stmt: Roles, write: Callable[[Role, int], None]) -> None:
    """Write all roles; ``write`` writes the body of one, by its number."""
    out, moved = ctx.out, ctx.names.fresh("moved_")
    roles = [
        Role(at=ctx.names.fresh(f"role{i}_"), rests=ctx.names.fresh(f"rest{i}_"), moved=moved)
        for i in range(len(stmt.bodies))
    ]
    out.line("/* roles advance in turns: each goes on until it has to wait, or has ended */")
    with out.block(""):
        for var in _outliving(stmt):
            ctx.outliving.add(var.name)
            out.line(f"{SCALARS[var.dtype].value} {ctx.names[var.name]};")
        out.line(f"int32_t {', '.join(f'{role.at} = 0' for role in roles)}, {moved} = 1;")
        with out.block(f"while ({moved})"):
            out.line(f"{moved} = 0;")
            for number, role in enumerate(roles):
                with out.block(f"switch ({role.at})"):
                    out.line("case 0:;")
                    write(role, number)
                    out.line(f"{role.at} = -1, {moved} = 1;")
                    out.line("default:;")
                out.line(f"{role.rests}:;")
        _emit_deadlock(ctx, roles)


def emit_wait(ctx: Context, stmt: Await, role: Role | None) -> None:
    """Write a wait; where there is no other role, what is awaited has to be there."""
    site = ctx.fault(describe_deadlock(stmt.message))
    if role is None:
        ctx.out.line(f"if (!({value(ctx, stmt.cond)})) {failure(ctx, site)}")
        return
    role.waits.append(site)
    number = len(role.waits)
    ctx.out.line(f"{role.at} = {number}, {role.moved} = 1;")
    ctx.out.line(f"case {number}:")
    ctx.out.line(f"if (!({value(ctx, stmt.cond)})) goto {role.rests};")
    ctx.out.line(f"{role.moved} = 1;")


def _waits(stmt: Stmt) -> bool:
    return any(isinstance(inner, Await) for inner in walk((stmt,)))


def _outliving(stmt: Roles) -> Iterator[Var]:
    """The variables that are bound, or counted, where a wait may follow."""
    todo: list[Stmt] = [inner for body in stmt.bodies for inner in body]
    while todo:
        match todo.pop(0):
            case Let(var=var) | Atomic(var=Var() as var):
                yield var
            case For() as loop if _waits(loop):
                yield loop.var
                todo += loop.body
            case While() as loop:
                todo += loop.body
            case If() as branch:
                todo += [*branch.then, *branch.orelse]
            case _:
                pass


def _emit_deadlock(ctx: Context, roles: list[Role]) -> None:
    """Tell the waits of the roles that have not ended."""
    stuck, count = ctx.names.fresh("stuck_"), ctx.names.fresh("stuck_count_")
    waiting = [role for role in roles if role.waits]
    if not waiting:
        return
    ctx.out.line(f"int32_t {stuck}[{len(waiting)}], {count} = 0;")
    for role in waiting:
        table = f"((const int32_t[]){{{', '.join(map(str, role.waits))}}})"
        ctx.out.line(f"if ({role.at} > 0) {stuck}[{count}++] = {table}[{role.at} - 1];")
    ctx.out.line(f"if ({count}) return ty_stuck(report, {stuck}, {count});")
