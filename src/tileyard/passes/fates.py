"""Determines what happens to the content that a loop leaves in a tile."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from tileyard.ir.nodes import For, Stmt, While
from tileyard.ir.walk import bodies, own_effects, walk, written_region
from tileyard.passes.schedules import buffers_in
from tileyard.passes.storage import Storage

Fate = Literal["kept", "replaced", "read"]


@dataclass(frozen=True, kw_only=True)
class Fates:
    """Fates in a Program whose loops fill ``tiles`` themselves, by the names of the loops' variables."""

    storage: Storage
    tiles: Mapping[str, frozenset[str]]

    def is_read(self, loop: For, tile: str) -> bool:
        """Whether a statement outside of ``loop`` may read what it leaves in a tile."""
        return self._after(self.storage.program.body, loop, tile) == "read"

    def _after(self, body: tuple[Stmt, ...], loop: For, tile: str) -> Fate:
        """The fate of what ``loop``, somewhere in ``body``, leaves in a tile, up to the end of ``body``."""
        at = next(n for n, stmt in enumerate(body) if any(s is loop for s in walk((stmt,))))
        stmt = body[at]
        fate: Fate = "kept"
        if stmt is not loop:
            inner = next(b for b in bodies(stmt) if any(s is loop for s in walk(b)))
            fate = self._after(inner, loop, tile)
            if fate == "kept" and isinstance(stmt, For | While):  # the next iteration begins
                is_read = tile in own_effects(stmt).read or self._next(inner, tile) == "read"
                fate = "read" if is_read else "kept"
        return self._next(body[at + 1 :], tile) if fate == "kept" else fate

    def _next(self, body: tuple[Stmt, ...], tile: str) -> Fate:
        """The first effect of statements on the content of a tile."""
        fates = (self._fate(stmt, tile) for stmt in body)
        return next((fate for fate in fates if fate != "kept"), "kept")

    def _fate(self, stmt: Stmt, tile: str) -> Fate:
        if tile not in buffers_in((stmt,)):
            return "kept"
        if isinstance(stmt, For) and tile in self.tiles.get(stmt.var.name, ()):
            return "kept"  # it fills the tile itself, in each of its iterations
        if bodies(stmt):
            is_read = tile in own_effects(stmt).read
            is_read = is_read or any(self._next(inner, tile) == "read" for inner in bodies(stmt))
            return "read" if is_read else "kept"
        region = written_region(stmt)
        is_new = region is not None and self.storage.is_whole(region) and region.buffer == tile
        return "replaced" if is_new and tile not in own_effects(stmt).read else "read"
