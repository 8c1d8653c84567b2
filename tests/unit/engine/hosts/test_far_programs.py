"""Programs at an agent with another environment, data directory and Python, as on another host."""

import asyncio
import os
import shutil
import sys
from pathlib import Path

import msgspec
import pytest

from tileyard.artifacts.manifest import Manifest, publish
from tileyard.artifacts.objects import ObjectStore
from tileyard.artifacts.trees import Trees
from tileyard.base.errors import UsageError
from tileyard.base.model import (
    Batch,
    BuildKey,
    Case,
    CommandWork,
    Digest,
    GoldenKey,
    GoldenPart,
    Outcome,
    Step,
)
from tileyard.base.settings import Settings
from tileyard.engine.hosts.meeting import AGENT, NamedHosts, Place
from tileyard.engine.hosts.slots import RemoteDevices
from tileyard.engine.proofs import NO_TREE
from tileyard.engine.provider import LeaseLostError
from tileyard.workers.protocol import CaseRan, CommandRun, Golden, RunEntry

pytestmark = pytest.mark.slow

SHELL = shutil.which("sh") or "sh"
BUILD = BuildKey("b" * 40)


class Seen:
    """Keeps how cases ended."""

    def __init__(self) -> None:
        self.ended: list[CaseRan] = []

    def began(self, case: str) -> None:
        """Do nothing."""

    def ran(self, reply: CaseRan, device: str, lease: int) -> None:
        """Keep it."""
        self.ended.append(reply)


class Run:
    """A run with its own folder, and a suite in it."""

    def __init__(self, folder: Path) -> None:
        self.home, self.suite = folder / "home", folder / "suite"
        self.suite.mkdir()
        self.home.mkdir()
        self.objects = ObjectStore(self.home / "objects")
        publish(
            Manifest(
                kernel="k",
                target="command",
                fingerprint="",
                build=BUILD,
                binary="",
                files={},
                details="",
            ),
            self.objects,
        )

    def entry(self, step: Step, golden: Digest = NO_TREE, part: str = "") -> RunEntry:
        """A case that runs a step."""
        return RunEntry(
            case="c",
            build=BUILD,
            golden=Golden(
                key=GoldenKey(""),
                inputs=(),
                outputs=(),
                tree=golden,
                part=GoldenPart(path=part, is_linked=bool(golden)),
            ),
            specs=(),
            scalars=(),
            log="logs/c.log",
            command=CommandRun(
                name="c", run=step, folder=str(self.home / "work" / "c"), suite=str(self.suite)
            ),
        )

    async def there(self, place: Place, entry: RunEntry) -> tuple[CaseRan, str]:
        """How a case ends there, and its log."""
        logs: list[str] = []
        seen = Seen()
        settings = Settings(home=self.home, lock_dir=self.home / "locks", cores=(0,))
        hosts = RemoteDevices(NamedHosts((place,)), settings)
        hosts.append_log = lambda _, text: logs.append(text)
        try:
            await hosts.find((), title="t", queue_limit_s=5.0, slots=1)
            if entry.command is not None and "python" in entry.command.run.argv[0]:
                await hosts.require_pythons([entry.command.run.argv[0]])
            (slot,) = hosts.slots
            await slot.acquire(0, lambda _: None)
            case = Case(id="c", work=CommandWork(run=Step(argv=("true",))), target="command")
            await slot.run(Batch(id="b", cases=(case,)), [entry], seen)
            await slot.release()
        finally:
            await hosts.close()
        (ran,) = seen.ended
        return ran, "".join(logs)


def there_with(home: Path, *, before: tuple[str, ...] = (), **variables: str) -> Place:
    """An agent whose environment, and data directory, are others."""
    own = {"PATH": os.environ["PATH"], "HOME": str(home), "TILEYARD_HOME": str(home / "data")}
    env = [f"{name}={text}" for name, text in {**own, **variables}.items()]
    return Place("there", ("env", "-i", *env, *before, sys.executable, *AGENT))


def test_variables_and_paths_are_those_of_the_right_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those passed on by name are the run's, usual ones the host's; paths of the suite are as there; of the
    golden tree only a part goes there; in the data directory of the host no folder of a case is left.
    """
    monkeypatch.setenv("MINE", "of the run")
    run = Run(tmp_path)
    (run.suite / "in.txt").write_text("declared")
    (tmp_path / "golden" / "a").mkdir(parents=True)
    (tmp_path / "golden" / "b").mkdir()
    (tmp_path / "golden" / "a" / "x").write_text("part")
    (tmp_path / "golden" / "b" / "x").write_text("rest")
    golden = Trees(run.objects).put(tmp_path / "golden")
    script = 'echo "$MINE:$HOME:$GONE"; echo "$SUITE"; cat "$1" a/x; ls; echo new > made'
    step = Step(
        argv=(SHELL, "-c", script, "sh", f"{run.suite}/in.txt"),
        inherits=("MINE", "GONE"),
        env={"SUITE": f"-I{run.suite}:{run.suite}-beside"},
    )
    place = there_with(tmp_path / "there", GONE="of the host", MINE="of the host")
    ran, log = asyncio.run(run.there(place, run.entry(step, golden, "a")))
    assert (ran.outcome, ran.message) == (Outcome.PASSED, "")
    there = tmp_path / "there"
    heading, where, variables, suite, *rest = log.splitlines()
    assert heading.startswith("==== run: ")
    assert where.startswith(f"==== in {there}/data/work/agent-")
    assert variables == f"of the run:{there}:"
    assert suite.startswith(f"-I{there}/data/work/agent-")
    assert suite.endswith(f":{run.suite}-beside")
    assert rest[0] == "declaredparta"  # there is no b
    assert (run.home / "work" / "c" / "data" / "made").read_text() == "new\n"
    assert (run.home / "work" / "c" / "data" / "a" / "x").resolve().read_text() == "part"
    data = tmp_path / "there" / "data"
    assert not (data / "work").exists()
    assert not [*data.glob("objects/tmp/*")]


def test_folders_of_the_run_that_variables_list_go_there(tmp_path: Path) -> None:
    """Such as a checkout's modules, with a package that is linked there; other folders are the host's."""
    run = Run(tmp_path)
    checkout = run.home / "sides" / "tree"
    (checkout / "__pycache__").mkdir(parents=True)
    (checkout / "number.py").write_text("VALUE = 7")
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").write_text("VALUE = 8")
    (checkout / "linked").symlink_to(tmp_path / "package")
    script = "import linked, number, sys; print(number.VALUE, linked.VALUE, sys.path[1:3])"
    entry = run.entry(Step(argv=(sys.executable, "-c", script)))
    assert entry.command is not None
    env = {"PYTHONPATH": f"{checkout}:{tmp_path}"}
    entry = msgspec.structs.replace(entry, command=msgspec.structs.replace(entry.command, env=env))
    ran, log = asyncio.run(run.there(there_with(tmp_path / "there"), entry))
    assert ran.outcome is Outcome.PASSED, ran.message
    *_, said, _ = log.splitlines()
    assert said.startswith(f"7 8 ['{tmp_path}/there/data/objects/trees/")
    assert said.endswith(f"', '{tmp_path}']")
    assert not [*(tmp_path / "there" / "data" / "objects").rglob("__pycache__")]


def test_a_host_without_room_is_one_line_and_keeps_nothing(tmp_path: Path) -> None:
    """A file that it cannot take is refused there, and what has arrived of it is removed."""
    run = Run(tmp_path)
    (run.suite / "large").write_bytes(bytes(3 << 20))
    step = Step(argv=("true",), inputs=("large",))
    limit = ("sh", "-c", 'ulimit -f 1000; exec "$@"', "sh")
    place = there_with(tmp_path / "there", before=limit)
    with pytest.raises(LeaseLostError, match=r"host there: cannot store objects: .*File too large"):
        asyncio.run(run.there(place, run.entry(step)))
    data = tmp_path / "there" / "data"
    assert not (data / "work").exists()


def test_another_python_is_one_line_that_names_both(tmp_path: Path) -> None:
    """At the same path, where a step names it."""
    python = tmp_path / "python3"
    python.write_text("#!/bin/sh\necho Python ${THERE:-3.11.7}\n")
    python.chmod(0o755)
    run = Run(tmp_path)
    step = Step(argv=(str(python), "x.py"))
    place = there_with(tmp_path / "there", THERE="3.11.9")
    said = (
        rf"^host there has Python 3\.11\.9 \(\w+\) in place of {python}, "
        r"which is Python 3\.11\.7 \(\w+\)$"
    )
    with pytest.raises(UsageError, match=said):
        asyncio.run(run.there(place, run.entry(step)))
