"""Compares what a bundle needs with what this host has, as read from files."""

import operator
import os
import platform
import re
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from difflib import get_close_matches
from itertools import accumulate
from pathlib import Path
from typing import Annotated

import msgspec
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version

from tileyard.artifacts.libraries import (
    GLIBC_FAMILY,
    LibraryFinder,
    Needs,
    highest_versions,
    is_newer,
    read_offered,
    variable_folders,
)
from tileyard.base.decoding import Text
from tileyard.base.errors import IncompatibleError
from tileyard.base.model import Record

VERSION = r"(\d+(?:\.\d+)+)"
"""Finds the version number in the output of most programs."""
Ask = Callable[[tuple[str, ...]], tuple[str, str]]
"""Returns the output of a command, and what is wrong with it, empty if nothing is."""
_ADDED = {
    "x86-64-v1": frozenset({"sse2"}),
    "x86-64-v2": frozenset({"cx16", "popcnt", "pni", "ssse3", "sse4_1", "sse4_2"}),
    "x86-64-v3": frozenset({"avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe"}),
    "x86-64-v4": frozenset({"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}),
}
CPU_LEVELS: dict[str, frozenset[str]] = dict(
    zip(_ADDED, accumulate(_ADDED.values(), operator.or_), strict=True)
)
"""The features of a CPU of each level, in the kernel's names (``/proc/cpuinfo``)."""
_CPUINFO = Path("/proc/cpuinfo")
_NVIDIA = Path("/proc/driver/nvidia/version")
FIRST_DRIVERS = {12: 525, 13: 580}
"""By CUDA's major version, NVIDIA's first driver that loads code compiled by any of its minor versions."""


class VersionNeed(Record):
    """A version that a command prints: the first group of ``pattern``, in ``range`` unless that is empty."""

    argv: Annotated[tuple[Text, ...], msgspec.Meta(min_length=1)]
    pattern: Text = VERSION
    range: str = ""


class Prerequisites(Record):
    """Programs by name on PATH, versions, variables that are set, and the number of devices of each class."""

    programs: tuple[Text, ...] = ()
    versions: tuple[VersionNeed, ...] = ()
    variables: tuple[Text, ...] = ()
    devices: dict[str, Annotated[int, msgspec.Meta(ge=1)]] = {}

    def joined(self, other: "Prerequisites") -> "Prerequisites":
        """The requirements of both."""
        kinds = dict.fromkeys((*self.devices, *other.devices))
        return Prerequisites(
            programs=tuple(dict.fromkeys((*self.programs, *other.programs))),
            versions=tuple(dict.fromkeys((*self.versions, *other.versions))),
            variables=tuple(dict.fromkeys((*self.variables, *other.variables))),
            devices={
                kind: max(self.devices.get(kind, 0), other.devices.get(kind, 0)) for kind in kinds
            },
        )

    def texts(self) -> Iterator[str]:
        """All texts that are shown to people."""
        yield from (*self.programs, *self.variables, *self.devices)
        for need in self.versions:
            yield from (*need.argv, need.pattern, need.range)

    def describe(self) -> Iterator[str]:
        """Each requirement in a few words."""
        yield from (f"program {name} on PATH" for name in self.programs)
        for need in self.versions:
            yield f"`{' '.join(need.argv)}` {need.range}".rstrip()
        yield from (f"variable {name}" for name in self.variables)
        yield from (f"{count} of the devices {kind}" for kind, count in self.devices.items())


def find_fault(needed: Prerequisites) -> tuple[tuple[str | int, ...], str]:
    """The keys on the path to the first invalid requirement, and the reason; empty if all are valid."""
    for number, need in enumerate(needed.versions):
        try:
            if re.compile(need.pattern).groups < 1:
                return ("versions", number, "pattern"), f"{need.pattern!r} has no group (...)"
        except re.error as error:
            reason = f"{need.pattern!r} is not a regular expression: {error}"
            return ("versions", number, "pattern"), reason
        try:
            SpecifierSet(need.range)
        except InvalidSpecifier:
            reason = f"{need.range!r} is not a range of versions such as >=3.1,<4"
            return ("versions", number, "range"), reason
    for number, name in enumerate(needed.variables):
        if not name.isidentifier():
            return ("variables", number), f"{name!r} is not the name of a variable"
    for number, name in enumerate(needed.programs):
        if os.sep in name:
            return ("programs", number), f"{name!r} is a path: name a program that PATH leads to"
    return (), ""


def find_missing(
    needed: Prerequisites, env: Mapping[str, str], ask: Ask, kinds: Mapping[str, int]
) -> Iterator[str]:
    """One line for each requirement that is not met. ``kinds`` has the number of devices of each class."""
    search = env.get("PATH", os.defpath)
    missing = [name for name in needed.programs if not shutil.which(name, path=search)]
    for name in missing:
        near = find_near(name, search)
        hint = near and f" (did you mean {near!r}?)"
        yield f"program {name} is required and was not found on PATH{hint}"
    for need in needed.versions:
        if need.argv[0] in missing:
            continue
        text, problem = ask(need.argv)
        found = None if problem else re.search(need.pattern, text)
        what, wanted = f"`{' '.join(need.argv)}`", need.range or "a version"
        if problem:
            yield _unmet(what, wanted, f"that it {problem}")
        elif found is None:
            yield _unmet(what, wanted, f"nothing like {need.pattern!r} in {text[:80].strip()!r}")
        elif need.range and not _is_in_range(found[1] or "", need.range):
            yield _unmet(what, wanted, found[1] or "nothing")
    for name in needed.variables:
        if name in env and not env[name]:
            yield _unmet(f"variable {name}", "a value", "none")
        elif name not in env:
            near = "".join(get_close_matches(name, sorted(env), n=1, cutoff=0.75))
            yield _unmet(f"variable {name}", "it", f"none{near and f', the nearest is {near}'}")
    for kind, count in needed.devices.items():
        if kinds.get(kind, 0) < count:
            near = "".join(get_close_matches(kind, sorted(kinds), n=1, cutoff=0.75))
            said = str(kinds.get(kind, f"none{near and f', the nearest is {near}'}"))
            yield _unmet(f"devices {kind}", str(count), said)


def find_near(name: str, search: str) -> str:
    """A program on PATH with a name similar to that of a missing one; empty for none."""
    folders = filter(os.path.isdir, search.split(os.pathsep))
    names = {entry.name for folder in folders for entry in Path(folder).iterdir()}
    return "".join(get_close_matches(name, sorted(names), n=1, cutoff=0.75))


def _unmet(requirement: str, needed: str, found: str) -> str:
    return f"{requirement}: {needed} is needed, found {found}"


def _is_in_range(version: str, wanted: str) -> bool:
    try:
        return SpecifierSet(wanted).contains(Version(version), prereleases=True)
    except InvalidVersion:
        return False


class _Facts(Record):
    """A host's properties, empty if unknown: ``cpu_features`` as the kernel names them, highest symbol
    versions ``glibc``, ``glibcxx``, ``cxxabi``, a tag ``python`` as ``cp311``, sonames ``libraries``.
    """

    machine: str = ""
    cpu_features: tuple[str, ...] = ()
    glibc: str = ""
    glibcxx: str = ""
    cxxabi: str = ""
    python: str = ""
    libraries: tuple[str, ...] = ()
    driver: str = ""


class Requirements(_Facts):
    """What a host must have; empty fields require nothing. ``cpu_level`` is of ``CPU_LEVELS``,
    ``libraries`` are not in the bundle, ``driver`` is a range as ``>=535,<600``, ``prerequisites``
    are declared. ``has_cxx``: a C++ runtime is included.
    """

    cpu_level: str = ""
    has_cxx: bool = False
    prerequisites: Prerequisites = Prerequisites()


class Host(_Facts):
    """The properties of a host; ``libraries`` are the requested ones that its dynamic loader would find."""


def unmet(requirement: str, needed: str, found: str) -> str:
    """One line for people about a requirement that is not met."""
    return f"{requirement}: {needed} is needed, found {found or 'none'}"


def require_fit(what: str, refusals: Iterable[str]) -> None:
    """Raise IncompatibleError if there are any refusals."""
    lines = tuple(refusals)
    if lines:
        raise IncompatibleError(f"{what} cannot be used here: {'; '.join(lines)}", refusals=lines)


def sum_needs(needs: Iterable[Needs], packed: Iterable[str]) -> Requirements:
    """The joint needs of ELF files, but for ``packed`` sonames; of the glibc family only the version."""
    files = tuple(needs)
    names = [f"{family}_{version}" for one in files for family, version in one.versions.items()]
    versions = highest_versions(names)
    asked = {name for one in files for name in one.libraries if not GLIBC_FAMILY.fullmatch(name)}
    return Requirements(
        machine=" and ".join(sorted({one.machine for one in files})),
        cpu_level=max((one.cpu_level for one in files), key=_rank, default=""),
        glibc=versions.get("GLIBC", ""),
        glibcxx=versions.get("GLIBCXX", ""),
        cxxabi=versions.get("CXXABI", ""),
        libraries=tuple(sorted(asked.difference(packed))),
    )


def higher_level(one: str, other: str) -> str:
    """The level that serves both."""
    return max(one, other, key=_rank)


def find_level(features: Iterable[str]) -> str:
    """The highest level for which these features suffice; empty for none."""
    present = frozenset(features)
    return next((level for level in reversed(CPU_LEVELS) if CPU_LEVELS[level] <= present), "")


def is_in_range(version: str, wanted: str) -> bool:
    """Whether a driver's version is in a range. A range that cannot be read contains nothing."""
    try:
        return Version(version) in SpecifierSet(wanted)
    except (InvalidVersion, InvalidSpecifier):
        return False


def _rank(level: str) -> int:
    """The rank of a level; an unknown one is above all others, so that it is not lost."""
    names = ["", *CPU_LEVELS]
    return names.index(level) if level in names else len(names)


def find_refusals(needed: Requirements, host: Host) -> Iterator[str]:
    """Every unmet requirement, in the order in which people read them."""
    if needed.machine and needed.machine != host.machine:
        # All other differences follow from that.
        yield unmet("architecture", needed.machine, host.machine)
        return
    level = find_level(host.cpu_features)
    if _rank(needed.cpu_level) > _rank(level):
        yield unmet("cpu level", needed.cpu_level, level)
    if lacking := [name for name in needed.cpu_features if name not in host.cpu_features]:
        yield unmet("cpu features", ", ".join(lacking), "a CPU without them")
    versions = [("glibc", needed.glibc, host.glibc)]
    if not needed.has_cxx:
        versions.append(("libstdc++ (GLIBCXX)", needed.glibcxx, host.glibcxx))
        versions.append(("libstdc++ (CXXABI)", needed.cxxabi, host.cxxabi))
    for requirement, version, found in versions:
        if version and (not found or is_newer(version, found)):
            yield unmet(requirement, version, found)
    if needed.python and needed.python != host.python:
        yield unmet("python", needed.python, host.python)
    for name in needed.libraries:
        if name not in host.libraries:
            yield unmet("library", name, "")
    if needed.driver and not is_in_range(host.driver, needed.driver):
        yield unmet("driver", needed.driver, host.driver)


def read_host(
    libraries: Iterable[str] = (), driver: str = "", finder: LibraryFinder | None = None
) -> Host:
    """This host's properties, and which of ``libraries`` its programs find. ``driver``: another version."""
    machine = platform.machine()
    finder = finder or LibraryFinder(variable_folders(os.environ))
    cxx = finder.find_for("libstdc++.so.6", machine)
    offered = read_offered(cxx) if cxx else {}
    return Host(
        machine=machine,
        cpu_features=read_features(),
        glibc=read_glibc(),
        glibcxx=offered.get("GLIBCXX", ""),
        cxxabi=offered.get("CXXABI", ""),
        python=python_tag(),
        libraries=tuple(name for name in libraries if finder.find_for(name, machine)),
        driver=driver or read_driver(),
    )


def python_tag() -> str:
    """The tag of binary packages for the running Python, such as ``cp311``."""
    short = {"cpython": "cp", "pypy": "pp"}.get(sys.implementation.name, sys.implementation.name)
    return f"{short}{sys.version_info.major}{sys.version_info.minor}"


def read_glibc() -> str:
    """The version of the C library in use; empty if it is not glibc."""
    try:
        name, _, version = (os.confstr("CS_GNU_LIBC_VERSION") or "").partition(" ")
    except (ValueError, OSError):
        return ""
    return version if name == "glibc" else ""


def read_features(cpuinfo: Path = _CPUINFO) -> tuple[str, ...]:
    """The CPU's features, in the kernel's names; nothing if the kernel does not report them."""
    try:
        lines = cpuinfo.read_text().splitlines()
    except OSError:
        return ()
    pairs = (line.partition(":") for line in lines)
    flags = (value for name, _, value in pairs if name.strip() in ("flags", "Features"))
    return tuple(sorted(next(flags, "").split()))


def read_driver(version: Path = _NVIDIA) -> str:
    """The version of the NVIDIA kernel driver; empty if there is none."""
    try:
        words = version.read_text().split()
    except OSError:
        return ""
    numbers = (word for word in words if word[:1].isdigit() and word.count(".") in (1, 2))
    return next(numbers, "")
