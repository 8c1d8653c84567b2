"""Reads machine code: counts a function's instructions by kind, and finds code that depends on its cubin.

From Volta on an instruction has 16 bytes, its operation in the lowest 9 bits. NVIDIA documents names only:
the table was learned from nvdisasm's output for 8.0, 9.0a, 10.0a and 12.0a, and a test repeats the
comparison.

Addresses of variables are in constant bank 4, constants of whole modules in bank 3, tables of all functions
of a cubin, whose readers contain positions in them. The banks of parameters (0) and own constants (2) are
each function's.
"""

import contextlib
import os
import struct
import subprocess
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from tileyard.base.errors import DamagedError, ToolMissingError
from tileyard.targets.cpu.toolchain import find_program
from tileyard.targets.cuda.packages import CUDA_PACKAGE, package_folder
from tileyard.targets.own_sources import PADDING

KINDS: dict[str, dict[int, str]] = {
    "tensor": {
        0x37: "IMMA", 0x3C: "HMMA", 0x3D: "BMMA", 0x3F: "DMMA", 0x7A: "QMMA", 0x7F: "OMMA",
        0x1EA: "UTCHMMA UTCQMMA UTCIMMA UTCOMMA", 0x1F0: "HGMMA", 0x1F1: "IGMMA", 0x1F3: "QGMMA",
    },
    "global": {
        0x160: "TEX", 0x166: "TLD", 0x180: "LD", 0x181: "LDG", 0x185: "ST", 0x186: "STG",
        0x18A: "ATOM", 0x18E: "RED REDG", 0x19D: "SUST", 0x1A2: "ATOM", 0x1A3: "ATOMG",
        0x1A6: "REDG", 0x1A8: "ATOMG", 0x1A9: "ATOMG", 0x1AA: "QSPC",
    },
    "shared": {
        0x3B: "LDSM", 0x44: "STSM", 0x184: "LDS", 0x188: "STS", 0x18C: "ATOMS", 0x18D: "ATOMS",
        0x1BD: "STAS", 0x1BE: "REDAS", 0x1ED: "STTM", 0x1EE: "LDTM",
    },
    "local": {
        0x183: "LDL", 0x187: "STL",
    },
    "async copy": {
        0x1AE: "LDGSTS", 0x1B4: "UTMALDG", 0x1B5: "UTMASTG", 0x1B6: "UTMAREDG", 0x1B8: "UTMAPF",
        0x1B9: "UTMACCTL",
        0x1BA: "UBLKCP", 0x1BB: "UBLKRED", 0x1BC: "UBLKPF", 0x1E7: "UTCCP",
    },
    "float": {
        0x8: "FSEL", 0x9: "FMNMX", 0xB: "FSETP", 0x20: "FMUL", 0x21: "FADD", 0x23: "FFMA",
        0x28: "DMUL", 0x29: "DADD", 0x2A: "DSETP", 0x2B: "DFMA", 0x49: "FFMA2", 0x4A: "FMUL2",
        0x4B: "FADD2", 0x102: "FCHK", 0x108: "MUFU",
    },
    "half": {
        0x30: "HADD2", 0x31: "HFMA2", 0x32: "HMUL2", 0x33: "HSET2", 0x34: "HSETP2", 0x35: "HFMA2",
        0x40: "HMNMX2",
    },
    "integer": {
        0xC: "ISETP", 0xF: "VIMNMX3", 0x10: "IADD3", 0x11: "LEA", 0x12: "LOP3", 0x13: "IABS",
        0x14: "VABSDIFF", 0x16: "PRMT", 0x17: "IMNMX", 0x19: "SHF", 0x1A: "SGXT", 0x1B: "BMSK",
        0x24: "IMAD", 0x25: "IMAD", 0x26: "IDP", 0x27: "IMAD", 0x36: "VIADD", 0x46: "VIADDMNMX",
        0x48: "VIMNMX", 0x100: "FLO", 0x101: "BREV", 0x109: "POPC",
    },
    "conversion": {
        0x3E: "F2FP", 0x45: "I2FP", 0x105: "F2I", 0x106: "I2F", 0x107: "FRND", 0x110: "F2F",
        0x111: "F2I", 0x112: "I2F", 0x113: "FRND",
    },
    "move": {
        0x2: "MOV", 0x3: "P2R", 0x4: "R2P", 0x5: "CS2R", 0x7: "SEL", 0x119: "S2R",
    },
    "lanes": {
        0x6: "VOTE", 0x2F: "ELECT", 0x3A: "MOVM", 0x189: "SHFL", 0x1A1: "MATCH", 0x1C4: "REDUX",
    },
    "constant": {
        0x182: "LDC",
    },
    "predicate": {
        0x1C: "PLOP3",
    },
    PADDING: {
        0x118: "NOP",
    },
    "control": {
        0x141: "BSYNC", 0x143: "CALL", 0x144: "CALL", 0x145: "BSSY", 0x146: "YIELD", 0x147: "BRA",
        0x149: "BRX", 0x14D: "EXIT", 0x14E: "LEPC", 0x150: "RET", 0x155: "BMOV", 0x156: "BMOV",
        0x15C: "BPT",
    },
    "sync": {
        0x2D: "PREEXIT", 0x2E: "ACQBULK", 0x11A: "DEPBAR", 0x11B: "ENDCOLLECTIVE", 0x11C: "B2R",
        0x11D: "BAR", 0x148: "WARPSYNC", 0x15D: "NANOSLEEP", 0x18F: "CCTL", 0x192: "MEMBAR",
        0x1A7: "SYNCS", 0x1AB: "ERRBAR CGAERRBAR", 0x1AF: "LDGDEPBAR",
        0x1B0: "ARRIVES", 0x1B2: "SYNCS",
        0x1B7: "UTMACMDFLUSH", 0x1C5: "WARPGROUP", 0x1C6: "FENCE",
        0x1C7: "UCGABAR_ARV UCGABAR_WAIT", 0x1E9: "UTCBAR",
    },
    "uniform": {
        0x4C: "UVIRTCOUNT", 0x82: "UMOV", 0x86: "VOTEU", 0x87: "USEL", 0x8C: "UISETP",
        0x90: "UIADD3", 0x91: "ULEA", 0x92: "ULOP3", 0x96: "UPRMT", 0x97: "UIADD3", 0x99: "USHF",
        0xA4: "UIMAD", 0xA5: "UIMAD", 0xB9: "ULDC", 0xBD: "UFLO", 0xBF: "UPOPC", 0xCA: "R2UR",
        0xCB: "CS2UR", 0xCC: "CREDUX", 0x1AC: "LDCU", 0x1C3: "S2UR", 0x1C8: "USETMAXREG",
    },
}  # fmt: skip
"""Kinds of instructions: their numbers, each with nvdisasm's name or names. All others are ``other``.

Tensor memory, which partly replaces shared memory, counts as shared memory (``LDTM``, ``STTM``). ``lanes``
exchange data between the lanes of a warp, ``constant`` are reads of constant memory, and
``padding`` fills a function up to its alignment.
"""
_ADDS = 0x35
"""This number is an integer addition on 12.0 and later, and an addition of halves before."""
_SHARED_BANKS = frozenset({3, 4})
_TITLE = "//-----"
_ENTRY = "STO_CUDA_ENTRY"
LIMIT_S = 120.0


def count_instructions(code: bytes, major: int) -> dict[str, int]:
    """Instructions per kind, the most frequent first; ``major`` is the code's compute capability's."""
    named = {number: kind for kind, numbers in KINDS.items() for number in numbers}
    if major >= 12:
        named[_ADDS] = "integer"
    counts: Counter[str] = Counter()
    for (word,) in struct.iter_unpack("<H14x", code[: len(code) // 16 * 16]):
        counts[named.get(word & 0x1FF, "other")] += 1
    return dict(counts.most_common())


# ---- shared tables --------------------------------------------------------------------------------


_CONSTANT_OPERAND = frozenset({3, 5})
"""Forms of an instruction, bits 9 to 11, that have an operand in a constant bank."""


def reads_tables(code: bytes) -> bool:
    """Whether an instruction reads a bank that functions share, or one of another kind has the same bits."""
    return any(
        (word >> 9) & 7 in _CONSTANT_OPERAND and (word >> 54) & 31 in _SHARED_BANKS
        for (word,) in struct.iter_unpack("<Q8x", code[: len(code) // 16 * 16])
    )


def find_nvdisasm() -> Path:
    """The path of nvdisasm: in its wheel, otherwise on PATH. Raises ToolMissingError."""
    with contextlib.suppress(ToolMissingError):
        program = package_folder(CUDA_PACKAGE) / "bin" / "nvdisasm"
        if os.access(program, os.X_OK):
            return program
    found = find_program("nvdisasm")
    if found is None:
        raise ToolMissingError(
            "nvdisasm is not on this machine", "pip install nvidia-cuda-nvdisasm"
        )
    return Path(found)


def disassemble(cubin: Path, symbols: Sequence[str]) -> str:
    """The code of these device functions and their callees, without a cubin's other kernels. Raises
    ToolMissingError, or DamagedError if nvdisasm cannot read it.
    """
    argv = [str(find_nvdisasm()), "--print-code", str(cubin)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=LIMIT_S)
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines()
        raise DamagedError(f"nvdisasm: {lines[0] if lines else f'status {done.returncode}'}")
    return "".join(keep_functions(done.stdout, symbols))


def keep_functions(text: str, symbols: Sequence[str]) -> Iterator[str]:
    """The output of nvdisasm without kernels other than these."""
    head, *sections = text.split(_TITLE)
    yield head
    wanted = {f".text.{symbol}" for symbol in symbols}
    for section in sections:
        title = section.strip("-").split(maxsplit=1)[0]
        if title in wanted or _ENTRY not in section:
            yield _TITLE + section
