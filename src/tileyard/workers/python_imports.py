"""Finds the imports of a step in Python by reading its source: the files, and what cannot be determined.

How Python is called says which code it runs; the interpreter itself says where it looks for modules.
Nothing is imported.
"""

import ast
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path

from tileyard.artifacts.footprint import Footprint
from tileyard.base.model import Record

WITHOUT_VALUE = re.compile(r"-(B|bb?|d|E|i|I|OO?|P|q|R|s|S|u|v)")
"""Options of Python that take no value."""
PROBE = """
import sys
sys.path[:] = [place for place in sys.path if place]
import json, site, sysconfig
paths = sysconfig.get_paths()
installed = [*site.getsitepackages(), paths["purelib"], paths["platlib"]]
installed += [site.getusersitepackages()] if site.ENABLE_USER_SITE else []
own = [paths["stdlib"], paths["platstdlib"], *(p for p in sys.path if p.endswith((".zip", "lib-dynload")))]
names = sorted(sys.stdlib_module_names)
print(json.dumps(dict(path=sys.path, installed=installed, own=own, own_names=names, version=sys.version)))
"""
"""Run in ``/``, without using anything there: older Pythons do not know ``-P``."""


class PythonCall(Record):
    """How an interpreter is called: files with code, the first of them the script if it ``is_script``."""

    options: tuple[str, ...]
    code: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    is_script: bool = False


def read_call(arguments: Sequence[str]) -> PythonCall | str:
    """The call, or why it is not understood."""
    options: list[str] = []
    left = list(arguments)
    while left:
        first = left.pop(0)
        files = tuple(text for text in left if text.endswith(".py"))
        if WITHOUT_VALUE.fullmatch(first):
            options.append(first)
        elif first in ("-W", "-X") and left:
            options += [first, left.pop(0)]
        elif first.startswith(("-W", "-X")) and len(first) > 2:
            options.append(first)
        elif first == "-c" and left:
            return PythonCall(options=tuple(options), code=(left[0],), files=files)
        elif first == "-m" and left:
            return PythonCall(options=tuple(options), modules=(left[0],), files=files)
        elif first.startswith("-"):
            break
        else:
            return PythonCall(options=tuple(options), files=(first, *files), is_script=True)
    return "which code Python runs is not among its arguments"


class PythonSite(Record):
    """What an interpreter reports: where it looks for modules besides the script's folder; its own ones."""

    path: tuple[str, ...]
    installed: tuple[str, ...]
    own: tuple[str, ...]
    own_names: frozenset[str]
    version: str


# ---- following imports -----------------------------------------------------------------------

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
    """The code that is imported, with modules that were not found as parts, and doubts.

    Besides, whether installed packages are imported, and whether arguments are run as code.
    """

    footprint: Footprint
    uses_installed: bool = False
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
        self._list = cache(_list_folder)
        self._find_module = cache(
            lambda folder, name: _find_module(folder, name, self._list(folder))
        )
        self._left: list[Path] = []
        self._absent: set[str] = set()
        self._footprint = Footprint()
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
            self._footprint.doubt(
                f"it changes sys.path and imports {name}, which is not in the suite"
            )
        self._footprint.code = list(map(str, self._files))
        self._footprint.parts = {f"module {name}": "" for name in sorted(self._absent)}
        return Found(
            footprint=self._footprint,
            uses_installed=self._uses_installed,
            runs_arguments=self._runs_arguments,
        )

    def _add(self, file: Path) -> None:
        if file not in self._files:
            self._files[file] = None
            self._left.append(file)

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
            self._footprint.doubt(f"{name} cannot be read as Python: {read.problem}")
            return
        self._given = read.given
        self._sets_arguments = read.sets_arguments
        for node in read.nodes:
            match node:
                case ast.Import(names=names):
                    for one in names:
                        self._import(one.name)
                        if one.name == "sys" and one.asname:
                            self._footprint.doubt(f"{name} calls sys {one.asname}")
                case ast.ImportFrom(module=module, names=names, level=0):
                    for one in names:
                        self._import(f"{module}.{one.name}", module or "")
                        if CALLS.fullmatch(one.name) and module in STARTING:
                            self._footprint.doubt(f"{name} can start other programs ({one.name})")
                        if (one.name == "*" and module in (*STARTING, *LOADING)) or (
                            one.asname and one.name in NAMED | RUN
                        ):
                            self._footprint.doubt(f"{name} takes {one.name} out of {module}")
                        if module == "sys" and one.name in ("path", "argv", "meta_path"):
                            self._footprint.doubt(f"{name} takes {one.name} out of sys")
                case ast.ImportFrom(module=module, names=names, level=level) if file is not None:
                    base = file.parents[level - 1]
                    for one in names:
                        self._import_from(base, f"{module}." if module else "", one.name)
                case ast.Call():
                    self._look_at_call(node, name)
                case ast.Attribute(attr="path", value=ast.Name(id="sys")):
                    self._has_own_path = True
                case ast.Attribute(attr=called) if CALLS.fullmatch(called):
                    self._footprint.doubt(f"{name} can start other programs ({called})")
                case ast.Attribute(attr="meta_path" | "path_hooks"):
                    self._footprint.doubt(f"{name} changes how modules are found")
                case _:
                    pass
        for line in read.path_lines:
            self._footprint.doubt(f"line {line} of {name} makes it look for modules elsewhere")

    def _look_at_call(self, call: ast.Call, name: str) -> None:
        function = call.func
        called = function.attr if isinstance(function, ast.Attribute) else ""
        called = function.id if isinstance(function, ast.Name) else called
        first = call.args[0] if call.args else None
        if called in NAMED:
            if isinstance(first, ast.Constant) and isinstance(first.value, str):
                self._import(first.value)
            else:
                self._footprint.doubt(f"{name} imports what is known only when it runs ({called})")
        elif (called in EXECUTED and isinstance(function, ast.Name)) or (
            called in RUN and not (first is not None and self._is_argument(first))
        ):
            self._footprint.doubt(f"{name} runs code that is known only when it runs ({called})")

    def _is_argument(self, node: ast.expr) -> bool:
        """Whether it is an argument of the step, or a name that only these have: read as code anyway."""
        is_one = (is_of_arguments(node) and not self._sets_arguments) or (
            isinstance(node, ast.Name) and node.id in self._given
        )
        self._runs_arguments = self._runs_arguments or is_one
        return is_one

    # ---- finding modules -------------------------------------------------------------------------

    def _import(self, name: str, least: str = "") -> None:
        """Find a module with the packages that contain it. What follows ``least`` may be no module.

        If several places have a module of this name, all count: the search order may change.
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

    def _look_at_own(self, name: str) -> None:
        top = name.partition(".")[0]
        if top in PROGRAMS:
            self._footprint.doubt(f"it can start other programs ({top})")
        elif top in LIBRARIES:
            self._footprint.doubt(f"it can load further libraries ({top})")
        elif top in LOADERS or name in ("importlib.util", "importlib.machinery"):
            self._footprint.doubt(f"it can import what is known only when it runs ({name})")

    def _import_from(self, folder: Path, prefix: str, name: str) -> bool:
        """Add what a dotted name leads to below a folder; return whether it leads to anything."""
        has_found = False
        for part in f"{prefix}{name}".split("."):
            found = self._find_module(folder, part)
            has_found = has_found or bool(found)
            for file in found:
                self._add(file)
            if part not in self._list(folder):
                break
            folder = folder / part
        return has_found


def _list_folder(folder: Path) -> frozenset[str]:
    try:
        return frozenset(os.listdir(folder))  # noqa: PTH208 - a Path costs more than all else
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


# ---- one source -------------------------------------------------------------------------------

_LOOKED_AT = re.compile(
    rb"system|popen|exec|spawn|startfile|create_subprocess|import_module|__import__|run_module|run_path"
    rb"|SourceFileLoader|spec_from_file_location|ExtensionFileLoader|eval|compile|meta_path|path_hooks|argv"
)
_NAMES_PATH = re.compile(rb"\bsys\b.*\bpath\b|\bpath\b.*\bsys\b", re.DOTALL)
"""Texts in which more than an import can matter. Names in other letters can be equal to these."""


@dataclass(frozen=True, kw_only=True)
class Source:
    """The relevant nodes, whether arguments are changed, and names of arguments only.

    ``path_lines`` change ``sys.path`` otherwise than by the file's own location.
    """

    nodes: tuple[ast.AST, ...] = ()
    sets_arguments: bool = False
    given: frozenset[str] = frozenset()
    path_lines: tuple[int, ...] = ()
    problem: str = ""


@lru_cache(maxsize=4096)
def read_source(source: bytes) -> Source:
    """The relevant parts of a source; equal sources are read once."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError) as error:
        return Source(problem=str(error))
    if source.isascii() and not _LOOKED_AT.search(source) and not _NAMES_PATH.search(source):
        return Source(nodes=tuple(n for n in _walk_statements(tree) if _is_import(n)))
    nodes = list(ast.walk(tree))
    derived = {"__file__"}
    for statement in tree.body:
        if isinstance(statement, ast.Assign) and _names(statement.value) & derived:
            derived.update(t.id for t in statement.targets if isinstance(t, ast.Name))
    return Source(
        nodes=tuple(n for n in nodes if _is_import(n) or isinstance(n, ast.Call | ast.Attribute)),
        sets_arguments=any(
            isinstance(node, ast.Attribute | ast.Subscript)
            and isinstance(node.ctx, ast.Store)
            and is_of_arguments(node)
            for node in nodes
        ),
        given=frozenset(_find_given(nodes)),
        path_lines=tuple(
            getattr(node, "lineno", 0)
            for node in nodes
            if _changes_path(node) and not _names(node) & derived
        ),
    )


def _is_import(node: ast.AST) -> bool:
    return isinstance(node, ast.Import | ast.ImportFrom)


def _walk_statements(tree: ast.Module) -> Iterator[ast.AST]:
    """The statements of a module, including nested ones."""
    left: list[ast.AST] = [tree]
    while left:
        node = left.pop(0)
        yield node
        for field in ("body", "orelse", "finalbody", "handlers", "cases"):
            inner = getattr(node, field, ())
            left += inner if isinstance(inner, list) else ()


def _find_given(nodes: Iterable[ast.AST]) -> set[str]:
    """The names that are only ever set to arguments of the program."""
    given: set[str] = set()
    others: list[str] = []
    for node in nodes:
        match node:
            case ast.Assign(targets=targets, value=value) if is_of_arguments(value):
                given.update(name for target in targets for name in _names(target))
            case ast.Name(id=name, ctx=ast.Store()):
                others.append(name)
            case ast.arg(arg=name):
                others += [name, name]
            case _:
                pass
    return {name for name in given if others.count(name) == 1}


def is_of_arguments(node: ast.expr) -> bool:
    """Whether a node is ``sys.argv``, or a part of it."""
    match node:
        case ast.Subscript(value=value):
            return is_of_arguments(value)
        case ast.Attribute(attr="argv", value=ast.Name(id="sys")):
            return True
        case _:
            return False


def _changes_path(node: ast.AST) -> bool:
    """Whether a node adds folders to ``sys.path``, or replaces it."""
    match node:
        case ast.Call(func=ast.Attribute(attr=called, value=value)):
            return called == "addsitedir" or (called not in ("remove", "pop") and _is_path(value))
        case ast.Assign(targets=targets):
            return any(_is_path(t.value if isinstance(t, ast.Subscript) else t) for t in targets)
        case ast.AugAssign(target=target):
            return _is_path(target)
        case _:
            return False


def _is_path(node: ast.expr) -> bool:
    match node:
        case ast.Attribute(attr="path", value=ast.Name(id="sys")):
            return True
        case _:
            return False


def _names(node: ast.AST) -> set[str]:
    return {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}
