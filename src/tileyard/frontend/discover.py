"""Finds the kernels of a file: imports it, and separates its own kernels from imported ones."""

import importlib.util
import re
import stat
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType

from tileyard.base.errors import KernelFileError, UsageError, UserCodeError
from tileyard.base.wording import install_extra, show_value
from tileyard.frontend.blame import blame_user
from tileyard.frontend.declare import user_function
from tileyard.frontend.found import Found
from tileyard.frontend.no_device import assume_target
from tileyard.frontend.recipes import read_recipe

_GUARD_HINT = "what runs the kernel belongs below if __name__ == '__main__'"


def import_file(path: Path) -> ModuleType:
    """Run a file as a module, not as ``__main__``, with its folder first on ``sys.path`` unless that is one
    like ``/tmp``. Both stay, because its functions may import more when they run. ``sys.argv`` has only the
    file meanwhile. Raises KernelFileError if the file is missing, is not Python, or raises.
    """
    path = path.absolute()
    if not path.is_file():
        missing = "is a directory" if path.is_dir() else "does not exist"
        raise KernelFileError(f"kernel file {path} {missing}")
    if path.suffix != ".py":
        raise KernelFileError(f"kernel file {path} is no Python file")
    name = _name_module(path)
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise KernelFileError(f"kernel file {path} cannot be imported")
    module = importlib.util.module_from_spec(spec)
    folders = [] if _is_like_tmp(path.parent) else [str(path.parent)]
    sys.path[:0] = folders
    sys.modules[name] = module
    argv, sys.argv = sys.argv, [str(path)]
    try:
        with assume_target(), blame_user():
            spec.loader.exec_module(module)
    except UserCodeError as error:
        del sys.modules[name]
        for folder in folders:
            sys.path.remove(folder)
        place = "" if error.file else f"{path}: "
        hint = _GUARD_HINT if "cuda" in error.summary.lower() else ""
        if "No module named 'tilelang'" in error.summary:
            hint = install_extra("tilelang")
        raise KernelFileError(f"{place}{error.message}", hint, error.trace) from error
    finally:
        sys.argv = argv
    return module


def _is_like_tmp(folder: Path) -> bool:
    """Whether others can add files, but not change the named file: then only that file is trusted."""
    mode = folder.stat().st_mode
    return bool(mode & stat.S_ISVTX and mode & (stat.S_IWGRP | stat.S_IWOTH))


def find_kernels(module: ModuleType) -> dict[str, Found]:
    """The kernels of a module by their first name, in the module's order of names. Imported kernels
    count only if ``__all__`` lists them, or if the module has none of its own.
    """
    kernels = {name: value for name, value in vars(module).items() if not name.startswith("__")}
    exported = set(getattr(module, "__all__", ()))
    everything = read_kernels(kernels)
    own = {
        name: found
        for name, found in everything.items()
        if name in exported or not _is_imported(kernels[name], module)
    }
    return own or everything


def find_kernel(kernels: Mapping[str, Found], name: str) -> Found:
    """The kernel called ``name``. Raises KernelFileError with the list of existing ones."""
    if name in kernels:
        return kernels[name]
    listed = ", ".join(kernels)
    raise KernelFileError(
        f"there is no kernel {name!r}",
        hint=f"there are: {listed}" if listed else "declare one with @tileyard.kernel",
    )


def find_declared(kernel: object) -> Found:
    """The kernel in the caller's object. Raises UsageError if it is not a kernel."""
    recipe = read_recipe(kernel)
    if recipe is None:
        raise UsageError(
            f"{show_value(kernel)} is not a kernel",
            hint="declare it with @tileyard.kernel, or make it with @tilelang.jit",
        )
    name = getattr(user_function(kernel), "__name__", "kernel")
    return Found(name if name.isidentifier() else "kernel", recipe)


def read_kernels(values: Mapping[str, object]) -> dict[str, Found]:
    """The kernels among named objects; an object with several names has its first."""
    first = {id(value): name for name, value in reversed(list(values.items()))}
    recipes = {
        name: read_recipe(values[name]) for name in values if first[id(values[name])] == name
    }
    return {name: Found(name, recipe) for name, recipe in recipes.items() if recipe is not None}


def _is_imported(kernel: object, module: ModuleType) -> bool:
    """Whether another module has this kernel under a name, so that this one only imported it. A
    kernel that another module's function made for this one belongs to this one.
    """
    home = getattr(user_function(kernel), "__module__", None)
    if home == module.__name__ or home not in sys.modules:
        return False
    return any(value is kernel for value in list(vars(sys.modules[home]).values()))


def _name_module(path: Path) -> str:
    """The file's own name if it is free, so that files beside it import the same module."""
    name = re.sub(r"\W", "_", path.stem)
    taken = name in sys.modules or name in sys.stdlib_module_names
    other = None if taken else importlib.util.find_spec(name)
    if taken or (other is not None and other.origin != str(path)):
        count = 0
        while f"{name}_kernels_{count}" in sys.modules:
            count += 1
        return f"{name}_kernels_{count}"
    return name
