"""Which devices a run uses."""

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from tileyard.base.errors import InterruptedRunError, UsageError
from tileyard.base.model import Device
from tileyard.base.settings import Settings
from tileyard.engine.hosting import make_slots
from tileyard.service.bench import Bench
from tileyard.service.choosing import (
    choose_calm,
    choose_devices,
    find_devices,
    require_fit,
    require_one_kind,
    require_timed,
    settle_target,
    use_hosts,
)


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """Two cores, each a physical one, and nothing declared."""
    monkeypatch.setattr(
        "tileyard.devices.registry.core_locks",
        lambda cores, folder: tuple(str(folder / f"cpu-{core}.lock") for core in cores),
    )
    return Settings(home=tmp_path, lock_dir=tmp_path / "locks", cores=(0, 1), host_config=tmp_path)


@pytest.mark.parametrize("target", ["cpu", "cpu:x86-64-v3", "scripted"])
def test_without_a_name_it_is_all_devices_of_the_targets_class(
    settings: Settings, target: str
) -> None:
    """A target that names no class of its own runs on the CPU."""
    expected = ["cpu:0"]
    assert [device.name for device in choose_devices((), target, settings)] == expected


def test_what_is_built_for_checks_is_not_timed() -> None:
    """Whatever else follows the target's name, and in whatever order."""
    for target in (
        "cpu:sanitize=1",
        "cpu:native,sanitize=1",
        "cpu:x86-64-v3,sanitize=1,optimize=1",
    ):
        with pytest.raises(UsageError, match="its times say nothing"):
            require_timed(target)
    for target in ("cpu", "cpu:native,optimize=1", "cuda:sm_90a", "scripted"):
        require_timed(target)


def test_times_are_compared_on_one_kind_of_cpu() -> None:
    """Also on the anonymous slots of several hosts."""
    one, *others = (device for cpu in ("a", "a", "b") for device in make_slots(1, cpu))
    require_one_kind((one, others[0]))
    with pytest.raises(UsageError, match="is anonymous slot, a, and slot:0 is anonymous slot, b"):
        require_one_kind((one, *others))


def test_each_device_is_used_once(settings: Settings) -> None:
    """However it is spelled, and in the order of the names."""
    names = ("cpu:cores=1", "cpu:cores=0", "cpu:cores=1-1")
    expected = ["cpu:cores=1", "cpu:cores=0"]
    assert [device.name for device in choose_devices(names, "cpu", settings)] == expected


@pytest.mark.parametrize(
    ("names", "free", "expected"),
    [
        ((), (0, 1), ("cpu:0",)),
        ((), (1,), ("cpu:cores=1", "timed on CPU 1 only: other work keeps CPU 0 busy")),
        (("cpu",), (1,), ("cpu:0",)),
    ],
)
def test_cores_with_other_work_are_left_out(
    names: tuple[str, ...],
    free: tuple[int, ...],
    expected: tuple[str, ...],
    settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Unless the device is named. Here the test says which cores are free."""
    monkeypatch.setattr("tileyard.devices.survey.find_free_cores", lambda _: free)
    (device,), notes = choose_calm(names, "cpu", settings)
    assert (device.name, *notes) == expected


def test_devices_that_exclude_each_other_are_refused(settings: Settings) -> None:
    """Two sets with a core in common could never be held at the same time."""
    expected = "cpu:0 and cpu:cores=1 share a core"
    with pytest.raises(UsageError, match=expected):
        choose_devices(("cpu", "cpu:cores=1"), "cpu", settings)


def test_a_target_without_a_device_can_be_built_for(settings: Settings) -> None:
    """The hint says how, unless a device was named."""
    with pytest.raises(UsageError) as refused:
        choose_devices((), "cuda:sm_90a", settings)
    assert refused.value.hint == "tileyard compile --target cuda:sm_90a builds for it without one"
    with pytest.raises(UsageError) as refused:
        choose_devices(("npu:7",), "cuda:sm_90a", settings)
    assert "compile" not in refused.value.hint


@pytest.mark.parametrize(
    ("target", "arch", "expected"),
    [
        ("cuda:sm_90a", "sm_80", "runs on GPUs of capability 9.0, and cuda:0 is sm_80"),
        ("cuda:sm_90a", "sm_100", "runs on GPUs of capability 9.0, and cuda:0 is sm_100"),
        ("cuda:sm_86", "sm_80", "runs on GPUs of capability 8.6 or a later 8.x"),
        ("cpu", "sm_80", "cuda:0 runs nothing that is built for cpu"),
        ("cuda:sm_ninety", "sm_90", "there is no architecture 'sm_ninety'"),
    ],
)
def test_a_gpu_of_another_architecture_is_refused(target: str, arch: str, expected: str) -> None:
    """Before anything is built, and before the device is asked for."""
    device = Device(name="cuda:0", kind="cuda", identity="x", arch=arch)
    with pytest.raises(UsageError, match=expected):
        require_fit(target, device)


@pytest.mark.parametrize(
    ("target", "arch"),
    [("cuda:sm_80", "sm_86"), ("cuda:sm_90a", "sm_90"), ("cuda:sm_90a", ""), ("scripted", "sm_80")],
)
def test_a_gpu_that_fits_or_says_nothing_is_taken(target: str, arch: str) -> None:
    """What is not known now, the runner finds out."""
    require_fit(target, Device(name="cuda:0", kind="cuda", identity="x", arch=arch))


def test_a_driver_that_is_too_old_is_refused() -> None:
    """Where NVML told what its driver knows of CUDA, nothing is built for it in vain."""
    device = Device(name="cuda:0", kind="cuda", identity="x", arch="sm_80", driver_api="12.8")
    expected = r"compiled by CUDA 13, and the driver of cuda:0 knows CUDA 12.8 \(update .* 580"
    with pytest.raises(UsageError, match=expected):
        require_fit("cuda:sm_80", device)
    require_fit("cuda:sm_80", msgspec.structs.replace(device, driver_api="13.0"))


def test_a_cpu_runs_no_gpu_code(settings: Settings) -> None:
    """However it came to be named."""
    expected = "cpu:0 runs nothing that is built for cuda:sm_80"
    with pytest.raises(UsageError, match=expected):
        choose_devices(("cpu",), "cuda:sm_80", settings)


@pytest.mark.parametrize(
    ("target", "archs", "expected"),
    [
        ("cuda", ("sm_90",), "cuda:sm_90a"),
        ("cuda", ("sm_86", "sm_86"), "cuda:sm_86"),
        ("cuda", ("",), "cuda"),
        ("cuda", (), "cuda"),
        ("cuda:sm_80", ("sm_90",), "cuda:sm_80"),
        ("cpu", ("sm_90",), "cpu"),
    ],
)
def test_a_target_takes_the_architecture_of_the_devices(
    target: str,
    archs: tuple[str, ...],
    expected: str,
    settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where it needs one and none is named. Here the test says which GPUs there are."""
    say_gpus(monkeypatch, archs)
    assert settle_target(target, (), settings) == expected


def test_of_several_architectures_one_must_be_named(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is chosen for the user."""
    say_gpus(monkeypatch, ("sm_80", "sm_90"))
    expected = "different architectures: sm_80, sm_90a .*as in cuda:sm_80"
    with pytest.raises(UsageError, match=expected):
        settle_target("cuda", (), settings)


def say_gpus(monkeypatch: pytest.MonkeyPatch, archs: tuple[str, ...]) -> None:
    """Let every name mean GPUs of these architectures."""
    gpus = [Device(name="cuda:0", kind="cuda", identity="x", arch=arch) for arch in archs]
    monkeypatch.setattr("tileyard.service.choosing.resolve_devices", lambda *_: gpus)


def test_times_are_compared_on_cpus_of_one_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their number of cores may differ; of several kinds each is named in the one line, with the reason."""
    here, like, other = (
        Device(name=f"cpu:0@{name}", kind="cpu", identity=f"{model}, {count} logical cores")
        for name, model, count in (
            ("a", "One, x86-64-v4", 8),
            ("b", "One, x86-64-v4", 16),
            ("c", "One, x86-64-v3", 8),
        )
    )

    def find(*found: Device) -> tuple[str, tuple[Device, ...]]:
        async def use(*_: object) -> tuple[Device, ...]:
            return found

        monkeypatch.setattr("tileyard.service.choosing.use_hosts", use)
        return asyncio.run(
            find_devices(cast(Any, SimpleNamespace(hosts=None)), "ssh:a,b,c", (), "cpu", 1.0)
        )

    assert find(here, like) == ("cpu", (here, like))
    with pytest.raises(UsageError) as refused:
        find(here, like, other)
    assert refused.value.message == (
        "CPUs of several kinds: cpu:0@a is One, x86-64-v4, cpu:0@c is One, x86-64-v3"
    )
    assert refused.value.hint.startswith("times are compared on one kind: ")


def test_a_run_that_is_stopped_waits_for_no_host(tmp_path: Path) -> None:
    """It ends as interrupted, and leaves no token of an agent that has not come."""
    settings = Settings(home=tmp_path / "home", lock_dir=tmp_path / "locks", cores=(0,))

    async def use() -> None:
        is_told = asyncio.Event()
        bench = Bench(settings, cast(Any, SimpleNamespace(tell_event=lambda _: is_told.set())))
        finding = asyncio.create_task(use_hosts(bench, f"listen:unix:{tmp_path}/run,1"))
        await is_told.wait()
        assert [one.name for one in (tmp_path / "home" / "agents").iterdir()] == ["run-1"]
        bench.stopping.set()
        with pytest.raises(InterruptedRunError, match="while it waited for its hosts"):
            await finding
        await bench.close()

    asyncio.run(use())
    assert not list((tmp_path / "home" / "agents").iterdir())
