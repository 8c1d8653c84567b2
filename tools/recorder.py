"""Which lines of the source run, in all processes of a test run: see ``line_recorder.c``.

A statement is counted once, however many lines it has, at its first one; docstrings, ``...`` and what only
type checkers read are not counted.
"""

import ast
import contextlib
import os
import shutil
import subprocess
import sysconfig
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import CodeType

LIBRARY = "tileyard_line_recorder"
VARIABLE = "LINE_RECORDING"
SOURCE = Path("src/tileyard")
CODE = Path(__file__).with_name("line_recorder.c")


@dataclass(frozen=True)
class Source:
    """A source file, with the place of its lines in a recording."""

    path: Path
    first: int
    text: str

    @property
    def count(self) -> int:
        """How many lines it has."""
        return self.text.count("\n") + 1

    @cached_property
    def statements(self) -> dict[int, int]:
        """The first line of the statement of each line of code."""
        found: dict[int, int] = {}
        _add_statements(ast.parse(self.text).body, found)
        lines = set(_list_lines(compile(self.text, str(self.path), "exec", dont_inherit=True)))
        return {line: first for line, first in found.items() if line in lines}


def _add_statements(body: Iterable[ast.AST], found: dict[int, int]) -> None:
    for statement in body:
        if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
            continue
        if isinstance(statement, ast.If) and "TYPE_CHECKING" in ast.unparse(statement.test):
            continue
        is_case = isinstance(statement, ast.match_case)
        own = statement.pattern if is_case else statement
        first = min([own.lineno, *(one.lineno for one in getattr(own, "decorator_list", ()))])
        inner = [*_list_inner(statement)]
        begins = [getattr(one, "pattern", one).lineno for one in inner]
        end = min(begins, default=own.end_lineno + 1)  # a body can be on the line of its header
        found.update(
            (line, first) for line in range(first, max(end, first + 1)) if line not in found
        )
        _add_statements(inner, found)


def _list_inner(node: ast.AST) -> Iterator[ast.AST]:
    for _, value in ast.iter_fields(node):
        for part in value if isinstance(value, list) else ():
            if isinstance(part, ast.stmt | ast.ExceptHandler | ast.match_case):
                yield part


def _list_lines(code: CodeType) -> Iterator[int]:
    yield from (line for _, _, line in code.co_lines() if line)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _list_lines(constant)


def read_sources(root: Path) -> list[Source]:
    """The source files below a folder, by path."""
    found: list[Source] = []
    first = 0
    for path in sorted((root / SOURCE).rglob("*.py")):
        found.append(Source(path, first, path.read_text(encoding="utf-8")))
        first += found[-1].count
    return found


@dataclass(frozen=True)
class Recording:
    """Files in a folder, to which processes note the lines that they run."""

    root: Path
    folder: Path
    sources: list[Source]

    @property
    def size(self) -> int:
        """The number of lines of all sources."""
        return sum(source.count for source in self.sources)

    def name(self, source: Source) -> str:
        """The name of a module without ``tileyard``; of the package itself, nothing."""
        parts = source.path.relative_to(self.root / SOURCE).with_suffix("").parts
        return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)

    def begin(self, name: str) -> Path:
        """An empty file; ``LINE_RECORDING`` names it for the processes that are to use it."""
        path = self.folder / name
        path.write_bytes(bytes(2 * self.size))
        path.chmod(0o666)  # some tests act as other users
        return path

    def read(self, path: Path) -> tuple[bytes, bytes]:
        """For each line of all sources, whether it ran in an import, and whether it ran in a call."""
        noted = path.read_bytes()
        return noted[: self.size], noted[self.size :]


@contextlib.contextmanager
def recording(root: Path) -> Iterator[Recording]:
    """Have each process of a tree's ``.venv`` note lines, if it begins with ``LINE_RECORDING`` in its
    environment."""
    packages = next((root / ".venv").glob("lib/python*/site-packages"))
    library = packages / f"{LIBRARY}{sysconfig.get_config_var('EXT_SUFFIX')}"
    hook = packages / f"{LIBRARY}.pth"
    include = f"-I{sysconfig.get_path('include')}"
    folder = Path(tempfile.mkdtemp(prefix="tileyard-recording-"))
    folder.chmod(0o755)
    begun = Recording(root, folder, read_sources(root))
    (folder / "index").write_text(
        "".join(f"{one.first} {one.count} {one.path}\n" for one in begun.sources), encoding="utf-8"
    )
    command = ["cc", "-shared", "-fPIC", "-O2", include, str(CODE), "-o", str(library)]
    try:
        subprocess.run(command, check=True)
        hook.write_text(f"import os; {VARIABLE!r} in os.environ and __import__({LIBRARY!r})\n")
        yield begun
    finally:
        hook.unlink(missing_ok=True)
        library.unlink(missing_ok=True)
        shutil.rmtree(folder, ignore_errors=True)


def environment(path: Path) -> dict[str, str]:
    """That of a process which notes its lines in this file, as do those that it starts."""
    return {**os.environ, VARIABLE: str(path)}
