"""The step host: programs run side by side, each ended with all that it started."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec
import pytest
from tests.endings import has_ended

from tileyard.artifacts.objects import ObjectStore
from tileyard.artifacts.trees import Trees
from tileyard.base.errors import WorkerLostError
from tileyard.base.model import (
    WHOLE,
    Batch,
    BuildKey,
    Case,
    Device,
    GoldenKey,
    HotRun,
    KernelWork,
    Limits,
    Outcome,
    OutputCheck,
    Step,
)
from tileyard.engine.hosting import StepHost
from tileyard.workers.command_protocol import (
    CompareOutputs,
    DigestFiles,
    DoStep,
    FilesDigested,
    StepDone,
)
from tileyard.workers.protocol import (
    CaseBegan,
    CaseRan,
    CommandRun,
    Golden,
    Judged,
    RunBatch,
    RunEntry,
)
from tileyard.workers.step_host import GOLDEN

pytestmark = pytest.mark.slow

T = TypeVar("T")


def talk(home: Path, talking: Callable[[StepHost], Awaitable[T]]) -> T:
    """What comes of talking to a host of this home."""

    async def whole() -> T:
        host = StepHost(home, ())
        try:
            return await talking(host)
        finally:
            await host.aclose()

    return asyncio.run(whole())


def step(folder: Path, script: str, limit_s: float = 20.0, **changes: object) -> DoStep:
    """A shell script as a step in ``folder``."""
    plain = DoStep(
        step=Step(argv=("sh", "-c", script)),
        places={"threads": "3"},
        env={},
        cwd=str(folder),
        log=str(folder / "step.log"),
        limit_s=limit_s,
    )
    return msgspec.structs.replace(plain, **changes)


def do(home: Path, request: DoStep) -> StepDone:
    """The answer to one step."""
    reply = talk(home, lambda host: host.ask(request))
    assert isinstance(reply, StepDone)
    return reply


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("exit 0", ""),
        ("echo wrong size >&2; exit 4", "sh ended with exit code 4: wrong size"),
        ("exit 5", "sh ended with exit code 5; no output"),
        ("kill -SEGV $$", "sh was killed by SIGSEGV (Segmentation fault); no output"),
    ],
)
def test_the_end_of_a_step_is_told_in_one_line(script: str, expected: str, tmp_path: Path) -> None:
    """Code or signal, and what it said last, or that it said nothing."""
    done = do(tmp_path, step(tmp_path, script))
    assert done.message.startswith(expected)
    assert bool(done.message) == bool(expected)


def test_a_program_that_is_not_there_is_refused(tmp_path: Path) -> None:
    """The message names it and says why."""
    request = step(tmp_path, "", step=Step(argv=("no-such-program",)))
    done = do(tmp_path, request)
    assert done.message == "no-such-program cannot be started: No such file or directory"


def test_a_step_past_its_limit_is_ended_with_all_it_started(tmp_path: Path) -> None:
    """Neither a deaf child nor one in a session of its own is left."""
    script = "trap '' TERM; setsid sh -c 'echo $$ > child; sleep 600' & while :; do sleep 1; done"
    done = do(tmp_path, step(tmp_path, script, limit_s=2.0))
    assert "ran past its limit of 2 s and was killed" in done.message
    assert has_ended(int((tmp_path / "child").read_text()))


def test_a_daemon_that_a_step_leaves_behind_is_ended(tmp_path: Path) -> None:
    """A step that ends well ends with its whole tree."""
    script = "setsid sh -c 'echo $$ > child; sleep 600' & while [ ! -s child ]; do sleep 0.01; done"
    done = do(tmp_path, step(tmp_path, script))
    assert done.message == ""
    assert has_ended(int((tmp_path / "child").read_text()))


def test_what_a_step_prints_is_in_its_log_and_complaints_are_counted(tmp_path: Path) -> None:
    """Both streams, in full."""
    done = do(tmp_path, step(tmp_path, "echo one; echo two >&2; echo three"))
    expected = {"one", "two", "three"}
    assert set((tmp_path / "step.log").read_text().split()) == expected
    assert done.end is not None
    assert done.end.complaints == 1


def test_steps_run_at_the_same_time(tmp_path: Path) -> None:
    """Each waits for a file that the other one makes."""

    async def both(host: StepHost) -> Sequence[object]:
        wait = "while [ ! -e {} ]; do sleep 0.01; done"
        first = step(tmp_path, f"touch a; {wait.format('b')}", log=str(tmp_path / "1.log"))
        second = step(tmp_path, f"touch b; {wait.format('a')}", log=str(tmp_path / "2.log"))
        return await asyncio.gather(host.ask(first), host.ask(second))

    messages = [reply.message for reply in talk(tmp_path, both)]
    assert messages == ["", ""]


def test_what_a_golden_step_made_is_kept_and_found_again(tmp_path: Path) -> None:
    """The second time nothing is run."""
    script = "date +%N > {out}/golden.txt; echo x >> runs"
    request = step(tmp_path, script, key=GoldenKey("ab" * 20))
    first, second = do(tmp_path, request), do(tmp_path, request)
    assert first.tree == second.tree != ""
    assert (first.end is None, second.end is None) == (False, True)
    assert (tmp_path / "runs").read_text() == "x\n"


def test_a_golden_step_that_several_share_is_run_once(tmp_path: Path) -> None:
    """Who asks while it is being made waits for it."""
    script = "echo x >> runs; sleep 0.2; echo made > {out}/golden.txt"
    request = step(tmp_path, script, key=GoldenKey("ef" * 20))

    async def ask(host: StepHost) -> Sequence[object]:
        return await asyncio.gather(*(host.ask(request) for _ in range(3)))

    trees = {reply.tree for reply in talk(tmp_path, ask) if isinstance(reply, StepDone)}
    assert len(trees) == 1
    assert (tmp_path / "runs").read_text() == "x\n"


def test_a_golden_step_that_fails_keeps_nothing(tmp_path: Path) -> None:
    """It is run again, and may then do well."""
    script = "echo part > {out}/golden.txt; [ -e ok ] || (touch ok; exit 1)"
    request = step(tmp_path, script, key=GoldenKey("cd" * 20))
    first, second = do(tmp_path, request), do(tmp_path, request)
    assert (first.tree, bool(first.message)) == ("", True)
    assert (bool(second.tree), second.message) == (True, "")


KILL_HOST = "kill -9 $(ps -o ppid= $(ps -o ppid= $(ps -o ppid= $$)))"
"""Whose child forks the keeper that is a step's parent."""


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (("sh", "-c", "mkdir -p {out}/empty"), "left {out} empty: what it makes has to lie there"),
        (("sh", "-c", ": 'runpy.run_path(script)'"), "needs run_path(..., run_name='__main__')"),
    ],
)
def test_a_golden_step_that_makes_nothing_fails(
    argv: tuple[str, ...], said: str, tmp_path: Path
) -> None:
    """A case without data would fail only in its check, where nobody sees why; so it says so itself."""
    request = step(tmp_path, "", key=GoldenKey("12" * 20))
    done = do(tmp_path, msgspec.structs.replace(request, step=Step(argv=argv)))
    assert (done.tree, done.end is not None and done.end.ok) == ("", True)
    assert said in done.message


def test_an_empty_golden_result_of_before_is_made_anew(tmp_path: Path) -> None:
    """A store in which an earlier version kept one proves nothing."""
    (tmp_path / "empty").mkdir()
    objects = ObjectStore(tmp_path / "objects")
    key = GoldenKey("12" * 20)
    objects.put_record(GOLDEN, key, Trees(objects).put(tmp_path / "empty").encode())
    done = do(tmp_path, step(tmp_path, "echo made > {out}/golden.txt", key=key))
    assert done.message == ""
    assert (Trees(objects).path(done.tree) / "golden.txt").read_text() == "made\n"


def test_a_host_that_dies_is_replaced_and_asked_again(tmp_path: Path) -> None:
    """The first step kills the host that runs both; each of them is run by the next one."""

    async def ask(host: StepHost) -> list[StepDone]:
        first = f"if ! test -e first; then mkdir first; {KILL_HOST}; sleep 5; fi"
        scripts = (first, "sleep 1; echo x >> second")
        return await asyncio.gather(*(host.ask(step(tmp_path, script)) for script in scripts))

    replies = talk(tmp_path, ask)
    assert [reply.message for reply in replies] == ["", ""]
    assert (tmp_path / "second").read_text() == "x\n"


def test_a_step_over_which_every_host_dies_is_given_up(tmp_path: Path) -> None:
    """It was tried three times."""

    async def ask(host: StepHost) -> None:
        with pytest.raises(WorkerLostError, match="step host died of SIGKILL"):
            await host.ask(step(tmp_path, f"echo x >> tries; {KILL_HOST}; sleep 5"))

    talk(tmp_path, ask)
    assert (tmp_path / "tries").read_text() == "x\nx\nx\n"


def test_a_step_that_kills_its_parent_is_alone_to_blame(tmp_path: Path) -> None:
    """The host goes on, and the step is tried three times, since somebody else may have done it once."""
    reply = do(tmp_path, step(tmp_path, "echo x >> tries; kill -9 $PPID; sleep 5"))
    expected = "sh died with the process that watches it, which it or somebody else has killed"
    assert reply.message.startswith(expected)
    assert (tmp_path / "tries").read_text() == "x\nx\nx\n"


def test_a_log_that_cannot_be_written_decides_about_the_log(tmp_path: Path) -> None:
    """The step runs, and is judged by how it ends."""
    (tmp_path / "file").touch()
    done = do(tmp_path, step(tmp_path, "echo x", log=str(tmp_path / "file" / "step.log")))
    assert done.message == ""


def test_files_are_digested_by_name_and_content(tmp_path: Path) -> None:
    """Other content or mode is another digest, the same tree elsewhere the same; patterns may fit nothing."""

    def digest(folder: Path) -> FilesDigested:
        request = DigestFiles(folder=str(folder), patterns=("src", "*.toml", "none.txt"))
        reply = talk(tmp_path, lambda host: host.ask(request))
        assert isinstance(reply, FilesDigested)
        return reply

    for name in ("one", "two"):
        (tmp_path / name / "src").mkdir(parents=True)
        (tmp_path / name / "src" / "a.c").write_text("int a;")
        (tmp_path / name / "x.toml").write_text("x = 1")
    first, second = digest(tmp_path / "one"), digest(tmp_path / "two")
    (tmp_path / "two" / "src" / "a.c").write_text("int b;")
    changed = digest(tmp_path / "two")
    assert first == second
    assert changed.digest != first.digest


def test_outputs_are_compared_with_the_golden_tree(tmp_path: Path) -> None:
    """What the run did to its own copy of the golden file does not count."""
    work, made = tmp_path / "work", tmp_path / "made"
    for folder in (work, made):
        folder.mkdir()
    (made / "golden.bin").write_bytes(bytes([1, 2]))
    tree = Trees(ObjectStore(tmp_path / "objects")).put(made)
    (work / "golden.bin").write_bytes(bytes([9, 9]))
    (work / "output.bin").write_bytes(bytes([9, 9]))
    check = OutputCheck(file="output.bin", golden="golden.bin", dtype="uint8", shape=(2,))
    request = CompareOutputs(work=str(work), golden=tree, part=WHOLE, checks=(check,))
    reply = talk(tmp_path, lambda host: host.ask(request))
    assert isinstance(reply, Judged)
    assert reply.outcome is Outcome.MISMATCH
    assert "output.bin[0] is 9, expected 1" in reply.message


# ---- cases -------------------------------------------------------------------------------------


def run_cases(
    home: Path, commands: dict[str, CommandRun], run_s: float = 10.0
) -> tuple[list[str], dict[str, CaseRan]]:
    """Run cases as one batch: those that began, in order, and how each ended."""
    cases = tuple(
        Case(id=name, work=KernelWork(kernel="t"), limits=Limits(run_s=run_s)) for name in commands
    )
    entries = tuple(
        RunEntry(
            case=name,
            build=BuildKey("ab" * 20),
            golden=Golden(key=GoldenKey(""), inputs=(), outputs=()),
            specs=(),
            scalars=(),
            log=f"logs/{name}.log",
            command=command,
        )
        for name, command in commands.items()
    )
    request = RunBatch(
        batch=Batch(id="b", cases=cases),
        entries=entries,
        plugins={},
        device=Device(name="slot:7", kind="slot", identity=""),
    )

    async def follow(host: StepHost) -> list[object]:
        return [reply async for reply in host.follow(request)]

    replies = talk(home, follow)
    began = [reply.case for reply in replies if isinstance(reply, CaseBegan)]
    return began, {reply.case: reply for reply in replies if isinstance(reply, CaseRan)}


def command(name: str, script: str, **changes: object) -> CommandRun:
    """A case whose run step is a shell script."""
    run = Step(argv=("sh", "-c", script))
    plain = CommandRun(name=name, run=run, folder=f"work/{name}")
    return msgspec.structs.replace(plain, **changes)


def test_each_case_runs_in_a_folder_of_its_own(tmp_path: Path) -> None:
    """With its own temporary directory, its device and its seed; nothing depends on where we stand."""
    script = 'echo "$PWD $TMPDIR {device} $TILEYARD_SEED" > told'
    commands = {n: command(n, script, env={"TILEYARD_SEED": n}) for n in ("1", "2")}
    _, ended = run_cases(tmp_path, commands)
    told = [(tmp_path / "work" / n / "data" / "told").read_text().split() for n in commands]
    expected = [
        [str(tmp_path / "work" / n / "data"), str(tmp_path / "work" / n / "tmp"), "7", n]
        for n in commands
    ]
    assert told == expected
    assert {reply.outcome for reply in ended.values()} == {Outcome.PASSED}


def test_a_second_attempt_finds_a_fresh_folder(tmp_path: Path) -> None:
    """What the first one left there would decide about it."""
    commands = {"1": command("1", "[ ! -e left ] && touch left")}
    outcomes = [run_cases(tmp_path, commands)[1]["1"].outcome for _ in range(2)]
    assert outcomes == [Outcome.PASSED, Outcome.PASSED]


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("exit 0", Outcome.PASSED),
        ("exit 3", Outcome.RUNTIME_ERROR),
        ("kill -ABRT $$", Outcome.CRASHED),
        ("sleep 600", Outcome.TIMEOUT),
        ("echo MemoryError >&2; exit 1", Outcome.OUT_OF_MEMORY),
        ("echo {golden}", Outcome.RUNTIME_ERROR),
    ],
)
def test_a_case_ends_as_its_program_did(script: str, expected: Outcome, tmp_path: Path) -> None:
    """Each kind of end is an outcome of its own."""
    _, ended = run_cases(tmp_path, {"1": command("1", script)}, run_s=1.5)
    assert ended["1"].outcome is expected


def test_what_others_judge_has_not_passed_yet(tmp_path: Path) -> None:
    """Exit code 0 says that it ran, not that it is right."""
    _, ended = run_cases(tmp_path, {"1": command("1", "exit 0", is_judged=True)})
    assert ended["1"].outcome is Outcome.UNCHECKED


HOT = """
for case in "$@"; do
    echo "begin $case"
    case $case in
        crash) kill -SEGV $$ ;;
        hang) sleep 600 ;;
        quiet) exit 0 ;;
    esac
    [ $case = wrong ] && echo "end $case BAD" || echo "end $case GOOD"
done
"""


def hot(names: Sequence[str]) -> dict[str, CommandRun]:
    """Cases that one process runs."""
    how = HotRun(
        step=Step(argv=("sh", "-c", HOT, "hot", "{cases}")),
        began=r"^begin (?P<case>\w+)$",
        ended=r"^end (?P<case>\w+) (?P<verdict>\w+)$",
        verdicts={"GOOD": Outcome.PASSED, "BAD": Outcome.MISMATCH},
    )
    return {name: command(name, "exit 9", hot=how) for name in names}


def test_a_hot_process_answers_for_each_of_its_cases(tmp_path: Path) -> None:
    """A crash, a hang and a silent end blame one case each; the rest goes on in a fresh process."""
    names = ["a", "crash", "b", "hang", "wrong", "quiet", "c"]
    began, ended = run_cases(tmp_path, hot(names), run_s=1.5)
    expected = {
        "a": Outcome.PASSED,
        "crash": Outcome.CRASHED,
        "b": Outcome.PASSED,
        "hang": Outcome.TIMEOUT,
        "wrong": Outcome.MISMATCH,
        "quiet": Outcome.INFRA_ERROR,
        "c": Outcome.PASSED,
    }
    assert {name: reply.outcome for name, reply in ended.items()} == expected
    assert began == names


def test_a_hot_process_gives_each_case_its_own_log(tmp_path: Path) -> None:
    """What is printed between begin and end of a case is in that case's log and in no other."""
    run_cases(tmp_path, hot(["a", "b"]))
    logs = [(tmp_path / "logs" / f"{name}.log").read_text() for name in ("a", "b")]
    for name, log in zip(("a", "b"), logs, strict=True):
        heading, _, rest = log.partition(f"\n==== in {tmp_path}/work/a/data\n")
        assert heading.startswith("==== run: sh -c ")
        assert heading.endswith("hot a b")
        assert rest == f"begin {name}\nend {name} GOOD\n"


GAPS = """
case "$*" in
    late*) sleep 600 ;;
esac
for case in "$@"; do
    [ $case = start ] && kill -SEGV $$
    echo "begin $case"
    echo "end $case GOOD"
    case $case in
        stuck) sleep 600 ;;
        torn) kill -SEGV $$ ;;
        deaf) trap '' TERM; sleep 600 & wait; wait ;;
    esac
done
"""


def gaps(names: Sequence[str], limit_s: float) -> dict[str, CommandRun]:
    """The same, with a process that fails at no case, and a limit of its own."""
    cases = hot(names)
    argv = ("sh", "-c", GAPS, "hot", "{cases}")
    how = msgspec.structs.replace(
        next(iter(cases.values())).hot, step=Step(argv=argv, limit_s=limit_s)
    )
    return {name: msgspec.structs.replace(one, hot=how) for name, one in cases.items()}


def test_nobody_is_blamed_for_what_happens_between_two_cases(tmp_path: Path) -> None:
    """The process that hangs or dies there is ended, and the others go on in a fresh one."""
    names = ["a", "stuck", "b", "torn", "c", "deaf", "d"]
    began, ended = run_cases(tmp_path, gaps(names, 1.5), run_s=60.0)
    assert {name: reply.outcome for name, reply in ended.items()} == dict.fromkeys(
        names, Outcome.PASSED
    )
    assert began == names
    said = (tmp_path / "logs" / "stuck.log").read_text().splitlines()[-1]
    expected = (
        "==== after this case its process ran past its limit of 1.5 s and was killed with all it had"
        " started; nobody is blamed"
    )
    assert said == expected


def test_a_process_that_hangs_after_its_last_case_is_ended(tmp_path: Path) -> None:
    """At its own limit, and all its cases keep their verdicts."""
    _, ended = run_cases(tmp_path, gaps(["a", "stuck"], 1.5), run_s=60.0)
    assert [reply.outcome for reply in ended.values()] == [Outcome.PASSED] * 2


def test_a_process_that_comes_to_no_case_is_the_doing_of_the_first(tmp_path: Path) -> None:
    """Which is what a fresh process for the rest would tell of these; start-up has the process's limit."""
    _, ended = run_cases(tmp_path, gaps(["late", "a", "start", "b"], 1.5), run_s=60.0)
    expected = {
        "late": Outcome.TIMEOUT,
        "a": Outcome.PASSED,
        "start": Outcome.CRASHED,
        "b": Outcome.PASSED,
    }
    assert {name: reply.outcome for name, reply in ended.items()} == expected
    assert ended["late"].message.startswith(
        "before it turned to any case, sh ran past its limit of 1.5 s"
    )


def test_a_case_has_its_own_limit_and_not_that_of_its_process(tmp_path: Path) -> None:
    """The message names the one that fired."""
    cases = hot(["a", "hang", "b"])
    how = cases["a"].hot
    assert how is not None
    how = msgspec.structs.replace(how, step=msgspec.structs.replace(how.step, limit_s=60.0))
    commands = {name: msgspec.structs.replace(one, hot=how) for name, one in cases.items()}
    _, ended = run_cases(tmp_path, commands, run_s=1.5)
    assert [reply.outcome for reply in ended.values()] == [
        Outcome.PASSED,
        Outcome.TIMEOUT,
        Outcome.PASSED,
    ]
    assert ended["hang"].message.startswith("sh ran past its limit of 1.5 s")


@pytest.mark.parametrize(
    ("content", "mode", "expected", "message"),
    [
        (b"\x7fELF nothing", 0o755, Outcome.RUNTIME_ERROR, "Exec format error"),
        (b"#!/bin/sh\n", 0o644, Outcome.RUNTIME_ERROR, "Permission denied"),
        (b"#!/no/such/sh\n", 0o755, Outcome.RUNTIME_ERROR, "the interpreter or loader that it"),
        (b"", 0, Outcome.RUNTIME_ERROR, "No such file or directory"),
    ],
)
def test_a_program_of_the_case_that_cannot_be_started_is_its_own_failure(
    content: bytes, mode: int, expected: Outcome, message: str, tmp_path: Path
) -> None:
    """With what the kernel said of it; nothing of the device or the host is at fault."""
    make = tmp_path / "work" / "1" / "data" / "program"
    (tmp_path / "work" / "1" / "tmp").mkdir(parents=True)
    make.parent.mkdir()
    if mode:
        make.write_bytes(content)
        make.chmod(mode)
    run = Step(argv=("./program",))
    _, ended = run_cases(tmp_path, {"1": command("1", "", run=run)})
    assert ended["1"].outcome is expected
    assert message in ended["1"].message


def test_a_wrapper_that_is_not_there_is_the_hosts_fault(tmp_path: Path) -> None:
    """Neither one along PATH nor one with a path of its own says anything of the case."""
    runs = {"1": Step(argv=("no-such-wrapper", "x")), "2": Step(argv=("/opt/no/wrapper", "x"))}
    _, ended = run_cases(tmp_path, {n: command(n, "", run=run) for n, run in runs.items()})
    assert {reply.outcome for reply in ended.values()} == {Outcome.INFRA_ERROR}


def test_a_single_case_is_run_by_its_own_step(tmp_path: Path) -> None:
    """A hot process saves start-up for several only."""
    _, ended = run_cases(tmp_path, hot(["a"]))
    assert ended["a"].message.startswith("sh ended with exit code 9")


def wait_for_text(path: Path) -> None:
    """Wait until somebody has written to a file."""
    while not path.exists() or not path.read_text():
        time.sleep(0.01)


def test_leaving_ends_what_still_runs(tmp_path: Path) -> None:
    """Closing the host ends every program that it runs."""

    async def leave(host: StepHost) -> None:
        asking = asyncio.ensure_future(host.ask(step(tmp_path, "echo $$ > pid; sleep 600")))
        await asyncio.to_thread(wait_for_text, tmp_path / "pid")
        asking.cancel()
        await asyncio.wait({asking})

    talk(tmp_path, leave)
    assert has_ended(int((tmp_path / "pid").read_text()))
