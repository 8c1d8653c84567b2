"""Which loops a producer and a consumer can share, and which of their copies share barriers. The
producer runs as far ahead as tiles have free versions. Only their barriers hold it back, so all
else that it touches must be its own or stay unchanged.
"""

from collections.abc import Iterable, Mapping, Sequence

from tileyard.ir.nodes import Await, Copy, For, Issue, Program, Roles, Stmt, Synchronization, While
from tileyard.ir.walk import own_effects, walk
from tileyard.passes.base import CannotSlice, Slicer
from tileyard.passes.instructions import Architecture, block_of, choose_load, count_threads
from tileyard.passes.loop_plans import LoopPlan
from tileyard.passes.storage import Storage

PRODUCER_THREADS = 128
WARP = 32


def find_declined(
    storage: Storage, plans: Mapping[str, LoopPlan], arch: Architecture
) -> dict[str, str]:
    """The loops planned for roles that do not suit them, by their variables' names, with the reason."""
    chosen = {name: plan for name, plan in plans.items() if plan.for_roles}
    if not chosen:
        return {}
    reason = _why_not_kernel(storage.program, arch)
    if reason:
        return dict.fromkeys(chosen, reason)
    finder = _Finder(storage, chosen)
    found = {name: finder.why_not(plan, arch) for name, plan in chosen.items()}
    return {name: reason for name, reason in found.items() if reason}


def group_tiles(plans: Sequence[LoopPlan]) -> tuple[frozenset[str], ...]:
    """The tiles that share barriers: in each loop the same statements are their first and last use."""
    together: list[set[str]] = []
    for own in (own for plan in plans for own in _filled_together(plan)):
        joined = [one for one in together if one & own]
        together = [one for one in together if not one & own]
        together.append({*own}.union(*joined))
    groups: dict[tuple[object, ...], set[str]] = {}
    for tiles in together:
        key = []
        for plan in plans:
            places = [plan.uses(tile) for tile in sorted(tiles & set(plan.tiles))]
            firsts = [first for first, _ in places if first >= 0]
            key.append((min(firsts, default=-1), max((last for _, last in places), default=-2)))
        groups.setdefault(tuple(key), set()).update(tiles)
    return tuple(frozenset(tiles) for tiles in groups.values())


def _filled_together(plan: LoopPlan) -> list[frozenset[str]]:
    found: dict[int, set[str]] = {}
    for tile, at in plan.tiles.items():
        found.setdefault(at, set()).add(tile)
    return [frozenset(tiles) for tiles in found.values()]


def _why_not_kernel(program: Program, arch: Architecture) -> str:
    threads = count_threads(program)
    if threads != block_of(program)[0]:
        return "its threads have several dimensions"
    if threads % WARP:
        return f"its {threads} threads are no warps"
    if threads + PRODUCER_THREADS > arch.threads:
        return f"{PRODUCER_THREADS} threads more than its {threads} are too many for a block"
    for stmt in walk(program.body):
        if isinstance(stmt, Roles | Issue | Synchronization | Await):
            return "the kernel synchronizes its threads itself"
        if isinstance(stmt, For) and stmt.kind in ("threads", "blocks"):
            return f"the kernel has a loop over its {stmt.kind}"
    return ""


class _Finder:
    def __init__(self, storage: Storage, plans: Mapping[str, LoopPlan]) -> None:
        self._storage, self._plans = storage, plans
        self._slicer = Slicer(storage)

    def why_not(self, plan: LoopPlan, arch: Architecture) -> str:
        copies = [stmt for at in plan.producers for stmt in walk((plan.inner[at],))]
        loads = [stmt for stmt in copies if isinstance(stmt, Copy)]
        if not any(choose_load(load, self._storage, arch).instruction == "tma" for load in loads):
            return "none of its copies can go by TMA"
        try:
            self._slicer.slice(loads)
        except CannotSlice as error:
            return f"a copy cannot be done by threads of its own: {error}"
        for load in loads:
            reason = self._why_not_source(plan, load) or self._why_not_tile(load.dst.buffer)
            if reason:
                return reason
        return ""

    def _why_not_source(self, plan: LoopPlan, load: Copy) -> str:
        """Why ``load`` cannot run ahead: the kernel writes its source before the loop ends; empty if not."""
        owners = self._storage.owners
        source = owners[load.src.buffer]
        for stmt in walk(self._storage.program.body):
            written = {owners[name] for name in own_effects(stmt).written}
            if source in written and not self._is_behind(stmt, [plan.loop]):
                return f"the kernel writes {source} before the loop is over"
        return ""

    def _why_not_tile(self, tile: str) -> str:
        """Why a producer cannot fill a tile as the block begins: others use it before; empty if none."""
        loops = [plan.loop for plan in self._plans.values() if tile in plan.tiles]
        inside = {id(stmt) for loop in loops for stmt in walk((loop,))}
        for stmt in walk(self._storage.program.body):
            if id(stmt) in inside:
                continue
            effects = own_effects(stmt)
            if tile in effects.read | effects.written and not self._is_behind(stmt, loops):
                return f"{tile} is used in front of the loop that fills it"
        return ""

    def _is_behind(self, stmt: Stmt, loops: Iterable[For]) -> bool:
        """Whether ``stmt`` runs after these loops are over, and they never begin again."""
        numbers, around = self._storage.numbers, self._slicer.around
        repeated = {id(outer) for outer in around(stmt) if isinstance(outer, For | While)}
        return all(
            numbers[id(loop)] < numbers[id(stmt)]
            and id(loop) not in repeated
            and not any(id(outer) in repeated for outer in around(loop))
            for loop in loops
        )
