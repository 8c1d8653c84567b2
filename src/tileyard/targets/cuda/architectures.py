"""NVIDIA architectures: names, limits of multiprocessors, and the devices that run their code, as far as
that is known before a build.
"""

import re
from collections.abc import Iterable

from tileyard.artifacts.compat import FIRST_DRIVERS
from tileyard.base.errors import UsageError
from tileyard.base.model import Device, Record
from tileyard.targets.cuda.packages import CUDA_MAJOR
from tileyard.targets.own_sources import Excess

_NAME = re.compile(r"sm_(?P<major>[1-9]\d?)(?P<minor>\d)(?P<suffix>[af]?)")
FIRST_WITH = {"": 1, "a": 9, "f": 10}
"""First major version of compute capabilities with code of this suffix, see ``Architecture``."""


class Multiprocessor(Record):
    """One multiprocessor's limits: warps, blocks, bytes of shared memory; 65,536 registers go to warps by
    256. Source: NVIDIA's CUDA C++ Programming Guide, "Technical Specifications per Compute Capability".
    """

    warps: int
    blocks: int
    shared_bytes: int
    usual_count: int
    """Multiprocessors of a usual GPU: V100, T4, A100, A40, Orin, L40, H100 SXM, B200, B300, RTX PRO 6000."""


_KIB = 1024
MULTIPROCESSORS = {
    (7, 0): Multiprocessor(warps=64, blocks=32, shared_bytes=96 * _KIB, usual_count=80),
    (7, 5): Multiprocessor(warps=32, blocks=16, shared_bytes=64 * _KIB, usual_count=40),
    (8, 0): Multiprocessor(warps=64, blocks=32, shared_bytes=164 * _KIB, usual_count=108),
    (8, 6): Multiprocessor(warps=48, blocks=16, shared_bytes=100 * _KIB, usual_count=84),
    (8, 7): Multiprocessor(warps=48, blocks=16, shared_bytes=164 * _KIB, usual_count=16),
    (8, 9): Multiprocessor(warps=48, blocks=24, shared_bytes=100 * _KIB, usual_count=142),
    (9, 0): Multiprocessor(warps=64, blocks=32, shared_bytes=228 * _KIB, usual_count=132),
    (10, 0): Multiprocessor(warps=64, blocks=32, shared_bytes=228 * _KIB, usual_count=148),
    (10, 3): Multiprocessor(warps=64, blocks=32, shared_bytes=228 * _KIB, usual_count=148),
    (12, 0): Multiprocessor(warps=48, blocks=24, shared_bytes=100 * _KIB, usual_count=188),
}
"""Limits by compute capability. For others, no occupancy is reported."""

BLOCK_THREADS = 1024
"""Most threads per block, of every compute capability."""

_REGISTERS, _REGISTER_UNIT, _WARP, _PARTITIONS = 65_536, 256, 32, 4


class Architecture(Record):
    """A compute capability, with ``suffix`` for it alone (``a``), its family (``f``), or later minors."""

    major: int
    minor: int
    suffix: str = ""

    @property
    def name(self) -> str:
        """Its name for NVIDIA's compilers: ``sm_90a``."""
        return f"sm_{self.major}{self.minor}{self.suffix}"

    @property
    def capability(self) -> tuple[int, int]:
        """The compute capability, major and minor."""
        return self.major, self.minor

    @property
    def reserved_shared_bytes(self) -> int:
        """Bytes that the system takes from each block's shared memory."""
        return _KIB if self.major >= 8 else 0

    @property
    def block_shared_bytes(self) -> int | None:
        """Most bytes of shared memory per block; None if not known for this capability."""
        found = MULTIPROCESSORS.get(self.capability)
        return None if found is None else found.shared_bytes - self.reserved_shared_bytes

    @property
    def runs_on(self) -> str:
        """The compute capabilities of the devices that run its code, in words."""
        first = f"{self.major}.{self.minor}"
        return first if self.suffix == "a" else f"{first} or a later {self.major}.x"

    def fits(self, capability: tuple[int, int]) -> bool:
        """Whether a device of this compute capability runs its code."""
        major, minor = capability
        exact = self.suffix == "a"
        return major == self.major and (minor == self.minor if exact else minor >= self.minor)


def parse_architecture(name: str) -> Architecture:
    """The architecture called ``sm_80``, ``sm_90a`` and so on. Raises UsageError for any other name."""
    found = _NAME.fullmatch(name)
    if found is not None and int(found["major"]) >= FIRST_WITH[found["suffix"]]:
        return Architecture(
            major=int(found["major"]), minor=int(found["minor"]), suffix=found["suffix"]
        )
    raise UsageError(
        f"there is no architecture {name!r}", "it is written sm_80, sm_90a, sm_100a, ..."
    )


def list_architectures(capabilities: Iterable[int]) -> list[str]:
    """The names of these compute capabilities (90 for 9.0), with special code's: ``sm_90``, ``sm_90a``."""
    return [
        f"sm_{number}{suffix}"
        for number in sorted(capabilities)
        for suffix in ("", "a")
        if number // 10 >= FIRST_WITH[suffix]
    ]


def find_excess(
    architecture: Architecture, threads: int, shared_bytes: int, registers: int = 0
) -> Excess | None:
    """Why no multiprocessor has room for such a block, as far as its limits are known."""
    name, most = architecture.name, architecture.block_shared_bytes
    if threads > BLOCK_THREADS:
        message = f"needs {threads} threads per block; {name} allows {BLOCK_THREADS}"
        return Excess(limit="threads", message=message)
    if most is None:
        return None
    if shared_bytes > most:
        return exceed_shared(name, shared_bytes, most)
    if find_occupancy(architecture, threads, registers, shared_bytes) == 0:
        needed = f"{registers} registers x {threads} threads = {registers * threads}"
        units = f"in units of {_REGISTER_UNIT} per warp"
        message = f"needs {needed} registers per block, {units}; {name} has {_REGISTERS}"
        return Excess(limit="registers", message=message)
    return None


def exceed_shared(name: str, needed_bytes: int, most_bytes: int, kind: str = "") -> Excess:
    """A block that needs more shared memory, all or of a kind, than an architecture allows."""
    needed, most = needed_bytes / _KIB, most_bytes / _KIB
    message = f"needs {needed:g} KiB of {kind}shared memory per block; {name} allows {most:g} KiB"
    return Excess(limit="shared memory", message=message)


def find_occupancy(
    architecture: Architecture, threads: int, registers: int, shared_bytes: int
) -> float | None:
    """The share of a multiprocessor's warps that such blocks can fill, 0 if none fits, None if limits are
    unknown. ``registers`` are per thread, ``shared_bytes`` per block, without the system's part.
    """
    known = MULTIPROCESSORS.get((architecture.major, architecture.minor))
    if known is None or threads <= 0:
        return None
    warps = -(-threads // _WARP)
    each = -(-registers * _WARP // _REGISTER_UNIT) * _REGISTER_UNIT
    by_registers = known.blocks
    if each:
        by_registers = (_REGISTERS // _PARTITIONS // each) * _PARTITIONS // warps
    by_shared = known.shared_bytes // max(shared_bytes + architecture.reserved_shared_bytes, 1)
    blocks = min(known.blocks, known.warps // warps, by_registers, by_shared)
    return blocks * warps / known.warps


def native_architecture(device: Device) -> str:
    """The architecture that uses all features of a GPU: ``sm_90a`` and not ``sm_90``."""
    found = parse_architecture(device.arch)
    return found.name if found.suffix or found.major < FIRST_WITH["a"] else f"{found.name}a"


def count_multiprocessors(device: Device) -> int:
    """How many multiprocessors the usual GPU of a device's architecture has; 1 if that is not known."""
    found = MULTIPROCESSORS.get(parse_architecture(device.arch).capability) if device.arch else None
    return 1 if found is None else found.usual_count


def require_fit(target: str, device: Device) -> None:
    """Raise UsageError for a GPU of another capability, or with a driver that is too old."""
    wanted = parse_architecture(target.partition(":")[2])
    if device.arch and not wanted.fits(parse_architecture(device.arch).capability):
        raise UsageError(
            f"what is built for {target} runs on GPUs of capability {wanted.runs_on}, "
            f"and {device.name} is {device.arch}"
        )
    if device.driver_api and int(device.driver_api.partition(".")[0]) < CUDA_MAJOR:
        raise UsageError(
            f"what is built for {target} is compiled by CUDA {CUDA_MAJOR}, and the driver of "
            f"{device.name} knows CUDA {device.driver_api}",
            f"update the driver to {FIRST_DRIVERS[CUDA_MAJOR]} or newer",
        )
