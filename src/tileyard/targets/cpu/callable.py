"""A kernel as a Python function on the caller's own arrays."""

from collections.abc import Sequence

from tileyard.errors import BindError
from tileyard.ir.nodes import Scalar, Tensor
from tileyard.ir.specs import tensor_specs
from tileyard.model import TensorSpec, Value
from tileyard.targets.cpu.binary import CpuBinary
from tileyard.targets.cpu.operands import (
    Operand,
    allocator,
    check_writable,
    overlaps,
    plain_number,
    read_operand,
    write_back,
)
from tileyard.targets.cpu.pool import Pool, Sizes
from tileyard.targets.cpu.told import LineTable


class CpuCallable:
    """Call it with the kernel's parameters in calling order, with or without its ``out`` tensors.

    Takes NumPy arrays or torch CPU tensors, uses them in place where they are contiguous, and
    writes ``out`` and ``inout`` tensors in place. Without the ``out`` tensors it allocates and
    returns them: one, or a tuple, of the same kind as the arguments; else it returns None.

    Raises BindError where an argument does not fit, KernelFault where the kernel itself fails.
    """

    def __init__(self, binary: CpuBinary, pool: Pool, lines: LineTable) -> None:
        self._binary = binary
        self._lines = lines
        self._pool = pool
        self._params = binary.signature.params
        self._known: dict[object, tuple[Sequence[TensorSpec], list[int], Sizes]] = {}
        binary.reserve(pool)

    def __call__(self, *arguments: object) -> object:
        """Run the kernel once and wait."""
        taken = self._match(arguments)
        operands = {
            param.buffer.name: read_operand(argument, param)
            for param, argument in taken
            if isinstance(param, Tensor)
        }
        scalars = tuple(
            plain_number(argument, param.var.name)
            for param, argument in taken
            if isinstance(param, Scalar)
        )
        specs, numbers, sizes = self._sizes(operands, scalars)
        outputs = []
        make = allocator(arguments)
        for param in self._params:
            if not isinstance(param, Tensor):
                continue
            name = param.buffer.name
            if name not in operands:
                spec = next(spec for spec in specs if spec.name == name)
                outputs.append(make(spec.shape, spec.dtype))
                operands[name] = read_operand(outputs[-1], param)
        self._check_written(taken, operands)
        addresses = [
            operands[param.buffer.name].address
            for param in self._params
            if isinstance(param, Tensor)
        ]
        binding = self._binary.bind(addresses, numbers, sizes, self._lines)
        if self._pool.launch(binding):
            raise self._binary.explain(binding)
        for param, argument in taken:
            if isinstance(param, Tensor) and param.role != "in":
                operand = operands[param.buffer.name]
                if operand.is_copy:
                    write_back(argument, operand)
        if not outputs:
            return None
        return outputs[0] if len(outputs) == 1 else tuple(outputs)

    def _match(self, arguments: tuple[object, ...]) -> list[tuple[Tensor | Scalar, object]]:
        """The parameters that were given, each with its argument."""
        given = [p for p in self._params if isinstance(p, Scalar) or p.role != "out"]
        for params in (list(self._params), given):
            if len(arguments) == len(params):
                return list(zip(params, arguments, strict=True))
        name = self._binary.signature.name
        counts = sorted({len(given), len(self._params)})
        raise BindError(
            f"{name} takes {' or '.join(map(str, counts))} arguments, not {len(arguments)}",
            hint=f"in this order: {', '.join(map(_name, self._params))}",
        )

    def _sizes(
        self, operands: dict[str, Operand], scalars: tuple[Value, ...]
    ) -> tuple[Sequence[TensorSpec], list[int], Sizes]:
        """Shapes, the runtime's numbers and the sizes of the grids; the same shapes are seen often."""
        shapes = tuple(operand.shape for operand in operands.values())
        key = (shapes, scalars, tuple(map(type, scalars)))
        if key not in self._known:
            dims = self._binary.dims(shapes, scalars)
            numbers = self._binary.numbers(dims, scalars)
            specs = tensor_specs(self._binary.signature, dims)
            self._known[key] = (specs, numbers, self._binary.sizes(numbers))
        return self._known[key]

    def _check_written(
        self, taken: list[tuple[Tensor | Scalar, object]], operands: dict[str, Operand]
    ) -> None:
        """Arrays that are written must be writable and share no memory with any other."""
        for param, argument in taken:
            if not isinstance(param, Tensor) or param.role == "in":
                continue
            name = param.buffer.name
            check_writable(argument, name)
            for other, operand in operands.items():
                if other != name and overlaps(operands[name], operand):
                    raise BindError(
                        f"{name} is written, and shares memory with {other}",
                        hint="pass a copy of one of them",
                    )


def _name(param: Tensor | Scalar) -> str:
    return param.buffer.name if isinstance(param, Tensor) else param.var.name
