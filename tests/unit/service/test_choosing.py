"""Which devices a run uses."""

from pathlib import Path

import pytest

from tileyard.errors import UsageError
from tileyard.service.choosing import choose_devices
from tileyard.settings import Settings


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


def test_each_device_is_used_once(settings: Settings) -> None:
    """However it is spelled, and in the order of the names."""
    names = ("cpu:cores=1", "cpu:cores=0", "cpu:cores=1-1")
    expected = ["cpu:cores=1", "cpu:cores=0"]
    assert [device.name for device in choose_devices(names, "cpu", settings)] == expected


def test_devices_that_exclude_each_other_are_refused(settings: Settings) -> None:
    """Two sets with a core in common could never be held at the same time."""
    expected = "cpu:0 and cpu:cores=1 share a core"
    with pytest.raises(UsageError, match=expected):
        choose_devices(("cpu", "cpu:cores=1"), "cpu", settings)
