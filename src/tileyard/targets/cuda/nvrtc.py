"""CUDA source to cubin with NVRTC: no toolkit, no driver, no device."""

import os
import re
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import cache
from pathlib import Path
from typing import Any

from tileyard.errors import ToolMissingError
from tileyard.model import Record
from tileyard.targets.base import Aside
from tileyard.targets.cuda.headers import INSTALL, include_folders
from tileyard.targets.cuda.overhearing import overhear
from tileyard.targets.cuda.pch import find_image, find_layout, is_unfit, making

PCH_HEAP_BYTES = 1 << 30
"""Where precompiled headers are kept in memory; NVRTC's own 256 MiB are too small for Hopper's."""
PREAMBLE = "#include <tl_templates/cuda/nvrtc_std.h>\n"
"""What NVRTC lacks of the standard library, in front of every source."""

FLAGS = ("-default-device", "--std=c++17", "--ptxas-options=-v")
_WITH_PCH_HEAP = (12, 8)
_MEMORY_SIGNS = re.compile(
    r"catastrophic error: out of memory|ptxas fatal\s*: Memory allocation failure"
)
"""What NVRTC's front end and ptxas say; its LLVM says so to nobody, and aborts the process."""

_LIBRARY = "libnvrtc.so"


class NvrtcError(Exception):
    """NVRTC refused a source; ``log`` is what it said."""

    def __init__(self, log: str) -> None:
        super().__init__(log)
        self.log = log


class Compiled(Record):
    """A cubin, and what the compiler said."""

    cubin: bytes
    log: str


@cache
def nvrtc_version() -> tuple[int, int]:
    """NVRTC's release. The first call loads the library. Raises ToolMissingError."""
    nvrtc = _bindings()
    try:
        status, major, minor = nvrtc.nvrtcVersion()
        _check(status)
        if (major, minor) >= _WITH_PCH_HEAP:
            _check(nvrtc.nvrtcSetPCHHeapSize(PCH_HEAP_BYTES)[0])
    except (OSError, RuntimeError, NvrtcError) as error:
        first = next(iter(str(error).splitlines()), "no reason given")
        raise ToolMissingError(f"NVRTC cannot be loaded: {first}", INSTALL) from error
    return int(major), int(minor)


@cache
def supported_architectures() -> frozenset[int]:
    """The compute capabilities that this NVRTC compiles for, as in 90 for 9.0."""
    nvrtc_version()
    nvrtc = _bindings()
    status, count = nvrtc.nvrtcGetNumSupportedArchs()
    _check(status)
    status, found = nvrtc.nvrtcGetSupportedArchs()
    _check(status)
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
    """Compiles sources for one architecture.

    Images of precompiled headers lie below ``caches``; ``identity`` names what they were made from. One
    is made, or waited for while another process makes it, within ``aside``.
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
        """Compile one translation unit, which begins with ``headers``: preprocessor lines only.

        Raises NvrtcError where NVRTC refuses it, and MemoryError where NVRTC itself was refused memory.
        """
        headers = PREAMBLE + headers
        all_flags = (*self._base, *flags)
        image = find_image(self._caches, headers, (self._identity, self._layout, *all_flags))
        if not self._layout or image in self._unfit:
            return _compile(headers + body, (*all_flags, "-pch"))
        if not image.exists():
            self._make(image, headers, all_flags)
        if not image.exists():
            return _compile(headers + body, (*all_flags, "-pch"))
        os.utime(image)
        compiled = _compile(headers + body, (*all_flags, f"-use-pch={image}"))
        if is_unfit(compiled.log):
            self._unfit.add(image)
        return compiled

    def _make(self, image: Path, headers: str, flags: Sequence[str]) -> None:
        """Write an image, once for all processes. Without it NVRTC keeps one of its own."""
        with self._aside(), making(image) as draft:
            if draft is not None:
                try:
                    _compile(headers, (*flags, f"-create-pch={draft}"))
                except NvrtcError:
                    draft.unlink(missing_ok=True)  # the source itself will tell


def _compile(source: str, flags: Sequence[str]) -> Compiled:
    nvrtc = _bindings()
    status, program = nvrtc.nvrtcCreateProgram(source.encode(), b"kernel.cu", 0, [], [])
    _check(status)
    try:
        options = [flag.encode() for flag in flags]
        with overhear() as said:
            (status,) = nvrtc.nvrtcCompileProgram(program, len(options), options)
        log = _read(program, nvrtc.nvrtcGetProgramLogSize, nvrtc.nvrtcGetProgramLog)
        text = log.rstrip(b"\0").decode(errors="replace")
        if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
            text += said[0]  # where ptxas ends with a fatal error, it has told nobody else
        refused = _MEMORY_SIGNS.search(text)
        if status == nvrtc.nvrtcResult.NVRTC_ERROR_OUT_OF_MEMORY or refused:
            raise MemoryError(f"NVRTC: {refused[0] if refused else status}")
        if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
            raise NvrtcError(text or str(status))
        cubin = _read(program, nvrtc.nvrtcGetCUBINSize, nvrtc.nvrtcGetCUBIN)
        return Compiled(cubin=cubin, log=text)
    finally:
        nvrtc.nvrtcDestroyProgram(program)


def _bindings() -> Any:  # noqa: ANN401 (an optional dependency)
    try:
        from cuda.bindings import nvrtc
    except ImportError as error:
        raise ToolMissingError(
            "the target cuda needs the package cuda-bindings", INSTALL
        ) from error
    return nvrtc


def _read(program: object, size: Callable[..., Any], get: Callable[..., Any]) -> bytes:
    status, length = size(program)
    _check(status)
    data = bytes(length)
    _check(get(program, data)[0])
    return data


def _check(status: Any) -> None:  # noqa: ANN401
    if int(status) != 0:
        raise NvrtcError(str(status))
