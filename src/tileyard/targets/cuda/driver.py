"""Calls NVIDIA's driver through ``cuda-bindings``, with errors by name, and opens devices, which
loads it; describing an artifact does not.
"""

import functools
import importlib
import os
import uuid
from typing import Any

from tileyard.base.errors import (
    BindError,
    ContextLostError,
    KernelFault,
    TileyardError,
    ToolMissingError,
    UsageError,
)
from tileyard.base.model import Device
from tileyard.base.wording import install_extra

INSTALL = install_extra("cuda")
STICKY = frozenset(
    f"CUDA_ERROR_{name}"
    for name in (
        "ASSERT",
        "CONTAINED",
        "ECC_UNCORRECTABLE",
        "HARDWARE_STACK_ERROR",
        "ILLEGAL_ADDRESS",
        "ILLEGAL_INSTRUCTION",
        "INVALID_ADDRESS_SPACE",
        "INVALID_PC",
        "LAUNCH_FAILED",
        "LAUNCH_TIMEOUT",
        "MISALIGNED_ADDRESS",
        "NVLINK_UNCORRECTABLE",
        "TENSOR_MEMORY_LEAK",
    )
)
"""Errors that every later call of the process repeats: its context is lost, and only a new process helps."""

_MAJOR, _MINOR, _L2_BYTES = 75, 76, 38


class Driver:
    """The driver's functions by name. Raises ToolMissingError if there is no driver."""

    def __init__(self) -> None:
        try:
            self.api: Any = importlib.import_module("cuda.bindings.driver")
        except ImportError:
            message = "running for NVIDIA's GPUs needs the package cuda-bindings"
            raise ToolMissingError(message, INSTALL) from None
        try:
            self.call("cuInit", 0)
        except ToolMissingError:
            raise ToolMissingError("there is no NVIDIA driver here: no libcuda.so.1") from None
        self.version: int = self.call("cuDriverGetVersion")

    def call(self, name: str, *arguments: object) -> Any:  # noqa: ANN401 - whatever the driver gives
        """Call a driver's function; returns what it gives besides its status: None, one value or a
        tuple. Raises MemoryError, ContextLostError if a kernel has destroyed the context,
        KernelFault for other errors, ToolMissingError if there is no such function.
        """
        try:
            status, *values = getattr(self.api, name)(*arguments)
        except RuntimeError as error:  # how the bindings report a missing library or function
            raise ToolMissingError(f"NVIDIA's driver is too old: it has no {name}") from error
        if int(status) != 0:
            raise explain(status.name, name)
        return values[0] if len(values) == 1 else tuple(values)

    def attribute(self, device: object, number: int) -> int:
        """A property of a device."""
        return int(self.call("cuDeviceGetAttribute", self.api.CUdevice_attribute(number), device))


def explain(error: str, name: str) -> TileyardError | MemoryError:
    """The driver's error as one of ours; ``name`` is the function that returned it."""
    if error == "CUDA_ERROR_OUT_OF_MEMORY":
        return MemoryError(f"{error} ({name})")
    if error in STICKY:
        return ContextLostError(f"{error} ({name})")
    return KernelFault(f"{error} ({name})")


class Gpu:
    """A device of this process, opened: its primary context, which other libraries share."""

    def __init__(self, driver: Driver, ordinal: int) -> None:
        self.driver = driver
        self.ordinal = ordinal
        self.handle = driver.call("cuDeviceGet", ordinal)
        major, minor = (driver.attribute(self.handle, number) for number in (_MAJOR, _MINOR))
        self.capability = (major, minor)
        self.l2_bytes = driver.attribute(self.handle, _L2_BYTES)
        self.name = bytes(driver.call("cuDeviceGetName", 256, self.handle)).split(b"\0")[0].decode()
        self.context = driver.call("cuDevicePrimaryCtxRetain", self.handle)
        self.is_only = int(driver.call("cuDeviceGetCount")) == 1
        self._stream: int | None = None

    @property
    def stream(self) -> int:
        """The stream for this process's own checks and timings; never the caller's."""
        if self._stream is None:
            self._stream = int(self.driver.call("cuStreamCreate", 0))
        return self._stream

    def activate(self) -> None:
        """Make its context the calling thread's."""
        self.driver.call("cuCtxSetCurrent", self.context)

    def free_bytes(self) -> int:
        """Bytes of its free memory."""
        return int(self.driver.call("cuMemGetInfo")[0])


@functools.cache
def open_driver() -> Driver:
    """The driver of this process. Raises ToolMissingError."""
    return Driver()


@functools.cache
def open_gpu(ordinal: int) -> Gpu:
    """The device with this ordinal in this process. Raises ToolMissingError, KernelFault."""
    return Gpu(open_driver(), ordinal)


def find_gpu(device: Device) -> Gpu:
    """The driver's device for one of ours. Raises ToolMissingError, UsageError."""
    driver = open_driver()
    count = int(driver.call("cuDeviceGetCount"))
    wanted = device.env.get("CUDA_VISIBLE_DEVICES", "")
    if count == 1 and (not wanted or wanted == os.environ.get("CUDA_VISIBLE_DEVICES")):
        return open_gpu(0)
    for ordinal in range(count if wanted else 0):
        handle = driver.call("cuDeviceGet", ordinal)
        identity = uuid.UUID(bytes=bytes(driver.call("cuDeviceGetUuid", handle).bytes))
        if (
            wanted.lower() == f"gpu-{identity}"
        ):  # as NVML writes it, apart from upper and lower case
            return open_gpu(ordinal)
    which = device.name.partition(":")[2]
    if not wanted and which.isdecimal() and int(which) < count:
        return open_gpu(int(which))
    raise UsageError(f"CUDA does not see {device.name} in this process")


def check_driver(driver: Driver, cuda: tuple[int, int]) -> None:
    """Raises BindError if the driver cannot load what CUDA of this version compiled."""
    have = (driver.version // 1000, driver.version % 1000 // 10)
    if have[0] < cuda[0]:
        raise BindError(
            f"the artifact was compiled by CUDA {cuda[0]}.{cuda[1]}, "
            f"and the driver knows CUDA {have[0]}.{have[1]}",
            "update the driver, or build with NVRTC of its version",
        )
