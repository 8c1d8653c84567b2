"""The details of a CPU artifact: everything that a call of it needs, and its requirements."""

import platform

import msgspec

from tileyard.base.decoding import decode_json
from tileyard.base.errors import BindError, DamagedError
from tileyard.base.model import Record
from tileyard.ir.nodes import Program
from tileyard.targets.cpu.machine import missing_features

ABI_VERSION = 5

KERNEL_FILE = "kernel.so"
SOURCE_FILE = "kernel.c"
HEADER_FILE = "tile.h"
RUNTIME_FILE = "runtime.so"


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
    features that the binary may use, by the kernel's names.
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
