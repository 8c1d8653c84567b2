"""Runs the cases of a batch that are programs: one process each, or one for several hot ones.

Whatever happens is the doing of the case that was running; the others go on in a fresh process.
"""

import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from tileyard.errors import TileyardError
from tileyard.model import WELL, Case, Device, Outcome
from tileyard.processes.outcomes import tells_of_memory
from tileyard.processes.step_output import Heard
from tileyard.processes.steps import (
    StepEnd,
    StepOrder,
    describe_complaints,
    describe_end,
    run_step,
)
from tileyard.targets.command.filling import Places, fill, fill_argv
from tileyard.targets.command.records import CommandRun, HotRun, Step
from tileyard.targets.command.step_site import find_site
from tileyard.workers.case_folders import DATA, TEMPORARY, USED, Stores, make_folder
from tileyard.workers.protocol import CaseBegan, CaseRan, RunBatch, RunEntry

LONGEST = 300
"""How much of a line becomes part of a message."""

Tell = Callable[[CaseBegan | CaseRan], None]


class CommandRuns:
    """Runs batches of such cases, under the lease of this number.

    With ``limited`` each case is ended at its own limit here; else whoever listens sees to that.
    Once ``is_stopped`` says so, no further case is begun.
    """

    def __init__(
        self,
        stores: Stores,
        tell: Tell,
        is_stopped: Callable[[], bool],
        *,
        lease: int = 0,
        limited: bool = True,
    ) -> None:
        self.is_stopped = is_stopped
        self._home = stores.home
        self._stores = stores
        self._trees = stores.trees
        self._tell = tell
        self._lease = lease
        self._limited = limited

    def run(self, request: RunBatch) -> None:
        """Run every entry; each is told of by its own CaseRan."""
        cases = {case.id: case for case in request.batch.cases}
        left = list(request.entries)
        while left and not self.is_stopped():
            group = _take_group(left)
            members = [_Member(cases[e.case], e, _command(e)) for e in group]
            hot = members[0].command.hot
            if hot is not None and len(members) > 1:
                self._run_hot(members, hot, request.device)
            else:
                self._run_alone(members[0], request.device)

    def _run_alone(self, member: "_Member", device: Device) -> None:
        self._tell(CaseBegan(case=member.case.id))
        started_s = time.monotonic()
        try:
            order = self._order(member, member.command.run, device, [member])
            end = run_step(msgspec.structs.replace(order, title="run"))
        except TileyardError as error:
            self._answer(member, Outcome.RUNTIME_ERROR, str(error), started_s)
            return
        outcome, message = judge_run(end, order)
        if outcome is Outcome.PASSED and member.command.is_judged:
            outcome = Outcome.UNCHECKED
        self._answer(member, outcome, message, started_s)

    def _run_hot(self, members: Sequence["_Member"], hot: HotRun, device: Device) -> None:
        """One process for all of them; again for the rest after one that has ended it."""
        left = list(members)
        while left and not self.is_stopped():
            logs = {m.case.id: str(self._home / m.entry.log) for m in left}
            heard = _HotOutput(hot, {m.command.name: m for m in left}, logs, self)
            started_s = time.monotonic()
            try:
                order = self._order(left[0], hot.step, device, left)
                end = run_step(order, heard)
            except TileyardError as error:
                for member in left:
                    self._answer(member, Outcome.RUNTIME_ERROR, str(error), started_s)
                return
            left = [member for member in left if member.case.id not in heard.answered]
            if not left or (self.is_stopped() and heard.current is None):
                return
            culprit = heard.current or left[0]
            if culprit is not heard.current:
                self._tell(CaseBegan(case=culprit.case.id))
            outcome, message = judge_run(end, order)
            if outcome is Outcome.PASSED:
                outcome = Outcome.INFRA_ERROR
                message = f"its process ended with exit code 0 and said nothing of it; argv {list(order.argv)}"
            self._answer(culprit, outcome, message, heard.since_s or started_s)
            left.remove(culprit)

    def _answer(self, member: "_Member", outcome: Outcome, message: str, started_s: float) -> None:
        self._tell(
            CaseRan(
                case=member.case.id,
                outcome=outcome,
                seconds=time.monotonic() - started_s,
                message=message,
                lease=self._lease,
            )
        )

    def _order(
        self, member: "_Member", step: Step, device: Device, members: Sequence["_Member"]
    ) -> StepOrder:
        """The step with all places filled in; its folders are made ready."""
        for other in members:
            self._begin(other)
        command = member.command
        folder = self._home / command.folder
        places: dict[str, str | tuple[str, ...]] = {
            **find_site().places,
            "work": str(folder / DATA),
            "device": device.name.rpartition(":")[2],
            "threads": str(command.threads),
            "cases": tuple(other.command.name for other in members),
            "works": tuple(str(self._home / other.command.folder / DATA) for other in members),
        }
        if member.entry.golden.tree:
            places["golden"] = str(self._trees.path(member.entry.golden.tree))
        built = self._stores.find_built(member.entry.build)
        if built:
            places["build"] = str(built)
        return StepOrder(
            argv=fill_argv(step.argv, places),
            env=step_environment(command.env, step.env, places, folder / TEMPORARY),
            cwd=fill(step.cwd, places) or str(folder / DATA),
            log=str(self._home / member.entry.log),
            limit_s=(step.limit_s or member.case.limits.run_s) if self._limited else 0.0,
            memory_bytes=command.memory_bytes,
        )

    def _begin(self, member: "_Member") -> None:
        """Mark a case's folder as used; what an earlier attempt has used is made anew."""
        (self._home / member.entry.log).parent.mkdir(parents=True, exist_ok=True)
        folder = self._home / member.command.folder
        if (folder / USED).exists() or not (folder / DATA).exists():
            make_folder(folder, member.entry.golden.tree, self._trees)
        (folder / USED).touch()

    def hear_began(self, member: "_Member") -> None:
        """A hot process turned to a case."""
        self._tell(CaseBegan(case=member.case.id))

    def hear_ended(
        self, member: "_Member", outcome: Outcome, message: str, started_s: float
    ) -> None:
        """A hot process is done with a case."""
        self._answer(member, outcome, message, started_s)


@dataclass(frozen=True)
class _Member:
    """A case with what a runner was given for it."""

    case: Case
    entry: RunEntry
    command: CommandRun


@dataclass
class _HotOutput(Heard):
    """Reads on the output of a hot process which case it is at, and how each went."""

    hot: HotRun
    members: Mapping[str, _Member]
    logs: Mapping[str, str]
    runs: CommandRuns
    reads_lines = True
    answered: set[str] = field(default_factory=set)
    current: _Member | None = None
    since_s: float = 0.0

    def __post_init__(self) -> None:
        self._began = re.compile(self.hot.began)
        self._ended = re.compile(self.hot.ended)

    def log_of(self, text: str) -> str:
        """That of the case which begins or ends in this line, else of the one that is running."""
        news = self._find_news(text)
        return self.logs[news[0].case.id] if news is not None else self.log()

    def line(self, text: str) -> None:
        """Take a line as the begin or the end of a case, if it is one of those still to come."""
        news = self._find_news(text)
        if news is not None:
            member, verdict = news
            if verdict is None:
                self._begin(member)
            else:
                self._end(member, verdict, text.strip()[:LONGEST])

    def _find_news(self, text: str) -> tuple[_Member, str | None] | None:
        """The case that a line tells of, with its verdict, or None where it only begins."""
        for form in (self._ended, self._began):
            found = form.search(text)
            member = self.members.get(found["case"]) if found is not None else None
            if found is not None and member is not None and member.case.id not in self.answered:
                return member, found["verdict"] if form is self._ended else None
        return None

    def log(self) -> str:
        """That of the case that is running, or of the next one."""
        current = self.current
        if current is None:
            left = (m for m in self.members.values() if m.case.id not in self.answered)
            current = next(left, None)
        return "" if current is None else self.logs[current.case.id]

    def deadline_s(self, since_s: float, limit_s: float) -> float:
        """Each case has its own limit, from when the process turned to it."""
        limits = self.current.case.limits if self.current is not None else None
        own_s = limits.run_s if limits is not None else limit_s
        return (self.since_s or since_s) + own_s

    def wants_end(self) -> bool:
        """Between two cases, once no further one is to be begun."""
        return self.current is None and bool(self.answered) and self.runs.is_stopped()

    def _begin(self, member: _Member) -> None:
        self.current, self.since_s = member, time.monotonic()
        self.runs.hear_began(member)

    def _end(self, member: _Member, verdict: str, said: str) -> None:
        if self.current is not member:
            self._begin(member)
        outcome = self.hot.verdicts.get(verdict)
        message = "" if outcome in WELL else f"its process said: {said}"
        if outcome is None:
            message = f"{verdict!r} is none of the suite's verdicts; {message}"
        self.answered.add(member.case.id)
        if outcome is Outcome.PASSED and member.command.is_judged:
            outcome = Outcome.UNCHECKED
        since_s, self.since_s = self.since_s, time.monotonic()
        self.current = None
        self.runs.hear_ended(member, outcome or Outcome.INFRA_ERROR, message, since_s)


def judge_run(end: StepEnd, order: StepOrder) -> tuple[Outcome, str]:
    """What the end of a run step says of the case; ``passed`` is still open to others to judge."""
    if end.ok:
        return Outcome.PASSED, describe_complaints(end, "")
    message = describe_end(end, order)
    if end.refusal or end.survivors:
        return Outcome.INFRA_ERROR, message
    if end.timed_out:
        return Outcome.TIMEOUT, message
    if tells_of_memory(end.tail):
        return Outcome.OUT_OF_MEMORY, message
    return Outcome.CRASHED if end.signal is not None else Outcome.RUNTIME_ERROR, message


def step_environment(
    shared: Mapping[str, str], own: Mapping[str, str], places: Places, temporary: Path
) -> dict[str, str]:
    """This process's environment, with what suite and step add, and a temporary directory."""
    added = {name: fill(text, places) for name, text in own.items()}
    told = find_site().env
    return {**os.environ, **told, **shared, "TMPDIR": str(temporary), **added}


def _take_group(left: list[RunEntry]) -> list[RunEntry]:
    """The entries at the front that one hot process can run, or the first alone."""
    first = _command(left[0])
    count = 1
    if first.hot is not None:
        while count < len(left) and _command(left[count]).hot == first.hot:
            count += 1
    group, left[:] = left[:count], left[count:]
    return group


def _command(entry: RunEntry) -> CommandRun:
    if entry.command is None:
        raise AssertionError(f"case {entry.case} is no case of programs")
    return entry.command
