"""Arguments that a script leaves out by passing None, for parameters that its kernel does not use."""

from collections.abc import Callable, Mapping, Sequence

import msgspec

from tileyard.base.errors import BindError
from tileyard.base.model import SourceLine
from tileyard.base.wording import name_line
from tileyard.ir.nodes import Param, Program, Scalar, Tensor, Var
from tileyard.ir.specs import bind_dims, tensor_specs
from tileyard.ir.walk import number_statements, own_effects, walk_expr


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
