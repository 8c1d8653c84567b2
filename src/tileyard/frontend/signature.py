"""What a kernel's source says of its parameters, read without running it."""

import ast
import inspect
import textwrap
import types
import typing
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tileyard.ir.dtypes import DTYPES

_KINDS: dict[object, type] = {bool: bool, int: int, float: float, str: str}
_KINDS |= {"bool": bool, "int": int, "float": float, "str": str}
_VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


@dataclass(frozen=True, kw_only=True)
class RuntimeNames:
    """Names that a kernel's source gives to what its function's signature does not hold.

    ``constants`` are the sizes named with ``T.const``, which count as arguments; ``dynamic`` are
    the sizes and numbers that the compiled kernel takes when it runs.
    """

    constants: tuple[str, ...] = ()
    dynamic: tuple[str, ...] = ()


def named_parameters(function: Callable[..., object]) -> dict[str, inspect.Parameter]:
    """The parameters of a function that have names of their own."""
    parameters = inspect.signature(function).parameters
    return {name: p for name, p in parameters.items() if p.kind not in _VARIADIC}


def kinds_of(parameter: inspect.Parameter) -> frozenset[type]:
    """The plain types that a parameter's annotation names; empty where it names none."""
    return frozenset(_plain_types(parameter.annotation))


def find_runtime_names(function: object) -> RuntimeNames:
    """Read the source of a function; nothing is found where there is no source."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))  # type: ignore[arg-type]
    except (OSError, TypeError, SyntaxError):
        return RuntimeNames()
    constants: dict[str, None] = {}
    dynamic: dict[str, None] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and node.args:
            names = dict.fromkeys(_split_names(node.args[0]))
            called = _last_name(node.func)
            if called == "const":
                constants |= names
            elif called in ("dynamic", "symbolic"):
                dynamic |= names
        elif isinstance(node, ast.Subscript) and _last_name(node.value) == "dyn":
            dynamic |= dict.fromkeys(_split_names(node.slice))
        elif isinstance(node, ast.FunctionDef) and _is_prim_func(node):
            dynamic |= dict.fromkeys(_scalar_parameters(node))
    return RuntimeNames(constants=tuple(constants), dynamic=tuple(dynamic))


def _plain_types(annotation: object) -> Iterator[type]:
    if isinstance(annotation, str) and "|" in annotation:
        for part in annotation.split("|"):
            yield from _plain_types(part.strip())
    elif typing.get_origin(annotation) in (types.UnionType, typing.Union):
        for part in typing.get_args(annotation):
            yield from _plain_types(part)
    elif isinstance(annotation, (str, type)) and annotation in _KINDS:
        yield _KINDS[annotation]


def _split_names(node: ast.expr) -> list[str]:
    if not isinstance(node, ast.Constant) or not isinstance(node.value, str):
        return []
    return node.value.replace(",", " ").split()


def _last_name(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def _is_prim_func(node: ast.FunctionDef) -> bool:
    decorators = (d.func if isinstance(d, ast.Call) else d for d in node.decorator_list)
    return any(_last_name(decorator) == "prim_func" for decorator in decorators)


def _scalar_parameters(node: ast.FunctionDef) -> Iterator[str]:
    for argument in node.args.args:
        annotation = argument.annotation
        if annotation is not None and _last_name(annotation) in DTYPES:
            yield argument.arg
