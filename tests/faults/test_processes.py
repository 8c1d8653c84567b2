"""Workers that crash, hang, eat memory, hide or lose their engine: nothing of them is ever left.

Real processes throughout; waiting is on the processes themselves, with a deadline that only a
failure reaches.
"""

import asyncio
import gc
import json
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from tests.endings import has_ended

from tileyard.base.errors import SickDeviceError, WorkerLostError, WorkerStartError
from tileyard.base.events import Note
from tileyard.base.model import Device, Outcome
from tileyard.processes.keeper.quarantine import lift_quarantine
from tileyard.processes.records import judge_end
from tileyard.processes.supervise import Ended, KeeperLink, LeaseRequest, Worker, WorkerCommand

HERE = Path(__file__).parent
DEADLINE_S = 30.0

pytestmark = pytest.mark.slow


def gone(*pids: int) -> bool:
    """Wait until all of these processes have ended."""
    return all(has_ended(pid, DEADLINE_S) for pid in pids)


def open_files() -> set[str]:
    """This process's descriptors, with what they lead to."""
    paths = Path("/proc/self/fd").iterdir()
    return {f"{path.name} {path.readlink()}" for path in paths if path.is_symlink()}


def command(tmp_path: Path, **changes: object) -> WorkerCommand:
    """The obedient worker."""
    fields: dict[str, object] = {
        "argv": (sys.executable, str(HERE / "process_worker.py")),
        "env": dict(os.environ),
        "cwd": str(tmp_path),
        "log": str(tmp_path / "worker.log"),
        **changes,
    }
    return WorkerCommand(**fields)  # type: ignore[arg-type]


async def ask(worker: Worker, text: str) -> str:
    """One request and its answer."""
    await worker.send(Note(text=text))
    return (await worker.receive(Note)).text


def run(main: Callable[[], Awaitable[None]]) -> None:
    """Run a test's coroutine and see that it leaves no task, descriptor or child behind."""

    async def guarded() -> None:
        gc.collect()  # what earlier tests have left is not this one's
        files, children = open_files(), psutil.Process().children()
        async with asyncio.timeout(DEADLINE_S):
            await main()
        assert len(asyncio.all_tasks()) == 1
        assert open_files() == files
        assert set(psutil.Process().children()) <= set(children)

    asyncio.run(guarded())


def lock_file(tmp_path: Path, name: str = "cpu-0.lock") -> str:
    """A lock in a directory of this test's own."""
    (tmp_path / "locks").mkdir(exist_ok=True)
    return str(tmp_path / "locks" / name)


def wish(*locks: str) -> LeaseRequest:
    """A request for one device with these locks."""
    return LeaseRequest(choices=(Device(name="cpu:0", kind="cpu", identity="", locks=locks),))


@contextmanager
def an_engine(tmp_path: Path, lock: str, mode: str = "") -> Iterator[tuple[int, dict[str, int]]]:
    """A real engine process with a worker that has started a daemon: its pid, and who is there."""
    argv = [sys.executable, str(HERE / "process_engine.py"), lock, str(tmp_path / "log"), mode]
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as engine:
        assert engine.stdout is not None
        facts = json.loads(engine.stdout.readline())
        facts["keeper"] = psutil.Process(facts["worker"]).ppid()
        try:
            yield engine.pid, facts
        finally:
            engine.kill()
            if facts["copy"]:
                os.kill(facts["copy"], signal.SIGKILL)


# ---- ordinary life --------------------------------------------------------------------------


def test_worker_answers_and_ends(tmp_path: Path) -> None:
    """A worker echoes what it is sent, and is confirmed gone after its block."""

    async def main() -> None:
        async with await Worker.start(command(tmp_path)) as worker:
            expected = "hello " * 50_000
            sending = asyncio.create_task(worker.send(Note(text="echo " + expected)))
            assert (await worker.receive(Note)).text == expected
            await sending
        ended = await worker.ended()
        assert ended.confirmed
        assert ended.signal == signal.SIGTERM
        assert gone(worker.pid)

    run(main)


def test_worker_gets_what_its_command_says(tmp_path: Path) -> None:
    """Session, folder, cores, environment, lease and descriptors are the ones asked for."""
    core = min(os.sched_getaffinity(0))
    wanted = command(
        tmp_path,
        cores=(core,),
        env={"PATH": os.environ["PATH"], "COLOUR": "blue"},
        lease=wish(lock_file(tmp_path)),
    )

    async def main() -> None:
        async with await Worker.start(wanted) as worker:
            expected = repr((worker.pid, str(tmp_path), "500\n"))
            assert await ask(worker, "session") == expected
            assert await ask(worker, "cores") == repr([core])
            assert await ask(worker, "variable COLOUR") == "blue"
            assert await ask(worker, "variable HOME") == "unset"
            assert await ask(worker, "variable TILEYARD_LEASE") == str(worker.lease)
            assert worker.lease > 0

    run(main)


def test_workers_signals_are_the_default_ones(tmp_path: Path) -> None:
    """What the keeper blocks, and Python ignores, does not reach a wrapped command."""
    wanted = command(tmp_path, argv=("grep", "-E", "^Sig(Blk|Ign)", "/proc/self/status"))

    async def main() -> None:
        async with await Worker.start(wanted) as worker:
            text = (await worker.ended()).log_tail
        blocked, ignored = (int(line.split()[1], 16) for line in text.splitlines())
        assert blocked == 0
        assert not ignored & (1 << (signal.SIGPIPE - 1))

    run(main)


def test_workers_started_together_share_no_pipe(tmp_path: Path) -> None:
    """Each has stdio and two pipe ends; closing one's channel ends that one while others live."""

    async def main() -> None:
        starts = (Worker.start(command(tmp_path)) for _ in range(3))
        first, second, third = await asyncio.gather(*starts)
        async with first, second, third:
            for worker in (first, second, third):
                assert len(json.loads(await ask(worker, "files"))) == 5
            first._channel.close()
            ended = await first.ended()
            assert ended.code == 5
            assert await ask(second, "echo there") == "there"

    run(main)


def test_a_program_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    """The error names the program and why."""

    async def main() -> None:
        with pytest.raises(WorkerStartError, match=r"/no/such.*No such file"):
            await Worker.start(command(tmp_path, argv=("/no/such",)))
        with pytest.raises(WorkerStartError, match=r"working directory.*/no/such"):
            await Worker.start(command(tmp_path, cwd="/no/such"))
        with pytest.raises(WorkerStartError, match=r"cores are not available: 1023"):
            await Worker.start(command(tmp_path, cores=(1023,)))
        with pytest.raises(WorkerStartError, match=r"lock directory cannot be used: /no/such/"):
            await Worker.start(command(tmp_path, lease=wish("/no/such/cpu-0.lock")))

    run(main)


def test_a_log_that_cannot_be_written_decides_about_itself(tmp_path: Path) -> None:
    """The worker runs."""

    async def main() -> None:
        async with await Worker.start(command(tmp_path, log="/dev/null/log")) as worker:
            assert worker.pid

    run(main)


# ---- abnormal ends --------------------------------------------------------------------------


async def provoke(worker: Worker, text: str) -> Ended:
    """Ask for something that the worker does not survive; its end is known with the error."""
    with pytest.raises(WorkerLostError):
        await ask(worker, text)
    assert worker._keeper.ended.done()
    return await worker.ended()


def test_a_segmentation_fault_is_told_by_its_signal(tmp_path: Path) -> None:
    """A real invalid access is a crash with SIGSEGV."""

    async def main() -> None:
        async with await Worker.start(command(tmp_path)) as worker:
            verdict = judge_end(await provoke(worker, "crash"))
        expected = (Outcome.CRASHED, "died of SIGSEGV (Segmentation fault)")
        assert (verdict.outcome, verdict.message) == expected

    run(main)


def test_an_exit_without_an_answer_is_told_by_its_code(tmp_path: Path) -> None:
    """A worker that just exits is a crash with its code."""

    async def main() -> None:
        async with await Worker.start(command(tmp_path)) as worker:
            ended = await provoke(worker, "exit 3")
        assert (ended.code, ended.signal, ended.reason) == (3, None, "")
        assert judge_end(ended).outcome is Outcome.CRASHED

    run(main)


def test_memory_beyond_the_limit_is_out_of_memory(tmp_path: Path) -> None:
    """Within the limit all is well; beyond it the outcome names the limit."""

    async def main() -> None:
        limited = command(tmp_path, memory_bytes=512 << 20)
        async with await Worker.start(limited) as worker:
            assert await ask(worker, f"allocate {64 << 20}") == str(64 << 20)
            verdict = judge_end(await provoke(worker, f"allocate {1 << 30}"))
        assert verdict.outcome is Outcome.OUT_OF_MEMORY
        assert "limit of 0.5 GiB" in verdict.message

    run(main)


def test_a_hung_worker_is_killed_with_its_whole_tree(tmp_path: Path) -> None:
    """An endless loop that ignores TERM, with a daemon beside it, ends as a timeout."""

    async def main() -> None:
        async with await Worker.start(command(tmp_path)) as worker:
            daemon = int(await ask(worker, "daemon"))
            await worker.send(Note(text="hang"))
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.1):
                    await worker.receive(Note)
            ended = await worker.kill("time limit", 0.1)
        assert ended.confirmed
        assert ended.signal == signal.SIGKILL
        assert judge_end(ended, limit="run limit of 0.1 s").outcome is Outcome.TIMEOUT
        assert not psutil.pid_exists(worker.pid)
        assert not psutil.pid_exists(daemon)

    run(main)


def test_a_worker_that_exits_leaves_no_daemon(tmp_path: Path) -> None:
    """What a worker left behind is gone before its end is reported, and its code is kept."""

    async def main() -> None:
        async with await Worker.start(command(tmp_path)) as worker:
            daemon = int(await ask(worker, "daemon"))
            ended = await provoke(worker, "exit 0")
        assert (ended.code, ended.confirmed, ended.survivors) == (0, True, ())
        assert not psutil.pid_exists(daemon)

    run(main)


def test_a_worker_that_goes_mute_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that closes its channel and lives on cannot keep the engine waiting."""
    monkeypatch.setattr("tileyard.processes.supervise.MUTE_LIMIT_S", 0.05)

    async def main() -> None:
        async with await Worker.start(command(tmp_path)) as worker:
            ended = await provoke(worker, "leave_channel")
        assert ended.reason == "it closed its channel and went on"

    run(main)


def test_killing_twice_is_killing_once(tmp_path: Path) -> None:
    """Kills at the same time and after the end give the same answer, with the first reason."""

    async def main() -> None:
        async with await Worker.start(command(tmp_path)) as worker:
            both = await asyncio.gather(worker.kill("first", 10.0), worker.kill("second", 0.0))
            assert both[0] == both[1] == await worker.kill("third")
            assert both[0].reason == "first"

    run(main)


def test_a_worker_that_ends_at_once_leaves_nothing_open(tmp_path: Path) -> None:
    """However start and end fall together, no descriptor is open once the end is answered."""

    async def main() -> None:
        files = open_files()
        for _ in range(20):
            worker = await Worker.start(command(tmp_path, argv=("true",)))
            ended = await worker.ended()
            assert open_files() == files
            assert (ended.code, ended.confirmed) == (0, True)

    run(main)


def test_a_kill_that_comes_too_late_has_no_reason(tmp_path: Path) -> None:
    """A worker that ended by itself keeps its code, even if it is killed before that is known."""

    async def main() -> None:
        async with await Worker.start(command(tmp_path, grace_s=DEADLINE_S)) as worker:
            await ask(worker, "daemon")  # it keeps the keeper busy for the whole grace
            await worker.send(Note(text="exit 3"))
            assert gone(worker.pid)
            ended = await worker.kill("time limit", 0.0)
        assert (ended.code, ended.reason, ended.confirmed) == (3, "", True)

    run(main)


def test_signals_to_the_keeper_end_the_tree(tmp_path: Path) -> None:
    """Whoever sends TERM to a keeper gets an orderly end of everything below it."""

    async def main() -> None:
        async with await Worker.start(command(tmp_path)) as worker:
            daemon = int(await ask(worker, "daemon"))
            psutil.Process(worker.pid).parent().terminate()  # type: ignore[union-attr]
            ended = await worker.ended()
        assert ended.confirmed
        assert not psutil.pid_exists(daemon)

    run(main)


def test_a_lost_keeper_is_no_confirmed_end(tmp_path: Path) -> None:
    """If the keeper itself is killed, worker and daemon die all the same, but nothing is promised."""

    async def main() -> None:
        async with await Worker.start(command(tmp_path)) as worker:
            daemon = int(await ask(worker, "daemon"))
            psutil.Process(worker.pid).parent().kill()  # type: ignore[union-attr]
            ended = await worker.ended()
        assert not ended.confirmed
        assert judge_end(ended).outcome is Outcome.INFRA_ERROR
        assert gone(worker.pid, daemon)

    run(main)


def test_survivors_are_reported_and_their_keeper_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tree that is not gone in time is no confirmed end, and puts its device in quarantine."""
    monkeypatch.setattr("tileyard.processes.supervise.CONFIRM_S", -1.0)
    lock = lock_file(tmp_path)
    wanted = command(tmp_path, lease=wish(lock))

    async def main() -> None:
        async with await Worker.start(wanted) as worker:
            keeper = worker._keeper._process
            ended = await worker.kill("time limit", 0.0)
        assert not ended.confirmed
        assert worker.pid in ended.survivors
        assert str(worker.pid) in judge_end(ended).message
        keeper.wait(DEADLINE_S)
        with pytest.raises(SickDeviceError, match=f"not gone: {worker.pid}"):
            await Worker.start(wanted)
        lift_quarantine((lock,))
        async with await Worker.start(wanted) as heir:
            assert heir.lease > worker.lease

    run(main)


def test_a_stopped_keeper_goes_on_to_end_its_tree(tmp_path: Path) -> None:
    """The end is confirmed as ever."""

    async def main() -> None:
        async with await Worker.start(command(tmp_path)) as worker:
            keeper = psutil.Process(worker.pid).parent()
            assert keeper is not None
            keeper.suspend()
            ended = await worker.kill("time limit", 0.0)
        assert ended.confirmed
        assert gone(worker.pid)

    run(main)


def test_a_silent_keeper_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A keeper that does not answer cannot hold up a kill."""
    monkeypatch.setattr("tileyard.processes.supervise.KeeperLink.go_on", lambda _: None)
    monkeypatch.setattr("tileyard.processes.supervise.CONFIRM_S", 0.0)
    monkeypatch.setattr("tileyard.processes.supervise.KEEPER_MARGIN_S", 0.05)

    async def main() -> None:
        async with await Worker.start(command(tmp_path)) as worker:
            keeper = psutil.Process(worker.pid).parent()
            assert keeper is not None
            keeper.suspend()
            ended = await worker.kill("time limit", 0.0)
        assert not ended.confirmed
        assert gone(worker.pid)

    run(main)


# ---- the engine's own end -------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["", "fork"])
def test_a_killed_engine_leaves_nothing(tmp_path: Path, mode: str) -> None:
    """SIGKILL to the engine ends worker and daemon, even while a fork holds copies of its pipes."""
    with an_engine(tmp_path, lock_file(tmp_path), mode) as (engine, there):
        os.kill(engine, signal.SIGKILL)
        assert gone(there["worker"], there["daemon"], there["keeper"])


def test_the_end_of_the_control_pipe_is_enough(tmp_path: Path) -> None:
    """A keeper ends its tree when the engine's end of the pipe closes, before the engine dies."""

    async def main() -> None:
        async with await Worker.start(command(tmp_path)) as worker:
            worker._keeper._process.stdin.close()  # type: ignore[union-attr]
            ended = await worker.ended()
        assert ended.confirmed
        assert ended.signal == signal.SIGTERM

    run(main)


def test_the_lock_of_a_killed_engine_is_granted_with_a_higher_number(tmp_path: Path) -> None:
    """While the engine lives its lock is refused; killed, it is granted once the tree is gone."""
    lock = lock_file(tmp_path)
    wanted = command(tmp_path, lease=wish(lock))

    async def main(engine: int, there: dict[str, int]) -> None:
        with pytest.raises(TimeoutError):
            await Worker.start(wanted, lock_limit_s=0.2)
        waiting = asyncio.create_task(Worker.start(wanted))
        await asyncio.sleep(0)
        os.kill(engine, signal.SIGKILL)
        async with await waiting as worker:
            assert has_ended(there["worker"])
            assert has_ended(there["daemon"])
            assert worker.lease > there["lease"]

    with an_engine(tmp_path, lock) as (engine, there):
        asyncio.run(main(engine, there))


def test_the_next_holder_ends_what_a_killed_keeper_left(tmp_path: Path) -> None:
    """A daemon whose keeper and engine were both killed is gone before the lock is used again."""
    lock = lock_file(tmp_path)

    async def main(daemon: int) -> None:
        async with await Worker.start(command(tmp_path, lease=wish(lock))) as worker:
            assert has_ended(daemon)
            assert worker.lease > there["lease"]

    with an_engine(tmp_path, lock) as (engine, there):
        os.kill(engine, signal.SIGSTOP)  # so that only the lock file knows of the daemon
        os.kill(there["keeper"], signal.SIGKILL)
        assert gone(there["worker"])
        os.kill(engine, signal.SIGKILL)
        assert not has_ended(there["daemon"])
        asyncio.run(main(there["daemon"]))


# ---- locks ----------------------------------------------------------------------------------


def test_lease_numbers_grow_over_all_locks(tmp_path: Path) -> None:
    """Every lease has a number above all earlier ones of any core in it."""
    one, two = lock_file(tmp_path, "cpu-0.lock"), lock_file(tmp_path, "cpu-1.lock")

    async def lease(*locks: str) -> int:
        async with await Worker.start(
            command(tmp_path, argv=("cat",), lease=wish(*locks))
        ) as worker:
            return worker.lease

    async def main() -> None:
        got = [await lease(one), await lease(two), await lease(two)]
        got += [await lease(one, two), await lease(one)]
        expected = sorted(set(got))
        assert got == expected
        assert len(got) == 5
        found.extend(got)

    found: list[int] = []
    run(main)
    # a lease that was given back properly says so: nobody has to look for its tree
    records = list((tmp_path / "locks" / "leases").iterdir())
    expected = [f"cpu-0.{found[4]}", f"cpu-1.{found[3]}"]
    assert sorted(record.name for record in records) == expected
    assert {record.read_text(encoding="ascii").splitlines()[0] for record in records} == {"ended"}


def test_overlapping_sets_exclude_each_other(tmp_path: Path) -> None:
    """Ten workers on two overlapping sets of locks never run at the same time, and all run."""
    locks = [lock_file(tmp_path, f"cpu-{core}.lock") for core in range(3)]
    sets = [(locks[0], locks[1]), (locks[1], locks[2])]
    program = "mkdir busy && rmdir busy"

    async def lease(number: int) -> Ended:
        wanted = command(tmp_path, argv=("sh", "-c", program), lease=wish(*sets[number % 2]))
        async with await Worker.start(wanted) as worker:
            return await worker.ended()

    async def main() -> None:
        ends = await asyncio.gather(*(lease(number) for number in range(10)))
        assert [ended.code for ended in ends] == [0] * 10

    run(main)


def test_a_cancelled_wait_for_a_lock_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A keeper that waits for a lock obeys at once, and takes the lock no more."""
    monkeypatch.setattr(KeeperLink, "give_up", lambda _: pytest.fail("the keeper did not obey"))
    lock = lock_file(tmp_path)
    wanted = command(tmp_path, lease=wish(lock))

    async def main() -> None:
        async with await Worker.start(wanted):
            waiting = asyncio.create_task(Worker.start(wanted))
            await asyncio.sleep(0)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            assert list((tmp_path / "locks" / "requests").iterdir()) == []
        async with await Worker.start(wanted) as worker:
            assert worker.lease > 0

    run(main)
