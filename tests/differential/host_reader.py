"""Runs a lowered host module from its printed text, and notes what it does: a second reading of launches.

The text is Python in TVM's dialect. It is executed here with objects that play the arguments of one
call, so that its own checks of shapes and strides are made, too.
"""

import ast
import contextlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

Number = int | float | bool


@dataclass(frozen=True)
class Tensor:
    """One argument of the call: a row-major array."""

    position: int
    shape: tuple[int, ...]

    @property
    def strides(self) -> tuple[int, ...]:
        """In elements."""
        return tuple(math.prod(self.shape[axis + 1 :]) for axis in range(len(self.shape)))


@dataclass(frozen=True)
class Data:
    """The address of an argument's elements."""

    position: int


@dataclass(eq=False)
class Map:
    """A place for a TMA descriptor, and the numbers that it is made from."""

    made_from: tuple[Any, ...] = ()


@dataclass(eq=False)
class Memory:
    """Memory that the host module takes for the call."""

    shape: tuple[int, ...]
    dtype: str

    @property
    def data(self) -> "Memory":
        """Its address."""
        return self


@dataclass
class Call:
    """What one run of the host module did."""

    launches: list[tuple[str, tuple[Any, ...]]] = field(default_factory=list)
    maps: list[Map] = field(default_factory=list)
    memories: list[Memory] = field(default_factory=list)


class _Agreeable:
    """A dtype's code, width or lanes: this call's types are as they should be."""

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        return True


_FIELDS = {
    1: lambda tensor: Data(tensor.position),
    2: lambda tensor: tensor.shape,
    3: lambda tensor: tensor.strides,
    4: lambda tensor: len(tensor.shape),
    **dict.fromkeys((5, 6, 7), lambda _: _Agreeable()),
    8: lambda _: 0,
    9: lambda _: 0,
    10: lambda _: 2,
}
_TENSOR_INDEX, _INDEX_OF = 70, {int: 1, bool: 2, float: 3}


def run_host(text: str, arguments: Sequence[Tensor | Number]) -> Call:
    """What the host module of this text does when it is called with these arguments."""
    call = Call()
    (function,) = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef)]
    function.decorator_list, function.returns = [], None
    for argument in function.args.args:
        argument.annotation = None
    names: dict[str, Any] = {"T": _dialect(call)}
    exec(
        compile(ast.Module(body=[_Plain().visit(function)], type_ignores=[]), "host", "exec"), names
    )
    names[function.name](None, tuple(arguments), len(arguments), None)
    return call


class _Plain(ast.NodeTransformer):
    """Takes types off assignments: they are made in TVM's dialect, too."""

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        assert node.value is not None
        plain = ast.Assign(targets=[node.target], value=self.visit(node.value))
        return ast.fix_missing_locations(ast.copy_location(plain, node))


def _dialect(call: Call) -> SimpleNamespace:
    """``T`` as the text uses it."""

    def struct_get(owner: Any, index: int, number: int, _: str) -> Any:
        if isinstance(owner, Tensor):
            return _FIELDS[number](owner)
        value = owner[index]
        if number == 15:
            return value
        assert number == 13
        return _TENSOR_INDEX if isinstance(value, Tensor) else _INDEX_OF[type(value)]

    def call_packed(name: str, *given: Any) -> None:
        if name.startswith("__tvm_tensormap_create"):
            given[0].made_from = (name, *given[1:])
            call.maps.append(given[0])
        elif not name.startswith("__tvm_"):
            call.launches.append((name, given))

    def alloc_buffer(shape: tuple[int, ...], dtype: str = "float32", **_: Any) -> Memory:
        call.memories.append(Memory(shape, dtype))
        return call.memories[-1]

    def decl_buffer(*_: Any, data: Any, **__: Any) -> Any:
        return data

    @contextlib.contextmanager
    def attr(*_: Any) -> Iterator[None]:
        yield

    def cast(dtype: str, value: Number) -> Number:
        if dtype == "bool":
            return bool(value)
        return float(value) if dtype.startswith("float") else int(value)

    return SimpleNamespace(
        tvm_struct_get=struct_get,
        call_packed=call_packed,
        alloc_buffer=alloc_buffer,
        decl_buffer=decl_buffer,
        attr=attr,
        Cast=cast,
        Select=lambda condition, yes, no: yes if condition else no,
        if_then_else=lambda condition, yes, no: yes if condition else no,
        handle=lambda *_: None,
        handle_add_byte_offset=lambda handle, _: handle,
        isnullptr=lambda handle: handle is None,
        tvm_stack_alloca=lambda *_: Map(),
        func_attr=lambda _: None,
        target=lambda _: None,
        bool=lambda value=False: value,
        min=min,
        max=max,
        **{
            name: lambda value=0: value
            for name in [
                "int8",
                "int32",
                "int64",
                "uint8",
                "uint16",
                "uint32",
                "uint64",
                "float16",
                "float32",
                "float64",
            ]
        },
    )
