"""Finds the imports of a Python step by reading its source, and what is unknown. Imports nothing."""

import ast
import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from tileyard.base.model import Record
from tileyard.workers.python_calls import PythonSite
from tileyard.workers.python_source import is_of_arguments, read_source

PROGRAMS = frozenset({"subprocess", "pty"})
"""Modules that start other programs."""
CALLS = re.compile(
    r"system|popen|exec[lv]p?e?|posix_spawnp?|spawn[lv]p?e?|startfile|create_subprocess_(exec|shell)"
)
"""Names of functions that start other programs."""
STARTING, LOADING = ("os", "posix", "asyncio"), ("importlib", "runpy")
"""Modules that contain these functions, and modules that load code by name."""
LIBRARIES = frozenset({"ctypes", "cffi", "_ctypes"})
LOADERS = frozenset({"imp", "zipimport", "pkgutil"})
"""Modules that load code which no import names."""
NAMED = frozenset({"import_module", "__import__", "run_module"})
RUN = frozenset({"run_path", "SourceFileLoader", "spec_from_file_location", "ExtensionFileLoader"})
EXECUTED = frozenset({"exec", "eval", "compile"})


class Found(Record):
    """Imported files; whether packages are; modules not found; doubts; whether arguments are run as code."""

    files: tuple[Path, ...]
    absent: tuple[str, ...] = ()
    uses_installed: bool = False
    doubts: tuple[str, ...] = ()
    runs_arguments: bool = False


class ImportReader:
    """Follows imports from the code of one step. A changed path may lead to modules in ``suite``."""

    def __init__(self, site: PythonSite, folders: Sequence[str], suite: Path) -> None:
        own = {os.path.normpath(folder) for folder in (*site.own, *site.installed)}
        self.places = (site.path, tuple(folders), suite)
        """What its answers depend on besides the sources."""
        self._site = site
        self._local = [
            Path(one) for one in (*folders, *site.path) if os.path.normpath(one) not in own
        ]
        self._suite = suite
        self._files: dict[Path, None] = {}
        self._listed: dict[Path, frozenset[str]] = {}
        self._modules: dict[tuple[Path, str], tuple[Path, ...]] = {}
        self._left: list[Path] = []
        self._absent: set[str] = set()
        self._doubts: dict[str, None] = {}
        self._named: set[str] = set()
        self._uses_installed = False
        self._has_own_path = False
        self._runs_arguments = False
        self._given: frozenset[str] = frozenset()
        self._sets_arguments = False

    def read(self, code: Iterable[str], files: Iterable[Path], modules: Iterable[str]) -> Found:
        """Everything that code in a text, files and modules reaches."""
        for file in files:
            self._add(file)
        for name in modules:
            self._import(name)
            self._import(f"{name}.__main__")
        for text in code:
            self._parse(text.encode(), "its code", None)
        while True:
            while self._left:
                file = self._left.pop()
                if file.suffix == ".py" or not file.suffix:
                    self._parse(file.read_bytes(), file.name, file)
            if not self._has_own_path or not self._add_candidates():
                break
        absent = self._absent - {"sitecustomize", "usercustomize"}
        for name in sorted(absent) if self._has_own_path else ():
            self._doubt(f"it changes sys.path and imports {name}, which is not in the suite")
        return Found(
            files=tuple(self._files),
            absent=tuple(sorted(self._absent)),
            uses_installed=self._uses_installed,
            doubts=tuple(self._doubts),
            runs_arguments=self._runs_arguments,
        )

    def _add(self, file: Path) -> None:
        if file not in self._files:
            self._files[file] = None
            self._left.append(file)

    def _doubt(self, text: str) -> None:
        self._doubts[text] = None

    def _add_candidates(self) -> bool:
        """If code changes its path, count every module of the suite with the name of an imported one."""
        known = len(self._files)
        for folder, names, files in os.walk(self._suite):
            names[:] = [name for name in names if not name.startswith(".")]
            for name in sorted({*names, *(one.partition(".")[0] for one in files)} & self._named):
                self._absent.discard(name)
                for file in self._find_module(Path(folder), name):
                    self._add(file)
        return len(self._files) > known

    # ---- one file --------------------------------------------------------------------------------

    def _parse(self, source: bytes, name: str, file: Path | None) -> None:
        read = read_source(source)
        if read.problem:
            self._doubt(f"{name} cannot be read as Python: {read.problem}")
            return
        self._given = read.given
        self._sets_arguments = read.sets_arguments
        for node in read.nodes:
            match node:
                case ast.Import(names=names):
                    for one in names:
                        self._import(one.name)
                        if one.name == "sys" and one.asname:
                            self._doubt(f"{name} calls sys {one.asname}")
                case ast.ImportFrom(module=module, names=names, level=0):
                    for one in names:
                        self._import(f"{module}.{one.name}", module or "")
                        if CALLS.fullmatch(one.name) and module in STARTING:
                            self._doubt(f"{name} can start other programs ({one.name})")
                        if (one.name == "*" and module in (*STARTING, *LOADING)) or (
                            one.asname and one.name in NAMED | RUN
                        ):
                            self._doubt(f"{name} takes {one.name} out of {module}")
                        if module == "sys" and one.name in ("path", "argv", "meta_path"):
                            self._doubt(f"{name} takes {one.name} out of sys")
                case ast.ImportFrom(module=module, names=names, level=level) if file is not None:
                    base = file.parents[level - 1]
                    for one in names:
                        self._import_from(base, f"{module}." if module else "", one.name)
                case ast.Call():
                    self._look_at_call(node, name)
                case ast.Attribute(attr="path", value=ast.Name(id="sys")):
                    self._has_own_path = True
                case ast.Attribute(attr=called) if CALLS.fullmatch(called):
                    self._doubt(f"{name} can start other programs ({called})")
                case ast.Attribute(attr="meta_path" | "path_hooks"):
                    self._doubt(f"{name} changes how modules are found")
                case _:
                    pass
        for line in read.path_lines:
            self._doubt(f"line {line} of {name} makes it look for modules elsewhere")

    def _look_at_call(self, call: ast.Call, name: str) -> None:
        function = call.func
        called = function.attr if isinstance(function, ast.Attribute) else ""
        called = function.id if isinstance(function, ast.Name) else called
        first = call.args[0] if call.args else None
        if called in NAMED:
            if isinstance(first, ast.Constant) and isinstance(first.value, str):
                self._import(first.value)
            else:
                self._doubt(f"{name} imports what is known only when it runs ({called})")
        elif (called in EXECUTED and isinstance(function, ast.Name)) or (
            called in RUN and not (first is not None and self._is_argument(first))
        ):
            self._doubt(f"{name} runs code that is known only when it runs ({called})")

    def _is_argument(self, node: ast.expr) -> bool:
        """Whether it is an argument of the step, or a name that only arguments have: read as code."""
        is_one = (is_of_arguments(node) and not self._sets_arguments) or (
            isinstance(node, ast.Name) and node.id in self._given
        )
        self._runs_arguments = self._runs_arguments or is_one
        return is_one

    # ---- finding modules -------------------------------------------------------------------------

    def _import(self, name: str, least: str = "") -> None:
        """Find a module with its packages, in all places since the search order may change. The
        last part of ``least.name`` may be no module.
        """
        top = name.partition(".")[0]
        self._named.add(top)
        found = [self._import_from(folder, "", name) for folder in self._local]
        is_known = any(found) or top in self._site.own_names
        if top in self._site.own_names:
            for one in {name, least or name}:
                self._look_at_own(one)
        elif any(self._has_module(Path(folder), top) for folder in self._site.installed):
            self._uses_installed = is_known = True
            if top in LIBRARIES:
                self._look_at_own(top)
        if not is_known:
            self._absent.add(top)

    def _has_module(self, folder: Path, name: str) -> bool:
        return bool(self._find_module(folder, name)) or (folder / name).is_dir()

    def _find_module(self, folder: Path, name: str) -> tuple[Path, ...]:
        """As ``find_module``; each folder is searched once."""
        asked = (folder, name)
        if asked not in self._modules:
            if folder not in self._listed:
                self._listed[folder] = _list_folder(folder)
            self._modules[asked] = _find_module(folder, name, self._listed[folder])
        return self._modules[asked]

    def _look_at_own(self, name: str) -> None:
        top = name.partition(".")[0]
        if top in PROGRAMS:
            self._doubt(f"it can start other programs ({top})")
        elif top in LIBRARIES:
            self._doubt(f"it can load further libraries ({top})")
        elif top in LOADERS or name in ("importlib.util", "importlib.machinery"):
            self._doubt(f"it can import what is known only when it runs ({name})")

    def _import_from(self, folder: Path, prefix: str, name: str) -> bool:
        """Add what a dotted name leads to below a folder; return whether it leads to anything."""
        has_found = False
        for part in f"{prefix}{name}".split("."):
            found = self._find_module(folder, part)
            has_found = has_found or bool(found)
            for file in found:
                self._add(file)
            if part not in self._listed[folder]:
                break
            folder = folder / part
        return has_found


def _list_folder(folder: Path) -> frozenset[str]:
    try:
        return frozenset(os.listdir(folder))  # noqa: PTH208 - names alone are much cheaper
    except OSError:
        return frozenset()


def _find_module(folder: Path, name: str, listed: frozenset[str]) -> tuple[Path, ...]:
    """The file of a module, or of a package; several if it depends on the interpreter."""
    package = folder / name / "__init__.py"
    if name in listed and package.is_file():
        return (package,)
    if not name.isidentifier():
        return ()
    plain = [f"{name}{suffix}" for suffix in (".py", ".so", ".pyc")]
    built = sorted(one for one in listed if one.startswith(f"{name}.") and one.endswith(".so"))
    found = [one for one in plain if one in listed and (folder / one).is_file()]
    return tuple(folder / one for one in dict.fromkeys((*found, *built)))
