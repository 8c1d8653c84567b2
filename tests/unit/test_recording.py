"""How much of the source runs: which lines are statements, and which of them processes note."""

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from tools.record import compare, expand, shorten
from tools.recorder import CODE, LIBRARY, VARIABLE, Recording, Source

TEXT = '''"""A module."""
from typing import TYPE_CHECKING
if TYPE_CHECKING:
    import nothing


@staticmethod
def add(one,
        other=2):
    """Add."""
    match one:
        case 1:
            return (one
                    + other)
    try:
        return other
    except ValueError:
        ...
'''


def test_a_statement_is_counted_at_its_first_line() -> None:
    """A statement of several lines is one; docstrings, dots and what type checkers read are none."""
    source = Source(Path("add.py"), 0, TEXT)
    assert sorted(set(source.statements.values())) == [2, 7, 11, 12, 13, 15, 16, 17]
    assert source.statements[14] == 13


def test_numbers_in_a_row_are_shortened() -> None:
    """Lines are listed as people list them, and read again."""
    assert shorten([1, 3, 4, 5, 9]) == "1, 3-5, 9"
    assert expand("1, 3-5, 9") == {1, 3, 4, 5, 9}
    assert expand("") == set()


def test_modules_that_lost_are_listed_with_their_lines() -> None:
    """Two reports differ in modules of which less runs."""
    then = {"total": {"percent": 75.0, "statements": 4}, "modules": {}}
    before = {**then, "modules": {"a.py": {"percent": 100.0, "missing": ""}}}
    after = {**then, "modules": {"a.py": {"percent": 50.0, "missing": "2-3"}}}
    assert compare(before, after)[1:] == ["-50.0  a.py: 50.0 %, lines 2-3"]
    assert compare(after, before)[1:] == []


@pytest.fixture
def begun(tmp_path: Path) -> Recording:
    """A recording of one module, which doubles a number."""
    text = "def double(x):\n    return 2 * x\n\nFOUR = double(2)\n"
    source = Source(tmp_path / "doubling.py", 0, text)
    source.path.write_text(text)
    begun = Recording(tmp_path, tmp_path, [source])
    (tmp_path / "index").write_text(f"0 {source.count} {source.path}\n")
    library = tmp_path / f"{LIBRARY}{sysconfig.get_config_var('EXT_SUFFIX')}"
    include = f"-I{sysconfig.get_path('include')}"
    command = ["cc", "-shared", "-fPIC", "-Wall", "-Werror", include, str(CODE), "-o", str(library)]
    subprocess.run(command, check=True)
    return begun


def run(begun: Recording, program: str) -> tuple[list[int], list[int]]:
    """The lines of the module that a program runs in imports, and those that it runs in calls."""
    noted = begun.begin("all")
    environment = {**os.environ, VARIABLE: str(noted), "PYTHONPATH": str(begun.folder)}
    text = f"import {LIBRARY}, os, threading, doubling\n{program}"
    subprocess.run([sys.executable, "-c", text], env=environment, check=True)
    imported, called = (
        [n + 1 for n, ran in enumerate(lines) if ran] for lines in begun.read(noted)
    )
    return imported, called


@pytest.mark.slow
def test_what_a_module_calls_while_it_is_imported_is_no_call(begun: Recording) -> None:
    """Only a test that calls a function is noted to have run it."""
    assert run(begun, "") == ([1, 2, 4], [])


@pytest.mark.slow
@pytest.mark.parametrize(
    "program",
    [
        "doubling.double(3)",
        "threading.Thread(target=doubling.double, args=(3,)).start()",
        "if not os.fork():\n    doubling.double(3)\n    os.kill(os.getpid(), 9)\nos.wait()",
    ],
    ids=["call", "thread", "killed copy"],
)
def test_lines_are_noted_wherever_they_run(begun: Recording, program: str) -> None:
    """Calls in threads and in copies that are killed are noted as others are."""
    assert run(begun, program) == ([1, 2, 4], [2])
