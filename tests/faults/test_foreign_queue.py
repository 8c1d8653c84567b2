"""A queue that hangs, lies, loses, cuts, repeats and dies: every case gets its right outcome.

Real processes throughout: a server that gives devices, its clients, our submitting process, and our
runner on the far side.
"""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import msgspec
import psutil
import pytest
from tests.conftest import ROOT
from tests.e2e.lab_queue import declare
from tests.endings import has_ended
from tests.faults.deed_target import OUTCOME_OF, plan_deeds
from tests.samples import IS_WHOLE
from tests.simulated_yard import FixedSource, drive, open_simulated_yard, plan_cases

from tileyard.artifacts.objects import ObjectStore
from tileyard.base.errors import ToolMissingError, UsageError
from tileyard.base.events import Event, Note
from tileyard.base.model import Batch, Limits, Outcome, Side
from tileyard.base.settings import Settings
from tileyard.devices.foreign import ForeignQueue, decode_queues
from tileyard.engine.authors import Authors
from tileyard.engine.driver import Driver
from tileyard.engine.foreign_queue.slots import QueueProvider, QueueSlot, check_reach
from tileyard.engine.provider import LeaseLostError
from tileyard.engine.yard import Yard
from tileyard.verbs.doctor.plan.devices import check_queues
from tileyard.workers.protocol import CaseRan, RunEntry

QUEUE = Path(__file__).with_name("fake_queue.py")
DEADLINE_S = 60.0
CORE = min(os.sched_getaffinity(0))
AWKWARD = "two words, a 'quote', a \"double\" one, $HOME, `id`, a\nnew line and a \\"

MakeQueue = Callable[..., ForeignQueue]

pytestmark = pytest.mark.slow


@dataclass
class Site:
    """A running queue and a yard with objects, in folders whose names have spaces. ``family`` is this
    process's children when nothing runs.
    """

    folder: Path
    yard: Yard
    server: subprocess.Popen[bytes]
    events: list[Event]
    queue: ForeignQueue
    family: set[psutil.Process]

    def plan(self, *deeds: str) -> tuple[Batch, tuple[RunEntry, ...]]:
        """A batch of these deeds."""
        return plan_deeds(self.yard.objects, deeds)

    def fail(self, faults: str, task: str = "all") -> None:
        """Have something go wrong with a task."""
        (self.folder / "faults" / task).write_text(faults)

    def change(self, **changes: object) -> None:
        """Declare the queue otherwise."""
        self.queue = msgspec.structs.replace(self.queue, **changes)

    @property
    def tasks(self) -> list[Path]:
        """What was submitted so far."""
        return sorted((self.folder / "tasks").iterdir(), key=lambda path: int(path.name))


@dataclass
class Answers:
    """What a slot tells; a Watch."""

    replies: list[CaseRan] = field(default_factory=list)
    places: list[str] = field(default_factory=list)
    began_cases: list[str] = field(default_factory=list)
    lost: list[LeaseLostError] = field(default_factory=list)

    def began(self, case: str) -> None:
        """A case was turned to."""
        self.began_cases.append(case)

    def ran(self, reply: CaseRan, device: str, lease: int) -> None:
        """A case ended."""
        self.replies.append(reply)
        self.places.append(device)

    @property
    def outcomes(self) -> dict[str, str]:
        """The one outcome of each case."""
        assert len({reply.case for reply in self.replies}) == len(self.replies)
        return {reply.case: reply.outcome.value for reply in self.replies}

    def message(self, case: str) -> str:
        """What was said of a case."""
        return next(reply.message for reply in self.replies if reply.case == case)


def task_submit(folder: Path, **changes: object) -> ForeignQueue:
    """task-submit, as the docs declare it."""
    ours = {"device": "cpu:cores={device}", "identity": "the cores of this host", "probe": []}
    table = {**declare(folder), **ours, **changes}
    return decode_queues([table], "tileyard.toml")[0]


def srun(folder: Path, **changes: object) -> ForeignQueue:
    """A queue that is spoken to as srun is: no cancel command, variables by name."""
    client = [sys.executable, str(QUEUE), "srun", str(folder)]
    submit = [*client, "--time={run_limit_min}", "--export={env_names}", "{command}"]
    table: dict[str, object] = {
        "submit": submit,
        "device_variable": "SLURM_DEVICE",
        "cancel": [],
        "job": "",
        "exit_codes": {},
        "messages": {},
    }
    return task_submit(folder, **{**table, **changes})


def asked(folder: Path, **changes: object) -> ForeignQueue:
    """A queue whose client only submits: it is asked how far a task is, and for its output."""
    other = [sys.executable, str(QUEUE)]
    submit = list(task_submit(folder).submit)
    submit[2] = "enqueue"
    return task_submit(
        folder,
        submit=submit,
        cancel=[*other, "cancel", str(folder), "{job}"],
        status=[*other, "status", str(folder), "{job}"],
        ended=r"exit=(\d+)",
        output=[*other, "output", str(folder), "{job}"],
        poll_s=0.05,
        **changes,
    )


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """A queue with two devices."""
    folder, home = tmp_path / "the queue", tmp_path / "the home"
    for name in ("tasks", "faults"):
        (folder / name).mkdir(parents=True)
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "tests" / "faults"))
    monkeypatch.setenv("COLOUR", AWKWARD)
    monkeypatch.setenv("TILEYARD_LOCK_DIR", str(tmp_path / "locks"))
    for variable in ("TASK_DEVICE", "TILEYARD_SUBMISSION", "TILEYARD_LEASE"):
        monkeypatch.delenv(variable, raising=False)
    events: list[Event] = []
    yard = Yard(
        settings=Settings(
            home=home,
            lock_dir=tmp_path / "locks",
            cores=tuple(sorted(os.sched_getaffinity(0))),
            plugins={"deed": "deed_target:DeedTarget"},
        ),
        store=cast(Any, None),
        objects=ObjectStore(home / "objects"),
        authors=Authors((Side(),), (), cast(Any, None)),
        grounds={},
        listeners=[events.append],
    )
    queue = task_submit(folder, inherit=["PATH", "PYTHONPATH", "COLOUR"])
    command = [sys.executable, str(QUEUE), "serve", str(folder), str(CORE), str(CORE)]
    with subprocess.Popen(command) as server:
        try:
            family = set(psutil.Process().children())
            yield Site(folder, yard, server, events, queue, family)
        finally:
            server.kill()
            for pid in (int(task.read_text()) for task in folder.glob("tasks/*/pid")):
                if psutil.pid_exists(pid):
                    os.killpg(pid, signal.SIGKILL)


async def run_all(site: Site, batch: Batch, entries: Sequence[RunEntry]) -> Answers:
    """Hand the slot what is left until nothing is, as the engine does; a loss ends it."""
    answers = Answers()
    slot = QueueSlot(site.queue, site.queue.make_devices()[0], site.yard)
    left = list(entries)
    while left and not answers.lost:
        try:
            await slot.run(batch, left, answers)
        except LeaseLostError as error:
            answers.lost.append(error)
        left = [entry for entry in left if entry.case not in answers.outcomes]
    return answers


def run(site: Site, *deeds: str) -> Answers:
    """Run these deeds through the queue."""

    async def main() -> Answers:
        async with asyncio.timeout(DEADLINE_S):
            return await run_all(site, *site.plan(*deeds))

    answers = asyncio.run(main())
    assert set(psutil.Process().children()) <= site.family
    return answers


def list_files(folder: Path) -> list[Path]:
    """All files below a folder."""
    return sorted(path for path in folder.rglob("*") if path.is_file())


# ---- a queue that works -----------------------------------------------------------------------


@pytest.mark.parametrize("kind", [task_submit, srun, asked])
def test_every_case_gets_its_own_outcome(site: Site, kind: MakeQueue) -> None:
    """Faults of cases blame these alone, and all of a batch runs in one task. Spaces, quotes, dollars,
    back-ticks and newlines of a variable survive each queue.
    """
    site.queue = kind(site.folder, inherit=["PATH", "PYTHONPATH", "COLOUR"])
    faults = ("crash", "spoil", "hang", "copy", "raise", "exit", "memory")
    deeds = ("copy", *faults, "copy", "variable COLOUR")
    batch, _ = site.plan(*deeds)
    answers = run(site, *deeds)
    expected = {case.id: OUTCOME_OF[case.id.partition("-")[2]] for case in batch.cases}
    assert answers.outcomes == expected
    assert answers.began_cases == list(expected)
    assert len(site.tasks) == 1
    assert "SIGSEGV" in answers.message("2-crash")
    assert "run limit of 1 s" in answers.message("4-hang")
    assert "4 of 4 elements are wrong" in answers.message("3-spoil")
    assert f"cpu:cores={CORE}@" in answers.places[0]
    assert (site.yard.home / "logs/r/10-variable.log").read_text().strip() == repr(AWKWARD)


def test_many_tasks_at_once(site: Site) -> None:
    """Slots submit side by side; each case is answered once, by its own task. A task holds as many cases as
    the queue allows; the next ones go into further tasks.
    """
    site.change(cases=2)

    async def main() -> list[Answers]:
        async with asyncio.timeout(DEADLINE_S):
            plans = [site.plan("copy", "spoil", "copy"), site.plan("copy", "spoil")]
            return list(await asyncio.gather(*(run_all(site, *plan) for plan in plans)))

    two = {"1-copy": "passed", "2-spoil": "mismatch"}
    expected = [{**two, "3-copy": "passed"}, two]
    assert [answers.outcomes for answers in asyncio.run(main())] == expected
    assert len(site.tasks) == 3
    assert " " in str(site.yard.objects.root)


def test_what_a_passing_run_prints_is_kept_and_flagged(site: Site) -> None:
    """The case's own output is in its log, the queue's complaint beside it; both are shown. What described
    the task goes when it ends.
    """
    site.fail("complain")
    site.plan("print", "copy")
    before = list_files(site.yard.objects.root)
    answers = run(site, "print", "copy")
    assert list_files(site.yard.objects.root) == before
    expected = {"1-print": "passed", "2-copy": "passed"}
    assert answers.outcomes == expected
    assert answers.message("1-print") == "printed 1 line, kept in its log"
    assert answers.message("2-copy") == ""
    logs = site.yard.home / "logs/r"
    assert (logs / "1-print.log").read_text() == "something to say\n"
    assert "the card is warm" in next(logs.glob("queue-*.stderr.log")).read_text()
    assert [event.level for event in site.events if isinstance(event, Note)] == ["warning"]


def test_one_case_longer_than_any_task_is_told_so(site: Site) -> None:
    """Nothing is submitted for it."""
    site.change(task_limit_s=100.0)
    answers = run(site, "copy")
    expected = {"1-copy": "infra_error"}
    assert answers.outcomes == expected
    assert "task_limit_s = 100" in answers.message("1-copy")
    assert site.tasks == []


# ---- a queue that does not ------------------------------------------------------------------


@pytest.mark.parametrize("faults", ["swallow duplicate decorate", "unset"])
def test_what_can_be_understood_is(site: Site, faults: str) -> None:
    """Swallowed exit codes, repeated lines and decorated ones change no outcome. Nor does a device that is
    appended to the command: some queues say it in this way and in no other.
    """
    site.fail(faults)
    answers = run(site, "copy", "spoil", "crash", "copy")
    expected = {"1-copy": "passed", "2-spoil": "mismatch", "3-crash": "crashed", "4-copy": "passed"}
    assert answers.outcomes == expected
    assert len(site.tasks) == 1
    assert f"cpu:cores={CORE}@" in answers.places[0]


def test_output_that_comes_at_the_end(site: Site) -> None:
    """A queue that keeps output back is given the whole time."""
    site.fail("late")
    site.change(streams=False, queue_limit_s=0.001)
    answers = run(site, "copy", "spoil")
    expected = {"1-copy": "passed", "2-spoil": "mismatch"}
    assert answers.outcomes == expected


def test_no_device_in_time_is_a_queue_timeout(site: Site) -> None:
    """The task is taken out of the queue, and no case is called failed."""
    site.fail("hang")
    site.change(queue_limit_s=3.0)
    answers = run(site, "copy")
    expected = {"1-copy": "queue_timeout"}
    assert answers.outcomes == expected
    assert "queue limit of 3 s" in answers.message("1-copy")
    assert (site.tasks[0] / "cancel").exists()


def test_a_clients_own_time_out_is_a_queue_timeout(site: Site) -> None:
    """What the site declares as its client's word for it is one, while our runner has not begun."""
    site.fail("hasty hang")
    answers = run(site, "copy")
    expected = {"1-copy": "queue_timeout"}
    assert answers.outcomes == expected


@pytest.mark.parametrize(
    ("faults", "said"),
    [
        ("lose", "no result line came"),
        ("reject", "the task was rejected"),
        ("truncate", "the environment did not arrive as it was sent"),
        ("drop-variable", "COLOUR is missing"),
        ("no-device", "TASK_DEVICE is not set on this side"),
    ],
)
def test_a_task_that_never_began_is_nobodys_fault(site: Site, faults: str, said: str) -> None:
    """Nothing is run, nothing is blamed, and the message says why."""
    site.fail(faults)
    answers = run(site, "copy", "copy")
    expected = [Outcome.INFRA_ERROR]
    assert [error.outcome for error in answers.lost] == expected
    assert said in answers.lost[0].message
    assert answers.outcomes == {}


def test_no_result_line_says_all_that_is_known(site: Site) -> None:
    """Code 0 without a line is an infra_error with code, signal, argv, folder and both tails."""
    site.fail("lose-results complain")
    answers = run(site, "copy", "copy")
    expected = {"1-copy": "infra_error", "2-copy": "infra_error"}
    assert answers.outcomes == expected
    message = answers.message("1-copy")
    for part in ("code 0", "no signal", "task-submit", str(Path.cwd()), "the card is warm"):
        assert part in message
    assert "TILEYARD_BATCH" in message
    assert "COLOUR=..." in message
    assert "two words" not in message
    assert (
        "stderr ends\nsubmitted task_20260714_103015_1\n"
        in (site.yard.home / "logs/r/1-copy.log").read_text()
    )


def test_a_cut_line_counts_as_none(site: Site) -> None:
    """A line with a few characters missing is never read as another number."""
    site.fail("garble")
    answers = run(site, "copy", "copy")
    expected = {"1-copy": "infra_error", "2-copy": "infra_error"}
    assert answers.outcomes == expected


def test_an_exit_code_that_contradicts_the_last_line(site: Site) -> None:
    """A verdict takes both: what the far side had gone on from stands, the last one does not."""
    site.fail("fail")
    answers = run(site, "copy", "copy")
    expected = {"1-copy": "passed", "2-copy": "infra_error"}
    assert answers.outcomes == expected
    assert "it printed passed, but" in answers.message("2-copy")


def test_a_task_killed_half_way_blames_one_case(site: Site) -> None:
    """What was run stands, what ran is an infra_error, the rest goes on in a further task."""
    site.fail("half", task="1")
    answers = run(site, "copy", "hang", "copy", "spoil")
    expected = {
        "1-copy": "passed",
        "2-hang": "infra_error",
        "3-copy": "passed",
        "4-spoil": "mismatch",
    }
    assert answers.outcomes == expected
    assert "code 143" in answers.message("2-hang")
    assert len(site.tasks) == 2


def test_a_client_that_dies_leaves_no_task(site: Site) -> None:
    """The task that runs on without its client is cancelled by name."""
    site.fail("client-dies", task="1")
    answers = run(site, "hang", "copy")
    assert (site.tasks[0] / "cancel").exists()
    assert set(answers.outcomes) | {"1-hang"} == {"1-hang", "2-copy"} or answers.lost
    for error in answers.lost:
        assert error.outcome is Outcome.INFRA_ERROR
        assert "SIGKILL" in error.message


def test_a_queue_that_dies_is_given_up(site: Site) -> None:
    """Its client would wait for ever: the limit of the case, or between two cases that of all, ends it."""
    site.fail("server-dies")
    site.change(margin_s=1.0, queue_limit_s=20.0)
    batch, entries = plan_deeds(site.yard.objects, ["copy", "copy"], run_s=1.0)

    async def main() -> Answers:
        answers = Answers()
        slot = QueueSlot(site.queue, site.queue.make_devices()[0], site.yard)
        async with asyncio.timeout(DEADLINE_S):
            await slot.run(batch, entries, answers)
        return answers

    site.fail("server-dies")
    answers = asyncio.run(main())
    expected = "infra_error"
    assert set(answers.outcomes.values()) <= {expected, "passed"}
    assert expected in answers.outcomes.values()
    limits = ("limit of 2 s for case", " s (queue, run and 1 s)")
    assert any(limit in reply.message for reply in answers.replies for limit in limits)


# ---- our own end ------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [task_submit, srun, *([asked] if IS_WHOLE else [])])
def test_cancelling_our_side_cancels_the_task(site: Site, kind: MakeQueue) -> None:
    """With a cancel command, and by the client's own signal where there is none."""
    site.queue = kind(site.folder)
    batch, entries = site.plan("hang", "copy")
    batch = msgspec.structs.replace(
        batch, cases=tuple(msgspec.structs.replace(c, limits=Limits()) for c in batch.cases)
    )

    async def main() -> None:
        async with asyncio.timeout(DEADLINE_S):
            began = asyncio.Event()
            answers = Answers()
            answers.began = lambda case: began.set()  # type: ignore[method-assign]
            slot = QueueSlot(site.queue, site.queue.make_devices()[0], site.yard)
            running = asyncio.create_task(slot.run(batch, entries, answers))
            await began.wait()
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            assert answers.replies == []

    asyncio.run(main())
    assert (site.tasks[0] / "cancel").exists()
    assert set(psutil.Process().children()) <= site.family
    assert has_ended(int((site.tasks[0] / "pid").read_text()), DEADLINE_S)


@pytest.mark.parametrize("ending", ["stop", "trim"])
def test_what_waits_in_the_queue_is_taken_back(site: Site, ending: str) -> None:
    """At the first interrupt and when the budget is spent: no device was given, so nothing was run."""
    site.fail("hang")
    os.mkfifo(site.folder / "waiting")
    devices = msgspec.structs.replace(site.queue, slots=2, cases=1).make_devices()
    source = FixedSource(plan_cases({"n": n} for n in range(3)))

    async def main() -> None:
        home = site.folder / "home"
        home.mkdir()
        with open_simulated_yard(home, devices, (CORE,)) as yard:
            queue = msgspec.structs.replace(site.queue, slots=2, cases=1)
            driver = Driver(source, yard, "run", QueueProvider(queue, yard))
            running = asyncio.create_task(drive(driver))
            waiting = ""  # the names of tasks, a digit each; two that come at once are read at once
            while len(waiting) < len(devices):
                waiting += await asyncio.to_thread((site.folder / "waiting").read_text)
            if ending == "stop":
                driver.stop()
            else:
                driver.trim("the budget of 1 s was spent before this case was reached")
            async with asyncio.timeout(DEADLINE_S):
                await running

    asyncio.run(main())
    expected = [Outcome.NOT_RUN] * 3
    assert [trial.outcome for trial in source.trials] == expected
    said = "stopped" if ending == "stop" else "budget of 1 s"
    assert all(said in trial.message for trial in source.trials)
    assert len(site.tasks) == len(devices)
    assert all((task / "cancel").exists() for task in site.tasks)


def test_taking_a_task_back_is_no_fault_of_the_queue(site: Site) -> None:
    """Nothing is answered, and nothing was lost: the slot is as good as before."""
    site.fail("hang")
    os.mkfifo(site.folder / "waiting")
    provider = QueueProvider(site.queue, site.yard)
    answers = Answers()

    async def main() -> bool:
        running = asyncio.create_task(provider.slots[0].run(*site.plan("copy"), answers))
        await asyncio.to_thread((site.folder / "waiting").read_text)
        provider.withdraw()
        async with asyncio.timeout(DEADLINE_S):
            return await running

    expected = False
    assert asyncio.run(main()) is expected
    assert answers.replies == []


def test_a_killed_engine_leaves_no_task(site: Site) -> None:
    """The submitting process outlives the engine for as long as it takes to cancel."""
    batch, entries = plan_deeds(site.yard.objects, ["hang"])
    batch = msgspec.structs.replace(
        batch, cases=(msgspec.structs.replace(batch.cases[0], limits=Limits()),)
    )
    plan = site.folder / "plan.json"
    plan.write_bytes(msgspec.json.encode((batch, entries, site.queue, str(site.yard.home))))
    command = [sys.executable, str(QUEUE.with_name("queue_engine.py")), str(plan)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as engine:
        assert engine.stdout is not None
        expected = "began 1-hang\n"
        assert engine.stdout.readline() == expected
        engine.kill()
    assert has_ended(int((site.tasks[0] / "pid").read_text()), DEADLINE_S)
    assert (site.tasks[0] / "cancel").exists()


# ---- before anything is built --------------------------------------------------------------------


def test_a_missing_tool_is_an_error_before_anything_else(site: Site) -> None:
    """The error names the queue, the tool and the field."""
    provider = QueueProvider(msgspec.structs.replace(site.queue, submit=("/no/such",)), site.yard)
    with pytest.raises(ToolMissingError, match="'lab': '/no/such', named by `submit`"):
        asyncio.run(provider.open())
    provider = QueueProvider(msgspec.structs.replace(site.queue, cancel=("no-such",)), site.yard)
    with pytest.raises(ToolMissingError, match="named by `cancel`"):
        asyncio.run(provider.open())


@pytest.mark.parametrize("variable", ["TASK_DEVICE", "TILEYARD_SUBMISSION"])
def test_nested_submission_is_refused(
    site: Site, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    """Whoever runs on a device of a queue does not wait for a second one."""
    provider = QueueProvider(site.queue, site.yard)
    asyncio.run(provider.open())
    monkeypatch.setenv(variable, "1")
    with pytest.raises(UsageError, match=variable):
        asyncio.run(provider.open())


# ---- doctor -------------------------------------------------------------------------------------


def test_the_far_side_reads_what_this_side_wrote(site: Site) -> None:
    """Both hosts and the folder are named, and nothing is left behind."""
    reach = check_reach(site.queue, site.yard.objects.root)
    assert reach.ok, reach
    assert str(site.yard.objects.root) in reach.message
    expected: list[Path] = []
    assert list(site.yard.home.parent.glob("the home/objects/*")) == expected


def test_a_folder_that_the_far_side_cannot_see(site: Site) -> None:
    """What each side sees is said: here the far side looks through another mount."""
    elsewhere = [
        part.replace("{shell_command}", "chroot_like {shell_command}") for part in site.queue.submit
    ]
    wrapper = site.folder / "chroot_like"
    wrapper.write_text(
        '#!/bin/sh\nrm -f "$(dirname "$0")/../the home/objects/tokens/"*\nexec "$@"\n',
        encoding="utf-8",
    )
    wrapper.chmod(0o755)
    path = f"{site.folder}:{os.environ['PATH']}"
    site.change(submit=tuple(elsewhere), environment={"PATH": path})
    reach = check_reach(site.queue, site.yard.objects.root)
    expected = "could not read it: No such file or directory"
    assert not reach.ok
    assert expected in reach.message
    assert "TILEYARD_HOME" in reach.hint


def test_a_queue_that_swallows_the_answer_is_told(site: Site) -> None:
    """The check does not take silence for health."""
    site.fail("lose")
    reach = check_reach(site.queue, site.yard.objects.root)
    expected = (False, True)
    assert (reach.ok, "the far side did not answer" in reach.message) == expected


def test_a_missing_client_is_told(site: Site) -> None:
    """As an answer, not as an exception."""
    site.change(submit=("/no/such", "{command}"))
    reach = check_reach(site.queue, site.yard.objects.root)
    expected = (False, True)
    assert (reach.ok, "/no/such" in reach.message) == expected


def test_doctor_reads_a_token_back_through_each_queue(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One finding a queue; a queue that gives no device in time is a warning."""
    file = site.folder / "tileyard.toml"
    fields = {"name": "lab", "device": "cpu:0", "identity": "i", "submit": site.queue.submit}
    text = "".join(
        f"{key} = {msgspec.json.encode(value).decode()}\n" for key, value in fields.items()
    )
    file.write_text("[[queue]]\n" + text, encoding="utf-8")
    settings = msgspec.structs.replace(site.yard.settings, project_file=file)
    found = [next(iter(check_queues(settings)))]
    site.fail("hang")
    monkeypatch.setattr("tileyard.verbs.doctor.plan.devices.QUEUE_WAIT_S", 3.0)
    found.append(next(iter(check_queues(settings))))
    expected = [("queue:lab", "ok"), ("queue:lab", "warn")]
    assert [(finding.subject, finding.level.value) for finding in found] == expected, found
    assert "read it" in found[0].message
