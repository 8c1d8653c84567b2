"""The compiler flags of one kernel: what its pass options and its author ask for, as NVRTC takes them."""

import shlex
from collections.abc import Iterator

from tileyard.model import Kernel, Value

_HOST_COMPILER = ("-Xcompiler", "--compiler-options", "-ccbin", "--compiler-bindir")
"""nvcc's flags for a host compiler, each with what follows it; nothing is compiled for a host here."""
_OPTIMIZATION = ("-O0", "-O1", "-O2", "-O3")
"""nvcc's levels for host code; device code is always optimized."""


def kernel_flags(kernel: Kernel) -> tuple[str, ...]:
    """The flags in the order in which TileLang would give them to nvcc."""
    return tuple(_translate([*_of_options(kernel.pass_options), *kernel.flags]))


def _of_options(options: dict[str, Value]) -> Iterator[str]:
    if options.get("tl.enable_fast_math"):
        yield "--use_fast_math"
    level = options.get("tl.ptxas_register_usage_level")
    if level is not None:
        yield f"--ptxas-options=--register-usage-level={level}"
    extra = options.get("tl.device_compile_flags")
    if extra:
        yield from shlex.split(str(extra))


def _translate(flags: list[str]) -> Iterator[str]:
    """nvcc's spelling to NVRTC's; what concerns host code alone is dropped."""
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
