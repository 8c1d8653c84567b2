"""Environments made for a side: what was asked for in front, what is installed here behind it."""

import os
import subprocess
import zipfile
from pathlib import Path

import pytest

from tileyard.base.errors import UsageError
from tileyard.base.settings import Settings
from tileyard.verbs.regress.plan.named_sides import find_environment, find_sides

pytestmark = pytest.mark.slow


def make_wheel(folder: Path, name: str, version: str) -> Path:
    """A package whose module says its version."""
    wheel = folder / f"{name}-{version}-py3-none-any.whl"
    info = f"{name}-{version}.dist-info"
    with zipfile.ZipFile(wheel, "w") as packed:
        packed.writestr(f"{name}.py", f"VERSION = {version!r}\n")
        packed.writestr(
            f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        )
        packed.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        packed.writestr(f"{info}/RECORD", "")
    return wheel


def ask(python: Path, code: str) -> str:
    """What the Python of an environment prints."""
    done = subprocess.run([python, "-c", code], check=True, capture_output=True, text=True)
    return done.stdout.strip()


def test_it_has_what_was_asked_for_and_all_else_of_here(tmp_path: Path) -> None:
    """Made once for the same requirements, and again for others."""
    home = tmp_path / "home"
    one, two = (str(make_wheel(tmp_path, "tilefloor", version)) for version in ("1.0", "2.0"))
    first, second = find_environment([one], home), find_environment([two], home)
    code = "import tilefloor, msgspec; print(tilefloor.VERSION, msgspec.__file__)"
    here = msgspec_file()
    assert [ask(python, code) for python in (first, second)] == [f"1.0 {here}", f"2.0 {here}"]
    made = first.stat().st_ctime_ns, (home / "sides").stat().st_mtime_ns
    assert find_environment([f" {one} "], home) == first
    assert (first.stat().st_ctime_ns, (home / "sides").stat().st_mtime_ns) == made
    folder = first.parents[1]
    os.utime(folder, (1, 1))
    find_environment([one], home)
    assert folder.stat().st_mtime > 1  # its use is noted


def msgspec_file() -> str:
    """Where a package of here lies."""
    import msgspec

    return str(msgspec.__file__)


@pytest.mark.parametrize(
    ("requirements", "expected"),
    [
        (["/nowhere/tilefloor-1.0-py3-none-any.whl"], "cannot be installed: "),
        ([""], "names no requirement"),
        (["--target=/tmp/elsewhere"], "names no requirement"),
    ],
)
def test_what_cannot_be_met_leaves_nothing(
    tmp_path: Path, requirements: list[str], expected: str
) -> None:
    """It is told in one line, as pip says it."""
    with pytest.raises(UsageError) as raised:
        find_environment(requirements, tmp_path)
    assert expected in raised.value.message
    assert "\n" not in raised.value.message
    assert not list(tmp_path.glob("sides/*"))


def test_a_clean_working_tree_was_compared_with_a_commit(tmp_path: Path) -> None:
    """``--clean`` refuses a repository without one, and says what git says of one that it cannot read."""
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    kernels = tmp_path / "k.py"
    kernels.touch()
    settings = Settings(home=tmp_path / "home", lock_dir=tmp_path, cores=(0,))
    with find_sides((".", "."), [str(kernels)], settings) as (base, _):
        assert base.side.name == "working tree"
    for expected in ("has no commit", "index file"):
        with (
            pytest.raises(UsageError, match=expected),
            find_sides((".", "."), [str(kernels)], settings, clean=True),
        ):
            pass
        (tmp_path / ".git" / "index").write_text("damaged")
