"""Looks inside a block of an elaborated kernel, on the inputs and beside the reference of its tests; or
records only its steps, on inputs of its own.
"""

import inspect
import math
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from tileyard.artifacts.arrays import get_array
from tileyard.artifacts.objects import ObjectStore
from tileyard.base.errors import TileyardError, UsageError
from tileyard.base.model import Value
from tileyard.frontend.found import TILELANGS, Found, lower_for_check
from tileyard.ir.specs import evaluate_size, scalar_params, tensor_specs
from tileyard.look.looking import Looker, Others, Subject
from tileyard.look.records import About
from tileyard.measure.compare import Expected
from tileyard.measure.inputs import make_inputs
from tileyard.reduce.search import bind_numbers
from tileyard.sync.block_spans import MOST_STEPS, OneBlock, list_spans
from tileyard.workers.golden import GoldenMaker, cap_threads, keep_on_cpu
from tileyard.workers.pass_steps import lower_whole
from tileyard.workers.protocol import BlockTraced, LookedInside, LookInside, MakeGolden, TraceBlock
from tileyard.workers.sync_check import require_small

if TYPE_CHECKING:  # importing it takes seconds
    from tileyard.frontend.tilelang import Lowered, MadeKernel

SMALLEST = 64
"""The least value to which a size is divided, to try changes on a smaller kernel."""
FACTORS = (16, 8, 4, 2)
MOST_ELEMENTS = 1 << 26
"""Elements of inputs beyond which a block is not looked at."""


def look_inside(found: Found, request: LookInside, objects: ObjectStore) -> LookedInside:
    """Record a block, and follow its first wrong elements back. Raises as elaborating does, and
    UsageError for a block or a kernel that cannot be looked at.
    """
    with cap_threads(1), keep_on_cpu():
        opener = _Opener(found, request, objects)
        subject = opener.open(request.arguments)
        block = _find_block(subject, request)
        others = Others(smaller=opener.open_smaller, different=opener.open_different)
        looker = Looker(subject, time.process_time, others, request.patience)
        return LookedInside(look=looker.look(block))


def trace_block(found: Found, request: TraceBlock) -> BlockTraced:
    """Elaborate one config and run its middle block. Raises as elaborating does, UsageError for an empty grid
    or large tensors, and KernelFault if the kernel fails by itself.
    """
    made, lowered = lower_whole(found, request, request.architecture)
    program = lowered.written
    specs = tensor_specs(program, made.integers)
    require_small(program, specs)
    grid = {axis.var.name: evaluate_size(axis.extent, made.integers) for axis in program.grid}
    if 0 in grid.values():
        raise UsageError("its grid is empty")
    place = {axis: extent // 2 for axis, extent in grid.items()}
    scalars = [made.numbers[var.name] for var in scalar_params(program)]
    run = OneBlock(program, make_inputs(specs), scalars, place)
    run.grid()
    return BlockTraced(
        kernel=found.name,
        config=dict(request.config),
        grid=grid,
        place=place,
        spans=tuple(list_spans(run.steps, lowered.written_lines)),
        mistakes=len(run.hazards),
        is_whole=len(run.steps) < MOST_STEPS,
    )


def _find_block(subject: Subject, request: LookInside) -> tuple[int, ...] | None:
    """The block that is asked for, None if any will do. Raises UsageError if there is none such."""
    sizes = [evaluate_size(axis.extent, {}) for axis in subject.program.grid]
    grid = " x ".join(map(str, sizes)) or "1"
    if 0 in sizes:
        raise UsageError("its grid has no block")
    if not request.block:
        return None
    is_inside = len(request.block) == len(sizes) and all(
        0 <= at < size for at, size in zip(request.block, sizes, strict=True)
    )
    if not is_inside:
        at = ",".join(map(str, request.block))
        raise UsageError(f"there is no block {at}: the grid is {grid}, blockIdx.x first")
    return request.block


class _Opener:
    """Makes subjects of one kernel."""

    def __init__(self, found: Found, request: LookInside, objects: ObjectStore) -> None:
        self._found = found
        self._request = request
        self._objects = objects

    def open(self, arguments: dict[str, Value]) -> Subject:
        """The kernel at these arguments."""
        found, request = self._found, self._request
        pipeline = f"{TILELANGS}{request.architecture}" if request.architecture else ""
        made = lower_for_check(found, arguments, request.config, pipeline=pipeline)
        lowered = made.lowered
        if lowered is None:
            refusal = made.kernel.refusal
            raise UsageError(refusal.message if refusal else "it has no Program")
        return self._make(arguments, made, lowered)

    def _make(self, arguments: dict[str, Value], made: "MadeKernel", lowered: "Lowered") -> Subject:
        found, request = self._found, self._request
        is_settled = bool(lowered.given_up)
        program = lowered.program if is_settled else lowered.written
        lines = lowered.lines if is_settled else lowered.written_lines
        specs = tensor_specs(program, made.integers)
        if sum(math.prod(spec.shape) for spec in specs) > MOST_ELEMENTS:
            raise UsageError(
                f"its arrays have more than {MOST_ELEMENTS} elements",
                "choose smaller sizes with --arg",
            )
        scalars = tuple(made.numbers[var.name] for var in scalar_params(program))
        bound = bind_numbers(program, made.numbers)
        maker = GoldenMaker(
            found=found,
            function=found.recipe.reference,
            request=MakeGolden(
                kernel=found.name, arguments=arguments, specs=specs, scalars=scalars
            ),
            objects=self._objects,
        )
        golden = maker.make()
        written = [spec for spec in specs if spec.role != "in"]
        outputs = [get_array(self._objects, one) for one in golden.outputs]
        expected = [
            Expected(array, spec.dtype, request.tolerance)
            for array, spec in zip(outputs, written, strict=bool(outputs))
        ]
        refer = maker.open_reference()
        return Subject(
            program=bound,
            lines=lines,
            arrays=[get_array(self._objects, one) for one in golden.inputs],
            expected=expected if outputs else None,
            refer=refer,
            sizes=", ".join(f"{key}={value}" for key, value in arguments.items()),
            about=_describe(found, request),
            numbers={
                key: float(value)
                for key, value in {
                    **found.parameters.defaults,
                    **arguments,
                    **request.config,
                }.items()
                if isinstance(value, int | float) and not isinstance(value, bool)
            },
            architecture="" if is_settled else request.architecture,
            notes=tuple(
                f"{one.message}: its asynchronous operations are over at once here."
                for one in lowered.given_up
            ),
        )

    def _divide(self, size: int, factor: int) -> int:
        """About so large a part of a size; at least three tiles if other parameters divide it into tiles."""
        given = self._request.arguments
        others = {**self._found.parameters.defaults, **self._request.config}
        tiles = [value for key, value in others.items() if key not in given]
        step = math.lcm(
            *(one for one in tiles if type(one) is int and 0 < one < size and size % one == 0)
        )
        return max(-(-size // (factor * step)), 3 if step > 1 else 1) * step

    def open_smaller(self) -> Iterator[Subject]:
        """The kernel with smaller sizes, as far as it takes them, the smallest first."""
        own = self._sizes()
        asked = {key: size for key, size in own.items() if key in self._request.arguments} or own
        for factor in FACTORS:
            smaller = {key: self._divide(size, factor) for key, size in asked.items()}
            sizes = {key: size for key, size in smaller.items() if SMALLEST <= size < asked[key]}
            subject = self._try_sizes(sizes) if sizes else None
            if subject is not None:
                yield subject

    def open_different(self) -> Subject | None:
        """The kernel with small sizes of which no two are equal, None if it does not take them."""
        own = self._sizes()
        asked = {key: value for key, value in own.items() if key in self._request.arguments}
        others = {**own, **self._request.config}
        sizes = make_different(asked, [others[key] for key in others if key not in asked])
        return self._try_sizes(sizes)

    def _sizes(self) -> dict[str, int]:
        """Whole numbers that are arguments, and not of the config."""
        given = {**self._found.parameters.defaults, **self._request.arguments}
        config = self._request.config
        return {k: v for k, v in given.items() if type(v) is int and k not in config}

    def _try_sizes(self, sizes: dict[str, int]) -> Subject | None:
        arguments = {**self._request.arguments, **sizes}
        try:
            self._found.require(arguments, self._request.config)
            return self.open(arguments)
        except TileyardError:
            return None


def make_different(own: Mapping[str, int], fixed: Iterable[Value]) -> dict[str, int]:
    """Sizes that are parts or multiples of the kernel's ``own``, the smallest that differ from each other and
    from the ``fixed`` numbers.
    """
    taken, found = set(fixed), {}
    for key, size in own.items():
        parts = [size // one for one in FACTORS if size % one == 0 and size // one >= SMALLEST]
        choices = [one for one in (*parts, size, 2 * size, 3 * size) if one not in taken]
        found[key] = next(iter(choices), size)
        taken.add(found[key])
    return found


def _describe(found: Found, request: LookInside) -> About:
    function = inspect.unwrap(found.recipe.function)
    try:
        lines, first = inspect.getsourcelines(function)
    except (OSError, TypeError):
        lines, first = [], 0
    return About(
        kernel=found.name,
        file=inspect.getsourcefile(function) or "",
        config=dict(request.config),
        arguments=dict(request.arguments),
        source=tuple(line.rstrip("\n") for line in lines),
        first_line=first,
    )
