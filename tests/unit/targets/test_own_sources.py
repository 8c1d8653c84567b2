"""A change to any module that decides what a target builds is another build."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.samples import IS_WHOLE

import tileyard
from tileyard.targets.own_sources import find_own_sources

PACKAGE = Path(tileyard.__file__).parent
TARGETS = ("command", "cpu", "cuda")
NAMED = {
    *("tileyard.ir.walk", "tileyard.ir.verify", "tileyard.ir.dtypes"),
    *("tileyard.targets.cpu.machine", "tileyard.targets.cpu.emit.program"),
}

EDITS = """
import json, sys
from pathlib import Path
from tileyard.targets import own_sources
from tileyard.targets.cpu.target import CpuTarget

target = CpuTarget()
module = CpuTarget.__module__

def fingerprint():
    own_sources.digest_own_sources.cache_clear()
    return target.fingerprint()

before = fingerprint()
same = []
for name in sorted(own_sources.find_own_sources(module))[::int(sys.argv[1])]:
    file = own_sources._find_file(name)
    text = file.read_text()
    file.write_text(text + "\\n# edited\\n")
    if fingerprint() == before:
        same.append(name)
    file.write_text(text)
print(json.dumps([own_sources.__file__, same, fingerprint() == before]))
"""

IMPORTS = """
import json, sys
import tileyard
known = set(sys.modules)
import {module}
print(json.dumps([m for m in sys.modules if m.startswith("tileyard.") and m not in known]))
"""


def run_python(code: str, source: Path, *arguments: object) -> object:
    """What a fresh interpreter prints that imports Tileyard from ``source``."""
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": str(source)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.slow
def test_an_edit_of_each_module_is_another_build(tmp_path: Path) -> None:
    """In a copy of the package, one module after the other; by default each fifth, as all are read alike."""
    shutil.copytree(PACKAGE, tmp_path / "tileyard", ignore=shutil.ignore_patterns("__pycache__"))
    copy = str(tmp_path / "tileyard" / "targets" / "own_sources.py")
    step = 1 if IS_WHOLE else 5
    assert run_python(EDITS, tmp_path, step) == [copy, [], True]


def test_modules_that_were_forgotten_once_count() -> None:
    """A mistake in one of these is a wrong kernel, so its mending has to be a new one."""
    found = find_own_sources("tileyard.targets.cpu.target")
    assert NAMED - found.keys() == set()
    assert "tileyard" not in found


@pytest.mark.parametrize("target", TARGETS)
def test_all_that_is_really_imported_counts(target: str) -> None:
    """What Python itself loads for a target is among what was found in its text."""
    module = f"tileyard.targets.{target}.target"
    loaded = run_python(IMPORTS.format(module=module), PACKAGE.parent)
    assert isinstance(loaded, list)
    assert set(loaded) - find_own_sources(module).keys() == set()
