"""Asks NVML which GPUs there are (``list``, answered on the channel), or tests one (``probe UUID``). The
finding is its last line; exits with 0 if well, 1 if sick or not to be asked, 75 without NVML.
"""

import importlib
import sys
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any, TypeVar

from tileyard.base.wording import install_extra
from tileyard.devices.gpus import Gpu, GpuList
from tileyard.processes.keeper.watching import CANNOT_TELL
from tileyard.processes.wire import Channel

WELL, SICK = 0, 1
PATTERN = 0x5EED5EED
NO_LIBRARY = f"nvidia-ml-py is not installed ({install_extra('cuda')})"
NOT_ITS_FAULT = frozenset(
    {"CUDA_ERROR_OUT_OF_MEMORY", "CUDA_ERROR_DEVICE_UNAVAILABLE", "CUDA_ERROR_NO_DEVICE"}
)
"""Errors caused by users without leases, or by a container without rights."""

T = TypeVar("T")
Handle = Any  # NVML's own, never inspected


class CannotTellError(Exception):
    """The GPU cannot be tried just now, through no fault of its own."""


def list_gpus(nvml: ModuleType) -> GpuList:
    """Every GPU, with slices in place of those that are sliced; a lost one does not hide others."""
    found: list[Gpu] = []
    failures: list[str] = []
    for index in range(nvml.nvmlDeviceGetCount()):
        try:
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
            slices = list(_slices_of(nvml, handle))
            if not slices:
                found.append(_read_gpu(nvml, handle, None, (index, -1)))
            for number, part in slices:
                found.append(_read_gpu(nvml, handle, part, (index, number)))
        except nvml.NVMLError as error:
            failures.append(f"GPU {index} cannot be asked: {error}")
    return GpuList(gpus=tuple(found), failure="; ".join(failures))


def find_fault(nvml: ModuleType, uuid: str) -> str:
    """Why one GPU, or the GPU that a slice is part of, is sick, in a few words; empty if it is well."""
    try:
        handle = nvml.nvmlDeviceGetHandleByUUID(uuid)
        nvml.nvmlDeviceGetMemoryInfo(handle)  # fails for a GPU that fell off the bus
    except nvml.NVMLError as error:
        return f"NVML cannot ask it: {error}"
    whole = _ask(nvml, lambda: nvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(handle), handle)
    kind, counter = nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nvml.NVML_VOLATILE_ECC
    errors = _ask(nvml, lambda: nvml.nvmlDeviceGetTotalEccErrors(whole, kind, counter), 0)
    remapped = _ask(nvml, lambda: nvml.nvmlDeviceGetRemappedRows(whole), (0, 0, 0, 0))
    is_waiting, has_failed = remapped[2:]
    if has_failed:
        return "a row of its memory could not be remapped: it needs replacement"
    if errors:
        return f"{errors} uncorrected memory errors since its driver was loaded"
    if is_waiting or _ask(nvml, lambda: nvml.nvmlDeviceGetRetiredPagesPendingStatus(whole), 0):
        return "memory waits to be remapped or retired: it needs a reset"
    return ""


def try_context() -> str:
    """Make and use a context on the only visible GPU; returns what that has shown. Raises OSError
    if it fails, CannotTellError if others leave no room.
    """
    try:
        driver = importlib.import_module("cuda.bindings.driver")
    except ImportError:
        return "NVML finds no fault (no context was tried: cuda-bindings is not installed)"

    def call(name: str, *arguments: object) -> Any:  # noqa: ANN401 - whatever the driver gives
        try:
            status, *values = getattr(driver, name)(*arguments)
        except RuntimeError as error:  # its library is not in this container
            raise CannotTellError(f"no context can be tried: {error}") from error
        if status.name in NOT_ITS_FAULT:
            raise CannotTellError(f"no context can be tried: {name} failed with {status.name}")
        if int(status) != 0:
            raise OSError(f"{name} failed with {status.name}")
        return values[0] if values else None

    call("cuInit", 0)
    device = call("cuDeviceGet", 0)
    context = call("cuDevicePrimaryCtxRetain", device)
    call("cuCtxSetCurrent", context)
    words = 1024
    memory = call("cuMemAlloc", words * 4)
    call("cuMemsetD32", memory, PATTERN, words)
    back = bytearray(words * 4)
    call("cuMemcpyDtoH", back, memory, len(back))
    call("cuMemFree", memory)
    call("cuDevicePrimaryCtxRelease", device)
    if bytes(back) != PATTERN.to_bytes(4, sys.byteorder) * words:
        raise OSError("memory that was set does not read back")
    return "NVML finds no fault, and a context works"


def main(arguments: list[str]) -> int:
    """Run one command and return the exit code."""
    try:
        nvml = importlib.import_module("pynvml")
    except ImportError:
        return _fail(arguments, NO_LIBRARY, CANNOT_TELL)
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        is_there = error.value != nvml.NVML_ERROR_LIBRARY_NOT_FOUND
        status = SICK if is_there else CANNOT_TELL
        return _fail(arguments, f"NVML cannot be used: {error}", status)
    if arguments == ["list"]:
        return _answer(_list(nvml))
    status, said = SICK, find_fault(nvml, arguments[1])
    if not said:
        try:
            status, said = WELL, try_context()
        except OSError as error:
            said = str(error)
        except CannotTellError as error:
            status, said = CANNOT_TELL, str(error)
    print_line(said)
    return status


def print_line(text: str) -> None:
    """Print a line to the probe's log."""
    sys.stdout.write(f"{text}\n")


def _list(nvml: ModuleType) -> GpuList:
    try:
        return list_gpus(nvml)
    except nvml.NVMLError as error:
        return GpuList(failure=str(error))


def _answer(found: GpuList) -> int:
    with Channel.inherited() as channel:
        channel.send(found)
    return WELL


def _fail(arguments: list[str], reason: str, status: int) -> int:
    if arguments == ["list"]:
        return _answer(GpuList(failure=reason))
    print_line(reason)
    return status


def _slices_of(nvml: ModuleType, handle: Handle) -> Iterator[tuple[int, Handle]]:
    if _ask(nvml, lambda: nvml.nvmlDeviceGetMigMode(handle)[0], 0) != 1:
        return
    for number in range(_ask(nvml, lambda: nvml.nvmlDeviceGetMaxMigDeviceCount(handle), 0)):
        part = _ask(
            nvml,
            lambda: nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, number),  # noqa: B023 - called at once
            None,
        )
        if part is not None:
            yield number, part


def _read_gpu(nvml: ModuleType, handle: Handle, part: Handle, place: tuple[int, int]) -> Gpu:
    """A GPU and, if ``part`` is not None, a slice of it; ``place`` is their index and number."""
    own = handle if part is None else part
    ecc = _ask(nvml, lambda: nvml.nvmlDeviceGetEccMode(handle)[0], None)
    persistent = _ask(nvml, lambda: nvml.nvmlDeviceGetPersistenceMode(handle), None)
    major, minor = _ask(nvml, lambda: nvml.nvmlDeviceGetCudaComputeCapability(handle), (0, 0))

    cuda = _ask(nvml, lambda: int(nvml.nvmlSystemGetCudaDriverVersion_v2()), 0)

    def clock(question: str, kind: int) -> int:
        return _ask(nvml, lambda: int(getattr(nvml, question)(handle, kind)), 0)

    return Gpu(
        index=place[0],
        slice=place[1],
        uuid=nvml.nvmlDeviceGetUUID(own),
        product=nvml.nvmlDeviceGetName(own),
        pci_device=int(nvml.nvmlDeviceGetPciInfo(handle).pciDeviceId),
        driver=nvml.nvmlSystemGetDriverVersion(),
        cuda=(cuda // 1000, cuda % 1000 // 10),
        capability=(major, minor),
        memory_bytes=_ask(nvml, lambda: int(nvml.nvmlDeviceGetMemoryInfo(own).total), 0),
        graphics_mhz=clock("nvmlDeviceGetApplicationsClock", nvml.NVML_CLOCK_GRAPHICS),
        memory_mhz=clock("nvmlDeviceGetApplicationsClock", nvml.NVML_CLOCK_MEM),
        max_graphics_mhz=clock("nvmlDeviceGetMaxClockInfo", nvml.NVML_CLOCK_GRAPHICS),
        power_limit_w=_ask(
            nvml, lambda: int(nvml.nvmlDeviceGetEnforcedPowerLimit(handle)) // 1000, 0
        ),
        ecc=None if ecc is None else bool(ecc),
        persistent=None if persistent is None else bool(persistent),
        busy_percent=_ask(nvml, lambda: int(nvml.nvmlDeviceGetUtilizationRates(own).gpu), None),
    )


def _ask(nvml: ModuleType, question: Callable[[], T], otherwise: T) -> T:
    """NVML's answer; ``otherwise`` if this GPU or this driver does not support the question."""
    try:
        return question()
    except (nvml.NVMLError, AttributeError):
        return otherwise


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
