"""All operations that are tried, in the groups of the page. Imports TileLang: import this late."""

from tests.differential.language import blocks, elements, hardware, raw, tiles
from tests.differential.language.templates import Operation

GROUPS: dict[str, tuple[Operation, ...]] = {
    "Copies and fills": tuple(tiles.moves()),
    "Matrix products": tuple(tiles.products()),
    "Reductions and scans": tuple(tiles.reductions()),
    "Atomic updates": tuple(tiles.atomics()),
    "Arithmetic on elements": tuple(elements.arithmetic()),
    "Functions of elements": tuple(elements.functions()),
    "Several numbers at once": tuple(elements.several()),
    "Storage and views": tuple(blocks.storage()),
    "Launches, loops, branches and roles": tuple(blocks.control()),
    "Hints, and waits": tuple(hardware.hints()),
    "Threads, warps and random numbers": tuple(hardware.per_thread()),
    "Clusters, tensor memory, sparse and scaled products": tuple(raw.units()),
    "Single instructions of GPUs": tuple(raw.instructions()),
}
