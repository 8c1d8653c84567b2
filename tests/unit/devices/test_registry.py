"""Devices by name."""

from pathlib import Path

import pytest

from tileyard.devices import registry
from tileyard.devices.registry import cpu_locks, find_devices, format_cores, parse_device
from tileyard.errors import UsageError
from tileyard.settings import Settings


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """A host on which four cores may be used."""
    return Settings(home=tmp_path, lock_dir=tmp_path / "locks", cores=(0, 1, 3, 4))


@pytest.fixture(autouse=True)
def _no_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every core is a physical one, whatever machine this runs on."""
    monkeypatch.setattr(registry, "physical_core", lambda core: core)


@pytest.mark.parametrize("name", ["cpu", "cpu:0"])
def test_the_cpu_is_all_cores(settings: Settings, name: str) -> None:
    """Both names stand for every core of the settings, under one canonical name."""
    device = parse_device(name, settings)
    expected = ("cpu:0", "cpu", (0, 1, 3, 4))
    assert (device.name, device.kind, device.cores) == expected
    assert find_devices(settings) == (device,)


def test_a_declared_set_has_a_canonical_name(settings: Settings) -> None:
    """However the set is written, name, cores and locks are ascending."""
    device = parse_device("cpu:cores=4,0-1,1,3", settings)
    expected_locks = tuple(str(settings.lock_dir / f"cpu-{core}.lock") for core in (0, 1, 3, 4))
    assert (device.name, device.cores) == ("cpu:cores=0-1,3-4", (0, 1, 3, 4))
    assert device.locks == expected_locks


def test_sets_that_overlap_share_a_lock(settings: Settings) -> None:
    """One core in common means one lock in common; none in common, none."""
    one, two, three = (
        set(parse_device(f"cpu:cores={cores}", settings).locks) for cores in ("0-1", "1,3", "4")
    )
    assert len(one & two) == 1
    assert not three & (one | two)


def test_threads_of_one_core_share_a_lock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two hardware threads of a core cannot be leased to two holders."""
    monkeypatch.setattr(registry, "physical_core", lambda core: core % 2)
    expected = ("/locks/cpu-0.lock",)
    assert cpu_locks([0], Path("/locks")) == cpu_locks([2], Path("/locks")) == expected


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("cuda:0", "no device 'cuda:0'"),
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


def test_cores_are_written_as_ranges() -> None:
    """Neighbours are joined, and order does not matter."""
    expected = "0-2,5,7-8"
    assert format_cores([8, 1, 0, 5, 7, 2]) == expected
