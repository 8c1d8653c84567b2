"""Classes of devices."""

from pathlib import Path

from tileyard.base.model import Device
from tileyard.base.settings import Settings
from tileyard.devices.classes import find_class


def test_a_class_of_which_nothing_is_known_can_be_declared(tmp_path: Path) -> None:
    """None of its devices is found, and none says anything of itself."""
    unknown = find_class("fpga")
    settings = Settings(home=tmp_path, lock_dir=tmp_path, cores=(0,))
    device = Device(name="fpga:0", kind="fpga", identity="x")
    assert unknown.is_declarable
    assert unknown.find(settings).devices == ()
    assert unknown.state(device)() == {}


def test_only_a_gpus_runner_has_all_addresses() -> None:
    """Its driver takes one for each byte of the host and its devices."""
    expected = {"cpu": True, "sim": True, "npu": True, "cuda": False}
    assert {kind: find_class(kind).limits_memory for kind in expected} == expected
