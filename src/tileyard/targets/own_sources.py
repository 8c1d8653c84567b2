"""Finds the package's modules that decide what a target builds: all it imports, even indirectly."""

import functools
import re
from collections.abc import Mapping
from pathlib import Path

import msgspec

from tileyard.artifacts.objects import digest_bytes, digest_parts
from tileyard.base.decoding import decode_json
from tileyard.base.model import Record

_IMPORT = re.compile(
    r"^[ \t]*(?:from (tileyard(?:\.\w+)*) import (\([^)]*\)|.*)|import (tileyard(?:\.\w+)+))",
    re.MULTILINE,
)
LOG_FILE = "compiler.log"
"""The file with the compiler's output for a binary, if a target keeps it."""
PADDING = "padding"
"""The kind of the instructions that only fill space; it is not shown."""


_PACKAGE = Path(__file__).parents[1]


@functools.cache
def digest_own_sources(module: str) -> str:
    """The digest of a module and of everything it imports from this package, for a fingerprint."""
    found = find_own_sources(module)
    return digest_parts(*(part for name in sorted(found) for part in (name, found[name])))


def find_own_sources(module: str) -> dict[str, str]:
    """The digests of a module's source and of all that it imports from this package, by name.
    Imports in functions count, the package's ``__init__``, only the public names, does not.
    """
    found: dict[str, str] = {}
    waiting = [module]
    while waiting:
        name = waiting.pop()
        file = _find_file(name)
        if name in found or file is None:
            continue
        data = file.read_bytes()
        found[name] = digest_bytes(data)
        waiting.append(name.rpartition(".")[0])
        for package, names, whole in _IMPORT.findall(data.decode()):
            waiting.append(package or whole)
            waiting += (f"{package}.{one}" for one in re.findall(r"\w+", names))
    return found


def _find_file(name: str) -> Path | None:
    path = _PACKAGE.joinpath(*name.split(".")[1:])
    files = (path / "__init__.py", path.with_suffix(".py"))
    return next((file for file in files if path != _PACKAGE and file.is_file()), None)


def first_error(log: str) -> str:
    """The line of a compiler's log with the reason for its failure."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    return next((line for line in lines if "error" in line), lines[0] if lines else "no message")


class Resources(Record):
    """One device function's resources, read from its cubin; bytes are per block or per thread.
    ``spilled_bytes`` went from registers to memory, per thread. ``threads``,
    ``dynamic_shared_bytes`` and ``occupancy`` (active warps over a multiprocessor's most) are None
    if the call decides. ``mix`` counts instructions by kind, the largest first.
    """

    symbol: str
    registers: int
    spilled_bytes: int
    stack_bytes: int
    shared_bytes: int
    code_bytes: int
    parameter_bytes: int
    threads: int | None = None
    dynamic_shared_bytes: int | None = None
    occupancy: float | None = None
    mix: dict[str, int] = {}


class Reported(Record):
    """The part of an artifact's details that is compared and shown; empty for other targets.

    ``facts`` are numbers of the whole binary that a study can bound, by their names in the target's NEEDS.
    """

    resources: tuple[Resources, ...] = ()
    compiler: str = ""
    flags: tuple[str, ...] = ()
    facts: dict[str, int] = {}


def read_reported(details: str) -> Reported:
    """The resources in an artifact's ``details``; empty if these are another target's, or empty."""
    try:
        return decode_json(details, Reported) if details else Reported()
    except msgspec.DecodeError:
        return Reported()


class Excess(Record):
    """Why a config is too large: the limit that it exceeds, and one line about it."""

    limit: str
    message: str


def find_excess(facts: Mapping[str, float], bounds: Mapping[str, float]) -> Excess | None:
    """The first of the ``bounds`` that facts of a binary exceed."""
    for name, most in bounds.items():
        if facts.get(name, 0) > most:
            message = f"{name} is {facts[name]:.15g}, and its bound {most:.15g}"
            return Excess(limit=name_bound(name), message=message)
    return None


def name_bound(name: str) -> str:
    """The limit of a study's bound on a fact."""
    return f"--bound {name}"
