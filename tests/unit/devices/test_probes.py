"""Probes are real processes: well, sick, silent, forking and missing ones."""

import asyncio
import os
import sys
from pathlib import Path

import msgspec
import psutil
import pytest

from tileyard.base.model import Device
from tileyard.base.settings import Settings
from tileyard.devices import cpu_probe
from tileyard.devices.health import (
    Probe,
    Verdict,
    list_gpus,
    probe_device,
    probe_devices,
    run_apart,
)
from tileyard.devices.locks import prepare_directory
from tileyard.devices.occupancy import try_hold
from tileyard.devices.registry import parse_device

HANGING = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
open(sys.argv[1], "w").write(str(os.getpid()))
time.sleep(3600)
"""
FORKING = """
import os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        open(sys.argv[1], "w").write(str(os.getpid()))
        time.sleep(3600)
    os._exit(0)
os.wait()
while not (os.path.exists(sys.argv[1]) and open(sys.argv[1]).read()):
    time.sleep(0.001)
print("all is well")
"""
FAKE_NVML = '''
"""Answers as NVML does, for one GPU."""

NVML_ERROR_LIBRARY_NOT_FOUND = 12

class NVMLError(Exception):
    """The library's error."""
    value = 18

def nvmlInit():
    if "broken" in NAME:
        raise NVMLError("Driver/library version mismatch")
    if "absent" in NAME:
        NVMLError.value = 12
        raise NVMLError("NVML Shared Library Not Found")

def nvmlSystemGetDriverVersion():
    return "580.95.05"

def nvmlDeviceGetCount():
    return 1

def nvmlDeviceGetHandleByIndex(index):
    return index

def nvmlDeviceGetUUID(handle):
    return "GPU-5d1c"

def nvmlDeviceGetName(handle):
    return NAME

class Pci:
    """Where it is."""
    busId = b"00000000:C1:00.0"
    pciDeviceId = 0x233510DE

def nvmlDeviceGetPciInfo(handle):
    return Pci

def nvmlDeviceGetMemoryInfo(handle):
    raise NVMLError("GPU is lost")

def nvmlDeviceGetCudaComputeCapability(handle):
    return (9, 0)

def nvmlDeviceGetHandleByUUID(uuid):
    return 0

NVML_CLOCK_GRAPHICS, NVML_CLOCK_MEM = 0, 2
'''

pytestmark = pytest.mark.slow


def device(tmp_path: Path, *probe: str, limit_s: float = 60.0, locks: int = 1) -> Device:
    """A device with this probe."""
    prepare_directory(tmp_path / "locks")
    return Device(
        name="npu:0",
        kind="npu",
        identity="x",
        env={"WHICH": "7"},
        locks=tuple(str(tmp_path / "locks" / f"device-{n}.lock") for n in range(locks)),
        probe=probe,
        probe_limit_s=limit_s,
    )


def ask(device: Device) -> tuple[Verdict, str]:
    """Probe it, and leave nothing behind."""
    before = set(psutil.Process().children(recursive=True))
    probe = asyncio.run(probe_device(device))
    assert set(psutil.Process().children(recursive=True)) <= before  # others may have ended
    return probe.verdict, probe.message


def python(code: str, *arguments: object) -> tuple[str, ...]:
    """A probe in Python."""
    return (sys.executable, "-c", code, *map(str, arguments))


def test_a_probe_speaks_through_its_exit_code(tmp_path: Path) -> None:
    """0 is good, 75 says nothing, any other is bad; the last line is its message."""
    code = "import sys; print('first'); print(sys.argv[2]); sys.exit(int(sys.argv[1]))"
    expected = {
        0: (Verdict.GOOD, "fine"),
        1: (Verdict.FAILED, "on fire"),
        75: (Verdict.UNKNOWN, "no tool"),
    }
    for status, answer in expected.items():
        assert ask(device(tmp_path, *python(code, status, answer[1]))) == answer


def test_a_silent_probe_is_explained(tmp_path: Path) -> None:
    """Where a probe says nothing, its exit code or signal is named."""
    quiet = device(tmp_path, *python("import sys; sys.exit(9)"))
    crashing = device(tmp_path, *python("import os; os.kill(os.getpid(), 11)"))
    expected = (Verdict.FAILED, "its probe ended with exit code 9")
    assert ask(quiet) == expected
    assert ask(crashing) == (Verdict.FAILED, "its probe died of SIGSEGV (Segmentation fault)")


def test_a_probe_finds_its_device(tmp_path: Path) -> None:
    """It gets what a holder's processes get."""
    expected = (Verdict.GOOD, "7")
    assert ask(device(tmp_path, *python("import os; print(os.environ['WHICH'])"))) == expected


def test_a_hanging_probe_is_killed(tmp_path: Path) -> None:
    """A probe that runs past its limit, and ignores TERM, is a failed one, and gone."""
    note = tmp_path / "pid"
    sick = device(tmp_path, *python(HANGING, note), limit_s=1.0)
    expected = (Verdict.FAILED, "its probe ran past its limit of 1 s and was killed")
    assert ask(sick) == expected
    assert not psutil.pid_exists(int(note.read_text(encoding="ascii")))


def test_a_daemon_of_a_probe_is_ended(tmp_path: Path) -> None:
    """What a probe leaves behind does not outlive it."""
    note = tmp_path / "pid"
    expected = (Verdict.GOOD, "all is well")
    assert ask(device(tmp_path, *python(FORKING, note))) == expected
    assert not psutil.pid_exists(int(note.read_text(encoding="ascii")))


def test_a_probe_that_is_not_there_says_nothing_of_the_device(tmp_path: Path) -> None:
    """A tool that this user lacks puts no device into quarantine."""
    expected = (Verdict.UNKNOWN, "its probe npu-smi-x is not a program that can be run")
    assert ask(device(tmp_path, "npu-smi-x")) == expected
    assert ask(device(tmp_path)) == (Verdict.UNKNOWN, "no probe is known for it")


def test_a_device_in_use_is_not_probed(tmp_path: Path) -> None:
    """Who holds one of its locks is not disturbed, and a probe gives all of them back."""
    note = tmp_path / "ran"
    wanted = device(tmp_path, *python("import sys; open(sys.argv[1], 'w')", note), locks=2)
    other = msgspec.structs.replace(wanted, locks=wanted.locks[1:])
    with try_hold(other) as held:
        assert held
        expected = (Verdict.BUSY, "somebody holds it")
        assert ask(wanted) == expected
        assert not note.exists()
    assert ask(wanted) == (Verdict.GOOD, "")
    with try_hold(wanted) as held:
        assert held


def test_devices_that_share_a_lock_are_probed_in_turn(tmp_path: Path) -> None:
    """None of them is found busy because of another one."""
    one = device(tmp_path, *python("pass"), locks=2)
    two = msgspec.structs.replace(one, name="npu:1", locks=one.locks[1:])
    probes = asyncio.run(probe_devices([one, two]))
    expected = [("npu:0", Verdict.GOOD), ("npu:1", Verdict.GOOD)]
    assert [(probe.device, probe.verdict) for probe in probes] == expected


def test_the_cpu_is_probed_core_by_core(tmp_path: Path) -> None:
    """The cores of this machine give the known results."""
    cores = tuple(sorted(os.sched_getaffinity(0)))
    settings = Settings(home=tmp_path, lock_dir=tmp_path / "locks", cores=cores)
    expected = (Verdict.GOOD, "")
    assert ask(parse_device("cpu", settings)) == expected


def test_a_core_that_computes_something_else_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A wrong result of either kind fails the probe; a core that one may not use says nothing."""
    before = os.sched_getaffinity(0)
    core = min(before)
    try:
        monkeypatch.setattr(cpu_probe, "ORBIT", 0.5)
        assert cpu_probe.main([str(core)]) == 1
        monkeypatch.setattr(cpu_probe, "DIGEST", "0")
        assert cpu_probe.main([str(core)]) == 1
        assert cpu_probe.main(["8191"]) == 75
    finally:
        os.sched_setaffinity(0, before)
    expected = [
        f"core {core} computes wrong floating-point numbers",
        f"core {core} computes a wrong SHA-256",
        "core 8191 cannot be used: Invalid argument",
    ]
    assert capsys.readouterr().out.splitlines() == expected


def test_a_probe_can_be_run_from_inside_a_loop(tmp_path: Path) -> None:
    """A caller that is not a coroutine gets its answer whether a loop runs around it or not."""
    well = device(tmp_path, *python("pass"))

    async def main() -> Probe:
        return run_apart(probe_device(well))

    expected = Verdict.GOOD
    assert asyncio.run(main()).verdict is expected
    assert run_apart(probe_device(well)).verdict is expected


def test_gpus_are_listed_by_another_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What NVML states arrives as plain values; what it does not know is left out."""
    (tmp_path / "pynvml.py").write_text(f"NAME = 'H200'\n{FAKE_NVML}", encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    found = asyncio.run(list_gpus())
    expected = ("GPU-5d1c", "H200", (9, 0), 0)
    assert found.failure == ""
    (gpu,) = found.gpus
    assert (gpu.uuid, gpu.product, gpu.capability, gpu.memory_bytes) == expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("H200", (Verdict.FAILED, "NVML cannot ask it: GPU is lost")),
        ("broken", (Verdict.FAILED, "NVML cannot be used: Driver/library version mismatch")),
        ("absent", (Verdict.UNKNOWN, "NVML cannot be used: NVML Shared Library Not Found")),
    ],
)
def test_a_gpu_is_probed_through_nvml(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, expected: tuple[Verdict, str]
) -> None:
    """A lost GPU and a broken driver are failures; a library that is not there says nothing."""
    (tmp_path / "pynvml.py").write_text(f"NAME = {name!r}\n{FAKE_NVML}", encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    probe = (sys.executable, "-P", "-m", "tileyard.devices.nvml", "probe", "GPU-5d1c")
    assert ask(device(tmp_path, *probe)) == expected


@pytest.mark.parametrize(
    ("library", "message"),
    [
        (f"NAME = 'broken'\n{FAKE_NVML}", "NVML cannot be used: Driver/library version mismatch"),
        ("raise ImportError", "nvidia-ml-py is not installed"),
    ],
)
def test_why_gpus_cannot_be_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, library: str, message: str
) -> None:
    """A driver that does not work and a library that is missing are told apart."""
    (tmp_path / "pynvml.py").write_text(library, encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    expected = message
    assert expected in asyncio.run(list_gpus()).failure


def test_a_library_that_hangs_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A driver that never answers costs its limit and no more."""
    (tmp_path / "pynvml.py").write_text("import time\ntime.sleep(3600)", encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    expected = "NVML did not answer within 0.5 s"
    assert asyncio.run(list_gpus(0.5)).failure == expected
