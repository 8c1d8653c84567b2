"""Tells machine code that depends on what else is in its cubin.

Addresses of variables stand in constant bank 4, and constants of whole modules in bank 3: one table each for
all functions of a cubin, and an instruction that reads one has the place in it among its bits. The
banks of parameters (0) and of a function's own constants (2) are each function's own.
"""

import struct

_CONSTANT_OPERAND = frozenset({3, 5})
"""Forms of an instruction, bits 9 to 11, that have an operand in a constant bank."""
_SHARED_BANKS = frozenset({3, 4})


def reads_tables(code: bytes) -> bool:
    """Whether any instruction reads a bank that the functions of a cubin share.

    It may say so of one that does not, where another kind of instruction has the same bits there.
    """
    return any(
        (word >> 9) & 7 in _CONSTANT_OPERAND and (word >> 54) & 31 in _SHARED_BANKS
        for (word,) in struct.iter_unpack("<Q8x", code[: len(code) // 16 * 16])
    )
