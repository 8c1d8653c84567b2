"""Whether iterations of a parallel nest that touch the same registers race: each thread has its own."""

from collections.abc import Mapping

from tileyard.ir.lane_conflicts import Conflict
from tileyard.ir.nodes import Load, Store
from tileyard.ir.walk import walk_expr


def is_private(conflict: Conflict, scopes: Mapping[str, str]) -> bool:
    """Whether the iterations do not race. ``scopes`` are those of all buffers. A fragment's may be
    shared out: then a store that reads another element of it reads what another thread may write.
    """
    scope, stmt = scopes.get(conflict.buffer), conflict.first.stmt
    if scope != "fragment" or stmt is not conflict.second.stmt or not isinstance(stmt, Store):
        return scope in ("local", "fragment")
    loads = (part for part in walk_expr(stmt.value) if isinstance(part, Load))
    return all(one.indices == stmt.indices for one in loads if one.buffer == stmt.buffer)
