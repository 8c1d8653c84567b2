"""Tickets in one process: order, numbers, refusals, and what others may have planted."""

import os
import select
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

from tileyard.processes.keeper.deciding import Choice, Wish
from tileyard.processes.keeper.directory import LockDirectory, next_number
from tileyard.processes.keeper.holding import Holding, LeaseFacts
from tileyard.processes.keeper.quarantine import lift_quarantine, put_in_quarantine
from tileyard.processes.keeper.report import RefusedError
from tileyard.processes.keeper.ticket import Ticket
from tileyard.processes.keeper.turns import name_request

A, B = Choice("gpu:0", ("gpu-a",)), Choice("gpu:1", ("gpu-b",))
DEADLINE_S = 20.0


@pytest.fixture
def locks(tmp_path: Path) -> Path:
    """A lock directory."""
    path = tmp_path / "locks"
    path.mkdir(mode=0o700)
    return path


Asker = Callable[..., Ticket]


@pytest.fixture
def ask(locks: Path) -> Iterator[Asker]:
    """Makes tickets, and closes them."""
    made: list[Ticket] = []

    def make(*choices: Choice, count: int = 1, priority: int = 0, tree: str = "") -> Ticket:
        facts = LeaseFacts("test", tree or os.urandom(4).hex())
        made.append(Ticket(str(locks), Wish(choices or (A,), count), facts, priority))
        return made[-1]

    yield make
    for ticket in made:
        ticket.close()


def take(ticket: Ticket) -> Holding:
    """The lease, which must be there at once."""
    holding = ticket.try_take()
    assert holding is not None
    assert ticket.end_survivors(holding) == []
    return holding


def rings(ticket: Ticket) -> bool:
    """Wait for the bell."""
    poll = select.poll()
    poll.register(ticket.bell.fd, select.POLLIN)
    return bool(poll.poll(DEADLINE_S * 1000))


def die_after(step: Callable[[], object]) -> int:
    """Do something in a process of its own, which is then killed; return its pid."""
    child = os.fork()
    if child == 0:
        try:
            step()
        finally:
            os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    return child


def names(folder: Path) -> list[str]:
    """What lies in a folder."""
    return sorted(path.name for path in folder.iterdir())


def test_an_uncontended_lease_leaves_one_record(ask: Asker, locks: Path) -> None:
    """Nobody has to queue for what is free, and numbers grow with every lease."""
    numbers = []
    for _ in range(3):
        holding = take(ask())
        numbers.append(holding.number)
        holding.release()
    assert names(locks / "requests") == []
    expected = sorted(set(numbers))
    assert (numbers, len(numbers)) == (expected, 3)
    assert names(locks / "leases") == [f"gpu-a.{numbers[-1]}"]


def test_first_come_first_served(ask: Asker) -> None:
    """The bell of the next one rings when the lease ends, and nobody overtakes."""
    holding = take(ask())
    first, second = ask(), ask()
    assert first.try_take() is None
    assert second.try_take() is None
    assert (first.find_position(), second.find_position()) == (1, 2)
    first.bell.silence()
    holding.release()
    assert rings(first)
    assert second.try_take() is None
    held = take(first)
    assert rings(second)
    assert second.try_take() is None
    held.release()
    take(second).release()


def test_a_higher_priority_goes_ahead(ask: Asker) -> None:
    """Who asked later but more urgently comes first."""
    holding = take(ask())
    plain, urgent = ask(), ask(priority=2)
    assert plain.try_take() is None
    assert urgent.try_take() is None
    holding.release()
    assert plain.try_take() is None
    take(urgent).release()
    take(plain).release()


def test_a_turn_in_the_future_does_not_count(locks: Path) -> None:
    """The host's clock was set back: the job waits as one that has had no turn, and its next turn counts."""
    directory = LockDirectory(str(locks))
    requests = []
    for job in ("a", "b"):
        requests.append(directory.add_request(name_request(0, job, "gpu"), Wish((A,)), "test"))
        directory.note_turn(job, "gpu")
    (turn,) = (locks / "leases").glob("turn.*.a.gpu")
    tomorrow_ns = time.time_ns() + 24 * 3600 * 10**9
    os.utime(turn, ns=(tomorrow_ns, tomorrow_ns))
    assert [one.job for one in directory.list_requests()] == ["a", "b"]
    directory.note_turn("a", "gpu")
    assert [one.job for one in directory.list_requests()] == ["b", "a"]
    for request in requests:
        os.close(request)
    directory.close()


def test_first_turns_in_a_row_have_an_order(locks: Path) -> None:
    """Also within a tick of the kernel's clock: who had the first of two turns gets the next one."""
    directory = LockDirectory(str(locks))
    names = [name_request(0, job, "gpu") for job in ("b", "a")]
    requests = [directory.add_request(name, Wish((A,)), "test") for name in names]
    directory.note_turn("a", "gpu")
    directory.note_turn("b", "gpu")
    assert [one.job for one in directory.list_requests()] == ["a", "b"]
    for request in requests:
        os.close(request)
    directory.close()


def test_all_or_none(ask: Asker) -> None:
    """Who needs two gets none of them while one is taken, and nobody behind takes the other."""
    holding = take(ask(A))
    both, one = ask(A, B, count=2), ask(B)
    assert both.try_take() is None
    assert one.try_take() is None
    holding.release()
    held = take(both)
    assert [choice.device for choice in held.choices] == ["gpu:0", "gpu:1"]
    held.release()
    take(one).release()


def test_a_ticket_that_leaves_lets_the_next_one_through(ask: Asker) -> None:
    """A request that is given up holds up nobody."""
    holding = take(ask(A))
    both, one = ask(A, B, count=2), ask(B)
    assert both.try_take() is None
    assert one.try_take() is None
    both.close()
    assert rings(one)
    take(one).release()
    holding.release()


def test_the_dead_hold_up_nobody(ask: Asker, locks: Path) -> None:
    """A request whose owner was killed does not count, and is cleaned up."""
    holding = take(ask())

    def wait() -> None:
        ticket = ask()
        ticket._above = [1]  # or it would be a request under this process's own lease
        assert ticket.try_take() is None

    die_after(wait)
    assert len(names(locks / "requests")) == 1
    mine = ask()
    assert mine.try_take() is None
    assert mine.find_position() == 1
    holding.release()
    take(mine).release()
    mine.close()
    assert names(locks / "requests") == []


def test_the_lease_of_a_killed_holder_is_given_on_with_a_higher_number(ask: Asker) -> None:
    """Its end was not a clean one, so the next holder knows whose traces to look for."""
    child = die_after(lambda: take(ask(tree="0123456789abcdef")))
    holding = ask().try_take()
    assert holding is not None
    (record,) = holding.unclean
    expected = (child, "0123456789abcdef")
    assert (record.pid, record.tree) == expected
    assert record.number < holding.number


def test_an_unclean_end_is_remembered_until_somebody_has_cleaned_up(ask: Asker) -> None:
    """A holder that could not confirm it passes the task on, also if its own end is orderly."""
    first = take(ask())
    first.release(is_clean=False)
    second = ask().try_take()
    assert second is not None
    second.release(is_clean=False)
    third = ask().try_take()
    assert third is not None
    earlier = [second.number, first.number]
    assert [record.number for record in third.unclean] == earlier
    third.release()


def test_a_replaced_directory_entry_grants_nothing_twice(ask: Asker, locks: Path) -> None:
    """Whoever removes a lease's record, as only its owner and root can, gives no number out twice."""
    holding = take(ask())
    number = holding.number
    record = locks / "leases" / f"gpu-a.{number}"
    stolen = record.read_bytes()
    (locks / "leases" / f"gpu-a.{number + 1}").write_bytes(stolen)  # a copy, and not locked
    waiting = ask()
    assert waiting.try_take() is None
    record.unlink()
    holding.release()
    assert take(waiting).number > number + 1


def test_planted_files_change_nothing(ask: Asker, locks: Path) -> None:
    """Links, pipes, second names and garbage are neither leases nor requests."""
    first = take(ask())
    first.release()
    (earlier,) = (locks / "leases").iterdir()
    precious = locks.parent / "precious"
    precious.write_text("mine", encoding="ascii")
    for folder in ("leases", "requests"):
        (locks / folder / "gpu-a.5").symlink_to(precious)
        os.mkfifo(locks / folder / "gpu-a.6")
        (locks / folder / "gpu-a.7").write_bytes(b"\xff" * 100_000)
        (locks / folder / "gpu-a.8").mkdir()
        (locks / folder / "gpu-a.\N{SUPERSCRIPT TWO}").touch()
        os.link(earlier, locks / folder / "gpu-a.9")
    (locks / "leases" / f"gpu-a.{10**15 - 1}").touch()  # the last of all numbers
    holding = take(ask())
    assert first.number < holding.number < 10**15 - 1
    assert holding.unclean == []
    waiting = ask()
    assert waiting.try_take() is None
    assert waiting.find_position() == 1
    holding.release()
    assert precious.read_text(encoding="ascii") == "mine"


def test_a_second_name_of_a_request_is_no_second_request(ask: Asker, locks: Path) -> None:
    """A hard link to somebody's request does not make it count twice."""
    holding = take(ask())
    first = ask()
    assert first.try_take() is None
    (name,) = names(locks / "requests")
    os.link(locks / "requests" / name, locks / "requests" / f"9{name}")
    second = ask()
    assert second.try_take() is None
    assert second.find_position() == 2
    holding.release()
    take(first).release()


def test_a_second_name_of_a_lease_is_no_second_lease(ask: Asker, locks: Path) -> None:
    """A hard link to a live record does not make another device busy."""
    holding = take(ask(A))
    (record,) = (locks / "leases").iterdir()
    os.link(record, locks / "leases" / f"gpu-b.{10**15 - 1}")
    assert take(ask(B)).choices[0].device == "gpu:1"
    holding.release()


def test_sick_devices_are_passed_over(ask: Asker, locks: Path) -> None:
    """While another one will do; else the request is refused, and served again after readmission."""
    lock = (str(locks / "gpu-a.lock"),)
    put_in_quarantine(lock, "gpu:0", "it smells")
    assert take(ask(A, B)).choices[0].device == "gpu:1"
    with pytest.raises(RefusedError) as caught:
        ask(A).try_take()
    assert caught.value.step == "sick"
    lift_quarantine(lock)
    take(ask(A)).release()


def test_a_request_under_a_lease_of_the_same_device_is_refused(locks: Path) -> None:
    """Whether its environment says so or its ancestors do; another device may be had."""
    outer = LeaseFacts("outer", "0123456789abcdef")
    ticket = Ticket(str(locks), Wish((A,)), outer)
    take(ticket)
    ticket.close()

    def attempt(outer: tuple[str, ...], *choices: Choice) -> str:
        ticket = Ticket(str(locks), Wish(choices), LeaseFacts("inner", "fedc", outer))
        try:
            held = ticket.try_take()
            return held.choices[0].device if held is not None else "waits"
        except RefusedError as error:
            return error.step
        finally:
            ticket.close()

    assert attempt(("0123456789abcdef",), A) == "nested"
    assert attempt(("0123456789abcdef",), A, B) == "gpu:1"
    assert attempt((), A) == "waits"
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(write_end, attempt((), A).encode())
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(read_end, 100) == b"nested"
    os.close(read_end)
    os.close(write_end)


def test_a_request_that_does_not_take_its_turn_is_passed_over(
    ask: Asker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody has stopped its owner; it keeps its place for when it goes on."""
    monkeypatch.setattr("tileyard.processes.keeper.ticket.RESCAN_S", 0.0)
    monkeypatch.setattr("tileyard.processes.keeper.ticket.PATIENCE_S", 0.0)
    holding = take(ask())
    stopped, behind = ask(), ask()
    assert stopped.try_take() is None
    assert behind.try_take() is None
    holding.release()
    assert behind.try_take() is None  # takes note that it is not taken
    held = take(behind)
    assert stopped.try_take() is None
    held.release()
    take(stopped).release()


def test_who_gives_up_leaves_no_request_behind(ask: Asker, locks: Path) -> None:
    """A ticket that is closed has left the queue."""
    holding = take(ask())
    late = ask()
    assert late.try_take() is None
    late.close()
    assert names(locks / "requests") == []
    holding.release()


def test_who_keeps_the_directory_locked_keeps_nobody_from_deciding(
    ask: Asker, locks: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a while a ticket decides without the lock, and one of the same device still waits."""
    monkeypatch.setattr("tileyard.processes.keeper.ticket.DECIDE_LIMIT_S", 0.0)
    other = LockDirectory(str(locks))
    assert other.try_lock()
    holding = take(ask())
    assert ask().try_take() is None
    holding.release()
    other.unlock()
    other.close()


def test_of_two_who_decide_at_once_none_keeps_what_the_other_sees(
    ask: Asker, locks: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody who has taken the device since the look, lock or not, is seen after taking it."""
    other = LockDirectory(str(locks))
    facts = LeaseFacts("test", "0123").format("gpu:0")
    seen: list[int] = []
    has_rivals = LockDirectory.has_rivals

    def interfere(
        directory: LockDirectory, parts: Iterable[str], number: int, known: dict[str, list[int]]
    ) -> bool:
        if not seen:
            seen.append(other.add_record("gpu-a", 7, facts))
        return has_rivals(directory, parts, number, known)

    monkeypatch.setattr(LockDirectory, "has_rivals", interfere)
    ticket = ask()
    assert ticket.try_take() is None
    assert names(locks / "leases") == ["gpu-a.7"]
    assert ticket.try_take() is None  # it is live
    os.close(seen[0])
    take(ticket).release()
    other.close()


def test_a_directory_that_was_replaced_grants_nothing(ask: Asker, locks: Path) -> None:
    """Others lease in the new one, and would not see it."""
    ticket = ask()
    locks.rename(locks.with_name("old"))
    locks.mkdir(mode=0o700)
    with pytest.raises(RefusedError) as caught:
        ticket.try_take()
    expected = "replaced"
    assert caught.value.step == expected


def test_who_could_not_decide_at_once_is_woken(ask: Asker, locks: Path) -> None:
    """The lock on the directory is waited for without polling."""
    other = LockDirectory(str(locks))
    assert other.try_lock()
    ticket = ask()
    assert ticket.try_take() is None
    other.unlock()
    assert rings(ticket)
    take(ticket).release()
    other.close()


def test_the_directory_is_let_go_of_also_when_it_came_too_late(ask: Asker, locks: Path) -> None:
    """A ticket that waited for its lock, and then has nothing to take, keeps nobody from deciding."""
    holding = take(ask())
    ticket = ask()
    assert ticket.try_take() is None
    other = LockDirectory(str(locks))
    assert other.try_lock()
    holding.release()
    assert ticket.try_take() is None
    record = other.add_record("gpu-a", next_number(), LeaseFacts("test", "0123").format("gpu:0"))
    ticket.bell.silence()
    other.unlock()
    assert rings(ticket)
    assert ticket.try_take() is None
    assert other.try_lock()
    other.close()
    os.close(record)
    assert rings(ticket)
