"""Makes TileLang's passes cheaper in a compile worker without changing their result.

There are three shortcuts: the refuter, a cache of rewritten macros, and a garbage collector that does not
search the heap of imported libraries repeatedly. They are for one version of TileLang, and
``TILEYARD_PLAIN_LOWERING=1`` turns all off.

The refuter, ``refuter.c``, keeps claims from Z3 that it would not prove. Z3 takes half of the passes' time:
TVM's prover asks for every index whether a vector can be wider, and on a GEMM none of hundreds of such
claims holds, but Z3 searches until it finds a counterexample or has spent its budget of steps. The refuter
tries a few dozen examples first.

The generated code is the same, because TVM uses only whether a claim was proved, and a counterexample is
checked on Z3's own formulas in exact integers; what the refuter does not know makes an example invalid. In
theory a true claim might be proved just within its budget only with another history of questions, which Z3
keeps.

The refuter's symbol precedes Z3's because it is in a library opened globally, before TileLang is imported.
"""

import ctypes
import gc
import logging
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from elftools.common.exceptions import ELFError
from elftools.elf.elffile import ELFFile

from tileyard.artifacts.objects import digest_parts
from tileyard.base.errors import ToolMissingError
from tileyard.targets.cpu.toolchain import RUNTIME_FLAGS, find_compiler
from tileyard.targets.cuda.nvrtc import making
from tileyard.targets.cuda.packages import package_folder

# ---- the refuter ----------------------------------------------------------------------------------


Z3_FILE = "libz3.so.4.15"
"""The Z3 whose operations ``refuter.c`` knows; TileLang is linked with it by this name."""

_SOURCE = Path(__file__).with_name("refuter.c")


class NoRefuterError(Exception):
    """The refuter cannot be used here; the text is the reason."""


def load_refuter(caches: Path, cc: str) -> ctypes.CDLL:
    """Compile the refuter, once for all processes, and load it, switched off; it stays loaded. It
    may be switched on once TileLang is imported and it has found its Z3; it counts claims, and
    those refuted. ``cc`` is a C compiler's command, empty for one that is found. Raises
    NoRefuterError if TileLang is imported already, there is no compiler, or Z3 is another version.
    """
    if "tilelang" in sys.modules:
        raise NoRefuterError("TileLang was imported before it")
    _check_z3()
    opened = ctypes.CDLL(str(_compile(caches, cc)), mode=os.RTLD_NOW | os.RTLD_GLOBAL)
    for name in ("asked", "refuted"):
        getattr(opened, f"tileyard_refuter_{name}").restype = ctypes.c_long
    return opened


def _check_z3() -> None:
    """Check the Z3 that TileLang will load before the refuter is loaded, which cannot be undone."""
    try:
        with (package_folder("z3") / "lib" / "libz3.so").open("rb") as file:
            dynamic: Any = ELFFile(file).get_section_by_name(".dynamic")
            tags = dynamic.iter_tags("DT_SONAME")
            found = next((tag.soname for tag in tags), "no name")
    except (OSError, ELFError, ToolMissingError) as error:
        raise NoRefuterError(f"TileLang's Z3 cannot be read: {error}") from error
    if found != Z3_FILE:
        raise NoRefuterError(f"TileLang's Z3 is {found}, and not {Z3_FILE}")


def _compile(caches: Path, cc: str) -> Path:
    try:
        command = find_compiler(cc)
    except ToolMissingError as error:
        raise NoRefuterError(str(error)) from error
    key = digest_parts("refuter", _SOURCE.read_text(), *command, os.uname().machine)
    library = caches / f"refuter-{key[:16]}" / "refuter.so"
    if not library.exists():
        with making(library) as draft:
            if draft is not None:
                argv = [*command, *RUNTIME_FLAGS, "-shared", "-o", str(draft), str(_SOURCE), "-ldl"]
                done = subprocess.run(argv, cwd="/", capture_output=True, text=True, check=False)
                if done.returncode != 0:
                    first = next(iter(done.stderr.strip().splitlines()), "no message")
                    raise NoRefuterError(f"{shutil.which(command[0])} cannot compile it: {first}")
    return library


# ---- all shortcuts --------------------------------------------------------------------------------


SWITCH = "TILEYARD_PLAIN_LOWERING"
"""The variable that turns off all shortcuts if set to 1."""

GC_THRESHOLDS = (200_000, 50, 100)
"""Lowering makes few cycles, and many objects: collections free little, and take a twelfth of the time.

Imports make even more objects, which stay: there collections take a sixth of the time.
"""

log = logging.getLogger(__name__)


def import_tilelang(caches: Path, environ: Mapping[str, str] = os.environ) -> ctypes.CDLL | None:
    """Import TileLang's passes with all usable shortcuts; returns the refuter if used. Failing ones
    are logged. They cannot be undone, so use a separate process.
    """
    if environ.get(SWITCH, "") not in ("", "0"):
        _import()
        return None
    gc.set_threshold(*GC_THRESHOLDS)
    refuter: ctypes.CDLL | None = None
    try:
        refuter = load_refuter(caches, environ.get("CC", ""))
    except NoRefuterError as error:
        log.warning("TileLang's passes ask Z3 everything: %s", error)
    _import()
    if refuter is not None and refuter.tileyard_refuter_open(Z3_FILE.encode()):
        refuter.tileyard_refuter_switch(1)
    # Slow to import, and possible only once TileLang is imported.
    from tileyard.targets.cuda.macros import remember_macros

    try:
        remember_macros()
    except AttributeError as error:
        log.warning("TileLang's macros are rewritten each time: %s", error)
    gc.collect()
    gc.freeze()
    return refuter


def _import() -> None:
    import tileyard.targets.cuda.lowering  # noqa: F401 - takes seconds, which a runner must not spend
