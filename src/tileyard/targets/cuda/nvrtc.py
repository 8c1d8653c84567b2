"""Compiles CUDA source to cubins with NVRTC, and to PTX, without toolkit, driver or device.

Compile workers share precompiled headers from run to run: NVRTC reads those of TileLang in two to four
seconds, a kernel in half a second. It can save its memory as an image once it has read them, for processes
with the same address layout, as compile workers have. Others have their own images or, with random
addresses, none. NVRTC refuses an image that does not fit; the process then does not use it again.
"""

import contextlib
import ctypes
import fcntl
import os
import re
import shlex
import stat
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import cache
from pathlib import Path
from typing import Any

from tileyard.artifacts.objects import digest_parts
from tileyard.artifacts.pins import locked_cache
from tileyard.base.errors import ToolMissingError, UsageError
from tileyard.base.model import Kernel, Record, Value
from tileyard.base.modes import mode_in
from tileyard.targets.base import Aside
from tileyard.targets.cuda.packages import INSTALL, include_folders

HEARD_BYTES = 1 << 20
"""Most bytes that are kept per block."""
_STREAMS = (1, 2)
_ADDR_NO_RANDOMIZE = 0x0040000
_UNFIT = "incompatible precompiled header"
_DIRECTIVE = re.compile(r"\s*(#.*)?$")
PREAMBLE = "#include <tl_templates/cuda/nvrtc_std.h>\n"
"""The parts of the standard library that NVRTC lacks, included before every source."""
FLAGS = ("-default-device", "--std=c++17", "--ptxas-options=-v")
_WITH_PCH_HEAP = (12, 8)
_MEMORY_SIGNS = re.compile(
    r"catastrophic error: out of memory|ptxas fatal\s*: Memory allocation failure"
)
"""Messages of NVRTC's front end and ptxas; its LLVM reports nothing and aborts the process."""
_LIBRARY = "libnvrtc.so"
_OPTIMIZATION = ("-O0", "-O1", "-O2", "-O3")
"""nvcc's levels for host code; device code is always optimized."""


@contextlib.contextmanager
def overhear() -> Iterator[list[str]]:
    """Inside the block, capture what this process, C++ included, writes to its standard streams, as one
    text: the list's, after the block, at most HEARD_BYTES. If both streams are appended to one file, as in a
    worker, it also stays there for when the process dies within; else it goes nowhere.
    """
    said: list[str] = []
    if _is_logged():
        start = os.fstat(2).st_size
        try:
            yield said
        finally:
            with Path("/proc/self/fd/2").open("rb") as log:
                log.seek(start)
                said.append(log.read(HEARD_BYTES).decode(errors="replace"))
        return
    kept = [os.dup(number) for number in _STREAMS]
    with tempfile.TemporaryFile() as file:
        for number in _STREAMS:
            os.dup2(file.fileno(), number)
        try:
            yield said
        finally:
            for number, original in zip(_STREAMS, kept, strict=True):
                os.dup2(original, number)
                os.close(original)
            file.seek(0)
            said.append(file.read(HEARD_BYTES).decode(errors="replace"))


def _is_logged() -> bool:
    out, err = map(os.fstat, _STREAMS)
    appends = all(fcntl.fcntl(number, fcntl.F_GETFL) & os.O_APPEND for number in _STREAMS)
    return stat.S_ISREG(err.st_mode) and os.path.samestat(out, err) and appends


# ---- precompiled headers --------------------------------------------------------------------------


IMAGE = "headers.pch"


def split_source(source: str) -> tuple[str, str]:
    """The preprocessor lines that a source begins with, and the rest."""
    lines = source.splitlines(keepends=True)
    count = next((i for i, line in enumerate(lines) if not _DIRECTIVE.match(line.rstrip())), 0)
    return "".join(lines[:count]), "".join(lines[count:])


def find_layout(library: str, maps: Path = Path("/proc/self/maps")) -> str:
    """A loaded library's address, which identifies its process's layout; empty if random or not loaded."""
    personality = ctypes.CDLL(None).personality(0xFFFFFFFF)
    if personality < 0 or not personality & _ADDR_NO_RANDOMIZE:
        return ""
    lines = maps.read_text().splitlines()
    return next((line.partition("-")[0] for line in lines if library in line), "")


def is_unfit(log: str) -> bool:
    """Whether NVRTC reports that it could not load an image."""
    return _UNFIT in log


def find_image(caches: Path, headers: str, flags: Sequence[str]) -> Path:
    """The path of the image of these headers, read with these flags, whether it exists or not."""
    key = digest_parts("pch", headers, *flags)
    return caches / f"pch-{key[:16]}" / IMAGE


@contextlib.contextmanager
def making(image: Path) -> Iterator[Path | None]:
    """Hold the right to make an image; yields its path, None if another process has made it meanwhile. It is
    in its place once the block ends without error. Its file time is its last use's.
    """
    with locked_cache(image.parent):
        if image.exists():
            yield None
            return
        draft = image.with_suffix(f".{os.getpid()}")
        try:
            yield draft
            if draft.exists():
                draft.chmod(mode_in(image.parent, 0o666))
                draft.replace(image)
        finally:
            draft.unlink(missing_ok=True)


# ---- cubins ---------------------------------------------------------------------------------------


PCH_HEAP_BYTES = 1 << 30
"""Bytes of the memory for precompiled headers; NVRTC's default of 256 MiB is too small for Hopper's."""


class NvrtcError(Exception):
    """NVRTC refused a source; the text is NVRTC's output."""


class Compiled(Record):
    """The result for a source: a cubin that it may share with others, or none, and the compiler's output."""

    cubin: bytes
    log: str


@cache
def nvrtc_version() -> tuple[int, int]:
    """NVRTC's release. The first call loads the library. Raises ToolMissingError."""
    try:
        major, minor = _call("nvrtcVersion")
        if (major, minor) >= _WITH_PCH_HEAP:
            _call("nvrtcSetPCHHeapSize", PCH_HEAP_BYTES)
    except (OSError, RuntimeError, NvrtcError) as error:
        first = next(iter(str(error).splitlines()), "no reason given")
        raise ToolMissingError(f"NVRTC cannot be loaded: {first}", INSTALL) from error
    return int(major), int(minor)


@cache
def supported_architectures() -> frozenset[int]:
    """The compute capabilities that this NVRTC compiles for, for example 90 for 9.0."""
    nvrtc_version()
    count, found = _call("nvrtcGetNumSupportedArchs"), _call("nvrtcGetSupportedArchs")
    return frozenset(int(one) for one in list(found)[:count])


def base_flags(architecture: str) -> tuple[str, ...]:
    """The flags that every source is compiled with."""
    major, _ = nvrtc_version()
    return (
        *FLAGS,
        f"--gpu-architecture={architecture}",
        f"-D__CUDACC_VER_MAJOR__={major}",
        *(f"-I{folder}" for folder in include_folders()),
    )


class Nvrtc:
    """Compiles sources for one architecture. Images of precompiled headers are below ``caches``,
    ``identity`` names what they were made from; making them, or waiting for another's, is within ``aside``.
    """

    def __init__(
        self, architecture: str, caches: Path, identity: str, aside: Aside = nullcontext
    ) -> None:
        self._base = base_flags(architecture)
        self._caches = caches
        self._layout = find_layout(_LIBRARY)
        self._identity = identity
        self._aside = aside
        self._unfit: set[Path] = set()

    def compile(self, headers: str, body: str, flags: Sequence[str]) -> Compiled:
        """Compile one translation unit, which begins with ``headers``, preprocessor lines only.
        Raises NvrtcError if NVRTC refuses it, and MemoryError if NVRTC itself was refused memory.
        """
        headers = PREAMBLE + headers
        all_flags = (*self._base, *flags)
        image = find_image(self._caches, headers, (self._identity, self._layout, *all_flags))
        is_usable = bool(self._layout) and image not in self._unfit
        if is_usable and not image.exists():
            self._make(image, headers, all_flags)
        if not is_usable or not image.exists():
            return _compile(headers + body, (*all_flags, "-pch"))
        os.utime(image)
        compiled = _compile(headers + body, (*all_flags, f"-use-pch={image}"))
        if is_unfit(compiled.log):
            self._unfit.add(image)
        return compiled

    def _make(self, image: Path, headers: str, flags: Sequence[str]) -> None:
        """Write an image, once for all processes. Without it NVRTC keeps its own in this process."""
        with self._aside(), making(image) as draft:
            if draft is not None:
                try:
                    _compile(headers, (*flags, f"-create-pch={draft}"))
                except NvrtcError:
                    draft.unlink(missing_ok=True)  # compiling the source will report it


def _compile(source: str, flags: Sequence[str]) -> Compiled:
    nvrtc = _bindings()
    with _opened(source) as program:
        options = [flag.encode() for flag in flags]
        with overhear() as said:
            (status,) = nvrtc.nvrtcCompileProgram(program, len(options), options)
        text = _read(program, "ProgramLog")
        if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
            text += said[0]  # a fatal error of ptxas is reported nowhere else
        refused = _MEMORY_SIGNS.search(text)
        if status == nvrtc.nvrtcResult.NVRTC_ERROR_OUT_OF_MEMORY or refused:
            raise MemoryError(f"NVRTC: {refused[0] if refused else status}")
        if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
            raise NvrtcError(text or str(status))
        cubin = _read_bytes(program, "CUBIN")
        return Compiled(cubin=cubin, log=text)


@contextmanager
def _opened(source: str) -> Iterator[object]:
    program = _call("nvrtcCreateProgram", source.encode(), b"kernel.cu", 0, [], [])
    try:
        yield program
    finally:
        _bindings().nvrtcDestroyProgram(program)


def _bindings() -> Any:  # noqa: ANN401 (an optional dependency)
    try:
        from cuda.bindings import nvrtc
    except ImportError as error:
        raise ToolMissingError(
            "the target cuda needs the package cuda-bindings", INSTALL
        ) from error
    return nvrtc


def _call(name: str, *arguments: object) -> Any:  # noqa: ANN401 - whatever NVRTC gives
    """Call NVRTC; returns what it gives besides its status: None, one value or a tuple. Raises NvrtcError."""
    status, *values = getattr(_bindings(), name)(*arguments)
    if int(status) != 0:
        raise NvrtcError(str(status))
    return values[0] if len(values) == 1 else tuple(values)


def _read(program: object, what: str) -> str:
    # A log is NVRTC's text and then ptxas', each with a zero at its end.
    return _read_bytes(program, what).replace(b"\0", b"").decode(errors="replace")


def _read_bytes(program: object, what: str) -> bytes:
    """A result of NVRTC for a program: ``ProgramLog``, ``CUBIN`` or ``PTX``."""
    data = bytes(_call(f"nvrtcGet{what}Size", program))
    _call(f"nvrtcGet{what}", program, data)
    return data


# ---- PTX ------------------------------------------------------------------------------------------


def compile_ptx(source: str, architecture: str, flags: Sequence[str]) -> str:
    """The PTX of a source, with its cubin's flags. Raises ToolMissingError, or UsageError if the
    NVRTC or headers installed here refuse it.
    """
    nvrtc_version()  # loads the library, or raises the reason why it cannot
    nvrtc = _bindings()
    options = [
        flag.encode() for flag in (*base_flags(architecture.replace("sm_", "compute_")), *flags)
    ]
    try:
        with _opened(PREAMBLE + source) as program:
            (status,) = nvrtc.nvrtcCompileProgram(program, len(options), options)
            if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
                said = _read(program, "ProgramLog")
                first = next((line for line in said.splitlines() if "error" in line), str(status))
                raise UsageError(
                    f"NVRTC refuses the kept source: {first}",
                    "were CUDA or TileLang changed since?",
                )
            return _read(program, "PTX")
    except NvrtcError as error:
        raise ToolMissingError(f"NVRTC does not work here: {error}") from error


# ---- flags of one kernel --------------------------------------------------------------------------


_HOST_COMPILER = ("-Xcompiler", "--compiler-options", "-ccbin", "--compiler-bindir")
"""nvcc's flags for a host compiler, each with its value; nothing is compiled for a host here."""


def kernel_flags(kernel: Kernel) -> tuple[str, ...]:
    """A kernel's flags in the order in which TileLang would pass them to nvcc."""
    return tuple(_translate([*_of_options(kernel.pass_options), *kernel.flags]))


def _of_options(options: dict[str, Value]) -> Iterator[str]:
    if options.get("tl.enable_fast_math"):
        yield "--use_fast_math"
    if (level := options.get("tl.ptxas_register_usage_level")) is not None:
        yield f"--ptxas-options=--register-usage-level={level}"
    if extra := options.get("tl.device_compile_flags"):
        yield from shlex.split(str(extra))


def _translate(flags: list[str]) -> Iterator[str]:
    """Translate nvcc's flags to NVRTC's; flags for host code only are dropped."""
    rest = iter(flags)
    for flag in rest:
        if flag in _HOST_COMPILER:
            next(rest, None)
        elif flag.startswith(tuple(f"{name}=" for name in _HOST_COMPILER)):
            continue
        elif flag in ("-Xptxas", "--ptxas-options"):
            yield f"--ptxas-options={next(rest, '')}"
        elif flag not in _OPTIMIZATION:
            yield flag
