"""What one user of a host can do to another through the lock directory, and what nobody can.

One test for each line of docs/design/security.md that is about devices.
"""

import contextlib
import fcntl
import json
import os
import re
import select
import shlex
import signal
import stat
import subprocess
import time
from pathlib import Path

import pytest
from tests.security.conftest import DEADLINE_S, Host, User

from tileyard.base.errors import UsageError
from tileyard.devices.base import name_user
from tileyard.devices.installing import NewRules, install_directory
from tileyard.devices.locks import prepare_directory
from tileyard.processes.keeper.deciding import Choice, Wish
from tileyard.processes.keeper.directory import LockDirectory, next_number
from tileyard.processes.keeper.holding import Holding, LeaseFacts
from tileyard.processes.keeper.report import RefusedError
from tileyard.processes.keeper.ticket import Ticket
from tileyard.processes.keeper.tree import start_of
from tileyard.processes.keeper.turns import name_request

pytestmark = pytest.mark.slow

Users = tuple[User, User]
PART = "device-card-0"
WISH = Wish((Choice("npu:0", (PART,)),))
LAST = 999_999_999_999_998


def wait_for_lease(ticket: Ticket, limit_s: float) -> Holding | None:
    """The lease, with nothing left of earlier holders; None if it did not come in time. Closes the ticket."""
    until_s = time.monotonic() + limit_s
    waiting = select.poll()
    waiting.register(ticket.bell.fd, select.POLLIN)
    try:
        while (holding := ticket.try_take()) is None:
            rest_s = min(ticket.rescan_s, until_s - time.monotonic())
            if rest_s <= 0:
                return None
            waiting.poll(rest_s * 1000)
        while ticket.end_survivors(holding):
            assert time.monotonic() < until_s
            waiting.poll(1)
        return holding
    finally:
        ticket.close()


def take(locks: Path, tree: str = "0123456789abcdef") -> Holding:
    """A lease in this process. The ticket forgets who is above it: here all users are one family."""
    ticket = Ticket(str(locks), WISH, LeaseFacts("test", tree))
    ticket._above = [1]
    holding = wait_for_lease(ticket, DEADLINE_S)
    assert holding is not None
    return holding


def forge(locks: Path, number: int, tree: str, *, is_clean: bool = False) -> int:
    """A record that only looks like a lease's; returns the descriptor on which it lives."""
    directory = LockDirectory(str(locks))
    fd = directory.add_record(PART, number, LeaseFacts("forged", tree).format("npu:0"))
    if is_clean:
        os.pwrite(fd, b"ended", 0)
    return fd


# ---- who makes the directory -------------------------------------------------------------------


def test_nothing_of_a_directory_that_another_user_made_is_touched(host: Host, users: Users) -> None:
    """B makes it first, with a link in it that changes all the time; no file of root's gets another mode."""
    _, b = users
    precious = host.folder / "precious"
    precious.write_text("mine", encoding="ascii")
    precious.chmod(0o600)

    def make() -> None:
        host.locks.mkdir()
        host.locks.chmod(0o7777)
        (host.locks / "link").symlink_to(precious)

    def swap() -> None:
        for name in ("requests", "leases", "quarantine"):
            with contextlib.suppress(OSError):
                (host.locks / name).rename(host.locks / f"{name}-made")
                os.link(host.locks / "link", host.locks / name, follow_symlinks=False)
                (host.locks / name).unlink()

    with b.hold(make, swap):
        for _ in range(1000):
            with pytest.raises(
                UsageError, match=rf"locks .uid {b.uid}.: .* belongs to another user"
            ):
                prepare_directory(host.locks)
        expected = 0o600
        assert stat.S_IMODE(precious.stat().st_mode) == expected


def test_who_comes_first_has_the_directory_alone(host: Host, users: Users) -> None:
    """Without root's help a host works for one user; everyone else gets the line that changes that."""
    a, b = users
    assert host.can_lease(a)
    assert stat.S_IMODE(host.locks.stat().st_mode) == 0o700
    for other in (b, User(0)):
        refused = host.lease(other)
        expected = (69, "")
        assert (refused.returncode, refused.stdout) == expected
        assert refused.stderr.count("\n") == 1
        assert f"{host.locks} (uid {a.uid}): " in refused.stderr
        assert "belongs to another user" in refused.stderr
        assert f"sudo env TILEYARD_LOCK_DIR={host.locks} " in refused.stderr
        assert "devices --install" in refused.stderr


def test_the_old_recipe_is_refused_until_root_installs(host: Host, users: Users) -> None:
    """A sticky directory of root's without folders would belong, in part, to the first who leases."""
    a, b = users
    host.locks.mkdir()
    host.locks.chmod(0o1777)
    refused = host.lease(a)
    assert refused.returncode == 69
    assert "locks/requests: a folder of the lock directory is missing" in refused.stderr
    b.call(lambda: [host.locks.joinpath(name).mkdir() for name in ("requests", "leases")])
    refused = host.lease(a)
    assert "leases" in refused.stderr or "requests" in refused.stderr
    assert "belongs to another user" in refused.stderr
    assert host.install().returncode == 0
    for user in (a, b, User(0)):
        assert host.can_lease(user)


def test_a_place_that_others_can_rearrange_is_refused(host: Host, users: Users) -> None:
    """Who can replace a folder on the way leads two users to two directories."""
    a, b = users
    (host.folder / "run").chmod(0o777)
    assert f"others may write to {host.folder}/run" in host.lease(a).stderr
    os.chown(host.folder / "run", b.uid, b.uid)
    (host.folder / "run").chmod(0o1777)
    assert f"{host.folder}/run belongs to another user" in host.lease(a).stderr
    installed = host.install()
    expected = (2, "")
    assert (installed.returncode, installed.stdout) == expected


# ---- devices --install ------------------------------------------------------------------------


def test_the_line_of_the_doctor_installs_for_all(host: Host, users: Users) -> None:
    """It can be repeated, and has systemd make the directory again at each start."""
    a, b = users
    told = host.run(a, "doctor").stdout
    (line,) = set(re.findall(r"run (sudo .* devices --install)", told))
    words = shlex.split(line)
    assert words[0] == "sudo"
    env = host.environment(User(0))
    del env["TILEYARD_LOCK_DIR"]  # it is in the line
    argv = [*words[1:], "--tmpfiles", str(host.folder / "etc")]
    done = subprocess.run(argv, env=env, cwd=b"/", capture_output=True, text=True, check=True)
    assert f"made {host.locks} for all users" in done.stdout
    expected = f"{host.locks} serves all users already\n"
    assert host.install().stdout == expected
    text = (host.folder / "etc" / "tileyard.conf").read_text(encoding="utf-8")
    assert f"d {host.locks} 0755 root 0 -\n" in text
    assert f"d {host.locks}/leases 1777 root 0 -\n" in text
    for user in (a, b):
        assert host.can_lease(user)


def test_only_root_installs(host: Host, users: Users) -> None:
    """Anyone else gets the line."""
    a, _ = users
    refused = host.run(a, "devices", "--install", "--tmpfiles", str(host.folder / "etc"))
    expected = (2, 1)
    assert (refused.returncode, refused.stderr.count("\n")) == expected
    assert "only root can" in refused.stderr
    assert not host.locks.exists()


def test_a_directory_in_use_is_not_replaced(host: Host, users: Users) -> None:
    """Who holds a device in it would go on holding it while somebody else gets it in the new one."""
    a, b = users
    with host.start(a, "lease", "--devices", "npu:0", "--", "sh", "-c", "echo; read x") as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        refused = host.install()
        expected = (2, 1)
        assert (refused.returncode, refused.stderr.count("\n")) == expected
        assert f"{a.uid} holds or waits for a device in it" in refused.stderr
        holder.communicate("\n", DEADLINE_S)
    assert f"made {host.locks} for all users" in host.install().stdout
    assert host.can_lease(b)
    expected_left = [host.locks]
    assert list(host.locks.parent.iterdir()) == expected_left


@pytest.mark.parametrize("kind", ["file", "link", "folder"])
def test_whatever_b_has_put_there_is_replaced(host: Host, users: Users, kind: str) -> None:
    """A file, a link to something of root's, a folder full of links: only what is B's goes."""
    _, b = users
    precious = host.folder / "precious"
    precious.mkdir()
    (precious / "file").write_text("mine", encoding="ascii")

    def plant() -> None:
        if kind == "file":
            host.locks.touch()
        elif kind == "link":
            host.locks.symlink_to(precious)
        else:
            host.locks.mkdir()
            (host.locks / "leases").symlink_to(precious)
            (host.locks / "requests").mkdir()
            (host.locks / "requests" / "x").symlink_to(precious / "file")

    b.call(plant)
    assert host.install().returncode == 0
    assert host.can_lease(b)
    expected = "mine"
    assert (precious / "file").read_text(encoding="ascii") == expected


# ---- root's settings, and the log -------------------------------------------------------------


def test_root_limits_leases_and_priorities(host: Host, users: Users) -> None:
    """A priority above root's is refused with a line that names the file, a longer lease ended."""
    a, _ = users
    argv = ("--lease-limit", "npu=300ms", "--priority-limit", "0", "--log-days", "3")
    assert "set keep_days=3 priority=0 lease_s:npu=0.3\n" in host.install(*argv).stdout
    assert host.install().stdout == f"{host.locks} serves all users already\n"
    text = (host.folder / "etc" / "tileyard.conf").read_text(encoding="utf-8")
    assert f"d {host.locks}/log 1777 root 0 3d\n" in text
    assert f"f {host.locks}/settings 0644 root 0 - keep_days=3 priority=0 lease_s:npu=0.3\n" in text
    urgent = ("lease", "--devices", "npu:0", "--priority", "1", "--")
    refused = host.run(a, *urgent, "true")
    expected = (2, "", 1)
    assert (refused.returncode, refused.stdout, refused.stderr.count("\n")) == expected
    assert f"higher than root allows: 1 is above 0 in {host.locks}/settings" in refused.stderr
    assert host.run(User(0), *urgent, "true").returncode == 0
    long = host.lease(a, "sleep 60")
    expected_end = (124, 1)
    assert (long.returncode, long.stderr.count("\n")) == expected_end
    assert f"the longest lease that root allows ({host.locks}/settings)" in long.stderr
    assert (
        "root's limits: leases of npu end after 0.3s, priority up to 0\n"
        in host.run(a, "devices").stdout
    )
    host.locks.rename(host.folder / "old")  # as by a restart of the host
    assert "set keep_days=3 priority=0 lease_s:npu=0.3\n" in host.install().stdout
    assert (
        "set keep_days=3 priority=0 lease_s:npu=0\n"
        in host.install("--lease-limit", "npu=0").stdout
    )
    assert host.lease(a, "sleep 0.4").returncode == 0


def test_limits_stay_wherever_the_entry_for_systemd_is(host: Host) -> None:
    """A repeat that sets nothing, or one of them, and writes the entry to another folder keeps the limits in
    force, each once; so does one after the entry was removed or spoiled.
    """
    host.install("--lease-limit", "npu=2h", "--lease-limit", "1h", "--priority-limit", "2")
    entry = host.folder / "etc" / "tileyard.conf"
    settings = host.locks / "settings"
    before, written = settings.read_text(), entry.read_text()
    elsewhere = str(host.folder / "etc2")
    host.install("--tmpfiles", elsewhere)
    assert settings.read_text() == before
    assert (host.folder / "etc2" / "tileyard.conf").read_text() == written
    for spoil in (entry.unlink, lambda: entry.write_text("f x - lease_s=1\n")):
        spoil()
        assert host.install().returncode == 0
        assert (settings.read_text(), entry.read_text()) == (before, written)
    host.install("--lease-limit", "30m", "--tmpfiles", elsewhere)
    assert settings.read_text() == "keep_days=30 priority=2 lease_s=1800 lease_s:npu=7200\n"


def test_nobody_changes_the_log_of_another(host: Host, users: Users) -> None:
    """B sees A's leases, and can neither change nor remove them, nor write any under A's name."""
    a, b = users
    host.install()
    command = "true 'x\033[31m'"
    host.lease(a, command)
    (path,) = host.locks.joinpath("log").iterdir()
    assert path.stat().st_uid == a.uid
    for attempt in (
        path.unlink,
        lambda: path.rename(path.with_name("away")),
        lambda: path.open("ab"),
        lambda: path.parent.rename(host.locks / "old"),
        lambda: host.locks.joinpath("settings").write_bytes(b"lease_s=1"),
    ):
        assert b.call(attempt).startswith("PermissionError"), attempt
    text = path.read_text(encoding="ascii")
    day = path.name.split("-")[0]
    forged, link = f"{day}-235959.00", f"{day}-235959.01"

    def forge() -> None:
        path.with_name(forged).write_text(text.replace(path.name, forged), encoding="ascii")
        path.with_name(link).symlink_to(path)

    b.call(forge)
    host.lease(a, "echo 2")
    host.lease(b, "echo 3")
    shown = host.run(b, "devices", "log", "--json").stdout
    leases = json.loads(shown)["leases"]
    commands = [(one["user"], one["command"].removeprefix("sh -c ")) for one in leases]
    expected = [
        (name_user(a.uid), command),
        (name_user(a.uid), "echo 2"),
        (name_user(b.uid), "echo 3"),
    ]
    assert commands == expected
    assert path.read_text(encoding="ascii").startswith(text)
    assert "\033" not in host.run(b, "devices", "log").stdout


def test_the_log_can_be_where_a_restart_leaves_it(host: Host, users: Users) -> None:
    """As /var/log/tileyard for /run/lock/tileyard, which is in memory; a folder of B's is refused."""
    a, b = users
    log = host.folder / "run" / "log"
    b.call(log.mkdir)
    with pytest.raises(UsageError, match=f"folder of the log {log} belongs to another user"):
        install_directory(host.locks, host.folder / "etc", NewRules(), log)
    log.rmdir()
    done = install_directory(host.locks, host.folder / "etc", NewRules(), log)
    assert f"set keep_days=30 log={log}" in done
    assert host.can_lease(a)
    (path,) = log.iterdir()
    assert path.stat().st_uid == a.uid
    assert not list(host.locks.joinpath("log").iterdir())
    assert '"end": "code"' in host.run(b, "devices", "log", "--json").stdout
    text = (host.folder / "etc" / "tileyard.conf").read_text(encoding="utf-8")
    assert f"d {log} 1777 root 0 30d\n" in text


def test_root_removes_what_is_too_old_in_every_log(host: Host, users: Users) -> None:
    """Also of users who lease no more; and a directory of an earlier version gets a log."""
    a, b = users
    host.install()
    host.locks.joinpath("log").rmdir()
    assert host.can_lease(a)
    assert "devices --install" in json.loads(host.run(a, "devices", "log", "--json").stdout)["note"]
    host.install()
    assert host.can_lease(a)
    assert host.can_lease(b)
    old, new = sorted(host.locks.joinpath("log").iterdir(), key=lambda path: path.stat().st_uid)
    os.utime(old, (0, time.time() - 31 * 86400))
    host.install()
    assert list(host.locks.joinpath("log").iterdir()) == [new]
    host.install("--log-days", "0")
    assert host.can_lease(a)
    assert list(host.locks.joinpath("log").iterdir()) == []


# ---- a lease that is held -----------------------------------------------------------------------


@pytest.mark.parametrize("is_roots", [False, True], ids=["of A", "of root"])
def test_a_lease_cannot_be_taken_away(host: Host, users: Users, *, is_roots: bool) -> None:
    """B can neither remove, rename nor rewrite the record, nor a folder in which it is; B waits."""
    a, b = (User(0), users[1]) if is_roots else users
    host.install()
    with host.start(a, "lease", "--devices", "npu:0", "--", "sh", "-c", "echo; read x") as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        record = host.record
        assert record.stat().st_uid == a.uid
        away = host.locks / "requests" / "away"
        for attempt in (
            record.unlink,
            lambda: record.rename(away),
            lambda: record.open("r+b"),
            lambda: record.chmod(0o666),
            lambda: record.parent.rename(host.locks / "old"),
            lambda: host.locks.joinpath("new").mkdir(),
            lambda: host.locks.rename(host.locks.with_name("old")),
            lambda: (
                record.with_name("forged").touch() or record.with_name("forged").replace(record)
            ),
        ):
            assert b.call(attempt).startswith("PermissionError"), attempt
        late = host.run(b, "lease", "--devices", "npu:0", "--queue-limit", "100ms", "--", "true")
        expected = 75
        assert late.returncode == expected
        holder.communicate("\n", DEADLINE_S)
        assert holder.returncode == 0
    assert host.can_lease(b)


def test_numbers_can_neither_be_set_back_nor_used_up(host: Host, users: Users) -> None:
    """B's file with the last of all numbers ends a device for nobody; removing it sets nothing back."""
    a, b = users
    host.install()
    planted = host.locks / "leases" / f"{PART}.{LAST}"
    first = int(host.lease(b, "echo $TILEYARD_LEASE").stdout)
    b.call(planted.touch)
    second = int(host.lease(a, "echo $TILEYARD_LEASE").stdout)
    b.call(planted.unlink)
    b.call(
        lambda: [path.unlink() for path in planted.parent.glob("*") if path.stat().st_uid == b.uid]
    )
    third = int(host.lease(a, "echo $TILEYARD_LEASE").stdout)
    assert first < second < third < LAST


def test_a_forged_record_kills_nobody_elses_processes(host: Host, users: Users) -> None:
    """B copies the token of A's running tree into a record of its own; A's next lease spares that tree."""
    _, b = users
    host.install()
    token = "fedcba9876543210"
    env = {"TILEYARD_TREE": token, "TILEYARD_PARTS": PART}
    with subprocess.Popen(["sleep", "1000"], env={**os.environ, **env}) as mine:
        try:
            b.call(lambda: os.close(forge(host.locks, next_number(), token)))
            holding = take(host.locks)
            assert [record.uid for record in holding.unclean] == [b.uid]
            holding.release()
            assert mine.poll() is None
        finally:
            mine.kill()


def test_a_forged_end_hides_nothing_that_a_killed_holder_left(host: Host, users: Users) -> None:
    """B states that the device was given back properly; what is left of the tree is ended all the same."""
    _, b = users
    host.install()
    token = "0f1e2d3c4b5a6978"
    env = {**os.environ, "TILEYARD_TREE": token, "TILEYARD_PARTS": PART}
    with subprocess.Popen(["sleep", "1000"], env=env) as left:
        os.close(forge(host.locks, next_number(), token))  # as if its holder had been killed
        b.call(lambda: os.close(forge(host.locks, next_number(), "00", is_clean=True)))
        try:
            take(host.locks).release()
            expected = -signal.SIGKILL
            assert left.poll() == expected
        finally:
            left.kill()


def test_a_record_that_names_a_process_above_is_waited_for(host: Host, users: Users) -> None:
    """B's lease names A's own shell as its holder: A waits for it instead of being refused as nested."""
    _, b = users
    host.install()

    def lie() -> int:
        directory = LockDirectory(str(host.locks))
        facts = LeaseFacts("forged", "00")
        facts.pid, facts.start = os.getppid(), start_of(os.getppid())
        return directory.add_record(PART, next_number(), facts.format("npu:0"))

    with b.hold(lie):
        ticket = Ticket(str(host.locks), WISH, LeaseFacts("test", "01"))
        ticket._above = [os.getpid()]
        expected = None
        assert ticket.try_take() is expected
        ticket.close()


# ---- what B can do ------------------------------------------------------------------------------


def test_a_home_of_another_user_is_one_line(host: Host, users: Users) -> None:
    """B has A's home in the environment, as after su: the lease is refused with a status of its own."""
    _, b = users
    host.install()
    (host.folder / f"home-{b.uid}").mkdir(mode=0o000)
    done = host.run(b, "lease", "--devices", "npu:0", "--", "true")
    assert done.returncode == 2
    assert re.fullmatch(r"tileyard: cannot use .*: Permission denied \(.*\)\n", done.stderr)


def test_turns_go_round_the_users(host: Host, users: Users) -> None:
    """A waits once and B three times, as three jobs, before it: A has the second turn."""
    host.install()
    holding = take(host.locks)

    def wait(job: str) -> Ticket:
        ticket = Ticket(str(host.locks), WISH, LeaseFacts("test", job, job=job))
        ticket._above = [1]
        assert ticket.try_take() is None
        return ticket

    a, b = users
    with contextlib.ExitStack() as waiting:
        for user, job in ((b, "1"), (b, "2"), (b, "3"), (a, "1")):
            waiting.enter_context(user.hold(lambda job=job: wait(job)))  # type: ignore[misc]
        directory = LockDirectory(str(host.locks))
        order = [one.uid for one in directory.list_requests()]
        directory.close()
    holding.release()
    assert order == [b.uid, a.uid, b.uid, b.uid]


def test_who_keeps_the_directory_locked_delays(
    host: Host, users: Users, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lease then takes up to five seconds, here a tenth of one, and is as exclusive as ever."""
    _, b = users
    host.install()
    monkeypatch.setattr("tileyard.processes.keeper.ticket.DECIDE_LIMIT_S", 0.1)
    monkeypatch.setattr("tileyard.processes.keeper.ticket.RESCAN_S", 0.1)

    def lock() -> int:
        fd = os.open(host.locks, os.O_RDONLY)
        fcntl.flock(fd, fcntl.LOCK_EX)
        return fd

    with b.hold(lock):
        holding = take(host.locks)
        late = Ticket(str(host.locks), WISH, LeaseFacts("test", "01"))
        late._above = [1]
        expected = None
        assert wait_for_lease(late, 0.3) is expected
        holding.release()
        take(host.locks).release()


def test_who_holds_or_quarantines_is_named(host: Host, users: Users) -> None:
    """B may keep a device from everyone, by holding or by words; A sees whose doing it is, and may lift."""
    a, b = users
    host.install()
    with host.start(b, "lease", "--devices", "npu:0", "--", "sh", "-c", "echo; read x") as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        shown = host.run(a, "devices", "--json", "--window", "1ms").stdout
        assert '"user": "nobody"' in shown or f'"user": "{b.uid}"' in shown
        holder.communicate("\n", DEADLINE_S)
    assert host.run(b, "devices", "quarantine", "npu:0", "mine now").returncode == 0
    refused = host.lease(a)
    expected = 69
    assert refused.returncode == expected
    assert "mine now" in refused.stderr
    assert host.run(a, "devices", "readmit", "npu:0").returncode == 0
    assert host.can_lease(a)


def test_a_flood_of_requests_and_records_is_waited_out(host: Host, users: Users) -> None:
    """Garbage of B's, and requests whose owner died, hold up nobody once they are seen."""
    a, b = users
    host.install()

    def flood() -> None:
        directory = LockDirectory(str(host.locks))
        for number in range(200):
            os.close(directory.add_request(name_request(1000), WISH, "flood"))
            (host.locks / "leases" / f"{PART}.{number}").write_bytes(b"\xff" * 100)
            (host.locks / "quarantine" / f"other@{number}").touch()

    b.call(flood)
    assert host.can_lease(a)


def test_what_is_waiting_in_a_replaced_directory_is_refused(host: Host, users: Users) -> None:
    """Root may replace a directory by hand; a request in the old one is not granted where nobody looks."""
    _, b = users
    host.install()
    ticket = Ticket(str(host.locks), WISH, LeaseFacts("test", "01"))
    ticket._above = [1]
    with b.hold(lambda: take(host.locks)):
        assert ticket.try_take() is None
        host.locks.rename(host.folder / "old")
        host.install()
    with pytest.raises(RefusedError) as caught:
        ticket.try_take()
    ticket.close()
    expected = "replaced"
    assert caught.value.step == expected
