"""The packages that an index would hold: built, installed where there is no checkout, and used there."""

import os
import shutil
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from tests.conftest import ROOT

SUITE = """
name = "mine"

[[testcase]]
name = "true"
run = ["true"]
"""


def run(
    command: list[str | Path], folder: Path, environment: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    """Run a command that must succeed."""
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done


@pytest.mark.slow
@pytest.mark.usefixtures("one_core")
def test_an_installed_wheel_works_where_there_is_no_checkout(tmp_path: Path) -> None:
    """The wheel, made from the sdist, has all but the test doubles; it has the demo, tunes a file of the
    user's and runs a suite. The environment shares the packages of this one, but for Tileyard.
    """
    plain = {
        name: text
        for name, text in os.environ.items()
        if not name.startswith(("PYTEST_", "TILEYARD_", "TILELANG_")) and name != "PYTHONPATH"
    }
    source, work = tmp_path / "source", tmp_path / "work"
    work.mkdir()
    clean = shutil.ignore_patterns("__pycache__", "*.egg-info")
    shutil.copytree(ROOT / "src", source / "src", ignore=clean)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source / name)
    run([sys.executable, "-m", "build", "--no-isolation", "-o", tmp_path, source], work, plain)
    (wheel,) = tmp_path.glob("*.whl")
    assert len([*tmp_path.glob("*.tar.gz")]) == 1
    ours = {name for name in zipfile.ZipFile(wheel).namelist() if name.startswith("tileyard/")}
    files = (path for path in (source / "src" / "tileyard").rglob("*") if path.is_file())
    all_files = {path.relative_to(source / "src") for path in files}
    doubles = {path for path in all_files if path.parts[1:3] == ("testing", "doubles")}
    assert doubles
    assert ours == {str(path) for path in all_files - doubles}

    place = tmp_path / "environment"
    run([sys.executable, "-m", "venv", "--without-pip", place], work, plain)
    (packages,) = place.glob("lib/*/site-packages")
    others = (path for path in sys.path if Path(path).name == "site-packages")
    (packages / "others.pth").write_text("\n".join(others), encoding="utf-8")
    pip = [sys.executable, "-m", "pip", "--python", place / "bin" / "python", "install"]
    offline = ["--quiet", "--no-index", "--no-deps", "--ignore-installed", "--no-compile"]
    run([*pip, *offline, wheel], work, plain)

    tileyard = place / "bin" / "tileyard"
    demo = run([tileyard, "demo", "--shape", "small", "--trials", "1"], work, plain)
    shipped = packages / "tileyard" / "demo" / "gemm.py"
    assert str(shipped) in demo.stderr
    assert "\nbest: block_M=" in demo.stdout
    shutil.copy(shipped, work / "mine.py")
    options = ["--arg", "M=64", "--arg", "N=64", "--arg", "K=64", "--trials", "1"]
    tuned = run([tileyard, "tune", "mine.py::gemm", *options], work, plain)
    assert "\nbest: block_M=64 block_N=64 block_K=" in tuned.stdout
    (work / "suite.toml").write_text(SUITE, encoding="utf-8")
    assert "1  passed" in run([tileyard, "test", "suite.toml"], work, plain).stdout


def test_every_extra_is_pinned() -> None:
    """What an extra needs has one version in constraints.txt, and it is one that the extra takes."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    pins = {}
    for line in (ROOT / "constraints.txt").read_text("utf-8").splitlines():
        if line and not line.startswith("#"):
            name, _, version = line.partition("==")
            pins[name.lower().replace("_", "-")] = version
    extras = project["optional-dependencies"].values()
    needed = map(Requirement, [*project["dependencies"], *(one for each in extras for one in each)])
    wrong = [
        str(one)
        for one in needed
        if pins.get(one.name.lower().replace("_", "-"), "0") not in one.specifier
    ]
    assert not wrong
