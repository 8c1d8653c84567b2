"""Arguments that a script leaves out by giving None, for parameters that its kernel does not use."""

from collections.abc import Callable, Sequence

import msgspec

from tileyard.ir.effects import buffer_effects
from tileyard.ir.nodes import Param, Program, Scalar, Tensor
from tileyard.ir.specs import bind_dims, tensor_specs


class StandIns:
    """Tensors in the place of None, for a kernel with this Program, which is called with ``given``.

    ``make`` makes one of a shape and a scalar type.
    """

    def __init__(
        self,
        program: Program,
        given: Sequence[Param],
        make: Callable[[tuple[int, ...], str], object],
    ) -> None:
        self._program = program
        self._make = make
        self._given = given
        owners = {buffer.name: buffer.view_of or buffer.name for buffer in program.buffers}
        effects = buffer_effects(program.body).through(owners)
        self._used = effects.read | effects.written

    def fill(self, args: Sequence[object]) -> list[object]:
        """``args`` with a tensor of the right shape for each None that may be one.

        Raises UsageError where a dimension is that of such a tensor only.
        """
        pairs = list(zip(self._given, args, strict=True))
        absent = [self._is_absent(param, value) for param, value in pairs]
        if not any(absent):
            return list(args)
        there = [pair for pair, is_absent in zip(pairs, absent, strict=True) if not is_absent]
        known = msgspec.structs.replace(self._program, params=tuple(param for param, _ in there))
        shapes = [tuple(value.shape) for _, value in there if hasattr(value, "shape")]
        scalars = [value for param, value in there if isinstance(param, Scalar)]
        dims = bind_dims(known, shapes, scalars)  # type: ignore[arg-type]  # numbers, or it says so
        specs = {spec.name: spec for spec in tensor_specs(self._program, dims)}
        filled = list(args)
        for place, (param, _) in enumerate(pairs):
            if absent[place] and isinstance(param, Tensor):
                spec = specs[param.buffer.name]
                filled[place] = self._make(spec.shape, spec.dtype)
        return filled

    def _is_absent(self, param: Param, value: object) -> bool:
        return value is None and isinstance(param, Tensor) and param.buffer.name not in self._used
