"""The result of a suite's run: one verdict per expected case, and how long the run took."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

import msgspec

from tileyard.artifacts.compat import Prerequisites
from tileyard.base.clock import LONGEST_S
from tileyard.base.decoding import Text
from tileyard.base.events import StopReason
from tileyard.base.model import (
    INFRASTRUCTURE,
    WELL,
    CommandWork,
    Limits,
    Mismatch,
    Outcome,
    Record,
    Trial,
    Work,
    is_retried,
)
from tileyard.base.quarantine import Quarantine

Time = Annotated[float, msgspec.Meta(ge=0, le=LONGEST_S)]


class SuiteCase(Record):
    """One case. ``family`` is by default its testcase. ``smoke`` adds it to smoke runs, ``only_smoke`` keeps
    it out of full ones. ``where`` is ``file:line`` of its declaration.
    """

    testcase: str
    name: str
    work: Work
    family: str = ""
    dtype: str = ""
    shape: tuple[int, ...] = ()
    tags: tuple[str, ...] = ()
    smoke: bool = False
    only_smoke: bool = False
    seed: int = 0
    limits: Limits = Limits()
    where: str = ""

    @property
    def id(self) -> str:
        """``testcase/name``: unique in its suite, stable from run to run."""
        return f"{self.testcase}/{self.name}"

    @property
    def plain_id(self) -> str:
        """The id without the values of parameters."""
        variant = self.work.variant if isinstance(self.work, CommandWork) else ""
        return self.id.removesuffix(variant)


class Rule(Record):
    """Cases whose id matches the glob ``cases`` are left out, or included, and why."""

    cases: Text
    reason: Text


class Belonging(Record):
    """Files, named as inputs are, that belong to the cases of these texts besides their steps' own."""

    files: Annotated[tuple[Text, ...], msgspec.Meta(min_length=1)]
    cases: tuple[Text, ...]


class PolicyTable(Record):
    """A selection of cases, as written; empty fields select everything. ``select`` is the smoke run (a case
    per family and class of dtypes), only declared smoke cases, or all. ``cases`` and ``exclude`` name
    testcases, families, tags, or ids by globs; ``tags`` are those of which a case has any; ``skip`` has
    reasons. ``budget_s`` is wall time for the most valuable cases. ``changed`` leaves out what is proven.
    """

    select: Literal["full", "smoke", "declared"] = "full"
    cases: tuple[Text, ...] = ()
    exclude: tuple[Text, ...] = ()
    skip: tuple[Rule, ...] = ()
    tags: tuple[Text, ...] = ()
    budget_s: Time = 0.0
    changed: bool = False
    retries: Annotated[int, msgspec.Meta(ge=0, le=100)] = 0


class Policy(PolicyTable, kw_only=True):
    """A named selection of cases."""

    name: str


class Suite(Record):
    """A suite read from the file ``path``; ``folder`` is the base of relative paths, ``parameters`` its
    values. ``allow``, unless empty, names the only cases that may run, ``skip`` those that must not.
    ``require`` is what a host must have. ``belongs`` says, by absolute globs, to which cases files belong
    that no step names.
    """

    name: str
    path: str
    folder: str
    cases: tuple[SuiteCase, ...]
    policies: dict[str, Policy] = {}
    parameters: dict[str, str] = {}
    allow: tuple[Rule, ...] = ()
    skip: tuple[Rule, ...] = ()
    quarantine: tuple[Quarantine, ...] = ()
    require: Prerequisites = Prerequisites()
    belongs: tuple[Belonging, ...] = ()

    @property
    def settings(self) -> tuple[str, ...]:
        """``mode=npu`` for each parameter."""
        return tuple(f"{name}={value}" for name, value in self.parameters.items())

    @property
    def remembered_as(self) -> str:
        """The name of its memory between runs: other parameters make other runs."""
        return " ".join((self.path, *self.settings))


# ---- choosing -------------------------------------------------------------------------------


class LeftOut(Record):
    """A case that does not run, and why."""

    case: str
    reason: str


class Selection(Record):
    """The selected cases. ``uncovered`` are requested families of which none runs; ``quarantined`` cases, by
    id, run and do not gate. ``notes`` are for the user, such as of an ended quarantine.
    """

    policy: str
    cases: tuple[SuiteCase, ...]
    left_out: tuple[LeftOut, ...] = ()
    uncovered: tuple[str, ...] = ()
    quarantined: dict[str, Quarantine] = {}
    notes: tuple[str, ...] = ()


# ---- how long things take ---------------------------------------------------------------------


class Expected(Record):
    """Expected time of a case, in seconds: the median of ``samples`` earlier runs; nine of ten do not exceed
    ``high_s``, 0 if unknown. ``golden_s`` and ``check_s`` are its steps' beside the device, 0 for none and
    for a result that exists or is another case's. ``golden`` identifies the missing result that it waits for.
    """

    case: str
    testcase: str
    seconds: float
    source: Literal["history", "family", "default"] = "history"
    high_s: float = 0.0
    samples: int = 0
    golden_s: float = 0.0
    check_s: float = 0.0
    golden: str = ""


# A piece cannot be part of a cycle, and the collector would examine 100,000 of them again and again.
class Piece(Record, gc=False):
    """Cases of one testcase that one process runs in turn. ``expected_s`` includes its start-up."""

    testcase: str
    cases: tuple[str, ...]
    expected_s: float


class Plan(Record):
    """Pieces in starting order, and the prediction for ``slots`` devices. No order ends before ``bound_s``,
    max(longest piece, total / slots); ``predicted_s`` is the expected end, or between ``low_s`` and
    ``high_s`` if nothing is known of ``guessed`` cases. ``split_s`` is the maximum length of a piece, 0
    without one. ``reason`` is that of the gap.
    """

    slots: int
    pieces: tuple[Piece, ...]
    startup_s: float
    total_s: float
    longest_s: float
    bound_s: float
    predicted_s: float
    split_s: float = 0.0
    reason: str = ""
    guessed: int = 0
    low_s: float = 0.0
    high_s: float = 0.0


def count_devices(cases: Sequence[SuiteCase]) -> dict[int, str]:
    """How many devices cases need at once, each number with the first case that needs so many."""
    return {case.work.devices: case.id for case in reversed(cases)}


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
