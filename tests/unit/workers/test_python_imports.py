"""What Python code imports, read from its source."""

import os
import sys
from pathlib import Path

import pytest

from tileyard.artifacts.footprint import Footprint
from tileyard.workers.python_imports import Found, ImportReader, PythonSite

SITE = PythonSite(
    path=(),
    installed=(),
    own=(),
    own_names=frozenset(sys.stdlib_module_names),
    version="3",
)


def read(folder: Path, *files: str, code: str = "") -> Found:
    """What is reached from files of a suite, or from a text, with the suite's folder as the script's."""
    reader = ImportReader(SITE, (str(folder),), folder)
    return reader.read((code,) if code else (), [folder / name for name in files], ())


def names(found: Found, folder: Path) -> set[str]:
    """The files, from the folder."""
    return {os.path.relpath(file, folder) for file in found.footprint.code}


def write(folder: Path, **files: str) -> None:
    """Modules in packages; two underscores stand for a slash."""
    for name, text in files.items():
        path = folder / f"{name.replace('__', '/')}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("import subprocess", "can start other programs (subprocess)"),
        ("import os\nos.system('tool')", "can start other programs (system)"),
        ("from os import execv", "can start other programs (execv)"),
        ("import os\nrun = os.system\nrun('tool')", "can start other programs (system)"),
        ("import os\nmap(os.system, ['tool'])", "can start other programs (system)"),
        ("from os import *\nsystem('tool')", "takes * out of os"),
        ("from importlib import import_module as im\nim(input())", "takes import_module out of"),
        ("from runpy import run_path as go\ngo(input())", "takes run_path out of runpy"),
        ("import ctypes", "can load further libraries (ctypes)"),
        ("import importlib\nimportlib.import_module(input())", "known only when it runs"),
        ("exec(input())", "runs code that is known only when it runs (exec)"),
        ("import runpy\nrunpy.run_path(input())", "runs code that is known only when it runs"),
        ("from importlib import util", "can import what is known only when it runs"),
        ("import sys\nsys.path.insert(0, input())", "line 2 of code.py makes it look for modules"),
        ("import sys as s", "calls sys s"),
        ("from sys import path", "takes path out of sys"),
        ("import sys\nsys.meta_path.pop()", "changes how modules are found"),
        ("import sys, nowhere\nsys.path[:] = [__file__]", "imports nowhere, which is not in"),
        ("print(", "cannot be read as Python"),
    ],
)
def test_code_that_cannot_be_followed_leaves_a_doubt(code: str, said: str, tmp_path: Path) -> None:
    """The message names it."""
    (tmp_path / "code.py").write_text(code)
    doubts = read(tmp_path, "code.py").footprint.doubts
    assert any(said in doubt for doubt in doubts), doubts


def test_imports_are_followed(tmp_path: Path) -> None:
    """Through packages, relative ones and names that are modules, and beside what the interpreter brings."""
    write(
        tmp_path,
        main="import json, pack.one\nfrom pack import two, VALUE\nif False:\n    import late\n",
        pack__one="from . import three\nfrom .deep.four import X",
        pack__two="",
        pack__three="",
        pack__deep__four="X = 1",
        late="import nowhere",
        json="",
        unused="",
    )
    (tmp_path / "pack" / "__init__.py").write_text("VALUE = 1")
    found = read(tmp_path, "main.py")
    expected = {"main", "pack/__init__", "pack/one", "pack/two", "pack/three", "late", "json"}
    expected |= {"pack/deep/four"}
    assert names(found, tmp_path) == {f"{name}.py" for name in expected}
    assert (found.footprint.parts, found.footprint.doubts) == ({"module nowhere": ""}, [])


def test_a_path_that_follows_from_the_file_is_looked_into(tmp_path: Path) -> None:
    """All modules of the suite that are called as one that is imported count."""
    write(
        tmp_path,
        main="import os, sys\nHERE = os.path.dirname(__file__)\nsys.path.insert(0, HERE)\nimport deeper",
        inner__deeper="",
        other__deeper="",
        other__unused="",
    )
    found = read(tmp_path, "main.py")
    assert names(found, tmp_path) == {"main.py", "inner/deeper.py", "other/deeper.py"}
    assert not found.footprint.doubts


def test_code_that_runs_its_argument_is_followed(tmp_path: Path) -> None:
    """Files among the arguments are read anyway."""
    code = "import runpy, sys\nrunpy.run_path(sys.argv[1], run_name='__main__')"
    assert read(tmp_path, code=code) == Found(footprint=Footprint(), runs_arguments=True)
    named = "import runpy, sys\nscript, name = sys.argv[1:]\nrunpy.run_path(script)"
    assert read(tmp_path, code=named) == Found(footprint=Footprint(), runs_arguments=True)
    again = named.replace("runpy.run", "script = name + '.py'\nrunpy.run")
    assert read(tmp_path, code=again).footprint.doubts
    other = code.replace("runpy.run", "sys.argv = ['', 'x']\nrunpy.run")
    assert read(tmp_path, code=other).footprint.doubts
