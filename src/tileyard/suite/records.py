"""What a suite is: testcases with cases, the steps of a case, and what may be said about choosing.

A suite is read into these records by ``reading``; all else in this room works on them alone.
Paths in them are absolute. In the templates of its steps, what is known when the suite is read
(``{suite}``, ``{testcase}``, ``{case}``, ``{dtype}``, ``{shape}``, the case's own ``vars``) is filled
in already; what is known only when a step runs (``PLACES``) is not.
"""

from typing import Annotated, Literal

import msgspec

from tileyard.artifacts.prerequisites import Prerequisites
from tileyard.clock import LONGEST_S
from tileyard.decoding import Text
from tileyard.model import INFRASTRUCTURE, WELL, CommandWork, Limits, Outcome, Record, Work
from tileyard.quarantine import Quarantine

Time = Annotated[float, msgspec.Meta(ge=0, le=LONGEST_S)]


class SuiteCase(Record):
    """One case. ``family`` is its operator family, its testcase's name by default.

    ``smoke`` asks for it to be in the smoke run, ``only_smoke`` to be in no full one. ``where`` is
    ``file:line`` of its declaration.
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


_FINAL = WELL | INFRASTRUCTURE | {Outcome.NOT_RUN, Outcome.COMPILE_ERROR}


def is_retried(outcome: Outcome, attempt: int, retries: int) -> bool:
    """Whether a case is tried again after its attempt number ``attempt``, counted from 1.

    The engine itself has tried infrastructure again, and a build would be the same.
    """
    return outcome not in _FINAL and attempt <= retries


class Rule(Record):
    """Cases whose id fits the glob ``cases`` are to be left out, or in, and why."""

    cases: Text
    reason: Text


class PolicyTable(Record):
    """A choice of cases, as it is written. Empty fields ask for nothing.

    ``select`` is the smoke run (one case at least for each family and class of dtypes), only the cases
    that are declared as smoke, or all. ``cases`` and ``exclude`` are names of testcases, families and tags,
    and globs on ids; ``tags`` any of which a case must have. ``skip`` are cases to be left out for a reason.
    ``budget_s`` is the wall time that the most valuable cases are to fit into. ``changed`` leaves out what is
    proven already.
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
    """A named choice of cases."""

    name: str


class Suite(Record):
    """All of it. ``path`` is the file that it was read from, ``folder`` what its paths are relative to.

    ``parameters`` are the values for which it was read.
    ``allow``, where there is any, names the only cases that may run; ``skip`` those that must not. ``require`` is what
    a host must have.
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

    @property
    def settings(self) -> tuple[str, ...]:
        """``mode=npu`` for each parameter."""
        return tuple(f"{name}={value}" for name, value in self.parameters.items())

    @property
    def remembered_as(self) -> str:
        """By what it is remembered from run to run: other parameters make other runs."""
        return " ".join((self.path, *self.settings))


# ---- choosing -------------------------------------------------------------------------------


class Wish(Record):
    """What was asked for. ``rerun`` are the ids of cases to run again, None where all may run.

    ``select`` and ``skip`` hold texts as ``choosing.find_meant`` reads them: a case must fit one of
    ``select``, where there is any, and none of ``skip``.
    """

    policy: str = "full"
    select: tuple[str, ...] = ()
    skip: tuple[str, ...] = ()
    rerun: tuple[str, ...] | None = None


class LeftOut(Record):
    """A case that does not run, and why."""

    case: str
    reason: str


class Selection(Record):
    """What of a suite runs. ``uncovered`` are families of which nothing runs now.

    ``quarantined`` are the cases that run and do not gate, by their ids. ``notes`` are lines that people
    should see, as of a quarantine that has ended.
    """

    policy: str
    cases: tuple[SuiteCase, ...]
    left_out: tuple[LeftOut, ...] = ()
    uncovered: tuple[str, ...] = ()
    quarantined: dict[str, Quarantine] = {}
    notes: tuple[str, ...] = ()


# ---- how long things take ---------------------------------------------------------------------


class Expected(Record):
    """How long a case is expected to run, in seconds, and what says so.

    ``seconds`` is the median of ``samples`` earlier runs, ``high_s`` what nine of ten of them do not
    exceed, 0 if that is not known. ``golden_s`` and ``check_s`` are what its steps beside the device take; that is
    0 where there is none, or the golden result is there or another case's. ``golden`` identifies the result that a case
    waits for, empty where none is missing.
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


# A piece can be part of no cycle, and the collector would look at 100,000 of them again and again.
class Piece(Record, gc=False):
    """Cases of one testcase that run one after another in one process.

    ``expected_s`` includes the start-up of the process.
    """

    testcase: str
    cases: tuple[str, ...]
    expected_s: float


class Plan(Record):
    """Pieces in the order in which they start, and what that comes to on ``slots`` devices.

    ``bound_s`` is max(longest piece, total / slots): no order of these pieces can be faster.
    ``predicted_s`` is when the last one ends if everything takes as long as expected. ``split_s`` is how
    long a piece may be, 0 where nothing was split. ``reason`` says where the gap comes from. ``guessed``
    is of how many cases nothing was known; then the prediction is a guess between ``low_s`` and ``high_s``.
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
