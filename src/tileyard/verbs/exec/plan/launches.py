"""Launches of a script's kernels: tensors for arguments that are None, if the kernel does not use them, and
launches again with other content in the outputs that we allocate, to see what depends on it.
"""

from collections.abc import Callable, Mapping, Sequence

import msgspec
import numpy as np

from tileyard.base.errors import BindError, KernelFault
from tileyard.base.model import SourceLine
from tileyard.base.wording import name_line
from tileyard.ir.dtypes import fill_differently, name_of
from tileyard.ir.nodes import Param, Program, Scalar, Tensor, Var
from tileyard.ir.specs import bind_dims, tensor_specs
from tileyard.ir.walk import number_statements, own_effects, walk_expr
from tileyard.measure.compare import default_tolerance, find_changed
from tileyard.targets.base import Array


class StandIns:
    """Tensors in place of None, for a kernel with this Program and the arguments ``given``. ``lines`` are
    those of its statements; ``make`` makes a tensor of a shape and a scalar type.
    """

    def __init__(
        self,
        program: Program,
        lines: Mapping[int, SourceLine],
        given: Sequence[Param],
        make: Callable[[tuple[int, ...], str], object],
    ) -> None:
        self._program = program
        self._make = make
        self._given = given
        owners = {buffer.name: buffer.view_of or buffer.name for buffer in program.buffers}
        self._used: dict[str, SourceLine | None] = {}
        for number, stmt in number_statements(program):
            effects = own_effects(stmt).through(owners)
            for name in effects.read | effects.written:
                self._used.setdefault(name, lines.get(number))

    def fill(self, args: Sequence[object]) -> list[object]:
        """``args`` with a tensor of the right shape for each None; a dimension that only these have is 0, as
        in TileLang. Raises BindError for a None that the kernel uses.
        """
        pairs = list(zip(self._given, args, strict=True))
        absent = [self._is_absent(param, value) for param, value in pairs]
        if not any(absent):
            return list(args)
        there = [pair for pair, is_absent in zip(pairs, absent, strict=True) if not is_absent]
        params = tuple(param for param, _ in there)
        known = msgspec.structs.replace(
            self._program, params=params, dims=_dims_of(self._program, params)
        )
        shapes = [tuple(value.shape) for _, value in there if hasattr(value, "shape")]
        scalars = [value for param, value in there if isinstance(param, Scalar)]
        dims = dict.fromkeys((var.name for var in self._program.dims), 0)
        dims |= bind_dims(known, shapes, scalars)  # type: ignore[arg-type]  # numbers, or it says so
        specs = {spec.name: spec for spec in tensor_specs(self._program, dims)}
        filled = list(args)
        for place, (param, _) in enumerate(pairs):
            if absent[place] and isinstance(param, Tensor):
                spec = specs[param.buffer.name]
                filled[place] = self._make(spec.shape, spec.dtype)
        return filled

    def _is_absent(self, param: Param, value: object) -> bool:
        if value is not None or not isinstance(param, Tensor):
            return False
        name = param.buffer.name
        if name in self._used:
            line = self._used[name]
            where = "" if line is None else f" at {name_line(line.file, line.line)}"
            raise BindError(f"{self._program.name}: {name} is None, and is used{where}")
        return True


def _dims_of(program: Program, params: Sequence[Param]) -> tuple[Var, ...]:
    extents = (e for param in params if isinstance(param, Tensor) for e in param.buffer.shape)
    names = {part.name for extent in extents for part in walk_expr(extent) if isinstance(part, Var)}
    return tuple(var for var in program.dims if var.name in names)


MOST_S = 1.0
"""The longest launch that is repeated, in CPU seconds."""
MOST_BYTES = 64 << 20
"""The most bytes of outputs of a launch that is repeated."""
USUAL = 1000.0
"""The size of the floats in the memory: a sum with a usual number is not that number again."""


class Repeater:
    """Launches a kernel twice more, in place: ``run`` takes all arguments; ``outputs`` are named."""

    def __init__(self, run: Callable[..., object], outputs: Mapping[int, str]) -> None:
        self._run = run
        self._outputs = outputs

    def find_old_reads(
        self, given: Sequence[object], results: Sequence[Array], took_s: float
    ) -> str:
        """A line about result elements that were read before written; empty if none, or if the launch took
        too long. An element that keeps both contents was not written, which may be meant. ``given`` are the
        other arguments.
        """
        if took_s > MOST_S or sum(one.nbytes for one in results) > MOST_BYTES:
            return ""
        try:
            fillings = [
                self._launch(given, results, inverted=inverted) for inverted in (False, True)
            ]
        except KernelFault as fault:
            return f"with other content in {', '.join(self._outputs.values())} it fails: {fault}"
        for name, one, other in zip(self._outputs.values(), *fillings, strict=True):
            (held, first), (held_then, second) = one, other
            changed = find_changed(second, first, default_tolerance(name_of(first.dtype)))
            kept = (first.reshape(-1) == held) & (second.reshape(-1) == held_then)
            (places,) = np.nonzero(changed & ~kept)
            if places.size:
                index = ", ".join(map(str, np.unravel_index(places[0], first.shape)))
                return (
                    f"{places.size} of {first.size} elements of {name} depend on what {name} held before,"
                    f" {name}[{index}] first: they are read before they are written"
                )
        return ""

    def _launch(
        self, given: Sequence[object], results: Sequence[Array], *, inverted: bool
    ) -> list[tuple[Array, Array]]:
        """What the memory of each output held before, flat, and after a launch."""
        outputs = [np.empty(one.shape, one.dtype) for one in results]
        for output in outputs:
            fill_differently(output, name_of(output.dtype), inverted=inverted, most=USUAL)
        before = [output.reshape(-1).copy() for output in outputs]
        arguments = list(given)
        for position, output in sorted(
            zip(self._outputs, outputs, strict=True), key=lambda one: one[0]
        ):
            arguments.insert(position, output)
        self._run(*arguments)
        return list(zip(before, outputs, strict=True))
