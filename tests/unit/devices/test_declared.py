"""Devices declared in TOML, and what is wrong with a declaration in one line."""

from pathlib import Path

import msgspec
import pytest

from tileyard.base.errors import UsageError
from tileyard.base.settings import Settings
from tileyard.devices.cpu import core_locks
from tileyard.devices.declared import read_devices

NPU = """
[[device]]
name = "npu:3"
id = "00000000:C1:00.0"
identity = "910B, driver 24.1"
env = { ASCEND_RT_VISIBLE_DEVICES = "{index}", NOTE = "{{{name}}} {id}" }
probe = ["npu-smi", "info", "-i", "{index}"]
probe_limit_s = 5
cores = "0-1"
"""


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """A host on which cores 1 and 2 may be used, with all three files in folders of their own."""
    for name in ("etc", "home", "project"):
        (tmp_path / name).mkdir()
    return Settings(
        home=tmp_path / "home",
        lock_dir=tmp_path / "locks",
        cores=(1, 2),
        host_config=tmp_path / "etc",
        project_file=tmp_path / "project" / "tileyard.toml",
    )


def write_host(settings: Settings, text: str) -> None:
    """What the host's administrator declares."""
    (settings.host_config / "devices.toml").write_text(text, encoding="utf-8")


def test_a_declaration_becomes_a_device(settings: Settings) -> None:
    """Templates are filled; the lock is named by the id in one spelling; cores bring their locks."""
    write_host(settings, NPU)
    ((device,), slots) = read_devices(settings)
    expected_locks = (
        str(settings.lock_dir / "device-0000-c1-00.0.lock"),
        *core_locks((0, 1), settings.lock_dir),
    )
    expected_env = {
        "ASCEND_RT_VISIBLE_DEVICES": "3",
        "NOTE": "{npu:3} 00000000:C1:00.0",
    }
    assert (device.name, device.kind, device.identity) == ("npu:3", "npu", "910B, driver 24.1")
    assert device.locks == expected_locks
    assert device.env == expected_env
    assert device.probe == ("npu-smi", "info", "-i", "3")
    assert (device.probe_limit_s, device.cores, slots) == (5.0, (1,), 0)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("cuda:0", {"CUDA_VISIBLE_DEVICES": "u-1"}),
        ("rocm:0", {"ROCR_VISIBLE_DEVICES": "u-1"}),
        ("npu:4", {"ASCEND_RT_VISIBLE_DEVICES": "4"}),
        ("fpga:0", {}),
    ],
)
def test_known_classes_bring_their_variable(
    settings: Settings, name: str, expected: dict[str, str]
) -> None:
    """Where a declaration says nothing of the environment, its class does."""
    write_host(settings, f'[[device]]\nname = "{name}"\nid = "u-1"\n')
    ((device,), _) = read_devices(settings)
    assert device.env == expected


def test_the_nearer_file_wins(settings: Settings) -> None:
    """The project's file over the home's over the host's: name by name, and as a whole."""
    write_host(settings, NPU + '[[device]]\nname = "npu:4"\nid = "b"\n[simulators]\nslots = 8\n')
    (settings.home / "devices.toml").write_text(
        '[[device]]\nname = "npu:4"\nid = "home"\n[simulators]\nslots = 2\n', encoding="utf-8"
    )
    assert settings.project_file is not None
    settings.project_file.write_text('[[device]]\nname = "npu:3"\nid = "p"\n', encoding="utf-8")
    devices, slots = read_devices(settings)
    expected = {"npu:3": ("device-p.lock", ()), "npu:4": ("device-home.lock", ())}
    assert {d.name: (Path(d.locks[0]).name, d.probe) for d in devices} == expected
    assert slots == 2


def test_no_file_declares_nothing(settings: Settings) -> None:
    """None of the files has to be there."""
    expected = ((), 0)
    assert read_devices(settings) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[[device]", "is not valid TOML: .*line 1"),
        ("[[devices]]", "devices: unknown table .write ..device.."),
        ("[sim]\nslots = 1", ":1: sim: unknown table .write .simulators."),
        ("[classes.cuda]\nmask = false", "classes.cuda: .* are not masked by a declaration"),
        ("[device]", "device: must be a list, not a table"),
        ('[[device]]\nid = "x"', "device.0.: misses the key `name`"),
        ('[[device]]\nname = "npu:0"', "device.0.: misses the key `id`"),
        ('[[device]]\nname = "npu:0"\nid = 3', "device.0..id: must be text, not a whole number"),
        ('[[device]]\nname = "npu:0"\nid = ""', "device.0..id: must be text of length >= 1"),
        (
            '[[device]]\nname = "a:0"\nid = "x"\nprob = []',
            ":4: device.0..prob: unknown key .did you mean 'probe'",
        ),
        (
            '[[device]]\nname = "a:0"\nid = "x"\nprobe = "x"',
            ":4: device.0..probe: must be a list, not text",
        ),
        ('[[device]]\nname = "npu"\nid = "x"', "device.0..name: 'npu' is not of the form"),
        ('[[device]]\nname = "npu:0/1"\nid = "x"', "device.0..name: 'npu:0/1' is not of the form"),
        ('[[device]]\nname = "cpu:0"\nid = "x"', "class 'cpu' are not declared"),
        (
            '[[device]]\nname = "a:0"\nid = "x"\nprobe = ["{pci}"]',
            "probe.0.: '{pci}' holds {pci}; known are {id}.*brace",
        ),
        ('[[device]]\nname = "a:0"\nid = "x"\nprobe = ["{id!r}"]', "probe.0.: .* holds {id}"),
        (
            '[[device]]\nname = "a:0"\nid = "x"\nprobe = ["{"]',
            "probe.0.: '{' is not a template.*brace",
        ),
        (
            '[[device]]\nname = "a:0"\nid = "x"\nprobe_limit_s = 0',
            "probe_limit_s: must be a number > 0",
        ),
        ('[[device]]\nname = "a:0"\nid = "x"\nenv = { "A=B" = "1" }', "'A=B' is not the name"),
        ('[[device]]\nname = "a:0"\nid = "x"\nenv = { A = "\\u0000" }', "env.A: a NUL character"),
        (
            '[[device]]\nname = "a:0"\nid = "x"\ncores = "3-1"',
            "device.0..cores has no valid set of cores",
        ),
        ('[[device]]\nname = "a:0"\nid = "x"\n' * 2, "device.1..name: 'a:0' appears twice"),
        ("[simulators]\nslots = -1", "simulators.slots: must be a whole number >= 0"),
        ("[simulators]\nslot = 1", "simulators.slot: unknown key .did you mean .slots"),
    ],
)
def test_what_is_wrong_is_named(settings: Settings, text: str, message: str) -> None:
    """One line says which file, which key, and what it must be."""
    write_host(settings, text)
    with pytest.raises(UsageError, match=message) as raised:
        read_devices(settings)
    expected = f"{settings.host_config}/devices.toml:"
    assert raised.value.message.startswith(expected)
    assert "\n" not in str(raised.value)


def test_a_file_that_cannot_be_read_is_named(settings: Settings) -> None:
    """A folder in its place is an error, not an absence."""
    (settings.home / "devices.toml").mkdir()
    with pytest.raises(UsageError, match=r"devices\.toml: Is a directory"):
        read_devices(settings)


def test_tables_of_queues_may_stand_beside(settings: Settings) -> None:
    """One file can say everything about a host."""
    write_host(settings, '[[queue]]\nname = "lab"\n')
    expected = ((), 0)
    assert read_devices(settings) == expected


def test_a_file_that_others_can_write_names_no_commands(settings: Settings) -> None:
    """Unless a variable names its folder: then it is meant."""
    write_host(settings, NPU)
    path = settings.host_config / "devices.toml"
    path.chmod(0o666)
    assert len(read_devices(settings)[0]) == 1
    found = msgspec.structs.replace(settings, found=(settings.host_config,))
    with pytest.raises(UsageError) as caught:
        read_devices(found)
    assert caught.value.message == f"{path} cannot be trusted: others may write to {path}"
    expected = f"set TILEYARD_HOST_CONFIG to {settings.host_config} if it is to be trusted"
    assert caught.value.hint == expected
