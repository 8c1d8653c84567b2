"""Checks an elaborated kernel at its own sizes, on inputs of its own, and stores the findings by content."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from tileyard.artifacts.footprint import Footprint
from tileyard.artifacts.objects import ObjectStore, canonical_json, digest_bytes, digest_parts
from tileyard.base.clock import Clock
from tileyard.base.errors import KernelFault, UsageError
from tileyard.base.model import Digest, Outcome, Record, SourceLine, TensorSpec, Value
from tileyard.frontend.closure import examine
from tileyard.frontend.constraints import Constraint
from tileyard.frontend.found import Found
from tileyard.frontend.reads import WATCH, would_read_again
from tileyard.ir.nodes import Program
from tileyard.ir.printer import print_program
from tileyard.ir.specs import evaluate_size, scalar_params, tensor_specs
from tileyard.ir.tiles import Array
from tileyard.measure.inputs import make_inputs
from tileyard.sync.blocks import Checked, Effort, check_program
from tileyard.sync.control import deciding_numbers
from tileyard.sync.findings import sieve
from tileyard.sync.words import describe_race
from tileyard.workers.protocol import AuthorReply, CheckSync, Failed, SyncChecked

if TYPE_CHECKING:
    from tileyard.frontend.tilelang import MadeKernel

RECORD_KIND = "sync"
RECIPE = "2"
"""The version of the records of kept answers; a change that makes old ones wrong raises it."""
MOST_ELEMENTS, MOST_OF_TILES = 1 << 24, 1 << 20
"""More elements of inputs, or of tiles, take too long for a check that nobody asked for."""


class KeptCheck(Record):
    """A kept answer about a kernel, and what its code read."""

    reply: SyncChecked
    reads: Footprint


def check_made(
    made: "MadeKernel",
    request: CheckSync,
    objects: ObjectStore,
    clock: Clock | None = None,
    *,
    known: Mapping[str, Array] | None = None,
) -> SyncChecked | Failed:
    """Check an elaborated kernel. Raises UsageError, also if it has no Program or its sizes are not bound.

    ``known`` are inputs that take the place of random ones. If given, whole numbers that decide something
    have to be among them.
    """
    lowered = made.lowered
    if lowered is None:
        refusal = made.kernel.refusal
        raise UsageError(refusal.message if refusal else "it has no Program")
    program, lines = lowered.written, lowered.written_lines
    unchecked = tuple(name_place(each.where, each.message) for each in lowered.given_up)
    if unchecked:  # without these, nothing is certain about the others
        return SyncChecked(
            kernel=request.kernel,
            config=dict(request.config),
            blocks=0,
            grid=0,
            findings=(),
            unchecked=unchecked,
            notes=made.notes,
        )
    open_ones = {var.name for var in (*program.dims, *scalar_params(program))} - made.numbers.keys()
    if open_ones:
        raise UsageError(f"{', '.join(sorted(open_ones))} is known only when it is called")
    scalars = [made.numbers[var.name] for var in scalar_params(program)]
    specs = tensor_specs(program, made.integers)
    if request.is_unasked:
        require_small(program, specs)
    if known is not None and (unknown := deciding_numbers(program) - known.keys()):
        raise UsageError(f"what it does depends on the numbers in {', '.join(sorted(unknown))}")
    known = known or {}
    key = _key(program, lines, request, scalars, known)
    checked = objects.decode_record(RECORD_KIND, key, Checked)
    if checked is None:
        effort = Effort(
            limit_s=request.limit_s or math.inf,
            is_traced=request.with_timeline,
            clock=clock or Clock(),
        )
        try:
            made_up = zip(
                (s.name for s in specs if s.role != "out"), make_inputs(specs), strict=True
            )
            inputs = [known.get(name, array) for name, array in made_up]
            checked = check_program(program, lines, inputs, scalars, effort)
        except KernelFault as fault:
            return Failed(message=str(fault))
        if not request.with_timeline:
            objects.put_record(RECORD_KIND, key, msgspec.json.encode(checked))
    if not (checked.is_whole or checked.findings):
        message = f"the check takes longer than {request.limit_s:g} s"
        return Failed(message=message, outcome=Outcome.TIMEOUT)
    found = (*map(describe_race, lowered.races), *checked.findings)
    sieved = sieve(found, lines)
    return SyncChecked(
        kernel=request.kernel,
        config=dict(request.config),
        blocks=checked.blocks,
        grid=checked.grid,
        findings=sieved.findings,
        unchecked=(),
        suppressed=sieved.suppressed,
        unused=sieved.unused,
        notes=made.notes,
    )


def require_small(program: Program, specs: Sequence[TensorSpec]) -> None:
    """Raise UsageError for tensors or tiles that are too large for a check that nobody asked for."""
    tiles = (
        [evaluate_size(e, {}) for e in one.shape]
        for one in program.buffers
        if one.scope != "global"
    )
    sizes = {
        "tensors": (sum(math.prod(spec.shape) for spec in specs), MOST_ELEMENTS),
        "tiles": (sum(map(math.prod, tiles)), MOST_OF_TILES),
    }
    for what, (size, most) in sizes.items():
        if size > most:
            raise UsageError(f"its {what} have {size:,} elements")


def identify_check(
    found: Found, request: CheckSync, program: str, lines: Mapping[int, SourceLine]
) -> Footprint:
    """What decides the answer at sizes of the check's choice; with a doubt if the code has no identity.

    ``program`` and ``lines`` are those at the kernel's own sizes.
    """
    recipe = found.recipe
    rules = [rule for rule in found.rules if not isinstance(rule, Constraint)]
    functions = (recipe.function, recipe.reference, recipe.inputs, recipe.supply, *rules)
    rests = examine(functions, "kernel")
    texts = [rule.text for rule in found.rules if isinstance(rule, Constraint)]
    rests.put("constraints", canonical_json(texts))
    rests.put("program", program)
    rests.put("lines", canonical_json(sorted(lines.items())))
    rests.put("request", canonical_json(request))
    return rests


def check_kept(
    objects: ObjectStore, rests: Footprint, ask: Callable[[], AuthorReply]
) -> AuthorReply:
    """The answer kept for what it rests on, if what it read is unchanged; else that of ``ask``, now kept."""
    if rests.doubts:
        return ask()
    key = rests.key(f"{RECORD_KIND} of sizes {RECIPE}")
    known = objects.decode_record(RECORD_KIND, key, KeptCheck)
    if known is not None and would_read_again(known.reads, rests.code):
        return known.reply
    with WATCH.reading():
        reply = ask()
    reads = WATCH.tell(rests.code, objects.root)
    if isinstance(reply, SyncChecked) and not reads.doubts:
        objects.put_record(
            RECORD_KIND, key, msgspec.json.encode(KeptCheck(reply=reply, reads=reads))
        )
    return reply


def _key(
    program: Program,
    lines: Mapping[int, SourceLine],
    request: CheckSync,
    scalars: Sequence[Value],
    known: Mapping[str, Array],
) -> Digest:
    parts = (
        print_program(program),
        canonical_json(sorted(lines.items())),
        canonical_json((scalars, request.limit_s)),
        *(f"{name} {digest_bytes(known[name].tobytes())}" for name in sorted(known)),
    )
    return digest_parts(RECORD_KIND, request.recipe, *parts)


def name_place(where: SourceLine | None, message: str) -> str:
    """A message after its line, if that is known."""
    return message if where is None else f"{where.file}:{where.line}: {message}"
