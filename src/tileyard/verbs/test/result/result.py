"""The result of a suite's run: one verdict per expected case, and how long the run took."""

from collections import Counter
from collections.abc import Mapping, Sequence

import msgspec

from tileyard.base.events import StopReason
from tileyard.base.model import INFRASTRUCTURE, WELL, Mismatch, Outcome, Record, Trial, is_retried
from tileyard.base.quarantine import Quarantine
from tileyard.verbs.test.result.records import LeftOut, Plan, SuiteCase


class Attempted(Record):
    """One attempt at a case. ``log`` is a path below the data directory, empty if there was no output."""

    trial: str
    outcome: Outcome
    message: str = ""
    device: str = ""
    run_s: float = 0.0
    log: str = ""


class CaseVerdict(Record):
    """The end of a case: its last attempt's. ``is_flaky``: one failed before it passed. ``quarantine`` names
    who is responsible for a case that does not gate. ``must_check``: it failed as unchecked. ``proof`` is
    what decided, if requested. ``is_skipped``: the run's first failure ended it before.
    """

    case: str
    testcase: str
    family: str
    outcome: Outcome
    message: str = ""
    mismatch: Mismatch | None = None
    attempts: tuple[Attempted, ...] = ()
    is_flaky: bool = False
    quarantine: Quarantine | None = None
    where: str = ""
    proof: str = ""
    must_check: bool = False
    is_skipped: bool = False

    @property
    def is_bad(self) -> bool:
        """Whether it ended neither well nor skipped."""
        return self.outcome not in WELL or (self.must_check and self.outcome is Outcome.UNCHECKED)

    @property
    def is_failure(self) -> bool:
        """Whether the case itself failed, or never ran."""
        return self.is_bad and not self.is_fault

    @property
    def is_fault(self) -> bool:
        """Whether devices, queues or hosts failed it; nothing is known of the case itself."""
        return self.outcome in INFRASTRUCTURE

    @property
    def gates(self) -> bool:
        """Whether its failure is a failure of the run."""
        return self.quarantine is None


class Makespan(Record):
    """The time of cases on ``slots`` devices, in seconds. ``bound_s`` is max(longest piece, total / slots) as
    measured, ``predicted_s`` the plan's, ``achieved_s`` from the first start to the last end; ``reason`` is
    that of the gap. If nothing was known of ``guessed`` cases, the prediction was between ``low_s`` and
    ``high_s``.
    """

    slots: int
    total_s: float
    bound_s: float
    predicted_s: float
    achieved_s: float
    reason: str = ""
    guessed: int = 0
    low_s: float = 0.0
    high_s: float = 0.0


class SuiteResult(Record):
    """The result of a run, with a verdict for each selected case, in suite order. ``home`` has logs and data.
    ``plans`` are of its parts, such as kernels and programs, side by side. ``seconds`` is the whole run's.
    ``unrecorded`` trials are not in the store.
    """

    run: str
    suite: str
    path: str
    policy: str
    home: str
    verdicts: tuple[CaseVerdict, ...]
    left_out: tuple[LeftOut, ...] = ()
    uncovered: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    plans: tuple[Plan, ...] = ()
    makespan: Makespan | None = None
    reason: StopReason = "done"
    seconds: float = 0.0
    unrecorded: tuple[str, ...] = ()

    def count(self) -> Counter[Outcome]:
        """Number of cases by outcome, counted from their verdicts."""
        return Counter(verdict.outcome for verdict in self.verdicts)

    @property
    def flaky(self) -> tuple[CaseVerdict, ...]:
        """Cases that passed after an attempt that failed."""
        return tuple(verdict for verdict in self.verdicts if verdict.is_flaky)

    @property
    def failures(self) -> tuple[CaseVerdict, ...]:
        """Cases that fail the run: those that failed, and those that never ran."""
        return tuple(v for v in self.verdicts if v.is_failure and v.gates)

    @property
    def failed(self) -> tuple[CaseVerdict, ...]:
        """Cases that ran and fail the run."""
        return tuple(v for v in self.failures if v.outcome is not Outcome.NOT_RUN)

    @property
    def faults(self) -> tuple[CaseVerdict, ...]:
        """Cases that gate and failed because of devices, queues or hosts."""
        return tuple(v for v in self.verdicts if v.is_fault and v.gates)

    @property
    def spared(self) -> tuple[CaseVerdict, ...]:
        """Cases that ran, failed in whatever way, and do not gate."""
        bad = (v for v in self.verdicts if v.is_bad and v.outcome is not Outcome.NOT_RUN)
        return tuple(v for v in bad if not v.gates)

    @property
    def never_ran(self) -> tuple[CaseVerdict, ...]:
        """Cases that were never reached, whether they gate or not."""
        return tuple(v for v in self.verdicts if v.outcome is Outcome.NOT_RUN)

    @property
    def exit_status(self) -> int:
        """0 all well, 1 a case failed, 3 infrastructure only, 130 interrupted."""
        if self.reason == "interrupted":
            return 130
        if self.failures:
            return 1
        return 3 if self.faults or self.unrecorded else 0


def judge_cases(
    cases: Sequence[SuiteCase],
    trials: Mapping[str, Sequence[Trial]],
    quarantined: Mapping[str, Quarantine],
    *,
    require_check: bool = False,
) -> tuple[CaseVerdict, ...]:
    """A verdict for every case; one without a trial was never reached."""
    verdicts = tuple(_judge(c, trials.get(c.id, ()), quarantined.get(c.id)) for c in cases)
    return tuple(map(_require_check, verdicts)) if require_check else verdicts


def skip_unbegun(verdicts: Sequence[CaseVerdict], why: str) -> tuple[CaseVerdict, ...]:
    """The verdicts of a run that its first failure ended: cases not begun are skipped, not passed."""
    return tuple(
        msgspec.structs.replace(one, is_skipped=True, message=why)
        if one.outcome is Outcome.NOT_RUN
        else one
        for one in verdicts
    )


def fails_run(trial: Trial, *, retries: int, require_check: bool) -> bool:
    """Whether an attempt is a case's last and failed; faults of devices, queues and hosts are not its own."""
    if trial.outcome is Outcome.UNCHECKED:
        return require_check
    is_failure = trial.outcome not in WELL | INFRASTRUCTURE | {Outcome.NOT_RUN}
    return is_failure and not is_retried(trial.outcome, trial.attempt, retries)


def _require_check(verdict: CaseVerdict) -> CaseVerdict:
    if verdict.outcome is not Outcome.UNCHECKED:
        return verdict
    why = "; ".join(filter(None, (verdict.message, "no reference, and a check is required")))
    return msgspec.structs.replace(verdict, must_check=True, message=why)


def _judge(case: SuiteCase, trials: Sequence[Trial], quarantine: Quarantine | None) -> CaseVerdict:
    last = trials[-1] if trials else None
    passed = last is not None and last.outcome in WELL
    return CaseVerdict(
        case=case.id,
        testcase=case.testcase,
        family=case.family or case.testcase,
        outcome=Outcome.NOT_RUN if last is None else last.outcome,
        message="the run ended before this case was reached" if last is None else last.message,
        mismatch=None if last is None else last.mismatch,
        attempts=tuple(
            Attempted(
                trial=trial.id,
                outcome=trial.outcome,
                message=trial.message,
                device=trial.device,
                run_s=trial.run_s,
                log=trial.log,
            )
            for trial in trials
        ),
        is_flaky=passed and any(trial.outcome not in WELL for trial in trials[:-1]),
        quarantine=quarantine,
        where=case.where,
    )
