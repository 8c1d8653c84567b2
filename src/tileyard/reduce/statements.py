"""Cuts of statements and of their expressions: drop, unwrap or fill a statement; replace a part of an
expression.
"""

import itertools
from collections.abc import Iterator

import msgspec

from tileyard.ir.nodes import (
    Atomic,
    Cast,
    Expr,
    Fill,
    For,
    If,
    InitBarrier,
    Issue,
    Let,
    Load,
    Op,
    Program,
    Region,
    Roles,
    Stmt,
    Store,
    Synchronization,
    TileOperation,
    Var,
    While,
)
from tileyard.ir.ranges import folded
from tileyard.ir.walk import (
    bodies,
    buffer_effects,
    children,
    number_statements,
    own_effects,
    walk,
    walk_expr,
)
from tileyard.reduce.edits import (
    Search,
    all_buffers,
    barriers_of,
    constant,
    keep_roles,
    own_expressions,
    replace_everywhere,
    replace_in_body,
    replace_statements,
    with_own_expressions,
)

FEW_STATEMENTS = 24
"""Largest number of statements for which pairs are tried."""


# ---- dropping -------------------------------------------------------------------------------


def drop_statements(program: Program) -> Search:
    """Drop statements by depth: first halves of them, then smaller parts, the last ones first."""
    for depth in itertools.count():
        numbers = _at_depth(program, depth)
        if not numbers:
            return
        dropped: set[int] = set()
        size = (len(numbers) + 1) // 2
        while size:
            kept = [number for number in numbers if number not in dropped]
            for start in reversed(range(0, len(kept), size)):
                part = dropped | {*kept[start : start + size]}
                if (yield replace_statements(program, dict.fromkeys(part, ()))):
                    dropped = part
            size //= 2
        program = replace_statements(program, dict.fromkeys(dropped, ()))


def _at_depth(program: Program, depth: int) -> list[int]:
    def depths(body: tuple[Stmt, ...], outer: int) -> Iterator[int]:
        for stmt in body:
            yield outer
            for inner in bodies(stmt):
                yield from depths(inner, outer + 1)

    return [number for number, found in enumerate(depths(program.body, 0)) if found == depth]


def drop_pairs(program: Program) -> Search:
    """Drop two statements at once, such as an arrive and its wait, of a Program that is already small."""
    numbered = list(number_statements(program))
    if len(numbered) > FEW_STATEMENTS:
        numbered = [(number, s) for number, s in numbered if isinstance(s, Synchronization)]
    if len(numbered) > FEW_STATEMENTS:
        return
    dropped: set[int] = set()
    for first, second in itertools.combinations([number for number, _ in numbered], 2):
        if not {first, second} & dropped:
            part = {*dropped, first, second}
            if (yield replace_statements(program, dict.fromkeys(part, ()))):
                dropped = part


def drop_buffers(program: Program) -> Search:
    """Drop all that touches a buffer or row of barriers; what is issued to a row is done at once instead."""
    for name in reversed(list(all_buffers(program))):
        changes = {n: _without(s, name) for n, s in number_statements(program) if _names(s, name)}
        if changes:
            candidate = replace_statements(program, changes)
            if (yield candidate):
                program = candidate


def _names(stmt: Stmt, buffer: str) -> bool:
    effects = own_effects(stmt)
    return buffer in effects.read | effects.written | barriers_of(stmt)


def _without(stmt: Stmt, buffer: str) -> tuple[Stmt, ...]:
    """The rest of a statement without a buffer that it names itself."""
    match stmt:
        case Issue():
            return stmt.body
        case If() | While():
            return tuple(s for body in bodies(stmt) for s in body if not _names(s, buffer))
        case _:
            return ()


# ---- unwrapping -----------------------------------------------------------------------------


def unwrap_statements(program: Program) -> Search:
    """Replace each statement by something simpler: see ``_simpler``."""
    number = 0
    while number < sum(1 for _ in walk(program.body)):
        stmt = dict(number_statements(program))[number]
        for simpler in _simpler(stmt, program):
            candidate = replace_statements(program, {number: simpler})
            if (yield candidate):
                program = candidate
                break
        else:
            number += 1


def _simpler(stmt: Stmt, program: Program) -> Iterator[tuple[Stmt, ...]]:
    """The possible replacements of a statement, the smallest first."""
    yield from _filled(stmt, program)
    match stmt:
        case For():
            end = Op("add", (stmt.start, stmt.extent), stmt.var.dtype)
            last = Op("sub", (end, constant(1, stmt.var.dtype)), stmt.var.dtype)
            for value in (stmt.start, folded(last)):
                known: dict[Expr, Expr] = {stmt.var: value}
                yield replace_in_body(stmt.body, known.get)
        case If():
            yield from filter(None, (stmt.then, stmt.orelse))
        case While() | Issue():
            yield stmt.body
        case TileOperation() if not stmt.clear:
            yield (msgspec.structs.replace(stmt, clear=True),)
        case Roles():
            everyone = range(len(stmt.bodies))
            yield from (stmt.bodies[role] for role in everyone)
            yield tuple(itertools.chain(*stmt.bodies))
            if len(stmt.bodies) > 1:
                for left_out in everyone:
                    yield (keep_roles(stmt, [role for role in everyone if role != left_out]),)
        case _:
            pass


def _filled(stmt: Stmt, program: Program) -> Iterator[tuple[Stmt, ...]]:
    """A fill of the only buffer that a statement writes; none if others wait for it or read its variable."""
    inside = list(walk((stmt,)))
    if any(isinstance(one, Synchronization | Roles | Issue) for one in inside):
        return
    if isinstance(stmt, Fill | InitBarrier | Let | Store):
        return
    written = buffer_effects((stmt,)).written
    if len(written) == 1:
        (name,) = written
        buffer = all_buffers(program)[name]
        whole = Region(name, (constant(0, "int32"),) * len(buffer.shape), buffer.shape)
        yield (Fill(whole, constant(0, buffer.dtype)),)


# ---- bindings -------------------------------------------------------------------------------


def inline_lets(program: Program) -> Search:
    """Replace each variable by 0 or 1, else by its value; one that an atomic update binds by 0."""
    number = 0
    while number < sum(1 for _ in walk(program.body)):
        stmt = dict(number_statements(program))[number]
        for known, left in _values(stmt):
            candidate = replace_everywhere(replace_statements(program, {number: left}), known.get)
            if (yield candidate):
                program = candidate
                break
        else:
            number += 1


def _values(stmt: Stmt) -> Iterator[tuple[dict[Expr, Expr], tuple[Stmt, ...]]]:
    """Replacements for the variable that ``stmt`` binds, each with the rest of ``stmt``."""
    match stmt:
        case Let(var=var):
            for value in (constant(0, var.dtype), constant(1, var.dtype), stmt.value):
                yield {var: value}, ()
        case Atomic(var=Var() as var):
            yield {var: constant(0, var.dtype)}, (msgspec.structs.replace(stmt, var=None),)
        case _:
            pass


# ---- expressions ----------------------------------------------------------------------------


def simplify_expressions(program: Program) -> Search:
    """Simplify the parts of each statement's own expressions, from the whole down to its operands."""
    for number in range(sum(1 for _ in walk(program.body))):
        place = 0
        while True:
            stmt = dict(number_statements(program))[number]
            part = next(iter(list(_parts(stmt))[place:]), None)
            if part is None:
                break
            for simpler in _simpler_parts(part):
                changed = _with_part(stmt, place, simpler)
                candidate = replace_statements(program, {number: (changed,)})
                if (yield candidate):
                    program = candidate
                    break
            else:
                place += 1


def _parts(stmt: Stmt) -> Iterator[Expr]:
    """All parts of the expressions of a statement, each before its operands."""
    for expr in own_expressions(stmt):
        yield from walk_expr(expr)


def _simpler_parts(expr: Expr) -> Iterator[Expr]:
    """The possible replacements of an expression, of the same dtype."""
    for value in (0, 1):
        simple = constant(value, expr.dtype)
        if expr != simple:
            yield simple
    for child in children(expr):
        if child.dtype == expr.dtype and not isinstance(expr, Load):
            yield child


def _with_part(stmt: Stmt, place: int, new: Expr) -> Stmt:
    """``stmt`` with the part at this position of ``_parts`` replaced."""
    at = 0

    def changed(expr: Expr) -> Expr:
        nonlocal at
        here, at = at, at + 1
        if here == place:
            at += sum(1 for _ in walk_expr(expr)) - 1
            return new
        match expr:
            case Op():
                return Op(expr.name, tuple(map(changed, expr.args)), expr.dtype)
            case Load():
                return Load(expr.buffer, tuple(map(changed, expr.indices)), expr.dtype)
            case Cast():
                return Cast(changed(expr.value), expr.dtype)
            case _:
                return expr

    return with_own_expressions(stmt, tuple(map(changed, own_expressions(stmt))))
