"""Chooses the unit that carries out a tile operation on an architecture, and says why no better one
does. It is the only place that chooses: the planning passes ask here.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from tileyard.base.errors import UsageError
from tileyard.base.model import Record
from tileyard.ir.nodes import Buffer, Copy, Expr, Product, Program, Roles, Stmt
from tileyard.ir.walk import walk
from tileyard.passes.copy_units import why_not_cp_async, why_not_tma
from tileyard.passes.matrix_units import why_not_mma, why_not_wgmma
from tileyard.passes.storage import Storage

Instruction = Literal["tma", "cp_async", "copy", "wgmma", "mma", "fma"]
"""``copy`` goes through registers, ``fma`` multiplies without a matrix unit."""

LoadRule = Callable[[Copy, Buffer, Buffer, Mapping[str, Expr]], str]
ProductRule = Callable[[Product, Mapping[str, Buffer], int], str]
"""Returns why a unit cannot do a product; empty if it can."""


@dataclass(frozen=True, kw_only=True)
class Architecture:
    """Units that load tiles and that multiply, the best first; a block's limits: bytes of shared
    memory, threads. Source of the limits: CUDA C++ Programming Guide, "Technical Specifications per
    Compute Capability".
    """

    name: str
    loads: tuple[tuple[Instruction, LoadRule], ...]
    products: tuple[tuple[Instruction, ProductRule], ...]
    shared_bytes: int
    threads: int = 1024

    @property
    def has_tma(self) -> bool:
        """Whether copies can go by TMA."""
        return any(instruction == "tma" for instruction, _ in self.loads)

    def without_tma(self) -> "Architecture":
        """The same rules without those of TMA."""
        return replace(self, loads=tuple(rule for rule in self.loads if rule[0] != "tma"))


ARCHITECTURES = {
    one.name: one
    for one in (
        Architecture(
            name="sm_80",
            loads=(("cp_async", why_not_cp_async),),
            products=(("mma", why_not_mma),),
            shared_bytes=163 * 1024,
        ),
        Architecture(
            name="sm_90a",
            loads=(("tma", why_not_tma), ("cp_async", why_not_cp_async)),
            products=(("wgmma", why_not_wgmma), ("mma", why_not_mma)),
            shared_bytes=227 * 1024,
        ),
    )
}


class Choice(Record):
    """A unit, and a reason against each of the better ones."""

    instruction: Instruction
    reason: str = ""


def find_architecture(name: str) -> Architecture:
    """The rules of an architecture. Raises UsageError."""
    if name not in ARCHITECTURES:
        known = ", ".join(ARCHITECTURES)
        raise UsageError(f"there are no rules for {name!r}", f"there are those of {known}")
    return ARCHITECTURES[name]


def choose_load(copy: Copy, storage: Storage, arch: Architecture) -> Choice:
    """The unit that fills a tile in shared memory from an array."""
    src, dst = (storage.buffers[region.buffer] for region in (copy.src, copy.dst))
    reasons = list[str]()
    for instruction, rule in arch.loads:
        reason = rule(copy, src, dst, storage.lets)
        if not reason:
            return Choice(instruction=instruction, reason="; ".join(reasons))
        reasons.append(reason)
    return Choice(instruction="copy", reason="; ".join(dict.fromkeys(reasons)))


def choose_product(stmt: Product, storage: Storage, arch: Architecture) -> Choice:
    """The unit that multiplies, for all threads that run ``stmt``."""
    threads, reasons = count_threads(storage.program, stmt), list[str]()
    for instruction, rule in arch.products:
        reason = rule(stmt, storage.buffers, threads)
        if not reason:
            return Choice(instruction=instruction, reason="; ".join(reasons))
        reasons.append(f"not {instruction}: {reason}")
    return Choice(instruction="fma", reason="; ".join(reasons))


def is_load(copy: Copy, storage: Storage) -> bool:
    """Whether a copy fills a tile in shared memory from an array."""
    scopes = (storage.buffers[region.buffer].scope for region in (copy.src, copy.dst))
    return tuple(scopes) == ("global", "shared")


def block_of(program: Program) -> tuple[int, ...]:
    """The threads of a block in each dimension; TileLang's default if the kernel sets none."""
    return program.threads or (128, 1, 1)


def count_threads(program: Program, stmt: Stmt | None = None) -> int:
    """The number of threads of a block; with a ``stmt``, of the role that runs it, if any."""
    roles = (one for one in walk(program.body) if stmt and isinstance(one, Roles))
    for one in roles:
        for body, ranges in zip(one.bodies, one.threads, strict=False):
            if any(inner is stmt for inner in walk(body)):
                return sum(end - first for first, end in ranges)
    return math.prod(block_of(program))
