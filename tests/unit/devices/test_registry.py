"""Devices by name."""

from pathlib import Path

import pytest

from tileyard.base.errors import UsageError
from tileyard.base.model import Device
from tileyard.base.settings import Settings
from tileyard.devices import cuda
from tileyard.devices.cpu import core_locks, format_cores
from tileyard.devices.gpus import Gpu, GpuList
from tileyard.devices.nvml import NO_LIBRARY
from tileyard.devices.registry import find_devices, parse_device, resolve_devices
from tileyard.service.choosing import choose_devices

DECLARED = """
[simulators]
slots = 2

[[device]]
name = "npu:0"
id = "0000:C1:00.0"

[[device]]
name = "npu:1"
id = "0000:c2:00.0"
"""
GPUS = GpuList(gpus=tuple(Gpu(index=n, uuid=f"GPU-{n}", product="H200") for n in range(2)))


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """A host on which four cores may be used, and nothing is declared."""
    return Settings(
        home=tmp_path / "home",
        lock_dir=tmp_path / "locks",
        cores=(0, 1, 3, 4),
        host_config=tmp_path / "etc",
    )


@pytest.fixture
def declared(settings: Settings) -> Settings:
    """The same host, with two accelerators and two simulators."""
    settings.host_config.mkdir()
    (settings.host_config / "devices.toml").write_text(DECLARED, encoding="utf-8")
    return settings


@pytest.fixture(autouse=True)
def _no_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """No driver is asked, whatever machine this runs on."""
    monkeypatch.setattr(cuda, "list_visible_gpus", GpuList)


def names(devices: tuple[Device, ...]) -> list[str]:
    """What they are called."""
    return [device.name for device in devices]


@pytest.mark.parametrize("name", ["cpu", "cpu:0", "auto"])
def test_the_cpu_is_all_cores(settings: Settings, name: str) -> None:
    """These names stand for every core of the settings, under one canonical name."""
    device = parse_device(name, settings)
    expected = ("cpu:0", "cpu", (0, 1, 3, 4))
    assert (device.name, device.kind, device.cores) == expected
    assert find_devices(settings) == (device,)


def test_a_set_of_cores_has_a_canonical_name(settings: Settings) -> None:
    """However the set is written, name, cores and locks are ascending."""
    device = parse_device("cpu:cores=4,0-1,1,3", settings)
    expected_locks = core_locks((0, 1, 3, 4), settings.lock_dir)
    assert (device.name, device.cores) == ("cpu:cores=0-1,3-4", (0, 1, 3, 4))
    assert device.locks == expected_locks


def test_sets_that_overlap_share_a_lock() -> None:
    """One core in common means one lock in common; none in common, none."""
    one, two, three = (
        set(core_locks(cores, Path("/locks"), physical=lambda core: core))
        for cores in ((0, 1), (1, 3), (4,))
    )
    expected = 1
    assert len(one & two) == expected
    assert not three & (one | two)


def test_threads_of_one_core_share_a_lock() -> None:
    """Two hardware threads of a core cannot be leased to two holders."""
    expected = ("/locks/cpu-0.lock",)
    for core in (0, 2):
        assert core_locks([core], Path("/locks"), physical=lambda core: core % 2) == expected


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("cuda:0", "no device 'cuda:0'"),
        ("npu", "no device 'npu'"),
        ("sim", "no device 'sim'"),
        ("cpu:1", "no device 'cpu:1'"),
        ("", "no device ''"),
        ("cpu:cores=", "no valid set of cores: ''"),
        ("cpu:cores=3-1", "no valid set of cores: '3-1'"),
        ("cpu:cores=a", "no valid set of cores: 'a'"),
        ("cpu:cores=0,2", "cores 2, which are not available .*0-1,3-4"),
        ("cpu:cores=0-99999999999", "a core above 8191"),
    ],
)
def test_what_is_not_there_is_refused(settings: Settings, name: str, message: str) -> None:
    """The error repeats the name and says what can be written, or what is available."""
    with pytest.raises(UsageError, match=message):
        parse_device(name, settings)


def test_a_name_leaves_a_choice(declared: Settings) -> None:
    """A class stands for all of its devices, ``auto`` for all accelerators, an id for one."""
    expected = {
        "npu": ["npu:0", "npu:1"],
        "auto": ["npu:0", "npu:1"],
        "npu:1": ["npu:1"],
        "0000:C2:00.0": ["npu:1"],
        "c2:00.0": ["npu:1"],
        "sim": ["sim:0", "sim:1"],
        "sim:1": ["sim:1"],
        "cpu": ["cpu:0"],
    }
    assert {name: names(resolve_devices(name, declared)) for name in expected} == expected


def test_everything_is_found(declared: Settings) -> None:
    """The CPU comes first, simulators last."""
    expected = ["cpu:0", "npu:0", "npu:1", "sim:0", "sim:1"]
    assert names(find_devices(declared)) == expected


def test_one_device_is_not_chosen_among_several(declared: Settings) -> None:
    """Who needs exactly one is told what to choose from."""
    with pytest.raises(UsageError, match=r"several devices .*npu:0, npu:1"):
        parse_device("npu", declared)


def test_a_cpu_is_found_beside_a_broken_file(settings: Settings) -> None:
    """A file that is not valid stands in nobody's way who names the CPU, and in everyone else's."""
    settings.home.mkdir()
    (settings.home / "devices.toml").write_text("[[device]", encoding="utf-8")
    expected = "cpu:0"
    assert parse_device("cpu", settings).name == expected
    with pytest.raises(UsageError, match=r"devices\.toml: is not valid TOML"):
        resolve_devices("auto", settings)


def test_gpus_stand_beside_what_is_declared(
    declared: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is declared replaces a GPU of the same name or the same id; the rest is found."""
    monkeypatch.setattr(cuda, "list_visible_gpus", lambda: GPUS)
    declared.home.mkdir()
    text = '[[device]]\nname = "gpu:left"\nid = "gpu-0"\n'
    (declared.home / "devices.toml").write_text(text, encoding="utf-8")
    expected = {
        "cuda": ["cuda:1"],
        "cuda:1": ["cuda:1"],
        "GPU-1": ["cuda:1"],
        "GPU-0": ["gpu:left"],
        "auto": ["npu:0", "npu:1", "gpu:left", "cuda:1"],
    }
    assert {name: names(resolve_devices(name, declared)) for name in expected} == expected


def test_cores_are_written_as_ranges() -> None:
    """Neighbours are joined, and order does not matter."""
    expected = "0-2,5,7-8"
    assert format_cores([8, 1, 0, 5, 7, 2]) == expected


@pytest.mark.parametrize("name", ["cuda", "cuda:0"])
def test_a_gpu_that_cannot_be_listed_says_what_is_missing(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The extra that finds GPUs is named, also where a bundle is tuned and no device is named."""
    monkeypatch.setattr(cuda, "list_visible_gpus", lambda: cuda.GpuList(failure=NO_LIBRARY))
    settings = Settings(home=tmp_path, lock_dir=tmp_path, cores=(0,))
    why = (
        f"there is no device {name!r} on this host; GPUs are not listed: nvidia-ml-py is not "
        f"installed (pip install './tileyard[cuda]' beside the checkout)"
    )
    with pytest.raises(UsageError) as raised:
        resolve_devices(name, settings)
    assert raised.value.message == why
    with pytest.raises(UsageError) as raised:
        choose_devices((), "cuda:sm_90a", settings)
    assert raised.value.message == why.replace(repr(name), "'cuda'")
