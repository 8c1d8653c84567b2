"""Reads a call's sizes and numbers from the source of a kernel and its callees; runs nothing."""

import ast
import contextlib
import functools
import inspect
import itertools
import sys
import textwrap
import types
from collections import ChainMap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from tileyard.frontend.blame import installed_version, is_users
from tileyard.ir.dtypes import DTYPES

_DYNAMIC = ("dynamic", "symbolic")
_DECORATED = ("function", "jit_impl", "func", "orig_func", "__func__", "fget")
"""The attributes in which decorators, declarations and methods hold a function."""
_VARIABLES = ("Var", "SizeVar")
"""TVM's classes of the values that ``T.dynamic`` returns."""


@dataclass(frozen=True, kw_only=True)
class RuntimeNames:
    """Names in a kernel's source that its function's signature does not contain: ``constants`` are
    sizes of ``T.const``, which count as arguments; ``dynamic`` ones the compiled kernel takes when
    it runs. If it ``is_open``, only the elaborated kernel may name others.
    """

    constants: tuple[str, ...] = ()
    dynamic: tuple[str, ...] = ()
    is_open: bool = False


MOST_ITEMS = 100
"""Most items of a collection that are looked at."""


def find_runtime_names(function: object) -> RuntimeNames:
    """Read the source of a function and of the user's functions that it uses; nothing without a source."""
    reader = _Reader(getattr(function, "__module__", None))
    reader.visit(function)
    return RuntimeNames(
        constants=tuple(reader.constants or ()),
        dynamic=tuple(reader.dynamic),
        is_open=reader.is_open,
    )


class _Reader:
    """Collects names. ``constants`` are those of the function that is read first: they are its parameters."""

    def __init__(self, module: object) -> None:
        self.constants: dict[str, None] | None = None
        self.dynamic: dict[str, None] = {}
        self.is_open = False
        self._package = str(module).partition(".")[0]
        self._seen: dict[int, object] = {}

    def visit(self, value: object) -> None:
        """Read a user's function or class, take a size's name, or look into a collection of such values."""
        if id(value) in self._seen:
            return
        self._seen[id(value)] = value
        match value:
            case functools.partial():
                self.visit((value.func, *value.args, *value.keywords.values()))
            case _ if (inner := _undecorated(value)) is not None:
                self.visit(inner)
            case types.FunctionType():
                self.visit(inspect.unwrap(value))
                if self._is_own(value.__code__.co_filename, value):
                    self._read(value)
            case type() if self._is_own("", value):
                for item in vars(value).values():
                    self.visit(item)
            case Mapping() | list() | tuple():
                items = value.values() if isinstance(value, Mapping) else value
                for item in itertools.islice(items, MOST_ITEMS):
                    self.visit(item)
            case _ if type(value).__name__ in _VARIABLES:
                self.dynamic[str(getattr(value, "name", ""))] = None
            case _ if type(value).__name__ == "PrimFunc":
                for buffer in dict(getattr(value, "buffer_map", {})).values():
                    self.visit(tuple(buffer.shape))
            case _ if not isinstance(value, type | types.ModuleType):
                self.visit(type(value))
            case _:
                pass

    def _is_own(self, file: str, value: object) -> bool:
        """Whether a function or class is the user's, or of the kernel's own package."""
        module = str(getattr(value, "__module__", ""))
        if module.partition(".")[0] == self._package:
            return True
        return is_users(file) if file else installed_version(module or "builtins") is None

    def _read(self, function: types.FunctionType) -> None:
        try:
            tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
        except (OSError, TypeError, SyntaxError):
            return
        cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
        visible = ChainMap(dict(_filled(cells)), function.__globals__)
        is_first, constants = self.constants is None, dict[str, None]()
        self.constants = constants if is_first else self.constants
        # What is in its decorators is not part of a function.
        tops = [part for top in tree.body for part in getattr(top, "body", [top])]
        tops += [top.args for top in tree.body if isinstance(top, ast.FunctionDef)]
        for node in itertools.chain.from_iterable(map(ast.walk, tops)):
            match node:
                case ast.Call(func=func, args=[names, *_]) if _last_name(func) == "const":
                    constants |= dict.fromkeys(_split_names(names))
                case ast.Call(func=func, args=[names, *_]) if _last_name(func) in _DYNAMIC:
                    self._note(names)
                case ast.Subscript(value=value, slice=names) if _last_name(value) == "dyn":
                    self._note(names)
                case ast.FunctionDef() if _is_prim_func(node):
                    self.dynamic |= dict.fromkeys(_scalar_parameters(node))
                case ast.Name() | ast.Attribute():
                    self.visit(_resolve(node, visible))
                case ast.ImportFrom(module=str(name), names=names, level=level):
                    home = str(visible.get("__package__") or "") if level else ""
                    self._visit_import(f"{home}.{name}".lstrip("."), [one.name for one in names])
                case ast.Import(names=names):
                    for one in names:
                        self._visit_import(one.name, [])
                case _:
                    pass

    def _note(self, names: ast.expr) -> None:
        found = _split_names(names)
        self.dynamic |= dict.fromkeys(found)
        self.is_open |= not found

    def _visit_import(self, module: str, names: Sequence[str]) -> None:
        """Follow what a function imports when it runs; nothing is imported here."""
        found = sys.modules.get(module)
        for name in names:
            self.visit(getattr(found, name, None))
        self.is_open |= (found is None or not names) and installed_version(module) is None


def _undecorated(value: object) -> object:
    """The function inside a method, a declaration, or what a decorator made of it; None if there is none."""
    for name in _DECORATED:
        found = inspect.getattr_static(value, name, None)
        if isinstance(found, types.MemberDescriptorType):
            found = getattr(value, name)
        if found is not None:
            return found
    return None


def _filled(cells: Iterable[tuple[str, types.CellType]]) -> Iterator[tuple[str, object]]:
    for name, cell in cells:
        with contextlib.suppress(ValueError):  # it is not bound yet
            yield name, cell.cell_contents


def _resolve(node: ast.expr, visible: Mapping[str, object]) -> object:
    """The value of a name, or an attribute of a module, class or object; None if unknown. Nothing is run."""
    match node:
        case ast.Name(id=name):
            return visible.get(name)
        case ast.Attribute(value=owner, attr=name):
            found = _resolve(owner, visible)
            return None if found is None else inspect.getattr_static(found, name, None)
        case _:
            return None


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


def _scalar_parameters(node: ast.FunctionDef) -> list[str]:
    typed = ((arg.arg, arg.annotation) for arg in node.args.args if arg.annotation is not None)
    return [name for name, annotation in typed if _last_name(annotation) in DTYPES]
