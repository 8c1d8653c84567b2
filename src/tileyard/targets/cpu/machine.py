"""Describes a CPU for the code generator: its vectors, registers, caches and features."""

import platform
from collections.abc import Mapping
from pathlib import Path

import msgspec

from tileyard.base.decoding import decode_json
from tileyard.base.errors import BindError, DamagedError
from tileyard.base.model import Record
from tileyard.ir.nodes import Program

_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
_CPUINFO = Path("/proc/cpuinfo")
_FEATURES = {
    "__SSE3__": "pni",
    "__SSSE3__": "ssse3",
    "__SSE4_1__": "sse4_1",
    "__SSE4_2__": "sse4_2",
    "__POPCNT__": "popcnt",
    "__AVX__": "avx",
    "__AVX2__": "avx2",
    "__FMA__": "fma",
    "__F16C__": "f16c",
    "__BMI__": "bmi1",
    "__BMI2__": "bmi2",
    "__LZCNT__": "abm",
    "__MOVBE__": "movbe",
    "__AVX512F__": "avx512f",
    "__AVX512BW__": "avx512bw",
    "__AVX512CD__": "avx512cd",
    "__AVX512DQ__": "avx512dq",
    "__AVX512VL__": "avx512vl",
    "__AVX512VNNI__": "avx512_vnni",
    "__AVX512BF16__": "avx512_bf16",
    "__AVX512FP16__": "avx512_fp16",
    "__AVX512IFMA__": "avx512ifma",
    "__AVX512VBMI__": "avx512vbmi",
    "__AVX512VBMI2__": "avx512_vbmi2",
    "__AVX512BITALG__": "avx512_bitalg",
    "__AVX512VPOPCNTDQ__": "avx512_vpopcntdq",
    "__AVXVNNI__": "avx_vnni",
    "__ARM_FEATURE_BF16_VECTOR_ARITHMETIC": "bf16",
    "__ARM_FEATURE_DOTPROD": "asimddp",
    "__ARM_FEATURE_FP16_VECTOR_ARITHMETIC": "asimdhp",
    "__ARM_FEATURE_MATMUL_INT8": "i8mm",
    "__ARM_FEATURE_SVE": "sve",
}
"""Compilers' macros for the features they may use, with the Linux kernel's names of the same features."""
UNITS = {
    "bf16": {"avx512_bf16": "AVX512-BF16", "bf16": "BFDOT"},
    "i8": {"avx512_vnni": "AVX512-VNNI", "avx_vnni": "AVX-VNNI", "i8mm": "USDOT"},
    "s8": {"asimddp": "SDOT"},
    "u8": {"asimddp": "UDOT"},
}
"""Dot-product units, each with the features any of which has it, and their usual names."""
ABI_VERSION = 5
KERNEL_FILE = "kernel.so"
SOURCE_FILE = "kernel.c"
HEADER_FILE = "tile.h"
RUNTIME_FILE = "runtime.so"


class Machine(Record):
    """One kind of CPU. Sizes are in bytes; ``features`` are those that a binary may use, ``units`` the
    dot-product units of ``emit/units.py`` with the usual names of what computes them.
    """

    arch: str
    vector_bytes: int
    registers: int
    l1_bytes: int = 32 << 10
    l2_bytes: int = 512 << 10
    features: tuple[str, ...] = ()
    units: dict[str, str] = {}


def describe_machine(macros: Mapping[str, str], is_native: bool) -> Machine:
    """The machine for which a compiler with these macros generates code, with modest caches unless native."""
    if "__AVX512F__" in macros:
        vector_bytes, registers = 64, 32
    elif "__AVX__" in macros:
        vector_bytes, registers = 32, 16
    else:
        vector_bytes, registers = 16, 32 if "__ARM_NEON" in macros else 16
    caches = _read_caches() if is_native else {}
    return Machine(
        arch=platform.machine(),
        vector_bytes=vector_bytes,
        registers=registers,
        l1_bytes=caches.get("1", 32 << 10),
        l2_bytes=caches.get("2", 512 << 10),
        features=tuple(sorted(name for macro, name in _FEATURES.items() if macro in macros)),
    )


def find_units(features: tuple[str, ...]) -> dict[str, str]:
    """The dot-product units of a CPU with these features, with their usual names."""
    return {
        name: next(usual for feature, usual in any_of.items() if feature in features)
        for name, any_of in UNITS.items()
        if any_of.keys() & set(features)
    }


def _read_caches() -> dict[str, int]:
    """Bytes of the first core's data caches, by level; empty if Linux does not report them."""
    sizes = {}
    for folder in sorted(_CACHES.glob("index*")):
        try:
            kind, level, size = (
                (folder / name).read_text().strip() for name in ("type", "level", "size")
            )
        except OSError:
            continue
        if kind != "Instruction" and size.endswith("K") and size[:-1].isdigit():
            sizes[level] = int(size[:-1]) << 10
    return sizes


def missing_features(features: tuple[str, ...]) -> tuple[str, ...]:
    """Those of ``features`` that this host's CPU lacks; empty if the host does not list its features."""
    try:
        lines = _CPUINFO.read_text().splitlines()
    except OSError:
        return ()
    for line in lines:
        name, _, value = line.partition(":")
        if name.strip() in ("flags", "Features"):
            present = set(value.split())
            return tuple(feature for feature in features if feature not in present)
    return ()


class Fault(Record):
    """How a kernel can fail: its statement's number, the wrong expression in the Program's words, if any."""

    message: str
    statement: int
    value: str = ""


class Details(Record):
    """The target's own part of the manifest.

    ``signature`` is the Program without its buffers and body. ``scratch_bytes`` are per thread and
    begin with ``tags`` numbers of 8 bytes; ``shared_bytes`` are for all threads and begin with
    ``claims`` numbers of 4 bytes, all 0 when a grid begins. The ``grids`` run one after another.
    ``faults`` describes the kernel's own failures, number 1 first. ``features`` are the CPU
    features that the binary may use, by the kernel's names. ``facts``: see ``Reported``.
    """

    signature: Program
    scratch_bytes: int
    shared_bytes: int
    claims: int
    tags: int
    grids: int
    faults: tuple[Fault, ...]
    arch: str
    features: tuple[str, ...]
    facts: dict[str, int] = {}
    abi: int = ABI_VERSION


def read_details(text: str) -> Details:
    """A manifest's details. Raises DamagedError for invalid ones, BindError if this host cannot run it."""
    try:
        details = decode_json(text, Details)
    except msgspec.DecodeError as error:
        raise DamagedError(f"the manifest of a CPU artifact cannot be read: {error}") from error
    if details.abi != ABI_VERSION:
        raise BindError(
            f"the artifact has version {details.abi} of the CPU ABI, not {ABI_VERSION}",
            hint="build it again",
        )
    if details.arch != platform.machine():
        raise BindError(f"the artifact is for {details.arch}, this host is {platform.machine()}")
    missing = missing_features(details.features)
    if missing:
        raise BindError(
            f"the artifact needs a CPU with {', '.join(missing)}, which this host's lacks",
            hint="build it here, or for the target cpu:x86-64-v3",
        )
    return details
