"""Where objects and files come from: an installed package, or the user's own code."""

import ast
import contextlib
import functools
import hashlib
import importlib.metadata
import importlib.util
import sys
import sysconfig
import types
from pathlib import Path

from tileyard.frontend.footprint import SITE_FOLDERS

PYTHON = f"python {sys.version_info.major}.{sys.version_info.minor}"
"""The language that bytecode is for."""

_SHY_MODULES = ("torch", "numpy")
"""Modules with functions that do not say where they come from."""

_NO_PYTHON = frozenset({".cc", ".cpp", ".h", ".pxi", ".pyx"})
"""Sources of libraries whose frames stand in Python's tracebacks, by paths that only their authors have."""

_STANDARD_LIBRARY = Path(sysconfig.get_path("stdlib"))
_TILEYARD = Path(__file__).resolve().parents[1]


def own_name(value: object) -> tuple[str, str]:
    """The module and the name under which an object can be found again; empty where it cannot.

    A function is asked for its code's name, because ``functools.wraps`` makes it bear another's.
    """
    if isinstance(value, types.FunctionType):
        home: object = value.__globals__.get("__name__")
        names: list[object] = [value.__code__.co_qualname]
    else:
        home = getattr(value, "__module__", None)
        names = [getattr(value, attribute, None) for attribute in ("__qualname__", "__name__")]
    for module in (
        (home, *_SHY_MODULES) if isinstance(value, types.BuiltinFunctionType) else (home,)
    ):
        for name in names:
            if not isinstance(module, str) or not isinstance(name, str) or "<" in name:
                continue
            # A library's class or function may be hidden by what bears its name; it stays its own.
            if isinstance(value, (type, types.FunctionType)) or _look_up(module, name) is value:
                return module, name
    return "", ""


def _look_up(module: str, qualname: str) -> object:
    found: object = None
    if module in sys.modules:
        first, *rest = qualname.split(".")
        found = vars(sys.modules[module]).get(first)
        for part in rest:
            found = getattr(found, part, None)
    return found


def defining_module(value: object) -> types.ModuleType | None:
    """The loaded module in which a function or class was defined, where it says so."""
    name = getattr(value, "__module__", None)
    return sys.modules.get(name) if isinstance(name, str) else None


def digest_source(file: Path) -> str:
    """What a source file says, comments and formatting apart; any other file byte for byte."""
    data = file.read_bytes()
    if file.suffix == ".py":
        with contextlib.suppress(SyntaxError):
            data = ast.dump(ast.parse(data)).encode()
    return hashlib.sha256(data).hexdigest()


def installed_version(module: str) -> str | None:
    """The version of the installed package that a module belongs to; None for the user's own."""
    return _package_version(module.partition(".")[0])


@functools.cache
def _package_version(top: str) -> str | None:
    if top in sys.stdlib_module_names:
        return PYTHON
    module = sys.modules.get(top)
    spec = module.__spec__ if module is not None else importlib.util.find_spec(top)
    origin = getattr(spec, "origin", None)
    places = [origin] if origin else list(getattr(spec, "submodule_search_locations", None) or [])
    if not places or not _is_site(Path(places[0])):
        return None
    version = getattr(module, "__version__", None)
    if version is None:
        try:
            version = importlib.metadata.version(top)
        except importlib.metadata.PackageNotFoundError:
            return None
    return str(version)


def is_users(file: str) -> bool:
    """Whether a source file (or a notebook's cell) is the user's: no package, no library, not ours."""
    path = Path(file)
    if file.startswith("<"):
        return file == "<string>" or file.startswith("<ipython")
    if path.suffix in _NO_PYTHON or _is_site(path) or path.is_relative_to(_STANDARD_LIBRARY):
        return False
    return not path.is_relative_to(_TILEYARD)


def _is_site(path: Path) -> bool:
    roots = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    return bool(SITE_FOLDERS.intersection(path.parts)) or any(
        path.is_relative_to(root) for root in roots
    )
