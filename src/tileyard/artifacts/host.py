"""What this host has of the things that bundles need. Read from files; nothing is run."""

import os
import platform
import sys
from collections.abc import Iterable
from pathlib import Path

from tileyard.artifacts.compat import Host
from tileyard.artifacts.elf import read_offered
from tileyard.artifacts.libraries import LibraryFinder, variable_folders

_CPUINFO = Path("/proc/cpuinfo")
_NVIDIA = Path("/proc/driver/nvidia/version")


def read_host(
    libraries: Iterable[str] = (), driver: str = "", finder: LibraryFinder | None = None
) -> Host:
    """What this host has, and which of ``libraries``. ``driver`` overrides the driver's version.

    Libraries are looked for as programs started by this process would find them.
    """
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
    """The version of the C library in use; empty where it is not glibc."""
    try:
        name, _, version = (os.confstr("CS_GNU_LIBC_VERSION") or "").partition(" ")
    except (ValueError, OSError):
        return ""
    return version if name == "glibc" else ""


def read_features(cpuinfo: Path = _CPUINFO) -> tuple[str, ...]:
    """What the CPU can do, in the kernel's names; nothing where the kernel does not say."""
    try:
        lines = cpuinfo.read_text().splitlines()
    except OSError:
        return ()
    for line in lines:
        name, _, value = line.partition(":")
        if name.strip() in ("flags", "Features"):
            return tuple(sorted(value.split()))
    return ()


def read_driver(version: Path = _NVIDIA) -> str:
    """The version of the NVIDIA kernel driver; empty where there is none."""
    try:
        words = version.read_text().split()
    except OSError:
        return ""
    numbers = (word for word in words if word[:1].isdigit() and word.count(".") in (1, 2))
    return next(numbers, "")
