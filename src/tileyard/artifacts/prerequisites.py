"""Checks what a suite or a toolchain requires of a host beyond what can be read from its files."""

import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated

import msgspec
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version

from tileyard.base.decoding import Text
from tileyard.base.model import Record

VERSION = r"(\d+(?:\.\d+)+)"
"""Finds the version number in the output of most programs."""
Ask = Callable[[tuple[str, ...]], tuple[str, str]]
"""Returns the output of a command, and what is wrong with it, empty if nothing is."""


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
