"""Makes an asynchronous Program synchronous: what is issued is done at once, and nothing is waited for.

That is one of the orders that the asynchronous meaning allows. Targets without asynchronous operations take what
comes out, and their build keys are over it.
"""

import msgspec

from tileyard.ir.nodes import CommitGroup, Issue, Program, Roles, Stmt, WaitGroup
from tileyard.ir.rewrite import Rewritten, rewrite


def settle(program: Program) -> Rewritten:
    """``program`` without issues, commits and waits of groups."""
    return rewrite(program, _settled)


def _settled(stmt: Stmt) -> tuple[Stmt, ...]:
    match stmt:
        case Issue():
            return stmt.body
        case CommitGroup() | WaitGroup():
            return ()
        case Roles():
            return (msgspec.structs.replace(stmt, bodies=tuple(filter(None, stmt.bodies))),)
        case _:
            return (stmt,)
