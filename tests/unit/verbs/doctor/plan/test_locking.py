"""The lock directory, and whether two sides see the same one."""

import os
import shutil
from pathlib import Path

import msgspec
import pytest

from tileyard.base.errors import UsageError
from tileyard.base.settings import Settings
from tileyard.devices.base import read_boot_id
from tileyard.devices.locks import prepare_directory
from tileyard.verbs.doctor.plan import checks
from tileyard.verbs.doctor.plan.checks import check_lock_directory
from tileyard.verbs.doctor.plan.findings import Finding, Level
from tileyard.verbs.doctor.plan.tokens import compare_token, parse_token, write_token

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs a second user")


def compare(settings: Settings, text: str, boot: str = "") -> list[Finding]:
    """What a side with these settings says of a token."""
    return list(compare_token(settings, parse_token(text), boot or read_boot_id()))


def test_a_shared_directory_is_well(settings: Settings) -> None:
    """It says who can write there."""
    prepare_directory(settings.lock_dir)
    (finding,) = check_lock_directory(settings)
    expected = Level.OK
    assert finding.level is expected
    assert finding.message.endswith(", for all users")


def test_a_private_directory_says_so(settings: Settings) -> None:
    """Its owner shares devices with nobody else."""
    settings.lock_dir.mkdir(mode=0o700)
    (finding,) = check_lock_directory(settings)
    expected = " alone"
    assert finding.level is Level.OK  # it was named, and so is wanted
    assert finding.message.endswith(expected)


def test_a_directory_that_anyone_can_rearrange_fails(settings: Settings) -> None:
    """The error is the one that a lease would have met."""
    settings.lock_dir.mkdir()
    settings.lock_dir.chmod(0o777)
    with pytest.raises(UsageError, match="not sticky"):
        list(check_lock_directory(settings))


def test_a_network_file_system_fails(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other hosts would take this host's devices for theirs."""
    monkeypatch.setattr(checks, "find_filesystem", lambda _: "nfs4")
    with pytest.raises(UsageError, match=r"network file system \(nfs4\)"):
        list(check_lock_directory(settings))


def test_a_directory_that_is_not_there(settings: Settings) -> None:
    """Where it can be made it will be, by whoever comes first; elsewhere that is a failure."""
    (missing,) = check_lock_directory(settings)
    expected = Level.OK if os.geteuid() == 0 else Level.WARN
    assert missing.level is expected
    far = msgspec.structs.replace(settings, lock_dir=settings.lock_dir / "a" / "b")
    (impossible,) = check_lock_directory(far)
    assert impossible.level is Level.FAIL
    assert not settings.lock_dir.exists()


@as_root
def test_an_owner_who_is_not_root_is_named(settings: Settings) -> None:
    """The finding is what a lease would have met, with the line that mends it."""
    prepare_directory(settings.lock_dir)
    os.chown(settings.lock_dir / "leases", 1001, 1001)
    with pytest.raises(
        UsageError, match=r"/leases \(uid 1001\): .*belongs to another user"
    ) as caught:
        list(check_lock_directory(settings))
    expected = f"run sudo env TILEYARD_LOCK_DIR={settings.lock_dir} "
    assert caught.value.hint.startswith(expected)
    assert " devices --install, or " in caught.value.hint


@as_root
def test_the_usual_directory_for_one_user_is_a_warning(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others cannot lease on this host until root has made one for all."""
    prepare_directory(settings.lock_dir)
    monkeypatch.setattr(checks, "LOCK_DIR", settings.lock_dir)
    monkeypatch.setattr(checks, "is_for_all", lambda _: False)
    (finding,) = check_lock_directory(settings)
    expected = Level.WARN
    assert finding.level is expected
    assert finding.todo.endswith("devices --install")


def test_two_sides_of_one_directory_agree(settings: Settings, tmp_path: Path) -> None:
    """The same directory under another name, as in a container, is the same."""
    token = write_token(settings).format()
    (tmp_path / "mounted").symlink_to(settings.lock_dir)
    there = msgspec.structs.replace(settings, lock_dir=tmp_path / "mounted")
    expected = [Level.OK]
    assert [finding.level for finding in compare(there, token)] == expected


def test_two_directories_are_told_apart(settings: Settings, tmp_path: Path) -> None:
    """One without the token, and a copy with it, are not the other side's."""
    token = write_token(settings).format()
    other = msgspec.structs.replace(settings, lock_dir=tmp_path / "other")
    (missing,) = compare(other, token)
    shutil.copytree(settings.lock_dir, other.lock_dir)
    (copied,) = compare(other, token)
    expected = (Level.FAIL, Level.FAIL)
    assert (missing.level, copied.level) == expected
    assert "does not find" in missing.message
    assert "another directory" in copied.message


def test_two_kernels_share_no_locks(settings: Settings) -> None:
    """A directory that a virtual machine mounts holds files, and none of the kernel's locks."""
    token = write_token(settings).format()
    (finding,) = compare(settings, token, boot="another-boot")
    expected = Level.FAIL
    assert finding.level is expected
    assert "another kernel" in finding.message


def test_users_that_differ_are_a_warning(settings: Settings) -> None:
    """Where one side's user is another one on this side, names mean nothing."""
    token = write_token(settings)
    mapped = msgspec.structs.replace(token, uid=token.uid + 100_000)
    findings = compare(settings, mapped.format())
    expected = [Level.OK, Level.WARN]
    assert [finding.level for finding in findings] == expected


def test_a_token_is_used_up_by_the_next(settings: Settings) -> None:
    """Old ones do not pile up, and the message says what to do with one that is old."""
    first = write_token(settings).format()
    write_token(settings)
    (finding,) = compare(settings, first)
    expected = "write a new token"
    assert expected in finding.todo
    assert len(list(settings.lock_dir.glob("requests/token-*"))) == 1


@pytest.mark.parametrize("text", ["read", "", "a.b.c.d.e", "../x.b.1.1.0", "a.b.1.1"])
def test_what_is_no_token_is_refused(text: str) -> None:
    """Only words that were printed by the other side are taken."""
    with pytest.raises(UsageError, match="is not a token"):
        parse_token(text)
