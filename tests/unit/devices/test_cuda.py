"""What NVML states of GPUs, as recorded values, becomes Devices and verdicts."""

from pathlib import Path

import msgspec
import pytest

from tileyard.devices.cuda import filter_visible, has_driver, make_gpu
from tileyard.devices.gpus import Gpu

LOCKS = Path("/locks")
H200 = Gpu(
    index=1,
    uuid="GPU-5d1c2b3a-0000-1111-2222-333344445555",
    product="NVIDIA H200",
    pci_device=0x233510DE,
    driver="580.95.05",
    capability=(9, 0),
    memory_bytes=150_754_820_096,
    max_graphics_mhz=1980,
    power_limit_w=700,
    ecc=True,
    persistent=True,
)
SLICE = msgspec.structs.replace(
    H200, uuid="MIG-aaaa", slice=2, product="NVIDIA H200 MIG 1g.18gb", memory_bytes=17 << 30
)


def test_a_gpu_is_known_by_its_uuid() -> None:
    """The index is for people; lock, environment and probe go by what never changes."""
    device = make_gpu(H200, LOCKS)
    expected = ("cuda:1", "cuda", (f"/locks/device-{H200.uuid.lower()}.lock",))
    assert (device.name, device.kind, device.locks) == expected
    assert device.env == {"CUDA_VISIBLE_DEVICES": H200.uuid}
    assert device.arch == "sm_90"
    assert device.probe[-2:] == ("probe", H200.uuid)
    again = make_gpu(msgspec.structs.replace(H200, index=0), LOCKS)
    assert (again.name, again.locks) == ("cuda:0", device.locks)


def test_identity_is_silicon_and_how_it_is_driven() -> None:
    """Product, capability, memory, driver, clocks, power and ECC: all that changes timings."""
    expected = (
        "NVIDIA H200 (233510de), sm_90, 143771 MiB, driver 580.95.05, up to 1980 MHz, "
        "power limit 700 W, ECC on"
    )
    assert make_gpu(H200, LOCKS).identity == expected
    slow = msgspec.structs.replace(H200, graphics_mhz=1200, memory_mhz=3201, persistent=False)
    expected = (
        "NVIDIA H200 (233510de), sm_90, 143771 MiB, driver 580.95.05, clocks 1200/3201 MHz, "
        "up to 1980 MHz, power limit 700 W, ECC on, not persistent"
    )
    assert make_gpu(slow, LOCKS).identity == expected


def test_what_nvml_does_not_state_is_left_out() -> None:
    """A GPU of which only name and UUID are known is a device all the same."""
    device = make_gpu(Gpu(index=0, uuid="GPU-1", product="T4"), LOCKS)
    expected = ("T4", "")
    assert (device.identity, device.arch) == expected


def test_a_slice_is_a_device_of_its_own() -> None:
    """Slices of one GPU have names, locks and environments of their own."""
    device = make_gpu(SLICE, LOCKS)
    expected = ("cuda:1.2", ("/locks/device-mig-aaaa.lock",), {"CUDA_VISIBLE_DEVICES": "MIG-aaaa"})
    assert (device.name, device.locks, device.env) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, ["GPU-aa", "GPU-ab", "GPU-c"]),
        ("", []),
        ("1", ["GPU-ab"]),
        ("2,0", ["GPU-aa", "GPU-c"]),
        ("gpu-c", ["GPU-c"]),
        ("GPU-a", ["GPU-aa", "GPU-ab"]),
        ("0,-1,2", ["GPU-aa"]),
        ("NoDevFiles", []),
    ],
)
def test_a_job_sees_what_its_cluster_gave_it(value: str | None, expected: list[str]) -> None:
    """``CUDA_VISIBLE_DEVICES`` limits what is found, by index or UUID, up to the first bad entry."""
    gpus = [Gpu(index=n, uuid=u, product="x") for n, u in enumerate(("GPU-aa", "GPU-ab", "GPU-c"))]
    environ = {} if value is None else {"CUDA_VISIBLE_DEVICES": value}
    assert [gpu.uuid for gpu in filter_visible(gpus, environ)] == expected


def test_a_driver_is_seen_without_asking_it(tmp_path: Path) -> None:
    """A file of the driver is enough, and where there is none NVML is not asked."""
    expected = (False, True)
    before = has_driver(tmp_path)
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/nvidiactl").touch()
    assert (before, has_driver(tmp_path)) == expected
