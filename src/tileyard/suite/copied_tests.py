"""Trees of tests in a checkout that have the same names: copies that have gone their own ways since."""

import os
from collections.abc import Iterable, Sequence
from itertools import combinations
from pathlib import Path

from tileyard.artifacts.keys import digest_parts
from tileyard.suite.jobs_duplicates import Finding, Spot

FEWEST_NAMESAKES = 3
FEWEST_FILES = 8
"""So many files, or so many tests by their names or folders of tests, make a tree the copy of another one."""
MOST_BEARERS = 20
"""A name that so many folders hold tells nothing of them."""


def find_copies(root: Path) -> list[Finding]:
    """Folders of tests of which one has the names of the other, and how many of these are not the same."""
    held: dict[str, set[str]] = {}
    bearers: dict[str, list[str]] = {}
    for folder, folders, files in os.walk(root):
        folders[:] = sorted(name for name in folders if not name.startswith(".") and name not in ("build", "node_modules"))  # fmt: skip
        if "test" not in os.path.relpath(folder, root).lower():
            continue
        names = {name for name in folders if name != "__pycache__"} | {
            name
            for name in files
            if not name.startswith(("__init__", "CMakeLists", "README", "conftest"))
        }
        held[folder] = names
        for name in names:
            bearers.setdefault(name, []).append(folder)
    counts: dict[tuple[str, str], int] = {}
    for those in bearers.values():
        for pair in combinations(those, 2) if len(those) <= MOST_BEARERS else ():
            counts[pair] = counts.get(pair, 0) + 1
    found: list[Finding] = []
    seen: list[tuple[str, str]] = []
    for (one, other), count in sorted(counts.items()):
        if count < max(FEWEST_NAMESAKES, min(len(held[one]), len(held[other])) / 2):
            continue
        named = [name for name in held[one] & held[other] if "test" in name.lower()]
        if len(named) < FEWEST_NAMESAKES and count < FEWEST_FILES:
            continue
        if any(one.startswith(f"{a}/") and other.startswith(f"{b}/") for a, b in seen):
            continue
        common = sorted(held[one] & held[other])
        if _are_alike(Path(one), Path(other), common):
            seen.append((one, other))
            found.append(_describe_copies(one, other, common, root))
    return found


def _describe_copies(one: str, other: str, names: Sequence[str], root: Path) -> Finding:
    folders = [name for name in names if Path(one, name).is_dir() and Path(other, name).is_dir()]
    names = folders if len(folders) >= FEWEST_NAMESAKES else names
    differing = sum(_content(Path(one, name)) != _content(Path(other, name)) for name in names)
    paths = [os.path.relpath(path, root) for path in (one, other)]
    return Finding(
        kind="copies",
        what=f"tests of the same names in {paths[0]} and {paths[1]}",
        spots=tuple(Spot(job="", where=path, command="") for path in paths),
        identity=digest_parts("copies", *paths),
        tests=tuple(names),
        differing=differing,
        keeper=paths[0]
        if len(list(Path(one).iterdir())) >= len(list(Path(other).iterdir()))
        else paths[1],
    )


def _are_alike(one: Path, other: Path, names: Iterable[str]) -> bool:
    """Whether half of the lines are the same in both trees: else they only use the same names."""
    common, total = 0, 0
    for name in names:
        mine, yours = (
            set(b"\n".join(_content(tree / name).values()).split(b"\n")) for tree in (one, other)
        )
        common += 2 * len(mine & yours)
        total += len(mine) + len(yours)
    return common >= total / 2


def _content(path: Path) -> dict[str, bytes]:
    files = sorted(one for one in path.rglob("*") if one.is_file()) if path.is_dir() else [path]
    return {str(one.relative_to(path)): one.read_bytes() for one in files if one.is_file()}
