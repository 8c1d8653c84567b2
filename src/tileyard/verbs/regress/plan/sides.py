"""The two sides of a static comparison: the current environment, another one, or other pass options."""

import os
import subprocess
import sys
from pathlib import Path

import msgspec

from tileyard.base.decoding import decode_json
from tileyard.base.errors import ToolMissingError, UsageError
from tileyard.base.model import Record, Side
from tileyard.targets.cuda.packages import ANY_TILELANG
from tileyard.targets.cuda.shortcuts import SWITCH as PLAIN

HERE = "."
RUN = "run:"
"""Prefix of a recorded run's name as a side."""
NEEDED = (
    *("cuda.bindings", "elftools", "ml_dtypes", "msgspec", "numpy", "packaging"),
    *("scipy", "sqlalchemy", "tilelang", "torch", "zstandard"),
)
"""Packages that a side's Python must have: Tileyard's own except Tileyard, TileLang, the extra cuda."""
PROBE_LIMIT_S = 60.0
_PROBE = """
import importlib.metadata, importlib.util, json, sys
def find(name):
    try:
        return importlib.util.find_spec(name)
    except ImportError:
        return None
try:
    version = importlib.metadata.version("tilelang")
except importlib.metadata.PackageNotFoundError:
    version = ""
print(json.dumps({
    "python": list(sys.version_info[:2]),
    "tilelang": version,
    "missing": [name for name in sys.argv[1:] if find(name) is None],
}))
"""


class Installed(Record):
    """A side's Python's report on itself."""

    python: tuple[int, int]
    tilelang: str
    missing: tuple[str, ...]


def find_side(named: str) -> Side:
    """The side of ``.``, a Python or a virtual environment's folder, with that name. Raises UsageError."""
    if named == HERE:
        return Side(name=named)
    path = Path(named).absolute()
    program = path / "bin" / "python" if path.is_dir() else path
    if not (program.is_file() and os.access(program, os.X_OK)):
        raise UsageError(
            f"{named} is neither a Python, nor a virtual environment, nor pass options KEY=VALUE,...",
            f"{HERE} is what is installed here",
        )
    return Side(name=named, python=str(program))


def probe_side(side: Side, variables: dict[str, str]) -> Installed:
    """Ask a side's Python for its packages. Raises ToolMissingError if they are not enough."""
    python = side.python or sys.executable
    argv = [python, "-P", "-c", _PROBE, *NEEDED]
    try:
        done = subprocess.run(
            argv,
            env={**os.environ, **variables},
            capture_output=True,
            check=False,
            timeout=PROBE_LIMIT_S,
        )
        found = decode_json(done.stdout, Installed)
    except (OSError, subprocess.TimeoutExpired, msgspec.DecodeError) as error:
        raise ToolMissingError(f"{side.name}: {python} is no Python that works") from error
    if found.python < (3, 11):
        has = ".".join(map(str, found.python))
        raise ToolMissingError(f"{side.name} has Python {has}", "it takes 3.11 or later")
    if found.missing:
        raise ToolMissingError(
            f"{side.name} lacks {', '.join(found.missing)}",
            "install tileyard with its extra cuda there, beside that TileLang",
        )
    return found


def side_variables(side: Side, scratch: Path, *, is_plain: bool) -> dict[str, str]:
    """The environment in which a side runs this very Tileyard and its own version of all else. A folder with
    a link goes first, as Tileyard's own may also hold a TileLang. With ``is_plain`` TileLang's passes run
    without version-bound shortcuts.
    """
    # Nothing is imported from the current folder: it may be TileLang's own.
    variables = {"PYTHONSAFEPATH": "1", ANY_TILELANG: "1"}
    if is_plain:
        variables[PLAIN] = "1"
    if side.python:
        folder = scratch / "tileyard-only"
        folder.mkdir(exist_ok=True)
        link = folder / "tileyard"
        if not link.is_symlink():
            link.symlink_to(Path(__file__).parents[3])
        variables["PYTHONPATH"] = str(folder)
    return variables
