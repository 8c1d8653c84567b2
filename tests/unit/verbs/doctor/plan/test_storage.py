"""Home and objects."""

from pathlib import Path

import msgspec
import pytest

from tileyard.artifacts.objects import ObjectStore
from tileyard.base.errors import HomeError
from tileyard.base.settings import Settings
from tileyard.store.trials import TrialStore
from tileyard.verbs.doctor.plan import checks
from tileyard.verbs.doctor.plan.checks import check_home, check_objects
from tileyard.verbs.doctor.plan.findings import Level


def test_a_home_that_is_not_there_can_be_made(settings: Settings) -> None:
    """Looking makes nothing."""
    finding = next(check_home(settings))
    expected = Level.OK
    assert finding.level is expected
    assert str(settings.home) in finding.message
    assert not settings.home.exists()


def test_a_store_is_opened(settings: Settings) -> None:
    """A store that is not a database fails; one that is one does not."""
    with TrialStore.open(settings.home):
        pass
    expected = Level.OK
    assert next(check_home(settings)).level is expected
    (settings.home / "store.db").write_bytes(b"no database" * 100)
    with pytest.raises(HomeError):
        next(check_home(settings))


def test_a_file_in_the_way_fails(settings: Settings) -> None:
    """What stands where the home should be is named."""
    settings.home.touch()
    inner = msgspec.structs.replace(settings, home=settings.home / "inner")
    with pytest.raises(HomeError, match=rf"{settings.home} is not a directory"):
        next(check_home(inner))


def test_little_room_is_a_warning(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """It will not do for long."""
    monkeypatch.setattr(checks, "LOW_SPACE_BYTES", 1 << 80)
    expected = Level.WARN
    assert next(check_home(settings)).level is expected


@pytest.mark.parametrize(("is_found", "mode"), [(True, 0o755), (True, 0o700), (False, 0o755)])
def test_a_home_that_others_can_read_is_a_warning(
    settings: Settings, is_found: bool, mode: int
) -> None:
    """Unless it is named: then they are meant to."""
    settings.make_home().chmod(mode)
    found = (settings.home,) if is_found else ()
    findings = list(check_home(msgspec.structs.replace(settings, found=found)))
    todo = [finding.todo for finding in findings if finding.level is Level.WARN]
    expected = f"run chmod -R go= {settings.home}, or name it by TILEYARD_HOME"
    assert todo == ([expected] if is_found and mode == 0o755 else [])


def test_objects_are_read(settings: Settings) -> None:
    """What holds something else than its name promises is named, and left where it is."""
    store = ObjectStore(settings.home / "objects")
    digests = [store.put_bytes(bytes([n])) for n in range(3)]
    sound = next(check_objects(settings))
    assert sound.message.startswith("checked 3 of 3 stored objects in ")
    path = store.path(digests[1])
    path.chmod(0o644)
    path.write_bytes(b"other")
    damaged = next(check_objects(settings))
    expected = (Level.OK, Level.WARN)
    assert (sound.level, damaged.level) == expected
    assert digests[1] in damaged.message
    assert path.read_bytes() == b"other"


def test_no_objects_are_no_fault(settings: Settings, tmp_path: Path) -> None:
    """A new home has none."""
    expected = Level.OK
    assert next(check_objects(settings)).level is expected
    assert not (tmp_path / "home").exists()
