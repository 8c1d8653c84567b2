"""The records of a suite: testcases with cases, the steps of a case, and the settings that select cases.

``reading`` reads a suite into these records; everything else in this room uses only them. Paths in them are
absolute. The templates of steps already contain what is known when the suite is read (``{suite}``,
``{testcase}``, ``{case}``, ``{dtype}``, ``{shape}``, the case's own ``vars``); placeholders that are known only
when a step runs (``PLACES``) remain.
"""

from collections.abc import Sequence
from typing import Annotated, Literal

import msgspec

from tileyard.artifacts.prerequisites import Prerequisites
from tileyard.base.clock import LONGEST_S
from tileyard.base.decoding import Text
from tileyard.base.model import CommandWork, Limits, Record, Work
from tileyard.base.quarantine import Quarantine

Time = Annotated[float, msgspec.Meta(ge=0, le=LONGEST_S)]


class SuiteCase(Record):
    """One case. ``family`` is its operator family, its testcase's name by default.

    ``smoke`` adds it to the smoke run, ``only_smoke`` keeps it out of full runs. ``where`` is
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


class Rule(Record):
    """Cases whose id matches the glob ``cases`` are left out, or included, and why."""

    cases: Text
    reason: Text


class Belonging(Record):
    """Files, named as inputs are, that belong to the cases which these texts name, besides those of their steps; to none without a text."""

    files: Annotated[tuple[Text, ...], msgspec.Meta(min_length=1)]
    cases: tuple[Text, ...]


class PolicyTable(Record):
    """A selection of cases, as written. Empty fields select everything.

    ``select`` is the smoke run (at least one case for each family and class of dtypes), only the cases
    that are declared as smoke, or all. ``cases`` and ``exclude`` are names of testcases, families and
    tags, and globs on ids; ``tags`` any of which a case must have. ``skip`` are cases to be left out,
    with a reason. ``budget_s`` is the wall time that the most valuable cases are to fit into.
    ``changed`` leaves out what is already proven.
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
    """A whole suite. ``path`` is the file that it was read from, ``folder`` the base of its relative
    paths.

    ``parameters`` are the values for which it was read. ``allow``, if not empty, names the only cases
    that may run; ``skip`` those that must not. ``require`` is what a host must have. ``belongs`` is to which cases files
    belong that no step names, with absolute globs.
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


class Wish(Record):
    """The requested selection. ``rerun`` are the ids of cases to run again, None if all may run.

    ``select`` and ``skip`` contain texts as ``choosing.find_meant`` reads them: a case must match one
    of ``select``, if there is any, and none of ``skip``.
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
    """The selected cases of a suite. ``uncovered`` are requested families of which nothing runs now.

    ``quarantined`` are the cases that run and do not gate, by their ids. ``notes`` are lines for the
    user, such as a quarantine that has ended.
    """

    policy: str
    cases: tuple[SuiteCase, ...]
    left_out: tuple[LeftOut, ...] = ()
    uncovered: tuple[str, ...] = ()
    quarantined: dict[str, Quarantine] = {}
    notes: tuple[str, ...] = ()


# ---- how long things take ---------------------------------------------------------------------


class Expected(Record):
    """Expected time of a case, in seconds, and its source.

    ``seconds`` is the median of ``samples`` earlier runs, ``high_s`` the time that nine of ten of them
    do not exceed, 0 if unknown. ``golden_s`` and ``check_s`` are the times of its steps beside the
    device; they are 0 if there is no such step, or the golden result exists or is another case's.
    ``golden`` identifies the result that a case waits for, empty if none is missing.
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
    """Cases of one testcase that run one after another in one process.

    ``expected_s`` includes the start-up of the process.
    """

    testcase: str
    cases: tuple[str, ...]
    expected_s: float


class Plan(Record):
    """Pieces in the order in which they start, and the prediction for ``slots`` devices.

    ``bound_s`` is max(longest piece, total / slots): no order of these pieces can be faster. ``predicted_s`` is
    when the last one ends if everything takes as long as expected. ``split_s`` is the maximum length of a
    piece, 0 if nothing was split. ``reason`` states the cause of the gap. ``guessed`` is the number of cases of
    which nothing was known; then the prediction is a guess between ``low_s`` and ``high_s``.
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
