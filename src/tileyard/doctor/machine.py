"""Interpreter, kernel language and C compiler."""

import importlib.metadata
import platform
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tileyard.doctor.findings import Finding, Level
from tileyard.settings import Settings
from tileyard.targets.cpu.toolchain import CpuOptions, open_toolchain

OLDEST_PYTHON = (3, 11)
SOURCE = "int tileyard_probe(int x) { return x + 1; }\n"


def check_python(_: Settings) -> Iterator[Finding]:
    """The interpreter is new enough."""
    is_new = sys.version_info >= OLDEST_PYTHON
    yield Finding(
        subject="python",
        level=Level.OK if is_new else Level.FAIL,
        message=f"{platform.python_version()} ({sys.executable})",
        todo="" if is_new else f"use Python {'.'.join(map(str, OLDEST_PYTHON))} or newer",
    )


def check_tilelang(_: Settings) -> Iterator[Finding]:
    """TileLang is there in the version that this was made for; it is not imported."""
    wanted = _wanted_version("tilelang")
    found = _found_version("tilelang")
    if not found:
        yield Finding(
            subject="tilelang",
            level=Level.WARN,
            message="is not installed: kernels cannot be built, artifacts can be run",
            todo="pip install 'tileyard[tilelang]'",
        )
    elif wanted and found != wanted:
        yield Finding(
            subject="tilelang",
            level=Level.WARN,
            message=f"{found}, but this version of tileyard was made for {wanted}",
            todo=f"pip install tilelang=={wanted}",
        )
    else:
        yield Finding(subject="tilelang", level=Level.OK, message=found)


def check_compiler(settings: Settings) -> Iterator[Finding]:
    """The C compiler builds a shared object for this machine."""
    toolchain = open_toolchain(settings.cc, CpuOptions())
    name = f"{' '.join(toolchain.command)} {toolchain.version}"
    with tempfile.TemporaryDirectory(prefix="tileyard-doctor-") as folder:
        (Path(folder) / "probe.c").write_text(SOURCE, encoding="ascii")
        compiled = toolchain.compile_kernel(Path(folder), "probe.c", "probe.so")
    if compiled.ok:
        yield Finding(subject="C compiler", level=Level.OK, message=name)
    else:
        lines = compiled.log.strip().splitlines() or ["it says nothing"]
        yield Finding(
            subject="C compiler",
            level=Level.FAIL,
            message=f"{name} cannot build a shared object: {lines[-1]}",
            todo="install the C library's headers and a linker, or set CC to another compiler",
        )


def _found_version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""


def _wanted_version(package: str) -> str:
    """The version that this package pins, empty where it pins none."""
    for line in importlib.metadata.requires("tileyard") or ():
        name, _, version = line.partition(";")[0].strip().partition("==")
        if name == package:
            return version.strip()
    return ""
