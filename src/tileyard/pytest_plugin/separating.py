"""Cuts the blocks that hold a device out of a test's function, so that they run elsewhere: values
in, values out. ``with tile_device() as device:`` becomes a call with the function's variables; its
body a function of those it uses. Both sides read the same file.
"""

import ast
import builtins
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from types import CodeType, FunctionType
from typing import Any, Final

from _pytest.assertion import rewrite

from tileyard.pytest_plugin.bodies import find_definition

DEVICE: Final = "tile_device"
GIVEN: Final = "__tile_given"
HELD: Final = "__tile_held"
LEAVES: Final = (
    ast.Return,
    ast.Yield,
    ast.YieldFrom,
    ast.Await,
    ast.Global,
    ast.Nonlocal,
    ast.Delete,
)
"""Statements that a block may not contain, because it runs elsewhere."""
SCOPES: Final = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)


class NotSeparableError(Exception):
    """Why the part of a test that holds a device, ``devices`` if known, cannot run apart from the rest."""

    def __init__(self, reason: str, devices: int = 1) -> None:
        super().__init__(reason)
        self.devices = devices


@dataclass(frozen=True, kw_only=True)
class Block:
    """One block: the variables that it uses or sets, those among them that are its devices, and its code."""

    names: tuple[str, ...]
    devices: frozenset[str]
    code: CodeType


@dataclass(frozen=True, kw_only=True)
class CutTest:
    """A test's function without its blocks, and the blocks."""

    function: FunctionType
    code: CodeType
    blocks: tuple[Block, ...]

    def apply(self) -> None:
        """Replace the function's code, in this process alone, with one that calls its blocks."""
        _provide_assert(self.function)
        self.function.__code__ = self.code

    def pick(self, number: int, values: Mapping[str, object]) -> dict[str, object]:
        """The function's variables that a block needs."""
        block = self.blocks[number]
        return {
            name: values[name]
            for name in block.names
            if name in values and name not in block.devices
        }

    def run(self, number: int, values: Mapping[str, object], held: object) -> dict[str, Any]:
        """Run a block that holds devices; returns the variables that it uses or sets, as left."""
        block = self.blocks[number]
        _provide_assert(self.function)
        given = {**values, HELD: held}
        left: dict[str, Any] = FunctionType(block.code, self.function.__globals__)(given)
        return {name: left[name] for name in block.names if name in left}


@cache
def cut(function: Callable[..., object]) -> CutTest:
    """Cut a test's function; one that asks for no device is unchanged. Raises NotSeparableError."""
    plain = inspect.unwrap(function)
    if not isinstance(plain, FunctionType):
        raise NotSeparableError("it is not a function")
    if DEVICE not in inspect.signature(plain).parameters:
        return CutTest(function=plain, code=plain.__code__, blocks=())
    node = find_definition(plain)
    if node is None or plain.__code__.co_freevars:
        raise NotSeparableError("its source cannot be read as a function of its own")
    _refuse_private(node)
    cutter = _Cutter(plain.__code__)
    found = ast.FunctionDef(
        **{**dict(ast.iter_fields(node)), "decorator_list": [], "body": cutter.visit_all(node.body)}
    )
    ast.copy_location(found, node)
    cutter.refuse_other_uses(found)
    return CutTest(
        function=plain,
        code=_compile(found, plain.__code__.co_filename),
        blocks=tuple(cutter.blocks),
    )


class _Cutter(ast.NodeTransformer):
    def __init__(self, code: CodeType) -> None:
        self.blocks: list[Block] = []
        self._file = code.co_filename
        self._locals = {*code.co_varnames, *code.co_cellvars}

    def visit_all(self, body: list[ast.stmt]) -> list[ast.stmt]:
        """Statements of the test's function, with each block replaced."""
        return [new for statement in body for new in _as_list(self.visit(statement))]

    def generic_visit(self, node: ast.AST) -> ast.AST:
        """Leave functions and classes within the test unchanged."""
        return node if isinstance(node, SCOPES) else super().generic_visit(node)

    def visit_With(self, node: ast.With) -> ast.AST | list[ast.stmt]:
        """Replace it, if it is a block."""
        if not any(_is_block(item.context_expr) for item in node.items):
            return self.generic_visit(node)
        call, target = node.items[0].context_expr, node.items[0].optional_vars
        if len(node.items) != 1 or not isinstance(call, ast.Call) or not _is_plain(target):
            raise NotSeparableError(f"line {node.lineno} enters more than {DEVICE}()")
        self._refuse_leaving(node)
        devices = _names_in([target] if target is not None else [])
        names = tuple(sorted((_names_in(node.body) | devices) & self._locals - {DEVICE}))
        named = f"{ast.unparse(target)} = {GIVEN}[{HELD!r}]" if target is not None else ""
        body = [
            *_bind(names, node),
            *_parse(named, node),
            *node.body,
            *_parse("return locals()", node),
        ]
        (outer,) = _parse(f"def block({GIVEN}): pass", node)
        if not isinstance(outer, ast.FunctionDef):
            raise AssertionError("a definition is a definition")
        outer.body = body
        code = _compile(outer, self._file)
        self.blocks.append(Block(names=names, devices=devices, code=code))
        count = "".join(f", {ast.unparse(keyword.value)}" for keyword in call.keywords)
        asked = f"{GIVEN} = {DEVICE}.block({len(self.blocks) - 1}, locals(){count})"
        return [*_parse(asked, node), *_bind(names, node)]

    def _refuse_leaving(self, node: ast.With) -> None:
        for part in _walk_here(node.body):
            if isinstance(part, LEAVES) or getattr(part, "id", "") == DEVICE:
                raise NotSeparableError(
                    f"line {part.lineno} leaves the block, or is more than its values"
                )
        for part in _walk_here(node.body, within_loops=False):
            if isinstance(part, ast.Break | ast.Continue):
                raise NotSeparableError(f"line {part.lineno} leaves the block")

    def refuse_other_uses(self, node: ast.FunctionDef) -> None:
        """Raise NotSeparableError if the device is used in ways that are not followed."""
        called = {
            id(part.value)
            for part in ast.walk(node)
            if isinstance(part, ast.Attribute) and part.attr in ("run", "block")
        }
        for part in ast.walk(node):
            if isinstance(part, ast.Name) and part.id == DEVICE and id(part) not in called:
                raise NotSeparableError(
                    f"line {part.lineno} uses {DEVICE} in another way than for a block"
                )


def _refuse_private(node: ast.FunctionDef) -> None:
    """Raise NotSeparableError for names that get a class's name as a prefix when compiled within it."""
    for part in ast.walk(node):
        name = getattr(part, "id", "") or getattr(part, "attr", "")
        if name.startswith("__") and not name.endswith("__"):
            raise NotSeparableError(
                f"line {getattr(part, 'lineno', 0)} uses the private name {name}"
            )


def _is_block(node: ast.expr) -> bool:
    """Whether it is ``tile_device()``, or that with a ``count``."""
    return (
        isinstance(node, ast.Call)
        and getattr(node.func, "id", "") == DEVICE
        and not node.args
        and [keyword.arg for keyword in node.keywords] in ([], ["count"])
    )


def _is_plain(target: ast.expr | None) -> bool:
    """Whether the devices are assigned to a variable, several variables, or nothing."""
    parts = target.elts if isinstance(target, ast.Tuple | ast.List) else [target]
    return target is None or all(isinstance(part, ast.Name) for part in parts)


def _names_in(nodes: Sequence[ast.AST]) -> frozenset[str]:
    return frozenset(
        part.id for node in nodes for part in ast.walk(node) if isinstance(part, ast.Name)
    )


def _walk_here(body: list[ast.stmt], *, within_loops: bool = True) -> Iterator[ast.stmt | ast.expr]:
    """All nodes except those of functions and classes within, and of loops unless ``within_loops``."""
    left: list[ast.AST] = list(body)
    while left:
        part = left.pop()
        if isinstance(part, SCOPES) or (not within_loops and isinstance(part, ast.For | ast.While)):
            continue
        if isinstance(part, ast.stmt | ast.expr):
            yield part
        left += ast.iter_child_nodes(part)


def _bind(names: tuple[str, ...], near: ast.stmt) -> list[ast.stmt]:
    lines = [f"if {name!r} in {GIVEN}: {name} = {GIVEN}[{name!r}]" for name in names]
    return _parse("\n".join(lines), near)


def _parse(text: str, near: ast.stmt) -> list[ast.stmt]:
    """Statements that get the line of another one."""
    body = ast.parse(text).body
    for statement in body:
        for part in ast.walk(statement):
            ast.copy_location(part, near)
    return body


def _compile(node: ast.FunctionDef, file: str) -> CodeType:
    """The code of a function, with pytest's assert statements."""
    module = ast.Module([node], [])
    ast.fix_missing_locations(module)
    rewrite.rewrite_asserts(module, b"")
    compiled = compile(module, file, "exec", dont_inherit=True)
    codes = [const for const in compiled.co_consts if isinstance(const, CodeType)]
    return next(code for code in codes if code.co_name == node.name)


def _provide_assert(function: FunctionType) -> None:
    """Add what rewritten assert statements refer to, if the module does not have it."""
    function.__globals__.setdefault("@py_builtins", builtins)
    function.__globals__.setdefault("@pytest_ar", rewrite)


def _as_list(found: Any) -> list[ast.stmt]:  # noqa: ANN401 - a node, or several
    return found if isinstance(found, list) else [found]
