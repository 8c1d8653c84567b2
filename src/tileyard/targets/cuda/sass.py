"""Counts the instructions of a device function by kind.

From Volta on an instruction has 16 bytes, and its lowest 9 bits say what it does. NVIDIA documents the
names and not the numbers: the table was made by comparing these bits with what nvdisasm prints, and a
test compares them again.
"""

import struct
from collections import Counter

_TENSOR = "HMMA HGMMA IMMA IGMMA DMMA QMMA QGMMA BMMA UTCHMMA UTCQMMA UTCIMMA OMMA"
_KINDS: dict[str, dict[int, str]] = {
    "tensor": {0x3C: "HMMA", 0x1F0: "HGMMA", 0x37: "IMMA", 0x3F: "DMMA"},
    "global": {0x181: "LDG", 0x186: "STG", 0x1A8: "ATOMG", 0x18E: "RED", 0x180: "LD", 0x185: "ST"},
    "shared": {0x3B: "LDSM", 0x184: "LDS", 0x188: "STS", 0x18C: "ATOMS", 0x44: "STSM"},
    "async copy": {0x1AE: "LDGSTS", 0x1B4: "UTMALDG", 0x1B5: "UTMASTG", 0x1BA: "UBLKCP"},
    "local": {0x183: "LDL", 0x187: "STL"},
}


def count_instructions(code: bytes) -> dict[str, int]:
    """How many instructions of each kind there are, the most frequent kind first."""
    named = {number: kind for kind, numbers in _KINDS.items() for number in numbers}
    counts: Counter[str] = Counter()
    for (word,) in struct.iter_unpack("<H14x", code[: len(code) // 16 * 16]):
        counts[named.get(word & 0x1FF, "other")] += 1
    return dict(counts.most_common())
