"""Runs the quick tests of what has changed: of the rooms that were touched and of those above them.

``python tools/quick.py [-n JOBS] [REVISION]``. Changes are those of the working tree since REVISION
(HEAD unless said). Test files that have changed themselves are run whole, slow tests included.
"""

import argparse
import subprocess
import sys
import tomllib
from collections.abc import Iterable
from pathlib import Path

SOURCE, UNIT = Path("src/tileyard"), Path("tests/unit")


def list_changed(revision: str) -> list[Path]:
    """Files that differ from a revision, new ones included."""
    commands = (
        ["git", "diff", "--name-only", "--diff-filter=d", revision],
        ["git", "ls-files", "--others", "--exclude-standard"],
    )
    texts = (subprocess.run(c, capture_output=True, text=True, check=True).stdout for c in commands)
    return [Path(line) for text in texts for line in text.splitlines()]


def read_layers() -> list[list[str]]:
    """The rooms, the highest ones first, those on one level together."""
    contracts = tomllib.loads(Path("pyproject.toml").read_text(encoding="utf-8"))
    (layers,) = (
        contract["layers"]
        for contract in contracts["tool"]["importlinter"]["contracts"]
        if contract["type"] == "layers"
    )
    return [[room.strip() for room in line.split("|")] for line in layers]


def rooms_to_test(changed: Iterable[Path], layers: list[list[str]]) -> list[str]:
    """The rooms of these files, and all that may import them."""
    touched = {p.relative_to(SOURCE).parts[0] for p in changed if p.is_relative_to(SOURCE)}
    touched |= {p.relative_to(UNIT).parts[0] for p in changed if p.is_relative_to(UNIT)}
    touched = {name.removesuffix(".py").removeprefix("test_") for name in touched}
    lowest = max((n for n, rooms in enumerate(layers) if not touched.isdisjoint(rooms)), default=-1)
    above = {room for rooms in layers[: max(lowest, 0)] for room in rooms}
    return sorted(above | touched)


def run_tests(jobs: str, arguments: Iterable[str]) -> int:
    """Run pytest; finding no test is not a failure."""
    argv = [sys.executable, "-m", "pytest", "-q", "-n", jobs, "--dist", "loadfile", *arguments]
    code = subprocess.run(argv, check=False).returncode
    return 0 if code == 5 else code


def main() -> int:
    """Run the tests; 0 if they pass."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-n", dest="jobs", default="2", help="how many test processes [2]")
    parser.add_argument("revision", nargs="?", default="HEAD")
    options = parser.parse_args()
    changed = list_changed(options.revision)
    rooms = rooms_to_test(changed, read_layers())
    places = [UNIT / name for room in rooms for name in (room, f"test_{room}.py")]
    always = sorted(UNIT.glob("test_*.py"))
    files = {p for p in changed if p.name.startswith("test_") and p.suffix == ".py"}
    quick = sorted({p for p in places if p.exists()} | set(always))
    print(f"rooms: {', '.join(rooms) or 'none'}", flush=True)
    status = run_tests(options.jobs, ["-m", "not slow", *map(str, quick)])
    if files:
        status = run_tests(options.jobs, map(str, sorted(files))) or status
    return status


if __name__ == "__main__":
    sys.exit(main())
