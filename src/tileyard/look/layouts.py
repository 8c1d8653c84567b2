"""Says where tiles in shared memory have their elements, and counts the bank conflicts of statements."""

from collections import defaultdict
from dataclasses import dataclass, field

import numpy as np

from tileyard.base.errors import UsageError
from tileyard.ir.dtypes import find_dtype
from tileyard.ir.nodes import Buffer, Issue, Program
from tileyard.ir.printer import print_layout
from tileyard.ir.walk import number_statements, walk
from tileyard.look.records import BankConflicts
from tileyard.passes.bank_conflicts import (
    constant_shape,
    count_in_layout,
    find_accesses,
    laid_out_addresses,
    possible_spans,
    swizzled_addresses,
)
from tileyard.passes.infer_shared_layouts import InferSharedLayouts
from tileyard.passes.storage import Storage

_PASS = InferSharedLayouts.name
_BULK = ("tma", "tma_store")
"""Units that move a tile without a warp's threads."""
_NOT_PLANNED = (
    "a kernel has one if it pins it, or if all of it is shown as it is planned with "
    "--pipeline tilelang:ARCH"
)
_MEANING = (
    "The ways of a bank conflict are the most words of one of 32 banks that a warp's threads take at once, "
    "in the order in which they usually share elements; 1 is no conflict."
)


@dataclass(frozen=True, kw_only=True)
class Layouts:
    """The known layouts in words by tile, conflicts by statement, and how layouts are known or why not."""

    words: dict[str, str] = field(default_factory=dict)
    conflicts: dict[int, tuple[BankConflicts, ...]] = field(default_factory=dict)
    sentence: str = ""


def find_layouts(program: Program, architecture: str) -> Layouts:
    """The layouts that a Program's tiles have, or get when it is compiled for the ``architecture`` for which
    it is planned; empty if it is not planned.
    """
    tiles = [one for one in program.buffers if one.scope == "shared" and not one.view_of]
    laid_out, left, why = program, dict[str, str](), _NOT_PLANNED
    if architecture:
        try:
            inferred = InferSharedLayouts(architecture).infer(program)
            laid_out, left = inferred.program, inferred.left
        except UsageError as error:
            why = error.message
    known = {one.name: one for one in laid_out.buffers if one.scope == "shared" and one.layout}
    pinned = {one.name for one in tiles if one.layout}
    reasons: dict[str, list[str]] = defaultdict(list)
    for one in tiles:
        if one.name not in known:
            reasons[left.get(one.name, why)].append(one.name)
    said = [_MEANING] if known else []
    if known.keys() - pinned:
        said.append(f"Chosen layouts are those of Tileyard's pass {_PASS} for {architecture}.")
    said += [
        f"Bank conflicts of {', '.join(names)} are not shown, because no layout is known: {reason}."
        for reason, names in reasons.items()
    ]
    return Layouts(
        words={
            name: f"{_describe(program, one)}, {'pinned by the kernel' if name in pinned else 'chosen'}"
            for name, one in known.items()
        },
        conflicts=_count(laid_out, known),
        sentence=" ".join(said),
    )


def _count(program: Program, known: dict[str, Buffer]) -> dict[int, tuple[BankConflicts, ...]]:
    """The conflicts of each statement that reads or writes a tile through the threads of a warp."""
    bulk = {
        id(inner)
        for one in walk(program.body)
        if isinstance(one, Issue) and one.unit in _BULK
        for inner in walk(one.body)
    }
    skipped = {number for number, one in number_statements(program) if id(one) in bulk}
    found: dict[int, list[BankConflicts]] = defaultdict(list)
    for access in find_accesses(Storage(program)):
        if access.buffer in known and access.number not in skipped:
            ways = count_in_layout(known[access.buffer], access)
            found[access.number].append(
                BankConflicts(buffer=access.buffer, how=access.how, ways=ways)
            )
    return {number: tuple(dict.fromkeys(some)) for number, some in found.items()}


def _describe(program: Program, tile: Buffer) -> str:
    """The layout of a tile in words: rows, rows with padding, a swizzle, or else its expressions."""
    shape, size = constant_shape(tile), find_dtype(tile.dtype).bits // 8
    if tile.layout is None or not shape:
        return ""
    places = laid_out_addresses(tile, tile.layout)
    whole = tuple(np.indices(shape).reshape(len(shape), -1))
    for span in (0, *possible_spans(tile)):
        if np.array_equal(places, swizzled_addresses(tile, span, whole)):
            return f"swizzle of {span} bytes" if span else "rows"
    rows = places.reshape(*shape[:-1], shape[-1])
    columns = np.arange(shape[-1]) * size
    pitches = np.unique(np.diff(rows[..., 0], axis=-1)) if len(shape) > 1 else np.zeros(0)
    if len(pitches) == 1 and np.array_equal(rows, rows[..., :1] + columns):
        padding = int(pitches[0]) - shape[-1] * size
        if padding > 0:
            return f"rows with {padding} bytes of padding"
    return print_layout(program, tile)
