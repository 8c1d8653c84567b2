"""One hit: a command is begun, a process of its is killed or stopped, and what follows is looked at.

One module because a hit is one story, from the start of a command to the files that it has left.
"""

import json
import os
import random
import shutil
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tests.faults.hit_commands import DISTURBED, WELL, Command
from tests.faults.hit_processes import MARK, Family, Process

from tileyard.artifacts.collection import Keep, collect
from tileyard.base.clock import Clock

HANG_S = float(os.environ.get("TILEYARD_HITS_HANG_S", "60"))
"""How long a command may go on after its hit."""
CLEAN_S = 300.0
"""How long a command may take that nothing happens to."""
GONE_S = 5.0
"""Within which all processes of a command are gone after its end."""
LOOK_S = 0.02
SCRATCH = ("tmp", "objects/tmp", "objects/trees/tmp", "work", "logs/runner-*.log")
SIGNALS = (signal.SIGKILL, signal.SIGSTOP)
OWN_CASE = ("build program", "golden program", "run program", "check program", "compiler child")
"""Beginnings of kinds that work for one case, or for those that share one build."""
OWN_WORK = ("copy", "keeper of a program", "sh")
"""What holds a device for a test, or runs it."""


class LaterClock(Clock):
    """A clock of two days later, by which all leftovers are old."""

    def wall_s(self) -> float:
        """Seconds since the epoch."""
        return super().wall_s() + 2 * 86_400.0


@dataclass(frozen=True, kw_only=True)
class Aim:
    """What is to be hit. ``seed`` is the hit's name, as in ``tune:17``."""

    seed: str
    kind: str
    state: str
    signal: signal.Signals

    def __str__(self) -> str:
        return f"{self.seed} {self.signal.name} {self.kind} while {self.state}"


@dataclass(kw_only=True)
class Stream:
    """The events of a command's newest run, as they are written."""

    home: Path
    path: Path | None = None
    offset: int = 0
    counts: Counter[str] = field(default_factory=Counter)

    def read(self) -> Counter[str]:
        """How often each type of event has happened."""
        newest = max((self.home / "runs").glob("*.jsonl"), default=None)
        if newest is None:
            return self.counts
        if newest != self.path:
            self.path, self.offset = newest, 0
            self.counts.clear()
        with newest.open("rb") as file:
            file.seek(self.offset)
            whole, newline, _ = file.read().rpartition(b"\n")
        self.offset += len(whole) + len(newline)
        for line in filter(None, whole.split(b"\n")):
            self.counts[json.loads(line)["type"]] += 1
        return self.counts


class Run:
    """One start of a command, in a folder of its own with a home of its own."""

    def __init__(
        self, command: Command, place: Path, shared: Path, *, is_cold: bool = False
    ) -> None:
        """Begin it. With ``is_cold`` its home knows nothing of what an author answers."""
        self.place = place
        self.home = place / "home"
        self.command = command
        (place / "scratch").mkdir(parents=True, exist_ok=True)
        mark = os.urandom(8).hex()
        self.family = Family(mark)
        self.stream = Stream(home=self.home)
        self._has_begun = False
        ours = ("PYTEST_", "TILEYARD_", "TILELANG_DEFAULT_TARGET")
        kept = {key: text for key, text in os.environ.items() if not key.startswith(ours)}
        own = {
            MARK: mark,
            "TILEYARD_HOME": str(self.home),
            "TILEYARD_LOCK_DIR": str(place / "locks"),
            "TMPDIR": str(place / "scratch"),
            "TILEYARD_HOST_CONFIG": str(shared / "etc"),
            "PYTEST_DEBUG_TEMPROOT": str(place),
            "COLUMNS": "200",
        }
        if command.is_known and not is_cold and not self.home.exists():
            shutil.copytree(shared / "known", self.home / "objects")
        with (place / "stdout").open("wb") as stdout, (place / "stderr").open("wb") as stderr:
            self.began = time.monotonic()
            self.process = subprocess.Popen(
                [word.replace("{place}", str(place)) for word in command.argv],
                cwd=shared,
                env={**kept, **own},
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
            )

    @property
    def age_s(self) -> float:
        """Since its start."""
        return time.monotonic() - self.began

    def look(self) -> tuple[list[Process], set[str]]:
        """Its processes, and the states in which the run is now."""
        counts = self.stream.read()
        family = self.family.look(self.process.pid)
        kinds = {process.kind for process in family}
        states = set()
        if "compiler child" in kinds or "build program" in kinds:
            states.add("building")
        if "golden program" in kinds:
            states.add("golden")
        if "check program" in kinds:
            states.add("judging")
        is_started = counts["case_started"] > counts["case_ended"]
        if "run program" in kinds or ("runner" in kinds and is_started):
            states.add("running")
        is_held = counts["device_leased"] > counts["device_released"]
        if is_held and "running" not in states:
            states.add("leased")
        is_over = counts["case_ended"] == counts["case_planned"] > 0
        if counts["run_ended"] or (is_over and not states):
            states = {"ending"}
        elif not states:
            has_begun = self._has_begun or counts["build_started"] or counts["case_started"]
            states.add("idle" if has_begun else "starting")
        else:
            self._has_begun = True
        return family, states

    def wait(self, limit_s: float) -> bool:
        """Whether the command has ended within so many seconds."""
        try:
            self.process.wait(limit_s)
        except subprocess.TimeoutExpired:
            return False
        return True

    def await_gone(self) -> list[Process]:
        """What is left of it once all should be gone."""
        until = time.monotonic() + GONE_S
        while (left := self.family.look(self.process.pid)) and time.monotonic() < until:
            time.sleep(4 * LOOK_S)
        return left

    def clear(self) -> None:
        """Kill whatever is left."""
        for _ in range(100):
            left = self.family.look(self.process.pid)
            for process in left:
                process.signal(signal.SIGKILL)
            if not left:
                break
            time.sleep(4 * LOOK_S)
        self.process.wait()

    def printed(self, *names: str) -> str:
        """All that it has printed, or only to those streams."""
        streams = names or ("stdout", "stderr")
        return "".join((self.place / name).read_text(errors="replace") for name in streams)

    def outcomes(self) -> dict[str, str]:
        """By case, empty where the command has not told."""
        try:
            return self.command.read(self.place)
        except (OSError, ValueError, KeyError):
            return {}


@dataclass(kw_only=True)
class Clean:
    """What a run without a hit showed: outcomes, status, length, and when each cell was there."""

    outcomes: dict[str, str]
    status: int
    seconds: float
    spans: dict[tuple[str, str], tuple[float, float]]


def prepare(command: Command, place: Path, shared: Path) -> Clean:
    """Make what all runs of a command share, and run it to its end once."""
    command.setup(shared)
    if not command.is_known:
        return run_clean(command, place, shared)
    cold = run_clean(command, place, shared, is_cold=True)
    objects = place / "home" / "objects"
    for folder in ("records/answer", *(f"{number:02x}" for number in range(256))):
        if (objects / folder).is_dir():
            shutil.copytree(objects / folder, shared / "known" / folder)
    known = run_clean(command, place.with_name(f"{place.name}-known"), shared)
    return replace(known, spans={**cold.spans, **known.spans})


def run_clean(command: Command, place: Path, shared: Path, *, is_cold: bool = False) -> Clean:
    """Run a command to its end, and note what there was to hit."""
    run = Run(command, place, shared, is_cold=is_cold)
    spans: dict[tuple[str, str], tuple[float, float]] = {}
    try:
        while run.process.poll() is None:
            assert run.age_s < CLEAN_S
            family, states = run.look()
            for cell in {(process.kind, state) for process in family for state in states}:
                spans[cell] = (spans.get(cell, (run.age_s, 0.0))[0], run.age_s)
            time.sleep(LOOK_S)
        seconds = run.age_s
        assert run.await_gone() == []
    finally:
        run.clear()
    outcomes = run.outcomes()
    assert outcomes, run.printed()
    assert run.process.returncode == command.status(outcomes), run.printed()
    outcomes.pop(DISTURBED, None)
    return Clean(outcomes=outcomes, status=run.process.returncode, seconds=seconds, spans=spans)


@dataclass(kw_only=True)
class Hit:
    """What came of one aim. ``kind`` and ``state`` are what was hit indeed, empty if nothing was."""

    aim: Aim
    kind: str = ""
    state: str = ""
    case: str = ""
    at_s: float = 0.0
    is_hung: bool = False
    excused: set[str] = field(default_factory=set)
    problems: list[str] = field(default_factory=list)
    details: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        hit = f"{self.aim}, hit {self.kind} {self.case} while {self.state} at {self.at_s:.2f} s"
        return "\n    ".join([hit, *self.problems])

    def expect(self, is_so: bool, problem: str) -> None:
        """Note a problem unless it is so."""
        if not is_so:
            self.problems.append(problem)


class Shooter:
    """Carries out hits on one command."""

    def __init__(self, command: Command, clean: Clean, shared: Path) -> None:
        self._command = command
        self._clean = clean
        self._shared = shared

    def shoot(self, aim: Aim, place: Path) -> Hit:
        """One hit, the end of its command, and a further run of it where that did not end well."""
        hit = self._shoot(aim, place / "0", is_late=True)
        return hit if hit.kind or hit.problems else self._shoot(aim, place / "1", is_late=False)

    def _shoot(self, aim: Aim, place: Path, *, is_late: bool) -> Hit:
        hit = Hit(aim=aim)
        run = Run(self._command, place, self._shared, is_cold=aim.kind.endswith("author"))
        try:
            target = self._strike(run, hit, is_late=is_late)
            if target is not None:
                self._follow(run, hit, target)
            self._check_end(run, hit)
        finally:
            run.clear()
        outcomes = run.outcomes()
        if outcomes != self._clean.outcomes or hit.problems:
            self._resume(place, hit)
        if not hit.is_hung:
            self._check_home(run, hit)
        return hit

    def _strike(self, run: Run, hit: Hit, *, is_late: bool) -> Process | None:
        """Hit the aim when it shows itself, or so much later; None if the run has ended before."""
        chance = random.Random(hit.aim.seed)
        aim = hit.aim
        first, last = self._clean.spans.get((aim.kind, aim.state), (0.0, 0.0))
        delay_s = chance.uniform(0.0, 0.9) * (last - first) if is_late else 0.0
        met_s: float | None = None
        while run.process.poll() is None and run.age_s < HANG_S:
            family, states = run.look()
            found = [process for process in family if process.kind == aim.kind]
            if aim.state in states and found:
                met_s = run.age_s if met_s is None else met_s
                if run.age_s >= met_s + delay_s:
                    target = chance.choice(found)
                    if target.signal(aim.signal):
                        hit.kind, hit.state, hit.case = target.kind, aim.state, target.case
                        hit.at_s = run.age_s
                        hit.details += [f"while {', '.join(sorted(states))}:", *map(str, family)]
                        return target
            time.sleep(LOOK_S)
        return None

    def _follow(self, run: Run, hit: Hit, target: Process) -> None:
        """Wait for the end. Of a stopped client or engine it is the user who ends the run."""
        if hit.aim.signal is signal.SIGSTOP and target.kind == "client":
            run.process.kill()
        elif hit.aim.signal is signal.SIGSTOP and target.kind == "engine":
            for _ in range(2):
                run.wait(0.5)
                run.process.send_signal(signal.SIGINT)
        if not run.wait(HANG_S):
            hit.is_hung = True
            hit.problems.append(f"hangs: has not ended within {HANG_S:g} s")
            hit.details += ["hangs:", *map(str, run.family.look(run.process.pid))]
            run.clear()

    def _check_end(self, run: Run, hit: Hit) -> None:
        code = run.process.wait()
        left = [] if hit.is_hung else run.await_gone()
        hit.expect(not left, f"left behind: {'; '.join(map(str, left))}")
        printed = run.printed()
        hit.expect("Traceback" not in printed, "a traceback was printed")
        hit.details += ["printed:", *run.printed("stderr").splitlines()[-30:]]
        if hit.is_hung:
            return
        outcomes = run.outcomes()
        if hit.kind == "client":
            allowed = {-signal.SIGKILL}
        elif hit.kind == "engine":
            # A client that is interrupted as it exits dies of that, which shells call 130, too.
            allowed = {3} if hit.aim.signal is signal.SIGKILL else {130, -signal.SIGINT}
            if outcomes == self._clean.outcomes:  # it was over already
                allowed.add(self._clean.status)
        else:
            self._check_outcomes(outcomes, hit)
            allowed = {self._command.status(outcomes)}
        hit.expect(code in allowed, f"ended with {code}, not {' or '.join(map(str, allowed))}")

    def _check_outcomes(self, outcomes: Mapping[str, str], hit: Hit) -> None:
        """All but the case that was hit ended as in the clean run."""
        expected = self._clean.outcomes
        changed = {case for case in expected if outcomes.get(case) != expected[case]}
        if hit.kind.startswith("child of") or hit.kind.startswith(OWN_CASE):
            # Where the step is told no case, it is the build of the one kernel that is not as it was.
            is_alone = not hit.case and len(changed) == 1
            excused = {c for c in changed if is_alone or f"{c}/".startswith(f"{hit.case}/")}
        elif hit.kind in OWN_WORK:
            groups = {case.partition("/")[0] for case in changed}
            excused = changed if len(groups) == 1 else set()
        else:
            excused = set()
        hit.excused = excused
        wrong = [
            case
            for case in sorted(changed)
            if case not in excused or outcomes.get(case) in (None, "not_run", *WELL)
        ]
        hit.expect(not wrong, f"ended otherwise: {describe_changes(wrong, outcomes)}")

    def _resume(self, place: Path, hit: Hit) -> None:
        """Run the command again in the same home: all is as in the clean run."""
        run = Run(self._command, place, self._shared)
        try:
            has_ended = run.wait(HANG_S)
            hit.expect(has_ended, f"the next run hangs: has not ended within {HANG_S:g} s")
            if not has_ended:
                hit.details += ["next run:", *map(str, run.family.look(run.process.pid))]
                return
            left = run.await_gone()
            hit.expect(not left, f"the next run left behind: {'; '.join(map(str, left))}")
        finally:
            run.clear()
        outcomes, printed = run.outcomes(), run.printed()
        hit.expect("Traceback" not in printed, "the next run printed a traceback")
        expected = self._clean.outcomes
        changed = sorted(case for case in expected if outcomes.get(case) != expected[case])
        if self._command.keeps_outcomes:
            changed = [case for case in changed if case not in hit.excused]
        hit.expect(
            not changed, f"the next run ended otherwise: {describe_changes(changed, outcomes)}"
        )
        code = run.process.returncode
        status = self._command.status({**outcomes, **expected})
        hit.expect(code == status, f"the next run ended with {code}")
        if changed:
            hit.details += ["next run printed:", *run.printed("stderr").splitlines()[-30:]]

    def _check_home(self, run: Run, hit: Hit) -> None:
        """No file is left but what the pages name, once what is old was collected."""
        for log in (run.home / "logs").glob("**/*.log"):
            if "Traceback" in (text := log.read_text(errors="replace")):
                hit.problems.append(f"a traceback is in {log.relative_to(run.home)}")
                hit.details += [f"{log.name}:", *text.splitlines()[-40:]]
        kept = [
            f"{trial['run']}/{trial['case']}"
            for stream in (run.home / "runs").glob("*.jsonl")
            for trial in read_ended(stream)
            if trial["outcome"] == "passed"
            and (run.home / "work" / trial["run"] / trial["case"]).exists()
        ]
        hit.expect(not kept, f"work folders of passed cases are left: {', '.join(kept)}")
        if (run.home / "objects").is_dir():
            collect(run.home, Keep(days=1), clock=LaterClock())
        left = [path for place in SCRATCH for path in _entries(run.home, place)]
        left += [
            path
            for path in (run.place / "scratch").iterdir()
            if not self._command.has_own_scratch or not path.name.startswith("cc")
        ]
        names = sorted(str(path.relative_to(run.place)) for path in left)
        hit.expect(not left, f"files are left: {', '.join(names)}")


def read_ended(stream: Path) -> list[dict[str, Any]]:
    """The trials of a run that came to its end, none of any other."""
    lines = stream.read_text().splitlines()
    events = [json.loads(line) for line in lines if line.endswith("}")]
    is_over = any(event["type"] == "run_ended" for event in events)
    return [event["trial"] for event in events if is_over and event["type"] == "case_ended"]


def describe_changes(cases: list[str], outcomes: Mapping[str, str]) -> str:
    """The cases, by how they ended."""
    by_outcome: dict[str, list[str]] = {}
    for case in cases:
        by_outcome.setdefault(outcomes.get(case, "missing"), []).append(case)
    return "; ".join(f"{outcome}: {' '.join(those)}" for outcome, those in by_outcome.items())


def _entries(home: Path, place: str) -> list[Path]:
    if "*" in place:
        return list(home.glob(place))
    return list((home / place).iterdir()) if (home / place).is_dir() else []
