"""The records of a suite: testcases with cases, their steps, and settings that select cases; ``reading``
makes them. Paths are absolute; step templates are filled with all that is known by then, and ``PLACES``
remain until they run.
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
