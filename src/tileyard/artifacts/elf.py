"""What a program or library in ELF says it needs of the host it runs on. Nothing is loaded or run."""

import re
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from packaging.version import InvalidVersion, Version

from tileyard.model import Record

MACHINES = {
    "EM_X86_64": "x86_64",
    "EM_386": "i686",
    "EM_AARCH64": "aarch64",
    "EM_ARM": "arm",
    "EM_PPC64": "ppc64le",
    "EM_RISCV": "riscv64",
    "EM_LOONGARCH": "loongarch64",
    "EM_S390": "s390x",
}
"""ELF's names of machines, and the kernel's (``uname -m``)."""

OF_DEVICES = frozenset({"EM_CUDA"})
"""Machines of code that a driver loads, and no host runs: it asks nothing of one."""

LEVELS = ("x86-64-v1", "x86-64-v2", "x86-64-v3", "x86-64-v4")
"""The bits of a mark of what a CPU must have, the lowest first."""

_ISA_NEEDED = "GNU_PROPERTY_X86_ISA_1_NEEDED"
_VERSIONED = re.compile(r"(GLIBC|GLIBCXX|CXXABI)_(\d+(?:\.\d+)*)")


class Needs(Record):
    """What one ELF file says. ``versions`` has the highest of each of GLIBC, GLIBCXX and CXXABI.

    ``libraries`` are the sonames that it asks the dynamic loader for. ``is_rpath`` says that
    ``search`` stands in DT_RPATH, which counts before LD_LIBRARY_PATH. ``cpu_level`` is the one that
    its linker marked it with, which few do; empty for none.
    """

    machine: str
    soname: str = ""
    libraries: tuple[str, ...] = ()
    search: tuple[str, ...] = ()
    is_rpath: bool = False
    versions: dict[str, str] = {}
    cpu_level: str = ""


def is_elf(path: Path) -> bool:
    """Whether a file begins as ELF files do. Raises OSError."""
    with path.open("rb") as file:
        return file.read(4) == b"\x7fELF"


def read_needs(path: Path) -> Needs | None:
    """What a program or shared library needs; None for any other file, also one that is damaged."""
    # A tenth of a second, which most who know of needs do without.
    from elftools.common.exceptions import ELFError
    from elftools.elf.elffile import ELFFile

    try:
        if not is_elf(path):
            return None
        with path.open("rb") as file:
            return _read(ELFFile(file))
    except (ELFError, ValueError, KeyError, TypeError, AttributeError, OSError, struct.error):
        # The last resort of the reader is whatever its parsing happens to stumble over.
        return None


def read_offered(path: Path) -> dict[str, str]:
    """The highest version of each of GLIBC, GLIBCXX and CXXABI that a library defines."""
    from elftools.common.exceptions import ELFError
    from elftools.elf.elffile import ELFFile

    try:
        with path.open("rb") as file:
            section: Any = ELFFile(file).get_section_by_name(".gnu.version_d")
            if section is None:
                return {}
            names = [aux.name for _, auxes in section.iter_versions() for aux in auxes]
    except (ELFError, ValueError, KeyError, TypeError, AttributeError, OSError, struct.error):
        return {}
    return highest_versions(names)


def highest_versions(names: list[str]) -> dict[str, str]:
    """The highest version of each family among names such as ``GLIBC_2.34``."""
    found: dict[str, str] = {}
    for match in filter(None, map(_VERSIONED.fullmatch, names)):
        family, version = match[1], match[2]
        if is_newer(version, found.get(family, "")):
            found[family] = version
    return found


def is_newer(version: str, than: str) -> bool:
    """Whether a version is higher than another one; any is higher than none at all."""
    if not version or not than:
        return bool(version) and not than
    try:
        return Version(version) > Version(than)
    except InvalidVersion:
        return version > than


def _read(elf: Any) -> Needs | None:  # noqa: ANN401 - the library has no types
    machine = str(elf.header.e_machine)
    if elf.header.e_type not in ("ET_EXEC", "ET_DYN") or machine in OF_DEVICES:
        return None
    soname, libraries = "", []
    rpath = runpath = ""
    for tag in _dynamic(elf):
        match tag.entry.d_tag:
            case "DT_NEEDED":
                libraries.append(str(tag.needed))
            case "DT_SONAME":
                soname = str(tag.soname)
            case "DT_RPATH":
                rpath = str(tag.rpath)
            case "DT_RUNPATH":
                runpath = str(tag.runpath)
            case _:
                pass
    search = (runpath or rpath).split(":")
    return Needs(
        machine=MACHINES.get(machine, machine),
        soname=soname,
        libraries=tuple(libraries),
        search=tuple(folder for folder in search if folder),
        is_rpath=bool(rpath) and not runpath,
        versions=highest_versions(_needed_versions(elf)),
        cpu_level=_marked_level(elf),
    )


def _dynamic(elf: Any) -> Iterator[Any]:  # noqa: ANN401 - the library has no types
    for segment in elf.iter_segments(type="PT_DYNAMIC"):
        yield from segment.iter_tags()


def _needed_versions(elf: Any) -> list[str]:  # noqa: ANN401 - the library has no types
    section = elf.get_section_by_name(".gnu.version_r")
    if section is None:
        return []
    return [str(aux.name) for _, auxes in section.iter_versions() for aux in auxes]


def _marked_level(elf: Any) -> str:  # noqa: ANN401 - the library has no types
    section = elf.get_section_by_name(".note.gnu.property")
    if section is None or elf.header.e_machine != "EM_X86_64":
        return ""
    bits = 0
    for note in section.iter_notes():
        if note["n_type"] == "NT_GNU_PROPERTY_TYPE_0":
            for mark in note["n_desc"]:
                if mark.pr_type == _ISA_NEEDED:
                    bits |= int(mark.pr_data)
    marked = [level for bit, level in enumerate(LEVELS) if bits >> bit & 1]
    return marked[-1] if marked else ""
