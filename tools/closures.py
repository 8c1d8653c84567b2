"""What a test file imports, directly or through others: modules of ``src/`` and of ``tests/``.

Modules that are named as text count, too, as in ``"tileyard.targets.cpu.target:CpuTarget"``; imports for type
checkers do not. Nothing is imported to find out. What the fixtures of ``tests/conftest.py`` import is only
known from recordings.
"""

import ast
import re
from collections import deque
from collections.abc import Iterable, Iterator
from pathlib import Path

import tileyard
import tileyard.testing

SOURCE = Path("src")
ALL_FIXTURES = "tests.conftest"
IN_PROCESS = "tests.in_process"
RUNNING = {IN_PROCESS, "tests.warm_python"}
"""Modules that run commands, and so anything: what these import says nothing."""
NAMED = re.compile(r"[\"'](tileyard(?:\.\w+)+)(?::\w+)?[\"']")
USED = re.compile(r"\btileyard(?:\.testing)?\.\w+")
PUBLIC = {
    f"{package.__name__}.{name}": home
    for package in (tileyard, tileyard.testing)
    for name, home in package._HOMES.items()  # noqa: SLF001 - nothing else lists them
}
"""The module of each public name that is loaded when it is first used."""


class Closures:
    """The imports of the files of a repository, which is the working directory."""

    def __init__(self) -> None:
        files = [*SOURCE.rglob("*.py"), *Path("tests").rglob("*.py")]
        self._files = {name_module(file): file for file in files}
        self._imported: dict[str, set[str]] = {}
        self._distances: dict[Path, dict[str, int]] = {}

    def measure(self, file: Path) -> dict[str, int]:
        """The modules that a test file needs, each with its distance: 1 for what it imports itself."""
        if file not in self._distances:
            conftest = file.with_name("conftest.py")
            begin = name_module(file)
            distances = {begin: 0}
            if conftest.exists():
                distances[name_module(conftest)] = 1
            waiting = deque(distances)
            while waiting:
                module = waiting.popleft()
                for imported in () if module in {*RUNNING, ALL_FIXTURES} else self._imports(module):
                    if imported not in distances:
                        distances[imported] = distances[module] + 1
                        waiting.append(imported)
            self._distances[file] = distances
        return self._distances[file]

    def reaches_anything(self, file: Path) -> bool:
        """Whether a test file can run commands, and what it imports does not tell what it runs."""
        return not self.measure(file).keys().isdisjoint(RUNNING)

    def _imports(self, module: str) -> set[str]:
        if module not in self._imported:
            file = self._files[module]
            package = module if file.name == "__init__.py" else module.rpartition(".")[0]
            found = find_imports(file.read_text(encoding="utf-8"), package)
            self._imported[module] = found & self._files.keys()
        return self._imported[module]


def name_module(file: Path) -> str:
    """The name by which a file is imported."""
    parts = file.with_suffix("").parts
    parts = parts[1:] if parts[0] == SOURCE.name else parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def find_imports(text: str, package: str) -> set[str]:
    """The modules that a text in a package may import, and other names that only look like modules."""
    found: set[str] = set()
    for node in _list_statements(ast.parse(text).body):
        if isinstance(node, ast.Import):
            found.update(name for alias in node.names for name in _list_parents(alias.name))
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(package.split(".")[: len(package.split(".")) - node.level + 1])
            begin = f"{base}.{node.module or ''}".strip(".") if node.level else node.module or ""
            found.update(_list_parents(begin))
            names = [f"{begin}.{alias.name}" for alias in node.names]
            found.update(PUBLIC.get(name, name) for name in names)
            if f"{ALL_FIXTURES}.CommandLine" in names:
                found.add(IN_PROCESS)
    if package != "tileyard":  # whose names are loaded for those who use them
        found.update(NAMED.findall(text))
    if "tileyard" in found:
        found.update(PUBLIC[name] for name in USED.findall(text) if name in PUBLIC)
    return found


def _list_statements(body: Iterable[ast.AST]) -> Iterator[ast.AST]:
    for node in body:
        yield node
        if isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING":
            yield from _list_statements(node.orelse)
            continue
        for name in ("body", "handlers", "cases", "orelse", "finalbody"):
            if inner := getattr(node, name, None):
                yield from _list_statements(inner)


def _list_parents(module: str) -> Iterator[str]:
    """A module, and the packages that are imported before it."""
    parts = module.split(".")
    yield from (".".join(parts[:count]) for count in range(1, len(parts) + 1))
