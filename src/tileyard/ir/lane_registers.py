"""Whether iterations of a parallel nest that touch the same registers race: each thread has its own."""

from collections.abc import Mapping

from tileyard.ir.lane_conflicts import Conflict
from tileyard.ir.nodes import Load, Store
from tileyard.ir.specs import variables_in
from tileyard.ir.walk import walk_expr


def is_private(conflict: Conflict, scopes: Mapping[str, str], size: int) -> bool:
    """Whether the iterations do not race. ``scopes`` are those of all buffers, ``size`` is the number of elements of this one.

    Those of a fragment may be shared out: then a store that reads another element of it reads what another thread may write.
    And if iterations that update one of several elements read another fragment, that one's layout decides which threads do so.
    """
    scope, stmt = scopes.get(conflict.buffer), conflict.first.stmt
    if scope != "fragment" or stmt is not conflict.second.stmt or not isinstance(stmt, Store):
        return scope in ("local", "fragment")
    loads = [part for part in walk_expr(stmt.value) if isinstance(part, Load)]
    if any(one.buffer == stmt.buffer and one.indices != stmt.indices for one in loads):
        return False
    loops = {name for name, _ in conflict.first.loops}
    shared = loops.difference(*map(variables_in, stmt.indices))
    fragments = (one for one in loads if scopes.get(one.buffer) == "fragment")
    return size == 1 or not any(
        shared & variables_in(at) for one in fragments for at in one.indices
    )
