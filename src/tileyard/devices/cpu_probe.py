"""The program that probes cores: on each of them, results that are known beforehand.

``python -m tileyard.devices.cpu_probe CORE..``; ends with 1 and says why if a core gives another
result or cannot be used.
"""

import hashlib
import os
import sys

ROUNDS = 400
BLOCK = bytes(range(256)) * 16
DIGEST, ORBIT = "0bf197a3d6158171", 0.5101122117788867
"""What the two computations come to on every machine."""


def compute_digest() -> str:
    """Whole numbers: a chain of SHA-256 over a block that is larger than the registers."""
    value = b""
    for _ in range(ROUNDS):
        value = hashlib.sha256(value + BLOCK).digest()
    return value.hex()[:16]


def compute_orbit() -> float:
    """Floating point: a chaotic orbit, in which one wrong last bit changes every digit."""
    value = 0.25
    for _ in range(20_000):
        value = 3.875 * value * (1.0 - value)
    return value


def probe_core(core: int) -> str:
    """Why this core is sick, empty if it is well. The process stays on it."""
    try:
        os.sched_setaffinity(0, (core,))
    except OSError as error:
        return f"core {core} cannot be used: {error.strerror}"
    if compute_digest() != DIGEST:
        return f"core {core} computes a wrong SHA-256"
    if compute_orbit() != ORBIT:
        return f"core {core} computes wrong floating-point numbers"
    return ""


def main(arguments: list[str]) -> int:
    """Probe the cores and return the exit code."""
    for core in map(int, arguments):
        if sick := probe_core(core):
            sys.stdout.write(f"{sick}\n")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
