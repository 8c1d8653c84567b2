"""Identity of a function's behaviour, by content: its code and, recursively, all that its code names. A
user's function counts by bytecode, constants, defaults, captured variables and named globals; data by value;
installed modules by name and version; the user's own modules by source. Comments, formatting, paths and line
numbers do not count. What is outside the process (files, clocks, random numbers) is not seen: a function
that names ``open`` or evaluates text has no identity. ``frontend/reads.py`` notes other files at the run.
"""

import builtins
import dis
import enum
import functools
import hashlib
import pickle
import sys
import types
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from tileyard.artifacts.footprint import Footprint
from tileyard.frontend.blame import (
    PYTHON,
    defining_module,
    digest_source,
    installed_version,
    own_name,
)
from tileyard.frontend.recipes import is_instance_of

_PLAIN = (type(None), bool, int, float, complex, str, bytes, types.EllipsisType)
_CONTAINERS = (tuple, list, dict, set, frozenset, types.MappingProxyType)
_OPAQUE_BUILTINS = frozenset({"open", "eval", "exec", "input", "globals", "locals", "__import__"})
_CLASS_NOISE = frozenset({"__dict__", "__weakref__", "__doc__", "__module__", "__annotations__"})
# The content that an abstract class or a dataclass stores about itself is in its methods, too.
_CLASS_NOISE |= {"__abstractmethods__", "_abc_impl", "__dataclass_fields__", "__dataclass_params__"}
_REFUSALS = (TypeError, ValueError, AttributeError, RuntimeError, OSError, pickle.PicklingError)
"""Exceptions that inspecting an object may raise; RecursionError is a RuntimeError."""

_CachedFunction = type(functools.lru_cache(lambda: None))


PACKAGE = "package "
"""The names of parts that are versions of installed modules begin with this."""


def examine(value: object, what: str, *, has_sources: bool = False) -> Footprint:
    """What the behaviour of a function, or of a value with functions, depends on; ``what`` names that part.

    With ``has_sources`` the caller is responsible for files that are opened, and for modules that are
    imported only when it runs.
    """
    walk = _Walk(has_sources=has_sources)
    try:
        walk.visit(value)
    except _REFUSALS:
        walk.known = False
    packages = {f"{PACKAGE}{name}": walk.modules[name] for name in sorted(walk.modules)}
    found = Footprint(parts={what: walk.hash.hexdigest()[:40], **packages}, code=sorted(walk.files))
    if not walk.known:
        found.doubt(f"its {what} cannot be told by content")
    return found


class _Walk:
    """One traversal; equal token streams in ``hash`` are equal closures. Functions, classes,
    modules and instances are entered once, then referred to by ordinal, which ends cycles. Plain
    containers are entered every time, since loading decides whether equal constants are one object;
    only one met inside itself is referred to by its depth.
    """

    def __init__(self, *, has_sources: bool = False) -> None:
        self._has_sources = has_sources
        self.hash = hashlib.sha256()
        self.known = True
        self.modules: dict[str, str] = {}
        self.files: set[str] = set()
        self._ordinals: dict[int, int] = {}
        self._stack: list[int] = []
        self._alive: list[object] = []

    def visit(self, value: object) -> None:
        match value:
            case _ if type(value) in _PLAIN:
                self._add(type(value).__name__, repr(value))
            case _ if type(value) in _CONTAINERS:
                self._visit_container(value)
            case np.ndarray():
                self._visit_array(value)
            case types.CodeType():
                self._visit_code(value)
            case _ if id(value) in self._ordinals:
                self._add("again", str(self._ordinals[id(value)]))
            case _:
                self._ordinals[id(value)] = len(self._ordinals)
                self._alive.append(value)
                self._visit_once(value)

    # ---- plain data -------------------------------------------------------------------------

    def _visit_container(self, value: object) -> None:
        if id(value) in self._stack:
            self._add("inside", str(len(self._stack) - self._stack.index(id(value))))
            return
        self._stack.append(id(value))
        match value:
            case Mapping():
                self._add("dict", str(len(value)))
                for key, item in value.items():
                    self.visit(key)
                    self.visit(item)
            case set() | frozenset():
                self._add("set", *sorted(map(self._digest_apart, value)))
            case tuple() | list():
                self._add(type(value).__name__, str(len(value)))
                for item in value:
                    self.visit(item)
            case _:
                pass
        self._stack.pop()

    def _digest_apart(self, value: object) -> str:
        """The identity of a set's element, which must not depend on earlier elements."""
        apart = _Walk(has_sources=self._has_sources)
        apart.visit(value)
        self.known &= apart.known
        self.modules |= apart.modules
        self.files |= apart.files
        return apart.hash.hexdigest()

    def _visit_array(self, array: "np.ndarray[tuple[int, ...], np.dtype[np.generic]]") -> None:
        self._add(
            "array", type(array).__name__, array.dtype.name, str(array.dtype), str(array.shape)
        )
        if array.dtype.hasobject:
            self.visit(array.tolist())
        else:
            content = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
            self._add(hashlib.sha256(content.data).hexdigest())

    # ---- objects entered once ---------------------------------------------------------------

    def _visit_once(self, value: object) -> None:
        if self._visit_by_name(value):
            return
        match value:
            case types.ModuleType():
                self._visit_module(value)
            case types.FunctionType():
                self._visit_function(value)
            case types.MethodType():
                self._visit_all("method", value.__func__, value.__self__)
            case types.BuiltinMethodType():
                self.known &= value.__self__ is not None
                self._visit_all("builtin method", value.__self__, value.__name__)
            case staticmethod() | classmethod():
                self._visit_all(type(value).__name__, value.__func__)
            case property():
                self._visit_all("property", value.fget, value.fset, value.fdel)
            case types.MemberDescriptorType() | types.GetSetDescriptorType():
                self._add("descriptor", value.__name__)
            case _ if isinstance(value, _CachedFunction):
                self._visit_all("cached", value.__wrapped__)
            case type():
                self._visit_class(value)
            case enum.Enum():
                self._visit_all("member", type(value), value.name, value.value)
            case _ if is_instance_of(value, "torch", "Tensor"):
                self._visit_tensor(value)
            case _:
                self._visit_instance(value)

    def _visit_all(self, kind: str, *parts: object) -> None:
        self._add(kind)
        for part in parts:
            self.visit(part)

    def _visit_by_name(self, value: object) -> bool:
        """Add an object by the name under which an installed module has it; False for everything else."""
        module, name = own_name(value)
        version = installed_version(module) if module and name else None
        if version is None:
            return False
        if module in ("builtins", "io") and name in _OPAQUE_BUILTINS:
            self.known &= name == "open" and self._has_sources
        self._add_module(module, version)
        self._add("name", name)
        return True

    def _visit_function(self, function: types.FunctionType) -> None:
        self._add("function", PYTHON)
        self.files.add(function.__code__.co_filename)
        self.visit(function.__code__)
        self.visit(function.__defaults__)
        self.visit(function.__kwdefaults__)
        for cell in function.__closure__ or ():
            try:
                self.visit(cell.cell_contents)
            except ValueError:
                self._add("empty cell")
        self.visit(vars(function))
        for name in sorted(_global_names(function.__code__)):
            self._visit_global(name, function.__globals__)
        for name, level in sorted(_imports(function.__code__)):
            self._visit_import(name, level, function.__globals__)

    def _visit_global(self, name: str, namespace: Mapping[str, object]) -> None:
        self._add("global", name)
        if name in namespace:
            self.visit(namespace[name])
        elif hasattr(builtins, name):
            self.visit(getattr(builtins, name))
        else:
            self._add("undefined")

    def _visit_import(self, name: str, level: int, namespace: Mapping[str, object]) -> None:
        """Add a module that a function imports when it runs; nothing is imported here."""
        self._add("import", name, str(level))
        if level:
            name = f"{namespace.get('__package__') or ''}.{name}"
        module = sys.modules.get(name)
        version = installed_version(name)
        if version is not None:
            self._add_module(name, version)
        elif module is not None:
            self.visit(module)
        else:
            self.known &= self._has_sources

    def _visit_code(self, code: types.CodeType) -> None:
        self._add(
            "code",
            code.co_code.hex(),
            code.co_exceptiontable.hex(),
            str((code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags)),
            str((code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)),
        )
        self.visit(code.co_consts)

    def _visit_class(self, cls: type) -> None:
        self._add("class", cls.__qualname__)
        self.files.add(str(getattr(sys.modules.get(cls.__module__), "__file__", "")))
        self.visit(cls.__bases__)
        for name, item in sorted(vars(cls).items()):
            if name not in _CLASS_NOISE:
                self._add("attribute", name)
                self.visit(item)

    def _visit_module(self, module: types.ModuleType) -> None:
        name = module.__name__
        version = installed_version(name)
        if version is not None:
            self._add_module(name, version)
            return
        file = getattr(module, "__file__", None)
        if file is None:
            self.known = False
            return
        self._add("source", digest_source(Path(file)))
        self.files.add(file)
        for value in vars(module).values():
            owner = value if isinstance(value, types.ModuleType) else defining_module(value)
            if (
                owner is not None
                and owner is not module
                and installed_version(owner.__name__) is None
            ):
                self.visit(owner)

    def _visit_tensor(self, tensor: object) -> None:
        host = tensor.detach().cpu().contiguous()  # type: ignore[attr-defined]
        torch = sys.modules["torch"]
        bits = host.reshape(-1).view(torch.uint8).numpy()
        self._add("tensor", str(host.dtype), str(tuple(host.shape)))
        self._add(hashlib.sha256(bits.data).hexdigest())

    def _visit_instance(self, value: object) -> None:
        """Add any other object in the form that ``copy`` uses: how to make it, and its state."""
        try:
            reduced = value.__reduce_ex__(4)
        except _REFUSALS:
            self.known = False
            return
        self._alive.append(reduced)
        if isinstance(reduced, str):
            self._visit_all("constant", type(value), reduced)
            return
        parts = [list(part) if isinstance(part, Iterator) else part for part in reduced]
        self._alive.append(parts)
        self._visit_all("instance", *parts)

    # ---- tokens -----------------------------------------------------------------------------

    def _add(self, *tokens: str) -> None:
        for token in tokens:
            data = token.encode("utf-8", "surrogatepass")
            self.hash.update(b"%d:" % len(data) + data)

    def _add_module(self, name: str, version: str) -> None:
        self.modules[name.partition(".")[0]] = version
        self._add("module", name, version)


def _global_names(code: types.CodeType) -> set[str]:
    steps = (step for part in _nested_code(code) for step in dis.get_instructions(part))
    return {step.argval for step in steps if step.opname in ("LOAD_GLOBAL", "LOAD_NAME")}


def _imports(code: types.CodeType) -> set[tuple[str, int]]:
    """The modules that a function imports when it runs, each with its number of leading dots."""
    found = set()
    for part in _nested_code(code):
        steps = [s for s in dis.get_instructions(part) if s.opname != "EXTENDED_ARG"]
        for first, _, step in zip(steps, steps[1:], steps[2:], strict=False):
            if step.opname == "IMPORT_NAME":
                level = first.argval
                found.add((step.argval, level if isinstance(level, int) else 0))
    return found


def _nested_code(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for const in code.co_consts:
        if isinstance(const, types.CodeType):
            yield from _nested_code(const)
