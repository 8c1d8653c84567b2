"""The few lines that talk to NVML, against a library that answers with recorded values."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from tileyard.devices import nvml
from tileyard.devices.nvml import CannotTellError, find_fault, list_gpus, try_context


class NVMLError(Exception):
    """The library's own."""


def refuse(text: str) -> Callable[..., Any]:
    """A question that this GPU or this driver does not know."""

    def ask(*_: object) -> object:
        raise NVMLError(text)

    return ask


def library(**changes: object) -> Any:  # noqa: ANN401 - stands for a module
    """An H200 as NVML 580 stated it; GPU 1 is sliced, slices 0 and 2 of it are there."""

    def find_slice(handle: str, number: int) -> str:
        if number not in (0, 2):
            raise NVMLError("Not Found")
        return f"{handle}/{number}"

    answers: dict[str, object] = {
        "NVMLError": NVMLError,
        "NVML_CLOCK_GRAPHICS": 0,
        "NVML_CLOCK_MEM": 2,
        "NVML_MEMORY_ERROR_TYPE_UNCORRECTED": 1,
        "NVML_VOLATILE_ECC": 0,
        "nvmlSystemGetDriverVersion": lambda: "580.95.05",
        "nvmlSystemGetCudaDriverVersion_v2": lambda: 13010,
        "nvmlDeviceGetCount": lambda: 2,
        "nvmlDeviceGetHandleByIndex": lambda index: f"gpu{index}",
        "nvmlDeviceGetHandleByUUID": lambda uuid: uuid,
        "nvmlDeviceGetMigMode": lambda handle: [int(handle == "gpu1"), 0],
        "nvmlDeviceGetMaxMigDeviceCount": lambda _: 7,
        "nvmlDeviceGetMigDeviceHandleByIndex": find_slice,
        "nvmlDeviceGetDeviceHandleFromMigDeviceHandle": refuse("Invalid Argument"),
        "nvmlDeviceGetUUID": lambda handle: f"UUID-{handle}",
        "nvmlDeviceGetName": lambda _: "NVIDIA H200",
        "nvmlDeviceGetPciInfo": lambda _: SimpleNamespace(
            busId="00000000:C1:00.0", pciDeviceId=0x233510DE
        ),
        "nvmlDeviceGetCudaComputeCapability": lambda _: (9, 0),
        "nvmlDeviceGetMemoryInfo": lambda _: SimpleNamespace(total=150_754_820_096),
        "nvmlDeviceGetApplicationsClock": refuse("Not Supported"),
        "nvmlDeviceGetMaxClockInfo": lambda _handle, _kind: 1980,
        "nvmlDeviceGetEnforcedPowerLimit": lambda _: 700_000,
        "nvmlDeviceGetEccMode": lambda _: [1, 1],
        "nvmlDeviceGetPersistenceMode": lambda _: 1,
        "nvmlDeviceGetUtilizationRates": lambda _: SimpleNamespace(gpu=37),
        "nvmlDeviceGetTotalEccErrors": lambda _handle, _kind, _counter: 0,
        "nvmlDeviceGetRemappedRows": lambda _: (0, 0, 0, 0),
        "nvmlDeviceGetRetiredPagesPendingStatus": refuse("Not Supported"),
    }
    return SimpleNamespace(**{**answers, **changes})


def test_slices_stand_for_the_gpu_that_is_sliced() -> None:
    """Two slices of one GPU are listed in place of it, under their own UUIDs."""
    found = list_gpus(library())
    expected = [(0, -1, "UUID-gpu0"), (1, 0, "UUID-gpu1/0"), (1, 2, "UUID-gpu1/2")]
    assert [(gpu.index, gpu.slice, gpu.uuid) for gpu in found.gpus] == expected
    assert found.failure == ""


def test_what_is_stated_is_taken_over() -> None:
    """Units are ours; what NVML does not support is left out."""
    gpu = list_gpus(library()).gpus[0]
    expected = ("NVIDIA H200", "580.95.05", (13, 1), (9, 0), 0, 1980, 700, True, True, 37)
    assert (
        gpu.product,
        gpu.driver,
        gpu.cuda,
        gpu.capability,
        gpu.graphics_mhz,
        gpu.max_graphics_mhz,
        gpu.power_limit_w,
        gpu.ecc,
        gpu.persistent,
        gpu.busy_percent,
    ) == expected


def test_an_old_library_is_asked_less() -> None:
    """Functions that a version of the library lacks are questions without an answer."""
    old = library()
    del old.nvmlDeviceGetMigMode, old.nvmlDeviceGetUtilizationRates
    found = list_gpus(old).gpus
    expected = [("UUID-gpu0", None), ("UUID-gpu1", None)]
    assert [(gpu.uuid, gpu.busy_percent) for gpu in found] == expected


def test_a_lost_gpu_hides_no_others() -> None:
    """It is named; the rest is listed."""

    def find(index: int) -> str:
        if index == 1:
            raise NVMLError("GPU is lost")
        return "gpu0"

    found = list_gpus(library(nvmlDeviceGetHandleByIndex=find))
    expected = "GPU 1 cannot be asked: GPU is lost"
    assert found.failure == expected
    assert [gpu.uuid for gpu in found.gpus] == ["UUID-gpu0"]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, ""),
        (
            {"nvmlDeviceGetMemoryInfo": refuse("GPU is lost")},
            "NVML cannot ask it: GPU is lost",
        ),
        (
            {"nvmlDeviceGetTotalEccErrors": lambda *_: 2},
            "2 uncorrected memory errors since its driver was loaded",
        ),
        (
            {"nvmlDeviceGetRemappedRows": lambda _: (5, 1, 1, 0)},
            "it needs a reset",
        ),
        (
            {"nvmlDeviceGetRemappedRows": lambda _: (5, 1, 0, 1)},
            "a row of its memory could not be remapped",
        ),
        (
            {"nvmlDeviceGetRetiredPagesPendingStatus": lambda _: 1},
            "it needs a reset",
        ),
    ],
)
def test_health_is_asked_for(changes: dict[str, object], expected: str) -> None:
    """Each kind of fault has its words; none, which what a GPU does not know counts as, means well."""
    found = find_fault(library(**changes), "UUID-gpu0")
    assert expected in found
    assert bool(found) == bool(expected)


def driver(**changes: int) -> Any:  # noqa: ANN401 - stands for a module
    """A CUDA driver in which these calls fail with these errors."""
    names = {0: "CUDA_SUCCESS", 2: "CUDA_ERROR_OUT_OF_MEMORY", 719: "CUDA_ERROR_LAUNCH_FAILED"}

    class Status(int):
        """An error code with its name."""

        @property
        def name(self) -> str:
            """As the driver spells it."""
            return names[self]

    class Driver:
        """Remembers what was set."""

        def __getattr__(self, name: str) -> Callable[..., tuple[Status, object]]:
            if changes.get(name) == -1:
                raise RuntimeError("Failed to dlopen libcuda.so.1")
            return lambda *_: (Status(changes.get(name, 0)), 7)

        def cuMemcpyDtoH(self, back: bytearray, _memory: int, size: int) -> tuple[Status]:  # noqa: N802
            """Give the pattern, or zeros."""
            pattern = 0 if "zeros" in changes else nvml.PATTERN
            back[:] = pattern.to_bytes(4, "little") * (size // 4)
            return (Status(0),)

    return Driver()


def test_a_context_is_made_and_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory that was set reads back; where it does not, or a call fails, the GPU is sick."""
    found = {}
    for name, changes in {
        "well": {},
        "broken": {"cuMemsetD32": 719},
        "forgetful": {"zeros": 1},
        "taken": {"cuMemAlloc": 2},
        "absent": {"cuInit": -1},
    }.items():
        fake = driver(**changes)
        monkeypatch.setattr(nvml.importlib, "import_module", lambda _, fake=fake: fake)
        try:
            found[name] = try_context()
        except (OSError, CannotTellError) as error:
            found[name] = f"{type(error).__name__}: {error}"
    expected = {
        "well": "NVML finds no fault, and a context works",
        "broken": "OSError: cuMemsetD32 failed with CUDA_ERROR_LAUNCH_FAILED",
        "forgetful": "OSError: memory that was set does not read back",
        "taken": "CannotTellError: no context can be tried: cuMemAlloc failed with CUDA_ERROR_OUT_OF_MEMORY",
        "absent": "CannotTellError: no context can be tried: Failed to dlopen libcuda.so.1",
    }
    assert found == expected


def test_without_cuda_bindings_nvml_alone_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    """The message says that no context was tried."""

    def missing(name: str) -> object:
        raise ImportError(name)

    monkeypatch.setattr(nvml.importlib, "import_module", missing)
    expected = "no context was tried: cuda-bindings is not installed"
    assert expected in try_context()
