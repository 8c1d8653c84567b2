"""Finds the kernels that a test builds in its own body, by reading it: nothing of the test is run.

What is looked for is a call of ``tileyard.compile``. Its arguments are evaluated where they depend on
nothing but the module, the test's parameters and plain assignments before; so is everything on
the way there, such as a helper that the test calls. What depends on more is not found, and compiles while
the test runs.
"""

import ast
import builtins
import inspect
import linecache
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import CodeType, FunctionType
from typing import Any, NoReturn

from tileyard.api import kernels
from tileyard.errors import TileyardError
from tileyard.frontend.blame import blame_user
from tileyard.pytest_plugin.tilelang_jit import watch_tilelang

MAX_DEPTH = 4
"""How many calls lead from a test to a compilation at most."""


@dataclass(frozen=True, kw_only=True)
class FoundCompile:
    """One call of ``tileyard.compile`` with its arguments."""

    prim_func: Any
    target: str
    out_idx: Sequence[int] | None


class UnknownNameError(Exception):
    """An expression depends on what is known only when the test runs."""


MISSED = (UnknownNameError, TileyardError, TypeError)
"""What reading stumbles over: names, the user's own code, arguments that do not fit. The test will tell."""


def may_compile(function: Callable[..., object]) -> bool:
    """Whether it is worth reading: its module knows of ``tileyard``."""
    names = getattr(function, "__globals__", {})
    lines = linecache.getlines(str(names.get("__file__", "")))
    return any("tileyard" in line for line in lines)


def find_compiles(
    function: Callable[..., object], values: Mapping[str, object]
) -> Iterator[FoundCompile]:
    """The compilations in a function's body, in order; ``values`` are those of its parameters."""
    yield from _Reader(function, values, MAX_DEPTH).read()


def forbid_compiling() -> None:
    """In a copy that only reads: what would compile, or run what is compiled, is not evaluated."""
    kernels.lower_prim_func = _refuse  # type: ignore[attr-defined]
    watch_tilelang(_refuse, lambda: None)


def _refuse(*_: object, **__: object) -> NoReturn:
    raise UnknownNameError("a kernel")


class _Reader:
    """Reads one function. ``_known`` has values, and assignments that nobody has needed yet."""

    def __init__(
        self, function: Callable[..., object], values: Mapping[str, object], depth: int
    ) -> None:
        self._function = inspect.unwrap(function)
        self._globals: dict[str, Any] = getattr(self._function, "__globals__", {})
        self._known: dict[str, Any] = dict(values)
        self._pending: dict[str, ast.stmt | ast.expr] = {}
        self._unknown: set[str] = set()
        self._depth = depth
        self._file = ""

    def read(self) -> Iterator[FoundCompile]:
        """All that can be found."""
        node = self._parse()
        if node is None:
            return
        for argument in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs):
            if argument.arg not in self._known:
                self._unknown.add(argument.arg)
        yield from self._read_all(node.body)

    def _parse(self) -> ast.FunctionDef | None:
        """The function as it stands in its file, with the file's line numbers."""
        code = getattr(self._function, "__code__", None)
        if not isinstance(code, CodeType):
            return None
        self._file = code.co_filename
        try:
            tree = ast.parse("".join(linecache.getlines(self._file)))
        except SyntaxError:
            return None
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef) and node.name == code.co_name:
                first = min([node.lineno, *(item.lineno for item in node.decorator_list)])
                if first == code.co_firstlineno:
                    return node
        return None

    # ---- statements ---------------------------------------------------------------------------

    def _read_all(self, statements: Sequence[ast.stmt]) -> Iterator[FoundCompile]:
        for statement in statements:
            yield from self._read(statement)

    def _read(self, statement: ast.stmt) -> Iterator[FoundCompile]:
        match statement:
            case ast.FunctionDef() | ast.ClassDef():
                self._postpone(statement.name, statement)
            case ast.Import() | ast.ImportFrom():
                for alias in statement.names:
                    self._postpone(alias.asname or alias.name.partition(".")[0], statement)
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                yield from self._read_calls(value)
                self._postpone(name, value)
            case ast.If(test=test, body=body, orelse=orelse):
                yield from self._read_all(body if self._is_true(test) else orelse)
            case ast.With(items=items, body=body):
                for item in items:
                    yield from self._read_calls(item.context_expr)
                    self._forget(item)
                yield from self._read_all(body)
            case _:
                yield from self._read_calls(statement)
                self._forget(statement)

    def _postpone(self, name: str, node: ast.stmt | ast.expr) -> None:
        self._known.pop(name, None)
        self._unknown.discard(name)
        self._pending[name] = node

    def _forget(self, node: ast.AST) -> None:
        """What a statement binds in ways that are not followed is not known from here on."""
        for part in ast.walk(node):
            if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store):
                self._known.pop(part.id, None)
                self._pending.pop(part.id, None)
                self._unknown.add(part.id)

    def _is_true(self, test: ast.expr) -> bool:
        try:
            return bool(self._evaluate(test))
        except MISSED:
            return False

    # ---- expressions --------------------------------------------------------------------------

    def _read_calls(self, node: ast.AST) -> Iterator[FoundCompile]:
        for part in ast.walk(node):
            if isinstance(part, ast.Call):
                try:
                    yield from self._read_call(part)
                except MISSED:
                    continue

    def _read_call(self, call: ast.Call) -> Iterator[FoundCompile]:
        function = self._evaluate(call.func)
        is_compile = function is kernels.compile
        follows = isinstance(function, FunctionType) and self._depth > 1
        if not (is_compile or (follows and function.__globals__ is self._globals)):
            return
        args = [self._evaluate(argument) for argument in call.args]
        named = {item.arg: self._evaluate(item.value) for item in call.keywords if item.arg}
        bound = inspect.signature(function).bind(*args, **named)
        bound.apply_defaults()
        if not is_compile:
            yield from _Reader(function, bound.arguments, self._depth - 1).read()
            return
        given = bound.arguments
        yield FoundCompile(
            prim_func=given["prim_func"], target=given["target"], out_idx=given["out_idx"]
        )

    def _evaluate(self, expression: ast.expr) -> Any:  # noqa: ANN401 - the user's
        self._resolve(expression)
        with blame_user():
            code = compile(ast.Expression(expression), self._file, "eval")
            return eval(code, {**self._globals, **self._known})  # in a copy that was made for it

    def _resolve(self, node: ast.AST) -> None:
        """Make all names known that occur in it. Raises UnknownNameError."""
        own = {
            part.id
            for part in ast.walk(node)
            if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)
        }
        own |= {part.arg for part in ast.walk(node) if isinstance(part, ast.arg)}
        for part in ast.walk(node):
            if isinstance(part, ast.Name) and part.id not in own and part.id not in self._known:
                self._resolve_name(part.id)

    def _resolve_name(self, name: str) -> None:
        if name in self._unknown:
            raise UnknownNameError(name)
        if name not in self._pending:
            if name not in self._globals and not hasattr(builtins, name):
                raise UnknownNameError(name)
            return
        node = self._pending.pop(name)
        self._unknown.add(name)  # should it depend on itself
        if isinstance(node, ast.expr):
            value = self._evaluate(node)
        else:
            self._resolve(node)
            names = {**self._globals, **self._known}
            with blame_user():
                exec(compile(ast.Module([node], []), self._file, "exec"), names)  # as above
            value = names[name]
        self._unknown.discard(name)
        self._known[name] = value
