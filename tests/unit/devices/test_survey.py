"""What the devices of a host do in a short window."""

import os
from pathlib import Path

import pytest

from tileyard.base.settings import Settings
from tileyard.devices import cuda
from tileyard.devices.cuda import make_gpu
from tileyard.devices.gpus import Gpu, GpuList
from tileyard.devices.health import quarantine_device
from tileyard.devices.locks import prepare_directory
from tileyard.devices.occupancy import Holder, Occupancy, try_hold
from tileyard.devices.registry import parse_device
from tileyard.devices.survey import (
    CoreTime,
    find_free_cores,
    read_core_times,
    share_busy,
    share_held_idle,
    survey_devices,
)

STAT = """cpu  30 0 10 100 20 0 0 0 5 0
cpu0 10 2 5 70 10 1 1 1 5 0
cpu1 20 0 5 30 10 0 0 0 0 0
intr 12345
"""
HOLDER = Holder(device="npu:0", user="ann", pid=7, command="sleep", since=1.0, number=3)
OTHER = Holder(device="npu:0", user="bob", pid=8, command="sleep", since=2.0, number=4)
PART = Holder(device="npu:0.1", user="ann", pid=7, command="sleep", since=1.0, number=3)


def test_core_times_are_read_from_the_kernels_account(tmp_path: Path) -> None:
    """Waiting for a disk is idle, interrupts and stolen time are not, a guest's time counts once."""
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/stat").write_text(STAT, encoding="ascii")
    expected = {0: CoreTime(busy=20, total=100), 1: CoreTime(busy=25, total=65)}
    assert read_core_times(tmp_path) == expected
    assert read_core_times(tmp_path / "nowhere") == {}


@pytest.mark.parametrize(
    ("cores", "expected"), [((0,), 0.75), ((0, 1), 0.5), ((), None), ((0, 7), None)]
)
def test_the_share_is_that_of_all_cores_together(
    cores: tuple[int, ...], expected: float | None
) -> None:
    """It lies between two accounts; where one has no such core it is not known."""
    before = {0: CoreTime(busy=100, total=200), 1: CoreTime(busy=0, total=0)}
    after = {0: CoreTime(busy=130, total=240), 1: CoreTime(busy=10, total=40)}
    assert share_busy(before, after, cores) == expected


@pytest.mark.parametrize(
    ("worked", "expected"),
    [
        ((0, 0, 0), (0, 1, 2)),
        ((0, 49, 51), (0, 1)),
        ((100, 0, 0), (2,)),
        ((100, 100, 100), (0, 1, 2)),
        ((), (0, 1, 2)),
    ],
)
def test_cores_with_other_work_are_not_free(
    worked: tuple[int, ...], expected: tuple[int, ...], tmp_path: Path
) -> None:
    """The first two are threads of one core; where all are busy, none is better."""
    (tmp_path / "proc").mkdir()
    for number in (0, 1):
        topology = tmp_path / f"sys/devices/system/cpu/cpu{number}/topology"
        topology.mkdir(parents=True)
        (topology / "core_cpus_list").write_text("0-1\n", encoding="ascii")

    def account(worked: tuple[int, ...], passed: int) -> None:
        lines = (f"cpu{n} {t} 0 0 {passed - t} 0 0 0 0\n" for n, t in enumerate(worked))
        (tmp_path / "proc/stat").write_text("".join(lines), encoding="ascii")

    def pause(_: float) -> None:
        account(worked, 100)

    account((0,) * len(worked), 0)
    assert find_free_cores((0, 1, 2), pause=pause, root=tmp_path) == expected


@pytest.mark.parametrize(
    ("before", "after", "busy", "expected"),
    [
        (None, None, 0.4, 0.0),
        (None, None, None, 0.0),
        (HOLDER, HOLDER, 0.4, 0.6),
        (HOLDER, HOLDER, None, None),
        (HOLDER, OTHER, 0.4, None),
        (None, HOLDER, 0.4, None),
        (HOLDER, None, 0.4, None),
        (PART, PART, 0.4, None),
    ],
)
def test_held_but_idle_is_told_only_where_it_is_known(
    before: Holder | None, after: Holder | None, busy: float | None, expected: float | None
) -> None:
    """One holder throughout, and known work: anything else would be a guess."""
    earlier, later = Occupancy(holder=before), Occupancy(holder=after)
    assert share_held_idle("npu:0", earlier, later, busy) == expected


def test_a_survey_shows_health_and_holders(tmp_path: Path) -> None:
    """Each device is described as it is at the end of the window, without waiting in the test."""
    settings = Settings(
        home=tmp_path / "home", lock_dir=tmp_path / "locks", cores=(0,), host_config=tmp_path
    )
    text = '[[device]]\nname = "npu:0"\nid = "a"\nprobe = ["gone"]\n[simulators]\nslots = 1\n'
    (tmp_path / "devices.toml").write_text(text, encoding="utf-8")
    windows: list[float] = []
    prepare_directory(settings.lock_dir)
    npu = parse_device("npu:0", settings)
    with try_hold(npu, "sleep 5"):
        quarantine_device(npu, "smoke")
        seen = survey_devices(settings, 0.25, pause=windows.append)
    states = {state.name: state for state in seen.devices}
    expected = {"npu:0": ("smoke", "sleep 5 npu:0"), "sim:0": ("", ""), "cpu:0": ("", "")}
    found = {
        name: (s.health.reason, s.holder.command if s.holder else "") for name, s in states.items()
    }
    assert {name: found[name] for name in expected} == expected
    assert windows == [0.25]
    npu_state = states["npu:0"]
    assert (npu_state.busy_share, npu_state.held_idle_share) == (None, None)
    assert states["sim:0"].held_idle_share == 0.0
    assert npu_state.unknown == "its probe gone is not a program that can be run"
    assert states["sim:0"].unknown == ""


def test_leased_core_sets_are_shown_while_they_are(tmp_path: Path) -> None:
    """Nobody can list all sets of cores; those that somebody holds have rows of their own."""
    cores = tuple(sorted(os.sched_getaffinity(0)))
    settings = Settings(
        home=tmp_path / "home", lock_dir=tmp_path / "locks", cores=cores, host_config=tmp_path
    )
    prepare_directory(settings.lock_dir)
    some = parse_device(f"cpu:cores={cores[0]}", settings)
    with try_hold(some, "sleep 5"):
        states = {s.name: s for s in survey_devices(settings, 0.0, pause=lambda _: None).devices}
    expected = some.name
    for name in ("cpu:0", some.name):
        holder = states[name].holder
        assert holder is not None
        assert holder.device == expected
    after = survey_devices(settings, 0.0, pause=lambda _: None)
    assert some.name not in [state.name for state in after.devices]


def test_what_nvml_says_of_a_gpu_is_its_share(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A GPU that worked for a quarter of the sample was idle for the rest, if somebody held it."""
    settings = Settings(
        home=tmp_path / "home", lock_dir=tmp_path / "locks", cores=(0,), host_config=tmp_path
    )
    prepare_directory(settings.lock_dir)
    gpus = GpuList(
        gpus=tuple(
            Gpu(index=n, uuid=f"GPU-{n}", product="H200", busy_percent=busy)
            for n, busy in enumerate((25, None))
        )
    )
    monkeypatch.setattr(cuda, "list_visible_gpus", lambda: gpus)
    held = make_gpu(gpus.gpus[0], settings.lock_dir)
    with try_hold(held):
        states = survey_devices(settings, 0.0, pause=lambda _: None).devices
    expected = {"cuda:0": (0.25, 0.75), "cuda:1": (None, 0.0)}
    shares = {s.name: (s.busy_share, s.held_idle_share) for s in states}
    assert {name: shares[name] for name in expected} == expected
